"""``vicinal demo``: the default on a small real table, beside other models, and reasons in words."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vicinal.data import cars_table
from vicinal.workflows.fit import FitOutcome, fit_table
from vicinal.workflows.opening import TableJob

Log = Callable[[str], None]

EXAMPLES = 3
"""Predictions that are explained."""


@dataclass(frozen=True)
class DemoResult:
    """Scores and examples of the demo.

    Attributes:
        scores: method -> metric -> value.
        lines: test cars with their prediction and its rows, in words.
        test_rows: number of test cars.
        outcome: of the fit.
    """

    scores: Mapping[str, Mapping[str, float]]
    lines: list[str]
    test_rows: int
    outcome: FitOutcome

    def as_json(self) -> dict[str, Any]:
        """The result for programs."""
        return {
            "model": str(self.outcome.folder),
            "scores": self.scores,
            "examples": self.lines,
            "test_rows": self.test_rows,
            "seconds": self.outcome.record.duration_s,
        }


def run_demo(out: Path, *, seed: int = 0, log: Log = lambda line: None) -> DemoResult:
    """Fit the default to how far cars go on a gallon, write the model to ``out``, and explain a few test cars."""
    outcome = fit_table(TableJob(source=cars_table(), target="mpg", id="car", name="cars", seed=seed), out, log)
    return DemoResult(outcome.record.scores, _lines(outcome), len(outcome.split.test), outcome)


def _lines(outcome: FitOutcome) -> list[str]:
    """Test cars spread evenly over how far they go."""
    part = outcome.opened.table.select(outcome.split.test)
    order = np.argsort(part.target, kind="stable")
    at = order[np.linspace(0, len(order) - 1, EXAMPLES + 2).round().astype(int)[1:-1]]
    names = [str(name) for name in np.asarray(part.ids)[at]]
    explained = outcome.model.explain(part.frame.iloc[at], 3, ids=names)
    return [
        f"{name} ({truth:g}): {one.sentence('car')}"
        for name, truth, one in zip(names, part.target[at].tolist(), explained, strict=True)
    ]
