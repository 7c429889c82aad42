"""Links written as text, ``sinh(scale=.5) + 0.2*sigmoid``, read by a small grammar; nothing is ever evaluated."""

import ast
from collections.abc import Callable
from typing import Any

from vicinal.core import check_choice, entries, short
from vicinal.core.grammar import Grammar
from vicinal.links.curve import Curve, Flip
from vicinal.links.piecewise import Piecewise, Staircase
from vicinal.links.sensitivity import design

_ALIASES = {"asinh": "arcsinh", "atan": "arctan", "asin": "arcsin", "atanh": "arctanh", "linear": "identity"}


def _flip(curve: Curve) -> Curve:
    return Flip(_checked(curve, "flip"))


def _cap(curve: Curve, low: float | None = None, high: float | None = None, tails: Any = "linear") -> Curve:
    return _checked(curve, "cap").cap(low, high, tails=tails)


def _checked(curve: Any, method: str) -> Curve:
    if not isinstance(curve, Curve):
        raise ValueError(f"link: expected a curve before .{method}, got {short(curve)}")
    return curve


_FUNCTIONS: dict[str, Callable[..., Any]] = {
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
    result = LinkGrammar().read(text)
    if not isinstance(result, Curve):
        raise ValueError(f"link: expected a curve such as 'sigmoid(scale=2)', got {short(text)}")
    return result


class LinkGrammar(Grammar):
    """The grammar of :func:`parse`: names and calls are curves; also lists of numbers, sums and factors."""

    sign_hint = "; to mirror, use .flip()"

    def __init__(self) -> None:
        super().__init__("link", "curves, numbers, + and *", "sinh(scale=.5) + 0.2*sigmoid")

    def visit_List(self, node: ast.List | ast.Tuple) -> list[Any]:
        """Values in square brackets, or in round ones."""
        return [self.visit(item) for item in node.elts]

    visit_Tuple = visit_List

    def visit_Name(self, node: ast.Name) -> Any:
        """A curve of no settings."""
        return _call(_maker(node.id), [], {}, node.id)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        """A sum of curves, or a curve times a number."""
        left, right = self.visit(node.left), self.visit(node.right)
        if isinstance(node.op, ast.Add) and isinstance(left, Curve) and isinstance(right, Curve):
            return left + right
        if isinstance(node.op, ast.Mult) and isinstance(left, Curve) != isinstance(right, Curve):
            curve, factor = (left, right) if isinstance(left, Curve) else (right, left)
            if type(factor) in (int, float):
                return curve * factor
        raise ValueError(f"link: expected curve + curve or number * curve, got {short(ast.unparse(node))}")

    def visit_Call(self, node: ast.Call) -> Any:
        """A curve with settings, or a method of one."""
        positional, named = self.arguments(node)
        if isinstance(node.func, ast.Attribute):
            method = check_choice("link", node.func.attr, _METHODS)
            return _call(_FUNCTIONS[method], [self.visit(node.func.value), *positional], named, method)
        if not isinstance(node.func, ast.Name):
            raise ValueError(f"link: expected the name of a curve, got {short(ast.unparse(node.func))}")
        return _call(_maker(node.func.id), positional, named, node.func.id)


def _maker(name: str) -> Callable[..., Any]:
    known = {entry.name: entry.factory for kind in ("link", "curve") for entry in entries(kind)} | _FUNCTIONS
    return known[check_choice("link", _ALIASES.get(name, name), known)]


def _call(maker: Callable[..., Any], positional: list[Any], named: dict[str, Any], name: str) -> Any:
    try:
        return maker(*positional, **named)
    except TypeError as error:
        raise ValueError(f"link: expected settings that {name} has, got {error}") from error
