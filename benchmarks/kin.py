"""The default beside networks for tables: TabM, TabR and RealMLP of pytabkit, and a short ModernNCA.

Tables, splits and rows are those of ``tables.py``: 60 % to train on, 20 % to stop by, 20 % to test on. Each method has
its own defaults and no search. The rivals learn from the training rows and stop by the others; ours holds out the same
rows, and has them in its bank afterwards, as a user gets it. Seconds are processor seconds of one thread. A stopped run
resumes.

    pip install pytabkit tabm rtdl_num_embeddings skorch faiss-cpu
    python benchmarks/kin.py --data FOLDER --out benchmarks/results/kin.csv --splits 2   # FOLDER as for tables.py
"""

import contextlib
import logging
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from resumable import RESULTS, Lines, asked
from tables import SETS, columns_of, read
from torch import Tensor, nn

from vicinal.estimators import NeighborRegressor

TABLES = SETS[:10]
OURS = {"default": {}, "network": {"metric": "network"}}
PYTABKIT = {"tabm": "TabM_D_Regressor", "tabr": "TabR_S_D_Regressor", "realmlp": "RealMLP_TD_Regressor"}


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
    """Predictions of the test rows."""
    encoder = columns_of(table).fit(table.iloc[train])  # the numbers come first
    parts = [torch.tensor(encoder.transform(table.iloc[rows]), dtype=torch.float32) for rows in (train, held, test)]
    mean, scale = y[train].mean(), y[train].std()
    labels = [torch.tensor((y[rows] - mean) / scale, dtype=torch.float32) for rows in (train, held)]
    numbers = sum(is_number(table[name]) for name in table)
    best, model = np.inf, None
    for periodic, rate in product((True, False), (0.01, 0.001)):
        tried = ModernNCA(numbers, parts[0].shape[1] - numbers, periodic=periodic)
        error = tried.learn(parts[0], labels[0], parts[1], labels[1], rate)
        if error < best:
            best, model = error, tried
    with torch.no_grad():
        return model.predict(parts[2], parts[0], labels[0]).double().numpy() * scale + mean


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
    return np.asarray(model.predict(table.iloc[test])).ravel()


def ours(settings: dict[str, Any], table: pd.DataFrame, y: np.ndarray, train, held, test):
    both = np.concatenate([train, held])
    kinds = {column: "number" if is_number(table[column]) else "category" for column in table}
    seen, tested = table.iloc[both].reset_index(drop=True), table.iloc[test]
    model = NeighborRegressor(columns=kinds, **settings)
    model.fit(seen, y[both], validation=np.arange(len(train), len(both)))
    return model.predict(tested)


METHODS = (*OURS, *PYTABKIT, "modernnca")


def measure(name: str, split: int, method: str, data: Path | None) -> dict[str, Any]:
    """One line of the CSV."""
    table, y = read(name, data)
    order = np.random.default_rng(1000 + split).permutation(len(y))
    parts = np.split(order, [round(0.6 * len(y)), round(0.8 * len(y))])
    torch.manual_seed(split)
    start = time.process_time()
    if method in OURS:
        predicted = ours(OURS[method], table, y, *parts)
    elif method in PYTABKIT:
        predicted = pytabkit(method, table, y, *parts)
    else:
        predicted = modern_nca(table, y, *parts)
    seconds = time.process_time() - start
    truth = y[parts[2]]
    line = {"set": name, "split": split, "method": method, "mse": float(np.square(predicted - truth).mean())}
    return line | {"variance": float(truth.var()), "rows": len(y), "seconds": round(seconds, 2)}


def main() -> None:
    """Measure what is not in the CSV yet."""
    options = {"sets": list(TABLES), "methods": list(METHODS), "splits": 2}
    given = asked(__doc__, data=Path(), out=RESULTS / "kin.csv", **options)
    lines = Lines(given.out, "set", "split", "method")
    for split, name, method in product(range(given.splits), given.sets, given.methods):
        if (name, split, method) not in lines:
            lines.add([measure(name, split, method, given.data)])


if __name__ == "__main__":
    main()
