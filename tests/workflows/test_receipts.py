"""Promises of receipts: what went from which files, predictions as from a bank without the rows, what is refused."""

import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from vicinal.cli import run
from vicinal.core.folders import sha256
from vicinal.estimators import EmbeddingLearner, NeighborClassifier, NeighborRegressor, load_model
from vicinal.estimators.bank import Bank
from vicinal.workflows import receipts
from vicinal.workflows.bank import forget_rows, relabel_table
from vicinal.workflows.receipts import difference_without_history, free_name, verify_receipt

BRIEF = {"max_epochs": 1, "hidden": (4,), "members": 1, "metric": "network", "validation_fraction": 0.2}
IDS = [f"r{row}" for row in range(60)]


def fitted(kind=NeighborRegressor, changed=()):
    """A model of 60 rows; those at ``changed`` are other ones."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.normal(size=(60, 2)), columns=["a", "b"])
    y = frame["a"] ** 2 + 0.1 * draw.normal(size=60) if kind is NeighborRegressor else np.arange(60) % 3
    if changed:
        frame.loc[list(changed)], y[list(changed)] = 50.0, -900.0
    if kind is EmbeddingLearner:
        return kind(max_epochs=1).fit(frame, np.arange(60) % 12, ids=IDS)
    return kind(**BRIEF).fit(frame, y, ids=IDS)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("receipts") / "model"
    model = fitted()
    model.notes_ = {"target": "y", "id": "id"}
    model.save(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    shutil.copytree(saved, tmp_path / "model")
    page, sums = tmp_path / "model" / "report.html", tmp_path / "model" / "SHA256SUMS"
    page.write_text("rows r1 and r2")
    sums.write_text(sums.read_text() + f"{sha256(page)}  report.html\n")
    return tmp_path / "model"


@pytest.mark.parametrize("kind", [NeighborRegressor, NeighborClassifier, EmbeddingLearner])
def test_a_bank_made_anew_predicts_the_same_and_one_of_other_rows_does_not(kind, monkeypatch):
    model = fitted(kind).forget(IDS[3:9])
    compared, difference = difference_without_history(model)
    assert compared == len(model.bank_)
    assert difference < 1e-9
    take = Bank.take
    monkeypatch.setattr(Bank, "take", lambda bank, at: take(bank, at[: len(at) // 2]))
    assert difference_without_history(model)[1] > 1e-3


def test_rows_of_equal_cells_do_not_make_a_receipt_fail():
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"age": draw.integers(20, 26, 300), "sex": draw.choice(["f", "m"], 300)})
    y = frame["age"] + 3 * draw.normal(size=300)
    model = NeighborRegressor(metric="kernel", readout="comparables").fit(
        frame, y, ids=[f"r{row}" for row in range(300)]
    )
    assert difference_without_history(model)[1] < 1e-9


def test_a_receipt_names_the_rows_the_files_and_what_may_know_them(folder, tmp_path):
    before = {path.name: sha256(path) for path in folder.iterdir() if path.is_file()}
    model = load_model(folder)
    held_out = model.calibration_.ids[0]
    gone = [*[name for name in IDS if not model.calibration_.has([name])[0]][:2], held_out]
    change = forget_rows(folder, gone, receipt=tmp_path / "receipt.json")
    told = json.loads((tmp_path / "receipt.json").read_text())
    assert told == json.loads(change.receipt.model_dump_json())
    assert (told["model"], told["ids"], told["held_out"]) == ("model", gone, 1)
    assert told["bank"] == int(model.bank_.has(gone).sum())
    files = {one["name"]: (one["before"], one["after"]) for one in told["files"]}
    assert files["report.html"] == (before["report.html"], None)
    assert files["bank.safetensors"] == (before["bank.safetensors"], sha256(folder / "bank.safetensors"))
    assert before["bank.safetensors"] != sha256(folder / "bank.safetensors")
    assert "model.safetensors" not in files  # the network is as it was
    assert any("a network of" in part for part in told["remains"])
    cells = model.bank_.rows.to_numpy().ravel()
    assert not any(repr(float(cell))[:8] in (tmp_path / "receipt.json").read_text() for cell in cells)
    assert verify_receipt(tmp_path / "receipt.json").changed == []


def test_a_model_that_forgot_deeply_is_the_same_whatever_the_rows_were(tmp_path, monkeypatch):
    said, queries = [], pd.DataFrame({"a": [0.0, 0.5, 2.0], "b": [1.0, 0.0, -1.0]})
    held_out = fitted().calibration_.ids
    gone = [row for row, name in enumerate(IDS) if name not in held_out][:2]
    for name, changed in (("one", ()), ("other", gone)):
        model = fitted(changed=changed)
        model.notes_ = {"target": "y", "id": "id"}
        model.save(tmp_path / name)
        change = forget_rows(tmp_path / name, [IDS[row] for row in gone], deep=True, receipt=tmp_path / f"{name}.json")
        assert change.receipt.deep
        assert len(change.receipt.remains) == 2
        assert "which was fitted again without them" in verify_receipt(tmp_path / f"{name}.json").text()
        after = load_model(tmp_path / name)
        assert [each.what for each in after.changes_.history] == ["forget"]
        said.append([model.predict(queries), after.predict(queries)])
    assert (said[0][1] == said[1][1]).all()
    assert (said[0][0] != said[1][0]).all()
    assert (said[0][0] != said[0][1]).all()  # the network is another one
    monkeypatch.setattr(NeighborRegressor, "fit", lambda *rows, **named: 1 / 0)
    before = sha256(tmp_path / "one" / "model.safetensors")
    with pytest.raises(ZeroDivisionError):
        forget_rows(tmp_path / "one", ["r50"], deep=True)
    assert load_model(tmp_path / "one").bank_.has(["r50"]).all()
    assert sha256(tmp_path / "one" / "model.safetensors") == before


def test_a_network_without_folds_forgets_deeply_too():
    draw, rest = np.random.default_rng(1), np.arange(60) != 4
    x, settings = draw.normal(size=(60, 2)), {**BRIEF, "members": 1, "head": "nona"}
    model = NeighborRegressor(**settings).fit(x, x[:, 0], ids=IDS, validation=range(40, 60))
    before, other = model.predict(x[:5]), NeighborRegressor(**settings)
    other.fit(x[rest], x[rest, 0], ids=np.array(IDS)[rest], validation=range(39, 59))
    assert model.folds_ is None
    after = model.forget(["r4"], deep=True).predict(x[:5])
    assert (after == other.predict(x[:5])).all()
    assert (after != before).any()


def test_what_does_not_hold_is_refused(folder, tmp_path, monkeypatch):
    path = tmp_path / "receipt.json"
    relabel_table(folder, pd.DataFrame({"id": ["r4"], "y": [9.0]}))
    labelled = load_model(folder).changes_
    forget_rows(folder, ["r4"], receipt=path)
    with monkeypatch.context() as patch:
        patch.setattr(receipts, "load_model", lambda *place, **named: load_model(*place, **named).set_changes(labelled))
        patch.setattr(
            NeighborRegressor, "set_changes", lambda model, changes: with_changes(model, changes), raising=False
        )
        with pytest.raises(ValueError, match=r"^ids: expected no earlier labels of 'r4' in the journal"):
            verify_receipt(path)
        patch.undo()
        patch.setattr(receipts, "difference_without_history", lambda model: (50, 0.01))
        with pytest.raises(
            ValueError, match=r"^model: expected predictions of a bank without the rows, .* of 0\.01 on 50"
        ):
            forget_rows(folder, ["r5"], receipt=tmp_path / "other.json")
        assert not (tmp_path / "other.json").exists()
    load_model(folder).add(pd.DataFrame({"a": [0.0], "b": [0.0]}), [1.0], ids=["r4"]).save(folder)
    with pytest.raises(ValueError, match=r"^ids: expected none of the forgotten rows in .*, got 'r4', which is there"):
        verify_receipt(path)
    folder.rename(tmp_path / "moved")
    with pytest.raises(ValueError, match=r"^model: expected the folder of the receipt, got none at"):
        verify_receipt(path)
    path.write_text("{}")
    with pytest.raises(ValueError, match=r"^receipt\.json: expected a receipt of vicinal forget"):
        verify_receipt(path, tmp_path / "moved")


def with_changes(model, changes):
    model.changes_ = changes
    return model


def test_the_command_writes_a_receipt_and_checks_it(folder, tmp_path, capsys):
    assert run(["forget", str(folder), "--ids", "r1", "r2"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"2 rows forgotten; .*\n\d+ predictions checked: as from a bank without the rows", said)
    receipt = tmp_path / "model-forgotten.json"
    assert f"receipt {receipt}" in said.replace("\n", " ")
    assert free_name(folder).name == "model-forgotten-2.json"
    assert run(["forget", "--verify", str(receipt)]) == 0
    assert "as in the receipt" in capsys.readouterr().out
    pd.DataFrame({"id": ["n"], "a": [1.0], "b": [0.0], "y": [1.0]}).to_csv(tmp_path / "new.csv", index=False)
    assert run(["add", str(folder), str(tmp_path / "new.csv"), "-q"]) == 0
    assert run(["forget", str(folder), "--ids", "n", "--receipt", str(tmp_path / "n.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.partition("\n")[2])["receipt"] == str(tmp_path / "n.json")
    assert run(["forget", "--verify", str(receipt), str(folder)]) == 0
    assert "written again since: 'bank." in capsys.readouterr().out
    for words in ([], [str(folder)]):
        assert run(["forget", *words]) == 2
        assert "--verify RECEIPT" in capsys.readouterr().err
