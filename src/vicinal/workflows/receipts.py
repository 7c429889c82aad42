"""Receipts of forgotten rows: from which files they went, that predictions do without them, and what may know them."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from vicinal.core import counted, listed, replaced_file, short
from vicinal.core.checks import short_text, unwarned
from vicinal.core.folders import read_sums
from vicinal.core.identity import IdentityWarning
from vicinal.core.untrusted import Saved, read_saved
from vicinal.estimators.banked import BankedEstimator, load_model
from vicinal.estimators.inputs import EmbeddedRows
from vicinal.estimators.journal import now
from vicinal.estimators.learner import EmbeddingLearner
from vicinal.training.rows import spread
from vicinal.version import __version__

VERSION = 1
"""Of the format."""

LARGEST = 1e-6
"""Of differences between predictions, in units of labels, distances or probabilities that count as rounding."""

_COMPARED = 200
"""Most rows whose predictions are compared."""

_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class FileChange(Saved):
    """A file of the model with its SHA-256 before and after; None where there was none."""

    name: str
    before: _Digest | None
    after: _Digest | None


class Receipt(Saved):
    """What was forgotten, and what was checked then.

    Attributes:
        program: version of vicinal.
        model: name of the model's folder.
        ids: of the rows; nothing of their cells, which a digest would let somebody guess.
        bank: how many of them predictions were made from.
        held_out: how many were held out for early stopping and calibration.
        files: those that held the rows, or may have shown them.
        compared: rows whose predictions were compared with those of a bank made of the rows that are left.
        difference: the largest, see :data:`LARGEST`.
        remains: what has seen the rows and was not trained anew.
        deep: whether the model was fitted again without them.
    """

    version: int = VERSION
    program: str
    time: str
    model: str
    ids: list[int | str]
    bank: Annotated[int, Field(ge=0)]
    held_out: Annotated[int, Field(ge=0)]
    files: list[FileChange]
    compared: Annotated[int, Field(ge=0)]
    difference: Annotated[float, Field(ge=0)]
    remains: list[str]
    deep: bool = False


@dataclass(frozen=True)
class Verified:
    """A receipt that holds: ``compared`` rows differ by ``difference`` now, and ``changed`` files are others since."""

    receipt: Receipt
    compared: int
    difference: float
    changed: list[str]

    def text(self) -> str:
        """What was checked, in lines."""
        rows, predictions = (counted(*one) for one in ((len(self.receipt.ids), "row"), (self.compared, "prediction")))
        files = counted(len(self.receipt.files), "file")
        lines = [
            f"{rows} forgotten at {self.receipt.time}: none is in the model"
            f"{', which was fitted again without them' if self.receipt.deep else ''}.",
            f"{predictions} checked: as from a bank without the rows (largest difference {self.difference:.1g}).",
            f"{files} that held or showed them: as in the receipt.",
            "Not trained anew, so the rows may still be in:",
        ]
        if self.changed:
            lines[2] = f"{files} that held or showed them; written again since: {listed(self.changed, 200)}."
        return "\n".join([*lines, *(f"  {part}" for part in self.receipt.remains)])


def free_name(folder: Path) -> Path:
    """The name of a receipt beside the model that no file has yet."""
    stem, number = folder.absolute().name + "-forgotten", 1
    while (path := folder.absolute().parent / f"{stem}{'' if number == 1 else f'-{number}'}.json").exists():
        number += 1
    return path


def difference_without_history(model: BankedEstimator) -> tuple[int, float]:
    """How many rows were predicted, and by how much at most they differ from a bank made anew of the model's rows.

    That bank never had any other row. Predictions of numbers are compared in units of the range of labels, classes by
    their probabilities, and of a model of ``learn`` the distances of the nearest rows, in units of the largest.
    """
    other, at = copy.copy(model), spread(len(model.bank_), _COMPARED)
    for name in ("bank_", "calibration_"):
        bank = getattr(model, name)
        if len(bank):
            setattr(other, name, bank.take(np.arange(len(bank))))  # in this order, which decides between equal rows
    queries = EmbeddedRows(model.bank_.store.rows_at(at), model.bank_.store.vectors_at(at))
    with unwarned(IdentityWarning):
        one, another = (_said(each, queries) for each in (model, other))
    is_number = not hasattr(model, "classes_") or isinstance(model, EmbeddingLearner)
    labels = one if isinstance(model, EmbeddingLearner) else model.bank_.labels.numpy()
    unit = float(np.ptp(labels)) if is_number else 1.0
    return len(at), float(np.abs(one - another).max(initial=0.0)) / (unit or 1.0)


def _said(model: Any, queries: EmbeddedRows) -> np.ndarray[Any, Any]:
    if isinstance(model, EmbeddingLearner):
        return np.asarray(model.kneighbors(queries, min(10, len(model.bank_)))[0])
    return np.asarray(model.predict_proba(queries) if hasattr(model, "classes_") else model.predict(queries))


def remains(model: BankedEstimator, *, deep: bool = False) -> list[str]:
    """What a fit took of many rows together, and forgetting leaves as it is."""
    journal = "the journal: their ids alone, so that vicinal refit leaves them out"
    if deep:
        return ["kinds and notation of columns, which were found with them", journal]
    size = sum(value.numel() for value in model.network_.parameters())
    lengths = "the kernel's length of each column"
    trained = {"trees": "boosted trees", "kernel": lengths, "trees and kernel": f"boosted trees and {lengths}"}
    return [
        "means, deviations and quantiles of columns"
        + (", buckets of texts" if "text" in model.kinds_.values() else ""),
        trained.get(model.metric_, f"a network of {counted(size, 'number')}") + ", fitted to the rows of the fit",
        journal,
    ]


def write_receipt(
    path: Path,
    folder: Path,
    ids: Sequence[Any],
    counts: tuple[int, int],
    before: dict[str, str],
    named: Mapping[str, Any],
    *,
    deep: bool = False,
) -> Receipt:
    """Read the model again, check what became of the rows, and write the receipt.

    Args:
        path: of the receipt, a JSON file.
        folder: of the model, without the rows.
        ids: of the rows.
        counts: how many of them were in the bank, and how many held out.
        before: :func:`vicinal.core.folders.read_sums` when the rows were there.
        named: ``index`` and ``encoders`` of :func:`vicinal.estimators.load_model`.
        deep: whether the model was fitted again.

    Raises:
        ValueError: for a row that is still there, or predictions that differ; no receipt is written then.
    """
    model, after = load_model(folder, **named), read_sums(folder)
    files = [
        FileChange(name=name, before=before.get(name), after=after.get(name))
        for name in sorted(before | after)
        if before.get(name) != after.get(name)
    ]
    compared, difference = _checked(model, ids, folder)
    receipt = Receipt(
        program=__version__,
        time=now(),
        model=folder.absolute().name,
        ids=list(ids),
        bank=counts[0],
        held_out=counts[1],
        files=files,
        compared=compared,
        difference=difference,
        remains=remains(model, deep=deep),
        deep=deep,
    )
    with replaced_file(path) as aside:
        aside.write_text(receipt.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return receipt


def verify_receipt(path: Path, folder: Path | None = None, **named: Any) -> Verified:
    """Check a receipt against the model as it is now.

    Args:
        path: of the receipt.
        folder: of the model; None: the one that the receipt names, beside it.
        named: ``index`` and ``encoders`` of :func:`vicinal.estimators.load_model`.

    Raises:
        ValueError: for a file that is no receipt, a row that is in the model, or predictions that differ.
    """
    receipt = read_saved(path, Receipt, "a receipt of vicinal forget", newest=VERSION)
    folder = path.parent / receipt.model if folder is None else folder
    if not folder.is_dir():
        raise ValueError(f"model: expected the folder of the receipt, got none at {short_text(folder, 200)}; name it")
    compared, difference = _checked(load_model(folder, **named), receipt.ids, folder)
    now_there = read_sums(folder)
    changed = [one.name for one in receipt.files if now_there.get(one.name) != one.after]
    return Verified(receipt, compared, difference, changed)


def _checked(model: BankedEstimator, ids: Sequence[Any], folder: Path) -> tuple[int, float]:
    """Rows that were compared, and the largest difference; raises ValueError where rows were not forgotten."""
    for bank in (model.bank_, model.calibration_):
        there = bank.has(list(ids)) if len(bank) else np.zeros(len(ids), dtype=bool)
        if there.any():
            raise ValueError(
                f"ids: expected none of the forgotten rows in {short_text(folder, 200)}, got "
                f"{short(ids[int(there.argmax())])}, which is there; was it added again?"
            )
    named = next((name for name in ids if model.changes_.relabels(name)), None)
    if named is not None:
        raise ValueError(f"ids: expected no earlier labels of {short(named)} in the journal, got some; forget it again")
    compared, difference = difference_without_history(model)
    if difference > LARGEST:
        raise ValueError(
            f"model: expected predictions of a bank without the rows, got a difference of {difference:.2g} on "
            f"{counted(compared, 'row')}; load the model without an index, or fit again"
        )
    return compared, difference
