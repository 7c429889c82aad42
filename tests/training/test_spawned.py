"""Processes that ``train`` starts itself: the same result, errors in one sentence, nobody waits for ever."""

import os
import time
from dataclasses import replace

import pytest
import torch
import torch.distributed
from torch import nn

from processes import run_processes
from vicinal.encoders import Projector
from vicinal.heads import NONA
from vicinal.masks import SoftStep
from vicinal.training import NeighborNetwork, Rows, TrainingSettings, train

pytestmark = pytest.mark.slow

SETTINGS = TrainingSettings(
    max_epochs=3, batch_size=15, learning_rate=1e-2, accelerator="cpu", precision="64-true", timeout=5
)


class Matrix:
    """Rows of numbers as prepared inputs."""

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def select(self, rows):
        return self.values[rows]


class FailsOnSecond(nn.Module):
    """A criterion that refuses its input on the second process."""

    def forward(self, prediction, labels):
        if torch.distributed.get_rank() == 1:
            raise ValueError("labels: expected better ones, got these")
        return (prediction - labels).square().mean()


def rows(count, seed=0):
    values = torch.randn(count, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Rows(Matrix(values), (values[:, 0].tanh() + 1) / 2, torch.arange(count) + 1000 * seed)


def network():
    torch.manual_seed(0)
    return NeighborNetwork(nn.Identity(), Projector(3, (8, 4)), NONA("l2", SoftStep(4))).double()


def test_spawned_processes_train_as_one(tmp_path, capfd):
    one, many = network(), network()
    want = train(one, rows(64), rows(31, 1), SETTINGS)
    got = train(many, rows(64), rows(31, 1), replace(SETTINGS, devices=2, max_epochs=2, folder=tmp_path))
    assert got.resumed_at is None
    got = train(many, rows(64), rows(31, 1), replace(SETTINGS, devices=2, folder=tmp_path))
    assert got.resumed_at == 2
    assert got.best_epoch == want.best_epoch
    assert got.train_error == pytest.approx(want.train_error, rel=1e-5)
    assert got.validation_error == pytest.approx(want.validation_error, rel=1e-5)
    torch.testing.assert_close(many.state_dict(), one.state_dict(), rtol=1e-5, atol=1e-8)
    assert not many.training
    assert capfd.readouterr().err == ""


def test_an_error_of_a_spawned_process_is_raised_as_it_was(capfd):
    with pytest.raises(ValueError, match=r"^labels: expected better ones, got these$"):
        train(network(), rows(64), rows(31, 1), replace(SETTINGS, devices=2), FailsOnSecond())
    assert "MASTER_PORT" not in os.environ


def fail(rank):
    """What each process says if the second fails."""
    os.environ |= {"LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "0"}
    try:
        train(network(), rows(64), rows(31, 1), replace(SETTINGS, devices="auto"), FailsOnSecond())
    except (RuntimeError, ValueError) as error:
        return list(f"{type(error).__name__}: {error}".encode())
    return list(b"nothing")


def test_a_process_does_not_wait_for_ever_for_one_that_failed(tmp_path):
    before = time.monotonic()
    first, second = run_processes(fail, 2, tmp_path, timeout=5)
    assert bytes(second).startswith(b"ValueError: labels: expected better ones")
    assert bytes(first).startswith(b"RuntimeError: ")
    assert time.monotonic() - before < 120


def test_another_number_of_processes_than_were_started_is_refused(monkeypatch):
    for name, value in {"LOCAL_RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=r"^devices: expected 'auto' or the 4 that were started here, got 3$"):
        train(network(), rows(64), rows(31, 1), replace(SETTINGS, devices=3))
