"""Links h with primitive H and slope h': where on the score axis a matching loss is sensitive, and how to design it."""

from vicinal.links.algebra import Flip, Multiple, Sum
from vicinal.links.base import Curve
from vicinal.links.caps import Cap
from vicinal.links.composite import CompositeSigmoid, CompositeSoftmax
from vicinal.links.design import design
from vicinal.links.high_norms import Arcsin, Arctanh, Logit, SignedPower, Sinh, Tan
from vicinal.links.kinked import HuberGrad, Sign, SmeLUGrad, Step
from vicinal.links.learned import ConvexPotential, MonotoneNet, learnable
from vicinal.links.low_norms import (
    Arcsinh,
    Arctan,
    Identity,
    Sigmoid,
    SignedLog1p,
    Sin,
    Tanh,
)
from vicinal.links.one_sided import AntiExp, Exp, Log, NegLog1m, Power
from vicinal.links.parse import parse
from vicinal.links.pieces import Interpolated, Joined, Piecewise, Staircase
from vicinal.links.quadrature import FromCallable, from_callable
from vicinal.links.scalings import AbsPower, Constant, Cosh
from vicinal.links.sensitivity import blust, bust, class_slope, slope
from vicinal.links.settings import Positive
from vicinal.links.shaped import Shaped

__all__ = [
    "AbsPower",
    "AntiExp",
    "Arcsin",
    "Arcsinh",
    "Arctan",
    "Arctanh",
    "Cap",
    "CompositeSigmoid",
    "CompositeSoftmax",
    "Constant",
    "ConvexPotential",
    "Cosh",
    "Curve",
    "Exp",
    "Flip",
    "FromCallable",
    "HuberGrad",
    "Identity",
    "Interpolated",
    "Joined",
    "Log",
    "Logit",
    "MonotoneNet",
    "Multiple",
    "NegLog1m",
    "Piecewise",
    "Positive",
    "Power",
    "Shaped",
    "Sigmoid",
    "Sign",
    "SignedLog1p",
    "SignedPower",
    "Sin",
    "Sinh",
    "SmeLUGrad",
    "Staircase",
    "Step",
    "Sum",
    "Tan",
    "Tanh",
    "blust",
    "bust",
    "class_slope",
    "design",
    "from_callable",
    "learnable",
    "parse",
    "slope",
]
