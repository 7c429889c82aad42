"""Models of texts in fewer numbers: error on test rows at 1/2, 1/4 and 1/8, beside plain singular vectors.

    python benchmarks/compression.py vader_sentiment.parquet --out benchmarks/results/compression.csv

Ratings of tweets from their n-grams; "plain" cuts tables and layers by their weights alone.
"""

import argparse
import tempfile
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import torch

from vicinal.estimators import NeighborRegressor, compression
from vicinal.factorization import low_rank


def plain(weight, rank, *, row_weight=None, outputs=None, bias=None):
    """By the weights alone; vectors of the bank are cut by their covariance in both."""
    layer = row_weight is not None or bias is not None
    return low_rank(weight, rank, outputs=None if layer else outputs, bias=bias)


def bytes_of(model):
    with tempfile.TemporaryDirectory() as place:
        model.save(f"{place}/m")
        return sum(path.stat().st_size for path in Path(place).rglob("*") if path.is_file())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tweets", type=Path)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    table = pd.read_parquet(options.tweets)
    table = table[table["domain"].str.contains("tweet")]
    rows = []
    for seed in range(options.seeds):
        some = table.sample(options.rows, random_state=seed)
        frame, rating, cut = some[["text"]], some["rating"].to_numpy(), 3 * options.rows // 4
        model = NeighborRegressor(
            encoders={"text": "ngrams"}, columns={"text": "text"}, max_epochs=20, random_state=seed
        )
        model.fit(frame.iloc[:cut], rating[:cut])

        def entry(method, keep, model, frame=frame.iloc[cut:], rating=rating[cut:], seed=seed):
            error = float(np.mean((model.predict(frame) - rating) ** 2))
            line = {"method": method, "keep": keep, "seed": seed, "mse": error, "bytes": bytes_of(model)}
            rows.append(line)
            print(line, flush=True)

        entry("whole", 1.0, model)
        for keep in (0.5, 0.25, 0.125):
            entry("compress", keep, compression.compressed(model, keep)[0])
            with mock.patch.object(compression, "low_rank", plain):
                entry("plain", keep, compression.compressed(model, keep)[0])
        pd.DataFrame(rows).to_csv(options.out, index=False)
    print(pd.DataFrame(rows).groupby(["method", "keep"])[["mse", "bytes"]].mean().round(3).to_string())


if __name__ == "__main__":
    main()
