"""Records refuse what does not belong together."""

import numpy as np
import pytest

from vicinal.report import Neighbor
from vicinal.report.records import Column, CompareRecord, FitRecord, NeighborPanel, TrendLine


def record(**changes):
    given = {"name": "d", "target_name": "y", "task": "regression", "scores": {"model": {"mse": 1.0}}}
    return FitRecord(**{**given, **changes})


def test_plain_tuples_become_neighbors_and_columns():
    panel = NeighborPanel("t", {}, 1.0, None, [({"a": "x"}, 1.0, 1.0, 1.0)])
    assert panel.neighbors == [Neighbor({"a": "x"}, 1.0, 1.0, 1.0)]
    assert record(columns=[("a", "text", "ngrams", "why")]).columns == [Column("a", "text", "ngrams", "why")]


def test_other_contribution_is_what_is_missing():
    panel = NeighborPanel("t", {}, 2.0, 1.0, [({}, 3.0, 0.5, 1.5)], other_weight=0.5)
    assert panel.other_contribution == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"other_weight": 0.2}, "weights: expected a sum of 1"),
        ({"other_weight": float("nan")}, "weights: expected a sum of 1"),
        ({"prediction": 1.7}, "contributions: expected a sum of 1.7"),
        ({"prediction": "a"}, "probability: expected the probability of 'a'"),
    ],
)
def test_a_panel_that_does_not_add_up_is_refused(changes, sentence):
    given = {"prediction": 1.5, "target": 1.0, "neighbors": [({}, 1.5, 1.0, 1.5)], **changes}
    with pytest.raises(ValueError, match=sentence):
        NeighborPanel("t", {}, **given)


def test_contributions_that_miss_the_given_rest_are_refused():
    with pytest.raises(ValueError, match="contributions"):
        NeighborPanel("t", {}, 2.0, None, [({}, 3.0, 0.5, 1.5)], other_weight=0.5, other_contribution=0.1)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"task": "ranking"}, "task: expected one of"),
        ({"scores": {"knn": {"mse": 1.0}}}, "scores: expected an entry 'model'"),
        ({"predicted": np.zeros(3), "truth": np.zeros(2)}, "truth: expected 3"),
        ({"embedding": np.zeros((3, 2)), "embedding_labels": np.zeros(2)}, "embedding_labels: expected 3"),
        (
            {"task": "classification", "predicted": np.zeros((3, 2)), "truth": np.array(["a"] * 3), "classes": ["a"]},
            r"predicted: expected probabilities \(3, 1\), got \(3, 2\)",
        ),
    ],
)
def test_a_fit_whose_parts_do_not_belong_together_is_refused(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        record(**changes)


def test_an_embedding_of_one_dimension_may_come_flat():
    assert record(embedding=np.zeros(4), embedding_labels=np.zeros(4)).embedding.shape == (4, 1)


@pytest.mark.parametrize("results", [{}, {"d": {}}, {"d": {"a": [1.0], "b": []}}, {"d": {"a": [1.0], "b": [1.0, 2.0]}}])
def test_a_comparison_without_results_or_of_uneven_splits_is_refused(results):
    with pytest.raises(ValueError, match="results: expected"):
        CompareRecord("c", results)


def test_the_trend_of_comparables_has_its_part_in_both_sums():
    moved = ({"a": "x"}, 3.0, 0.5, 1.0, "7", 2.0, {"a": -1.0})
    panel = NeighborPanel("t", {}, 3.0, None, [moved], trend=TrendLine(0.5, 4.0, {"a": 4.0}))
    assert panel.neighbors[0].adjusted == 2.0
    assert panel.trend.contribution == 2.0
    assert panel.other_contribution == 0.0
    with pytest.raises(ValueError, match="weights: expected a sum of 1"):
        NeighborPanel("t", {}, 3.0, None, [moved], trend=TrendLine(0.4, 4.0))
    with pytest.raises(ValueError, match="contributions: expected a sum of 3"):
        NeighborPanel("t", {}, 3.0, None, [moved], trend=TrendLine(0.5, 3.0))
    with pytest.raises(ValueError, match="contributions: expected a sum of 3"):
        NeighborPanel("t", {}, 3.0, None, trend=TrendLine(1.0, 4.0))
