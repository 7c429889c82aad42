"""What a notebook shows: the query's cells beside its comparables, differences marked, everything escaped."""

import copy
import math
import re
from importlib import resources

import numpy as np
import pandas as pd
import pytest
import torch

from vicinal.estimators import (
    Bank,
    CellComparison,
    Explanation,
    Hit,
    Neighbor,
    NeighborClassifier,
    NeighborRegressor,
    PairExplanation,
    Recommender,
    RowMatcher,
)
from vicinal.estimators.explanation import Explanations, Trend
from vicinal.estimators.pair_explanation import PairExplanations
from vicinal.estimators.search import SearchHits
from vicinal.report.audit_records import AuditRecord
from vicinal.report.records import CompareRecord, FitRecord
from vicinal.report.summary import summary
from vicinal.workflows.show import show_folder

BAD = "<script>alert(1)</script>"
QUERY = {"title": "red lamp of 1970", "size": 12.0, "note": BAD}
ROW = {"title": "red lamp of 1971", "size": 12.0, "note": "none"}


def text_of(page):
    """The page without its style and marks, spaces as one."""
    return " ".join(re.sub(r"<style>.*?</style>|</?(mark|bdi)>", "", page, flags=re.DOTALL).split())


def explanation(**changes):
    """One row of weight 3/4, and nine others that add 50."""
    one = Neighbor(7, 0.75, 280.0, 210.0, ROW, "row 7")
    return Explanation(260.0, 260.0, (one,), 0.25, 50.0, 9, query=QUERY, usual=150.0, **changes)


def with_trend():
    """A row of weight 1/2 whose label is adjusted from 300 to 250, and a trend that says 200."""
    trend = Trend(0.5, 180.0, {"size": 25.0, "title": -5.0}, 200.0)
    one = Neighbor(7, 0.5, 300.0, 125.0, ROW, "row 7", {"size": -50.0, "title": 0.0, "note": 0.0}, 250.0)
    return Explanation(225.0, 225.0, (one,), 0.0, 0.0, 0, trend=trend, query=QUERY)


def hits():
    found = SearchHits([[Hit(7, -0.5, "a-b", ROW)]])
    found.queries = [QUERY]
    return found


def pair():
    cell = CellComparison("title", "red lamp 1970", BAD, 0.5, "differs", "differs", -2.0)
    return PairExplanation("a", "b", 1 / 9, [cell], [], start=-4.0, refined=3.0)


def fit_record():
    return FitRecord(BAD, "red lamp", "regression", scores={"mean": {"mse": 4.0}, "model": {"mse": 3.0}})


def audit_record():
    many = dict.fromkeys(["slices", "target_slices", "coverage", "hubs", "suspects", "copies", "classes"], ())
    arrays = {"class_sets": {}, "predicted": np.zeros(3), "truth": np.zeros(3), "served": np.zeros(3, dtype=int)}
    known = {"rows": {"new": 3}, "scores": {"mse": 3.0}, "hubness": 0.0, "unused": 0.0, "neighbors": 10}
    baselines = {"mean": {"mse": 4.0}}
    return AuditRecord(BAD, "m", "red lamp", "regression", baselines=baselines, **known, **many, **arrays)


def compare_record():
    return CompareRecord(BAD, {"red lamp": {"dense": [0.002, 0.004], "nona": [0.001, 0.002]}, "b": {"nona": [0.5]}})


def matcher():
    left = pd.DataFrame({"id": range(30), "red lamp": [f"lamp {place}" for place in range(30)], BAD: "a"})
    return RowMatcher(encoders={"text": "none"}).fit(left, left.assign(id=range(100, 130)).iloc[::-1])


def recommender():
    clicks = pd.DataFrame({"red lamp": [1, 1, 2, 2, 3, 3, 4], BAD: list("abcacda")})
    return Recommender("red lamp", BAD, rank=2).fit(clicks)


def why_recommended():
    clicks = pd.DataFrame({"user": [1] * 12 + [2] * 2, "item": [*"abcdefghij", "red lamp", BAD, "red lamp", "z"]})
    return Recommender(rank=2).fit(clicks).explain(1, "z")


SCORES = {FitRecord: ["mean, MSE 4", "model, MSE 3"], AuditRecord: ["model, MSE 3", "mean, MSE 4"]}

SHOWN = {
    "fit": fit_record,
    "audit": audit_record,
    "explanation": explanation,
    "trend": with_trend,
    "explanations": lambda: Explanations([explanation()] * 5),
    "hits": hits,
    "pair": pair,
    "pairs": lambda: PairExplanations([pair()] * 7),
    "comparison": compare_record,
    "matcher": matcher,
    "recommender": recommender,
    "bank": lambda: Bank(np.arange(20), torch.zeros(20, 2), torch.arange(20.0), pd.DataFrame([QUERY] * 20)),
}


@pytest.mark.parametrize("name", SHOWN)
def test_each_shows_the_cells_of_the_query_and_escapes_them(name):
    page = SHOWN[name]()._repr_html_()
    assert page.startswith('<div class="vicinal">')
    assert page.count("<div") == page.count("</div>")
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "red lamp" in text_of(page)


def test_a_row_stands_beside_its_comparables_with_what_differs_marked():
    assert repr(explanation()) == "260: row 7 280 (75 %), 9 others (25 %)"
    page = explanation()._repr_html_()
    for part in ("row 7", "predicted 260", "<mark>1</mark>", "75 %", "9 other rows: weight 25 %."):
        assert part in page
    assert "<mark>12</mark>" not in page
    page = text_of(with_trend()._repr_html_())
    for part in (
        "adjusted label",
        "250.0",
        "(most from size +25, title \N{MINUS SIGN}5); weight 50 %.",
        "\N{MINUS SIGN}50.0",
    ):
        assert part in page


def test_the_bank_of_a_classifier_shows_names_of_classes_also_those_that_came_later():
    table = pd.DataFrame({"size": range(30)})
    model = NeighborClassifier(metric="kernel").fit(table, ["ash", "birch", "oak"] * 10)
    page = text_of(model.bank_._repr_html_())
    assert all(name in page for name in ("ash", "birch", "oak"))
    model.add(table.iloc[:1] + 40, ["yew"], ids=[99], new_classes=True)
    later = model.bank_.take(np.arange(len(model.bank_))[-1:])
    model.bank_ = later
    assert "yew" in text_of(model.bank_._repr_html_())


def test_a_bank_that_two_models_share_shows_the_names_of_the_one_that_is_asked():
    model = NeighborClassifier(metric="kernel").fit(pd.DataFrame({"size": range(30)}), ["ash", "birch", "oak"] * 10)
    other = copy.copy(model)
    other.classes_ = np.array(["Esche", "Birke", "Eiche"], dtype=object)
    assert other.bank_ is model.bank_
    assert "Esche" in text_of(other.bank_._repr_html_())
    assert "ash" in text_of(model.bank_._repr_html_())


def test_of_many_the_first_are_shown_and_the_number_of_the_others_is_said():
    assert "2 more; to_frame() has all of them." in SHOWN["explanations"]()._repr_html_()
    assert "4 more; to_frame() has all of them." in SHOWN["pairs"]()._repr_html_()
    assert "12 more rows" in SHOWN["bank"]()._repr_html_()
    assert repr(SHOWN["bank"]()) == "Bank(20 rows, 2 numbers each)"


def test_a_query_that_lacks_a_column_is_not_marked_there():
    found = hits()
    found.queries = [{"title": "red lamp of 1970"}]
    page = found._repr_html_()
    assert page.count("<mark>") == 1
    assert "a-b" in page  # a hyphen of a name is no minus


def test_all_are_tables_too():
    table = with_trend().to_frame()
    assert table["id"].tolist() == [7, "trend"]
    assert table["contribution"].sum() == 225.0
    assert Explanations([explanation(), with_trend()]).to_frame()["query"].tolist() == [0, 0, 1, 1]
    assert repr(hits()) == "row 7 a-b (-0.5)"
    assert repr(SearchHits([*hits()] * 12)).endswith("row 7 a-b (-0.5)\n... and 2 more")
    assert hits().to_frame().iloc[0].tolist() == [0, 1, 7, -0.5, "a-b"]
    assert SHOWN["pairs"]().to_frame()["left_id"].tolist() == ["a"] * 7


def test_steps_add_up_to_what_is_predicted():
    assert with_trend().steps(columns=1) == [
        ("trend: start", 180.0),
        ("trend: size", 25.0),
        ("trend: other columns", -5.0),
        ("row 7", 25.0),  # half of the way from 200 to 250
    ]
    assert explanation().steps() == [("all rows alike", 150.0), ("row 7", 97.5), ("9 other rows", 12.5)]
    assert explanation(constant=3.0).steps()[-1] == ("constant", 3.0)
    assert sum(bits for _, bits in pair().steps()) == pytest.approx(math.log2(1 / 9 / (8 / 9)))


def test_records_show_their_scores_and_no_arrays():
    for record in (fit_record(), audit_record()):
        assert repr(record).splitlines() == [f"{BAD}: red lamp", *SCORES[type(record)]]


def test_a_comparison_shows_the_means_of_its_splits():
    assert repr(compare_record()).splitlines() == [
        f"{BAD}: mean MSE x 1000, labels scaled to 0-1",
        "dense, red lamp 3, b",
        "nona, red lamp 1.5, b 500",
    ]


def test_a_recommendation_shows_the_first_shares_of_its_score_and_counts_the_others():
    reasons = why_recommended()
    page, shares = reasons._repr_html_(), reasons.clicks["share"]
    assert f"Score {reasons.score:.4g}, by clicks" in page
    assert "Items clicked" in page
    assert "Others who clicked it" not in page
    assert page.count("<tr><td>") == 10
    assert ">2 more rows" in page
    assert math.isclose(shares.sum(), reasons.score)
    unknown = Recommender(rank=2).fit(pd.DataFrame({"user": [1, 2, 2], "item": list("aab")})).explain(9, "a")
    assert "Score 1, by popularity" in unknown._repr_html_()


def test_models_say_in_a_notebook_what_show_says(tmp_path):
    for model in (matcher(), recommender()):
        place = tmp_path / type(model).__name__
        model.save(place)
        shown = show_folder(place)
        lines = {name: words for name, words in summary(shown).items() if name != "written"}
        assert dict(model.summary()) == lines == dict(type(model).load(place).summary())
        assert all(note[:50] in text_of(model._repr_html_()).replace("&#39;", "'") for note in shown["notes"])
        assert "<svg" not in model._repr_html_()
    assert "RowMatcher" in RowMatcher()._repr_html_()
    assert "Recommender" in Recommender()._repr_html_()


def test_rows_that_say_nothing_stand_among_the_others():
    rows = tuple(Neighbor(str(at), weight, 2.0, 2 * weight, {"a": at}) for at, weight in enumerate((0.8, 0.05, 0.004)))
    panel = Explanation(2.0, 2.0, rows, 0.146, 0.292, 7).panel("t", dict)
    assert [one.weight for one in panel.neighbors] == [0.8, 0.05]
    assert (panel.other_rows, panel.other_weight) == (8, pytest.approx(0.15))
    assert panel.other_contribution == pytest.approx(0.3)
    even = Explanation(2.0, 2.0, rows[2:] * 3, 0.988, 1.976, 247)  # of many rows each says little, and all are as good
    assert len(even.brief().neighbors) == 3


def test_a_fitted_model_shows_what_was_tried_in_words_or_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    x, y = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"]), rng.normal(size=60)
    model = NeighborRegressor().fit(x, y)
    page = text_of(model._repr_html_())
    assert "Tried" in page
    assert "out of fold" in page
    assert "True" not in page
    none = model.leaderboard().iloc[:0]  # as of a learner
    monkeypatch.setattr(NeighborRegressor, "leaderboard", lambda self: none)
    assert "Tried" not in text_of(model._repr_html_())


def test_words_are_legible_on_a_dark_page():
    css = resources.files("vicinal.report").joinpath("templates/notebook.css").read_text()
    ink, page = np.array([0xD5] * 3), np.array([0x38] * 3)  # of Colab, whose dark page has the least contrast

    def luminance(color):
        part = color / 255
        return np.where(part <= 0.03928, part / 12.92, ((part + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    muted = int(re.search(r"--muted: color-mix\(in srgb, currentColor (\d+)%", css)[1]) / 100
    colors = [muted * ink + (1 - muted) * page]
    for code, share in re.findall(r"--(?:good|bad): color-mix\(in srgb, #(\w{6}) (\d+)%, currentColor\)", css):
        colors.append(np.array([*bytes.fromhex(code)]) * int(share) / 100 + ink * (1 - int(share) / 100))
    assert len(colors) == 3
    assert min((luminance(color) + 0.05) / (luminance(page) + 0.05) for color in colors) >= 4.5
