"""Rows out of fold are read by what the other folds choose, so that no choice is told by the errors that made it."""

import numpy as np
import pytest
import torch

from brief import READOUTS
from folds import of_folds
from vicinal.estimators import NeighborClassifier, NeighborRegressor, load_model
from vicinal.estimators.fold_readout import UNSEEN, readouts_by_fold, tried_unseen
from vicinal.heads import NONA, Ensemble, Kriging
from vicinal.workflows.measuring import out_of_fold_scores

SETTINGS = {"metric": "network", "validation_fraction": 0, "members": 4, "hidden": (8, 3), "max_epochs": 3}


def noise(seed, rows=36, members=4):
    """Embeddings that no training has made, and labels that nothing tells."""
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(rows, 2 * members, generator=generator, dtype=torch.float64)
    labels = torch.randn(rows, generator=generator, dtype=torch.float64)
    folds = torch.arange(rows) % members
    return vectors, labels, folds


def choose(vectors, labels, folds, attention=None):
    model = of_folds(vectors, labels, folds, Ensemble([NONA() for _ in range(4)]) if attention is None else attention)
    tried = tried_unseen(model, Kriging(8))
    return tried, readouts_by_fold(model, tried, compared=attention is not None)


def told(rows, head, heads=None):
    return of_folds(*rows, head, heads).honest_error()


def settings_of(heads):
    return [(one.log_scale.item(), one.log_noise.item()) if isinstance(one, Kriging) else None for one in heads]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("compared", [False, True])
def test_labels_of_a_fold_do_not_reach_its_readout(compared):
    attention = Ensemble([NONA() for _ in range(4)]) if compared else None
    vectors, labels, folds = noise(1)
    before = settings_of(choose(vectors, labels, folds, attention)[1])
    chosen = []
    for seed in (2, 4):
        other = torch.where(folds == 2, 9 * noise(seed)[1], labels)
        chosen.append(settings_of(choose(vectors, other, folds, attention)[1]))
    assert all(one[2] == before[2] for one in chosen)
    assert any(one != before for one in chosen)


def test_of_many_rows_a_fold_has_the_head_that_is_surely_best_on_the_others():
    vectors, labels, folds = noise(3, UNSEEN + 20)
    alike = vectors[:, :2].repeat(1, 4)
    tried, heads = choose(alike, labels / 9 + alike[:, 0], folds)
    places = [[id(one) for one in tried.heads].index(id(head)) for head in heads]
    assert any(places)  # not the usual one, which is the first
    for fold, place in enumerate(places):
        error = tried.error[:, tried.codes != fold]
        gains = error[0] - error
        sure = gains.mean(dim=1) > 2 * gains.std(dim=1) / gains.shape[1] ** 0.5
        assert place == (int(error.sum(dim=1).masked_fill(~sure, torch.inf).argmin()) if sure.any() else 0)


@pytest.mark.slow
def test_noise_is_not_told_by_its_luckiest_readout():
    lucky, honest = [], []
    for seed in range(10, 14):
        rows = noise(seed)
        tried, heads = choose(*rows)
        variance = float(rows[1].square().mean())
        lucky.append(told(rows, tried.choice()) - variance)
        honest.append(told(rows, heads[0], heads) - variance)
    assert np.mean(honest) > np.mean(lucky) + 0.03
    assert np.mean(honest) > 0.02


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(4)
    return NeighborRegressor(**SETTINGS, random_state=1).fit(rng.normal(size=(40, 3)), rng.normal(size=40))


def test_predictions_are_those_of_the_chosen_readout_and_all_errors_are_one_number(model):
    fresh = np.random.default_rng(5).normal(size=(20, 3))
    said, error, single = model.predict(fresh), model.out_of_fold_error(), model.out_of_fold_predictions()[1]
    assert out_of_fold_scores(model)["mse"] == pytest.approx(error, rel=1e-9)
    heads, model.fold_heads_ = model.fold_heads_, None
    np.testing.assert_array_equal(model.predict(fresh), said)
    assert (model.out_of_fold_predictions()[1] != single).any()
    model.fold_heads_ = heads


@pytest.mark.parametrize("read", ["rows", "attention"])
def test_readouts_of_folds_are_saved(model, read, tmp_path):
    attention = NeighborRegressor(**{**SETTINGS, "readout": "attention"}, random_state=1)
    attention.fit(model.bank_.rows.to_numpy(), model.bank_.labels.numpy())
    head, heads = model.network_.head, model.fold_heads_
    other = attention.network_.head
    try:
        model.network_.head = head if read == "rows" else other
        model.network_.head = model.network_.head if isinstance(head, Kriging) == (read == "rows") else Kriging(30)
        krigings = [one for one in heads if isinstance(one, Kriging)] or [Kriging(30, noise=0.1)]
        model.fold_heads_ = [other, krigings[0], other, krigings[-1]]
        model.save(tmp_path / "model")
        again = load_model(tmp_path / "model")
        assert settings_of(again.fold_heads_) == settings_of(model.fold_heads_)
        x = np.random.default_rng(7).normal(size=(5, 3))
        assert again.out_of_fold_error() == pytest.approx(model.out_of_fold_error(), rel=1e-9)
        np.testing.assert_allclose(again.predict_interval(x), model.predict_interval(x))
    finally:
        model.network_.head, model.fold_heads_ = head, heads


@pytest.mark.slow
def test_classes_targets_groups_and_weights_have_readouts_by_fold(monkeypatch):
    for name, values in READOUTS.items():  # which readouts there are does not matter
        monkeypatch.setattr(name, values)
    rng = np.random.default_rng(6)
    x, y, weights = rng.normal(size=(48, 3)), rng.normal(size=48), rng.uniform(0.5, 2, 48)
    kriging = {**SETTINGS, "readout": "rows"}
    named = NeighborClassifier(**kriging).fit(x, y > 0, sample_weight=weights)
    several = NeighborRegressor(**SETTINGS).fit(x, np.c_[y, -x[:, 0]], groups=np.arange(48) // 3)
    for one in (named, several):
        assert len(one.fold_heads_) == 4
        assert np.isfinite(one.out_of_fold_predictions()[1]).all()
    each = [several.of_target(name).out_of_fold_error() for name in several.targets_]
    np.testing.assert_allclose(np.mean(each), several.out_of_fold_error(), rtol=1e-6)
    assert NeighborRegressor(**{**SETTINGS, "readout": "attention"}).fit(x, y).fold_heads_ is None
