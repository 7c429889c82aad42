"""Texts by the words and letters that they share; rare ones count more."""

import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from sklearn.utils.murmurhash import murmurhash3_32
from torch import Tensor

from vicinal.core import check_choice
from vicinal.core.checks import check_integer
from vicinal.core.threads import in_threads
from vicinal.index.base import Hits, ordered
from vicinal.ranks.aggregation import reciprocal_rank_sums

Sparse = Any
Floats = np.ndarray[Any, np.dtype[np.float64]]

BUCKETS = 1 << 18
"""Terms that fall in one bucket are one term."""

_BLOCK = 1 << 10
"""Rows whose products with all others are held at a time; by all threads together at most twice as many."""

_TIMES, _MORE = 2, 20
"""So many times the rows that are wanted, and so many more, are compared by all terms after a search by the rarest."""

_KNOWN = 1 << 18
"""Words whose terms are remembered, at most: most words of a table occur again and again."""

_GRAMS = 4
"""Letters of an n-gram, at the most; those of three are taken, too."""

_WORD = re.compile(r"\w+")
_CODE = re.compile(r"\S*\d\S*")
_CUT = re.compile(r"[\W_]+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def codes(text: str) -> list[str]:
    """Words that hold a digit, without what is no letter or digit: model numbers, sizes, years.

    >>> codes("Canon EOS-5D, 24-105mm lens")
    ['eos5d', '24105mm']
    """
    return [word for word in map(without_marks, _CODE.findall(text.lower())) if len(word) > 1]


def without_marks(text: str) -> str:
    """Letters and digits alone.

    >>> without_marks("KX-FA 132")
    'KXFA132'
    """
    return _CUT.sub("", text)


def letters(word: str) -> list[str]:
    """N-grams of three and four letters of a word between two spaces, which is one itself if it is short.

    >>> letters("red")
    [' re', 'red', 'ed ', ' red', 'red ']
    """
    padded = f" {word} "
    sizes = [size for size in range(_GRAMS - 1, _GRAMS + 1) if size <= len(padded)]
    return [padded[start : start + size] for size in sizes for start in range(len(padded) - size + 1)]


def numbers(word: str) -> list[str]:
    """Numbers of a word, whatever their unit.

    >>> numbers("16.0mp"), numbers("24-105mm")
    (['16'], ['24', '105'])
    """
    return [number.rstrip("0").rstrip(".") if "." in number else number for number in _NUMBER.findall(word)]


_TERMS: dict[str, Callable[[str], list[str]]] = {
    "words": _WORD.findall,
    "letters": letters,
    "codes": codes,
    "numbers": numbers,
}
"""Terms of a word, which stands between spaces, in small letters."""


class _Buckets(dict[str, bytes]):
    """Buckets of the terms of a word, as int32, by MurmurHash3 as scikit-learn's HashingVectorizer takes it."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.terms = _TERMS[kind]

    def __missing__(self, word: str) -> bytes:
        buckets = array("i", [abs(murmurhash3_32(term)) % BUCKETS for term in self.terms(word)]).tobytes()
        if len(self) < _KNOWN:
            self[word] = buckets
        return buckets


class Terms:
    r"""Sets of hashed terms, each weighed by how rare it is: $w_t = \log \frac{1+n}{1+n_t} + 1$.

    Args:
        kind: "words", "letters" (n-grams of three and four within words), "codes" (see :func:`codes`) or "numbers".

    Attributes:
        weights: w of each bucket, 1 until :meth:`fit` finds them.

    >>> terms = Terms("words").fit(["red shoes", "red hat", "red scarf"])
    >>> shared = terms.shared(terms.of(["red hat"]), terms.of(["a hat"]))
    >>> bool(shared.of_left[0] > 0.6 > shared.cosine[0] > 0.5)  # "hat" is rare, and so is "a"
    True
    """

    def __init__(self, kind: str) -> None:
        self.kind = check_choice("kind", kind, _TERMS)
        self.weights: Floats = np.ones(BUCKETS, dtype=np.float32)
        self._buckets = _Buckets(kind)

    def counts(self, texts: Sequence[str]) -> Sparse:
        """How often each term stands in each text, sparse ``[n, BUCKETS]``."""
        rows = [b"".join(map(self._buckets.__getitem__, text.lower().split())) for text in texts]
        columns = np.frombuffer(bytearray().join(rows), dtype=np.int32)
        ends = np.cumsum([0, *map(len, rows)]) // columns.itemsize
        ones = np.ones(len(columns), dtype=np.float32)
        counted = scipy.sparse.csr_matrix((ones, columns, ends), shape=(len(texts), BUCKETS))
        counted.sum_duplicates()
        return counted

    def fit(self, texts: Sequence[str]) -> "Terms":
        """Count in how many of ``texts`` each term stands."""
        return self.fit_counts([self.counts(texts)])

    def fit_counts(self, tables: Sequence[Sparse]) -> "Terms":
        """:meth:`fit` to texts of several tables, of which these are the :meth:`counts`."""
        rows = sum(part.shape[0] for part in tables)
        counts = sum(np.bincount(part.indices, minlength=BUCKETS) for part in tables)
        self.weights = (np.log((1 + rows) / (1 + counts)) + 1).astype(np.float32)
        return self

    def of(self, texts: Sequence[str]) -> Sparse:
        """Roots of the weights of each text's terms, sparse ``[n, BUCKETS]``: products sum weights of shared terms."""
        return self.of_counts(self.counts(texts))

    def of_counts(self, counts: Sparse) -> Sparse:
        """What :meth:`of` gives of texts, from their :meth:`counts`."""
        roots = np.sqrt(self.weights[counts.indices])
        return scipy.sparse.csr_matrix((roots, counts.indices, counts.indptr), counts.shape)

    def unit(self, counts: Sparse) -> Sparse:
        """Rows of length 1 in which a term that stands c times has w (1 + log c), sparse ``[n, BUCKETS]``."""
        values = self.weights[counts.indices] * (1 + np.log(counts.data))
        sizes = np.diff(counts.indptr)
        some = sizes > 0
        squares = (
            np.add.reduceat(values * values, counts.indptr[:-1][some], dtype=np.float64) if some.any() else np.zeros(0)
        )
        values /= np.repeat(np.sqrt(squares).astype(np.float32), sizes[some])
        return scipy.sparse.csr_matrix((values, counts.indices, counts.indptr), counts.shape)

    def shared(self, left: Sparse, right: Sparse) -> "Shared":
        """What each row of one matrix shares with the same row of the other; see :class:`Shared`."""
        both = np.asarray(left.multiply(right).sum(axis=1)).ravel()
        return Shared(both, *(np.asarray(side.multiply(side).sum(axis=1)).ravel() for side in (left, right)))


class Shared(NamedTuple):
    """Weight ``[n]`` of the terms that two texts share, and of those of each.

    Attributes:
        both: of the shared ones.
        left: of all of the one text.
        right: of all of the other.
    """

    both: Floats
    left: Floats
    right: Floats

    @property
    def cosine(self) -> Floats:
        """From 0 to 1; 0 where a text has no terms."""
        return self.both / np.sqrt(np.maximum(self.left * self.right, 1e-12))

    @property
    def of_left(self) -> Floats:
        """Share of the left text's weight that is shared."""
        return self.both / np.maximum(self.left, 1e-12)

    @property
    def of_right(self) -> Floats:
        """Share of the right text's weight that is shared."""
        return self.both / np.maximum(self.right, 1e-12)


def beside(parts: Sequence[Sparse]) -> Sparse:
    """Unit rows of several kinds of terms side by side: their products are means of cosines."""
    return scipy.sparse.hstack(list(parts), format="csr") * np.float32(len(parts) ** -0.5)


class LexicalIndex:
    """Texts by what they share in words and letters: the mean of the cosines of several kinds of :class:`Terms`.

    Args:
        rows: what :func:`beside` gives of the :meth:`Terms.unit` of each kind.

    >>> texts = ["red shoes", "blue shoes", "a hat"]
    >>> terms = [Terms(kind).fit(texts) for kind in ("words", "letters")]
    >>> def rows_of(some):
    ...     return beside([each.unit(each.counts(some)) for each in terms])
    >>> LexicalIndex(rows_of(texts)).search(rows_of(["shoes of red color"]), 1).ids.tolist()
    [[0]]
    """

    def __init__(self, rows: Sparse) -> None:
        self._rows = rows
        self._columns = rows.T.tocsr()

    def search(
        self, queries: Sparse, k: int, *, exclude: Tensor | None = None, postings: Sequence[int] | None = None
    ) -> Hits:
        """The ``k`` rows that share most with each query, best first; fewer where fewer share anything.

        Blocks of queries are searched at a time, one for each thread of ``torch.get_num_threads()``.

        Args:
            queries: rows like those of the index, ``[b, ...]``.
            k: >= 1.
            exclude: positions ``[b]`` of rows that a query may not get, such as its own; -1 for none.
            postings: by kind: of each query the rarest terms look for rows, those that stand in so many rows in all;
                the best of what they find is then compared by all terms. So the time for a query does not grow with
                the rows, and one that shares common terms alone may be missed. None: all terms, which is exact.
        """
        check_integer("k", k)
        count = queries.shape[0]
        hidden = np.full(count, -1) if exclude is None else exclude.numpy()
        ids, scores = np.full((count, k), -1), np.full((count, k), -np.inf, dtype=np.float32)

        step = max(1, 2 * _BLOCK // max(torch.get_num_threads(), 2))

        def search_block(start: int) -> None:
            part = slice(start, start + step)
            for row, (columns, values) in enumerate(self._best(queries[part], k, hidden[part], postings), start):
                ids[row, : len(columns)], scores[row, : len(columns)] = columns, values

        in_threads(search_block, range(0, count, step))
        hits = ordered(torch.from_numpy(ids), torch.from_numpy(scores))
        return Hits(hits.ids, hits.scores)

    def _best(self, block: Sparse, k: int, hidden: Any, postings: Sequence[int] | None) -> Iterator[tuple[Any, Any]]:
        """Places and scores of the best rows of each query of a block, in any order."""
        rarest = block if postings is None else self._rarest(block, postings, k)
        depth = k if rarest.nnz == block.nnz else _TIMES * k + _MORE
        whole = np.zeros(self._rows.shape[1], dtype=np.float32)  # one query at a time
        for row, (columns, values) in enumerate(_rows(rarest @ self._columns)):
            columns, values = _best(columns, values, depth, hidden[row])
            if depth > k:
                terms = slice(*block.indptr[row : row + 2])
                whole[block.indices[terms]] = block.data[terms]
                columns, values = _best(columns, self._rows[columns] @ whole, k)
                whole[block.indices[terms]] = 0
            yield columns, values

    def _rarest(self, queries: Sparse, postings: Sequence[int], k: int) -> Sparse:
        """Queries with their rarest terms of each kind alone, that stand in so many rows, or in at least k."""
        kind, counts = queries.indices // BUCKETS, np.diff(queries.indptr)
        owner = np.repeat(np.arange(len(counts)), counts)
        group = owner * len(postings) + kind
        lengths = np.diff(self._columns.indptr)[queries.indices]
        order = np.lexsort((lengths, group))
        lengths, group, kind = lengths[order], group[order], kind[order]
        upto = np.cumsum(lengths, dtype=np.int64)  # from the first term of all on
        first = np.diff(group, prepend=-1) > 0
        upto -= np.maximum.accumulate(np.where(first, upto - lengths, 0))
        chosen = np.sort(order[(upto <= np.array(postings)[kind]) | (upto - lengths < k)])
        ends = np.concatenate([[0], np.bincount(owner[chosen], minlength=len(counts)).cumsum()])
        return scipy.sparse.csr_matrix((queries.data[chosen], queries.indices[chosen], ends), shape=queries.shape)


def _rows(matrix: Sparse) -> Iterator[tuple[Any, Any]]:
    for start, stop in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
        yield matrix.indices[start:stop], matrix.data[start:stop]


def _best(columns: Any, values: Any, k: int, hidden: int = -1) -> tuple[Any, Any]:
    """The ``k`` columns of highest values, in any order, without one."""
    if hidden >= 0:
        allowed = columns != hidden
        columns, values = columns[allowed], values[allowed]
    if len(values) <= k:
        return columns, values
    best = np.argpartition(-values, k - 1)[:k]
    return columns[best], values[best]


def fuse(searches: Sequence[Hits], k: int) -> Hits:
    r"""One list of several for each query by reciprocal rank fusion: highest $\sum 1 / (60 + \mathrm{rank})$ first.

    Ranks are from 1; a row that a search has not found adds nothing for it.

    Args:
        searches: of the same queries, ``[b, k_i]``.
        k: rows of the fused list.

    Paper: Cormack, Clarke and Buettcher, 2009.

    >>> one = Hits(torch.tensor([[4, 7]]), torch.zeros(1, 2))
    >>> fuse([one, Hits(torch.tensor([[7, 9]]), torch.zeros(1, 2))], 2).ids.tolist()
    [[7, 4]]
    """
    ids = torch.cat([hits.ids for hits in searches], dim=1)
    ranks = torch.cat([torch.arange(1, hits.ids.shape[1] + 1).expand_as(hits.ids) for hits in searches], dim=1)
    items, summed, _ = reciprocal_rank_sums(ids, ranks, 60.0)
    best = ordered(items, torch.where(items >= 0, summed, -torch.inf).float())
    return Hits(best.ids[:, :k], best.scores[:, :k])
