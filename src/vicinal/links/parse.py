"""Links written as text, ``sinh(scale=.5) + 0.2*sigmoid``, read by a small grammar; nothing is ever evaluated."""

import ast
from collections.abc import Callable, Mapping
from typing import Any

from vicinal.core import check_choice, entries, short
from vicinal.links.curve import Curve, Flip
from vicinal.links.custom import Piecewise, Staircase
from vicinal.links.sensitivity import design

_MAX_LENGTH = 2000
_MAX_DEPTH = 30
_ALIASES = {"asinh": "arcsinh", "atan": "arctan", "asin": "arcsin", "atanh": "arctanh", "linear": "identity"}


def _flip(curve: Curve) -> Curve:
    return Flip(curve)


def _cap(curve: Curve, low: float | None = None, high: float | None = None, tails: Any = "linear") -> Curve:
    return curve.cap(low, high, tails=tails)


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "flip": _flip,
    "cap": _cap,
    "piecewise": Piecewise,
    "staircase": Staircase,
    "design": design,
}
_METHODS = ("flip", "cap")


def parse(text: str) -> Curve:
    """The curve that ``text`` describes.

    Names are those of the registry (``vicinal links`` lists them), with settings in brackets; curves add with ``+``,
    take a positive factor with ``*``, and have ``.flip()`` and ``.cap(low, high, tails="flat")``. Also
    ``piecewise([0, 1], [0, 2])``, ``staircase([0], [0, 1])`` and ``design("high", ratio=4)``.

    Raises:
        TypeError: if ``text`` is not a string.
        ValueError: for anything else than such text, naming what was not understood.

    >>> parse("sinh(scale=.5) + 0.2*sigmoid")
    Sum(Sinh(scale=0.5) + 0.2 * Sigmoid())
    >>> parse("__import__('os')")
    Traceback (most recent call last):
    ValueError: link: expected one of ...
    """
    result = parse_value(read_expression(text, "link"))
    if not isinstance(result, Curve):
        raise ValueError(f"link: expected a curve such as 'sigmoid(scale=2)', got {short(text)}")
    return result


def read_expression(text: str, name: str) -> ast.expr:
    """The syntax tree of ``text``, a single expression of bounded length.

    Raises:
        TypeError: if ``text`` is not a string.
        ValueError: naming ``name`` where it is too long or not an expression.
    """
    if not isinstance(text, str):
        raise TypeError(f"{name}: expected text, got {type(text).__name__}")
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"{name}: expected at most {_MAX_LENGTH} characters, got {len(text)}")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(
            f"{name}: expected a curve such as 'sinh(scale=.5) + 0.2*sigmoid', got {short(text)}"
        ) from error


def parse_value(node: ast.expr, depth: int = 0) -> Any:
    """A number, text, None, list of these, or a curve, from a syntax tree of the grammar of :func:`parse`."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"link: expected at most {_MAX_DEPTH} levels of brackets")
    if isinstance(node, ast.Constant) and (node.value is None or type(node.value) in (int, float, str, bool)):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [parse_value(item, depth + 1) for item in node.elts]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        return _signed(node, depth)
    if isinstance(node, ast.BinOp):
        return _combined(node, depth)
    if isinstance(node, ast.Name):
        return _make(_curve_class(node.id), [], {}, node.id)
    if isinstance(node, ast.Call):
        return _called(node, depth)
    raise ValueError(f"link: expected curves, numbers, + and *, got {short(ast.unparse(node))}")


def _signed(node: ast.UnaryOp, depth: int) -> float:
    value = parse_value(node.operand, depth + 1)
    if type(value) not in (int, float):
        raise ValueError(
            f"link: expected a number after the sign, got {short(ast.unparse(node))}; to mirror, use .flip()"
        )
    return -float(value) if isinstance(node.op, ast.USub) else float(value)


def _combined(node: ast.BinOp, depth: int) -> Any:
    left, right = parse_value(node.left, depth + 1), parse_value(node.right, depth + 1)
    curves, numbers = (Curve, Curve), (int, float)
    if isinstance(node.op, ast.Add) and isinstance(left, curves) and isinstance(right, curves):
        return left + right
    if isinstance(node.op, ast.Mult) and isinstance(left, Curve) != isinstance(right, Curve):
        curve, factor = (left, right) if isinstance(left, Curve) else (right, left)
        if type(factor) in numbers:
            return curve * factor
    raise ValueError(f"link: expected curve + curve or number * curve, got {short(ast.unparse(node))}")


def _called(node: ast.Call, depth: int) -> Any:
    positional = [parse_value(argument, depth + 1) for argument in node.args]
    named: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ValueError(f"link: expected settings by name, got {short(ast.unparse(node))}")
        named[keyword.arg] = parse_value(keyword.value, depth + 1)
    if isinstance(node.func, ast.Attribute):
        method = check_choice("link", node.func.attr, _METHODS)
        curve = parse_value(node.func.value, depth + 1)
        if not isinstance(curve, Curve):
            raise ValueError(f"link: expected a curve before .{method}, got {short(ast.unparse(node.func.value))}")
        return _make(_FUNCTIONS[method], [curve, *positional], named, method)
    if not isinstance(node.func, ast.Name):
        raise ValueError(f"link: expected the name of a curve, got {short(ast.unparse(node.func))}")
    name = node.func.id
    return _make(_FUNCTIONS[name] if name in _FUNCTIONS else _curve_class(name), positional, named, name)


def _curve_class(name: str) -> Callable[..., Any]:
    known = {entry.name: entry.factory for kind in ("link", "curve") for entry in entries(kind)}
    known_name = check_choice("link", _ALIASES.get(name, name), [*known, *_FUNCTIONS])
    return known[known_name] if known_name in known else _FUNCTIONS[known_name]


def _make(maker: Callable[..., Any], positional: list[Any], named: dict[str, Any], name: str) -> Any:
    try:
        return maker(*positional, **named)
    except TypeError as error:
        raise ValueError(f"link: expected settings that {name} has, got {error}") from error
