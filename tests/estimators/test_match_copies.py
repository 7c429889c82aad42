"""What a copy is: equal rows are one thing, labels close, likeness is not equality, and an estimate is called so."""

import json
import unicodedata

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vicinal.core.folders import _seal
from vicinal.estimators import RowMatcher
from vicinal.estimators.labelled_pairs import SameThings
from vicinal.estimators.linking import pairs_of_rows
from vicinal.linkage.cell_forms import normal_text

NO_ENCODER = {"text": "none"}
WORDS = ["amber", "basil", "cedar", "delta", "ember", "fjord", "grove", "hazel", "ivory", "jade", "kelp", "lemon"]


@pytest.fixture(scope="module", autouse=True)
def few_labels_are_scored():
    """A scorer learns from any labels of both kinds, not from 200 on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vicinal.estimators.matching.FEW", 1)
        yield


def lamps(rows):
    """Different things with a number each."""
    return [f"{WORDS[i % 12]} {WORDS[i * 5 % 11]} lamp {100 + i * 7}" for i in range(rows)]


def matcher(**settings):
    return RowMatcher(**{"encoders": NO_ENCODER, **settings})


def copied(name, way):
    """The same text, written in another way."""
    ways = [str, str.upper, lambda text: f"  {text.replace(' ', '   ')} ", lambda text: text[:2] + "\u200b" + text[2:]]
    ways += [lambda text: unicodedata.normalize("NFD", text), lambda text: text.translate({ord("l"): "\uff4c"})]
    return ways[way % len(ways)](name)


@given(
    sizes=st.lists(st.integers(1, 6), min_size=3, max_size=25), seed=st.integers(0, 99), candidates=st.integers(1, 9)
)
@settings(max_examples=settings().max_examples // 4, suppress_health_check=list(HealthCheck))
def test_equal_rows_are_one_cluster_without_labels_whatever_their_number(sizes, seed, candidates):
    names = [f"Zoë {name}" for name in lamps(len(sizes))]
    rows = [(f"{i}_{k}", copied(names[i], k + seed)) for i, size in enumerate(sizes) for k in range(size)]
    table = pd.DataFrame(rows, columns=["id", "name"]).sample(frac=1, random_state=seed)
    model = matcher(n_candidates=candidates).fit(table, None)
    links = model.link()
    equal = links[links["probability"] == 1]
    assert len(equal) == sum(size * (size - 1) // 2 for size in sizes)
    assert (equal["left"].str.split("_").str[0] == equal["right"].str.split("_").str[0]).all()
    clusters = model.clusters()[0].set_index("id")["cluster"]
    things = clusters.groupby(clusters.index.str.split("_").str[0]).nunique()
    assert (things == 1).all()


def test_equal_rows_are_not_joined_with_those_of_other_numbers():
    rows = [(4 * i + copy, f"brass lamp model {i * 37 % 101} type {i}") for i in range(40) for copy in range(4)]
    model = matcher().fit(pd.DataFrame(rows, columns=["id", "name"]), None)
    assert (model.clusters()[0]["cluster"].value_counts() == 4).all()


@pytest.mark.parametrize("links", ["many", "one-to-many", "one-to-one"])
def test_a_row_links_to_all_equal_rows_that_its_kind_allows(links):
    names = lamps(60)
    left = pd.DataFrame({"id": [*range(60), 1000], "name": [*names, names[48]]})  # two equal rows on the left
    sizes = [30 if i % 6 == 0 else 1 for i in range(60)]
    rows = [(f"{i}_{k}", names[i]) for i in range(60) for k in range(sizes[i])]
    right = pd.DataFrame(rows, columns=["id", "name"])
    known = pd.DataFrame([(i, f"{i}_{k}") for i in range(42) for k in range(sizes[i])], columns=["left", "right"])
    model = matcher(links=links, n_candidates=3).fit(left, right, known)
    found = model.link().query("left >= 42")
    assert (
        np.where(found["left"] == 1000, 48, found["left"]) == found["right"].str.split("_").str[0].astype(int)
    ).all()
    there = sum(sizes[42:]) + (30 if links == "many" else 0)
    assert len(found) == (19 if links == "one-to-one" else there)
    assert not (found["right"].duplicated().any() and links != "many")
    assert model.scores_["recall"] == 1.0


def test_blocks_of_any_size_are_linked_and_no_table_of_all_pairs_is_made():
    table = pd.DataFrame({"id": range(3000), "name": ["one lamp"] * 2990 + lamps(10)})
    model = matcher().fit(table, None)
    assert len(model.link()) == 2989  # each with the first
    assert model.clusters()[0]["cluster"].value_counts().iloc[0] == 2990
    pairs, source = pairs_of_rows(np.array([[0, 0]]), np.zeros(300, dtype=int), np.zeros(200, dtype=int))
    assert len(pairs) == 300
    assert set(pairs[:, 0]) == set(range(300))
    assert set(pairs[:, 1]) == set(range(200))
    assert not source.any()


def chains(things=60, labelled=40):
    """Three spellings of each thing, of which the first and second and the second and third are labelled."""
    rows = []
    for i, name in enumerate(lamps(things)):
        rows += [(3 * i, name), (3 * i + 1, name.replace("lamp", "light")), (3 * i + 2, f"{name} new")]
    pairs = [(3 * i + k, 3 * i + k + 1) for i in range(labelled) for k in (0, 1)]
    return pd.DataFrame(rows, columns=["id", "name"]), pd.DataFrame(pairs, columns=["left", "right"])


def test_labels_close_before_a_missing_pair_counts_as_none():
    table, pairs = chains()
    model = matcher(links="many").fit(table, None, pairs)
    at = model.labelled_
    same = at["left"] // 3 == at["right"] // 3
    assert at.loc[same, "match"].eq(1).all()
    assert (at.loc[same, "right"] - at.loc[same, "left"] == 2).any()  # what follows is learned from, too
    contradictions = model.clusters()[1]
    assert not (contradictions["left"] // 3 == contradictions["right"] // 3).any()
    assert "labelled 0" not in contradictions["why"].tolist()


def test_labels_close_groups_of_any_size():
    names = lamps(40)
    rows = [(100 * i + k, f"{names[i]} {'x' * k}") for i in range(40) for k in range(30 if i == 0 else 2)]
    pairs = [(k, k + 1) for k in range(29)] + [(100 * i, 100 * i + 1) for i in range(1, 40)]
    tables = pd.DataFrame(rows, columns=["id", "name"]), None, pd.DataFrame(pairs, columns=["left", "right"])
    model = matcher(links="many", validation_fraction=0.1).fit(*tables)
    ids = model.tables_.left.ids
    same = ids[model.labelled_["left"]] // 100 == ids[model.labelled_["right"]] // 100
    assert model.labelled_.loc[same, "match"].eq(1).all()
    assert (~same).any()


def test_contradictions_name_what_was_labelled_also_of_equal_rows():
    table, pairs = chains()
    table = pd.concat([table, table[table["id"] == 5].assign(id=900)], ignore_index=True)
    apart = pd.DataFrame({"left": range(0, 120, 3), "right": range(3, 123, 3), "match": 0})
    equal = pd.DataFrame({"left": [5], "right": [900], "match": [0]})
    labels = pd.concat([pairs.assign(match=1), apart, equal], ignore_index=True)
    model = matcher(links="many").fit(table, None, labels)
    names, contradictions = model.clusters()
    cluster = names.set_index("id")["cluster"]
    assert cluster[5] == cluster[900]  # whatever the label says, they are equal
    named = contradictions[contradictions["why"] == "labelled 0"]
    assert {frozenset(pair) for pair in named[["left", "right"]].to_numpy().tolist()} >= {frozenset({5, 900})}


def test_what_follows_from_matches_of_two_tables():
    same = SameThings(np.array([[0, 0], [1, 0], [1, 2], [3, 1]]), (5, 3), is_single=False)
    pairs = np.array([[0, 2], [0, 1], [3, 1], [4, 2]])
    assert same.are_same(pairs).tolist() == [True, False, True, False]
    assert same.pairs(np.array([[0, 0], [1, 0], [1, 2], [3, 1]]), 20).tolist() == [[0, 2]]
    assert same.pairs(np.array([[0, 0], [1, 0], [1, 2]]), 3).tolist() == []  # four rows are too many


CELLS = [
    ("Zoë Peña", unicodedata.normalize("NFD", "ZOË PEÑA"), "agrees"),
    ("straße 1", "STRASSE 1", "agrees"),
    ("\uff21\uff22 12", "ab 12", "agrees"),
    ("brass lamp", "brass  lamp\u200b", "agrees"),
    ("brass lamp with shade", "brass lamp with shades", "alike"),
    ("brass lamp with shade", "wooden chair", "differs"),
    ("brass lamp", None, "empty"),
]


@pytest.mark.parametrize(("one", "other", "verdict"), CELLS)
def test_texts_agree_only_if_they_are_the_same(one, other, verdict):
    names = lamps(40)
    left = pd.DataFrame({"id": range(41), "name": [*names, one], "more": [*names, "x"]})
    right = pd.DataFrame({"id": range(41), "name": [*(f"{name} x" for name in names), other], "more": [*names, "x"]})
    model = matcher().fit(left, right)
    cell = model.explain(pd.DataFrame({"left": [40], "right": [40]}))[0].cells[0]
    assert cell.verdict == verdict
    assert (cell.likeness > 0.99) == (verdict == "agrees")


@pytest.mark.parametrize(
    "column",
    [
        [1930 + i for i in range(41)],
        [6_222_000_000_000_000_000 + i for i in range(41)],
        [f"19{30 + i}-05-0{i % 9 + 1}" for i in range(41)],
        [f"0{30 + i % 9}/0{i % 9 + 1}/{1930 + i}"[-10:] for i in range(41)],
        [f"+49 30 {4711000 + i}" for i in range(41)],
        [f"SW{i} 1AA" for i in range(41)],
        [f"SM-G991{chr(48 + i)}" for i in range(41)],
        [str(80001 + 53 * i) for i in range(41)],
        pd.array([70 + i for i in range(41)], dtype="Int64"),
        [700.0 + i for i in range(41)],
    ],
    ids=["year", "account", "date", "slashes", "telephone", "postcode", "model", "digits", "nullable", "whole floats"],
)
def test_codes_dates_and_whole_numbers_agree_or_differ(column):
    left = pd.DataFrame({"id": range(41), "name": lamps(41), "code": column})
    model = matcher().fit(left, left.assign(name=left["name"] + " x"))
    pairs = pd.DataFrame({"left": [3, 3], "right": [3, 4]})
    cells = [next(cell for cell in pair.cells if cell.column == "code") for pair in model.explain(pairs)]
    assert [cell.verdict for cell in cells] == ["agrees", "differs"]


def test_numbers_that_a_float_cannot_tell_apart_are_not_equal():
    left = pd.DataFrame(
        {"id": range(41), "name": lamps(41), "account": [6_222_000_000_000_000_000 + i for i in range(41)]}
    )
    tables = matcher().fit(left, left.assign(name=left["name"] + " x")).tables_
    equal = tables.pair_features(np.array([[3, 3], [3, 4]]))[:, tables.features.names.index("account: equal")]
    assert equal.tolist() == [1.0, 0.0]


def test_prices_are_alike_where_they_are_near():
    left = pd.DataFrame({"id": range(30), "name": lamps(30), "price": np.linspace(5.5, 90.25, 30)})
    model = matcher().fit(left, left.assign(price=left["price"] * 1.01, name=left["name"] + " x"))
    cells = model.explain(pd.DataFrame({"left": [3], "right": [3]}))[0].cells
    assert [cell.verdict for cell in cells if cell.column == "price"] == ["alike"]


@pytest.mark.sweep(5)
@pytest.mark.parametrize("gap", [None, "", "  ", "n/a", "\u200b", "-"])
def test_rows_without_content_link_to_nothing(gap):
    names = lamps(30)
    left = pd.DataFrame({"id": range(40), "name": names + [gap] * 10, "size": [1.5] * 30 + [None] * 10})
    right = left.assign(name=[f"{name} new" for name in names] + [gap] * 10)
    known = pd.DataFrame({"left": range(20), "right": range(20)})
    for pairs in (None, known):
        model = matcher(links="many").fit(left, right, pairs)
        assert len(model.link()) >= 10
        assert not (model.link()[["left", "right"]] >= 30).any(axis=None)
        assert not (model.review()[["left", "right"]] >= 30).any(axis=None)
    assert (model.predict_proba(pd.DataFrame({"left": [31], "right": [32]})) == [1, 0]).all()
    alone = matcher().fit(left, None)
    assert not (alone.link()[["left", "right"]] >= 30).any(axis=None)


def test_cells_are_read_as_each_table_writes_them():
    names, days = lamps(30), pd.date_range("2021-01-15", periods=30)
    left = pd.DataFrame({"id": range(30), "name": names, "sold": days.strftime("%d/%m/%Y")})
    left["price"] = [f"$1,{100 + i}.00" for i in range(30)]
    right = pd.DataFrame({"id": range(30), "name": names, "sold": days.strftime("%Y-%m-%d")})
    right["price"] = [1100.0 + i for i in range(30)]
    model = matcher().fit(left, right.iloc[::-1])
    cells = model.explain(pd.DataFrame({"left": [4], "right": [4]}))[0].cells
    assert [(cell.column, cell.verdict) for cell in cells[:3]] == [(n, "agrees") for n in ("name", "sold", "price")]
    model.add(pd.DataFrame({"id": [77], "name": ["x"], "sold": ["03/02/2021"], "price": ["$2,000.50"]}))
    shown = model.explain(pd.DataFrame({"left": [77], "right": [4]}))[0].cells
    assert [(cell.left, cell.verdict) for cell in shown[1:3]] == [("2021-02-03", "differs"), ("2000.5", "differs")]


def test_copies_stay_through_add_forget_and_a_folder(tmp_path):
    names = lamps(30)
    table = pd.DataFrame({"id": range(60), "name": names + [name.upper() for name in names]})
    others = pd.DataFrame({"id": range(100, 130), "name": [f"{name} new" for name in names]})
    known = pd.DataFrame({"left": range(20), "right": range(100, 120)})
    model = matcher().fit(pd.concat([table, others]), None, known)
    assert len(model.tables_.left.vectors) == 60
    before = model.clusters()[0].set_index("id")["cluster"].sort_index()
    assert (before.loc[:29].to_numpy() == before.loc[30:59].to_numpy()).all()
    model.add(pd.DataFrame({"id": [200, 201], "name": [names[3].title(), "something else 9"]}))
    model.save(tmp_path / "m")
    again = RowMatcher.load(tmp_path / "m")
    for each in (model, again):
        after = each.clusters()[0].set_index("id")["cluster"]
        assert after[200] == after[3] == after[33]
        assert len(each.tables_.left.first) == 61
        each.forget([3, 33])
        assert each.search_ids([200], 1)["right"].tolist() == [103]
        each.forget([200])
        assert len(each.tables_.left.first) == len(each.tables_.left.vectors) == 60
        cells = each.tables_.left.frame["name"].map(normal_text)
        assert normal_text(names[3]) not in set(cells)
    pd.testing.assert_frame_equal(again.link(), model.link())


def test_a_folder_of_an_earlier_version_is_refused_by_name(tmp_path):
    table, pairs = chains()
    matcher(links="many").fit(table, None, pairs).save(tmp_path / "m")
    read = json.loads((tmp_path / "m" / "matcher.json").read_text())
    (tmp_path / "m" / "matcher.json").write_text(json.dumps({**read, "version": read["version"] - 1}))
    (tmp_path / "m" / "SHA256SUMS").unlink()
    _seal(tmp_path / "m")
    with pytest.raises(ValueError, match=r"^matcher.json: expected .*version"):
        RowMatcher.load(tmp_path / "m")


def people(seed, rows=200, copies=20):
    """People, some of them a second time with a slip in the last name."""
    rng = np.random.default_rng(seed)
    one = [
        (
            rng.choice(["ann", "bo", "carla", "eve", "gus"]),
            rng.choice(WORDS) + rng.choice(["son", "man", "er", "ley"]),
            f"{rng.integers(1, 200)} {rng.choice(WORDS)} road",
            f"19{rng.integers(30, 99)}-0{rng.integers(1, 9)}-1{rng.integers(0, 9)}",
        )
        for _ in range(rows)
    ]
    slips = [(row[0], row[1][:-1] + ("x" if k % 2 else ""), *row[2:]) for k, row in enumerate(one[:copies])]
    frame = pd.DataFrame(one + slips, columns=["first", "last", "street", "born"])
    return frame.assign(id=[*range(rows), *range(1000, 1000 + copies)])


@pytest.mark.parametrize("seed", range(3))
def test_links_without_labels_are_right_and_there_is_something_to_label(seed):
    model = matcher().fit(people(seed), None)
    links = model.link()
    assert (links["right"] - links["left"] == 1000).all()
    assert len(links) == 20
    assert model.linkage_.expected(model.tables_) == pytest.approx(20, abs=0.5)
    review = model.review()
    assert len(review) == 30
    assert 10 <= (review["right"] - review["left"] == 1000).sum() <= 20  # of both kinds
    assert "probability" in str(model.explain(links.head(1))[0])
    assert model.explain(links.head(1))[0].resembles == []


@pytest.mark.sweep(9)
@pytest.mark.parametrize("kinds", [[0], [0, 0, 0, 0, 0, 0], [1, 0]])
def test_a_review_with_few_labels_goes_on(kinds):
    table = people(0)
    first = matcher().fit(table, None)
    review = first.review()
    answers = review[["left", "right"]].head(len(kinds)).assign(match=kinds)
    again = matcher().fit(table, None, answers=answers)
    assert any(f"probabilities and {count} label" in note for note in again.notes_ for count in (1, len(kinds)))
    named = {frozenset(pair) for pair in again.review()[["left", "right"]].to_numpy().tolist()}
    apart = {frozenset(pair) for pair in answers.loc[answers["match"] == 0, ["left", "right"]].to_numpy().tolist()}
    links = {frozenset(pair) for pair in again.link()[["left", "right"]].to_numpy().tolist()}
    assert len(named) == 30
    assert not named & {frozenset(pair) for pair in answers[["left", "right"]].to_numpy().tolist()}
    assert not links & apart
    assert links >= {frozenset(p) for p in answers.loc[answers["match"] == 1, ["left", "right"]].to_numpy().tolist()}
    with pytest.raises(ValueError, match=r"^(pairs|precision): expected .* pairs? that match"):
        matcher(precision=0.9).fit(table, None, answers)


def test_rows_that_share_little_are_no_links():
    rng = np.random.default_rng(0)
    names = [f"{rng.choice(WORDS)} {rng.choice(WORDS)} lamp {rng.integers(100, 999)}" for _ in range(150)]
    links = matcher().fit(pd.DataFrame({"id": range(150), "name": names}), None).link()
    assert len(links) == 0  # of 45 that are each other's best: one number, or all words but one


def test_a_date_with_a_typo_stays_as_it_was_typed():
    days = pd.date_range("1950-02-03", periods=30, freq="400D")
    left = pd.DataFrame({"id": range(30), "name": lamps(30), "born": days.strftime("%Y-%m-%d")})
    right = left.assign(born=days.strftime("%d/%m/%Y"))
    right.loc[3, "born"] = f"x{left['born'][3]}"
    cells = matcher().fit(left, right).explain(pd.DataFrame({"left": [2, 3], "right": [2, 3]}))
    born = [next(cell for cell in pair.cells if cell.column == "born") for pair in cells]
    assert [cell.level for cell in born] == ["equal", "edit distance 1"]
    assert born[1].right == right["born"][3]


def test_days_beside_spans_of_days_are_compared_as_dates():
    days = pd.date_range("1950-02-03", periods=60, freq="400D")
    left = pd.DataFrame({"id": range(60), "name": lamps(60), "shown": days.strftime("%m/%d/%Y")})
    right = left.assign(name=left["name"] + " x", shown=days.strftime("%d %B %Y"))
    spans = [f"{day:%Y-%m-%d} - {day + pd.Timedelta(9, 'D'):%Y-%m-%d}" for day in days[::3]]
    left.loc[::3, "shown"] = right.loc[::3, "shown"] = spans
    pairs = matcher().fit(left, right).explain(pd.DataFrame({"left": [1, 3], "right": [1, 3]}))
    assert [cell.level for pair in pairs for cell in pair.cells if cell.column == "shown"] == ["equal"] * 2
