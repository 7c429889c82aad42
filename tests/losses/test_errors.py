"""Errors of numbers beside stored values and closed forms; the moving partition; the perceptron as a limit."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from vicinal.links import PseudoHuberGrad
from vicinal.losses import (
    MatchingLoss,
    PseudoHuberLoss,
    best_of_k,
    guess_errors,
    ms_ssim_loss,
    separate,
    step_weights,
)

GOLDEN = Path(__file__).parents[1] / "golden/losses"


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("case", "AB")
def test_pseudo_huber_of_public_code(case):
    with np.load(GOLDEN / "pseudo_huber_elementwise.npz") as data:
        x, y = (torch.from_numpy(data[f"{case}_{key}"]) for key in "xy")
        x.requires_grad_()
        for c in (float(data[f"{case}_c"]), None):
            value = PseudoHuberLoss(c, reduction="none")(x, y)
            torch.testing.assert_close(
                value.detach(), torch.from_numpy(data[f"{case}_loss_elementwise"]), rtol=1e-9, atol=1e-12
            )
            (grad,) = torch.autograd.grad(value.sum(), x)
            torch.testing.assert_close(grad, torch.from_numpy(data[f"{case}_grad_of_sum"]), rtol=1e-9, atol=1e-12)


def test_pseudo_huber_between_a_distance_and_a_square():
    x, y = normal(5, 4).requires_grad_(), normal(5, 4, seed=1)
    gap = (x - y).detach()
    rows = lambda c, **s: PseudoHuberLoss(c, reduction="none", **s)(x, y).detach()
    torch.testing.assert_close(rows(1e-12, per_element=False), gap.norm(dim=1))
    torch.testing.assert_close(rows(1e-12), gap.abs())
    torch.testing.assert_close(rows(1e6, per_element=False), gap.square().sum(1) / 2e6, rtol=1e-6, atol=0)
    loss = PseudoHuberLoss(0.3, per_element=False, reduction="sum")
    assert torch.autograd.gradcheck(loss, (x, y))
    (grad,) = torch.autograd.grad(loss(x, y), x)
    assert (grad.norm(dim=1) < 1).all()
    torch.testing.assert_close(loss(y, x), loss(x, y))
    assert loss(y, y) == 0
    tiny = torch.tensor([1e-6])  # digits of a small error are kept
    torch.testing.assert_close(PseudoHuberLoss(1.0)(tiny, 0 * tiny), torch.tensor(5e-13))
    at_target = MatchingLoss(PseudoHuberGrad(0.3), reduction="none")(gap[0], 0 * gap[0])
    torch.testing.assert_close(at_target, PseudoHuberLoss(0.3, reduction="none")(gap[0], 0 * gap[0]))
    with pytest.raises(ValueError, match=r"^c: expected a number above 0"):
        PseudoHuberLoss(-1.0)


@pytest.mark.parametrize("case", "AB")
def test_guesses_of_the_papers_code(case):
    with np.load(GOLDEN / "joint_best_of_k.npz") as data:
        guesses, target = (torch.from_numpy(data[f"{case}_{key}"]) for key in ("pred", "target"))
        for name, at in (("ade", "mean"), ("fde", "last")):
            errors = guess_errors(guesses, target, at=at)
            joint = errors.mean(0)
            for how in ("min", "mean", "max"):
                least = getattr(errors, "amin" if how == "min" else "amax" if how == "max" else "mean")(1).mean()
                np.testing.assert_allclose(least, data[f"{case}_{name}_{how}"], rtol=1e-9)
                np.testing.assert_allclose(getattr(joint, how)(), data[f"{case}_joint_{name}_{how}"], rtol=1e-9)
            want = data[f"{case}_{name}_min"] + 0.3 * data[f"{case}_joint_{name}_min"]
            np.testing.assert_allclose(best_of_k(guesses, target, joint=0.3, at=at), want, rtol=1e-9)


def test_the_best_guesses_alone_have_a_gradient():
    guesses, target = normal(4, 3, 5, 2).requires_grad_(), normal(4, 5, 2, seed=1)
    assert torch.autograd.gradcheck(best_of_k, (guesses, target))
    apart, together = best_of_k(guesses, target, joint=0.0), best_of_k(guesses, target)
    assert apart <= together - apart
    order = torch.tensor([2, 0, 1])
    torch.testing.assert_close(best_of_k(guesses[:, order], target), together)
    mixed = torch.stack([guesses[0], guesses[1, order], *guesses[2:]])
    torch.testing.assert_close(best_of_k(mixed, target, joint=0.0), apart)
    assert best_of_k(mixed, target) != together
    torch.testing.assert_close(best_of_k(guesses[:1], target[:1]), 2 * best_of_k(guesses[:1], target[:1], joint=0.0))
    (grad,) = torch.autograd.grad(apart, guesses)
    reached = grad.abs().sum((2, 3)) > 0
    assert reached.sum(1).tolist() == [1, 1, 1, 1]
    same = guesses.detach()[:, :1].expand(-1, 3, -1, -1).clone().requires_grad_()
    best_of_k(same, target).backward()
    assert (same.grad[:, 1:] == 0).all()
    there = torch.tensor([True, False, True, True])
    torch.testing.assert_close(best_of_k(guesses, target, there), best_of_k(guesses[there], target[there]))
    assert best_of_k(guesses, target, ~there & there) == 0
    for call, sentence in [
        (lambda: best_of_k(guesses, target[:2]), "^guesses: expected"),
        (lambda: best_of_k(guesses[:, :0], target), "^guesses: expected"),
        (lambda: best_of_k(guesses, target, joint=-1), "^joint: expected"),
        (lambda: best_of_k(guesses, target, there.float()), "^valid: expected booleans"),
        (lambda: best_of_k(guesses, target, at="first"), "^at: expected"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            call()


def test_the_loss_of_images_is_what_their_structure_lacks():
    with np.load(GOLDEN / "ms_ssim.npz") as data:
        x, y = (torch.from_numpy(data[f"A_{key}"]).double() for key in "xy")
        np.testing.assert_allclose(ms_ssim_loss(x, y, reduction="none"), 1 - data["A_msssim"], rtol=1e-9)
    assert ms_ssim_loss(x, x) == pytest.approx(0, abs=1e-12)


def test_a_separator_of_separable_rows():
    truth = functional.normalize(normal(3), dim=0)
    rows = normal(200, 3, seed=1)
    rows = rows[(rows @ truth).abs() > 0.1]
    labels = (rows @ truth).sign()
    bound = (rows.norm(dim=1).max() / (rows @ truth).abs().min()) ** 2
    for rate in (math.inf, 0.1, 30.0):
        found = separate(rows, labels, rate=rate)
        assert found.converged
        assert (labels * (rows @ found.weights) > 0).all()
        torch.testing.assert_close(separate(rows, -labels, rate=rate).weights, -found.weights)
    perceptron = separate(rows, labels)
    assert perceptron.steps <= bound
    first = separate(rows, labels, rate=0.5, steps=1)
    torch.testing.assert_close(first.weights, 0.5 * (rows * labels[:, None]).mean(0))
    weights = step_weights(normal(5, seed=2) + 1e4)
    assert weights.sum() == pytest.approx(1)
    hopeless = separate(torch.tensor([[1.0], [1.0]]), torch.tensor([1, -1]), steps=20)
    assert (hopeless.converged, hopeless.steps) == (False, 20)


def test_a_large_rate_is_the_perceptron():
    rows = torch.randint(-9, 10, (40, 4), generator=torch.Generator().manual_seed(3)).double()
    rows[:, 3] = 1
    labels = torch.where(rows @ torch.tensor([3.0, -2.0, 1.0, 0.5], dtype=torch.float64) > 0, 1, -1)
    far, perceptron = separate(rows, labels, rate=1e6), separate(rows, labels)
    assert far.steps == perceptron.steps > 1
    torch.testing.assert_close(far.weights / 1e6, perceptron.weights)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: separate(torch.eye(2), torch.tensor([0, 1])), "^labels: expected 1 and -1"),
        (lambda: separate(torch.eye(2), torch.tensor([1])), "^labels: expected"),
        (lambda: separate(torch.eye(2), torch.tensor([1, -1]), rate=0.0), "^rate: expected"),
        (lambda: separate(torch.eye(2) / 0, torch.tensor([1, -1])), "^rows: expected finite"),
        (lambda: separate(torch.zeros(0, 2), torch.zeros(0)), "^rows: expected"),
    ],
)
def test_what_does_not_fit_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
