"""Two large tables of products, made of those of walmart-amazon.

Each row of the left table is a real one with a third of the words of its title drawn from other titles, another model
number and another price, so that a row has hundreds of near relations. The right table holds copies of four fifths of
them, in another order, and as many others as make it as long: one word in eight has a typo, one in eight is missing,
two words change places, and a cell in seven is empty.
"""

import string
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matching_rows import read

COPIED = 0.8
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
