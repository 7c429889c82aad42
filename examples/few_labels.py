"""Shares of right rows among 600 digits, of which 20 are labelled, and among 300 of uneven kinds without any label.

Rows are labelled with their neighbors, beside label spreading; clusters take the surest rows first, beside k-means.
"""

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.semi_supervised import LabelSpreading

from vicinal.clustering import cluster_accuracy, partial_assignment, transductive_classes

x, y = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
x = torch.nn.functional.normalize(x - x.mean(0))
ours, usual = [], []
for seed in range(5):
    order = torch.randperm(600, generator=torch.Generator().manual_seed(seed))
    support = torch.cat([order[y[order] == digit][:2] for digit in range(10)])
    rest = order[~torch.isin(order, support)]
    shares = transductive_classes(5 * x[rest], 5 * x[support], y[support]).shares
    ours.append(float((shares.argmax(1) == y[rest]).double().mean()))
    labels = np.where(np.isin(np.arange(600), support), y[:600], -1)
    spread = LabelSpreading(kernel="knn", n_neighbors=7).fit(x[:600], labels).transduction_[rest]
    usual.append(float((spread == y[rest].numpy()).mean()))
ours, usual = np.mean(ours), np.mean(usual)
print(f"labelled together {ours:.2f}, label spreading {usual:.2f}{' (loses)' if ours <= usual else ''}")

rows = torch.cat([torch.where(y == digit)[0][: 60 - 6 * digit] for digit in range(10)])
z, ours, usual = x[rows], [], []
for seed in range(5):
    means = KMeans(10, n_init=1, random_state=seed).fit(z)
    usual.append(cluster_accuracy(torch.from_numpy(means.labels_).long(), y[rows]))
    centers = torch.from_numpy(means.cluster_centers_).to(z)
    for share in torch.linspace(0.3, 1.0, 15).tolist():
        mass = partial_assignment(10 * z @ centers.T, share, evenness=0.1)
        centers = torch.nn.functional.normalize(mass.T.to(z) @ z)
    ours.append(cluster_accuracy((z @ centers.T).argmax(1), y[rows]))
ours, usual = np.mean(ours), np.mean(usual)
print(f"surest rows first {ours:.2f}, k-means {usual:.2f}{' (loses)' if ours <= usual else ''}")
