"""Steps on a surrogate in the space of the targets: what they promise."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional

from vicinal.training import SurrogateSteps, surrogate


def data(rows=12, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 3, generator=generator, dtype=torch.float64)
    return x, torch.arange(rows) % 2


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


@pytest.mark.parametrize("form", ["squared", "kl"])
def test_the_surrogate_has_the_slope_of_the_loss_where_it_starts(form):
    x, y = data()
    model = network()
    targets = model(x).softmax(1) if form == "kl" else model(x)
    loss = lambda z: functional.nll_loss(z.log() if form == "kl" else z.log_softmax(1), y, reduction="sum")
    start = targets.detach().requires_grad_()
    (slope,) = torch.autograd.grad(loss(start), start)
    parameters = list(model.parameters())
    expected = torch.autograd.grad(loss(targets), parameters, retain_graph=True)
    found = torch.autograd.grad(surrogate(targets, start, slope, rate=0.3, form=form), parameters)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    assert surrogate(start, start, slope, rate=0.3, form=form) == 0
    z = torch.rand(3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda t: surrogate(t, 0.5 * z, z, rate=0.7, form=form), z.detach().clone().requires_grad_()
    )


def test_it_bounds_the_loss_from_above_for_rates_up_to_its_smoothness():
    _, y = data()
    start = torch.randn(12, 2, dtype=torch.float64)
    loss = lambda z: functional.cross_entropy(z, y, reduction="sum")
    slope = start.softmax(1) - functional.one_hot(y, 2)
    for seed in range(20):
        z = start + torch.randn(12, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        assert loss(start) + surrogate(z, start, slope, rate=2.0) >= loss(z)  # cross-entropy has smoothness 1 / 2


def test_one_inner_step_is_that_of_the_optimizer():
    x, y = data()
    ends = []
    for way in ("surrogate", "plain"):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            if way == "surrogate":
                steps = SurrogateSteps(optimizer, rate=0.5, steps=1)
                steps.step(lambda: model(x), lambda z: functional.cross_entropy(z, y))  # noqa: B023
            else:
                optimizer.zero_grad()
                functional.cross_entropy(model(x), y).backward()
                optimizer.step()
        ends.append(model[0].weight.detach())
    torch.testing.assert_close(*ends)


def test_solved_for_a_linear_model_targets_move_along_the_slope_within_reach():
    x, _ = data()
    weight, truth = nn.Parameter(torch.zeros(3, dtype=torch.float64)), torch.arange(12, dtype=torch.float64)
    steps = SurrogateSteps(torch.optim.SGD([weight], lr=0.02), rate=0.3, steps=2000)
    first = steps.step(lambda: x @ weight, lambda z: (z - truth).square().sum() / 2)
    assert first == truth.square().sum() / 2
    projected = x @ torch.linalg.lstsq(x, 0.3 * truth[:, None]).solution[:, 0]
    torch.testing.assert_close((x @ weight).detach(), projected, rtol=1e-6, atol=1e-8)


def test_the_loss_falls_and_is_asked_once_a_step():
    x, y = data()
    model, calls = network(), []

    def loss(z):
        calls.append(1)
        return functional.cross_entropy(z, y, reduction="sum")

    steps = SurrogateSteps(torch.optim.SGD(model.parameters(), lr=0.02), rate=1.0, steps=20)
    values = [float(steps.step(lambda: model(x), loss)) for _ in range(15)]
    assert all(later < earlier for earlier, later in itertools.pairwise(values))
    assert len(calls) == 15
    mirror = SurrogateSteps(torch.optim.SGD(model.parameters(), lr=0.02), rate=0.5, steps=5, form="kl")
    before = mirror.step(lambda: model(x).softmax(1), lambda p: functional.nll_loss(p.log(), y, reduction="sum"))
    assert float(loss(model(x)).detach()) < float(before)


def test_what_cannot_be_is_refused():
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    for wrong in ({"rate": 0.0}, {"rate": 1.0, "steps": 0}, {"rate": 1.0, "form": "cubes"}):
        with pytest.raises(ValueError, match=f"^{list(wrong)[-1]}: expected"):
            SurrogateSteps(optimizer, **wrong)
    with pytest.raises(TypeError, match="loss: expected a function, got int"):
        SurrogateSteps(optimizer, rate=1.0).step(lambda: torch.ones(2), 3)
    with pytest.raises(ValueError, match=r"targets: expected \(2,\) as at the start"):
        surrogate(torch.ones(3), torch.ones(2), torch.ones(2), rate=1.0)
