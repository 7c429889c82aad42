"""benchmarks/engine.py counts the rows of a prediction, and resumes."""

import sys
from pathlib import Path
from types import SimpleNamespace

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
    for name in ("engine", "resumable", "tables"):
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


def test_a_stopped_run_resumes(engine, tmp_path, monkeypatch):
    out = tmp_path / "engine.csv"
    first = lines(("plain", "diabetes", "all", 0, "lightgbm", 1.0)).reindex(columns=engine.FIELDS)
    engine.Lines(out, *engine.KEY).add(first)

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
    words = ["engine.py", "--out", str(out), "--only", "diabetes", "--methods", "lightgbm", "catboost", "--splits", "2"]
    for _ in range(2):  # the second time nothing is left
        monkeypatch.setattr(sys, "argv", words)
        assert engine.main() == 0
        found = pd.read_csv(out)
        assert found["mse"].tolist() == [1.0, 2.0, 2.0, 2.0]
        assert found[["split", "method"]].drop_duplicates().shape[0] == 4
