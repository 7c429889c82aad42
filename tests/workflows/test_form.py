"""The file that was fitted predicts what the fit measured, and any part of it the same, however it is written."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from vicinal.core import ColumnWarning
from vicinal.data import TableForm
from vicinal.estimators import NeighborRegressor, load_model
from vicinal.workflows import TableJob, fit_table, predict_table
from vicinal.workflows.opening import open_table

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
    job = TableJob(
        path / "t.csv", "rent", id="key", parameters={"metric": "kernel", "readout": "dense"}, baselines=False
    )
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


SWAPPED = str.maketrans(",.", ".,")
SPELLED = {
    "day": ["%d/%m/%Y", "%Y-%m-%d", "%d.%m.%Y", "%b %d, %Y", "%m/%d/%Y", "%Y-%m-%dT%H:%M:%SZ"],
    "number": ["{:.2f}", "${:,.2f}", "€ {:,.2f}", "{:,.2f}", "{:.2f}%", "CHF {:,.2f}"],
    "truth": [("TRUE", "FALSE"), ("yes", "no"), ("true", "false"), ("ja", "nein"), ("Y", "N")],
    "gap": ["n/a", "?", "-", "", "NA"],
}
WRITERS = {
    "csv": lambda frame, path: frame.to_csv(path, index=False),
    "tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    "jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    "parquet": lambda frame, path: frame.to_parquet(path, index=False),
    "xlsx": lambda frame, path: frame.to_excel(path, index=False),
}


def written(seed, day, numbers, truth, gap, swapped):
    """A table of 60 rows whose cells are spelled in one way."""
    random = np.random.default_rng(seed)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 900, 60), unit="D")
    size, paid = random.uniform(5, 90_000, 60), random.random(60) < 0.5

    def number(values):
        cells = [numbers.format(value) for value in values]
        return [cell.translate(SWAPPED) if swapped else cell for cell in cells]

    label = 10 + size / 20 + 2000 * paid + (days - days.min()).days
    frame = pd.DataFrame({"sold": days.strftime(day), "size": number(size), "paid": np.where(paid, *truth)})
    frame["zip"] = [f"{value:05d}" for value in random.integers(0, 5, 60)]
    frame.loc[random.random(60) < 0.1, "size"] = gap
    return frame.assign(key=[f"k{place}" for place in range(60)], rent=number(label))


FITS = settings(  # a fit each: fewer than of other properties, and too slow to shrink
    max_examples=settings().max_examples // 4, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)


@given(
    seed=st.integers(0, 999),
    day=st.sampled_from(SPELLED["day"]),
    numbers=st.sampled_from(SPELLED["number"]),
    truth=st.sampled_from(SPELLED["truth"]),
    gap=st.sampled_from(SPELLED["gap"]),
    swapped=st.booleans(),
    whole=st.sampled_from(sorted(WRITERS)),
    part=st.sampled_from(sorted(WRITERS)),
    some=st.sets(st.integers(0, 59), min_size=1, max_size=9),
)
@FITS
def test_the_file_that_was_fitted_gives_what_was_measured_and_any_part_of_it_the_same(
    tmp_path_factory, whole, part, some, **ways
):
    table = written(**ways)
    folder = tmp_path_factory.mktemp("ways")
    WRITERS[whole](table, folder / f"t.{whole}")
    job = TableJob(
        folder / f"t.{whole}",
        "rent",
        id="key",
        parameters={"metric": "kernel", "readout": "dense"},
        baselines=False,
    )
    outcome = fit_table(job, folder / "m")
    model = load_model(folder / "m")
    assert model.kinds_ == {"sold": "number", "size": "number", "paid": "category", "zip": "category"}
    answers = predict_table(folder / "m", folder / f"t.{whole}")
    predicted = pd.Series(answers.columns["prediction"], answers.rows)
    digits = table["rent"].str.replace(r"[^0-9.,]", "", regex=True)
    truth = (digits.str.translate(SWAPPED) if ways["swapped"] else digits).str.replace(",", "").astype(float)
    truth.index = table["key"]
    tested = outcome.record.examples
    assert len(tested)
    for example in tested:
        assert predicted[example.id] == pytest.approx(example.prediction, rel=1e-6)
        assert truth[example.id] == pytest.approx(example.target, rel=1e-6)
    rows = table.iloc[sorted(some)].drop(columns="rent")
    WRITERS[part](rows, folder / f"part.{part}")
    again = predict_table(folder / "m", folder / f"part.{part}")
    np.testing.assert_allclose(again.columns["prediction"], predicted[again.rows], rtol=1e-9)


def test_python_reads_as_the_command_line_does(folder, table):
    model = load_model(folder / "m")
    rows = table.drop(columns=["key", "rent"]).head(5)
    typed = model.form_.read(rows)
    assert typed["price"].dtype == np.float64
    np.testing.assert_allclose(model.predict(rows), model.predict(typed))
    with pytest.raises(ValueError, match=r"^sold: expected dates in row 0, got a number: 2020; the column held dates"):
        model.predict(rows.assign(sold=2020))
    with pytest.warns(ColumnWarning, match=r"^paid: 5 of 5 cells were never seen in training: maybe$"):
        model.predict(rows.assign(paid="maybe"))


def test_warnings_of_columns_name_the_arguments_of_python_and_the_options_of_the_command_line():
    """What a warning says is what works: with it, nothing is asked any more."""
    rng = np.random.default_rng(0)
    pressure = np.where(np.arange(60) % 9 == 0, 0, rng.integers(60, 90, 60))
    frame, target = pd.DataFrame({"bp": pressure, "x": rng.normal(size=60)}), rng.normal(size=60)
    model = NeighborRegressor(metric="kernel")
    with pytest.warns(ColumnWarning) as told:
        model.fit(frame, target)
    said = [str(each.message) for each in told if "stand for missing" in str(each.message)]
    asked = "bp: 7 cells are 0, all others 60 to 89; if they stand for missing values, say"
    assert said == [f"{asked} form=TableForm.of(X, missing={{'bp': [0]}}) or leave them empty"]
    form = TableForm.of(frame, missing={"bp": [0]})
    with warnings.catch_warnings():
        warnings.simplefilter("error", ColumnWarning)
        NeighborRegressor(metric="kernel", form=form).fit(frame, target)
    assert f"{asked} --missing bp=0 or leave them empty" in open_table(TableJob(source=frame, target="x")).notes


def test_a_column_that_is_left_out_is_said_in_python():
    frame = pd.DataFrame({"a": np.arange(30.0) % 7, "user_id": np.arange(30) * 3 % 91, "x": ["same"] * 30})
    with pytest.warns(ColumnWarning, match=r"^X: user_id: left out: looks like an id .*; x: left out: 'same'"):
        model = NeighborRegressor(metric="kernel").fit(frame, np.random.default_rng(0).normal(size=30))
    assert list(model.kinds_) == ["a"]


@pytest.mark.slow
def test_whether_a_column_is_used_does_not_hang_on_the_order_or_the_part_of_rows():
    frame = pd.DataFrame({"year": np.arange(1960, 2020), "a": np.random.default_rng(0).normal(size=60)})
    for rows in (frame, frame.sample(frac=1, random_state=0), frame[10:], frame[::2]):
        assert "year" in NeighborRegressor(metric="kernel").fit(rows, np.sin(rows["year"] / 7)).kinds_
