"""``vicinal match`` and ``vicinal dedupe``: tables to links."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import output, print_json, print_rows
from vicinal.settings import MatchSettings

if TYPE_CHECKING:
    from pathlib import Path

    from vicinal.core.progress import Log
    from vicinal.workflows.match import MatchJob, MatchOutcome

MATCHING: o.Options = {
    "pairs": o.option(
        o.Name,
        "Table of labelled pairs: columns left and right (ids), and match (0 or 1; without it all match).",
        metavar="FILE",
    ),
    **{name: o.TABLE[name] for name in ("use", "drop", "root")},
    **o.of_settings(MatchSettings, None, "precision"),
    **o.of_settings(
        MatchSettings,
        o.LEARN,
        *("n_candidates", "tune", "validation_fraction"),
        options={"n_candidates": "--candidates", "validation_fraction": "--validation"},
    ),
    **o.of_settings(MatchSettings, o.TRAIN, "minutes"),
    "plan": o.FIT["plan"],
    **{name: o.TRAINING[name] for name in ("encoder", "seed")},
    **o.of_settings(MatchSettings, o.ALSO, "index"),
    "out": o.option(o.Name, "Folder to write.", metavar="FOLDER"),
    "review": o.option(
        bool,
        "Then serve a page on this computer to label the pairs of review.csv one by one; the labels are "
        "written as they are given, and the next match learns from them.",
        None,
        "--review",
        default=False,
    ),
    "add": o.option(
        o.Name,
        "Link the rows of this file with those of the match that is in the folder already, whose model stays as it is: "
        "they are added to its (left) table, its links and its clusters.",
        None,
        metavar="FILE",
    ),
    "port": o.option(int, "Port of the page of --review; 0: a free one.", default=0, metavar="PORT"),
    "database": o.TABLE["database"],
    **o.RUN,
}
"""What both commands have."""


@app.command(epilog="Example: vicinal match shop_a.csv shop_b.csv --pairs labelled.csv --id-left asin --id-right sku")
@o.with_options(o.of_settings(MatchSettings, None, "links"), MATCHING)
def match(
    context: typer.Context,
    left: Annotated[str, o.argument("Table: a file, pattern, folder, - or query.", "LEFT")],
    right: Annotated[str, o.argument("The other table.", "RIGHT")],
    *,
    id_left: Annotated[
        o.Name, o.described("Column of ids of the left table; default: id, or the numbers of the rows.")
    ] = None,
    id_right: Annotated[o.Name, o.described("The same of the right table.")] = None,
    to: Annotated[str, o.described("Table that the rows of --add belong to: left or right.")] = "left",
    **_: Any,
) -> None:
    """Link the rows of two tables that are the same thing.

    Estimates how probable each pair is, and learns from labelled pairs if there are some. Writes a folder with
    links.csv, review.csv (pairs to label, best with --review), report.html and the matcher.
    """
    _run(context, left, right)


@app.command(epilog="Example: vicinal dedupe customers.csv --pairs labelled.csv")
@o.with_options(MATCHING)
def dedupe(
    context: typer.Context,
    table: Annotated[str, o.argument("Table: a file, pattern, folder, - or query.", "TABLE")],
    *,
    id_column: Annotated[o.Name, o.described("Column of ids; default: id, or the numbers of the rows.", "--id")] = None,
    clusters: Annotated[
        str,
        o.described(
            "components: whatever pairs above the threshold join; consistent: of components of up to 200 rows, "
            "the clusters for which most speaks."
        ),
    ] = "consistent",
    **_: Any,
) -> None:
    """Find the rows of one table that are copies of one another.

    As vicinal match, with clusters.csv and .parquet (which rows are one thing) and contradictions.csv (pairs of a
    cluster that speak against it).
    """
    _run(context, table)


def _run(context: typer.Context, *tables: str) -> None:
    from vicinal.core import check_choice
    from vicinal.core.checks import local_path
    from vicinal.data import beside
    from vicinal.data.sources import table_name, table_sources
    from vicinal.estimators import RowMatcher
    from vicinal.estimators.match_answers import CLUSTERS
    from vicinal.workflows import match_tables
    from vicinal.workflows.match import MatchJob

    options = {"links": "many", "to": "left", "clusters": "consistent", **context.params}
    ids = [options["id_left"], options["id_right"]] if len(tables) == 2 else [options["id_column"]] * 2
    sources = table_sources("left" if len(tables) == 2 else "table", list(tables), options["database"])
    word = "-".join([*map(table_name, sources[1:]), str(context.command.name)])
    folder = beside(sources[0], word) if options["out"] is None else local_path("--out", options["out"], written=True)
    if options["add"] is not None:
        _add(folder, options)
        return
    settings = {
        **{one.name: options[one.name] for one in fields(MatchSettings) if one.name in options},
        "plan": o.plan_of(options["plan"]),
        "encoders": o.parse_encoders(options["encoder"]) or None,
        "root": o.root_of(options["root"]),
        "random_state": options["seed"],
    }
    job = MatchJob(
        sources[0],
        sources[1] if len(tables) == 2 else None,
        o.table_of(options["pairs"], name="--pairs"),
        RowMatcher(*ids, **settings),
        tuple(options["use"]) if options["use"] else None,
        tuple(options["drop"] or ()),
        check_choice("--clusters", options["clusters"], CLUSTERS),
    )
    command = re.sub(r"(://[^/@:]*:)[^/@]*@", r"\1PASSWORD@", shlex.join(["vicinal", *context.obj]))
    log = o.log_of(options)
    if options["review"]:
        _review(job, folder, command, log, options)
        return
    outcome = match_tables(job, folder, log)
    if options["as_json"]:
        print_json(outcome_json(outcome, folder))
    else:
        print_outcome(outcome, folder, command, whole=options["verbose"])


def _add(folder: "Path", options: Mapping[str, Any]) -> None:
    """Link new rows with those of a match, and print what they are."""
    from vicinal.core import check_choice, counted
    from vicinal.workflows.match import add_rows

    source = o.table_of(options["add"], options, "--add")
    added = add_rows(folder, source, check_choice("--to", options["to"], ("left", "right")), o.log_of(options))
    links = added.links
    if options["as_json"]:
        values = {"links": links.to_dict("records"), "clusters": added.clusters, "before": added.before}
        print_json({"added": 0 if added.is_repeated else added.count, **values})
        return
    side, other = ("left", "right") if added.clusters is not None or options["to"] == "left" else ("right", "left")
    linked = links[side].nunique()
    lines = [f"{counted(added.count, 'row')} added; {linked} linked, {added.count - linked} new"]
    if added.is_repeated:
        lines = [f"nothing added: {source.name} holds the rows that were added last; give them ids to add them again"]
    if added.before:
        lines.append(
            f"{added.before} of the links are to rows that had one: match all rows again to choose between them"
        )
    for row in links.head(_LISTED).to_dict("records"):
        cluster, size = (added.clusters or {}).get(row[side], (None, 0))
        within = "" if cluster is None else f", in cluster {cluster} of {size} rows"
        lines.append(f"{row[side]} is {row[other]} ({row['probability']:.1%}){within}")
    more = f", of which {_LISTED} are listed" if len(links) > _LISTED else ""
    lines += [] if added.is_repeated else [f"{counted(len(links), 'link')} added to {folder / 'links.csv'}{more}"]
    for line in lines:
        output.print(line)


def _review(job: "MatchJob", folder: "Path", command: str, log: "Log", options: Mapping[str, Any]) -> None:
    """Link the tables, and serve the page of pairs to label until it is finished or stopped."""
    from vicinal.core import counted
    from vicinal.core.checks import check_integer
    from vicinal.serve import ReviewPage
    from vicinal.workflows.review import Reviewer

    if options["as_json"]:
        raise ValueError("--json: expected not with --review, which serves a page, got both; leave one out")
    reviewer = Reviewer(job, folder, command, log)
    page = ReviewPage(reviewer, check_integer("--port", options["port"], 0, 65535))  # whose port is free, so far
    outcome = reviewer.match()
    print_outcome(outcome, folder, whole=options["verbose"])
    if not len(outcome.review):
        output.print("no pairs to label, so no page")
        return
    output.print(f"open {page.address} in a browser of this computer; Ctrl-C ends it")
    page.serve()
    if reviewer.count:
        output.print(f"{counted(reviewer.count, 'pair')} labelled in {folder / 'answered.csv'}; to match with them:")
        output.print(f"        {command}")


def outcome_json(outcome: "MatchOutcome", folder: "Path") -> dict[str, Any]:
    """What a program reads of a match."""
    record = outcome.record
    return {
        "folder": str(folder),
        "rows": list(record.rows),
        "pairs": {"learned from": record.pairs[0], "held out": record.pairs[1]},
        "links": record.links[0],
        "doubtful": len(outcome.review),
        "threshold": record.threshold,
        "scores": dict(record.scores),
        "candidate_recall": {str(k): share for k, share in record.recall.items()},
        "clusters": {str(size): count for size, count in record.clusters.items()},
        "contradictions": len(record.contradictions),
        "notes": list(record.notes),
    }


def print_outcome(outcome: "MatchOutcome", folder: "Path", command: str = "", *, whole: bool = False) -> None:
    """What a person reads of a match, with the ``command`` to label pairs by, if there is one.

    With ``whole``, also the recall by number of candidates, what was chosen and why, and all sizes of clusters.
    """
    from vicinal.report.match import match_findings

    record = outcome.record
    if whole and record.recall:
        rows = [[str(k), f"{share:.3f}"] for k, share in record.recall.items()]
        print_rows("Candidate recall on labelled matches", ["candidates", "share"], rows)
    notes = [note for note in record.notes if whole or note.startswith(_WARNINGS) or _ALONE in note]
    learned, held_out = record.pairs
    total = max(record.pairs) if record.is_crossed else sum(record.pairs)
    how = "each held out once" if record.is_crossed else f"{learned:,} to learn from, {held_out:,} held out"
    used = [f"{total:,} labeled pairs used: {how}."]
    for sentence in (*match_findings(record), *used * bool(total), *notes):
        output.print(sentence)
    to_label = len(outcome.review)
    if record.clusters and whole:
        rows = [[str(size), f"{count:,}"] for size, count in sorted(record.clusters.items())]
        print_rows("Clusters", ["rows", "clusters"], rows)
    elif several := {size: count for size, count in record.clusters.items() if size > 1}:
        alone, count = record.clusters.get(1, 0), sum(several.values())
        sizes = " to ".join(f"{size:,}" for size in sorted({min(several), max(several)}))
        output.print(f"{count:,} clusters of {sizes} rows; {alone:,} rows without a copy")
    output.print(f"matcher {folder}")
    files = {"links.csv": "", "clusters.csv": " (copies together)"} if record.clusters else {"links.csv": ""}
    files |= {"review.csv": f" ({to_label} pairs to label)", "report.html": ""}
    for name, words in files.items():
        output.print(f"        {folder / name}{words}")
    if not total and to_label and command:
        output.print(
            "No labels: these are estimates. Label pairs with --review, or in the column match of review.csv, and run "
            f"again:\n        {command}"
        )


_LISTED = 20
"""Links of new rows that are printed."""

_WARNINGS, _ALONE = ("fewer than", "no sign", "unsure", "different in each row"), "this column alone decides"
"""How notes begin that are printed in any case, and what one of them says."""
