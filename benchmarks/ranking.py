"""Rows ranked within queries, beside LightGBM's LambdaRank: the table of docs/results/rank-and-recommend.md.

LETOR sample of LightGBM: 251 queries, 3,773 rows of 300 columns, grades 0 to 4. Five folds of whole queries, by seed:
every query is ranked once a seed by a model that has not seen it. nDCG@10 with gains 2^grade - 1 of the 245 queries
with more than one grade. LambdaRank and boosted squares choose leaves and number of trees by five folds of the training
queries; vicinal is as it comes. "in context" is a network whose rows read one another (Set-Encoder, one token a row),
beside the same network of single rows; both by RankNet, stopped by a fifth of the training queries.

    python benchmarks/ranking.py --data ../shared/data --seeds 3 --out benchmarks/results/ranking.csv
"""

import time
import warnings
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed
from resumable import asked
from scipy.stats import ttest_1samp

from vicinal import NeighborRegressor
from vicinal.encoders.sets import PassageScorer
from vicinal.evaluation.ranking import lambdarank_baseline, query_ndcg
from vicinal.losses import ranknet
from vicinal.ranks import list_places

RIVAL = "LightGBM, LambdaRank"
LOSSES = ("squared error", "plackett_luce", "soft_ranks", "pointwise", "pairwise: tanh", "listwise")


def letor(folder):
    """Columns, grades and queries of all rows."""
    found = np.load(folder / "retrieval" / "letor_lightgbm.npz")
    x = np.concatenate([found["X_train"], found["X_test"]])[:, 1:].astype(float)  # the first column is 0
    queries = np.concatenate([found["qid_train"], found["qid_test"] + 10_000])
    return x, np.concatenate([found["y_train"], found["y_test"]]).astype(float), queries


def squares(x, y, queries, new, new_queries, seed):
    """LightGBM by squared error, tuned as LambdaRank is."""
    names, codes = np.unique(queries, return_inverse=True)
    fold = (np.random.default_rng(seed).permutation(len(names)) % 5)[codes]
    folds = [(np.flatnonzero(fold != part), np.flatnonzero(fold == part)) for part in range(5)]
    tried = []
    for leaves in (8, 31):
        settings = {"objective": "l2", "learning_rate": 0.05, "num_leaves": leaves, "verbosity": -1, "num_threads": 1}
        data = lightgbm.Dataset(x, y, params={"verbosity": -1}, free_raw_data=False)
        stop = [lightgbm.early_stopping(50, verbose=False)]
        curve = lightgbm.cv(settings, data, 1000, folds=folds, callbacks=stop)["valid l2-mean"]
        tried.append((min(curve), int(np.argmin(curve)) + 1, settings))
    _, trees, settings = min(tried, key=lambda one: one[0])
    return lightgbm.train(settings, lightgbm.Dataset(x, y, params={"verbosity": -1}), trees).predict(new)


def lambdarank(x, y, queries, new, new_queries, seed):
    """The rival of `vicinal fit --query`."""
    return lambdarank_baseline(x, y, queries, new, seed=seed).prediction


def vicinal(**settings):
    """A model of vicinal."""

    def scores(x, y, queries, new, new_queries, seed):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = NeighborRegressor(random_state=seed, **settings).fit(x, y, queries=queries)
            return model.predict(new, groups=new_queries)

    return scores


class Scorer(torch.nn.Module):
    """Scores of rows, which are one token each; without context each row is a list of its own."""

    def __init__(self, width, context):
        super().__init__()
        self.first, self.lists, self.context = torch.nn.Linear(width, 64), PassageScorer(64, blocks=1), context
        self.drop = torch.nn.Dropout(0.2)

    def forward(self, rows, places, valid):
        """Scores ``[Q, N]``."""
        tokens = self.drop(self.first(rows))[places][:, :, None]  # [Q, N, 1, e]
        if self.context:
            return self.lists(tokens, valid[..., None])
        return self.lists(tokens.flatten(0, 1)[:, None]).view(valid.shape)


def ranker(x, y, queries, new, new_queries, seed, *, context):
    """A :class:`Scorer` trained by RankNet; a fifth of the queries say when to stop."""
    torch.manual_seed(seed)
    mean, spread = x.mean(0), np.maximum(x.std(0), 1e-9)
    held = np.isin(queries, np.random.default_rng(seed).permutation(np.unique(queries))[::5])
    model = Scorer(x.shape[1], context)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)

    def padded(rows, names):
        codes = torch.from_numpy(np.unique(names, return_inverse=True)[1])
        return torch.tensor((rows - mean) / spread).float().clamp(-5, 5), *list_places(codes)

    def predicted(rows, places, valid):
        model.eval()
        with torch.no_grad():
            return torch.zeros(len(rows)).index_copy(0, places[valid], model(rows, places, valid)[valid]).numpy()

    rows, places, valid = padded(x[~held], queries[~held])
    grades, best, said, waited = torch.tensor(y[~held]).float()[places], -1.0, None, 0
    while waited < 10:
        model.train()
        for batch in torch.randperm(len(places)).split(16):
            each = zip(model(rows, places[batch], valid[batch]), grades[batch], valid[batch], strict=True)
            loss = torch.stack([ranknet(one[there][None], grade[there][None]) for one, grade, there in each]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        value = np.nanmean(query_ndcg(y[held], predicted(*padded(x[held], queries[held])), queries[held]))
        waited += 1
        if value > best:
            best, said, waited = value, predicted(*padded(new, new_queries)), 0
    return said


METHODS = {
    RIVAL: lambdarank,
    "LightGBM, squared error": squares,
    "vicinal": vicinal(),
    **{f"vicinal, network, {loss}": vicinal(metric="network", loss=loss) for loss in LOSSES[1:]},
    f"vicinal, network, {LOSSES[0]}": vicinal(metric="network"),
    "single rows, RankNet": lambda *known: ranker(*known, context=False),
    "rows in context, RankNet": lambda *known: ranker(*known, context=True),
}


def one(name, x, y, queries, seed, fold):
    """nDCG@10 of the queries of a fold, ranked by a method that learned from the others."""
    torch.set_num_threads(1)
    names = np.random.default_rng(seed).permutation(np.unique(queries))
    test, begun = np.isin(queries, names[fold::5]), time.perf_counter()
    said = METHODS[name](x[~test], y[~test], queries[~test], x[test], queries[test], seed)
    values, seconds = query_ndcg(y[test], said, queries[test]), round(time.perf_counter() - begun, 1)
    known = {"method": name, "seed": seed, "fold": fold, "seconds": seconds}
    each = zip(np.unique(queries[test]), values, strict=True)
    return [known | {"query": query, "ndcg@10": value} for query, value in each]


def table(each, methods):
    """Print what the page shows; differences are means over the seeds of each query."""
    seeds = each.groupby(["method", "seed"])["ndcg@10"].mean().unstack()
    queries = each.groupby(["method", "query"])["ndcg@10"].mean().unstack()
    print("| method | nDCG@10 | beside LambdaRank | p over queries | seconds a fit |", "|" + " --- |" * 5, sep="\n")
    for name in methods:
        value = f"{seeds.loc[name].mean():.3f} ± {seeds.loc[name].std():.3f}"
        gap = queries.loc[name] - queries.loc[RIVAL]
        beside = " | " if name == RIVAL else f"{gap.mean():+.3f} | {ttest_1samp(gap, 0).pvalue:.2g}"
        print(f"| {name} | {value} | {beside} | {each[each.method == name].seconds.mean():.0f} |")


def main():
    given = asked(__doc__, data=Path, out="", seeds=3, workers=1, methods=list(METHODS))
    data, draws = letor(given.data), [(seed, fold) for seed in range(given.seeds) for fold in range(5)]
    jobs = [delayed(one)(name, *data, *draw) for name in given.methods for draw in draws]
    each = pd.concat(map(pd.DataFrame, Parallel(given.workers)(jobs))).dropna()
    if given.out:
        means = each.groupby(["method", "seed"])[["ndcg@10", "seconds"]].mean().round(4)
        means.reset_index().to_csv(given.out, index=False)
    table(each, given.methods)


if __name__ == "__main__":
    main()
