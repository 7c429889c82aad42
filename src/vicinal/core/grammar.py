"""The grammar of links and losses as text, ``sinh(scale=.5) + 0.2*sigmoid``: the syntax tree is read, never run."""

import ast
from typing import Any

from vicinal.core.checks import short

_MAX_LENGTH = 2000
_MAX_DEPTH = 30


class Grammar(ast.NodeVisitor):
    """Reads the values of expressions: numbers, text, truth values and None.

    A subclass defines the meaning of names, calls, lists and operators by ``visit_Name`` and so on; anything else is
    refused.

    Args:
        what: the name that errors begin with, "link" or "loss".
        content: what an expression may hold, for errors.
        example: an expression of the grammar, for errors.

    >>> Grammar("link", "numbers", "-2.5").read("-2.5")
    -2.5
    >>> Grammar("link", "numbers", "-2.5").read("1 + 1")
    Traceback (most recent call last):
    ValueError: link: expected numbers, got '1 + 1'
    """

    sign_hint = ""
    """Added to an error about a sign."""

    def __init__(self, what: str, content: str, example: str) -> None:
        self.what, self.content, self.example, self._depth = what, content, example, 0

    def read(self, text: str) -> Any:
        """The value of ``text``.

        Raises:
            TypeError: if ``text`` is not a string.
            ValueError: if it is too long, nested too deep, or not an expression of this grammar.
        """
        return self.visit(self.parse(text))

    def parse(self, text: str) -> ast.expr:
        """The syntax tree of ``text``, a single expression of bounded length; raises the errors of :meth:`read`."""
        if not isinstance(text, str):
            raise TypeError(f"{self.what}: expected text, got {type(text).__name__}")
        if len(text) > _MAX_LENGTH:
            raise ValueError(f"{self.what}: expected at most {_MAX_LENGTH} characters, got {len(text)}")
        try:
            return ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ValueError(f"{self.what}: expected text such as {self.example!r}, got {short(text)}") from error

    def parse_call(self, name: str, settings: str) -> ast.Call:
        """The call ``name(settings)``; raises the errors of :meth:`read`, also if it is not a single call."""
        call = self.parse(f"{name}({settings})")
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError(f"{self.what}: expected settings of {name} as in {self.example!r}, got {short(settings)}")
        return call

    def arguments(self, call: ast.Call) -> tuple[list[Any], dict[str, Any]]:
        """The positional and the keyword arguments of ``call``.

        Raises:
            ValueError: for a value that is refused, and for ``**``.
        """
        positional = [self.visit(argument) for argument in call.args]
        for keyword in call.keywords:
            if keyword.arg is None:
                raise ValueError(
                    f"{self.what}: expected settings by name, got {short('**' + ast.unparse(keyword.value))}"
                )
        return positional, {str(keyword.arg): self.visit(keyword.value) for keyword in call.keywords}

    def visit(self, node: ast.AST) -> Any:
        """The value of ``node``."""
        if self._depth > _MAX_DEPTH:
            raise ValueError(f"{self.what}: expected at most {_MAX_DEPTH} levels of brackets")
        self._depth += 1
        try:
            return super().visit(node)
        finally:
            self._depth -= 1

    def generic_visit(self, node: ast.AST) -> Any:
        """Refuse a node that no other method reads."""
        raise ValueError(f"{self.what}: expected {self.content}, got {short(ast.unparse(node))}")

    def visit_Constant(self, node: ast.Constant) -> Any:
        """A number, text, a truth value or None."""
        is_plain = node.value is None or type(node.value) in (int, float, str, bool)
        return node.value if is_plain else self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        """A number with a sign."""
        if not isinstance(node.op, ast.USub | ast.UAdd):
            return self.generic_visit(node)
        value = self.visit(node.operand)
        if type(value) not in (int, float):
            got = short(ast.unparse(node))
            raise ValueError(f"{self.what}: expected a number after the sign, got {got}{self.sign_hint}")
        return -value if isinstance(node.op, ast.USub) else value
