"""Tables and figures of the documentation, made from the result files in benchmarks/results.

A table stands between ``<!-- table: NAME -->`` and ``<!-- end of table -->`` and is made by the function of that name
in ``TABLES``. A sentence is a template whose figures are computed here and written wherever its words stand.
``python scripts/page_outputs.py`` without a page writes both anew; ``tests/test_page_figures.py`` fails if one is old.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import ttest_1samp

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
COUNTS = (
    *("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen"),
)
FIGURE = rf"(?:[-+]?\d[\d,]*(?:\.\d+)?|\b(?:{'|'.join(COUNTS)})\b)"
MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n)(?:(?!<!-- ).)*(<!-- end of table -->)", re.DOTALL)


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


def results(name: str, **kinds: type) -> pd.DataFrame:
    """A result file."""
    return pd.read_csv(RESULTS / f"{name}.csv", dtype=kinds)


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def number(value: float, form: str = ".3f") -> str:
    """A figure; nothing where there is none."""
    return "" if np.isnan(value) else format(value, form)


def cells(row: "pd.Series[float]", names: Iterable[Any], form: str = ".3f") -> list[str]:
    """The figures of a row by these names."""
    return [number(row.get(name, np.nan), form) for name in names]


def signed(value: float) -> str:
    """A whole number with its sign, 0 without."""
    return f"{round(value):+d}" if round(value) else "0"


def change(new: pd.Series, old: pd.Series) -> pd.Series:
    """In per cent, by set."""
    return 100 * (new / old - 1)


# Plain tables.


def boosting() -> pd.DataFrame:
    """Mean squared errors by part, size and table: the default beside LightGBM and CatBoost as they come."""
    found = results("engine", size=str)
    wide = found.pivot_table(index=["part", "size", "table", "split"], columns="method", values="mse")
    return wide[["default", "lightgbm", "catboost"]].dropna().groupby(["part", "size", "table"]).mean()


PARTS = {
    "14 tables of textbooks, 210 to 960 rows": ("plain", "all"),
    "28 UCI tables, 90 to 44,000 rows": ("uci", "all"),
    "6 tables, 5,000 rows": ("large", "5000"),
    "3 tables, 20,000 rows": ("large", "20000"),
}


def tables() -> str:
    """By group of tables: errors over those of the better of two rivals, seconds, rows behind a prediction."""
    mean, found = boosting(), results("engine", size=str)
    rows = []
    for words, (part, size) in PARTS.items():
        errors = mean.loc[part, size]
        ratio = errors["default"] / errors[["lightgbm", "catboost"]].min(axis=1)
        some = (
            found[(found["part"] == part) & (found["size"] == size)].groupby("method")[["fit_s", "carriers"]].median()
        )
        figures = [number(ratio.median(), ".2f"), number(ratio.max(), ".2f"), f"{(ratio < 1).sum()} of {len(ratio)}"]
        seconds = [number(some.loc[name, "fit_s"], ".2f") for name in ("default", "lightgbm", "catboost")]
        rows.append([words, *figures, number(some.loc["default", "carriers"], ".0f"), *seconds])
    head = ["", "median", "worst", "best on", "rows behind a prediction", "fit, s", "LightGBM, s", "CatBoost, s"]
    return grid(head, rows)


def plain() -> str:
    """The fourteen plain tables."""
    errors, found = boosting().loc["plain", "all"], results("engine", size=str)
    ratio = errors.div(errors[["lightgbm", "catboost"]].min(axis=1), axis=0).sort_values("default", ascending=False)
    size = found[found["part"] == "plain"].groupby("table")["rows"].first()
    rows = [[str(name), f"{size[name]:.0f}", *(number(value) for value in row)] for name, row in ratio.iterrows()]
    return grid(["table", "rows", "vicinal", "LightGBM", "CatBoost"], rows)


EXPERTS = {
    "lightgbm tuned": "LightGBM",
    "catboost tuned": "CatBoost",
    "support vectors": "support vectors",
    "kernel ridge": "kernel ridge",
    "ridge": "ridge",
}


def experts() -> str:
    """The plain tables beside tuned rivals: errors over those of the best of these, and their medians."""
    found = results("engine", size=str)
    wide = found[found["part"] == "plain"].pivot_table(index=["table", "split"], columns="method", values="mse")
    mean = wide[["default", *EXPERTS]].dropna().groupby("table").mean()
    ratio = mean.div(mean[list(EXPERTS)].min(axis=1), axis=0).sort_values("default", ascending=False)
    rows = [[str(name), *cells(row, ratio.columns, ".2f")] for name, row in ratio.iterrows()]
    return grid(
        ["table", "vicinal", *EXPERTS.values()], [*rows, ["median", *cells(ratio.median(), ratio.columns, ".2f")]]
    )


def mixed() -> str:
    """Scores on MulTaBench's tables, the mean of its folds that were run, beside those it publishes."""
    found = results("mixed-tables")
    score = found.pivot_table(index=["table", "split"], columns="method", values="score").dropna()
    mean, count = score.groupby("table").mean(), score.groupby("table").size()
    shown = {"imdb": "IMDB genre, AUC", "chocolate": "chocolate, RMSE", "books": "books, RMSE"}
    methods = ("default", "LightGBM", "CatBoost", "TabPFN-3.5")
    rows = [
        [words, str(count[name]), *cells(mean.loc[name], methods)]
        for name, words in shown.items()
        if name in mean.index
    ]
    return grid(["", "folds", "vicinal", *methods[1:]], rows)


def networks() -> str:
    """Errors of networks for tables over those of the default, by method."""
    runs, seconds = results("kin"), results("kin").groupby("method")["seconds"].median()
    shown = {"network": "neighbor network", "tabm": "TabM", "tabr": "TabR", "realmlp": "RealMLP"}
    rows = []
    for name, words in (shown | {"modernnca": "ModernNCA"}).items():
        splits = set(runs.loc[runs["method"] == name, "split"])
        alike = runs[runs["split"].isin(splits)].groupby(["set", "method"])["mse"].mean().unstack("method")
        ratio = (alike[name] / alike["default"]).dropna()
        better = f"{(ratio < 1).sum()} of {len(ratio)}"
        rows.append([words, number(ratio.median(), ".2f"), number(ratio.min(), ".2f"), better, f"{seconds[name]:.0f}"])
    return grid(["", "median", "best case", "better than the default on", "seconds"], rows)


def added() -> str:
    """Errors after rows of another kind came, and seconds."""
    runs = results("extending")
    means = runs.pivot_table(index="method", columns=["set", "rows"], values="error")
    seconds = runs.groupby(["method", "rows"])["seconds"].mean()
    shown = {"add": "`add`", "3 epochs": "`partial_fit`, 3 epochs", "fit anew": "new fit"}
    shown |= {name: f"{name}, new fit" for name in ("ridge", "kernel ridge")}
    asked = list(product(SHIFTED, (0, 400, 1600)))
    rows = [
        [words, *cells(means.loc[name], asked), number(seconds[name, 1600], ".0f")] for name, words in shown.items()
    ]
    head = [f"{words}, {size}" for words in SHIFTED.values() for size in ("0 rows", "400", "1,600")]
    return grid(["", *head, "seconds"], rows)


SHIFTED = {"tweets to reviews of goods": "product reviews", "films to editorials": "editorials"}


def suspects() -> str:
    """Of the wrong labels that fifty suspects could hold, those that they hold, and what comes of mending them."""
    runs = results("suspects")
    errors = runs[["before", "mended", "refitted"]].div(runs["clean"], axis=0)
    runs = runs.assign(**errors).drop(columns="part").groupby(["set", "method"], sort=False).mean(numeric_only=True)
    sets = results("suspects").groupby("part", sort=False)["set"].unique()
    tables = runs.loc[list(sets["tables"])].groupby("method").median()
    groups = {name: runs.loc[name] for name in sets["vectors"]} | {f"{len(sets['tables'])} tables, median": tables}
    lines = []
    for words, figures in groups.items():
        ours = figures.loc["explore"]
        methods = ("explore", "explore, folds", "ridge", "cleanlab", "true labels")
        shares = [f"{100 * figures.loc[name, 'found']:.0f} %" for name in methods]
        worth = f"{ours['worth']:.0f} ({ours['right']:.0f})"
        changed = [number(ours[name], ".2f") for name in ("before", "mended", "refitted")]
        lines.append([words, *shares, f"{100 * ours['proposed']:.0f} %", worth, *changed])
    heads = ["", "`vicinal explore`", "with `--test 0`", "ridge, left out", "cleanlab", "fitted on true labels"]
    return grid([*heads, "right proposal", "listed (wrong)", "error before", "relabeled", "fitted again"], lines)


# Classes.


RIVALS = ("logistic regression", "support vectors", "boosting", "k-NN", "LightGBM", "CatBoost")


def log_losses() -> tuple[pd.DataFrame, "pd.Series[float]"]:
    """The log loss of each method on each set, and that of the default over the least of its rivals'."""
    mean = results("classification").groupby(["set", "method"])["log_loss"].mean().unstack("method")
    return mean, mean["neighbors"] / mean[list(RIVALS)].min(axis=1)


def classes() -> str:
    """Log losses, the set with the largest loss first."""
    size = results("classification").groupby("set")[["rows", "classes"]].first()
    mean, ratio = log_losses()
    rows = []
    for name in ratio.sort_values(ascending=False).index:
        sizes = [f"{size.loc[name, 'rows']:,.0f}", f"{size.loc[name, 'classes']:.0f}"]
        rows.append([str(name), *sizes, *cells(mean.loc[name], ("neighbors", *RIVALS)), f"{ratio[name]:.2f}"])
    return grid(["set", "rows", "classes", "vicinal", *RIVALS, "ratio to the best"], rows)


def several() -> str:
    """Several classes a row."""
    runs = results("several-classes")
    measures = ("micro_f1", "macro_f1", "average_precision", "log_loss")
    mean = runs.groupby(["dataset", "method"])[list(measures)].mean()
    shown = {"nona": "vicinal", "dense": "dense head", "logistic regression": "logistic regression", "k-NN": "k-NN"}
    rows = [
        [f"{data}: {words}", *cells(mean.loc[data, name], measures)]
        for data, (name, words) in product(("movies", "tags"), shown.items())
    ]
    return grid(["", *(name.replace("_", " ").replace(" f1", " F1") for name in measures)], rows)


# Texts, photos, sounds.


def frozen() -> pd.DataFrame:
    """Mean errors on frozen vectors, by set and method."""
    found = results("experts").pivot_table(index=["set", "split"], columns="method", values="error")
    experts = [name for name in found if name.startswith("tuned ")]
    return found[["auto", *experts]].dropna().groupby("set").mean()


def vectors() -> str:
    """Errors of the default on frozen vectors, over those of tuned rivals."""
    mean = frozen()
    experts = list(mean.columns[1:])
    ratio = mean[experts].rdiv(mean["auto"], axis=0).assign(best=mean["auto"] / mean[experts].min(axis=1))
    ratio = ratio.sort_values("best")
    rows = [[str(name), *cells(row, ratio, ".2f")] for name, row in ratio.iterrows()]
    rows.append(["**median**", *(f"**{value:.2f}**" for value in ratio.median())])
    return grid(["set", *(name.removeprefix("tuned ") for name in experts), "the best of these"], rows)


def tuned() -> str:
    """Errors with the encoder as published and tuned."""
    runs = results("fine-tuning").pivot_table(index="method", columns="set", values=["test", "seconds"])
    shown = {
        "frozen": "vicinal, encoder as published",
        "kernel ridge on frozen": "kernel ridge on the same vectors",
        "tuned neighbors x8": "vicinal, encoder tuned",
        "kernel ridge on tuned neighbors x8": "kernel ridge on the vectors that it tuned",
        "tuned dense x8": "dense head, encoder tuned",
        "tuned dense x8, then k-NN": "k-NN on the embeddings of that",
    }
    sets = {"tweets": "tweets", "amazon": "product reviews", "stsb": "pairs of sentences", "houses": "houses"}
    sets |= {"blood": "blood cells"}
    rows = [[words, *cells(runs.loc[name, "test"], sets)] for name, words in shown.items()]
    seconds = cells(runs.loc["tuned neighbors x8", "seconds"], sets, ".0f")
    return grid(["", *sets.values()], [*rows, ["CPU seconds of a tuned fit", *seconds]])


def students() -> str:
    """A small student of a model with MiniLM."""
    runs = results("distillation")
    runs = runs[(runs["loss"] == "none") & ((runs["model"] != "student") | (runs["share"] == 0.5))]
    mean = runs.groupby(["model", "set"])["mse"].mean().unstack("set")
    speed = runs.groupby("model")[["ms_a_row", "mib"]].mean()
    shown = {"teacher": "teacher (MiniLM)", "student": "student (`vicinal distill`)"}
    shown |= {"student on labels alone": "the same network on labels alone"}
    rows = []
    for name, words in shown.items():
        costs = [f"{speed.loc[name, 'ms_a_row']:.1f}", f"{speed.loc[name, 'mib']:.0f}"]
        rows.append([words, *cells(mean.loc[name], ("tweets", "amazon", "nyt")), *costs])
    return grid(["", "tweets", "product reviews", "editorials", "ms a row", "MiB"], rows)


# Matching and search.


LINKED = {
    "febrl4": "FEBRL 4, persons",
    "dupehell_persons_light": "dupehell persons, light",
    "dupehell_persons_medium": "dupehell persons, medium",
    "dupehell_persons_hell": "dupehell persons, hell",
    "dupehell_companies_hell": "dupehell companies, hell",
    "abt_buy": "abt-buy, products",
    "amazon_google": "amazon-google, products",
    "walmart_amazon": "walmart-amazon, products",
    "dblp_acm": "dblp-acm, papers",
    "fodors_zagats": "restaurants (held out)",
    "healthcare_hell": "dupehell patients (held out)",
    "publishing_hell": "dupehell books (held out)",
    "banking_hell": "dupehell accounts (held out)",
    "insurance_hell": "dupehell policies (held out)",
}


def links() -> str:
    """F1 without labels, told and true precision, seconds."""
    mean = results("linking").groupby(["set", "method", "what"])["value"].mean()

    def of(name: str, method: str, what: str) -> float:
        return float(mean.get((name, method, what), np.nan))

    ways = [f"splink{columns}{kind}" for columns in ("", " by all columns") for kind in ("", " one-to-one")]
    rows = []
    for name, words in LINKED.items():
        best = max(ways, key=lambda way: (np.nan_to_num(of(name, way, "f1"), nan=-1.0), -of(name, way, "false")))
        told, true = (of(name, "vicinal", f"links at 0.95: {what}") for what in ("told", "true"))
        left, right = (of(name, "set", what) for what in ("left", "right"))
        size = f"{left:,.0f}" + ("" if np.isnan(right) else f" x {right:,.0f}")
        figures = map(number, (of(name, best, "f1"), of(name, "vicinal", "f1"), told, true))
        seconds = [number(of(name, way, "cpu seconds"), ".0f") for way in ("splink", "vicinal")]
        rows.append([words, size, *figures, *seconds])
    head = ["", "rows", "splink, F1", "vicinal, F1", "stated precision from .95 on", "true precision"]
    return grid([*head, "splink, s", "vicinal, s"], rows)


SHOPS = {name: name.replace("_", "-") for name in ("abt_buy", "amazon_google", "walmart_amazon", "dblp_acm")}
DITTO = ("89.3", "75.6", "86.8", "99.0")


def pairs() -> str:
    """F1 on the test pairs with all labels."""
    again = results("linking").query("method == 'all labels'").assign(method="matcher")  # the same fits, by linking.py
    runs = (
        pd.concat([again, results("matching_rows")])
        .astype({"seed": str})
        .drop_duplicates(["set", "method", "seed", "what"])
    )
    mean = runs[runs["what"] == "f1"].groupby(["method", "set"])["value"].mean()
    shown = {"matcher": "vicinal", "matcher, tune='all'": "vicinal, `--tune all`"}
    rivals = ("string similarities, boosting", "tf-idf, logistic regression", "recordlinkage, logistic regression")
    shown |= dict(zip(rivals, rivals, strict=True))
    rows = [[words, *cells(100 * mean[name], SHOPS, ".1f")] for name, words in shown.items()]
    return grid(["", *SHOPS.values()], [*rows, ["Ditto (published)", *DITTO]])


def million() -> str:
    """Two large tables without labels, and papers with labels."""
    runs = results("linking-scale")
    shown = {"pairs": "candidate pairs", "recall": "recall of candidates"}
    shown |= {"link: wall, s": "seconds", "link: processor, s": "CPU seconds", "link: peak, GiB": "GiB"}
    shown |= {"link: precision": "precision", "link: recall": "recall"}
    forms = {"pairs": ",.0f", "link: wall, s": ".0f", "link: processor, s": ".0f", "link: peak, GiB": ".1f"}
    rows = [
        [one["what"], f"{one['rows']:,}", *(number(one[name], forms.get(name, ".3f")) for name in shown)]
        for one in runs.to_dict("records")
    ]
    return grid(["", "rows of each table, or of the right one", *shown.values()], rows)


def alike() -> str:
    """MAP@R on classes never seen."""
    runs = results("learning")
    shown = {
        "frozen vectors": "vectors of the encoder",
        "PCA-whitened vectors": "the same, whitened",
        "EmbeddingLearner supcon(temperature=0.1)": "vicinal",
        "pytorch-metric-learning, tuned loop": "pytorch-metric-learning, tuned loop",
    }
    sets = {"speakers": "spoken digits", "sign": "hand signs", "authors": "books by author", "shops": "products"}
    sets |= {"omniglot": "characters"}
    mean = runs.groupby(["method", "set"])["map_at_r"].mean().unstack("set")[list(sets)]
    mean["mean"] = mean.mean(axis=1)
    return grid(
        ["MAP@R", *sets.values(), "mean"], [[words, *cells(mean.loc[name], mean)] for name, words in shown.items()]
    )


def questions() -> str:
    """nDCG@10 of questions and the abstracts that answer them."""
    asked = results("matching-retrieval").set_index(["set", "method"])
    rows = []
    for method in asked.loc["cranfield"].index:
        both = (asked.loc[(name, method)] for name in ("cranfield", "cisi"))
        rows.append([str(method), *(f"{one['ndcg@10']:.3f} ({one['low']:.3f} to {one['high']:.3f})" for one in both)])
    return grid(["nDCG@10", "Cranfield, 225 questions", "CISI, 76 questions"], rows)


def characters() -> str:
    """The same loss by two libraries."""
    runs = results("metric-learning-omniglot")
    both = runs.groupby(["loss", "library"])["map@r"].agg(["mean", "std"])
    names = [name for name in dict.fromkeys(runs["loss"]) if (name, "vicinal") in both.index]
    each = both["mean"].map("{:.3f}".format) + " ± " + both["std"].map("{:.3f}".format)
    libraries = ("vicinal", "pytorch-metric-learning")
    return grid(["MAP@R", *libraries], [[name, *(each[name, of] for of in libraries)] for name in names])


def unknown() -> str:
    """Classes without rows: terms of losses, groups, descriptions."""
    found = results("unknown-classes").groupby(["part", "set", "method"], sort=False)["figure"].agg(["mean", "std"])
    names = {"terms": "MAP@R", "groups": "groups, accuracy", "described": "from its name, share right"}
    rows = [
        [f"{names[part]}: {of}", f"`{way}`" if part == "terms" else way, f"{one['mean']:.3f} ± {one['std']:.3f}"]
        for (part, of, way), one in found.iterrows()
    ]
    return grid(["", "method", "three draws"], rows)


def clicks() -> str:
    """Recommendation from clicks."""
    runs = results("factorization")
    mean = runs.groupby(["data", "method"])[["recall", "ndcg", "seconds"]].mean()
    shown = {name: name for name in ("popularity", "item k-NN")}
    shown |= {f"als, rank {rank}": f"vicinal `als`, rank {rank}" for rank in (64, 128)}
    shown |= {f"implicit {name}, rank 64": f"implicit {name.upper()}, rank 64" for name in ("als", "bpr")}
    rows = []
    for data, (name, words) in product(("CiteULike-t", "MovieLens-100k"), shown.items()):
        one = mean.loc[data, name]
        rows.append([f"{data}: {words}", *cells(one, ("recall", "ndcg")), f"{one['seconds']:.1f}"])
    return grid(["", "recall@20", "nDCG@20", "CPU seconds"], rows)


def recommended() -> str:
    """The command `recommend`: known items, new items, new users."""
    runs = results("recommending")
    mean = runs.groupby(["data", "what", "method"], sort=False)["recall"].agg(["mean", "std"])
    words = {"known": "known items", "new": "new items", "users": "new users"}
    rows = [
        [f"{data}: {words[what]}", method, f"{number(one)} ± {number(std)}" if std == std else number(one)]
        for (data, what, method), (one, std) in mean.iterrows()
    ]
    return grid(["", "method", "recall@20"], rows)


# Intervals, losses, papers.


def intervals_large() -> str:
    """Where many new rows tell the quarters' coverage."""
    return intervals("intervals-large")


def intervals_later() -> str:
    """Coverage of the latest rows, and the interval score over that of EnbPI."""
    runs = results("intervals-later").set_index(["set", "method"])
    methods = ("vicinal", "without times", "EnbPI")
    rows = []
    for name in runs.index.unique("set"):
        covered = [f"{runs.loc[(name, one), 'covered']:.2f}" for one in methods]
        ratios = [runs.loc[(name, one), "score"] / runs.loc[(name, "EnbPI"), "score"] for one in methods[:2]]
        rows.append([name, *covered, *(f"{ratio:.2f}" for ratio in ratios)])
    return grid(["", *(f"{one}, covered" for one in methods), *(f"{one}, score" for one in methods[:2])], rows)


def intervals(name: str = "intervals") -> str:
    """Coverage, width, score and coverage by quarter of intervals of 90 %."""
    runs = results(name)
    mean = runs.groupby(["method", "set"]).mean(numeric_only=True)
    best = mean["score"].unstack("method")
    rows = []
    for method in runs["method"].drop_duplicates().sort_values(key=lambda names: names != "vicinal", kind="stable"):
        some = mean.loc[method]
        quarters = [some[[f"{kind} {place}" for place in range(1, 5)]] for kind in ("prediction", "distance")]
        ratio = (best[method] / best["vicinal"]).median()
        even = [int(((part > 0.86) & (part < 0.94)).all(axis=1).sum()) for part in quarters]
        least = [part.min(axis=1).median() for part in quarters]
        cells = [f"{some['covered'].mean():.3f}", number(some["covered"].min()), f"{ratio:.2f}"]
        cells += [number(least[0], ".2f"), str(even[0]), number(least[1], ".2f"), str(even[1])]
        rows.append([method, *cells, f"{(best.idxmin(axis=1) == method).sum()}"])
    head = ["", "coverage, mean", "lowest set", "interval score over vicinal's, median"]
    head += ["worst quarter of the prediction, median", "sets with all four within 86 to 94 %"]
    head += ["worst quarter of the distance, median", "sets with all four within", "best score on"]
    return grid(head, rows)


def promised() -> str:
    """Shares of splits whose promised error rate holds, and of rows answered."""
    runs = results("promises")
    runs["holds"] = ~(runs["wrong"] > runs["promised"])  # a refusal answers nothing, and breaks nothing
    head = ["", "metric", "promised", "share wrong of all"]
    ways = list(runs["way"].unique())
    rows = []
    for (name, model, most), some in runs.groupby(["set", "model", "promised"], sort=False):
        each = some.groupby("way")
        cells = [f"{each['holds'].mean()[way]:.0%} / {each['answered'].mean()[way]:.0%}" for way in ways]
        rows.append([name, model, f"{most:g}", f"{some['wrong of all'].mean():.3f}", *cells])
    return grid([*head, *ways], rows)


def promised_hits() -> str:
    """Splits whose promised precision of hits is given and kept, hits shown and how many of these are right."""
    runs, rows = results("promises-search"), []
    for (name, model, most), some in runs.groupby(["set", "model", "promised"]):
        given = some[some["wrong"].notna()]
        right = f"{1 - given['wrong'].mean():.3f}" if len(given) else ""
        cells = [
            f"{(given['wrong'] <= most).sum()} of {len(given)}",
            f"{given['answered'].mean():.0%}" if right else "0%",
        ]
        rows.append([name, model, f"{1 - most:g}", f"{1 - some['wrong of all'].mean():.3f}", *cells, right])
    return grid(["", "model", "promised", "right of all", "kept, of splits given", "shown", "right of these"], rows)


def limits() -> str:
    """Share of splits that keep a limit on the gap between groups, the gap and the share wrong, by way."""
    runs = results("group-limits")
    runs = runs[runs["what"] == "gap"]
    runs["holds"] = ~(runs["value"] > runs["limit"])
    rows = []
    for way in runs["way"].unique():
        cells = []
        for name in runs["set"].unique():
            some = runs[(runs["way"] == way) & (runs["set"] == name)]
            figures = f"{some['value'].mean():.3f}, {some['error'].mean():.3f}"
            cells.append(f"{some['holds'].mean():.0%}: {figures if some['value'].notna().any() else 'refused'}")
        rows.append([way, *cells])
    named = runs.drop_duplicates("set")
    return grid(["", *(f"{name}, {limit:g}" for name, limit in zip(named["set"], named["limit"], strict=True))], rows)


def later() -> str:
    """Coverage of intervals in time, adapted to labelled rows."""
    runs = results("adapt")
    runs = runs[runs["what"].isin(["covered", "off by batch"])]
    runs = runs[runs["metric"].isin(["as fitted", "adapt with labels", "scale-free", "strongly adaptive"])]
    mean = runs.assign(value=runs["value"].astype(float)).groupby(["task", "what", "metric"])["value"].mean()
    ways = runs["metric"].unique()
    rows = [
        [name, *(f"{mean[name, 'covered', way]:.3f} ({mean[name, 'off by batch', way]:.3f})" for way in ways)]
        for name in runs["task"].unique()
    ]
    return grid(["", *ways], rows)


DECIDED = ("order, 3:1", "order, 9:1", "threshold, 4:1", "threshold, distance")


def decisions() -> str:
    """Money lost on decisions, in per cent of that of shifted squares."""
    runs = results("decisions")

    mean = runs.groupby(["model", "loss", "set"]).mean(numeric_only=True)
    rows = []
    for words, loss, kind in (
        ("squares, as predicted", "squares", "plain"),
        ("pinball and a shift", "pinball", "shifted"),
        ("matching loss `Exp` and a shift", "matching exp", "shifted"),
        ("matching loss of an interval and a shift", "matching interval", "shifted"),
        ("matching loss `Sinh` and a shift", "matching sinh", "shifted"),
    ):
        changes = []
        for model, case in product(("linear", "network"), DECIDED):
            apart = np.log(mean.loc[model, loss][f"{case}, {kind}"] / mean.loc[model, "squares"][f"{case}, shifted"])
            changes.append(signed(100 * np.expm1(apart.mean())))
        rows.append([words, *changes])
    return grid(["", *(f"{model}: {case}" for model, case in product(("linear", "network"), DECIDED))], rows)


def readouts() -> str:
    """The loss of test rows under a link, against the mean of a network trained by squares."""
    names = {"diabetes": "diabetes", "noise grows with x0": "made up, noise grows"}
    names |= {"skewed noise grows with x1": "made up, skewed noise", "counts": "counts", "houses": "house prices"}
    mean = results("readout").groupby(["data", "link", "method"])["loss"].mean().unstack("method")
    rows = []
    for (name, words), link in product(names.items(), ("exp(1.5)", "anti_exp(1.5)", "sinh")):
        one = mean.loc[name, link]
        rows.append([words, f"`{link}`", *(f"{signed(100 * (one[way] / one['squares'] - 1))} %" for way in READ)])
    return grid(["data", "link", *READ.values()], rows)


READ = {
    "squares + constant": "mean and a constant",
    "squares, link mean": "`predict(link=)`",
    "loss, mean": "trained by the loss, mean",
}


def robust() -> str:
    """Errors where labels are wrong, far off, or of rare classes; means of five seeds."""
    runs = results("losses")
    rows = []
    for case in dict.fromkeys(runs["case"]):
        some = runs[runs["case"] == case]
        some = some[some["measure"] == some["measure"].iloc[0]]
        errors = some.pivot_table(index="seed", columns="method", values="value")
        for method in dict.fromkeys(some["method"]):
            gap = errors["plain"] - errors[method]
            p = "" if method == "plain" else f"{max(ttest_1samp(gap, 0).pvalue, 0.001):.3f}"
            name = method if " " in method or method in ("plain", "Huber") else f"`{method}`"
            rows.append([case, name, number(errors[method].mean()), number(gap.mean(), "+.3f") if p else "", p])
    return grid(["case", "loss", "error", "lower than plain by", "p"], rows)


def rows_by() -> str:
    """Points by which rows that are chosen have more errors than all of them, with two standard errors."""
    runs = results("rows-by")
    names = {"pruning": "unbiased pruning", "window": "a window", "random": "a random 30 %"}
    rows = []
    for (name, rate), some in runs.groupby(["set", "rate"], sort=False):
        errors = 100 * some.pivot(index="seed", columns="way", values="error")
        gaps = [errors[way] - errors["all"] for way in names]
        cells = [f"{gap.mean():+.2f} ± {2 * gap.sem():.2f}" for gap in gaps]
        rows.append([str(name), f"{rate:g}", f"{errors['all'].mean():.2f} %", *cells])
    return grid(["set", "learning rate", "errors, all rows", *names.values()], rows)


def recipe() -> str:
    """The NONA paper's recipe on other sets."""
    runs = results("nona-paper")
    both = 1000 * runs.groupby(["set", "method"], sort=False)["mse"].agg(["mean", "std"])
    rows, changes = [], []
    for name in dict.fromkeys(runs["set"]):
        mean = both.loc[name, "mean"]
        if set(HEADS) <= set(mean.index):
            changes.append(100 * (mean["nona"] / mean["dense"] - 1))
            cells = [f"{mean[way]:.1f} ± {both.loc[(name, way), 'std']:.1f}" for way in HEADS]
            rows.append([name, *cells, f"{changes[-1]:+.0f} %"])
    return grid(
        ["set", *HEADS.values(), "NONA against dense"],
        [*rows, ["**median**", *[""] * 4, f"{np.median(changes):+.1f} %"]],
    )


def grids() -> str:
    """Appendix B of the NONA paper: change of the error against its base, by similarity and by batch."""
    runs = results("nona-ablations")
    mean = runs.groupby(["set", "recipe", "method"])["mse"].mean()
    sets = ("houses", "tweets")
    base = {name: mean[name, "similarity by mask", "l2 | S2"] for name in sets}
    dense = {name: mean[name, "dense, batch by width", "32 | 25"] for name in sets}
    shown = [
        (f"NONA, `{similarity}`, mask {mask}", "similarity by mask", f"{similarity} | {mask}", base)
        for similarity, mask in product(("l2", "l1", "squared_l2", "cosine", "scaled_dot"), ("S2", "S1", "none"))
    ]
    shown += [
        (f"{words}, batches of {batch}", f"{head}, batch by width", f"{batch} | 25", unit)
        for (head, words, unit), batch in product((("nona", "NONA", base), ("dense", "dense", dense)), (64, 128, 256))
    ]
    rows = [
        [words, *(f"{signed(100 * (mean[name, recipe, change] / unit[name] - 1))} %" for name in sets)]
        for words, recipe, change, unit in shown
    ]
    return grid(["", *sets], rows)


HEADS = {"dense": "dense", "dense+knn": "dense + k-NN", "nona": "NONA", "nona+knn": "NONA + k-NN"}

MADE = (
    *(
        tables,
        plain,
        experts,
        mixed,
        networks,
        added,
        suspects,
        classes,
        several,
        vectors,
        tuned,
        students,
        links,
        pairs,
        million,
    ),
    *(alike, questions, characters, unknown, clicks, recommended, intervals, intervals_large, intervals_later),
    *(promised, promised_hits, limits, later, decisions, readouts, robust, rows_by, recipe, grids),
)
TABLES: dict[str, Callable[[], str]] = {made.__name__: made for made in MADE}


# Sentences.


def of_boosting() -> Iterable[Sentence]:
    """The default against LightGBM and CatBoost as they come."""
    mean = boosting()
    changes = change(mean["default"], mean[["lightgbm", "catboost"]].min(axis=1))
    plain, large = changes["plain"], changes["large"]["20000"]
    shown = {"sets": COUNTS[len(plain)], "most": f"{plain.max():.0f}", "median": f"{-plain.median():.0f}"}
    shown |= {"large": f"{-large.median():.0f}"}
    words = (
        "On {sets} plain tables the squared error is {median} % below the better of LightGBM and CatBoost on the median"
    )
    yield Sentence("README.md", words, shown)
    yield Sentence("README.md", "at worst {most} % above; of 20,000 rows {large} % below", shown)


def of_vectors() -> Iterable[Sentence]:
    """The default on frozen vectors."""
    mean = frozen()
    changes = change(mean["auto"], mean[mean.columns[1:]].min(axis=1))
    shown = {"wins": COUNTS[(changes < 0).sum()], "sets": COUNTS[len(changes)], "median": f"{-changes.median():.1f}"}
    shown |= {"blood": f"{changes['blood']:.0f}"}
    yield Sentence("README.md", "lowest on {wins} of {sets} sets of frozen vectors, at worst {blood} % above", shown)


def of_classes() -> Iterable[Sentence]:
    """The default classifier on a small set, and on all."""
    ratio = log_losses()[1]
    near = ratio[(ratio >= 1) & (ratio < 1.05)]
    shown = {"iris": f"{100 * ratio['iris'] - 100:.0f}"}
    shown |= {"wins": COUNTS[(ratio < 1).sum()], "sets": str(len(ratio))}
    shown |= {"within": f"{100 * near.max() - 100:.1f}", "more": COUNTS[len(near)]}
    words = "log loss is {iris} % higher on iris, and the lowest on {wins} of {sets} sets"
    yield Sentence("README.md", words, shown)
    words = "On {sets} sets its log loss is the lowest on {wins} and within {within} % of the best on {more} more."
    yield Sentence("docs/results/classify.md", words, shown)


def of_suspects() -> Iterable[Sentence]:
    """Wrong labels that are found, and errors after they are corrected."""
    runs, page = results("suspects"), "docs/results/predict.md"
    runs["ratio"], runs["again"] = runs["mended"] / runs["clean"], runs["refitted"] / runs["clean"]
    part = runs.drop(columns="part").groupby(["set", "method"]).mean(numeric_only=True)
    tables, vectors = (runs.loc[runs["part"] == name, "set"].unique() for name in ("tables", "vectors"))
    ours = part.xs("explore", level="method")
    bound = 100 * part.xs("true labels", level="method").loc[vectors, "found"]
    near, sure = (ours.loc[tables, "ratio"] <= 1.01).sum(), (ours.loc[tables, "found"] >= 0.8).sum()
    shown = {"tables": str(len(tables)), "sure": str(sure), "near": str(near)}
    yield Sentence(page, "80 % of the wrong labels are found on {sure} of {tables} tables", shown)
    ends = {"least": f"{bound.min():.0f}", "most": f"{bound.max():.0f}"}
    yield Sentence(page, "finds {least} to {most} % on texts and photos", ends)
    yield Sentence(page, "is within 1 % of a fit on the true labels on {near} of {tables} tables", shown)
    credit = {"ratio": f"{ours['ratio']['credit']:.0f}", "again": f"{ours['again']['credit']:.2f}"}
    yield Sentence(page, "{ratio} times as large on credit, whose", credit)
    yield Sentence(page, "After a new fit it is {again} times", credit)
    clean = {name: f"{ours['worth_clean'][name]:.0f}" for name in ("hitters", "amazon", "stsb")}
    words = "Without any wrong label, hitters lists {hitters}, amazon {amazon} and stsb {stsb}."
    yield Sentence(page, words, clean)


def of_explore() -> Iterable[Sentence]:
    """The page of a large bank."""
    seen, page = json.loads((RESULTS / "explore.json").read_text(encoding="utf-8")), "docs/explore.md"
    names = ("usable", "usable_cpu", "filter", "filter_cpu", "new_prediction")
    shown = {name: f"{seen[f'{name}_s']:#.2g}" for name in names} | {"tab": f"{seen['tab_mb']:.0f}"}
    shown |= {"rows": f"{seen['rows']:,}", "load": f"{seen['load']:.0f}", "most": f"{seen['hover_most_ms']:.0f}"}
    for words in (
        "With {rows} rows, opening the page takes {usable_cpu} s of CPU time (browser and server together)",
        "a filter {filter_cpu} s. On two cores (load {load}) the page was usable after {usable} s",
        "a filter was done after {filter} s, a row under the pointer was named within {most} ms",
        "a corrected label's new prediction shown after {new_prediction} s; medians",
        "The browser took {tab} MB",
    ):
        yield Sentence(page, words, shown)


def of_serving() -> Iterable[Sentence]:
    """Loads on a server."""
    runs, page = json.loads((RESULTS / "serving.json").read_text(encoding="utf-8")), "docs/serving.md"
    for name, words in (
        ("numbers", "numbers, 100,000 rows, 50 requests"),
        ("texts", "text (MiniLM), 2,000 rows, 20 requests"),
    ):
        shown = {share: f"{runs[name][f'{share}_ms']:.1f}" for share in ("p50", "p99")}
        yield Sentence(page, f"| {words} per second | {{p50}} ms | {{p99}} ms |", shown)
    shown = {key: str(runs["killed"][key]) for key in ("acknowledged", "lost")}
    yield Sentence(page, "after {acknowledged} were acknowledged: {lost} were lost", shown)


def of_discovery() -> Iterable[Sentence]:
    """Rows of classes that a model does not know."""
    mean = 100 * results("discovery").groupby("metric").mean(numeric_only=True)
    shown = {
        f"{name}_{metric}": f"{mean.at[metric, column]:.{digits}f}"
        for metric in ("auto", "network")
        for name, column, digits in (
            ("noticed", "new noticed", 0),
            ("wrong", "known said to be new", 1),
            ("right", "accuracy", 0),
            ("told", "k-means, model", 0),
        )
    }
    for words in (
        "{noticed_network} % of the new rows are noticed while {wrong_network} % of the known ones are called new",
        "{right_network} % of the noticed rows land in the right group, k-means told the number gets {told_network} %",
        "as `fit` chooses, {noticed_auto} % are noticed ({wrong_auto} %), {right_auto} % in the right group "
        "(k-means {told_auto} %)",
    ):
        yield Sentence("docs/results/search.md", words, shown)


def of_rows() -> Iterable[Sentence]:
    """What the default model of a plain table takes, by rows of its bank."""
    every = results("default-rows")
    runs = every[every["rows"] < 10_000_000].pivot_table(index="step", columns="rows", values="cpu_s")
    lines = {"`predict`": "predict 256", "`explain(k=5)`": "explain 256", "`predict_interval`": "interval 256"}
    lines |= {"`predict` of one row": "predict 1", "`add` of 1,000 rows": "add 1,000, again"}
    lines |= {"FAISS flat, 32 nearest": "FAISS flat, top 32"}
    lines |= {"scikit-learn brute force, 32 nearest": "scikit-learn brute, top 32"}
    for words, step in lines.items():
        figures = {f"n{place}": f"{seconds:#.2g}".rstrip(".") for place, seconds in enumerate(runs.loc[step])}
        yield Sentence("docs/scaling.md", f"| {words} | {' | '.join(f'{{{name}}}' for name in figures)} |", figures)


SOURCES = (of_boosting, of_vectors, of_classes, of_suspects, of_explore, of_serving, of_discovery, of_rows)


def sentences() -> list[Sentence]:
    """All of them."""
    return [sentence for source in SOURCES for sentence in source()]


def with_tables(text: str) -> str:
    """``text`` with each table between its marks made anew."""
    return MARKED.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n\n{found[3]}", text)


def pages() -> dict[Path, str]:
    """Each page that has such tables or sentences, with its figures as they should be."""
    made: dict[Path, str] = {}
    for path in sorted((ROOT / "docs").rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if MARKED.search(text):
            made[path] = with_tables(text)
    for sentence in sentences():
        path = ROOT / sentence.page
        made[path] = sentence.renewed(made.get(path) or path.read_text(encoding="utf-8"))
    return made
