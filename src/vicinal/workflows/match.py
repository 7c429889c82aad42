"""``vicinal match`` and ``vicinal dedupe``: two tables go in, or one; links, a report and a matcher come out."""

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone

from vicinal.core import check_choice, counted, files, listed
from vicinal.core.checks import short_text
from vicinal.core.folders import check_replaceable, staged_folder
from vicinal.core.progress import Log
from vicinal.data import TableForm, read_cells, read_table, write_table
from vicinal.data.same_columns import same_columns, with_sources
from vicinal.data.sources import root_of, table_name
from vicinal.data.streaming import table_checksum
from vicinal.encoders.kinds import is_gap
from vicinal.estimators.linking import pairs_within
from vicinal.estimators.match_answers import DEPTHS
from vicinal.estimators.match_clusters import with_new
from vicinal.estimators.match_files import write_matcher
from vicinal.estimators.matching import RowMatcher
from vicinal.linkage.compared import ComparedPair
from vicinal.report.match import MatchRecord, match_html
from vicinal.version import __version__
from vicinal.workflows.opening import made_with
from vicinal.workflows.resuming import CACHE, working_folder
from vicinal.workflows.showing import shown_cells

LINKS, LINKED, REVIEW = "links.parquet", "links.csv", "review.csv"
ANSWERED, REPORT = "answered.csv", "report.html"
CLUSTERS, CLUSTERED, CONTRADICTIONS = "clusters.parquet", "clusters.csv", "contradictions.csv"
NUMBERS = "row", "number of the row"
"""Names of the column of ids of a table that has none."""

_SHOWN, TO_LABEL = 10, 30
"""Links in the report, and doubtful pairs in it and on the page of pairs to label."""

_SMALL, _CLUSTERS = 20, 200
"""Rows of a cluster, and clusters, that are looked at for their least probable pair, at most."""


@dataclass(frozen=True)
class MatchJob:
    """What to link.

    Attributes:
        left: file of a table.
        right: file of the other; None: copies are looked for in the left one.
        pairs: file of labelled pairs; None: probabilities are estimates.
        matcher: whose settings are taken; without a column of ids that is "id", or the numbers of the rows, and without
            a root each table has its own.
        use: columns that are read; None: all.
        drop: columns that are not.
        clusters: see :meth:`vicinal.estimators.RowMatcher.clusters`.
    """

    left: Path
    right: Path | None
    pairs: Path | None = None
    matcher: RowMatcher = field(default_factory=RowMatcher)
    use: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    clusters: str = "consistent"


@dataclass(frozen=True)
class MatchOutcome:
    """What :func:`match_tables` gives: the matcher, its links, the pairs to look at, and the contents of its page."""

    matcher: RowMatcher
    links: pd.DataFrame
    review: pd.DataFrame
    record: MatchRecord


def match_tables(job: MatchJob, out: Path | None = None, log: Log = lambda line: None) -> MatchOutcome:
    """Link two tables and write the folder of the match, whole or not at all.

    It holds the matcher, ``links.parquet``, ``links.csv`` (with the cells of both rows), ``review.csv`` (the band of
    doubt, or thirty pairs where fewer than 200 are labelled, with an empty column ``match``; labels that are filled in
    there are taken up by the next run, and stand in ``answered.csv`` from then on) and ``report.html``; of one table
    also ``clusters.parquet``, ``clusters.csv`` and ``contradictions.csv``. A killed run goes on with the vectors, the
    candidates and the levels that it has.

    Args:
        job: what to link.
        out: the folder to write, or None to write nothing.
        log: gets one line of progress at a time.

    Raises:
        ValueError: if data or settings cannot be used.
    """
    if out is not None:
        check_replaceable(out, "matcher")
    with working_folder(out) as work:
        matcher, left, right = _read_tables(job, log)
        work.take_up(_fingerprint(job, matcher))
        if work.folder is not None:
            matcher.cache_dir = work.folder / CACHE
        answered = pd.DataFrame() if out is None else read_answers(out)
        if out is not None and len(answered):
            log(f"labels of {counted(len(answered), 'pair')} in {out.name}")
        pairs = None if job.pairs is None else _labelled(job.pairs, matcher, log)
        matcher.fit(left, right, pairs, answers=answered, log=log)
        log("linking")
        links = matcher.link()
        review = matcher.review()
        clusters = matcher.clusters(job.clusters) if matcher.tables_.is_single else None
        record = _record(job, matcher, links, review, clusters)
        matcher.close()
        if out is not None:
            with staged_folder(out, "matcher") as stage:
                write_matcher(stage, matcher)
                links.to_parquet(stage / LINKS, index=False)
                write_table(_with_cells(matcher, links), stage / LINKED)
                to_label = _with_cells(matcher, review)
                to_label.insert(3, "match", "")
                write_table(to_label, stage / REVIEW)
                if clusters is not None:
                    clusters[0].to_parquet(stage / CLUSTERS, index=False)
                    write_table(_clustered(matcher, clusters[0]), stage / CLUSTERED)
                    write_table(clusters[1], stage / CONTRADICTIONS)
                (stage / REPORT).write_text(match_html(record), encoding="utf-8")
                answered = read_answers(out)  # with labels that came meanwhile
                if len(answered):
                    write_table(answered, stage / ANSWERED)
    return MatchOutcome(matcher, links, review, record)


@dataclass(frozen=True)
class RowsAdded:
    """What :func:`add_rows` did.

    Attributes:
        count: of rows.
        links: of them, the surest first; see :meth:`vicinal.estimators.RowMatcher.add`.
        clusters: of each new row, and how many rows are in it now; None of two tables.
        before: links to rows of the other table that had one already; one-to-one allows one.
        is_repeated: whether nothing was added, as these rows, without ids, were those added last.
    """

    count: int
    links: pd.DataFrame
    clusters: dict[Any, tuple[int, int]] | None
    before: int
    is_repeated: bool = False


def add_rows(folder: Path, source: Path, to: str = "left", log: Log = lambda line: None) -> RowsAdded:
    """Link new rows with those of a match, whose model stays as it is.

    The rows and their links are written to the journal of the folder at once: after a kill at any point both are there
    or neither. ``links.parquet``, ``links.csv`` and the tables of clusters follow the journal, if need be at the next
    call. Rows without ids that were added last are not added again, as a killed call may have done it. Who adds to the
    same folder meanwhile waits. The report and the review tell of the match before.

    Args:
        folder: of the match.
        source: file of the new rows, with the columns of their table.
        to: which table they belong to: "left" or "right"; of one table "left".
        log: gets one line of progress at a time.

    Raises:
        ValueError: if rows cannot be added; nothing is changed then.
    """
    target = files.resolved(folder)
    with files.locked(target, "add"):
        log(f"reading {folder.name}")
        with files.locked(target, "update"):  # also gone, if a killed run had left it
            matcher = RowMatcher.load(folder)
        files.clear(folder)
        old, _ = _follow_journal(folder, matcher)  # which a run that was killed may not have done
        frame, is_numbered = _rows_to_add(source, matcher, to, log)
        done = matcher.journal_.just_added(to, frame.iloc[:, 1:]) if is_numbered and matcher.journal_ else None
        if done is None:
            log("linking")
            links = matcher.add(frame, to, durable=True)
        else:
            links = pd.DataFrame(done.links or {}, columns=old.columns)
            old = old[~old[to].isin(done.ids)]
        _, clusters = _follow_journal(folder, matcher)
    if clusters is None:
        other = "right" if to == "left" else "left"
        return RowsAdded(len(frame), links, None, int(links[other].isin(old[other]).sum()), done is not None)
    sizes = clusters["cluster"].value_counts()
    new = ((row, cluster) for row, cluster in clusters.tail(len(frame)).itertuples(index=False))
    named = {row: (cluster, int(sizes[cluster])) for row, cluster in new}
    return RowsAdded(len(frame), links, named, 0, done is not None)


def _rows_to_add(source: Path, matcher: RowMatcher, to: str, log: Log) -> tuple[pd.DataFrame, bool]:
    """New rows with the columns of their table, and whether they are numbered on, in front, as it has no ids."""
    number = 0 if to == "left" or matcher.tables_.is_single else -1
    table, name = matcher.tables_.tables[number], (matcher.id_left, matcher.id_right)[number] or "id"
    frame = read_table(source, ids=[name], log=log)
    is_numbered = name not in frame.columns and name in NUMBERS
    if is_numbered:
        frame.insert(0, name, range(len(table) + 1, len(table) + 1 + len(frame)))
    frame = with_sources(frame, table.sources)
    same = same_columns(table.frame, frame.drop(columns=name, errors="ignore"))
    frame = with_sources(frame, {one[0]: list(two) for one, two in same.items() if len(one) == 1})
    lost = [
        " + ".join(table.sources.get(column, [column]))
        for column in matcher.tables_.columns.compared
        if column not in frame.columns
    ]
    if lost:
        raise ValueError(
            f"{short_text(source.name)}: expected the columns of {LINKED}, got none of {listed(lost, 200)}; name them "
            "alike, or add empty ones"
        )
    return frame, is_numbered


def _follow_journal(folder: Path, matcher: RowMatcher) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """The links and the clusters of a folder with those of all rows in its journal, which are written if need be."""
    changes = [] if matcher.journal_ is None else matcher.journal_.changes
    old = pd.read_parquet(folder / LINKS)
    links = [pd.DataFrame(change.links or {}, columns=old.columns) for change in changes]
    every = pd.concat([old, *filter(len, links)], ignore_index=True)
    every = every.drop_duplicates(["left", "right"], ignore_index=True)
    clusters = None
    if matcher.tables_.is_single:
        clusters = pd.read_parquet(folder / CLUSTERS)
        known, before = dict(zip(clusters["id"], clusters["cluster"], strict=True)), len(clusters)
        for change, theirs in zip(changes, links, strict=True):
            known |= with_new(known, [row for row in change.ids if row not in known], theirs)
        if len(known) > before:
            clusters = pd.DataFrame({"id": known.keys(), "cluster": known.values()})
            write_table(_clustered(matcher, clusters), folder / CLUSTERED)
            write_table(clusters, folder / CLUSTERS)
    if len(every) > len(old):
        write_table(_with_cells(matcher, every), folder / LINKED)
        write_table(every, folder / LINKS)  # last: what it has all others have
    return every, clusters


def _read_tables(job: MatchJob, log: Log) -> tuple[RowMatcher, pd.DataFrame, pd.DataFrame | None]:
    """The matcher with the columns of ids and the roots, and the tables with the columns that are used."""
    matcher, single = clone(job.matcher), job.right is None
    left, id_left = _read(job.left, matcher.id_left, log, single=single)
    right, id_right = (None, id_left) if job.right is None else _read(job.right, matcher.id_right, log, single=single)
    names = [*left.columns, *([] if right is None else right.columns)]
    for option, chosen in (("use", job.use or ()), ("drop", job.drop)):
        for name in chosen:
            check_choice(option, name, dict.fromkeys(names))

    def used(frame: pd.DataFrame, id_column: str) -> pd.DataFrame:
        columns = [name for name in frame.columns if name not in job.drop and (job.use is None or name in job.use)]
        return frame[[id_column, *(name for name in columns if name != id_column)]]

    roots = tuple(matcher.root or root_of(path or job.left) for path in (job.left, job.right))
    matcher.set_params(id_left=id_left, id_right=id_right, root=roots)
    return matcher, used(left, id_left), None if right is None else used(right, id_right)


def _read(path: Path, id_column: str | None, log: Log, *, single: bool) -> tuple[pd.DataFrame, str]:
    """A table and its column of ids."""
    log(f"reading {path.name}")
    ids = ["id" if id_column is None else id_column]
    frame = read_cells(path, ids=ids, log=log)  # the matcher reads them, and leaves odd ones as they were typed
    named = frame[[name for name in ids if name in frame.columns]]
    frame = frame.assign(**TableForm().widened(named, aside=ids).read(named))
    if id_column is None and "id" not in frame.columns:
        name = next(name for name in NUMBERS if name not in frame.columns)
        log(f"{path.name} has no column id: its rows are named by their numbers, from 1")
        frame.insert(0, name, range(1, len(frame) + 1))
        return frame, name
    id_column = id_column or "id"
    if id_column not in frame.columns:
        raise ValueError(
            f"{short_text(path.name)}: expected a column {id_column!r} of ids, got {listed(frame.columns, 200)}; name "
            f"another with {'--id' if single else '--id-left and --id-right'}"
        )
    return frame, id_column


def _labelled(path: Path, matcher: RowMatcher, log: Log) -> pd.DataFrame:
    """The labelled pairs of a file."""
    ids = str(matcher.id_left), str(matcher.id_right)
    frame = read_table(path, ids=["left", "right", *ids], log=log)
    if not {"left", "right"} <= set(frame.columns) and set(ids) <= set(frame.columns):
        frame = frame.rename(columns={ids[0]: "left", ids[1]: "right"})
    if not {"left", "right"} <= set(frame.columns):
        raise ValueError(
            f"{short_text(path.name)}: expected columns left and right with ids of either table, and match "
            f"with 0 or 1, got {listed(frame.columns, 200)}"
        )
    return frame[[name for name in ("left", "right", "match") if name in frame.columns]]


def read_answers(folder: Path) -> pd.DataFrame:
    """Labels that a person has given in the review of a match, now or before: ``left``, ``right``, ``match``."""
    parts = []
    for name in (ANSWERED, REVIEW):
        path = folder / name
        if path.is_file():
            frame = read_table(path, ids=["left", "right"])
            if {"left", "right", "match"} <= set(frame.columns):
                parts.append(frame.loc[frame["match"].notna(), ["left", "right", "match"]])
    answers = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return answers.drop_duplicates(["left", "right"], keep="last") if len(answers) else answers


def _fingerprint(job: MatchJob, matcher: RowMatcher) -> str:
    files = [path and table_checksum(path) for path in (job.left, job.right)]
    return json.dumps([__version__, torch.__version__, files, matcher.get_params()], default=str, sort_keys=True)


def _with_cells(matcher: RowMatcher, pairs: pd.DataFrame) -> pd.DataFrame:
    """Pairs with the cells of both rows side by side."""
    table = pairs[["left", "right", "probability"]].copy()
    sides = [("left", matcher.tables_.left), ("right", matcher.tables_.right)]
    at = {side: rows.positions(pairs[side]) for side, rows in sides}
    for column in matcher.tables_.columns.compared:
        for side, rows in sides:
            table[f"{side} {column}"] = _written(rows.frame[column]).iloc[at[side]].to_numpy()
    return table


def _clustered(matcher: RowMatcher, clusters: pd.DataFrame) -> pd.DataFrame:
    """The rows with their clusters, those of one thing together."""
    table, clusters = matcher.tables_.left, clusters.sort_values("cluster", kind="stable", ignore_index=True)
    rows = table.frame.iloc[table.positions(clusters["id"])].drop(columns=list(clusters), errors="ignore")
    return pd.concat([clusters, rows.apply(_written).reset_index(drop=True)], axis=1)


def _written(cells: "pd.Series[Any]") -> "pd.Series[Any]":
    """Cells as they were in the table: whole numbers beside gaps are read as others."""
    is_whole = pd.api.types.is_float_dtype(cells.dtype) and bool((cells.dropna() % 1 == 0).all())
    return cells.astype("Int64") if is_whole and cells.abs().max() < 2**53 else cells


def _record(
    job: MatchJob,
    matcher: RowMatcher,
    links: pd.DataFrame,
    review: pd.DataFrame,
    clusters: tuple[pd.DataFrame, pd.DataFrame] | None,
) -> MatchRecord:
    learned = matcher.learned_ is not None
    held_out = matcher.validation_ if learned else pd.DataFrame({"probability": [], "match": []})
    scored, threshold = matcher.scored_candidates(), matcher.threshold_
    inside, against = clusters or (pd.DataFrame({"cluster": []}, dtype=int), pd.DataFrame())
    names = [table_name(path) for path in (job.left, job.right) if path is not None]
    return MatchRecord(
        name=" and ".join(names),
        rows=[len(table) for table in matcher.tables_.tables],
        pairs=(len(matcher.labelled_ if learned else matcher.labels_), len(held_out)),
        links=(len(links), "clusters" if clusters is not None else matcher.links),
        recall={k: matcher.scores_[f"recall at {k}"] for k in DEPTHS} if learned else {},
        candidates=matcher.n_candidates,
        chances=held_out["probability"].to_numpy(),
        truth=held_out["match"].to_numpy(),
        threshold=threshold,
        scores={name: matcher.scores_[name] for name in ("precision", "recall", "f1") if name in matcher.scores_},
        promised=matcher.precision,
        sure=_shown(matcher, _drawn(matcher, links)),
        doubtful=_shown(matcher, review.head(TO_LABEL)),
        notes=list(matcher.notes_),
        clusters=Counter(inside["cluster"].value_counts().tolist()),
        contradictions=against.head(50).astype(str).to_numpy().tolist(),
        expected=_expected(links, scored, threshold) if learned or matcher.linkage_.has_sign else {},
        reached=matcher.estimated_recall(),
        weights=[*matcher.match_weights().itertuples(index=False, name=None)],
        scored=scored["probability"].to_numpy(),
        weakest=_weakest(matcher, inside),
        versions=made_with(),
    )


def _expected(links: pd.DataFrame, scored: pd.DataFrame, threshold: float) -> dict[str, float]:
    """Precision, recall and F1 of links that the probabilities of them and of all candidates expect."""
    right = float(links["probability"].sum())
    if not right:
        return {}
    likely = scored[scored["probability"] >= threshold]
    sides = ["left", "right"]
    copies = len(pd.concat([likely[sides], links[sides]]).drop_duplicates()) - len(likely)  # linked, but no candidates
    matches = float(scored["probability"].sum()) + copies
    return {"precision": right / len(links), "recall": right / matches, "f1": 2 * right / (len(links) + matches)}


def _weakest(matcher: RowMatcher, clusters: pd.DataFrame) -> list[tuple[str, str, float, int]]:
    """The least probable pair of each cluster of three rows and more, the least probable first."""
    sizes = np.bincount(clusters["cluster"])
    some = clusters[clusters["cluster"].isin(np.flatnonzero((sizes > 2) & (sizes <= _SMALL))[:_CLUSTERS])]
    if some.empty:
        return []
    left, right = (some.iloc[side] for side in pairs_within(some["cluster"].to_numpy(), _SMALL**2)[0].T)
    pairs = pd.DataFrame({"left": left["id"].to_numpy(), "right": right["id"].to_numpy()})
    pairs["probability"] = matcher.predict_proba(pairs)[:, 1]
    pairs["cluster"] = left["cluster"].to_numpy()
    pairs["rows"] = sizes[pairs["cluster"]]
    least = pairs.loc[pairs.groupby("cluster")["probability"].idxmin()].nsmallest(_SHOWN, "probability")
    columns = map(str, least["left"]), map(str, least["right"]), least["probability"].tolist(), least["rows"].tolist()
    return list(zip(*columns, strict=True))


def _drawn(matcher: RowMatcher, links: pd.DataFrame) -> pd.DataFrame:
    """Some links that nobody labelled, evenly from the surest to the least sure."""
    sides = (matcher.tables_.left, "left"), (matcher.tables_.right, "right")
    ids = [table.ids[matcher.labels_[side].to_numpy(np.int64)].tolist() for table, side in sides]
    known = set(zip(*ids, strict=True))
    rows = zip(links["left"].tolist(), links["right"].tolist(), strict=True)
    fresh = np.flatnonzero([pair not in known for pair in rows])
    return links.iloc[fresh[np.unique(np.linspace(0, len(fresh) - 1, min(_SHOWN, len(fresh))).astype(np.int64))]]


def _shown(matcher: RowMatcher, pairs: pd.DataFrame) -> list[ComparedPair]:
    return [
        replace(
            pair,
            left=str(pair.left),
            right=str(pair.right),
            others=(_others(matcher, 0, pair.left), _others(matcher, -1, pair.right)),
        )
        for pair in matcher.explain(pairs)
    ]


def _others(matcher: RowMatcher, number: int, name: Any) -> dict[str, str | bytes]:
    """Cells of a row that are not compared as texts or numbers: of columns of one table, and images."""
    table, compared = matcher.tables_.tables[number], matcher.tables_.columns.compared
    row = table.frame.iloc[int(table.positions([name])[0])].drop(compared)
    filled = {str(column): cell for column, cell in row.items() if not is_gap(cell)}
    return shown_cells(filled, dict(matcher.tables_.columns.media), table.root)
