"""The paper's Table 1: dense, dense+knn, nona and nona+knn on its ten sets, ten splits, with its extractors.

One folder a set, named as in ``paper_sets.py``, whose docstrings say what is in it; sets whose folder is not there are
skipped. With ``--tuned`` extractors are trained along by ``preset="nona"``, as in the paper (a GPU is used if there is
one); without, they stay as published, and the recipe is that of ``paper.py``. A run that is killed goes on where it
was: vectors and checkpoints are in the cache, finished runs in the result file. At the end it prints what it has beside
what the paper has.

    python benchmarks/nona_table1.py --tuned --data FOLDERS --cache runs/table1 --out runs/nona-table1.csv
    python benchmarks/nona_table1.py --sets rsna --data FOLDERS --cache runs/table1 --out runs/nona-table1.csv
    python benchmarks/nona_table1.py --sets houses --data ../shared/data --encoders efficientnet-lite0 --splits 1 ...

Grids of appendix B: ``--batches 32 64 128 256 --widths 25 50 100``. What differs from the paper with ``--tuned``: the
rows held out for early stopping are neighbors of the test rows, too, as in all models of the library, and texts are
read by the mean over their places, where the authors' code has the first.
"""

import hashlib
import time
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from nona_paper import KEY, Stream, run, scored
from nona_paper_sets import EXTRACTORS, LOADERS, PaperSet, load_paper_set
from nona_sets import RegressionSet
from resumable import Lines, asked

from vicinal.data import Split
from vicinal.encoders.base import embed
from vicinal.encoders.names import make_encoder
from vicinal.estimators import NeighborRegressor
from vicinal.estimators.presets import PRESETS
from vicinal.evaluation import knn_grid

FIRST_PLACE = ("distilbert", "bert-base")
"""Extractors that the authors' code reads at the first place; sounds are read by the mean over time."""

METHODS = ("dense", "dense+knn", "nona", "nona+knn")
PAPER = {
    "rsna": (5.12, 5.56, 4.13, 4.03),
    "brifiseg": (6.69, 7.37, 4.02, 2.38),
    "adresso": (96.2, 41.3, 28.0, 24.8),
    "coughvid": (39.7, 23.2, 21.2, 23.2),
    "nosemic": (7.96, 7.23, 6.01, 5.89),
    "udacity": (0.435, 0.732, 0.358, 0.239),
    "pitchfork": (69.6, 14.8, 10.2, 10.5),
    "houses": (303, 20.0, 13.2, 14.7),
    "books": (8.33, 7.96, 7.48, 7.48),
    "austin": (2.29, 2.26, 2.05, 2.06),
}
"""Squared errors x 1000 that the paper prints, by :data:`METHODS`."""


def short_name(encoder: str) -> str:
    """What an extractor is called in the results: its name without where it is from."""
    return encoder.rpartition(":")[2].rpartition("/")[2]


def vectors(data: PaperSet, encoder: str, cache: Path) -> np.ndarray:
    """``[n, f]`` of a frozen encoder, run once for the same rows; equal cells are run once too."""
    cells = data.frame[data.column].astype(str).reset_index(drop=True)
    rows = hashlib.sha256("\0".join([encoder, *cells]).encode()).hexdigest()[:12]
    path = cache / f"table1-{data.name}-{short_name(encoder)}-{rows}.npy"
    if not path.is_file():
        pooled = any(name in encoder for name in FIRST_PLACE) and ":" in encoder
        module = make_encoder(encoder, data.column, data.kind, **({"pooling": "cls"} if pooled else {}))
        codes, unique = pd.factorize(cells)
        frame = pd.DataFrame({data.column: pd.Series(list(unique), dtype=object)})
        module.fit(frame)
        features = embed(module, module.prepare(frame, data.root)).float().numpy()[codes]
        aside = cache / f".{path.name}"
        np.save(aside, features)
        aside.replace(path)
    return np.load(path)


def fit_tuned(data: PaperSet, encoder: str, split: Split, labels: np.ndarray, changes: dict) -> NeighborRegressor:
    """The preset's model of a split, with ``changes`` of its settings; labels ``[n]`` are scaled to [0, 1]."""
    rows = np.concatenate([split.train, split.validation])
    fixed = {"encoders": {data.column: encoder}, "columns": {data.column: data.kind}, "root": data.root}
    settings = {**PRESETS["nona"].settings, **fixed, "accelerator": "auto", "random_state": split.seed, **changes}
    held_out = np.arange(len(split.train), len(rows))
    return NeighborRegressor(**settings).fit(data.frame[[data.column]].iloc[rows], labels[rows], validation=held_out)


def run_tuned(data: PaperSet, encoder: str, splits: list[Split], lines: Lines, options) -> None:
    """Each split of a set with the extractor trained along: the head, and k-NN on the embeddings trained for it."""
    targets, groups = data.frame[data.target].to_numpy(dtype=float), np.arange(len(data.frame))
    name = f"{data.name}, {short_name(encoder)}"
    for batch, width, split, head in product(options.batches, options.widths, splits, ("nona", "dense")):
        recipe = f"tuned, batch {batch}, width {width}"
        if (name, split.seed, recipe, f"{head}+knn") in lines:
            continue
        stream = Stream.of(split, targets, groups)
        labels, started = stream.labels.double().numpy(), time.process_time()
        place = f"{data.name}-{short_name(encoder)}-{head}-{batch}-{width}-{split.seed}"
        changes = {"head": head, "batch_size": batch, "hidden": (200, width), "max_epochs": options.epochs}
        changes["checkpoint_dir"] = options.cache / "checkpoints" / place
        model = fit_tuned(data, encoder, split, labels, changes)
        parts = (split.train, split.validation, split.test)
        bank, inner, queries = (model.embed(data.frame[[data.column]].iloc[part]) for part in parts)
        guess = model.predict(data.frame[[data.column]].iloc[split.test])
        nearest = knn_grid(bank, labels[split.train], inner, labels[split.validation], queries)
        curve = model.history_.validation_error
        facts = {"epochs": len(curve), "validation": float(min(curve)), "seconds": time.process_time() - started}
        line = scored(name, stream, recipe, head, guess, **facts)
        facts |= {"settings": nearest.settings, "validation": nearest.validation}
        lines.add([line, scored(name, stream, recipe, f"{head}+knn", nearest.prediction, **facts)], "%.8g")


def table(rows: pd.DataFrame) -> str:
    """What was measured, squared error x 1000 and its deviation over splits, beside the paper's figures."""
    lines = ["| set, extractor | recipe | splits | " + " | ".join(METHODS) + " |", "|---" * (3 + len(METHODS)) + "|"]
    for (name, recipe), runs in rows.groupby(["set", "recipe"], sort=False):
        cells = []
        for method in METHODS:
            errors = 1000 * runs.loc[runs["method"] == method, "mse"].astype(float)
            cells.append("" if errors.empty else f"{errors.mean():.3g} ± {errors.std(ddof=0):.2g}")
        lines.append(f"| {name} | {recipe} | {runs['split'].nunique()} | {' | '.join(cells)} |")
    lines += [
        f"| {name}, {short_name(EXTRACTORS[name])} | the paper's | 10 | {' | '.join(map(str, PAPER[name]))} |"
        for name in dict.fromkeys(rows["set"].str.partition(",")[0])
    ]
    return "\n".join(lines)


def main() -> None:
    settings = {"splits": 10, "batches": [32], "widths": [25], "epochs": PRESETS["nona"].settings["max_epochs"]}
    folders = {"data": Path, "cache": Path, "out": Path}
    options = asked(__doc__, 1, **folders, sets=[], tuned=False, encoders=[], **settings)
    options.cache.mkdir(parents=True, exist_ok=True)
    torch.set_flush_denormal(True)
    lines = Lines(options.out, *KEY)
    for name in options.sets or LOADERS:
        if not options.sets and not (options.data / name).is_dir():
            print(f"{name}: skipped, there is no folder {options.data / name}")
            continue
        data = load_paper_set(name, options.data / name, options.cache / f"table1-{name}-images")
        splits = data.splits(options.splits)
        for encoder in options.encoders or [EXTRACTORS[name]]:
            if options.tuned:
                run_tuned(data, encoder, splits, lines, options)
                continue
            labels = data.frame[data.target].to_numpy(dtype=float)
            rows = RegressionSet(data.name, vectors(data, encoder, options.cache), labels, np.arange(len(labels)))
            run(f"{data.name}, {short_name(encoder)}", rows, splits, lines)
    if options.out.is_file():
        print(table(pd.read_csv(options.out)))


if __name__ == "__main__":
    main()
