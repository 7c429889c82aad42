"""The columns of a table as boosted trees read them: numbers with gaps, categories as places, vectors as components."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from vicinal.encoders.category import CategoryEncoder
from vicinal.encoders.components import Components
from vicinal.encoders.numeric import NumberEncoder
from vicinal.encoders.table import TableEncoder


class TreeColumns(nn.Module):
    """One matrix of all columns of a table, in which a gap is NaN and a category is its place.

    Numbers are bounded as their encoder bounds them; that they are standardized makes no difference to trees. Dates
    have their parts of a calendar, too, and wide vectors are their leading components.

    Args:
        encoder: of the table, fitted.

    Attributes:
        names: the column of the table that each column of the matrix comes from ``[f]``.
        categories: which columns of the matrix are places of categories.
        components: of the columns with vectors; None: there are none.

    >>> from vicinal.encoders import build_table_encoder
    >>> frame = pd.DataFrame({"age": [1.0, 3.0, None], "city": ["Bonn", "Rome", "Bonn"]})
    >>> encoder = build_table_encoder({"age": "number", "city": "category"}).fit(frame)
    >>> columns = TreeColumns(encoder)
    >>> columns(encoder, columns.prepare(encoder, frame).select(torch.arange(3)))
    tensor([[-1.,  0.],
            [ 1.,  1.],
            [nan,  0.]], dtype=torch.float64)
    """

    def __init__(self, encoder: TableEncoder) -> None:
        super().__init__()
        self.names: list[str] = []
        self.categories: list[int] = []
        others = [part for part in encoder.encoders if not isinstance(part, CategoryEncoder | NumberEncoder)]
        for part in encoder.encoders:
            if isinstance(part, CategoryEncoder):
                self.categories += range(len(self.names), len(self.names) + len(part.columns))
                self.names += part.columns
            elif isinstance(part, NumberEncoder):
                self.names += part.columns
                for name in part.dates:
                    self.names += [name] * len(part.calendar_of(name))
            else:
                self.names += part.columns[:1] * min(part.dim, part.most)
        widths, most = [part.dim for part in others], [part.most for part in others]
        plain = [part.dim <= part.most for part in others]
        self.components = Components(widths, plain, most) if others else None

    def prepare(self, encoder: TableEncoder, frame: pd.DataFrame, inputs: Any = None) -> Any:
        """Inputs of the encoder with what only trees read of a frame: places of all categories, parts of dates.

        Args:
            encoder: of the table.
            frame: the rows.
            inputs: as the encoder prepares them; None: they are prepared here.
        """
        columns = [np.zeros((len(frame), 0))]
        for part in encoder.encoders:
            if isinstance(part, CategoryEncoder):
                places = part.codes(frame).astype(np.float64)
                columns.append(np.where(places < 0, np.nan, places))
            elif isinstance(part, NumberEncoder):
                columns.append(part.calendar(frame)[1])
        known = encoder.prepare(frame) if inputs is None else inputs
        return replace(known, columns=torch.from_numpy(np.concatenate(columns, axis=1)))

    def fit(self, encoder: TableEncoder, batch: Mapping[str, Any]) -> Self:
        """Take the components from a batch of training rows; gives itself."""
        if self.components is not None:
            self.components.fit(torch.cat(_vectors(encoder, batch), dim=1))
        return self

    def forward(self, encoder: TableEncoder, batch: Mapping[str, Any]) -> Tensor:
        """``[b, f]``, float64, of a batch of prepared columns."""
        vectors = iter(self._components(encoder, batch))
        columns, place = [], 0
        for number, part in enumerate(encoder.encoders):
            if isinstance(part, NumberEncoder | CategoryEncoder):
                width = len(part.columns)
                if isinstance(part, NumberEncoder):
                    columns.append(_with_gaps(part, batch[str(number)]))
                    width = sum(len(part.calendar_of(name)) for name in part.dates)
                columns.append(batch["columns"][:, place : place + width].double())
                place += width
            else:
                columns.append(next(vectors))
        return torch.cat(columns, dim=1)

    def _components(self, encoder: TableEncoder, batch: Mapping[str, Any]) -> tuple[Tensor, ...]:
        if self.components is None:
            return ()
        return torch.split(self.components(torch.cat(_vectors(encoder, batch), dim=1)), self.components.sizes, dim=1)


class LinearColumns(TreeColumns):
    """The same matrix, and behind it what a linear model reads: numbers with their flags, and one-hot categories.

    Args:
        encoder: of the table, fitted.

    Attributes:
        further: the column of the table that each column of the second part comes from ``[p]``.
        numbers: which of these are plain numbers.
    """

    def __init__(self, encoder: TableEncoder) -> None:
        super().__init__(encoder)
        sizes = iter([] if self.components is None else self.components.sizes)
        self.further, self.numbers = list[str](), list[int]()
        for part in encoder.encoders:
            plain = isinstance(part, NumberEncoder | CategoryEncoder)
            self.numbers += [len(self.further) + place for place in part.numbers]
            self.further += part.entries if plain else part.columns[:1] * next(sizes)

    def forward(self, encoder: TableEncoder, batch: Mapping[str, Any]) -> Tensor:
        """``[b, f + p]``, float64, of a batch of prepared columns."""
        vectors, parts = iter(self._components(encoder, batch)), [super().forward(encoder, batch)]
        for number, part in enumerate(encoder.encoders):
            plain = isinstance(part, NumberEncoder | CategoryEncoder)
            parts.append(encoder.part_vectors(number, batch[str(number)]).double() if plain else next(vectors))
        return torch.cat(parts, dim=1)


@torch.no_grad()
def _vectors(encoder: TableEncoder, batch: Mapping[str, Any]) -> list[Tensor]:
    """Vectors ``[b, d]`` of all columns but numbers and categories, in float64."""
    encoder.eval()
    return [
        encoder.part_vectors(number, batch[str(number)]).double()
        for number, part in enumerate(encoder.encoders)
        if not isinstance(part, NumberEncoder | CategoryEncoder)
    ]


def _with_gaps(encoder: NumberEncoder, item: Tensor) -> Tensor:
    """Numbers ``[b, columns]``, NaN where their flag says that one is missing."""
    numbers = item[:, : len(encoder.columns)].double()
    places = [encoder.columns.index(name) for name in encoder.flagged]
    flags = torch.zeros_like(numbers, dtype=torch.bool)
    flags[:, places] = item[:, len(encoder.columns) :] > 0
    return numbers.masked_fill(flags, torch.nan)
