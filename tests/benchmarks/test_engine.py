"""benchmarks/engine.py counts the rows of a prediction, compares like with like, and resumes."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def engine(monkeypatch):
    if not FOLDER.is_dir():
        pytest.skip("the benchmarks are not beside the tests")
    monkeypatch.syspath_prepend(str(FOLDER))
    import engine

    yield engine
    for name in ("engine", "tables"):
        sys.modules.pop(name, None)


def lines(*rows):
    keys = ("part", "table", "size", "split", "method", "mse")
    return pd.DataFrame([dict(zip(keys, row, strict=True)) | {"rows": 80, "columns": 3} for row in rows])


def test_ten_first_of_signed_weights(engine):
    weights = [0.5, -0.3, *[0.1] * 10]  # absolute sum 1.8, net 1.2: -0.2 is the trend's
    neighbors = [SimpleNamespace(weight=weight) for weight in weights]
    told = SimpleNamespace(neighbors=neighbors, other_weight=-0.2, other_count=3)
    model = SimpleNamespace(explain=lambda rows, k: [told], metric_="kernel", readout_="kriging")
    made = engine.carried(model, None)
    assert made["carriers"] == 15
    assert made["ten"] == pytest.approx(1.6 / 2.0)
    assert made["chosen"] == "kernel kriging"


def test_scores_of_classes(engine):
    case = engine.Case(None, np.array(["a", "b", "b"]), None, np.array(["b", "a"]), classes=True)
    scores = engine.scores(case, np.array([[0.2, 0.8], [0.4, 0.6]]))
    assert scores["log_loss"] == pytest.approx(-(np.log(0.8) + np.log(0.4)) / 2)
    assert (scores["accuracy"], scores["auc"]) == (0.5, 1.0)


def test_means_are_of_splits_that_all_methods_have(engine):
    found = lines(
        ("uci", "yacht", "all", 0, "default", 2.0),
        ("uci", "yacht", "all", 0, "catboost", 1.0),
        ("uci", "yacht", "all", 1, "catboost", 9.0),
        ("uci", "wine", "all", 0, "default", 3.0),
        ("uci", "wine", "all", 0, "catboost", 1.0),
    ).assign(carriers=[30.0, np.nan, np.nan, 12.0, np.nan], ten=[0.6, np.nan, np.nan, 0.9, np.nan])
    table = engine.error_table(engine.common(found), "mse").splitlines()
    assert table[2] == "| wine | 80 | 3 | 1 | catboost | 3.000 | 1.000 | 12 | 90% |"  # losses first
    assert table[3] == "| yacht | 80 | 3 | 1 | catboost | 2.000 | 1.000 | 30 | 60% |"


def test_page_is_written_between_its_markers(engine, tmp_path):
    page, out = tmp_path / "page.md", tmp_path / "engine.csv"
    engine.keep(lines(("uci", "yacht", "all", 0, "catboost", 1.0)).to_dict("records"), out)
    page.write_text("before\n<!-- engine: uci -->\nold\n<!-- end of engine -->\nafter\n")
    engine.write_page(page, out)
    once = page.read_text()
    assert "| yacht | 80 | 3 | 1 | catboost | 1.000 |" in once
    assert once.startswith("before\n")
    assert once.endswith("after\n")
    assert "old" not in once
    engine.write_page(page, out)
    assert page.read_text() == once


def test_a_stopped_run_resumes(engine, tmp_path, monkeypatch):
    out = tmp_path / "engine.csv"
    engine.keep(lines(("plain", "diabetes", "all", 0, "lightgbm", 1.0)).to_dict("records"), out)

    class Here:
        """A process that says what it was asked."""

        def __init__(self, count, mp_context):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return False

        def submit(self, work, part, table, size, split, method, data, shared):
            line = lines((part, table, size, split, method, 2.0)).to_dict("records")[0]
            return SimpleNamespace(result=lambda: line)

    monkeypatch.setattr(engine, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(engine.os, "environ", dict(engine.os.environ))
    words = ["engine.py", "--out", str(out), "--only", "diabetes", "--methods", "lightgbm,catboost", "--splits", "2"]
    for _ in range(2):  # the second time nothing is left
        monkeypatch.setattr(sys, "argv", words)
        assert engine.main() == 0
        found = pd.read_csv(out)
        assert found["mse"].tolist() == [1.0, 2.0, 2.0, 2.0]
        assert found[["split", "method"]].drop_duplicates().shape[0] == 4
