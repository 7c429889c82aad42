"""The page of the two papers names tests and files that are there, and counts its items as they are."""

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "papers.md"
ROW = re.compile(r"^\| ([NS])\.(\d+) \| (.+?) \| ([^|]+) \| ([^|]+) \| ([^|]*) \|$", re.MULTILINE)
STATES = ("yes", "partly", "no", "in work")


@pytest.fixture(scope="module")
def rows():
    if not PAGE.is_file():
        pytest.skip("the documentation is not beside the tests")
    return ROW.findall(PAGE.read_text(encoding="utf-8"))


def state_of(text):
    return next(state for state in ("in work", "partly", "yes", "no") if re.match(rf"{state}\b", text))


def test_all_items_of_both_papers_have_a_row(rows):
    assert [int(number) for letter, number, *_ in rows if letter == "N"] == list(range(1, 80))
    assert [int(number) for letter, number, *_ in rows if letter == "S"] == list(range(1, 70))


def test_the_page_counts_its_states(rows):
    counts = Counter(state_of(state) for _, _, _, state, _, _ in rows)
    wanted = " ".join(PAGE.read_text(encoding="utf-8").split())
    said = re.search(r"Of 148 items (\d+) are yes, (\d+) partly, (\d+) no(?:, (\d+) in work)?\.", wanted)
    assert [int(number or 0) for number in said.groups()] == [counts[state] for state in STATES]


def test_every_test_and_file_it_names_is_there(rows):
    for _, number, item, state, where, held in rows:
        named = re.findall(r"`((?:tests|benchmarks|docs|scripts|src)/[^`\s]+)`", f"{where} {held}")
        assert named or state_of(state) != "yes", f"{number} {item}: expected a test or a file of results, got none"
        for place in named:
            path, _, function = place.partition("::")
            assert (ROOT / path).is_file(), place
            assert not function or f"def {function}(" in (ROOT / path).read_text(encoding="utf-8"), place


def test_what_is_not_whole_has_a_reason(rows):
    for _, _, item, state, _, _ in rows:
        if state_of(state) in ("partly", "no"):
            assert len(state) > 30, item


def test_the_first_pages_name_the_papers_parts(rows):
    del rows
    for page in ("README.md", "docs/index.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        for part in ("NONA", "SoftStep", "elective matching loss"):
            assert part in text, f"{page}: {part}"
