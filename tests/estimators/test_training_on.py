"""train_on: a few epochs more from the weights that there are, on all rows of the bank."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch

from vicinal.cli import run
from vicinal.estimators import NeighborClassifier, NeighborRegressor, load_model

pytestmark = pytest.mark.filterwarnings("ignore::vicinal.core.ExtrapolationWarning")

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

    assert error(added(fitted, epochs=2)) < 0.6 * error(added(fitted))


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


def test_rows_that_contradict_the_bank_count_more_and_others_as_they_are(fitted):
    frame = OLD[:60] + 0.01
    _, vectors = fitted.embedded_rows(frame)
    against = fitted.weights_for(vectors, 5 - Y[:60])
    assert against.shape == (60,)
    assert against[0] in (3, 10, 30)
    assert (against == against[0]).all()
    assert fitted.weights_for(vectors, Y[:60]).tolist() == [1.0] * 60
    noise = np.random.default_rng(1).permutation(Y[:60])
    assert fitted.weights_for(vectors, noise)[0] < 30, "no row sees its own label"
    in_groups = fitted.weights_for(vectors, 5 - Y[:60], [0] * 60)
    assert in_groups[0] == against[0], "of a model without groups they say nothing"


def test_a_weight_that_is_better_by_chance_is_not_taken(fitted):
    random = np.random.default_rng(3)  # 10 has the least error for these rows, by less than its doubt
    more = pd.DataFrame(random.normal(size=(40, 3)), columns=["a", "b", "c"])
    labels = more["a"] + 0.5 * random.normal(size=40)
    assert fitted.weights_for(fitted.embedded_rows(more)[1], labels)[0] == 1


def test_new_rows_of_a_group_do_not_vote_for_one_another():
    names = [f"g{i // 2}" for i in range(200)]
    model = NeighborRegressor(**QUICK, readout="rows").fit(OLD, Y, groups=names)
    _, vectors = model.embedded_rows(OLD[:60] + 0.01)
    apart, one = [f"n{i}" for i in range(60)], ["n"] * 60
    assert model.weights_for(vectors, 5 - Y[:60], apart)[0] > 1
    assert model.weights_for(vectors, 5 - Y[:60], one)[0] == 1


def test_auto_weighs_added_rows_in_a_model_and_in_a_folder(fitted, tmp_path, capsys):
    frame, labels = OLD[:60] + 0.01, 5 - Y[:60]
    weight = fitted.weights_for(fitted.embedded_rows(frame)[1], labels)
    wanted = copy.deepcopy(fitted).add(frame, labels, sample_weight=weight).predict(NEW)
    said = copy.deepcopy(fitted).add(frame, labels, sample_weight="auto").predict(NEW)
    np.testing.assert_array_equal(said, wanted)
    fitted.save(tmp_path / "m")
    frame.assign(y=labels).to_csv(tmp_path / "new.csv", index=False)
    assert run(["add", str(tmp_path / "m"), str(tmp_path / "new.csv"), "--target", "y", "--weight", "auto"]) == 0
    assert f"counts as {weight[0]:g} of the fit" in capsys.readouterr().err
    np.testing.assert_allclose(load_model(tmp_path / "m").predict(NEW), wanted, atol=1e-6)
    with pytest.raises(ValueError, match=r"^sample_weight: expected one of 'auto', got 'most'"):
        copy.deepcopy(fitted).add(frame, labels, sample_weight="most")
