"""Pairs side by side, and what the page of a match says of them, of match weights and of clusters."""

import math
import re
from collections import Counter

import numpy as np
import pytest

from vicinal.linkage.compared import CellComparison, ComparedPair
from vicinal.report.differences import differences
from vicinal.report.match import MatchRecord, match_findings, match_html
from vicinal.report.pairs import pair_html, waterfall

PLANTED = "<script>document.title = 'taken over'</script>"


def marked(pieces):
    return [text for text, is_marked in pieces if is_marked]


@pytest.mark.parametrize(
    ("left", "right", "lacks", "adds"),
    [
        ("red lamp", "lamp, red", [], []),  # the order of words does not count
        ("Red LAMP", "red lamp", [], []),
        ("red lamp 5", "red lamp", ["5"], []),
        ("a a b", "a b b", ["a"], ["b"]),  # as often as the other has it
        ("Smith", "Smyth", ["i"], ["y"]),  # 4 of 5 letters are common
        ("2012-03-04", "2013-03-04", ["2"], ["3"]),
        ("abcde", "xbxde", ["a", "c"], ["x", "x"]),  # 3 of 5: six tenths
        ("abcde red", "xyzde red", ["abcde"], ["xyzde"]),  # 2 of 5: another word
        ("big oak - tree red lamp", "lamp red", ["big oak - tree"], []),  # with no letter between them: one
        ("big oak tree red", "red", [], []),  # 3 of 13 letters are common: less than a third
        ("oak tree", "red saw", [], []),  # all differs
        ("oak tr saw", "red blue saw", ["oak tr"], []),  # 3 of 8 letters are common, and of 10
        ("oak tree saw", "red blues saw", [], []),  # 3 of 10
        ("lamp", "", [], []),  # an empty cell does not differ
        ("Straßen", "strassem", ["ß", "n"], ["ss", "m"]),
        ("İxyz", "ixyz", ["İ"], ["i"]),
    ],
)
def test_marks_are_what_the_other_cell_lacks(left, right, lacks, adds):
    one, other = differences(left, right)
    assert (marked(one), marked(other)) == (lacks, adds)


def test_pieces_are_the_texts_and_unmarked_words_are_common():
    rng = np.random.default_rng(0)
    for _ in range(200):
        texts = [" ".join("".join(rng.choice(list("aBcé-"), 3)) for _ in range(rng.integers(6))) for _ in range(2)]
        sides = differences(*texts)
        assert ["".join(text for text, _ in side) for side in sides] == texts
        if all(map(marked, sides)):
            rest = ["".join(text for text, is_marked in side if not is_marked) for side in sides]
            letters = [Counter(re.sub(r"\W", "", text.casefold())) for text in rest]
            assert letters[0] == letters[1]
        assert differences(texts[1], texts[1])[0] == [(texts[1], False)] * bool(texts[1])


def test_bars_of_a_waterfall_follow_one_another():
    steps = [-8.0, 4.0, 10.0, -1.0]
    bars = waterfall(steps)
    low, high = -8.0, 6.0  # of the sums -8, -4, 6, 5

    def place(bits):
        return 100 * (bits - low) / (high - low)

    assert [bar.bits for bar in bars] == [*steps, 5.0]
    assert [bar.begin for bar in bars] == pytest.approx([place(-8), place(-8), place(-4), place(5), place(0)], abs=0.01)
    assert [bar.length for bar in bars] == pytest.approx([100 * abs(s) / 14 for s in [*steps, 5.0]], abs=0.01)
    assert {bar.even for bar in bars} == {round(place(0), 2)}
    assert [bar.text for bar in bars] == ["-8.0", "+4.0", "+10.0", "-1.0", "+5.0"]
    assert waterfall([0.0])[0].length == 0


CELLS = [
    CellComparison("fax", "", "", 0.5, "empty", "empty", 0.0),
    CellComparison("name", "Ann Smith", "Ann Smyth", 0.5, "alike", "edit distance 1", 6.25),
    CellComparison("city", "Rome", "", 0.5, "empty", "empty", 0.0),
    CellComparison("born", "1970", "1971", 0.5, "differs", "differs", -3.5),
]


def shown(resembles=(), **more):
    return ComparedPair("a1", PLANTED, 0.9375, CELLS, resembles, start=-0.25, refined=1.5, **more)


def test_a_pair_shows_its_weights_and_their_sum_is_its_log_odds():
    page = pair_html(shown([("a2", "b2", True, 0.5)]))
    for text in ("\N{MINUS SIGN}0.2", "+6.2", "\N{MINUS SIGN}3.5", "+1.5", "+4.0", "94 %", "edit distance 1"):
        assert f">{text}<" in page, text
    assert math.log2(0.9375 / 0.0625) == pytest.approx(4.0, abs=0.1)  # 4.0 is the sum of all
    assert "Ann Sm<mark>i</mark>th" in page
    assert page.count("(empty)") == 1
    assert "fax" not in page  # nothing is to be seen
    assert "a2 and b2 (match)" in page
    assert "<script" not in page


def test_cells_have_the_color_of_what_they_say():
    cells = [
        CellComparison("for", "1", "2", 0.5, "differs", "edit distance 1", 7.1),
        CellComparison("against", "1", "1", 0.5, "agrees", "equal", -0.6),
        CellComparison("little", "1", "2", 0.5, "differs", "differs", -0.4),
        CellComparison("alike", "1", "1", 0.5, "agrees"),
        CellComparison("apart", "1", "2", 0.5, "differs"),
    ]
    page = pair_html(ComparedPair("a", "b", 0.5, cells, []))
    rows = re.findall(r'<tr class="(\w*)"><th scope="row"><bdi>(\w+)<', page)
    assert rows == [("same", "for"), ("apart", "against"), ("", "little"), ("same", "alike"), ("apart", "apart")]


def test_a_column_without_weight_has_no_bar():
    plain = [CellComparison(cell.column, cell.left, cell.right, 0.5, cell.verdict) for cell in CELLS]
    page = pair_html(ComparedPair("a", "b", 0.25, plain, [], start=-1.0, refined=-0.5))
    assert page.count("<svg") == 3
    assert ">\N{MINUS SIGN}1.5<" in page
    assert ">alike<" in page


def record(**more):
    basic = {
        "name": "a and b",
        "rows": [10, 12],
        "pairs": (0, 0),
        "links": (7, "one-to-one"),
        "recall": {},
        "candidates": 10,
        "chances": np.zeros(0),
        "truth": np.zeros(0),
        "threshold": 0.5,
        "scores": {},
        "expected": {"precision": 0.9974, "recall": 0.88, "f1": 0.92},
        "promised": None,
        "sure": [shown()] * 5,
        "doubtful": [],
    }
    return MatchRecord(**basic | more)


def test_the_page_tells_weights_distribution_clusters_and_what_was_missed():
    weights = [
        ("name", "differs", 0.05, 0.93, math.log2(0.05 / 0.93)),
        ("name", "equal", 0.95, 0.000404, math.log2(0.95 / 0.000404)),
        (PLANTED, "equal", 0.5, 0.5, 0.0),
    ]
    page = match_html(
        record(
            weights=weights,
            scored=np.array([0.01] * 90 + [0.99] * 9),
            reached=0.964,
            weakest=[("12", "48", 0.31, 4)],
            clusters={1: 20, 4: 1},
            notes=["Two estimates disagree: 913 and 466 matches."],
        )
    )
    rows = re.findall(
        r"<tr[^>]*><th scope=\"row\"><bdi>([^<]*|&lt;.*?)</bdi></th><td>([^<]*)</td>(.*?)</tr>", page, re.DOTALL
    )
    numbers = [[name, level, *re.findall(r"num\"[^>]*>([^<]+)<", rest)] for name, level, rest in rows]
    assert numbers[0] == ["name", "differs", "5.0 %", "93 %", "\N{MINUS SIGN}4.2"]
    assert numbers[1] == ["", "equal", "95 %", "1 in 2500", "+11.2"]
    assert numbers[2][1:] == ["equal", "50 %", "50 %", "0.0"]
    assert "<script" not in page
    assert "Estimated candidate recall: at most 96.4 %." in page
    assert "All 99 candidate pairs" in page
    assert re.search(r"12</bdi>.*48</bdi>.*31 %</bdi>.*>4</bdi>", page)
    assert page.index("Expected precision") < page.index("Two estimates disagree") < page.index("<h2>Links")
    assert page.count('<article class="card pair">') == 5
    assert "<summary>2 more</summary>" in page


def test_the_most_doubtful_pairs_come_first():
    pairs = [ComparedPair(str(chance), "b", chance, CELLS, []) for chance in (0.99, 0.7, 0.4, 0.01)]
    page = match_html(record(doubtful=pairs, sure=[]))
    assert re.findall(r"<h3><bdi>(.*?)</bdi>", page) == ["0.4", "0.7", "0.99", "0.01"]


def test_the_first_sentence_says_how_many_links_are_right_and_by_what():
    assert match_findings(record())[0] == (
        "7 links with a probability of 50 % or more. Expected precision 99.7 %, expected recall 88 % "
        "(among the candidates)."
    )
    checked = record(scores={"precision": 0.9, "recall": 0.8, "f1": 0.85}, pairs=(30, 10), promised=0.85)
    assert match_findings(checked)[0] == (
        "7 links. On 10 held-out labelled pairs: precision 90 % (promised: at least 85 %), recall 80 %."
    )
    assert match_findings(record(links=(0, "many"), expected={}))[0] == "No pair is linked."


def test_bars_of_the_histogram_hold_all_pairs():
    from vicinal.report.match import chance_histogram

    chances = np.array([0.0, 0.01, 0.5, 0.97, 1.0])
    bars = chance_histogram(chances, 0.5).axes[0].patches
    assert [bar.get_height() for bar in bars] == np.histogram(chances, 20, (0, 1))[0].tolist()
    assert len({bar.get_facecolor() for bar in bars[:10]}) == len({bar.get_facecolor() for bar in bars[10:]}) == 1
