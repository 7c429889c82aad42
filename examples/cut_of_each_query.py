"""Where a list of hits should end: a threshold that comes from the query, beside one for all, on digits."""

import numpy as np
import torch
from sklearn.datasets import load_digits

from vicinal.calibration import RelevanceFilter
from vicinal.calibration.relevance import best_f1

x, y = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(x))
vectors, labels = torch.from_numpy(x[order]).float(), torch.from_numpy(y[order])
vectors = torch.nn.functional.normalize(vectors - vectors.mean(0), dim=1)
scores, near = (vectors[600:] @ vectors[:600].T).topk(100, dim=1)
right = labels[near] == labels[600:, None]


def pairs(start, end):
    """Vectors of the queries, scores and truth of their hits, one pair each."""
    return (
        vectors[600:][start:end].repeat_interleave(100, 0),
        *(one[start:end].reshape(-1) for one in (scores, right)),
    )


cut = RelevanceFilter(64).fit(*pairs(0, 400)).choose(*pairs(400, 800))
queries, their_scores, truth = pairs(800, 1197)
chances, shown = pairs(400, 800)[1:], cut.shown(vectors[1400:], scores[800:]).reshape(-1)


def f1(shown):
    """Of pairs that are shown."""
    return 2 * float((shown & truth).sum()) / float(shown.sum() + truth.sum())


of_query, of_all = f1(shown), f1(their_scores >= best_f1(chances[0].double().numpy(), chances[1].numpy()))
print(
    f"F1 of what is shown: by each query {of_query:.3f}, one threshold {of_all:.3f}{' (loses)' * (of_query <= of_all)}"
)
