"""Frozen vectors, splits and small neighbor models for the calibration benchmark, and the file of its figures."""

import csv
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent / "nona"))
from attention import readouts, weights
from members import Recipe, embed_rows
from sets import load
from trainer import Fitted, Stream, fit

from vicinal.data import make_splits

ROWS, SPLITS, MEMBERS = 2000, 10, 2
NEIGHBORS = Recipe(simplex="entmax15", final_tanh=False, dropouts=(0.2,), batch=128, together=True)
DENSE = NEIGHBORS.but(dense=1.0, nona=0.0, stop="dense", bias_at_mean=True)
FIELDS = ("experiment", "set", "split", "method", "covered", "width", "score", "q1", "q2", "q3", "q4", "error", "rows")


@dataclass(frozen=True)
class Fold:
    """One split: labels in units of the training labels' deviation, neighbor weights, and the rivals' predictions.

    Attributes:
        bank: labels of the training rows ``[N]``.
        held: labels of the calibration rows; ``test``: of the test rows.
        held_weights: ``[n, N]``; ``test_weights`` likewise; ``bank_weights [N, N]`` leave a row's own group out.
        held_dense: predictions of the dense ensemble; ``test_dense`` likewise.
        held_axes: first principal components of the frozen vectors ``[n, 5]``, standardized; ``test_axes`` likewise.
    """

    seed: int
    bank: np.ndarray
    held: np.ndarray
    test: np.ndarray
    held_weights: np.ndarray
    test_weights: np.ndarray
    bank_weights: np.ndarray
    held_dense: np.ndarray
    test_dense: np.ndarray
    held_axes: np.ndarray
    test_axes: np.ndarray


@torch.no_grad()
def mean_weights(fitted: Fitted, recipe: Recipe, x: torch.Tensor, stream: Stream, rows: torch.Tensor, own: slice):
    """Neighbor weights ``[n, N]`` of ``rows``, the mean of the members ``own``; not from rows of a row's own group."""
    total = 0.0
    own_group = stream.groups[rows][:, None] == stream.groups[stream.train][None, :]
    barred = torch.where(own_group, -torch.inf, 0.0) if bool(own_group.any()) else None
    members = range(own.start, own.stop)
    for member in members:
        parameters = {name: value[member] for name, value in fitted.parameters.items()}
        fixed = fitted.parameters, fitted.running, recipe, member
        queries, bank = embed_rows(*fixed, x[rows]), embed_rows(*fixed, x[stream.train])
        total = total + weights(recipe, parameters, queries, bank, barred).double()
    found = (total / len(members)).numpy()
    return found / found.sum(1, keepdims=True)


@torch.no_grad()
def mean_dense(fitted: Fitted, recipe: Recipe, x: torch.Tensor, rows: torch.Tensor, own: slice) -> np.ndarray:
    """Predictions of ``rows``, the mean of the dense members ``own``."""
    made = []
    for member in range(own.start, own.stop):
        parameters = {name: value[member] for name, value in fitted.parameters.items()}
        queries = embed_rows(fitted.parameters, fitted.running, recipe, member, x[rows])
        made.append(readouts(recipe, parameters, queries, queries[:1], None)[1].double().numpy())
    return np.mean(made, axis=0)


def drawn(name: str, cache: Path, rows: int = ROWS):
    """Features, labels and groups of a set, at most ``rows`` of them."""
    data = load(name, cache)
    kept = np.arange(len(data.labels))
    if len(kept) > rows:
        kept = np.sort(np.random.default_rng(0).choice(len(kept), rows, replace=False))
    return data.features[kept], data.labels[kept], data.groups[kept]


def axes_of(features: np.ndarray, train: np.ndarray, number: int = 5) -> np.ndarray:
    """First principal components of all rows ``[n, number]``, standardized on the training rows."""
    center = features[train].mean(0)
    _, _, directions = np.linalg.svd(features[train] - center, full_matrices=False)
    found = (features - center) @ directions[:number].T
    return found / found[train].std(0)


def folds(name: str, cache: Path, *, splits: int = SPLITS, rows: int = ROWS, members: int = MEMBERS) -> list[Fold]:
    """Train neighbor and dense members on every split of a set, all at once."""
    features, labels, groups = drawn(name, cache, rows)
    x = torch.from_numpy(features)
    grouped = groups if len(np.unique(groups)) < len(groups) else None
    made = make_splits(len(labels), number=splits, groups=grouped)
    streams = [Stream.of(split, labels, groups, split.seed) for split in made]
    near, dense = fit(x, streams, NEIGHBORS, members), fit(x, streams, DENSE, members)
    return [_fold(g, split, streams[g], x, near, dense, members) for g, split in enumerate(made)]


def _fold(g, split, stream, x, near, dense, members) -> Fold:
    own = slice(g * members, (g + 1) * members)
    labels = stream.labels.double().numpy()
    deviation = labels[split.train].std()
    axes = axes_of(x.numpy(), split.train)
    parts = (stream.validation, stream.test)
    held_weights, test_weights, bank_weights = (
        mean_weights(near, NEIGHBORS, x, stream, rows, own) for rows in (*parts, stream.train)
    )
    held_dense, test_dense = (mean_dense(dense, DENSE, x, rows, own) / deviation for rows in parts)
    bank, held, test = (labels[rows] / deviation for rows in (split.train, split.validation, split.test))
    return Fold(
        split.seed,
        bank,
        held,
        test,
        held_weights,
        test_weights,
        bank_weights,
        held_dense,
        test_dense,
        axes[split.validation],
        axes[split.test],
    )


class Figures:
    """Finished figures in a csv file, appended set by set; a torn last line is cut off."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            whole = path.read_text().rpartition("\n")[0]  # a torn last line is cut off
            path.write_text(whole + "\n" if whole else "")
        self.rows: list[dict] = []
        if path.is_file():
            with path.open(newline="") as file:
                self.rows = list(csv.DictReader(file))

    def has(self, experiment: str, name: str) -> bool:
        """Whether an experiment is finished on a set."""
        return any(row["experiment"] == experiment and row["set"] == name for row in self.rows)

    def add(self, rows: list[dict]) -> None:
        """Write the rows of an experiment on a set, all at once."""
        fresh = not self.path.is_file() or not self.path.stat().st_size
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            if fresh:
                writer.writeheader()
            for row in rows:
                writer.writerow({key: f"{v:.5g}" if isinstance(v, float) else v for key, v in row.items()})
        self.rows += [{key: str(row.get(key, "")) for key in FIELDS} for row in rows]
