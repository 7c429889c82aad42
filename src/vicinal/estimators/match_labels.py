"""What labels teach a matcher beside its estimates: a scorer of pairs, a reader of them as texts, and the threshold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from vicinal.calibration import best_f1, precision_threshold
from vicinal.estimators.labelled_pairs import folds, positions_of
from vicinal.estimators.linking import log_odds
from vicinal.estimators.match_linkage import Linkage
from vicinal.estimators.match_tables import Log, MatchedTables, installed_encoders
from vicinal.estimators.pair_reader import PairReader
from vicinal.estimators.pair_scorers import BoostedPairs
from vicinal.linkage.columns import Floats, Ids

SHARE = 0.5
"""Weight of a scorer's log odds beside those of the estimates, which learn from the same labels and know which pairs
compete. Alone it links many pairs that nobody labelled: docs/results/match.md."""

INNER = 0.25
"""Share of the pairs to learn from that a reader of them is judged by."""

_FEWEST_READ = 100
"""Fewer labelled pairs are too few to tune a reader by."""

TEMPERATURES = (0.02, 0.05, 0.1)
"""Of the hub correction that are tried."""

_WRONG = 0.02
"""Share of the matches that lie below the band of doubt, and of wrong links above it, on validation pairs."""

RISK, _LINKS = 0.05, 50
"""Of a promise of precision that it is broken, and links that it is made of, at least: of few a single one decides."""


@dataclass
class LabelScorer:
    """Probabilities of pairs by what labels taught, and by the estimates.

    Attributes:
        scorer: of descriptions of pairs.
        known: descriptions of the labelled pairs, ``[m, F]``.
        share: of the scorer's log odds beside those of the estimates.
        reader: reads pairs as texts; None: nothing does.
    """

    scorer: BoostedPairs
    known: Floats
    share: float = SHARE
    reader: PairReader | None = None

    @classmethod
    def learn(
        cls,
        settings: Mapping[str, Any],
        tables: MatchedTables,
        linkage: Linkage,
        labelled: pd.DataFrame,
        log: Log,
    ) -> tuple["LabelScorer", str]:
        """What pairs of things teach, with the settings of a matcher; and a sentence on reading them, or ""."""
        matches = labelled["match"].to_numpy()
        log(f"learning from {len(labelled)} pairs")
        features = cls.features(tables, linkage, positions_of(labelled))
        learned = cls(BoostedPairs.fit(features, matches, settings["random_state"]), features)
        return learned, "" if settings["tune"] == "none" else learned.read_pairs(settings, tables, labelled, log)

    def read_pairs(self, settings: Mapping[str, Any], tables: MatchedTables, labelled: pd.DataFrame, log: Log) -> str:
        """Take up a tuned encoder that reads pairs, if it makes the scorer better on pairs left out; and a sentence."""
        at, matches, seed = positions_of(labelled), labelled["match"].to_numpy(), settings["random_state"]
        inner = folds(labelled, INNER, np.random.default_rng(seed)) > 0
        if len(matches) < _FEWEST_READ or min(len(set(matches[part].tolist())) for part in (inner, ~inner)) < 2:
            return f"no pair was read: tuning takes {_FEWEST_READ} labelled pairs of both kinds, got {len(matches)}"
        log(f"tuning an encoder that reads pairs, by {int(inner.sum())} of them")
        names = {name: settings[name] for name in ("tune", "minutes", "plan", "random_state", "cache_dir")}
        names["encoder"] = installed_encoders(settings["encoders"])["text"]
        texts = tables.pair_texts(at)
        keys = tables.pair_keys(labelled[["left row", "right row"]].to_numpy(dtype=np.int64))
        reader = PairReader.tuned(texts, matches, keys, inner, names)
        scorer = BoostedPairs.fit(self.known[inner], matches[inner], seed)
        scored, outer = scorer.chances(self.known[~inner]), np.flatnonzero(~inner)
        read = reader.read(scored, lambda some: [texts[place] for place in outer[some]])
        alone, both, is_better = reader.weigh(scored, read, matches[outer], at[outer, 0])
        said = f"by boosting alone the log loss on {len(outer)} pairs is {alone:.3f}, with it {both:.3f}"
        if not is_better:
            return f"pairs are not read as texts: {said}"
        self.reader, self.share = reader, 1.0  # match weights know no texts
        how = "as published" if reader.model.plan_ is None else reader.model.plan_.sentence()
        return f"pairs are read as texts, too ({how}): {said}"

    @staticmethod
    def features(tables: MatchedTables, linkage: Linkage, at: Ids) -> Floats:
        """What the scorer reads of things: likenesses, and the log ratio of their match weights."""
        return np.column_stack([tables.pair_features(at), linkage.ratios(tables, at)])

    def chances(self, tables: MatchedTables, linkage: Linkage, at: Ids, estimates: Floats | None = None) -> Floats:
        """Probabilities ``[n]`` that things match, of which the estimates are those; None: to be made."""
        chances = self._alone(tables, linkage, at)
        if self.share == 1:
            return chances
        beside = log_odds(linkage.chances(tables, at) if estimates is None else estimates)
        return np.asarray(1 / (1 + np.exp(-self.share * log_odds(chances) - (1 - self.share) * beside)))

    def _alone(self, tables: MatchedTables, linkage: Linkage, at: Ids) -> Floats:
        """By what was learned from labels alone."""
        ratios = linkage.ratios(tables, at)

        def score(features: Floats, part: slice) -> Floats:
            return self.scorer.chances(np.column_stack([features, ratios[part]]))

        chances = np.concatenate([np.zeros(0), *tables.of_features(at, score)])
        if self.reader is None:
            return np.asarray(chances)
        return self.reader.together(chances, self.reader.read(chances, lambda some: tables.pair_texts(at[some])))

    def forget(self, keep: Ids, keys: Sequence[str]) -> None:
        """Take labelled pairs out of what explanations show, and out of what the reader holds.

        Args:
            keep: which of the pairs stay, bool ``[m]``.
            keys: of the others.
        """
        self.known = self.known[keep]
        if self.reader is not None and not self.reader.forget(keys):
            self.reader = None  # it has no pair left


def threshold_and_doubt(
    chances: Floats, truth: Ids, precision: float | None, others: Floats
) -> tuple[float, tuple[float, float]]:
    """The probability of the best F1, or that a precision is promised from, and the band in which a person should look.

    Args:
        chances: probabilities of pairs that nothing was learned from, ``[n]``.
        truth: 0 or 1 of each.
        precision: see :class:`vicinal.estimators.RowMatcher`.
        others: probabilities of those that nobody labelled, ``[m]``: of the links among them it is promised.
    """
    threshold, count = 0.0 if precision else best_f1(chances, truth), -1
    while precision and count != (links := max(_LINKS, int((others >= threshold).sum()))):
        lowest = precision_threshold(chances, truth, precision, level=RISK, others=links)
        threshold, count = max(threshold, lowest), links  # from a higher one there are fewer links
    falling = np.argsort(-chances, kind="stable")
    wrong = np.cumsum(1 - truth[falling]) / np.arange(1, len(truth) + 1)
    clean = np.flatnonzero(wrong <= _WRONG)
    high = float(chances[falling[clean[-1]]]) if len(clean) else 1.0
    low = float(np.quantile(chances[truth == 1], _WRONG))
    return threshold, (min(low, threshold), max(high, threshold))


def correct_hubs(tables: MatchedTables, matches: pd.DataFrame) -> str:
    """Take the temperature of most matches in the first place, if it is more than without; gives a sentence."""
    matches = matches.drop_duplicates("left")
    left, right = (matches[side].to_numpy(copy=True) for side in ("left", "right"))
    shares: dict[float | None, float] = {}
    for temperature in (None, *TEMPERATURES):
        tables.correct(temperature)
        rows = torch.from_numpy(left)
        hits = tables.by_vectors(tables.left.vectors[rows], 1, exclude=rows if tables.is_single else None)
        shares[temperature] = float((hits.ids[:, 0].numpy() == right).mean())
    best = max(shares, key=lambda temperature: (round(shares[temperature], 4), temperature is None))
    tables.correct(best)
    said = {t: f"{100 * share:.1f} %" for t, share in shares.items()}
    if best is None:
        return f"Hub correction off: it did not improve recall@1 of the vectors ({said[None]})."
    return f"Hub correction on (temperature {best}): recall@1 {said[best]}, without it {said[None]}."
