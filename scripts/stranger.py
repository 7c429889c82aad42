"""The stranger's test: is the file of a method guessed from its name?

    python scripts/stranger.py              # twenty registered methods, drawn at random, and the guess for each
    python scripts/stranger.py --seed 7     # twenty others
    python scripts/stranger.py --all        # all of them

A stranger knows the package of a kind of method (``vicinal.core.KINDS``), the names of the files in it, and what the
documentation says of a method: its name, and its family. The guess is the file that shares most words with them.

1. The words of a file's name are compared with those of the method's name and family. Two words are alike if they are
   equal but for a plural, or if one of at least four letters begins the other.
2. A file counts only if all words of its name are shared, and counts for as many; of two that count for as much, the
   one that shares words with the family is chosen, then the one whose words are equal and not only alike.
3. If no file counts, the first lines of the files are read, and the one that shares most words with the name, else
   with the family, is chosen.

The guess is right if the function or class that is registered stands in that file, formula and all. A tie is wrong.
Exit code 1 if a guess is.
"""

import argparse
import ast
import functools
import importlib
import inspect
import random
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vicinal.core import KINDS, entries
from vicinal.core.registry import Entry

DRAWN = 20


@dataclass(frozen=True)
class File:
    """What a stranger sees of a file in a list of a package: its name and its first line."""

    path: Path

    @functools.cached_property
    def tree(self) -> ast.Module:
        """Its code."""
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @property
    def first_line(self) -> str:
        """The sentence that says what is in it."""
        return (ast.get_docstring(self.tree) or "").partition("\n\n")[0]

    def defines(self, name: str) -> bool:
        """Whether a function or class of that name stands in it."""
        kinds = ast.FunctionDef | ast.ClassDef
        return any(isinstance(node, kinds) and node.name == name for node in self.tree.body)


@dataclass(frozen=True)
class Guess:
    """Where a stranger looks for a method, and whether it is there."""

    entry: Entry
    files: list[File]

    @property
    def is_right(self) -> bool:
        """Whether the stranger opens one file, and it holds the method."""
        return len(self.files) == 1 and self.files[0].defines(definition(self.entry).__name__)

    def __str__(self) -> str:
        guess = " or ".join(file.path.stem for file in self.files) or "no file"
        where = Path(inspect.getfile(definition(self.entry))).stem
        end = "" if self.is_right else f", but it is in {where}"
        return f"{self.entry.kind} {self.entry.name} ({self.entry.family or 'no family'}): {guess}{end}"


def definition(entry: Entry) -> Any:
    """The function or class that is registered, without what is wrapped around it."""
    return inspect.unwrap(entry.factory)


def words(text: str) -> list[str]:
    """Words in small letters, without a plural."""
    return [re.sub(r"(?<=..)ies$", "y", word).rstrip("s") or word for word in re.findall(r"[a-z0-9]+", text.lower())]


def alike(one: str, other: str) -> bool:
    """Whether two words are equal, or one of at least four letters begins the other."""
    short, long = sorted((one, other), key=len)
    return one == other or (len(short) >= 4 and long.startswith(short))


def shared(some: list[str], others: list[str]) -> int:
    """How many of some words are alike one of the others."""
    return sum(any(alike(word, other) for other in others) for word in some)


def guess(entry: Entry, files: list[File]) -> Guess:
    """The files that are as likely as one another to hold the method; see the docstring of this script."""
    name, family = words(entry.name), words(entry.family)

    def by_name(file: File) -> tuple[int, int, int]:
        stem = words(file.path.stem)
        count = shared(stem, [*name, *family])
        return (count, shared(stem, family), len({*stem} & {*name, *family})) if count == len(stem) else (0, 0, 0)

    def by_line(file: File) -> tuple[int, int, int]:
        line = words(file.first_line)
        return shared(name, line), shared(family, line), 0

    for rank in (by_name, by_line):
        scores = {file: rank(file) for file in files}
        best = max(scores.values())
        if best > (0, 0, 0):
            return Guess(entry, [file for file, score in scores.items() if score == best])
    return Guess(entry, [])


def files_of(package: str) -> list[File]:
    """The files of a package."""
    folder = Path(importlib.import_module(package).__path__[0])
    return [File(path) for path in sorted(folder.glob("*.py")) if not path.stem.startswith("_")]


def guesses() -> list[Guess]:
    """The guess for every registered method."""
    result = []
    for kind, package in KINDS.items():
        files = files_of(package)
        result += [guess(entry, files) for entry in entries(kind)]
    return result


def main() -> int:
    """Print guesses; gives the exit code."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--all", action="store_true")
    arguments = options.parse_args()
    made = guesses()
    shown = made if arguments.all else random.Random(arguments.seed).sample(made, DRAWN)  # noqa: S311
    for one in shown:
        print("right" if one.is_right else "WRONG", one)
    wrong = sum(not one.is_right for one in shown)
    print(f"{len(shown) - wrong} of {len(shown)} are where a stranger looks")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
