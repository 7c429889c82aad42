"""One test per promise of a mask, each over every registered one in several settings."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.core import entries

DIM = 3
SOFTSTEPS = [
    {"dim": DIM, "family": family, "parameters": parameters, "extent": extent}
    for family, parameters, extent in itertools.product(["s1", "s2"], ["pointwise", "global"], ["admissible", "all"])
]
REJECTING = [{name: value for name, value in chosen.items() if name != "family"} for chosen in SOFTSTEPS[4:]]
SETTINGS = {
    "softstep": SOFTSTEPS,
    "rank_step": SOFTSTEPS,
    "rejecting_step": REJECTING,
    "topk": [{"k": 1}, {"k": 3}, {"k": 100}],
}
CASES = [(entry, chosen) for entry in entries("mask") for chosen in SETTINGS.get(entry.name, [])]
each = pytest.mark.parametrize(
    ("entry", "chosen"), CASES, ids=["-".join([e.name, *map(str, c.values())]) for e, c in CASES]
)
quick = settings(deadline=None, derandomize=True, max_examples=20)


def made(entry, chosen, seed=0, spread=2.0):
    """Mask in float64 with parameters drawn at random."""
    mask = entry.factory(**chosen).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in mask.parameters():
            parameter.copy_(spread * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return mask


def drawn(seed, b=4, n=7):
    """Scores with ties, queries, and a weight with at least one admissible column a row."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(b, n, generator=generator, dtype=torch.float64)
    scores[0, 1] = scores[0, 4]
    scores[1] = scores[1].round()
    scores = (scores * 64).round() / 64  # so that adding a whole number changes no difference
    queries = torch.randn(b, DIM, generator=generator, dtype=torch.float64)
    weight = (torch.rand(b, n, generator=generator) < 0.6).double()
    weight[torch.arange(b), torch.randint(n, (b,), generator=generator)] = 1.0
    return scores, queries, weight


def test_each_mask_is_tested():
    assert {entry.name for entry in entries("mask")} == SETTINGS.keys()


@each
@quick
@given(seed=st.integers(0, 10_000), weighted=st.booleans())
def test_values_are_at_most_0_and_an_admissible_row_survives(entry, chosen, seed, weighted):
    scores, queries, weight = drawn(seed)
    weight = weight if weighted else None
    log_mask = made(entry, chosen, seed)(scores, queries, weight)
    assert log_mask.shape == scores.shape
    assert (log_mask <= 0).all()
    seen = torch.ones_like(scores) if weight is None else weight
    assert ((seen > 0) & (log_mask > -torch.inf)).any(dim=-1).all()


@each
@quick
@given(seed=st.integers(0, 10_000), shift=st.integers(-1000, 1000), scale=st.floats(0.01, 100))
def test_keeps_what_it_declares(entry, chosen, seed, shift, scale):
    scores, queries, weight = drawn(seed)
    mask = made(entry, chosen, seed, spread=0.7)
    want = mask(scores, queries, weight).exp()
    order = torch.randperm(scores.shape[1], generator=torch.Generator().manual_seed(seed))
    if "permutation-invariant" in entry.facts:
        got = mask(scores[:, order], queries, weight[:, order]).exp()
        torch.testing.assert_close(got, want[:, order])
    if "score-shift-invariant" in entry.facts:
        torch.testing.assert_close(mask(scores + shift, queries, weight).exp(), want)
    if "score-scale-invariant" in entry.facts:
        torch.testing.assert_close(mask(scores * scale, queries, weight).exp(), want, rtol=1e-6, atol=1e-6)


@each
def test_hard_rejection_gives_exactly_0_to_some_row(entry, chosen):
    assert "hard-rejection" in entry.facts
    scores = torch.linspace(0, 1, 200, dtype=torch.float64)[None]
    kept = made(entry, chosen, 1)(scores, torch.ones(1, DIM, dtype=torch.float64)) > -torch.inf
    assert not kept[0, 0]
    assert kept[0, -1]
    assert (kept[0].int().diff() >= 0).all()  # nearer rows are never rejected before farther ones


@each
def test_the_mask_never_falls_with_the_score(entry, chosen):
    scores = torch.linspace(-3, 2, 400, dtype=torch.float64).expand(5, -1)
    queries = torch.randn(5, DIM, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    mass = made(entry, chosen, 2)(scores, queries).exp()
    assert (mass.diff(dim=-1) >= -1e-12).all()
    assert (mass[:, -1] == 1).all()  # the nearest of all is kept whole


@each
def test_rows_do_not_depend_on_one_another(entry, chosen):
    scores, queries, weight = drawn(8)
    mask = made(entry, chosen)
    together = mask(scores, queries, weight)
    alone = torch.cat([mask(scores[i : i + 1], queries[i : i + 1], weight[i : i + 1]) for i in range(len(scores))])
    torch.testing.assert_close(together, alone)


@each
def test_boolean_and_fractional_weights_mean_the_same_as_0_and_1(entry, chosen):
    scores, queries, weight = drawn(9)
    mask = made(entry, chosen)
    want = mask(scores, queries, weight)
    assert torch.equal(mask(scores, queries, weight > 0), want)
    assert torch.equal(mask(scores, queries, 0.3 * weight), want)


@each
@pytest.mark.parametrize("weighted", [False, True])
def test_a_flat_row_is_kept_whole_with_gradient_0(entry, chosen, weighted):
    scores = torch.full((2, 5), -0.3, dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([[1.0, 0, 1, 0, 1]] * 2) if weighted else None
    log_mask = made(entry, chosen)(scores, torch.ones(2, DIM, dtype=torch.float64), weight)
    kept = log_mask if weight is None else log_mask[weight > 0]
    assert (kept == 0).all()
    if log_mask.requires_grad:
        log_mask.sum().backward()
        assert scores.grad is None or (scores.grad == 0).all()


@each
@pytest.mark.parametrize("place", [0, 2, 5])
def test_the_only_admissible_row_is_kept_wherever_it_ranks(entry, chosen, place):
    scores = torch.arange(6.0).double().expand(3, -1)
    weight = torch.zeros(3, 6)
    weight[:, place] = 1.0
    queries = torch.randn(3, DIM, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    assert made(entry, chosen)(scores, queries, weight)[:, place].isfinite().all()


@each
def test_a_row_without_an_admissible_column_gives_no_nan(entry, chosen):
    scores, queries, weight = drawn(10)
    weight[2] = 0.0
    assert not made(entry, chosen)(scores, queries, weight).isnan().any()


@each
def test_sizes_of_nothing(entry, chosen):
    mask = entry.factory(**chosen)
    assert mask(torch.zeros(2, 0), torch.zeros(2, DIM)).shape == (2, 0)
    assert mask(torch.zeros(0, 4), torch.zeros(0, DIM)).shape == (0, 4)


@each
def test_errors_name_the_argument(entry, chosen):
    mask = entry.factory(**chosen)
    with pytest.raises(ValueError, match=r"^scores: expected a matrix"):
        mask(torch.zeros(3), torch.zeros(1, DIM))
    with pytest.raises(TypeError, match=r"^scores: expected a floating dtype"):
        mask(torch.zeros(2, 3).int(), torch.zeros(2, DIM))
    with pytest.raises(ValueError, match=r"^weight: expected \(2, 3\)"):
        mask(torch.zeros(2, 3), torch.zeros(2, DIM), torch.ones(2, 2))


@each
def test_repr_shows_the_settings(entry, chosen):
    shown = repr(entry.factory(**chosen))
    assert all(f"{key}={value!r}" in shown for key, value in chosen.items())
