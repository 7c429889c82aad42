"""``vicinal discover``: rows that fit no known class."""

import shlex
from typing import Annotated, Any

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import output, print_json, print_rows


@app.command(epilog="Example: vicinal discover letters-model new.csv")
@o.with_options(o.MODEL, o.ANSWER)
def discover(
    model: Annotated[str, o.argument("Model folder of `vicinal fit` or `learn`, for classes.", "MODEL")],
    data: Annotated[str, o.argument("Table with the columns that the model reads.", "DATA")],
    *,
    out: Annotated[
        o.Name, o.described("File for names, with the page beside it; default: DATA-groups.csv.", metavar="FILE")
    ] = None,
    error: Annotated[
        float, o.described("Share of rows of known classes that may be taken for new.", metavar="SHARE")
    ] = 0.05,
    groups: Annotated[int | None, o.described("Number of groups; default: chosen.")] = None,
    seed: o.Seed = 0,
    **options: Any,
) -> None:
    """Find rows that fit no class of a model, and group them, each group with its most typical rows and words.

    A page shows the groups. Write their names into the table; then vicinal add MODEL DATA --names TABLE adds the rows.
    """
    from vicinal.core.checks import local_path
    from vicinal.data.sources import table_name
    from vicinal.workflows import discover_table

    source = o.table_of(data, options)
    outcome = discover_table(
        o.folder_of(model),
        source,
        local_path("--out", f"{table_name(source)}-groups.csv" if out is None else out, written=True),
        error=error,
        groups=groups,
        seed=seed,
        **o.opened(options),
    )
    record = outcome.record
    if options["as_json"]:
        listed = [
            {"group": each.name, "rows": each.rows, "nearest": each.nearest[0], "words": list(each.words)}
            for each in record.groups
        ]
        files = {"names": str(outcome.names or "") or None, "page": str(outcome.page or "") or None}
        print_json({"rows": record.rows, "new": record.new, "hidden_score": record.score, "groups": listed, **files})
        return
    output.print(
        f"{record.new} of {record.rows} rows fit no known class. False alarms are expected for up to "
        f"{100 * error:.0f} % of the rows of known classes."
    )
    if outcome.names is None:
        return
    width = 4 if any(each.words for each in record.groups) else 3  # only texts have words
    print_rows(
        "",
        ["group", "rows", "nearest class", "words"][:width],
        [[each.name, str(each.rows), each.nearest[0], ", ".join(each.words[:4])][:width] for each in record.groups],
        numbers=False,
    )
    if record.score == record.score:
        hidden = f"{100 * record.score:.0f} % of their rows came into the right group"
        output.print(f"When known classes were hidden, {hidden}.")
    output.print(f"names   {outcome.names}\npage    {outcome.page}")
    output.print(
        f"Write names into the column label (one row of a group is enough), then: vicinal add {shlex.quote(model)} "
        f"{shlex.quote(data)} --names {shlex.quote(str(outcome.names))}",
        soft_wrap=True,
    )
