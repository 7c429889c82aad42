"""Draws the picture of README.md: which labelled rows made the predictions of its example.

It runs the first Python block of README.md and draws all weights of ``model.explain``. Run it after a change of
defaults, beside ``python scripts/page_outputs.py README.md``:  python scripts/readme_picture.py
"""

import contextlib
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vicinal.estimators.explanation import Explanation

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "neighbors.svg"
LEFT, WIDTH, TALLEST, STEP = 16, 448, 44, 92
FIRST, LAST = 5, 45
"""Ends of the axis of labels."""
GRAY, BLUE, RED = "#767676", "#3987c9", "#d1583c"
"""Tones that can be read on white and on black."""


def example() -> dict[str, Any]:
    """The names of README.md's first Python block, after it has run."""
    code = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code[0], names)  # noqa: S102  the project's own documentation
    return names


def svg(names: Sequence[str], explanations: Sequence[Explanation], truth: Sequence[float]) -> str:
    """One line of stems an explanation: where they stand are the labels of rows, their lengths are the weights."""
    bottom = STEP * len(truth) + 16
    largest = max(neighbor.weight for each in explanations for neighbor in each.neighbors)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 480 {bottom + 44}" width="640" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{GRAY}">',
        "<title>Three predictions, each a weighted mean of labels of rows</title>",
        f'<text x="464" y="14" text-anchor="end"><tspan fill="{RED}">&#9650; predicted</tspan> &#160; &#9675; measured '
        f'&#160; <tspan fill="{BLUE}">&#9612;labeled cars</tspan></text>',
        *(f'<text x="{at(tick):g}" y="{bottom + 18}" text-anchor="middle">{tick}</text>' for tick in range(10, 41, 10)),
        f'<text x="240" y="{bottom + 38}" text-anchor="middle">'
        "miles per gallon, adjusted; height: weight in the prediction</text>",
    ]
    for number, (each, label) in enumerate(zip(explanations, truth, strict=True)):
        base = STEP * (number + 1) + 8
        stems = "".join(
            f"M{at(neighbor.adjusted or neighbor.label):.1f} {base}v{-TALLEST * neighbor.weight / largest:.1f}"
            for neighbor in each.neighbors
            if neighbor.weight > 0
        )
        first = each.neighbors[0]
        place, is_left = at(first.adjusted or first.label), at(each.prediction) < LEFT + WIDTH / 2
        aside, anchor = (8, "start") if is_left else (-8, "end")
        parts += [
            f'<path d="M{LEFT} {base}h{WIDTH}" stroke="{GRAY}"/>',
            f'<path d="{stems}" stroke="{BLUE}" stroke-width="2"/>',
            f'<text x="{place + aside:.1f}" y="{base - TALLEST * first.weight / largest + 8:.1f}" '
            f'fill="{BLUE}" text-anchor="{anchor}">{first.name}: {first.weight:.0%}</text>',
            f'<path d="M{at(each.prediction):.1f} {base}l-5 9h10z" fill="{RED}"/>',
            f'<circle cx="{at(label):g}" cy="{base}" r="4" fill="none" stroke="{GRAY}" stroke-width="2"/>',
            f'<text x="{LEFT}" y="{base - TALLEST - 10}"><tspan font-weight="bold">{names[number]}</tspan>: '
            f'<tspan fill="{RED}">&#9650; {each.prediction:.1f}</tspan> &#160; &#9675; {label:g}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def at(label: float) -> float:
    """Where a label stands on the axis."""
    return LEFT + WIDTH * (label - FIRST) / (LAST - FIRST)


if __name__ == "__main__":
    read = example()
    X, y, names, new = (read[name] for name in ("X", "y", "names", "new"))
    explained = read["model"].explain(X.loc[new], k=395)
    PICTURE.write_text(svg(list(names[new]), explained, list(y[new])), encoding="utf-8")
