"""Predictive multiplicity: how far models of about the same error disagree on single rows."""

from dataclasses import dataclass

import torch
from torch import Tensor

from vicinal.core.checks import check_between, check_tensor

_STEPS, _GAP = 1000, 1e-12


@dataclass(frozen=True)
class Multiplicity:
    """What :func:`predictive_multiplicity` gives.

    Attributes:
        ambiguity: the share of rows on which at least one model disagrees with the base.
        discrepancy: the largest share of rows on which a single model disagrees; at most the ambiguity.
        viable_range: ``[n]``, highest minus lowest probability of the label.
        score_variance: ``[n]``, variance of the label's probability over models.
        capacity: ``[n]``, in bits, how much a row's prediction reveals about which model made it: 0 if all agree, log2
            C if each class has a model that is sure of it. 2 to this power reads as an effective number of classes.
    """

    ambiguity: float
    discrepancy: float
    viable_range: Tensor
    score_variance: Tensor
    capacity: Tensor


@torch.no_grad()
def predictive_multiplicity(scores: Tensor, labels: Tensor, base: Tensor | None = None) -> Multiplicity:
    """How far models disagree that one could as well have chosen: members, dropout draws, or seeds of about one error.

    Hsu et al., *Dropout-Based Rashomon Set Exploration*, ICLR 2024; the capacity by the Blahut-Arimoto algorithm.

    Args:
        scores: probabilities ``[M, n, C]`` of M models, rows summing to 1.
        labels: classes ``[n]``.
        base: decisions of the model in use ``[n]``; None: those of the models' mean.

    Raises:
        ValueError: for other shapes, or rows that do not sum to 1.

    >>> two = torch.tensor([[[0.9, 0.1]], [[0.4, 0.6]]])
    >>> predictive_multiplicity(two, torch.tensor([0])).ambiguity
    1.0
    """
    if check_tensor("scores", scores).ndim != 3 or not scores.numel() or not scores.is_floating_point():
        raise ValueError(f"scores: expected probabilities [M, n, C], got {scores.dtype} {tuple(scores.shape)}")
    wide = scores.double()
    if bool((wide < 0).any()) or bool(((wide.sum(-1) - 1).abs() > 1e-4).any()):
        raise ValueError("scores: expected rows of probabilities that sum to 1, got others")
    if base is None:
        base = wide.mean(0).argmax(-1)
    for name, classes in (("labels", labels), ("base", base)):
        if classes.shape != wide.shape[1:2] or classes.is_floating_point():
            raise ValueError(f"{name}: expected classes [{wide.shape[1]}], got {classes.dtype} {tuple(classes.shape)}")
    other = wide.argmax(-1) != base  # [M, n]
    of_label = wide.gather(-1, labels[None, :, None].expand(len(wide), -1, 1))[..., 0]
    return Multiplicity(
        float(other.any(0).double().mean()),
        float(other.double().mean(1).max()),
        of_label.amax(0) - of_label.amin(0),
        of_label.var(0, correction=0),
        channel_capacity(wide.transpose(0, 1)),
    )


@torch.no_grad()
def channel_capacity(channels: Tensor, *, tolerance: float = 0.0) -> Tensor:
    r"""The most bits that one output tells of its input, $\max_p \sum_m p_m KL(W_m \| \sum_k p_k W_k)$.

    Args:
        channels: W, ``[..., M, C]``, rows summing to 1.
        tolerance: stop when the mean squared change of p is at most this. 1e-12 gives the values of the paper's code,
            which are up to about 1e-5 too low; 0 goes on until the capacity is within 1e-12.

    Returns:
        ``[...]``, from 0 to log2 of the smaller of M and C; by the Blahut-Arimoto algorithm, to 1e-12 or for 1000
        iterations.

    >>> channel_capacity(torch.eye(4))
    tensor(2., dtype=torch.float64)
    """
    rows = channels.double()
    p = rows.new_full(rows.shape[:-1], 1 / rows.shape[-2])
    entropy = torch.special.xlogy(rows, rows).sum(-1)
    check_between("tolerance", tolerance, 0, 1, closed=True)
    lowest = rows.new_zeros(rows.shape[:-2])
    for _ in range(_STEPS):
        mixed = (p[..., None] * rows).sum(-2)
        divergence = entropy - torch.special.xlogy(rows, mixed[..., None, :]).sum(-1)  # [..., M], in nats
        lowest = (p * divergence.exp()).sum(-1).log()
        after = p * divergence.exp()
        after = after / after.sum(-1, keepdim=True)
        done = (divergence.amax(-1) - lowest < _GAP) | ((after - p).square().mean(-1) <= tolerance)
        if bool(done.all()):
            break
        p = torch.where(done[..., None], p, after)
    return lowest.clamp(min=0) / torch.log(rows.new_tensor(2.0))
