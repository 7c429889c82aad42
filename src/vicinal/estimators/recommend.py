"""What each user should see next, new items included, and why: factors of clicks, and neighbors among item columns."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from vicinal.core import check_choice, counted, listed, short
from vicinal.core.checks import check_integer
from vicinal.core.folders import staged_folder
from vicinal.core.identity import canonical_ids
from vicinal.data.form import TableForm
from vicinal.data.table import check_column, read_weights
from vicinal.encoders import Kind
from vicinal.estimators.base import unchanged_on_error
from vicinal.estimators.click_sides import Side
from vicinal.estimators.column_kernel import ColumnKernel, NearRows
from vicinal.estimators.inputs import as_table
from vicinal.estimators.recommend_files import read_recommender, recommender_settings, write_recommender
from vicinal.factorization import als, fold_in, fold_in_shares
from vicinal.metrics import recall_at_k
from vicinal.settings import ClickSettings
from vicinal.training.settings import check_values

if TYPE_CHECKING:
    from vicinal.report.summary import Summary

Ids = np.ndarray[Any, Any]
Log = Callable[[str], None]

CONFIDENCES, RIDGES = (5.0, 20.0), (3.0, 10.0, 30.0, 100.0)
"""What is tried on a held-out tenth of the clicks."""

AMONG = ("all", "known", "new")
"""Items to recommend: all, those with clicks at the fit, or those without."""

_FEW, _USERS, _CUT = 200, 2000, 20
"""Clicks below which the settings are those in the middle; users that settings are compared on; items of a list."""

_SHOWN = 10
"""Rows of each table of reasons that a notebook shows."""

_BLOCK = 512
"""Users that are scored at a time."""


class Reasons(NamedTuple):
    """Why an item is recommended to a user.

    Attributes:
        score: of the item for this user.
        by: "clicks", "new item", "users alike" or "popularity".
        clicks: ``item``, ``share``: what each item that the user clicked adds to the score; the shares sum to it.
        neighbors: of a new item ``item``, ``weight``, ``share``, the known items that it is like by its columns; of a
            user without clicks ``user``, ``weight``, ``share``, the users it is like. The shares sum to the score.
        people: with ``people=True``, ``user``, ``share``: others who clicked the item, and a last row, whose user is
            None, for what their shares lack to the score.
    """

    score: float
    by: str
    clicks: pd.DataFrame
    neighbors: pd.DataFrame
    people: pd.DataFrame

    def _repr_html_(self) -> str:
        from vicinal.report.notebook import plain_table
        from vicinal.report.theme import Part, notebook_html

        parts = [Part(f"Score {self.score:.4g}, by {self.by}")]
        named = {"Items clicked": self.clicks, "Most similar": self.neighbors, "Others who clicked it": self.people}
        for name, table in named.items():
            if len(table):
                more = [f"{len(table) - _SHOWN} more rows"] * (len(table) > _SHOWN)
                parts.append(plain_table([*table], table[:_SHOWN].to_numpy(object).tolist(), name, *more))
        return notebook_html(*parts)


@dataclass(eq=False, repr=False)
class Recommender(ClickSettings, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    r"""Recommends items to users out of their clicks, new items by their columns, and gives the reasons as exact sums.

    Items get vectors by alternating least squares of implicit feedback (:func:`vicinal.factorization.als`). A user's
    vector is the exact solution for the clicks and these vectors, so that new clicks count at once and a score is a sum
    over the items that the user clicked. An item without clicks is a mean of the vectors of its nearest items by
    columns, with weights that are not negative and sum to 1 (:class:`ColumnKernel`), so that its score is a sum over
    these items. A user without clicks gets the mean of the users alike by columns, else what is clicked most.

    Args:
        user: column of users in the table of clicks, and of ids in the table of users.
        item: likewise of items.
        value: column of how much a click counts, > 0, such as a number of plays; None: 1 each.
        rank: width of the vectors, at most.
        confidence: weight of a click of average value, beside 1 of no click; None: 5 or 20, see ``ridge``.
        ridge: None: one of 3, 10, 30 and 100. What is None is chosen by recall@20 on a held-out tenth of the clicks, if
            there are at least 200; else 20 and 10.
        sweeps: of the factors.
        n_neighbors: known rows that a new one is a mean of, at most.
        kinds: of columns that should not be detected ("text", "category", "number", "vector", "set"), by name.
        encoders: of columns, by name or kind: {"text": "minilm"}.
        random_state: seed.

    Attributes:
        vectors_: of the items, ``[n, rank]``, float64.
        scores_: measured at the fit, on a tenth of the clicks and a tenth of the items that were held out: "recall@20",
            "recall@20 of popularity", "recall@20 of new items", "recall@20 of new items by chance", where there is
            enough to measure.
        notes_: what was left out or assumed, in sentences.

    Papers: Hu et al. 2008; arXiv:2302.11068; arXiv:2305.20002 (``people``).

    >>> clicks = pd.DataFrame({"user": [1, 1, 2, 2, 3, 3, 4], "item": list("abcdcda")})
    >>> model = Recommender(rank=2).fit(clicks)
    >>> model.recommend([4], 1)[["user", "rank", "item", "by"]].to_dict("list")
    {'user': [4], 'rank': [1], 'item': ['b'], 'by': ['clicks']}
    >>> reasons = model.explain(4, "b")
    >>> reasons.clicks["item"].tolist(), bool(abs(reasons.clicks["share"].sum() - reasons.score) < 1e-12)
    (['a'], True)
    """

    user: str = "user"
    item: str = "item"
    value: str | None = None
    _: KW_ONLY
    kinds: Mapping[str, Kind] | None = None
    encoders: Mapping[str, str] | None = None
    random_state: int = 0

    # Fitting.

    def fit(self, clicks: Any, items: Any = None, users: Any = None, *, log: Log = lambda line: None) -> Self:
        """Learn from a table of clicks, one a row; several of one pair are summed.

        Args:
            clicks: with the columns ``user`` and ``item``, and ``value`` if there is one.
            items: columns of items, a row for each; those without clicks are new. None: none are known.
            users: likewise of users.
            log: gets one line of progress at a time.

        Raises:
            ValueError: for missing columns or ids, no clicks, or fewer than two users or items.
        """
        self._check_parameters()
        tables = {"item": items, "user": users}
        read = {name: self._read_columns(name, table) for name, table in tables.items() if table is not None}
        self.notes_: list[str] = []
        self.scores_: dict[str, float] = {}
        who, what, values = self._read_clicks(clicks)
        empty = np.zeros(0, dtype=np.int64)
        self.items_, self.users_ = Side("item", empty).joined(what), Side("user", empty).joined(who)
        for side in (self.items_, self.users_):
            if len(side) < 2:
                raise ValueError(f"clicks: expected at least two {side.name}s to learn from, got {len(side)}")
        self.trained_ = np.ones(len(self.items_), dtype=bool)
        self.clicks_ = self._matrix(who, what, values)
        self.unit_ = float(self.clicks_.data.mean())
        if len(who) > self.clicks_.nnz:
            self.notes_.append(f"{counted(len(who) - self.clicks_.nnz, 'repeated click')} summed")
        log("learning vectors of items")
        self.settings_ = self._choose(log)
        self.vectors_ = self._factors(self.clicks_, *self.settings_)
        self.kernels_: dict[str, ColumnKernel] = {}
        self._describe(read, log)
        return self

    def _check_parameters(self) -> None:
        if self.user == self.item:
            raise ValueError(f"item: expected another column than that of users, got {short(self.item)} for both")
        check_values(vars(self), ClickSettings)

    def _read_clicks(self, clicks: Any) -> tuple[Ids, Ids, Ids]:
        """Users, items and values of the rows of a table."""
        frame = _read_table("click", clicks)
        for role in ("user", "item", *["value"] * bool(self.value)):
            check_column(role, str(getattr(self, role)), list(frame.columns))
        labels = frame.index.tolist()
        who, what = (canonical_ids(name, frame[name], labels=labels) for name in (self.user, self.item))
        if self.value is None:
            return who, what, np.ones(len(frame))
        read = TableForm.of(frame[[self.value]]).read(frame[[self.value]])
        values = read_weights(read[self.value], zero=True)
        if (count := int((values == 0).sum())) == len(values):
            raise ValueError(f"value: expected numbers above 0 in {short(self.value)}, got 0 in all rows")
        if count:
            self.notes_.append(f"{counted(count, 'row')} of value 0 in {self.value} left out")
        return who[values > 0], what[values > 0], values[values > 0]

    def _matrix(self, who: Ids, what: Ids, values: Ids) -> Any:
        places = self.users_.positions(who.tolist()), self.items_.positions(what.tolist())
        table = sparse.csr_array((values, places), shape=(len(self.users_), len(self.items_)))
        table.sum_duplicates()
        return table

    def _factors(self, table: Any, confidence: float, ridge: float, sweeps: int | None = None) -> Tensor:
        """Vectors of the items of a table, float64."""
        draw = torch.Generator().manual_seed(self.random_state)
        scaled = (table / self.unit_).astype(np.float32)
        rank, sweeps = min(self.rank, *table.shape), sweeps or self.sweeps
        return als(scaled, rank, confidence=confidence, ridge=ridge, sweeps=sweeps, generator=draw).columns.double()

    def _folded(self, rows: Any, vectors: Tensor, settings: tuple[float, float]) -> Tensor:
        """Vectors of users with these rows of clicks, 0 without a click."""
        return fold_in(rows / self.unit_, vectors, confidence=settings[0], ridge=settings[1])

    def _choose(self, log: Log) -> tuple[float, float]:
        """Confidence and ridge of the best recall on a tenth of the clicks."""
        confidences = CONFIDENCES if self.confidence is None else (self.confidence,)
        ridges = RIDGES if self.ridge is None else (self.ridge,)
        entries = self.clicks_.tocoo()
        draw = np.random.default_rng(self.random_state)
        hidden = draw.random(entries.nnz) < 0.1
        if self.clicks_.nnz < _FEW:
            self.notes_.append("too few clicks to hold some out: nothing was measured")
            return confidences[-1], ridges[min(1, len(ridges) - 1)]
        data, places, shape = entries.data, np.stack([entries.row, entries.col]), entries.shape
        seen, later = (sparse.csr_array((data[at], tuple(places[:, at])), shape=shape) for at in (~hidden, hidden))
        users = draw.permutation(np.flatnonzero(np.diff(later.indptr)))[:_USERS]
        results = []
        for confidence in confidences:
            for ridge in ridges:
                vectors = self._factors(seen, confidence, ridge, sweeps=5)
                near = self._folded(seen[users], vectors, (confidence, ridge))
                results.append((_recall(near @ vectors.T, seen[users], later[users]), confidence, ridge))
        best, confidence, ridge = max(results)
        popular = torch.from_numpy(np.diff(seen.tocsc().indptr).astype(np.float64)).expand(len(users), -1)
        self.scores_["recall@20"] = best
        self.scores_["recall@20 of popularity"] = _recall(popular, seen[users], later[users])
        log(f"confidence {confidence:g} and ridge {ridge:g} are best on a tenth of the clicks")
        return confidence, ridge

    # Columns.

    def _describe(self, read: Mapping[str, tuple[Ids, pd.DataFrame]], log: Log) -> None:
        """Take up the columns of items and users, and learn what of them says something of the vectors."""
        for name, columns in read.items():
            self._extend(name, *columns)
            side, clicked = self._side(name), self._clicked(name)
            if lacking := int((clicked & ~side.described).sum()):
                lost = np.isin(self.clicks_.indices, np.flatnonzero(~side.described)) & (name == "item")
                of_clicks = f", {counted(int(lost.sum()), 'click')} in all" if lost.any() else ""
                self.notes_.append(
                    f"{counted(lacking, name)} of the clicks without a row in the table of {name}s{of_clicks}: "
                    "known by clicks alone"
                )
            bank = np.flatnonzero(clicked & side.described)
            if len(bank) < 2 or side.rows is None or side.rows.shape[1] == 0:
                self.notes_.append(f"columns of {name}s: too few rows with clicks and columns to learn from")
                continue
            log(f"learning which columns of {name}s matter")
            kernel = ColumnKernel(side.rows.iloc[bank], self.kinds_of(name), self.encoders)
            self.notes_ += [f"column {column} of {name}s: {why}" for column, why in kernel.skipped.items()]
            if not kernel.columns:
                self.notes_.append(f"columns of {name}s: none that can be compared")
                continue
            vectors = self.vectors_ if name == "item" else self.user_vectors()
            self.kernels_[name] = kernel.fit(vectors[bank].numpy(), self.random_state)
            if name == "item":
                self._place_new()
                self._measure_new(bank)

    def kinds_of(self, name: str) -> dict[str, Kind]:
        """Kinds that were named for the columns of items or users."""
        rows = self._side(name).rows
        return {column: kind for column, kind in (self.kinds or {}).items() if rows is not None and column in rows}

    def _read_columns(self, name: str, table: Any) -> tuple[Ids, pd.DataFrame]:
        """Ids and columns of a table of items or users."""
        frame, column = _read_table(name, table), self.item if name == "item" else self.user
        if column not in frame:
            raise ValueError(
                f"{name}s: expected the column {column!r} of the clicks, got a table of {listed(frame.columns, 400)}"
            )
        ids = canonical_ids(f"{name}s", frame[column], distinct=True, labels=frame.index.tolist())
        return ids, frame.drop(columns=column).reset_index(drop=True)

    def _side(self, name: str) -> Side:
        return self.items_ if name == "item" else self.users_

    def _clicked(self, name: str) -> Ids:
        """Which rows new ones may be means of: items with vectors of the fit, users with clicks."""
        return self.trained_ if name == "item" else np.diff(self.clicks_.indptr) > 0

    def bank(self, name: str) -> Ids:
        """Positions of the rows of a kernel."""
        return np.flatnonzero(self._clicked(name) & self._side(name).described)

    def _extend(self, name: str, ids: Ids, rows: pd.DataFrame | None = None) -> None:
        """Take up ids, with their columns if there are rows."""
        side = self._side(name).joined(ids, rows)
        shape = (len(side), self.clicks_.shape[1]) if name == "user" else (self.clicks_.shape[0], len(side))
        self.clicks_.resize(shape)
        if name == "user":
            self.users_ = side
            return
        more = len(side) - len(self.items_)
        self.items_ = side
        self.trained_ = np.append(self.trained_, np.zeros(more, dtype=bool))
        self.vectors_ = torch.nn.functional.pad(self.vectors_, (0, 0, 0, more))

    def _near(self, name: str, places: Ids) -> NearRows:
        """The rows of the bank that some items or users are like, as positions among all."""
        bank, rows = self.bank(name), self._side(name).rows
        near = self.kernels_[name].near(rows.iloc[places], self.n_neighbors)  # type: ignore[union-attr]
        return NearRows(bank[near.places], near.weights)

    def _place_new(self) -> None:
        """Give items without clicks of the fit the means of their nearest; or, without columns, of who clicked them."""
        new = np.flatnonzero(~self.trained_ & self.items_.described) if "item" in self.kernels_ else np.zeros(0, int)
        if len(new):
            self.vectors_[new] = torch.from_numpy(self._near("item", new).mean(self.vectors_.numpy()))
        others = np.setdiff1d(np.flatnonzero(~self.trained_), new)
        others = others[np.diff(self.clicks_.tocsc().indptr)[others] > 0]
        if len(others):
            clicks = sparse.csr_array(self.clicks_[:, others].T)
            self.vectors_[others] = self._folded(clicks, self.user_vectors(), self.settings_)

    def _measure_new(self, bank: Ids) -> None:
        """Recall on a tenth of the items, hidden from factors and kernel, of each user's clicks among them."""
        draw = np.random.default_rng(self.random_state)
        hidden = bank[draw.random(len(bank)) < 0.1]
        if not self.scores_ or len(hidden) < 2 * _CUT:
            return
        seen = np.setdiff1d(np.flatnonzero(self.trained_), hidden)
        vectors = self._factors(sparse.csr_array(self.clicks_[:, seen]), *self.settings_)
        people = self._folded(self.clicks_[:, seen], vectors, self.settings_)
        rest = np.setdiff1d(bank, hidden)
        rows: Any = self.items_.rows
        kernel = ColumnKernel(rows.iloc[rest], self.kinds_of("item"), self.encoders)
        kernel.fit(vectors.numpy()[np.searchsorted(seen, rest)], self.random_state)
        near = kernel.near(rows.iloc[hidden], self.n_neighbors)
        new = torch.from_numpy(near.mean(vectors.numpy()[np.searchsorted(seen, rest)]))
        later = sparse.csr_array(self.clicks_[:, hidden])
        users = np.flatnonzero(np.diff(later.indptr))[:_USERS]
        none = sparse.csr_array((len(users), len(hidden)))
        self.scores_["recall@20 of new items"] = _recall(people[users] @ new.T, none, later[users])
        self.scores_["recall@20 of new items by chance"] = _CUT / len(hidden)

    # Recommending.

    def _active(self) -> Ids:
        """Items whose clicks, or lack of them, make a user's vector."""
        return np.flatnonzero(self.trained_ | (np.diff(self.clicks_.tocsc().indptr) > 0))

    def user_vectors(self, places: Ids | None = None) -> Tensor:
        """Vectors of users with clicks; 0 of others. None: of all users."""
        active, clicks = self._active(), self.clicks_ if places is None else self.clicks_[places]
        return self._folded(sparse.csr_array(clicks[:, active]), self.vectors_[active], self.settings_)

    def recommend(self, users: Iterable[Any] | None = None, k: int = 10, *, among: str = "all") -> pd.DataFrame:
        """The best items for each user among those that the user has not clicked.

        Args:
            users: ids; None: all of the model. Ids that it does not know get what is clicked most.
            k: items, at most.
            among: "all", "known" (items of the fit), or "new" (items without clicks at the fit).

        Returns:
            a row for each item of each user: ``user``, ``rank`` from 1, ``item``, ``score``, and ``by``, what it is
            by: "clicks"; "new item", by its columns; "users alike", by the columns of a user without clicks; or
            "popularity", where the score is the share of the users who clicked it.
        """
        check_integer("k", k)
        check_choice("among", among, AMONG)
        names = self.users_.ids if users is None else canonical_ids("users", list(users))
        places = np.arange(len(names)) if users is None else self.users_.positions(names.tolist())
        allowed = {"all": np.ones_like(self.trained_), "known": self.trained_, "new": ~self.trained_}[among]
        allowed = allowed & (self.vectors_.abs().sum(dim=1) > 0).numpy()
        parts = []
        for start in range(0, len(names), _BLOCK):
            some = places[start : start + _BLOCK]
            scores, by = self._scores(some)
            scores[:, ~allowed] = -np.inf
            seen = self.clicks_[np.maximum(some, 0)].tocoo()
            mine = some[seen.row] >= 0
            scores[seen.row[mine], seen.col[mine]] = -np.inf
            order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
            row, rank = np.nonzero(np.isfinite(np.take_along_axis(scores, order, axis=1)))
            what = order[row, rank]
            is_new = (by[row] == "clicks") & ~self.trained_[what] & self.items_.described[what]
            columns = {"user": names[start + row], "rank": rank + 1, "item": self.items_.ids[what]}
            shown = {"score": scores[row, what], "by": np.where(is_new, "new item", by[row])}
            parts.append(pd.DataFrame(columns | shown))
        return pd.concat(parts or [pd.DataFrame(columns=["user", "rank", "item", "score", "by"])], ignore_index=True)

    def _scores(self, places: Ids) -> tuple[Ids, Ids]:
        """Scores of all items ``[b, n]``, and what they are by ``[b]``, for users at ``places``, -1: unknown."""
        known = np.maximum(places, 0)
        vectors = self.user_vectors(known)
        clicked = (places >= 0) & (np.diff(self.clicks_[known].indptr) > 0)
        by = np.where(clicked, "clicks", "popularity").astype(object)
        alike = np.flatnonzero(~clicked & (places >= 0) & self.users_.described[known])
        if len(alike) and "user" in self.kernels_:
            near = self._near("user", places[alike])
            vectors[alike] = torch.from_numpy(near.mean(self.user_vectors().numpy()))
            by[alike] = "users alike"
        scores = (vectors @ self.vectors_.T).numpy()
        scores[by == "popularity"] = np.diff(self.clicks_.tocsc().indptr) / max(int(self._clicked("user").sum()), 1)
        return scores, by

    def explain(self, user: Any, item: Any, *, people: bool = False) -> Reasons:
        """Why an item is recommended to a user: sums that are exact.

        Args:
            user: an id; one that the model does not know gets the popularity of the item.
            item: an id.
            people: also give the other users whose clicks on the item speak for it
                (:func:`vicinal.evaluation.nuclear_representers`), of an item with a vector of the fit.

        Raises:
            ValueError: for an item that the model does not know.
        """
        place, at = int(self.users_.positions([user])[0]), self.items_.position(item)
        scores, by = self._scores(np.array([place]))
        score, reason = float(scores[0, at]), str(by[0])
        clicks, others = pd.DataFrame({"item": [], "share": []}), pd.DataFrame({"user": [], "share": []})
        neighbors = pd.DataFrame({"item": [], "weight": [], "share": []})
        if reason == "clicks":
            clicks = self._click_shares(place, at)
            if not self.trained_[at] and self.items_.described[at]:
                near = self._near("item", np.array([at]))
                reason, neighbors = "new item", _ranked("item", self.items_, near, scores[0])
        elif reason == "users alike":
            of_people = (self.user_vectors() @ self.vectors_[at]).numpy()
            neighbors = _ranked("user", self.users_, self._near("user", np.array([place])), of_people)
        if people and by[0] == "clicks" and self.trained_[at]:
            others = self._people(place, at, score)
        return Reasons(score, reason, clicks, neighbors, others)

    def _click_shares(self, place: int, at: int) -> pd.DataFrame:
        """What each clicked item adds to a score."""
        active = self._active()
        row = sparse.csr_array(self.clicks_[[place]][:, active])
        shares = fold_in_shares(
            torch.from_numpy(row.data / self.unit_),
            torch.from_numpy(row.indices.astype(np.int64)),
            self.vectors_[active],
            self.vectors_[[at]],
            confidence=self.settings_[0],
            ridge=self.settings_[1],
        )[0].numpy()
        order = np.argsort(-shares, kind="stable")
        return pd.DataFrame({"item": self.items_.ids[active[row.indices[order]]], "share": shares[order]})

    def _people(self, place: int, at: int, score: float) -> pd.DataFrame:
        """Shares of the users who clicked an item in a score of it, and what they lack to it."""
        from vicinal.evaluation import nuclear_representers  # scikit-learn, which predictions need not import

        everybody = self.user_vectors()
        clicks = self.clicks_[:, [at]].toarray()[:, 0] / self.unit_
        confidence, ridge = self.settings_
        weight = np.where(clicks > 0, confidence * clicks, 1.0)
        slopes = weight * ((everybody @ self.vectors_[at]).numpy() - (clicks > 0))
        factors, every = (everybody.numpy(), self.vectors_.numpy()), np.arange(len(slopes))
        pulls = nuclear_representers(factors, every, np.full(len(slopes), at), slopes, pairs=[[place, at]])[1]
        shares = pulls[0] / ridge
        who = np.flatnonzero((clicks > 0) & (every != place))
        who = who[np.argsort(-shares[who], kind="stable")]
        names = [*self.users_.ids[who].tolist(), None]
        return pd.DataFrame({"user": names, "share": [*shares[who], score - shares[who].sum()]}, dtype=object)

    # Changes.

    def add(self, clicks: Any = None, items: Any = None, users: Any = None) -> Self:
        """Take up new clicks, items or users without training; the next recommendation uses them.

        Users get their vectors by all their clicks. A new item with columns gets that of its nearest items; one without
        gets that of the users who clicked it. The vectors of the fit stay as they are: fit again when much is new.

        Raises:
            ValueError: as :meth:`fit`; the model is unchanged.
        """
        read = None if clicks is None else self._read_clicks(clicks)
        sides = [(name, table) for name, table in (("item", items), ("user", users)) if table is not None]
        tables = [(name, *self._read_columns(name, table)) for name, table in sides]
        for name, _, rows in tables:
            if self._side(name).rows is None:
                raise ValueError(
                    f"{name}s: expected none, as the model was fitted without columns of {name}s, got a table"
                )
            read_by_kernel = self.kernels_[name].columns if name in self.kernels_ else ()
            if missing := [column for column in read_by_kernel if column not in rows]:
                raise ValueError(
                    f"{name}s: expected the columns of the fit, got a table without {listed(missing, 200)}"
                )
        with unchanged_on_error(self):
            self.clicks_, self.vectors_, self.kernels_ = self.clicks_.copy(), self.vectors_.clone(), dict(self.kernels_)
            for name, ids, rows in tables:
                self._extend(name, ids, rows)
            if read is not None:
                who, what, values = read
                self._extend("item", what)
                self._extend("user", who)
                self.clicks_ = sparse.csr_array(self.clicks_ + self._matrix(who, what, values))
            self.renew_kernels()
            self._place_new()
        return self

    def forget(self, users: Iterable[Any]) -> Self:
        """Remove users, with their clicks and columns, as if they had never come; but items were learned with them.

        Raises:
            ValueError: for a user that the model does not know, or if fewer than two with clicks would be left.
        """
        gone = np.array([self.users_.position(user) for user in users], dtype=np.int64)
        rest = np.setdiff1d(np.arange(len(self.users_)), gone)
        if (np.diff(self.clicks_[rest].indptr) > 0).sum() < 2:
            raise ValueError("users: expected at least two with clicks to stay, got fewer; delete the model instead")
        self.users_, self.clicks_ = self.users_.without(gone), sparse.csr_array(self.clicks_[rest])
        self.renew_kernels()
        return self

    def renew_kernels(self) -> None:
        """Put the rows that are there now under the kernels."""
        for name, former in self.kernels_.items():
            rows: Any = self._side(name).rows
            columns = rows.iloc[self.bank(name)][list(former.columns)]
            self.kernels_[name] = ColumnKernel(columns, former.columns, self.encoders, former.form).with_rates(former)

    # Files.

    def summary(self) -> "Summary":
        """What was fitted, on what, with which settings, and how well, as ``vicinal show`` prints it of a folder."""
        from vicinal.report.summary import RecommenderSettings, summary

        check_is_fitted(self, "vectors_")
        shown = RecommenderSettings.model_validate_json(recommender_settings(self).model_dump_json())
        return summary(shown.facts())

    def _html_repr(self) -> str:
        """What a notebook shows: of a fitted recommender its summary, else scikit-learn's diagram."""
        if not hasattr(self, "vectors_"):
            return str(super()._html_repr())
        from vicinal.report.theme import notebook_html

        return notebook_html(self.summary().part(type(self).__name__, self.notes_))

    def save(self, folder: str | Path) -> None:
        """Write the recommender as a folder, whole or not at all: JSON, safetensors and parquet, no pickle."""
        with staged_folder(Path(folder), "recommender") as stage:
            self.write(stage)

    def write(self, stage: Path) -> None:
        """Write the files of the recommender into an empty folder."""
        write_recommender(stage, self)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The recommender saved in ``folder``, which may come from anybody.

        Raises:
            ValueError: if the folder is not a recommender, or was damaged or edited.
        """
        model, state = cls(), read_recommender(Path(folder))
        model.set_params(**state.pop("parameters"))
        for name, value in state.items():
            setattr(model, name, value)
        model.renew_kernels()
        return model


def _recall(scores: Tensor, seen: Any, later: Any) -> float:
    """Mean recall of the clicks to come among the first 20 items that users have not clicked yet."""
    total, rows = 0.0, scores.shape[0]
    for start in range(0, rows, _BLOCK):
        part = slice(start, start + _BLOCK)
        weight = torch.from_numpy((seen[part].toarray() == 0).astype(np.float64))
        relation = torch.from_numpy((later[part].toarray() > 0).astype(np.float64))
        total += float(recall_at_k(scores[part], relation, weight, k=_CUT).nansum())
    return total / max(rows, 1)


def _ranked(name: str, side: Side, near: NearRows, scores: Ids) -> pd.DataFrame:
    """The rows of weight that one row is like, largest share first."""
    places, weights = near.places[0], near.weights[0]
    shares = weights * scores[places]
    order = np.argsort(-shares, kind="stable")
    order = order[weights[order] > 0]
    return pd.DataFrame({name: side.ids[places[order]], "weight": weights[order], "share": shares[order]})


def _read_table(name: str, table: Any) -> pd.DataFrame:
    """A table of clicks, items or users with a row at least; its columns have texts as names."""
    frame = as_table(f"{name}s", table)
    if not isinstance(frame, pd.DataFrame) or len(frame) == 0:
        one, got = "click" if name == "click" else "row", "none" if isinstance(frame, pd.DataFrame) else short(frame)
        raise ValueError(f"{name}s: expected a table of at least one {one}, got {got}")
    return frame.rename(columns=str)
