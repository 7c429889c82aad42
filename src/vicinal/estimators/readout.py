"""The kriging readout of a trained metric: how its scale and noise are chosen, on rows held out."""

import torch
from torch import Tensor

from vicinal.heads import Kriging
from vicinal.training import error_of

SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Lengths of the kernel that are tried, in median distances between rows of the bank."""

NOISES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Noises that are tried."""

_MOST = 1024
"""Rows that the choice is made on, and between which the median distance is taken."""


@torch.no_grad()
def choose_kriging(
    head: Kriging, queries: Tensor, truth: Tensor, bank: Tensor, labels: Tensor, **identity: Tensor | None
) -> Kriging:
    """The kriging head whose scale and noise have the lowest error on rows that the metric was not trained on.

    Args:
        head: its other settings are kept.
        queries: the rows held out, embedded ``[n, d]``.
        truth: their labels, ``[n]`` or one-hot ``[n, K]``.
        bank: the rows that predict them ``[N, d]``.
        labels: of those, ``[N]`` or ``[N, K]``.
        identity: ids and groups, as heads take them.
    """
    step = max(1, -(-len(queries) // _MOST))
    queries, truth = queries[::step].double(), truth[::step].double()
    identity = {n: v if v is None or n.startswith("bank") else v[::step] for n, v in identity.items()}
    some = bank[:: max(1, -(-len(bank) // _MOST))].double()
    unit = float(torch.pdist(some).median()) if len(some) > 1 else 1.0
    unit = unit if unit > 0 else 1.0
    start = Kriging(head.k, scale=unit, convex=head.convex, kernel=head.kernel)
    positions = start.local_weights(queries, bank, **identity).positions
    rows, near, known = bank[positions.clamp(min=0)], labels[positions.clamp(min=0)].double(), positions >= 0
    best, least = start, float("inf")
    for scale in SCALES:
        for noise in NOISES:
            tried = Kriging(head.k, scale=scale * unit, noise=noise, convex=head.convex, kernel=head.kernel)
            weights, _ = tried.solve(queries, rows, known)
            prediction = torch.einsum("bk,bk...->b...", weights, near)
            if prediction.ndim == 2:  # signed weights may leave the simplex
                prediction = prediction.clamp(min=0)
                prediction = prediction / prediction.sum(dim=1, keepdim=True).clamp(min=1e-12)
            error = float(error_of(prediction, truth).mean())
            if error < least:
                best, least = tried, error
    return best
