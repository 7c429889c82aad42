"""``vicinal demo``: the default on a small real table, reasons in words, and a wrong label that is found and mended."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vicinal.core.progress import Log
from vicinal.data import Split, cars_table
from vicinal.estimators import load_model
from vicinal.report.tables import verdict_sentence
from vicinal.workflows.bank import relabel_table
from vicinal.workflows.evaluate import audit_table
from vicinal.workflows.fit import FitOutcome, fit_table, plan_fit
from vicinal.workflows.measured import Measured, Measurements
from vicinal.workflows.measuring import measure
from vicinal.workflows.opening import TableJob, fit_split, make_estimator, open_table
from vicinal.workflows.verdict import Covering, verdict

FOLDS = 5
"""Fits whose test rows together are all cars: a single fifth of them would leave open which model is better."""

EXAMPLES = 3
"""Predictions that are explained."""

FAR = 0.75
"""Place of the car whose label is made wrong among the cars to train on, by how far they go."""

LITERS = 235.215
"""Miles per gallon times liters per 100 km."""


@dataclass(frozen=True)
class Correction:
    """A label that was made wrong on purpose, liters per 100 km for miles per gallon, and what its correction does.

    Attributes:
        neighbors: the model's prediction without this car.
        place: of the car in the list of labels to check, from 1.
        chance: probability that its label is wrong; 0 without a clear sign of wrong labels.
        query: the test car whose prediction changes most: of ``truth`` miles per gallon, and what is said of it
            ``before`` and ``after``, without training.
    """

    car: str
    right: float
    wrong: float
    neighbors: float
    place: int
    chance: float
    query: str
    truth: float
    before: float
    after: float

    def sentences(self) -> list[str]:
        """What was done and what came of it.

        >>> one = Correction("fiat x1.9 1973", 31.0, 7.6, 29.0, 1, 0.0, "fiat 128 1974", 29.0, 22.5, 28.75)
        >>> for line in one.sentences():
        ...     print(line)
        Made wrong on purpose before the fit: fiat x1.9 1973 had 7.6, its liters per 100 km, for 31 miles per gallon.
        vicinal evaluate -v: number 1 in its list of labels to check. Similar cars say 29.
        vicinal relabel, without training: fiat 128 1974 (29) was predicted 22.5 before and 28.75 after.
        """
        sure = f", wrong with probability {100 * self.chance:.0f} %" if self.chance else ""
        return [
            f"Made wrong on purpose before the fit: {self.car} had {self.wrong:g}, its liters per 100 km, for "
            f"{self.right:g} miles per gallon.",
            f"vicinal evaluate -v: number {self.place} in its list of labels to check{sure}. Similar cars say "
            f"{self.neighbors:.4g}.",
            f"vicinal relabel, without training: {self.query} ({self.truth:g}) was predicted {self.before:.4g} before "
            f"and {self.after:.4g} after.",
        ]


@dataclass(frozen=True)
class DemoResult:
    """Scores (method -> metric -> value) of all cars, each predicted by a model of four fifths of the others.

    ``lines`` are test cars with their prediction and its rows, in words; ``outcome`` is of the fit that is explained
    and corrected.
    """

    scores: Mapping[str, Mapping[str, float]]
    verdict: str
    lines: list[str]
    correction: Correction
    test_rows: int
    outcome: FitOutcome

    def as_json(self) -> dict[str, Any]:
        """The result for programs."""
        return {
            "model": str(self.outcome.folder),
            "scores": self.scores,
            "verdict": self.verdict,
            "examples": self.lines,
            "correction": asdict(self.correction),
            "test_rows": self.test_rows,
            "seconds": self.outcome.record.duration_s,
        }


def run_demo(out: Path, *, seed: int = 0, log: Log = lambda line: None) -> DemoResult:
    """Fit the default to how far cars go on a gallon, one label wrong; write it to ``out``, explain, find and mend."""
    table = cars_table()
    job = TableJob(source=table, target="mpg", id="car", name="cars", seed=seed)
    train = plan_fit(job).split.train
    row = int(train[np.argsort(table["mpg"].to_numpy()[train], kind="stable")[round(FAR * (len(train) - 1))]])
    wrong = table.copy()
    wrong.loc[row, "mpg"] = round(LITERS / table["mpg"][row], 1)
    outcome = fit_table(replace(job, source=wrong, baselines=False), out, log)
    lines = _lines(outcome)
    log("looking for wrong labels")
    correction = _corrected(out, outcome, wrong, str(table["car"][row]), float(table["mpg"][row]))
    measured = cross_measured(job, log)
    said = verdict(measured, np.arange(len(measured.model.truth)), Covering(np.zeros(0, dtype=np.int64), []))
    record = replace(outcome.record, scores=measured.scores, verdict=said, split_sizes={"test": 0})
    return DemoResult(measured.scores, verdict_sentence(record), lines, correction, len(table), outcome)


def cross_measured(job: TableJob, log: Log) -> Measurements:
    """The model and the others on all rows: each is predicted by a fit that has not seen its fifth of the rows."""
    opened = open_table(job)
    rows = np.random.default_rng(job.seed).permutation(len(opened.table))
    measured = []
    for number, test in enumerate(np.array_split(rows, FOLDS), start=1):
        log(f"comparing with other models: fifth {number} of {FOLDS}")
        others = rows[~np.isin(rows, test)]
        held_out = round(job.validation * len(others))
        split = Split(np.sort(others[held_out:]), np.sort(others[:held_out]), np.sort(test), job.seed)
        model = make_estimator(opened, job)
        fit_split(model, opened, split)
        measured.append(measure(job, model, opened, split).methods)
    pooled = {
        name: Measured(
            np.concatenate([one[name].predicted for one in measured]),
            np.concatenate([one[name].truth for one in measured]),
        )
        for name in measured[0]
    }
    return Measurements(pooled, {name: one.scores for name, one in pooled.items()}, [])


def _corrected(out: Path, outcome: FitOutcome, wrong: pd.DataFrame, name: str, right: float) -> Correction:
    """Search all rows for wrong labels, and correct that of ``name``."""
    suspects = audit_table(out, wrong, suspects=len(wrong)).suspects
    place = next(at for at, one in enumerate(suspects) if one.row == name)
    test = outcome.opened.table.select(outcome.split.test)
    before = outcome.model.predict(test.frame)
    relabel_table(out, pd.DataFrame({"car": [name], "mpg": [right]}))
    after = load_model(out).predict(test.frame)
    most = int(np.abs(after - before).argmax())
    return Correction(
        car=name,
        right=right,
        wrong=float(suspects[place].label),
        neighbors=float(suspects[place].neighbors),
        place=place + 1,
        chance=suspects[place].chance or 0.0,
        query=str(np.asarray(test.ids)[most]),
        truth=float(test.target[most]),
        before=float(before[most]),
        after=float(after[most]),
    )


def _lines(outcome: FitOutcome) -> list[str]:
    """Test cars spread evenly over how far they go."""
    part = outcome.opened.table.select(outcome.split.test)
    order = np.argsort(part.target, kind="stable")
    at = order[np.linspace(0, len(order) - 1, EXAMPLES + 2).round().astype(int)[1:-1]]
    names = [str(name) for name in np.asarray(part.ids)[at]]
    explained = outcome.model.explain(part.frame.iloc[at], 10, ids=names)
    return [
        f"{name} (true {truth:g}): {one.sentence('car')}"
        for name, truth, one in zip(names, part.target[at].tolist(), explained, strict=True)
    ]
