"""Persons in two tables, some of them the same with slips of the pen."""

import numpy as np
import pandas as pd

FIRST = ["ann", "bo", "carla", "eve", "gus", "hana", "ivan", "jo"]
STEMS = ["amber", "basil", "cedar", "delta", "ember", "fjord", "grove", "hazel", "ivory", "jade", "kelp", "lemon"]
ENDS = ["son", "man", "er", "ley", "by"]
TOWNS = ["ulm", "bonn", "trier", "celle", "jena", "fulda"]


def persons(seed, rows):
    rng = np.random.default_rng(seed)
    columns = {
        "first": rng.choice(FIRST, rows),
        "last": [a + b for a, b in zip(rng.choice(STEMS, rows), rng.choice(ENDS, rows), strict=True)],
        "street": [f"{n} {w} road" for n, w in zip(rng.integers(1, 99, rows), rng.choice(STEMS, rows), strict=True)],
        "town": rng.choice(TOWNS, rows),
        "born": [f"19{y}-0{m}-1{d}" for y, m, d in rng.integers((30, 1, 0), (99, 9, 9), (rows, 3))],
    }
    return pd.DataFrame(columns)


def slipped(frame, seed):
    """A cell in seven lost a letter, or all of them."""
    rng = np.random.default_rng(seed)
    cells = frame.to_numpy(dtype=object, copy=True)
    for place in zip(*np.nonzero(rng.random(cells.shape) < 0.15), strict=True):
        letter = rng.integers(1, len(cells[place]))
        cells[place] = cells[place][: letter - 1] + cells[place][letter:] if rng.random() < 0.7 else ""
    return pd.DataFrame(cells, columns=frame.columns)


def two_tables(seed, both, rest):
    """Persons ``l0, l1, ...`` and ``r0, r1, ...``; those of equal numbers are the same."""
    every = persons(seed, both + 2 * rest)
    left = every.iloc[: both + rest].assign(id=[f"l{i}" for i in range(both + rest)])
    right = pd.concat([slipped(every.iloc[:both], seed + 1), every.iloc[both + rest :]], ignore_index=True)
    return left, right.assign(id=[f"r{i + rest * (i >= both)}" for i in range(both + rest)])
