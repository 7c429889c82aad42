"""Promises of training: nobody sees itself, runs repeat and resume, the best weights are kept."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from vicinal.heads import NONA, Dense
from vicinal.masks import SoftStep
from vicinal.training import NeighborModule, NeighborNetwork, Rows, TrainingSettings, fit, train
from vicinal.training.error import error_of
from vicinal.training.rows import RowBatches, RowSubset


class Matrix:
    """Rows of numbers as prepared inputs."""

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def select(self, rows):
        return self.values[rows]


def network(seed=0, head=None, width=3):
    torch.manual_seed(seed)
    projector = nn.Sequential(nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, 4))
    return NeighborNetwork(nn.Identity(), projector, head or NONA("l2", SoftStep(4)))


def rows(count=64, seed=0, groups=None):
    values = torch.randn(count, 3, generator=torch.Generator().manual_seed(seed))
    labels = (values[:, 0].tanh() + 1) / 2
    return Rows(Matrix(values), labels, torch.arange(count) + 1000 * seed, groups)


QUICK = TrainingSettings(max_epochs=6, batch_size=16, learning_rate=1e-2, accelerator="cpu")


@pytest.mark.parametrize(("count", "size"), [(2, 32), (33, 32), (48, 32), (63, 32), (500, 32), (7, 7)])
def test_batches_cover_every_row_once_and_none_is_tiny(count, size):
    batches = RowBatches(count, size, seed=3)
    drawn = list(batches)
    assert sorted(row for batch in drawn for row in batch) == list(range(count))
    assert len(drawn) == len(batches)
    assert min(map(len, drawn)) >= min(count, 0.6 * size)
    assert max(map(len, drawn)) <= 1.5 * size


def test_order_depends_on_seed_and_epoch_only():
    batches = RowBatches(50, 8, seed=1)
    first = list(batches)
    batches.set_epoch(1)
    second = list(batches)
    assert first != second
    batches.set_epoch(0)
    assert list(batches) == first
    assert list(RowBatches(50, 8, seed=2)) != first
    assert [row for batch in RowBatches(10, 4, seed=None) for row in batch] == list(range(10))


def test_own_label_has_no_influence_on_own_prediction():
    net, data = network(), rows(12)
    batch = data.select(torch.arange(12))
    embeddings = net.embed(batch["inputs"])
    ids = batch["ids"]
    before = net.head(embeddings, embeddings, batch["labels"], query_ids=ids, bank_ids=ids)
    changed = batch["labels"].clone()
    changed[4] += 100
    after = net.head(embeddings, embeddings, changed, query_ids=ids, bank_ids=ids)
    assert after[4] == before[4]
    assert (after - before).abs().sum() > 1


def test_the_error_of_an_epoch_is_a_mean_over_rows():
    module = NeighborModule(network(), rows(12), QUICK)
    for value, count in ((1.0, 3), (torch.tensor(5.0, dtype=torch.bfloat16), 1)):
        module.tell("train_error", value, count)
    assert module.means() == {"train_error": 2.0}
    assert module.means() == {}


def test_rows_without_neighbors_are_left_out_of_the_loss():
    groups = torch.tensor([0] * 6 + [1])
    data = rows(7, groups=groups)
    module = NeighborModule(network(), data, QUICK)
    assert float(module.training_step(data.select(torch.arange(7)), 0).detach()) > 0
    alone = module.training_step(data.select(torch.arange(6)), 0)
    alone.backward()
    assert float(alone.detach()) == 0
    assert all(p.grad is None or bool((p.grad == 0).all()) for p in module.parameters())


def test_error_of_classes_is_finite_for_a_class_without_neighbors():
    prediction = torch.tensor([[1.0, 0.0]], requires_grad=True)
    loss = error_of(prediction, torch.tensor([[0.0, 1.0]])).sum()
    loss.backward()
    assert loss.isfinite()
    assert prediction.grad.isfinite().all()
    assert error_of(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, 1.0]])) < 1e-3


@pytest.mark.parametrize("head", [None, Dense(4, bias=0.5)])
def test_training_lowers_the_error_and_keeps_the_best_weights(head):
    net, data, held = network(head=head), rows(), rows(30, seed=1)
    history = train(net, data, held, QUICK)
    assert len(history.validation_error) == len(history.train_error) == 6
    assert history.validation_error[history.best_epoch] == min(history.validation_error)
    assert min(history.validation_error) < 0.5 * float((held.labels - data.labels.mean()).square().mean())
    bank = net.embed_all(data.inputs, torch.device("cpu"))
    with torch.no_grad():
        prediction = net.predict(net.embed(held.inputs.values), bank, data.labels)
    assert float(error_of(prediction, held.labels).mean()) == pytest.approx(min(history.validation_error), rel=1e-4)
    assert not net.training


def test_the_weights_are_those_of_the_epoch_of_least_error(monkeypatch):
    found = []
    for errors in ([3.0, 1.0, 2.0, 2.0], [3.0, 1.0]):
        left = iter(errors)
        means = lambda self, left=left: {"train_error": 0.0, "validation_error": next(left)}
        monkeypatch.setattr(NeighborModule, "means", means)
        net, settings = network(), TrainingSettings(**{**vars(QUICK), "max_epochs": len(errors)})
        assert train(net, rows(), rows(30, seed=1), settings).best_epoch == 1
        found.append(net.state_dict())
    for name, value in found[0].items():
        assert torch.equal(value, found[1][name])


def test_moments_end_with_training(monkeypatch):
    made, configured = [], NeighborModule.configure_optimizers
    monkeypatch.setattr(NeighborModule, "configure_optimizers", lambda self: made.append(configured(self)) or made[0])
    train(network(), rows(), rows(seed=1), replace(QUICK, schedule="constant"))
    assert not made[0].state


def test_same_seed_same_weights():
    found = []
    for _ in range(2):
        net = network()
        train(net, rows(), rows(30, seed=1), QUICK)
        found.append(net.state_dict())
    for name, value in found[0].items():
        assert torch.equal(value, found[1][name])


def test_early_stopping_stops():
    settings = TrainingSettings(max_epochs=100, batch_size=16, learning_rate=1e-12, patience=2, accelerator="cpu")
    history = train(network(), rows(), rows(30, seed=1), settings)
    assert len(history.validation_error) < 100


def test_what_cannot_reach_an_error_is_given_up(monkeypatch):
    """Four epochs are needed to tell, and with steps of nearly nothing no error falls."""
    monkeypatch.setattr(fit, "_TRIED", 16)  # four epochs of four steps
    settings = TrainingSettings(max_epochs=12, batch_size=16, learning_rate=1e-12, patience=12, accelerator="cpu")
    counts = [
        len(train(network(), rows(), rows(30, seed=1), settings, reach=reach).validation_error)
        for reach in (0.0, float("inf"))
    ]
    assert counts == [4, 12]
    planned = replace(settings, schedule="linear")  # of a plan two tell
    assert len(train(network(), rows(), rows(30, seed=1), planned, reach=0.0).validation_error) == 2


def test_an_interrupted_run_resumes_to_the_same_end(tmp_path):
    whole = network()
    train(whole, rows(), rows(30, seed=1), QUICK)
    part = TrainingSettings(**{**vars(QUICK), "max_epochs": 3, "folder": tmp_path})
    train(network(), rows(), rows(30, seed=1), part)
    resumed = network(seed=5)
    history = train(resumed, rows(), rows(30, seed=1), TrainingSettings(**{**vars(QUICK), "folder": tmp_path}))
    assert history.resumed_at == 3
    assert len(history.train_error) == 6
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(value, resumed.state_dict()[name], rtol=0, atol=0)


def test_a_torn_checkpoint_is_passed_over(tmp_path, logged):
    settings = TrainingSettings(**{**vars(QUICK), "folder": tmp_path})
    (tmp_path / "last.ckpt").write_bytes(b"half a checkpoint")
    history = train(network(), rows(), rows(30, seed=1), settings)
    assert history.resumed_at is None
    assert "last.ckpt cannot be read" in "\n".join(logged)


KILLED = """
import sys, torch
sys.path[:0] = [{tests!r}, {here!r}]
from test_training import network, rows, TrainingSettings, train
from pathlib import Path
torch.set_num_threads(1)
train(network(), rows(), rows(30, seed=1), TrainingSettings(
    max_epochs=5000, batch_size=16, learning_rate=1e-2, patience=5000, accelerator="cpu", folder=Path({folder!r})))
"""


@pytest.mark.slow
def test_a_killed_run_resumes(tmp_path):
    here = Path(__file__).parent
    code = KILLED.format(tests=str(here.parent), here=str(here), folder=str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 120
    while not (tmp_path / "last.ckpt").is_file() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    process.kill()
    process.wait()
    reached = torch.load(tmp_path / "last.ckpt", weights_only=True)["epoch"] + 1
    settings = TrainingSettings(**{**vars(QUICK), "max_epochs": reached + 2, "folder": tmp_path})
    history = train(network(), rows(), rows(30, seed=1), settings)
    assert history.resumed_at == reached >= 1
    assert len(history.train_error) == reached + 2


def test_bf16_trains(tmp_path):
    settings = TrainingSettings(**{**vars(QUICK), "precision": "bf16-mixed"})
    history = train(network(), rows(), rows(30, seed=1), settings)
    assert all(error == error for error in history.train_error)


def test_a_logger_by_name_writes(tmp_path):
    settings = TrainingSettings(**{**vars(QUICK), "logger": "csv", "folder": tmp_path})
    train(network(), rows(), rows(30, seed=1), settings)
    written = list(tmp_path.rglob("metrics.csv"))
    assert len(written) == 1
    assert "validation_error" in written[0].read_text()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"precision": "8"}, "precision: expected one of"),
        ({"logger": "cvs"}, "did you mean 'csv'?"),
        ({"patience": 0}, "patience: expected a whole number of at least 1"),
        ({"learning_rate": 0.0}, "learning_rate: expected a number between 0 and 1e+06, got 0.0"),
        ({"weight_decay": -1.0}, "weight_decay: expected a number"),
    ],
)
def test_wrong_settings_get_one_sentence(change, sentence):
    with pytest.raises(ValueError, match="expected") as caught:
        TrainingSettings(**change)
    assert sentence in str(caught.value)


def test_subset_selects_by_its_own_positions():
    subset = RowSubset(Matrix(torch.arange(10)), torch.tensor([7, 2, 5]))
    assert subset.select(torch.tensor([2, 0])).tolist() == [5, 7]
    assert len(subset) == 3


def test_threads_are_as_before(monkeypatch):
    used = []
    original = NeighborModule.training_step

    def watch(self, batch, index):
        used.append(torch.get_num_threads())
        return original(self, batch, index)

    monkeypatch.setattr(NeighborModule, "training_step", watch)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        train(network(), rows(), rows(30, seed=1), TrainingSettings(**{**vars(QUICK), "max_epochs": 1}))
        assert set(used) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
