"""Matching losses at poles and ends of their links: finite where the formula is, and no pair spoils a batch."""

import itertools
import math

import pytest
import torch

from references import exact_curves
from vicinal import links, losses

pytestmark = pytest.mark.sweep(4)

ROOT, ARC = links.SignedPower(0.5), links.Arcsin()
SINGULAR = {  # link, and scores at which its slope is infinite
    "signed_power": (ROOT, [0.0]),
    "signed_power, shaped": (links.SignedPower(0.25, 2.0, 0.5, 1.5), [0.5]),
    "power": (links.Power(0.5), [0.0]),
    "power, shaped": (links.Power(0.75, 0.5, -1.0), [-1.0]),
    "arcsin": (ARC, [-1.0, 1.0]),
    "arcsin, shaped": (links.Arcsin(0.5, 1.0), [-1.0, 3.0]),
    "flip": (links.Power(0.5).flip(), [0.0]),
    "sum": (ROOT + links.Sinh(0.5), [0.0]),
    "multiple": (0.5 * ARC, [-1.0, 1.0]),
    "cap": (ROOT.cap(-1.0, 1.0), [0.0]),
}
each = pytest.mark.parametrize("name", SINGULAR)
each_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
SCALINGS = {
    "signed_power": (ROOT + links.Constant(), [0.0]),
    "power": (links.Power(0.5) + links.Constant(amplitude=0.5), [0.0]),
    "arcsin": (ARC, [-1.0, 1.0]),
    "cap": (ROOT.cap(-1.0, 1.0), [0.0]),
}
each_scaling = pytest.mark.parametrize("name", SCALINGS)


def scores(curve, poles, dtype):
    """The poles, their neighbors, and others; as far as they lie in the domain."""
    at, far = torch.tensor(poles, dtype=dtype), torch.tensor(math.inf, dtype=dtype)
    others = torch.tensor([-0.75, -0.25, 0.25, 0.5, 0.875], dtype=dtype)
    z = torch.cat([at, torch.nextafter(at, far), torch.nextafter(at, -far), others]).unique()
    return z[(z >= curve.domain[0]) & (z <= curve.domain[1])]


def pairs(curve, poles, dtype):
    z = scores(curve, poles, dtype)
    return (each.clone().requires_grad_() for each in torch.cartesian_prod(z, z).unbind(-1))


def check(loss, curve, a, b, poles):
    """Value and gradients of all pairs apart, and of their mean; the target's is infinite at a pole alone."""
    for_a, for_b = torch.autograd.grad(loss.sum(), (a, b), retain_graph=True)
    assert bool((loss >= 0).all())
    assert bool(loss.isfinite().all())
    assert torch.equal(loss == 0, (a == b) | (loss < 1e-30))
    torch.testing.assert_close(for_a, curve.rise(a, b).detach())
    pole = torch.stack([b == score for score in poles]).any(0) & (a != b)
    assert torch.equal(for_b.isinf(), pole)
    assert not bool(for_b.isnan().any())
    assert bool((for_b[pole].sign() == (b - a)[pole].sign()).all())


@each
@each_dtype
def test_matching_losses(name, dtype):
    curve, poles = SINGULAR[name]
    a, b = pairs(curve, poles, dtype)
    check(losses.MatchingLoss(curve, reduction="none")(a, b), curve, a, b, poles)
    mean = losses.MatchingLoss(curve)(a, b)
    by_mean = torch.autograd.grad(mean, (a, b))
    apart = torch.autograd.grad(losses.MatchingLoss(curve, reduction="none")(a, b).mean(), (a, b))
    torch.testing.assert_close(by_mean, apart)
    for made in (losses.DecomposedMatchingLoss(curve), losses.PointwiseRankingLoss(curve)):
        value = made(a[:, None], b[:, None])
        torch.testing.assert_close(value, mean)
        torch.testing.assert_close(torch.autograd.grad(value, (a, b)), by_mean)


@each
def test_a_pair_that_does_not_count_adds_nothing(name):
    """By its weight, or as not valid: also where its gradient, or its score, would be infinite or undefined."""
    curve, poles = SINGULAR[name]
    inside = scores(curve, [], torch.float64)[:2].tolist()
    a = torch.tensor([*inside, inside[0], poles[0]], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([*reversed(inside), poles[0], poles[0]], dtype=torch.float64, requires_grad=True)
    kept = torch.tensor([1.0, 2.0, 0.0, 0.0], dtype=torch.float64)
    want = losses.MatchingLoss(curve)(a[:2], b[:2], kept[:2])
    wanted = torch.autograd.grad(want, (a, b))
    for reduction in ("mean", "none", "mean_nonzero"):
        value = losses.MatchingLoss(curve, reduction=reduction)(a, b, kept)
        value = value.sum() / 3 if reduction == "none" else value
        torch.testing.assert_close(value, want)
        torch.testing.assert_close(torch.autograd.grad(value, (a, b)), wanted)
    spoiled = a.detach().clone()
    spoiled[2], spoiled[3] = math.nan, math.inf
    spoiled.requires_grad_()
    value = losses.MatchingLoss(curve)(spoiled, b, kept, valid=kept > 0)
    torch.testing.assert_close(value, want)
    torch.testing.assert_close(torch.autograd.grad(value, (spoiled, b)), wanted)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none", "mean_nonzero"])
def test_an_infinite_loss_of_no_weight_is_nothing(reduction):
    """Values of exp overflow; the pair is left out, and what is left is as without it."""
    a = torch.tensor([1.0, 1e3, 0.0], requires_grad=True)
    b = torch.tensor([0.0, 0.0, 2.0], requires_grad=True)
    loss = losses.MatchingLoss(links.Exp(), reduction=reduction)
    got = loss(a, b, torch.tensor([1.0, 0.0, 1.0]))
    want = loss(a[::2], b[::2], torch.ones(2))
    torch.testing.assert_close(got.sum(), want.sum())
    for one, other in zip(*(torch.autograd.grad(value.sum(), (a, b)) for value in (got, want)), strict=True):
        torch.testing.assert_close(one, other)
    weight = torch.tensor([1.0, 0.0, 1.0], requires_grad=True)
    (for_weight,) = torch.autograd.grad(loss(a, b, weight).sum(), weight)
    assert bool(for_weight.isfinite().all())


def test_an_overflow_is_infinite_and_not_undefined():
    a, b = torch.tensor([1e3, 1e3, 1e3, 0.0]), torch.tensor([1e3, 999.0, 0.0, 1e3])
    a.requires_grad_()
    loss = losses.MatchingLoss(links.Exp(), reduction="none")(a, b)
    assert loss.tolist() == [0.0, math.inf, math.inf, math.inf]
    assert torch.autograd.grad(loss.sum(), a)[0].tolist() == [0.0, math.inf, math.inf, -math.inf]


@each_scaling
@pytest.mark.parametrize("gamma", [0.5, 2.0])
@each_dtype
def test_composite_sigmoid(name, gamma, dtype):
    scaling, poles = SCALINGS[name]
    made = losses.CompositeSigmoidMatchingLoss(scaling, gamma, reduction="none")
    a, b = pairs(scaling, poles, dtype)
    loss = made(a, b)
    for_a, for_b = torch.autograd.grad(loss.sum(), (a, b))
    rows = [exact_curves.sigmoid_divergence(scaling, gamma, x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    value, rise, steep = torch.tensor(rows, dtype=torch.float64).to(dtype).unbind(-1)
    tight = {"rtol": 1e-10, "atol": 1e-14} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-6}
    torch.testing.assert_close(loss, value, **tight)
    torch.testing.assert_close(for_a, rise, **tight)
    torch.testing.assert_close(for_b, steep, **tight)
    assert bool(losses.CompositeSigmoidMatchingLoss(scaling, gamma)(a, b).isfinite())


@each_scaling
@each_dtype
def test_composite_softmax(name, dtype):
    scaling, poles = SCALINGS[name]
    z = scores(scaling, poles, dtype)[:6]
    rows = torch.cartesian_prod(z, z)
    a, b = (torch.stack(each) for each in zip(*itertools.product(rows, rows), strict=True))
    some = torch.arange(0, len(a), 7)
    a, b = a[some].requires_grad_(), b[some].requires_grad_()
    loss = losses.CompositeSoftmaxMatchingLoss(scaling, 0.5, reduction="none")(a, b)
    for_a, for_b = torch.autograd.grad(loss.sum(), (a, b))
    wanted = [exact_curves.softmax_divergence(scaling, 0.5, x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    value, rise, steep = (torch.tensor(each, dtype=torch.float64).to(dtype) for each in zip(*wanted, strict=True))
    tight = {"rtol": 1e-9, "atol": 1e-14} if dtype == torch.float64 else {"rtol": 1e-3, "atol": 2e-6}
    torch.testing.assert_close(loss, value, **tight)
    torch.testing.assert_close(for_a, rise, **tight)
    torch.testing.assert_close(for_b, steep, **tight)
    valid = torch.ones_like(a, dtype=torch.bool)
    valid[:, 1] = False
    hidden = [torch.where(valid, each, math.nan).detach().requires_grad_() for each in (a, b)]
    value = losses.CompositeSoftmaxMatchingLoss(scaling, 0.5)(*hidden, valid=valid)
    for gradient in torch.autograd.grad(value, hidden):
        assert not bool(gradient.isnan().any())
        assert bool((gradient[~valid] == 0).all())


@pytest.mark.parametrize("link", [ROOT, ROOT.cap(-2.0, 2.0), ROOT + links.Sinh(0.5), ARC], ids=repr)
def test_pairs_of_a_list_that_are_tied(link):
    a = torch.tensor([[0.25, 0.25, 0.0, -0.25]], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([[0.25, 0.25, -0.25, -0.25]], dtype=torch.float64)
    value = losses.PairwiseRankingLoss(link)(a, b)
    first, second = torch.triu_indices(4, 4, 1)
    differences = [each[0, first] - each[0, second] for each in (a, b)]
    torch.testing.assert_close(value, link.divergence(*differences).mean())
    (gradient,) = torch.autograd.grad(value, a)
    assert bool(gradient.isfinite().all())
    chosen = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    value = losses.PreferenceMatchingLoss(1.0, link)(chosen, torch.zeros(3).double(), torch.zeros(3).double())
    assert value == 0
    assert bool((torch.autograd.grad(value, chosen)[0] == 0).all())


@each
def test_reweighted_squares(name):
    """Its weight is infinite at a pole: so is the loss, but for a prediction that is right."""
    curve, poles = SINGULAR[name]
    a, b = pairs(curve, poles, torch.float64)
    loss = losses.ReweightedSquaredLoss(curve, reduction="none")(a, b)
    pole = torch.stack([b == score for score in poles]).any(0)
    assert torch.equal(loss.isinf(), pole & (a != b))
    assert bool((loss[a == b] == 0).all())
    kept = (curve.slope(b) < 1e8) | (pole & (a == b))
    for_a, for_b = torch.autograd.grad(
        losses.ReweightedSquaredLoss(curve, reduction="sum")(a, b, kept.double()), (a, b)
    )
    assert bool(for_a.isfinite().all())
    assert bool(for_b.isfinite().all())
    want = curve.slope(b) * (a - b)
    torch.testing.assert_close(for_a[kept & (a != b)], want[kept & (a != b)].detach())


@each_scaling
@pytest.mark.parametrize("kind", [losses.CompositeSigmoidCrossEntropy, losses.CompositeSoftmaxCrossEntropy])
def test_cross_entropies_of_scaled_scores(name, kind):
    scaling, poles = SCALINGS[name]
    z = scores(scaling, poles, torch.float64)
    a, b = (each.clone().requires_grad_() for each in torch.cartesian_prod(z, z).unbind(-1))
    rows = [each[:, None].expand(-1, 2) for each in (a, b)]
    for_a, for_b = torch.autograd.grad(kind(scaling, 0.5)(*rows), (a, b))
    assert bool(for_a.isfinite().all())
    assert bool(for_b.isfinite().all())
