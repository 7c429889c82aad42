"""Fences, and margins made for each query."""

import math

import numpy as np
import pytest
import torch

from references import mining
from vicinal import miners


def problem(seed, b=9):
    g = torch.Generator().manual_seed(seed)
    x = torch.nn.functional.normalize(torch.randn(b, 4, generator=g, dtype=torch.float64), dim=1)
    y = torch.randint(1, 4, (b,), generator=g)
    y[0] = 0
    weight = 1 - torch.eye(b, dtype=torch.float64)
    weight[1, 3] = weight[4] = 0
    return x @ x.T, (y[:, None] == y).double(), weight


GRID = [
    ("iqr_filter", {"reach": 0.0}),
    ("iqr_filter", {"reach": 0.3}),
    ("iqr_filter", {}),
    ("iqr_filter", {"reach": math.inf}),
    ("adaptive_margin", {}),
    ("adaptive_margin", {"factor": 0.5, "k": 2, "high": 1.0}),
    ("adaptive_margin", {"factor": 0.0, "low": 0.1, "reference": "mean"}),
]


@pytest.mark.parametrize(("name", "settings"), GRID, ids=str)
def test_equals_numpy(name, settings):
    for seed in range(12):
        s, r, w = problem(seed)
        want = getattr(mining, name)(s.numpy(), r.numpy(), w.numpy(), **settings)
        got = getattr(miners, name)(s, r, w, **settings)
        np.testing.assert_array_equal(got.numpy(), want * w.numpy(), err_msg=f"{seed}")


def test_the_iqr_filter_keeps_all_or_the_middle_half_and_both_triangles_alike():
    s, r, w = problem(1, b=21)
    unrelated = (r == 0) & (w > 0)
    assert torch.equal(miners.iqr_filter(s, r, w, reach=math.inf), w)
    kept = miners.iqr_filter(s, r, w, reach=0.0) * unrelated
    assert 0.45 < float(kept.sum() / unrelated.sum()) < 0.55
    counts = [float(miners.iqr_filter(s, r, w, reach=reach).sum()) for reach in (0.0, 0.2, 1.0, 5.0)]
    assert counts == sorted(counts)
    w = 1 - torch.eye(21, dtype=torch.float64)
    both = miners.iqr_filter(s, r, w, reach=0.4)
    assert torch.equal(both, both.T)
    once = miners.iqr_filter(s, r, w.triu(), reach=0.4)
    torch.testing.assert_close(once, both.triu())


@pytest.mark.parametrize("reach", [0.0, 0.4, 1.5, math.inf])
def test_within_fences_are_the_values_of_sorted_quartiles_and_so_much_more_on_both_sides(reach):
    values = torch.randn(6, 9, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    values[0, 0], values[1, 1] = -50.0, 50.0
    among = torch.rand(6, 9, generator=torch.Generator().manual_seed(3)) < 0.8
    among[0, 0] = among[1, 1] = True
    ordered = np.sort(values[among].numpy())
    first, third = ordered[len(ordered) // 4], ordered[3 * len(ordered) // 4]
    spread = reach * (third - first)
    want = among.numpy() & (values.numpy() >= first - spread) & (values.numpy() <= third + spread)
    got = miners.within_fences(values, among, reach)
    np.testing.assert_array_equal(got.numpy(), want)
    assert bool(got[0, 0]) == bool(got[1, 1]) == (reach == math.inf)


def test_wider_margins_keep_fewer_pairs_and_all_related_ones():
    s, r, w = problem(2, b=15)
    last = None
    for factor in (0.0, 0.1, 0.5, 2.0):
        kept = miners.adaptive_margin(s, r, w, factor=factor, high=1.0)
        assert torch.equal(kept * r, w * r)
        assert last is None or (kept <= last).all()
        last = kept
    fixed = miners.adaptive_margin(s, r, w, low=0.15, high=0.15)
    torch.testing.assert_close(fixed, miners.topk_hard(s, r, w, k=None, margin=0.15))


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("iqr_filter", {"reach": -1}, "^reach: expected a number of at least 0"),
        ("iqr_filter", {"reach": math.nan}, "^reach: expected a number of at least 0"),
        ("adaptive_margin", {"low": 0.3}, "^high: expected at least low = 0.3, got 0.2"),
        ("adaptive_margin", {"factor": -1}, "^factor: expected a number of at least 0"),
        ("adaptive_margin", {"k": 0}, "^k: expected a whole number of at least 1"),
        ("adaptive_margin", {"reference": "max"}, "^reference: expected one of"),
    ],
)
def test_what_does_not_fit_is_refused(name, settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        getattr(miners, name)(torch.zeros(1, 1), torch.zeros(1, 1), **settings)
