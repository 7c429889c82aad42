"""vicinal export --mlflow: MLflow loads a model folder and predicts what vicinal predicts."""

import sys

import numpy as np
import pandas as pd
import pytest

from vicinal import NeighborRegressor
from vicinal.cli import run
from vicinal.workflows import log_mlflow, predict_table

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow warns of much while it is imported


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model with ids, and rows to predict, one of which is in its bank."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    model = NeighborRegressor(metric="kernel").fit(frame, frame["a"] + frame["b"] ** 2)
    model.notes_ = {"id": "name"}
    folder = tmp_path_factory.mktemp("mlflow") / "model"
    model.save(folder)
    return folder, frame[:3].assign(name=[0, 100, 101])


def test_without_mlflow_one_sentence_says_so(saved, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mlflow.pyfunc", None)
    assert run(["export", str(saved[0]), "--mlflow", str(tmp_path / "m")]) == 2
    assert "vicinal[mlflow]" in capsys.readouterr().err
    assert run(["export", str(saved[0])]) == 2
    assert "expected one of --onnx and --mlflow, got none" in capsys.readouterr().err


def test_a_saved_and_a_logged_model_predict_as_the_folder_does(saved, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="MLflow is an optional package")
    folder, rows = saved
    expected = predict_table(folder, rows, explain=2, coverage=0.8).flat()
    assert run(["export", str(folder), "--mlflow", str(tmp_path / "m")]) == 0
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run():
        logged = log_mlflow(folder, name="houses")
    for place in (str(tmp_path / "m"), logged.model_uri):
        model = mlflow.pyfunc.load_model(place)
        pd.testing.assert_frame_equal(model.predict(rows, params={"explain": 2, "interval": 0.8}), expected)
        assert list(model.predict(rows)) == ["row", "prediction"]
    listed = (tmp_path / "m" / "requirements.txt").read_text().split()
    assert any(line.startswith("vicinal==") for line in listed)
    assert not list((tmp_path / "m").rglob("*.pkl"))
