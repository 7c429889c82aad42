"""Rows of two tables are linked, and it is said why."""

import copy
import json
from dataclasses import replace
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import f1_score

from vicinal.core.folders import _seal
from vicinal.estimators import RowMatcher
from vicinal.estimators.labelled_pairs import lack_of_labels, pair_positions
from vicinal.estimators.linking import assigned, connected, log_odds, pairs_within
from vicinal.estimators.match_rows import MatchColumns, MatchTable, read_tables
from vicinal.estimators.pair_features import PairFeatures, Side, _of_codes, _of_words
from vicinal.estimators.pair_scorers import BoostedPairs

WORDS = ["lamp", "chair", "table", "red", "blue", "oak", "brass", "large", "small", "garden", "kitchen", "round"]
NO_ENCODER = {"text": "none"}


def typo(text, random):
    at = random.integers(0, len(text) - 1)
    return text[:at] + text[at + 1] + text[at] + text[at + 2 :]


@pytest.fixture(scope="module", autouse=True)
def few_labels_are_scored():
    """A scorer learns from any labels of both kinds, not from 200 on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vicinal.estimators.matching.FEW", 1)
        yield


def shops(rows=120, seed=0, *, vectors=False):
    """Two tables of one set of products, the second with typos, gaps and another order; and labelled pairs."""
    random = np.random.default_rng(seed)
    names = [f"{' '.join(random.choice(WORDS, 4))} {random.integers(100, 999)}" for _ in range(rows)]
    price = np.round(random.uniform(5, 500, rows), 2)
    left = pd.DataFrame({"sku": [f"a{i}" for i in range(rows)], "name": names, "price": price, "only": "left"})
    right = pd.DataFrame(
        {
            "asin": np.arange(rows) + 1000,
            "price": np.where(random.random(rows) < 0.2, np.nan, price),
            "name": [typo(name, random) for name in names],
        }
    )
    if vectors:
        rows_of = random.normal(size=(rows, 4))
        left["vector"] = list(rows_of)
        right["vector"] = list(rows_of + 0.1 * random.normal(size=(rows, 4)))
    order = random.permutation(rows)
    right = right.iloc[order].reset_index(drop=True)
    truth = pd.DataFrame({"left": left["sku"], "right": np.arange(rows) + 1000, "match": 1})
    others = pd.DataFrame(
        {
            "left": left["sku"].iloc[random.integers(0, rows, 300)],
            "right": random.integers(0, rows, 300) + 1000,
            "match": 0,
        }
    )
    pairs = pd.concat([truth, others]).drop_duplicates(["left", "right"])
    return left, right, pairs.reset_index(drop=True)


def matcher(**settings):
    return RowMatcher("sku", "asin", **{"encoders": NO_ENCODER, **settings})


@pytest.fixture(scope="module")
def fitted():
    left, right, pairs = shops()
    known = pairs[pairs["left"].str[1:].astype(int) < 80]
    return matcher().fit(left, right, known), (left, right, pairs)


def test_rows_that_are_the_same_are_linked_also_where_no_pair_was_labelled(fitted):
    model, (_, _, pairs) = fitted
    links = model.link()
    new = links[links["left"].str[1:].astype(int) >= 80]
    assert (new["left"].str[1:].astype(int) + 1000 == new["right"]).mean() > 0.9
    assert len(new) > 35
    unseen = pairs[pairs["left"].str[1:].astype(int) >= 80]
    assert f1_score(unseen["match"], model.predict(unseen)) > 0.9
    assert links["probability"].is_monotonic_decreasing
    assert not links["left"].duplicated().any()
    assert not links["right"].duplicated().any()


def test_probabilities_and_decisions_agree(fitted):
    model, (_, _, pairs) = fitted
    chances = model.predict_proba(pairs)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert model.predict(pairs).tolist() == (chances[:, 1] >= model.threshold_).astype(int).tolist()


def test_candidates_rise_in_number_and_hold_the_matches(fitted):
    model, _ = fitted
    table = model.candidates(3)
    assert list(table.columns) == ["left", "right", "score"]
    assert (table.groupby("left").size() == 3).all()
    recall = [model.scores_[f"recall at {k}"] for k in (1, 2, 5, 10)]
    assert recall == sorted(recall)
    assert recall[-1] == 1.0


def test_links_of_each_kind(fitted):
    model, _ = fitted
    many, to_many, one = (model.link(links) for links in ("many", "one-to-many", "one-to-one"))
    assert len(many) >= len(to_many) >= len(one)
    assert not to_many["right"].duplicated().any()
    two = model.link("1:2")
    assert two["left"].value_counts().max() <= 2
    assert not two["right"].duplicated().any()
    assert len(one) <= len(two) <= len(many)
    pd.testing.assert_frame_equal(model.link("many-to-many"), many)
    with pytest.raises(ValueError, match=r"^links: expected 'one-to-one'"):
        model.link("two")


def test_an_explanation_names_what_agrees_and_labelled_pairs_that_are_alike(fitted):
    model, (left, _, _) = fitted
    pairs = pd.DataFrame({"left": ["a100", "a100"], "right": [1100, 1050]})
    same, other = model.explain(pairs, k=2)
    assert same.probability == model.predict_proba(pairs)[0, 1]
    assert {cell.column: cell.verdict for cell in same.cells}["name"] == "alike"
    assert {cell.column: cell.verdict for cell in same.cells}["price"] == "agrees"
    assert {cell.column: cell.verdict for cell in other.cells}["name"] != "agrees"
    assert same.cells[0].left == left.set_index("sku").loc["a100", "name"]
    assert [match for *_, match, _ in same.resembles] == [True, True]
    assert [match for *_, match, _ in other.resembles] == [False, False]
    assert str(same).startswith("a100 and 1100: match with probability ")
    assert "name alike, price agrees" in str(same)


def test_nothing_is_forgotten_if_an_id_is_wrong(fitted, tmp_path):
    model = copy.deepcopy(fitted[0])
    before = len(model.tables_.left), len(model.tables_.right), len(model.labelled_)
    some = model.tables_.left.ids[0]
    with pytest.raises(ValueError, match=r"^right: expected ids of the right table, got 'nope'"):
        model.forget(left=[some], right=["nope"])
    assert (len(model.tables_.left), len(model.tables_.right), len(model.labelled_)) == before


def test_a_labelled_pair_is_not_explained_by_itself(fitted):
    model, _ = fitted
    known = model.labelled_.head(5)
    pairs = pd.DataFrame({side: getattr(model.tables_, side).ids[known[side]] for side in ("left", "right")})
    for pair in model.explain(pairs, k=len(model.labelled_)):
        assert len(pair.resembles) == len(model.labelled_) - 1
        assert (pair.left, pair.right) not in [row[:2] for row in pair.resembles]


def test_doubtful_pairs_are_nearest_to_the_threshold_first(fitted):
    model, _ = fitted
    review = model.review()
    odds = np.log(review["probability"] / (1 - review["probability"])) - np.log(
        model.threshold_ / (1 - model.threshold_)
    )
    assert np.abs(odds).is_monotonic_increasing
    assert review["probability"].between(*model.doubt_).all()


def test_search_finds_rows_by_words(fitted):
    model, (left, right, _) = fitted
    hits = model.search([right["name"][7], right["name"][9]], 2)
    assert hits.groupby("query")["right"].first().tolist() == right["asin"][[7, 9]].tolist()
    assert {"query", "right", "score", "name", "price"} == set(hits.columns)
    row = model.search(left[left["sku"] == "a5"].drop(columns="price"), 1)
    assert row["right"].tolist() == [1005]
    with pytest.raises(ValueError, match=r"^queries: expected words"):
        model.search("  ")


def test_a_saved_matcher_answers_as_before(fitted, tmp_path):
    model, (_, _, pairs) = fitted
    model.save(tmp_path / "m")
    loaded = RowMatcher.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_proba(pairs), model.predict_proba(pairs))
    pd.testing.assert_frame_equal(loaded.link(), model.link())
    assert loaded.explain(pairs.head(2)) == model.explain(pairs.head(2))
    assert loaded.get_params() == {**model.get_params(), "root": None, "cache_dir": None}
    loaded.save(tmp_path / "m")
    assert RowMatcher.load(tmp_path / "m").notes_ == model.notes_


def test_rows_are_added_and_forgotten():
    left, right, pairs = shops()
    few = left["sku"].str[1:].astype(int) < 100
    kept = pairs[pairs["left"].isin(left["sku"][few])]
    model = matcher().fit(left[few], right, kept)
    model.add(left[~few])
    assert (model.link().query("left == 'a110'")["right"] == 1110).all()
    assert "a110" in model.link()["left"].tolist()
    with pytest.raises(ValueError, match=r"^left: expected ids that the table has not yet, got 'a110'"):
        model.add(left[left["sku"] == "a110"])
    before = len(model.labelled_)
    named = model.explain(pd.DataFrame({"left": ["a110"], "right": [1110]}))[0].resembles[0]
    model.forget(left=["a110", named[0]], right=[named[1]])
    assert len(model.labelled_) < before
    assert named[0] not in model.link()["left"].tolist()
    again = model.explain(pd.DataFrame({"left": ["a111"], "right": [1111]}), k=len(model.labelled_))[0]
    assert named[0] not in [row[0] for row in again.resembles]
    assert set(model.labelled_["left"]) <= set(range(len(model.tables_.left)))
    with pytest.raises(ValueError, match=r"'a110', which it has not"):
        model.predict(pd.DataFrame({"left": ["a110"], "right": [1111]}))


def test_vectors_make_candidates_too_and_hubs_are_corrected_where_it_helps(tmp_path):
    left, right, pairs = shops(vectors=True)
    left["name"] = "same"  # nothing but the vectors tells
    right["name"] = "same"
    model = matcher().fit(left, right, pairs)
    assert model.scores_["recall at 10"] > 0.95
    assert any(note.startswith("Hub correction") for note in model.notes_)
    model.save(tmp_path / "m")
    loaded = RowMatcher.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_proba(pairs.head(9)), model.predict_proba(pairs.head(9)))


def test_a_seed_is_a_model_and_rows_are_encoded_whole(tmp_path):
    left, right, pairs = shops(60)
    settings = {"encoders": {"text": "ngrams"}}
    one, same = (matcher(**settings).fit(left, right, pairs) for _ in range(2))
    other = matcher(**settings, random_state=1).fit(left, right, pairs)
    pd.testing.assert_frame_equal(one.candidates(), same.candidates())
    np.testing.assert_array_equal(one.predict_proba(pairs), same.predict_proba(pairs))
    assert not np.array_equal(one.candidates()["score"], other.candidates()["score"])
    one.save(tmp_path / "m")
    loaded = RowMatcher.load(tmp_path / "m")
    for model in (one, loaded):  # no n-gram is left out, as it is in training
        vectors = model.tables_.vectors_of(model.tables_.left, np.arange(len(left)))
        torch.testing.assert_close(vectors, model.tables_.left.vectors)


def test_without_labelled_pairs_probabilities_are_estimated_and_that_is_said(tmp_path):
    left, right, pairs = shops()
    model = matcher().fit(left, right)
    links = model.link()
    assert (links["left"].str[1:].astype(int) + 1000 == links["right"]).mean() > 0.9
    assert any("by estimated probabilities and no labels" in note for note in model.notes_)
    chances = model.predict_proba(pairs)[:, 1]
    assert chances[pairs["match"] == 1].mean() > 0.9 > 0.2 > chances[pairs["match"] == 0].mean()
    model.save(tmp_path / "m")
    loaded = RowMatcher.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_proba(pairs), model.predict_proba(pairs))
    pd.testing.assert_frame_equal(loaded.link(), links)
    pd.testing.assert_frame_equal(loaded.match_weights(), model.match_weights())


@pytest.mark.slow
def test_start_weights_and_what_is_refined_are_the_log2_odds():
    left, right, pairs = shops()
    few = pd.concat([pairs[pairs["match"] == match].head(30) for match in (0, 1)])
    for labels in (None, few, pairs):
        model = matcher().fit(left, right, labels)
        at = model.scored_candidates().query("1e-9 < probability < 1 - 1e-9").iloc[::40]
        for pair, chance in zip(model.explain(at), at["probability"], strict=True):
            assert pair.probability == pytest.approx(chance, abs=1e-9)
            bits = pair.start + sum(cell.weight for cell in pair.cells) + pair.refined
            assert bits == pytest.approx(np.log2(chance / (1 - chance)), abs=1e-6)


def test_a_scorer_counts_as_much_as_the_estimates(fitted):
    model, (_, _, pairs) = fitted
    at = model.tables_.things(pair_positions("pairs", pairs, model.tables_.tables))
    alone = copy.copy(model)
    odds = {}
    for share in (1.0, 0.0):
        alone.learned_ = replace(model.learned_, share=share)
        odds[share] = log_odds(alone._chances(at))
    mean = (odds[1.0] + odds[0.0]) / 2
    assert np.abs(odds[1.0] - odds[0.0]).max() > 1
    np.testing.assert_allclose(log_odds(model._chances(at)), mean, atol=1e-6)


def test_links_obey_labels_whatever_the_scorer_says():
    left, right, pairs = shops()
    denied = (pairs["left"] == "a5") & (pairs["right"] == 1005)
    model = matcher().fit(left, right, pairs.assign(match=pairs["match"].where(~denied, 0)))
    assert model.predict_proba([("a5", 1005)])[0, 1] > model.threshold_
    assert ("a5", 1005) not in set(zip(model.link()["left"], model.link()["right"], strict=True))


def test_a_promise_without_labels_is_refused_with_the_number_that_would_do():
    left, right, _ = shops(40)
    with pytest.raises(ValueError, match=r"^precision: expected some 59 labelled pairs that match, .* takes 59 held"):
        matcher(precision=0.95).fit(left, right)  # log(.05) / log(.95) = 58.4 held out, as all are in turn


def test_a_promise_is_by_all_labelled_pairs_each_told_by_what_has_not_seen_it():
    left, right, pairs = shops()
    model = matcher(precision=0.8).fit(left, right, pairs)
    assert len(model.validation_) == len(model.labelled_) == len(pairs)
    assert model.scores_["precision"] > 0.8
    noise = pairs.assign(match=np.random.default_rng(0).permutation(pairs["match"]))
    with pytest.raises(ValueError, match=r"^precision: expected .*; ask for less or give more pairs"):
        matcher(precision=0.8).fit(left, right, noise)


@pytest.mark.parametrize(("count", "others"), [(20, 120), (100, 50)])
def test_a_promise_is_of_the_links_that_nobody_labelled(count, others, monkeypatch):
    left, right, pairs = shops(140)
    known = pairs[pairs["left"].str[1:].astype(int) < count]
    given = {}
    name = "vicinal.estimators.match_labels.precision_threshold"
    monkeypatch.setattr(name, lambda *pairs, **settings: given.update(settings) or 0.5)
    model = matcher(precision=0.8).fit(left, right, known)
    links = model.link().merge(known, how="left", on=["left", "right"])
    assert given == {"level": 0.05, "others": max(50, links["match"].isna().sum())}
    assert given["others"] == pytest.approx(others, abs=2)


def test_rivals_of_labelled_matches_are_none_where_a_row_has_one_partner():
    left, right, pairs = shops()
    matches, other = pairs[pairs["match"] == 1], pairs[pairs["match"] == 0].head(1)
    promise = {"precision": 0.8, "random_state": 1}  # log(.05) / log(.8) = 13.4
    few = pd.concat([matches.head(9), other])
    with pytest.raises(ValueError, match=r"^precision: expected some 14 .*, got 9 \(9 held out\); label more"):
        matcher(**promise).fit(left, right, answers=few)
    many = pd.concat([matches.head(100), other])
    model = matcher(**promise).fit(left, right, answers=many)
    assert model.labelled_["match"].value_counts()[0] > 100
    linked = dict(model.link()[["left", "right"]].to_numpy())
    assert (
        np.mean([linked[row] == match for row, match in matches[["left", "right"]].to_numpy() if row in linked]) > 0.9
    )
    with pytest.raises(ValueError, match=r"^pairs: expected some .* label more pairs that do not match"):
        matcher(**promise, links="many").fit(left, right, answers=many)


def test_without_a_column_of_labels_other_candidates_are_no_matches():
    left, right, pairs = shops()
    matches = pairs.loc[pairs["match"] == 1, ["left", "right"]]
    model = matcher().fit(left, right, matches.head(80))
    assert any("count as none" in note for note in model.notes_)
    assert model.predict(matches.tail(40)).mean() > 0.9


def test_answers_of_a_review_overrule_pairs_and_leave_other_candidates_implicit():
    left, right, pairs = shops()
    matches = pairs.loc[pairs["match"] == 1, ["left", "right"]].head(80)
    wrong = matches.head(1).assign(match=0)
    more = pairs[pairs["match"] == 1].iloc[90:91]
    apart = pairs[pairs["left"].str[1:].astype(int) >= 100]
    model = matcher().fit(left, right, matches, answers=pd.concat([wrong, more]), validation=apart)
    assert any("count as none" in note for note in model.notes_)
    known = model.labelled_.set_index(["left", "right"])["match"]
    at = model.tables_.left.places[wrong["left"].iloc[0]], model.tables_.right.places[str(wrong["right"].iloc[0])]
    assert known[at] == 0
    assert len(known[at[0]]) == 1  # no match of this row is known, so others may be one
    assert model.tables_.left.places[more["left"].iloc[0]] in set(model.labelled_["left"])
    again = matcher().fit(left, right, matches, answers=pd.concat([wrong, wrong.assign(match=1)]), validation=apart)
    assert again.labelled_.set_index(["left", "right"])["match"][at] == 1  # the last answer is right


def test_labelled_pairs_need_no_review(fitted):
    model, _ = fitted
    model = copy.copy(model)
    model.doubt_ = (0.0, 1.0)
    model.labels_ = model.labels_.head(0)
    all_of_them = model.review()
    tables = zip(("left", "right"), model.tables_.tables, strict=True)
    model.labels_ = pd.DataFrame({side: table.positions(all_of_them[side].head(3)) for side, table in tables}).assign(
        match=1
    )
    shown = model.review()
    assert len(shown) == len(all_of_them) - 3
    pd.testing.assert_frame_equal(shown, all_of_them.iloc[3:].reset_index(drop=True))


def test_rows_are_searched_by_id_and_columns_keep_apart_from_those_of_the_answer(fitted):
    model, (left, right, _) = fitted
    hits = model.search_ids(["a4", "a5"], 2)
    assert hits.groupby("query").size().tolist() == [2, 2]
    assert hits["right"].iloc[0] == 1004
    one = matcher().fit(left.rename(columns={"name": "score"}), right.rename(columns={"name": "score"}))
    assert {"score", "right score"} <= set(one.search("oak", 2).columns)
    copies = pd.concat([left, left.assign(sku="b" + left["sku"])], ignore_index=True)
    single = matcher().fit(copies, None)
    assert single.search_ids(["a4"], 1)["right"].tolist() == ["ba4"]
    with pytest.raises(ValueError, match=r"^ids: expected"):
        model.search_ids(["nobody"])
    numbers = left[["sku", "price"]], right[["asin", "price"]]
    with pytest.raises(
        ValueError, match=r"^queries: expected rows, as the tables share no column of texts, got a text"
    ):
        matcher().fit(*numbers).search("oak")


def test_copies_in_one_table_become_clusters_and_contradictions_are_told():
    left, right, _ = shops(60)
    right = right.rename(columns={"asin": "sku"}).assign(sku=lambda t: "b" + t["sku"].astype(str))
    table = pd.concat([left.drop(columns="only"), right], ignore_index=True)
    pairs = pd.DataFrame({"left": [f"a{i}" for i in range(40)], "right": [f"b{1000 + i}" for i in range(40)]})
    model = matcher().fit(table, None, pairs)
    clusters, contradictions = model.clusters()
    name = clusters.set_index("id")["cluster"]
    assert np.mean([name[f"a{i}"] == name[f"b{1000 + i}"] for i in range(40, 60)]) > 0.85
    assert list(contradictions.columns) == ["left", "right", "cluster", "why"]
    model.labels_ = pd.DataFrame({"left": [0], "right": [60 + right["sku"].tolist().index("b1000")], "match": [0]})
    assert "labelled 0" in model.clusters()[1]["why"].tolist()
    with pytest.raises(ValueError, match=r"^right: expected a matcher of one table"):
        matcher().fit(*shops()).clusters()


@pytest.mark.slow
def test_a_promised_precision_is_promised_or_refused():
    left, right, pairs = shops(300, seed=1)
    model = matcher(precision=0.9, validation_fraction=0.4).fit(left, right, pairs)
    plain = matcher(validation_fraction=0.4).fit(left, right, pairs)
    assert model.threshold_ != plain.threshold_
    assert model.scores_["precision"] >= 0.9
    few = pairs[pairs["left"].str[1:].astype(int) < 40]
    with pytest.raises(ValueError, match=r"^precision: expected some 299 labelled pairs that match, .* got 40 "):
        matcher(precision=0.99).fit(left, right, few)


def test_trees_learn_which_pairs_match():
    random = np.random.default_rng(0)
    features = random.normal(size=(400, 5))
    matches = (features[:, 0] + 0.1 * random.normal(size=400) > 0).astype(int)
    scorer = BoostedPairs.fit(features[:300], matches[:300], 3)
    assert ((scorer.chances(features[300:]) > 0.5) == matches[300:]).mean() > 0.9
    assert scorer.likeness(features[:4], features[:4]).diagonal().tolist() == [1.0] * 4
    assert scorer.likeness(features[:4], features[:0]).shape == (4, 0)  # all labelled pairs may be forgotten
    assert len(scorer.chances(features[:0])) == 0


def test_columns_of_other_names_are_compared():
    left, right, _ = shops(60, vectors=True)
    left = left.drop(columns="only").rename(columns={"vector": "spectrum"})
    renamed, told = right.rename(columns={"name": "title", "price": "Price"}), list[str]()
    plain = {"id_left": "sku", "id_right": "asin", "encoders": NO_ENCODER}
    model = RowMatcher(**plain).fit(left, renamed, log=told.append)
    assert told[:2] == model.notes_[:2]
    assert told[0].startswith("columns of two names: name = title, price = Price; to change")
    assert told[1].startswith("not compared: only the left table has 'spectrum'; only the right one has 'vector'.")
    pd.testing.assert_frame_equal(model.link(), RowMatcher(**plain).fit(left, right).link())
    new = renamed.tail(2)
    assert sorted(model.forget(right=new["asin"]).add(new, "right")["right"]) == sorted(new["asin"])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda a, b, p: (pd.concat([a, a.head(1)]), b, p), r"^id_left: expected each id once, got 'a0' 2 times"),
        (lambda a, b, p: (a, b.head(0), p), r"^right: expected a table of at least one row"),
        (lambda a, b, p: (a.rename(columns={"sku": "x"}), b, p), r"^id_left: expected one of"),
        (
            lambda a, b, p: (a, b[["asin"]].assign(place="Ulm"), p),
            r"^right: expected columns that the left",
        ),
        (
            lambda a, b, p: (a, b.assign(name=None, price=None), p),
            r"^right: expected a shared column with",
        ),
        (
            lambda a, b, p: (a, a.rename(columns={"sku": "asin"}), p),
            r"^right: expected another table than the left one",
        ),
        (lambda a, b, p: (a, b, p.assign(left="zz")), r"^pairs: expected ids of the left table, got 'zz'"),
        (lambda a, b, p: (a, b, p[["left"]]), r"^pairs: expected the columns left and right"),
        (lambda a, b, p: (a, b, p.assign(match=2)), r"^pairs: expected 0 or 1 in the column match, got 2"),
        (
            lambda a, b, p: (a, b, pd.concat([p, p.head(1).assign(match=0)])),
            r"^pairs: expected one label for each pair",
        ),
        (lambda a, b, p: (a, b, p[p["match"] == 0]), r"^pairs: expected at least one pair that matches, got \d+ that"),
        (lambda a, b, p: (a, b, p[p["match"] == 1]), r"^pairs: expected at least one pair that does not match"),
    ],
)
def test_what_cannot_be_used_is_told_in_one_sentence(change, sentence):
    with pytest.raises(ValueError, match=sentence) as wrong:
        matcher().fit(*change(*shops(30)))
    assert "\n" not in str(wrong.value)


def test_wrong_settings_are_told():
    left, right, pairs = shops(30)
    for settings, name in (
        ({"links": "two"}, "links"),
        ({"n_candidates": 0}, "n_candidates"),
        ({"precision": 95}, "precision"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
    ):
        with pytest.raises(ValueError, match=rf"^{name}: expected"):
            matcher(**settings).fit(left, right, pairs)


def edited(folder, change):
    """The settings of a saved matcher changed, with right checksums."""
    config = json.loads((folder / "matcher.json").read_text())
    change(config)
    (folder / "matcher.json").write_text(json.dumps(config))
    (folder / "SHA256SUMS").unlink()
    _seal(folder)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda config: config.update(version=9), "expected format version 7, got 9"),
        (lambda config: config.update(rows=[5, 5]), "expected"),
        (lambda config: config.update(texts=["name", "other"]), "expected"),
        (lambda config: config.update(threshold=2.0), "expected valid settings"),
        (lambda config: config.update(single=True), "expected 1 tables, got 2"),
        (
            lambda config: config.update(encoder={"parts": [{"encoder": "hub:x/y", "kind": "text", "columns": ["a"]}]}),
            "to be given again",
        ),
    ],
)
def test_edited_folders_are_refused(fitted, tmp_path, change, sentence):
    model, _ = fitted
    model.save(tmp_path / "m")
    edited(tmp_path / "m", change)
    with pytest.raises(ValueError, match=sentence):
        RowMatcher.load(tmp_path / "m")


def test_a_torn_folder_is_refused(fitted, tmp_path):
    model, _ = fitted
    model.save(tmp_path / "m")
    for name in ("scorer", "left.parquet", "labelled.parquet", "matcher.safetensors"):
        content = (tmp_path / "m" / name).read_bytes()
        (tmp_path / "m" / name).write_bytes(content[:-9])
        with pytest.raises(ValueError, match=name):
            RowMatcher.load(tmp_path / "m")
        (tmp_path / "m" / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"^model: expected a folder of a matcher"):
        RowMatcher.load(tmp_path / "none")


@pytest.mark.parametrize("edit", [("split_feature=", "split_feature=-"), ("left_child=", "left_child=9"), ("tree", "")])
def test_trees_that_lead_nowhere_are_refused(fitted, tmp_path, edit):
    model, _ = fitted
    model.save(tmp_path / "m")
    scorer = tmp_path / "m" / "scorer"
    scorer.write_text(scorer.read_text().replace(*edit))
    _seal(tmp_path / "m")
    with pytest.raises(ValueError, match=r"^trees: expected"):
        RowMatcher.load(tmp_path / "m")


def test_an_assignment_is_the_best_of_all():
    random = np.random.default_rng(0)
    for _ in range(20):
        gains = random.uniform(0.1, 1, (4, 4)) * (random.random((4, 4)) < 0.6)
        left, right = np.nonzero(gains)
        chosen = assigned(left, right, gains[left, right])
        best = max(sum(gains[i, j] for i, j in enumerate(order)) for order in permutations(range(4)))
        assert gains[left, right][chosen].sum() == pytest.approx(best)
        assert len(set(left[chosen])) == len(set(right[chosen])) == chosen.sum()


def test_an_assignment_in_parts_is_that_of_all_at_once(monkeypatch):
    random = np.random.default_rng(0)
    pairs = np.unique(random.integers(0, 200, (300, 2)), axis=0)
    gains = random.random(len(pairs)) + 0.1
    whole = assigned(pairs[:, 0], pairs[:, 1], gains)
    monkeypatch.setattr("vicinal.estimators.linking._TOGETHER", 5)
    assert assigned(pairs[:, 0], pairs[:, 1], gains).tolist() == whole.tolist()


@pytest.mark.slow
def test_large_tables_in_blocks_and_samples_give_the_same_links(monkeypatch):
    left, right, pairs = shops(60, vectors=True)
    chances = matcher().fit(left, right, pairs).predict_proba(pairs)
    for name, value in (("_ROWS", 17), ("_PAIRS", 29)):
        monkeypatch.setattr(f"vicinal.estimators.match_tables.{name}", value)
    np.testing.assert_allclose(matcher().fit(left, right, pairs).predict_proba(pairs), chances, atol=1e-9)
    for name, value in (("_ALL", 10), ("_POSTINGS", (60, 20)), ("_SAMPLED", 30)):
        monkeypatch.setattr(f"vicinal.estimators.match_tables.{name}", value)
    links = matcher().fit(left, right, pairs).link()
    assert (links["left"].str[1:].astype(int) + 1000 == links["right"]).mean() > 0.9
    assert len(links) > 50


@pytest.mark.parametrize("index", ["faiss:Flat", pytest.param("milvus:{}/rows.db", marks=pytest.mark.slow)])
def test_vectors_are_searched_by_the_index_of_that_name(index, tmp_path):
    pytest.importorskip(index.partition(":")[0].replace("milvus", "milvus_lite"))
    left, right, pairs = shops(40, vectors=True)
    exact = matcher().fit(left, right, pairs)
    model = matcher(index=index.format(tmp_path)).fit(left, right, pairs)
    pd.testing.assert_frame_equal(model.link(), exact.link(), rtol=1e-4)
    model.close()
    pd.testing.assert_frame_equal(model.search(left.head(2), 3), exact.search(left.head(2), 3))
    links = [each.forget(left["sku"][:9]).add(left[:9]) for each in (model, exact)]
    assert len(links[1]) > 5
    pd.testing.assert_frame_equal(*links, rtol=1e-4)
    model.close()


def test_an_index_that_cannot_be_opened_is_refused_before_rows_are_read():
    with pytest.raises(ValueError, match=r"^index: expected one of 'exact'"):
        matcher(index="fais").fit(None, None)
    with pytest.raises(ValueError, match=r"^uri: expected a file ending in .db"):
        matcher(index="milvus:rows").fit(None, None)


def test_clusters_follow_links_and_their_pairs_are_listed():
    names = connected(np.array([[0, 3], [3, 5], [1, 2]]), 6)
    assert names.tolist() == [0, 1, 1, 0, 2, 0]
    random = np.random.default_rng(0)
    pairs, there = pairs_within(names, 10, random)
    assert sorted(map(tuple, pairs.tolist())) == [(0, 3), (0, 5), (3, 5)]
    assert there == 3
    some, there = pairs_within(np.zeros(500, dtype=np.int64), 2000, random)  # a cluster of any size is looked at
    assert there == 500 * 499 // 2
    assert 1900 < len(some) <= 2000
    assert (some[:, 0] < some[:, 1]).all()


def test_features_have_names_and_stay_within_their_range(fitted):
    model, _ = fitted
    features = model.tables_.pair_features(np.array([[0, 0], [1, 5]]))
    names = model.tables_.features.names
    assert features.shape == (2, len(names))
    assert len(set(names)) == len(names)
    assert (np.abs(features) <= 1 + 1e-6).all()
    assert isinstance(model.tables_.features, PairFeatures)


def counted(tables, texts, numbers):
    """Two tables by whose cells terms are counted."""
    features = PairFeatures(MatchColumns(texts, numbers, {}))
    ids = [np.arange(len(table)) for table in tables]
    both = [MatchTable(*each, torch.zeros(0)) for each in zip(("left", "right"), tables, ids, strict=True)]
    sides = [Side(features, table) for table in both]
    features.fit(sides)
    return sides


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("lamp kx-fa132", "new kxfa132 lamp", (1, True, -1)),  # marks within a code
        ("lamp xrs-9645", "xrs 9645 lamp", (1, True, -1)),  # one code is two words
        ("lamp 81024", "lamp abc81024", (0, True, -1)),  # ours is a part of theirs, which ours has not
        ("lamp 81034", "lamp 81024", (0, False, 0.8)),  # a letter is another
        ("lamp 81034", "lamp", (-1, False, -1)),
        ("lamp", "lamp 12", (-1, -1, -1)),  # short ones are sizes
    ],
)
def test_codes_are_found_anywhere_in_the_other_row(left, right, expected):
    tables = [pd.DataFrame({"name": [text, "chair xy-77"]}) for text in (left, right)]
    sides = [side.parts[0] for side in counted(tables, ["name"], [])]
    least, rarest, near = np.concatenate(_of_codes(sides, np.array([[0, 0]])))
    assert least == pytest.approx(expected[0])
    assert (rarest > 0.5) == expected[1] if expected[1] != -1 else rarest == -1
    assert near == pytest.approx(expected[2])


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("titan pro case", "titanpro case", (1, 1, 0, 0)),  # two words are one
        ("hp ink", "hp ink used", (0.5, 1, 0, 1)),  # a word that one of the rows has, "used", is as rare as any other
        ("red ink", "blue ink", (0.4, 0.4, 1, 1)),
        ("a, 3.5-inch", "-", (-1, 0, 0, 1)),  # no words: no share of them
    ],
)
def test_words_are_found_anywhere_in_the_other_row_and_lost_ones_are_weighed(left, right, expected):
    tables = [pd.DataFrame({"name": [text, f"ink case {side}"]}) for side, text in enumerate((left, right))]
    sides = [side.parts[1] for side in counted(tables, ["name"], [])]
    least, most, lost, all_lost = np.concatenate(_of_words(sides, np.array([[0, 0]])))
    assert (least, most) == pytest.approx(expected[:2], abs=0.17)
    assert (round(lost), round(all_lost)) == expected[2:]


def test_numbers_agree_whatever_their_unit_and_amounts_are_none():
    tables = [
        pd.DataFrame({"name": ["16.0 mp camera, 4gb", "camera"], "price": [price, 9.0]}) for price in (199.0, 150.0)
    ]
    tables[1]["name"] = ["camera 16mp 4 gb", "camera 14mp 4 gb"]
    sides = counted(tables, ["name"], ["price"])
    found = sides[0].features.of(*sides, np.array([[0, 0], [0, 1], [1, 0]]), [None, None], None)
    share = found[:, sides[0].features.names.index("row: numbers least share")]
    assert share[0] == pytest.approx(1)
    assert 0 < share[1] < 0.6
    assert share[2] == -1


def test_a_pair_is_compared_with_the_best_other_of_each_row():
    left, right, pairs = shops(25, vectors=True)
    model = matcher().fit(left, right, pairs)
    tables = model.tables_
    scores = (tables.left.vectors @ tables.right.vectors.T).double().numpy()
    at = np.array([(i, j) for i in range(5) for j in range(25)])
    features = dict(zip(tables.features.names, tables.pair_features(at).T, strict=True))
    for (i, j), ahead, behind in zip(
        at,
        features["row: vectors above the best other of the left"],
        features["row: vectors above the best other of the right"],
        strict=True,
    ):
        assert ahead == pytest.approx(scores[i, j] - np.delete(scores[i], j).max(), abs=1e-5)
        assert behind == pytest.approx(scores[i, j] - np.delete(scores[:, j], i).max(), abs=1e-5)


def test_without_labels_rows_that_are_each_others_best_are_linked_in_any_order():
    right = pd.DataFrame({"id": range(12), "name": [f"lamp {c} {n}" for n in ["77", "55", "33"] for c in "abcd"]})
    near = pd.DataFrame({"id": range(100, 112), "name": [f"{name} zz yy" for name in right["name"]]})
    left = pd.concat([near, right.assign(id=range(12))], ignore_index=True)  # the true ones stand last
    links = RowMatcher(encoders={"text": "none"}).fit(left, right).link()
    assert dict(zip(links["left"], links["right"], strict=True)) == {n: n for n in range(12)}


def test_rows_without_ids_are_numbered_and_pairs_may_be_tuples(tmp_path):
    left, right, _ = shops(40)
    named = RowMatcher("sku", "asin").fit(left, right)
    bare = RowMatcher().fit(left.drop(columns="sku"), right.drop(columns="asin"))
    assert bare.tables_.left.ids.tolist() == list(range(len(left)))
    links, same = bare.link(), named.link()
    assert left["sku"].iloc[links["left"]].tolist() == same["left"].tolist()
    assert right["asin"].iloc[links["right"]].tolist() == same["right"].tolist()
    pairs = links.loc[:9, ["left", "right"]]
    tables = left.drop(columns="sku"), right.drop(columns="asin")
    both = [RowMatcher().fit(*tables, some).labels_ for some in (pairs, [*pairs.itertuples(index=False, name=None)])]
    pd.testing.assert_frame_equal(*both)
    told = [bare.explain(some, k=1) for some in (pairs[:2], [*pairs[:2].itertuples(index=False, name=None)])]
    assert [str(one) for one in told[1]] == [str(one) for one in told[0]]
    for some in (5, [(0, 1), (1, 2, 0)], []):
        with pytest.raises(ValueError, match=r"^pairs: expected the columns left and right"):
            RowMatcher().fit(*tables, some)

    bare.save(tmp_path / "m")
    ids = list(range(len(right)))
    for row, own in enumerate(({"id": 99}, {}, {})):  # numbered on, also when it is loaded again
        again = RowMatcher.load(tmp_path / "m")
        again.add(left.iloc[[row]].drop(columns="sku").assign(**own), to="right", durable=True)
        ids.append(own.get("id", len(ids)))
        assert again.tables_.right.ids.tolist() == ids
    again.forget(right=[3])
    with pytest.raises(ValueError, match=r"^id_right: expected one of"):  # which number comes next is open
        again.add(left.iloc[[2]].drop(columns="sku"), to="right")


def test_labels_that_are_lacking_are_named():
    both, right, wrong = (pd.DataFrame({"match": match}) for match in ([0, 1], [1, 1], [0]))
    assert lack_of_labels([(both, both)]) == ""
    assert lack_of_labels([(both, right)]).endswith(
        "choose the threshold by, got 2 and 0; label more pairs that do not match"
    )
    assert lack_of_labels([(wrong, both)]).endswith("learn from, got 0 and 1; label more pairs that match")
    assert lack_of_labels([(both, both.head(0))]).endswith("got 0 and 0; label more pairs")


def test_points_in_one_cell_are_two_columns_also_of_rows_that_are_added():
    draw = np.random.default_rng(0)
    points = draw.uniform((44, -2), (54, 15), (60, 2)).round(4)
    left = pd.DataFrame({"name": [f"lamp {i}" for i in range(60)], "where": [f"{a}, {b}" for a, b in points.tolist()]})
    right = pd.DataFrame({"name": left["name"], "lat": points[:, 0], "lon": points[:, 1]})
    (table, other), _ = read_tables([left, right], (None, None), (None, None))
    numbers = ["where 1", "where 2"]
    np.testing.assert_array_equal(table.frame[numbers], other.frame[numbers])
    more = table.more(pd.DataFrame({"name": ["chair"], "where": ["(48.5; 2.25)"]}), None, numbers)
    assert more.frame[numbers].to_numpy().tolist() == [[48.5, 2.25]]
    (table, _), _ = read_tables([left, left.assign(name="lamp")], (None, None), (None, None))
    assert "where" in table.frame
    (table, _), _ = read_tables([left.assign(**{"where 1": 7}), right], (None, None), (None, None))
    assert {"where", "where 1"} <= set(table.frame), "whose name is taken"


def test_tables_that_share_vectors_alone_are_linked():
    vectors = np.random.default_rng(0).normal(size=(2, 40, 5))
    left, right = (
        pd.DataFrame({"id": range(40), "vector": each.tolist()})
        for each in (vectors[0], vectors[0] + 0.05 * vectors[1])
    )
    links = RowMatcher().fit(left, right).link()
    assert len(links) == 40
    assert (links["left"] == links["right"]).all()
