"""A fitted model on its test rows, beside what is to be beaten there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from vicinal.data import Split
from vicinal.encoders import EmbeddingCache, build_table_encoder
from vicinal.estimators.neighborhood import BankedEstimator
from vicinal.estimators.opening import OpenTable
from vicinal.evaluation import (
    Baseline,
    classification_scores,
    knn_grid,
    mean_baseline,
    regression_scores,
    ridge_baseline,
)

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Measured:
    """Scores on the test rows.

    Attributes:
        scores: method ("model" first) -> metric -> value.
        predicted: the model's predictions ``[n]`` or probabilities ``[n, K]``.
        notes: what the baselines chose, and what else a reader should know.
    """

    scores: dict[str, dict[str, float]]
    predicted: Array
    notes: list[str]


def measure(model: BankedEstimator, opened: OpenTable, split: Split) -> Measured:
    """Scores of the model, of the mean, of k-NN on the model's embeddings, and of ridge on the untuned features."""
    predicted = predict_test(model, opened, split)
    classes = _classes(model)
    target = opened.table.target
    labels = (target[split.train], target[split.validation])
    mean = mean_baseline(target[split.train], len(split.test), classes=classes)
    knn = knn_of_embeddings(model, opened, split)
    features = untuned_features(model, opened, split)
    ridge = ridge_baseline(features[0], labels[0], features[1], labels[1], features[2], classes=classes)
    linear = "ridge" if classes is None else "logistic regression"
    named = {
        "model": predicted,
        "mean": mean.prediction,
        "k-NN on its embeddings": knn.prediction,
        f"{linear} on untuned features": ridge.prediction,
    }
    notes = [f"{baseline.name}: {_told(baseline)}, chosen on the validation rows." for baseline in (knn, ridge)]
    return Measured({name: score(model, p, target[split.test]) for name, p in named.items()}, predicted, notes)


def predict_test(model: BankedEstimator, opened: OpenTable, split: Split) -> Array:
    """Predictions of the test rows; their ids and groups keep a row from its own."""
    part = opened.table.select(split.test)
    frame = part.frame[list(opened.kinds)]
    predict = model.predict if _classes(model) is None else model.predict_proba
    predicted: Array = predict(frame, ids=part.ids, groups=part.groups)
    return predicted


def knn_of_embeddings(model: BankedEstimator, opened: OpenTable, split: Split) -> Baseline:
    """The paper's k-NN grid on the model's embeddings, chosen on the validation rows."""
    test = model.embed(opened.table.select(split.test).frame[list(opened.kinds)])
    return knn_grid(
        model.bank_.vectors.numpy(),
        _named_labels(model, model.bank_.labels),
        model.calibration_.vectors.numpy(),
        _named_labels(model, model.calibration_.labels),
        test,
        classes=_classes(model),
    )


def untuned_features(model: BankedEstimator, opened: OpenTable, split: Split) -> list[Any]:
    """Features of training, validation and test rows as the encoders give them before any training."""
    frame = opened.table.frame[list(opened.kinds)]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = build_table_encoder(opened.kinds, encoders=model.encoders)
        encoder.fit(frame.iloc[split.train])
    store = None if model.cache_dir is None else EmbeddingCache(model.cache_dir)
    found = []
    for rows in (split.train, split.validation, split.test):
        part = frame.iloc[rows]
        found.append(encoder.features(part, encoder.cache(encoder.prepare(part, opened.table.root), store=store)))
    return found


def score(model: BankedEstimator, predicted: Array, truth: Array) -> dict[str, float]:
    """Regression or classification scores of predictions of this model's kind."""
    classes = _classes(model)
    if classes is None:
        return regression_scores(truth, predicted)
    return classification_scores(truth, predicted, classes)


def _classes(model: BankedEstimator) -> Sequence[Any] | None:
    classes = getattr(model, "classes_", None)
    return None if classes is None else classes.tolist()


def _named_labels(model: BankedEstimator, labels: torch.Tensor) -> Array:
    classes = getattr(model, "classes_", None)
    return labels.numpy() if classes is None else classes[labels.long().numpy()]


def _told(baseline: Baseline) -> str:
    return (
        ", ".join(
            f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in baseline.settings.items()
        )
        or "as it is"
    )
