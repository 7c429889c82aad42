"""What the library promises by name: registered methods, options of the command line, public names.

    python scripts/promises.py --write FILE     # the lists of now, as JSON
    python scripts/promises.py --compare FILE   # what of FILE is gone; exit code 1 if one has no line

A name that went needs a line in the table "Renamed and removed" of CHANGELOG.md: `old` | `new`, or why it went.
"""

import argparse
import importlib
import json
import pkgutil
import re
import sys
from pathlib import Path

import typer.main

import vicinal
from vicinal.cli.program import app
from vicinal.core import KINDS, entries

PROJECT = Path(__file__).resolve().parents[1]


def promises() -> dict[str, list[str]]:
    """Every promise by name, in sorted lists."""
    packages = [f"vicinal.{found.name}" for found in pkgutil.iter_modules(vicinal.__path__) if found.ispkg]
    command = typer.main.get_command(app)
    return {
        "registry": sorted(f"{kind} {entry.name}" for kind in KINDS for entry in entries(kind)),
        "options": sorted(_options(command, "vicinal")),
        "names": sorted(
            f"{package}.{name}"
            for package in packages
            for name in getattr(importlib.import_module(package), "__all__", ())
        ),
    }


def _options(command: object, path: str) -> list[str]:
    lines = [
        f"{path} {option}"
        for parameter in getattr(command, "params", ())
        for option in (parameter.opts if parameter.param_type_name == "option" else [parameter.name.upper()])
    ]
    for name, inner in getattr(command, "commands", {}).items():
        lines += [f"{path} {name}", *_options(inner, f"{path} {name}")]
    return lines


def unexplained(before: dict[str, list[str]], now: dict[str, list[str]], changelog: str) -> list[str]:
    """What went without a line in the table of the changelog.

    A public name that only moved to another package needs no line.
    """
    rows = re.findall(r"^\| `([^`]+)` \|", changelog, flags=re.MULTILINE)
    moved = {name.rpartition(".")[2] for name in now["names"]}
    gone = [line for kind in before for line in before[kind] if line not in set(now[kind])]
    return [
        line
        for line in gone
        if line not in rows
        and line.rpartition(".")[2] not in rows
        and not (line in before["names"] and line.rpartition(".")[2] in moved)
    ]


def main() -> int:
    """Write or compare; gives the exit code."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--write", type=Path)
    options.add_argument("--compare", type=Path)
    arguments = options.parse_args()
    now = promises()
    if arguments.write:
        arguments.write.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
    if arguments.compare:
        before = json.loads(arguments.compare.read_text(encoding="utf-8"))
        lines = unexplained(before, now, (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8"))
        print(*(f"{line}: gone, and CHANGELOG.md does not say what takes its place" for line in lines), sep="\n")
        return 1 if lines else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
