"""How sensitive a link is: the shift that a biased interval makes, large errors; and where, alone or among classes."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from vicinal import links, losses
from vicinal.core import entries

LINKS = {"sigmoid": links.Sigmoid(1.3, 0.2), "sinh": links.Sinh(1.3, 0.2), "exp": links.Exp(0.8), "log": links.Log()}
PLACES = torch.tensor([0.4, 0.9, 1.3], dtype=torch.float64)

# h and H of numpy
PAIRS = {
    "sigmoid": (lambda z: 1 / (1 + np.exp(-z)), lambda z: np.logaddexp(0, z)),
    "exp": (np.exp, np.exp),
    "sinh": (np.sinh, np.cosh),
}
DENSITIES = {"uniform": None, "normal": lambda w: torch.exp(-w * w / 2), "gamma": lambda w: (w + 3) * torch.exp(-w)}


def optimum(name, density, step, width, model, low=-3.0, high=3.0, at=0.7):
    """Where the mean loss of a model that knows all but a biased interval is least, by trying; over the width."""
    h, primitive = PAIRS[name]
    nodes, weights = np.polynomial.legendre.leggauss(40)
    edges = [low, at - width / 2, at + width / 2, high]
    w, mass, observed = [], [], []
    for k, (first, last) in enumerate(itertools.pairwise(edges)):
        places = first + (nodes + 1) / 2 * (last - first)
        w.append(places), mass.append(weights * (last - first) / 2), observed.append(places + step * (k == 1))
    w, mass, observed = np.concatenate(w), np.concatenate(mass), np.concatenate(observed)
    if density is not None:
        mass = mass * density(torch.from_numpy(w)).numpy()

    def loss(delta):
        prediction = model(w, delta)
        bregman = primitive(prediction) - primitive(observed) - (prediction - observed) * h(observed)
        return (mass * bregman).sum()

    return minimize_scalar(loss, bracket=(0.0, 0.05 * step), tol=1e-12).x / width


def add(w, delta):
    return w + delta


def scale(w, delta):
    return w * (1 + delta)


@pytest.mark.parametrize("step", [0.9, -0.9])
@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("name", PAIRS)
def test_a_biased_interval_moves_the_optimum_by_what_bust_says(name, density, step):
    """Definition 1, equation 12 and theorem 1, of any density of scores; LLUST of a model that scales."""
    link = next(e for e in entries("link") if e.name == name).factory()
    rho, at = DENSITIES[density], torch.tensor([0.7], dtype=torch.float64)
    for width in (2.0, 0.5):
        got = links.bust(link, at, step, -3.0, 3.0, density=rho, width=width).item()
        assert got == pytest.approx(optimum(name, rho, step, width, add), rel=1e-5)
    small = [optimum(name, rho, step, width, add) for width in (0.02, 0.01)]
    limit = links.bust(link, at, step, -3.0, 3.0, density=rho).item()
    assert limit == pytest.approx(2 * small[1] - small[0], rel=1e-4)
    small = [optimum(name, rho, step, width, scale) for width in (0.02, 0.01)]
    scaled = links.llust(link, at, step, -3.0, 3.0, density=rho).item()
    assert scaled == pytest.approx(2 * small[1] - small[0], rel=2e-4)
    tiny = links.bust(link, at, 1e-6, -3.0, 3.0, density=rho).item() / 1e-6
    assert links.blust(link, at, -3.0, 3.0, density=rho).item() == pytest.approx(tiny, rel=1e-5)


def test_values_of_the_sigmoid_on_minus_3_to_3():
    """At w = .7 with d = .9, from the definitions by an independent program; .1959 is another quantity."""
    link, at = links.Sigmoid(), torch.tensor(0.7, dtype=torch.float64)
    values = {
        0.1810: links.bust(link, at, 0.9, -3.0, 3.0),
        0.2477: links.bust(link, at, 0.9, -3.0, 3.0, density=DENSITIES["normal"]),
        0.1775: links.bust(link, at, 0.9, -3.0, 3.0, width=2.0),
        0.0692: links.llust(link, at, 0.9, -3.0, 3.0),
        0.1959: links.wide_slope(link, at, 0.9),
    }
    for known, value in values.items():
        assert value.item() == pytest.approx(known, abs=5.1e-5)


def test_a_jump_counts_by_its_height():
    """The integral of a density over dh of a step is its value where the step is."""
    got = links.blust(links.Sigmoid(), torch.zeros(1).double(), -4.0, 4.0, density=lambda w: torch.exp(-w.abs()))
    places = np.linspace(-4, 4, 400_001)
    slope = 1 / (2 + 2 * np.cosh(places))
    assert got.item() == pytest.approx(0.25 / np.trapezoid(np.exp(-abs(places)) * slope, places), rel=1e-6)
    step = links.bust(links.Step(), torch.tensor([-0.5]).double(), 1.0, -4.0, 3.0, density=lambda w: torch.exp(w))
    assert step.item() == pytest.approx(math.exp(-0.5), rel=1e-3)


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


def test_bad_densities_and_steps_are_refused():
    at = torch.zeros(1)
    with pytest.raises(ValueError, match=r"^high: expected a score above low \(2\), got 2"):
        links.bust(links.Exp(), at, 0.1, 2.0, 2.0)
    for sensitivity in (links.bust, links.llust):
        with pytest.raises(ValueError, match=r"^step: expected a number other than 0"):
            sensitivity(links.Exp(), at, 0.0, -1.0, 1.0)
    with pytest.raises(ValueError, match=r"^link: expected one that rises by a finite amount between low and high"):
        links.blust(links.Step(), at, 1.0, 2.0)
    with pytest.raises(ValueError, match=r"^link: expected one that rises by a finite amount"):
        links.bust(links.Logit(), at, 0.1, 0.0, 1.0)
    with pytest.raises(ValueError, match=r"^density: expected a function of torch"):
        links.bust(links.Exp(), at, 0.1, -1.0, 1.0, density=lambda w: w)
    with pytest.raises(ValueError, match=r"^width: expected intervals around the scores inside -1 to 1, got 0.5"):
        links.bust(links.Exp(), at + 0.9, 0.1, -1.0, 1.0, width=0.5)
    with pytest.raises(ValueError, match=r"^step: expected a number other than 0"):
        links.wide_slope(links.Exp(), at, 0.0)
    with pytest.raises(ValueError, match=r"^high: expected scores above low inside"):
        links.class_region(links.Log(), -3.0, 0.0)
    with pytest.raises(ValueError, match=r"^classes: expected"):
        links.class_region(links.Exp(), classes=2)
    with pytest.raises(ValueError, match=r"^gap: expected"):
        links.class_ranking(links.Exp(), gap=4.0)


def felt(loss, target, step=1e-4):
    """The curvature of a loss in each score of a row, by its values."""
    moves = step * torch.eye(len(target), dtype=torch.float64)
    return (
        (loss(target + moves, target.expand_as(moves)) + loss(target - moves, target.expand_as(moves))) / step**2
    ).numpy()


def by_thirds(values):
    left, middle, right = values
    if min(left, right) > max(1.2 * middle, max(left, right) / 4):
        return "high-norms"
    if right > 1.2 * max(left, middle):
        return "high-scores"
    if left > 1.2 * max(middle, right):
        return "low-scores"
    return "low-norms" if middle > 1.2 * max(left, right) else "uniform"


def declared(entry, start):
    (fact,) = [fact.removeprefix(start) for fact in entry.facts if fact.startswith(start)]
    return fact


def ends(scaling):
    low, high = max(scaling.domain[0], -3.0), min(scaling.domain[1], 3.0)
    room = (high - low) / 100
    return low + room * (low == scaling.domain[0]), high - room * (high == scaling.domain[1])


SCALINGS = [*entries("link"), *entries("curve")]


@pytest.mark.parametrize("entry", SCALINGS, ids=lambda e: e.name)
def test_the_regions_that_a_scaling_declares_are_those_of_its_losses(entry):
    """Table H.2 and figures H.2 to H.6: of classes with scores -3, 0, 3, by the curvature of the loss; of one score."""
    scaling, gamma = entry.factory(), 0.7 if entry.name == "cosh" else 1.0
    low, high = ends(scaling)
    target = torch.tensor([low, (low + high) / 2, high], dtype=torch.float64)
    region = declared(entry, "classes-")
    assert links.class_region(scaling, gamma=gamma) == region
    if entry.name not in ("step", "sign"):  # a class on the jump is felt without end
        values = felt(losses.CompositeSoftmaxMatchingLoss(scaling, gamma, reduction="none"), target)
        assert by_thirds(values) == region or entry.name == "constant"
    q, primitive = (values.numpy() for values in scaling.both(torch.linspace(low, high, 4).double()))
    rises = np.diff(q / (1 + np.exp(-primitive / gamma)))  # of the composite sigmoid
    assert by_thirds(rises) == declared(entry, "sigmoid-")
    assert links.region(links.CompositeSigmoid(scaling, gamma)) == declared(entry, "sigmoid-")


@pytest.mark.parametrize("entry", SCALINGS, ids=lambda e: e.name)
def test_facts_of_probabilities_ranks_and_symmetry_are_those_of_the_losses(entry):
    scaling, gamma = entry.factory(), 0.7 if entry.name == "cosh" else 1.0
    low, high = ends(scaling)
    scores = torch.linspace(low, high, 301, dtype=torch.float64)
    rows = torch.stack([scores, torch.full_like(scores, (low + high) / 2)], dim=1)
    probability = (scaling.primitive(rows) / gamma).softmax(-1)[:, 0]
    assert ("monotone-probabilities" in entry.facts) == bool((probability.diff() >= -1e-12).all())

    loss = losses.CompositeSoftmaxMatchingLoss(scaling, gamma, reduction="none")
    gap = min(1.0, (high - low) / 4)
    ranks = set()
    for start in np.linspace(low + 1e-3, high - 2 * gap - 1e-3, 12):
        values = felt(loss, torch.tensor([start, start + gap, start + 2 * gap], dtype=torch.float64))
        top = values.max()
        ranks.add(int(values.argmax()) if (values > 0.999 * top).sum() == 1 else None)
    rank = {frozenset({2}): "ranks-top", frozenset({0}): "ranks-bottom"}.get(frozenset(ranks))
    assert {fact for fact in entry.facts if fact.startswith("ranks-")} == ({rank} if rank else set())
    if entry.name not in ("step", "smelu_grad"):
        ranking = links.class_ranking(scaling, gap=gap, gamma=gamma)
        assert ranking == (rank.removeprefix("ranks-") if rank else "none")

    errors, zeros = torch.tensor([0.3, -0.3, 0.9, -0.9], dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    if scaling.domain[0] >= 0:
        assert not {"symmetric-loss", "composite-symmetric-loss"} & entry.facts
        return
    composite = losses.CompositeSigmoidMatchingLoss(scaling, gamma, reduction="none")(errors, zeros)
    same = [math.isclose(up, down, rel_tol=1e-9) for up, down in composite.reshape(2, 2).tolist()]
    assert ("composite-symmetric-loss" in entry.facts) == all(same)
    if entry.kind == "link":
        plain = losses.MatchingLoss(scaling, reduction="none")(errors, zeros)
        same = [math.isclose(up, down, rel_tol=1e-9) for up, down in plain.reshape(2, 2).tolist()]
        assert ("symmetric-loss" in entry.facts) == all(same)


@pytest.mark.parametrize(
    ("scaling", "slopes", "region"),
    [
        (links.Tanh(), (0.252, 0.047, 0.252), "high-norms"),
        (links.Arctan(), (0.438, 0.036, 0.438), "high-norms"),
        (links.HuberGrad(), (0.250, 0.039, 0.250), "high-norms"),
        (links.Tanh(shift=2.0), (0.062, 0.045, 0.019), "low-scores"),
        (links.Tanh(shift=-2.0), (0.019, 0.045, 0.062), "high-scores"),
        (links.Sigmoid(shift=-2.0), (0.002, 0.044, 0.063), "high-scores"),
    ],
    ids=repr,
)
def test_shapes_that_change_their_region_with_classes(scaling, slopes, region):
    """Figure H.6: slopes of the classes of scores -3, 0 and 3 by an independent numpy."""
    got = links.class_slope(scaling, torch.tensor([-3.0, 0.0, 3.0]))
    assert got.tolist() == pytest.approx(slopes, abs=6e-4)
    for classes in (3, 9, 100):
        assert links.class_region(scaling, classes=classes) == region


@pytest.mark.parametrize(
    ("scaling", "region"),
    [
        (links.Exp(), "high-scores"),
        (links.Sigmoid(shift=1.0), "high-scores"),
        (links.Sinh(shift=-1.0), "high-scores"),
        (links.SmeLUGrad(), "high-scores"),
        (links.AntiExp(), "low-scores"),
        (links.Sinh(shift=1.0), "low-scores"),
        (links.Identity(shift=2.0), "low-scores"),
        (links.Cosh(0.25, 4.0, 0.25), "low-scores"),
        (links.Exp().flip(), "low-scores"),
        (links.Sinh(), "high-norms"),
        (links.Identity(), "high-norms"),
        (links.Cosh(1 / 3, 2.1, 1 / 3), "high-norms"),
        (links.Constant(), "uniform"),
    ],
    ids=repr,
)
def test_the_papers_choices_for_several_classes_are_sensitive_where_it_says(scaling, region):
    """Tables 1 and H.2, figures H.3 to H.5."""
    assert links.class_region(scaling) == region


def test_a_linear_and_a_cosh_scaling_of_one_score_are_of_high_norms():
    """Figure H.2, bottom."""
    for scaling in (links.Identity(), links.Cosh(1 / 3, 2.1, 1 / 3)):
        assert links.region(links.CompositeSigmoid(scaling)) == "high-norms"
    assert links.region(links.Sigmoid(shift=3.0)) == "high-scores"
    assert links.region(links.Sigmoid(shift=-3.0)) == "low-scores"


def test_near_zero_needs_the_decomposed_loss_or_a_gamma_so_large_that_it_is_one():
    assert not [e.name for e in SCALINGS if "classes-low-norms" in e.facts]
    assert links.class_region(links.Tanh(), gamma=30.0) == "low-norms"
    prediction, target = torch.tensor([[0.3, -0.2, 0.1]]).double(), torch.tensor([[0.0, 0.1, -0.4]]).double()
    large = losses.CompositeSoftmaxMatchingLoss(links.Tanh(), 1e6)(prediction, target)
    apart = losses.DecomposedMatchingLoss(links.Tanh())(prediction, target)
    assert math.isclose(3 * large, apart, rel_tol=1e-4)


def test_one_score_is_felt_as_the_highest_and_hardly_as_the_lowest():
    """Ranking sensitivity (figure 5): s_1 = 3 beside 1 and beside 5; a decomposed loss feels it alike beside both."""
    softmax, apart = (
        kind(links.Exp(), reduction="none")
        for kind in (losses.CompositeSoftmaxMatchingLoss, losses.DecomposedMatchingLoss)
    )
    beside = [torch.tensor([3.0, other], dtype=torch.float64) for other in (1.0, 5.0)]
    of_rank, of_score = ([felt(loss, scores)[0] for scores in beside] for loss in (softmax, apart))
    assert of_rank[0] == pytest.approx(math.exp(3), rel=1e-3)
    assert of_rank[1] < 1e-6
    assert of_score[0] == pytest.approx(of_score[1], rel=1e-5)


@pytest.mark.parametrize("gamma", [1.0, 0.6])
@pytest.mark.parametrize("scaling", [links.Exp(0.7), links.Tanh(1.3, 0.2), links.Cosh(0.5)], ids=repr)
def test_the_hessian_is_that_of_autograd_and_its_form_the_loss_of_a_small_error(scaling, gamma):
    """B.2 to B.5."""
    scores = torch.tensor([0.7, -0.4, 1.1, 0.0], dtype=torch.float64)
    hessian = links.class_hessian(scaling, scores, gamma)
    link = links.CompositeSoftmax(scaling, gamma)
    torch.testing.assert_close(hessian, torch.autograd.functional.jacobian(lambda z: link(z[None])[0], scores))
    torch.testing.assert_close(hessian.diagonal(), links.class_slope(scaling, scores, gamma))
    error = 1e-4 * torch.tensor([1.0, -2.0, 0.5, 0.3], dtype=torch.float64)
    p, q = link.probabilities(scores), scaling(scores)
    spread = (p * (q * error) ** 2).sum() - (p * q * error).sum() ** 2
    form = ((p * scaling.slope(scores) * error**2).sum() + spread / gamma) / 2
    assert (error @ hessian @ error / 2).item() == pytest.approx(form.item(), rel=1e-9)
    assert link.divergence(scores + error, scores).item() == pytest.approx(form.item(), rel=1e-3)
