"""What a student learns from its teacher: error by loss of teachers, beside the same student on labels alone.

Texts with a rating (three domains): the teacher reads them by a pretrained encoder, the student by character n-grams;
900 rows with a label, of which a fifth is tested on, and 1,500 without.

    python benchmarks/distillation.py --data ../shared/data --out benchmarks/results/distillation.csv
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

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


def table(results: pd.DataFrame) -> str:
    """Mean test error by texts; of the student by loss and share."""
    ways = results["model"].where(
        results["model"] != "student", "student, `" + results["loss"] + "`, share " + results["share"].astype(str)
    )
    errors = results.assign(way=ways).pivot_table(index="way", columns="set", values="mse", sort=False)
    speed = results.assign(way=ways).groupby("way")["ms_a_row"].median()
    lines = [f"| model | {' | '.join(errors.columns)} | ms a row |", "| --- |" + " --- |" * (len(errors.columns) + 1)]
    for way, row in errors.iterrows():
        lines.append(f"| {way} | {' | '.join(f'{value:.3f}' for value in row)} | {speed[way]:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, and write the table into a page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--page", type=Path, help="a page whose part between the marks of this table is written anew")
    options = parser.parse_args()
    done = pd.read_csv(options.out) if options.out.is_file() else pd.DataFrame(columns=["set", "seed"])
    for seed in range(options.seeds):
        for domain in ("tweets", "amazon", "nyt"):
            if ((done["set"] == domain) & (done["seed"] == seed)).any():
                continue
            lines = pd.DataFrame(runs(domain, options.data, seed))
            done = pd.concat([done, lines], ignore_index=True) if len(done) else lines
            done.to_csv(options.out, index=False)
    if options.page:
        before, _, rest = options.page.read_text(encoding="utf-8").partition("<!-- distillation -->")
        after = rest.partition("<!-- end of distillation -->")[2]
        text = f"{before}<!-- distillation -->\n\n{table(done)}\n\n<!-- end of distillation -->{after}"
        options.page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
