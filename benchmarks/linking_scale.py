"""Time, memory and recall of linking a million rows with a million: docs/results/matching-rows.md.

Persons are drawn, not taken from anywhere. Names are of two to four syllables; the k-th most frequent of 2,000 given
names, 8,000 surnames, 6,000 streets and 3,000 suburbs has a share in proportion to 1 / (k + 10), so that the first
given name has one person in 50. Streets, suburbs and postcodes follow one another: a suburb has one of 1,500
postcodes and 40 of the streets. Birthdays are spread over 80 years with more of the young, numbers of houses fall off
from 1 (a mean of 60), numbers of telephones have eight digits behind one of four area codes. The right table holds
four fifths of the left persons, in another order, and as many others as make it as long: of those a tenth has moved
(street number, street, suburb and postcode are new together), three tenths have another telephone, and then each cell
of the right table has a typo with probability .15 (a character lost, doubled, exchanged for another or for its
neighbor, each as often; of dates and numbers a digit for a digit) and is empty with probability .03.

Products are those of ``benchmarks/matching_scale.py``.

Both are written as csv first, so that reading and cleaning them is timed, too. Each run is a process of its own, so
that its memory is its own.

    python benchmarks/linking_scale.py --rows 10000 100000 1000000
    python benchmarks/linking_scale.py --what products --data DATA/retrieval --rows 10000 100000 1000000
    python benchmarks/linking_scale.py --tables
"""

import string
from pathlib import Path

import numpy as np
import pandas as pd

MATCHED, MOVED, NEW_PHONE, TYPO, EMPTY = 0.8, 0.1, 0.3, 0.15, 0.03
COLUMNS = ["given_name", "surname", "date_of_birth", "street_number", "street", "suburb", "postcode", "phone"]
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


def write_tables(folder: Path, what: str, rows: int, data: Path | None) -> None:
    """Left and right table and the pairs that match, as csv, if they are not there yet."""
    if (folder / "pairs.csv").is_file():
        return
    if what == "persons":
        tables = person_tables(rows)
    else:
        from matching_scale import tables as product_tables

        tables = product_tables(data, rows)
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in zip(("left", "right", "pairs"), tables, strict=True):
        table.to_csv(folder / f"{name}.csv", index=False)


if __name__ == "__main__":
    import sys

    write_tables(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]) if len(sys.argv) > 4 else None)
