"""Classes by shops: nobody labelled the digits 0, 1 and 2, but three shops hold them in different shares.

A classifier of the shop, and the factors of what it says, give the classes and the shares; beside k-means.
"""

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

from vicinal.clustering import ddfa

SHARES = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]])  # of the digits, by shop
x, y = load_digits(return_X_y=True, n_class=3)
random = np.random.default_rng(0)
shop = np.array([random.choice(3, p=SHARES[digit]) for digit in y])  # columns are shares, as shops are of equal size
said = cross_val_predict(KNeighborsClassifier(100), x, shop, method="predict_proba")
found = ddfa(torch.from_numpy(said), torch.from_numpy(shop), 3, bins=8)


def right(classes: np.ndarray) -> tuple[float, np.ndarray]:
    """The share of rows whose class is right, under the best naming of the classes."""
    table = np.array([[np.sum((classes == k) & (y == digit)) for digit in range(3)] for k in range(3)])
    named = linear_sum_assignment(-table)
    return table[named].sum() / len(y), named[1]


classes = found.classes.argmax(1).numpy()
share, names = right(classes)
true = np.array([[np.mean(y[shop == d] == k) for d in range(3)] for k in range(3)])
wrong = np.abs(found.shares.numpy() - true[names]).max()
beside, _ = right(KMeans(3, n_init=3, random_state=0).fit_predict(x))
print(f"shares of shops  {share:.3f} of rows right{' loses' if share < beside else ''}; off by {wrong:.2f}")
print(f"k-means          {beside:.3f} of rows right")
