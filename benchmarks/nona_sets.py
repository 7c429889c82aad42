"""The regression sets: rows, groups, labels, and the vectors that frozen published encoders give them.

A source is a table whose rows are embedded once; a set is a source with a target. Rows beyond ``ROWS`` are left out by
a seeded draw. Rows that repeat (same text, photo, article, token) share a group, and groups are never split.

    python benchmarks/nona_sets.py --data ../shared/data --cache runs/nona
"""

import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from resumable import asked

from vicinal.data import Split, make_splits
from vicinal.encoders import EfficientNetEncoder, MiniLMEncoder, SpeakerEncoder
from vicinal.encoders.base import embed

ROWS = 3000
ENCODERS = {"minilm": MiniLMEncoder, "efficientnet-lite0": EfficientNetEncoder, "ge2e": SpeakerEncoder}


@dataclass(frozen=True)
class RegressionSet:
    """Features ``[n, f]`` float32, labels ``[n]`` float64 in their own units, groups ``[n]`` int64."""

    name: str
    features: np.ndarray
    labels: np.ndarray
    groups: np.ndarray

    def splits(self, number: int) -> list[Split]:
        """Seeded 80/20 splits, then 85/15 of the rest; no group in two parts."""
        groups = None if len(np.unique(self.groups)) == len(self.groups) else self.groups
        return make_splits(len(self.labels), number=number, groups=groups)


def frozen(encoder: str, cells: pd.Series) -> np.ndarray:
    """Vectors of a frozen encoder; equal cells are run once."""
    values = cells.reset_index(drop=True)
    codes, unique = pd.factorize(values)
    frame = pd.DataFrame({"cell": pd.Series(list(unique), dtype=object)})
    module = ENCODERS[encoder]("cell").fit(frame)
    return embed(module, module.prepare(frame)).float().numpy()[codes]


def draw(table: pd.DataFrame) -> pd.DataFrame:
    """At most ``ROWS`` rows, in their order."""
    if len(table) <= ROWS:
        return table.reset_index(drop=True)
    kept = np.sort(np.random.default_rng(0).choice(len(table), ROWS, replace=False))
    return table.iloc[kept].reset_index(drop=True)


def ratings(domain: str, by_article: bool) -> Callable[[Path], tuple[pd.DataFrame, np.ndarray, pd.Series]]:
    def read(data):
        table = pd.read_parquet(data / "text" / "vader_sentiment.parquet")
        table = draw(table[table["domain"] == domain])
        return table, frozen("minilm", table["text"]), table["group" if by_article else "text"]

    return read


def books(data):
    table = pd.read_parquet(data / "text" / "book_prices.parquet")
    table["log_price"] = np.log10(table["price"])
    table = draw(table)
    return table, frozen("minilm", table["title"] + ". " + table["synopsis"].str.slice(0, 400)), table["synopsis"]


def emobank(data):
    table = pd.read_parquet(data / "text" / "emobank.parquet")
    table = draw(table[table["text"].str.strip() != ""])
    return table, frozen("minilm", table["text"]), table["text"]


def lexical(data):
    table = draw(pd.read_parquet(data / "text" / "complex_lexical.parquet"))
    token = table["token"].fillna("null").astype(str)
    vectors = np.hstack([frozen("minilm", token), frozen("minilm", table["sentence"])])
    return table, vectors, token.str.lower()


def pairs(file: str):
    def read(data):
        table = draw(pd.read_parquet(data / "text" / file))
        both = frozen("minilm", pd.concat([table["sentence1"], table["sentence2"]]))
        u, v = both[: len(table)], both[len(table) :]
        return table, np.hstack([np.abs(u - v), u * v]), table["sentence1"] + " | " + table["sentence2"]

    return read


def houses(data):
    table = pd.read_csv(data / "houses" / "houses.csv", dtype={"zipcode": str})
    table["log_price"] = np.log(table["price"])
    photos = pd.Series([str(data / "houses" / "frontal256" / f"{number:03d}.jpg") for number in table["id"]])
    return table, frozen("efficientnet-lite0", photos), table["dup_group"]


def houses_table(data):
    """The photo's vector beside bedrooms, bathrooms, log area and the zip code (one-hot, codes of at least 5 rows)."""
    table, photo, groups = houses(data)
    numbers = np.column_stack([table["bedrooms"], table["bathrooms"], np.log(table["area"])])
    common = table["zipcode"].map(table["zipcode"].value_counts()) >= 5
    codes = pd.get_dummies(table["zipcode"].where(common, "other")).to_numpy(dtype=float)
    return table, np.hstack([photo, numbers, codes]), groups


def blood(data):
    table = pd.read_parquet(data / "images" / "blood_cells.parquet")
    table["log_area"] = np.log1p(table["wbc_box_area"])
    return table, frozen("efficientnet-lite0", table["image"]), pd.Series(np.arange(len(table)))


def signs(data):
    table = pd.read_parquet(data / "images" / "sign_digits.parquet")
    return table, frozen("efficientnet-lite0", table["image"]), pd.Series(np.arange(len(table)))


def mnist(data):
    from PIL import Image

    stored = np.load(data / "images" / "mnist5k.npz")
    table = draw(pd.DataFrame({"position": np.arange(len(stored["label"])), "digit": stored["label"].astype(float)}))
    files = []
    for position in table["position"]:
        file = io.BytesIO()
        Image.fromarray(stored["images"][position]).save(file, "PNG")
        files.append(file.getvalue())
    return table, frozen("efficientnet-lite0", pd.Series(files)), pd.Series(np.arange(len(table)))


def sounds(data):
    table = draw(pd.read_parquet(data / "audio" / "fsdd.parquet"))
    return table, frozen("ge2e", table["audio"]), pd.Series(np.arange(len(table)))


SOURCES = {
    "houses": houses,
    "tweets": ratings("tweets", by_article=False),
    "fsdd": sounds,
    "books": books,
    "stsb": pairs("stsb_en.parquet"),
    "blood": blood,
    "amazon": ratings("amazon", by_article=True),
    "movies": ratings("movie", by_article=False),
    "emobank": emobank,
    "sick": pairs("sick2014.parquet"),
    "signs": signs,
    "nyt": ratings("nyt", by_article=True),
    "lexical": lexical,
    "mnist": mnist,
    "houses+table": houses_table,
}
SETS = {
    "houses": ("houses", "log_price"),
    "houses+table": ("houses+table", "log_price"),
    "books": ("books", "log_price"),
    "tweets": ("tweets", "rating"),
    "movies": ("movies", "rating"),
    "amazon": ("amazon", "rating"),
    "nyt": ("nyt", "rating"),
    "valence": ("emobank", "V"),
    "arousal": ("emobank", "A"),
    "dominance": ("emobank", "D"),
    "lexical": ("lexical", "complexity"),
    "stsb": ("stsb", "score"),
    "sick": ("sick", "score"),
    "blood": ("blood", "wbc_box_area"),
    "signs": ("signs", "digit"),
    "mnist": ("mnist", "digit"),
    "fsdd": ("fsdd", "digit"),
}


def prepare(source: str, data: Path, cache: Path) -> Path:
    """Embed a source once, into ``cache``; the file holds vectors, groups, and every numeric column."""
    path = cache / f"{source}.npz"
    if not path.is_file():
        table, features, groups = SOURCES[source](data)
        columns = {name: table[name].to_numpy(dtype=float) for name in table.select_dtypes("number")}
        aside = cache / f".{source}.npz"
        np.savez(aside, features=features.astype(np.float32), groups=pd.factorize(groups)[0], **columns)
        aside.replace(path)
    return path


def load(name: str, cache: Path) -> RegressionSet:
    """A set out of ``cache``."""
    source, target = SETS[name]
    stored = np.load(cache / f"{source}.npz")
    labels = stored[target].astype(np.float64)
    return RegressionSet(name, stored["features"], labels, stored["groups"].astype(np.int64))


def main() -> None:
    given = asked(__doc__, data=Path, cache=Path("runs/nona"), sources=list(SOURCES))
    given.cache.mkdir(parents=True, exist_ok=True)
    for source in given.sources:
        started = time.perf_counter()
        prepare(source, given.data, given.cache)
        print(f"{source}: {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
