"""Break one line of the library at a time and see that a test notices.

``tests/mutants.tsv`` lists the mutations, one a line: a name, a piece of a line that stands once in ``src``, what takes
its place, and the tests that must fail. A mutation that no test notices *survives*; the aim is none. One whose piece
stands nowhere, or twice, is *stale*: the code has changed, and the list must follow.

    python scripts/mutants.py                 # all of them, exit code 1 if one survives or is stale
    python scripts/mutants.py aurc boosting   # those whose names hold one of these
    python scripts/mutants.py --check         # only that none is stale: takes no time
"""

import argparse
import csv
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
LIMIT = 600  # seconds: a mutation may well loop for ever, which is noticed, too


@dataclass(frozen=True)
class Mutation:
    """One line of the list."""

    name: str
    old: str
    new: str
    tests: str


def listed(words: Sequence[str] = ()) -> list[Mutation]:
    """The mutations whose names hold one of ``words``; all without words."""
    with (ROOT / "tests" / "mutants.tsv").open(encoding="utf-8", newline="") as lines:
        rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        mutations = [Mutation(row["name"], row["old"], row["new"], row["tests"]) for row in rows]
    return [each for each in mutations if not words or any(word in each.name for word in words)]


def places(mutation: Mutation, source: Path = SOURCE) -> list[Path]:
    """The files where the piece stands, once for each time; it is fresh if that is once."""
    return [path for path, text in texts(source).items() for _ in range(text.count(mutation.old))]


@cache
def texts(source: Path) -> dict[Path, str]:
    """The files below a folder, read once."""
    return {path: path.read_text(encoding="utf-8") for path in sorted(source.rglob("*.py"))}


def run(mutation: Mutation) -> str:
    """What became of it: "caught", "survived" or "stale"."""
    found = places(mutation)
    if len(found) != 1 or mutation.old == mutation.new:
        return f"stale (stands {len(found)} times)"
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        path = copy / found[0].relative_to(SOURCE)
        path.write_text(path.read_text(encoding="utf-8").replace(mutation.old, mutation.new), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutation.tests.split()]
        environment = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            ended = subprocess.run(  # noqa: S603 - our own tests
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT
            )
        except subprocess.TimeoutExpired:
            return "caught"
    if ended.returncode not in (0, 1, 2):  # 2: the tests cannot be imported, which is noticed, too
        raise SystemExit(f"{mutation.name}: the tests could not be run\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    return "caught" if ended.returncode else "survived"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the mutations and print what became of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only mutations whose names hold one of these")
    parser.add_argument("--check", action="store_true", help="only look that each piece stands once in src")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutations at a time")
    options = parser.parse_args(arguments)
    mutations = listed(options.words)
    if options.check:
        stale = [each for each in mutations if len(places(each)) != 1]
        for each in stale:
            print(f"{each.name}: expected its piece once in src, got it {len(places(each))} times: {each.old}")
        return 1 if stale else 0
    ends = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        for each, end in zip(mutations, pool.map(run, mutations), strict=True):
            ends[each.name] = end
            print(f"{end:10} {each.name}", flush=True)
    bad = [name for name, end in ends.items() if end != "caught"]
    print(f"{len(ends)} mutations, {len(ends) - len(bad)} caught, {len(bad)} survive or are stale")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
