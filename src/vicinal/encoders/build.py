"""The encoder of a table, from the kinds of its columns."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vicinal.core import check_choice, short
from vicinal.encoders.base import KIND_NAMES, ColumnEncoder, Kind
from vicinal.encoders.cache import EmbeddingCache
from vicinal.encoders.naming import DEFAULTS, check_encoder, make_encoder
from vicinal.encoders.pretrained import PretrainedEncoder, check_tune
from vicinal.encoders.table import TableEncoder


def build_table_encoder(
    kinds: Mapping[str, Kind],
    *,
    encoders: Mapping[str, str] | None = None,
    tune: str = "none",
    tune_scratch: bool = True,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    cache_dir: str | Path | None = None,
    cache: EmbeddingCache | None = None,
) -> TableEncoder:
    """Make the encoders of all columns: numbers together, categories together, each other column by itself.

    Args:
        kinds: kind of each column that is used.
        encoders: encoder names by column or, for all columns of a kind, by kind. A column goes before its kind.
        tune: what is trained of pretrained encoders: "all", "last-N" or "none".
        tune_scratch: False leaves encoders without published weights random: for tests of leaks.
        settings: further arguments of encoders, by column or by kind, as ``encoders``.
        cache_dir: folder in which embeddings of frozen encoders are kept between runs.
        cache: in its place, a cache that other encoders use as well.

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
            groups[column,] = kind
    if not groups:
        raise ValueError("kinds: expected at least one column, got none")
    parts: list[ColumnEncoder] = []
    for columns, kind in groups.items():
        name, where = chosen_encoder(columns, kind, encoders)
        more = settings.get(columns[0], settings.get(kind, {}))
        part = make_encoder(check_encoder(name, kind, where), kind, columns, tune=tune, settings=more)
        scratch = part.learned and not isinstance(part, PretrainedEncoder)
        parts.append(part.hold() if scratch and not tune_scratch else part)
    return TableEncoder(parts, EmbeddingCache(cache_dir) if cache is None else cache)


def chosen_encoder(columns: tuple[str, ...], kind: Kind, encoders: Mapping[str, str]) -> tuple[str, str]:
    """The name of the encoder of ``columns`` out of ``encoders`` by column or kind, and how an error calls it."""
    for key in (*columns, kind):
        if key in encoders:
            return encoders[key], f"encoders[{short(key)}]"
    return DEFAULTS[kind], kind
