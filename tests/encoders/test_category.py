"""Categories: slots for the frequent, other, missing."""

import datetime
import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch

from vicinal.encoders import CategoryEncoder


def encode(encoder, cells):
    inputs = encoder.prepare(pd.DataFrame({"c": pd.Series(cells, dtype=object)}))
    return encoder(inputs.select(torch.arange(len(inputs)))).tolist()


def fitted(cells, **settings):
    return CategoryEncoder("c", **settings).fit(pd.DataFrame({"c": cells}))


def test_one_hot_by_frequency():
    encoder = fitted(["b", "a", "b", "c", "a", "b"])
    assert encoder.slots == [["b", "a", "c"]]
    assert encode(encoder, ["a", "b"]) == [[0, 1, 0], [1, 0, 0]]


def test_rare_unseen_and_missing_have_slots_where_trained():
    encoder = fitted(["a", "a", "b", "b", "c", None], largest=2)
    assert encoder.slots == [["a", "b", "other", "missing"]]
    assert encode(encoder, ["c", "never seen", np.nan]) == [[0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


def test_unseen_and_missing_are_zero_where_no_training_row_had_them():
    assert encode(fitted(["a", "b"]), ["new", None, " "]) == [[0, 0]] * 3


@pytest.mark.parametrize("cells", [[1, 2, 2], [1.0, 2.0, np.nan], ["1", "2", "2 "], pd.Categorical([1, 2, 2])])
def test_a_number_is_one_category_however_stored(cells):
    encoder = fitted(pd.Series([1, 2, 2]))
    found = encode(encoder, cells)
    assert found[:2] == [[0, 1], [1, 0]]


def test_booleans_and_several_columns():
    frame = pd.DataFrame({"x": [True, False, True], "y": ["p", "q", None]})
    encoder = CategoryEncoder(["x", "y"]).fit(frame)
    inputs = encoder.prepare(frame)
    assert encoder.dim == 5
    assert encoder(inputs.select(torch.tensor([2, 0]))).tolist() == [[1, 0, 0, 0, 1], [1, 0, 1, 0, 0]]


def test_most_frequent_128_by_default():
    encoder = fitted([f"v{k:03d}" for k in range(200)] * 2 + ["v199"])
    assert encoder.dim == 129
    assert encoder.slots[0][0] == "v199"


def test_restores_exactly_from_json():
    encoder = fitted(["a", "a", "b", None], largest=1)
    again = CategoryEncoder.from_config(json.loads(json.dumps(encoder.config())))
    assert encode(again, ["a", "b", None]) == encode(encoder, ["a", "b", None])


def test_bad_cells_are_refused():
    with pytest.raises(ValueError, match=r"^c: expected one category in row 1, got \['b'\]"):
        encode(fitted(["a", "b"]), ["a", ["b"]])
    with pytest.raises(ValueError, match=r"^c: expected at least one category, got 2 rows all missing"):
        fitted([None, ""])
    with pytest.raises(ValueError, match="call fit first"):
        encode(CategoryEncoder("c"), ["a"])
    with pytest.raises(ValueError, match=r"^largest: expected a whole number of at least 1"):
        CategoryEncoder("c", largest=0)


@pytest.mark.parametrize(
    ("levels", "cell", "place"),
    [
        (["1.0", "2.0"], 1.0, 0),
        (["1.0", "2.0"], Decimal("2"), 1),
        (["1", "2"], np.float32(2.0), 1),
        (["0.1", "2"], np.float32(0.1), 0),
        (["007", "12"], 7, 0),
        (["007", "7"], 7, 1),
        (["0", "1"], True, 1),
        (["1.1", "1.10"], "1.10", 1),
        (["1.10", "1.100"], 1.1, -1),
        (["1.1"], "1.10", -1),
        (["True", "False"], True, 0),
        (["2020-01-02"], datetime.date(2020, 1, 2), 0),
        (["2020-01-02"], pd.Timestamp("2020-01-02"), 0),
    ],
)
def test_a_category_is_one_however_it_is_stored_and_two_where_the_file_has_two(levels, cell, place):
    encoder = CategoryEncoder("k").fit(pd.DataFrame({"k": levels}))
    slots = encoder.prepare(pd.DataFrame({"k": pd.Series([cell], dtype=object)})).values
    expected = encoder.levels[0].index(levels[place]) if place >= 0 else -1
    assert slots.tolist() == [[expected]]


def test_cells_that_no_training_row_had_are_named():
    encoder = CategoryEncoder(["k", "m"]).fit(pd.DataFrame({"k": ["a", "b"], "m": ["x", "y"]}))
    frame = pd.DataFrame({"k": ["a", "c", None, "d"], "m": ["x", "x", "y", "y"]})
    assert encoder.unseen(frame) == {"k": ["c", "d"]}
    many = CategoryEncoder("k", largest=1).fit(pd.DataFrame({"k": ["a", "a", "b"]}))
    assert many.unseen(frame) == {}, "which of the rare ones were seen is not known"
