"""``vicinal compress``: a smaller model folder beside the old one, and what it costs in error."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vicinal.core.checks import short_text, unwarned
from vicinal.core.folders import check_replaceable
from vicinal.core.identity import IdentityWarning
from vicinal.core.progress import Log
from vicinal.core.seeding import seeded
from vicinal.estimators.bank import Bank
from vicinal.estimators.banked import CELLS, BankedEstimator, load_model
from vicinal.estimators.calibrating import calibrating_rows
from vicinal.estimators.compression import Cut, compressed, fewer_rows
from vicinal.estimators.fitted import weighted_mean
from vicinal.estimators.inputs import EmbeddedRows
from vicinal.estimators.learner import EmbeddingLearner
from vicinal.estimators.model_folder import PAGES
from vicinal.estimators.saving import save_model
from vicinal.training.rows import spread
from vicinal.workflows.measuring import TIMED, seconds_of
from vicinal.workflows.opening import rows_of_the_table


@dataclass(frozen=True)
class Weighed:
    """A model's ``bytes`` (its folder without pages), processor ``seconds`` per row, and ``error``."""

    bytes: int
    seconds: float
    error: float


@dataclass(frozen=True)
class Compressed:
    """The result of :func:`compress_model`.

    Attributes:
        folder: of the smaller model.
        error: "mean squared error", "log-loss", or for a model of ``learn`` "1 - MAP@R" (numbers: "1 - R2@10").
        rows: number of rows, held out or out of fold, that errors are measured on.
    """

    folder: Path
    before: Weighed
    after: Weighed
    cuts: list[Cut]
    error: str
    rows: int


@rows_of_the_table()
def compress_model(
    folder: Path,
    keep: float = 0.5,
    out: Path | None = None,
    *,
    variance: float | None = None,
    rows: float | None = None,
    encoders: Mapping[str, str] | None = None,
    log: Log = lambda line: None,
) -> Compressed:
    """Write a smaller model beside the one in ``folder``, see :func:`vicinal.estimators.compression.compressed`.

    Args:
        folder: of the model, which is not changed.
        keep: share of the numbers of each part that is kept, between 0 and 1.
        out: folder of the smaller model; None: the name of ``folder`` with "-small" appended.
        variance: share of the variance of vectors that is kept, in place of ``keep``; None: ``keep``.
        rows: share of the bank's rows that is kept, and nothing else is cut: see
            :func:`vicinal.estimators.compression.fewer_rows`; None: all.
        encoders: see :func:`vicinal.estimators.load_model`.
        log: gets one line of progress at a time.

    Raises:
        ValueError: for a model of which nothing can be cut; nothing is written.
    """
    out = folder.parent / f"{folder.name}-small" if out is None else out
    check_replaceable(out)
    if out.absolute() == folder.absolute():
        raise ValueError(f"out: expected another folder than that of the model, got {short_text(out, 200)}")
    model = load_model(folder, encoders=encoders)
    log("cutting, and measuring on rows held out")
    with seeded(0):
        if rows is None:
            small, cuts = compressed(model, keep, variance)
        else:
            small, *cuts = fewer_rows(model, rows)
    if all(cut.after >= cut.before for cut in cuts):
        reasons = "; ".join(f"{cut.part}: {cut.how}" for cut in cuts)
        raise ValueError(f"model: expected parts that can be cut, got none ({reasons})")
    for cut in cuts:
        log(f"{cut.part}: {cut.before:,} numbers to {cut.after:,} ({cut.how})")
    notes = {name: value for name, value in model.notes_.items() if name != "scores"}
    shares = {"kept_rows": rows} if rows else {"kept_share": keep} | ({"kept_variance": variance} if variance else {})
    save_model(small, out, notes | {"compressed_from": folder.name} | shares)
    again = load_model(out, encoders=encoders)
    now, before = (calibrating_rows(one.fitted_) for one in (again, model))
    if rows is not None and now < before:
        log(f"{now:,} rows calibrate intervals and sets now, {before:,} before")
    measured = []
    for path, one in ((folder, model), (out, again)):
        size = sum(each.stat().st_size for each in path.rglob("*") if each.is_file() and each.name not in PAGES)
        seconds = _seconds(one, one.bank_ if rows is None else model.bank_)
        measured.append(Weighed(size, seconds, _error(one, held_out=rows is not None)))
    count = calibrating_rows(model.fitted_) if rows is None else len(model.calibration_)
    return Compressed(out, measured[0], measured[1], cuts, _error_name(model), count)


def _error_name(model: BankedEstimator) -> str:
    if isinstance(model, EmbeddingLearner):
        return "1 - R2@10" if model.labels_ == "numbers" else "1 - MAP@R"
    return "log-loss" if hasattr(model, "classes_") else "mean squared error"


def _error(model: BankedEstimator, *, held_out: bool = False) -> float:
    """The error on held-out rows, or out of fold."""
    if held_out:
        return weighted_mean(*model.fitted_.held_out_errors())
    if not isinstance(model, EmbeddingLearner):
        return model.honest_error()
    from vicinal.evaluation.alike import alike_scores  # scipy's tests take a while to import

    rows = model.calibration_
    codes = model.as_known(model.labels_of(rows.ids), len(rows))
    scores = alike_scores(rows.vectors, codes, rows.store.group_codes, intervals=False)
    return 1 - next(iter(scores.values())).value


def _seconds(model: BankedEstimator, bank: Bank) -> float:
    """Processor seconds per row of a bank, from its cells, or from its vector if the bank does not keep the cells."""
    at = spread(len(bank), TIMED)
    rows = bank.store.rows_at(at)
    queries = EmbeddedRows(rows, bank.store.vectors_at(at))
    whole = set(model.kinds_.values()) <= set(CELLS) and hasattr(model, "feature_names_in_")
    with unwarned(IdentityWarning):
        if isinstance(model, EmbeddingLearner):
            k = min(10, len(model.bank_))
            return seconds_of(model, lambda: model.kneighbors(rows if whole else queries, k)) / len(at)
        return seconds_of(model, lambda: model.predict(rows if whole else queries)) / len(at)
