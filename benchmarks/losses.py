"""Do robust losses and weights of classes do what they say, on small real data? Wrong labels, long tails, outliers.

Networks have one hidden layer and 1,000 training rows. Each method takes the setting of the lowest validation error, by
seed, among as many settings as the plain baseline has. A second plain one takes 5 times the learning rate: what gains
as much as that is a matter of pace. Lines that are in the file are not run again.

    python benchmarks/losses.py --data ../shared/data --out benchmarks/results/losses.csv
"""

import copy
import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from resumable import RESULTS, Lines, asked
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import nn
from torch.nn import functional

from vicinal import losses

WEIGHT_DECAY, DROPOUT = (0.01, 0.3), (0.0, 0.3)
PLAIN = [{"decay": d, "dropout": p, "smoothing": s} for d, p, s in product(WEIGHT_DECAY, DROPOUT, (0.0, 0.1))]
FASTER = "plain, 5 times the learning rate"


def beside(*settings):
    """Settings of a method: its own two or so, each with the weight decays and dropouts of the baseline."""
    return [{"decay": d, "dropout": p, **each} for d, p, each in product(WEIGHT_DECAY, DROPOUT, settings)]


def named(loss, *settings):
    return beside(*({"loss": loss, **each} for each in settings))


class Case(NamedTuple):
    """``prepare(data folder, seed)`` gives rows, ``fit(rows, seed, pace, ...)`` a validation error and measures."""

    name: str
    prepare: Callable
    fit: Callable
    methods: dict[str, list[dict]]


class Net(nn.Module):
    """One hidden layer."""

    def __init__(self, dim, outputs, dropout):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(dim, 128), nn.ReLU(), nn.Dropout(dropout))
        self.head = nn.Linear(128, outputs)

    def forward(self, x):
        return self.head(self.features(x))


def train(net, x, loss, valid, *, seed, pace, decay, epochs=30, extra=()):
    """Train ``net``; ``loss(net, rows)`` of a batch's row numbers; the epoch of the lowest ``valid(net)``."""
    parameters = [*net.parameters(), *(p for module in extra for p in module.parameters())]
    optimizer = torch.optim.AdamW(parameters, lr=pace * 2e-3, weight_decay=decay)
    generator = torch.Generator().manual_seed(seed)
    lowest, state = math.inf, None
    for _ in range(epochs):
        net.train()
        for rows in torch.randperm(len(x), generator=generator).split(100):
            if len(rows) >= 4:
                optimizer.zero_grad()
                loss(net, rows).backward()
                optimizer.step()
        now = measure(net, valid)
        if now < lowest or state is None:
            lowest, state = now, copy.deepcopy(net.state_dict())
    net.load_state_dict(state)
    return lowest


@torch.no_grad()
def measure(net, how):
    return float(how(net.eval()))


def wrong(x, y):
    """The share of wrong rows, with a hundredth of the cross-entropy to settle ties."""
    return lambda net: (net(x).argmax(1) != y).double().mean() + 1e-4 * functional.cross_entropy(net(x), y)


def error(x, y):
    return lambda net: (net(x).argmax(1) != y).double().mean()


def digits(data, seed, train_rows=1000):
    """Photos of digits as 14 x 14 numbers; training, validation and test rows."""
    file = np.load(data / "images" / "mnist5k.npz")
    images = torch.from_numpy(file["images"]).float()[:, None] / 255
    x, y = functional.avg_pool2d(images, 2).flatten(1), torch.from_numpy(file["label"]).long()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    parts = order[:train_rows], order[train_rows : train_rows + 500], order[train_rows + 500 :]
    return [(x[part], y[part]) for part in parts]


def noisy_digits(share):
    def prepare(data, seed):
        parts = digits(data, seed)
        generator = torch.Generator().manual_seed(1000 + seed)
        for number in (0, 1):  # the labels that stop training are as wrong as the others
            x, y = parts[number]
            flip = torch.rand(len(y), generator=generator) < share
            other = (y + torch.randint(1, 10, y.shape, generator=generator)) % 10
            parts[number] = (x, torch.where(flip, other, y))
        return parts

    return prepare


def fit_classes(rows, seed, pace, *, decay, dropout, smoothing=0.0, loss=None, **hyper):
    """A loss of class scores in place of cross-entropy."""
    (x, y), valid, test = rows
    torch.manual_seed(seed)
    net = Net(x.shape[1], 10, dropout)
    criterion = losses.ClassLoss(loss, **hyper) if loss else nn.CrossEntropyLoss(label_smoothing=smoothing)
    by = {"seed": seed, "pace": pace, "decay": decay}
    lowest = train(net, x, lambda net, at: criterion(net(x[at]), y[at]), wrong(*valid), **by)
    return lowest, {"error": measure(net, error(*test))}


def long_tail(data, seed):
    """Classes of 200 rows down to 4, which ones by seed; validation and test rows count each class alike."""
    pool, valid, test = digits(data, seed, 3000)
    order = torch.randperm(10, generator=torch.Generator().manual_seed(seed))
    rows = [(pool[1] == int(k)).nonzero()[: round(200 * 50 ** (-rank / 9)), 0] for rank, k in enumerate(order)]
    some = torch.cat(rows)
    return (pool[0][some], pool[1][some]), valid, test, order[-3:]


def fit_tail(rows, seed, pace, *, decay, dropout, weighted=False, within=None, smoothing=0.0):
    (x, y), valid, test, rare = rows
    torch.manual_seed(seed)
    net, count = Net(x.shape[1], 10, dropout), torch.bincount(y, minlength=10).float()
    criterion = nn.CrossEntropyLoss(weight=len(y) / (10 * count) if weighted else None, label_smoothing=smoothing)
    centers = nn.Embedding(10, 128)

    def loss(net, at):
        features = net.features(x[at])
        value = criterion(net.head(features), y[at])
        if within is None:
            return value
        return value + losses.neural_collapse(features, y[at], centers.weight, within=within, between=within)

    def balanced(x, y):
        return lambda net: torch.stack([error(x[y == k], y[y == k])(net) for k in range(10)]).mean()

    by = {"seed": seed, "pace": pace, "decay": decay, "epochs": 60, "extra": [centers]}
    lowest, few = train(net, x, loss, balanced(*valid), **by), torch.isin(test[1], rare)
    rarest = error(*(part[few] for part in test))
    return lowest, {"balanced error": measure(net, balanced(*test)), "rarest three": measure(net, rarest)}


def outlying(data, seed):
    """Ratings of tweets; a tenth of the labels of training and validation are moved by five deviations."""
    table = pd.read_parquet(data / "text" / "vader_sentiment.parquet")
    table = table.dropna(subset="text").drop_duplicates("text").reset_index(drop=True)
    grams = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), min_df=5, sublinear_tf=True)
    vectors = TruncatedSVD(100, random_state=0).fit_transform(grams.fit_transform(table["text"]))
    tweets = (table["domain"] == "tweets").to_numpy()
    x = torch.from_numpy(((vectors - vectors.mean(0)) / vectors.std(0))[tweets]).float()
    rating = table["rating"][tweets]
    y = torch.tensor(((rating - rating.mean()) / rating.std()).to_numpy()).float()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:3500]
    parts = [(x[part], y[part]) for part in order.split([1000, 500, 2000])]
    generator = torch.Generator().manual_seed(1000 + seed)
    for number in (0, 1):
        x, y = parts[number]
        off = 5.0 * (torch.rand(len(y), generator=generator) < 0.1) * torch.randn(len(y), generator=generator).sign()
        parts[number] = (x, y + off)
    return parts


def fit_number(rows, seed, pace, *, decay, dropout, way="squared", c=1.0):
    (x, y), valid, test = rows
    torch.manual_seed(seed)
    net = Net(x.shape[1], 1, dropout)
    kinds = {"squared": functional.mse_loss, "absolute": functional.l1_loss, "pseudo": losses.PseudoHuberLoss(c)}
    criterion = (kinds | {"huber": nn.HuberLoss(delta=c)})[way]
    absolute = lambda x, y: lambda net: (net(x)[:, 0] - y).abs().mean()
    squared = lambda net: (net(test[0])[:, 0] - test[1]).square().mean() / test[1].var()
    by = {"seed": seed, "pace": pace, "decay": decay}
    lowest = train(net, x, lambda net, at: criterion(net(x[at])[:, 0], y[at]), absolute(*valid), **by)
    return lowest, {
        "squared error over variance": measure(net, squared),
        "absolute error": measure(net, absolute(*test)),
    }


WIDE = [{"decay": d, "dropout": p} for d, p in product((0.001, 0.01, 0.1, 0.3), DROPOUT)]
CASES = [
    Case(
        "labels, 40 % wrong",
        noisy_digits(0.4),
        fit_classes,
        {
            "plain": PLAIN,
            FASTER: PLAIN,
            "comp_sum": named("comp_sum", {"tau": 1.4}, {"tau": 1.7}),
            "truncated_gce": named("truncated_gce", {"cutoff": 0.01}, {"cutoff": 0.05}),
            "symmetric_ce": named("symmetric_ce", {"beta": 0.5}, {"beta": 2.0}),
            "js_loss": named("js_loss", {"share": 0.3}, {"share": 0.7}),
            "normalized_ce": named("normalized_ce", {"passive": "rce"}, {"passive": "agce"}),
        },
    ),
    Case(
        "labels, all right",
        noisy_digits(0.0),
        fit_classes,
        {
            "plain": PLAIN,
            FASTER: PLAIN,
            "comp_sum": named("comp_sum", {"tau": 0.7}, {"tau": 1.3}),
            "z_loss": named("z_loss", {"sharpness": 1.0, "location": 2.0}, {"sharpness": 4.0, "location": 2.0}),
        },
    ),
    Case(
        "long tail",
        long_tail,
        fit_tail,
        {
            "plain": PLAIN,
            FASTER: PLAIN,
            "class weights": beside({"weighted": True, "smoothing": 0.0}, {"weighted": True, "smoothing": 0.1}),
            "neural_collapse": beside({"within": 0.1}, {"within": 0.5}),
        },
    ),
    Case(
        "outlying labels",
        outlying,
        fit_number,
        {
            "plain": [{**each, "way": "squared"} for each in WIDE],
            "absolute error": [{**each, "way": "absolute"} for each in WIDE],
            "Huber": beside({"way": "huber", "c": 0.3}, {"way": "huber", "c": 1.0}),
            "PseudoHuberLoss": beside({"way": "pseudo", "c": 0.3}, {"way": "pseudo", "c": 1.0}),
        },
    ),
]


def run(case, data, seed, lines):
    """Lines of a seed, each method with the setting of its lowest validation error."""
    missing = [method for method in case.methods if (case.name, seed, method) not in lines]
    rows = case.prepare(data, seed) if missing else None
    for method in missing:
        pace = 5.0 if method == FASTER else 1.0
        tried = [(*case.fit(rows, seed, pace, **settings), settings) for settings in case.methods[method]]
        valid, measures, settings = min(tried, key=lambda one: one[0])
        text = " ".join(f"{name}={value}" for name, value in settings.items())
        line = {"case": case.name, "seed": seed, "method": method, "settings": text, "valid": f"{valid:.5g}"}
        lines.add({**line, "measure": name, "value": f"{value:.5g}"} for name, value in measures.items())


def main():
    given = asked(__doc__, data=Path("../shared/data"), out=RESULTS / "losses.csv", seeds=5)
    lines = Lines(given.out, "case", "seed", "method")
    for seed, case in product(range(given.seeds), CASES):
        run(case, given.data, seed, lines)


if __name__ == "__main__":
    main()
