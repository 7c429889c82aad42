"""How sensitive a link is, under other distributions of observations, for large errors and among several classes."""

import math

import mpmath
import pytest
import torch

from references import curves
from vicinal import links, losses
from vicinal.core import entries

LINKS = {"sigmoid": links.Sigmoid(1.3, 0.2), "sinh": links.Sinh(1.3, 0.2), "exp": links.Exp(0.8), "log": links.Log()}
PLACES = torch.tensor([0.4, 0.9, 1.3], dtype=torch.float64)


def fitted(link, share, low, high):
    """The one score that a matching loss fits to observations of two distributions, given as scores and weights."""
    w = torch.full((), 0.7, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([w], lr=0.5, max_iter=300, tolerance_grad=1e-14, tolerance_change=1e-16)
    loss = losses.MatchingLoss(link, reduction="none")

    def closure():
        optimizer.zero_grad()
        parts = [(loss(w.expand(len(scores)), scores) * weights).sum() for scores, weights in (low, high)]
        value = (1 - share) * parts[0] + share * parts[1]
        value.backward()
        return value

    optimizer.step(closure)
    return w.item()


def uniform(start, end):
    """Scores and weights that integrate a polynomial of degree 39 over an interval exactly."""
    import numpy as np

    places, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(20))
    return start + (places + 1) / 2 * (end - start), weights / 2


def equal(scores):
    return scores, torch.full_like(scores, 1 / len(scores))


@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("kind", ["intervals", "observed", "a score and an interval"])
def test_the_share_is_how_much_more_of_the_high_distribution_moves_a_fit(name, kind):
    """Theorem 1, with observations of two distributions in place of two scores."""
    link, generator = LINKS[name], torch.Generator().manual_seed(0)
    low, high = (0.1, 0.9), (0.8, 2.0)
    spread = [uniform(*low), uniform(*high)]
    if kind == "observed":
        low = 0.1 + torch.rand(7, generator=generator, dtype=torch.float64)
        high = 0.9 + torch.rand(5, generator=generator, dtype=torch.float64)
        spread = [equal(low), equal(high)]
    elif kind == "a score and an interval":
        low, spread[0] = 0.2, equal(torch.tensor([0.2], dtype=torch.float64))
    first, second = fitted(link, 0.3, *spread), fitted(link, 0.55, *spread)
    at = torch.tensor(first, dtype=torch.float64)
    assert links.bust(link, at, second - first, low, high).item() == pytest.approx(0.25, abs=1e-6)
    tiny = 1e-4
    numeric = tiny / (fitted(link, 0.3 + tiny, *spread) - first)
    assert links.blust(link, at, low, high).item() == pytest.approx(numeric, rel=1e-3)


def test_an_interval_counts_by_the_primitive_of_the_link():
    """E h over [a, b] is (H(b) - H(a)) / (b - a); the integral is one of mpmath."""
    for entry in entries("link"):
        link, base = entry.factory(), curves.FORMULAS[entry.name]
        low, high, last = (max(link.domain[0], -1.3), 0.3, min(link.domain[1], 0.9))
        low = low + 0.1 if low > -1.3 else low
        with mpmath.workdps(20):
            kinks = [k for k in curves.KINKS.get(entry.name, ()) if low < k < high]
            mean = mpmath.quad(base, [low, *kinks, high]) / (high - low)
            rise = base(mpmath.mpf(last)) - mean
        got = 1 / links.blust(link, torch.tensor(0.25, dtype=torch.float64), (low, high), last)
        slope = link.slope(torch.tensor(0.25, dtype=torch.float64))
        assert float(got * slope) == pytest.approx(float(rise), rel=1e-6) or float(slope) == 0


def test_a_narrow_interval_is_one_score():
    link = links.Exp()
    wide = links.bust(link, PLACES, 0.1, (0.2 - 1e-7, 0.2 + 1e-7), (1.5 - 1e-7, 1.5 + 1e-7))
    torch.testing.assert_close(wide, links.bust(link, PLACES, 0.1, 0.2, 1.5), rtol=1e-6, atol=0)


@pytest.mark.parametrize("step", [-0.35, 0.5, 2.0])
@pytest.mark.parametrize("name", LINKS)
def test_a_wide_slope_is_the_loss_in_units_of_half_a_square_and_a_weighed_mean_of_slopes(name, step):
    link = LINKS[name]
    got = links.wide_slope(link, PLACES, step)
    loss = losses.MatchingLoss(link, reduction="none")(PLACES + step, PLACES)
    torch.testing.assert_close(got, 2 * loss / step**2)
    share = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000  # of the way
    slopes = link.slope(PLACES[:, None] + share * step)
    torch.testing.assert_close(got, (2 * (1 - share) * slopes).mean(1), rtol=1e-6, atol=0)
    torch.testing.assert_close(links.wide_slope(link, PLACES, 1e-5), link.slope(PLACES), rtol=1e-4, atol=0)
    assert links.wide_slope(link, PLACES.float(), step).dtype == torch.float32


def test_bad_distributions_and_steps_are_refused():
    at = torch.zeros(1)
    with pytest.raises(ValueError, match=r"^low: expected an interval that begins below its end, got \(1.0, 1.0\)"):
        links.bust(links.Exp(), at, 0.1, (1.0, 1.0), 2.0)
    with pytest.raises(ValueError, match=r"^high: expected at least one observed score"):
        links.bust(links.Exp(), at, 0.1, 0.0, torch.zeros(0))
    with pytest.raises(ValueError, match=r"^link: expected one that rises between low and high"):
        links.blust(links.Exp(), at, (1.0, 2.0), (0.0, 1.0))
    with pytest.raises(ValueError, match=r"^step: expected a number other than 0"):
        links.wide_slope(links.Exp(), at, 0.0)
    with pytest.raises(ValueError, match=r"^high: expected scores above low inside"):
        links.class_region(links.Log(), -3.0, 0.0)
    with pytest.raises(ValueError, match=r"^classes: expected"):
        links.class_region(links.Exp(), classes=1)


def felt(scaling, level, gamma, step=1e-3):
    """The curvature of the composite softmax loss in one of four classes of score ``level``, by its values."""
    loss = losses.CompositeSoftmaxMatchingLoss(scaling, gamma, reduction="none")
    target = torch.full((1, 4), level, dtype=torch.float64)
    moved = target + step * torch.eye(4, dtype=torch.float64)[:1], target - step * torch.eye(4, dtype=torch.float64)[:1]
    return float(sum(loss(prediction, target) for prediction in moved)) / step**2


@pytest.mark.parametrize("entry", [*entries("link"), *entries("curve")], ids=lambda e: e.name)
def test_the_region_that_a_scaling_declares_for_several_classes_is_that_of_its_loss(entry):
    """Table 1 and H.2: the registry says where a composite softmax is sensitive; the loss's own curvature agrees."""
    (declared,) = [fact.removeprefix("classes-") for fact in entry.facts if fact.startswith("classes-")]
    scaling, gamma = entry.factory(), 0.7 if entry.name == "cosh" else 1.0
    assert links.class_region(scaling, gamma=gamma) == declared
    low, high = max(scaling.domain[0], -3.0), min(scaling.domain[1], 3.0)
    places = torch.linspace(low, high, 14, dtype=torch.float64)[1:-1].tolist()  # twelve, none on a kink
    values = [felt(scaling, place, gamma) for place in places]
    left, middle, right = (sum(values[k : k + 4]) for k in (0, 4, 8))
    rises, falls = right > 1.4 * left, left > 1.4 * right
    assert {
        "high-scores": rises,
        "low-scores": falls,
        "high-norms": min(left, right) > 1.2 * middle,
        "low-norms": middle > 1.2 * max(left, right),
        "uniform": not rises and not falls and min(left, right) < 2 * middle,
    }[declared], (left, middle, right)


@pytest.mark.parametrize(
    ("scaling", "region"),
    [
        (links.Exp(), "high-scores"),
        (links.Sigmoid(shift=1.0), "high-scores"),
        (links.Sinh(shift=-1.0), "high-scores"),
        (links.Step(), "high-scores"),  # clips low scores, as the gradient of ReLU
        (links.SmeLUGrad(), "high-scores"),
        (links.AntiExp(), "low-scores"),
        (links.Sinh(shift=1.0), "low-scores"),
        (links.Exp().flip(), "low-scores"),
        (links.Sinh(), "high-norms"),
        (links.Constant(), "uniform"),
    ],
    ids=repr,
)
def test_the_papers_choices_for_several_classes_are_sensitive_where_it_says(scaling, region):
    for classes in (2, 4, 100):
        assert links.class_region(scaling, classes=classes) == region


def test_near_zero_needs_the_decomposed_loss_or_a_gamma_so_large_that_it_is_one():
    names = [e.name for e in entries("link") if "classes-low-norms" in e.facts]
    assert names == ["huber_grad"]
    assert links.class_region(links.Tanh()) == "uniform"
    assert links.class_region(links.Tanh(), gamma=30.0) == "low-norms"
    prediction, target = torch.tensor([[0.3, -0.2, 0.1]]).double(), torch.tensor([[0.0, 0.1, -0.4]]).double()
    large = losses.CompositeSoftmaxMatchingLoss(links.Tanh(), 1e6)(prediction, target)
    apart = losses.DecomposedMatchingLoss(links.Tanh())(prediction, target)
    assert math.isclose(3 * large, apart, rel_tol=1e-4)
