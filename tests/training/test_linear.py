"""Linear models by folds and their stacking: against normal equations, scipy's minimum and a search by hand."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from vicinal.training.linear import PENALTIES, logistic_folds, ridge_folds
from vicinal.training.stacking import stack_numbers, stack_scores


def rows(count=90, seed=0):
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 4, generator=random, dtype=torch.float64)
    noise = torch.randn(count, 2, generator=random, dtype=torch.float64)
    y = torch.stack([x[:, 0] - 2 * x[:, 1], 5 + x[:, 2]], dim=1) + noise * torch.tensor([0.1, 3.0])
    return x, y, torch.arange(count) % 3


def by_hand(x, y, mass, penalty):
    wide = np.c_[np.ones(len(x)), x]
    drag = penalty * np.diag([0.0, *np.ones(x.shape[1])])
    return np.linalg.solve(wide.T @ (mass[:, None] * wide) + drag, wide.T @ (mass * y))


@pytest.mark.parametrize(("weighted", "width"), [(False, 4), (True, 4), (False, 100), (True, 100)])
def test_ridge_is_the_solution_of_the_normal_equations_of_the_best_penalty(weighted, width):
    """Also of more columns than rows, whose slopes are combinations of these."""
    x, y, folds = rows()
    x = torch.cat([x, x.new_zeros(90, width - 4).normal_(generator=torch.manual_seed(1))], dim=1)
    mass = torch.linspace(0.5, 2, 90, dtype=torch.float64) if weighted else torch.ones(90).double()
    fitted = ridge_folds(x, y, folds, weights=mass if weighted else None)
    for target in range(2):
        errors, models = [], []
        for penalty in PENALTIES:
            model = [
                by_hand(*(part[folds != fold].numpy() for part in (x, y[:, target], mass)), penalty)
                for fold in range(3)
            ]
            said = np.array([model[fold] @ np.r_[1, row] for fold, row in zip(folds.tolist(), x.numpy(), strict=True)])
            errors.append((mass.numpy() * (said - y[:, target].numpy()) ** 2).sum())
            models.append(model)
        best = models[int(np.argmin(errors))]
        for fold in range(3):
            np.testing.assert_allclose(fitted.starts[fold, target], best[fold][0], atol=1e-9)
            np.testing.assert_allclose(fitted.slopes[fold, target], best[fold][1:], atol=1e-9)
    assert torch.allclose(fitted.predicted(x, folds)[folds == 1], fitted.starts[1] + x[folds == 1] @ fitted.slopes[1].T)


def test_a_label_has_no_part_in_the_model_of_its_fold(monkeypatch):
    monkeypatch.setattr("vicinal.training.linear.PENALTIES", (1.0,))
    x, y, folds = rows()
    other = y.clone()
    other[folds == 2] += 100
    first, second = (ridge_folds(x, labels, folds) for labels in (y, other))
    torch.testing.assert_close(first.slopes[2], second.slopes[2])
    assert not torch.allclose(first.starts[0], second.starts[0], atol=1)


def test_logistic_regression_minimizes_its_penalized_loss(monkeypatch):
    monkeypatch.setattr("vicinal.training.linear.STRENGTHS", (0.1,))
    x, _, folds = rows(120)
    codes = (x[:, 0] > 0.3).long() + (x[:, 1] > 0.5).long()
    labels = torch.nn.functional.one_hot(codes, 3)
    mass = torch.linspace(0.5, 2, 120, dtype=torch.float64)
    fitted = logistic_folds(x, labels, folds, weights=mass)
    at = (folds != 0).numpy()
    rows_, known, weights = x.numpy()[at], codes.numpy()[at], mass.numpy()[at]

    def loss(point):
        slopes, starts = point[:12].reshape(3, 4), point[12:]
        z = starts + rows_ @ slopes.T
        own = z[np.arange(len(z)), known]
        return (weights * (np.log(np.exp(z).sum(axis=1)) - own)).sum() + (slopes**2).sum() / (2 * 0.1)

    best = minimize(loss, np.zeros(15), method="BFGS").x
    np.testing.assert_allclose(fitted.slopes[0], best[:12].reshape(3, 4), atol=2e-3)
    said = fitted.starts[0] - fitted.starts[0].mean()
    np.testing.assert_allclose(said, best[12:] - best[12:].mean(), atol=5e-3)


@pytest.mark.parametrize("chosen_on", [4096, 60])
def test_slopes_that_began_at_those_of_a_smaller_variance_are_those_of_their_own(monkeypatch, chosen_on):
    x, _, folds = rows(120)
    labels = torch.nn.functional.one_hot((x[:, 0] > 0.3).long() + (x[:, 1] > 0.5).long(), 3)
    monkeypatch.setattr("vicinal.training.linear.CHOSEN_ON", chosen_on)
    each = []
    for strengths in ((1.0,), (0.001, 0.01, 0.1, 1.0, 1e-4)):
        monkeypatch.setattr("vicinal.training.linear.STRENGTHS", strengths)
        each.append(logistic_folds(x, labels, folds))
    torch.testing.assert_close(each[0].slopes, each[1].slopes, atol=5e-3, rtol=5e-3)


def test_a_class_that_a_fold_has_alone_is_rare_for_it():
    x, _, folds = rows()
    codes = (x[:, 0] > 0).long()
    codes[0] = 2  # of fold 0
    fitted = logistic_folds(x, torch.nn.functional.one_hot(codes, 3), folds)
    chances = (fitted.starts[0] + x @ fitted.slopes[0].T).softmax(dim=1)
    assert float(chances[:, 2].max()) < 0.05
    assert float(fitted.slopes[0, 2].abs().sum()) == 0


def test_shares_of_numbers_are_the_best_that_are_not_negative():
    random = np.random.default_rng(0)
    y = random.normal(size=(200, 1)) + 3
    sources = np.stack([y + random.normal(size=y.shape), y + 2 * random.normal(size=y.shape), 6 - y])
    shares, added, error = stack_numbers(*(torch.from_numpy(part) for part in (sources, y)))

    def errors(point):
        said = y.mean() + np.einsum("s,snt->nt", point, sources - y.mean())
        return ((said - y) ** 2).mean()

    best = minimize(errors, np.full(3, 0.3), bounds=[(0, None)] * 3)
    np.testing.assert_allclose(shares[:, 0], best.x, atol=1e-4)
    assert error == pytest.approx(best.fun)
    assert shares[2, 0] == 0
    said = added + torch.einsum("st,snt->nt", shares, torch.from_numpy(sources))
    assert float((said - torch.from_numpy(y)).square().mean()) == pytest.approx(error)


def test_slopes_of_scores_minimize_the_log_loss_of_smoothed_targets():
    random = np.random.default_rng(0)
    codes = random.integers(0, 3, 150)
    labels = np.eye(3)[codes]
    sources = np.stack([2 * labels + random.normal(size=labels.shape), labels + 2 * random.normal(size=labels.shape)])
    slopes, biases, _ = stack_scores(*(torch.from_numpy(part) for part in (sources, labels)))
    targets = (150 * labels + 1 / 3) / 151

    def loss(point):
        z = np.einsum("s,snk->nk", np.exp(point[:2]), sources) + point[2:]
        return -(targets * (z - np.log(np.exp(z).sum(axis=1, keepdims=True)))).sum(axis=1).mean() + point[2:] @ point[
            2:
        ] / (2 * 150)

    best = minimize(loss, np.zeros(5), method="BFGS").x
    np.testing.assert_allclose(slopes, np.exp(best[:2]), atol=1e-3)
    np.testing.assert_allclose(biases, best[2:] - best[2:].mean(), atol=1e-3)
    least = torch.tensor([1e-3, 2 * float(slopes[1])])
    assert stack_scores(*map(torch.from_numpy, (sources, labels)), least=least)[0][1] == pytest.approx(float(least[1]))
