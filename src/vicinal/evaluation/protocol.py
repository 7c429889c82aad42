"""The comparison of methods over seeded splits, resumable: what is in the store is not run again."""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vicinal.core import check_choice
from vicinal.evaluation.scores import HIGHER_IS_BETTER
from vicinal.evaluation.store import Json, Run, RunStore


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
) -> list[Run]:
    """Run every method on every split, but for those that ``store`` has; each result is on disk before the next fit.

    Args:
        methods: the fit for each method; a fit that yields several (nona, nona+knn) has a tuple of their names.
        splits: drawn before, so that all methods see the same rows.
        store: where finished runs are kept.
        dataset: name of the data set in the store.
        settings: what the runs on this data set have in common, such as its fingerprint; others are refused.
        progress: told about each fit when it starts and ends.

    Returns:
        The runs of these methods on these splits, old and new.

    Raises:
        ValueError: if stored runs are of other settings, other data or other splits, or a fit yields other scores
            than it should. What was finished before stays in the store.
    """
    store.enter(dataset, settings or {})
    wanted: list[Run] = []
    for number, split in enumerate(splits):
        rows = split_digest(split)
        for key, fit in methods.items():
            names = (key,) if isinstance(key, str) else tuple(key)
            found = [store.find(dataset, number, name) for name in names]
            for run in found:
                _check_rows(store, run, rows)
            if any(run is None for run in found):
                if progress is not None:
                    progress(dataset, number, "+".join(names[:1]), [])
                store.add(_run_fit(fit, names, dataset, number, split, rows))
                found = [store.find(dataset, number, name) for name in names]
                if progress is not None:
                    progress(dataset, number, names[0], [run for run in found if run])
            wanted += [run for run in found if run is not None]
    return wanted


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
        Run(dataset, number, int(split.seed), name, _floats(metrics), seconds, rows, sizes)
        for name, metrics in scores.items()
    ]


def _floats(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}


def _check_rows(store: RunStore, run: Run | None, rows: str) -> None:
    if run is not None and run.rows != rows:
        raise ValueError(
            f"{store.path.name}: expected runs on the same splits, got {run.method!r} of {run.dataset!r}, split "
            f"{run.split}, on other rows; use the seed, shares and data of then, or choose another --out"
        )
