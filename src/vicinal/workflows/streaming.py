"""``vicinal predict --out``: predictions for a table of any length into a file; a stopped run resumes."""

import contextlib
import itertools
import json
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Unpack

import pandas as pd
import pyarrow as pa
import torch
from pyarrow import parquet

from vicinal.core import replaced_file
from vicinal.core.files import remove_tree
from vicinal.core.progress import Log, report
from vicinal.data.sources import root_of
from vicinal.data.streaming import row_count, stream_table, table_checksum
from vicinal.data.writing import storable, write_frames
from vicinal.version import __version__
from vicinal.workflows.engines import check_engine, model_digest, predicted_by_ray
from vicinal.workflows.predict import (
    AnswerSettings,
    answer_rows,
    answered_note,
    exact_columns,
    load_predictor,
    made_rows,
    ranks_within,
)
from vicinal.workflows.resuming import WorkingFolder, working_folder

BATCH = 1 << 13
"""Rows predicted at a time; a multiple of the library's block sizes, so that batches do not change predictions."""

_SECONDS, _MOST = 10.0, 1 << 20
"""Seconds until predicted rows are saved as a part, and most rows of a part before that."""

_PART = "part-{:08d}.parquet"


def predict_file(
    folder: Path,
    source: Path,
    out: Path,
    *,
    root: Path | None = None,
    index: str | None = None,
    encoders: Mapping[str, str] | None = None,
    engine: str | None = None,
    workers: int | None = None,
    escape: bool = True,
    log: Log = lambda line: None,
    **settings: Unpack[AnswerSettings],
) -> int:
    """Write the predictions of :func:`vicinal.workflows.predict_table` to a file, without holding all rows in memory.

    Predictions are saved in parts every ten seconds, in a folder ``.NAME.predict`` beside ``out``. If the run is
    stopped or killed, the same call continues after the last part; if the table (by its checksum), the model or a
    setting has changed, it starts again. ``out`` appears at the end, complete.

    Args:
        folder: of the model.
        source: file of the table.
        out: file to write, see :func:`vicinal.data.write_table`.
        root: folder that paths of images and sounds start from; None: that of the file.
        index: see :func:`vicinal.estimators.load_model`, as for ``encoders``.
        encoders: by column or kind.
        engine: "ray": its workers predict the batches, see :func:`vicinal.workflows.engines.predicted_by_ray`; None:
            this process does.
        workers: of the engine; None: one per processor.
        escape: see :func:`vicinal.data.write_table`.
        log: gets the log lines of :func:`vicinal.workflows.predict_table`, each once.
        settings: see :class:`vicinal.workflows.predict.AnswerSettings`.

    Returns:
        the number of predicted rows.

    Raises:
        ValueError: as for :func:`vicinal.workflows.predict_table`, or if the file changes meanwhile.
    """
    count = check_engine(engine, workers)
    named: dict[str, Any] = {"index": index, "encoders": encoders}
    model = load_predictor(folder, **named, several=True)
    model.root = root or root_of(source)
    log, keep, abstain = cache(log), settings.get("keep", ()), settings.get("abstain")
    with working_folder(out, "predict", _PART.format(0)) as work:
        need = [*(str(name) for name in model.feature_names_in_), *keep]
        frames = stream_table(source, BATCH, need=need, ids=exact_columns(model), log=log)
        first = next(frames)
        digest = table_checksum(source)
        of_model = model_digest(folder)
        known = [__version__, torch.__version__, *of_model, digest, str(model.root), index]
        done = _take_up(work, json.dumps([*known, dict(encoders or {}), settings], sort_keys=True, default=dict), log)
        rest = (frame for frame in itertools.chain([first], frames) if done == 0 or frame.index[0] > done)
        answers: Generator[pd.DataFrame, None, None]
        if count is None:
            answers = (answer_rows(model, made_rows(model, frame), log=log, **settings).flat() for frame in rest)
        else:
            answers = predicted_by_ray((folder.resolve(), model.root, settings, named, of_model), rest, count, log)
        try:
            with contextlib.closing(answers):
                rows = _predict(answers, work, row_count(source), done)
        except ValueError:  # the table or the settings have to change, so what was done is of no use
            for part in _parts(work):
                remove_tree(part)
            raise
        if table_checksum(source) != digest:
            raise ValueError(f"{source.name}: expected a table that stays as it is, got one that changed meanwhile")
        parts = _parts(work)
        schema = _unified([parquet.read_schema(part) for part in parts])
        ranks = _ranks(parts, schema, model.notes_.get("query"))
        if abstain is not None:
            answered = sum(int(pd.read_parquet(part, columns=["answered"])["answered"].sum()) for part in parts)
            log(answered_note(answered, rows, abstain))
        write_frames(lambda: _ranked((_read(part, schema) for part in parts), ranks), out, escape=escape)
    return rows


def _parts(work: WorkingFolder) -> list[Path]:
    return [] if work.folder is None else sorted(work.folder.glob("part-*.parquet"))


def _take_up(work: WorkingFolder, fingerprint: str, log: Log) -> int:
    """The number of rows that an interrupted run with the same settings has saved."""
    done: int = sum(parquet.read_metadata(part).num_rows for part in _parts(work))
    if work.take_up(fingerprint):
        log(f"going on behind {done:,} rows that were predicted before")
        return done
    if done:
        log(f"beginning anew: {done:,} rows were predicted before, of another table or model or with other settings")
    return 0


def _predict(answers: Iterator[pd.DataFrame], work: WorkingFolder, rows: int | None, done: int) -> int:
    """Save the predictions of batches in parts, report how many of ``rows`` are there, and return their number."""
    waiting: list[pd.DataFrame] = []
    count, before = 0, done
    started = begun = time.monotonic()
    for table in answers:
        waiting.append(table)
        count += len(table)
        if time.monotonic() - begun >= _SECONDS or count >= _MOST:
            _put_aside(waiting, work)
            done += count
            waiting, count, begun = [], 0, time.monotonic()
            report("predicting", done, rows, f"rows, {(done - before) / (begun - started):,.0f} a second")
    if waiting:
        _put_aside(waiting, work)
    return done + count


def _put_aside(frames: list[pd.DataFrame], work: WorkingFolder) -> None:
    tables = [pa.Table.from_pandas(storable(frame), preserve_index=False) for frame in frames]
    schema = _unified([table.schema for table in tables])
    part = work.folder / _PART.format(len(_parts(work)))  # type: ignore[operator]  # there is an out
    with replaced_file(part) as aside:
        parquet.write_table(pa.concat_tables([_as(table, schema) for table in tables]), aside)


def _unified(schemas: list[pa.Schema]) -> pa.Schema:
    """The columns of all schemas in order of appearance, each with a type that holds all its cells."""
    kinds: dict[str, pa.DataType] = {}
    for field in itertools.chain(*schemas):
        kinds[field.name] = _wider(kinds.get(field.name, field.type), field.type)
    return pa.schema(list(kinds.items()))


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    numbers = [pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in (one, other)]
    return pa.float64() if all(numbers) else pa.string()


def _as(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [table[f.name].cast(f.type) if f.name in table.column_names else None for f in schema]
    filled = [pa.nulls(len(table), f.type) if c is None else c for f, c in zip(schema, columns, strict=True)]
    return pa.table(dict(zip(schema.names, filled, strict=True)), schema=schema)


def _read(part: Path, schema: pa.Schema) -> pd.DataFrame:
    return _as(parquet.read_table(part), schema).to_pandas()


def _ranks(parts: Sequence[Path], schema: pa.Schema, query: str | None) -> list[int] | None:
    """Ranks within the queries of all rows, which batches may have cut; None of a model without queries."""
    if query is None or "rank" not in schema.names:
        return None
    each = pd.concat([_read(part, schema)[[query, "prediction"]] for part in parts])
    return ranks_within(each["prediction"].to_numpy(), each[query].tolist())


def _ranked(frames: Iterator[pd.DataFrame], ranks: list[int] | None) -> Iterator[pd.DataFrame]:
    """The frames with these ranks."""
    done = 0
    for frame in frames:
        yield frame if ranks is None else frame.assign(rank=ranks[done : done + len(frame)])
        done += len(frame)
