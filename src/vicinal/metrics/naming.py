"""Names of retrieval metrics as users write them: ``map@r``, ``recall@10``."""

from collections.abc import Sequence
from dataclasses import dataclass

from vicinal.core import check_choice, check_integer

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
    found = tuple(_one(str(name)) for name in metrics)
    if len({one.name for one in found}) < len(found):
        raise ValueError(f"metrics: expected each name once, got {list(metrics)!r}")
    return found


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
