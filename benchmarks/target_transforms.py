"""Labels as they are, as logarithms and as normal scores: what each does to errors of positive targets.

At most 1,200 rows of tables with positive targets: those of benchmarks/tables.py (see there for the files), diamonds,
and prices of houses and books. Each is cut at random into 80 % to fit the default ``NeighborRegressor`` on, which holds
out 15 % of them, and 20 % to test on. "auto" is the one of "none" and "log" that ``target_transform="auto"`` takes; it
costs no further run here. Every figure is a line of the CSV as soon as it is known; a stopped run goes on there.

    python benchmarks/target_transforms.py --data FILES --shared ../shared/data --metric kernel
    python benchmarks/target_transforms.py --data FILES --shared ../shared/data
    python benchmarks/target_transforms.py --splits 0    # the tables of docs/results/tables.md, of what is there
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from tables import FILES, MOST_ROWS, read

from vicinal.estimators import NeighborRegressor

RESULTS = Path(__file__).parent / "results" / "target-transforms.csv"
PAGE = Path(__file__).parents[1] / "docs" / "results" / "tables.md"
SETS = (
    "diabetes",
    "cars",
    "boston",
    "hitters",
    "college",
    "housing",
    "clothing",
    "bike",
    "computers",
    "wage",
    "houses",
    "diamonds",
    "books",
)
TRANSFORMS = ("none", "log", "rank")
COLUMNS = {
    "houses": {"bedrooms": "number", "bathrooms": "number", "area": "number", "zipcode": "category"},
    "books": {"title": "text", "edition": "text", "genre": "category", "stars": "number", "n_reviews": "number"},
}
FILES["diamonds"] = ("diamonds.csv", "price", [])


def table_of(name, data, shared):
    """Columns and target of a table."""
    if name not in COLUMNS:
        return read(name, data)
    if name == "houses":
        table = pd.read_csv(shared / "houses" / "houses.csv", dtype={"zipcode": str})
    else:
        table = pd.read_parquet(shared / "text" / "book_prices.parquet")
    table = table.sample(min(MOST_ROWS, len(table)), random_state=0).reset_index(drop=True)
    return table[list(COLUMNS[name])], table["price"].to_numpy(dtype=float)


def measure(name, split, transform, metric, data, shared):
    """One line of the CSV."""
    table, y = table_of(name, data, shared)
    order = np.random.default_rng(2000 + split).permutation(len(y))
    train, test = np.split(order, [round(0.8 * len(y))])
    kinds = {c: "number" if pd.api.types.is_numeric_dtype(table[c]) else "category" for c in table.columns}
    kinds = COLUMNS.get(name, kinds)
    model = NeighborRegressor(
        columns=kinds, encoders={"text": "ngrams"}, metric=metric, target_transform=transform, random_state=split
    )
    start = time.process_time()
    model.fit(table.iloc[train].reset_index(drop=True), y[train])
    seconds = time.process_time() - start
    left_out, bank = np.nan, model.bank_
    if model.metric_ == "kernel":  # each row predicted from all others
        left_out = float(np.square(model.predict(bank.rows[list(kinds)], ids=bank.ids) - bank.labels.numpy()).mean())
    rows = model.calibration_
    held_out = model.predict(rows.rows[list(kinds)], ids=rows.ids)
    said, (low, high) = model.predict(table.iloc[test]), model.predict_interval(table.iloc[test]).T
    miss = np.abs(said - y[test])
    return {
        "asked": metric, "set": name, "split": split, "transform": transform, "rows": len(y), "metric": model.metric_,
        "left_out_mse": left_out, "held_out_rows": len(rows),
        "held_out_mse": float(np.square(held_out - rows.labels.numpy()).mean()),
        "rmse": float(np.square(miss).mean() ** 0.5), "mae": float(miss.mean()),
        "relative": float((miss / y[test]).mean()), "median_relative": float(np.median(miss / y[test])),
        "covered": float(((low <= y[test]) & (y[test] <= high)).mean()), "width": float((high - low).mean()),
        "relative_width": float(((high - low) / y[test]).mean()), "below_0": float((low < 0).mean()),
        "skewness": float(pd.Series(y).skew()), "seconds": round(seconds, 1),
    }  # fmt: skip


def chosen(found, asked):
    """The lines that "auto" takes of each set and split: those of less error of a kernel, "none" without one."""
    keys, tries = ["set", "split"], ("none", "log")
    left_out = found[found["asked"] == "kernel"].pivot_table(index=keys, columns="transform", values="left_out_mse")
    taken = []
    for place, part in found[found["asked"] == asked].groupby(keys, sort=False):
        better = place in left_out.index and bool(left_out.loc[place, "log"] < left_out.loc[place, "none"])
        taken.append(part[part["transform"] == tries[better]].assign(logarithms=better))
    return pd.concat(taken).assign(transform="auto")


def summary(found, asked):
    """Errors by set and transform, of "none" as they are, of the others in per cent of it; in Markdown."""
    found = found[found.groupby(["asked", "set", "split"])["transform"].transform("size") == len(TRANSFORMS)]
    taken = chosen(found, asked)
    known, others = pd.concat([found[found["asked"] == asked], taken]), ("log", "rank", "auto")
    heads = [f"{word}: {name}" for word in ("RMSE", "relative") for name in others]
    lines = ["| set | rows | skewness | RMSE | relative error | " + " | ".join(heads) + " | log taken |"]
    lines += ["|" + " --- |" * (6 + len(heads))]
    means = known.groupby(["set", "transform"], sort=False)[["rmse", "relative"]].mean().unstack()
    ratios = pd.DataFrame(
        {(w, one): 100 * (means[w][one] / means[w]["none"] - 1) for w in ("rmse", "relative") for one in others}
    )
    for name, row in ratios.iterrows():
        first, logs = found[found["set"] == name].iloc[0], taken[taken["set"] == name]["logarithms"]
        base = means.loc[name].unstack()["none"]
        cells = [name, f"{first['rows']}", f"{first['skewness']:.1f}", f"{base['rmse']:.4g}"]
        cells += [f"{100 * base['relative']:.0f} %", *(f"{value:+.1f} %" for value in row)]
        lines.append("| " + " | ".join([*cells, f"{logs.sum()} of {len(logs)}"]) + " |")
    for word, row in (("median", ratios.median()), ("mean", ratios.mean()), ("worst", ratios.max())):
        lines.append(f"| **{word}** | | | | | " + " | ".join(f"**{value:+.1f} %**" for value in row) + " | |")
    return "\n".join(lines)


def promises(found, asked):
    """What 90 % intervals hold and how wide they are, and seconds of a fit, by transform; in Markdown."""
    known = found[found["asked"] == asked]
    means = known.groupby("transform")[["covered", "below_0", "seconds"]].mean()
    widths = known.pivot_table(index=["set", "split"], columns="transform", values="relative_width")
    lines = ["| transform | 90 % intervals hold | begin below 0 | width, relative to the truth | seconds |"]
    lines += ["|" + " --- |" * 5]
    for one in TRANSFORMS:
        row, wide = means.loc[one], 100 * (np.exp(np.log(widths[one] / widths["none"]).mean()) - 1)
        wider = "" if one == "none" else f"{wide:+.0f} %"
        lines.append(f"| {one} | {row['covered']:.1%} | {row['below_0']:.1%} | {wider} | {row['seconds']:.0f} |")
    return "\n".join(lines)


def write_page():
    """The tables of the page anew."""
    found, text = pd.read_csv(RESULTS), PAGE.read_text()
    for asked in ("auto", "kernel"):
        before, rest = text.split(f"<!-- transforms: {asked} -->", 1)
        after = rest.split("<!-- end of transforms -->", 1)[1]
        tables = f"{summary(found, asked)}\n\n{promises(found, asked)}" if asked == "kernel" else summary(found, asked)
        text = f"{before}<!-- transforms: {asked} -->\n\n{tables}\n\n<!-- end of transforms -->{after}"
    PAGE.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with the unpacked files")
    parser.add_argument("--shared", type=Path, help="folder with houses/houses.csv and text/book_prices.parquet")
    parser.add_argument("--metric", default="auto", choices=("auto", "kernel"))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--sets", nargs="*", help="default: all that the metric reads")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    found = pd.read_csv(RESULTS) if RESULTS.is_file() else pd.DataFrame(columns=["asked", "set", "split", "transform"])
    known = set(found[["asked", "set", "split", "transform"]].itertuples(index=False, name=None))
    for split in range(arguments.splits):
        for name in arguments.sets or (SETS if arguments.metric == "auto" else SETS[:-1]):
            for transform in TRANSFORMS:
                if (arguments.metric, name, split, transform) in known:
                    continue
                line = measure(name, split, transform, arguments.metric, arguments.data, arguments.shared)
                print(line, flush=True)
                found = pd.concat([found, pd.DataFrame([line])], ignore_index=True)
                found.to_csv(RESULTS, index=False, float_format="%.6g")
    if arguments.splits == 0:
        write_page()


if __name__ == "__main__":
    main()
