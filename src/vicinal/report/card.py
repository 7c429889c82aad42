"""The model card: a README.md with what the model is, how good it is, how to use it, and its limits."""

import re
import shlex

from vicinal.encoders.names import reaches_out
from vicinal.report.records import FitRecord
from vicinal.report.tables import findings, fit_table, importance_rows, importance_sentence, limits, mean_of
from vicinal.report.text import clean, one_line, percent
from vicinal.report.theme import environment, shown

_ADJUSTED = "each adjusted by what a trend by columns says of the difference, and of the trend itself, all of "
"""How the labels of comparables are taken."""


def card_text(record: FitRecord) -> str:
    """The card of ``record`` as Markdown with a YAML header."""
    settings = record.settings
    with_neighbors = str(settings.get("head", "nona")).startswith("nona")
    how = "by a dense head, which has no neighbors to show"
    if with_neighbors:
        adjusted = _ADJUSTED if settings.get("readout") == "comparables" else ""
        how = (
            f"from the labelled rows that are near it: each prediction is a weighted {mean_of(record)} of labels of "
            f"real rows, {adjusted}which can be listed"
        )
    again, arguments = _named_again(record)
    explain, interval = " --explain 5" * with_neighbors, " --interval 0.9" * with_neighbors
    shares = [[name, percent(share)] for name, share in importance_rows(record.importance)]
    columns = [[c.name, c.kind or "left out", c.encoder, c.reason] for c in record.columns]
    plain = environment().overlay(autoescape=False)  # what the filters give is escaped for Markdown, not for HTML
    plain.filters = plain.filters | {"markdown": markdown, "yaml": _yaml}
    plain.filters["code"] = lambda value: f"<code>{markdown(value, 60)}</code>"  # between backticks nothing is escaped
    text = plain.get_template("card.md").render(
        record=record,
        inputs=[c for c in record.columns if c.kind],
        how=how,
        findings=findings(record),
        scores=fit_table(record),
        command=f"vicinal predict MODEL new.csv{explain}{interval if record.task == 'regression' else ''}{again}",
        estimator="NeighborRegressor" if record.task == "regression" else "NeighborClassifier",
        load=f"'MODEL'{arguments}",
        neighbors=with_neighbors,
        columns=[["column", "taken for", "encoder", "because"], *columns],
        importance=[["column", "share"], *shares],
        importance_sentence=importance_sentence(record),
        settings=[["setting", "value"], *([key, shown(value)] for key, value in settings.items())],
        limits=[clean(sentence) for sentence in (*limits(record), *record.notes)],
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"  # parts that a record lacks leave lines


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
