"""What fits and intervals do to many rows is bounded, and done once."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest
import torch

from vicinal.estimators import NeighborRegressor, intervals
from vicinal.estimators.attention import range_of
from vicinal.estimators.calibrating import calibrating_rows
from vicinal.training import fit as fitting
from vicinal.training.rows import Rows, spread

SETTINGS = {"metric": "network", "hidden": (8, 4), "members": 2, "max_epochs": 2, "learning_rate": 1e-2}


def rows(count=200, seed=0):
    x = np.random.default_rng(seed).normal(size=(count, 2))
    return x, x[:, 0] + np.sin(x[:, 1])


class Inputs:
    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def select(self, rows):
        return self.values[rows]


@pytest.mark.parametrize(("count", "most"), [(5, 9), (9, 9), (10, 9), (1000, 7), (3, 1)])
def test_spread_rows_are_ordered_apart_and_reach_both_ends(count, most):
    at = spread(count, most)
    assert len(at) == min(count, most)
    assert at[0] == 0
    assert most == 1 or at[-1] == count - 1
    steps = at.diff()
    assert len(steps) == 0 or (steps.min() >= 1 and steps.max() - steps.min() <= 1)


def test_some_rows_are_those_rows_with_all_that_is_known_of_them():
    many = Rows(Inputs(torch.arange(10.0)), torch.arange(10.0) * 2, torch.arange(10) + 7, torch.arange(10) // 2)
    few = many.spread(4)
    batch = few.select(torch.tensor([1, 3]))
    assert len(few) == 4
    assert batch["inputs"].tolist() == [3.0, 9.0]
    assert batch["labels"].tolist() == [6.0, 18.0]
    assert batch["ids"].tolist() == [10, 16]
    assert batch["groups"].tolist() == [1, 4]
    assert many.spread(10) is many


@pytest.mark.parametrize("fraction", [0.3, 0])
def test_few_rows_decide_when_to_stop(monkeypatch, fraction):
    monkeypatch.setattr(fitting, "STOPPING_ROWS", 20)
    monkeypatch.setattr(fitting, "STOPPING_BANK", 50)
    seen = []
    step = fitting.NeighborModule.validation_step

    def validation_step(self, batch, index):
        seen.append((len(batch["ids"]), len(self._bank)))
        step(self, batch, index)

    monkeypatch.setattr(fitting.NeighborModule, "validation_step", validation_step)
    model = NeighborRegressor(**SETTINGS, readout="attention", validation_fraction=fraction).fit(*rows())
    assert set(seen) == {(20, 50)}
    assert len(model.bank_) == 200


@pytest.mark.parametrize("readout", ["attention", "rows"])
def test_margins_are_calibrated_once_for_a_state_of_the_rows(readout, monkeypatch):
    x, y = rows(300)
    model = NeighborRegressor(**SETTINGS, readout=readout, validation_fraction=0.3).fit(x[:200], y[:200])
    calls = []
    monkeypatch.setattr(intervals, "range_of", lambda *given: (calls.append(1), range_of(*given))[1])
    first = model.predict_interval(x[200:220])
    assert len(calls) == 2  # of the rows held out, and of these
    np.testing.assert_array_equal(model.predict_interval(x[200:220]), first)
    assert len(calls) == 3
    model.predict_interval(x[200:220], 0.8)
    assert len(calls) == (
        5 if readout == "attention" else 4
    )  # by kriging rows held out are missed by as much as before
    for change in (lambda: model.add(x[220:], y[220:]), lambda: model.forget(range(40))):
        before = model.fitted_
        known = before.computed
        change()
        assert before.computed is not known  # a model that shares the rows notices, too
        anew = copy.copy(model)
        anew.fitted_ = dataclasses.replace(model.fitted_)
        np.testing.assert_array_equal(model.predict_interval(x[200:220]), anew.predict_interval(x[200:220]))
    assert calibrating_rows(model.fitted_) == len(model.calibration_)


@pytest.mark.parametrize(
    "way", [lambda model: pickle.loads(pickle.dumps(model)), copy.deepcopy], ids=["pickle", "copy"]
)
def test_margins_go_with_a_copy_until_its_rows_change(way, monkeypatch):
    x, y = rows(300)
    model = NeighborRegressor(**SETTINGS, validation_fraction=0.3).fit(x[:200], y[:200])
    expected = model.predict_interval(x[200:])
    twin = way(model)
    assert twin.bank_.state not in (model.bank_.state, 0, 1)  # no number, which another process may count up to again
    calls = []
    monkeypatch.setattr(intervals, "range_of", lambda *given: (calls.append(1), range_of(*given))[1])
    np.testing.assert_array_equal(twin.predict_interval(x[200:]), expected)
    assert len(calls) == 1
    twin.forget(range(40))
    twin.predict_interval(x[200:])
    assert len(calls) == 3


def test_a_large_bank_is_read_by_kriging_without_a_comparison(monkeypatch):
    compared = []
    monkeypatch.setattr("vicinal.estimators.fitting.surely_less", lambda *given: compared.append(1) or False)
    small = NeighborRegressor(**SETTINGS).fit(*rows())
    assert len(compared) == 1
    monkeypatch.setattr("vicinal.estimators.fitting.COMPARED", 199)
    large = NeighborRegressor(**SETTINGS).fit(*rows())
    assert len(compared) == 1
    assert small.readout_ == large.readout_ == "rows"
