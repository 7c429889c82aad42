"""Diabetes in five ordered classes: the class of least expected squared distance, and the most probable one."""

import numpy as np
import torch
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LogisticRegression

from vicinal.heads import class_distances, frechet_scores

x, y = load_diabetes(return_X_y=True)
classes = np.digitize(y, np.quantile(y[:300], [0.2, 0.4, 0.6, 0.8]))
model = LogisticRegression(C=10, max_iter=1000).fit(x[:300], classes[:300])
probabilities = torch.from_numpy(model.predict_proba(x[300:]))
distances = class_distances(torch.arange(5.0, dtype=torch.float64)[:, None])
chosen = frechet_scores(probabilities, distances).argmax(1).numpy()
plain = probabilities.argmax(1).numpy()
for measure, error in (("mean squared distance", np.square), ("share wrong", lambda gap: gap != 0)):
    ours, usual = (float(error(one - classes[300:]).mean()) for one in (chosen, plain))
    print(f"{measure}: by distances {ours:.3f}, most probable {usual:.3f}{' (loses)' if ours >= usual else ''}")
