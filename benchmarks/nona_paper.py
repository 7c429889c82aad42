"""The NONA paper's recipe on frozen vectors, and the grids of its appendix B, by the library's own modules.

``recipe``: dense, dense+knn, nona and nona+knn on ten splits of every set: Adam at 1e-5, batches of 32, two layers
(200, 25) with batch norm and tanh, negative L2, S2 pointwise, squared error, early stopping on validation after ten
epochs without gain, the training rows as neighbors of validation and test rows. The dense head starts at torch's random
bias, as a plain linear layer does. ``grids``: similarity by mask and batch by width, at Adam's 1e-3, five splits.

The figures in benchmarks/results were measured with the splits of a set trained side by side, each as if it were alone.

    python benchmarks/nona_sets.py --data ../shared/data --cache runs/nona
    python benchmarks/nona_paper.py --cache runs/nona --out benchmarks/results/nona-paper.csv
    python benchmarks/nona_paper.py --part grids --sets houses tweets --splits 5 --cache runs/nona --out grids.csv
"""

import json
import time
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nona_sets import SETS, RegressionSet, load
from resumable import Lines, asked
from torch import Tensor, nn

from vicinal.data import Split
from vicinal.encoders import Projector
from vicinal.evaluation import knn_grid, regression_scores
from vicinal.heads import NONA, Dense
from vicinal.masks import SoftStep
from vicinal.training import NeighborNetwork, Rows, TrainingSettings, train

KEY = ("set", "split", "recipe", "method")


@dataclass(frozen=True)
class Recipe:
    """What is trained, and how."""

    head: str = "nona"
    similarity: str = "l2"
    mask: tuple[str, str] | None = ("s2", "pointwise")
    batch: int = 32
    width: int = 25
    rate: float = 1e-5
    epochs: int = 2000

    def network(self, features: int) -> NeighborNetwork:
        """Projector and head, with torch's random start."""
        softstep = None if self.mask is None else SoftStep(self.width, *self.mask)
        head = NONA(self.similarity, softstep) if self.head == "nona" else Dense(self.width)
        return NeighborNetwork(nn.Identity(), Projector(features, (200, self.width)), head)

    def settings(self, seed: int) -> TrainingSettings:
        """Of the training loop."""
        fixed = {"batch_size": self.batch, "learning_rate": self.rate, "max_epochs": self.epochs}
        return TrainingSettings(**fixed, patience=10, weight_decay=0.0, seed=seed, accelerator="cpu")


HEADS = {"dense": Recipe(head="dense"), "nona": Recipe()}
GRID = Recipe(rate=1e-3, epochs=200)
MASKS = {"none": None} | {
    f"{kind.upper()}{', global' if of == 'global' else ''}": (kind, of)
    for kind, of in product(("s1", "s2"), ("pointwise", "global"))
}
SIMILARITIES = ("l2", "l1", "squared_l2", "cosine", "scaled_dot")
GRIDS = {
    "similarity by mask": {
        f"{similarity} | {name}": replace(GRID, similarity=similarity, mask=mask)
        for similarity, (name, mask) in product(SIMILARITIES, MASKS.items())
    },
    **{
        f"{head}, batch by width": {
            f"{batch} | {width}": replace(GRID, head=head, batch=batch, width=width)
            for batch, width in product((32, 64, 128, 256), (25, 50, 100))
        }
        for head in ("dense", "nona")
    },
}


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


def scored(name: str, stream: Stream, recipe: str, method: str, guess: np.ndarray, **facts: Any) -> dict[str, Any]:
    """A line: errors of ``guess [test rows]``, on labels on [0, 1]."""
    scores = regression_scores(stream.labels[stream.test].double().numpy(), np.asarray(guess, dtype=np.float64))
    line = {"set": name, "split": stream.seed, "recipe": recipe, "method": method}
    line |= {measure: scores[measure] for measure in ("mse", "mae", "r2")} | {"validation_mse": facts["validation"]}
    line |= {what: facts[what] for what in ("epochs", "seconds")}
    line |= {part: len(getattr(stream, part)) for part in ("train", "validation", "test")}
    return line | {"settings": json.dumps(facts.get("settings", {}), sort_keys=True)}


class Cells:
    """Vectors ``[n, f]`` as the training loop asks for them."""

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def select(self, rows: Tensor) -> Tensor:
        """Some of them."""
        return self.values[rows]


def fit(x: Tensor, stream: Stream, recipe: Recipe) -> tuple[NeighborNetwork, dict]:
    """The network at its best epoch, and what is noted of its training."""
    torch.manual_seed(stream.seed)
    network, started = recipe.network(x.shape[1]), time.process_time()
    parts = [
        Rows(Cells(x[rows]), stream.labels[rows], rows, stream.groups[rows])
        for rows in (stream.train, stream.validation)
    ]
    history = train(network, *parts, recipe.settings(stream.seed))
    errors = history.validation_error
    return network, {"validation": min(errors), "epochs": len(errors), "seconds": time.process_time() - started}


def predicted(network: NeighborNetwork, x: Tensor, stream: Stream) -> np.ndarray:
    """Of the test rows, from the training rows."""
    network.eval()
    with torch.no_grad():
        bank, queries = (network.projector(x[rows]) for rows in (stream.train, stream.test))
        return network.head(queries, bank, stream.labels[stream.train]).numpy()


def run(name: str, data: RegressionSet, splits: list[Split], lines: Lines) -> None:
    """The recipe: each head, and k-NN on the embeddings that were trained for it."""
    x = torch.from_numpy(data.features)
    for split, (head, recipe) in product(splits, HEADS.items()):
        if (name, split.seed, "paper", f"{head}+knn") in lines:
            continue
        stream = Stream.of(split, data.labels, data.groups)
        network, facts = fit(x, stream, recipe)
        line = scored(name, stream, "paper", head, predicted(network, x, stream), **facts)
        with torch.no_grad():
            known, inner, asked = (network.projector(x[rows]).numpy() for rows in stream.parts)
        labels = [stream.labels[rows].double().numpy() for rows in stream.parts[:2]]
        nearest = knn_grid(known, labels[0], inner, labels[1], asked)
        facts |= {"settings": nearest.settings, "validation": nearest.validation}
        lines.add([line, scored(name, stream, "paper", f"{head}+knn", nearest.prediction, **facts)], "%.8g")


def run_grids(name: str, data: RegressionSet, splits: list[Split], lines: Lines) -> None:
    """One choice changed at a time."""
    x = torch.from_numpy(data.features)
    for kind, changes in GRIDS.items():
        for (change, recipe), split in product(changes.items(), splits):
            if (name, split.seed, kind, change) not in lines:
                stream = Stream.of(split, data.labels, data.groups)
                network, facts = fit(x, stream, recipe)
                lines.add([scored(name, stream, kind, change, predicted(network, x, stream), **facts)], "%.8g")


def main() -> None:
    """Measure what is not in the file yet."""
    given = asked(__doc__, part="recipe", cache=Path, out=Path, sets=list(SETS), splits=10)
    torch.set_flush_denormal(True)
    lines = Lines(given.out, *KEY)
    for name in given.sets:
        data = load(name, given.cache)
        (run if given.part == "recipe" else run_grids)(name, data, data.splits(given.splits), lines)


if __name__ == "__main__":
    main()
