"""The lists of the ranking study, and the scorers: LETOR sample with a network, MovieLens with factors."""

import io
import zipfile
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import nn

INTER = "recbole/dataset_example/ml-100k/ml-100k.inter"


@dataclass
class Lists:
    """Padded lists: inputs ``x [Q, N, *]``, ``grade [Q, N]`` and ``valid [Q, N]``, True = real."""

    x: torch.Tensor
    grade: torch.Tensor
    valid: torch.Tensor

    def batch(self, rows, width, generator):
        """Some lists; of longer ones, ``width`` items by chance."""
        x, grade, valid = self.x[rows], self.grade[rows], self.valid[rows]
        if width >= valid.shape[1]:
            return Lists(x, grade, valid)
        keys = torch.rand(valid.shape, generator=generator).masked_fill(~valid, -1)
        chosen = keys.topk(width, dim=1).indices  # [b, width]
        deep = chosen[..., None].expand(-1, -1, x.shape[-1])
        return Lists(x.gather(1, deep), grade.gather(1, chosen), valid.gather(1, chosen))


@dataclass
class Task:
    """Lists of one seed, what is sensitive, and how a scorer is made."""

    name: str
    train: Lists
    validation: Lists
    test: Lists
    floor: float  # lowest and highest grade
    ceiling: float
    region: float  # grades from here on are the sensitive region
    rates: tuple
    width: int
    scorer: type


def padded(x, grade, group, size):
    """Rows with the list number ``group`` as :class:`Lists` of ``size`` lists."""
    order = np.argsort(group, kind="stable")
    x, grade, group = x[order], grade[order], group[order]
    place = np.arange(len(group)) - np.searchsorted(group, group)
    length = int(place.max()) + 1
    out = np.zeros((size, length, x.shape[1]), x.dtype), np.zeros((size, length), np.float32)
    valid = np.zeros((size, length), bool)
    out[0][group, place], out[1][group, place], valid[group, place] = x, grade, True
    return Lists(torch.from_numpy(out[0]), torch.from_numpy(out[1]), torch.from_numpy(valid))


class Network(nn.Sequential):
    """Features to a score."""

    def __init__(self, task):
        super().__init__(nn.Linear(task.train.x.shape[-1], 16), nn.ReLU(), nn.Linear(16, 1))
        nn.init.zeros_(self[2].bias)

    def forward(self, x):
        """Scores ``[b, N]``."""
        return super().forward(x)[..., 0]


class Factors(nn.Module):
    """User, item: product of factors and biases."""

    def __init__(self, task):
        super().__init__()
        users, items = (int(n) + 1 for n in task.train.x.amax((0, 1)))
        self.users, self.items = nn.Embedding(users, 17), nn.Embedding(max(items, 1682), 17)
        self.level = nn.Parameter(torch.zeros(()))
        for table in (self.users, self.items):
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, x):
        """Scores ``[b, N]``."""
        user, item = self.users(x[..., 0]), self.items(x[..., 1])
        return (user[..., :16] * item[..., :16]).sum(-1) + user[..., 16] + item[..., 16] + self.level


def letor(folder, seed):
    """A fifth of the training queries for validation, by seed; the test queries are those of the file."""
    found = np.load(folder / "retrieval" / "letor_lightgbm.npz")
    group, number = found["qid_train"], int(found["qid_train"].max()) + 1
    order = np.random.default_rng(seed).permutation(number)
    parts = []
    for chosen in (order[number // 5 :], order[: number // 5]):
        new = np.full(number, -1)
        new[chosen] = np.arange(len(chosen))
        rows = new[group] >= 0
        parts.append(padded(found["X_train"][rows], found["y_train"][rows], new[group[rows]], len(chosen)))
    number = int(found["qid_test"].max()) + 1
    parts.append(padded(found["X_test"], found["y_test"], found["qid_test"].astype(int), number))
    return Task("LETOR sample", *parts, 0, 4, 3, (0.001, 0.004, 0.016), 27, Network)


def movielens(path, seed):
    """Of each user's ratings 70 % for training, 10 % for validation, 20 % for the test, by seed."""
    text = path.read_text() if path.suffix == ".inter" else zipfile.ZipFile(path).read(INTER).decode()
    table = pd.read_csv(io.StringIO(text), sep="\t")
    user, item, rating = (table.iloc[:, i].to_numpy() for i in range(3))
    x = np.stack([user - 1, item - 1], 1).astype(np.int64)
    chance = np.random.default_rng(seed).random(len(x))
    order = np.lexsort((chance, user))
    rank = np.empty(len(x))
    rank[order] = np.arange(len(x)) - np.searchsorted(user[order], user[order])
    share = (rank + 0.5) / np.bincount(user)[user]
    edges = [(0, 0.7), (0.7, 0.8), (0.8, 1)]
    parts = [padded(x[m], rating[m], x[m, 0], 943) for low, high in edges for m in [(low <= share) & (share < high)]]
    return Task("MovieLens-100k", *parts, 1, 5, 5, (0.0025, 0.005, 0.02), 24, Factors)
