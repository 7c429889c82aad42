"""What neighbor estimators do with the bank of a fit: search it, explain by it, change it, save and load it."""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

import numpy as np
import pandas as pd
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from vicinal.core import check_choice, listed, short
from vicinal.core.checks import check_integer
from vicinal.core.folders import kind_of
from vicinal.core.identity import canonical_ids
from vicinal.core.seeding import seeded, usual_settings
from vicinal.encoders.kinds import is_gap
from vicinal.estimators.adaptation import Adaptation
from vicinal.estimators.attention import attended, explain_rows, nearest_rows
from vicinal.estimators.bank import Bank, check_known
from vicinal.estimators.bank_changes import (
    check_predicts,
    labels_of,
    removed,
    weights_for,
    with_labels,
    with_rows,
    without_rows,
)
from vicinal.estimators.calibrating import SHIFTED, calibrates, check_calibrates
from vicinal.estimators.elements import with_elements
from vicinal.estimators.explanation import Explanation, Explanations
from vicinal.estimators.fitting import GONE, FitJob, fit_network, with_index
from vicinal.estimators.importance import importance_of
from vicinal.estimators.inputs import FEWEST_ROWS, Draw, HeldOut, Ids, LabelledRows, hold_out, with_weight
from vicinal.estimators.journal import Change, added_rows
from vicinal.estimators.label_codec import label_frame
from vicinal.estimators.presets import settings_of
from vicinal.estimators.refined_search import Refinement, refined_search
from vicinal.estimators.saving import OpenSettings, facts_of, read_model, save_model
from vicinal.estimators.search import SearchHits, query_table
from vicinal.estimators.shift import Shift, shift_of, shift_of_labelled
from vicinal.estimators.trials import leaderboard
from vicinal.estimators.tuning import TunedEstimator

if TYPE_CHECKING:
    from vicinal.report.summary import Summary

CELLS = ("number", "category", "text")
"""Kinds of columns of which a bank has the cells themselves, and not what is shown of them."""


class BankedEstimator(TransformerMixin, ClassNamePrefixFeaturesOutMixin, TunedEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The part of the neighbor estimators that reads and changes the bank.

    A subclass that names a ``task`` is what :func:`load_model` makes of a folder of that task.
    """

    by_task: ClassVar[dict[str, type["BankedEstimator"]]] = {}

    def __init_subclass__(cls, *, task: str = "", **further: Any) -> None:
        """Enter the class under its task."""
        super().__init_subclass__(**further)
        if task:
            cls.by_task[task] = cls

    def save(self, folder: str | Path) -> None:
        """Write the fitted estimator as a folder, whole or not at all: see :func:`vicinal.estimators.save_model`."""
        save_model(self, folder)

    @classmethod
    def load(cls, folder: str | Path, **opening: Unpack[OpenSettings]) -> Self:
        """The estimator saved in ``folder``: see :func:`vicinal.estimators.load_model`, also for the arguments.

        Raises:
            ValueError: if the folder is not whole, is newer, or holds another kind of estimator.
        """
        model = load_model(folder, **opening)
        if not isinstance(model, cls):
            raise ValueError(f"model: expected a {cls.__name__} in {folder}, got a {type(model).__name__}")
        return model

    @usual_settings()
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
        k = check_integer("n_neighbors", self.n_neighbors if n_neighbors is None else n_neighbors)
        if X is None:
            if ids is not None:
                raise ValueError("ids: expected none without X, as the rows are those of the bank, got some")
            queries, ids = self.bank_.vectors.double(), self.bank_.ids
        else:
            queries = self._embedded(X).vectors
        if k > len(self.bank_):
            raise ValueError(f"n_neighbors: expected at most {len(self.bank_)}, the rows of the bank, got {k}")
        query_identity = self.identity_of(len(queries), ids, groups)
        distances, positions = nearest_rows(self, queries, k, query_identity)
        nearest_ids = self.bank_.ids[positions]
        return (distances, nearest_ids) if return_distance else nearest_ids

    @usual_settings()
    def out_of_fold_predictions(self) -> tuple[Ids, Ids]:
        """What the model says of the rows that it was fitted on, each by the members that never saw it.

        Members are folds then (see ``validation_fraction``): a row is predicted by those that leave out its fold, from
        the rows of other folds, by the readout, scale and noise that the other folds choose. So the error of these
        predictions is honest, as on new rows, though of fewer members than a prediction has: see
        :meth:`NeighborRegressor.out_of_fold_error`.

        Returns:
            ids ``[n]`` of the rows of the bank that were fitted on, and predictions: numbers ``[n]``, or
            probabilities of classes ``[n, K]``.

        Raises:
            ValueError: if rows were held out in place of folds.
        """
        model = self.fitted_
        model.fold_members()
        positions = model.fold_positions()
        predictions = model.in_label_units(model.out_of_fold(positions)).double()
        return self.bank_.ids[positions.numpy()], predictions.numpy()

    def calibrates(self, coverage: float) -> bool:
        """Whether enough rows calibrate for intervals or sets of this coverage, or enough groups where there are some.

        These are the rows that folds leave out, or those that were held out; for ``metric="kernel"`` with groups all
        rows, each predicted from other groups.
        """
        return calibrates(self.fitted_, coverage)

    @usual_settings()
    def explain(
        self, X: Any, k: int = 5, *, ids: Any = None, groups: Any = None, elements: bool = False
    ) -> Explanations:
        """Which bank rows made each prediction.

        Args:
            X: rows.
            k: bank rows to list for each, of those that have weight; all others are summed in one line.
            ids: ids of the rows; a row is never explained by the bank row of its own id.
            groups: groups of the rows, nor by its group.
            elements: also say what each element of a row's sets adds, by leaving it out: each row is embedded once more
                for each of its elements (vectors of frozen encoders are known).

        Returns:
            one :class:`Explanation` a row, in a list that a notebook shows as tables and that ``to_frame()`` makes a
            table of: weights sum to 1, contributions to the prediction (for classes: to the probability of the
            predicted class). Of comparables the trend has its part in both.

        Raises:
            ValueError: for several targets; say ``of_target(name).explain(...)``.
        """
        targets = self.fitted_.codec.targets
        if targets is not None:
            raise ValueError(
                f"explain: expected one target, got a model of {len(targets)} ({listed(targets)}); say "
                f"of_target({targets[0]!r}).explain"
            )
        (queries, query_identity, rows), model = self._queries(X, ids, groups), self.fitted_
        self.check_neighbor_head("explain")
        k, frame = check_integer("k", k), rows.frame
        text = next((name for name, kind in self.kinds_.items() if kind == "text"), None)
        explanations: list[Explanation] = []
        for part in attended(model, queries, query_identity, k):
            explanations += explain_rows(part, model, text, self.form_)
        shown = self.form_.written(frame[[name for name in self.kinds_ if name in frame]])
        cells: list[dict[str, Any]] = shown.to_dict("records")  # type: ignore[assignment]
        explanations = [replace(one, query=row) for one, row in zip(explanations, cells, strict=True)]
        return Explanations(with_elements(self, frame, explanations, query_identity) if elements else explanations)

    @usual_settings()
    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        ids: Any = None,
        groups: Any = None,
        words: bool = False,
        rerank: Any = None,
        calls: int = 50,
        precision: float | None = None,
    ) -> SearchHits:
        """The bank rows that are most like each query, best first.

        Args:
            queries: a text or a list of texts, looked for in the first column of texts that the model reads; or rows,
                which may lack columns of texts, numbers and categories.
            k: how many for each.
            ids: ids of the queries; a query does not get the row of its own id.
            groups: groups of the queries, nor one of its group.
            words: also find rows by the words and letters of their texts; scores are then sums of reciprocal ranks.
            rerank: a model of grades, fitted with queries, that orders the first ``calls`` candidates; its grades are
                the scores. It may read columns of the rows, ``query`` (the text that is looked for) and ``score``.
            calls: candidates of each query that ``rerank`` reads.
            precision: show only hits that are right, of the query's class, at least this share of them with 95 %
                confidence, for queries like the rows held out (see :func:`vicinal.calibration.precision_threshold`).
                A query may have no hits then.

        Raises:
            ValueError: for an empty text, queries without any column that the model reads, a ranker of other columns,
                or a promise beyond the rows held out, saying how many more would do.
        """
        check_is_fitted(self, "bank_")
        rows = self._embedded(query_table(self, queries)[0])
        frame, vectors = rows.frame, rows.vectors
        by = Refinement(words, rerank, calls, precision)
        who = self.identity_of(len(vectors), ids, groups)
        hits = SearchHits(refined_search(self, frame, vectors, check_integer("k", k), who, by))
        hits.queries = [
            {str(name): cell for name, cell in row.items() if not is_gap(cell)} for row in frame.to_dict("records")
        ]
        return hits

    def transform(self, X: Any) -> np.ndarray[Any, Any]:
        """Embeddings of rows ``[n, d]``, float64: what the fit learned, as features for another estimator.

        Of an :class:`EmbeddingLearner` they have length 1. ``set_output(transform="pandas")`` makes a table of them.

        >>> from vicinal.estimators import NeighborClassifier
        >>> x = np.random.default_rng(0).normal(size=(40, 2))
        >>> model = NeighborClassifier(metric="kernel").fit(x, x[:, 0] > 0)
        >>> model.transform(x[:3]).shape, model.get_feature_names_out().tolist()
        ((3, 2), ['neighborclassifier0', 'neighborclassifier1'])
        """
        return self.embed(X)

    @property
    def _n_features_out(self) -> int:
        """The width of what :meth:`transform` gives."""
        return int(self.bank_.vectors.shape[1])

    def importance(self) -> dict[str, float]:
        """How much each column matters to the model as a whole: shares that sum to 1, the largest first.

        Of trees and of a kernel with a trend it is what a column adds to the trend, without its sign, on average over
        the rows of the bank; of any other kernel the mean squared distance between two rows that the column makes. It
        says what the model uses, not what causes the target; see
        :func:`vicinal.estimators.importance.importance_of`.

        Raises:
            ValueError: of a network, which knows no columns.
        """
        return importance_of(self.fitted_)

    def summary(self) -> "Summary":
        """What was fitted, on what, with which settings, and how well it predicts: lines by name.

        Errors are those of :meth:`leaderboard`, beside that of a constant prediction; settings are what was
        fitted and what differs from the defaults. ``vicinal show`` prints the same of a folder.

        >>> x = np.linspace(0, 6, 60)[:, None]
        >>> from vicinal.estimators import NeighborRegressor
        >>> summary = NeighborRegressor(metric="kernel").fit(x, np.sin(x[:, 0])).summary()
        >>> summary["rows"], summary["settings"][:13]
        ('60 bank, 9 held out', 'metric kernel')
        """
        from vicinal.report.summary import summary

        return summary(facts_of(self))

    def leaderboard(self) -> pd.DataFrame:
        """What the fit has tried: a line each, the chosen one first, the others by their error.

        Columns are those of :class:`vicinal.estimators.trials.Trial` and ``chosen``. Trees and kernels are compared by
        ``out_of_fold``, networks with these by ``held_out``, where a network must have 5 % less squared error. Empty
        for a learner, and for a folder from before it was saved.

        >>> x = np.linspace(0, 6, 60)[:, None]
        >>> from vicinal.estimators import NeighborRegressor
        >>> NeighborRegressor(metric="kernel").fit(x, np.sin(x[:, 0])).leaderboard()["metric"].tolist()
        ['kernel']
        """
        return leaderboard(self.fitted_.trials)

    def _html_repr(self) -> str:
        """What a notebook shows: of a fitted model its summary and what was tried, else scikit-learn's diagram."""
        if not hasattr(self, "fitted_"):
            return str(super()._html_repr())
        from vicinal.report.notebook import plain_table
        from vicinal.report.theme import notebook_html

        tried, parts = self.leaderboard(), []
        if len(tried) > 1:
            tried = tried.assign(chosen=tried["chosen"].map({True: "yes", False: ""})).dropna(axis=1, how="all")
            parts = [plain_table([str(name).replace("_", " ") for name in tried], tried.to_numpy().tolist(), "Tried")]
        return notebook_html(self.summary().part(type(self).__name__), *parts)

    # Rows of another population.

    def adapt(self, X: Any, y: Any = None) -> Shift:
        """Adapt the model to new rows, if they differ from those of the fit; nothing is trained.

        Without labels, first every column, and what the model says of the rows, is tested for a shift, all tests
        together at 1 %. Without one the model is as it was fitted. With one, rows that calibrate are weighted so that
        intervals and sets hold for the new rows:

        - of classes that have become more or less frequent, by these frequencies, which then also multiply the
          probabilities (the bank's rows count as much more or less; Saerens, Latinne and Decaestecker 2002). They are
          estimated from the predictions. This is chosen where it explains at least half of how the
          columns differ, and lowers the log-loss of the weighted calibrating rows;
        - else by the density ratio of what the model says of a row: its prediction (and the width of its range where
          rows were held out), or the probabilities. Predictions stay: labels are taken to depend on the columns as
          before.

        With labels (numbers), it is tested whether 90 % intervals cover 90 % of the rows. If not, intervals are made as
        much wider or narrower as these rows need: for the rows that come next, give the newest ones. Predictions stay;
        :meth:`add` the rows to change them, too.

        Each call starts from the fit, and replaces an earlier adaptation. It is saved with the model.

        Args:
            X: at least 30 new rows; None takes an adaptation back.
            y: their labels, if they have some.

        Returns:
            a :class:`vicinal.estimators.shift.Shift`: what differs, and what was done. ``lines()`` says it.

        Raises:
            ValueError: for too few rows, rows that are like fewer than 20 of the calibrating rows, a model of several
                targets or of several classes a row, or one whose members are folds; for labels of classes, and labels
                for a model that was fitted with groups.

        >>> from vicinal.estimators import NeighborRegressor
        >>> x = np.linspace(0, 6, 200)[:, None]
        >>> model = NeighborRegressor(metric="kernel").fit(x, np.sin(x[:, 0]) + x[:, 0] * np.cos(40 * x[:, 0]) / 9)
        >>> model.adapt(x[::4]).kind, model.adapt(x[100:]).kind
        ('none', 'columns')
        """
        shift, adaptation = self.shift_of(X, y)
        if adaptation != self.fitted_.adaptation:
            self.fitted_ = replace(self.fitted_, adaptation=adaptation)
        return shift

    @usual_settings()
    @torch.no_grad()
    def shift_of(self, X: Any, y: Any = None) -> tuple[Shift, Adaptation | None]:
        """How rows have shifted, and the adaptation to them, which is not made: see :meth:`adapt`."""
        if X is None:
            return Shift(0, "none"), None
        for wrong, reason in (
            (not hasattr(self, "predict"), "a model of similarity, which predicts nothing"),
            (getattr(self, "targets_", None) is not None, "several targets; fit one model for each"),
            (getattr(self, "multilabel_", False), "several classes a row; fit a model for each class"),
            (self.folds_ is not None, "members that are folds; fit with validation_fraction=0.15"),
        ):
            if wrong:
                raise ValueError(
                    f"adapt: expected a model of one number or class a row, with rows held out, got {reason}"
                )
        if y is not None and (self.fitted_.codec.kind != "numbers" or self.bank_.grouped):
            got = "groups" if self.fitted_.codec.kind == "numbers" else "classes"
            raise ValueError(f"y: expected none for a model of {got}, got labels; adapt without them, or add the rows")
        plain: Any = copy.copy(self)
        plain.fitted_ = replace(self.fitted_, adaptation=None)
        rows = plain.query_rows(X, look=y is not None)
        if y is None:
            return shift_of(plain.fitted_, rows.frame, rows.vectors, self.kinds_)
        check_calibrates(plain.fitted_, SHIFTED)
        labels = plain.fitted_.codec.take(y, len(rows.vectors))
        return shift_of_labelled(labels, plain.predict(rows), plain.predict_interval(rows, SHIFTED))

    # Adding and forgetting rows.

    def add(
        self,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        ids: Any = None,
        groups: Any = None,
        new_classes: bool = False,
    ) -> Self:
        """Put labelled rows into the bank; nothing is trained.

        Args:
            X: rows.
            y: their labels; a class must be one the model was fitted with, unless classes may be new.
            sample_weight: ``[n]``, >= 0, as in :meth:`NeighborRegressor.fit` and in its units; a row of weight 0 is
                left out. None: each counts as a row of the fit does on average. "auto": what predicts them best, for
                rows of another kind than those of the fit: see :meth:`weights_for`.
            ids: their ids, none of them known to the model; one that was held out has to be forgotten first. None:
                whole numbers above the highest in use.
            groups: their groups, if and only if the model was fitted with groups.
            new_classes: take classes that the model does not know yet, behind those in ``classes_``; of one class a
                row, predicted from neighbors. :class:`EmbeddingLearner` always takes them.

        Returns:
            self.
        """
        frame, vectors = self.embedded_rows(X)
        before, known = self.fitted_, {"ids": ids, "groups": groups, "new_classes": new_classes}
        names = self.add_embedded(frame, vectors, y, sample_weight=sample_weight, **known)
        try:
            check_predicts(self.fitted_, names)
        except BaseException:
            removed(before, names)
            self.fitted_ = before
            raise
        return self

    @usual_settings()
    def embedded_rows(self, X: Any) -> tuple[pd.DataFrame, Tensor]:
        """Rows as a table, and their embeddings ``[n, d]``, float32: what :meth:`add_embedded` takes."""
        rows = self._embedded(X, dtype=torch.float32, gone=GONE)
        return rows.frame, rows.vectors

    @usual_settings()
    def add_embedded(
        self,
        frame: pd.DataFrame,
        vectors: Tensor,
        y: Any,
        *,
        sample_weight: Any = None,
        ids: Any = None,
        groups: Any = None,
        new_classes: bool = False,
    ) -> Ids:
        """Put rows into the bank whose embeddings ``vectors [n, d]`` are known, and give their ids: see :meth:`add`."""
        if sample_weight is not None:
            if not hasattr(self, "predict"):
                raise ValueError("sample_weight: expected none for a model that predicts nothing, got weights")
            sample_weight, rows = self.weighted_rows(sample_weight, frame, vectors, y, ids, groups)
            frame, vectors, y, ids, groups = rows
        cells = frame, vectors, y, ids, groups, sample_weight
        self.fitted_, names = with_rows(self.fitted_, *cells, new_classes=new_classes)
        return names

    def weighted_rows(
        self, weights: Any, frame: pd.DataFrame, vectors: Tensor, y: Any, ids: Any, groups: Any
    ) -> tuple[Ids, list[Any]]:
        """Weights of rows that are to be added, "auto" as numbers, and the rows that have some."""
        if isinstance(weights, str):
            check_choice("sample_weight", weights, ("auto",))
            weights = self.weights_for(vectors, y, groups)
        return with_weight(weights, frame, vectors, y, ids, groups)

    @usual_settings()
    def weights_for(self, vectors: Tensor, y: Any, groups: Any = None) -> Ids:
        """How much rows should count that are to be added ``[n]``: :func:`.bank_changes.weights_for`."""
        self.check_neighbor_head("sample_weight")
        return weights_for(self.fitted_, vectors, y, groups)

    def relabel(self, ids: Iterable[Any], y: Any) -> Self:
        """Give rows that are there other labels; nothing is trained, and intervals follow. All of them or none.

        Args:
            ids: of bank rows, or of rows that were held out for early stopping and calibration, each once.
            y: their new labels; a class must be one the model was fitted with.

        Returns:
            self.

        Raises:
            ValueError: for an id that no row has, a label that the model cannot have, or one with which no row can be
                predicted.
        """
        names = canonical_ids("ids", ids, distinct=True)
        before, former = self.fitted_, labels_of(self.fitted_, names)
        after = with_labels(before, names, y)
        try:
            check_predicts(after, names)
        except BaseException:
            with_labels(before, names, former)
            raise
        self.fitted_ = after
        return self

    def labels_of(self, ids: Iterable[Any]) -> list[Any]:
        """The labels of rows, as users give them: numbers, classes, or a list of classes for each row.

        Raises:
            ValueError: for an id that no row has.
        """
        return labels_of(self.fitted_, ids)

    def apply_change(self, change: Change) -> None:
        """Do what a record of the journal says, and remember that it is done.

        Raises:
            ValueError: if it is not the next one, or cannot be done.
        """
        if change.sequence != self.changes_.sequence + 1:
            raise ValueError(
                f"changes.jsonl: expected change {self.changes_.sequence + 1}, got {change.sequence}; a line is missing"
            )
        if change.what == "add":
            columns = [str(name) for name in self.bank_.store.columns or []]
            dated = [name for name, form in self.form_.columns.items() if form.kind in ("date", "duration")]
            numbers = [name for name, kind in self.kinds_.items() if kind == "number" and name not in dated]
            frame, vectors = added_rows(change, columns, numbers)
            frame = self.form_.of_columns(dated).read(frame)
            known = {"ids": change.ids, "groups": change.groups, "sample_weight": change.weights}
            self.add_embedded(frame, vectors, change.labels, **known, new_classes=change.new_classes)
        elif change.what == "relabel":
            names = canonical_ids("ids", change.ids, distinct=True)
            self.fitted_ = with_labels(self.fitted_, names, change.labels)
        elif change.what == "adapt":
            self.fitted_ = replace(self.fitted_, adaptation=change.adaptation)
        else:
            self.forget(change.ids)
        self.changes_ = self.changes_.with_change(change)

    def given_weights(self, bank: Bank | None = None) -> Ids | None:
        """Weights ``[N]`` of rows, of the bank's, in the units in which ``fit`` got them, or None if it got none."""
        bank = self.bank_ if bank is None else bank
        return bank.mass.numpy() * self.weight_unit_ if bank.weighted or self.weight_unit_ != 1 else None

    def train_on(self, added: Iterable[Any], epochs: int = 1) -> Self:
        """Train a few epochs more, from the weights that there are, on all rows of the bank with their labels of now.

        For added rows of another kind than those of the fit, whose differences the trained metric passes over: it
        costs seconds, and gains over half of what a fit anew does (see ``docs/results/predict.md``). Rows that were
        held out stay so; of the added ones a share of ``validation_fraction`` is held out with them, of whole groups.
        The epoch of least error on these is taken, and the readout is chosen by them as in a fit.

        Args:
            added: ids of rows of the bank that no training has seen.
            epochs: >= 1.

        Returns:
            self.

        Raises:
            ValueError: for a model without a network and rows held out, columns whose cells the bank has not, or ids
                that are not in the bank.
        """
        check_is_fitted(self, "bank_")
        self.check_trains_on(epochs)
        new = self.bank_.store.positions(canonical_ids("added", added)).numpy()
        if (new < 0).any():
            raise ValueError(f"added: expected ids of rows of the bank, got {int((new < 0).sum())} others")
        bank, seed = self.bank_, int(check_random_state(self.random_state).randint(2**31 - 1))
        weights = bank.mass.numpy() if bank.weighted else None
        held_out = self._held_out_with(np.sort(new), seed)
        rows = LabelledRows(bank.rows, bank.labels.clone(), bank.ids, bank.groups, held_out, weights)
        codec = self.fitted_.codec
        codec = replace(codec, transform=codec.transform.base).fitted(rows.labels[torch.from_numpy(held_out.train)])
        settings, encoder = settings_of(self), self.table_encoder.copied()
        with seeded(seed):
            trained = fit_network(FitJob(rows, codec, encoder, settings, seed), self.network_, epochs)
        facts = {"forecasts": self.fitted_.forecasts, "weight_unit": self.weight_unit_}
        self.fitted_ = with_index(trained, settings).with_facts(**facts)
        return self

    def check_trains_on(self, epochs: int) -> None:
        """Raise ValueError, which begins with ``epochs``, if the fitted model cannot be trained on: see there."""
        check_integer("epochs", epochs)
        lost = [f"a column of kind {kind}" for kind in self.kinds_.values() if kind not in CELLS]
        for reason in (
            "a model that predicts nothing" if not hasattr(self, "predict") else None,
            f"metric={self.metric_!r}, which has no epochs" if self.metric_ != "network" else None,
            "head='dense', which has no neighbors" if not self.network_.head.uses_bank else None,
            "members that are folds" if self.folds_ is not None else None,
            "fair, whose groups the bank may not have" if getattr(self, "fair", None) is not None else None,
            f"{lost[0]}, whose cells the bank has not" if lost else None,
        ):
            if reason is not None:
                raise ValueError(
                    "epochs: expected a trained network that held rows out, over columns of numbers, categories and "
                    f"texts, got {reason}; fit anew with all rows"
                )

    def _held_out_with(self, new: Ids, seed: int) -> HeldOut:
        """The rows that were held out, with a share of those at the positions ``new`` that no training has seen."""
        bank, everything = self.bank_, np.arange(len(self.bank_))
        validation = bank.store.positions(self.calibration_.ids).numpy()
        validation, groups = validation[validation >= 0], bank.clusters
        # the rows of a group are held out together, or not at all
        validation = np.union1d(validation, new[np.isin(groups[new], groups[validation])])
        new = new[~np.isin(groups[new], groups[np.setdiff1d(everything, new)])]
        if len(new) >= FEWEST_ROWS and len(set(groups[new].tolist())) > 1:
            draw = Draw(len(new), seed, groups[new] if bank.grouped else None)
            some = hold_out(draw, self.validation_fraction).validation
            validation = np.union1d(validation, new[some])
        return hold_out(Draw(len(everything), seed, validation=validation), 0)

    def _learn_on(
        self, x: Any, y: Any, ids: Any, groups: Any, weights: Any, *, refit: bool, epochs: int | None
    ) -> Self:
        """What ``partial_fit`` does: fit, then add, and train on or fit again on all rows if that is asked for."""
        if not hasattr(self, "bank_"):
            self.fit(x, y, ids=ids, groups=groups, sample_weight=weights)
            return self
        if refit:
            self._check_fits_again("refit")
        if epochs is not None:
            self.check_trains_on(epochs)
        before = len(self.bank_)
        self.add(x, y, ids=ids, groups=groups, sample_weight=weights)
        if epochs is not None and not refit:
            self.train_on(self.bank_.ids[before:], epochs)
        if refit:
            self._fit_again(self.bank_)
        return self

    def _check_fits_again(self, name: str) -> None:
        """Raise ValueError, which begins with ``name``, unless the bank has all that a fit takes."""
        fair = getattr(self, "fair", None)
        lost = [f"{short(one)} of kind {kind}" for one, kind in self.kinds_.items() if kind not in CELLS]
        lost += [f"{short(fair)}, between whose groups the model is fair"] if fair not in (None, *self.kinds_) else []
        if lost:
            raise ValueError(
                f"{name}: expected columns of numbers, categories and texts, of which the bank has the cells, got "
                f"{lost[0]}; call fit with all rows"
            )

    def _fit_again(self, bank: Bank, validation: Ids | None = None) -> None:
        """Fit on rows of a bank, whose columns are read as before."""
        labels = label_frame(self.fitted_.codec, bank.labels.numpy())
        known = {"ids": bank.ids, "groups": bank.groups, "validation": validation}
        known |= {"sample_weight": self.given_weights(bank)} if bank.weighted or self.weight_unit_ != 1 else {}
        forecasts, before = self.fitted_.forecasts, {"columns": self.columns, "form": self.form}
        named = hasattr(self, "feature_names_in_")
        try:
            if named:
                self.set_params(columns=dict(self.kinds_), form=self.form_)
            self.fit(bank.rows if named else bank.rows.to_numpy(np.float64), labels, **known)
        finally:
            self.set_params(**before)
        self.fitted_ = replace(self.fitted_, forecasts=forecasts)  # the bank has no times, of which they were made

    def forget(self, ids: Iterable[Any], *, deep: bool = False) -> Self:
        """Remove rows: later predictions and intervals are those of a bank that never had them.

        The trained encoder has still seen them, unless ``deep``. What the model holds of single rows beside the bank
        goes, too: see :mod:`vicinal.estimators.forgetting`.

        Args:
            ids: ids of bank rows, or of rows that were held out for early stopping and calibration.
            deep: fit again on the rows that are left, by the same settings and seed and with the same rows held out:
                the model is the one that :meth:`fit` makes of these rows, as if the others had never been there. For
                columns of numbers, categories and texts, whose cells the bank has. An adaptation is taken back.

        Raises:
            ValueError: for an id that no row has, if no bank row would be left, or if the rows that are left cannot be
                fitted; nothing is changed then.

        >>> from vicinal.estimators import NeighborRegressor
        >>> x, rest = np.linspace(0, 6, 60)[:, None], np.arange(60) != 7
        >>> model = NeighborRegressor(metric="kernel").fit(x, np.sin(x[:, 0]), validation=range(50, 60))
        >>> other = NeighborRegressor(metric="kernel").fit(x[rest], np.sin(x[rest, 0]), validation=range(49, 59))
        >>> bool(model.forget([7], deep=True).predict([[0.7]]) == other.predict([[0.7]]))
        True
        """
        gone = np.asarray(pd.unique(canonical_ids("ids", ids)))
        check_known(self.bank_, self.calibration_, gone)
        if self.bank_.has(gone).sum() == len(self.bank_):
            raise ValueError("ids: expected to leave at least one row in the bank, got all of them")
        if deep:
            self._check_fits_again("deep")
            at = self.bank_.store.positions(gone[self.bank_.has(gone)]).numpy()
            changes, left = self.changes_, self.bank_.take(np.delete(np.arange(len(self.bank_)), at))
            held_out = np.flatnonzero(self.calibration_.has(left.ids)) if len(self.calibration_) else np.zeros(0)
            self._fit_again(left, held_out if len(held_out) else None)
            self.changes_ = changes.without(gone.tolist())
            return self
        former = [label for name in gone for _, *both in self.changes_.relabels(name) for label in both]
        self.fitted_ = without_rows(self.fitted_, self.table_encoder, gone, former, self.form_)
        self.changes_ = self.changes_.without(gone.tolist())
        return self


def load_model(
    folder: str | Path,
    *,
    index: str | None = None,
    encoders: Mapping[str, str] | None = None,
    verify: bool = False,
) -> BankedEstimator:
    """The estimator saved in ``folder``, which may come from anybody: see "Threats and promises" in the documentation.

    The bank is memory-mapped, not read: a large one loads at once and costs memory only for the rows in use. Its files
    may be replaced while the model is in use, but must not be changed in place.

    Args:
        folder: as :func:`save_model` wrote it.
        index: the index to use, as :func:`vicinal.index.open_index` takes it. None: the saved one, unless it lives at a
            path or an address, which you have to give again.
        encoders: names of encoders by column or kind, the same as in the fit. Only encoders from a folder or from the
            hub have to be given again; a folder may have moved.
        verify: read and check the whole of a large bank, too. A bank of up to 64 MiB is always checked; in a larger one
            each row is checked to be finite when it is first used.

    Raises:
        ValueError: if the folder is not a model, was damaged or edited, or is of a newer version (the message names the
            file); or if it names a path or an address that was not given again.
    """
    readers = {"matcher": ("RowMatcher", "search searches"), "recommender": ("Recommender", "recommend uses")}
    if (other := kind_of(Path(folder))) in readers:
        name, command = readers[other]
        raise ValueError(
            f"model: expected the folder of a model that predicts labels, got that of a {other}; {name}.load reads it, "
            f"and vicinal {command} it"
        )
    model = read_model(folder, BankedEstimator.by_task, {"index": index, "encoders": encoders}, verify=verify)
    if not isinstance(model, BankedEstimator):
        raise TypeError(f"model: expected an estimator of this library, got {type(model).__name__}")
    return model
