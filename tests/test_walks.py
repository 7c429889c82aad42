"""The walks of docs/developing.md are those that the program takes, call by call."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import vicinal
from vicinal.estimators import NeighborRegressor
from vicinal.heads import NONA
from vicinal.losses import EmbeddingLoss, supcon

SOURCE = Path(vicinal.__file__).parent
PAGE = (Path(__file__).parents[1] / "docs" / "developing.md").read_text(encoding="utf-8")


def walk(title):
    """Calls and files of a walk, as the page has them."""
    section = PAGE.partition("## Three walks")[2].partition("\n## ")[0]
    table = section.partition(f"**{title}**")[2].partition("**")[0]
    return re.findall(r"^\| `([\w.]+)` \| `([\w/]+\.py)` \|", table, flags=re.MULTILINE)


def calls_here():
    """Functions of the library that are being called, the outermost first, and their files."""
    frame, calls = sys._getframe(1), []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(SOURCE):
            name = frame.f_code.co_qualname.partition(".<locals>")[0]
            calls.append((name, path.relative_to(SOURCE).as_posix()))
        frame = frame.f_back
    calls.reverse()
    return [call for place, call in enumerate(calls) if place == 0 or call != calls[place - 1]]


@pytest.fixture
def paths(monkeypatch):
    """The calls that led to the weights of the head, each time."""
    taken = []
    original = NONA.weights_of_scores

    def weights(self, *args):
        taken.append([*calls_here(), ("NONA.weights_of_scores", "heads/nona.py")])
        return original(self, *args)

    monkeypatch.setattr(NONA, "weights_of_scores", weights)
    return taken


def test_fit_and_predict_come_to_the_head(paths):
    x = np.arange(40.0)[:, None] % 7
    model = NeighborRegressor(max_epochs=1, members=2, hidden=(4, 2), readout="attention").fit(x, x[:, 0])
    training = [path for path in paths if ("NeighborModule.training_step", "training/module.py") in path]
    assert training[0] == walk("From `fit` to the head")
    paths.clear()
    model.predict(x[:2])
    assert paths[0] == walk("From `predict` to the head")


def test_a_loss_of_embeddings_comes_to_its_formula(monkeypatch):
    taken = []
    original = supcon.formula

    def formula(pairs, **settings):
        taken.append([*calls_here(), ("supcon", "losses/softmax.py")])
        return original(pairs, **settings)

    monkeypatch.setattr(supcon, "formula", formula)
    EmbeddingLoss("supcon")(torch.randn(6, 3), torch.arange(6) // 2)
    assert taken == [walk('From `EmbeddingLoss("supcon")` to the formula')]


def test_walks_are_short_and_lead_through_functions_that_are_there():
    walks = {"From `fit` to the head": 15, "From `predict` to the head": 15}
    walks['From `EmbeddingLoss("supcon")` to the formula'] = 6
    for title, most in walks.items():
        steps = walk(title)
        assert 5 <= len(steps) <= most, title
        for name, file in steps:
            text = (SOURCE / file).read_text(encoding="utf-8")
            assert re.search(rf"^ *def {name.rpartition('.')[2]}\(", text, flags=re.MULTILINE), (name, file)
