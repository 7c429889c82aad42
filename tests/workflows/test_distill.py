"""Promises of distillation: what the student learns from, what it keeps, and that all are measured on new rows."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from vicinal.cli import run
from vicinal.estimators import NeighborClassifier, load_model
from vicinal.estimators.label_codec import NumberCodec
from vicinal.estimators.loss import make_targets
from vicinal.losses import kl_top
from vicinal.training import Teacher
from vicinal.workflows import TableJob, distill_table, fit_table
from vicinal.workflows.distill import likeness_loss

BRIEF = {"max_epochs": 8, "members": 2, "hidden": (16, 4), "learning_rate": 1e-2, "columns": {"digits": "set"}}
TEACHER, STUDENT = "deep_sets:numbers", "moments:numbers"


def sums(rows=120, seed=0):
    """Sets of numbers and their sums; no label in the last 20 rows."""
    g = np.random.default_rng(seed)
    sets = [g.integers(0, 10, g.integers(1, 7)).tolist() for _ in range(rows)]
    total = [float(sum(one)) if row < rows - 20 else None for row, one in enumerate(sets)]
    return pd.DataFrame({"digits": sets, "total": total, "big": [None if t is None else str(t > 18) for t in total]})


def fitted(folder, target="total"):
    frame = sums()[["digits", target]]
    frame.to_json(folder.parent / "t.jsonl", orient="records", lines=True)
    frame.index += 1  # as rows of a file are numbered
    job = {"parameters": BRIEF | {"encoders": {"digits": TEACHER}}, "kinds": {"digits": "set"}, "baselines": False}
    fit_table(TableJob(folder.parent / "t.jsonl", target, **job), folder)
    return frame


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    place = tmp_path_factory.mktemp("distilled")
    frame = fitted(place / "teacher")
    more = sums(30, 5)[["digits"]]
    return (
        frame,
        place,
        distill_table(place / "teacher", frame, {"digits": STUDENT}, place / "student", unlabelled=more),
    )


def test_a_student_learns_from_rows_with_and_without_labels_and_keeps_those_with(taught):
    frame, place, outcome = taught
    assert outcome.rows == {"labelled": 80, "unlabelled": 50, "test": 20}
    student, teacher = load_model(place / "student"), load_model(place / "teacher")
    assert set(student.bank_.ids.tolist()) == set(teacher.bank_.ids.tolist())
    assert set(student.calibration_.ids.tolist()) == set(teacher.calibration_.ids.tolist())
    assert student.named_encoders() == {"digits": STUDENT}
    assert (student.loss, student.members, student.notes_["distilled_from"]) == (None, 2, "teacher")
    np.testing.assert_array_equal(student.predict(frame[["digits"]]), outcome.model.predict(frame[["digits"]]))
    assert {"report.html", "README.md", "splits.json"} <= {path.name for path in (place / "student").iterdir()}


def test_all_are_measured_on_rows_new_to_both(taught):
    frame, place, outcome = taught
    assert list(outcome.measures) == ["student", "teacher", "student on labels alone"]
    test = json.loads((place / "student" / "splits.json").read_text())
    rows = np.array(test["splits"][0]["test"] if "splits" in test else test[0]["test"])
    teacher = load_model(place / "teacher")
    assert not teacher.bank_.has(frame.index[rows].tolist()).any()
    for model, name in ((outcome.model, "student"), (teacher, "teacher")):
        error = np.square(model.predict(frame.iloc[rows][["digits"]]) - frame.iloc[rows]["total"]).mean()
        assert outcome.measures[name].scores["mse"] == pytest.approx(error)
        assert outcome.measures[name].seconds > 0
        assert outcome.measures[name].bytes > 1000


def test_without_a_share_and_without_more_rows_nothing_is_learned_from_the_teacher(taught):
    frame, place, _ = taught
    outcome = distill_table(place / "teacher", frame.iloc[:100], {"digits": STUDENT}, share=0.0)
    alone, student = outcome.measures["student on labels alone"], outcome.measures["student"]
    assert alone.scores == student.scores


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss",
    [*(pytest.param(name, marks=pytest.mark.slow) for name in ("kl_top", "matching")), "sinkhorn_distillation"],
)
def test_classes_are_taught_by_probabilities_and_by_the_likeness_of_rows(tmp_path, loss, capsys):
    fitted(tmp_path / "m", "big")
    command = ["distill", str(tmp_path / "m"), str(tmp_path / "t.jsonl"), "--encoder", f"set={STUDENT}", "--loss", loss]
    assert run([*command, "--json", "-q"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["rows"] == {"labelled": 80, "unlabelled": 20, "test": 20}
    assert said["measures"]["student"]["scores"]["accuracy"] >= 0.6
    assert isinstance(load_model(tmp_path / "m-student"), NeighborClassifier)


def test_labels_that_are_trained_on_are_mixed_with_predictions_and_those_held_out_are_not():
    labels, train = torch.tensor([0.0, 0.5, 1.0, 1.0]), torch.tensor([0, 1, 2])
    teacher = Teacher(torch.tensor([12.0, 14.0, 20.0, 10.0]), torch.tensor([0.5, 1.0, 0.0, 1.0]))
    mixed = make_targets(None, labels, train, teacher, NumberCodec(ends=(10.0, 20.0)))
    torch.testing.assert_close(mixed, torch.tensor([0.1, 0.4, 1.0, 1.0]))
    chances = Teacher(torch.tensor([[0.6, 0.4]]), 0.5).blend(torch.tensor([[0.0, 1.0]]))
    torch.testing.assert_close(chances, torch.tensor([[0.3, 0.7]]))


def test_the_matching_loss_does_not_tell_rows_apart_that_the_teacher_finds_far():
    """Its floor is the median of the teacher's similarities, softened by half of the middle half of them."""
    vectors = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
    loss = likeness_loss("matching", vectors, "l2")
    apart = -np.linalg.norm(vectors.numpy()[:, None] - vectors.numpy(), axis=-1)
    low, floor, high = np.quantile(apart[~np.eye(30, dtype=bool)], [0.25, 0.5, 0.75])
    soft = (high - low) / 2
    teacher = torch.tensor([[floor - soft - 3.0, floor - soft - 0.1, floor]])
    student = teacher.clone()
    student[0, 0] += 3.0
    assert loss(student, teacher).item() == pytest.approx(0, abs=1e-9)
    student[0, 2] += soft / 2  # in the middle of the rise of the scaling, from 0 to 1 over twice the softness
    assert loss(student, teacher) > 0.01 * soft
    assert likeness_loss("none", vectors, "l2") is None
    assert likeness_loss(kl_top, vectors, "l2") is kl_top


def test_likeness_is_compared_over_the_other_rows_of_a_batch():
    g = torch.Generator().manual_seed(0)
    vectors, x = torch.randn(9, 3, generator=g), torch.randn(4, 2, generator=g, dtype=torch.float64)
    teacher, ids = Teacher(torch.zeros(9), 0.0, vectors, kl_top, weight=2.0), torch.tensor([7, 0, 3, 8])
    expected = 0.0
    for row in range(4):
        others = [other for other in range(4) if other != row]
        q = torch.softmax(-(vectors[ids[others]].double() - vectors[ids[row]].double()).norm(dim=1), 0)
        p = torch.softmax(-(x[others] - x[row]).norm(dim=1), 0)
        expected += 2.0 * float((q * (q / p).log()).sum()) / 4
    assert float(teacher(x, torch.zeros(4), ids)) == pytest.approx(expected, rel=1e-6)
    assert torch.autograd.gradcheck(lambda e: teacher(e, torch.zeros(4), ids), x.requires_grad_())
    assert float(teacher(x[:2].detach(), torch.zeros(2), ids[:2])) == 0  # one other row has every share
    assert teacher.state_dict() == {}  # nothing of it goes into checkpoints


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoders": {"digits": TEACHER}}, r"^encoders: expected another encoder than the model has"),
        ({"encoders": {"digit": STUDENT}}, r"^encoders: expected columns or kinds that the model reads \(digits\)"),
        ({"share": 1.5}, r"^share: expected"),
        ({"loss": "ar2"}, r"^loss: expected"),
        ({"rows": slice(0, 30)}, r"^data: expected the rows that the model was fitted on"),
        ({"rows": "known"}, r"^data: expected at least 10 labelled rows that the model has not seen"),
    ],
)
def test_errors_say_what_was_expected(taught, change, message):
    frame, place, _ = taught
    rows = change.pop("rows", slice(None))
    if rows == "known":
        rows = np.sort(load_model(place / "teacher").bank_.ids) - 1
    arguments = {"encoders": {"digits": STUDENT}} | change
    with pytest.raises(ValueError, match=message):
        distill_table(place / "teacher", frame.iloc[rows], **arguments)


def test_a_model_of_several_classes_a_row_is_refused(tmp_path):
    x = np.arange(40.0)[:, None]
    model = NeighborClassifier(max_epochs=1, members=1).fit(x, [["a"], ["a", "b"], []] * 13 + [["b"]])
    model.save(tmp_path / "m")
    with pytest.raises(ValueError, match=r"^model: expected one that predicts numbers or a class a row"):
        distill_table(tmp_path / "m", pd.DataFrame(x), {"number": "numbers"})


def test_a_teacher_needs_shares_in_range_and_a_vector_a_row():
    with pytest.raises(ValueError, match=r"^share: expected numbers from 0 to 1"):
        Teacher(torch.zeros(3), torch.tensor([0.0, 2.0, 1.0]))
    with pytest.raises(ValueError, match=r"^vectors: expected \[3, d\]"):
        Teacher(torch.zeros(3), 0.5, None, kl_top)
    with pytest.raises(ValueError, match=r"^predictions: expected \(4,\), got \(3,\)"):
        Teacher(torch.zeros(3)).blend(torch.zeros(4))
