"""A row of weight w counts as w equal rows, none of which predicts another: in training, as a neighbor, in files."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from vicinal.estimators import ModelFolder, NeighborClassifier, NeighborRegressor, load_model
from vicinal.estimators.intervals import margin, sized_misses
from vicinal.heads import NONA, Ensemble
from vicinal.training import NeighborModule, NeighborNetwork, Rows, TrainingSettings
from vicinal.training.error import MeanError
from vicinal.training.fold_epochs import FoldEpochs

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(60, 3)), RNG.normal(size=(20, 3))
Y, NEW_Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=60), np.cos(NEW[:, 0])
W = RNG.integers(1, 5, 60).astype(float)
BRIEF = {"metric": "network", "max_epochs": 3, "members": 2}


def kernel(weights=None, **settings):
    return NeighborRegressor(metric="kernel", **settings).fit(X, Y, sample_weight=weights)


@pytest.fixture(scope="module")
def plain():
    return kernel()


@pytest.fixture(scope="module")
def weighted():
    return kernel(W)


def copy_of(model, tmp_path):
    model.save(tmp_path / "model")
    return load_model(tmp_path / "model")


def test_equal_weights_change_nothing_and_other_units_of_weights_change_nothing(plain, weighted):
    np.testing.assert_array_equal(kernel(np.full(60, 3.0)).predict(NEW), plain.predict(NEW))
    np.testing.assert_allclose(kernel(1000 * W).predict(NEW), weighted.predict(NEW), rtol=1e-7)
    assert abs(weighted.predict(NEW) - plain.predict(NEW)).max() > 0.01
    network = [NeighborRegressor(**BRIEF).fit(X, Y, sample_weight=scale * W) for scale in (1.0, 8.0)]
    np.testing.assert_allclose(network[0].predict(NEW), network[1].predict(NEW), rtol=1e-5)


def test_whole_weights_of_added_rows_equal_repeated_rows(plain, tmp_path):
    dense = kernel(readout="dense")  # all rows are looked at, and no copy takes the place of another
    one, many = copy_of(dense, tmp_path), copy_of(dense, tmp_path)
    counts = np.arange(20) % 3 + 1
    one.add(NEW, NEW_Y, sample_weight=counts)
    many.add(np.repeat(NEW, counts, axis=0), np.repeat(NEW_Y, counts))
    np.testing.assert_allclose(one.predict(X), many.predict(X), atol=1e-6)
    assert abs(one.predict(X) - plain.predict(X)).max() > 0.01


@pytest.mark.parametrize("folds", [False, True])
def test_a_step_of_training_on_rows_with_weights_is_that_on_their_copies(folds):
    """Of a batch whose rows have weights, and of one in which each stands so often, in one group."""
    torch.manual_seed(0)
    counts = torch.tensor([1, 3, 1, 2, 5, 1])
    inputs, labels = torch.randn(6, 4).double(), torch.rand(6).double()
    network = NeighborNetwork(nn.Identity(), nn.Linear(4, 4).double(), Ensemble([NONA(), NONA()]))
    losses = []
    for times, weights in ((torch.ones_like(counts), counts / counts.double().mean()), (counts, None)):
        rows = torch.arange(6).repeat_interleave(times)
        ids = torch.arange(len(rows))
        of_folds = rows % 2 if folds else None
        batch = {"inputs": inputs[rows], "labels": labels[rows], "ids": ids, "groups": rows}
        batch |= ({} if weights is None else {"weights": weights}) | ({"folds": of_folds} if folds else {})
        train = Rows(ids, labels[rows], ids, rows, of_folds, weights)
        module = NeighborModule(network, train, TrainingSettings())
        losses.append(module.training_step(batch, 0))
        if folds:
            module._bank = network.embed(inputs[rows])
            with torch.no_grad():
                module.validation_step(batch, 0)
                module.on_validation_epoch_end()
            losses.append(torch.tensor(module.fold_errors))
            FoldEpochs(of_folds.bincount(weights))
    if folds:  # each member has a mean of its own rows, whose weights are not of mean 1
        torch.testing.assert_close(losses[1], losses[3])
    else:
        torch.testing.assert_close(losses[0], losses[1])


def test_losses_are_read_row_by_row_or_refused():
    assert MeanError(reduction="none")(torch.zeros(3), torch.arange(3.0)).tolist() == [0.0, 1.0, 4.0]
    for loss in ("crps", "matching:sigmoid(scale=2)", nn.HuberLoss()):
        model = NeighborRegressor(**BRIEF, loss=loss).fit(X, Y, sample_weight=W)
        assert np.isfinite(model.predict(NEW)).all()
    for loss, reason in (("0.5*rank_n_contrast", "compares embeddings"), (nn.Identity(), "setting reduction")):
        with pytest.raises(ValueError, match=f"loss: expected .* rows of different weights.*{reason}|{reason}"):
            NeighborRegressor(**BRIEF, loss=loss).fit(X, Y, sample_weight=W)


@pytest.mark.parametrize("settings", [{}, {"validation_fraction": 0, "members": 3}, {"readout": "attention"}])
def test_networks_of_all_readouts_take_weights(settings):
    model = NeighborRegressor(**{**BRIEF, **settings}).fit(X, Y, sample_weight=W)
    (explained,) = model.explain(NEW[:1], 100)
    assert sum(n.weight for n in explained.neighbors) == pytest.approx(1, abs=1e-6)
    assert sum(n.contribution for n in explained.neighbors) == pytest.approx(model.predict(NEW[:1])[0], abs=1e-6)
    low, high = model.predict_interval(NEW, 0.5).T
    assert (low <= high).all()


@pytest.mark.parametrize("fraction", [0.15, 0])
def test_classes_take_weights_in_probabilities_sets_and_explanations(fraction):
    labels = np.where(Y > 0, "up", "down")
    settings = {"metric": "network", "max_epochs": 2, "members": 3, "validation_fraction": fraction}
    heavy = NeighborClassifier(**settings).fit(X, labels, sample_weight=np.where(Y > 0, 9.0, 1.0))
    light = NeighborClassifier(**settings).fit(X, labels, sample_weight=np.where(Y > 0, 1.0, 9.0))
    assert (heavy.predict_proba(NEW)[:, 1] > light.predict_proba(NEW)[:, 1]).all()
    assert heavy.predict_set(NEW, 0.7).shape == (20, 2)
    assert sum(n.weight for n in heavy.explain(NEW[:1], 60)[0].neighbors) == pytest.approx(1)


def test_several_targets_and_several_classes_take_weights():
    both = NeighborRegressor(metric="kernel").fit(X, np.c_[Y, X[:, 1]], sample_weight=W)
    np.testing.assert_allclose(both.predict(NEW)[:, 1], NEW[:, 1], atol=0.3)
    assert both.of_target("y1").predict_interval(NEW, 0.5).shape == (20, 2)
    tags = [["a"] * int(y > 0) + ["b"] * int(x > 0) for x, y in zip(X[:, 1], Y, strict=True)]
    model = NeighborClassifier(max_epochs=2, members=2).fit(X, tags, sample_weight=W)
    assert model.thresholds_.shape == (2,)


def test_margins_are_weighted_quantiles_of_the_rows_held_out(plain):
    """Where one row held out weighs nearly all, its miss is the margin."""
    weights = np.ones(60)
    at = np.argmax(abs(plain.predict(X[:9], ids=np.arange(9)) - Y[:9]))
    weights[at] = 1e3
    known = {"validation": np.arange(9)}
    heavy = NeighborRegressor(metric="kernel").fit(X, Y, sample_weight=weights, **known)
    place = heavy.calibration_.ids.tolist().index(at)
    assert margin(heavy.fitted_, 0.4) == pytest.approx(float(sized_misses(heavy.fitted_, 0.4)[1][place]))


def test_a_row_of_weight_zero_is_not_there_and_that_is_said():
    weights = np.where(np.arange(60) % 6 == 0, 0.0, W)
    with pytest.warns(UserWarning, match="sample_weight: .* got 0 for 10 of 60 rows, which are left out"):
        model = NeighborRegressor(metric="kernel").fit(
            pd.DataFrame(X, columns=list("abc")), pd.Series(Y), sample_weight=weights, validation=[0, 1, 2, 8]
        )
    left = np.flatnonzero(weights)
    assert model.bank_.ids.tolist() == left.tolist()
    assert model.calibration_.ids.tolist() == [1, 2, 8]
    same = NeighborRegressor(metric="kernel").fit(
        pd.DataFrame(X[left], columns=list("abc")), Y[left], sample_weight=W[left], validation=[0, 1, 6]
    )
    new = pd.DataFrame(NEW, columns=list("abc"))
    np.testing.assert_array_equal(model.predict(new), same.predict(new))
    with pytest.warns(UserWarning, match="got 0 for 1 of 2 rows"):
        model.add(new[:2], NEW_Y[:2], ids=[101, 102], sample_weight=[0, 2.0])
    assert model.bank_.has([101, 102]).tolist() == [False, True]


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        (-W, "expected finite numbers of at least 0, got -"),
        (np.where(W == W, np.nan, 1), "expected finite numbers of at least 0, got nan in row 0"),
        (W[:9], r"expected 60 numbers, one a row of X, got shape \(9,\)"),
        (0 * W, "expected a weight above zero, got 0 for all rows"),
        (["heavy"] * 60, "expected numbers, got 'heavy'"),
        (W[:, None], r"expected 60 numbers, one a row of X, got shape \(60, 1\)"),
    ],
)
def test_wrong_weights_get_one_sentence(weights, sentence):
    with pytest.raises(ValueError, match=f"^sample_weight: {sentence}"):
        NeighborRegressor(metric="kernel").fit(X, Y, sample_weight=weights)


def test_weights_follow_their_rows_through_files_and_changes(weighted, plain, tmp_path):
    model = copy_of(weighted, tmp_path)
    np.testing.assert_array_equal(model.given_weights(), W)
    np.testing.assert_array_equal(model.predict(NEW), weighted.predict(NEW))
    np.testing.assert_array_equal(model.predict_interval(NEW, 0.5), weighted.predict_interval(NEW, 0.5))
    model.forget([0, 7]).relabel([3], [0.5])
    wanted = dict(zip(range(60), W, strict=True))
    assert dict(zip(model.bank_.ids.tolist(), model.given_weights(), strict=True)) == pytest.approx(
        {name: wanted[name] for name in range(60) if name not in (0, 7)}
    )
    model.add(NEW[:2], NEW_Y[:2], sample_weight=[5, 7]).add(NEW[2:3], NEW_Y[2:3])
    np.testing.assert_allclose(model.given_weights()[-3:], [5, 7, W.mean()])
    again = copy_of(plain, tmp_path / "other")
    assert again.given_weights() is None
    again.add(NEW[:2], NEW_Y[:2], sample_weight=[1, 4])
    assert copy_of(again, tmp_path / "other").given_weights().tolist() == [1.0] * 61 + [4.0]


def test_the_journal_of_a_folder_keeps_weights(weighted, tmp_path):
    weighted.save(tmp_path / "model")
    folder = ModelFolder(tmp_path / "model", who="ann")
    with pytest.warns(UserWarning, match="got 0 for 1 of 3 rows"):
        names = folder.add(NEW[:3], NEW_Y[:3], sample_weight=[2, 0, 8])
    assert len(names) == 2
    read = load_model(tmp_path / "model")
    np.testing.assert_allclose(read.given_weights()[-2:], [2, 8])
    folder.compact()
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(X), read.predict(X))


@pytest.mark.slow
def test_learning_on_keeps_weights_and_a_refit_uses_them():
    x, new = (pd.DataFrame(rows, columns=list("abc")) for rows in (X, NEW))
    first = NeighborRegressor(metric="kernel").partial_fit(x[:40], Y[:40], sample_weight=W[:40])
    first.partial_fit(x[40:], Y[40:], sample_weight=W[40:])
    np.testing.assert_allclose(first.given_weights(), W)
    first.partial_fit(new, NEW_Y, sample_weight=np.ones(20), refit=True)
    everything = {"X": pd.concat([x, new]), "y": np.r_[Y, NEW_Y], "sample_weight": np.r_[W, np.ones(20)]}
    fresh = NeighborRegressor(metric="kernel").fit(**everything)
    np.testing.assert_allclose(first.predict(x), fresh.predict(x), rtol=1e-9)
