"""Columns that give the target away are named, honest ones are not."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from sklearn import datasets

from vicinal.data import leaking_columns, prepare_table
from vicinal.data.leaks import concordance
from vicinal.encoders import infer_kinds

pytestmark = pytest.mark.sweep(4)

SEEDS = range(8)


def prices(seed, rows=120):
    rng = np.random.default_rng(seed)
    return np.exp(rng.normal(12, 0.6, rows)), rng


def found(frame, target, *, kinds=None, **settings):
    """What is found in a table: form by column."""
    kinds = kinds or {name: column.kind for name, column in infer_kinds(frame).items() if column.kind}
    return {leak.column: leak.form for leak in leaking_columns(frame, kinds, target, **settings)}


COPIES = {
    "itself": lambda y, rng: y,
    "rounded": lambda y, rng: np.round(y, -4),
    "in dollars": lambda y, rng: 1.09 * y + 3,
    "its logarithm": lambda y, rng: np.log(y),
    "its rank": lambda y, rng: y.argsort().argsort(),
    "falling": lambda y, rng: -y,
    "as text": lambda y, rng: [f"{value:.2f}" for value in y],
    "at daily rates": lambda y, rng: y * rng.normal(1, 0.02, len(y)),
    "in tenths": lambda y, rng: pd.qcut(y, 10, labels=False),
    "in five bins": lambda y, rng: pd.qcut(y, 5, labels=False),
    "with gaps": lambda y, rng: np.where(rng.uniform(size=len(y)) < 0.3, np.nan, y),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("copy", COPIES)
def test_copies_of_a_number_are_named(copy, seed):
    y, rng = prices(seed)
    frame = pd.DataFrame(
        {"copy": COPIES[copy](y, rng), "honest": y * rng.normal(1, 0.3, len(y)), "noise": rng.normal(size=120)}
    )
    assert found(frame, y, classes=False, kinds=dict.fromkeys(frame, "number")) == {"copy": "target"}


def test_a_class_of_one_row_at_an_end_is_no_leak():
    rows = np.arange(80.0)
    for few, forms in ((1, {}), (2, {}), (5, {"last": "target"})):
        classes = np.where(rows < 80 - few, "common", "rare")
        assert found(pd.DataFrame({"last": rows}), classes, classes=True, kinds={"last": "number"}) == forms


CLASS_COPIES = {
    "a name": lambda c, rng: np.array(["red", "green", "blue"])[c],
    "a code": lambda c, rng: np.array([7, 3, 99])[c],
    "several codes each": lambda c, rng: c + 3 * rng.integers(0, 2, len(c)),
    "a score": lambda c, rng: c + rng.uniform(0, 0.9, len(c)),
    "a sentence": lambda c, rng: np.array(
        ["it is one of the red ones", "it is a green one here", "of blue ones it is one"]
    )[c],
    "with a few wrong": lambda c, rng: np.where(np.arange(len(c)) == 5, (c + 1) % 3, c),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("copy", CLASS_COPIES)
def test_copies_of_a_class_are_named(copy, seed):
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 3, 240)
    frame = pd.DataFrame({"copy": CLASS_COPIES[copy](classes, rng), "honest": classes + rng.normal(0, 0.4, 240)})
    assert found(frame, np.array(["a", "b", "c"])[classes], classes=True) == {"copy": "target"}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("classes", [False, True])
def test_a_key_whose_rows_share_the_target_is_named(seed, classes):
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(60), rng.integers(2, 6, 60))
    y = rng.integers(0, 3, 60)[patient] if classes else rng.normal(size=60)[patient]
    frame = pd.DataFrame({"patient": [f"p{i:03d} of ward" for i in patient], "number": 1000 + patient * 7 % 61})
    assert found(frame, y, classes=classes) == {"patient": "group", "number": "group"}
    kinds = {"patient": "text", "number": "number"}
    leaks = leaking_columns(frame, kinds, y, classes=classes, groups=np.arange(len(frame)) // 2)
    assert leaks
    assert all("--group" not in leak.sentence for leak in leaks)
    assert found(frame, rng.permutation(y), classes=classes) == {}


def test_a_key_by_its_name():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"user_id": rng.integers(0, 40, 200), "age": rng.integers(0, 40, 200)})
    assert found(frame, rng.normal(size=200), classes=False) == {"user_id": "name"}
    assert found(frame, rng.normal(size=200), classes=False, groups=frame["user_id"] // 2) == {}


def test_another_name_of_the_groups():
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 30, 200)
    frame = pd.DataFrame({"ward": [f"ward {i * 7 % 31}" for i in groups], "town": [f"t{i // 3}" for i in groups]})
    assert found(frame, rng.normal(size=200), classes=False, groups=groups) == {"ward": "copy"}


@pytest.mark.slow
@pytest.mark.parametrize("rows", [20, 25, 40, 100, 400])
@pytest.mark.parametrize("classes", [False, True])
def test_noise_is_not_named(rows, classes):
    rng = np.random.default_rng(rows)
    columns = {}
    for i in range(150):
        columns[f"n{i}"] = rng.normal(size=rows)
        columns[f"w{i}"] = rng.integers(0, 2 + i % 9, rows)
        columns[f"t{i}"] = np.array(["a", "b", "c", "d", "e"])[rng.integers(0, 2 + i % 4, rows)]
    y = rng.integers(0, 2, rows) if classes else rng.normal(size=rows)
    assert found(pd.DataFrame(columns), y, classes=classes) == {}


TOYS = {
    "iris": (datasets.load_iris, None),
    "wine": (datasets.load_wine, None),
    "breast cancer": (datasets.load_breast_cancer, None),
    "digits": (datasets.load_digits, None),
    "diabetes": (datasets.load_diabetes, None),
    "linnerud": (datasets.load_linnerud, "Weight"),
    "petals": (datasets.load_iris, "petal length (cm)"),
}


def table_leaks(frame, target, **roles):
    table = prepare_table(frame, target, **roles)
    return found(table.frame, table.target, classes=table.task == "classification", groups=table.groups)


@pytest.mark.parametrize("toy", TOYS)
def test_toy_sets_have_nothing_to_name(toy):
    load, target = TOYS[toy]
    assert table_leaks(load(as_frame=True).frame, target or "target") == {}


@pytest.mark.sweep(4)
@pytest.mark.parametrize(
    ("file", "target", "roles"),
    [
        ("houses/houses.csv", "price", {}),
        ("houses/houses.csv", "price", {"group": "dup_group"}),
        ("text/book_prices.parquet", "price", {}),
        ("text/book_prices.parquet", "stars", {}),
        ("text/complex_lexical.parquet", "complexity", {}),
        ("text/emobank.parquet", "V", {}),
        ("text/sick2014.parquet", "score", {}),
        ("text/sick2014.parquet", "entailment", {}),
        ("text/stsb_en.parquet", "score", {}),
        ("text/vader_sentiment.parquet", "rating", {}),
        ("images/blood_cells.parquet", "n_rbc", {}),
        ("images/sign_digits.parquet", "digit", {}),
        ("audio/fsdd.parquet", "digit", {"drop": ["index"]}),
    ],
)
def test_real_sets_have_nothing_to_name(shared, file, target, roles):
    path = shared / "data" / file
    frame = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    assert table_leaks(frame, target, **roles) == {}


def test_a_leak_of_real_data_is_named(shared):
    houses = pd.read_csv(shared / "data" / "houses" / "houses.csv")
    houses["log_price"] = np.log(houses["price"])
    assert table_leaks(houses, "log_price") == {"price": "target"}


def test_sentences_say_what_to_do():
    y = np.arange(40.0)
    frame = pd.DataFrame({"the price": y, "user_id": np.arange(40) % 10})
    kinds = dict.fromkeys(frame, "number")
    first, second = leaking_columns(frame, kinds, y, classes=False)
    assert first.sentence == (
        "the price alone ranks the target almost perfectly (rank correlation 1.000): if it is made from the target, "
        'or known only after it, say --drop "the price"'
    )
    assert second.sentence.endswith("(a patient, a house), say --group user_id, else say --drop user_id")
    beside = dataclasses.replace(second, grouped=True)  # no other groups can be given, so none are advised
    assert beside.sentence.endswith("(a patient, a house), say --drop user_id")
    assert second.python.endswith("(a patient, a house), give it as groups, else leave it out")


def test_concordance_of_all_pairs():
    rng = np.random.default_rng(0)
    for _ in range(20):
        one, other = rng.integers(0, 4, 30), rng.integers(0, 6, 30)
        signs = np.sign(np.subtract.outer(one, one)) * np.sign(np.subtract.outer(other, other))
        assert concordance(one, other) == pytest.approx(signs.sum() / np.abs(signs).sum())


def test_fewer_rows_than_can_tell():
    y = np.arange(19.0)
    assert found(pd.DataFrame({"copy": y}), y, classes=False, kinds={"copy": "number"}) == {}
