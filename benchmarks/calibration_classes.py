"""Sets of classes without and with label shift, and abstaining, on the probabilities that class_heads.py kept."""

from pathlib import Path

import numpy as np
import torch
from calibration_intervals import COVERAGE
from class_heads import SEEDS
from sklearn.linear_model import LogisticRegression

from vicinal.calibration import (
    ConformalClasses,
    LabelShiftSets,
    area_under_selective_curve,
    rejection_cost,
    rejection_loss,
)

DRAWS = 1500
METHODS = ("dense softmax", "neighbors (NONA)")
COST = 0.1


def stored(name: str, store: Path) -> list[tuple[int, dict[str, np.ndarray]]]:
    """Every seed's probabilities of a set."""
    files = sorted(store.glob(f"{name}-*.npz"))
    if len(files) < SEEDS:
        raise SystemExit(f"{store}: expected {SEEDS} files of {name}, got {len(files)}; run benchmarks/class_heads.py")
    return [(int(path.stem.rpartition("-")[2]), dict(np.load(path))) for path in files]


def line(seed: int, method: str, sets: np.ndarray, truth: np.ndarray) -> dict:
    """Share covered and mean number of classes in a set; the least covered class goes into q1."""
    inside = sets[np.arange(len(truth)), truth]
    worst = min(float(inside[truth == label].mean()) for label in np.unique(truth))
    facts = {"covered": float(inside.mean()), "width": float(sets.sum(1).mean()), "q1": worst}
    return {"split": seed, "method": method, "rows": len(truth), **facts}


def plain_sets(name: str, store: Path) -> list[dict]:
    """LAC, APS and RAPS on rows of the same population."""
    made = []
    for seed, kept in stored(name, store):
        for model in METHODS:
            for kind in ("lac", "aps", "raps"):
                sets = ConformalClasses(kind, coverage=COVERAGE, seed=0, allowed=1, penalty=0.05)
                sets.fit(kept[f"{model}/held"], kept["labels/held"])
                found = sets.predict(kept[f"{model}/test"])
                made.append(line(seed, f"{model}: {kind}", found, kept["labels/test"]))
    return made


def merged(shares: np.ndarray, labels: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Three classes: the first two of ``order``, and all the rest in one."""
    place = np.minimum(np.argsort(order), 2)
    return np.column_stack([shares[:, place == part].sum(1) for part in range(3)]), place[labels]


def label_shift(name: str, store: Path) -> list[dict]:
    """Test rows drawn anew so that the two classes that are hardest at calibration are ten times as frequent.

    Ten classes are merged to three first, these two and the rest: bounds of ten weights need thousands of rows.
    """
    made = []
    for seed, kept in stored(name, store):
        for model in METHODS:
            held, test = kept[f"{model}/held"], kept[f"{model}/test"]
            truth, answers = kept["labels/held"], kept["labels/test"]
            own = held[np.arange(len(truth)), truth]
            order = np.argsort([np.quantile(own[truth == label], 0.2) for label in range(held.shape[1])])
            (held, truth), (test, answers) = merged(held, truth, order), merged(test, answers, order)
            share = np.array([10.0, 10.0, 1.0])[answers]
            random = np.random.default_rng([seed, 3])
            seen, judged = np.array_split(random.permutation(len(answers)), 2)
            draws = [random.choice(part, DRAWS, p=share[part] / share[part].sum()) for part in (seen, judged)]
            plain = ConformalClasses("lac", coverage=COVERAGE).fit(held, truth)
            made.append(line(seed, f"{model}: lac", plain.predict(test[draws[1]]), answers[draws[1]]))
            made.append(_pac(seed, model, held, truth, test, answers, draws))
    return made


def _pac(seed, model, held, truth, test, answers, draws) -> dict:
    sets = LabelShiftSets(1 - COVERAGE, 0.1)
    try:
        found = sets.fit(held, truth, test[draws[0]]).predict(test[draws[1]])
    except ValueError:  # too few rows to bound the class weights: all classes
        found = np.ones((len(draws[1]), held.shape[1]), dtype=bool)
    return line(seed, f"{model}: PAC", found, answers[draws[1]])


def rejection(name: str, store: Path) -> list[dict]:
    """Area under the selective error by the model's own confidence and by a learned rejector."""
    made = []
    for seed, kept in stored(name, store):
        for model in METHODS:
            held, test = kept[f"{model}/held"], kept[f"{model}/test"]
            right = held.argmax(1) == kept["labels/held"]
            wrong = (test.argmax(1) != kept["labels/test"]).astype(float)
            for rejector, scores in _rejectors(held, test, right).items():
                area = area_under_selective_curve(scores, wrong)
                cost = float(rejection_cost(scores, wrong, [COST])[0])
                facts = {"score": area, "width": cost, "error": float(wrong.mean()), "rows": len(wrong)}
                made.append({"split": seed, "method": f"{model}: {rejector}", **facts})
    return made


def _features(shares: np.ndarray) -> np.ndarray:
    ordered = np.sort(shares, axis=1)
    entropy = -(shares * np.log(np.maximum(shares, 1e-12))).sum(1)
    odds = np.log(np.maximum(ordered[:, -1], 1e-12) / np.maximum(1 - ordered[:, -1], 1e-6))
    margin = np.log(np.maximum(ordered[:, -1], 1e-12) / np.maximum(ordered[:, -2], 1e-6))
    return np.column_stack([odds, margin, entropy, shares])


def _rejectors(held: np.ndarray, test: np.ndarray, right: np.ndarray) -> dict[str, np.ndarray]:
    """Scores of test rows, above 0 where the answer is to be given at the price ``COST`` of none."""
    platt = LogisticRegression().fit(_features(held)[:, :1], right)
    chance = platt.predict_proba(_features(test)[:, :1])[:, 1]
    return {
        "confidence": test.max(1) - (1 - COST),
        "confidence, calibrated": chance - (1 - COST),
        "learned rejector": _learned(_features(held), _features(test), right),
    }


def _learned(held: np.ndarray, test: np.ndarray, right: np.ndarray) -> np.ndarray:
    """A linear rejector of the probabilities, by vicinal's rejection loss with a small weight decay."""
    center, deviation = held.mean(0), held.std(0) + 1e-6
    rows, goal = torch.from_numpy((held - center) / deviation), torch.from_numpy(right)
    model = torch.nn.Linear(rows.shape[1], 1).double()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = rejection_loss(model(rows)[:, 0], goal, cost=COST) + 1e-3 * model.weight.square().sum()
        loss.backward()
        return loss

    torch.manual_seed(0)
    optimizer.step(closure)
    with torch.no_grad():
        return model(torch.from_numpy((test - center) / deviation))[:, 0].numpy()
