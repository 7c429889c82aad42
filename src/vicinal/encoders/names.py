"""Which encoder a name means, for columns of a kind, and which one settings describe."""

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from vicinal.core import check_choice, entries, entry, short
from vicinal.core.untrusted import check_settings
from vicinal.encoders.base import KIND_NAMES, ColumnEncoder, Kind
from vicinal.encoders.pretrained import PretrainedEncoder
from vicinal.encoders.transformers import TRANSFORMERS

PAIR = "pair:"
"""What the names of encoders of two columns start with; the name of the encoder of each follows."""

DEFAULTS: dict[Kind, str] = {
    "number": "numbers",
    "category": "categories",
    "text": "ngrams",
    "image": "cnn",
    "audio": "cnn-mel",
    "vector": "vectors",
    "set": "moments",
}


def encoder_names(kind: str) -> list[str]:
    """Names under which encoders of ``kind`` can be asked for; those of a set are followed by one of its elements.

    >>> encoder_names("text")
    ['folder:PATH', 'hub:NAME', 'minilm', 'ngrams', 'pair:ENCODER']
    """
    if check_choice("kind", kind, KIND_NAMES) == "set":
        return [f"{item.name}:ELEMENTS" for item in entries("set_encoder")]
    suffix = {"folder": "folder:PATH", "hub": "hub:NAME", "pair": f"{PAIR}ENCODER"}
    return sorted(suffix.get(item.name, item.name) for item in entries("encoder") if kind in item.facts)


def set_parts(name: str) -> tuple[str, str | None]:
    """The encoder of a set and that of its elements out of a name, split at the first colon; either may be left out.

    >>> set_parts("set_transformer:hub:x"), set_parts("minilm"), set_parts("deep_sets")
    (('set_transformer', 'hub:x'), ('moments', 'minilm'), ('deep_sets', None))
    """
    first, _, rest = name.partition(":")
    if any(first == item.name for item in entries("set_encoder")):
        return first, rest or None
    return DEFAULTS["set"], name


def check_encoder(name: str, kind: str, where: str = "encoder") -> str:
    """The full name of an encoder of ``kind``; "cnn" of audio is "cnn-mel".

    Whether the elements of a set are of the kind that their encoder reads is checked only when the first element is
    read.

    Raises:
        ValueError: naming all encoders of that kind.

    >>> check_encoder("minilm", "image")
    Traceback (most recent call last):
    ValueError: encoder: expected one of 'cnn', 'efficientnet-lite0', 'folder:PATH', 'hub:NAME', 'pair:ENCODER', \
'pixels', got 'minilm'
    """
    if kind == "audio" and name == "cnn":
        return "cnn-mel"
    names = encoder_names(kind)
    if is_pair(name) and f"{PAIR}ENCODER" in names:
        one = name.removeprefix(PAIR)
        return PAIR + (check_encoder(one, kind, where) if not is_pair(one) else check_choice(where, one, names))
    if kind == "set":
        sets, element = set_parts(name) if isinstance(name, str) and not name.endswith(":") else ("", "")
        of_elements = sorted({known for one in KIND_NAMES if one != "set" for known in encoder_names(one)})
        of_elements = [known for known in of_elements if not is_pair(known)]  # an element is alone
        if element is None or _is_named(element, of_elements):
            return name
        before = f"{sets}:" if name.startswith(f"{sets}:") else ""
        names = [*(item.name for item in entries("set_encoder")), *(f"{before}{one}" for one in of_elements)]
        return check_choice(where, name, names if sets else encoder_names(kind))
    return name if _is_named(name, names) else check_choice(where, name, names)


def _is_named(name: object, names: Sequence[str]) -> bool:
    """Whether a name is one of ``names``, in which what follows a colon stands for anything."""
    prefix, colon, rest = name.partition(":") if isinstance(name, str) else ("", "", "")
    return name in names or bool(colon and rest and any(known.startswith(f"{prefix}:") for known in names))


def is_pair(name: object) -> bool:
    """Whether an encoder of this name reads two columns."""
    return isinstance(name, str) and name.startswith(PAIR)


def reaches_out(name: object) -> bool:
    """Whether an encoder of this name reads weights from a place that the name tells: a folder, or the hub.

    >>> reaches_out("hub:x"), reaches_out("deep_sets:folder:x"), reaches_out("deep_sets:minilm")
    (True, True, False)
    """
    return isinstance(name, str) and re.match(r"([^:]*:)?(hub|folder):", name) is not None


def chosen_encoder(columns: tuple[str, ...], kind: Kind, encoders: Mapping[str, str]) -> tuple[str, str]:
    """The name of the encoder of ``columns`` out of ``encoders`` by column or kind, and how an error calls it."""
    for key in (*columns, kind):
        if key in encoders:
            return encoders[key], f"encoders[{short(key)}]"
    return DEFAULTS[kind], kind


def make_encoder(
    name: str, columns: str | Sequence[str], kind: str, *, tune: str = "none", **settings: Any
) -> ColumnEncoder:
    """The encoder of a full name, not fitted yet; ``tune`` is for pretrained ones."""
    factory = _encoder_class(name, kind)
    options: dict[str, Any] = {"tune": tune} if issubclass(factory, PretrainedEncoder) else {}
    if is_pair(name):
        options = {"tune": tune, "encoder": name, "kind": kind}
    elif kind == "set":
        options["encoder"] = name
    elif reaches_out(name):
        options["model"] = name
    return factory(columns, **options, **settings)


def encoder_from_config(config: Mapping[str, Any], *, empty: bool = False) -> ColumnEncoder:
    """The encoder that gave ``config``, before its state is loaded.

    Args:
        config: as ``ColumnEncoder.config`` gives it.
        empty: without memory for weights that are loaded next (they are on the device "meta"); published weights are
            read all the same.

    Raises:
        ValueError: naming the first setting that is missing, too many or wrong.
    """
    factory = _encoder_class(config.get("encoder"), config.get("kind"))
    settings = check_settings("encoder", factory.saved, json.dumps(config)).model_dump()
    # A pretrained one may stand in a set that has no memory yet.
    pretrained = issubclass(factory, PretrainedEncoder) or is_pair(config.get("encoder"))
    with torch.device("cpu" if pretrained else "meta") if empty else contextlib.nullcontext():
        return factory.from_config(settings)


def _encoder_class(name: Any, kind: Any) -> type[ColumnEncoder]:
    """The class behind a full name."""
    if kind == "set" or is_pair(name):
        several = "pair" if is_pair(name) else "set"
        return entry("encoder", several).factory  # type: ignore[return-value]  # a registry knows no types
    if reaches_out(name):
        return TRANSFORMERS[check_choice("kind", kind, TRANSFORMERS)]
    known = [item.name for item in entries("encoder") if item.name not in ("hub", "folder")]
    return entry("encoder", check_choice("encoder", name, known)).factory  # type: ignore[return-value]
