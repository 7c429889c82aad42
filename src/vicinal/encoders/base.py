"""What every encoder of columns is: the contract, its checks, and the sentences it refuses cells with."""

import abc
import copy
import hashlib
import json
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, get_args

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from pydantic import Field
from torch import Tensor, nn

from vicinal.core import ColumnError, nearest, short
from vicinal.core.checks import short_text
from vicinal.core.untrusted import Saved
from vicinal.encoders.inputs import EmbeddedInputs, Inputs

Kind = Literal["number", "category", "text", "image", "audio", "vector", "set"]
KIND_NAMES: tuple[Kind, ...] = get_args(Kind)
Features: TypeAlias = np.ndarray[Any, Any] | scipy.sparse.csr_matrix
"""A matrix ``[n, d]`` for a linear model: dense, or sparse where it is large and mostly zero."""


Size = Annotated[int, Field(ge=1, le=1 << 24)]
"""A width or another number of things, in a model folder: none of them needs more."""


class SavedEncoder(Saved):
    """What a model folder holds of an encoder, beside its weights; each encoder adds its own settings."""

    encoder: str
    columns: list[str] = Field(min_length=1)


class ColumnEncoder(nn.Module, abc.ABC):
    """A module that turns one column of a table (numbers and categories: several) into vectors.

    Call ``fit`` on the training rows, then ``prepare`` on any rows, then ``forward`` on batches of what was prepared.
    ``config()`` and the state dictionary together restore it exactly.

    Args:
        columns: the columns it reads, in this order.

    Attributes:
        kind: the kind of columns it reads.
        name: its name in settings and configurations.
        several: whether it may read more than one column.
        saved: what ``config()`` holds: names of attributes that, except for ``statistics``, are arguments of its class.
        statistics: names of what ``fit`` learns from the data.
        is_held: whether ``hold()`` froze it.
    """

    kind: ClassVar[Kind]
    name: str
    several: ClassVar[bool] = False
    saved: ClassVar[type[SavedEncoder]]
    statistics: ClassVar[tuple[str, ...]] = ()

    def __init__(self, columns: str | Sequence[str]) -> None:
        super().__init__()
        self.columns = [columns] if isinstance(columns, str) else list(columns)
        number = "at least one column" if self.several else "one column"
        if not self.columns or (len(self.columns) > 1 and not self.several):
            raise ValueError(f"columns: expected {number} for the encoder {self.name!r}, got {short(self.columns)}")
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"columns: expected each column once, got {short(self.columns)}")
        self.is_held = False

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """Width of its vectors; encoders that learn it from the data have it once fitted."""

    @property
    def entries(self) -> list[str]:
        """The column that each entry of its vectors comes from."""
        return self.columns[:1] * self.dim

    @property
    def numbers(self) -> list[int]:
        """Which entries are plain numbers of a column; none of others than columns of numbers."""
        return []

    @property
    def counts(self) -> bool:
        """Whether its vectors count things, each of which says something: a kernel reads them as they are."""
        return False

    @property
    def most(self) -> int:
        """Numbers of its vectors that trees and, unless they count, kernels read; of wider ones, so many components."""
        return 30

    def fit(self, frame: pd.DataFrame) -> Self:
        """Take statistics and vocabulary from training rows; gives itself."""
        self.check_frame(frame)
        return self

    @abc.abstractmethod
    def prepare(self, frame: pd.DataFrame, root: Path | None = None) -> Inputs:
        """Validate its columns of ``frame`` and make them ready.

        Args:
            frame: rows to encode; other columns are ignored.
            root: folder that paths in cells start from and must stay in. None: the current folder, any path.

        Raises:
            ValueError: naming column, row and value of the first cell that cannot be used.
        """

    @abc.abstractmethod
    def forward(self, batch: Any) -> Tensor:
        """Vectors ``[b, dim]`` of a batch from ``Inputs.select``."""

    def config(self) -> dict[str, Any]:
        """What ``saved`` lists, settings and fitted statistics, as JSON values; ``from_config`` reads it."""
        names = [name for name in self.saved.model_fields if name != "encoder"]
        return {"encoder": self.name, **{name: getattr(self, name) for name in names}}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """An encoder whose ``load_state_dict`` takes the state of the one that gave ``config``."""
        encoder = cls(**{name: value for name, value in config.items() if name not in ("encoder", *cls.statistics)})
        for name in cls.statistics:
            setattr(encoder, name, config[name])
        return encoder

    def forget(self, gone: pd.DataFrame, left: "Callable[[str], pd.Series[Any]]") -> None:
        """Let go of what it holds of single cells of rows that are forgotten; vectors of all other cells stay.

        Args:
            gone: the cells of those rows.
            left: the cells of all other rows, by the name of their column.
        """

    def keep_states(self, inputs: Inputs) -> Inputs:
        """``inputs`` with what the frozen part of a network makes of them, where it is tuned in part."""
        return inputs

    def features(self, frame: pd.DataFrame, inputs: Inputs) -> Features:
        """What a linear baseline is given: by default the vectors, in float64 ``[n, dim]``."""
        return embed(self, inputs).double().numpy()

    @property
    def frozen(self) -> bool:
        """Whether no parameter is trained."""
        return not any(parameter.requires_grad for parameter in self.parameters())

    @property
    def learned(self) -> bool:
        """Whether it has parameters at all, trained or not."""
        return next(iter(self.parameters()), None) is not None

    def hold(self) -> Self:
        """Train nothing of it: parameters keep their values, and it stays in evaluation mode; gives itself."""
        self.requires_grad_(requires_grad=False)
        self.is_held = True
        return self.eval()

    def widen(self, frame: pd.DataFrame) -> None:
        """Let cells as far out as those of these rows count in full; nothing else is taken from them."""

    def settle(self, frame: pd.DataFrame) -> Self:
        """Hold it, with weights that suit the rows of a fit where it has none that were trained; gives itself."""
        return self.hold()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy of the same identity, so that what a frozen network has embedded is known to it."""
        other = type(self).__new__(type(self))
        memo[id(self)] = other
        other.__dict__.update(copy.deepcopy(self.__dict__, memo))
        _, marks, digest = _HASHES.get(self, ([], None, ""))
        if marks == _marks(list(self.state_dict().values())):
            remember_hash(other, digest)
        return other

    def train(self, mode: bool = True) -> Self:  # noqa: FBT001, FBT002 torch's signature
        """Training mode, unless it is held."""
        return super().train(mode and not self.is_held)

    def remade_keys(self) -> set[str]:
        """Keys of the state that ``from_config`` makes again, so that they need not be saved."""
        return set()

    def identity(self) -> str:
        """A sha256 that changes with whatever changes an embedding: settings and weights."""
        digest = hashlib.sha256(_known_hash(self).encode())
        settings = {key: value for key, value in self.config().items() if key not in ("columns", "tune")}
        digest.update(json.dumps(settings, sort_keys=True).encode())
        return digest.hexdigest()

    def check_frame(self, frame: pd.DataFrame) -> None:
        """Raise ValueError unless ``frame`` has the columns, each once."""
        if not isinstance(frame, pd.DataFrame):
            raise TypeError(f"frame: expected a pandas DataFrame, got {type(frame).__name__}")
        names = [str(name) for name in frame.columns]
        counts, labels = Counter(names), set(frame.columns)
        for column in self.columns:
            if counts[column] == 1 and column in labels:
                continue
            if counts[column] > 1:
                raise ValueError(f"frame: expected one column {short(column)}, got {counts[column]} of that name")
            raise ValueError(f"frame: expected the column {short(column)}, got none{nearest(column, names)}")

    def cells(self, frame: pd.DataFrame) -> "pd.Series[Any]":
        """The only column of a one-column encoder."""
        self.check_frame(frame)
        return frame[self.columns[0]]

    def extra_repr(self) -> str:
        """Columns, for ``print``."""
        return f"columns={self.columns!r}"


def refuse(column: str, row: object, expected: str, got: str, advice: str = "") -> ColumnError:
    """The error for one cell; ``got`` is what :func:`vicinal.core.short` gives of it.

    >>> refuse("age", 3, "a number", "'abc'", "correct it")
    ColumnError("age: expected a number in row 3, got 'abc'; correct it")
    """
    place = f"{expected} in row {short(row)}"
    return ColumnError(f"{short_text(column)}: expected {place}, got {got}{'; ' if advice else ''}{advice}")


def state_hash(module: nn.Module) -> str:
    """sha256 of names and values of a module's state."""
    digest = hashlib.sha256()
    for key, value in module.state_dict().items():
        digest.update(f"{key}{value.dtype}{tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


_HASHES: "weakref.WeakKeyDictionary[nn.Module, tuple[list[Tensor], list[tuple[object, ...]] | None, str]]" = (
    weakref.WeakKeyDictionary()
)
"""Hashes of modules, with the tensors of which each was taken and their marks."""


def _marks(state: Sequence[Tensor]) -> list[tuple[object, ...]]:
    """What changes with the tensors of a state: their place, shape, type, and how often they were written."""
    return [
        (each.data_ptr(), each.shape, each.dtype, each._version) for each in state
    ]  # torch has no public name for it


def remember_hash(module: nn.Module, digest: str) -> None:
    """Take ``digest`` for the hash of a module as it is now, such as that of the file that it was read from."""
    state = [value.detach() for value in module.state_dict().values()]
    _HASHES[module] = (state, _marks(state), digest)  # the tensors are held, so that their place is not given again


def _known_hash(module: nn.Module) -> str:
    """:func:`state_hash`, taken once as long as the same tensors are there unchanged: a large one takes 0.1 s."""
    _, marks, digest = _HASHES.get(module, ([], None, ""))
    if marks != _marks(list(module.state_dict().values())):
        digest = state_hash(module)
        remember_hash(module, digest)
    return digest


def embed(module: ColumnEncoder, inputs: Inputs, batch_size: int = 16) -> Tensor:
    """Vectors ``[n, dim]`` of all rows, in evaluation mode, without gradients, on the CPU."""
    if isinstance(inputs, EmbeddedInputs):
        return inputs.values
    device = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
    order = torch.argsort(inputs.sizes(), stable=True)  # rows of like length together
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            batches = map(inputs.select, torch.split(order, batch_size))
            vectors = torch.cat([module(to_device(batch, device)).cpu() for batch in batches])
    finally:
        module.train(training)
    return vectors[order.argsort()]


def to_device(batch: Any, device: torch.device | str) -> Any:
    """A batch from ``Inputs.select`` with all its tensors on ``device``."""
    if isinstance(batch, Tensor):
        return batch.to(device)
    return {key: to_device(value, device) for key, value in batch.items()}
