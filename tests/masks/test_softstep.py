"""SoftStep: values against numpy, the limits of its shapes, finite gradients where the formulas have none."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.func import functional_call

from references import nona as reference
from vicinal.masks import SoftStep, log_s1, log_s2, softmax
from vicinal.masks.softstep import StepParameters, parameters_from_logits

FAMILIES = ["s1", "s2"]
PARAMETERS = ["pointwise", "global"]
EXTENTS = ["admissible", "all"]
DIM = 3
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
SIZES = list(itertools.product(DTYPES, [1e4, 1.0, 1e-4]))
SIZES.remove((torch.float16, 1e-4))  # the true slope of a step of width 1e-6 there is above the largest float16

grid_of_settings = pytest.mark.parametrize(
    ("family", "parameters", "extent"), list(itertools.product(FAMILIES, PARAMETERS, EXTENTS))
)


def made(family, parameters, extent, *, seed=0, spread=1.5, eps=1e-6):
    """Mask in float64 with parameters drawn at random."""
    mask = SoftStep(DIM, family, parameters, extent, eps).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in mask.parameters():
            parameter.copy_(spread * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return mask


def drawn(seed, b=6, n=9, closed=True):
    """Scores, queries, and a weight with two closed columns in the first rows (the best and the worst)."""
    generator = torch.Generator().manual_seed(seed)
    scores = -3 * torch.rand(b, n, generator=generator, dtype=torch.float64)
    queries = torch.randn(b, DIM, generator=generator, dtype=torch.float64)
    weight = torch.ones(b, n, dtype=torch.float64)
    if closed:
        for i in range(b // 2):
            weight[i, scores[i].argmax()] = weight[i, scores[i].argmin()] = 0.0
    return scores, queries, weight


def shapes_in_numpy(mask, queries):
    """One (a0, b0, t) a query, from the parameters."""
    if mask.parameters_from == "global":
        logits = mask.logits.detach().expand(len(queries), 3).numpy()
    else:
        logits = queries.numpy() @ mask.projection.weight.detach().numpy().T + mask.projection.bias.detach().numpy()
    return mask.eps + (1 - 2 * mask.eps) / (1 + np.exp(-logits))


def fixed(family, a0, b0, t, **settings):
    """A global mask whose numbers are a0, b0, t."""
    mask = SoftStep(DIM, family, "global", **settings).double()
    with torch.no_grad():
        numbers = (torch.tensor([a0, b0, t], dtype=torch.float64) - mask.eps) / (1 - 2 * mask.eps)
        mask.logits.copy_(numbers.logit())
    return mask


def mass_on_grid(mask, points=401):
    """The unit grid and the mass of a mask on it, as one row of scores from 0 to 1."""
    grid = torch.linspace(0, 1, points, dtype=torch.float64)
    return grid, mask(grid[None], torch.zeros(1, DIM)).exp().detach()[0]


@grid_of_settings
@pytest.mark.parametrize("eps", [1e-6, 1e-2])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_equals_numpy_reference(family, parameters, extent, eps, seed):
    mask = made(family, parameters, extent, seed=seed, eps=eps)
    scores, queries, weight = drawn(seed)
    scores[4, 2] = scores[4, 6]
    scores[5] = -1.0
    got = mask(scores, queries, weight).exp().detach().numpy()
    shapes = shapes_in_numpy(mask, queries)
    mass = reference.softstep(shapes, family=family, extent=extent, eps=eps)
    for i, row in enumerate(scores.tolist()):
        seen = [j for j in range(len(row)) if weight[i, j] > 0]
        want = np.array(mass(row, seen, i))
        np.testing.assert_allclose(got[i, seen], want[seen], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_extents_agree_where_all_rows_are_admissible_and_the_floor_is_not_reached(family):
    scores, queries, _ = drawn(3)
    mask, other = (fixed(family, 0.3, 0.6, 0.8, extent=extent, eps=1e-9) for extent in EXTENTS)
    assert torch.equal(mask(scores, queries), other(scores, queries))


def test_extent_says_over_which_rows_the_range_is_taken():
    """Self at score 0 is closed; the nearest other has unit score 1 only by the range of the others."""
    scores = torch.tensor([[0.0, -2.0, -3.0, -4.0]], dtype=torch.float64)
    weight = torch.tensor([[0.0, 1.0, 1.0, 1.0]])
    for extent, unit in (("admissible", 0.5), ("all", 0.25)):
        got = fixed("s2", 0.5, 0.9, 0.5, extent=extent)(scores, torch.zeros(1, DIM), weight).exp()[0, 2]
        assert got.item() == pytest.approx((unit / 0.9) ** (0.9 - unit))


@pytest.mark.parametrize(("a0", "b0"), [(0.2, 0.5), (0.7, 0.3), (0.4, 0.999)])
def test_s1_becomes_a_step_at_the_middle_as_t_goes_to_0(a0, b0):
    grid, mass = mass_on_grid(fixed("s1", a0, b0, 1e-5))
    middle = a0 + b0 * (1 - a0) / 2
    away = (grid - middle).abs() > 1e-3
    assert torch.equal(mass[away], (grid[away] > middle).double())


@pytest.mark.parametrize(("a0", "b0"), [(0.2, 0.5), (0.7, 0.3), (0.4, 0.999)])
def test_s1_becomes_a_clamped_ramp_as_t_goes_to_1(a0, b0):
    grid, mass = mass_on_grid(fixed("s1", a0, b0, 1 - 2e-6))
    ramp = ((grid - a0) / (b0 * (1 - a0))).clamp(0, 1)
    torch.testing.assert_close(mass, ramp, rtol=0, atol=2e-5)


@pytest.mark.parametrize("t", [0.05, 0.5, 0.95])
def test_s1_is_one_half_at_the_middle_and_symmetric_about_it(t):
    a0, b0, eps = 0.3, 0.6, 1e-6
    low, width = a0 - eps, b0 * (1 - a0 + eps)
    offsets = torch.linspace(0, 0.5 * width, 50, dtype=torch.float64)
    shape = StepParameters(*(torch.tensor([[v]], dtype=torch.float64) for v in (a0, b0, t, t / (1 - t))))
    top = torch.ones(1, 1, dtype=torch.float64)
    up = log_s1(low + width / 2 + offsets[None], shape, top, eps).exp()
    down = log_s1(low + width / 2 - offsets[None], shape, top, eps).exp()
    assert up[0, 0].item() == pytest.approx(0.5)
    torch.testing.assert_close(up + down, torch.ones(1, 50, dtype=torch.float64))


def test_s1_with_extent_all_has_the_plateau_of_the_floor():
    """With u, v >= eps the mass is 1/2 where both are below it: for small t all of (a, b) but its ends."""
    eps, a0, b0, t = 1e-3, 0.2, 0.5, 0.1
    grid, mass = mass_on_grid(fixed("s1", a0, b0, t, extent="all", eps=eps))
    rise = grid - a0 + eps
    fall = b0 * (1 - a0 + eps) - rise
    between = (rise > 0) & (fall > 0)
    floored = between & (rise.clamp(min=0) ** (1 / t) < eps) & (fall.clamp(min=0) ** (1 / t) < eps)
    assert floored.sum() > 100
    torch.testing.assert_close(mass[floored], torch.full_like(mass[floored], 0.5), rtol=0, atol=1e-12)
    _, exact = mass_on_grid(fixed("s1", a0, b0, t, eps=eps))
    assert (exact[floored] - 0.5).abs().max() > 0.4  # the default extent has the step that the paper describes
    assert (mass[rise <= 0] == 0).all()
    assert (mass[fall <= 0] == 1).all()


@pytest.mark.parametrize("b0", [0.2, 0.7, 0.999])
def test_s2_becomes_constant_1_as_t_goes_to_0(b0):
    _, mass = mass_on_grid(fixed("s2", 0.5, b0, 2e-6))
    assert mass[0] == 0  # but the farthest row has mass exactly 0 for every t
    torch.testing.assert_close(mass[1:], torch.ones(400, dtype=torch.float64), rtol=0, atol=2e-5)


@pytest.mark.parametrize("b0", [0.2, 0.7, 0.999])
def test_s2_becomes_constant_0_below_b_as_t_goes_to_1(b0):
    grid, mass = mass_on_grid(fixed("s2", 0.5, b0, 1 - 1.01e-6))
    assert (mass[grid >= b0] == 1).all()
    assert (mass[grid < b0 - 0.01] < 1e-6).all()


@grid_of_settings
def test_the_curve_is_the_mass_of_scores_that_are_their_own_unit_scores(family, parameters, extent):
    mask = made(family, parameters, extent, eps=1e-2)
    grid, queries = torch.linspace(0, 1, 60, dtype=torch.float64), drawn(7)[1]
    want = mask(grid.expand(len(queries), -1), queries).exp()
    torch.testing.assert_close(mask.curve(grid, queries), want)


def test_s2_makes_no_use_of_a0():
    scores, queries, weight = drawn(4)
    masks = [fixed("s2", a0, 0.6, 0.4) for a0 in (0.1, 0.9)]
    assert torch.equal(*(mask(scores, queries, weight) for mask in masks))


@grid_of_settings
@pytest.mark.parametrize("case", ["plain", "closed", "tie", "one admissible"])
def test_gradcheck(family, parameters, extent, case):
    mask = made(family, parameters, extent, spread=0.6)
    scores, queries, weight = drawn(5, b=3, n=6, closed=case == "closed")
    if case == "tie":  # the two best, and two in the middle
        ranked = scores.argsort(dim=-1, descending=True)
        for i, (best, second, third, fourth, *_) in enumerate(ranked.tolist()):
            scores[i, second], scores[i, fourth] = scores[i, best].clone(), scores[i, third].clone()
    if case == "one admissible":
        weight[1] = 0.0
        weight[1, 2] = 1.0
    names = [name for name, _ in mask.named_parameters()]

    def masked(scores, queries, *values):
        log_mask = functional_call(mask, dict(zip(names, values, strict=True)), (scores, queries, weight))
        return softmax((scores + log_mask).masked_fill(weight == 0, -torch.inf))

    inputs = [scores, queries, *(p.detach().clone() for p in mask.parameters())]
    assert torch.autograd.gradcheck(masked, [value.requires_grad_() for value in inputs])


@grid_of_settings
@pytest.mark.parametrize(("dtype", "size"), SIZES)
def test_values_and_gradients_are_finite_for_logits_of_any_size(family, parameters, extent, dtype, size):
    """All eight corners of (a0, b0, t), scores of three sizes with ties, closed columns, one admissible row."""
    corners = torch.tensor(list(itertools.product([-1e4, 1e4], repeat=3)))
    base = torch.tensor(
        [[-1.0, 1.0, 0.0, 0.0, -1.0, 1.0], [0.5, 0.25, 1.0, -1.0, 0.0, 0.75], [-1.0] * 6, [1.0, -1.0, -1.0, -1, -1, -1]]
    )
    weight = torch.ones(4, 6)
    weight[1, 2] = weight[1, 3] = 0.0
    weight[3, :3] = weight[3, 4:] = 0.0
    for corner in corners:
        mask = SoftStep(DIM, family, parameters, extent).to(dtype)
        with torch.no_grad():
            if parameters == "global":
                mask.logits.copy_(corner)
            else:
                mask.projection.bias.copy_(corner)
        scores = (base * size).to(dtype).requires_grad_()
        queries = torch.eye(4, DIM).to(dtype).requires_grad_()
        log_mask = mask(scores, queries, weight)
        assert (log_mask <= 0).all()
        assert ((weight > 0) & log_mask.isfinite()).any(dim=-1).all()
        weights = softmax((scores + log_mask).masked_fill(weight == 0, -torch.inf))
        (weights * torch.arange(24.0).reshape(4, 6).sin()).sum().backward()
        for tensor in (scores, queries, *mask.parameters()):
            if tensor.grad is not None:
                assert tensor.grad.isfinite().all(), corner


@pytest.mark.parametrize("logit", [-20.0, 0.0, 12.0, 25.0])
def test_odds_keep_their_digits_where_t_rounds_to_1(logit):
    """1 - t in float32 is a multiple of 6e-8, while t / (1 - t) is to reach 1 / eps."""
    logits = torch.tensor([[0.0, 0.0, logit]])
    got, want = parameters_from_logits(logits, 1e-12).odds, parameters_from_logits(logits.double(), 1e-12).odds
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=0)
    assert want.item() == pytest.approx(math.exp(logit), rel=0.1)


def test_the_farthest_row_has_gradient_0_and_not_nan_in_s2():
    unit = torch.tensor([[0.0, 0.3, 1.0]], requires_grad=True)
    shape = StepParameters(*(torch.tensor([[v]], requires_grad=True) for v in (0.5, 0.6, 0.5, 1.0)))
    log_mask = log_s2(unit, shape)
    assert log_mask[0, 0] == -math.inf
    log_mask.softmax(dim=-1)[0, 1].backward()
    assert unit.grad[0, 0] == 0
    assert unit.grad[0, 1] > 0
    assert shape.b0.grad.isfinite()
    assert shape.odds.grad.isfinite()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", FAMILIES)
def test_half_precision_is_computed_in_float32(family, dtype):
    """Against the same mask in float64 on the rounded inputs, under autocast too."""
    mask = made(family, "pointwise", "admissible").to(dtype)
    scores, queries, weight = (tensor.to(dtype) for tensor in drawn(6))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = mask(scores, queries, weight)
    assert got.dtype == torch.float32
    want = mask.double()(scores.double(), queries.double(), weight)
    torch.testing.assert_close(got.exp().double(), want.exp(), rtol=1e-3, atol=1e-4)


def test_parameters_have_the_names_and_order_of_the_contract():
    pointwise, overall = SoftStep(5), SoftStep(5, parameters="global")
    assert {k: tuple(v.shape) for k, v in pointwise.state_dict().items()} == {
        "projection.weight": (3, 5),
        "projection.bias": (3,),
    }
    assert {k: tuple(v.shape) for k, v in overall.state_dict().items()} == {"logits": (3,)}


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"dim": 0}, ValueError, "^dim: expected a whole number of at least 1, got 0$"),
        ({"dim": 2.0}, TypeError, r"^dim: expected a whole number, got 2\.0$"),
        ({"family": "S2"}, ValueError, r"^family: expected one of .*, got 'S2'; did you mean 's2'\?$"),
        ({"parameters": "point"}, ValueError, "^parameters: expected one of 'pointwise', 'global', got 'point'"),
        ({"extent": "every"}, ValueError, "^extent: expected one of 'admissible', 'all', got 'every'"),
        ({"eps": 0}, ValueError, "^eps: expected a number between 0 and 0.5, got 0$"),
        ({"eps": 0.5}, ValueError, "^eps: expected a number between 0 and 0.5, got 0.5$"),
    ],
)
def test_wrong_settings_are_refused(settings, error, sentence):
    with pytest.raises(error, match=sentence):
        SoftStep(**{"dim": 2, **settings})


@pytest.mark.parametrize("shape", [(2, 4), (3, DIM), (2,)])
def test_queries_that_do_not_fit_are_refused(shape):
    with pytest.raises(ValueError, match=r"^queries: expected \(2, 3\), got "):
        SoftStep(DIM)(torch.zeros(2, 5), torch.zeros(shape))
