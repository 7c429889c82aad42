"""Which encoder reads a column where none was named: one from scratch, or the pretrained one that is installed."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from vicinal.core.freeing import give_back
from vicinal.core.progress import span_words, time_left
from vicinal.core.seeding import seeded
from vicinal.encoders import EmbeddingCache, Kind, build_table_encoder
from vicinal.encoders.efficientnet import EFFICIENTNET
from vicinal.encoders.ge2e import GE2E
from vicinal.encoders.kinds import element_kind, elements_of
from vicinal.encoders.minilm import MINILM
from vicinal.encoders.names import DEFAULTS, PAIR, chosen_encoder
from vicinal.encoders.pairs import PairEncoder
from vicinal.estimators.inputs import Ids

CANDIDATES = {"text": ("ngrams", MINILM), "image": ("cnn", EFFICIENTNET), "audio": ("cnn-mel", GE2E)}
"""By kind: the encoder from scratch, and the package of the pretrained one."""

FEWEST, MOST = 200, 2000
"""Rows below which nothing is chosen, and rows that a choice is made on, at most."""

PROGRAM, READ, TUNED = 700_000_000, 70_000_000, 300_000_000
"""Bytes of a fit without texts, and what each text takes whose encoder stays as published, or may be tuned."""

TIMED = 32
"""Rows by which it is told how long an encoder takes for all."""

WORDS = 4.0
"""Mean words of a text from which on a pretrained encoder is tried for more than ``MOST`` rows; for fewer it always is:
it knows what a rare name means, which is dear for a long table of short texts."""

DEAR = 0.01
"""Share of the labels' variance that a pretrained encoder must explain beyond the one from scratch where more than
``MOST`` rows wait for it, up to hours."""

PAIRED, MOST_PAIRED, PAIR_ROWS = 0.01, 4, 1000
"""Share of the labels' variance that a pair of columns must explain beyond what else was tried, the most columns of a
kind of which pairs are tried, and the rows to try them on."""


@dataclass(frozen=True)
class EncoderChoice:
    """What was chosen for a column.

    Attributes:
        column: its name.
        encoder: name of the encoder.
        explained: share of the labels' variance that a ridge regression on the untrained vectors explains, of rows that
            it leaves out, by encoder.
        late: encoders for which there is no time, by the seconds that all rows would take.
        logs: whether it is their logarithms that are explained.
    """

    column: str
    encoder: str
    explained: Mapping[str, float]
    late: Mapping[str, float] = field(default_factory=dict)
    logs: bool = False

    @property
    def sentence(self) -> str:
        """``minilm explains 61 % of the labels' variance linearly, ngrams 48 %``."""
        if not self.explained:
            return "the pretrained encoder that is installed"
        own_names = self.encoder, self.encoder.rpartition(":")[2]
        first, *others = sorted(self.explained, key=lambda name: [name != known for known in own_names])
        shares = {name: f"{100 * max(share, 0.0):.0f} %" for name, share in self.explained.items()}
        rest = "".join(f", {name} {shares[name]}" for name in others)
        late = "".join(f"; no time for {name}, about {span_words(took)}" for name, took in self.late.items())
        variance = "variance of the labels' logarithms" if self.logs else "labels' variance"
        return f"{first} explains {shares[first]} of the {variance} linearly{rest}{late}"


def installed_encoders(
    frame: pd.DataFrame, kinds: Mapping[str, Kind], encoders: Mapping[str, str] | None
) -> list[EncoderChoice]:
    """The pretrained encoders that are installed, for images, sounds and texts of ``WORDS`` words on average.

    Columns for which an encoder was asked for are left out.
    """
    members = _with_choice(frame, kinds, encoders)
    return [
        EncoderChoice(name, _full_name(kinds[name], CANDIDATES[kind][1].encoder), {}) for name, kind in members.items()
    ]


def planned_encoders(
    frame: pd.DataFrame, kinds: Mapping[str, Kind], encoders: Mapping[str, str] | None
) -> dict[str, str]:
    """Which encoder would read each column, before anything is encoded; "one or another" where a fit would choose.

    All columns can be read by what comes first.

    >>> planned_encoders(pd.DataFrame({"size": [1.0]}), {"size": "number"}, None)
    {'size': 'numbers'}
    """
    named = encoders or {}
    free = _with_choice(frame, kinds, named) if len(frame) >= FEWEST else {}
    planned = {name: chosen_encoder((name,), kind, named)[0] for name, kind in kinds.items()}
    for name, kind in free.items():
        scratch, wheel = CANDIDATES[kind]
        pair = f"{PAIR}{wheel.encoder}"
        alike = [other for other in free if free[other] == kind and kinds[other] != "set"]
        paired = name in alike and 1 < len(alike) <= MOST_PAIRED and pair not in named.values()
        tried = [_full_name(kinds[name], one) for one in (wheel.encoder, scratch)]
        if paired:  # what comes first is timed for all columns, and a pair reads two
            tried.insert(0 if len(alike) == 2 else len(tried), pair)
        planned[name] = " or ".join(tried)
    return planned


def expected_memory(encoders: Mapping[str, str], *, tuned: bool) -> int:
    """Bytes that a fit takes at its peak, about, where texts may be read by the pretrained encoder; 0 if none are.

    Args:
        encoders: as :func:`planned_encoders` gives them.
        tuned: whether the encoder may be tuned, which takes gradients, their moments, and the best weights so far.

    >>> expected_memory({"note": "minilm or ngrams"}, tuned=True), expected_memory({"size": "numbers"}, tuned=True)
    (1000000000, 0)
    """
    texts = [name for name in encoders.values() if "minilm" in name.replace(PAIR, "").split(" or ")]
    return (PROGRAM + (TUNED if tuned else READ) * len(texts)) * bool(texts)


def _with_choice(frame: pd.DataFrame, kinds: Mapping[str, Kind], encoders: Mapping[str, str] | None) -> dict[str, str]:
    """Kind (of sets that of their elements) by column whose encoder is not named, and of which there is a choice."""
    named = encoders or {}
    free = {name: kind for name, kind in kinds.items() if name not in named and kind not in named}
    members = {name: _elements(frame[name], kind) for name, kind in free.items()}
    return {name: str(kind) for name, (kind, cells) in members.items() if _has_choice(kind, cells)}


def _full_name(kind: Kind, encoder: str) -> str:
    return f"{DEFAULTS['set']}:{encoder}" if kind == "set" else encoder


def choose_encoders(
    frame: pd.DataFrame,
    kinds: Mapping[str, Kind],
    labels: Ids,
    encoders: Mapping[str, str] | None,
    cache: EmbeddingCache,
    *,
    classes: bool,
    groups: Ids | None = None,
    root: Path | None = None,
    seed: int = 0,
) -> list[EncoderChoice]:
    """Choose between a pretrained encoder and one from scratch by a ridge regression on the vectors of each.

    Columns are images, sounds, and texts of at least ``WORDS`` words on average, of at least ``FEWEST`` rows, that
    ``encoders`` does not name, by column or kind, and whose pretrained encoder is installed.

    Of several such columns of one kind, texts say, two are read as a pair (:class:`vicinal.encoders.PairEncoder`) if
    that explains at least ``PAIRED`` of the variance more than both side by side, or either.

    Positive labels are explained on their own scale or as logarithms, whichever the best of all encoders explains more
    of: prices of a few dear rows make up the variance of all. A pretrained encoder that more than ``MOST`` rows wait
    for must explain ``DEAR`` more than the one from scratch.

    Args:
        frame: the rows to train on.
        kinds: of the columns.
        labels: numbers ``[n]``, or codes of classes.
        encoders: what was asked for.
        cache: keeps the vectors of pretrained encoders, so that nothing is encoded twice.
        classes: whether labels are codes of classes.
        groups: ``[n]``; no row is predicted from one of its group.
        root: folder that paths start from.
        seed: of the draw of ``MOST`` rows, and of encoders from scratch.
    """
    members = _with_choice(frame, kinds, encoders) if len(frame) >= FEWEST else {}
    if not members:
        return []
    from vicinal.evaluation import left_out_predictions  # the baselines take a while to import

    some = np.arange(len(frame))
    if len(some) > MOST:
        some = np.sort(np.random.default_rng(seed).choice(some, MOST, replace=False))
    scales = [np.eye(int(labels.max()) + 1)[labels[some].astype(int)] if classes else labels[some].astype(np.float64)]
    if not classes and bool((labels[some] > 0).all()):
        scales.append(np.log(scales[0]))
    part, owners = frame.iloc[some], None if groups is None else groups[some]

    def share(features: Any, targets: Ids, most: int = MOST) -> float:
        at = np.linspace(0, len(some) - 1, min(most, len(some))).round().astype(int)
        known, apart = targets[at], None if owners is None else owners[at].tolist()
        missed = np.square(known - left_out_predictions(features[at], known, groups=apart)).sum()
        return 1 - float(missed / max(np.square(known - known.mean(0)).sum(), 1e-300))

    vectors: dict[str, dict[str, Ids]] = {}  # of columns, by encoder
    late: dict[str, dict[str, float]] = {}
    for column, kind in members.items():
        wheel = CANDIDATES[kind][1].encoder
        wide: Any = column, kinds[column], wheel, cache, root, seed
        took = 0.0 if time_left() == np.inf else len(frame) * _seconds(part, *wide)
        late[column] = {wheel: took} if took > time_left() else {}
        names = [name for name in (wheel, CANDIDATES[kind][0]) if name not in late[column]]
        vectors[column] = {name: _vectors(part, column, kinds[column], name, cache, root, seed) for name in names}
    explained = [
        {column: {name: share(values, targets) for name, values in each.items()} for column, each in vectors.items()}
        for targets in scales
    ]
    best = [max(max(each.values()) for each in columns.values()) for columns in explained]
    scale = int(np.argmax(best))
    choices: dict[str, EncoderChoice] = {}
    for column, kind in members.items():
        shares, dear = explained[scale][column], CANDIDATES[kind][1].encoder
        ahead = {name: share - DEAR * (name == dear and len(frame) > MOST) for name, share in shares.items()}
        name = max(ahead, key=lambda name: ahead[name])
        choices[column] = EncoderChoice(column, _full_name(kinds[column], name), shares, late[column], scale > 0)
    for wheel in dict.fromkeys(CANDIDATES[kind][1].encoder for kind in members.values()):
        if PAIR + wheel not in (encoders or {}).values():  # whose two columns read it already
            read = {name: vectors[name].get(wheel) for name in members if kinds[name] != "set"}
            columns = {name: values for name, values in read.items() if values is not None}
            choices |= _best_pair(wheel, columns, choices, lambda features, most: share(features, scales[scale], most))
    give_back()
    return [choices[column] for column in members]


def _best_pair(
    name: str, columns: Mapping[str, Ids], alone: Mapping[str, EncoderChoice], share: Callable[[Any, int], float]
) -> dict[str, EncoderChoice]:
    """The choice of both columns that gain most as a pair; empty if none gains enough.

    Args:
        name: of a pretrained encoder.
        columns: its vectors ``[n, d]`` of each column.
        alone: what was chosen for each.
        share: of the labels' variance that features explain, on so many rows at most.
    """
    best: tuple[float, tuple[str, ...], dict[str, float]] = (PAIRED, (), {})
    for both in itertools.combinations(columns, 2) if len(columns) <= MOST_PAIRED else ():
        sides = [torch.from_numpy(columns[column]) for column in both]
        together, apart = PairEncoder.compared(*sides).numpy(), torch.cat(sides, dim=1).numpy()
        explained = {PAIR + name: share(together, PAIR_ROWS), name: share(apart, PAIR_ROWS)}
        gain = explained[PAIR + name] - max(explained[name], *(max(alone[each].explained.values()) for each in both))
        best = max(best, (gain, both, explained), key=lambda one: one[0])
    return {column: replace(alone[column], encoder=PAIR + name, explained=best[2]) for column in best[1]}


def _elements(cells: "pd.Series[Any]", kind: Kind) -> tuple[Kind | None, Sequence[Any]]:
    """The cells that are there, of sets their elements, and the kind of these."""
    if kind != "set":
        return kind, cells.dropna().tolist() if kind in CANDIDATES else []
    elements = [value for row, cell in cells.items() for _, value in elements_of(cell, str(cells.name), row)]
    return (element_kind(elements) if elements else None), elements


def _has_choice(kind: Kind | None, cells: Sequence[Any]) -> bool:
    if kind not in CANDIDATES or not CANDIDATES[kind][1].installed:
        return False
    return kind != "text" or len(cells) <= MOST or sum(len(str(cell).split()) for cell in cells) >= WORDS * len(cells)


def _seconds(frame: pd.DataFrame, *encoder: Any) -> float:
    """What a row takes, by ``TIMED`` rows; before these, one loads the weights. ``encoder`` as in :func:`_vectors`."""
    some = frame.iloc[np.linspace(0, len(frame) - 1, TIMED).astype(int)]
    _vectors(some.iloc[:1], *encoder)
    begin = time.perf_counter()
    _vectors(some, *encoder)
    return (time.perf_counter() - begin) / TIMED


def _vectors(
    frame: pd.DataFrame, column: str, kind: Kind, name: str, cache: EmbeddingCache, root: Path | None, seed: int
) -> Any:
    """What an encoder gives of a column before any training ``[n, d]``."""
    with seeded(seed):
        encoder = build_table_encoder({column: kind}, encoders={column: name}, cache=cache).fit(frame)
    return encoder.features(frame, encoder.cache(encoder.prepare(frame, root)))
