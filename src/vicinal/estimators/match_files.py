"""The saved form of a matcher: a folder of JSON, safetensors and parquet, read within bounds."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import pandas as pd
import torch
from pydantic import Field, PositiveInt
from safetensors.torch import save_file
from torch import Tensor

from vicinal.core import files
from vicinal.core.checks import ECHO, local_path, short_text
from vicinal.core.folders import CHANGES, MARKERS, MATCHER_VERSION, SUMS, check_sums, read_whole
from vicinal.core.identity import canonical_ids
from vicinal.core.untrusted import (
    LARGEST_SETTINGS,
    Saved,
    check_inside,
    check_settings,
    open_regular,
    read_frame,
    read_settings,
    read_tensors,
)
from vicinal.data.form import TableForm
from vicinal.encoders import Kind, TableEncoder
from vicinal.encoders.names import reaches_out
from vicinal.estimators.journal import Change, append_change, now, read_changes, user_name
from vicinal.estimators.match_answers import MatchAnswers
from vicinal.estimators.match_labels import LabelScorer
from vicinal.estimators.match_linkage import Linkage
from vicinal.estimators.match_rows import SIDES, MatchColumns, MatchTable
from vicinal.estimators.match_tables import MatchedTables
from vicinal.estimators.pair_reader import PairReader
from vicinal.estimators.pair_refinement import Refinement
from vicinal.estimators.pair_scorers import BoostedPairs
from vicinal.estimators.saved_config import SavedTableEncoder
from vicinal.estimators.saving import shown_cell
from vicinal.index.lexical import BUCKETS
from vicinal.linkage.columns import Floats, Ids
from vicinal.linkage.fellegi_sunter import MatchWeights
from vicinal.version import __version__

CONFIG, TENSORS, SCORER = MARKERS["matcher"], "matcher.safetensors", "scorer"
PAIRS, LABELS = "labelled.parquet", "labels.parquet"
"""Pairs that were learned from, and those that were labelled."""

READER = "reader"
REFINEMENT = "refinement"
"""Trees of the estimates."""

_FILES = (SUMS, CONFIG, CHANGES, TENSORS, PAIRS, LABELS, SCORER, READER, REFINEMENT)

_Share = Annotated[float, Field(ge=0, le=1)]
_Positive = Annotated[float, Field(ge=0)]
_Text = Annotated[str, Field(max_length=1000)]


class SavedMatcherParameters(Saved):
    """Parameters of a matcher; see :class:`vicinal.estimators.RowMatcher`."""

    id_left: _Text | None
    id_right: _Text | None
    n_candidates: Annotated[int, Field(ge=1, le=10_000)]
    links: Annotated[str, Field(pattern=r"^(one-to-one|one-to-many|many|many-to-many|1:[0-9]{1,9})$")]
    precision: Annotated[float, Field(gt=0, lt=1)] | None
    encoders: dict[str, _Text] | None
    tune: Annotated[str, Field(pattern=r"^(none|auto|all|lora|last-[1-9]\d{0,3})$")] = "none"
    minutes: Annotated[float, Field(gt=0)] = 10.0
    validation_fraction: Annotated[float, Field(gt=0, lt=1)]
    random_state: Annotated[int, Field(ge=0)]


class SavedLinkage(Saved):
    """The model of :class:`vicinal.estimators.match_linkage.Linkage`, but for its trees."""

    kinds: dict[str, Literal["number", "code", "name", "text"]] = Field(max_length=10_000)
    rate: _Positive
    among: bool
    again: tuple[_Share, _Share] = (0.0, 0.0)
    is_sure: bool
    has_sign: bool
    has_media: bool
    has_digits: bool = True
    follows: dict[str, str] = Field(default_factory=dict, max_length=10_000)
    shares: list[_Share] = Field(min_length=1, max_length=2)
    m: list[list[list[_Share]]]
    u: list[list[_Share]]
    refined: dict[Literal["center", "scale", "weights", "start"], list[float]] | None


class SavedMatcher(Saved):
    """What ``matcher.json`` holds."""

    format: Literal["vicinal-matcher"] = "vicinal-matcher"
    version: int
    vicinal: str
    parameters: SavedMatcherParameters
    texts: list[str] = Field(max_length=10_000)
    numbers: list[str] = Field(max_length=10_000)
    media: dict[str, Kind]
    single: bool
    encoder: SavedTableEncoder | None
    width: Annotated[int, Field(ge=0, le=1 << 20)]
    rows: list[PositiveInt] = Field(min_length=1, max_length=2)
    things: list[PositiveInt] = Field(min_length=1, max_length=2)
    forms: list[TableForm] = Field(min_length=1, max_length=2)
    sources: list[dict[str, list[str]]] = Field([{}, {}], max_length=2)
    labelled: Annotated[int, Field(ge=0)]
    labels: Annotated[int, Field(ge=0)]
    temperature: Annotated[float, Field(gt=0)] | None
    linkage: SavedLinkage
    share: _Share
    scorer: Literal["boosting"] | None
    reader: tuple[float, float, float] | None
    threshold: _Share
    doubt: tuple[_Share, _Share]
    scores: dict[str, float]
    notes: list[str]


class MatchJournal:
    """The rows that were added to the matcher of a folder since its files were written, and their links.

    Args:
        folder: of the matcher, as it is now.
        changes: what its journal holds.
        end: bytes of the journal that are read.
    """

    def __init__(self, folder: Path, changes: Sequence[Change] = (), end: int = 0) -> None:
        self.folder, self.changes, self.end = files.resolved(folder), list(changes), end
        self.version = self._version()

    def _version(self) -> tuple[int, int]:
        status = (self.folder / CONFIG).stat()
        return status.st_ino, status.st_mtime_ns

    def write(self, table: str, ids: Ids, rows: pd.DataFrame, links: pd.DataFrame) -> None:
        """Write rows of a table, as they came, and their links, all at once, and wait for the disk.

        Raises:
            ValueError: if the folder is another one by now, or others have written.
            OSError: if it cannot be written.
        """
        cells, pairs = map(_recorded, (rows, links))
        parts: dict[str, Any] = {"ids": ids.tolist(), "rows": cells, "table": table, "links": pairs}
        change = Change(sequence=len(self.changes) + 1, time=now(), who=user_name(), what="add", **parts)
        with files.locked(self.folder, "update"):
            if self._version() != self.version:
                raise ValueError(f"durable: expected the folder that was loaded, got another in {self.folder}; load it")
            self.end = append_change(self.folder, change, self.end)
        self.changes.append(change)

    def just_added(self, table: str, rows: pd.DataFrame) -> Change | None:
        """The last change, if it put the same cells into a table."""
        last = self.changes[-1] if self.changes else None
        is_same = last is not None and last.table == table and {**(last.rows or {}), **_recorded(rows)} == last.rows
        return last if is_same else None

    @classmethod
    def read(cls, folder: Path) -> "MatchJournal":
        """The journal of a folder.

        Raises:
            ValueError: for changes that are none of a matcher.
        """
        changes, end = read_changes(folder)
        for number, change in enumerate(changes):
            rows, links = change.rows or {}, change.links or {}
            sizes = {len(column) for column in rows.values()} - {len(change.ids)}
            if change.table is None or change.sequence != number + 1 or sizes or len({*map(len, links.values())}) > 1:
                raise ValueError(f"{CHANGES}: expected rows of a table in change {change.sequence}, got others")
        return cls(folder, changes, end)

    def rows(self, table: str) -> pd.DataFrame:
        """All that are added to a table."""
        frames = [pd.DataFrame(change.rows) for change in self.changes if change.table == table]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _recorded(frame: pd.DataFrame) -> dict[str, list[Any]]:
    """The cells of rows as a record has them."""
    return {str(name): [_journalled(cell) for cell in frame[name].tolist()] for name in frame.columns}


def _journalled(cell: Any) -> Any:
    """A cell as a record has it: numbers as they are, anything else as a text."""
    if isinstance(cell, bool | int) or (isinstance(cell, float) and np.isfinite(cell)):
        return cell
    return shown_cell(cell, None)


def write_matcher(stage: Path, matcher: MatchAnswers) -> None:
    """Write the files of a matcher into an empty folder; of images and sounds the vectors alone."""
    (stage / CONFIG).write_text(matcher_settings(matcher).model_dump_json(indent=1) + "\n", encoding="utf-8")
    tables, linkage, learned = matcher.tables_, matcher.linkage_, matcher.learned_
    state = {f"{table.name}.vectors": table.vectors.contiguous() for table in tables.tables}
    state |= {f"{table.name}.thing": torch.from_numpy(table.thing.astype(np.int64)) for table in tables.tables}
    state |= {f"terms.{i}": torch.from_numpy(terms.weights) for i, terms in enumerate(tables.features.terms.values())}
    if linkage.refinement is not None:
        linkage.refinement.forest.save(stage / REFINEMENT)
    if learned is not None:
        state["known"] = torch.from_numpy(np.ascontiguousarray(learned.known))
        learned.scorer.save(stage / SCORER)
        if learned.reader is not None:
            learned.reader.model.save(stage / READER)
    if tables.encoder is not None:
        state |= {f"encoder.{name}": value.clone() for name, value in tables.encoder.trained_state().items()}
    save_file(state, stage / TENSORS)
    for table in tables.tables:
        _saved_rows(table, tables.columns).to_parquet(stage / f"{table.name}.parquet", index=False)
    matcher.labelled_.to_parquet(stage / PAIRS, index=False)
    matcher.labels_.to_parquet(stage / LABELS, index=False)


def matcher_settings(matcher: MatchAnswers) -> SavedMatcher:
    """What ``matcher.json`` holds of a matcher."""
    tables, learned, encoder = matcher.tables_, matcher.learned_, matcher.tables_.encoder
    settings = {
        "version": MATCHER_VERSION,
        "vicinal": __version__,
        "parameters": {name: getattr(matcher, name) for name in SavedMatcherParameters.model_fields},
        "texts": tables.columns.texts,
        "numbers": tables.columns.numbers,
        "media": tables.columns.media,
        "single": tables.is_single,
        "encoder": None if encoder is None else encoder.config(),
        "width": tables.left.vectors.shape[1],
        "rows": [len(table) for table in tables.tables],
        "things": [len(table.first) for table in tables.tables],
        "forms": [table.form for table in tables.tables],
        "sources": [table.sources for table in tables.tables],
        "labelled": len(matcher.labelled_),
        "labels": len(matcher.labels_),
        "temperature": tables.temperature,
        "linkage": _linkage_settings(matcher.linkage_),
        "share": 0.0 if learned is None else learned.share,
        "scorer": None if learned is None else "boosting",
        "reader": None if learned is None or learned.reader is None else learned.reader.weights,
        "threshold": matcher.threshold_,
        "doubt": matcher.doubt_,
        "scores": {name: value for name, value in matcher.scores_.items() if np.isfinite(value)},
        "notes": matcher.notes_,
    }
    return check_settings("matcher", SavedMatcher, settings)


def _linkage_settings(linkage: Linkage) -> Any:
    fields = {**vars(linkage), **vars(linkage.weights), "refined": linkage.refinement and linkage.refinement.state}
    saved = {name: fields[name] for name in SavedLinkage.model_fields}
    return json.loads(json.dumps(saved, default=lambda part: part.tolist()))


def _linkage(config: SavedMatcher, tables: MatchedTables, folder: Path) -> Linkage:
    """The estimates of a folder."""
    saved = config.linkage
    columns = {*config.texts, *config.numbers}
    if not set(saved.kinds) <= columns or not {*saved.follows, *saved.follows.values()} <= set(saved.kinds):
        raise ValueError(f"{CONFIG}: expected kinds of the shared columns, got others")
    m, u = [[np.array(column) for column in each] for each in saved.m], [np.array(column) for column in saved.u]
    flags = saved.model_dump(exclude={"m", "u", "shares", "refined"})
    weights = MatchWeights(m, u, np.array(saved.shares))
    linkage = Linkage(config.parameters.links, config.parameters.n_candidates, weights=weights, **flags)
    sizes = [len(names) for names in linkage.level_names.values()]
    if len(m) != len(saved.shares) or any(list(map(len, each)) != sizes for each in (*m, u)):
        raise ValueError(f"{CONFIG}: expected m and u of each comparison level, got others")
    if saved.refined is not None:
        check_sums(folder, (REFINEMENT,), "matcher", LARGEST_SETTINGS)
        alone, state = linkage.alone(tables), {str(name): np.array(part) for name, part in saved.refined.items()}
        count = int(alone.sum())
        if {name: len(part) for name, part in state.items()} != dict(
            center=count, scale=count, weights=2 * count, start=1
        ):
            raise ValueError(f"{CONFIG}: expected weights of {count} features of pairs, got others")
        linkage.refinement = Refinement(alone, state, BoostedPairs.load(folder / REFINEMENT, len(alone)))
    return linkage


def _saved_rows(table: MatchTable, columns: MatchColumns) -> pd.DataFrame:
    frame = table.frame.drop(columns=list(columns.media), errors="ignore")
    mixed = (name for name in frame.columns if frame[name].dtype == object)
    frame = frame.assign(**{name: [shown_cell(cell, None) for cell in frame[name]] for name in mixed})
    frame.insert(0, _IDS, table.ids)
    return frame


_IDS = "\0ids"
"""The column of ids in the saved tables; no column of a user is called so."""


Matcher = TypeVar("Matcher", bound=MatchAnswers)


def read_matcher(kind: Callable[..., Matcher], folder: Path, encoders: Mapping[str, str]) -> Matcher:
    """What :func:`write_matcher` wrote, with the rows of its journal.

    Raises:
        ValueError: naming the file that is missing, torn, edited or of a newer version.
    """
    folder = local_path("model", folder)
    if not folder.is_dir():
        raise ValueError(f"model: expected a folder of a matcher, got {short_text(folder, ECHO)}, which is none")
    return read_whole(folder, lambda place: _read(kind, place, encoders))


def _read(kind: Callable[..., Matcher], folder: Path, encoders: Mapping[str, str]) -> Matcher:
    check_inside(folder, *_FILES, *(f"{name}.parquet" for name in SIDES))
    check_sums(folder, (CONFIG,), "matcher", LARGEST_SETTINGS)
    config = read_settings(
        folder / CONFIG, SavedMatcher, "a vicinal matcher", newest=MATCHER_VERSION, oldest=MATCHER_VERSION
    )
    for each in (config.rows, config.things, config.forms):
        if len(each) != (1 if config.single else 2):
            raise ValueError(f"{CONFIG}: expected {1 if config.single else 2} tables, got {len(each)}")
    check_sums(folder, (TENSORS, PAIRS, LABELS, *(f"{name}.parquet" for name in SIDES[: len(config.rows)])), "matcher")
    matcher = kind(**config.parameters.model_dump())
    matcher.tables_, known = _tables(config, folder, encoders)
    matcher.linkage_ = _linkage(config, matcher.tables_, folder)
    matcher.labelled_ = _labelled(folder / PAIRS, config.labelled, config)
    matcher.labels_ = _labelled(folder / LABELS, config.labels, config)
    matcher.learned_ = None if known is None else _learned(folder, config, known.numpy(), encoders)
    matcher.notes_, matcher.scores_ = list(config.notes), dict(config.scores)
    matcher.threshold_, matcher.doubt_ = config.threshold, config.doubt
    matcher.new_rows_, matcher.journal_ = {}, MatchJournal.read(folder)
    return matcher


def _tables(config: SavedMatcher, folder: Path, encoders: Mapping[str, str]) -> tuple[MatchedTables, Tensor | None]:
    """The tables of a folder, and descriptions of the labelled pairs, where a scorer learned from them."""
    columns, encoder = MatchColumns(config.texts, config.numbers, config.media), _encoder(config, encoders)
    tables = MatchedTables([], columns, encoder)
    state = read_tensors(folder / TENSORS, _template(config, tables))
    if encoder is not None:
        trained = {name.partition(".")[2]: value for name, value in state.items() if name.startswith("encoder.")}
        encoder.load_trained_state(trained)
    for number, terms in enumerate(tables.features.terms.values()):
        terms.weights = state[f"terms.{number}"].numpy()
        if not (terms.weights > 0).all():
            raise ValueError(f"{TENSORS}: expected weights of terms above 0, got others")
    parts = zip(SIDES, config.rows, config.forms, config.sources, strict=False)
    tables.tables.extend(_table(folder, *part, state, columns) for part in parts)
    tables.temperature = config.temperature
    return tables, state.get("known")


def _learned(folder: Path, config: SavedMatcher, known: Floats, encoders: Mapping[str, str]) -> LabelScorer:
    """What was learned from labels."""
    check_sums(folder, (SCORER,), "matcher", LARGEST_SETTINGS)
    scorer, reader = BoostedPairs.load(folder / SCORER, known.shape[1]), None
    if config.reader is not None:
        named = {"pair": encoders["text"]} if "text" in encoders else {}
        reader = PairReader.load(folder / READER, config.reader, named)
    return LabelScorer(scorer, known, config.share, reader)


def _encoder(config: SavedMatcher, encoders: Mapping[str, str]) -> TableEncoder | None:
    """The encoder of a matcher, without what a folder may not choose."""
    if config.encoder is None:
        return None
    parts = []
    for part in config.encoder.parts:
        name = part.get("encoder")
        choice = encoders.get(str(part.get("kind")), name)
        if reaches_out(name) and str(part.get("kind")) not in encoders:
            raise ValueError(
                f"encoders: expected {name!s:.200} of this matcher's settings to be given again, as a folder may not "
                f"choose what is read; say encoders={{{part.get('kind')!r}: {name!r}}} if that is meant"
            )
        parts.append({**part, "encoder": choice})
    return TableEncoder.from_config({"parts": parts}, empty=True)


def _template(config: SavedMatcher, tables: MatchedTables) -> dict[str, Tensor]:
    """Shapes that the tensors of a folder must have."""
    with torch.device("meta"):
        sides = zip(SIDES, config.things, strict=False), zip(SIDES, config.rows, strict=False)
        shapes = {f"{name}.vectors": torch.zeros(things, config.width) for name, things in sides[0]}
        shapes |= {f"{name}.thing": torch.zeros(rows, dtype=torch.int64) for name, rows in sides[1]}
        shapes |= {f"terms.{number}": torch.zeros(BUCKETS) for number in range(len(tables.features.terms))}
        if config.scorer is not None:
            count = len(tables.features.names) + 1  # the log ratio of match weights is read beside them
            shapes["known"] = torch.zeros(config.labelled, count, dtype=torch.float64)
    if tables.encoder is not None:
        shapes |= {f"encoder.{name}": value for name, value in tables.encoder.trained_state().items()}
    return shapes


def _table(
    folder: Path,
    name: str,
    rows: int,
    form: TableForm,
    sources: Any,
    state: Mapping[str, Tensor],
    columns: MatchColumns,
) -> MatchTable:
    """A table with its vectors and the things of its rows."""
    file = f"{name}.parquet"
    frame = _frame(folder / file)
    required = {*columns.texts, *columns.numbers, _IDS}
    if len(frame) != rows or not required <= set(frame.columns):
        raise ValueError(f"{file}: expected {rows} rows with the columns of {CONFIG}, got others")
    ids = canonical_ids(file, frame[_IDS], distinct=True)
    for number in columns.numbers:
        if not pd.api.types.is_numeric_dtype(frame[number]) and frame[number].notna().any():
            raise ValueError(f"{file}: expected numbers in {number!r:.100}, got others")
    frame, thing = frame.drop(columns=_IDS).assign(**dict.fromkeys(columns.media)), state[f"{name}.thing"].numpy()
    keys = thing.astype(np.uint64) if columns.media else None  # not kept: no row that is added is one with these
    table = MatchTable(name, frame, ids, state[f"{name}.vectors"], None, form, sources, keys)
    if not np.array_equal(table.thing, thing):
        raise ValueError(f"{file}: expected the rows that {TENSORS} says are equal, got others")
    return table


def _frame(path: Path) -> pd.DataFrame:
    with open_regular(path) as stream:
        return read_frame(stream, path.name)


def _labelled(path: Path, count: int, config: SavedMatcher) -> pd.DataFrame:
    frame = _frame(path)
    whole = list(frame.columns) == [*SIDES, "match"] and len(frame) == count
    if not whole or not all(pd.api.types.is_integer_dtype(frame[name]) for name in frame.columns):
        raise ValueError(f"{path.name}: expected {count} labelled pairs as positions, got others")
    most = [config.rows[0], config.rows[-1], 2]
    if not ((frame >= 0) & (frame < most)).all(axis=None):
        raise ValueError(f"{path.name}: expected positions of rows of the tables, got others")
    return frame
