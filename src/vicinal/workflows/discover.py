"""``vicinal discover``: rows of a table that fit no known class of a model, in groups to be named."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.clustering import Discovery, discover_groups
from vicinal.core.arrays import Array
from vicinal.core.checks import check_between, check_integer, short_text
from vicinal.core.identity import canonical_ids
from vicinal.core.progress import Log
from vicinal.data import read_table, write_table
from vicinal.data.cells import missing_cells
from vicinal.data.sources import table_name
from vicinal.encoders.media import read_cell
from vicinal.estimators.attention import nearest_rows
from vicinal.estimators.bank import Bank
from vicinal.estimators.banked import CELLS, BankedEstimator, load_model
from vicinal.estimators.inputs import EmbeddedRows
from vicinal.estimators.kernel_metric import encoded
from vicinal.estimators.out_of_fold import MOST
from vicinal.estimators.saving import OpenSettings
from vicinal.report.discover import DiscoverRecord, FoundGroup, write_discover_page
from vicinal.training.rows import spread
from vicinal.workflows.opening import made_with
from vicinal.workflows.predict import features_of, read_rows, who_of
from vicinal.workflows.showing import shown_cells

NEAREST = 5
"""Nearest bank rows, whose mean distance is the strangeness of a row."""

COLUMNS = ("id", "group", "typicality", "label")
"""Columns of the table of names."""

_PLAINER = (
    "The model compares rows by a metric that was not trained to keep classes apart; fit --metric network usually "
    "notices more of the new ones."
)

_TYPICAL, _WORDS, _KNOWN = 12, 8, 1024
"""Most rows and words of a group that are shown; most rows of known classes that choose how to group."""

_FEWEST_CLASSES, _FEWEST_ROWS = 4, 5
"""Fewest classes, and rows of each, with which some can be hidden."""


@dataclass(frozen=True, eq=False)
class Discovered:
    """The result of :func:`discover_table`, and the files that hold it; None if nothing was written.

    Attributes:
        table: columns ``id``, ``group``, ``typicality`` and the empty ``label``; one line for each new row, by group,
            the most typical first.
    """

    table: pd.DataFrame
    record: DiscoverRecord
    page: Path | None
    names: Path | None


def discover_table(
    folder: Path,
    source: Path | pd.DataFrame,
    out: Path | None = None,
    *,
    error: float = 0.05,
    groups: int | None = None,
    seed: int = 0,
    root: Path | None = None,
    log: Log = lambda line: None,
    **opening: Unpack[OpenSettings],
) -> Discovered:
    r"""Find rows of a table that fit no class of the model in ``folder``, and group them.

    The strangeness of a row is its mean distance to the five nearest bank rows. A row fits no known class if its
    conformal p-value $(1 + \#\{i : s_i \ge s\}) / (m + 1)$ is at most ``error``, where $s_i$ is the strangeness of m
    held-out rows of known classes. So rows of known classes, if exchangeable with these, are taken for new with
    probability at most ``error``. Where members are folds, each row is scored by the members that left it out, and the
    guarantee is twice ``error``. A model of ``learn`` held out whole classes: there a row must also be strange compared
    with the training rows, which carries no guarantee.

    Groups are those of :func:`vicinal.clustering.discover_groups`, on the encoders' vectors, beside known rows whose
    classes are hidden as a test. If the bank keeps the cells (texts, numbers, categories), these are rows of the bank;
    only held-out ones if an encoder was trained on labels, as for n-grams. Else they are the rows of this table that
    fit a class; with fewer than four classes of five such rows, the model's own vectors are grouped.

    Args:
        folder: of a model of one class per row, from ``fit`` or ``learn``.
        source: file of the table, or the table itself; labels in it are not read.
        out: file for the names, such as .csv; the page is written beside it. None: nothing is written.
        error: share of rows of known classes that may be taken for new.
        groups: number of groups; None: chosen.
        seed: of random draws.
        root: folder that paths of images and sounds start from; None: that of the file.
        log: gets what was ignored, and the number of new rows.
        opening: how the model is opened, see :class:`vicinal.estimators.saving.OpenSettings`.

    Raises:
        ValueError: for another kind of model, too few rows to calibrate, or names in ``out`` that would be lost.
    """
    check_between("error", error, 0, 1)
    if groups is not None:
        check_integer("groups", groups)
    check_no_names(out)
    model = load_model(folder, **opening)
    _check_model(model)
    frame = read_rows(model, source, root, log)
    known = np.zeros(len(frame), dtype=bool)
    if "ids" in (who := who_of(model, frame)):
        known = model.bank_.has(canonical_ids("ids", who["ids"]))
    if known.any():
        log(f"{int(known.sum())} rows are in the model's bank already, and are passed over")
        frame = frame[~known]
    if not len(frame):
        raise ValueError("data: expected rows that are not in the model's bank, got none")
    features = features_of(model, frame, log)
    ids = who_of(model, frame).get("ids")
    names = ids or frame.index.tolist()
    rows = EmbeddedRows(*model.embedded_rows(features))
    identity = {"ids": ids, "groups": None}
    chances, calibrating = p_values(model, rows.vectors.double(), identity)
    if 1 / (calibrating + 1) > error:
        raise ValueError(
            f"error: expected at least {1 / (calibrating + 1):.3f} with {calibrating} rows that calibrate, got "
            f"{error}; ask for more, or fit with more rows held out"
        )
    new = np.flatnonzero(chances <= error)
    log(f"{len(new)} of {len(frame)} rows fit no known class")
    nearest = nearest_rows(model, rows.vectors.double(), 1, identity)[1][:, 0]
    classes = [str(model.fitted_.codec.named(code)) for code in model.bank_.labels[torch.from_numpy(nearest)].tolist()]
    discovery, notes = _grouped(model, features, rows, new, np.array(classes), groups, seed) if len(new) else (None, [])
    if model.fitted_.metric != "network":
        log(_PLAINER)
        notes.append(_PLAINER)
    table, shown = _shown_groups(model, features, names, classes, new, discovery)
    record = DiscoverRecord(
        name=table_name(source) if isinstance(source, Path) else "table",
        model=folder.name,
        rows=len(frame),
        new=len(new),
        error=error,
        calibrating=calibrating,
        score=float("nan") if discovery is None else discovery.score,
        groups=shown,
        names="the table of names" if out is None else out.name,
        vectors=rows.vectors.numpy()[new],
        labels=[] if discovery is None else [str(group + 1) for group in discovery.labels.tolist()],
        notes=notes,
        versions=made_with(),
    )
    if out is None or not len(new):
        return Discovered(table, record, None, None)
    write_table(table, out)
    return Discovered(table, record, write_discover_page(record, out.with_suffix(".html")), out)


def check_no_names(out: Path | None) -> None:
    """Raise ValueError if somebody has written names into ``out``, which would be lost."""
    if out is None or not out.is_file():
        return
    before = read_table(out)
    if "label" not in before.columns or not missing_cells(before["label"]).all():
        raise ValueError(
            f"out: expected a file that is not there, or whose column label is empty, got {short_text(out, 200)}, in "
            "which somebody wrote; give another name"
        )


def _check_model(model: BankedEstimator) -> None:
    """Raise ValueError for a model without neighbors, or with labels other than one class per row."""
    kind = getattr(model, "labels_", "classes")
    if not hasattr(model, "classes_") or model.multilabel_ or kind != "classes":
        raise ValueError(
            "model: expected one of one class a row, got one of numbers or of several classes; "
            "fit or learn with a column that holds one class a row"
        )
    model.check_neighbor_head("model")


def p_values(model: BankedEstimator, queries: Tensor, identity: Mapping[str, Any]) -> tuple[Array, int]:
    """Conformal p-values ``[n]`` that embedded rows are of a known class, and the number of calibrating rows."""
    bank, rows = model.bank_, model.calibration_
    if model.folds_ is None:
        if not len(rows):
            raise ValueError(
                "model: expected one that held rows out, to calibrate on, got one without; fit again with some held out"
            )
        scores = _strangeness(model, queries, identity)
        chances, count = _beside(model, rows, torch.arange(len(rows)), scores)
        if hasattr(model, "labels_"):  # whole classes were held out: those that were trained on count, too
            trained = torch.from_numpy(np.flatnonzero(~rows.has(bank.ids)))
            chances = np.maximum(chances, _beside(model, bank, trained, scores)[0])
        return chances, count
    members, at = model.fitted_.fold_members(), model.fitted_.fold_positions(MOST)
    folds: Tensor = torch.zeros(0) if bank.folds is None else bank.folds
    above = np.zeros(len(queries))
    for fold in range(members.folds):
        others = members.columns(fold, bank.vectors[folds != fold]).double()
        left_out = bank.vectors[at[folds[at] == fold]].double()
        usual, scores = (_strangeness_in(model, members.columns(fold, each), others) for each in (left_out, queries))
        # ranks are added up over folds, not p-values: cross-conformal, for which twice the error is guaranteed
        above += len(usual) - np.searchsorted(np.sort(usual), scores)
    return (1 + above) / (len(at) + 1), len(at)


def _beside(model: BankedEstimator, bank: Bank, positions: Tensor, scores: Array) -> tuple[Array, int]:
    """p-values ``[n]`` of ``scores [n]`` against known rows, each scored without itself, and the number of these."""
    at = positions[spread(len(positions), MOST)]
    known = bank.who(at) if model.bank_.grouped else bank.who(at) | {"groups": None}
    usual = _strangeness(model, bank.store.vectors_at(at).double(), known)
    return (1 + len(usual) - np.searchsorted(np.sort(usual), scores)) / (len(usual) + 1), len(usual)


def _strangeness(model: BankedEstimator, queries: Tensor, identity: Mapping[str, Any]) -> Array:
    k = min(NEAREST, len(model.bank_) - 1)
    return np.asarray(nearest_rows(model, queries, k, dict(identity))[0].mean(axis=1))


@torch.no_grad()
def _strangeness_in(model: BankedEstimator, queries: Tensor, others: Tensor) -> Array:
    """Strangeness among the rows and columns that the members of a fold know."""
    similarity, k = model.fitted_similarity(), min(NEAREST, len(others))
    blocks = [similarity(part, others).topk(k).values.mean(1) for part, _ in model.fitted_.query_blocks(queries, {})]
    return -torch.cat(blocks).numpy() if blocks else np.zeros(0)


def _grouped(
    model: BankedEstimator,
    features: pd.DataFrame,
    rows: EmbeddedRows,
    new: Array,
    classes: Array,
    groups: int | None,
    seed: int,
) -> tuple[Discovery, list[str]]:
    """Groups of the rows at ``new``, and a note on their vectors."""
    bank, fitting = model.bank_, np.setdiff1d(np.arange(len(features)), new)
    some = spread(len(bank), _KNOWN)
    if set(model.kinds_.values()) <= set(CELLS):
        known, note = _known_rows(model)
        some, names = spread(len(known), _KNOWN), [str(name) for name in model.feature_names_in_]
        vectors = _encoded(model, pd.concat([features.iloc[new], known.store.rows_at(some)[names]], ignore_index=True))
        labels, note = known.labels[some].long(), f"the encoders' vectors, together with rows of the bank{note}"
    elif _enough(classes[fitting]):
        fitting = fitting[spread(len(fitting), _KNOWN).numpy()]
        vectors = _encoded(model, features.iloc[np.concatenate([new, fitting])])
        labels = torch.from_numpy(np.unique(classes[fitting], return_inverse=True)[1])
        note = "the encoders' vectors, together with rows of this table that fit a known class"
    else:
        vectors, labels = torch.cat([rows.vectors[new], bank.store.vectors_at(some)]), bank.labels[some].long()
        note = "the vectors of the model, as too few rows of this table fit known classes"
    discovery = discover_groups(
        vectors[: len(new)],
        vectors[len(new) :],
        labels,
        groups=groups,
        generator=torch.Generator().manual_seed(seed),
    )
    return discovery, [f"Rows are grouped by {note}."]


def _known_rows(model: BankedEstimator) -> tuple[Bank, str]:
    """Rows of known classes whose labels no encoder was trained on, if there are enough, and a note on them."""
    if model.table_encoder.frozen:
        return model.bank_, ""
    if _enough(model.calibration_.labels.numpy()):
        return model.calibration_, " that were held out, as an encoder has learned the labels of the others"
    return model.bank_, " whose labels an encoder has learned, so that hidden classes are found too well"


def _enough(classes: Array) -> bool:
    """Whether enough classes have enough rows for some to be hidden."""
    return sum(count >= _FEWEST_ROWS for count in Counter(classes.tolist()).values()) >= _FEWEST_CLASSES


def _encoded(model: BankedEstimator, frame: pd.DataFrame) -> Tensor:
    """Vectors of the encoders, before any projector."""
    encoder, root = model.table_encoder, None if model.root is None else Path(model.root)
    return encoded(encoder, encoder.cache(encoder.prepare(frame, root)))


def _shown_groups(
    model: BankedEstimator,
    features: pd.DataFrame,
    names: list[Any],
    classes: list[str],
    new: Array,
    discovery: Discovery | None,
) -> tuple[pd.DataFrame, list[FoundGroup]]:
    """The table of names, and the groups for the page."""
    if discovery is None:
        return pd.DataFrame({name: [] for name in COLUMNS}), []
    labels, typicality = discovery.labels.numpy(), discovery.typicality.numpy()
    lines, shown = [], []
    root = None if model.root is None else Path(model.root)
    texts = [name for name, kind in model.kinds_.items() if kind == "text"]
    for group in range(int(labels.max()) + 1):
        at = np.flatnonzero(labels == group)
        order = at[np.argsort(-typicality[at], kind="stable")]
        lines += [(names[new[row]], group + 1, round(float(typicality[row]), 4), "") for row in order]
        name, count = Counter(classes[row] for row in new[at]).most_common(1)[0]
        typical = [(str(names[row]), _shown(model, features, row, root)) for row in new[order[:_TYPICAL]]]
        words = [word for column in texts for word in typical_words(features[column], new[at])]
        shown.append(FoundGroup(str(group + 1), len(at), (name, count / len(at)), words[:_WORDS], typical))
    return pd.DataFrame(lines, columns=list(COLUMNS)), shown


def _shown(model: BankedEstimator, features: pd.DataFrame, row: int, root: Path | None) -> dict[str, str | bytes]:
    """The cells of a row for the page, with sounds as bytes."""
    cells = {str(name): cell for name, cell in features.iloc[row].items()}
    shown = shown_cells(cells, model.kinds_, root)
    for name, kind in model.kinds_.items():
        if kind == "audio":
            try:
                shown[name] = read_cell(cells[name], column=name, row=row, what="a sound", root=root)
            except ValueError:  # its name is shown
                continue
    return shown


def typical_words(texts: "pd.Series[Any]", rows: Array) -> list[str]:
    """Words more frequent in the texts at ``rows`` than in the others, by the difference of the shares of texts.

    >>> typical_words(pd.Series(["the sea", "a sea", "the car", "a road"]), np.array([0, 1]))
    ['sea']
    """
    inside = np.zeros(len(texts), dtype=bool)
    inside[rows] = True
    counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for text, there in zip(texts.tolist(), inside.tolist(), strict=True):
        counts[there].update(set(re.findall(r"\w\w+", text.lower())) if isinstance(text, str) else ())
    outside, size = max(1, int((~inside).sum())), max(1, int(inside.sum()))
    gains = {word: count / size - counts[False][word] / outside for word, count in counts[True].items() if count > 1}
    return [word for word in sorted(gains, key=lambda word: (-gains[word], word)) if gains[word] > 0][:_WORDS]
