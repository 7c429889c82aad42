"""``vicinal match --review``: a person labels the pairs that a match doubts most, and the match learns from them."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vicinal.calibration import stratified_share
from vicinal.core import counted, files
from vicinal.core.progress import Log
from vicinal.data import write_table
from vicinal.linkage.compared import ComparedPair
from vicinal.report.pairs import pair_html
from vicinal.report.text import number, percent
from vicinal.workflows.match import ANSWERED, TO_LABEL, MatchJob, MatchOutcome, match_tables, read_answers

BANDS = (0.5, 0.7, 0.9, 0.99)
"""Probabilities that part the links, for the estimate of how many are right: labels are not drawn evenly from all."""


class Reviewer:
    """The pairs to label of a match, one at a time.

    A label is in ``answered.csv`` of the folder, on disk, when :meth:`label` returns; the next match of this folder
    learns from it, and leaves the pair out of its review. Only one thread at a time may use this object.

    Args:
        job: what to link.
        folder: of the match.
        command: what makes the match again, for a shell.
        log: gets one line of progress at a time.

    Attributes:
        outcome: of the last match.
        pairs: to label, in an order that does not tell how probable they are, so that the first ones are of all kinds.
        at_end: called by :meth:`finish`.
    """

    outcome: MatchOutcome
    pairs: Sequence[ComparedPair]

    def __init__(self, job: MatchJob, folder: Path, command: str = "", log: Log = lambda line: None) -> None:
        self.job, self.folder, self.command, self.log = job, folder, command, log
        self.at_end: Callable[[], object] = lambda: None
        self._labels: dict[tuple[str, str], int | None] = {}  # all of this page, None of one taken back
        self._done: list[tuple[int, bool | None]] = []  # places and labels of this round, in their order
        self._turn, self._effects = 0, list[str]()
        self._work: threading.Thread | None = None
        self._progress = ""
        self._result: MatchOutcome | Exception | None = None

    def match(self) -> MatchOutcome:
        """Link the tables with the labels so far, and take up the pairs to label."""
        return self._take_up(match_tables(self.job, self.folder, self.log))

    def _take_up(self, outcome: MatchOutcome) -> MatchOutcome:
        self.outcome, self._turn, self._done = outcome, self._turn + 1, []
        pairs = outcome.record.doubtful[:TO_LABEL]
        self.pairs = [pairs[place] for place in np.random.default_rng(0).permutation(len(pairs))]
        self._linked = set(zip(*(outcome.links[side].astype(str) for side in ("left", "right")), strict=True))
        return outcome

    # What a page asks.

    def now(self) -> dict[str, Any]:
        """The pair to label, if one is left, what the labels of this round say, and how far a match is that runs."""
        if self._work is not None and not self._work.is_alive():
            self._end_work()
        done = len(self._done)
        return {
            "name": self.outcome.record.name,
            "turn": self._turn,
            "place": done,
            "pairs": len(self.pairs),
            "labelled": sum(label is not None for _, label in self._done),
            "count": self.count,
            "pair": pair_html(self.pairs[done]) if done < len(self.pairs) else None,
            "findings": self.findings(),
            "effects": self._effects,
            "running": None if self._work is None else self._progress,
            "command": self.command,
            "file": str(self.folder / ANSWERED),
        }

    def label(self, turn: int, place: int, *, match: bool | None) -> dict[str, Any]:
        """Write the label of the pair at ``place``; None skips it."""
        self._check_idle()
        if (turn, place) != (self._turn, len(self._done)) or place >= len(self.pairs):
            raise ValueError("pair: expected the one that is shown, got another; load the page again")
        if match is not None:
            self._write(place, int(match))
        self._done.append((place, match))
        return self.now()

    def undo(self) -> dict[str, Any]:
        """Take the last label, or skip, of this round back."""
        self._check_idle()
        if not self._done:
            raise ValueError("undo: expected a pair that was labelled or skipped since the last match, got none")
        place, match = self._done[-1]
        if match is not None:
            self._write(place, None)
        self._done.pop()
        return self.now()

    def again(self) -> dict[str, Any]:
        """Begin to make the match again with the labels; :meth:`now` tells how far it is, and then what they did."""
        self._check_idle()
        self._progress, self._result = "reading", None
        self._work = threading.Thread(target=self._match_again, daemon=True)
        self._work.start()
        return self.now()

    def _match_again(self) -> None:
        def log(line: str) -> None:
            self._progress = line
            self.log(line)

        try:
            self._result = match_tables(self.job, self.folder, log)
        except (ValueError, OSError, MemoryError, RuntimeError) as wrong:
            self._result = wrong

    def _end_work(self) -> None:
        """Take up what a match has given."""
        self._work = None
        if isinstance(self._result, MatchOutcome):
            before, linked = self.outcome, self._linked
            self._take_up(self._result)
            self._effects = effects(before, self.outcome, linked, self._linked)
        else:
            self._effects = [f"The match was not made: {self._result}"]

    def _check_idle(self) -> None:
        if self._work is not None:
            raise ValueError("pair: expected to wait until the match is made, got a request before")

    def finish(self) -> dict[str, Any]:
        """End the page."""
        self.at_end()
        return self.now()

    # What the labels say.

    @property
    def count(self) -> int:
        """Number of labels that this page has given."""
        return sum(label is not None for label in self._labels.values())

    def findings(self) -> list[str]:
        """What the labels of this round say of the match before it learned from them, in sentences."""
        pairs = [(self.pairs[place], bool(match)) for place, match in self._done if match is not None]
        if not pairs:
            return []
        chances = np.array([pair.probability for pair, _ in pairs])
        right = np.array([match for _, match in pairs])
        sentences = []
        for part, words in (
            (chances >= 0.5, "of probability 50 % or more"),
            (chances < 0.5, "of probability below 50 %"),
        ):
            if part.any():
                sentences.append(f"Of {counted(part.sum(), 'labelled pair')} {words}, {right[part].sum()} match.")
        linked = np.array([(pair.left, pair.right) in self._linked for pair, _ in pairs])
        return [*sentences, *self._precision(chances[linked], right[linked])]

    def _precision(self, chances: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> list[str]:
        """An estimate of how many of all links are right, by labelled ones."""
        if len(right) == 0:
            return []
        strata = [np.digitize(values, BANDS) for values in (self.outcome.links["probability"], chances, chances[right])]
        counts = [np.bincount(each, minlength=len(BANDS) + 1) for each in strata]
        share, low, high = stratified_share(*counts)
        lead, total = f"By {counted(len(right), 'labelled link')},", f"all {counts[0].sum():,} links are right"
        ends = f"between {percent(low)} and {percent(high)}"
        if not np.isnan(share):
            return [f"{lead} {percent(share)} of {total}: {ends} with 95 % confidence."]
        unseen = np.where(counts[1] == 0, counts[0], 0)
        place = int(unseen.argmax())
        edge = f"{percent(BANDS[-1])} or more" if place == len(BANDS) else f"below {percent(BANDS[place])}"
        band = f"of probability {edge}"
        return [f"{lead} {ends} of {total}, with 95 % confidence; of {unseen.max():,} links {band} none is labelled."]

    # Its file.

    def _write(self, place: int, label: int | None) -> None:
        """Write the label of a pair, or none, with all others of this page and of the file."""
        pair = self.pairs[place]
        labels = {key: match for key, match in self._labels.items() if key != (pair.left, pair.right)}
        labels[pair.left, pair.right] = label
        path = self.folder / ANSWERED
        with files.locked(path, "update"):
            there = read_answers(self.folder)
            rows = {(str(one), str(other)): match for one, other, match in there.itertuples(index=False)}
            for key, match in labels.items():
                rows.pop(key, None) if match is None else rows.update({key: match})
            table = pd.DataFrame([(*key, match) for key, match in rows.items()], columns=["left", "right", "match"])
            write_table(table, path)
        self._labels = labels


def effects(
    before: MatchOutcome, after: MatchOutcome, linked: set[tuple[str, str]], links: set[tuple[str, str]]
) -> list[str]:
    """What a match with more labels changed, in sentences."""
    gone, new = len(linked - links), len(links - linked)
    sentences = [f"{len(linked):,} links became {len(links):,}: {gone:,} are gone, {new:,} are new."]
    for title, scores in (
        (f"F1 on {after.record.pairs[1]} labelled pairs held out", [one.record.scores for one in (before, after)]),
        ("F1 that the probabilities expect", [one.record.expected for one in (before, after)]),
    ):
        if "f1" in scores[1]:
            was = f", {number(scores[0]['f1'], 3)} before" if "f1" in scores[0] else ""
            sentences.append(f"{title}: {number(scores[1]['f1'], 3)}{was}.")
    return [*sentences, *(note for note in after.record.notes if note not in before.record.notes)]
