"""``vicinal show``: the contents of a model folder."""

from typing import Annotated, Any

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import label_words, output, print_json, print_rows, print_scores


@app.command(epilog="Example: vicinal show houses-model  |  vicinal show houses-model --json")
def show(
    model: Annotated[str, o.argument("Folder of a model, a matcher or a recommender.", "MODEL")],
    *,
    changes: Annotated[bool, o.described("List what was added, relabelled and forgotten.", "--changes")] = False,
    as_json: o.AsJson = False,
) -> None:
    """Show what a folder holds: task, columns, settings, scores, rows, versions and sizes.

    Only its settings are read, so this is fast for a model of any size.
    """
    from vicinal.workflows.show import list_changes, show_folder

    if changes:
        listed = list_changes(o.folder_of(model))
        if as_json:
            print_json(listed)
        else:
            _print_changes(listed)
        return
    shown = show_folder(o.folder_of(model))
    if as_json:
        print_json(shown)
    else:
        _print_folder(shown)


def _print_folder(shown: dict[str, Any]) -> None:
    from vicinal.report.summary import summary
    from vicinal.workflows.show import size_words

    lines = summary(shown)
    if shown.get("adapted"):
        lines["adapted"] += f"; to take it back: vicinal adapt {shown['model']} --undo --out {shown['model']}"
    if shown.get("journal"):
        journal = shown["journal"]
        lines["journal"] = f"{journal['records']} changes, {size_words(journal['bytes'])}; --changes lists them"
    output.print(str(shown["model"]), style="bold")
    output.print(str(lines))
    columns = [[name, column["kind"], column["encoder"]] for name, column in shown["columns"].items()]
    print_rows("Columns", ["column", "taken for", "encoder"], columns, numbers=False)
    if shown["kind"] == "model" and shown["scores"]:
        print_scores("Scores, measured when it was made", shown["scores"])
    for note in shown.get("notes", []):
        output.print(note)
    output.print(f"{size_words(shown['bytes'])} in {len(shown['files'])} files; --json lists them")


def _print_changes(listed: list[dict[str, Any]]) -> None:
    from vicinal.report.summary import moment

    rows = []
    for one in listed:
        count = len(one["ids"])
        more = f", and {count - _IDS} more" if count > _IDS else ""
        before, labels = (map(label_words, one[name]) if one[name] else [None] * count for name in ("before", "labels"))
        names = [
            f"{name}" + ("" if new is None else f": {new}" if old is None else f": {old} to {new}")
            for name, old, new in list(zip(one["ids"], before, labels, strict=True))[:_IDS]
        ]
        rows.append([str(one["sequence"]), moment(one["time"]), one["who"], one["what"], ", ".join(names) + more])
    if not rows:
        output.print("No changes: no row was added, relabeled or forgotten.")
        return
    print_rows("Changes, oldest first", ["", "when", "who", "what", "rows"], rows, numbers=False)


_IDS = 5
"""Most rows of a change to name."""
