"""Hard unrelated rows made by mixing others, as further columns for each query (KaLM)."""

from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.core.checks import check_integer, check_matrices, check_scores
from vicinal.mixing.mixture import draw_shares


class Columns(NamedTuple):
    """The arguments of a pair loss: ``scores``, ``relation`` and ``weight``, each ``[b, N]``."""

    scores: Tensor
    relation: Tensor
    weight: Tensor


def mix_negatives(first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    r"""Directions of $\lambda n_j + (1 - \lambda) n_k$; if the two cancel, that of the first.

    Args:
        first: $n_j$ ``[..., d]``, rows of length 1.
        second: $n_k$ ``[..., d]``.
        share: $\lambda$ ``[...]`` in [0, 1]; passes no gradient.

    Returns:
        ``[..., d]``, rows of length 1.

    >>> mix_negatives(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]), torch.tensor([1.0]))
    tensor([[1., 0.]])
    """
    if first.shape != second.shape or share.shape != first.shape[:-1]:
        raise ValueError(
            f"share: expected one for each of the rows {tuple(first.shape)} and {tuple(second.shape)}, got "
            f"{tuple(share.shape)}"
        )
    if not torch.compiler.is_compiling() and not bool(((share >= 0) & (share <= 1)).all()):
        raise ValueError("share: expected numbers from 0 to 1, got others")
    part = share.detach().to(first.dtype)[..., None]
    return _direction(part * first + (1 - part) * second, first)


def draw_mixed_negatives(
    negatives: Tensor, number: int = 1, alpha: float = 2.0, *, generator: torch.Generator | None = None
) -> Tensor:
    r"""For each query, mixtures of two of its hard unrelated rows with shares from Beta($\alpha$, $\alpha$).

    Args:
        negatives: ``[b, m, d]``, rows of length 1, m >= 1 for each query. A single row is its own mixture.
        number: mixtures for each query.
        alpha: > 0.
        generator: on the CPU; None: torch's own.

    Returns:
        ``[b, number, d]``, rows of length 1, whose scores are further columns, see :func:`append_negatives`.

    Raises:
        ValueError: for other shapes.

    >>> draw_mixed_negatives(torch.eye(3)[None], 2, generator=torch.Generator().manual_seed(0)).shape
    torch.Size([1, 2, 3])
    """
    b, m = _check_negatives(negatives)
    check_integer("number", number)
    one = torch.randint(m, (b, number), generator=generator)
    step = torch.randint(max(1, m - 1), (b, number), generator=generator) + 1
    other = (one + step) % m  # another row, if there is one
    share = draw_shares(b * number, alpha, generator=generator).view(b, number).to(negatives.device)
    row = torch.arange(b)[:, None]
    return mix_negatives(negatives[row, one], negatives[row, other], share)


def append_negatives(
    queries: Tensor, mixed: Tensor, scores: Tensor, relation: Tensor, weight: Tensor | None = None
) -> Columns:
    """Add mixed unrelated rows as further columns, different ones for each query, with relation 0 and weight 1.

    Args:
        queries: ``[b, d]``, rows of length 1 whose cosines with the bank are the scores.
        mixed: ``[b, c, d]``.
        scores: ``[b, N]``.
        relation: ``[b, N]``.
        weight: ``[b, N]`` or None.

    Returns:
        scores, relation and weight ``[b, N + c]``: the arguments of any pair loss.

    >>> given = append_negatives(torch.eye(2), torch.eye(2)[:, None], torch.zeros(2, 2), torch.eye(2))
    >>> given.scores.tolist(), given.relation[0].tolist()
    ([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]], [1.0, 0.0, 0.0])
    """
    check_scores(scores, weight)
    check_matrices(queries, queries)
    b, c = _check_negatives(mixed)
    if len(queries) != b or len(scores) != b or relation.shape != scores.shape:
        raise ValueError(
            f"mixed: expected rows for each of the scores {tuple(scores.shape)}, got {tuple(mixed.shape)} for "
            f"{len(queries)} queries and a relation {tuple(relation.shape)}"
        )
    more = torch.einsum("bd,bcd->bc", queries, mixed).to(scores.dtype)
    weight = torch.ones_like(scores) if weight is None else weight.to(scores.dtype)
    related = relation.to(scores.dtype)
    return Columns(
        torch.cat([scores, more], dim=1),
        torch.cat([related, related.new_zeros(b, c)], dim=1),
        torch.cat([weight, weight.new_ones(b, c)], dim=1),
    )


def _check_negatives(negatives: Tensor) -> tuple[int, int]:
    if not isinstance(negatives, Tensor) or negatives.ndim != 3 or negatives.shape[1] < 1:
        shape = tuple(negatives.shape) if isinstance(negatives, Tensor) else negatives
        raise ValueError(f"negatives: expected [b, m, d] with at least one row of each query, got {shape}")
    if not negatives.is_floating_point():
        raise TypeError(f"negatives: expected a floating dtype, got {negatives.dtype}")
    return negatives.shape[0], negatives.shape[1]


def _direction(rows: Tensor, instead: Tensor) -> Tensor:
    """Rows of length 1; ``instead`` where a row is too short to have a direction."""
    length = torch.linalg.vector_norm(rows.detach(), dim=-1, keepdim=True)
    usable = length > 4 * torch.finfo(rows.dtype).eps
    return torch.nn.functional.normalize(torch.where(usable, rows, instead), dim=-1)
