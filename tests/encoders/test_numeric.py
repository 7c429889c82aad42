"""Numbers: standardized, flagged, refused."""

import datetime
import decimal
import json

import numpy as np
import pandas as pd
import pytest
import torch

import references.encoders as reference
from vicinal.encoders import NumberEncoder
from vicinal.encoders.kinds import ColumnKind, infer_kind
from vicinal.encoders.numeric import to_numbers


def table(n=30, seed=0):
    g = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": g.normal(5, 2, n), "b": g.integers(0, 9, n), "c": g.normal(size=n)})
    frame.loc[[3, 7], "c"] = np.nan
    return frame


def test_equals_reference():
    frame = table()
    encoder = NumberEncoder(["a", "b", "c"]).fit(frame)
    values = encoder.prepare(frame).values
    want = reference.standardized(frame.to_numpy(dtype=float))
    torch.testing.assert_close(values[:, :3], torch.from_numpy(want))
    assert values.dtype == torch.float64
    assert encoder.flagged == ["c"]
    assert values[:, 3].tolist() == frame["c"].isna().astype(float).tolist()


def test_forward_keeps_the_dtype_of_its_input():
    encoder = NumberEncoder(["a", "b", "c"]).fit(table())
    batch = encoder.prepare(table()).select(torch.tensor([1, 2]))
    assert encoder(batch).dtype == torch.float64
    assert encoder(batch.float()).dtype == torch.float32


def test_missing_where_training_had_none_is_the_mean_without_flag():
    encoder = NumberEncoder("a").fit(table())
    values = encoder.prepare(pd.DataFrame({"a": [None, 5.0]})).values
    assert values.shape == (2, 1)
    assert values[0, 0] == 0


def test_a_constant_column_stays_zero_for_any_later_value():
    encoder = NumberEncoder("x").fit(pd.DataFrame({"x": [0.1] * 7}))
    assert encoder.prepare(pd.DataFrame({"x": [0.1, 9e9]})).values.tolist() == [[0.0], [0.0]]


def test_huge_and_offset_numbers_are_standardized():
    for values in ([1e300, -1e300, 5e299], [1e-290, 2e-290, 7e-290], [1e9 + 1, 1e9 + 2, 1e9 + 3]):
        found = NumberEncoder("x").fit(frame := pd.DataFrame({"x": values})).prepare(frame).values
        assert found.isfinite().all()
        torch.testing.assert_close(found.std(correction=0), torch.tensor(1.0, dtype=torch.float64))


@pytest.mark.parametrize(
    "cells",
    [
        pd.Series([1, None, 3], dtype="Int64"),
        pd.Series(["1", "", " 3 "]),
        pd.Series([1, "n/a", "3"], dtype=object),
        pd.Series([decimal.Decimal(1), None, np.float32(3)], dtype=object),
        pd.Series(pd.to_datetime(["1970-01-02", None, "1970-01-04"])),
        pd.Series(["1970-01-02", "", "1970-01-04 00:00:00"]),
        pd.Series([datetime.date(1970, 1, 2), None, pd.Timestamp("1970-01-04 02:00+02:00")], dtype=object),
    ],
)
def test_reads_numbers_however_stored(cells):
    encoder = NumberEncoder("x").fit(pd.DataFrame({"x": [1.0, None, 3.0]}))
    assert encoder.prepare(pd.DataFrame({"x": cells})).values.tolist() == [[-1, 0], [0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        ([1.0, np.inf], r"^x: expected a finite number in row 'r1', got inf; correct it"),
        ([1.0, "abc"], r"^x: expected a number in row 'r1', got 'abc'; leave the cell empty"),
        ([1.0, [2]], r"^x: expected a number in row 'r1', got \[2\]"),
        (["1970-01-02", "1970-02-30"], r"^x: expected a number in row 'r1', got '1970-02-30'"),
        ([1.0, "-inf"], r"^x: expected a finite number in row 'r1', got -inf"),
        ([1.0, 2j], r"^x: expected a number in row"),
    ],
)
def test_bad_cell_is_refused_by_row(cells, sentence):
    encoder = NumberEncoder("x").fit(pd.DataFrame({"x": [1.0, 2.0]}))
    with pytest.raises(ValueError, match=sentence):
        encoder.prepare(pd.DataFrame({"x": cells}, index=["r0", "r1"]))


def test_numbers_too_close_to_tell_apart_are_zero():
    found = NumberEncoder("x").fit(frame := pd.DataFrame({"x": [1e-320, 0.0, 2e-320]})).prepare(frame).values
    assert found.tolist() == [[0.0]] * 3


def test_no_rows_of_any_storage():
    encoder = NumberEncoder("x").fit(pd.DataFrame({"x": [1.0, None]}))
    for dtype in (object, float, "Int64", "datetime64[ns]", str):
        assert encoder.prepare(pd.DataFrame({"x": pd.Series([], dtype=dtype)})).values.shape == (0, 2)


@pytest.mark.parametrize("large", [10**400, -(10**400)])
def test_a_whole_number_too_large_for_a_float_is_refused_as_infinite(large):
    with pytest.raises(ValueError, match=r"^a: expected a finite number in row 1, got -?inf; correct it"):
        NumberEncoder("a").fit(pd.DataFrame({"a": pd.Series([1, large, 3], dtype=object)}))


def test_all_missing_is_refused():
    with pytest.raises(ValueError, match=r"^b: expected at least one number, got 2 rows all missing; leave"):
        NumberEncoder(["a", "b"]).fit(pd.DataFrame({"a": [1, 2], "b": [None, None]}))


def test_unfitted_is_refused():
    with pytest.raises(ValueError, match="call fit first"):
        NumberEncoder("a").prepare(table())


def test_restores_exactly_from_json():
    encoder = NumberEncoder(["a", "b", "c"]).fit(table())
    again = NumberEncoder.from_config(json.loads(json.dumps(encoder.config())))
    assert torch.equal(again.prepare(table(seed=1)).values, encoder.prepare(table(seed=1)).values)
    assert again.dim == encoder.dim == 4


def test_durations_and_times_of_day_are_seconds():
    day, half = datetime.timedelta(days=1), datetime.timedelta(milliseconds=500)
    for column in (pd.Series([day, half, None]), pd.Series([day, half, None], dtype=object)):
        assert infer_kind(column, "walk") == ColumnKind("number", "durations, in seconds")
        np.testing.assert_array_equal(to_numbers(column, "walk"), [86400.0, 0.5, np.nan])
    times = pd.Series([datetime.time(7, 30), None, datetime.time(0, 0, 1, 500_000)], dtype=object)
    assert infer_kind(times, "opens").kind == "number"
    np.testing.assert_array_equal(to_numbers(times, "opens"), [27000.0, np.nan, 1.5])
    mixed = pd.Series([day, "a while"], dtype=object)
    with pytest.raises(ValueError, match=r"^walk: expected a number in row 1, got 'a while'"):
        to_numbers(mixed, "walk")
