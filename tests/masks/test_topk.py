"""The mask that keeps the k highest scores."""

import pytest
import torch

from references import nona as reference
from vicinal.masks import TopK


@pytest.mark.parametrize("k", [1, 2, 4, 9])
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_numpy_reference(k, weighted, generator):
    scores = (4 * torch.randn(6, 8, generator=generator)).round().double()  # many ties
    weight = torch.ones(6, 8)
    if weighted:
        weight = (torch.rand(6, 8, generator=generator) < 0.7).float()
        weight[:, 3] = 1.0
    got = TopK(k)(scores, torch.zeros(6, 1), weight if weighted else None).exp()
    for i, row in enumerate(scores.tolist()):
        seen = [j for j in range(8) if weight[i, j] > 0]
        want = reference.top_k(k)(row, seen, i)
        assert [got[i, j].item() for j in seen] == [want[j] for j in seen]


def test_all_that_tie_with_the_last_are_kept():
    scores = torch.tensor([[5.0, 2.0, 2.0, 2.0, 1.0]])
    assert TopK(2)(scores, torch.zeros(1, 1)).tolist() == [[0.0, 0.0, 0.0, 0.0, -torch.inf]]


def test_a_row_that_does_not_count_takes_no_place():
    scores = torch.tensor([[9.0, 3.0, 2.0, 1.0]])
    got = TopK(2)(scores, torch.zeros(1, 1), torch.tensor([[0.0, 1.0, 1.0, 1.0]]))
    assert got[0, 1:].tolist() == [0.0, 0.0, -torch.inf]


def test_scores_pass_no_gradient_through_the_choice():
    scores = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    assert not TopK(2)(scores, torch.zeros(1, 1)).requires_grad


@pytest.mark.parametrize(
    ("k", "error"), [(0, ValueError), (-1, ValueError), (2.0, TypeError), (None, TypeError), (True, TypeError)]
)
def test_k_is_a_whole_number_of_at_least_1(k, error):
    with pytest.raises(error, match=r"^k: expected a whole number"):
        TopK(k)
