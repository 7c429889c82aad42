"""Promises of a classifier whose rows may have several classes, or none: probabilities, thresholds, bank and folder."""

import hashlib
import io
import json

import numpy as np
import pandas as pd
import pytest
import torch

from vicinal.calibration import f1_thresholds
from vicinal.cli import run
from vicinal.estimators import NeighborClassifier, load_model
from vicinal.estimators.several import read_multilabel
from vicinal.training.error import error_of

BRIEF = {"max_epochs": 12, "learning_rate": 2e-2, "hidden": (16, 4), "members": 2, "batch_size": 64}
NAMES = ["moon", "sea", "sun"]


def rows(count, seed):
    x = np.random.default_rng(seed).normal(size=(count, 4))
    table = (x[:, :3] > 0.3).astype(int)
    return x, table, [[name for name, has in zip(NAMES, row, strict=True) if has] for row in table]


@pytest.fixture(scope="module")
def model():
    x, _, tags = rows(240, 0)
    return NeighborClassifier(**BRIEF).fit(x, tags)


def test_each_class_has_its_probability_and_is_said_from_its_threshold_on(model):
    x, table, _ = rows(120, 1)
    chances = model.predict_proba(x)
    assert model.classes_.tolist() == NAMES
    assert chances.shape == (120, 3)
    assert 0 <= chances.min() <= chances.max() <= 1
    assert (table.sum(1) == 0).any()  # rows without any class
    assert abs(chances.sum(1) - 1).max() > 0.5
    np.testing.assert_array_equal(model.predict(x), chances >= model.thresholds_)
    assert (model.predict(x) == table).mean() > 0.9


def test_a_probability_is_the_weight_of_the_neighbors_that_have_the_class(model):
    x, _, _ = rows(3, 2)
    for explained, chances in zip(model.explain(x, 10_000), model.predict_proba(x), strict=True):
        assert explained.prediction == NAMES[chances.argmax()]
        for place, name in enumerate(NAMES):
            weight = sum(n.weight for n in explained.neighbors if name in n.label)
            assert weight == pytest.approx(chances[place], abs=1e-9)
        assert explained.total == pytest.approx(sum(n.contribution for n in explained.neighbors), abs=1e-9)
    assert all(isinstance(hit.label, tuple) for hit in model.search(x, 2)[0])


def test_rows_come_go_and_are_saved(model, tmp_path):
    x, _, tags = rows(30, 3)
    before, thresholds = model.predict_proba(x), model.thresholds_
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(x), before)
    np.testing.assert_array_equal(loaded.thresholds_, thresholds)
    loaded.add(x, tags)
    assert abs(loaded.predict_proba(x) - before).max() > 1e-6
    loaded.forget(range(240, 270))
    np.testing.assert_allclose(loaded.predict_proba(x), before, atol=1e-12)
    np.testing.assert_allclose(loaded.thresholds_, thresholds, atol=1e-12)
    held_out = loaded.calibration_.ids
    loaded.forget(held_out)
    assert loaded.thresholds_.tolist() == [0.5] * 3
    with pytest.raises(ValueError, match=r"^y: expected classes that the model was fitted with, got 'rain' in row 1"):
        loaded.add(x[:2], [["sea"], ["rain"]])


def test_the_program_predicts_and_adds_rows_of_several_classes(tmp_path, capsys):
    x, _, tags = rows(60, 5)
    frame = pd.DataFrame(x, columns=list("pqrs"))
    fitted = NeighborClassifier(**BRIEF).fit(frame, tags)
    fitted.save(tmp_path / "m")
    fresh, table, names = rows(6, 6)
    new = pd.DataFrame(fresh, columns=list("pqrs")).assign(signs=["|".join(each) or "|" for each in names])
    new.to_csv(tmp_path / "new.csv", index=False)
    arguments = [str(tmp_path / "m"), str(tmp_path / "new.csv")]
    assert run(["predict", *arguments, "--explain", "2", "-q"]) == 0
    said = pd.read_csv(io.StringIO(capsys.readouterr().out), keep_default_na=False)
    wanted = ["|".join(np.array(NAMES)[row == 1]) for row in fitted.predict(new[list("pqrs")])]
    assert said["prediction"].tolist() == wanted
    assert set("|".join(said["neighbor_1_label"]).split("|")) <= {*NAMES, ""}
    assert run(["add", *arguments, "--target", "signs"]) == 0
    grown = load_model(tmp_path / "m")
    np.testing.assert_array_equal(grown.bank_.labels[-6:].numpy(), table)


def test_a_folder_with_other_labels_than_its_classes_is_refused(model, tmp_path):
    folder = tmp_path / "model"
    model.save(folder)
    path, sums = folder / "config.json", folder / "SHA256SUMS"
    before = path.read_bytes()
    path.write_text(json.dumps(json.loads(before) | {"multilabel": False}))
    digests = [hashlib.sha256(content).hexdigest() for content in (before, path.read_bytes())]
    sums.write_text(sums.read_text().replace(*digests))
    with pytest.raises(ValueError, match=r"^bank\.json: expected rows with the labels and columns of config\.json"):
        load_model(folder)


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    "settings",
    [
        {"head": "dense"},
        {"loss": "margin_surrogate"},
        {"loss": "0.5*supcon(temperature=.2)"},
        {"validation_fraction": 0, "members": 3},
    ],
)
def test_heads_losses_and_folds_take_several_classes(settings):
    x, _, tags = rows(240, 0)
    fresh, truth, _ = rows(120, 1)
    fitted = NeighborClassifier(**{**BRIEF, **settings}).fit(x, tags)
    assert (fitted.predict(fresh) == truth).mean() > 0.85


def test_a_matrix_a_table_and_lists_say_the_same():
    _, table, tags = rows(20, 0)
    frame = pd.DataFrame(table[:, ::-1], columns=NAMES[::-1]).astype(bool)
    for y, names in (
        (tags, NAMES),
        (frame, NAMES),
        (pd.Series(tags), NAMES),
        (table, [0, 1, 2]),
        (table.tolist(), [0, 1, 2]),
    ):
        classes, labels = read_multilabel(y)
        assert classes.tolist() == names
        np.testing.assert_array_equal(labels, table)
    np.testing.assert_array_equal(read_multilabel(frame[["sun", "moon", "sea"]], np.array(NAMES))[1], table)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([["a"], "b"] * 10, r"^y: expected a list of classes for each row, empty for none, got 'b' in row 1"),
        ([["a"], [1]] * 10, r"^y: expected lists of classes of one type"),
        ([["a"], []] * 10, r"^y: expected at least two classes"),
        ([["a", "b"]] * 20, r"^y: expected classes that differ from row to row"),
        (np.full((20, 2), 0.5), r"^y: expected 0 or 1 for each class, got 0.5 in row 0"),
        ([["a"], ["b"]] * 9, r"^y: expected 20 labels"),
    ],
)
def test_errors_say_what_was_expected(y, message):
    with pytest.raises(ValueError, match=message):
        NeighborClassifier(**BRIEF).fit(np.arange(20.0)[:, None], y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "comp_sum"}, r"^loss: expected one for several classes a row \(.*margin_surrogate"),
        ({"readout": "rows"}, r"^readout: expected 'attention' for several classes a row, got 'rows'"),
    ],
)
def test_settings_for_one_class_a_row_are_refused(settings, message):
    x, _, tags = rows(20, 0)
    with pytest.raises(ValueError, match=message):
        NeighborClassifier(**BRIEF, **settings).fit(x, tags)


def test_sets_of_classes_are_for_one_class_a_row(model, classifier):
    with pytest.raises(ValueError, match=r"^predict_set: expected a model of one class a row"):
        model.predict_set(rows(3, 0)[0])
    assert not hasattr(classifier, "thresholds_")


def test_the_error_is_the_mean_log_loss_of_each_class_by_itself():
    chances = torch.tensor([[0.8, 0.1], [0.0, 1.0]], dtype=torch.float64)
    labels = torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    mass = 1e-4 + (1 - 2e-4) * chances
    expected = -(labels * mass.log() + (1 - labels) * (1 - mass).log()).mean(1)
    torch.testing.assert_close(error_of(chances, labels, multilabel=True), expected)


def test_a_threshold_has_the_highest_f1_of_its_class_and_of_all_drawn_together_by_rows():
    rng = np.random.default_rng(0)
    chances, labels = rng.random((60, 3)).round(1), (rng.random((60, 3)) < [0.5, 0.3, 0.05]).astype(float)
    labels[:, 2] = 0

    def f1(said, truth):
        return 2 * (said * truth).sum() / max(said.sum() + truth.sum(), 1)

    def best(some, truth):
        falling = np.arange(1.05, -0.1, -0.1)
        return falling[int(np.argmax([f1(some >= t, truth) for t in falling]))]

    each = [best(chances[:, k], labels[:, k]) for k in range(2)]
    together, rows = best(chances, labels), labels.sum(0)
    expected = [(rows[k] * t + 30 * together) / (rows[k] + 30) for k, t in enumerate([*each, together])]
    np.testing.assert_allclose(f1_thresholds(chances, labels), expected)
    twice = f1_thresholds(np.repeat(chances, 2, axis=0), np.repeat(labels, 2, axis=0))
    np.testing.assert_allclose(f1_thresholds(chances, labels, np.full(60, 2.0)), twice)
    assert f1_thresholds(chances, np.zeros((60, 3))).tolist() == [0.5] * 3
