"""``vicinal learn``: a table to a folder that is searched, and what it says when it cannot."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from vicinal.cli import run
from vicinal.estimators import load_model
from vicinal.workflows.learn import Retrieved

QUICK = ["--max-epochs", "4", "-q"]


def things(classes=14, rows=6):
    rng = np.random.default_rng(0)
    kind = np.repeat(np.arange(classes), rows)
    frame = pd.DataFrame(
        rng.normal(size=(classes, 3))[kind] + 0.3 * rng.normal(size=(len(kind), 3)), columns=["a", "b", "c"]
    )
    frame.insert(0, "id", [f"t{i}" for i in range(len(kind))])
    note = [f"<b>thing</b> {i}" for i in range(len(kind))]
    return frame.assign(
        kind=[f"k{c}" for c in kind], note=note, price=frame["a"], tags=["x;y" if c % 2 else "z" for c in kind]
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("learn")
    things().to_csv(place / "things.csv", index=False)
    options = ["--same", "kind", "--id", "id", "--drop", "price", "--drop", "tags", "--text", "note"]
    assert run(["learn", str(place / "things.csv"), *options, "--encoder", "text=ngrams", *QUICK]) == 0
    return place


def test_a_learned_folder_has_all_rows_in_its_bank_and_a_report_of_unseen_classes(folder):
    model = load_model(folder / "things-model")
    assert len(model.bank_) == len(things())
    page = (folder / "things-model" / "report.html").read_text()
    for words in (
        "test rows of classes not seen in training",
        "MAP@R",
        "Best answered",
        "Worst answered",
        "labelled apart",
        "wrong",
    ):
        assert words in page
    assert "<script" not in page
    assert "<b>thing" not in page
    assert "&lt;b&gt;thing" in page
    assert not list(folder.glob(".things-model*"))


def test_a_learned_folder_is_searched_embedded_and_changed_as_any_other(folder, tmp_path, capsys):
    model = str(folder / "things-model")
    capsys.readouterr()
    assert run(["search", model, "--id", "t0", "-k", "3", "--json"]) == 0
    hits = json.loads(capsys.readouterr().out)[0]["hits"]
    assert [hit["id"] for hit in hits] == load_model(model).kneighbors(n_neighbors=3)[1][0].tolist()
    assert run(["search", model, "thing 7", "-k", "2", "-q"]) == 0
    assert run(["embed", model, str(folder / "things.csv"), "--out", str(tmp_path / "v.npy"), "-q"]) == 0
    assert np.linalg.norm(np.load(tmp_path / "v.npy"), axis=1) == pytest.approx(1, abs=1e-5)
    new = things().head(2).assign(id=["n0", "n1"], kind="never seen")
    new.to_csv(tmp_path / "new.csv", index=False)
    load_model(model).save(tmp_path / "copy")
    assert run(["add", str(tmp_path / "copy"), str(tmp_path / "new.csv"), "--target", "kind", "--id", "id", "-q"]) == 0
    assert "never seen" in load_model(tmp_path / "copy").classes_.tolist()
    assert run(["forget", str(tmp_path / "copy"), "--ids", "n0"]) == 0
    capsys.readouterr()
    assert run(["predict", model, str(folder / "things.csv")]) == 2
    assert "expected one that predicts" in capsys.readouterr().err


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("options", "measure"),
    [
        (["--same", "price", "--labels", "numbers", "--drop", "tags"], "r2@10"),
        (["--same", "tags", "--labels", "several", "--separator", ";", "--drop", "price"], "map@r"),
        (["--same", "kind", "--seen", "--drop", "price", "--drop", "tags"], "map@r"),
    ],
    ids=["numbers", "several", "seen"],
)
def test_numbers_several_classes_and_seen_ones_are_learned_too(folder, tmp_path, capsys, options, measure):
    capsys.readouterr()
    line = ["learn", str(folder / "things.csv"), *options, "--id", "id", "--drop", "note", "--out", str(tmp_path / "m")]
    assert run([*line, "--json", *QUICK]) == 0
    result = json.loads(capsys.readouterr().out)
    assert list(result["scores"]) == ["model", "frozen vectors", "PCA-whitened vectors"]
    assert next(iter(result["scores"]["model"])) == measure
    assert result["bank"] == len(things()) == sum(result["rows"].values())
    things().head(1).assign(id="n", tags="x;new").to_csv(tmp_path / "n.csv", index=False)
    assert run(["add", str(tmp_path / "m"), str(tmp_path / "n.csv"), "-q"]) == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--same", "knd"], "--same: expected one of 'id', 'a', 'b', 'c', 'kind'"),
        (["--same", "kind", "--id", "kind"], "--same: expected a column that is not the id or group too"),
        (["--same", "note", "--unseen"], "--same: expected at least 4 classes of two rows and more"),
        (["--same", "note", "--labels", "numbers"], "row 1, column note: expected a number, got"),
        (["--same", "kind", "--labels", "some"], "--labels: expected one of 'classes', 'several', 'numbers'"),
        (["--same", "kind", "--loss", "supco"], "--loss: expected the name of a loss"),
        (["--same", "kind", "--loss", "squared_error"], "--loss: expected"),
        (["--same", "kind", "--loss", "triplet", "--miner", "semi"], "--miner: expected one of"),
        (["--same", "kind", "--sampler", "strata"], "--sampler: expected one for labels that are classes"),
        (["--same", "kind", "--test", "20"], "--test: expected a number between 0 and 1, got 20.0; for 20 % say 0.2"),
        (["--same", "kind", "--use", "kind"], "--use: expected feature columns, got 'kind' too"),
        (["--same", "kind", "--dim", "0"], "--dim: expected a whole number of at least 2"),
    ],
)
def test_what_cannot_be_learned_is_one_sentence_and_nothing_is_written(folder, tmp_path, capsys, options, words):
    capsys.readouterr()
    assert run(["learn", str(folder / "things.csv"), *options, "--out", str(tmp_path / "m"), *QUICK]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error: {words}"), printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("task", "words", "other"), [("similarity", "fit --target", "learn"), ("regression", "learn --same", "fit")]
)
def test_what_the_other_command_has_made_is_not_replaced_unasked(tmp_path, capsys, task, words, other):
    things(1).to_csv(tmp_path / "things.csv", index=False)
    (tmp_path / "things-model").mkdir()
    (tmp_path / "things-model" / "config.json").write_text(
        f'{{"format": "vicinal-model", "version": 1, "task": "{task}"}}'
    )
    command, option = words.split()
    assert run([command, str(tmp_path / "things.csv"), option, "kind", "-q"]) == 2
    assert f"things-model holds a model of vicinal {other}" in capsys.readouterr().err
    assert [one.name for one in (tmp_path / "things-model").iterdir()] == ["config.json"]


@pytest.mark.slow
def test_names_that_look_like_numbers_are_added_and_relabelled_as_they_are_written(tmp_path, capsys):
    rng = np.random.default_rng(0)
    names = np.repeat(["1.00", "01", "2.50", "7", "3.5", "04"], 6)
    frame = pd.DataFrame({"id": [f"t{i}" for i in range(36)], "a": rng.normal(size=36), "kind": names})
    frame.to_csv(tmp_path / "t.csv", index=False)
    out = str(tmp_path / "m")
    assert run(["learn", str(tmp_path / "t.csv"), "--same", "kind", "--id", "id", "--out", out, *QUICK]) == 0
    frame.head(1).assign(id="n0").to_csv(tmp_path / "n.csv", index=False)
    pd.DataFrame({"id": ["t7"], "kind": ["2.50"]}).to_csv(tmp_path / "c.csv", index=False)
    assert run(["add", out, str(tmp_path / "n.csv"), "-q"]) == 0
    assert run(["relabel", out, str(tmp_path / "c.csv")]) == 0
    model = load_model(out)
    assert set(model.classes_.tolist()) == set(names)
    assert model.labels_of(["n0", "t7"]) == ["1.00", "2.50"]


def test_lists_in_a_cell_are_several_classes_and_groups_are_kept_apart_in_the_report(tmp_path, capsys):
    frame = things().drop(columns=["note", "price", "kind"])
    frame["tags"] = [["x", "y"] if i % 3 else ["z"] for i in range(len(frame))]
    frame["take"] = [f"take{i // 2}" for i in range(len(frame))]
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    options = ["--same", "tags", "--labels", "several", "--id", "id", "--group", "take", "--out", str(tmp_path / "m")]
    assert run(["learn", str(tmp_path / "t.parquet"), *options, *QUICK]) == 0
    model = load_model(tmp_path / "m")
    assert set(model.classes_.tolist()) == {"x|y", "z"}


def test_rows_of_one_group_are_no_answer_for_one_another():
    vectors = torch.nn.functional.normalize(torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), dim=1)
    groups = torch.tensor([0, 0, 1, 1, 2, 2])
    tested = Retrieved(None, None, np.arange(6), vectors, groups, groups, [""] * 6)
    for row, near in enumerate(tested.nearest(torch.arange(6))):
        assert len(near) == 4
        assert row // 2 not in [place // 2 for _, place in near]


def test_test_rows_of_which_no_two_are_alike_measure_nothing_and_the_model_is_there(tmp_path, capsys):
    pairs = things(classes=16, rows=2)
    pairs.to_csv(tmp_path / "t.csv", index=False)
    line = ["learn", str(tmp_path / "t.csv"), "--same", "kind", "--id", "id", "--drop", "note", "--test", "0.07"]
    assert run([*line, "--seen", "--max-epochs", "2", "-v"]) == 0
    said = capsys.readouterr().out
    assert "no two of the 2 test rows are alike" in " ".join(said.split())
    assert "nan" not in said
    assert len(load_model(tmp_path / "t-model").bank_) == len(pairs)
