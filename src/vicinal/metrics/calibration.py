"""Whether one threshold on the scores suits all classes: OPIS."""

import torch
from torch import Tensor

from vicinal.core import register
from vicinal.core.checks import check_between, check_integer, check_scores
from vicinal.ranks.hard import sortable, wide


@register(
    "metric",
    "opis",
    "class-labels",
    "score-shift-invariant",
    "score-scale-invariant",
    family="calibration",
    paper="arXiv:2307.04047",
    verified="numpy in float64; the formula is a reconstruction",
)
@torch.no_grad()
def opis(
    scores: Tensor,
    labels: Tensor,
    bank_labels: Tensor | None = None,
    weight: Tensor | None = None,
    *,
    far: tuple[float, float] = (1e-4, 1e-2),
    steps: int = 101,
    extreme: float | None = None,
) -> Tensor:
    r"""How much classes differ in what a common threshold does to them; 0 if one threshold suits all.

    For class c and threshold t, $u_c(t) = 2\,\mathrm{sens}\,\mathrm{spec} / (\mathrm{sens} + \mathrm{spec})$ with the
    share of its related pairs that score at least t and the share of its unrelated pairs that score less. OPIS is
    $\frac{1}{C} \sum_c \mathrm{mean}_t (u_c(t) - \bar u(t))^2$ over the thresholds at which the share of all unrelated
    pairs that are accepted lies within ``far`` (trapezoid rule on an even grid).

    Args:
        scores: ``[b, N]``, higher = more alike.
        labels: classes of the rows, ``[b]``.
        bank_labels: classes of the columns, ``[N]``, or None if they are the rows.
        weight: ``[b, N]`` or None; pairs of weight 0 (a row and itself) are left out.
        far: lowest and highest share of accepted unrelated pairs (false acceptance rate), within (0, 1).
        steps: number of thresholds, >= 2.
        extreme: a share in (0, 0.5]: return instead the mean u of this share of the classes, the best ones, minus that
            of the worst ones.

    Returns:
        scalar >= 0, NaN without classes that have both related and unrelated pairs. Other classes are left out.

    Raises:
        ValueError: for labels of another length or an empty range.

    >>> opis(torch.tensor([[0.9, 0.1], [0.1, 0.9]]), torch.tensor([0, 1]), far=(0.1, 0.9))
    tensor(0., dtype=torch.float64)
    """
    check_scores(scores, weight)
    low, high = (check_between("far", value, 0, 1) for value in far)
    if low >= high:
        raise ValueError(f"far: expected a lower and a higher share, got {far}")
    count = check_integer("steps", steps, 2)
    columns = labels if bank_labels is None else bank_labels
    for name, classes, rows_here in (("labels", labels, scores.shape[0]), ("bank_labels", columns, scores.shape[1])):
        if classes.shape != (rows_here,):
            raise ValueError(f"{name}: expected [{rows_here}], got {tuple(classes.shape)}")
    numbers = sortable(scores).to(wide(scores.device))
    counted = torch.ones_like(numbers, dtype=torch.bool) if weight is None else weight > 0
    curves = _curves(numbers, labels, columns, counted, (low, high), count)
    if curves is None:
        return numbers.new_tensor(torch.nan)
    if extreme is not None:
        share = check_between("extreme", extreme, 0, 0.5 + 1e-12)
        means = (torch.trapezoid(curves, dim=1) / (count - 1)).sort().values
        number = max(1, int(share * len(means)))
        return means[-number:].mean() - means[:number].mean()
    apart = (curves - curves.mean(dim=0)).square()  # [C, steps]
    return (torch.trapezoid(apart, dim=1) / (count - 1)).mean()


def _curves(
    scores: Tensor, labels: Tensor, columns: Tensor, counted: Tensor, far: tuple[float, float], steps: int
) -> Tensor | None:
    """The curve u of each class at each threshold, ``[C, steps]``; None if no class has related and unrelated pairs."""
    related = labels[:, None] == columns
    ordered = scores[counted & ~related].sort().values
    if len(ordered) == 0:
        return None
    last = len(ordered) - 1
    start, stop = (ordered[min(last, max(0, round((1 - share) * last)))] for share in (far[1], far[0]))
    grid = start + (stop - start) * torch.linspace(0, 1, steps, dtype=scores.dtype, device=scores.device)
    results = []
    for label in torch.unique(labels):
        rows = labels == label
        mine, others = scores[rows][(related & counted)[rows]], scores[rows][(~related & counted)[rows]]
        if len(mine) and len(others):
            accepted = 1 - torch.searchsorted(mine.sort().values, grid).to(scores.dtype) / len(mine)
            rejected = torch.searchsorted(others.sort().values, grid).to(scores.dtype) / len(others)
            total = accepted + rejected
            results.append(torch.where(total > 0, 2 * accepted * rejected / torch.where(total > 0, total, 1.0), 0.0))
    return torch.stack(results) if results else None
