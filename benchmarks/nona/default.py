"""The settings that screening chose as defaults, on every set and split: no search, the test rows touched once.

Eight members of the neighbor head (entmax, no final tanh, dropout 0.2, batches of 128, Adam at 1e-3, stopped together):
those of ``vicinal fit``; and their blend with two simple methods on the frozen vectors, ridge regression and k-NN:
weights of at least 0 that sum to 1, fitted by least squares on the validation rows. And eight dense members with the
same settings, whose bias starts at the mean label.

    python benchmarks/nona/default.py --cache runs/nona --out benchmarks/results/nona-default.csv --store runs/nona
"""

import time

import numpy as np
import torch
from attention import readouts
from blending import blend_weights
from members import Recipe, embed_rows
from trainer import Stream, fit
from tuned import Kept, each_split, parts_of

from vicinal.evaluation import knn_grid, ridge_baseline

DEFAULT = Recipe(simplex="entmax15", final_tanh=False, dropouts=(0.2,), batch=128, together=True)
DENSE = DEFAULT.but(dense=1.0, nona=0.0, stop="dense", bias_at_mean=True)
MEMBERS = 8


def predicted(x: torch.Tensor, stream: Stream, recipe: Recipe, members: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Predictions of validation and test rows by the mean of the members, and the epochs it took."""
    which = 1 if recipe.stop == "dense" else 0
    fitted = fit(x, [stream], recipe, members)
    made = []
    for member in range(members):
        own = {name: value[member] for name, value in fitted.parameters.items()}
        fixed = fitted.parameters, fitted.running, recipe, member
        bank, *queries = (embed_rows(*fixed, x[rows]) for rows in parts_of(stream))
        made.append(
            [readouts(recipe, own, q, bank, stream.labels[stream.train])[which].double().numpy() for q in queries]
        )
    means = [np.mean([one[part] for one in made], axis=0) for part in (0, 1)]
    return means[0], means[1], int(fitted.epochs.max())


def run(kept: Kept, features: np.ndarray, x: torch.Tensor, stream: Stream) -> None:
    started = time.process_time()
    validation, test, epochs = predicted(x, stream, DEFAULT, MEMBERS)
    kept.add("neighbors x8", validation, test, time.process_time() - started, {"epochs": epochs})
    train, held, tested = (features[rows.numpy()] for rows in parts_of(stream))
    goal, truth = (stream.labels[rows].double().numpy() for rows in (stream.train, stream.validation))
    simple = [method(train, goal, held, truth, np.vstack([held, tested])) for method in (ridge_baseline, knn_grid)]
    guesses = np.column_stack([np.concatenate([validation, test]), *(one.prediction for one in simple)])
    weights = blend_weights(guesses[: len(held)], truth)
    blend = guesses @ weights
    shares = dict(zip(("neighbors", "linear", "nearest"), np.round(weights, 3).tolist(), strict=True))
    kept.add("blend", blend[: len(held)], blend[len(held) :], time.process_time() - started, shares)


def main() -> None:
    for kept, features, stream in each_split(__doc__, "default"):
        x = torch.from_numpy(features)
        if not kept.has("blend"):
            run(kept, features, x, stream)
        if not kept.has("dense x8, same settings"):
            started = time.process_time()
            validation, test, epochs = predicted(x, stream, DENSE, MEMBERS)
            kept.add("dense x8, same settings", validation, test, time.process_time() - started, {"epochs": epochs})


if __name__ == "__main__":
    main()
