"""A similarity of learned linear maps of queries and bank rows."""

from torch import Tensor, nn

from vicinal.core.checks import check_integer
from vicinal.similarity.base import Similarity, resolve_similarity


class Mapped(Similarity):
    r"""$s_{ij} = \mathrm{sim}(W_q q_i, W_k x_j)$: any similarity, of learned linear maps of its two sides.

    The query and key maps of attention. With one map for both sides (``shared``) and "squared_l2" it is a Mahalanobis
    distance, and ``NONA(Mapped("squared_l2", d, r, shared=True))`` trained on squared error is metric learning for
    kernel regression (MLKR; Weinberger and Tesauro, AISTATS 2007): a Gaussian kernel regression, each row left out of
    its own prediction, of a learned linear map. :func:`vicinal.losses.nca` and :func:`vicinal.losses.lmnn` are its kin
    for classes.

    Args:
        similarity: a registered name or a module, of the mapped rows.
        dim: d, width of queries and bank rows.
        width: of the mapped rows; None: d.
        shared: one map for both sides in place of two.

    >>> import torch
    >>> mapped = Mapped("squared_l2", 2, 1, shared=True)
    >>> with torch.no_grad():
    ...     _ = mapped.query.weight.copy_(torch.tensor([[2.0, 0.0]]))
    >>> mapped(torch.tensor([[0.0, 7.0]]), torch.tensor([[1.0, 0.0], [3.0, 5.0]])).detach()
    tensor([[ -4., -36.]])
    """

    def __init__(
        self, similarity: str | nn.Module, dim: int, width: int | None = None, *, shared: bool = False
    ) -> None:
        super().__init__()
        self.similarity = resolve_similarity(similarity)
        size = check_integer("dim", dim), dim if width is None else check_integer("width", width)
        self.query = nn.Linear(*size, bias=False)
        self.key = self.query if shared else nn.Linear(*size, bias=False)

    def score(self, queries: Tensor, bank: Tensor) -> Tensor:
        """See :meth:`Similarity.forward`."""
        return self.similarity(self.query(queries), self.key(bank))
