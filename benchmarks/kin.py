"""NONA next to its modern kin on plain tables: TabM and TabR of pytabkit, RealMLP, a short ModernNCA, and our defaults.

Tables, splits and rows are those of ``tables.py``: 60 % to train on, 20 % to stop by, 20 % to test on. Each method has
its own defaults and no search. The rivals learn from the training rows and stop by the others; ours holds out the same
rows, and has them in its bank afterwards, as a user gets it. Seconds are processor seconds of one thread. The size is
that of the file or folder that a prediction needs. A run that is killed goes on.

    pip install pytabkit tabm rtdl_num_embeddings skorch faiss-cpu
    python benchmarks/kin.py --data FOLDER --out benchmarks/results/kin.csv --splits 2   # FOLDER as for tables.py
    python benchmarks/kin.py --out benchmarks/results/kin.csv --splits 0 --page docs/results/nona.md  # of what is there

Texts as frozen vectors, rows and splits as in ``nona``, from the folder that ``nona/sets.py`` fills:

    python benchmarks/kin.py --cache runs/nona --sets tweets amazon --out benchmarks/results/kin-texts.csv --splits 1

TabPFN and TabICL need weights that no package carries; who has them runs ``--methods tabpfn`` or ``tabicl`` beside the
others, with the packages of these names.
"""

import argparse
import contextlib
import logging
import pickle
import re
import sys
import tempfile
import time
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from tables import SETS, columns_of, read
from torch import Tensor, nn

from vicinal.estimators import NeighborRegressor, save_model

sys.path.insert(0, str(Path(__file__).parent / "nona"))
from sets import load

TABLES, TEXTS = SETS[:10], ("tweets", "amazon")
OURS = {"default": {}, "network": {"metric": "network"}}
PYTABKIT = {"tabm": "TabM_D_Regressor", "tabr": "TabR_S_D_Regressor", "realmlp": "RealMLP_TD_Regressor"}
WITH_WEIGHTS = {"tabpfn": ("tabpfn", "TabPFNRegressor"), "tabicl": ("tabicl", "TabICLRegressor")}
METHODS = (*OURS, *PYTABKIT, "modernnca", *WITH_WEIGHTS)
USUAL = tuple(name for name in METHODS if name not in WITH_WEIGHTS)


def is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column)


class ModernNCA(nn.Module):
    """A softmax over minus distances of an embedding to training rows (arXiv:2407.03257), in its shortest form.

    Numbers go through periodic features that are learned (or as they are), then all through one linear layer. A step
    compares a batch with a random half of the other rows; predictions see all. Features and learning rate are chosen
    by the rows held out, out of four settings; the others are ours.
    """

    def __init__(self, numbers: int, others: int, *, periodic: bool, width: int = 128) -> None:
        super().__init__()
        self.numbers = numbers
        self.periodic = None
        if periodic:
            from rtdl_num_embeddings import PeriodicEmbeddings

            self.periodic = PeriodicEmbeddings(numbers, 16, n_frequencies=48, frequency_init_scale=0.05, lite=True)
        self.linear = nn.Linear((numbers * 16 if periodic else numbers) + others, width)

    def forward(self, x: Tensor) -> Tensor:
        """Embeddings ``[b, width]`` of ``x [b, columns]``, numbers first."""
        if self.periodic is None:
            return self.linear(x)
        return self.linear(torch.cat([self.periodic(x[:, : self.numbers]).flatten(1), x[:, self.numbers :]], dim=1))

    def predict(self, x: Tensor, bank: Tensor, y: Tensor, hidden: Tensor | None = None) -> Tensor:
        """Weighted means of ``y [N]``; ``hidden [b, N]`` rows do not count."""
        scores = -torch.cdist(self(x), self(bank))
        return (scores if hidden is None else scores.masked_fill(hidden, -torch.inf)).softmax(1) @ y

    def learn(self, x: Tensor, y: Tensor, held_x: Tensor, held_y: Tensor, rate: float, *, patience: int = 20) -> float:
        """AdamW, batches of 128, until ``patience`` epochs bring no smaller error of the rows held out: gives that."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=rate, weight_decay=2e-4)
        best, kept, since = np.inf, self.state_dict(), 0
        while since < patience:
            for batch in torch.randperm(len(x)).split(128):
                near = torch.randperm(len(x))[: len(x) // 2]
                error = self.predict(x[batch], x[near], y[near], batch[:, None] == near) - y[batch]
                optimizer.zero_grad()
                error.square().mean().backward()
                optimizer.step()
            with torch.no_grad():
                now = float((self.predict(held_x, x, y) - held_y).square().mean())
            since += 1
            if now < best:
                best, since = now, 0
                kept = {name: value.clone() for name, value in self.state_dict().items()}
        self.load_state_dict(kept)
        return best


def modern_nca(table: pd.DataFrame, y: np.ndarray, train: np.ndarray, held: np.ndarray, test: np.ndarray):
    """Predictions of the test rows, and bytes of what is needed for them."""
    encoder = columns_of(table).fit(table.iloc[train])  # the numbers come first
    parts = [torch.tensor(encoder.transform(table.iloc[rows]), dtype=torch.float32) for rows in (train, held, test)]
    mean, scale = y[train].mean(), y[train].std()
    labels = [torch.tensor((y[rows] - mean) / scale, dtype=torch.float32) for rows in (train, held)]
    numbers = sum(is_number(table[name]) for name in table)
    best, model = np.inf, None
    named = not isinstance(table.columns, pd.RangeIndex)  # the numbers of a vector are taken as they are
    for periodic, rate in product((True, False) if named else (False,), (0.01, 0.001)):
        tried = ModernNCA(numbers, parts[0].shape[1] - numbers, periodic=periodic)
        error = tried.learn(parts[0], labels[0], parts[1], labels[1], rate)
        if error < best:
            best, model = error, tried
    with torch.no_grad():
        predicted = model.predict(parts[2], parts[0], labels[0]).double().numpy() * scale + mean
    return predicted, 4 * (sum(p.numel() for p in model.parameters()) + parts[0].numel() + labels[0].numel())


def pytabkit(name: str, table: pd.DataFrame, y: np.ndarray, train: np.ndarray, held: np.ndarray, test: np.ndarray):
    import pytabkit as package

    for logger in ("lightning.pytorch", "pytorch_lightning", "lightning.fabric"):
        logging.getLogger(logger).setLevel(logging.ERROR)
    categories = [column for column in table if not is_number(table[column])]
    table = table.fillna(table.iloc[train].median(numeric_only=True))  # pytabkit takes no missing numbers
    if name == "tabr" and categories:  # it fails where a table has categories, but none of two values
        encoded = columns_of(table).fit(table.iloc[train]).transform(table)
        table, categories = pd.DataFrame(encoded).add_prefix("c"), []
    model = getattr(package, PYTABKIT[name])(device="cpu", random_state=0, n_threads=1, verbosity=0)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # it leaves checkpoints
        model.fit(table.iloc[train], y[train], table.iloc[held], y[held], cat_col_names=categories)
    predicted = np.asarray(model.predict(table.iloc[test])).ravel()
    try:
        return predicted, len(pickle.dumps(model))
    except (pickle.PicklingError, TypeError, AttributeError):
        return predicted, None


def with_weights(name: str, table: pd.DataFrame, y: np.ndarray, train: np.ndarray, held: np.ndarray, test: np.ndarray):
    module, class_name = WITH_WEIGHTS[name]
    both = np.concatenate([train, held])
    encoder = columns_of(table).fit(table.iloc[both])
    model = getattr(__import__(module), class_name)()
    model.fit(encoder.transform(table.iloc[both]), y[both])
    return model.predict(encoder.transform(table.iloc[test])), None


def ours(settings: dict[str, Any], table: pd.DataFrame, y: np.ndarray, train, held, test):
    both = np.concatenate([train, held])
    kinds = {column: "number" if is_number(table[column]) else "category" for column in table}
    seen, tested = table.iloc[both].reset_index(drop=True), table.iloc[test]
    if isinstance(table.columns, pd.RangeIndex):  # vectors: their numbers have no names
        kinds, seen, tested = None, seen.to_numpy(), tested.to_numpy()
    model = NeighborRegressor(columns=kinds, **settings)
    model.fit(seen, y[both], validation=np.arange(len(train), len(both)))
    predicted = model.predict(tested)
    with tempfile.TemporaryDirectory() as folder:
        save_model(model, Path(folder) / "model")
        return predicted, sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())


def cut(name: str, split: int, data: Path | None, cache: Path | None):
    """A set, its labels, and rows to train on, to stop by and to test on."""
    if name not in TEXTS:
        table, y = read(name, data)
        order = np.random.default_rng(1000 + split).permutation(len(y))  # as tables.py cuts them
        return table, y, np.split(order, [round(0.6 * len(y)), round(0.8 * len(y))])
    if cache is None:
        raise ValueError(f"--cache: expected the folder that nona/sets.py has filled, as {name} is a set of texts")
    texts = load(name, cache)
    rows = texts.splits(split + 1)[split]
    return pd.DataFrame(texts.features), texts.labels, [rows.train, rows.validation, rows.test]


def measure(name: str, split: int, method: str, data: Path | None, cache: Path | None) -> dict[str, Any]:
    """One line of the CSV."""
    table, y, parts = cut(name, split, data, cache)
    torch.manual_seed(split)
    start = time.process_time()
    if method in OURS:
        predicted, size = ours(OURS[method], table, y, *parts)
    elif method in PYTABKIT:
        predicted, size = pytabkit(method, table, y, *parts)
    elif method in WITH_WEIGHTS:
        predicted, size = with_weights(method, table, y, *parts)
    else:
        predicted, size = modern_nca(table, y, *parts)
    seconds = time.process_time() - start
    truth = y[parts[2]]
    line = {"set": name, "split": split, "method": method, "mse": float(np.square(predicted - truth).mean())}
    return line | {"variance": float(truth.var()), "rows": len(y), "seconds": round(seconds, 2), "bytes": size}


def against_default(runs: pd.DataFrame, method: str) -> pd.DataFrame:
    """By table: mean test error in units of that of the default on the same splits, and how many splits they are."""
    errors = runs[runs["method"].isin(["default", method])].pivot_table(
        index=["set", "split"], columns="method", values="mse"
    )
    means = errors.dropna().groupby("set", sort=False).mean()
    counts = errors.dropna().groupby("set", sort=False).size()
    return pd.DataFrame({"ratio": means[method] / means["default"], "splits": counts})


def summary(runs: pd.DataFrame) -> str:
    """Errors against the default's, table by table, in Markdown; its own in units of the variance."""
    methods = [name for name in METHODS if name in set(runs["method"])]
    others = [name for name in methods if name != "default"]
    found = {name: against_default(runs, name) for name in others}
    default = runs[runs["method"] == "default"].assign(error=lambda rows: rows["mse"] / rows["variance"])
    lines = [
        f"| set | rows | default: share of the variance | {' | '.join(others)} |",
        "|" + " --- |" * (3 + len(others)),
    ]
    for name in dict.fromkeys(runs["set"]):
        own = default[default["set"] == name]
        ratios = [f"{found[m].ratio[name]:.2f}" if name in found[m].index else "-" for m in others]
        lines.append(f"| {name} | {own['rows'].iloc[0]} | {own['error'].mean():.3f} | {' | '.join(ratios)} |")
    by_method = {
        "median": lambda m: f"**{found[m].ratio.median():.2f}**",
        "better than the default on": lambda m: f"{(found[m].ratio < 1).sum()} of {len(found[m])}",
        "splits": lambda m: " or ".join(map(str, sorted(set(found[m].splits)))),
    }
    lines += [f"| {word} | | | {' | '.join(map(cell, others))} |" for word, cell in by_method.items()]
    seconds, size = (runs.groupby("method")[what].median() for what in ("seconds", "bytes"))
    for word, values in (("processor seconds, median", seconds), ("kilobytes, median", size / 1e3)):
        shown = [f"{values[m]:.0f}" if values[m] >= 10 else f"{values[m]:.1f}" for m in ("default", *others)]
        lines.append(f"| {word} | | {' | '.join(shown)} |".replace("nan", "-"))
    return "\n".join(lines)


def main() -> None:
    """Measure what is not in the CSV yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder below which the files are")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/kin.csv"))
    parser.add_argument("--cache", type=Path, help="folder of frozen vectors, for sets of texts")
    parser.add_argument("--sets", nargs="*", default=list(TABLES), choices=(*SETS, *TEXTS))
    parser.add_argument("--methods", nargs="*", default=list(USUAL), choices=METHODS)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--page", type=Path, help="page to write the table into, between its marks")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    done = set()
    if options.out.exists():
        done = {tuple(key) for key in pd.read_csv(options.out)[["set", "split", "method"]].itertuples(index=False)}
    for split, name, method in product(range(options.splits), options.sets, options.methods):
        if (name, split, method) not in done:
            line = pd.DataFrame([measure(name, split, method, options.data, options.cache)])
            line.to_csv(options.out, mode="a", header=not options.out.exists(), index=False)
            print(line.to_string(header=False, index=False), flush=True)
    if not options.out.exists():
        return
    table = summary(pd.read_csv(options.out))
    print(table)
    if options.page:
        mark = re.escape(options.out.stem)
        text = options.page.read_text(encoding="utf-8")
        marked = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
        options.page.write_text(marked.sub(lambda marks: f"{marks[1]}\n{table}\n\n{marks[2]}", text), encoding="utf-8")


if __name__ == "__main__":
    main()
