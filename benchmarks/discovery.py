"""Rows of classes that a model does not know: how many are noticed, and how well they are grouped.

    python benchmarks/discovery.py    # digits of scikit-learn

Three classes of ten are left out of the fit, others for each seed; the table that is looked at has all their rows and
a third of the known rows. Accuracy is Hungarian, over the new rows that were noticed: of the groups of
``vicinal discover``, and of k-means that is told the number 3, on the vectors of the encoders and of the model.
"""

import tempfile
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from resumable import RESULTS, Lines, asked
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

from vicinal.clustering import cluster_accuracy
from vicinal.estimators import NeighborClassifier
from vicinal.estimators.kernel_metric import encoded
from vicinal.workflows import discover_table


def digits():
    data = load_digits()
    table = pd.DataFrame(data.data, columns=[f"p{place}" for place in range(64)])
    return table.loc[:, table.std() > 0], data.target.astype(str)


def one(frame, truth, metric, seed):
    random = np.random.default_rng(seed)
    left_out = random.choice(np.unique(truth), 3, replace=False)
    new = np.isin(truth, left_out)
    known = random.permutation(np.flatnonzero(~new))
    fit, rest = np.split(known, [2 * len(known) // 3])
    looked = random.permutation(np.concatenate([rest, np.flatnonzero(new)]))
    table, is_new, names = frame.iloc[looked].reset_index(drop=True), new[looked], truth[looked]
    model = NeighborClassifier(metric=metric, random_state=seed).fit(frame.iloc[fit], truth[fit])
    with tempfile.TemporaryDirectory() as place:
        model.notes_ = {"target": "label"}
        model.save(f"{place}/model")
        found = discover_table(Path(place) / "model", table)
        at = found.table["id"].to_numpy()
        of_new = is_new[at]
        codes = torch.from_numpy(np.unique(names, return_inverse=True)[1])[at][of_new]
        groups = torch.from_numpy(found.table["group"].to_numpy())[of_new]
        encoder = model.table_encoder
        spaces = {
            "encoders": encoded(encoder, encoder.cache(encoder.prepare(table, None)))[at].numpy(),
            "model": model.embed(table)[at],
        }
        told = {
            space: cluster_accuracy(
                torch.from_numpy(KMeans(3, n_init=10, random_state=seed).fit_predict(v))[of_new], codes
            )
            for space, v in spaces.items()
        }
    return {
        "metric": metric,
        "seed": seed,
        "left out": " ".join(left_out),
        "known said to be new": (~of_new).sum() / (~is_new).sum(),
        "new noticed": of_new.sum() / is_new.sum(),
        "groups": found.table["group"].nunique(),
        "hidden score": found.record.score,
        "accuracy": cluster_accuracy(groups, codes),
        "k-means, encoders": told["encoders"],
        "k-means, model": told["model"],
    }


def main():
    given = asked(__doc__, out=RESULTS / "discovery.csv", seeds=5)
    lines = Lines(given.out, "metric", "seed")
    for metric, seed in product(("auto", "network"), range(given.seeds)):
        if (metric, seed) not in lines:
            lines.add([one(*digits(), metric, seed)])


if __name__ == "__main__":
    main()
