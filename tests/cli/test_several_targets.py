"""Several numbers a row from the command line: fit, predict, explain, add; commands of one target refuse."""

import json

import numpy as np
import pandas as pd
import pytest

from vicinal.cli import run
from vicinal.estimators import load_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place, rng = tmp_path_factory.mktemp("targets"), np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(90, 2)), columns=["a", "b"])
    table.insert(0, "id", [f"r{i}" for i in range(90)])
    table["price"], table["size"] = 1000 * np.sin(table["a"]), table["b"] ** 2
    table.loc[3, "size"] = np.nan
    table.to_csv(place / "t.csv", index=False)
    line = ["fit", str(place / "t.csv"), "--target", "price", "--target", "size", "--id", "id", "--metric", "kernel"]
    assert run([*line, "--no-baselines", "--out", str(place / "m"), "-q"]) == 0
    return place


def error(capsys, arguments):
    capsys.readouterr()
    assert run(arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    return printed.err


def test_a_fit_of_two_targets_reports_each_and_leaves_out_rows_without_one(folder):
    model = load_model(folder / "m")
    assert model.targets_ == ["price", "size"]
    assert "r3" not in model.bank_.ids
    assert len(model.bank_) + len(json.loads((folder / "m" / "splits.json").read_text())["splits"][0]["test"]) == 89
    for name, other in (("report.html", "size in report-2.html"), ("report-2.html", "price in report.html")):
        assert other in (folder / "m" / name).read_text()


def test_predictions_of_each_target_stand_in_columns_of_their_own(folder, capsys):
    capsys.readouterr()
    assert run(["predict", str(folder / "m"), str(folder / "t.csv"), "--interval", "0.8", "--json", "-q"]) == 0
    first = json.loads(capsys.readouterr().out)[0]
    assert set(first) == {
        "row",
        *(f"{what}_{name}" for what in ("prediction", "low", "high") for name in ("price", "size")),
    }
    assert first["low_size"] <= first["prediction_size"] <= first["high_size"]
    assert run(["predict", str(folder / "m"), str(folder / "t.csv"), "--out", str(folder / "p.parquet"), "-q"]) == 0
    assert list(pd.read_parquet(folder / "p.parquet").columns) == ["row", "prediction_price", "prediction_size"]


def test_an_explanation_is_of_the_target_that_is_named(folder, capsys):
    capsys.readouterr()
    assert run(["explain", str(folder / "m"), "--id", "r5", "--target", "size", "--json", "-q"]) == 0
    explained = json.loads(capsys.readouterr().out)[0]
    assert explained["label"] == pytest.approx(pd.read_csv(folder / "t.csv")["size"][5])
    assert "expected one of 'price', 'size'" in error(capsys, ["explain", str(folder / "m"), "--id", "r5"])
    assert "got 'prize'" in error(capsys, ["explain", str(folder / "m"), "--id", "r5", "--target", "prize"])


def test_an_audit_is_of_each_target_or_of_the_one_that_is_named(folder, tmp_path, capsys):
    new = pd.read_csv(folder / "t.csv").assign(id=[f"n{i}" for i in range(90)], b=lambda rows: rows["b"] + 0.1)[:30]
    new.to_csv(tmp_path / "new.csv", index=False)
    (tmp_path / "out").mkdir()
    line = ["evaluate", str(folder / "m"), str(tmp_path / "new.csv"), "-q"]
    capsys.readouterr()
    assert run([*line, "--out", str(tmp_path / "out" / "audit.html"), "--json"]) == 0
    audits = json.loads(capsys.readouterr().out)["targets"]
    assert list(audits) == ["price", "size"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        f"audit{place}.{kind}" for place in ("", "-2") for kind in ("html", "json")
    }
    predicted = load_model(folder / "m").predict(new[["a", "b"]])
    for place, name in enumerate(audits):
        errors = (predicted[:, place] - new[name]) ** 2  # one row has no size
        assert audits[name]["scores"]["mse"] == pytest.approx(errors.mean())
        assert audits[name]["rows"] == {"bank": 0, "held out": 0, "new": int(errors.notna().sum())}
    assert run([*line, "--target", "size"]) == 0
    assert "price" not in capsys.readouterr().out.split("Labels")[0]
    assert "got 'prize'" in error(capsys, [*line, "--target", "prize"])


def test_rows_are_added_and_relabelled_with_both_numbers(folder, tmp_path):
    load_model(folder / "m").save(tmp_path / "m")
    pd.DataFrame({"id": ["n"], "a": [9.0], "b": [9.0], "size": [2.0], "price": [1.0]}).to_csv(
        tmp_path / "n.csv", index=False
    )
    assert run(["add", str(tmp_path / "m"), str(tmp_path / "n.csv"), "--id", "id", "-q"]) == 0
    assert load_model(tmp_path / "m").labels_of(["n"]) == [[1.0, 2.0]]
    pd.DataFrame({"id": ["n"], "price": [3.0], "size": [4.0]}).to_csv(tmp_path / "c.csv", index=False)
    assert run(["relabel", str(tmp_path / "m"), str(tmp_path / "c.csv")]) == 0
    assert load_model(tmp_path / "m").labels_of(["n"]) == [[3.0, 4.0]]
    assert run(["show", str(tmp_path / "m")]) == 0


def test_a_command_of_one_target_refuses_in_one_sentence(folder, capsys):
    assert "expected one of numbers or of one class a row" in error(capsys, ["explore", str(folder / "m")])


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (["price", "sizes"], "--target: expected one of"),
        (["price", "price"], "--target: expected different columns"),
        (["price", "id"], "--target: expected columns that are not the id, group or weight too, got 'id'"),
    ],
)
def test_wrong_targets_are_told(folder, capsys, tmp_path, targets, words):
    options = [word for name in targets for word in ("--target", name)]
    line = ["fit", str(folder / "t.csv"), *options, "--id", "id", "--out", str(tmp_path / "m"), "-q"]
    assert words in error(capsys, line)
    assert not (tmp_path / "m").exists()
