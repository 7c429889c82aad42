"""Which members of an ensemble answer a row: k of M, chosen by what the row is."""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vicinal.core.checks import check_integer
from vicinal.masks import hard_topk, perturbed_topk


class MemberSelection(nn.Module):
    r"""The mean of the k members that a network chooses for each row, $\frac 1 k \sum_m z_m(x)\, f_m(x)$.

    z marks the k highest of the scores c(x): in training under noise, so that c learns from the error of the prediction
    (:func:`vicinal.masks.perturbed_topk`), in evaluation exactly k members. Train it on rows that the members were not
    trained on: on their own training rows they all look good. Reconstructed from memory of the paper; details may
    differ.

    Args:
        width: d, the width of a row's features, such as its embedding; 0: one choice for all rows, which prunes an
            ensemble.
        members: M, the number of members.
        k: from 1 to M; None: half of them, rounded up.
        hidden: widths of the network's hidden layers.
        sigma: standard deviation of the noise, > 0.
        samples: number of noise draws, even.

    Paper: Differentiable Model Selection for Ensemble Learning, arXiv:2211.00251.

    >>> selection = MemberSelection(3, members=4, k=2).eval()
    >>> selection(torch.randn(5, 3), torch.ones(5, 4, 2))[0]
    tensor([1., 1.])
    """

    def __init__(
        self,
        width: int,
        members: int,
        k: int | None = None,
        *,
        hidden: Sequence[int] = (32,),
        sigma: float = 0.5,
        samples: int = 50,
    ) -> None:
        super().__init__()
        self.width, self.members = check_integer("width", width, 0), check_integer("members", members)
        self.k = check_integer("k", -(-members // 2) if k is None else k, 1, members)
        self.sigma, self.samples = sigma, samples
        sizes = [width, *hidden] if width else []
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(sizes):
            layers += [nn.Linear(before, check_integer("hidden", after)), nn.ReLU()]
        self.network = nn.Sequential(*layers, nn.Linear(sizes[-1], members)) if width else None
        self.scores = None if width else nn.Parameter(torch.zeros(members))

    def choose(self, rows: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """z, ``[b, M]`` with rows that sum to k, of rows ``[b, d]``; hard in evaluation."""
        if rows.ndim != 2 or (self.width and rows.shape[1] != self.width):
            raise ValueError(f"rows: expected [b, {self.width or 'any'}], got {tuple(rows.shape)}")
        if self.network is not None:
            scores: Tensor = self.network(rows)
        else:
            scores = self.scores.expand(len(rows), -1)  # type: ignore[union-attr]
        if not self.training:
            return hard_topk(scores, self.k)
        return perturbed_topk(scores, self.k, sigma=self.sigma, samples=self.samples, generator=generator)

    def forward(self, rows: Tensor, predictions: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The prediction ``[b, C]`` of rows ``[b, d]`` and the members' predictions ``[b, M, C]``.

        Predictions are numbers, probabilities, or scores of classes before a softmax.
        """
        if predictions.ndim != 3 or predictions.shape[:2] != (len(rows), self.members):
            raise ValueError(f"predictions: expected [{len(rows)}, {self.members}, C], got {tuple(predictions.shape)}")
        chosen = self.choose(rows, generator).to(predictions.dtype)
        return (chosen[..., None] * predictions).sum(dim=1) / self.k
