"""Whether learning from two views of a table's columns, before labels, helps where labels are few: books and prices.

    python benchmarks/pretrain_columns.py book_prices.parquet --out benchmarks/results/pretrain-columns.csv

A network gets the columns of a book (title and synopsis as 32 and 64 components of their words, author, kind of
binding, genre, category, stars, reviews), hidden ones as missing. Before labels it learns on all 5,237 books that are
not tested to tell two views of a book from those of others, which hide what says most of one another ("correlated"), or
random halves ("complement"); then, or at once, it learns the logarithm of the price of 100, 300 or 1,000 of them,
stopped by a fifth of these. "frozen" is a ridge on what was learned without labels, "ridge" one on the columns. Error
is a share of the variance, on 1,000 other books; five seeds. What is done is read from the file and not done again.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.cluster import KMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import RidgeCV
from torch import nn

from vicinal.data import hidden_columns, mutual_information
from vicinal.losses import nt_xent

TESTED, LABELS, EPOCHS, BATCH, WIDTH = 1000, (100, 300, 1000), 10, 256, 64


def columns_of(path):
    """Blocks of the columns by name, cells as classes, and labels."""
    table = pd.read_parquet(path)
    blocks, classes = {}, {}
    for name, width in (("title", 32), ("synopsis", 64)):
        words = TfidfVectorizer(min_df=3, sublinear_tf=True).fit_transform(table[name].fillna(""))
        blocks[name] = TruncatedSVD(width, random_state=0).fit_transform(words)
        classes[name] = KMeans(20, n_init=2, random_state=0).fit_predict(blocks[name])
    table["edition"] = table["edition"].fillna("").str.split(",").str[0]
    for name in ("author", "edition", "genre", "category"):
        often = table[name].map(table[name].value_counts()) >= 5
        codes = table[name].where(often, "other")
        blocks[name], classes[name] = pd.get_dummies(codes).to_numpy(float), pd.factorize(codes)[0]
    for name in ("stars", "n_reviews"):
        values = np.log1p(table[name])
        blocks[name] = ((values - values.mean()) / values.std()).to_numpy()[:, None]
        classes[name] = pd.qcut(values, 10, labels=False, duplicates="drop").to_numpy()
    scaled = [block / (block.std() or 1) / block.shape[1] ** 0.5 for block in blocks.values()]
    blocks = [torch.from_numpy(block).float() for block in scaled]
    return blocks, mutual_information(pd.DataFrame(classes)), np.log(table["price"]).to_numpy()


def shown(blocks, rows, hidden):
    """Inputs of rows: a hidden column is 0, and said to be."""
    count = len(blocks)
    parts = [torch.zeros(len(rows), b.shape[1]) if h else b[rows] for b, h in zip(blocks, hidden, strict=True)]
    flags = torch.as_tensor(np.asarray(hidden, dtype=np.float32)).expand(len(rows), count)
    return torch.cat([*parts, flags], 1)


def network(width, seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(width, 200), nn.ReLU(), nn.Linear(200, WIDTH))


def pretrained(blocks, rows, information, how, seed):
    net = network(sum(b.shape[1] for b in blocks) + len(blocks), seed)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    draw, order = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    for _ in range(EPOCHS):
        for some in rows[torch.randperm(len(rows), generator=order)].split(BATCH):
            views = [shown(blocks, some, h) for h in hidden_columns(information, draw, how=how)]
            one, other = (nn.functional.normalize(net(view)) for view in views)
            loss = nt_xent(one @ other.T, torch.eye(len(some)), temperature=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return net


def tuned(net, inputs, labels, tested):
    """Predictions for tested rows after learning labels, at the epoch best for a fifth of them."""
    model = nn.Sequential(net, nn.ReLU(), nn.Linear(WIDTH, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
    cut = len(labels) // 5
    target = torch.from_numpy((labels - labels.mean()) / labels.std()).float()
    best, found = np.inf, None
    for _ in range(150):
        for some in (cut + torch.randperm(len(labels) - cut)).split(64):
            loss = (model(inputs[some])[:, 0] - target[some]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            check = float((model(inputs[:cut])[:, 0] - target[:cut]).square().mean())
            if check < best:
                best, found = check, model(tested)[:, 0].numpy()
    return found * labels.std() + labels.mean()


def ridge(inputs, labels, tested):
    return RidgeCV(np.logspace(-3, 3, 13)).fit(inputs.numpy(), labels).predict(tested.numpy())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("books", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/pretrain-columns.csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    blocks, information, labels = columns_of(options.books)
    results = pd.read_csv(options.out).to_dict("records") if options.out.exists() else []
    for seed in range(options.seeds):
        if any(line["seed"] == seed for line in results):
            continue
        order = torch.from_numpy(np.random.default_rng(seed).permutation(len(labels)))
        test, rest = order[:TESTED], order[TESTED:]
        everything = [False] * len(blocks)
        tested = shown(blocks, test, everything)
        starts = {"none": network(tested.shape[1], seed).state_dict()}
        for how in ("correlated", "complement"):
            starts[how] = pretrained(blocks, rest, information, how, seed).state_dict()
        for count in LABELS:
            inputs, known = shown(blocks, rest[:count], everything), labels[rest[:count]]
            errors = {"ridge": ridge(inputs, known, tested)}
            for start, weights in starts.items():
                net = network(tested.shape[1], seed)
                net.load_state_dict(weights)
                with torch.no_grad():
                    frozen = ridge(net(inputs), known, net(tested))
                errors |= {f"{start}, frozen": frozen, f"{start}, tuned": tuned(net, inputs, known, tested)}
            for method, predictions in errors.items():
                error = np.mean((predictions - labels[test]) ** 2) / labels[test].var()
                results.append({"seed": seed, "labels": count, "method": method, "error": error})
        print(seed, flush=True)
        pd.DataFrame(results).to_csv(options.out, index=False)
    means = pd.DataFrame(results).pivot_table(index="method", columns="labels", values="error", sort=False)
    print(means.round(4).to_string())


if __name__ == "__main__":
    main()
