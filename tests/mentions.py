"""What a test speaks of, read from its source: its own words and those of the helpers, tables and references it uses.

Nothing is run. A name is followed to its definition in the test's file, from there to the files of ``references`` and
other helpers among the tests; a parameter is followed to the fixture of that name, also in ``conftest.py``.
"""

import ast
import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Source:
    """One file of the tests.

    Attributes:
        definitions: name -> the statements at the top level that bind it.
        helpers: name -> the file it is imported from, and its name there (None: the file itself).
    """

    path: Path
    definitions: dict[str, list[ast.stmt]] = field(default_factory=lambda: defaultdict(list))
    helpers: dict[str, tuple[Path, str | None]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The path from the folder of tests."""
        return self.path.relative_to(TESTS).as_posix()

    @property
    def functions(self) -> set[str]:
        """Names of functions at the top level."""
        return {name for name, nodes in self.definitions.items() if isinstance(nodes[0], FUNCTIONS)}


@cache
def source(path: Path) -> Source:
    """The file at ``path``, parsed."""
    parsed = Source(path)
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            parsed.helpers |= helpers(node)
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            parsed.definitions[node.name].append(node)
        else:
            for name in ast.walk(node):
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                    parsed.definitions[name.id].append(node)
    return parsed


def helpers(node: ast.Import | ast.ImportFrom) -> dict[str, tuple[Path, str | None]]:
    """The names that an import binds to files of the tests, or to what these define."""
    places: dict[str, tuple[Path, str | None]] = {}
    for alias in node.names:
        if isinstance(node, ast.Import):
            file, name = module_file(alias.name), None
        else:
            file, name = module_file(f"{node.module}.{alias.name}"), None
            if not file.is_file():
                file, name = module_file(node.module or ""), alias.name
        if file.is_file():
            places[alias.asname or alias.name] = file, name
    return places


def module_file(module: str) -> Path:
    """Where ``module`` would be among the tests."""
    return TESTS.joinpath(*module.split(".")).with_suffix(".py")


@dataclass
class Mentions:
    """Words and definitions that a test reaches.

    Attributes:
        names: names and attributes.
        texts: texts, docstrings apart.
        definitions: ``references/pair_losses.py::supcon`` of every function and table that it uses by name.
        offered: the same of those in helpers that it uses as a whole, as ``getattr(helper, name)`` does.
    """

    names: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    definitions: set[str] = field(default_factory=set)
    offered: set[str] = field(default_factory=set)

    @property
    def words(self) -> set[str]:
        """The words of all texts."""
        return {word for text in self.texts for word in re.findall(r"\w+", text)}

    def follow(self, file: Source, name: str) -> None:
        """Take in what ``name`` stands for in ``file``."""
        if name in file.helpers:
            path, there = file.helpers[name]
            if there is None:
                self.take_whole(source(path))
            else:
                self.follow(source(path), there)
        label = f"{file.label}::{name}"
        if name in file.definitions and label not in self.definitions:
            self.definitions.add(label)
            for node in file.definitions[name]:
                self.read(file, node)

    def take_whole(self, file: Source) -> None:
        """Take in all that ``file`` defines, as offered."""
        labels = {f"{file.label}::{name}" for name in file.definitions}
        if not labels <= self.offered:
            self.offered |= labels
            for name in file.definitions:
                for node in file.definitions[name]:
                    self.read(file, node)

    def read(self, file: Source, node: ast.AST) -> None:
        """Take in the words of ``node`` and follow its names."""
        if isinstance(node, ast.Attribute):
            self.names.add(node.attr)
            if isinstance(node.value, ast.Name) and node.value.id in file.helpers:
                path, there = file.helpers[node.value.id]
                if there is None:  # one function of a helper, not all of them
                    self.follow(source(path), node.attr)
                    return
        elif isinstance(node, ast.Name):
            self.names.add(node.id)
            self.follow(file, node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            self.texts.add(node.value)
        elif isinstance(node, ast.arg):
            self.fixture(file, node.arg)
        for child in ast.iter_child_nodes(node):
            if not is_docstring(child):
                self.read(file, child)

    def fixture(self, file: Source, name: str) -> None:
        """Take in the fixture ``name`` of the file, or of the nearest ``conftest.py`` that has it."""
        folders = [folder for folder in file.path.parents if folder.is_relative_to(TESTS)]
        places = [file.path, *(folder / "conftest.py" for folder in folders)]
        for path in places:
            if path.is_file() and name in source(path).functions:
                self.follow(source(path), name)
                return


def is_docstring(node: ast.AST) -> bool:
    """Whether ``node`` is a statement that is only a text."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def defines(place: str) -> bool:
    """Whether ``path::name``, from the folder of tests, is a function."""
    path, _, name = place.partition("::")
    return (TESTS / path).is_file() and name in source(TESTS / path).functions


@cache
def mentions(place: str) -> Mentions:
    """What the test ``path::name`` speaks of."""
    path, _, name = place.partition("::")
    reached = Mentions()
    reached.follow(source(TESTS / path), name)
    return reached
