"""The file that was fitted predicts what the fit measured, and any part of it the same, however it is written."""

import numpy as np
import pandas as pd
import pytest

from vicinal.core import ColumnWarning
from vicinal.estimators import NeighborRegressor, load_model
from vicinal.workflows import TableJob, fit_table, predict_table

N = 90


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(0)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 900, N), unit="D")
    price = random.uniform(500, 90_000, N)
    paid = random.random(N) < 0.5
    frame = pd.DataFrame(
        {
            "key": [f"p{place}" for place in range(N)],
            "sold": days.strftime("%d/%m/%Y"),
            "listed": days.strftime("%b %d, %Y"),
            "price": [f"${value:,.2f}" for value in price],
            "area": [f"{value / 7:,.1f}".translate(str.maketrans(",.", ".,")) for value in price],
            "share": [f"{value / 1000:.0f}%" for value in price],
            "paid": np.where(paid, "TRUE", "FALSE"),
            "zip": [f"{value:05d}" for value in random.integers(0, 5, N)],
            "rooms": ["n/a" if place % 20 == 3 else str(place % 7) for place in range(N)],
        }
    )
    target = 1000 + price / 20 + 20_000 * paid + 3 * (days - days.min()).days
    return frame.assign(rent=[f"€ {value:,.2f}".translate(str.maketrans(",.", ".,")) for value in target])


@pytest.fixture(scope="module")
def folder(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("form")
    table.to_csv(path / "t.csv", index=False)
    job = TableJob(path / "t.csv", "rent", id="key", parameters={"metric": "kernel"}, baselines=False)
    fit_table(job, path / "m")
    return path


def test_the_columns_are_what_a_person_would_call_them(folder):
    model = load_model(folder / "m")
    words = {name: form.sentence for name, form in model.form_.columns.items()}
    assert words["sold"] == "written day first"
    assert (words["price"], words["share"], words["area"]) == ("money in $", "shares in %", "decimal commas")
    assert words["rent"] == "money in €, decimal commas"
    assert {name for name, kind in model.kinds_.items() if kind == "category"} == {"paid", "zip"}
    assert {name for name, kind in model.kinds_.items() if kind == "number"} == {
        "sold", "listed", "price", "area", "share", "rooms",
    }  # fmt: skip


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "xlsx"])
def test_a_part_in_any_file_predicts_as_the_whole_does(folder, table, tmp_path, ending):
    whole = pd.Series(predict_table(folder / "m", folder / "t.csv").columns["prediction"], table["key"])
    truth = table["rent"].str.replace(r"[€ .]", "", regex=True).str.replace(",", ".").astype(float)
    assert np.corrcoef(whole, truth)[0, 1] > 0.95
    part = (
        table[table["area"].str.endswith(",0") | (table.index % 9 == 0)].drop(columns="rent").sample(8, random_state=0)
    )
    path = tmp_path / f"part.{ending}"
    {
        "csv": lambda: part.to_csv(path, index=False),
        "jsonl": lambda: part.to_json(path, orient="records", lines=True),
        "parquet": lambda: part.to_parquet(path, index=False),
        "xlsx": lambda: part.to_excel(path, index=False),
    }[ending]()
    answers = predict_table(folder / "m", path)
    np.testing.assert_allclose(answers.columns["prediction"], whole[answers.rows], rtol=1e-9)


def test_python_reads_as_the_command_line_does(folder, table):
    model = load_model(folder / "m")
    rows = table.drop(columns=["key", "rent"]).head(5)
    typed = model.form_.read(rows)
    assert typed["price"].dtype == np.float64
    np.testing.assert_allclose(model.predict(rows), model.predict(typed))
    with pytest.raises(ValueError, match=r"^sold: expected dates in row 0, got numbers: 2020; the column held dates"):
        model.predict(rows.assign(sold=2020))
    with pytest.warns(ColumnWarning, match=r"^paid: 5 of 5 cells were never seen in training: maybe$"):
        model.predict(rows.assign(paid="maybe"))


def test_a_column_that_is_left_out_is_said_in_python():
    frame = pd.DataFrame({"a": np.arange(30.0) % 7, "user_id": np.arange(30) * 3 % 91, "x": ["same"] * 30})
    with pytest.warns(ColumnWarning, match=r"^X: user_id: left out: looks like an id .*; x: left out: 'same'"):
        model = NeighborRegressor(metric="kernel").fit(frame, np.random.default_rng(0).normal(size=30))
    assert list(model.kinds_) == ["a"]


def test_whether_a_column_is_used_does_not_hang_on_the_order_or_the_part_of_rows():
    frame = pd.DataFrame({"year": np.arange(1960, 2020), "a": np.random.default_rng(0).normal(size=60)})
    for rows in (frame, frame.sample(frac=1, random_state=0), frame[10:], frame[::2]):
        assert "year" in NeighborRegressor(metric="kernel").fit(rows, np.sin(rows["year"] / 7)).kinds_
