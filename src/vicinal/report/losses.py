"""Losses, miners and samplers as rows of a table, and each of them as a sheet."""

import inspect
import re
from dataclasses import asdict, dataclass
from typing import Any

from vicinal.core import entries, nearest
from vicinal.core.registry import Entry
from vicinal.losses.contract import own_settings
from vicinal.losses.elsewhere import ELSEWHERE
from vicinal.losses.embedding import plain_name
from vicinal.losses.spec import NEGATIVE_DISTANCES
from vicinal.report.tex import plain

KINDS = {
    "pairs": "Losses of pairs of embeddings",
    "proxies": "Losses of embeddings against learned vectors of classes",
    "predictions": "Losses of predictions",
    "class scores": "Losses of the scores of classes",
    "teachers": "Losses of scores and a teacher's scores",
    "regularizers": "Regularizers of embeddings",
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
"""Forms of labels that a method can take."""

_REGISTERED = {
    "pairs": "pair_loss",
    "proxies": "pair_loss",
    "predictions": "loss",
    "class scores": "class_loss",
    "teachers": "teacher_loss",
    "regularizers": "regularizer",
    "miners": "miner",
}
_HIDDEN = ("labels", "parents", "groups", "targets", "embeddings", "seed", "processes", "process", "reduction")


@dataclass(frozen=True)
class MethodSheet:
    """The documentation of one method.

    Attributes:
        name: registered name.
        kind: one of ``KINDS``.
        family: of similar methods, or "".
        summary: the first sentence of its docstring.
        formula: the paragraph with its formula, or "".
        more: the other paragraphs of its docstring.
        labels: forms of labels that it takes, out of ``LABELS``.
        settings: (name, default as text or "needed", meaning and range).
        paper: where it comes from, or "".
        verified: what its values were checked against, or "".
        python: example in Python.
        command: example on the command line, or "".
        used: where it trains: "fit", "learn", "distill", "match", an example, or "Python".
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
    used: str

    @property
    def defaults(self) -> str:
        """The settings on one line."""
        return ", ".join(f"{name}={default}" if default != "needed" else name for name, default, _ in self.settings)

    def as_json(self) -> dict[str, Any]:
        """The sheet as a dictionary, with the defaults."""
        return {**asdict(self), "defaults": self.defaults}


def method_sheets(kind: str) -> list[MethodSheet]:
    """The sheets of all methods of one of the ``KINDS``.

    >>> [sheet.name for sheet in method_sheets("pairs") if sheet.labels == ("numbers",)][:2]
    ['label_contrast', 'log_ratio']
    """
    registered = entries(_REGISTERED.get(kind, "sampler"))
    if kind in ("pairs", "proxies"):
        of_proxies = {"proxies", "proxy-rows"}
        registered = tuple(one for one in registered if (kind == "proxies") == (not of_proxies.isdisjoint(one.facts)))
    return [_sheet(kind, entry) for entry in registered]


def find_sheets(name: str, kinds: tuple[str, ...] = tuple(KINDS)) -> list[MethodSheet]:
    """The sheets called ``name``; a loss and a miner may share one.

    Raises:
        ValueError: if there is none; the message names the closest.
    """
    method = plain_name(name)
    sheets = [sheet for kind in kinds for sheet in method_sheets(kind)]
    matching = [sheet for sheet in sheets if sheet.name == method]
    if not matching:
        hint = nearest(method, [sheet.name for sheet in sheets])
        raise ValueError(
            f"name: expected a loss, miner or sampler ('vicinal losses --kind all' lists them), got {name!r}{hint}"
        )
    return matching


def _sheet(kind: str, entry: Entry) -> MethodSheet:
    about, arguments = _read(inspect.getdoc(entry.factory) or "")
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
        used=used_by(kind, entry),
    )


def _read(docstring: str) -> tuple[list[str], dict[str, str]]:
    """Paragraphs before the arguments, and the description of each argument."""
    before, _, rest = docstring.partition("\nArgs:\n")
    before = before.partition("\n>>>")[0]
    before = re.split(r"\n(?:Raises|Returns|Attributes):\n", before)[0]
    arguments: dict[str, str] = {}
    last = ""
    for line in rest.partition("\n\n")[0].splitlines():
        start = re.match(r" {4}(\w+): (.*)", line)
        if start:
            last = start[1]
            arguments[last] = start[2]
        elif last:
            arguments[last] += " " + line.strip()
    return [part for part in before.split("\n\n") if part.strip()], {k: plain(v) for k, v in arguments.items()}


def _settings(kind: str, entry: Entry) -> dict[str, Any]:
    if kind in ("pairs", "proxies", "class scores", "teachers", "regularizers", "miners") and not inspect.isclass(
        entry.factory
    ):
        return own_settings(entry.factory)
    parameters = inspect.signature(entry.factory).parameters.values()
    return {p.name: p.default for p in parameters if p.name not in _HIDDEN}


def _shown(default: Any) -> str:
    return "needed" if default is inspect.Parameter.empty else repr(default)


def _labels(kind: str, entry: Entry) -> tuple[str, ...]:
    facts = entry.facts
    if kind == "predictions":
        return ("numbers",) if facts & {"elementwise", "number-labels"} else ("scores",)
    if kind == "class scores":
        return ("several",) if "several-labels" in facts else ("classes", "graded")
    if kind == "teachers":
        return ("classes",) if entry.name == "mixed_labels" else ("scores",)
    if kind in ("samplers", "regularizers"):
        named = {"class-labels": "classes", "number-labels": "numbers", "group-labels": "groups"}
        return tuple(label for fact, label in named.items() if fact in facts) or ("none",)
    if "number-relation" in facts:
        return ("numbers",)
    if kind == "miners" or "soft-relation" in facts:
        return ("classes", "several", "graded")
    return ("classes", "several")


_EXAMPLES = {
    "pairs": 'from vicinal.losses import EmbeddingLoss\n\ncriterion = EmbeddingLoss("{name}"{options})\n'
    "loss = criterion(embeddings, labels)  # [b, d] and {labels} [b]",
    "proxies": "from vicinal.losses import ProxyLoss\n\n"
    'criterion = ProxyLoss("{name}", num_classes=10, dim=64{options})\n'
    "loss = criterion(embeddings, labels)  # [b, 64] and classes 0 to 9\n"
    "learned = criterion.parameters()  # the vectors of the classes: give them to the optimizer too",
    "class scores": "from vicinal.losses import {symbol}\n\n"
    "loss = {symbol}(scores, labels{needed}{options})  # [b, K], and classes [b] or shares of them [b, K]",
    "teachers": "from vicinal.losses import {symbol}\n\nloss = {symbol}(scores, teacher_scores{needed}{options})",
    "regularizers": "from vicinal.losses import {symbol}\n\nloss = {symbol}({called}{options})  # to be added",
    "samplers": "from torch.utils.data import DataLoader\nfrom vicinal.samplers import {symbol}\n\n"
    "sampler = {symbol}({sampled}{options})\nloader = DataLoader(dataset, batch_sampler=sampler)",
    "miners": "from vicinal import miners\nfrom vicinal.losses import EmbeddingLoss\n\nminer = miners.{symbol}\n"
    'criterion = EmbeddingLoss("triplet", miner=miner)\nloss = criterion(embeddings, labels)',
    "fitted": "from vicinal.losses import {symbol}\n\ncriterion = {symbol}().fit(labels)\n"
    "steps = criterion.steps(labels)  # [n, K]\n"
    "loss = criterion(weights @ steps, steps)  # weights of neighbors [n, n], rows sum to 1",
    "module": "{linked}from vicinal.losses import {symbol}\n\n"
    "criterion = {symbol}({made_of})\nloss = criterion({called})",
    "predictions": "from vicinal.losses import {symbol}\n\nloss = {symbol}({called})",
}
"""Python lines that create a method of a kind and use it."""

_MADE_OF = {
    "classes": "10",
    "dim": "64",
    "link": "links.Sinh()",
    "scaling": "links.Exp()",
    "potential": "links.ConvexPotential(3)",
}
"""Arguments by the name of what a method needs."""


def python_example(kind: str, entry: Entry, settings: tuple[tuple[str, str, str], ...]) -> str:
    """Python lines that create the method and use it."""
    is_class = inspect.isclass(entry.factory)
    if kind == "predictions" or (kind == "regularizers" and is_class):
        kind = "fitted" if hasattr(entry.factory, "steps") else "module" if is_class else "predictions"
    options = "".join(f", {name}={default}" for name, default, _ in settings if default not in ("needed", "None"))
    if kind == "pairs" and entry.name in NEGATIVE_DISTANCES:
        options = f', similarity="l2"{options}'
    names = [name for name, default, _ in settings if default == "needed"]
    parameters = list(inspect.signature(entry.factory).parameters)
    example = _EXAMPLES[kind].format(
        name=entry.name,
        symbol=entry.factory.__name__,
        options=options,
        labels="numbers" if "number-relation" in entry.facts else "classes",
        needed="".join(f", {name}={name}" for name in names),
        called=_called_with(entry),
        sampled=", ".join([*parameters[:1], *(["parents"] if "parents" in parameters else [])]),
        linked="from vicinal import links\n" if names else "",
        made_of=", ".join(_MADE_OF.get(name, name) for name in names),
    )
    bound = "".join(f", {name}={64 if name == 'dim' else name}" for name in names) + options
    if kind == "miners" and bound:
        miner = f"miners.{entry.factory.__name__}"
        return "import functools\n\n" + example.replace(f"= {miner}", f"= functools.partial({miner}{bound})")
    return example


def _called_with(entry: Entry) -> str:
    """Arguments of a loss of predictions: mostly prediction and target."""
    parameters = list(inspect.signature(getattr(entry.factory, "forward", entry.factory)).parameters.values())
    return ", ".join(p.name for p in parameters if p.default is p.empty and p.name != "self")


def used_by(kind: str, entry: Entry) -> str:
    """Which commands take the method, or where else it is used.

    >>> from vicinal.core import entry
    >>> used_by("pairs", entry("pair_loss", "supcon")), used_by("teachers", entry("teacher_loss", "kl_top"))
    ('fit, learn', 'distill')
    """
    if kind in ("predictions", "class scores", "teachers", "regularizers") and entry.name in ELSEWHERE:
        return ELSEWHERE[entry.name][1]
    if kind == "samplers":
        return "learn" if entry.name in ("classes", "groups", "strata", "clusters") else "Python"
    if kind == "miners" and entry.name == "guided":
        return "Python"
    return "fit" if kind in ("predictions", "class scores") else "fit, learn"


def command_example(kind: str, entry: Entry, settings: tuple[tuple[str, str, str], ...]) -> str:
    """The ``vicinal fit`` command that uses the method, or ""."""
    if kind in ("pairs", "proxies"):
        options = ", ".join(f"{n}={d}" for n, d, _ in settings[:2] if d not in ("needed", "None") and "'" not in d)
        return f'vicinal fit data.csv --target label --loss "{entry.name}{f"({options})" if options else ""}"'
    if kind == "regularizers" and entry.name not in ELSEWHERE:
        return f'vicinal learn data.csv --same label --loss "supcon + 0.05*{entry.name}"'
    if kind == "teachers" and ELSEWHERE[entry.name][1] == "distill":
        return f'vicinal distill MODEL data.csv --encoder text=ngrams --loss "{entry.name}"'
    if kind == "miners" and not any(default == "needed" and name != "dim" for name, default, _ in settings):
        return f'vicinal fit data.csv --target label --loss "triplet(miner={entry.name})"'
    if kind == "class scores" and "perturbed-scores" not in entry.facts:
        return f'vicinal fit data.csv --target label --loss "{entry.name}"'
    if kind == "predictions":
        part = {"link": ":sinh", "scaling": ":exp"}
        first = next((name for name, default, _ in settings if default == "needed"), "")
        by_itself = _called_with(entry) == "prediction, target" or hasattr(entry.factory, "steps")
        if first != "potential" and by_itself:
            return f'vicinal fit data.csv --target score --loss "{entry.name}{part.get(first, "")}"'
    return ""
