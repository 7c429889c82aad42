"""``vicinal evaluate``: where a saved model errs, whether its intervals hold, and what is wrong with its data."""

from typing import TYPE_CHECKING, Annotated, Any

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import output, print_json, print_rows, print_scores
from vicinal.cli.progress import shown_progress

if TYPE_CHECKING:
    from vicinal.report.audit_records import AuditRecord


@app.command(epilog="Example: vicinal evaluate houses-model houses.csv --out audit.html --json > audit.json")
@o.with_options(o.MODEL, o.RUN)
def evaluate(
    model: Annotated[str, o.argument("Model folder of `vicinal fit`.", "MODEL")],
    data: Annotated[str, o.argument("Labelled table: the one it was fitted on, or new rows.", "DATA")],
    *,
    target: Annotated[o.Name, o.described("For a model of several targets, the one to audit; default: all.")] = None,
    out: Annotated[o.Name, o.described("Page to write (html); audit.json goes beside it.", metavar="FILE")] = None,
    time: Annotated[
        o.Name,
        o.described("Column of dates or numbers, for errors by period; default: that of the fit.", metavar="COL"),
    ] = None,
    weight: Annotated[
        o.Name, o.described("Column of row weights for scores and coverage; default: that of the fit.", metavar="COL")
    ] = None,
    fair: Annotated[
        o.Name, o.described("Column of an attribute, for rates by group; default: that of the fit.", metavar="COL")
    ] = None,
    suspects: Annotated[
        int | None, o.described("Number of suspicious labels to list; default: 10, and 50 in the page and --json.")
    ] = None,
    **options: Any,
) -> None:
    """Audit a model: errors by slice, coverage of intervals, hubs, suspicious labels, and copies of its rows."""
    import json

    from vicinal.cli.output import finite
    from vicinal.core.checks import local_path, short_text
    from vicinal.core.files import replace_text
    from vicinal.report.audit import write_audit_page
    from vicinal.workflows.evaluate import audit_targets

    page = None if out is None else local_path("--out", out, written=True)
    if page is not None:
        if page.suffix not in (".html", ".htm"):
            raise ValueError(f"--out: expected a name that ends in .html, got {short_text(page)}")
        if not page.absolute().parent.is_dir():
            raise ValueError(f"--out: expected a file in a folder that is there, got {short_text(page, 200)}")
    with shown_progress(**{name: options[name] for name in o.RUN}) as shown:
        records = audit_targets(
            o.folder_of(model),
            o.table_of(data, options),
            target=target,
            suspects=50 if suspects is None else suspects,
            time=time,
            weight=weight,
            fair=fair,
            **o.opened(options) | {"log": shown.log},
        )
    audits = [record.as_json() for record in records]
    places = range(2, len(records) + 1)  # pages of further targets are audit-2.html and so on
    pages = [] if page is None else [page, *(page.with_stem(f"{page.stem}-{place}") for place in places)]
    for record, audit, one in zip(records, audits, pages, strict=False):
        write_audit_page(record, one)
        replace_text(one.with_suffix(".json"), json.dumps(finite(audit), default=str, allow_nan=False, indent=1))
    if options["as_json"]:
        several = {record.target_name: audit for record, audit in zip(records, audits, strict=True)}
        print_json(audits[0] if len(audits) == 1 else {"targets": several})
        return
    for record in records:
        if len(records) > 1:
            output.print(record.target_name, style="bold")
        _print_audit(record, most=_LISTED if suspects is None else suspects, whole=options["verbose"])
    for one in pages:
        output.print(f"page in {one}, all figures in {one.with_suffix('.json')}")


def _print_audit(record: "AuditRecord", *, most: int, whole: bool) -> None:
    """Scores beside the best baseline, findings and suspects; with ``whole`` all baselines, classes and periods."""
    from vicinal.report.audit import (
        audit_findings,
        error_name,
        fairness_cells,
        period_cells,
        score_sentence,
        suspect_rows,
        suspects_sentence,
        worth_checking,
    )
    from vicinal.report.tables import CLASS_HEADINGS, class_rows

    title = f"{record.model} on {record.rows['new']} new rows of {record.name}"
    if whole:
        print_scores(title, {"model": record.scores, **record.baselines})
    else:
        output.print(f"{title}: {score_sentence(record)}")
    noted = ("Baselines", "Classes", "Groups", "Labels")[not whole :]
    for sentence in (*audit_findings(record), *(note for note in record.notes if note.startswith(noted))):
        output.print(f"- {sentence}")
    error = error_name(record)
    if record.by_class and whole:
        print_rows("Class by class", [*CLASS_HEADINGS[:-1], "AP"], class_rows(record.by_class), names=True)
    if record.periods:  # asked for by --time
        headings = ["from", "to", "rows", error, "times average", "90 % cover", "width needed"]
        print_rows(f"By {record.time}", headings, [period_cells(period) for period in record.periods])
    if record.fairness:
        headings = ["group", "rows", record.fairness["rate"].replace("_", " "), "95 % interval", "of the labels", error]
        print_rows(f"By {record.fairness['attribute']}", headings, fairness_cells(record.fairness))
    output.print(suspects_sentence(record.suspects, record.worth_checking, record.expected_wrong))
    listed = record.suspects if whole else worth_checking(record.suspects)
    headings, *lines = suspect_rows(listed[:most], several=record.several, letters=_LETTERS)
    if lines:
        print_rows("", headings, lines, names=True)
    if (count := max(len(listed), record.worth_checking)) > most:
        output.print(f"{count - most} more; --suspects {count} lists all.")


_LISTED = 10
"""Suspects that are printed where nobody asks for a number."""

_LETTERS = 16
"""Most letters of a label to show."""
