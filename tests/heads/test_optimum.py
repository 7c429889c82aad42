"""What NONA is trained for: a label between those of two neighbors splits its weight as interpolation does."""

import pytest
import torch

from vicinal.heads import NONA
from vicinal.masks import SoftStep


def trained(labels, dim, generator, head):
    """Free embeddings ``[n, dim]`` after minimizing the squared error of NONA on points that are their own bank."""
    points = torch.randn(len(labels), dim, generator=generator, dtype=torch.float64).requires_grad_()
    ids, learned = torch.arange(len(labels)), [points, *head.parameters()]
    optimizer = torch.optim.LBFGS(learned, max_iter=400, tolerance_grad=1e-14, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        value = (head(points, points, labels, query_ids=ids, bank_ids=ids) - labels).square().mean()
        value.backward()
        return value

    optimizer.step(loss)
    return points.detach()


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("labels", [(0.0, 0.5, 1.0), (0.0, 0.3, 1.0), (1.0, 0.6, 0.0), (0.2, 0.25, 0.9)])
def test_a_label_between_two_splits_its_weight(labels, dim, generator):
    r"""$p_{ij} / p_{ik} = (y_k - y_i) / (y_i - y_j)$ for the middle label, so that its prediction is its label.

    The outer two can only be predicted from the middle one: nothing in a convex hull reaches them.
    """
    j, i, k = range(3)
    values = torch.tensor(labels, dtype=torch.float64)
    points = trained(values, dim, generator, NONA())
    ids = torch.arange(3)
    weights = NONA().weights(points, points, query_ids=ids, bank_ids=ids)
    want = (values[k] - values[i]) / (values[i] - values[j])
    assert (weights[i, j] / weights[i, k]).item() == pytest.approx(want.item(), rel=1e-3)
    assert (weights @ values)[i].item() == pytest.approx(labels[i], abs=1e-3)
    assert weights[j, i] > 0.999
    assert weights[k, i] > 0.999


def pair_and_triplet_terms(weights, labels):
    r"""$\sum_j p_{ij}^2 (y_i - y_j)^2$ and $\sum_{j \ne k} p_{ij} p_{ik} (y_i - y_j)(y_i - y_k)$ of each row."""
    gaps = labels[:, None] - labels
    each = weights * gaps
    pairs = each.square().sum(1)
    return pairs, torch.einsum("ij,ik->i", each, each) - pairs


def test_the_squared_error_is_terms_of_pairs_and_of_triplets(generator):
    """Section 4.1 of the paper: pairs of other labels are pushed apart; neighbors on both sides of a label help."""
    points = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    labels = torch.rand(7, generator=generator, dtype=torch.float64)
    head, ids = NONA(mask=SoftStep(3, parameters="global")), torch.arange(7)
    weights = head.weights(points, points, query_ids=ids, bank_ids=ids).detach()
    errors = (head(points, points, labels, query_ids=ids, bank_ids=ids) - labels).square().detach()
    pairs, triplets = pair_and_triplet_terms(weights, labels)
    torch.testing.assert_close(errors, pairs + triplets, rtol=1e-12, atol=1e-14)
    assert (pairs > 0).all()
    assert (triplets < 0).any()
    assert triplets[labels.argmin()] > 0
    assert triplets[labels.argmax()] > 0


def best_of_starts(labels, dim, mask, generator, starts):
    """Weights and error of free embeddings, trained from several places: the error has local minima."""
    ids, trials = torch.arange(len(labels)), []
    for _ in range(starts):
        head = NONA(mask=None if mask is None else SoftStep(dim, mask, parameters="global").double())
        points = trained(labels, dim, generator, head)
        weights = head.weights(points, points, query_ids=ids, bank_ids=ids).detach()
        trials.append((float((weights @ labels - labels).square().mean()), weights))
    return min(trials, key=lambda trial: trial[0])


@pytest.mark.parametrize("mask", [None, "s1", "s2"])
def test_the_optimum_of_more_than_three_rows_uses_the_nearest_labels(mask, generator):
    """Appendix D of the paper: inner labels are met by the next one on either side, the ends have their only neighbor.

    With SoftStep other rows may keep a little weight where the label is met all the same.
    """
    labels = torch.tensor([0.0, 0.2, 0.5, 0.7, 1.0], dtype=torch.float64)
    error, weights = best_of_starts(labels, 2, mask, generator, 1 if mask is None else 4)
    assert error == pytest.approx((0.2**2 + 0.3**2) / 5, abs=1e-5)
    next_to = torch.ones(4, dtype=torch.float64).diag(1) + torch.ones(4, dtype=torch.float64).diag(-1)
    assert ((weights * next_to).sum(1) > (0.999 if mask is None else 0.9)).all()
    assert weights[0, 1] > 0.999
    assert weights[4, 3] > 0.999
    torch.testing.assert_close((weights @ labels)[1:4], labels[1:4], rtol=0, atol=2e-3)
