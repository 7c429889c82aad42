"""Which row of one table is the same thing as which row of another: probabilities, links, and why."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from vicinal.core import check_choice
from vicinal.core.folders import staged_folder
from vicinal.core.identity import canonical_ids
from vicinal.encoders.pretrained import check_tune
from vicinal.estimators.inputs import as_table
from vicinal.estimators.labelled_pairs import (
    check_one_label,
    closed_pairs,
    folds,
    labelled_rows,
    lack_of_labels,
    positions_of,
    take_labels,
    take_pairs,
    with_answers,
)
from vicinal.estimators.match_answers import MatchAnswers
from vicinal.estimators.match_files import MatchJournal, matcher_settings, read_matcher, write_matcher
from vicinal.estimators.match_labels import RISK, LabelScorer, correct_hubs, threshold_and_doubt
from vicinal.estimators.match_linkage import FEW, Linkage
from vicinal.estimators.match_new_rows import NewRows
from vicinal.estimators.match_rows import SIDES, MatchColumns, MatchTable, read_tables
from vicinal.estimators.match_tables import LARGE, Log, MatchedTables, check_index, installed_encoders
from vicinal.estimators.pair_reader import check_reader
from vicinal.estimators.plan import read_plan
from vicinal.linkage.columns import Floats, Ids
from vicinal.linkage.competition import partners
from vicinal.metrics import link_quality
from vicinal.settings import MatchSettings
from vicinal.training.settings import check_values

if TYPE_CHECKING:
    from vicinal.report.summary import Summary

_EVEN, _DOUBT = 0.5, (0.1, 0.9)
"""The threshold and the band of doubt without labels that choose them."""


@dataclass(eq=False, repr=False)
class RowMatcher(MatchSettings, MatchAnswers, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Links the rows of two tables that are the same thing, and says how sure it is and why.

    Rows of one table that are equal in all cells (texts without regard to case, invisible characters and the form of
    Unicode) are copies: they are compared once, and get the same links. Rows whose shared cells are all empty get none.

    Candidates come from vectors of a frozen encoder and from shared words and letters, fused by their ranks. Without
    labels their probabilities are estimated: columns get match weights by the model of Fellegi and Sunter, pairs
    compete for their rows, and what the weights leave out is learned from probable pairs
    (:class:`vicinal.estimators.match_linkage.Linkage`). Labels are learned from beside these estimates; from 200 on a
    scorer learns from them, too, which descriptions of pairs are matches (how alike columns are, how far a pair is
    ahead of the other pairs of its rows), and held-out pairs set the threshold.

    Args:
        id_left: column of ids of the left table; None: "id", or the numbers of its rows from 0 if there is none.
        id_right: the same of the right table.
        n_candidates: rows of the right table that each left row is compared with.
        links: "one-to-one", "one-to-many" (a left row may have several right ones), "1:3" (three at most, or as many
            as stands there) or "many-to-many" (also "many").
        precision: share of the links nobody labelled that must be right, with 95 % confidence for pairs like the
            labelled ones (see :func:`vicinal.calibration.precision_threshold`), each told by a scorer of other folds;
            proved of a fold by itself, and measured of all together. None: the threshold with the best F1.
        encoders: name of the encoder of the rows' texts, and of shared images and sounds, by kind; {"text": "none"}:
            words and letters only. None: the pretrained ones that are installed; of texts with 200 labels or more, and
            at most 20,000 rows of a table, else words and letters.
        tune: which part of the pretrained encoder of texts is trained to read both rows of a pair at once: "all",
            "last-N", "lora", or "auto" (what ``minutes`` have time for). Its probability and that of the scorer are
            weighed by labelled pairs, and it is taken if both together have less log loss; see
            :class:`vicinal.estimators.pair_reader.PairReader`. It takes minutes to hours. "none": pairs are not read.
        minutes: how long ``tune="auto"`` may take.
        plan: a :class:`vicinal.estimators.TuningPlan` or its file, in place of four epochs or of the probe.
        validation_fraction: share of the labelled pairs held out to set the threshold, whole left rows at a time; with
            ``precision`` and without ``tune`` each share is once.
        index: what searches vectors: "exact"; for millions of rows "faiss:IVF1024,Flat", "milvus:FILE.db" or the
            address of a server, see :func:`vicinal.index.open_index`. It holds the vectors for the life of the matcher,
            and is not saved.
        root: folder that paths of images and sounds start from; a pair of folders if the two tables differ.
        cache_dir: folder that keeps vectors between runs, and candidates of large tables with their levels: a run of
            the same tables goes on from there.
        random_state: seed.

    Attributes:
        threshold_: the probability at which two rows are linked; one half with fewer than 200 labels.
        doubt_: the band of probabilities in which a person should look at the links.
        scores_: on the held-out pairs: precision, recall, f1, and the recall of candidates by their number.
        notes_: what was chosen and why, in sentences.

    >>> left = pd.DataFrame({"id": range(30), "name": [f"red lamp {i}" for i in range(30)]})
    >>> right = pd.DataFrame({"id": range(30), "name": [f"lamp, red, no. {i}" for i in range(30)]})
    >>> pairs = pd.DataFrame({"left": range(20), "right": range(20)})
    >>> model = RowMatcher(encoders={"text": "none"}).fit(left, right, pairs)
    >>> bool((model.link().query("left >= 20").left == model.link().query("left >= 20").right).all())
    True
    """

    id_left: str | None = None
    id_right: str | None = None

    # Fitting.

    def fit(
        self,
        left: Any,
        right: Any,
        pairs: Any = None,
        *,
        answers: Any = None,
        validation: Any = None,
        log: Log | None = None,
    ) -> Self:
        """Learn from labelled pairs which rows match.

        Args:
            left: a table, with the column ``id_left`` if one is named.
            right: another, with the column ``id_right``; None: copies are looked for in ``left`` itself.
            pairs: tuples, or a table of columns ``left`` and ``right`` (ids) and ``match`` (0 or 1; without it all
                match, and other candidates of the same rows count as non-matches, but for those that are the same by
                other labels: if A is B and B is C, A is C). None: probabilities are estimates that no label checked.
            answers: labels from a review, as a table of ``left``, ``right`` and ``match``; they overrule ``pairs``. If
                all of ``pairs`` match, other candidates still count as non-matches; so they do if links are one-to-one
                and too few pairs are labelled 0 to choose a threshold by.
            validation: labelled pairs to choose the threshold by, as a table like ``pairs``; None: a part of them.
            log: gets one line of progress at a time.

        Raises:
            ValueError: for tables, ids or pairs that cannot be used, and if ``precision`` cannot be guaranteed.
        """
        self._check_parameters()
        progress = log or (lambda line: None)
        roots = self.root if isinstance(self.root, tuple) else (self.root, self.root)
        sides = [left] if right is None else [left, right]
        tables, notes = read_tables(sides, (self.id_left, self.id_right), roots)
        if right is not None and tables[0].frame.equals(tables[1].frame):
            raise ValueError(
                "right: expected another table than the left one, got the same rows; to find copies in one table "
                "say vicinal dedupe (right=None in Python)"
            )
        for note in notes:
            progress(note)
        labelled = None if pairs is None else take_pairs("pairs", pairs, tables)
        if answers is not None and len(answers):
            labelled = with_answers(labelled, take_labels("answers", answers, tables))
        chosen = None if validation is None else take_pairs("validation", validation, tables)
        if labelled is not None and chosen is not None:
            check_one_label("validation", pd.concat([labelled, chosen]), tables)
        self.notes_ = notes
        self.new_rows_, self.journal_ = {}, None
        labels = 0 if labelled is None else len(labelled)
        if labels == 0:
            self._check_promise(0, 0)  # before anything is encoded or compared
        self._suggest_links(tables)
        encoders = self._encoders(tables, labels)
        if self.tune != "none":
            check_reader(self.tune, encoders["text"], MatchColumns.shared(tables[0].frame, tables[-1].frame).texts)
        settings = self.cache_dir, self.index, self.random_state, progress
        is_plain = (self.tune, self.precision) == ("none", None) and chosen is None
        counted = labels >= FEW or (labels > 0 and not is_plain)
        self.tables_ = MatchedTables.read(tables, encoders, *settings, counted=counted)
        self.learned_: LabelScorer | None = None
        self.threshold_ = _EVEN
        self.doubt_: tuple[float, float] = (0.0, 1.0)
        self.scores_: dict[str, float] = {}
        self.labelled_ = pd.DataFrame({"left": [], "right": [], "match": []}, dtype=np.int64)
        self.labels_ = pd.concat([self.labelled_, *(each for each in (labelled, chosen) if each is not None)])
        self._fit_labels(labelled, chosen, progress)
        return self

    @property
    def _is_crossed(self) -> bool:
        """Whether all labelled pairs are held out in turn; where a part takes minutes, one is."""
        return self.precision is not None and self.tune == "none"

    def _check_promise(self, matches: int, held_out: int) -> None:
        """Refuse to promise a precision by matches of which so few are held out that no threshold can show it."""
        if self.precision is None:
            return
        fewest = math.ceil(math.log(RISK) / math.log(self.precision))
        share = held_out / matches if held_out else 1.0 if self._is_crossed else self.validation_fraction
        if held_out < fewest:
            raise ValueError(
                f"precision: expected some {math.ceil(fewest / share)} labelled pairs that match, as a promise of "
                f"{self.precision:g} takes {fewest} held out and told right, got {matches} ({held_out} held out); "
                "label more, or leave it out"
            )

    def _suggest_links(self, tables: Sequence[MatchTable]) -> None:
        """Say how many rows stand there more than once, where no more than one of them can be linked."""
        for table, most in zip(tables, reversed(partners(self.links)), strict=False):
            count = len(table) - len(table.first)
            if len(tables) > 1 and count and most == 1:
                more = "one-to-many" if table.name == "right" else "many-to-many"
                self.notes_.append(
                    f"{count} rows of the {table.name} table repeat others; {self.links} links one of equal rows, "
                    f"{more} all"
                )

    def _encoders(self, tables: Sequence[MatchTable], labels: int) -> dict[str, str]:
        """Names of encoders by kind: that of texts is worth its time where enough is labelled to learn what it says."""
        encoders = installed_encoders(self.encoders)
        rows = max(map(len, tables))
        if encoders["text"] == "none":
            self.notes_.append("rows are compared by words and letters: no encoder of texts is installed or named")
        elif "text" not in (self.encoders or {}) and self.tune == "none" and (labels < FEW or rows > LARGE):
            reason = f"with fewer than {FEW} labels" if labels < FEW else f"of tables of more than {LARGE:,} rows"
            self.notes_.append(
                f"texts are compared by words and letters, the default {reason}; "
                f"name the encoder {encoders['text']!r} to compare their meaning, too"
            )
            encoders["text"] = "none"
        return encoders

    def _fit_labels(self, labelled: pd.DataFrame | None, chosen: pd.DataFrame | None, log: Log) -> None:
        """Probabilities by what is labelled: by estimates alone, beside few labels, or by a scorer."""
        if labelled is None:
            self.notes_ += self._estimate((np.zeros((0, 2), dtype=np.int64), np.zeros(0)), log)
            return
        parts = self._parts(labelled, chosen)
        lack, both = lack_of_labels(parts), pd.concat(parts[0])
        if self.precision is not None or chosen is not None or self.tune != "none":
            self._check_promise(int(both["match"].sum()), sum(int(held_out["match"].sum()) for _, held_out in parts))
            if lack and partners(self.links)[0] == 1:  # other candidates of a matched row are none, then
                for each in (labelled, chosen):
                    if each is not None:
                        each.attrs["implicit"] = True
                parts = self._parts(labelled, chosen)
                lack = lack_of_labels(parts)
            if lack:
                raise ValueError(f"pairs: {lack}")
        elif lack or len(both) < FEW:
            self.labelled_ = labelled_rows(both)
            self.notes_ += self._estimate((positions_of(both), both["match"].to_numpy(np.float64)), log)
            return
        self._learn(parts, log)

    def _estimate(self, labels: tuple[Ids, Floats], log: Log) -> list[str]:
        """Probabilities of all candidates by their match weights, and by labels of things, where there are any."""
        self.linkage_ = Linkage(self.links, self.n_candidates)
        self.threshold_, self.doubt_ = _EVEN, _DOUBT
        return self.linkage_.fit(self.tables_, labels, self.random_state, log)

    def _check_parameters(self) -> None:
        check_values(vars(self), MatchSettings)
        partners(self.links)
        check_tune(self.tune, auto=True)
        plan = read_plan(self.plan)
        if plan is not None and self.tune not in ("auto", plan.tune):
            raise ValueError(f"tune: expected 'auto' or {plan.tune!r}, as the plan says, got {self.tune!r}")
        check_index(self.index)

    def _parts(self, labelled: pd.DataFrame, chosen: pd.DataFrame | None) -> list[tuple[pd.DataFrame, pd.DataFrame]]:
        """Pairs of things to learn from, and to choose the threshold by; the last are those that are learned from.

        A promise of a precision is by all labelled pairs, each of which is held out once, from a scorer of its own.
        """
        labelled = self._closed(labelled)
        if chosen is not None:
            return [(labelled, self._closed(chosen))]
        fold = folds(labelled, self.validation_fraction, np.random.default_rng(self.random_state))
        if not self._is_crossed:
            return [(labelled[fold > 0], labelled[fold == 0])]
        parts = [(labelled[fold != each], labelled[fold == each]) for each in range(fold.max() + 1)]
        return [*parts, (labelled, labelled[:0])]

    def _learn(self, parts: Sequence[tuple[pd.DataFrame, pd.DataFrame]], log: Log) -> None:
        """The hub correction, the estimates, the scorer and the threshold, from labelled pairs."""
        if self.tables_.encoder is not None:
            self.notes_.append(correct_hubs(self.tables_, parts[-1][0].query("match == 1")))
        settings, held_out = self.get_params(deep=False), []
        for labelled, others in parts:
            notes = self._estimate((positions_of(labelled), labelled["match"].to_numpy(np.float64)), log)
            self.learned_, note = LabelScorer.learn(settings, self.tables_, self.linkage_, labelled, log)
            held_out.append(others[["match"]].assign(probability=self._chances(positions_of(others))))
        self.notes_ += [*notes, note] if note else notes
        self.labelled_, self.validation_ = labelled_rows(labelled), pd.concat(held_out, ignore_index=True)
        probability, truth = (self.validation_[name].to_numpy() for name in ("probability", "match"))
        unlabelled = np.zeros(0)
        if self.precision is not None:
            at, _, chances = self._scored()
            unlabelled = chances[~self._labelled(at, self.labels_)]
        self.threshold_, self.doubt_ = threshold_and_doubt(probability, truth, self.precision, unlabelled)
        quality = link_quality(probability >= self.threshold_, truth)
        recall = self.candidate_recall(pd.concat(parts[0]))
        scores = {"precision": quality.precision, "recall": quality.recall, "f1": quality.f1}
        self.scores_ = scores | {f"recall at {k}": share for k, share in recall.items()}

    def _closed(self, labelled: pd.DataFrame) -> pd.DataFrame:
        pairs, notes = closed_pairs(self.tables_, labelled, self.labels_, self.n_candidates)
        self.notes_ += notes
        return pairs

    # Changing the tables.

    def add(self, rows: Any, to: str = "left", *, durable: bool = False) -> pd.DataFrame:
        """Put rows into a table, and link them; what was learned stays.

        A row takes milliseconds, whatever was learned: where weights of columns alone tell it is looked up among the
        sorted keys of the others, else among those most alike (by an exact search, whatever the ``index``), and told by
        what was learned of pairs. The first one waits until all others are read. A link of another row stays, unless
        the new row is more probable.

        Args:
            rows: with the columns of the table, and ids that it has not.
            to: "left" or "right"; of one table "left".
            durable: write the rows with their links to the journal of the folder that the matcher was loaded from, or
                saved to, before this returns; :meth:`load` reads them, and :meth:`save` takes them into other files.

        Returns:
            The links of the new rows as :meth:`link` gives them; of one table each with the new row as ``left``.

        Raises:
            ValueError: for rows that the table cannot take, or a folder that others have changed; nothing is changed.
        """
        sides = SIDES[:1] if self.tables_.is_single else SIDES
        number = -sides.index(check_choice("to", to, sides))
        frame = as_table(to, rows)
        id_column = self.id_right if number else self.id_left
        more = self.tables_.more(number, frame, id_column)
        journal = self.journal_
        if durable and (journal is None or self.tables_.columns.media):
            got = "one of images or sounds" if self.tables_.columns.media else "one that is in no folder"
            raise ValueError(f"durable: expected a matcher that was loaded or saved, got {got}; say save(folder)")
        links = self._put(more, number)
        if durable and journal is not None:
            try:
                named = frame if (id_column or "id") in frame.columns else frame.assign(id=more.ids)
                journal.write(to, more.ids, named, links)
            except BaseException:
                self.forget(**{to: more.ids.tolist()})
                self.journal_ = journal
                raise
        return links

    def _put(self, more: MatchTable, number: int) -> pd.DataFrame:
        """Put rows into a table; gives their links."""
        learned, tables = self.learned_ is not None or self.linkage_.refinement is not None, self.tables_
        if number not in self.new_rows_:  # of the tables without these rows
            taken = self._taken(number) if learned or tables.encoder is not None else None
            self.new_rows_[number] = NewRows(tables, self.linkage_, number, self.learned_, taken)
        alone = replace(more, keys=np.arange(len(more), dtype=np.uint64))  # each a thing of its own
        tables.add(number, more)
        for other in set(self.new_rows_) - {number}:
            self.new_rows_[other].put(alone)
        return self._looked_up(alone, number)

    def _taken(self, number: int) -> dict[int, float]:
        """The things of the table beside that one which are linked, with the highest probability of each."""
        if self.tables_.is_single:
            return {}
        rows, _, chances = self._above()
        links = self._allowed(rows, chances)[::-1]
        return dict(zip(self.tables_.things(rows[links])[:, 1 + number].tolist(), chances[links].tolist(), strict=True))

    def _looked_up(self, more: MatchTable, number: int) -> pd.DataFrame:
        """The links of new rows, by what their keys find."""
        rows = self.new_rows_[number]
        at, odds, chances = rows.pairs(more)
        linked = np.flatnonzero((chances >= self.threshold_) & (self.learned_ is not None or self.linkage_.has_sign))
        linked = linked[np.argsort(-chances[linked], kind="stable")]
        if 1 in rows.competition.sides:  # what is linked to others stays so, unless a new row is more probable
            free = [
                chance > rows.taken.get(row, 0.0)
                for row, chance in zip(at[linked, 1].tolist(), chances[linked], strict=True)
            ]
            linked = linked[np.array(free, dtype=bool)]
        if not self.tables_.is_single:
            linked = linked[self._allowed(at[linked][:, :: -1 if number else 1], chances[linked])]
        rows.taken |= zip(at[linked, 1].tolist(), chances[linked].tolist(), strict=True)
        pairs = [(place, other) for place in linked.tolist() for other in rows.ids_of(int(at[place, 1]))]
        linked, names = np.array([place for place, _ in pairs], dtype=np.int64), more.ids.tolist()
        sides = [names[row] for row in at[linked, 0].tolist()], [other for _, other in pairs]
        ids = [canonical_ids("ids", side) for side in sides[:: -1 if number else 1]]
        return pd.DataFrame(
            {"left": ids[0], "right": ids[1], "score": odds[linked] / math.log(2), "probability": chances[linked]}
        )

    def forget(self, left: Sequence[Any] = (), right: Sequence[Any] = ()) -> Self:
        """Take rows out of either table by id, with the labelled pairs that explanations show of them.

        What the scorer learned from those pairs stays; fit again for a scorer that never saw them.
        """
        if self.tables_.is_single:
            left, right = [*left, *right], ()
        self.new_rows_, self.journal_, changes = {}, None, []
        for number, side, ids in ((0, "left", left), (-1, "right", right)):
            if len(ids):
                table = self.tables_.tables[number]
                gone = table.positions(list(ids), side)
                changes.append((number, side, table, gone, table.without(gone)))
        for number, side, table, gone, left_over in changes:  # nothing has changed if an id was wrong
            sides = ["left", "right"] if self.tables_.is_single else [side]
            keep = ~self.labelled_[sides].isin(gone).any(axis=1).to_numpy()
            if self.learned_ is not None:
                self.learned_.forget(keep, self.tables_.pair_keys(positions_of(self.labelled_[~keep])))
            moved = np.arange(len(table)) - np.searchsorted(np.sort(gone), np.arange(len(table)))
            self.labelled_ = self.labelled_[keep].reset_index(drop=True)
            self.labels_ = self.labels_[~self.labels_[sides].isin(gone).any(axis=1)].reset_index(drop=True)
            for each in sides:
                for pairs in (self.labelled_, self.labels_):
                    pairs[each] = moved[pairs[each].to_numpy(dtype=np.int64)]
            self.tables_.change(number, left_over)
        return self

    def close(self) -> None:
        """Let go of the index of the vectors, and remove what it holds in a database; a later search makes it anew."""
        self.tables_.forget("vectors")

    # Files.

    def summary(self) -> "Summary":
        """What was fitted, on what, with which settings, and how well, as ``vicinal show`` prints it of a folder."""
        from vicinal.report.summary import MatcherSettings, summary

        check_is_fitted(self, "tables_")
        shown = MatcherSettings.model_validate_json(matcher_settings(self).model_dump_json())
        return summary(shown.facts())

    def _html_repr(self) -> str:
        """What a notebook shows: of a fitted matcher its summary, else scikit-learn's diagram."""
        if not hasattr(self, "tables_"):
            return str(super()._html_repr())
        from vicinal.report.theme import notebook_html

        return notebook_html(self.summary().part(type(self).__name__, self.notes_))

    def save(self, folder: str | Path) -> None:
        """Write the matcher as a folder, whole or not at all: JSON, safetensors and parquet, no pickle."""
        with staged_folder(Path(folder), "matcher") as stage:
            write_matcher(stage, self)
        self.journal_ = MatchJournal(Path(folder))

    @classmethod
    def load(cls, folder: str | Path, *, encoders: Mapping[str, str] | None = None) -> Self:
        """The matcher saved in ``folder``, which may come from anybody.

        Args:
            folder: as :meth:`save` wrote it.
            encoders: names by kind; encoders from a folder or from the hub have to be given again.

        Raises:
            ValueError: if the folder is not a matcher, was damaged or edited, or names a place that was not given
                again.
        """
        matcher = read_matcher(cls, Path(folder), encoders or {})
        for number, name in enumerate((matcher.id_left, matcher.id_right)):
            if len(rows := matcher.journal_.rows(SIDES[number])):
                matcher.tables_.add(-number, matcher.tables_.more(-number, rows, name))
        return matcher
