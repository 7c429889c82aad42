"""Rows of identical content: found by content, reported across a split, kept together by groups."""

import dataclasses
import os

import numpy as np
import pandas as pd
import pytest

from vicinal.data import Split, duplicates_across, find_duplicates, make_splits, prepare_table, read_table
from vicinal.data.duplicates import table_fingerprint


def table_of(root=None, y=None, **columns):
    n = len(next(iter(columns.values())))
    labels = [float(i) for i in range(n)] if y is None else y
    frame = pd.DataFrame(columns | {"y": labels}, index=range(1, n + 1))
    return prepare_table(frame, "y", root=root)


def found(table, kinds):
    return [group.tolist() for group in find_duplicates(table, kinds).groups]


def test_what_no_encoder_reads_is_not_read_here(tmp_path):
    root = tmp_path / "data"
    root.mkdir()
    os.mkfifo(root / "pipe.jpg")
    (root / "endless.jpg").symlink_to("/dev/zero")
    (root / "ring.jpg").symlink_to("ring.jpg")
    with (root / "sparse.jpg").open("wb") as file:
        file.truncate(1 << 40)
    cells = ["pipe.jpg", "pipe.jpg", "endless.jpg", "ring.jpg", "sparse.jpg", "a\0b.jpg", *map(str, range(6))]
    assert found(table_of(root, i=cells), {"i": "image"}) == [[0, 1]]


FILLER = [f"other {i}" for i in range(8)]


def test_text_is_folded_and_other_cells_compared_as_they_are():
    table = table_of(t=["pH", "PH\n", "bad", "good", *FILLER], c=["x"] * 12)  # as categories these differ
    assert found(table, {"t": "text", "c": "category"}) == [[0, 1]]
    assert found(table, {"t": "category", "c": "category"}) == []


def test_numbers_by_value_and_missing_equals_missing():
    table = table_of(a=[0.0, -0.0, np.nan, np.nan, 1, 2, 3, 4, 5, 6, 7, 8])
    assert found(table, {"a": "number"}) == [[0, 1], [2, 3]]


def test_all_columns_must_agree_and_vectors_count():
    vectors = [[1.0, 2.0], [1, 2], [1.0, 3.0], *([i, 0.0] for i in range(9))]
    assert found(table_of(v=vectors), {"v": "vector"}) == [[0, 1]]
    assert found(table_of(v=vectors, a=list(range(12))), {"v": "vector", "a": "number"}) == []
    assert found(table_of(v=vectors, a=list(range(12))), {"v": "vector"}) == [[0, 1]], "kinds name the features"


def test_media_are_compared_by_the_content_of_their_files(tmp_path):
    root = tmp_path / "data"
    root.mkdir()
    (tmp_path / "outside.jpg").write_bytes(b"same")
    for name, content in (("a.jpg", b"same"), ("b.jpg", b"same"), ("c.jpg", b"differs")):
        (root / name).write_bytes(content)
    cells = ["a.jpg", "b.jpg", "c.jpg", b"same", {"bytes": b"same", "path": None}, {"bytes": None, "path": "c.jpg"}]
    cells += ["none.jpg", "../outside.jpg", None, b"1", b"2", b"3"]
    assert found(table_of(root, i=cells), {"i": "image"}) == [[0, 1, 3, 4], [2, 5]]


def test_report_counts_what_is_on_both_sides():
    labels = [1.0, 1, 1, 2, 2, 3, 4, *range(10, 18)]
    table = table_of(y=labels, t=["a", "A", "a ", "b", "B", "c", "C", *FILLER])
    copies = find_duplicates(table, {"t": "text"})
    assert (len(copies.groups), copies.extra, copies.conflicting) == (3, 4, 1)
    split = Split(np.array([0, 3, 5, *range(7, 12)]), np.array([6, 12]), np.array([1, 2, 4, 13, 14]), 0)
    leak = duplicates_across(split, copies)
    assert leak.test == 3
    assert leak.sentence.startswith(
        "4 rows are a copy of another (with different targets in 1 of 3 groups); 3 of 5 test rows"
    )
    assert "(rows 2 = 1, 3 = 1, 5 = 4)" in leak.sentence
    assert "--group" in leak.sentence
    stopped_on = Split(np.arange(7, 13), np.array([0, 3, 5]), np.array([1, 2, 4, 6, 13, 14]), 0)
    beside = duplicates_across(split, dataclasses.replace(copies, grouped=True))  # where no other groups can be given
    assert beside.sentence.endswith("flatters: give copies one group, or leave them out")
    assert duplicates_across(stopped_on, copies).test == 4, "a copy among the validation rows counts too"


def test_report_without_copies_or_without_a_leak():
    clean = table_of(t=[*FILLER, *"abcd"])
    split = make_splits(clean)[0]
    assert duplicates_across(split, find_duplicates(clean, {"t": "text"})).sentence == ""
    table = table_of(y=[0.0, 0, *range(10)], t=["a", "a", *FILLER, "b", "c"])
    split = Split(np.arange(2, 8), np.array([0, 1]), np.arange(8, 12), 0)
    assert duplicates_across(split, find_duplicates(table, {"t": "text"})).sentence == (
        "1 row is a copy of another; none of them is on both sides of the split"
    )


def test_rows_whose_targets_differ_as_by_chance_are_no_copies():
    codes = [0, 0, 1, 1, 2, 2, *range(3, 9)]
    split = Split(np.array([0, 2, 4, 6, 7]), np.array([8, 9]), np.array([1, 3, 5, 10, 11]), 0)
    copies = find_duplicates(table_of(x=codes))
    assert copies.chance == pytest.approx(3 * (1 - 12 / 12**2))
    assert duplicates_across(split, copies).sentence == (
        "3 rows have the cells of another, with different targets in 3 of 3 groups: the columns do not tell them apart"
    )
    of_two = find_duplicates(table_of(y=["a", "b"] * 6, x=codes))
    assert of_two.chance == pytest.approx(3 * (1 - 2 / 4)), "of two classes, half of the pairs differ by chance"


def test_every_row_twice_leaks_unless_grouped():
    words = [f"word {i}" for i in range(60)]
    frame = pd.DataFrame(
        {"id": range(120), "pair": [*range(60)] * 2, "w": words * 2, "y": [i / 7 for i in range(60)] * 2}
    )
    bare = prepare_table(frame, "y", id="id", use=["w"])
    copies = find_duplicates(bare, {"w": "text"})
    assert (copies.extra, copies.conflicting) == (60, 0)
    assert duplicates_across(make_splits(bare)[0], copies).test > 10
    grouped = prepare_table(frame, "y", id="id", group="pair", use=["w"])
    for split in make_splits(grouped, number=3):
        assert duplicates_across(split, copies).test == 0
    for split in make_splits(bare, number=3, groups=copies.content):
        assert duplicates_across(split, copies).test == 0


def test_fingerprint_tells_contents_apart():
    table = table_of(t=["a", "b", *FILLER, "c", "d"], v=[[float(i), 1.0] for i in range(12)])
    same = table_of(t=["a", "b", *FILLER, "c", "d"], v=[np.array([i, 1.0]) for i in range(12)])
    assert table_fingerprint(table) == table_fingerprint(same)
    other = table_of(t=["a", "B", *FILLER, "c", "d"], v=[[float(i), 1.0] for i in range(12)])
    assert table_fingerprint(other) != table_fingerprint(table)
    assert table_fingerprint(table.select(np.arange(11))) != table_fingerprint(table)


def test_houses_have_four_pairs_of_photos(shared):
    frame = read_table(shared / "data/houses/houses.csv")
    frame["photo"] = [f"{i:03d}.jpg" for i in frame["id"]]
    root = shared / "data/houses/frontal256"
    bare = prepare_table(frame, "price", id="id", use=["photo"], root=root)
    copies = find_duplicates(bare, {"photo": "image"})
    assert sorted(bare.ids[group].tolist() for group in copies.groups) == [[59, 72], [199, 214], [292, 293], [331, 351]]
    assert copies.conflicting == 2
    grouped = prepare_table(frame, "price", id="id", group="dup_group", use=["photo"], root=root)
    assert not any(duplicates_across(split, copies).test for split in make_splits(grouped, number=10))
    assert any(duplicates_across(split, copies).test for split in make_splits(bare, number=10))


@pytest.mark.parametrize("columns", [["t"], None])
def test_columns_to_compare_can_be_named(columns):
    table = table_of(t=["a", "a", *FILLER, "b", "c"], n=list(range(12)))
    assert len(find_duplicates(table, columns=columns).groups) == (1 if columns else 0)
