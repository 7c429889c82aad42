"""Tables that are too long for each row to be compared with all others, here of a few hundred rows."""

import numpy as np
import pandas as pd
import pytest

from vicinal.estimators import RowMatcher, match_linkage, match_tables, matching
from vicinal.linkage import competition
from vicinal.linkage.competition import Competition
from vicinal.workflows.match import MatchJob
from vicinal.workflows.match import match_tables as match_tables_of

ROWS, MATCHED = 400, 300


@pytest.fixture(autouse=True)
def _large(monkeypatch):
    monkeypatch.setattr(match_tables, "LARGE", 100)
    monkeypatch.setattr(matching, "LARGE", 100)
    monkeypatch.setattr(match_linkage, "_WEIGHED", 1000)
    monkeypatch.setattr(competition, "_MANY", 500)


def tables(text=False):
    """Persons, or things with a text of six words; in copies a cell in six is another, and one in ten is empty."""
    random = np.random.default_rng(0)
    syllables = np.array([f"{a}{b}{c}" for a in "bdfgklmn" for b in "aeiou" for c in ("r", "s", "nd", "ck")])

    def words(count, rows):
        return [" ".join(random.choice(syllables, count)) for _ in range(rows)]

    left = pd.DataFrame(
        {
            "id": np.arange(ROWS),
            "name": words(6 if text else 2, ROWS),
            "town": random.choice(syllables[:30], ROWS),
            "born": random.integers(10**6, 10**7, ROWS).astype(str),
            "weight": np.round(random.lognormal(3, 1, ROWS), 2),
        }
    )
    right = left[:MATCHED].copy()
    for name in ("name", "town", "born"):
        cells = right[name].to_numpy(object)
        wrong = random.random(MATCHED) < 1 / 6
        cells[wrong] = [cell[:-1] + "x" for cell in cells[wrong]]
        cells[random.random(MATCHED) < 0.1] = None
        right[name] = cells
    others = left.sample(ROWS - MATCHED, random_state=1).assign(name=words(2, ROWS - MATCHED), weight=1.0)
    others["born"] = random.integers(10**6, 10**7, len(others)).astype(str)
    right = pd.concat([right, others.assign(id=range(ROWS, 2 * ROWS - MATCHED))], ignore_index=True)
    return left, right.sample(frac=1, random_state=0, ignore_index=True)


@pytest.mark.sweep(9)
@pytest.mark.parametrize("text", [False, True])
def test_links_of_large_tables(text, tmp_path):
    left, right = tables(text)
    model = RowMatcher().fit(left, right)
    assert any("compared by words and letters" in note for note in model.notes_)
    links = model.link()
    right_ones = (links["left"] == links["right"]).sum()
    assert right_ones >= 0.97 * len(links)
    assert right_ones >= 0.9 * MATCHED
    scored = model.scored_candidates()
    assert scored.groupby("left").size().mean() < 12
    model.save(tmp_path / "matcher")
    again = RowMatcher.load(tmp_path / "matcher")
    pd.testing.assert_frame_equal(again.scored_candidates(), scored)
    pairs = pd.DataFrame({"left": [0, 0, 5], "right": [0, 200, 5]})
    assert model.predict_proba(pairs)[:, 1] == pytest.approx(again.predict_proba(pairs)[:, 1])
    assert model.predict_proba(pairs)[1, 1] < 0.01
    assert [cell.column for cell in model.explain(pairs[:1])[0].cells][:2] == ["name", "town"]


def test_large_tables_tell_what_share_of_the_matches_is_compared(monkeypatch):
    left, right = (table.drop(columns="weight") for table in tables())
    random = np.random.default_rng(1)
    for name in ("name", "born"):  # so that some have no key in common
        wrong = random.random(ROWS) < 0.3
        right.loc[wrong, name] = [cell[::-1] if isinstance(cell, str) else cell for cell in right.loc[wrong, name]]
    model = RowMatcher().fit(left, right)
    scored = model.scored_candidates()
    compared = ((scored["left"] == scored["right"]) & (scored["left"] < MATCHED)).sum() / MATCHED
    assert compared < 0.9
    assert compared <= model.estimated_recall() <= 0.97  # what agrees in nothing is not known of
    monkeypatch.setattr(match_tables, "LARGE", 1000)
    assert RowMatcher().fit(left, right).estimated_recall() is None


@pytest.mark.slow
def test_many_labels_of_large_tables_are_learned_from_likenesses():
    left, right = tables()
    pairs = pd.DataFrame({"left": range(240), "right": range(240)})
    model = RowMatcher(encoders={"text": "none"}).fit(left, right, pairs)
    links = model.link()
    links = links[links["left"] >= 240]
    assert (links["left"] == links["right"]).mean() > 0.95
    assert len(links) > 0.85 * (MATCHED - 240)


def test_rows_without_content_are_linked_to_nothing():
    left, right = tables()
    empty = pd.DataFrame([{"id": 900, **dict.fromkeys(["name", "town", "born"]), "weight": np.nan}])
    model = RowMatcher().fit(pd.concat([left, empty]), pd.concat([right, empty]))
    assert 900 not in model.scored_candidates()["left"].tolist()
    assert model.predict_proba(pd.DataFrame({"left": [900], "right": [900]}))[0, 1] == 0


def test_copies_within_a_large_table_and_rows_that_come_later():
    left, right = tables()
    both = pd.concat([left, right.assign(id=right["id"] + 1000)], ignore_index=True)
    model = RowMatcher().fit(both, None)
    links = model.link()
    assert ((links["right"] - links["left"]).abs() == 1000).mean() > 0.95
    assert len(links) > 0.85 * MATCHED
    new = left[:1].assign(id=5000, weight=np.nan)
    assert model.add(new)[["left", "right"]].to_numpy().tolist()[0] == [5000, 0]
    found = model.link()
    assert [0, 5000] in np.sort(found[["left", "right"]].to_numpy(), axis=1).tolist()


@pytest.mark.sweep(9)
@pytest.mark.parametrize("text", [False, True])
def test_new_rows_of_either_table_are_linked_at_once(text):
    left, right = tables(text)
    model = RowMatcher().fit(left[20:], right[~right["id"].isin(range(20, 40))])
    one_by_one = pd.concat([model.add(left[row : row + 1]) for row in range(10)])
    others = model.add(right[right["id"].isin(range(20, 40))], "right")
    rest = model.add(left[10:20])
    found = pd.concat([one_by_one, rest, others], ignore_index=True)
    assert (found["left"] == found["right"]).all()
    assert len(found) >= 0.85 * 40
    every = model.link()
    assert len(every.merge(found, on=["left", "right"])) >= len(found) - 1
    name = others["right"][0]
    again = model.add(left[name : name + 1].assign(id=9000))  # its right row came later than the index
    assert again[["left", "right"]].to_numpy().tolist() == [[9000, name]]
    assert len(model.add(left[41:43].assign(id=[9001, 9002], name=left["name"][42]))) <= 2
    twice = pd.concat([left[50:51], left[50:51]]).assign(id=[9003, 9004])
    assert len(model.add(twice)) == 1  # one-to-one, among the new rows
    assert {9003, 9004} <= set(model.scored_candidates()["left"])


@pytest.mark.sweep(9)
@pytest.mark.parametrize("text", [False, True])
def test_new_rows_are_weighed_as_the_same_rows_among_all(text):
    left, right = tables(text)
    both = pd.concat([left, right.assign(id=right["id"] + 1000)], ignore_index=True)
    model = RowMatcher().fit(both, None)
    before = model.link().query("probability < 1")[:40:4].assign(new=range(5000, 5010))  # others are equal
    things = model.tables_.things(
        np.stack([model.tables_.left.positions(before[side]) for side in ("left", "right")], 1)
    )
    odds = model.linkage_.log_odds(model.tables_, things) / np.log(2)
    copies = both.set_index("id").loc[before["left"]].reset_index(drop=True).assign(id=before["new"].to_numpy())
    links = pd.concat([model.add(copies[:1]), model.add(copies[1:])]).set_index(["left", "right"])
    found = links.loc[list(zip(before["new"], before["right"], strict=True))]
    assert found["score"].to_numpy() == pytest.approx(odds, abs=1e-5)
    chances = 1 / (1 + 2.0**-odds)  # rows of one table do not compete
    assert found["probability"].to_numpy() == pytest.approx(chances, abs=1e-6)
    again = model.add(copies.assign(id=range(6000, 6010))).set_index(["left", "right"])["score"]
    for row, name in enumerate(before["left"]):  # also beside rows that came later than the index
        assert again[6000 + row, 5000 + row] == pytest.approx(again[6000 + row, name], abs=1e-5)
    assert not any(one in range(6000, 6010) for _, one in again.index)


def test_added_rows_are_in_the_journal_of_the_folder(tmp_path):
    left, right = tables()
    model = RowMatcher().fit(left[20:], right)
    with pytest.raises(
        ValueError, match=r"^durable: expected a matcher that was loaded or saved, got one that is in no"
    ):
        model.add(left[:1], durable=True)
    model.save(tmp_path / "m")
    links = model.add(left[:10], durable=True)
    with pytest.raises(ValueError, match=r"^left: expected ids that the table has not yet, got '0'"):
        model.add(left[:1], durable=True)
    model.add(right[:1].assign(id=7777), "right", durable=True)
    again = RowMatcher.load(tmp_path / "m")
    assert len(again.tables_.left) == ROWS - 10
    pd.testing.assert_frame_equal(again.link(), model.link())
    more = again.add(left[10:20], durable=True)
    with pytest.raises(ValueError, match=r"^changes.jsonl: expected to write behind the last record"):
        model.add(left[10:20], durable=True)  # others have written
    assert len(model.add(left[10:20])) == len(more)  # nothing had changed
    assert set(links["left"]) | set(more["left"]) <= set(RowMatcher.load(tmp_path / "m").link()["left"])
    again.save(tmp_path / "m")
    assert not (tmp_path / "m" / "changes.jsonl").exists()
    with pytest.raises(ValueError, match=r"^durable: expected the folder that was loaded, got another"):
        model.add(left[:1].assign(id=8888), durable=True)
    assert len(RowMatcher.load(tmp_path / "m").tables_.left) == ROWS


def test_new_rows_of_a_matcher_without_sign_or_with_a_scorer(monkeypatch):
    left, right = tables()
    pairs = pd.DataFrame({"left": range(20, 240), "right": range(20, 240)})
    model = RowMatcher(encoders={"text": "none"}).fit(left[20:], right, pairs)
    with monkeypatch.context() as patch:
        patch.setattr(RowMatcher, "link", None)  # nothing is linked again
        links = model.add(left[:20])
    assert len(links) > 10
    assert (links["left"] == links["right"]).mean() > 0.9
    assert set(links["left"]) <= set(range(20))
    strangers = right.assign(name=right["name"].str[::-1], town="", born="", weight=range(ROWS))
    model = RowMatcher().fit(left[20:], strangers)
    assert not model.linkage_.has_sign
    assert len(model.add(right[:1].assign(id=5555))) == 0


def test_pairs_of_no_odds_and_pairs_without_rivals_are_not_asked_again(monkeypatch):
    random = np.random.default_rng(0)
    pairs = np.unique(random.integers(0, 60, (300, 2)), axis=0)
    odds = random.normal(-8, 8, len(pairs))
    model = Competition.of(pairs, (60, 60), "one-to-one", is_single=False)
    monkeypatch.setattr(competition, "_MANY", 1000)
    exact = model.chances(odds, 20.0)
    monkeypatch.setattr(competition, "_MANY", 0)
    assert model.chances(odds, 20.0) == pytest.approx(exact, abs=2e-4)
    assert ((exact > 0.5) & (odds < 5)).any()
    assert (exact < 0.9 / (1 + np.exp(-odds))).any()


def test_what_follows_is_told_by_pairs_that_are_equal_in_a_column_and_not_by_candidates(monkeypatch):
    random = np.random.default_rng(0)
    left, right = tables()
    letters = np.array(list("abcdefghijklmnop"))
    for table in (left, right):
        table["area"] = table["town"].str[:2] + table["town"].str[2:].map(
            {"r": "ia", "s": "ia", "nd": "um", "ck": "um"}
        )
        table["color"] = random.choice(letters, len(table))
    model = RowMatcher().fit(left, right)
    assert model.linkage_.follows == {"area": "town"}
    monkeypatch.setattr(match_linkage, "_DRAWN", 0)
    assert RowMatcher().fit(left, right).linkage_.follows == {}


def test_equal_pairs_are_drawn_from_all_that_are_equal_and_no_row_is_its_own():
    random = np.random.default_rng(0)
    codes = np.array([0, 1, -1, 0, 0, 2])
    assert match_linkage._equal_pairs(codes, 200, random).tolist() == [[0, 3], [0, 4], [3, 4]]
    assert len(match_linkage._equal_pairs(codes, 0, random)) == 0


def test_a_killed_run_goes_on_with_its_candidates_and_levels(monkeypatch, tmp_path):
    left, right = tables(text=True)
    for name, table in (("a", left), ("b", right)):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    job = MatchJob(tmp_path / "a.csv", tmp_path / "b.csv")
    whole = match_tables_of(job, tmp_path / "whole").links
    with monkeypatch.context() as patch:
        patch.setattr(match_linkage.Linkage, "_take", stop)
        with pytest.raises(KeyboardInterrupt):
            match_tables_of(job, tmp_path / "m")
    compared = match_linkage.Linkage.compared
    sizes = []
    with monkeypatch.context() as patch:
        patch.setattr(match_tables, "block_index", stop)
        patch.setattr(
            match_linkage.Linkage, "compared", lambda *parts: sizes.append(len(parts[-1])) or compared(*parts)
        )
        resumed = match_tables_of(job, tmp_path / "m")
    pd.testing.assert_frame_equal(resumed.links, whole)
    assert resumed.record.reached == pytest.approx(resumed.matcher.estimated_recall())
    candidates = len(resumed.matcher.scored_candidates())
    assert candidates not in sizes  # the levels of all of them were there
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "b.csv", "m", "whole"]
    model = RowMatcher(cache_dir=tmp_path / "cache").fit(left, right)
    made = sorted((tmp_path / "cache").iterdir())
    assert len(made) == 2
    made[0].write_bytes(b"torn")
    other = left.assign(born=left["born"] + "1")  # of other cells nothing is taken up
    for table, count in ((left, 2), (other, 4)):
        again = RowMatcher(cache_dir=tmp_path / "cache").fit(table, right)
        assert len(list((tmp_path / "cache").iterdir())) == count
    assert not again.link().equals(model.link())


def stop(*_, **__):
    raise KeyboardInterrupt


def test_rows_that_come_are_told_by_the_words_that_all_others_are_told_by():
    random = np.random.default_rng(0)
    words = np.array([a + b for a in ("mu", "no", "ka", "to", "re", "li") for b in ("ran", "bel", "dor", "sti", "gar")])
    names = [" ".join([*random.choice(words, 5), f"k{row + 100}"]) for row in range(120)]
    codes = random.integers(100_000, 999_999, 120).astype(str)
    table = pd.DataFrame({"id": range(120), "name": names, "code": codes})
    model = RowMatcher(encoders={"text": "none"})
    model.fit(table[20:].assign(lot=[f"q{row} w{row}" for row in range(100)]), table)
    assert model.linkage_.refinement is None  # so that they are found by keys
    links = model.add(table[:20].assign(lot="q7 w8"))  # words with digits of a column that one table has
    assert links["left"].tolist() == links["right"].tolist()
    at = np.stack([model.tables_.left.positions(links["left"]), model.tables_.right.positions(links["right"])], axis=1)
    among_all = model.linkage_.log_odds(model.tables_, model.tables_.things(at)) / np.log(2)
    np.testing.assert_allclose(links["score"], among_all, atol=1e-6)
