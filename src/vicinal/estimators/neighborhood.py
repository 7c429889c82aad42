"""What can be done with a fitted bank: neighbors, explanations, adding and forgetting rows."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted

from vicinal.core import check_integer
from vicinal.core.identity import canonical_ids, shown
from vicinal.estimators.bank import Ids, check_known
from vicinal.estimators.base import NeighborEstimator
from vicinal.estimators.explain import Explanation, explain_rows
from vicinal.estimators.looking import attended, nearest_rows
from vicinal.similarity import resolve_similarity


class BankedEstimator(NeighborEstimator):
    """The part of the neighbor estimators that reads and changes the bank."""

    def save(self, folder: str | Path) -> None:
        """Write the fitted estimator as a folder, whole or not at all: see :func:`vicinal.estimators.save_model`."""
        from vicinal.estimators.saving import save_model

        save_model(self, folder)

    @classmethod
    def load(cls, folder: str | Path, *, index: str | None = None, encoders: Mapping[str, str] | None = None) -> Self:
        """The estimator saved in ``folder``: see :func:`vicinal.estimators.load_model`, also for the arguments.

        Raises:
            ValueError: if the folder is not whole, is newer, or holds another kind of estimator.
        """
        from vicinal.estimators.saving import load_model

        model = load_model(folder, index=index, encoders=encoders)
        if not isinstance(model, cls):
            raise ValueError(f"model: expected a {cls.__name__} in {folder}, got a {type(model).__name__}")
        return model

    def kneighbors(
        self,
        X: Any = None,
        n_neighbors: int | None = None,
        return_distance: bool = True,  # noqa: FBT001, FBT002
        *,
        ids: Any = None,
        groups: Any = None,
    ) -> Any:
        """The nearest bank rows of each row, as scikit-learn's neighbors estimators give them.

        Args:
            X: rows; None: the bank's own rows, none of which is its own neighbor.
            n_neighbors: how many; None: the parameter of that name.
            return_distance: give distances too.
            ids: ids of the rows of X; a row gets no bank row of its own id.
            groups: groups of the rows, nor one of its group. With neither, whatever is near is given.

        Returns:
            distances ``[n, k]`` (negated scores, ascending) and ids ``[n, k]``; only ids without ``return_distance``.
            With default ids these are positions in the X of ``fit``.

        Raises:
            ValueError: if a row has fewer than ``n_neighbors`` bank rows of other ids and groups.
        """
        check_is_fitted(self, "bank_")
        k = check_integer("n_neighbors", self.n_neighbors if n_neighbors is None else n_neighbors)
        if X is None:
            if ids is not None:
                raise ValueError("ids: expected none without X, as the rows are those of the bank, got some")
            queries, ids = self.bank_.vectors.double(), self.bank_.ids
        else:
            queries = self._embed(X)[1]
        if k > len(self.bank_):
            raise ValueError(f"n_neighbors: expected at most {len(self.bank_)}, the rows of the bank, got {k}")
        asked = self._identity_of(len(queries), ids, groups)
        distances, positions = nearest_rows(self, queries, k, asked)
        found = self.bank_.ids[positions]
        return (distances, found) if return_distance else found

    def _similarity(self) -> torch.nn.Module:
        return resolve_similarity(getattr(self.network_.head, "similarity", self.similarity))

    def explain(self, X: Any, k: int = 5, *, ids: Any = None, groups: Any = None) -> list[Explanation]:
        """Which bank rows made each prediction.

        Args:
            X: rows.
            k: bank rows to list for each; all others are summed in one line.
            ids: ids of the rows; a row is never explained by the bank row of its own id.
            groups: groups of the rows, nor by its group.

        Returns:
            one :class:`Explanation` a row: weights sum to 1, contributions to the prediction (for classes: to the
            probability of the predicted class).
        """
        _, queries = self._embed(X)
        self._check_neighbor_head("explain")
        k = check_integer("k", k)
        asked = self._asked(len(queries), ids, groups)
        classes = getattr(self, "classes_", None)
        text = next((name for name, kind in self.kinds_.items() if kind == "text"), None)
        found: list[Explanation] = []
        for part in attended(self, queries, asked, k):
            found += explain_rows(part, self.bank_, classes, text)
        return found

    # Adding and forgetting rows.

    def add(self, X: Any, y: Any, *, ids: Any = None, groups: Any = None) -> Self:
        """Put labelled rows into the bank; nothing is trained.

        Args:
            X: rows.
            y: their labels; a class must be one the model was fitted with.
            ids: their ids, none of them known to the model; one that was held out has to be forgotten first. None:
                whole numbers above the highest in use.
            groups: their groups, if and only if the model was fitted with groups.

        Returns:
            self.
        """
        frame, vectors = self._embed(X, torch.float32)
        labels = self._known_labels(y, len(frame))
        if ids is None:
            used = np.concatenate([self.bank_.ids, self.calibration_.ids])
            if used.dtype != np.int64:
                raise ValueError("ids: expected one for each row, as the model was fitted with ids, got none")
            ids = range(int(used.max()) + 1, int(used.max()) + 1 + len(frame))
        new_ids = canonical_ids("ids", ids, len(frame), distinct=True)
        new_groups = None if groups is None else canonical_ids("groups", groups, len(frame))
        held_out = new_ids[self.calibration_.has(new_ids)]
        if len(held_out):
            raise ValueError(
                f"ids: expected ids of new rows, got {shown(held_out)}, held out for intervals, which would be wrong "
                "if the row were in the bank too; forget it first, or give it another id"
            )
        near = self._near()
        keys = self.bank_.add(new_ids, vectors, torch.from_numpy(labels.astype(np.float64)), frame, new_groups)
        if near is not None:
            try:
                near.add(keys, vectors)
            except BaseException:
                self.bank_.remove(new_ids)
                raise
        return self

    def _known_labels(self, y: Any, rows: int) -> Ids:
        return self._take_labels(y, rows)

    def forget(self, ids: Iterable[Any]) -> Self:
        """Remove rows: later predictions and intervals are those of a bank that never had them.

        The trained encoder has still seen them; to undo that, fit again without them.

        Args:
            ids: ids of bank rows, or of rows that were held out for early stopping and calibration.

        Raises:
            ValueError: for an id that no row has, or if no bank row would be left.
        """
        check_is_fitted(self, "bank_")
        gone = np.asarray(pd.unique(canonical_ids("ids", ids)))
        check_known(self.bank_, self.calibration_, gone)
        if self.bank_.has(gone).sum() == len(self.bank_):
            raise ValueError("ids: expected to leave at least one row in the bank, got all of them")
        near = self._near()
        keys = self.bank_.remove(gone)
        self.calibration_.remove(gone)
        if near is not None:
            near.remove(keys)
        return self
