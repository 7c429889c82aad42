"""One test per promise of a curve, each run over every registered curve and every combinator."""

import math

import pytest
import torch

from references import curves
from vicinal import links, losses
from vicinal.core import entries

pytestmark = pytest.mark.sweep(3)

each = pytest.mark.parametrize("case", curves.ALL, ids=lambda c: c.name)
each_link = pytest.mark.parametrize("case", curves.LINKS, ids=lambda c: c.name)
SMOOTH = 1e-4  # scores nearer than this to a kink are not differentiated numerically


def away_from_kinks(case, n=60):
    z = case.scores(4 * n)
    left, right = case.curve.slope(z - SMOOTH), case.curve.slope(z + SMOOTH)
    jump = case.curve(z + SMOOTH) - case.curve(z - SMOOTH) - SMOOTH * (left + right)
    smooth = ((left - right).abs() < 2e-2 * (1 + left.abs())) & (jump.abs() < 1e-6 * (1 + left.abs()))
    return z[smooth][:n]


@each
def test_value_is_the_derivative_of_the_primitive(case):
    z = away_from_kinks(case).requires_grad_()
    assert len(z) >= 20
    (by_autograd,) = torch.autograd.grad(case.curve.primitive(z).sum(), z)
    torch.testing.assert_close(by_autograd, case.curve(z), rtol=1e-9, atol=1e-11)
    step = 1e-5
    numeric = (case.curve.primitive(z + step) - case.curve.primitive(z - step)) / (2 * step)
    torch.testing.assert_close(numeric, case.curve(z), rtol=1e-5, atol=1e-5)


@each
def test_slope_is_the_derivative_of_the_value(case):
    z = away_from_kinks(case).requires_grad_()
    value = case.curve(z)
    by_autograd = torch.autograd.grad(value.sum(), z)[0] if value.requires_grad else torch.zeros_like(z)
    torch.testing.assert_close(by_autograd, case.curve.slope(z), rtol=1e-9, atol=1e-11)
    step = 1e-6
    numeric = (case.curve(z + step) - case.curve(z - step)) / (2 * step)
    torch.testing.assert_close(numeric, case.curve.slope(z), rtol=1e-5, atol=1e-5)


@each
def test_never_falls_where_it_says_so(case):
    value = case.curve(case.scores(400).sort().values)
    falls = bool((value.diff() < 0).any())
    if case.curve.is_monotone:
        assert not falls
        assert bool((case.curve.slope(case.scores(400)) >= 0).all())
    else:
        assert falls


@each
def test_bounded_and_odd_where_it_says_so(case):
    z = torch.linspace(max(case.curve.domain[0], -1e4), min(case.curve.domain[1], 1e4), 1001, dtype=torch.float64)[1:-1]
    if case.curve.is_bounded:
        assert bool((case.curve(z).abs() < 50).all())
    assert case.curve.is_odd == (case.curve.center is not None)
    if case.curve.is_odd:
        shift = case.curve.center
        d = case.scores(50) - shift
        d = d[(shift - d > case.curve.domain[0]) & (shift - d < case.curve.domain[1])]
        torch.testing.assert_close(case.curve(shift - d), -case.curve(shift + d), rtol=1e-9, atol=1e-12)


@each
def test_inverse_round_trip(case):
    z = case.scores(40)
    if not case.curve.is_invertible:
        with pytest.raises(ValueError, match="inverse: expected a curve that rises strictly"):
            case.curve.inverse(case.curve(z))
        return
    torch.testing.assert_close(case.curve.inverse(case.curve(z)), z, rtol=1e-8, atol=1e-8)
    p = case.curve(z).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(case.curve.inverse(p).sum(), p)
    torch.testing.assert_close(gradient, 1 / case.curve.slope(z), rtol=1e-5, atol=1e-6)


@each_link
def test_divergence_is_at_least_zero_and_zero_only_for_equal(case):
    a, b = case.scores(300, 1), case.scores(300, 2)
    value = case.curve.divergence(a, b)
    assert bool((value >= 0).all())
    assert bool((case.curve.divergence(a, a) == 0).all())
    if case.curve.is_invertible:
        assert bool((value > 0).all())
    closed = case.curve.primitive(a) - case.curve.primitive(b) - (a - b) * case.curve(b)
    torch.testing.assert_close(value, closed, rtol=1e-6, atol=1e-9)


@each_link
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_divergence_of_close_pairs_keeps_its_digits(case, dtype):
    b = away_from_kinks(case).to(dtype)
    step = {torch.float32: 2.0**-12, torch.bfloat16: 2.0**-5}[dtype]
    a = (b.double() + step * torch.sign(0.5 * (case.low + case.high) - b.double())).to(dtype)
    value = case.curve.divergence(a, b)
    assert value.dtype == dtype
    assert bool((value >= 0).all())
    if case.name == "callable":
        return  # differences of values, not of primitives: better than the closed form, not exact
    double = case.curve.divergence(a.double(), b.double())
    torch.testing.assert_close(value.double(), double, rtol=2e-2 if dtype == torch.bfloat16 else 3e-3, atol=1e-30)


@each_link
def test_curvature_is_half_the_slope(case):
    z = away_from_kinks(case)
    step = 1e-4
    ratio = case.curve.divergence(z + step, z) / step**2
    torch.testing.assert_close(ratio, case.curve.slope(z) / 2, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("entry", [*entries("link"), *entries("curve")], ids=lambda e: e.name)
def test_divergence_equals_integration_with_30_digits(entry):
    for own in curves.SETTINGS.get(entry.name, [{}]):
        settings = own | curves.shapes(entry.name)[1]
        case = curves.case(entry.name, entry.factory(**settings))
        a, b = case.scores(6, 5), case.scores(6, 6)
        a[:2] = b[:2] + 1e-7 * torch.sign(0.5 * (case.low + case.high) - b[:2])
        for x, y in zip(a.tolist(), b.tolist(), strict=True):
            loss, gradient = curves.divergence(entry.name, settings, x, y)
            one, other = torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64)
            got = float(case.curve.divergence(one, other))
            # the given scores themselves have a rounding, which a difference of 1e-7 feels
            assert math.isclose(got, loss, rel_tol=max(1e-12, 1e-8 if abs(x - y) < 1e-6 else 0), abs_tol=1e-13)
            difference = float(case.curve(one) - case.curve(other))
            assert math.isclose(difference, gradient, rel_tol=1e-11, abs_tol=3e-15)


SCALED = [e for e in (*entries("link"), *entries("curve")) if e.name != "constant"]


def test_a_constant_is_its_number_also_as_text():
    """E.7: h = alpha p of a scaling that is alpha everywhere."""
    scores = torch.tensor([[0.3, -1.0, 2.0]], dtype=torch.float64)
    for scaling in (links.Constant(1.5), losses.parse("composite_softmax:constant(1.5)").link.scaling):
        assert scaling(scores).tolist() == [[1.5] * 3]
        torch.testing.assert_close(scaling.primitive(scores), 1.5 * scores)
        torch.testing.assert_close(links.CompositeSoftmax(scaling)(scores), 1.5 * (1.5 * scores).softmax(-1))
    assert links.Constant(1.5, shift=2.0).primitive(torch.tensor(3.0)) == 1.5


@pytest.mark.parametrize("entry", SCALED, ids=lambda e: e.name)
def test_scale_shift_amplitude_algebra(entry):
    for own in curves.SETTINGS.get(entry.name, [{}]):
        plain, shaped = entry.factory(**own), entry.factory(**own, scale=2.0, shift=-0.4, amplitude=3.0)
        z = curves.case("", shaped).scores(30)
        x = 2.0 * (z + 0.4)
        torch.testing.assert_close(shaped(z), 3 * plain(x))
        torch.testing.assert_close(shaped.primitive(z), 1.5 * plain.primitive(x))
        torch.testing.assert_close(shaped.slope(z), 6 * plain.slope(x))
        torch.testing.assert_close(shaped.divergence(z, z.flip(0)), 1.5 * plain.divergence(x, x.flip(0)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("entry", [*entries("link"), *entries("curve")], ids=lambda e: e.name)
def test_huge_scores_give_no_nan(entry, dtype):
    curve = entry.factory()
    sizes = torch.tensor([0.0, 1e-4, 1.0, 30.0, 88.0, 1e3, 1e4])
    z = torch.cat([sizes, -sizes])
    low, high = curve.domain
    z = z[(z > low) & (z < high)].to(dtype).requires_grad_()
    for function in (curve, curve.primitive, curve.slope):
        value = function(z)
        assert value.dtype == dtype
        assert not bool(value.isnan().any())
        exact = function(z.detach().double())
        representable = exact.abs() < 1e38
        bits = 1e-2 if dtype == torch.bfloat16 else 2e-5
        torch.testing.assert_close(value[representable].double(), exact[representable], rtol=bits, atol=1e-6)
    (gradient,) = torch.autograd.grad(curve.primitive(z).sum(), z)
    assert not bool(gradient.isnan().any())


@pytest.mark.parametrize("entry", entries("link"), ids=lambda e: e.name)
def test_divergence_of_huge_scores(entry):
    link = entry.factory()
    sizes = torch.tensor([0.0, 1e-3, 1.0, 3.0, 30.0, 80.0, 100.0, 1e3, 1e4])
    z = torch.cat([-sizes[1:], sizes])
    z = z[(z > link.domain[0]) & (z < link.domain[1])]
    a, b = torch.cartesian_prod(z, z).unbind(-1)
    value, exact = link.divergence(a, b), link.divergence(a.double(), b.double())
    finite = exact < 1e37
    for s in (a, b):
        finite &= (link(s.double()).abs() < 1e37) & (link.primitive(s.double()).abs() < 1e37)
    assert bool(finite.any())
    assert bool((value[finite] >= 0).all())
    sizes = link.primitive(a.double()).abs() + link.primitive(b.double()).abs() + ((a - b) * link(b)).double().abs()
    error = (value.double() - exact).abs()[finite]
    assert bool((error <= 1e-6 * sizes[finite] + 1e-3 * exact[finite] + 1e-30).all())


def test_regions_hold():
    for entry in entries("link"):
        curve = entry.factory()
        low, high = (max(curve.domain[0], -1.4), min(curve.domain[1], 1.4))
        width = high - low
        left, middle, right = curve(torch.linspace(low + 0.02 * width, high - 0.02 * width, 4)).diff().tolist()
        steepest = {
            "low-norms": middle > left and middle > right,
            "high-norms": middle < left and middle < right,
            "high-scores": left < middle < right,
            "low-scores": left > middle > right,
            "uniform": math.isclose(left, right, rel_tol=1e-5),
        }[curve.region]
        assert steepest, f"{entry.name} says {curve.region}: {left}, {middle}, {right}"
