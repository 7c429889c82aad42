"""The figures of the paper on selective matching losses (arXiv:2506.04446), drawn with its own settings.

    python benchmarks/matching_gallery.py --out docs/images/matching --page docs/gallery.md

One PNG a figure, numbered as the paper numbers them, and the table of regions between marks of the page. The paper
gives the kinds of curves, the observed scores (-3 red, 0 green, 3 blue) and what each panel is; shifts, scales and
ranges of the axes that it leaves open are ours, and stand in the titles.
"""

import io
from pathlib import Path

import torch
from matplotlib.figure import Figure
from PIL import Image
from resumable import asked
from torch import Tensor

from vicinal import links, losses

RED, GREEN, BLUE, GRAY = "#c23b3b", "#3f8f5f", "#2f6f9f", "#555f6b"
COLORS = (RED, GREEN, BLUE)
OBSERVED = torch.tensor([-3.0, 0.0, 3.0], dtype=torch.float64)
SCORES = torch.linspace(-5, 5, 601, dtype=torch.float64)
DELTA = 0.5
"""How far the scores of the other classes are off in the dotted projections."""

matching, composite, softmax = (
    losses.MatchingLoss,
    losses.CompositeSigmoidMatchingLoss,
    losses.CompositeSoftmaxMatchingLoss,
)


def grid(rows, columns, titles, labels, width=2.3, height=1.8):
    """A figure of panels ``[rows][columns]`` with a title over each column and a label before each row."""
    figure = Figure(figsize=(width * columns + 0.4, height * rows + 0.3), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for axis in panels.flat:
        axis.tick_params(labelsize=6)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    for axis, title in zip(panels[0], titles, strict=True):
        axis.set_title(title, fontsize=8)
    for axis, label in zip(panels[:, 0], labels, strict=True):
        axis.set_ylabel(label, fontsize=8)
    return figure, panels


def inside(curve):
    """The scores that a curve is defined on, and those of the observed ones."""
    low, high = curve.domain
    scores = SCORES[(low < SCORES) & (high > SCORES)]
    return scores, OBSERVED[(low < OBSERVED) & (high > OBSERVED)]


def limit(axis, top):
    """The lowest part of losses that grow without end."""
    axis.set_ylim(-0.04 * top, top)


def draw_link(axis, link):
    """A link, and its slope dashed."""
    scores, _ = inside(link)
    values, slopes = link(scores), link.slope(scores)
    axis.plot(scores, values, color=BLUE)
    axis.plot(scores, slopes, color=RED, ls="--")
    both = torch.cat([values, slopes])
    low, high = both.quantile(0.03), both.quantile(0.97)
    room = 0.15 * (high - low) + 0.05
    axis.set_ylim(float(low - room), float(high + room))


def draw_losses(axis, loss, link, top=None, **style):
    """The loss of each observed score over the prediction."""
    scores, observed = inside(link)
    for color, s in zip(COLORS, OBSERVED, strict=True):
        if s in observed:
            axis.plot(scores, loss(scores, torch.full_like(scores, s)), color=color, **style)
    if top:
        limit(axis, top)


def projections(scores, k, off=0.0):
    """Rows of predictions whose score k moves and whose others are the observed ones, ``off`` by a number."""
    rows = (scores.reshape(1, -1) + off).expand(len(SCORES), -1).clone()
    rows[:, k] = SCORES
    return rows


def draw_projections(axis, loss, observed=OBSERVED, top=4.0, dotted=False):
    """The loss of several classes over the score of each; dotted where the others are off, down to 0."""
    for k, color in enumerate(COLORS[: len(observed)]):
        for off in (0.0, DELTA, -DELTA) if dotted else (0.0,):
            rows = projections(observed, k, off)
            values = loss(rows, observed.expand_as(rows))
            axis.plot(SCORES, values - (values.min() if off else 0), color=color, ls=":" if off else "-", lw=1)
    limit(axis, top)


def draw_class_links(axis, link_of, slope_of, observed=OBSERVED):
    """The link of each class over its score, the others at theirs, and its slope dashed; 0 is of little height."""
    seen = []
    for k, color in enumerate(COLORS[: len(observed)]):
        rows = projections(observed, k)
        for of, style in ((link_of, "-"), (slope_of, "--")):
            values = of(rows)[:, k]
            axis.plot(SCORES, values, color=color, ls=style, lw=1)
            seen.append(values)
    together = torch.cat(seen)
    low, high = together.quantile(0.01), together.quantile(0.93)
    axis.set_ylim(float(low - 0.1 * (high - low) - 0.02), float(high + 0.1 * (high - low) + 0.02))


def area():
    link, s, predicted = links.Sigmoid(1.5, 0.5), -1.0, 2.0
    figure, ((axis,),) = grid(1, 1, ["the loss is the area between the link and its value at s"], [""], 4.6, 2.8)
    z = torch.linspace(s, predicted, 200, dtype=torch.float64)
    level = float(link(z[0]))
    axis.plot(SCORES, link(SCORES), color=BLUE, label="link h")
    axis.fill_between(z, level, link(z), color=RED, alpha=0.35, label="loss")
    axis.vlines([s, predicted], 0, [level, float(link(z)[-1])], color=GRAY, ls=":")
    axis.set_xticks([s, predicted], ["s", "predicted"])
    axis.legend(fontsize=8, frameon=False)
    return figure


REGIONS = {
    "low norms: sigmoid(z)": links.Sigmoid(),
    "high scores: sigmoid(z - 4)": links.Sigmoid(shift=4.0),
    "low scores: sigmoid(z + 4)": links.Sigmoid(shift=-4.0),
    "high norms: sinh(z) / 10": links.Sinh(amplitude=0.1),
}


def four_regions():
    figure, panels = grid(2, 4, REGIONS, ["link, slope dashed", "loss"])
    for (above, below), link in zip(panels.T, REGIONS.values(), strict=True):
        draw_link(above, link)
        draw_losses(below, matching(link, reduction="none"), link, 2.5)
    return figure


SCALED = {
    "low norms: tanh(z)": links.Tanh(),
    "high scores: sigmoid(z - 3)": links.Sigmoid(shift=3.0),
    "low scores: sigmoid(z + 3)": links.Sigmoid(shift=-3.0),
    "high norms: sinh(z / 2)": links.Sinh(0.5),
}


def composite_sigmoids():
    labels = ["scaling q", "composite sigmoid p", "link, slope dashed", "loss, cross-entropy dashed"]
    figure, panels = grid(4, 4, SCALED, labels)
    for column, q in zip(panels.T, SCALED.values(), strict=True):
        column[0].plot(SCORES, q(SCORES), color=BLUE)
        column[1].plot(SCORES, torch.sigmoid(q.primitive(SCORES)), color=BLUE)
        draw_link(column[2], links.CompositeSigmoid(q))
        draw_losses(column[3], composite(q, reduction="none"), q)
        entropy = losses.CompositeSigmoidCrossEntropy(q, reduction="none")
        least = lambda z, s, entropy=entropy: entropy(z, s) - entropy(s, s)
        draw_losses(column[3], least, q, 4.0, ls="--", lw=0.8)
    return figure


SEVERAL = {
    "low norms: decomposed sigmoid": None,
    "high scores: sinh((z + 3) / 2)": links.Sinh(0.5, -3.0),
    "low scores: sinh((z - 3) / 2)": links.Sinh(0.5, 3.0),
    "high norms: sinh(z / 2)": links.Sinh(0.5),
}


def several_classes():
    labels = ["link, slope dashed", "loss of one score", "loss of three classes"]
    figure, panels = grid(3, 4, SEVERAL, labels)
    for (above, middle, below), q in zip(panels.T, SEVERAL.values(), strict=True):
        if q is None:
            link = links.Sigmoid()
            draw_class_links(above, link, link.slope)
            draw_losses(middle, matching(link, reduction="none"), link, 2.0)
            draw_projections(below, losses.DecomposedMatchingLoss(link, reduction="none"), top=2.0, dotted=True)
            continue
        draw_class_links(above, links.CompositeSoftmax(q), lambda z, q=q: links.class_slope(q, z))
        draw_losses(middle, composite(q, reduction="none"), q, 4.0)
        draw_projections(below, softmax(q, reduction="none"), dotted=True)
    return figure


def two_classes():
    """s_1 = 3 beside s_2 = 1, 3, 5: alpha e^x decomposed, and as the scaling of a composite softmax; alpha = 1/2."""
    exp = links.Exp(0.5, amplitude=0.5)
    kinds = {
        "decomposed": losses.DecomposedMatchingLoss(exp, reduction="none"),
        "softmax": softmax(exp, reduction="none"),
    }
    figure = Figure(figsize=(14, 6.4), layout="constrained")
    places = torch.linspace(-1, 7, 121, dtype=torch.float64)
    plane = torch.stack(torch.meshgrid(places, places, indexing="xy"), dim=-1)
    for column in range(6):
        name, loss = list(kinds.items())[column // 3]
        observed = torch.tensor([3.0, (1.0, 3.0, 5.0)[column % 3]], dtype=torch.float64)
        axis = figure.add_subplot(3, 6, column + 1, title=f"{name}, s = (3, {observed[1]:g})")
        for k, color in enumerate((BLUE, RED)):
            rows = observed.expand(len(places), -1).clone()
            rows[:, k] = places
            axis.plot(places, loss(rows, observed.expand_as(rows)), color=color, label=f"over score {k + 1}")
        limit(axis, 3.0)
        axis.title.set_fontsize(8)
        values = loss(plane, observed.expand_as(plane))
        below = figure.add_subplot(3, 6, column + 7)
        below.contour(places, places, values, [0.02, 0.1, 0.3, 0.7, 1.5, 3, 6, 12], cmap="viridis", linewidths=0.8)
        below.plot(*observed, "+", color=RED, ms=8)
        surface = figure.add_subplot(3, 6, column + 13, projection="3d")
        surface.plot_surface(*plane.unbind(-1), values.clamp(max=8), cmap="viridis", rstride=6, cstride=6, linewidth=0)
        for each in (axis, below, surface):
            each.tick_params(labelsize=6)
    figure.axes[0].legend(fontsize=6, frameon=False)
    return figure


def reweighted():
    """Squares times kappa (z - min s + delta), kappa = delta = 1/2, of the observed score, the predicted one, both."""
    link = links.Power(2.0, 1.0, -3.5, 0.25)  # of the slope (z + 3.5) / 2
    ways = ("observed", "predicted", "both")
    figure, (panels,) = grid(
        1, 3, [f"weighed by the {way} score".replace("both score", "product") for way in ways], [""], 3
    )
    for axis, way in zip(panels, ways, strict=True):
        draw_losses(axis, losses.ReweightedSquaredLoss(link, weigh_by=way, reduction="none"), link, 12.0)
    return figure


def plain_softmax():
    shifts = {"no shift": 0.0, "right shift: z - 3": 3.0, "left shift: z + 3": -3.0}
    figure, panels = grid(3, 3, shifts, ["link, slope dashed", "loss of one score", "loss of three classes"], 2.8)
    for (above, middle, below), shift in zip(panels.T, shifts.values(), strict=True):
        q = links.Constant(shift=shift)
        draw_class_links(above, links.CompositeSoftmax(q), lambda z, q=q: links.class_slope(q, z))
        draw_losses(middle, composite(q, reduction="none"), q, 3.0)
        draw_projections(below, losses.SoftmaxMatchingLoss(beta=shift, reduction="none"))
    return figure


def toy(low, high, others):
    """Features ``[n, 2]`` and labels: low labels are x_2, high ones x_1, each beside two values of the other."""
    rows = [(other, label, label) for label in low for other in others]
    rows += [(label, other, label) for label in high for other in others]
    table = torch.tensor(rows, dtype=torch.float64)
    return table[:, :2], table[:, 2]


def fit(loss: torch.nn.Module, features: Tensor, target: Tensor) -> Tensor:
    weight = torch.full((features.shape[1],), 0.5, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=500, line_search_fn="strong_wolfe", tolerance_grad=1e-12)

    def closure():
        optimizer.zero_grad()
        value = loss(features @ weight, target)
        value.backward()
        return value

    optimizer.step(closure)
    return (features @ weight).detach()


MOST_LOW = toy(range(-10, 0), range(6, 11), (1, 3))
MOST_HIGH = toy(range(-10, -5), range(1, 11), (-1, -3))  # the paper says that there are more high ones, not which
UNDERSPECIFIED = [
    ("high scores, sigmoid(z - 8)", links.Sigmoid(shift=8.0), MOST_LOW),
    ("low scores, sigmoid(z + 8)", links.Sigmoid(shift=-8.0), MOST_LOW),
    ("low norms, sigmoid(z)", links.Sigmoid(), MOST_LOW),
    ("low norms, more high labels", links.Sigmoid(), MOST_HIGH),
]


def underspecified():
    figure = Figure(figsize=(8.4, 9), layout="constrained")
    places = torch.linspace(-14, 14, 141, dtype=torch.float64)
    for row, (name, link, (features, target)) in enumerate(UNDERSPECIFIED):
        data = figure.add_subplot(4, 3, 3 * row + 1, projection="3d")
        data.scatter(*features.T, target, c=target, cmap="coolwarm", s=8)
        data.set_xlabel("$x_1$", fontsize=7), data.set_ylabel("$x_2$", fontsize=7)
        axis = figure.add_subplot(4, 3, 3 * row + 2, title=name)
        axis.plot(places, link(places), color=BLUE)
        predicted = fit(matching(link), features, target)
        last = figure.add_subplot(4, 3, 3 * row + 3, title="predicted over observed label")
        observed, guessed = torch.meshgrid(places, places, indexing="xy")
        values = matching(link, reduction="none")(guessed, observed)
        last.contour(places, places, values, [0.02, 0.1, 0.3, 1, 2, 4, 8], cmap="viridis", linewidths=0.7)
        last.plot(places, places, color=GRAY, lw=0.7)
        last.scatter(target, predicted, color=RED, s=8, zorder=3)
        last.set(xlim=(-12, 12), ylim=(-14, 14))
        for each in (data, axis, last):
            each.tick_params(labelsize=6)
            each.title.set_fontsize(8)
    return figure


HIGH = {
    "exp(z / 2)": links.Exp(0.5),
    "sigmoid(z - 4)": links.Sigmoid(shift=4.0),
    "sinh((z + 3) / 2)": links.Sinh(0.5, -3.0),
    "tanh(z - 4)": links.Tanh(shift=4.0),
    "SmeLU', z - 3": links.SmeLUGrad(2.0, shift=3.0),
    "Huber', z - 3": links.HuberGrad(2.0, shift=3.0),
    "pieces": links.Piecewise([-1.0, 2.0, 4.0], [0.0, 0.3, 2.5], tails="linear"),
}
LOW = {
    "-exp(-z / 2)": links.AntiExp(0.5),
    "sigmoid(z + 4)": links.Sigmoid(shift=-4.0),
    "sinh((z - 3) / 2)": links.Sinh(0.5, 3.0),
    "tanh(z + 4)": links.Tanh(shift=-4.0),
    "SmeLU', z + 3": links.SmeLUGrad(2.0, shift=-3.0),
    "Huber', z + 3": links.HuberGrad(2.0, shift=-3.0),
    "pieces": links.Piecewise([-4.0, -2.0, 1.0], [-2.5, -0.3, 0.0], tails="linear"),
}
NEAR = {
    "sigmoid(z)": links.Sigmoid(),
    "tanh(z)": links.Tanh(),
    "SmeLU'": links.SmeLUGrad(2.0),
    "Huber'": links.HuberGrad(2.0),
    "arctan(z)": links.Arctan(),
    "arcsinh(z)": links.Arcsinh(),
    "sign(z) |z|^1/2": links.SignedPower(0.5),
}
FAR = {
    "sinh(z / 2)": links.Sinh(0.5),
    "sign(z) z^2 / 4": links.SignedPower(2.0, amplitude=0.25),
    "tan(z / 4)": links.Tan(0.25),
    "arcsin(z / 5)": links.Arcsin(0.2),
    "arctanh(z / 5)": links.Arctanh(0.2),
    "logit": links.Logit(0.1, -5.0),
    "pieces": links.Piecewise([-4.0, -2.0, 2.0, 4.0], [-2.0, -0.3, 0.3, 2.0], tails="linear"),
}
FAR_SCALED = {
    **{name: FAR[name] for name in ("sinh(z / 2)", "sign(z) z^2 / 4", "tan(z / 4)")},
    "linear: z": links.Identity(),
    "arcsin(z / 5)": links.Arcsin(0.2),
    "pieces": FAR["pieces"],
    "cosh((z - 2.1) / 3) / 3": links.Cosh(1 / 3, 2.1, 1 / 3),
}


def families(loss_of, link_of, last):
    """Four pairs of rows: links and losses of each region."""
    shown = {"high scores": HIGH, "low scores": LOW, "low norms": NEAR, "high norms": last}
    labels = [f"{name}: {what}" for name in shown for what in ("link", "loss")]
    figure, panels = grid(8, 7, [""] * 7, labels, 2.0, 1.5)
    for pair, curves in zip(panels.reshape(4, 2, 7), shown.values(), strict=True):
        for above, below, (name, curve) in zip(*pair, curves.items(), strict=True):
            above.set_title(name, fontsize=7)
            draw_link(above, link_of(curve))
            draw_losses(below, loss_of(curve), curve, 3.0)
    return figure


def scalings(curves, top=4.0, *, scalar=False):
    """Scaling, composite softmax, link with slope, losses: of three classes, the others at their observed scores."""
    labels = [
        "scaling q",
        "probability p_k",
        "link, slope dashed",
        *["loss of one score"] * scalar,
        "loss of three classes",
    ]
    figure, panels = grid(len(labels), len(curves), curves, labels, 2.1, 1.6)
    for column, q in zip(panels.T, curves.values(), strict=True):
        column[0].plot(SCORES, q(SCORES), color=BLUE)
        link = links.CompositeSoftmax(q)
        for k, color in enumerate(COLORS):
            column[1].plot(SCORES, link.probabilities(projections(OBSERVED, k))[:, k], color=color)
        draw_class_links(column[2], link, lambda z, q=q: links.class_slope(q, z))
        if scalar:
            draw_losses(column[3], composite(q, reduction="none"), q, top)
        draw_projections(column[-1], softmax(q, reduction="none"), top=top)
    return figure


SEVERAL_HIGH = {
    "exp(z / 2)": links.Exp(0.5),
    "sigmoid(z)": links.Sigmoid(),
    "sigmoid(z - 3)": links.Sigmoid(shift=3.0),
    "sinh((z + 3) / 2)": links.Sinh(0.5, -3.0),
    "SmeLU', z - 2": links.SmeLUGrad(2.0, shift=2.0),
    "tanh(z + 3)": links.Tanh(shift=-3.0),
}
SEVERAL_LOW = {
    "-exp(-z / 2)": links.AntiExp(0.5),
    "sinh((z - 3) / 2)": links.Sinh(0.5, 3.0),
    "tanh(z - 3)": links.Tanh(shift=3.0),
    "linear: z - 3": links.Identity(shift=3.0),
    "cosh((z - 4) / 4) / 4": links.Cosh(0.25, 4.0, 0.25),
}
SEVERAL_FAR = {
    name: FAR_SCALED[name]
    for name in ("sinh(z / 2)", "sign(z) z^2 / 4", "linear: z", "pieces", "cosh((z - 2.1) / 3) / 3")
}
CHANGED = {
    "sigmoid(z)": links.Sigmoid(),
    "sigmoid(z + 3)": links.Sigmoid(shift=-3.0),
    "tanh(z)": links.Tanh(),
    "tanh(z - 3)": links.Tanh(shift=3.0),
    "tanh(z + 3)": links.Tanh(shift=-3.0),
    "Huber'": links.HuberGrad(2.0),
}


def expected(link, rows):
    """The best prediction of each row of scores, ``[n]``: the inverse link of the mean link (proposition 1)."""
    return link.inverse(link(rows).mean(-1))


def stochastic():
    titles = ["one large score, k of 0.05, mean 0.1", "two scores, mean 0 and 1"]
    figure, ((left, right),) = grid(1, 2, titles, ["best prediction"], 3.6, 2.8)
    heats = {1.0: RED, 5.0: GREEN, 10.0: BLUE, 20.0: GRAY}
    for alpha, color in heats.items():
        link = links.Exp(alpha)
        points = [
            (0.1 + 0.05 * k, torch.tensor([0.1 + 0.05 * k] + k * [0.05], dtype=torch.float64)) for k in range(1, 19)
        ]
        left.plot(
            *zip(*[(x, expected(link, rows)) for x, rows in points], strict=True), color=color, label=f"{alpha:g}"
        )
        apart = torch.linspace(0, 1, 101, dtype=torch.float64)
        for mean in (0.0, 1.0):
            both = torch.stack([mean + apart, mean - apart], dim=-1)
            right.plot(apart, expected(link, both), color=color, ls="-" if mean else "--")
    left.legend(fontsize=7, frameon=False, title="alpha", title_fontsize=7)
    left.set_xlabel("the large score", fontsize=8), right.set_xlabel("deviation from the mean", fontsize=8)
    return figure


FIGURES = {
    "1": area,
    "2": four_regions,
    "3": composite_sigmoids,
    "4": several_classes,
    "5": two_classes,
    "E.1": reweighted,
    "E.2": plain_softmax,
    "F.1": underspecified,
    "H.1": lambda: families(lambda h: matching(h, reduction="none"), lambda h: h, FAR),
    "H.2": lambda: families(lambda q: composite(q, reduction="none"), links.CompositeSigmoid, FAR_SCALED),
    "H.3": lambda: scalings(SEVERAL_HIGH),
    "H.4": lambda: scalings(SEVERAL_LOW),
    "H.5": lambda: scalings(SEVERAL_FAR),
    "H.6": lambda: scalings(CHANGED, scalar=True),
    "I.1": stochastic,
}


SAID = [  # of several classes: name, kind of loss, curve, what tables 1 and H.2 and figures H.3 to H.6 say
    ("sigmoid(z)", "decomposed", links.Sigmoid(), "low norms"),
    ("z: square loss", "decomposed", links.Identity(), "none of the four"),
    ("constant: plain softmax", "composite", links.Constant(), "none of the four"),
    ("exp(z)", "composite", links.Exp(), "high scores"),
    ("sigmoid(z - 2)", "composite", links.Sigmoid(shift=2.0), "high scores"),
    ("sinh(z + 2)", "composite", links.Sinh(shift=-2.0), "high scores"),
    ("gradient of SmeLU", "composite", links.SmeLUGrad(), "high scores, low ones clipped"),
    ("-exp(-z)", "composite", links.AntiExp(), "low scores"),
    ("sinh(z - 2)", "composite", links.Sinh(shift=2.0), "low scores"),
    ("z - 3", "composite", links.Identity(shift=3.0), "low scores, if shifted and scaled"),
    ("cosh((z - 4) / 4) / 4", "composite", links.Cosh(0.25, 4.0, 0.25), "low scores, if shifted and scaled"),
    ("sinh(z)", "composite", links.Sinh(), "high norms"),
    ("z", "composite", links.Identity(), "high norms"),
    ("cosh((z - 2.1) / 3) / 3", "composite", links.Cosh(1 / 3, 2.1, 1 / 3), "high norms, if shifted and scaled"),
    ("sigmoid(z)", "composite", links.Sigmoid(), "high scores; low norms only for one score"),
    ("sigmoid(z + 2)", "composite", links.Sigmoid(shift=-2.0), "high scores; low ones only for one score"),
    ("tanh(z)", "composite", links.Tanh(), "high norms; low ones only for one score"),
    ("tanh(z - 2)", "composite", links.Tanh(shift=2.0), "low scores; high ones only for one score"),
    ("tanh(z + 2)", "composite", links.Tanh(shift=-2.0), "high scores; low ones only for one score"),
    ("gradient of Huber", "composite", links.HuberGrad(), "as tanh: high norms"),
]


def regions():
    """The table of the page, from the classes of scores -3, 0 and 3."""
    lines = ["| curve | loss | the paper | slopes at -3, 0, 3 | region here |", "| --- | --- | --- | --- | --- |"]
    for name, kind, curve, said in SAID:
        apart = kind == "decomposed"
        slopes = curve.slope(OBSERVED) if apart else links.class_slope(curve, OBSERVED)
        here = links.region(curve) if apart else links.class_region(curve)
        numbers = ", ".join(f"{slope:.3g}" for slope in slopes.tolist())
        lines.append(f"| {name} | {kind} | {said} | {numbers} | {here.replace('-', ' ')} |")
    return "\n".join(lines)


def main():
    options = asked(__doc__, 0, out=Path, only=list(FIGURES), page=None)
    options.out.mkdir(parents=True, exist_ok=True)
    for number in options.only:
        path = options.out / f"figure-{number.lower().replace('.', '')}.png"
        drawn = io.BytesIO()
        FIGURES[number]().savefig(drawn, dpi=80)
        Image.open(drawn).convert("RGB").quantize(48).save(path, optimize=True)
        print(path)
    if options.page:
        before, _, rest = options.page.read_text(encoding="utf-8").partition("<!-- regions -->")
        after = rest.partition("<!-- end of regions -->")[2]
        page = f"{before}<!-- regions -->\n\n{regions()}\n\n<!-- end of regions -->{after}"
        options.page.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
