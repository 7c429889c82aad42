"""Comparables over the metric of trees, in plain numpy: from the text of LightGBM to a prediction.

``python tests/references/comparables.py FOLDER`` writes the golden cases of tests/golden/comparables anew.
"""

import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from references.kriging import convex_weights, kernel_problem

NOTHING = 1e-6  # the diagonal of the row that is like no other


def read_text(text):
    """The trees of LightGBM's text, each the lists of numbers of its lines."""
    trees = []
    for block in text.split("\nTree=")[1:]:
        lines = [line.split("=", 1) for line in block.split("\n\n")[0].splitlines() if "=" in line]
        trees.append({name: [float(part) for part in value.split()] for name, value in lines})
    return trees


def goes_left(tree, split, value):
    """Whether a value goes left: by categories where bit 0 of the decision is set; gaps by bit 1 where bit 3 is."""
    decision, threshold = int(tree["decision_type"][split]), tree["threshold"][split]
    if decision & 1:
        if math.isnan(value) or value < 0:
            return False
        start, end = (int(tree["cat_boundaries"][int(threshold) + more]) for more in (0, 1))
        word, bit = divmod(int(value), 32)
        return word < end - start and bool(int(tree["cat_threshold"][start + word]) >> bit & 1)
    if math.isnan(value):
        if decision >> 2 & 3 == 2:
            return bool(decision & 2)
        value = 0.0
    return value <= threshold


def added(trees, row):
    """What each column of a row ``[f]`` adds on its way through all trees."""
    total = np.zeros(len(row))
    for tree in trees:
        place = 0 if "split_feature" in tree else -1
        while place >= 0:
            column = int(tree["split_feature"][place])
            side = "left_child" if goes_left(tree, place, row[column]) else "right_child"
            child = int(tree[side][place])
            value = tree["internal_value"][child] if child >= 0 else tree["leaf_value"][-1 - child]
            total[column] += value - tree["internal_value"][place]
            place = child
    return total


def root(tree):
    """The value that all rows get from a tree."""
    return tree["internal_value"][0] if "split_feature" in tree else tree["leaf_value"][0]


def embedding(models, row, fold=-1):
    """``[T + T f]`` of a row: sums by target, then columns by target, of one fold's models or the mean of all."""
    some = models if fold < 0 else [models[fold]]
    each = np.mean([[added(trees, row) for trees in model] for model in some], axis=0)  # [T, f]
    return np.concatenate([each.sum(axis=1), each.ravel()])


def base(models):
    """What all rows get ``[T]``, the mean over folds."""
    return np.mean([[sum(map(root, trees)) for trees in model] for model in models], axis=0)


def slack_weights(matrix, vector):
    """Weights ``[k]``, not negative, with a sum of at most 1: nothing is one more row."""
    wide = np.pad(matrix, (0, 1))
    wide[-1, -1] = NOTHING
    return convex_weights(wide, np.append(vector, 0.0))[:-1]


def nearest(query, bank, k, left_out=(), ranks=None):
    """Positions of the k nearest rows by Euclidean distance, those of lower rank first among equally near ones."""
    ranks = np.arange(len(bank)) if ranks is None else ranks
    distance = np.array([math.sqrt(math.fsum((query - row) ** 2)) for row in bank])
    order = [place for place in np.lexsort([ranks, distance]) if place not in set(left_out)]
    return np.array(order[:k])


def predicted(query, bank, labels, *, k, scale, noise, base, unit, trend, mass=None, left_out=(), ranks=None):
    """Prediction ``[T]`` of one query, the positions of its rows and their weights.

    Args:
        query: ``[d]``, whose last T times ``trend`` entries are what columns add, by target.
        bank: ``[n, d]``.
        labels: ``[n, T]``.
        k: how many rows.
        scale: of the kernel.
        noise: of a row of mass 1.
        base: of the trend ``[T]``.
        unit: of its entries ``[T]``.
        trend: entries of a target.
        mass: how many rows each counts as ``[n]``.
        left_out: positions of rows that the query may not see.
        ranks: ``[n]``, which rows go first among equally near ones.
    """
    at = nearest(query, bank, k, left_out, ranks)
    covariance, near = kernel_problem(query, bank[at], scale)
    of_rows = np.ones(len(bank)) if mass is None else mass
    weights = slack_weights(covariance + np.diag(noise / of_rows[at]), near)
    said, near_entries = [], len(query) - labels.shape[1] * trend
    for target in range(labels.shape[1]):
        last = slice(near_entries + target * trend, near_entries + (target + 1) * trend)
        of_query, *of_bank = (base[target] + unit[target] * row[last].sum() for row in [query, *bank[at]])
        adjusted = [label + of_query - other for label, other in zip(labels[at, target], of_bank, strict=True)]
        said.append(math.fsum([*(weights * adjusted), (1 - math.fsum(weights)) * of_query]))
    return np.array(said), at, weights


def drawn(seed, *, rows=24, queries=5, near=2, trend=3, targets=1, weighted=False):
    """Arrays of a case: queries, a bank, labels with some trend, and a head's numbers."""
    rng = np.random.default_rng(seed)
    width = near + trend * targets
    case = {"queries": rng.normal(size=(queries, width)), "bank": rng.normal(size=(rows, width)), "k": 8}
    case |= {"trend": trend, "scale": 1.7, "noise": 0.2}
    case |= {"base": 1.0 + np.arange(targets), "unit": 0.5 + np.arange(targets)}
    columns = case["bank"][:, near:].reshape(rows, targets, trend)
    case["labels"] = case["base"] + case["unit"] * columns.sum(axis=2) + 0.5 * rng.normal(size=(rows, targets))
    return case | ({"mass": rng.uniform(0.2, 5, rows)} if weighted else {})


def cases():
    """Golden cases by name."""
    copies = drawn(3)
    copies["bank"][4:9] = copies["bank"][3]  # equally near, with other labels: the first ones are taken
    copies["queries"][0] = copies["bank"][3]
    far = drawn(4)
    far["queries"] = far["queries"] + np.array([50.0, 0.0, 0.0, 0.0, 0.0])
    return {
        "scattered": drawn(0),
        "targets": drawn(1, targets=3, trend=2),
        "weighted": drawn(2, weighted=True),
        "copies": copies | {"k": 4},
        "far": far,
        "one": drawn(5, rows=1),
        "quiet": drawn(6) | {"noise": 0.001},
        "noisy": drawn(7) | {"noise": 30.0},
    }


def solved(case):
    """The case with its predictions ``[b, T]`` and weights ``[b, n]``."""
    numbers = {name: case[name] for name in ("k", "scale", "base", "unit", "trend")}
    numbers |= {"noise": case["noise"] + 1e-6, "mass": case.get("mass")}
    each = [predicted(query, case["bank"], case["labels"], **numbers) for query in case["queries"]]
    weights = np.zeros((len(each), len(case["bank"])))
    for row, (_, at, some) in zip(weights, each, strict=True):
        row[at] = some
    return case | {"prediction": np.stack([one[0] for one in each]), "weights": weights}


def trees_case():
    """Columns with gaps and a category, texts of two folds and two targets, and what comes of them."""
    import lightgbm

    rng = np.random.default_rng(8)
    columns = np.c_[rng.normal(size=(80, 2)), rng.integers(0, 40, 80)]
    columns[::9, 1] = np.nan
    first = 2 * (columns[:, 0] > 0) + np.isin(columns[:, 2], range(0, 40, 3)) + np.nan_to_num(columns[:, 1], nan=3.0)
    labels = np.c_[first, 10 - first * columns[:, 0]] + 0.1 * rng.normal(size=(80, 2))
    folds = np.arange(80) % 2
    folds[70:] = -1  # new rows
    settings = {"num_leaves": 5, "min_data_in_leaf": 3, "verbosity": -1, "num_threads": 1, "cat_smooth": 1}
    texts = []
    for fold in range(2):
        at = (folds != fold) & (folds >= 0)
        data = [lightgbm.Dataset(columns[at], labels[at, target], categorical_feature=[2]) for target in range(2)]
        models = [lightgbm.train(settings | {"min_data_per_group": 3}, one, 6) for one in data]
        texts.append([model.model_to_string().split("\nend of trees")[0] + "\nend of trees\n" for model in models])
    models = [[read_text(text) for text in fold] for fold in texts]
    rows = np.stack([embedding(models, row, fold) for row, fold in zip(columns, folds.tolist(), strict=True)])
    case = {"queries": rows[70:], "bank": rows[:70], "labels": labels[:70], "k": 10, "trend": 3}
    case |= {"scale": 1.0, "noise": 0.3, "base": base(models), "unit": np.ones(2)}
    return {"columns": columns, "folds": folds, "texts": np.array(texts), **solved(case)}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, case in {**{name: solved(case) for name, case in cases().items()}, "trees": trees_case()}.items():
        np.savez_compressed(folder / f"{name}.npz", **{key: value for key, value in case.items() if value is not None})
