"""Numbers and foreign text as shown."""

import numpy as np
import pandas as pd
import pytest

from vicinal.report.text import cell_text, clean, compact, decimals_for, number, one_line, percent, round_to_sum


def as_number(text):
    return float(text.replace(",", ""))


@pytest.mark.parametrize("seed", range(20))
def test_rounded_parts_add_up_and_none_moves_by_more_than_a_last_digit(seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(0, 10.0 ** rng.integers(-2, 6), int(rng.integers(1, 12))).tolist()
    decimals = int(rng.integers(0, 4))
    shown = round_to_sum(values, sum(values), decimals)
    assert sum(map(as_number, shown)) == pytest.approx(round(sum(values), decimals), abs=1e-6 * 10**-decimals)
    for value, text in zip(values, shown, strict=True):
        assert abs(as_number(text) - value) < 10.0**-decimals * (1 + 1e-9)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (float("nan"), "n/a"),
        (float("-inf"), "n/a"),
        (1234567.0, "1,234,567"),
        (0.1 + 0.2, "0.3"),
        (-3.0, "-3"),
    ],
)
def test_number(value, text):
    assert number(value) == text


def test_small_shares_are_not_called_zero():
    assert percent(1e-9) == "<0.1 %"
    assert percent(1.0) == "100 %"


def test_text_can_be_written_and_keeps_what_is_harmless():
    text = clean("a\x00\x1b[31m\ud800é😀\u2028b\tc")
    assert text.encode("utf-8")
    assert "\x00" not in text
    assert "\x1b" not in text
    assert "é😀\nb\tc" in text


def test_one_line_is_no_longer_than_asked():
    assert len(one_line("word " * 100, 50)) == 50
    assert one_line("\n") == ""


def test_scale_of_decimals():
    assert decimals_for([]) == 2
    assert decimals_for([float("nan"), 0.004]) == 5
    assert compact(-2_000_000) == "\N{MINUS SIGN}2M"


def test_cells_are_shown_as_people_write_them():
    cells = [pd.Timestamp("2024-05-31"), "2024-05-31 00:00:00", "2024-05-31T07:30", pd.NaT, None, ["a", 2]]
    assert [cell_text(cell) for cell in cells] == ["2024-05-31", "2024-05-31", "2024-05-31T07:30", "", "", "a, 2"]
