"""``vicinal demo``: a fit on human ratings of words, compared with a dense head."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vicinal.data.lexicon import lexicon_table
from vicinal.workflows.fit import FitOutcome, fit_table
from vicinal.workflows.measured import measured_of
from vicinal.workflows.measuring import knn_of_embeddings, predict_test
from vicinal.workflows.opening import TableJob, fit_split, make_estimator

Log = Callable[[str], None]

PARAMETERS = {
    "max_epochs": 80,
    "batch_size": 512,
    "learning_rate": 1e-3,
    "patience": 12,
    "dropout": 0.2,
    "members": 1,
    "tune": "none",
}
"""Settings of both heads, chosen on the validation rows of three splits."""

NEIGHBORS = {"similarity": "squared_l2", "simplex": "entmax15", "weight_decay": 0.1}
"""Further settings of the neighbor head: entmax gives most rows weight 0, so that a few words explain a word."""

DENSE = {"head": "dense", "weight_decay": 0.01}
"""Further settings of the dense head, chosen in the same way."""


@dataclass(frozen=True)
class DemoResult:
    """Scores and examples of the demo.

    Attributes:
        scores: method -> metric -> value; "mse" is 1000 times the MSE on labels scaled to [0, 1].
        lines: test words with their prediction and neighbors.
        test_rows: number of test words.
        outcome: of the fit of the neighbor head.
    """

    scores: dict[str, dict[str, float]]
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
    """Fit both heads on the words of the lexicon, write the neighbor model to ``out``, and explain a few test words."""
    frame = lexicon_table()
    job = TableJob(
        source=frame,
        target="valence",
        use=["word"],
        kinds={"word": "text"},
        name="vader-lexicon",
        seed=seed,
        parameters={**PARAMETERS, **NEIGHBORS},
    )
    log(f"{len(frame)} words and emoticons with human ratings; training the neighbor head")
    outcome = fit_table(job, out, log)
    log("training the dense head on the same rows")
    dense = make_estimator(outcome.opened, replace(job, parameters={**PARAMETERS, **DENSE}))
    fit_split(dense, outcome.opened, outcome.split)
    return DemoResult(_scores(outcome, dense), _lines(outcome), len(outcome.split.test), outcome)


def _scores(outcome: FitOutcome, dense: Any) -> dict[str, dict[str, float]]:
    opened, split = outcome.opened, outcome.split
    knn = knn_of_embeddings(dense, opened, split).prediction
    truth = opened.table.target[split.test]
    raw = {
        "NONA (neighbors)": outcome.record.scores["model"],
        "dense head": measured_of(dense, predict_test(dense, opened, split), truth).scores,
        "dense head, then k-NN": measured_of(dense, knn, truth).scores,
        **{name: values for name, values in outcome.record.scores.items() if name != "model"},
    }
    low, high = outcome.model.label_range_
    return {
        name: {
            "mse": 1000 * values["mse"] / (high - low) ** 2,
            "mae": values["mae"],
            "r2": values["r2"],
        }
        for name, values in raw.items()
    }


def _lines(outcome: FitOutcome, count: int = 5) -> list[str]:
    """Test words spread over the ratings: in each part the one whose neighbors explain it best, see ``_telling``."""
    table, split = outcome.opened.table, outcome.split
    part = table.select(split.test)
    explained = outcome.model.explain(part.frame[["word"]], 3, ids=part.ids)
    order = np.argsort(part.target, kind="stable")
    lines = []
    for chunk in np.array_split(order, count):
        best = max(chunk, key=lambda row: _telling([n.weight for n in explained[row].neighbors]))
        lines.append(f"{part.frame['word'].iloc[best]} (rated {part.target[best]:.1f}) -> {explained[best]}")
    return lines


def _telling(weights: list[float]) -> float:
    """How well three neighbors explain a word: the weight of the first, if the third has at least 0.05; else -1."""
    return weights[0] if weights[-1] >= 0.05 else -1.0
