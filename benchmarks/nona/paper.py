"""The paper's recipe: dense, dense+knn, nona and nona+knn, ten splits of every set, with frozen encoders.

Adam at 1e-5, batches of 32, two layers (200, 25) with batch norm and tanh, negative L2, S2 pointwise, squared error,
early stopping on validation after ten epochs without gain, the training rows as neighbors of validation and test rows.
The dense head starts at torch's random bias, as a plain linear layer does. Five splits are trained at a time.

    python benchmarks/nona/paper.py --cache runs/nona --out benchmarks/results/nona-paper.csv
"""

import argparse
import time
from pathlib import Path

import torch
from attention import readouts
from members import Recipe, embed_rows
from results import Results
from sets import SETS, RegressionSet, load
from trainer import Stream, fit

from vicinal.data import Split
from vicinal.evaluation import knn_grid

PAPER = Recipe(rates=(1e-5,), epochs=2000)
HEADS = {"dense": PAPER.but(dense=1.0, nona=0.0, stop="dense"), "nona": PAPER}
TOGETHER = 5


def run_set(name: str, cache: Path, results: Results, numbers: range) -> None:
    data = load(name, cache)
    run(name, data, data.splits(max(numbers) + 1), results, numbers)


def run(name: str, data: RegressionSet, splits: list[Split], results: Results, numbers: range) -> None:
    x = torch.from_numpy(data.features)
    for head, recipe in HEADS.items():
        left = [splits[n] for n in numbers if not results.has(name, n, "paper", f"{head}+knn")]
        for first in range(0, len(left), TOGETHER):
            streams = [Stream.of(s, data.labels, data.groups, s.seed) for s in left[first : first + TOGETHER]]
            started = time.process_time()
            fitted = fit(x, streams, recipe, 1)
            spent = (time.process_time() - started) / len(streams)
            for member, stream in enumerate(streams):
                facts = {"epochs": fitted.epochs[member], "seconds": spent}
                facts["settings"] = {"best_epoch": int(fitted.best[member])}
                save(results, name, head, recipe, fitted, member, x, stream, facts)
            print(f"{name}, {head}: {fitted.epochs.tolist()} epochs, {spent:.0f} s a split", flush=True)


def save(results, name, head, recipe, fitted, member, x, stream, facts) -> None:
    """Write the head's figures, and those of k-NN on the embeddings trained for it."""

    def embedded(rows):
        return embed_rows(fitted.parameters, fitted.running, recipe, member, x[rows])

    own = {key: value[member] for key, value in fitted.parameters.items()}
    bank, queries = embedded(stream.train), embedded(stream.test)
    neighbor, dense, _ = readouts(recipe, own, queries, bank, stream.labels[stream.train])
    guess = dense if head == "dense" else neighbor
    results.add(name, stream, "paper", head, guess, validation=float(fitted.validation[member]), **facts)
    labels = [stream.labels[rows].double().numpy() for rows in (stream.train, stream.validation)]
    nearest = knn_grid(bank.numpy(), labels[0], embedded(stream.validation).numpy(), labels[1], queries.numpy())
    facts = facts | {"settings": nearest.settings}
    results.add(name, stream, "paper", f"{head}+knn", nearest.prediction, validation=nearest.validation, **facts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument("--splits", type=int, default=10)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    results = Results(given.out)
    for name in given.sets:
        run_set(name, given.cache, results, range(given.splits))


if __name__ == "__main__":
    main()
