"""From kinds of columns and names of encoders to the encoder of a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from vicinal.core import check_choice, entries, entry
from vicinal.encoders.base import KIND_NAMES, ColumnEncoder, Kind
from vicinal.encoders.foreign import TRANSFORMERS
from vicinal.encoders.pretrained import PretrainedEncoder

DEFAULTS: dict[Kind, str] = {
    "number": "numbers",
    "category": "categories",
    "text": "ngrams",
    "image": "cnn",
    "audio": "cnn-mel",
    "vector": "vectors",
}


def encoder_names(kind: str) -> list[str]:
    """Names under which encoders of ``kind`` can be asked for.

    >>> encoder_names("text")
    ['folder:PATH', 'hub:NAME', 'minilm', 'ngrams']
    """
    check_choice("kind", kind, KIND_NAMES)
    suffix = {"folder": "folder:PATH", "hub": "hub:NAME"}
    return sorted(suffix.get(found.name, found.name) for found in entries("encoder") if kind in found.facts)


def check_encoder(name: str, kind: str, where: str = "encoder") -> str:
    """The full name of an encoder of ``kind``; "cnn" of audio is "cnn-mel".

    Raises:
        ValueError: naming all encoders of that kind.

    >>> check_encoder("minilm", "image")
    Traceback (most recent call last):
    ValueError: encoder: expected one of 'cnn', 'efficientnet-lite0', 'folder:PATH', 'hub:NAME', got 'minilm'
    """
    if kind == "audio" and name == "cnn":
        return "cnn-mel"
    names = encoder_names(kind)
    prefix, colon, rest = name.partition(":") if isinstance(name, str) else ("", "", "")
    if colon and rest and any(known.startswith(f"{prefix}:") for known in names):
        return name
    return check_choice(where, name, names)


def encoder_class(name: str, kind: str) -> type[ColumnEncoder]:
    """The class behind a name that ``check_encoder`` gave."""
    if name.startswith(("hub:", "folder:")):
        return TRANSFORMERS[kind]
    found: type[ColumnEncoder] = entry("encoder", name).make  # type: ignore[assignment]  # all others are classes
    return found


def encoder_from_config(config: dict[str, Any]) -> ColumnEncoder:
    """The encoder that gave ``config``, before its state is loaded."""
    return encoder_class(config["encoder"], config.get("kind", "text")).from_config(config)


def make_encoder(
    name: str, kind: str, columns: Sequence[str], *, tune: str = "none", settings: Mapping[str, Any] | None = None
) -> ColumnEncoder:
    """An encoder by its name.

    Args:
        name: as ``encoder_names`` lists them.
        kind: of the columns.
        columns: what it reads.
        tune: for pretrained ones: what is trained.
        settings: further arguments of its class.
    """
    name = check_encoder(name, kind)
    made = encoder_class(name, kind)
    options = dict(settings or {})
    if issubclass(made, PretrainedEncoder):
        options.setdefault("tune", tune)
    if name.startswith(("hub:", "folder:")):
        options["model"] = name
    return made(columns, **options)
