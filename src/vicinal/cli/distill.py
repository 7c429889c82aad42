"""``vicinal distill``: a fitted model teaches a smaller one."""

from typing import Annotated, Any

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import output, print_json, print_rows
from vicinal.cli.progress import shown_progress


@app.command(epilog="Example: vicinal distill reviews-model reviews.csv --encoder text=ngrams --unlabelled more.csv")
@o.with_options(o.READ, o.RUN)
def distill(
    model: Annotated[str, o.argument("Model folder of `vicinal fit`: the teacher.", "MODEL")],
    data: Annotated[str, o.argument("The table it was fitted on; rows with an empty target are used, too.", "DATA")],
    *,
    encoder: Annotated[
        list[str],
        o.described("Encoder of the student for a column or kind: text=ngrams, photo=cnn.", metavar="COL=NAME"),
    ],
    unlabelled: Annotated[o.Name, o.described("A table of more rows, without labels.", metavar="FILE")] = None,
    out: Annotated[o.Name, o.described("Folder of the student; default: MODEL-student.", metavar="FOLDER")] = None,
    loss: Annotated[
        str,
        o.described(
            "Loss that also compares similarities: none, matching, kl_top(temperature=2), ranknet or "
            "sinkhorn_distillation."
        ),
    ] = "none",
    share: Annotated[float, o.described("Share of the teacher's prediction in a label, 0 to 1.")] = 0.5,
    teacher_encoder: Annotated[
        o.Names, o.described("Encoder of the teacher from a folder or the hub, named again.", metavar="COL=NAME")
    ] = None,
    **options: Any,
) -> None:
    """Train a smaller, faster model on the predictions of a fitted one, and compare their size, time and error.

    The student learns from labels and from the model's predictions of all rows. A student trained on labels alone is
    measured for comparison.
    """
    from vicinal.core.checks import local_path
    from vicinal.workflows import distill_table

    folder = o.folder_of(model)
    with shown_progress(**{name: options[name] for name in o.RUN}) as shown:
        outcome = distill_table(
            folder,
            o.table_of(data, options),
            o.parse_encoders(encoder),
            folder.parent / f"{folder.name}-student" if out is None else local_path("--out", out, written=True),
            unlabelled=o.table_of(unlabelled, name="--unlabelled"),
            loss=loss,
            share=share,
            root=o.root_of(options["root"]),
            teacher_encoders=o.parse_encoders(teacher_encoder),
            log=shown.log,
        )
    if options["as_json"]:
        measures = {
            name: {"bytes": one.bytes, "seconds_per_row": one.seconds, "scores": dict(one.scores)}
            for name, one in outcome.measures.items()
        }
        print_json({"model": str(outcome.folder), "rows": outcome.rows, "measures": measures})
        return
    metrics = list(outcome.measures["teacher"].scores)
    print_rows(
        f"On the {outcome.rows['test']} test rows, which no model has seen",
        ["", "MiB", "ms a row", *metrics],
        [
            [name, f"{one.bytes / 2**20:.1f}", f"{1000 * one.seconds:.2f}", *(f"{one.scores[m]:.4g}" for m in metrics)]
            for name, one in outcome.measures.items()
        ],
    )
    faster = outcome.measures["teacher"].seconds / max(outcome.measures["student"].seconds, 1e-9)
    output.print(
        f"the student takes {1 / faster:.0%} of the teacher's time a row; it learned from {outcome.rows['labelled']} "
        f"rows with a label and {outcome.rows['unlabelled']} without"
    )
    output.print(f"model   {outcome.folder}")
