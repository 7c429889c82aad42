"""Measures of retrieval by rank: their names, their formulas, and functions of a matrix of scores."""

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from vicinal.core import check_choice, register
from vicinal.core.checks import check_integer
from vicinal.ranks import Ties
from vicinal.ranks.hard import rank_order, related_ranks, sortable, wide
from vicinal.ranks.pairs import check_relation

NAMES: dict[str, tuple[str, str]] = {
    "precision": ("precision_at_k", "needs"),
    "hit": ("hit_at_k", "needs"),
    "recall": ("recall_at_k", "needs"),
    "r_precision": ("r_precision", "no"),
    "map@r": ("map_at_r", "no"),
    "map": ("average_precision", "may"),
    "mrr": ("reciprocal_rank", "may"),
    "ndcg": ("ndcg", "may"),
}
"""Written name to (formula, whether it takes a cutoff ``@k``)."""

DEFAULT = ("precision@1", "r_precision", "map@r")


@dataclass(frozen=True)
class Named:
    """One metric of a list: the name as written, its formula and its cutoff."""

    name: str
    formula: str
    k: int | None

    def reach(self) -> float | None:
        """Rank beyond which nothing matters; None if that is the number of related columns of the query."""
        if self.formula in ("r_precision", "map_at_r"):
            return None
        if self.formula == "reciprocal_rank" and self.k is None:
            return 0.0  # the first related column is kept at any rank, see first()
        return float("inf") if self.k is None else float(self.k)

    def first(self) -> bool:
        """Whether the rank of the first related column matters however far it is."""
        return self.formula == "reciprocal_rank" and self.k is None


def named(metrics: Sequence[str]) -> tuple[Named, ...]:
    """Read names of metrics.

    Args:
        metrics: each one of "precision@k", "hit@k", "recall@k", "r_precision", "map@r", "map", "map@k", "mrr",
            "mrr@k", "ndcg", "ndcg@k", with a whole number in place of k.

    Raises:
        ValueError: for a name that is none of these, or given twice, or if there is none.

    >>> named(["recall@10"])
    (Named(name='recall@10', formula='recall_at_k', k=10),)
    >>> named(["recal@10"])
    Traceback (most recent call last):
    ValueError: metrics: expected one of ..., got 'recal'; did you mean 'recall'?
    """
    if isinstance(metrics, str) or not metrics:
        raise ValueError(f"metrics: expected a list of names such as {list(DEFAULT)}, got {metrics!r}")
    measures = tuple(_one(str(name)) for name in metrics)
    if len({one.name for one in measures}) < len(measures):
        raise ValueError(f"metrics: expected each name once, got {list(metrics)!r}")
    return measures


def _one(name: str) -> Named:
    if name in ("map@r", "MAP@R"):
        return Named(name, "map_at_r", None)
    base, _, cutoff = name.partition("@")
    formula, takes = NAMES[check_choice("metrics", base, NAMES)]
    if cutoff and takes == "no":
        raise ValueError(f"metrics: expected {base!r} without a cutoff, got {name!r}")
    if takes == "needs" and not cutoff:
        raise ValueError(f"metrics: expected a cutoff as in '{base}@10', got {name!r}")
    if cutoff and not cutoff.isdecimal():
        raise ValueError(f"metrics: expected a whole number after @, got {name!r}")
    return Named(name, formula, check_integer("k", int(cutoff)) if cutoff else None)


Formula = Callable[..., Tensor]
"""``(ranks [b, R], count [b], *, k) -> [b]`` of the ranks of related columns, of which each row has ``count``."""


def _recall(ranks: Tensor, count: Tensor, *, k: int = 1) -> Tensor:
    return (ranks <= k).sum(dim=1) / count


def _precisions(ranks: Tensor) -> Tensor:
    """Precision at the rank of each related column, ``[b, R]``; 0 at the padding."""
    return torch.arange(1, ranks.shape[1] + 1, device=ranks.device) / ranks


def _average_precision(ranks: Tensor, count: Tensor, *, k: int | None = None) -> Tensor:
    counted = ranks if k is None else torch.where(ranks <= k, ranks, torch.inf)
    return _precisions(counted).sum(dim=1) / count


def _ndcg(ranks: Tensor, count: Tensor, *, k: int | None = None) -> Tensor:
    last = ranks.shape[1] if k is None else min(k, ranks.shape[1])
    counted = ranks if k is None else torch.where(ranks <= k, ranks, torch.inf)
    places = torch.arange(1, last + 1, device=ranks.device, dtype=ranks.dtype)
    ideal = torch.cat([ranks.new_zeros(1), (1 / (places + 1).log2()).cumsum(0)])  # of 0, 1, ... last related columns
    return (1 / (counted + 1).log2()).sum(dim=1) / ideal[count.clamp(max=last).long()]


FORMULAS: dict[str, Formula] = {"recall_at_k": _recall, "average_precision": _average_precision, "ndcg": _ndcg}
"""Of all metrics by name; :func:`rank_metric` adds those that are nothing but a formula."""


def from_ranks(formula: str, ranks: Tensor, *, k: int | None = None, empty: float = math.nan) -> Tensor:
    """The metric called ``formula`` of each row of ``ranks [b, R]``; ``empty`` for a row without related columns.

    >>> from_ranks("average_precision", torch.tensor([[1.0, 4.0], [torch.inf, torch.inf]]))
    tensor([0.7500,    nan])
    """
    count = ranks.isfinite().sum(dim=1)
    return value_of(formula, ranks, count, k=k, empty=empty)


def value_of(formula: str, ranks: Tensor, count: Tensor, *, k: int | None, empty: float) -> Tensor:
    """As :func:`from_ranks` where ranks too far to matter were replaced by inf: ``count [b]`` is given."""
    count = count.to(ranks.dtype)
    cutoff = {} if k is None else {"k": k}
    return torch.where(count > 0, FORMULAS[formula](ranks, count, **cutoff), empty).to(ranks.dtype)


Gain = Literal["linear", "exponential"]


def _discounts(scores: Tensor, order: Tensor, counted: Tensor, k: int | None, *, average: bool) -> Tensor:
    """Discount of each place ``[b, N]``; if ``average``, its mean over the places that columns of one score share."""
    width = order.shape[1]
    places = torch.arange(1, width + 1, device=order.device, dtype=wide(order.device))
    discount = torch.where(places <= (k or width), 1 / (places + 1).log2(), 0.0).expand(order.shape)
    if not average or width == 0:
        return discount
    ordered = torch.where(counted, sortable(scores), -torch.inf).gather(1, order)
    inside = counted.gather(1, order)
    new = (ordered[:, 1:] != ordered[:, :-1]) | (inside[:, 1:] != inside[:, :-1])
    group = torch.cat([new.new_zeros(len(new), 1), new], dim=1).cumsum(dim=1)  # [b, N]
    total = torch.zeros_like(discount).scatter_add_(1, group, discount)
    size = torch.zeros_like(discount).scatter_add_(1, group, torch.ones_like(discount))
    return (total / size.clamp(min=1)).gather(1, group)


@register(
    "metric",
    "ndcg",
    "bounded",
    "permutation-invariant",
    "score-shift-invariant",
    "score-scale-invariant",
    family="retrieval",
    paper="Jarvelin and Kekalainen 2002",
    verified="numpy in float64; scikit-learn; ir_measures and ranx (stored values)",
)
def ndcg(
    scores: Tensor,
    relation: Tensor,
    weight: Tensor | None = None,
    *,
    k: int | None = None,
    gain: Gain = "linear",
    ties: Ties | Literal["average"] = "worst",
    empty: float = math.nan,
) -> Tensor:
    r"""Discounted gain of the first ``k`` ranks over the largest that any order could have.

    $\mathrm{DCG}_i = \sum_{r \le k} g_{i(r)} / \log_2(r + 1)$, where $g$ is the grade of the column at rank $r$, or
    $2^{\text{grade}} - 1$ for the gain "exponential".

    Args:
        scores: ``[b, N]``, higher = more alike.
        relation: ``[b, N]``, grades >= 0; grades below 0 count as 0.
        weight: ``[b, N]`` or None; columns of weight 0 are taken out.
        k: ranks that count, >= 1, or None for all.
        gain: "linear" or "exponential".
        ties: order of equal scores, see :func:`vicinal.ranks.hard.rank_order`; or "average": the expected value over
            all orders of columns with equal scores, which is what scikit-learn gives.
        empty: value of a query with no grade above 0.

    Returns:
        ``[b]`` in [0, 1], NaN (or ``empty``) for a query with no grade above 0.

    >>> ndcg(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[1, 2, 0]]))
    tensor([0.8597], dtype=torch.float64)
    """
    check_relation(scores, relation, weight)
    check_choice("gain", gain, get_args(Gain))
    check_choice("ties", ties, (*get_args(Ties), "average"))
    k = None if k is None else check_integer("k", k)
    counted = torch.ones_like(relation, dtype=torch.bool) if weight is None else weight > 0
    grade = torch.where(counted, relation.to(wide(scores.device)).clamp(min=0), 0.0)
    value = grade if gain == "linear" else torch.exp2(grade) - 1
    order = rank_order(scores, relation, weight, ties="worst" if ties == "average" else ties)
    discount = _discounts(scores, order, counted, k, average=ties == "average")
    reached = (value.gather(1, order) * discount).sum(dim=1)
    plain = _discounts(scores, order, counted, k, average=False)
    ideal = (value.sort(dim=1, descending=True).values * plain).sum(dim=1)
    return torch.where(ideal > 0, reached / torch.where(ideal > 0, ideal, 1.0), empty)


_FACTS = ("bounded", "permutation-invariant", "score-shift-invariant", "score-scale-invariant")
_CHECKED = "numpy in float64; ir_measures and ranx (stored values)"


def rank_metric(name: str, *, verified: str = _CHECKED, **entry: str) -> Callable[[Formula], Callable[..., Tensor]]:
    """Make and register a metric of a formula of ranks.

    The metric is ``f(scores, relation, weight=None, *, k, ties="worst", empty=nan)``, with ``k`` where the formula has
    it, of ``scores [b, N]``, ``relation [b, N]`` and ``weight [b, N]`` or None; ``ties`` is the order of equal scores,
    ``empty`` the value of a query without related columns. It raises TypeError or ValueError for other shapes or a bad
    ``k``.

    Args:
        name: how users name it.
        verified: what it was checked against.
        entry: its paper.
    """

    def make(formula: Formula) -> Callable[..., Tensor]:
        cutoff = inspect.signature(formula).parameters.get("k")
        least_one = cutoff is not None and cutoff.default is not None

        @functools.wraps(formula)
        def metric(
            scores: Tensor,
            relation: Tensor,
            weight: Tensor | None = None,
            *,
            ties: Ties = "worst",
            empty: float = math.nan,
            **cut: int | None,
        ) -> Tensor:
            checked = {one: check_integer(one, k) for one, k in cut.items() if least_one or k is not None}
            return from_ranks(name, related_ranks(scores, relation, weight, ties=ties), **checked, empty=empty)

        *common, ties, empty, _ = inspect.signature(metric, follow_wrapped=False).parameters.values()
        parameters = [*common, *([] if cutoff is None else [cutoff]), ties, empty]
        vars(metric)["__signature__"] = inspect.Signature(parameters, return_annotation=Tensor)
        FORMULAS[name] = formula
        return register("metric", name, *_FACTS, family="retrieval", verified=verified, **entry)(metric)

    return make


@rank_metric("precision_at_k")
def precision_at_k(ranks: Tensor, count: Tensor, *, k: int = 1) -> Tensor:
    r"""Share of the first ``k`` columns that are related, $|\{m : r_{im} \le k\}| / k$.

    Args:
        ranks: ``scores``, ``relation``, ``weight``, ``ties`` and ``empty``; see :func:`rank_metric`.
        count: of the related columns.
        k: how many columns count, >= 1.

    Returns:
        ``[b]`` in [0, 1].

    >>> import torch
    >>> precision_at_k(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[1, 0, 1]]), k=2)
    tensor([0.5000], dtype=torch.float64)
    """
    return (ranks <= k).sum(dim=1, dtype=ranks.dtype) / k


@rank_metric("hit_at_k")
def hit_at_k(ranks: Tensor, count: Tensor, *, k: int = 1) -> Tensor:
    r"""1 if any of the first ``k`` columns is related, else 0; papers on metric learning call it recall@k.

    Arguments, result and errors as :func:`precision_at_k`.

    >>> import torch
    >>> hit_at_k(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0, 1, 1]]), k=2)
    tensor([1.], dtype=torch.float64)
    """
    return (ranks <= k).any(dim=1).to(ranks.dtype)


def _seen_often(
    scores: Tensor, relation: Tensor, weight: Tensor | None, propensity: Tensor, ties: Ties
) -> tuple[Tensor, Tensor]:
    r"""In the order of each row ``[b, N]``: which columns are related, and $1/\theta$ of these, shares of their sum."""
    check_relation(scores, relation, weight)
    if propensity.shape not in (scores.shape, scores.shape[1:]) or not bool((propensity > 0).all()):
        raise ValueError(f"propensity: expected numbers above 0, {tuple(scores.shape)} or one a column, got others")
    order = rank_order(scores, relation, weight, ties=ties)
    related = relation > 0 if weight is None else (relation > 0) & (weight > 0)
    inverse = 1 / propensity.to(wide(scores.device)).clamp(min=0.01).expand(scores.shape)
    mass = torch.where(related, inverse, 0.0)
    return related.gather(1, order), (mass / mass.sum(dim=1, keepdim=True)).gather(1, order)


@register("metric", "recall_at_k", *_FACTS, family="retrieval", verified=_CHECKED)
def recall_at_k(
    scores: Tensor,
    relation: Tensor,
    weight: Tensor | None = None,
    *,
    k: int = 1,
    ties: Ties = "worst",
    empty: float = math.nan,
    propensity: Tensor | None = None,
) -> Tensor:
    r"""Share of the related columns among the first ``k``, $|\{m : r_{im} \le k\}| / R_i$; see also :func:`hit_at_k`.

    With ``propensity`` ``[N]`` or ``[b, N]``, the chance that a column is seen, each related column counts as one over
    that chance (taken as at least .01), and the sum is divided by the row's total (arXiv:1909.03601). Other arguments,
    result and errors as :func:`precision_at_k`.

    >>> import torch
    >>> recall_at_k(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0, 1, 1]]), k=2)
    tensor([0.5000], dtype=torch.float64)
    """
    k = check_integer("k", k)
    if propensity is not None:
        mass = _seen_often(scores, relation, weight, propensity, ties)[1]
        return torch.where(mass.isnan().any(dim=1), empty, mass[:, :k].sum(dim=1))
    return from_ranks("recall_at_k", related_ranks(scores, relation, weight, ties=ties), k=k, empty=empty)


@rank_metric("r_precision")
def r_precision(ranks: Tensor, count: Tensor) -> Tensor:
    r"""Precision at as many columns as are related, $|\{m : r_{im} \le R_i\}| / R_i$.

    Arguments, result and errors as :func:`precision_at_k`.

    >>> import torch
    >>> r_precision(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[1, 0, 1]]))
    tensor([0.5000], dtype=torch.float64)
    """
    return (ranks <= count[:, None]).sum(dim=1) / count


@rank_metric("map_at_r", paper="arXiv:2003.08505", verified="numpy in float64; pytorch-metric-learning")
def map_at_r(ranks: Tensor, count: Tensor) -> Tensor:
    r"""Average precision over the first $R_i$ ranks, $\frac{1}{R_i} \sum_{m : r_{im} \le R_i} m / r_{im}$.

    Arguments, result and errors as :func:`precision_at_k`.

    >>> import torch
    >>> map_at_r(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0, 1, 1]]))
    tensor([0.2500], dtype=torch.float64)
    """
    return torch.where(ranks <= count[:, None], _precisions(ranks), 0.0).sum(dim=1) / count


@register("metric", "average_precision", *_FACTS, family="retrieval", verified=_CHECKED + "; scikit-learn")
def average_precision(
    scores: Tensor,
    relation: Tensor,
    weight: Tensor | None = None,
    *,
    k: int | None = None,
    ties: Ties = "worst",
    empty: float = math.nan,
    propensity: Tensor | None = None,
) -> Tensor:
    r"""Mean over related columns of the precision at their rank, $\frac{1}{R_i} \sum_m m / r_{im}$.

    With a cutoff ``k`` only ranks up to ``k`` enter the sum; it is still divided by $R_i$. With ``propensity``, as for
    :func:`recall_at_k`, m is the sum of the weights of related columns up to that rank; the weights are scaled to sum
    to 1. Other arguments, result and errors as :func:`precision_at_k`.

    >>> import torch
    >>> average_precision(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[1, 0, 1]]))
    tensor([0.8333], dtype=torch.float64)
    """
    k = None if k is None else check_integer("k", k)
    if propensity is not None:
        related, mass = _seen_often(scores, relation, weight, propensity, ties)
        places = torch.arange(1, mass.shape[1] + 1, device=mass.device)
        terms = (mass.cumsum(dim=1) / places * related)[:, :k].sum(dim=1)
        return torch.where(mass.isnan().any(dim=1), empty, terms)
    return from_ranks("average_precision", related_ranks(scores, relation, weight, ties=ties), k=k, empty=empty)


@rank_metric("reciprocal_rank")
def reciprocal_rank(ranks: Tensor, count: Tensor, *, k: int | None = None) -> Tensor:
    r"""One over the rank of the first related column, $1 / r_{i1}$; 0 if that is beyond the cutoff ``k``.

    Its mean over queries is MRR. Other arguments, result and errors as :func:`precision_at_k`.

    >>> import torch
    >>> reciprocal_rank(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0, 1, 1]]))
    tensor([0.5000], dtype=torch.float64)
    """
    if ranks.shape[1] == 0:
        return torch.zeros_like(count)
    first = ranks[:, 0]
    return (1 / first if k is None else torch.where(first <= k, 1 / first, 0.0)).clone()
