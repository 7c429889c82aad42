"""``vicinal links``: the table and the picture."""

import json

import pytest
import torch

from vicinal.cli import run
from vicinal.core import entries
from vicinal.links import Log, Logit, Sigmoid, parse
from vicinal.report.links import link_figure, link_rows, plain_formula, visible_range


def test_every_link_has_a_row_without_tex(capsys):
    assert run(["links", "--json"]) == 0
    found = {row["link"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(found) == {entry.name for entry in entries("link")}
    for row in found.values():
        assert row["formula"]
        assert not set("\\${}") & set(row["formula"])
    assert found["sigmoid"]["slope at -3"] == f"{float(Sigmoid().slope(torch.tensor([-3.0]))[0]):.3g}"
    assert found["log"]["slope at -3"] == ""


def test_the_table_is_printed(capsys):
    assert run(["links"]) == 0
    assert "sinh" in capsys.readouterr().out
    assert len(link_rows()) == len(entries("link"))


@pytest.mark.sweep(4)
@pytest.mark.parametrize("text", ["sinh(scale=.5)+0.2*sigmoid", "logit", "log", "step", "staircase([0,1],[0,1,2])"])
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_picture_is_written(text, ending, tmp_path, capsys):
    out = tmp_path / f"link.{ending}"
    assert run(["links", "show", text, "--out", str(out)]) == 0
    assert out.stat().st_size > 5000
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    assert str(out) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["sinhh"], "did you mean 'sinh'?"),
        (["cosh"], "link"),
        (["exp", "--out", "x.doc"], "--out: expected one of"),
        (["__import__('os')"], "link"),
    ],
)
def test_what_is_no_link_gets_one_sentence(arguments, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["links", "show", *arguments]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert told.count("\n") == 1
    assert sentence in told
    assert not list(tmp_path.iterdir())


def test_ranges_stay_inside_the_domain():
    low, high = visible_range(Logit())
    assert 0 < low < high < 1
    low, high = visible_range(Log())
    assert low > 0
    assert visible_range(Sigmoid()) == (-3.0, 3.0)


def test_figure_has_four_panels():
    assert len(link_figure(parse("tanh"), "tanh").axes) == 4


def test_formula_of_nothing_is_nothing():
    assert plain_formula("") == ""
