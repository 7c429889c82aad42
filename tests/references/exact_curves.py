"""Value, primitive and slope of any curve in mpmath, with their limits at poles; no code shared with the package."""

import math
from functools import cache

import mpmath
from mpmath import inf, mpf

from vicinal import links
from vicinal.core import entries


def _power(d):
    return lambda x: x**d, lambda x: x ** (d + 1) / (d + 1), lambda x: _slope_of_power(x, d)


def _slope_of_power(x, d):
    if x == 0:
        return inf if d < 1 else mpf(d == 1)
    return d * x ** (d - 1)


def _signed_power(d):
    return (
        lambda x: mpmath.sign(x) * abs(x) ** d,
        lambda x: abs(x) ** (d + 1) / (d + 1),
        lambda x: _slope_of_power(abs(x), d),
    )


def _abs_power(d, c):
    return (
        lambda x: abs(x) ** d + c,
        lambda x: mpmath.sign(x) * abs(x) ** (d + 1) / (d + 1) + c * x,
        lambda x: mpmath.sign(x) * _slope_of_power(abs(x), d),
    )


def _xlogx(x):
    return mpf(0) if x == 0 else x * mpmath.log(x)


def _log(x):
    return -inf if x == 0 else mpmath.log(x)


def _over(x):
    return inf if x == 0 else 1 / x


def _clamp(x, low, high):
    return min(max(x, low), high)


PLAIN = {  # value, primitive, slope
    "identity": (lambda x: x, lambda x: x * x / 2, lambda x: mpf(1)),
    "sigmoid": (
        lambda x: 1 / (1 + mpmath.exp(-x)),
        lambda x: mpmath.log(1 + mpmath.exp(x)),
        lambda x: 1 / (2 + mpmath.exp(x) + mpmath.exp(-x)),
    ),
    "tanh": (mpmath.tanh, lambda x: mpmath.log(mpmath.cosh(x)), lambda x: mpmath.sech(x) ** 2),
    "arctan": (mpmath.atan, lambda x: x * mpmath.atan(x) - mpmath.log(1 + x * x) / 2, lambda x: 1 / (1 + x * x)),
    "arcsinh": (
        mpmath.asinh,
        lambda x: x * mpmath.asinh(x) - mpmath.sqrt(1 + x * x) + 1,
        lambda x: 1 / mpmath.sqrt(1 + x * x),
    ),
    "signed_log1p": (
        lambda x: mpmath.sign(x) * mpmath.log(1 + abs(x)),
        lambda x: _xlogx(1 + abs(x)) - abs(x),
        lambda x: 1 / (1 + abs(x)),
    ),
    "sin": (mpmath.sin, lambda x: 1 - mpmath.cos(x), mpmath.cos),
    "sinh": (mpmath.sinh, mpmath.cosh, mpmath.cosh),
    "logit": (lambda x: _log(x) - _log(1 - x), lambda x: _xlogx(x) + _xlogx(1 - x), lambda x: _over(x * (1 - x))),
    "arcsin": (
        mpmath.asin,
        lambda x: x * mpmath.asin(x) + mpmath.sqrt((1 - x) * (1 + x)),
        lambda x: _over(mpmath.sqrt((1 - x) * (1 + x))),
    ),
    "arctanh": (
        lambda x: (_log(1 + x) - _log(1 - x)) / 2,
        lambda x: (_xlogx(1 + x) + _xlogx(1 - x)) / 2,
        lambda x: _over((1 - x) * (1 + x)),
    ),
    "tan": (mpmath.tan, lambda x: -mpmath.log(mpmath.cos(x)), lambda x: mpmath.sec(x) ** 2),
    "exp": (mpmath.exp, mpmath.exp, mpmath.exp),
    "anti_exp": (lambda x: -mpmath.exp(-x), lambda x: mpmath.exp(-x), lambda x: mpmath.exp(-x)),
    "neg_log1m": (lambda x: -_log(1 - x), lambda x: _xlogx(1 - x) + x, lambda x: _over(1 - x)),
    "log": (_log, lambda x: _xlogx(x) - x, _over),
    "cosh": (mpmath.cosh, mpmath.sinh, mpmath.sinh),
    "constant": (lambda x: mpf(1), lambda x: x, lambda x: mpf(0)),
    "step": (lambda x: mpf(x > 0), lambda x: max(x, 0), lambda x: mpf(0)),
    "sign": (mpmath.sign, abs, lambda x: mpf(0)),
}


def _ramp(low, high, height):
    """Rises in a straight line from 0 at ``low`` to ``height`` at ``high``."""
    slope = mpf(height) / (high - low)

    def primitive(x):
        inside = _clamp(x, low, high)
        return slope * ((inside - low) ** 2 / 2 + (x - inside) * (inside - low))

    return (
        lambda x: slope * (_clamp(x, low, high) - low),
        primitive,
        lambda x: slope if low <= x <= high else mpf(0),
    )


def _plain(curve):
    name = next(e.name for kind in ("link", "curve") for e in entries(kind) if e.factory is type(curve))
    if name in ("power", "signed_power"):
        return (_power if name == "power" else _signed_power)(mpf(curve.d))
    if name == "abs_power":
        return _abs_power(mpf(curve.d), mpf(curve.c))
    if name == "pseudo_huber_grad":
        c = mpf(curve.c)
        return (
            lambda x: x / mpmath.sqrt(x * x + c * c),
            lambda x: mpmath.sqrt(x * x + c * c) - c,
            lambda x: c * c / mpmath.sqrt(x * x + c * c) ** 3,
        )
    if name == "smelu_grad":
        return _ramp(-mpf(curve.c), mpf(curve.c), 1)
    if name == "huber_grad":
        value, primitive, slope = _ramp(-mpf(curve.delta), mpf(curve.delta), 2 * mpf(curve.delta))
        return lambda x: value(x) - curve.delta, lambda x: primitive(x) - curve.delta * x, slope
    return PLAIN[name]


@cache
def functions(curve):
    """Value, primitive and slope as functions of an mpf."""
    if isinstance(curve, links.Sum):
        return _sum([functions(each) for each in curve.curves])
    if isinstance(curve, links.Multiple):
        return tuple(_times(mpf(curve.factor), each) for each in functions(curve.curve))
    if isinstance(curve, links.Flip):
        value, primitive, slope = functions(curve.curve)
        return lambda z: -value(-z), lambda z: primitive(-z), lambda z: slope(-z)
    if isinstance(curve, links.Cap):
        return _capped(curve)
    if isinstance(curve, links.Interpolated):
        return _lines(curve)
    if isinstance(curve, links.Joined):
        return _joined(curve)
    value, primitive, slope = _plain(curve)
    scale, shift, amplitude = mpf(curve.scale), mpf(curve.shift), mpf(curve.amplitude)
    return (
        lambda z: amplitude * value(scale * (z - shift)),
        lambda z: amplitude / scale * primitive(scale * (z - shift)),
        lambda z: amplitude * scale * slope(scale * (z - shift)),
    )


def _times(factor, function):
    return lambda z: factor * function(z)


def _sum(parts):
    return tuple(_added([part[kind] for part in parts]) for kind in range(3))


def _added(functions):
    return lambda z: mpmath.fsum(function(z) for function in functions)


def _capped(curve):
    value, primitive, slope = functions(curve.curve)
    low, high = mpf(curve.low), mpf(curve.high)
    straight = curve.tails == "linear"

    def beyond(z):
        inside = _clamp(z, low, high)
        return inside, z - inside, slope(inside) if straight and z != inside else mpf(0)

    def capped_value(z):
        inside, out, tail = beyond(z)
        return value(inside) + tail * out

    def capped_primitive(z):
        inside, out, tail = beyond(z)
        return primitive(inside) + (value(inside) * out + tail * out * out / 2 if out else 0)

    return capped_value, capped_primitive, lambda z: beyond(z)[2] if z != beyond(z)[0] else slope(z)


def _lines(curve):
    knots, values = [mpf(k) for k in curve.knots.tolist()], [mpf(v) for v in curve.values.tolist()]
    free = curve.tails == "linear"
    ramps = []
    for k in range(len(knots) - 1):
        slope = (values[k + 1] - values[k]) / (knots[k + 1] - knots[k])
        low = -inf if free and k == 0 else knots[k]
        high = inf if free and k == len(knots) - 2 else knots[k + 1]
        ramps.append((slope, knots[k], low, high))

    def primitive(z):
        total = values[0] * z
        for slope, knot, low, high in ramps:
            inside = _clamp(z, low, high)
            total += slope * ((inside - knot) ** 2 / 2 + (z - inside) * (inside - knot))
        return total

    return (
        lambda z: values[0] + mpmath.fsum(s * (_clamp(z, low, high) - k) for s, k, low, high in ramps),
        primitive,
        lambda z: mpmath.fsum(s for s, _, low, high in ramps if low < z <= high),
    )


def _flat(level):
    return lambda z: level, lambda z: level * z, lambda z: mpf(0)


def _joined(curve):
    """Each piece where it is in force, and integrals of the pieces one after the other."""
    knots = [mpf(k) for k in curve.knots]
    pieces = []
    for level, part in zip(curve.levels, curve.parts, strict=True):
        pieces.append(functions(part.curve) if level is None else _flat(mpf(level)))
    offsets = [mpf(0)]
    for k, knot in enumerate(knots):
        offsets.append(offsets[-1] + pieces[k][1](knot) - pieces[k + 1][1](knot))

    def place(z):
        return sum(z > knot for knot in knots)

    return (
        lambda z: pieces[place(z)][0](z),
        lambda z: pieces[place(z)][1](z) + offsets[place(z)],
        lambda z: pieces[place(z)][2](z),
    )


def _digits(*scores):
    """Enough to tell a score of 5e-324 from 1 plus it."""
    sizes = [abs(math.log10(abs(s))) for s in scores if s]
    return 60 + 3 * math.ceil(max(sizes, default=0))


def divergence(curve, a, b):
    """H(a) - H(b) - (a - b) h(b) and h(a) - h(b) as numbers of double precision, or infinite."""
    if a == b:
        return 0.0, 0.0
    with mpmath.workdps(_digits(a, b, a - b)):
        value, primitive, _ = functions(curve)
        x, y = mpf(a), mpf(b)
        at_a, at_b = value(x), value(y)
        if mpmath.isinf(at_b):
            return math.inf, float(at_a - at_b)
        terms = primitive(x), -primitive(y), (y - x) * at_b
        loss = mpmath.fsum(terms)
        rounding = mpmath.mpf(10) ** (20 - mpmath.mp.dps) * max(abs(term) for term in terms)
        return float(loss if abs(loss) > rounding else 0), float(at_a - at_b)


def value(curve, z):
    """h(z)."""
    with mpmath.workdps(_digits(z)):
        return float(functions(curve)[0](mpf(z)))


def slope_times(curve, z, step):
    """h'(z) step, for a step that is not 0."""
    with mpmath.workdps(_digits(z, step)):
        return float(functions(curve)[2](mpf(z)) * mpf(step))


def sigmoid_divergence(scaling, gamma, a, b):
    """The same three of the composite sigmoid link: loss, h(a) - h(b), and h'(b) (b - a)."""
    if a == b:
        return 0.0, 0.0, 0.0
    with mpmath.workdps(_digits(a, b, a - b)):
        q, of_q, slope = functions(scaling)
        x, y, g = mpf(a), mpf(b), mpf(gamma)

        def link(z):
            return q(z) / (1 + mpmath.exp(-of_q(z) / g))

        p = 1 / (1 + mpmath.exp(-of_q(y) / g))
        steep = p * (slope(y) + (1 - p) * q(y) ** 2 / g)
        loss = g * mpmath.log((1 + mpmath.exp(of_q(x) / g)) / (1 + mpmath.exp(of_q(y) / g))) - (x - y) * link(y)
        return float(loss), float(link(x) - link(y)), float(steep * (y - x))


def softmax_divergence(scaling, gamma, a, b):
    """Of rows of scores: loss, h(a) - h(b) ``[K]``, and the Jacobian of h at b times b - a ``[K]``."""
    with mpmath.workdps(_digits(*a, *b, *(x - y for x, y in zip(a, b, strict=True)))):
        q, of_q, slope = functions(scaling)
        rows, g = [[mpf(z) for z in row] for row in (a, b)], mpf(gamma)
        masses = [[mpmath.exp(of_q(z) / g) for z in row] for row in rows]
        shares = [[mass / mpmath.fsum(row) for mass in row] for row in masses]
        values = [[q(z) * p for z, p in zip(row, share, strict=True)] for row, share in zip(rows, shares, strict=True)]
        step = [y - x for x, y in zip(*rows, strict=True)]
        turned = [q(z) * d for z, d in zip(rows[1], step, strict=True)]
        mean = mpmath.fsum(p * t for p, t in zip(shares[1], turned, strict=True))
        steep = [mpf(0) if d == 0 else slope(z) * d for z, d in zip(rows[1], step, strict=True)]
        spread = [p * (s + q(z) * (t - mean) / g) for p, s, z, t in zip(shares[1], steep, rows[1], turned, strict=True)]
        loss = g * mpmath.log(mpmath.fsum(masses[0]) / mpmath.fsum(masses[1]))
        loss += mpmath.fsum(d * h for d, h in zip(step, values[1], strict=True))
        rise = [float(one - other) for one, other in zip(*values, strict=True)]
        return float(loss), rise, [float(each) for each in spread]
