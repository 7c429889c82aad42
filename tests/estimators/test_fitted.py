"""The value that a fit leaves behind: what is computed of its rows holds until they change, whoever changes them."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import torch

from vicinal.estimators import EmbeddingLearner, NeighborClassifier, NeighborRegressor, load_model

QUICK = {"max_epochs": 3, "members": 2, "hidden": (8, 4)}


def rows(count=200, seed=0):
    random = np.random.RandomState(seed)
    x = random.randn(count, 2)
    return x, x[:, 0] + 0.3 * random.randn(count)


@pytest.mark.parametrize(
    "settings", [{"metric": "kernel", "readout": "dense"}, {"metric": "network", "readout": "attention", **QUICK}]
)
def test_margins_follow_rows_that_a_bank_lost_by_itself(settings):
    x, y = rows()
    model = NeighborRegressor(**settings).fit(x, y)
    twin, fresh = copy.copy(model), rows(5, seed=1)[0]
    before = model.predict_interval(fresh)
    model.calibration_.remove(model.calibration_.ids[:15])
    after = model.predict_interval(fresh)
    assert not np.array_equal(before, after)
    for one in (twin, copy.deepcopy(model)):
        np.testing.assert_array_equal(one.predict_interval(fresh), after)


def test_thresholds_follow_labels_of_held_out_rows():
    x, _ = rows()
    tags = [["a"] * int(one > 0) + ["b"] * int(one > 1) for one in x[:, 0]]
    model = NeighborClassifier(**QUICK).fit(x, tags)
    before = model.thresholds_.copy()
    store = model.calibration_
    store.relabel(store.ids, 1 - store.labels)
    assert not np.array_equal(model.thresholds_, before)


def test_a_single_target_is_asked_for_again_once_rows_change():
    x, y = rows()
    model = NeighborRegressor(metric="kernel").fit(x, np.c_[y, -y])
    one = model.of_target("y1")
    assert model.of_target("y1") is one
    np.testing.assert_allclose(model.of_target(name="y1").predict(x), -model.of_target(name="y0").predict(x))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.of_target("y1").predict(x), one.predict(x))
    model.forget([3])
    assert model.of_target("y1") is not one
    assert len(model.of_target("y1").bank_) == 199


def test_honest_errors_are_computed_once_for_a_readout(monkeypatch):
    x, y = rows()
    model = NeighborRegressor(metric="network", **QUICK).fit(x, y)
    asked = []
    honest = type(model.fitted_).honest_predictions
    monkeypatch.setattr(type(model.fitted_), "honest_predictions", lambda one: (asked.append(1), honest(one))[1])
    first = model.fitted_.honest_error()
    model.fitted_.computed.answers.clear()
    assert model.fitted_.honest_error() == model.fitted_.honest_error() == first
    assert len(asked) == 1
    model.calibration_.remove(model.calibration_.ids[:5])
    assert model.fitted_.honest_error() != first


@pytest.mark.parametrize(
    ("model", "labels", "wrong"),
    [
        (NeighborRegressor(metric="kernel"), rows()[1], np.ones(200)),
        (NeighborClassifier(metric="kernel"), rows()[1] > 0, np.ones(200, dtype=int)),
        (EmbeddingLearner(max_epochs=1, dim=2, unseen=False), rows()[1] > 0, np.ones(200, dtype=int)),
    ],
)
def test_a_fit_that_fails_leaves_the_one_before_it_whole(model, labels, wrong):
    x, _ = rows()
    model.fit(x, labels)
    before, state = model.embed(x[:3]), set(vars(model))
    with pytest.raises(ValueError, match=r"^y: expected"):
        model.fit(np.c_[x, x], wrong)
    np.testing.assert_array_equal(model.embed(x[:3]), before)
    assert model.n_features_in_ == 2
    assert set(vars(model)) == state
    assert len(model.forget([0]).bank_) == 199


def test_a_fit_that_fails_leaves_nothing_where_nothing_was():
    model = NeighborRegressor()
    with pytest.raises(ValueError, match=r"^y: expected"):
        model.fit(rows()[0], np.ones(200))
    assert not hasattr(model, "bank_")
    assert not hasattr(model, "n_features_in_")


def test_a_look_at_what_there_is_computes_nothing(monkeypatch):
    x, _ = rows()
    model = NeighborClassifier(**QUICK).fit(x, [["a"] * int(one > 0) + ["b"] * int(one > 1) for one in x[:, 0]])
    monkeypatch.setattr("vicinal.estimators.class_sets.calibrating_shares", None)
    assert "thresholds_" in dir(model)
    assert "thresholds_" not in dir(NeighborClassifier(metric="kernel").fit(x, x[:, 0] > 0))


def test_a_part_of_no_fit_is_not_there():
    for name in ("bank_", "network_", "classes_", "targets_", "label_range_"):
        assert not hasattr(NeighborRegressor(), name)
    x, y = rows(60)
    model = NeighborRegressor(metric="kernel").fit(x, y)
    assert not hasattr(model, "classes_")
    model.label_range_ = (-9.0, 9.0)
    assert model.fitted_.codec.ends == (-9.0, 9.0)
    assert torch.equal(model.fitted_.bank.labels, torch.from_numpy(y))


@pytest.mark.parametrize("settings", [{}, {"metric": "kernel", "readout": "dense"}])
def test_a_leaderboard_has_what_was_tried_and_its_errors_by_hand(settings):
    x, y = rows(120)
    model = NeighborRegressor(**settings).fit(x, y)
    tried = model.leaderboard()
    assert tried["chosen"].tolist() == [True, *[False] * (len(tried) - 1)]
    assert set(tried["metric"]) == ({"kernel"} if settings else {"trees and kernel", "kernel", "trees"})
    assert (model.fitted_.optimism > 1) == bool(settings)
    assert tried.loc[0, ["metric", "readout"]].tolist() == [model.metric_, model.readout_]
    assert tried["held_out"][1:].is_monotonic_increasing
    assert (tried["seconds"] > 0).all()
    names = model.calibration_.ids
    missed = model.predict(x[names], ids=names) - y[names]
    assert tried.loc[0, "held_out"] == pytest.approx(np.sqrt(np.mean(missed**2)), rel=1e-6)
    missed = model.predict(x, ids=np.arange(120)) - y
    assert tried.loc[0, "out_of_fold"] == pytest.approx(np.sqrt(np.mean(missed**2) * model.fitted_.optimism), rel=1e-6)
    assert model.fitted_.trials[0].constant == pytest.approx(np.std(y), rel=1e-6)


def test_errors_of_classes_and_of_several_numbers_are_those_of_their_labels():
    x, y = rows(120)
    classes = (y > 0.5).astype(int)
    trial = NeighborClassifier(metric="kernel").fit(x, classes).fitted_.trials[0]
    share = classes.mean()
    floored = [1e-4 + (1 - 2e-4) * one for one in (share, 1 - share)]
    entropy = -share * np.log(floored[0]) - (1 - share) * np.log(floored[1])
    assert (trial.measure, trial.constant) == ("log_loss", pytest.approx(entropy, rel=1e-6))
    model = NeighborRegressor(metric="kernel").fit(x, np.c_[y, 1000 * y])
    (low, _), (high, _) = (end.tolist() for end in model.label_range_)
    assert model.fitted_.trials[0].constant == pytest.approx(np.std(y) / (high - low), rel=1e-6)  # each in its range


def test_a_network_of_folds_has_an_error_out_of_fold_and_none_on_rows_held_out():
    x, y = rows(60)
    model = NeighborRegressor(validation_fraction=0, max_epochs=2, members=3, hidden=(8, 4)).fit(x, y)
    trial = model.fitted_.trials[0]
    missed = model.out_of_fold_predictions()[1] - y
    assert trial.held_out is None
    assert trial.out_of_fold == pytest.approx(np.sqrt(np.mean(missed**2)), rel=0.02)  # readouts by fold are rounded


def test_a_summary_says_what_was_fitted_and_what_differs_from_the_defaults(tmp_path):
    x, y = rows(60)
    model = NeighborClassifier(metric="network", random_state=1, **QUICK).fit(x, pd.Series(y > 0, name="high"))
    said = model.summary()
    assert said["what"] == "classification of high (2 classes: False, True)"
    assert (said["rows"], said["columns"]) == ("60 bank, 9 held out", "2 numbers")
    assert said["settings"].startswith("metric network, readout attention, epochs 3, best_epoch ")
    assert said["settings"].endswith(", hidden 8,4, max_epochs 3, members 2, random_state 1")
    error = model.leaderboard().loc[0, "held_out"]
    assert said["error"].startswith(f"log loss {error:.3g} on rows held out, ")
    model.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert str(again.summary()) == str(said)
    pd.testing.assert_frame_equal(
        again.leaderboard().drop(columns="seconds"), model.leaderboard().drop(columns="seconds")
    )
    assert again.leaderboard()["seconds"].isna().all(), "the files of a fit are the same whenever it is made"
    assert "log loss" in model._repr_html_()
    assert "sk-" in NeighborClassifier()._repr_html_()


def test_a_model_that_does_not_know_what_was_tried_has_an_empty_leaderboard():
    x, y = rows(60)
    model = EmbeddingLearner(max_epochs=1, dim=2, unseen=False).fit(x, y > 0)
    assert model.leaderboard().empty
    assert "error" not in model.summary()
    assert model.summary()["what"] == "a similarity by a target without a name (2 classes: False, True)"
