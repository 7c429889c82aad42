"""Several numbers a row: one metric and one bank, and each target predicted, promised and explained by itself."""

import re

import numpy as np
import pandas as pd
import pytest
import torch

from vicinal.estimators import NeighborRegressor, load_model
from vicinal.training.error import error_of
from vicinal.training.likelihood import negative_log_likelihood

QUICK = {"metric": "network", "readout": "attention", "members": 2, "hidden": (8,), "max_epochs": 3}


def table(rows=90, seed=0):
    rng = np.random.default_rng(seed)
    x = pd.DataFrame(rng.normal(size=(rows, 3)), columns=["a", "b", "c"])
    price = 1000 * np.sin(x["a"]) + 30 * rng.normal(size=rows)
    return x, pd.DataFrame({"price": price, "size": x["b"] ** 2 + 0.1 * rng.normal(size=rows)})


@pytest.fixture(scope="module")
def fitted():
    x, y = table()
    return NeighborRegressor(metric="kernel").fit(x[:60], y[:60], ids=[f"r{i}" for i in range(60)]), x, y


def test_targets_are_named_and_each_has_predictions_and_intervals(fitted):
    model, x, y = fitted
    assert model.targets_ == ["price", "size"]
    predicted, intervals = model.predict(x[60:]), model.predict_interval(x[60:], 0.8)
    assert predicted.shape == (30, 2)
    assert intervals.shape == (30, 2, 2)
    assert model.score(x[60:], y[60:]) > 0.8
    inside = (intervals[:, :, 0] <= y[60:].to_numpy()) & (y[60:].to_numpy() <= intervals[:, :, 1])
    assert (inside.mean(axis=0) > 0.6).all()
    for place, name in enumerate(model.targets_):
        alone = model.of_target(name)
        assert alone.predict(x[60:]) == pytest.approx(predicted[:, place], rel=1e-9)
        assert alone.predict_interval(x[60:], 0.8) == pytest.approx(intervals[:, place], rel=1e-12)


def test_explanations_are_of_one_target_in_its_units(fitted):
    model, x, _ = fitted
    for place, name in enumerate(model.targets_):
        one = model.of_target(name).explain(x[60:61], 4)[0]
        assert one.prediction == pytest.approx(model.predict(x[60:61])[0, place], rel=1e-9)
        assert sum(n.contribution for n in one.neighbors) + one.other_contribution == pytest.approx(one.prediction)
        labels = dict(zip(model.bank_.ids.tolist(), model.bank_.labels[:, place].tolist(), strict=True))
        assert all(n.label == labels[n.id] for n in one.neighbors)
    with pytest.raises(ValueError, match=r"^explain: expected one target, got a model of 2 \('price', 'size'\)"):
        model.explain(x[:1])


def test_one_target_and_the_same_in_other_units_are_learned_as_one_is():
    x, y = table(60)
    one = NeighborRegressor(**QUICK).fit(x, y["size"])
    both = NeighborRegressor(**QUICK).fit(x, np.c_[y["size"], 3 * y["size"] + 7])
    assert both.targets_ == ["y0", "y1"]
    expected = one.predict(x)
    assert both.predict(x) == pytest.approx(np.c_[expected, 3 * expected + 7], abs=1e-4)
    assert both.predict_interval(x)[:, 0] == pytest.approx(one.predict_interval(x), abs=1e-4)


@pytest.mark.parametrize(
    "settings",
    [{"readout": "rows"}, {"head": "dense"}, {"validation_fraction": 0}],
    ids=["rows", "dense", "folds"],
)
def test_other_heads_take_several_targets(settings, tmp_path):
    x, y = table(60)
    model = NeighborRegressor(**{**QUICK, **settings}).fit(x, y)
    intervals = model.predict_interval(x, 0.7)
    assert intervals.shape == (60, 2, 2)
    assert (intervals[:, :, 0] <= intervals[:, :, 1]).all()
    model.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    np.testing.assert_array_equal(again.predict_interval(x, 0.7), intervals)


def test_rows_are_added_relabelled_forgotten_and_saved_with_all_numbers(fitted, tmp_path):
    model, x, y = fitted
    model.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert again.targets_ == ["price", "size"]
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    before = again.of_target("size").predict(x[61:62])[0]
    again.add(x[61:62], y[61:62][["size", "price"]] * 0 + 50, ids=["new"])  # columns by name, in any order
    assert again.labels_of(["new"]) == [[50.0, 50.0]]
    assert again.of_target("size").predict(x[61:62])[0] > before + 1
    again.relabel(["new"], [[1.0, 2.0]])
    assert again.labels_of(["new"]) == [[1.0, 2.0]]
    again.forget(["new"])
    np.testing.assert_allclose(again.predict(x), model.predict(x), rtol=1e-9)


def test_targets_keep_their_names_where_all_rows_are_fitted_again():
    x, y = table(60)
    model = NeighborRegressor(metric="kernel").partial_fit(x[:40], y[:40])
    assert model.partial_fit(x[40:], y[40:], refit=True).targets_ == ["price", "size"]
    assert len(model.bank_) == 60


@pytest.mark.parametrize(
    ("y", "settings", "words"),
    [
        (
            lambda y: y.assign(size=1.0),
            {},
            "y: expected labels that differ, got 1 in every training row of 'size'",
        ),
        (lambda y: y.assign(size=np.nan), {}, "y: expected finite numbers, got nan in row 0"),
        (lambda y: y, {"loss": "crps"}, "loss: expected None for several targets, got 'crps'"),
        (lambda y: y, {"index": "hnsw"}, "index: expected one of 'exact', 'faiss', 'milvus', got 'hnsw'"),
        (lambda y: pd.concat([y, y], axis=1), {}, "y: expected columns of different names"),
        (lambda y: y.assign(size="word"), {}, "y: expected numbers, got 'word'"),
        (lambda y: y[:20], {}, "y: expected 60 labels, one a row of X"),
    ],
)
def test_what_cannot_be_learned_is_one_sentence(y, settings, words):
    x, numbers = table(60)
    with pytest.raises(ValueError, match="^" + re.escape(words)):
        NeighborRegressor(**{**QUICK, **settings}).fit(x, y(numbers))


def test_labels_of_other_targets_are_refused(fitted):
    model, x, y = fitted
    for wrong, words in (
        (y[61:62].rename(columns={"size": "sizes"}), "expected the columns"),
        ([[1.0, 2.0, 3.0]], "expected 2 numbers a row"),
        ([1.0], "expected 2 numbers a row"),
    ):
        with pytest.raises(ValueError, match=rf"^y: {words}"):
            model.add(x[61:62], wrong, ids=["new"])
    with pytest.raises(ValueError, match=r"^name: expected one of 'price', 'size', got 'prize'"):
        model.of_target("prize")
    with pytest.raises(ValueError, match=r"^of_target: expected a model of several targets"):
        model.of_target("size").of_target("size")


def test_the_likelihood_of_several_targets_is_their_sum():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 6))
    matrix, labels = torch.from_numpy(root @ root.T + np.eye(6)), torch.from_numpy(rng.normal(size=(6, 3)))
    together, *each = (negative_log_likelihood(matrix.clone(), some) for some in (labels, *labels.T))
    for sums, parts in zip(together, zip(*each, strict=True), strict=True):
        torch.testing.assert_close(sums, torch.stack(parts).sum(dim=0))


def test_the_error_of_several_targets_is_their_mean():
    predicted, truth = torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[1.0, 4.0], [1.0, 3.0]])
    assert error_of(predicted, truth, numbers=True).tolist() == [2.0, 5.0]
