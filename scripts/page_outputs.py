"""Writes the outputs shown in a page of the documentation anew, or the figures that sentences name.

For a page: runs its Python blocks in order, and those of its ``vicinal`` commands that use files of the page, in an
empty folder; what each prints replaces the text block that follows it. A text block that ends (or begins) in ``...``
keeps its number of lines; one with ``...`` elsewhere that the command does not print was shortened by hand and is left
alone. A block behind
``<!-- needs: PACKAGE -->`` is run where that package is installed.
Run it after a change of defaults:  python scripts/page_outputs.py docs/guide.md

For a notebook (docs/tutorials/notebook.ipynb): runs its cells and writes the page beside it, pictures in docs/images.

Without a page: writes the figures in sentences (see page_figures.py) of all pages, from benchmarks/results.
Run it after a benchmark:  python scripts/page_outputs.py
"""

import ast
import contextlib
import importlib.util
import io
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from page_figures import pages
from vicinal.cli import run
from vicinal.report.theme import written

PAIR = re.compile(
    r"(?:^<!-- needs: (\w+) -->\n)?^```(python|sh)\n(.*?)^```(\n\n```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE
)


WITHOUT_PROGRESS = ("relabel", "show")
"""Commands that have no ``--quiet``."""


def output_of(language: str, code: str, names: dict[str, object], folder: Path) -> str | None:
    """What a block prints; None for commands that have nothing to do with the files in ``folder``."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(io.StringIO()):
        if language == "python":
            exec(compile(code, "page", "exec"), names)  # noqa: S102  the project's own documentation
            return told.getvalue()
        for line in code.splitlines():
            words = shlex.split(line, comments=True)
            if len(words) < 3 or words[0] != "vicinal" or not (folder / words[2]).exists():
                return None
            run([*words[1:], *(() if words[1] in WITHOUT_PROGRESS else ("--quiet",))])
    return told.getvalue()


def shown(new: str, old: str) -> str:
    """``new`` in the place of ``old``, shortened as it was."""
    lines = [line.rstrip() for line in new.rstrip().splitlines()]
    before = old.rstrip().splitlines()
    if before and before[0] == "...":
        return "\n".join(["...", *lines[1 - len(before) :]]) + "\n"
    if before and before[-1] == "...":
        return "\n".join([*lines[: len(before) - 1], "..."]) + "\n"
    by_hand = "..." in old and "..." not in new
    return old if by_hand else "\n".join(lines) + "\n"


def renewed(page: str, folder: Path) -> str:
    """``page`` with its outputs written anew."""
    names: dict[str, object] = {"__name__": "page"}

    def write(found: re.Match[str]) -> str:
        package, language, code, block, old = found.groups()
        if package and importlib.util.find_spec(package) is None:
            return found[0]
        told = output_of(language, code, names, folder)
        if block is None or told is None:
            return found[0]
        needs = f"<!-- needs: {package} -->\n" if package else ""
        return f"{needs}```{language}\n{code}```\n\n```text\n{shown(told, old)}```"

    return PAIR.sub(write, page)


def run_cells(notebook: Path) -> Iterator[tuple[str, bool, str, Any]]:
    """Source of each cell, whether it is code, what it prints, and the value of its last line."""
    names: dict[str, object] = {"__name__": "notebook"}
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        source, printed, value = "".join(cell["source"]), io.StringIO(), None
        if cell["cell_type"] == "code":
            tree = ast.parse(source)
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                exec(compile(tree, "cell", "exec"), names)  # noqa: S102  the project's own documentation
                if isinstance(last, ast.Expr):
                    value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307
        yield source, cell["cell_type"] == "code", printed.getvalue(), value


def rendered(notebook: Path, pictures: Path) -> str:
    """The page of a notebook; pictures are written into a folder. The style of tables stands in the page once."""
    parts, styled = [], False
    for number, (source, code, printed, value) in enumerate(run_cells(notebook)):
        parts.append(f"```python\n{source}\n```" if code else source)
        if isinstance(value, pd.DataFrame):
            printed, value = f"{printed}{value.to_string()}", None
        parts += [f"```text\n{printed.rstrip()}\n```"] * bool(printed)
        if hasattr(value, "savefig"):
            pictures.mkdir(parents=True, exist_ok=True)
            (pictures / f"{number}.svg").write_bytes(written(value, "svg"))
            parts.append(f"![{source.splitlines()[-1]}](../images/{pictures.name}/{number}.svg)")
        elif value is not None:
            page = (
                re.sub(r"<style>.*?</style>", "", value._repr_html_(), flags=re.DOTALL)
                if styled
                else value._repr_html_()
            )
            styled = styled or "<style>" in page
            parts.append("\n".join(line.strip() for line in page.splitlines() if line.strip()))
    return "\n\n".join(parts) + "\n"


def main(paths: list[str]) -> None:
    """Write the outputs of each page; the figures of all if there is none."""
    if not paths:
        for place, page in pages().items():
            place.write_text(page, encoding="utf-8")
    for path in map(Path, paths):
        place = path.resolve()
        page = place.read_text(encoding="utf-8")
        pictures = place.parents[1] / "images" / place.stem
        with tempfile.TemporaryDirectory() as folder:
            here = Path.cwd()
            os.chdir(folder)
            try:
                new = rendered(place, pictures) if place.suffix == ".ipynb" else renewed(page, Path(folder))
            finally:
                os.chdir(here)
        place.with_suffix(".md").write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
