"""Tables (Markdown) of docs/results/classes.md, from the files of figures.

Means over seeds; digits and characters apart.

    python benchmarks/class_tables.py --heads class-heads.csv --characters class-omniglot.csv
"""

import argparse
from pathlib import Path

import pandas as pd
from calibration_tables import markdown

KNOWN = ["accuracy", "distance", "squared"]
NEW = ["map@r", "few_shot_means", "few_shot_neighbors"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heads", type=Path, required=True)
    parser.add_argument("--characters", type=Path, required=True)
    given = parser.parse_args()
    heads, characters = pd.read_csv(given.heads), pd.read_csv(given.characters)
    for name, rows in heads.groupby("set", sort=False):
        print(f"\n{name}\n\n{markdown(rows.groupby('method', sort=False)[[*KNOWN, 'log_loss']].mean())}")
    means = characters.groupby("method", sort=False)[[*KNOWN, *NEW]].mean()
    print(f"\nknown characters\n\n{markdown(means[KNOWN].dropna())}")
    print(f"\nnew characters\n\n{markdown(means[NEW].dropna())}")


if __name__ == "__main__":
    main()
