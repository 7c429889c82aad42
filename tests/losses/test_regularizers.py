"""Regularizers of embeddings."""

import inspect

import numpy as np
import pytest
import torch

from references import listed_losses as reference
from vicinal import losses
from vicinal.core import entries
from vicinal.losses import energy_confusion, temperature_penalty, zero_mean
from vicinal.losses.contract import own_settings
from vicinal.similarity import NegativeSNR

LABELS = torch.tensor([4, 4, 7, 7, 7, 9, 4, 9])


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


CLASSES = torch.tensor([0, 0, 1, 1, 1, 2, 0, 2])
CALLS = {  # of embeddings [8, 3]
    "block_contrast": lambda x: losses.block_contrast(x, torch.eye(3)[CLASSES], torch.ones(8, 8)),
    "cauchy_schwarz": losses.cauchy_schwarz,
    "coding_rate": losses.coding_rate,
    "distance_covariance": lambda x: losses.distance_covariance(x, CLASSES.float()),
    "energy_confusion": lambda x: energy_confusion(x, LABELS),
    "equal_rates": lambda x: losses.equal_rates(
        x[:, 0].to(torch.promote_types(x.dtype, torch.float32)).sigmoid(), CLASSES
    ),
    "flops": losses.flops,
    "group_orthogonality": losses.group_orthogonality,
    "joint_distance_covariance": lambda x: losses.joint_distance_covariance(x, [CLASSES.float()]),
    "mcr2": lambda x: losses.mcr2(x, CLASSES),
    "neural_collapse": lambda x: losses.neural_collapse(x, CLASSES, torch.eye(3)),
    "rationale_invariance": lambda x: losses.RationaleInvariance(3, 3)(x, CLASSES, torch.ones(3, 3)),
    "t_regs": losses.t_regs,
    "temperature_penalty": lambda x: temperature_penalty(x.exp(), 4),
    "zero_mean": zero_mean,
}
each = pytest.mark.parametrize("entry", entries("regularizer"), ids=lambda e: e.name)


def test_all_that_are_registered_are_tested_here():
    assert {entry.name for entry in entries("regularizer")} == set(CALLS)
    assert all(entry.verified and entry.paper for entry in entries("regularizer"))


@each
def test_gradients_and_half_precision(entry):
    if entry.name != "rationale_invariance":  # its average moves with the features, and passes no gradient
        assert torch.autograd.gradcheck(CALLS[entry.name], (normal(5, 8, 3).requires_grad_(),), fast_mode=True)
    half = normal(5, 8, 3).bfloat16()
    value = CALLS[entry.name](half)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, CALLS[entry.name](half.float()))


@each
def test_rows_that_are_equal_or_very_long_have_finite_gradients(entry):
    for x in (torch.zeros(8, 3), torch.ones(8, 3), 1e4 * normal(6, 8, 3).float()):
        if entry.name == "temperature_penalty":
            x = x.clamp(-30, 30)
        x.requires_grad_()
        value = CALLS[entry.name](x)
        value.backward()
        assert value.isfinite()
        assert x.grad.isfinite().all()


@each
def test_each_tells_its_formula_and_settings(entry):
    doc = inspect.getdoc(entry.factory)
    assert "$" in doc
    assert all(f"\n    {name}: " in doc for name in own_settings(entry.factory))
    assert ("econstructed" in doc) == ("reconstructed" in entry.verified)


def test_energy_confusion_equals_the_sum_over_pairs_and_its_identity():
    x = normal(0, 8, 3)
    value = energy_confusion(x, LABELS)
    assert value.item() == pytest.approx(reference.energy_confusion(x.numpy(), LABELS.numpy()), rel=1e-12)
    some = torch.tensor([[4, 9], [9, 7]])
    apart = []
    for a, b in some.tolist():
        mine, theirs = x[a == LABELS], x[b == LABELS]
        want = (mine.mean(0) - theirs.mean(0)).square().sum()
        want += sum(rows.var(0, correction=0).sum() for rows in (mine, theirs))
        apart.append(want)
        np.testing.assert_allclose(want, (mine[:, None] - theirs).square().sum(-1).mean())
    torch.testing.assert_close(energy_confusion(x, LABELS, class_pairs=some), torch.stack(apart).mean())
    every = torch.tensor([[4, 7], [4, 9], [7, 9]])
    torch.testing.assert_close(energy_confusion(x, LABELS, class_pairs=every), value)
    torch.testing.assert_close(energy_confusion(x, LABELS, factor=0.3), 0.3 * value)
    assert energy_confusion(x, LABELS, factor=0) == 0


def test_gradient_of_energy_confusion():
    x = normal(1, 8, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda rows: energy_confusion(rows, LABELS), (x,))
    two = torch.tensor([0, 0, 0, 1, 1, 1, 1, 1])
    energy_confusion(x, two).backward()
    with torch.no_grad():
        torch.testing.assert_close(x.grad[:3], 2 * (x[:3] - x[3:].mean(0)) / 3)


def test_energy_confusion_is_invariant_and_0_only_where_all_rows_are_one():
    x = normal(2, 8, 3)
    value = energy_confusion(x, LABELS)
    turn = torch.linalg.qr(normal(3, 3, 3)).Q
    torch.testing.assert_close(energy_confusion(x @ turn + 5, LABELS), value)
    torch.testing.assert_close(energy_confusion((x + 3000).float(), LABELS), value.float(), rtol=2e-3, atol=0)
    assert energy_confusion(torch.ones(8, 3), LABELS) == 0
    assert energy_confusion(torch.ones(8, 3) + torch.eye(8, 3), LABELS) > 0
    order = torch.tensor([5, 2, 7, 0, 1, 6, 3, 4])
    torch.testing.assert_close(energy_confusion(x[order], LABELS[order]), value)
    half = energy_confusion(x.bfloat16(), LABELS)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, value.float(), rtol=0.02, atol=0)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda x: energy_confusion(x, LABELS * 0), "^labels: expected at least two classes, got 1"),
        (lambda x: energy_confusion(x, LABELS[:3]), r"^labels: expected whole numbers \[8\]"),
        (lambda x: energy_confusion(x, LABELS, factor=-1), "^factor: expected a number of at least 0"),
        (lambda x: energy_confusion(x, LABELS, class_pairs=torch.tensor([[4, 4]])), r"^class_pairs: .*got \[4, 4\]"),
        (lambda x: energy_confusion(x, LABELS, class_pairs=torch.tensor([[4, 5]])), r"^class_pairs: .*got \[4, 5\]"),
        (lambda x: energy_confusion(x, LABELS, class_pairs=torch.tensor([4, 7])), r"^class_pairs: expected whole"),
        (lambda x: zero_mean(x, factor=-1), "^factor: expected a number of at least 0"),
        (lambda x: temperature_penalty(x, 4, factor=-1), "^factor: expected a number of at least 0"),
    ],
)
def test_what_does_not_fit_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call(normal(0, 8, 3))


def test_zero_mean():
    x = normal(4, 8, 3)
    assert zero_mean(x, factor=0.5).item() == pytest.approx(reference.zero_mean(x.numpy(), 0.5), rel=1e-12)
    assert torch.autograd.gradcheck(zero_mean, (x.requires_grad_(),))
    centered = (x - x.mean(1, keepdim=True)).detach()
    assert zero_mean(centered) < 1e-12
    want = -torch.cdist(centered, centered).square() / centered.square().sum(1, keepdim=True)
    torch.testing.assert_close(NegativeSNR()(centered, centered), want)
    assert zero_mean(x[:0]) == 0
