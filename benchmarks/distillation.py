"""What a student learns from its teacher, beside the same student on labels alone.

Texts with a rating (three domains): the teacher reads them by a pretrained encoder, the student by character n-grams;
900 rows with a label, of which a fifth is tested on, and 1,500 without.

    python benchmarks/distillation.py --data ../shared/data
"""

from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from resumable import RESULTS, Lines, asked

from vicinal.workflows import TableJob, distill_table, fit_table

WAYS = [("none", 0.5)]
"""The loss of likeness, and the share of the teacher's prediction in a label."""


def rows_of(domain: str, data: Path, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows with a rating, and without."""
    texts = pd.read_parquet(data / "text" / "vader_sentiment.parquet")
    some = (
        texts.loc[texts["domain"] == domain, ["text", "rating"]].drop_duplicates("text").sample(2400, random_state=seed)
    )
    return some.iloc[:900].reset_index(drop=True), some.iloc[900:][["text"]].reset_index(drop=True)


def runs(domain: str, data: Path, seed: int) -> list[dict[str, Any]]:
    """One line a model of one draw of rows."""
    lines = []
    with TemporaryDirectory() as folder:
        labelled, more = rows_of(domain, data, seed)
        teacher = Path(folder) / "teacher"
        settings = {"encoders": {"text": "minilm"}, "random_state": seed}
        fit_table(TableJob(labelled, "rating", seed=seed, parameters=settings, baselines=False), teacher)
        for number, (loss, share) in enumerate(WAYS):
            outcome = distill_table(teacher, labelled, {"text": "ngrams"}, loss=loss, share=share, unlabelled=more)
            for name, one in outcome.measures.items():
                if name == "student" or number == 0:
                    line = {"set": domain, "seed": seed, "loss": loss, "share": share, "model": name}
                    speed = {"mib": round(one.bytes / 2**20, 1), "ms_a_row": round(1000 * one.seconds, 3)}
                    lines.append(line | speed | {metric: round(one.scores[metric], 4) for metric in ("mse", "r2")})
    return lines


def main() -> None:
    """Run what is missing."""
    given = asked(__doc__, data=Path("../shared/data"), out=RESULTS / "distillation.csv", seeds=2)
    lines = Lines(given.out, "set", "seed")
    for seed, domain in product(range(given.seeds), ("tweets", "amazon", "nyt")):
        if (domain, seed) not in lines:
            lines.add(runs(domain, given.data, seed))


if __name__ == "__main__":
    main()
