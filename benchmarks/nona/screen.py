"""Screening of ideas, on validation rows only: which losses, masks, similarities and readouts pay under a good recipe.

python benchmarks/nona/screen.py --cache runs/nona --out runs/nona-screening.csv
"""

import argparse
import csv
import dataclasses
import time
from pathlib import Path

import numpy as np
import torch
from attention import readouts
from members import Recipe, embed_rows
from sets import load
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from trainer import Stream, fit

from vicinal.evaluation import knn_grid, ridge_baseline

ROWS = 1500
GOOD = Recipe(batch=128, dropouts=(0.2,), bias_at_mean=True, dense=1.0, stop="both")
ALONE = GOOD.but(dense=0.0, stop="nona")
FREE = ALONE.but(final_tanh=False)
BEST = FREE.but(dropouts=(0.4,))
AIDED = GOOD.but(dense=0.2, stop="nona")
PLAIN = FREE.but(together=True)
ENTMAX = PLAIN.but(simplex="entmax15")
VARIANTS = {
    "dense": GOOD.but(nona=0.0, stop="dense"),
    "default": PLAIN,
    "default, squared L2": PLAIN.but(similarity="squared_l2"),
    "default, sparsemax": PLAIN.but(simplex="sparsemax"),
    "default, entmax": ENTMAX,
    "default, entmax, no mask": ENTMAX.but(mask=None),
    "default, entmax, batch 512": ENTMAX.but(batch=512),
    "default, entmax, batch 256": ENTMAX.but(batch=256),
    "default, entmax, patience 20": ENTMAX.but(patience=20),
    "default, entmax, CRPS": ENTMAX.but(nona=0.0, crps=1.0),
    "default, entmax, dropout 0.4": ENTMAX.but(dropouts=(0.4,)),
    "default, entmax, decay 0.1": ENTMAX.but(decays=(0.1,)),
    "default, entmax, rate 3e-3": ENTMAX.but(rates=(3e-3,)),
    "default, entmax, wide": ENTMAX.but(sizes=(400, 50)),
    "default, entmax, squared L2": ENTMAX.but(similarity="squared_l2"),
    "default, entmax, scaled dot": ENTMAX.but(similarity="scaled_dot"),
    "default, entmax + 0.2 dense": ENTMAX.but(dense=0.2, bias_at_mean=True),
    "nona": ALONE,
    "nona, no final tanh": ALONE.but(final_tanh=False),
    "nona, no final tanh, dropout 0.4": FREE.but(dropouts=(0.4,)),
    "nona, no final tanh, no mask": FREE.but(mask=None),
    "best, stopped together": BEST.but(together=True),
    "dense, no final tanh, dropout 0.4": GOOD.but(nona=0.0, stop="dense", final_tanh=False, dropouts=(0.4,)),
    "best, dropout 0.6": BEST.but(dropouts=(0.6,)),
    "best, no mask": BEST.but(mask=None),
    "best, temperature": BEST.but(temperature=True),
    "best, rate 3e-3": BEST.but(rates=(3e-3,)),
    "best, batch 512": BEST.but(batch=512),
    "best, wide": BEST.but(sizes=(400, 50)),
    "best, decay 0.1": BEST.but(decays=(0.1,)),
    "best + CRPS 0.3": BEST.but(crps=0.3),
    "best + contrast 0.01": BEST.but(contrast=0.01),
    "nona, no final tanh, temperature": FREE.but(temperature=True),
    "nona, no final tanh, rate 3e-4": FREE.but(rates=(3e-4,)),
    "nona, no final tanh, squared L2": FREE.but(similarity="squared_l2"),
    "nona, no final tanh, batch 512": FREE.but(batch=512),
    "nona, no final tanh, wide": FREE.but(sizes=(400, 50)),
    "nona, no final tanh, decay 0.1": FREE.but(decays=(0.1,)),
    "nona, no final tanh, s1": FREE.but(mask="s1"),
    "nona, temperature": ALONE.but(temperature=True),
    "nona, dropout 0.4": ALONE.but(dropouts=(0.4,)),
    "nona, stopped together": ALONE.but(together=True),
    "nona, batch 512": ALONE.but(batch=512),
    "nona, no mask": ALONE.but(mask=None),
    "nona + 0.2 dense": AIDED,
    "nona of residuals": ALONE,
    "nona + CRPS 0.3": ALONE.but(crps=0.3),
    "nona + contrast 0.01": ALONE.but(contrast=0.01),
    "both": GOOD,
    "nona, squared L2": ALONE.but(similarity="squared_l2"),
    "nona, dropout 0": ALONE.but(dropouts=(0.0,)),
    "nona, batch 32": ALONE.but(batch=32),
    "nona, rate 3e-3": ALONE.but(rates=(3e-3,)),
    "nona, rate 3e-4": ALONE.but(rates=(3e-4,)),
    "nona, decay 0.1": ALONE.but(decays=(0.1,)),
    "nona, s1": ALONE.but(mask="s1"),
    "nona, sparsemax": ALONE.but(simplex="sparsemax"),
    "nona, wide": ALONE.but(sizes=(400, 50)),
    "nona, narrow": ALONE.but(sizes=(100, 12)),
    "dense of residuals": GOOD.but(nona=0.0, stop="dense"),
    "dense, no final tanh": GOOD.but(nona=0.0, stop="dense", final_tanh=False),
    "dense, dropout 0.4": GOOD.but(nona=0.0, stop="dense", dropouts=(0.4,)),
}


def read_out(fitted, recipe, x, stream, part):
    """Neighbor, dense and moved predictions ``[M, n]`` of the rows in ``part``, and embeddings; one stream."""
    found, spaces = [], []
    for member in range(len(fitted.best)):
        own = {name: value[member] for name, value in fitted.parameters.items()}
        queries = embed_rows(fitted.parameters, fitted.running, recipe, member, x[part])
        bank = embed_rows(fitted.parameters, fitted.running, recipe, member, x[stream.train])
        made = readouts(recipe, own, queries, bank, stream.labels[stream.train])
        found.append([torch.full((len(part),), torch.nan) if value is None else value for value in made])
        spaces.append((queries.numpy(), bank.numpy()))
    return [torch.stack(list(column)).double().numpy() for column in zip(*found, strict=True)], spaces


def candidates(neighbor, dense, moved, ridge):
    """Readouts by name, each ``[n]``, from those of the members and ridge regression."""
    made = {"dense": dense.mean(0), "dense, one": dense[0]}
    if np.isfinite(neighbor).all():
        n, d, trend = neighbor.mean(0), dense.mean(0), (neighbor + dense - moved).mean(0)
        made |= {
            "neighbors": n,
            "neighbors, one": neighbor[0],
            "half": (n + d) / 2,
            "trend": trend,
            "half trend": (n + trend) / 2,
            "neighbors, dense, trend": (n + d + trend) / 3,
            "half and ridge": (n + d + ridge) / 3,
        }
    return made


def keep_for_later(folder, name, made, spaces, stream, ridge, fitted, recipe):
    """Predictions and embeddings of a screened variant, so that further readouts need no training."""
    folder.mkdir(exist_ok=True)
    queries, banks = (np.stack(list(side)) for side in zip(*spaces, strict=True))
    labels = {part: stream.labels[getattr(stream, part)].numpy() for part in ("train", "validation")}
    steps = {
        key: fitted.parameters[key].numpy() for key in ("step_w", "step_b", "log_scale") if key in fitted.parameters
    }
    np.savez(
        folder / f"{name}.npz",
        neighbor=made[0],
        dense=made[1],
        moved=made[2],
        queries=queries,
        bank=banks,
        ridge=ridge,
        **labels,
        **steps,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", nargs="*", default=["houses", "tweets", "books", "stsb", "arousal", "signs"])
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--only", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    done = set()
    if given.out.is_file():
        with given.out.open() as file:
            done = {(row["set"], row["split"], row["variant"]) for row in csv.DictReader(file)}
    with given.out.open("a", newline="") as file:
        writer = csv.writer(file)
        if not done:
            writer.writerow(["set", "split", "variant", "readout", "mse", "epochs", "seconds"])
        for variant in given.only:
            for name in given.sets:
                screen(given, writer, file, done, variant, VARIANTS[variant], name)


def screen(given, writer, file, done, variant, recipe, name):
    data = load(name, given.cache)
    x = torch.from_numpy(data.features)
    for split in data.splits(given.splits):
        if (name, str(split.seed), variant) in done:
            continue
        keep = np.sort(np.random.default_rng(split.seed).permutation(split.train)[: int(ROWS * 0.68)])
        stream = Stream.of(
            type(split)(keep, split.validation, split.test, split.seed), data.labels, data.groups, split.seed
        )
        started = time.process_time()
        truth = stream.labels[stream.validation].numpy()
        parts = [
            data.features[stream.train],
            stream.labels[stream.train].numpy(),
            data.features[stream.validation],
            truth,
        ]
        linear = ridge_baseline(*parts, data.features[stream.validation])
        if variant.endswith("of residuals"):
            trend = torch.zeros(len(stream.labels))
            trend[stream.validation] = torch.from_numpy(linear.prediction).float()
            line = make_pipeline(StandardScaler(), Ridge(linear.settings["alpha"]))
            trend[stream.train] = torch.from_numpy(cross_val_predict(line, *parts[:2], cv=5)).float()
            stream = dataclasses.replace(stream, labels=stream.labels - trend)
        fitted = fit(x, [stream], recipe, given.members)
        made, spaces = read_out(fitted, recipe, x, stream, stream.validation)
        keep_for_later(
            given.out.with_suffix(""),
            f"{name}-{split.seed}-{variant}",
            made,
            spaces,
            stream,
            linear.prediction,
            fitted,
            recipe,
        )
        if variant.endswith("of residuals"):
            made = [part + linear.prediction for part in made]
        found = candidates(*made, linear.prediction)
        if variant == "dense":
            found |= {"ridge": linear.prediction, "k-NN": knn_grid(*parts, data.features[stream.validation]).prediction}
        for readout, guess in found.items():
            error = float(np.mean((guess - truth) ** 2))
            spent = time.process_time() - started
            writer.writerow(
                [name, split.seed, variant, readout, f"{error:.7f}", int(fitted.epochs.sum()), f"{spent:.1f}"]
            )
        file.flush()


if __name__ == "__main__":
    main()
