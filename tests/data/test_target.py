"""The target: task inference, values, classes, and bad targets."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from vicinal.data.target import read_labels, read_target


def column(cells, name="price", **kwargs):
    return pd.Series(cells, index=range(1, len(cells) + 1), name=name, **kwargs)


TASKS = {
    "floats": ([0.5 * i for i in range(20)], "regression"),
    "whole floats": ([1.0, 2.0, 4.0] * 20, "regression"),
    "two whole floats": ([0.0, 1.0] * 20, "classification"),
    "two floats": ([0.5, 1.0] * 20, "regression"),
    "many integers": (list(range(40)), "regression"),
    "few integers, often": ([0, 1, 2] * 10, "classification"),
    "few integers, seldom": ([*range(10), *range(5)], "regression"),
    "integers with gaps": ([0, 1, None] * 10, "classification"),
    "bools": ([True, False] * 10, "classification"),
    "bools with gaps": ([True, False, None] * 10, "classification"),
    "texts": (["cat", "dog"] * 10, "classification"),
    "numbers as texts": ([f"{i}.5" for i in range(20)], "regression"),
    "decimals": ([Decimal(i) / 3 for i in range(20)], "regression"),
    "infinite": ([1, 2] * 10, "classification"),
}


def test_texts_that_look_joined_are_told_of_the_separator():
    cells = ["sea;sun", "sun", "sun;snow", "sea;snow"] * 5
    assert read_target(column(cells)).reason.endswith(
        "75 % of them hold ';': --separator ';' if those are several classes"
    )
    assert read_target(column(["Paris, France", "Rome, Italy"] * 10)).reason == "texts"
    unlike = [f"{a};{b}" for a in "abcdefg" for b in "hijklmn"]
    with pytest.raises(ValueError, match=r"expected classes that repeat.* --separator ';' if those are"):
        read_target(column(unlike))


@pytest.mark.parametrize("case", TASKS)
def test_task_is_read_from_the_target_with_a_reason(case):
    cells, task = TASKS[case]
    read = read_target(column(cells))
    assert read.task == task
    assert read.reason
    assert (read.classes is None) == (task == "regression")


def test_classes_of_one_row_are_told_of():
    cells = ["a"] * 9 + ["b"] * 9
    assert read_target(column(cells)).reason == "texts"
    assert read_target(column([*cells, "c"])).reason == "texts; 'c' is in one row, too few to learn it"
    said = "texts; 2 classes, such as 'c', are in one row each, too few to learn them"
    assert read_target(column([*cells, "c", "d"])).reason == said
    assert read_target(column([*cells, "c"]), repeats=False).reason == "texts", "rows of a fitted model"


def test_few_different_numbers_that_are_no_classes_by_themselves_may_be_said_to_be():
    floats = column([1.0, 2.0, 3.0] * 9)
    assert read_target(floats).reason == "numbers, 3 different ones; --task classification if these are classes"
    assert read_target(floats, "classification").classes == ["1", "2", "3"]
    assert read_target(column([n + 0.5 for n in range(30)])).reason == "numbers, 30 different ones"


def test_categories_are_classes_even_of_numbers():
    read = read_target(column([0.5, 1.5, 2.5] * 5, dtype="category"))
    assert (read.task, read.classes) == ("classification", ["0.5", "1.5", "2.5"])


def test_task_can_be_said():
    cells = column([0, 1, 2] * 10)
    assert read_target(cells, "regression").values.tolist() == [0.0, 1.0, 2.0] * 10
    assert read_target(column([0.5, 1.5] * 10), "classification").classes == ["0.5", "1.5"]
    assert read_target(column([True, False] * 5), "regression").values.tolist() == [1.0, 0.0] * 5
    with pytest.raises(ValueError, match=r"^task: expected one of 'regression', 'classification', got 'regresion'"):
        read_target(cells, "regresion")


def test_classes_are_ordered_and_named():
    assert read_target(column([10, 9, 1] * 10)).classes == ["1", "9", "10"]
    assert read_target(column([2, 1, None] * 10)).values.tolist() == ["2", "1"] * 10
    assert read_target(column(["b ", "a", " b"] * 4)).classes == ["a", "b"]
    assert read_target(column([True, False] * 5)).classes == ["False", "True"]
    assert read_target(column(["02", "01"] * 10)).classes == ["01", "02"]


def test_missing_targets_are_marked():
    read = read_target(column([1.5, None, 2.5, np.nan, 3.5]))
    assert read.keep.tolist() == [True, False, True, False, True]
    assert read.values.tolist() == [1.5, 2.5, 3.5]
    assert read_target(column(["a", " ", "b", "a", "b"])).keep.tolist() == [True, False, True, True, True]


PRICES = [f"{i}.25" for i in range(16)]

BAD = {
    "text among numbers": (
        [*PRICES, "n/a", *PRICES],
        None,
        r"^row 17, column price: expected a number, got 'n/a'; correct it, or leave it empty to drop the row$",
    ),
    "several": ([*PRICES, "n/a", "?"], None, r"^row 17, column price: .* got 'n/a' \(and 1 more such row\)"),
    "infinite": ([1.5, 2.5, -np.inf] * 4, None, r"^row 3, column price: expected a finite number, got -inf"),
    "infinite text": ([*PRICES, "inf"], None, r"^row 17, column price: expected a finite number, got 'inf'"),
    "texts as numbers": (
        ["a", "b"] * 5,
        "regression",
        r"^row 1, column price: expected a number, got .a. .and 9 more such rows.; if these are classes,",
    ),
    "wholly missing": (
        [None, np.nan, ""],
        None,
        r"^column price: expected a target, got no value in any of the 3 rows$",
    ),
    "constant": ([2.0] * 12, None, r"^column price: expected a target that varies, got 2.0 in all 12 rows$"),
    "one class": (["a"] * 12, None, r"^column price: expected a target that varies, got 'a' in all 12 rows$"),
    "free text": (
        [f"text {i}" for i in range(30)],
        None,
        r"^column price: expected classes that repeat, got 30 different",
    ),
    "numbers, and a few words": (
        [*(f"\u00a3{i}k" for i in range(30)), "call me", "POA"],
        None,
        r"every cell must be a number, and 2 are not, such as 'call me' \(--task regression\)",
    ),
    "words among numbers to predict": (
        [*(f"\u00a3{i}k" for i in range(30)), "call me", "POA"],
        "regression",
        r"^row 31, column price: expected a number, got 'call me' \(and 1 more such row\)",
    ),
    "numbers as classes": (
        [i / 7 for i in range(30)],
        "classification",
        r"^column price: expected classes that repeat",
    ),
    "dates": ([datetime.datetime(2020, 1, d) for d in range(1, 13)], None, r"^column price: .*got dates"),
    "lists": ([[1, 2]] * 12, None, r"^column price: expected at least two classes, .* got .1., .2. in 12 rows"),
    "dicts": (["a", {"b": 1}], None, r"^row 2, column price: expected a number or a class, got a dict$"),
    "bytes": ([b"a", b"b"] * 6, None, r"^row 1, column price: expected a number or a class, got a bytes$"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_target_gets_one_sentence(case):
    cells, task, sentence = BAD[case]
    with pytest.raises(ValueError, match=sentence):
        read_target(column(cells), task)


def test_a_whole_number_too_large_for_a_float_is_refused_as_infinite():
    cells = pd.Series([*range(30), 10**400], dtype=object, name="price")
    with pytest.raises(ValueError, match=r"^row 30, column price: expected a finite number, got 1000"):
        read_target(cells)


@pytest.mark.parametrize("wrong", [1e121, -1e300])
def test_a_number_whose_square_is_none_is_refused_by_row_and_column(wrong):
    column = pd.Series([1.0, 2.0, wrong, 4.0] * 5, name="price")
    with pytest.raises(ValueError, match=r"^row 2, column price: expected a number of at most 1e\+120, got"):
        read_target(column, "regression")


def test_labels_of_new_rows_need_not_repeat_or_vary():
    names = pd.Series([f"class {place}" for place in range(12)])
    assert read_target(names, "classification", repeats=False).values.tolist() == names.tolist()
    assert read_target(pd.Series([1.5] * 12), "regression", repeats=False).values.tolist() == [1.5] * 12


def test_lengths_of_time_are_seconds():
    cells = pd.Series(pd.to_timedelta(["1h", None, "90s"] * 6), name="took")
    target = read_target(cells)
    assert (target.values[:2].tolist(), target.task) == ([3600.0, 90.0], "regression")
    assert target.keep.tolist() == [True, False, True] * 6
    assert read_labels(cells.dropna(), classes=False)[:2].tolist() == [3600.0, 90.0]
