"""Blocking: candidates by nearest neighbors and by buckets, and how good they are."""

import numpy as np
import pytest
import torch

from references import mining
from vicinal.losses import EmbeddingLoss
from vicinal.miners import bucket_pairs, nearest


@pytest.mark.parametrize("settings", [{"k": 1}, {"k": 3}, {"k": None, "min_score": 0.2}, {"k": 2, "min_score": 0.0}])
@pytest.mark.parametrize("tied", [False, True])
def test_nearest_equals_numpy(settings, tied):
    for seed in range(10):
        g = torch.Generator().manual_seed(seed)
        s = torch.randn(6, 9, generator=g, dtype=torch.float64)
        s = (2 * s).round() / 2 if tied else s
        w = (torch.rand(6, 9, generator=g) < 0.7).double()
        w[2] = 0
        got = nearest(s, torch.zeros(6, 9), w, **settings)
        np.testing.assert_array_equal(got.numpy(), mining.nearest(s.numpy(), w.numpy(), **settings) * w.numpy())


def looped(codes, bank, radius):
    """All pairs with a bucket in common, by trying each."""
    one, two = np.floor(codes / radius), np.floor(bank / radius)
    return [[i, j] for i in range(len(one)) for j in range(len(two)) if (one[i] == two[j]).any()]


@pytest.mark.parametrize("radius", [0.3, 1.0])
def test_bucket_pairs_are_those_that_share_a_bucket(radius):
    random = np.random.default_rng(0)
    codes, bank = random.normal(size=(30, 3)), random.normal(size=(40, 3))
    bank[:2] = codes[:2]
    given = torch.from_numpy(codes), torch.from_numpy(bank)
    assert bucket_pairs(*given, radius=radius).tolist() == looped(codes, bank, radius)
    within = [pair for pair in looped(codes, codes, radius) if pair[0] < pair[1]]
    assert bucket_pairs(given[0], radius=radius).tolist() == within


def test_few_buckets_and_none():
    assert bucket_pairs(torch.tensor([[0.1], [5.0]])).tolist() == []
    assert bucket_pairs(torch.zeros(0, 2)).tolist() == []
    assert bucket_pairs(torch.zeros(3, 2)).tolist() == [[0, 1], [0, 2], [1, 2]]  # in both, but listed once
    assert bucket_pairs(torch.zeros(2, 1), torch.zeros(0, 1)).shape == (0, 2)
    assert bucket_pairs(torch.tensor([[-0.1], [0.1]])).tolist() == []  # the floor, not the part before the point


def test_blocking_refuses():
    with pytest.raises(ValueError, match=r"^radius: expected a number above 0"):
        bucket_pairs(torch.zeros(2, 1), radius=0)
    with pytest.raises(ValueError, match=r"^bank_codes: expected floating \[rows, m\] hash values"):
        bucket_pairs(torch.zeros(2, 1), torch.zeros(2, 2))
    with pytest.raises(ValueError, match=r"^codes: expected finite numbers"):
        bucket_pairs(torch.tensor([[torch.nan]]))
    with pytest.raises(ValueError, match=r"^k: expected a whole number of at least 1"):
        nearest(torch.zeros(2, 2), torch.zeros(2, 2), k=0)


def quality(pairs, related):
    """Recall, precision and number of pairs of one table."""
    there, wanted = ({tuple(sorted(pair)) for pair in each.tolist()} for each in (pairs, related))
    right = len(there & wanted)
    return right / len(wanted), right / max(1, len(there)), len(there)


def test_hashes_that_are_trained_make_good_blocks():
    """60 things seen twice: 4 numbers tell them apart, 8 are noise."""
    g = torch.Generator().manual_seed(0)
    things = torch.randn(60, 4, generator=g)
    seen = torch.cat([things, things]) + 0.1 * torch.randn(120, 4, generator=g)
    rows = torch.cat([seen, torch.randn(120, 8, generator=g)], dim=1)
    labels, related = torch.arange(60).repeat(2), torch.stack([torch.arange(60), torch.arange(60) + 60], dim=1)
    torch.manual_seed(0)
    hashes = torch.nn.Linear(12, 4)
    loss = EmbeddingLoss("nlsh", similarity="l1", radius=0.5, factor=8)
    step = torch.optim.Adam(hashes.parameters(), lr=0.05)

    def qualities():
        codes = hashes(rows)
        scores = loss.similarity(codes, codes)
        near = nearest(scores, scores, 1 - torch.eye(120), k=3).nonzero()
        return quality(near, related), quality(bucket_pairs(codes, radius=0.5), related)

    before = qualities()
    for _ in range(60):
        step.zero_grad()
        loss(hashes(rows), labels).backward()
        step.step()
    near, buckets = qualities()
    assert before[0][0] < 0.3
    assert near[0] > 0.9
    assert buckets[0] > before[1][0]
    assert buckets[1] > 2 * before[1][1]
    assert buckets[2] < 0.7 * before[1][2]
