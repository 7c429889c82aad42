"""How many documents a fixed-dimensional encoding of their tokens must give for MaxSim to find its best ten among them.

Documents and queries are the token vectors of MiniLM (of length 1, at most 256 of a text) of Cranfield and CISI. Beside
MUVERA: the inner product of mean vectors; the search of each query token among all tokens, documents in the order of
their best rank for any of them; and FAISS's search of each query token in some cells of an inverted file, documents in
the order of the sum of what was found of them. A line of the CSV that is there is not run again. The figures of
docs/results/sets.md.

    python benchmarks/sets_retrieval.py --data ../shared/data --cache runs/tokens
"""

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.encoders import MiniLMEncoder
from vicinal.similarity import FixedDimensionalEncoding

if TYPE_CHECKING:
    import faiss

COUNTS = (10, 20, 50, 100, 200)
"""How many documents are rescored."""

SETTINGS = (
    {"bits": 3, "repetitions": 10, "projected": 8},
    {"bits": 4, "repetitions": 20, "projected": 16},
    {"bits": 5, "repetitions": 20, "projected": 16},
    {"bits": 5, "repetitions": 20, "projected": 32},
    {"bits": 5, "repetitions": 20, "projected": 32, "sketched": 2560},
)

CELLS, PROBED, FOUND = 512, (1, 4, 16), (64, 512)
"""Of the inverted file of tokens, how many of them are searched, and how many tokens each query token finds."""


@torch.no_grad()
def tokens(texts: list[str], cache: Path) -> tuple[Tensor, Tensor]:
    """Token vectors ``[total, 384]`` of length 1, one text after the other, and their numbers."""
    if cache.is_file():
        file = np.load(cache)
        return torch.from_numpy(file["vectors"]).float(), torch.from_numpy(file["lengths"])
    encoder = MiniLMEncoder("x").eval()
    inputs = encoder.prepare(pd.DataFrame({"x": texts}))
    lengths, vectors = inputs.sizes(), torch.empty(int(inputs.sizes().sum()), 384)
    for rows in torch.split(torch.argsort(lengths, stable=True), 16):
        values, counts = inputs.padded(rows)
        mask = torch.arange(values.shape[1]) < counts[:, None]
        hidden = encoder.net(input_ids=values.long(), attention_mask=mask.long()).last_hidden_state
        vectors[inputs.take(rows)[0]] = torch.nn.functional.normalize(hidden[mask], dim=1)
    cache.parent.mkdir(parents=True, exist_ok=True)
    np.savez(cache, vectors=vectors.half().numpy(), lengths=lengths.numpy())
    return vectors, lengths


def best_of_documents(queries: Tensor, documents: Tensor, lengths: Tensor) -> Tensor:
    """The best inner product of each query token with each document ``[tokens, documents]``."""
    best = torch.empty(len(queries), len(lengths))
    for number, part in enumerate(documents.split(lengths.tolist())):
        best[:, number] = (queries @ part.T).amax(dim=1)
    return best


def padded(vectors: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Sets ``[n, longest, d]`` and which places are real."""
    sets = torch.nn.utils.rnn.pad_sequence(list(vectors.split(lengths.tolist())), batch_first=True)
    return sets, torch.arange(sets.shape[1]) < lengths[:, None]


def recall(scores: Tensor, top: Tensor) -> list[float]:
    """Share of ``top [b, 10]`` among the first :data:`COUNTS` by ``scores [b, N]``."""
    order = scores.argsort(dim=1, descending=True, stable=True)
    return [float((order[:, :count, None] == top[:, None, :]).any(dim=1).double().mean()) for count in COUNTS]


def encoded(encoding: FixedDimensionalEncoding, vectors: Tensor, lengths: Tensor, *, is_query: bool) -> Tensor:
    """Encodings ``[n, dim]``, some sets at a time."""
    parts = []
    for some in torch.split(torch.arange(len(lengths)), 32):
        starts = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        sets, valid = padded(vectors[starts[some[0]] : starts[some[-1] + 1]], lengths[some])
        parts.append(encoding.queries(sets, valid) if is_query else encoding.documents(sets, valid))
    return torch.cat(parts)


def faiss_scores(
    index: "faiss.IndexIVFFlat", queries: Tensor, counts: Tensor, owners: Tensor, probed: int, found: int
) -> Tensor:
    """Sums over the tokens of a query of the best that was found of each document ``[b, N]``.

    Of a document of which a token finds nothing, it is the least that it found.
    """
    index.nprobe = probed
    values, places = (torch.from_numpy(each) for each in index.search(queries.numpy(), found))
    documents = owners[places.clamp(min=0)]  # [tokens, found]
    values = torch.where(places >= 0, values, 1.0)
    least = values.amin(dim=1, keepdim=True)
    values = torch.where(places >= 0, values, least)
    best = least.expand(-1, int(owners.max()) + 1).clone().scatter_reduce(1, documents, values, "amax")
    return torch.stack([part.sum(dim=0) for part in best.split(counts.tolist())])


def inverted_file(documents: Tensor) -> "faiss.IndexIVFFlat":
    """FAISS's inverted file of all tokens, by inner products."""
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(384), 384, CELLS, faiss.METRIC_INNER_PRODUCT)
    index.train(documents.numpy())
    index.add(documents.numpy())
    return index


def token_vectors(name: str, options: argparse.Namespace) -> Iterator[tuple[Tensor, Tensor]]:
    """Vectors and their numbers, of the documents and of the queries of a collection."""
    for part, most in (("docs", options.documents), ("queries", options.queries)):
        texts = pd.read_parquet(options.data / "retrieval" / f"{name}_{part}.parquet")["text"].fillna("").tolist()
        yield tokens(texts[:most], options.cache / f"{name}-{part}{'' if most is None else f'-{most}'}.npz")


Search = Callable[[], tuple[int, Tensor, float]]
"""Gives how many numbers are held of the documents, scores ``[b, N]``, and the seconds of all queries."""


def searches(documents: Tensor, sizes: Tensor, queries: Tensor, counts: Tensor) -> dict[str, Search]:
    """All but MaxSim, by name."""
    owners, built = torch.repeat_interleave(torch.arange(len(sizes)), sizes), []

    def timed(numbers: int, scores: Callable[[], Tensor]) -> tuple[int, Tensor, float]:
        begun = time.process_time()
        got = scores()
        return numbers, got, time.process_time() - begun

    def means() -> tuple[int, Tensor, float]:
        bank = torch.stack([part.mean(dim=0) for part in documents.split(sizes.tolist())])
        return timed(
            bank.numel(), lambda: torch.stack([part.mean(dim=0) for part in queries.split(counts.tolist())]) @ bank.T
        )

    def token_ranks() -> Tensor:
        best = best_of_documents(queries, documents, sizes)
        ranks = best.argsort(dim=1, descending=True).argsort(dim=1).double()
        first = torch.stack([part.amin(dim=0) for part in ranks.split(counts.tolist())])
        return -first + 1e-6 * torch.stack([part.sum(dim=0) for part in best.split(counts.tolist())])

    def probe(probed: int, found: int) -> tuple[int, Tensor, float]:
        built.extend([] if built else [inverted_file(documents)])
        return timed(documents.numel(), lambda: faiss_scores(built[0], queries, counts, owners, probed, found))

    def muvera(settings: dict[str, int]) -> tuple[int, Tensor, float]:
        encoding = FixedDimensionalEncoding(384, **settings)
        bank = encoded(encoding, documents, sizes, is_query=False)
        return timed(
            bank.numel(),
            lambda: encoded(encoding, queries, counts, is_query=True) @ bank.T / encoding.repetitions,
        )

    listed: dict[str, Search] = {"mean vectors": means}
    listed["search of tokens"] = lambda: timed(documents.numel(), token_ranks)
    for found, probed in product(FOUND, PROBED):
        listed[f"FAISS, {probed} of {CELLS} cells, {found} tokens found"] = partial(probe, probed, found)
    for settings in SETTINGS:
        label = " ".join(f"{key} {value}" for key, value in settings.items())
        listed[f"MUVERA {label}"] = partial(muvera, settings)
    return listed


def measure(name: str, options: argparse.Namespace, known: set[str]) -> Iterator[list[object]]:
    """Lines of the CSV of one collection."""
    (documents, sizes), (queries, counts) = token_vectors(name, options)
    begun = time.process_time()
    exact = torch.stack(
        [part.sum(dim=0) for part in best_of_documents(queries, documents, sizes).split(counts.tolist())]
    )
    spent, top = time.process_time() - begun, exact.topk(10, dim=1).indices
    shape = (len(sizes), len(counts))
    if "MaxSim of all" not in known:
        yield [name, *shape, "MaxSim of all", documents.numel(), *recall(exact, top), "", f"{spent:.1f}"]
    for label, search in searches(documents, sizes, queries, counts).items():
        if label not in known:
            numbers, scores, spent = search()
            above = f"{float((scores > exact + 1e-3).double().mean()):.5f}" if label.startswith("MUVERA") else ""
            yield [name, *shape, label, numbers, *recall(scores, top), above, f"{spent:.1f}"]


def table(path: Path) -> None:
    """The lines of the CSV as tables, with the numbers held of a document and milliseconds of a query."""
    rows = pd.read_csv(path)
    for name, part in rows.groupby("collection", sort=False):
        documents, queries = part["documents"].iloc[0], part["queries"].iloc[0]
        print(f"\n{name}: {documents} documents, {queries} queries\n")
        print("| search by | numbers | " + " | ".join(f"of {count}" for count in COUNTS) + " | ms |")
        print("| --- " * (len(COUNTS) + 3) + "|")
        for _, row in part.iterrows():
            shares = " | ".join(f"{row[f'of {count}']:.3f}" for count in COUNTS)
            held, spent = row["numbers"] / documents, 1000 * row["seconds"] / queries
            print(f"| {row['method']} | {held:,.0f} | {shares} | {spent:.1f} |")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--cache", type=Path, default=Path("runs/tokens"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/sets-retrieval.csv"))
    parser.add_argument("--collections", nargs="*", default=["cranfield", "cisi"])
    parser.add_argument("--documents", type=int, help="only so many, the first")
    parser.add_argument("--queries", type=int, help="only so many, the first")
    options = parser.parse_args()
    torch.set_num_threads(1)
    done = pd.read_csv(options.out) if options.out.is_file() else pd.DataFrame(columns=["collection", "method"])
    with options.out.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        if done.empty:
            shares = [f"of {count}" for count in COUNTS]
            writer.writerow(["collection", "documents", "queries", "method", "numbers", *shares, "above", "seconds"])
        for name in options.collections:
            for line in measure(name, options, set(done.loc[done["collection"] == name, "method"])):
                writer.writerow([f"{value:.3f}" if isinstance(value, float) else value for value in line])
                file.flush()
                print(*line, flush=True)
    table(options.out)


if __name__ == "__main__":
    main()
