"""The registry is the source of truth, so it must refuse what would make it lie."""

import inspect

import pytest
import torch

from vicinal.core import FACTS, entries, entry, make, register

METHODS = [found for kind in ("similarity", "mask", "simplex", "head") for found in entries(kind)]
each_method = pytest.mark.parametrize("method", METHODS, ids=lambda e: f"{e.kind}-{e.name}")


def test_the_methods_of_the_paper_are_all_there():
    names = {kind: {found.name for found in entries(kind)} for kind in ("similarity", "mask", "simplex", "head")}
    assert names["similarity"] >= {"l2", "l1", "squared_l2", "cosine", "dot", "scaled_dot"}
    assert names["mask"] >= {"softstep", "topk"}
    assert names["simplex"] >= {"softmax", "sparsemax", "entmax15"}
    assert names["head"] >= {"nona", "dense"}


@each_method
def test_each_method_says_against_what_it_was_verified(method):
    assert method.verified


@each_method
def test_each_method_is_documented_by_one_sentence_first(method):
    assert len(method.summary) > 20
    assert method.summary == method.factory.__doc__.strip().splitlines()[0]


WITH_FAMILY = (
    "similarity",
    "simplex",
    "link",
    "curve",
    "loss",
    "pair_loss",
    "regularizer",
    "metric",
    "miner",
    "sampler",
)


@pytest.mark.parametrize("kind", WITH_FAMILY)
def test_what_has_relatives_names_its_family(kind):
    assert [method.name for method in entries(kind) if not method.family] == []


def test_each_pair_loss_tells_its_formula_in_a_paragraph_of_its_own():
    for method in entries("pair_loss"):
        assert "$" not in method.summary, method.name
        assert "$" in method.formula, method.name
        assert method.formula in inspect.getdoc(method.factory), method.name


@each_method
def test_each_method_declares_known_facts_only(method):
    assert method.facts <= FACTS.keys()


@each_method
def test_learned_is_declared_by_exactly_the_methods_with_parameters(method):
    if method.kind == "simplex":
        assert "learned" not in method.facts
        return
    wide = {key: {"dim": 2} for key in ("softstep", "rank_step", "rejecting_step", "dense", "multi_head", "refined")}
    settings = (wide | {"topk": {"k": 1}}).get(method.name, {})
    parameters = list(make(method.kind, method.name, **settings).parameters())
    assert bool(parameters) == ("learned" in method.facts)


def test_entries_come_by_name_and_are_found_again():
    names = [found.name for found in entries("similarity")]
    assert names == sorted(names)
    assert all(entry("similarity", name).name == name for name in names)


@pytest.mark.parametrize(
    ("kind", "name", "facts", "sentence"),
    [
        ("similarities", "new", (), r"^kind: expected one of .*; did you mean 'similarity'\?$"),
        ("similarity", "new", ("bounds",), r"^fact: expected one of .*, got 'bounds'; did you mean 'bounded'\?$"),
        ("similarity", "l2", (), "^name: expected a new name for a similarity, got 'l2', which is registered already$"),
    ],
)
def test_a_wrong_registration_is_refused_and_leaves_nothing_behind(kind, name, facts, sentence):
    before = entries("similarity")
    with pytest.raises(ValueError, match=sentence):
        register(kind, name, *facts)(torch.nn.Identity)
    assert entries("similarity") == before


def test_the_same_name_may_be_used_for_two_kinds_and_the_decorator_changes_nothing(monkeypatch):
    from vicinal.core import registry

    monkeypatch.setattr(registry, "_entries", dict(registry._entries))

    def thing(size=1):
        """Makes a number."""
        return size + 1

    for kind in ("similarity", "mask"):
        assert register(kind, "thing", "bounded", verified="by hand")(thing) is thing
        assert make(kind, "thing", size=2) == 3
    found = entry("mask", "thing")
    assert (found.kind, found.name, found.summary, found.paper) == ("mask", "thing", "Makes a number.", "")
    assert found.facts == {"bounded"}


def test_an_unknown_method_gets_all_names_and_the_nearest():
    with pytest.raises(ValueError, match=r"^simplex: expected one of 'entmax15', .*; did you mean 'sparsemax'\?$"):
        make("simplex", "sparse_max")
    with pytest.raises(ValueError, match=r"^kind: expected one of "):
        entries("linkz")
