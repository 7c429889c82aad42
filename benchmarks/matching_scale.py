"""Time and memory of linking two large tables with ``RowMatcher``: docs/results/matching-rows.md.

Rows are products of walmart-amazon, made many: each row of the left table is a real one with a third of the words of
its title drawn from other titles, another model number and another price, so that a row has hundreds of near relations.
The right table holds copies of four fifths of them, in another order, and as many others as make it as long: one
word in eight has a typo, one in eight is missing, two words change places, and a cell in seven is empty. 2,000 matches
are labelled; the rest is scored. Each run is a process of its own, so that its memory is its own. Processor seconds.

    python benchmarks/matching_scale.py --data DATA/retrieval --rows 100000
    python benchmarks/matching_scale.py --data DATA/retrieval --rows 100000 --index milvus:runs/rows.db
    python benchmarks/matching_scale.py --tables
"""

import argparse
import resource
import string
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matching_rows import read, row_of

from vicinal.encoders import TableEncoder
from vicinal.estimators import RowMatcher
from vicinal.estimators.match_tables import MatchedTables

OUT = Path(__file__).parent / "results" / "matching-scale.csv"
LABELLED, COPIED = 2000, 0.8
TYPO, LOST, EMPTY = 1 / 8, 1 / 8, 1 / 7
LETTERS = np.array(list(string.ascii_lowercase + string.digits))


def varied(table: pd.DataFrame, rows: int, random: np.random.Generator) -> pd.DataFrame:
    """So many products, each made of a real one."""
    sources = table.to_dict("records")
    words = np.array([word for title in table["title"] for word in str(title).split()])
    of, others = random.integers(0, len(sources), rows).tolist(), iter(random.choice(words, 20 * rows).tolist())
    numbers, factors = random.integers(0, 10**6, rows).tolist(), np.exp(random.normal(0, 0.3, rows)).tolist()
    made = []
    for source, number, factor, chance in zip(of, numbers, factors, random.random((rows, 40)), strict=True):
        row = sources[source]
        words_of = zip(str(row["title"]).split(), chance, strict=False)
        title = [next(others) if share < 1 / 3 else word for word, share in words_of]
        model = f"{str(row['modelno'] or 'x')[:3]}{number}"
        made.append((" ".join(title), row["category"], row["brand"], model, round((row["price"] or 50.0) * factor, 2)))
    return pd.DataFrame(made, columns=["title", "category", "brand", "modelno", "price"])


def misspelt(word: str, letter: str, place: float) -> str:
    """A word with one letter lost, doubled or exchanged for another."""
    at, kind = int(place * len(word)), int(3 * len(word) * place) % 3
    return word[:at] + ("", word[at : at + 1] + letter, letter)[kind] + word[at + 1 :]


def copied(table: pd.DataFrame, random: np.random.Generator) -> pd.DataFrame:
    """The rows of a table as another shop would have typed them."""
    cells: dict[str, Any] = {"price": table["price"].to_numpy(copy=True)}
    for column, longest in (("title", 40), ("category", 8), ("brand", 8), ("modelno", 2)):
        chances, letters = random.random((len(table), longest)), random.choice(LETTERS, len(table)).tolist()
        texts = []
        for text, chance, letter in zip(table[column], chances.tolist(), letters, strict=True):
            words = ["" if text is None else str(text)] if column == "modelno" else str(text or "").split()
            typed = [
                misspelt(word, letter, 8 * share) if share < TYPO else word
                for word, share in zip(words, chance, strict=False)
                if not (TYPO < share < TYPO + LOST and len(words) > 3)
            ]
            at = int(chance[0] * len(typed))
            texts.append(" ".join(typed[:at] + typed[at + 1 : at + 2] + typed[at : at + 1] + typed[at + 2 :]))
        cells[column] = np.array(texts, dtype=object)
    for name in ("category", "brand", "modelno", "price"):
        cells[name][random.random(len(table)) < EMPTY] = None if name != "price" else np.nan
    return pd.DataFrame({name: cells[name] for name in table.columns})


def tables(data: Path, rows: int) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Both tables, and all pairs that match."""
    random = np.random.default_rng(rows)
    both = read(data, "walmart_amazon")
    real = pd.concat(both[:2], ignore_index=True).drop(columns="id").astype({"price": float})
    real = real.astype(object).where(real.notna(), None)
    left, matched = varied(real, rows, random), int(COPIED * rows)
    right = copied(pd.concat([left[:matched], varied(real, rows - matched, random)], ignore_index=True), random)
    order = random.permutation(rows)
    names = np.arange(rows).astype(str)
    left.insert(0, "id", np.char.add("l", names))
    right.insert(0, "id", np.char.add("r", names))
    pairs = pd.DataFrame({"left": left["id"][:matched], "right": right["id"][:matched]})
    return left, right.iloc[order].reset_index(drop=True), pairs.sample(frac=1, random_state=0)


class Clock:
    """Processor seconds of parts of a run, and those of encoding, wherever it happens."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.encoding = 0.0

    def time(self, name: str, work: Callable[[], Any]) -> Any:
        """The answer of ``work``, whose time without encoding is written down."""
        begun, encoded, wall = time.process_time(), self.encoding, time.perf_counter()
        answer = work()
        self.seconds[name] = time.process_time() - begun - (self.encoding - encoded)
        print(f"{name}: {self.seconds[name]:.1f} s ({time.perf_counter() - wall:.1f} s by the wall)", flush=True)
        return answer

    def wrapped(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method whose time is that of encoding."""

        def timed(*given: Any, **named: Any) -> Any:
            begun = time.process_time()
            try:
                return method(*given, **named)
            finally:
                self.encoding += time.process_time() - begun

        return timed


def run(data: Path, rows: int, settings: dict[str, Any]) -> dict[str, float]:
    """Link tables of so many rows each."""
    left, right, truth = tables(data, rows)
    clock = Clock()
    print(f"{rows} rows are made", flush=True)
    MatchedTables.vectors_of = clock.wrapped(MatchedTables.vectors_of)  # type: ignore[method-assign]
    TableEncoder.fit = clock.wrapped(TableEncoder.fit)  # type: ignore[method-assign]
    wall, begun = time.perf_counter(), time.process_time()
    labelled, rest = truth[:LABELLED], truth[LABELLED:]
    model = RowMatcher(encoders={"text": "ngrams"}, scorer="boosting", **settings)
    clock.time("fit", lambda: model.fit(left, right, labelled, log=lambda line: print(line, flush=True)))
    links = clock.time("link", model.link)
    values = {"seconds": time.process_time() - begun, "wall": time.perf_counter() - wall}
    values |= {"encoder": clock.encoding, **clock.seconds}
    values["peak GiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    links = links[~links["left"].isin(labelled["left"])]
    right_ones = pd.merge(links, rest, on=["left", "right"])
    values["precision"], values["recall"] = len(right_ones) / len(links), len(right_ones) / len(rest)
    values["f1"] = 2 * len(right_ones) / (len(links) + len(rest))
    table = model.candidates()
    values["candidates"] = len(pd.merge(table, rest, on=["left", "right"])) / len(rest)
    if settings:
        model.close()
    print(*model.notes_, sep="\n", flush=True)
    return values


def write(key: dict[str, object], values: dict[str, float]) -> None:
    """Put a line into the CSV, in the place of one of the same key."""
    table = pd.read_csv(OUT) if OUT.is_file() else pd.DataFrame(columns=[*key, *values])
    same = (table[list(key)] == pd.Series(key)).all(axis=1)
    line = pd.DataFrame([{**key, **{name: round(value, 4) for name, value in values.items()}}])
    table = line if len(table) == 0 else pd.concat([table[~same], line], ignore_index=True)
    table.sort_values(list(key)).to_csv(OUT, index=False)


def markdown() -> str:
    """The table of the page."""
    shown = {
        "rows of each table": lambda row: f"{row['rows']:,}",
        "index of vectors": lambda row: row["index"],
        "encoder, s": lambda row: f"{row['encoder']:.0f}",
        "fit, s": lambda row: f"{row['fit']:.0f}",
        "link, s": lambda row: f"{row['link']:.0f}",
        "GiB": lambda row: f"{row['peak GiB']:.1f}",
        "copies among 10 candidates": lambda row: f"{row['candidates']:.4f}",
        "precision": lambda row: f"{row['precision']:.3f}",
        "recall": lambda row: f"{row['recall']:.3f}",
    }
    lines = [row_of(*shown), row_of(*["---"] * len(shown))]
    for _, row in pd.read_csv(OUT).iterrows():
        mark = " (before)" if row["code"] == "before" else ""
        cells = [cell(row) for cell in shown.values()]
        lines.append(row_of(cells[0] + mark, *cells[1:]))
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--index", default="exact")
    parser.add_argument("--code", default="this", help="before: the line is of a release that is older")
    parser.add_argument("--tables", action="store_true")
    arguments = parser.parse_args()
    if not arguments.tables:
        settings = {} if arguments.index == "exact" else {"index": arguments.index}
        short = arguments.index if "milvus" not in arguments.index else "milvus, a file"
        figures = run(arguments.data, arguments.rows, settings)
        write({"rows": arguments.rows, "index": short, "code": arguments.code}, figures)
    print(markdown())
