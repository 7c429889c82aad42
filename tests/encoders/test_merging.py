"""Two networks become one: matched units compute the same, and what is merged is the mean."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from vicinal.encoders import MemberProjectors, Projector, merge
from vicinal.encoders.merging import (
    activation_matching,
    partly_merged,
    permuted,
    same_input,
    sinkhorn_matching,
    unit_axes,
    unit_products,
    unit_values,
    weight_matching,
)

DOUBLE = torch.float64
EXACT = {"rtol": 1e-12, "atol": 1e-12}
GOLDEN = Path(__file__).parents[1] / "golden/sets/weight_matching.npz"


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


ROWS = normal(0, 200, 5) * 2 + 1


def chain(seed, sizes=(5, 12, 7, 3), norms=True, activation=nn.Tanh):
    """Linear layers, with batch norms that have seen rows of their own."""
    torch.manual_seed(seed)
    model = nn.Sequential()
    for before, after in itertools.pairwise(sizes):
        if norms:
            model.append(nn.BatchNorm1d(before))
            nn.init.normal_(model[-1].weight)
            nn.init.normal_(model[-1].bias)
        model.extend([nn.Linear(before, after), activation()])
    return seen(model[:-1].double(), seed, sizes[0])


@torch.no_grad()
def seen(model, seed, width=5):
    model.train()
    for step in range(3):
        model(normal(10 * seed + step, 50, width) * normal(seed, width) + normal(seed + 1, width))
    return model.eval().requires_grad_(False)


def members(seed, sizes=(12, 7)):
    torch.manual_seed(seed)
    model = MemberProjectors(5, sizes, members=3).double()
    for values in (model.gain, model.offset, *(norm.weight for norm in model.norms[1:])):
        nn.init.normal_(values)
    return seen(model, seed)


def golden(hidden):
    """Weights by name without prefix, and the axes: units P_l between the layers."""
    with np.load(GOLDEN) as data:
        arrays = {key: torch.from_numpy(np.asarray(data[key])) for key in data if data[key].dtype.kind != "U"}
    names = [None, *(f"P_{layer}" for layer in range(hidden)), None]
    axes = {f"layer{layer}.weight": (names[layer + 1], names[layer]) for layer in range(hidden + 1)}
    axes |= {f"layer{layer}.bias": (names[layer + 1],) for layer in range(hidden + 1)}
    return axes, lambda prefix: {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


@pytest.mark.parametrize("case", ["rand", "planted"])
@pytest.mark.parametrize(("name", "hidden"), [("one", 1), ("two", 2)])
def test_weight_matching_is_that_of_the_public_code(name, hidden, case):
    axes, part = golden(hidden)
    a, b = part(f"{name}.a."), part(f"{name}.{case}.b.")
    orders = weight_matching(a, b, axes)
    moved, theirs = permuted(b, axes, orders), part(f"{name}.{case}.aligned.")
    objective = [float(sum((a[key] * state[key]).sum() for key in a)) for state in (moved, theirs)]
    assert objective[0] == pytest.approx(objective[1], abs=1e-10)
    torch.testing.assert_close(moved, theirs, **EXACT)
    torch.testing.assert_close(orders, part(f"{name}.{case}.perm."))
    touched = [key for key in a if key.startswith("layer0") or key == "layer1.weight"]
    part = sum(float((a[key] * moved[key]).sum()) for key in touched)
    assert float(unit_products(a, moved, axes, {}, "P_0").trace()) == pytest.approx(part)


def test_one_hidden_layer_is_matched_as_well_as_by_trying_all():
    a, b = (chain(seed, (3, 5, 2), norms=False).state_dict() for seed in (1, 2))
    axes = unit_axes(chain(1, (3, 5, 2), norms=False))
    products = unit_products(a, b, axes, {}, "0")
    best = max(float(products[range(5), order].sum()) for order in itertools.permutations(range(5)))
    assert float(products[range(5), weight_matching(a, b, axes)["0"]].sum()) == pytest.approx(best)


def test_the_objective_never_falls_whatever_the_visits():
    a, b = (chain(seed, (5, 12, 9, 8, 3)).state_dict() for seed in (1, 2))
    axes = unit_axes(chain(1, (5, 12, 9, 8, 3)))
    one = weight_matching(a, b, axes, generator=torch.Generator().manual_seed(3))
    value = [sum((a[k] * permuted(b, axes, orders)[k]).sum() for k in a if "running" not in k) for orders in ({}, one)]
    assert value[1] > value[0]
    torch.testing.assert_close(weight_matching(a, b, axes, start=one), one)


@pytest.mark.parametrize("by", ["weights", "activations", "sinkhorn"])
def test_planted_permutations_are_recovered_and_compute_the_same(by):
    a = chain(4, (5, 6, 4, 3))
    axes = unit_axes(a, outputs=True)
    planted = {unit: torch.randperm(len(a.get_submodule(unit).weight)) for unit in ("1", "4", "7")}
    b = chain(4, (5, 6, 4, 3))
    b.load_state_dict(permuted(a.state_dict(), axes, planted))
    torch.testing.assert_close(b(ROWS), a(ROWS)[:, planted["7"]], **EXACT)
    if by == "weights":
        orders = weight_matching(a.state_dict(), b.state_dict(), axes)
    elif by == "activations":
        orders = activation_matching(a, b, ROWS, axes)
    else:
        orders = sinkhorn_matching(a.state_dict(), b.state_dict(), axes, steps=40)
    for unit, order in orders.items():
        assert torch.equal(planted[unit][order], torch.arange(len(order)))
    if by != "sinkhorn":
        same = merge(a, b, ROWS, by=by, outputs=True, weight=1)(ROWS)
        torch.testing.assert_close(same, a(ROWS), **EXACT)


def test_activations_are_those_that_the_next_layer_reads():
    a = chain(5)
    values = unit_values(a, ROWS, unit_axes(a, outputs=True))
    torch.testing.assert_close(values["1"], a[:4](ROWS).detach(), **EXACT)
    torch.testing.assert_close(values["7"], a(ROWS).detach(), **EXACT)


def test_units_stand_between_linear_layers_with_nothing_but_single_units_between():
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2), nn.Softmax(1))
    units = {unit for axes in unit_axes(model, outputs=True).values() for unit in axes if unit}
    assert units == {"2"}
    assert {u for axes in unit_axes(Projector(5, (4, 3))).values() for u in axes if u} == {"layers.1"}


def test_a_gradient_finds_orders_by_a_loss_halfway_or_anywhere_between():
    a, b = chain(6, (5, 6, 3), norms=False), chain(7, (5, 6, 3), norms=False)
    axes, want = unit_axes(a), a(ROWS).detach()

    def loss(parameters):
        return (torch.func.functional_call(a, parameters, (ROWS,)) - want).square().mean()

    for at in ("midpoint", "random"):
        orders = sinkhorn_matching(
            a.state_dict(), b.state_dict(), axes, loss, at=at, steps=40, generator=torch.Generator().manual_seed(0)
        )
        moved = permuted(b.state_dict(), axes, orders)
        mean = {k: (v + moved[k]) / 2 for k, v in a.state_dict().items()}
        plain = {k: (v + b.state_dict()[k]) / 2 for k, v in a.state_dict().items()}
        assert loss(mean) < loss(plain)


def test_chains_take_up_the_difference_of_their_first_norms():
    a, b = chain(1), chain(2)
    want = a(ROWS), b(ROWS)
    same_input(a, b)
    torch.testing.assert_close((a(ROWS), b(ROWS)), want, **EXACT)
    torch.testing.assert_close(a[0].state_dict(), b[0].state_dict())


@pytest.mark.parametrize("make", [chain, members])
def test_the_ends_are_the_models_and_one_with_itself_is_itself(make):
    a, b = make(1), make(2)
    torch.testing.assert_close(merge(a, b, weight=0)(ROWS), a(ROWS), **EXACT)
    torch.testing.assert_close(merge(a, b, weight=1)(ROWS), b(ROWS), **EXACT)
    torch.testing.assert_close(merge(a, a)(ROWS), a(ROWS), **EXACT)
    for budget in (1, 2.5):
        torch.testing.assert_close(merge(a, a, ROWS, budget=budget)(ROWS), a(ROWS), rtol=1e-6, atol=1e-6)


def test_statistics_between_layers_are_renewed():
    merged = merge(chain(1), chain(2), ROWS)
    read = merged[:3](ROWS)
    torch.testing.assert_close(merged[3].running_mean, read.mean(0))
    torch.testing.assert_close(merged[3].running_var, read.var(0))


def test_with_all_units_apart_both_stand_side_by_side():
    a, b = chain(1), chain(2)
    wide = merge(a, b, ROWS, budget=100)
    assert [step.out_features for step in wide if isinstance(step, nn.Linear)] == [24, 14, 3]
    new = normal(9, 30, 5) * 4
    torch.testing.assert_close(wide(new), (a(new) + b(new)) / 2, rtol=1e-9, atol=1e-9)
    assert not wide[4].weight[:7, 12:].any()
    assert not wide[4].weight[7:, :12].any()
    projector = Projector(5, (12, 7)).double().eval()
    wide = merge(projector, Projector(5, (12, 7)).double().eval(), ROWS, budget=100)
    assert wide.sizes == [24, 7]


def test_more_room_and_least_squares_come_nearer_to_the_mean_of_both():
    a, b = chain(1), chain(2)
    want, size = (a(ROWS) + b(ROWS)) / 2, sum(p.numel() for p in a.parameters())
    errors = [float((merge(a, b)(ROWS) - want).square().mean())]
    for budget in (1, 2, 4):
        wide = merge(a, b, ROWS, budget=budget).requires_grad_(False)
        assert sum(p.numel() for p in wide.parameters()) <= budget * size
        errors.append(float((wide(ROWS) - want).square().mean()))
    assert errors == sorted(errors, reverse=True)
    assert errors[1] < errors[0] / 10


def test_each_layer_is_no_worse_than_the_mean_of_the_weights():
    a, b = chain(1, (5, 12, 3), norms=False), chain(2, (5, 12, 3), norms=False)
    axes = unit_axes(a)
    orders = weight_matching(a.state_dict(), b.state_dict(), axes)
    solved = partly_merged(a, b, ROWS, axes, orders, budget=1)
    moved = permuted(b.state_dict(), axes, orders)
    plain = {k: (v + moved[k]) / 2 for k, v in a.state_dict().items()}
    want = (a(ROWS) + b(ROWS)) / 2
    before, after = (torch.func.functional_call(a, state, (ROWS,)) for state in (plain, solved.state_dict()))
    torch.testing.assert_close(solved[0].weight, plain["0.weight"], rtol=1e-6, atol=1e-6)  # the mean is linear there
    assert (after - want).square().mean() < (before - want).square().mean()


def test_members_are_merged_one_by_one_and_have_one_width():
    wide = merge(members(1), members(2), ROWS, budget=100)
    a, b = members(1), members(2)
    assert wide.sizes == [24, 7]
    torch.testing.assert_close(wide(ROWS).atanh(), (a(ROWS).atanh() + b(ROWS).atanh()) / 2, rtol=1e-6, atol=1e-6)
    assert merge(members(1), members(2), ROWS, by="activations", outputs=True).sizes == [12, 7]
    assert merge(chain(1), chain(2), by="sinkhorn")(ROWS).shape == (200, 3)


def test_of_any_other_network_chains_are_matched_and_the_rest_is_averaged():
    class Residual(nn.Module):
        def __init__(self, seed):
            super().__init__()
            self.inner, self.norm = chain(seed, (5, 8, 5), norms=False, activation=nn.ReLU), nn.LayerNorm(5)
            nn.init.normal_(self.norm.weight)
            self.double().requires_grad_(False)

        def forward(self, rows):
            return self.norm(rows + self.inner(rows))

    a, b = Residual(1), Residual(2)
    merged = merge(a, b, ROWS)
    torch.testing.assert_close(merged.norm.weight, (a.norm.weight + b.norm.weight) / 2)
    torch.testing.assert_close(merge(a, b, ROWS, weight=1)(ROWS), b(ROWS), **EXACT)
    plain = merge(a, b, by="none")
    torch.testing.assert_close(plain.inner[0].weight, (a.inner[0].weight + b.inner[0].weight) / 2)
    assert not torch.allclose(merged.inner[0].weight, plain.inner[0].weight)
    assert a.training == merged.training


def test_what_cannot_be_merged_is_refused():
    a = chain(1)
    with pytest.raises(ValueError, match=r"^b: expected a network of the class and shapes of a"):
        merge(a, chain(1, (5, 12, 8, 3)))
    with pytest.raises(ValueError, match=r"^data: expected rows for by=, got None"):
        merge(a, a, by="activations")
    with pytest.raises(ValueError, match=r"^weight: expected 0.5 with budget=, got 0.2"):
        merge(a, a, ROWS, weight=0.2, budget=2)
    with pytest.raises(ValueError, match=r"^budget: expected None for a Linear, got 2"):
        merge(nn.Linear(2, 2), nn.Linear(2, 2), ROWS, budget=2)
    with pytest.raises(ValueError, match=r"^a: expected linear layers and modules of single units, got Softmax"):
        merge(nn.Sequential(nn.Softmax(1)), nn.Sequential(nn.Softmax(1)), ROWS, budget=2)
    with pytest.raises(ValueError, match=r"^b: expected the parameter 'w', got none"):
        weight_matching({"w": ROWS}, {}, {"w": ("u", None)})
    with pytest.raises(ValueError, match=r"^axes: expected 200 units 'u' in 'w', got 5"):
        weight_matching({"w": ROWS}, {"w": ROWS}, {"w": ("u", "u")})
    with pytest.raises(ValueError, match=r"^loss: expected a loss for at='midpoint', got none"):
        sinkhorn_matching({}, {}, {}, at="midpoint")
