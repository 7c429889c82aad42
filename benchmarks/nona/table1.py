"""Rows of the paper's Table 1 whose data are not at hand: the paper's recipe on vectors of two extractors a set.

Folders are in the public lay-out, as ``paper_sets.py`` says; the recipe and its ten splits are those of ``paper.py``,
with encoders frozen. A run that is killed goes on: vectors are kept in the cache, finished runs in the result file.
``paper_sets.py`` prints the commands that train the encoders along. Extractors are read from the hub, or from folders:

    python benchmarks/nona/table1.py rsna --data FOLDER --cache runs/nona --out benchmarks/results/nona-table1.csv
    python benchmarks/nona/table1.py pitchfork --data FOLDER --cache runs/nona --out runs/nona-table1.csv \
        --encoders minilm folder:models/distilbert
"""

import argparse
import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from paper import run
from paper_sets import EXTRACTORS, LOADERS, PaperSet, load_paper_set
from results import Results
from sets import RegressionSet

from vicinal.encoders.base import embed
from vicinal.encoders.names import make_encoder

FIRST_PLACE = ("distilbert", "bert-base", "hubert")
"""Extractors that the authors' code reads at the first place; the others by the mean over places."""


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=list(LOADERS))
    parser.add_argument("--data", type=Path, required=True, help="the folder of the set")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--encoders", nargs="*", help="in place of the two extractors of the paper")
    parser.add_argument("--splits", type=int, default=10)
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    data = load_paper_set(options.set, options.data, options.cache / f"table1-{options.set}-images")
    results, splits = Results(options.out), data.splits(options.splits)
    labels = data.frame[data.target].to_numpy(dtype=float)
    for encoder in options.encoders or EXTRACTORS[data.kind]:
        rows = RegressionSet(data.name, vectors(data, encoder, options.cache), labels, np.arange(len(labels)))
        run(f"{data.name}, {short_name(encoder)}", rows, splits, results, range(options.splits))


if __name__ == "__main__":
    main()
