"""One test per promise of the retrieval metrics, run over every metric of scores and relation."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, ndcg_score

from references import ranking
from vicinal import metrics
from vicinal.core import entries

pytestmark = pytest.mark.sweep(3)

GOLDEN = Path(__file__).parents[1] / "golden/retrieval"
SETTINGS = {"precision_at_k": {"k": 3}, "hit_at_k": {"k": 2}, "recall_at_k": {"k": 4}}
PLAIN = [e for e in entries("metric") if "permutation-invariant" in e.facts and "score-shift-invariant" in e.facts]
CASES = [(e.name, SETTINGS.get(e.name, {})) for e in PLAIN]
CASES += [
    ("average_precision", {"k": 3}),
    ("reciprocal_rank", {"k": 2}),
    ("ndcg", {"k": 3}),
    ("recall_at_k", {"k": 99}),
]
each_case = pytest.mark.parametrize(("name", "settings"), CASES, ids=lambda v: str(v) if v else "")


def problem(seed, b=7, n=9, *, tied=True, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    scores = torch.randn(b, n, generator=g, dtype=torch.float64)
    if tied:
        scores = (scores * 1.5).round()
    relation = (torch.rand(b, n, generator=g) < 0.4).long() * torch.randint(1, 4, (b, n), generator=g)
    weight = (torch.rand(b, n, generator=g) < 0.8).to(dtype)
    relation[0] = 0
    weight[1] = 0
    return scores.to(dtype), relation, weight


def test_all_eight_are_registered():
    assert {name for name, _ in CASES} >= {
        "precision_at_k",
        "hit_at_k",
        "recall_at_k",
        "r_precision",
        "map_at_r",
        "average_precision",
        "reciprocal_rank",
        "ndcg",
    }


@each_case
@pytest.mark.parametrize("ties", ["worst", "best", "first", "last"])
def test_equals_numpy(name, settings, ties):
    for seed in range(5):
        s, r, w = problem(seed)
        got = getattr(metrics, name)(s, r, w, ties=ties, **settings)
        want = ranking.metric(name, s.numpy(), r.numpy(), w.numpy(), ties=ties, **settings)
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)
        assert got.isnan()[:2].all()


@each_case
@given(seed=st.integers(0, 2**31 - 1), shift=st.integers(-3, 3), factor=st.sampled_from([0.5, 2.0, 4.0]))
def test_order_of_columns_and_rows_shift_and_scale_change_nothing(name, settings, seed, shift, factor):
    s, r, w = problem(seed, b=4, n=7)
    f = getattr(metrics, name)
    g = torch.Generator().manual_seed(seed)
    columns, rows = torch.randperm(7, generator=g), torch.randperm(4, generator=g)
    want = f(s, r, w, **settings)
    torch.testing.assert_close(f(s[:, columns], r[:, columns], w[:, columns], **settings), want, equal_nan=True)
    torch.testing.assert_close(f(s[rows], r[rows], w[rows], **settings), want[rows], equal_nan=True)
    torch.testing.assert_close(f(s * factor + shift, r, w, **settings), want, equal_nan=True)


@each_case
def test_worst_is_lowest_best_is_highest_and_all_within_0_and_1(name, settings):
    f = getattr(metrics, name)
    for seed in range(10):
        s, r, w = problem(seed)
        low, first, last, high = (f(s, r, w, ties=t, empty=0, **settings) for t in ("worst", "first", "last", "best"))
        assert (low <= first + 1e-12).all()
        assert (first <= high + 1e-12).all()
        assert (last <= high + 1e-12).all()
        assert (low >= 0).all()
        assert (high <= 1 + 1e-12).all()


@each_case
def test_a_column_of_weight_0_is_as_good_as_gone_even_next_to_scores_of_minus_inf(name, settings):
    s, r, _ = problem(3, tied=False)
    s[:, 2] = -torch.inf
    r[:, 2] = 1
    w = torch.ones_like(s)
    w[:, 4] = 0
    kept = [0, 1, 2, 3, 5, 6, 7, 8]
    f = getattr(metrics, name)
    torch.testing.assert_close(f(s, r, w, **settings), f(s[:, kept], r[:, kept], **settings), equal_nan=True)


@each_case
def test_rows_without_related_columns(name, settings):
    f = getattr(metrics, name)
    s, r = torch.rand(3, 4), torch.zeros(3, 4)
    assert f(s, r, **settings).isnan().all()
    assert (f(s, r, empty=0, **settings) == 0).all()
    assert f(s[:0], r[:0], **settings).shape == (0,)
    assert f(s[:, :0], r[:, :0], **settings).isnan().all()


@each_case
def test_one_score_for_all_is_no_merit(name, settings):
    f = getattr(metrics, name)
    r = torch.tensor([[1, 0, 0, 0, 0, 0, 0, 0]])
    flat = f(torch.zeros(1, 8), r, ties="worst", **settings)
    assert flat <= 1 / 3 if name != "recall_at_k" or settings["k"] < 8 else flat == 1
    assert f(torch.zeros(1, 8), r, ties="best", **settings) == 1 or name == "precision_at_k"


@each_case
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_exact_on_what_it_holds(name, settings, dtype):
    s, r, w = problem(11)
    f = getattr(metrics, name)
    torch.testing.assert_close(f(s.to(dtype), r, w.to(dtype), **settings), f(s, r, w, **settings), equal_nan=True)


@each_case
def test_nan_scores_rank_last(name, settings):
    s, r, _ = problem(5, tied=False)
    broken = s.clone()
    broken[:, 3] = torch.nan
    s[:, 3] = -torch.inf
    f = getattr(metrics, name)
    torch.testing.assert_close(f(broken, r, **settings), f(s, r, **settings), equal_nan=True)


@each_case
def test_errors_name_the_argument(name, settings):
    f = getattr(metrics, name)
    s, r, _ = problem(0)
    with pytest.raises(ValueError, match=r"^relation: expected \(7, 9\) as the scores, got \(7, 8\)"):
        f(s, r[:, 1:], **settings)
    with pytest.raises(ValueError, match=r"^weight: expected"):
        f(s, r, s[:, 1:], **settings)
    with pytest.raises(TypeError, match=r"^relation: expected a tensor"):
        f(s, None, **settings)
    with pytest.raises(ValueError, match=r"^ties: expected one of"):
        f(s, r, ties="worse", **settings)
    if "k" in settings:
        with pytest.raises(ValueError, match=r"^k: expected a whole number of at least 1"):
            f(s, r, k=0)


def test_scikit_learn():
    s, r, _ = problem(2, b=20, tied=False)
    r = r[1:]
    s = s[1:]
    rows = (r > 0).any(1)
    s, r = s[rows], r[rows]
    want = [average_precision_score((y > 0).numpy(), x.numpy()) for x, y in zip(s, r, strict=True)]
    np.testing.assert_allclose(metrics.average_precision(s, r), want, rtol=1e-12)
    tied = (s * 1.5).round()
    for k in (1, 3, None):
        want = [ndcg_score(y[None].numpy(), x[None].numpy(), k=k) for x, y in zip(tied, r, strict=True)]
        np.testing.assert_allclose(metrics.ndcg(tied, r, k=k, ties="average"), want, rtol=1e-12)


@pytest.mark.slow
def test_average_over_ties_is_the_mean_over_orders():
    s, r, w = problem(4, b=6, n=6)
    w[0, 0], r[0, 0] = 1, 2
    rows = ((r > 0) & (w > 0)).any(1)
    s, r, w = s[rows], r[rows], w[rows]
    g = torch.Generator().manual_seed(0)
    orders = [torch.randperm(6, generator=g) for _ in range(4000)]
    drawn = torch.stack([metrics.ndcg(s[:, o], r[:, o], w[:, o], k=3, ties="first") for o in orders]).mean(0)
    torch.testing.assert_close(metrics.ndcg(s, r, w, k=3, ties="average"), drawn, atol=0.015, rtol=0)


def test_exponential_gain():
    s, r, w = problem(8)
    want = ranking.metric("ndcg", s.numpy(), r.numpy(), w.numpy(), k=4, gain="exponential")
    np.testing.assert_allclose(metrics.ndcg(s, r, w, k=4, gain="exponential"), want, rtol=1e-12)
    with pytest.raises(ValueError, match=r"^gain: expected one of"):
        metrics.ndcg(s, r, gain="log")


STORED = [
    ("irm__AP", "average_precision", {}),
    ("irm__Rprec", "r_precision", {}),
    ("irm__RR", "reciprocal_rank", {}),
    *[(f"irm__P_at_{k}", "precision_at_k", {"k": k}) for k in (1, 3, 5, 10, 12)],
    *[(f"irm__R_at_{k}", "recall_at_k", {"k": k}) for k in (1, 3, 5, 10, 12)],
    *[(f"irm__AP_at_{k}", "average_precision", {"k": k}) for k in (1, 3, 5, 10, 12)],
    *[(f"irm__RR_at_{k}", "reciprocal_rank", {"k": k}) for k in (1, 3, 5, 10, 12)],
    *[(f"irm__Success_at_{k}", "hit_at_k", {"k": k}) for k in (1, 3, 5, 10, 12)],
    *[(f"irm__nDCG_at_{k}", "ndcg", {"k": k}) for k in (1, 3, 5, 10, 12)],
    ("irm__nDCG", "ndcg", {}),
    ("ranx__ndcg_at_5", "ndcg", {"k": 5}),
    ("ranx__ndcg_burges_at_5", "ndcg", {"k": 5, "gain": "exponential"}),
    ("ranx__map_at_5", "average_precision", {"k": 5}),
    ("ranx__map", "average_precision", {}),
    ("ranx__mrr_at_5", "reciprocal_rank", {"k": 5}),
    ("ranx__mrr", "reciprocal_rank", {}),
    ("ranx__recall_at_5", "recall_at_k", {"k": 5}),
    ("ranx__precision_at_5", "precision_at_k", {"k": 5}),
    ("ranx__hit_rate_at_5", "hit_at_k", {"k": 5}),
    ("ranx__r-precision", "r_precision", {}),
    *[(f"sklearn__ndcg_linear_gain_at_{k}", "ndcg", {"k": k}) for k in (3, 5, 12)],
]


@pytest.mark.parametrize(("stored", "name", "settings"), STORED, ids=lambda v: v if isinstance(v, str) else "")
def test_values_of_other_libraries(stored, name, settings):
    z = np.load(GOLDEN / "ranking_metrics.npz")
    got = getattr(metrics, name)(torch.tensor(z["scores"]), torch.tensor(z["relevance"]), **settings)
    rows = [0, 2, 3, 4, 5]  # no relevant item in row 1: they say 0, or leave it out; so do we by choice
    np.testing.assert_allclose(got[rows], z[stored][rows], rtol=1e-9)
    assert got[1].isnan()


@pytest.mark.parametrize(
    ("stored", "name", "settings"),
    [
        ("irm_ties__AP", "average_precision", {"ties": "last"}),
        ("irm_ties__RR", "reciprocal_rank", {"ties": "last"}),
        ("irm_ties__nDCG_at_5", "ndcg", {"ties": "last", "k": 5}),
        *[(f"sklearn__ndcg_tie_averaged_at_{k}", "ndcg", {"ties": "average", "k": k}) for k in (3, 5, 12)],
    ],
)
def test_ties_of_other_libraries(stored, name, settings):
    z = np.load(GOLDEN / "ranking_metrics.npz")
    got = getattr(metrics, name)(torch.tensor(z["scores_ties"]), torch.tensor(z["relevance"]), empty=0, **settings)
    np.testing.assert_allclose(got, z[stored], rtol=1e-9)
