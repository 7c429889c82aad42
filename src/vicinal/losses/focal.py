"""InfoNCE that looks more at the pairs it gets wrong (KaLM)."""

import math

import torch

from vicinal.core import check_between
from vicinal.losses.contract import NUMPY, pair_loss
from vicinal.losses.logsums import softplus
from vicinal.losses.pairs import Pairs
from vicinal.losses.parts import Part


@pair_loss(
    "focal_nt_xent",
    "row-separable",
    "soft-relation",
    "score-shift-invariant",
    "stopped-gradient",
    paper="arXiv:2506.20923",
    verified=NUMPY,
)
def focal_nt_xent(pairs: Pairs, *, temperature: float = 0.1, focus: float = 0.5, detach: bool = True) -> Part:
    r"""InfoNCE with more weight on the pairs that are still wrong.

    $(1 - p_{ij})^\gamma (-\log p_{ij})$ with the softmax mass $p_{ij}$ of a related column against the unrelated ones.

    With ``focus=0`` this is :func:`nt_xent`. The weight passes no gradient unless ``detach=False``. Formula from the
    paper's text; its program was not at hand.

    Args:
        pairs: scores, relation and weight.
        temperature: divides the scores, > 0.
        focus: $\gamma \ge 0$.
        detach: treat the weight as a constant.

    >>> focal_nt_xent(torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, 0.0]]), focus=1)
    tensor(0.3466)
    """
    check_between("temperature", temperature, 0, math.inf)
    check_between("focus", focus, 0, math.inf, closed=True)
    logits = pairs.scores / temperature
    against = pairs.log_sum_exp(logits, pairs.negative)[:, None]
    some = against > -torch.inf
    ahead = logits - torch.where(some, against, 0.0)
    weight = (-focus * softplus(ahead)).exp()  # 1 - p = sigmoid(-ahead)
    terms = (weight.detach() if detach else weight) * softplus(-ahead)
    return pairs.terms(torch.where(some, terms, 0.0), pairs.positive)
