"""``vicinal predict``: a model folder and new rows to predictions, with neighbors and intervals."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import out as output
from vicinal.cli.output import print_json, say

if TYPE_CHECKING:
    import pandas as pd


@app.command(epilog="Example: vicinal predict houses-model new.csv --explain 3 --interval 0.9 --out prices.csv")
def predict(
    model: Annotated[Path, typer.Argument(help="Model folder of `vicinal fit`.")],
    data: Annotated[Path, typer.Argument(help="Table with the columns that the model reads.")],
    *,
    out: Annotated[
        Path | None, typer.Option(help="File to write: csv, tsv, parquet or jsonl; default: print csv.")
    ] = None,
    explain: Annotated[int, typer.Option(help="Show the K bank rows that weigh most.", metavar="K")] = 0,
    interval: Annotated[
        float | None, typer.Option(help="Add an interval that covers with this probability.", metavar="COVERAGE")
    ] = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
) -> None:
    """Predict new rows, say which rows made each prediction, and how far off it may be."""
    from vicinal.core import check_between, check_integer
    from vicinal.estimators import predict_table

    check_integer("--explain", explain, low=0)
    if interval is not None:
        check_between("--interval", interval, 0, 1)
    result = predict_table(model, data, explain=explain, coverage=interval, say=(lambda line: None) if quiet else say)
    if out is not None:
        write_table(result.flat(), out)
        output.print(f"{len(result.rows)} predictions in {out}", markup=False)
    if as_json:
        print_json(result.records())
    elif out is None:
        output.print(result.flat().to_csv(index=False), end="", markup=False)


def write_table(table: "pd.DataFrame", path: Path) -> None:
    """Write ``table`` in the form that the name of the file asks for, whole or not at all."""
    from vicinal.core import replaced_file

    writers: dict[str, Any] = {
        ".csv": lambda aside: table.to_csv(aside, index=False),
        ".tsv": lambda aside: table.to_csv(aside, index=False, sep="\t"),
        ".parquet": lambda aside: table.to_parquet(aside, index=False),
        ".jsonl": lambda aside: table.to_json(aside, orient="records", lines=True),
    }
    if path.suffix not in writers:
        raise ValueError(f"--out: expected a name that ends in {', '.join(writers)}, got {path}")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"--out: expected a file in a folder that is there, got {path}")
    with replaced_file(path) as aside:
        writers[path.suffix](aside)
