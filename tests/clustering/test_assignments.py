"""Transductive and partial assignments: values of the papers' code, energies that fall, masses that are kept."""

import itertools
import math

import numpy as np
import pytest
import torch

from references import factorization as reference
from vicinal.blockwise.blocks import block_policy
from vicinal.clustering import neighbor_affinity, partial_assignment, transductive, transductive_classes

SHOT = np.load("tests/golden/retrieval/laplacian_shot.npz")
KERNELS = np.load("tests/golden/sets/laplacian_assignments.npz")
SP2OT = np.load("tests/golden/retrieval/sp2ot.npz")
LOGITS = torch.from_numpy(SP2OT["logits"])


def of(values):
    return torch.from_numpy(np.asarray(values))


@pytest.mark.parametrize("strength", ["0", "0.7", "5"])
def test_assignments_and_energies_are_those_of_laplacian_shot(strength):
    unary, affinity = of(SHOT["unary"]), of(SHOT["affinity"])
    ours = transductive(unary, affinity, strength=float(strength), symmetric=False)
    np.testing.assert_allclose(ours.shares, SHOT[f"lambda{strength}__soft_assignment"], atol=1e-12)
    np.testing.assert_allclose(ours.energies, SHOT[f"lambda{strength}__energies"], rtol=1e-12)
    near = neighbor_affinity(of(SHOT["x"]), int(SHOT["knn_including_self"]) - 1)
    np.testing.assert_array_equal(near.to_dense(), SHOT["affinity"])
    again = transductive(unary, near, strength=float(strength), symmetric=False)
    torch.testing.assert_close(again.shares, ours.shares)


@pytest.mark.parametrize("kernel", ["asym", "sym"])
@pytest.mark.parametrize("strength", ["0.0", "0.5", "1.0"])
def test_assignments_are_those_of_the_bound_updates(kernel, strength):
    """Laplacian assignments of the second list, whose values were stored apart."""
    affinity = of(KERNELS[f"kernel_{kernel}"])
    ours = transductive(of(KERNELS["unary"]), affinity, strength=float(strength), symmetric=False)
    np.testing.assert_allclose(ours.shares, KERNELS[f"{kernel}_lam{strength}_assign"], atol=1e-12)
    np.testing.assert_allclose(ours.energies, KERNELS[f"{kernel}_lam{strength}_energy"], rtol=1e-12)
    half = (affinity + affinity.T) / 2
    symmetric = transductive(of(KERNELS["unary"]), affinity, strength=float(strength), tolerance=0.0)
    shares, energies = reference.transductive(KERNELS["unary"], half.numpy(), float(strength), len(symmetric.energies))
    np.testing.assert_allclose(symmetric.shares, shares, atol=1e-12)
    np.testing.assert_allclose(symmetric.energies, energies, rtol=1e-12)


def test_energies_never_rise_where_the_affinity_has_no_negative_eigenvalue():
    random = np.random.default_rng(0)
    half, unary = random.random((30, 8)), of(random.normal(size=(30, 4)))
    energies = transductive(unary, of(half @ half.T), strength=3.0, steps=60, tolerance=0.0).energies
    assert all(new <= old + 1e-9 for old, new in itertools.pairwise(energies))


def test_labelled_rows_keep_their_class_and_pull_their_neighbors():
    unary = torch.zeros(4, 2)
    chain = torch.diag(torch.ones(3), 1)
    ours = transductive(unary, chain, strength=3.0, labels=torch.tensor([1, -1, -1, -1]))
    assert ours.shares[0].tolist() == [0.0, 1.0]
    assert ours.shares.argmax(1).tolist() == [1, 1, 1, 1]
    assert all(map(math.isfinite, ours.energies))
    order = torch.tensor([2, 0, 3, 1])
    moved = transductive(of(SHOT["unary"])[:4][order], torch.ones(4, 4))
    torch.testing.assert_close(moved.shares, transductive(of(SHOT["unary"])[:4], torch.ones(4, 4)).shares[order])
    assert transductive(torch.tensor([[1e4, -1e4], [-1e4, 1e4]]), torch.ones(2, 2)).shares.isfinite().all()


def test_prototypes_follow_the_rows_and_one_round_is_the_assignment():
    random = np.random.default_rng(0)
    truth = torch.arange(3).repeat_interleave(40)
    centers = of(np.eye(3) * 3)
    rows = centers[truth] + of(random.normal(size=(120, 3)))
    support = centers + of(random.normal(size=(3, 3)))
    one = transductive_classes(rows, support, torch.arange(3), rounds=1)
    unary = torch.cdist(rows, support).square()
    torch.testing.assert_close(one.shares, transductive(unary, neighbor_affinity(rows, 3)).shares)
    plain = (unary.argmin(1) == truth).double().mean()
    ours = (transductive_classes(rows, support, torch.arange(3)).shares.argmax(1) == truth).double().mean()
    assert ours > plain + 0.02


def test_copies_of_a_row_are_neighbors_and_not_itself():
    dense = neighbor_affinity(torch.ones(6, 2), 2).to_dense()
    assert (dense.sum(1) == 2).all()
    assert not dense.diagonal().any()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"strength": -1.0}, "strength: expected a number of at least 0"),
        ({"affinity": -torch.ones(3, 3)}, "affinity: expected finite numbers of at least 0"),
        ({"affinity": torch.ones(2, 3)}, r"affinity: expected \(3, 3\)"),
        ({"unary": torch.full((3, 2), torch.nan)}, "unary: expected finite numbers"),
        ({"unary": torch.zeros(3, 0)}, r"unary: expected floating numbers \[n, K\]"),
        ({"labels": torch.tensor([2, -1, -1])}, "labels: expected classes 0 to 1, or -1"),
    ],
)
def test_bad_assignments_are_told(settings, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        transductive(**{"unary": torch.zeros(3, 2), "affinity": torch.ones(3, 3), **settings})
    with pytest.raises(ValueError, match=r"^k: expected a whole number of at most 2"):
        neighbor_affinity(torch.ones(3, 2), 3)
    with pytest.raises(ValueError, match=r"^rows: expected finite numbers"):
        neighbor_affinity(torch.full((3, 2), torch.nan), 1)
    with pytest.raises(ValueError, match=r"^labels: expected a row of every class, got none of class 1"):
        transductive_classes(torch.ones(3, 2), torch.ones(2, 2), torch.tensor([0, 2]))


@pytest.mark.parametrize(
    "case", ["ppot_rho0.3", "ppot_rho1", "pot_equal_columns", "ppot_gamma_small", "sp2ot_lam0", "sp2ot"]
)
def test_partial_plans_are_those_of_the_sp2ot_code(case):
    hyper = {name: SP2OT[f"{case}__{name}"] for name in ("rho", "gamma", "epsilon")}
    settings = {"temperature": float(hyper["epsilon"]), "evenness": float(hyper["gamma"])}
    if case == "pot_equal_columns":
        settings["evenness"] = math.inf
    if case.startswith("sp2ot"):
        settings |= {"similarity": of(SP2OT["similarity"]), "strength": float(SP2OT[f"{case}__lam"])}
    plan = partial_assignment(LOGITS, float(hyper["rho"]), steps=20_000, tolerance=1e-11, **settings)
    np.testing.assert_allclose(plan, SP2OT[f"{case}__plan_times_n"], atol=1e-8)
    if case == "ppot_rho1":
        with block_policy(block_entries=4):
            torch.testing.assert_close(partial_assignment(LOGITS, 1.0), plan, atol=1e-5, rtol=0)


def test_mass_is_the_share_and_columns_are_as_even_as_they_are_asked_to_be():
    plans = {
        (share, evenness): partial_assignment(LOGITS, share, evenness=evenness, tolerance=1e-8, steps=10_000)
        for share in (0.2, 0.6, 1.0)
        for evenness in (0.0, 1.0, math.inf)
    }
    for (share, evenness), plan in plans.items():
        assert float(plan.sum()) == pytest.approx(12 * share, abs=1e-6)
        assert float(plan.sum(1).max()) <= 1 + 1e-9
        if evenness == math.inf:
            torch.testing.assert_close(plan.sum(0), torch.full_like(plan[0], 3 * share), atol=1e-6, rtol=0)
    free = plans[1.0, 0.0]
    torch.testing.assert_close(free, (LOGITS.log_softmax(1) / 0.1).softmax(1))
    spread = [float(plans[0.6, evenness].sum(0).std()) for evenness in (0.0, 1.0, math.inf)]
    assert spread[0] > spread[1] > spread[2]


@pytest.mark.parametrize("evenness", [0.0, 1.0, math.inf])
def test_extreme_logits_and_classes_that_nobody_takes_stay_finite(evenness):
    logits = torch.tensor([[1e4, 0.0, -1e4], [1e4, -1e4, 0.0], [0.0, 1e4, -1e4]])
    for share in (0.5, 1.0):
        plan = partial_assignment(logits, share, evenness=evenness)
        assert plan.isfinite().all()
        assert float(plan.sum()) == pytest.approx(3 * share, rel=1e-3)


def test_like_rows_get_like_labels():
    logits = torch.tensor([[2.0, 0.0], [0.1, 0.0], [0.0, 2.0], [0.0, 0.1]])
    alike = torch.zeros(4, 4)
    alike[0, 3] = alike[1, 2] = 1.0
    plain, semantic = (partial_assignment(logits, 1.0, similarity=each, strength=4.0) for each in (None, alike))
    assert plain.argmax(1).tolist() == [0, 0, 1, 1]
    assert semantic[0].argmax() == semantic[3].argmax()
    assert semantic[1].argmax() == semantic[2].argmax()
    torch.testing.assert_close(partial_assignment(logits, 1.0, similarity=alike.to_sparse(), strength=4.0), semantic)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"share": 0.0}, "share: expected a number above 0"),
        ({"share": 1.2}, "share: expected a number from 0 to 1"),
        ({"temperature": 0.0}, "temperature: expected a number above 0"),
        ({"evenness": -1.0}, "evenness: expected a number of at least 0"),
        ({"logits": torch.zeros(3, 1)}, r"logits: expected \[n, k\] with k of at least 2"),
        ({"logits": torch.full((3, 2), torch.nan)}, "logits: expected finite numbers"),
        ({"similarity": torch.ones(2, 2)}, r"similarity: expected \(3, 3\)"),
        ({"similarity": torch.full((3, 3), torch.nan)}, "similarity: expected finite numbers"),
    ],
)
def test_bad_plans_are_told(settings, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        partial_assignment(**{"logits": torch.zeros(3, 2), "share": 0.5, **settings})
