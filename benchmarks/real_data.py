"""Heads on four real data sets: the table of docs/results/heads.md.

Prepares houses (frontal photo -> log price), tweets (text -> mean rating of 20 people), spoken digits (sound -> digit
as a number) and scikit-learn's diabetes, and runs ``vicinal compare`` on all of them with frozen published encoders.

    python benchmarks/real_data.py --data ../shared/data --out runs/real-data --splits 5
"""

import argparse
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes

from vicinal.cli import run

ENCODERS = {"image": "efficientnet-lite0", "text": "minilm", "audio": "ge2e"}


def prepare(data: Path, out: Path) -> list[Path]:
    """Write the four tables under ``out``; photos are copied beside their table."""
    houses = out / "houses"
    if not houses.is_dir():
        shutil.copytree(data / "houses" / "frontal256", houses / "frontal256")
    table = pd.read_csv(data / "houses" / "houses.csv")
    table["photo"] = [f"frontal256/{number:03d}.jpg" for number in table["id"]]
    table["log_price"] = np.log(table["price"])
    table[["id", "photo", "log_price", "dup_group"]].to_csv(houses / "houses.csv", index=False)

    texts = pd.read_parquet(data / "text" / "vader_sentiment.parquet")
    tweets = texts.loc[texts["domain"] == "tweets", ["id", "text", "rating"]]
    tweets.reset_index(drop=True).to_parquet(out / "tweets.parquet")

    sounds = pd.read_parquet(data / "audio" / "fsdd.parquet")[["audio", "digit"]]
    sounds.to_parquet(out / "digits.parquet")

    load_diabetes(as_frame=True).frame.to_csv(out / "diabetes.csv", index=False)
    return [houses / "houses.csv", out / "tweets.parquet", out / "digits.parquet", out / "diabetes.csv"]


def main() -> int:
    """Prepare the tables and compare; further arguments go to ``vicinal compare``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with houses/, text/ and audio/")
    parser.add_argument("--out", type=Path, default=Path("runs/real-data"))
    parser.add_argument("--splits", type=int, default=5)
    given, more = parser.parse_known_args()
    given.out.mkdir(parents=True, exist_ok=True)
    tables = [str(path) for path in prepare(given.data, given.out)]
    targets = [word for target in ("log_price", "rating", "digit", "target") for word in ("--target", target)]
    columns = ["--image", "photo", "--text", "text", "--audio", "audio", "--id", "id", "--group", "dup_group"]
    encoders = [word for kind, name in ENCODERS.items() for word in ("--encoder", f"{kind}={name}")]
    settings = ["--task", "regression", "--splits", str(given.splits), "--cache", str(given.out / "cache")]
    return run(["compare", *tables, *targets, *columns, *encoders, *settings, "--out", str(given.out / "runs"), *more])


if __name__ == "__main__":
    sys.exit(main())
