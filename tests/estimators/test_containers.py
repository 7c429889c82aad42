"""Rows, labels, ids and groups of any library: the same model, the same results, names kept."""

import datetime
import functools
import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
import torch

from references.tables import table
from vicinal.estimators import NeighborClassifier, NeighborRegressor, load_model
from vicinal.workflows import TableJob, fit_table, predict_table

pytestmark = pytest.mark.sweep(3)

ROWS = 60
QUICK = {"max_epochs": 1, "members": 1, "hidden": (8, 4), "metric": "network"}
PLAIN = {"metric": "kernel", "readout": "dense"}


def rows():
    frame, price = table(ROWS)
    frame["note"] = frame["note"].astype(str)
    start = datetime.datetime(2024, 1, 1)
    frame["built"] = [start + datetime.timedelta(days=3 * i) for i in range(ROWS)]
    frame["walk"] = [datetime.timedelta(minutes=i % 17, seconds=i) for i in range(ROWS)]
    return frame, pd.Series(price, name="price")


TABLES = {
    "pandas": lambda frame: frame,
    "pandas of Arrow": lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.from_pandas,
    "arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "record batch": lambda frame: pa.RecordBatch.from_pandas(frame, preserve_index=False),
}
COLUMNS = {
    "list": lambda column: list(column),
    "numpy": lambda column: np.asarray(column),
    "pandas": pd.Series,
    "nullable": lambda column: pd.Series(column).convert_dtypes(),
    "pandas of Arrow": lambda column: pd.Series(column).convert_dtypes(dtype_backend="pyarrow"),
    "categories": lambda column: pd.Series(column).astype("category"),
    "polars": lambda column: pl.Series("given", list(column)),
    "arrow": lambda column: pa.array(list(column)),
    "chunked": lambda column: pa.chunked_array([list(column)[:7], list(column)[7:]]),
}


@pytest.mark.sweep(4)
@pytest.mark.parametrize("kind", TABLES)
def test_tables_of_any_library_are_one_table(kind):
    frame, price = rows()
    convert = TABLES[kind]
    wanted = NeighborRegressor(**QUICK).fit(frame, price)
    assert wanted.kinds_ == {
        "size": "number",
        "town": "category",
        "note": "category",
        "built": "number",
        "walk": "number",
    }
    model = NeighborRegressor(**QUICK).fit(convert(frame), price)
    assert model.kinds_ == wanted.kinds_
    assert model.feature_names_in_.tolist() == list(frame)
    some = frame.iloc[:9]
    np.testing.assert_array_equal(model.predict(convert(some)), wanted.predict(some))
    np.testing.assert_array_equal(model.embed(convert(some)), wanted.embed(some))
    np.testing.assert_array_equal(model.predict_interval(convert(some), 0.5), wanted.predict_interval(some, 0.5))
    for ours, theirs in zip(model.kneighbors(convert(some), 3), wanted.kneighbors(some, 3), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert [e.prediction for e in model.explain(convert(some), 2)] == [e.prediction for e in wanted.explain(some, 2)]
    assert model.score(convert(some), price[:9]) == wanted.score(some, price[:9])
    for one in (model, wanted):
        one.add(convert(some) if one is model else some, np.arange(9.0), ids=range(100, 109))
    np.testing.assert_array_equal(model.predict(convert(some)), wanted.predict(some))
    with pytest.raises(ValueError, match=r"[Ff]eature names"):
        model.predict(convert(some.rename(columns={"size": "sizes"})))


@functools.cache
def of_lists(ids, rounded):
    """The model of labels, ids and groups in lists; it must not be changed."""
    frame, price = rows()
    names = [f"h{i}" for i in range(ROWS)] if ids == "words" else list(range(50, 50 + ROWS))
    groups = [f"g{i // 4}" for i in range(ROWS)]
    labels = price.round(1) if rounded else price
    held = list(range(0, ROWS, 5))
    model = NeighborRegressor(**QUICK).fit(frame, list(labels), ids=names, groups=groups, validation=held)
    return model, labels, names, groups, held


@functools.cache
def of_classes(labels):
    """The model of classes in a list."""
    frame, price = rows()
    classes = [labels[int(value > price.median())] for value in price]
    return NeighborClassifier(**QUICK).fit(frame, classes), classes


@pytest.mark.sweep(4)
@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("ids", ["numbers", "words"])
def test_labels_ids_and_groups_of_any_library_are_the_same(kind, ids):
    frame, convert = rows()[0], COLUMNS[kind]
    wanted, labels, names, groups, held = of_lists(ids, kind == "categories")
    given = {"ids": convert(names), "groups": convert(groups)}
    model = NeighborRegressor(**QUICK).fit(frame, convert(labels), **given, validation=held)
    assert model.bank_.ids.tolist() == wanted.bank_.ids.tolist()
    assert model.bank_.groups.tolist() == wanted.bank_.groups.tolist()
    np.testing.assert_array_equal(model.bank_.labels, wanted.bank_.labels)
    np.testing.assert_array_equal(model.predict(frame, **given), wanted.predict(frame, ids=names, groups=groups))
    model.forget(convert(names[:3]))
    assert not set(names[:3]) & {*model.bank_.ids.tolist(), *model.calibration_.ids.tolist()}
    again = {"ids": convert(names[:3]), "groups": convert(groups[:3])}
    model.add(frame[:3], convert(list(labels[:3])), **again)
    assert model.bank_.ids.tolist()[-3:] == names[:3]


@pytest.mark.slow
@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("labels", [["cheap", "dear"], [3, 7], [False, True]])
def test_classes_of_any_library_are_the_same(kind, labels):
    frame, (wanted, classes) = rows()[0], of_classes(tuple(labels))
    model = NeighborClassifier(**QUICK).fit(frame, COLUMNS[kind](classes))
    assert model.classes_.tolist() == wanted.classes_.tolist() == labels
    np.testing.assert_array_equal(model.predict_proba(frame), wanted.predict_proba(frame))
    assert model.predict(frame).tolist() == wanted.predict(frame).tolist()


SERIES = {
    "pandas": lambda texts: pd.Series(texts, name="review"),
    "polars": lambda texts: pl.Series("review", texts),
    "frame": lambda texts: pd.DataFrame({"review": texts}),
}
UNNAMED = {
    "pandas": pd.Series,
    "arrow": pa.array,
    "chunked": lambda texts: pa.chunked_array([texts]),
}


@pytest.mark.parametrize(("makers", "name"), [(SERIES, "review"), (UNNAMED, "x0")])
def test_a_series_of_texts_is_a_table_of_one_column(makers, name):
    rng = np.random.default_rng(0)
    words = np.array(["good", "bad", "large", "small", "near", "far", "old", "new", "red", "blue"])
    texts = [" ".join(words[rng.integers(0, 10, 6)]) for _ in range(ROWS)]
    stars = [float(text.count("good") - text.count("bad")) for text in texts]
    models = [NeighborRegressor(**QUICK).fit(make(texts), stars) for make in makers.values()]
    for model, make in zip(models, makers.values(), strict=True):
        assert model.kinds_ == {name: "text"}
        assert model.feature_names_in_.tolist() == [name]
        np.testing.assert_array_equal(model.predict(make(texts[:5])), models[0].predict(make(texts[:5])))
        assert model.explain(make(texts[:2]), 1)[0].neighbors[0].row[name] in texts


NUMBERS = np.random.default_rng(3).integers(-2, 3, (ROWS, 3)).astype(float)


class Dataset:
    """What a Dataset of Hugging Face has."""

    __module__ = "datasets.arrow_dataset"

    def __init__(self, values):
        self.values = values

    def with_format(self, form):
        assert form is None
        return self

    def to_pandas(self):
        return pd.DataFrame(self.values, columns=["a", "b", "c"])


MATRICES = {
    "numpy": np.asarray,
    "float32": np.float32,
    "list": lambda values: values.tolist(),
    "tensor": torch.tensor,
    "csr": scipy.sparse.csr_matrix,
    "csc array": scipy.sparse.csc_array,
    "coo": scipy.sparse.coo_array,
    "lil": scipy.sparse.lil_matrix,
    "pandas": lambda values: pd.DataFrame(values, columns=["a", "b", "c"]),
    "polars": lambda values: pl.DataFrame(values, schema=["a", "b", "c"]),
    "arrow": lambda values: pa.table(dict(zip("abc", values.T, strict=True))),
    "dataset": Dataset,
}
TARGETS = {
    "numpy": np.asarray,
    "pandas": pd.Series,
    "polars": pl.Series,
    "arrow": pa.array,
    "tensor": torch.tensor,
    "trained": lambda values: torch.tensor(values, requires_grad=True),
}


@functools.cache
def of_numbers():
    return NeighborRegressor(**PLAIN).fit(NUMBERS, NUMBERS @ [1.0, -2.0, 0.5])


@pytest.mark.parametrize(
    ("matrix", "target"), [*((name, "numpy") for name in MATRICES), *(("csr", t) for t in TARGETS)]
)
def test_numbers_of_any_container_are_the_same_numbers(matrix, target):
    convert, wanted = MATRICES[matrix], of_numbers()
    labels = NUMBERS @ [1.0, -2.0, 0.5]
    model = NeighborRegressor(**PLAIN).fit(convert(NUMBERS), TARGETS[target](labels))
    np.testing.assert_array_equal(model.predict(convert(NUMBERS[:9])), wanted.predict(NUMBERS[:9]))
    named = ["a", "b", "c"] if matrix in ("pandas", "polars", "arrow", "dataset") else None
    assert getattr(model, "feature_names_in_", None) is None or model.feature_names_in_.tolist() == named
    assert (named is None) == (not hasattr(model, "feature_names_in_"))


def test_a_sparse_matrix_without_room_for_its_zeros_and_a_dataset_of_splits_are_refused():
    wide = scipy.sparse.csr_matrix((1_000_000, 10_000_000))
    with pytest.raises(
        ValueError, match=r"^X: expected a sparse matrix that fits .*, got 1000000 x 10000000; make fewer"
    ):
        of_numbers().predict(wide)
    splits = type("DatasetDict", (dict,), {"__module__": "datasets.dataset_dict"})()
    with pytest.raises(ValueError, match=r"^X: expected a Dataset with its rows, got a DatasetDict; give one split$"):
        of_numbers().predict(splits)


def test_rows_that_are_not_in_memory_are_refused():
    frame, price = rows()
    with pytest.raises(ValueError, match=r"^X: expected rows in memory, got a LazyFrame; call \.collect\(\)"):
        NeighborRegressor(**QUICK).fit(pl.from_pandas(frame).lazy(), price)


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_durations_are_numbers_and_stay_so_on_disk(kind, tmp_path):
    frame, price = rows()
    model = NeighborRegressor(**QUICK).fit(TABLES[kind](frame[["walk", "size"]]), price)
    assert model.kinds_["walk"] == "number"
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(
        load_model(tmp_path / "m").predict(frame[["walk", "size"]]), model.predict(frame[["walk", "size"]])
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["polars", "arrow"])
def test_jobs_take_tables_of_any_library(kind, tmp_path):
    frame, price = rows()
    whole = frame.assign(price=price, house=[f"h{i}" for i in range(ROWS)])
    out = tmp_path / "m"
    outcome = fit_table(TableJob(TABLES[kind](whole), "price", id="house", parameters=QUICK), out)
    assert outcome.record.rows_used == ROWS
    wanted = predict_table(out, whole)
    found = predict_table(out, TABLES[kind](whole))
    assert (found.rows, found.columns) == (wanted.rows, wanted.columns)


def test_explanations_read_well_in_a_terminal_and_in_a_notebook():
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"a": random.normal(size=60), "b": random.normal(size=60)})
    names = [f"<b>row {place}</b>" for place in range(60)]
    model = NeighborRegressor(**PLAIN).fit(frame, random.normal(size=60), ids=names)
    shown = model.explain(frame[:3])
    assert repr(shown) == "\n".join(map(str, shown))
    assert len(repr(model.explain(frame))) < 3000
    assert repr(model.explain(frame)).endswith("... and 50 more")
    page = shown._repr_html_()
    assert page.count("<table>") == 3
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
    assert shown[0].usual == pytest.approx(float(model.bank_.labels.mean()))
    assert shown[0].query == frame.iloc[0].to_dict()
    assert sum(step for _, step in shown[0].steps()) == pytest.approx(shown[0].total)
    assert repr(model.explain(frame[:0].reindex([0]).fillna(0.0))).count("\n") == 0


@pytest.mark.parametrize("written", [dict, json.dumps, str], ids=["objects", "JSON", "Python"])
def test_objects_in_cells_are_columns_of_their_parts_as_in_a_file(written, tmp_path):
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"size": draw.normal(size=ROWS)})
    price = 2 * frame["size"] + draw.normal(size=ROWS)
    parts = [{"color": "red" if place % 2 else "blue", "w": place} for place in range(ROWS)]
    whole = frame.assign(item=[written(each) for each in parts])
    flat = frame.assign(**{"item.color": [each["color"] for each in parts], "item.w": [each["w"] for each in parts]})
    model = NeighborRegressor(**PLAIN).fit(whole, price)
    assert model.kinds_ == {"size": "number", "item.color": "category", "item.w": "number"}
    expected = NeighborRegressor(**PLAIN).fit(flat, price).predict(flat[:5])
    np.testing.assert_array_equal(model.predict(whole[:5]), expected)
    np.testing.assert_allclose(model.predict(whole.iloc[3]), expected[3:4])
    without = whole[:1].assign(item=[written({"color": "red"})])
    assert np.isfinite(model.predict(without)).all()
    kept = NeighborRegressor(columns={"item": "text"}, **PLAIN).fit(whole.astype({"item": str}), price)
    assert kept.kinds_["item"] == "text"
    fit_table(TableJob(whole.assign(price=price), "price", parameters=PLAIN), tmp_path / "m")
    assert set(load_model(tmp_path / "m").kinds_) == set(flat.columns)
