"""Losses as text, read by a small grammar and never evaluated.

``matching:sigmoid(scale=2,shift=0.7)`` is a loss of predictions, ``0.5*supcon(temperature=.1) + 0.05*energy_confusion``
one of embeddings with a regularizer. Also here: which labels a loss takes, and which settings it has.
"""

import ast
import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch import nn

from vicinal.core import check_choice, entries, entry, nearest, short
from vicinal.core.checks import check_between
from vicinal.core.grammar import Grammar
from vicinal.core.seeding import seeded
from vicinal.links.parse import LinkGrammar
from vicinal.losses.class_contract import ClassLoss
from vicinal.losses.contract import own_settings
from vicinal.losses.elsewhere import ELSEWHERE, TAUGHT, peer_hint, refusal
from vicinal.losses.embedding import EmbeddingLoss, miner_name, plain_name
from vicinal.losses.proxy_loss import ProxyLoss
from vicinal.losses.regularizer_loss import RegularizerLoss, of_embeddings

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


def check_term(term: "Term", kind: str, *, several: bool = False) -> None:
    """Check that a term takes labels that are "numbers" or "classes", ``several`` of them in a row.

    Raises:
        ValueError: with those that do.

    >>> check_term(Term("energy_confusion"), "numbers")
    Traceback (most recent call last):
    ValueError: loss: expected a term for labels that are numbers (coding_rate, ...), got energy_confusion, which ...
    """
    if not term.is_regularizer:
        check_label_kind(term.name, term.facts, kind)
    elif "class-labels" in term.facts and (kind != CLASSES or several):
        names = [name for name in of_embeddings() if "class-labels" not in entry("regularizer", name).facts]
        labels = "several classes a row" if several else kind
        raise ValueError(
            f"loss: expected a term for labels that are {labels} ({', '.join(names)}), got {term.name}, which takes "
            "one class a row"
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


_ADDEND = re.compile(r"(-?)\s*(?:([\d.]+(?:[eE][+-]?\d+)?)\s*\*)?\s*([A-Za-z][\w-]*)\s*(\(.*\))?", re.DOTALL)
_LESS = re.compile(r"-\s*(?:[\d.]+(?:[eE][+-]?\d+)?\s*\*\s*)?([A-Za-z][\w-]*)")
_SENTENCE = re.compile(r"\w+: expected ")
_EXPONENT = re.compile(r"\d\.?[eE]$")
NEGATIVE_DISTANCES = ("rank_n_contrast", "log_ratio", "nlsh")
"""Losses made for negative distances: written as text they compare by l2, all others by cosine."""
CRITERION = {
    "similarity": "how two embeddings are compared: cosine, l2, squared_l2, l1, dot or scaled_dot",
    "normalize": "scale embeddings to length 1 first",
    "reduction": "mean, sum or mean_nonzero",
    "miner": "which pairs count: a miner, with settings in brackets",
    "per_class": "learned vectors of each class",
}
"""What may also stand in the brackets of a loss, beside its own settings."""


Criterion: TypeAlias = EmbeddingLoss | ProxyLoss | RegularizerLoss


@dataclass(frozen=True)
class Term:
    """A loss or regularizer of embeddings as it was written.

    Attributes:
        name: of the registry.
        weight: factor of its value; > 0, of a regularizer not 0.
        settings: of the loss and of the criterion around it.
        miner: name and settings of a miner, or None.
    """

    name: str
    weight: float = 1.0
    settings: Mapping[str, Any] = field(default_factory=dict)
    miner: tuple[str, Mapping[str, Any]] | None = None

    @property
    def is_regularizer(self) -> bool:
        """Whether it is to be added to a loss."""
        return self.name in of_embeddings()

    @property
    def facts(self) -> frozenset[str]:
        """What it declares about itself."""
        return entry("regularizer" if self.is_regularizer else "pair_loss", self.name).facts

    def make(self, *, num_classes: int | None = None, dim: int | None = None) -> Criterion:
        """The criterion.

        Args:
            num_classes: how many classes there are; for losses against learned vectors or centers of classes.
            dim: width of the embeddings; likewise, and for miners that ask for it.

        Raises:
            ValueError: if one of them is needed and not given.
        """
        if self.is_regularizer:
            return RegularizerLoss(self.name, num_classes, dim, **self.settings)
        settings = {"similarity": "l2" if self.name in NEGATIVE_DISTANCES else "cosine", **self.settings}
        if not {"proxies", "proxy-rows"} & self.facts:
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
        terms: losses and regularizers of embeddings that are added to it.
    """

    main: str | None
    terms: tuple[Term, ...]


def read_loss(text: str, miner: str | None = None) -> LossText:
    """Tell the loss of predictions in ``text`` from the losses of embeddings that are added to it.

    Parts are added with ``+``. A part that starts with the name of a pair loss or a regularizer of embeddings
    (``vicinal losses``), after a factor if it has one, is a term of embeddings; its parentheses hold settings by name,
    and plain words are text. A regularizer may also be subtracted. All other parts make up the loss of predictions.

    Args:
        text: as above.
        miner: of the losses of pairs that name none, as ``semihard`` or ``semihard(margin=.1)``.

    Raises:
        TypeError: if ``text`` is not a string.
        ValueError: naming a loss or setting that does not exist, with the nearest.

    >>> read_loss("matching:sinh + 0.2*sigmoid + 0.5*supcon(temperature=.1)")
    LossText(main='matching:sinh + 0.2*sigmoid', terms=(Term(name='supcon', weight=0.5, ...),))
    >>> read_loss("triplet(margin=0.1, miner=semihard) - 0.1*coding_rate").terms[1].weight
    -0.1
    """
    if not isinstance(text, str):
        raise TypeError(f"loss: expected text such as 'supcon(temperature=0.1)', got {type(text).__name__}")
    known = _term_names()
    of_scores = [each.name for kind in ("loss", "class_loss") for each in entries(kind)]
    main: list[str] = []
    terms = []
    for part in _addends(text):
        each = _ADDEND.fullmatch(part)
        name = plain_name(each[3]) if each else ""
        if each and name in known:
            terms.append(_term(name, each[1], each[2], each[4]))
            continue
        start = plain_name(re.split(r"[:(]", part)[0])
        if name in ELSEWHERE or start in ELSEWHERE:
            raise ValueError(refusal(name if name in ELSEWHERE else start))
        if not main and start not in of_scores:
            hint = peer_hint(name or start, [*known, *of_scores])
            raise ValueError(
                f"loss: expected the name of a loss ('vicinal losses' lists them), got {short(part)}{hint}"
            )
        main.append(part)
    return LossText(" + ".join(main) or None, tuple(terms if miner is None else _mined(terms, miner)))


def _mined(terms: list[Term], text: str) -> list[Term]:
    """The terms, those of pairs that name no miner with this one."""
    if not isinstance(text, str):
        raise TypeError(f"miner: expected a name such as 'semihard', got {short(text)}; EmbeddingLoss takes functions")
    named = read_settings("triplet", f"(miner={text})")["miner"]
    miner = _checked_miner(*((named, {}) if isinstance(named, str) else named))
    takes = [not (term.is_regularizer or term.miner or {"proxies", "proxy-rows"} & term.facts) for term in terms]
    if not any(takes):
        raise ValueError(
            f"miner: expected a loss of pairs to choose pairs for, got {' + '.join(term.name for term in terms)}"
        )
    return [replace(term, miner=miner) if taken else term for term, taken in zip(terms, takes, strict=True)]


def _addends(text: str) -> list[str]:
    """``text`` cut at each ``+`` outside of brackets, quotes and numbers, and before a term that is subtracted."""
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
        elif sign == "-" and depth == 0 and text[place - 1 : place] == " " and _subtracted(text, place):
            parts.append(text[start:place].strip())
            start = place
    parts.append(text[start:].strip())
    if not all(parts):
        raise ValueError(f"loss: expected losses with + between them, got {short(text)}")
    return parts


def _subtracted(text: str, place: int) -> bool:
    """Whether the minus at ``place`` is before a term of embeddings."""
    term = _LESS.match(text, place)
    return term is not None and plain_name(term[1]) in _term_names()


def _term_names() -> list[str]:
    return [*(each.name for each in entries("pair_loss")), *of_embeddings()]


def _term(name: str, sign: str, factor: str | None, brackets: str | None) -> Term:
    kind = "regularizer" if name in of_embeddings() else "pair_loss"
    settings = _checked(name, read_settings(name, brackets or "()", kind), kind)
    miner = settings.pop("miner", None)
    if isinstance(miner, str):
        miner = (miner, {})
    if miner is not None:
        miner = _checked_miner(*miner)
    with _written():
        weight = check_between("weight", 1.0 if factor is None else float(factor), 0, float("inf"))
        if sign and kind != "regularizer":
            raise ValueError(f"loss: expected {name} to be added, got it subtracted; only regularizers may be")
        term = Term(name, -weight if sign else weight, settings, miner)
        _try(term)
    return term


@contextlib.contextmanager
def _written() -> Iterator[None]:
    """A setting of the wrong type is what the user wrote, not a fault of a program: a ValueError, not a TypeError."""
    try:
        yield
    except TypeError as wrong:
        if not _SENTENCE.match(str(wrong)):
            raise
        raise ValueError(str(wrong)) from wrong


def _checked(name: str, settings: dict[str, Any], kind: str) -> dict[str, Any]:
    one = entry(kind, name)
    never = "miner" if {"proxies", "proxy-rows"} & one.facts else "per_class"
    also = ["normalize"] if kind == "regularizer" else [each for each in CRITERION if each != never]
    check_names("loss", name, settings, [each for each in own_settings(one.factory) if each != "class_pairs"], also)
    check_choice("reduction", settings.get("reduction", "mean"), ("mean", "sum", "mean_nonzero"))
    if not isinstance(settings.get("normalize", True), bool):
        raise ValueError(f"normalize: expected True or False, got {short(settings['normalize'])}")
    return settings


def _checked_miner(name: str, settings: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    usable = {each.name: own_settings(each.factory) for each in entries("miner")}
    usable = {n: s for n, s in usable.items() if inspect.Parameter.empty not in {**s, "dim": 0}.values()}
    name = check_choice("miner", miner_name(name), usable)
    check_names("miner", name, settings, [each for each in usable[name] if each != "generator"], [])
    return name, settings


def _try(term: Term) -> None:
    """Run the loss on a few made-up rows, so that a wrong value is refused before anything is trained."""
    criterion = term.make(num_classes=2, dim=2)
    embeddings = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    labels = torch.tensor([0, 0, 1, 1])
    with seeded(), torch.no_grad():
        criterion(embeddings, labels.float() if "number-relation" in term.facts else labels)


def read_teacher_loss(text: str) -> Callable[..., torch.Tensor]:
    """A loss of similarities and a teacher's similarities, ``kl_top(temperature=2)``; its names are ``TAUGHT``.

    Raises:
        ValueError: for another name or setting, or a value out of range.

    >>> read_teacher_loss("kl_top(k=1)")(torch.zeros(1, 2), torch.eye(2)[:1])
    tensor(0.)
    """
    name, settings = _named(text)
    name = check_choice("loss", plain_name(name), ("none", "matching", *TAUGHT))
    named = read_settings(name, f"({settings})", "teacher_loss")
    loss = entry("teacher_loss", name).factory
    check_names("loss", name, named, [each for each in own_settings(loss) if each != "duplicates"], [])
    chosen = functools.partial(loss, **named) if named else loss
    with _written():
        chosen(torch.zeros(2, 3), torch.zeros(2, 3))
    return chosen


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
    loss = check_choice("loss", plain_name(name), {*known, *classes})
    if loss in classes:
        return _of_classes(loss, settings)
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
    loss = ClassLoss(name, **settings)
    with _written(), seeded(), torch.no_grad():
        loss(torch.eye(2), torch.eye(2))
    return loss
