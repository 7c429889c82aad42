"""Constructed covariate shift: test rows drawn again with probability exp(tilt), calibration rows as they were."""

import numpy as np
from calibration_intervals import COVERAGE
from calibration_models import Fold
from sklearn.linear_model import LogisticRegression

from vicinal.calibration import ShiftedQuantile, conformal_quantile, distance_scores, neighbor_spread

TILT = 1.0
DRAWS = 2000


def directions(fold: Fold) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """What the shift goes along, of calibration and test rows, standardized on calibration rows."""
    spread = [np.log(neighbor_spread(w, fold.bank)) for w in (fold.held_weights, fold.test_weights)]
    mean, deviation = spread[0].mean(), spread[0].std()
    unit = [np.clip((s - mean) / deviation, -3, 3) for s in spread]
    axis = [np.clip(a[:, 0], -3, 3) for a in (fold.held_axes, fold.test_axes)]
    return {
        "component up": (axis[0], axis[1]),
        "component down": (-axis[0], -axis[1]),
        "disagreement up": (unit[0], unit[1]),
        "disagreement down": (-unit[0], -unit[1]),
    }


def shifted(fold: Fold) -> list[dict]:
    """Share covered and mean width of each method on the shifted test rows, for every direction."""
    held, test = fold.held_weights @ fold.bank, fold.test_weights @ fold.bank
    scores, truth = distance_scores(fold.held, held), distance_scores(fold.test, test)
    spread = [neighbor_spread(w, fold.bank) for w in (fold.held_weights, fold.test_weights)]
    made = []
    for name, (source, target) in directions(fold).items():
        random = np.random.default_rng([fold.seed, 7])
        order = random.permutation(len(target))
        seen, judged = np.array_split(order, 2)  # rows whose features are known beforehand, and rows predicted
        draw = [random.choice(part, DRAWS, p=_tilted(target[part])) for part in (seen, judged)]
        radii = thresholds(scores, source, target, *draw)
        scaled = conformal_quantile(scores / spread[0], COVERAGE) * spread[1][draw[1]]
        for method, radius in {**radii, "spread": scaled}.items():
            covered = float((truth[draw[1]] <= radius).mean())
            facts = {"covered": covered, "width": float(2 * np.mean(radius)), "rows": len(judged)}
            made.append({"split": fold.seed, "method": f"{name}: {method}", **facts})
    return made


def _tilted(values: np.ndarray) -> np.ndarray:
    share = np.exp(TILT * values)
    return share / share.sum()


def thresholds(scores, source, target, seen, judged) -> dict[str, np.ndarray | float]:
    """Radius by method: one threshold, weighted quantiles (true and estimated ratio), LR-QR."""

    def features(values):
        return np.column_stack([np.ones_like(values), values, values**2])

    plain = conformal_quantile(scores, COVERAGE)
    both = np.concatenate([source, target[seen]])[:, None]
    told = LogisticRegression().fit(both, np.repeat([0, 1], [len(source), len(seen)]))
    ratio = np.exp(told.decision_function(source[:, None]))
    model = ShiftedQuantile(COVERAGE).fit(features(source), scores, features(target[seen]))
    return {
        "plain": plain,
        "weighted, true ratio": _weighted(scores, np.exp(TILT * source)),
        "weighted, estimated": _weighted(scores, ratio),
        "LR-QR": model.predict(features(target[judged])),
    }


def _weighted(scores: np.ndarray, ratio: np.ndarray) -> float:
    """The weighted quantile; the largest score where the few heavy rows cannot promise a finite one."""
    try:
        return conformal_quantile(scores, COVERAGE, weights=ratio)
    except ValueError:
        return float(scores.max())
