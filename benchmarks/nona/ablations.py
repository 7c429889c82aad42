"""Ablations of the paper's Appendix B: one choice changed at a time, and two grids, on houses and tweets, five splits.

Everything else as in the library's first defaults (batch 32, Adam at 1e-3, no dropout, negative L2, S2 pointwise over
admissible rows). Test errors of one member; nothing is chosen by them.

    python benchmarks/nona/ablations.py --cache runs/nona --out benchmarks/results/nona-ablations.csv
"""

import argparse
import time
from pathlib import Path

import torch
from attention import readouts
from members import Recipe, embed_rows
from results import Results
from sets import load
from trainer import Stream, fit

BASE = Recipe()
CHANGES = {
    "base": {},
    "similarity=l1": {"similarity": "l1"},
    "similarity=squared_l2": {"similarity": "squared_l2"},
    "similarity=cosine": {"similarity": "cosine"},
    "similarity=scaled_dot": {"similarity": "scaled_dot"},
    "mask=none": {"mask": None},
    "mask=s2, global": {"parameters": "global"},
    "mask=s1, pointwise": {"mask": "s1"},
    "mask=s1, global": {"mask": "s1", "parameters": "global"},
    "extent=all": {"extent": "all"},
    "mask=s1, extent=all": {"mask": "s1", "extent": "all"},
    "batch=16": {"batch": 16},
    "batch=64": {"batch": 64},
    "batch=128": {"batch": 128},
    "batch=512": {"batch": 512},
    "width=2": {"sizes": (200, 2)},
    "width=5": {"sizes": (200, 5)},
    "width=100": {"sizes": (200, 100)},
    "hidden=50": {"sizes": (50, 25)},
    "hidden=800": {"sizes": (800, 25)},
    "no final tanh": {"final_tanh": False},
    "squared_l2, no mask": {"similarity": "squared_l2", "mask": None},
    "cosine, no mask": {"similarity": "cosine", "mask": None},
    "simplex=sparsemax": {"simplex": "sparsemax"},
    "simplex=entmax15": {"simplex": "entmax15"},
    "temperature": {"temperature": True},
    "dropout=0.2": {"dropouts": (0.2,)},
    "dropout=0.4": {"dropouts": (0.4,)},
    "CRPS in place of squares": {"nona": 0.0, "crps": 1.0},
}
MASKS = {
    "none": {"mask": None},
    "S1": {"mask": "s1"},
    "S1, global": {"mask": "s1", "parameters": "global"},
    "S2": {"mask": "s2"},
    "S2, global": {"mask": "s2", "parameters": "global"},
}
SIMILARITIES = ("l2", "l1", "squared_l2", "cosine", "scaled_dot")
BATCHES, WIDTHS = (16, 32, 64, 128, 256), (5, 25, 50, 100)
PAPERS_BATCHES, PAPERS_WIDTHS = (32, 64, 128, 256), (25, 50, 100)
DENSE = {"dense": 1.0, "nona": 0.0, "stop": "dense"}
RECIPES = {
    "ablation": CHANGES,
    "similarity by mask": {
        f"{similarity} | {name}": {"similarity": similarity, **mask}
        for similarity in SIMILARITIES
        for name, mask in MASKS.items()
    },
    "dense, batch by width": {
        f"{batch} | {width}": {**DENSE, "batch": batch, "sizes": (200, width)} for batch in BATCHES for width in WIDTHS
    },
    "nona, batch by width": {
        f"{batch} | {width}": {"batch": batch, "sizes": (200, width)}
        for batch in PAPERS_BATCHES
        for width in PAPERS_WIDTHS
    },
}


def run(name, data, kind, change, recipe, results, splits) -> None:
    left = [s for s in data.splits(splits) if not results.has(name, s.seed, kind, change)]
    if not left:
        return
    x = torch.from_numpy(data.features)
    streams = [Stream.of(split, data.labels, data.groups, split.seed) for split in left]
    started = time.process_time()
    fitted = fit(x, streams, recipe, 1)
    seconds = (time.process_time() - started) / len(streams)
    for member, stream in enumerate(streams):
        own = {key: value[member] for key, value in fitted.parameters.items()}
        fixed = fitted.parameters, fitted.running, recipe, member
        queries, bank = embed_rows(*fixed, x[stream.test]), embed_rows(*fixed, x[stream.train])
        said = readouts(recipe, own, queries, bank, stream.labels[stream.train])
        guess = said[0] if recipe.uses_neighbors else said[1]
        facts = {"validation": float(fitted.validation[member]), "epochs": fitted.epochs[member], "seconds": seconds}
        results.add(name, stream, kind, change, guess, **facts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", nargs="*", default=["houses", "tweets"])
    parser.add_argument("--splits", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    results = Results(given.out)
    for kind, changes in RECIPES.items():
        for change, settings in changes.items():
            for name in given.sets:
                run(name, load(name, given.cache), kind, change, BASE.but(**settings), results, given.splits)
                print(name, kind, change, flush=True)


if __name__ == "__main__":
    main()
