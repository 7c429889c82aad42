"""Rows that come, on texts of two kinds: a model beside others that are refitted.

A model is fitted on 2,400 rows of one domain. Then labelled rows of another domain come. Rivals are refitted on the
same frozen vectors. Runs whose lines are there are passed over; "draw" is the checksum of the rows drawn. Vectors of
texts are computed once, and cached.

    python benchmarks/extending.py --data ../shared/data --out benchmarks/results/extending.csv
"""

import copy
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from resumable import RESULTS, Lines, asked

from vicinal import NeighborRegressor
from vicinal.encoders import EmbeddingCache, build_table_encoder
from vicinal.evaluation import tuned_baselines

OLD, ADDED, TEST = 2400, (100, 400, 1600), 1400


def ratings(old: str, new: str) -> Callable[[Path], tuple[pd.DataFrame, pd.DataFrame]]:
    def read(data: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
        table = pd.read_parquet(data / "text" / "vader_sentiment.parquet").drop_duplicates("text")
        table = table.rename(columns={"rating": "label"})[["domain", "text", "label", "group"]]
        return tuple(table[table["domain"] == name].drop(columns="domain") for name in (old, new))

    return read


PAIRS = {"tweets to reviews of goods": ratings("tweets", "amazon"), "films to editorials": ratings("movie", "nyt")}


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
    """Rows of the old domain, rows of the new domain that come, and its test rows."""

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
        self.checksum = zlib.crc32(np.concatenate([first, come, rest]).astype(np.int64).tobytes())
        self.cache = cache
        parts = old.iloc[first[:OLD]], new.iloc[come], new.iloc[rest]
        self.old, self.new, self.test = (self._rows(part) for part in parts)

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

    def trained(epochs: int) -> NeighborRegressor:
        return copy.deepcopy(base).partial_fit(new.frame, new.labels, epochs=epochs)

    say: dict[str, Callable[[], np.ndarray]] = {
        "add": lambda: copy.deepcopy(base).add(new.frame, new.labels).predict(test.frame),
        "3 epochs": lambda: trained(3).predict(test.frame),
        "ridge": lambda: by_rival("ridge", both, test),
        "kernel ridge": lambda: by_rival("kernel ridge", both, test),
    }
    if rows == max(ADDED):
        say["fit anew"] = lambda: draw.model(both).predict(test.frame)
    for method, each in say.items():
        yield timed(method, rows, test, each)


def timed(method: str, rows: int, asked: Rows, say: Callable[[], np.ndarray]) -> dict:
    """A line of one method: its error on the rows ``asked``, and seconds of one processor."""
    started = time.process_time()
    said = say()
    took = time.process_time() - started
    print(method, rows, round(took, 1), round(error(said, asked), 4), flush=True)
    return {"method": method, "rows": rows, "seconds": took, "error": error(said, asked)}


def main() -> None:
    """What is missing."""
    given = asked(__doc__, data=Path, cache=Path("runs/extending"), out=RESULTS / "extending.csv", seeds=3)
    lines = Lines(given.out, "set", "seed")
    for seed, name in product(range(given.seeds), PAIRS):
        if (name, seed) in lines:
            continue
        draw = Draw(name, seed, given.data, given.cache)
        started = time.process_time()
        base = draw.model(draw.old)
        seconds = time.process_time() - started
        known = {"set": name, "seed": seed, "draw": draw.checksum, "readout": base.readout_}
        lines.add(known | line for line in added(draw, base, seconds))


if __name__ == "__main__":
    main()
