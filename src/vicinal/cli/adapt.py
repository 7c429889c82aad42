"""``vicinal adapt``: a fitted model for rows of another population, with or without their labels."""

from typing import Annotated, Any

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import output, print_json


@app.command(
    epilog="Example: vicinal adapt houses-model this-year.csv --out houses-model-new  |  "
    "vicinal adapt houses-model --undo --out houses-model"
)
@o.with_options(o.MODEL, o.ANSWER)
def adapt(
    model: Annotated[str, o.argument("Model folder of `vicinal fit`.", "MODEL")],
    data: Annotated[o.Name, o.argument("Table of new rows with the columns that the model reads.", "DATA")] = None,
    *,
    out: Annotated[
        o.Name,
        o.described(
            "Folder of the adapted model; MODEL itself: change it in place. Default: only report.", metavar="FOLDER"
        ),
    ] = None,
    labels: Annotated[
        bool,
        o.described(
            "The rows have the column that the model predicts: calibrate intervals by their errors.", "--labels"
        ),
    ] = False,
    undo: Annotated[bool, o.described("Take an earlier adaptation back.", "--undo")] = False,
    who: Annotated[o.Name, o.described("Name for the journal; default: the user.")] = None,
    **options: Any,
) -> None:
    """Test whether new rows differ from the fit, and correct the model for them, without labels or with them.

    Without a shift nothing changes. With one, probabilities follow the new class shares, and intervals and sets are
    calibrated again by weighted rows; with --labels intervals get the width that the new rows need. Nothing is trained.
    """
    from vicinal.core.checks import local_path
    from vicinal.workflows import adapt_table

    if undo == (data is not None) or (undo and out is None):
        got = "neither" if data is None and not undo else "--undo without --out" if data is None else "both"
        raise ValueError(f"data: expected a table of new rows, or --undo with --out, got {got}")
    shift = adapt_table(
        o.folder_of(model),
        o.table_of(data, options),
        None if out is None else local_path("--out", out),
        labels=labels,
        who=who,
        **o.opened(options),
    )
    if options["as_json"]:
        print_json(shift.record())
        return
    if undo:
        output.print(f"{out} is as it was fitted, with the rows added, relabelled and forgotten since")
        return
    for line in shift.lines():
        output.print(line)
    if shift.kind == "none":
        return
    if out is None:
        output.print("Nothing was written; say --out to keep an adapted model.")
    else:
        output.print(f"Adapted model in {out}; to take it back: vicinal adapt {out} --undo --out {out}")
