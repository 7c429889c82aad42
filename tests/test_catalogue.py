"""The catalogue is true: what it names is there, tested as it says, and nothing is missing from it.

If a symbol, a test or a reference function moved, ``python scripts/catalogue.py --write`` fills in where to.
"""

import re

import pytest

import catalogue
from catalogue import LEFT_OUT, NOT_YET, NOTHING, REFERENCES
from mentions import TESTS, Mentions, Source, defines, mentions, source

LINES = catalogue.read()
HERE = [line for line in LINES if line.is_here]
METHODS = catalogue.registered()

LISTED = re.compile(r"^\| R?(\d+) \| (.*?) \| (IN|LATER|OUT)\b", re.MULTILINE)


def names(symbol, reached):
    """Whether a test speaks of ``symbol``: by its name, by the registered one, or of all of its kind."""
    if symbol.rpartition(".")[2] in reached.names:
        return True
    entry = METHODS.get(catalogue.resolve(symbol))
    if entry is None:
        return False
    by_name = any(text == entry.name or text.startswith(f"{entry.name}:") for text in reached.texts)
    return by_name or ("entries" in reached.names and entry.kind in reached.texts)


def uses(reached, place, symbol):
    """Whether a test uses a reference function: by its name, or by that of the method among others of a file."""
    entry = METHODS.get(catalogue.resolve(symbol))
    own_names = {symbol.rpartition(".")[2], entry.name if entry else ""}
    return place in reached.definitions or (place in reached.offered and place.rpartition("::")[2] in own_names)


def test_columns_are_what_they_may_be():
    assert len({(line.id, line.part, line.symbol) for line in LINES}) == len(LINES)
    for line in LINES:
        assert all(re.fullmatch(r"\d{3}-\d{2,3}", id) for id in line.ids), line
        missing = line.reference == NOT_YET or (line.reference.startswith(LEFT_OUT) and len(line.reference) > 25)
        assert missing != line.is_here, line
        if line.is_here:
            assert line.reference in REFERENCES
            assert line.symbol.startswith("vicinal.")
            assert line.tests, f"{line.symbol}: expected a test, got none"
        else:
            assert line.ids
            assert (line.file, line.tested_by, line.door) == (NOTHING, NOTHING, NOTHING)
    assert {line.id: line.paper for line in LINES if line.ids}.items() >= {
        (line.id, line.paper) for line in LINES if line.ids
    }, "a paper has one title"


def test_symbols_are_public_and_in_the_file():
    for line in HERE:
        assert not any(part.startswith("_") for part in line.symbol.split(".")), line
        assert catalogue.source_file(line.symbol) == line.file, f"{line.symbol}: run scripts/catalogue.py --write"


def test_nothing_is_out_of_date():
    stale = [old for old, new in zip(LINES, catalogue.derived(LINES), strict=True) if old != new]
    assert not stale, "run scripts/catalogue.py --write"


def test_tests_are_there_and_name_the_symbol():
    for line in HERE:
        for test in line.tests:
            assert defines(test), f"{test}: expected a function of the tests"
            assert test.rpartition("::")[2].startswith("test_"), test
            assert names(line.symbol, mentions(test)), f"{test} does not name {line.symbol}"


def test_references_are_there_and_used():
    for line in HERE:
        check_reference(line)


def check_reference(line):
    reached = [mentions(test) for test in line.tests]
    if line.reference == "golden":
        assert line.places, line
        for place in line.places:
            assert (TESTS / place).exists(), place
            stem = place.rpartition("/")[2].partition(".")[0]
            assert any(stem in each.words for each in reached), f"no test of {line.symbol} reads {place}"
    elif line.reference == "numpy":
        assert line.places, line
        for place in line.places:
            assert place.startswith("references/"), line
            assert defines(place), line
            assert any(uses(each, place, line.symbol) for each in reached), f"no test of {line.symbol} uses {place}"
    else:
        assert not line.places, line


def test_everything_registered_has_a_line():
    listed = {catalogue.resolve(line.symbol) for line in HERE}
    assert not [f"{entry.kind} {entry.name}" for method, entry in METHODS.items() if method not in listed]


def test_lines_of_no_list_are_registered_or_hold_golden_values():
    for line in HERE:
        assert line.ids or line.reference == "golden" or catalogue.resolve(line.symbol) in METHODS, line


def test_every_method_in_scope_has_a_line(shared):
    folder = shared / "systems"
    if not folder.is_dir():
        pytest.skip("the shared folder holds no lists of methods")
    titles, scope = {}, set()
    for path in folder.glob("*.md"):
        for number, title, verdict in LISTED.findall(path.read_text(encoding="utf-8")):
            id = f"{path.stem[-3:]}-{int(number):02d}"
            titles[id] = title
            if verdict == "IN":
                scope.add(id)
    ids = {id: line for line in LINES for id in line.ids}
    assert scope <= ids.keys() <= titles.keys()
    assert all(line.reference.startswith(LEFT_OUT) for line in ids.values() if not scope & set(line.ids))
    for line in LINES:
        assert not line.ids or line.paper == titles[line.ids[0]]
    starts = [{tuple(titles[id].split()[:3]) for id in line.ids} for line in LINES if line.ids]
    assert all(len(start) == 1 for start in starts), "ids of one line are the same paper"


@pytest.fixture
def written(tmp_path):
    """Writes a file of tests and gives what a function of it mentions."""

    def write(text, name="test_it"):
        path = TESTS / "unwritten.py"
        reached, file = Mentions(), tmp_path / f"test_{len(list(tmp_path.iterdir()))}.py"
        file.write_text(text)
        parsed = source(file)
        reached.follow(Source(path, parsed.definitions, parsed.helpers), name)
        return reached

    return write


def test_names_are_followed_through_tables_helpers_and_references(written):
    text = '''
from references import pair_losses as reference, mining
from references.geometry import opis as other
TABLE = [("one", losses.circle)]
TABLE += [("deeper/two.npz", 1)]
unused = losses.nca
def helper(x):
    """A word: elsewhere."""
    return reference.circle(x), getattr(mining, x), other
@parametrize(TABLE)
def test_it(): helper("three")
'''
    reached = written(text)
    assert {"circle", "TABLE", "helper"} <= reached.names
    assert "nca" not in reached.names
    assert {"one", "two", "deeper", "three"} <= reached.words
    assert "elsewhere" not in reached.words
    assert {"references/pair_losses.py::circle", "references/geometry.py::opis"} <= reached.definitions
    assert "references/mining.py::iqr_filter" in reached.offered - reached.definitions
    assert uses(reached, "references/mining.py::iqr_filter", "vicinal.miners.iqr_filter")
    assert not uses(reached, "references/mining.py::iqr_filter", "vicinal.miners.hard")
    assert "references/pair_losses.py::nca" not in reached.definitions
    assert names("vicinal.losses.circle", reached)
    assert not names("vicinal.losses.nca", reached)


def test_a_registered_method_is_named_by_its_text_or_with_all_of_its_kind(written):
    assert names("vicinal.losses.nca", written('def test_it(): EmbeddingLoss("nca")'))
    assert names("vicinal.losses.nca", written('ALL = entries("pair_loss")\ndef test_it(): ALL'))
    assert not names("vicinal.losses.nca", written('ALL = entries("miner")\ndef test_it(): ALL'))
    assert not names("vicinal.losses.nca", written('def test_it(): "the nca loss"'))


def test_a_wrong_symbol_is_no_symbol():
    for symbol, name in [("vicinal.losses.supcom", "supcom"), ("vicinal.loses.supcon", "loses")]:
        with pytest.raises(ValueError, match=rf"^symbol: expected .*, got {symbol}, without {name}$"):
            catalogue.resolve(symbol)
    assert catalogue.resolve("vicinal.losses.metrix").__name__ == "metrix"  # the function, not a file of that name


def test_lines_that_are_torn_are_refused(tmp_path):
    path = tmp_path / "catalogue.tsv"
    catalogue.write(LINES[:3], path)
    assert catalogue.read(path) == LINES[:3]
    text = path.read_text()
    path.write_text(text.replace(LINES[2].paper, ""))
    with pytest.raises(ValueError, match=r"^catalogue.tsv, line 2: expected 9 filled columns"):
        catalogue.read(path)
    path.write_text(text.partition("\n")[2])
    with pytest.raises(ValueError, match=r"^catalogue.tsv: expected the columns id, paper"):
        catalogue.read(path)


def test_moved_tests_are_followed_where_that_is_plain():
    places = {"test_a": ["new/test_x.py"], "test_b": ["test_y.py", "test_z.py"]}
    assert catalogue.followed("old/test_x.py::test_a test_z.py::test_b", places) == (
        "new/test_x.py::test_a test_z.py::test_b"
    )
    assert catalogue.followed("old/test_y.py::test_b golden/x.npz", places) == "old/test_y.py::test_b golden/x.npz"
    assert catalogue.followed("golden/losses/x.npz", places) == "golden/losses/x.npz"
