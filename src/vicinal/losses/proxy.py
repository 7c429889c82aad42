"""Softmax against learned vectors of classes, with margins; and proxies as rows."""

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from vicinal.blockwise.logsums import log_sum_exp, softplus
from vicinal.core.checks import check_between, check_integer
from vicinal.losses.contract import PML, ROWS, Pairs, RowTerms, cross_entropy, pair_loss, row_products, row_terms, some
from vicinal.losses.ranges import Degrees, NonNegative, Number, Positive
from vicinal.miners import within_fences
from vicinal.miners.iqr_filter import check_reach


def shifted_cosine(cosine: Tensor, shift: float) -> Tensor:
    r"""$\cos(\theta + a) = \cos\theta \cos a - \sin\theta \sin a$ for $\theta = \arccos$ of ``cosine``.

    Cosines are clamped to [-1, 1]; where they are -1 or 1 the sine is taken as 0 with slope 0.

    >>> shifted_cosine(torch.tensor([0.5, 0.0]), math.pi / 2)
    tensor([-0.8660, -1.0000])
    """
    cosine = cosine.clamp(-1, 1)
    square = (1 - cosine) * (1 + cosine)
    inside = square > 0
    sine = torch.where(inside, torch.where(inside, square, 1.0).sqrt(), 0.0)
    return cosine * math.cos(shift) - sine * math.sin(shift)


def falling_cosine(cosine: Tensor, margin: float) -> Tensor:
    r"""$\cos(\theta + m)$, and $\cos\theta - m \sin m$ beyond $\theta = \pi - m$, where it would rise again.

    >>> falling_cosine(torch.tensor([0.0, -1.0]), math.pi / 2)
    tensor([-1.0000, -2.5708])
    """
    beyond = cosine < -math.cos(margin)
    return torch.where(beyond, cosine.clamp(-1, 1) - margin * math.sin(margin), shifted_cosine(cosine, margin))


def multiplied_cosine(cosine: Tensor, times: int) -> Tensor:
    r"""$(-1)^k \cos(m\theta) - 2k$ for $\theta \in [k\pi/m, (k+1)\pi/m]$: falls from 1 to 1 - 2m as the angle grows.

    >>> multiplied_cosine(torch.tensor([1.0, 0.0, -1.0]), 4)
    tensor([ 1., -3., -7.])
    """
    cosine = cosine.clamp(-1, 1)
    last, now = torch.ones_like(cosine), cosine
    for _ in range(times - 1):  # cos((n+1)t) = 2 cos t cos nt - cos((n-1)t)
        last, now = now, 2 * cosine * now - last
    with torch.no_grad():
        turns = (torch.acos(cosine) * times / math.pi).floor().clamp(max=times - 1)
        sign = 1 - 2 * (turns % 2)
    return sign * now - 2 * turns


_COLUMNS = ("row-separable", "proxies")
_SOFT = (*_COLUMNS, "soft-relation")
_COSINES = (*_SOFT, "cosine-scores")
_proxy_loss = functools.partial(pair_loss, family="proxies")
_group_loss = functools.partial(pair_loss, family="several proxies", verified=PML)


def where_related(pairs: Pairs, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Scores that are changed where a column is related, in part by a soft relation, ``[b, N]``."""
    scores, relation = pairs.scores, pairs.relation
    if torch.compiler.is_compiling():
        return scores + relation * (change(scores) - scores)
    place = relation.nonzero(as_tuple=True)  # few
    related = scores[place]
    return scores.index_put(place, relation[place] * (change(related) - related), accumulate=True)


@_proxy_loss("normalized_softmax", *_SOFT, paper="arXiv:1704.06369", verified=PML)
def normalized_softmax(pairs: Pairs, *, temperature: Positive = 0.05) -> RowTerms:
    r"""Softmax against proxies of length 1.

    Cross-entropy of $\mathrm{softmax}(s_{i\cdot}/\tau)$ of cosines with the proxies.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        temperature: divides the scores, > 0.

    >>> normalized_softmax(torch.zeros(1, 3), torch.tensor([[1.0, 0.0, 0.0]]))
    tensor(1.0986)
    """
    return cross_entropy(pairs.scores / temperature, pairs)


@_proxy_loss("cosface", *_SOFT, paper="arXiv:1801.09414", verified=PML)
def cosface(pairs: Pairs, *, margin: NonNegative = 0.35, scale: Positive = 64.0) -> RowTerms:
    r"""Softmax against proxies, with a margin taken off the cosine of the related one.

    Cross-entropy of $\gamma(s_{ic} - m\, r_{ic})$: the related proxy must win by a margin of cosine.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        margin: >= 0, in units of score.
        scale: > 0.

    >>> cosface(torch.tensor([[0.35, 0.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.6931)
    """
    return cross_entropy(scale * where_related(pairs, lambda score: score - margin), pairs)


@_proxy_loss("arcface", *_COSINES, paper="arXiv:1801.07698", verified=PML)
def arcface(pairs: Pairs, *, margin: Degrees = 28.6, scale: Positive = 64.0) -> RowTerms:
    r"""Softmax against proxies, with a margin added to the angle of the related one.

    Cross-entropy of $\gamma\cos(\theta_{ic} + m)$ for the related proxy and $\gamma\cos\theta_{ic}$ for the others.

    Beyond $\pi - m$, where the cosine would rise again, it is $\gamma(\cos\theta - m \sin m)$.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        margin: degrees, 0 to 180.
        scale: > 0.

    >>> arcface(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]]), margin=90)
    tensor(0.6931)
    """
    angle = math.radians(margin)
    return cross_entropy(scale * where_related(pairs, lambda score: falling_cosine(score, angle)), pairs)


def _multiplied(pairs: Pairs, margin: int, scale: float, lengths: Tensor | None) -> RowTerms:
    check_integer("margin", margin)
    check_between("scale", scale, 0, math.inf)
    logits = scale * where_related(pairs, lambda score: multiplied_cosine(score, margin))
    if lengths is None:
        return cross_entropy(logits, pairs)
    if lengths.shape not in (pairs.scores.shape, (len(pairs.scores), 1)):
        raise ValueError(f"lengths: expected {tuple(pairs.scores.shape)}, got {tuple(lengths.shape)}")
    return cross_entropy(logits * lengths.to(logits.dtype), pairs)


@_proxy_loss("sphereface", *_COSINES, "embedding-lengths", paper="arXiv:1704.08063", verified=PML)
def sphereface(pairs: Pairs, *, margin: int = 4, scale: float = 1.0, lengths: Tensor | None = None) -> RowTerms:
    r"""Softmax against proxies, with the angle of the related one multiplied.

    Cross-entropy of $\|x_i\| \psi(\theta_{ic})$ for the related proxy, $\|x_i\|\cos\theta_{ic}$ for the others.

    $\psi(\theta) = (-1)^k \cos(m\theta) - 2k$ falls all the way. Proxies have length 1.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        margin: whole number m >= 1 that multiplies the angle.
        scale: > 0.
        lengths: ``[b, 1]``, of the embeddings; None: 1. :class:`ProxyLoss` gives them.

    >>> sphereface(torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.6931)
    """
    return _multiplied(pairs, margin, scale, lengths)


@_proxy_loss(
    "large_margin_softmax", *_COSINES, "embedding-lengths", "proxy-lengths", paper="arXiv:1612.02295", verified=PML
)
def large_margin_softmax(
    pairs: Pairs, *, margin: int = 4, scale: float = 1.0, lengths: Tensor | None = None
) -> RowTerms:
    r"""Softmax against proxies of any length, with the angle of the related one multiplied.

    As :func:`sphereface`, with proxies of any length: logits $\|x_i\| \|w_c\| \psi(\theta_{ic})$.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        margin: whole number m >= 1 that multiplies the angle.
        scale: > 0.
        lengths: ``[b, C]``, lengths of the embeddings times those of the proxies; None: 1.

    >>> large_margin_softmax(torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.6931)
    """
    return _multiplied(pairs, margin, scale, lengths)


@_proxy_loss("proxy_nca", *_SOFT, paper="arXiv:1703.07464", verified=PML)
def proxy_nca(pairs: Pairs, *, temperature: Positive = 1.0) -> RowTerms:
    r"""The softmax mass that a row gives to the proxies of its class.

    $-\log$ of the softmax mass of the related proxies: :func:`nca` against proxies.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        temperature: divides the scores, > 0. Made for negative squared distances of directions.

    >>> proxy_nca(torch.zeros(1, 4), torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    tensor(1.3863)
    """
    logits = pairs.scores / temperature
    related = some(pairs.positive)
    mass, every = pairs.log_sum_exp(logits, pairs.positive), pairs.log_sum_exp_all(logits)
    return row_terms(torch.where(related, every, 0.0) - torch.where(related, mass, 0.0), related)


@_proxy_loss("proxy_anchor", *ROWS, "proxy-rows", paper="arXiv:2003.13911", verified=PML)
def proxy_anchor(pairs: Pairs, *, margin: Number = 0.1, alpha: Positive = 32.0) -> tuple[RowTerms, RowTerms]:
    r"""Each proxy near the related rows of the batch and far from the others, the hardest first.

    $\log(1+\sum_p e^{-\alpha(s_{cp}-m)})$ and $\log(1+\sum_n e^{\alpha(s_{cn}+m)})$ for each proxy c as a row.

    The first is averaged over the proxies with related columns in the batch, the second over all proxies.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        margin: in units of score, on both sides of 0.
        alpha: > 0.

    >>> proxy_anchor(torch.tensor([[0.1, -0.1]]), torch.tensor([[1.0, 0.0]]))
    tensor(1.3863)
    """
    related = softplus(pairs.log_sum_exp(-alpha * (pairs.scores - margin), pairs.positive))
    unrelated = softplus(pairs.log_sum_exp(alpha * (pairs.scores + margin), pairs.negative))
    return (
        row_terms(related, some(pairs.positive)),
        row_terms(unrelated, some(pairs.weight)),
    )


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
    counted = weight > 0
    some = counted.any(-1)
    seen = torch.where(counted | ~some[..., None], scores, -torch.inf)
    pooled = seen.amax(-1) if temperature is None else ((seen / temperature).softmax(-1) * scores).sum(-1)
    weight, relation = weight.amax(-1), relation.amax(-1)
    pooled = torch.where(some, pooled, 0.0)
    return Pairs(pooled, relation, weight, clean=True, masks=pairs.masks)


@_group_loss("subcenter_arcface", *_COLUMNS, "cosine-scores", "proxy-groups", paper="Deng et al., ECCV 2020")
def subcenter_arcface(pairs: Pairs, *, margin: Degrees = 28.6, scale: Positive = 64.0, per_class: int = 1) -> RowTerms:
    r"""Softmax against the nearest of several proxies a class, with a margin added to its angle.

    As :func:`arcface`, with $\cos\theta_{ic} = \max_k s_{ick}$ over the proxies k of a class.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        margin: degrees, 0 to 180.
        scale: > 0.
        per_class: proxies of a class, in columns side by side. :class:`ProxyLoss` gives it.

    >>> scores, relation = torch.tensor([[1.0, -1.0, 0.0, -1.0]]), torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    >>> subcenter_arcface(scores, relation, margin=90, per_class=2)
    tensor(0.6931)
    """
    classes = _classes(pairs, per_class, None)
    angle = math.radians(margin)
    return cross_entropy(scale * where_related(classes, lambda score: falling_cosine(score, angle)), classes)


@_group_loss("soft_triple", *_COLUMNS, "proxy-groups", paper="arXiv:1909.05235")
def soft_triple(
    pairs: Pairs,
    *,
    margin: NonNegative = 0.01,
    scale: Positive = 20.0,
    temperature: Positive = 0.1,
    per_class: int = 1,
) -> RowTerms:
    r"""Softmax against classes of several proxies, weighted by their likeness, with a margin.

    As :func:`cosface` with the mean score of several proxies a class, weighted by $\mathrm{softmax}(s/\tau)$.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        margin: >= 0, in units of score.
        scale: > 0.
        temperature: of the weights, > 0.
        per_class: proxies of a class, in columns side by side. :class:`ProxyLoss` gives it.

    >>> soft_triple(torch.tensor([[0.5, 0.5, 0.5, 0.5]]), torch.tensor([[1.0, 1, 0, 0]]), margin=0, per_class=2)
    tensor(0.6931)
    """
    classes = _classes(pairs, per_class, temperature)
    return cross_entropy(scale * (classes.scores - margin * classes.relation), classes)


SCALE, REACH = 64.0, 1.5


@_proxy_loss(
    "unpg",
    *ROWS,
    "proxies",
    "batch-scores",
    paper="arXiv:2203.11593",
    verified="values of the paper's code, value and gradient in float64",
)
def unpg(
    pairs: Pairs,
    *,
    margin: NonNegative = 0.35,
    scale: Positive = SCALE,
    angle: Degrees = 0.0,
    reach: float = REACH,
    negatives: Tensor | None = None,
) -> RowTerms:
    r"""Softmax against proxies with a margin, and the unrelated pairs of the batch in every row's denominator.

    Cross-entropy of $\gamma [g(s_{iy}), s_{ic}, S]$, where S are the scores of the unrelated pairs of the batch that
    lie within the fences $q_1 - r(q_3 - q_1)$ to $q_3 + r(q_3 - q_1)$, and $g(s) = \cos(\arccos s + \theta) - m$.

    So negatives of classes and of pairs share one denominator. Pairs beyond the fences are too easy to count, or
    probably mislabelled; see the miner :func:`vicinal.miners.iqr_filter`. All rows share one sum over the pairs, so no
    matrix gets wider. Without pairs it is :func:`cosface`, :func:`arcface` or, without a margin,
    :func:`normalized_softmax`.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        margin: m >= 0, in units of score, taken off the related cosine.
        scale: $\gamma > 0$.
        angle: $\theta$, degrees from 0 to 180, added to the related angle.
        reach: r >= 0; 0 keeps the middle half of the pairs, inf all.
        negatives: scores of pairs, of any shape, each pair once; -inf leaves one out. :class:`ProxyLoss` gives those
            of the batch.

    >>> unpg(torch.zeros(1, 3), torch.tensor([[1.0, 0.0, 0.0]]), margin=0, negatives=torch.zeros(5))
    tensor(2.0794)
    """
    length = check_reach(reach)

    def lowered(related: Tensor) -> Tensor:
        return (falling_cosine(related, math.radians(angle)) if angle else related) - margin

    logits = scale * where_related(pairs, lowered)
    terms = cross_entropy(logits, pairs)
    if negatives is None:
        return terms
    against = log_sum_within(negatives.to(logits.dtype), length, scale)
    return row_terms(torch.logaddexp(terms.total, against - _related_logit(logits, pairs)), terms.number > 0)


def _related_logit(logits: Tensor, pairs: Pairs) -> Tensor:
    """The mean logit of the related columns, ``[b]``; 0 of none."""
    mass = pairs.positive.sum(-1)
    return row_products(logits, pairs.positive) / torch.where(mass > 0, mass, 1.0)


def log_sum_within(values: Tensor, reach: float, scale: float) -> Tensor:
    """Log of the sum of e^(scale * value) over the values within the fences; -inf if there is none."""
    values = values if values.ndim == 2 else values.reshape(1, -1)
    among = values.detach() > -torch.inf
    inside = within_fences(values.detach(), among, reach).reshape(1, -1)
    flat = torch.where(inside, values.reshape(1, -1), 0.0)
    return log_sum_exp(scale * flat, inside.to(flat.dtype))[0]
