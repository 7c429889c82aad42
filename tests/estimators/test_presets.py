"""A preset is its settings: the user's go before them, and ``nona`` is the paper's model, by its golden files too."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from references import nona as reference
from references.models import tiny_bert
from references.tables import table
from vicinal.cli import run
from vicinal.encoders import MemberProjectors
from vicinal.estimators import PRESETS, NeighborClassifier, NeighborRegressor, TuningPlan, load_model
from vicinal.estimators.network import check_settings, make_head
from vicinal.estimators.presets import settings_of
from vicinal.heads import NONA
from vicinal.masks import SoftStep

GOLDEN = Path(__file__).parents[1] / "golden" / "nona"  # values of the paper's public code, see INDEX.md there

PAPER = {
    # section 3, and 6.1 after the ablation: negative L2, S2 of pointwise parameters, 25 wide, batches of 32
    **{"head": "nona", "metric": "network", "readout": "attention", "max_neighbors": None, "members": 1},
    **{"similarity": "l2", "mask": "s2", "mask_parameters": "pointwise", "mask_extent": "all", "simplex": "softmax"},
    # section 5: fine-tuned extractors, hidden 200, squared error, ten epochs of patience; the public code: tanh, Adam
    **{
        "tune": "all",
        "hidden": (200, 25),
        "final_tanh": True,
        "dropout": 0.0,
        "loss": None,
        "target_transform": "none",
    },
    **{"batch_size": 32, "learning_rate": 1e-5, "encoder_learning_rate": 1e-5, "weight_decay": 0.0, "patience": 10},
    "max_epochs": 2000,
}


@pytest.fixture(scope="module")
def data():
    frame, price = table(80)
    return frame[["size", "town"]], price


@pytest.fixture(scope="module")
def model(data):
    """As the paper's, but of four epochs that are long enough to move the mask."""
    frame, price = data
    made = NeighborRegressor(preset="nona", max_epochs=4, learning_rate=1e-2)
    return made.fit(frame, price, ids=np.arange(len(price)))


def test_the_settings_are_those_of_the_paper():
    assert dict(PRESETS["nona"].settings) == PAPER
    for kind in (NeighborRegressor, NeighborClassifier):
        settings = settings_of(kind(preset="nona"))
        assert settings == {**kind().get_params(), **PAPER}
        check_settings(settings, classes=kind is NeighborClassifier)


def test_the_fitted_model_is_the_papers(model):
    projector, head = model.network_.projector, model.network_.head
    assert (model.metric_, model.readout_, model.folds_) == ("network", "attention", None)
    assert isinstance(projector, MemberProjectors)
    assert (projector.members, projector.sizes, projector.final_tanh, projector.dropout) == (1, [200, 25], True, 0.0)
    assert isinstance(head, NONA)
    assert type(head.similarity).__name__ == "NegativeL2"
    assert isinstance(head.mask, SoftStep)
    assert (head.mask.family, head.mask.parameters_from, head.mask.extent) == ("s2", "pointwise", "all")
    scores = torch.tensor([[0.0, 1.0, 3.0]], dtype=torch.float64)
    torch.testing.assert_close(head.simplex(scores), scores.softmax(dim=-1))


def test_predictions_over_its_bank_are_the_papers_formula(model, data):
    frame, _ = data
    mask, bank, labels = model.network_.head.mask, model.bank_.vectors.numpy(), model.bank_.labels.numpy()
    queries = model.embed(frame)
    logits = queries @ mask.projection.weight.detach().numpy().T + mask.projection.bias.detach().numpy()
    shapes = mask.eps + (1 - 2 * mask.eps) / (1 + np.exp(-logits))
    mass = reference.softstep(shapes, family="s2", extent="all", eps=mask.eps)
    others = ~np.eye(len(labels), dtype=bool)
    weights = reference.head_weights(reference.scores("l2", queries, bank), others, mass)
    np.testing.assert_allclose(model.predict(frame, ids=np.arange(len(labels))), weights @ labels, rtol=0, atol=1e-9)


@pytest.mark.parametrize("case", ["0-l2-s2-pointwise", "1-l2-s2-pointwise"])
@pytest.mark.parametrize("mode", ["predict", "train"])
def test_its_head_gives_the_golden_files(case, mode):
    """With the parameters of a case: the mask's eps is the public code's, with 1e-6 weights differ by 1e-6."""
    arrays = {name: torch.tensor(values) for name, values in np.load(GOLDEN / f"{case}-{mode}.npz").items()}
    queries, ids = arrays["queries"], torch.arange(len(arrays["queries"])) if mode == "train" else None
    bank = queries if mode == "train" else arrays["keys"]
    head = make_head(settings_of(NeighborRegressor(preset="nona")), queries.shape[1], torch.zeros(())).double()
    head.mask.projection.load_state_dict({name: arrays[f"param.params.{name}"] for name in ("weight", "bias")})
    keys = {"query_ids": ids, "bank_ids": ids}
    torch.testing.assert_close(head.weights(queries, bank, **keys), arrays["weights"], rtol=0, atol=1e-11)
    found = head(queries, bank, arrays["values"], **keys)
    torch.testing.assert_close(found, arrays["prediction"], rtol=0, atol=1e-11)


def test_values_of_the_user_go_before_the_presets(data):
    mine = {"batch_size": 64, "simplex": "sparsemax", "head": "dense", "hidden": (8, 4), "tune": "lora", "patience": 3}
    settings = settings_of(NeighborRegressor(preset="nona", **mine))
    assert {name: settings[name] for name in PAPER} == PAPER | mine
    assert settings_of(NeighborRegressor(preset="nona", members=8))["members"] == 1  # the default is no wish
    assert settings_of(NeighborRegressor(hidden=np.array([8, 4]), preset="nona"))["hidden"].tolist() == [8, 4]
    with pytest.raises(ValueError, match=r"^readout: expected 'dense' or 'rows' for metric='kernel'"):
        NeighborRegressor(preset="nona", metric="kernel").fit(*data)


@pytest.mark.parametrize("preset", ["x", 3, ["nona"]])
def test_another_preset_is_refused(preset, data):
    with pytest.raises(ValueError, match=r"^preset: expected one of 'nona', got "):
        NeighborRegressor(preset=preset).fit(*data)


def test_parameters_stay_as_they_were_given(model):
    assert model.get_params() == {**NeighborRegressor().get_params(), "preset": "nona", "max_epochs": 4} | {
        "learning_rate": 1e-2
    }
    assert clone(model).get_params() == model.get_params()
    assert settings_of(NeighborRegressor(**settings_of(model))) == settings_of(model)


def test_a_saved_model_has_the_values(model, data, tmp_path):
    frame, _ = data
    model.save(tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    assert loaded.preset is None
    assert {name: getattr(loaded, name) for name in PAPER} == PAPER | {"max_epochs": 4, "learning_rate": 1e-2}
    np.testing.assert_allclose(loaded.predict(frame), model.predict(frame), rtol=1e-12, atol=1e-12)


def test_a_fit_by_the_values_is_that_of_the_preset(model, data):
    frame, price = data
    values = PRESETS["nona"].settings | {"max_epochs": 4, "learning_rate": 1e-2}
    for also in ({}, {"tune": "auto"}):  # which has nothing to tune here
        other = NeighborRegressor(**values | also).fit(frame, price, ids=np.arange(len(price)))
        np.testing.assert_allclose(other.predict(frame), model.predict(frame), rtol=1e-9)
    auto = NeighborRegressor(preset="nona", max_epochs=4, learning_rate=1e-2, tune="auto")
    auto.fit(frame, price, ids=np.arange(len(price)))
    np.testing.assert_allclose(auto.predict(frame), model.predict(frame), rtol=1e-9)
    assert auto.preset == "nona"


def test_its_encoders_are_trained_and_auto_may_leave_them_as_published(tmp_path):
    pytest.importorskip("transformers")
    encoders = {"note": f"folder:{tiny_bert(tmp_path)}"}
    frame, price = table(40)
    frame = pd.DataFrame({"note": frame["note"]})
    made = NeighborRegressor(preset="nona", encoders=encoders, columns={"note": "text"}, max_epochs=1)
    (tuned,) = made.fit(frame, price).table_encoder.encoders
    assert (tuned.tune, tuned.frozen) == ("all", False)
    plan = TuningPlan(tune="none", epochs=1, rows=30)
    (frozen,) = clone(made).set_params(tune="auto", plan=plan).fit(frame, price).table_encoder.encoders
    assert (frozen.tune, frozen.frozen) == ("none", True)


def test_a_model_of_a_preset_is_trained_on(model, data):
    frame, price = data
    grown = clone(model).fit(frame, price, ids=np.arange(len(price)))
    grown.add(frame, price, ids=np.arange(len(price)) + 100).train_on(np.arange(len(price)) + 100, 1)
    assert grown.network_.projector.members == 1


def test_classes_have_it_too(data):
    frame, price = data
    model = NeighborClassifier(preset="nona", max_epochs=2).fit(frame, price > 5)
    assert (model.metric_, model.readout_, model.network_.head.mask.extent) == ("network", "attention", "all")


def test_on_the_command_line_options_that_are_named_go_before_it(data, tmp_path, capsys):
    frame, price = data
    frame.assign(price=price).to_csv(tmp_path / "t.csv", index=False)
    fit = ["fit", str(tmp_path / "t.csv"), "--target", "price", "--out", str(tmp_path / "m"), "-q", "--no-baselines"]
    assert run([*fit, "--preset", "nona", "--epochs", "2", "--dropout", "0.2"]) == 0  # the default of a dropout
    saved = json.loads((tmp_path / "m" / "config.json").read_text())["parameters"]
    wanted = {**PAPER, "hidden": [200, 25], "max_epochs": 2, "dropout": 0.2}
    assert {name: saved[name] for name in PAPER} == wanted
    assert run([*fit, "--preset", "x"]) == 2
    assert "--preset: expected one of 'nona', got 'x'" in capsys.readouterr().err


def test_a_comparison_takes_it(data, tmp_path):
    frame, price = data
    frame.assign(price=price).to_csv(tmp_path / "t.csv", index=False)
    compare = ["compare", str(tmp_path / "t.csv"), "--target", "price", "--out", str(tmp_path / "c"), "-q"]
    heads = ["--heads", "dense,nona", "--splits", "1", "--no-baselines"]
    assert run([*compare, *heads, "--preset", "nona", "--max-epochs", "2"]) == 0
    settings = json.loads((tmp_path / "c" / "runs.json").read_text())["settings"]
    assert {name: settings[name] for name in PAPER} == {**PAPER, "hidden": [200, 25], "max_epochs": 2}
