"""prepare_table: what becomes of each column, and one sentence for each bad table."""

import numpy as np
import pandas as pd
import pytest

from references.identity import FORMS
from vicinal.data import prepare_table, read_table
from vicinal.data.table import Dropped


def houses(n=12, **columns):
    base = {"title": [f"house {i}" for i in range(n)], "area": [float(i) for i in range(n)]}
    base |= {"price": [i * 1.5 for i in range(n)]} | columns
    return pd.DataFrame(base, index=range(1, n + 1))


def test_columns_are_told_apart():
    frame = houses(sku=[f"s{i}" for i in range(12)], street=["a", "b", "c"] * 4)
    table = prepare_table(frame, "price", id="sku", group="street", name="houses")
    assert list(table.frame) == ["title", "area"]
    assert table.ids.tolist() == frame["sku"].tolist()
    assert table.groups.tolist() == ["a", "b", "c"] * 4
    assert table.rows.tolist() == list(range(1, 13))
    assert (table.task, table.classes, len(table), table.name) == ("regression", None, 12, "houses")
    assert list(prepare_table(frame, "price", use=["area", "street"], group="street").frame) == ["area", "street"]
    assert list(prepare_table(frame, "price", drop=["sku", "title"]).frame) == ["area", "street"]


def test_rows_without_a_time_are_dropped_with_the_reason():
    days = pd.date_range("2024-01-01", periods=12).strftime("%d/%m/%Y").tolist()
    table = prepare_table(houses(day=["", *days[1:]], street=["a", "b", "c"] * 4), "price", time="day", group="street")
    assert table.dropped == [Dropped(1, "the time is missing")]
    assert len(table) == len(table.ids) == len(table.groups) == len(table.times) == 11
    with pytest.raises(ValueError, match=r"got 9 \(3 dropped because the time is missing\)$"):
        prepare_table(houses(day=["", "", None, *days[3:]]), "price", time="day")


def test_rows_without_a_target_are_dropped_with_the_reason():
    frame = houses()
    frame.loc[[3, 7], "price"] = np.nan
    table = prepare_table(frame, "price")
    assert table.dropped == [Dropped(3, "the target is missing"), Dropped(7, "the target is missing")]
    assert table.dropped_counts == {"the target is missing": 2}
    assert table.rows.tolist() == table.frame.index.tolist() == [1, 2, 4, 5, 6, 8, 9, 10, 11, 12]
    assert table.ids.tolist() == table.rows.tolist()


def test_a_line_of_totals_is_dropped_with_the_reason():
    frame = pd.DataFrame({"size": [*range(12), None], "price": [*(1.5 * n for n in range(12)), 99.0]})
    table = prepare_table(frame, "price")
    assert table.dropped_counts == {"it is the total of all others": 1}
    assert table.target.tolist() == frame["price"].tolist()[:12]
    assert len(prepare_table(frame, "price", repeats=False)) == 13, "new rows are measured as they are"
    assert len(prepare_table(frame.assign(price=frame["price"] + 0.5), "price")) == 13


def test_what_a_target_is_stands_once():
    frame = houses(sold=["yes", "0"] * 6)
    assert prepare_table(frame, "sold", drop=["title"]).reason == "true or false"


def test_a_target_of_ranges_is_their_middle_and_other_lists_of_numbers_are_texts():
    frame = pd.DataFrame({"x": range(12), "pay": [f"{10 * n}k-{10 * n + 20}k" for n in range(12)]})
    table = prepare_table(frame, "pay")
    assert table.target.tolist() == [10 * n + 10 for n in range(12)]
    assert table.form.read(pd.DataFrame({"pay": ["7k-9k"]}), ["pay"])["pay"].tolist() == [8]
    with pytest.raises(ValueError, match=r"^column pay: expected classes that repeat"):
        prepare_table(frame.assign(pay=[f"{n}x{n + 1}" for n in range(12)]), "pay")


def test_select_keeps_rows_together():
    table = prepare_table(houses(street=list("abcabcabcabc")), "price", group="street")
    part = table.select(np.array([5, 2]))
    assert part.target.tolist() == [7.5, 3.0]
    assert part.frame["title"].tolist() == ["house 5", "house 2"]
    assert (part.ids.tolist(), part.rows.tolist(), part.groups.tolist()) == ([6, 3], [6, 3], ["c", "c"])


@pytest.mark.parametrize("form", FORMS)
def test_ids_and_groups_are_read_in_every_form(form):
    cells = list(FORMS[form](list(range(12))))
    frame = houses(sku=pd.Series(cells, index=range(1, 13)), street=pd.Series(cells[:4] * 3, index=range(1, 13)))
    table = prepare_table(frame, "price", id="sku", group="street")
    assert table.ids.astype(str).tolist() == [str(i) for i in range(12)]
    assert table.groups.tolist() == ["0", "1", "2", "3"] * 3


def test_days_are_one_group_whatever_stands_beside_them():
    days = pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"] * 3)
    later = days[:-1].append(pd.DatetimeIndex(["2024-01-04 12:00"]))
    tables = [prepare_table(houses(day=day), "price", group="day") for day in (days, later, days.strftime("%Y-%m-%d"))]
    assert tables[0].groups[:-1].tolist() == tables[1].groups[:-1].tolist() == tables[2].groups[:-1].tolist()


def test_ids_without_a_column_are_whole_numbers():
    assert prepare_table(houses().set_index(pd.Index(list("abcdefghijkl"))), "price").ids.tolist() == list(range(12))
    assert prepare_table(houses().set_index(pd.Index([0] * 12)), "price").ids.tolist() == list(range(12))


def test_feature_gaps_are_tidied_but_the_target_is_strict():
    table = prepare_table(houses(rooms=["3", "n/a", *["4"] * 10]), "price")
    assert table.frame["rooms"].isna().tolist()[:3] == [False, True, False]


BAD = {
    "unknown target": (houses(), {"target": "prize"}, r"^target: .*'price', got 'prize'; did you mean 'price'\?$"),
    "unknown id": (houses(), {"id": "sku"}, r"^id: expected one of the columns 'title', 'area', 'price', got 'sku'$"),
    "unknown use": (houses(), {"use": ["titel"]}, r"^use: .*got 'titel'; did you mean 'title'\?$"),
    "unknown drop": (houses(), {"drop": ["are"]}, r"^drop: .*got 'are'; did you mean 'area'\?$"),
    "target is id": (
        houses(),
        {"id": "price"},
        r"^target: expected a column that is not the id, group, time, weight or fair too, got 'price'$",
    ),
    "target is used": (houses(), {"use": ["area", "price"]}, r"^use: expected feature columns, got 'price' too$"),
    "id is used": (houses(), {"use": ["area"], "id": "area"}, r"^use: expected feature columns, got 'area' too$"),
    "no features": (houses(), {"drop": ["area", "title"]}, r"^data: expected a column to learn from beside 'price'"),
    "few rows": (houses(9), {}, r"^data: expected at least 10 rows with a target, got 9$"),
    "few with target": (
        houses(12, price=[None] * 4 + list(range(8))),
        {},
        r"^data: expected at least 10 rows with a target, got 8 \(4 dropped because the target is missing\)$",
    ),
    "duplicate ids": (
        houses(sku=["a", "b", "c", "b", *range(8)]),
        {"id": "sku"},
        r"^row 4, column sku: expected ids that are all different, got b again \(first in row 2; 1 such row\); if",
    ),
    "ids that are one": (
        houses(sku=[7, "a", "7", *range(20, 29)]),
        {"id": "sku"},
        r"^id: expected ids that are all different in column sku, got 7 in row 1 and '7' in row 3, which are one",
    ),
    "ids that are one among floats": (
        houses(sku=["x", 3, 2.5, 3.0, *range(20, 28)]),
        {"id": "sku"},
        r"^id: expected .* in column sku, got 3 in row 2 and 3.0 in row 4, which are one id; if rows of one id",
    ),
    "ids too large for floats": (
        houses(sku=[float(2**53), *map(float, range(11))]),
        {"id": "sku"},
        r"^column sku: expected floats below 9007199254740992, .* got 9007199254740992 in row 1; give",
    ),
    "missing id": (
        houses(sku=["a", None, *range(10)]),
        {"id": "sku"},
        r"^row 2, column sku: expected an id, got an empty",
    ),
    "missing group": (
        houses(g=["a", "b"] * 5 + ["", None]),
        {"group": "g"},
        r"^row 11, column g: .*\(and 1 more such row\)",
    ),
    "one group": (
        houses(g=["all"] * 12),
        {"group": "g"},
        r"^group: expected at least 3 different groups.* got 1 \('all'\) in all 12 rows; choose another column",
    ),
    "two groups": (houses(g=["a", "b"] * 6), {"group": "g"}, r"^group: .* got 2 \('a', 'b'\) in all 12 rows"),
    "one group among targets": (
        houses(14, g=["a", "b", *["c"] * 12], price=[None, None, *range(12)]),
        {"group": "g"},
        r"^group: .* got 1 \('c'\) in all 12 rows",
    ),
    "same names": (houses().set_axis(["a", "a", "price"], axis=1), {}, r"^data: .* got 'a' twice; rename one$"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_table_gets_one_sentence(case):
    frame, settings, sentence = BAD[case]
    with pytest.raises(ValueError, match=sentence) as caught:
        prepare_table(frame, **{"target": "price"} | settings)
    assert "\n" not in str(caught.value)


def test_wide_table_lists_a_few_columns():
    wide = pd.DataFrame(np.zeros((10, 400)))
    with pytest.raises(ValueError, match=r"'0', '1', .*'11', .* and [23]\d\d more, got 'y'$"):
        prepare_table(wide, "y")
    with pytest.raises(TypeError, match=r"^data: expected a DataFrame, got ndarray$"):
        prepare_table(np.zeros((10, 3)), "y")


def test_real_tables(shared):
    table = prepare_table(read_table(shared / "data/houses/houses.csv"), "price", id="id", group="dup_group")
    assert (len(table), table.task, len(np.unique(table.groups))) == (535, "regression", 531)
    digits = prepare_table(read_table(shared / "data/audio/fsdd.parquet"), "digit", use=["audio"])
    assert (digits.task, digits.classes) == ("classification", [str(i) for i in range(10)])
    assert "10 different whole numbers" in digits.reason
