"""Multicalibration over groups: kinds of text and halves of components, before and after level-set boosting."""

from pathlib import Path

import numpy as np
import torch
from calibration_drift import DOMAINS
from calibration_models import NEIGHBORS, axes_of, mean_weights
from sets import load
from sklearn.linear_model import Ridge
from trainer import Stream, fit

from vicinal.calibration import LevelSetBoosting, multicalibration_error
from vicinal.data import Split

SEEDS, EACH, LEVELS = 5, 1500, 10


def gathered(cache: Path, seed: int):
    """Features, labels, kind of text of all four kinds, in random order."""
    sets = [load(name, cache) for name in DOMAINS]
    orders = [np.random.default_rng([seed, i]).permutation(len(s.labels))[:EACH] for i, s in enumerate(sets)]
    features = np.vstack([s.features[rows] for s, rows in zip(sets, orders, strict=True)])
    labels = np.concatenate([s.labels[rows] for s, rows in zip(sets, orders, strict=True)])
    kind = np.repeat(np.arange(4), EACH)
    order = np.random.default_rng([seed, 11]).permutation(len(labels))
    return features[order], labels[order], kind[order]


def groups(cache: Path, *, tweets_only: bool) -> list[dict]:
    """Largest multicalibration error over the groups and squared error, on rows that nothing was fitted on."""
    made = []
    for seed in range(SEEDS):
        features, labels, kind = gathered(cache, seed)
        first, stop, boost, stop_boost, test = np.split(np.arange(len(labels)), [1500, 1800, 3800, 4500])
        if tweets_only:
            first, stop = first[kind[first] == 0], stop[kind[stop] == 0]
        stream = Stream.of(
            Split(train=first, validation=stop, test=test, seed=seed), labels, np.arange(len(labels)), seed
        )
        x = torch.from_numpy(features)
        fitted = fit(x, [stream], NEIGHBORS, 2)
        rows = [torch.from_numpy(r) for r in (boost, stop_boost, test)]
        guess = [mean_weights(fitted, NEIGHBORS, x, stream, r, slice(0, 2)) @ labels[first] for r in rows]
        axes = axes_of(features, first)
        members = np.column_stack([np.ones(len(kind)), np.eye(4)[kind], axes[:, :3] > 0, axes[:, :3] <= 0]).astype(
            float
        )
        deviation = labels[test].std()
        fitted_on = (members[boost], labels[boost])
        checked = (members[stop_boost], labels[stop_boost], guess[1])
        low, high = float(labels.min()), float(labels.max())
        for levels in (LEVELS, 4 * LEVELS):
            method, learner = f"boosted, {levels} levels", Ridge(alpha=10.0)
            model = LevelSetBoosting(learner, levels=levels, least=20, tolerance=0.0, low=low, high=high)
            model.fit(*fitted_on, start=guess[0], validation=checked)
            made.append(_line(seed, method, model.predict(members[test], start=guess[2]), labels[test], members[test]))
        made.append(_line(seed, "before", guess[2], labels[test], members[test]))
        constant = guess[2] + np.mean(labels[boost] - guess[0])
        made.append(_line(seed, "shifted by its mean error", constant, labels[test], members[test]))
        for line in made[-4:]:
            line["score"], line["error"] = line["score"] / deviation, line["error"] / deviation**2
    return made


def _line(seed: int, method: str, guess: np.ndarray, truth: np.ndarray, members: np.ndarray) -> dict:
    errors = multicalibration_error(guess, truth, members, levels=LEVELS) / members.mean(0)
    facts = {"score": float(errors.max()), "error": float(np.mean((guess - truth) ** 2)), "rows": len(truth)}
    kinds = {f"q{i + 1}": float(np.mean((truth - guess)[members[:, 1 + i] > 0])) for i in range(4)}
    return {"split": seed, "method": method, **facts, **kinds}
