"""The tuned recipe: every head gets the same random search on validation, in each split by itself.

Twelve draws for each head, the same for both: three of (widths, batch, final tanh, and for neighbors the simplex map),
four each of (learning rate, dropout, weight decay). The draw with the lowest validation error is trained again as eight
members; "dense" and "nona" are the first of these, "x8" their mean, "+knn" k-NN on the embeddings of the first. A dense
bias starts at the mean label. Beside them: ridge, gradient boosting and k-NN on the frozen vectors, each with settings
chosen on validation.

    python benchmarks/nona/tuned.py --cache runs/nona --out benchmarks/results/nona-tuned.csv --store runs/nona-tuned
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from attention import readouts
from members import Recipe, embed_rows
from results import Results
from sets import SETS, load
from sklearn.ensemble import HistGradientBoostingRegressor
from trainer import Stream, fit

from vicinal.evaluation import knn_grid, ridge_baseline

BASE = Recipe(bias_at_mean=True)
HEADS = {"dense": BASE.but(dense=1.0, nona=0.0, stop="dense"), "nona": BASE}
SHAPES, DRAWS, MEMBERS = 3, 4, 8
BOOSTS = ({"max_leaf_nodes": 15}, {"max_leaf_nodes": 31}, {"max_leaf_nodes": 7, "l2_regularization": 10.0})


def drawn(recipe: Recipe, seed: int) -> list[Recipe]:
    """``SHAPES`` recipes of ``DRAWS`` members each; of the seed alone, so that every head gets the same."""
    generator = np.random.default_rng(10_000 + seed)
    made = []
    for _ in range(SHAPES):
        sizes = [(100, 12), (200, 25), (400, 50)][generator.integers(3)]
        batch, tanh = int([64, 128, 256][generator.integers(3)]), bool(generator.integers(2))
        rates = tuple(float(rate) for rate in 10 ** generator.uniform(-3.5, -2, DRAWS))
        dropouts = tuple(float(share) for share in generator.uniform(0, 0.6, DRAWS))
        decays = tuple(float(decay) for decay in generator.choice([0.0, 0.01, 0.1], DRAWS))
        simplex = ("softmax", "entmax15")[generator.integers(2)]
        shape = recipe.but(sizes=sizes, batch=batch, final_tanh=tanh, simplex=simplex)
        made.append(shape.but(rates=rates, dropouts=dropouts, decays=decays))
    return made


def search(x: torch.Tensor, stream: Stream, recipe: Recipe) -> Recipe:
    """The draw with the lowest validation error."""
    best, chosen = np.inf, recipe
    for shape in drawn(recipe, stream.seed):
        found = fit(x, [stream], shape, DRAWS).validation
        k = int(found.argmin())
        if found[k] < best:
            best = found[k]
            chosen = shape.but(
                rates=shape.rates[k : k + 1], dropouts=shape.dropouts[k : k + 1], decays=shape.decays[k : k + 1]
            )
    return chosen


class Kept:
    """Predictions of validation and test rows by method, in one file for each set and split, and their figures."""

    def __init__(self, results: Results, store: Path, name: str, stream: Stream, recipe: str):
        self.results, self.name, self.stream, self.recipe = results, name, stream, recipe
        self.path = store / f"{name}-{stream.seed}-{recipe}.npz"
        store.mkdir(parents=True, exist_ok=True)

    def add(self, method: str, validation, test, seconds: float, settings: dict) -> None:
        """Keep the two predictions, and write the figures of the test rows."""
        held = dict(np.load(self.path)) if self.path.is_file() else {}
        held |= {f"{method}/validation": np.asarray(validation), f"{method}/test": np.asarray(test)}
        aside = self.path.with_name("." + self.path.name)
        np.savez(aside, **held)
        aside.replace(self.path)
        truth = self.stream.labels[self.stream.validation].numpy()
        error = float(np.mean((np.asarray(validation) - truth) ** 2))
        facts = {"validation": error, "seconds": seconds, "settings": settings}
        self.results.add(self.name, self.stream, self.recipe, method, test, **facts)

    def has(self, method: str) -> bool:
        """Whether the method's figures are there."""
        return self.results.has(self.name, self.stream.seed, self.recipe, method)


def heads(kept: Kept, x: torch.Tensor, stream: Stream, head: str, recipe: Recipe) -> None:
    """Search, train eight members, and keep what one and all of them say."""
    started = time.process_time()
    chosen = search(x, stream, recipe)
    fitted = fit(x, [stream], chosen, MEMBERS)
    seconds = time.process_time() - started
    parts, spaces = [], []
    for member in range(MEMBERS):
        own = {name: value[member] for name, value in fitted.parameters.items()}
        space = [embed_rows(fitted.parameters, fitted.running, chosen, member, x[rows]) for rows in parts_of(stream)]
        spaces.append(space)
        both = [readouts(chosen, own, space[i], space[0], stream.labels[stream.train]) for i in (1, 2)]
        parts.append([(one[1] if head == "dense" else one[0]).double().numpy() for one in both])
    means = [np.mean([part[i] for part in parts], axis=0) for i in (0, 1)]
    drawn_ones = ("sizes", "batch", "final_tanh", "simplex", "rates", "dropouts", "decays")
    settings = {name: getattr(chosen, name) for name in drawn_ones}
    kept.add(f"{head} x8", *means, seconds, settings)
    train, validation = (stream.labels[rows].double().numpy() for rows in (stream.train, stream.validation))
    bank, held, queries = (space.numpy() for space in spaces[0])
    nearest = knn_grid(bank, train, held, validation, np.vstack([held, queries]))
    cut = len(held)
    kept.add(f"{head}+knn", nearest.prediction[:cut], nearest.prediction[cut:], seconds, settings | nearest.settings)
    kept.add(head, *parts[0], seconds, settings)


def parts_of(stream: Stream) -> tuple[torch.Tensor, ...]:
    return stream.train, stream.validation, stream.test


def baselines(kept: Kept, features: np.ndarray, stream: Stream) -> None:
    """Ridge, gradient boosting and k-NN on the frozen vectors."""
    train, validation, test = (features[rows.numpy()] for rows in parts_of(stream))
    goal, held = (stream.labels[rows].double().numpy() for rows in (stream.train, stream.validation))
    queries, cut = np.vstack([validation, test]), len(validation)
    for name, baseline in (("ridge", ridge_baseline), ("knn", knn_grid)):
        started = time.process_time()
        made = baseline(train, goal, validation, held, queries)
        kept.add(name, made.prediction[:cut], made.prediction[cut:], time.process_time() - started, made.settings)
    started = time.process_time()
    tried = []
    for setting in BOOSTS:
        model = HistGradientBoostingRegressor(
            max_iter=400, learning_rate=0.06, max_features=0.2, max_bins=63, random_state=stream.seed,
            early_stopping=True, n_iter_no_change=15, **setting,
        )  # fmt: skip
        model.fit(train, goal, X_val=validation, y_val=held)
        guess = model.predict(queries)
        tried.append((float(np.mean((guess[:cut] - held) ** 2)), guess, setting))
    _, guess, setting = min(tried, key=lambda one: one[0])
    kept.add("boosting", guess[:cut], guess[cut:], time.process_time() - started, setting)


def each_split(description: str, recipe: str):
    """What a script is asked for: for each set and split its :class:`Kept`, features and :class:`Stream`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument("--splits", type=int, default=10)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    results = Results(given.out)
    for name in given.sets:
        data = load(name, given.cache)
        for split in data.splits(given.splits):
            stream = Stream.of(split, data.labels, data.groups, split.seed)
            yield Kept(results, given.store, name, stream, recipe), data.features, stream
            print(f"{name}, split {split.seed}", flush=True)


def main() -> None:
    for kept, features, stream in each_split(__doc__, "tuned"):
        if not kept.has("boosting"):
            baselines(kept, features, stream)
        for head, recipe in HEADS.items():
            if not kept.has(head):
                heads(kept, torch.from_numpy(features), stream, head, recipe)


if __name__ == "__main__":
    main()
