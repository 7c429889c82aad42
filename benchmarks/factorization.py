"""Vectors of clicks on CiteULike-t: ALS beside popularity, item k-NN and, where it is installed, ``implicit``.

    python benchmarks/factorization.py citeulike_t_interactions.parquet --out benchmarks/results/factorization.csv

Each user's interactions are split 80 / 20; users with a hidden item are scored by recall@20 and nDCG@20 over the items
that they have not yet. Times are processor seconds of one thread.
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import sparse

from vicinal.factorization import als
from vicinal.metrics import ndcg, recall_at_k

CUT, SETTINGS = 20, {"confidence": 20.0, "ridge": 10.0, "sweeps": 10}


def split(table, seed):
    """Four of five interactions, and the others, as sparse matrices of one shape."""
    random = np.random.default_rng(seed)
    users, items = (pd.factorize(table[name])[0] for name in ("user_id", "item_id"))
    hidden = random.random(len(table)) < 0.2
    shape = users.max() + 1, items.max() + 1
    ones = np.ones(len(table), np.float32)
    return [sparse.csr_array((ones[part], (users[part], items[part])), shape=shape) for part in (~hidden, hidden)]


def quality(score, train, test):
    """Means over users with a hidden item; ``score(users)`` gives ``[b, N]``."""
    users = np.flatnonzero(np.diff(test.indptr))
    sums = np.zeros(2)
    for start in range(0, len(users), 500):
        some = users[start : start + 500]
        scores = torch.as_tensor(np.asarray(score(some)))
        top = scores.masked_fill(torch.from_numpy(train[some].toarray() > 0), -torch.inf).topk(200)
        relation = torch.from_numpy(test[some].toarray())
        count = relation.sum(1)
        near = relation.gather(1, top.indices)
        rest = count - near.sum(1)  # what was not among the first 200 is related at a lower rank
        width = int(rest.max())
        tail = (torch.arange(width) < rest[:, None]).float()
        ranks = torch.cat([-torch.arange(200.0).expand(len(some), -1), torch.full((len(some), width), -1e6)], 1)
        both = torch.cat([near, tail], 1)
        sums += [float(each.sum()) for each in (recall_at_k(ranks, both, k=CUT), ndcg(ranks, both, k=CUT))]
    return {"recall": sums[0] / len(users), "ndcg": sums[1] / len(users)}


def popularity(train):
    counts = train.sum(0)
    return lambda users: np.tile(counts, (len(users), 1))


def item_neighbors(train, k=100):
    """Cosines of items, the k largest of each."""
    lengths = np.sqrt(np.maximum(train.sum(0), 1)).astype(np.float32)
    unit = train @ sparse.diags_array(1 / lengths)
    near = sparse.csr_array(unit.T @ unit)
    near.setdiag(0)
    for row in range(near.shape[0]):
        values = near.data[near.indptr[row] : near.indptr[row + 1]]
        if len(values) > k:
            values[values < np.partition(values, -k)[-k]] = 0
    near.eliminate_zeros()
    return lambda users: (train[users] @ near.T).toarray()


def ours(train, rank, seed):
    factors = als(train, rank, generator=torch.Generator().manual_seed(seed), **SETTINGS)
    return lambda users: factors.rows[users] @ factors.columns.T


def theirs(train, rank, seed):
    """``implicit``, whose confidence is 1 where nothing is, too, and alpha times the value elsewhere."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    from implicit.cpu.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(
        rank, regularization=SETTINGS["ridge"], alpha=SETTINGS["confidence"], iterations=SETTINGS["sweeps"],
        num_threads=1, random_state=seed, use_cg=False, dtype=np.float32,
    )  # fmt: skip
    model.fit(sparse.csr_matrix(train), show_progress=False)
    return lambda users: model.user_factors[users] @ model.item_factors.T


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--implicit", action="store_true", help="the package is installed; it is no dependency")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/factorization.csv"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    table = pd.read_parquet(arguments.table)
    methods = {"popularity": popularity, "item k-NN": item_neighbors}
    for rank in (64, 128):
        methods[f"als, rank {rank}"] = lambda train, rank=rank: ours(train, rank, 0)
    if arguments.implicit:
        methods["implicit als, rank 64"] = lambda train: theirs(train, 64, 0)
    results = []
    for seed in range(arguments.seeds):
        train, test = split(table, seed)
        for name, fit in methods.items():
            start = time.process_time()
            score = fit(train)
            seconds = time.process_time() - start
            results.append({"method": name, "seed": seed, "seconds": seconds, **quality(score, train, test)})
            print(results[-1], flush=True)
            pd.DataFrame(results).to_csv(arguments.out, index=False)
    means = pd.DataFrame(results).groupby("method", sort=False)[["recall", "ndcg", "seconds"]].agg(["mean", "std"])
    print(means.round(4).to_string())


if __name__ == "__main__":
    main()
