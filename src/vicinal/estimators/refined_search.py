"""A search by vectors and words, read again by a ranker, and cut where hits are no longer right."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.calibration import RelevanceFilter
from vicinal.core import listed, short
from vicinal.core.checks import check_between, check_integer
from vicinal.core.identity import IdentityWarning
from vicinal.core.seeding import seeded
from vicinal.estimators.base import NeighborEstimator
from vicinal.estimators.search import Hit, hits_at, search_rows
from vicinal.index.base import Hits
from vicinal.index.lexical import LexicalIndex, Terms, beside, fuse

QUERY, SCORE = "query", "score"
"""Columns that a ranker may read beside those of a candidate: the text that is looked for, and its score."""

KINDS = ("words", "letters")
"""Of terms."""

_FEWEST = 20
"""Rows held out of which a cut is learned, at least."""


@dataclass(frozen=True, eq=False)
class Refinement:
    """How candidates are found and ordered, and which of them are shown.

    Attributes:
        words: whether words and letters count beside the vectors, by reciprocal rank fusion.
        rerank: a model of grades that orders the candidates, or None.
        calls: candidates of each query that it reads.
        precision: the share of shown hits that must be right, or None: all are shown.
    """

    words: bool = False
    rerank: Any = None
    calls: int = 50
    precision: float | None = None

    def check(self, model: NeighborEstimator) -> None:
        """Raise ValueError for what does not go with the model."""
        check_integer("calls", self.calls)
        if self.words and not text_columns(model):
            raise ValueError("words: expected a model that reads a column of texts, got one that reads none")
        if self.precision is not None:
            check_between("precision", self.precision, 0, 1)
            if model.fitted_.codec.kind == "numbers":
                raise ValueError("precision: expected a model whose rows have classes, got one whose rows have numbers")
        if self.rerank is not None:
            _check_ranker(self.rerank, model)


def text_columns(model: NeighborEstimator) -> list[str]:
    """Columns of texts that the model reads."""
    return [name for name, kind in model.kinds_.items() if kind == "text"]


def _check_ranker(ranker: Any, model: NeighborEstimator) -> None:
    if not hasattr(ranker, "predict") or ranker.fitted_.codec.kind != "numbers" or ranker.targets_ is not None:
        raise ValueError("rerank: expected a model of one column of grades (vicinal fit --query), got another")
    rows = model.bank_.store.rows_at(torch.zeros(1, dtype=torch.int64))
    known = [*map(str, rows.columns), QUERY, SCORE]
    names = [str(name) for name in getattr(ranker, "feature_names_in_", ["x0"])]
    strange = [name for name in names if name not in known]
    if strange:
        raise ValueError(
            f"rerank: expected a ranker of columns among {listed(known, 200)}, got one that reads {short(strange[0])}"
        )


def refined_search(
    model: NeighborEstimator,
    table: pd.DataFrame,
    vectors: Tensor,
    k: int,
    ids: Any,
    groups: Any,
    by: Refinement,
) -> list[list[Hit]]:
    """At most ``k`` hits of each query, best first.

    Args:
        model: fitted.
        table: the queries' columns.
        vectors: their embeddings ``[n, d]``.
        k: >= 1.
        ids: see :func:`vicinal.estimators.search.search_rows`, as for ``groups``.
        groups: likewise.
        by: how.
    """
    by.check(model)
    hits = _ordered(model, table, vectors, k, ids, groups, by)
    if by.precision is None:
        return hits
    cut = _cut(model, k, by)
    return [
        [hit for hit, right in zip(some, cut.shown(one, some), strict=True) if right]
        for one, some in zip(vectors, hits, strict=True)
    ]


def _ordered(
    model: NeighborEstimator, table: pd.DataFrame, vectors: Tensor, k: int, ids: Any, groups: Any, by: Refinement
) -> list[list[Hit]]:
    """The same without a cut."""
    depth = max(k, by.calls) if by.rerank is not None else k
    codes = model.bank_.store.group_codes
    largest = 1 if codes is None or groups is None else int(torch.unique(codes, return_counts=True)[1].max())
    near = (
        max(depth, min(2 * depth + 20, len(model.bank_) - largest)) if by.words else depth
    )  # a group finds no row of it
    hits: list[list[Hit]] = search_rows(model, vectors, near, ids, groups)
    if not by.words and by.rerank is None:
        return hits
    texts = joined_texts(table, text_columns(model))
    if by.words:
        hits = _with_words(model, texts, hits, depth, ids, groups)
    return hits if by.rerank is None else [some[:k] for some in _reranked(by, texts, hits)]


def joined_texts(table: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """The texts of each row, one behind the other; "" of a row without any.

    >>> joined_texts(pd.DataFrame({"a": ["x", None], "b": ["y", None]}), ["a", "b"])
    ['x y', '']
    """
    cells = table.reindex(columns=list(columns)).astype(object)
    cells = cells.where(cells.notna(), "").astype(str)
    return [" ".join(filter(None, row)) for row in cells.itertuples(index=False, name=None)] or [""] * len(table)


@dataclass(frozen=True, eq=False)
class _Words:
    """The texts of a bank by their words and letters."""

    terms: Sequence[Terms]
    index: LexicalIndex

    @classmethod
    def of(cls, texts: Sequence[str]) -> "_Words":
        """Terms weighed by how rare they are in these texts."""
        terms = [Terms(kind).fit(texts) for kind in KINDS]
        return cls(terms, LexicalIndex(beside([one.unit(one.counts(texts)) for one in terms])))

    def search(self, texts: Sequence[str], k: int, exclude: Tensor | None) -> Hits:
        """The ``k`` rows that share most with each text."""
        return self.index.search(beside([one.unit(one.counts(texts)) for one in self.terms]), k, exclude=exclude)


def _with_words(
    model: NeighborEstimator, texts: Sequence[str], hits: list[list[Hit]], depth: int, ids: Any, groups: Any
) -> list[list[Hit]]:
    """The fusion of hits by vectors and by words; scores are sums of reciprocal ranks."""
    bank, computed = model.bank_, model.fitted_.computed
    if "words" not in computed.searches:
        computed.searches["words"] = _Words.of(joined_texts(bank.rows, text_columns(model)))
    identity = model.identity_of(len(texts), ids, groups)
    themselves = None if identity["ids"] is None else bank.store.positions(identity["ids"])
    codes, most = bank.codes_of(identity["groups"]), min(len(bank), 2 * depth + 20)
    words = computed.searches["words"].search(texts, most, themselves)
    if codes is not None and bank.store.group_codes is not None:  # nor rows of the query's group
        same = bank.store.group_codes[words.ids.clamp(min=0)] == codes[:, None]
        words = Hits(words.ids.masked_fill(same, -1), words.scores)
    width = max(map(len, hits), default=0)
    near = torch.full((len(hits), width), -1)
    for row, some in enumerate(hits):
        near[row, : len(some)] = bank.store.positions([hit.id for hit in some])
    fused = fuse([Hits(near, torch.zeros(near.shape)), words], depth)
    return [hits_at(model, row[row >= 0], score[row >= 0].tolist()) for row, score in zip(*fused, strict=True)]


def _reranked(by: Refinement, texts: Sequence[str], hits: list[list[Hit]]) -> list[list[Hit]]:
    """The first hits of each query in the order of the ranker's grades, which become their scores."""
    each = [some[: by.calls] for some in hits]
    rows = [{**hit.row, QUERY: text, SCORE: hit.score} for text, some in zip(texts, each, strict=True) for hit in some]
    if not rows:
        return each
    names = [str(name) for name in by.rerank.feature_names_in_]
    groups = [f"search {place}" for place, some in enumerate(each) for _ in some]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentityWarning)  # of rows that are found again and again
        grades = by.rerank.predict(pd.DataFrame(rows)[names], groups=groups if by.rerank.bank_.grouped else None)
    graded, done = [], 0
    for some in each:
        scored = [
            replace(hit, score=float(grade)) for hit, grade in zip(some, grades[done : done + len(some)], strict=True)
        ]
        graded.append(sorted(scored, key=lambda hit: -hit.score))
        done += len(some)
    return graded


@dataclass(frozen=True, eq=False)
class _Cut:
    """Which hits of a query are shown: those that are right with a probability from a threshold on.

    Attributes:
        relevance: of vectors of queries and standardized scores.
        mean: of scores.
        spread: of scores.
    """

    relevance: RelevanceFilter
    mean: float
    spread: float

    def standard(self, scores: Sequence[float]) -> Tensor:
        """Standardized scores, float32."""
        return ((torch.tensor(scores, dtype=torch.float64) - self.mean) / self.spread).float()

    def shown(self, vector: Tensor, hits: Sequence[Hit]) -> list[bool]:
        """Whether each hit of a query is shown."""
        if not hits:
            return []
        scores = self.standard([hit.score for hit in hits])
        shown: list[bool] = self.relevance.shown(vector[None].float(), scores[None])[0].tolist()
        return shown


def _cut(model: NeighborEstimator, k: int, by: Refinement) -> _Cut:
    """The cut for a promise, learned of rows held out; once for each way to search.

    Half of these rows, as queries, fit the probabilities; of each other one hit is drawn, so that the pairs of which
    the threshold is chosen do not hang together.
    """
    key, computed = f"{k} {by.words} {by.calls} {by.precision} {id(by.rerank)}", model.fitted_.computed
    if key in computed.searches:
        cut: _Cut = computed.searches[key][0]
        return cut
    judges = model.calibration_
    if len(judges) < _FEWEST:
        raise ValueError(f"precision: expected at least {_FEWEST} rows held out, to promise it by, got {len(judges)}")
    vectors = judges.vectors.double()
    hits = _ordered(model, judges.rows, vectors, k, judges.ids, judges.groups, replace(by, precision=None))
    labels = judges.labels.reshape(len(judges), -1)
    known = model.bank_.labels.reshape(len(model.bank_), -1)
    several, draw = judges.labels.ndim == 2, np.random.default_rng(0)
    order = draw.permutation([row for row, some in enumerate(hits) if some])
    pairs: list[list[tuple[int, float, bool]]] = [[], []]
    for place, row in enumerate(order.tolist()):
        at = known[model.bank_.store.positions([hit.id for hit in hits[row]])]
        right = (at * labels[row]).sum(1) > 0 if several else (at == labels[row]).all(1)
        some = [(row, hit.score, bool(one)) for hit, one in zip(hits[row], right.tolist(), strict=True)]
        pairs[place % 2] += some if place % 2 == 0 else [some[int(draw.integers(len(some)))]]
    (rows, scores, truth), (others, other_scores, other_truth) = (zip(*some, strict=True) for some in pairs)
    cut = _Cut(RelevanceFilter(vectors.shape[1]), float(np.mean(scores)), float(np.std(scores)) or 1.0)
    judged = [torch.tensor(one) for one in (truth, other_truth)]
    with seeded(0):
        if bool(judged[0].any()) and not bool(judged[0].all()):
            cut.relevance.fit(vectors[list(rows)].float(), cut.standard(scores), judged[0])
        chosen = vectors[list(others)].float(), cut.standard(other_scores), judged[1]
        try:
            cut.relevance.choose(*chosen, precision=by.precision)
        except ValueError as error:
            raise ValueError(
                f"{error} (a pair is a row held out and one of its hits; half of these rows count)"
            ) from None
    computed.searches[key] = cut, by.rerank  # which its id must outlive
    return cut
