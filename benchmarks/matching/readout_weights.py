"""How weights of labels count under a link where they do not sum to 1 (comparables), or some are below 0 (dense).

Kernels on the sets of ``readout.py`` without houses and books: ShuffleSplit, a quarter for the test; links capped at 2;
change of the matching loss of test rows against the mean that the model predicts.

    python benchmarks/matching/readout_weights.py
"""

import warnings

import numpy as np
import torch
from readout import LINKS, diabetes, made_up
from sklearn.model_selection import ShuffleSplit

from vicinal import links
from vicinal.estimators import NeighborRegressor
from vicinal.estimators.readout import local_weights


def weighted(model, x):
    """Weights ``[n, k]`` and adjusted labels ``[n, k]`` of test rows, and what the trend says ``[n]`` or None."""
    queries, fitted = model.query_rows(x).vectors, model.fitted_
    identity = fitted.bank.identity(ids=None, groups=None)
    local = local_weights(fitted.network.head, fitted.bank, queries, identity)
    return local, local.weights, local.values(fitted.bank_labels()), local.trend


def ways(model, x):
    """Name -> weights and labels that a link would be averaged over."""
    local, weights, values, trend = weighted(model, x)
    mean = local.mean(model.fitted_.bank_labels())
    if trend is not None:
        total = weights.sum(dim=1, keepdim=True)
        shares = weights / total.clamp(min=1e-6)
        atom = torch.cat([weights, 1 - total], dim=1), torch.cat([values, trend[:, None]], dim=1)
        found = {"the trend's share on the trend's value": atom, "weights divided by their sum": (shares, values)}
    else:
        shares = weights.clamp(min=0)
        shares = shares / shares.sum(dim=1, keepdim=True)
        found = {"weights below 0 set to 0": (shares, values)}
    moved = values + (mean - (shares * values).sum(dim=1))[:, None]
    return mean, found | {"the same, moved so that the mean stays": (shares, moved)}


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    sets = {"diabetes": (diabetes(None), 4)}
    sets |= {name: (made_up(name), 3) for name in ("noise grows with x0", "skewed noise grows with x1")}
    print("| data | readout | how | " + " | ".join(LINKS) + " |", "|" + " --- |" * 6, sep="\n")
    for name, ((target, _, features), splits) in sets.items():
        for readout in ("comparables", "dense"):
            losses = {}
            for train, test in ShuffleSplit(splits, test_size=0.25, random_state=0).split(target):
                x, y = features(train), target
                low, middle, high = np.quantile(y[train], [0.16, 0.5, 0.84])
                y = (y - middle) / ((high - low) / 2)
                model = NeighborRegressor(metric="kernel", readout=readout, random_state=0).fit(x[train], y[train])
                mean, found = ways(model, x[test])
                truth = torch.from_numpy(y[test])
                for text in LINKS:
                    curve = links.parse(text).cap(-2.0, 2.0)
                    losses.setdefault((text, ""), []).append(curve.divergence(mean, truth).mean())
                    for way, (weights, values) in found.items():
                        said = curve.inverse((weights * curve(values)).sum(dim=1))
                        losses.setdefault((text, way), []).append(curve.divergence(said, truth).mean())
            for way in found:
                changes = [100 * (sum(losses[text, way]) / sum(losses[text, ""]) - 1) for text in LINKS]
                print(
                    f"| {name} | {readout} | {way} | " + " | ".join(f"{c:+.1f} %" for c in changes) + " |", flush=True
                )


if __name__ == "__main__":
    main()
