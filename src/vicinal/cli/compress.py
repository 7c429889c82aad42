"""``vicinal compress``: a smaller model."""

from typing import Annotated, Any

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import output, print_json, print_rows


@app.command(epilog="Examples: vicinal compress reviews-model --keep .5  |  vicinal compress houses-model --rows .05")
@o.with_options({"encoder": o.AGAIN["encoder"]}, o.ANSWER)
def compress(
    model: Annotated[str, o.argument("Model folder of `vicinal fit` or `learn`.", "MODEL")],
    *,
    keep: Annotated[float, o.described("Share of the numbers of each part to keep.", metavar="SHARE")] = 0.5,
    variance: Annotated[
        float | None, o.described("Share of the variance of vectors to keep, in place of --keep.", metavar="SHARE")
    ] = None,
    rows: Annotated[
        float | None,
        o.described("Share of the rows to keep, those that predict as all do; nothing else is cut.", metavar="SHARE"),
    ] = None,
    out: Annotated[o.Name, o.described("Folder of the smaller model; default: MODEL-small.", metavar="FOLDER")] = None,
    **options: Any,
) -> None:
    """Write a model with thinner layers and shorter vectors, or with few rows, and show what that costs.

    For both models, it shows the error on held-out rows (or out of fold), bytes, and time per row. Nothing is trained.
    """
    from dataclasses import asdict

    from vicinal.core.checks import local_path
    from vicinal.workflows import compress_model

    outcome = compress_model(
        o.folder_of(model),
        keep,
        None if out is None else local_path("--out", out, written=True),
        variance=variance,
        rows=rows,
        encoders=o.parse_encoders(options["encoder"]),
        log=o.log_of(options),
    )
    if options["as_json"]:
        print_json(asdict(outcome) | {"folder": str(outcome.folder)})
        return
    print_rows(
        f"Error on {outcome.rows} rows that were held out, or out of fold",
        ["", outcome.error, "MiB", "ms a row"],
        [
            [name, f"{one.error:.4g}", f"{one.bytes / 2**20:.2f}", f"{1000 * one.seconds:.2f}"]
            for name, one in (("model", outcome.before), ("smaller", outcome.after))
        ],
    )
    print_rows(
        "What is smaller",
        ["part", "numbers", "of", "how"],
        [[cut.part, f"{cut.after:,}", f"{cut.before:,}", cut.how] for cut in outcome.cuts],
        numbers=False,
    )
    output.print(f"model   {outcome.folder}")
