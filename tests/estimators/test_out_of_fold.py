"""Promises of estimators whose members are folds: honest errors, intervals and sets that cover, also after changes."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch

from folds import of_folds
from vicinal.estimators import NeighborClassifier, NeighborRegressor, load_model
from vicinal.estimators.calibrating import calibrating_rows
from vicinal.estimators.fold_readout import tried_unseen
from vicinal.estimators.out_of_fold import fold_predictions
from vicinal.estimators.readout import NOISES, SCALES
from vicinal.heads import NONA, Ensemble, Kriging
from vicinal.heads.folds import FoldMembers

SETTINGS = {
    "metric": "network",
    "validation_fraction": 0,
    "readout": "attention",
    "members": 4,
    "hidden": (12, 4),
    "max_epochs": 12,
    "learning_rate": 1e-2,
}


def table(rows=160, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4))
    return x, np.sin(2 * x[:, 0]) + x[:, 1] + 0.3 * rng.normal(size=rows)


@pytest.fixture(scope="module")
def model():
    return NeighborRegressor(**SETTINGS).fit(*table())


@pytest.fixture(scope="module", params=["rows", "dense"])
def other(request):
    kind = {"head": "dense"} if request.param == "dense" else {"readout": "rows"}
    return NeighborRegressor(**{**SETTINGS, **kind}).fit(*table())


@pytest.fixture(scope="module")
def classifier():
    x, y = table(240)
    return NeighborClassifier(**SETTINGS).fit(x, np.digitize(y, [-0.7, 0.7]))


def test_signed_weights_are_those_of_least_error_out_of_fold():
    generator = torch.Generator().manual_seed(2)
    bank = torch.rand(90, 4, generator=generator).double()
    labels = (5 * bank[:, 0]).sin() + torch.randn(90, generator=generator, dtype=torch.float64) / 4
    folds = torch.arange(90) // 30
    head = Kriging(8, convex=False)
    choice = tried_unseen(of_folds(bank, labels, folds, Ensemble([NONA() for _ in range(4)])), head).choice()
    unit = float(torch.pdist(bank).median())
    heads = [Kriging(8, scale=unit * scale, noise=noise, convex=False) for scale in SCALES for noise in NOISES]
    with torch.no_grad():
        each = [FoldMembers(one, 4, 3).out_of_fold(bank, folds, bank, labels, folds) for one in heads]
    errors = (torch.stack(each) - labels).square()
    best = heads[int(errors.sum(dim=1).argmin())]
    assert (choice.log_scale.item(), choice.log_noise.item()) == pytest.approx(
        (best.log_scale.item(), best.log_noise.item())
    )


def test_all_rows_are_in_the_bank_and_none_is_held_out(model):
    assert len(model.bank_) == 160
    assert len(model.calibration_) == 0
    assert model.folds_ == 4
    assert np.bincount(model.bank_.folds).tolist() == [40] * 4


@pytest.mark.sweep(9)
@pytest.mark.parametrize("readout", ["attention", "rows"])
def test_the_label_of_a_row_does_not_reach_its_prediction_out_of_fold(readout):
    x, y = table(80)
    settings = {**SETTINGS, "max_epochs": 1, "readout": readout}  # one epoch: there is no epoch to choose
    one = NeighborRegressor(**settings).fit(x, y)
    mine = (one.bank_.folds == 2).numpy() & (y != y.min()) & (y != y.max())
    other = NeighborRegressor(**settings).fit(x, np.where(mine, -y, y).clip(y.min(), y.max()))
    if readout == "rows":  # the other folds choose scale and noise, by members that saw it; all else may not differ
        other.fold_heads_ = one.fold_heads_
    said = [each.out_of_fold_predictions()[1] for each in (one, other)]
    np.testing.assert_array_equal(said[0][mine], said[1][mine])
    assert (said[0][~mine] != said[1][~mine]).mean() > 0.5


def test_the_error_out_of_fold_is_near_that_of_new_rows(model):
    x, y = table()
    ids, said = model.out_of_fold_predictions()
    fresh, truth = table(2000, seed=9)
    honest, new = np.mean((said - y[ids]) ** 2), np.mean((model.predict(fresh) - truth) ** 2)
    seen = np.mean((model.predict(x) - y) ** 2)
    assert 0.75 < new / honest < 1.25
    assert seen < 0.6 * honest


@pytest.mark.parametrize("readout", ["attention", pytest.param("rows", marks=pytest.mark.slow), "dense"])
def test_the_error_of_all_members_is_that_of_one_less_their_disagreement(readout):
    x, y = table(80)
    kind = {"head": "dense"} if readout == "dense" else {"readout": readout}
    weights, groups = np.random.default_rng(3).uniform(0.2, 2, size=len(y)), np.arange(len(y)) // 2
    one = NeighborRegressor(**{**SETTINGS, **kind, "max_epochs": 6, "target_transform": "log"})
    one.fit(x, y + 5, groups=groups, sample_weight=weights)
    single = one.out_of_fold_predictions()[1]
    every = np.zeros((4, len(y)))
    for fold, row in np.ndindex(every.shape):
        seen = (one.bank_.folds != fold).numpy() & (groups != groups[row])
        members = one.fitted_.fold_members()
        members.heads = [members.heads[int(one.bank_.folds[row])]] * 4  # as those that leave the row out read it
        head = members.part(fold)
        query, rows = (members.columns(fold, v.double()) for v in (one.bank_.vectors[[row]], one.bank_.vectors[seen]))
        who = {"bank_weight": one.bank_.weights[seen]} if head.uses_bank else {}
        with torch.no_grad():
            said = head(query, rows, one.fitted_.bank_labels()[seen], **who)
        every[fold, row] = one.fitted_.in_label_units(said)[0]
    disagreement = np.average(every.var(axis=0), weights=weights)
    error = np.average((single - y - 5) ** 2, weights=weights)
    assert disagreement > 0.02 * error
    np.testing.assert_allclose(one.out_of_fold_error(), error - disagreement, rtol=1e-6)


@pytest.mark.slow
def test_all_members_gain_on_new_rows_what_out_of_fold_rows_tell(model, other):
    fresh, truth = table(600, seed=9)
    y = table()[1]
    for one in (model, other):
        ids, said = one.out_of_fold_predictions()
        share = one.out_of_fold_error() / np.mean((said - y[ids]) ** 2)
        queries = torch.from_numpy(one.embed(fresh)).double()
        single = fold_predictions(one.fitted_, queries, {"ids": None, "groups": None}).double()
        single = one.fitted_.in_label_units(single).numpy()
        new = np.mean((one.predict(fresh) - truth) ** 2) / np.mean((single - truth[:, None]) ** 2)
        assert new < 0.97
        assert abs(share - new) < 0.5 * (1 - new)


def test_the_error_of_several_targets_is_the_mean_of_each():
    x, y = table()
    one = NeighborRegressor(**{**SETTINGS, "max_epochs": 3}).fit(x, np.c_[y, x[:, 1] - x[:, 2]])
    each = [one.of_target(name).out_of_fold_error() for name in one.targets_]
    np.testing.assert_allclose(np.sum(each), 2 * one.out_of_fold_error(), rtol=1e-6)


@pytest.mark.sweep(9)
@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_intervals_cover_new_rows(model, other, coverage):
    fresh, truth = table(800, seed=9)
    for one in (model, other):
        low, high = one.predict_interval(fresh, coverage).T
        assert (low <= high).all()
        assert coverage - 0.06 < np.mean((low <= truth) & (truth <= high)) < coverage + 0.12


@pytest.mark.slow
def test_sets_of_classes_cover(classifier):
    x, y = table(1000, seed=9)
    truth = np.digitize(y, [-0.7, 0.7])
    for method in ("lac", "aps", "raps"):
        sets = classifier.predict_set(x, 0.9, method=method)
        assert sets.shape == (1000, 3)
        assert 0.86 < sets[np.arange(1000), truth].mean() < 0.99
    held_out = NeighborClassifier(**{**SETTINGS, "validation_fraction": 0.3}).fit(
        *(lambda x, y: (x, np.digitize(y, [-0.7, 0.7])))(*table(240))
    )
    assert 0.8 < held_out.predict_set(x)[np.arange(1000), truth].mean() < 0.99
    assert calibrating_rows(held_out.fitted_) == 72
    assert calibrating_rows(classifier.fitted_) == 240


def test_probabilities_out_of_fold_sum_to_one(classifier):
    ids, shares = classifier.out_of_fold_predictions()
    assert shares.shape == (240, 3)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert len(set(ids.tolist())) == 240


@pytest.mark.sweep(2)
def test_a_saved_model_is_the_same(model, other, classifier, tmp_path):
    x, _ = table(30, seed=5)
    for number, one in enumerate((model, other)):
        one.save(tmp_path / str(number))
        again = load_model(tmp_path / str(number))
        assert again.folds_ == 4
        assert torch.equal(again.bank_.folds, one.bank_.folds)
        np.testing.assert_array_equal(again.predict_interval(x), one.predict_interval(x))
        for mine, theirs in zip(one.out_of_fold_predictions(), again.out_of_fold_predictions(), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    classifier.save(tmp_path / "classes")
    np.testing.assert_array_equal(load_model(tmp_path / "classes").predict_set(x), classifier.predict_set(x))


def test_rows_come_and_go_at_once(model, tmp_path):
    one, fewer = copy.deepcopy(model), copy.deepcopy(model).forget(np.arange(0, 160, 2))
    fresh, truth = table(20, seed=5)
    before, ends = one.out_of_fold_predictions(), one.predict_interval(fresh)
    one.add(fresh, truth)
    assert (one.bank_.folds[-20:] == -1).all()
    ids, said = one.out_of_fold_predictions()
    np.testing.assert_array_equal(ids, before[0])  # rows added were never fitted on
    assert (said != before[1]).any()
    one.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    again.forget(np.arange(160, 180))
    np.testing.assert_allclose(again.predict_interval(fresh), ends)
    again.forget(np.arange(0, 160, 2))
    assert len(again.out_of_fold_predictions()[0]) == 80
    np.testing.assert_allclose(again.predict_interval(fresh), fewer.predict_interval(fresh))


def test_no_row_left_to_calibrate_is_said():
    x, y = table(40)
    one = NeighborRegressor(**{**SETTINGS, "max_epochs": 1}).fit(x, y).add(x[:5], y[:5]).forget(np.arange(40))
    with pytest.raises(ValueError, match=r"coverage: expected at most 0\.000 with 0 calibration rows"):
        one.predict_interval(x)


def test_groups_stay_in_one_fold_and_do_not_reach_their_rows():
    x, y = table()
    groups = np.arange(160) // 4
    alone = NeighborRegressor(**{**SETTINGS, "max_epochs": 3}).fit(x, y, groups=groups)
    one = copy.deepcopy(alone)
    folds = pd.Series(one.bank_.folds.numpy()).groupby(groups)
    assert (folds.nunique() == 1).all()
    one.add(x[:1] + 1e-3, [50.0], groups=[0])  # of the group of row 0: nothing that is said of row 0 may change
    first, second = (each.out_of_fold_predictions()[1] for each in (one, alone))
    np.testing.assert_allclose(first[:4], second[:4])
    assert one.predict_interval(x[:3], groups=[100, 101, 102]).shape == (3, 2)


def test_a_run_that_was_stopped_goes_on_to_the_same_members(model, tmp_path):
    (x, y), whole = table(), model
    NeighborRegressor(**{**SETTINGS, "max_epochs": 5}, checkpoint_dir=tmp_path).fit(x, y)
    resumed = NeighborRegressor(**SETTINGS, checkpoint_dir=tmp_path).fit(x, y)
    assert resumed.history_.resumed_at == 5
    assert resumed.history_.validation_error == whole.history_.validation_error
    assert torch.equal(resumed.bank_.vectors, whole.bank_.vectors)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"members": 1}, "members=1"),
        ({"loss": "0.5*label_contrast"}, "losses of embeddings"),
        ({"devices": 2}, "several processes"),
    ],
)
def test_members_that_share_what_learns_from_labels_are_refused(settings, reason):
    with pytest.raises(ValueError, match=f"^validation_fraction: expected a share above 0 for {reason}"):
        NeighborRegressor(**{**SETTINGS, **settings}).fit(*table())


def test_trained_encoders_and_few_groups_are_refused():
    x, y = table(40)
    texts = pd.DataFrame({"text": [f"word{i % 7} other{i % 3}" for i in range(40)]})
    with pytest.raises(ValueError, match="for an encoder that is trained"):
        NeighborRegressor(**SETTINGS, columns={"text": "text"}, encoders={"text": "ngrams"}).fit(texts, y)
    with pytest.raises(ValueError, match="groups: expected at least 3 for members that are folds, got 2"):
        NeighborRegressor(**SETTINGS).fit(x, y, groups=np.arange(40) % 2)


def test_a_model_that_held_rows_out_has_no_predictions_out_of_fold():
    one = NeighborRegressor(**{**SETTINGS, "validation_fraction": 0.2}).fit(*table(60))
    with pytest.raises(ValueError, match="validation_fraction: expected a model fitted with 0"):
        one.out_of_fold_predictions()


def test_classes_are_spread_over_folds():
    x, _ = table(60)
    y = np.repeat(["a", "b"], [52, 8])
    one = NeighborClassifier(**SETTINGS).fit(x, y)
    rare = one.bank_.labels == 1
    assert np.bincount(one.bank_.folds[rare]).tolist() == [2] * 4


@pytest.mark.parametrize("fraction", [0, 0.2])
def test_auto_takes_the_readout_of_less_honest_error(fraction, tmp_path, monkeypatch):
    x, y = table()
    settings = {**SETTINGS, "members": 3, "max_epochs": 4, "validation_fraction": fraction}
    errors = {}
    for readout in ("attention", "rows"):
        one = NeighborRegressor(**{**settings, "readout": readout}).fit(x, y)
        if fraction:
            rows = one.calibration_
            known = one.bank_.identity(ids=rows.ids, groups=None)
            said, truth = one.fitted_.predict_embedded(rows.vectors.double(), known), rows.labels
        else:
            ids, said = one.out_of_fold_predictions()
            said, truth = torch.from_numpy(said), torch.from_numpy(y[ids])
        errors[readout] = float((said - truth).square().mean())
    auto = NeighborRegressor(**{**settings, "readout": "auto"}).fit(x, y)
    best = min(errors, key=errors.get)
    assert isinstance(auto.network_.head, Kriging) == (best == "rows")
    auto.save(tmp_path / "model")
    fresh = table(20, seed=5)[0]
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(fresh), auto.predict(fresh))


@pytest.mark.slow
def test_auto_with_an_index_takes_the_rows_that_it_finds():
    x, y = table()
    settings = {**SETTINGS, "max_epochs": 2, "validation_fraction": 0.2}
    plain = NeighborRegressor(**{**settings, "readout": "rows"}).fit(x, y)
    indexed = NeighborRegressor(**{**settings, "readout": "auto"}, index="exact").fit(x, y)
    assert (indexed.readout_, isinstance(indexed.network_.head, Kriging)) == ("rows", True)
    fresh = table(20, seed=5)[0]
    np.testing.assert_allclose(indexed.predict(fresh), plain.predict(fresh), atol=1e-3)


def test_auto_of_a_dense_head_is_that_head():
    x, y = table(40)
    one = NeighborRegressor(**{**SETTINGS, "readout": "auto"}, head="dense").fit(x, y)
    assert not one.network_.head.uses_bank
