"""Sentences of the documentation that name figures, made from the result files in benchmarks/results.

Each sentence is a template; its figures are computed here and written into the page, wherever its words stand.
``python scripts/page_outputs.py`` without a page writes them anew; ``tests/test_page_figures.py`` fails if one is old.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import wilcoxon

from vicinal.evaluation import paired_t

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
SINGLE = ["dense", "dense+knn", "ridge", "boosting", "knn"]
MEMBERS, SAME, DEFAULT = "dense x8", "dense x8, same settings", "neighbors x8"
APART = ("movies", "lexical", "mnist")
COUNTS = (
    *("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen"),
)
FIGURE = rf"(?:[-+]?\d[\d,]*(?:\.\d+)?|\b(?:{'|'.join(COUNTS)})\b)"


class Sentence(NamedTuple):
    """Words of a ``page`` with ``{name}`` for each of the ``figures``."""

    page: str
    words: str
    figures: Mapping[str, str]

    def pattern(self) -> re.Pattern[str]:
        """The words, broken into lines in any way, with any figures."""
        parts = re.split(r"\{\w+\}", self.words)
        spaced = [r"\s+".join(re.escape(word) for word in re.split(r"\s+", part)) for part in parts]
        return re.compile(f"({FIGURE})".join(spaced))

    def renewed(self, text: str) -> str:
        """``text`` with the figures of this sentence; refused if its words are not there."""
        names = re.findall(r"\{(\w+)\}", self.words)
        found = list(self.pattern().finditer(text))
        if not found:
            raise ValueError(f"{self.page}: expected the sentence {self.words!r}, got none; mend it or page_figures.py")
        for match in reversed(found):
            for group in range(len(names), 0, -1):
                start, stop = match.span(group)
                text = text[:start] + self.figures[names[group - 1]] + text[stop:]
        return text


def errors(name: str, kept: Callable[[pd.DataFrame], pd.Series] | None = None) -> pd.DataFrame:
    """Mean squared error x 1000 by set and method, mean over splits, of the runs in a file."""
    runs = pd.read_csv(RESULTS / name)
    runs = runs if kept is None else runs[kept(runs)]
    return runs.pivot_table(index="set", columns="method", values="mse") * 1000


def finished() -> pd.DataFrame:
    """Runs of the tuned methods and of the default."""
    return pd.concat([pd.read_csv(RESULTS / name) for name in ("nona-tuned.csv", "nona-default.csv")])


def change(new: pd.Series, old: pd.Series) -> pd.Series:
    """In per cent, by set."""
    return 100 * (new / old - 1)


def chance(changes: pd.Series) -> float:
    """Wilcoxon's p over sets."""
    return float(wilcoxon(np.log1p(changes / 100)).pvalue)


def fewer(changes: pd.Series) -> str:
    """How many sets have a lower error."""
    return COUNTS[int((changes < 0).sum())]


def of_default() -> Iterable[Sentence]:
    """The default of ``vicinal fit`` against everything else."""
    runs = finished()
    means = runs[~runs["set"].isin(APART)].pivot_table(index="set", columns="method", values="mse") * 1000
    single = change(means[DEFAULT], means[SINGLE].min(axis=1))
    eight, same = (change(means[DEFAULT], means[name]) for name in (MEMBERS, SAME))
    figures = {
        "wins": fewer(single),
        "sets": COUNTS[len(single)],
        "signed": f"{single.median():.1f}",
        "median": f"{-single.median():.1f}",
        "least": f"{-single.max():.1f}",
        "p": f"{chance(single):.3f}",
    }
    against = {"wins": fewer(eight), "sets": COUNTS[len(eight)], "signed": f"{eight.median():.1f}"}
    against |= {"median": f"{-eight.median():.1f}", "least": f"{-eight.max():.1f}", "p": f"{chance(eight):.3f}"}
    untuned = {"wins": fewer(same), "sets": COUNTS[len(same)], "signed": f"{same.median():.1f}"}
    untuned["blood"] = f"{same['blood']:.1f}"
    page = "docs/results/nona.md"
    yield Sentence(page, "the median is {signed} % against", figures)
    yield Sentence(
        page,
        "the smallest gain is {least} % (Wilcoxon over sets p = {p})",
        figures,
    )
    yield Sentence(page, "it is better on {wins} of {sets}** (median {signed} %, p = {p})", against)
    yield Sentence(page, "settings: {wins} of {sets}, median {signed} %, blood cells {blood} % worse", untuned)


def of_sets_apart() -> Iterable[Sentence]:
    """The sets that no setting was chosen on."""
    runs = finished()
    one = runs.pivot_table(index=["set", "split"], columns="method", values="mse") * 1000
    best = one[SINGLE].min(axis=1)
    movies, lexical, mnist = one.loc[("movies", 0)], one.loc[("lexical", 0)], one.loc[("mnist", 0)]
    again = one.loc[("movies", 1)]
    worse = 100 * (movies[DEFAULT] / best["movies", 0] - 1)
    better = 100 * (1 - again[DEFAULT] / best["movies", 1])
    changes = {"worse": f"{worse:.0f}", "better": f"{better:.0f}"}
    changes["eight"] = f"{100 * (movies[DEFAULT] / movies[MEMBERS] - 1):.0f}"
    changes["lexical"] = f"{100 * (1 - lexical[DEFAULT] / best['lexical', 0]):.0f}"
    changes["mnist"] = f"{100 * (1 - mnist[DEFAULT] / best['mnist', 0]):.0f}"
    page = "docs/results/nona.md"
    shown = {"ours": f"{movies[DEFAULT]:.1f}", "ridge": f"{movies['ridge']:.1f}", "dense": f"{movies[MEMBERS]:.1f}"}
    yield Sentence(
        page,
        "the default has an error of {ours}, ridge {ridge} and eight tuned dense members {dense}, so it is {worse} and "
        "{eight} % worse (on a second split {better} % better than the best)",
        shown | changes,
    )
    shown = {"ours": f"{lexical[DEFAULT]:.1f}", "others": f"{lexical[MEMBERS]:.1f}", "better": changes["lexical"]}
    yield Sentence(page, "(lexical) {ours} against {others} of both, {better} % better", shown)
    shown = {"ours": f"{mnist[DEFAULT]:.1f}", "knn": f"{mnist['knn']:.1f}", "eight": f"{mnist[MEMBERS]:.1f}"}
    yield Sentence(page, "(mnist) {ours} against {knn} (k-NN) and {eight}", shown)


def of_experts() -> Iterable[Sentence]:
    """The default of today against what an expert tries first, on frozen vectors and on plain tables."""
    found = pd.read_csv(RESULTS / "experts.csv")
    error = found.pivot_table(index=["set", "split"], columns="method", values="error")
    experts = [name for name in error if name.startswith("tuned ")]
    means = error[["auto", *experts]].dropna().groupby("set").mean()
    changes = change(means["auto"], means[experts].min(axis=1))
    wins = {"wins": fewer(changes), "sets": COUNTS[len(changes)]} | {"median": f"{-changes.median():.1f}"}
    wins |= {"blood": f"{changes['blood']:.0f}", "p": f"{chance(changes):.3f}"}
    yield Sentence("README.md", "on {wins} of {sets} sets, by {median} % on the median", wins)
    yield Sentence("README.md", "blood cells it is {blood} % behind support vectors", wins)
    page = "docs/results/nona.md"
    yield Sentence(
        page,
        "on {wins} of {sets} sets, but on most by a few per cent: the median is {median} % (p = {p} over sets)",
        wins,
    )
    yield Sentence(page, "it is {blood} % worse on blood cells", wins)
    tables = pd.read_csv(RESULTS / "tables.csv").groupby(["set", "method"])["mse"].mean().unstack()
    ours = ["default", "kernel", "kernel, signed 128", "network, auto", "network, attention"]
    changes = change(tables["default"], tables.drop(columns=ours).min(axis=1))
    behind = {"sets": COUNTS[len(changes)], "median": f"{changes.median():.1f}", "most": f"{changes.max():.1f}"}
    yield Sentence(
        "docs/results/tables.md",
        "is {median} % behind the best of six tuned rivals on the median table, and {most} % at worst",
        behind,
    )


def of_engine() -> Iterable[Sentence]:
    """The default of today against LightGBM and CatBoost as they come, on the splits that the default has."""
    found = pd.read_csv(RESULTS / "engine.csv", dtype={"size": str})
    key = ["part", "size", "table", "split"]
    error = found.pivot_table(index=key, columns="method", values="mse")[["default", "lightgbm", "catboost"]].dropna()
    mean = error.groupby(["part", "size", "table"]).mean()
    changes = change(mean["default"], mean[["lightgbm", "catboost"]].min(axis=1))
    plain, large = changes["plain"], changes["large"]["20000"]
    shown = {"sets": COUNTS[len(plain)], "most": f"{plain.max():.0f}", "median": f"{-plain.median():.0f}"}
    shown |= {"large": f"{-large.median():.0f}"}
    yield Sentence("README.md", "On {sets} plain tables the default is {most} % behind the better of LightGBM", shown)
    yield Sentence(
        "README.md", "at most, and has {median} % less error on the median; of 20,000 rows {large} %.", shown
    )


def of_recipes() -> Iterable[Sentence]:
    """NONA against dense, one head each."""
    page = "docs/results/nona.md"
    tuned = errors("nona-tuned.csv", lambda runs: ~runs["set"].isin(APART))
    methods = [*SINGLE, "nona", "nona+knn"]
    firsts = tuned[methods].idxmin(axis=1)
    yield Sentence(
        page,
        "NONA against dense median {median} %, best of seven methods on {wins} of {sets}",
        {
            "median": f"{change(tuned['nona'], tuned['dense']).median():.1f}",
            "wins": COUNTS[int(firsts.str.startswith("nona").sum())],
            "sets": COUNTS[len(tuned)],
        },
    )
    yield Sentence(
        page,
        "On stsb a single NONA head is {worse} % worse",
        {"worse": f"{change(tuned['nona'], tuned['dense'])['stsb']:.0f}"},
    )
    paper = errors("nona-paper.csv")
    paper = paper[["dense", "dense+knn", "nona", "nona+knn"]].dropna()
    median = change(paper["nona"], paper["dense"]).median()
    wins = int(paper.idxmin(axis=1).str.startswith("nona").sum())
    figures = {"median": f"{median:.1f}", "sets": COUNTS[len(paper)], "wins": COUNTS[wins]}
    houses = paper.loc["houses"]
    figures |= {"dense": f"{houses['dense']:.0f}", "ours": f"{houses['nona']:.1f}", "knn": f"{houses['dense+knn']:.1f}"}
    yield Sentence(page, "a median of {median} % over {sets} sets (the paper: -32.2 %)", figures)
    yield Sentence(page, "NONA or NONA+k-NN best on {wins} of {sets}", figures)
    yield Sentence(page, "an error of {dense} (the paper: 303) and NONA {ours} (the paper: 13.2)", figures)
    yield Sentence(page, "how much is left of the margin: {knn} against {ours}", figures)


def of_screening() -> Iterable[Sentence]:
    """Counts of the screening: on how many sets one variant is better than another, and by how many points."""
    runs = pd.read_csv(RESULTS / "nona-screening.csv")
    table = runs.pivot_table(index=["set", "split"], columns=["variant", "readout"], values="mse")
    dense = table["dense", "dense"]
    points = table.apply(lambda column: 100 * (column / dense - 1)).groupby("set").mean()

    def gains(variant: str, base: str) -> pd.Series:
        """Points by which ``variant`` is better than ``base``, by set."""
        return (points[base, "neighbors"] - points[variant, "neighbors"]).dropna()

    def counts(variant: str, base: str) -> dict[str, str]:
        found = gains(variant, base)
        return {"better": COUNTS[(found > 0).sum()], "worse": COUNTS[(found < 0).sum()], "sets": COUNTS[len(found)]}

    page, entmax = "docs/results/nona.md", "default, entmax"
    yield Sentence(
        page, "squared L2 is better on {better} sets of {sets} with softmax", counts("default, squared L2", "default")
    )
    yield Sentence(page, "against softmax better on {better} of {sets} sets", counts(entmax, "default"))
    yield Sentence(page, "with entmax it is worse on {worse} of {sets}", counts(f"{entmax}, squared L2", entmax))
    yield Sentence(page, "no final tanh | better on {better} of {sets} sets", counts("nona, no final tanh", "nona"))
    yield Sentence(
        page,
        "on {better} of {sets} sets of embeddings",
        counts("nona, no final tanh, dropout 0.4", "nona, no final tanh"),
    )
    yield Sentence(page, "worse on {worse} of {sets} with entmax", counts(f"{entmax}, dropout 0.4", entmax))
    yield Sentence(
        page, "without a mask {better} sets are better and {worse} worse", counts(f"{entmax}, no mask", entmax)
    )
    crps = gains(f"{entmax}, CRPS", entmax)
    up, down = crps[["tweets", "signs", "fsdd", "valence"]], -crps[["nyt", "sick"]]
    shown = {"low": f"{up.min():.0f}", "high": f"{up.max():.0f}"}
    shown |= {"less": f"{down.min():.0f}", "more": f"{down.max():.0f}"}
    yield Sentence(
        page, "signs, fsdd and valence {low} to {high} points better, nyt and sick {less} to {more} worse", shown
    )


def of_intervals() -> Iterable[Sentence]:
    """Coverage and width of intervals."""
    runs = (
        pd.read_csv(RESULTS / "nona-intervals.csv").groupby(["set", "method"])[["coverage", "width"]].mean().unstack()
    )
    width = change(runs["width", DEFAULT], runs["width", MEMBERS])
    figures = {"covered": f"{100 * runs['coverage', DEFAULT].mean():.1f}", "wins": fewer(width)}
    figures |= {"sets": COUNTS[len(width)], "median": f"{-width.median():.0f}"}
    figures |= {"signs": f"{-width['signs']:.0f}", "fsdd": f"{-width['fsdd']:.0f}"}
    yield Sentence(
        "docs/results/nona.md",
        "around the default cover {covered} % and are narrower than around eight tuned dense members on {wins} of "
        "{sets} sets, by a median of {median} % (signs {signs} %, spoken digits {fsdd} %",
        figures,
    )
    found = pd.read_csv(RESULTS / "calibration.csv")
    found = found[found["experiment"] == "intervals"].groupby(["set", "method"])[["covered", "score"]].mean().unstack()
    covered = found["covered", "range"]
    better = change(found["score", "range"], found["score", "dense residual"])
    figures = {"mean": f"{100 * covered.mean():.1f}", "low": f"{100 * covered.min():.1f}"}
    figures |= {"high": f"{100 * covered.max():.1f}", "wins": fewer(better), "sets": COUNTS[len(better)]}
    page = "docs/results/calibration.md"
    yield Sentence(
        page, "covers {mean} % on average over the {sets} sets, each set between {low} and {high} %", figures
    )
    yield Sentence(page, "a lower interval score on {wins} sets of {sets}", figures)
    yield Sentence("docs/results/nona.md", "than a dense ensemble's on {wins} of {sets} sets", figures)


def of_earlier() -> Iterable[Sentence]:
    """Eight members with softmax: the table of docs/results/heads.md."""
    runs = pd.read_csv(RESULTS / "heads-members8.csv")
    cells = (1000 * runs.groupby(["dataset", "method"])["mse"].agg(["mean", "std"])).map("{:.1f}".format)
    for name, label in (("houses", "535"), ("tweets", "4,200"), ("digits", "3,000"), ("diabetes", "442")):
        figures, words = {}, []
        for number, method in enumerate(("dense", "dense+knn", "nona", "nona+knn")):
            mean, deviation = cells.loc[(name, method)]
            figures |= {f"mean{number}": mean, f"deviation{number}": deviation}
            words.append(f"{{mean{number}}} ± {{deviation{number}}}")
        yield Sentence("docs/results/heads.md", f"{label} rows | {' | '.join(words)} |", figures)


def of_scaling() -> Iterable[Sentence]:
    """What a prediction costs."""
    runs = pd.read_csv(RESULTS / "million-rows.csv").set_index(["rows", "step"])
    some, many = runs.loc[(100_000, "predict 256, again")], runs.loc[(1_000_000, "predict 256")]
    figures = {"some": f"{some['cpu_s']:.1f}", "many": f"{many['seconds']:.0f}"}
    page = "docs/scaling.md"
    yield Sentence(page, "| {some} s | {many} s | 1,103 MiB |", figures)


def of_default_rows() -> Iterable[Sentence]:
    """What the default model of a plain table takes, by rows of its bank."""
    every = pd.read_csv(RESULTS / "default-rows.csv")
    most = every[(every["rows"] == 10_000_000) & (every["step"] != "load")].set_index("step")
    steps = {"again": "predict 256, again", "explain": "explain 256", "interval": "interval 256 (with calibration)"}
    alone = {name: f"{most.loc[step, 'cpu_s']:.0f}" for name, step in steps.items()}
    alone |= {"add": f"{most.loc['add 1,000, again', 'cpu_s']:.3f}"}
    alone |= {"gib": f"{most.loc['predict 256, again', 'peak_mib'] / 1024:.1f}"}
    words = "256 predictions take {again} s, their explanations, for which the rows are read, {explain} s, the first "
    words += "intervals {interval} s"
    yield Sentence("docs/scaling.md", words, alone)
    yield Sentence(
        "docs/scaling.md", "1,000 rows are added in {add} s, and to predict takes {gib} GiB at the peak", alone
    )
    runs = every[every["rows"] < 10_000_000].pivot_table(index="step", columns="rows", values="cpu_s")
    lines = {
        "`predict`": "predict 256",
        "`explain(k=5)`": "explain 256",
        "`predict_interval`": "interval 256",
        "the first `predict_interval`, which calibrates": "the first interval, with calibration",
        "`predict` of one row": "predict 1",
        "`add` of 1,000 rows": "add 1,000, again",
        "the first `add` after loading, which copies the mapped file": "add 1,000, first time",
        "load": "load",
        "FAISS flat, top 32 of the same vectors": "FAISS flat, top 32",
        "scikit-learn brute, top 32 of the same vectors": "scikit-learn brute, top 32",
        "one product of all queries and rows, float32": "blocked product",
    }
    steps = {"ours": "predict 256", "faiss": "FAISS flat, top 32"}
    million = {name: f"{runs.loc[step, 1_000_000]:#.2g}" for name, step in steps.items()}
    yield Sentence("README.md", "over a million rows take {ours} s, FAISS's search {faiss}", million)
    for words, step in lines.items():
        took = runs.loc[step]
        figures = {f"n{place}": f"{seconds:#.2g}".rstrip(".") for place, seconds in enumerate(took)}
        cells = " | ".join(f"{{{name}}}" for name in figures)
        yield Sentence("docs/scaling.md", f"| {words} | {cells} |", figures)


def of_guide() -> Iterable[Sentence]:
    """What the guide says of the table that ``vicinal compare`` prints in it."""
    guide = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    found = re.search(r"^ +(?:diabetes +)?nona +\S+ \+- \S+ +([-+])([\d.]+)% +([\d.]+) ", guide, re.MULTILINE)
    if found is None:
        raise ValueError("docs/guide.md: expected the row of nona in the table of vicinal compare, got none")
    sign, size, chance_of = found.groups()
    words = "more" if sign == "+" else "less"
    yield Sentence(
        "docs/guide.md",
        f"the neighbor head has {{size}} % {words} error than the dense head",
        {"size": size},
    )
    yield Sentence("docs/guide.md", "do not establish that (p = {p})", {"p": chance_of})


def of_explore() -> Iterable[Sentence]:
    """The page of a large bank."""
    seen, page = json.loads((RESULTS / "explore.json").read_text(encoding="utf-8")), "docs/explore.md"
    digits = {
        "usable_s": 1,
        "hover_most_ms": 0,
        "new_prediction_s": 2,
        "new_map_s": 1,
        "tab_mb": 0,
        "heap_mb": 0,
        "load": 0,
    }
    shown = {name: f"{seen[name]:.{count}f}" for name, count in digits.items()} | {"rows": f"{seen['rows']:,}"}
    yield Sentence(page, "With {rows} rows of a text and a number", shown)
    yield Sentence(page, "a load of {load} by other work", shown)
    yield Sentence(page, "can be used {usable_s} s after it was asked for", shown)
    yield Sentence(page, "under the pointer within {hover_most_ms} ms", shown)
    yield Sentence(
        page, "new prediction after {new_prediction_s} s and the map in its new color after {new_map_s} s", shown
    )
    yield Sentence(page, "takes {tab_mb} MB, {heap_mb} MB of it for the script", shown)


def of_suspects() -> Iterable[Sentence]:
    """Wrong labels that a page finds, and what mending them does."""
    runs, page = pd.read_csv(RESULTS / "suspects.csv"), "docs/explore.md"
    means = runs.groupby(["method", "set"])[["found", "before", "mended", "refitted"]].mean()
    lines = {
        "the page": "explore",
        "the page, a model with `--test 0`": "explore, folds",
        "confident learning (cleanlab 2.9.0 with ridge)": "cleanlab",
        "left-out residuals of ridge (`vicinal evaluate`)": "ridge",
        "the same, ridge fitted on the true labels": "true labels",
    }
    for words, method in lines.items():
        both = {name: f"{100 * means.loc[(method, name), 'found']:.0f}" for name in ("tweets", "blood")}
        yield Sentence(page, f"| {words} | {{tweets}} % | {{blood}} % |", both)
    shown = {
        f"{name}_{step}": f"{value:.3f}" for name, row in means.loc["explore"].iterrows() for step, value in row.items()
    }
    shown |= {f"{name}_splits": str(runs.loc[runs["set"] == name, "seed"].nunique()) for name in ("tweets", "blood")}
    for name in ("tweets", "blood"):
        of_page = means.loc[("explore", name)]
        shown |= {f"{name}_share": f"{100 * of_page['found']:.0f}"}
        for words, step in (("less", "mended"), ("anew", "refitted")):
            shown[f"{name}_{words}"] = f"{100 * (1 - of_page[step] / of_page['before']):.0f}"
    yield Sentence(
        page, "of the tweets from {tweets_before} to {tweets_mended} in the bank, and to {tweets_refitted}", shown
    )
    yield Sentence(page, "blood cells from {blood_before} to {blood_mended} and to {blood_refitted}", shown)
    yield Sentence(page, "{tweets_splits} splits of the tweets and {blood_splits} of the blood cells", shown)
    guide = "docs/guide.md"
    yield Sentence(
        guide,
        "suspects held {tweets_share} % of the wrong labels that fifty can hold in tweets and {blood_share} %",
        shown,
    )
    yield Sentence(
        guide,
        "lowered the test error by {tweets_less} % and {blood_less} %, and by {tweets_anew} % and {blood_anew} %",
        shown,
    )


def of_serving() -> Iterable[Sentence]:
    """Loads on a server."""
    runs = json.loads((RESULTS / "serving.json").read_text(encoding="utf-8"))
    shown: dict[str, str] = {}
    for name in ("numbers", "texts"):
        shown |= {f"{name}_{share}": f"{runs[name][f'{share}_ms']:.1f}" for share in ("p50", "p99")}
    shown["rows"] = str(runs["numbers"]["rows_a_second_in_batches_of_32"])
    shown |= {key: str(runs["killed"][key]) for key in ("acknowledged", "lost")}
    shown["told"] = str(runs["malformed"]["answered_4xx_with_a_sentence"])
    page = "docs/serving.md"
    yield Sentence(page, "half are answered within {numbers_p50} ms and 99 % within {numbers_p99} ms", shown)
    yield Sentence(page, "four at once: {rows} rows a second", shown)
    yield Sentence(page, "half within {texts_p50} ms, 99 % within {texts_p99} ms", shown)
    yield Sentence(page, "after {acknowledged} were acknowledged: {lost} of these were lost", shown)
    yield Sentence(page, "malformed requests {told} got a status", shown)


def of_engines() -> Iterable[Sentence]:
    """Workers of Ray beside one process."""
    runs = pd.read_csv(RESULTS / "engines.csv").set_index("head")
    run, kernel = runs.loc["dense"], runs.loc["kernel"]
    figures = {name: f"{run[name]:,}" for name in ("rows", "mib_a_worker", "rows_a_second", "rows_a_second_alone")}
    figures["workers"] = str(run["workers_seen"])
    words = (
        "{rows} rows, {workers} workers: each had {mib_a_worker} MiB of its own, all together did {rows_a_second} rows"
    )
    yield Sentence("docs/scaling.md", words, figures)
    yield Sentence("docs/scaling.md", "One process did {rows_a_second_alone} rows a second", figures)
    figures = {name: f"{kernel[name]:,}" for name in ("bank_rows", "mib_a_worker", "mapped_mib_a_worker")}
    words = (
        "a bank of {bank_rows} rows each worker had {mib_a_worker} MiB of its own, and {mapped_mib_a_worker} MiB of the"
    )
    yield Sentence("docs/scaling.md", words, figures)


def of_costs() -> Iterable[Sentence]:
    """What a table takes, by its rows and columns: the lines of a table of docs/scaling.md."""
    page, tables = "docs/scaling.md", pd.read_csv(RESULTS / "tables.csv")
    took = tables[tables["method"].isin(["default", "network, auto"])].groupby(["set", "method"])
    took = took.agg(rows=("rows", "first"), columns=("columns", "first"), seconds=("seconds", "median")).reset_index()
    for small in (True, False):
        some = took[(took["rows"] < 600) == small]
        default, network = (some[some["method"] == name] for name in ("default", "network, auto"))
        shown = {
            f"{name}_{end}": str(getattr(default[name], end)())
            for name in ("rows", "columns")
            for end in ("min", "max")
        }
        shown |= {f"d_{end}": f"{getattr(default['seconds'], end)():.0f}" for end in ("min", "max")}
        shown |= {f"n_{end}": f"{getattr(network['seconds'], end)():.0f}" for end in ("min", "max")}
        begin = "| fit {rows_min} to {rows_max} rows, {columns_min} to {columns_max} numbers and categories | "
        begin = begin.replace("fit", "fit a small table," if small else "fit a larger one,", 1)
        yield Sentence(page, begin + "`vicinal fit` as it is | {d_min} to {d_max} s |", shown)
        yield Sentence(page, begin + "`--metric network` | {n_min} to {n_max} s |", shown)
    tuned = pd.read_csv(RESULTS / "fine-tuning.csv").pivot_table(index="set", columns="method", values="seconds")
    minutes = f"{tuned.loc['tweets', 'tuned neighbors x8'] / 60:.1f}"
    yield Sentence(page, "| encoder tuned in all layers, six epochs (`--plan`) | {minutes} min |", {"minutes": minutes})
    large = pd.read_csv(RESULTS / "million-rows.csv")
    for rows, name in ((100_000, "100,000"), (1_000_000, "1,000,000")):
        stage = large[(large["rows"] == rows) & (large["stage"] == "fit")]
        figures = {"s": f"{stage['seconds'].sum():.0f}", "mib": f"{stage['peak_mib'].max():,.0f}"}
        yield Sentence(
            page,
            f"| fit {name} rows in the bank, 4,500 of them trained on | one head | {{s}} s | {{mib}} MiB |",
            figures,
        )
    files = pd.read_csv(RESULTS / "streaming.csv")
    for head, words in (("nona", "the default"), ("dense", "`--head dense`")):
        run = files[(files["head"] == head) & (files["rows"] == 1_000_000)].iloc[0]
        minutes = (run["seconds_to_kill"] + run["seconds_resumed"]) / 60
        figures = {"minutes": f"{minutes:.1f}", "mib": f"{run['peak_mib']:,.0f}"}
        yield Sentence(page, f"| predict 1,000,000 rows | {words} | {{minutes}} min | {{mib}} MiB |", figures)
    pairs = pd.read_csv(RESULTS / "matching_rows.csv")
    seconds = pairs[(pairs["what"] == "seconds") & (pairs["method"] == "matcher")]["value"]
    sizes = pairs[pairs["what"].isin(["left", "right"])]["value"]
    figures = {"least": f"{sizes.min():,.0f}", "most": f"{sizes.max():,.0f}"}
    figures |= {"low": f"{seconds.min():.0f}", "high": f"{seconds.max():.0f}"}
    yield Sentence(page, "| match two tables of {least} to {most} rows | as it is | {low} to {high} s |", figures)


def of_tuning() -> Iterable[Sentence]:
    """Encoders that learn: mean errors over splits."""
    page, sets = "docs/results/fine-tuning.md", ("tweets", "amazon", "stsb", "houses", "blood")
    mean = pd.read_csv(RESULTS / "fine-tuning.csv").pivot_table(
        index="method", columns="set", values=["test", "seconds"]
    )
    errors, seconds = mean["test"], mean["seconds"].loc["tuned neighbors x8"]
    for method, words in (
        ("frozen", "default, encoder as published"),
        ("kernel ridge on frozen", "kernel ridge on the same vectors"),
        ("boosting on frozen", "boosting on the same vectors"),
        ("tuned neighbors x8", "default (eight members, entmax), tuned"),
        ("kernel ridge on tuned neighbors x8", "kernel ridge on the vectors that it tuned"),
        ("boosting on tuned neighbors x8", "boosting on the vectors that it tuned"),
        ("tuned dense x8", "dense head, eight members, tuned"),
        ("tuned dense x8, then k-NN", "k-NN on the embeddings of that"),
        ("kernel ridge on tuned dense x8", "kernel ridge on the vectors that the dense head tuned"),
        ("boosting on tuned dense x8", "boosting on the vectors that the dense head tuned"),
    ):
        shown = {name: f"{errors.loc[method, name]:.3f}" for name in sets}
        yield Sentence(page, f"| {words} | {{tweets}} | {{amazon}} | {{stsb}} | {{houses}} | {{blood}} |", shown)
    for method, words in (
        ("tuned dense x1", "dense head, one member, tuned, in float32"),
        ("tuned dense x1, then k-NN", "k-NN on the embeddings of that one"),
    ):
        shown = {"tweets": f"{errors.loc[method, 'tweets']:.3f}"}
        yield Sentence(page, f"| {words} | {{tweets}} | - | - | - | - |", shown)
    shown = {"alone": shown["tweets"], "ours": f"{errors.loc['tuned neighbors x8', 'tweets']:.3f}"}
    yield Sentence(page, "has twice the error of the neighbors on tweets ({alone} against {ours})", shown)
    shown = {name: f"{seconds[name]:.0f}" for name in sets}
    words = "| processor seconds of a tuned fit | {tweets} | {amazon} | {stsb} | {houses} | {blood} |"
    yield Sentence(page, words, shown)
    first = pd.read_csv(RESULTS / "fine-tuning.csv").query("split == 0").pivot(index="method", columns="set")["test"]
    for method, words in (
        ("tuned neighbors x8", "as above: steps of 128 rows, all layers at 1e-4"),
        ("tuned, steps of 64", "steps of 64 rows"),
        ("tuned, steps of 32", "steps of 32 rows"),
        ("tuned, rate 2e-4", "all layers at 2e-4"),
        ("tuned, lower layers slower", "each layer at .8 of the rate of the one above"),
        ("tuned, LoRA", "LoRA, its matrices at 1e-3, in float32"),
        ("tuned, last-2", "the last two layers alone, in float32"),
    ):
        shown = {name: f"{first.loc[method, name]:.3f}" for name in sets[:2] if first.loc[method, name] > 0}
        cells = (f"{{{name}}}" if name in shown else "-" for name in sets[:2])
        yield Sentence(page, f"| {words} | {' | '.join(cells)} |", shown)
    heads = {"paper": "tuned paper head", "dense": "tuned dense x1", "ours": "tuned neighbors x8"}
    shown = {name: f"{first.loc[method, 'tweets']:.3f}" for name, method in heads.items()}
    words = "ends at {paper} on the first split of tweets, one dense member at {dense}, the default at {ours}."
    yield Sentence(page, words, shown)
    runs = pd.read_csv(RESULTS / "fine-tuning.csv").pivot(index=["set", "split"], columns="method", values="test")
    tuned = np.log(runs["tuned neighbors x8"])
    for rival, words in (
        ("tuned dense x8", "geometric means over splits, and on {ahead} of {all} splits (Wilcoxon p = {p})."),
        ("tuned dense x8, then k-NN", "So they are of k-NN on its embeddings: on {ahead} of {all} splits (p = {p})."),
        (
            "kernel ridge on tuned neighbors x8",
            "Over all sets the neighbors are ahead of it on {ahead} of {all} splits (p = {p}).",
        ),
    ):
        apart = (tuned - np.log(runs[rival])).dropna()
        p = wilcoxon(apart).pvalue
        shown = {"ahead": str((apart < 0).sum()), "all": str(len(apart)), "p": f"{p:.2f}" if p >= 0.01 else f"{p:.1g}"}
        yield Sentence(page, words, shown)
        if rival == "tuned dense x8":
            gains = 100 * -np.expm1(apart.groupby("set").mean())
            words = "by {tweets}, {amazon}, {stsb}, {houses} and {blood} % of its error on the five sets"
            yield Sentence(page, words, {name: f"{gains[name]:.0f}" for name in sets})
    pairs = {
        "pair": f"{first.loc['frozen', 'stsb']:.2f}",
        "apart": f"{first.loc['frozen, side by side', 'stsb']:.2f}",
    }
    words = "rated for likeness the test error is {pair} of the labels' variance, {apart} with both side by side."
    yield Sentence("docs/guide.md", words, pairs)
    gain = 100 * (1 - errors.loc["tuned neighbors x8"] / errors.loc["frozen"])
    shown = {name: f"{gain[name]:.0f}" for name in sets[:2]}
    yield Sentence("README.md", "Tuning the encoder pays most on texts: {tweets} and {amazon} %.", shown)


def means_of(runs: pd.DataFrame, keys: list[str], columns: list[str]) -> pd.DataFrame:
    """Means and deviations by ``keys``, in the order of the file."""
    return runs.groupby(keys, sort=False)[columns].agg(["mean", "std"])


def of_factors() -> Iterable[Sentence]:
    """Groups of new classes, by method and data."""
    page = "docs/results/factorization.md"
    runs = pd.read_csv(RESULTS / "new-classes.csv").assign(off=lambda table: (table["groups"] - table["classes"]).abs())
    for method, of in runs.groupby("method", sort=False):
        words, shown = f"| {method} |", {}
        for place, (_, some) in enumerate(of.groupby("data", sort=False)):
            shown |= {f"mean{place}": f"{some['accuracy'].mean():.3f}", f"sd{place}": f"{some['accuracy'].std():.3f}"}
            shown[f"off{place}"] = f"{some['off'].mean():.1f}"
            words += f" {{mean{place}}} ± {{sd{place}}} |" + (" |" if "told" in method else f" {{off{place}}} |")
        yield Sentence(page, words, shown)
    found = runs[runs["data"] == "Omniglot"].pivot_table(index="seed", columns="method", values="accuracy")
    ours, theirs = found["discover_groups"], found["spectral by gap"]
    shown = {"wins": COUNTS[int((ours > theirs).sum())], "all": COUNTS[len(ours)]}
    shown |= {"gap": f"{theirs.min():.3f}", "least": f"{ours.min():.3f}", "mean": f"{ours.mean():.3f}"}
    words = "better on {wins} of {all} alphabets, where spectral clustering by its gap falls to {gap}"
    yield Sentence(page, words + ", and worse on the others; its lowest is {least}", shown)
    yield Sentence(page, "an accuracy of {mean} in place of", shown)


def of_clicks() -> Iterable[Sentence]:
    """Ranking of hidden clicks, and its cost."""
    page = "docs/results/factorization.md"
    means = means_of(pd.read_csv(RESULTS / "factorization.csv"), ["data", "method"], ["recall", "ndcg", "seconds"])
    for (data, method), row in means.iterrows():
        shown = {f"{name}{end}": f"{row[name, end]:.3f}" for name in ("recall", "ndcg") for end in ("mean", "std")}
        shown["s"] = f"{row['seconds', 'mean']:.1f}"
        words = f"| {method} | {data} | {{recallmean}} ± {{recallstd}} | {{ndcgmean}} ± {{ndcgstd}} | {{s}} |"
        yield Sentence(page, words, shown)
    recall = means["recall", "mean"]
    ours, theirs, near = (recall.xs(name, level=1) for name in ("als, rank 64", "implicit als, rank 64", "item k-NN"))
    shares, times = 100 * ours / theirs, ours / near
    shown = {f"s{i}": f"{share:.1f}" for i, share in enumerate(shares)}
    shown |= {f"t{i}": f"{time:.2f}" for i, time in enumerate(times)}
    words = "{s0} % of its recall on CiteULike-t and {s1} % on MovieLens; {t0} and {t1} times that of item k-NN"
    yield Sentence(page, words, shown)
    nbpo = recall["MovieLens-100k"]["nbpo, pair_cross_entropy"] - recall["MovieLens-100k"]["bpo, pair_cross_entropy"]
    yield Sentence(page, "gain {gain} of recall over plain ones", {"gain": f"{nbpo:.3f}"})
    cost = pd.read_csv(RESULTS / "factorization-speed.csv").set_index("what")["ratio"]
    for what, ratio in cost.items():
        rest = {"als": ", rank 64, CiteULike-t | `implicit`, exact ALS"}
        rest |= {"fastrp": ", 128 wide, its 33,909 users and items | its sparse products"}
        rest["pair_cross_entropy"] = ", 1,024 x 1,024 | product and softmax cross-entropy"
        if "partial" not in what:
            yield Sentence(page, f"| {what}{rest.get(what, ' | the same')} | {{times}} |", {"times": f"{ratio:.2f}"})
    matrices = {"count": f"{cost['partial_assignment: matrices above the logits']:.2f}"}
    yield Sentence(page, "above the logits: {count} matrices of their size", matrices)
    figures = {name: f"{each['CiteULike-t']:.3f}" for name, each in (("a", ours), ("b", theirs), ("c", near))}
    words = (
        "`als` of rank 64 has a recall@20 of {a}, `implicit` 0.7.3 with exact ALS {b}, and item k-NN {c}; it takes {t}"
    )
    figures["t"] = f"{cost['als']:.2f}"
    yield Sentence("docs/clicks-and-clusters.md", words + " times as long", figures)


def of_pretraining() -> Iterable[Sentence]:
    """Books, by number of labels."""
    means = means_of(pd.read_csv(RESULTS / "pretrain-columns.csv"), ["method", "labels"], ["error"])["error"]
    for method in means.index.unique(level=0):
        each = means.loc[method]
        shown = {f"{end}{count}": f"{each[end][count]:.3f}" for end in ("mean", "std") for count in (100, 300, 1000)}
        words = "".join(f" {{mean{count}}} ± {{std{count}}} |" for count in (100, 300, 1000))
        yield Sentence("docs/results/factorization.md", f"| {method} |{words}", shown)


def of_exposed() -> Iterable[Sentence]:
    """Clicks that need exposure."""
    page = "docs/results/factorization.md"
    runs = pd.read_csv(RESULTS / "exposed-clicks.csv")
    means = means_of(runs, ["method", "power"], ["ndcg", "mse"])
    for method in dict.fromkeys(runs["method"]):
        words, shown = f"| {method} |", {}
        for place, power in enumerate((0.5, 1.0)):
            row = means.loc[(method, power)]
            shown |= {f"m{place}": f"{row['ndcg', 'mean']:.3f}", f"d{place}": f"{row['ndcg', 'std']:.3f}"}
            words += f" {{m{place}}} ± {{d{place}}} |"
            if method == "popularity":
                words += " |"
            else:
                shown[f"e{place}"], words = f"{row['mse', 'mean']:.3f}", words + f" {{e{place}}} |"
        yield Sentence(page, words, shown)
    draws = runs.pivot_table(index=["power", "seed"], columns="method", values="ndcg")
    better = draws.gt(draws["clicks taken for relevance (clip 1)"], axis=0)
    clipped, floored = better["clipped at 0.1"], better["clipped at 0.1, nonnegative"]
    shown = {
        "one": clipped[1.0].sum(),
        "draws": len(clipped[1.0]),
        "half": clipped[0.5].sum(),
        "floor": floored[0.5].sum(),
    }
    words = (
        "better than clicks taken for relevance in {one} of {draws} draws; at power 1/2 in {half}, and in {floor} if"
    )
    yield Sentence(page, words, {name: COUNTS[count] for name, count in shown.items()})


def of_transforms() -> Iterable[Sentence]:
    """Of positive targets: errors with logarithms and normal scores, beside those of labels as they are."""
    page, runs = "docs/results/tables.md", pd.read_csv(RESULTS / "target-transforms.csv")
    kernels = runs[runs["asked"] == "kernel"]
    means = kernels.groupby(["set", "transform"])[["rmse", "relative"]].mean().unstack()
    changes = {
        (what, name): change(means[what][name], means[what]["none"])
        for what in ("rmse", "relative")
        for name in ("log", "rank")
    }
    rmse, relative = changes["rmse", "log"], changes["relative", "log"]
    shown = {"mean": f"{-rmse.mean():.1f}", "median": f"{-rmse.median():.1f}", "most": f"{rmse.max():.0f}"}
    shown |= {"houses": f"{-rmse['houses']:.0f}", "diamonds": f"{-rmse['diamonds']:.0f}", "sets": COUNTS[len(rmse)]}
    yield Sentence(
        page,
        "have {mean} % less RMSE in the mean of {sets} tables ({median} % on the median), {houses} % on houses and "
        "{diamonds} % on diamonds, but {most} % more on hitters",
        shown,
    )
    left_out = kernels.pivot_table(index=["set", "split"], columns="transform", values=["left_out_mse", "rmse"])
    better = left_out["left_out_mse"]["log"] < left_out["left_out_mse"]["none"]
    taken = left_out["rmse"]["log"].where(better, left_out["rmse"]["none"]).groupby("set").mean()
    auto = change(taken, means["rmse"]["none"])
    shown = {"taken": f"{better.sum()}", "of": f"{len(better)}", "mean": f"{-auto.mean():.1f}"}
    shown |= {"most": f"{auto.max():.1f}"}
    yield Sentence(page, "in {taken} of {of} fits, has {mean} % less in the mean and at most {most} % more", shown)
    shown = {"log": f"{-relative.median():.0f}", "least": f"{-relative.max():.0f}", "best": f"{-relative.min():.0f}"}
    shown["rank"] = f"{-changes['relative', 'rank'].median():.0f}"
    yield Sentence(
        page,
        "relative errors fall on every table, by {least} to {best} % ({log} % on the median; {rank} % with scores)",
        shown,
    )
    default = runs[runs["asked"] == "auto"].pivot_table(index=["set", "split"], columns="transform", values="rmse")
    default = default.dropna()
    log = change(*(default[name].groupby("set").mean() for name in ("log", "none")))
    taken = default["log"].where(better.reindex(default.index, fill_value=False).astype(bool), default["none"])
    auto = change(*(one.groupby("set").mean() for one in (taken, default["none"])))
    shown = {"most": f"{log.max():.0f}", "mean": f"{-auto.mean():.1f}"}
    yield Sentence(page, "up to {most} % of RMSE (hitters; boston, where a network was then taken)", shown)
    yield Sentence(page, "costs nothing on any set, and has {mean} % less in the mean", shown)
    held_out = kernels.pivot_table(index=["set", "split"], columns="transform", values="held_out_mse")
    chosen = held_out["log"] < held_out["none"]
    wrong = left_out["rmse"]["log"].where(chosen, left_out["rmse"]["none"]) / left_out["rmse"]["none"]
    yield Sentence(page, "up to {worst} % more RMSE on a split", {"worst": f"{100 * (wrong.max() - 1):.0f}"})


def of_several() -> Iterable[Sentence]:
    """Of several classes a row: the default beside one logistic regression for each class."""
    page, runs = "docs/results/several-classes.md", pd.read_csv(RESULTS / "several-classes.csv")
    table = runs.pivot_table(index=["dataset", "split"], columns="method", values=["micro_f1", "macro_f1", "log_loss"])
    micro, macro, loss = (table[name] for name in ("micro_f1", "macro_f1", "log_loss"))
    means, of_macro = micro.groupby("dataset").mean(), macro.groupby("dataset").mean()
    nona, linear, spread = means["nona"], means["logistic regression"], micro.groupby("dataset").std().max().max()
    chances = [
        paired_t(part["nona"], part["logistic regression"], overlap=20 / 68).p_value
        for _, part in micro.groupby("dataset")
    ]
    yield Sentence(
        page,
        "On movies the default has a micro F1 of {a} and logistic regression {b}; on tags {c} and {d}.",
        {
            "a": f"{nona['movies']:.3f}",
            "b": f"{linear['movies']:.3f}",
            "c": f"{nona['tags']:.3f}",
            "d": f"{linear['tags']:.3f}",
        },
    )
    yield Sentence(
        page,
        "deviates by up to {spread} from split to split, and a test over three splits tells neither apart from the "
        "other (p = {p} and {q})",
        {"spread": f"{spread:.3f}", "p": f"{chances[0]:.2f}", "q": f"{chances[1]:.2f}"},
    )
    ahead = 100 * (of_macro["logistic regression"] - of_macro["nona"])
    yield Sentence(
        page,
        "logistic regression is ahead on both, by {a} and {b} points",
        {"a": f"{ahead['movies']:.1f}", "b": f"{ahead['tags']:.1f}"},
    )
    behind = 100 * (nona - means["k-NN"])
    yield Sentence(
        page,
        "is behind by micro F1, by {a} and {b} points",
        {"a": f"{behind['movies']:.1f}", "b": f"{behind['tags']:.1f}"},
    )
    losses = loss.groupby("dataset").mean()[["nona", "dense", "logistic regression"]]
    yield Sentence(
        page,
        "the log losses are within {a} of one another",
        {"a": f"{(losses.max(axis=1) - losses.min(axis=1)).max():.3f}"},
    )


def of_thresholds() -> Iterable[Sentence]:
    """Of several classes a row: shrunk thresholds beside one for each class."""
    page, runs = "docs/results/several-classes.md", pd.read_csv(RESULTS / "several-thresholds.csv")
    micro = runs[runs["method"] == "nona"].pivot_table(index=["set", "split"], columns="rule", values="micro_f1")
    gain = 100 * (micro["shrunk, c = 30"] - micro["one a class, of at least 10 rows"])
    first, later = (
        gain[gain.index.get_level_values("split").isin(some)].groupby("set").mean() for some in (range(3), (3, 4))
    )
    yield Sentence(
        page,
        "gains {a} points of micro F1 on movies and {b} on tags over a threshold for each class",
        {"a": f"{first['movies']:.1f}", "b": f"{first['tags']:.1f}"},
    )
    yield Sentence(
        page,
        "on the two others it gains {a} and {b}",
        {"a": f"{later['movies']:.1f}", "b": f"{later['tags']:.1f}"},
    )


def of_decisions() -> Iterable[Sentence]:
    """Money that decisions lose, by loss."""
    runs = pd.read_csv(RESULTS / "decisions.csv")
    plain = ("linear", "squares", "plain")

    def compared(case: str, one: tuple[str, str, str], other: tuple[str, str, str]) -> tuple[str, str]:
        """How much less the first loses, in per cent, and Wilcoxon's p over sets."""
        lost = [
            runs[(runs["model"] == model) & (runs["loss"] == loss)].groupby("set")[f"{case}, {kind}"].mean()
            for model, loss, kind in (one, other)
        ]
        apart = np.log(lost[0] / lost[1])
        return f"{round(-100 * np.expm1(apart.mean()))}", f"{wilcoxon(apart).pvalue:.3f}"

    page, figures = "docs/results/decisions.md", {}
    for model in ("linear", "network"):
        for case in ("order, 3:1", "order, 9:1", "threshold, 4:1"):
            name = f"{model}{case[-3]}{case[0]}"
            squares = (model, "squares", "shifted")
            figures[name] = compared(case, squares, (model, "squares", "plain"))[0]
            for short, loss in {"exp": "matching exp", "sigmoid": "matching sigmoid", "pinball": "pinball"}.items():
                figures[f"{name}{short}"] = compared(case, (model, loss, "shifted"), squares)[0]
    words = (
        "takes {linear3o} % off the cost of orders at 3:1 and {linear9o} % at 9:1 in the linear model, {network3o} %"
    )
    yield Sentence(page, words + " and {network9o} % in the network", figures)
    yield Sentence(page, "at 4:1 it takes {linear4t} % and {network4t} %", figures)
    words = (
        "saves another {linear9oexp} % with Exp, {linear9osigmoid} % with Sigmoid and {linear9opinball} % with pinball"
    )
    yield Sentence(page, words, figures)
    words = "with pinball, the network {network9oexp} %, {network9osigmoid} % and {network9opinball} %; at 3:1 it is"
    yield Sentence(page, words, figures)
    words = "at 3:1 it is {linear3oexp} %, {linear3osigmoid} % and {linear3opinball} %, and {network3oexp} %,"
    yield Sentence(page, words + " {network3osigmoid} % and {network3opinball} %", figures)
    figures = {}
    for model in ("linear", "network"):
        for case in ("threshold, distance", "threshold, 4:1"):
            name = f"{model}_{case[-1]}"
            interval, squares = (model, "matching interval", "shifted"), (model, "squares", "shifted")
            figures[name], figures[f"p_{name}"] = compared(case, interval, squares)
    case = "threshold, distance"
    figures["plain"], figures["p_plain"] = compared(case, ("linear", "matching interval", "shifted"), plain)
    figures["richer"], figures["p_richer"] = compared(case, ("network", "squares", "shifted"), plain)
    words = (
        "saves {linear_1} % at 4:1 in the linear model (Wilcoxon over the sets, p = {p_linear_1}) and {network_1} % in"
    )
    yield Sentence(page, words + " the network (p = {p_network_1})", figures)
    words = "distance counts {linear_e} % in the linear model (p = {p_linear_e}) and {network_e} % in the network"
    yield Sentence(page, words + " (p = {p_network_e})", figures)
    yield Sentence(page, "against squares without one the gain is {plain} % (p = {p_plain})", figures)
    words = "squares loses {richer} % less than the linear model with plain ones (p = {p_richer})"
    yield Sentence(page, words, figures)
    ends = {
        f"end{case[-3]}": compared(case, ("neighbors", "as it is", "plain"), ("network", "squares", "shifted"))[0]
        for case in ("order, 3:1", "order, 9:1")
    }
    yield Sentence(page, "neighbors' orders cost {end3} % less at 3:1 and {end9} % less at 9:1", ends)
    minutes = {"minutes": f"{runs['seconds'].sum() / 60:.0f}"}
    yield Sentence(page, "All runs take {minutes} minutes of one core", minutes)


def of_extending() -> Iterable[Sentence]:
    """Rows of another kind that are added, rows that are forgotten, and labels that are mended."""
    page, runs = "docs/results/extending.md", pd.read_csv(RESULTS / "extending.csv")
    means = runs[runs["part"].isin(["add", "weigh"])].groupby(["set", "method", "rows"])["error"].mean()
    reviews, editorials = means["tweets to reviews of goods"], means["films to editorials"]
    names = {"add": "add", "epochs": "3 epochs", "ridge": "kernel ridge", "anew": "fit anew"}
    shown = {f"r_{name}": f"{reviews[method, 1600]:.3f}" for name, method in names.items()}
    shown |= {f"e_{name}": f"{editorials[method, 1600]:.3f}" for name, method in names.items()}
    words = (
        "bring 1,600 reviews from {r_add} to {r_epochs} (kernel ridge {r_ridge}, a fit anew {r_anew}) and editorials "
        "from {e_add} to {e_epochs} ({e_ridge} and {e_anew})"
    )
    yield Sentence(page, words, shown)
    vectors = {"ours": "kernel ridge on our vectors", "frozen": "kernel ridge"}
    both = {"plain": "add", "weight": "add, weight auto", "epochs": "3 epochs, weight auto", "ridge": "kernel ridge"}
    took = runs[(runs["method"] == "3 epochs") & (runs["rows"] == 1600)]["seconds"].mean()
    yield Sentence(page, "and more, in {seconds} seconds.", {"seconds": f"{took:.0f}"})
    shown = {f"r_{name}": f"{reviews[method, 1600]:.3f}" for name, method in vectors.items()}
    shown |= {f"e_{name}": f"{editorials[method, 1600]:.3f}" for name, method in vectors.items()}
    words = "comes to {r_ours} and {e_ours} on our vectors, and to {r_frozen} and {e_frozen} on the frozen ones"
    yield Sentence(page, words, shown)
    words = "With 400 editorials it brings {plain} to {weight}, and with epochs to {epochs} (kernel ridge {ridge})."
    yield Sentence(page, words, {name: f"{editorials[method, 400]:.3f}" for name, method in both.items()})
    apart = runs[runs["method"] == "forget"]["value"].max()
    yield Sentence(page, "never had the rows differ by {apart} at most", {"apart": f"{apart:.1f}"})
    labels = runs[runs["part"] == "labels"].groupby(["share", "method", "rows"])["error"].mean().unstack("method")
    last = labels.xs(labels.index.get_level_values("rows").max(), level="rows")
    gains = 100 * (1 - last["relabel, fit anew"] / last["relabel"])
    words = "on the corrected ones is better** by {least} to {most} % more"
    yield Sentence(page, words, {"least": f"{gains.min():.0f}", "most": f"{gains.max():.0f}"})


def of_matching() -> Iterable[Sentence]:
    """Questions with abstracts, and large tables."""
    page = "docs/results/matching-rows.md"
    asked = pd.read_csv(RESULTS / "matching-retrieval.csv").set_index(["set", "method"])
    for method in asked.loc["cranfield"].index:
        figures = {}
        for name in ("cranfield", "cisi"):
            row = asked.loc[(name, method)]
            figures |= {f"{name}_{what}": f"{row[what]:.3f}" for what in ("ndcg@10", "low", "high")}
        cells = (f"{{{name}_mean}} ({{{name}_low}} to {{{name}_high}})" for name in ("cranfield", "cisi"))
        figures |= {f"{name}_mean": figures.pop(f"{name}_ndcg@10") for name in ("cranfield", "cisi")}
        yield Sentence(page, f"| {method} | {' | '.join(cells)} |", figures)
    for name in ("cranfield", "cisi"):
        stemmed, vectors = (asked.loc[(name, m)] for m in ("BM25, stop words and stems", "vectors of MiniLM alone"))
        figures = {
            f"{short}{i}": f"{row[what]:.3f}" for short, row in (("s", stemmed), ("v", vectors)) for i, what in BEHIND
        }
        yield Sentence(page, BEYOND[name], figures)
    large = pd.read_csv(RESULTS / "matching-scale.csv")
    row = large[(large["rows"] == 100_000) & (large["index"] == "exact")].iloc[0]
    words = "Two tables of 100,000 rows take {minutes} minutes of one core in all"
    yield Sentence(page, words, {"minutes": f"{row['seconds'] / 60:.1f}"})


BEHIND = ((0, "behind_low"), (1, "behind_high"))
BEYOND = {
    "cranfield": "ahead of stemmed BM25 by {s0} to {s1} and of the vectors alone by {v0} to {v1}",
    "cisi": "not ({s0} to {s1} and {v0} to {v1})",
}


SOURCES = (
    of_default,
    of_sets_apart,
    of_experts,
    of_engine,
    of_recipes,
    of_screening,
    of_intervals,
    of_earlier,
    of_scaling,
    of_default_rows,
    of_guide,
    of_explore,
    of_serving,
    of_engines,
    of_costs,
    of_tuning,
    of_suspects,
    of_factors,
    of_clicks,
    of_exposed,
    of_pretraining,
    of_transforms,
    of_several,
    of_thresholds,
    of_decisions,
    of_extending,
    of_matching,
)


def sentences() -> list[Sentence]:
    """All of them."""
    return [sentence for source in SOURCES for sentence in source()]


def pages() -> dict[Path, str]:
    """Each page that has such sentences, with its figures as they should be."""
    made: dict[Path, str] = {}
    for sentence in sentences():
        path = ROOT / sentence.page
        made[path] = sentence.renewed(made.get(path) or path.read_text(encoding="utf-8"))
    return made
