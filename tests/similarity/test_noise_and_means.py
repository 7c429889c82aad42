"""Noise over signal, and the means of classes."""

import pytest
import torch

from vicinal.similarity import NegativeSNR, class_means
from vicinal.similarity.base import resolve_similarity


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_what_noise_over_signal_does_not_see():
    q, x, similarity = normal(0, 4, 6), normal(1, 5, 6), NegativeSNR()
    scores = similarity(q, x)
    torch.testing.assert_close(similarity(q, q).diagonal(), torch.zeros(4, dtype=torch.float64), rtol=0, atol=0)
    shifted = q + torch.linspace(-3, 50, 4, dtype=torch.float64)[:, None]
    torch.testing.assert_close(similarity(q, shifted).diagonal(), torch.zeros(4, dtype=torch.float64))
    torch.testing.assert_close(similarity(3 * q, 3 * x), scores)
    torch.testing.assert_close(similarity(q + 9, x - 4), scores)
    both = q.var(1)[:, None] * similarity(q, x), x.var(1)[:, None] * similarity(x, q)
    torch.testing.assert_close(both[0], both[1].T)
    assert not torch.allclose(scores[:4, :4], similarity(x, q)[:4, :4].T)


def test_queries_without_variance():
    flat, x = torch.full((1, 3), 2.0), torch.tensor([[1.0, 2.0, 6.0], [5.0, 5.0, 5.0]])
    want = torch.stack([-x[0].var(correction=0) / 0.5, torch.tensor(0.0)])[None]
    torch.testing.assert_close(NegativeSNR(eps=0.5)(flat, x), want)
    with pytest.raises(ValueError, match=r"^queries: expected rows whose coordinates differ, got a constant row 1"):
        NegativeSNR(eps=0)(torch.cat([x[:1], flat]), x)
    with pytest.raises(ValueError, match=r"^queries: expected at least 2 coordinates"):
        NegativeSNR()(torch.ones(2, 1), torch.ones(2, 1))
    with pytest.raises(ValueError, match=r"^eps: expected a number of at least 0"):
        NegativeSNR(eps=-1)
    assert resolve_similarity("snr").extra_repr() == "eps=1e-08"


def test_means_of_classes():
    x, labels = normal(2, 7, 3), torch.tensor([0, 2, 1, 0, 2, 2, 1])
    want = torch.stack([x[labels == k].mean(0) for k in range(3)])
    torch.testing.assert_close(class_means(x, labels), want)
    unit = torch.nn.functional.normalize(x)
    want = torch.stack([torch.nn.functional.normalize(unit[labels == k].mean(0), dim=0) for k in range(3)])
    torch.testing.assert_close(class_means(x, labels, 3, spherical=True), want)
    torch.testing.assert_close(class_means(x * normal(3, 7, 1).abs(), labels, spherical=True), want)
    assert torch.autograd.gradcheck(lambda rows: class_means(rows, labels, spherical=True), (x.requires_grad_(),))
