"""From the concatenated columns to the space in which neighbors are near: one projector, or several side by side."""

import math
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from vicinal.core.checks import check_between, check_integer


class Projector(nn.Module):
    """Batch norm, linear layer, tanh, for each of ``sizes``: the projector of the NONA paper.

    Args:
        in_dim: width of its input.
        sizes: widths of the layers, first to last; empty: the input passes through unchanged.
        dropout: share of inputs dropped before each linear layer while training, from 0 to below 1.

    >>> print(Projector(384, (200, 25)).dim)
    25
    """

    def __init__(self, in_dim: int, sizes: Sequence[int] = (200, 25), dropout: float = 0.0) -> None:
        super().__init__()
        width = check_integer("in_dim", in_dim)
        if dropout != 0:
            check_between("dropout", dropout, 0, 1)
        self.in_dim, self.sizes, self.dropout = width, [check_integer("sizes", s) for s in sizes], float(dropout)
        layers: list[nn.Module] = []
        for size in self.sizes:
            layers.append(nn.BatchNorm1d(width))
            if dropout:
                layers.append(nn.Dropout(dropout))
            layers += [nn.Linear(width, size), nn.Tanh()]
            width = size
        self.layers = nn.Sequential(*layers)
        self.dim = width

    def forward(self, embeddings: Tensor) -> Tensor:
        """``[b, dim]`` from ``[b, in_dim]``, computed in the dtype of its weights."""
        if embeddings.ndim != 2 or embeddings.shape[1] != self.in_dim:
            raise ValueError(f"embeddings: expected [b, {self.in_dim}], got {tuple(embeddings.shape)}")
        weight = next(self.parameters(), None)
        return self.layers(embeddings if weight is None else embeddings.to(weight.dtype))

    def extra_repr(self) -> str:
        """Widths, for ``print``."""
        return f"in_dim={self.in_dim}, dim={self.dim}"


class MemberProjectors(nn.Module):
    r"""``members`` projectors as :class:`Projector`, each with its own weights, their embeddings side by side.

    Member m maps $x$ to $z_m$; the embedding is $[z_1, \dots, z_M]$. Members share nothing but the statistics of the
    first batch norm, which are those of the input, so each is what it would be on its own.

    Args:
        in_dim: width of its input.
        sizes: widths of each member's layers, first to last; at least one.
        dropout: share of inputs dropped before each linear layer while training, independently for each member, from 0
            to below 1.
        members: how many, >= 1.
        final_tanh: whether the last layer ends in a tanh, as the paper's does. Without it embeddings may be any size.
        rank: width of a linear map, shared by all members, before their first layers; None: no such map. A first layer
            then consists of two thin ones (see :func:`vicinal.factorization.low_rank`).

    Raises:
        ValueError: naming the argument.

    >>> projectors = MemberProjectors(384, (200, 25), members=8)
    >>> projectors.dim, projectors(torch.randn(4, 384)).shape
    (200, torch.Size([4, 200]))
    """

    def __init__(
        self,
        in_dim: int,
        sizes: Sequence[int] = (200, 25),
        dropout: float = 0.0,
        *,
        members: int = 8,
        final_tanh: bool = True,
        rank: int | None = None,
    ) -> None:
        super().__init__()
        self.in_dim = check_integer("in_dim", in_dim)
        self.rank = None if rank is None else check_integer("rank", rank)
        self.members = check_integer("members", members)
        self.sizes = [check_integer("sizes", size) for size in sizes]
        if not self.sizes:
            raise ValueError("sizes: expected the width of at least one layer, as (200, 25), got none")
        if dropout != 0:
            check_between("dropout", dropout, 0, 1)
        self.dropout, self.final_tanh = float(dropout), final_tanh
        widths = [self.rank or self.in_dim, *self.sizes]
        self.norms = nn.ModuleList([nn.BatchNorm1d(self.in_dim, affine=False)])
        self.norms.extend(nn.BatchNorm1d(members * width) for width in widths[1:-1])
        self.gain = nn.Parameter(torch.ones(members, widths[0]))
        self.offset = nn.Parameter(torch.zeros(members, widths[0]))
        if self.rank is not None:
            bound = 1 / math.sqrt(self.in_dim)
            self.reduction = nn.Parameter(torch.empty(self.in_dim, self.rank).uniform_(-bound, bound))
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for width, size in zip(widths[:-1], self.sizes, strict=True):
            bound = 1 / math.sqrt(width)  # as torch's linear layer starts
            self.weights.append(torch.empty(members, width, size).uniform_(-bound, bound))
            self.biases.append(torch.empty(members, size).uniform_(-bound, bound))
        self.dim = members * self.sizes[-1]

    def forward(self, embeddings: Tensor) -> Tensor:
        """``[b, members * sizes[-1]]`` from ``[b, in_dim]``, computed in the dtype of its weights."""
        if embeddings.ndim != 2 or embeddings.shape[1] != self.in_dim:
            raise ValueError(f"embeddings: expected [b, {self.in_dim}], got {tuple(embeddings.shape)}")
        unit = self.norms[0](embeddings.to(self.gain.dtype))  # [b, f]
        unit = unit if self.rank is None else unit @ self.reduction
        if self.training and self.dropout:
            hidden = self._linear(0, self._drop(unit * self.gain[:, None] + self.offset[:, None]))
        else:  # the affine part is taken into the weights: the same numbers, without a copy of the input a member
            bias = self.biases[0] + torch.bmm(self.offset[:, None], self.weights[0])[:, 0]
            hidden = unit @ (self.gain[:, :, None] * self.weights[0]) + bias[:, None]  # [M, b, h]
        for layer in range(1, len(self.sizes)):
            side = hidden.tanh().transpose(0, 1).flatten(1)  # [b, M * h]
            hidden = self.norms[layer](side).unflatten(1, (self.members, -1)).transpose(0, 1)
            hidden = self._linear(layer, self._drop(hidden))
        hidden = hidden.tanh() if self.final_tanh else hidden
        return hidden.transpose(0, 1).flatten(1)  # [b, M * d]

    @torch.no_grad()
    def member_state(self, member: int) -> dict[str, Tensor]:
        """A copy of the weights and statistics that are one member's own, with the statistics of its input."""
        state = {name: value[member].clone() for name, value in self._own_parameters().items()}
        for layer, norm in enumerate(self.norms):
            for name, value in norm.state_dict().items():
                shared = layer == 0 or value.ndim == 0
                part = value if shared else value.unflatten(0, (self.members, -1))[member]
                state[f"norms.{layer}.{name}"] = part.clone()
        return state

    @torch.no_grad()
    def load_member_state(self, member: int, state: dict[str, Tensor]) -> None:
        """Make a member what it was when :meth:`member_state` gave ``state``; the others stay what they are.

        All members share the present statistics of the input, so the member's gain and offset are adjusted to make up
        for the difference.
        """
        for name, value in self._own_parameters().items():
            value[member] = state[name]
        for layer, norm in enumerate(self.norms[1:], start=1):
            for name, value in norm.state_dict().items():
                if value.ndim:
                    value.unflatten(0, (self.members, -1))[member] = state[f"norms.{layer}.{name}"]
        shared, eps = self.norms[0].state_dict(), nn.BatchNorm1d(1).eps
        now, then = shared["running_var"] + eps, state["norms.0.running_var"] + eps
        moved = shared["running_mean"] - state["norms.0.running_mean"]
        self.offset[member] += self.gain[member] * moved / then.sqrt()
        self.gain[member] *= (now / then).sqrt()

    def _own_parameters(self) -> dict[str, Tensor]:
        """Parameters that have a slice for each member."""
        shared = ("norms.", "reduction")
        return {name: value for name, value in self.named_parameters() if not name.startswith(shared)}

    def _linear(self, layer: int, hidden: Tensor) -> Tensor:
        return torch.baddbmm(self.biases[layer][:, None], hidden, self.weights[layer])

    def _drop(self, hidden: Tensor) -> Tensor:
        if not (self.training and self.dropout):
            return hidden
        if hidden.device.type != "cpu":
            return nn.functional.dropout(hidden, self.dropout)
        # torch draws a number an entry, in 1.4 times the time; a share of 1/65536 is fine enough for what is dropped
        words = torch.empty(-(-hidden.numel() // 4), dtype=torch.int64).random_(-(1 << 63), None)  # 4 draws a word
        draws = words.view(torch.int16)[: hidden.numel()].view(hidden.shape)
        dropped = min(round(self.dropout * 65536), 65535)
        return hidden * (draws >= dropped - 32768).to(hidden.dtype).mul_(65536 / (65536 - dropped))

    def extra_repr(self) -> str:
        """Widths, for ``print``."""
        return f"in_dim={self.in_dim}, sizes={tuple(self.sizes)}, members={self.members}, dim={self.dim}"


class PrincipalProjector(nn.Module):
    r"""A linear map to unit length, $z = W^\top (x - m) / |W^\top (x - m)|$, that starts at principal components.

    It starts as $W = V S^{-a}$ with the directions V of largest variance of the training rows and their standard
    deviations S: with a = 0, cosines are those of the vectors themselves, with a = 1 those of whitened vectors.

    Args:
        in_dim: width of its input.
        dim: width of its output.

    >>> rows = torch.randn(50, 6)
    >>> projector = PrincipalProjector(6, 4).fit(rows, 0.5)
    >>> bool((projector(rows).norm(dim=1) - 1).abs().max() < 1e-5)
    True
    """

    def __init__(self, in_dim: int, dim: int) -> None:
        super().__init__()
        self.in_dim, self.dim = check_integer("in_dim", in_dim), check_integer("dim", dim)
        self.center: Tensor = nn.Buffer(torch.zeros(self.in_dim))
        self.weight = nn.Parameter(torch.zeros(self.in_dim, self.dim))

    @torch.no_grad()
    def fit(self, rows: Tensor, power: float) -> Self:
        """Start at the principal components of training rows ``[n, in_dim]``, divided by deviations to ``power``.

        Directions without variance get small random weights. Returns itself.
        """
        center = rows.double().mean(dim=0)
        _, spread, directions = torch.linalg.svd(rows.double() - center, full_matrices=False)
        some = (spread > 1e-4 * spread[:1]).nonzero()[: self.dim, 0]
        start = torch.randn(self.in_dim, self.dim).double() / (100 * math.sqrt(self.in_dim))
        if len(some):
            known = directions[some].T / spread[some] ** power
            start[:, : len(some)] = known / (known.square().mean().sqrt() * math.sqrt(self.in_dim))
        self.center.copy_(center)
        self.weight.copy_(start)
        return self

    def parts(self, embeddings: Tensor, widths: Sequence[int]) -> Tensor:
        """What each span of ``widths`` columns adds to the output: ``[b, spans, dim]``, which sum to it."""
        moved = embeddings.to(self.weight.dtype) - self.center
        spans = zip(torch.split(moved, list(widths), dim=1), torch.split(self.weight, list(widths)), strict=True)
        each = torch.stack([part @ weight for part, weight in spans], dim=1)  # [b, spans, dim]
        length = each.sum(dim=1).norm(dim=-1).clamp(min=torch.finfo(each.dtype).tiny)
        return each / length[:, None, None]

    def forward(self, embeddings: Tensor) -> Tensor:
        """``[b, dim]`` from ``[b, in_dim]``, computed in the dtype of its weights."""
        if embeddings.ndim != 2 or embeddings.shape[1] != self.in_dim:
            raise ValueError(f"embeddings: expected [b, {self.in_dim}], got {tuple(embeddings.shape)}")
        return nn.functional.normalize((embeddings.to(self.weight.dtype) - self.center) @ self.weight, dim=1)

    def extra_repr(self) -> str:
        """Widths, for ``print``."""
        return f"in_dim={self.in_dim}, dim={self.dim}"
