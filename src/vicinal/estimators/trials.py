"""What a fit has tried: each metric with its readout, how well it predicts, and how long it took."""

from collections.abc import Sequence
from typing import Annotated, Literal

import pandas as pd
from pydantic import Field

from vicinal.core.progress import span_words
from vicinal.core.untrusted import Saved

_Error = Annotated[float, Field(ge=0)]


class Trial(Saved):
    """A metric with its readout that a fit has tried.

    Attributes:
        metric: "network", "kernel", "trees" or "trees and kernel", the mean of both.
        readout: "attention", "rows", "comparables", "dense", or "none" of a head that is a plain layer.
        target_transform: the scale that labels were learned on.
        tune: what of pretrained encoders was trained.
        measure: what errors are: "rmse", in the unit of the labels (of several targets each in its range), or
            "log_loss".
        out_of_fold: error of at most 1,024 rows (of folds 4,096) spread over all, each predicted without its label;
            None of a network that held rows out.
        held_out: error of the rows that were held out, 1,024 at most; None where there are none.
        constant: error of the mean label, or of the share of each class.
        seconds: of the fit, with the choice of its readout; None of a saved model, whose files are the same whenever
            it is fitted.
    """

    metric: Literal["network", "kernel", "trees", "trees and kernel"]
    readout: Literal["attention", "rows", "comparables", "dense", "none"]
    target_transform: str = Field(max_length=20)
    tune: str = Field(max_length=20)
    measure: Literal["rmse", "log_loss"]
    out_of_fold: _Error | None
    held_out: _Error | None
    constant: _Error | None
    seconds: Annotated[float, Field(ge=0)] | None = None

    def __str__(self) -> str:
        """One line: what it is, its errors, and the time that it took."""
        errors = {"out of fold": self.out_of_fold, "on rows held out": self.held_out}
        listed = ", ".join(f"{value:.4g} {where}" for where, value in errors.items() if value is not None)
        measure = self.measure.replace("_", " ")
        took = "" if self.seconds is None else f"; {span_words(self.seconds)}"
        return f"{self.metric}, read out by {self.readout}: {measure} {listed}{took}"


def leaderboard(trials: Sequence[Trial]) -> pd.DataFrame:
    """One line a trial, the chosen one first, the others by their error; the columns are the fields of a trial.

    >>> common = {"target_transform": "none", "tune": "none", "measure": "rmse", "held_out": None, "constant": 2.0}
    >>> first = Trial(metric="trees", readout="comparables", out_of_fold=1.5, seconds=3.0, **common)
    >>> leaderboard([first, Trial(metric="kernel", readout="dense", out_of_fold=1.25, seconds=1.0, **common)])[
    ...     ["metric", "out_of_fold", "chosen"]
    ... ]
       metric  out_of_fold  chosen
    0   trees         1.50    True
    1  kernel         1.25   False
    """
    columns = [name for name in Trial.model_fields if name != "constant"]
    table = pd.DataFrame([one.model_dump() for one in trials], columns=columns).assign(chosen=False)
    table = table.astype({"out_of_fold": float, "held_out": float, "seconds": float, "chosen": bool})
    table.loc[:0, "chosen"] = True
    error = table["held_out"].fillna(table["out_of_fold"])
    order = error.where(~table["chosen"], -1.0).argsort(kind="stable")
    return table.iloc[order].reset_index(drop=True)
