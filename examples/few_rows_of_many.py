"""One row in thirty: errors by rows that predict as all do, rows nearest to k-means, random rows, and all of them.

A network on digits (share wrong) and a kernel on diabetes (mean squared error, in units of the variance).
"""

import copy
import warnings

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_diabetes, load_digits

from vicinal import NeighborClassifier, NeighborRegressor
from vicinal.estimators.compression import fewer_rows

warnings.simplefilter("ignore")
digits = NeighborClassifier(metric="network", members=2, max_epochs=8, random_state=0)
numbers = NeighborRegressor(metric="kernel", readout="rows", random_state=0)
for name, model, load, count in (("digits", digits, load_digits, 700), ("diabetes", numbers, load_diabetes, 300)):
    x, y = load(return_X_y=True)
    test, truth = x[count : count + 500], y[count : count + 500]
    model.fit(x[:count], y[:count])
    vectors, size = model.bank_.vectors.numpy(), round(count / 30)
    means = KMeans(size, n_init=1, random_state=0).fit(vectors).cluster_centers_
    near = [int(np.square(vectors - mean).sum(1).argmin()) for mean in means]
    draws = [np.random.default_rng(seed).choice(count, size, replace=False) for seed in range(3)]

    def error(one):
        said = one.predict(test)
        return (said != truth).mean() if hasattr(one, "classes_") else np.square(said - truth).mean() / truth.var()

    def over(rows):
        return error(copy.deepcopy(model).forget(np.setdiff1d(model.bank_.ids, model.bank_.ids[rows])))

    chosen = error(fewer_rows(model, 1 / 30)[0])
    others = {"k-means": over(near), "random": np.mean([over(rows) for rows in draws])}
    listed = ", ".join(f"{other} {value:.2f}" for other, value in others.items())
    print(f"{name}: {size} chosen rows {chosen:.2f}, {listed}; all {count} rows {error(model):.2f}")
