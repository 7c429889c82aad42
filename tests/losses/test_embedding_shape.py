"""Trees, coding rates and neural collapse beside stored values, and what they promise."""

import itertools
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from vicinal.blockwise import block_policy
from vicinal.blockwise.spanning_tree import minimum_spanning_tree
from vicinal.losses import (
    coding_rate,
    mcr2,
    neural_collapse,
    t_regs,
    tree_length,
)

GOLDEN = Path(__file__).parents[1] / "golden"


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def simplex(n, d):
    corners = torch.eye(n, d, dtype=torch.float64)
    corners[:, :n] -= 1 / n
    return torch.nn.functional.normalize(corners, dim=1)


@pytest.mark.parametrize("case", ["cloud", "line", "two", "ties"])
@pytest.mark.parametrize("entries", [1 << 20, 8])
def test_lengths_of_trees_by_scipy(case, entries):
    with np.load(GOLDEN / "sets/mst_length.npz") as data, block_policy(block_entries=entries):
        x = torch.from_numpy(data[f"{case}_x"]).requires_grad_()
        length = tree_length(x)
        length.backward()
        np.testing.assert_allclose(length.detach(), data[f"{case}_length"], rtol=1e-9)
        if case != "ties":  # whose tree is not the only one
            np.testing.assert_allclose(x.grad, data[f"{case}_grad"], rtol=1e-9, atol=1e-12)
            edges = {tuple(sorted(pair)) for pair in minimum_spanning_tree(x).tolist()}
            assert edges == {tuple(sorted(pair)) for pair in data[f"{case}_edges"].tolist()}


def test_a_tree_is_the_shortest_of_all():
    x = normal(5, 2)
    pairs = list(itertools.combinations(range(5), 2))

    def joins(edges):
        reached = {0}
        for _ in edges:
            reached |= {node for edge in edges if reached & set(edge) for node in edge}
        return len(reached) == 5

    lengths = [
        sum(float((x[i] - x[j]).norm()) for i, j in edges) for edges in itertools.combinations(pairs, 4) if joins(edges)
    ]
    assert tree_length(x).item() == pytest.approx(min(lengths), rel=1e-12)
    assert len(minimum_spanning_tree(x)) == 4


def test_what_a_tree_does_not_see():
    x = normal(20, 3)
    length = tree_length(x)
    turn = torch.linalg.qr(normal(3, 3, seed=1)).Q
    torch.testing.assert_close(tree_length(x @ turn + 100), length)
    torch.testing.assert_close(tree_length(x[torch.randperm(20, generator=torch.Generator().manual_seed(0))]), length)
    torch.testing.assert_close(tree_length(3 * x), 3 * length)
    torch.testing.assert_close(tree_length(torch.cat([x, x[:7]])), length)
    assert length <= (x[1:] - x[:-1]).norm(dim=1).sum()
    line = torch.linspace(-1, 4, 9)[torch.tensor([3, 0, 8, 1, 2, 7, 5, 6, 4])][:, None]
    torch.testing.assert_close(tree_length(line), torch.tensor(5.0))
    same = torch.ones(4, 3, requires_grad=True)
    value = tree_length(same)
    value.backward()
    assert value == 0
    assert (same.grad == 0).all()
    assert torch.autograd.gradcheck(tree_length, (normal(8, 3).requires_grad_(),))
    torch.testing.assert_close(tree_length(x.bfloat16()), length.float(), rtol=0.02, atol=0)


def test_trees_spread_rows_on_the_sphere():
    for n in (2, 3, 5):
        at = simplex(n, 6).requires_grad_()
        value = t_regs(at)
        want = -(n - 1) / n * math.sqrt(2 * n / (n - 1))
        assert value.item() == pytest.approx(want)
        for seed in range(20):
            other = torch.nn.functional.normalize(normal(n, 6, seed=seed), dim=1)
            assert t_regs(other) >= value - 1e-9
    x = normal(6, 3).requires_grad_()
    parts = t_regs(x, factor=2.0, sphere=0.0) + t_regs(x, factor=0.0, sphere=3.0)
    torch.testing.assert_close(t_regs(x, factor=2.0, sphere=3.0), parts)
    assert torch.autograd.gradcheck(t_regs, (x,))
    collapsed = torch.ones(5, 3).requires_grad_()
    t_regs(collapsed).backward()
    assert collapsed.grad.isfinite().all()
    with pytest.warns(UserWarning, match="at least 2 rows"):
        assert t_regs(x[:1]) == 0
    with pytest.raises(ValueError, match=r"^embeddings: expected finite"):
        t_regs(x / 0)
    with pytest.raises(ValueError, match=r"^factor: expected"):
        t_regs(x, factor=-1.0)


CASES = ["hard", "soft", "soft_eps0.01", "one_cluster", "empty_cluster"]


@pytest.mark.parametrize("case", CASES)
def test_coding_rates_of_public_code(case):
    with np.load(GOLDEN / "retrieval/mcr2.npz") as data:
        z = torch.from_numpy(data["z"]).requires_grad_()
        eps = float(data[f"{case}__eps"])
        membership = torch.from_numpy(data["membership"])
        hard = torch.nn.functional.one_hot(torch.from_numpy(data["labels"]).long()).double()
        if case == "hard":
            membership = hard
        elif case == "one_cluster":
            membership = torch.ones(10, 1, dtype=torch.float64)
        elif case == "empty_cluster":
            joined = torch.from_numpy(np.minimum(data["labels"], 1)).long()
            membership = torch.nn.functional.one_hot(joined, 3).double()
        membership = membership.clone().requires_grad_()
        loss = mcr2(z, membership, eps=eps)
        np.testing.assert_allclose(coding_rate(z, eps=eps).detach(), data[f"{case}__rate"], rtol=1e-9)
        np.testing.assert_allclose(loss.detach(), data[f"{case}__loss"], rtol=1e-7, atol=1e-9)
        loss.backward()
        np.testing.assert_allclose(z.grad, data[f"{case}__grad_z"], rtol=1e-7, atol=1e-9)
        if f"{case}__grad_membership" in data:
            np.testing.assert_allclose(membership.grad, data[f"{case}__grad_membership"], rtol=1e-6, atol=1e-7)


def test_coding_rates_promise():
    z = torch.nn.functional.normalize(normal(12, 4), dim=1)
    labels = torch.arange(12) % 3
    value = mcr2(z, labels)
    assert value <= 0
    turn = torch.linalg.qr(normal(4, 4, seed=1)).Q
    torch.testing.assert_close(mcr2(z @ turn, labels), value)
    torch.testing.assert_close(mcr2(z, 7 - labels), value)
    wide = torch.nn.functional.normalize(normal(4, 12), dim=1)  # the other side of Sylvester's identity
    long = torch.linalg.slogdet(torch.eye(12).double() + 12 / (4 * 0.5) * wide.T @ wide).logabsdet / 2
    torch.testing.assert_close(coding_rate(wide), long)
    apart = torch.eye(4).double()[torch.arange(12) % 4]
    assert mcr2(apart, torch.arange(12) % 4) < value
    assert torch.autograd.gradcheck(lambda x: mcr2(x, labels), (z.clone().requires_grad_(),))
    half = mcr2(z.bfloat16(), labels)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, value.float(), rtol=0.05, atol=0.02)
    assert mcr2(z, (5 * z @ z.T).softmax(dim=1)) <= 0
    for call, sentence in [
        (lambda: mcr2(z, -torch.ones(12, 2)), "^membership: expected shares of at least 0"),
        (lambda: mcr2(z, torch.ones(3, 2)), "^membership: expected whole numbers"),
        (lambda: mcr2(z, labels, eps=0.0), "^eps: expected"),
        (lambda: coding_rate(z[:0]), "^embeddings: expected at least one row"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            call()


def test_neural_collapse_of_the_papers_code():
    with np.load(GOLDEN / "sets/neural_collapse.npz") as data:
        x, means = (torch.from_numpy(data[key]).requires_grad_() for key in ("x", "means"))
        y = torch.from_numpy(data["y"]).long()
        first = neural_collapse(x, y, means, within=1.0, between=0.0)
        first.backward()
        np.testing.assert_allclose(first.detach(), data["nc1"], rtol=1e-9)
        np.testing.assert_allclose(x.grad, data["nc1_dx"], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(means.grad, data["nc1_dmeans"], rtol=1e-9, atol=1e-12)
        for key, centers in (("nc2_c3", "means"), ("nc2_c5", "means_c5"), ("nc2_simplex", "simplex_means")):
            middle = torch.from_numpy(data[centers]).requires_grad_()
            rows, labels = middle.detach()[:1], torch.tensor([0])
            second = neural_collapse(rows, labels, middle, within=0.0, between=1.0)
            second.backward()
            np.testing.assert_allclose(second.detach(), data[key], rtol=1e-9)
            if f"{key}_dmeans" in data:
                np.testing.assert_allclose(middle.grad, data[f"{key}_dmeans"], rtol=1e-7, atol=1e-9)


def test_neural_collapse_counts_classes_alike():
    x, y, centers = normal(6, 4), torch.tensor([0, 0, 0, 0, 1, 2]), normal(4, 4, seed=1)
    value = neural_collapse(x, y, centers)
    again = neural_collapse(torch.cat([x, x[4:5], x[4:5]]), torch.cat([y, y[4:5], y[4:5]]), centers)
    torch.testing.assert_close(again, value)
    turn = torch.linalg.qr(normal(4, 4, seed=2)).Q
    torch.testing.assert_close(neural_collapse(x @ turn + 3, y, centers @ turn + 3), value)
    angle = lambda m: neural_collapse(x, y, m, within=0.0, between=1.0)
    torch.testing.assert_close(angle(5 * centers - 1), angle(centers))
    assert angle(simplex(4, 4)).item() == pytest.approx(-math.acos(-1 / 3))
    assert torch.autograd.gradcheck(
        lambda a, m: neural_collapse(a, y, m), (x.clone().requires_grad_(), centers.requires_grad_())
    )
    same = torch.ones(3, 4, requires_grad=True)
    neural_collapse(x, y, same).backward()
    assert same.grad.isfinite().all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert neural_collapse(x[:0], y[:0], centers).isfinite()
    for call, sentence in [
        (lambda: neural_collapse(x, y, centers[:1]), "^centers: expected at least two"),
        (lambda: neural_collapse(x, y + 3, centers), "^labels: expected classes 0 to 3"),
        (lambda: neural_collapse(x, y[:2], centers), "^labels: expected whole numbers"),
        (lambda: neural_collapse(x, y, centers, within=-1.0), "^within: expected"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            call()
