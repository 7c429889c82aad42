"""Sinkhorn's plan and its implicit gradient; soft permutations and assignments."""

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from references import transport as reference
from vicinal.masks import k_sparsemax
from vicinal.transport import assignment, sinkhorn, soft_permutation

GOLDEN = Path(__file__).parents[1] / "golden/sets"
EXACT = {"rtol": 1e-9, "atol": 1e-9}


def load(name):
    with np.load(GOLDEN / f"{name}.npz") as data:
        return {key: torch.from_numpy(data[key]) for key in data if data[key].dtype.kind != "U"}


def normal(seed, *shape, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def masses(seed, *shape):
    mass = normal(seed, *shape).exp()
    return mass / mass.sum(-1, keepdim=True)


@pytest.mark.parametrize(("temperature", "steps"), [(1.0, 20), (0.3, 200), (0.3, 2000)])
def test_plan_and_gradient_are_those_of_the_public_code(temperature, steps):
    data = load("sinkhorn_implicit")
    costs = data["c"].clone().requires_grad_()
    plan = sinkhorn(-costs, data["a"], data["b"], temperature=temperature, steps=steps, tolerance=0.0)
    (plan * data["G"]).sum().backward()
    case = f"lam{temperature}_it{steps}"
    torch.testing.assert_close(plan.detach(), data[f"p_{case}"], **EXACT)
    torch.testing.assert_close(costs.grad, data[f"dc_{case}"], **EXACT)


def test_gradients_of_masses_are_those_of_the_public_code_but_for_a_shift():
    data = load("sinkhorn_implicit")
    costs, a, b = (data[key].clone().requires_grad_() for key in ("c2", "a2", "b2"))
    plan = sinkhorn(-costs, a, b, temperature=0.5, tolerance=0.0)
    (plan * data["G2"]).sum().backward()
    torch.testing.assert_close(plan.detach(), data["p2"], **EXACT)
    torch.testing.assert_close(costs.grad, data["dc2"], **EXACT)
    shift = (a.grad - data["da2"]).mean()
    torch.testing.assert_close(a.grad - shift, data["da2"], **EXACT)
    torch.testing.assert_close(b.grad + shift, data["db2"], **EXACT)


def test_assignment_of_the_golden_plan():
    data = load("sinkhorn_implicit")
    got = torch.nn.functional.one_hot(assignment(-data["c"]), 4)
    torch.testing.assert_close(got, data["match_of_case1"])


@pytest.mark.parametrize("steps", [1, 7, 40])
@pytest.mark.parametrize("temperature", [1.0, 0.05])
def test_steps_equal_numpy(steps, temperature):
    scores, a, b = normal(0, 4, 6), masses(1, 4), masses(2, 6)
    got = sinkhorn(scores, a, b, temperature=temperature, steps=steps, tolerance=0.0)
    want = reference.sinkhorn(scores.numpy(), a.numpy(), b.numpy(), temperature, steps)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-9, atol=1e-14)


@given(seed=st.integers(0, 10_000), m=st.integers(1, 6), n=st.integers(1, 6), temperature=st.floats(0.05, 5))
def test_sums_are_the_masses_and_shifts_of_rows_and_columns_change_nothing(seed, m, n, temperature):
    scores, a, b = normal(seed, 2, m, n), masses(seed + 1, 2, m), masses(seed + 2, 2, n)
    settings = {"temperature": temperature, "steps": 20_000, "tolerance": 1e-11}
    plan = sinkhorn(scores, a, b, **settings)
    assert (plan >= 0).all()
    torch.testing.assert_close(plan.sum(-1), a, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(plan.sum(-2), b, rtol=1e-9, atol=1e-10)
    shifted = scores + normal(seed + 3, 2, m, 1) + normal(seed + 4, 2, 1, n)
    torch.testing.assert_close(sinkhorn(shifted, a, b, **settings), plan, rtol=1e-6, atol=1e-8)
    order = torch.randperm(m, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(sinkhorn(scores[:, order], a[:, order], b, **settings), plan[:, order])


@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (3, 3), (1, 4), (1, 1), (2, 3, 3)])
def test_gradcheck(shape):
    a, b = masses(1, *shape[:-1]), masses(2, *shape[:-2], shape[-1])

    def plan(scores, a, b):
        a, b = (mass / mass.sum(-1, keepdim=True) for mass in (a, b))
        return sinkhorn(scores, a, b, temperature=0.4, steps=5000, tolerance=1e-14)

    inputs = (normal(0, *shape), a, b)
    assert torch.autograd.gradcheck(plan, tuple(each.requires_grad_() for each in inputs))


def test_the_implicit_gradient_is_that_of_unrolled_steps():
    scores, weight = normal(3, 5, 5), normal(4, 5, 5)
    x, y = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    (sinkhorn(x, temperature=0.5, tolerance=1e-13) * weight).sum().backward()
    z = y / 0.5
    for _ in range(300):
        z = z - z.logsumexp(0, keepdim=True) - np.log(5)
        z = z - z.logsumexp(1, keepdim=True) - np.log(5)
    (z.exp() * weight).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-7, atol=1e-9)


def test_rows_and_columns_without_mass_are_as_if_they_were_not_there():
    scores, weight = normal(5, 5, 6), normal(6, 5, 6)
    a, b = masses(7, 5), masses(8, 6)
    a[[1, 4]] = 0
    b[[0, 5]] = 0
    a, b = a / a.sum(), b / b.sum()
    rows, columns = a > 0, b > 0
    x = scores.clone().requires_grad_()
    plan = sinkhorn(x, a, b, temperature=0.3)
    (plan * weight).sum().backward()
    y = scores[rows][:, columns].clone().requires_grad_()
    small = sinkhorn(y, a[rows], b[columns], temperature=0.3)
    (small * weight[rows][:, columns]).sum().backward()
    torch.testing.assert_close(plan[rows][:, columns], small)
    torch.testing.assert_close(x.grad[rows][:, columns], y.grad)
    for each in (plan.detach(), x.grad):
        assert (each[~rows] == 0).all()
        assert (each[:, ~columns] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("spread", [1.0, 1e4])
def test_finite_for_large_scores_small_temperatures_and_half_precision(dtype, spread):
    scores = (spread * normal(9, 3, 4, 4)).to(dtype)
    scores[1] = 0  # ties
    scores.requires_grad_()
    plan = sinkhorn(scores, temperature=0.01)
    (plan * torch.arange(4)).sum().backward()
    assert plan.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert plan.isfinite().all()
    assert scores.grad.isfinite().all()
    torch.testing.assert_close(plan[1].double(), torch.full((4, 4), 1 / 16, dtype=torch.float64))
    torch.testing.assert_close(plan.sum(-1).double(), torch.full((3, 4), 0.25, dtype=torch.float64))


def test_a_soft_permutation_equals_numpy_and_its_columns_sum_to_1():
    scores = normal(10, 5, 5)
    got = soft_permutation(scores, temperature=0.5, steps=6)
    np.testing.assert_allclose(got.numpy(), reference.soft_permutation(scores.numpy(), 0.5, 6), rtol=1e-10)
    torch.testing.assert_close(got.sum(-2), torch.ones(5, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(soft_permutation(scores, steps=500).sum(-1), torch.ones(5, dtype=torch.float64))
    order = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(soft_permutation(scores[order]), soft_permutation(scores)[order])
    assert soft_permutation(torch.tensor([[7.0]])).tolist() == [[1.0]]
    torch.testing.assert_close(soft_permutation(torch.zeros(3, 3)), torch.full((3, 3), 1 / 3))


def test_a_cold_soft_permutation_is_the_best_assignment_which_equals_all_tried():
    scores = 4 * normal(11, 4, 4)
    best = max(permutations(range(4)), key=lambda places: sum(scores[i, j].item() for i, j in enumerate(places)))
    assert assignment(scores).tolist() == list(best)
    cold = soft_permutation(scores, temperature=0.01, steps=20_000)
    torch.testing.assert_close(cold, torch.eye(4, dtype=torch.float64)[list(best)], rtol=0, atol=1e-3)
    assert assignment(scores[None].expand(2, 3, 4, 4)).tolist() == [[list(best)] * 3] * 2
    items = normal(12, 4, 2)
    torch.testing.assert_close(cold.mT @ items, items[assignment(scores).argsort()], rtol=0, atol=1e-2)


def test_k_sparsemax_is_the_projection_of_the_public_code_and_of_numpy():
    data = load("sparsity_constrained_ot")
    for k in (1, 2, 4):
        torch.testing.assert_close(k_sparsemax(data["proj_in"].T, k).T, data[f"proj_k{k}"], **EXACT)
    torch.testing.assert_close(k_sparsemax(data["proj_tie_in"].T, 2).T, data["proj_tie_k2"], **EXACT)
    for k in (1, 3, 7, 9):
        rows = normal(13, 4, 7)
        want = [reference.k_sparsemax(row.tolist(), k) for row in rows]
        np.testing.assert_allclose(k_sparsemax(rows, k).numpy(), want, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: sinkhorn(torch.zeros(3)), r"^scores: expected \[..., m, n\]"),
        (lambda: sinkhorn(torch.tensor([[0.0, torch.nan]])), "^scores: expected finite numbers"),
        (lambda: sinkhorn(torch.zeros(2, 3), torch.ones(3)), r"^row_mass: expected \(2,\) as the scores say"),
        (lambda: sinkhorn(torch.zeros(2, 2), torch.tensor([-1.0, 2.0])), "^row_mass: expected finite numbers of"),
        (lambda: sinkhorn(torch.zeros(2, 2), torch.tensor([0.5, torch.inf])), "^row_mass: expected finite"),
        (lambda: sinkhorn(torch.zeros(2, 2), torch.tensor([0.5, 0.6])), "^column_mass: expected the sum of row_mass"),
        (lambda: sinkhorn(torch.zeros(2, 2), temperature=0), "^temperature: expected a number above 0"),
        (lambda: sinkhorn(torch.zeros(2, 2), steps=0), "^steps: expected a whole number of at least 1"),
        (lambda: soft_permutation(torch.zeros(2, 3)), "^scores: expected as many places as items"),
        (lambda: assignment(torch.zeros(3, 2)), "^scores: expected at least as many columns as rows"),
        (lambda: k_sparsemax(torch.zeros(1, 2), 0), "^k: expected a whole number of at least 1"),
    ],
)
def test_what_does_not_fit_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_whole_numbers_are_refused():
    with pytest.raises(TypeError, match=r"^scores: expected a floating dtype"):
        sinkhorn(torch.zeros(2, 2, dtype=torch.int64))
