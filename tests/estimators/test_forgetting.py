"""What a model holds of single rows goes with them; a changed bank still predicts; gaps stay gaps."""

import copy
import json
import struct

import numpy as np
import pandas as pd
import pytest
import torch

from vicinal.core.folders import CHANGES
from vicinal.encoders import CategoryEncoder, NumberEncoder, VectorEncoder
from vicinal.estimators import (
    EmbeddingLearner,
    ModelFolder,
    NeighborClassifier,
    NeighborRegressor,
    load_model,
)
from vicinal.estimators.fitted import FittedModel
from vicinal.estimators.forgetting import classes_without, range_without
from vicinal.estimators.target_transform import TargetTransform

SMALL = {"max_epochs": 1, "members": 2, "hidden": (8, 4), "random_state": 0}
NUMBER, LABEL, TOWN, TAG, CLASS = 123456.78125, 98765.4375, "PLANTED-TOWN", "PLANTED-TAG", "PLANTED-CLASS"


def planted(rows=60, seed=0, tags=False):
    """A table whose row 3 alone has a town, a tag (the kernel reads none), a number and a label of its own."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=rows),
            "town": rng.choice(["york", "bath", "leeds"], rows).astype(object),
            "tags": [list(rng.choice(["a", "b", "c"], 2)) for _ in range(rows)],
        }
    )
    labels = 5 + frame["size"].to_numpy() + rng.normal(size=rows) / 5
    frame.at[3, "size"], frame.at[3, "town"], frame.at[3, "tags"] = NUMBER, TOWN, [TAG, "b"]
    labels[3] = LABEL
    return frame if tags else frame.drop(columns="tags"), labels, [f"r{i:03d}" for i in range(rows)]


def contents(place):
    """All bytes of a folder, tables also as text."""
    files = [path for path in sorted(place.rglob("*")) if path.is_file()]
    tables = [pd.read_parquet(path).to_csv().encode() for path in files if path.suffix == ".parquet"]
    return b"".join([path.read_bytes() for path in files] + tables)


def signs(*values):
    """How values are found in files: texts, and numbers in decimals, as float64 and as float32."""
    found = [value.encode() for value in values if isinstance(value, str)]
    numbers = [value for value in values if not isinstance(value, str)]
    return found + [sign for x in numbers for sign in (str(x).encode(), struct.pack("<d", x), struct.pack("<f", x))]


CASES = {
    "kernel": (NeighborRegressor, {"metric": "kernel"}),
    "log": (NeighborRegressor, {"metric": "kernel", "target_transform": "log"}),
    "rank": (NeighborRegressor, {"metric": "kernel", "target_transform": "rank"}),
    "attention": (NeighborRegressor, {"metric": "network", "readout": "attention", **SMALL}),
    "dense": (NeighborRegressor, {"metric": "network", "head": "dense", **SMALL}),
    "held out": (NeighborRegressor, {"metric": "network", "readout": "attention", **SMALL}),
    "several": (NeighborRegressor, {"metric": "kernel"}),
    "classes": (NeighborClassifier, {"metric": "network", **SMALL}),
    "sets of classes": (NeighborClassifier, {"metric": "network", **SMALL}),
    "learner": (EmbeddingLearner, {"unseen": False, "max_epochs": 1, "random_state": 0}),
}


def fitted(case):
    kind, settings = CASES[case]
    tags = settings.get("metric") != "kernel"
    frame, labels, ids = planted(tags=tags)
    names = np.where(labels > 5, "high", "low").astype(object)
    names[3] = CLASS
    y = labels if kind is NeighborRegressor else names
    if case == "several":
        y = pd.DataFrame({"first": labels, "second": -labels})
    if case == "sets of classes":
        y = [[name, "all"] for name in names]
    held = [3, 5, 8, 13, 21, 34, 40, 50] if case == "held out" else [2, 5, 8, 13, 21, 34, 40, 50]
    known = {"validation": held} if settings.get("metric") == "network" else {}
    return kind(columns={"tags": "set"} if tags else None, **settings).fit(frame, y, ids=ids, **known), frame


@pytest.mark.sweep(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
def test_no_file_holds_what_only_a_forgotten_row_had(tmp_path, case):
    model, frame = fitted(case)
    model.save(tmp_path / "m")
    label = CLASS if case in ("classes", "sets of classes", "learner") else LABEL
    planted_signs, tags = signs(TOWN, TAG, NUMBER, label), "tags" in frame and case != "held out"
    before = contents(tmp_path / "m")
    assert all(sign in before for sign in signs(TOWN, *[TAG] * tags))
    ModelFolder(tmp_path / "m").forget(["r003"])
    after = contents(tmp_path / "m")
    assert [sign for sign in planted_signs if sign in after] == []
    assert len(load_model(tmp_path / "m").embed(frame)) == len(frame)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [case for case in CASES if case != "learner"])
def test_letting_go_of_values_moves_no_prediction_of_other_rows(case):
    """Beyond that the row is no neighbor any more."""
    model, frame = fitted(case)
    without = copy.deepcopy(model)
    for bank in (without.bank_, without.calibration_):
        if bank.has(np.array(["r003"], dtype=object))[0]:
            bank.remove(np.array(["r003"], dtype=object))
    model.forget(["r003"])
    others = frame.drop(index=3)
    if case in ("classes", "sets of classes"):
        said, expected = model.predict_proba(others), without.predict_proba(others)
    else:
        said, expected = model.predict(others), without.predict(others)
    if case == "log":  # whose predictions end near the largest label that is left
        expected = np.minimum(expected, said.max())
    np.testing.assert_allclose(said, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_a_value_stays_as_long_as_a_row_has_it():
    frame, labels, ids = planted()
    for at in (3, 7):
        frame.at[at, "town"], frame.at[at, "size"], labels[at] = TOWN, NUMBER, LABEL
    model = NeighborRegressor(metric="kernel").fit(frame, labels, ids=ids)
    ends = model.label_range_
    model.forget(["r003"])
    assert model.label_range_ == ends
    assert any(TOWN in levels for part in model.table_encoder.encoders for levels in getattr(part, "levels", []))
    model.forget(["r007"])
    assert model.label_range_[1] == max(np.delete(labels, [3, 7]))
    assert not any(TOWN in levels for part in model.table_encoder.encoders for levels in getattr(part, "levels", []))


def test_a_level_that_nobody_has_keeps_its_slot_and_is_new_again():
    frame = pd.DataFrame({"town": ["bath", "rome", "bath", "york"]})
    encoder = CategoryEncoder("town").fit(frame)
    vectors = encoder(encoder.prepare(frame).select(torch.arange(4)))
    encoder.forget(frame[1:2], lambda column: frame[column].drop(index=1))
    np.testing.assert_array_equal(
        encoder(encoder.prepare(frame).select(torch.arange(4)))[[0, 2, 3]], vectors[[0, 2, 3]]
    )
    assert encoder.unseen(frame) == {"town": ["rome"]}


@pytest.mark.parametrize(
    ("gone", "left", "ends"),
    [
        ([9.0], [1.0, 5.0], (1.0, 5.0)),
        ([9.0], [1.0, 9.0], (1.0, 9.0)),
        ([4.0], [1.0, 9.0], (1.0, 9.0)),
        ([1.0, 9.0], [3.0, 50.0], (3.0, 9.0)),
        ([9.0], [np.nan, np.nan], (5.0, 5.0)),
        ([np.nan], [1.0, 9.0], (1.0, 9.0)),
    ],
)
def test_ends_of_numbers_are_those_of_the_rows_that_are_left(gone, left, ends):
    encoder = NumberEncoder("x").fit(pd.DataFrame({"x": [1.0, 9.0]}))
    encoder.forget(pd.DataFrame({"x": gone}), lambda _: pd.Series(left))
    assert (encoder.low[0], encoder.high[0]) == ends


def test_ends_of_vectors_too_where_their_cells_are_known():
    frame = pd.DataFrame({"v": [[1.0, 9.0], [3.0, 5.0], [2.0, 6.0]]})
    encoder = VectorEncoder("v").fit(frame)
    encoder.forget(frame[:1], lambda column: frame[column][1:])
    assert (encoder.low, encoder.high) == ([2.0, 5.0], [3.0, 6.0])
    encoder.forget(pd.DataFrame({"v": [None]}), lambda column: frame[column][2:])
    assert (encoder.low, encoder.high) == ([2.0, 5.0], [3.0, 6.0])


def test_texts_of_several_numbers_are_let_go_of_by_an_opened_model_too(tmp_path):
    rng = np.random.default_rng(0)
    sides = rng.integers(10, 40, size=(40, 2))
    sides[3] = 90, 80
    frame = pd.DataFrame({"box": [f"{a} x {b} cm" for a, b in sides], "age": rng.normal(size=40)})
    model = NeighborRegressor(metric="kernel").fit(frame, sides.sum(axis=1), ids=range(40))
    model.save(tmp_path / "model")
    for one in (model, load_model(tmp_path / "model")):
        one.forget([3])
        [box] = [part for part in one.table_encoder.encoders if "box" in part.columns]
        assert max(box.high) <= sides[np.arange(40) != 3].max()
        assert len(one.search(pd.DataFrame({"age": [1.0]}), 2)[0]) == 2, "a query may lack them"


def test_formulas_of_what_is_left():
    assert classes_without(["a", "forgotten", "c"], {"c"}, {0}, fitted=3) == ["a", "forgotten", "forgotten 2"]
    assert classes_without([True, False], {False}, {0}, fitted=2) == [True, False]
    assert classes_without(["a", "b", "new"], {"new"}, {0, 1}, fitted=2) == ["a", "b"]
    low, high = range_without(np.array([0.0]), np.array([9.0]), np.array([[0.0], [9.0]]), np.array([[4.0], [4.0]]))
    assert (low[0], high[0]) == (4.0, 8.0)
    plain = TargetTransform()
    assert plain.without(np.array([[1.0]]), np.array([[2.0]])) == plain


# A changed bank predicts.


@pytest.fixture
def overflows(monkeypatch):
    """A bank with the row "far", or the label 77, cannot be predicted with, as if distances were beyond floats."""
    usual = FittedModel.answer

    def answer(self, *given):
        if "far" in self.bank.ids or (self.bank.labels == 77).any():
            raise ValueError("predictions: expected finite values, got nan")
        return usual(self, *given)

    monkeypatch.setattr(FittedModel, "answer", answer)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("transform", ["none", "log"])
@pytest.mark.parametrize("door", ["model", "folder"])
def test_rows_that_stop_predictions_are_refused_and_nothing_changes(tmp_path, overflows, door, transform):
    frame, labels, ids = planted()
    model = NeighborRegressor(metric="kernel", target_transform=transform)
    model.fit(frame, labels, ids=ids).save(tmp_path / "m")
    there = ModelFolder(tmp_path / "m") if door == "folder" else model
    expected = model.predict(frame)
    message = r"^ids: expected rows with which others can be predicted, got ('near', 'far'|'r004'),"
    with pytest.raises(ValueError, match=message):
        there.add(frame[:2], [1e6, 2.0], ids=["near", "far"])
    with pytest.raises(ValueError, match=message):
        there.relabel(["r004"], [77.0])
    with pytest.raises(ValueError, match="expected"):
        there.relabel(["r004"], ["no number"])
    now = there.model if door == "folder" else model
    np.testing.assert_array_equal(now.predict(frame), expected)
    assert now.bank_.ids.tolist() == ids
    assert now.target_transform_ == model.target_transform_
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict(frame), expected)
    if door == "folder":
        assert not (tmp_path / "m" / CHANGES).exists() or (tmp_path / "m" / CHANGES).stat().st_size == 0
        there.add(frame[:1], [3.0], ids=["near"])
        assert "near" in load_model(tmp_path / "m").bank_.ids


# Gaps.

GAPS = [None, pd.NA, "", *(pytest.param(gap, marks=pytest.mark.slow) for gap in (np.nan, pd.NaT))]


@pytest.mark.sweep(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("gap", GAPS, ids=repr)
def test_a_gap_stays_a_gap_through_add_forget_and_save(tmp_path, gap):
    frame, labels, ids = planted(tags=True)
    frame["note"] = [f"a note on {town} {i}" for i, town in enumerate(frame["town"])]
    for column in ("town", "size", "note"):
        frame[column] = frame[column].astype(object)
    for column, at in (("town", 5), ("size", 6), ("note", 7), ("tags", 8)):
        frame.at[at, column] = None if column == "size" and isinstance(gap, str) else gap
    settings = {"columns": {"tags": "set", "note": "text", "town": "category"}, "metric": "network", **SMALL}
    NeighborRegressor(**settings).fit(frame, labels, ids=ids).save(tmp_path / "m")
    folder = ModelFolder(tmp_path / "m")
    queries = planted(9, 1, tags=True)[0].assign(note="a note on york")
    for turn in range(2):
        added = frame[5:9].assign(tags=[["a", None], ["b"], ["c"], gap])
        folder.add(added, [5.0] * 4, ids=[f"n{turn}{i}" for i in range(4)])
        folder.compact()
        folder.forget([f"r{turn + 20:03d}"])
    model = load_model(tmp_path / "m")
    rows = model.bank_.rows.set_axis(model.bank_.ids)
    for names, column in ((["r005", "n00", "n10"], "town"), (["r006", "n01"], "size"), (["r007", "n12"], "note")):
        assert rows.loc[names, column].isna().all(), column
    assert rows.loc[["r008", "n03", "n13"], "tags"].isna().all()
    assert json.loads(rows.at["n10", "tags"]) == ["a", None]
    np.testing.assert_array_equal(model.predict(queries), folder.model.predict(queries))
    again = model.predict(model.bank_.rows.assign(tags=[["a"]] * len(rows)))
    assert np.isfinite(again).all()


# The row itself is no neighbor.


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("readout", ["attention", "rows"])
@pytest.mark.parametrize(("metric", "index"), [("network", None), ("network", "exact"), ("kernel", None)])
def test_neither_a_row_nor_its_group_is_listed_among_its_own_neighbors(readout, metric, index):
    frame, labels, ids = planted(tags=metric == "network")
    groups = [f"g{i // 3}" for i in range(len(frame))]
    settings = {"readout": readout, "index": index, **SMALL} if metric == "network" else {}
    model = NeighborRegressor(columns={"tags": "set"} if metric == "network" else None, metric=metric, **settings)
    model.fit(frame, labels, ids=ids, groups=groups)
    told = model.explain(frame[:6], k=60, ids=ids[:6], groups=groups[:6])
    for name, group, explanation in zip(ids, groups, told, strict=False):
        assert explanation.neighbors
        assert all(n.weight != 0 for n in explanation.neighbors)
        own = {other for other, its in zip(ids, groups, strict=True) if its == group} | {name}
        assert not own & {n.id for n in explanation.neighbors}


def test_a_class_of_rows_that_stop_predictions_stays_unknown(monkeypatch):
    x = np.linspace(0, 6, 40)[:, None]
    model = NeighborClassifier(metric="kernel").fit(x, np.where(x[:, 0] > 3, "high", "low"))
    expected = model.predict_proba(x)
    with monkeypatch.context() as patch:
        patch.setattr(FittedModel, "answer", lambda self, *given: torch.full((1, len(self.codec.classes)), torch.nan))
        with pytest.raises(ValueError, match="with which others can be predicted"):
            model.add([[9.0]], ["far"], new_classes=True)
    assert model.classes_.tolist() == ["high", "low"]
    np.testing.assert_array_equal(model.predict_proba(x), expected)
