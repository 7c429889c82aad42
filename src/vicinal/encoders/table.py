"""The encoder of a table: chosen for its columns by their kinds or by name, its parts side by side."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from torch import Tensor, nn

from vicinal.core import check_choice, short
from vicinal.core.progress import report
from vicinal.core.threads import all_threads
from vicinal.encoders.base import KIND_NAMES, ColumnEncoder, Features, Kind, to_device
from vicinal.encoders.cache import EmbeddingCache, content_key
from vicinal.encoders.category import CategoryEncoder
from vicinal.encoders.inputs import EmbeddedInputs, Inputs, JoinedInputs, RowInputs
from vicinal.encoders.names import check_encoder, chosen_encoder, encoder_from_config, is_pair, make_encoder
from vicinal.encoders.pairs import PairEncoder
from vicinal.encoders.pretrained import PretrainedEncoder, check_tune
from vicinal.encoders.set_columns import SetColumnEncoder, SetInputs

_PUT = 16
"""Batches whose embeddings go into the cache together: what a kill may cost, against many small files."""


@dataclass(frozen=True)
class TableInputs(JoinedInputs):
    """The prepared columns of a table, one entry for each part of its encoder.

    Attributes:
        parts: in the order of the encoders.
        columns: what only a metric of its own reads ``[n, m]``, see :mod:`vicinal.encoders.tree_columns`; or None.
    """

    columns: Tensor | None = None

    def select(self, rows: Tensor) -> dict[str, Any]:
        """The batches of all parts, by their number as text, and of "columns"."""
        return super().select(rows) | ({} if self.columns is None else {"columns": self.columns[rows]})

    def without_wild(self, gone: float) -> Self:
        """See :meth:`RowInputs.without_wild`."""
        parts = (one.without_wild(gone) if isinstance(one, RowInputs) else one for one in self.parts)
        return replace(self, parts=tuple(parts))


@dataclass(frozen=True)
class PartSummary:
    """What a model card says of one part.

    Attributes:
        columns: the columns it reads.
        kind: their kind.
        encoder: its name.
        dim: width of its vectors.
        trained: number of parameters that are trained.
        parameters: number of all parameters.
    """

    columns: tuple[str, ...]
    kind: Kind
    encoder: str
    dim: int
    trained: int
    parameters: int


class TableEncoder(nn.Module):
    """Encoders of columns whose vectors are concatenated.

    Args:
        parts: at least one encoder; no column is read twice.
        cache_of_frozen: where ``cache`` keeps embeddings; None: in memory, with this encoder.

    Attributes:
        columns: all columns, in the order of the parts.
    """

    def __init__(self, parts: Sequence[ColumnEncoder], cache_of_frozen: EmbeddingCache | None = None) -> None:
        super().__init__()
        self.cache_of_frozen = EmbeddingCache() if cache_of_frozen is None else cache_of_frozen
        self.parts = nn.ModuleList(parts)
        self.columns = [column for part in parts for column in part.columns]
        if not parts or len(set(self.columns)) < len(self.columns):
            raise ValueError(f"parts: expected encoders that read each column once, got {short(self.columns)}")

    @property
    def encoders(self) -> list[ColumnEncoder]:
        """The parts, typed as encoders."""
        return list(self.parts)  # type: ignore[arg-type]  # a ModuleList

    @property
    def kinds(self) -> dict[str, Kind]:
        """The kind of each column that is read."""
        return {column: part.kind for part in self.encoders for column in part.columns}

    @property
    def tunable(self) -> list[PretrainedEncoder]:
        """The pretrained networks that may be tuned, also those that read two columns."""
        networks = [part.one if isinstance(part, PairEncoder) else part for part in self.encoders]
        return [network for network in networks if isinstance(network, PretrainedEncoder)]

    @property
    def dim(self) -> int:
        """Sum of the widths."""
        return sum(part.dim for part in self.encoders)

    @property
    def entries(self) -> list[str]:
        """The column that each entry of its vectors comes from."""
        return [name for part in self.encoders for name in part.entries]

    @property
    def frozen(self) -> bool:
        """Whether no parameter is trained."""
        return all(part.frozen for part in self.encoders)

    def fit(self, frame: pd.DataFrame) -> Self:
        """Fit each part to its columns of the training rows; gives itself."""
        for part in self.encoders:
            part.fit(frame)
        return self

    def widen(self, frame: pd.DataFrame) -> None:
        """Let cells as far out as those of these rows count in full; see ``ColumnEncoder.widen``."""
        for part in self.encoders:
            part.widen(frame)

    def settle(self, frame: pd.DataFrame) -> Self:
        """Hold each part that would be trained, see ``ColumnEncoder.settle``; gives itself."""
        for part in self.encoders:
            if not part.frozen:  # vectors of empty sets stay as they are
                part.settle(frame)
        return self

    def forget(self, gone: pd.DataFrame, left: "Callable[[str], pd.Series[Any]]") -> None:
        """Let all parts go of single cells of rows that are forgotten; see ``ColumnEncoder.forget``."""
        for part in self.encoders:
            part.forget(gone, left)

    def prepare(self, frame: pd.DataFrame, root: Path | None = None) -> TableInputs:
        """Validate and prepare all columns; see ``ColumnEncoder.prepare``."""
        return TableInputs(tuple(part.prepare(frame, root) for part in self.encoders))

    def excess(self, inputs: TableInputs) -> dict[str, Tensor]:
        """By column, how far cells lie beyond what they count as ``[n]``; of those columns where some do.

        See :func:`vicinal.encoders.numeric.bounded`.
        """
        beyond: dict[str, Tensor] = {}
        for part, item in zip(self.encoders, inputs.parts, strict=True):
            if isinstance(item, RowInputs) and item.excess is not None:
                each = item.excess.reshape(len(item), len(part.columns), -1).amax(dim=2)  # vectors have many numbers
                beyond |= {name: far for name, far in zip(part.columns, each.T, strict=True) if far.any()}
        return beyond

    def forward(self, batch: Mapping[str, Any]) -> Tensor:
        """``[b, dim]``, in the widest dtype of the parts: float64 where there are numbers or vectors."""
        return torch.cat([self.part_vectors(number, batch[str(number)]) for number in range(len(self.parts))], dim=1)

    def part_vectors(self, number: int, item: Any) -> Tensor:
        """``[b, dim]`` of one part, of its batch."""
        part, known = self.encoders[number], item if isinstance(item, Mapping) else {}
        if "states" in known and isinstance(part, PretrainedEncoder):
            return part.onward(known)
        return known["embedded"] if "embedded" in known else part(item)

    def cache(
        self,
        inputs: TableInputs,
        *,
        device: str | torch.device = "cpu",
        store: EmbeddingCache | None = None,
    ) -> TableInputs:
        """Run frozen networks once: their inputs are replaced by their embeddings, which ``forward`` takes as well.

        Args:
            inputs: from ``prepare``.
            device: where they run; afterwards the networks move back.
            store: the cache of known embeddings, which new ones are added to; None: ``cache_of_frozen``.
        """
        store = self.cache_of_frozen if store is None else store
        parts = list(inputs.parts)
        for number, part in enumerate(self.encoders):
            item, elements = parts[number], part.frozen_elements if isinstance(part, SetColumnEncoder) else None
            if isinstance(item, JoinedInputs) and isinstance(part, PairEncoder) and part.frozen:
                sides = [_embedded(part.one, side, store, device) for side in item.parts]
                parts[number] = EmbeddedInputs(part.compared(*(side.values for side in sides)))
            elif part.learned and part.frozen and not isinstance(item, EmbeddedInputs):
                parts[number] = _embedded(part, item, store, device)
            elif elements is not None and isinstance(item, SetInputs):
                vectors = _embedded(elements, item.elements, store, device)
                parts[number] = replace(item, elements=vectors)
        return replace(inputs, parts=tuple(parts))

    def keep_states(self, inputs: TableInputs) -> TableInputs:
        """Inputs to train on: those of networks that are tuned in part with what the frozen part makes of them.

        See :meth:`PretrainedEncoder.keep_states`; ``forward`` takes these as well.
        """
        pairs = zip(self.encoders, inputs.parts, strict=True)
        return replace(inputs, parts=tuple(part.keep_states(item) for part, item in pairs))

    def features(self, frame: pd.DataFrame, inputs: TableInputs) -> Features:
        """What a linear baseline is given: the untuned features of all parts ``[n, d]``, sparse where one is."""
        matrices = [part.features(frame, item) for part, item in zip(self.encoders, inputs.parts, strict=True)]
        if any(scipy.sparse.issparse(matrix) for matrix in matrices):
            return scipy.sparse.hstack(matrices, format="csr")
        return np.concatenate(matrices, axis=1)

    def unseen(self, frame: pd.DataFrame) -> dict[str, list[str]]:
        """See :meth:`CategoryEncoder.unseen`."""
        parts = [part.unseen(frame) for part in self.encoders if isinstance(part, CategoryEncoder)]
        return {column: cells for part in parts for column, cells in part.items()}

    def describe(self) -> list[PartSummary]:
        """One line for each part, for cards and reports."""
        return [
            PartSummary(
                tuple(part.columns),
                part.kind,
                part.name,
                part.dim,
                sum(p.numel() for p in part.parameters() if p.requires_grad),
                sum(p.numel() for p in part.parameters()),
            )
            for part in self.encoders
        ]

    def config(self) -> dict[str, Any]:
        """Settings and fitted statistics of all parts as JSON values."""
        return {"parts": [{**part.config(), "held": part.is_held} for part in self.encoders]}

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], cache_of_frozen: EmbeddingCache | None = None, *, empty: bool = False
    ) -> "TableEncoder":
        """The encoder before its state is loaded; published weights are read again from where they came.

        Args:
            config: as :meth:`config` gives it.
            cache_of_frozen: see the class.
            empty: allocate no memory for what ``load_trained_state`` will load: parts from scratch are on the device
                "meta".

        Raises:
            ValueError: naming the first setting that is missing, unknown or wrong.
        """
        parts = []
        for part_config in config["parts"]:
            settings = dict(part_config)
            is_held = settings.pop("held", None)
            if not isinstance(is_held, bool):
                raise ValueError(f"encoder: expected held to be true or false, got {is_held!r:.100}")
            part = encoder_from_config(settings, empty=empty)
            parts.append(part.hold() if is_held else part)
        return cls(parts, cache_of_frozen)

    def copied(self) -> Self:
        """A copy that a fit may change; published weights that stay as they are, which may be large, are the same."""
        state = self.state_dict(keep_vars=True)
        return copy.deepcopy(self, {id(state[key]): state[key] for key in self.remade_keys()})

    def trained_state(self) -> dict[str, Tensor]:
        """The state without published weights that were left as they are."""
        remade = self.remade_keys()
        return {key: value.contiguous() for key, value in self.state_dict().items() if key not in remade}

    def load_trained_state(self, state: Mapping[str, Tensor]) -> None:
        """Load what ``trained_state`` gave.

        Raises:
            ValueError: if names or shapes are not those of this encoder.
        """
        tensors = self.trained_state()
        strange = sorted(set(tensors) ^ set(state))
        if strange:
            side = "none of that name" if strange[0] in tensors else "one that is not part of this encoder"
            raise ValueError(f"state: expected the tensors of this encoder, got {side}: {strange[0]!r}")
        for key, value in tensors.items():
            if value.shape != state[key].shape:
                raise ValueError(
                    f"state: expected {key!r} of shape {tuple(value.shape)}, got {tuple(state[key].shape)}"
                )
        empty = any(value.is_meta for value in tensors.values())
        self.load_state_dict(dict(state), strict=False, assign=empty)

    def remade_keys(self) -> set[str]:
        """Keys of the state that ``from_config`` makes again: published weights that were left as they are."""
        return {f"parts.{number}.{key}" for number, part in enumerate(self.encoders) for key in part.remade_keys()}


@all_threads()
def _embedded(
    part: ColumnEncoder,
    inputs: Inputs,
    store: EmbeddingCache,
    device: str | torch.device,
) -> EmbeddedInputs:
    batch_size = 16 if torch.device(device).type == "cpu" else 128  # larger ones are slower on a CPU
    identity = part.identity()
    keys = [content_key(inputs.content(row)) for row in range(len(inputs))]
    # of rows of equal content the first is encoded, and stands for all of them
    first = {key: row for row, key in reversed(list(enumerate(keys)))}
    known = dict(store.get(identity, list(first)))
    todo = torch.tensor(sorted(row for key, row in first.items() if key not in known), dtype=torch.int64)
    todo = todo[torch.argsort(inputs.sizes()[todo], stable=True)]  # rows of like length share a batch
    home = next(part.parameters()).device
    part.to(device).eval()
    try:
        done = 0
        for some in torch.split(todo, _PUT * batch_size) if len(todo) else ():
            blocks = []
            for rows in torch.split(some, batch_size):
                with torch.no_grad():
                    blocks.append(part(to_device(inputs.select(rows), device)).cpu())
                done += len(rows)
                report("encoding", done, len(todo))
            names, values = [keys[row] for row in some.tolist()], torch.cat(blocks)
            store.put(identity, names, values)
            known.update(zip(names, values.unbind(), strict=True))
    finally:
        part.to(home)
    return EmbeddedInputs(torch.stack([known[key] for key in keys]) if keys else torch.zeros(0, part.dim))


def build_table_encoder(
    kinds: Mapping[str, Kind],
    *,
    encoders: Mapping[str, str] | None = None,
    tune: str = "none",
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    cache_dir: str | Path | None = None,
    cache: EmbeddingCache | None = None,
) -> TableEncoder:
    """Make the encoders of all columns: numbers together, categories together, each other column by itself.

    Args:
        kinds: kind of each column that is used.
        encoders: encoder names by column or, for all columns of a kind, by kind. A column takes precedence over its
            kind.
        tune: what is trained of pretrained encoders: "all", "last-N" or "none".
        settings: further arguments of encoders, by column or by kind, as ``encoders``.
        cache_dir: folder in which embeddings of frozen encoders are kept between runs.
        cache: instead of a folder, a cache shared with other encoders.

    Raises:
        ValueError: for a name that is neither column nor kind, or an encoder that does not read the kind.

    >>> build_table_encoder({"age": "number", "title": "text"}).columns
    ['age', 'title']
    """
    encoders, settings = dict(encoders or {}), dict(settings or {})
    check_tune(tune)
    for argument, choices in (("encoders", encoders), ("settings", settings)):
        for name in choices:
            check_choice(argument, name, [*kinds, *KIND_NAMES])
    groups: dict[tuple[str, ...], Kind] = {}
    for kind in ("number", "category"):
        columns = tuple(column for column in kinds if kinds[column] == kind)
        groups.update({columns: kind} if columns else {})
    for column, kind in kinds.items():
        check_choice(f"kinds[{short(column)}]", kind, KIND_NAMES)
        if kind not in ("number", "category"):
            groups[_read_with(column, kinds, encoders)] = kind
    if not groups:
        raise ValueError("kinds: expected at least one column, got none")
    parts: list[ColumnEncoder] = []
    for columns, kind in groups.items():
        choice, where = chosen_encoder(columns, kind, encoders)
        options = settings.get(columns[0], settings.get(kind, {}))
        part = make_encoder(check_encoder(choice, kind, where), columns, kind, tune=tune, **options)
        parts.append(part)
    return TableEncoder(parts, EmbeddingCache(cache_dir) if cache is None else cache)


def _read_with(column: str, kinds: Mapping[str, Kind], encoders: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that are read with this one: of a pair both, else the column alone."""
    name = chosen_encoder((column,), kinds[column], encoders)[0]
    if not is_pair(name):
        return (column,)
    return tuple(
        other
        for other, kind in kinds.items()
        if kind == kinds[column] and chosen_encoder((other,), kind, encoders)[0] == name
    )
