"""Losses of a whole row at once: lifted structure, multi-similarity, circle, tuplet margin."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vicinal.blockwise.logsums import log_sum_exp, softplus
from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_number
from vicinal.losses.contract import NUMPY, PML, ROWS, Pairs, RowTerms, Spread, pair_loss, row_products, row_terms, some
from vicinal.losses.proxy import shifted_cosine
from vicinal.losses.ranges import Number, Positive, Share


def _of_columns(pairs: Pairs, **_: float) -> tuple[Tensor]:
    """Log-sum over the unrelated rows of each column, ``[1, N]``."""
    return (pairs.log_sum_exp(pairs.scores.T, pairs.negative.T)[None],)


def _joined(sums: Tensor) -> Tensor:
    """Log-sums of all blocks from those of each, ``[blocks, N]``."""
    some = sums > -torch.inf
    return log_sum_exp(torch.where(some, sums, 0.0).T, some.T.to(sums.dtype), masks=True) if len(sums) > 1 else sums[0]


@pair_loss(
    "lifted_structure",
    "soft-relation",
    "score-shift-invariant",
    family="structured rows",
    paper="arXiv:1511.06452",
    verified=PML,
    batch_stats=_of_columns,
)
def lifted_structure(pairs: Pairs, *, margin: Number = 1.0) -> RowTerms:
    r"""Each related pair above all unrelated ones of both its ends, softly.

    $\frac12[\log(\sum_{n} e^{s_{in}} + \sum_{n} e^{s_{jn}}) - s_{ij} + m]_+^2$ for each related pair (i, j).

    The sums run over the columns unrelated to i, and over the rows unrelated to column j.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        margin: gap that a related pair should have above all unrelated ones of both its ends.

    >>> same = torch.tensor([0, 0, 1])[:, None] == torch.tensor([0, 0, 1])
    >>> lifted_structure(torch.eye(3), same.float(), 1 - torch.eye(3))
    tensor(1.4334)
    """
    of_row = pairs.log_sum_exp(pairs.scores, pairs.negative)  # [b]
    of_column = _joined(pairs.stats[0])  # [N]

    def terms(score: Tensor, by_row: Spread, by_column: Spread) -> Tensor:
        one, other = by_row(of_row), by_column(of_column)
        some = (one > -torch.inf) | (other > -torch.inf)
        against = torch.logaddexp(  # of two -inf it would be -inf with a gradient that is not finite
            torch.where(some, one, 0.0), torch.where(some, other, 0.0)
        )
        return torch.where(some, torch.relu(against - score + margin).square() / 2, 0.0)

    return pairs.related_terms(terms)


@pair_loss("generalized_lifted_structure", *ROWS, family="structured rows", paper="arXiv:1703.07737", verified=PML)
def generalized_lifted_structure(pairs: Pairs, *, margin: Number = 1.0) -> RowTerms:
    r"""The least similar related column above the most similar unrelated one, both softly.

    $[\log \sum_p e^{-s_{ip}} + \log \sum_n e^{s_{in}} + m]_+$ for each row; a side without columns adds 0.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        margin: gap between the least related and the most similar unrelated column.

    >>> generalized_lifted_structure(torch.tensor([[0.5, 0.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.5000)
    """
    related = torch.where(some(pairs.positive), pairs.log_sum_exp(-pairs.scores, pairs.positive), 0.0)
    unrelated = torch.where(some(pairs.negative), pairs.log_sum_exp(pairs.scores, pairs.negative) + margin, 0.0)
    return row_terms((related + unrelated).relu(), some(pairs.weight))


@pair_loss("multi_similarity", *ROWS, family="structured rows", paper="arXiv:1904.06627", verified=PML)
def multi_similarity(pairs: Pairs, *, alpha: Positive = 2.0, beta: Positive = 50.0, base: Number = 0.5) -> RowTerms:
    r"""The least similar related and the most similar unrelated columns of a row, each softly.

    $\frac1\alpha\log(1+\sum_p e^{-\alpha(s_{ip}-\lambda)}) + \frac1\beta\log(1+\sum_n e^{\beta(s_{in}-\lambda)})$.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        alpha: > 0, how much the least similar related columns dominate.
        beta: > 0, how much the most similar unrelated columns dominate.
        base: the score $\lambda$ between related and unrelated.

    >>> multi_similarity(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.3604)
    """
    gap = pairs.scores - base
    related = softplus(pairs.log_sum_exp(-alpha * gap, pairs.positive)) / alpha
    unrelated = softplus(pairs.log_sum_exp(beta * gap, pairs.negative)) / beta
    return row_terms(related + unrelated, some(pairs.weight))


@pair_loss("circle", *ROWS, "stopped-gradient", family="structured rows", paper="arXiv:2002.10857", verified=PML)
def circle(pairs: Pairs, *, margin: Share = 0.4, scale: Positive = 80.0) -> RowTerms:
    r"""Related pairs up, unrelated pairs down, each the more strongly the further it has to go.

    $\log(1 + \sum_n e^{\gamma a_n (s_n - m)} \sum_p e^{-\gamma a_p (s_p - 1 + m)})$, weighted by the distance to go.

    $a_p = [1 + m - s_p]_+$ and $a_n = [s_n + m]_+$ pass no gradient. A row without related or without unrelated columns
    has loss 0.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        margin: between 0 and 1; related pairs should score above 1 - margin, unrelated ones below margin.
        scale: > 0.

    >>> circle(torch.tensor([[0.6, 0.4]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.6931)
    """
    s = pairs.scores
    above = pairs.log_sum_exp(scale * (s.detach() + margin).relu() * (s - margin), pairs.negative)
    below = pairs.log_sum_exp(-scale * (1 + margin - s.detach()).relu() * (s - 1 + margin), pairs.positive)
    both = some(pairs.negative) & some(pairs.positive)
    return row_terms(softplus(torch.where(both, above, 0.0) + torch.where(both, below, 0.0)), both)


@pair_loss(
    "tuplet_margin", *ROWS, "cosine-scores", family="structured rows", paper="Yu and Tao, ICCV 2019", verified=PML
)
def tuplet_margin(pairs: Pairs, *, margin: float = 5.73, scale: Positive = 64.0) -> RowTerms:
    r"""Each related column above all unrelated ones of its row, with a slack of angle.

    $\log(1 + \sum_n e^{\gamma(s_{in} - \cos(\theta_{ij} - \beta))})$ for each related pair at angle $\theta_{ij}$.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        margin: slack $\beta$ in degrees, 0 to 90.
        scale: > 0.

    >>> tuplet_margin(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]]), margin=0)
    tensor(1.6038e-28)
    """
    against = pairs.log_sum_exp(scale * pairs.scores, pairs.negative)
    slack = -math.radians(check_between("margin", margin, 0, 90, closed=True))
    return pairs.related_terms(
        lambda score, of_row, _: softplus(of_row(against) - scale * shifted_cosine(score, slack))
    )


Transform = Callable[[Tensor], Tensor]


def _same(values: Tensor) -> Tensor:
    return values


@dataclass(frozen=True)
class PairForm:
    r"""A member of the family $\tau(\sigma_+(\sum_p \rho_+(s_{ap})) + \sigma_-(\sum_n \rho_-(s_{an})))$.

    Attributes:
        related: $\rho_+$ of scores ``[b, N]``, or $\log \rho_+$ with ``logs``.
        unrelated: $\rho_-$, likewise.
        finish_related: $\sigma_+$ of the sums ``[b]``, or of their logarithms with ``logs``.
        finish_unrelated: $\sigma_-$, likewise.
        logs: the sums are of exponentials and are kept as logarithms.
        both: leave out a row without related or without unrelated columns; if False, the missing side adds nothing.
        finish: $\tau$ of the sum of a row, ``[b]``.
    """

    related: Transform
    unrelated: Transform
    finish_related: Transform = _same
    finish_unrelated: Transform = _same
    logs: bool = False
    both: bool = False
    finish: Transform = _same


def contrastive_form(pos_margin: float = 1.0, neg_margin: float = 0.0) -> PairForm:
    r"""$\rho_+ = [m_+ - s]_+$ and $\rho_- = [s - m_-]_+$, added up: contrastive.

    >>> metrix(torch.tensor([[0.5, 0.25]]), torch.tensor([[1.0, 0.0]]), form=contrastive_form())
    tensor(0.7500)
    """
    above, below = check_number("pos_margin", pos_margin), check_number("neg_margin", neg_margin)
    return PairForm(lambda scores: (above - scores).relu(), lambda scores: (scores - below).relu())


def multi_similarity_form(alpha: float = 2.0, beta: float = 50.0, base: float = 0.5) -> PairForm:
    r"""$\frac1\alpha \log(1 + \sum_p e^{-\alpha(s-m)}) + \frac1\beta \log(1 + \sum_n e^{\beta(s-m)})$.

    >>> same = metrix(torch.tensor([[0.5, 0.25]]), torch.tensor([[1.0, 0.0]]), form=multi_similarity_form())
    >>> bool(same == metrix(torch.tensor([[0.5, 0.25]]), torch.tensor([[1.0, 0.0]])))
    True
    """
    form = binomial_deviance_form(alpha, beta, base)
    return replace(
        form, finish_related=lambda logs: softplus(logs) / alpha, finish_unrelated=lambda logs: softplus(logs) / beta
    )


def binomial_deviance_form(alpha: float = 2.0, beta: float = 50.0, base: float = 0.5) -> PairForm:
    r"""$\log(1 + \sum_p e^{-\alpha(s-m)}) + \log(1 + \sum_n e^{\beta(s-m)})$: binomial deviance.

    >>> metrix(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 0.0]]), form=binomial_deviance_form())
    tensor(1.3863)
    """
    check_between("alpha", alpha, 0, math.inf)
    check_between("beta", beta, 0, math.inf)
    check_number("base", base)
    return PairForm(
        lambda scores: -alpha * (scores - base), lambda scores: beta * (scores - base), softplus, softplus, logs=True
    )


def proxy_anchor_form(margin: float = 0.1, alpha: float = 32.0) -> PairForm:
    r"""$\log(1 + \sum_p e^{-\alpha(s-m)}) + \log(1 + \sum_n e^{\alpha(s+m)})$, with proxies as rows: proxy anchor.

    >>> metrix(torch.tensor([[0.1, -0.1]]), torch.tensor([[1.0, 0.0]]), form=proxy_anchor_form())
    tensor(1.3863)
    """
    check_number("margin", margin)
    check_between("alpha", alpha, 0, math.inf)
    return PairForm(
        lambda scores: -alpha * (scores - margin),
        lambda scores: alpha * (scores + margin),
        softplus,
        softplus,
        logs=True,
    )


def nca_form(temperature: float = 1.0) -> PairForm:
    r"""$-\log \sum_p e^{s/\tau} + \log \sum_n e^{s/\tau}$: NCA against the unrelated columns only.

    It has no lower bound: use it with bounded scores.

    >>> metrix(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 0.0]]), form=nca_form())
    tensor(0.)
    """
    check_between("temperature", temperature, 0, math.inf)
    return PairForm(
        lambda scores: scores / temperature, lambda scores: scores / temperature, torch.neg, _same, logs=True, both=True
    )


FORMS: dict[str, Callable[[], PairForm]] = {
    "binomial_deviance": binomial_deviance_form,
    "contrastive": contrastive_form,
    "multi_similarity": multi_similarity_form,
    "nca": nca_form,
    "proxy_anchor": proxy_anchor_form,
}
"""The members of the family that have a name, with their defaults."""


@pair_loss("metrix", *ROWS, family="structured rows", paper="arXiv:2106.04990", verified=NUMPY)
def metrix(pairs: Pairs, *, form: str | PairForm = "multi_similarity") -> RowTerms:
    r"""Many pair losses in one form, for mixed columns that are partly related.

    $\tau(\sigma_+(\sum_j t_{aj} \rho_+(s_{aj})) + \sigma_-(\sum_j (1 - t_{aj}) \rho_-(s_{aj})))$, t the relation.

    A mixed row $\lambda x_i + (1-\lambda) x_j$ has the relation $\lambda r_{ai} + (1-\lambda) r_{aj}$, whether inputs,
    features or embeddings were mixed: see :class:`vicinal.mixing.Mixture` and :class:`MixedLoss`. With relations 0 and
    1 only, it is the loss named by ``form`` itself.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        form: "binomial_deviance", "contrastive", "multi_similarity", "nca", "proxy_anchor", or a :class:`PairForm`.

    >>> metrix(torch.tensor([[0.5, 0.5]]), torch.tensor([[0.25, 0.75]]), form="nca")
    tensor(0.)
    """
    if isinstance(form, str):
        form = FORMS[check_choice("form", form, FORMS)]()
    elif not isinstance(form, PairForm):
        raise TypeError(f"form: expected a name or a PairForm, got {form!r}")
    sides = []
    for values, weight, finish in (
        (form.related(pairs.scores), pairs.positive, form.finish_related),
        (form.unrelated(pairs.scores), pairs.negative, form.finish_unrelated),
    ):
        there = (weight > 0).any(-1)
        total = log_sum_exp(values, weight) if form.logs else row_products(values, weight)
        sides.append((torch.where(there, finish(torch.where(there, total, 0.0)), 0.0), there))
    (related, some), (unrelated, others) = sides
    return row_terms(form.finish(related + unrelated), some & others if form.both else some | others)
