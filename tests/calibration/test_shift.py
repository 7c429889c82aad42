"""Where rows to predict are not like rows to calibrate on: covariate shift, label shift, drift."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from vicinal.calibration import (
    LabelShiftSets,
    ScaleFreeOGD,
    ShiftedQuantile,
    StronglyAdaptive,
    class_weights,
    clopper_pearson,
    clopper_pearson_upper,
    conformal_quantile,
    online_radii,
    point_class_weights,
)
from vicinal.calibration.covariate_shift import GRID

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "sets"


@pytest.mark.parametrize("stream", ["shift", "constant"])
def test_online_radii_are_those_of_the_public_code(stream: str) -> None:
    golden = np.load(GOLDEN / "online_conformal.npz", allow_pickle=False)
    scores = golden[f"{stream}_scores"]
    descent = online_radii(ScaleFreeOGD(0.9, 10.0), scores)
    assert descent == pytest.approx(golden[f"{stream}_ogd_radius"], abs=1e-12)
    adaptive = online_radii(StronglyAdaptive(0.9, 10.0, threshold=0.0), scores)
    assert adaptive == pytest.approx(golden[f"{stream}_saocp_radius"], abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ScaleFreeOGD, StronglyAdaptive])
def test_online_methods_cover_a_long_stream_and_a_drifting_one(kind: type) -> None:
    rng = np.random.default_rng(0)
    steady = np.abs(rng.normal(size=3000))
    drifting = np.abs(rng.normal(size=3000)) * np.linspace(1, 6, 3000)
    for scores in (steady, drifting):
        radii = np.array(online_radii(kind(0.9, 10.0), scores))
        assert (radii >= 0).all()
        assert abs((scores <= radii)[200:].mean() - 0.9) < 0.04
    frozen = conformal_quantile(drifting[:500], 0.9)
    assert (drifting[500:] <= frozen).mean() < 0.7  # what a threshold from the start would have covered


def test_the_adaptive_ensemble_recovers_from_a_jump_sooner() -> None:
    rng = np.random.default_rng(1)
    scores = np.abs(rng.normal(size=1600)) * np.where(np.arange(1600) < 800, 8.0, 0.5)
    after = slice(800, 850)
    for stream, falling in ((scores, True), (scores[::-1], False)):
        plain = np.mean(online_radii(ScaleFreeOGD(0.9, 30.0), stream)[after])
        adaptive = np.mean(online_radii(StronglyAdaptive(0.9, 30.0), stream)[after])
        assert (adaptive < plain) == falling
        assert abs(adaptive - plain) > 1


def test_few_experts_live_and_the_state_can_be_stored() -> None:
    rng = np.random.default_rng(2)
    online = StronglyAdaptive(0.8, 5.0)
    online_radii(online, np.abs(rng.normal(size=1000)))
    assert len(online.experts) < 16 * np.log2(1000)
    copy = StronglyAdaptive(0.5, 1.0)
    copy.load_state_dict(json.loads(json.dumps(online.state_dict())))
    later = np.abs(rng.normal(size=50))
    assert online_radii(copy, later) == online_radii(online, later)


def test_zero_scores_never_raise_the_radius_and_bad_ones_are_refused() -> None:
    online = ScaleFreeOGD(0.9, 10.0, radius=3.0)
    radii = online_radii(online, np.zeros(50))
    assert all(b <= a for a, b in itertools.pairwise(radii))
    with pytest.raises(ValueError, match="score: expected a finite number, got nan"):
        online.update(float("nan"))
    with pytest.raises(ValueError, match="coverage: expected a number between 0 and 1"):
        StronglyAdaptive(1.0)
    with pytest.raises(ValueError, match="scale: expected a number above 0"):
        ScaleFreeOGD(0.9, 0.0)


@pytest.mark.parametrize("kind", [ScaleFreeOGD, StronglyAdaptive])
def test_every_setting_that_is_no_number_of_its_kind_is_refused_also_from_a_stored_state(kind: type) -> None:
    good = kind().state_dict()
    bad = {
        "coverage": [0.0, 1.0, float("nan"), "0.9"],
        "scale": [0.0, -1.0, float("nan"), float("inf")],
        "radius": [-1.0, float("nan"), float("inf")],
        "squares": [-1.0, float("nan"), float("inf")],
        "lifetime": [0, -3, 2.5, float("nan"), True],
        "threshold": [-1e-9, float("nan"), float("inf")],
        "time": [-1, 0.5, float("nan")],
    }
    for name in good.keys() - {"experts"}:
        for value in bad[name]:
            with pytest.raises((ValueError, TypeError), match=f"^{name}: expected "):
                kind(**{name: value})
            with pytest.raises((ValueError, TypeError), match=f"^{name}: expected "):
                kind().load_state_dict({**good, name: value})


def test_a_stored_expert_that_cannot_be_is_refused() -> None:
    online = StronglyAdaptive()
    online.update(0.5)
    state = online.state_dict()
    for name, value in {"born": 0, "lifetime": 0, "age": -1, "won": float("nan"), "wagered": float("inf")}.items():
        with pytest.raises(ValueError, match=f"^{name}: expected "):
            StronglyAdaptive().load_state_dict({**state, "experts": [{**state["experts"][0], name: value}]})


def features(x: np.ndarray) -> np.ndarray:
    return np.stack([np.ones_like(x), x, x**2], axis=1)


def test_without_regularization_a_constant_gives_the_empirical_quantile() -> None:
    scores = np.random.default_rng(0).exponential(size=501)
    ones = np.ones((501, 1))
    model = ShiftedQuantile(0.9, strength=0.0).fit(ones, scores, ones)
    assert model.predict(ones)[0] == pytest.approx(np.quantile(scores, 0.9), abs=2e-3)


def test_covariate_shift_is_covered_where_plain_conformal_fails() -> None:
    covered, plain = [], []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x, shifted = rng.normal(size=1500), rng.normal(1.2, 0.8, size=1500)
        scores = np.abs(rng.normal(size=1500)) * np.exp(x / 2)
        fresh = np.abs(rng.normal(size=1500)) * np.exp(shifted / 2)
        model = ShiftedQuantile(0.9).fit(features(x), scores, features(shifted))
        covered.append((fresh <= model.predict(features(shifted))).mean())
        plain.append((fresh <= conformal_quantile(scores, 0.9)).mean())
    assert np.mean(plain) < 0.83
    assert abs(np.mean(covered) - 0.9) < 0.03


def gaps_of_strengths(spread: float, seeds: range) -> dict[float | str, float]:
    """Root mean square of coverage minus 0.9, of thresholds that are lines where the scores grow exponentially."""

    def lines(x: np.ndarray) -> np.ndarray:
        return np.stack([np.ones_like(x), x], axis=1)

    gaps: dict[float | str, list[float]] = {}
    for seed in seeds:
        rng = np.random.default_rng(seed)
        x, shifted = rng.normal(size=300), rng.normal(1.5, spread, size=4000)
        scores, fresh = (np.abs(rng.normal(size=len(z))) * np.exp(z / 2) for z in (x, shifted))
        for strength in ("auto", 0.001, 0.01, 0.1, 1.0, 10.0):
            model = ShiftedQuantile(0.9, strength=strength).fit(lines(x), scores, lines(shifted[:300]))
            gaps.setdefault(strength, []).append((fresh <= model.predict(lines(shifted))).mean() - 0.9)
    return {strength: float(np.sqrt(np.mean(np.square(each)))) for strength, each in gaps.items()}


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.5, pytest.param(0.9, marks=pytest.mark.slow)])
def test_the_chosen_strength_covers_nearly_as_well_as_the_best_one(spread: float) -> None:
    gaps = gaps_of_strengths(spread, range(12))
    chosen = gaps.pop("auto")
    best = min(gaps.values())
    assert chosen < best + 0.2 * (max(gaps.values()) - best)


@pytest.mark.slow
def test_the_chosen_strength_covers_nearly_as_well_as_the_best_one_over_many_seeds() -> None:
    gaps = gaps_of_strengths(0.5, range(100, 160))
    chosen = gaps.pop("auto")
    assert chosen < min(gaps.values()) + 0.01


@pytest.mark.parametrize("seed", range(3))
def test_the_chosen_strength_has_the_least_weighted_pinball_loss_on_held_out_thirds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, shifted, scores = rng.normal(size=90), rng.normal(0.7, 1, 90), rng.exponential(size=90)
    source, target = features(x), features(shifted)
    fold = np.random.default_rng(seed).permutation(90) % 3
    ratio = np.maximum(source @ np.linalg.lstsq(source.T @ source / 90, target.mean(0), rcond=None)[0], 0)
    losses = []
    for strength in GRID:
        height = np.empty(90)
        for out in range(3):
            model = ShiftedQuantile(0.8, strength=strength)
            model.fit(source[fold != out], scores[fold != out], target, source=source)
            height[fold == out] = model.predict(source[fold == out])
        gap = scores - height
        losses.append(ratio @ np.where(gap > 0, 0.8 * gap, -0.2 * gap))
    chosen = ShiftedQuantile(0.8, seed=seed).fit(source, scores, target)
    assert chosen.strength_ == GRID[int(np.argmin(losses))]


def test_the_loss_that_is_minimized_is_the_one_that_is_told() -> None:
    """With the multiple that the docstring names, no other coefficients nearby do better."""
    rng = np.random.default_rng(0)
    x, shifted, scores = rng.normal(size=400), rng.normal(0.7, 1, 400), 30 * rng.exponential(size=400)
    source, target, strength = features(x), features(shifted), 0.2
    theta = ShiftedQuantile(0.8, strength=strength).fit(source, scores, target).coefficients

    def loss(theta: np.ndarray) -> float:
        h, gap = source @ theta, scores - source @ theta
        pinball = np.maximum(0.8 * gap, -0.2 * gap).mean()
        beta = (target @ theta).mean() / (h**2).mean()
        return pinball + strength * np.abs(scores).mean() * (
            beta**2 * (h**2).mean() - 2 * beta * (target @ theta).mean()
        )

    least = loss(theta)
    for step in (0.03, 0.1):
        for direction in rng.normal(size=(30, 3)):
            assert loss(theta + step * np.abs(theta).max() * direction) > least - 1e-3


def test_scaling_scores_scales_thresholds() -> None:
    rng = np.random.default_rng(0)
    x, shifted, scores = rng.normal(size=300), rng.normal(1, 1, 300), rng.exponential(size=300)
    first = ShiftedQuantile(0.8, strength=0.1).fit(features(x), scores, features(shifted)).predict(features(shifted))
    second = ShiftedQuantile(0.8, strength=0.1).fit(features(x), 10 * scores, features(shifted))
    assert second.predict(features(shifted)) == pytest.approx(10 * first, rel=2e-2)


def test_covariate_shift_refuses_what_it_cannot_do() -> None:
    with pytest.raises(ValueError, match="expected a constant column"):
        ShiftedQuantile().fit(np.arange(40.0)[:, None], np.ones(40), np.ones((3, 1)))
    with pytest.raises(ValueError, match=r"expected at least 10 rows for coverage 0\.9, got 5"):
        ShiftedQuantile().fit(np.ones((5, 1)), np.ones(5), np.ones((3, 1)))


def test_clopper_pearson_ends() -> None:
    golden = np.load(GOLDEN / "pac_label_shift.npz", allow_pickle=False)
    low, high = clopper_pearson(golden["cp_k"], int(golden["cp_n"]), float(golden["cp_alpha"]))
    upper = clopper_pearson_upper(golden["cp_k"], int(golden["cp_n"]), float(golden["cp_alpha"]))
    assert np.stack([low, high, upper], 1) == pytest.approx(golden["cp_lo_hi_upper"], abs=1e-12)
    assert clopper_pearson_upper(0, 30, 0.1) == pytest.approx(1 - 0.1 ** (1 / 30))


def test_class_weights_are_those_of_the_public_code_and_ours_enclose_them() -> None:
    golden = np.load(GOLDEN / "pac_label_shift.npz", allow_pickle=False)
    data = (golden["y_source"], golden["pred_source"], golden["pred_target"], 3, 0.1)
    theirs = class_weights(*data, arithmetic="endpoints")
    assert theirs.raw_low == pytest.approx(golden["weight_lo"], abs=1e-12)
    assert theirs.high == pytest.approx(golden["weight_hi"], abs=1e-12)
    assert (theirs.low >= 0).all()
    ours = class_weights(*data)  # products of intervals whose sign changes need all four corners
    assert (ours.raw_low <= theirs.raw_low + 1e-12).all()
    assert (ours.high >= theirs.high - 1e-12).all()


def test_the_interval_solution_encloses_the_solution_of_every_matrix_within() -> None:
    from vicinal.calibration.label_shift import _interval_solve

    rng = np.random.default_rng(0)
    middle = np.array([[0.4, 0.05, 0.02], [0.05, 0.3, 0.03], [0.01, 0.02, 0.3]])
    matrix = np.stack([middle - 0.01, middle + 0.01], -1)
    right = np.stack([np.full(3, 0.3), np.full(3, 0.36)], -1)
    bounds = _interval_solve(matrix, right, exact=True)
    for _ in range(300):
        inner = rng.uniform(matrix[..., 0], matrix[..., 1])
        solution = np.linalg.solve(inner, rng.uniform(right[:, 0], right[:, 1]))
        assert (solution >= bounds[:, 0]).all()
        assert (solution <= bounds[:, 1]).all()


def label_shifted(seed: int, prior: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, size=count, p=prior)
    logits = np.diag([3.5, 3.0, 1.6])[labels] + rng.normal(size=(count, 3))
    odds = np.exp(1.5 * logits)
    return odds / odds.sum(1, keepdims=True), labels


def test_sets_hold_under_label_shift_where_plain_conformal_fails() -> None:
    source, target = np.array([0.6, 0.3, 0.1]), np.array([0.3, 0.3, 0.4])
    missed, plain = [], []
    for seed in range(10):
        shares, labels = label_shifted(seed, source, 10_000)
        away, truth = label_shifted(100 + seed, target, 4000)
        sets = LabelShiftSets(0.1, 0.1, seed=seed).fit(shares, labels, away[:2000]).predict(away[2000:])
        missed.append(1 - sets[np.arange(2000), truth[2000:]].mean())
        threshold = conformal_quantile(1 - shares[np.arange(10_000), labels], 0.9)
        plain.append((1 - away[np.arange(4000), truth] > threshold).mean())
    assert np.mean(plain) > 0.12
    assert sum(value > 0.1 for value in missed) <= 1
    assert np.mean(missed) > 0.01  # not by giving every class


def test_smaller_errors_need_larger_sets_and_too_few_rows_are_refused() -> None:
    shares, labels = label_shifted(0, np.full(3, 1 / 3), 2000)
    sizes = [LabelShiftSets(e).fit(shares, labels, shares).predict(shares).sum() for e in (0.3, 0.15, 0.05)]
    assert sizes[0] < sizes[1] < sizes[2]
    with pytest.raises(ValueError, match="expected enough rows to tell the class frequencies apart"):
        LabelShiftSets().fit(shares[:20], labels[:20], shares[:20])


def test_point_weights_of_probabilities():
    random = np.random.default_rng(0)
    labels, later = random.choice(3, 4000, p=[0.2, 0.3, 0.5]), random.choice(3, 4000, p=[0.6, 0.2, 0.2])
    chances, of_later = (random.dirichlet(np.ones(3), 4000) * 0.5 + 0.5 * np.eye(3)[y] for y in (labels, later))
    soft = point_class_weights(labels, chances, of_later, 3)
    np.testing.assert_allclose(soft, [3, 2 / 3, 0.4], atol=0.25)
    hard = [shares.argmax(1) for shares in (chances, of_later)]
    same = point_class_weights(labels, *(np.eye(3)[each] for each in hard), 3)
    np.testing.assert_allclose(same, point_class_weights(labels, *hard, 3), rtol=1e-9)
    joint = chances.T @ np.eye(3)[labels] / 4000
    want = np.linalg.solve(joint.T @ joint + np.eye(3) / 4000, joint.T @ of_later.mean(0))
    np.testing.assert_allclose(soft, want)
    with pytest.raises(ValueError, match=r"^predicted: expected 4000 rows in the form of the target"):
        point_class_weights(labels, chances, hard[1], 3)
    with pytest.raises(ValueError, match=r"^target: expected classes"):
        point_class_weights(labels, chances, 2 * of_later, 3)


def test_point_weights_are_those_of_the_papers_code_and_lie_within_their_bounds():
    golden = np.load(GOLDEN / "pac_label_shift.npz", allow_pickle=False)
    given = golden["y_source"], golden["pred_source"], golden["pred_target"]
    ours = point_class_weights(*given, 3)
    np.testing.assert_allclose(ours, golden["weights_point"][:, 0], rtol=1e-9)
    bounds = class_weights(*given, 3, 0.1)
    assert np.all((bounds.low <= ours) & (ours <= bounds.high))
    assert point_class_weights([0, 1], [0, 0], [1, 1], 2).min() >= 0
    with pytest.raises(ValueError, match=r"^target: "):
        point_class_weights(*given[:2], [3], 3)
