"""Losses against several learned vectors of each class."""

import functools
import math

import torch
from torch import Tensor

from vicinal.core import check_between, check_integer
from vicinal.losses.angles import falling_cosine
from vicinal.losses.classes import where_related
from vicinal.losses.contract import PML, pair_loss
from vicinal.losses.pairs import Pairs, cross_entropy
from vicinal.losses.parts import Part


def _pooled(scores: Tensor, per_class: int, temperature: float | None) -> Tensor:
    """The largest or the mean score of each class, ``[b, C]``; reductions over the few columns of a class are slow."""
    each = [scores[:, nth::per_class] for nth in range(per_class)]
    if temperature is None:  # the gradient of a maximum takes several times as long as that of a hinge
        return functools.reduce(lambda one, other: other + (one - other).relu(), each)
    with torch.no_grad():
        top = functools.reduce(torch.maximum, each)
    mass = [((one - top) / temperature).exp() for one in each]
    return sum(m * one for m, one in zip(mass, each, strict=True)) / sum(mass)  # type: ignore[return-value]


def _classes(pairs: Pairs, per_class: int, temperature: float | None) -> Pairs:
    """One column a class: the largest score of its columns, or their mean by softmax of the scores."""
    check_integer("per_class", per_class)
    b, columns = pairs.scores.shape
    if columns % per_class:
        raise ValueError(f"per_class: expected a divisor of the {columns} columns, got {per_class}")
    if pairs.full:
        relation = functools.reduce(torch.maximum, [pairs.relation[:, nth::per_class] for nth in range(per_class)])
        return Pairs(_pooled(pairs.scores, per_class, temperature), relation, None, masks=pairs.masks)
    scores, weight, relation = (
        matrix.reshape(b, -1, per_class) for matrix in (pairs.scores, pairs.weight, pairs.relation)
    )
    kept = weight > 0
    some = kept.any(-1)
    seen = torch.where(kept | ~some[..., None], scores, -torch.inf)
    pooled = seen.amax(-1) if temperature is None else ((seen / temperature).softmax(-1) * scores).sum(-1)
    weight, relation = weight.amax(-1), relation.amax(-1)
    pooled = torch.where(some, pooled, 0.0)
    return Pairs(pooled, relation, weight, clean=True, masks=pairs.masks)


@pair_loss(
    "subcenter_arcface",
    "row-separable",
    "proxies",
    "cosine-scores",
    "proxy-groups",
    family="several proxies",
    paper="Deng et al., ECCV 2020",
    verified=PML,
)
def subcenter_arcface(pairs: Pairs, *, margin: float = 28.6, scale: float = 64.0, per_class: int = 1) -> Part:
    r"""Softmax against the nearest of several proxies a class, with a margin added to its angle.

    As :func:`arcface`, with $\cos\theta_{ic} = \max_k s_{ick}$ over the proxies k of a class.

    Args:
        pairs: scores, relation and weight.
        margin: degrees, 0 to 180.
        scale: > 0.
        per_class: proxies of a class, in columns side by side. :class:`ProxyLoss` gives it.

    >>> scores, relation = torch.tensor([[1.0, -1.0, 0.0, -1.0]]), torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    >>> subcenter_arcface(scores, relation, margin=90, per_class=2)
    tensor(0.6931)
    """
    check_between("margin", margin, 0, 180, closed=True)
    check_between("scale", scale, 0, math.inf)
    classes = _classes(pairs, per_class, None)
    angle = math.radians(margin)
    return cross_entropy(scale * where_related(classes, lambda own: falling_cosine(own, angle)), classes)


@pair_loss(
    "soft_triple",
    "row-separable",
    "proxies",
    "proxy-groups",
    family="several proxies",
    paper="arXiv:1909.05235",
    verified=PML,
)
def soft_triple(
    pairs: Pairs,
    *,
    margin: float = 0.01,
    scale: float = 20.0,
    temperature: float = 0.1,
    per_class: int = 1,
) -> Part:
    r"""Softmax against classes of several proxies, weighted by their likeness, with a margin.

    As :func:`cosface` with the mean score of several proxies a class, weighted by $\mathrm{softmax}(s/\tau)$.

    Args:
        pairs: scores, relation and weight.
        margin: >= 0, in units of score.
        scale: > 0.
        temperature: of the weights, > 0.
        per_class: proxies of a class, in columns side by side. :class:`ProxyLoss` gives it.

    >>> soft_triple(torch.tensor([[0.5, 0.5, 0.5, 0.5]]), torch.tensor([[1.0, 1, 0, 0]]), margin=0, per_class=2)
    tensor(0.6931)
    """
    check_between("margin", margin, 0, math.inf, closed=True)
    check_between("scale", scale, 0, math.inf)
    check_between("temperature", temperature, 0, math.inf)
    classes = _classes(pairs, per_class, temperature)
    return cross_entropy(scale * (classes.scores - margin * classes.relation), classes)
