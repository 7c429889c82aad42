"""Which known rows speak for a new one by its columns: a kernel with a length for each column, and convex weights."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from numpy.typing import NDArray

from vicinal.core.checks import counted
from vicinal.data.form import TableForm
from vicinal.encoders import Kind, build_table_encoder, infer_kinds
from vicinal.encoders.base import Features
from vicinal.heads.kriging_weights import kriging_weights

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

RATES, NOISES = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0), (0.1, 0.3, 1.0, 3.0, 10.0)
"""Rates of columns and shares of noise that are tried."""

_MOST, _BLOCK = 1000, 256
"""Rows that rates are chosen by, and new rows that are compared at a time."""

_KINDS = ("number", "category", "text", "vector", "set")
"""Kinds of columns that are read; images and sounds have to be vectors first."""


class NearRows(NamedTuple):
    """Known rows ``places [b, k]`` and their ``weights [b, k]``, not negative, of sum 1."""

    places: Places
    weights: Floats

    def mean(self, values: Floats) -> Floats:
        """Weighted means ``[b, d]`` of what the known rows have, ``[n, d]``."""
        return np.einsum("bk,bkd->bd", self.weights, values[self.places])


class ColumnKernel:
    r"""$k(x, x') = \exp(-\sum_c a_c\, d_c^2(x, x') / \bar d_c^2)$ over columns c, rates learned from vectors of rows.

    $d_c$ is the distance of what the untrained encoder of the column gives (standardized numbers, one-hot categories,
    bags of words and letters), $\bar d_c^2$ its mean over pairs of rows. The rates $a_c$ and the noise are those of a
    grid, column by column, that predict the vectors of up to 1,000 rows best when each is left out. A new row is a mean
    of the vectors of its nearest known rows, by convex kriging weights (:func:`vicinal.heads.kriging_weights`).

    Args:
        frame: the known rows.
        kinds: of columns that should not be detected.
        encoders: by column or kind, see :func:`vicinal.encoders.build_table_encoder`; texts default to "ngrams".
        form: how columns are written; None: as these rows show.

    Attributes:
        columns: their kinds.
        skipped: by column, why it is not read.
        rates: ``a`` by column.
        means: of the squared distances between rows, by column.
        noise: on the diagonal of the kernel.
        explained: share of the variance of the vectors that rows left out are predicted by.
    """

    def __init__(
        self,
        frame: pd.DataFrame,
        kinds: Mapping[str, Kind] | None = None,
        encoders: Mapping[str, str] | None = None,
        form: TableForm | None = None,
    ) -> None:
        self.form = TableForm.of(frame, kinds=kinds) if form is None else form
        rows = self.form.read(frame)
        named = {name: kind for name, kind in (kinds or {}).items() if name in rows.columns}
        every = infer_kinds(rows, named)
        self.columns: dict[str, Kind] = {n: c.kind for n, c in every.items() if c.kind is not None and c.kind in _KINDS}
        self.skipped = {
            name: column.reason if column.kind is None else f"{column.kind}s are not read here"
            for name, column in every.items()
            if name not in self.columns
        }
        choices = {"text": "ngrams", **(encoders or {})}
        self._encoders = {}
        for name, kind in self.columns.items():
            choice = {key: value for key, value in choices.items() if key in (name, kind)}
            self._encoders[name] = build_table_encoder({name: kind}, encoders=choice).fit(rows)
        self._rows = self.features(rows)
        self.means = {name: max(_mean_square(values), 1e-12) for name, values in self._rows.items()}
        self.rates, self.noise, self.explained = dict.fromkeys(self.columns, 0.3), 1.0, 0.0

    def features(self, rows: pd.DataFrame) -> dict[str, Features]:
        """What the encoders give of rows in the form of the fit, by column ``[n, d]``."""
        return {
            name: encoder.features(rows, encoder.cache(encoder.prepare(rows)))
            for name, encoder in self._encoders.items()
        }

    def fit(self, vectors: Floats, seed: int = 0) -> Self:
        """Choose rates and noise by the ``vectors [n, d]`` of the known rows; gives itself."""
        draw = np.random.default_rng(seed)
        rows = np.sort(draw.permutation(len(vectors))[:_MOST])
        parts = {name: values[rows] for name, values in self._rows.items()}
        squares = {name: _squares(part, part) / self.means[name] for name, part in parts.items()}
        center = vectors[rows] - vectors[rows].mean(axis=0)
        total = max(float(np.square(center).sum()), 1e-300)

        def error(rates: Mapping[str, float], noise: float) -> float:
            return _left_out(_kernel(squares, rates), noise, vectors[rows]) / total

        best = error(self.rates, self.noise)
        for _ in range(2):
            for name in self.columns:
                for rate in RATES:
                    tried = {**self.rates, name: rate}
                    if (value := error(tried, self.noise)) < best:
                        best, self.rates = value, tried
            for noise in NOISES:
                if (value := error(self.rates, noise)) < best:
                    best, self.noise = value, noise
        self.explained = max(0.0, 1 - best)
        return self

    def with_rates(self, other: Any) -> Self:
        """With the rates and the noise of another kernel of the same columns, or a saved one; gives itself."""
        self.rates, self.noise, self.explained = dict(other.rates), other.noise, other.explained
        return self

    def near(self, frame: pd.DataFrame, k: int) -> NearRows:
        """The ``k`` nearest known rows of each new row, and their weights.

        Args:
            frame: new rows, with the columns of the fit; a column that is missing counts as empty.
            k: rows, at most.
        """
        lacking = [name for name in self.columns if name not in frame.columns]
        new = self.features(self.form.read(frame.assign(**dict.fromkeys(lacking))))
        bank = self._rows
        k = min(k, next(iter(bank.values())).shape[0])
        places, weights = [], []
        for start in range(0, len(frame), _BLOCK):
            rows = slice(start, start + _BLOCK)
            squares = {n: _squares(new[n][rows], bank[n]) / self.means[n] for n in self.columns}
            kernel = _kernel(squares, self.rates)
            order = np.argsort(-kernel, axis=1, kind="stable")[:, :k]
            systems = []
            for some in order:
                inner = {n: _squares(bank[n][some], bank[n][some]) / self.means[n] for n in self.columns}
                systems.append(_kernel(inner, self.rates) + self.noise * np.eye(k))
            vector = torch.from_numpy(np.take_along_axis(kernel, order, axis=1))
            places.append(order)
            weights.append(kriging_weights(torch.from_numpy(np.stack(systems)), vector)[0].numpy())
        if not places:
            return NearRows(np.zeros((0, k), dtype=np.int64), np.zeros((0, k)))
        return NearRows(np.concatenate(places).astype(np.int64), np.concatenate(weights))

    def sentence(self) -> str:
        """What is read, the columns of highest rate first."""
        used = sorted((name for name, rate in self.rates.items() if rate), key=lambda name: -self.rates[name])
        unused = counted(len(self.rates) - len(used), "column")
        rest = f"; {unused} without use" if len(used) < len(self.rates) else ""
        return f"{', '.join(used) or 'no column'}{rest}"


def _squares(one: Features, other: Features) -> Floats:
    """Squared distances ``[b, n]``."""
    if isinstance(one, np.ndarray):
        product, lengths = one @ other.T, [np.square(each).sum(axis=1) for each in (one, other)]
    else:
        product = (one @ other.T).toarray()
        lengths = [np.asarray(scipy.sparse.csr_matrix(each).power(2).sum(axis=1)).ravel() for each in (one, other)]
    return np.asarray(np.maximum(lengths[0][:, None] + lengths[1] - 2 * product, 0.0), dtype=np.float64)


def _mean_square(values: Features) -> float:
    """Mean of the squared distances over all pairs of rows."""
    entries = values if isinstance(values, np.ndarray) else values.data
    center = np.asarray(values.mean(axis=0)).ravel()
    return 2 * float(np.square(entries).sum() / values.shape[0] - np.square(center).sum())


def _kernel(squares: Mapping[str, Floats], rates: Mapping[str, float]) -> Floats:
    total: Any = sum(rates[name] * values for name, values in squares.items())
    return np.asarray(np.exp(-total), dtype=np.float64)


def _left_out(kernel: Floats, noise: float, vectors: Floats) -> float:
    r"""Sum of squared errors of each row predicted from the others: $\sum_i |[K^{-1} (V - m)]_i / [K^{-1}]_{ii}|^2$."""
    inverse = np.linalg.inv(kernel + noise * np.eye(len(kernel)))
    of_ones = inverse.sum(axis=1)
    mean = (of_ones @ vectors) / of_ones.sum()
    left: Floats = inverse @ (vectors - mean) / inverse.diagonal()[:, None]
    return float(np.square(left).sum())
