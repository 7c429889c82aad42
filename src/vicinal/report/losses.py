"""What there is to learn by: losses, miners and samplers as rows of a table, and one of them as a sheet."""

import inspect
import re
from dataclasses import asdict, dataclass
from typing import Any

from vicinal.core import Entry, entries, nearest
from vicinal.losses.contract import own_settings
from vicinal.report.loss_examples import command_example, python_example
from vicinal.report.plain import plain

KINDS = {
    "pairs": "Losses of pairs of embeddings",
    "proxies": "Losses of embeddings against learned vectors of classes",
    "predictions": "Losses of predictions",
    "miners": "Miners: which pairs a loss sees",
    "samplers": "Samplers: which rows meet in a batch",
}
"""Kinds of methods, each with the title of its table."""

LABELS = {
    "classes": "one class a row",
    "several": "several labels a row, as columns of 0 and 1",
    "graded": "a relation between 0 and 1",
    "numbers": "numbers",
    "groups": "groups of rows",
    "scores": "target scores of classes or of the items of a list",
    "none": "no labels",
}
"""What labels a method may take."""

_REGISTERED = {"pairs": "pair_loss", "proxies": "pair_loss", "predictions": "loss", "miners": "miner"}
_HIDDEN = ("labels", "parents", "groups", "targets", "embeddings", "seed", "processes", "process", "reduction")
_ARGUMENT = re.compile(r"^ {4,8}(\w+): (.*)")


@dataclass(frozen=True)
class MethodSheet:
    """What a person wants to know of one method.

    Attributes:
        name: how it is called.
        kind: one of ``KINDS``.
        family: what it is like.
        summary: one sentence.
        formula: the first paragraph behind it, or "".
        more: what else its docstring says, paragraph by paragraph.
        labels: what labels it takes, out of ``LABELS``.
        settings: (name, default as text or "needed", what it means and its range).
        paper: where it comes from, or "".
        verified: against what its values were checked.
        python: how it is used.
        command: how it is used on the command line, or "".
    """

    name: str
    kind: str
    family: str
    summary: str
    formula: str
    more: tuple[str, ...]
    labels: tuple[str, ...]
    settings: tuple[tuple[str, str, str], ...]
    paper: str
    verified: str
    python: str
    command: str

    @property
    def defaults(self) -> str:
        """The settings on one line."""
        return ", ".join(f"{name}={default}" if default != "needed" else name for name, default, _ in self.settings)

    def as_json(self) -> dict[str, Any]:
        """The sheet for a program."""
        return {**asdict(self), "defaults": self.defaults}


def method_sheets(kind: str) -> list[MethodSheet]:
    """The sheets of all methods of a kind out of ``KINDS``.

    >>> [sheet.name for sheet in method_sheets("pairs") if sheet.labels == ("numbers",)][:2]
    ['label_contrast', 'log_ratio']
    """
    found = entries(_REGISTERED.get(kind, "sampler"))
    if kind in ("pairs", "proxies"):
        found = tuple(entry for entry in found if (kind == "proxies") == _has_proxies(entry))
    return [_sheet(kind, entry) for entry in found]


def find_sheets(name: str, kinds: tuple[str, ...] = tuple(KINDS)) -> list[MethodSheet]:
    """The sheets called ``name``; a loss and a miner may share one.

    Raises:
        ValueError: if there is none, with the nearest.
    """
    wanted = name.strip().replace("-", "_").lower()
    sheets = [sheet for kind in kinds for sheet in method_sheets(kind)]
    found = [sheet for sheet in sheets if sheet.name == wanted]
    if not found:
        hint = nearest(wanted, [sheet.name for sheet in sheets])
        raise ValueError(
            f"name: expected a loss, miner or sampler ('vicinal losses --kind all' lists them), got {name!r}{hint}"
        )
    return found


def _has_proxies(entry: Entry) -> bool:
    return bool({"proxies", "proxy-rows"} & entry.facts)


def _sheet(kind: str, entry: Entry) -> MethodSheet:
    about, arguments = _read(inspect.getdoc(entry.make) or "")
    more = about[2 if entry.formula else 1 :]
    settings = tuple(
        (name, _shown(default), arguments.get(name, "")) for name, default in _settings(kind, entry).items()
    )
    return MethodSheet(
        name=entry.name,
        kind=kind,
        family=entry.family,
        summary=plain(about[0]),
        formula=plain(entry.formula),
        more=tuple(map(plain, more)),
        labels=_labels(kind, entry),
        settings=settings,
        paper=entry.paper,
        verified=entry.verified,
        python=python_example(kind, entry, settings),
        command=command_example(kind, entry, settings),
    )


def _read(docstring: str) -> tuple[list[str], dict[str, str]]:
    """Paragraphs before the arguments, and what is said of each argument."""
    before, _, rest = docstring.partition("\nArgs:\n")
    before = before.partition("\n>>>")[0]
    before = re.split(r"\n(?:Raises|Returns|Attributes):\n", before)[0]
    found: dict[str, str] = {}
    last = ""
    for line in rest.partition("\n\n")[0].splitlines():
        start = re.match(r" {4}(\w+): (.*)", line)
        if start:
            last = start[1]
            found[last] = start[2]
        elif last:
            found[last] += " " + line.strip()
    return [part for part in before.split("\n\n") if part.strip()], {k: plain(v) for k, v in found.items()}


def _settings(kind: str, entry: Entry) -> dict[str, Any]:
    if kind in ("pairs", "proxies", "miners"):
        return own_settings(entry.make)
    parameters = inspect.signature(entry.make).parameters.values()
    return {p.name: p.default for p in parameters if p.name not in _HIDDEN}


def _shown(default: Any) -> str:
    return "needed" if default is inspect.Parameter.empty else repr(default)


def _labels(kind: str, entry: Entry) -> tuple[str, ...]:
    facts = entry.facts
    if kind == "predictions":
        return ("numbers",) if facts & {"elementwise", "number-labels"} else ("scores",)
    if kind == "samplers":
        named = {"class-labels": "classes", "number-labels": "numbers", "group-labels": "groups"}
        return tuple(label for fact, label in named.items() if fact in facts) or ("none",)
    if "number-relation" in facts:
        return ("numbers",)
    if kind == "miners" or "soft-relation" in facts:
        return ("classes", "several", "graded")
    return ("classes", "several")
