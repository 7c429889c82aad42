"""Questions to the abstracts that answer them, Cranfield and CISI: a fitted matcher's search beside BM25.

What ``RowMatcher.search`` and ``vicinal search`` answer from two tables without labelled pairs: vectors of a frozen
encoder (MiniLM), words and letters, and both fused by their ranks. BM25 is that of ``rank_bm25`` (Okapi, k1 1.5, b .75,
words in lower case) and of ``bm25s`` with its English stop words and Snowball stems; neither is a dependency: install
them beside the project. Only ``--rerank`` learns from judgements, of the
other half of the questions. docs/results/search.md has the figures.

    python benchmarks/matching_retrieval.py --data DATA/retrieval --cache runs/matching-rows
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from resumable import asked

from vicinal import NeighborRegressor
from vicinal.encoders import MiniLMEncoder
from vicinal.encoders.base import embed
from vicinal.estimators import RowMatcher
from vicinal.metrics import ndcg

OUT = Path(__file__).parent / "results" / "matching-retrieval.csv"
SETS = ("cranfield", "cisi")
DEPTH, DRAWS, CALLS = 10, 1000, 20


def read(data: Path, name: str) -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray]:
    """Queries that were judged, documents, and grades ``[queries, documents]``."""
    docs, queries, judged = (pd.read_parquet(data / f"{name}_{part}.parquet") for part in ("docs", "queries", "qrels"))
    if "query_position" in judged:
        queries["query_id"], judged["query_id"] = queries["position"].astype(str), judged["query_position"].astype(str)
    judged = judged[judged["grade"] > 0]
    queries = queries[queries["query_id"].isin(judged["query_id"])].reset_index(drop=True)
    grades = np.zeros((len(queries), len(docs)))
    at = (
        pd.Index(queries["query_id"]).get_indexer(judged["query_id"]),
        pd.Index(docs["doc_id"]).get_indexer(judged["doc_id"]),
    )
    grades[at] = judged["grade"]
    return queries[["query_id", "text"]], docs[["doc_id", "title", "text"]], grades


def whole(docs: pd.DataFrame) -> list[str]:
    """Title and text of each document; of Cranfield the text begins with the title."""
    return [
        text if text.startswith(title) else f"{title} {text}"
        for title, text in docs[["title", "text"]].fillna("").itertuples(index=False)
    ]


def by_matcher(
    queries: pd.DataFrame, docs: list[str], grades: np.ndarray, cache: Path, encoder: str = "minilm"
) -> np.ndarray:
    """Scores of a matcher that was given no pairs."""
    table = pd.DataFrame({"id": range(len(docs)), "text": [text or "-" for text in docs]})
    model = RowMatcher("query_id", encoders={"text": encoder}, cache_dir=cache).fit(queries, table)
    hits = model.search(queries["text"].tolist(), 100)
    scores = np.full((len(queries), len(docs)), -1.0)
    scores[hits["query"], hits["right"].astype(int)] = hits["score"]
    return scores


def frozen(texts: list[str]) -> torch.Tensor:
    """Vectors of length 1 of the frozen encoder."""
    frame = pd.DataFrame({"text": texts})
    encoder = MiniLMEncoder("text").fit(frame)
    return embed(encoder, encoder.prepare(frame)).double()


def by_vectors(queries: pd.DataFrame, docs: list[str], grades: np.ndarray, cache: Path) -> np.ndarray:
    """Cosines of the frozen encoder's vectors."""
    return (frozen(queries["text"].tolist()) @ frozen(docs).T).numpy()


def by_sentences(queries: pd.DataFrame, docs: list[str], grades: np.ndarray, cache: Path) -> np.ndarray:
    """The largest cosine of a sentence of each document; of one without any, -1."""
    each = [[part for part in re.split(r"(?<=[.?!])\s+", text) if len(part) > 20] for text in docs]
    whose = np.repeat(np.arange(len(docs)), [len(some) for some in each])
    cosines = (frozen(queries["text"].tolist()) @ frozen([part for some in each for part in some]).T).numpy()
    scores = np.full((len(queries), len(docs)), -1.0)
    np.maximum.at(scores, (slice(None), whose), cosines)
    return scores


def reranked(queries: pd.DataFrame, docs: list[str], grades: np.ndarray, cache: Path) -> np.ndarray:
    """The first 20 hits of the fusion by a model of `fit --query` that learned from the other half of the queries.

    It reads what `search --rerank` gives it: the query, the text of the hit and the score.
    """
    first = by_matcher(queries, docs, grades, cache)
    order = np.argsort(-first, axis=1, kind="stable")[:, :CALLS]
    rows = pd.DataFrame(
        {
            "query": queries["text"].repeat(CALLS).to_numpy(),
            "text": np.array(docs, dtype=object)[order.ravel()],
            "score": np.take_along_axis(first, order, 1).ravel(),
        }
    )
    target, whose = np.take_along_axis(grades, order, 1).ravel(), np.arange(len(queries)).repeat(CALLS)
    half, scores = np.random.default_rng(0).permutation(len(queries)) % 2, np.where(first >= 0, first - 1e3, -1e4)
    for part in (0, 1):
        train = half[whose] != part
        model = NeighborRegressor(cache_dir=cache).fit(rows[train], target[train], queries=whose[train])
        said = model.predict(rows[~train], groups=whose[~train])
        scores[whose[~train], order.ravel()[~train]] = said
    return scores


def words(text: str) -> list[str]:
    """Words in lower case."""
    return re.findall(r"\w+", text.lower())


def okapi(queries: pd.DataFrame, docs: list[str], grades: np.ndarray, cache: Path) -> np.ndarray:
    """Scores of rank_bm25."""
    from rank_bm25 import BM25Okapi

    model = BM25Okapi([words(text) for text in docs])
    return np.stack([model.get_scores(words(text)) for text in queries["text"]])


def stemmed(queries: pd.DataFrame, docs: list[str], grades: np.ndarray, cache: Path) -> np.ndarray:
    """Scores of bm25s with stop words and stems."""
    import bm25s
    import Stemmer

    stemmer = Stemmer.Stemmer("english")
    model = bm25s.BM25()
    model.index(bm25s.tokenize(docs, stopwords="en", stemmer=stemmer, show_progress=False), show_progress=False)
    asked = bm25s.tokenize(queries["text"].tolist(), stopwords="en", stemmer=stemmer, show_progress=False)
    ids, scores = model.retrieve(asked, k=100, show_progress=False)
    table = np.full((len(queries), len(docs)), -1.0)
    np.put_along_axis(table, ids.astype(np.int64), scores, axis=1)
    return table


METHODS: dict[str, Callable[[pd.DataFrame, list[str], np.ndarray, Path], np.ndarray]] = {
    "vicinal search: vectors and words": by_matcher,
    "words and letters alone": partial(by_matcher, encoder="none"),
    "vectors of MiniLM alone": by_vectors,
    "the nearest sentence of each document": by_sentences,
    "the first 20 hits by `--rerank`": reranked,
    "BM25": okapi,
    "BM25, stop words and stems": stemmed,
}


def run(data: Path, cache: Path) -> None:
    """All figures, with bootstrap intervals over the queries, also of how far each method is behind the first."""
    lines = []
    for name in SETS:
        queries, docs, grades = read(data, name)
        texts, random = whole(docs), np.random.default_rng(0)
        draws = random.integers(0, len(queries), (DRAWS, len(queries)))
        values = {
            method: ndcg(
                torch.from_numpy(scores(queries, texts, grades, cache)), torch.from_numpy(grades), k=DEPTH
            ).numpy()
            for method, scores in METHODS.items()
        }
        first = next(iter(METHODS))
        for method, each in values.items():
            bounds = [np.quantile(some[draws].mean(axis=1), [0.025, 0.975]) for some in (each, values[first] - each)]
            lines.append((name, method, len(queries), len(docs), each.mean(), *bounds[0], *bounds[1]))
            print(*lines[-1], flush=True)
    columns = ["set", "method", "queries", "documents", "ndcg@10", "low", "high", "behind_low", "behind_high"]
    pd.DataFrame(lines, columns=columns).round(4).to_csv(OUT, index=False)


if __name__ == "__main__":
    arguments = asked(__doc__, data=Path, cache=Path("runs/matching-rows"))
    run(arguments.data, arguments.cache)
