"""One test per promise of a head, each over every registered one: heads are called alike and can be swapped."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.core import entries
from vicinal.masks import SoftStep

DIM = 3
SETTINGS = {
    "nona": [{}, {"mask": SoftStep(DIM)}, {"simplex": "sparsemax"}],
    "dense": [{"dim": DIM}],
    "kriging": [{"k": 4}],
    "comparables": [{"k": 4, "trend": 2}],
    "multi_head": [{"dim": DIM, "heads": 2, "width": 2}, {"dim": DIM, "mask": SoftStep(DIM)}],
    "refined": [{"dim": DIM, "block": "saint"}, {"dim": DIM, "block": "n3"}],
}
CASES = [(entry, chosen) for entry in entries("head") for chosen in SETTINGS.get(entry.name, [])]
each = pytest.mark.parametrize(("entry", "chosen"), CASES, ids=[f"{e.name}-{'-'.join(c)}" for e, c in CASES])
quick = settings(deadline=None, derandomize=True, max_examples=20)


def drawn(seed, b=4, n=7):
    """Queries, bank, labels and the ids of both."""
    generator = torch.Generator().manual_seed(seed)
    queries, bank = (torch.randn(k, DIM, generator=generator, dtype=torch.float64) for k in (b, n))
    labels = torch.randn(n, generator=generator, dtype=torch.float64)
    ids = torch.randperm(n, generator=generator)
    return queries, bank, labels, {"query_ids": ids[:b], "bank_ids": ids}


def made(entry, chosen):
    torch.manual_seed(0)
    return entry.factory(**chosen).double()


def test_each_head_is_tested():
    assert {entry.name for entry in entries("head")} == SETTINGS.keys()


@each
def test_all_are_called_alike_and_give_one_number_a_query(entry, chosen):
    queries, bank, labels, ids = drawn(0)
    head = made(entry, chosen)
    groups = {"query_groups": torch.arange(4), "bank_groups": torch.arange(1, 8)}
    for keys in ({}, ids, groups, ids | groups):
        got = head(queries, bank, labels, **keys)
        assert got.shape == (4,)
        assert got.dtype == torch.float64
        assert got.isfinite().all()


@each
def test_all_give_a_gradient_to_the_queries(entry, chosen):
    queries, bank, labels, ids = drawn(1)
    queries.requires_grad_()
    made(entry, chosen)(queries, bank, labels, **ids).sum().backward()
    assert (queries.grad.abs().sum(dim=-1) > 0).all()


@each
def test_all_say_whether_they_look_at_the_bank(entry, chosen):
    queries, bank, labels, ids = drawn(2)
    head = made(entry, chosen)
    moved = head(queries, bank, 2 * labels, **ids) - head(queries, bank, labels, **ids)
    assert bool((moved != 0).any()) == head.uses_bank


@pytest.mark.sweep(3)
@each
@quick
@given(seed=st.integers(0, 10_000))
def test_keeps_what_it_declares(entry, chosen, seed):
    queries, bank, labels, ids = drawn(seed)
    head = made(entry, chosen)
    want = head(queries, bank, labels, **ids)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(seed))
    if "permutation-invariant" in entry.facts:
        keys = {"query_ids": ids["query_ids"], "bank_ids": ids["bank_ids"][order]}
        torch.testing.assert_close(head(queries, bank[order], labels[order], **keys), want)
    if "convex-hull" in entry.facts:
        assert ((want >= labels.min() - 1e-12) & (want <= labels.max() + 1e-12)).all()
        shifted = head(queries, bank, 3 * labels - 5, **ids)  # a weighted mean commutes with scaling of the labels
        torch.testing.assert_close(shifted, 3 * want - 5)


@each
def test_a_state_dict_brings_back_the_same_predictions(entry, chosen):
    queries, bank, labels, ids = drawn(3)
    head = made(entry, chosen)
    other = entry.factory(**chosen).double()
    other.load_state_dict(head.state_dict())
    assert torch.equal(other(queries, bank, labels, **ids), head(queries, bank, labels, **ids))
