"""Which loss a name stands for, which relation fits the labels, and what losses and miners declare."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vicinal.core import entries, entry
from vicinal.relation import label_distance, same_class, shared_labels

Relation = Callable[[Tensor, Tensor], Tensor]
Loss = Callable[..., Tensor]
_GIVEN = ("lengths", "history", "negatives", "per_class")  # what criteria give to a loss, not users


def resolve_loss(loss: str | Loss) -> tuple[Loss, frozenset[str]]:
    """The pair loss of that name or itself, and what it declares about itself.

    >>> resolve_loss("supcon")[0].__name__
    'supcon'
    """
    if isinstance(loss, str):
        found = entry("pair_loss", loss.strip().lower().replace("-", "_"))
        return found.make, found.facts
    if not callable(loss):
        raise TypeError(f"loss: expected a name or a function of scores and relation, got {loss!r}")
    facts = [known.facts for known in entries("pair_loss") if known.make is loss]
    return loss, facts[0] if facts else frozenset()


def own_settings(function: Callable[..., Any]) -> dict[str, Any]:
    """Settings that users give to a pair loss or a miner, with defaults (``inspect.Parameter.empty`` if needed).

    >>> from vicinal.losses import supcon
    >>> own_settings(supcon)
    {'temperature': 0.1}
    """
    parameters = inspect.signature(function).parameters.values()
    settings = [
        p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY and p.name not in ("reduction", *_GIVEN)
    ]
    return {p.name: p.default for p in settings}


def with_best(loss: Loss, similarity: nn.Module, hyper: dict[str, Any]) -> dict[str, Any]:
    """Settings with the ``best`` score of the similarity, for a loss that takes distances from it and was given none.

    Raises:
        ValueError: for a similarity whose best score differs from row to row, such as an inner product.

    >>> from vicinal.similarity import Cosine
    >>> with_best(resolve_loss("icnn")[0], Cosine(), {"k": 3})
    {'k': 3, 'best': 1.0}
    """
    if hyper.get("best") is not None or own_settings(loss).get("best", 0.0) is not None:
        return hyper
    best = getattr(similarity, "best", None)
    if best is None:
        name = getattr(loss, "__name__", type(loss).__name__)
        raise ValueError(
            f"best: expected the score of two equal things, from which {name} takes distances, got none of "
            f"{similarity!r}; give best=..., or a similarity such as cosine or l2"
        )
    return {**hyper, "best": best}


def relation_of(labels: Tensor, facts: frozenset[str]) -> Relation:
    """The relation that fits the labels: classes ``[b]``, several labels ``[b, C]``, or numbers for such losses.

    Raises:
        TypeError: for numbers where classes are needed; equality of floating numbers would relate nothing.
    """
    if "number-relation" in facts:
        return label_distance
    if labels.is_floating_point():
        raise TypeError(
            "labels: expected classes (whole numbers), got "
            f"{labels.dtype}; for labels that are numbers use a loss such as 'rank_n_contrast', or give "
            "relation=lambda a, b: label_distance(a, b, kernel='gaussian')"
        )
    return same_class if labels.ndim == 1 else shared_labels


def miner_facts(miner: Loss | None) -> frozenset[str]:
    """What a registered miner, or one with settings (``functools.partial``), declares about itself."""
    settings = getattr(miner, "keywords", {})
    if any(isinstance(value, Tensor) for value in settings.values()):
        return frozenset()
    facts: frozenset[str] = _miner_facts(getattr(miner, "func", miner))
    return facts


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _miner_facts(miner: Loss | None) -> frozenset[str]:
    found = [known.facts for known in entries("miner") if known.make is miner]
    return found[0] if found else frozenset()
