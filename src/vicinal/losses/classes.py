"""Losses against learned vectors of classes, as columns or as rows."""

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from vicinal.core import check_between, check_integer, check_number
from vicinal.losses.angles import falling_cosine, multiplied_cosine
from vicinal.losses.contract import PML, pair_loss
from vicinal.losses.logsums import softplus
from vicinal.losses.pairs import Pairs
from vicinal.losses.parts import Part, row_terms, some
from vicinal.losses.softmax import scaled_at, softmax_terms

_COLUMNS = ("row-separable", "proxies")


def where_related(pairs: Pairs, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Scores that are changed where a column is related, in part by a soft relation.

    Few columns of a row are related, so they are looked up; a compiled graph, whose shapes are fixed, goes through all.
    """
    scores, relation = pairs.scores, pairs.relation
    if torch.compiler.is_compiling():
        return scores + relation * (change(scores) - scores)
    if pairs.masks and scores.shape[1] and bool((relation.sum(-1) == 1).all()):  # one each: found without a search
        falling = torch.arange(scores.shape[1], 0, -1, dtype=scores.dtype, device=scores.device)
        column = scores.shape[1] - (relation * falling).amax(-1, keepdim=True).long()
        own = scores.gather(1, column)
        return scores.scatter_add(1, column, change(own) - own)
    place = relation.nonzero(as_tuple=True)
    own = scores[place]
    return scores.index_put(place, relation[place] * (change(own) - own), accumulate=True)


@pair_loss("normalized_softmax", *_COLUMNS, "soft-relation", family="proxies", paper="arXiv:1704.06369", verified=PML)
def normalized_softmax(pairs: Pairs, *, temperature: float = 0.05) -> Part:
    r"""Softmax against proxies of length 1.

    Cross-entropy of $\mathrm{softmax}(s_{i\cdot}/\tau)$ of cosines with the proxies.

    Args:
        pairs: scores, relation and weight.
        temperature: divides the scores, > 0.

    >>> normalized_softmax(torch.zeros(1, 3), torch.tensor([[1.0, 0.0, 0.0]]))
    tensor(1.0986)
    """
    check_between("temperature", temperature, 0, math.inf)
    return softmax_terms(pairs.scores, pairs, 1 / temperature)


@pair_loss("cosface", *_COLUMNS, "soft-relation", family="proxies", paper="arXiv:1801.09414", verified=PML)
def cosface(pairs: Pairs, *, margin: float = 0.35, scale: float = 64.0) -> Part:
    r"""Softmax against proxies, with a margin taken off the cosine of the related one.

    Cross-entropy of $\gamma(s_{ic} - m\, r_{ic})$: the related proxy must win by a margin of cosine.

    Args:
        pairs: scores, relation and weight.
        margin: >= 0, in units of score.
        scale: > 0.

    >>> cosface(torch.tensor([[0.35, 0.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.6931)
    """
    check_between("margin", margin, 0, math.inf, closed=True)
    check_between("scale", scale, 0, math.inf)
    if pairs.column is None:
        return softmax_terms(torch.add(pairs.scores, pairs.relation, alpha=-margin), pairs, scale)
    return softmax_terms(pairs.scores, pairs, scale, lambda own: own - margin)


@pair_loss(
    "arcface", *_COLUMNS, "soft-relation", "cosine-scores", family="proxies", paper="arXiv:1801.07698", verified=PML
)
def arcface(pairs: Pairs, *, margin: float = 28.6, scale: float = 64.0) -> Part:
    r"""Softmax against proxies, with a margin added to the angle of the related one.

    Cross-entropy of $\gamma\cos(\theta_{ic} + m)$ for the related proxy and $\gamma\cos\theta_{ic}$ for the others.

    Beyond $\pi - m$, where the cosine would rise again, it is $\gamma(\cos\theta - m \sin m)$.

    Args:
        pairs: scores, relation and weight.
        margin: degrees, 0 to 180.
        scale: > 0.

    >>> arcface(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]]), margin=90)
    tensor(0.6931)
    """
    check_between("margin", margin, 0, 180, closed=True)
    check_between("scale", scale, 0, math.inf)
    change = functools.partial(falling_cosine, margin=math.radians(margin))
    if pairs.column is None:
        return softmax_terms(where_related(pairs, change), pairs, scale)
    return softmax_terms(pairs.scores, pairs, scale, change)


def _multiplied(pairs: Pairs, margin: int, scale: float, lengths: Tensor | None) -> Part:
    check_integer("margin", margin)
    check_between("scale", scale, 0, math.inf)
    change = functools.partial(multiplied_cosine, times=margin)
    if pairs.column is None:
        logits = scale * where_related(pairs, change)
    else:
        logits = scaled_at(pairs.scores, pairs.column, scale, change)
    if lengths is None:
        return softmax_terms(logits, pairs)
    if lengths.shape not in (pairs.scores.shape, (len(pairs.scores), 1)):
        raise ValueError(f"lengths: expected {tuple(pairs.scores.shape)}, got {tuple(lengths.shape)}")
    return softmax_terms(logits * lengths.to(logits.dtype), pairs)


@pair_loss(
    "sphereface",
    *_COLUMNS,
    "soft-relation",
    "cosine-scores",
    "embedding-lengths",
    family="proxies",
    paper="arXiv:1704.08063",
    verified=PML,
)
def sphereface(pairs: Pairs, *, margin: int = 4, scale: float = 1.0, lengths: Tensor | None = None) -> Part:
    r"""Softmax against proxies, with the angle of the related one multiplied.

    Cross-entropy of $\|x_i\| \psi(\theta_{ic})$ for the related proxy, $\|x_i\|\cos\theta_{ic}$ for the others.

    $\psi(\theta) = (-1)^k \cos(m\theta) - 2k$ falls all the way. Proxies have length 1.

    Args:
        pairs: scores, relation and weight.
        margin: whole number m >= 1 that multiplies the angle.
        scale: > 0.
        lengths: ``[b, 1]``, of the embeddings; None: 1. :class:`ProxyLoss` gives them.

    >>> sphereface(torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.6931)
    """
    return _multiplied(pairs, margin, scale, lengths)


@pair_loss(
    "large_margin_softmax",
    *_COLUMNS,
    "soft-relation",
    "cosine-scores",
    "embedding-lengths",
    "proxy-lengths",
    family="proxies",
    paper="arXiv:1612.02295",
    verified=PML,
)
def large_margin_softmax(pairs: Pairs, *, margin: int = 4, scale: float = 1.0, lengths: Tensor | None = None) -> Part:
    r"""Softmax against proxies of any length, with the angle of the related one multiplied.

    As :func:`sphereface`, with proxies of any length: logits $\|x_i\| \|w_c\| \psi(\theta_{ic})$.

    Args:
        pairs: scores, relation and weight.
        margin: whole number m >= 1 that multiplies the angle.
        scale: > 0.
        lengths: ``[b, C]``, lengths of the embeddings times those of the proxies; None: 1.

    >>> large_margin_softmax(torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.6931)
    """
    return _multiplied(pairs, margin, scale, lengths)


@pair_loss("proxy_nca", *_COLUMNS, "soft-relation", family="proxies", paper="arXiv:1703.07464", verified=PML)
def proxy_nca(pairs: Pairs, *, temperature: float = 1.0) -> Part:
    r"""The softmax mass that a row gives to the proxies of its class.

    $-\log$ of the softmax mass of the related proxies: :func:`nca` against proxies.

    Args:
        pairs: scores, relation and weight.
        temperature: divides the scores, > 0. Made for negative squared distances of directions.

    >>> proxy_nca(torch.zeros(1, 4), torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    tensor(1.3863)
    """
    check_between("temperature", temperature, 0, math.inf)
    logits = pairs.scores / temperature
    related = some(pairs.positive)
    mass, every = pairs.log_sum_exp(logits, pairs.positive), pairs.log_sum_exp_all(logits)
    return row_terms(torch.where(related, every, 0.0) - torch.where(related, mass, 0.0), related)


@pair_loss(
    "proxy_anchor",
    "row-separable",
    "soft-relation",
    "proxy-rows",
    family="proxies",
    paper="arXiv:2003.13911",
    verified=PML,
)
def proxy_anchor(pairs: Pairs, *, margin: float = 0.1, alpha: float = 32.0) -> tuple[Part, Part]:
    r"""Each proxy near the related rows of the batch and far from the others, the hardest first.

    $\log(1+\sum_p e^{-\alpha(s_{cp}-m)})$ and $\log(1+\sum_n e^{\alpha(s_{cn}+m)})$ for each proxy c as a row.

    The first has a mean over the proxies with related columns in the batch, the second over all proxies.

    Args:
        pairs: scores, relation and weight.
        margin: in units of score, on both sides of 0.
        alpha: > 0.

    >>> proxy_anchor(torch.tensor([[0.1, -0.1]]), torch.tensor([[1.0, 0.0]]))
    tensor(1.3863)
    """
    check_number("margin", margin)
    check_between("alpha", alpha, 0, math.inf)
    related = softplus(pairs.log_sum_exp(-alpha * (pairs.scores - margin), pairs.positive))
    unrelated = softplus(pairs.log_sum_exp(alpha * (pairs.scores + margin), pairs.negative))
    return (
        row_terms(related, some(pairs.positive)),
        row_terms(unrelated, some(pairs.weight)),
    )
