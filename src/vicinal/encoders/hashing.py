"""Hashed character n-grams of many texts at once, the same on every machine and in every run.

All substrings of all texts get their hash from prefix sums of one polynomial modulo 2^64, so that the work is a few
passes over arrays instead of a loop over n-grams.
"""

import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

U64 = np.ndarray[Any, np.dtype[np.uint64]]
I64 = np.ndarray[Any, np.dtype[np.int64]]

BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2^64
WORD_START, WORD_END = 2, 3  # control characters that stand for the borders of a word


def normal(text: str, *, fold_case: bool = True) -> str:
    """Text with compatible characters made one, and case folded unless told otherwise.

    >>> normal("Straße")
    'strasse'
    """
    text = unicodedata.normalize("NFKC", text)
    return text.casefold() if fold_case else text


def mixed(values: U64) -> U64:
    """Spread 64-bit numbers (the finalizer of splitmix64): each input bit reaches each output bit."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def powers(base: int, count: int) -> U64:
    """``base`` to the powers 0 to ``count - 1``, modulo 2^64."""
    steps = np.full(count, base, dtype=np.uint64)
    steps[:1] = 1
    return np.multiply.accumulate(steps)


def bordered(texts: Sequence[str], *, fold_case: bool) -> tuple[U64, I64, I64, I64]:
    """Characters of all words with borders, and where each word starts, ends and which text it is of."""
    words: list[str] = []
    owners: list[int] = []
    for number, text in enumerate(texts):
        parts = normal(text, fold_case=fold_case).split()
        words.extend(parts)
        owners.extend([number] * len(parts))
    joined = "".join(f"{chr(WORD_START)}{word}{chr(WORD_END)}" for word in words)
    characters = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
    lengths = np.fromiter((len(word) + 2 for word in words), dtype=np.int64, count=len(words))
    ends = lengths.cumsum()
    return characters, ends - lengths, ends, np.asarray(owners, dtype=np.int64)


def hashed_ngrams(
    texts: Sequence[str], *, sizes: Sequence[int], pairs: bool, buckets: int, fold_case: bool
) -> tuple[I64, I64, I64]:
    """Buckets of the n-grams of each text.

    Args:
        texts: any strings; an empty one has no n-grams.
        sizes: lengths of n-grams in characters. They stay inside words, whose borders count as characters. Words
            as wholes are always among them.
        pairs: whether two words in a row are one more n-gram.
        buckets: number of buckets.
        fold_case: whether case is folded.

    Returns:
        ``(offsets [n + 1], bucket [m], count [m])``: the buckets of text ``i``, in rising order and each once with
        how often it was hit, are ``bucket[offsets[i] : offsets[i + 1]]``.

    >>> offsets, bucket, count = hashed_ngrams(["aa", ""], sizes=[1], pairs=False, buckets=1000, fold_case=True)
    >>> offsets.tolist(), count.sum()
    ([0, 2, 2], np.int64(3))
    """
    characters, starts, ends, owners = bordered(texts, fold_case=fold_case)
    total = len(characters)
    weight = powers(BASE, total + 1)
    back = powers(pow(BASE, -1, 1 << 64), total + 1)
    prefix = np.zeros(total + 1, dtype=np.uint64)
    np.cumsum(mixed(characters + np.uint64(BASE)) * weight[:total], out=prefix[1:])

    def hashes(first: I64, last: I64, salt: int) -> U64:
        plain = (prefix[last] - prefix[first]) * back[first]
        return mixed(plain + np.uint64(salt * BASE & (1 << 64) - 1))

    word_of = np.repeat(np.arange(len(starts)), ends - starts)  # [total]
    hashed, of_text = [hashes(starts, ends, 0)], [owners]
    position = np.arange(total)
    border = (characters == WORD_START) | (characters == WORD_END)
    for size in sizes:
        inside = position + size <= ends[word_of] if total else position.astype(bool)
        if size == 1:
            inside &= ~border
        first = position[inside]
        hashed.append(hashes(first, first + size, size))
        of_text.append(owners[word_of[first]])
    if pairs and len(owners) > 1:
        left = np.flatnonzero(owners[:-1] == owners[1:])
        hashed.append(hashes(starts[left], ends[left + 1], -1))
        of_text.append(owners[left])
    return _counted(np.concatenate(hashed), np.concatenate(of_text), len(texts), buckets)


def _counted(hashes: U64, owners: I64, texts: int, buckets: int) -> tuple[I64, I64, I64]:
    keys = owners * buckets + (hashes % np.uint64(buckets)).astype(np.int64)
    unique, count = np.unique(keys, return_counts=True)
    offsets = np.searchsorted(unique, np.arange(texts + 1) * buckets)
    return offsets.astype(np.int64), unique % buckets, count.astype(np.int64)
