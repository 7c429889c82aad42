"""Losses written as text, ``matching:sigmoid(scale=2,shift=0.7)``; nothing is ever evaluated."""

import ast
import re
from typing import Any

from torch import nn

from vicinal.core import check_choice, entries
from vicinal.links.parse import parse_value, read_expression
from vicinal.losses.terms import read_loss

_CALL = re.compile(r"\s*([A-Za-z][\w-]*)\s*\((.*)\)\s*", re.DOTALL)


def parse(text: str) -> nn.Module:
    """The loss that ``text`` describes: a registered name, then after a colon or in brackets what it is made of.

    For a loss of predictions this is a link or scaling in the grammar of :func:`vicinal.links.parse`, and settings by
    name, with commas between them. For a pair loss these are its settings and those of :class:`EmbeddingLoss`, which
    is what it becomes. Sums with a loss of embeddings are for estimators; :func:`read_loss` takes them apart.

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
            raise ValueError(f"loss: expected one loss without a factor, got {text!r}; take it apart with read_loss")
        return term.make()
    return _of_predictions(text)


def _of_predictions(text: str) -> nn.Module:
    brackets = _CALL.fullmatch(text)
    name, _, settings = text.partition(":")
    if brackets:
        name, settings = brackets.groups()
    known = {entry.name: entry.make for entry in entries("loss")}
    found = check_choice("loss", name.strip().replace("-", "_").lower(), known)
    call = read_expression(f"loss({settings})", "loss")
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id != "loss":
        raise ValueError(f"loss: expected a link and settings after {name!r} and a colon, got {settings!r}")
    positional = [parse_value(argument) for argument in call.args]
    named: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg is None:
            raise ValueError(f"loss: expected settings by name, got {settings!r}")
        named[keyword.arg] = parse_value(keyword.value)
    try:
        made = known[found](*positional, **named)
    except TypeError as error:
        raise ValueError(
            f"loss: expected what {found} is made of after the colon, got {settings!r}: {error}"
        ) from error
    if not isinstance(made, nn.Module):
        raise ValueError(f"loss: expected a loss of scores, got {found!r}, which is called in another way")
    return made
