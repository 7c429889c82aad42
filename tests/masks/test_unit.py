"""Unit scores: the range of a row, and rows without one."""

import pytest
import torch

from vicinal.masks import unit_scores
from vicinal.masks.unit import row_range


def test_range_over_counted_columns_only():
    scores = torch.tensor([[1.0, 5.0, 2.0], [4.0, 4.0, 0.0]])
    counted = torch.tensor([[True, False, True], [False, False, False]])
    assert [side.tolist() for side in row_range(scores)] == [[[1.0], [0.0]], [[5.0], [4.0]]]
    assert [side.tolist() for side in row_range(scores, counted)] == [[[1.0], [0.0]], [[2.0], [0.0]]]


def test_columns_outside_the_range_are_kept_in_the_unit_interval():
    scores = torch.tensor([[-9.0, 0.0, 1.0, 2.0, 9.0]])
    counted = torch.tensor([[False, True, True, True, False]])
    assert unit_scores(scores, row_range(scores, counted)).tolist() == [[0.0, 0.0, 0.5, 1.0, 1.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("level", [0.0, 1.0, -1e4, 1e30, 1e-30])
def test_a_row_that_differs_by_rounding_only_is_flat(dtype, level):
    """Otherwise the rounding of equal distances would decide which neighbor is rejected."""
    scores = torch.full((1, 4), level, dtype=dtype)
    scores[0, 2] = scores[0, 2] * (1 + torch.finfo(dtype).eps)
    assert unit_scores(scores, row_range(scores)).tolist() == [[1.0] * 4]


def test_a_row_with_a_small_range_of_its_own_is_not_flat():
    scores = torch.tensor([[0.0, 1e-30, 2e-30]])
    torch.testing.assert_close(unit_scores(scores, row_range(scores)), torch.tensor([[0.0, 0.5, 1.0]]))


def test_the_highest_is_exactly_1_and_the_lowest_exactly_0(generator):
    scores = 100 * torch.randn(200, 13, generator=generator)
    unit = unit_scores(scores, row_range(scores))
    assert (unit.amax(dim=-1) == 1).all()
    assert (unit.amin(dim=-1) == 0).all()
    assert torch.equal(unit.argmax(dim=-1), scores.argmax(dim=-1))


def test_gradients_flow_through_the_range():
    scores = torch.tensor([[0.0, 1.0, 4.0]], requires_grad=True)
    unit_scores(scores, row_range(scores))[0, 1].backward()
    torch.testing.assert_close(scores.grad, torch.tensor([[-3 / 16, 4 / 16, -1 / 16]]))
