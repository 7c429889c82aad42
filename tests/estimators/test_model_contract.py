"""What every model promises, whatever its metric, its readout and its labels: one model of each, on few rows."""

import functools
import itertools
import warnings
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from references.tables import QUICK
from vicinal.estimators import NeighborClassifier, NeighborRegressor, blending, load_model
from vicinal.estimators.fitted import FittedModel

METRICS = ("kernel", "trees", "network", "trees and kernel")
READOUTS = ("rows", "comparables", "dense", "attention", "auto")
LABELS = ("one number", "two numbers", "classes")
CELLS = [*itertools.product(METRICS, READOUTS, LABELS)]


def refused(metric, readout, labels):
    """Whether there is no such model: what untrained metrics, signed weights and trends do not go with.

    The mean of trees and a kernel is only found by "auto", which of the others is none of these readouts.
    """
    return (metric == "trees and kernel") != (readout == "auto") or {
        "attention": metric != "network",
        "dense": metric == "trees" or (labels == "classes" and metric == "network"),
        "comparables": metric == "network" or (labels == "classes" and metric == "kernel"),
    }.get(readout, False)


def rows(count, seed):
    """Two numbers, one with gaps, a category, and labels of each kind that follow from them."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"size": rng.normal(size=count), "age": rng.uniform(0, 9, count)})
    frame["city"] = rng.choice(["a", "b"], count)
    y = (
        3 * frame["size"] + 2.0 * (frame["age"] > 4) + (frame["city"] == "a") + 0.3 * rng.normal(size=count)
    ).to_numpy()
    frame.loc[5::20, "age"] = np.nan
    return frame, {"one number": y, "two numbers": np.c_[y, 100 - 7 * y], "classes": np.where(y > 1, "high", "low")}


FRAME, Y = rows(80, 0)
NEW, NEW_Y = rows(6, 1)


def unfitted(metric, readout, labels):
    settings = {"metric": metric, "readout": readout, "random_state": 0}
    settings |= {"metric": "auto"} if readout == "auto" else {}
    settings |= (QUICK | {"max_epochs": 2}) if metric == "network" else {}
    return (NeighborClassifier if labels == "classes" else NeighborRegressor)(**settings)


@functools.cache
def fitted(cell):
    """A model that no test changes; the mean of trees and a kernel whatever the errors of both."""
    errors = FittedModel.error_of_all

    def error(model):
        return errors(model) * (model.metric != "trees and kernel")

    with mock.patch.object(blending, "LEAST", 0.0), mock.patch.object(FittedModel, "error_of_all", error):
        model = unfitted(*cell).fit(FRAME, Y[cell[2]])
    assert model.metric_ == cell[0]
    assert cell[1] in (model.readout_, "auto")
    return model


@pytest.fixture(params=[cell for cell in CELLS if not refused(*cell)], ids="-".join)
def cell(request):
    return request.param


@pytest.fixture
def model(cell):
    return fitted(cell)


@pytest.fixture
def copy(model, tmp_path):
    """The same model, saved and loaded, to be changed."""
    model.save(tmp_path / "m")
    return load_model(tmp_path / "m")


def answers(model, frame=NEW):
    """Predictions ``[n]`` or ``[n, T]``, of classes their probabilities."""
    return model.predict_proba(frame) if hasattr(model, "classes_") else model.predict(frame)


@pytest.mark.parametrize(
    "cell", [one for one in CELLS if refused(*one) and one[0] != "trees and kernel" and one[1] != "auto"], ids="-".join
)
def test_there_is_no_other_model(cell):
    with pytest.raises(ValueError, match=r"^readout: expected '"):
        unfitted(*cell).fit(FRAME, Y[cell[2]])


def test_parts_sum_to_the_prediction_and_weights_are_finite(model, cell):
    several = cell[2] == "two numbers"
    for place, one in enumerate([model.of_target(name) for name in model.targets_] if several else [model]):
        said = answers(model)[:, place] if several else answers(model)
        for told, prediction in zip(one.explain(NEW, 3), said, strict=True):
            trend = (0.0, 0.0) if told.trend is None else (told.trend.weight, told.trend.contribution)
            if told.trend is not None:
                assert set(told.trend.columns) == {*FRAME}
                by_column = told.trend.base + sum(told.trend.columns.values())
                assert told.trend.value == pytest.approx(by_column, abs=1e-9)
            for n in told.neighbors if cell[1] == "comparables" else ():
                label = float(n.label == told.prediction) if cell[2] == "classes" else n.label
                assert n.adjusted == pytest.approx(label + sum(n.adjustments.values()), abs=1e-9)
                assert n.contribution == pytest.approx(n.weight * n.adjusted, abs=1e-9)
            weights, parts = ([getattr(n, name) for n in told.neighbors] for name in ("weight", "contribution"))
            assert np.isfinite([*weights, *parts, *trend]).all()
            assert min(weights) > 0 or cell[1] in ("dense", "auto")
            assert sum(weights) + told.other_weight + trend[0] == pytest.approx(1, abs=1e-9)
            total = sum(parts) + told.other_contribution + trend[1] + told.constant
            assert total == pytest.approx(told.total, abs=1e-9)
            assert (told.probability if hasattr(one, "classes_") else total) == pytest.approx(
                prediction.max(), abs=1e-9
            )


def test_what_training_alone_needs_is_not_held(model):
    assert all(weight.grad is None for weight in model.network_.parameters())


def test_saved_and_loaded_it_answers_alike(model, copy, cell):
    np.testing.assert_array_equal(answers(copy), answers(model))
    assert (copy.metric_, copy.readout_) == (model.metric_, model.readout_)
    if cell[2] != "classes":
        np.testing.assert_array_equal(copy.predict_interval(NEW), model.predict_interval(NEW))
    np.testing.assert_array_equal(copy.kneighbors(NEW, 3)[1], model.kneighbors(NEW, 3)[1])
    if cell[2] != "two numbers":
        assert str(copy.explain(NEW, 3)) == str(model.explain(NEW, 3))


def test_rows_that_were_added_and_forgotten_leave_nothing(model, copy, cell):
    with pytest.raises(ValueError, match=r"^X: expected at least one row"):
        copy.add(NEW[:0], NEW_Y[cell[2]][:0], ids=[])
    np.testing.assert_array_equal(answers(copy), answers(model))
    names = [500 + place for place in range(len(NEW))]
    copy.add(NEW, NEW_Y[cell[2]][::-1], ids=names)
    assert not np.array_equal(answers(copy), answers(model))
    copy.forget(names)
    np.testing.assert_allclose(answers(copy), answers(model), rtol=0, atol=1e-9)


def test_intervals_hold_the_prediction_and_the_error_out_of_fold_is_finite(model, cell):
    said = model.predict(NEW)
    if cell[2] == "classes":
        likeliest, sets = answers(model).argmax(axis=1), model.predict_set(NEW)
        assert (model.classes_[likeliest] == said).all()
        assert (sets[np.arange(len(NEW)), likeliest] | ~sets.any(axis=1)).all()
    else:
        low, high = np.moveaxis(model.predict_interval(NEW), -1, 0)
        assert ((low <= said) & (said <= high)).all()
    assert np.isfinite(model.honest_error())


def test_one_wild_cell_moves_its_row_alone_and_not_far(model, cell):
    cells = [("size", 1e30), ("size", -1e30), ("age", 1e6), ("age", -300.0)]
    wild = pd.concat([NEW, *(NEW[:1].assign(**{column: value}) for column, value in cells)], ignore_index=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        after = answers(model, wild)
    np.testing.assert_allclose(after[: len(NEW)], answers(model), rtol=0, atol=1e-9)
    ends = (0, 1) if cell[2] == "classes" else (Y[cell[2]].min(0), Y[cell[2]].max(0))
    reach = (cell[2] != "classes") * (ends[1] - ends[0]) / 2 + 1e-9
    assert ((ends[0] - reach <= after) & (after <= ends[1] + reach)).all()
