"""The demo's data: out of the wheel, checked, without importing the package."""

import importlib.util
import sys

import pytest

import vicinal.data.lexicon as lexicon
from vicinal.data.lexicon import lexicon_table

needs_wheel = pytest.mark.skipif(
    importlib.util.find_spec("vaderSentiment") is None, reason="the extra 'demo' is not installed"
)


@needs_wheel
def test_ratings_of_words():
    table = lexicon_table()
    assert list(table.columns) == ["word", "valence", "rating_sd"]
    assert len(table) == 7506
    assert table["word"].is_unique
    assert table["valence"].between(-4, 4).all()
    by_word = table.set_index("word")
    assert by_word.loc["horrible", "valence"] == -2.5
    assert by_word.loc["$:", "rating_sd"] == pytest.approx(0.80623, abs=1e-5), "the sd that the file states"
    assert by_word.loc["lol", "valence"] == pytest.approx((2.9 + 1.8) / 2), "rated twice: the mean of both"
    assert "vaderSentiment.vaderSentiment" not in sys.modules


@needs_wheel
def test_another_file_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "vader_lexicon.txt"
    path.write_bytes(lexicon._lexicon_file().read_bytes() + b"\n")
    monkeypatch.setattr(lexicon, "_lexicon_file", lambda: path)
    with pytest.raises(
        ValueError, match=r"^lexicon: expected the file of vaderSentiment==3\.3\.2, got one with another"
    ):
        lexicon_table()


def test_absent_package_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"^lexicon: expected the package .* pip install 'vicinal\[demo\]'$"):
        lexicon_table()
