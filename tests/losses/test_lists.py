"""Losses of ranked lists, by their definitions over all orders."""

import itertools
import math

import numpy as np
import pytest
import torch

from vicinal import losses

SCORES = torch.tensor([[0.3, -1.0, 0.8, 0.1], [2.0, 0.5, -0.4, 1.0]], dtype=torch.float64)
GRADES = torch.tensor([[1.0, 0.0, 2.0, 1.0], [0.0, 0.0, 3.0, 1.0]], dtype=torch.float64)


def likelihood(scores, order, places):
    """Log-probability of the first places of an order, item by item."""
    left, total = list(order), 0.0
    for item in order[:places]:
        total += scores[item] - math.log(sum(math.exp(scores[j]) for j in left))
        left.remove(item)
    return total


def gain_share(scores, grades):
    """NDCG of all places with gains 2^grade - 1."""
    gains = 2.0 ** np.asarray(grades) - 1
    discount = 1 / np.log2(np.arange(len(gains)) + 2)
    return (gains[np.argsort(-np.asarray(scores))] @ discount) / (np.sort(gains)[::-1] @ discount)


def test_plackett_luce_is_the_likeliest_order_of_falling_grades():
    for scores, grades, value in zip(
        SCORES.tolist(),
        GRADES.tolist(),
        losses.PlackettLuceLoss(reduction="none")(SCORES, GRADES).tolist(),
        strict=True,
    ):
        above = sum(grade > min(grades) for grade in grades)
        orders = [
            order
            for order in itertools.permutations(range(4))
            if all(grades[a] >= grades[b] for a, b in itertools.pairwise(order))
        ]
        best = max(likelihood(scores, order, above) for order in orders)
        assert math.isclose(value, -best / above, rel_tol=1e-12)


def test_soft_ranks_have_the_value_of_hard_ones_and_the_gradient_of_smooth_ones():
    values = losses.SoftRankLoss(reduction="none")(SCORES, GRADES)
    want = [1 - gain_share(*rows) for rows in zip(SCORES.tolist(), GRADES.tolist(), strict=True)]
    torch.testing.assert_close(values, torch.tensor(want, dtype=torch.float64))
    scores = SCORES.clone().requires_grad_()
    (slope,) = torch.autograd.grad(losses.SoftRankLoss(steepness=1.0)(scores, GRADES), scores)
    assert slope[0, 2] < 0 < slope[0, 1]  # the best item should rise, the worst fall
    assert slope[1, 2] < 0 < slope[1, 0]


@pytest.mark.parametrize("name", ["plackett_luce", "soft_ranks"])
def test_padding_one_grade_and_the_level_of_scores_change_nothing(name):
    loss = losses.parse(f"{name}: reduction='none'")
    wide = [torch.cat([one, torch.full((2, 3), 9.0)], dim=1) for one in (SCORES, GRADES)]
    valid = torch.arange(7).expand(2, 7) < 4
    torch.testing.assert_close(loss(*wide, valid=valid), loss(SCORES, GRADES))
    torch.testing.assert_close(loss(SCORES + 5, GRADES + 0), loss(SCORES, GRADES))
    mean = losses.parse(name)
    assert mean(SCORES[:, :1], GRADES[:, :1]) == 0
    assert mean(SCORES, torch.ones(2, 4)) == 0
    flat = torch.stack([GRADES[0], torch.ones(4)])
    torch.testing.assert_close(mean(SCORES, flat), loss(SCORES, GRADES)[0])
    for end in (-1e4, 1e4):
        scores = (end * SCORES).requires_grad_()
        (slope,) = torch.autograd.grad(mean(scores, GRADES), scores)
        assert bool(slope.isfinite().all())


def test_one_item_on_top_costs_the_logarithm_of_its_share():
    value = losses.PlackettLuceLoss()(torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]]))
    assert math.isclose(value.item(), math.log(1 + 2 / math.e), rel_tol=1e-6)


def test_lists_are_matrices():
    with pytest.raises(ValueError, match=r"^prediction: expected lists \[b, N\], got shape \(4,\)"):
        losses.PlackettLuceLoss()(SCORES[0], GRADES[0])
