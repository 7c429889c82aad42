"""``vicinal show``: the contents of a model folder."""

from typing import Annotated, Any

import typer

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import out as output
from vicinal.cli.output import print_json, print_rows, print_scores


@app.command(epilog="Example: vicinal show houses-model  |  vicinal show houses-model --json")
def show(
    model: Annotated[str, typer.Argument(help="Folder of a model, a matcher or a recommender.", metavar="MODEL")],
    *,
    changes: Annotated[bool, typer.Option("--changes", help="List what was added, relabelled and forgotten.")] = False,
    as_json: o.AsJson = False,
) -> None:
    """Show what a folder holds: task, columns, settings, scores, rows, versions and sizes.

    Only its settings are read, so this is fast for a model of any size.
    """
    from vicinal.core.checks import local_path
    from vicinal.workflows.show import list_changes, show_folder

    if changes:
        listed = list_changes(local_path("model", model))
        if as_json:
            print_json(listed)
        else:
            _print_changes(listed)
        return
    shown = show_folder(local_path("model", model))
    if as_json:
        print_json(shown)
    else:
        _print_folder(shown)


def _print_folder(shown: dict[str, Any]) -> None:
    from vicinal.workflows.show import setting_words, size_words

    lines = [["what", _what(shown)], *([["learned from", shown["name"]]] if shown.get("name") else [])]
    version = f"vicinal {shown['vicinal']}" + (f", torch {shown['torch']}" if shown.get("torch") else "")
    lines += [["written", f"{_moment(shown['written'])} by {version}"]]
    lines += [["rows", ", ".join(f"{count:,} {use}" for use, count in shown["rows"].items())]]
    if shown["kind"] == "model":
        lines += [["vectors", f"of {shown['dim']} numbers ({shown['storage']})"]]
    lines += [[role, shown[role]] for role in ("id", "group", "time", "weight") if shown.get(role)]
    if shown.get("adapted"):
        undo = f"vicinal adapt {shown['model']} --undo --out {shown['model']}"
        lines += [["adapted", f"to {shown['adapted']:,} new rows; to take it back: {undo}"]]
    if shown.get("journal"):
        journal = shown["journal"]
        count = f"{journal['records']} changes, {size_words(journal['bytes'])}; --changes lists them"
        lines += [["journal", count]]
    width = max(len(name) for name, _ in lines)
    output.print(str(shown["model"]), style="bold", markup=False)
    for name, words in lines:
        output.print(f"{name:<{width}}  {words}", markup=False)
    columns = [[name, column["kind"], column["encoder"]] for name, column in shown["columns"].items()]
    print_rows("Columns", ["column", "taken for", "encoder"], columns, numbers=False)
    settings = [[name, setting_words(value)] for name, value in shown["settings"].items()]
    print_rows("Settings", ["setting", "value"], settings, numbers=False)
    if shown["kind"] != "model":
        rows = [[name, f"{value:.4g}"] for values in shown["scores"].values() for name, value in values.items()]
        print_rows("Scores, measured when it was made", ["", "value"], rows)
    elif shown["scores"]:
        print_scores("Scores, measured when it was made", shown["scores"])
    for note in shown.get("notes", []):
        output.print(note, markup=False)
    sizes = [[name, size_words(size)] for name, size in shown["files"].items()]
    print_rows(f"{size_words(shown['bytes'])} in {len(sizes)} files", ["file", "size"], sizes)


def _print_changes(listed: list[dict[str, Any]]) -> None:
    rows = []
    for one in listed:
        count = len(one["ids"])
        more = f", and {count - _IDS} more" if count > _IDS else ""
        labels = one["labels"] or [None] * count
        before = one["before"] or [None] * count
        names = [
            f"{name}" + ("" if new is None else f": {new}" if old is None else f": {old} to {new}")
            for name, old, new in list(zip(one["ids"], before, labels, strict=True))[:_IDS]
        ]
        rows.append([str(one["sequence"]), _moment(one["time"]), one["who"], one["what"], ", ".join(names) + more])
    print_rows("Changes, oldest first", ["", "when", "who", "what", "rows"], rows, numbers=False)


_IDS = 5
"""Most rows of a change to name."""


def _what(shown: dict[str, Any]) -> str:
    labels = shown.get("labels", {})
    if shown["kind"] == "matcher":
        return "a matcher of the rows of two tables" if "left" in shown["rows"] else "a matcher of rows of one table"
    if shown["kind"] == "recommender":
        return "a recommender of items to users"
    target = shown["target"] or "a target without a name"
    what = f"what is alike by {target}" if shown["task"] == "similarity" else f"{shown['task']} of {target}"
    if "classes" in labels:
        more = ", ..." if labels["classes"] > len(labels["names"]) else ""
        several = ", several a row" if labels.get("several") else ""
        what += f" ({labels['classes']} classes{several}: {', '.join(map(str, labels['names']))}{more})"
    elif labels:
        low, high = (
            f"{end:.0f}" if end == round(end) else f"{end:.4g}" for end in (labels["lowest"], labels["highest"])
        )
        what += f" (numbers from {low} to {high} in training)"
    return what + (f", distilled from {shown['distilled_from']}" if shown["distilled_from"] else "")


def _moment(stamp: str) -> str:
    return f"{stamp[:10]} {stamp[11:16]} UTC"
