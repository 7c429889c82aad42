"""Which parts of two cells differ: words that the other cell lacks, and letters within words that are nearly alike."""

import re
from collections import Counter
from collections.abc import Sequence

from rapidfuzz.distance import Indel

Piece = tuple[str, bool]
"""A part of a text, and whether the other text lacks it."""

_WORDS = re.compile(r"\w+", re.UNICODE)
_NEAR, _COMMON = 0.6, 1 / 3
"""Share of common letters from which on two words are shown as one that was written in two ways, and share of the
letters of a text that have to be common for the others to be marked."""


def differences(left: str, right: str) -> tuple[list[Piece], list[Piece]]:
    """The texts of two cells in pieces, those marked that only one has; the order of words and case do not count.

    A word that the other text lacks is compared with the most similar word that this one lacks in turn: if at least
    six tenths of their letters are common, in order, only the letters that differ are marked. In a text that has little
    in common with the other nothing is marked: it would be nearly all.

    >>> differences("red Lamp", "lamp, blue oak")
    ([('red', True), (' Lamp', False)], [('lamp, ', False), ('blue oak', True)])
    >>> differences("Smith", "smyth")
    ([('Sm', False), ('i', True), ('th', False)], [('sm', False), ('y', True), ('th', False)])
    """
    sides = [list(_WORDS.finditer(text)) for text in (left, right)]
    if not all(sides):  # of an empty cell nothing differs, it is empty
        return [(left, False)] * bool(left), [(right, False)] * bool(right)
    folded = [[word.group().casefold() for word in words] for words in sides]
    letters = [["".join(map(_small, word.group())) for word in words] for words in sides]
    marks: list[list[tuple[int, int]]] = [[], []]
    partners = _lacking(folded[1], folded[0])
    for one in _lacking(folded[0], folded[1]):
        alike = [Indel.normalized_similarity(letters[0][one], letters[1][other]) for other in partners]
        if max(alike, default=0) < _NEAR:
            marks[0].append(sides[0][one].span())
            continue
        other = partners.pop(alike.index(max(alike)))
        starts = sides[0][one].start(), sides[1][other].start()
        for step in Indel.opcodes(letters[0][one], letters[1][other]):
            if step.tag != "equal":
                marks[0].append((starts[0] + step.src_start, starts[0] + step.src_end))
                marks[1].append((starts[1] + step.dest_start, starts[1] + step.dest_end))
    marks[1] += [sides[1][other].span() for other in partners]
    for words, spans in zip(sides, marks, strict=True):
        size = sum(len(word.group()) for word in words)
        if size - sum(end - begin for begin, end in spans) < _COMMON * size:
            spans.clear()
    return _pieces(left, marks[0]), _pieces(right, marks[1])


def _small(letter: str) -> str:
    """A letter without its case, if that is one letter."""
    return letter.casefold() if len(letter.casefold()) == 1 else letter


def _lacking(words: Sequence[str], others: Sequence[str]) -> list[int]:
    """Positions of words that do not stand in ``others`` as often."""
    left, lacking = Counter(others), []
    for place, word in enumerate(words):
        left[word] -= 1
        if left[word] < 0:
            lacking.append(place)
    return lacking


def _pieces(text: str, marks: list[tuple[int, int]]) -> list[Piece]:
    """``text`` cut at the ends of ``marks``; marks with no letter between them are one."""
    pieces: list[Piece] = []
    at = 0
    for begin, end in sorted(marks):
        between, part = text[at:begin], text[begin:end]
        if pieces and pieces[-1][1] and not _WORDS.search(between):
            pieces[-1] = (pieces[-1][0] + between + part, True)
        elif part:
            pieces += [(between, False), (part, True)]
        else:
            continue
        at = end
    return [piece for piece in [*pieces, (text[at:], False)] if piece[0]]
