"""Readouts and folds of the estimator, with its defaults, on the regression sets: error, intervals and the rows used.

Every method is a ``NeighborRegressor`` fitted on the training and validation rows of a split (those that hold rows out
hold out the validation rows) and asked about the test rows. Rows are appended to the file of results as they come; what
is there is not run again.

    python benchmarks/nona/sets.py --data ../shared/data --cache runs/nona
    python benchmarks/readouts.py --cache runs/nona --out benchmarks/results/readouts.csv
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

sys.path.insert(0, str(Path(__file__).parent / "nona"))
from sets import SETS, load

from vicinal import NeighborRegressor
from vicinal.core.identity import canonical_ids
from vicinal.evaluation import ridge_baseline
from vicinal.heads import Kriging

COVERAGE = 0.9
FOLDS = {"validation_fraction": 0}
METHODS = {
    "attention": {"readout": "attention"},
    "auto": {},
    "kriging": {"readout": "kriging"},
    "attention, folds": {"readout": "attention"} | FOLDS,
    "kriging, folds": {"readout": "kriging"} | FOLDS,
}


def figures(settings: dict, frame: pd.DataFrame, labels: np.ndarray, groups: np.ndarray, split) -> dict[str, float]:
    """What one method does on one split."""
    known, test = np.concatenate([split.train, split.validation]), split.test
    identity = {} if len(np.unique(groups)) == len(groups) else {"groups": groups[known].tolist()}
    asked = {} if not identity else {"groups": groups[test].tolist()}
    model = NeighborRegressor(columns={"vector": "vector"}, **settings)
    held = None if model.validation_fraction == 0 else np.arange(len(split.train), len(known))
    started = time.process_time()
    model.fit(frame.iloc[known], labels[known], validation=held, **identity)
    fitted = time.process_time()
    prediction = model.predict(frame.iloc[test], **asked)
    ends = model.predict_interval(frame.iloc[test], COVERAGE, **asked)
    predicted = time.process_time()
    identity = model.bank_.identity(ids=None, groups=canonical_ids("groups", asked["groups"]) if asked else None)
    weights = model.bank_weights(torch.from_numpy(model.embed(frame.iloc[test])), identity).abs()
    weights = weights.sort(dim=1, descending=True).values.numpy()
    truth, unit = labels[test], labels[known].var()
    row = {
        "kriging": float(isinstance(model.network_.head, Kriging)),
        "error": float(np.mean((prediction - truth) ** 2) / unit),
        "covered": float(np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1]))),
        "width": float(np.mean(ends[:, 1] - ends[:, 0]) / np.sqrt(unit)),
        "rows": float((weights > 1e-9).sum(axis=1).mean()),
        "five": float(weights[:, :5].sum(axis=1).mean()),
        "ten": float(weights[:, :10].sum(axis=1).mean()),
        "twenty": float(weights[:, :20].sum(axis=1).mean()),
        "fit_s": fitted - started,
        "predict_s": predicted - fitted,
        "epochs": model.history_.best_epoch + 1,
        "test_rows": len(test),
    }
    if model.folds_ is not None:
        ids, honest = model.out_of_fold_predictions()
        row["out_of_fold"] = float(np.mean((honest - labels[known][ids]) ** 2) / unit)
    return row


def summary(found: pd.DataFrame, method: str, base: str = "attention") -> str:
    """Markdown: by set, geometric means over splits of ratios of ``method`` to ``base``, and means of its shares."""
    pairs = found[found["method"] == method].merge(
        found[found["method"] == base], on=["set", "split"], suffixes=("", "0")
    )
    pairs["ratio"], pairs["wider"] = np.log(pairs["error"] / pairs["error0"]), np.log(pairs["width"] / pairs["width0"])
    pairs["honest"] = np.log(pairs.get("out_of_fold", np.nan) / pairs["error"])
    by_set = pairs.groupby("set", sort=False)
    names = ["ratio", "wider", "honest", "covered", "covered0", "kriging", "rows", "rows0", "ten", "ten0"]
    table = by_set[names].mean().assign(splits=by_set.size())
    for name in ("ratio", "wider", "honest"):
        table[name] = np.exp(table[name])
    table.loc["**median**"] = table.median()
    table.loc["**worst**"] = table.max()
    lines = [
        "| set | splits | error | width | covered | of "
        + base
        + " | out of fold / test | kriging chosen | rows with weight | of "
        + base
        + " | share of ten rows | of "
        + base
        + " |",
        "|" + " --- |" * 12,
    ]
    for name, row in table.iterrows():
        cells = [
            f"{row['splits']:.0f}",
            *(f"{row[c]:.3f}" for c in ("ratio", "wider", "covered", "covered0", "honest")),
        ]
        cells += [
            f"{row['kriging']:.0%}",
            f"{row['rows']:.0f}",
            f"{row['rows0']:.0f}",
            f"{row['ten']:.0%}",
            f"{row['ten0']:.0%}",
        ]
        lines.append("| " + " | ".join([str(name), *cells]).replace("nan", "-") + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=None, choices=[*SETS])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=[*METHODS, "ridge"])
    arguments = parser.parse_args()
    done = pd.read_csv(arguments.out) if arguments.out.is_file() else pd.DataFrame(columns=["set", "split", "method"])
    there = set(zip(done["set"], done["split"], done["method"], strict=True))
    for seed in range(arguments.splits):
        for name in arguments.sets or SETS:
            data = load(name, arguments.cache)
            frame = pd.DataFrame({"vector": list(data.features)})
            split = data.splits(arguments.splits)[seed]
            for method in arguments.methods:
                if (name, seed, method) in there:
                    continue
                if method == "ridge":
                    parts = [data.features[rows] for rows in (split.train, split.validation, split.test)]
                    truth = data.labels
                    one = ridge_baseline(parts[0], truth[split.train], parts[1], truth[split.validation], parts[2])
                    both = truth[np.concatenate([split.train, split.validation])]
                    row = {"error": float(np.mean((one.prediction - truth[split.test]) ** 2) / both.var())}
                else:
                    row = figures(METHODS[method], frame, data.labels, data.groups, split)
                line = pd.DataFrame([{"set": name, "split": seed, "method": method} | row])
                done = pd.concat([done, line], ignore_index=True)
                done.to_csv(arguments.out, index=False)
                print(name, seed, method, {k: round(v, 4) for k, v in row.items()}, flush=True)
    for method in dict.fromkeys(done["method"]):
        if method not in ("attention", "ridge"):
            print(f"\n{method}, against attention with rows held out\n\n{summary(done, method)}")


if __name__ == "__main__":
    main()
