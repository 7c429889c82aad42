"""What only neighbors can do, on texts of two kinds: take in rows, forget rows, mend labels, know what is unlike.

A model is fitted on 2,400 rows of one domain. Then labelled rows of another domain come (part "add"), a tenth of its
rows has to go ("forget"), some of its labels turn out to be wrong ("labels"), and rows of the other domain are to be
told from rows of its own ("unlike"). Rivals are refitted on the same frozen vectors. What is chosen is chosen by the
rows that came, each left out; test rows only measure. Runs whose lines are there are passed over; the rows drawn are
named by their checksum, and others under the same seed are refused. Vectors of texts are computed once, and cached.

    python benchmarks/extending.py --data ../shared/data --out benchmarks/results/extending.csv
    python benchmarks/extending.py --out benchmarks/results/extending.csv --page docs/results/extending.md  # tables
"""

import argparse
import copy
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.covariance import LedoitWolf
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KernelDensity, NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from vicinal import NeighborRegressor
from vicinal.encoders import EmbeddingCache, build_table_encoder
from vicinal.estimators.inputs import EmbeddedRows
from vicinal.estimators.readout import choose_kriging
from vicinal.evaluation import left_out_predictions, tuned_baselines
from vicinal.heads import Kriging
from vicinal.workflows import Explorer

OLD, ADDED, TEST = 2400, (100, 400, 1600), 1400
MENDED = 1200  # of the old rows, some of which get wrong labels
WEIGHTS, WEIGHTED = (1, 3, 10, 30), 400
SHARES, LOOKED, ROUNDS = (0.05, 0.1, 0.2), 80, 4


def ratings(old: str, new: str) -> Callable[[Path], tuple[pd.DataFrame, pd.DataFrame]]:
    def read(data: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
        table = pd.read_parquet(data / "text" / "vader_sentiment.parquet").drop_duplicates("text")
        table = table.rename(columns={"rating": "label"})[["domain", "text", "label", "group"]]
        return tuple(table[table["domain"] == name].drop(columns="domain") for name in (old, new))

    return read


def words(data: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """How hard a word is in its sentence: of the bible and of parliament, then of medicine."""
    table = pd.read_parquet(data / "text" / "complex_lexical.parquet").dropna(subset=["token"])
    table = table.drop_duplicates(["token", "sentence"]).rename(columns={"complexity": "label"})
    table = table.assign(group=table["token"].str.lower(), label=10 * table["label"])
    medicine = table["corpus"] == "biomed"
    columns = ["token", "sentence", "label", "group"]
    return table.loc[~medicine, columns], table.loc[medicine, columns]


PAIRS = {
    "tweets to reviews of goods": ratings("tweets", "amazon"),
    "films to editorials": ratings("movie", "nyt"),
    "common to medical words": words,
}


@dataclass
class Rows:
    """A table of texts, its labels, and the frozen vectors ``[n, d]`` that rivals are given."""

    frame: pd.DataFrame
    labels: np.ndarray
    vectors: np.ndarray

    def take(self, at: np.ndarray) -> "Rows":
        return Rows(self.frame.iloc[at].reset_index(drop=True), self.labels[at], self.vectors[at])

    def __add__(self, other: "Rows") -> "Rows":
        both = pd.concat([self.frame, other.frame], ignore_index=True)
        return Rows(both, np.r_[self.labels, other.labels], np.vstack([self.vectors, other.vectors]))


class Draw:
    """Rows of the old domain, more of it for tests, rows of the new domain that come, and its test rows."""

    def __init__(self, name: str, seed: int, data: Path, cache: Path) -> None:
        old, new = PAIRS[name](data)
        rng = np.random.default_rng(seed)
        names = rng.permutation(np.unique(new["group"]))
        places = rng.permutation(len(new))
        places = places[np.argsort(pd.Index(names).get_indexer(new["group"].iloc[places]), kind="stable")]
        come = rng.permutation(places[: max(ADDED)])
        rest = places[max(ADDED) :]
        rest = rest[~new["group"].iloc[rest].isin(set(new["group"].iloc[come])).to_numpy()][:TEST]
        first = rng.permutation(len(old))[: OLD + TEST // 2]
        more = first[OLD:]
        more = more[~old["group"].iloc[more].isin(set(old["group"].iloc[first[:OLD]])).to_numpy()]
        self.checksum = zlib.crc32(np.concatenate([first, come, rest]).astype(np.int64).tobytes())
        self.cache = cache
        parts = old.iloc[first[:OLD]], old.iloc[more], new.iloc[come], new.iloc[rest]
        self.old, self.like, self.new, self.test = (self._rows(part) for part in parts)

    def _rows(self, table: pd.DataFrame) -> Rows:
        frame = table.drop(columns=["label", "group"]).reset_index(drop=True)
        kinds, store = dict.fromkeys(frame.columns, "text"), EmbeddingCache(self.cache)
        encoder = build_table_encoder(kinds, encoders={"text": "minilm"}, tune="none", cache=store).fit(frame)
        vectors = encoder.features(frame, encoder.cache(encoder.prepare(frame), store=store))
        return Rows(frame, table["label"].to_numpy(dtype=float), np.asarray(vectors, dtype=np.float64))

    def model(self, rows: Rows, labels: np.ndarray | None = None, **settings: object) -> NeighborRegressor:
        """The default model of rows of texts, by the encoder that the rivals' vectors come from."""
        model = NeighborRegressor(encoders={"text": "minilm"}, cache_dir=self.cache, **settings)
        model.set_params(columns=dict.fromkeys(rows.frame.columns, "text"))
        return model.fit(rows.frame, rows.labels if labels is None else labels)


def error(predicted: np.ndarray, rows: Rows) -> float:
    return float(np.mean((predicted - rows.labels) ** 2))


def by_rival(method: str, known: Rows, asked: Rows) -> np.ndarray:
    """Predictions of one of the tuned baselines of ``vicinal compare``."""
    return tuned_baselines(known.vectors, known.labels, asked.vectors, methods=[method])[0].prediction


# Adding rows.


def left_out(model: NeighborRegressor, new: Rows) -> np.ndarray:
    """What the model says of the rows that were added last, each without itself."""
    return model.predict(new.frame, ids=model.bank_.ids[-len(new.labels) :])


def weighted(base: NeighborRegressor, new: Rows) -> NeighborRegressor:
    """With the weight of the added rows that predicts them best."""
    rows = EmbeddedRows(*base.embedded_rows(new.frame))

    def missed(model: NeighborRegressor) -> float:
        return error(model.predict(rows, ids=model.bank_.ids[-len(new.labels) :]), new)

    ways = ({"sample_weight": [weight] * len(new.labels)} for weight in WEIGHTS)
    return min((copy.deepcopy(base).add(rows, new.labels, **way) for way in ways), key=missed)


def rescaled(base: NeighborRegressor, new: Rows) -> NeighborRegressor:
    """Read out by kriging whose scale and noise predict the added rows best."""
    model = copy.deepcopy(base).add(new.frame, new.labels)
    return by_kriging(model, model.bank_.ids[-len(new.labels) :])


def by_kriging(model: NeighborRegressor, ids: np.ndarray) -> NeighborRegressor:
    """The model with a kriging readout whose scale and noise predict some rows of its bank best, each left out."""
    model, bank = copy.deepcopy(model), model.bank_
    at, who = bank.store.positions(ids), bank.identity(ids=ids, groups=None)
    rows = bank.vectors[at], bank.labels[at], bank.vectors, bank.labels
    model.network_.head = choose_kriging(Kriging(30), *rows, who, mass=torch.ones(len(rows[0]))).head
    return model


def shifted(model: NeighborRegressor, new: Rows, test: Rows) -> np.ndarray:
    """Predictions, and on top the mean residual of the added rows."""
    return model.predict(test.frame) + np.mean(new.labels - left_out(model, new))


def residuals(model: NeighborRegressor, new: Rows, test: Rows) -> np.ndarray:
    """Predictions, and on top what a kernel ridge on the frozen vectors has learned of the added rows' residuals."""
    missed = Rows(new.frame, new.labels - left_out(model, new), new.vectors)
    return model.predict(test.frame) + by_rival("kernel ridge", missed, test)


def on_our_vectors(model: NeighborRegressor, known: Rows, test: Rows) -> np.ndarray:
    """Kernel ridge on the embeddings of the model."""
    learned = Rows(known.frame, known.labels, model.embed(known.frame))
    return by_rival("kernel ridge", learned, Rows(test.frame, test.labels, model.embed(test.frame)))


def added(draw: Draw, base: NeighborRegressor, seconds: float) -> Iterator[dict]:
    """One line a method and number of rows that came; seconds are those until the test rows are predicted."""
    test = draw.test
    yield {"method": "add", "rows": 0, "seconds": seconds, "error": error(base.predict(test.frame), test)}
    for method in ("ridge", "kernel ridge"):
        yield timed(method, 0, test, lambda method=method: by_rival(method, draw.old, test))
    for rows in ADDED:
        yield from ways(draw, base, draw.new.take(np.arange(rows)))


def ways(draw: Draw, base: NeighborRegressor, new: Rows) -> Iterator[dict]:
    """Each way to take in ``new``."""
    test, both, rows = draw.test, draw.old + new, len(new.labels)
    models: dict[str, NeighborRegressor] = {}

    def told(name: str, make: Callable[[], NeighborRegressor]) -> np.ndarray:
        models[name] = make()
        return models[name].predict(test.frame)

    def added_to() -> NeighborRegressor:
        return copy.deepcopy(base).add(new.frame, new.labels)

    def trained(epochs: int) -> NeighborRegressor:
        return copy.deepcopy(base).partial_fit(new.frame, new.labels, epochs=epochs)

    say: dict[str, Callable[[], np.ndarray]] = {
        "add": lambda: told("plain", added_to),
        "add, weight": lambda: weighted(base, new).predict(test.frame),
        "add, scale and noise": lambda: rescaled(base, new).predict(test.frame),
        "add, offset": lambda: shifted(models["plain"], new, test),
        "add, residuals": lambda: residuals(models["plain"], new, test),
        "1 epoch": lambda: told("one", lambda: trained(1)),
        "3 epochs": lambda: told("three", lambda: trained(3)),
        "3 epochs, residuals": lambda: residuals(models["three"], new, test),
        "kernel ridge on our vectors": lambda: on_our_vectors(models["plain"], both, test),
        "ridge": lambda: by_rival("ridge", both, test),
        "kernel ridge": lambda: by_rival("kernel ridge", both, test),
        "kernel ridge, new rows alone": lambda: by_rival("kernel ridge", new, test),
    }
    if rows != WEIGHTED:
        del say["add, weight"]  # attention that weighs its rows takes long
    if rows == max(ADDED):
        say["fit anew"] = lambda: draw.model(both).predict(test.frame)
    for method, each in say.items():
        yield timed(method, rows, test, each)


def weighed(draw: Draw, base: NeighborRegressor, seconds: float) -> Iterator[dict]:
    """The weight that the library chooses (1 unless another is better by more than its doubt), and epochs with it."""
    del seconds
    test, new = draw.test, draw.new.take(np.arange(WEIGHTED))
    auto = {"sample_weight": "auto"}
    say: dict[str, Callable[[], np.ndarray]] = {
        "add, weight auto": lambda: copy.deepcopy(base).add(new.frame, new.labels, **auto).predict(test.frame),
        "3 epochs, weight auto": lambda: (
            copy.deepcopy(base).partial_fit(new.frame, new.labels, epochs=3, **auto).predict(test.frame)
        ),
    }
    for method, each in say.items():
        yield timed(method, WEIGHTED, test, each)


def timed(method: str, rows: int, asked: Rows, say: Callable[[], np.ndarray]) -> dict:
    """A line of one method: its error on the rows ``asked``, and seconds of one processor."""
    started = time.process_time()
    said = say()
    took = time.process_time() - started
    print(method, rows, round(took, 1), round(error(said, asked), 4), flush=True)
    return {"method": method, "rows": rows, "seconds": took, "error": error(said, asked)}


# Forgetting.


def forgot(draw: Draw, base: NeighborRegressor, seconds: float) -> Iterator[dict]:
    """A tenth of the rows goes: predictions beside those of a bank that never had them, and beside refits."""
    del seconds
    gone = np.arange(0, OLD, 10)
    rest, like = draw.old.take(np.setdiff1d(np.arange(OLD), gone)), draw.like
    never, model = copy.deepcopy(base), copy.deepcopy(base)
    at = np.flatnonzero(~np.isin(base.bank_.ids, gone))
    never.bank_ = base.bank_.take(at)
    started = time.process_time()
    model.forget(gone)
    took = time.process_time() - started
    said = model.predict(like.frame)
    apart = float(np.abs(said - never.predict(like.frame)).max())
    yield {"method": "forget", "rows": len(gone), "seconds": took, "error": error(said, like), "value": apart}
    yield timed("ridge", len(gone), like, lambda: by_rival("ridge", rest, like))
    yield timed("kernel ridge", len(gone), like, lambda: by_rival("kernel ridge", rest, like))


# Wrong labels.


def suspects(model: NeighborRegressor, looked: set[int]) -> list[int]:
    """The rows whose labels look most wrong, as ``vicinal evaluate`` and ``explore`` list them, but for those seen."""
    with tempfile.TemporaryDirectory() as place:
        model.save(f"{place}/model")
        listed = Explorer(Path(place, "model")).suspects(LOOKED + len(looked))
    return [int(one["id"]) for one in listed if int(one["id"]) not in looked][:LOOKED]


def ridge_suspects(rows: Rows, labels: np.ndarray, looked: set[int]) -> list[int]:
    said = left_out_predictions(rows.vectors, labels)
    order = np.argsort(-np.abs(labels - said), kind="stable").tolist()
    return [place for place in order if place not in looked][:LOOKED]


def mended(draw: Draw, base: NeighborRegressor, seconds: float) -> Iterator[dict]:
    """A person looks at 80 suspects at a time and gives those that are wrong their labels."""
    del base, seconds
    old = draw.old.take(np.arange(MENDED))
    for share in SHARES:
        rng, labels = np.random.default_rng(int(1000 * share)), old.labels.copy()
        chosen = rng.choice(MENDED, round(share * MENDED), replace=False)
        labels[chosen] = old.labels[(chosen + rng.integers(1, MENDED, len(chosen))) % MENDED]
        for method in ("relabel", "ridge"):
            for line in steps(draw, old, method, labels):
                yield line | {"share": share}


def steps(draw: Draw, old: Rows, method: str, labels: np.ndarray) -> Iterator[dict]:
    """One line each time that the person has looked; of ours another one in the end, for a fit on the mended labels."""
    like, looked = draw.like, set[int]()
    now, wrong = labels.copy(), set(np.flatnonzero(labels != old.labels).tolist())
    model = draw.model(old, labels) if method == "relabel" else None
    for step in range(ROUNDS + 1):
        seen = []
        if step:
            seen = ridge_suspects(old, now, looked) if model is None else suspects(model, looked)
        looked |= set(seen)
        now[seen] = old.labels[seen]

        def say(seen: list[int] = seen) -> np.ndarray:
            if model is None:
                return by_rival("ridge", Rows(old.frame, now, old.vectors), like)
            return (model.relabel(seen, old.labels[seen]) if seen else model).predict(like.frame)

        yield timed(method, len(looked), like, say) | {"value": len(looked & wrong) / len(wrong)}
    if model is not None:
        yield timed("relabel, fit anew", len(looked), like, lambda: draw.model(old, now).predict(like.frame))


# Rows unlike all others.


def unlike(draw: Draw, base: NeighborRegressor, seconds: float) -> Iterator[dict]:
    """How well a number tells rows of the other domain from further rows of the first: area under the ROC curve."""
    del seconds
    both, known = draw.like + draw.test, draw.old.vectors
    other = np.r_[np.zeros(len(draw.like.labels)), np.ones(len(draw.test.labels))]
    kriging = base if base.readout_ == "rows" else by_kriging(base, base.calibration_.ids)

    def widths(model: NeighborRegressor) -> np.ndarray:
        ends = model.predict_interval(both.frame)
        return ends[:, 1] - ends[:, 0]

    def logistic() -> np.ndarray:
        shown = np.r_[known[:400], draw.new.vectors[:400]]
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1000))
        return model.fit(shown, np.repeat([0, 1], 400)).decision_function(both.vectors)

    near = NearestNeighbors(n_neighbors=5).fit(known)
    unit = np.median(near.kneighbors(known[:500])[0][:, -1])
    tried: dict[str, Callable[[], np.ndarray]] = {
        "distance of 5 neighbors, learned": lambda: base.kneighbors(both.frame, 5)[0].mean(axis=1),
        "interval width": lambda: widths(base),
        "kriging deviation": lambda: widths(kriging),
        "distance of 5 neighbors, frozen": lambda: near.kneighbors(both.vectors)[0].mean(axis=1),
        "kernel density, frozen": lambda: (
            -KernelDensity(bandwidth=unit / known.shape[1] ** 0.5).fit(known).score_samples(both.vectors)
        ),
        "Mahalanobis, frozen": lambda: LedoitWolf().fit(known).mahalanobis(both.vectors),
        "logistic regression, shown 400 of each": logistic,
    }
    missed = (base.predict(both.frame) - both.labels) ** 2
    for method, score in tried.items():
        started = time.process_time()
        values = score()
        took, like = time.process_time() - started, other == 0
        line = {"method": method, "rows": len(other), "seconds": took, "value": roc_auc_score(other, values)}
        ranks = pd.Series(values[like]).corr(pd.Series(missed[like]), method="spearman")
        yield line | {"error": float(ranks)}  # of how far off the prediction is, among rows of its own kind


PARTS = {"add": added, "weigh": weighed, "forget": forgot, "labels": mended, "unlike": unlike}


# Tables.


def cells(values: pd.DataFrame | pd.Series, digits: int = 3) -> str:
    return " | ".join("-" if np.isnan(value) else f"{value:.{digits}f}" for value in np.ravel(values))


def head(*names: str) -> list[str]:
    return ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]


def table_of_adding(lines: pd.DataFrame) -> str:
    """Mean errors by method, domains and rows that came; seconds with the most rows that it was given."""
    means = lines.pivot_table(index="method", columns=["set", "rows"], values="error", sort=False)
    most = lines.groupby("method")["rows"].transform("max")
    seconds = lines[lines["rows"] == most].groupby("method")["seconds"].mean()
    sets = list(dict.fromkeys(lines["set"]))
    made = head("", *(f"{name}: {rows:,}" if rows == 0 else f"{rows:,}" for name in sets for rows in (0, *ADDED)), "s")
    for method in dict.fromkeys(lines["method"]):
        row = means.loc[method].reindex(pd.MultiIndex.from_product([sets, (0, *ADDED)]))
        made.append(f"| {method} | {cells(row)} | {seconds[method]:.1f} |")
    return "\n".join(made)


def table_of_forgetting(lines: pd.DataFrame) -> str:
    """Mean errors and seconds by method and domains."""
    sets = list(dict.fromkeys(lines["set"]))
    made = head("", *(f"{name}, {what}" for name in sets for what in ("error", "s")))
    for method, part in lines.groupby("method", sort=False):
        row = part.groupby("set")[["error", "seconds"]].mean().loc[sets]
        both = (f"{one.error:.3f} | {one.seconds:.3f}" for one in row.itertuples())
        made.append(f"| {method} | {' | '.join(both)} |")
    return "\n".join(made)


def table_of_labels(lines: pd.DataFrame) -> str:
    """Mean errors by share of wrong labels and rows looked at, over domains, and which share of the wrong was seen."""
    steps = sorted(set(lines["rows"]))
    made = head("wrong", "", *(f"{rows:,} looked at" for rows in steps), *(f"seen of {rows:,}" for rows in steps[1:]))
    unit = lines[lines["rows"] == 0].groupby(["set", "seed", "share", "method"])["error"].first()
    keys = pd.MultiIndex.from_frame(lines[["set", "seed", "share"]].assign(method="relabel"))
    lines = lines.assign(ratio=lines["error"].to_numpy() / unit.reindex(keys).to_numpy())
    for (share, method), part in lines.groupby(["share", "method"], sort=False):
        row = part.groupby("rows")[["ratio", "value"]].mean().reindex(steps)
        made.append(f"| {share:.0%} | {method} | {cells(row['ratio'])} | {cells(row['value'][1:], 2)} |")
    return "\n".join(made)


def table_of_unlike(lines: pd.DataFrame) -> str:
    """Areas under the curve by method and domains, and the rank correlation with errors among rows like the bank's."""
    sets = list(dict.fromkeys(lines["set"]))
    made = head("", *sets, "rank correlation with the error", "s")
    for method, part in lines.groupby("method", sort=False):
        means = part[["error", "seconds"]].mean()
        area = part.groupby("set")["value"].mean()[sets]
        made.append(f"| {method} | {cells(area)} | {means['error']:.2f} | {means['seconds']:.1f} |")
    return "\n".join(made)


TABLES = {
    "add": ("adding", table_of_adding),
    "forget": ("forgetting", table_of_forgetting),
    "labels": ("labels", table_of_labels),
    "unlike": ("unlike", table_of_unlike),
}


def figure(lines: pd.DataFrame, path: Path) -> None:
    """Error by rows that came, for some of the methods."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    sets = list(dict.fromkeys(lines["set"]))
    shown, axes = plt.subplots(1, len(sets), figsize=(4.2 * len(sets), 3.3), layout="constrained")
    colors = {"add": "#1b6ca8", "3 epochs": "#55a868", "kernel ridge": "#c44e52"}
    colors["kernel ridge, new rows alone"] = "#dd8452"
    for name, axis in zip(sets, np.atleast_1d(axes), strict=True):
        for method, color in colors.items():
            part = lines[(lines["set"] == name) & (lines["method"] == method) & (lines["rows"] > 0)]
            both = part.groupby("rows")["error"]
            axis.errorbar(both.mean().index, both.mean(), both.sem(), color=color, marker="o", ms=4, label=method)
        axis.set(title=name, xscale="log", xlabel="labelled rows of the new domain", ylabel="squared error")
        axis.set_xticks(ADDED, [f"{rows:,}" for rows in ADDED])
        axis.minorticks_off()
    np.atleast_1d(axes)[0].legend(frameon=False)
    shown.savefig(path, dpi=130)


def of_all_draws(done: pd.DataFrame) -> pd.DataFrame:
    """The lines of what was run in every draw of a part."""
    draws = done.groupby("part")[["set", "seed"]].apply(lambda part: len(part.drop_duplicates()))
    keys = done.fillna({"share": 0}).groupby(["part", "method", "rows", "share"])["seed"].transform("size")
    return done[keys == done["part"].map(draws)]


def write(done: pd.DataFrame, page: Path) -> None:
    """The tables between their marks in a page, and its figure."""
    text = page.read_text(encoding="utf-8")
    done = of_all_draws(done)
    for part, (mark, table) in TABLES.items():
        lines = done[done["part"].isin([part, "weigh"] if part == "add" else [part])]
        if len(lines) and f"<!-- {mark} -->" in text:
            before, _, rest = text.partition(f"<!-- {mark} -->")
            after = rest.partition(f"<!-- end of {mark} -->")[2]
            text = f"{before}<!-- {mark} -->\n\n{table(lines)}\n\n<!-- end of {mark} -->{after}"
    page.write_text(text, encoding="utf-8")
    figure(done[done["part"].isin(["add"])], page.parent / "images" / "extending.png")


def run(given: argparse.Namespace) -> None:
    """What is missing."""
    done = pd.read_csv(given.out) if given.out.is_file() else pd.DataFrame(columns=["set", "seed", "part", "draw"])
    for seed, name in product(range(given.seeds), given.pairs):
        there = done[(done["set"] == name) & (done["seed"] == seed)]
        wanted = [part for part in given.parts if part not in set(there["part"])]
        if not wanted:
            continue
        draw = Draw(name, seed, given.data, given.cache)
        if len(there) and (there["draw"] != draw.checksum).any():
            raise ValueError(f"{given.out}: expected the draw {draw.checksum} of {name}, seed {seed}, got another")
        started = time.process_time()
        base = draw.model(draw.old) if wanted != ["labels"] else None
        seconds = time.process_time() - started
        for part in wanted:
            known = {"part": part, "set": name, "seed": seed, "draw": draw.checksum}
            known |= {} if base is None else {"readout": base.readout_}
            lines = pd.DataFrame([known | line for line in PARTS[part](draw, base, seconds)])
            done = pd.concat([done, lines], ignore_index=True) if len(done) else lines
            done.assign(share=done.get("share", np.nan)).round(6).to_csv(given.out, index=False)
            print(name, seed, part, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="../shared/data; without it only the tables are written")
    parser.add_argument("--cache", type=Path, default=Path("runs/extending"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pairs", nargs="+", default=[*PAIRS], choices=[*PAIRS])
    parser.add_argument("--parts", nargs="+", default=[*PARTS], choices=[*PARTS])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--page", type=Path, help="a page whose tables and figure are made anew")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.data is not None:
        run(given)
    if given.page is not None:
        write(pd.read_csv(given.out), given.page)


if __name__ == "__main__":
    main()
