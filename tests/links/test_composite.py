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
