"""The dense head: a linear layer, called as the neighbor heads are, so that they can be swapped."""

from typing import Literal, Unpack, get_args

import torch
from torch import Tensor, nn

from vicinal.core import check_choice, register
from vicinal.core.checks import check_integer, check_matrices
from vicinal.heads.admissible import Identity, IdentityArguments

Activation = Literal["none", "softmax", "sigmoid"]


@register("head", "dense", "learned", verified="numpy in float64")
class Dense(nn.Module):
    r"""$\hat y_i = W q_i + c$; the bank is ignored.

    Args:
        dim: width of the queries.
        outputs: number of targets or classes; None for one target without a dimension of its own.
        activation: "none", or, for probabilities of classes, "softmax" over the outputs, or "sigmoid" of each of them
            where a row may have several classes (both need ``outputs``).
        bias: starting value of c, one number or one per output. None: torch's random start. For regression the mean of
            the labels is a good choice: from a random start a small learning rate needs many epochs just to get there.

    Raises:
        ValueError: if softmax or sigmoid is asked for without ``outputs``, or ``bias`` has another number of them.

    >>> head = Dense(2, bias=0.5)
    >>> head(torch.zeros(3, 2), torch.zeros(0, 2), torch.zeros(0)).detach()
    tensor([0.5000, 0.5000, 0.5000])
    """

    uses_bank = False

    def __init__(
        self,
        dim: int,
        outputs: int | None = None,
        activation: Activation = "none",
        bias: float | Tensor | None = None,
    ) -> None:
        super().__init__()
        self.outputs = None if outputs is None else check_integer("outputs", outputs)
        self.activation = check_choice("activation", activation, get_args(Activation))
        if activation != "none" and outputs is None:
            raise ValueError(f"outputs: expected the number of classes for activation {activation!r}, got None")
        self.linear = nn.Linear(check_integer("dim", dim), outputs or 1)
        if bias is not None:
            start = torch.as_tensor(bias, dtype=self.linear.bias.dtype)
            if start.ndim > 0 and start.shape != self.linear.bias.shape:
                raise ValueError(f"bias: expected a number or one an output, got shape {tuple(start.shape)}")
            with torch.no_grad():
                self.linear.bias.copy_(start)

    def forward(
        self,
        queries: Tensor,
        bank: Tensor | None = None,
        labels: Tensor | None = None,
        **identity: Unpack[IdentityArguments],
    ) -> Tensor:
        """Prediction from the queries alone.

        Args:
            queries: ``[b, dim]``.
            bank: not used, as are all the others.
            labels: not used.
            identity: not used.

        Returns:
            ``[b]``, or ``[b, outputs]`` if ``outputs`` was given.

        Raises:
            ValueError: if the queries are not ``dim`` wide.
        """
        Identity(**identity)  # a name that no head knows raises
        check_matrices(queries, queries)
        if queries.shape[1] != self.linear.in_features:
            raise ValueError(f"queries: expected [b, {self.linear.in_features}], got {tuple(queries.shape)}")
        prediction: Tensor = self.linear(queries.to(self.linear.weight.dtype))  # [b, outputs or 1]
        if self.outputs is None:
            return prediction[:, 0]
        if self.activation == "sigmoid":
            return prediction.sigmoid()
        return prediction.softmax(dim=-1) if self.activation == "softmax" else prediction
