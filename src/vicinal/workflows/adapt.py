"""``vicinal adapt``: a fitted model for rows of another population, with or without their labels."""

from collections.abc import Callable
from pathlib import Path
from typing import Unpack

import numpy as np
import pandas as pd

from vicinal.core import files
from vicinal.estimators.model_folder import ModelFolder
from vicinal.estimators.saving import OpenSettings, save_model
from vicinal.estimators.shift import Shift
from vicinal.workflows.known_rows import known_rows, labelled_rows
from vicinal.workflows.predict import features_of, load_predictor, read_rows


def adapt_table(
    folder: Path,
    source: Path | pd.DataFrame | None,
    out: Path | None = None,
    *,
    labels: bool = False,
    root: Path | None = None,
    who: str | None = None,
    log: Callable[[str], None] = lambda line: None,
    **opening: Unpack[OpenSettings],
) -> Shift:
    """Test whether rows have shifted from those of the fit, and adapt the model to them if they have.

    Args:
        folder: of the model.
        source: file of the new rows, or the table itself; None: take an earlier adaptation back.
        out: folder of the adapted model; None: only report. ``folder`` itself: one line in its journal, which a server
            of that folder takes over, and which can be taken back. Without a shift nothing is written into another
            folder.
        labels: the rows have the column that the model predicts; those that the model knows are left out.
        root: folder that paths of images and sounds start from; None: that of the file.
        who: name for the journal; None: the user.
        log: gets the columns that are passed over.
        opening: how the model is opened, see :class:`vicinal.estimators.saving.OpenSettings`.

    Returns:
        what has shifted, and what was done; see :meth:`NeighborRegressor.adapt`.

    Raises:
        ValueError: for missing columns, fewer than 30 rows, or rows that are like fewer than 20 rows of the fit;
            nothing is written then.
    """
    model = load_predictor(folder, **opening)
    features, truth = None, None
    if source is not None and labels:
        table, parts = known_rows(model, labelled_rows(model, source, log, root))
        table, count = table.select(np.flatnonzero([part == "new" for part in parts])), len(table)
        if len(table) < count:
            log(f"left out {count - len(table)} of {count} rows, which the model knows, by their ids or their cells")
        features, truth = table.frame, table.target
    elif source is not None:
        features = features_of(model, read_rows(model, source, root, log), log)
    if out is not None and files.resolved(out) == files.resolved(folder):
        return ModelFolder(folder, who=who, **opening).adapt(features, truth)
    shift = model.adapt(features, truth)
    if out is not None and (shift.kind != "none" or source is None):
        save_model(model, out)
    return shift
