"""Promises of tuned encoders: learning rates by layer, a rise and a fall, and a run that goes on to the same model."""

import numpy as np
import pandas as pd
import pytest
import torch

from references.models import tiny_bert
from vicinal.encoders import TextTransformer
from vicinal.estimators import NeighborRegressor
from vicinal.training import NeighborModule, Rows, TrainingSettings

pytest.importorskip("transformers")

WORDS = ["red", "blue", "shoes", "hat", "old"]


class Killed(BaseException):
    """What ends a run here."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_bert(tmp_path_factory.mktemp("bert"))


def table(rows=60):
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(WORDS, 1 + k % 7)) for k in range(rows)]
    labels = np.array([text.count("red") - text.count("old") for text in texts], dtype=float)
    return pd.DataFrame({"text": texts}), labels + 0.1 * generator.normal(size=rows)


def model(folder, **settings):
    settings = {"max_epochs": 3, "batch_size": 17, "hidden": (6, 3), "members": 2, "learning_rate": 1e-2} | settings
    return NeighborRegressor(encoders={"text": f"folder:{folder}"}, columns={"text": "text"}, **settings)


@pytest.mark.parametrize("tune", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("last-2", "all")), "lora"])
def test_a_tuned_encoder_goes_on_after_a_kill_to_the_same_model(folder, tmp_path, monkeypatch, tune):
    x, y = table()
    whole = model(folder, tune=tune).fit(x, y)
    train, steps = NeighborModule.training_step, []

    def step(self, batch, index):
        steps.append(index)
        if len(steps) == 5:
            raise Killed
        return train(self, batch, index)

    with monkeypatch.context() as patch:
        patch.setattr(NeighborModule, "training_step", step)
        with pytest.raises(Killed):
            model(folder, tune=tune, checkpoint_dir=tmp_path).fit(x, y)
    resumed = model(folder, tune=tune, checkpoint_dir=tmp_path).fit(x, y)
    assert resumed.history_.resumed_at == 1
    for name, value in whole.network_.state_dict().items():
        assert torch.equal(resumed.network_.state_dict()[name], value), name
    assert torch.equal(resumed.bank_.vectors, whole.bank_.vectors)


def test_the_bank_holds_what_the_tuned_encoder_says_of_all_rows_that_are_labelled(folder):
    x, y = table()
    fitted = model(folder, tune="last-1", encoder_learning_rate=1e-2).fit(x, y)
    np.testing.assert_allclose(fitted.bank_.vectors.numpy(), fitted.embed(x), rtol=1e-4, atol=1e-5)
    assert len(fitted.bank_) == len(x)


def test_frozen_layers_run_once_and_epochs_start_above_them(folder, monkeypatch):
    onward, batches = TextTransformer.onward, []

    def noted(self, batch):
        batches.append(("states" in batch, self.training))
        return onward(self, batch)

    monkeypatch.setattr(TextTransformer, "onward", noted)
    model(folder, tune="last-1").fit(*table())
    assert {has_states for has_states, training in batches if training} == {True}
    counts = [sum(not has_states for has_states, _ in batches)]
    batches.clear()
    model(folder, tune="last-1", max_epochs=1).fit(*table())
    counts.append(sum(not has_states for has_states, _ in batches))
    assert counts[0] == counts[1]  # before the first epoch, and for the bank: as often for three epochs as for one


def test_each_layer_has_its_learning_rate(folder):
    network = model(folder, tune="last-2", max_epochs=1).fit(*table()).network_
    nobody = Rows(None, torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    settings = TrainingSettings(learning_rate=1e-2, encoder_learning_rate=1e-3, layer_decay=0.5, weight_decay=0.1)
    optimizer = NeighborModule(network, nobody, settings).configure_optimizers()
    assert [group["lr"] for group in optimizer.param_groups] == [1e-2, 1e-3, 5e-4]
    layers = network.encoder.encoders[0].layers()
    assert [id(group["params"][0]) for group in optimizer.param_groups[1:]] == [
        id(next(layer.parameters())) for layer in (layers[2], layers[1])
    ]
    assert all(group["weight_decay"] == 0.1 for group in optimizer.param_groups)
    for wrong in (0, 1.5):
        with pytest.raises(ValueError, match=r"^layer_decay: expected a number above 0 and at most 1"):
            TrainingSettings(layer_decay=wrong)


def test_the_linear_schedule_rises_and_falls(folder, monkeypatch):
    rates = []

    def note(self, outputs, batch, index):
        rates.append(self.optimizers().param_groups[0]["lr"])

    monkeypatch.setattr(NeighborModule, "on_train_batch_end", note)
    monkeypatch.setattr(
        "vicinal.estimators.fitting.training_settings",
        lambda settings, seed: TrainingSettings(max_epochs=4, batch_size=10, learning_rate=1e-2, schedule="linear"),
    )
    model(folder, metric="network").fit(*table())  # beside a kernel it ends where it cannot win
    assert len(rates) == 20
    np.testing.assert_allclose(rates[1:], 1e-2 * np.arange(18, -1, -1) / 19, atol=1e-9)
