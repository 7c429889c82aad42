"""One wild cell: it stops and moves nothing but its own row, and that no farther than the ends of the fit."""

import copy
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vicinal.encoders import NumberEncoder, VectorEncoder
from vicinal.encoders.names import encoder_from_config
from vicinal.estimators import (
    EmbeddingLearner,
    ExtrapolationWarning,
    NeighborClassifier,
    NeighborRegressor,
    load_model,
)
from vicinal.workflows import predict_table

draw = np.random.default_rng(12)
X = pd.DataFrame(draw.normal(size=(80, 3)), columns=["income", "b", "c"])
VECTORS = X.assign(v=list(draw.normal(size=(80, 2))))
Y = X.to_numpy() @ [1.0, 2.0, 3.0] + 0.3 * draw.normal(size=80)
QUICK = {"members": 4, "max_epochs": 3}
WILD = st.floats(10.0, 1.7e308) | st.floats(-1.7e308, -10.0)
MODELS = {
    "kernel": lambda: NeighborRegressor(metric="kernel").fit(X, Y),
    "network": lambda: NeighborRegressor(metric="network", **QUICK).fit(X, Y),
    "dense": lambda: NeighborRegressor(head="dense", **QUICK).fit(X, Y),
    "folds": lambda: NeighborRegressor(metric="network", validation_fraction=0, **QUICK).fit(X, Y),
    "rank": lambda: NeighborRegressor(metric="kernel", target_transform="rank").fit(X, Y),
    "log": lambda: NeighborRegressor(metric="kernel", target_transform="log").fit(X, np.exp(Y / 9)),
    "several": lambda: NeighborRegressor(metric="kernel").fit(X, np.c_[Y, -2 * Y]),
    "classes": lambda: NeighborClassifier(metric="kernel").fit(X, Y > 0),
    "vectors": lambda: NeighborRegressor(metric="kernel").fit(VECTORS, Y),
}


@pytest.fixture(scope="module")
def models():
    return {name: make() for name, make in MODELS.items()}


def with_wild(name, wild):
    new = (VECTORS if name == "vectors" else X).head(5).copy()
    new.loc[2, "income"] = wild
    if name == "vectors":
        new["v"] = [np.array([wild, 0.0]) if row == 2 else cell for row, cell in enumerate(new["v"])]
    return new


@pytest.mark.sweep(5)
@pytest.mark.parametrize("name", MODELS)
@given(wild=WILD)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=settings().max_examples // 4)
def test_a_wild_cell_moves_only_its_own_row_and_that_within_half_the_range_of_labels(models, name, wild):
    model, new = models[name], with_wild(name, wild)
    calm = with_wild(name, 0.0)
    with pytest.warns(ExtrapolationWarning, match="1 row of 5 lies far beyond the rows of the fit, in 'income' .1."):
        said = np.asarray(model.predict(new))
    rest = [0, 1, 3, 4]
    np.testing.assert_allclose(said[rest], np.asarray(model.predict(calm))[rest], rtol=1e-9, atol=1e-12)
    if name == "classes":
        return
    labels = model.bank_.labels.numpy()
    reach = 0.5 * (labels.max(axis=0) - labels.min(axis=0))
    assert (said >= labels.min(axis=0) - reach - 1e-9).all()
    assert (said <= labels.max(axis=0) + reach + 1e-9).all() or name == "log"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        bounds, usual = model.predict_interval(new, 0.5), model.predict_interval(calm, 0.5)
        one = model.of_target("y0") if name == "several" else model
        if model.network_.head.uses_bank:
            assert one.explain(new)[2].prediction == pytest.approx(np.atleast_2d(said.T)[0, 2])
    assert np.isfinite(bounds).all()
    np.testing.assert_allclose(bounds[rest], usual[rest], rtol=1e-9, atol=1e-12)
    assert (bounds[2, ..., 0] <= said[2]).all()
    assert (bounds[2, ..., 1] >= said[2]).all()


@pytest.mark.parametrize("name", ["kernel", "network", "dense", "folds", "rank", "log", "several"])
def test_intervals_widen_with_the_distance(models, name):
    far = pd.concat([X.head(1).assign(income=one) for one in (0.0, 5.0, 20.0, 100.0, 1e4, 1e8)], ignore_index=True)
    bounds = models[name].predict_interval(far, 0.5)
    widths = np.diff(bounds, axis=-1)[..., 0]
    assert (np.diff(widths[1:], axis=0) >= 0).all()
    assert (widths[-1] > widths[1]).all()


@pytest.mark.parametrize(("scale", "y"), [("none", np.arange(40.0) ** 3), ("log", np.exp(np.arange(40) / 9))])
def test_an_interval_lies_around_a_prediction_that_stands_at_its_limit(scale, y):
    x = np.arange(40.0)[:, None]
    y = y * (1 + 0.02 * np.sin(7 * x[:, 0]))
    model = NeighborRegressor(metric="kernel", target_transform=scale).fit(x, y)
    (said,), (low, high) = model.predict([[57.0]]), model.predict_interval([[57.0]], 0.5)[0]
    on_scale = model.target_transform_.within(model.bank_.labels)
    assert said == pytest.approx(float(on_scale.inverse(torch.full((1,), np.inf, dtype=torch.float64))))
    middle = np.sqrt(low * high) if scale == "log" else (low + high) / 2
    assert middle == pytest.approx(said)
    assert low < said < high < np.inf


def test_an_interval_of_ranks_has_a_width_where_a_prediction_is_the_highest_label():
    x = np.arange(40.0)[:, None]
    y = x[:, 0] + 2 * np.sin(7 * x[:, 0])
    model = NeighborRegressor(metric="kernel", readout="comparables", target_transform="rank").fit(x, y)
    said, (low, high) = model.predict([[57.0]]), model.predict_interval([[57.0]], 0.5)[0]
    assert low < said == high == model.bank_.labels.max()


def test_rows_as_far_as_half_a_range_beyond_the_fit_warn_of_nothing_and_are_read_as_they_are(models):
    model = models["kernel"]
    encoder = model.table_encoder.encoders[0]
    low, high = np.array(encoder.low), np.array(encoder.high)
    near = pd.DataFrame([low - 0.499 * (high - low), high + 0.499 * (high - low)], columns=X.columns)
    free = copy.deepcopy(encoder)
    free.low, free.high = [], []  # as encoders were once saved
    np.testing.assert_array_equal(encoder.prepare(near).values, free.prepare(near).values)
    assert encoder.prepare(near).excess is None
    model.predict(near)
    assert free.prepare(near * 1e9).values.abs().max() > 1e8


@given(st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=6), st.floats(-1.7e308, 1.7e308))
def test_encoded_numbers_are_bounded_for_all_columns_and_come_back_from_a_folder(values, wild):
    frame = pd.DataFrame({"a": values})
    with np.errstate(all="ignore"):
        encoder = NumberEncoder("a").fit(frame)
        fitted = encoder.prepare(frame)
        far = encoder.prepare(pd.DataFrame({"a": [wild]}))
    assert fitted.excess is None
    assert far.values.isfinite().all()
    spread = fitted.values.max() - fitted.values.min()
    assert far.values.min() >= fitted.values.min() - 0.51 * spread - 1e-9
    reach = 10.0 if min(values) > 0 and max(values) >= 1e3 * min(values) else 0.51  # an upper tail is long
    assert far.values.max() <= fitted.values.max() + reach * spread + 1e-9
    again = encoder_from_config(encoder.config())
    np.testing.assert_array_equal(again.prepare(pd.DataFrame({"a": [wild]})).values, far.values)
    old = {name: value for name, value in encoder.config().items() if name not in ("low", "high")}
    assert encoder_from_config(old).low == []


def test_saved_ends_must_be_those_of_the_columns():
    for encoder in (NumberEncoder(["b", "c"]).fit(X), VectorEncoder("v").fit(VECTORS)):
        for wrong in ({"low": [0.0]}, {"low": [1.0, 1.0], "high": [0.0, 2.0]}, {"high": []}):
            with pytest.raises(ValueError, match="ends"):
                encoder_from_config(encoder.config() | wrong)


def test_an_added_wild_row_stands_at_the_ends_of_the_fit_and_stops_nobody():
    model = NeighborRegressor(metric="kernel").fit(X, Y)
    before = model.predict(X)
    model.add(X.head(3).assign(income=[1e300, -1e12, 99999999999.0]), Y[:3])
    after = model.predict(X)
    assert np.isfinite(after).all()
    assert np.abs(after - before).max() < 0.5 * Y.std()
    model.forget(range(80, 83))
    np.testing.assert_allclose(model.predict(X), before, atol=1e-9)


def test_predict_counts_rows_and_names_columns_in_a_sentence(tmp_path):
    model = NeighborRegressor(metric="kernel").fit(X, Y)
    model.save(tmp_path / "m")
    new, said = X.head(20).copy(), []
    new.loc[3:5, "income"] = 1e9
    new.loc[5, "c"] = -77.0
    answers = predict_table(tmp_path / "m", new, coverage=0.5, explain=1, log=said.append)
    assert np.isfinite(answers.flat()["prediction"]).all()
    assert (
        sum("3 rows of 20 lie far beyond the rows of the fit, in 'income' (3), 'c' (1);" in line for line in said) == 1
    )
    again = load_model(tmp_path / "m")
    rows = again.query_rows(X.head(2))
    assert rows.sentence() == ""
    np.testing.assert_array_equal(again.predict(rows), again.predict(X.head(2)))


def test_a_row_far_out_that_is_held_out_counts_in_full():
    draw = np.random.default_rng(4)
    x = np.exp(2 * draw.normal(size=(120, 2)))
    y = 3 * x[:, 0] + x[:, 1]
    x[7], y[7] = (9_000.0, 5.0), 27_005.0
    model = NeighborRegressor(metric="kernel", random_state=0).fit(x, y, validation=np.array([7, *range(100, 120)]))
    missed = model.predict(x[20:60]) - y[20:60]
    assert np.abs(missed).max() < 1.0


def test_numbers_over_orders_of_magnitude_go_on_farther_beyond_their_upper_end():
    frame = pd.DataFrame({"income": [1.0, 10.0, 10_000.0], "age": [20.0, 40.0, 60.0]})
    encoder = NumberEncoder(["income", "age"]).fit(frame)
    inside = pd.DataFrame({"income": [99_000.0], "age": [79.0]})
    assert not encoder.prepare(inside).excess
    beyond = encoder.prepare(pd.DataFrame({"income": [101_000.0], "age": [81.0]})).excess
    assert bool((beyond > 0).all())


@pytest.mark.parametrize("wild", [1e30, -1e30, 1e308])
def test_a_wild_cell_of_a_row_of_the_fit_is_a_gap_and_moves_no_other_row(wild):
    x = X.copy()
    x.loc[7, "income"] = wild
    encoder = NumberEncoder(["income", "b"]).fit(x)
    rest = X.drop(index=7)
    assert (encoder.low[0], encoder.high[0]) == (rest["income"].min(), rest["income"].max())
    inputs = encoder.prepare(x)
    assert inputs.without_wild(0.0).values[7, 0] == 0 != inputs.values[7, 0]
    assert inputs.excess[7, 0] > 1e3
    calm, moved = (NeighborRegressor(metric="kernel").fit(one, Y).predict(rest) for one in (X, x))
    assert np.square(moved - calm).mean() < 0.01 * Y.var()


@pytest.mark.parametrize("way", ["learned", "added"])
def test_a_wild_cell_of_a_row_that_a_learner_learns_from_or_that_is_added_is_a_gap(way):
    x = X.copy()
    x.loc[7, "income"] = 1e30
    if way == "learned":
        model = EmbeddingLearner(max_epochs=1, dim=2, unseen=False).fit(x, Y > 0)
    else:
        model = NeighborRegressor(metric="kernel").fit(X.drop(index=7), np.delete(Y, 7))
        model.add(x.loc[[7]], [Y[7]], ids=[99])
    bank = model.bank_.store
    vector = bank.vectors_at(bank.positions([7 if way == "learned" else 99]))
    mean = x.loc[[7]].assign(income=model.table_encoder.encoders[0].mean[0])
    np.testing.assert_allclose(vector, model.embed(mean), rtol=1e-5, atol=1e-6)


def test_a_date_far_from_all_others_of_the_fit_moves_no_end_of_its_column():
    days = pd.DataFrame({"day": pd.date_range("2015-01-01", periods=40, freq="90D").astype("datetime64[us]")})
    ends = NumberEncoder(["day"]).fit(days).high
    days.loc[7, "day"] = pd.Timestamp("2150-12-31")
    assert NumberEncoder(["day"]).fit(days).high == ends
