"""How many documents a fixed-dimensional encoding of their tokens must give for MaxSim to find its best ten among them.

Documents and queries are the token vectors of MiniLM (of length 1, at most 256 of a text) of Cranfield and CISI. Beside
MUVERA: the inner product of mean vectors, and the search of each query token among all tokens, documents in the order
of their best rank for any of them. The figures of docs/results/sets.md.

    python benchmarks/sets_retrieval.py --data ../shared/data --cache runs/tokens
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.encoders import MiniLMEncoder
from vicinal.similarity import FixedDimensionalEncoding

COUNTS = (10, 20, 50, 100, 200)
"""How many documents are rescored."""

SETTINGS = (
    {"bits": 3, "repetitions": 10, "projected": 8},
    {"bits": 4, "repetitions": 20, "projected": 16},
    {"bits": 5, "repetitions": 20, "projected": 16},
    {"bits": 5, "repetitions": 20, "projected": 32},
    {"bits": 5, "repetitions": 20, "projected": 32, "sketched": 2560},
)


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


def measure(name: str, options: argparse.Namespace) -> list[list[object]]:
    """Lines of the CSV of one collection."""
    folder = options.data / "retrieval"
    most = {"docs": options.documents, "queries": options.queries}
    texts = [
        pd.read_parquet(folder / f"{name}_{part}.parquet")["text"].fillna("").tolist()[: most[part]] for part in most
    ]
    (documents, sizes), (queries, counts) = (
        tokens(some, options.cache / f"{name}-{part}.npz")
        for some, part in zip(texts, ("docs", "queries"), strict=True)
    )
    begun = time.process_time()
    best = best_of_documents(queries, documents, sizes)
    exact = torch.stack([part.sum(dim=0) for part in best.split(counts.tolist())])
    spent, top = time.process_time() - begun, exact.topk(10, dim=1).indices
    lines: list[list[object]] = [[name, "MaxSim of all", int(sizes.sum()) * 384, *recall(exact, top), f"{spent:.1f}"]]
    means = [
        torch.stack([part.mean(dim=0) for part in vectors.split(lengths.tolist())])
        for vectors, lengths in ((queries, counts), (documents, sizes))
    ]
    lines.append([name, "mean vectors", len(sizes) * 384, *recall(means[0] @ means[1].T, top), ""])
    ranks = best.argsort(dim=1, descending=True).argsort(dim=1)
    first = torch.stack([part.amin(dim=0) for part in ranks.split(counts.tolist())])
    lines.append([name, "search of tokens", int(sizes.sum()) * 384, *recall(-first.double() + 1e-6 * exact, top), ""])
    for settings in SETTINGS:
        encoding = FixedDimensionalEncoding(384, **settings)
        bank = encoded(encoding, documents, sizes, is_query=False)
        begun = time.process_time()
        scores = encoded(encoding, queries, counts, is_query=True) @ bank.T
        spent = time.process_time() - begun
        above = float((scores / encoding.repetitions > exact + 1e-3).double().mean())
        label = " ".join(f"{key} {value}" for key, value in settings.items())
        lines.append([name, f"MUVERA {label}", bank.numel(), *recall(scores, top), f"{spent:.1f}"])
        print(f"{name}, {label}: dim {encoding.dim}, above MaxSim in {above:.1%} of the pairs", flush=True)
    return lines


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--cache", type=Path, default=Path("runs/tokens"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/sets-retrieval.csv"))
    parser.add_argument("--collections", nargs="+", default=["cranfield", "cisi"])
    parser.add_argument("--documents", type=int, help="only so many, the first")
    parser.add_argument("--queries", type=int, help="only so many, the first")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with options.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["collection", "method", "numbers", *(f"of {count}" for count in COUNTS), "seconds"])
        for name in options.collections:
            for line in measure(name, options):
                writer.writerow([f"{value:.3f}" if isinstance(value, float) else value for value in line])
                file.flush()
                print(*line, flush=True)


if __name__ == "__main__":
    main()
