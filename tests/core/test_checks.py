"""Checks give back what is right and say in one sentence what is wrong."""

import math

import numpy as np
import pytest
import torch

from vicinal.core import check_choice, nearest
from vicinal.core.checks import (
    check_between,
    check_integer,
    check_labels,
    check_matrices,
    check_number,
    check_scores,
    optional_import,
)


@pytest.mark.parametrize(
    ("value", "hint"),
    [("Titel", "; did you mean 'title'?"), ("PRICE", "; did you mean 'price'?"), ("qqqq", ""), ("", "")],
)
def test_nearest_ignores_case_and_names_only_what_is_close(value, hint):
    assert nearest(value, ["title", "price"]) == hint


def test_choice_is_given_back_or_refused_with_all_choices_and_the_nearest():
    assert check_choice("head", "nona", ["dense", "nona"]) == "nona"
    with pytest.raises(
        ValueError, match=r"^head: expected one of 'dense', 'nona', got 'dens'; did you mean 'dense'\?$"
    ):
        check_choice("head", "dens", ["dense", "nona"])


@pytest.mark.parametrize("value", [None, 3, ["nona"], torch.zeros(2)])
def test_choice_that_is_no_string_gets_no_hint(value):
    with pytest.raises(ValueError, match=r"^head: expected one of 'dense', got ") as caught:
        check_choice("head", value, ["dense"])
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.int64(2)])
def test_number_of_any_real_type_becomes_a_float(value):
    got = check_number("x", value)
    assert type(got) is float
    assert got == 2.0


@pytest.mark.parametrize("value", [True, "2", None, 2j, np.bool_(True), [2]])
def test_number_of_another_type_is_refused(value):
    with pytest.raises(TypeError, match=r"^x: expected a number, got "):
        check_number("x", value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan")])
def test_number_that_is_not_finite_is_refused(value):
    with pytest.raises(ValueError, match=r"^x: expected a finite number, got "):
        check_number("x", value)


@pytest.mark.parametrize(
    ("value", "closed", "right"),
    [(0.5, False, True), (0, False, False), (1, False, False), (0, True, True), (1, True, True), (1.01, True, False)],
)
def test_between_is_open_unless_closed(value, closed, right):
    if right:
        assert check_between("x", value, 0, 1, closed=closed) == value
    else:
        words = "from 0 to 1" if closed else "between 0 and 1"
        with pytest.raises(ValueError, match=rf"^x: expected a number {words}, got {value}$"):
            check_between("x", value, 0, 1, closed=closed)


@pytest.mark.parametrize(("closed", "words"), [(False, "above 0"), (True, "of at least 0")])
def test_between_without_an_upper_end_says_so(closed, words):
    with pytest.raises(ValueError, match=rf"^x: expected a number {words}, got -1$"):
        check_between("x", -1, 0, math.inf, closed=closed)


@pytest.mark.parametrize("value", [3, np.int32(3)])
def test_integer_is_given_back_as_an_int(value):
    got = check_integer("k", value, 3)
    assert type(got) is int
    assert got == 3


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (True, TypeError, "a whole number, got True"),
        (2.0, TypeError, r"a whole number, got 2\.0"),
        ("2", TypeError, "a whole number, got '2'"),
        (2, ValueError, "a whole number of at least 3, got 2"),
    ],
)
def test_integer_of_another_type_or_too_low_is_refused(value, error, words):
    with pytest.raises(error, match=f"^k: expected {words}$"):
        check_integer("k", value, 3)


@pytest.mark.parametrize(
    ("queries", "bank", "error", "sentence"),
    [
        ([[1.0]], torch.zeros(2, 1), TypeError, "^queries: expected a tensor, got list$"),
        (torch.zeros(2, 1), None, TypeError, "^bank: expected a tensor, got NoneType$"),
        (torch.zeros(2), torch.zeros(2, 1), ValueError, r"^queries: expected a matrix \[rows, d\], got shape \(2,\)$"),
        (torch.zeros(2, 1), torch.zeros(1, 2, 1), ValueError, r"^bank: expected a matrix .*, got shape \(1, 2, 1\)$"),
        (torch.zeros(2, 1), torch.zeros(2, 1).int(), TypeError, r"^bank: .*, got torch.int32; call .float\(\) on it$"),
        (torch.zeros(2, 3), torch.zeros(4, 5), ValueError, r"^bank: expected \[N, 3\] as wide .*, got \(4, 5\)$"),
        (
            torch.zeros(2, 3),
            torch.zeros(4, 3, device="meta"),
            ValueError,
            "^bank: expected a tensor on cpu .*, got meta$",
        ),
    ],
)
def test_matrices_that_do_not_fit_are_refused(queries, bank, error, sentence):
    with pytest.raises(error, match=sentence):
        check_matrices(queries, bank)


@pytest.mark.parametrize(
    ("scores", "weight", "error", "sentence"),
    [
        (None, None, TypeError, "^scores: expected a tensor, got NoneType$"),
        (torch.zeros(3), None, ValueError, r"^scores: expected a matrix \[b, N\], got shape \(3,\)$"),
        (torch.zeros(2, 3).long(), None, TypeError, "^scores: expected a floating dtype, got torch.int64$"),
        (torch.zeros(2, 3), torch.zeros(3), ValueError, r"^weight: expected \(2, 3\) as the scores, got \(3,\)$"),
    ],
)
def test_scores_and_weight_that_do_not_fit_are_refused(scores, weight, error, sentence):
    with pytest.raises(error, match=sentence):
        check_scores(scores, weight)


@pytest.mark.parametrize(
    ("labels", "error", "sentence"),
    [
        ([1.0, 2.0], TypeError, "^labels: expected a tensor, got list$"),
        (torch.zeros(3), ValueError, r"^labels: expected \[2\] or \[2, T\], .*, got \(3,\)$"),
        (torch.zeros(2, 1, 1), ValueError, r"^labels: expected .*, got \(2, 1, 1\)$"),
        (torch.tensor(1.0), ValueError, r"^labels: expected .*, got \(\)$"),
        (torch.tensor([0, 1]), TypeError, r"^labels: expected a floating dtype, got torch.int64; .*one_hot"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels, error, sentence):
    with pytest.raises(error, match=sentence):
        check_labels(labels, 2)


def test_what_fits_passes_in_silence():
    check_matrices(torch.zeros(0, 3), torch.zeros(2, 3, dtype=torch.float64))
    check_scores(torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.bool))
    check_labels(torch.zeros(2), 2)
    check_labels(torch.zeros(2, 5), 2)


@pytest.mark.parametrize(
    ("content", "got"),
    [
        (None, "none"),
        ("import absent_part_of_it", r"one that cannot be imported \(No module named 'absent_part_of_it'\)"),
        ("raise OSError('no library')", r"one that cannot be imported \(no library\)"),
    ],
)
def test_a_package_that_is_not_there_or_broken_is_one_sentence(content, got, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    if content is not None:
        (tmp_path / "half_a_package.py").write_text(content)
    with pytest.raises(
        ValueError,
        match=rf"^text: expected the package half, got {got}; install it with pip install 'vicinal\[text\]'$",
    ):
        optional_import("text", "half_a_package", "text", "half")
