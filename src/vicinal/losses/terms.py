"""Losses of embeddings as text, ``0.5*supcon(temperature=.1) + triplet(miner=semihard)``; nothing is evaluated."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from vicinal.core import check_between, check_choice, entries, entry, nearest
from vicinal.losses.embedding import EmbeddingLoss
from vicinal.losses.proxies import ProxyLoss
from vicinal.losses.settings import check_names, needs_dim, own_settings, read_settings

_ADDEND = re.compile(r"(?:([\d.]+(?:[eE][+-]?\d+)?)\s*\*)?\s*([A-Za-z][\w-]*)\s*(\(.*\))?", re.DOTALL)
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
        made = entry("miner", name).make
        if needs_dim(made) and "dim" not in settings:
            if dim is None:
                raise ValueError(f"miner: expected {name}(dim=...), the width of the embeddings, got no dim")
            settings = {"dim": dim, **settings}
        return functools.partial(made, **settings)


@dataclass(frozen=True)
class LossText:
    """What a text asks to be trained by.

    Attributes:
        main: the part that names a loss of predictions, as :func:`vicinal.losses.parse` reads it, or None.
        terms: losses of embeddings that are added to it.
    """

    main: str | None
    terms: tuple[Term, ...]


def read_loss(text: str) -> LossText:
    """Tell the loss of predictions in ``text`` from the losses of embeddings that are added to it.

    Parts are added with ``+``. A part that starts with the name of a pair loss (``vicinal losses``), after a factor if
    it has one, is a loss of embeddings; its brackets hold settings by name, plain words being text. All others make up
    the loss of predictions.

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
    known = [found.name for found in entries("pair_loss")]
    of_scores = [found.name for found in entries("loss")]
    main: list[str] = []
    terms = []
    for part in _addends(text):
        found = _ADDEND.fullmatch(part)
        name = found[2].replace("-", "_").lower() if found else ""
        if found and name in known:
            terms.append(_term(name, found[1], found[3]))
            continue
        start = re.split(r"[:(]", part)[0].strip().replace("-", "_").lower()
        if not main and start not in of_scores:
            hint = nearest(name or start, [*known, *of_scores])
            raise ValueError(f"loss: expected the name of a loss ('vicinal losses' lists them), got {part!r}{hint}")
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
        raise ValueError(f"loss: expected losses with + between them, got {text!r}")
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
        made = Term(name, weight, settings, miner)
        _try(made)
    except TypeError as wrong:  # a setting of the wrong type is what the user wrote, not a fault of a program
        if not _SENTENCE.match(str(wrong)):
            raise
        raise ValueError(str(wrong)) from wrong
    return made


def _checked(name: str, given: dict[str, Any]) -> dict[str, Any]:
    facts = entry("pair_loss", name).facts
    also = [each for each in CRITERION if each != "per_class"]
    if {"proxies", "proxy-rows"} & facts:
        also = [each for each in CRITERION if each != "miner"]
    check_names("loss", name, given, list(own_settings(entry("pair_loss", name).make)), also)
    check_choice("reduction", given.get("reduction", "mean"), ("mean", "sum", "mean_nonzero"))
    if not isinstance(given.get("normalize", True), bool):
        raise ValueError(f"normalize: expected True or False, got {given['normalize']!r}")
    return given


def _checked_miner(name: str, given: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    usable = {found.name: own_settings(found.make) for found in entries("miner")}
    usable = {n: s for n, s in usable.items() if inspect.Parameter.empty not in {**s, "dim": 0}.values()}
    name = check_choice("miner", name.replace("-", "_").lower(), usable)
    check_names("miner", name, given, [each for each in usable[name] if each != "generator"], [])
    return name, given


def _try(term: Term) -> None:
    """Run the loss on a few made-up rows, so that a wrong value is refused before anything is trained."""
    criterion = term.make(num_classes=2, dim=2)
    embeddings = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    labels = torch.tensor([0, 0, 1, 1])
    with torch.random.fork_rng(), torch.no_grad():
        criterion(embeddings, labels.float() if "number-relation" in criterion.facts else labels)
