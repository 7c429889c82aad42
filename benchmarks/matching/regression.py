"""Regression whose top decile is declared important: error there, and what it costs elsewhere.

Houses (bedrooms, bathrooms, area, zip code) and books (title, author, synopsis as 64 directions of word counts; genre,
edition, stars, reviews), both to the log price. One linear model, too simple on purpose: what a loss can do is choose
where it is wrong. Every loss is minimized to its optimum by L-BFGS with four strengths of ridge penalty, of which the
one with the best value of that same loss on validation rows counts. Two controls need no loss: the predictions of the
squares plus a constant, and the same with the constant that turns a mean of logs into a mean ("smeared").

    python benchmarks/matching/regression.py --data ../shared/data --picture docs/images/matching-regression.png
"""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from protocol import Clock, arguments, keep, markdown, paired, show, summary
from regression_curves import at_equal_cost, cost_pairs, draw
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GroupShuffleSplit

from vicinal import links, losses

PENALTIES = (1e-1, 1e-2, 1e-3, 1e-4)
STRENGTHS = (2.0, 4.0, 8.0, 16.0)
QUANTILES = (0.6, 0.7, 0.8, 0.9)
OVERLAP = 0.2 / 0.6  # test rows / training rows
METRICS = ["error_all", "error_decile", "error_rest", "error_chosen", "found", "price_error", "price_total"]
PRICE, SMEARED = "matching Exp of the price", "MSE, smeared"


def one_hot(train, cells):
    """Columns for the categories with at least five training rows."""
    counts = train.value_counts()
    return np.stack([(cells == name).to_numpy(float) for name in counts.index[counts >= 5]], 1)


def houses(folder):
    """Table, log price, groups of rows that stay together, and features given the training rows."""
    table = pd.read_csv(folder / "houses" / "houses.csv", dtype={"zipcode": str})
    numbers = np.column_stack([table["bedrooms"], table["bathrooms"], np.log(table["area"])])

    def features(train):
        return np.hstack([numbers, one_hot(table["zipcode"].iloc[train], table["zipcode"])])

    return np.log(table["price"].to_numpy(float)), table["dup_group"].to_numpy(), features


def books(folder):
    """As :func:`houses`; editions of one synopsis stay together."""
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


def pinball(quantile):
    """The quantile loss, rounded off within 0.02 of the target."""

    def loss(prediction, target):
        gap = target - prediction
        size = torch.where(gap.abs() < 0.02, gap**2 / 0.04 + 0.01, gap.abs())
        return (size / 2 + (quantile - 0.5) * gap).mean()

    return loss


def methods(edge, top, unit):
    """Name -> loss of predictions and targets in ``unit``s of log price; the decile is from ``edge`` to ``top``."""

    def weighted(times):
        return lambda p, t: (torch.where(t >= edge, times, 1.0) * (p - t) ** 2 / 2).mean()

    found = {"MSE": losses.MatchingLoss(links.Identity())}
    for ratio in STRENGTHS:
        link = links.design("high", around=edge, ratio=ratio).cap(-3.0, edge + 1)
        found[f"matching Exp, {ratio:g}"] = losses.MatchingLoss(link)
        inside = links.design((edge, top + 1), ratio=ratio)
        found[f"matching interval, {ratio:g}"] = losses.MatchingLoss(inside)
        found[f"re-weighted MSE, {ratio:g}"] = weighted(ratio)
        found[f"re-weighted by Exp, {ratio:g}"] = losses.ReweightedSquaredLoss(link)
    found[PRICE] = losses.MatchingLoss(links.Exp(unit, 0.0, 1 / unit))  # an error costs what it costs in money
    return found | {f"pinball, {quantile:g}": pinball(quantile) for quantile in QUANTILES}


PAIRS = [
    ("matching Exp, 4", "MSE"),
    ("matching interval, 4", "MSE"),
    ("matching interval, 4", "re-weighted MSE, 4"),
    ("matching Exp, 4", "re-weighted by Exp, 4"),
    (PRICE, "MSE"),
    (PRICE, SMEARED),
]


def fit(x, y, loss, penalty, start):
    """Weights of the linear model ``x @ w`` (its last column is 1) that minimize loss + ridge, from ``start``."""
    weights = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([weights], max_iter=60, history_size=20, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        value = loss(x @ weights, y) + penalty * (weights[:-1] ** 2).sum()
        value.backward()
        return value

    optimizer.step(closure)
    return weights.detach()


def best_fit(parts, loss):
    """Over the penalties, from strong to weak: the weights with the best loss on validation."""
    (x, y), (other, wanted) = parts["train"], parts["validation"]
    weights = torch.zeros(x.shape[1], dtype=x.dtype)
    fits = []
    for penalty in PENALTIES:
        weights = fit(x, y, loss, penalty, weights)
        fits.append((loss(other @ weights, wanted).item(), weights))
    return min(fits, key=lambda found: found[0])[1]


def measure(prediction, target, edge):
    """Mean squared errors of log price: all, true decile, the rest, highest tenth of predictions; in money."""
    wrong, inside = (prediction - target) ** 2, target >= edge
    chosen = prediction.argsort(descending=True)[: round(len(target) / 10)]
    guess, price = prediction.exp(), target.exp()
    return {
        "error_all": wrong.mean().item(),
        "error_decile": wrong[inside].mean().item(),
        "error_rest": wrong[~inside].mean().item(),
        "error_chosen": wrong[chosen].mean().item(),
        "found": inside[chosen].double().mean().item(),
        "price_error": (((guess - price) ** 2).mean().sqrt() / price.mean()).item(),
        "price_total": (guess.sum() / price.sum()).item(),
    }


def controls(prediction, residuals):
    """Name -> predictions of the squares moved by a constant; ``residuals`` are those of the training rows."""
    found = {f"MSE plus a constant, {shift:g}": prediction + shift for shift in (0.1, 0.2, 0.4, 0.6)}
    return found | {SMEARED: prediction + residuals.exp().mean().log()}


def study(name, data, seeds, clock):
    """Records of every method and seed."""
    target, groups, make_features = data
    records = []
    for seed in range(seeds):
        rows = dict(zip(("train", "validation", "test"), split(len(target), groups, seed), strict=True))
        prices = torch.from_numpy(target)
        center, unit = prices[rows["train"]].mean(), prices[rows["train"]].std().item()
        y = (prices - center) / unit
        x = torch.from_numpy(make_features(rows["train"]))
        x = (x - x[rows["train"]].mean(0)) / x[rows["train"]].std(0).clamp(min=1e-3)
        x = torch.cat([x.clamp(-5, 5), torch.ones(len(x), 1, dtype=x.dtype)], 1)
        parts = {part: (x[where], y[where]) for part, where in rows.items()}
        edge, top = y[rows["train"]].quantile(0.9).item(), y[rows["train"]].max().item()
        predictions = {}
        for method, loss in methods(edge, top, unit).items():
            guess = x @ best_fit(parts, loss) * unit + center
            predictions[method] = guess[rows["test"]]
            if method == "MSE":
                predictions |= controls(guess[rows["test"]], (prices - guess)[rows["train"]])
        for method, guess in predictions.items():
            found = measure(guess, prices[rows["test"]], edge * unit + center)
            records.append({"data": name, "method": method, "seed": seed, **found})
        clock.say(f"{name}: seed {seed}")
    return pd.DataFrame(records)


def main():
    parser = arguments(__doc__)
    parser.add_argument("--picture", type=Path, help="where to draw the trade-off")
    given = parser.parse_args()
    clock = Clock()
    parts = [study(load.__name__, load(given.data), given.seeds, clock) for load in (houses, books)]
    for records in parts:
        name = records["data"].iloc[0]
        tests = paired(records, PAIRS, ["error_decile", "error_chosen", "error_all", "price_error"], OVERLAP)
        keep(records, given.out, f"matching-regression-{name}.csv")
        keep(tests, given.out, f"matching-regression-{name}-tests.csv")
        print(name, markdown(summary(records, METRICS)), markdown(show(tests)), sep="\n\n", flush=True)
        for factor in (1.1, 1.25):
            equal = at_equal_cost(records, factor)
            tests = paired(equal, cost_pairs(), ["error_decile", "error_chosen"], OVERLAP)
            keep(tests, given.out, f"matching-regression-{name}-at-{factor:g}-tests.csv")
            print(f"\n{name}, where the error of all is {factor:g} times that of MSE\n")
            print(markdown(summary(equal, ["error_decile", "error_chosen"])), markdown(show(tests)), sep="\n\n")
    if given.picture is not None:
        draw(pd.concat(parts), given.picture)


if __name__ == "__main__":
    main()
