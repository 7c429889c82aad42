"""Predictions do not follow rounding: one answer on every path, whatever is tied, moved, rescaled or in blocks."""

import itertools
import math

import pytest
import torch

from vicinal.core import entries
from vicinal.heads import NONA
from vicinal.masks import SoftStep, TopK, log_s1, log_s2
from vicinal.similarity.factors import relative_scores

pytestmark = pytest.mark.sweep(4)

DIM, BANK, QUERIES = 5, 19, 5
SIMILARITIES = [entry.name for entry in entries("similarity")]
MASKS = {
    "none": lambda: None,
    "s1": lambda: SoftStep(DIM, "s1", eps=1e-4),
    "s1-global-all": lambda: SoftStep(DIM, "s1", "global", "all", eps=1e-4),
    "s2": lambda: SoftStep(DIM, "s2"),
    "s2-global": lambda: SoftStep(DIM, "s2", "global"),
    "s2-global-all": lambda: SoftStep(DIM, "s2", "global", "all"),
    "topk": lambda: TopK(4),
}
SIMPLEX = ["softmax", "sparsemax", "entmax15"]
TIES = {
    "none": torch.arange(BANK),
    "all equal": torch.zeros(BANK, dtype=torch.int64),
    "several equal": torch.arange(BANK) % 5,
    "two clusters": torch.arange(BANK) % 2,
}
PLACES = [(0.0, 1.0), (1e4, 1.0), (0.0, 1e-3), (0.0, 1e6), (1e4, 1e-3)]  # common offset, scale
DTYPES = [torch.float64, torch.float32, torch.bfloat16]
CHUNKS = [1, 7, BANK - 1, BANK, BANK + 1]
AGREE = 1e-3  # of labels that span about 4

each_similarity = pytest.mark.parametrize("similarity", SIMILARITIES)
each_mask = pytest.mark.parametrize("mask", MASKS)


def rows(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def case(ties, place, dtype, seed=0):
    """Queries, bank and labels."""
    (offset, scale), which = place, TIES[ties]
    bank, queries = rows(seed, BANK, DIM)[which] * scale + offset, rows(seed + 1, QUERIES, DIM) * scale + offset
    return queries.to(dtype), bank.to(dtype), rows(seed + 2, BANK).to(dtype)


def head(similarity, mask, simplex, dtype, place, seed=0):
    """NONA whose mask has moderate numbers for queries at ``place``."""
    made = NONA(similarity, MASKS[mask](), simplex)
    with torch.no_grad():
        for number, parameter in enumerate(made.parameters()):
            parameter.copy_(0.7 * rows(seed + 3 + number, *parameter.shape))
        if hasattr(made.mask, "projection"):
            made.mask.projection.weight.div_(sum(place))
    return made.to(torch.promote_types(dtype, torch.float32))


def paths(made, queries, bank, labels):
    """The prediction by every path but the dense one, by name."""
    parts = (made.similarity, made.mask, made.simplex)
    for chunk in CHUNKS:
        yield f"blocks of {chunk}", NONA(*parts, chunk_size=chunk)(queries, bank, labels)
    order = torch.arange(BANK).roll(5)
    yield "bank in another order", made(queries, bank[order], labels[order])
    yield "one query at a time", torch.cat([made(query[None], bank, labels) for query in queries])


def combinations(similarity, mask, stride, *choices):
    """Every ``stride``-th combination of ``choices``, another part of them for each pair of similarity and mask."""
    start = (SIMILARITIES.index(similarity) * len(MASKS) + list(MASKS).index(mask)) % stride
    return itertools.islice(itertools.product(*choices), start, None, stride)


def check_paths(similarity, mask, stride):
    for simplex, ties, place, dtype in combinations(similarity, mask, stride, SIMPLEX, TIES, PLACES, DTYPES):
        queries, bank, labels = case(ties, place, dtype)
        made = head(similarity, mask, simplex, dtype, place)
        clear = torch.ones(QUERIES, dtype=torch.bool)
        if isinstance(made.mask, TopK):
            eps = torch.finfo(torch.promote_types(dtype, torch.float32)).eps
            gap, zone, _ = known(made, similarity, (queries, bank), (queries, bank), eps)
            clear = no_row_at_the_edge(gap, made.mask.k, zone, zone / 2)[:, 0]
        with torch.no_grad():
            want = made(queries, bank, labels).double()
            for name, got in paths(made, queries, bank, labels):
                apart = (got.double() - want).abs()[clear]
                assert (apart <= AGREE).all(), (name, simplex, ties, place, dtype)


@each_mask
@each_similarity
def test_every_path_gives_one_answer(similarity, mask):
    check_paths(similarity, mask, 59)


@pytest.mark.slow
@each_mask
@each_similarity
def test_every_path_gives_one_answer_in_all_combinations(similarity, mask):
    check_paths(similarity, mask, 1)


def check_gradients(similarity, mask, stride):
    """Gradients of queries, labels and mask; those of bank rows summed over the ones that are equal."""
    for simplex, ties, place in combinations(similarity, mask, stride, SIMPLEX, TIES, PLACES[:3]):
        made = head(similarity, mask, simplex, torch.float64, place)
        found = []
        for chunk in (None, 1, 7, BANK):
            leaves = [value.clone().requires_grad_() for value in case(ties, place, torch.float64)]
            made.chunk_size = chunk
            asked = [*leaves, *made.parameters()]
            gradients = list(torch.autograd.grad(made(*leaves).sum(), asked, allow_unused=True))
            gradients[1] = torch.zeros(BANK, DIM, dtype=torch.float64).index_add_(0, TIES[ties], gradients[1])
            found.append([value for value in gradients if value is not None])
        for other in found[1:]:
            for want, got in zip(found[0], other, strict=True):
                size = max(1.0, float(want.abs().max()))
                assert float((got - want).abs().max()) <= 1e-4 * size, (simplex, ties, place)


@each_mask
@each_similarity
def test_gradients_are_one_on_every_path(similarity, mask):
    check_gradients(similarity, mask, 17)


@pytest.mark.slow
@each_mask
@each_similarity
def test_gradients_are_one_on_every_path_in_all_combinations(similarity, mask):
    check_gradients(similarity, mask, 1)


def resolution(similarity, queries, bank, cost, eps):
    """By how much scores are known, again from the formula of the page on methods; ``cost [b]`` is the largest."""
    size = queries.norm(dim=1)
    if similarity == "l2":
        return eps * (8 * size / DIM**0.5 + 4 * DIM**0.5 * cost)
    if similarity == "l1":
        return eps * (8 * size + 4 * DIM**0.5 * cost)
    if similarity == "squared_l2":
        return eps * (16 * size / DIM**0.5 * cost.sqrt() + 8 * DIM**0.5 * cost)
    if similarity == "snr":
        signal = (queries - queries.mean(dim=1, keepdim=True)).norm(dim=1)
        return eps * (16 * size / DIM**0.5 / signal * cost.sqrt() + 8 * DIM**0.5 * cost)
    terms = 8 / DIM**0.5 + 4 * DIM**0.5
    if similarity == "cosine":
        return torch.full_like(size, eps * terms)
    return eps * terms * size * bank.norm(dim=1).max() / (DIM if similarity == "scaled_dot" else 1)


def curve(mask, queries, unit):
    """Log of what the mask makes of unit scores that may lie outside [0, 1]."""
    unit, shape = unit.clamp(0, 1), mask.step_parameters(queries)
    if mask.family == "s2":
        return log_s2(unit, shape)
    return log_s1(unit, shape, torch.ones_like(shape.t), mask.eps, mask.form.floor)


def range_of(width, zone, *, inset):
    left = width - zone
    faded = (32 * zone) ** 2 / left.clamp(min=1e-300)
    return torch.where(left > 0, torch.maximum(left if inset else width, faded), math.inf)


def known(made, similarity, inputs, other, eps):
    """Gaps ``[b, N]`` to the best score, their resolution, and how far a score moves as inputs become ``other``."""
    (queries, bank), (queries2, bank2) = ((q.double(), x.double()) for q, x in (inputs, other))
    scores, scores2 = (relative_scores(made.similarity, q, x) for q, x in ((queries, bank), (queries2, bank2)))
    scores, scores2 = (value - value.mean(dim=1, keepdim=True) for value in (scores, scores2))
    cost = made.similarity(queries, bank).abs().amax(dim=1)
    zone = resolution(similarity, queries, bank, cost, eps)[:, None]
    moved = (scores2 - scores).abs().amax(dim=1, keepdim=True) + zone / 4
    return scores.amax(dim=1, keepdim=True) - scores, zone, moved


def no_row_at_the_edge(gap, k, zone, moved):
    """Where the choice of the k nearest, and of those that cannot be told from the last, is clear: ``[b, 1]``."""
    edge = gap.topk(k, largest=False).values[:, -1:] + zone
    return ((gap - edge).abs() > 2 * moved).all(dim=1, keepdim=True)


def promised(made, similarity, simplex, inputs, other, eps):
    """Bound ``[b]`` on the share of weight that moves when inputs become ``other``, from what their scores do.

    A score moves by what it moves exactly, and by a quarter of the resolution; a unit score by that over its range, on
    both sides; the logarithm of a mass by what the mask changes within that. Nothing is promised where scores move by
    the half of 1, which is what weights fall over, nor where a row stands at the edge of a hard choice.
    """
    gap, zone, moved = known(made, similarity, inputs, other, eps)
    low, high = -gap - 2 * moved, -gap + 2 * moved
    if isinstance(made.mask, TopK):
        clear = no_row_at_the_edge(gap, made.mask.k, zone, moved)
        edge = gap.topk(made.mask.k, largest=False).values[:, -1:] + zone
        moved = torch.where(clear, moved, math.inf)
        low, high = (torch.where(gap < edge, value, -math.inf) for value in (low, high))
    elif made.mask is not None:
        queries, bounds = inputs[0].double(), []
        for sign, value in ((1, low), (-1, high)):
            width = range_of(gap.amax(dim=1, keepdim=True) - sign * 2 * moved, zone, inset=made.mask.form.inset)
            bounds.append(value + curve(made.mask, queries, 1 - (gap + sign * 2 * moved) / width))
        low, high = bounds
    if simplex == "softmax":
        share = (high.exp() - low.exp()).sum(dim=1) / low.exp().sum(dim=1)
    else:  # rows 4 below the best have no weight
        share = (high.clamp(-4, 1) - low.clamp(-4, 1)).sum(dim=1)
    return torch.where(moved[:, 0] < 0.5, share, math.inf)


def check_ulps(similarity, mask, stride):
    """Each coordinate goes up, goes down or stays, on its own: equal rows are not quite equal then.

    Returns the share of queries of which the bound says something.
    """
    telling = 0
    chosen = list(combinations(similarity, mask, stride, TIES, PLACES, DTYPES[:2]))
    for number, (ties, place, dtype) in enumerate(chosen):
        queries, bank, labels = case(ties, place, dtype)
        simplex = SIMPLEX[number % 3]
        made = head(similarity, mask, simplex, dtype, place)
        eps = torch.finfo(dtype).eps
        steps = torch.Generator().manual_seed(number)
        other = [
            value * (1 + eps * torch.randint(-1, 2, value.shape, generator=steps).to(dtype))
            for value in (queries, bank)
        ]
        with torch.no_grad():
            bound = promised(made.double(), similarity, simplex, (queries, bank), other, eps)
            made.to(dtype)
            span = float(labels.max() - labels.min())
            for chunk in (None, 7):
                made.chunk_size = chunk
                apart = (made(*other, labels).double() - made(queries, bank, labels).double()).abs()
                assert (apart <= span * bound + 1e-5).all(), (ties, place, dtype, apart, bound)
        telling += int((bound < 0.05).sum())
    return telling / (len(chosen) * QUERIES)


@each_mask
@each_similarity
def test_one_ulp_in_the_inputs_moves_a_prediction_by_no_more_than_is_promised(similarity, mask):
    assert check_ulps(similarity, mask, 7) > 0


@pytest.mark.slow
@each_mask
@each_similarity
def test_one_ulp_moves_no_more_than_is_promised_in_all_combinations(similarity, mask):
    assert check_ulps(similarity, mask, 1) > 0.5
