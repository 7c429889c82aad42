r"""What squared error does to the rows of a neighbor head: which ones it pulls near to a row, and which it pushes away.

With $\Delta_{ij} = y_i - y_j$ the squared error of a row is
$(\sum_j p_{ij} \Delta_{ij})^2 = \sum_j p_{ij}^2 \Delta_{ij}^2 + \sum_{j \ne k} p_{ij} p_{ik} \Delta_{ij} \Delta_{ik}$,
terms of pairs and of triplets (NONA, section 4.1), the second over ordered pairs (j, k). The paper prints a factor 2
before that sum, which counts each triplet twice: of two neighbors of weight 1/2 with gaps 1 and -1 the error is 0, the
pairs are 1/2, and the triplets -1/2; with the factor the squared error would be -1/2.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.blockwise.thresholds import Simplex
from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_labels

_POWERS: dict[Simplex, float] = {"softmax": 1.0, "entmax15": 0.5, "sparsemax": 0.0}


class Forces(NamedTuple):
    r"""Of each row and neighbor, ``[b, N]``; in squared units of the labels.

    Attributes:
        pairs: $p_{ij}^2 \Delta_{ij}^2$, at least 0.
        triplets: $p_{ij} \Delta_{ij} \sum_{k \ne j} p_{ik} \Delta_{ik}$; with the pairs they sum to the row's
            squared error.
        pull_pairs: the fall of the pairs' sum as the score of j rises.
        pull_triplets: likewise of the triplets' sum.
    """

    pairs: Tensor
    triplets: Tensor
    pull_pairs: Tensor
    pull_triplets: Tensor

    @property
    def pull(self) -> Tensor:
        r"""$-\partial (y_i - \hat y_i)^2 / \partial s_{ij}$: above 0, j is pulled nearer; below, it is pushed away."""
        return self.pull_pairs + self.pull_triplets


def forces(weights: Tensor, labels: Tensor, target: Tensor, simplex: Simplex = "softmax") -> Forces:
    r"""The terms of the squared errors $(y_i - \sum_j p_{ij} y_j)^2$, and what they do to the scores.

    For softmax $-\partial (y_i - \hat y_i)^2 / \partial s_{ij} = 2 (y_i - \hat y_i)\, p_{ij} (y_j - \hat y_i)$: a row
    is pulled if its label lies on the side of the prediction where the truth is. Scores are those that the simplex map
    sees, with a mask's logarithm in them.

    Args:
        weights: p, ``[b, N]``, rows sum to 1.
        labels: of the neighbors ``[N]``.
        target: the rows' own labels ``[b]``.
        simplex: the map that made the weights: "softmax", "entmax15" or "sparsemax".

    Raises:
        ValueError: for shapes that do not agree.

    >>> found = forces(torch.tensor([[0.5, 0.5]]), torch.tensor([0.0, 1.0]), torch.tensor([0.75]))
    >>> found.pairs, found.triplets
    (tensor([[0.1406, 0.0156]]), tensor([[-0.0469, -0.0469]]))
    >>> found.pull
    tensor([[-0.1250,  0.1250]])
    """
    check_choice("simplex", simplex, _POWERS)
    check_labels(labels, weights.shape[-1])
    if weights.ndim != 2 or labels.ndim != 1 or target.shape != weights.shape[:1]:
        raise ValueError(
            f"target: expected [b] for weights [b, N] and labels [N], got {tuple(target.shape)}, "
            f"{tuple(weights.shape)} and {tuple(labels.shape)}"
        )
    gaps = target[:, None] - labels  # [b, N]
    each = weights * gaps
    pairs, error = each.square(), each.sum(dim=-1, keepdim=True)
    of_pairs, of_all = 2 * each * gaps, 2 * error * gaps  # by the weights
    pull_pairs, pull = (-_by_scores(weights, slope, simplex) for slope in (of_pairs, of_all))
    return Forces(pairs, each * error - pairs, pull_pairs, pull - pull_pairs)


def _by_scores(weights: Tensor, slope: Tensor, simplex: Simplex) -> Tensor:
    r"""``slope`` by the weights as one by the scores, through the Jacobian $\mathrm{diag}(s) - s s^\top / \sum_j s_j$.

    s is $p^{2 - \alpha}$ of entmax: p for softmax, its root for 1.5, and which rows have weight for sparsemax.
    """
    factor = torch.where(weights > 0, weights.clamp(min=torch.finfo(weights.dtype).tiny) ** _POWERS[simplex], 0.0)
    total = factor.sum(dim=-1, keepdim=True)
    return factor * (slope - (factor * slope).sum(dim=-1, keepdim=True) / total)


def best_weights(labels: Tensor, target: Tensor, mass: float = 1.0) -> Tensor:
    r"""Weights that minimize $(\sum_j p_j (y - y_j))^2$ for $\sum_j p_j = R$, on the one or two nearest labels.

    The closed form of NONA's appendix D: a label between two neighbors in the order of labels, $y_m < y < y_{m+1}$,
    gives them $\lambda R$ and $(1 - \lambda) R$, $\lambda = (y_{m+1} - y) / (y_{m+1} - y_m)$; one beyond all gives R
    to the nearest. The paper has the first case for $1 < m < M$; it holds for m = 1, too. Rows of equal labels share
    equally. Other weights may be as good, as soon as more than two labels lie around y.

    Args:
        labels: of the neighbors ``[N]``, N >= 1.
        target: y, ``[b]``.
        mass: R, > 0 and at most 1.

    Returns:
        ``[b, N]``, rows sum to ``mass``.

    >>> best_weights(torch.tensor([0.0, 1.0, 3.0]), torch.tensor([-1.0, 0.25, 2.0]))
    tensor([[1.0000, 0.0000, 0.0000],
            [0.7500, 0.2500, 0.0000],
            [0.0000, 0.5000, 0.5000]])
    """
    check_between("mass", mass, 0, 1, closed=True)
    check_labels(labels, len(labels))
    if labels.ndim != 1 or target.ndim != 1 or not len(labels):
        raise ValueError(
            f"labels: expected [N] with N >= 1, and a target [b], got {tuple(labels.shape)} and {tuple(target.shape)}"
        )
    y = target[:, None]
    low = torch.where(labels <= y, labels, -torch.inf).amax(dim=1, keepdim=True)
    high = torch.where(labels >= y, labels, torch.inf).amin(dim=1, keepdim=True)
    low, high = torch.where(low.isinf(), high, low), torch.where(high.isinf(), low, high)
    share = torch.where(high > low, (high - y) / torch.where(high > low, high - low, 1.0), 1.0)
    weights = torch.zeros_like(labels.expand(len(y), -1))
    for nearest, part in ((low, share), (high, 1 - share)):
        equal = (labels == nearest).to(weights.dtype)
        weights = weights + part * equal / equal.sum(dim=1, keepdim=True)
    return mass * weights
