"""Which columns matter: shares by hand-made trends and distances, of fitted models, and on reports."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from vicinal.estimators import NeighborClassifier, NeighborRegressor
from vicinal.estimators.importance import importance_of
from vicinal.estimators.kernel_metric import kernel_columns
from vicinal.estimators.tree_metric import trend_head
from vicinal.report.card import card_text
from vicinal.report.page import page_html
from vicinal.report.records import FitRecord
from vicinal.report.tables import importance_rows


def model_of(entries, names, targets=1, mass=None, place=None):
    """A model whose trend adds these entries ``[n, T, c]`` to the rows of its bank."""
    rows = torch.tensor(entries, dtype=torch.float64)
    one = torch.ones(targets, dtype=torch.float64)
    projector = SimpleNamespace(trend=rows.shape[2], targets=targets, base=0 * one, unit=2 * one)
    network = SimpleNamespace(cross_fitted=True, trend_columns=lambda: names, projector=projector, head=None)
    network.head = trend_head(network) if place is None else trend_head(network).of_target(place, 0.0, 3.0)
    mass = torch.ones(len(rows)) if mass is None else torch.tensor(mass)
    bank = SimpleNamespace(vectors=torch.cat([torch.full((len(rows), 1), 9.0), rows.flatten(1)], dim=1), mass=mass)
    return SimpleNamespace(metric="trees", network=network, bank=bank)


def test_shares_are_mean_absolute_parts_of_the_trend():
    model = model_of([[[1.0, -3.0, 0.0]], [[-3.0, 7.0, 0.0]]], ["a", "b", "c"])
    assert importance_of(model) == pytest.approx({"b": 5 / 7, "a": 2 / 7, "c": 0.0})
    assert list(importance_of(model)) == ["b", "a", "c"]


def test_entries_of_a_column_are_summed_before_their_sign_is_lost():
    assert importance_of(model_of([[[1.0, 3.0, -1.0]]], ["a", "b", "a"])) == {"b": 1.0, "a": 0.0}


def test_rows_count_by_their_weight():
    model = model_of([[[1.0, 0.0]], [[0.0, 1.0]]], ["a", "b"], mass=[3.0, 1.0])
    assert importance_of(model) == pytest.approx({"a": 0.75, "b": 0.25})


def test_several_targets_are_averaged_unless_one_is_meant():
    entries = [[[1.0, 0.0], [1.0, 2.0]]]
    assert importance_of(model_of(entries, ["a", "b"], 2)) == pytest.approx({"a": 0.5, "b": 0.5})
    assert importance_of(model_of(entries, ["a", "b"], 2, place=1)) == pytest.approx({"b": 2 / 3, "a": 1 / 3})


def test_a_trend_of_nothing_gives_no_column_a_share():
    assert importance_of(model_of([[[0.0, 0.0]]], ["a", "b"])) == {"a": 0.0, "b": 0.0}


def table(n=150, seed=0):
    rng = np.random.default_rng(seed)
    x = pd.DataFrame({"big": rng.normal(0, 1, n), "small": rng.normal(0, 1, n), "noise": rng.normal(0, 1, n)})
    x["kind"] = rng.choice(["u", "v"], n)
    return x, 10 * x["big"] + 2 * x["small"] + rng.normal(0, 0.1, n)


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["trees", "kernel"])
def test_fitted_comparables_know_what_they_use(metric):
    x, y = table()
    model = NeighborRegressor(metric=metric, readout="comparables").fit(x, y)
    shares = model.importance()
    assert set(shares) == set(x)
    assert sum(shares.values()) == pytest.approx(1, abs=1e-9)
    assert list(shares)[:2] == ["big", "small"]
    assert shares["big"] == pytest.approx(10 / 12, abs=0.1)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)


def test_a_kernel_without_a_trend_tells_by_its_distances():
    x, y = table()
    model = NeighborRegressor(metric="kernel", readout="dense").fit(x, y)
    vectors, shares = model.bank_.vectors.double(), model.importance()
    assert sum(shares.values()) == pytest.approx(1, abs=1e-9)
    at = [place for place, name in enumerate(kernel_columns(model.network_)) if name == "big"]
    apart, by_big = (torch.cdist(some, some).square().mean() for some in (vectors, vectors[:, at]))
    assert shares["big"] == pytest.approx(float(by_big / apart), rel=1e-6)
    classes = NeighborClassifier(metric="kernel").fit(x, y > 0).importance()
    assert set(classes) == set(x)
    assert sum(classes.values()) == pytest.approx(1, abs=1e-9)


@pytest.mark.slow
def test_one_of_several_targets_has_its_own_shares():
    x, y = table()
    both = pd.DataFrame({"first": y, "second": 5 * x["small"] + x["noise"]})
    model = NeighborRegressor(metric="trees", readout="comparables").fit(x, both)
    first, second, mean = (one.importance() for one in (*map(model.of_target, both), model))
    assert (next(iter(first)), next(iter(second))) == ("big", "small")
    for shares in (first, second, mean):
        assert sum(shares.values()) == pytest.approx(1, abs=1e-9)
    assert first["big"] > mean["big"] > second["big"]


def test_a_network_knows_no_columns():
    x, y = table(40)
    model = NeighborRegressor(metric="network", max_epochs=1, members=1, hidden=(4,)).fit(x, y)
    with pytest.raises(ValueError, match=r"importance: expected metric='kernel' or 'trees'.*permutation_importance"):
        model.importance()


def record(**changes):
    settings = {"metric": "trees", "readout": "comparables"}
    return FitRecord("d", "y", "regression", settings, scores={"model": {"mse": 1.0}}, **changes)


def test_report_and_card_show_the_shares():
    one = record(importance={"bmi": 0.7, "<b>": 0.3})
    page, card = page_html(one), card_text(one)
    assert "Importance of the columns" in page
    assert "adds to the trend" in page
    assert "| bmi | 70 % |" in card
    assert "&lt;b&gt;" in card
    assert "mean squared distance" in card_text(record(importance={"a": 1.0}, importance_by="distance"))
    page, card = page_html(record()), card_text(record())
    assert "Importance of the columns" not in page + card
    assert "Columns that matter" not in card


def test_columns_of_small_shares_are_shown_together():
    rows = importance_rows({f"c{place:02}": 1 / 20 for place in range(20)})
    assert len(rows) == 13
    assert rows[-1] == ("8 more columns", pytest.approx(0.4))


def test_the_card_says_how_comparables_predict():
    assert "each adjusted by what a trend by columns says" in card_text(record())
    assert "model.importance()" in card_text(record(importance={"a": 1.0}))
