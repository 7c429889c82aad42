"""How every loss behaves as a torch loss, what is refused and how, and the named uses."""

import math

import numpy as np
import pytest
import torch

from vicinal import links, losses
from vicinal.core import entries
from vicinal.losses.validity import REFUSED

LOSSES = {
    "matching": "matching: sinh",
    "composite_sigmoid": "composite_sigmoid: exp",
    "composite_softmax": "composite_softmax: exp(.5), gamma=2",
    "softmax": "softmax: alpha=2",
    "decomposed": "decomposed: tanh",
    "pointwise": "pointwise",
    "pairwise": "pairwise: tanh",
    "listwise": "listwise",
    "plackett_luce": "plackett_luce",
    "soft_ranks": "soft_ranks",
    "distillation": "distillation: floor=-1",
    "dwell_time": "dwell_time: cap=2",
    "reweighted_squares": "reweighted_squares: exp",
    "composite_sigmoid_ce": "composite_sigmoid_ce: sinh",
    "composite_softmax_ce": "composite_softmax_ce: sinh",
    "proximal_matching": "proximal_matching: sigma=2",
    "pseudo_huber": "pseudo_huber: c=.5",
}
OTHER_CALL = {"preference", "potential", "best_of_k", "ms_ssim"}  # other tensors; made of a module
each = pytest.mark.parametrize("name", LOSSES)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_every_registered_loss_is_here():
    scores = {e.name for e in entries("loss") if e.factory.__module__.startswith("vicinal.losses.")}
    assert scores >= set(LOSSES) | OTHER_CALL


@each
def test_reductions_and_weights(name):
    a, b = normal(6, 4, seed=1), normal(6, 4, seed=2)
    rows = losses.parse(LOSSES[name] + (", " if ":" in LOSSES[name] else ":") + "reduction='none'")(a, b)
    assert rows.shape in ((6,), (6, 4))
    assert bool((rows >= 0).all())
    mean, total = (
        losses.parse(LOSSES[name]),
        losses.parse(LOSSES[name] + (", " if ":" in LOSSES[name] else ":") + "reduction='sum'"),
    )
    torch.testing.assert_close(mean(a, b), rows.mean())
    torch.testing.assert_close(total(a, b), rows.sum())
    weight = torch.tensor([1.0, 0.0, 2.0, 0.0, 1.0, 3.0], dtype=torch.float64)
    by_row = rows if rows.ndim == 1 else rows.mean(-1)
    torch.testing.assert_close(mean(a, b, weight), (by_row * weight).sum() / weight.sum())
    torch.testing.assert_close(mean(a, b, 5 * weight), mean(a, b, weight))
    assert mean(a, b, 0 * weight) == 0


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "soft_ranks"])  # whose ranks are exact
def test_gradients(name):
    a, b = normal(3, 4, seed=1), normal(3, 4, seed=2)
    assert torch.autograd.gradcheck(losses.parse(LOSSES[name]), (a.requires_grad_(), b.requires_grad_()), atol=1e-6)


@each
def test_bad_input_is_named(name):
    loss = losses.parse(LOSSES[name])
    a, b = normal(3, 4, seed=1), normal(3, 4, seed=2)
    with pytest.raises(ValueError, match=r"^target: expected the shape of the prediction, \(3, 4\), got \(4,\)"):
        loss(a, b[0])
    with pytest.raises(TypeError, match=r"^target: expected scores of a floating dtype, got torch.int64"):
        loss(a, torch.ones(3, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"^weight: expected"):
        loss(a, b, torch.ones(2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: losses.MatchingLoss(links.Cosh()), r"^link: expected a curve that never falls, got Cosh"),
        (lambda: losses.MatchingLoss("sinh"), r"^link: expected a curve of vicinal.links, got str"),
        (lambda: losses.MatchingLoss(links.Constant()), r"^link: expected a link that rises"),
        (lambda: losses.MatchingLoss(links.Exp(), reduction="avg"), r"^reduction: expected one of"),
        (lambda: losses.CompositeSigmoidMatchingLoss(links.Cosh(), 2.5), r"^scaling: .*G.2.*use gamma <= 1/sqrt\(2\)"),
        (lambda: losses.CompositeSoftmaxMatchingLoss(links.Cosh(), 1.5), r"^scaling: .*G.2"),
        (lambda: losses.CompositeSoftmaxMatchingLoss(links.AbsPower(2.0, 0.1), 1.0), r"^scaling: .*use c >="),
        (lambda: losses.PairwiseRankingLoss(links.Exp()), r"^link: expected one that is odd around 0"),
        (lambda: losses.PairwiseRankingLoss(links.Sinh(shift=1.0)), r"^link: expected one that is odd around 0"),
        (
            lambda: losses.scaling_of_transform(torch.nn.functional.softplus),
            r"^transform: expected a positive function",
        ),
        (lambda: losses.scaling_of_transform("soft_plus"), r"^transform: .*did you mean 'softplus'"),
    ],
)
def test_what_gives_no_convex_loss_is_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


@pytest.mark.parametrize("transform", sorted(REFUSED))
@pytest.mark.parametrize("kind", [losses.CompositeSoftmaxMatchingLoss, losses.CompositeSigmoidMatchingLoss])
def test_invalid_transforms_say_why_and_what_instead(transform, kind):
    with pytest.raises(ValueError, match=r"^transform: .*falls.*; use \w+") as caught:
        kind.from_transform(transform)
    for word in str(caught.value).split("; use ")[1].split(" of ")[0].replace(",", " ").split():
        if word[0].isupper():
            assert hasattr(links, word)


def test_the_paper_s_sufficient_conditions_are_accepted():
    for gamma in (0.25, 0.5, 1 / np.sqrt(2)):
        losses.CompositeSoftmaxMatchingLoss(links.Cosh(0.7, 0.2, 0.7), gamma)
        losses.CompositeSigmoidMatchingLoss(links.Cosh(0.7, 0.2, 0.7), gamma)
        for d in (1.0, 2.0, 3.5):
            c = max(np.sqrt(2 * gamma * d), gamma * d - 0.5)
            losses.CompositeSoftmaxMatchingLoss(links.AbsPower(d, float(c)), gamma)


def test_transforms_that_are_valid():
    a, b = normal(5, 3, seed=1), normal(5, 3, seed=2)
    own = losses.scaling_of_transform(lambda z: torch.exp(torch.cosh(z)), domain=(-6.0, 6.0))
    torch.testing.assert_close(
        losses.CompositeSoftmaxMatchingLoss(own)(a, b),
        losses.CompositeSoftmaxMatchingLoss.from_transform("exp_cosh")(a, b),
    )


def test_outside_the_domain_is_named():
    loss = losses.MatchingLoss(links.Logit(scale=0.5))
    good = torch.tensor([0.3, 1.9])
    with pytest.raises(ValueError, match=r"^prediction: expected scores in \(0, 2\), the domain of the link, got 2.5"):
        loss(torch.tensor([0.3, 2.5]), good)
    with pytest.raises(ValueError, match=r"^target: expected scores in \(0, 2\).* got 0;"):
        loss(good, torch.tensor([0.0, 1.0]))
    valid = torch.tensor([True, False])
    torch.testing.assert_close(loss(torch.tensor([0.3, 2.5]), good, valid=valid), torch.tensor(0.0))
    with pytest.raises(ValueError, match=r"^prediction: expected scores in \[0, 4\]"):
        losses.MatchingLoss(links.Cosh(), domain=(0.0, 4.0))(torch.tensor([-0.1]), torch.tensor([1.0]))


def test_the_domain_of_a_loss_lies_within_that_of_its_link():
    good = torch.tensor([0.3, 0.4])
    loss = losses.MatchingLoss(links.Logit(), domain=(0.0, 0.5))
    assert loss(good, torch.tensor([0.5, 0.4])).isfinite()
    with pytest.raises(ValueError, match=r"^target: expected scores in \(0, 0.5\], the domain of the link, got 0;"):
        loss(good, torch.tensor([0.0, 0.4]))
    loss = losses.MatchingLoss(links.Log(), domain=(-5.0, 5.0))
    with pytest.raises(ValueError, match=r"^prediction: expected scores in \(0, 5\]"):
        loss(-good, good)
    valid = torch.tensor([True, False])
    for domain in ((3.0, 3.5), (-9.0, -8.5), (1e-9, 2e-9)):  # what stands for a score left out lies inside
        inside = torch.tensor([sum(domain) / 2, math.nan], dtype=torch.float64, requires_grad=True)
        loss = losses.MatchingLoss(links.Logit(1.0, domain[0] - 0.1), domain=domain)
        value = loss(inside, inside.detach(), valid=valid)
        assert value == 0
        assert torch.autograd.grad(value, inside)[0].tolist() == [0, 0]
    with pytest.raises(ValueError, match=r"^domain: expected low < high inside \(0.0, 1.0\), got \(2.0, 3.0\)"):
        losses.MatchingLoss(links.Logit(), domain=(2.0, 3.0))
    poles = links.from_callable(torch.log, (0.0, 4.0), tolerance=1e-2)
    assert poles.closed == (False, True)
    with pytest.raises(ValueError, match=r"^target: expected scores in \(0, 4\]"):
        losses.MatchingLoss(poles)(good, 0 * good)


def test_pairwise_does_not_depend_on_order_or_level():
    a, b = normal(2, 5, seed=1), normal(2, 5, seed=2)
    loss = losses.PairwiseRankingLoss()
    order = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(loss(a[:, order], b[:, order]), loss(a, b))
    torch.testing.assert_close(loss(a + 3, b - 1), loss(a, b))


def test_preference_pairs():
    chosen, rejected, target = normal(6, seed=1).requires_grad_(), normal(6, seed=2), normal(6, seed=3).abs()
    value = losses.PreferenceMatchingLoss(beta=2.0)(chosen, rejected, target)
    wanted = losses.MatchingLoss(links.Sinh().cap(-3, 3))(2 * (chosen - rejected), target)
    torch.testing.assert_close(value, wanted)
    assert torch.autograd.gradcheck(lambda c: losses.PreferenceMatchingLoss()(c, rejected, target), (chosen,))


def test_distillation_does_not_hear_low_scores():
    loss = losses.DistillationMatchingLoss(floor=0.0)
    student = torch.tensor([[4.0, -3.0, 2.0]], requires_grad=True)
    loss(student, torch.tensor([[3.0, -30.0, 2.0]])).backward()
    assert student.grad[0, 1] == 0
    assert student.grad[0, 0] > 0


def test_relatives_against_numpy():
    a, b = normal(7, 3, seed=1), normal(7, 3, seed=2)
    x, y, g = a.numpy(), b.numpy(), 0.7

    def p(z):
        e = np.exp(np.cosh(z) / g)
        return e / e.sum(-1, keepdims=True)

    wanted = -(p(y) * np.log(p(x))).sum(-1).mean()
    assert losses.CompositeSoftmaxCrossEntropy(links.Sinh(), g)(a, b).item() == pytest.approx(wanted)
    one, two = 1 / (1 + np.exp(-np.cosh(x) / g)), 1 / (1 + np.exp(-np.cosh(y) / g))
    wanted = -(two * np.log(one) + (1 - two) * np.log(1 - one)).mean()
    assert losses.CompositeSigmoidCrossEntropy(links.Sinh(), g)(a, b).item() == pytest.approx(wanted)
    wanted = (np.cosh(y) * (x - y) ** 2 / 2).mean()
    assert losses.ReweightedSquaredLoss(links.Sinh())(a, b).item() == pytest.approx(wanted)


@pytest.mark.parametrize(
    "text",
    [
        "matching:__import__('os').system('true')",
        "matching:sigmoid.__class__",
        "matching:sigmoid); (exp",
        "matching:(lambda: 1)()",
        "matching:open('x')",
        "matching:sigmoid(**{})",
        "matching:[s for s in (1, 2)]",
        "matching:sigmoid(scale=-1)",
        "matching:sigmoid(steep=1)",
        "matching:2*3",
        "matching:sigmoid - exp",
        "matching:-sigmoid",
        "matching:sigmod",
        "matchin:sigmoid",
        "matching:" + "(" * 500 + "exp" + ")" * 500,
        "matching:" + "exp" + ".flip()" * 100,
        "matching",
        "composite_softmax:cosh, gamma=9",
        "potential:exp",
        "matching:" + "exp+" * 1000 + "exp",
    ],
)
def test_text_that_is_no_loss_is_refused(text):
    with pytest.raises(ValueError, match=r"^(loss|link|scale|scaling): expected"):
        losses.parse(text)


def test_text_that_is_a_link():
    made = links.parse('3 * exp(scale=0.5, shift=-1).cap(-2, 2, tails="flat") + piecewise([0, 1], [0, 2])')
    z = torch.tensor([-5.0, 0.5, 9.0])
    wanted = 3 * links.Exp(0.5, -1.0).cap(-2, 2, tails="flat")(z) + links.Piecewise([0.0, 1.0], [0.0, 2.0])(z)
    torch.testing.assert_close(made(z), wanted)
    assert links.parse("design('high', ratio=3)").note.startswith("Exp with scale")
    assert losses.parse("Composite-Softmax: asinh").link.domain == (-np.inf, np.inf)


@pytest.mark.parametrize(
    ("loss", "settings", "error"),
    [
        (losses.facility_location, {"temperature": 0}, "temperature: expected a number above 0, got 0"),
        (losses.facility_location, {"sets": "all"}, "sets: expected one of 'rest', 'classes', got 'all'"),
        (losses.lmnn, {"k": 0}, "k: expected a whole number of at least 1, got 0"),
        (losses.lmnn, {"top": math.inf}, "top: expected a finite number, got inf"),
        (losses.symmetric_ce, {"beta": -1}, "beta: expected a number of at least 0, got -1"),
        (losses.kl_top, {"temperature": -1}, "temperature: expected a number above 0, got -1"),
    ],
)
def test_settings_of_formulas_are_checked_by_their_types(loss, settings, error):
    scores = torch.tensor([[1.0, 0.0]])
    with pytest.raises(ValueError, match=f"^{error}"):
        loss(scores, scores, **settings)
