"""NONA with several heads, each with maps of its own for queries and keys."""

import copy

import torch
from torch import Tensor, nn

from vicinal.core import register
from vicinal.core.checks import check_integer, check_labels, check_matrices
from vicinal.heads.admissible import Identity, warn_of_own_bank
from vicinal.heads.nona import NONA, heaviest, mean_label
from vicinal.masks.simplex import SimplexMap
from vicinal.similarity.mapped import Mapped


@register(
    "head",
    "multi_head",
    "convex-hull",
    "learned",
    "permutation-invariant",
    paper="NONA, section 7; arXiv:1706.03762",
    verified="numpy in float64",
)
class MultiHead(nn.Module):
    r"""$\hat y_i = \frac{1}{H} \sum_h \sum_j p^h_{ij} y_j$, head h of the rows mapped by $W^h_q$ and $W^h_k$.

    Several heads of attention, with maps of queries and keys (:class:`vicinal.similarity.Mapped`), as the paper's
    section 7 has in its outlook. The values are the labels themselves: a map of them would leave their convex hull, and
    a prediction would no longer be a weighted mean that can be read. Its weights are the mean of the heads', so they
    sum to 1. :class:`Ensemble` is the same of heads that each have a whole projector, trained on errors of their own.

    Args:
        dim: d, width of the embeddings.
        heads: H.
        width: of the mapped rows; None: d / H, at least 1.
        similarity: a registered name or a module, of the mapped rows.
        mask: of each head, a copy of this one, which sees the queries as they are; None: no mask.
        simplex: see :class:`NONA`.

    >>> head = MultiHead(2, heads=2)
    >>> bank, labels = torch.eye(2), torch.tensor([0.0, 1.0])
    >>> torch.testing.assert_close(head.weights(torch.zeros(1, 2), bank).sum().item(), 1.0)
    """

    uses_bank = True

    def __init__(
        self,
        dim: int,
        heads: int = 4,
        width: int | None = None,
        similarity: str | nn.Module = "l2",
        mask: nn.Module | None = None,
        simplex: str | SimplexMap = "softmax",
    ) -> None:
        super().__init__()
        size = max(1, check_integer("dim", dim) // check_integer("heads", heads)) if width is None else width
        self.heads = nn.ModuleList(
            NONA(Mapped(copy.deepcopy(similarity), dim, size), copy.deepcopy(mask), simplex) for _ in range(heads)
        )

    def weights(self, queries: Tensor, bank: Tensor, **identity: Tensor | None) -> Tensor:
        """Mean of the heads' weights ``[b, N]``, rows sum to 1: see :meth:`NONA.weights`."""
        warn_of_own_bank(self, queries, bank, *Identity(**identity)[:4])
        return torch.stack([head.weights(queries, bank, **identity) for head in self.heads]).mean(dim=0)  # type: ignore[operator]

    @torch.no_grad()
    def top_weights(self, queries: Tensor, bank: Tensor, k: int, **identity: Tensor | None) -> tuple[Tensor, Tensor]:
        """The ``k`` bank rows of highest mean weight: see :meth:`NONA.top_weights`."""
        return heaviest(self.weights(queries, bank, **identity), k)

    def forward(self, queries: Tensor, bank: Tensor, labels: Tensor, **identity: Tensor | None) -> Tensor:
        """Weighted mean of the labels, ``[b]`` or ``[b, T]``: see :meth:`NONA.forward`."""
        check_matrices(queries, bank)
        check_labels(labels, len(bank))
        return mean_label(self.weights(queries, bank, **identity), labels)
