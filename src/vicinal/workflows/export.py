"""``vicinal export``: the encoder and projector of a model as one ONNX graph, for programs without torch."""

import copy
import functools
import io
import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Unpack

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from vicinal.core import replaced_file, short
from vicinal.core.checks import optional_import, short_text
from vicinal.encoders import (
    CategoryEncoder,
    ColumnEncoder,
    NgramEncoder,
    NumberEncoder,
    PairEncoder,
    VectorEncoder,
)
from vicinal.encoders.ngrams import hashed_ngrams, to_texts
from vicinal.encoders.numeric import limits, to_numbers, to_vectors
from vicinal.encoders.texts import TextEncoder
from vicinal.estimators import load_model
from vicinal.estimators.banked import BankedEstimator
from vicinal.estimators.saving import OpenSettings
from vicinal.version import __version__

_OPSET = 17
"""Version of ONNX's operators that graphs are written in."""


@dataclass(frozen=True)
class GraphInput:
    """One input of a graph.

    Attributes:
        name: in the graph.
        columns: of the table, whose cells it holds.
        shape: its dimensions; a name stands for any size.
        dtype: as numpy names it.
        meaning: description of its values.
        slots: for each column, the categories that 0, 1, ... stand for; None if values are not codes.
    """

    name: str
    columns: tuple[str, ...]
    shape: tuple[str | int, ...]
    dtype: str
    meaning: str
    slots: tuple[tuple[str, ...], ...] | None = None


@dataclass(frozen=True)
class _Piece:
    """An encoder in a graph: ``module`` maps tensors for ``inputs`` to vectors, ``read`` makes these from a table."""

    inputs: tuple[GraphInput, ...]
    module: nn.Module
    read: Callable[[pd.DataFrame, Path | None], tuple[Tensor, ...]]


def export_onnx(folder: Path, out: Path, **opening: Unpack[OpenSettings]) -> list[GraphInput]:
    """Write the encoder and projector of the model in ``folder`` as an ONNX graph.

    Its output ``vectors``, float32 ``[rows, d]``, is the same as from ``vicinal embed`` and in the bank. The metadata
    ``vicinal`` describes its inputs, as JSON. It holds no row of the bank.

    Args:
        folder: of a model of any kind.
        out: file to write; its name ends in .onnx.
        opening: how the model is opened, see :class:`vicinal.estimators.saving.OpenSettings`.

    Returns:
        the inputs of the graph.

    Raises:
        ValueError: for another file name, without the package onnx, or for an encoder that cannot be exported.
    """
    if out.suffix != ".onnx" or out.is_dir() or not out.absolute().parent.is_dir():
        raise ValueError(f"onnx: expected a name that ends in .onnx, in a folder that is there, got {short_text(out)}")
    onnx = optional_import("onnx", "onnx", "onnx")
    model = load_model(folder, **opening)
    if model.metric_ in ("trees", "trees and kernel"):
        raise ValueError(
            "onnx: expected a model with a kernel or a network, got one with trees, which LightGBM runs; fit with "
            "metric='kernel' or 'network', or read the model's trees-*.txt with LightGBM"
        )
    pieces = [_piece(part) for part in model.table_encoder.encoders]
    inputs = [one for piece in pieces for one in piece.inputs]
    graph = onnx.load_model_from_string(_traced(_Graph(pieces, model.network_.projector).eval(), inputs))
    onnx.helper.set_model_props(
        graph, {"vicinal": json.dumps({"version": __version__, "inputs": list(map(asdict, inputs))})}
    )
    with replaced_file(out) as aside:
        onnx.save_model(graph, str(aside))
    return inputs


def graph_inputs(model: BankedEstimator, frame: pd.DataFrame, root: Path | None = None) -> dict[str, np.ndarray]:
    """Inputs of the graph of ``model`` for the rows of a table, which other programs have to make themselves.

    Args:
        model: as loaded by :func:`vicinal.estimators.load_model`.
        frame: with the columns that the model reads.
        root: folder that paths of images start from.

    >>> from vicinal import NeighborRegressor
    >>> x = pd.DataFrame({"size": np.linspace(0, 1, 30)})
    >>> graph_inputs(NeighborRegressor(metric="kernel").fit(x, np.sin(9 * x["size"])), x[:2])
    {'numbers': array([[0.        ],
           [0.03448276]])}
    """
    tensors: dict[str, np.ndarray] = {}
    for piece in map(_piece, model.table_encoder.encoders):
        values = piece.read(frame, root)
        tensors |= {one.name: value.numpy() for one, value in zip(piece.inputs, values, strict=True)}
    return tensors


class _Graph(nn.Module):
    def __init__(self, pieces: list[_Piece], projector: nn.Module) -> None:
        super().__init__()
        self.pieces, self.projector = nn.ModuleList(piece.module for piece in pieces), copy.deepcopy(projector)
        for name, norm in projector.named_modules():
            if isinstance(norm, nn.BatchNorm1d):
                self.projector.set_submodule(name, _Normalized(norm))
        self.counts = [len(piece.inputs) for piece in pieces]

    def forward(self, *tensors: Tensor) -> Tensor:
        rest, vectors = list(tensors), []
        for piece, count in zip(self.pieces, self.counts, strict=True):
            vectors.append(piece(*rest[:count]))
            rest = rest[count:]
        dtype = next(self.projector.parameters()).dtype
        projected: Tensor = self.projector(torch.cat([one.to(dtype) for one in vectors], dim=1))
        return projected.float()


class _Normalized(nn.Module):
    """A batch norm in evaluation mode as plain arithmetic, since the exporter needs a known width for its operator."""

    def __init__(self, norm: nn.BatchNorm1d) -> None:
        super().__init__()
        state = norm.state_dict()
        self.mean: Tensor = nn.Buffer(state["running_mean"])
        self.factor: Tensor = nn.Buffer(state.get("weight", 1.0) / (state["running_var"] + norm.eps).sqrt())
        self.bias: Tensor = nn.Buffer(state.get("bias", torch.zeros_like(self.mean)))

    def forward(self, inputs: Tensor) -> Tensor:
        return (inputs - self.mean) * self.factor + self.bias


def _traced(graph: nn.Module, inputs: list[GraphInput]) -> bytes:
    """The traced graph as ONNX, since torch's newer exporter needs further packages."""
    sizes = [[size if isinstance(size, int) else 3 + place for place, size in enumerate(one.shape)] for one in inputs]
    examples = tuple(torch.from_numpy(np.ones(size, one.dtype)) for one, size in zip(inputs, sizes, strict=True))
    free = {one.name: {d: f"{size}" for d, size in enumerate(one.shape) if isinstance(size, str)} for one in inputs}
    file = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # that checks of shapes are not part of the graph, and of the older exporter
        torch.onnx.export(
            graph,
            examples,
            file,  # type: ignore[arg-type]  # which the older exporter takes
            dynamo=False,
            opset_version=_OPSET,
            input_names=[one.name for one in inputs],
            output_names=["vectors"],
            dynamic_axes=free | {"vectors": {0: "rows"}},
        )
    return file.getvalue()


@functools.singledispatch
def _piece(part: ColumnEncoder) -> _Piece:
    """An encoder as a piece of a graph; an image encoder reads prepared pixels."""
    (column, *_), image = part.columns, io.BytesIO()
    if part.kind != "image":
        raise ValueError(
            f"{short_text(column)}: expected numbers, categories, vectors, images, texts by n-grams or a transformer, "
            f"which can be written as a graph, got {part.kind} by {short(part.name)}"
        )

    def read(frame: pd.DataFrame, root: Path | None) -> tuple[Tensor, ...]:
        return (part.prepare(frame, root).select(torch.arange(len(frame))),)

    optional_import("image", "PIL.Image", "image", "pillow").new("RGB", (64, 64)).save(image, "PNG")
    (pixels,) = read(pd.DataFrame({column: [image.getvalue()]}), None)
    shape, dtype = ("rows", *pixels.shape[1:]), pixels.numpy().dtype.name
    meaning = f"pixels as the encoder {part.name} prepares them"
    return _Piece((GraphInput(f"{column}.pixels", (column,), shape, dtype, meaning),), part, read)


class _Standardized(nn.Module):
    """Numbers within limits, minus their mean, times their factor, NaN as 0; then flags of NaN for some columns."""

    least: Tensor
    most: Tensor

    def __init__(self, part: NumberEncoder | VectorEncoder, flagged: list[int]) -> None:
        super().__init__()
        self.mean: Tensor = nn.Buffer(torch.tensor(part.mean, dtype=torch.float64))
        self.factor: Tensor = nn.Buffer(torch.tensor(part.factor, dtype=torch.float64))
        for name, ends in zip(("least", "most"), limits(part.low, part.high, len(part.mean)), strict=True):
            self.register_buffer(name, torch.from_numpy(ends))
        self.flagged = flagged

    def forward(self, values: Tensor) -> Tensor:
        missing = values.isnan()
        bounded = torch.minimum(torch.maximum(values, self.least), self.most)
        standard = torch.where(missing, 0.0, (bounded - self.mean) * self.factor)
        return torch.cat([standard, missing[:, self.flagged].double()], dim=1) if self.flagged else standard


@_piece.register
def _numbers(part: NumberEncoder) -> _Piece:
    columns = tuple(part.columns)
    one = GraphInput("numbers", columns, ("rows", len(columns)), "float64", "numbers as they are, NaN for a gap")

    def read(frame: pd.DataFrame, root: Path | None) -> tuple[Tensor, ...]:
        return (torch.from_numpy(np.stack([to_numbers(frame[name], name) for name in columns], axis=1)),)

    return _Piece((one,), _Standardized(part, [columns.index(name) for name in part.flagged]), read)


@_piece.register
def _vectors(part: VectorEncoder) -> _Piece:
    (column,) = part.columns
    one = GraphInput(f"{column}.values", (column,), ("rows", part.dim), "float64", "the vector of the cell")

    def read(frame: pd.DataFrame, root: Path | None) -> tuple[Tensor, ...]:
        return (torch.from_numpy(to_vectors(frame[column], column, part.dim)),)

    return _Piece((one,), _Standardized(part, []), read)


@_piece.register
def _categories(part: CategoryEncoder) -> _Piece:
    columns = tuple(part.columns)
    meaning = "the place of the category among the slots of its column, -1 for none"
    slots = tuple(map(tuple, part.slots))
    one = GraphInput("categories", columns, ("rows", len(columns)), "int64", meaning, slots)

    def read(frame: pd.DataFrame, root: Path | None) -> tuple[Tensor, ...]:
        return (part.prepare(frame).values,)

    return _Piece((one,), part, read)


class _Bags(nn.Module):
    """Sum of the vectors of a text's known n-grams, weighted by their counts, which are scaled to length 1."""

    def __init__(self, part: NgramEncoder) -> None:
        super().__init__()
        self.slots: Tensor = nn.Buffer(part.slots.long())
        self.table: Tensor = nn.Buffer(part.table.weight.detach())

    def forward(self, buckets: Tensor, counts: Tensor) -> Tensor:
        slots = self.slots[buckets]  # [b, m]
        counts = torch.where(slots >= 0, counts, 0).double()
        length = counts.square().sum(dim=1, keepdim=True).sqrt()
        weights = (counts / length.clamp(min=1)).to(self.table.dtype)
        return (self.table[slots.clamp(min=0)] * weights[:, :, None]).sum(dim=1)


def _of_texts(column: str, parts: str, **meanings: str) -> tuple[GraphInput, ...]:
    """Whole numbers for each of the ``parts`` of a text, by what they mean."""
    shape = ("rows", f"{column}.{parts}")
    return tuple(GraphInput(f"{column}.{one}", (column,), shape, "int64", meaning) for one, meaning in meanings.items())


@_piece.register
def _bags(part: NgramEncoder) -> _Piece:
    (column,) = part.columns
    buckets, counts = "buckets of the text's n-grams, 0 behind the last", "how often each is there, 0 behind the last"
    inputs = _of_texts(column, "ngrams", buckets=buckets, counts=counts)

    def read(frame: pd.DataFrame, root: Path | None) -> tuple[Tensor, ...]:
        settings = {name: getattr(part, name) for name in ("sizes", "pairs", "buckets", "fold_case")}
        offsets, *values = hashed_ngrams(to_texts(frame[column], column), **settings)
        there = np.arange(np.diff(offsets).max(initial=1)) < np.diff(offsets)[:, None]
        both = tuple(torch.zeros(there.shape, dtype=torch.int64) for _ in values)
        for tensor, known in zip(both, values, strict=True):
            tensor[torch.from_numpy(there)] = torch.from_numpy(known)
        return both

    return _Piece(inputs, _Bags(part), read)


class _Tokens(nn.Module):
    def __init__(self, part: TextEncoder) -> None:
        super().__init__()
        self.part = part

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.part.pooled(ids, mask)


@_piece.register
def _tokens(part: TextEncoder) -> _Piece:
    (column,) = part.columns
    tokens = f"tokens of the text, {part.longest()} at most, by the tokenizer of {part.name}"
    inputs = _of_texts(column, "tokens", ids=tokens, mask="1 where there is a token")

    def read(frame: pd.DataFrame, root: Path | None) -> tuple[Tensor, ...]:
        values, lengths = part.prepare(frame).padded(torch.arange(len(frame)))
        mask = torch.arange(values.shape[1]) < lengths[:, None]
        return values.long().masked_fill(~mask, part.padding), mask.long()

    return _Piece(inputs, _Tokens(part), read)


class _Pair(nn.Module):
    """Vectors of two columns, their distance and their product."""

    def __init__(self, sides: list[_Piece]) -> None:
        super().__init__()
        self.sides = nn.ModuleList(side.module for side in sides)

    def forward(self, *tensors: Tensor) -> Tensor:
        half = len(tensors) // 2
        return PairEncoder.compared(self.sides[0](*tensors[:half]), self.sides[1](*tensors[half:]))


@_piece.register
def _pair(part: PairEncoder) -> _Piece:
    sides = [_piece(reader) for reader in part.readers()]

    def read(frame: pd.DataFrame, root: Path | None) -> tuple[Tensor, ...]:
        return tuple(tensor for side in sides for tensor in side.read(frame, root))

    return _Piece(tuple(one for side in sides for one in side.inputs), _Pair(sides), read)
