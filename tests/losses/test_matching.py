"""Promises of the matching losses, each over every link and combinator, or over every scaling."""

import math
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from references import curves
from vicinal import links, losses
from vicinal.core import entries
from vicinal.links import CompositeSoftmax
from vicinal.links.learned import learnable

pytestmark = pytest.mark.sweep(3)

GOLDEN = Path(__file__).parents[1] / "golden/sets"
each_link = pytest.mark.parametrize("case", curves.LINKS, ids=lambda c: c.name)
SCALINGS = {
    "exp": links.Exp(0.7, 0.2),
    "anti_exp": links.AntiExp(0.5),
    "sinh": links.Sinh(0.6, 0.3, 0.6),
    "sigmoid": links.Sigmoid(2.0, 0.5),
    "tanh": links.Tanh(),
    "identity": links.Identity(),
    "constant": links.Constant(),
    "smelu": links.SmeLUGrad(1.0),
    "sum": links.Sinh(0.5) + links.Sigmoid(),
    "capped": links.Exp().cap(-1.0, 1.0),
}
each_scaling = pytest.mark.parametrize("name", SCALINGS)


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def smooth_pairs(case, n=12):
    """Scores that are not near a kink of the link."""
    a, b = case.scores(200, 1), case.scores(200, 2)
    keep = torch.ones(200, dtype=torch.bool)
    for z in (a, b):
        left, right = case.curve.slope(z - 1e-4), case.curve.slope(z + 1e-4)
        jump = case.curve(z + 1e-4) - case.curve(z - 1e-4) - 1e-4 * (left + right)
        keep &= ((left - right).abs() < 2e-2 * (1 + left.abs())) & (jump.abs() < 1e-6 * (1 + left.abs()))
    return a[keep][:n].detach(), b[keep][:n].detach()


@each_link
def test_gradient_is_the_difference_of_link_values_exactly(case):
    a, b = case.scores(50, 1).requires_grad_(), case.scores(50, 2)
    losses.MatchingLoss(case.curve, reduction="sum")(a, b).backward()
    assert torch.equal(a.grad, (case.curve(a) - case.curve(b)).detach())


@each_link
def test_first_and_second_derivatives(case):
    a, b = smooth_pairs(case)
    loss = losses.MatchingLoss(case.curve, reduction="none")
    assert torch.autograd.gradcheck(loss, (a.requires_grad_(), b.requires_grad_()), atol=1e-6)
    (first,) = torch.autograd.grad(loss(a, b).sum(), a, create_graph=True)
    if first.requires_grad:
        (second,) = torch.autograd.grad(first.sum(), a)
        torch.testing.assert_close(second, case.curve.slope(a).detach())


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "sinh", "exp", "arctan", "log"])
def test_gradient_of_the_gradient_numerically(name):
    link = next(e for e in entries("link") if e.name == name).factory()
    a, b = (normal(6, seed=k).abs() + 0.2 for k in (1, 2))
    loss = losses.MatchingLoss(link)
    assert torch.autograd.gradgradcheck(loss, (a.requires_grad_(), b.requires_grad_()))


@each_link
def test_convex_in_the_prediction(case):
    a, c, b = case.scores(300, 1), case.scores(300, 2), case.scores(300, 3)
    t = torch.rand(300, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    loss = losses.MatchingLoss(case.curve, reduction="none")
    chord = t * loss(a, b) + (1 - t) * loss(c, b)
    assert bool((loss(t * a + (1 - t) * c, b) <= chord + 1e-9).all())


@each_link
def test_proper(case):
    """The best single prediction for a distribution of targets is h^-1 of the mean link value."""
    if not case.curve.is_invertible:
        pytest.skip("the link has no inverse")
    targets = case.scores(40, 7)
    best = case.curve.inverse(case.curve(targets).mean()).detach().requires_grad_()
    value = losses.MatchingLoss(case.curve)(best.expand(40), targets)
    (gradient,) = torch.autograd.grad(value, best)
    assert abs(gradient.item()) < 1e-8 * (1 + case.curve(targets).abs().mean().item())
    for other in (best.detach() + 0.05, best.detach() - 0.05):
        assert losses.MatchingLoss(case.curve)(other.expand(40), targets) >= value.detach()


@pytest.mark.parametrize("entry", entries("link"), ids=lambda e: e.name)
def test_bust_is_the_share_of_the_rise_that_a_step_takes(entry):
    """Definition 1, of the formulas in mpmath."""
    for own in curves.SETTINGS.get(entry.name, [{}]):
        link, base = entry.factory(**own), curves.FORMULAS[entry.name]
        low, high = curves.case("", link).scores(2, 3).sort().values.tolist()
        with mpmath.workdps(30):
            rise = base(mpmath.mpf(high), **own) - base(mpmath.mpf(low), **own)
        if rise == 0:
            with pytest.raises(ValueError, match=r"^link: expected one that rises"):
                links.bust(link, torch.tensor(low), 0.1, low, high)
            continue
        at = torch.linspace(low, high, 6, dtype=torch.float64)
        shares = []
        for w, after in zip(at[:-1].tolist(), at[1:].tolist(), strict=True):
            share = links.bust(link, torch.tensor(w, dtype=torch.float64), after - w, low, high).item()
            with mpmath.workdps(30):
                want = (base(mpmath.mpf(w) + (after - w), **own) - base(mpmath.mpf(w), **own)) / rise
            assert math.isclose(share, want, rel_tol=1e-9, abs_tol=1e-12)
            shares.append(share)
        assert math.isclose(sum(shares), 1, rel_tol=1e-9)
        narrow = at.float()
        tiny = links.bust(link, narrow, 1e-5, low, high)
        assert tiny.dtype == torch.float32
        torch.testing.assert_close(tiny.double(), links.bust(link, narrow.double(), 1e-5, low, high), rtol=1e-6, atol=0)
        if all(abs(k - w) > 1e-3 for w in at.tolist() for k in curves.KINKS.get(entry.name, ())):
            limit = links.bust(link, at, 1e-6, low, high) / 1e-6
            torch.testing.assert_close(limit, links.blust(link, at, low, high), rtol=1e-4, atol=1e-4)


def test_scale_and_shift_of_the_link_are_those_of_the_scores():
    a, b = normal(30, seed=1), normal(30, seed=2)
    for entry in entries("link"):
        if math.isfinite(entry.factory().domain[0]) or math.isfinite(entry.factory().domain[1]):
            continue
        plain, shaped = entry.factory(), entry.factory(scale=1.7, shift=0.4, amplitude=2.0)
        wanted = 2 / 1.7 * losses.MatchingLoss(plain)(1.7 * (a - 0.4), 1.7 * (b - 0.4))
        torch.testing.assert_close(losses.MatchingLoss(shaped)(a, b), wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@each_link
def test_never_below_zero_in_narrow_types(case, dtype):
    b = case.scores(400, 3, dtype)
    a = (b.double() + 1e-3 * normal(400, seed=4)).clamp(case.low, case.high).to(dtype)
    value = losses.MatchingLoss(case.curve, reduction="none")(a, b)
    assert value.dtype == dtype
    assert bool((value >= 0).all())


def test_large_inputs_go_through_blocks():
    a, b = normal(200_003, seed=1, dtype=torch.float32).requires_grad_(), normal(200_003, seed=2, dtype=torch.float32)
    link = links.Sinh(0.5)
    value = losses.MatchingLoss(link, reduction="none")(a, b)
    torch.testing.assert_close(value, link.divergence(a, b))
    turned = losses.MatchingLoss(link)(a[:200_000].view(400, 500).t(), b[:200_000].view(400, 500).t())
    torch.testing.assert_close(turned, value[:200_000].mean())


def test_learned_settings_get_gradients():
    a, b = normal(8, seed=1), normal(8, seed=2)
    raw = torch.tensor([0.3, -0.2, 0.4], dtype=torch.float64, requires_grad=True)

    def through(raw):
        return losses.MatchingLoss(links.Sigmoid(raw[0].exp(), raw[1], raw[2].exp()))(a, b)

    assert torch.autograd.gradcheck(through, (raw,))
    assert torch.autograd.gradgradcheck(through, (raw,))
    knots = torch.tensor([-1.0, 0.2, 1.5], dtype=torch.float64, requires_grad=True)
    values = torch.tensor([-1.0, 0.0, 3.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda k, v: losses.MatchingLoss(links.Piecewise(k, v))(a, b), (knots, values))


def test_learned_modules_get_gradients():
    a, b = normal(8, seed=1), normal(8, seed=2)
    for link in (learnable(links.Sinh(0.7)).double(), links.MonotoneNet(3).double()):
        parameters = list(link.parameters())
        got = torch.autograd.grad(losses.MatchingLoss(link, reduction="sum")(a, b), parameters)
        closed = (link.primitive(a) - link.primitive(b) - (a - b) * link(b)).sum()
        for one, other in zip(got, torch.autograd.grad(closed, parameters), strict=True):
            torch.testing.assert_close(one, other)


@each_scaling
@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_composite_softmax_is_its_closed_form(name, gamma):
    scaling = SCALINGS[name]
    a, b = normal(40, 5, seed=1).requires_grad_(), normal(40, 5, seed=2)
    value = losses.CompositeSoftmaxMatchingLoss(scaling, gamma, reduction="none")(a, b)
    link = CompositeSoftmax(scaling, gamma)
    closed = link.primitive(a) - link.primitive(b) - ((a - b) * link(b)).sum(-1)
    torch.testing.assert_close(value, closed)
    (gradient,) = torch.autograd.grad(value.sum(), a)
    torch.testing.assert_close(gradient, (link(a) - link(b)).detach(), rtol=1e-12, atol=1e-13)
    (of_primitive,) = torch.autograd.grad(link.primitive(a).sum(), a)
    torch.testing.assert_close(of_primitive, link(a).detach())


@each_scaling
def test_composite_softmax_derivatives(name):
    a, b = normal(3, 4, seed=1).requires_grad_(), normal(3, 4, seed=2).requires_grad_()
    loss = losses.CompositeSoftmaxMatchingLoss(SCALINGS[name], 0.8)
    assert torch.autograd.gradcheck(loss, (a, b), atol=1e-6)
    if name not in ("smelu", "capped"):
        assert torch.autograd.gradgradcheck(loss, (a, b))


@each_scaling
def test_composite_softmax_hessian_is_positive_semidefinite(name):
    loss = losses.CompositeSoftmaxMatchingLoss(SCALINGS[name], 0.7)
    assert loss.verdict.convex == "jointly"
    link = loss.link
    for seed in range(5):
        z = 1.5 * normal(4, seed=seed)
        hessian = torch.autograd.functional.jacobian(lambda x: link(x[None])[0], z)
        torch.testing.assert_close(hessian, hessian.T)
        assert torch.linalg.eigvalsh(hessian).min() > -1e-10
        torch.testing.assert_close(hessian.diagonal(), links.class_slope(SCALINGS[name], z, 0.7))
        direction = normal(4, seed=seed + 50)
        torch.testing.assert_close(link.curvature_times(z, direction), hessian @ direction)


def test_a_falling_scaling_is_convex_in_each_score_only():
    loss = losses.CompositeSoftmaxMatchingLoss(links.Cosh(), 0.7)
    assert loss.verdict.convex == "each"
    z = torch.full((2,), -1.0, dtype=torch.float64)
    hessian = torch.autograd.functional.jacobian(lambda x: loss.link(x[None])[0], z)
    assert torch.linalg.eigvalsh(hessian).min() < -0.1
    assert hessian.diagonal().min() > 0


@pytest.mark.parametrize("gamma", [0.5, 0.7])
def test_composite_sigmoid_of_cosh_is_convex(gamma):
    link = losses.CompositeSigmoidMatchingLoss(links.Cosh(), gamma).link
    z = torch.linspace(-6, 6, 2001, dtype=torch.float64)
    assert bool((link.slope(z) >= 0).all())
    assert bool((link(z).diff() >= 0).all())


@pytest.mark.parametrize(
    "loss",
    [
        losses.CompositeSoftmaxMatchingLoss(links.Exp(), 0.7),
        losses.SoftmaxMatchingLoss(bias=0.5),
        losses.DecomposedMatchingLoss(links.Sinh()),
        losses.PointwiseRankingLoss(),
        losses.PairwiseRankingLoss(),
        losses.CompositeSoftmaxCrossEntropy(links.Tanh()),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_class_mask_equals_leaving_out(loss):
    a, b = normal(3, 6, seed=1), normal(3, 6, seed=2)
    valid = torch.ones(3, 6, dtype=torch.bool)
    valid[0, 4:], valid[1, 0], valid[2] = False, False, False
    hidden = torch.where(valid, a, torch.nan).requires_grad_()
    value = loss(hidden, torch.where(valid, b, torch.inf), valid=valid)
    kept = torch.stack([loss(a[:1, :4], b[:1, :4]), loss(a[1:2, 1:], b[1:2, 1:])]).mean()
    torch.testing.assert_close(value, kept)
    (gradient,) = torch.autograd.grad(value, hidden)
    assert bool(gradient.isfinite().all())
    assert bool((gradient[~valid] == 0).all())


def test_bias_and_one_class_is_the_sigmoid():
    a, b = normal(9, seed=1), normal(9, seed=2)
    softmax = losses.SoftmaxMatchingLoss(1.7, 0.3, bias=1.0, reduction="none")
    wanted = 1.7 * losses.MatchingLoss(links.Sigmoid(1.7, 0.3), reduction="none")(a, b)
    torch.testing.assert_close(softmax(a[:, None], b[:, None]), wanted)
    composite = losses.CompositeSoftmaxMatchingLoss(links.Sinh(), 0.6, bias=1.0)(a[:, None], b[:, None])
    torch.testing.assert_close(composite, losses.CompositeSigmoidMatchingLoss(links.Sinh(), 0.6)(a, b))


def test_softmax_matching_is_kl():
    a, b = normal(5, 4, seed=1), normal(5, 4, seed=2)
    wanted = torch.nn.functional.kl_div((2 * a).log_softmax(-1), (2 * b).softmax(-1), reduction="batchmean")
    torch.testing.assert_close(losses.SoftmaxMatchingLoss(2.0)(a, b), wanted)
    torch.testing.assert_close(losses.SoftmaxMatchingLoss(2.0, beta=3.0)(a, b), wanted)


def test_the_softmax_loss_is_e9_with_alpha_beta_gamma_and_rho():
    """E.7 to E.9 in numpy, and the gradient E.10, which is that of cross-entropy."""
    alpha, beta, gamma, rho = 1.4, -0.3, 0.6, np.array([0.5, 1.0, 3.0])
    a, b = normal(6, 3, seed=1), normal(6, 3, seed=2)

    def mass(z):
        return rho ** (1 / gamma) * np.exp(alpha * (z - beta) / gamma)

    def primitive(z):
        return gamma * np.log(mass(z).sum(-1))

    def p_of(z):
        return mass(z) / mass(z).sum(-1, keepdims=True)

    x, s = a.numpy(), b.numpy()
    wanted = primitive(x) - primitive(s) - alpha * ((x - s) * p_of(s)).sum(-1)
    loss = losses.SoftmaxMatchingLoss(alpha, beta, gamma, rho=rho.tolist(), reduction="none")
    moving = a.clone().requires_grad_()
    value = loss(moving, b)
    np.testing.assert_allclose(value.detach().numpy(), wanted, rtol=1e-10)
    (gradient,) = torch.autograd.grad(value.sum(), moving)
    np.testing.assert_allclose(gradient.numpy(), alpha * (p_of(x) - p_of(s)), rtol=1e-9, atol=1e-12)
    entropy = losses.CompositeSoftmaxCrossEntropy(
        links.Constant(alpha, beta), gamma, class_bias=(np.log(rho) / gamma).tolist(), reduction="sum"
    )
    (of_entropy,) = torch.autograd.grad(entropy(moving, b), moving)
    torch.testing.assert_close(gamma * of_entropy, gradient)
    with pytest.raises(ValueError, match=r"^rho: expected finite numbers above 0"):
        losses.SoftmaxMatchingLoss(rho=[1.0, 0.0])


@each_scaling
def test_close_rows_keep_their_digits(name):
    scaling = SCALINGS[name]
    b = normal(200, 20, seed=1, dtype=torch.float32)
    a = b + 1e-3 * normal(200, 20, seed=2, dtype=torch.float32)
    loss = losses.CompositeSoftmaxMatchingLoss(scaling, 0.8, reduction="none")
    value = loss(a, b)
    assert bool((value >= 0).all())
    torch.testing.assert_close(value.double(), loss(a.double(), b.double()), rtol=2e-3, atol=1e-12)
    assert bool((loss(b, b) == 0).all())


def test_far_rows_are_finite():
    loss = losses.CompositeSoftmaxMatchingLoss(links.Constant(), reduction="none")
    a = torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, 0.0]], dtype=torch.float64, requires_grad=True)
    value = loss(a, a.detach().flip(0))
    torch.testing.assert_close(value, torch.tensor([2e4, 2e4], dtype=torch.float64))
    masked = loss(a, a.detach().flip(0), valid=torch.ones(2, 3, dtype=torch.bool))
    torch.testing.assert_close(masked, value)


def test_potential_against_its_released_code():
    with np.load(GOLDEN / "learned_proximal_network.npz") as stored:
        data = {k: torch.from_numpy(v) for k, v in stored.items() if v.dtype.kind != "U"}
    net = links.ConvexPotential(3, 8, 3, beta=10.0, strength=0.0).double()

    def raw(weight):
        return weight + torch.log(-torch.expm1(-weight))

    with torch.no_grad():
        net.first.weight.copy_(data["w.lin.0.weight"])
        net.first.bias.zero_()
        for k in (0, 1):
            net.hidden[k].copy_(raw(data[f"w.lin.{k + 1}.weight"]))
            net.skips[k].weight.copy_(data[f"w.res.{k}.weight"])
            net.skips[k].bias.copy_(data[f"w.res.{k}.bias"])
        net.last.copy_(raw(data["w.lin.3.weight"][0]))
        net.last_skip.weight.copy_(data["w.res.2.weight"])
    torch.testing.assert_close(net(data["x"]).detach(), data["out"], rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(
        net.primitive(data["x"]) + data["w.res.2.bias"], data["scalar"][:, 0], rtol=1e-9, atol=1e-10
    )
    for sigma in (0.1, 1.0, 3.0):
        value = losses.ProximalMatchingLoss(sigma)(data["out"], data["target"])
        torch.testing.assert_close(value, data[f"prox_matching_sigma{sigma}"])


def test_potential_loss_is_a_bregman_divergence():
    torch.manual_seed(0)
    net = links.ConvexPotential(3, 6).double()
    a, b = normal(5, 3, seed=1).requires_grad_(), normal(5, 3, seed=2).requires_grad_()
    loss = losses.PotentialMatchingLoss(net)
    assert torch.autograd.gradcheck(loss, (a, b))
    assert torch.autograd.gradgradcheck(loss, (a, b))
    parameters = list(net.parameters())
    closed = (net.primitive(a) - net.primitive(b) - ((a - b) * net(b)).sum(-1)).mean()
    for one, other in zip(
        torch.autograd.grad(loss(a, b), parameters), torch.autograd.grad(closed, parameters), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)
    assert bool(((net(a) - net(b)) * (a - b)).sum(-1).min() > 0)


def test_two_weights_that_cannot_fit_all_labels_fit_those_that_the_link_is_steep_at():
    """Figure F.1: 20 low labels that are x_2 and 10 high ones that are x_1, at the optimum of numpy."""
    rows = [(other, s, s) for s in range(-10, 0) for other in (1, 3)]
    rows += [(s, other, s) for s in range(6, 11) for other in (1, 3)]
    table = np.array(rows, float)
    x, s = table[:, :2], table[:, 2]

    def mean_loss(w, shift):
        z = x @ w - shift
        return (np.logaddexp(0, z) - np.logaddexp(0, s - shift) - (z - (s - shift)) / (1 + np.exp(shift - s))).mean()

    for shift, exact in ((8.0, "high"), (-8.0, "low")):
        best = minimize(mean_loss, np.array([0.5, 0.5]), (shift,), method="BFGS", options={"gtol": 1e-10}).x
        errors = {name: np.sqrt(((x @ best - s)[part] ** 2).mean()) for name, part in (("high", s > 0), ("low", s < 0))}
        other = {"high": "low", "low": "high"}[exact]
        assert errors[exact] < 0.15
        assert errors[other] > 6
        weight = torch.from_numpy(best).requires_grad_()
        loss = losses.MatchingLoss(links.Sigmoid(shift=shift))(torch.from_numpy(x) @ weight, torch.from_numpy(s))
        assert loss.item() == pytest.approx(mean_loss(best, shift), rel=1e-6)
        assert torch.autograd.grad(loss, weight)[0].abs().max() < 1e-5
