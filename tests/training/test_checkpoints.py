"""Promises of checkpoints: a run that was stopped and goes on is, bit by bit, the run that was never stopped."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from vicinal.core import files
from vicinal.estimators import NeighborClassifier, NeighborRegressor
from vicinal.training import NeighborModule
from vicinal.training.checkpoints import BEST, LAST, random_states, set_random_states

EPOCHS, BATCHES = 4, 3
SETTINGS = {"max_epochs": EPOCHS, "batch_size": 16, "hidden": (8, 3), "learning_rate": 1e-2, "dropout": 0.3}


class Killed(BaseException):
    """What ends a run here; a kill leaves as little."""


def rows(seed=0, count=60):
    x = np.random.default_rng(seed).normal(size=(count, 3))
    return x, x[:, 0] + 0.3 * np.random.default_rng(seed + 1).normal(size=count)


def fit(patch, folder=None, *, kind=NeighborRegressor, stop=None, **settings):
    """A fitted model; ``stop`` is the step, counted over all epochs of this process, before which it ends."""
    x, y = rows()
    steps, train = [], NeighborModule.training_step

    def step(self, batch, index):
        if len(steps) == stop:
            raise Killed
        steps.append(index)
        return train(self, batch, index)

    with patch.context() as inner:
        inner.setattr(NeighborModule, "training_step", step)
        model = kind(**{"metric": "network", **SETTINGS, **settings}, checkpoint_dir=folder)
        return model.fit(x, y if kind is NeighborRegressor else y > 0)


@pytest.fixture(scope="module")
def whole():
    """The model of a run that was never stopped."""
    with pytest.MonkeyPatch.context() as patch:
        return fit(patch)


def assert_same_model(found, wanted):
    want = wanted.network_.state_dict()
    for name, value in found.network_.state_dict().items():
        assert torch.equal(value, want[name]), name
    assert torch.equal(found.bank_.vectors, wanted.bank_.vectors)
    assert found.history_.train_error == wanted.history_.train_error
    assert found.history_.validation_error == wanted.history_.validation_error
    assert found.history_.best_epoch == wanted.history_.best_epoch


class Noisy(nn.Module):
    """A loss that draws from all sources of random numbers."""

    def __init__(self):
        super().__init__()
        self.own, self.settings = torch.Generator().manual_seed(3), {"generator": np.random.default_rng(4)}

    def forward(self, prediction, labels):
        noise = torch.rand(labels.shape, generator=self.own) + torch.rand(labels.shape)
        noise = noise + self.settings["generator"].random() + random.random() + np.random.rand()
        return ((prediction - labels).square() * noise).mean()


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    "stop", [2 * BATCHES + 1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, BATCHES, 3 * BATCHES))]
)
@pytest.mark.parametrize(
    "settings",
    [
        {"members": 1},
        pytest.param({"members": 8}, marks=pytest.mark.slow),
        pytest.param({"members": 1, "head": "dense"}, marks=pytest.mark.slow),
        {"members": 8, "head": "dense"},
        {"members": 2, "kind": NeighborClassifier, "loss": "0.5*supcon(temperature=0.2)"},
        {"members": 1, "precision": "bf16-mixed"},
    ],
    ids=lambda settings: "-".join(str(getattr(value, "__name__", value)) for value in settings.values()),
)
def test_a_run_that_was_stopped_goes_on_to_the_same_model(tmp_path, monkeypatch, settings, stop):
    whole = fit(monkeypatch, **settings)
    with pytest.raises(Killed):
        fit(monkeypatch, tmp_path, stop=stop, **settings)
    resumed = fit(monkeypatch, tmp_path, **settings)
    assert resumed.history_.resumed_at == (stop // BATCHES or None)
    assert_same_model(resumed, whole)


@pytest.mark.slow
def test_it_may_be_stopped_again_and_again(tmp_path, monkeypatch, whole):
    for epoch in range(1, EPOCHS):
        with pytest.raises(Killed):
            fit(monkeypatch, tmp_path, stop=BATCHES + epoch % 2)
    assert_same_model(fit(monkeypatch, tmp_path), whole)


@pytest.mark.parametrize("stop", [BATCHES, pytest.param(3 * BATCHES - 1, marks=pytest.mark.slow)])
def test_a_loss_with_random_numbers_of_its_own_goes_on_with_them(tmp_path, monkeypatch, stop):
    def begin():
        random.seed(1)
        np.random.seed(2)

    begin()
    whole = fit(monkeypatch, loss=Noisy())
    begin()
    with pytest.raises(Killed):
        fit(monkeypatch, tmp_path, loss=Noisy(), stop=stop)
    assert_same_model(fit(monkeypatch, tmp_path, loss=Noisy()), whole)


def test_checkpoints_are_written_aside_and_renamed_so_that_a_kill_leaves_the_old_or_the_new(tmp_path, monkeypatch):
    class Recording(files.FileLayer):
        def rename(self, source, target):
            torch.load(source, weights_only=False)  # whole before it has the name
            renamed.append(target.name)
            super().rename(source, target)

    renamed = []
    monkeypatch.setattr(files, "layer", Recording())
    with pytest.raises(Killed):
        fit(monkeypatch, tmp_path, stop=2 * BATCHES + 1)
    assert [name for name in renamed if name == LAST] == [LAST] * 2
    assert BEST in renamed
    inside = {path.name: path.stat().st_ino for path in tmp_path.rglob("*.ckpt")}
    assert set(inside) == {BEST, LAST}
    fit(monkeypatch, tmp_path)
    assert [name for name in renamed if name == LAST] == [LAST] * EPOCHS


def test_a_run_that_had_stopped_early_trains_no_further(tmp_path, monkeypatch):
    from lightning.pytorch import Trainer

    settings = {"max_epochs": 60, "patience": 2, "learning_rate": 0.3}
    whole = fit(monkeypatch, **settings)
    assert 3 <= len(whole.history_.train_error) < 60
    train = Trainer.fit

    def train_and_stop(self, *args, **kwargs):
        train(self, *args, **kwargs)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "fit", train_and_stop)
        with pytest.raises(Killed):
            fit(patch, tmp_path, **settings)
    assert_same_model(fit(monkeypatch, tmp_path, stop=0, **settings), whole)


@pytest.mark.sweep(9)
@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("last.ckpt", "cut"),
        ("best.ckpt", "removed"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("last.ckpt", "other content"),
                ("last.ckpt", "removed"),
                ("best.ckpt", "cut"),
                ("best.ckpt", "other content"),
            )
        ),
    ],
)
def test_a_checkpoint_that_cannot_be_read_is_said_and_the_run_starts_anew(
    tmp_path, monkeypatch, logged, whole, name, harm
):
    with pytest.raises(Killed):
        fit(monkeypatch, tmp_path, stop=2 * BATCHES)
    path = tmp_path / name
    if harm == "removed":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:1000] if harm == "cut" else b"other")
    again = fit(monkeypatch, tmp_path)
    assert again.history_.resumed_at is None
    assert_same_model(again, whole)
    assert (name in "\n".join(logged)) == (not (name == "last.ckpt" and harm == "removed"))


def test_checkpoints_may_be_moved_but_those_of_an_older_version_are_not_gone_on_from(
    tmp_path, monkeypatch, logged, whole
):
    with pytest.raises(Killed):
        fit(monkeypatch, tmp_path / "a", stop=2 * BATCHES)
    (tmp_path / "a").rename(tmp_path / "b")
    moved = fit(monkeypatch, tmp_path / "b")
    assert_same_model(moved, whole)
    assert moved.history_.resumed_at == 2
    with pytest.raises(Killed):
        fit(monkeypatch, tmp_path / "c", stop=2 * BATCHES)
    old = torch.load(tmp_path / "c" / "last.ckpt", weights_only=True)
    del old["generators"]
    torch.save(old, tmp_path / "c" / "last.ckpt")
    assert_same_model(fit(monkeypatch, tmp_path / "c"), whole)
    assert "it is of an older version" in "\n".join(logged)


@pytest.mark.slow
def test_the_scaler_of_mixed_precision_is_kept(tmp_path, monkeypatch):
    """float16 needs a GPU to be of use, but its scaler does not."""
    from lightning.pytorch.plugins import MixedPrecision

    from vicinal.training import fit as module

    make, scales = module.Trainer, []

    class Scaled(MixedPrecision):
        def optimizer_step(self, *args, **kwargs):
            scales.append(self.scaler.get_scale())
            return super().optimizer_step(*args, **kwargs)

    def trainer(**settings):
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        settings["plugins"] = [*settings["plugins"], Scaled("16-mixed", "cpu", scaler)]
        return make(**{**settings, "precision": None})

    with monkeypatch.context() as patch:
        patch.setattr(module, "Trainer", trainer)
        whole = fit(patch)
        wanted = list(scales)
        scales.clear()
        with pytest.raises(Killed):
            fit(patch, tmp_path, stop=2 * BATCHES + 1)
        del scales[2 * BATCHES :]
        assert_same_model(fit(patch, tmp_path), whole)
    assert scales == wanted
    assert max(scales) > 8


def test_random_states_come_back():
    criterion = Noisy()
    values = torch.rand(4), torch.rand(4)
    before = random_states(criterion)
    first = [float(criterion(*values)) for _ in range(3)]
    set_random_states(criterion, before)
    assert [float(criterion(*values)) for _ in range(3)] == first


@pytest.mark.parametrize("kind", ["PCG64", "MT19937", "Philox", "SFC64"])
def test_generators_of_every_kind_come_back_from_a_file(tmp_path, kind):
    module = nn.Identity()
    module.generator = np.random.Generator(getattr(np.random, kind)(5))
    module.generator.random(7, dtype=np.float32)  # half a number is left
    torch.save(random_states(module), tmp_path / "states")
    wanted = module.generator.random(9, dtype=np.float32)
    set_random_states(module, torch.load(tmp_path / "states", weights_only=True))
    assert np.array_equal(module.generator.random(9, dtype=np.float32), wanted)
