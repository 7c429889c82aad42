"""No error repeats more than 200 characters of a cell, a name or a setting, however long these are."""

import re

import numpy as np
import pandas as pd
import pytest

from references.tables import table
from vicinal.core import short
from vicinal.data import prepare_table, read_table
from vicinal.data.table import check_column
from vicinal.data.target import read_target
from vicinal.encoders import build_table_encoder, infer_kinds
from vicinal.estimators import NeighborClassifier, NeighborRegressor, save_model
from vicinal.workflows import predict_table

LONG = "y" * 3000
COUNT = 40


def numbers():
    return pd.DataFrame({"x": np.arange(COUNT) ** 1.5, "y": np.arange(COUNT) ** 0.5, "w": ["a", "b"] * 20})


def with_cell(column, cell):
    frame = numbers().astype({column: object})
    frame.loc[3, column] = cell
    return frame


def file_error(name, text):
    def read(folder):
        (folder / name).write_text(text)
        read_table(folder / name)

    return read


def table_error(frame, target="y", **options):
    return lambda folder: prepare_table(frame, target, **options)


def encoder_error(kind, cell, column="c", encoder=None, rows=3):
    def prepare(folder):
        good = {"vector": [1.0, 2.0], "number": 1.0}.get(kind, "a")
        frame = pd.DataFrame({column: [good] * rows}, dtype=object)
        made = build_table_encoder({column: kind}, encoders=encoder)
        if kind not in ("image", "audio"):
            made.fit(frame)
        frame.at[rows - 1, column] = cell
        made.prepare(frame, folder)

    return prepare


def fit_error(make=NeighborRegressor, x=None, y=None, settings=None, **given):
    def fit(folder):
        frame, price = table(COUNT)
        labels = price if y is None else y
        model = make(max_epochs=1, hidden=(4, 2), members=1)
        model.set_params(**(settings or {}))
        model.fit(frame if x is None else x, labels, **given)

    return fit


def fitted_error(work):
    def run(folder):
        frame, price = table(COUNT)
        ids = [LONG + str(i) for i in range(COUNT)]
        model = NeighborClassifier(max_epochs=1, hidden=(4, 2), members=1).fit(frame, price > 5, ids=ids)
        work(model, frame)

    return run


def predict_error(change, name="size"):
    def run(folder):
        frame, price = table(COUNT)
        frame = frame.rename(columns={"size": name})
        model = NeighborRegressor(max_epochs=1, hidden=(4, 2), members=1).fit(frame, price)
        save_model(model, folder / "m")
        predict_table(folder / "m", change(frame))

    return run


NAMED = numbers().rename(columns={"x": LONG})
CASES = {
    # data
    "two in a frame": table_error(pd.DataFrame(np.ones((12, 2)), columns=[LONG, LONG])),
    "ragged": file_error("d.csv", f"a,b\n1,2\n{LONG},{LONG},{LONG}\n"),
    "open quote": file_error("d.csv", f'a,b\n1,"{LONG}\n'),
    "no json": file_error("d.jsonl", f'{{"a": {LONG}}}\n'),
    "json text": file_error("d.jsonl", f'"{LONG}"\n'),
    "a huge whole number": file_error("d.jsonl", f'{{"a": {"9" * 6000}}}\n'),
    "a file": lambda folder: read_table(folder / LONG),
    "an ending": file_error(f"d.{LONG[:200]}", "a"),
    "target name": table_error(numbers(), LONG),
    "target among long names": table_error(numbers().rename(columns=lambda name: name + LONG)),
    "many long names": lambda folder: check_column("target", LONG, [LONG + str(i) for i in range(50)]),
    "target is id": table_error(NAMED, LONG, id=LONG),
    "target is all": table_error(NAMED[[LONG]], LONG),
    "used target": table_error(NAMED, LONG, use=[LONG]),
    "drop": table_error(numbers(), drop=[LONG]),
    "task": table_error(numbers(), task=LONG),
    "target cell": table_error(with_cell("y", LONG)),
    "target cell of bytes": table_error(with_cell("y", LONG.encode())),
    "target is constant": table_error(numbers().assign(y=LONG)),
    "target of dates": table_error(NAMED.assign(**{LONG: pd.Timestamp(0)}), LONG),
    "target without values": table_error(NAMED.assign(**{LONG: None}), LONG),
    "classes that do not repeat": table_error(numbers().assign(y=[LONG + str(i) for i in range(COUNT)])),
    "classes of a long name": lambda folder: read_target(pd.Series([f"{i} {LONG}" for i in range(40)], name=LONG)),
    "an id twice": table_error(numbers().assign(w=LONG), id="w"),
    "a missing id": table_error(NAMED.assign(**{LONG: None}), id=LONG),
    "groups": table_error(numbers().assign(w=LONG), group="w"),
    # encoders
    "number": encoder_error("number", LONG),
    "infinite": encoder_error("number", np.inf, LONG),
    "nested number": encoder_error("number", [LONG] * 100),
    "bytes as number": encoder_error("number", LONG.encode()),
    "category": encoder_error("category", [LONG]),
    "category of a long name": encoder_error("category", [1], LONG),
    "text": encoder_error("text", [LONG]),
    "text of a long name": encoder_error("text", [LONG], LONG),
    "vector": encoder_error("vector", LONG),
    "vector of texts": encoder_error("vector", [LONG, LONG]),
    "vector of a long name": encoder_error("vector", [1.0], LONG),
    "image": encoder_error("image", LONG, rows=1),
    "image of a long name": encoder_error("image", 4.5, LONG, rows=1),
    "image elsewhere": encoder_error("image", f"../{LONG}", rows=1),
    "image on the web": encoder_error("image", f"https://{LONG}", rows=1),
    "image of bytes": encoder_error("image", LONG.encode(), rows=1),
    "sound": encoder_error("audio", LONG, rows=1),
    "sound of a long name": encoder_error("audio", b"abc", LONG, rows=1),
    "encoder": encoder_error("text", "a", encoder={"c": LONG}),
    "hub": encoder_error("text", "a", encoder={"c": f"hub:{LONG}/../x"}),
    "folder": encoder_error("text", "a", encoder={"c": f"folder:{LONG}"}),
    "encoder of a long column": encoder_error("text", "a", LONG, encoder={LONG: "cnn"}),
    "kind": lambda folder: infer_kinds(numbers(), {"x": LONG}),
    "kind of a column that is not there": lambda folder: infer_kinds(NAMED, {LONG + "z": "text"}),
    "missing column": lambda folder: build_table_encoder({LONG: "number"}).fit(numbers()),
    "column twice": lambda folder: build_table_encoder({LONG: "number"}).fit(
        pd.DataFrame([[1, 2]], columns=[LONG, LONG])
    ),
    "all missing": lambda folder: build_table_encoder({LONG: "number"}).fit(pd.DataFrame({LONG: [None, None]})),
    # estimators
    "text for a number": fit_error(y=[LONG] * COUNT),
    "text in an array": fit_error(x=np.array([[LONG]] * COUNT)),
    "text in an array of objects": fit_error(x=np.array([[LONG]] * COUNT, dtype=object)),
    "all columns left out": fit_error(x=pd.DataFrame({f"{LONG}{i}": [LONG] * COUNT for i in range(50)})),
    "one class": fit_error(NeighborClassifier, y=[LONG] * COUNT),
    "ids": fit_error(ids=[LONG] * COUNT),
    "tune": fit_error(settings={"tune": LONG}),
    "head": fit_error(settings={"head": LONG}),
    "mask": fit_error(settings={"mask": LONG}),
    "simplex": fit_error(settings={"simplex": LONG}),
    "similarity": fit_error(settings={"similarity": LONG}),
    "index": fit_error(settings={"index": LONG}),
    "index of faiss": fit_error(settings={"index": f"faiss:{LONG}"}),
    "loss": fit_error(settings={"loss": LONG}),
    "loss in brackets": fit_error(settings={"loss": f"supcon({LONG}=1)"}),
    "loss with a long setting": fit_error(settings={"loss": f"supcon(temperature={LONG})"}),
    "matching loss": fit_error(settings={"loss": f"matching:{LONG}"}),
    "loss of lists": fit_error(settings={"loss": [LONG]}),
    "logger": fit_error(settings={"logger": LONG}),
    "precision": fit_error(settings={"precision": LONG}),
    "accelerator": fit_error(settings={"accelerator": LONG}),
    "devices": fit_error(settings={"devices": LONG}),
    "hidden": fit_error(settings={"hidden": LONG}),
    "dropout": fit_error(settings={"dropout": LONG}),
    "members": fit_error(settings={"members": LONG}),
    "max_epochs": fit_error(settings={"max_epochs": LONG}),
    "encoders": fit_error(settings={"encoders": {LONG: "ngrams"}}),
    "columns": fit_error(settings={"columns": {LONG: "text"}}),
    "forget": fitted_error(lambda model, frame: model.forget([LONG])),
    "a class that is new": fitted_error(lambda model, frame: model.add(frame, [LONG] * COUNT, ids=range(COUNT))),
    "an id that is there": fitted_error(lambda model, frame: model.add(frame, [True] * COUNT, ids=model.bank_.ids)),
    "a column that is missing": predict_error(lambda frame: frame.iloc[:, 1:], LONG),
    "a cell that is no number": predict_error(lambda frame: frame.assign(size=LONG)),
    "a cell in a long column": predict_error(lambda frame: frame.assign(**{LONG: "big"}), LONG),
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("case", CASES)
def test_no_error_repeats_a_long_value(case, tmp_path):
    with pytest.raises((ValueError, TypeError)) as caught:
        CASES[case](tmp_path)
    sentence = str(caught.value)
    longest = max(map(len, re.findall(r"y+|9+", sentence)), default=0)
    assert longest <= 200, f"{longest} characters of {len(sentence)}: {sentence[:300]}"
    assert len(sentence) < 1500


def test_short_values_are_repeated_as_they_are():
    for value in ("abc", 1.5, None, [1, 2], {"a": b"b"}, np.float32(0.5), np.arange(3)):
        plain = value.item() if isinstance(value, np.generic) else value
        assert short(value) == repr(plain)


@pytest.mark.parametrize("length", [20, 60, 200])
def test_no_value_is_shown_at_length(length):
    nest = []
    for _ in range(20_000):
        nest = [nest]
    cells = [LONG, LONG.encode(), 10**10_000, [LONG] * 1000, {LONG: LONG}, nest, np.ones((50, 50)), "\n" * 500]
    for cell in [*cells, {"a": {"b": {"c": cells}}}]:
        shown = short(cell, length)
        assert len(shown) <= length
        assert "..." in shown
        assert "\n" not in shown
    while nest:  # an interpreter that frees it by recursion would overflow its stack
        nest = nest.pop()
