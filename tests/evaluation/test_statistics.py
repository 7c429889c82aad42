"""Statistics against published tables, scipy and numpy references."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

import references.ranks as reference
from vicinal.evaluation import critical_difference, friedman, paired_t, wilcoxon
from vicinal.evaluation.statistics import average_ranks, nemenyi, relative_change

DEMSAR_TABLE_5 = {  # critical values for the two-tailed Nemenyi test
    0.05: [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164],
    0.10: [1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920],
}


@pytest.mark.parametrize("alpha", DEMSAR_TABLE_5)
def test_critical_difference_equals_demsars_table(alpha):
    for k, q in enumerate(DEMSAR_TABLE_5[alpha], start=2):
        assert critical_difference(k, 10, alpha=alpha) / math.sqrt(k * (k + 1) / 60) == pytest.approx(q, abs=1e-3)
    assert critical_difference(4, 14, alpha=alpha) == pytest.approx({0.05: 1.25, 0.10: 1.12}[alpha], abs=0.005)


def test_average_ranks_with_ties_and_direction():
    scores = [[1.0, 2.0, 3.0], [5.0, 5.0, 4.0]]
    assert average_ranks(scores).tolist() == [1.75, 2.25, 2.0]
    assert average_ranks(scores, higher_is_better=True).tolist() == [2.25, 1.75, 2.0]


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), blocks=st.integers(3, 15), methods=st.integers(3, 6))
def test_friedman_equals_its_formula(seed, blocks, methods):
    scores = np.random.default_rng(seed).normal(size=(blocks, methods))
    got = friedman(scores)
    want = reference.friedman_statistic(scores)
    assert got.statistic == pytest.approx(want)
    assert got.p_value == pytest.approx(scipy.stats.chi2.sf(want, methods - 1))


def test_friedman_of_ties_only():
    assert friedman(np.ones((4, 3))).p_value == 1.0


def test_nemenyi_agrees_with_the_critical_difference():
    scores = np.array([[1.0, 2, 3, 4], [1, 2, 4, 3], [2, 1, 3, 4], [1, 3, 2, 4], [1, 2, 3, 4], [1, 2, 3, 4]])
    p = nemenyi(scores)
    ranks, difference = average_ranks(scores), critical_difference(4, len(scores))
    apart = np.abs(ranks[:, None] - ranks[None])
    assert np.array_equal(p < 0.05, apart > difference)
    assert (p == p.T).all()
    assert (np.diag(p) == 1).all()
    assert p[0, 3] < 0.05 < p[0, 1]
    q = apart[0, 3] / math.sqrt(4 * 5 / (6 * 6)) * math.sqrt(2)
    assert p[0, 3] == pytest.approx(scipy.stats.studentized_range.sf(q, 4, np.inf))


def test_nemenyi_of_ties_is_that_of_scikit_posthocs():
    """Figures of ``posthoc_nemenyi_friedman`` of scikit-posthocs 0.17."""
    p = nemenyi([[1, 2, 3], [1, 3, 2], [2, 1, 3], [1, 2, 3], [1, 2.5, 2.5]])
    np.testing.assert_allclose(p[[0, 0, 1], [1, 2, 2]], [0.32897126, 0.04655978, 0.60941072], atol=1e-8)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 30))
def test_paired_tests_equal_scipy(seed, n):
    a, b = np.random.default_rng(seed).normal(size=(2, n))
    want = scipy.stats.ttest_rel(a, b)
    got = paired_t(a, b)
    assert (got.statistic, got.p_value) == pytest.approx((want.statistic, want.pvalue))
    want = scipy.stats.wilcoxon(a, b)
    assert (wilcoxon(a, b).statistic, wilcoxon(a, b).p_value) == pytest.approx((want.statistic, want.pvalue))


def test_overlapping_splits_weaken_the_t_test():
    a, b = np.random.default_rng(0).normal(size=(2, 10)) + np.array([[0.5], [0.0]])
    got = paired_t(a, b, overlap=20 / 68)
    assert got.statistic == pytest.approx(reference.corrected_t(a, b, 68, 20))
    assert got.p_value == pytest.approx(2 * scipy.stats.t.sf(abs(got.statistic), 9))
    assert got.p_value > paired_t(a, b).p_value


@pytest.mark.parametrize(("a", "b", "p"), [([1, 1], [1, 1], 1.0), ([2, 2], [1, 1], math.nan)])
def test_t_test_without_variance(a, b, p):
    assert paired_t(a, b).p_value == pytest.approx(p, nan_ok=True)
    assert math.isnan(paired_t(a[:1], b[:1]).p_value)


def test_wilcoxon_of_equal_scores():
    assert wilcoxon([1.0, 2.0], [1.0, 2.0]).p_value == 1.0


def test_relative_change():
    assert relative_change([0.5, 0.7], [1.0, 1.0]) == pytest.approx(-0.4)
    assert math.isnan(relative_change([1.0], [0.0]))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: friedman(np.ones((3, 2))), r"^scores: expected at least 3 methods for Friedman's test, got 2$"),
        (lambda: nemenyi([[1.0, math.nan]]), r"^scores: expected finite numbers"),
        (lambda: average_ranks([1.0, 2.0]), r"^scores: expected finite numbers \[blocks, methods\]"),
        (lambda: critical_difference(1, 5), r"^methods: expected a whole number of at least 2, got 1$"),
        (lambda: critical_difference(3, 5, alpha=1), r"^alpha: expected a number between 0 and 1, got 1$"),
        (
            lambda: paired_t([1.0, 2.0], [1.0]),
            r"^second: expected finite scores of shape \(2,\) as the first, got \(1,\)$",
        ),
    ],
)
def test_bad_input_gets_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
