"""Losses written as text, ``matching:sigmoid(scale=2,shift=0.7)``; nothing is ever evaluated."""

import ast
from typing import Any

from torch import nn

from vicinal.core import check_choice, entries
from vicinal.links.parse import parse_value, read_expression


def parse(text: str) -> nn.Module:
    """The loss that ``text`` describes: a registered name, then after a colon what it is made of.

    The part behind the colon is a link or scaling in the grammar of :func:`vicinal.links.parse`, and settings by
    name, with commas between them.

    Raises:
        TypeError: if ``text`` is not a string.
        ValueError: for an unknown loss, link or setting, naming it.

    >>> parse("matching:sigmoid(scale=2,shift=0.7)").link
    Sigmoid(scale=2, shift=0.7)
    >>> parse("composite_softmax: sinh(scale=.5), gamma=2").link
    CompositeSoftmax(
      gamma=2
      (scaling): Sinh(scale=0.5)
    )
    >>> parse("softmax:gamma=2").verdict.convex
    'jointly'
    """
    if not isinstance(text, str):
        raise TypeError(f"loss: expected text such as 'matching:exp', got {type(text).__name__}")
    name, _, settings = text.partition(":")
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
