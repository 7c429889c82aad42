"""Answers with a promised error rate: from Python, from files, and where nothing can be promised."""

import json

import numpy as np
import pandas as pd
import pytest

from vicinal.calibration import answering_threshold, drawn_rows
from vicinal.cli.program import run
from vicinal.estimators import NeighborClassifier
from vicinal.report.audit import audit_findings, selective_figure
from vicinal.workflows import audit_table, streaming


def rows(count, seed):
    draw = np.random.default_rng(seed)
    table = pd.DataFrame(draw.normal(size=(count, 2)), columns=["a", "b"])
    return table, np.where(table["a"] + 0.5 * draw.normal(size=count) > 0, "yes", "no")


@pytest.fixture(scope="module")
def model():
    table, words = rows(240, 0)
    return NeighborClassifier(metric="kernel", validation_fraction=0.5).fit(table, words)


def threshold_of(model, abstain, drawn=lambda count: np.arange(count)):
    """The threshold by its definition, from rows held out."""
    held_out = model.calibration_
    chances = model.predict_proba(held_out.rows, ids=held_out.ids)
    wrong = chances.argmax(1) != held_out.labels.numpy()
    at = drawn(len(wrong))
    return answering_threshold(chances.max(1)[at], wrong[at], abstain)


def test_rows_are_answered_from_the_threshold_on(model):
    table, _ = rows(60, 1)
    chances, answers = model.predict_proba(table).max(1), model.predict(table, abstain=0.1)
    assert model.answering_threshold(0.1) == pytest.approx(threshold_of(model, 0.1), rel=1e-6)
    is_answered = chances >= model.answering_threshold(0.1)
    assert 0 < is_answered.sum() < 60
    assert answers.tolist() == np.where(is_answered, model.predict(table).astype(object), None).tolist()


def test_groups_count_once_and_weights_as_rows():
    table, words = rows(240, 0)
    settings = {"metric": "kernel", "validation_fraction": 0.5}
    codes, mass = np.arange(240) // 2, 1.0 + np.arange(240) % 2
    weighted = NeighborClassifier(**settings).fit(table, words, sample_weight=mass)
    held_out = weighted.calibration_.weights.numpy()
    expected = threshold_of(weighted, 0.2, lambda count: drawn_rows(count, held_out))
    assert weighted.answering_threshold(0.2) == pytest.approx(expected, rel=1e-6)
    grouped = NeighborClassifier(**settings).fit(table, words, groups=codes)
    with pytest.raises(ValueError, match="the lowest error rate that 120 held-out rows can promise"):
        grouped.answering_threshold(0.001)  # of 240 rows in 120 groups


def test_an_audit_draws_the_error_by_coverage_and_a_file_has_empty_cells(model, tmp_path, capsys, monkeypatch):
    table, words = rows(150, 2)
    model.notes_ = {"target": "word"}
    model.save(tmp_path / "m")
    table.assign(word=words).to_csv(tmp_path / "new.csv", index=False)
    monkeypatch.setattr(streaming, "BATCH", 64)
    command = ["predict", str(tmp_path / "m"), str(tmp_path / "new.csv"), "--abstain", "0.1"]
    assert run([*command, "--out", str(tmp_path / "out.csv")]) == 0
    written, answers = pd.read_csv(tmp_path / "out.csv"), model.predict(table, abstain=0.1)
    count = sum(answer is not None for answer in answers)
    assert written["answered"].tolist() == [answer is not None for answer in answers]
    assert written["prediction"].astype(object).where(written["answered"], None).tolist() == answers.tolist()
    assert f"answered {count} of 150 rows" in capsys.readouterr().err
    assert run([*command, "--json"]) == 0
    said = capsys.readouterr()
    assert [one["prediction"] for one in json.loads(said.out)] == answers.tolist()
    assert f"answered {count} of 150 rows" in said.err
    audit = audit_table(tmp_path / "m", tmp_path / "new.csv")
    wrong, sure = model.predict(table) != words, model.predict_proba(table).max(1)
    surest = np.argsort(-sure, kind="stable")
    area = np.mean(np.cumsum(wrong[surest]) / np.arange(1, 151))
    assert any(f"(area under the error by share answered: {area:.2g})" in line for line in audit_findings(audit))
    line = selective_figure(audit).axes[0].lines[0]
    assert np.asarray(line.get_ydata())[-1] == pytest.approx(wrong.mean())


def test_what_cannot_be_promised_is_said(model, tmp_path, capsys):
    table, _ = rows(20, 3)
    with pytest.raises(ValueError, match=r"abstain: expected a number between 0 and 1, got 5; for 5 % say 0\.05"):
        model.predict(table, abstain=5)
    model.save(tmp_path / "m")
    table.to_csv(tmp_path / "new.csv", index=False)
    assert run(["predict", str(tmp_path / "m"), str(tmp_path / "new.csv"), "--abstain", "0.001"]) == 2
    assert "--abstain: expected at least 0." in capsys.readouterr().err


def test_of_several_classes_a_row_nothing_is_promised_and_that_is_said():
    table, words = rows(40, 0)
    settings = {"max_epochs": 1, "members": 1, "hidden": (4,), "validation_fraction": 0.25}
    several = NeighborClassifier(**settings).fit(table, [[word] for word in words])
    with pytest.raises(ValueError, match=r"^abstain: expected a model of one class a row, got one of several"):
        several.predict(table[:3], abstain=0.1)
