"""What pages say agrees with the result files, with the program, and with other pages."""

import functools
import re
import runpy
from pathlib import Path

import pytest

from vicinal.cli import run
from vicinal.core import entries
from vicinal.estimators import NeighborRegressor
from vicinal.training import TrainingSettings

ROOT = Path(__file__).parents[1]
PRECISIONS = ("32-true", "64-true", "bf16-mixed", "16-mixed")

if not (ROOT / "README.md").is_file():  # the tests may be run from a wheel's neighborhood
    pytest.skip("the documentation is not beside the tests", allow_module_level=True)

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "page_figures.py"))
SENTENCES = SCRIPT["sentences"]()


@functools.cache
def read(page):
    return (ROOT / page).read_text(encoding="utf-8")


def test_figures_in_sentences_are_those_of_the_result_files():
    """If this fails: python scripts/page_outputs.py."""
    for sentence in SENTENCES:
        page = read(sentence.page)
        assert sentence.renewed(page) == page, f"{sentence.page}: {sentence.words}"


def test_tables_are_those_of_the_result_files():
    """If this fails: python scripts/page_outputs.py."""
    made = SCRIPT["pages"]()
    assert {path.name for path in made} >= {"predict.md", "intervals.md", "papers.md"}
    for path, page in made.items():
        assert page == path.read_text(encoding="utf-8"), path.name
    shown = [name for page in made.values() for _, name, _ in SCRIPT["MARKED"].findall(page)]
    assert sorted(shown) == sorted(SCRIPT["TABLES"])


def test_a_table_changes_nothing_beside_it():
    text = "a\n<!-- table: plain -->\nold\n<!-- end of table -->\nb\n<!-- table: clicks -->\n\n<!-- end of table -->\n"
    new = SCRIPT["with_tables"](text)
    assert new.startswith("a\n<!-- table: plain -->\n\n| table |")
    assert "\nb\n" in new
    assert "old" not in new
    assert SCRIPT["with_tables"](new) == new


def test_every_other_figure_is_found_out():
    for sentence in SENTENCES:
        page = read(sentence.page)
        for number in range(1, 1 + sentence.words.count("{")):
            start, stop = sentence.pattern().search(page).span(number)
            other = page[:start] + "123.4" + page[stop:]
            assert sentence.renewed(other) == page, f"{sentence.page}: {sentence.words}"


def test_a_sentence_that_is_gone_is_named():
    sentence = SENTENCES[0]
    with pytest.raises(ValueError, match="expected the sentence"):
        sentence.renewed(read(sentence.page).replace(sentence.words.split("{")[0].split()[0], "lost"))


def test_readme_is_short_and_begins_with_the_defaults():
    page = read("README.md")
    assert len(page.split()) <= 700
    (call,) = re.findall(r"NeighborRegressor\(.*?\)", page)
    assert call == "NeighborRegressor()"


def test_one_prediction_of_one_row_in_the_guide():
    guide = read("docs/guide.md")
    found = re.findall(r"^p430,([\d.]+),", guide, re.MULTILINE) + re.findall(r'"p430", "prediction": ([\d.]+)', guide)
    assert len(found) == 2
    assert float(found[0]) == pytest.approx(float(found[1]), abs=1e-4)


def test_projector_of_the_methods_page_is_the_default_one():
    page, given = read("docs/methods.md"), NeighborRegressor().get_params()
    formula = re.search(r"\$\$ z = (.*?)\$\$", page, re.DOTALL)[1]
    assert formula.count(r"\tanh") == len(given["hidden"]) - 1 + given["final_tanh"]
    assert f"dropout of {given['dropout']:g} before" in page


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_help_names_every_similarity_and_precision(command, capsys):
    assert run([command, "--help"]) == 0
    words = re.findall(r"[\w-]+", capsys.readouterr().out)
    assert {entry.name for entry in entries("similarity")} <= set(words)
    assert set(PRECISIONS) <= set(words)


def test_changelog_names_every_similarity_and_precision():
    names = re.findall(r"`([\w-]+)`", read("CHANGELOG.md"))
    assert {entry.name for entry in entries("similarity")} <= set(names)
    assert set(PRECISIONS) <= set(names)


def test_precisions_are_those_that_training_takes():
    for name in PRECISIONS:
        assert TrainingSettings(precision=name).precision == name
    with pytest.raises(ValueError, match="precision") as told:
        TrainingSettings(precision="8-true")
    assert set(re.findall(r"\w+-\w+", str(told.value))) <= {*PRECISIONS, "8-true"}


def test_nobody_is_sent_to_what_cannot_be_read():
    for folder, ending in (("docs", "*.md"), ("src", "*.py")):
        for path in (ROOT / folder).rglob(ending):
            assert "specification of this project" not in " ".join(path.read_text(encoding="utf-8").split()), path
