"""``vicinal predict``: predictions for new rows, with neighbors and intervals."""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import output, print_json
from vicinal.cli.progress import shown_progress


@app.command(epilog="Example: vicinal predict houses-model new.csv --explain 3 --interval 0.9 --out prices.csv")
@o.with_options(o.AIM, o.MODEL, o.RUN)
def predict(
    model: Annotated[str, o.argument("Model folder of `vicinal fit`.", "MODEL")],
    data: Annotated[str, o.argument("Table with the columns that the model reads.", "DATA")],
    *,
    out: Annotated[
        o.Name, o.described("File to write: csv, tsv, parquet, jsonl or sqlite; default: print csv.", metavar="FILE")
    ] = None,
    explain: Annotated[int, o.described("Show the K bank rows of most weight.", metavar="K")] = 0,
    explain_elements: Annotated[
        bool,
        o.described(
            "Also show what each element of sets adds: each is left out in turn, which takes time.",
            "--explain-elements",
        ),
    ] = False,
    interval: Annotated[
        float | None, o.described("Add intervals that cover with this probability.", metavar="COVERAGE")
    ] = None,
    abstain: Annotated[
        float | None,
        o.described(
            "Answer only where at most this share of answers is wrong, with 90 % confidence; leave others empty.",
            metavar="ERROR",
        ),
    ] = None,
    keep: Annotated[o.Names, o.described("Put this column of the table beside the predictions.", metavar="COL")] = None,
    include_own: o.IncludeOwn = False,
    engine: Annotated[o.Name, o.described("ray: predict with its workers.", metavar="NAME", panel=o.ALSO)] = None,
    workers: Annotated[
        int | None, o.described("Workers of the engine; default: one per processor.", panel=o.ALSO)
    ] = None,
    no_escape: Annotated[
        bool,
        o.described(
            "In CSV, no apostrophe before cells that a spreadsheet might run as formulas (=, +, -, @).", "--no-escape"
        ),
    ] = False,
    **options: Any,
) -> None:
    """Predict new rows, with the bank rows behind each prediction and an interval, if requested."""
    from vicinal.core.checks import check_between, check_integer, local_path
    from vicinal.data import write_table
    from vicinal.data.writing import check_table_name
    from vicinal.workflows import predict_table
    from vicinal.workflows.streaming import predict_file

    check_integer("--explain", explain, low=0)
    if interval is not None:
        check_between("--interval", interval, 0, 1)
    if abstain is not None:
        check_between("--abstain", abstain, 0, 1)
    path = None if out is None else check_table_name(local_path("--out", out, written=True))
    folder, source = o.folder_of(model), o.table_of(data, options)
    settings: dict[str, Any] = {
        "explain": explain,
        "elements": explain_elements,
        "coverage": interval,
        "abstain": abstain,
        "keep": keep or (),
        "include_own": include_own,
        "aim": o.aim_of(options),
    }
    settings |= o.opened(options)
    if options["as_json"]:
        if engine is not None or workers is not None:
            raise ValueError("engine: expected none with --json, which is one list, got one; say --out FILE.jsonl")
        with shown_progress(quiet=options["quiet"], verbose=options["verbose"]) as shown:
            result = predict_table(folder, source, **settings | {"log": shown.log})
        if path is not None:
            write_table(result.flat(), path, escape=not no_escape)
        print_json(result.records())
        return
    with tempfile.TemporaryDirectory(prefix="vicinal-") as scratch:
        written = Path(scratch, "predictions.csv") if path is None else path
        shared: dict[str, Any] = {"engine": engine, "workers": workers, "escape": not no_escape}
        with shown_progress(quiet=options["quiet"], verbose=options["verbose"]) as shown:
            rows = predict_file(folder, source, written, **shared, **settings | {"log": shown.log})
        if path is None:
            with written.open(encoding="utf-8", newline="") as file:
                shutil.copyfileobj(file, sys.stdout)
        else:
            output.print(f"{rows} predictions in {out}")
