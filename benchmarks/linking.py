"""Linking without labels beside splink 5, and what some labels add: docs/results/match.md.

``benchmarks/linking_sets.py`` writes the sets, ``benchmarks/linking_splink.py`` has the settings of splink. Each set
and method runs in a process of its own, one after the other. Every figure is a line of the CSV as soon as it is known;
a run that was stopped goes on.

    python benchmarks/linking.py --sets runs/linking                       # without labels, and splink
    python benchmarks/linking.py --all-labels DATA/retrieval               # all labels, and a promise of precision

``--limit`` is the most seconds of a set and method; ``--suffix`` goes behind its name, to tell versions apart.

splink, sqlglot, igraph, altair and jellyfish are looked for on PYTHONPATH.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from linking_sets import LinkageSet
from resumable import RESULTS, Lines, asked, peak_mb
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

KEY = ("set", "method", "seed")
TOLD = (0.9, 0.95)

WARNINGS = ("unsure", "no sign of matches", "weights of columns are uncertain", "alone decides")
"""Words of the sentences in which the matcher doubts itself."""

PROMISES = 20
SHOPS = ("abt_buy", "amazon_google", "walmart_amazon", "dblp_acm")


class Truth:
    """The pairs of a set as numbers: which of some pairs match."""

    def __init__(self, data: LinkageSet) -> None:
        self.data, self.single = data, data.right is None
        self.ids = [pd.Index(table["id"]) for table in (data.left, data.left if self.single else data.right)]
        self.match = np.unique(self.keys(data.matches))
        self.rows = len(self.ids[0]) + (0 if self.single else len(self.ids[1]))

    def at(self, pairs: pd.DataFrame) -> np.ndarray:
        """Positions ``[n, 2]`` of pairs by id; of one table the lower one first."""
        sides = zip(("left", "right"), self.ids, strict=True)
        at = np.stack([ids.get_indexer(pairs[side]) for side, ids in sides], axis=1)
        assert (at >= 0).all()
        return np.sort(at, axis=1) if self.single else at

    def keys(self, pairs: pd.DataFrame) -> np.ndarray:
        at = self.at(pairs)
        return at[:, 0] * len(self.ids[1]) + at[:, 1]

    def things(self, pairs: pd.DataFrame) -> np.ndarray:
        """Connected rows, of both tables one after the other."""
        at = self.at(pairs) + np.array([0, 0 if self.single else len(self.ids[0])])
        edges = coo_matrix((np.ones(len(at)), (at[:, 0], at[:, 1])), shape=(self.rows, self.rows))
        return connected_components(edges, directed=False)[1]


def f1(right: int, said: int, there: int) -> dict[str, float]:
    """Precision (1 if nothing was said), recall (1 if nothing is there) and F1."""
    precision, recall = right / said if said else 1.0, right / there if there else 1.0
    both = said + there
    return {"precision": precision, "recall": recall, "f1": 2 * right / both if both else 1.0}


def measured(truth: Truth, links: pd.DataFrame) -> dict[str, float]:
    """Quality of links (pairs without a label are wrong), and of the surest probabilities."""
    said = truth.keys(links)
    right = np.isin(said, truth.match)
    values = {"links": len(said), "false": int((~right).sum()), "matches": len(truth.match)}
    values["false per 1000 rows"] = 1000 * values["false"] / len(truth.ids[0])
    values |= f1(int(right.sum()), len(said), len(truth.match))
    if links["probability"].notna().any():
        values |= told(truth, links, "links")
    return values


def told(truth: Truth, links: pd.DataFrame, what: str) -> dict[str, float]:
    """Of links that are told to be sure: how many, the precision that their probabilities tell, and the true one."""
    values: dict[str, float] = {}
    for least in TOLD:
        sure = links[links["probability"] >= least]
        right, at = np.isin(truth.keys(sure), truth.match), f"{what} at {least}"
        values[at] = len(sure)
        if len(sure):
            values |= {f"{at}: told": float(sure["probability"].mean()), f"{at}: true": float(right.mean())}
    return values


def one_to_one(scored: pd.DataFrame) -> pd.DataFrame:
    """The surest pairs, each row once."""
    taken: tuple[set[object], set[object]] = (set(), set())
    keep = []
    for pair in scored.sort_values("probability", ascending=False, kind="stable").itertuples():
        if pair.left not in taken[0] and pair.right not in taken[1]:
            taken[0].add(pair.left)
            taken[1].add(pair.right)
            keep.append(pair.Index)
    return scored.loc[keep]


# Methods: each gives its figures.

Figures = dict[str, float]


def spent(begun: tuple[float, float]) -> Figures:
    """Seconds since then, and the most memory so far."""
    spent = {"seconds": time.time() - begun[0], "cpu seconds": time.process_time() - begun[1]}
    return spent | {"gigabytes": peak_mb() * 1.024e-3}


def by_vicinal(data: LinkageSet, name: str, seed: int) -> list[tuple[str, int, Figures]]:
    """The matcher without labels."""
    from vicinal.estimators import RowMatcher

    begun = time.time(), time.process_time()
    model = RowMatcher(encoders={"text": "none"}, random_state=seed).fit(data.left, data.right)
    links = model.link()
    values = spent(begun) | measured(Truth(data), links)
    said = [word for word in WARNINGS if any(word in note for note in model.notes_)]
    if data.right is None:
        for kind in ("components", "consistent"):
            values |= in_clusters(Truth(data), model.clusters(kind)[0], kind)
    values |= {"warned": float(bool(said)), "expected": model.linkage_.expected(model.tables_)}
    return [("vicinal", seed, values | {f"said: {word}": 1.0 for word in said})]


def in_clusters(truth: Truth, clusters: pd.DataFrame, kind: str) -> Figures:
    """F1 of the pairs inside clusters."""
    first = clusters.groupby("cluster")["id"].transform("first")
    names = truth.things(pd.DataFrame({"left": first, "right": clusters["id"]})[first != clusters["id"]])
    there = truth.things(truth.data.matches)
    counts = [np.unique(np.stack(each), axis=1, return_counts=True)[1] for each in ((names, there), (names,), (there,))]
    right, said, matches = (int((count * (count - 1) // 2).sum()) for count in counts)
    return {f"{kind}: pair f1": f1(right, said, matches)["f1"]}


def by_splink(data: LinkageSet, name: str, seed: int, *, demo: bool = True) -> list[tuple[str, int, Figures]]:
    """splink, and the surest of its links one to one; ``demo``: FEBRL as its demos link it, or by all columns."""
    from linking_splink import scored_by_splink

    begun = time.time(), time.process_time()
    scored, notes = scored_by_splink(data, name, seed, demo=demo)
    values = spent(begun) | notes
    truth, links = Truth(data), scored[scored["probability"] >= 0.5]
    label = "splink" if demo else "splink by all columns"
    found = [(label, seed, measured(truth, links) | values)]
    if data.right is not None:
        found.append((f"{label} one-to-one", seed, measured(truth, one_to_one(links))))
    return found


METHODS: dict[str, Callable[[LinkageSet, str, int], list[tuple[str, int, Figures]]]] = {
    "vicinal": by_vicinal,
    "splink": by_splink,
    "splink-columns": partial(by_splink, demo=False),
}
LAST = {"vicinal": "vicinal", "splink": "splink", "splink-columns": "splink by all columns"}
"""A name under which a method writes: with it a set is done."""


def run(folder: Path, methods: list[str], names: list[str], seeds: int, limit: int, suffix: str) -> None:
    """Each set and method that has no figures yet, in a process of its own."""
    lines = Lines(RESULTS / "linking.csv", *KEY)
    every = names or sorted(each.name for each in folder.iterdir())
    for name in every:
        if (name, "set", 0) not in lines:
            data = LinkageSet.read(folder / name)
            sizes = dict(zip(("left", "right"), map(len, data.tables), strict=False))
            lines.put((name, "set", 0), {**sizes, "matches": len(data.matches)})
    for method, name, seed in product(methods, every, range(seeds)):
        other = method == "splink-columns" and not name.startswith("febrl")
        if other or (name, LAST[method] + suffix, seed) in lines:
            continue
        command = [sys.executable, __file__, "--one", method, str(folder / name), str(seed)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            lines.put((name, LAST[method] + suffix, seed), {"seconds": limit, "stopped": 1.0})
            continue
        if done.returncode:
            print(name, method, seed, "failed:", done.stderr[-2000:], flush=True)
            continue
        for label, drawn, values in json.loads(done.stdout.splitlines()[-1]):
            lines.put((name, label + suffix, drawn), values)


def all_labels(data: Path, cache: Path, names: list[str], suffix: str) -> None:
    """F1 on the test pairs with all labels, and a promise of 95 % on splits of all pairs, as in matching_rows.py."""
    from matching_rows import SEEDS, read, scored

    from vicinal.estimators import RowMatcher
    from vicinal.estimators.match_tables import MatchedTables

    lines = Lines(RESULTS / "linking.csv", *KEY)
    for name in names or SHOPS:
        left, right, pairs = read(data, name)
        parts = dict(iter(pairs.groupby("split")))
        truth = parts["test"]["match"].to_numpy()
        for seed in range(SEEDS):
            if (name, f"all labels{suffix}", seed) not in lines:
                model = RowMatcher(random_state=seed, cache_dir=cache)
                model.fit(left, right, parts["train"], validation=parts["valid"])
                chances = model.predict_proba(parts["test"])[:, 1]
                lines.put((name, f"all labels{suffix}", seed), scored(chances, truth, float(model.threshold_ or 0)))
        if (name, f"links by all labels{suffix}", 0) not in lines:
            model = RowMatcher(cache_dir=cache).fit(left, right, parts["train"], validation=parts["valid"])
            whole = pairs.groupby(["left", "right"], as_index=False)["match"].max()
            values = measured(Truth(LinkageSet(left, right, whole)), model.link())
            lines.put((name, f"links by all labels{suffix}", 0), values)
        with patch.object(MatchedTables, "read", read_once(MatchedTables.read)):
            for seed in range(PROMISES):
                if (name, f"promise{suffix}", seed) not in lines:
                    lines.put((name, f"promise{suffix}", seed), promised(left, right, pairs, cache, seed))


def read_once(read: Callable[..., Any]) -> Callable[..., Any]:
    """The tables that were read first: no label changes them, and no split needs them anew."""
    known: list[Any] = []

    def tables(*given: Any, **settings: Any) -> Any:
        known.extend([] if known else [read(*given, **settings)])
        return known[0]

    return tables


def promised(left: pd.DataFrame, right: pd.DataFrame, pairs: pd.DataFrame, cache: Path, seed: int) -> Figures:
    """A promise of 95 % on a split of all pairs, 80/20: kept, broken by more than chance, or refused."""
    from vicinal.calibration import clopper_pearson_upper
    from vicinal.estimators import RowMatcher

    pairs = pairs.groupby(["left", "right"], as_index=False)["match"].max()
    is_test = np.random.default_rng(seed).choice(3, len(pairs), p=[0.6, 0.2, 0.2]) == 2
    test = pairs[is_test]
    model = RowMatcher(precision=0.95, cache_dir=cache)
    try:
        model.fit(left, right, pairs[~is_test])
    except ValueError:
        return {"refused": 1.0, "broken": 0.0}
    said, truth = model.predict(test) == 1, test["match"].to_numpy() == 1
    right_ones = int((said & truth).sum())
    quality = f1(right_ones, int(said.sum()), int(truth.sum()))
    highest = float(clopper_pearson_upper(right_ones, int(said.sum()), 0.05))
    kept = {"refused": 0.0, "broken": float(highest < 0.95), "below": float(quality["precision"] < 0.95)}
    return kept | {what: quality[what] for what in ("precision", "recall")}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:  # a process of its own, without torch where the method has none
        chosen, folder, seed = sys.argv[2:]
        print(json.dumps(METHODS[chosen](LinkageSet.read(Path(folder)), Path(folder).name, int(seed))))
        sys.exit()
    options = {"sets": Path("runs/linking"), "methods": ["vicinal", "splink"], "names": [], "seeds": 1, "limit": 1800}
    arguments = asked(__doc__, 0, **options, suffix="", all_labels=None, cache=Path("runs/matching-rows"))
    if arguments.all_labels:
        all_labels(arguments.all_labels, arguments.cache, arguments.names, arguments.suffix)
    else:
        settings = arguments.methods, arguments.names, arguments.seeds, arguments.limit, arguments.suffix
        run(arguments.sets, *settings)
