"""Links h with primitive H and slope h': where on the score axis a matching loss is sensitive, and how to design it."""

from vicinal.links.composite import CompositeSigmoid, CompositeSoftmax
from vicinal.links.curve import Cap, Curve, Flip, Multiple, Sum
from vicinal.links.custom import FromCallable, from_callable
from vicinal.links.high_norms import AbsPower, Arcsin, Arctanh, Cosh, Logit, SignedPower, Sinh, Tan
from vicinal.links.learned import ConvexPotential, MonotoneNet
from vicinal.links.low_norms import (
    Arcsinh,
    Arctan,
    Constant,
    HuberGrad,
    Identity,
    PseudoHuberGrad,
    Sigmoid,
    Sign,
    SignedLog1p,
    Sin,
    SmeLUGrad,
    Step,
    Tanh,
)
from vicinal.links.numerics import Positive
from vicinal.links.one_sided import AntiExp, Exp, Log, NegLog1m, Power
from vicinal.links.parse import parse
from vicinal.links.piecewise import Interpolated, Joined, Piecewise, Staircase
from vicinal.links.regions import class_hessian, class_ranking, class_region, class_slope, region
from vicinal.links.sensitivity import blust, bust, design, grows_exponentially, llust, slope, wide_slope
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
    "PseudoHuberGrad",
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
    "class_hessian",
    "class_ranking",
    "class_region",
    "class_slope",
    "design",
    "from_callable",
    "grows_exponentially",
    "llust",
    "parse",
    "region",
    "slope",
    "wide_slope",
]
