"""The Plackett-Luce distribution over orders: probabilities, samples, and a gradient of what they earn."""

from typing import Literal, get_args

import torch
from torch import Tensor

from vicinal.core import check_choice
from vicinal.core.checks import check_integer, check_scores

Baseline = Literal["leave_one_out", "none"]


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


def sample_orders(
    scores: Tensor,
    count: int,
    valid: Tensor | None = None,
    *,
    places: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Orders drawn with the probabilities of :func:`order_log_prob`: the order of $s + g$ for Gumbel noise g.

    Args:
        scores: ``[b, n]``.
        count: S, the number of orders for each row.
        valid: boolean ``[b, n]``; the others stand last, in order of their columns. None: all.
        places: how many first places to return; None: all.
        generator: of the noise.

    Returns:
        int64 ``[S, b, places]``, best first.

    >>> sample_orders(torch.tensor([[0.0, 99.0]]), 2).tolist()
    [[[1, 0]], [[1, 0]]]
    """
    check_scores(scores)
    check_integer("count", count)
    width = scores.shape[1]
    places = width if places is None else check_integer("places", places, 1, width)
    device = scores.device if generator is None else generator.device
    noise = -torch.empty(count, *scores.shape, device=device).exponential_(generator=generator).log()
    noisy = scores.detach() + noise.to(scores.device)
    noisy = noisy.masked_fill(~_valid(scores, valid), -torch.inf)
    return noisy.sort(dim=-1, descending=True, stable=True).indices[..., :places]


def order_reward_loss(
    scores: Tensor,
    orders: Tensor,
    rewards: Tensor,
    valid: Tensor | None = None,
    *,
    baseline: Baseline = "leave_one_out",
) -> Tensor:
    r"""A number whose gradient is an unbiased estimate of that of $-E_\pi[R(\pi)]$, by what sampled orders have earned.

    $-\frac 1 S \sum_s (R_s - c_s) \log p(\pi_s)$, averaged over rows, with $c_s$ the mean reward of the other samples,
    which reduces the noise. The value itself means nothing.

    Args:
        scores: ``[b, n]``.
        orders: int64 ``[S, b, k]``, from :func:`sample_orders`.
        rewards: ``[S, b]``, higher = better.
        valid: see :func:`order_log_prob`.
        baseline: "leave_one_out", or "none".

    Papers: Gumbel samples of orders: arXiv:1903.06059; the baseline: Kool et al., 2019 (Buy 4 REINFORCE samples).

    >>> scores = torch.zeros(1, 2, requires_grad=True)
    >>> loss = order_reward_loss(scores, torch.tensor([[[0, 1]], [[1, 0]]]), torch.tensor([[1.0], [0.0]]))
    >>> torch.autograd.grad(loss, scores)[0]
    tensor([[-0.5000,  0.5000]])
    """
    check_choice("baseline", baseline, get_args(Baseline))
    if orders.ndim != 3 or rewards.shape != orders.shape[:2]:
        raise ValueError(f"rewards: expected {tuple(orders.shape[:2])} as the orders, got {tuple(rewards.shape)}")
    if baseline == "leave_one_out":
        if len(orders) < 2:
            raise ValueError("orders: expected two samples at least for a baseline, got 1; or say baseline='none'")
        rewards = (rewards - rewards.mean(dim=0)) * (len(orders) / (len(orders) - 1))
    return -(rewards.detach() * order_log_prob(scores, orders, valid)).mean()


def _valid(scores: Tensor, valid: Tensor | None) -> Tensor:
    if valid is None:
        return torch.ones_like(scores, dtype=torch.bool)
    if valid.shape != scores.shape or valid.dtype != torch.bool:
        raise ValueError(
            f"valid: expected booleans {tuple(scores.shape)} as the scores, got {valid.dtype} {tuple(valid.shape)}"
        )
    return valid
