"""One form for many pair losses: sums over related and over unrelated columns, each transformed, then added."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.core import check_between, check_choice, check_number
from vicinal.losses.contract import NUMPY, pair_loss
from vicinal.losses.logsums import log_sum_exp, softplus
from vicinal.losses.pairs import Pairs
from vicinal.losses.parts import Part, row_products, row_terms

Transform = Callable[[Tensor], Tensor]


def _same(values: Tensor) -> Tensor:
    return values


class PairForm(NamedTuple):
    r"""A member of the family $\tau(\sigma_+(\sum_p \rho_+(s_{ap})) + \sigma_-(\sum_n \rho_-(s_{an})))$.

    Attributes:
        related: $\rho_+$ of scores ``[b, N]``, or $\log \rho_+$ with ``logs``.
        unrelated: $\rho_-$, likewise.
        finish_related: $\sigma_+$ of the sums ``[b]``, or of their logarithms with ``logs``.
        finish_unrelated: $\sigma_-$, likewise.
        logs: the sums are of exponentials and are kept as logarithms.
        both: a row without related or without unrelated columns is left out; else the missing side adds nothing.
        finish: $\tau$ of what a row adds up to, ``[b]``.
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
    return form._replace(
        finish_related=lambda logs: softplus(logs) / alpha, finish_unrelated=lambda logs: softplus(logs) / beta
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


@pair_loss("metrix", "row-separable", "soft-relation", paper="arXiv:2106.04990", verified=NUMPY)
def metrix(pairs: Pairs, *, form: str | PairForm = "multi_similarity") -> Part:
    r"""Many pair losses in one form, for mixed columns that are partly related.

    $\tau(\sigma_+(\sum_j t_{aj} \rho_+(s_{aj})) + \sigma_-(\sum_j (1 - t_{aj}) \rho_-(s_{aj})))$, t the relation.

    A mixed row $\lambda x_i + (1-\lambda) x_j$ has the relation $\lambda r_{ai} + (1-\lambda) r_{aj}$, whether inputs,
    features or embeddings were mixed: see :class:`vicinal.mixing.Mixture` and :class:`MixedLoss`. With relations 0 and
    1 only it is the member itself.

    Args:
        pairs: scores, relation and weight.
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
