"""Sliced Wasserstein distances; plans with few entries, plans by classes, and costs from plans."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from references import transport as reference
from vicinal.transport import (
    draw_directions,
    fused_transport,
    group_lasso_transport,
    inverse_transport,
    inverse_transport_loss,
    same_class,
    sinkhorn,
    sliced_wasserstein,
    sparse_transport,
)
from vicinal.transport.sparse import minimum_with_kinks

GOLDEN = Path(__file__).parents[1] / "golden/sets"
EXACT = {"rtol": 1e-9, "atol": 1e-9}
DOUBLE = torch.float64


def load(name):
    with np.load(GOLDEN / f"{name}.npz") as data:
        return {key: torch.from_numpy(np.asarray(data[key])) for key in data if data[key].dtype.kind != "U"}


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def masses(seed, *shape):
    mass = normal(seed, *shape).exp()
    return mass / mass.sum(-1, keepdim=True)


def test_sliced_distances_are_those_of_the_public_code():
    data = load("sliced_wasserstein")
    u, x, y = data["projections"].T, data["X"].requires_grad_(), data["Y"]
    value = sliced_wasserstein(x, y, directions=u)
    value.backward()
    torch.testing.assert_close(value.detach(), data["value"], **EXACT)
    torch.testing.assert_close(x.grad, data["dX"], **EXACT)
    x = x.detach()
    torch.testing.assert_close(sliced_wasserstein(x, y, directions=u, power=1), data["value_p1"], **EXACT)
    torch.testing.assert_close(
        sliced_wasserstein(x, y, data["a_weights"], directions=u), data["value_weighted"], **EXACT
    )
    torch.testing.assert_close(sliced_wasserstein(x, y, directions=u, over="max"), data["value_max"], **EXACT)
    torch.testing.assert_close(sliced_wasserstein(x, x, directions=u), data["same_value"], **EXACT)
    torch.testing.assert_close(
        sliced_wasserstein(data["one_X"], data["one_Y"], directions=u), data["one_value"], **EXACT
    )


@given(
    seed=st.integers(0, 10_000), m=st.integers(1, 5), n=st.integers(1, 5), power=st.sampled_from([1.0, 1.5, 2.0, 3.0])
)
def test_sliced_distances_equal_numpy_and_do_not_see_order_or_padding(seed, m, n, power):
    x, y, a, b, u = (
        normal(seed, m, 3),
        normal(seed + 1, n, 3),
        masses(seed + 2, m),
        masses(seed + 3, n),
        normal(seed, 4, 3),
    )
    value = sliced_wasserstein(x, y, a, b, directions=u, power=power)
    want = np.mean([reference.line_distance(x @ d, y @ d, a, b, power) for d in u]) ** (1 / power)
    assert value.item() == pytest.approx(want, rel=1e-9, abs=1e-9)
    order = torch.randperm(m, generator=torch.Generator().manual_seed(seed))
    again = sliced_wasserstein(y, x[order], b, a[order], directions=u, power=power)
    torch.testing.assert_close(again, value)
    padded = torch.stack([torch.cat([x, torch.full((2, 3), 1e6, dtype=DOUBLE)])] * 2)
    mass = torch.cat([3 * a, torch.zeros(2, dtype=DOUBLE)]).expand(2, -1)
    both = sliced_wasserstein(padded, y.expand(2, n, 3), mass, b.expand(2, n), directions=u, power=power)
    torch.testing.assert_close(both, value.expand(2), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(sliced_wasserstein(7 * x, 7 * y, a, b, directions=u, power=power), 7 * value)


def test_sliced_distances_of_moved_sets_and_on_a_line_and_the_triangle_inequality():
    x, y, z, t = normal(0, 6, 3), normal(1, 4, 3), normal(2, 5, 3), normal(3, 3)
    u = draw_directions(3, 40, generator=torch.Generator().manual_seed(0))
    moved = sliced_wasserstein(x, x + t, directions=u, root=False)
    torch.testing.assert_close(moved, (u @ t).square().mean())
    for power in (1.0, 2.0):
        xy, yz, xz = (sliced_wasserstein(*pair, directions=u, power=power) for pair in ((x, y), (y, z), (x, z)))
        assert xz <= xy + yz
    line = sliced_wasserstein(x[:4, :1], y[:, :1], directions=torch.ones(1, 1, dtype=DOUBLE), power=1)
    torch.testing.assert_close(line, (x[:4, 0].sort().values - y[:, 0].sort().values).abs().mean())
    crossed = draw_directions(3, 7, orthogonal=True, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(crossed[:3] @ crossed[:3].T, torch.eye(3, dtype=DOUBLE))
    assert crossed.shape == (7, 3)


def test_gradients_of_sliced_distances_also_where_they_are_0():
    x, y, a, b, u = normal(4, 2, 4, 3), normal(5, 2, 5, 3), masses(6, 2, 4), masses(7, 2, 5), normal(8, 3, 3)
    inputs = tuple(each.requires_grad_() for each in (x, y))
    for settings in ({}, {"root": False}, {"over": "max"}, {"power": 3.0}):
        assert torch.autograd.gradcheck(
            lambda x, y, s=settings: sliced_wasserstein(x, y, a, b, directions=u, **s), inputs
        )
    for root in (True, False):
        (grad,) = torch.autograd.grad(sliced_wasserstein(x, x.detach(), directions=u, root=root).sum(), x)
        assert (grad == 0).all()
    low = sliced_wasserstein((1e4 * x).bfloat16(), (1e4 * y).bfloat16(), directions=u)
    assert low.dtype == torch.float32
    assert low.isfinite().all()


@pytest.mark.parametrize("strength", [1.0, 0.1])
@pytest.mark.parametrize("k", [2, 3, 5, 6, 99])
def test_sparse_plans_are_those_of_the_public_code(k, strength):
    """Which refuses k above the number of rows; with all of them it is transport with a quadratic penalty.

    With k = 1 the dual has kinks, at one of which the search stops: rows tie there, and its last digits say which one
    each column takes.
    """
    data = load("sparsity_constrained_ot")
    plan, row_error = sparse_transport(-data["M"], k, data["a"], data["b"], strength=strength)
    want = data[f"semidual_k{k}_reg{strength}_plan"] if k < 6 else data[f"l2_semidual_reg{strength}_plan"]
    if k > 1:
        torch.testing.assert_close(plan, want, **EXACT)
    else:
        gains = data[f"semidual_k1_reg{strength}_alpha"][:, None] - data["M"]
        torch.testing.assert_close((gains * (plan > 0)).sum(0), gains.amax(0), rtol=0, atol=5e-3)
    torch.testing.assert_close(plan.sum(0), data["b"], rtol=1e-12, atol=1e-12)
    assert ((plan > 0).sum(0) <= k).all()
    assert (plan >= 0).all()
    torch.testing.assert_close(row_error, plan.sum(1) - data["a"])
    if k > 2:
        assert row_error.abs().max() < 1e-7
    weak = sparse_transport(-data["M"], 3, data["a"], data["b"], strength=1e-3).plan
    torch.testing.assert_close(weak, data["emd_plan"], rtol=0, atol=1e-6)


def test_the_multipliers_of_one_entry_a_column_are_the_best_also_at_kinks():
    """Of one entry a column the problem of the multipliers is that of plain transport, and a constant.

    The public code stops earlier, at a place that the version of scipy decides.
    """
    data = {name: value.numpy() for name, value in load("sparsity_constrained_ot").items()}
    costs, rows, columns = data["M"], data["a"], data["b"]

    def objective(alpha):
        gains = alpha[:, None] - costs
        slope = np.bincount(gains.argmax(0), columns, len(alpha)) - rows
        return gains.max(0) @ columns - alpha @ rows, slope

    found = minimum_with_kinks(objective, len(rows), 1000, 1e-12)
    assert objective(found)[0] == pytest.approx(-np.sum(data["emd_plan"] * costs), abs=1e-8)
    plan = sparse_transport(torch.from_numpy(-costs), 1, torch.from_numpy(rows), torch.from_numpy(columns)).plan
    np.testing.assert_allclose(plan.sum(0), columns, rtol=1e-12)
    assert ((plan > 0).sum(0) == 1).all()


@pytest.mark.parametrize("k", [3, 6])
def test_gradients_of_sparse_plans_agree_with_differences(k):
    data = load("sparsity_constrained_ot")
    weight = normal(9, 6, 4)

    def value(scores, a, b):
        return (
            sparse_transport(scores, k, a / a.sum(), b / b.sum(), strength=0.7, tolerance=1e-16).plan * weight
        ).sum()

    inputs = [each.clone().requires_grad_() for each in (-data["M"], data["a"], data["b"])]
    grads = torch.autograd.grad(value(*inputs), inputs)
    for i, grad in enumerate(grads):
        direction = normal(10 + i, *grad.shape)
        ends = []
        for step in (1e-5, -1e-5):
            moved = [
                each.detach() + step * direction * (i == j) if i == j else each.detach()
                for j, each in enumerate(inputs)
            ]
            ends.append(value(*moved))
        assert ((ends[0] - ends[1]) / 2e-5).item() == pytest.approx((grad * direction).sum().item(), rel=1e-3, abs=1e-4)


def test_the_best_plan_under_the_costs_of_the_golden_file_and_the_gradient_of_the_loss():
    data = load("inverse_ot")
    u, v = data["U"].T, data["V"].T
    a, b = data["plan_true"].sum(1), data["plan_true"].sum(0)
    for name in ("true", "eval"):
        plan = sinkhorn(-u @ data[f"A_{name}"] @ v.T, a, b, tolerance=1e-14)
        torch.testing.assert_close(plan, data[f"plan_{name}"], **EXACT)
    matrix = data["A_eval"].clone().requires_grad_()
    inverse_transport_loss(matrix, data["plan_true"], u, v).backward()
    torch.testing.assert_close(matrix.grad, data["grad_eval"], **EXACT)
    truth = data["A_true"].clone().requires_grad_()
    loss = inverse_transport_loss(truth, data["plan_true"], u, v)
    loss.backward()
    assert abs(loss.item()) < 1e-12
    assert truth.grad.abs().max() < 1e-9
    torch.testing.assert_close(inverse_transport(data["plan_true"], u, v), data["A_true"], rtol=0, atol=1e-6)
    inputs = normal(20, 3, 2).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda m: inverse_transport_loss(m, data["plan_true"], u, v, temperature=0.7), inputs
    )


def test_the_loss_is_convex_and_a_strong_penalty_gives_zeros_first_where_the_gradient_is_small():
    data = load("inverse_ot")
    u, v = data["U"].T - data["U"].T.mean(0), data["V"].T - data["V"].T.mean(0)
    plan = data["plan_true"]
    ends, loss = (normal(21, 3, 2), normal(22, 3, 2)), lambda m: inverse_transport_loss(m, plan, u, v).item()
    for share in (0.2, 0.5, 0.9):
        assert loss(share * ends[0] + (1 - share) * ends[1]) <= share * loss(ends[0]) + (1 - share) * loss(ends[1])
    start = torch.zeros(3, 2, dtype=DOUBLE).requires_grad_()
    inverse_transport_loss(start, plan, u, v).backward()
    most = start.grad.abs().max().item()
    assert (inverse_transport(plan, u, v, strength=1.001 * most) == 0).all()
    some = inverse_transport(plan, u, v, strength=0.5 * most)
    assert 0 < (some != 0).sum() < 6
    known = some.clone().requires_grad_()
    inverse_transport_loss(known, plan, u, v).backward()
    torch.testing.assert_close(known.grad[some != 0], -0.5 * most * some[some != 0].sign(), rtol=0, atol=1e-6)
    assert (known.grad[some == 0].abs() <= 0.5 * most + 1e-9).all()


@pytest.mark.parametrize("strength", [0.01, 1.0])
def test_group_lasso_plans_are_those_of_the_public_code(strength):
    data = load("class_ot_group_lasso")
    plan = group_lasso_transport(-data["M"], data["labels"], data["a"], data["a"], strength=strength)
    torch.testing.assert_close(plan, data[f"l1l2_eta{strength}"], rtol=0, atol=1e-4)


def lasso_cost(plan, data, strength):
    classes = torch.nn.functional.one_hot(data["labels"]).double().T
    lengths = (classes @ plan.square()).sqrt().sum()
    return ((plan * data["M"]).sum() + 0.1 * torch.special.xlogy(plan, plan).sum() + strength * lengths).item()


def test_a_group_lasso_plan_is_better_where_the_public_code_stops_early():
    data = load("class_ot_group_lasso")
    plan = group_lasso_transport(-data["M"], data["labels"], data["a"], data["a"], strength=0.1)
    assert lasso_cost(plan, data, 0.1) < lasso_cost(data["l1l2_eta0.1"], data, 0.1) - 1e-3
    torch.testing.assert_close(plan.sum(0), data["a"], rtol=1e-9, atol=1e-9)
    for seed in range(5):  # no plan near it costs less
        other = sinkhorn(plan.log() + 0.01 * normal(seed, 6, 6), data["a"], data["a"], tolerance=1e-14)
        assert lasso_cost(other, data, 0.1) > lasso_cost(plan, data, 0.1)
    plain = sinkhorn(-data["M"], data["a"], data["a"], temperature=0.1, tolerance=1e-14)
    none = group_lasso_transport(-data["M"], data["labels"], data["a"], data["a"], strength=0.0)
    torch.testing.assert_close(none, plain, rtol=0, atol=1e-9)


def best_transport(scores, a, b):
    """Value of the best plan, by a linear program."""
    m, n = scores.shape
    sums = np.concatenate([np.kron(np.eye(m), np.ones((1, n))), np.kron(np.ones((1, m)), np.eye(n))])
    found = linprog(-scores.ravel(), A_eq=sums, b_eq=np.concatenate([a, b]))
    return -found.fun


@given(seed=st.integers(0, 10_000), m=st.integers(1, 5), n=st.integers(1, 5))
def test_without_strength_a_fused_plan_is_the_best_one(seed, m, n):
    scores, a, b = normal(seed, m, n), masses(seed + 1, m), masses(seed + 2, n)
    kernel = torch.ones(m, m).fill_diagonal_(0)
    plan = fused_transport(scores, kernel, None, a, b, strength=0.0)
    want = best_transport(scores.numpy(), a.numpy(), b.numpy())
    assert (plan * scores).sum().item() == pytest.approx(want, abs=1e-6)
    torch.testing.assert_close(plan.sum(1), a, rtol=0, atol=1e-7)
    torch.testing.assert_close(plan.sum(0), b, rtol=0, atol=1e-7)


def fused_cost(plan, scores, rows, columns, strength):
    apart = [(plan[i] - plan[j]).norm() * rows[i, j] for i in range(6) for j in range(i)]
    apart += [(plan[:, i] - plan[:, j]).norm() * columns[i, j] for i in range(6) for j in range(i)]
    return ((plan * scores).sum() - strength * sum(apart)).item()


@pytest.mark.slow
@pytest.mark.parametrize("strength", [0.03, pytest.param(0.1, marks=pytest.mark.slow)])
def test_a_fused_plan_is_the_best_of_the_plans_near_it(strength):
    data = load("class_ot_group_lasso")
    scores, rows = -data["M"], same_class(data["labels"])
    columns = (-(torch.arange(6)[:, None] - torch.arange(6)).abs().double()).exp().fill_diagonal_(0.0)
    plan = fused_transport(scores, rows, columns, strength=strength)
    best = fused_cost(plan, scores, rows, columns, strength)
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        other = sinkhorn(5 * torch.randn(6, 6, generator=generator, dtype=DOUBLE), tolerance=1e-13)
        for share in (1e-4, 1e-2, 0.3):  # toward any other plan nothing is gained
            assert fused_cost(plan + share * (other - plan), scores, rows, columns, strength) <= best + 1e-8
    order = torch.randperm(6, generator=generator)
    moved = fused_transport(scores[order], rows[order][:, order], columns, strength=strength)
    torch.testing.assert_close(moved, plan[order], rtol=0, atol=1e-6)


def test_a_strong_penalty_makes_rows_of_a_class_alike():
    data = load("class_ot_group_lasso")
    kernel = same_class(data["labels"])
    plan = fused_transport(-data["M"], kernel, kernel, strength=10.0)
    torch.testing.assert_close(plan[::2], plan[1::2], rtol=0, atol=1e-8)
    torch.testing.assert_close(plan[:, ::2], plan[:, 1::2], rtol=0, atol=1e-8)
    blocks = (-data["M"]).reshape(3, 2, 3, 2).mean(dim=(1, 3))
    third = np.full(3, 1 / 3)
    assert -(plan * data["M"]).sum().item() == pytest.approx(best_transport(blocks.numpy(), third, third), abs=1e-7)
    every = torch.ones(6, 6).fill_diagonal_(0)
    flat = fused_transport(-data["M"], every, strength=100.0)
    torch.testing.assert_close(flat, torch.full((6, 6), 1 / 36, dtype=DOUBLE), rtol=0, atol=1e-8)


ONES = torch.ones(2, 2)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: sliced_wasserstein(ONES, torch.ones(2, 3)), r"^others: expected sets of the width of \(2, 2\)"),
        (lambda: sliced_wasserstein(ONES[:0], ONES), r"^points: expected \[\.\.\., m, d\]"),
        (
            lambda: sliced_wasserstein(ONES, ONES, torch.zeros(2)),
            r"^weights: expected numbers of at least 0, not all 0",
        ),
        (lambda: sliced_wasserstein(ONES, ONES, torch.ones(3)), r"^weights: expected \(2,\)"),
        (lambda: sliced_wasserstein(ONES, ONES, power=0.5), r"^power: expected a number of at least 1"),
        (lambda: sliced_wasserstein(ONES, ONES, over="sum"), r"^over: expected one of 'mean', 'max'"),
        (lambda: sliced_wasserstein(ONES, ONES, directions=torch.ones(2, 3)), r"^directions: expected \[L, 2\]"),
        (lambda: sparse_transport(ONES, 0), r"^k: expected a whole number of at least 1"),
        (lambda: sparse_transport(ONES, 1, strength=0), r"^strength: expected a number above 0"),
        (lambda: sparse_transport(ONES[None], 1), r"^scores: expected \[m, n\]"),
        (
            lambda: sparse_transport(ONES, 1, column_mass=torch.tensor([1.0, 0.0])),
            r"^column_mass: expected numbers above 0",
        ),
        (lambda: inverse_transport(-ONES, ONES, ONES), r"^plan: expected numbers \[m, n\] of at least 0"),
        (lambda: inverse_transport(torch.eye(2)[:, :1], ONES, ONES), r"^plan: expected numbers \[m, n\] of at least 0"),
        (lambda: inverse_transport(ONES, torch.ones(3, 2), ONES), r"^rows: expected 2 rows"),
        (lambda: inverse_transport_loss(ONES[:1], ONES, ONES, ONES), r"^matrix: expected \(2, 2\)"),
        (lambda: inverse_transport(ONES, ONES, ONES, temperature=0), r"^temperature: expected a number above 0"),
        (lambda: fused_transport(ONES, torch.ones(3, 3)), r"^row_kernel: expected \(2, 2\)"),
        (lambda: fused_transport(ONES, torch.tensor([[0.0, 1.0], [0.5, 0.0]])), r"^row_kernel: expected a symmetric"),
        (lambda: fused_transport(ONES, strength=-1), r"^strength: expected a number of at least 0"),
        (lambda: group_lasso_transport(ONES, torch.ones(3).long()), r"^labels: expected whole numbers \[2\]"),
    ],
)
def test_what_does_not_fit_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
