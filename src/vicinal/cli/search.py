"""``vicinal search``: the bank rows most similar to a text or a row."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import cell_words, label_words, output, print_json, print_rows

if TYPE_CHECKING:
    from vicinal.workflows.search import MatcherSearcher, Searched, Searcher

_CELLS, _TEXT = 3, 4
"""Most cells of a row to show, and words from which on a cell is a text."""


@app.command(
    epilog='Examples: vicinal search shop-model "usb c hub 7 ports" -k 10  |  vicinal search shop-model --id b17  |  '
    "vicinal search shop-model --file queries.csv --out hits.csv"
)
@o.with_options(o.MODEL, o.ANSWER)
def search(
    model: Annotated[str, o.argument("Model folder of any kind.", "MODEL")],
    query: Annotated[o.Name, o.argument("Text to search for.", "TEXT", show_default=False)] = None,
    *,
    k: Annotated[int, o.described("Number of hits for each query.", "-k", "--k")] = 10,
    row_id: Annotated[o.Names, o.described("Id of a row of the bank to search for.", "--id", metavar="ID")] = None,
    row: Annotated[
        o.Name, o.described('A row as JSON: {"size": 3}; other columns are left empty.', metavar="JSON")
    ] = None,
    file: Annotated[o.Name, o.described("A table whose rows are the queries.", metavar="FILE")] = None,
    interactive: Annotated[bool, o.described("Search for each line of input.", "--interactive")] = False,
    column: Annotated[
        o.Name, o.described("Column to search for texts; default: the first column of texts.", metavar="COL")
    ] = None,
    words: Annotated[bool, o.described("Also find rows by the words and letters of their texts.", "--words")] = False,
    rerank: Annotated[
        o.Name,
        o.described("Model of `vicinal fit --query` that orders the candidates by its grades.", metavar="RANKER"),
    ] = None,
    calls: Annotated[int, o.described("With --rerank: candidates of each query that it reads.")] = 50,
    precision: Annotated[
        float | None,
        o.described(
            "Share of hits that must be right (of the query's class), promised with 95 % confidence by rows held "
            "out; a query may have none."
        ),
    ] = None,
    out: Annotated[o.Name, o.described("File to write: csv, tsv, parquet, jsonl or sqlite.", metavar="FILE")] = None,
    **options: Any,
) -> None:
    """Find the rows of a model's bank that are most similar to a text, a row, or each row of a table.

    The score is the model's similarity (for a distance, its negative): higher is nearer.
    """
    from vicinal.core.checks import check_integer, local_path
    from vicinal.data import write_table
    from vicinal.data.writing import check_table_name
    from vicinal.workflows.search import open_searcher

    ways = {"TEXT": query, "--id": row_id, "--row": row, "--file": file, "--interactive": interactive or None}
    chosen = [name for name, value in ways.items() if value is not None]
    if len(chosen) != 1:
        several = (
            f"; for several rows say --id {row_id[0]} --id {query}" if chosen == ["TEXT", "--id"] and row_id else ""
        )
        raise ValueError(
            "query: expected one of TEXT, --id, --row, --file and --interactive, got "
            f"{' and '.join(chosen) or 'none'}{several}"
        )
    if query is not None and Path(query).is_file():
        raise ValueError(f"query: expected a text, got the file {query}; for its rows say --file {query}")
    check_integer("-k", k)
    path = None if out is None else check_table_name(local_path("--out", out, written=True))
    source = o.table_of(file, options, "--file")
    searcher = open_searcher(
        o.folder_of(model),
        k,
        column=column,
        words=words,
        rerank=None if rerank is None else local_path("--rerank", rerank),
        calls=calls,
        precision=precision,
        **o.opened(options),
    )
    if interactive:
        _answer_lines(searcher, as_json=options["as_json"])
        return
    if query is not None:
        result = searcher.texts([query])
    elif row is not None:
        result = searcher.row(row)
    else:
        result = searcher.ids(row_id or []) if source is None else searcher.table(source)
    if path is not None:
        write_table(result.flat(), path)
        output.print(f"{sum(map(len, result.hits))} hits of {len(result.queries)} queries in {out}")
    if options["as_json"]:
        print_json(result.records())
    elif path is None:
        print_hits(result)


def _answer_lines(searcher: "Searcher | MatcherSearcher", *, as_json: bool) -> None:
    """Print the hits of each line of standard input as it arrives; empty lines are ignored."""
    for line in sys.stdin:
        if line.strip():
            result = searcher.texts([line.strip()])
            if as_json:
                print_json(result.records()[0])
            else:
                print_hits(result)
            sys.stdout.flush()


def print_hits(result: "Searched") -> None:
    """Print a table of hits for each query."""
    from vicinal.report.text import fixed

    for query, hits in zip(result.queries, result.hits, strict=True):
        names = list(hits[0].row) if hits else []
        words = {name: max(len(cell_words(hit.row[name]).split()) for hit in hits) for name in names}
        columns = sorted(names, key=lambda name: words[name] < _TEXT)[:_CELLS]  # texts first, where words are found
        lines = [
            [
                str(rank),
                str(hit.id),
                fixed(hit.score, 3),
                label_words(hit.label),
                *(cell_words(hit.row[name]) for name in columns),
            ]
            for rank, hit in enumerate(hits, start=1)
        ]
        print_rows(f"Nearest to {cell_words(query)}", ["", "id", "score", "label", *columns], lines, numbers=False)
