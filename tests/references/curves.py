"""Every registered curve and a sample of each combinator, with scores to try; and the formulas again in mpmath."""

import math
from dataclasses import dataclass

import mpmath
import torch

from vicinal import links
from vicinal.core import entries

SETTINGS = {
    "signed_power": [{"d": 2.0}, {"d": 1.5}, {"d": 0.5}],
    "power": [{"d": 2.0}, {"d": 0.5}],
    "smelu_grad": [{"c": 0.7}],
    "huber_grad": [{"delta": 0.8}],
    "pseudo_huber_grad": [{"c": 0.7}],
    "abs_power": [{"d": 2.0, "c": 2.0}],
}
SHAPES = [{}, {"scale": 0.6, "shift": 0.3, "amplitude": 1.7}]


def shapes(name):
    """The shapes that a curve may have: a constant has no scale."""
    return [{k: v for k, v in shape.items() if (name, k) != ("constant", "scale")} for shape in SHAPES]


@dataclass
class Case:
    """A curve and the scores of its domain that a test may use."""

    name: str
    curve: links.Curve
    low: float
    high: float

    def scores(self, n, seed=0, dtype=torch.float64):
        generator = torch.Generator().manual_seed(seed)
        return (self.low + (self.high - self.low) * torch.rand(n, generator=generator, dtype=torch.float64)).to(dtype)


def case(name, curve):
    low, high = curve.domain
    low, high = max(low, -2.5), min(high, 2.7)
    margin = 0.02 * (high - low)
    return Case(name, curve, low + margin, high - margin)


def registered(kinds=("link", "curve")):
    found = []
    for kind in kinds:
        for entry in entries(kind):
            for own in SETTINGS.get(entry.name, [{}]):
                for shape in shapes(entry.name):
                    settings = own | shape
                    label = ",".join(f"{k}={v}" for k, v in settings.items())
                    found.append(case(f"{entry.name}({label})", entry.factory(**settings)))
    return found


def rise(z):
    return z**3 / 10 + z


def combined():
    torch.manual_seed(0)
    sigmoid, sinh, exp = links.Sigmoid(2.0, 0.5), links.Sinh(0.5), links.Exp(0.7)
    makers = {
        "sum": lambda: sinh + 0.2 * sigmoid + links.HuberGrad(1.0),
        "multiple": lambda: 3 * sigmoid,
        "flip": lambda: exp.flip(),
        "flip logit": lambda: links.Logit(0.3, 0.1).flip(),
        "cap": lambda: exp.cap(-1.0, 1.0),
        "cap high": lambda: sinh.cap(None, 1.2),
        "cap flat": lambda: sinh.cap(-1.0, 1.4, tails="flat"),
        "cap logit": lambda: links.Logit(0.3, -1.0).cap(-0.5, 1.5),
        "lines": lambda: links.Piecewise([-1.0, 0.0, 2.0], [-1.0, 0.0, 5.0]),
        "lines, linear": lambda: links.Piecewise([-1.0, 0.0, 2.0], [-1.0, 0.0, 5.0], tails="linear"),
        "pieces": lambda: links.Piecewise([0.0, 1.0], [links.Identity(shift=-1.0), links.Exp(), math.e]),
        "staircase": lambda: links.Staircase([-1.0, 0.5], [0.0, 1.0, 4.0]),
        "callable": lambda: links.from_callable(rise),
        "monotone net": lambda: links.MonotoneNet(5).double(),
        "design interval": lambda: links.design((0.0, 1.0), ratio=4),
        "design high": lambda: links.design("high", ratio=3, cap=1.5),
        "design low": lambda: links.design("low", ratio=3),
        "design low norm": lambda: links.design("low_norm", ratio=3),
        "design high norm": lambda: links.design("high_norm", ratio=3, around=0.5),
        "nested": lambda: (exp.cap(-1, 1) + links.Log(1.0, -3.0)).flip().cap(None, 2.0),
        "parsed": lambda: links.parse("sinh(scale=.5)+0.2*sigmoid"),
    }
    return [case(name, make()) for name, make in makers.items()]


ALL = registered() + combined()
LINKS = [c for c in registered(("link",)) + combined() if c.curve.is_monotone]

FORMULAS = {  # plain curve f(x), by mpmath: no code shared with the package
    "identity": lambda x: x,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "tanh": mpmath.tanh,
    "arctan": mpmath.atan,
    "arcsinh": mpmath.asinh,
    "signed_log1p": lambda x: mpmath.sign(x) * mpmath.log(1 + abs(x)),
    "huber_grad": lambda x, delta=1: min(max(x, -delta), delta),
    "pseudo_huber_grad": lambda x, c=1: x / mpmath.sqrt(x * x + mpmath.mpf(c) ** 2),
    "smelu_grad": lambda x, c=1: min(max((x + c) / (2 * c), 0), 1),
    "step": lambda x: mpmath.mpf(x > 0),
    "sign": mpmath.sign,
    "sin": mpmath.sin,
    "sinh": mpmath.sinh,
    "signed_power": lambda x, d=2: mpmath.sign(x) * abs(x) ** d,
    "logit": lambda x: mpmath.log(x / (1 - x)),
    "arcsin": mpmath.asin,
    "arctanh": mpmath.atanh,
    "tan": mpmath.tan,
    "exp": mpmath.exp,
    "anti_exp": lambda x: -mpmath.exp(-x),
    "neg_log1m": lambda x: -mpmath.log(1 - x),
    "power": lambda x, d=2: x**d,
    "log": mpmath.log,
    "cosh": mpmath.cosh,
    "abs_power": lambda x, d=2, c=2: abs(x) ** d + c,
    "constant": lambda x: mpmath.mpf(1),
}
KINKS = {"huber_grad": (-1, -0.8, 0.8, 1), "smelu_grad": (-1, -0.7, 0.7, 1), "step": (0,), "sign": (0,)}


def divergence(name, settings, prediction, target):
    """Integral from target to prediction of h(t) - h(target), with 30 digits."""
    own = {k: v for k, v in settings.items() if k not in ("scale", "shift", "amplitude")}
    scale, shift, amplitude = (
        mpmath.mpf(settings.get(k, v)) for k, v in (("scale", 1), ("shift", 0), ("amplitude", 1))
    )
    base = FORMULAS[name]

    def h(z):
        return amplitude * base(scale * (z - shift), **own)

    with mpmath.workdps(30):
        prediction, target = mpmath.mpf(prediction), mpmath.mpf(target)
        joints = [k / scale + shift for k in (*KINKS.get(name, ()), 0)]
        between = [k for k in joints if min(prediction, target) < k < max(prediction, target)]
        path = [target, *sorted(between, reverse=bool(prediction < target)), prediction]
        return float(mpmath.quad(lambda t: h(t) - h(target), path)), float(h(prediction) - h(target))
