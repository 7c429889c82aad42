"""What is alike, on classes never seen: EmbeddingLearner by its default and six losses, beside another library's loop.

Five tables (``--tables``: NAME.parquet with the columns of ``SETS``) with frozen encoders, a quarter of the classes for
the test, by seed. The loop is one that users of pytorch-metric-learning write: a linear layer on the same vectors, its
sampler, their loss, Adam, stopped by MAP@R on the same classes held out; loss and learning rate are those that are best
there. The six other losses are run for the first seed.

    python benchmarks/learning.py --tables FOLDER --cache FOLDER --out benchmarks/results/learning.csv
"""

import argparse
import copy
import csv
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from vicinal.encoders import EmbeddingCache, PrincipalProjector, build_table_encoder
from vicinal.estimators import EmbeddingLearner
from vicinal.estimators.kernel_metric import encoded
from vicinal.evaluation.alike import alike_error, alike_scores, hold_out_classes

SETS = {
    "speakers": ({"audio": "audio"}, "digit"),
    "sign": ({"image": "image"}, "digit"),
    "authors": ({"title": "text", "synopsis": "text"}, "author"),
    "shops": ({"title": "text"}, "product"),
    "omniglot": ({"image": "image"}, "character"),
}
"""Columns by kind, and what is alike."""

ENCODERS = {"audio": "ge2e", "image": "efficientnet-lite0", "text": "minilm"}
LOSSES = (
    "supcon(temperature=0.1)",
    "multi_similarity",
    "triplet(margin=0.1, miner=semihard)",
    "contrastive",
    "proxy_anchor",
    "arcface",
    "nt_xent(temperature=0.1)",
)
WIDTH, EPOCHS, PATIENCE, MOST = 128, 30, 8, 1500


def load(folder, cache, name, seed):
    """Rows to learn from, frozen vectors and classes of them and of the test, positions held out among the first."""
    kinds, same = SETS[name]
    table = pd.read_parquet(Path(folder) / f"{name}.parquet")
    y = pd.factorize(table[same])[0]
    if len(y) > MOST:  # whole classes
        order = np.random.default_rng(0).permutation(y.max() + 1)
        rank = np.empty(len(order), dtype=int)
        rank[order] = np.arange(len(order))
        some = np.sort(np.argsort(rank[y], kind="stable")[:MOST])
        table, y = table.iloc[some], np.unique(y[some], return_inverse=True)[1]
    table = table[list(kinds)].reset_index(drop=True)
    encoder = build_table_encoder(kinds, encoders={kind: ENCODERS[kind] for kind in kinds.values()}).fit(table)
    x = encoded(encoder, encoder.cache(encoder.prepare(table), store=EmbeddingCache(cache))).float().numpy()
    test = hold_out_classes(y, 0.25, seed)
    rest = np.setdiff1d(np.arange(len(y)), test)
    known = np.unique(y[rest], return_inverse=True)[1]
    held_out = hold_out_classes(known, 0.15, seed)
    return table.iloc[rest], x[rest], known, held_out, table.iloc[test], x[test], y[test]


def learned(name, cache, rows, y, held_out, loss, seed):
    kinds = SETS[name][0]
    settings = {"columns": kinds, "encoders": {kind: ENCODERS[kind] for kind in kinds.values()}, "cache_dir": cache}
    settings |= {"dim": WIDTH, "max_epochs": EPOCHS, "patience": PATIENCE, "random_state": seed}
    return EmbeddingLearner(loss=loss, **settings).fit(rows, y, validation=held_out)


def their_loop(x, y, held_out, name, rate, seed):
    """A loop around pytorch-metric-learning; gives the error on the classes held out, and the map."""
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
    best, state, bad = 2.0, None, 0
    for _ in range(EPOCHS):
        batches = torch.tensor(list(sampler)).split(size)
        for batch in batches:
            vectors = layer(rows[batch])
            optimizer.zero_grad()
            criterion(vectors, codes[batch], miner(vectors, codes[batch]) if miner else None).backward()
            optimizer.step()
        with torch.no_grad():
            error = alike_error(layer(torch.from_numpy(x[held_out])), torch.from_numpy(y[held_out]))
        best, state, bad = (error, copy.deepcopy(layer.state_dict()), 0) if error < best else (best, state, bad + 1)
        if bad >= PATIENCE:
            break
    layer.load_state_dict(state)
    return best, lambda some: layer(torch.from_numpy(some)).detach()


def rows_of(folder, cache, name, seed):
    """One line a method: its figures on the test classes."""
    rows, x, y, held_out, test_rows, test, truth = load(folder, cache, name, seed)
    labels = torch.from_numpy(truth)

    def line(method, vectors, seconds, note=""):
        scores = alike_scores(vectors, labels, intervals=False)
        figures = {key.replace("@", "_at_"): round(value.value, 4) for key, value in scores.items()}
        return {"set": name, "seed": seed, "method": method, "seconds": round(seconds, 2), "note": note, **figures}

    train = torch.from_numpy(np.delete(x, held_out, axis=0))
    yield line("frozen vectors", torch.from_numpy(test), 0.0)
    whitened = PrincipalProjector(x.shape[1], min(WIDTH, x.shape[1])).fit(train, 1.0)
    yield line("PCA-whitened vectors", whitened(torch.from_numpy(test)).detach(), 0.0)
    for loss in LOSSES if seed == 0 else LOSSES[:1]:
        begun = time.process_time()
        model = learned(name, cache, rows, y, held_out, loss, seed)
        note = f"{len(model.history_.train_error)} epochs, learned {model.learned_}"
        vectors, seconds = torch.from_numpy(model.transform(test_rows)), time.process_time() - begun
        yield line(f"EmbeddingLearner {loss}", vectors, seconds, note)
    tried, begun = [], time.process_time()
    for loss in ("supcon", "multi_similarity"):
        for rate in (1e-3, 1e-2):
            tried.append((*their_loop(x, y, held_out, loss, rate, seed), f"{loss}, learning rate {rate:g}"))
    best = min(tried, key=lambda one: one[0])
    yield line("pytorch-metric-learning, tuned loop", best[1](test), time.process_time() - begun, best[2])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", required=True)
    parser.add_argument("--cache", required=True)
    parser.add_argument("--out", default="benchmarks/results/learning.csv")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with Path(options.out).open("w", newline="", encoding="utf-8") as file:
        writer = None
        for seed in range(options.seeds):
            for name in SETS:
                for row in rows_of(options.tables, options.cache, name, seed):
                    if writer is None:
                        writer = csv.DictWriter(file, row)
                        writer.writeheader()
                    writer.writerow(row)
                    file.flush()
                    print(row, flush=True)


if __name__ == "__main__":
    main()
