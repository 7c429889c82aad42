"""Looks at every link of the built site: ``python scripts/links.py site``.

Pages, files and anchors of the site must be there. Addresses elsewhere are only read, not asked for, and must be whole.
What a page loads (scripts, styles, pictures) must come from the site itself, so that it works without a network.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("script", "src"), ("img", "src"), ("source", "src"), ("iframe", "src"), ("audio", "src"), ("link", "href")}
WHOLE = re.compile(r"https?://[\w.-]+\.[a-z]{2,}(?::\d+)?(?:[/?#]\S*)?|mailto:\S+@\S+", re.ASCII)
HERE = re.compile(r"https?://(?:127\.0\.0\.1|localhost)[:/]?\S*")


class Page(HTMLParser):
    """The anchors of a page, and its links: (address, whether it is loaded with the page)."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = {"", "top"}
        self.links: list[tuple[str, bool]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note ids, names and links."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        for name in ("href", "src"):
            if given.get(name):
                loaded = (tag, name) in LOADED and given.get("rel") not in ("canonical", "prev", "next", "edit")
                self.links.append((given[name], loaded))


def broken(site: Path) -> list[str]:
    """A sentence for each link of the pages in ``site`` that leads nowhere, or loads from elsewhere."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    said = []
    for path, page in pages.items():
        for address, loaded in dict.fromkeys(page.links):
            wrong = _wrong(site.resolve(), path, address, pages, loaded=loaded)
            if wrong:
                said.append(f"{path.relative_to(site.resolve())}: {address}: {wrong}")
    return said


def _wrong(site: Path, path: Path, address: str, pages: dict[Path, Page], *, loaded: bool) -> str:
    """What is wrong with a link, or ""."""
    parts = urlsplit(address)
    if parts.scheme == "data":
        return ""
    if parts.scheme or parts.netloc:
        whole = WHOLE.fullmatch(address) or HERE.fullmatch(address)
        return "loaded from elsewhere" if loaded else "" if whole else "not a whole address"
    place = path
    if parts.path:
        place = (
            site / parts.path.lstrip("/") if parts.path.startswith("/") else path.parent / unquote(parts.path)
        ).resolve()
        place = place / "index.html" if place.is_dir() else place
    if not place.is_file():
        return "" if path.name == "404.html" else "no such page"
    known = pages[place].anchors if place in pages else {""}
    return "" if unquote(parts.fragment) in known or place.suffix == ".svg" else "no such anchor"


def main(site: str) -> int:
    """Print what is broken; 1 if anything is."""
    pages = len(list(Path(site).rglob("*.html")))
    said = broken(Path(site))
    print("\n".join([*said, f"{pages} pages, {len(said)} broken links"]))
    return int(bool(said) or not pages)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
