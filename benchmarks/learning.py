"""Similarity on classes never seen: EmbeddingLearner by its default, beside another library's loop.

Five sets with frozen encoders, at most 1,500 rows (whole classes), a quarter of the classes for the test, by seed. The
loop is one that users of pytorch-metric-learning write: a linear layer on the same vectors, its sampler, their loss,
Adam, stopped by MAP@R on the same classes held out; of two losses and two learning rates the best there. Lines that are
there are not run again.

    pip install pytorch-metric-learning
    python benchmarks/learning.py --data ../shared/data --cache runs/learning
"""

import copy
import io
import re
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image
from resumable import RESULTS, Lines, asked
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from vicinal.encoders import EmbeddingCache, PrincipalProjector, build_table_encoder
from vicinal.estimators import EmbeddingLearner
from vicinal.estimators.kernel_metric import encoded
from vicinal.evaluation.alike import alike_scores, hold_out_classes

WIDTH, EPOCHS, PATIENCE, MOST = 128, 30, 8, 1500
ENCODERS = {"audio": "ge2e", "image": "efficientnet-lite0", "text": "minilm"}
DEFAULT = "supcon(temperature=0.1)"


TITLE = re.compile(r"COL (?:title|name) VAL (.*?)(?: COL |$)")


def authors(data):
    table = pd.read_parquet(data / "text" / "book_prices.parquet")
    counts = table["author"].map(table["author"].value_counts())
    return table.loc[counts >= 4, ["title", "synopsis"]], table.loc[counts >= 4, "author"]


def shops(data):
    """Titles of six shops; the connected parts of labelled matches are one product."""
    pairs = [pd.read_parquet(path).query("match == 1") for path in sorted((data / "retrieval").glob("pairs_*"))]
    known = pd.concat(pairs[:2] + pairs[3:])  # without the papers of dblp-acm
    codes, texts = pd.factorize(pd.concat([known["left"], known["right"]]))
    left, right = np.split(codes, 2)
    shape = (len(texts), len(texts))
    product_ = connected_components(coo_array((np.ones(len(left)), (left, right)), shape=shape))[1]
    return pd.DataFrame({"title": [TITLE.search(text)[1].strip() for text in texts]}), pd.Series(product_)


def characters(data):
    stored = np.load(data / "images" / "omniglot_small.npz")

    def png(pixels):
        file = io.BytesIO()
        Image.fromarray(pixels * (255 if pixels.max() <= 1 else 1)).save(file, "PNG")
        return file.getvalue()

    return pd.DataFrame({"image": [png(one) for one in stored["images"]]}), pd.Series(stored["label"])


def one_column(file, column, label):
    def read(data):
        table = pd.read_parquet(data / file)
        table = table.sample(MOST, random_state=0) if len(table) > 2 * MOST - 1 else table  # of all classes
        return table[[column]], table[label]

    return read


SETS = {
    "speakers": ({"audio": "audio"}, one_column("audio/fsdd.parquet", "audio", "digit")),
    "sign": ({"image": "image"}, one_column("images/sign_digits.parquet", "image", "digit")),
    "authors": ({"title": "text", "synopsis": "text"}, authors),
    "shops": ({"title": "text"}, shops),
    "omniglot": ({"image": "image"}, characters),
}


def load(name: str, data: Path, cache: Path, seed: int) -> tuple:
    """Rows to learn from, frozen vectors and classes of them and of the test, places held out among the first."""
    kinds, read = SETS[name]
    table, labels = read(data)
    y = pd.factorize(labels)[0]
    rank = np.random.default_rng(0).permutation(y.max() + 1)
    some = np.sort(np.argsort(rank[y], kind="stable")[:MOST])
    table, y = table.iloc[some].reset_index(drop=True), np.unique(y[some], return_inverse=True)[1]
    encoder = build_table_encoder(kinds, encoders={kind: ENCODERS[kind] for kind in kinds.values()}).fit(table)
    x = encoded(encoder, encoder.cache(encoder.prepare(table), store=EmbeddingCache(cache))).float().numpy()
    test = hold_out_classes(y, 0.25, seed)
    rest = np.setdiff1d(np.arange(len(y)), test)
    known = np.unique(y[rest], return_inverse=True)[1]
    return table.iloc[rest], x[rest], known, hold_out_classes(known, 0.15, seed), table.iloc[test], x[test], y[test]


def learned(name, cache, rows, y, held_out, seed, loss=DEFAULT) -> EmbeddingLearner:
    kinds = SETS[name][0]
    settings = {"columns": kinds, "encoders": {kind: ENCODERS[kind] for kind in kinds.values()}, "cache_dir": cache}
    settings |= {"dim": WIDTH, "max_epochs": EPOCHS, "patience": PATIENCE, "random_state": seed}
    return EmbeddingLearner(loss=loss, **settings).fit(rows, y, validation=held_out)


def their_loop(x, y, held_out, name, rate, seed):
    """A loop around pytorch-metric-learning; MAP@R on the classes held out, and the map."""
    from pytorch_metric_learning import losses, miners, samplers

    torch.manual_seed(seed)
    train = np.setdiff1d(np.arange(len(y)), held_out)
    layer = torch.nn.Linear(x.shape[1], WIDTH)
    rows, codes = torch.from_numpy(x[train]), torch.from_numpy(np.unique(y[train], return_inverse=True)[1])
    miner = miners.MultiSimilarityMiner() if name == "multi_similarity" else None
    criterion = losses.MultiSimilarityLoss() if miner else losses.SupConLoss(temperature=0.1)
    optimizer = torch.optim.Adam(layer.parameters(), lr=rate)
    each = 4 if len(codes.unique()) >= 32 else 128 // len(codes.unique())
    size = min(128, each * len(codes.unique()))
    sampler = samplers.MPerClassSampler(codes, each, batch_size=size, length_before_new_iter=max(len(codes), 20 * size))
    best, state, bad = -1.0, None, 0
    for _ in range(EPOCHS):
        for batch in torch.tensor(list(sampler)).split(size):
            vectors = layer(rows[batch])
            optimizer.zero_grad()
            criterion(vectors, codes[batch], miner(vectors, codes[batch]) if miner else None).backward()
            optimizer.step()
        now = scores(layer(torch.from_numpy(x[held_out])).detach(), torch.from_numpy(y[held_out]))["map_at_r"]
        best, state, bad = (now, copy.deepcopy(layer.state_dict()), 0) if now > best else (best, state, bad + 1)
        if bad >= PATIENCE:
            break
    layer.load_state_dict(state)
    return best, lambda some: layer(torch.from_numpy(some)).detach()


def scores(vectors: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    found = alike_scores(vectors, labels, intervals=False)
    return {key.replace("@", "_at_"): round(value.value, 4) for key, value in found.items()}


def rows_of(name: str, data: Path, cache: Path, seed: int) -> Iterator[dict]:
    """One line a method: its figures on the test classes."""
    rows, x, y, held_out, test_rows, test, truth = load(name, data, cache, seed)

    def line(method, vectors, seconds):
        figures = scores(vectors, torch.from_numpy(truth))
        return {"set": name, "seed": seed, "method": method, "seconds": round(seconds, 2), **figures}

    yield line("frozen vectors", torch.from_numpy(test), 0.0)
    train = torch.from_numpy(np.delete(x, held_out, axis=0))
    whitened = PrincipalProjector(x.shape[1], min(WIDTH, x.shape[1])).fit(train, 1.0)
    yield line("PCA-whitened vectors", whitened(torch.from_numpy(test)).detach(), 0.0)
    begun = time.process_time()
    vectors = torch.from_numpy(learned(name, cache, rows, y, held_out, seed).transform(test_rows))
    yield line(f"EmbeddingLearner {DEFAULT}", vectors, time.process_time() - begun)
    begun = time.process_time()
    ways = product(("supcon", "multi_similarity"), (1e-3, 1e-2))
    best = max((their_loop(x, y, held_out, *way, seed) for way in ways), key=lambda one: one[0])
    yield line("pytorch-metric-learning, tuned loop", best[1](test), time.process_time() - begun)


def main() -> None:
    given = asked(
        __doc__, data=Path("../shared/data"), cache=Path("runs/learning"), out=RESULTS / "learning.csv", seeds=3
    )
    lines = Lines(given.out, "set", "seed")
    for seed, name in product(range(given.seeds), SETS):
        if (name, seed) not in lines:
            lines.add(rows_of(name, given.data, given.cache, seed))


if __name__ == "__main__":
    main()
