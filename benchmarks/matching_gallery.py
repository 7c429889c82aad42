"""One page of figures of selective matching losses, drawn again from the formulas of the paper.

    python benchmarks/matching_gallery.py [matching_gallery.html]

The figures follow the paper's numbering by subject (arXiv:2506.04446); they are not copies of its plots.
"""

import argparse
import base64
import html
import io
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from vicinal import links, losses

COLORS = ["#2f6f9f", "#c2603a", "#3f8f5f", "#8a5aa8", "#a88b2d", "#555f6b"]
SCORES = torch.linspace(-3, 3, 601, dtype=torch.float64)
OBSERVED = (-1.5, 0.0, 1.5)
REGIONS = {
    "sigmoid (low norms)": links.Sigmoid(2.0),
    "sinh (high norms)": links.Sinh(),
    "exp (high scores)": links.Exp(),
    "-exp(-z) (low scores)": links.AntiExp(),
}

SEE = {
    "1": "Where the link is steep the area grows fast: that is where the loss is sensitive.",
    "2": "The dashed slope shows where an error is expensive: around 0, at both ends, above, below.",
    "3": ("Each curve is convex and 0 at its observed score; it is narrow where the link is steep, and lopsided."),
    "4": "A scaling inside the sigmoid keeps the loss selective where the plain one (left) is flat.",
    "5": (
        "Plain softmax (left) sees only the difference of the scores; scaled ones close the valley, most "
        "where scores are high."
    ),
    "E.1": (
        "Equal close to the observed score. With observed weights a wrong step into the sensitive region costs no "
        "more; with predicted ones it does, but the loss is not convex: far out on the flat side it falls again."
    ),
    "E.2": (
        "The cross-entropy is flat along scores of equal probabilities, and not 0 at the target; the "
        "matching loss has one minimum."
    ),
    "F.1": (
        "No two weights fit all three scores (the lines): the best ones (star) lie near the lines of the scores "
        "where the link is steep."
    ),
    "H.1": "Steep near 0, flat away from it: the sign and near ties matter, extremes do not.",
    "H.2": "Flat near 0, steep at both ends of the domain: extremes on either side matter.",
    "H.3": "Steep at the right: dwell time, top of a ranking.",
    "H.4": "Steep at the left: shortages, risks, safety margins.",
    "H.5": "Caps, pieces, sums and designs stay links: exact primitive, convex loss.",
    "H.6": (
        "Under a softmax a class is sensitive where it competes; the scaling moves that up, down, or to both ends."
    ),
    "H.7": (
        "Four classes of one score (table 1): as scalings, curves are sensitive where they are steep or large; tanh is "
        "of low norms only where gamma is large."
    ),
    "12": "Errors of one point: up and down differ, and a region is felt from outside it (the slope is the limit).",
    "I.1": ("All points lie on the line: the minimizer of the mean loss is the inverse link of the mean link value."),
}


def axes(columns, titles, width=3.1, height=2.8):
    figure = Figure(figsize=(width * columns, height), layout="constrained")
    found = figure.subplots(1, columns, squeeze=False)[0]
    for axis, title in zip(found, titles, strict=True):
        axis.set_title(title, fontsize=9)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, found


def inside(curve):
    low, high = curve.domain
    return SCORES[(low + 0.01 < SCORES) & (high - 0.01 > SCORES)]


def draw_links(curves, columns=None):
    """Each link with its slope."""
    figure, found = axes(len(curves), list(curves), 2.5 if len(curves) > 4 else 3.0)
    for axis, curve in zip(found, curves.values(), strict=True):
        z = inside(curve)
        axis.plot(z, curve(z), color=COLORS[0], label="link h")
        axis.plot(z, curve.slope(z), color=COLORS[1], ls="--", label="slope h'")
        top = max(1.2, min(6.0, float(curve(z).abs().max())))
        axis.set_ylim(-top if bool((curve(z) < -0.1 * top).any()) else -0.1 * top, top)
        axis.set_xlabel("score", fontsize=8)
    found[0].legend(fontsize=7, frameon=False)
    return figure


def area():
    link, s, predicted = links.Sigmoid(1.5, 0.5), -1.0, 2.0
    figure, found = axes(1, ["the loss is the area between the link and its value at s"], 5.0, 3.2)
    z = torch.linspace(s, predicted, 200, dtype=torch.float64)
    level = float(link(torch.tensor(s, dtype=torch.float64)))
    found[0].plot(SCORES, link(SCORES), color=COLORS[0], label="link h")
    found[0].fill_between(z, level, link(z), color=COLORS[1], alpha=0.35, label="loss L(s^, s)")
    found[0].vlines([s, predicted], 0, [level, float(link(z)[-1])], color=COLORS[5], ls=":")
    found[0].set_xticks([s, predicted], ["s observed", "s^ predicted"])
    found[0].legend(fontsize=8, frameon=False)
    return figure


def draw_losses(makers, observed=OBSERVED, top=6.0):
    """Loss against the prediction for some observed scores."""
    figure, found = axes(len(makers), list(makers))
    for axis, loss in zip(found, makers.values(), strict=True):
        for color, s in zip(COLORS, observed, strict=False):
            axis.plot(SCORES, loss(SCORES, torch.full_like(SCORES, s)), color=color, label=f"s = {s:g}")
            axis.axvline(s, color=color, lw=0.6, ls=":")
        axis.set_ylim(-0.1, top)
        axis.set_xlabel("prediction", fontsize=8)
    found[0].legend(fontsize=7, frameon=False)
    return figure


def contours(makers, target=(1.5, -0.5)):
    """Loss of two classes over the plane of predictions."""
    figure, found = axes(len(makers), list(makers), 3.0, 3.1)
    grid = torch.linspace(-3, 3, 121, dtype=torch.float64)
    first, second = torch.meshgrid(grid, grid, indexing="xy")
    plane = torch.stack([first, second], dim=-1)  # [121, 121, 2]
    wanted = torch.tensor(target, dtype=torch.float64).expand_as(plane)
    for axis, loss in zip(found, makers.values(), strict=True):
        levels = [0.01, 0.03, 0.1, 0.3, 1, 3, 10]
        values = loss(plane, wanted)
        axis.contourf(grid, grid, values.clamp(1e-3, 30), [1e-3, *levels, 30.1], cmap="YlGnBu_r", alpha=0.8)
        axis.plot(*target, "+", color=COLORS[1], ms=10, mew=2)
        axis.set_xlabel("score of class 1", fontsize=8)
    found[0].set_ylabel("score of class 2", fontsize=8)
    return figure


def fit(loss: torch.nn.Module, features: Tensor, target: Tensor) -> Tensor:
    weight = torch.zeros(features.shape[1], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=300, line_search_fn="strong_wolfe", tolerance_grad=1e-12)

    def closure():
        optimizer.zero_grad()
        value = loss(features @ weight, target)
        value.backward()
        return value

    optimizer.step(closure)
    return (features @ weight).detach()


def underspecified():
    """The loss over two weights of three observations that no weights fit: lines where each is fitted exactly."""
    features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    target = torch.tensor([-2.0, 0.5, 2.0], dtype=torch.float64)
    tried = {"identity (squares)": links.Identity()} | {
        name: REGIONS[name] for name in ("sigmoid (low norms)", "sinh (high norms)", "exp (high scores)")
    }
    figure, found = axes(len(tried), list(tried), 2.9, 3.0)
    grid = torch.linspace(-3, 4, 141, dtype=torch.float64)
    plane = torch.stack(torch.meshgrid(grid, grid, indexing="xy"), dim=-1)  # [141, 141, 2]
    for axis, link in zip(found, tried.values(), strict=True):
        loss = losses.MatchingLoss(link)
        scores = plane @ features.T  # [141, 141, 3]
        values = losses.MatchingLoss(link, reduction="none")(scores, target.expand_as(scores)).mean(-1)
        axis.contourf(grid, grid, values.clamp(1e-2, 30).log10(), levels=14, cmap="YlGnBu_r", alpha=0.8)
        for color, at, s in zip(COLORS[1:4], features, target.tolist(), strict=True):
            across = {"x": s} if at[1] == 0 else {"y": s} if at[0] == 0 else None
            label = f"s = {s:g} fitted"
            if across is None:
                axis.plot(grid, s - grid, color=color, label=label)
            else:
                (axis.axvline if "x" in across else axis.axhline)(s, color=color, label=label)
        weights = torch.linalg.lstsq(features, fit(loss, features, target)[:, None]).solution[:, 0]
        axis.plot(*weights, "w*", mec="k", ms=11)
        axis.set(xlim=(-3, 4), ylim=(-3, 4))
        axis.set_xlabel("weight 1", fontsize=8)
    found[0].set_ylabel("weight 2", fontsize=8)
    found[0].legend(fontsize=6, loc="lower left")
    return figure


def level_slopes():
    """What an error in one of four equal classes costs, over their score."""
    scalings = {
        "high scores": {"exp": links.Exp(0.5), "sigmoid(z - 1)": links.Sigmoid(shift=1.0), "step": links.Step()},
        "low scores": {"-exp(-z)": links.AntiExp(0.5), "sinh(z - 2)": links.Sinh(0.5, 2.0)},
        "high norms": {"sinh": links.Sinh(0.7), "identity": links.Identity()},
        "none, or a large gamma": {"constant": links.Constant(), "tanh": links.Tanh(), "tanh, gamma 30": links.Tanh()},
    }
    figure, found = axes(4, list(scalings), 2.6)
    for axis, drawn in zip(found, scalings.values(), strict=True):
        for color, (name, scaling) in zip(COLORS, drawn.items(), strict=False):
            rows = SCORES[:, None].expand(-1, 4)
            felt = links.class_slope(scaling, rows, 30.0 if "30" in name else 1.0)[:, 0]
            axis.plot(SCORES, felt / felt.mean(), color=color, label=name)
        axis.set_ylim(-0.1, 4)
        axis.set_xlabel("score of all four classes", fontsize=8)
        axis.legend(fontsize=7, frameon=False)
    found[0].set_ylabel("sensitivity over its mean", fontsize=8)
    return figure


def wide_slopes():
    figure, found = axes(4, list(REGIONS), 2.6)
    for axis, link in zip(found, REGIONS.values(), strict=True):
        axis.plot(SCORES, link.slope(SCORES), color=COLORS[5], ls=":", label="slope")
        for color, step in zip(COLORS, (1.0, -1.0), strict=False):
            axis.plot(SCORES, links.wide_slope(link, SCORES, step), color=color, label=f"error of {step:+g}")
        axis.set_ylim(-0.1, 6)
        axis.set_xlabel("observed score", fontsize=8)
    found[0].legend(fontsize=7, frameon=False)
    return figure


def proper():
    generator = torch.Generator().manual_seed(0)
    figure, found = axes(1, ["best constant prediction, found by training"], 4.4, 3.8)
    for color, (name, link) in zip(COLORS, REGIONS.items(), strict=False):
        points = []
        for _ in range(12):
            drawn = torch.randn(400, generator=generator, dtype=torch.float64)
            shift = torch.rand(1, generator=generator, dtype=torch.float64)
            targets = 0.7 * drawn + 2 * shift - 1
            one = torch.ones(400, 1, dtype=torch.float64)
            trained = fit(losses.MatchingLoss(link), one, targets)[0]
            points.append((float(link.inverse(link(targets).mean())), float(trained)))
        found[0].plot(*zip(*points, strict=True), "o", ms=4, color=color, label=name)
    found[0].plot([-1.5, 1.5], [-1.5, 1.5], color=COLORS[5], lw=0.8)
    found[0].set_xlabel("inverse link of the mean link value", fontsize=8)
    found[0].legend(fontsize=7, frameon=False)
    return figure


def class_slopes():
    scalings = {"constant": links.Constant(), "exp": links.Exp(), "sinh": links.Sinh(), "-exp(-z)": links.AntiExp()}
    figure, found = axes(len(scalings), list(scalings))
    for axis, scaling in zip(found, scalings.values(), strict=True):
        for color, other in zip(COLORS, (-1.0, 0.0, 1.0), strict=False):
            rows = torch.stack([SCORES, torch.full_like(SCORES, other)], dim=-1)
            axis.plot(SCORES, links.class_slope(scaling, rows)[:, 0], color=color, label=f"other class at {other:g}")
        axis.set_ylim(-0.1, 4)
        axis.set_xlabel("score of the class", fontsize=8)
    found[0].legend(fontsize=7, frameon=False)
    return figure


def gallery():
    matching, softmax = losses.MatchingLoss, losses.CompositeSoftmaxMatchingLoss

    def each(link):
        return matching(link, reduction="none")

    def rows(scaling, gamma=1.0):
        return softmax(scaling, gamma, reduction="none")

    low = {
        "sigmoid": links.Sigmoid(2.0),
        "tanh": links.Tanh(),
        "arctan": links.Arctan(),
        "arcsinh": links.Arcsinh(2.0),
        "Huber": links.HuberGrad(),
        "sign|z|^1/2": links.SignedPower(0.5),
    }
    high = {
        "sinh": links.Sinh(),
        "sign|z|^2": links.SignedPower(2.0),
        "logit": links.Logit(1 / 6, -3.0),
        "arctanh": links.Arctanh(1 / 3),
        "tan": links.Tan(0.5),
        "arcsin": links.Arcsin(1 / 3),
    }
    above = {
        "exp": links.Exp(),
        "sigmoid(z - 2)": links.Sigmoid(2.0, 2.0),
        "sinh(z + 2)": links.Sinh(1.0, -2.0, 0.2),
        "-ln(1 - z)": links.NegLog1m(0.33),
        "z^2": links.Power(2.0, 1.0, -3.0, 0.2),
    }
    below = {
        "-exp(-z)": links.AntiExp(),
        "sigmoid(z + 2)": links.Sigmoid(2.0, -2.0),
        "sinh(z - 2)": links.Sinh(1.0, 2.0, 0.2),
        "ln z": links.Log(1.0, -3.01),
    }
    built = {
        "exp, capped at 1": links.Exp().cap(None, 1.0),
        "sinh, flat tails": links.Sinh().cap(-1, 1, tails="flat"),
        "staircase": links.Staircase([-1, 0.5], [-1, 0, 2]),
        "sinh + sigmoid": links.parse("sinh(.5)+sigmoid(6,1)"),
        "design((0, 1), ratio=5)": links.design((0.0, 1.0), ratio=5),
    }
    gated = {"constant": links.Constant(), "exp": links.Exp(), "sinh": links.Sinh(), "cosh, gamma 0.7": links.Cosh()}
    weighed = {
        "matching, exp": each(links.Exp()),
        "squares, observed weights": losses.ReweightedSquaredLoss(links.Exp(), reduction="none"),
        "squares, predicted weights": losses.ReweightedSquaredLoss(links.Exp(), weigh_by="predicted", reduction="none"),
    }
    entropy = {
        "composite softmax matching": rows(links.Sinh()),
        "composite softmax cross-entropy": losses.CompositeSoftmaxCrossEntropy(links.Sinh(), reduction="none"),
        "the same, bias of class 1: 2": losses.CompositeSoftmaxCrossEntropy(
            links.Sinh(), class_bias=[2.0, 0.0], reduction="none"
        ),
    }
    planes = {
        "softmax": rows(links.Constant()),
        "exp": rows(links.Exp()),
        "sinh": rows(links.Sinh()),
        "decomposed tanh": losses.DecomposedMatchingLoss(links.Tanh(), reduction="none"),
    }
    sigmoids = {
        name: losses.CompositeSigmoidMatchingLoss(q, 0.7 if "0.7" in name else 1.0, reduction="none")
        for name, q in gated.items()
    }
    return [
        ("1", "Loss as an area", area()),
        ("2", "Four regions of sensitivity", draw_links(REGIONS)),
        ("3", "Their losses", draw_losses({k: each(v) for k, v in REGIONS.items()})),
        ("4", "Two classes, one score", draw_losses(sigmoids, top=4.0)),
        ("5", "Two classes, two scores", contours(planes)),
        ("E.1", "Against re-weighted squares", draw_losses(weighed)),
        ("E.2", "Against composite cross-entropy", contours(entropy)),
        ("F.1", "An underspecified model", underspecified()),
        ("H.1", "Low norms", draw_links(low)),
        ("H.2", "High norms", draw_links(high)),
        ("H.3", "High scores", draw_links(above)),
        ("H.4", "Low scores", draw_links(below)),
        ("H.5", "Made to measure", draw_links(built)),
        ("H.6", "Slope by class (B.5)", class_slopes()),
        ("H.7", "Regions of several classes", level_slopes()),
        ("12", "Large errors", wide_slopes()),
        ("I.1", "Properness", proper()),
    ]


STYLE = """
:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:auto;padding:1rem}
figure{margin:2rem 0}img{max-width:100%;background:#fff;border-radius:6px}figcaption{max-width:46rem}
h2{font-size:1.1rem;margin:.2rem 0}
"""


def page(figures):
    parts = []
    for number, title, figure in figures:
        drawn = io.BytesIO()
        figure.savefig(drawn, format="png", dpi=110)
        image = base64.b64encode(drawn.getvalue()).decode()
        text = html.escape(SEE[number])
        parts.append(
            f'<figure><h2>{number} {html.escape(title)}</h2><img alt="{text}" '
            f'src="data:image/png;base64,{image}"><figcaption>{text}</figcaption></figure>'
        )
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
    intro = (
        "Numbers follow the figures of arXiv:2506.04446 by subject; all are drawn by this library from its formulas."
    )
    title = "Selective matching losses, in figures"
    return (
        f'<!doctype html><html lang="en"><head>{head}<title>{title}</title><style>{STYLE}</style></head>'
        f"<body><h1>{title}</h1><p>{intro}</p>{''.join(parts)}</body></html>"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path, nargs="?", default=Path("matching_gallery.html"))
    path = parser.parse_args().path
    path.write_text(page(gallery()), encoding="utf-8")
    print(path)
