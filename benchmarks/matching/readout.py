"""The prediction that belongs to a loss: neighbors read out by the mean of labels, a constant more, or the link's mean.

Under a link h the prediction of least expected matching loss is h^-1(sum_j w_j h(y_j)) (proposition 1). Six sets:
houses, books, diabetes, two made-up ones whose noise grows, one of counts. Labels less their
median, over their spread, of the rows that are fitted; links that grow exponentially go on straight beyond 2, in
training, in prediction and in the loss that is measured. Of each split 20 % are test rows, 20 % validate: they stop
training, fit the constant and choose readouts. Ways, each with the same network and settings:

    squares                 trained by squares, mean of labels
    squares + constant      the same and a constant, fitted by the loss on validation rows
    squares, link mean      the same model, predict(link=...)
    loss, mean              trained by the loss, mean of labels
    loss, chosen readout    trained by the loss, read out as validation rows choose: mean, mean and constant, link mean

    python benchmarks/matching/readout.py --data ../shared/data [--sets diabetes,counts] [--model default]
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from regression import books, houses, split
from sklearn.datasets import load_diabetes

from vicinal import links
from vicinal.estimators import NeighborRegressor
from vicinal.estimators.loss_readout import constant_of

LINKS = ("exp(1.5)", "anti_exp(1.5)", "sinh")
MODELS = {"network": {"metric": "network", "readout": "attention", "members": 2, "max_epochs": 25}, "default": {}}


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
    """As :func:`regression.houses`: labels, groups, and features given the training rows."""
    x, y = load_diabetes(return_X_y=True)
    return y, np.arange(len(y)), lambda train: x


SETS = {"houses": houses, "books": books, "diabetes": diabetes}
SETS |= {
    name: lambda folder, name=name: made_up(name)
    for name in ("noise grows with x0", "skewed noise grows with x1", "counts")
}


def predictions(x, y, rows, text, settings, of_squares):
    """Way -> predictions of the test rows for one link; which readout was chosen."""
    train, validation, test = rows
    fitted = np.concatenate([train, validation])
    curve = links.parse(text).cap(-2.0, 2.0)
    held_out = torch.from_numpy(of_squares.predict(x[validation], ids=np.arange(len(train), len(fitted))))
    truth = torch.from_numpy(y[validation])
    plain = of_squares.predict(x[test])
    said = {
        "squares": plain,
        "squares + constant": plain + constant_of(curve, held_out, truth, torch.ones_like(truth)),
        "squares, link mean": of_squares.predict(x[test], link=text),
    }
    if settings == MODELS["default"]:  # which is not trained by a loss
        return said, ""
    model = NeighborRegressor(loss=f"matching:{text}.cap(-2, 2)", random_state=0, **settings)
    model.fit(x[fitted], y[fitted], validation=np.arange(len(train), len(fitted)))
    scale = model.target_transform_
    said["loss, mean"] = model.for_loss(link="identity").predict(x[test])
    said["loss, chosen readout"] = model.predict(x[test])
    return said, "link mean" if scale.name == "link" else "constant" if scale.constant else "mean"


def study(name, data, seeds, settings):
    """Records: the loss of each way, link and seed."""
    target, groups, features = data
    records = []
    for seed in range(seeds):
        rows = split(len(target), groups, seed)
        fitted = np.concatenate(rows[:2])
        low, middle, high = np.quantile(target[fitted], [0.16, 0.5, 0.84])
        x, y = features(rows[0]), (target - middle) / ((high - low) / 2)
        model = NeighborRegressor(random_state=0, **settings)
        model.fit(x[fitted], y[fitted], validation=np.arange(len(rows[0]), len(fitted)))
        for text in LINKS:
            curve = links.parse(text).cap(-2.0, 2.0)
            said, chosen = predictions(x, y, rows, text, settings, model)
            truth = torch.from_numpy(y[rows[2]])
            for way, guess in said.items():
                loss = curve.divergence(torch.from_numpy(np.asarray(guess, dtype=float)), truth).mean().item()
                records.append(
                    {"data": name, "link": text, "method": way, "seed": seed, "loss": loss, "chosen": chosen}
                )
        print(f"{name}: seed {seed}", flush=True)
    return pd.DataFrame(records)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with houses/ and text/")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[1] / "results")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--model", default="network", choices=list(MODELS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in given.sets.split(","):
        records = study(name, SETS[name](given.data), given.seeds, MODELS[given.model])
        file = f"matching-readout-{given.model}-{name.replace(' ', '-')}.csv"
        records.to_csv(given.out / file, index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
