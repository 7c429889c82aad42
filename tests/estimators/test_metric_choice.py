"""metric="auto": a kernel or a network for plain tables, whichever predicts the rows held out better."""

import numpy as np
import pandas as pd
import pytest
import torch

from references.tables import QUICK, table
from vicinal.encoders.ngrams import NgramEncoder
from vicinal.estimators import NeighborClassifier, NeighborRegressor, fitting, load_model
from vicinal.estimators.fitted import FittedModel
from vicinal.estimators.kernel_metric import PATIENCE

SETTINGS = {**QUICK, "random_state": 0}


def rows(count=150, seed=0):
    """Two numbers and a category, and a smooth function of them."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.uniform(-2, 2, (count, 2)), columns=["a", "b"]).assign(c=rng.choice(["u", "v"], count))
    return frame, np.sin(frame["a"]) + 3 * frame["b"] + (frame["c"] == "u") + rng.normal(0, 0.05, count)


def test_a_smooth_plain_table_is_of_a_kernel_and_equals_what_that_gives():
    frame, y = rows()
    y = y + 3 * np.sin(2 * frame.iloc[:, 0] * frame.iloc[:, 1])  # no sum over columns
    auto, kernel = (NeighborRegressor(metric=metric, **SETTINGS).fit(frame, y) for metric in ("auto", "kernel"))
    assert auto.metric_ == "kernel"
    np.testing.assert_array_equal(auto.predict(frame[:9]), kernel.predict(frame[:9]))


def test_steps_are_of_trees_and_equal_what_these_give(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(0, 1, (240, 3)), columns=["a", "b", "c"])
    y = 5.0 * (frame["a"] > 0.3) * (frame["b"] < 0.6) - 3.0 * (frame["c"] > 0.5) + rng.normal(0, 0.1, 240)
    auto, trees = (NeighborRegressor(metric=metric, **SETTINGS).fit(frame, y) for metric in ("auto", "trees"))
    assert auto.metric_ == "trees"
    np.testing.assert_array_equal(auto.predict(frame[:9]), trees.predict(frame[:9]))
    auto.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert (again.metric, again.metric_) == ("auto", "trees")
    np.testing.assert_array_equal(again.predict(frame[:9]), auto.predict(frame[:9]))


def test_principal_directions_of_texts_are_found_once_for_trees_and_kernel(monkeypatch):
    frame, y = rows()
    frame["t"] = [f"some more words of {i % 70} or {i % 7}" for i in range(len(frame))]
    found, settle = [], NgramEncoder.settle
    monkeypatch.setattr(NgramEncoder, "settle", lambda self, some: found.append(self) or settle(self, some))
    model = NeighborRegressor(**SETTINGS, encoders={"text": "ngrams"}).fit(frame, y)
    assert {trial.metric for trial in model.fitted_.trials} == {"trees", "kernel", "network"}
    assert len(found) == 1


def test_no_readout_is_chosen_of_a_network_that_was_given_up(monkeypatch):
    frame, y = rows()
    chosen = []
    monkeypatch.setattr(fitting, "HOPELESS", 0.0)
    monkeypatch.setattr(fitting, "may_be_trees", lambda *known: False)
    monkeypatch.setattr(fitting, "_with_readout", lambda model, *rest: chosen.append(model) or model)
    settings = {**SETTINGS, "learning_rate": 1e-12, "max_epochs": 5}
    assert NeighborRegressor(**settings).fit(frame, y).metric_ == "kernel"
    NeighborRegressor(metric="network", **settings).fit(frame, y)
    assert len(chosen) == 1


@pytest.mark.parametrize(
    ("factors", "chosen"),
    [
        ([1 - PATIENCE - 0.01] * 4, "network"),
        ([1 - PATIENCE + 0.01] * 4, "kernel"),
        ([0.1, 1.1, 1.1, 1.1], "kernel"),  # better on the mean, by a single row
    ],
)
def test_a_network_has_to_be_better_by_more_than_a_twentieth_and_by_more_than_luck(monkeypatch, factors, chosen):
    frame, y = rows()
    one = torch.ones(4, dtype=torch.float64)
    errors = {"kernel": one, "network": torch.tensor(factors, dtype=torch.float64)}
    monkeypatch.setattr(FittedModel, "held_out_errors", lambda self: (errors[self.metric], one))
    monkeypatch.setattr(fitting, "may_be_trees", lambda *known: False)
    assert NeighborRegressor(**SETTINGS, readout="rows").fit(frame, y).metric_ == chosen


@pytest.mark.parametrize("name", [pytest.param("exact", marks=pytest.mark.slow), "faiss:Flat"])
def test_a_saved_model_with_an_index_is_of_the_metric_that_was_chosen(name, tmp_path):
    pytest.importorskip("faiss" if name.startswith("faiss") else "torch")
    frame, y = rows()
    model = NeighborRegressor(index=name, **SETTINGS).fit(frame, y)
    plain = NeighborRegressor(metric="kernel", readout=model.readout_, **SETTINGS).fit(frame, y)
    np.testing.assert_allclose(model.predict(frame[:20]), plain.predict(frame[:20]), atol=1e-4)
    model.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert (again.metric, again.metric_) == ("auto", "kernel")
    np.testing.assert_array_equal(again.predict(frame[:20]), model.predict(frame[:20]))


@pytest.mark.parametrize("settings", [{}, {"metric": "network", "readout": "auto"}], ids=str)
def test_a_database_has_no_collection_of_what_was_not_chosen(tmp_path, settings):
    client = pytest.importorskip("pymilvus")
    pytest.importorskip("milvus_lite", reason="milvus-lite is an optional package")
    frame, y = rows(60)
    place = str(tmp_path / "bank.db")
    model = NeighborRegressor(index=f"milvus:{place}", **{**SETTINGS, "max_epochs": 1, **settings}).fit(frame, y)
    heads = 1 if model.readout_ != "attention" else model.members
    assert len(client.MilvusClient(place).list_collections()) == heads
    assert model.predict(frame[:3]).shape == (3,)


@pytest.mark.parametrize(
    "settings",
    [
        {"loss": "matching:tanh"},
        {"head": "dense"},
        {"similarity": "cosine"},
        {"readout": "attention"},
        {"validation_fraction": 0},
    ],
    ids=str,
)
def test_what_a_kernel_has_not_is_of_a_network(settings):
    frame, y = rows(60)
    assert NeighborRegressor(**{**SETTINGS, "max_epochs": 1, **settings}).fit(frame, y).metric_ == "network"


def test_several_classes_are_of_a_network_wide_tables_of_trees_and_texts_of_what_errs_least():
    brief = {**SETTINGS, "max_epochs": 1}
    texts, numbers = table(60)
    alone = NeighborRegressor(columns={"note": "text"}, **brief).fit(texts[["note"]], numbers)
    assert {one.metric for one in alone.fitted_.trials} == {"kernel", "network"}
    frame, y = rows(60)
    several = [["high", "some"] if one else ["some"] for one in y > 0]
    assert NeighborClassifier(**brief).fit(frame, several).metric_ == "network"
    wide = np.random.default_rng(0).normal(size=(60, 65))
    assert NeighborRegressor(**brief).fit(wide, wide[:, 0]).metric_ == "trees"
