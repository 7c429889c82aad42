"""train_on: a few epochs more from the weights that there are, on all rows of the bank."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch

from vicinal.cli import run
from vicinal.estimators import NeighborClassifier, NeighborRegressor, load_model

RANDOM = np.random.default_rng(0)
OLD = pd.DataFrame(RANDOM.normal(size=(200, 3)), columns=["a", "b", "c"])
NEW = pd.DataFrame(RANDOM.normal(size=(160, 3)), columns=["a", "b", "c"]).assign(c=lambda new: new["c"] + 8)
Y = (OLD["a"] + 0.5 * RANDOM.normal(size=200)).to_numpy()
NEW_Y = NEW["b"].to_numpy()  # what matters in the new rows did not in the old ones
QUICK = {"metric": "network", "members": 1, "hidden": (16, 6), "max_epochs": 12, "learning_rate": 1e-2, "dropout": 0}


@pytest.fixture(scope="module")
def fitted():
    return NeighborRegressor(**QUICK, readout="attention").fit(OLD, Y)


def added(model, **known):
    return copy.deepcopy(model).partial_fit(NEW[:100], NEW_Y[:100], **known)


def test_it_learns_what_the_metric_passed_over(fitted):
    def error(model):
        return np.mean((model.predict(NEW[100:]) - NEW_Y[100:]) ** 2)

    assert error(added(fitted, epochs=10)) < 0.6 * error(added(fitted))


def test_it_goes_on_from_the_weights_that_there_are(fitted):
    still = added(copy.deepcopy(fitted).set_params(learning_rate=1e-12), epochs=1).network_.named_parameters()
    before = dict(fitted.network_.named_parameters())
    assert all(torch.allclose(weight, before[name], atol=1e-6) for name, weight in still)
    once, twice = (added(fitted, epochs=2) for _ in range(2))
    np.testing.assert_array_equal(once.predict(NEW), twice.predict(NEW))
    assert len(once.history_.train_error) == 2
    assert fitted.history_ is not once.history_


def test_rows_held_out_stay_so_and_a_share_of_the_added_ones_joins_them(fitted):
    before, after = fitted.calibration_.ids, added(fitted, epochs=1).calibration_.ids
    assert set(before) < set(after)
    assert set(after) - set(before) < set(range(200, 300))
    assert len(after) - len(before) == 15
    kept = added(copy.deepcopy(fitted).forget(before), epochs=1)
    assert len(kept.calibration_) == 15


def test_a_group_is_held_out_whole(fitted):
    names = np.arange(200) // 4
    model = copy.deepcopy(fitted).fit(OLD, Y, groups=names)
    held = model.calibration_.groups
    both = np.concatenate([np.repeat(held[0], 5), np.repeat(np.setdiff1d(names, held)[0], 5), 100 + np.arange(90) // 3])
    model.partial_fit(NEW[:100], NEW_Y[:100], groups=both, epochs=1)
    groups, at = model.bank_.groups, model.bank_.store.positions(model.calibration_.ids).numpy()
    rest = np.setdiff1d(np.arange(300), at)
    assert not set(groups[at]) & set(groups[rest])
    assert set(held) < set(groups[at])


def test_labels_are_those_of_now_and_classes_too():
    labels = np.where(Y > 0, "up", "down")
    model = NeighborClassifier(**QUICK).fit(OLD, labels).relabel([0], ["up"])
    model.partial_fit(NEW[:40], np.where(NEW_Y[:40] > 0, "up", "down"), epochs=2)
    assert model.labels_of([0, 1]) == ["up", labels[1]]
    assert model.predict_proba(NEW).shape == (160, 2)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"metric": "kernel"}, "metric='kernel'"),
        ({"head": "dense"}, "head='dense'"),
        ({"members": 2, "validation_fraction": 0}, "members that are folds"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_before_a_row_is_added(settings, words):
    model = NeighborRegressor(**QUICK | {"max_epochs": 1} | settings).fit(OLD, Y)
    with pytest.raises(ValueError, match=rf"^epochs: expected a trained network .* got .*{words}"):
        model.partial_fit(NEW, NEW_Y, epochs=1)
    assert len(model.bank_) == 200


def test_ids_and_epochs_are_checked(fitted):
    with pytest.raises(ValueError, match=r"^added: expected ids of rows of the bank, got 1 others"):
        copy.deepcopy(fitted).train_on([0, 999])
    with pytest.raises(ValueError, match=r"^epochs: expected a whole number of at least 1, got 0"):
        copy.deepcopy(fitted).partial_fit(NEW, NEW_Y, epochs=0)


def test_vicinal_add_trains_on_and_writes_the_folder(fitted, tmp_path, capsys):
    fitted.save(tmp_path / "m")
    table = tmp_path / "new.csv"
    NEW[:100].assign(y=NEW_Y[:100]).to_csv(table, index=False)
    assert run(["add", str(tmp_path / "m"), str(table), "--target", "y", "--epochs", "3"]) == 0
    assert "100 rows added" in capsys.readouterr().out
    model, wanted = load_model(tmp_path / "m"), added(fitted, epochs=3)
    np.testing.assert_allclose(model.predict(NEW), wanted.predict(NEW), atol=1e-6)
    assert model.changes_.pending == 0
