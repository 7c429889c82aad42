"""What the library promises by name: registered methods, commands, options, public names, arguments and methods.

    python scripts/promises.py --write FILE     # the lists of now, as JSON
    python scripts/promises.py --compare FILE   # what of FILE is gone; exit code 1 if one has no line

A name that went needs a row in the table "Renamed and removed" of ``CHANGELOG.md``, which says where the reader finds
it now: a public name, an argument, a command or a registered method that is there, or ``removed: `` and why. A name is
written with its package, and several at once may be ``of`` one package or function:

    | `heads.Members` | `heads.Ensemble` |
    | `fit_table`, `predict_table` of `estimators` | the same names in `workflows` |
    | `found=` of `samplers.with_relevant`, `samplers.draw_negatives` | `results=` |
    | `miner whiskers` | `miner iqr_filter` |

``scripts/before/promises.json`` holds the promises of commit 38fc2b1, before the house was made smaller. It was written
by this script: it reads any state of the library that it runs on (``PYTHONPATH=OTHER/src python scripts/promises.py``).
"""

import argparse
import functools
import importlib
import inspect
import json
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, is_typeddict

import typer.main

import vicinal
from vicinal.cli.program import app
from vicinal.core import KINDS, entries

PROJECT = Path(__file__).resolve().parents[1]
BEFORE = PROJECT / "scripts" / "before" / "promises.json"
HEADING = "### Renamed and removed"

Promises = dict[str, list[str]]


def promises() -> Promises:
    """Every promise by name, in sorted lists; ``members`` has one line for each public name."""
    packages = [package.name for package in pkgutil.iter_modules(vicinal.__path__) if package.ispkg]
    public = {
        f"{package}.{name}": getattr(module, name)
        for package in packages
        for module in [importlib.import_module(f"vicinal.{package}")]
        for name in getattr(module, "__all__", ())
    }
    classes = {value for value in public.values() if inspect.isclass(value)}
    members = {name: members_of(value, classes) for name, value in public.items()}
    return {
        "registry": sorted(f"{kind} {entry.name}" for kind in KINDS for entry in entries(kind)),
        "options": sorted(_options(typer.main.get_command(app), "vicinal")),
        "names": sorted(public),
        "members": sorted(f"{name}: {' '.join(each)}" for name, each in members.items() if each),
    }


def _options(command: object, path: str) -> Iterator[str]:
    for parameter in getattr(command, "params", ()):
        is_option = parameter.param_type_name == "option"
        for option in [*parameter.opts, *parameter.secondary_opts] if is_option else [parameter.name.upper()]:
            yield f"{path} {option}"
    for name, inner in getattr(command, "commands", {}).items():
        yield f"{path} {name}"
        yield from _options(inner, f"{path} {name}")


def members_of(value: Any, classes: set[type]) -> list[str]:
    """Arguments of a function or class, and a class's public methods and attributes with their arguments.

    What comes from a base class that is public itself is listed there.
    """
    if not callable(value):
        return []
    names = [f"({argument}=)" for argument in _arguments(value)]
    if inspect.isclass(value):
        for name in dir(value):
            home = next((base for base in value.__mro__ if name in base.__dict__), object)
            is_ours = home.__module__.startswith("vicinal.") and (home is value or home not in classes)
            if is_ours and not name.startswith("_"):
                names += [f".{name}", *(f".{name}({argument}=)" for argument in _arguments(getattr(value, name)))]
    return names


def _arguments(value: Any) -> list[str]:
    if not callable(value):
        return []
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return []
    any_name = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = [each.name for each in parameters if each.kind not in any_name]
    every = [named for each in parameters for named in get_args(each.annotation) if is_typeddict(named)]
    names += [name for named in every for name in named.__annotations__]  # of ``**settings: Unpack[Settings]``
    return [name for name in names if name != "self" and not name.startswith("_")]


def lost(before: Promises, now: Promises) -> list[str]:
    """What is gone, the members of a public name only where that is still there."""
    names = [line for kind in before if kind != "members" for line in before[kind] if line not in set(now[kind])]
    members = [
        f"{name}{member}"
        for name, _, rest in (line.partition(": ") for line in before["members"])
        if name not in names
        for member in rest.split(" ")
        if not resolves(f"{name}{member}")
    ]
    return names + [name for name in members if not any(name.startswith((f"{one}(", f"{one}.")) for one in members)]


def rows(changelog: str) -> list[tuple[list[str], list[str], str]]:
    """Of each row of the table: the names that went, what they were of, and the cell that says where they are now."""
    table = changelog.partition(HEADING)[2].partition("\n### ")[0]
    cells = re.findall(r"^\| (.+?) \| (.+) \|$", table, flags=re.MULTILINE)
    result = []
    for old, new in cells:
        names, _, owners = old.partition(" of ")
        spans, of = (re.findall(r"`([^`]+)`", part) for part in (names, owners))
        of = [_bare(name) for name in of]
        result.append(([_of(owner, _bare(name)) for name in spans for owner in of or [""]], of, new))
    return result


def _bare(name: str) -> str:
    return re.sub(r"^vicinal\.|\(\)$", "", name)


def _of(owner: str, name: str) -> str:
    if not owner:
        return name
    return f"{owner}({name})" if name.endswith("=") else f"{owner}.{name}"


def is_there(name: str, cell: str, owners: list[str], now: Promises) -> bool:
    """Whether the right cell of the row of ``name`` leads to something that is there, or says why there is nothing."""
    if re.search(r"removed: \w+", cell):
        return True
    same = re.match(r"the same names? in `([\w.]+)`", cell)
    if same:
        return resolves(f"{_bare(same[1])}.{name.rpartition('.')[2]}")
    for span in re.findall(r"`([^`]+)`", cell):
        parts = [_bare(part) for part in re.findall(r"[A-Za-z_][\w.]*(?:\(\w+=\)|=)?", span)]
        inside = [_of(owner, part) for owner in owners for part in parts]
        if span in {*now["registry"], *now["options"]} or any(resolves(one) for one in [*parts, *inside]):
            return True
    return False


@functools.cache
def resolves(name: str) -> bool:
    """Whether the library has a name: ``heads``, ``heads.NONA``, ``heads.NONA.forward``, ``heads.NONA(mask=)``.

    >>> resolves("heads.NONA.forward(bank=)"), resolves("heads.NONA.forward(pigeons=)")
    (True, False)
    """
    path, _, argument = name.rstrip("=)").partition("(")
    parts = path.split(".")
    if not (Path(vicinal.__path__[0]) / parts[0]).is_dir():
        return False
    value: Any = vicinal
    for place, part in enumerate(parts):
        try:
            value = getattr(value, part)
        except AttributeError:
            if inspect.isclass(value):
                return not argument and any(part in inspect.get_annotations(base) for base in value.__mro__)
            try:
                value = importlib.import_module(".".join(["vicinal", *parts[: place + 1]]))
            except ImportError:
                return False
    return not argument or argument in _arguments(value)


def unexplained(before: Promises, now: Promises, changelog: str) -> list[str]:
    """One line for each name that went without a row in the changelog, or with one that leads nowhere."""
    table = rows(changelog)
    cells = {name: (owners, cell) for names, owners, cell in table for name in names}
    lines = []
    for name in lost(before, now):
        if name not in cells:
            lines.append(f"{name}: gone, and the table of CHANGELOG.md does not say what takes its place")
        elif not is_there(name, cells[name][1], cells[name][0], now):
            lines.append(f"{name}: CHANGELOG.md leads to {cells[name][1]}, which is not there")
    return lines


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
        print(*lines, sep="\n", end="\n" if lines else "")
        return 1 if lines else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
