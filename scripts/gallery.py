"""Draws the figures of docs/gallery.md, each from the lines that stand beside it there.

A block behind ``<!-- figure: NAME -->`` leaves a ``figure``, which goes to ``docs/images/gallery/NAME.png``.
Run it after a change of a block:  python scripts/gallery.py
"""

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
BLOCK = re.compile(r"^(?:<!-- figure: (\w+) -->\n)?```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def main() -> None:
    """Run the blocks in order; save what each draws."""
    folder, names = DOCS / "images" / "gallery", {"__name__": "gallery"}
    folder.mkdir(exist_ok=True)
    for name, code in BLOCK.findall((DOCS / "gallery.md").read_text(encoding="utf-8")):
        exec(compile(code, f"gallery.md: {name}", "exec"), names)  # noqa: S102  the project's own documentation
        if name:
            names["figure"].savefig(folder / f"{name}.png", metadata={"Software": None})  # type: ignore[attr-defined]
            names["plt"].close("all")  # type: ignore[attr-defined]
            print(folder / f"{name}.png")


if __name__ == "__main__":
    main()
