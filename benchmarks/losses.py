"""Do losses of class scores, teachers, regularizers and ways to train do what their papers say, on small real data?

    python benchmarks/losses.py --data ../shared/data --out benchmarks/results/losses.csv --page docs/results/losses.md

Each method takes the setting of the lowest validation error, by seed, among as many settings as the plain baseline has.
A second plain one takes 5 times the learning rate: what gains as much as that is a matter of pace.
Lines that are in the file are not run again. The page gets a table a case: mean and deviation over seeds, and the
paired t-test of the difference from the plain baseline.
"""

import argparse
from pathlib import Path

import pandas as pd
import torch
from losses_cases import CASES as CLASSES
from losses_others import CASES as OTHERS
from losses_training import PLAIN, Pace
from scipy.stats import ttest_rel

CASES = [*CLASSES, *OTHERS]
FASTER = "plain, 5 times the learning rate"
for one in CASES:
    if one.methods.get("plain") == PLAIN:
        one.methods = {"plain": PLAIN, FASTER: PLAIN} | one.methods
MARK = "<!-- {name} -->"


def run(case, data, out, seed, done):
    """Lines of a seed, each method with the setting of its lowest validation error."""
    missing = [method for method in case.methods if (case.name, seed, method) not in done]
    if not missing:
        return
    rows = case.prepare(data, seed)
    for method in missing:
        Pace.factor = 5.0 if method == FASTER else 1.0
        tried = [(*case.fit(rows, seed, **settings), settings) for settings in case.methods[method]]
        valid, measures, settings = min(tried, key=lambda one: one[0])
        text = " ".join(f"{name}={value}" for name, value in settings.items())
        line = {"case": case.name, "seed": seed, "method": method, "settings": text, "valid": f"{valid:.5g}"}
        lines = [{**line, "measure": name, "value": f"{value:.5g}"} for name, value in measures.items()]
        pd.DataFrame(lines).to_csv(out, mode="a", header=not out.exists(), index=False)
        print(case.name, seed, method, text, measures, flush=True)


def table(case, results):
    """Markdown: a row a method, a column a measure, and the difference of the first from the plain baseline."""
    part = results[results["case"] == case.name]
    measures = list(part["measure"].unique())
    first = part[part["measure"] == measures[0]].pivot_table(index="seed", columns="method", values="value")
    first = first.dropna()
    plain = first[list(case.plain)].mean().idxmin()
    lines = ["| | " + " | ".join(measures) + " | lower than plain by | p |", "| --- |" + " --- |" * (len(measures) + 2)]
    for method in case.methods:
        cells = [f"`{method}`" if "_" in method or (method[0].isupper() and " " not in method) else method]
        for measure in measures:
            values = part[(part["measure"] == measure) & (part["method"] == method)]["value"]
            digits = 2 if values.mean() >= 1 else 3
            cells.append(f"{values.mean():.{digits}f} ± {values.std():.{digits}f}")
        gap = first[plain] - first[method]
        chance = ttest_rel(first[plain], first[method]).pvalue if gap.any() else 1.0
        cells += (
            ["", ""] if method == plain else [f"{gap.mean():.3f}", "< 0.001" if chance < 0.001 else f"{chance:.3f}"]
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write(page, results):
    text = page.read_text(encoding="utf-8")
    for case in CASES:
        start, end = MARK.format(name=case.name), MARK.format(name=f"end of {case.name}")
        if start in text and (results["case"] == case.name).any():
            before, _, rest = text.partition(start)
            after = rest.partition(end)[2]
            text = f"{before}{start}\n\n{table(case, results)}\n\n{end}{after}"
    page.write_text(text, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--page", type=Path, help="a page whose parts between marks of the cases are written anew")
    parser.add_argument("--only", nargs="*", help="names of cases")
    parser.add_argument("--most", type=int, default=99, help="seeds at most")
    options = parser.parse_args()
    torch.set_num_threads(1)
    done = set()
    if options.out.exists():
        lines = pd.read_csv(options.out)
        done = set(zip(lines["case"], lines["seed"], lines["method"], strict=True))
    cases = [case for case in CASES if not options.only or case.name in options.only]
    for seed in range(min(options.most, max(case.seeds for case in cases))):
        for case in cases:
            if seed < case.seeds:
                run(case, options.data, options.out, seed, done)
    results = pd.read_csv(options.out)
    for case in cases:
        print(f"\n{case.name}: {case.claim}\n{table(case, results)}")
    if options.page:
        write(options.page, results)


if __name__ == "__main__":
    main()
