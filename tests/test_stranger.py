"""The stranger's test: the file of every registered method is guessed from its name and family.

``scripts/stranger.py`` holds the rule. If a method is not where a stranger looks, give it the family of the file that
it stands in, or put it into the file of its family.
"""

from dataclasses import replace

import pytest

import stranger
from vicinal.core import KINDS, entries, entry

GUESSES = stranger.guesses()


def test_each_registered_method_is_in_the_file_that_a_stranger_opens():
    assert {(guess.entry.kind, guess.entry.name) for guess in GUESSES} == {
        (kind, method.name) for kind in KINDS for method in entries(kind)
    }
    assert [str(guess) for guess in GUESSES if not guess.is_right] == []


@pytest.mark.parametrize(("kind", "name", "file"), [("pair_loss", "supcon", "softmax"), ("link", "tanh", "low_norms")])
def test_what_is_guessed(kind, name, file):
    guess = next(one for one in GUESSES if (one.entry.kind, one.entry.name) == (kind, name))
    assert [each.path.stem for each in guess.files] == [file]


def test_a_method_in_another_file_than_its_family_is_noticed():
    """The rule can fail: most methods would be sought elsewhere under another family."""
    files = stranger.files_of("vicinal.losses")
    method = entry("pair_loss", "supcon")
    for family in ("triplets", "proxies", "regression", ""):
        assert not stranger.guess(replace(method, family=family), files).is_right


def test_words_are_alike_but_for_a_plural_or_an_ending():
    assert stranger.words("Proxy-based losses_of Proxies") == ["proxy", "based", "losse", "of", "proxy"]
    assert stranger.alike("rank", "ranking")
    assert not stranger.alike("contract", "contrastive")
    assert not stranger.alike("s", "snr")
