"""From kinds of columns and names of encoders to the encoder of a table."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from vicinal.core import check_choice, entries, entry
from vicinal.core.untrusted import check_settings
from vicinal.encoders.base import KIND_NAMES, ColumnEncoder, Kind
from vicinal.encoders.pretrained import PretrainedEncoder
from vicinal.encoders.transformers import TRANSFORMERS

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
    return sorted(suffix.get(item.name, item.name) for item in entries("encoder") if kind in item.facts)


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
    if reaches_out(name):
        return TRANSFORMERS[kind]
    factory: type[ColumnEncoder] = entry("encoder", name).make  # type: ignore[assignment]  # all others are classes
    return factory


def reaches_out(name: object) -> bool:
    """Whether an encoder of this name reads weights from a place that the name tells: a folder, or the hub."""
    return isinstance(name, str) and name.startswith(("hub:", "folder:"))


def encoder_from_config(config: Mapping[str, Any], *, empty: bool = False) -> ColumnEncoder:
    """The encoder that gave ``config``, before its state is loaded.

    Args:
        config: as ``ColumnEncoder.config`` gives it.
        empty: without memory for weights that are loaded next (they are on the device "meta"); published weights are
            read all the same.

    Raises:
        ValueError: naming the first setting that is missing, too many or wrong.
    """
    name = config.get("encoder")
    if reaches_out(name):
        factory: type[ColumnEncoder] = TRANSFORMERS[check_choice("kind", config.get("kind"), TRANSFORMERS)]
    else:
        known = [item.name for item in entries("encoder") if item.name not in ("hub", "folder")]
        factory = entry("encoder", check_choice("encoder", name, known)).make  # type: ignore[assignment]  # a class
    settings = check_settings("encoder", factory.saved, json.dumps(config)).model_dump()
    bare = empty and not issubclass(factory, PretrainedEncoder)
    with torch.device("meta") if bare else contextlib.nullcontext():
        return factory.from_config(settings)


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
    factory = encoder_class(name, kind)
    options = dict(settings or {})
    if issubclass(factory, PretrainedEncoder):
        options.setdefault("tune", tune)
    if reaches_out(name):
        options["model"] = name
    return factory(columns, **options)
