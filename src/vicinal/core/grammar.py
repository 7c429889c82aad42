"""The one grammar of links and losses as text, ``sinh(scale=.5) + 0.2*sigmoid``: a syntax tree is read, never run."""

import ast
from typing import Any

from vicinal.core.checks import short

_MAX_LENGTH = 2000
_MAX_DEPTH = 30


class Grammar(ast.NodeVisitor):
    """Reads values out of expressions: numbers, text, truth values and None.

    What a name, a call, a list or an operator stands for, a subclass says by ``visit_Name`` and so on; what it does not
    say is refused.

    Args:
        what: what errors name, "link" or "loss".
        content: what they say may stand in an expression.
        example: an expression of the grammar, for errors.

    >>> Grammar("link", "numbers", "-2.5").read("-2.5")
    -2.5
    >>> Grammar("link", "numbers", "-2.5").read("1 + 1")
    Traceback (most recent call last):
    ValueError: link: expected numbers, got '1 + 1'
    """

    sign_hint = ""
    """What else an error on a sign says."""

    def __init__(self, what: str, content: str, example: str) -> None:
        self.what, self.content, self.example, self._depth = what, content, example, 0

    def read(self, text: str) -> Any:
        """The value of ``text``.

        Raises:
            TypeError: if ``text`` is not a string.
            ValueError: where it is too long, too deep, or no expression of this grammar.
        """
        return self.visit(self.parse(text))

    def parse(self, text: str) -> ast.expr:
        """The syntax tree of ``text``, a single expression of bounded length; raises as :meth:`read` does."""
        if not isinstance(text, str):
            raise TypeError(f"{self.what}: expected text, got {type(text).__name__}")
        if len(text) > _MAX_LENGTH:
            raise ValueError(f"{self.what}: expected at most {_MAX_LENGTH} characters, got {len(text)}")
        try:
            return ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ValueError(f"{self.what}: expected text such as {self.example!r}, got {short(text)}") from error

    def parse_call(self, name: str, settings: str) -> ast.Call:
        """The call ``name(settings)``; raises as :meth:`read` does, and where it is not that one call."""
        call = self.parse(f"{name}({settings})")
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError(f"{self.what}: expected settings of {name} as in {self.example!r}, got {short(settings)}")
        return call

    def arguments(self, call: ast.Call) -> tuple[list[Any], dict[str, Any]]:
        """The values in the brackets of ``call``, by place and by name.

        Raises:
            ValueError: for one that is refused, and for ``**``.
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
        """Refuse what no method reads."""
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
