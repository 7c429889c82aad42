"""Settings of losses and miners as text: what there are, and reading ``(temperature=.1, miner=semihard)``."""

import ast
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from vicinal.core import entry, nearest
from vicinal.links.parse import read_expression

_GIVEN = ("lengths", "history", "negatives", "per_class")  # what criteria give to a loss, not users


def read_settings(name: str, brackets: str) -> dict[str, Any]:
    """Settings by name from ``(temperature=.1, similarity=l2)``.

    >>> read_settings("triplet", "(margin=.1, miner=semihard(margin=.2), triplets=semi-hard)")
    {'margin': 0.1, 'miner': ('semihard', {'margin': 0.2}), 'triplets': 'semi-hard'}
    """
    call = read_expression(f"f{brackets}", "loss")
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError(f"loss: expected settings of {name} in one pair of brackets, got {brackets!r}")
    if call.args:
        own = own_settings(entry("pair_loss", name).make)
        example = next((f"{name}({setting}={value})" for setting, value in own.items()), f"{name}(similarity=l2)")
        raise ValueError(f"loss: expected settings by name, as {example}, got {name}({ast.unparse(call.args[0])})")
    return {keyword.arg or "**": _literal(name, keyword.value) for keyword in call.keywords}


def _literal(name: str, node: ast.expr) -> Any:
    """A number, text, truth value or None; a name stands for itself, and one with brackets for a miner."""
    if isinstance(node, ast.Constant) and (node.value is None or type(node.value) in (int, float, str, bool)):
        return node.value
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _literal(name, node.operand)
        if type(value) in (int, float):
            return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):  # a word with a hyphen, as semi-hard
        sides = [_literal(name, side) for side in (node.left, node.right)]
        if all(isinstance(side, str) for side in sides):
            return "-".join(sides)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
        return node.func.id, {keyword.arg or "**": _literal(name, keyword.value) for keyword in node.keywords}
    raise ValueError(f"loss: expected numbers and words as settings of {name}, got {ast.unparse(node)!r}")


def own_settings(function: Callable[..., Any]) -> dict[str, Any]:
    """Settings that users give to a pair loss or a miner, with defaults (``inspect.Parameter.empty`` if needed).

    >>> from vicinal.losses import supcon
    >>> own_settings(supcon)
    {'temperature': 0.1}
    """
    found = inspect.signature(function).parameters.values()
    own = [p for p in found if p.kind is inspect.Parameter.KEYWORD_ONLY and p.name not in ("reduction", *_GIVEN)]
    return {p.name: p.default for p in own}


def needs_dim(miner: Callable[..., Any]) -> bool:
    """Whether a miner must be told the width of the embeddings."""
    return own_settings(miner).get("dim", 0) is inspect.Parameter.empty


def check_names(what: str, name: str, given: Mapping[str, Any], known: list[str], also: list[str]) -> None:
    """Check that the settings ``given`` to ``name`` are ``known`` to it or are ``also`` allowed.

    Raises:
        ValueError: for one that is not, with all that are and the nearest.
    """
    for setting, value in given.items():
        if setting not in (*known, *also):
            listed = ", ".join(known) or "none of its own"
            more = f"; also {', '.join(also)}" if also else ""
            hint = nearest(setting, [*known, *also])
            raise ValueError(f"{what}: expected settings of {name} ({listed}{more}), got {setting!r}{hint}")
        if isinstance(value, tuple) and setting != "miner":
            raise ValueError(f"{what}: expected a number or a word for {setting}, got {value[0]}(...)")
