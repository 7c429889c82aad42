"""Comparisons that resume: finished runs in one JSON file, always whole, and the runs that are still to do."""

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, ConfigDict, Field, JsonValue
from pydantic.dataclasses import dataclass

from vicinal.core import check_choice
from vicinal.core.files import clear_target, locked, replace_text, resolved
from vicinal.core.untrusted import Saved, read_saved
from vicinal.metrics.predictions import HIGHER_IS_BETTER

VERSION = 1

Json: TypeAlias = Any
"""What JSON holds: None, bool, int, float, str, lists and dicts of these."""

Score = Annotated[float, Field(allow_inf_nan=True), BeforeValidator(lambda value: math.nan if value is None else value)]
"""A score; one that is not finite is null in the file."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False))
class Run:
    """One method's result on one split of one data set.

    Attributes:
        dataset: name of the data set.
        split: number of the split, from 0.
        seed: the seed of the split.
        method: name of the method.
        metrics: its scores; NaN where a score is not finite.
        seconds: duration of the fit behind it (one fit may serve several methods).
        rows: digest of the rows of the split's parts, so that runs on other rows are not mistaken for these.
        sizes: number of training, validation and test rows.
    """

    dataset: str
    split: int
    seed: int
    method: str
    metrics: dict[str, Score]
    seconds: float
    rows: str
    sizes: tuple[int, int, int]


class SavedRuns(Saved):
    """What the file of finished runs holds."""

    version: int
    settings: dict[str, JsonValue]
    datasets: dict[str, dict[str, JsonValue]]
    runs: list[Run]


class RunStore:
    """Finished runs in a JSON file that is whole at any moment: each change is written aside, synced and renamed.

    Args:
        path: of the JSON file, created when the first run is added; its folder is created at once.
        settings: what all runs in it have in common (epochs, learning rate, encoders, ...). A file with other settings
            is refused.

    Raises:
        ValueError: if the file is damaged, edited, of a newer version, or of other settings; or if the folder cannot be
            created or written to.
    """

    def __init__(self, path: str | Path, settings: Mapping[str, Json]) -> None:
        self.path = Path(path)
        self.settings: dict[str, Json] = json.loads(json.dumps(dict(settings), default=str))
        self._datasets: dict[str, Json] = {}
        self._runs: dict[tuple[str, int, str], Run] = {}
        _check_writable(self.path.parent)
        with locked(resolved(self.path), "update"):
            clear_target(resolved(self.path))
        self._reload()

    @property
    def runs(self) -> list[Run]:
        """All runs, in the order of data set, split and method as they came."""
        return list(self._runs.values())

    def enter(self, dataset: str, settings: Mapping[str, Json]) -> None:
        """Say what runs on ``dataset`` have in common (its fingerprint, kinds of columns, ...).

        Raises:
            ValueError: if the file holds runs on a data set of this name with other settings.
        """
        entered = json.loads(json.dumps(dict(settings), default=str))
        known = self._datasets.setdefault(dataset, entered)
        _check_same(f"{self.path.name}: expected runs on {dataset!r} with", known, entered)

    def find(self, dataset: str, split: int, method: str) -> Run | None:
        """The finished run, if there is one."""
        return self._runs.get((dataset, split, method))

    def add(self, runs: Iterable[Run]) -> None:
        """Add ``runs`` (or replace those of the same data set, split and method) and write the file.

        Several processes may add to one file.
        """
        with locked(resolved(self.path), "update"):
            self._reload()  # keep what another process has added meanwhile
            for run in runs:
                self._runs[run.dataset, run.split, run.method] = run
            stored = SavedRuns(version=VERSION, settings=self.settings, datasets=self._datasets, runs=self.runs)
            replace_text(self.path, stored.model_dump_json(indent=1))

    def _reload(self) -> None:
        """Take over the runs in the file, after checking that they belong here."""
        if not os.path.lexists(self.path):
            return
        name = self.path.name
        advice = "; move it away or choose another --out"
        stored = read_saved(self.path, SavedRuns, "runs", newest=VERSION, advice=advice)
        _check_same(f"{name}: expected runs with", stored.settings, self.settings)
        for dataset, known in stored.datasets.items():
            self._datasets.setdefault(dataset, known)
            _check_same(f"{name}: expected runs on {dataset!r} with", known, self._datasets[dataset])
        self._runs = {(run.dataset, run.split, run.method): run for run in stored.runs} | self._runs


def _check_writable(folder: Path) -> None:
    """Make ``folder``; refuse one that cannot be written to before any fit has run."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        raise ValueError(f"out: expected a folder that can be written to, got {folder}; choose another --out")


def _check_same(sentence: str, stored: Mapping[str, Json], new: Mapping[str, Json]) -> None:
    """Refuse settings that differ, naming the first that does."""
    for key in [*new, *(key for key in stored if key not in new)]:
        if stored.get(key) != new.get(key):
            raise ValueError(
                f"{sentence} {key} = {new.get(key)!r}, got stored ones with {stored.get(key)!r}; "
                "go back to those settings, or choose another --out"
            )


class SplitLike(Protocol):
    """Positions to train, validate and test on, and the seed they were drawn with."""

    @property
    def train(self) -> NDArray[np.int64]: ...  # noqa: D102
    @property
    def validation(self) -> NDArray[np.int64]: ...  # noqa: D102
    @property
    def test(self) -> NDArray[np.int64]: ...  # noqa: D102
    @property
    def seed(self) -> int: ...  # noqa: D102


Fit = Callable[[SplitLike], Mapping[str, Mapping[str, float]]]
"""Fits on a split; gives the test scores of each method that the fit yields."""

Together = Callable[[Sequence[Callable[[], list[Run]]]], Iterable[tuple[int, list[Run]]]]
"""Does pieces of work, in other processes, say; gives the place of each with what came of it, as they end."""

Progress = Callable[[str, int, str, list[Run]], None]
"""Called with data set, number of the split, method, and its runs once finished (empty when it starts)."""


def run_protocol(
    methods: Mapping[str | tuple[str, ...], Fit],
    splits: Sequence[SplitLike],
    store: RunStore,
    *,
    dataset: str = "",
    settings: Mapping[str, Json] | None = None,
    progress: Progress | None = None,
    together: Together | None = None,
) -> list[Run]:
    """Run every method on every split, but for those that ``store`` has; each result is on disk before the next fit.

    Args:
        methods: the fit for each method; a fit that gives several (nona, nona+knn) is keyed by a tuple of their names.
        splits: drawn beforehand, so that all methods see the same rows.
        store: where finished runs are kept.
        dataset: name of the data set in the store.
        settings: what the runs on this data set have in common, such as its fingerprint; others are refused.
        progress: called when a fit starts (with ``together``: is handed out) and when it ends.
        together: runs the fits, for instance in parallel; each result is written as soon as it is there. None: here,
            one after the other.

    Returns:
        The runs of these methods on these splits, old and new.

    Raises:
        ValueError: if stored runs are of other settings, other data or other splits, or a fit yields other scores than
            it should. Runs that were finished before stay in the store.
    """
    store.enter(dataset, settings or {})
    report = progress or (lambda data, number, method, done: None)
    every = [_names(key) for key in methods]
    left = fits_left(every, splits, store, dataset)
    works = [
        partial(_run_fit, fit, names, dataset, number, splits[number], split_digest(splits[number]))
        for number, names in left
        for fit in [next(one for key, one in methods.items() if _names(key) == names)]
    ]

    def one_by_one() -> Iterator[tuple[int, list[Run]]]:
        for place, work in enumerate(works):
            report(dataset, left[place][0], left[place][1][0], [])
            yield place, work()

    for number, names in left if together is not None else ():
        report(dataset, number, names[0], [])
    for place, results in one_by_one() if together is None else together(works):
        number, names = left[place]
        store.add(results)
        report(dataset, number, names[0], _runs_of(store, dataset, number, names))
    return [run for number in range(len(splits)) for names in every for run in _runs_of(store, dataset, number, names)]


def fits_left(
    methods: Iterable[tuple[str, ...]], splits: Sequence[SplitLike], store: RunStore, dataset: str
) -> list[tuple[int, tuple[str, ...]]]:
    """The fits that ``store`` has not: number of the split, and names of the methods that the fit yields.

    Raises:
        ValueError: if there are runs on other rows.
    """
    left, every = [], list(methods)
    for number, split in enumerate(splits):
        rows = split_digest(split)
        for names in every:
            finished = _runs_of(store, dataset, number, names)
            for run in finished:
                _check_rows(store, run, rows)
            if len(finished) < len(names):
                left.append((number, names))
    return left


def _names(key: str | tuple[str, ...]) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(key)


def _runs_of(store: RunStore, dataset: str, number: int, names: Sequence[str]) -> list[Run]:
    return [run for run in (store.find(dataset, number, name) for name in names) if run is not None]


def split_digest(split: SplitLike) -> str:
    """A digest of which rows are in which part of ``split``, 16 hex digits."""
    digest = hashlib.sha256()
    for part in (split.train, split.validation, split.test):
        digest.update(np.ascontiguousarray(part, dtype="<i8").tobytes() + b"|")
    return digest.hexdigest()[:16]


def _run_fit(fit: Fit, names: Sequence[str], dataset: str, number: int, split: SplitLike, rows: str) -> list[Run]:
    started = time.perf_counter()
    scores = fit(split)
    seconds = time.perf_counter() - started
    for name in names:
        if name not in scores:
            raise ValueError(f"{name}: expected scores from the fit of {', '.join(names)}, got {', '.join(scores)}")
    for metrics in scores.values():
        for metric in metrics:
            check_choice("metric", metric, HIGHER_IS_BETTER)
    sizes = (len(split.train), len(split.validation), len(split.test))
    return [
        Run(dataset, number, int(split.seed), name, {m: float(v) for m, v in each.items()}, seconds, rows, sizes)
        for name, each in scores.items()
    ]


def _check_rows(store: RunStore, run: Run, rows: str) -> None:
    if run.rows != rows:
        raise ValueError(
            f"{store.path.name}: expected runs on the same splits, got {run.method!r} of {run.dataset!r}, split "
            f"{run.split}, on other rows; use the seed, shares and data of then, or choose another --out"
        )
