"""What columns add to trees and a linear model together, and to probabilities of classes: against their definitions."""

import lightgbm
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from vicinal.encoders import build_table_encoder
from vicinal.encoders.stacked_projector import StackedProjector, log_mean, probability_parts
from vicinal.encoders.tree_columns import LinearColumns
from vicinal.encoders.tree_text import class_texts

KINDS = {"size": "number", "age": "number", "city": "category"}


def softmax(z):
    return np.exp(z - z.max(axis=-1, keepdims=True)) / np.exp(z - z.max(axis=-1, keepdims=True)).sum(-1, keepdims=True)


@given(st.floats(-30, 3), st.floats(-30, 3))
def test_the_logarithmic_mean_is_the_mean_of_all_geometric_ones(a, b):
    by_quadrature = quad(lambda t: np.exp(t * a + (1 - t) * b), 0, 1)[0]
    said = float(log_mean(torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64)))
    assert said == pytest.approx(by_quadrature, rel=1e-7)
    assert min(np.exp(a), np.exp(b)) * (1 - 1e-12) <= said <= max(np.exp(a), np.exp(b)) * (1 + 1e-12)


@given(st.integers(2, 6), st.integers(1, 5), st.sampled_from([0.0, 1e-9, 1.0, 30.0, 1e4]), st.integers(0, 99))
def test_parts_of_probabilities_sum_to_what_they_change(classes, columns, size, seed):
    rng = np.random.default_rng(seed)
    logits, base = size * rng.normal(size=(4, classes, columns)), rng.normal(size=classes)
    parts = probability_parts(torch.from_numpy(logits), torch.from_numpy(base)).numpy()
    np.testing.assert_allclose(parts.sum(axis=2), softmax(base + logits.sum(axis=2)) - softmax(base), atol=1e-9)
    np.testing.assert_allclose(parts.sum(axis=1), 0, atol=1e-9 * max(1.0, size))


def test_parts_are_those_of_the_formula_and_of_two_classes_shares_of_the_log_odds():
    rng = np.random.default_rng(0)
    logits, base = rng.normal(size=(3, 4)), rng.normal(size=3)
    after, before = softmax(base + logits.sum(axis=1)), softmax(base)
    means = (after - before) / (np.log(after) - np.log(before))
    common = (means / means.sum()) @ logits
    want = means[:, None] * (logits - common)
    said = probability_parts(torch.from_numpy(logits[None]), torch.from_numpy(base))[0].numpy()
    np.testing.assert_allclose(said, want, atol=1e-12)
    odds = np.stack([np.zeros(4), logits[0]])
    change = softmax(np.array([0.0, logits[0].sum()]))[1] - 0.5
    two = probability_parts(torch.from_numpy(odds[None]), torch.zeros(2).double())[0].numpy()
    np.testing.assert_allclose(two[1], change * logits[0] / logits[0].sum(), atol=1e-12)


def test_a_column_that_says_nothing_adds_nothing_and_equal_columns_add_alike():
    logits = torch.randn(5, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    logits[:, :, 1], logits[:, :, 2] = 0.0, logits[:, :, 0]
    parts = probability_parts(logits, torch.zeros(2).double())
    torch.testing.assert_close(parts[:, :, 1], torch.zeros(5, 2).double())
    torch.testing.assert_close(parts[:, :, 0], parts[:, :, 2])


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=200), "age": rng.uniform(0, 9, 200)})
    frame["city"] = rng.choice(["a", "b", "c"], 200)
    frame.loc[::7, "age"] = np.nan
    encoder = build_table_encoder(KINDS).fit(frame)
    reader = LinearColumns(encoder)
    columns = reader(encoder, reader.prepare(encoder, frame).select(torch.arange(200)))
    codes = (frame["size"] > 0).astype(int).to_numpy() + 2 * (frame["city"] == "a").to_numpy() * (rng.random(200) < 0.5)
    return encoder, reader, columns, np.minimum(codes, 2)


def boosted(columns, codes, classes, seed=0):
    settings = {"num_leaves": 4, "verbosity": -1, "num_threads": 1, "min_data_in_leaf": 5, "seed": seed}
    settings |= {"objective": "multiclass", "num_class": classes} if classes > 2 else {"objective": "binary"}
    return lightgbm.train(settings, lightgbm.Dataset(columns, codes), 6)


@pytest.mark.parametrize("classes", [2, 3])
def test_texts_of_classes_are_the_log_odds_of_lightgbm(table, classes):
    _, reader, columns, codes = table
    rows = columns[:, : len(reader.names)].numpy()
    model = boosted(rows, codes if classes > 2 else np.minimum(codes, 1), classes)
    texts = class_texts(model.model_to_string(), rows.shape[1], classes)
    said = [lightgbm.Booster(model_str=text).predict(rows) for text in texts]
    raw = model.predict(rows, raw_score=True).reshape(len(rows), -1)
    np.testing.assert_allclose(np.stack(said, axis=1), raw, atol=1e-12)


def filled(reader, columns, codes, classes):
    rows = columns[:, : len(reader.names)].numpy()
    known = codes if classes > 2 else np.minimum(codes, 1)
    texts = [
        class_texts(boosted(rows, known, classes, seed).model_to_string(), rows.shape[1], classes) for seed in (0, 1)
    ]
    projector = StackedProjector(texts, reader, classes, classes=True)
    projector.columns.fit(columns[:, len(reader.names) :])
    random = torch.Generator().manual_seed(0)
    projector.slopes.copy_(torch.randn(projector.slopes.shape, generator=random))
    projector.shares.copy_(torch.tensor([0.7, 0.4])[:, None])
    projector.start.copy_(torch.arange(classes))
    return projector


@pytest.mark.parametrize("classes", [2, 3])
def test_entries_of_classes_are_parts_of_the_stacked_log_odds(table, classes):
    _, reader, columns, codes = table
    projector = filled(reader, columns, codes, classes)
    folds = torch.tensor([0, 1, -1])
    said = projector(columns[:3], folds).unflatten(0, (3,)).numpy()
    terms = torch.cat(projector.columns.terms(columns[:3, len(reader.names) :]), dim=1).numpy()
    slopes = projector.slopes.numpy()
    each = np.stack([slopes[0], slopes[1], slopes.mean(axis=0)])  # [rows, K, w]
    owners = projector.columns.by_column(reader.further)
    logits = np.zeros((3, classes, 3))
    for place, name in enumerate(["size", "age", "city"]):
        at = [i for i, owner in enumerate(owners) if owner == name]
        logits[:, :, place] = 0.4 * np.einsum("bw,bkw->bk", terms[:, at], each[:, :, at])
    of_trees = projector.trees(columns[:3, : len(reader.names)], folds).numpy()
    wide = of_trees[:, projector.trees.targets :].reshape(3, projector.trees.targets, -1)
    for place, name in enumerate(["size", "age", "city"]):
        at = [i for i, owner in enumerate(reader.names) if owner == name]
        logits[:, -projector.trees.targets :, place] += 0.7 * wide[:, :, at].sum(axis=2)
    start = np.arange(classes, dtype=float)
    np.testing.assert_allclose(projector.base.numpy(), softmax(start))
    want = softmax(start + logits.sum(axis=2))
    np.testing.assert_allclose(said[:, :classes] + softmax(start), want, atol=1e-9)
    np.testing.assert_allclose(said[:, classes:].reshape(3, classes, 3).sum(axis=2), said[:, :classes], atol=1e-12)


def test_trees_of_other_classes_are_refused(table):
    _, reader, columns, codes = table
    texts = [class_texts(boosted(columns[:, : len(reader.names)].numpy(), codes, 3).model_to_string(), 3, 3)] * 2
    with pytest.raises(ValueError, match=r"^texts: expected trees of 4 targets, got 3 a fold"):
        StackedProjector(texts, reader, 4, classes=True)
