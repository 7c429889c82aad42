"""The composite sigmoid and softmax are the curves of their formulas: primitive, value, slope."""

import pytest
import torch

from vicinal import links
from vicinal.links.composite import CompositeSigmoid, CompositeSoftmax

SCALINGS = {"constant": links.Constant(), "exp": links.Exp(), "cosh": links.Cosh(), "sigmoid": links.Sigmoid()}
POINTS = torch.linspace(-2, 2, 41, dtype=torch.float64)


def slope_of(function, z):
    z = z.clone().requires_grad_()
    (slope,) = torch.autograd.grad(function(z).sum(), z)
    return slope


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("gamma", [0.3, 1.0, 2.5])
def test_sigmoid(name, gamma):
    scaling = SCALINGS[name]
    curve = CompositeSigmoid(scaling, gamma)
    q, primitive = scaling(POINTS), scaling.primitive(POINTS)
    torch.testing.assert_close(curve.primitive(POINTS), gamma * (1 + (primitive / gamma).exp()).log())
    torch.testing.assert_close(curve(POINTS), q * torch.sigmoid(primitive / gamma))
    torch.testing.assert_close(curve(POINTS), slope_of(curve.primitive, POINTS))
    torch.testing.assert_close(curve.slope(POINTS), slope_of(curve, POINTS))


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("gamma", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("bias", [0.0, 1.7])
def test_softmax(name, gamma, bias):
    scaling = SCALINGS[name]
    link = CompositeSoftmax(scaling, gamma, bias)
    z = POINTS[:40].reshape(10, 4).flip(1) + POINTS[:10, None]
    mass = bias + (scaling.primitive(z) / gamma).exp().sum(-1)
    torch.testing.assert_close(link.primitive(z), gamma * mass.log())
    torch.testing.assert_close(link(z), slope_of(link.primitive, z))
    torch.testing.assert_close(link(z), scaling(z) * (scaling.primitive(z) / gamma).exp() / mass[:, None])


class Quintic(links.Curve):
    """A curve of a user's own: h(z) = z^5 + z, with nothing but its three formulas."""

    def forward(self, z):
        return z**5 + z

    def primitive(self, z):
        return z**6 / 6 + z**2 / 2

    def slope(self, z):
        return 5 * z**4 + 1


def test_a_curve_of_a_users_own_has_the_divergence_of_its_primitive():
    a, b = POINTS[:, None], POINTS[None, :]
    want = a**6 / 6 + a**2 / 2 - b**6 / 6 - b**2 / 2 - (a - b) * (b**5 + b)
    torch.testing.assert_close(Quintic().divergence(a, b), want.clamp(min=0))
    torch.testing.assert_close(Quintic().inverse(Quintic()(POINTS)), POINTS)
