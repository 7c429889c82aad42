"""NDCG within queries, by its definition, and LambdaRank as a rival."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from vicinal.evaluation import query_ndcg, ranking_scores
from vicinal.evaluation.ranking import lambdarank_baseline


def test_ndcg_of_queries_in_numpy():
    random = np.random.default_rng(0)
    queries, grades = random.integers(0, 8, 120), random.integers(0, 4, 120)
    said, values = random.normal(size=120), []
    for query in np.unique(queries):
        at = queries == query
        gains, discount = 2.0 ** grades[at] - 1, 1 / np.log2(np.arange(2, 12))
        first = min(10, at.sum())
        best = np.sort(gains)[::-1][:first] @ discount[:first]
        values.append(gains[np.argsort(-said[at])][:first] @ discount[:first] / best)
    np.testing.assert_allclose(query_ndcg(grades, said, queries), values)
    assert ranking_scores(grades, said, queries)["ndcg@10"] == pytest.approx(np.mean(values))


def test_queries_without_an_order_do_not_count_and_other_grades_are_linear():
    assert np.isnan(query_ndcg([2, 2, 1], [0, 1, 2], ["a", "a", "b"])).all()
    assert ranking_scores([2, 2, 1], [0, 1, 2], ["a", "a", "b"]) == {}
    share = (0.5 / np.log2(2) + 1.5 / np.log2(3)) / (1.5 / np.log2(2) + 0.5 / np.log2(3))
    np.testing.assert_allclose(query_ndcg([-1.0, -0.5, 0.5], [0, 2, 1], ["a"] * 3), [share])
    both = query_ndcg([0, 1], [1, 1], ["a", "a"])  # of equal scores the mean over both orders
    np.testing.assert_allclose(both, [(1 + 1 / np.log2(3)) / 2])


def test_lambdarank_orders_new_queries_and_refuses_what_is_no_grade():
    random = np.random.default_rng(0)
    x = random.normal(size=(240, 2))
    grades, queries = np.digitize(x[:, 0], [-1, 0, 1]), np.repeat(np.arange(24), 10)
    found = lambdarank_baseline(x[:160], grades[:160], queries[:160], x[160:])
    assert ranking_scores(grades[160:], found.prediction, queries[160:])["ndcg@10"] > 0.9
    sparse = lambdarank_baseline(csr_array(x[:160]), grades[:160], queries[:160], csr_array(x[160:]))
    np.testing.assert_allclose(sparse.prediction, found.prediction)
    assert sparse.rows == found.rows == 160
    assert lambdarank_baseline(x, x[:, 0], queries, x) is None
    assert lambdarank_baseline(x[:40], grades[:40], queries[:40], x) is None
