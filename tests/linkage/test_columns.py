"""Columns as codes of their distinct cells, against the cells themselves."""

import unicodedata
from collections import Counter
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.core.identity import without_accents
from vicinal.data.spelling import GAPS
from vicinal.linkage.cell_forms import normal_text
from vicinal.linkage.columns import CodedColumn


def coded(*tables, numbers=False):
    codes, cells = pd.factorize(pd.concat([pd.Series(table, dtype=object) for table in tables]), use_na_sentinel=True)
    sides = np.split(codes, np.cumsum([*map(len, tables)])[:-1])
    return CodedColumn.of_codes("a", sides, [normal_text(cell) for cell in cells], GAPS, numbers=numbers)


def cells_of(column, side):
    return [None if code < 0 else column.values[code] for code in column.sides[side]]


KINDS = {
    "dates": (["2021-03-04", "1999-12-31", "2000-01-01"], False, "code"),
    "dates with dots": (["4.3.2021", "31.12.1999", "1.1.2000"], False, "code"),
    "British postal codes": (["SW1 1AA", "E14 5AB", "N1 9GU"], False, "code"),
    "postal codes as texts": (["80331", "01067", "10115"], False, "code"),
    "postal codes": ([80331, 10115, 20095], True, "code"),
    "years": ([1987, 2003, 1965], True, "code"),
    "telephones": (["+49 30 4711", "089 2233", "040 55"], False, "code"),
    "model numbers": (["SM-G991", "A52S", "WH-1000XM4"], False, "code"),
    "ages": ([31, 47, 8], True, "number"),
    "prices": ([1999.99, 5.5, 10250.25], True, "number"),
    "below zero": ([-1234, -5678, -9012], True, "number"),
    "whole floats": ([1987.0, 2003.0, 1965.0], True, "code"),
    "rounded amounts": ([330000, 1910000, 25400, 1234], True, "number"),
    "half of them not rounded": ([330000, 1910000, 1234, 5678], True, "code"),
    "nine of ten years": ([1900 + i for i in range(9)] + [7], True, "code"),
    "eight of ten years": ([1900 + i for i in range(8)] + [7, 8], True, "number"),
    "names": (["Ann Miller", "Bo", "Carla de la Cruz"], False, "name"),
    "streets": (["12 Main Road", "5 Elm Street", "7 Oak Lane"], False, "name"),
    "texts": (["a brass lamp with a shade", "oak table of four legs", "red chair for small rooms"], False, "text"),
    "four words": (["one two three four", "five six seven eight"], False, "text"),
    "three words and a bit": (["one two three four", "five six seven"], False, "name"),
    "no cells": (["", None, "n/a"], False, "name"),
}


@pytest.mark.parametrize(("cells", "numbers", "kind"), KINDS.values(), ids=KINDS)
def test_kinds_of_columns(cells, numbers, kind):
    for tables in ([cells], [cells, cells[::-1]]):
        assert coded(*tables, numbers=numbers).kind == kind


def test_numbers_that_one_table_rounds_are_amounts():
    assert coded([330038, 271912, 25431], [330000, 272000, 25400], numbers=True).kind == "number"


SAME = {
    "telephones": (["+49 170 1234567", "0049 (0)170/1234567", "0170-1234567", "(0170) 123 45 67"], "code"),
    "isbn": (["978-3-16-148410-0", "9783161484100", "978 3 16 148410 0"], "code"),
    "names": (["Zoé Müller", "zoe muller"], "name"),
}


@pytest.mark.parametrize(("cells", "kind"), SAME.values(), ids=SAME)
def test_cells_that_are_written_in_several_ways_are_one_value(cells, kind):
    column = coded(cells, [cells[0], cells[0][:-1] + "9"])
    assert column.kind == kind
    assert set(column.sides[0]) == {0}
    assert column.sides[1].tolist() == [0, 1]


def test_days_of_a_table_with_times_are_compared_with_those_of_one_without():
    times = [f"2024-05-{day:02d} 19:30:00" for day in range(1, 12)]
    days = [time[:10] for time in times]
    assert [side.tolist() for side in coded(times, days).sides] == [list(range(11))] * 2
    assert len(coded(times, days[:1]).values) == 12  # a single midnight is a time, too


def test_years_before_a_number_tell_keys_apart():
    keys = [f"20{year}00000001" for year in range(10, 20)]
    assert len(coded(keys).values) == 10  # the last nine digits are the same
    assert coded(["10-12", "1012"]).values == ["10-12", "1012"]


def test_legal_forms_say_nothing_where_cells_are_companies():
    forms = ["GmbH", "Gesellschaft mit beschränkter Haftung", "S.p.A.", "& Co. KG", ""]
    column = coded([f"Sauer Bau {form}" for form in forms], ["SARL Sauer Bau", "Sauer Bau Ltd", "GmbH & Co. KG"])
    assert column.values == ["sauer bau", "gmbh & co. kg"]
    assert coded([f"{n} potatoes 2 kg" for n in "abcdefgh"]).form == "plain"


def test_kinds_weigh_values_by_how_often_they_stand():
    few = ["1987-01-02", "tomorrow"]
    assert coded(few).kind == "name"
    assert coded(few[:1] * 20 + few[1:]).kind == "code"
    assert coded([7] * 10 + [1987, 1988], numbers=True).kind == "number"
    assert coded([7] + [1987] * 10, numbers=True).kind == "code"
    assert coded(["one"] * 9 + ["a text that has quite a few words"]).kind == "name"


@pytest.mark.parametrize("gap", [None, np.nan, pd.NA, pd.NaT, "", "  ", "\u200b", "N/A", " n/a", "-", "None", "?"])
def test_gaps_have_no_code(gap):
    column = coded(["ulm", gap], [gap, "bonn", "ulm"])
    assert column.values == ["ulm", "bonn"]
    assert [side.tolist() for side in column.sides] == [[0, -1], [-1, 1, 0]]
    assert all(side.dtype == np.int32 for side in column.sides)
    np.testing.assert_allclose(column.frequency, [2 / 3, 1 / 3])
    assert coded([gap, gap]).values == []
    assert coded([gap, gap]).equal_by_chance == 0


FORMS = [
    ("Zoë Peña", unicodedata.normalize("NFD", "ZOË  PEÑA")),
    ("straße 1", "STRASSE 1"),
    ("\uff21\uff22 12", "ab\u200b 12"),
    (" ﬁne ", "fine"),
    (3.0, "3"),
]


@pytest.mark.parametrize(("one", "other"), FORMS)
def test_forms_of_a_text_are_one_value(one, other):
    column = coded([one, other, "x"], [other, "y"])
    assert column.sides[0].tolist() == [0, 0, 1]
    assert column.sides[1].tolist() == [0, 2]
    np.testing.assert_allclose(column.frequency, [0.6, 0.2, 0.2])


CELLS = st.lists(st.sampled_from(["ulm", "ULM", "bonn", "", "n/a", "köln", "ko\u0308ln", None]), min_size=1, max_size=9)


@given(left=CELLS, right=CELLS)
def test_two_tables_against_their_cells(left, right):
    column = coded(left, right)
    sides = []
    for side, cells in enumerate((left, right)):
        normal = [without_accents(normal_text(cell)) for cell in cells]
        sides.append([None if text in GAPS else text for text in normal])
        assert cells_of(column, side) == sides[side]
    filled = [[text for text in side if text is not None] for side in sides]
    often = Counter(filled[0] + filled[1])
    assert set(column.values) == set(often)
    np.testing.assert_allclose(column.frequency, [often[value] / often.total() for value in column.values])
    pairs = list(product(*filled))
    assert column.equal_by_chance == pytest.approx(sum(a == b for a, b in pairs) / max(1, len(pairs)))


@given(cells=CELLS)
def test_one_table_is_counted_once(cells):
    column = coded(cells)
    assert column.sides[0] is column.sides[1]
    filled = [text for text in cells_of(column, 0) if text is not None]
    often = Counter(filled)
    np.testing.assert_allclose(column.frequency, [often[value] / len(filled) for value in column.values])
    pairs = list(product(filled, filled))  # a row stands on either side
    assert column.equal_by_chance == pytest.approx(sum(a == b for a, b in pairs) / max(1, len(pairs)))
    twice = coded(cells, cells)
    np.testing.assert_allclose(twice.frequency, column.frequency)
    assert twice.equal_by_chance == pytest.approx(column.equal_by_chance)


@pytest.mark.parametrize(
    ("other", "kind"), [("as they are", "code"), ("rounded up", "number"), ("none shared", "number")]
)
def test_whole_numbers_that_two_tables_share_by_chance_alone_are_amounts(other, kind):
    draw = np.random.default_rng(0)
    left = draw.choice(np.arange(1_000, 90_000), 500, replace=False)
    right = {"as they are": left, "rounded up": -(-left // 25) * 25 + 1, "none shared": left + 100_000}[other]
    texts = [str(value) for value in np.concatenate([left, right]).tolist()]
    column = CodedColumn.of_codes("a", np.split(np.arange(1_000), 2), texts, numbers=True)
    assert column.kind == kind


@pytest.mark.parametrize("cells", [["1234\u00b2", "2345\u00b2", "3456\u00b2"], [str(10**20 + k) for k in range(3)]])
def test_digits_that_are_no_integer_are_codes(cells):
    column = CodedColumn.of_codes("a", np.split(np.arange(6), 2), [*cells, *cells], numbers=True)
    assert column.kind == "code"
