"""Losses as text, read by a small grammar and never evaluated.

``matching:sigmoid(scale=2,shift=0.7)`` is a loss of predictions, ``0.5*supcon(temperature=.1)`` one of embeddings. Also
here: which labels a loss takes, and which settings it has.
"""

import ast
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from vicinal.core import check_choice, entries, entry, nearest, short
from vicinal.core.checks import check_between
from vicinal.core.grammar import Grammar
from vicinal.core.seeding import seeded
from vicinal.links.parse import LinkGrammar
from vicinal.losses.class_contract import ClassLoss
from vicinal.losses.contract import own_settings
from vicinal.losses.embedding import EmbeddingLoss
from vicinal.losses.proxy_loss import ProxyLoss

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
    return [each.name for each in entries("pair_loss") if label_kind(each.facts) == kind]


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


def read_settings(name: str, brackets: str, kind: str = "pair_loss") -> dict[str, Any]:
    """Settings by name from ``(temperature=.1, similarity=l2)``, of a pair loss or another ``kind``.

    >>> read_settings("triplet", "(margin=.1, miner=semihard(margin=.2), triplets=semi-hard)")
    {'margin': 0.1, 'miner': ('semihard', {'margin': 0.2}), 'triplets': 'semi-hard'}
    """
    grammar = SettingsGrammar(name, kind)
    call = grammar.parse_call(name, brackets.strip()[1:-1])
    if call.args:
        raise ValueError(
            f"loss: expected settings by name, as {grammar.example}, got {name}({ast.unparse(call.args[0])})"
        )
    return grammar.arguments(call)[1]


class SettingsGrammar(Grammar):
    """Settings of a pair loss or a loss of class scores: a word stands for itself, one with brackets for a miner."""

    def __init__(self, name: str, kind: str = "pair_loss") -> None:
        settings = own_settings(entry(kind, name).factory)
        example = next((f"{name}({setting}={value})" for setting, value in settings.items()), f"{name}(similarity=l2)")
        super().__init__("loss", f"numbers and words as settings of {name}", example)

    def visit_Name(self, node: ast.Name) -> str:
        """A word."""
        return node.id

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        """A word with a hyphen, as semi-hard."""
        sides = [self.visit(node.left), self.visit(node.right)]
        if not isinstance(node.op, ast.Sub) or not all(isinstance(side, str) for side in sides):
            return self.generic_visit(node)
        return "-".join(sides)

    def visit_Call(self, node: ast.Call) -> Any:
        """A miner and its settings."""
        if not isinstance(node.func, ast.Name) or node.args:
            return self.generic_visit(node)
        return node.func.id, self.arguments(node)[1]


def needs_dim(miner: Callable[..., Any]) -> bool:
    """Whether a miner must be told the width of the embeddings."""
    return own_settings(miner).get("dim", 0) is inspect.Parameter.empty


def check_names(what: str, name: str, settings: Mapping[str, Any], known: list[str], also: list[str]) -> None:
    """Check that the settings ``given`` to ``name`` are ``known`` to it or are ``also`` allowed.

    Raises:
        ValueError: for one that is not, with all that are and the nearest.
    """
    for setting, value in settings.items():
        if setting not in (*known, *also):
            listed = ", ".join(known) or "none of its own"
            more = f"; also {', '.join(also)}" if also else ""
            hint = nearest(setting, [*known, *also])
            raise ValueError(f"{what}: expected settings of {name} ({listed}{more}), got {short(setting)}{hint}")
        if isinstance(value, tuple) and setting != "miner":
            raise ValueError(f"{what}: expected a number or a word for {setting}, got {value[0]}(...)")


_ADDEND = re.compile(r"(?:([\d.]+(?:[eE][+-]?\d+)?)\s*\*)?\s*([A-Za-z][\w-]*)\s*(\(.*\))?", re.DOTALL)
_SENTENCE = re.compile(r"\w+: expected ")
_EXPONENT = re.compile(r"\d\.?[eE]$")
NEGATIVE_DISTANCES = ("rank_n_contrast", "log_ratio", "nlsh")
"""Losses made for negative distances: written as text they compare by l2, all others by cosine."""
RENAMED_MINERS = {"whiskers": "iqr_filter"}
"""Names in models that were saved before."""
CRITERION = {
    "similarity": "how two embeddings are compared: cosine, l2, squared_l2, l1, dot or scaled_dot",
    "normalize": "scale embeddings to length 1 first",
    "reduction": "mean, sum or mean_nonzero",
    "miner": "which pairs count: a miner, with settings in brackets",
    "per_class": "learned vectors of each class",
}
"""What may also stand in the brackets of a loss, beside its own settings."""


@dataclass(frozen=True)
class Term:
    """A loss of embeddings as it was written.

    Attributes:
        name: of the registry.
        weight: > 0, factor of its value.
        settings: of the loss and of the criterion around it.
        miner: name and settings of a miner, or None.
    """

    name: str
    weight: float = 1.0
    settings: Mapping[str, Any] = field(default_factory=dict)
    miner: tuple[str, Mapping[str, Any]] | None = None

    @property
    def learns(self) -> bool:
        """Whether it has learned vectors of the classes."""
        return bool({"proxies", "proxy-rows"} & entry("pair_loss", self.name).facts)

    def make(self, *, num_classes: int | None = None, dim: int | None = None) -> EmbeddingLoss | ProxyLoss:
        """The criterion.

        Args:
            num_classes: how many classes there are; for losses against learned vectors of classes.
            dim: width of the embeddings; likewise, and for miners that ask for it.

        Raises:
            ValueError: if one of them is needed and not given.
        """
        settings = {"similarity": "l2" if self.name in NEGATIVE_DISTANCES else "cosine", **self.settings}
        if not self.learns:
            return EmbeddingLoss(self.name, miner=self._miner(dim), **settings)
        if num_classes is None or dim is None:
            raise ValueError(
                f"loss: expected one that needs nothing but embeddings, got {self.name}, which learns vectors of "
                f"classes; make ProxyLoss({self.name!r}, num_classes, dim)"
            )
        return ProxyLoss(self.name, num_classes, dim, **settings)

    def _miner(self, dim: int | None) -> Callable[..., torch.Tensor] | None:
        if self.miner is None:
            return None
        name, settings = self.miner
        miner = entry("miner", name).factory
        if needs_dim(miner) and "dim" not in settings:
            if dim is None:
                raise ValueError(f"miner: expected {name}(dim=...), the width of the embeddings, got no dim")
            settings = {"dim": dim, **settings}
        return functools.partial(miner, **settings)


@dataclass(frozen=True)
class LossText:
    """What a text asks to be trained by.

    Attributes:
        main: the part that names a loss of predictions, as :func:`vicinal.losses.spec` reads it, or None.
        terms: losses of embeddings that are added to it.
    """

    main: str | None
    terms: tuple[Term, ...]


def read_loss(text: str) -> LossText:
    """Tell the loss of predictions in ``text`` from the losses of embeddings that are added to it.

    Parts are added with ``+``. A part that starts with the name of a pair loss (``vicinal losses``), after a factor if
    it has one, is a loss of embeddings; its parentheses hold settings by name, and plain words are text. All other
    parts make up the loss of predictions.

    Raises:
        TypeError: if ``text`` is not a string.
        ValueError: naming a loss or setting that does not exist, with the nearest.

    >>> read_loss("matching:sinh + 0.2*sigmoid + 0.5*supcon(temperature=.1)")
    LossText(main='matching:sinh + 0.2*sigmoid', terms=(Term(name='supcon', weight=0.5, ...),))
    >>> read_loss("triplet(margin=0.1, miner=semihard)").main is None
    True
    """
    if not isinstance(text, str):
        raise TypeError(f"loss: expected text such as 'supcon(temperature=0.1)', got {type(text).__name__}")
    known = [each.name for each in entries("pair_loss")]
    of_scores = [each.name for kind in ("loss", "class_loss") for each in entries(kind)]
    main: list[str] = []
    terms = []
    for part in _addends(text):
        each = _ADDEND.fullmatch(part)
        name = each[2].replace("-", "_").lower() if each else ""
        if each and name in known:
            terms.append(_term(name, each[1], each[3]))
            continue
        start = re.split(r"[:(]", part)[0].strip().replace("-", "_").lower()
        if not main and start not in of_scores:
            hint = nearest(name or start, [*known, *of_scores])
            raise ValueError(
                f"loss: expected the name of a loss ('vicinal losses' lists them), got {short(part)}{hint}"
            )
        main.append(part)
    return LossText(" + ".join(main) or None, tuple(terms))


def _addends(text: str) -> list[str]:
    """``text`` cut at each ``+`` outside of brackets, quotes and numbers."""
    parts, depth, start, quote = [], 0, 0, ""
    for place, sign in enumerate(text):
        if quote or sign in "'\"":
            quote = "" if sign == quote else quote or sign
        elif sign in "([":
            depth += 1
        elif sign in ")]":
            depth -= 1
        elif sign == "+" and depth == 0 and not _EXPONENT.search(text[start:place]):
            parts.append(text[start:place].strip())
            start = place + 1
    parts.append(text[start:].strip())
    if not all(parts):
        raise ValueError(f"loss: expected losses with + between them, got {short(text)}")
    return parts


def _term(name: str, factor: str | None, brackets: str | None) -> Term:
    settings = _checked(name, read_settings(name, brackets or "()"))
    miner = settings.pop("miner", None)
    if isinstance(miner, str):
        miner = (miner, {})
    if miner is not None:
        miner = _checked_miner(*miner)
    try:
        weight = check_between("weight", 1.0 if factor is None else float(factor), 0, float("inf"))
        term = Term(name, weight, settings, miner)
        _try(term)
    except TypeError as wrong:  # a setting of the wrong type is what the user wrote, not a fault of a program
        if not _SENTENCE.match(str(wrong)):
            raise
        raise ValueError(str(wrong)) from wrong
    return term


def _checked(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    facts = entry("pair_loss", name).facts
    also = [each for each in CRITERION if each != "per_class"]
    if {"proxies", "proxy-rows"} & facts:
        also = [each for each in CRITERION if each != "miner"]
    check_names("loss", name, settings, list(own_settings(entry("pair_loss", name).factory)), also)
    check_choice("reduction", settings.get("reduction", "mean"), ("mean", "sum", "mean_nonzero"))
    if not isinstance(settings.get("normalize", True), bool):
        raise ValueError(f"normalize: expected True or False, got {short(settings['normalize'])}")
    return settings


def _checked_miner(name: str, settings: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    usable = {each.name: own_settings(each.factory) for each in entries("miner")}
    usable = {n: s for n, s in usable.items() if inspect.Parameter.empty not in {**s, "dim": 0}.values()}
    name = name.replace("-", "_").lower()
    name = check_choice("miner", RENAMED_MINERS.get(name, name), usable)
    check_names("miner", name, settings, [each for each in usable[name] if each != "generator"], [])
    return name, settings


def _try(term: Term) -> None:
    """Run the loss on a few made-up rows, so that a wrong value is refused before anything is trained."""
    criterion = term.make(num_classes=2, dim=2)
    embeddings = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    labels = torch.tensor([0, 0, 1, 1])
    with seeded(), torch.no_grad():
        criterion(embeddings, labels.float() if "number-relation" in criterion.facts else labels)


_CALL = re.compile(r"\s*([A-Za-z][\w-]*)\s*\((.*)\)\s*", re.DOTALL)


def parse(text: str) -> nn.Module:
    """The loss that ``text`` describes: a registered name, then after a colon or in brackets what it is made of.

    For a loss of predictions this is a link or scaling in the grammar of :func:`vicinal.links.parse`, and settings by
    name, with commas between them. For a pair loss these are its settings and those of :class:`EmbeddingLoss`, since
    that is what it becomes. Sums with a loss of embeddings are for estimators; :func:`read_loss` splits them.

    Raises:
        TypeError: if ``text`` is not a string.
        ValueError: for an unknown loss, link or setting, naming it and the nearest.

    >>> parse("matching:sigmoid(scale=2,shift=0.7)").link
    Sigmoid(scale=2, shift=0.7)
    >>> parse("composite_softmax: sinh(scale=.5), gamma=2").link
    CompositeSoftmax(
      gamma=2
      (scaling): Sinh(scale=0.5)
    )
    >>> parse("softmax:gamma=2").verdict.convex
    'jointly'
    >>> parse("supcon(temperature=.2, similarity=dot)")
    EmbeddingLoss(
      supcon, temperature=0.2, reduction='mean'
      (similarity): Dot()
    )
    """
    written = read_loss(text)
    if written.terms:
        (*others, term) = written.terms
        if others or written.main or term.weight != 1:
            raise ValueError(
                f"loss: expected one loss without a factor, got {short(text)}; take it apart with read_loss"
            )
        return term.make()
    return _of_predictions(text)


def matching_link(text: str) -> str | None:
    """The link in the text of a matching loss of single scores, as :func:`vicinal.links.parse` reads it; else None.

    >>> matching_link("matching:sinh(scale=.5) + 0.2*sigmoid + 0.5*supcon"), matching_link("supcon")
    ('sinh(scale=0.5) + 0.2 * sigmoid', None)
    """
    main = read_loss(text).main
    name, settings = _named(main or "")
    if name.strip().lower() != "matching":
        return None
    call = _CALLED.parse_call("matching", settings)
    link = next(iter(call.args), None) or next(each.value for each in call.keywords if each.arg == "link")
    return ast.unparse(link)


_CALLED = Grammar("loss", "a link and settings", "matching: sigmoid(scale=2)")


def _named(text: str) -> tuple[str, str]:
    """Name and settings of a loss of predictions."""
    brackets = _CALL.fullmatch(text)
    name, _, settings = text.partition(":")
    return (brackets[1], brackets[2]) if brackets else (name, settings)


def _of_predictions(text: str) -> nn.Module:
    name, settings = _named(text)
    known = {entry.name: entry.factory for entry in entries("loss")}
    classes = {entry.name for entry in entries("class_loss")}
    loss = check_choice("loss", name.strip().replace("-", "_").lower(), {*known, *classes})
    if loss in classes:
        return _of_classes(loss, settings)
    if not inspect.isclass(known[loss]):
        raise ValueError(f"loss: expected a loss of scores, got {loss}, which is called in another way")
    call = _CALLED.parse_call(loss, settings)
    positional, named = LinkGrammar().arguments(call)
    loss_module: nn.Module
    try:
        loss_module = known[loss](*positional, **named)
    except TypeError as error:
        raise ValueError(
            f"loss: expected what {loss} is made of after the colon, got {short(settings)}: {error}"
        ) from error
    return loss_module


def _of_classes(name: str, text: str) -> ClassLoss:
    """A loss of class scores, tried on two rows, so that a wrong setting is refused before anything is trained."""
    settings = read_settings(name, f"({text})", "class_loss")
    parameters = inspect.signature(entry("class_loss", name).factory).parameters.values()
    numbers = [p for p in parameters if p.name in own_settings(entry("class_loss", name).factory)]
    numbers = [p for p in numbers if not re.search("Tensor|Generator", str(p.annotation))]  # what can be written
    check_names("loss", name, settings, [p.name for p in numbers], ["reduction"])
    if "perturbed-scores" in entry("class_loss", name).facts:
        raise ValueError(f"loss: expected one that needs nothing but scores of classes, got {name}; call it yourself")
    loss = ClassLoss(name, **settings)
    try:
        with seeded(), torch.no_grad():
            loss(torch.eye(2), torch.eye(2))
    except TypeError as wrong:
        raise ValueError(str(wrong)) from wrong
    return loss
