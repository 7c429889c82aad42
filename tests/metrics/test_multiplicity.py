"""Predictive multiplicity beside the paper's code, and what it promises."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from vicinal.metrics import channel_capacity, predictive_multiplicity

GOLDEN = Path(__file__).parents[1] / "golden/sets/predictive_multiplicity.npz"


def probabilities(m=6, n=5, c=3, seed=0):
    return torch.randn(m, n, c, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).softmax(-1)


def test_values_of_the_papers_code():
    with np.load(GOLDEN) as data:
        scores, labels, base = (torch.from_numpy(data[key]) for key in ("scores", "labels", "base_decisions"))
        got = predictive_multiplicity(scores, labels.long(), base.long())
        np.testing.assert_allclose(got.ambiguity, data["ambiguity"], rtol=1e-9)
        np.testing.assert_allclose(got.discrepancy, data["discrepancy"], rtol=1e-9)
        np.testing.assert_allclose(got.viable_range, data["viable_range"], rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(got.score_variance, data["score_variance"], rtol=1e-9, atol=1e-15)
        early = channel_capacity(scores.transpose(0, 1), tolerance=1e-12)  # where their program stops
        np.testing.assert_allclose(early, data["capacity"], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(got.capacity, data["capacity"], rtol=1e-5, atol=1e-9)
        assert (got.capacity >= early - 1e-15).all()
        extreme = torch.from_numpy(data["extreme_scores"])
        np.testing.assert_allclose(channel_capacity(extreme), data["extreme_capacity"], atol=1e-9)


def test_models_that_agree_and_models_that_do_not():
    scores, labels = probabilities(), torch.arange(5) % 3
    value = predictive_multiplicity(scores, labels)
    assert 0 < value.discrepancy <= value.ambiguity <= 1
    same = predictive_multiplicity(scores[:1].expand(4, -1, -1), labels)
    assert (same.ambiguity, same.discrepancy) == (0.0, 0.0)
    for each in (same.viable_range, same.score_variance, same.capacity):
        np.testing.assert_allclose(each, 0, atol=1e-12)
    order = predictive_multiplicity(scores[torch.tensor([3, 0, 5, 1, 4, 2])], labels)
    torch.testing.assert_close(order.capacity, value.capacity, rtol=1e-6, atol=1e-9)
    assert (value.capacity <= math.log2(3)).all()
    torch.testing.assert_close(channel_capacity(torch.eye(5)), torch.tensor(math.log2(5)).double())
    p = 0.11  # of a symmetric channel in closed form
    flips = torch.tensor([[1 - p, p], [p, 1 - p]])
    want = 1 + p * math.log2(p) + (1 - p) * math.log2(1 - p)
    assert channel_capacity(flips).item() == pytest.approx(want, abs=1e-6)
    one, other = (channel_capacity(probabilities(seed=s).transpose(0, 1)) for s in (1, 2))
    half = channel_capacity((probabilities(seed=1) + probabilities(seed=2)).transpose(0, 1) / 2)
    assert (half <= (one + other) / 2 + 1e-9).all()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda s, y: predictive_multiplicity(2 * s, y), "^scores: expected rows of probabilities"),
        (lambda s, y: predictive_multiplicity(s[0], y), "^scores: expected probabilities"),
        (lambda s, y: predictive_multiplicity(s, y[:2]), "^labels: expected classes"),
        (lambda s, y: predictive_multiplicity(s, y, y.float()), "^base: expected classes"),
    ],
)
def test_what_does_not_fit_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call(probabilities(), torch.arange(5) % 3)
