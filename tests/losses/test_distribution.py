"""CRPS against its form over pairs of labels, and what training by it gives."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vicinal.estimators import NeighborClassifier, NeighborRegressor
from vicinal.losses import CRPS, parse


def of_pairs(weights, labels, y):
    """The second form of the score: expected distances."""
    apart = (labels[:, None] - labels[None, :]).abs()
    return (weights * (labels - y[:, None]).abs()).sum(-1) - ((weights @ apart) * weights).sum(-1) / 2


def case(seed, rows=7, bank=20, ties=False):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randn(bank, generator=generator, dtype=torch.float64)
    labels = (2 * labels).round() / 2 if ties else labels
    weights = torch.rand(rows, bank, generator=generator, dtype=torch.float64)
    truth = labels[torch.randint(bank, (rows,), generator=generator)]
    return weights / weights.sum(-1, keepdim=True), labels, truth


@given(st.integers(0, 1000), st.booleans())
def test_it_is_the_form_over_pairs(seed, ties):
    weights, labels, truth = case(seed, ties=ties)
    loss = CRPS(reduction="none").fit(labels)
    torch.testing.assert_close(loss(weights @ loss.steps(labels), loss.steps(truth)), of_pairs(weights, labels, truth))


@given(st.integers(0, 1000), st.floats(-1e3, 1e3), st.floats(1e-3, 1e3))
def test_it_moves_with_the_units_of_labels(seed, shift, scale):
    weights, labels, truth = case(seed)
    one, other = CRPS().fit(labels), CRPS().fit(shift + scale * labels)
    found = other(weights @ other.steps(shift + scale * labels), other.steps(shift + scale * truth))
    torch.testing.assert_close(found, scale * one(weights @ one.steps(labels), one.steps(truth)), rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_many_labels_are_cut_at_quantiles():
    weights, labels, truth = case(3, bank=5000)
    loss = CRPS().fit(labels)
    assert loss.steps(truth).shape == (7, 63)
    assert float(loss.widths.sum()) == pytest.approx(float(labels.max() - labels.min()))
    exact = of_pairs(weights, labels, truth).mean()
    assert float(loss(weights @ loss.steps(labels), loss.steps(truth))) == pytest.approx(float(exact), rel=0.02)


def test_the_true_distribution_scores_best():
    """Proper: nothing has a lower expected score than the distribution that labels are drawn from."""
    labels = torch.tensor([0.0, 1.0, 4.0], dtype=torch.float64)
    truth = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    loss = CRPS(reduction="none").fit(labels)

    def expected(mass):
        return (truth * loss((mass @ loss.steps(labels)).expand(3, -1), loss.steps(labels))).sum()

    best = expected(truth)
    for seed in range(50):
        other = torch.rand(3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        assert expected(other / other.sum()) > best


def test_gradients_and_rows_left_out():
    weights, labels, truth = case(5)
    loss = CRPS().fit(labels)
    steps, goal = loss.steps(labels), loss.steps(truth)
    assert torch.autograd.gradcheck(lambda w: loss(w @ steps, goal), (weights.requires_grad_(),))
    kept = torch.tensor([1.0, 0, 0, 0, 0, 0, 1.0], dtype=torch.float64)
    own = loss(weights @ steps, goal, kept)
    torch.testing.assert_close(own, loss((weights @ steps)[[0, 6]], goal[[0, 6]]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CRPS(1), r"^knots: expected at least 2, got 1"),
        (lambda: CRPS().steps(torch.ones(2)), r"^crps: expected knots, got none; call fit"),
        (lambda: CRPS().fit(torch.ones(4)), r"^labels: expected finite numbers that are not all equal"),
        (
            lambda: CRPS().fit(torch.arange(3.0))(torch.ones(2, 3), torch.ones(2, 3)),
            r"^crps: expected two tensors \[b, 2\], as steps gives them, got \(2, 3\)",
        ),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def two_valued(rows=400):
    """Labels that are far apart by chance, more often the one or the other as x goes."""
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, (rows, 1))
    return x, np.where(generator.uniform(size=rows) < (1 + x[:, 0]) / 2, 3.0, -3.0) + 0.1 * generator.normal(size=rows)


@pytest.mark.parametrize("members", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_an_estimator_trains_by_it(members):
    x, y = two_valued()
    settings = {"max_epochs": 15, "learning_rate": 3e-3, "members": members, "dropout": 0.0}
    model = NeighborRegressor(loss="crps(knots=32)", **settings).fit(x[:300], y[:300])
    history = model.history_.validation_error
    assert min(history) < history[0]
    assert model.predict(x[300:]).shape == (100,)
    weights = np.array([[n.weight for n in one.neighbors] for one in model.explain(x[300:], k=300)[:1]])
    assert weights.sum() == pytest.approx(1)
    low, high = model.predict_interval(x[300:], 0.8).T
    assert np.mean((low <= y[300:]) & (y[300:] <= high)) > 0.6


def test_who_cannot_be_trained_by_it():
    x, y = two_valued(60)
    with pytest.raises(ValueError, match=r"^loss: expected one for classes, got crps"):
        NeighborClassifier(loss="crps").fit(x, y > 0)
    with pytest.raises(ValueError, match=r"^loss: expected a head of neighbors for crps, got head='dense'"):
        NeighborRegressor(loss="crps", head="dense").fit(x, y)
    with pytest.raises(ValueError, match=r"^loss: expected crps alone"):
        NeighborRegressor(loss="crps + 0.1*rank_n_contrast").fit(x, y)
    assert isinstance(parse("crps"), CRPS)
