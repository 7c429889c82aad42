"""What the experiments of losses.py share: small networks, how they are trained, and rows of real data."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
import torch
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import nn
from torch.nn import functional

WEIGHT_DECAY, DROPOUT, SMOOTHING = (0.01, 0.3), (0.0, 0.3), (0.0, 0.1)
PLAIN = [{"decay": d, "dropout": p, "smoothing": s} for d, p, s in product(WEIGHT_DECAY, DROPOUT, SMOOTHING)]


def beside(*own):
    """Settings of a method: its own two or so, each with the weight decays and dropouts of the baseline."""
    return [{"decay": d, "dropout": p, **each} for d, p, each in product(WEIGHT_DECAY, DROPOUT, own)]


@dataclass
class Case:
    """An experiment: ``prepare(data folder, seed)`` gives its rows, ``fit(rows, seed, **settings)`` one result."""

    name: str
    claim: str
    prepare: Callable
    fit: Callable
    methods: dict[str, list[dict]]
    seeds: int = 10
    plain: tuple[str, ...] = ("plain",)


class Net(nn.Module):
    """One hidden layer."""

    def __init__(self, dim, outputs, hidden=128, dropout=0.0):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Dropout(dropout))
        self.head = nn.Linear(hidden, outputs)

    def forward(self, x):
        return self.head(self.features(x))


class Pace:
    """By how much all learning rates are multiplied; set by losses.py."""

    factor = 1.0


def train(net, x, y, loss, valid, *, seed, decay, epochs=30, batch=100, rate=2e-3, best=True, extra=(), steps=None):
    """Train ``net``; ``loss(net, rows, epoch)`` of a batch's row numbers; the epoch of the lowest ``valid(net)``."""
    parameters = [*net.parameters(), *(p for module in extra for p in module.parameters())]
    optimizer = torch.optim.AdamW(parameters, lr=Pace.factor * rate, weight_decay=decay)
    step = steps(optimizer) if steps else None
    generator = torch.Generator().manual_seed(seed)
    lowest, state = math.inf, None
    for epoch in range(epochs):
        net.train()
        for rows in torch.randperm(len(x), generator=generator).split(batch):
            if len(rows) < 4:
                continue
            if step is not None:
                step.step(lambda rows=rows, epoch=epoch: loss(net, rows, epoch))
                continue
            optimizer.zero_grad()
            loss(net, rows, epoch).backward()
            optimizer.step()
        if best or epoch == epochs - 1:
            now = measure(net, valid)
            if now < lowest or state is None:
                lowest, state = now, copy.deepcopy(net.state_dict())
    net.load_state_dict(state)
    return lowest


@torch.no_grad()
def measure(net, how):
    net.eval()
    return float(how(net))


def wrong(x, y):
    """The share of wrong rows, with a hundredth of the cross-entropy to settle ties."""
    return lambda net: (
        float((net(x).argmax(1) != y).double().mean()) + 1e-4 * float(functional.cross_entropy(net(x), y))
    )


@torch.no_grad()
def error(net, x, y):
    net.eval()
    return float((net(x).argmax(1) != y).double().mean())


# --- data -------------------------------------------------------------------------------------------------------------


def digits(data, seed, train_rows=1000, valid_rows=500, more=0):
    """Photos of digits as 14 x 14 numbers; training, validation, test rows and perhaps more."""
    file = np.load(data / "images" / "mnist5k.npz")
    images = torch.from_numpy(file["images"]).float()[:, None] / 255
    x = functional.avg_pool2d(images, 2).flatten(1)
    y = torch.from_numpy(file["label"]).long()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    cuts = np.cumsum([train_rows, valid_rows, more])
    parts = [order[: cuts[0]], order[cuts[0] : cuts[1]], order[cuts[2] :], order[cuts[1] : cuts[2]]]
    return [(x[part], y[part]) for part in parts]


_TEXTS = {}


def texts(data, file, dim=100):
    """Rows of a file of texts, and their n-grams of characters as ``dim`` numbers of deviation 1."""
    key = (file, dim)
    if key not in _TEXTS:
        table = pd.read_parquet(data / "text" / file)
        table = table.dropna(subset="text").drop_duplicates("text").reset_index(drop=True)
        grams = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), min_df=5, sublinear_tf=True)
        vectors = TruncatedSVD(dim, random_state=0).fit_transform(grams.fit_transform(table["text"]))
        vectors = (vectors - vectors.mean(0)) / vectors.std(0)
        _TEXTS[key] = table, torch.from_numpy(vectors).float()
    return _TEXTS[key]


def split(x, y, seed, *sizes):
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    ends = np.cumsum(sizes)
    return [(x[part], y[part]) for part in order[: ends[-1]].tensor_split(torch.from_numpy(ends[:-1]))]
