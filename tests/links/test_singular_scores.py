"""Every curve at every pair of its poles, ends, kinks and their neighbors, against a reference of many digits."""

import math
from functools import cache

import pytest
import torch

from references import exact_curves
from vicinal import links
from vicinal.core import entries
from vicinal.links.learned import learnable

pytestmark = pytest.mark.sweep(5)

SETTINGS = {  # binary fractions, so that float32 has the same kinks
    "signed_power": [{"d": 2.0}, {"d": 1.5}, {"d": 0.5}, {"d": 1.0}],
    "power": [{"d": 2.0}, {"d": 0.5}, {"d": 1.0}],
    "smelu_grad": [{"c": 0.75}],
    "huber_grad": [{"delta": 0.75}],
    "pseudo_huber_grad": [{"c": 0.75}],
    "abs_power": [{"d": 1.0, "c": 2.0}, {"d": 2.0, "c": 2.0}],
}
EXACT = {"scale": 0.5, "shift": 0.25, "amplitude": 1.5}  # what is 1 from an end is so to the last bit
POLES = {"log", "logit", "arctanh", "neg_log1m", "tan"}


def plain():
    made = {}
    for kind in ("link", "curve"):
        for entry in entries(kind):
            for own in SETTINGS.get(entry.name, [{}]):
                for shape in ({},) if entry.name == "constant" else ({}, EXACT):  # it has no scale
                    label = ",".join(f"{k}={v}" for k, v in (own | shape).items())
                    made[f"{entry.name}({label})"] = entry.factory(**own, **shape)
    return made


def combined():
    root, arc, ramp = links.SignedPower(0.5), links.Arcsin(), links.HuberGrad(0.5, shift=1.0)
    return {
        "multiple": 3 * root,
        "flip": links.Power(0.5).flip(),
        "flip logit": links.Logit().flip(),
        "sum": root + links.Sinh(0.5),
        "sum of ends": arc + links.Log(shift=-1.0) + 0.5 * links.NegLog1m(),
        "cap over a pole of the slope": root.cap(-1.0, 2.0),
        "cap flat at its end": arc.cap(-1.0, 1.0, tails="flat"),
        "cap one side": links.Power(0.5).cap(None, 1.5),
        "cap logit": links.Logit().cap(0.25, 0.75),
        "cap of a kink": ramp.cap(0.5, 1.5),
        "sum of caps": root.cap(-1.0, 1.0) + links.Exp().cap(None, 1.0, tails="flat"),
        "flipped sum": (links.Power(0.5) + links.Log(shift=-0.5)).flip(),
        "lines": links.Piecewise([-1.0, 0.0, 2.0], [-1.0, 0.0, 5.0]),
        "lines, linear": links.Piecewise([-1.0, 0.0, 2.0], [-1.0, 0.0, 5.0], tails="linear"),
        "pieces": links.Piecewise([0.0, 1.0], [links.SignedPower(0.5), links.Power(0.5), 1.0]),
        "pieces that end": links.Piecewise([0.0], [0.0, links.Arcsin()]),
        "staircase": links.Staircase([-1.0, 0.5], [0.0, 1.0, 4.0]),
        "design interval": links.design((0.0, 1.0), ratio=4),
        "design high": links.design("high", ratio=3, cap=1.5),
    }


PLAIN, COMBINED = plain(), combined()
CASES = PLAIN | COMBINED
each = pytest.mark.parametrize("name", CASES)
each_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])


def corners(curve):
    """Scores where a curve, its slope or one of its pieces ends."""
    found = {*curve.domain}
    if isinstance(curve, links.Flip):
        return {-each for each in corners(curve.curve)}
    for child in curve.modules():
        if child is not curve and isinstance(child, links.Curve):
            found |= corners(child)
    for name in ("shift", "low", "high"):
        found.add(getattr(curve, name, 0.0))
    found.update(float(k) for k in getattr(curve, "knots", ()))
    if isinstance(curve, links.HuberGrad | links.SmeLUGrad):
        width = getattr(curve, "delta", getattr(curve, "c", 0.0)) / curve.scale
        found |= {curve.shift - width, curve.shift + width}
    return {each for each in found if math.isfinite(each)}


def sites(curve, dtype):
    """Corners, the scores next to them on both sides, some near and some far; as far as the domain goes."""
    low, high = curve.domain
    at = torch.tensor(sorted(corners(curve)), dtype=torch.float64).to(dtype)
    up, down = torch.tensor(math.inf, dtype=dtype), torch.tensor(-math.inf, dtype=dtype)
    others = torch.tensor([-30.0, -2.0, 0.6, 40.0], dtype=dtype)
    z = torch.cat([at, torch.nextafter(at, up), torch.nextafter(at, down), at[:2] + 1e-6, others]).unique()
    return z[(z.double() >= low) & (z.double() <= high)]


@cache
def exact(name, dtype):
    """All pairs of sites, their divergence and rise, and by what the rounding of a value is measured."""
    curve = CASES[name]
    a, b = torch.cartesian_prod(*[sites(curve, dtype)] * 2).unbind(-1)
    wanted = [exact_curves.divergence(curve, x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    values = {z: exact_curves.value(curve, z) for z in a.tolist()}
    inside = [z for z in corners(curve) if curve.domain[0] <= z <= curve.domain[1]]
    most = max((abs(v) for v in (exact_curves.value(curve, z) for z in inside) if math.isfinite(v)), default=0.0)
    sizes = {z: abs(v) if math.isfinite(v) else 0.0 for z, v in values.items()}
    if name in COMBINED:  # parts round at their own corners
        steep = curve.slope(b.double()).abs().nan_to_num(0, 0, 0).clamp(max=10.0)
        most = steep * max(abs(z) for z in inside) + most
    size = torch.tensor([max(sizes[x], sizes[y]) for x, y in zip(a.tolist(), b.tolist(), strict=True)]).double() + most
    loss, rise = torch.tensor(wanted, dtype=torch.float64).unbind(-1)
    return a, b, loss, rise, size


def agree(got, want, tolerance):
    """Within the tolerance where the wanted number is in the range of the dtype, infinite where it is infinite."""
    limit = torch.finfo(got.dtype)
    assert not bool(got.isnan().any())
    infinite, inside = want.isinf(), want.abs() <= 0.5 * limit.max
    assert torch.equal(got[infinite].double(), want[infinite])
    error, bound = (got.double() - want).abs()[inside], (tolerance + 16 * limit.tiny).expand(want.shape)[inside]
    assert bool((error <= bound).all()), f"{got[inside][error > bound][:3]} for {want[inside][error > bound][:3]}"


@pytest.mark.sweep(3)
@each
@each_dtype
def test_divergence_is_exact_at_every_pair_of_corners(name, dtype):
    a, b, loss, _, size = exact(name, dtype)
    curve, eps = CASES[name], torch.finfo(dtype).eps
    tolerance = (1e-12 if dtype == torch.float64 else 1e-5) * loss.abs()
    if name in COMBINED:  # where pieces meet, what is exact is the value of the link to its last digits
        tolerance = tolerance + 8 * eps * size * (a - b).abs().double()
    if not curve.is_monotone:  # signs alternate, and terms of the loss cancel
        tolerance = tolerance + 8 * eps * (size * (a.abs() + b.abs()).double() + size)
    value = curve.divergence(a, b)
    agree(value, loss, tolerance)
    assert bool((value >= 0).all()) or not curve.is_monotone
    assert bool((value[a == b] == 0).all())
    assert torch.equal(curve.pair(a, b)[0], value)


@each
@each_dtype
def test_rise_is_exact_at_every_pair_of_corners(name, dtype):
    """It is the gradient by the prediction."""
    a, b, _, rise, size = exact(name, dtype)
    got = CASES[name].rise(a, b)
    agree(got, rise, 8 * torch.finfo(dtype).eps * size)
    assert bool((got[a == b] == 0).all())
    assert torch.equal(CASES[name].pair(a, b)[1], got)


@each
@each_dtype
def test_slope_times_a_step_is_exact_at_every_pair_of_corners(name, dtype):
    """It is the gradient by the target: infinite where the slope is, but for a step of 0."""
    a, b, *_ = exact(name, dtype)
    curve, step, eps = CASES[name], b - a, torch.finfo(dtype).eps
    got = curve.slope_times(b, step)
    assert bool((got[step == 0] == 0).all())
    for z, by, found in zip(b.tolist(), step.tolist(), got.tolist(), strict=True):
        if by == 0:
            continue
        nearby = [z, *(near for near in (z - 8 * eps * (1 + abs(z)), z + 8 * eps * (1 + abs(z))))]
        inside = [near for near in nearby if curve.domain[0] <= near <= curve.domain[1]]
        wanted = [exact_curves.slope_times(curve, near, by) for near in inside]  # at a kink one of the two slopes
        if any(abs(want) > 0.5 * torch.finfo(dtype).max and math.isfinite(want) for want in wanted):
            continue
        tiny = torch.finfo(dtype).tiny
        assert any(found == want or abs(found - want) <= 64 * eps * abs(want) + tiny for want in wanted), (z, by)


@pytest.mark.parametrize("name", PLAIN)
def test_the_divergence_has_the_gradients_of_its_formula(name):
    """Not those of the steps by which it is computed, some of which have none at an end."""
    curve = CASES[name]
    a, b, loss, rise, _ = exact(name, torch.float64)
    kept = loss.isfinite() & rise.isfinite() & (curve.slope(b).isfinite() | (a == b)) & (curve(b).isfinite())
    kept &= curve(a).isfinite() & (loss.abs() < 1e300)
    a, b = (each[kept].clone().requires_grad_() for each in (a, b))
    for_a, for_b = torch.autograd.grad(curve.divergence(a, b).sum(), (a, b))
    assert bool(for_a.isfinite().all())
    assert bool(for_b.isfinite().all())
    torch.testing.assert_close(for_a, rise[kept], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(for_b, curve.slope_times(b, b - a).detach())


@pytest.mark.parametrize("entry", entries("link"), ids=lambda e: e.name)
def test_learned_settings_have_finite_gradients_at_equal_scores(entry):
    for own in SETTINGS.get(entry.name, [{}]):
        curve = learnable(entry.factory(**own)).double()
        closed = [end for end, counts in zip(curve.domain, curve.closed, strict=True) if counts and math.isfinite(end)]
        z = torch.tensor([0.0, *closed, 0.25], dtype=torch.float64)
        z = z[[index for index, score in enumerate(z.tolist()) if score in closed or curve.domain[0] < score]]
        gradients = torch.autograd.grad(curve.divergence(z, z.clone()).sum(), list(curve.parameters()))
        assert all(bool((each == 0).all()) for each in gradients)


@pytest.mark.parametrize("entry", entries("link"), ids=lambda e: e.name)
@pytest.mark.parametrize("shape", [(0.6, 0.3), (3.3, -7.7), (1e-3, 1e3), (7.0, 1 / 3)])
@each_dtype
def test_rounding_does_not_lead_out_of_the_domain(entry, shape, dtype):
    """Of scores inside the domain, scale * (score - shift) may round to what is outside of the plain curve's."""
    for own in SETTINGS.get(entry.name, [{}]):
        curve = entry.factory(**own, scale=shape[0], shift=shape[1])
        z = sites(curve, dtype)
        low, high = curve.domain
        inside = (z > low) & (z < high)
        for end, counts in zip((low, high), curve.closed, strict=True):
            inside |= (z == end) & counts
        z = z[inside]
        a, b = torch.cartesian_prod(z, z).unbind(-1)
        far = curve.primitive(z.double()).abs().max() > 1e30  # exponentials overflow in float32
        assert bool(curve(z).isfinite().all()) or far
        assert not bool(curve.slope(z).isnan().any())
        assert bool((curve.slope(z) >= 0).all())
        value = curve.divergence(a, b)
        assert bool((value >= 0).all())
        assert bool((value[a == b] == 0).all())
        assert not bool(curve.rise(a, b).isnan().any())
        assert not bool(curve.slope_times(b, b - a).isnan().any())


def test_every_registered_curve_with_a_pole_is_known_to_be_open_there():
    for entry in entries("link"):
        curve = entry.factory()
        for end, counts in zip(curve.domain, curve.closed, strict=True):
            if math.isfinite(end) and entry.name != "tan":  # whose pole is no floating number
                assert bool(curve(torch.tensor(end, dtype=torch.float64)).isfinite()) == counts
        assert (entry.name in POLES) == (False in curve.closed)
