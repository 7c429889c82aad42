"""However a prediction is computed, rows of a query's own id and of its own group have no part in it."""

import functools
import itertools

import pytest
import torch
from torch import nn

from vicinal.blockwise import block_policy
from vicinal.estimators.indexing import NearBank
from vicinal.heads import NONA, Ensemble, Kriging
from vicinal.heads.members import ensemble_top_weights, label_quantiles
from vicinal.index import ExactIndex, NeighborBank
from vicinal.masks import SoftStep, TopK
from vicinal.training import NeighborNetwork

pytestmark = pytest.mark.sweep(4)

DIM, ROWS = 4, 96
LEVELS = [0.05, 0.5, 0.95]


def step(family, extent):
    """A mask that hides about half of the bank."""
    mask = SoftStep(DIM, family, "global", extent)
    with torch.no_grad():
        mask.logits.copy_(torch.tensor([1.0, 0.0, -1.0]))
    return mask


HEADS = {
    "softmax": (lambda: None, "softmax"),
    "sparsemax": (lambda: None, "sparsemax"),
    "s1": (lambda: step("s1", "admissible"), "softmax"),
    "s2-all-entmax15": (lambda: step("s2", "all"), "entmax15"),
    "topk": (lambda: TopK(3), "softmax"),
}
WHO = ("ids", "groups", "both")


def head_of(name):
    mask, simplex = HEADS[name]
    return NONA("l2", mask(), simplex).double().requires_grad_(requires_grad=False)


@functools.cache
def problem(who, dtype=torch.float64):
    """Queries that are rows of a bank of tight clusters, labels, their identities, and what is hidden ``[b, N]``."""
    generator = torch.Generator().manual_seed(0)
    centers = 10 * torch.randn(ROWS // 8, 1, DIM, generator=generator, dtype=torch.float64)
    bank = (
        (centers + 0.3 * torch.randn(ROWS // 8, 8, DIM, generator=generator, dtype=torch.float64))
        .flatten(0, 1)
        .to(dtype)
    )
    labels = torch.randn(ROWS, generator=generator, dtype=dtype)
    at = torch.randperm(ROWS, generator=generator)[:16]
    ids, groups = torch.randperm(ROWS, generator=generator) * 3, torch.randperm(ROWS, generator=generator) % 24 - 1
    keys, hidden = {}, torch.zeros(len(at), ROWS, dtype=torch.bool)
    if who != "groups":
        keys |= {"query_ids": ids[at], "bank_ids": ids}
        hidden |= ids[at][:, None] == ids
    if who != "ids":
        keys |= {"query_groups": groups[at], "bank_groups": groups}
        hidden |= groups[at][:, None] == groups
    return bank[at], bank, labels, keys, hidden


# Ways to a prediction: functions of (head, queries, bank, labels, identities).


def streamed(**settings):
    def call(head, queries, bank, labels, keys):
        return NONA(head.similarity, head.mask, head.simplex, **settings)(queries, bank, labels, **keys)

    return call


def twice(head, queries, bank):
    """Two members that see the same."""
    return Ensemble([head, head]), torch.cat([queries, queries], dim=1), torch.cat([bank, bank], dim=1)


def members(head, queries, bank, labels, keys):
    both, wide_queries, wide_bank = twice(head, queries, bank)
    return both(wide_queries, wide_bank, labels, **keys)


def network(head, queries, bank, labels, keys):
    return NeighborNetwork(nn.Identity(), nn.Identity(), head).predict(queries, bank, labels.detach(), **keys)


def of_index(head, queries, bank, k, keys):
    store = NeighborBank(bank.shape[1])
    ids = keys.get("bank_ids", torch.arange(len(bank)))
    store.add(ids, bank.float(), torch.zeros(len(bank)).double(), groups=keys.get("bank_groups"))
    near = NearBank(Kriging(8), store, ExactIndex(DIM, bank=store))
    return near.local_weights(queries, ids=keys.get("query_ids"), groups=keys.get("query_groups")).largest(k)


DIFFERENTIABLE = {
    "dense": lambda head, queries, bank, labels, keys: head(queries, bank, labels, **keys),
    "streamed": streamed(chunk_size=20),
    "streamed as it fits": streamed(),
    "members": members,
}
PREDICTIONS = DIFFERENTIABLE | {
    "network": network,
}
"""Of quantiles ``[b, 3]`` the same is asked."""
QUANTILES = {
    "quantiles": lambda head, queries, bank, labels, keys: label_quantiles(
        NONA(head.similarity, head.mask, head.simplex, chunk_size=20), queries, bank, labels, LEVELS, **keys
    ),
    "quantiles of members": lambda head, queries, bank, labels, keys: label_quantiles(
        *twice(head, queries, bank), labels, LEVELS, **keys
    ),
}


@pytest.fixture(autouse=True)
def every_branch():
    """Balls of rows are small, and queries are predicted a few at a time."""
    with block_policy(batch_queries=7, memory_entries=3 * ROWS):
        yield


ASKED = range(0, 16, 3)
"""Queries whose hidden labels are changed."""


def changed(labels, hidden):
    """The labels, and those with all that is hidden from one of the queries changed: ``[N, 1 + len(ASKED)]``."""
    return torch.stack([labels, *(labels.where(~hidden[row], 1e3) for row in ASKED)], dim=1)


def predictions(path, head, queries, bank, labels, keys):
    """What the path gives for each column of labels, at once if it takes several."""
    call = (PREDICTIONS | QUANTILES)[path]
    if path in QUANTILES or path.startswith(("approximate", "near")):
        return [call(head, queries, bank, column, keys) for column in labels.T[:2]]
    return list(call(head, queries, bank, labels, keys).T)


@pytest.mark.parametrize(("path", "name", "who"), list(itertools.product(PREDICTIONS | QUANTILES, HEADS, WHO)))
def test_hidden_labels_have_no_influence(path, name, who):
    queries, bank, labels, keys, hidden = problem(who)
    found = predictions(path, head_of(name), queries, bank, changed(labels, hidden), keys)
    for after, row in zip(found[1:], ASKED, strict=False):
        torch.testing.assert_close(after[row], found[0][row], rtol=0, atol=1e-9)
    assert any(not torch.equal(other, found[0]) for other in found[1:]), "labels do matter to other queries"
    if path in PREDICTIONS and not path.startswith(("approximate", "near")):
        torch.testing.assert_close(found[0], head_of(name)(queries, bank, labels, **keys), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("path", "name", "who"), list(itertools.product(DIFFERENTIABLE, HEADS, ["groups", "both"])))
def test_hidden_labels_and_rows_have_gradient_exactly_0(path, name, who):
    """Of rows only where the range of a mask is over admissible rows."""
    queries, bank, labels, keys, hidden = problem(who)
    head, call = head_of(name), DIFFERENTIABLE[path]
    leaves = [bank.clone().requires_grad_(), labels.clone().requires_grad_()]
    prediction = call(head, queries, *leaves, keys)
    of_bank, of_labels = torch.autograd.grad(prediction[0], leaves)
    assert (of_labels[hidden[0]] == 0).all()
    torch.testing.assert_close(of_labels.sum(), torch.ones((), dtype=torch.float64))
    assert "-all" in name or (of_bank[hidden[0]] == 0).all()


@pytest.mark.parametrize("path", ["streamed", "streamed as it fits"])
@pytest.mark.parametrize("name", HEADS)
def test_nor_in_single_precision(path, name):
    queries, bank, labels, keys, hidden = problem("both", torch.float32)
    with torch.no_grad():
        found = predictions(path, head_of(name).float(), queries, bank, changed(labels, hidden), keys)
    for after, row in zip(found[1:], ASKED, strict=False):
        torch.testing.assert_close(after[row], found[0][row], rtol=0, atol=1e-4)


def of_members(head, queries, bank, k, keys):
    both, wide_queries, wide_bank = twice(head, queries, bank)
    return both.top_weights(wide_queries, wide_bank, k, **keys)


def of_streamed_members(head, queries, bank, k, keys):
    both, wide_queries, wide_bank = twice(head, queries, bank)
    return ensemble_top_weights(both, wide_queries, wide_bank, k, **keys)


TOP = {
    "dense": lambda head, queries, bank, k, keys: head.top_weights(queries, bank, k, **keys),
    "streamed": lambda head, queries, bank, k, keys: NONA(
        head.similarity, head.mask, head.simplex, chunk_size=20
    ).top_weights(queries, bank, k, **keys),
    "members": of_members,
    "members, streamed": of_streamed_members,
    "index": of_index,
}


@pytest.mark.parametrize(("path", "name", "who"), list(itertools.product(TOP, HEADS, WHO)))
def test_hidden_rows_are_not_among_the_highest_weights(path, name, who):
    queries, bank, _, keys, hidden = problem(who)
    weights, positions = TOP[path](head_of(name), queries, bank, 8, keys)
    shown = torch.zeros_like(hidden).scatter_(1, positions.clamp(min=0), weights > 0)
    assert shown.any(dim=1).all()
    assert not (shown & hidden).any()
    assert not hidden.any(dim=1).logical_not().any(), "every query has something to hide"


def test_without_identities_every_path_leaks():
    """So the tests above can fail."""
    queries, bank, labels, _, hidden = problem("ids")
    for path, name in itertools.product(PREDICTIONS, ["softmax", "topk"]):
        found = predictions(path, head_of(name), queries, bank, changed(labels, hidden), {})
        assert all((after[row] - found[0][row]).abs() > 1 for after, row in zip(found[1:], ASKED, strict=False)), path
