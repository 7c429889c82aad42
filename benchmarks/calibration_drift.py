"""Streams that drift: a model of tweets meets other kinds of text, and labels grow noisier."""

from pathlib import Path

import numpy as np
import torch
from calibration_intervals import COVERAGE
from calibration_models import NEIGHBORS, mean_weights
from sets import load
from trainer import Stream, fit

from vicinal.calibration import ScaleFreeOGD, StronglyAdaptive, conformal_quantile, online_radii
from vicinal.data import Split

DOMAINS = ("tweets", "movies", "amazon", "nyt")
TRAIN, STOP, HELD, STEPS = 1200, 150, 300, 1000
SEEDS, WINDOW = 5, 100


def streams(cache: Path, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Calibration scores, scores of the stream and the part that each step belongs to, for both streams."""
    sets = [load(name, cache) for name in DOMAINS]
    orders = [np.random.default_rng([seed, i]).permutation(len(s.labels)) for i, s in enumerate(sets)]
    taken = [orders[0][: TRAIN + STOP + HELD + STEPS], *(order[:STEPS] for order in orders[1:])]
    features = np.vstack([s.features[rows] for s, rows in zip(sets, taken, strict=True)])
    labels = np.concatenate([s.labels[rows] for s, rows in zip(sets, taken, strict=True)])
    ends = np.cumsum([TRAIN, STOP, HELD])
    train, stop, held, rest = np.split(np.arange(len(labels)), ends)
    split = Split(train=train, validation=stop, test=rest, seed=seed)
    stream = Stream.of(split, labels, np.arange(len(labels)), seed)
    x = torch.from_numpy(features)
    fitted = fit(x, [stream], NEIGHBORS, 2)
    guess = [mean_weights(fitted, NEIGHBORS, x, stream, torch.from_numpy(rows), slice(0, 2)) for rows in (held, rest)]
    guess = [weights @ labels[train] for weights in guess]
    deviation = labels[train].std()
    scores = [np.abs(g - labels[rows]) / deviation for g, rows in zip(guess, (held, rest), strict=True)]
    noise = np.random.default_rng([seed, 9]).normal(size=STEPS) * np.linspace(0, 2, STEPS)
    noisy = np.abs((labels[rest[:STEPS]] - guess[1][:STEPS]) / deviation + noise)
    return {
        "domains": (scores[0], scores[1], np.repeat(np.arange(4), STEPS)),
        "growing noise": (scores[0], noisy, np.repeat(np.arange(4), STEPS // 4)),
    }


def radii_of(held: np.ndarray, scores: np.ndarray) -> dict[str, np.ndarray]:
    """The radius before each step, by method."""
    start, largest = conformal_quantile(held, COVERAGE), float(np.sqrt(3) * held.max())
    return {
        "fixed": np.full(len(scores), start),
        "SF-OGD": np.array(online_radii(ScaleFreeOGD(COVERAGE, largest, start), scores)),
        "SAOCP": np.array(online_radii(_warm(StronglyAdaptive(COVERAGE, largest), held), scores)),
    }


def _warm(online: StronglyAdaptive, held: np.ndarray) -> StronglyAdaptive:
    for score in held:
        online.update(score)
    return online


def drift(stream: str, cache: Path, *, keep: Path | None = None) -> list[dict]:
    """Coverage by part of the stream, worst coverage of 100 steps in a row, and mean width."""
    made = []
    for seed in range(SEEDS):
        held, scores, part = streams(cache, seed)[stream]
        for method, radii in radii_of(held, scores).items():
            inside = (scores <= radii).astype(float)
            windows = np.convolve(inside, np.ones(WINDOW) / WINDOW, mode="valid")
            quarters = {f"q{i + 1}": float(inside[part == i].mean()) for i in range(4)}
            facts = {"covered": float(inside.mean()), "width": float(2 * radii.mean()), "score": float(windows.min())}
            made.append({"split": seed, "method": method, "rows": len(scores), **facts, **quarters})
            if keep is not None and seed == 0:
                np.save(keep / f"{stream}-{method}.npy", np.stack([scores, radii]))
    return made
