"""Encoders of sets under the default head, beside fixed pooling and scikit-learn: the figures of docs/results/sets.md.

Every method of a task and split is one row of the CSV: squared error in units of the variance of the training labels,
or log loss and accuracy, and processor seconds without those of frozen encoders; a row that is there is not run again.

A method that ends in ", dense" has a linear layer in place of the head of neighbors.

    python benchmarks/sets_encoders.py run --data ../shared/data --out benchmarks/results/sets.csv --tasks musk houses
    python benchmarks/sets_encoders.py table --out benchmarks/results/sets.csv
"""

import argparse
import csv
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from vicinal.core import entries
from vicinal.data import CHUNK_WORDS, Split, make_splits, split_texts
from vicinal.encoders import EmbeddingCache, build_table_encoder
from vicinal.estimators import NeighborClassifier, NeighborRegressor
from vicinal.evaluation import classification_scores
from vicinal.evaluation.tuned import CLASSES, tuned_baselines

FIELDS = ("task", "split", "method", "error", "accuracy", "seconds", "settings")
SIZES = (10, 30, 100)
"""Digits of the sets that sums are extrapolated to; trained on sets of 1 to 10."""

DENSE = ("moments", "deep_sets", "attsets", "set_transformer", "mean of vectors")
"""What is also run with a linear layer in place of the head of neighbors."""

TEXTS = "minilm"
"""What encodes texts and words: as published."""

EVERY, RESAMPLED = 12, 8
"""Every twelfth of Omniglot's characters is one of those told apart, and points of a stroke as an element."""


Table = tuple[pd.DataFrame, str, str | None]
"""A table, the kind of its column, and its encoder."""


@dataclass(frozen=True)
class Task:
    """Sets with labels: the sets as a column "x", labels ``[n]``, groups or None, the encoder of the elements."""

    frame: pd.DataFrame
    labels: np.ndarray[Any, Any]
    groups: np.ndarray[Any, Any] | None
    elements: str
    root: Path | None = None
    classes: bool = False
    also: dict[str, Table] | None = None


def musk(data: Path) -> Task:
    """Molecules as bags of 2 to 40 conformations: musk or not."""
    file = np.load(data / "sets" / "musk1.npz")
    bags = [file["features"][file["bag"] == bag].astype(float).tolist() for bag in range(len(file["bag_label"]))]
    return Task(pd.DataFrame({"x": bags}), file["bag_label"].astype(int), None, "vectors", classes=True)


def houses(data: Path) -> Task:
    """Four photos of a house, and the logarithm of its price; beside them the frontal photo alone."""
    table = pd.read_csv(data / "houses" / "houses.csv")
    front = [f"frontal256/{number:03d}.jpg" for number in table["id"]]
    rooms = [[f"rooms128/{n:03d}_{room}.jpg" for room in ("bedroom", "bathroom", "kitchen")] for n in table["id"]]
    frame = pd.DataFrame({"x": [[one, *others] for one, others in zip(front, rooms, strict=True)]})
    also: dict[str, Table] = {"frontal photo": (pd.DataFrame({"x": front}), "image", "efficientnet-lite0")}
    labels, groups = np.log(table["price"].to_numpy(float)), pd.factorize(table["dup_group"])[0]
    return Task(frame, labels, groups, "efficientnet-lite0", data / "houses", also=also)


def digits(data: Path) -> Task:
    """Sums of 1 to 10 digits; :data:`SIZES` digits are predicted too."""
    del data
    random = np.random.default_rng(0)
    sets = [random.integers(0, 10, random.integers(1, 11)).tolist() for _ in range(600)]
    return Task(pd.DataFrame({"x": sets}), np.array([float(sum(one)) for one in sets]), None, "numbers")


def tags(data: Path) -> Task:
    """Tags of an article, and the logarithm of the number of its readers."""
    table = pd.read_parquet(data / "retrieval" / "citeulike_t_tags.parquet")
    readers = pd.read_parquet(data / "retrieval" / "citeulike_t_interactions.parquet")
    lists = table.groupby("item_id")["tag"].apply(list)
    counts = readers["item_id"].value_counts()
    both = lists.index.intersection(counts.index)
    drawn = np.sort(np.random.default_rng(0).choice(np.asarray(both), 1000, replace=False))
    return Task(pd.DataFrame({"x": lists[drawn].tolist()}), np.log(counts[drawn].to_numpy(float)), None, "ngrams")


def drawings(data: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Points ``[n, 64, 3]`` of pens, x, y and number of the stroke, of 21 characters of 20 drawings each, and these."""
    file = np.load(data / "sets" / "omniglot_points.npz")
    some = np.isin(file["label"], np.unique(file["label"])[::EVERY])
    return file["points"][some].astype(float), file["label"][some].astype(int)


def points(data: Path) -> Task:
    """Characters as sets of 64 points of the pen; beside them the points as a vector, in the order of drawing."""
    pens, labels = drawings(data)
    ordered = pd.DataFrame({"x": list(pens[:, :, :2].reshape(len(pens), -1))})
    frame = pd.DataFrame({"x": [one[:, :2].tolist() for one in pens]})
    also: dict[str, Table] = {"points in order": (ordered, "vector", None)}
    return Task(frame, labels, None, "vectors", classes=True, also=also)


def strokes(data: Path) -> Task:
    """Characters as sets of strokes, each as the coordinates of :data:`RESAMPLED` points of it."""
    pens, labels = drawings(data)

    def resampled(pen: np.ndarray[Any, Any], stroke: float) -> list[float]:
        mine = pen[pen[:, 2] == stroke, :2]
        places = np.linspace(0, len(mine) - 1, RESAMPLED)
        return np.concatenate([np.interp(places, np.arange(len(mine)), axis) for axis in mine.T]).tolist()

    sets = [[resampled(pen, stroke) for stroke in np.unique(pen[:, 2])] for pen in pens]
    return Task(pd.DataFrame({"x": sets}), labels, None, "vectors", classes=True)


def long_texts(texts: pd.Series, labels: np.ndarray[Any, Any], also: dict[str, pd.DataFrame]) -> Task:
    """Texts as sets of chunks; beside them the texts, cut, and other sets."""
    frame = pd.DataFrame({"x": texts.tolist()})
    others = {name: (each, "set", f"moments:{TEXTS}") for name, each in also.items()}
    return Task(split_texts(frame, ["x"]), labels, None, TEXTS, also={"cut": (frame, "text", TEXTS)} | others)


def priced(data: Path) -> pd.DataFrame:
    """Books with a synopsis each."""
    return pd.read_parquet(data / "text" / "book_prices.parquet").drop_duplicates("synopsis")


def books(data: Path) -> Task:
    """Synopses of more than 180 words as sets of chunks, and the logarithm of the price."""
    table = priced(data)
    table = table[table["synopsis"].str.split().str.len() > CHUNK_WORDS].sample(300, random_state=0).sort_index()
    return long_texts(table["synopsis"], np.log(table["price"].to_numpy(float)), {})


def editorials(data: Path) -> Task:
    """Editorials of more than 180 words as sets of chunks or of sentences, and the mean rating of their sentences."""
    table = pd.read_parquet(data / "text" / "vader_sentiment.parquet")
    table = table[table["domain"] == "nyt"].groupby("group").agg({"text": list, "rating": "mean"})
    table = table[table["text"].str.join(" ").str.split().str.len() > CHUNK_WORDS]
    sentences = pd.DataFrame({"x": table["text"].tolist()})
    return long_texts(table["text"].str.join(" "), table["rating"].to_numpy(), {"sentences": sentences})


def words(data: Path) -> Task:
    """Different words of a title and a synopsis, at most 60, and the logarithm of the price; beside them the texts."""
    table = priced(data).dropna(subset=["title", "synopsis"]).sample(400, random_state=0).sort_index()
    texts = table["title"] + ". " + table["synopsis"]
    sets = [list(dict.fromkeys(one))[:60] for one in texts.str.lower().str.findall(r"[a-z]{3,}")]
    also: dict[str, Table] = {"text as a whole": (pd.DataFrame({"x": texts.tolist()}), "text", TEXTS)}
    return Task(pd.DataFrame({"x": sets}), np.log(table["price"].to_numpy(float)), None, TEXTS, also=also)


TASKS = {
    "musk": musk,
    "houses": houses,
    "digits": digits,
    "tags": tags,
    "points": points,
    "strokes": strokes,
    "words": words,
    "books": books,
    "editorials": editorials,
}


def pooled(task: Task, train: np.ndarray[Any, Any], cache: EmbeddingCache, *, only_mean: bool) -> pd.DataFrame:
    """Vectors of fixed pooling: means of the frozen vectors, or mean, deviation, largest and number."""
    encoder = build_table_encoder({"x": "set"}, encoders={"x": f"deep_sets:{task.elements}"}, cache=cache)
    encoder.fit(task.frame.iloc[train])
    features = encoder.features(task.frame, encoder.cache(encoder.prepare(task.frame, task.root)))
    if only_mean:
        features = features[:, : (features.shape[1] - 1) // 3]
    return pd.DataFrame({"x": list(features)})


def fit(task: Task, table: Table, split: Split, cache: Path, head: str) -> Any:
    """The default model, or another head of it; the validation rows stop it and choose its readout."""
    frame, kind, encoder = table
    rows = np.concatenate([split.train, split.validation])
    make = NeighborClassifier if task.classes else NeighborRegressor
    encoders = None if encoder is None else {"x": encoder}
    settings = {"columns": {"x": kind}, "encoders": encoders, "root": task.root, "cache_dir": cache}
    model = make(head=head, random_state=split.seed, **settings)
    groups = None if task.groups is None else task.groups[rows]
    held = np.arange(len(split.train), len(rows))
    return model.fit(frame.iloc[rows], task.labels[rows], groups=groups, validation=held)


def methods(task: Task, train: np.ndarray[Any, Any], cache: Path) -> dict[str, Callable[[], Table]]:
    """By method, what gives its table."""
    store = EmbeddingCache(cache)
    named: dict[str, Callable[[], Table]] = {
        item.name: partial(lambda name: (task.frame, "set", f"{name}:{task.elements}"), item.name)
        for item in entries("set_encoder")
    }
    if task.elements != "ngrams":
        named["mean of vectors"] = lambda: (pooled(task, train, store, only_mean=True), "vector", None)
        named["moments of vectors"] = lambda: (pooled(task, train, store, only_mean=False), "vector", None)
    for name, table in (task.also or {}).items():
        named[name] = partial(lambda *one: one, *table)
    return named


def run(options: argparse.Namespace) -> None:
    """Fill the CSV."""
    known = set()
    if options.out.is_file():
        known = {
            (row["task"], row["split"], row["method"]) for row in csv.DictReader(options.out.open(encoding="utf-8"))
        }
    for name in options.tasks:
        task = TASKS[name](options.data)
        for split in make_splits(len(task.labels), number=options.splits, groups=task.groups):
            tables = methods(task, split.train, options.cache)
            every = [*tables, *(f"{one}, dense" for one in DENSE if one in tables), "tuned"]
            for method in options.methods or every:
                if (name, str(split.seed), method) not in known:
                    plain = method.removesuffix(", dense")
                    lines = baselines if method == "tuned" else partial(measured, method=method, table=tables[plain]())
                    for line in lines(task, split, options.cache):
                        write(options.out, (name, split.seed, *line))


def measured(task: Task, split: Split, cache: Path, method: str, table: Table) -> list[tuple[Any, ...]]:
    """Method, error, accuracy, seconds, settings; for digits also errors beyond the sizes trained on."""
    frame, kind, _ = table
    begun = time.process_time()
    model = fit(task, table, split, cache, "dense" if method.endswith(", dense") else "nona")
    spent = time.process_time() - begun
    groups = None if task.groups is None else task.groups[split.test]
    said = (model.predict_proba if task.classes else model.predict)(frame.iloc[split.test], groups=groups)
    lines = [(method, *errors(task, split, said), f"{spent:.1f}", model.readout_)]
    if task.elements == "numbers" and kind == "set":
        random = np.random.default_rng(split.seed)
        for size in SIZES:
            sets = [random.integers(0, 10, size).tolist() for _ in range(200)]
            off = model.predict(pd.DataFrame({"x": sets})) - [sum(one) for one in sets]
            lines.append((f"{method}, {size} digits", f"{np.abs(off).mean():.4f}", "", "", "mean absolute error"))
    return lines


def errors(task: Task, split: Split, said: Any) -> tuple[str, str]:
    """Error in units of the variance of the training labels; of classes log loss and accuracy."""
    truth = task.labels[split.test]
    if task.classes:
        scores = classification_scores(truth, said, np.unique(task.labels).tolist())
        return f"{scores['log_loss']:.4f}", f"{scores['accuracy']:.4f}"
    return f"{np.mean((said - truth) ** 2) / task.labels[split.train].var():.4f}", ""


def baselines(task: Task, split: Split, cache: Path) -> list[tuple[Any, ...]]:
    """What scikit-learn makes of mean, deviation, largest and number, tuned on all but the test rows."""
    rows = np.concatenate([split.train, split.validation])
    if task.elements == "ngrams":
        return []
    features = np.stack(pooled(task, split.train, EmbeddingCache(cache), only_mean=False)["x"].tolist())
    tuned = tuned_baselines(
        features[rows],
        task.labels[rows],
        features[split.test],
        classes=np.unique(task.labels).tolist() if task.classes else None,
        groups=None if task.groups is None else task.groups[rows],
        methods=CLASSES if task.classes else ("ridge", "support vectors"),
    )
    settings = [" ".join(f"{key} {value}" for key, value in one.settings.items()) for one in tuned]
    lines = [
        (one.name, *errors(task, split, one.prediction), "", said) for one, said in zip(tuned, settings, strict=True)
    ]
    return [*lines, ("tuned", "", "", "", "done")]


def write(path: Path, line: tuple[Any, ...]) -> None:
    """Add a line to the CSV."""
    new = not path.is_file()
    with path.open("a", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([FIELDS, line] if new else [line])
    print(*line, flush=True)


def table(options: argparse.Namespace) -> None:
    """Errors by method and task, and median seconds; of digits also the errors beyond the sizes trained on."""
    rows = pd.read_csv(options.out).dropna(subset=["error"])
    order = [name for name in TASKS if name in set(rows["task"])]
    beyond = rows["settings"] == "mean absolute error"
    for name, some in (("error", rows[~beyond]), ("beyond", rows[beyond])):
        by_task = dict(list(some.groupby("task")))
        show(name, pd.concat([column(task, by_task[task]) for task in order if task in by_task], axis=1))
    for name, how, places in (("seconds", "median", 1), ("accuracy", "mean", 3)):
        told = rows[~beyond].pivot_table(index="method", columns="task", values=name, aggfunc=how)
        show(name, told.map(lambda one, places=places: f"{one:.{places}f}" if one == one else ""))


def show(name: str, frame: pd.DataFrame) -> None:
    """A table in Markdown."""
    frame = frame.fillna("").sort_index()
    print(f"\n{name}\n\n| method | {' | '.join(frame.columns)} |\n|{' --- |' * (1 + len(frame.columns))}")
    for method, line in frame.iterrows():
        print(f"| {method} | {' | '.join(line)} |")


def column(task: Any, part: pd.DataFrame) -> "pd.Series[Any]":
    """Means and deviations over the splits of those methods that have them all, the least error bold.

    A star is at what is worse by a paired t test (p < 0.05), where there are three splits.
    """
    from scipy.stats import ttest_rel

    errors_by = part.pivot_table(index="split", columns="method", values="error", sort=False).dropna(axis=1)
    best = errors_by[errors_by.mean().idxmin()]

    def cell(one: "pd.Series[Any]") -> str:
        places = 0 if one.mean() >= 10 else 3 if one.mean() >= 0.01 else 4
        told = f"{one.mean():.{places}f}" + (f" ± {one.std():.{places}f}" if len(one) > 1 else "")
        if one.name == best.name:
            return f"**{told}**"
        return f"{told} \\*" if len(one) > 2 and ttest_rel(one, best).pvalue < 0.05 else told

    return errors_by.apply(cell).rename(f"{task} ({len(errors_by)})")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run")
    one.set_defaults(do=run)
    one.add_argument("--data", type=Path, default=Path("../shared/data"))
    one.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    one.add_argument("--methods", nargs="+", default=[])
    one.add_argument("--splits", type=int, default=5)
    one.add_argument("--cache", type=Path, default=Path("runs/sets-cache"))
    two = commands.add_parser("table")
    two.set_defaults(do=table)
    for each in (one, two):
        each.add_argument("--out", type=Path, default=Path("benchmarks/results/sets.csv"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    options.do(options)


if __name__ == "__main__":
    main()
