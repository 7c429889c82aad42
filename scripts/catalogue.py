"""The catalogue of methods: what is here, where it stands, and which test holds it to which values.

    python scripts/catalogue.py          # what is out of date; exit code 1 if anything is
    python scripts/catalogue.py --write  # fill in what can be derived

``tests/catalogue.tsv`` has a line for every method of the lists of papers (``001-20``: paper 20 of list 001), in parts
where parts stand apart, and for everything registered (id ``-``). Its columns:

- id, paper: the same paper of two lists has both, ``001-08 = 004-13``.
- part: which part of the paper, ``-`` for all of it.
- symbol: the public thing, as it is imported; ``-`` if there is none.
- file: derived from the symbol.
- reference: what its values are checked against: ``golden`` (stored values of other programs), ``numpy`` (written
  again in ``tests/references``), ``closed form`` or ``properties``; else ``not yet``, or ``left out: reason``.
- values: the files of ``tests/golden``, or the functions of ``tests/references``; for what is not here, the golden
  files that wait for it.
- tested by: the tests, ``path::function``.
- door: how a user comes to it: a command with its options, a function with its settings, or the file of an example;
  ``-`` if nothing reaches it. ``tests/test_doors.py`` runs each and counts the calls of the symbol.

Paths start at ``tests``, files of symbols at ``src``. Derived are the file of a symbol, the paper of what is registered
and of no list, and the path of a test or reference function that was moved to another file under the same name.
"""

import argparse
import ast
import csv
import importlib
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

from vicinal.core import KINDS, entries
from vicinal.core.registry import Entry

PROJECT = Path(__file__).resolve().parents[1]
CATALOGUE = PROJECT / "tests" / "catalogue.tsv"
REFERENCES = ("golden", "numpy", "closed form", "properties")
NOT_YET, LEFT_OUT, NOTHING = "not yet", "left out: ", "-"


@dataclass(frozen=True)
class Line:
    """One line of the catalogue, all columns as text."""

    id: str
    paper: str
    part: str
    symbol: str
    file: str
    reference: str
    values: str
    tested_by: str
    door: str = NOTHING

    @property
    def ids(self) -> list[str]:
        """``["001-08", "004-13"]``; none if it is of no list."""
        return [] if self.id == NOTHING else self.id.split(" = ")

    @property
    def is_here(self) -> bool:
        """Whether there is a symbol."""
        return self.symbol != NOTHING

    @property
    def places(self) -> list[str]:
        """Golden files or reference functions."""
        return [] if self.values == NOTHING else self.values.split()

    @property
    def tests(self) -> list[str]:
        """``path::function`` of each test."""
        return [] if self.tested_by == NOTHING else self.tested_by.split()


HEADER = [field.name.replace("_", " ") for field in fields(Line)]


def read(path: Path = CATALOGUE) -> list[Line]:
    """All lines of the catalogue.

    Raises:
        ValueError: naming the first line whose columns are not those of the header.
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    if not rows or rows[0] != HEADER:
        raise ValueError(f"{path.name}: expected the columns {', '.join(HEADER)}, got {rows[:1]}")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(HEADER) or not all(cell and cell == cell.strip() for cell in row):
            raise ValueError(f"{path.name}, line {number}: expected {len(HEADER)} filled columns, got {row}")
    return [Line(*row) for row in rows[1:]]


def write(lines: Iterable[Line], path: Path = CATALOGUE) -> None:
    """Write the catalogue."""
    text = "".join("\t".join(cells) + "\n" for cells in [HEADER, *map(astuple, lines)])
    path.write_text(text, encoding="utf-8")


def resolve(symbol: str) -> Any:
    """The thing that ``symbol`` names, as ``from package import name`` finds it.

    Raises:
        ValueError: if there is no such thing.
    """
    first, *names = symbol.split(".")
    thing: Any = importlib.import_module(first)
    for name in names:
        if not hasattr(thing, name):
            with suppress(ModuleNotFoundError):
                importlib.import_module(f"{thing.__name__}.{name}")
        if not hasattr(thing, name):
            raise ValueError(f"symbol: expected something that can be imported, got {symbol}, without {name}")
        thing = getattr(thing, name)
    return thing


def source_file(symbol: str) -> str:
    """The file that defines ``symbol``, from ``src`` on."""
    path = inspect.getsourcefile(inspect.unwrap(resolve(symbol)))
    package = Path(inspect.getfile(importlib.import_module("vicinal"))).parent
    return Path(path or "").resolve().relative_to(package.resolve().parent).as_posix()


def registered() -> dict[Any, Entry]:
    """Everything registered, of all kinds, by the function or class."""
    return {entry.factory: entry for kind in KINDS for entry in entries(kind)}


def moved(tests: Path = CATALOGUE.parent) -> dict[str, list[str]]:
    """Name of a function -> the files of tests and references that define it."""
    places = defaultdict(list)
    for path in sorted(tests.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                places[node.name].append(path.relative_to(tests).as_posix())
    return places


def followed(cell: str, places: dict[str, list[str]]) -> str:
    """A cell of ``path::function`` with the new path of what was moved, where only one file has that function."""
    if "::" not in cell:
        return cell
    renewed = []
    for place in cell.split():
        path, _, name = place.partition("::")
        files = places.get(name, [])
        renewed.append(f"{files[0]}::{name}" if path not in files and len(files) == 1 else place)
    return " ".join(renewed)


def derived(lines: Iterable[Line]) -> list[Line]:
    """The lines with all that can be derived."""
    methods, places = registered(), moved()
    renewed = []
    for line in lines:
        changes = {"values": followed(line.values, places), "tested_by": followed(line.tested_by, places)}
        if line.is_here:
            changes["file"] = source_file(line.symbol)
            entry = methods.get(resolve(line.symbol))
            if entry and not line.ids:
                changes["paper"] = entry.paper or NOTHING
        renewed.append(replace(line, **changes))
    return renewed


def main(arguments: list[str] | None = None) -> int:
    """Say which lines are out of date, or write them anew."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help="fill in what can be derived")
    options = parser.parse_args(arguments)
    lines = read()
    renewed = derived(lines)
    stale = [(old, new) for old, new in zip(lines, renewed, strict=True) if old != new]
    for _, new in stale:
        print(f"{CATALOGUE.name}: {new.symbol}: {'written' if options.write else 'out of date'}")
    if options.write and stale:
        write(renewed)
    return int(bool(stale) and not options.write)


if __name__ == "__main__":
    sys.exit(main())
