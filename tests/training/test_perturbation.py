"""Adversarial steps beside the paper's code, and what they promise."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from vicinal.training import AdversarialSteps

GOLDEN = Path(__file__).parents[1] / "golden/sets/amp.npz"


def network(data, case, at):
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    names = ("0.weight", "0.bias", "2.weight", "2.bias")
    model.load_state_dict({name: torch.from_numpy(data[f"{case}.{at}.{name}"]) for name in names})
    return model


@pytest.mark.parametrize("case", ["clip", "two"])
def test_steps_of_the_papers_code(case):
    with np.load(GOLDEN) as data:
        hyper = json.loads(str(data["hyper"]))
        own = hyper[case]
        model, after = network(data, case, "start"), network(data, case, "after3")
        optimizer = torch.optim.SGD(model.parameters(), lr=hyper["lr"], momentum=hyper["momentum"])
        steps = AdversarialSteps(optimizer, radius=own["epsilon"], rate=own["inner_lr"], steps=own["inner_iter"])
        x, y = torch.from_numpy(data["x"]), torch.from_numpy(data["y"]).long()
        seen = [float(steps.step(lambda: functional.cross_entropy(model(x), y))) for _ in range(3)]
        for mine, theirs in zip(model.parameters(), after.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11)
        assert len(seen) == 3


@pytest.mark.parametrize("settings", [{"radius": 0.0}, {"steps": 0}])
def test_without_a_perturbation_it_is_the_optimizer(settings):
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    ends = []
    for adversarial in (True, False):
        weight = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.Adam([weight], lr=0.1)
        for _ in range(4):
            loss = lambda: (x @ weight).exp().mean()  # noqa: B023
            if adversarial:
                AdversarialSteps(optimizer, **settings).step(loss)
            else:
                optimizer.zero_grad()
                loss().backward()
                optimizer.step()
        ends.append(weight.detach())
    assert torch.equal(*ends)


def test_the_gradient_is_that_of_the_moved_weights():
    weight, frozen = nn.Parameter(torch.tensor([3.0, 4.0])), nn.Parameter(torch.ones(2), requires_grad=False)
    steps = AdversarialSteps(torch.optim.SGD([weight, frozen], lr=1.0), radius=0.5)
    first = steps.step(lambda: weight.square().sum() / 2 + frozen.sum())
    assert first == 12.5 + 2
    moved = torch.tensor([3.0, 4.0]) * (1 + 0.5 / 5)
    torch.testing.assert_close(weight.detach(), torch.tensor([3.0, 4.0]) - moved)
    assert (frozen == 1).all()
    with pytest.raises(TypeError, match=r"^closure: expected a function"):
        steps.step(torch.ones(()))
    for wrong in ({"radius": -1.0}, {"rate": 0.0}, {"steps": -1}):
        with pytest.raises(ValueError, match=f"^{next(iter(wrong))}: expected"):
            AdversarialSteps(torch.optim.SGD([weight], lr=1.0), **wrong)
