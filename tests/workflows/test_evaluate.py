"""``vicinal evaluate`` on a small model: which rows are whose, what is found, and what is refused."""

import io
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from vicinal.cli import run
from vicinal.data import prepare_table
from vicinal.estimators import load_model
from vicinal.evaluation.wrong_labels import WrongLabels
from vicinal.report.audit import audit_findings, suspect_rows
from vicinal.report.audit_records import AuditRecord
from vicinal.workflows import Explorer, TableJob, audit_table, fit_table
from vicinal.workflows.bank import relabel_table
from vicinal.workflows.evaluate import equal_content
from vicinal.workflows.known_rows import known_rows, labelled_rows

QUICK = {"max_epochs": 3, "members": 2, "hidden": (16, 8), "learning_rate": 1e-3, "metric": "network"}


def table(rows: int = 160) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 3)).round(3)
    town = rng.choice(["north", "south", "east"], rows)
    y = x[:, 0] - x[:, 1] + 2.0 * (town == "north") + 0.1 * rng.normal(size=rows)
    frame = pd.DataFrame({"key": np.arange(1000, 1000 + rows), "a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "town": town})
    return frame.assign(y=y.round(3))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("audit")
    frame = table()
    test = None
    job = TableJob(frame, "y", id="key", parameters=QUICK, baselines=False)
    outcome = fit_table(job)
    test, train = int(outcome.split.test[0]), int(outcome.split.train[0])
    features = ["a", "b", "c", "town"]
    frame.loc[test, features] = frame.loc[train, features].to_numpy()  # a copy across the split, other label
    frame.to_csv(place / "rows.csv", index=False)
    (place / "pair.json").write_text(json.dumps([test + 1000, train + 1000]))
    fit_table(TableJob(place / "rows.csv", "y", id="key", parameters=QUICK, baselines=False), place / "model")
    return place


@pytest.fixture(scope="module")
def record(folder: Path) -> AuditRecord:
    return audit_table(folder / "model", folder / "rows.csv", suspects=200)


def parts(folder: Path, name: str) -> Counter[str]:
    """How many rows of a file an audit takes for which."""
    model = load_model(folder / "m")
    return Counter(known_rows(model, labelled_rows(model, folder / name, print))[1])


def test_every_row_stands_where_the_split_put_it(folder: Path, record: AuditRecord) -> None:
    split = json.loads((folder / "model" / "splits.json").read_text())
    sizes = {"bank": 108, "held out": 20, "new": 32}
    assert split
    assert record.rows == sizes
    assert len(record.predicted) == len(record.truth) == 32
    assert len(record.suspects) == 160


def test_baselines_learn_from_the_rows_that_the_model_knows(record: AuditRecord) -> None:
    assert set(record.baselines) == {"ridge", "kernel ridge", "support vectors", "boosting", "k-NN"}
    assert record.baselines["ridge"]["mse"] < 0.2
    assert any(note.startswith("ridge: alpha") for note in record.notes)


def test_figures_are_those_of_the_fit(folder: Path, record: AuditRecord) -> None:
    told = json.loads((folder / "model" / "config.json").read_text())
    assert record.scores["mse"] == pytest.approx(told["notes"]["scores"]["model"]["mse"], rel=1e-6)


def test_the_copy_across_the_split_is_named(folder: Path, record: AuditRecord) -> None:
    pair = set(json.loads((folder / "pair.json").read_text()))
    found = next(copies for copies in record.copies if set(copies.rows) == pair)
    assert found.across
    assert found.conflicting
    assert found.what == "all columns"


def test_slices_coverage_and_hubs(record: AuditRecord) -> None:
    assert {part.column for part in record.slices} == {"town"}
    assert sum(part.rows for part in record.target_slices) == 32
    levels = {level["coverage"]: level["covered"] for level in record.coverage}
    assert set(levels) == {0.5, 0.6, 0.7, 0.8, 0.9, 0.95}
    assert levels[0.95] >= levels[0.5]
    assert record.served.sum() == 32 * 10
    assert record.hubs[0].served == record.served.max()
    assert record.unused == (record.served == 0).mean()


COPIED = {
    "ranges": ("vector", [[50.0, 70.0]] * 2 + [[float(n), 1.0] for n in range(10)], False),
    "answers": ("set", [["Excel", "R"]] * 2 + [["R"], ["SAS"]] * 5, False),
    "photos": ("set", [["a.jpg"]] * 2 + [[f"{n}.jpg"] for n in range(10)], True),
    "embeddings": ("vector", [[n / 7 for n in range(9)]] * 2 + [[n / 3] * 9 for n in range(10)], True),
}


@pytest.mark.parametrize(("kind", "cells", "copied"), COPIED.values(), ids=COPIED)
def test_equal_short_lists_make_no_copies(kind, cells, copied):
    frame = pd.DataFrame({"x": range(12), "list": cells, "y": np.arange(12.0) ** 2})
    table = prepare_table(frame, "y")
    groups = [copies.rows for copies in equal_content(table, {"x": "number", "list": kind}, ["new"] * 12)]
    assert ([0, 1] in [list(rows) for rows in groups]) == copied


def test_equal_addresses_make_no_copies_also_where_they_are_read_as_many_numbers():
    streets = [f"{tree} street" for tree in ("elm", "oak", "ash", "fir", "yew", "lime", "pear", "plum", "birch")]
    cells = ["40 elm street"] * 2 + [f"{10 + 3 * n} {streets[n % 9]}" for n in range(88)]
    table = prepare_table(pd.DataFrame({"x": range(90), "address": cells, "y": np.arange(90.0) ** 2}), "y")
    assert len(str(table.frame["address"][0])) > 40
    assert equal_content(table, {"x": "number", "address": "vector"}, ["new"] * 90) == []


@pytest.mark.slow
def test_a_table_without_ids_knows_its_rows_by_place_and_content(tmp_path: Path) -> None:
    frame = table().drop(columns="key")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    fit_table(TableJob(tmp_path / "rows.csv", "y", parameters=QUICK, baselines=False), tmp_path / "m")
    assert parts(tmp_path, "rows.csv") == {"bank": 108, "held out": 20, "new": 32}
    other = frame.assign(a=frame.a + 0.5)  # other rows in the same places
    other.to_csv(tmp_path / "other.csv", index=False)
    assert parts(tmp_path, "other.csv")["new"] == 160


@pytest.mark.slow
def test_rows_with_missing_cells_and_images_are_known_again(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    photos = []
    for _ in range(80):
        file = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(file, "PNG")
        photos.append(file.getvalue())
    frame = pd.DataFrame({"photo": photos, "size": rng.normal(size=80), "price": rng.normal(size=80)})
    frame.loc[::3, "size"] = np.nan
    frame.to_parquet(tmp_path / "rows.parquet")
    settings = {"max_epochs": 1, "hidden": (4,), "members": 1, "metric": "network"}
    fit_table(TableJob(tmp_path / "rows.parquet", "price", parameters=settings, baselines=False), tmp_path / "m")
    assert parts(tmp_path, "rows.parquet") == {"bank": 54, "held out": 10, "new": 16}
    for column, other in (("size", frame["size"].fillna(5.0) + 1), ("photo", frame["photo"].iloc[::-1].to_numpy())):
        frame.assign(**{column: other}).to_parquet(tmp_path / "other.parquet")
        assert parts(tmp_path, "other.parquet")["new"] == 80


def test_prices_learned_as_logarithms_are_suspected_by_their_ratio(tmp_path: Path) -> None:
    frame = table().assign(y=lambda f: np.exp(10 + f.y))
    cheap = int(np.argsort(frame.y.to_numpy())[30])
    frame.loc[cheap, "y"] /= 50
    frame.to_csv(tmp_path / "rows.csv", index=False)
    settings = QUICK | {"target_transform": "log"}
    fit_table(TableJob(tmp_path / "rows.csv", "y", id="key", parameters=settings, baselines=False), tmp_path / "model")
    first = audit_table(tmp_path / "model", tmp_path / "rows.csv").suspects[0]
    assert first.row == 1000 + cheap
    assert first.label == pytest.approx(frame.y[cheap])
    assert 5 < first.expected / first.label < 500
    frame.loc[cheap, "y"] = 0.0  # has no logarithm: in its own units then
    frame.to_csv(tmp_path / "rows.csv", index=False)
    found = audit_table(tmp_path / "model", tmp_path / "rows.csv")
    assert all(np.isfinite(one.score) for one in found.suspects)


def test_a_kernel_doubts_numbers_alone_and_a_network_with_a_ridge(tmp_path: Path, record: AuditRecord) -> None:
    table().to_csv(tmp_path / "rows.csv", index=False)
    settings = {"metric": "kernel"}
    fit_table(TableJob(tmp_path / "rows.csv", "y", id="key", parameters=settings, baselines=False), tmp_path / "model")
    found = audit_table(tmp_path / "model", tmp_path / "rows.csv").suspects
    assert all(one.expected == pytest.approx(one.neighbors) for one in found)
    for listed in (found, record.suspects):  # as sorted as the column that is shown
        scores = [one.score for one in listed]
        assert scores == sorted(scores, reverse=True)
        assert len(set(scores)) > 20
    assert not any(one.expected == pytest.approx(one.neighbors) for one in record.suspects[:50])


def test_suspicious_rows_of_a_bank_come_before_new_rows_that_are_probably_right(folder: Path, monkeypatch) -> None:
    def doubted(model, labels, expected):  # of all rows a sign, of the bank's among themselves none
        sign = len(labels) > len(model.bank_)
        return WrongLabels(np.full(len(labels), 1.0 if sign else 5.0), np.full(len(labels), 0.2 * sign), 0.0)

    monkeypatch.setattr("vicinal.workflows.suspects.doubts", doubted)
    found = audit_table(folder / "model", folder / "rows.csv", suspects=200)
    parts = [one.part for one in found.suspects]
    assert "new" not in parts[: len(parts) - parts.count("new")]
    assert suspect_rows(found.suspects)[1][-1] == ""
    assert suspect_rows(found.suspects)[-1][-1] == "20 %"


@pytest.mark.parametrize(
    ("labels", "settings"),
    [("numbers", {"metric": "kernel"}), ("classes", {"metric": "trees"}), ("classes", QUICK)],
)
def test_the_page_counts_the_same_wrong_labels_of_the_bank(tmp_path: Path, labels: str, settings: dict) -> None:
    frame = table(240)
    wrong = np.arange(0, 240, 12)
    if labels == "classes":
        frame = frame.assign(y=lambda f: np.where(f.a > f.b, "up", "down"))
        frame.loc[wrong, "y"] = np.where(frame.a[wrong] > frame.b[wrong], "down", "up")
    else:
        frame.loc[wrong, "y"] = frame.loc[wrong[::-1], "y"].to_numpy()
    frame.to_csv(tmp_path / "rows.csv", index=False)
    job = TableJob(tmp_path / "rows.csv", "y", id="key", parameters=settings, baselines=False)
    fit_table(job, tmp_path / "model")
    found = audit_table(tmp_path / "model", tmp_path / "rows.csv", suspects=240)
    seen = {one["id"]: one["chance"] for one in Explorer(tmp_path / "model").suspects(240)}
    told = {one.row: one.chance for one in found.suspects if one.row in seen}
    assert len(seen) > (150 if labels == "numbers" else 15)
    assert told == pytest.approx(seen, abs=1e-3)
    assert max(told.values()) >= 0.5
    assert found.worth_checking == sum(one.chance >= 0.5 for one in found.suspects)
    assert not any("another label" in note for note in found.notes)
    one = next(row for row in found.suspects if row.part != "new")
    relabel_table(tmp_path / "model", pd.DataFrame({"key": [one.row], "y": [one.expected]}))
    few = audit_table(tmp_path / "model", tmp_path / "rows.csv", suspects=1)
    assert "Labels worth checking are those of the table: 1 row has another label in the model." in few.notes
    assert len(few.suspects) == 1 < few.worth_checking


def test_classes_get_sets_and_suspects(tmp_path: Path) -> None:
    frame = table(240).assign(y=lambda f: np.where(f.a > f.b, "up", "down"))
    wrong = [3, 70, 200]
    frame.loc[wrong, "y"] = np.where(frame.a[wrong] > frame.b[wrong], "down", "up")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    fit_table(TableJob(tmp_path / "rows.csv", "y", id="key", parameters=QUICK, baselines=False), tmp_path / "model")
    found = audit_table(tmp_path / "model", tmp_path / "rows.csv")
    assert set(found.class_sets) == {"lac", "aps", "raps"}
    assert {suspect.row - 1000 for suspect in found.suspects[:12]} & set(wrong)
    assert found.coverage == []
    assert found.classes == ["down", "up"]
    among = found.multiplicity
    assert 0 <= among["discrepancy"] <= among["ambiguity"] <= 1
    model = load_model(tmp_path / "model")
    fresh = frame[~model.bank_.has(frame["key"].tolist())]
    vectors, heads = torch.from_numpy(model.embed(fresh[list(model.kinds_)])), model.network_.head.heads
    bank, labels = model.bank_.vectors.double().chunk(len(heads), 1), model.fitted_.bank_labels()
    pairs = zip(heads, vectors.chunk(len(heads), 1), bank, strict=True)
    chances = torch.stack([head(some, rows, labels) for head, some, rows in pairs]).detach()
    decided = chances.argmax(-1) != chances.mean(0).argmax(-1)
    assert among["members"] == len(heads)
    assert among["ambiguity"] == pytest.approx(float(decided.any(0).double().mean()))
    assert among["discrepancy"] == pytest.approx(float(decided.double().mean(1).max()))
    truth = torch.from_numpy((fresh["y"] == "up").to_numpy().astype(int))
    spans = chances.gather(2, truth.expand(len(heads), -1)[..., None])[..., 0]
    assert among["viable_range"] == pytest.approx(float((spans.amax(0) - spans.amin(0)).mean()))
    assert any("members of the ensemble disagree on" in sentence for sentence in audit_findings(found))


def test_rows_of_a_class_that_the_model_does_not_know_are_wrong_and_told_of(tmp_path: Path) -> None:
    """Rows that it learned from, too, which were renamed since: the comparison with baselines was refused for these."""
    frame = table(80).assign(y=lambda f: np.where(f.a > f.b, "up", "down"))
    fit_table(TableJob(frame, "y", id="key", parameters=QUICK, baselines=False), tmp_path / "model")
    renamed = frame.assign(y=np.where(np.arange(80) % 9, frame.y, "level"))
    before, found = (audit_table(tmp_path / "model", one) for one in (frame, renamed))
    assert "Classes that the model does not know count as wrong: 'level' (9 times)." in found.notes
    assert not any("does not know" in note for note in before.notes)
    assert set(found.baselines) == set(before.baselines) > {"k-NN"}
    assert found.scores["accuracy"] < before.scores["accuracy"]


@pytest.mark.parametrize(
    ("classes", "told"), [(True, "sets of classes that cover 90%"), (False, "intervals that cover 90%, 95%")]
)
def test_what_could_not_be_calibrated_is_said(tmp_path: Path, classes: bool, told: str) -> None:
    frame = table(52)  # 6 or 7 rows are held out
    if classes:
        frame = frame.assign(y=np.where(frame.a > frame.b, "up", "down"))
    frame.to_csv(tmp_path / "rows.csv", index=False)
    fit_table(TableJob(tmp_path / "rows.csv", "y", id="key", parameters=QUICK, baselines=False), tmp_path / "model")
    found = audit_table(tmp_path / "model", tmp_path / "rows.csv", log=print)
    assert not found.class_sets
    assert [note for note in found.notes if "too few for" in note and told in note]


def test_the_command_writes_page_and_json(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "audit.html"
    assert run(["evaluate", str(folder / "model"), str(folder / "rows.csv"), "--out", str(out), "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert "both new rows and rows that the model has seen" in shown
    assert "Labels worth checking" in shown
    for asked, printed in (([], 10), (["--suspects", "13"], 13)):
        assert run(["evaluate", str(folder / "model"), str(folder / "rows.csv"), "-v", "-q", *asked]) == 0
        listed = capsys.readouterr().out.split("Labels worth checking")[1]
        assert len(re.findall("new|held out|bank", listed)) == printed
    page = out.read_text()
    assert "What stands out" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    told = json.loads(out.with_suffix(".json").read_text())
    assert told["rows"]["new"] == 32
    assert any(copies["across"] for copies in told["copies"])


def test_bad_input_is_one_sentence(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = pd.read_csv(folder / "rows.csv")
    frame.drop(columns="y").to_csv(tmp_path / "unlabelled.csv", index=False)
    assert run(["evaluate", str(folder / "model"), str(tmp_path / "unlabelled.csv")]) == 2
    assert "data: expected the column 'y'" in capsys.readouterr().err
    assert run(["evaluate", str(folder / "model"), str(folder / "rows.csv"), "--out", str(tmp_path / "a.pdf")]) == 2
    assert "--out: expected a name that ends in .html" in capsys.readouterr().err
    seen = audit_table(folder / "model", folder / "rows.csv", suspects=200)
    places = [suspect.row - 1000 for suspect in seen.suspects if suspect.part == "bank"]
    frame.iloc[sorted(places)].to_csv(tmp_path / "bank.csv", index=False)
    assert run(["evaluate", str(folder / "model"), str(tmp_path / "bank.csv")]) == 2
    assert "expected at least 10 rows that the model has not seen, got 0" in capsys.readouterr().err
