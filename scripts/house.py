"""The structure of the source: counts of it, and the rules that ``make lint`` checks.

    python scripts/house.py                       # counts
    python scripts/house.py --check               # the rules; exit code 1 and one line for each fault
    python scripts/house.py --json before.json    # counts as JSON
    python scripts/house.py --compare before.json # a table, before and now, with what is aimed at
    python scripts/house.py --page docs/developing.md --compare before.json  # writes that table into a page

Rules: files of a package import one another without a circle (imports for types and inside functions count); nothing
reads another object's underscore attribute or imports another file's underscore name; names say what a thing is; a
package binds no public name beside its ``__all__``, and has a page in ``docs/api``; nobody but ``heads`` asks of what
class a head is (``heads/kinds.py`` answers what callers want to know); whether there are weights, groups, classes or
ids is asked of an argument that may be left out or of one's own field, where they are given, and nowhere below; a
number of training has its default and range in ``settings.py``, and a value in at most two other files beside presets;
a command, an estimator or an example reaches every file, by its imports or by a name that a setting takes.
"""

import argparse
import ast
import gc
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]

BANNED = frozenset(
    {
        "answering",
        "asked",
        "filling",
        "found",
        "given",
        "held",
        "hush",
        "kept",
        "looking",
        "made",
        "own",
        "pulling",
        "say",
        "standing",
        "told",
        "wanted",
    }
)
"""Words that are no names of results, arguments, functions or files: say what the thing is."""

LEFT_OUT = frozenset({"weights", "sample_weight", "mass", "groups", "classes", "ids"})
"""What rows may come without: known to the function whose argument may be left out, and to what holds it as a field."""

AIMS: dict[str, Any] = {
    "files": 340,
    "lines": 66_000,
    "import circles": 0,
    "private reaches": 0,
    "public names": 600,
    "public names used nowhere else": 0,
    "files out of reach": 0,
    "banned names": 0,
}
"""What is aimed at; ``docs/developing.md`` says where it stands."""

SELVES = frozenset({"self", "cls"})

DOCUMENTED = frozenset({"_version"})
"""Attributes of torch that its notes on autograd document in spite of their name: how often a tensor was written to."""


@dataclass(frozen=True)
class Module:
    """One source file."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """``vicinal.heads`` of ``vicinal.heads.nona`` and of ``vicinal.heads`` itself."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]

    @property
    def room(self) -> str:
        """The first folder below the root, or "(top)"."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 2 or (self.path.name == "__init__.py" and len(parts) > 1) else "(top)"


def read_modules(source: Path) -> dict[str, Module]:
    """All files below ``source``, the folder of the package, by the names they are imported by."""
    modules = {}
    for path in sorted(source.rglob("*.py")):
        parts = (source.name, *path.relative_to(source).with_suffix("").parts)
        name = ".".join(parts).removesuffix(".__init__")
        text = path.read_text(encoding="utf-8")
        modules[name] = Module(name, path, text, ast.parse(text))
    return modules


def imports(module: Module) -> Iterator[tuple[int, str, str | None]]:
    """Line, module and imported name (None for a module as a whole) of each import, wherever it stands."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.lineno, node.module, alias.name) for alias in node.names)


def arrows(modules: dict[str, Module]) -> dict[str, set[str]]:
    """Which modules each module imports, among ``modules``."""
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for name, module in modules.items():
        for _, target, imported in imports(module):
            inner = f"{target}.{imported}"
            graph[name] |= {
                each for each in (inner if inner in modules else target,) if each in modules and each != name
            }
    return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of files that import one another in a circle (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in sorted(graph[name]):
            if target not in index:
                visit(target)
            if target in stack:
                low[name] = min(low[name], low[target])
        if low[name] == index[name]:
            start = stack.index(name)
            group = sorted(stack[start:])
            del stack[start:]
            if len(group) > 1:
                groups.append(group)

    sys.setrecursionlimit(10_000)
    for name in graph:
        if name not in index:
            visit(name)
    return groups


def is_private(name: str) -> bool:
    """Whether a name begins with one underscore."""
    return name.startswith("_") and not name.startswith("__") and name != "_"


def private_reaches(module: Module) -> Iterator[tuple[int, str]]:
    """Line and text of each underscore attribute of another object, and of each import of an underscore name."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in DOCUMENTED:
            base = node.value
            is_super = isinstance(base, ast.Call) and isinstance(base.func, ast.Name) and base.func.id == "super"
            if not (isinstance(base, ast.Name) and base.id in SELVES) and not is_super:
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if is_private(alias.name):
                    yield node.lineno, f"from {node.module} import {alias.name}"


def head_checks(modules: dict[str, Module]) -> Iterator[tuple[Module, int, str]]:
    """Module, line and class of each ``isinstance`` of a public class of ``heads`` outside of that package."""
    package = modules.get("vicinal.heads")
    heads = {name for name in exported(package) or [] if name[0].isupper()} if package else set()
    for module in modules.values():
        if module.room == "heads":
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                for name in {ast.unparse(each).rpartition(".")[2] for each in ast.walk(node.args[1])} & heads:
                    yield module, node.lineno, name


def absences(module: Module) -> Iterator[tuple[int, str]]:
    """Where it is asked whether there are weights, groups, classes or ids, though neither given nor held there."""

    def visit(node: ast.AST, given: frozenset[str], fields: frozenset[str]) -> Iterator[tuple[int, str]]:
        for child in ast.iter_child_nodes(node):
            ours, theirs = given, fields
            if isinstance(child, ast.FunctionDef):
                ours = frozenset(_may_be_left_out(child.args)) | (given if isinstance(node, ast.FunctionDef) else set())
            elif isinstance(child, ast.ClassDef):
                theirs = frozenset(_fields(child))
            if isinstance(child, ast.Compare) and isinstance(child.ops[0], ast.Is | ast.IsNot) and _is_none(child):
                asked, text = child.left, ast.unparse(child.left)
                name = asked.attr if isinstance(asked, ast.Attribute) else text
                is_own = text == f"self.{name}" and name in fields
                if name in LEFT_OUT and text not in ours and not is_own:
                    yield child.lineno, text
            yield from visit(child, ours, theirs)

    yield from visit(module.tree, frozenset(), frozenset())


def _is_none(test: ast.Compare) -> bool:
    right = test.comparators[0]
    return isinstance(right, ast.Constant) and right.value is None


def _may_be_left_out(arguments: ast.arguments) -> Iterator[str]:
    """Arguments whose default is None."""
    places = [*arguments.posonlyargs, *arguments.args]
    pairs = [*zip(places[::-1], arguments.defaults[::-1], strict=False)]
    pairs += [(one, value) for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value]
    yield from (one.arg for one, value in pairs if isinstance(value, ast.Constant) and value.value is None)


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """Names of the fields and properties of a class."""
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            yield one.target.id
        elif isinstance(one, ast.FunctionDef):
            yield one.name


def settings_typed(modules: dict[str, Module]) -> Iterator[tuple[str, list[Path]]]:
    """Numbers of training in ``settings.py`` that more than two other files give a value, but for presets."""
    home = modules.get("vicinal.settings")
    classes = [one for one in home.tree.body if isinstance(one, ast.ClassDef)] if home else []
    training = [one for each in classes if each.name == "BaseTraining" for one in each.body]
    fields = [one for one in training if isinstance(one, ast.AnnAssign) and one.value]
    names = {ast.unparse(one.target) for one in fields if "Limits(" in ast.unparse(one.value)}
    places: dict[str, list[Path]] = {}
    for module in modules.values():
        if module.room in ("cli", "estimators", "training", "workflows") and module.path.stem != "presets":
            for name in names & set(_valued(module.tree)):
                places.setdefault(name, []).append(module.path)
    for name, paths in sorted(places.items()):
        if len(paths) > 2:
            yield name, sorted(paths)


def _valued(tree: ast.Module) -> Iterator[str]:
    """Names of fields, of arguments with defaults, and of keys with a plain value."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.arguments):
            pairs = zip([*node.posonlyargs, *node.args][::-1], node.defaults[::-1], strict=False)
            yield from (argument.arg for argument, _ in pairs)
            named = zip(node.kwonlyargs, node.kw_defaults, strict=True)
            yield from (argument.arg for argument, default in named if default is not None)
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            yield from (ast.literal_eval(key) for key, value in pairs if key and _is_plain(key) and _is_plain(value))


def _is_plain(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def defined_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of everything that is given a name: variables, attributes, arguments, functions, classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name


def exported(module: Module) -> list[str] | None:
    """Public names of a package: its ``__all__``, or what it imports ``as`` itself; None if it has neither."""
    for node in module.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            names = [each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)]  # type: ignore[attr-defined]
            return [name for name in names if isinstance(name, str)]
    imports = [node for node in ast.walk(module.tree) if isinstance(node, ast.ImportFrom)]  # those for types as well
    return [alias.name for node in imports for alias in node.names if alias.name == alias.asname] or None


def bound_names(module: Module) -> set[str]:
    """Public names that the top level of a file binds."""
    names: set[str] = set()
    for node in module.tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return {name for name in names if not name.startswith("_")}


def origin(modules: dict[str, Module], target: str, name: str | None) -> str | None:
    """The file that defines a name which is imported from a file or package; None if it is not one of these."""
    inner = f"{target}.{name}"
    if inner in modules and modules[inner].path.name != "__init__.py":
        return inner
    package = modules.get(target)
    if package is None or package.path.name != "__init__.py":
        return target if package else None
    return next(
        (origin(modules, to, imported) for _, to, imported in imports(package) if imported == name and to != target),
        None,
    )


def names_taken(modules: dict[str, Module], tree: ast.Module, text: str) -> Iterator[str]:
    """Files that a file takes names from: ``from package import name``, or ``package.name`` in its text."""
    whole = Module("", Path(), text, tree)
    for _, target, name in imports(whole):
        place = f"{target}.{name}" if name else target
        if place in modules and modules[place].path.name == "__init__.py":
            each = re.findall(rf"\b{re.escape(name or target)}\.(\w+)", text)
            yield from filter(None, (origin(modules, place, one) for one in each))
        elif target in modules and (file := origin(modules, target, name)):
            yield file


ESTIMATORS = ("NeighborRegressor", "NeighborClassifier", "EmbeddingLearner", "RowMatcher", "Recommender")
USED_BY_NAME = Path("tests") / "catalogue.tsv"
"""Its column "door" says which command, setting or example runs a method; what is of no list (id "-") is registered."""


def out_of_reach(modules: dict[str, Module], project: Path) -> list[str]:
    """Files that no command, estimator or example reaches."""
    files = {name: module for name, module in modules.items() if module.path.name != "__init__.py"}
    graph = {name: set(names_taken(modules, module.tree, module.text)) for name, module in files.items()}
    todo = [name for name, module in files.items() if module.room in ("cli", "serve", "workflows", "(top)")]
    todo += [file for name in ESTIMATORS if (file := origin(modules, "vicinal.estimators", name))]
    for path in sorted(project.glob("examples/*.py")):
        text = path.read_text(encoding="utf-8")
        todo += names_taken(modules, ast.parse(text), text)
    catalogue = project / USED_BY_NAME
    for line in catalogue.read_text(encoding="utf-8").splitlines()[1:] if catalogue.is_file() else ():
        id, file, door = (line.split("\t")[column] for column in (0, 4, -1))
        if file != "-" and (door != "-" or id == "-"):
            todo.append(".".join(Path(file).with_suffix("").parts))
    reached: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo += graph.get(name, ())
    return sorted(set(files) - reached)


def faults(modules: dict[str, Module], pages: Path) -> Iterator[str]:
    """One line for each place that breaks a rule."""
    graph = arrows(modules)
    for group in circles({name: {to for to in targets} for name, targets in graph.items()}):
        yield f"circle: {' <-> '.join(group)}; put what they share below them, or the story in one file"
    for module in modules.values():
        yield from _module_faults(module)
    for module, line, name in head_checks(modules):
        yield f"{module.path}:{line}: head: isinstance of {name}; ask heads/kinds.py, or give heads what answers it"
    for name, paths in settings_typed(modules):
        yield f"{paths[0]}: setting: {name} has a value in {len(paths)} files; take that of vicinal/settings.py"
    yield from _package_faults(modules, pages)
    for name in out_of_reach(modules, pages.resolve().parents[1]):
        yield f"{modules[name].path}: reach: no command, estimator or example runs it; give it a door, or drop it"


def _module_faults(module: Module) -> Iterator[str]:
    """Those of the names in one file."""
    for line, text in private_reaches(module):
        yield f"{module.path}:{line}: private: {text} is another's; give it a public name or a method"
    for line, name in defined_names(module.tree):
        if name.lstrip("_").lower() in BANNED:
            yield f"{module.path}:{line}: name: {name!r} does not say what it is"
    if module.path.stem.lower() in BANNED:
        yield f"{module.path}: name: {module.path.stem!r} does not say what is in it"
    for line, text in absences(module):
        yield f"{module.path}:{line}: absent: whether there is {text} is known where it is given; make it neutral there"


def _package_faults(modules: dict[str, Module], pages: Path) -> Iterator[str]:
    documented = "\n".join(path.read_text(encoding="utf-8") for path in sorted(pages.glob("*.md")))
    for module in modules.values():
        if module.path.name != "__init__.py" or module.name.count(".") == 0:
            continue
        names = exported(module)
        if names is None:
            yield f"{module.path}: exports: expected __all__ or imports as themselves, got none"
            continue
        for name in sorted(bound_names(module) - set(names)):
            yield f"{module.path}: exports: {name!r} is public and not in __all__"
        if module.name != "vicinal.cli" and f"::: {module.name}\n" not in documented + "\n":  # its --help documents it
            yield f"{module.path}: documentation: expected a page of docs/api with '::: {module.name}', got none"


def count_lines(modules: dict[str, Module]) -> Counter[str]:
    """Lines by kind: code, docstring, comment, blank."""
    lines: Counter[str] = Counter()
    for module in modules.values():
        kinds = [
            "blank" if not line.strip() else "comment" if line.strip().startswith("#") else "code"
            for line in module.text.splitlines()
        ]
        for node in ast.walk(module.tree):
            documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            if documented and ast.get_docstring(node, clean=False) is not None:
                first = node.body[0]
                for number in range(first.lineno - 1, first.end_lineno or first.lineno):
                    kinds[number] = "docstring"
        lines.update(kinds)
    return lines


PLACES = ("docs/*.md", "docs/results/*.md", "benchmarks/**/*.py", "examples/**/*.py", "README.md")
"""Where users are told of a name, beside the reference."""


def unused_names(modules: dict[str, Module], project: Path) -> list[str]:
    """Public names that no page but the reference, no benchmark, no example and no other package has a use for."""
    pages = [path.read_text(encoding="utf-8") for place in PLACES for path in sorted(project.glob(place))]
    shown = set(re.findall(r"\w+", "\n".join(pages)))
    words: dict[str, set[str]] = {}
    for module in modules.values():
        words.setdefault(module.room, set()).update(re.findall(r"\w+", module.text))
    return [
        f"{module.room}.{name}"
        for module in modules.values()
        if module.name.count(".") == 1
        for name in exported(module) or []
        if name not in shown and not any(name in words[room] for room in words if room != module.room)
    ]


def measure(modules: dict[str, Module], project: Path) -> dict[str, int | dict[str, int]]:
    """The counts of the house."""
    graph, lines = arrows(modules), count_lines(modules)
    inside = {name: {to for to in targets if modules[to].room == modules[name].room} for name, targets in graph.items()}
    rooms = sorted({module.room for module in modules.values()})
    return {
        "files": len(modules),
        "lines": sum(lines.values()),
        "lines of code": lines["code"],
        "lines of docstrings": lines["docstring"],
        "import circles": len(circles(graph)),
        "private reaches": sum(len(list(private_reaches(module))) for module in modules.values()),
        "public names": sum(len(exported(module) or []) for module in modules.values() if module.name.count(".") == 1),
        "public names used nowhere else": len(unused_names(modules, project)),
        "files out of reach": len(out_of_reach(modules, project)),
        "banned names": sum(
            name.lstrip("_").lower() in BANNED for module in modules.values() for _, name in defined_names(module.tree)
        ),
        "files per package": {room: sum(m.room == room for m in modules.values()) for room in rooms},
        "imports between files of a package": {
            room: sum(
                len({to for to in inside[name] if modules[to].path.name != "__init__.py"})
                for name, m in modules.items()
                if m.room == room and m.path.name != "__init__.py"
            )
            for room in rooms
        },
    }


def compare(before: dict[str, int | dict[str, int]], now: dict[str, int | dict[str, int]]) -> str:
    """A Markdown table of the counts, before and now, with what is aimed at."""
    rows = ["| | before | now | aim |", "| --- | --- | --- | --- |"]
    for name, value in now.items():
        if not isinstance(value, dict):
            aim = f"{AIMS[name]:,}" if name in AIMS else ""
            rows.append(f"| {name} | {before.get(name, 0):,} | {value:,} | {aim} |")
    files, links = "files per package", "imports between files of a package"
    rows += [
        "",
        "| package | files before | now | aim | imports between them before | now | aim |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    counts = [(before.get(key, {}), now[key], AIMS.get(key, {})) for key in (files, links)]
    for room in sorted({*before.get(files, {}), *now[files]}):  # type: ignore[misc]
        cells = [str(table.get(room, "")) for tables in counts for table in tables]  # type: ignore[union-attr]
        rows.append(f"| `{room}` | {' | '.join(cells)} |")
    return "\n".join(rows)


def write_page(page: Path, table: str) -> None:
    """Put the table between the two marks of a page."""
    text = page.read_text(encoding="utf-8")
    start, end = "<!-- house -->\n", "\n<!-- end of house -->"
    if text.count(start) != 1 or text.count(end) != 1:
        raise ValueError(f"{page.name}: expected the marks {start.strip()} and {end.strip()}, each once")
    head, _, rest = text.partition(start)
    page.write_text(f"{head}{start}\n{table}\n{end}{rest.partition(end)[2]}", encoding="utf-8")


def main() -> int:
    """Print what was asked for; gives the exit code."""
    gc.disable()  # trees of a million nodes, which all stay
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--source", type=Path, default=PROJECT / "src" / "vicinal")
    options.add_argument("--pages", type=Path, default=PROJECT / "docs" / "api")
    options.add_argument("--check", action="store_true", help="check the rules")
    options.add_argument("--json", type=Path, help="write the counts to this file")
    options.add_argument("--compare", type=Path, help="print a table of the counts in this file and those of now")
    options.add_argument("--page", type=Path, help="with --compare: write the table into this page")
    arguments = options.parse_args()
    modules = read_modules(arguments.source)
    if arguments.check:
        lines = list(faults(modules, arguments.pages))
        print(*lines, sep="\n" if lines else "")
        return 1 if lines else 0
    counts = measure(modules, arguments.source.resolve().parents[1])
    if arguments.json:
        arguments.json.write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
    elif arguments.compare:
        table = compare(json.loads(arguments.compare.read_text(encoding="utf-8")), counts)
        if arguments.page:
            write_page(arguments.page, table)
        else:
            print(table)
    else:
        print(json.dumps(counts, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
