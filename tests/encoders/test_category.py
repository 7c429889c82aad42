"""Categories: slots for the frequent, other, missing."""

import datetime
import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch

from vicinal.core.untrusted import LARGEST_SETTINGS
from vicinal.encoders import CategoryEncoder
from vicinal.encoders.category import level_of, to_levels


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
        (["Full-time", "other"], "full time", 0),
        (["Aa", "aa"], "AA", -1),
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


def test_further_categories_have_codes_and_no_slots():
    cells = ["a"] * 4 + ["b"] * 3 + ["d"] * 2 + ["c"] * 2 + ["once", None]
    encoder = fitted(cells, largest=1)
    assert (encoder.levels, encoder.further) == ([["a"]], [["b", "c", "d"]])
    assert encoder.slots == [["a", "other", "missing"]]
    frame = pd.DataFrame({"c": ["d", "a", None, "once", "new", "b "]})
    codes = encoder.codes(frame)
    assert codes.dtype == np.int64
    assert codes.tolist() == [[3], [0], [-1], [-2], [-2], [1]]
    again = CategoryEncoder.from_config(json.loads(json.dumps(encoder.config())))
    assert again.codes(frame).tolist() == codes.tolist()
    former = CategoryEncoder.saved.model_validate({k: v for k, v in encoder.config().items() if k != "further"})
    old = CategoryEncoder.from_config(former.model_dump())
    assert old.codes(frame).tolist() == [[-2], [0], [-1], [-2], [-2], [-2]]
    assert old.prepare(frame).values.tolist() == encoder.prepare(frame).values.tolist()


def test_codes_of_numbers_and_of_several_columns():
    frame = pd.DataFrame({"x": [7, 7, 7, 8, 8, 9], "y": ["1.0", "1.0", "2", "2", "2", None]})
    encoder = CategoryEncoder(["x", "y"], largest=1).fit(frame)
    assert encoder.codes(frame).tolist() == [[0, 1], [0, 1], [0, 0], [1, 0], [1, 0], [-2, -1]]
    assert encoder.codes(pd.DataFrame({"x": ["8"], "y": [1]})).tolist() == [[1, 1]]


def test_forgotten_names_leave_further_and_no_code_changes():
    frame = pd.DataFrame({"c": ["a"] * 4 + ["b"] * 3 + ["d"] * 2})
    encoder = CategoryEncoder("c", largest=1).fit(frame)
    encoder.forget(frame[4:7], lambda column: frame[column].drop(range(4, 7)))
    assert (encoder.levels, encoder.further) == ([["a"]], [[" forgotten 1", "d"]])
    assert encoder.codes(pd.DataFrame({"c": ["a", "b", "d"]})).tolist() == [[0], [-2], [2]]
    old = CategoryEncoder.from_config(encoder.config() | {"further": []})
    old.forget(frame[:4], lambda column: frame[column][4:])
    assert (old.levels, old.further) == ([[" forgotten 0"]], [])


def test_further_names_are_limited_in_number_and_in_bytes():
    frame = pd.DataFrame({"x": [f"{k:040d}" for k in range(20_000)] * 2})
    encoder = fitted(frame["x"])
    assert len(encoder.levels[0]) + len(encoder.further[0]) == 1 << 14
    assert len(json.dumps(encoder.config())) < LARGEST_SETTINGS // 32
    wide = fitted([f"{k:09000d}" for k in range(2000)] * 2, largest=1)
    assert len(json.dumps(wide.further)) <= 8 << 20
    assert 900 < len(wide.further[0]) < 1000


@pytest.mark.parametrize(
    ("further", "sentence"),
    [([["a"]], "repeated"), ([["b", "b"]], "repeated"), ([["b"], ["d"]], "further categories of 2 columns in place")],
)
def test_saved_further_categories_that_cannot_be_are_refused(further, sentence):
    config = fitted(["a", "b", "b", "a"], largest=1).config()
    with pytest.raises(ValueError, match=sentence):
        CategoryEncoder.saved.model_validate(config | {"further": further})


@pytest.mark.parametrize(
    "cells",
    [
        [1, True, "1", 1.0, 1.5, "1.50", None, np.nan, " ", -0.0],
        [1, 2, 2, 1],
        [0.1, np.nan, 1.0, 0.1],
        [True, False, True],
        [Decimal("1.0"), "1.0", Decimal("1.1"), Decimal("1.1")],
        pd.array([1, None, 2, 1], dtype="Int64"),
        pd.array([0.1, None, 0.1], dtype="Float32"),
        np.array([0.1, 2, 0.1], dtype=np.float32),
        pd.array(["x", None, "x "], dtype="string"),
        pd.Categorical(["x", None, "y", "x"]),
        [datetime.date(2020, 1, 2), "2020-01-02", pd.NaT],
        [datetime.datetime(2020, 1, 2, 1, tzinfo=datetime.UTC)] * 2
        + [datetime.datetime(2020, 1, 2, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))],
    ],
    ids=range(12),
)
def test_equal_cells_are_read_once_and_as_each_alone(cells):
    series = pd.Series(cells)
    alone = [to_levels(series[k : k + 1], "c")[0] for k in range(len(series))]
    assert to_levels(series, "c") == alone
    direct = [None if gone else level_of(cell) or None for cell, gone in zip(series, series.isna(), strict=True)]
    assert alone == direct
    encoder = fitted(series)
    one_by_one = [encoder.codes(pd.DataFrame({"c": series[k : k + 1]})).item() for k in range(len(series))]
    assert encoder.codes(pd.DataFrame({"c": series})).ravel().tolist() == one_by_one
