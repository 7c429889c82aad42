"""Columns of sets: each element by the encoder of its kind, each set by an encoder of sets."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from pydantic import JsonValue
from torch import Tensor

from vicinal.core import ColumnError, check_choice, entry, register
from vicinal.core.checks import check_integer, short_text
from vicinal.encoders.base import KIND_NAMES, ColumnEncoder, Features, Kind, SavedEncoder, Size, refuse
from vicinal.encoders.inputs import Inputs, RaggedInputs
from vicinal.encoders.kinds import element_kind, elements_of, plural
from vicinal.encoders.names import DEFAULTS, check_encoder, encoder_from_config, make_encoder, set_parts
from vicinal.encoders.sets.contract import AdditiveSetEncoder, SetEncoder, draw_elements

WIDTH = 64
"""Of the vectors of sets, where their encoder is trained."""

MOST_WORDS, MOST_COUNTS = 512, 256
"""Different words of a column of sets that count each, and numbers of such a set up to which trees read all of them."""

CHUNK = 4096
"""Elements of one set that are read at a time, where its encoder adds."""

_AT_A_TIME = 1 << 16
"""Elements, padding among them, of the sets that are read together."""


@dataclass(frozen=True)
class SetInputs:
    """Sets of prepared elements, each different element once.

    Attributes:
        elements: the different elements of all rows.
        places: which of them each row has.
    """

    elements: Inputs
    places: RaggedInputs

    def __len__(self) -> int:
        return len(self.places)

    def select(self, rows: Tensor) -> dict[str, Any]:
        """``elements``: those of these rows (left out if there are none), ``places [b, longest]`` and ``lengths``."""
        places, lengths = self.places.padded(rows)
        valid = torch.arange(places.shape[1]) < lengths[:, None]
        some, at = torch.unique(places[valid], return_inverse=True)
        places[valid] = at
        batch: dict[str, Any] = {"places": places, "lengths": lengths}
        return batch | ({"elements": self.elements.select(some)} if len(some) else {})

    def content(self, row: int) -> bytes:
        """The contents of the elements, in an order of their own."""
        places, _ = self.places.take(torch.tensor([row]))
        return b"\0".join(sorted(self.elements.content(place) for place in self.places.values[places].tolist()))

    def sizes(self) -> Tensor:
        """The numbers of elements."""
        return self.places.sizes()


@dataclass(frozen=True)
class Place:
    """Where an element stands, for the sentence of an error; the first element is 1."""

    row: object
    element: int

    def __repr__(self) -> str:
        return f"{self.row!r}, element {self.element}"


class SavedSet(SavedEncoder):
    """See :meth:`SetColumnEncoder.config`."""

    kind: Literal["set"]
    element_kind: Kind
    dim: Size | None
    elements: dict[str, JsonValue]


@register("encoder", "set", "set", "from-scratch", family="sets")
class SetColumnEncoder(ColumnEncoder):
    """Sets of whatever an encoder reads: lists in the cells of a column, of any length, whose order says nothing.

    The kind of the elements is detected, and their encoder is one for that kind; a pretrained one stays as published,
    and runs once for each distinct element. The set encoder is trained if it has anything to learn. A missing element
    makes the set smaller; a missing or empty list gets a learned vector. Sets of more than 4,096 elements are read in
    chunks if their encoder is a sum over elements.

    Args:
        columns: the column; a cell is a list, or text that is a list in JSON.
        encoder: name of the set encoder, of the encoder of its elements, or both with a colon between them. "moments"
            is "counts" for elements that are categories, unless both are named ("moments:categories").
        dim: width of the vectors of sets; None: 64, or the natural width for set encoders that learn nothing
            ("moments", "counts" and "sliced").

    >>> frame = pd.DataFrame({"tags": [["red", "new"], ["red"], None, []]})
    >>> encoder = SetColumnEncoder("tags").fit(frame)
    >>> encoder.name, encoder(encoder.prepare(frame).select(torch.arange(4))).shape
    ('counts:categories', torch.Size([4, 5]))
    """

    kind = "set"
    saved = SavedSet

    def __init__(self, columns: str | Sequence[str], encoder: str = DEFAULTS["set"], dim: int | None = None) -> None:
        super().__init__(columns)
        self.name = check_encoder(encoder, "set")
        self._dim = dim if dim is None else check_integer("dim", dim)
        self.element_kind: Kind | None = None

    @property
    def dim(self) -> int:
        """Width of the vectors of sets."""
        return self._fitted()[1].dim

    @property
    def counts(self) -> bool:
        """See :class:`ColumnEncoder`."""
        return self.name == "counts:categories"

    @property
    def most(self) -> int:
        """See :class:`ColumnEncoder`: each of a few different categories counts."""
        return MOST_COUNTS if self.counts and self.dim <= MOST_COUNTS else super().most

    @property
    def frozen(self) -> bool:
        """Whether it is held: a set encoder is trained."""
        return self.is_held

    @property
    def learned(self) -> bool:
        """True, also before it is fitted."""
        return True

    @property
    def frozen_elements(self) -> ColumnEncoder | None:
        """See :class:`ColumnEncoder`."""
        elements = self._fitted()[0]
        return elements if elements.learned and elements.frozen else None

    def fit(self, frame: pd.DataFrame) -> Self:
        """Find the kind of the elements, and fit their encoder.

        Raises:
            ValueError: if no set has an element, or if the elements are not of the kind that their encoder reads.
        """
        cells, places = self._elements(frame)
        column, elements = self.columns[0], cells[self.columns[0]]
        if not len(elements):
            expected = f"{short_text(column)}: expected a set with an element at least"
            raise ColumnError(f"{expected}, got {len(frame)} sets that are all empty; leave the column out")
        self.element_kind = element_kind(elements.iloc[places.values.numpy()].tolist())
        if self.element_kind is None:
            raise refuse(column, elements.index[0], "a number, text, path, file or list", short_text(elements.iloc[0]))
        sets, element = set_parts(self.name)
        default = self.name in (DEFAULTS["set"], "categories")
        if element is not None and self.element_kind in ("category", "text"):  # words are either
            self.element_kind = "category" if element == "categories" else "text"
        where = f"{short_text(column)} (a set of {plural(self.element_kind)})"
        element = check_encoder(DEFAULTS[self.element_kind] if element is None else element, self.element_kind, where)
        self.name = f"{'counts' if default and element == 'categories' else sets}:{element}"
        if element == "categories":  # the most frequent ones have a slot
            known = make_encoder(element, column, "category", largest=MOST_WORDS)
            self.compose(known.fit(cells.iloc[places.values.numpy()]))
        else:
            self.compose(make_encoder(element, column, self.element_kind).fit(cells))
        return self.hold() if self.is_held else self

    def prepare(self, frame: pd.DataFrame, root: Path | None = None) -> SetInputs:
        """Prepare each different element once."""
        elements = self._fitted()[0]
        cells, places = self._elements(frame)
        return SetInputs(elements.prepare(cells, root), places)

    def forget(self, gone: pd.DataFrame, left: "Callable[[str], pd.Series[Any]]") -> None:
        """See :class:`ColumnEncoder`: what the encoder of the elements holds of those that no set has any more."""

        def elements(column: str) -> "pd.Series[Any]":
            return self._elements(left(column).to_frame(column))[0][column]

        self._fitted()[0].forget(self._elements(gone)[0], elements)

    def forward(self, batch: dict[str, Any]) -> Tensor:
        """``[b, dim]``; sets of like size are read together."""
        elements, sets = self._fitted()
        places, lengths = batch["places"], batch["lengths"]
        known = batch.get("elements", {})
        if isinstance(known, dict) and "embedded" in known:
            vectors = known["embedded"]
        else:
            vectors = elements(known) if "elements" in batch else sets.empty.new_zeros(1, sets.width)
        vectors = vectors.to(sets.empty.dtype)
        parts, rows = [], list(_like_sized(lengths))
        for some in rows:
            longest = int(lengths[some].max())
            valid = torch.arange(longest, device=places.device) < lengths[some, None]
            parts.append(_encode(sets, vectors, places[some, :longest], valid))
        return torch.cat(parts)[torch.cat(rows).argsort()] if parts else vectors.new_zeros(0, self.dim)

    def features(self, frame: pd.DataFrame, inputs: Inputs) -> Features:
        """Mean, deviation and largest of what a linear baseline is given of the elements, and their number.

        For sparse features only the mean.
        """
        if not isinstance(inputs, SetInputs):
            return super().features(frame, inputs)
        elements, places = self._fitted()[0], inputs.places
        cells, _ = self._elements(frame)
        values = elements.features(cells, inputs.elements)[places.values.numpy()]  # [total, d]
        lengths = places.sizes().numpy()
        offsets = places.offsets.numpy()
        shares = np.repeat(1 / np.maximum(lengths, 1), lengths)
        means = scipy.sparse.csr_matrix((shares, np.arange(len(shares)), offsets), shape=(len(lengths), len(shares)))
        counts, mean = np.log1p(lengths)[:, None], means @ values
        if scipy.sparse.issparse(values):
            return scipy.sparse.hstack([mean, scipy.sparse.csr_matrix(counts)], format="csr")
        deviation = np.sqrt(np.maximum(means @ values**2 - mean**2, 0))
        largest = np.zeros_like(mean)
        largest[lengths > 0] = np.maximum.reduceat(values, offsets[:-1][lengths > 0]) if len(values) else 0
        return np.concatenate([mean, deviation, largest, counts], axis=1)

    def config(self) -> dict[str, Any]:
        """Settings of the set encoder, and of the encoder of the elements."""
        elements = self._fitted()[0].config()
        del elements["columns"]
        return super().config() | {"dim": self._dim, "elements": elements}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """See :class:`ColumnEncoder`; the name says which encoder reads the elements."""
        encoder = cls(config["columns"], check_encoder(config["encoder"], "set"), config["dim"])
        encoder.element_kind = check_choice("element_kind", config["element_kind"], KIND_NAMES[:-1])  # type: ignore[assignment]
        name = check_encoder(str(set_parts(encoder.name)[1]), str(encoder.element_kind))
        settings = {**config["elements"], "encoder": name, "columns": config["columns"]}
        encoder.compose(encoder_from_config(settings, empty=torch.get_default_device().type == "meta"))
        return encoder

    def remade_keys(self) -> set[str]:
        """Those of the published weights of the elements' encoder, which there is after ``fit``."""
        return {f"elements.{key}" for key in (self.elements.remade_keys() if self.element_kind else ())}

    def compose(self, elements: ColumnEncoder) -> None:
        """Take a fitted encoder of elements, and make that of the sets of its vectors."""
        self.elements = elements
        name = set_parts(self.name)[0]
        item = entry("set_encoder", name)
        dim = WIDTH if self._dim is None and "parameter-free" not in item.facts else self._dim
        shape = getattr(elements, "image_shape", None) if name == "set_convolution" else None
        self.sets: SetEncoder = item.factory(elements.dim, dim, **({} if shape is None else {"image_shape": shape}))

    def _fitted(self) -> tuple[ColumnEncoder, SetEncoder]:
        if self.element_kind is None:
            raise ValueError("SetColumnEncoder: expected a fitted encoder, got one without elements; call fit first")
        return self.elements, self.sets

    def _elements(self, frame: pd.DataFrame) -> tuple[pd.DataFrame, RaggedInputs]:
        """A table of the different elements, and which of them each row has."""
        column = self.columns[0]
        values: list[Any] = []
        labels: list[Place] = []
        places: list[int] = []
        lengths = [0]
        first: dict[Any, int] = {}
        for row, cell in self.cells(frame).items():
            before = len(places)
            for position, value in elements_of(cell, column, row):
                new = len(values)
                place = first.setdefault(value, new) if isinstance(value, str | bytes) else new
                if place == new:
                    values.append(value)
                    labels.append(Place(row, position))
                places.append(place)
            lengths.append(len(places) - before)
        offsets = torch.tensor(lengths).cumsum(0)
        series = pd.Series(values, index=pd.Index(labels, dtype=object), dtype=object)
        if not first:
            with suppress(OverflowError):  # an integer too large for a float: some versions of pandas raise
                series = series.infer_objects()  # numbers that are read at once
        return series.to_frame(column), RaggedInputs(torch.tensor(places, dtype=torch.int64), offsets)


def _like_sized(lengths: Tensor) -> Iterator[Tensor]:
    """Rows ``[b]`` whose numbers of elements are at most four times one another's, not too many of them at a time."""
    order = torch.argsort(lengths, stable=True)
    some: list[int] = []
    for row, size in zip(order.tolist(), lengths[order].tolist(), strict=True):
        smallest = int(lengths[some[0]]) if some else size
        if some and (size > 4 * max(smallest, 1) or size * (len(some) + 1) > _AT_A_TIME):
            yield torch.tensor(some, device=lengths.device)
            some = []
        some.append(row)
    if some:
        yield torch.tensor(some, device=lengths.device)


def _encode(sets: SetEncoder, vectors: Tensor, places: Tensor, valid: Tensor) -> Tensor:
    """``[b, dim]`` of sets whose elements stand at ``places [b, n]`` of ``vectors [m, d]``."""
    if places.shape[1] <= CHUNK or not isinstance(sets, AdditiveSetEncoder):
        return sets(vectors[places], valid)
    if torch.is_grad_enabled() and sets.additive:
        return sets.encode_sampled(vectors[places], valid, draw_elements(valid, CHUNK))
    parts = zip(*(torch.split(each, CHUNK, dim=1) for each in (places, valid)), strict=True)
    return sets.encode_chunks((vectors[some], there) for some, there in parts)
