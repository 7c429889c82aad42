"""What a student learns from its teacher: error by loss of teachers, beside the same student on labels alone.

Texts with a rating (three domains): the teacher reads them by a pretrained encoder, the student by character n-grams;
900 rows with a label, of which a fifth is tested on, and 1,500 without.

    python benchmarks/distillation.py --data ../shared/data --out benchmarks/results/distillation.csv
"""

import argparse
import csv
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from vicinal.workflows import TableJob, distill_table, fit_table

WAYS = [("none", 0.0), ("none", 0.5), ("none", 1.0), ("kl_top", 0.5), ("sinkhorn_distillation", 0.5)]
"""The loss of likeness, and the share of the teacher's prediction in a label."""


def rows_of(domain: str, data: Path, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows with a rating, and without."""
    texts = pd.read_parquet(data / "text" / "vader_sentiment.parquet")
    some = (
        texts.loc[texts["domain"] == domain, ["text", "rating"]].drop_duplicates("text").sample(2400, random_state=seed)
    )
    return some.iloc[:900].reset_index(drop=True), some.iloc[900:][["text"]].reset_index(drop=True)


def main() -> None:
    """Run all, one line a model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    with options.out.open("w", newline="") as file, TemporaryDirectory() as folder:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["set", "seed", "loss", "share", "model", "mib", "ms_a_row", "mse", "r2"])
        for domain in ("tweets", "amazon", "nyt"):
            for seed in range(options.seeds):
                labelled, more = rows_of(domain, options.data, seed)
                teacher = Path(folder) / f"{domain}-{seed}"
                settings = {"encoders": {"text": "minilm"}, "random_state": seed}
                fit_table(TableJob(labelled, "rating", seed=seed, parameters=settings, baselines=False), teacher)
                for number, (loss, share) in enumerate(WAYS):
                    given = {"loss": loss, "share": share, "unlabelled": more}
                    outcome = distill_table(teacher, labelled, {"text": "ngrams"}, **given)
                    for name, one in outcome.measures.items():
                        if name == "student" or number == 0:
                            scores = [f"{one.scores[metric]:.4f}" for metric in ("mse", "r2")]
                            speed = [f"{one.bytes / 2**20:.1f}", f"{1000 * one.seconds:.3f}"]
                            lines.writerow([domain, seed, loss, share, name, *speed, *scores])
                    file.flush()


if __name__ == "__main__":
    main()
