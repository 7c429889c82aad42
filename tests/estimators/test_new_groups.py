"""Intervals and sets of a model fitted with groups hold rows of new groups as often as promised."""

import numpy as np
import pytest
import torch

from vicinal.calibration import ErrorSize, conformal_quantile
from vicinal.core import CalibrationWarning
from vicinal.estimators import NeighborClassifier, NeighborRegressor, load_model
from vicinal.estimators.attention import range_of
from vicinal.estimators.calibrating import calibrating_rows, calibrating_units, check_calibrates

NETWORK = {"metric": "network", "hidden": (8, 3), "members": 4, "max_epochs": 2, "learning_rate": 1e-2}
NEW = np.arange(1000, 1300)


def table(seed, groups=15, rows=6):
    """Labels that the group makes: rows of its own group would tell a row, those of others tell little."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(groups), rng.integers(1, 2 * rows, groups))
    x = rng.normal(size=(len(codes), 2))
    y = 2 * rng.normal(size=groups)[codes] + 0.3 * rng.normal(size=len(codes))
    return x, y, codes, rng.normal(size=(300, 2)), 2 * rng.normal(size=300) + 0.3 * rng.normal(size=300)


def covered(settings, fits, coverage=0.9):
    """The share of rows of new groups in their intervals, by fit."""
    shares = []
    for seed in range(fits):
        x, y, codes, fresh, truth = table(seed)
        model = NeighborRegressor(**settings, random_state=seed).fit(x, y, groups=codes)
        low, high = model.predict_interval(fresh, coverage, groups=NEW).T
        shares.append(np.mean((low <= truth) & (truth <= high)))
    return np.array(shares)


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    ("settings", "fits"),
    [({"metric": "kernel", "readout": "rows"}, 3), ({**NETWORK, "validation_fraction": 0}, 3)],
    ids=["all", "folds"],
)
def test_rows_of_new_groups_are_covered(settings, fits):
    shares = covered(settings, fits)
    assert shares.mean() > 0.87
    assert shares.min() > 0.6


@pytest.mark.parametrize("rows", ["bank", "held out"])
def test_the_margin_is_a_quantile_of_groups(rows):
    x, y, codes, fresh, _ = table(3, groups=40)
    settings = {"metric": "kernel"} if rows == "bank" else {**NETWORK, "readout": "rows", "validation_fraction": 0.25}
    model = NeighborRegressor(**settings).fit(x, y, groups=codes)
    bank = model.bank_ if rows == "bank" else model.calibration_
    known = {"ids": bank.ids, "groups": bank.groups}
    prediction, _, deviation = range_of(model.fitted_, bank.vectors.double(), known, 0.8)
    misses = ((torch.as_tensor(bank.labels) - prediction).abs() / deviation).numpy()
    size = ErrorSize(torch.stack([prediction, deviation], dim=1).detach(), misses)
    margin = conformal_quantile(misses / size.left_out, 0.8, groups=bank.groups)
    said, _, unit = range_of(model.fitted_, torch.from_numpy(model.embed(fresh)), {"ids": None, "groups": NEW}, 0.8)
    unit = unit * torch.from_numpy(size(torch.stack([said, unit], dim=1).detach()))
    wanted = np.stack([said - margin * unit, said + margin * unit], axis=1)
    np.testing.assert_allclose(model.predict_interval(fresh, 0.8, groups=NEW), wanted, rtol=1e-5, atol=1e-5)
    assert calibrating_units(model.fitted_)[0] == len(set(bank.groups))
    with pytest.warns(UserWarning, match="groups: expected those of the rows"):
        np.testing.assert_allclose(model.predict_interval(fresh, 0.8), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "settings", [{"metric": "kernel"}, {**NETWORK, "validation_fraction": 0.25}, {**NETWORK, "validation_fraction": 0}]
)
def test_sets_of_classes_hold_rows_of_new_groups(settings, monkeypatch):
    asked = []
    for place in (
        "vicinal.estimators.class_sets.cross_conformal_sets",
        "vicinal.calibration.classes.conformal_quantile",
    ):
        module, _, name = place.rpartition(".")
        real = getattr(__import__(module, fromlist=[name]), name)
        monkeypatch.setattr(place, lambda *a, real=real, **known: asked.append(known["groups"]) or real(*a, **known))
    x, y, codes, fresh, truth = table(1, groups=30)
    model = NeighborClassifier(**settings).fit(x, np.digitize(y, [-1, 1]), groups=codes)
    sets = model.predict_set(fresh, 0.8, groups=NEW)
    assert [len(set(one.tolist())) for one in asked] == [calibrating_units(model.fitted_)[0]]
    assert sets[np.arange(300), np.digitize(truth, [-1, 1])].mean() > 0.7


def test_too_few_groups_rule_nothing_out_and_say_so(tmp_path):
    x, y, codes, fresh, _ = table(0, groups=12)
    model = NeighborRegressor(**NETWORK).fit(x, y, groups=codes)
    count = calibrating_units(model.fitted_)[0]
    assert not model.calibrates(0.9)
    assert model.calibrates(0.5)
    with pytest.warns(CalibrationWarning, match=f"coverage: expected at most .* with {count} groups that calibrate"):
        found = model.predict_intervals(fresh, (0.5, 0.9), groups=NEW)
    assert np.isinf(found[0.9]).all()
    assert np.isfinite(found[0.5]).all()
    with pytest.raises(
        ValueError, match=f"with {count} calibration groups, got 0.9; ask for less, or fit on more groups"
    ):
        check_calibrates(model.fitted_, 0.9)
    named = NeighborClassifier(**NETWORK).fit(x, y > 0, groups=codes)
    with pytest.warns(CalibrationWarning):
        assert named.predict_set(fresh, 0.9, groups=NEW).all()
    model.save(tmp_path / "model")
    assert calibrating_units(load_model(tmp_path / "model").fitted_)[0] == count


def test_a_group_for_every_row_changes_nothing_but_which_rows_calibrate():
    x, y, _, fresh, _ = table(2)
    with pytest.warns(UserWarning, match="groups: expected some rows to share one"):
        alone = NeighborRegressor(**{**NETWORK, "validation_fraction": 0}).fit(x, y, groups=np.arange(len(y)))
    ends = alone.predict_interval(fresh, groups=NEW)
    codes = alone.bank_.store.group_codes
    assert calibrating_units(alone.fitted_)[0] == calibrating_rows(alone.fitted_) == len(codes)
    assert np.isfinite(ends).all()
