"""``vicinal compress``: a model folder of fewer numbers beside the old one, with what it costs in error."""

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from vicinal.core import short_text
from vicinal.core.folders import check_replaceable
from vicinal.core.identity import IdentityWarning
from vicinal.encoders import EmbeddingCache
from vicinal.estimators.banked import BankedEstimator, load_model
from vicinal.estimators.compression import PLAIN, Cut, compressed
from vicinal.estimators.inputs import EmbeddedRows
from vicinal.estimators.learner import EmbeddingLearner
from vicinal.estimators.model_folder import PAGES
from vicinal.estimators.saving import save_model
from vicinal.training.rows import spread

Log = Callable[[str], None]

_TIMED, _TIMES = 200, 3
"""Rows whose prediction is timed, at most, and how often; the least time counts."""


@dataclass(frozen=True)
class Weighed:
    """A model beside another: ``bytes`` of its folder without pages, ``seconds`` of processor time a row, ``error``."""

    bytes: int
    seconds: float
    error: float


@dataclass(frozen=True)
class Compressed:
    """What :func:`compress_model` gives.

    Attributes:
        folder: of the smaller model.
        before: the model.
        after: the smaller one.
        cuts: what became of each part.
        error: what the errors are: "mean squared error", "log-loss", or "1 - MAP@R" of what is alike.
        rows: how many rows, held out or out of fold, they are of.
    """

    folder: Path
    before: Weighed
    after: Weighed
    cuts: list[Cut]
    error: str
    rows: int


def compress_model(
    folder: Path,
    keep: float = 0.5,
    out: Path | None = None,
    *,
    encoders: Mapping[str, str] | None = None,
    log: Log = lambda line: None,
) -> Compressed:
    """Write a smaller model beside the one in ``folder``, see :func:`vicinal.estimators.compression.compressed`.

    Args:
        folder: of the model; it stays as it is.
        keep: share of the numbers of each part that is left, between 0 and 1.
        out: folder of the smaller one; None: the name with "-small" behind.
        encoders: see :func:`vicinal.estimators.load_model`.
        log: gets one line of progress at a time.

    Raises:
        ValueError: for a model of which nothing can be cut, in one sentence; nothing is written.
    """
    out = folder.parent / f"{folder.name}-small" if out is None else out
    check_replaceable(out)
    if out.absolute() == folder.absolute():
        raise ValueError(f"out: expected another folder than that of the model, got {short_text(out, 200)}")
    model = load_model(folder, encoders=encoders)
    log("cutting, and measuring on rows held out")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        small, cuts = compressed(model, keep)
    if all(cut.after >= cut.before for cut in cuts):
        reasons = "; ".join(f"{cut.part}: {cut.how}" for cut in cuts)
        raise ValueError(f"model: expected parts that can be cut, got none ({reasons})")
    for cut in cuts:
        log(f"{cut.part}: {cut.before:,} numbers to {cut.after:,} ({cut.how})")
    notes = {name: value for name, value in model.notes_.items() if name != "scores"}
    save_model(small, out, notes | {"compressed_from": folder.name, "kept_share": keep})
    again = load_model(out, encoders=encoders)
    measured = [Weighed(_bytes(path), _seconds(one), _error(one)) for path, one in ((folder, model), (out, again))]
    return Compressed(out, measured[0], measured[1], cuts, _error_name(model), model.calibrating_rows())


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name not in PAGES)


def _error_name(model: BankedEstimator) -> str:
    if isinstance(model, EmbeddingLearner):
        return "1 - R2@10" if model.labels_ == "numbers" else "1 - MAP@R"
    return "log-loss" if hasattr(model, "classes_") else "mean squared error"


def _error(model: BankedEstimator) -> float:
    """The error on rows held out, or out of fold."""
    if not isinstance(model, EmbeddingLearner):
        return model.honest_error()
    from vicinal.evaluation.alike import alike_scores  # scipy's tests take a while to import

    rows = model.calibration_
    codes = model.as_known(model.labels_of(rows.ids), len(rows))
    scores = alike_scores(rows.vectors, codes, rows.store.group_codes, intervals=False)
    return 1 - next(iter(scores.values())).value


def _seconds(model: BankedEstimator) -> float:
    """Processor seconds of a row: of its cells, or of its vector where the bank has no cells."""
    at, best = spread(len(model.bank_), _TIMED), np.inf
    rows = model.bank_.store.rows_at(at)
    queries = EmbeddedRows(rows, model.bank_.store.vectors_at(at))
    whole = set(model.kinds_.values()) <= set(PLAIN) and hasattr(model, "feature_names_in_")
    for _ in range(_TIMES):
        model.table_encoder.cache_of_frozen = EmbeddingCache()
        begun = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentityWarning)
            if isinstance(model, EmbeddingLearner):
                model.kneighbors(rows if whole else queries, min(10, len(model.bank_)))
            else:
                model.predict(rows if whole else queries)
        best = min(best, (time.process_time() - begun) / len(at))
    return float(best)
