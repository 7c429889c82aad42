"""The prediction that belongs to a loss: neighbors read out by the mean of labels, a constant more, or the link's mean.

Under a link h the prediction of least expected matching loss is h^-1(sum_j w_j h(y_j)) (proposition 1). Five sets:
houses, diabetes, two made-up ones whose noise grows, one of counts. Labels less their
median, over their spread, of the rows that are fitted; links that grow exponentially go on straight beyond 2, in
training, in prediction and in the loss that is measured. Of each split 20 % are test rows, 20 % validate: they stop
training and fit the constant. Ways, each with the same network and settings:

    squares                 trained by squares, mean of labels
    squares + constant      the same and a constant, fitted by the loss on validation rows
    squares, link mean      the same model, predict(link=...)
    loss, mean              trained by the loss, mean of labels

    python benchmarks/readout.py --data ../shared/data
"""

from itertools import product
from pathlib import Path

import numpy as np
import torch
from decisions import houses, split
from resumable import RESULTS, Lines, asked
from sklearn.datasets import load_diabetes

from vicinal import links
from vicinal.estimators import NeighborRegressor
from vicinal.estimators.loss_readout import constant_of

LINKS = ("exp(1.5)", "anti_exp(1.5)", "sinh")
NETWORK = {"metric": "network", "readout": "attention", "members": 2, "max_epochs": 25, "random_state": 0}


def made_up(name):
    """500 rows of five normal numbers: m = x0 + sin 2 x1 + x2 / 2, and noise that grows, or counts."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 5))
    middle = x[:, 0] + np.sin(2 * x[:, 1]) + x[:, 2] / 2
    y = {
        "noise grows with x0": middle + np.exp(x[:, 0] / 2) * rng.normal(size=500),
        "skewed noise grows with x1": middle + 1.5 * np.exp(x[:, 1] / 2) * (rng.gamma(2.0, 0.5, size=500) - 1),
        "counts": rng.poisson(np.exp(0.5 + middle / 2)).astype(float),
    }[name]
    return y, np.arange(500), lambda train: x


def diabetes(folder):
    """As :func:`decisions.houses`: labels, groups, and features given the training rows."""
    x, y = load_diabetes(return_X_y=True)
    return y, np.arange(len(y)), lambda train: x


SETS = {"houses": houses, "diabetes": diabetes}
SETS |= {
    name: lambda folder, name=name: made_up(name)
    for name in ("noise grows with x0", "skewed noise grows with x1", "counts")
}


def predictions(x, y, rows, text, of_squares):
    """Way -> predictions of the test rows for one link."""
    train, validation, test = rows
    fitted, held_out = np.concatenate([train, validation]), np.arange(len(train), len(train) + len(validation))
    known, truth = torch.from_numpy(of_squares.predict(x[validation], ids=held_out)), torch.from_numpy(y[validation])
    plain = of_squares.predict(x[test])
    yield "squares", plain
    constant = constant_of(links.parse(text).cap(-2.0, 2.0), known, truth, torch.ones_like(truth))
    yield "squares + constant", plain + constant
    yield "squares, link mean", of_squares.predict(x[test], link=text)
    model = NeighborRegressor(loss=f"matching:{text}.cap(-2, 2)", **NETWORK)
    model.fit(x[fitted], y[fitted], validation=held_out)
    yield "loss, mean", model.for_loss(link="identity").predict(x[test])


def study(target, groups, features, seed):
    """The loss of each link and way."""
    rows = split(len(target), groups, seed)
    fitted = np.concatenate(rows[:2])
    low, middle, high = np.quantile(target[fitted], [0.16, 0.5, 0.84])
    x, y = features(rows[0]), (target - middle) / ((high - low) / 2)
    model = NeighborRegressor(**NETWORK).fit(x[fitted], y[fitted], validation=np.arange(len(rows[0]), len(fitted)))
    truth = torch.from_numpy(y[rows[2]])
    for text in LINKS:
        curve = links.parse(text).cap(-2.0, 2.0)
        for way, guess in predictions(x, y, rows, text, model):
            guess = torch.from_numpy(np.asarray(guess, dtype=float))
            yield {"link": text, "method": way, "loss": curve.divergence(guess, truth).mean().item()}


def main():
    given = asked(__doc__, data=Path("../shared/data"), out=RESULTS / "readout.csv", sets=list(SETS), seeds=10)
    lines = Lines(given.out, "data", "seed")
    for name, seed in product(given.sets, range(given.seeds)):
        if (name, seed) not in lines:
            lines.add({"data": name, "seed": seed} | line for line in study(*SETS[name](given.data), seed))


if __name__ == "__main__":
    main()
