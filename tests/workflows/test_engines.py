"""predict --engine: workers of Ray, and pandas functions of Spark, give what one process gives."""

import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from vicinal import NeighborClassifier, NeighborRegressor
from vicinal.cli import run
from vicinal.data import read_table, write_table
from vicinal.workflows import predict_table, streaming
from vicinal.workflows.engines import BatchPredictor, model_digest
from vicinal.workflows.streaming import predict_file

ROWS = 700
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray and Spark warn of much


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Models of numbers and of words, and a table of new rows."""
    folder, random = tmp_path_factory.mktemp("engines"), np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(60, 2)), columns=["a", "b"])
    target = frame["a"] + frame["b"] ** 2
    NeighborRegressor(metric="kernel").fit(frame, target).save(folder / "numbers")
    words = NeighborClassifier(max_epochs=1, members=1, hidden=(8, 4))
    words.fit(frame.assign(c=np.where(frame["a"] > 0, "x", "y")), np.where(target > 1, "high", "low"))
    words.save(folder / "words")
    new = pd.DataFrame(random.normal(size=(ROWS, 2)), columns=["a", "b"]).assign(c=random.choice(["x", "z"], ROWS))
    write_table(new, folder / "new.parquet")
    return folder


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(streaming, "BATCH", 64)
    monkeypatch.setattr(streaming, "_MOST", 128)


def test_without_ray_one_sentence_says_so(place, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    given = ["predict", str(place / "numbers"), str(place / "new.parquet"), "--out", str(tmp_path / "out.csv")]
    for more, words in (
        (["--engine", "ray"], "--engine: expected the package ray, got"),
        (["--engine", "dask"], "--engine: expected one of"),
        (["--workers", "2"], "--workers: expected none without an engine, got 2"),
        (["--engine", "ray", "--json"], "--engine: expected none with --json"),
    ):
        assert run([*given, *more]) == 2
        assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_worker_predicts_its_batch_and_refuses_a_model_that_was_changed(place):
    new, settings = (
        read_table(place / "new.parquet"),
        {"explain": 1, "elements": False, "coverage": None, "keep": ["c"]},
    )
    given = (place / "numbers", None, settings, {})
    table, lines = BatchPredictor(*given, model_digest(place / "numbers")).predict(new[64:128])
    expected = predict_table(place / "numbers", new, explain=1, keep=["c"]).flat()[64:128].reset_index(drop=True)
    pd.testing.assert_frame_equal(table, expected, rtol=1e-12)
    assert lines == ["passed over 1 column that the model does not read: 'c'"] or "passed over 1 column" in lines[0]
    with pytest.raises(ValueError, match="expected numbers to stay while it predicts"):
        BatchPredictor(*given, ["0" * 64])


class Killed(BaseException):
    """What stops a run as a kill would."""


@pytest.mark.slow
def test_workers_of_ray_give_what_one_process_gives(place, tmp_path, monkeypatch):
    ray = pytest.importorskip("ray", reason="Ray is an optional package")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        for model, settings in (("numbers", {"explain": 2}), ("words", {"keep": ["c"]})):
            out, lines = tmp_path / f"{model}.parquet", []
            given = (place / model, place / "new.parquet")
            assert predict_file(*given, out, engine="ray", workers=2, log=lines.append, **settings) == ROWS
            got, expected = read_table(out).reset_index(drop=True), predict_table(*given, **settings).flat()
            pd.testing.assert_frame_equal(got, expected, check_dtype=False, check_column_type=False, rtol=1e-12)
        given, put = (place / "numbers", place / "new.parquet", tmp_path / "out.parquet"), streaming._put_aside

        def put_aside(frames, work):
            if len(streaming._parts(work)) == 2:
                raise Killed
            put(frames, work)

        with monkeypatch.context() as patch:
            patch.setattr(streaming, "_put_aside", put_aside)
            with pytest.raises(Killed):
                predict_file(*given, engine="ray", workers=2)
        assert predict_file(*given, engine="ray", workers=2, log=lines.append) == ROWS
        assert any(re.match("going on behind [1-9][0-9]* rows", line) for line in lines)
        write_table(pd.DataFrame({"a": ["1.5"] * 99 + ["many"], "b": 1.0}), tmp_path / "q.csv")
        with pytest.raises(ValueError, match=r"^a: expected a number in row 100, got 'many'"):
            predict_file(place / "numbers", tmp_path / "q.csv", tmp_path / "bad.csv", engine="ray", workers=2)
        assert not (tmp_path / "bad.csv").exists()
    finally:
        ray.shutdown()


@pytest.mark.slow
def test_the_function_of_spark_in_the_documentation_gives_what_one_process_gives(place, tmp_path, monkeypatch):
    sql = pytest.importorskip("pyspark.sql", reason="Spark is an optional package")
    page = Path(__file__).parents[2] / "docs" / "scaling.md"
    (code,) = re.findall(r"^```py\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    code = code.replace("houses-model", str(place / "numbers"))
    monkeypatch.chdir(tmp_path)
    write_table(read_table(place / "new.parquet"), tmp_path / "new.parquet")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    session = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        exec(compile(code, page.name, "exec"), {})
        got = session.read.parquet("prices.parquet").toPandas().sort_values(["a", "b"])
    finally:
        session.stop()
    expected = predict_table(place / "numbers", place / "new.parquet", keep=["a", "b"]).flat().sort_values(["a", "b"])
    np.testing.assert_allclose(got["prediction"], expected["prediction"], rtol=1e-12)
