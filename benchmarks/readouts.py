"""Readouts and folds of the estimator, with its defaults, on the regression sets: error, intervals and the rows used.

Every method is a ``NeighborRegressor`` fitted on the training and validation rows of a split (those that hold rows out
hold out the validation rows) and asked about the test rows. Rows are appended to the file of results as they come; what
is there is not run again.

    python benchmarks/nona/sets.py --data ../shared/data --cache runs/nona
    python benchmarks/readouts.py --cache runs/nona --out benchmarks/results/readouts.csv

Plain tables, their columns standardized and one-hot, from a folder as ``tables.py`` takes it:

    python benchmarks/readouts.py --tables FOLDER --out benchmarks/results/readouts-tables.csv
"""

import argparse
import copy
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.linalg import solve_triangular
from scipy.optimize import nnls
from scipy.spatial.distance import cdist, pdist
from scipy.stats import wilcoxon
from sklearn.kernel_ridge import KernelRidge
from sklearn.neighbors import NearestNeighbors

sys.path.insert(0, str(Path(__file__).parent / "nona"))
from sets import SETS, RegressionSet, load
from tables import SETS as TABLES
from tables import columns_of, read

from vicinal import NeighborRegressor
from vicinal.calibration import conformal_quantile
from vicinal.core.identity import canonical_ids
from vicinal.estimators.readout import choose_kriging
from vicinal.evaluation import ridge_baseline, tuned_baselines
from vicinal.evaluation.tuned import NUMBERS
from vicinal.heads import Kriging

COVERAGE = 0.9
FOLDS = {"validation_fraction": 0}
METHODS = {  # fitted each for itself; the first also gives the metric of all READOUTS
    "attention": {"metric": "network", "readout": "attention"},
    "auto": {"metric": "network"},
    "attention, folds": {"readout": "attention"} | FOLDS,
    "kriging, folds": {"readout": "kriging"} | FOLDS,
    "auto, folds": {} | FOLDS,
}
READOUTS = {
    f"{name} {k}": (k, convex) for k in (16, 30, 64, 128) for name, convex in (("convex", True), ("signed", False))
}
RIVALS = ("kernel ridge", "NNK 32", "signed 64, untrained")
MUYGPS = ("MuyGPs 64", "MuyGPs 64, untrained")
"""Local kriging by the package of that name (``pip install muygpys``); left out where it is not installed."""
BLEND = "auto, blended"
"""With kernel ridge on the frozen vectors, over all rows."""
ONE = "one attention"
"""In place of each member's weights: those of the mean of the members' scores and masks, so fewer rows at a time."""
EXPERTS = tuple(f"tuned {name}" for name in NUMBERS)
"""On the frozen vectors; each tuned by cross-validation on the training and validation rows together."""


def load_table(name: str, folder: Path) -> RegressionSet:
    """A plain table as one vector a row."""
    table, labels = read(name, folder)
    vectors = columns_of(table).fit_transform(table).astype(np.float32)
    return RegressionSet(name, vectors, labels, np.arange(len(labels)))


class Job:
    """One split: its rows and who they are."""

    def __init__(self, data, split) -> None:
        self.split, self.labels = split, data.labels
        self.known, self.test = np.concatenate([split.train, split.validation]), split.test
        self.frame, self.vectors = pd.DataFrame({"vector": list(data.features)}), data.features
        shared = len(np.unique(data.groups)) < len(data.groups)
        self.groups = data.groups if shared else None
        self.unit = data.labels[self.known].var()

    def of(self, rows: np.ndarray) -> dict:
        """The groups of some rows, if there are any."""
        return {} if self.groups is None else {"groups": self.groups[rows].tolist()}

    def fit(self, settings: dict) -> NeighborRegressor:
        """The estimator, which holds the validation rows out."""
        model = NeighborRegressor(columns={"vector": "vector"}, **settings)
        held = None if model.validation_fraction == 0 else np.arange(len(self.split.train), len(self.known))
        return model.fit(self.frame.iloc[self.known], self.labels[self.known], validation=held, **self.of(self.known))

    def measure(self, model: NeighborRegressor) -> dict[str, float]:
        """What a fitted model does on the test rows."""
        started, rows, who = time.process_time(), self.frame.iloc[self.test], self.of(self.test)
        prediction = model.predict(rows, **who)
        predicted = time.process_time()
        ends, truth = model.predict_interval(rows, COVERAGE, **who), self.labels[self.test]
        groups = canonical_ids("groups", who["groups"]) if who else None
        identity = model.bank_.identity(ids=None, groups=groups)
        weights = model.fitted_.bank_weights(torch.from_numpy(model.embed(rows)), identity)
        row = {
            "kriging": float(isinstance(model.network_.head, Kriging)),
            "error": float(np.mean((prediction - truth) ** 2) / self.unit),
            "covered": float(np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1]))),
            "width": float(np.mean(ends[:, 1] - ends[:, 0]) / np.sqrt(self.unit)),
            "predict_s": predicted - started,
            "epochs": model.history_.best_epoch + 1,
            "test_rows": len(self.test),
        }
        row |= shares(weights)
        if model.folds_ is not None:
            ids, honest = model.out_of_fold_predictions()
            row["out_of_fold"] = float(np.mean((honest - self.labels[self.known][ids]) ** 2) / self.unit)
            row["estimated"] = model.out_of_fold_error() / self.unit
        return row

    def read_out(self, model: NeighborRegressor, k: int, convex: bool) -> NeighborRegressor:
        """The same metric with a kriging readout, its scale and noise chosen as the estimator does."""
        other, rows, bank = copy.copy(model), model.calibration_, model.bank_
        groups = rows.groups if bank.store.group_codes is not None else None
        who = bank.identity(ids=rows.ids, groups=groups)
        other.network_ = copy.copy(model.network_)
        other.network_._modules = dict(model.network_._modules)
        head = choose_kriging(
            Kriging(k, convex=convex), rows.vectors, rows.labels, bank.vectors, bank.labels, who, mass=rows.mass
        ).head
        other.network_.head = head
        return other

    def one_attention(self, model: NeighborRegressor) -> dict[str, float]:
        """Error, rows and shares of the weights that the mean of the members' masked scores gives."""
        started, head = time.process_time(), model.network_.head
        queries = torch.from_numpy(model.embed(self.frame.iloc[self.test]))
        bank, labels = model.bank_.vectors.double(), model.bank_.labels.double()
        both = zip(head.heads, head.columns(queries.double(), "queries"), head.columns(bank, "bank"), strict=True)
        with torch.no_grad():
            masked = []
            for member, part, rows in both:
                scores = member.scores(part, rows)[0]
                masked.append(scores + member.mask(scores, part, None))
            weights = head.heads[0].simplex(torch.stack(masked).mean(dim=0))
        prediction = (weights @ labels).numpy()
        row = {"error": float(np.mean((prediction - self.labels[self.test]) ** 2) / self.unit)}
        return row | shares(weights) | {"predict_s": time.process_time() - started, "test_rows": len(self.test)}

    def blended(self) -> dict[str, float]:
        """The default and kernel ridge on the frozen vectors, weighed by least squares on the rows held out."""
        started, model = time.process_time(), self.fit(METHODS["auto"])
        rows, train, truth = model.calibration_, self.split.train, self.labels[self.test]
        groups = rows.groups if model.bank_.store.group_codes is not None else None
        said = model.fitted_.predict_embedded(rows.vectors.double(), model.bank_.identity(ids=rows.ids, groups=groups))
        held, first = self.known[rows.ids.astype(int)], model.fitted_.in_label_units(said).double().numpy()
        x, y, unit = self.vectors, self.labels, np.median(pdist(self.vectors[train[:1000]]))
        inner, outer = np.split(np.random.default_rng(0).permutation(train), [len(train) // 8])

        def ridge(settings, rows, queries) -> np.ndarray:
            return predict_by("kernel ridge", settings, unit, x[rows], y[rows], x[queries])

        best = min(GRIDS["kernel"], key=lambda one: np.mean((ridge(one, outer, inner) - y[inner]) ** 2))
        apart = ridge(best, train, held) - first
        share = float(np.clip((y[held] - first) @ apart / (apart @ apart), 0, 1))
        plain = model.predict(self.frame.iloc[self.test], **self.of(self.test))
        both = plain + share * (ridge(best, self.known, self.test) - plain)
        error = float(np.mean((both - truth) ** 2) / self.unit)
        return {"error": error, "share": share, "fit_s": time.process_time() - started, "test_rows": len(self.test)}

    def expert(self, name: str) -> dict[str, float]:
        """One of :data:`EXPERTS`."""
        started, groups = time.process_time(), None if self.groups is None else self.groups[self.known]
        x, y = self.vectors, self.labels
        method = [name.removeprefix("tuned ")]
        one = tuned_baselines(x[self.known], y[self.known], x[self.test], groups=groups, methods=method)[0]
        error = float(np.mean((one.prediction - y[self.test]) ** 2) / self.unit)
        return {"error": error, "fit_s": time.process_time() - started, "test_rows": len(self.test)}

    def rival(self, name: str, model: NeighborRegressor) -> dict[str, float]:
        """On the model's vectors, or on those that nothing was trained on; settings by the rows held out."""
        raw = name.endswith("untrained")
        place = {row: i for i, row in enumerate(self.known)}
        bank = self.vectors[self.known] if raw else model.embed(self.frame.iloc[self.known])
        test = self.vectors[self.test] if raw else model.embed(self.frame.iloc[self.test])
        held = np.array([place[row] for row in self.split.validation])
        train = np.setdiff1d(np.arange(len(bank)), held)
        y = self.labels[self.known]
        unit = np.median(pdist(bank[:: max(1, len(bank) // 1000)]))
        started, truth, grid = time.process_time(), self.labels[self.test], GRIDS[name.split()[0]]
        known = predictions(name, grid, unit, bank[train], y[train], bank[held])
        best, least = min(zip(grid, known, strict=True), key=lambda each: np.mean((each[1] - y[held]) ** 2))
        prediction = predictions(name, [best], unit, bank, y, test)[0]
        row = {"error": float(np.mean((prediction - truth) ** 2) / self.unit), "test_rows": len(test)}
        if name == "kernel ridge":  # split conformal: margins are those of the rows held out
            margin = conformal_quantile(np.abs(least - y[held]), COVERAGE)
            apart = np.abs(predictions(name, [best], unit, bank[train], y[train], test)[0] - truth)
            row |= {"covered": float(np.mean(apart <= margin)), "width": 2 * margin / np.sqrt(self.unit)}
        return row | {"fit_s": time.process_time() - started}


def shares(weights: torch.Tensor) -> dict[str, float]:
    """How many rows have weight, and what share of it the five, ten and twenty strongest carry."""
    weights = weights.abs().sort(descending=True).values
    row = {"rows": float((weights > 1e-9).sum(axis=1).double().mean())}
    return row | {
        name: float(weights[:, :k].sum(axis=1).mean()) for name, k in (("five", 5), ("ten", 10), ("twenty", 20))
    }


GRIDS = {
    "kernel": list(product((0.25, 0.5, 1.0, 2.0, 4.0), (1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0))),
    "NNK": [(scale, 0.0) for scale in (0.1, 0.25, 0.5, 1.0, 2.0)],
    "signed": list(product((0.25, 0.5, 1.0, 2.0, 4.0), (0.003, 0.03, 0.1, 0.3, 1.0, 3.0))),
    "MuyGPs": list(product((0.25, 0.5, 1.0, 2.0, 4.0), (0.003, 0.03, 0.1, 0.3, 1.0, 3.0))),
}


def predictions(name, grid, unit, bank, y, queries) -> list[np.ndarray]:
    """Those of a rival by each of the settings of ``grid``."""
    if name.startswith("MuyGPs"):
        return by_muygps(grid, unit, bank, y, queries, int(name.split()[1].rstrip(",")))
    return [predict_by(name, settings, unit, bank, y, queries) for settings in grid]


def by_muygps(grid, unit, bank, y, queries, k) -> list[np.ndarray]:
    """Local kriging by MuyGPyS: no bound on weights or their sum, labels less their mean."""
    from MuyGPyS.gp import MuyGPS
    from MuyGPyS.gp.deformation import Isotropy, l2
    from MuyGPyS.gp.hyperparameter import Parameter
    from MuyGPyS.gp.kernels import Matern
    from MuyGPyS.gp.noise import HomoscedasticNoise
    from MuyGPyS.neighbors import NN_Wrapper

    def model(scale, noise) -> MuyGPS:
        deformation = Isotropy(metric=l2, length_scale=Parameter(scale * unit))
        kernel = Matern(smoothness=Parameter(1.5), deformation=deformation)
        return MuyGPS(kernel=kernel, noise=HomoscedasticNoise(noise))

    bank, queries, mean = bank.astype(np.float64), queries.astype(np.float64), y.mean()
    near = NN_Wrapper(bank, k, nn_method="exact", algorithm="brute").get_nns(queries)[0]
    tensors = model(1.0, 1.0).make_predict_tensors(np.arange(len(queries)), near, queries, bank, y[:, None] - mean)
    cross, between, labels = tensors
    each = [model(*settings) for settings in grid]
    return [mean + one.posterior_mean(one.kernel(between), one.kernel(cross), labels)[:, 0] for one in each]


def predict_by(name, settings, unit, bank, y, queries) -> np.ndarray:
    """Predictions of a rival with a scale, in median distances, and a noise; groups are not heeded."""
    scale, noise = settings[0] * unit, settings[1]
    if name == "kernel ridge":
        ridge = KernelRidge(alpha=noise, kernel="rbf", gamma=0.5 / scale**2)
        return ridge.fit(bank, y - y.mean()).predict(queries) + y.mean()
    if name.startswith("signed"):
        head, tensors = Kriging(64, scale=scale, noise=noise, convex=False), map(torch.from_numpy, (queries, bank, y))
        with torch.no_grad():
            return head(*(tensor.double() for tensor in tensors)).numpy()
    near = NearestNeighbors(n_neighbors=int(name.split()[1])).fit(bank).kneighbors(queries)[1]
    prediction = np.empty(len(queries))
    for i, rows in enumerate(near):  # min w'Kw / 2 - w'k over w >= 0, then divided by their sum
        some = bank[rows]
        gram = np.exp(-cdist(some, some, "sqeuclidean") / (2 * scale**2)) + 1e-6 * np.eye(len(rows))
        column = np.exp(-cdist(some, queries[i : i + 1], "sqeuclidean")[:, 0] / (2 * scale**2))
        factor = np.linalg.cholesky(gram)
        weights = nnls(factor.T, solve_triangular(factor, column, lower=True), maxiter=1000)[0]
        total = weights.sum()
        prediction[i] = weights @ y[rows] / total if total > 0 else y[rows[0]]
    return prediction


def errors(found: pd.DataFrame) -> str:
    """Markdown: by set, geometric means over splits of the ratio of each method's error to that of attention."""
    table = found.pivot_table(index=["set", "split"], columns="method", values="error", sort=False)
    table = table.dropna(subset=["attention"])
    logs = np.log(table.div(table["attention"], axis=0)).groupby("set", sort=False)
    names = [
        name
        for name in (*METHODS, BLEND, ONE, *READOUTS, *RIVALS, *MUYGPS, "ridge")
        if name in table and name != "attention"
    ]
    ratios = np.exp(logs.mean())[names].assign(splits=logs.size())
    lines = ["| set | splits | " + " | ".join(names) + " |", "|" + " --- |" * (2 + len(names))]
    for name, row in ratios.iterrows():
        lines.append("| " + " | ".join([str(name), f"{row['splits']:.0f}", *(f"{row[c]:.3f}" for c in names)]) + " |")
    for word, row in (("median", ratios.median()), ("worst", ratios.max())):
        lines.append(f"| **{word}** | | " + " | ".join(f"**{row[c]:.3f}**" for c in names) + " |")
    both = [table[["attention", name]].dropna() for name in names]
    tests = [
        wilcoxon(np.log(pair["attention"]), np.log(pair[name])).pvalue for name, pair in zip(names, both, strict=True)
    ]
    return (
        "\n".join([*lines, "| Wilcoxon, p | | " + " | ".join(f"{p:.2g}" for p in tests) + " |"])
        .replace(" nan ", " - ")
        .replace("**nan**", "-")
    )


def against_experts(found: pd.DataFrame) -> str:
    """Markdown: by set, the error of the default divided by that of each expert and of the best by the mean error."""
    experts = [name for name in EXPERTS if name in set(found["method"])]
    if not experts or "auto" not in set(found["method"]):
        return ""
    table = found[found["method"].isin(["auto", *experts])]
    table = table.pivot_table(index=["set", "split"], columns="method", values="error", sort=False).dropna()
    by_set = table.groupby("set", sort=False)
    means = by_set.mean()
    ratios = means[["auto"]].to_numpy() / means[experts]
    ratios["the best"] = ratios.max(axis=1)
    lines = ["| set | splits | " + " | ".join(ratios) + " |", "|" + " --- |" * (3 + len(experts))]
    for name, row in ratios.iterrows():
        cells = " | ".join(f"{value:.3f}" for value in row)
        lines.append(f"| {name} | {len(by_set.get_group(name))} | {cells} |")
    for word, row in (("median", ratios.median()), ("worst", ratios.max())):
        lines.append(f"| **{word}** | | " + " | ".join(f"**{value:.3f}**" for value in row) + " |")
    test = wilcoxon(np.log(ratios["the best"]))
    return "\n".join([*lines, f"Wilcoxon signed ranks over sets, the default against the best: p = {test.pvalue:.2g}."])


def rows_used(found: pd.DataFrame) -> str:
    """Markdown: medians over sets of what else each method does."""
    by_set = found.groupby(["method", "set"], sort=False).mean(numeric_only=True)
    table = by_set.groupby("method", sort=False).median()
    widths = np.log(by_set["width"] / by_set.loc["attention"]["width"].reindex(by_set.index, level="set"))
    table["wider"] = np.exp(widths.groupby("method").median())
    lines = [
        "| method | rows with weight | share of 5 | of 10 | of 20 | covered | width | seconds of a prediction |",
        "|" + " --- |" * 8,
    ]
    for name in (name for name in (*METHODS, ONE, *READOUTS, "kernel ridge") if name in table.index):
        row = table.loc[name]
        shares = " | ".join(f"{row[c]:.0%}" for c in ("five", "ten", "twenty"))
        rest = f"{row['covered']:.3f} | {row['wider']:.3f} | {row['predict_s']:.2f}"
        lines.append(f"| {name} | {row['rows']:.0f} | {shares} | {rest} |")
    return "\n".join(lines).replace(" nan% ", " - ").replace(" nan ", " - ")


def told(found: pd.DataFrame) -> str:
    """Markdown: errors that folds tell against that of the test rows, of single members and of all together."""
    if "out_of_fold" not in found:
        return ""
    lines = ["| readout | single members | all members | single, of sets within 10 % | all |", "|" + " --- |" * 5]
    for method in (name for name in METHODS if name.endswith(", folds")):
        means = found[found["method"] == method].groupby("set", sort=False).mean(numeric_only=True)
        ratios = means[["out_of_fold", "estimated"]].div(means["error"], axis=0).dropna()
        middle, near = ratios.median(), ((ratios - 1).abs() <= 0.1).sum()
        lines.append(f"| {method} | " + " | ".join([*(f"{v:.3f}" for v in middle), *(str(v) for v in near)]) + " |")
    return "\n".join(lines)


def rows_of(job: Job, methods: list[str]) -> Iterator[tuple[str, dict[str, float]]]:
    """The figures of each method on a split."""
    metric = None
    for method in methods:
        started = time.process_time()
        if method in METHODS:
            model = job.fit(METHODS[method])
            metric = model if method == "attention" else metric
            yield method, {"fit_s": time.process_time() - started} | job.measure(model)
        elif method == "ridge":
            x, y, split = job.vectors, job.labels, job.split
            one = ridge_baseline(
                x[split.train], y[split.train], x[split.validation], y[split.validation], x[split.test]
            )
            yield method, {"error": float(np.mean((one.prediction - y[split.test]) ** 2) / job.unit)}
        elif method in EXPERTS:
            yield method, job.expert(method)
        elif method == BLEND:
            yield method, job.blended()
        else:
            metric = job.fit(METHODS["attention"]) if metric is None else metric
            started = time.process_time()
            if method == ONE:
                yield method, job.one_attention(metric)
            elif method in READOUTS:
                model = job.read_out(metric, *READOUTS[method])
                yield method, {"fit_s": time.process_time() - started} | job.measure(model)
            else:
                yield method, job.rival(method, metric)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--cache", type=Path, help="folder that nona/sets.py fills")
    source.add_argument("--tables", type=Path, help="folder of plain tables")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=None, choices=[*SETS, *TABLES])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=[*METHODS, BLEND, ONE, *READOUTS, *RIVALS, *EXPERTS, "ridge"])
    arguments = parser.parse_args()
    done = pd.read_csv(arguments.out) if arguments.out.is_file() else pd.DataFrame(columns=["set", "split", "method"])
    there = set(zip(done["set"], done["split"], done["method"], strict=True))
    usual = SETS if arguments.tables is None else TABLES[:10]
    for seed, name in product(range(arguments.splits), arguments.sets or usual):
        wanted = [method for method in arguments.methods if (name, seed, method) not in there]
        if not wanted:
            continue
        data = load(name, arguments.cache) if arguments.tables is None else load_table(name, arguments.tables)
        for method, row in rows_of(Job(data, data.splits(arguments.splits)[seed]), wanted):
            line = pd.DataFrame([{"set": name, "split": seed, "method": method} | row])
            done = pd.concat([done, line], ignore_index=True)
            done.to_csv(arguments.out, index=False)
            print(name, seed, method, {k: round(v, 4) for k, v in row.items()}, flush=True)
    print(errors(done), rows_used(done), told(done), against_experts(done), sep="\n\n")


if __name__ == "__main__":
    main()
