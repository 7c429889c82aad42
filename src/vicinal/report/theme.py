"""One look for all pages: templates, colors that follow a page's dark scheme, figures as inline SVG."""

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from vicinal.report.text import clean, duration, metric_name, number, one_line, percent, score

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

INK, MUTED, GRID, PAPER = "#1c2530", "#68717e", "#dedad0", "#fffefb"
ACCENT, WARM, SOFT = "#1f6f8b", "#cf5f27", "#a9c9d4"
CLASSES = ("#2b83a3", "#cf5f28", "#5c9a54", "#a7569b", "#a88424", "#4f7bd0", "#c2566b", "#6f8f8a", "#8f74c9", "#8d6e55")
"""Colors of classes, legible on light and dark; if there are more classes, the tenth is for all the others."""

_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--line",
    PAPER: "--card",
    ACCENT: "--accent",
    WARM: "--warm",
    SOFT: "--soft",
}
_STYLE: Any = {
    "text.parse_math": False,  # a "$" in a name is a dollar
    "svg.fonttype": "none",
    "svg.hashsalt": "vicinal",
    "font.size": 9.0,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0.0,
    "ytick.major.size": 0.0,
    "legend.frameon": False,
    "figure.facecolor": PAPER,
}
_LIMIT = 5000


@contextmanager
def style() -> Iterator[None]:
    """The matplotlib style, while a figure is built or written."""
    import matplotlib as mpl

    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        # The browser has fonts for what matplotlib's own font lacks.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        yield


@lru_cache(maxsize=1)
def _figure_class() -> "type[Figure]":
    from matplotlib.figure import Figure

    class Drawing(Figure):
        """A figure without a window, which a notebook shows."""

        def _repr_png_(self) -> bytes:
            return written(self, "png")

    return Drawing


def sheet(width: float, height: float) -> "Figure":
    """A new figure of ``width`` times ``height`` inches, without a window."""
    return _figure_class()(figsize=(width, height), layout="constrained")


def blank(width: float = 4.6, height: float = 3.3, axes: "Axes | None" = None) -> "tuple[Figure, Axes]":
    """Such a figure with one set of axes, or these ``axes`` and their figure."""
    if axes is not None:
        parent: Any = axes.figure
        return parent, axes
    figure = sheet(width, height)
    return figure, figure.add_subplot()


def written(figure: "Figure", kind: str) -> bytes:
    """The bytes of a file of this kind, "png", "svg" or "pdf", which are the same each time."""
    buffer = io.BytesIO()
    with style():
        figure.savefig(
            buffer, format=kind, dpi=160, metadata={"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
        )
    return buffer.getvalue()


def color_map() -> "LinearSegmentedColormap":
    """A color map from blue over mauve to orange: safe for the color-blind, legible on light and dark."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("vicinal", ["#2767b3", "#7f7fc4", "#c77a9c", "#ea8c3d"])


def sample(count: int, limit: int = _LIMIT) -> NDArray[np.int64]:
    """At most ``limit`` of ``count`` positions, in order, drawn at random with a fixed seed.

    >>> len(sample(3)), len(sample(10_000))
    (3, 5000)
    """
    if count <= limit:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, limit, replace=False))


def sample_note(count: int) -> str:
    """A sentence if :func:`sample` leaves points out, else "".

    >>> sample_note(12_345)
    ' Shown: 5,000 of 12,345 points, drawn at random with a fixed seed.'
    """
    return f" Shown: {_LIMIT:,} of {count:,} points, drawn at random with a fixed seed." if count > _LIMIT else ""


def to_svg(figure: "Figure", prefix: str) -> str:
    """``figure`` as an inline ``<svg>`` element without a fixed size, in the page's font and color scheme.

    Args:
        figure: built inside ``style()``.
        prefix: put before every id, so that one page can hold several figures.
    """
    buffer = io.StringIO()
    with style():
        figure.savefig(buffer, format="svg", transparent=True, dpi=220, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"<[^<>]+>", lambda tag: _retouch(tag.group(), prefix), text)
    return re.sub(r"\n\s*", "\n", text).strip()


def _retouch(tag: str, prefix: str) -> str:
    """One tag with unique ids, colors as variables, and no size or font family of its own."""
    if tag.startswith("<svg"):
        tag = re.sub(r' (width|height|version|xmlns(:\w+)?)="[^"]*"', "", tag)
        return tag.replace("<svg", '<svg aria-hidden="true" focusable="false"', 1)
    tag = re.sub(r'\bid="', f'id="{prefix}-', tag)
    tag = re.sub(r'href="#', f'href="#{prefix}-', tag)
    tag = tag.replace("url(#", f"url(#{prefix}-")
    tag = re.sub(r"font: (?:\w+ )*?([\d.]+px) [^;\"]*", r"font-size: \1", tag)
    tag = re.sub(r"font-family: [^;\"]*;? ?", "", tag)
    for color, variable in _VARIABLES.items():
        tag = re.sub(rf"\b(fill|stroke): {color}", rf"\1: var({variable}, {color})", tag)
    return tag


@dataclass(frozen=True)
class Picture:
    """A figure in a page; ``caption`` says how to read it, ``alt`` describes it in words."""

    title: str
    svg: Markup
    alt: str
    caption: str
    wide: bool = False


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The templates of this package; all values put into them are escaped."""
    templates = Environment(
        loader=PackageLoader("vicinal.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) or not isinstance(value, str) else clean(value),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        each.__name__: each for each in (number, score, duration, shown, one_line, percent, metric_name)
    }
    templates.filters["minus"] = lambda text: re.sub(r"(?<!\w)-(?=\d)", "\N{MINUS SIGN}", str(text))
    return templates


@dataclass(frozen=True)
class Part:
    """A part of what is shown, from top to bottom: a title, a table, and sentences.

    Attributes:
        title: above it; may be empty.
        grid: heads of the rows beside this row, figures above, columns, and figures below.
        headings: of a plain table.
        rows: its cells, as text.
        pair: as :func:`vicinal.report.pairs.pair_view` gives it.
        sentences: below.
    """

    title: str = ""
    grid: tuple[Any, ...] = ()
    headings: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    pair: Mapping[str, Any] | None = None
    sentences: Sequence[str] = ()


def notebook_html(*parts: Part) -> str:
    """The parts as one piece of HTML, which brings its style and takes ink and ground from the page around it."""
    return environment().get_template("notebook.html").render(shown=parts)


def rendered(template: str, record: Any, **parts: Any) -> str:
    """The page of a record: what all pages have (title, notes, settings, versions), and the parts of this one."""
    facts: dict[str, Any] = {"title": one_line(record.name, 80), "notes": [clean(note) for note in record.notes]}
    for name in ("settings", "versions"):
        facts[name] = [(one_line(key, 60), shown(value)) for key, value in getattr(record, name, {}).items()]
    facts["dropped"] = [(one_line(why, 200), int(count)) for why, count in getattr(record, "dropped", {}).items()]
    return environment().get_template(template).render(facts | {"record": record} | parts)


def shown(value: object, limit: int = 300) -> str:
    """A setting as text of at most ``limit`` characters."""
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return one_line(", ".join(map(str, value)), limit) or "none"
    return one_line(value, limit)


def picture(figure: "Figure", key: str, title: str, alt: str, caption: str, *, wide: bool = False) -> Picture:
    """A figure for a page; ``key`` is the prefix of its ids."""
    return Picture(clean(title), Markup(to_svg(figure, key)), clean(alt), clean(caption), wide)  # noqa: S704
