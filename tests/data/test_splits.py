"""Splits: seeded, disjoint, whole groups, about equal classes; and their file."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from references.identity import FORMS
from vicinal.data import make_splits, prepare_table
from vicinal.data.splits import load_splits, save_splits


def parts(split):
    return [split.train, split.validation, split.test]


@given(rows=st.integers(10, 300), seed=st.integers(0, 10_000), test=st.floats(0.05, 0.5))
def test_every_row_is_in_one_part(rows, seed, test):
    for split in make_splits(rows, number=2, seed=seed, test=test):
        assert np.array_equal(np.sort(np.concatenate(parts(split))), np.arange(rows))
        assert all(len(part) and part.dtype == np.int64 and (np.diff(part) > 0).all() for part in parts(split))
        assert len(split.test) == int(np.ceil(test * rows))


def test_the_papers_shares():
    split = make_splits(1000, seed=1)[0]
    assert [len(part) for part in parts(split)] == [680, 120, 200]


def test_more_splits_keep_the_first_and_differ_among_themselves():
    few, many = make_splits(50, number=2, seed=7), make_splits(50, number=4, seed=7)
    for a, b in zip(few, many, strict=False):
        assert all(np.array_equal(x, y) for x, y in zip(parts(a), parts(b), strict=True))
    assert [split.seed for split in many] == [7, 8, 9, 10]
    assert len({tuple(split.test) for split in many}) == 4


@given(sizes=st.lists(st.integers(1, 30), min_size=3, max_size=40), seed=st.integers(0, 1000))
def test_no_group_is_in_two_parts(sizes, seed):
    groups = np.repeat(np.arange(len(sizes)), sizes)
    split = make_splits(len(groups), seed=seed, groups=groups)[0]
    sets = [set(groups[part]) for part in parts(split)]
    assert all(sets)
    assert len(sets[0] | sets[1] | sets[2]) == sum(map(len, sets))
    assert sum(map(len, parts(split))) == len(groups)


@pytest.mark.parametrize("form", FORMS)
def test_no_group_is_in_two_parts_whatever_its_type(form):
    """Each group comes in two types; what is split is what is split of whole numbers."""
    numbers = np.random.default_rng(0).permutation(np.arange(60) // 4)
    given = list(FORMS[form](numbers.tolist()))
    mixed = [given[row] if row % 2 else int(numbers[row]) for row in range(60)]
    for groups in (given, mixed):
        for split in make_splits(60, number=3, groups=groups):
            together = [set(numbers[part]) for part in parts(split)]
            assert len(set.union(*together)) == sum(map(len, together))


def test_a_group_of_most_rows_is_trained_on():
    groups = np.array([0] * 80 + list(range(1, 21)))
    for split in make_splits(100, number=5, groups=groups):
        assert 0 in groups[split.train]


def test_classes_have_equal_shares():
    labels = np.array(["a"] * 80 + ["b"] * 20)
    split = make_splits(100, stratify=labels)[0]
    assert [(labels[part] == "b").sum() for part in parts(split)] == [14, 2, 4]


@pytest.mark.parametrize(
    "labels",
    [["a"] * 98 + ["b", "c"], ["a"] * 99 + ["b"], [str(i // 2) for i in range(100)], ["a"] * 95 + list("bcdef")],
)
def test_rare_classes_do_not_stop_a_split(labels):
    for split in make_splits(100, number=5, stratify=labels):
        assert [len(part) for part in parts(split)] == [68, 12, 20]


def test_a_table_brings_its_groups_and_classes():
    frame = pd.DataFrame({"x": range(60), "y": ["a", "b", "c"] * 20, "g": np.repeat(range(20), 3)})
    split = make_splits(prepare_table(frame, "y", group="g"))[0]
    assert not set(frame["g"].iloc[split.train]) & set(frame["g"].iloc[split.test])
    split = make_splits(prepare_table(frame, "y"))[0]
    assert sorted(frame["y"].iloc[split.test]) == ["a"] * 4 + ["b"] * 4 + ["c"] * 4


def test_ten_rows_give_three_parts():
    assert [len(part) for part in parts(make_splits(10)[0])] == [6, 2, 2]


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        ({"number": 0}, r"^number: expected a whole number of at least 1, got 0$"),
        ({"seed": -1}, r"^seed: expected a whole number of at least 0, got -1$"),
        ({"test": 1.0}, r"^test: expected a number between 0 and 1, got 1.0$"),
        ({"validation": 0}, r"^validation: expected a number between 0 and 1, got 0$"),
        ({"test": 0.97}, r"^splits: expected shares that leave rows to train on, got 10 of 10 rows held out$"),
        ({"groups": [1] * 9}, r"^groups: expected one value for each of the 10 rows, got shape \(9,\)$"),
        ({"groups": [1] * 10}, r"^group: expected at least 3 different groups"),
    ],
)
def test_bad_shares_get_one_sentence(kwargs, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_splits(10, **kwargs)


def test_file_round_trip(tmp_path):
    splits = make_splits(40, number=3, seed=5)
    save_splits(tmp_path / "splits.json", splits, fingerprint="abc")
    again = load_splits(tmp_path / "splits.json", rows=40, fingerprint="abc")
    assert [p.tolist() for s in again for p in [*parts(s), np.array(s.seed)]] == [
        p.tolist() for s in splits for p in [*parts(s), np.array(s.seed)]
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["splits.json"]


def test_file_that_is_torn_edited_newer_or_of_other_data_is_refused(tmp_path):
    path = tmp_path / "splits.json"
    with pytest.raises(ValueError, match=r"expected a file of splits, got none$"):
        load_splits(path)
    save_splits(path, make_splits(40), fingerprint="abc")
    whole = json.loads(path.read_text())
    with pytest.raises(ValueError, match="expected splits of 41 rows as the data has, got splits of 40 rows"):
        load_splits(path, rows=41)
    with pytest.raises(ValueError, match="got splits of data with other content"):
        load_splits(path, fingerprint="def")
    leaking = json.loads(path.read_text())
    leaking["splits"][0]["train"][0] = leaking["splits"][0]["test"][0]
    for content, sentence in (
        (path.read_text()[:-20], "torn or edited"),
        (json.dumps(leaking), "expected each of 40 rows in one part, got others at seed 0"),
        (json.dumps(whole | {"version": 2}), "got the newer 2; update vicinal"),
        ("[]", "torn or edited"),
    ):
        path.write_text(content)
        with pytest.raises(ValueError, match=r"^splits\.json: .*" + sentence):
            load_splits(path)
