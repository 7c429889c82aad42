"""Grouping rows of classes that nobody named, beside rows of known ones: accuracy, and the number of classes.

    python benchmarks/nona/sets.py --data ../shared/data --cache runs/nona     # vectors of spoken and sign digits
    python benchmarks/new_classes.py --data ../shared/data --cache runs/nona --out benchmarks/results/new-classes.csv

Digits, spoken (speaker encoder) and signed (EfficientNet-lite0): three of ten are new, others for each of five seeds.
Omniglot: all characters of one of eight alphabets are new; a small network has learned those of four others, and the
three that it has not seen either are the known ones. Every method gets the same vectors, of length 1, and sees no label
of the new rows. Methods of scikit-learn see the new rows alone, as they have no use for known ones. "told": the number
of classes is given; else it is chosen: by hidden known classes, the silhouette, or the largest gap of eigenvalues.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.sparse.csgraph import laplacian
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.neighbors import kneighbors_graph

from vicinal.clustering import cluster_accuracy, discover_groups, known_class_kmeans, known_class_spectral
from vicinal.losses import EmbeddingLoss

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from omniglot import train

MOST, KNOWN, NEAREST, STEPS = 60, 1000, 10, 400


def digits(cache, name):
    """Vectors and digits of a set that ``benchmarks/nona/sets.py`` embedded, three digits new for each seed."""
    stored = np.load(cache / f"{name}.npz")
    rows, labels = torch.from_numpy(stored["features"]), torch.from_numpy(stored["digit"]).long()

    def of(seed):
        left_out = np.random.default_rng(seed).choice(10, 3, replace=False)
        new = torch.from_numpy(np.isin(labels, left_out))
        return rows[new], labels[new], rows[~new], labels[~new]

    return of, 5


def omniglot(data):
    """Drawings of one alphabet, and of three that the network has not seen either."""
    with np.load(data / "images" / "omniglot_small.npz") as archive:
        images = torch.from_numpy(archive["images"])[:, None] / 255
        labels, names = torch.from_numpy(archive["label"]).long(), archive["alphabet"]
    alphabets = np.unique(names)

    def of(seed):
        others = np.random.default_rng(seed).permutation(np.delete(alphabets, seed))
        learned = np.isin(names, others[:4])
        criterion = EmbeddingLoss("supcon", temperature=0.1, reduction="mean_nonzero")
        model = train(criterion, images[learned], labels[learned], seed=seed, steps=STEPS)
        with torch.no_grad():
            new, known = (
                (torch.cat([model(part) for part in images[rows].split(256)]), labels[rows])
                for rows in (names == alphabets[seed], np.isin(names, others[4:]))
            )
        return *new, *known

    return of, len(alphabets)


def by_silhouette(rows, seed):
    runs = {k: KMeans(k, n_init=4, random_state=seed).fit_predict(rows) for k in range(2, MOST + 1)}
    return runs[max(runs, key=lambda k: silhouette_score(rows, runs[k], sample_size=1000, random_state=seed))]


def spectral(rows, clusters, seed):
    return SpectralClustering(
        clusters, affinity="nearest_neighbors", n_neighbors=NEAREST, random_state=seed
    ).fit_predict(rows)


def by_gap(rows, seed):
    graph = kneighbors_graph(rows, NEAREST)
    values = np.linalg.eigvalsh(laplacian(0.5 * (graph + graph.T), normed=True).toarray())
    return spectral(rows, int(np.diff(values[1 : MOST + 2]).argmax()) + 2, seed)


def methods(rows, known, labels, count, seed):
    """Labels of the rows by method, one after the other."""

    def draw():
        return torch.Generator().manual_seed(seed)

    some = torch.randperm(len(known), generator=draw())[:KNOWN]
    plain = rows.numpy()
    yield "discover_groups", lambda: discover_groups(rows, known, labels, most=MOST, generator=draw()).labels
    yield "k-means by silhouette", lambda: by_silhouette(plain, seed)
    yield "spectral by gap", lambda: by_gap(plain, seed)
    yield "discover_groups, told", lambda: discover_groups(rows, known, labels, groups=count, generator=draw()).labels
    yield "known_class_kmeans, told", lambda: known_class_kmeans(rows, known, labels, count, generator=draw()).labels
    yield (
        "known_class_spectral, told",
        lambda: known_class_spectral(rows, known[some], labels[some], count, generator=draw()).labels,
    )
    yield "k-means, told", lambda: KMeans(count, n_init=10, random_state=seed).fit_predict(plain)
    yield "spectral, told", lambda: spectral(plain, count, seed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/new-classes.csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    tasks = {
        "spoken digits": digits(options.cache, "fsdd"),
        "sign digits": digits(options.cache, "signs"),
        "Omniglot": omniglot(options.data),
    }
    done = pd.read_csv(options.out).to_dict("records") if options.out.exists() else []
    for name, (of, seeds) in tasks.items():
        for seed in range(seeds):
            if any(line["data"] == name and line["seed"] == seed for line in done):
                continue
            rows, truth, known, labels = of(seed)
            rows, known = (torch.nn.functional.normalize(each) for each in (rows, known))
            count = len(truth.unique())
            for method, run in methods(rows, known, labels, count, seed):
                start = time.process_time()
                groups = torch.as_tensor(run())
                line = {
                    "data": name, "seed": seed, "method": method, "classes": count, "groups": len(groups.unique()),
                    "accuracy": cluster_accuracy(groups, truth), "ari": adjusted_rand_score(truth, groups),
                    "seconds": round(time.process_time() - start, 2),
                }  # fmt: skip
                print(line, flush=True)
                done.append(line)
            pd.DataFrame(done).to_csv(options.out, index=False)
    runs = pd.DataFrame(done).assign(off=lambda table: (table["groups"] - table["classes"]).abs())
    print(runs.groupby(["data", "method"], sort=False)[["accuracy", "off", "seconds"]].mean().round(3).to_string())


if __name__ == "__main__":
    main()
