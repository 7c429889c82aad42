"""What labels a loss takes, read from the facts that it declares."""

from collections.abc import Iterable

from vicinal.core import entries

NUMBERS = "numbers"
CLASSES = "classes"


def label_kind(facts: Iterable[str]) -> str:
    """The labels that a pair loss with these ``facts`` compares by itself: "numbers" or "classes".

    >>> label_kind({"number-relation"}), label_kind({"soft-relation"})
    ('numbers', 'classes')
    """
    return NUMBERS if "number-relation" in facts else CLASSES


def losses_for(kind: str) -> list[str]:
    """Names of the pair losses for labels that are "numbers" or "classes".

    >>> "rank_n_contrast" in losses_for("numbers"), "supcon" in losses_for("numbers")
    (True, False)
    """
    return [found.name for found in entries("pair_loss") if label_kind(found.facts) == kind]


def check_label_kind(name: str, facts: Iterable[str], kind: str) -> None:
    """Check that a pair loss takes labels that are "numbers" or "classes".

    Raises:
        ValueError: with the losses that do.

    >>> check_label_kind("supcon", {"soft-relation"}, "numbers")
    Traceback (most recent call last):
    ValueError: loss: expected a loss for labels that are numbers (label_contrast, ...), got supcon, ...
    """
    takes = label_kind(facts)
    if takes != kind:
        raise ValueError(
            f"loss: expected a loss for labels that are {kind} ({', '.join(losses_for(kind))}), got {name}, "
            f"which takes {takes}"
        )
