"""Designs say the truth about themselves; what cannot be a link is refused with a sentence."""

import pytest
import torch

from vicinal import links
from vicinal.links.learned import learnable


def slope_at(link, *scores):
    return link.slope(torch.tensor(scores, dtype=torch.float64))


def test_interval_has_exactly_the_ratio_asked_for():
    link = links.design((1.0, 3.0), ratio=7.0)
    inside, outside = slope_at(link, 1.1, 2.0, 2.9), slope_at(link, -5.0, 0.9, 3.1, 9.0)
    torch.testing.assert_close(inside / outside[0], torch.full((3,), 7.0, dtype=torch.float64))
    torch.testing.assert_close(outside, outside[:1].expand(4))
    assert "slope 1 from 1 to 3" in link.note


@pytest.mark.parametrize(
    ("sensitive", "near", "far"),
    [("high", 2.5, 1.0), ("low", -0.5, 1.0), ("low_norm", 1.0, 2.5), ("high_norm", 2.5, 1.0), ("high_norm", -0.5, 1.0)],
)
def test_regions_have_exactly_the_ratio_asked_for(sensitive, near, far):
    link = links.design(sensitive, around=1.0, width=1.5, ratio=4.0)
    steep, flat = slope_at(link, near, far)
    assert (steep / flat).item() == pytest.approx(4.0)
    assert "4" in link.note


def test_cap_of_a_design():
    link = links.design("high", around=1.0, ratio=3.0, cap=2.0)
    assert slope_at(link, 3.0, 50.0).diff().item() == pytest.approx(0.0)
    assert "straight beyond -1 and 3" in link.note


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: links.design("height"), r"^sensitive: expected one of .*did you mean 'high'"),
        (lambda: links.design((2.0, 1.0)), r"^sensitive: expected an interval"),
        (lambda: links.design("high", ratio=1.0), r"^ratio: expected a number above 1"),
        (lambda: links.Sigmoid(scale=0.0), r"^scale: expected a number above 0"),
        (lambda: links.Sigmoid(shift=float("nan")), r"^shift: expected a finite number"),
        (lambda: links.Sigmoid(scale=torch.tensor([1.0, 2.0])), r"^scale: expected one floating number"),
        (lambda: links.Sigmoid() * -1.0, r"^factor: expected a number above 0"),
        (lambda: links.Exp().cap(), r"^low: expected low or high to be a score"),
        (lambda: links.Exp().cap(2.0, 1.0), r"^high: expected a score above low"),
        (lambda: links.Logit().cap(0.0, 0.5), r"^low: expected a score where the curve and its slope are finite"),
        (lambda: links.Exp().cap(0.0, tails="straight"), r"^tails: expected one of"),
        (lambda: links.Logit() + links.Log(shift=2.0), r"^curves: expected domains that overlap"),
        (lambda: links.Piecewise([0.0, 1.0], [1.0, 0.0]), r"^values: expected numbers that never fall"),
        (lambda: links.Piecewise([1.0, 0.0], [0.0, 1.0]), r"^knots: expected numbers that rise"),
        (lambda: links.Piecewise([0.0], [links.Exp(), 0.5]), r"^values: expected pieces that never fall, got a drop"),
        (lambda: links.Piecewise([0.0], [0.0, links.Exp()]), r"^values: expected pieces that meet, got a jump"),
        (lambda: links.Piecewise([0.0], [links.Cosh(), 1.0]), r"^values: expected links that never fall"),
        (lambda: links.Piecewise([0.0, 1.0], [0.0]), r"^values: expected 2 numbers or 3 pieces, got 1"),
        (lambda: links.Staircase([0.0], [1.0, 0.0]), r"^values: expected numbers that never fall"),
        (lambda: links.from_callable(torch.cos), r"^function: expected a function that never falls"),
        (lambda: links.from_callable(torch.log), r"^function: expected a finite value"),
        (lambda: links.from_callable(torch.floor, tolerance=1e-9), r"^order: expected quadrature to 1e-09"),
        (lambda: links.from_callable(torch.exp, (3.0, 1.0)), r"^domain: expected low < high"),
    ],
)
def test_what_is_no_link_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_quadrature_states_its_error():
    link = links.from_callable(torch.exp)
    assert link.accuracy < 1e-10
    z = torch.linspace(-6, 6, 41, dtype=torch.float64)
    torch.testing.assert_close(link.primitive(z), z.exp() - 1, rtol=1e-10, atol=1e-10)
    kinked = links.from_callable(torch.relu, tolerance=1e-2)
    error = (kinked.primitive(z) - z.relu() ** 2 / 2).abs() / (1 + z.relu() ** 2 / 2)
    assert error.max() <= 1e-2


def test_quadrature_of_a_module_trains_it():
    class Line(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.log = torch.nn.Parameter(torch.tensor(0.3, dtype=torch.float64))

        def forward(self, z):
            return self.log.exp() * z

    link = links.from_callable(Line())
    z = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    gradients = torch.autograd.grad(link.primitive(z).sum(), [z, *link.parameters()])
    torch.testing.assert_close(gradients[0], link(z).detach())
    torch.testing.assert_close(gradients[1], link.primitive(z)[0].detach())


def test_learned_links_stay_monotone_while_trained():
    torch.manual_seed(0)
    link = links.MonotoneNet(6) + learnable(links.Sinh(0.5))
    optimizer = torch.optim.Adam(link.parameters(), lr=0.3)
    z = torch.linspace(-2, 2, 40)
    for _ in range(30):
        optimizer.zero_grad()
        ((link(z) - z**3) ** 2).mean().backward()
        optimizer.step()
    assert bool((link(z).diff() > 0).all())


def test_moves_to_another_type_with_its_module():
    link = (learnable(links.Sigmoid(2.0)) + links.MonotoneNet(3)).double()
    state = link.state_dict()
    other = (learnable(links.Sigmoid()) + links.MonotoneNet(3)).double()
    other.load_state_dict(state)
    z = torch.linspace(-2, 2, 9, dtype=torch.float64)
    torch.testing.assert_close(other(z), link(z))


def test_several_scores_share_one_convex_potential():
    torch.manual_seed(0)
    potential = links.ConvexPotential(4).double()
    z = torch.randn(4, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(potential, z)
    torch.testing.assert_close(jacobian, jacobian.T)
    assert torch.linalg.eigvalsh(jacobian).min() >= 0.1
    with pytest.raises(ValueError, match=r"^z: expected \[..., 4\] scores"):
        potential(torch.zeros(3, 5))
