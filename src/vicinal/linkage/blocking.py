"""Candidates of large tables: rows that have a rare key in common, by sorted keys; no block costs its square."""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch

from vicinal.core.threads import in_threads, pieces
from vicinal.linkage.block_keys import Cells, Hashes, Rule, mixed, runs
from vicinal.linkage.block_rules import choose_rules
from vicinal.linkage.columns import Floats, Ids

ROW_BITS = 28
"""Bits of a row's number beside those of its key: a table may have 268 million rows."""

_RULE_BITS, _SIZE_BITS, _STEP = 5, 8, 16
"""Bits of the number of a rule, and of the logarithm of the size of a block, in sixteenths."""

_SHIFT, _ROW = np.uint64(ROW_BITS), np.uint64((1 << ROW_BITS) - 1)

_LARGEST = 1 << 12
"""Rows of a block up to which block sizes are told apart."""

_PAIRS = 1 << 23
"""Pairs that are made at a time, each once for each rule: 64 MiB, and as much thrice while they are sorted."""

_ROWS = 1 << 17
"""Left rows that are looked up at a time."""


_Blocks = tuple[Hashes, Hashes, list[tuple[Hashes, Ids, Ids]]]
"""Of a rule: rows whose keys have a block, sixteen times log2 of its rows, and in each part of the index the keys with
their rows, where each block begins, and how many rows it has there."""


def _packed(keys: Hashes, rows: Ids) -> Hashes:
    """Keys with their rows, rising."""
    return np.sort((keys >> _SHIFT << _SHIFT) | rows.astype(np.uint64))


class BlockedPairs(NamedTuple):
    """Pairs of rows that rules found.

    Attributes:
        pairs: positions int32 ``[n, 2]``, each pair once, rising.
        bits: uint32 ``[n]``: bit r is set if rule r found the pair.
        evidence: float32 ``[n]``, in bits: the sum over the keys that both rows have of log2(rows / rows that have it),
            to 1/16.
    """

    pairs: Ids
    bits: Ids
    evidence: Floats

    def strongest(self, each: int) -> "BlockedPairs":
        """Those that are among the ``each`` pairs with most evidence of their left or of their right row.

        Pairs of equal evidence are in an order that a hash of their positions gives.
        """

        def weakness(some: slice) -> Hashes:
            mixing = mixed([part.astype(np.uint64) + np.uint64(1) for part in self.pairs[some].T])
            weak = np.uint64((1 << 16) - 1) - np.minimum(self.evidence[some] * _STEP, (1 << 16) - 1).astype(np.uint64)
            return (weak << np.uint64(20)) | (mixing >> np.uint64(44))

        parts = in_threads(weakness, pieces(len(self.pairs), _ROWS))
        weak = np.concatenate([np.zeros(0, dtype=np.uint64), *parts])
        strong = np.zeros(len(self.pairs), dtype=bool)
        for side in (0, 1):
            key = (self.pairs[:, side].astype(np.uint64) << np.uint64(36)) | weak
            sizes = np.bincount(self.pairs[:, side])
            last = np.sort(key)[np.cumsum(sizes) - np.maximum(sizes - each, 0) - 1]
            strong |= key <= last[self.pairs[:, side]]
        return BlockedPairs(*(part[strong] for part in self))


class BlockIndex:
    """Keys of the rows of a table, sorted, so that rows with a key in common are found at once.

    Each key is a number of 8 bytes that holds 36 bits of a hash and the number of the row; different keys that share
    these bits give a candidate too many, about one in 2^36 of all pairs.

    Args:
        rules: at most 32.

    Attributes:
        largest: rows of a key beyond which it finds none: the block is too large to tell its rows apart.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules, self.largest, self.rows = list(rules), _LARGEST, 0
        self._parts: list[list[Hashes]] = [[] for _ in self.rules]

    @property
    def nbytes(self) -> int:
        """Memory of the keys."""
        return sum(part.nbytes for parts in self._parts for part in parts)

    def add(self, cells: Cells, side: int = 0) -> "BlockIndex":
        """Put in the rows of one side; they are numbered on from those that are in.

        Added rows are sorted among themselves, and merged with as many others: n rows one by one are sorted log n
        times.
        """
        rows = cells.rows(side)
        if self.rows + rows > 1 << ROW_BITS:
            raise ValueError(f"rows: expected at most {1 << ROW_BITS:,}, got {self.rows + rows:,}; split the table")

        def of_rule(number: int) -> None:
            packed, parts = [np.zeros(0, dtype=np.uint64)], self._parts[number]
            for piece in pieces(rows, _ROWS):
                keys, at = self.rules[number].keys(cells, side, piece)
                packed.append(_packed(keys, at + (self.rows + piece.start)))
            parts.append(np.sort(np.concatenate(packed)))
            while len(parts) > 1 and 2 * len(parts[-1]) >= len(parts[-2]):
                parts[-2:] = [np.sort(np.concatenate(parts[-2:]))]

        in_threads(of_rule, range(len(self.rules)), rows)
        self.rows += rows
        return self

    def block_sizes(self, cells: Cells, rows: Ids | slice = slice(None)) -> Ids:
        """Of each rule how many keys of left rows have a block of each size, ``[rules, 4098]``, larger ones last."""
        counts = np.zeros((len(self.rules), _LARGEST + 2), dtype=np.int64)
        for number, rule in enumerate(self.rules):
            keys, _ = rule.keys(cells, 0, rows)
            spans = self._spans(number, np.sort(keys >> _SHIFT << _SHIFT))
            sizes = sum((end - begin for begin, end in spans), np.zeros(len(keys), dtype=np.int64))
            counts[number] = np.bincount(np.minimum(sizes, _LARGEST + 1), minlength=_LARGEST + 2)
        return counts

    def candidates(self, cells: Cells, *, later: bool = False) -> BlockedPairs:
        """Which rows of the index share a key with which left ones.

        Args:
            cells: of the rows that are looked up.
            later: only rows of the index behind the row itself: each pair of one table once.
        """
        threads = torch.get_num_threads()

        def blocked(first: int, last: int) -> list[BlockedPairs]:
            """Candidates of a range of rows, so many at a time that they fit."""
            spans = [self._within(number, cells, slice(first, last)) for number in range(len(self.rules))]
            total = sum(int(sizes.sum()) for *_, blocks in spans for _, _, sizes in blocks)
            if total <= _PAIRS // threads or last - first < 2:
                return [self._joined(spans, first, later=later)]
            return blocked(first, (first + last) // 2) + blocked((first + last) // 2, last)

        ranges = pieces(cells.rows(0), max(1, _ROWS // threads))
        out = in_threads(lambda piece: blocked(piece.start, piece.stop), ranges)
        nothing = np.zeros((0, 2), np.int32), np.zeros(0, np.uint32), np.zeros(0, np.float32)
        return BlockedPairs(*map(np.concatenate, zip(nothing, *chain(*out), strict=True)))

    def _within(self, number: int, cells: Cells, rows: slice) -> _Blocks:
        """The blocks of a rule's keys."""
        keys, at = self.rules[number].keys(cells, 0, rows)
        packed = _packed(keys, at)
        row = packed & _ROW
        spans = self._spans(number, packed - row)
        size = sum((end - begin for begin, end in spans), np.zeros(len(row), dtype=np.int64))
        there = (size > 0) & (size <= self.largest)
        logs = np.round(_STEP * np.log2(size[there])).astype(np.uint64)
        parts = zip(self._parts[number], spans, strict=True)
        return row[there], logs, [(part, begin[there], (end - begin)[there]) for part, (begin, end) in parts]

    def _spans(self, number: int, keys: Hashes) -> list[tuple[Ids, Ids]]:
        """Where the blocks of rising keys begin and end in each part of a rule's keys."""
        spans = []
        for part in self._parts[number]:
            begin = np.searchsorted(part, keys)
            there = np.flatnonzero(begin < len(part))
            there = there[part[begin[there]] <= keys[there] | _ROW]
            end = begin.copy()
            end[there] = np.searchsorted(part, keys[there] | _ROW, side="right")
            spans.append((begin, end))
        return spans

    def _joined(self, rules: list[_Blocks], first: int, *, later: bool) -> BlockedPairs:
        """The pairs of all rules, each once."""
        entries = [np.zeros(0, dtype=np.uint64)]
        for number, (rows, logs, blocks) in enumerate(rules):
            for part, starts, sizes in blocks:  # each row with those of its block, as one number
                pair = (np.repeat(rows, sizes) << _SHIFT) | (part[runs(starts, sizes)] & _ROW)
                size = np.repeat(logs, sizes)
                if later:
                    behind = (pair & _ROW) > (pair >> _SHIFT) + np.uint64(first)
                    pair, size = pair[behind], size[behind]
                named = (pair << np.uint64(_RULE_BITS)) | np.uint64(number)
                entries.append((named << np.uint64(_SIZE_BITS)) | size)
        entry = np.sort(np.concatenate(entries))
        pair = entry >> np.uint64(_RULE_BITS + _SIZE_BITS)
        begins = np.flatnonzero(np.append(True, pair[1:] != pair[:-1])[: len(pair)])
        of = (entry >> np.uint64(_SIZE_BITS)) & np.uint64((1 << _RULE_BITS) - 1)
        sizes = (entry & np.uint64((1 << _SIZE_BITS) - 1)).astype(np.float32) / _STEP
        bits = np.bitwise_or.reduceat(np.uint32(1) << of.astype(np.uint32), begins)
        evidence = np.add.reduceat(np.log2(np.float32(max(1, self.rows))) - sizes, begins)
        left, right = (pair[begins] >> _SHIFT).astype(np.int32) + first, (pair[begins] & _ROW).astype(np.int32)
        return BlockedPairs(np.stack([left, right], axis=1), bits, evidence)


def block_index(cells: Cells, *, single: bool, most: int) -> BlockIndex:
    """The index by which pairs of rows are found that are worth comparing, of tables of which all pairs are too many.

    Rows are candidates if they agree in one of up to 32 combinations of columns and halves of columns, or have two
    rare words in common. The combinations are chosen from the tables. Keys that more right rows have than the largest
    block find none; the largest block is the one with which all rules give about ``most`` pairs, so that the memory is
    known before a pair is made: 8 bytes for each key of a right row, 16 for each pair, and 256 MiB.

    Args:
        cells: of both tables.
        single: whether both are one table.
        most: pairs, each counted once for each key by which it is found: there are several times fewer.

    Returns:
        That of the right rows, or of the only table.
    """
    rows, times = cells.rows(0), 1 + single  # both rows of a pair of one table find it
    rules = choose_rules(cells, most / max(1, rows), single=single)
    index = BlockIndex(rules).add(cells, 1)
    some = np.random.default_rng(0).permutation(rows)[:_ROWS]
    sizes = index.block_sizes(cells, np.sort(some)) * (rows / max(1, len(some)) / times)
    expected = np.cumsum(sizes.sum(axis=0) * np.arange(_LARGEST + 2))[: _LARGEST + 1]
    index.largest = max(1, int(np.searchsorted(expected, most, side="right")) - 1)
    return index
