"""What NONA is trained for: a label between those of two neighbors splits its weight as interpolation does."""

import pytest
import torch

from vicinal.heads import NONA


def trained(labels, dim, generator):
    """Free embeddings ``[3, dim]`` after minimizing the squared error of NONA on points that are their own bank."""
    points = torch.randn(3, dim, generator=generator, dtype=torch.float64).requires_grad_()
    head, ids = NONA(), torch.arange(3)
    optimizer = torch.optim.LBFGS([points], max_iter=200, tolerance_grad=1e-14, line_search_fn="strong_wolfe")

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
    points = trained(values, dim, generator)
    ids = torch.arange(3)
    weights = NONA().weights(points, points, query_ids=ids, bank_ids=ids)
    want = (values[k] - values[i]) / (values[i] - values[j])
    assert (weights[i, j] / weights[i, k]).item() == pytest.approx(want.item(), rel=1e-3)
    assert (weights @ values)[i].item() == pytest.approx(labels[i], abs=1e-3)
    assert weights[j, i] > 0.999
    assert weights[k, i] > 0.999
