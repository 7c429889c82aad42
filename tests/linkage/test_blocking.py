"""Candidates of large tables against all pairs of small ones."""

from collections import Counter
from itertools import combinations, pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.linkage import block_keys, block_rules, blocking
from vicinal.linkage.block_keys import Cells, Part, PartsRule, TokensRule, grams_of, parts_of, text_hashes, words_of
from vicinal.linkage.block_recall import estimated_recall
from vicinal.linkage.blocking import BlockedPairs, BlockIndex, block_index
from vicinal.linkage.columns import CodedColumn


def coded(left, right=None, kind="name", name="a"):
    """A column of texts, "" where empty."""
    texts = pd.Series([*left, *(right or [])], dtype=object)
    codes, values = pd.factorize(texts.mask(texts == ""))
    codes = codes.astype(np.int32)
    first = codes[: len(left)]
    return CodedColumn(name, kind, list(values), (first, first if right is None else codes[len(left) :]))


def blocked_pairs(columns, single, most):
    cells = Cells(columns)
    index = block_index(cells, single=single, most=most)
    return index, index.candidates(cells, later=single)


def texts_of(column, side):
    return ["" if code < 0 else column.values[code] for code in column.sides[side]]


def as_set(result):
    pairs = list(map(tuple, result.pairs.tolist()))
    assert pairs == sorted(set(pairs))
    return dict(zip(pairs, result.bits.tolist(), strict=True))


def every_pair(columns, rules, single):
    """All pairs of rows by the definition of the rules."""
    by_name = {column.name: column for column in columns}
    rows = [len(columns[0].sides[side]) for side in (0, 1)]
    pairs = {}
    for one in range(rows[0]):
        for other in range(one + 1 if single else 0, rows[1]):
            for number, rule in enumerate(rules):
                texts = [
                    [part.texts(texts_of(by_name[part.column], s))[(one, other)[s]] for part in rule.parts]
                    for s in (0, 1)
                ]
                if all(texts[0]) and texts[0] == texts[1]:
                    pairs[one, other] = pairs.get((one, other), 0) | 1 << number
    return pairs


RULES = [
    PartsRule((Part("a"),)),
    PartsRule((Part("a", "start", 2), Part("b"))),
    PartsRule((Part("a", "end", 1), Part("b"), Part("c"))),
    PartsRule((Part("b"), Part("a"))),
]
CELLS = st.lists(st.sampled_from(["", "x", "xy", "xyz", "yz", "zz"]), min_size=27, max_size=27)


@settings(max_examples=40, deadline=None)
@given(CELLS, st.integers(1, 8), st.booleans(), st.sampled_from([1, 3, 1 << 17]))
def test_pairs_are_those_that_share_a_key(cells, rows, single, piece):
    parts = [cells[start : start + 9] for start in (0, 9, 18)]
    columns = [
        coded(part[:rows], None if single else part[rows:], name=name) for part, name in zip(parts, "abc", strict=True)
    ]
    hashed = Cells(columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocking, "_ROWS", piece)
        index = BlockIndex(RULES).add(hashed, 1)
        assert as_set(index.candidates(hashed, later=single)) == every_pair(columns, RULES, single)


def test_an_empty_cell_joins_nothing():
    columns = [coded(["", "u", "u"], ["", "u", ""], name="a"), coded(["v", "", "v"], ["v", "v", "v"], name="b")]
    cells = Cells(columns)
    index = BlockIndex([PartsRule((Part("a"), Part("b")))]).add(cells, 1)
    assert as_set(index.candidates(cells)) == {(2, 1): 1}


def test_evidence_is_how_rare_the_shared_keys_are():
    columns = [coded(["u", "v"], ["u", "u", "u", "v"], name="a"), coded(["x", "y"], ["x", "x", "", "x"], name="b")]
    cells, rules = Cells(columns), [PartsRule((Part("a"),)), PartsRule((Part("b"),))]
    blocked = BlockIndex(rules).add(cells, 1).candidates(cells)
    assert blocked.pairs.tolist() == [[0, 0], [0, 1], [0, 2], [0, 3], [1, 3]]
    one, other = np.log2(4 / 3), np.log2(4 / 3)
    assert blocked.evidence == pytest.approx([one + other, one + other, one, other, 2.0], abs=1 / 16)
    pieces = BlockIndex(rules).add(cells, 1).add(cells, 0).candidates(cells)
    assert pieces.evidence[0] == pytest.approx(np.log2(6 / 4) + np.log2(6 / 4), abs=1 / 16)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), unique=True, max_size=20), st.integers(1, 3), st.randoms()
)
def test_the_strongest_pairs_of_either_row_stay(pairs, each, random):
    pairs = sorted(pairs)
    evidence = np.array(random.sample(range(100), len(pairs)), dtype=np.float32)
    bits = np.arange(len(pairs), dtype=np.uint32)
    strong = BlockedPairs(np.array(pairs, dtype=np.int32).reshape(-1, 2), bits, evidence).strongest(each)
    expected = [
        number
        for number, pair in enumerate(pairs)
        if any(
            sum(evidence[other] > evidence[number] for other in range(len(pairs)) if pairs[other][side] == pair[side])
            < each
            for side in (0, 1)
        )
    ]
    assert strong.bits.tolist() == expected
    assert strong.pairs.tolist() == [list(pairs[number]) for number in expected]
    assert strong.evidence.tolist() == evidence[expected].tolist()


def test_pairs_of_equal_evidence_are_no_more_than_asked_for():
    pairs = np.stack(np.divmod(np.arange(400), 20), axis=1).astype(np.int32)
    alike = BlockedPairs(pairs, np.zeros(400, np.uint32), np.ones(400, np.float32)).strongest(2)
    assert len(alike.pairs) <= 2 * 20 + 2 * 20
    assert all(np.bincount(side, minlength=20).min() >= 2 for side in alike.pairs.T)


def test_a_range_of_rows_and_few_pairs_at_a_time(monkeypatch):
    column = coded(["u", "v", "u", "u"], ["u", "u", "v"])
    cells = Cells([column])
    index = BlockIndex([PartsRule((Part("a"),))]).add(cells, 1)
    every = as_set(index.candidates(cells))
    monkeypatch.setattr(blocking, "_PAIRS", 2)
    assert (
        as_set(index.candidates(cells))
        == every
        == {(0, 0): 1, (0, 1): 1, (1, 2): 1, (2, 0): 1, (2, 1): 1, (3, 0): 1, (3, 1): 1}
    )


@pytest.mark.parametrize("threads", [1, 3])
def test_any_number_of_threads_gives_the_same(threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(blocking, "_ROWS", 4)
    cells = Cells([coded(list("abcabcaa"), list("bacabbbcaa"))])
    index = BlockIndex([PartsRule((Part("a"),))]).add(cells, 1)
    pairs = [(row, other) for row, one in enumerate("abcabcaa") for other, two in enumerate("bacabbbcaa") if one == two]
    assert index.candidates(cells).pairs.tolist() == [list(pair) for pair in sorted(pairs)]


def test_a_block_that_is_too_large_gives_no_pairs():
    column = coded(["u", "v", "u"], ["u", "v", "u", "v", "v", "w"])
    cells = Cells([column])
    index = BlockIndex([PartsRule((Part("a"),))]).add(cells, 1)
    index.largest = 2
    assert set(as_set(index.candidates(cells))) == {(0, 0), (0, 2), (2, 0), (2, 2)}
    sizes = index.block_sizes(cells)
    assert {size: count for size, count in enumerate(sizes[0]) if count} == {2: 2, 3: 1}


def test_the_largest_block_is_the_one_that_the_pairs_have_room_for(monkeypatch):
    rule = PartsRule((Part("a"),))
    monkeypatch.setattr(blocking, "choose_rules", lambda *_, **__: [rule])
    column = coded(["u"] * 3 + ["v"] * 2 + ["w"], ["u"] * 5 + ["v"] * 2 + ["w"])
    for most, largest, pairs in ((1, 1, 1), (5, 4, 5), (19, 4, 5), (20, 4096, 20)):
        index, result = blocked_pairs([column], single=False, most=most)
        assert (index.largest, len(result.pairs)) == (largest, pairs)
    assert index.rules == [rule]


def test_one_table_counts_each_pair_once(monkeypatch):
    monkeypatch.setattr(blocking, "choose_rules", lambda *_, **__: [PartsRule((Part("a"),))])
    _, result = blocked_pairs([coded(["u", "u", "v", "u", "v"])], single=True, most=8)
    assert set(as_set(result)) == {(0, 1), (0, 3), (1, 3), (2, 4)}


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 99))
def test_rows_that_come_later_are_there_as_if_from_the_start(steps, seed):
    random = np.random.default_rng(seed)
    rows, rule = sum(steps), PartsRule((Part("a"),))
    texts = random.choice(["u", "v", "w"], rows).tolist()
    asked = Cells([coded(["u", "v", "w"], ["u"])])
    whole = BlockIndex([rule]).add(Cells([coded(texts)]))
    pieces = BlockIndex([rule])
    for start, count in zip(np.cumsum([0, *steps]), steps, strict=False):
        pieces.add(Cells([coded(texts[start : start + count])]))
    assert pieces.rows == whole.rows == rows
    assert pieces.nbytes == whole.nbytes == 8 * rows
    assert as_set(pieces.candidates(asked)) == as_set(whole.candidates(asked))
    assert (pieces.block_sizes(asked) == whole.block_sizes(asked)).all()


def test_a_table_that_is_too_long(monkeypatch):
    monkeypatch.setattr(blocking, "ROW_BITS", 1)
    with pytest.raises(ValueError, match="at most 2, got 3; split"):
        BlockIndex([]).add(Cells([coded(["u", "v", "w"])]))


def test_halves_of_a_column():
    assert parts_of(coded(["abcdefgh"])) == [Part("a"), Part("a", "start", 4), Part("a", "end", 4)]
    assert parts_of(coded(["abcd", "abcde", "ab"])) == [Part("a"), Part("a", "start", 2), Part("a", "end", 2)]
    for short in (coded(["abc"]), coded(["1234.5"], kind="number"), coded(["long words"], kind="text"), coded([""])):
        assert parts_of(short) == [Part("a")]
    assert Part("a", "end", 3).texts(["abcdef", "ab"]) == ["def", "ab"]


@pytest.mark.parametrize("few", [0, 100])
def test_words_and_letters_of_texts(few, monkeypatch):
    monkeypatch.setattr(block_keys, "_FEW", few)
    values = ["red, red lamp", "", "--", "Straße 5b_½—Ж漢"]
    words = words_of(values)
    ends = words.ends.tolist()
    expected = [["red", "red", "lamp"], [], [], ["Straße", "5b", "½", "Ж漢"]]
    hashes = [[h for h in words.hashes[words.ids[a:b]].tolist() if h] for a, b in pairwise(ends)]
    assert hashes == [text_hashes(each).tolist() if each else [] for each in expected]
    grams = grams_of(["abc", "bc", "xabc", "a", "y" * 100])
    one, two, three, four, five = (set(grams.ids[a:b].tolist()) for a, b in pairwise(grams.ends))
    assert [len(each) for each in (one, two, three, four, five)] == [2, 1, 3, 0, 3]
    assert len(one & three) == 1  # "abc "
    assert not one & two
    assert len(grams.hashes) == 8


def test_pairs_of_the_rarest_words_join(monkeypatch):
    monkeypatch.setattr("vicinal.linkage.block_keys.RAREST", 2)
    random = np.random.default_rng(0)
    words = np.array([f"w{i}" for i in range(12)])
    shares = 0.7 ** np.arange(12)
    tables = [
        [
            " ".join(random.choice(words, random.integers(0, 5), replace=False, p=shares / shares.sum()))
            for _ in range(30)
        ]
        for _ in range(2)
    ]
    columns = [coded(*tables, kind="text", name="a"), coded(["w0"] * 30, [""] * 30, name="b")]
    cells = Cells(columns)
    rule = TokensRule.of("words", cells, ["a", "b"], single=False)
    rows = [
        [set(texts_of(columns[0], s)[i].split()) | set(texts_of(columns[1], s)[i].split()) for i in range(30)]
        for s in (0, 1)
    ]
    counts = [
        Counter(word for column in columns for text in texts_of(column, s) for word in text.split()) for s in (0, 1)
    ]
    order = sorted(
        (word for word in words if counts[0][word] * counts[1][word]),
        key=lambda word: (counts[0][word] * counts[1][word], text_hashes([word])[0]),
    )

    def keys(row):
        rarest = [word for word in order if word in row][:2]
        return {*((word,) for word in rarest), *combinations(rarest, 2)}

    expected = {
        (i, j): 1 for i, one in enumerate(rows[0]) for j, other in enumerate(rows[1]) if keys(one) & keys(other)
    }
    assert 50 < len(expected) < 800
    index = BlockIndex([rule]).add(cells, 1)
    assert as_set(index.candidates(cells)) == expected
    assert (rule.kind, rule.columns) == ("words", ("a", "b"))


def test_words_of_a_single_row_are_no_keys():
    cells = Cells([coded(["once twice", "twice", "thrice thrice"], kind="text")])
    rule = TokensRule.of("words", cells, ["a"], single=True)
    assert rule.known.tolist() == sorted(text_hashes(["twice", "thrice"]).tolist())
    new = Cells([coded(["once", "twice never", ""], ["x"], kind="text")])
    assert rule.keys(new, 0, slice(None))[1].tolist() == [1]


def people(rows, seed=0):
    """Two tables of persons of whom each has a copy, with a typo in a cell in five and one in ten who has moved."""
    random = np.random.default_rng(seed)
    towns = np.array([f"town{i}" for i in range(60)])
    town = random.integers(0, 60, rows)
    left = {
        "name": np.array([f"name{i * 7919 % 10007}" for i in range(400)])[random.integers(0, 400, rows)],
        "born": np.char.add("19", random.integers(100000, 999999, rows).astype(str)),
        "town": towns[town],
        "code": (1000 + town // 2).astype(str),
    }
    move, new = random.random(rows) < 0.1, random.integers(0, 60, rows)
    right = {
        **left,
        "town": np.where(move, towns[new], left["town"]),
        "code": np.where(move, (1000 + new // 2).astype(str), left["code"]),
    }
    for name, cells in right.items():
        wrong = random.random(rows) < 0.2
        right[name] = np.array(
            [cell[:-2] + "#" + cell[-1] if bad else cell for cell, bad in zip(cells, wrong, strict=True)]
        )
    kinds = {"name": "name", "born": "code", "town": "name", "code": "code"}
    return [coded(left[name].tolist(), right[name].tolist(), kinds[name], name) for name in left]


def test_chosen_rules_find_the_copies(monkeypatch):
    columns = people(3000)
    groups = []
    taken = block_rules._Sample.groups
    monkeypatch.setattr(block_rules._Sample, "groups", lambda *given: groups.append(taken(*given)) or groups[-1])
    index, result = blocked_pairs(columns, single=False, most=60_000)
    assert groups == [[{"town", "code"}]]
    copies = result.pairs[:, 0] == result.pairs[:, 1]
    assert copies.sum() > 0.985 * 3000
    assert len(result.pairs) <= 60_000
    fewer = result.strongest(2)
    assert len(fewer.pairs) < 4 * 3000
    assert (fewer.pairs[:, 0] == fewer.pairs[:, 1]).sum() > 0.98 * 3000
    assert len(index.rules) == len(set(map(str, index.rules))) <= block_rules.MOST_RULES


def test_matches_of_two_classes_are_estimated_from_those_that_rules_found():
    rows, random = 20_000, np.random.default_rng(0)
    care = np.where(random.random(rows) < 0.6, 0.9, 0.4)
    texts = np.arange(rows).astype(str)
    columns = [
        coded(texts.tolist(), np.where(random.random(rows) < care, texts, "-").tolist(), "number", name)
        for name in "abcde"
    ]
    rules = [PartsRule((Part(one), Part(other))) for one, other in ("ab", "bc", "cd", "de")]
    cells = Cells(columns)
    pairs, bits, _ = BlockIndex(rules).add(cells, 1).candidates(cells)
    assert 0.6 < len(pairs) / rows < 0.9
    estimate = estimated_recall(cells, rules, pairs, bits, np.ones(len(pairs)))
    assert estimate == pytest.approx(len(pairs) / rows, abs=0.02)


def test_texts_of_many_words_are_joined_by_words_and_others_by_letters():
    random = np.random.default_rng(0)
    words = np.array(
        [f"{a}{b}" for a in ("ba", "ko", "lim", "tru", "fe") for b in ("ro", "ste", "nak", "pil", "dam", "vo")]
    )
    names = ["".join(random.choice(words, 3)) for _ in range(300)]
    rules = block_rules.choose_rules(Cells([coded(names, names)]), 20, single=False)
    assert "letters" in [getattr(rule, "kind", "") for rule in rules]
    texts = [" ".join(random.choice(words, 6)) for _ in range(300)]
    rules = block_rules.choose_rules(
        Cells([coded(texts, texts, "text"), coded(names, names, name="b")]), 20, single=False
    )
    assert (rules[0].kind, rules[0].columns) == ("words", ("a", "b"))


def test_of_many_columns_those_that_tell_rows_apart_are_tried(monkeypatch):
    random = np.random.default_rng(0)
    flags = [coded(random.choice(["yes", "no"], 200).tolist(), name=f"flag{i}") for i in range(4)]
    empty = np.where(random.random(200) < 0.95, "", np.arange(200).astype(str)).tolist()
    columns = [*flags, coded(empty, name="seldom"), coded([f"{i % 90}" for i in range(200)], name="often")]
    monkeypatch.setattr(block_rules, "_COLUMNS", 2)
    monkeypatch.setattr(block_rules, "_TRIALS", 1)
    columns.insert(0, coded([f"{i % 40}" for i in range(200)], name="place"))
    sample = block_rules._Sample(Cells(columns), single=True)
    assert [column.name for column in sample.telling(columns)] == ["place", "often"]
    parts = {
        part
        for rule in block_rules.choose_rules(Cells(columns), 20, single=True)
        for part in getattr(rule, "parts", ())
    }
    assert {part.column for part in parts} <= {"place", "often"}


def test_nothing_to_join():
    assert len(blocked_pairs([coded(["same"] * 3, ["same"])], single=False, most=10)[1].pairs) == 0


def test_two_independent_columns_have_the_estimate_of_lincoln_and_petersen():
    both, one, other = 600, 200, 300
    left = [str(i) for i in range(both + one + other)]
    first = [text if i < both + one else "-" for i, text in enumerate(left)]
    second = [text if i < both or i >= both + one else "-" for i, text in enumerate(left)]
    columns = [coded(left, first, "code", "a"), coded(left, second, "code", "b")]
    rules = [PartsRule((Part("a"),)), PartsRule((Part("b"),))]
    cells = Cells(columns)
    pairs, bits, _ = BlockIndex(rules).add(cells, 1).candidates(cells)
    expected = len(pairs) / ((both + one) * (both + other) / both)
    ones = np.ones(len(pairs))
    assert estimated_recall(cells, rules, pairs, bits, ones) == pytest.approx(expected, abs=0.01)
    assert np.isnan(estimated_recall(cells, rules[:1], pairs, bits, ones))
    assert np.isnan(estimated_recall(cells, rules, pairs, bits, ones / 100))
    half = (np.arange(len(pairs)) < both) * 1.0  # only those that agree in both are matches
    assert estimated_recall(cells, rules, pairs, bits, half) > 0.99
