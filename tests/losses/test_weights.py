"""Regularizers of weights beside stored values and a numpy reference, and what they promise."""

from pathlib import Path

import numpy as np
import pytest
import torch

from references import regularizers as reference
from vicinal.losses import RationaleInvariance, cauchy_schwarz, group_orthogonality

GOLDEN = Path(__file__).parents[1] / "golden/sets"
DEGREES = {"binary": 4, "one_sided": 6, "ternary": 8, "orthogonal": 4}


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("values", ["binary", "ternary"])
@pytest.mark.parametrize("case", ["random", "binary", "ternary", "zeros"])
def test_cauchy_schwarz_of_the_papers_code(case, values):
    with np.load(GOLDEN / "cauchy_schwarz.npz") as data:
        x = torch.from_numpy(data[f"{case}_W"]).requires_grad_()
        value = cauchy_schwarz(x, values=values)
        np.testing.assert_allclose(value.detach(), data[f"{case}_{values}"], rtol=1e-9, atol=1e-9)
        value.backward()
        if case == "random":  # elsewhere it is 0 up to rounding
            np.testing.assert_allclose(x.grad, data[f"{case}_{values}_dW"], rtol=1e-9, atol=1e-9)
        else:
            np.testing.assert_allclose(x.grad, data[f"{case}_{values}_dW"], atol=1e-8)


@pytest.mark.parametrize("values", DEGREES)
def test_what_is_0_and_what_a_factor_does(values):
    x = normal(5, 6)
    signs = torch.tensor([1.0, -1, 1, 1, -1, -1], dtype=torch.float64)
    goals = {
        "binary": 3 * signs,
        "one_sided": 0.7 * (signs > 0),
        "ternary": 2 * signs * (torch.arange(6) % 2),
        "orthogonal": 4 * torch.linalg.qr(normal(6, 3)).Q,
    }
    for scale in (0.1, 1.0, 20.0):
        goal = (scale * goals[values].double()).requires_grad_()
        value = cauchy_schwarz(goal, values=values)
        assert value.item() == pytest.approx(0, abs=1e-9 * scale ** DEGREES[values])
        (slope,) = torch.autograd.grad(value, goal)
        np.testing.assert_allclose(slope, 0, atol=1e-9 * max(1, scale ** DEGREES[values]))
    value = cauchy_schwarz(x, values=values)
    assert value > 0
    torch.testing.assert_close(cauchy_schwarz(2 * x, values=values), 2 ** DEGREES[values] * value)
    free = cauchy_schwarz(x, values=values, scale_free=True)
    torch.testing.assert_close(cauchy_schwarz(30 * x, values=values, scale_free=True), free)
    flipped = cauchy_schwarz(x * signs, values=values) if values != "orthogonal" else value
    assert torch.allclose(flipped, value) == (values != "one_sided")
    for settings in ({}, {"scale_free": True}):
        made = lambda w: cauchy_schwarz(w, values=values, **settings)  # noqa: B023
        assert torch.autograd.gradcheck(made, (x.clone().requires_grad_(),))
        zeros = torch.zeros(2, 3, requires_grad=True)
        made(zeros).backward()
        assert (zeros.grad == 0).all()
    torch.testing.assert_close(
        cauchy_schwarz(x.bfloat16(), values=values), cauchy_schwarz(x.bfloat16().float(), values=values)
    )


def test_columns_and_eigenvectors_in_closed_form():
    x = normal(6, 3)
    gram = x.T @ x
    torch.testing.assert_close(cauchy_schwarz(x, values="orthogonal"), 3 * gram.square().sum() - gram.trace().square())
    matrix = normal(4, 4)
    matrix = matrix + matrix.T
    vectors = torch.linalg.eigh(matrix).eigenvectors
    assert cauchy_schwarz(vectors.T, values="eigenvector", matrix=matrix).item() == pytest.approx(0, abs=1e-10)
    y = normal(4, seed=3)
    want = (matrix @ y).square().sum() * y.square().sum() - (y @ matrix @ y) ** 2
    torch.testing.assert_close(cauchy_schwarz(y, values="eigenvector", matrix=matrix), want)
    for call, sentence in [
        (lambda: cauchy_schwarz(x, values="eigenvector"), "^matrix: expected one for 'eigenvector'"),
        (lambda: cauchy_schwarz(x, matrix=matrix), "^matrix: expected one for 'eigenvector'"),
        (lambda: cauchy_schwarz(x, values="eigenvector", matrix=matrix), r"^matrix: expected \[3, 3\]"),
        (lambda: cauchy_schwarz(y, values="orthogonal"), "^weights: expected columns"),
        (lambda: cauchy_schwarz(torch.ones(3, dtype=torch.long)), "^weights: expected floating"),
        (lambda: cauchy_schwarz(x, values="unary"), "^values: expected"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            call()


@pytest.mark.parametrize(("case", "groups"), [("wide", 2), ("tall", 2), ("single", 8)])
@pytest.mark.parametrize("form", ["inter", "intra"])
def test_group_orthogonality_of_the_papers_code(case, groups, form):
    with np.load(GOLDEN / "group_orthogonalization.npz") as data:
        w = torch.from_numpy(data[f"{case}_w"]).requires_grad_()
        value = group_orthogonality(w, groups=groups, form=form)
        value.backward()
        np.testing.assert_allclose(value.detach(), data[f"{case}_{form}"], rtol=1e-9)
        np.testing.assert_allclose(w.grad, data[f"{case}_{form}_dw"], rtol=1e-9, atol=1e-9)


def test_orthonormal_groups():
    w = torch.linalg.qr(normal(6, 6)).Q
    for form in ("inter", "intra"):
        assert group_orthogonality(w, groups=2, form=form).item() == pytest.approx(0, abs=1e-12)
    x = normal(8, 12)
    turn = torch.linalg.qr(normal(12, 12, seed=1)).Q
    torch.testing.assert_close(group_orthogonality(x @ turn), group_orthogonality(x))
    torch.testing.assert_close(group_orthogonality(x, groups=1), (x @ x.T - torch.eye(8).double()).square().sum())
    blocks = x.view(2, 4, 12).flip(0).reshape(8, 12)
    torch.testing.assert_close(group_orthogonality(blocks, groups=2), group_orthogonality(x, groups=2))
    torch.testing.assert_close(group_orthogonality(x.view(8, 3, 2, 2)), group_orthogonality(x))
    torch.testing.assert_close(group_orthogonality(x), group_orthogonality(x, groups=2))  # of eight rows, two groups
    assert torch.autograd.gradcheck(group_orthogonality, (x.requires_grad_(),), fast_mode=True)
    with pytest.raises(ValueError, match=r"^groups: expected a divisor of 8 rows, got 3"):
        group_orthogonality(x, groups=3)


def test_rationales_equal_numpy():
    loss = RationaleInvariance(3, 4, factor=0.3, rate=0.2).double()
    weight = normal(3, 4, seed=9)
    bank = {}
    for seed, labels in enumerate(([0, 0, 2, 2, 2], [2, 1, 0, 0, 1], [1, 1, 1, 1, 1])):
        f, y = normal(5, 4, seed=seed), torch.tensor(labels)
        want, bank = reference.rationale_invariance(f.numpy(), y.numpy(), weight.numpy(), bank, 0.2, 0.3)
        np.testing.assert_allclose(loss(f, y, weight), want, rtol=1e-9)
        for label, mean in bank.items():
            np.testing.assert_allclose(loss.rationales[label], mean, rtol=1e-9)


def test_rationales_of_rows_that_agree():
    loss = RationaleInvariance(2, 3, factor=1.0).double()
    f, y, weight = normal(1, 3).expand(4, 3), torch.tensor([1, 1, 1, 1]), normal(2, 3, seed=1)
    assert loss(f, y, weight) == 0
    rows, labels = normal(6, 3, seed=2).requires_grad_(), torch.tensor([0, 1, 0, 1, 1, 0])
    head = weight.clone().requires_grad_()
    loss.eval()
    value = loss(rows, labels, head)
    order = torch.tensor([5, 3, 0, 1, 4, 2])
    torch.testing.assert_close(loss(rows[order], labels[order], head), value)
    frozen = RationaleInvariance(2, 3, factor=1.0).double()
    frozen.load_state_dict(loss.state_dict())
    bank = loss.rationales.clone()
    bank[0] = (rows[labels == 0].detach()[:, None] * weight).mean(0)  # seen for the first time
    bank[1] = (1 - 1e-3) * bank[1] + 1e-3 * (rows[labels == 1].detach()[:, None] * weight).mean(0)

    def plainly(f, w):
        shares = f[:, None] * w
        gaps = (shares - bank[labels]).square().sum(-1).mean(-1)
        return sum(gaps[labels == k].mean() for k in (0, 1))

    torch.testing.assert_close(value, plainly(rows, head))
    for mine, theirs in zip(
        torch.autograd.grad(value, (rows, head)), torch.autograd.grad(plainly(rows, head), (rows, head)), strict=True
    ):
        torch.testing.assert_close(mine, theirs)
    assert loss(rows[:0], labels[:0], head) == 0
    for call, sentence in [
        (lambda: loss(rows, labels + 1, head), "^labels: expected classes 0 to 1"),
        (lambda: loss(rows, labels, head[:1]), r"^weight: expected \[2, 3\]"),
        (lambda: loss(rows, labels[:2], head), "^labels: expected whole numbers"),
        (lambda: RationaleInvariance(2, 3, rate=0.0), "^rate: expected"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            call()
