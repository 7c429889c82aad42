"""Figure 4 of the NONA paper: test rows on a map, by vectors that a dense head trained and by those of its neighbors.

    pip install umap-learn
    python benchmarks/nona/sets.py --data ../shared/data --sources fsdd tweets
    python benchmarks/figure4.py --cache runs/nona --out docs/results/images/figure4.png

Both heads learn on the same frozen vectors, with the library's defaults, and never see the rows that are drawn. Maps
are UMAP's with its defaults and one seed. The number beside a name is no matter of the map: the share of the labels'
variance that the ten nearest of the other rows explain, by the vectors themselves (ten-fold).
"""

import argparse
import sys
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
import umap
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.neighbors import KNeighborsRegressor

from vicinal.estimators import NeighborRegressor

sys.path.insert(0, str(Path(__file__).parent / "nona"))
from sets import load


def explained(vectors, labels):
    said = cross_val_predict(KNeighborsRegressor(10), vectors, labels, cv=KFold(10, shuffle=True, random_state=0))
    return 1 - ((said - labels) ** 2).mean() / labels.var()


def draw(axis, name, vectors, labels):
    place = umap.UMAP(random_state=0, n_jobs=1).fit_transform(vectors)
    dots = axis.scatter(*place.T, c=labels, s=6, cmap="viridis")
    axis.set(title=f"{name}: {explained(vectors, labels):.2f}", xticks=[], yticks=[])
    return dots


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, default=Path("runs/nona"))
    parser.add_argument("--sets", nargs="*", default=["fsdd", "tweets"])
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    figure, axes = plt.subplots(
        len(given.sets), 3, figsize=(9, 3 * len(given.sets)), squeeze=False, layout="constrained"
    )
    for line, name in zip(axes, given.sets, strict=True):
        rows = load(name, given.cache)
        split = rows.splits(1)[0]
        seen = np.concatenate([split.train, split.validation])
        test, labels = rows.features[split.test], rows.labels[split.test]
        draw(line[0], f"{name}, frozen", test, labels)
        for axis, head in zip(line[1:], ("dense", "nona"), strict=True):
            model = NeighborRegressor(head=head, metric="network", random_state=0)
            model.fit(rows.features[seen], rows.labels[seen])
            dots = draw(axis, head, model.embed(test), labels)
            error = ((model.predict(test) - labels) ** 2).mean()
            print(f"{name} {head}: test squared error {error:.4g}", flush=True)
        figure.colorbar(dots, ax=line, label="label", shrink=0.8)
    figure.savefig(given.out, dpi=90, metadata={"Software": None})


if __name__ == "__main__":
    main()
