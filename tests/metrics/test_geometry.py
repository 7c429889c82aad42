"""Alignment, uniformity, hubness, utilization and OPIS against numpy, and what each must do by its meaning."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import skew

from references import geometry
from vicinal import metrics
from vicinal.blockwise import block_policy


def problem(seed, n=23, d=5):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=g, dtype=torch.float64), torch.randint(0, 5, (n,), generator=g)


@pytest.fixture(autouse=True)
def _small_blocks():
    with block_policy(memory_entries=100, query_rows=4):
        yield


@pytest.mark.parametrize("seed", range(4))
def test_equals_numpy(seed):
    x, y = problem(seed)
    q = problem(seed + 50, n=11)[0]
    for power in (2.0, 1.0, 3.0):
        got = metrics.alignment(x, y, power=power)
        np.testing.assert_allclose(got, geometry.alignment(x.numpy(), y.numpy(), power), rtol=1e-10)
    for t in (2.0, 0.5):
        np.testing.assert_allclose(metrics.uniformity(x, t=t), geometry.uniformity(x.numpy(), t), rtol=1e-10)
    np.testing.assert_allclose(metrics.utilization(q, x), geometry.utilization(q.numpy(), x.numpy()), rtol=1e-10)
    u, v = (torch.tensor(geometry.directions(z.numpy())) for z in (x, q))
    alone = (u @ u.T).fill_diagonal_(-torch.inf)
    for k in (1, 4):
        np.testing.assert_allclose(metrics.hubness(x, k=k), skew(geometry.occurrences(alone.numpy(), k)), rtol=1e-9)
        np.testing.assert_allclose(
            metrics.hubness(q, x, k=k), skew(geometry.occurrences((v @ u.T).numpy(), k)), rtol=1e-9
        )


@pytest.mark.parametrize("extreme", [None, 0.3])
def test_opis_equals_numpy(extreme):
    for seed in range(4):
        x, y = problem(seed)
        y[0] = 9  # a class of one row: no related pairs
        s = torch.nn.functional.normalize(x, dim=1) @ torch.nn.functional.normalize(x, dim=1).T
        w = 1 - torch.eye(23)
        got = metrics.opis(s, y, weight=w, far=(0.05, 0.4), steps=9, extreme=extreme)
        want = geometry.opis(s.numpy(), y.numpy(), w.numpy(), (0.05, 0.4), 9, extreme)
        np.testing.assert_allclose(got, want, rtol=1e-9)
        assert got >= 0
        order = torch.randperm(23, generator=torch.Generator().manual_seed(seed))
        renamed = metrics.opis(s[order][:, order], 100 - y[order], weight=w, far=(0.05, 0.4), steps=9, extreme=extreme)
        torch.testing.assert_close(renamed, got)
        torch.testing.assert_close(
            metrics.opis(s, y, y, w, far=(0.05, 0.4), steps=9, extreme=extreme), got, rtol=0, atol=0
        )


def test_opis_is_0_for_classes_alike_and_grows_when_one_is_harder():
    s = torch.tensor([[1.0, 0.8, 0.1, 0.2], [0.8, 1.0, 0.2, 0.1], [0.1, 0.2, 1.0, 0.8], [0.2, 0.1, 0.8, 1.0]])
    y, w = torch.tensor([0, 0, 1, 1]), 1 - torch.eye(4)
    assert metrics.opis(s, y, weight=w, far=(0.1, 0.9)) == 0
    s[2, 3] = s[3, 2] = 0.15
    assert metrics.opis(s, y, weight=w, far=(0.1, 0.9)) > 0.01
    assert metrics.opis(s, torch.zeros(4), weight=w).isnan()
    assert metrics.opis(s, torch.arange(4), weight=w).isnan()


def test_meaning():
    x, y = problem(7)
    one = torch.ones(6, 3)
    assert metrics.alignment(one, torch.zeros(6, dtype=torch.long)) == pytest.approx(0, abs=1e-6)
    assert metrics.uniformity(one) == pytest.approx(0, abs=1e-6)
    assert metrics.alignment(x, torch.arange(23)).isnan()
    assert metrics.uniformity(x[:1]).isnan()
    assert metrics.uniformity(x) < metrics.uniformity(x.abs())
    torch.testing.assert_close(metrics.alignment(3 * x, y), metrics.alignment(x, y))
    assert metrics.utilization(x[3:9], x) == 0
    assert metrics.utilization(x[:4], x[4:9]) >= metrics.utilization(x[:4], x[4:])
    far = x + 1000
    torch.testing.assert_close(metrics.utilization(far[:4], far[4:]), metrics.utilization(x[:4], x[4:]))
    assert metrics.hubness(x, k=99) == 0
    hub = torch.cat([torch.zeros(1, 20), torch.eye(20), -torch.eye(20)]).double()
    assert metrics.hubness(hub, k=1, similarity="l2") > 5
    assert metrics.hubness(x[:1], k=3) == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    x, y = problem(8)
    x = x.to(dtype)
    for f in (lambda z: metrics.alignment(z, y), metrics.uniformity, lambda z: metrics.utilization(z[:5], z[5:])):
        torch.testing.assert_close(f(x), f(x.float()))
    assert metrics.hubness(x, k=3) == metrics.hubness(x.float(), k=3)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda x, y: metrics.alignment(x, y[1:]), r"^labels: expected \[23\]"),
        (lambda x, y: metrics.alignment(x, y, power=0), r"^power: expected a number above 0"),
        (lambda x, y: metrics.uniformity(x, t=-1), r"^t: expected a number above 0"),
        (lambda x, y: metrics.uniformity(x * math.nan), r"^embeddings: expected finite numbers, .* in row 0"),
        (lambda x, y: metrics.hubness(x, k=0), r"^k: expected a whole number of at least 1"),
        (lambda x, y: metrics.utilization(x, x[:0]), r"^bank: expected at least one row"),
        (lambda x, y: metrics.utilization(x, x[:, 1:]), r"^bank: expected \[N, 5\]"),
        (lambda x, y: metrics.opis(x, y[1:]), r"^labels: expected \[23\]"),
        (lambda x, y: metrics.opis(x @ x.T, y, y[1:]), r"^bank_labels: expected \[23\]"),
        (lambda x, y: metrics.opis(x @ x.T, y, far=(0.5, 0.1)), r"^far: expected a lower and a higher share"),
        (lambda x, y: metrics.opis(x @ x.T, y, far=(0.0, 0.1)), r"^far: expected a number between 0 and 1"),
        (lambda x, y: metrics.opis(x @ x.T, y, extreme=0.7), r"^extreme: expected"),
    ],
)
def test_bad_input_gets_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call(*problem(9))
