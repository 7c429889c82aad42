"""The registry: every method once, with declared facts that tests, docs tables and the command line read.

``KINDS`` says which package registers a kind, so that asking for its entries imports the package first. ``FACTS`` lists
all facts: a misspelled one is refused at registration; otherwise its test would be skipped silently.
"""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from vicinal.core.checks import check_choice

KINDS: dict[str, str] = {
    "similarity": "vicinal.similarity",
    "mask": "vicinal.masks",
    "simplex": "vicinal.masks",
    "head": "vicinal.heads",
    "link": "vicinal.links",
    "curve": "vicinal.links",
    "loss": "vicinal.losses",
    "pair_loss": "vicinal.losses",
    "class_loss": "vicinal.losses",
    "teacher_loss": "vicinal.losses",
    "regularizer": "vicinal.losses",
    "encoder": "vicinal.encoders",
    "set_encoder": "vicinal.encoders.sets",
    "metric": "vicinal.metrics",
    "miner": "vicinal.miners",
    "sampler": "vicinal.samplers",
    "index": "vicinal.index",
    "factorization": "vicinal.factorization",
    "clustering": "vicinal.clustering",
}

FACTS: dict[str, str] = {
    "bounded": "values lie in a fixed interval",
    "monotone": "never falls",
    "invertible": "rises strictly and has an inverse",
    "odd": "f(-z) = -f(z) for shift 0",
    "low-norms": "steepest near 0 (or near the shift)",
    "high-norms": "steepest far from 0, on both sides",
    "high-scores": "steepest at high scores",
    "low-scores": "steepest at low scores",
    "uniform": "equally steep everywhere",
    "sigmoid-high-scores": "as the scaling of a composite sigmoid, steepest at high scores",
    "sigmoid-low-scores": "as such a scaling, steepest at low scores",
    "sigmoid-high-norms": "as such a scaling, steepest far from 0, on both sides",
    "sigmoid-low-norms": "as such a scaling, steepest near 0",
    "sigmoid-uniform": "as such a scaling, about equally steep from -3 to 3",
    "classes-high-scores": "as the scaling of a composite softmax, steepest in the class of the highest score",
    "classes-low-scores": "as such a scaling, steepest in the class of the lowest score",
    "classes-high-norms": "as such a scaling, steepest in the classes of the highest and of the lowest score",
    "classes-low-norms": "as such a scaling, steepest in the class with a score near 0",
    "classes-uniform": "as such a scaling, not sensitive to one region more than to another",
    "ranks-top": "as such a scaling, most sensitive in the class of the highest score, wherever they lie together",
    "ranks-bottom": "as such a scaling, most sensitive in the class of the lowest score, wherever they lie together",
    "monotone-probabilities": "as a scaling, the probability of a class never falls with its score",
    "symmetric-loss": "as a link, errors up and down from an observed 0 cost the same",
    "composite-symmetric-loss": "as a scaling, errors up and down from an observed 0 cost the same",
    "elementwise": "a loss of each score apart",
    "multi-class": "a loss of a row of class scores at once",
    "convex": "convex in the prediction",
    "several-labels": "each label of a row counts for itself, so a row may have several or none",
    "perturbed-scores": "also takes the scores of inputs that were moved",
    "row-separable": "a row's value depends on its own scores only, so rows can be computed in blocks",
    "soft-relation": "a relation between 0 and 1 makes a column partly related and partly unrelated",
    "number-relation": "the relation is a negative distance of labels that are numbers",
    "order-dependent": "the order of the rows decides which of them are used",
    "cosine-scores": "scores lie in [-1, 1]",
    "stopped-gradient": "a factor that depends on the scores passes no gradient",
    "proxies": "made for learned vectors of classes as columns",
    "proxy-rows": "made for learned vectors of classes as rows, the batch as columns",
    "embedding-lengths": "also takes the lengths of the embeddings",
    "proxy-lengths": "and those of the proxies, multiplied",
    "batch-scores": "also takes the scores of the unrelated pairs of the batch",
    "proxy-groups": "columns come in groups of one class, of as many as it is told",
    "common-shift-invariant": "adding one vector to all queries and bank rows changes nothing",
    "rotation-invariant": "rotating all queries and bank rows changes nothing",
    "row-scale-invariant": "multiplying a query or a bank row by a positive number changes nothing",
    "hard-rejection": "some rows get weight exactly 0",
    "learned": "has parameters of its own",
    "score-shift-invariant": "adding a number to a row of scores changes nothing",
    "score-scale-invariant": "multiplying a row of scores by a positive number changes nothing",
    "permutation-invariant": "the order of the bank rows does not matter",
    "convex-hull": "the prediction is a weighted mean of labels of the bank",
    "number": "encodes columns of numbers",
    "category": "encodes columns of categories",
    "text": "encodes columns of text",
    "image": "encodes columns of images",
    "audio": "encodes columns of audio files",
    "vector": "encodes columns of fixed vectors",
    "set": "encodes columns of sets, of whatever another encoder reads",
    "pretrained": "starts from published weights",
    "from-scratch": "is trained from random weights",
    "parameter-free": "has nothing to train",
    "random": "draws at random, from a generator or a seed that is given",
    "square": "needs the scores of the rows of one batch against one another",
    "class-labels": "reads labels that are classes",
    "number-labels": "reads labels that are numbers",
    "group-labels": "reads groups of rows",
    "embeddings": "reads embeddings rather than scores",
    "exact-search": "finds the rows of highest score, and misses none",
    "approximate-search": "may miss rows of high score",
    "persistent": "rows are on disk when they have been added",
    "mini-batch-consistent": "chunks of a set, encoded one after the other, give what the whole set gives",
    "order-gap": "the order of three or more elements changes the result, by what order_gap measures",
    "optional-package": "needs a package that is not installed by default",
}

Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True)
class Entry:
    """One registered method.

    Attributes:
        kind: one of ``KINDS``.
        name: its name for users.
        factory: the function or class.
        facts: what it declares about itself, from ``FACTS``.
        family: the group of similar methods that it is listed with, or "".
        summary: the first line of its docstring.
        formula: the second paragraph of its docstring if that holds a formula, else "".
        paper: where it comes from, or "".
        verified: what its values were checked against, or "".
    """

    kind: str
    name: str
    factory: Callable[..., Any]
    facts: frozenset[str]
    family: str = ""
    summary: str = ""
    formula: str = ""
    paper: str = ""
    verified: str = ""


_entries: dict[tuple[str, str], Entry] = {}


def register(
    kind: str, name: str, *facts: str, family: str = "", paper: str = "", verified: str = ""
) -> Callable[[Method], Method]:
    """Register the decorated function or class under ``kind`` and ``name`` with its ``facts``.

    Raises:
        ValueError: for an unknown kind or fact, or a name that is taken.
    """
    check_choice("kind", kind, KINDS)
    for fact in facts:
        check_choice("fact", fact, FACTS)

    def add(method: Method) -> Method:
        if (kind, name) in _entries:
            raise ValueError(f"name: expected a new name for a {kind}, got {name!r}, which is registered already")
        summary, formula = _summary_and_formula(inspect.getdoc(method) or "")
        _entries[kind, name] = Entry(kind, name, method, frozenset(facts), family, summary, formula, paper, verified)
        return method

    return add


def _summary_and_formula(docstring: str) -> tuple[str, str]:
    """The first line, and the second paragraph if it holds a formula."""
    first, second, *_ = [*docstring.split("\n\n"), "", ""]
    is_formula = "$" in second and not second.startswith(("Args:", "Returns:", "Raises:", "Attributes:", ">>>"))
    return first.partition("\n")[0], second if is_formula else ""


def entries(kind: str) -> tuple[Entry, ...]:
    """All entries of ``kind``, sorted by name; the package that registers them is imported first."""
    importlib.import_module(KINDS[check_choice("kind", kind, KINDS)])
    return tuple(_entries[key] for key in sorted(_entries) if key[0] == kind)


def entry(kind: str, name: str) -> Entry:
    """The entry of ``kind`` called ``name``.

    Raises:
        ValueError: for an unknown name, with the registered names and the nearest of them.
    """
    by_name = {item.name: item for item in entries(kind)}
    return by_name[check_choice(kind, name, by_name)]


def make(kind: str, name: str, **settings: Any) -> Any:
    """Make the method of ``kind`` called ``name`` with ``settings``.

    >>> make("similarity", "l2")
    NegativeL2()
    """
    return entry(kind, name).factory(**settings)
