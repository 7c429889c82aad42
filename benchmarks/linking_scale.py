"""Time, memory and recall of linking a million rows with a million: docs/results/match.md.

Persons are drawn, not taken from anywhere. Names are of two to four syllables; the k-th most frequent of 2,000 given
names, 8,000 surnames, 6,000 streets and 3,000 suburbs has a share in proportion to 1 / (k + 10), so that the first
given name has one person in 50. Streets, suburbs and postcodes follow one another: a suburb has one of 1,500
postcodes and 40 of the streets. Birthdays are spread over 80 years with more of the young, numbers of houses fall off
from 1 (a mean of 60), numbers of telephones have eight digits behind one of four area codes. The right table holds
four fifths of the left persons, in another order, and as many others as make it as long: of those a tenth has moved
(street number, street, suburb and postcode are new together), three tenths have another telephone, and then each cell
of the right table has a typo with probability .15 (a character lost, doubled, exchanged for another or for its
neighbor, each as often; of dates and numbers a digit for a digit) and is empty with probability .03.

Products are those of ``benchmarks/product_tables.py``.

Papers are the labelled tables of dblp-acm. Rows fill up the right one, of which each has the beginning of one title and
the end of another, authors of up to three papers, and a venue and a year of a paper each, empty with probability .2.
Further pairs, to 28,707 as dblp-scholar has them, join a left row and one with the beginning of its title: no match.

Both are written as csv first, so that reading and cleaning them is timed, too. Each run is a process of its own, so
that its memory is its own.

    python benchmarks/linking_scale.py --rows 10000 100000 1000000
    python benchmarks/linking_scale.py --what products --data DATA/retrieval --rows 10000 100000 1000000
    python benchmarks/linking_scale.py --what papers --data DATA/retrieval --rows 64263
"""

import json
import string
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matching_rows import read
from resumable import RESULTS, Lines, asked, peak_mb

from vicinal.core.identity import spelled
from vicinal.data.spelling import GAPS
from vicinal.linkage.block_keys import Cells
from vicinal.linkage.block_recall import estimated_recall
from vicinal.linkage.blocking import block_index
from vicinal.linkage.columns import CodedColumn
from vicinal.metrics import link_quality

MOST, EACH, RECORDS, ADDING = 30, 3, 1000, 60
"""Pairs for each left row by all rules, strongest pairs of a row, rows that come later, and most seconds for them."""

MATCHED, MOVED, NEW_PHONE, TYPO, EMPTY = 0.8, 0.1, 0.3, 0.15, 0.03
COLUMNS = ["given_name", "surname", "date_of_birth", "street_number", "street", "suburb", "postcode", "phone"]
GONE, LABELLED = 0.2, 28_707
DIGITS = {"date_of_birth", "street_number", "postcode", "phone"}


def names(count: int, ending: tuple[str, ...], random: np.random.Generator) -> np.ndarray:
    """So many different names of syllables."""
    starts = ["", *"bcdfghjklmnprstvwz", "br", "ch", "dr", "gr", "kr", "sch", "st", "th", "tr"]
    middles = ["a", "e", "i", "o", "u", "ai", "ea", "ie", "ou"]
    ends = ["", "", "", *"lmnrst", "nd", "ck"]
    seen: dict[str, None] = {}
    while len(seen) < count:
        parts = ["".join(random.choice(part) for part in (starts, middles, ends)) for _ in range(random.integers(2, 5))]
        seen["".join(parts)[:14] + random.choice(ending)] = None
    return np.array(list(seen), dtype=object)


def skewed(count: int, rows: int, random: np.random.Generator) -> np.ndarray:
    """Places ``[rows]`` of ``count`` values of which the k-th has a share in proportion to 1 / (k + 10)."""
    shares = 1 / (np.arange(count) + 11)
    return random.choice(count, rows, p=shares / shares.sum())


def addresses(rows: int, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Street number, street, suburb and postcode."""
    fixed = np.random.default_rng(1)
    streets, suburbs = names(6000, (" street", " road", " avenue", " lane"), fixed), names(3000, ("", "ton"), fixed)
    codes = fixed.choice(np.arange(1000, 10000), 1500, replace=False).astype(str)[fixed.integers(0, 1500, 3000)]
    there = np.stack([skewed(6000, 3000, fixed) for _ in range(40)], axis=1)
    suburb = skewed(3000, rows, random)
    street = there[suburb, np.minimum(random.geometric(0.07, rows) - 1, 39)]
    number = random.geometric(1 / 60, rows).astype(str)
    return {"street_number": number, "street": streets[street], "suburb": suburbs[suburb], "postcode": codes[suburb]}


def phones(rows: int, random: np.random.Generator) -> np.ndarray:
    """Numbers of telephones."""
    area = random.choice(["02", "03", "07", "08"], rows, p=[0.4, 0.3, 0.2, 0.1])
    return np.char.add(area, random.integers(10**7, 10**8, rows).astype(str))


def persons(rows: int, random: np.random.Generator) -> pd.DataFrame:
    """So many persons."""
    fixed = np.random.default_rng(0)
    given, surnames = names(2000, ("", "a", "o", "ine"), fixed), names(8000, ("", "son", "er", "ski"), fixed)
    born = np.datetime64("2010-12-31") - (80 * 365 * random.beta(1, 1.3, rows)).astype(int)
    cells = {
        "given_name": given[skewed(2000, rows, random)],
        "surname": surnames[skewed(8000, rows, random)],
        "date_of_birth": born.astype(str),
        **addresses(rows, random),
        "phone": phones(rows, random),
    }
    return pd.DataFrame({name: cells[name].astype(object) for name in COLUMNS})


def misspelt(text: str, share: float, letter: str, *, digits: bool) -> str:
    """A text with one mistake; ``share`` from 0 to 1 chooses where and which."""
    at, kind = int(share * len(text)), int(4 * len(text) * share) % 4
    if digits:
        while not text[at].isdigit():
            at -= 1
        return text[:at] + str((int(text[at]) + 1 + kind) % 10) + text[at + 1 :]
    swapped = text[at + 1 : at + 2] + text[at]
    return text[:at] + ("", 2 * text[at], letter, swapped)[kind] + text[at + (2 if kind == 3 else 1) :]


def typed(table: pd.DataFrame, random: np.random.Generator) -> pd.DataFrame:
    """The rows of a table as somebody else would have typed them."""
    rows, cells = len(table), {}
    for name in COLUMNS:
        column = table[name].to_numpy(copy=True)
        wrong = np.flatnonzero(random.random(rows) < TYPO)
        letters = random.choice(list(string.ascii_lowercase), len(wrong))
        shares = random.random(len(wrong))
        column[wrong] = [
            misspelt(text, share, letter, digits=name in DIGITS)
            for text, share, letter in zip(column[wrong], shares, letters, strict=True)
        ]
        column[random.random(rows) < EMPTY] = None
        cells[name] = column
    return pd.DataFrame(cells)


def person_tables(rows: int) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Both tables, and the pairs that match."""
    random = np.random.default_rng(rows)
    left, matched = persons(rows, random), int(MATCHED * rows)
    others = left[:matched].copy()
    moved, called = random.random(matched) < MOVED, random.random(matched) < NEW_PHONE
    for name, cells in addresses(int(moved.sum()), random).items():
        others.loc[moved, name] = cells
    others.loc[called, "phone"] = phones(int(called.sum()), random)
    right = typed(pd.concat([others, persons(rows - matched, random)], ignore_index=True), random)
    left.insert(0, "id", np.char.add("l", np.arange(rows).astype(str)))
    right.insert(0, "id", np.char.add("r", np.arange(rows).astype(str)))
    pairs = pd.DataFrame({"left": left["id"][:matched], "right": right["id"][:matched]})
    return left, right.iloc[random.permutation(rows)].reset_index(drop=True), pairs


def paper_tables(data: Path, rows: int) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Both tables, the right one of so many rows, and labelled pairs with their split."""
    left, right, pairs = read(data, "dblp_acm")
    random, every = np.random.default_rng(rows), pd.concat([left, right], ignore_index=True).drop(columns="id")
    first, last, *others = random.integers(0, len(every), (4, rows - len(right)))
    words, people = every["title"].str.split(), every["authors"].fillna("").str.split(" , ")
    cells: dict[str, Any] = {"id": [f"s{row}" for row in range(len(first))]}
    cells["title"] = [
        " ".join([*words[a][: 1 + int(share * len(words[a]))], *words[b][int(share * len(words[b])) :]])
        for a, b, share in zip(first, last, random.random(len(first)), strict=True)
    ]
    cells["authors"] = [
        " , ".join(dict.fromkeys(random.choice(people[row]) for row in random.integers(0, len(every), count)))
        for count in random.integers(1, 4, len(first))
    ]
    for name, drawn in zip(("venue", "year"), others, strict=True):
        cells[name] = every[name].astype(object).to_numpy()[drawn]
        cells[name][random.random(len(first)) < GONE] = None
    more = pd.DataFrame(cells)
    near = np.flatnonzero(first < len(left))[: LABELLED - len(pairs)]
    wrong = pd.DataFrame({"left": left["id"].to_numpy()[first[near]], "right": more["id"][near], "match": 0})
    wrong["split"] = random.choice(["train", "valid", "test"], len(wrong), p=[0.6, 0.2, 0.2])
    right = pd.concat([right, more], ignore_index=True).iloc[random.permutation(rows)]
    return left, right, pd.concat([pairs[wrong.columns], wrong], ignore_index=True)


def write_tables(folder: Path, what: str, rows: int, data: Path | None) -> None:
    """Left and right table and the pairs that match, as csv, if they are not there yet."""
    if (folder / "pairs.csv").is_file():
        return
    if what == "persons":
        tables = person_tables(rows)
    elif what == "papers":
        tables = paper_tables(data, rows)
    else:
        from product_tables import tables as products

        tables = products(data, rows)
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in zip(("left", "right", "pairs"), tables, strict=True):
        table.to_csv(folder / f"{name}.csv", index=False)


class Clock:
    """Seconds by the wall and of the processor since it was made, and of each step."""

    def __init__(self) -> None:
        self.begun = self.last = (time.perf_counter(), time.process_time())
        self.values: dict[str, float] = {}

    def step(self, name: str) -> None:
        """Write down what was done since the last step."""
        now = time.perf_counter(), time.process_time()
        self.values[f"{name}, s"] = now[0] - self.last[0]
        self.values |= {"wall, s": now[0] - self.begun[0], "processor, s": now[1] - self.begun[1]}
        self.values["peak, GiB"] = peak_mb() / 2**10
        self.last = now


def coded(left: pd.DataFrame, right: pd.DataFrame) -> list[CodedColumn]:
    """The shared columns, each distinct cell cleaned once."""
    columns = []
    for name in left.columns.drop("id"):
        codes, cells = pd.factorize(pd.concat([left[name], right[name]], ignore_index=True), use_na_sentinel=True)
        texts = [spelled(cell, loose=True) for cell in cells]
        columns.append(CodedColumn.of_codes(name, np.split(codes, [len(left)]), texts, GAPS))
    return columns


def places(table: pd.DataFrame, pairs: pd.DataFrame, side: str) -> np.ndarray:
    """Positions of the rows of pairs."""
    return pd.Index(table["id"]).get_indexer(pairs[side])


def among(pairs: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Which pairs are matches."""
    return np.isin(*(each[:, 0].astype(np.int64) << 32 | each[:, 1] for each in (pairs, truth)))


def candidates(folder: Path) -> dict[str, float]:
    """Read, clean and block the tables of a folder, and look up new records."""
    clock = Clock()
    left, right = (pd.read_csv(folder / f"{side}.csv", dtype=str, engine="pyarrow") for side in ("left", "right"))
    clock.step("reading")
    columns = coded(left, right)
    clock.step("cleaning")
    cells = Cells(columns)
    index = block_index(cells, single=False, most=MOST * len(left))
    every = index.candidates(cells)
    clock.step("candidates")
    strongest = every.strongest(EACH)
    clock.step("strongest")
    pairs = pd.read_csv(folder / "pairs.csv", dtype=str)
    truth = np.stack([places(left, pairs, "left"), places(right, pairs, "right")], axis=1)
    matches = among(every.pairs, truth)
    values = clock.values
    values |= {"pairs": len(matches), "recall": matches.sum() / len(truth), "strongest pairs": len(strongest.pairs)}
    values["their recall"] = among(strongest.pairs, truth).sum() / len(truth)
    values["estimated recall"] = estimated_recall(cells, index.rules, every.pairs, every.bits, matches.astype(float))
    values |= {"rules": len(index.rules), "largest block": index.largest}
    values["index, MiB"] = index.nbytes / 2**20
    return values


def links(folder: Path) -> dict[str, float]:
    """Link the tables of a folder with ``RowMatcher``, without labels, and then left rows that come one by one."""
    from vicinal.data import read_cells
    from vicinal.estimators import RowMatcher

    clock = Clock()
    left, right = (read_cells(folder / f"{side}.csv", ids=["id"]) for side in ("left", "right"))  # as the command does
    clock.step("reading")
    later = np.isin(
        np.arange(len(left)), np.random.default_rng(0).permutation(len(left))[: min(RECORDS, len(left) // 10)]
    )
    model = RowMatcher(encoders={"text": "none"}).fit(left[~later], right, log=print)
    clock.step("fit")
    found = model.link()
    clock.step("link")
    pairs = pd.read_csv(folder / "pairs.csv", dtype=str)
    new = pairs["left"].isin(left["id"][later])
    right_ones = len(pd.merge(found, pairs, on=["left", "right"]))
    values = {f"link: {name}": value for name, value in clock.values.items()}
    values |= {"link: precision": right_ones / len(found), "link: recall": right_ones / int((~new).sum())}
    return values | added(model, left[later], pairs[new])


def labelled(folder: Path) -> dict[str, float]:
    """Fit ``RowMatcher`` with labelled pairs, link the tables, and judge it by the test pairs."""
    from vicinal.data import read_cells
    from vicinal.estimators import RowMatcher

    clock = Clock()
    left, right = (read_cells(folder / f"{side}.csv", ids=["id"]) for side in ("left", "right"))
    pairs = pd.read_csv(folder / "pairs.csv", dtype={"left": str, "right": str})
    parts = dict(iter(pairs.groupby("split")))
    clock.step("reading")
    model = RowMatcher().fit(left, right, parts["train"], validation=parts["valid"], log=print)
    clock.step("fit")
    found = model.link()
    clock.step("link")
    truth = parts["test"]["match"].to_numpy() == 1
    quality = link_quality(model.predict(parts["test"]) == 1, truth)
    matches = pairs[pairs["match"] == 1]
    right_ones = len(pd.merge(found, matches, on=["left", "right"]))
    values = {**clock.values, "pairs": len(pairs), "test F1": quality.f1}
    values |= {"precision": right_ones / len(found), "recall": right_ones / len(matches)}
    return {f"link: {name}": value for name, value in values.items()}


def added(model: Any, rows: pd.DataFrame, pairs: pd.DataFrame) -> dict[str, float]:
    """Milliseconds of a processor for each row that comes, but for the first, and how right their links are.

    They come until all are there or a minute is over: a matcher that was refined links all rows again.
    """
    model.add(rows[:1])
    seconds, found = list[float](), []
    for row in range(1, len(rows)):
        if sum(seconds) > ADDING:
            pairs = pairs[pairs["left"].isin(rows["id"].iloc[:row])]
            break
        begun = time.process_time()
        found.append(model.add(rows[row : row + 1]))
        seconds.append(time.process_time() - begun)
    links = pd.concat(found)
    right_ones = len(pd.merge(links, pairs, on=["left", "right"]))
    values = {"ms": 1000 * np.median(seconds), "of 99 %, ms": 1000 * np.quantile(seconds, 0.99)}
    values |= {"precision": right_ones / len(links), "recall": right_ones / len(pairs)}
    return {f"add: {name}": value for name, value in values.items()}


STEPS = {"candidates": candidates, "links": links, "labelled": labelled}


def main() -> None:
    """Write what is not there yet, measured in a process of its own."""
    options = {"what": "persons", "rows": [10_000], "data": None, "folder": Path("runs/linking-scale")}
    arguments = asked(__doc__, 0, **options, measure="")  # "measure": a step of --folder, in this process
    if arguments.measure:
        values = STEPS[arguments.measure](arguments.folder)
        print(json.dumps(values, default=float))
        return
    lines = Lines(RESULTS / "linking-scale.csv", "what", "rows")
    for rows in arguments.rows:
        if (arguments.what, rows) in lines:
            continue
        folder, values = arguments.folder / f"{arguments.what}-{rows}", {}
        write_tables(folder, arguments.what, rows, arguments.data)
        for step in ("labelled",) if arguments.what == "papers" else ("candidates", "links"):
            settings = ["--measure", step, "--folder", str(folder)]
            run = subprocess.run([sys.executable, __file__, *settings], check=True, capture_output=True, text=True)
            print(run.stdout, flush=True)
            values |= json.loads(run.stdout.splitlines()[-1])
        lines.add([{"what": arguments.what, "rows": rows, **values}], "%.4f")


if __name__ == "__main__":
    main()
