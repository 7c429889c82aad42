"""The Plackett-Luce distribution over orders."""

import torch
from torch import Tensor

from vicinal.core.checks import check_scores


def order_log_prob(scores: Tensor, orders: Tensor, valid: Tensor | None = None) -> Tensor:
    r"""$\log p(\pi) = \sum_k \left( s_{\pi_k} - \log \sum_{j \ge k} e^{s_{\pi_j}} \right)$ for orders, best first.

    If only the first k places of an order are given, the inner sum still runs over all columns that are not placed
    before.

    Args:
        scores: ``[b, n]``; adding a number to a row changes nothing.
        orders: int64 ``[..., b, k]`` with k <= n, columns without repetition.
        valid: boolean ``[b, n]``: columns that count; the others stand last and drop out of the sum. None: all.

    Returns:
        ``[..., b]``, in float32 at least.

    Raises:
        ValueError: for a column that occurs twice, is out of range, or does not count but stands before one that does.

    >>> order_log_prob(torch.zeros(1, 3), torch.tensor([[2, 0, 1]])).exp()
    tensor([0.1667])
    """
    check_scores(scores)
    if orders.ndim < 2 or orders.dtype != torch.int64 or orders.shape[-2] != len(scores):
        raise ValueError(f"orders: expected int64 [..., {len(scores)}, k], got {orders.dtype} {tuple(orders.shape)}")
    if orders.shape[-1] > scores.shape[1]:
        raise ValueError(f"orders: expected at most {scores.shape[1]} places, got {orders.shape[-1]}")
    valid = _valid(scores, valid)
    ranked = orders.sort(dim=-1).values
    if bool((ranked[..., 1:] == ranked[..., :-1]).any()) or (
        orders.numel() and not 0 <= int(ranked.min()) <= int(ranked.max()) < scores.shape[1]
    ):
        raise ValueError(
            f"orders: expected columns from 0 to {scores.shape[1] - 1}, each once, got another or one twice"
        )
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32)).masked_fill(~valid, -torch.inf)
    lead = orders.shape[:-2]
    wide, known = wide.expand(*lead, *wide.shape), valid.expand(*lead, *valid.shape)
    placed = torch.zeros_like(known).scatter(-1, orders, value=True)
    rest = wide.masked_fill(placed, -torch.inf).logsumexp(dim=-1, keepdim=True)  # of what has no place
    picked, counted = wide.gather(-1, orders), known.gather(-1, orders)
    if bool((counted.int().diff(dim=-1) > 0).any()):
        raise ValueError("orders: expected the columns that are not valid last, got one before a valid one")
    behind = torch.cat([picked, rest], dim=-1).flip(-1).logcumsumexp(dim=-1).flip(-1)[..., :-1]
    return torch.where(counted, torch.where(counted, picked, 0.0) - torch.where(counted, behind, 0.0), 0.0).sum(-1)


def _valid(scores: Tensor, valid: Tensor | None) -> Tensor:
    if valid is None:
        return torch.ones_like(scores, dtype=torch.bool)
    if valid.shape != scores.shape or valid.dtype != torch.bool:
        raise ValueError(
            f"valid: expected booleans {tuple(scores.shape)} as the scores, got {valid.dtype} {tuple(valid.shape)}"
        )
    return valid
