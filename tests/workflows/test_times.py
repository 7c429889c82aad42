"""Times: the latest rows are tested on, those before them held out, and evaluate says since when errors are others."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from vicinal.cli import run
from vicinal.data import prepare_table
from vicinal.data.splits import load_splits, split_by_time
from vicinal.estimators import load_model
from vicinal.evaluation import tuned_baselines
from vicinal.evaluation.audit import error_by_period, find_drift
from vicinal.report.audit import audit_findings
from vicinal.workflows import TableJob, add_table, audit_table, fit_table, plan_fit, predict_table, refit_model
from vicinal.workflows.opening import open_table

ROWS = 300


def sold(rows=ROWS, seed=0, *, drift=True):
    """Rows in a random order, one a day from 2024 on; what they cost changes after the 270th day."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": random.uniform(-3, 3, rows), "b": random.normal(size=rows)})
    days = pd.date_range("2024-01-01", periods=rows)
    price = frame["a"] + 0.1 * frame["b"] + random.normal(0, 0.1, rows)
    price[270:] += 2.0 * drift
    frame = frame.assign(id=[f"h{i}" for i in range(rows)], day=days.strftime("%Y-%m-%d"), price=price)
    return frame.iloc[random.permutation(rows)].reset_index(drop=True)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A kernel by time, and its table."""
    place = tmp_path_factory.mktemp("times")
    sold().to_csv(place / "sold.csv", index=False)
    job = TableJob(
        place / "sold.csv",
        "price",
        id="id",
        time="day",
        parameters={"metric": "kernel", "readout": "dense"},
        baselines=False,
    )
    return fit_table(job, place / "model"), place


def latest(place):
    """The rows that the model has not seen."""
    return sold().iloc[load_splits(place / "model" / "splits.json")[0].test]


def test_the_latest_rows_are_tested_on_and_those_before_them_held_out(fitted):
    _, place = fitted
    split, day = load_splits(place / "model" / "splits.json")[0], pd.to_datetime(sold()["day"])
    assert day[split.train].max() < day[split.validation].min()
    assert day[split.validation].max() < day[split.test].min()
    assert [len(part) for part in (split.train, split.validation, split.test)] == [204, 36, 60]
    model = load_model(place / "model")
    assert list(model.kinds_) == ["a", "b"]  # the time is no feature
    assert model.notes_["time"] == "day"
    assert set(model.calibration_.ids) == set(sold()["id"][split.validation])


def test_evaluate_knows_the_times_and_says_since_when_errors_are_others(fitted):
    _, place = fitted
    record = audit_table(place / "model", latest(place))
    assert record.time == "day"
    assert [period["rows"] for period in record.periods] == [20, 20, 20]
    assert record.periods[0]["start"] == "2024-08-28"
    assert record.periods[-1]["end"] == "2024-10-26"
    assert sum(p["error"] * p["rows"] for p in record.periods) / 60 == pytest.approx(record.scores["mse"])
    assert record.periods[0]["covered"] > 0.8 > record.periods[-1]["covered"]
    assert record.periods[0]["width"] < 1.5 < record.periods[-1]["width"]
    since = record.drift["error"]["since"]
    assert since == record.drift["coverage"]["since"]
    assert since in ("2024-09-26", "2024-09-27")  # day 270
    assert record.drift["error"]["after"] == pytest.approx(4, abs=0.5)
    assert any(line.startswith(f"Since {since} (day) the mean squared error is ") for line in audit_findings(record))


def test_predict_says_which_rows_are_later_than_any_forecast(fitted, tmp_path):
    outcome, place = fitted
    assert any(note.startswith("Calibrated by forecasts") for note in outcome.record.notes)
    rows, lines = latest(place)[:3].assign(day=["2024-09-30", "2025-01-02", "2030-01-01"]), []
    predict_table(place / "model", rows, coverage=0.9, log=lines.append)
    assert [line for line in lines if "2 of 3 rows are later than 2024-10-26" in line]


@pytest.mark.parametrize(
    ("days", "late"),
    [
        (["30 Sep 2024", "Jan 13, 2025", "2030-01-01"], "2 of 3 rows are later"),  # written otherwise than in the fit
        (["2024-09-30", "", "2025-01-02"], "1 of 3 rows is later"),
        (["2024-09-30", "soon", "2025-01-02"], "1 of 3 rows is later"),
        (["soon", "later", "then"], ""),
        ([1.5, 2.5, 3.5], ""),
    ],
)
def test_times_that_are_no_feature_stop_no_prediction(fitted, days, late):
    rows, lines = latest(fitted[1])[:3].assign(day=days), []
    answers = predict_table(fitted[1] / "model", rows, coverage=0.9, log=lines.append)
    assert len(answers.columns["prediction"]) == 3
    assert any(late in line for line in lines if late or "later than" in line) == bool(late)


def test_the_command_shows_periods_and_a_page(fitted, tmp_path, capsys):
    _, place = fitted
    plain = sold(drift=False).drop(columns="day").assign(week=np.arange(ROWS) // 3, id=range(ROWS)).iloc[:60]
    plain.to_csv(tmp_path / "plain.csv", index=False)
    options = ["--time", "week", "-q", "--out", str(tmp_path / "audit.html")]
    assert run(["evaluate", str(place / "model"), str(tmp_path / "plain.csv"), *options]) == 0
    said = capsys.readouterr().out
    assert "By week" in said
    assert "No significant change of error or coverage along week." in said
    assert "width needed" in (tmp_path / "audit.html").read_text()
    assert run(["evaluate", str(place / "model"), str(tmp_path / "plain.csv"), "-q"]) == 2
    assert "time: expected one of the columns" in capsys.readouterr().err


@pytest.mark.slow
def test_a_refit_is_compared_on_the_latest_rows(fitted, tmp_path):
    _, place = fitted
    load_model(place / "model").save(tmp_path / "model")
    with pytest.raises(ValueError, match="expected a table with the column 'day', as the bank has no times, got none"):
        refit_model(tmp_path / "model")
    outcome = refit_model(tmp_path / "model", sold())
    split = load_splits(tmp_path / "model" / "splits.json")[0]
    day = pd.to_datetime(sold()["day"])
    assert outcome.replaced
    assert day[split.train].max() < day[split.validation].min() <= day[split.validation].max() < day[split.test].min()


@pytest.mark.slow
def test_a_series_that_rises_is_followed_beyond_its_range(tmp_path):
    random, month = np.random.default_rng(0), np.arange(120)
    season = np.array(["cold", "mild", "warm", "mild"])[month % 12 // 3]
    price = 0.5 * month + 3.0 * (season == "warm") + random.normal(0, 0.5, 120)
    frame = pd.DataFrame(
        {"month": pd.date_range("2014-01-01", periods=120, freq="MS"), "season": season, "price": price}
    )
    lines, job = [], TableJob(frame[:110], "price", time="month", parameters={"metric": "kernel"}, baselines=False)
    fit_table(job, tmp_path / "model", log=lines.append)
    assert "month is learned from, too, as it tells of later rows (--drop month if not)" in lines
    later, former = frame[100:110], price[:88].max()
    said = predict_table(tmp_path / "model", later.drop(columns="price")).columns["prediction"]
    assert np.abs(said - price[100:110]).max() < 2.5
    assert (price[100:110] > former).mean() > 0.5 < (np.array(said) > former).mean(), (
        "beyond all labels that were trained on"
    )
    add_table(tmp_path / "model", later)
    assert len(load_model(tmp_path / "model").bank_) == 98
    refit_model(tmp_path / "model", frame)
    assert list(load_model(tmp_path / "model").kinds_) == ["season", "month"]
    dropped = replace(job, drop=["month"])
    assert list(open_table(dropped).kinds) == ["season"]
    assert list(open_table(replace(job, source=frame.assign(price=random.normal(size=120)))).kinds) == ["season"]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([3, 1, 2, 5, 4], ([0, 1, 2], [4], [3])),
        (np.array(["2024-01-03", "2024-01-01", "2024-01-02"], dtype="datetime64[D]"), ([1], [2], [0])),
        ([1, 1, 1, 1, 2, 2, 3], ([0, 1, 2, 3], [4, 5], [6])),
    ],
)
def test_times_that_are_equal_are_in_one_part(times, expected):
    split = split_by_time(np.asarray(times), test=0.2, validation=0.2)
    order = [np.sort(np.asarray(times)[part]) for part in (split.train, split.validation, split.test)]
    assert all(one.max() < other.min() for one, other in pairwise(order))
    assert [part.tolist() for part in (split.train, split.validation, split.test)] == [list(p) for p in expected]


def test_a_group_is_where_its_latest_row_is():
    times, groups = np.arange(12.0), np.array(list("abcdabcdefgh"))
    split = split_by_time(times, test=0.2, validation=0.1, groups=groups)
    parts = [set(groups[part]) for part in (split.train, split.validation, split.test)]
    assert parts == [set("abcde"), {"f"}, {"g", "h"}]
    with pytest.raises(ValueError, match="at least 3 different latest times of groups"):
        split_by_time(np.arange(6.0), groups=np.array(list("ababab")))


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (
            ["2024-01-31", "31.31.2024"],
            "row 1, column day: expected a number, or a date as 2024-05-31 or .* got '31.31",
        ),
        ([3, None], r"expected at least 10 rows with a target, got 9 \(1 dropped because the time is missing\)"),
        (["2024-01-31", ""], "1 dropped because the time is missing"),
        (["spring", "fall"], "row 0, .* got 'spring' .and 9 more such rows"),
    ],
)
def test_times_that_are_none_are_one_sentence(cells, words):
    frame = pd.DataFrame({"a": np.arange(10.0), "day": pd.Series([*cells, *cells[:1] * 8]), "y": np.arange(10.0)})
    if cells[0] == "spring":
        frame["day"] = "spring"
    with pytest.raises(ValueError, match=words):
        prepare_table(frame, "y", time="day")


def test_dates_are_read_in_their_zones_and_from_any_form():
    texts = pd.Series(["2024-01-01T00:30+01:00", "2024-01-01"] * 5)
    for column in (texts, pd.to_datetime(texts, utc=True, format="ISO8601")):
        times = prepare_table(pd.DataFrame({"a": range(10), "t": column, "y": np.arange(10.0)}), "y", time="t").times
        assert times[0] == np.datetime64("2023-12-31T23:30")
        assert times[1] > times[0]


def test_folds_and_times_do_not_go_together(tmp_path):
    for shares in ({"test": 0.0}, {"validation": 0.0}):
        with pytest.raises(ValueError, match="time: expected shares above 0 to test on and to hold out"):
            plan_fit(TableJob(sold(), "price", id="id", time="day", **shares))


def test_baselines_choose_their_settings_on_later_rows():
    from vicinal.evaluation import tuned

    times = np.random.default_rng(0).permutation(60)
    for inside, outside in tuned._folds_by_time(times, np.arange(len(times))):
        assert times[inside].max() < times[outside].min()
    for inside, outside in tuned._folds_by_time(times, np.where(np.arange(60) < 10, 0, np.arange(60))):
        assert set(inside) & set(range(10)) == set() or set(outside) & set(range(10)) == set()
    x = np.linspace(0, 6, 60)[:, None]
    (wave,) = tuned_baselines(x, np.sin(x[:, 0]), x[:1], times=times, methods=["ridge"])
    assert np.isfinite(wave.prediction).all()


def test_periods_hold_all_rows_and_a_change_is_dated():
    random = np.random.default_rng(0)
    times, errors = random.permutation(200), random.exponential(size=200)
    periods = error_by_period(errors, times, covered=errors < 2)
    assert sum(period.rows for period in periods) == 200
    assert [period.start for period in periods] == sorted(period.start for period in periods)
    assert all(
        period.covered == np.mean(errors[(times >= period.start) & (times <= period.end)] < 2) for period in periods
    )
    assert find_drift(errors, times) is None
    change = find_drift(errors + 2.0 * (times >= 120), times)
    assert abs(change.since - 120) <= 5
    assert change.after - change.before == pytest.approx(2, abs=0.5)
    assert find_drift(np.ones(50), np.arange(50)) is None
    assert find_drift([0.0, 1.0], [1, 2]) is None


@pytest.mark.slow
def test_a_change_is_seldom_seen_where_there_is_none():
    random = np.random.default_rng(1)
    seen = [find_drift(random.normal(size=60), np.arange(60), level=0.1, permutations=99) for _ in range(200)]
    assert sum(one is not None for one in seen) <= 33  # 20 expected, four standard deviations


def test_classes_have_their_share_of_wrong_rows_and_sets_by_period(tmp_path):
    frame = sold().assign(price=lambda f: np.where(f["price"] > 0, "dear", "cheap"))
    settings = {"max_epochs": 3, "members": 1, "hidden": (8, 4), "learning_rate": 1e-2, "metric": "network"}
    job = TableJob(frame, "price", id="id", time="day", parameters=settings, baselines=False)
    split = fit_table(job, tmp_path / "model").split
    record = audit_table(tmp_path / "model", frame.iloc[split.test])
    assert sum(p["error"] * p["rows"] for p in record.periods) / 60 == pytest.approx(1 - record.scores["accuracy"])
    inside = [period["covered"] * period["rows"] for period in record.periods]
    assert sum(inside) / 60 == pytest.approx(record.class_sets["lac"]["covered"])
    assert [period["width"] for period in record.periods] == [None] * 3
