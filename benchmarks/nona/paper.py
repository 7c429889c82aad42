"""The NONA paper's recipe on frozen vectors, and the grids of its appendix B, by the library's own modules.

``recipe``: dense, dense+knn, nona and nona+knn on ten splits of every set: Adam at 1e-5, batches of 32, two layers
(200, 25) with batch norm and tanh, negative L2, S2 pointwise, squared error, early stopping on validation after ten
epochs without gain, the training rows as neighbors of validation and test rows. The dense head starts at torch's random
bias, as a plain linear layer does. ``grids``: similarity by mask and batch by width, at Adam's 1e-3, five splits.

The figures in benchmarks/results were measured with the splits of a set trained side by side, each as if it were alone.

    python benchmarks/nona/sets.py --data ../shared/data --cache runs/nona
    python benchmarks/nona/paper.py --cache runs/nona --out benchmarks/results/nona-paper.csv
    python benchmarks/nona/paper.py --part grids --sets houses tweets --splits 5 --cache runs/nona --out grids.csv
"""

import argparse
import time
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import torch
from results import Results, Stream
from sets import SETS, RegressionSet, load
from torch import Tensor, nn

from vicinal.data import Split
from vicinal.encoders import Projector
from vicinal.evaluation import knn_grid
from vicinal.heads import NONA, Dense
from vicinal.masks import SoftStep
from vicinal.training import NeighborNetwork, Rows, TrainingSettings, train


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


def run(name: str, data: RegressionSet, splits: list[Split], results: Results, numbers: range) -> None:
    """The recipe: each head, and k-NN on the embeddings that were trained for it."""
    x = torch.from_numpy(data.features)
    for number, (head, recipe) in product(numbers, HEADS.items()):
        if results.has(name, splits[number].seed, "paper", f"{head}+knn"):
            continue
        stream = Stream.of(splits[number], data.labels, data.groups)
        network, facts = fit(x, stream, recipe)
        results.add(name, stream, "paper", head, predicted(network, x, stream), **facts)
        with torch.no_grad():
            known, inner, asked = (network.projector(x[rows]).numpy() for rows in stream.parts)
        labels = [stream.labels[rows].double().numpy() for rows in stream.parts[:2]]
        nearest = knn_grid(known, labels[0], inner, labels[1], asked)
        facts |= {"settings": nearest.settings, "validation": nearest.validation}
        results.add(name, stream, "paper", f"{head}+knn", nearest.prediction, **facts)
        print(f"{name}, split {number}, {head}: {facts['epochs']} epochs", flush=True)


def run_grids(name: str, data: RegressionSet, splits: list[Split], results: Results) -> None:
    """One choice changed at a time."""
    x = torch.from_numpy(data.features)
    for kind, changes in GRIDS.items():
        for (change, recipe), split in product(changes.items(), splits):
            if not results.has(name, split.seed, kind, change):
                stream = Stream.of(split, data.labels, data.groups)
                network, facts = fit(x, stream, recipe)
                results.add(name, stream, kind, change, predicted(network, x, stream), **facts)


def main() -> None:
    """Measure what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("recipe", "grids"), default="recipe")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument("--splits", type=int, default=10)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    results = Results(given.out)
    for name in given.sets:
        data = load(name, given.cache)
        if given.part == "recipe":
            run(name, data, data.splits(given.splits), results, range(given.splits))
        else:
            run_grids(name, data, data.splits(given.splits), results)


if __name__ == "__main__":
    main()
