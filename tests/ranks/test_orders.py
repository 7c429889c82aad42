"""Sorting networks, the Plackett-Luce distribution, and one order out of several."""

import random
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from references import orders as reference
from vicinal.ranks import (
    borda,
    kemeny,
    order_log_prob,
    preferences,
    reciprocal_rank_fusion,
    self_consistent_order,
    soft_sort,
)
from vicinal.ranks.sorting import network_layers

GOLDEN = Path(__file__).parents[1] / "golden/sets"
EXACT = {"rtol": 1e-9, "atol": 1e-9}
SWAPS = ["cauchy", "logistic", "logistic_phi", "gaussian", "reciprocal", "optimal"]
NETWORKS = ["odd_even", "bitonic"]


def load(name):
    with np.load(GOLDEN / f"{name}.npz") as data:
        return {key: torch.from_numpy(data[key]) for key in data if data[key].dtype.kind != "U"}


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("count", range(1, 11))
def test_networks_sort_zeros_and_ones_and_so_everything(network, count):
    layers = network_layers(count, network)
    for wires in map(list, product((0, 1), repeat=count)):
        for layer in layers:
            assert len({wire for pair in layer for wire in pair}) == 2 * len(layer)
            for a, b in layer:
                wires[a], wires[b] = min(wires[a], wires[b]), max(wires[a], wires[b])
        assert wires == sorted(wires)
    assert len(layers) <= (count if network == "odd_even" else 10)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("swap", SWAPS)
@pytest.mark.parametrize("exact", [False, True])
def test_sorting_is_that_of_the_public_code_in_value_and_gradient(network, swap, exact):
    data = load("sorting_networks")
    x = data["x"].requires_grad_()
    case = f"{network}_{swap}_{'ste' if exact else 'soft'}"
    sorted_scores = soft_sort(x, network=network, swap=swap, exact=exact)
    torch.testing.assert_close(sorted_scores.values.detach(), data[f"{case}_sorted"], **EXACT)
    torch.testing.assert_close(sorted_scores.permutation.detach(), data[f"{case}_P"], **EXACT)
    (
        (sorted_scores.values * data["w_for_grad"]).sum() + (sorted_scores.permutation * data["W_for_grad"]).sum()
    ).backward()
    rows = (
        [0, 2] if swap == "logistic_phi" and not exact else [0, 1, 2]
    )  # rounding of ties of row 1 is divided by 1e-10
    torch.testing.assert_close(x.grad[rows], data[f"{case}_dx"][rows], **EXACT)
    assert x.grad.isfinite().all()


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 7),
    network=st.sampled_from(NETWORKS),
    swap=st.sampled_from(SWAPS),
    exact=st.booleans(),
)
def test_sorted_scores_are_a_doubly_stochastic_mixture_and_exact_ones_are_sorted(seed, n, network, swap, exact):
    x = normal(seed, 3, n)
    x[1] = x[1].round()  # ties
    values, permutation = soft_sort(x, network=network, swap=swap, exact=exact)
    assert (permutation >= -1e-12).all()
    for dim in (1, 2):
        torch.testing.assert_close(permutation.sum(dim), torch.ones(3, n, dtype=torch.float64))
    torch.testing.assert_close((x[:, None] @ permutation)[:, 0], values)
    torch.testing.assert_close(values.sum(1), x.sum(1))
    if exact:
        assert torch.equal(values, x.sort(dim=1).values)
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        moved = soft_sort(x[:1, order], network=network, swap=swap)
        torch.testing.assert_close(moved.permutation, permutation[:1, order])
    steep = soft_sort(x[:1], network=network, swap=swap, exact=False, steepness=1e9)
    torch.testing.assert_close(steep.values, x[:1].sort(dim=1).values, rtol=0, atol=1e-4)


@pytest.mark.parametrize("swap", SWAPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_sorting_is_finite_for_large_scores_and_ties(swap, dtype):
    x = torch.tensor([[1e4, -1e4, 0.0], [1.0, 1.0, 1.0]]).to(dtype).requires_grad_()
    for exact in (True, False):
        values, permutation = soft_sort(x, swap=swap, exact=exact)
        (values.sum() + (permutation * torch.arange(3)).sum()).backward()
        assert values.dtype == torch.float32
        assert x.grad.isfinite().all()
    assert torch.autograd.gradcheck(
        lambda s: tuple(soft_sort(s, swap=swap, exact=False)), normal(0, 2, 4).requires_grad_()
    )


def test_log_probabilities_of_orders_are_those_of_the_public_code_and_numpy():
    data = load("plackett_luce")
    got = order_log_prob(data["scores"].expand(4, 5), data["rankings"])
    torch.testing.assert_close(got, data["loglik"], **EXACT)
    torch.testing.assert_close(got.sum(), data["loglik_total"], **EXACT)
    ties = order_log_prob(data["ties_scores"][None], torch.arange(5)[None])
    assert ties.item() == pytest.approx(float(data["ties_loglik"]), rel=1e-9)
    scores = normal(1, 2, 5)
    for order in ([3, 1, 4, 0, 2], [2, 0], [4]):
        want = [reference.order_log_prob(row.tolist(), order) for row in scores]
        np.testing.assert_allclose(order_log_prob(scores, torch.tensor([order] * 2)), want, rtol=1e-12)


@given(seed=st.integers(0, 10_000), n=st.integers(1, 4), k=st.integers(1, 4), shift=st.floats(-50, 50))
def test_probabilities_of_all_orders_sum_to_1(seed, n, k, shift):
    scores = normal(seed, 2, n)
    orders = torch.tensor(list(permutations(range(n), min(k, n))))[:, None].expand(-1, 2, -1)
    logs = order_log_prob(scores, orders)
    torch.testing.assert_close(logs.exp().sum(0), torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(order_log_prob(scores + shift, orders), logs)
    x = scores.requires_grad_()
    torch.testing.assert_close(
        torch.autograd.grad(order_log_prob(x, orders)[0].sum(), x)[0].sum(1),
        torch.zeros(2).double(),
        rtol=0,
        atol=1e-12,
    )
    assert torch.autograd.gradcheck(lambda s: order_log_prob(s, orders), x)


def test_columns_that_are_not_valid_stand_last_and_drop_out():
    scores, valid = normal(2, 1, 5).requires_grad_(), torch.tensor([[True, False, True, True, False]])
    orders = torch.tensor([[*order, 1, 4] for order in permutations((0, 2, 3))])[:, None]
    got = order_log_prob(scores, orders, valid)
    place = {0: 0, 2: 1, 3: 2}
    inner = torch.tensor([[[place[j] for j in row[:3]] for row in sample] for sample in orders.tolist()])
    torch.testing.assert_close(got, order_log_prob(scores[:, [0, 2, 3]], inner))
    (grad,) = torch.autograd.grad(got.sum(), scores)
    assert grad.isfinite().all()
    assert (grad[~valid] == 0).all()
    nothing = order_log_prob(scores, orders, valid & False)
    assert (nothing == 0).all()


def test_consensus_orders_are_those_of_the_public_code():
    data = load("rank_aggregation")
    found = kemeny(data["preferences"])
    assert (found.order.tolist(), found.distance, found.optima) == (
        data["kemeny"].tolist(),
        int(data["kemeny_distance"]),
        int(data["n_optimal"]),
    )
    assert kemeny(data["noisy_preferences"]).order.tolist() == data["noisy_kemeny"].tolist()
    assert kemeny(data["noisy_preferences"]).distance == data["noisy_distance_of_every_permutation"].min()
    for case in ("", "noisy_"):
        assert borda(data[f"{case}preferences"]).tolist() == data[f"{case}borda"].tolist()
        assert reciprocal_rank_fusion(data[f"{case}preferences"]).tolist() == data[f"{case}rrf"].tolist()
    assert borda(data["partial"]).tolist() == data["borda_partial"].tolist()
    assert reciprocal_rank_fusion(data["partial"]).tolist() == data["rrf_partial"].tolist()
    margins = preferences(data["preferences"]).double()
    torch.testing.assert_close((margins - margins.T).clamp(min=0), data["pairwise_margin"])


@given(seed=st.integers(0, 10_000), n=st.integers(1, 5), v=st.integers(1, 5))
def test_kemeny_equals_all_tried_also_for_parts_of_the_items(seed, n, v):
    draw = random.Random(seed)
    rows = [draw.sample(range(n), draw.randint(1, n)) for _ in range(v)]
    rankings = torch.tensor([row + [-1] * (n - len(row)) for row in rows])
    found = kemeny(rankings, n)
    order, distance, optima = reference.kemeny(rows, n)
    assert (found.order.tolist(), found.distance, found.optima) == (list(order), distance, optima)
    assert kemeny(rankings.flip(0), n).order.tolist() == list(order)  # whose ranking it is does not matter
    near = kemeny(rankings, n, method="local")
    assert near.distance == reference.kendall(near.order.tolist(), rows) >= distance
    assert near.distance <= reference.kendall(borda(rankings, n).tolist(), rows)


def test_kemeny_of_one_of_all_alike_and_of_reversed_rankings():
    order = torch.tensor([[2, 0, 3, 1]])
    assert kemeny(order).order.tolist() == kemeny(order.repeat(3, 1)).order.tolist() == [2, 0, 3, 1]
    data = load("rank_aggregation")["preferences"]
    assert kemeny(data.flip(1)).order.tolist() == kemeny(data).order.flip(0).tolist()
    winner = torch.tensor([[0, 1, 2], [0, 2, 1], [1, 2, 0], [2, 0, 1], [0, 1, 2]])
    assert kemeny(winner).order[0] == 0
    many = torch.stack([torch.randperm(20, generator=torch.Generator().manual_seed(i)) for i in range(5)])
    found = kemeny(many)
    assert found.optima is None
    assert sorted(found.order.tolist()) == list(range(20))
    assert borda(torch.tensor([[1, -1], [1, -1]]), 3).tolist() == [1, 0, 2]
    assert reciprocal_rank_fusion(torch.tensor([[1, -1]]), 3).tolist() == [1, 0, 2]


def test_a_ranker_led_by_the_order_of_its_input_is_put_right():
    items = [5.0, 1.0, 4.0, 2.0, 3.0]

    def rank(shown):
        """Exact, but that the last two of the input are always turned around."""
        order = sorted(range(5), key=lambda i: shown[i])
        a, b = order.index(3), order.index(4)
        order[a], order[b] = order[b], order[a]
        return order

    assert self_consistent_order(rank, items, repeats=400).order.tolist() == [1, 3, 4, 2, 0]
    assert str(self_consistent_order(rank, items, seed=1)) == str(self_consistent_order(rank, items, seed=1))
    with pytest.raises(ValueError, match=r"^rank: expected places of 5 items"):
        self_consistent_order(lambda shown: [7], items)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: soft_sort(torch.zeros(3)), r"^scores: expected a matrix \[b, N\]"),
        (lambda: soft_sort(torch.zeros(1, 3), steepness=0), r"^steepness: expected a number above 0"),
        (lambda: soft_sort(torch.zeros(1, 3), swap="sine"), r"^swap: expected one of"),
        (lambda: soft_sort(torch.zeros(1, 3), network="bubble"), r"^network: expected one of"),
        (lambda: order_log_prob(torch.zeros(1, 3), torch.tensor([[0, 0]])), r"^orders: .*or one twice"),
        (lambda: order_log_prob(torch.zeros(1, 3), torch.tensor([[0, 3]])), r"^orders: expected columns from 0 to 2"),
        (lambda: order_log_prob(torch.zeros(1, 2), torch.tensor([[0, 1, 2]])), r"^orders: expected at most 2 places"),
        (
            lambda: order_log_prob(torch.zeros(2, 2), torch.tensor([[0, 1]])),
            r"^orders: expected int64 \[\.\.\., 2, k\]",
        ),
        (
            lambda: order_log_prob(torch.zeros(1, 2), torch.tensor([[0, 1]]), torch.tensor([[False, True]])),
            r"^orders: .*last",
        ),
        (lambda: kemeny(torch.tensor([[0, 0]])), r"^rankings: expected each item once"),
        (lambda: kemeny(torch.tensor([[0, 5]]), 3), r"^rankings: expected items from 0 to 2"),
        (lambda: kemeny(torch.tensor([[-1, -1]])), r"^rankings: expected an item at least"),
        (lambda: borda(torch.zeros(0, 3, dtype=torch.int64)), r"^rankings: expected int64 \[v, m\]"),
        (lambda: kemeny(torch.arange(17)[None], method="exact"), r"^rankings: expected at most 16 items"),
        (lambda: reciprocal_rank_fusion(torch.tensor([[0]]), offset=0), r"^offset: expected a number above 0"),
    ],
)
def test_what_does_not_fit_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
