"""Levels drawn by a log-normal law."""

import math

import numpy as np
import pytest
import scipy.stats
import torch

from vicinal.samplers import level_probabilities
from vicinal.samplers.levels import draw_levels


def test_probabilities_are_those_of_a_log_normal_number():
    levels = torch.logspace(-2.5, 1.9, 18, dtype=torch.float64)
    reached = scipy.stats.lognorm(s=2.0, scale=math.exp(-1.1)).cdf(levels.numpy())
    expected = np.diff(reached) / (reached[-1] - reached[0])
    np.testing.assert_allclose(level_probabilities(levels).numpy(), expected, rtol=1e-9)


def test_levels_far_out_keep_their_digits():
    levels = torch.exp(torch.tensor([9.0, 9.5, 10.0], dtype=torch.float64))
    shares = level_probabilities(levels, mean=0.0, deviation=1.0)
    upper = scipy.stats.norm.sf([9.0, 9.5, 10.0])
    np.testing.assert_allclose(shares.numpy(), -np.diff(upper) / (upper[0] - upper[-1]), rtol=1e-9)
    mirrored = level_probabilities(1 / levels.flip(0), mean=0.0, deviation=1.0)
    torch.testing.assert_close(mirrored, shares.flip(0))


def test_draws_follow_their_seed_and_the_probabilities():
    levels = torch.tensor([0.1, 0.3, 1.0, 5.0])
    draws = [draw_levels(levels, 20_000, generator=torch.Generator().manual_seed(0)) for _ in range(2)]
    assert torch.equal(*draws)
    torch.testing.assert_close(draws[0].bincount() / 20_000, level_probabilities(levels), rtol=0, atol=0.015)


@pytest.mark.parametrize("levels", [[1.0], [0.0, 1.0], [2.0, 1.0], [1.0, 1.0], [[1.0, 2.0]]])
def test_levels_must_rise_from_above_zero(levels):
    with pytest.raises(ValueError, match=r"^levels: expected at least two numbers above 0 that rise"):
        level_probabilities(torch.tensor(levels))


def test_levels_out_of_reach_are_refused():
    with pytest.raises(ValueError, match=r"^levels: expected some within reach of the law"):
        level_probabilities(torch.tensor([1e30, 1e31]), deviation=0.1)
    with pytest.raises(ValueError, match=r"^deviation: expected"):
        level_probabilities(torch.tensor([1.0, 2.0]), deviation=0.0)
