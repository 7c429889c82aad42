"""Comparison levels against plain definitions, pair by pair."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import OSA, JaroWinkler

from vicinal.linkage import levels as module
from vicinal.linkage.columns import CodedColumn
from vicinal.linkage.levels import LEVELS, comparison_levels, cosine_levels


def aligned(one, two):
    """Fewest letters put in, left out, changed or swapped with the next, each place edited once."""
    cost = {(i, 0): i for i in range(len(one) + 1)} | {(0, j): j for j in range(len(two) + 1)}
    for i, j in product(range(1, len(one) + 1), range(1, len(two) + 1)):
        best = min(cost[i - 1, j] + 1, cost[i, j - 1] + 1, cost[i - 1, j - 1] + (one[i - 1] != two[j - 1]))
        if i > 1 and j > 1 and one[i - 1] == two[j - 2] and one[i - 2] == two[j - 1]:
            best = min(best, cost[i - 2, j - 2] + 1)
        cost[i, j] = best
    return cost[len(one), len(two)]


def jaro_winkler(one, two):
    """Jaro (1989), and where that is above .7 nearer to 1 by a tenth for each of the first four equal letters."""
    reach = max(0, max(len(one), len(two)) // 2 - 1)
    taken, ours = set(), []
    for i, letter in enumerate(one):
        for j in range(max(0, i - reach), min(len(two), i + reach + 1)):
            if j not in taken and two[j] == letter:
                taken.add(j)
                ours.append(letter)
                break
    if not ours:
        return 0.0
    theirs = [two[j] for j in sorted(taken)]
    moved = sum(a != b for a, b in zip(ours, theirs, strict=True)) // 2
    jaro = (len(ours) / len(one) + len(ours) / len(two) + (len(ours) - moved) / len(ours)) / 3
    first = 0
    while first < min(4, len(one), len(two)) and one[first] == two[first]:
        first += 1
    return jaro + 0.1 * first * (1 - jaro) if jaro > 0.7 else jaro


def every_pair(left, right):
    return np.array(list(product(range(len(left)), range(len(right)))))


def coded(kind, *tables):
    sides = np.split(np.arange(sum(map(len, tables))), np.cumsum([*map(len, tables)])[:-1])
    texts = [str(cell) for table in tables for cell in table]
    return replace(CodedColumn.of_codes("a", sides, texts, numbers=kind == "number"), kind=kind)


def named(kind, left, right, pairs=None, cosines=None):
    """Names of the levels of pairs (None: of all)."""
    column = coded(kind, left, right)
    found = comparison_levels(column, every_pair(left, right) if pairs is None else pairs, cosines)
    assert found.dtype == np.int8
    return [LEVELS[kind][level] for level in found]


def of_code(one, two):
    if not one or not two:
        return "empty"
    edits = aligned(one, two)
    return "equal" if edits == 0 else f"edit distance {edits}" if edits <= 2 else "differs"


def of_name(one, two):
    if not one or not two:
        return "empty"
    if one == two:
        return "equal"
    steps = [step for step in (0.94, 0.88, 0.8) if jaro_winkler(one, two) >= step]
    return f"Jaro-Winkler {steps[0]}" if steps else "differs"


def of_number(one, two):
    if not one or not two:
        return "empty"
    one, two = float(one), float(two)
    if one == two:
        return "equal"
    apart = abs(one - two) / max(abs(one), abs(two))
    steps = [step for step in (2, 10, 30) if apart <= step / 100]
    return f"within {steps[0]} %" if steps else "differs"


@given(
    st.lists(st.text("0123a", max_size=6), min_size=1, max_size=6),
    st.lists(st.text("0123a", max_size=6), min_size=1, max_size=6),
)
def test_codes_by_optimal_string_alignment(left, right):
    assert named("code", left, right) == [of_code(*pair) for pair in product(left, right)]
    assert all(aligned(*pair) == OSA.distance(*pair) for pair in product(left, right))


@given(
    st.lists(st.text("anibo", max_size=8), min_size=1, max_size=6),
    st.lists(st.text("anibo", max_size=8), min_size=1, max_size=6),
)
def test_names_by_jaro_winkler(left, right):
    assert named("name", left, right) == [of_name(*pair) for pair in product(left, right)]
    for pair in product(left, right):
        if all(pair):
            assert jaro_winkler(*pair) == pytest.approx(JaroWinkler.similarity(*pair))


WHOLE = st.integers(-3000, 3000).map(str) | st.just("")


@given(st.lists(WHOLE, min_size=1, max_size=6), st.lists(WHOLE, min_size=1, max_size=6))
def test_numbers_by_their_difference_over_the_larger(left, right):
    assert named("number", left, right) == [of_number(*pair) for pair in product(left, right)]


PRINTED = [  # Winkler (1990), table 1, and steps that pairs stand on
    ("name", "martha", "marhta", "Jaro-Winkler 0.94"),  # .961
    ("name", "dwayne", "duane", "Jaro-Winkler 0.8"),  # .840
    ("name", "dixon", "dicksonx", "Jaro-Winkler 0.8"),  # .813
    ("name", "ab", "ba", "differs"),
    ("code", "ab12", "ab21", "edit distance 1"),
    ("code", "ca", "abc", "differs"),  # 3: no place is edited twice; Damerau has 2
    ("code", "1", "2", "edit distance 1"),
    ("number", "98", "100", "within 2 %"),
    ("number", "90", "100", "within 10 %"),
    ("number", "70", "100", "within 30 %"),
    ("number", "69", "100", "differs"),
    ("number", "-100", "100", "differs"),
    ("number", "0", "1e-9", "differs"),
    ("number", "1e300", "-1e300", "differs"),
    ("number", "1e-320", "1.01e-320", "within 2 %"),
    ("number", "inf", "1", "differs"),
    ("number", "inf", "-inf", "differs"),
    ("number", "1e308", "-1e308", "differs"),
]


@pytest.mark.parametrize(("kind", "one", "two", "name"), PRINTED)
def test_levels_at_their_steps(kind, one, two, name):
    assert named(kind, [one], [two]) == named(kind, [two], [one]) == [name]


def test_texts_by_cosines_and_equal_ones_above_all():
    steps = (0.15, 0.3, 0.45, 0.6, 0.75, 0.9)
    cosines = np.array([0.0, *(step - 1e-9 for step in steps), *steps, 1.0])
    expected = [
        "differs",
        "differs",
        *(f"cosine {s}" for s in steps[:-1]),
        *(f"cosine {s}" for s in steps),
        "cosine 0.9",
    ]
    pairs = np.zeros((len(cosines), 2), dtype=int)
    assert named("text", ["a b"], ["b c"], pairs, cosines) == expected
    assert named("text", ["a b", ""], ["a b"], np.array([[0, 0], [1, 0]]), np.array([0.2, 1.0])) == ["equal", "empty"]
    assert named("text", ["a b"], ["b c"]) == ["differs"]  # no cosines


@pytest.mark.parametrize("kind", ["text", "digits", "vectors"])
def test_cosines_have_the_levels_that_are_named(kind):
    grades = cosine_levels(kind, np.linspace(-1, 1, 4001))
    assert (np.diff(grades) >= 0).all()
    tops = len(LEVELS[kind]) - 1 - (kind == "text")  # equal texts are above
    assert sorted(set(grades.tolist())) == list(range(1, tops + 1))
    digits = [LEVELS["digits"][level] for level in cosine_levels("digits", np.array([0, 1 / 3, 1 / 2, 3 / 4, 1.0]))]
    assert digits == ["none shared", "few shared", "some shared", "most shared", "all shared"]


CELLS = {
    "code": st.text("01", max_size=4),
    "name": st.text("an", max_size=5),
    "number": st.integers(-9, 99).map(str) | st.just(""),
}


@pytest.mark.parametrize("kind", CELLS)
@given(data=st.data())
def test_the_order_of_sides_and_pairs_does_not_matter(kind, data):
    cells = st.lists(CELLS[kind], min_size=1, max_size=6)
    left, right = data.draw(cells), data.draw(cells)
    pairs = every_pair(left, right)
    order = np.array(data.draw(st.permutations(range(len(pairs)))))
    levels = np.array(named(kind, left, right, pairs))
    assert named(kind, right, left, pairs[:, ::-1]) == levels.tolist()
    assert named(kind, left, right, pairs[order]) == levels[order].tolist()
    single = coded(kind, left + right)
    joined = comparison_levels(single, pairs + np.array([0, len(left)]))
    assert [LEVELS[kind][level] for level in joined] == levels.tolist()


def test_many_distinct_pairs_are_compared_in_parts(monkeypatch):
    rng = np.random.default_rng(0)
    left, right = (["".join(rng.choice(list("0123"), 5)) for _ in range(20)] for _ in range(2))
    whole = named("code", left, right)
    monkeypatch.setattr(module, "_PAIRS", 7)
    assert named("code", left, right) == whole
    assert named("code", left, right, np.zeros((0, 2), dtype=int)) == []


def test_names_are_compared_in_either_order_of_their_words():
    left, right = ["Kim Novak", "J. Novak", "Kim Novak"], ["Novak, Kim", "Novak, J", "Novak Kimm"]
    both = [named("name", left[i : i + 1], right[i : i + 1])[0] for i in range(3)]
    assert both == ["Jaro-Winkler 0.94"] * 3
    assert named("name", ["Kim Novak"], ["Kim Porter"]) == [of_name("Kim Novak", "Kim Porter")]
