"""Writes the tables of methods into the documentation.

A page holds a pair of marks, ``<!-- methods: similarity -->`` and ``<!-- end of methods -->``, for each table that it
wants (any kind of ``vicinal.core.KINDS``), or ``<!-- facts: similarity, mask -->`` and ``<!-- end of facts -->`` for
what the facts declared by those kinds mean. ``<!-- which: pair_loss with proxies -->`` (or ``without``, or neither)
lists the methods of a kind that declare one of some facts, or none of them, in a line each. What stands between two
marks is written anew from the registry; between ``<!-- papers: all -->`` and ``<!-- end of papers -->`` stands what
``tests/catalogue.tsv`` says of each paper.

Run it after a change of the registry or of the catalogue:  python scripts/method_tables.py  (with --check it only
looks, and fails if a page is out of date).
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from catalogue import NOT_YET, NOTHING, Line, read
from vicinal.core import FACTS, entries
from vicinal.core.registry import Entry

DOCS = Path(__file__).resolve().parents[1] / "docs"
MARKED = re.compile(r"(<!-- (methods|facts|papers|which): ([a-z_, -]+?) -->\n).*?(\n<!-- end of \2 -->)", re.DOTALL)


def methods_table(kind: str) -> str:
    """The methods of ``kind``, one a line: name, family, what it is, declared facts, where from, checked against.

    The family is named like the file that the method stands in, where its name does not say it.
    """
    lines = [
        "| name | family | what it is | declared facts | from | checked against |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{found.name}` | {found.family} | {cell(found.summary)} | {', '.join(facts_of([found]))} | {found.paper} "
        f"| {cell(found.verified)} |"
        for found in entries(kind)
    ]
    return "\n".join(lines)


def which_table(choice: str) -> str:
    """What a choice such as "pair_loss with proxies, proxy-rows" leaves: a method a line, and what it is."""
    kind, how, listed = re.fullmatch(r"(\w+)(?: (with|without) (.+))?", choice).groups()
    wanted = set(listed.split(", ")) if listed else set()
    if unknown := wanted - set(FACTS):
        raise ValueError(f"{choice}: expected facts of the registry, got {', '.join(unknown)}")
    chosen = [found for found in entries(kind) if not how or bool(wanted & set(found.facts)) == (how == "with")]
    lines = ["| name | what it is | from |", "| --- | --- | --- |"]
    return "\n".join([*lines, *(f"| `{found.name}` | {cell(found.summary)} | {found.paper} |" for found in chosen)])


def facts_table(kinds: Iterable[str]) -> str:
    """What each fact means that a method of ``kinds`` declares."""
    declared = facts_of(found for kind in kinds for found in entries(kind))
    return "\n".join(["| fact | means |", "| --- | --- |", *(f"| {fact} | {FACTS[fact]} |" for fact in declared)])


def papers_table(lines: Iterable[Line]) -> str:
    """What is here of each paper of the lists, checked against what, and what is not; counts first."""
    papers = defaultdict(list)
    for line in lines:
        if line.ids:
            papers[line.id].append(line)
    rows = ["| paper | id | here | checked against | not here |", "| --- | --- | --- | --- | --- |"]
    for id, parts in papers.items():
        here = ", ".join(with_part(f"`{part.symbol.removeprefix('vicinal.')}`", part) for part in parts if part.is_here)
        against = ", ".join(dict.fromkeys(part.reference for part in parts if part.is_here))
        missing = "; ".join(dict.fromkeys(missing_part(part) for part in parts if not part.is_here))
        rows.append(f"| {cell(parts[0].paper)} | {id} | {here} | {against} | {cell(missing)} |")
    begun = [parts for parts in papers.values() if any(part.is_here for part in parts)]
    unfinished = [parts for parts in papers.values() if any(part.reference == NOT_YET for part in parts)]
    both = sum(parts in unfinished for parts in begun)
    counts = f"{len(begun)} papers are here"
    if unfinished:
        counts += f", {both} of them in part; {len(unfinished) - both} are not here yet"
    counts += "."
    return "\n".join([counts, "", *rows])


def with_part(text: str, line: Line) -> str:
    """``text``, and which part of the paper it is."""
    return text if line.part == NOTHING else f"{text} ({cell(line.part)})"


def missing_part(line: Line) -> str:
    """What of a paper is not here, and why."""
    return line.reference if line.part == NOTHING else f"{line.part}: {line.reference}"


def facts_of(methods: Iterable[Entry]) -> list[str]:
    """The facts that ``methods`` declare, each once, in the order of the registry's list."""
    declared = {fact for found in methods for fact in found.facts}
    return [fact for fact in FACTS if fact in declared]


def cell(text: str) -> str:
    """A line of a docstring as a cell: one form of code marks, and no bar that would end the cell."""
    text = re.sub(r":[a-z]+:`\.?([^`]+)`", r"`\1`", text).replace("``", "`")
    text = re.sub(r"\$[^$]+\$", lambda formula: formula[0].replace(r"\|", r"{\Vert}").replace("|", r"{\vert}"), text)
    return text.replace("|", r"\|")


def renewed(page: str) -> str:
    """``page`` with every table between marks written anew."""

    def write(found: re.Match[str]) -> str:
        start, what, kinds, end = found.groups()
        names = kinds.split(", ")
        if what == "which":
            return f"{start}\n{which_table(kinds)}\n{end}"
        if what == "papers":
            table = papers_table(read())
        else:
            table = facts_table(names) if what == "facts" else "\n\n".join(map(methods_table, names))
        return f"{start}\n{table}\n{end}"

    return MARKED.sub(write, page)


def main(arguments: list[str]) -> int:
    """Write the tables; with ``--check`` only say which pages are out of date."""
    stale = 0
    for path in sorted(DOCS.rglob("*.md")):
        page = path.read_text(encoding="utf-8")
        new = renewed(page)
        if new != page:
            stale += 1
            print(f"{path.relative_to(DOCS.parent)}: {'out of date' if '--check' in arguments else 'written'}")
            if "--check" not in arguments:
                path.write_text(new, encoding="utf-8")
    return int(stale > 0 and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
