"""What a matcher says of rows: candidates, probabilities, links, pairs to label, clusters, and why."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.core import check_choice, short
from vicinal.core.checks import check_integer
from vicinal.estimators.inputs import as_table
from vicinal.estimators.labelled_pairs import SameThings, pair_positions, positions_of
from vicinal.estimators.linking import (
    BLOCK,
    assigned,
    connected,
    larger_first,
    log_odds,
    pairs_of_rows,
    pairs_to_label,
    pairs_within,
)
from vicinal.estimators.match_clusters import AGAINST, LARGEST, cut
from vicinal.estimators.match_labels import LabelScorer
from vicinal.estimators.match_linkage import Linkage
from vicinal.estimators.match_rows import ROW
from vicinal.estimators.match_tables import MatchedTables, found_pairs
from vicinal.estimators.pair_explanation import PairExplanation, PairExplanations, explained_cells
from vicinal.estimators.pair_features import Side
from vicinal.linkage.columns import Floats, Ids
from vicinal.linkage.competition import partners
from vicinal.metrics import candidate_recall

DEPTHS = (1, 2, 5, 10, 20, 50)
"""Candidates of a row at which recall is told."""

CLUSTERS = ("components", "consistent")

_LOOKED_AT = 20_000
"""Pairs of a cluster that are looked at for contradictions, at most."""

_LABEL = 1e6
"""What a label counts within a cluster in log odds: more than all other pairs together."""

_TO_LABEL = 30
"""Pairs to label where few or none are labelled."""


class MatchAnswers:
    """The answers of a fitted :class:`vicinal.estimators.RowMatcher`, whose parameters and attributes these are."""

    tables_: MatchedTables
    linkage_: Linkage
    learned_: LabelScorer | None
    labelled_: pd.DataFrame
    labels_: pd.DataFrame
    threshold_: float
    doubt_: tuple[float, float]
    scores_: dict[str, float]
    notes_: list[str]
    new_rows_: dict[int, Any]
    journal_: Any
    links: str
    n_candidates: int
    random_state: int

    def _chances(self, at: Ids) -> Floats:
        """Probabilities ``[n]`` that things match: 1 of one with itself, and 0 of those without content."""
        if self.learned_ is None:
            chances = self.linkage_.chances(self.tables_, at)
        else:
            chances = self.learned_.chances(self.tables_, self.linkage_, at)
        if self.tables_.is_single:
            chances = np.where(at[:, 0] == at[:, 1], 1.0, chances)
        return np.where(self.tables_.speak(at), chances, 0.0)

    def candidates(self, k: int | None = None) -> pd.DataFrame:
        """The ``k`` right rows (None: ``n_candidates``) that each left row is most likely to match, best first.

        Equal rows count as one.

        Returns:
            A table with columns ``left``, ``right`` (ids) and ``score``; for one table against itself, each pair once.
        """
        hits = self.tables_.candidates(self.n_candidates if k is None else check_integer("k", k))
        at, scores = found_pairs(hits)
        speak = self.tables_.speak(at)
        at, scores = at[speak], scores[speak]
        if self.tables_.is_single:
            at, first = np.unique(np.sort(at, axis=1), axis=0, return_index=True)
            scores = scores[first]
        return self._named_things(at, score=scores)

    def _scored(self) -> tuple[Ids, Floats, Floats]:
        """Candidates as things ``[n, 2]``, their scores and their probabilities, the surest first."""

        def make() -> tuple[Ids, Floats, Floats]:
            at, odds, chances = self.linkage_.candidates(self.tables_)
            chances = self._as_labelled(at, chances if self.learned_ is None else self._chances(at))
            order = np.argsort(-chances, kind="stable")
            return at[order], odds[order] / math.log(2), chances[order]

        return self.tables_.once(("scored", self.n_candidates), make)

    def _beside_labels(self, at: Ids) -> Floats:
        """Probabilities ``[n]`` of things; beside estimates those of labelled pairs are what their label says."""
        chances = self._chances(at)
        return self._as_labelled(at, chances) if self.learned_ is None else chances

    def _as_labelled(self, at: Ids, chances: Floats) -> Floats:
        """Probabilities ``[n]`` of things, of which those that were labelled are what their label says."""
        for match in (0, 1):
            known = self._labelled(at, self.labels_[self.labels_["match"] == match])
            chances = np.where(known, float(match), chances)
        return chances

    def _named(self, at: Ids, **columns: Any) -> pd.DataFrame:
        """Pairs of rows ``[n, 2]`` by their ids."""
        ids = self.tables_.left.ids[at[:, 0]], self.tables_.right.ids[at[:, 1]]
        return pd.DataFrame({"left": ids[0], "right": ids[1], **columns})

    def _named_first(self, at: Ids, **columns: Any) -> pd.DataFrame:
        """Pairs of things ``[n, 2]`` by the ids of their first rows."""
        sides = zip((self.tables_.left, self.tables_.right), at.T, strict=True)
        return self._named(np.stack([table.first[part] for table, part in sides], 1), **columns)

    def _named_things(self, at: Ids, **columns: Floats) -> pd.DataFrame:
        """Pairs of things ``[n, 2]`` by the ids of all their rows."""
        rows, source = pairs_of_rows(at, self.tables_.left.thing, self.tables_.right.thing)
        return self._named(rows, **{name: values[source] for name, values in columns.items()})

    def candidate_recall(self, pairs: pd.DataFrame, depths: Sequence[int] = DEPTHS) -> dict[int, float]:
        """Share of the matches among ``pairs`` (of things) that are candidates of their left row, by their number.

        For one table against itself, candidates of either row count.
        """
        at = positions_of(pairs[pairs["match"] == 1])
        rows, place = np.unique(at if self.tables_.is_single else at[:, 0], return_inverse=True)
        ids = self.tables_.candidates(max(depths), torch.from_numpy(rows)).ids.numpy()
        ways = [(place, at[:, 1])]
        if self.tables_.is_single:
            sides = place.reshape(-1, 2)
            ways = [(sides[:, 0], at[:, 1]), (sides[:, 1], at[:, 0])]
        hits = [ids[rows] == others[:, None] for rows, others in ways]  # [n, k] each
        ranks = [np.where(hit.any(axis=1), hit.argmax(axis=1), max(depths)) for hit in hits]
        return candidate_recall(np.min(ranks, axis=0), depths)

    def predict_proba(self, pairs: Any) -> Floats:
        """Probabilities ``[n, 2]`` that pairs do not match, and that they do.

        Args:
            pairs: a table of columns ``left`` and ``right``, or tuples of both.

        Raises:
            ValueError: for ids that are not in the tables.
        """
        chances = self._beside_labels(self.tables_.things(pair_positions("pairs", pairs, self.tables_.tables)))
        return np.stack([1 - chances, chances], axis=1)

    def predict(self, pairs: Any) -> Ids:
        """1 for each pair that matches, by the threshold, and 0 for others: ``[n]``."""
        return (self.predict_proba(pairs)[:, 1] >= self.threshold_).astype(np.int64)

    def scored_candidates(self) -> pd.DataFrame:
        """All candidates with their ``probability``, the surest first."""
        at, scores, chances = self._scored()
        return self._named_things(at, score=scores, probability=chances)

    def link(self, links: str | None = None) -> pd.DataFrame:
        """The pairs that match: candidates from the threshold on, as ``links`` allows, the surest first.

        "one-to-one" takes the links with the highest total log odds above the threshold (an assignment), "1:3" those
        with three right rows of a left one at most; with "one-to-many" each right row gets its most probable left row.
        Within one table all pairs above the threshold are taken that consistent :meth:`clusters` have together, and
        before them rows that are equal in all cells, with probability 1 (of 150 or more equal rows each with the
        first). Without labels nothing is linked where no pair stands out from the others; ``notes_`` says so.

        Args:
            links: in place of the matcher's own.

        Returns:
            A table of columns ``left``, ``right``, ``score`` (log2 odds that are estimated of the pair by itself) and
            ``probability``.
        """
        rows, scores, chances = self._above()
        if self.tables_.is_single:
            names = self._clustered("consistent")[0]
            taken = np.flatnonzero(names[rows[:, 0]] == names[rows[:, 1]])
        else:
            taken = self._allowed(rows, chances, links)
        return self._named(rows[taken], score=scores[taken], probability=chances[taken])

    def _above(self) -> tuple[Ids, Floats, Floats]:
        """Pairs of rows ``[n, 2]`` from the threshold on, their scores and probabilities.

        Of one table equal rows come first, which score as high as any other.
        """
        linked = self._scored()[2] >= self.threshold_
        if self.learned_ is None and not self.linkage_.has_sign:
            linked &= False
        at, scores, chances = (part[linked] for part in self._scored())
        rows, source = pairs_of_rows(at, self.tables_.left.thing, self.tables_.right.thing)
        if not self.tables_.is_single:
            return rows, scores[source], chances[source]
        equal, _ = pairs_within(self.tables_.left.thing, BLOCK, fewest=2)
        equal = equal[self.tables_.speak(self.tables_.left.thing[equal])]
        scores = np.concatenate([np.full(len(equal), scores.max(initial=0.0)), scores[source]])
        return np.concatenate([equal, rows]), scores, np.concatenate([np.ones(len(equal)), chances[source]])

    def _allowed(self, rows: Ids, chances: Floats, links: str | None = None) -> Ids:
        """Places of those of pairs ``[n, 2]``, the surest first, that the kind of links allows."""
        most_right, most_left = partners(self.links if links is None else links) if len(rows) > 1 else (None, None)
        if most_right is not None:
            gains = log_odds(chances) - log_odds(np.array([self.threshold_])) + 1e-3
            return np.flatnonzero(assigned(rows[:, 0], rows[:, 1], gains, most_right))
        if most_left == 1:
            return np.sort(np.unique(rows[:, 1], return_index=True)[1])
        return np.arange(len(rows))

    def review(self) -> pd.DataFrame:
        """Pairs to label, which nobody labelled: in the band of doubt, the nearest to the threshold in log odds first.

        With fewer than 200 labels: the thirty that teach most, half of them nearest to one half, and half from bands of
        probability.
        """
        at, scores, chances = self._scored()
        fresh = ~self._labelled(at, self.labels_)
        if self.learned_ is None:
            places = np.flatnonzero(fresh)
            chosen = places[pairs_to_label(chances[places], _TO_LABEL)]
        else:
            inside = fresh & (chances >= self.doubt_[0]) & (chances < self.doubt_[1])
            far = np.abs(log_odds(chances) - log_odds(np.array([self.threshold_])))
            chosen = np.flatnonzero(inside)[np.argsort(far[inside], kind="stable")]
        return self._named_first(at[chosen], score=scores[chosen], probability=chances[chosen])

    def _labelled(self, at: Ids, pairs: pd.DataFrame) -> Ids:
        """Which things ``[n, 2]`` are among pairs of rows."""
        sides = at, self.tables_.things(positions_of(pairs))
        places, known = (pair[:, 0] * len(self.tables_.right) + pair[:, 1] for pair in sides)
        return np.asarray(np.isin(places, known))

    def clusters(self, kind: str = "consistent") -> tuple[pd.DataFrame, pd.DataFrame]:
        """Rows of one table that are the same thing, by the links between them, and what speaks against it.

        Args:
            kind: "components": whatever pairs above the threshold join; "consistent": of components of up to 200 rows,
                those clusters for which most speaks, all pairs inside counted (correlation clustering, see
                :func:`vicinal.estimators.match_clusters.consistent_clusters`); ``notes_`` says how many components were
                cut, and which contradict themselves and were too large for it.

        Returns:
            A table of ``id`` and ``cluster`` (numbered from 0, larger clusters first; a row without links has its own),
            and a table of contradictions: pairs ``left`` and ``right`` of one ``cluster`` and ``why``: they were
            labelled 0, or their probability is below the band of doubt and no labels make them the same. Of clusters of
            more than 20,000 pairs as many are drawn, and ``notes_`` says so.
        """
        if not self.tables_.is_single:
            raise ValueError("right: expected a matcher of one table (right=None), got one of two; use link()")
        names, inside, chances, same, there = self._clustered(check_choice("kind", kind, CLUSTERS))
        table = self.tables_.left
        of = names[table.first]
        clusters = pd.DataFrame({"id": table.ids, "cluster": names})
        apart = positions_of(self.labels_[self.labels_["match"] == 0])
        apart = apart[names[apart[:, 0]] == names[apart[:, 1]]]
        parts = [self._named(apart, cluster=names[apart[:, 0]], why="labelled 0")]
        note = f"{len(inside)} of {there} pairs within clusters were looked at for contradictions"
        if len(inside) < there and note not in self.notes_:
            self.notes_.append(note)
        doubtful = inside[~same & (chances < self.doubt_[0])]
        parts.append(self._named_first(doubtful, cluster=of[doubtful[:, 0]], why="improbable"))
        return clusters.sort_values("cluster", kind="stable", ignore_index=True), pd.concat(parts, ignore_index=True)

    def _clustered(self, kind: str) -> tuple[Ids, Ids, Floats, Ids, int]:
        """The clusters of the rows, and what pairs of things inside them say.

        Of these: those looked at, ``[n, 2]``, probabilities, which are the same by labels, and how many there are.
        """

        def make() -> tuple[Ids, Ids, Floats, Ids, int]:
            table = self.tables_.left
            names = connected(self._above()[0], len(table))
            of = names[table.first]
            inside, there = pairs_within(of, _LOOKED_AT, np.random.default_rng(self.random_state))
            chances, same = self._chances(inside), SameThings.by(self.labels_, self.tables_).are_same(inside)
            if kind == "consistent":
                part = self._cut(of, inside, chances, same)
                names = larger_first(names * (int(part.max()) + 1) + part[table.thing])
                stays = part[inside[:, 0]] == part[inside[:, 1]]
                inside, chances, same = inside[stays], chances[stays], same[stays]
                there -= int((~stays).sum())
            return names, inside, chances, same, there

        return self.tables_.once(("scored", kind, self.threshold_), make)

    def _cut(self, clusters: Ids, pairs: Ids, chances: Floats, same: Ids) -> Ids:
        """The part of its component that each thing is in; see :meth:`clusters`."""
        gains = np.maximum(log_odds(chances) - log_odds(np.array([self.threshold_])), -AGAINST)
        apart = self._labelled(pairs, self.labels_[self.labels_["match"] == 0])
        gains = np.where(same, _LABEL, np.where(apart, -_LABEL, gains))
        parts, count, too_large = cut(clusters, pairs, gains)
        notes = [f"components of links that contradict themselves, cut into clusters that do not: {count}"][:count]
        for component in too_large:
            rows = np.flatnonzero(clusters == component)
            notes.append(
                f"the component of row {short(self.tables_.left.ids[self.tables_.left.first[rows[0]]])} contradicts "
                f"itself, and stays whole: it has {len(rows)} rows, and components of up to {LARGEST} are cut"
            )
        self.notes_ += [note for note in notes if note not in self.notes_]
        return parts

    def search(self, queries: Any, k: int = 10) -> pd.DataFrame:
        """The right rows most like texts or rows, best first.

        Args:
            queries: a text, several texts, or a table of left rows (columns that it lacks are empty).
            k: rows for each query.

        Returns:
            A table: ``query`` (its number from 0), ``right`` (id), ``score``, and the columns of the right table; a
            column with one of these three names gets "right" in front.

        Raises:
            ValueError: for an empty text.
        """
        texts = [queries] if isinstance(queries, str) else queries
        if isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts):
            if not self.tables_.columns.texts:
                raise ValueError("queries: expected rows, as the tables share no column of texts, got a text")
            frame = pd.DataFrame({self.tables_.columns.texts[0]: list(texts)})
        else:
            frame = as_table("queries", queries).rename(columns=str).reset_index(drop=True)
        at = np.arange(len(frame))
        table = replace(self.tables_.left, frame=frame, ids=at, keys=None)
        rows = Side(self.tables_.features, table, at)
        if not len(frame) or not all(rows.texts(ROW)):
            raise ValueError("queries: expected words to look for, got none; an empty text is like nothing")
        media = self.tables_.columns.media
        whole = all(name in frame.columns and frame[name].notna().all() for name in media)
        vectors = self.tables_.vectors_of(table, at) if whole else None
        return self._nearest(rows, vectors, check_integer("k", k))

    def search_ids(self, ids: Sequence[Any], k: int = 10) -> pd.DataFrame:
        """The right rows most like rows of the left table, by id; of one table without the rows themselves.

        Returns:
            A table as :meth:`search` gives.

        Raises:
            ValueError: for an id that is not in the left table.
        """
        left = self.tables_.left
        at = left.positions(list(ids), "ids")
        themselves = at if self.tables_.is_single else None
        return self._nearest(Side(self.tables_.features, left, at), left.vectors[left.thing[at]], k, themselves)

    def _nearest(self, rows: Side, vectors: Tensor | None, k: int, themselves: Ids | None = None) -> pd.DataFrame:
        right, count = self.tables_.right, len(rows.rows)
        hits = self.tables_.nearest(0, rows.lexical, vectors, k + 1, 2 * k + 20)[0]
        things, scores = found_pairs(hits)
        at, source = pairs_of_rows(things, np.arange(count), right.thing)
        scores = scores[source]
        if themselves is not None:
            other = at[:, 1] != themselves[at[:, 0]]
            at, scores = at[other], scores[other]
        first = pd.Series(at[:, 0]).groupby(at[:, 0]).cumcount().to_numpy() < k
        at = at[first]
        head = {"query": at[:, 0], "right": right.ids[at[:, 1]], "score": scores[first]}
        cells = (
            right.frame.iloc[at[:, 1]].reset_index(drop=True).rename(columns={name: f"right {name}" for name in head})
        )
        return pd.concat([pd.DataFrame(head), cells], axis=1)

    def explain(self, pairs: Any, k: int = 3) -> PairExplanations:
        """Why each pair is taken for a match or not: its cells side by side, and the labelled pairs it resembles.

        Args:
            pairs: a table of columns ``left`` and ``right``, or tuples of both.
            k: labelled pairs to show for each.
        """
        at = pair_positions("pairs", pairs, self.tables_.tables)
        if len(at) == 0:
            return PairExplanations()
        things = self.tables_.things(at)
        chances = self._beside_labels(things)
        cells, start, refined = explained_cells(self.tables_, self.linkage_, at, chances)
        resembles = self._resembling(at, things, check_integer("k", k))
        names = self._named(at)
        sides = zip(names["left"], names["right"], strict=True)
        return PairExplanations(
            PairExplanation(left, right, float(chances[row]), cells[row], resembles[row], start, float(refined[row]))
            for row, (left, right) in enumerate(sides)
        )

    def estimated_recall(self) -> float | None:
        """Estimated share of the matches among the candidates, of tables of more than 20,000 rows; else None.

        It is the most that is to be hoped for, as it does not know of matches that agree in nothing, and of few columns
        it is too high (.95 for .88 in a test). See :func:`vicinal.linkage.block_recall.estimated_recall`.
        """
        if self.learned_ is not None:
            return None
        return self.tables_.reached(self.n_candidates, self.linkage_.candidates(self.tables_)[2])

    def match_weights(self) -> pd.DataFrame:
        """The probabilities m (among matches) and u (among random pairs) of each comparison level of each column.

        Returns:
            A table of ``column``, ``level`` (from "differs" to "equal"), ``m``, ``u`` and ``weight``, log2 of m / u.
        """
        return self.linkage_.match_weights()

    def _resembling(self, at: Ids, things: Ids, k: int) -> list[list[tuple[Any, Any, bool, float]]]:
        """For each pair of rows the labelled ones that are most alike to the scorer; itself is none of them."""
        if self.learned_ is None:
            return [[] for _ in at]
        features = self.learned_.features(self.tables_, self.linkage_, things)
        likeness = self.learned_.scorer.likeness(features, self.learned_.known)
        labelled = positions_of(self.labelled_)
        labels, resembles = self.labelled_["match"].to_numpy() == 1, []
        for row in range(len(at)):
            others = np.flatnonzero((labelled != at[row]).any(axis=1))
            best = others[np.argsort(-likeness[row, others], kind="stable")[:k]]
            known = self._named(labelled[best])
            columns = known["left"], known["right"], labels[best].tolist(), likeness[row, best].tolist()
            resembles.append(list(zip(*columns, strict=True)))
        return resembles
