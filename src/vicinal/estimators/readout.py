"""The kriging readout of a trained metric: how its scale and noise are chosen, on rows held out."""

from collections.abc import Mapping

import torch
from torch import Tensor

from vicinal.estimators.bank import Bank
from vicinal.heads import Kriging, KrigingWeights
from vicinal.heads.admissible import Identity
from vicinal.heads.kriging import neighborhoods
from vicinal.training import error_of

SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Lengths of the kernel that are tried, in median distances between rows of the bank."""

NOISES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Noises that are tried."""

_MOST = 1024
"""Rows that the choice is made on, and between which the median distance is taken."""


@torch.no_grad()
def local_weights(head: Kriging, bank: Bank, queries: Tensor, identity: Mapping[str, Tensor | None]) -> KrigingWeights:
    """The weights of the bank's rows for embedded queries ``[b, d]``, with what the bank holds prepared."""
    positions = head.nearest(queries, bank.vectors, Identity(**identity), bank.prepared())
    return head.weights_of(queries, bank.vectors, positions)


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
    sample = bank[:: max(1, -(-len(bank) // _MOST))].double()
    unit = float(torch.pdist(sample).median()) if len(sample) > 1 else 1.0
    unit = unit if unit > 0 else 1.0
    tried = [
        Kriging(head.k, scale=scale * unit, noise=noise, convex=head.convex) for scale in SCALES for noise in NOISES
    ]
    positions = tried[0].nearest(queries, bank, Identity(**identity))
    error = torch.zeros(len(tried), dtype=torch.float64)
    for some in neighborhoods(queries, bank, positions):
        for number, each in enumerate(tried):
            weights, variance = each.solve(*some[1:])
            prediction = KrigingWeights(weights, positions[some.part], variance).mean(labels)
            error[number] += error_of(prediction, truth[some.part]).sum()
    return tried[int(error.argmin())]
