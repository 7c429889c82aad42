"""``vicinal losses``: the lists, and the sheet of one method, whose examples run."""

import json

import pytest
import torch

from vicinal.cli import run
from vicinal.cli.output import output
from vicinal.core import entries
from vicinal.losses.spec import read_loss, read_teacher_loss
from vicinal.report import LABELS
from vicinal.report.losses import KINDS as METHOD_KINDS
from vicinal.report.losses import find_sheets, method_sheets

SHEETS = [sheet for kind in METHOD_KINDS for sheet in method_sheets(kind)]
each = pytest.mark.parametrize("sheet", SHEETS, ids=lambda s: f"{s.kind}-{s.name}")
METHODS = ("pair_loss", "loss", "class_loss", "teacher_loss", "regularizer", "miner", "sampler")
REGISTERED = {(kind, entry.name) for kind in METHODS for entry in entries(kind)}


def listed(capsys, *arguments):
    assert run(["losses", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_everything_that_is_registered_is_listed(capsys):
    found = listed(capsys, "--kind", "all")
    assert len(found) == len(REGISTERED)
    assert {sheet["name"] for sheet in found} == {name for _, name in REGISTERED}
    assert {sheet["kind"] for sheet in listed(capsys)} == {
        "pairs",
        "proxies",
        "predictions",
        "class scores",
        "teachers",
        "regularizers",
    }


def test_the_list_says_what_one_chooses_by(capsys, monkeypatch):
    found = {sheet["name"]: sheet for sheet in listed(capsys, "--kind", "pairs")}
    assert found["supcon"]["defaults"] == "temperature=0.1"
    assert found["supcon"]["paper"] == "arXiv:2004.11362"
    assert found["supcon"]["labels"] == ["classes", "several", "graded"]
    assert found["rank_n_contrast"]["labels"] == ["numbers"]
    monkeypatch.setattr(output, "_width", 200)
    assert run(["losses"]) == 0
    told = capsys.readouterr().out
    assert "supcon" in told
    assert "arXiv:2004.11362" in told
    assert "--kind miners" in told


def test_lists_by_labels(capsys):
    found = listed(capsys, "--labels", "numbers", "--kind", "all")
    names = {sheet["name"] for sheet in found}
    assert {"rank_n_contrast", "log_ratio", "label_contrast", "matching", "strata"} <= names
    assert not {"supcon", "arcface", "classes", "hard"} & names
    assert run(["losses", "--labels", "groups", "--kind", "pairs"]) == 0
    assert capsys.readouterr().out.startswith("none takes groups")


@each
def test_a_sheet_is_whole_and_without_tex(sheet):
    assert sheet.summary
    assert "proxies" not in sheet.family or sheet.kind == "proxies"
    assert sheet.labels
    assert set(sheet.labels) <= set(LABELS)
    assert sheet.verified
    for text in (sheet.summary, sheet.formula, *sheet.more, *(meaning for *_, meaning in sheet.settings)):
        assert not set("\\$`") & set(text), text
    for name, _, meaning in sheet.settings:
        assert meaning, f"{sheet.name} says nothing of {name}"


def names_for(sheet):
    """What the example of a sheet takes as given."""
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(12, 64, generator=generator)
    names = {"embeddings": embeddings, "labels": torch.arange(12) // 3, "guide": torch.eye(12)}
    if sheet.kind == "samplers":
        numbers = torch.arange(96)
        classes = {"labels": numbers // 4, "parents": numbers // 32, "groups": numbers // 2, "targets": numbers / 7}
        return {**classes, "embeddings": torch.randn(96, 8, generator=generator), "dataset": list(range(96))}
    if "numbers" in sheet.labels:
        names["labels"] = torch.arange(12) / 3
    if sheet.kind == "class scores":
        several = (torch.randn(12, 5, generator=generator) > 0).long()
        labels = several if sheet.labels == ("several",) else torch.arange(12) % 5
        scores = torch.randn(12, 5, generator=generator)
        return {"scores": scores, "labels": labels, "perturbed": scores + 0.1}
    if sheet.kind == "teachers":
        scores, teacher = torch.randn(2, 12, 5, generator=generator)
        return {"scores": scores, "teacher_scores": teacher, "target": torch.arange(12) % 5}
    names |= {"assignment": torch.eye(3)[torch.arange(12) % 3], "neighbors": torch.eye(12), "dim": 64}
    names |= {"temperature": torch.ones(12), "membership": torch.arange(12) % 3, "centers": torch.eye(4, 64)}
    names |= {"weights": embeddings, "predictions": torch.rand(12, generator=generator), "features": embeddings}
    names |= {"groups": torch.arange(12) % 2, "attributes": torch.randn(12, 2, generator=generator)}
    names["weight"] = torch.eye(10, 64)
    if sheet.name == "joint_distance_covariance":
        names["attributes"] = list(names["attributes"].T)
    if sheet.kind == "regularizers":
        return names
    names["guesses"], names["images"] = torch.randn(5, 3, 4, 2, generator=generator), torch.rand(2, 1, 161, 161)
    names |= {"others": names["images"], "scores": torch.zeros(4)}
    names |= {"noise_scores": torch.zeros(3), "noise_log_density": torch.zeros(3)}
    names["weights"] = (1 - torch.eye(12)) / 11
    shape = (5, 3) if "scores" in sheet.labels else (5,)
    for name in ("prediction", "target", "chosen", "rejected"):
        names[name] = torch.randn(shape, generator=generator)
    if sheet.name == "best_of_k":
        names["target"] = torch.zeros(5, 4, 2)
    return names


@each
def test_the_example_of_a_sheet_runs(sheet):
    names = names_for(sheet)
    exec(sheet.python, names)
    if sheet.kind == "samplers":
        assert len(next(iter(names["loader"]))) > 1
    else:
        assert names["loss"].isfinite().all()


@each
def test_the_command_of_a_sheet_is_understood(sheet):
    if sheet.command:
        text = sheet.command.partition('--loss "')[2].rstrip('"')
        if sheet.used == "distill":
            assert read_teacher_loss(text)
            return
        written = read_loss(text)
        assert written.main or written.terms
        for term in written.terms:
            term.make(num_classes=3, dim=4)


def test_a_sheet_is_printed(capsys):
    assert run(["losses", "show", "SupCon"]) == 0
    told = capsys.readouterr().out
    for part in ("supcon", "softmax", "temperature", "0.1", "divides the scores, > 0", "arXiv:2004.11362", "2.9.0"):
        assert part in told
    assert 'EmbeddingLoss("supcon", temperature=0.1)' in told
    assert '--loss "supcon(temperature=0.1)"' in told


def test_a_name_of_two_kinds_shows_both_unless_one_is_asked_for(capsys):
    assert [sheet.kind for sheet in find_sheets("multi-similarity")] == ["pairs", "miners"]
    assert run(["losses", "show", "multi_similarity", "--kind", "miners", "--json"]) == 0
    assert [sheet["kind"] for sheet in json.loads(capsys.readouterr().out)] == ["miners"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["show", "supcn"], "did you mean 'supcon'?"),
        (["show", "arcfase"], "did you mean 'arcface'?"),
        (["show", "semihrad"], "did you mean 'semihard'?"),
        (["--kind", "miner"], "did you mean 'miners'?"),
        (["--labels", "class"], "did you mean 'classes'?"),
    ],
)
def test_wrong_names_get_one_sentence(arguments, sentence, capsys):
    assert run(["losses", *arguments]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert told.count("\n") == 1
    assert sentence in told
