"""A search by vectors and words, read again by a ranker, and cut where hits are no longer right."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal.calibration import precision_threshold
from vicinal.core import listed, short
from vicinal.core.checks import CellWarning, check_between, check_integer
from vicinal.core.identity import IdentityWarning
from vicinal.data.cells import missing_cells
from vicinal.estimators.base import NeighborEstimator
from vicinal.estimators.elements import element_counts
from vicinal.estimators.fitted import once
from vicinal.estimators.out_of_fold import Who
from vicinal.estimators.search import Hit, hits_at, search_rows
from vicinal.index.base import Hits
from vicinal.index.lexical import LexicalIndex, Terms, beside, fuse

QUERY, SCORE = "query", "score"
"""Columns that a ranker may read beside those of a candidate: the text that is looked for, and its score."""

KINDS = ("words", "letters")
"""Of terms."""

_FEWEST, _VOTES = 20, 10
"""Rows held out by which a threshold is chosen, and hits of which the share of a class is one, at least."""


@dataclass(frozen=True)
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
    model: NeighborEstimator, table: pd.DataFrame, vectors: Tensor, k: int, who: Who, by: Refinement
) -> list[list[Hit]]:
    """At most ``k`` hits of each query, best first.

    Args:
        model: fitted.
        table: the queries' columns.
        vectors: their embeddings ``[n, d]``.
        k: >= 1.
        who: their ids and groups, which a hit does not have.
        by: how.
    """
    by.check(model)
    blank = _blank(table, model.kinds_)
    if blank.any():
        warnings.warn(
            f"queries: {int(blank.sum())} of {len(blank)} have no known cell, as of an empty set, and find nothing",
            CellWarning,
            stacklevel=4,
        )
        if blank.all():
            return [[] for _ in blank]
    some = {name: None if each is None else each[~blank] for name, each in who.items()}
    answers = iter(_shown(model, table[~blank], vectors[torch.from_numpy(~blank)], k, some, by))
    return [[] if nothing else next(answers) for nothing in blank]


def _blank(table: Any, kinds: Mapping[str, str]) -> NDArray[np.bool_]:
    """Queries ``[n]`` that have nothing in any column read, which would find rows that have nothing, too.

    >>> table = pd.DataFrame({"x": [None, None, 3], "tags": ["[]", ["new"], []]})
    >>> _blank(table, {"x": "number", "tags": "set"}).tolist()
    [True, False, False]
    """
    read = [name for name in kinds if name in table] if isinstance(table, pd.DataFrame) else []
    if not read:
        return np.zeros(len(table), dtype=bool)
    counts = element_counts(table, {name: kinds[name] for name in read})
    gone = [missing_cells(table[name]) if name not in counts else counts[name].to_numpy() == 0 for name in read]
    return np.all(gone, axis=0)


def _shown(
    model: NeighborEstimator, table: pd.DataFrame, vectors: Tensor, k: int, who: Who, by: Refinement
) -> list[list[Hit]]:
    """The same for queries that say something."""
    if by.precision is None:
        return _ordered(model, table, vectors, k, who, by)
    hits, least = _ordered(model, table, vectors, max(k, _VOTES), who, by), _threshold(model, k, by)
    return [
        [hit for hit, chance in zip(some[:k], chances, strict=False) if chance >= least]
        for some, chances in zip(hits, _chances(model, vectors, who, hits), strict=True)
    ]


def _ordered(
    model: NeighborEstimator, table: pd.DataFrame, vectors: Tensor, k: int, who: Who, by: Refinement
) -> list[list[Hit]]:
    """The same without a cut."""
    depth = max(k, by.calls) if by.rerank is not None else k
    codes = model.bank_.store.group_codes
    largest = 1 if codes is None or who["groups"] is None else int(torch.unique(codes, return_counts=True)[1].max())
    most = min(2 * depth + 20, len(model.bank_) - largest) if by.words else depth  # a group finds no row of it
    hits: list[list[Hit]] = search_rows(model, vectors, max(depth, most), **who)
    if not by.words and by.rerank is None:
        return hits
    texts = joined_texts(table, text_columns(model))
    if by.words:
        hits = _with_words(model, texts, hits, depth, who)
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


@once
def _words(model: NeighborEstimator) -> _Words:
    return _Words.of(joined_texts(model.bank_.rows, text_columns(model)))


def _with_words(
    model: NeighborEstimator, texts: Sequence[str], hits: list[list[Hit]], depth: int, who: Who
) -> list[list[Hit]]:
    """The fusion of hits by vectors and by words; scores are sums of reciprocal ranks."""
    bank = model.bank_
    codes, most = bank.codes_of(who["groups"]), min(len(bank), 2 * depth + 20)
    words = _words(model).search(texts, most, bank.keys_of(who["ids"]))
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


def _labels_of(model: NeighborEstimator, hits: Sequence[Sequence[Hit]]) -> tuple[Tensor, ...]:
    """Labels of the bank of the hits of each query."""
    places = model.bank_.store.positions([hit.id for some in hits for hit in some])
    return torch.split(model.bank_.labels[places], [len(some) for some in hits])


def _same(one: Tensor, other: Tensor, *, several: bool) -> Tensor:
    """Whether rows have a class in common."""
    return (one * other).sum(-1) > 0 if several else one == other


@torch.no_grad()
def _chances(model: NeighborEstimator, vectors: Tensor, who: Who, hits: Sequence[Sequence[Hit]]) -> list[list[float]]:
    """How likely each hit of each query is right.

    That is the predicted probability of its class; of a model that predicts none, the share of hits of its class.
    """
    if not hasattr(model, "predict"):
        labels = _labels_of(model, hits)
        return [_same(one[:, None], one[None], several=one.ndim == 2).double().mean(1).tolist() for one in labels]
    shares = model.fitted_.in_label_units(model.fitted_.answer(vectors, who)).double().clamp(0, 1)
    classes = [model.fitted_.codec.as_predicted(labels) for labels in _labels_of(model, hits)]
    return [(one * each).amax(1).tolist() if len(each) else [] for one, each in zip(shares, classes, strict=True)]


@once
def _threshold(model: NeighborEstimator, k: int, by: Refinement) -> float:
    """The least chance of a hit for a promise, chosen by rows held out; once for each way to search.

    Of each of these rows, as a query, one hit is drawn, so that the pairs do not hang together.
    """
    judges = model.calibration_
    if len(judges) < _FEWEST:
        count = max(_FEWEST, math.ceil(math.log(0.05) / math.log(float(by.precision or 0))))  # all of them right
        raise ValueError(
            f"precision: expected at least {count} rows held out, as a promise of {by.precision:g} needs, got "
            f"{len(judges)}; fit on more rows, or ask for less"
        )
    vectors, who = judges.vectors.double(), model.identity_of(len(judges), judges.ids, judges.groups)
    hits = _ordered(model, judges.rows, vectors, max(k, _VOTES), who, by)
    chances = _chances(model, vectors, who, hits)
    draw, pairs = np.random.default_rng(0), []
    for truth, some, labels in zip(judges.labels, chances, _labels_of(model, hits), strict=True):
        if some:
            at = int(draw.integers(min(k, len(some))))
            pairs.append((some[at], bool(_same(labels[at], truth, several=truth.ndim == 1))))
    try:
        likely, right = np.array(pairs, dtype=float).reshape(-1, 2).T
        return precision_threshold(likely, right, float(by.precision or 0))
    except ValueError as error:
        raise ValueError(f"{error} (a pair is a row held out and one of its hits)") from None
