"""Rows that equal rows of the fit are noticed where no ids are given, and chance is no such row."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.cli import run
from vicinal.core.identity import IdentityWarning
from vicinal.estimators import NeighborClassifier, NeighborRegressor, load_model

NOTICE = "ids: expected those of the rows, as {} predicted from their own labels, too"


def rows(count=90, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"size": rng.normal(size=count), "town": rng.choice(["york", "bath"], count)})
    return frame, rng.normal(size=count)


def told(model, method, frame, **given):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        getattr(model, method)(frame, **given)
    return [str(one.message) for one in said if issubclass(one.category, IdentityWarning)]


@pytest.fixture(scope="module", params=["kernel", "network", "rows", "exact", "faiss:HNSW16", "classes"])
def model(request):
    frame, labels = rows()
    kind, small = NeighborRegressor, {"max_epochs": 1, "members": 2, "hidden": (8, 4), "metric": "network"}
    if request.param == "classes":
        return NeighborClassifier(**small).fit(frame, np.where(labels > 0, "up", "down"))
    if request.param in ("network", "rows"):
        small["readout"] = {"network": "attention"}.get(request.param, request.param)
    if request.param in ("exact", "faiss:HNSW16"):
        small |= {"readout": "rows", "index": request.param}
    return kind(**({"metric": "kernel"} if request.param == "kernel" else small)).fit(frame, labels)


def test_each_door_notices_rows_of_the_fit_in_any_order_and_company(model):
    frame, _ = rows()
    bank = frame.loc[model.bank_.ids]
    mixed = pd.concat([rows(5, 7)[0], bank[:7][::-1], rows(5, 8)[0]])
    doors = ["predict", "explain"] + (["predict_proba"] if hasattr(model, "classes_") else ["predict_interval"])
    for door in doors:
        (sentence,) = told(model, door, mixed)
        assert sentence.startswith(NOTICE.format("7 of 17 rows equal rows that were fitted on, and are"))
        assert told(model, door, mixed, ids=range(len(mixed))) == []
        assert told(model, door, rows(40, 9)[0]) == []
    (one,) = told(model, "predict", bank[:1])
    assert "1 of 1 row equals a row that was fitted on, and is predicted from its own label, too" in one


def test_a_head_without_neighbors_has_none_of_its_own():
    frame, labels = rows()
    model = NeighborRegressor(metric="network", head="dense", max_epochs=1, members=1, hidden=(4,)).fit(frame, labels)
    assert told(model, "predict", frame) == []


@settings(max_examples=settings().max_examples // 3)
@given(levels=st.integers(2, 6), columns=st.integers(1, 3), seed=st.integers(0, 99))
def test_rows_that_are_equal_by_chance_are_not_called_those_of_the_fit(levels, columns, seed):
    rng = np.random.default_rng(seed)

    def draw(count):
        return pd.DataFrame({f"c{j}": rng.choice([f"v{i}" for i in range(levels)], count) for j in range(columns)})

    fitted = draw(120)
    fitted.iloc[:levels] = np.array([[f"v{i}"] * columns for i in range(levels)])
    alike = draw(60)
    copies = alike.merge(fitted.drop_duplicates(), how="inner")
    model = NeighborRegressor(metric="kernel", readout="dense").fit(fitted, rng.normal(size=120))
    count = model.bank_.equal_rows(model.query_rows(alike, range(60)).vectors)
    assert count in (0, len(copies))
    again = fitted.duplicated(keep=False).mean()
    if again > 0.9 and len(model.bank_) == 120:
        assert count == 0


def test_rows_that_never_differ_say_nothing():
    frame, labels = rows()
    flat = frame.assign(size=1.0, town="york").assign(other=np.arange(90) % 2)
    with pytest.warns(UserWarning, match="left out"):
        model = NeighborRegressor(metric="kernel", readout="dense").fit(flat, labels)
    assert told(model, "predict", flat[:10]) == []


# On the command line.


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    place = tmp_path_factory.mktemp("own")
    frame, labels = rows()
    table = frame.assign(y=labels, name=[f"r{i}" for i in range(len(frame))])
    table.to_csv(place / "t.csv", index=False)
    table[:20].to_csv(place / "asked.csv", index=False)
    for out, more in (("m", ["--drop", "name"]), ("named", ["--id", "name"])):
        options = [
            "--target",
            "y",
            "--metric",
            "kernel",
            "--readout",
            "dense",
            *more,
            "--quiet",
            "--out",
            str(place / out),
        ]
        assert run(["fit", str(place / "t.csv"), *options]) == 0
    return place


@pytest.mark.parametrize(
    "line", [["predict", "{m}", "{t}"], ["explain", "{m}", "--file", "{t}"], ["predict", "{m}", "{t}", "--json"]]
)
def test_commands_say_it_and_what_to_do(fitted, capsys, line):
    def said(folder, *more):
        assert run([*(part.format(m=fitted / folder, t=fitted / "asked.csv") for part in line), *more]) == 0
        return capsys.readouterr().err

    expected = "rows equal rows that were fitted on, and are predicted from their own labels, too; fit with --id COLUMN"
    fitted_on = pd.read_csv(fitted / "asked.csv")["size"].isin(load_model(fitted / "m").bank_.rows["size"])
    assert f"{fitted_on.sum()} of 20 {expected}" in said("m")
    assert "equal" not in said("m", "--include-own")
    assert "equal" not in said("named")
