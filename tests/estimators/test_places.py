"""Columns by name and by place, under any names and in any buffers: the same model, or one sentence."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from vicinal.core import ColumnWarning
from vicinal.estimators import EmbeddingLearner, NeighborRegressor, load_model
from vicinal.workflows import TableJob, fit_table

draw = np.random.default_rng(9)
X = draw.normal(size=(60, 3)).astype(np.float16).astype(np.float64)
Y = X @ [1.0, -2.0, 0.5]
NAMED = pd.DataFrame(X, columns=["age", "bmi", "bp"])
KERNEL = {"metric": "kernel", "readout": "dense"}
MIXED = NAMED.assign(town=np.where(X[:, 0] > 0, "Bonn", "Rome"))
TABLES = {
    "names": NAMED,
    "numbers": pd.DataFrame(X),
    "both": pd.DataFrame(X, columns=["age", 1, 2.5]),
    "pairs": pd.DataFrame(X, columns=pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)])),
    "polars": pl.from_pandas(NAMED),
}
ROWS = {
    "array": X,
    "lists": X.tolist(),
    "tensor": torch.tensor(X),
    "tuples": list(map(tuple, X)),
    "big": X.astype(">f8"),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_model_of_a_table_takes_rows_without_names_by_place_and_warns(kind, tmp_path):
    table = TABLES[kind]
    model = NeighborRegressor(**KERNEL).fit(table, Y)
    wanted = model.predict(table)
    model.save(tmp_path / "m")
    for one in (model, load_model(tmp_path / "m")):
        np.testing.assert_allclose(one.predict(table), wanted, atol=1e-5)
        for rows in ROWS.values():
            with pytest.warns(
                UserWarning, match="X does not have valid feature names, but NeighborRegressor was fitted"
            ):
                np.testing.assert_allclose(one.predict(rows), wanted, atol=1e-5)
    for rows in (X[:, :2], X[:, :2].tolist()):
        with pytest.warns(UserWarning, match="valid feature names"), pytest.raises(ValueError, match="2 features"):
            model.predict(rows)


def test_a_model_of_an_array_takes_a_table_by_place_and_warns():
    model = NeighborRegressor(**KERNEL).fit(X, Y)
    for table in (NAMED, TABLES["polars"]):
        with pytest.warns(UserWarning, match="X has feature names, but NeighborRegressor was fitted without"):
            np.testing.assert_allclose(model.predict(table), model.predict(X))


def test_rows_by_place_may_have_gaps_and_columns_of_any_kind():
    gaps = MIXED.mask(np.arange(240).reshape(60, 4) % 11 == 5)
    model = NeighborRegressor(**KERNEL).fit(gaps, Y)
    wanted = model.predict(gaps)
    for rows in (gaps.to_numpy(dtype=object), gaps.to_numpy(dtype=object).tolist()):
        with pytest.warns(UserWarning, match="valid feature names"):
            np.testing.assert_allclose(model.predict(rows), wanted)


def test_the_learner_goes_by_place_too():
    learner = EmbeddingLearner(max_epochs=1, unseen=False).fit(NAMED, np.digitize(Y, [-1, 0, 1]))
    with pytest.warns(UserWarning, match="X does not have valid feature names, but EmbeddingLearner was fitted"):
        np.testing.assert_allclose(learner.transform(X), learner.transform(NAMED))


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("rows", [X[0], X[:0], X[None], X[0].tolist()], ids=["row", "none", "cube", "list"])
def test_what_is_no_matrix_is_refused(rows):
    model = NeighborRegressor(**KERNEL).fit(NAMED, Y)
    with pytest.raises(ValueError, match=r"2D array|dim|0 sample|at least one row"):
        model.predict(rows)


def arrow(values, kind):
    return pd.array(pa.array(values, type=kind), dtype=pd.ArrowDtype(kind))


HALVES = X[:, 0].astype(np.float16)
BUFFERS = {
    "big-endian float64": X[:, 0].astype(">f8"),
    "big-endian float32": X[:, 0].astype(">f4"),
    "Arrow half": arrow(HALVES, pa.float16()),
    "half": HALVES,
    "long double": X[:, 0].astype(np.longdouble),
    "objects of another order": pd.Series(list(X[:, 0].astype(">f8")), dtype=object),
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", BUFFERS)
def test_numbers_are_numbers_in_any_buffer(name, tmp_path):
    table = NAMED.assign(age=BUFFERS[name])
    wanted = NeighborRegressor(**KERNEL).fit(NAMED, Y).predict(NAMED)
    model = NeighborRegressor(**KERNEL).fit(table, Y)
    np.testing.assert_allclose(model.predict(table), wanted, atol=1e-9)
    np.testing.assert_allclose(model.add(table[:2], Y[:2]).predict(NAMED[5:]), model.predict(table[5:]), atol=1e-9)
    assert fit_table(TableJob(table.assign(y=Y), "y", parameters=KERNEL, baselines=False)).model.kinds_


def test_half_floats_may_be_missing_and_be_labels():
    gaps = arrow([None if row == 4 else value for row, value in enumerate(HALVES)], pa.float16())
    model = NeighborRegressor(**KERNEL).fit(NAMED.assign(age=gaps), arrow(Y.astype(np.float16), pa.float16()))
    assert np.isfinite(model.predict(NAMED.assign(age=gaps))).all()
    np.testing.assert_array_equal(model.bank_.labels, Y.astype(np.float16).astype(np.float64))


def test_structs_are_columns_of_their_parts_and_columns_of_one_name_are_refused_by_name():
    place = arrow(
        [{"lat": one, "lon": 1.0} for one in X[:, 0]], pa.struct([("lat", pa.float64()), ("lon", pa.float64())])
    )
    with pytest.warns(ColumnWarning, match=r"^X: age.lon: left out: 1.0 in every row"):
        parts = NeighborRegressor(**KERNEL).fit(NAMED.assign(age=place), Y)
    assert parts.predict(NAMED.assign(age=place)[:3]).shape == (3,)
    assert list(parts.kinds_) == ["bmi", "bp", "age.lat"]
    model = NeighborRegressor(**KERNEL).fit(NAMED, Y)
    twice = NAMED.set_axis(["age", "bmi", "age"], axis="columns")
    numbers = pd.DataFrame(X, columns=["1", 1, "a"])
    for table in (twice, numbers, pa.Table.from_arrays([pa.array(one) for one in X.T], names=["age", "bmi", "age"])):
        for call in (lambda x: NeighborRegressor().fit(x, Y), model.predict):
            with pytest.raises(ValueError, match=r"^X: expected columns of different names, got '(age|1)' twice"):
                call(table)
