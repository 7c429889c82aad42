"""Weights of squares by the prediction (E.1), biases of classes (E.3), and condition G.2 in the transform."""

import numpy as np
import pytest
import torch

from vicinal import links, losses
from vicinal.losses import validity
from vicinal.losses.validity import transform_margin

GENERATOR = torch.Generator().manual_seed(0)
SCORES = torch.randn(6, 4, generator=GENERATOR, dtype=torch.float64)
TARGETS = torch.randn(6, 4, generator=GENERATOR, dtype=torch.float64)
BIAS = [0.7, -0.4, 0.0, 1.1]
LINKS = {"sigmoid": links.Sigmoid(2.0), "sinh": links.Sinh(), "exp": links.Exp(0.7), "tanh": links.Tanh()}
SLOPES = {
    "sigmoid": lambda z: 2 / (1 + np.exp(-2 * z)) / (1 + np.exp(2 * z)),
    "sinh": np.cosh,
    "exp": lambda z: 0.7 * np.exp(0.7 * z),
    "tanh": lambda z: 1 / np.cosh(z) ** 2,
}
PRIMITIVES = {
    "sigmoid": lambda z: np.log1p(np.exp(2 * z)) / 2,
    "sinh": np.cosh,
    "exp": lambda z: np.exp(0.7 * z) / 0.7,
    "tanh": lambda z: np.log(np.cosh(z)),
}


@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("weigh_by", ["observed", "predicted", "both"])
def test_squares_are_weighed_by_the_slope_at_the_target_or_at_the_prediction(name, weigh_by):
    loss = losses.ReweightedSquaredLoss(LINKS[name], weigh_by=weigh_by, reduction="none")
    a, b = SCORES.numpy(), TARGETS.numpy()
    of_target, of_prediction = SLOPES[name](b), SLOPES[name](a)
    weight = {"observed": of_target, "predicted": of_prediction, "both": of_target * of_prediction}[weigh_by]
    want = weight * (a - b) ** 2 / 2
    torch.testing.assert_close(loss(SCORES, TARGETS), torch.from_numpy(want))
    assert torch.autograd.gradcheck(lambda z: loss(z, TARGETS), SCORES.clone().requires_grad_())


def test_only_weights_of_the_target_keep_the_loss_convex():
    """A prediction far from a target of 2 is nearly free where the link is flat: the weight there is that of -9."""
    z = torch.linspace(-9, 3, 200, dtype=torch.float64)
    bends = {}
    for weigh_by in ("observed", "predicted", "both"):
        loss = losses.ReweightedSquaredLoss(links.Exp(), weigh_by=weigh_by, reduction="none")
        bends[weigh_by] = loss(z, torch.full_like(z, 2.0)).diff().diff().min()
    assert bends["observed"] > 0
    assert max(bends["predicted"], bends["both"]) < -1e-3
    with pytest.raises(ValueError, match=r"^weigh_by: expected one of 'observed', 'predicted', 'both', got 'all'"):
        losses.ReweightedSquaredLoss(links.Exp(), weigh_by="all")
    outside, inside = torch.tensor([-1.0]), torch.tensor([1.0])
    for weigh_by in ("predicted", "both"):
        with pytest.raises(ValueError, match=r"^prediction: "):
            losses.ReweightedSquaredLoss(links.Log(), weigh_by=weigh_by)(outside, inside)
    with pytest.raises(ValueError, match=r"^target: "):
        losses.ReweightedSquaredLoss(links.Log(), weigh_by="both")(inside, outside)
    both = losses.ReweightedSquaredLoss(links.Power(0.5), weigh_by="both", reduction="sum")  # infinite slopes at 0
    zeros = torch.zeros(2, requires_grad=True)
    value = both(zeros, torch.zeros(2))
    assert value == 0
    assert torch.autograd.grad(value, zeros)[0].tolist() == [0.0, 0.0]


def masses(name, z, gamma):
    return np.exp(PRIMITIVES[name](z) / gamma + np.array(BIAS))


@pytest.mark.parametrize("gamma", [0.6, 1.0, 2.0])
@pytest.mark.parametrize("rest", [0.0, 1.5])
@pytest.mark.parametrize("name", LINKS)
def test_a_bias_of_each_class_adds_to_its_logit(name, gamma, rest):
    link = links.CompositeSoftmax(LINKS[name], gamma, rest, BIAS)
    a, b = SCORES.numpy(), TARGETS.numpy()
    mass = masses(name, b, gamma)
    q = LINKS[name](TARGETS).numpy()
    h = q * mass / (rest + mass.sum(-1, keepdims=True))
    torch.testing.assert_close(link(TARGETS), torch.from_numpy(h))

    def potential(z):
        return gamma * np.log(rest + masses(name, z, gamma).sum(-1))

    want = potential(a) - potential(b) - ((a - b) * h).sum(-1)
    options = {"bias": rest, "class_bias": BIAS}
    loss = losses.CompositeSoftmaxMatchingLoss(LINKS[name], gamma, reduction="none", **options)
    valid = torch.ones(6, 4, dtype=torch.bool)
    for got in (loss(SCORES, TARGETS), loss(SCORES, TARGETS, None, valid), loss.link.divergence(SCORES, TARGETS)):
        torch.testing.assert_close(got, torch.from_numpy(want))
    assert torch.autograd.gradcheck(lambda z: loss(z, TARGETS), SCORES.clone().requires_grad_())
    assert torch.autograd.gradcheck(lambda z: loss(SCORES, z), TARGETS.clone().requires_grad_())
    hessian = torch.autograd.functional.hessian(lambda z: loss(z, TARGETS[:1]).sum(), SCORES[:1])[0, :, 0]
    assert torch.linalg.eigvalsh(hessian).min() > -1e-9


@pytest.mark.parametrize("name", LINKS)
def test_the_cross_entropy_takes_the_biases_on_both_sides(name):
    loss = losses.CompositeSoftmaxCrossEntropy(LINKS[name], 0.8, class_bias=BIAS, reduction="none")
    odds = [part / part.sum(-1, keepdims=True) for part in (masses(name, z.numpy(), 0.8) for z in (SCORES, TARGETS))]
    torch.testing.assert_close(loss(SCORES, TARGETS), torch.from_numpy(-(odds[1] * np.log(odds[0])).sum(-1)))
    assert torch.autograd.gradcheck(lambda z: loss(z, TARGETS), SCORES.clone().requires_grad_())


@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("bias", [-1.3, 0.0, 0.8])
def test_one_score_of_two_classes_takes_a_bias_too(name, bias):
    loss = losses.CompositeSigmoidCrossEntropy(LINKS[name], 0.8, class_bias=bias, reduction="none")
    odds = [1 / (1 + np.exp(-PRIMITIVES[name](z.numpy()) / 0.8 - bias)) for z in (SCORES, TARGETS)]
    want = -odds[1] * np.log(odds[0]) - (1 - odds[1]) * np.log1p(-odds[0])
    torch.testing.assert_close(loss(SCORES, TARGETS), torch.from_numpy(want))
    assert torch.autograd.gradcheck(lambda z: loss(z, TARGETS), SCORES.clone().requires_grad_())


def test_equal_biases_change_nothing_and_a_bias_of_the_logarithm_of_counts_is_a_prior():
    plain = losses.CompositeSoftmaxMatchingLoss(links.Exp())(SCORES, TARGETS)
    biased = losses.CompositeSoftmaxMatchingLoss(links.Exp(), class_bias=[3.0] * 4)(SCORES, TARGETS)
    torch.testing.assert_close(biased, plain)
    counts = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    prior = links.CompositeSoftmax(links.Constant(), class_bias=counts.log())
    torch.testing.assert_close(prior(torch.zeros(1, 4, dtype=torch.float64))[0], counts / 10)
    assert "class_bias=[" in repr(prior)


def test_bad_biases_are_refused():
    with pytest.raises(ValueError, match=r"^class_bias: expected finite numbers \[K\]"):
        links.CompositeSoftmax(links.Exp(), class_bias=[0.0, float("nan")])
    with pytest.raises(ValueError, match=r"^class_bias: expected a monotone scaling beside it"):
        links.CompositeSoftmax(links.Cosh(), 0.5, class_bias=[0.0, 1.0])
    with pytest.raises(ValueError, match=r"^class_bias: expected one number for each of 4 classes, got 2"):
        losses.CompositeSoftmaxMatchingLoss(links.Exp(), class_bias=[0.0, 1.0])(SCORES, TARGETS)


TRANSFORMS = {
    "exp": (torch.exp, links.Constant()),
    "exp_exp": (lambda z: z.exp().exp(), links.Exp()),
    "exp_cosh": (lambda z: z.cosh().exp(), links.Sinh()),
    "exp_sinh": (lambda z: z.sinh().exp(), links.Cosh()),
}


@pytest.mark.parametrize("classes", [True, False])
@pytest.mark.parametrize("gamma", [0.5, 1.0, 1.8])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_the_margin_of_a_transform_is_that_of_its_scaling(name, gamma, classes):
    transform, scaling = TRANSFORMS[name]
    z = torch.linspace(-2, 2, 9, dtype=torch.float64)
    rest = 0.5 if classes else torch.sigmoid(-(transform(z).log()) / gamma)
    want = scaling.slope(z) + rest * scaling(z) ** 2 / gamma
    torch.testing.assert_close(transform_margin(transform, z, gamma, classes=classes), want)


REFUSED = {
    "softplus": torch.nn.functional.softplus,
    "sigmoid": torch.sigmoid,
    "exp_sigmoid": lambda z: z.sigmoid().exp(),
    "exp_tanh": lambda z: z.tanh().exp(),
    "abs_power": lambda z: z.abs() ** 1.5,
    "sinh_abs": lambda z: z.abs().sinh(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_transforms_fail_the_condition_somewhere(name):
    assert set(REFUSED) == set(validity.REFUSED)
    z = torch.linspace(-6, 6, 120, dtype=torch.float64)  # 0 is between two of them
    assert transform_margin(REFUSED[name], z).min() < 0


@pytest.mark.parametrize("gamma", [1.0, 0.6])
@pytest.mark.parametrize("name", [*TRANSFORMS, *REFUSED])
def test_where_the_derivative_of_a_transform_falls_no_loss_is_convex(name, gamma):
    """Corollary G.3, by differences of f^(1 / gamma); then q' + (1 - p) q^2 / gamma < 0 for every p."""
    transform = TRANSFORMS[name][0] if name in TRANSFORMS else REFUSED[name]
    z = torch.linspace(-2.5, 2.5, 402, dtype=torch.float64)
    f = transform(z) ** (1 / gamma)
    bends = (f[2:] - 2 * f[1:-1] + f[:-2])[:-1]
    expected = bool((bends < -1e-9 * f[1:-2]).any())
    at = validity.first_fall(transform, z, gamma)
    assert (at is not None) == expected
    if gamma == 1:
        assert expected == (name in ("sigmoid", "exp_sigmoid", "exp_tanh"))  # the others take the second derivative
    if at is not None:
        near = torch.linspace(at, at + 0.05, 20, dtype=torch.float64)
        assert transform_margin(transform, near, gamma).min() < 0
        with pytest.raises(ValueError, match=r"corollary G\.3"):
            validity.scaling_of_transform(transform, gamma)


def test_a_small_gamma_needs_less_of_a_transform():
    """z^0.8 bends down, and z^(0.8 / 0.6) up."""
    z = torch.linspace(0.1, 3, 30, dtype=torch.float64)
    assert validity.first_fall(lambda s: s**0.8, z) == pytest.approx(0.1)
    assert validity.first_fall(lambda s: s**0.8, z, 0.6) is None


@pytest.mark.parametrize("name", [*TRANSFORMS, *REFUSED])
def test_the_condition_is_convexity_of_the_root_and_for_two_classes_of_the_logarithm_of_one_more(name):
    transform = TRANSFORMS[name][0] if name in TRANSFORMS else REFUSED[name]
    z = torch.linspace(-2.5, 2.5, 400, dtype=torch.float64)
    z = z[z.abs() > 0.05]
    step = 1e-4
    for classes, shape in ((True, lambda f: f.sqrt()), (False, torch.log1p)):
        margin = transform_margin(transform, z, classes=classes)
        bend = sum(shape(transform(z + d)) for d in (-step, step)) - 2 * shape(transform(z))
        sure = (bend.abs() > 1e-3 * step**2 * shape(transform(z)).abs().clamp(min=1e-2)) & (margin.abs() > 1e-3)
        assert bool(((bend > 0) == (margin > 0))[sure].all())
        assert int(sure.sum()) > 100


def test_a_line_has_no_second_derivative_and_is_judged_all_the_same():
    torch.testing.assert_close(transform_margin(lambda z: z, torch.tensor([2.0])), torch.tensor([-0.125]))
