"""Printing: results on standard output, progress and errors on standard error."""

import json
from collections.abc import Mapping, Sequence
from typing import IO, Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable

_PLAIN: Any = {"highlight": False, "markup": False, "soft_wrap": True}  # texts are shown as they are, brackets too
output, progress = Console(**_PLAIN), Console(stderr=True, **_PLAIN)


def print_progress(line: str) -> None:
    """Print a line of progress on standard error."""
    progress.print(line, style="dim")


def print_json(value: Any, file: IO[str] | None = None) -> None:
    """Print ``value`` as a line of JSON, on standard output if no file is named; see :func:`finite`."""
    print(json.dumps(finite(value), default=str, allow_nan=False), file=file, flush=file is not None)


def finite(value: Any) -> Any:
    """``value`` for JSON: numbers that are not finite as None, mappings as dictionaries, tuples as lists."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {str(name): finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value.item() if hasattr(value, "item") else value


_FOLDED = 24
"""Width to which a column of names, or one that may be left out, is folded."""

_NARROW = 14
"""Width of a column that is folded only where narrow columns leave no room for a folded one."""


def print_rows(
    title: str,
    headings: list[str],
    rows: list[list[str]],
    *,
    numbers: bool = True,
    names: bool = False,
    least: int | None = None,
    console: Console = output,
) -> None:
    """Print a table on ``console``.

    With ``numbers``, all columns except the first are flush right and never wrapped; with ``names``, the first is not
    wrapped unless others would be cut; narrow columns are wrapped only where they fill the width. Columns after the
    first ``least`` are left out, from the last, where they would squeeze the others though long ones are folded; the
    first of them is cut to what is left of the width.
    """
    widths = [max(map(cell_len, cells)) + 2 for cells in zip(headings, *rows, strict=True)]
    least = len(headings) if least is None else least
    widths[least:] = [min(width, _FOLDED) for width in widths[least:]]
    while len(headings) > least + 1 and sum(widths[: len(headings)]) > console.width:
        headings, rows = headings[:-1], [row[:-1] for row in rows]
    over = sum(widths[: len(headings)]) - console.width
    if least < len(headings) and over > 0:  # one column is left: a text is cut, anything else is left out
        from vicinal.core.checks import short_text  # which --help needs not

        room = _NARROW if widths[least] > _NARROW and widths[least] - over > 2 else 0
        headings = [*headings[:least], *[short_text(headings[least], room)] * (room > 0)]
        rows = [[*row[:least], *[short_text(row[least], 3 * room)] * (room > 0)] for row in rows]
    wide = sum(widths[: len(headings)]) > console.width
    narrow = sum(width for width in widths[1 : len(headings)] if width <= _NARROW) <= console.width - _FOLDED
    names = names and not (wide and (numbers or widths[0] > _FOLDED))
    table = RichTable(title=title, title_justify="left", title_style="bold", header_style="bold", box=SIMPLE_HEAD)
    for place, heading in enumerate(headings):
        right = numbers and place > 0
        table.add_column(
            heading,
            justify="right" if right else "left",
            overflow="fold",
            no_wrap=right or (names and place == 0) or (place > 0 and narrow and widths[place] <= _NARROW),
        )
    for row in rows:
        table.add_row(*row)
    console.print(table)


def print_columns(rows: Sequence[tuple[str, str | None, str, str]], console: Console, *, whole: bool) -> None:
    """Print names, kinds (None or "" if left out), encoders and reasons of columns, as a table or in one line."""
    from vicinal.encoders.kinds import told_kinds

    if whole:
        lines = [[name, kind or "left out", encoder, reason] for name, kind, encoder, reason in rows]
        print_rows("Columns", ["column", "taken for", "encoder", "because"], lines, numbers=False, console=console)
        return
    kinds = [kind for _, kind, _, _ in rows if kind]
    left = [name for name, kind, _, _ in rows if not kind]
    names = ", ".join(left[:_NAMED]) + (f" and {len(left) - _NAMED} more" if len(left) > _NAMED else "")
    out = f"; {len(left)} left out ({names})" if left else ""
    console.print(f"Columns: {len(kinds)} used ({told_kinds(kinds)}){out}; -v lists them")


_NAMED = 3
"""Left-out columns that the short form names."""


def print_scores(title: str, scores: Mapping[str, Mapping[str, float]]) -> None:
    """Print a table of scores by method."""
    from vicinal.report.text import metric_name

    metrics = list(dict.fromkeys(metric for values in scores.values() for metric in values))
    rows = [[method, *(_number(metric, values.get(metric)) for metric in metrics)] for method, values in scores.items()]
    print_rows(title, ["", *(_SHORT.get(metric) or metric_name(metric) for metric in metrics)], rows)


_SHORT = {"subset_accuracy": "all right", "hamming_loss": "Hamming", "average_precision": "AP"}
_SHARES = ("r2", "accuracy", "micro_f1", "macro_f1", "subset_accuracy", "average_precision", "ndcg@10")


def _number(metric: str, value: float | None) -> str:
    from vicinal.report.text import score

    if value is None:
        return ""
    if metric in _SHARES:
        return f"{value:.3f}"
    return score(value)  # an error of prices as prices are written


def cell_words(value: object) -> str:
    """A cell as short text for a terminal."""
    from vicinal.report.text import cell_text

    text = "..." if isinstance(value, bytes | bytearray) else " ".join(cell_text(value).split())
    return text if len(text) <= _LETTERS else text[: _LETTERS - 3] + "..."


def label_words(label: object) -> str:
    """A label as short text for a terminal; several classes or numbers with commas between them.

    >>> label_words(("sea", "sun")), label_words([1.5, 0.25]), label_words("a")
    ('sea, sun', '1.5, 0.25', 'a')
    """
    return ", ".join(map(cell_words, label)) if isinstance(label, list | tuple) else cell_words(label)


_LETTERS = 60
"""Most letters of a cell to show."""
