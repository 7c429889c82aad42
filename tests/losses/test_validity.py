"""What is said to be convex is so on the whole domain, and what is refused is not."""

import math
import re

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from references import curves
from vicinal import links, losses
from vicinal.losses import validity
from vicinal.losses.validity import check_link

pytestmark = pytest.mark.sweep(6)

AT = re.compile(r"at the score (\S+)")


def slope_of_link(scaling, gamma, z):
    """The slope p (q' + (1 - p) q^2 / gamma), from the formula."""
    logit = scaling.primitive(z) / gamma
    return torch.sigmoid(logit) * (scaling.slope(z) + torch.sigmoid(-logit) * scaling(z) ** 2 / gamma)


def dense(low, high, centers=(0.0,), n=4000):
    """Scores all over a domain: even near the centers, and at growing distances to its ends."""
    parts = [torch.linspace(max(low, c - 40), min(high, c + 40), n, dtype=torch.float64) for c in centers]
    far = torch.logspace(-2, 3, 400, dtype=torch.float64)
    parts += [c + sign * far for c in centers for sign in (-1, 1)]
    z = torch.cat(parts)
    return z[(z >= low) & (z <= high)]


@pytest.mark.parametrize("shift", [0.0, 30.0, -30.0, 1e4, -1e7])
@pytest.mark.parametrize("scale", [1.0, 1e-3, 50.0])
@pytest.mark.parametrize("make", [lambda c: c, lambda c: 1.0 * c, lambda c: c.flip(), lambda c: 0.5 * (2.0 * c).flip()])
@pytest.mark.parametrize(
    ("gamma", "valid"), [(0.5, True), (0.7, True), (1.0, True), (1.2, True), (1.5, False), (4.0, False)]
)
def test_where_a_curve_stands_and_how_it_is_written_makes_no_difference(shift, scale, make, gamma, valid):
    scaling = make(links.Cosh(scale, shift, scale))
    if valid:
        losses.CompositeSigmoidMatchingLoss(scaling, gamma)
        return
    with pytest.raises(ValueError, match=r"^scaling: expected .*G\.2") as caught:
        losses.CompositeSigmoidMatchingLoss(scaling, gamma)
    at = torch.tensor(float(AT.search(str(caught.value))[1]), dtype=torch.float64)
    if abs(shift) < 100:  # five digits tell where
        assert slope_of_link(scaling, gamma, at) < 0


def test_a_domain_is_where_the_check_looks():
    for curve in (links.Cosh(shift=100.0), 1.0 * links.Cosh(shift=100.0)):
        rising = losses.CompositeSigmoidMatchingLoss(curve, 1.5, domain=(101.0, 110.0))
        assert rising.link.is_monotone
        assert losses.MatchingLoss(curve, domain=(101.0, 110.0))(torch.tensor([102.0]), torch.tensor([103.0])) > 0
        for domain in ((90.0, 110.0), (99.0, 101.0), (-1e6, 1e6)):
            with pytest.raises(ValueError, match=r"^scaling: expected .*G\.2"):
                losses.CompositeSigmoidMatchingLoss(curve, 1.5, domain=domain)
            with pytest.raises(ValueError, match=r"^link: expected a curve that never falls"):
                losses.MatchingLoss(curve, domain=domain)
        losses.CompositeSigmoidMatchingLoss(
            curve, 1.5, domain=(80.0, 90.0)
        )  # it falls there, and far enough to be valid
        with pytest.raises(ValueError, match=r"^domain: expected low < high"):
            losses.CompositeSigmoidMatchingLoss(curve, 1.5, domain=(110.0, 101.0))


def test_a_narrow_fall_is_found_wherever_it_is():
    """A dip of a thousandth in width, far out, which a grid would step over."""
    for at in (0.3, 777.7, -12345.6):
        dip = links.Cosh(1e3, at, 1e-4).cap(at - 2e-3, at + 2e-3, tails="flat")
        for curve in (dip + links.Identity(amplitude=1e-3), links.Arctan(1e-3, 5.0) + dip):
            assert not curve.is_monotone
            with pytest.raises(ValueError, match=r"^link: expected a curve that never falls") as caught:
                losses.MatchingLoss(curve)
            found = float(re.search(r"falls at (\S+);", str(caught.value))[1])
            assert abs(found - at) < 1e-2 * (1 + abs(at))
    losses.MatchingLoss(dip + links.Identity(amplitude=0.5))  # steeper than the dip falls


def test_falls_and_rises_that_add_up_to_a_rise():
    for curve in (
        links.Cosh() + links.Sinh(),
        links.Cosh() + 1.5 * links.Sinh(),
        links.AbsPower(2.0) + links.SignedPower(2.0, 1.0, 0.0, 2.0),
    ):
        assert check_link(curve) is curve
    with pytest.raises(ValueError, match=r"^link: expected a curve that never falls"):
        check_link(links.Cosh() + 0.9 * links.Sinh())


leaf = st.one_of(
    st.builds(links.Cosh, st.floats(0.2, 3), st.floats(-40, 40), st.floats(0.1, 3)),
    st.builds(
        links.AbsPower, st.floats(1, 3), st.floats(0, 3), st.floats(0.3, 2), st.floats(-40, 40), st.floats(0.2, 2)
    ),
    st.builds(links.Sinh, st.floats(0.2, 2), st.floats(-5, 5), st.floats(0.1, 1)),
    st.builds(links.Sigmoid, st.floats(0.2, 4), st.floats(-9, 9), st.floats(0.1, 3)),
    st.builds(links.HuberGrad, st.floats(0.2, 2), st.floats(0.2, 2), st.floats(-5, 5)),
    st.builds(links.Constant, amplitude=st.floats(0.1, 3)),
)


def grown(curve):
    return st.one_of(
        st.builds(lambda a, b: a + b, curve, curve),
        st.builds(lambda a, f: f * a, curve, st.floats(0.1, 5)),
        st.builds(lambda a: a.flip(), curve),
        st.builds(
            lambda a, low, width, tails: a.cap(low, low + width, tails=tails),
            curve,
            st.floats(-40, 40),
            st.floats(0.5, 30),
            st.sampled_from(["linear", "flat"]),
        ),
    )


scaling = st.recursive(leaf, grown, max_leaves=4).filter(lambda curve: not curve.is_monotone)
domain = st.one_of(st.none(), st.tuples(st.floats(-60, 60), st.floats(0.1, 50)).map(lambda d: (d[0], d[0] + d[1])))


@settings(max_examples=settings().max_examples // 2)
@given(scaling, st.floats(0.2, 4), domain)
def test_the_verdict_is_that_of_the_slope_all_over_the_domain(scaling, gamma, domain):
    low, high = domain or (-math.inf, math.inf)
    z = dense(low, high, [-40.0, 0.0, 40.0])
    size = scaling.slope(z).abs() + scaling(z) ** 2 / gamma
    kept = size.isfinite() & scaling.primitive(z).isfinite()
    margin = (scaling.slope(z) + torch.sigmoid(-scaling.primitive(z) / gamma) * scaling(z) ** 2 / gamma)[kept]
    worst = (margin / (1 + size[kept])).min()
    assume(abs(worst) > 1e-6)  # neither just valid nor just not
    try:
        verdict = losses.check_scaling(scaling, gamma, domain=domain)
    except ValueError as error:
        at = torch.tensor(float(AT.search(str(error))[1]), dtype=torch.float64)
        near = at + torch.linspace(-1e-3, 1e-3, 201, dtype=torch.float64) * (1 + at.abs())
        assert (slope_of_link(scaling, gamma, near) < 1e-12).any()
    else:
        assert worst > -1e-9
        assert verdict.convex == "jointly"


@pytest.mark.parametrize("case", curves.ALL, ids=lambda c: c.name)
def test_ranges_of_values_and_slopes_hold_what_they_say(case):
    g = torch.Generator().manual_seed(0)
    low, high = max(case.curve.domain[0], -6.0), min(case.curve.domain[1], 6.0)
    ends = (low + (high - low) * torch.rand(300, 2, generator=g, dtype=torch.float64)).sort().values
    ends[:100, 1] = ends[:100, 0] + 1e-3 * (ends[:100, 1] - ends[:100, 0])
    left, right = ends.unbind(-1)
    share = torch.linspace(0, 1, 41, dtype=torch.float64)
    z = left[:, None] + share * (right - left)[:, None]
    for function, bounds in ((case.curve, case.curve.value_range), (case.curve.slope, case.curve.slope_range)):
        least, most = bounds(left, right)
        value = function(z)
        rounding = 1e-9 * (1 + value.abs())
        if case.curve.ranges_are_bounds:
            assert bool((value >= least[:, None] - rounding).all())
            assert bool((value <= most[:, None] + rounding).all())
        narrow = (right - left) < 1e-4
        assert bool(((most - least)[narrow & (value.max(-1).values - value.min(-1).values < 1e-3)] < 1).all())
    assert case.curve.ranges_are_bounds == (case.name != "callable")


def test_the_closed_forms_of_the_paper_hold_without_end():
    """No search decides for them: also where the curve has no floating values any more."""
    for gamma in (0.1, 1 / math.sqrt(2), 1.0):
        verdict = losses.check_scaling(links.Cosh(0.3, 7.0, 0.3), gamma)
        assert verdict.proven
        for d in (1.0, 2.0, 5.5):
            c = max(math.sqrt(2 * gamma * d), gamma * d - 0.5)
            for curve in (links.AbsPower(d, c), 3.0 * links.AbsPower(d, c, 2.0, -9.0, 2.0 / 3.0)):
                assert losses.check_scaling(curve, gamma).proven
    assert losses.check_scaling(links.AbsPower(2.0, 1.5), 1.2).proven  # not by the closed form, but by bounds
    with pytest.raises(ValueError, match="use c >="):
        losses.check_scaling(links.AbsPower(2.0, 1.0), 1.5)


def test_a_transform_as_a_function_is_checked_by_the_condition():
    z = torch.linspace(-1.9, 1.9, 21, dtype=torch.float64)
    for f, own in ((lambda z: z.sinh().exp(), links.Cosh()), (lambda z: z.cosh().exp(), links.Sinh())):
        for classes in (True, False):
            made = losses.scaling_of_transform(f, 0.7, domain=(-2.0, 2.0), classes=classes)
            torch.testing.assert_close(made(z), own(z))
            torch.testing.assert_close(made.primitive(z), own.primitive(z))
            torch.testing.assert_close(made.slope(z), own.slope(z))
            torch.testing.assert_close(
                made.divergence(z, z.flip(0)), own.divergence(z, z.flip(0)), rtol=1e-6, atol=1e-9
            )
    a, b = z[:10].clone().requires_grad_(), z[10:20]
    loss = losses.CompositeSigmoidMatchingLoss.from_transform(lambda z: z.sinh().exp(), 0.7, domain=(-2.0, 2.0))
    want = losses.CompositeSigmoidMatchingLoss(links.Cosh(), 0.7)
    torch.testing.assert_close(loss(a, b), want(a, b))
    torch.testing.assert_close(torch.autograd.grad(loss(a, b), a), torch.autograd.grad(want(a, b), a))
    for f, gamma, sentence in (
        (lambda z: z.sinh().exp(), 2.5, r"^transform: .*G\.2"),
        (torch.nn.functional.softplus, 1.0, r"^transform: .*G\.2"),
        (lambda z: z.sigmoid(), 1.0, r"^transform: .*G\.2"),
        (lambda z: z.tanh().exp(), 1.0, r"^transform: .*G\.2"),
        (lambda z: z, 1.0, r"^transform: .*finite"),
        (lambda z: z.sum(), 1.0, r"^transform: .*elementwise"),
    ):
        with pytest.raises(ValueError, match=sentence):
            losses.scaling_of_transform(f, gamma, domain=(-2.0, 2.0))


def test_a_factor_of_a_transform_counts_against_the_other_class_of_a_sigmoid():
    f = losses.scaling_of_transform(lambda z: 3 * z.exp(), domain=(-5.0, 5.0), classes=False)
    z = torch.linspace(-4, 4, 9, dtype=torch.float64)
    link = links.CompositeSigmoid(f)
    torch.testing.assert_close(link(z), 3 * z.exp() / (1 + 3 * z.exp()))


def test_functions_are_looked_at_beyond_the_middle_of_the_axis():
    with pytest.raises(ValueError, match=r"^function: expected a function that never falls, got a fall at -?[5-9]\d\."):
        links.from_callable(lambda z: z - z**3 / 1e4)  # from 57.7 on
    with pytest.raises(ValueError, match=r"^function: expected a function that never falls"):
        links.from_callable(lambda z: torch.where(z < -500, -z, z), tolerance=1.0)
    far = links.from_callable(torch.exp, (20.0, 23.0))
    z = torch.tensor([20.0, 21.5, 23.0], dtype=torch.float64)
    torch.testing.assert_close(far.primitive(z) - far.primitive(z[0]), z.exp() - z[0].exp())
    torch.testing.assert_close(far.divergence(z, z.flip(0)), links.Exp().divergence(z, z.flip(0)))


@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_convex_in_each_score_up_to_half_of_the_mass_or_with_a_bias(bias):
    loss = losses.CompositeSoftmaxMatchingLoss(links.Cosh(), 1.0, bias=bias)
    assert loss.verdict.convex == "each"
    g = torch.Generator().manual_seed(0)
    z = 4 * torch.randn(4000, 3, generator=g, dtype=torch.float64)
    steep = torch.stack(
        [loss.link.curvature_times(z, torch.eye(3, dtype=torch.float64)[k].expand_as(z))[:, k] for k in range(3)], -1
    )
    mass = loss.link.probabilities(z)
    assert bool((steep[mass <= 0.5] >= -1e-12).all())
    assert bool((steep >= -1e-12).all()) == (bias >= 1)


def test_words_of_the_verdict():
    assert losses.check_scaling(links.Sinh()) == validity.Verdict("jointly", 0.0, proven=True)
    assert losses.check_scaling(links.Cosh(), 0.7).convex == "jointly"
    assert losses.check_scaling(links.Cosh(), 0.7, classes=True).convex == "each"
    assert losses.check_scaling(links.Cosh(), 9.0, domain=(0.0, 5.0), classes=True).convex == "jointly"
    made = losses.scaling_of_transform(lambda z: z.sinh().exp(), 0.7, domain=(-2.0, 2.0))
    assert not losses.check_scaling(made, 0.7).proven
