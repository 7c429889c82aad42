"""compare: several fits at a time give what one after the other gives; by time, with weights, and planned first."""

import json

import numpy as np
import pandas as pd
import pytest

from vicinal.cli import run
from vicinal.evaluation.store import RunStore
from vicinal.workflows import TableJob, compare, compare_tables
from vicinal.workflows.compare import plan_compare
from vicinal.workflows.engines import done_together
from vicinal.workflows.fit import plan_fit

HEADS = ("nona", "nona+knn")


def job(**changes):
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"a": random.uniform(-3, 3, 60), "b": random.choice(["x", "y"], 60)})
    frame = frame.assign(
        price=np.sin(frame["a"]) + random.normal(0, 0.1, 60), when=np.arange(60), w=1 + frame.index % 3
    )
    settings = {"source": frame, "drop": ["when", "w"], "parameters": {"metric": "kernel"}, "baselines": False}
    return TableJob(**{**settings, "target": "price", **changes})


def figures(comparison):
    return [(one.split, one.method, one.metrics) for one in comparison.runs]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Two splits, one fit after the other."""
    folder = tmp_path_factory.mktemp("alone")
    return folder, compare_tables([job()], folder, splits=2, heads=HEADS)


@pytest.mark.parametrize(("rows", "tested"), [(12, 2), (13, 3), (14, 3)])
def test_small_tables_are_tested_on_the_rows_that_ten_to_train_on_leave(rows, tested):
    small = job(source=job().source.iloc[:rows])
    assert len(plan_fit(small).split.test) == tested


def test_too_few_rows_to_test_on_say_what_to_do():
    with pytest.raises(ValueError, match=r"at least 12 rows, to train on 10 and test on the others, got 11; --test 0"):
        plan_fit(job(source=job().source.iloc[:11]))


def test_pieces_of_work_come_back_with_their_places():
    works = [lambda value=value: value**2 for value in range(5)]
    assert sorted(done_together("joblib", 1, works)) == [(place, place**2) for place in range(5)]


@pytest.mark.slow
def test_an_engine_gives_the_runs_of_one_process(alone, tmp_path):
    lines = []
    settings = {"splits": 2, "heads": HEADS, "engine": "joblib", "workers": 1, "log": lines.append}
    assert figures(compare_tables([job()], tmp_path, **settings)) == figures(alone[1])
    assert sum("split" in line for line in lines) == 2
    lines.clear()
    assert figures(compare_tables([job()], tmp_path, **settings)) == figures(alone[1])
    assert not any("split" in line for line in lines), "what is there is not run again"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ["joblib", "ray"])
def test_two_processes_give_the_runs_of_one(alone, tmp_path, engine):
    pytest.importorskip(engine)
    settings = {"splits": 2, "heads": HEADS, "engine": engine, "workers": 2}
    assert figures(compare_tables([job()], tmp_path, **settings)) == figures(alone[1])
    constant = job(source=job().source.assign(price=[1.0] * 59 + [2.0]))  # two values: classes
    with pytest.raises(ValueError, match="expected at least two classes"):
        compare_tables([constant], tmp_path / "bad", **settings)


def test_what_was_finished_stays_where_a_later_fit_fails(alone, tmp_path, monkeypatch):
    begun = []

    def fail_later(model, opened, split):
        begun.append(split.seed)
        if len(begun) > 1:
            raise ValueError("X: expected luck")
        return fitted(model, opened, split)

    fitted = compare.fit_split
    monkeypatch.setattr(compare, "fit_split", fail_later)
    with pytest.raises(ValueError, match="expected luck"):
        compare_tables([job()], tmp_path, splits=2, heads=HEADS, engine="joblib", workers=1)
    settings = compare._settings(job())
    assert [one.split for one in RunStore(tmp_path / "runs.json", settings).runs] == [0, 0]
    (plan,) = plan_compare([job()], tmp_path, splits=2, heads=HEADS)
    assert (plan.fits, plan.finished) == ({HEADS: 1}, 1)
    monkeypatch.undo()
    assert figures(compare_tables([job()], tmp_path, splits=2, heads=HEADS)) == figures(alone[1])


def test_a_plan_says_what_would_be_run_and_writes_nothing(tmp_path):
    (plan,) = plan_compare([job(baselines=True)], tmp_path / "new", splits=3, heads=("dense", *HEADS))
    assert list(plan.fits.values()) == [3, 3, 3]
    assert list(plan.fits)[:2] == [("dense",), HEADS]
    assert plan.fit.sizes == {"train": 40, "validation": 8, "test": 12}
    assert not (tmp_path / "new").exists()


def test_by_time_the_latest_rows_are_tested_on(tmp_path):
    lines = []
    timed = compare_tables([job(time="when", drop=["w"])], tmp_path, splits=5, heads=["nona"], log=lines.append)
    assert "by time there is one split: its test rows are the latest" in lines
    assert [one.sizes for one in timed.runs] == [(41, 7, 12)]
    (split,) = json.loads((tmp_path / "splits-table.json").read_text())["splits"]
    assert sorted(split["test"]) == list(range(48, 60))
    with pytest.raises(ValueError, match="runs with time = None, got stored ones with 'when'"):
        compare_tables([job()], tmp_path, splits=1, heads=["nona"])


def test_errors_count_by_weights_and_runs_of_other_weights_are_refused(tmp_path, monkeypatch):
    weighted = job(weight="w", drop=["when"])
    monkeypatch.setattr(compare, "predict_test", lambda model, opened, split: np.zeros(len(split.test)))
    found = compare_tables([weighted], tmp_path, splits=1, heads=["nona"])
    (split,) = json.loads((tmp_path / "splits-table.json").read_text())["splits"]
    rows, price = weighted.source.iloc[split["test"]], weighted.source["price"].iloc[split["train"]]
    error = np.average((rows["price"] / (price.max() - price.min())) ** 2, weights=rows["w"])
    assert found.runs[0].metrics["mse"] == pytest.approx(error)
    other = job(source=weighted.source.assign(w=1 + weighted.source.index % 4), weight="w", drop=["when"])
    with pytest.raises(ValueError, match="expected runs on 'table' with weights"):
        compare_tables([other], tmp_path, splits=1, heads=["nona"])


def test_the_command_plans_in_a_moment_and_refuses_wrong_engines(tmp_path, capsys):
    job().source.to_csv(tmp_path / "t.csv", index=False)
    line = ["compare", str(tmp_path / "t.csv"), "--target", "price", "--time", "when", "--weight", "w"]
    assert run([*line, "--heads", "nona", "--no-baselines", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "1 fit of nona" in shown
    assert "Nothing was trained or written." in shown
    assert run([*line, "--heads", "nona", "--no-baselines", "--dry-run", "--json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    assert list(table["columns"]) == ["a", "b"]
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]
    for more, words in (
        (["--engine", "dask"], "--engine: expected one of 'joblib', 'ray', got 'dask'"),
        (["--workers", "2"], "--workers: expected none without an engine, got 2; say --engine joblib"),
    ):
        assert run([*line, *more]) == 2
        assert words in capsys.readouterr().err
