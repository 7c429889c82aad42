"""One grammar reads links and losses as text; nothing is run, and nothing is read without bound."""

import ast

import pytest

from vicinal import links, losses
from vicinal.core.grammar import Grammar


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1), ("-.5", -0.5), ("--2", 2), ("'a'", "a"), ("True", True), ("None", None)]
)
def test_plain_values_are_read(text, value):
    assert Grammar("link", "numbers", "-2.5").read(text) == value


@pytest.mark.parametrize("text", ["a", "f(1)", "[1]", "1 + 1", "1j", "b'a'", "not 1", "~1", "x.y", "lambda: 1", "..."])
def test_what_no_method_reads_is_refused(text):
    with pytest.raises(ValueError, match=r"^link: expected numbers, got "):
        Grammar("link", "numbers", "-2.5").read(text)


@pytest.mark.parametrize(
    ("read", "sentence"),
    [
        (lambda: links.parse("sinh(scale=" + "-" * 40 + "1)"), r"^link: expected at most 30 levels of brackets$"),
        (lambda: losses.parse("supcon(temperature=" + "-" * 40 + "1)"), r"^loss: expected at most 30 levels"),
        (lambda: losses.parse("triplet(miner=" + "f(a=" * 40 + "1" + ")" * 41), r"^loss: expected at most 30 levels"),
        (lambda: losses.parse("matching:" + "[" * 40 + "]" * 40), r"^link: expected at most 30 levels"),
        (lambda: losses.parse("matching:" + "sinh+" * 400 + "sinh"), r"^loss: expected at most 2000 characters"),
        (lambda: links.parse("sinh(**settings)"), r"^link: expected settings by name, got '\*\*settings'$"),
        (lambda: losses.parse("supcon(**settings)"), r"^loss: expected settings by name, got '\*\*settings'$"),
        (lambda: losses.parse("matching(sinh, **settings)"), r"^link: expected settings by name, got '\*\*settings'$"),
        (lambda: links.parse("-sinh"), r"^link: expected a number after the sign, got '-sinh'; to mirror, use .flip"),
        (lambda: links.parse("flip(-1)"), r"^link: expected a curve before .flip, got -1$"),
        (lambda: links.parse("cap(curve=None)"), r"^link: expected a curve before .cap, got None$"),
        (lambda: losses.parse("supcon(temperature=-cold)"), r"^loss: expected a number after the sign, got '-cold'$"),
    ],
)
def test_links_and_losses_are_refused_alike(read, sentence):
    with pytest.raises(ValueError, match=sentence):
        read()


def test_a_grammar_that_refused_reads_on():
    grammar = Grammar("link", "numbers", "-2.5")
    for _ in range(40):
        with pytest.raises(ValueError, match="expected numbers"):
            grammar.read("--a")
    assert grammar.read("--1") == 1


@pytest.mark.parametrize("settings", ["", "1, a=2"])
def test_a_call_is_read_by_its_settings(settings):
    call = Grammar("loss", "numbers", "triplet(margin=.2)").parse_call("triplet", settings)
    assert ast.unparse(call) == f"triplet({settings})"


@pytest.mark.parametrize("settings", ["a=", "1)(2", "1) + f(2", ") or (1"])
def test_what_is_not_one_call_is_refused_with_an_example(settings):
    with pytest.raises(ValueError, match=r"^loss: expected .*'triplet\(margin=\.2\)', got"):
        Grammar("loss", "numbers", "triplet(margin=.2)").parse_call("triplet", settings)
