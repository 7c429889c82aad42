"""``vicinal explore``: browse a model's bank, and correct it."""

from typing import Annotated, Any

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import output


@app.command(epilog="Example: vicinal explore houses-model  |  vicinal explore houses-model new.csv")
@o.with_options(o.MODEL)
def explore(
    model: Annotated[str, o.argument("Model folder of `vicinal fit`.", "MODEL")],
    table: Annotated[o.Name, o.argument("Table to show, too, except its rows that are in the bank.", "TABLE")] = None,
    *,
    k: Annotated[int, o.described("Number of rows to list behind a prediction.", "-k", "--k")] = 8,
    port: Annotated[int, o.described("Port of the page; 0: a free one.", metavar="PORT")] = 0,
    most: Annotated[int, o.described("Most rows of TABLE to show.", "--most", metavar="N")] = 1000,
    **options: Any,
) -> None:
    """Serve a page on this computer: a map of the bank, suspicious labels, and the effects of corrections.

    Rows of TABLE that are not in the bank are shown with their predictions, and can be added.

    Changes are saved in the model, like those of `vicinal relabel`, `add` and `forget`. Ctrl-C stops the server.
    """
    from vicinal.core.checks import check_integer
    from vicinal.serve import ExplorePage
    from vicinal.workflows import Explorer

    check_integer("-k", k)
    check_integer("--port", port, 0, 65535)
    explorer = Explorer(
        o.folder_of(model),
        k,
        table=o.table_of(table, options, "TABLE"),
        most=check_integer("--most", most),
        **o.opened(options),
    )
    explorer.suspects(), explorer.map()  # so that the page does not wait for them
    page = ExplorePage(explorer, port)
    output.print(f"open {page.address} in a browser of this computer; Ctrl-C ends it")
    page.serve()
