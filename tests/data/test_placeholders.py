"""Numbers that stand for missing ones are read as missing where that is sure, asked about where it may be."""

import numpy as np
import pandas as pd
import pytest

from vicinal.data import TableForm
from vicinal.data.cell_reading import read_column
from vicinal.data.form import ColumnForm
from vicinal.data.placeholders import placeholders_of
from vicinal.workflows.opening import TableJob, open_table

AGES = [float(age) for age in range(20, 60)]
SURE = {
    "nines far from all others": ([*AGES, *[999.0] * 3], (999.0,)),
    "nines as the only ones below zero": ([*range(0, 90_000, 1000), *[-99.0] * 3], (-99.0,)),
    "-9 as the only one below zero": ([0.0, 1.0, 2.0, *[-9.0] * 3], (-9.0,)),
    "-999 beyond the range, among others below zero": ([*range(-180, 180, 5), *[-999.0] * 3], (-999.0,)),
    "codes of as many digits": ([*(n / 100 for n in range(20)), *[888.0] * 3, *[998.0] * 3, *[999.0] * 3],
                                (888.0, 998.0, 999.0)),
    "at both ends": ([*AGES, *[-999.0] * 3, *[999.0] * 3], (-999.0, 999.0)),
}  # fmt: skip
MAYBE = {
    "nines beyond the range": ([*range(0, 300, 10), *[999.0] * 3], "999"),
    "nines much more often than any other": ([*range(1, 99), *[99.0] * 10], "99"),
    "-1 as the only one below zero": ([*range(12, 30), *[-1.0] * 3], "-1"),
    "-1 more often than 0": ([*range(20), *[-1.0] * 3], "-1"),
    "-2 without -1": ([*range(20), *[-2.0] * 3], "-2"),
    "-9 and -8": ([*range(20), *[-9.0] * 3, *[-8.0] * 3], "-9,-8"),
    "0 far below all others": ([*range(60, 130, 5), *[0.0] * 3], "0"),
    "0 below decimals": ([*(4 + n / 9 for n in range(20)), *[0.0] * 3], "0"),
}
HONEST = {
    "-1 goes on where 0 and 1 began": [*range(2, 30), *[-1.0] * 3, *[0.0] * 5, *[1.0] * 9],
    "from -3 on": [*range(2, 30), *[-3.0] * 3, *[-2.0] * 3, *[-1.0] * 3],
    "-0.5": [*range(30), *[-0.5] * 3],
    "more below zero": [*range(30), *[-9.0] * 3, *[-7.0] * 3, *[-5.0] * 3, *[-4.0] * 3, *[-2.0] * 3],
    "signs": [-1.0, -1.0, -1.0, 0.0, 0.0, 1.0, 1.0],
    "nines in two rows": [*AGES, -999.0, -999.0],
    "years of a few waves": [92.0, 95.0, *[99.0] * 30],
    "the top of a scale": [*range(1, 99), *[99.0] * 3],
    "the least of heights": [*[99.0] * 40, *range(100, 190)],
    "-1 once": [*range(12, 30), -1.0],
    "no others": [999.0] * 5,
    "none of a count": [*range(8, 20), *[0.0] * 3],
    "the logarithm of 1": [*np.log(np.arange(2, 20)), *[0.0] * 3],
    "none of an amount that varies": [*range(12, 60), *[0.0] * 3],
    "mostly none": [*range(60, 130, 5), *[0.0] * 30],
    "0 twice": [*range(60, 130, 5), 0.0, 0.0],
}


@pytest.mark.parametrize(("cells", "codes"), SURE.values(), ids=SURE)
def test_sure_placeholders_are_missing(cells, codes):
    form = TableForm.of(frame := pd.DataFrame({"x": np.array(cells, dtype=float)}))
    assert sorted(form.columns["x"].placeholders) == sorted(codes)
    assert set(form.read(frame)["x"].dropna()) == set(cells) - set(codes)


@pytest.mark.parametrize(("cells", "codes"), MAYBE.values(), ids=MAYBE)
def test_numbers_that_may_be_placeholders_stay_and_are_asked_about(cells, codes):
    lines = []
    form = TableForm.of(frame := pd.DataFrame({"x": np.array(cells, dtype=float)}), log=lines.append)
    assert form.read(frame)["x"].notna().all()
    assert len(lines) == 1
    assert lines[0].endswith(f"say --missing x={codes} or leave them empty")
    assert TableForm.of(frame, kinds={"x": "number"}, log=lines.append).columns["x"].doubt == ""
    assert len(lines) == 1, "a column of which it was said that it is of numbers"


@pytest.mark.parametrize("cells", HONEST.values(), ids=HONEST)
def test_honest_numbers_are_neither(cells):
    assert placeholders_of(pd.Series(np.array(cells, dtype=float), name="x")) == ((), (), "")


def test_named_placeholders_are_missing_in_later_tables_too():
    frame = pd.DataFrame({"the age": [*range(20), -1, 7], "town": ["a", "b"] * 11})
    form = TableForm.of(frame, missing={"the age": [-1, 7]})
    saved = TableForm.model_validate_json(form.model_dump_json(exclude_defaults=True))
    assert saved.read(pd.DataFrame({"the age": ["7", "-1", "8"]}))["the age"].isna().tolist() == [True, True, False]
    with pytest.raises(ValueError, match="missing: expected a column of numbers, got 'town', texts or categories"):
        TableForm.of(frame, missing={"town": [-1]})


def test_a_model_that_was_saved_with_one_placeholder_has_it():
    form = ColumnForm.model_validate_json('{"kind": "number", "placeholder": -999.0}')
    assert read_column(form, pd.Series([1.0, -999.0])).isna().tolist() == [False, True]


def test_rows_whose_target_is_a_placeholder_are_left_out():
    frame = pd.DataFrame({"x": np.arange(60.0), "y": [*np.arange(57.0) + 20, *[-1.0] * 3]})
    opened = open_table(TableJob(source=frame, target="y"))
    assert [note for note in opened.notes if note.startswith("y: 3 cells are -1, all others 20 to 76; if they stand")]
    assert len(open_table(TableJob(source=frame, target="y", missing={"y": [-1]})).table.frame) == 57
    with pytest.raises(ValueError, match="missing: expected one of the columns 'x', 'y', got 'z'"):
        open_table(TableJob(source=frame, target="y", missing={"z": [-1]}))
