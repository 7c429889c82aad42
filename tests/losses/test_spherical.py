"""Losses of a target's score and two sums of all: equal to the plain layer, row by row and step by step."""

import numpy as np
import pytest
import torch

from references import class_losses as reference
from vicinal import losses
from vicinal.losses import spherical

K, D = 40, 5


def log_share(f):
    return lambda s, y: -np.log(f(s)[y] / f(s).sum())


PLAIN = {
    "z_loss": lambda s, y: reference.z_loss(s, y, 1.5, 0.3),
    "squares": lambda s, y: ((s - np.eye(len(s))[y]) ** 2).sum(),
    "taylor_softmax": log_share(lambda s: 1 + s + s**2 / 2),
    "spherical_softmax": log_share(lambda s: s**2 + 0.05),
}
IN_TORCH = {
    "z_loss": lambda s, y: losses.z_loss(s, y, sharpness=1.5, location=0.3),
    "squares": lambda s, y: (s - torch.nn.functional.one_hot(y, K)).square().sum(1).mean(),
    "taylor_softmax": lambda s, y: (
        -((1 + s + s**2 / 2) / (1 + s + s**2 / 2).sum(1, keepdim=True)).log().gather(1, y[:, None]).mean()
    ),
    "spherical_softmax": lambda s, y: (
        -((s**2 + 0.05) / (s**2 + 0.05).sum(1, keepdim=True)).log().gather(1, y[:, None]).mean()
    ),
}


def head(name):
    return losses.SphericalClasses(
        D, K, loss=name, sharpness=1.5, location=0.3, room=0.05, generator=torch.Generator().manual_seed(1)
    )


def batch(seed, rows=7):
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(0, K, (rows,), generator=generator)
    target[1] = target[0]  # twice in a batch
    return torch.randn(rows, D, generator=generator, dtype=torch.float64), target


@pytest.mark.parametrize("name", PLAIN)
def test_value_and_gradient_are_those_of_all_scores(name):
    made = head(name)
    made.factor[:, -1] = torch.linspace(-1, 1, K)  # biases
    made.fold()
    rows, target = batch(3)
    rows.requires_grad_()
    value = made(rows, target)
    scores = rows @ made.weight()[:, :-1].T + made.weight()[:, -1]
    want = np.mean([PLAIN[name](s, y) for s, y in zip(scores.detach().numpy(), target.tolist(), strict=True)])
    assert value.item() == pytest.approx(want, rel=1e-10)
    torch.testing.assert_close(made.scores(rows), scores)
    got, of_scores = (torch.autograd.grad(v, rows)[0] for v in (value, IN_TORCH[name](scores, target)))
    torch.testing.assert_close(got, of_scores)


@pytest.mark.parametrize("limit", [1e4, 1.0])
@pytest.mark.parametrize("name", PLAIN)
def test_steps_are_those_of_gradient_descent_on_all_weights(name, limit, monkeypatch):
    monkeypatch.setattr(spherical, "FOLD_ABOVE", limit)
    made = head(name)
    rate = 0.01 if name == "squares" else 0.5
    plain = made.weight().clone().requires_grad_()
    for seed in range(40):
        rows, target = batch(seed)
        (3 * made(rows, target)).backward()
        made.step(rate)
        value = 3 * IN_TORCH[name](rows @ plain[:, :-1].T + plain[:, -1], target)
        (gradient,) = torch.autograd.grad(value, plain)
        plain = (plain - rate * gradient).detach().requires_grad_()
    torch.testing.assert_close(made.weight(), plain.detach(), rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(made.gram, plain.T @ plain, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(made.total, plain.sum(0), rtol=1e-8, atol=1e-8)


def test_rows_of_equal_scores_and_wrong_calls():
    made = losses.SphericalClasses(2, 3)
    made.factor.zero_()
    made.fold()
    rows = torch.ones(2, 2, requires_grad=True)
    value = made(rows, torch.tensor([0, 2]))
    assert value.item() == pytest.approx(np.log(2))
    value.backward()
    assert bool(rows.grad.isfinite().all())
    made.step(0.1)
    assert bool(made.weight().isfinite().all())
    with pytest.raises(RuntimeError, match=r"^step: expected a loss that backward was called of before"):
        made.step(0.1)
    with pytest.raises(ValueError, match=r"^rows: expected floating numbers \[b, 2\]"):
        made(torch.ones(1, 3), torch.zeros(1).long())
    with pytest.raises(ValueError, match=r"^target: expected classes 0 to 2"):
        made(torch.ones(1, 2), torch.tensor([3]))
    with pytest.raises(ValueError, match=r"^loss: expected one of"):
        losses.SphericalClasses(2, 3, loss="softmax")
