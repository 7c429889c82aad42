"""Level-set boosting, abstaining, representers."""

from pathlib import Path

import numpy as np
import pytest
import scipy
import torch
from sklearn.linear_model import LinearRegression

from vicinal.calibration import (
    LevelSetBoosting,
    answering_threshold,
    area_under_selective_curve,
    multicalibration_error,
    rejection_loss,
    selective_curve,
)
from vicinal.evaluation import l1_representers, nuclear_representers

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "sets"


def test_level_set_boosting_is_that_of_the_public_code() -> None:
    golden = np.load(GOLDEN / "level_set_boosting.npz", allow_pickle=False)
    model = LevelSetBoosting(LinearRegression(), levels=5, rounds=2, least=4, tolerance=None)
    model.fit(golden["X"], golden["y"])
    assert model.grid == pytest.approx(golden["centers"], abs=1e-12)
    assert model.errors == pytest.approx(golden["train_mse_per_round"], abs=1e-12)
    assert model.predict(golden["X"]) == pytest.approx(golden["pred"], abs=1e-12)


@pytest.fixture
def unfair() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    groups = (rng.random((3000, 2)) < 0.4).astype(float)
    start = rng.uniform(0.2, 0.8, 3000)
    labels = (rng.random(3000) < np.clip(start + 0.15 * groups[:, 0] - 0.15 * groups[:, 1], 0, 1)).astype(float)
    return groups, start, labels


def test_boosting_removes_what_groups_can_see(unfair: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    groups, start, labels = unfair
    model = LevelSetBoosting(levels=10, rounds=10, least=20)
    half = slice(0, 1500), slice(1500, 3000)
    model.fit(groups[half[0]], labels[half[0]], start=start[half[0]])
    after = model.predict(groups[half[1]], start=start[half[1]])
    assert set(np.unique(after)) <= set(model.grid)
    before = multicalibration_error(start[half[1]], labels[half[1]], groups[half[1]])
    assert multicalibration_error(after, labels[half[1]], groups[half[1]]).max() < 0.7 * before.max()


def test_before_rounding_no_level_gets_worse(unfair: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    groups, start, labels = unfair
    model = LevelSetBoosting(LinearRegression(), levels=6, rounds=1, tolerance=None).fit(groups, labels, start=start)
    current = model._rounded(start)
    moved = model._moved(model._rounds[0], groups, start)
    for level in np.unique(current):
        mine = current == level
        assert ((moved - labels)[mine] ** 2).mean() <= ((current - labels)[mine] ** 2).mean() + 1e-12


def test_validation_rows_stop_the_rounds() -> None:
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(300, 20)), rng.random(300)
    free = LevelSetBoosting(levels=10, rounds=20, tolerance=None).fit(x[:150], noise[:150])
    stopped = LevelSetBoosting(levels=10, rounds=20, tolerance=0.0)
    stopped.fit(x[:150], noise[:150], validation=(x[150:], noise[150:], None))
    assert len(stopped.errors) < len(free.errors)


def test_level_set_boosting_refuses() -> None:
    with pytest.raises(ValueError, match="call fit first"):
        LevelSetBoosting().predict(np.ones((2, 1)))
    with pytest.raises(ValueError, match="labels: expected values from 0 to 1"):
        LevelSetBoosting(low=0.0, high=1.0).fit(np.ones((3, 1)), [0.0, 1.0, 2.0])
    with pytest.raises(ValueError, match="start: expected predictions exactly if fit was given some"):
        LevelSetBoosting().fit(np.ones((4, 1)), [0.0, 1.0, 0.5, 0.2]).predict(np.ones((1, 1)), start=[0.5])


@pytest.mark.parametrize("surrogate", ["logistic", "exponential"])
@pytest.mark.parametrize("cost", [0.1, 0.3, 0.7])
def test_the_best_rejector_accepts_exactly_above_one_minus_cost(surrogate: str, cost: float) -> None:
    for chance in (1 - cost - 0.05, 1 - cost + 0.05):
        grid = torch.linspace(-6, 6, 4001, dtype=torch.float64)
        right = torch.ones_like(grid, dtype=torch.bool)
        options = {"cost": cost, "surrogate": surrogate, "reduction": "none"}
        risk = chance * rejection_loss(grid, right, **options) + (1 - chance) * rejection_loss(grid, ~right, **options)
        best = float(grid[risk.argmin()])
        assert (best > 0) == (chance > 1 - cost)
        if surrogate == "logistic":
            assert best == pytest.approx(np.log(cost * chance / ((1 - cost) * (1 - chance))), abs=4e-3)
        assert (risk[2:] - 2 * risk[1:-1] + risk[:-2] >= -1e-12).all()


def test_rejection_loss_bounds_the_cost_and_has_finite_gradients() -> None:
    scores = torch.linspace(-1e4, 1e4, 9, dtype=torch.float64, requires_grad=True)
    correct = torch.arange(9) % 2 == 0
    loss = rejection_loss(scores, correct, cost=0.3, reduction="none")
    true = torch.where(scores > 0, (~correct).double(), torch.full_like(scores, 0.3))
    floor = 0.3 * correct.logical_not() * 1.0
    assert (loss / np.log(2) + floor >= true - 1e-9).all()
    loss.sum().backward()
    assert torch.isfinite(scores.grad).all()
    with pytest.raises(ValueError, match="cost: expected a number between 0 and 1"):
        rejection_loss(scores, correct, cost=1.0)
    with pytest.raises(ValueError, match="correct: expected bool"):
        rejection_loss(scores, torch.ones(9), cost=0.5)


@pytest.mark.parametrize("surrogate", ["logistic", "exponential"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_the_price_of_a_rejection_has_the_digits_of_the_scores(surrogate: str, dtype: torch.dtype) -> None:
    correct = torch.tensor([True, False])
    for cost in (0.1, 1 / 3, 0.7, 1e-9):
        loss = rejection_loss(torch.zeros(2, dtype=dtype), correct, cost=cost, surrogate=surrogate, reduction="none")
        value = np.log(2) if surrogate == "logistic" else 1.0
        assert loss.dtype == dtype
        torch.testing.assert_close(
            loss, torch.tensor([cost * value, (1 - cost) * value], dtype=dtype), rtol=4 * torch.finfo(dtype).eps, atol=0
        )


def test_selective_curves() -> None:
    errors = np.array([0.0, 1.0, 0.0, 1.0])
    perfect, worst = np.array([4.0, 1.0, 3.0, 2.0]), np.array([1.0, 4.0, 2.0, 3.0])
    assert area_under_selective_curve(perfect, errors) < area_under_selective_curve(worst, errors)
    share, risk = selective_curve(np.zeros(4), errors)
    assert share.tolist() == [1.0] * 4
    assert risk.tolist() == [0.5] * 4


def test_answers_are_wrong_at_most_at_the_promised_rate() -> None:
    rng, broken, refused = np.random.default_rng(0), 0, 0
    for _ in range(200):
        scores = rng.uniform(0.5, 1, 300)
        wrong = rng.random(300) > scores
        try:
            threshold = answering_threshold(scores, wrong, 0.15)
        except ValueError:
            refused += 1
            continue
        at = scores >= threshold
        assert scipy.stats.binom.cdf(wrong[at].sum(), at.sum(), 0.15) <= 0.1  # Clopper-Pearson's bound is below it
        broken += (1 - threshold) / 2 > 0.15  # the true error of answers from the threshold on
    assert broken <= 30  # of 200 at 10 %; more have a chance of 0.1 %
    assert refused < 100
    with pytest.raises(ValueError, match=r"abstain: expected at least 0\.") as error:
        answering_threshold(scores[:60], wrong[:60], 0.02)
    lowest = float(str(error.value).split("at least ")[1].split(",")[0])
    answering_threshold(scores[:60], wrong[:60], lowest)
    with pytest.raises(ValueError, match=f"at least {lowest}"):
        answering_threshold(scores[:60], wrong[:60], lowest - 0.01)
    with pytest.raises(ValueError, match="expected at least 1, the lowest"):
        answering_threshold([], [], 0.1)


def test_l1_representers_are_those_of_the_public_code_and_sum_to_the_score() -> None:
    golden = np.load(GOLDEN / "representers_l1.npz", allow_pickle=False)
    x, y, theta = golden["X"], golden["y"], golden["theta"][:, 0]
    slopes = 1 / (1 + np.exp(-x @ theta)) - y
    values = l1_representers(theta, x, slopes, golden["X_test"])
    assert values == pytest.approx(golden["values"], abs=1e-10)
    assert values.sum(0) == pytest.approx(golden["X_test"] @ theta, abs=1e-5)
    order = np.random.default_rng(0).permutation(len(x))
    assert l1_representers(theta, x[order], slopes[order], golden["X_test"]) == pytest.approx(values[order])


def test_nuclear_representers_are_those_of_the_public_code_and_sum_to_the_score() -> None:
    golden = np.load(GOLDEN / "representers_nuclear.npz", allow_pickle=False)
    matrix, users, items = golden["M"], golden["users"], golden["items"]
    slopes = (matrix - golden["Y"])[users, items]
    by_item, by_user = nuclear_representers(matrix, users, items, slopes)
    assert by_item == pytest.approx(golden["item_side"], abs=1e-8)
    assert by_user == pytest.approx(golden["user_side"], abs=1e-8)
    assert by_item.sum(-1) == pytest.approx(0.4 * matrix, abs=1e-6)
    assert by_user.sum(-1) == pytest.approx(0.4 * matrix, abs=1e-6)
    left, size, right = np.linalg.svd(matrix)
    factors = left[:, : len(size)] * size, right[: len(size)].T
    pairs = [[1, 2], [0, 3], [1, 2]]
    of_pair, by_pair = nuclear_representers(factors, users, items, slopes, pairs=pairs)
    for place, (user, item) in enumerate(pairs):
        assert of_pair[place] == pytest.approx(golden["item_side"][user, item], abs=1e-8)
        assert by_pair[place] == pytest.approx(golden["user_side"][user, item], abs=1e-8)
    with pytest.raises(ValueError, match="pairs: expected numbers from 0"):
        nuclear_representers(factors, users, items, slopes, pairs=[[len(matrix), 0]])
    with pytest.raises(ValueError, match="factors of one width"):
        nuclear_representers((matrix, matrix[:, :2]), users, items, slopes)
    with pytest.raises(ValueError, match="rank at least 1"):
        nuclear_representers(np.zeros((2, 2)), [0], [1], [0.5])
    with pytest.raises(ValueError, match="items: expected numbers from 0 to 4"):
        nuclear_representers(matrix, [0], [5], [0.5])
