"""Recommendations: known items beside implicit, new items beside profile, ridge and equal neighbors, new users.

    pip download --no-deps recbole==1.2.1 -d runs/movielens
    pip install --target runs/implicit --no-deps implicit==0.7.3
    PYTHONPATH=runs/implicit python benchmarks/recommending.py --data runs/movielens/recbole-1.2.1-py3-none-any.whl \
        --citeulike ../shared/data/retrieval

Of MovieLens-100k a rating of at least 4 is a click. Known: a fifth of the clicks is hidden, the settings of both are
chosen by vicinal on a tenth of the others. New: a tenth of the items is hidden with all clicks, and each user's clicks
among them are ranked by recall@20. Users: a tenth is hidden, and their clicks are ranked among all items.
"""

import time
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from resumable import RESULTS, Lines, asked
from scipy import sparse
from sklearn.linear_model import Ridge

from factorization import movielens, of_recbole, quality, split, theirs
from vicinal.estimators import Recommender

CUT = 20


def films(path):
    """Clicks, films and people of MovieLens-100k."""
    items, users = of_recbole(path, "item"), of_recbole(path, "user")
    items.columns, users.columns = ["item", "title", "year", "genres"], ["user", "age", "sex", "work", "zip"]
    items["year"] = pd.to_numeric(items["year"], errors="coerce")
    clicks = movielens(path)[["user_id", "item_id"]].set_axis(["user", "item"], axis=1)
    return clicks, items, users.astype({"user": int})


def articles(folder):
    """Clicks and tags of CiteULike-t."""
    clicks = pd.read_parquet(folder / "citeulike_t_interactions.parquet").set_axis(["user", "item"], axis=1)
    tags = pd.read_parquet(folder / "citeulike_t_tags.parquet").astype({"tag": str})
    items = tags.groupby("item_id")["tag"].agg(" ".join).rename("tags").rename_axis("item").reset_index()
    return clicks, items, None


def recall(scores, truth):
    """Mean recall@20 of rows with something to find."""
    rows = np.flatnonzero(truth.sum(1) > 0)
    best = np.argsort(-scores[rows], axis=1, kind="stable")[:, :CUT]
    return float((np.take_along_axis(truth[rows], best, 1).sum(1) / truth[rows].sum(1)).mean())


def known(clicks, seed, *, implicit):
    """Recall of hidden clicks, by vicinal and implicit at the same settings."""
    table = clicks.set_axis(["user_id", "item_id"], axis=1)
    train, test = split(table, seed)
    pairs = pd.DataFrame(dict(zip(("user", "item"), train.nonzero(), strict=True)))
    start = time.process_time()
    model = Recommender(random_state=seed).fit(pairs)
    seconds = time.process_time() - start
    users, items = (
        side.positions(range(size)) for side, size in zip((model.users_, model.items_), train.shape, strict=True)
    )
    vectors = torch.cat([model.vectors_, torch.zeros(1, model.vectors_.shape[1])])[items]
    people = torch.cat([model.user_vectors(np.arange(len(model.users_))), torch.zeros(1, vectors.shape[1])])[users]
    yield "known", "vicinal", quality(lambda some: people[some] @ vectors.T, train, test)["recall"], seconds
    popular = train.sum(0)
    yield "known", "popularity", quality(lambda some: np.tile(popular, (len(some), 1)), train, test)["recall"], 0.0
    if implicit:
        start = time.process_time()
        score = theirs(train, 0, confidence=model.settings_[0], ridge=model.settings_[1], sweeps=10)
        yield "known", "implicit", quality(score, train, test)["recall"], time.process_time() - start


def new_items(clicks, items, seed):
    """Recall among hidden items, by what vectors they get."""
    draw = np.random.default_rng(seed)
    names = np.intersect1d(clicks["item"].unique(), items["item"])
    hidden = names[draw.random(len(names)) < 0.1]
    seen = clicks[~clicks["item"].isin(hidden)]
    model = Recommender(random_state=seed).fit(seen, items[items["item"].isin(names)])
    people = model.user_vectors(np.arange(len(model.users_))).numpy()
    places, users = model.items_.positions(hidden), model.users_.positions(clicks["user"])
    later = clicks["item"].isin(hidden).to_numpy() & (users >= 0)
    row, column = users[later], np.searchsorted(hidden, clicks["item"].to_numpy()[later])
    truth = sparse.csr_array((np.ones(len(row)), (row, column)), shape=(len(people), len(hidden))).toarray()
    truth = truth[:2000]
    yield "new", "chance", recall(draw.random(truth.shape), truth), 0.0
    yield "new", "vicinal", recall((people @ model.vectors_[places].numpy().T)[: len(truth)], truth), 0.0
    bank, kernel = model.bank("item"), model.kernels_["item"]
    features = sparse.hstack(
        [
            sparse.csr_array(part) / np.sqrt(kernel.means[name])
            for name, part in kernel.features(kernel.form.read(model.items_.rows)).items()
        ]
    ).tocsr()
    one, other, vectors = features[places], features[bank], model.vectors_[bank].numpy()
    profile = model.clicks_[: len(truth)][:, bank] @ other @ one.T
    yield "new", "profile", recall(profile.toarray(), truth), 0.0
    ridges = {}
    if len(bank) < 4000:
        ridges = {"ridge, the same features": (other.toarray(), one.toarray())}
    if "genres" in items:
        rows = model.items_.rows
        age = ((rows["year"] - rows["year"].mean()) / rows["year"].std()).fillna(0).astype(float)
        every = np.column_stack([rows["genres"].str.get_dummies(" "), age, age.abs(), age**2])
        ridges["ridge, features by hand"] = (every[bank], every[places])
    for method, (old, new) in ridges.items():
        tries = []
        for penalty in (0.3, 1.0, 3.0, 10.0, 30.0):
            learned = Ridge(alpha=penalty).fit(old, vectors).predict(new)
            tries.append(recall((people @ learned.T)[: len(truth)], truth))
        yield "new", f"{method}, best of 5", max(tries), 0.0
    lengths = [np.asarray(part.power(2).sum(axis=1)).ravel() for part in (one, other)]
    squares = lengths[0][:, None] + lengths[1] - 2 * (one @ other.T).toarray()
    near = np.argsort(squares, axis=1, kind="stable")[:, :50]
    yield "new", "50 nearest alike", recall((people @ vectors[near].mean(1).T)[: len(truth)], truth), 0.0


def new_users(clicks, items, users, seed):
    """Recall of all clicks of hidden users."""
    draw = np.random.default_rng(seed)
    hidden = users["user"][draw.random(len(users)) < 0.1].tolist()
    model = Recommender(random_state=seed).fit(clicks[~clicks["user"].isin(hidden)], users=users)
    later = clicks[clicks["user"].isin(hidden)].groupby("user")["item"].agg(set)
    for method, names in (("vicinal", later.index), ("popularity", [f"unknown {name}" for name in later.index])):
        lists = model.recommend(names, CUT).groupby("user", sort=False)["item"].agg(set)
        shares = [len(one & two) / len(two) for one, two in zip(lists, later, strict=True)]
        yield "users", method, float(np.mean(shares)), 0.0


def main():
    options = {"citeulike": "", "seeds": 3, "implicit": False}
    given = asked(__doc__, data=Path, out=RESULTS / "recommending.csv", **options)
    lines = Lines(given.out, "data", "seed")
    sets = {"MovieLens-100k": films(given.data)}
    sets |= {"CiteULike-t": articles(Path(given.citeulike))} if given.citeulike else {}
    for (data, (clicks, items, users)), seed in product(sets.items(), range(given.seeds)):
        if (data, seed) not in lines:
            found = [*known(clicks, seed, implicit=given.implicit), *new_items(clicks, items, seed)]
            found += [] if users is None else new_users(clicks, items, users, seed)
            known_ = {"data": data, "seed": seed}
            lines.add(known_ | dict(zip(("what", "method", "recall", "seconds"), line, strict=True)) for line in found)


if __name__ == "__main__":
    main()
