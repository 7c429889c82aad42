"""``vicinal embed``, ``add``, ``relabel`` and ``forget``: vectors of rows, and changes of a model's bank."""

from typing import Annotated, Any, TypeAlias

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import label_words, output, print_json
from vicinal.cli.progress import shown_progress

Model: TypeAlias = Annotated[str, o.argument("Model folder of any kind.", "MODEL")]
_LISTED = 20
"""Most corrected labels to list."""


@app.command(epilog="Example: vicinal embed houses-model new.csv --out vectors.parquet")
@o.with_options(o.MODEL, {"quiet": o.RUN["quiet"]})
def embed(
    model: Model,
    data: Annotated[str, o.argument("Table with the columns that the model reads.", "DATA")],
    *,
    out: Annotated[
        str,
        o.described(
            "File to write: .parquet (columns id and vector) or .npy; or milvus:URI to add to.", metavar="FILE"
        ),
    ],
    collection: Annotated[str, o.described("Collection of milvus:URI.")] = "vicinal",
    **options: Any,
) -> None:
    """Write the vectors of a table's rows, which are near for rows that are alike to the model."""
    from vicinal.core import counted
    from vicinal.workflows.bank import embed_table

    table = o.table_of(data, options)
    rows, width = embed_table(o.folder_of(model), table, out, collection=collection, **o.opened(options))
    output.print(f"{counted(rows, 'vector')} of {counted(width, 'number')} in {out}")


@app.command(
    epilog="Examples: vicinal add houses-model sold-this-week.csv  |  vicinal add houses-model --from anns-model"
)
@o.with_options(o.MODEL, o.ANSWER)
def add(
    model: Model,
    data: Annotated[
        o.Name, o.argument("Table with the columns of the fit, and labels.", "DATA", show_default=False)
    ] = None,
    *,
    other: Annotated[
        o.Name,
        o.described("In place of DATA: a copy of the model that was given other rows.", "--from", metavar="OTHER"),
    ] = None,
    target: Annotated[o.Name, o.described("Column of labels; default: that of the fit.")] = None,
    id_column: Annotated[
        o.Name, o.described("Column of ids; default: that of the fit, or else the next numbers.", "--id")
    ] = None,
    group: Annotated[o.Name, o.described("Column of groups; default: that of the fit.")] = None,
    weight: Annotated[
        o.Name,
        o.described(
            "Column of weights; default: that of the fit, if it is there. auto: one that predicts new rows best.",
            metavar="COL|auto",
        ),
    ] = None,
    names: Annotated[
        o.Name,
        o.described("Table from vicinal discover with names in the column label; classes may be new.", metavar="FILE"),
    ] = None,
    new_classes: Annotated[
        bool, o.described("Accept classes that the model does not know yet.", "--new-classes")
    ] = False,
    epochs: Annotated[int | None, o.described("Then train at most so many more epochs; default: none.")] = None,
    **options: Any,
) -> None:
    """Add labelled rows to a model's bank without training; the next prediction uses them.

    If they differ in kind from the rows of the fit, --weight auto chooses how much they count, and --epochs 3 continues
    the training. --from OTHER takes over what a copy of the model was given, as if it had been added here.
    """
    from vicinal.core import counted
    from vicinal.core.checks import local_path
    from vicinal.workflows.bank import add_bank, add_table

    opened = o.opened(options) | {"new_classes": new_classes, "epochs": epochs}
    columns: dict[str, Any] = {"target": target, "id": id_column, "group": group, "weight": weight}
    if data is not None and other is None:
        named = o.table_of(names, name="--names")
        change = add_table(o.folder_of(model), o.table_of(data, options), names=named, **columns, **opened)
    elif data is None and other is not None:
        if names is not None or any(columns.values()):
            raise ValueError("from: expected no columns and no names, as the other model knows its rows, got some")
        del opened["root"]
        change = add_bank(o.folder_of(model), local_path("--from", other), **opened)
    else:
        raise ValueError(f"data: expected a table or --from OTHER, got {'neither' if data is None else 'both'}")
    if options["as_json"]:
        print_json({"added": change.changed, "rows": change.rows})
    else:
        by = f", named by {change.named}" if change.named else ""
        output.print(f"{counted(change.changed, 'row')} added{by}; {change.now(model)}")


@app.command(epilog="Example: vicinal relabel houses-model corrections.csv")
@o.with_options({"database": o.MODEL["database"]}, o.AGAIN, {"as_json": o.RUN["as_json"]})
def relabel(
    model: Model,
    data: Annotated[str, o.argument("Table of ids and labels.", "DATA")],
    *,
    target: Annotated[o.Name, o.described("Column of labels; default: that of the fit.")] = None,
    id_column: Annotated[o.Name, o.described("Column of ids; default: that of the fit, or id.", "--id")] = None,
    who: Annotated[o.Name, o.described("Name for the journal; default: the user.")] = None,
    **options: Any,
) -> None:
    """Correct labels in a model's bank without training; the next prediction uses them.

    The journal keeps old and new labels, with user and time: vicinal show MODEL --changes lists them.
    """
    from vicinal.core import counted
    from vicinal.workflows.bank import relabel_table

    table = o.table_of(data, options)
    change, rows = relabel_table(o.folder_of(model), table, target=target, id=id_column, who=who, **o.again(options))
    if options["as_json"]:
        labels = [{"id": name, "before": before, "label": label} for name, before, label in rows]
        print_json({"relabelled": change.changed, "rows": change.rows, "labels": labels})
    else:
        for name, before, label in rows[:_LISTED]:
            output.print(f"{name}: {label_words(label) or 'no class'}, which was {label_words(before) or 'no class'}")
        more = f", of which {_LISTED} are listed" if len(rows) > _LISTED else ""
        same = "" if rows else ": the rows have these labels already"
        output.print(f"{counted(change.changed, 'label')} of {model} changed{more}{same}")


@app.command(
    epilog="Examples: vicinal forget houses-model --ids h12 h77  |  vicinal forget houses-model --ids gone.csv --deep  "
    "|  vicinal forget --verify houses-model-forgotten.json"
)
@o.with_options(o.AGAIN, o.RUN)
def forget(
    model: Annotated[o.Name, o.argument("Model folder of any kind; with --verify: if it has moved.", "MODEL")] = None,
    more: Annotated[o.Names, o.argument("Ids.", "ID", show_default=False)] = None,
    *,
    ids: Annotated[
        o.Names,
        o.described("An id, or a file of ids: .txt with one a line, or a table with a column id.", metavar="ID"),
    ] = None,
    deep: Annotated[
        bool, o.described("Fit again on the rows that are left: a model that never saw the others.", "--deep")
    ] = False,
    receipt: Annotated[
        o.Name, o.described("Receipt to write; default: MODEL-forgotten.json, or -2.json and so on.", metavar="FILE")
    ] = None,
    verify: Annotated[
        o.Name, o.described("Check this receipt against the model as it is now.", metavar="RECEIPT")
    ] = None,
    **options: Any,
) -> None:
    """Remove rows from a model's bank, or users from a recommender, with its report, which may show them.

    Predictions are then as if the rows had never been in the bank; but the encoder was trained with them, and --deep
    fits it again. A receipt says which files held them, what was checked, and what may know them still.
    """
    from vicinal.core import counted
    from vicinal.core.checks import local_path
    from vicinal.workflows.bank import forget_rows, read_ids
    from vicinal.workflows.receipts import free_name, verify_receipt

    named = o.again(options)
    if verify is not None:
        folder = None if model is None else o.folder_of(model)
        verified = verify_receipt(local_path("--verify", verify), folder, **named)
        if options["as_json"]:
            ids_there = {"ids": verified.receipt.ids, "difference": verified.difference, "changed": verified.changed}
            print_json(ids_there)
        else:
            output.print(verified.text())
        return
    names = [*(ids or []), *(more or [])]
    if model is None or not names:
        got = "neither" if model is None else "no ids"
        raise ValueError(f"ids: expected a model and ids to forget, or --verify RECEIPT, got {got}")
    folder = o.folder_of(model)
    path = free_name(folder) if receipt is None else local_path("--receipt", receipt, written=True)
    gone = read_ids(names)
    with shown_progress(**{name: options[name] for name in o.RUN}):
        change = forget_rows(folder, gone, deep=deep, receipt=path, **named)
    written = change.receipt
    if options["as_json"]:
        print_json(
            {"forgotten": change.changed, "rows": change.rows} | ({} if written is None else {"receipt": str(path)})
        )
        return
    unit = "row" if change.unit == "row" else "user"
    output.print(f"{counted(change.changed, unit)} forgotten; {change.now(model)}")
    if written is not None:
        rows = counted(written.compared, "prediction")
        output.print(f"{rows} checked: as from a bank without the rows. They may still be in:")
        for part in written.remains:
            output.print(f"  {part}")
        output.print(f"receipt {path}")
