"""Rows with times: what forecasts best is fitted, and intervals and sets hold for later rows."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.calibration import conformal_quantile
from vicinal.core import CalibrationWarning
from vicinal.data.splits import forward_splits
from vicinal.estimators import NeighborClassifier, NeighborRegressor, load_model
from vicinal.estimators.adaptation import WIDEST, Forecasts
from vicinal.estimators.calibrating import calibrating_rows, calibrating_units
from vicinal.estimators.forecasts import widened


def walks(seed, rows=120):
    """A level that wanders upwards, which no column tells."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 2))
    return pd.DataFrame(x, columns=["a", "b"]), x[:, 0] + random.normal(0.3, 1, size=rows).cumsum()


@pytest.fixture(scope="module")
def timed():
    x, y = walks(0)
    return NeighborRegressor(metric="kernel").fit(x[:96], y[:96], times=np.arange(96))


def share_within(model, x, y):
    low, high = model.predict_interval(x).T
    return np.mean((low <= y) & (y <= high))


@pytest.mark.slow
def test_later_rows_of_a_level_that_wanders_are_within():
    with_times, without = [], []
    for seed in range(4):
        x, y = walks(seed)
        for times, shares in ((np.arange(96), with_times), (None, without)):
            model = NeighborRegressor(metric="kernel").fit(x[:96], y[:96], times=times)
            shares.append(share_within(model, x[96:], y[96:]))
    assert np.mean(with_times) > 0.8 > 0.5 > np.mean(without)


@pytest.mark.slow
def test_the_scale_that_forecasts_best_is_taken():
    when = np.arange(100.0)
    y = np.exp(when / 25) * (1 + 0.02 * np.random.default_rng(0).normal(size=100))
    settings = {"metric": "kernel", "target_transform": "auto"}
    model = NeighborRegressor(**settings).fit(when[:78, None], y[:78], times=when[:78])
    assert model.target_transform_.name == "log"
    assert share_within(model, when[78:, None], y[78:]) > 0.85


@given(st.lists(st.integers(0, 9), min_size=8, max_size=40), st.integers(1, 5))
def test_forecasts_are_of_later_rows_and_cut_no_time_or_group(times, groups):
    times, codes = np.array(times), np.arange(len(times)) % groups
    for past, later in forward_splits(times):
        assert len(later)
        assert not len(past) or times[past].max() < times[later].min()
    for past, later in forward_splits(times, codes):
        assert not set(codes[past]) & set(codes[later])


def test_intervals_are_as_wide_as_the_worst_forecast_needed():
    near, far, wild = np.arange(1, 20) / 10, np.arange(1, 20) / 5, np.arange(1, 20) * 100.0
    assert Forecasts(until=0.0, misses=[near.tolist(), far.tolist()]).radius(0.9) == far[17]
    pooled = conformal_quantile(np.concatenate([near, near, near, wild[:1]]), 0.9)
    assert Forecasts(until=0.0, misses=[near.tolist()] * 3 + [wild[:1].tolist()]).radius(0.9) == WIDEST * pooled
    np.testing.assert_allclose(widened(np.array([[2.0, 8.0]]), 2.0, log=True), [[1.0, 16.0]])


def test_forecasts_are_kept(timed, tmp_path):
    x, y = walks(0)
    wide = timed.predict_interval(x[96:])
    timed.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_interval(x[96:]), wide)
    radius = timed.fitted_.forecasts[0].radius(0.9)
    assert calibrating_rows(again.fitted_) == len(timed.fitted_.forecasts[0]) > 60
    assert again.forget([3], deep=True).fitted_.forecasts[0].radius(0.9) == radius
    again.add(x[96:], y[96:])
    assert again.partial_fit(x[:1], y[:1], refit=True).fitted_.forecasts[0].radius(0.9) == radius


def test_labels_of_later_rows_adapt_what_forecasts_said(timed):
    x = walks(0)[0]
    timed.adapt(x[:90], timed.predict(x[:90]))  # all of them are met: intervals become narrower
    wide = np.ptp(timed.predict_interval(x[96:]), axis=1)
    timed.adapt(None)
    assert (wide < np.ptp(timed.predict_interval(x[96:]), axis=1)).all()


@pytest.mark.slow
def test_several_targets_have_forecasts_each():
    x, y = walks(1)
    both = pd.DataFrame({"still": x["a"] + x["b"], "moves": y})
    model = NeighborRegressor(metric="kernel").fit(x[:96], both[:96], times=np.arange(96))
    still, moves = (model.of_target(name).fitted_.forecasts[0].radius(0.9) for name in both)
    assert still < moves
    assert share_within(model.of_target("moves"), x[96:], y[96:]) > 0.8


def panel(groups, sizes):
    """Rows in groups that follow one another, each with a level of its own, which is wild in small groups."""
    random = np.random.default_rng(0)
    codes = np.repeat(np.arange(groups), [sizes[group % len(sizes)] for group in range(groups)])
    x = random.normal(size=(len(codes), 2))
    level = random.normal(size=groups) * np.array(
        [3.0 if sizes[group % len(sizes)] < 4 else 0.1 for group in range(groups)]
    )
    return x, x[:, 0] + level[codes] + 0.1 * random.normal(size=len(codes)), codes


def test_a_group_counts_once_however_many_rows_it_has():
    x, y, codes = panel(60, (2, 20))
    known = codes < 46
    model = NeighborRegressor(metric="kernel").fit(x[known], y[known], times=codes[known], groups=codes[known])
    low, high = model.predict_interval(x[~known], groups=codes[~known]).T
    within = pd.Series((low <= y[~known]) & (y[~known] <= high)).groupby(codes[~known]).mean()
    assert within.mean() > 0.8  # rows that count alike cover .5 of the wild half of the groups
    assert calibrating_units(model.fitted_)[0] == len(model.fitted_.forecasts[0]) < 46


def test_too_few_groups_for_forecasts_are_said():
    x, y, codes = panel(14, (8,))
    with pytest.warns(CalibrationWarning, match="^times: expected groups enough .* got 14"):
        model = NeighborRegressor(metric="kernel").fit(x, y, times=codes, groups=codes)
    assert np.isfinite(model.predict_interval(x, groups=codes)).all()


@pytest.mark.slow
def test_a_row_calibrates_by_its_weight():
    x, y = walks(3)
    wild = np.arange(len(y)) % 3 == 0
    weights = np.where(wild, 1e-6, 1.0)
    model = NeighborRegressor(metric="kernel").fit(x, y + 1e4 * wild, times=np.arange(len(y)), sample_weight=weights)
    assert max(max(one) for one in model.fitted_.forecasts[0].misses) < 100


def test_sets_and_answers_of_classes_that_drift():
    random = np.random.default_rng(0)
    x, when = random.normal(size=(400, 2)), np.arange(400)
    turned = np.pi * when / 500  # which side is which turns around
    y = np.where(x[:, 0] * np.cos(turned) + x[:, 1] * np.sin(turned) > 0, "in", "out")
    known, later = slice(0, 300), slice(300, 400)
    held_out = np.arange(255, 300)
    within = []
    for times in (None, when[known]):
        model = NeighborClassifier(metric="kernel").fit(x[known], y[known], validation=held_out, times=times)
        right = np.searchsorted(model.classes_, y[later])
        within.append(model.predict_set(x[later])[np.arange(100), right].mean())
    assert within[1] >= within[0]
    assert within[1] > 0.85
    assert calibrating_rows(model.fitted_) == 150


def test_what_is_refused():
    x, y = walks(0, 30)
    with pytest.raises(ValueError, match=r"^times: expected one for each of 30 rows, got 29"):
        NeighborRegressor(metric="kernel").fit(x, y, times=np.arange(29))
    with pytest.raises(ValueError, match=r"^times: expected validation_fraction above 0"):
        NeighborRegressor(validation_fraction=0).fit(x, y, times=np.arange(30))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(CalibrationWarning, match="earlier half"):
            NeighborRegressor(metric="kernel").fit(x[:12], y[:12], times=np.zeros(12))
