"""Links without labels: what must not change them, what labels do to them, and when there are none."""

import random
import unicodedata

import numpy as np
import pandas as pd
import pytest
import torch

from references.persons import ENDS, STEMS, persons, slipped, two_tables
from vicinal.estimators import RowMatcher
from vicinal.estimators.match_model import DIGITS
from vicinal.estimators.match_rows import CODED, MatchColumns, MatchTable
from vicinal.linkage.levels import LEVELS


def fitted(left, right, answers=None, **settings):
    return RowMatcher(**{"encoders": {"text": "none"}, **settings}).fit(left, right, answers=answers)


def probabilities(model):
    table = model.scored_candidates()
    return {frozenset(map(str, pair)): p for *pair, p in zip(table.left, table.right, table.probability, strict=True)}


def linked(model):
    return {frozenset(map(str, pair)) for pair in zip(model.link().left, model.link().right, strict=True)}


def assert_same(one, other, atol=1e-9):
    ours, theirs = (each if isinstance(each, dict) else probabilities(each) for each in (one, other))
    assert set(ours) == set(theirs)
    np.testing.assert_allclose([ours[pair] for pair in ours], [theirs[pair] for pair in ours], atol=atol)


FEW, SOME = (12, 30), (40, 20)
"""Tables whose pairs are weighed by columns alone, and some that are learned from."""


@pytest.fixture(autouse=True, scope="module")
def _clear_tables_are_learned_from():
    """What is learned beyond the weights shows in small tables, which the weights alone would do for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vicinal.estimators.match_linkage._CLEAR", 0.0)
        yield


@pytest.fixture(scope="module", params=[FEW, SOME], ids=["few", "some"])
def case(request):
    tables = two_tables(0, *request.param)
    return *tables, fitted(*tables), request.param[0]


@pytest.fixture(scope="module")
def refined():
    tables = two_tables(1, *SOME)
    return *tables, fitted(*tables)


def test_links_are_right(case):
    *_, model, both = case
    links = linked(model)
    right = {frozenset({f"l{i}", f"r{i}"}) for i in range(both)}
    assert len(links & right) >= 0.95 * both
    assert len(links - right) <= 0.1 * both
    assert model.linkage_.expected(model.tables_) == pytest.approx(both, rel=0.15)
    count = model.linkage_.candidates(model.tables_)[2].sum()  # as precision and recall are told by
    assert any(note.startswith(f"{count:.0f} matches are expected") for note in model.notes_)
    assert (model.linkage_.refinement is not None) == (both == SOME[0])


@pytest.mark.sweep(9)
def test_the_order_of_rows_and_columns_does_not_matter(case):
    left, right, model, _ = case
    other = fitted(left.sample(frac=1, random_state=1), right.sample(frac=1, random_state=2))
    assert_same(other, model)
    assert linked(other) == linked(model)
    assert_same(fitted(left[left.columns[::-1]], right[right.columns[::-1]]), model)


def test_the_order_of_rows_of_one_table_does_not_matter():
    table = persons(0, 100)
    table = pd.concat([table, slipped(table[:40], 1)]).assign(id=range(140))
    model, other = fitted(table, None), fitted(table.sample(frac=1, random_state=1), None)
    assert model.linkage_.refinement is not None
    assert_same(other, model)
    assert linked(other) == linked(model)
    assert linked(model) >= {frozenset({str(i), str(100 + i)}) for i in range(40)}


def test_the_order_of_rows_does_not_matter_where_random_pairs_tell(monkeypatch):
    monkeypatch.setattr("vicinal.estimators.match_linkage.RANDOM_PAIRS", 300)
    left, right = two_tables(2, *SOME)
    other = left.sample(frac=1, random_state=1)[left.columns[::-1]], right.sample(frac=1, random_state=2)
    assert_same(fitted(*other), fitted(left, right))


DOUBTFUL = [0.95] * 10 + [0.45] * 30

LOOKS = [  # 20 pairs are named; then, and then; log odds by weights; labels; matches at the end, if there is a sign
    ([0.9] * 15, [0.9] * 15, 1.0, 0, 15),
    ([0.9] * 15, [0.9] * 15, 1.0, 20, 15),
    ([0.9] * 15, [0.9] * 15, -1.0, 0, None),
    ([0.9] * 15, [0.4] * 70, 1.0, 0, None),
    ([0.1] * 90, [], 1.0, 0, None),
]


@pytest.mark.parametrize(("second", "third", "odds", "labels", "matches"), LOOKS)
def test_a_second_look_is_taken_where_a_part_is_named(second, third, odds, labels, matches, monkeypatch):
    model = fitted(*two_tables(0, *FEW))
    linkage, rate = model.linkage_, model.linkage_.rate
    chances = [np.pad(each, (0, 90 - len(each))) for each in ([0.95] * 20 + [0.3] * 70, second, third)]
    starts = []

    def refine(self, tables, pairs, start, labels, seed):
        starts.append(start)
        del chances[0]

    for name, method in (
        ("_refine", refine),
        ("_scored", lambda self, tables: (None, None, chances[0])),
        ("_doubt", lambda self, tables, labels: True),
        ("ratios", lambda self, tables, at: np.full(len(at), 3 + odds)),
        ("start", lambda self, tables: -3.0),
    ):
        monkeypatch.setattr(f"vicinal.estimators.match_linkage.Linkage.{name}", method)
    linkage._look_again(model.tables_, np.zeros((90, 2), dtype=int), ((), [1.0] * labels), 0)
    np.testing.assert_array_equal(starts[0], [1] * 20 + [0] * 70)
    assert len(starts) == (2 if second[0] > 0.5 else 1)
    assert linkage.rate == (rate if matches is None else pytest.approx(matches / 42))
    assert linkage.is_sure == (matches is None or labels == 20)


@pytest.mark.parametrize(("count", "few", "again"), [(0, 200, 1), (25, 200, 1), (25, 25, 0)])
def test_a_second_look_is_taken_where_there_is_no_sign_of_what_was_refined(count, few, again, monkeypatch):
    looks, answers = [], labelled(range(count), 1) if count else None
    monkeypatch.setattr("vicinal.estimators.match_linkage.Linkage._look_again", lambda *each: looks.append(each))
    monkeypatch.setattr("vicinal.estimators.match_linkage.FEW", few)
    fitted(*two_tables(0, *SOME), answers)
    assert not looks
    are_named = "vicinal.estimators.match_linkage.Linkage._are_named"  # labels check probabilities, not their number
    monkeypatch.setattr(are_named, lambda self, tables, share=0.0: False)
    fitted(*two_tables(0, *SOME), answers)
    assert len(looks) == again


def test_nothing_is_learned_beyond_weights_that_leave_nothing_open_and_that_labels_agree_with(monkeypatch):
    left, right = two_tables(0, *SOME)
    monkeypatch.setattr("vicinal.estimators.match_linkage._CLEAR", 0.005)
    alone = fitted(left, right)
    chances = np.array(list(probabilities(alone).values()))
    assert np.minimum(chances, 1 - chances).sum() < 0.005 * chances.sum()
    assert alone.linkage_.refinement is None
    assert linked(alone) >= {frozenset({f"l{i}", f"r{i}"}) for i in range(40)}
    agreed, denied = (labelled(range(3), match) for match in (1, 0))
    assert fitted(left, right, agreed).linkage_.refinement is None
    assert fitted(left, right, denied).linkage_.refinement is not None
    monkeypatch.setattr("vicinal.estimators.match_linkage._CLEAR", 0.0)
    assert fitted(left, right).linkage_.refinement is not None


def test_the_order_of_tables_does_not_matter(case):
    left, right, model, _ = case
    other = fitted(right, left)
    assert_same(other, model, atol=1e-3)
    assert linked(other) == linked(model)


def test_copies_of_rows_change_nothing_and_are_as_probable(refined):
    left, right, model = refined
    more = fitted(pd.concat([left, left[:10].assign(id=[f"c{i}" for i in range(10)])]), right)
    every = probabilities(more)
    assert_same({pair: p for pair, p in every.items() if not any(name[0] == "c" for name in pair)}, model)
    for pair, p in every.items():
        assert every[frozenset("l" + name[1:] if name[0] == "c" else name for name in pair)] == p


def test_forms_of_unicode_and_gaps_change_nothing(refined):
    left, right, model = refined
    words = ["first", "last", "street", "town"]
    other = right.assign(**{n: [unicodedata.normalize("NFKD", f"{c.upper()} ") for c in right[n]] for n in words})
    other = other.assign(born=[cell or None for cell in right["born"]])
    assert_same(fitted(left, other), model)


def test_a_folder_and_rows_that_come_and_go(case, tmp_path):
    *_, model, _ = case
    model.save(tmp_path / "m")
    again = RowMatcher.load(tmp_path / "m")
    assert_same(again, model, atol=0)
    pd.testing.assert_frame_equal(again.link(), model.link())
    pd.testing.assert_frame_equal(again.match_weights(), model.match_weights())
    pair = pd.DataFrame({"left": ["l0"], "right": ["r0"]})
    assert str(again.explain(pair)) == str(model.explain(pair))
    again.add(persons(77, 2).assign(id=["n0", "n1"]))
    again.add(persons(77, 2)[1:].assign(id=["n2"]), "right")
    assert frozenset({"n1", "n2"}) in linked(again)
    again.forget(["n0", "n1"], ["n2"])
    assert_same(again, model)


def labelled(numbers, match):
    return pd.DataFrame({"left": [f"l{i}" for i in numbers], "right": [f"r{i}" for i in numbers], "match": match})


@pytest.mark.parametrize("seed", [2])  # where labels alone leave no sign of matches
def test_labels_lower_and_raise_pairs_that_are_like_them(seed):
    tables = two_tables(seed, *SOME)
    others = labelled(range(8, 40), 0)
    chances = []
    for match in (0, 1):
        answers = labelled(range(8), match)
        model = fitted(*tables, answers)
        chances.append(model.predict_proba(others)[:, 1])
        known = [probabilities(model)[frozenset(pair)] for pair in answers[["left", "right"]].to_numpy().tolist()]
        assert known == [match] * 8  # what was labelled is so
        assert all(pair.probability == match for pair in model.explain(answers))
        assert (linked(model) >= set(map(frozenset, answers[["left", "right"]].to_numpy().tolist()))) == bool(match)
    without = fitted(*tables).predict_proba(others)[:, 1]
    assert chances[0].mean() < without.mean() - 0.05
    assert chances[1].mean() > without.mean() - 0.02


@pytest.mark.parametrize(("to", "learned"), [("left", False), ("right", True), ("one", False)])
def test_rows_that_come_are_told_as_if_all_were_linked_again(to, learned, monkeypatch):
    one, other = two_tables(2, 60, 20)
    new = one.iloc[[*range(6), *range(62, 68)]]  # half of them match
    one = one.drop(new.index)
    tables = {"left": [one, other], "right": [other, one], "one": [pd.concat([one, other], ignore_index=True), None]}
    monkeypatch.setattr("vicinal.estimators.matching.FEW", 50)
    pairs = pd.concat([labelled(range(8, 60), 1), labelled(range(9, 60), 0)]).rename(
        columns={"left": "right", "right": "left"}
    )
    pairs.loc[pairs["match"] == 0, "right"] = [f"l{i}" for i in range(8, 59)]
    model = RowMatcher(encoders={"text": "ngrams" if learned else "none"})
    model.fit(*tables[to], pairs if learned else None)
    assert learned == (model.learned_ is not None)
    assert model.linkage_.refinement is not None
    side = "right" if to == "right" else "left"
    with monkeypatch.context() as patch:
        patch.setattr(RowMatcher, "link", None)  # nothing is linked again
        found = pd.concat([*(model.add(new.iloc[[row]], side) for row in range(6)), model.add(new.iloc[6:], side)])
    if to == "left":  # another row is linked to the right one of this copy of it
        twin = model.tables_.more(0, one.iloc[[10]].assign(id="twin"), None)
        assert model.new_rows_[0].pairs(twin)[2].max() < 0.6
    again = model.link()
    again = again[again[["left", "right"]].isin(new["id"].tolist()).any(axis=1)]
    chances = [
        {
            frozenset(pair): chance
            for *pair, chance in zip(each["left"], each["right"], each["probability"], strict=True)
        }
        for each in (found, again)
    ]
    both = chances[0].keys() & chances[1].keys()
    assert len(both) >= 5
    assert len(chances[0].keys() | chances[1].keys()) <= len(both) + 1
    np.testing.assert_allclose([chances[0][pair] for pair in both], [chances[1][pair] for pair in both], atol=0.1)


def test_labels_that_match_a_row_twice_make_two_matches_of_a_row_probable(tmp_path):
    left, right = two_tables(1, *SOME)
    twice = slipped(right[:20], 3).assign(id=[f"s{i}" for i in range(20)])
    others = [(f"l{i}", f"{side}{i}") for i in range(10, 20) for side in "rs"]
    answers = labelled(range(10), 1)
    further = answers.assign(right=answers["right"].str.replace("r", "s"))
    least = []
    for each in (further.assign(match=0), further):
        model = fitted(left, pd.concat([right, twice]), pd.concat([answers, each]).drop_duplicates())
        least.append(model.predict_proba(others)[:, 1].min())
    assert least[0] < 0.2 < 0.5 < least[1]
    assert "left table match 1.60 others on average: one-to-one links one of them, one-to-many all" in model.notes_[-1]
    model.save(tmp_path / "m")
    assert RowMatcher.load(tmp_path / "m").linkage_.again == model.linkage_.again


def test_labels_that_leave_no_sign_of_matches_are_not_forgotten():
    every = persons(0, 80).assign(id=range(80))
    left = every[:60].assign(id=[f"l{i}" for i in range(60)])
    right = pd.concat([every[:40], every[60:]]).assign(id=[f"r{i}" for i in range(60)])
    assert len(fitted(left, right).link()) == 40
    model = fitted(left, right, labelled(range(8), 0))  # equal rows, and yet none
    assert "no sign of matches" in model.notes_[-1]
    assert model.predict_proba(labelled(range(8, 40), 0))[:, 1].max() < 0.5


@pytest.mark.sweep(9)
@pytest.mark.parametrize("seed", range(2))
def test_there_is_no_sign_of_matches_where_there_are_none(seed):
    left, right = two_tables(seed, 40, 30)
    apart = fitted(persons(seed + 50, 60).assign(id=range(60)), persons(seed + 90, 50).assign(id=range(50)))
    for model in (apart, fitted(left, right[40:]), fitted(left, None)):  # also: all partners taken out
        assert len(model.link()) == 0
        assert model.linkage_.expected(model.tables_) < 1
        assert "no sign of matches" in model.notes_[-1]
        assert len(model.review()) == 30


@pytest.mark.parametrize(
    ("chances", "labels", "sure"), [([0.95] * 30, 0, True), (DOUBTFUL, 0, False), (DOUBTFUL, 50, True)]
)
def test_estimates_are_unsure_where_many_pairs_are_neither_unless_labels_checked_them(
    chances, labels, sure, monkeypatch
):
    model = fitted(*two_tables(0, *FEW))
    *others, known = model.linkage_._scored(model.tables_)
    scored = *others, np.pad(np.array(chances), (0, len(known) - len(chances)))
    monkeypatch.setattr("vicinal.estimators.match_linkage.Linkage._scored", lambda self, tables: scored)
    model.linkage_._doubt(model.tables_, (np.zeros((labels, 2), dtype=np.int64), np.ones(labels)))
    assert model.linkage_.is_sure is sure


def test_of_two_columns_that_are_both_needed_neither_decides_alone():
    draw = random.Random(0)
    firms = [
        f"{draw.choice(['acme', 'north', 'delta'])} {draw.choice(['tools', 'books', 'cars'])} {i}" for i in range(90)
    ]
    towns = [draw.choice(["Oslo", "Bern", "Lyon", "Graz"]) for _ in firms]
    left = pd.DataFrame({"firm": firms, "town": towns})
    right = pd.DataFrame({"firm": [name.replace(" ", " & ", 1) for name in firms[:60]], "town": towns[:60]})
    model = fitted(left, right)
    assert len(model.link()) == 60
    assert sum(share > 0.95 for share in model.linkage_._alone_deciding(model.tables_).values()) == 2
    assert "alone decides" not in " ".join(model.notes_)


def test_unsure_estimates_tell_nothing_above_nine_tenths_and_a_column_that_decides_alone_is_named():
    left, right = persons(1, 60), persons(101, 60)
    keys = [f"K{i * 37 % 1009}x" for i in range(80)]
    right.loc[:23, "town"] = left["town"][:24]
    left, right = (
        each.assign(id=range(60))[["id", "key", "town"]]
        for each in (left.assign(key=keys[:60]), right.assign(key=keys[:40] + keys[60:]))
    )
    model = fitted(left, right)
    notes = " ".join(model.notes_)
    assert "key: this column alone decides 100 % of the links" in notes
    assert "different in each row of both tables: 'key'" in notes
    words = {key: key.translate(str.maketrans("0123456789", "qzjxkvbpgw")) for key in [*left["key"], *right["key"]]}
    named = fitted(*(each.assign(key=each["key"].map(words)) for each in (left, right)))  # names number no rows
    calls = {key: f"+49 170 {int(key[1:-1]):07d}" for key in words}
    called = fitted(*(each.assign(key=each["key"].map(calls)) for each in (left, right)))  # nor do telephones
    assert not [note for each in (named, called) for note in each.notes_ if "different in each row" in note]
    links = model.link()
    assert len(links) >= 40
    model.linkage_.is_sure = True
    model.tables_.forget("scored")
    sure = probabilities(model)
    model.linkage_.is_sure = False
    model.tables_.forget("scored")
    told = probabilities(model)
    assert max(sure.values()) > 0.95
    assert all(told[pair] == pytest.approx(0.5 + 0.8 * (chance - 0.5)) for pair, chance in sure.items() if chance > 0.5)
    assert all(told[pair] == pytest.approx(chance) for pair, chance in sure.items() if chance <= 0.5)
    pd.testing.assert_frame_equal(model.link()[["left", "right"]], links[["left", "right"]])
    answers = pd.DataFrame({"left": range(20), "right": range(20), "match": [1] * 19 + [0]})
    checked = fitted(left, right, answers)
    assert "no probability above" not in " ".join(checked.notes_)
    assert "estimated probabilities and 20 labels" in " ".join(checked.notes_)


def test_cells_and_what_is_beside_them_add_up(case):
    _, right, model, _ = case
    pairs = pd.DataFrame({"left": ["l0", "l1", "l2", "l0", "l5"], "right": ["r0", "r1", "r2", "r1", right.id.iloc[-1]]})
    chances = np.clip(model.predict_proba(pairs)[:, 1], 1e-12, 1 - 1e-12)
    levels = {name: set(LEVELS[kind]) for name, kind in model.linkage_.kinds.items()}
    for pair, chance in zip(model.explain(pairs), chances, strict=True):
        total = pair.start + sum(cell.weight for cell in pair.cells) + pair.refined
        assert total == pytest.approx(np.log2(chance / (1 - chance)), abs=1e-3)
        assert all(cell.level in levels[cell.column] for cell in pair.cells)
        assert all((cell.level == "empty") == (cell.weight == 0) == (cell.verdict == "empty") for cell in pair.cells)
        assert all((cell.level == "equal") == (cell.verdict == "agrees") for cell in pair.cells)
    matches, possible = model.linkage_.expected(model.tables_), len(model.tables_.left) * len(model.tables_.right)
    assert model.explain(pairs)[0].start == pytest.approx(np.log2(matches / (possible - matches)))


def test_match_weights_are_shares_and_their_ratios(case):
    table = case[2].match_weights()
    for name, rows in table.groupby("column"):
        assert rows["m"].sum() == pytest.approx(1)
        assert rows["u"].sum() == pytest.approx(1)
        assert rows["level"].tolist() == list(LEVELS[case[2].linkage_.kinds[name]][1:])
    np.testing.assert_allclose(table["weight"], np.log2(table["m"] / table["u"]))
    tops = table.groupby("column").last()["weight"]
    assert (table.groupby("column").first()["weight"] < 0).all()
    assert tops["last"] > tops["town"] > 0  # 60 names say more than six towns


def test_a_column_that_follows_from_another_counts_only_where_that_one_differs(tmp_path):
    tables = []
    for table in two_tables(0, *SOME):
        code = [sum(map(ord, name)) % 36 for name in table["street"]]  # two codes in each town
        tables.append(
            table.assign(code=[80001 + 71 * c for c in code], town=[STEMS[c // 2 % 12] + ENDS[c // 24] for c in code])
        )
    model = fitted(*tables)
    assert model.linkage_.follows == {"town": "code"}
    assert "town: counts only where code differs" in model.notes_
    pairs = model.scored_candidates().merge(tables[0][["id", "code"]], left_on="left", right_on="id")
    pairs = pairs.merge(tables[1][["id", "code"]], left_on="right", right_on="id")
    cells = [next(c for c in e.cells if c.column == "town") for e in model.explain(pairs[["left", "right"]])]
    same = (pairs["code_x"] == pairs["code_y"]).to_numpy()
    assert [cell.weight == 0 for cell in cells] == same.tolist()
    model.save(tmp_path / "m")
    assert_same(RowMatcher.load(tmp_path / "m"), model, atol=0)


def test_what_is_equal_in_matches_alone_follows_from_nothing():
    random = np.random.default_rng(0)
    customers = np.array([f"{stem}{end} co" for stem in STEMS for end in ENDS])

    def invoices(count):
        days = pd.Timestamp("2024-01-01") + pd.to_timedelta(random.integers(365, size=count), "D")
        rows = {"customer": random.choice(customers, count), "amount": random.integers(1000, 90000, count) / 100}
        return pd.DataFrame({**rows, "date": days})

    left, right = invoices(900), invoices(900)
    right[:90] = left[:90].assign(date=left["date"] + pd.to_timedelta(random.integers(1, 30, 900), "D"))
    model = fitted(left, right)
    assert model.linkage_.follows == {}
    links = model.link()
    assert (links["left"] == links["right"]).mean() > 0.95
    assert 80 <= len(links) <= 95


def test_where_one_column_decides_and_many_pairs_are_doubtful_nothing_is_linked():
    random = np.random.default_rng(0)
    words = [["hex", "set", "wood", "machine"], ["bolt", "screw"], ["zinc", "steel", "brass", "black"]]

    def articles():
        names = zip(*(random.choice(each, 600) for each in words), strict=True)
        sizes = zip(random.integers(3, 17, 600), random.integers(4, 90, 600), strict=True)
        return pd.DataFrame({"name": [f"{' '.join(n)} m{a} x {2 * b}" for n, (a, b) in zip(names, sizes, strict=True)]})

    left = articles().drop_duplicates()
    right = articles().drop_duplicates()
    model = fitted(left, right[~right["name"].isin(left["name"])])
    assert len(model.link()) == 0
    assert any(note.startswith("no sign of matches") for note in model.notes_)


def test_rare_equal_cells_weigh_more_by_the_ratio_of_their_frequencies():
    left, right = two_tables(0, *FEW)
    often = {"ulm": 30, "bonn": 8, "trier": 3, "jena": 1}
    left["town"] = [town for town, count in often.items() for _ in range(count)]
    right["town"] = left["town"].to_numpy()
    model = fitted(left, right)
    numbers = [0, 30, 38, 41]
    cells = [
        pair.cells
        for pair in model.explain(
            pd.DataFrame({"left": [f"l{i}" for i in numbers], "right": [right.id[i] for i in numbers]})
        )
    ]
    weights = [next(cell.weight for cell in each if cell.column == "town") for each in cells]
    np.testing.assert_allclose(weights[0] - np.array(weights), -np.log2(30 / np.array([30, 8, 3, 1])), atol=1e-9)


def test_pairs_that_are_no_candidates_have_the_probability_of_candidates():
    left, right = two_tables(1, 12, 8)
    model = fitted(left, right, n_candidates=3)
    every = pd.MultiIndex.from_product([left["id"], right["id"]], names=["left", "right"]).to_frame(index=False)
    outside = [frozenset(pair) not in probabilities(model) for pair in every.to_numpy().tolist()]
    few = model.predict_proba(every)[:, 1]
    model.linkage_.n_candidates = 20  # all of the same weights
    model.tables_.forget("scored")
    assert len(model.scored_candidates()) == 20 * 20
    assert sum(outside) > 250
    np.testing.assert_allclose(np.log(few), np.log(model.predict_proba(every)[:, 1]), atol=0.1)


def test_columns_of_one_value_say_nothing():
    copies = fitted(pd.DataFrame({"id": range(3), "name": ["x"] * 3}), None)  # one thing
    assert copies.link()["probability"].tolist() == [1, 1, 1]
    left = pd.DataFrame({"id": range(5), "name": ["x"] * 5, "ours": list("abcde")})
    model = fitted(left, left.rename(columns={"ours": "theirs"}))
    assert len(model.link()) == 0
    assert len(model.match_weights()) == 0
    assert np.isnan(model.explain(pd.DataFrame({"left": [0], "right": [1]}))[0].cells[0].weight)
    more = [each.assign(flat="y") for each in two_tables(0, *FEW)]
    assert linked(fitted(*more)) == linked(fitted(*two_tables(0, *FEW)))


def test_equal_rows_alone_are_linked_where_one_column_decides_and_is_not_sure():
    """Addresses without a copy: some share a number, or a street."""
    rng = np.random.default_rng(4)
    streets = ["".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), 6)) for _ in range(80)]
    texts = [
        f"{rng.integers(10, 999)} {' '.join(rng.choice(streets, 2))}, {rng.integers(10000, 99999)}" for _ in range(200)
    ]
    table = pd.DataFrame({"id": range(201), "text": [*texts, texts[0]]})
    model = fitted(table, None)
    assert model.link()[["left", "right"]].to_numpy().tolist() == [[0, 200]]
    assert "only equal rows are linked" in model.notes_[-1]


@pytest.mark.parametrize("title", ["of stones and old rivers", "of 3d stones"])
def test_words_with_digits_of_texts_count_beside_columns_of_numbers(title):
    table = pd.DataFrame({"title": [f"{stem} {end} {title}" for stem in STEMS for end in ENDS][:60], "year": 1950})
    table["year"] += np.arange(len(table)) % 40
    left = table.rename_axis("id").reset_index()
    model = fitted(left, left[:50])
    assert (DIGITS in model.match_weights()["column"].tolist()) == ("3d" in title)


def test_amounts_that_both_list_are_no_codes_and_a_size_is_one():
    titles = ["office mk7", "office 2007", "screw m3 x 20"]
    left = pd.DataFrame({"title": titles, "price": [61.65, 247.0, 8.0], "year": [2003, 2007, 2011]})
    table, columns = (
        MatchTable("left", left, np.arange(3), torch.zeros(0)),
        MatchColumns(["title"], ["price", "year"], {}),
    )
    assert columns.texts_of(table, CODED, np.arange(3)) == ["office mk7 2003", "office 2007 2007", "screw m3x20 2011"]


@pytest.mark.sweep(9)
@pytest.mark.parametrize("shared", [False, True])
def test_links_whose_own_codes_differ_are_other_things_of_the_same_kind(shared):
    random = np.random.default_rng(0)
    words = ["".join(each) for each in random.choice(list("abcdefghijklmnopqrst"), (400, 7))]
    books = pd.DataFrame({name: random.choice(words, 500) for name in ("title", "author", "publisher")})
    left, right = books[:300].copy(), pd.concat([books[:100], books[300:]], ignore_index=True)
    codes = random.permutation(10**6 + np.arange(5000)).astype(str)
    left["isbn"], right["isbn"] = codes[:300], [*(codes[:100] if shared else codes[300:400]), *codes[400:600]]
    notes = " ".join(fitted(*(each.assign(id=range(300)) for each in (left, right))).notes_)
    assert ("unsure by isbn: nearly each row has one of its own, and 95 % of the links differ" in notes) is not shared
