"""The model card: a README.md with what the model is, how good it is, how to use it, and its limits."""

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from vicinal.core.files import replace_text
from vicinal.encoders.names import reaches_out
from vicinal.report.records import FitRecord
from vicinal.report.tables import findings, fit_table, importance_rows, importance_sentence, limits, mean_of
from vicinal.report.text import clean, duration, one_line, percent
from vicinal.report.theme import shown

_ADJUSTED = "each adjusted by what a trend by columns says of the difference, and of the trend itself, all of "
"""How the labels of comparables are taken."""


def write_card(record: FitRecord, path: str | os.PathLike[str], *, folder: str = "MODEL") -> Path:
    """Write the card of ``record`` to ``path``, whole or not at all.

    Args:
        record: the fit.
        path: of the card, usually README.md in the model folder.
        folder: name of the model folder in the usage examples.

    Returns:
        The path.
    """
    return replace_text(path, card_text(record, folder=folder))


def card_text(record: FitRecord, *, folder: str = "MODEL") -> str:
    """The card of ``record`` as Markdown with a YAML header."""
    parts = [
        _header(record),
        f"# {markdown(record.name)}",
        _about(record),
        "## Results",
        "\n".join(markdown(sentence) for sentence in findings(record)),
        _table(fit_table(record)),
        "## Use",
        _use(record, folder),
        "## Data",
        _data(record),
        *_importance(record),
        "## Settings",
        _table([["setting", "value"], *([key, shown(value)] for key, value in record.settings.items())]),
        "## Limits",
        _bullets([*limits(record), *record.notes]),
        _versions(record),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown(value: object, limit: int = 300) -> str:
    r"""``value`` as one line of Markdown, escaped so that nothing in it becomes a tag, a link or a table cell.

    >>> print(markdown("<b>a|b</b> [x](y) snake_case"))
    &lt;b&gt;a\|b&lt;/b&gt; \[x\](y) snake_case
    """
    text = one_line(value, limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*\[\]|#~$])", r"\\\1", text)
    text = re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)
    return re.sub(r"^([-+])", r"\\\1", text)


def _yaml(value: object) -> str:
    """``value`` as a quoted YAML string of one line, with characters escaped that have a meaning in Markdown."""
    text = "".join(c if c.isprintable() else " " for c in one_line(value, 200))
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[<>\[\]`]", lambda sign: f"\\x{ord(sign[0]):02X}", quoted) + '"'


def _header(record: FitRecord) -> str:
    """The YAML header, in the form that model hubs read."""
    kind = f"tabular-{record.task}"
    lines = ["---", "library_name: vicinal", f"pipeline_tag: {kind}", "tags:", "- vicinal", "- nearest-neighbors"]
    lines += ["model-index:", f"- name: {_yaml(record.name)}", "  results:", "  - task:", f"      type: {kind}"]
    lines += ["    dataset:", f"      name: {_yaml(record.name)}", "      type: tabular", "    metrics:"]
    for metric, value in record.scores["model"].items():
        lines += [f"    - type: {_yaml(metric)}", f"      value: {float(value):.6g}"]
    return "\n".join([*lines, "---"])


def _about(record: FitRecord) -> str:
    """What the model does, in a paragraph."""
    inputs = ", ".join(f"{_code(c.name)} ({c.kind})" for c in record.column_list if c.kind)
    what = "number" if record.task == "regression" else "classes" if record.several else "class"
    head = str(record.settings.get("head", "nona"))
    mean, comparables = mean_of(record), record.settings.get("readout") == "comparables"
    how = (
        f"from the labelled rows that are near it: each prediction is a weighted {mean} of labels of real rows, "
        f"{_ADJUSTED if comparables else ''}which can be listed"
        if head.startswith("nona")
        else "by a dense head, which has no neighbors to show"
    )
    took = "" if record.duration_s is None else f" It was fitted in {duration(record.duration_s)}."
    return (
        f"Predicts the {what} {_code(record.target_name)} of a row{f' from {inputs}' if inputs else ''}, {how}.{took}"
    )


def _use(record: FitRecord, folder: str) -> str:
    """The command and the Python lines."""
    name = "NeighborRegressor" if record.task == "regression" else "NeighborClassifier"
    neighbors = str(record.settings.get("head", "nona")).startswith("nona")
    place = one_line(folder, 200)
    interval = " --interval 0.9" if record.task == "regression" and neighbors else ""
    again, arguments = _named_again(record)
    command = f"vicinal predict {shlex.quote(place)} new.csv" + (" --explain 5" if neighbors else "") + interval + again
    lines = [
        "import pandas as pd",
        f"from vicinal.estimators import {name}",
        "",
        f"model = {name}.load({place!r}{arguments})",
        'rows = pd.read_csv("new.csv")',
        "model.predict(rows)",
    ]
    if neighbors:
        lines += [
            "model.explain(rows, k=5)  # the bank rows behind each prediction: id, weight, label, contribution",
            *(["model.importance()  # how much each column matters, in shares"] if record.importance else []),
            "model.add(rows, labels)  # more labelled rows, without training",
            "model.forget(ids)  # these rows leave every prediction at once",
        ]
    return f"```sh\n{command}\n```\n\n```python\n" + "\n".join(lines) + "\n```"


def _named_again(record: FitRecord) -> tuple[str, str]:
    """Settings that must be given again to load the model, as command-line options and as Python arguments."""
    index, encoders = record.settings.get("index"), record.settings.get("encoders") or {}
    outside = {column: name for column, name in encoders.items() if reaches_out(name)}
    options, arguments = "", ""
    if isinstance(index, str) and index.startswith("milvus:"):
        options, arguments = f" --index {shlex.quote(one_line(index, 200))}", f", index={one_line(index, 200)!r}"
    for column, name in outside.items():
        options += f" --encoder {shlex.quote(one_line(f'{column}={name}', 200))}"
    return options, arguments + (f", encoders={one_line(outside, 400)}" if outside else "")


def _data(record: FitRecord) -> str:
    """Columns, rows used and dropped."""
    columns = [[c.name, c.kind or "left out", c.encoder, c.reason] for c in record.column_list]
    sizes = ", ".join(f"{count:,} {markdown(name)}" for name, count in record.split_sizes.items())
    facts = [f"{record.rows_used:,} rows used{f' ({sizes})' if sizes else ''}."]
    facts += [f"{count:,} rows dropped: {markdown(reason)}" for reason, count in record.dropped.items()]
    facts += [markdown(record.duplicates)] if record.duplicates else []
    table = _table([["column", "taken for", "encoder", "because"], *columns]) if columns else ""
    return "\n\n".join(part for part in ("\n".join(f"- {fact}" for fact in facts), table) if part)


def _importance(record: FitRecord) -> list[str]:
    """The section on which columns matter; nothing if the metric has none."""
    if not record.importance:
        return []
    rows = [[name, percent(share)] for name, share in importance_rows(record.importance)]
    return ["## Columns that matter", markdown(importance_sentence(record)), _table([["column", "share"], *rows])]


def _table(rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown, or nothing if there is only a header."""
    if len(rows) < 2:
        return ""
    lines = ["| " + " | ".join(markdown(text) for text in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


def _bullets(sentences: Iterable[str]) -> str:
    """A list of sentences; the code in them (between backticks) stays."""
    return "\n".join(f"- {markdown(clean(sentence), 600)}" for sentence in sentences)


def _versions(record: FitRecord) -> str:
    if not record.versions:
        return ""
    return "Made with " + ", ".join(f"{markdown(k)} {markdown(v)}" for k, v in record.versions.items()) + "."


def _code(value: object) -> str:
    """``value`` in a code tag, since nothing can be escaped between backticks."""
    return f"<code>{markdown(value, 60)}</code>"
