"""Blocks in front of a head in which rows look at other rows before they are compared: SAINT's and N3's."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from vicinal.core import check_choice, register
from vicinal.core.checks import check_integer, check_matrices
from vicinal.heads.admissible import Identity, admissible, check_some, warn_of_own_bank
from vicinal.heads.nona import NONA
from vicinal.similarity.distances import NegativeSquaredL2

Upstream = Literal["saint", "n3"]


class IntersampleAttention(nn.Module):
    r"""SAINT's attention between rows: $h_i = \mathrm{norm}(z_i + W_o\,\mathrm{att}(z_i, X))$, then a small network.

    $\mathrm{norm}(h_i + W_2\,\mathrm{gelu}(W_1 h_i))$, of rows X other than i itself. SAINT attends to the rows of the
    batch, in prediction too; here they are the bank's, so that a prediction does not depend on the other queries.

    Args:
        dim: width of the rows.
        heads: which divide ``dim``.

    Paper: arXiv:2106.01342.
    """

    def __init__(self, dim: int, heads: int = 1) -> None:
        super().__init__()
        if dim % check_integer("heads", heads):
            raise ValueError(f"heads: expected a divisor of the width {dim}, got {heads}")
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))
        self.wide, self.narrow = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.norms = nn.ModuleList([nn.LayerNorm(dim), nn.LayerNorm(dim)])

    def forward(self, rows: Tensor, bank: Tensor, allowed: Tensor | None = None) -> Tensor:
        """``rows [b, d]`` changed by what they attend to of ``bank [N, d]``, where ``allowed [b, N]``."""
        q, k, v = self.query(rows), self.key(bank), self.value(bank)
        q, k, v = (each.reshape(len(each), self.heads, -1).transpose(0, 1) for each in (q, k, v))  # [heads, n, e]
        attended = scaled_dot_product_attention(q, k, v, attn_mask=allowed).transpose(0, 1).flatten(1)
        hidden = self.norms[0](rows + self.out(attended))
        return self.norms[1](hidden + self.narrow(gelu(self.wide(hidden))))


class NeuralNearest(nn.Module):
    r"""N3: rows beside their k soft nearest neighbors, $z_i + W\,[\bar z_i^1 - z_i; \dots; \bar z_i^k - z_i]$.

    $\bar z_i^n = \sum_j w^n_{ij} x_j$, $w^n_i = \mathrm{softmax}(\alpha^n_i / t)$, $\alpha^1_{ij} = -\|z_i - x_j\|^2$
    and $\alpha^{n+1}_{ij} = \alpha^n_{ij} + \ln(1 - w^n_{ij})$: who was chosen is taken out by as much as it was. As
    the learned t goes to 0 they are the k nearest rows. The paper hands on all k differences; W brings them to the
    rows' width.

    Args:
        dim: width of the rows.
        k: neighbors.

    Paper: arXiv:1810.12575.
    """

    def __init__(self, dim: int, k: int = 3) -> None:
        super().__init__()
        self.k, self.similarity = check_integer("k", k), NegativeSquaredL2()
        self.log_temperature = nn.Parameter(torch.zeros(()))
        self.mix = nn.Linear(k * dim, dim)

    def forward(self, rows: Tensor, bank: Tensor, allowed: Tensor | None = None) -> Tensor:
        """See :meth:`IntersampleAttention.forward`."""
        means = torch.stack([weights @ bank for weights in self.choices(rows, bank, allowed)], dim=1)  # [b, k, d]
        return rows + self.mix((means - rows[:, None]).flatten(1))

    def choices(self, rows: Tensor, bank: Tensor, allowed: Tensor | None = None) -> list[Tensor]:
        """Weights ``[b, N]`` of the first to the k-th soft neighbor; rows sum to 1."""
        scores = self.similarity(rows, bank)
        closed = torch.zeros_like(scores, dtype=torch.bool) if allowed is None else ~allowed
        chosen: list[Tensor] = []
        for _ in range(self.k):
            best = scores.detach().masked_fill(closed, -torch.inf).amax(dim=-1, keepdim=True)
            scores = scores - best
            logits = (scores / self.log_temperature.exp()).masked_fill(closed, -torch.inf)
            chosen.append(logits.softmax(dim=-1))
            scores = scores + _log_left(logits, chosen[-1])
        return chosen


def _log_left(logits: Tensor, weights: Tensor) -> Tensor:
    """``ln(1 - weights)``, also of a weight that rounds to 1; of the only row a large negative number."""
    least = torch.finfo(logits.dtype).min / 8
    top = logits.detach().argmax(dim=-1, keepdim=True)  # no other weight is above a half
    others = logits.scatter(-1, top, least).clamp(min=least).logsumexp(dim=-1, keepdim=True)
    of_top = others - logits.logsumexp(dim=-1, keepdim=True)
    return (-weights.scatter(-1, top, 0.0)).log1p().scatter(-1, top, of_top)


@register(
    "head",
    "refined",
    "convex-hull",
    "learned",
    "permutation-invariant",
    family="upstream",
    paper="NONA, section 7; arXiv:2106.01342; arXiv:1810.12575",
    verified="numpy in float64",
)
class Refined(nn.Module):
    r"""A neighbor head behind a block in which rows first look at the bank: SAINT's or N3's.

    Queries and bank rows are both changed by the same block, which sees no labels; no row attends to itself or to its
    group. The outlook of the paper's section 7. Each prediction reads the whole bank against itself, so it costs
    $N^2$.

    Args:
        dim: width of the embeddings.
        block: "saint" (:class:`IntersampleAttention`) or "n3" (:class:`NeuralNearest`).
        head: None: :class:`NONA` without a mask.

    >>> head = Refined(2, "n3")
    >>> head(torch.zeros(1, 2), torch.eye(2), torch.tensor([3.0, 3.0])).detach().round()
    tensor([3.])
    """

    uses_bank = True

    def __init__(self, dim: int, block: Upstream = "saint", head: nn.Module | None = None) -> None:
        super().__init__()
        check_choice("block", block, get_args(Upstream))
        self.block = IntersampleAttention(dim) if block == "saint" else NeuralNearest(dim)
        self.head = NONA() if head is None else head

    def refine(self, queries: Tensor, bank: Tensor, **identity: Tensor | None) -> tuple[Tensor, Tensor]:
        """Queries ``[b, d]`` and bank ``[N, d]`` behind the block; bank rows without ids are each their own."""
        check_matrices(queries, bank)
        keys = Identity(**identity)
        warn_of_own_bank(self, queries, bank, *keys[:4])
        ids = torch.arange(len(bank), device=bank.device) if keys.bank_ids is None else keys.bank_ids
        among = admissible((len(bank), len(bank)), ids, ids, keys.bank_groups, keys.bank_groups)
        allowed = keys.allowed(len(queries), len(bank))
        for each in (among, allowed):
            check_some(each, len(bank))
        return self.block(queries, bank, allowed), self.block(bank, bank, among)

    def weights(self, queries: Tensor, bank: Tensor, **identity: Tensor | None) -> Tensor:
        """See :meth:`NONA.weights`."""
        return self.head.weights(*self.refine(queries, bank, **identity), **identity)  # type: ignore[operator]

    def forward(self, queries: Tensor, bank: Tensor, labels: Tensor, **identity: Tensor | None) -> Tensor:
        """See :meth:`NONA.forward`."""
        return self.head(*self.refine(queries, bank, **identity), labels, **identity)
