"""Dimensions that embeddings use, beside stored values and scikit-learn; margins of models and how they differ."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from vicinal.metrics import class_margins, klom, pca_dimension

GOLDEN = Path(__file__).parents[1] / "golden/retrieval"


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_pca_dimension_of_scikit_learn():
    with np.load(GOLDEN / "pca_feature_mimicking.npz") as data:
        x = torch.from_numpy(np.repeat(data["table"], data["counts"].astype(int), axis=0))
        for share in ("0.8", "0.9", "0.99", "0.9999"):
            assert pca_dimension(x, share=float(share)) == int(data[f"num_components_at_{share}"])


def test_pca_dimension_promises():
    x = normal(40, 6) * torch.tensor([5.0, 3, 1, 0.3, 0.1, 0.01], dtype=torch.float64)
    at = [pca_dimension(x, share=share) for share in (0.1, 0.5, 0.9, 0.99, 0.9999, 1.0)]
    assert at == sorted(at)
    for share in (0.0, 1.5):
        with pytest.raises(ValueError, match=r"^share: expected"):
            pca_dimension(x, share=share)
    for wrong, sentence in ((x[:1], "at least 2 rows"), (x / 0, "finite numbers")):
        with pytest.raises(ValueError, match=rf"^embeddings: expected {sentence}"):
            pca_dimension(wrong)
    assert at[0] == 1
    assert at[-1] == 6
    turn = torch.linalg.qr(normal(6, 6, seed=1)).Q
    assert pca_dimension(x @ turn - 50, share=0.99) == pca_dimension(x, share=0.99)
    assert pca_dimension(torch.cat([torch.eye(10), -torch.eye(10)]), share=0.75) == math.ceil(0.75 * 10)
    assert pca_dimension(torch.ones(4, 3)) == 1
    assert pca_dimension(normal(3, 9), share=1.0) == 2


def test_margins_are_logits_of_the_true_class():
    scores, labels = normal(4, 5, 3), torch.tensor([0, 2, 1, 1, 0])
    p = scores.softmax(-1).gather(-1, labels.expand(4, 5)[..., None])[..., 0]
    torch.testing.assert_close(class_margins(scores, labels), p.logit())
    assert class_margins(1e4 * scores.float(), labels).isfinite().all()
    with pytest.raises(ValueError, match=r"^labels: expected classes \[n\]"):
        class_margins(scores, labels[:2])


def test_klom_equals_numpy():
    oracle, candidate = normal(9, 4), normal(7, 4, seed=1) + 0.5
    got = klom(oracle, candidate, bins=5, floor=1e-3)
    for i in range(4):
        a, b = oracle[:, i].numpy(), candidate[:, i].numpy()
        edges = np.histogram_bin_edges(np.concatenate([a, b]), 5)
        p, q = (np.histogram(each, edges)[0] / len(each) + 1e-3 for each in (a, b))
        p, q = p / p.sum(), q / q.sum()
        assert got[i].item() == pytest.approx((p * np.log(p / q)).sum(), rel=1e-9)
        back = klom(oracle, candidate, bins=5, floor=1e-3, direction="backward")[i]
        assert back.item() == pytest.approx((q * np.log(q / p)).sum(), rel=1e-9)


def test_klom_promises():
    oracle = normal(40, 3)
    assert (klom(oracle, oracle) == 0).all()
    candidate = normal(40, 3, seed=1)
    value = klom(oracle, candidate)
    assert (value >= 0).all()
    torch.testing.assert_close(klom(oracle, candidate[torch.randperm(40)]), value)
    far = [klom(oracle, oracle + shift, bins=10).mean() for shift in (0.0, 0.5, 2.0, 8.0)]
    assert far == sorted(far)
    assert klom(oracle, 1e9 * candidate).isfinite().all()
    assert (klom(torch.ones(2, 3), torch.ones(5, 3)) == 0).all()
    for call, sentence in [
        (lambda: klom(oracle[:1], candidate), "^oracle: expected margins"),
        (lambda: klom(oracle, candidate / 0 * 0), "^candidate: expected margins"),
        (lambda: klom(oracle, candidate[:, :2]), "^candidate: expected 3 rows"),
        (lambda: klom(oracle, candidate, direction="up"), "^direction: expected"),
        (lambda: klom(oracle, candidate, bins=1), "^bins: expected"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            call()
