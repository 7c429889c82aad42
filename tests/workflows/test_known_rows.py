"""Rows of the fit are known again by their content, in any order, and new ones are not."""

import shutil
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from vicinal.cli import run
from vicinal.estimators import load_model
from vicinal.workflows import audit_table
from vicinal.workflows.bank import add_table
from vicinal.workflows.known_rows import known_rows, labelled_table


def made(kind, count, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=count).round(4),
            "when": pd.date_range("2020-01-01", periods=count).strftime("%d/%m/%Y"),
            "town": rng.choice(["york", "bath", "n/a"], count),
            "paid": rng.choice([True, False], count),
            "price": [f"${x:,.2f}" for x in rng.uniform(900, 9000, count)],
        }
    )
    if kind == "few categories":
        frame = frame[["town", "paid"]].assign(code=rng.choice(["a", "b", "c", "d"], count))
        return frame.assign(y=np.where(rng.uniform(size=count) < 0.5, "up", "down"))
    labels = frame["size"] + (frame["town"] == "york") + rng.normal(size=count) / 5
    if kind == "classes":
        return frame.assign(y=np.where(labels > 0, "up", "down"))
    return frame.assign(y=labels.round(3))


@pytest.fixture(scope="module", params=["numbers", "classes", "few categories"])
def case(request, tmp_path_factory):
    place = tmp_path_factory.mktemp("known")
    table = made(request.param, 150)
    table.to_csv(place / "t.csv", index=False)
    options = [
        "--target",
        "y",
        "--metric",
        "kernel",
        "--readout",
        "dense",
        "--no-baselines",
        "--quiet",
        "--out",
        str(place / "m"),
    ]
    assert run(["fit", str(place / "t.csv"), *options]) == 0
    table = pd.read_csv(place / "t.csv", keep_default_na=False)
    return SimpleNamespace(kind=request.param, place=place, table=table, model=load_model(place / "m"))


def test_rows_that_are_added_again_are_counted(case, tmp_path):
    shutil.copytree(case.place / "m", tmp_path / "m")
    again = case.table.iloc[[int(name) - 1 for name in case.model.bank_.ids[:3]]].reset_index(drop=True)
    if case.kind == "numbers":  # of one the label is another
        again["y"] = again["y"].astype(float) + np.array([0, 0, 9])
    again.to_csv(tmp_path / "again.csv", index=False)
    said = []
    add_table(tmp_path / "m", tmp_path / "again.csv", log=said.append)
    count = 2 if case.kind == "numbers" else 3
    assert f"{count} of 3 rows are in the bank already, label and all: they will count twice" in said


def looked_up(case, table, **settings):
    path = case.place / "asked.csv"
    table.to_csv(path, index=False)
    from vicinal.workflows.predict import read_rows

    frame = read_rows(case.model, path, None, lambda line: None)
    return known_rows(case.model, labelled_table(case.model, frame, "asked", lambda line: None), **settings)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("order", ["as fitted", "sorted", "reversed", "shuffled"])
def test_the_table_of_the_fit_has_the_same_parts_in_any_order(case, order):
    table = case.table
    mixed = {
        "as fitted": table,
        "sorted": table.sort_values("y", kind="stable"),
        "reversed": table[::-1],
        "shuffled": table.sample(frac=1, random_state=3),
    }[order]
    known, parts = looked_up(case, mixed)
    home, expected = looked_up(case, table)
    assert sorted(parts) == sorted(expected)
    rows = dict(zip(mixed.index, zip(parts, known.ids.tolist(), strict=True), strict=True))
    if case.kind != "few categories":  # of equal rows either is right
        assert [rows[i][0] for i in range(150)] == expected
        assert all(rows[i][1] == i + 1 for i in range(150) if expected[i] != "new")
    else:
        target = table["y"].to_numpy()
        seen = [(rows[i][1], i) for i in range(150) if rows[i][0] != "new"]
        assert all(target[one - 1] == target[i] for one, i in seen)
        assert len({one for one, _ in seen}) == len(seen)
    assert np.array_equal(home.target, table["y"].to_numpy().astype(home.target.dtype))


def test_rows_of_another_table_are_new_and_a_part_is_known(case):
    other = made(case.kind, 60, seed=5)
    if case.kind == "few categories":
        other = other.sample(frac=1, random_state=1)
        at_home = (other.reset_index(drop=True).drop(columns="y") == case.table[:60].drop(columns="y")).all(axis=1)
        assert looked_up(case, other)[1].count("new") >= 60 - at_home.sum()
        return
    assert looked_up(case, other)[1] == ["new"] * 60
    mixed = pd.concat([other, case.table[40:60]])
    known, parts = looked_up(case, mixed, distinct=True)
    assert parts[:60] == ["new"] * 60
    assert known.ids[60:][np.array(parts[60:]) != "new"].tolist() == [
        i + 1 for i in range(40, 60) if looked_up(case, case.table)[1][i] != "new"
    ]
    assert len(set(known.ids.tolist())) == 80


def test_a_corrected_label_is_known_in_its_place_and_an_edited_row_is_new(case):
    expected = looked_up(case, case.table)[1]
    table = case.table.copy()
    row = expected.index("bank")
    table.loc[row, "y"] = 77.5 if case.kind == "numbers" else {"up": "down", "down": "up"}[table.loc[row, "y"]]
    assert looked_up(case, table)[1] == expected
    if case.kind != "few categories":
        table.loc[row, "size"] = 55.5
        changed = looked_up(case, table)[1]
        assert changed[row] == "new"
        assert changed[:row] + changed[row + 1 :] == expected[:row] + expected[row + 1 :]


def test_each_row_of_the_fit_is_known_once(case):
    twice = pd.concat([case.table, case.table], ignore_index=True)
    known, parts = looked_up(case, twice)
    seen = [one for one, part in zip(known.ids.tolist(), parts, strict=True) if part != "new"]
    assert len(seen) == len(set(seen)) == 150 - looked_up(case, case.table)[1].count("new")


@pytest.mark.slow
@pytest.mark.sweep(2)
def test_evaluate_and_refit_take_a_sorted_table_as_that_of_the_fit(case, capsys):
    case.table.sort_values("y", kind="stable").to_csv(case.place / "sorted.csv", index=False)
    if case.kind == "numbers":
        one, two = (audit_table(case.place / "m", case.place / name) for name in ("t.csv", "sorted.csv"))
        assert one.rows == two.rows
        for name, value in one.scores.items():
            assert two.scores[name] == pytest.approx(value, rel=1e-6)
    shutil.copytree(case.place / "m", case.place / "again")
    assert run(["refit", str(case.place / "again"), str(case.place / "sorted.csv")]) in (0, 1)
    said = capsys.readouterr()
    assert "are not in the table" not in said.err + said.out
