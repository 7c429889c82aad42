"""The file of finished runs: one row for each set, split, recipe and method, appended as soon as it is there."""

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vicinal.data import Split
from vicinal.evaluation import regression_scores

FIELDS = ("set", "split", "recipe", "method", "mse", "mae", "r2", "validation_mse", "epochs", "seconds")
SIZES = ("train", "validation", "test")


@dataclass(frozen=True)
class Stream:
    """Rows of one split; labels are scaled to [0, 1] by the range of the training rows."""

    train: Tensor
    validation: Tensor
    test: Tensor
    labels: Tensor
    groups: Tensor
    seed: int

    @staticmethod
    def of(split: Split, labels: np.ndarray, groups: np.ndarray) -> "Stream":
        """A split of a set."""
        low, high = labels[split.train].min(), labels[split.train].max()
        scaled = torch.from_numpy(((labels - low) / (high - low)).astype(np.float32))
        rows = (torch.from_numpy(part) for part in (split.train, split.validation, split.test))
        return Stream(*rows, scaled, torch.from_numpy(groups), split.seed)

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Training, validation and test rows."""
        return self.train, self.validation, self.test


class Results:
    """Finished runs in a csv file; a torn last line is cut off."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            whole = path.read_text().rpartition("\n")[0]
            path.write_text(whole + "\n" if whole else "")
        self.rows: list[dict[str, str]] = []
        if path.is_file():
            with path.open(newline="") as file:
                self.rows = list(csv.DictReader(file))

    def has(self, name: str, split: int, recipe: str, method: str) -> bool:
        """Whether this run is finished."""
        wanted = (name, str(split), recipe, method)
        return any((row["set"], row["split"], row["recipe"], row["method"]) == wanted for row in self.rows)

    def add(
        self, name, stream, recipe, method, guess, *, validation=float("nan"), epochs=0, seconds=0.0, settings=None
    ):
        """Score ``guess [test rows]``, on [0, 1]-scaled labels, and write it."""
        scores = regression_scores(stream.labels[stream.test].double().numpy(), np.asarray(guess, dtype=np.float64))
        figures = [scores["mse"], scores["mae"], scores["r2"], validation]
        row = dict(zip(FIELDS, [name, stream.seed, recipe, method, *(f"{f:.8g}" for f in figures)], strict=False))
        row |= {"epochs": int(epochs), "seconds": f"{seconds:.2f}"}
        row |= {part: len(getattr(stream, part)) for part in SIZES}
        row["settings"] = json.dumps(settings or {}, sort_keys=True)
        fresh = not self.path.is_file() or not self.path.stat().st_size
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, list(row), lineterminator="\n")
            if fresh:
                writer.writeheader()
            writer.writerow(row)
        self.rows.append({key: str(value) for key, value in row.items()})
