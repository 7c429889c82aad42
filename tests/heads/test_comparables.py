"""Comparables: against a reference in numpy, and what a prediction by adjusted labels promises."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from references.kriging import all_subsets, kernel_problem
from vicinal.encoders.tree_projector import TreeProjector
from vicinal.heads import Comparables, Kriging
from vicinal.heads.kriging_weights import weights_with_slack

FLOAT = torch.float64
GOLDEN = Path(__file__).parents[1] / "golden" / "comparables"
CASES = sorted(path.stem for path in GOLDEN.glob("*.npz"))


def drawn(seed, b=4, n=12, trend=2, targets=1, near=1):
    """Queries, a bank, labels, and a head whose trend is the last entries."""
    generator = torch.Generator().manual_seed(seed)
    width = near + trend * targets
    queries, bank = (torch.randn(count, width, generator=generator, dtype=FLOAT) for count in (b, n))
    labels = torch.randn(n, *([targets] if targets > 1 else []), generator=generator, dtype=FLOAT)
    head = Comparables(5, scale=0.8, noise=0.2, trend=trend, targets=targets)
    head.base.copy_(torch.arange(1.0, targets + 1))
    head.unit.copy_(torch.arange(2.0, targets + 2))
    return queries, bank, labels, head.double()


def reference(head, query, bank, labels):
    """The formula in numpy, its weights by trying all sets of rows that may have some."""
    query, bank, labels = query.numpy(), bank.numpy(), labels.numpy()
    nearest = np.linalg.norm(bank - query, axis=1).argsort()[: head.k]
    covariance, near = kernel_problem(query, bank[nearest], 0.8)
    matrix = np.pad(covariance + (0.2 + 1e-6) * np.eye(head.k), (0, 1))
    matrix[-1, -1] = 1e-6
    weights = all_subsets(matrix, np.append(near, 0.0))[:-1]
    trend = head.base.numpy()[0] + head.unit.numpy()[0] * np.vstack([query, bank])[:, -head.trend :].sum(axis=1)
    adjusted = labels[nearest] + trend[0] - trend[1:][nearest]
    return weights @ adjusted + (1 - weights.sum()) * trend[0]


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_the_reference(seed):
    queries, bank, labels, head = drawn(seed)
    expected = [reference(head, query, bank, labels) for query in queries]
    np.testing.assert_allclose(head(queries, bank, labels).detach(), expected, atol=1e-9)


def golden(name):
    """A case that was kept, and a head with its numbers."""
    case = dict(np.load(GOLDEN / f"{name}.npz"))
    numbers = {"scale": float(case["scale"]), "noise": float(case["noise"]), "trend": int(case["trend"])}
    head = Comparables(int(case["k"]), **numbers, targets=case["labels"].shape[1])
    head.base, head.unit = torch.tensor(case["base"]), torch.tensor(case["unit"])
    return case, head


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_the_values_that_were_kept(name):
    case, head = golden(name)
    queries, bank = torch.tensor(case["queries"]), torch.tensor(case["bank"])
    mass = torch.tensor(case["mass"]) if "mass" in case else None
    local = head.local_weights(queries, bank, bank_weight=mass)
    weights = torch.zeros(len(queries), len(bank), dtype=FLOAT)
    weights = weights.scatter_add(1, local.positions.clamp(min=0), local.weights.detach())
    np.testing.assert_allclose(weights, case["weights"], rtol=0, atol=1e-10 / case["noise"])
    for labels in [case["labels"]] + [case["labels"][:, 0]] * (head.targets == 1):
        said = head(queries, bank, torch.tensor(labels), bank_weight=mass).detach()
        np.testing.assert_allclose(said.reshape(len(said), -1), case["prediction"], rtol=0, atol=1e-9 / case["noise"])


def test_labels_of_other_targets_than_the_trend_are_refused():
    queries, bank, labels, head = drawn(4, targets=3)
    for wrong, got in ((labels[:, 0], "1"), (labels[:, :2], "2")):
        with pytest.raises(ValueError, match=f"^labels: expected 3 numbers a row as the trend has them, got {got}"):
            head(queries, bank, wrong)


def test_texts_of_trees_give_the_embeddings_that_were_kept():
    case, head = golden("trees")
    projector = TreeProjector(case["texts"].tolist(), SimpleNamespace(names=["first", "second", "third"]))
    rows = projector(torch.tensor(case["columns"]), torch.tensor(case["folds"]))
    np.testing.assert_allclose(rows, np.concatenate([case["bank"], case["queries"]]), rtol=0, atol=1e-9)
    np.testing.assert_allclose(projector.base, case["base"], rtol=0, atol=1e-9)
    assert (projector.trend, projector.targets) == (head.trend, head.targets)


def test_weights_with_slack_solve_the_program_with_a_sum_of_at_most_1():
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        root = torch.randn(1, 4, 4, generator=generator, dtype=FLOAT)
        matrix, vector = (
            root @ root.mT + 0.1 * torch.eye(4, dtype=FLOAT),
            torch.randn(1, 4, generator=generator).double(),
        )
        weights = weights_with_slack(matrix, vector)[0][0]
        assert weights.min() >= 0
        assert weights.sum() <= 1 + 1e-9
        best = _by_grid(matrix[0].numpy(), vector[0].numpy())
        value = 0.5 * weights @ matrix[0] @ weights - weights @ vector[0]
        assert float(value) <= best + 1e-5


def _by_grid(matrix, vector, steps=14):
    """The least value on a grid of the simplex with slack."""
    places = np.stack(np.meshgrid(*[np.arange(steps + 1)] * 4, indexing="ij"), axis=-1).reshape(-1, 4)
    grid = places[places.sum(axis=1) <= steps] / steps
    return (0.5 * np.einsum("gi,ij,gj->g", grid, matrix, grid) - grid @ vector).min()


def test_far_from_all_rows_the_trend_is_the_prediction():
    queries, bank, labels, head = drawn(0)
    far = queries + torch.tensor([1e4, 0.0, 0.0])
    np.testing.assert_allclose(head(far, bank, labels).detach(), head.trend_of(far)[:, 0], atol=1e-4)


def test_labels_that_are_the_trend_are_predicted_as_it_is():
    queries, bank, _, head = drawn(1)
    labels = head.trend_of(bank)[:, 0]
    np.testing.assert_allclose(head(queries, bank, labels).detach(), head.trend_of(queries)[:, 0], atol=1e-9)


def test_a_constant_added_to_all_labels_and_the_trend_is_added_to_the_prediction():
    queries, bank, labels, head = drawn(2)
    before = head(queries, bank, labels).detach()
    head.base.add_(7.0)
    np.testing.assert_allclose(head(queries, bank, labels + 7.0).detach(), before + 7.0, atol=1e-9)


def test_without_a_trend_and_with_all_weight_it_is_kriging_but_for_the_slack():
    _, bank, labels, head = drawn(3, b=2)
    head.unit.zero_()
    head.base.zero_()
    near = bank[:2] + 1e-9
    plain = Kriging(5, scale=0.8, noise=1e-6).double()
    sure = head.with_kernel(0.8, 1e-6)
    np.testing.assert_allclose(sure(near, bank, labels).detach(), plain(near, bank, labels).detach(), atol=1e-4)


def test_each_of_several_targets_has_a_trend_of_its_own():
    queries, bank, labels, head = drawn(4, targets=3)
    said = head(queries, bank, labels).detach()
    local = head.local_weights(queries, bank)
    for target in range(3):
        trend = head.trend_of(torch.cat([queries, bank]))[:, target]
        of_rows = labels[local.positions, target] + trend[:4, None] - trend[4:][local.positions]
        expected = (local.weights * of_rows).sum(dim=1) + (1 - local.weights.sum(dim=1)) * trend[:4]
        np.testing.assert_allclose(said[:, target], expected.detach(), atol=1e-9)
        one = head.of_target(target, 10.0, 30.0)  # labels on [0, 1] that were 10 to 30
        np.testing.assert_allclose(
            one(queries, bank, 10 + 20 * labels[:, target]).detach(), 10 + 20 * said[:, target], atol=1e-8
        )


def test_gradients_are_those_of_the_formula():
    queries, bank, labels, head = drawn(5, b=2, n=6)
    inputs = [one.clone().requires_grad_() for one in (queries, bank, labels)]
    assert torch.autograd.gradcheck(head, inputs, atol=1e-5)


@given(st.integers(0, 10_000), st.floats(0.01, 30.0))
def test_weights_are_not_negative_and_sum_to_at_most_1(seed, noise):
    queries, bank, labels, head = drawn(seed)
    with torch.no_grad():
        local = head.with_kernel(0.8, noise).local_weights(queries, bank)
    assert bool((local.weights >= 0).all())
    assert float(local.weights.sum(dim=1).max()) <= 1 + 1e-9
    adjusted = labels[local.positions] + head.trend_of(queries) - head.trend_of(bank)[:, 0][local.positions]
    both = torch.cat([adjusted, head.trend_of(queries)], dim=1)
    said = local.mean(labels)
    assert bool(((said >= both.amin(dim=1) - 1e-9) & (said <= both.amax(dim=1) + 1e-9)).all())
