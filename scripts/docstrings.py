"""Docstrings as the site reads them: doctests set as code, and names in the form of Markdown.

An extension of griffe, named in mkdocs.yml.
"""

import ast
import re
import textwrap
from typing import Any

import griffe

DOCTESTS = re.compile(r"^>>> .+(?:\n.+)*(?:\n\n>>> .+(?:\n.+)*)*", re.MULTILINE)
ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):`~?([^`]+)`")


class Docstrings(griffe.Extension):
    """Puts each run of doctests under a heading of examples, which the docstring style knows.

    What a package imports ``as`` itself is public in it, as PEP 484 has it.
    """

    def on_module_members(self, *, node: Any, mod: griffe.Module, **_: Any) -> None:
        """Called for every module whose members were read."""
        imports = [part for part in ast.walk(node) if isinstance(part, ast.ImportFrom)] if node is not None else []
        public = [alias.name for part in imports for alias in part.names if alias.name == alias.asname]
        if public and mod.exports is None:
            mod.exports = list(public)

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every module, class, function and attribute that was read."""
        if obj.docstring is not None:
            text = ROLE.sub(r"`\1`", obj.docstring.value)
            obj.docstring.value = DOCTESTS.sub(_as_section, text)


def _as_section(found: re.Match[str]) -> str:
    return "Examples:\n" + textwrap.indent(found[0], "    ")
