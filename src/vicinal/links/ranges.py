"""Whether a function of one score stays above 0: bounds over cells of the score axis, halved until they tell."""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.links.numerics import score_inside

Range = tuple[Tensor, Tensor]
"""The least and the largest number in each cell, or bounds of them."""

Landmark = tuple[float, float]
"""A score around which a curve has its structure, and how wide that is."""

_MOST_CELLS = 1 << 14
_HALVINGS = 64


def sampled_range(function: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Range:
    """The range of nine values in each cell ``[n]``, which is no bound."""
    share = torch.linspace(0, 1, 9, dtype=low.dtype)
    scores = low[:, None] + share * (high - low)[:, None]
    values = function(torch.minimum(scores, high[:, None]))
    return values.amin(-1), values.amax(-1)


def turning_range(function: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, turns: Iterable[float]) -> Range:
    """The range in each cell ``[n]`` of a function that is monotone between its ``turns``.

    >>> turning_range(torch.square, torch.tensor([-1.0, 2.0]), torch.tensor([2.0, 3.0]), [0.0])
    (tensor([0., 4.]), tensor([4., 9.]))
    """
    places = [low, high, *(torch.minimum(low.clamp(min=turn), high) for turn in turns)]
    values = torch.stack([function(place) for place in places])
    return values.amin(0), values.amax(0)


class Least(NamedTuple):
    """What :func:`least` found.

    Attributes:
        value: the smallest value seen; inf if there is none.
        at: the score of it.
        proven: whether bounds tell the sign of the smallest value; else only scores were tried.
    """

    value: float
    at: float
    proven: bool


def least(
    bounds: Callable[[Tensor, Tensor], Range], domain: tuple[float, float], landmarks: Iterable[Landmark]
) -> Least:
    """A score of a domain where a function is below 0, or the smallest value that was seen and whether that is all.

    Cells that the bounds do not clear are halved until a score below 0 is found, all are clear, or there are too many.

    Args:
        bounds: of the ends of cells ``[n]`` the range of the function, with room for rounding; NaN where it has none.
        domain: lowest and highest score.
        landmarks: scores around which the function has its structure, each with the width of it.

    >>> def parabola(low, high):  # z^2 - 1, by the rules of intervals
    ...     low, high = turning_range(torch.square, low, high, [0.0])
    ...     return low - 1, high - 1
    >>> least(parabola, (-9.0, 9.0), [(0.0, 1.0)]).at, least(parabola, (1.0, 9.0), [(0.0, 1.0)])
    (0.0, Least(value=0.0, at=1.0, proven=True))
    """
    marks = list(landmarks)
    ends = _cells(bounds, domain, marks)
    left, right = ends[:-1], ends[1:]
    value, at = math.inf, float(ends[0])
    for _ in range(_HALVINGS):
        middle = left + (right - left) / 2
        scores = torch.cat([left, middle, right])
        values = bounds(scores, scores)[1].nan_to_num(torch.inf)
        lowest = int(values.argmin())
        if float(values[lowest]) < value:
            value, at = float(values[lowest]), float(scores[lowest])
        unclear = ~(bounds(left, right)[0] >= 0) & (middle > left) & (middle < right)
        if value < 0 or not bool(unclear.any()):
            return Least(value, at, proven=value < math.inf)
        if int(unclear.sum()) > _MOST_CELLS:
            break
        left, middle, right = left[unclear], middle[unclear], right[unclear]
        left, right = torch.cat([left, middle]), torch.cat([middle, right])
    return Least(value, at, proven=False)


def _cells(bounds: Callable[[Tensor, Tensor], Range], domain: tuple[float, float], landmarks: list[Landmark]) -> Tensor:
    """Ends of cells, as far as the function has values: narrow around the landmarks and wider the farther away."""

    def known(scores: Tensor) -> Tensor:
        return ~bounds(scores, scores)[1].isnan()

    starts = [center for center, _ in landmarks if domain[0] < center < domain[1]] + [score_inside(domain)]
    scores = torch.tensor(starts, dtype=torch.float64)
    start = starts[int(known(scores).to(torch.uint8).argmax())]
    low, high = (_last_known(known, start, end) for end in domain)
    steps = torch.cat([torch.zeros(1, dtype=torch.float64), 2.0 ** torch.arange(-6, 1000, dtype=torch.float64)])
    ends = [torch.tensor([low, high], dtype=torch.float64)]
    for center, width in [*landmarks, (start, 1.0)]:
        ends += [center - width * steps, center + width * steps]
    scores = torch.cat(ends)
    return torch.unique(scores[(scores >= low) & (scores <= high)])


def _last_known(known: Callable[[Tensor], Tensor], start: float, end: float) -> float:
    """The score farthest from ``start`` on the way to ``end`` up to which the function has values."""
    way = math.copysign(1.0, end - start)
    scores = start + way * 2.0 ** torch.arange(-60, 1000, dtype=torch.float64)
    scores = torch.cat([scores[way * scores < way * end], torch.tensor([end] if math.isfinite(end) else []).double()])
    has = known(scores)
    if not len(scores) or bool(has.all()):
        return float(scores[-1]) if len(scores) else start
    first = int((~has).to(torch.uint8).argmax())
    near, far = (float(scores[first - 1]) if first else start), float(scores[first])
    for _ in range(6):  # a thousandth of the way left each time
        between = torch.linspace(near, far, 1025, dtype=torch.float64)
        first = int((~known(between[1:])).to(torch.uint8).argmax())
        near, far = between[first : first + 2].tolist()
    return near
