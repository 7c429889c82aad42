"""Processes that train together do what one process with the whole batch does."""

import os
from itertools import chain
from pathlib import Path

import pytest
import torch
import torch.distributed
from torch import nn

from processes import run_processes
from vicinal.encoders import Projector
from vicinal.encoders.cnn import RealNorm
from vicinal.heads import NONA, Dense
from vicinal.losses import EmbeddingLoss
from vicinal.masks import SoftStep, TopK
from vicinal.training import NeighborModule, NeighborNetwork, Rows, TrainingSettings, train
from vicinal.training.added import AddedLosses
from vicinal.training.checkpoints import WholeCheckpoints
from vicinal.training.normalizing import separate, synchronize
from vicinal.training.rows import RowBatches

pytestmark = pytest.mark.sweep(3)

HEADS = {
    "nona": lambda: NONA("l2"),
    "s1": lambda: NONA("cosine", SoftStep(4, "s1")),
    "s2": lambda: NONA("l2", SoftStep(4, extent="all")),
    "topk": lambda: NONA("dot", TopK(2), "entmax15"),
    "streamed": lambda: NONA("l2", SoftStep(4, parameters="global"), chunk_size=3),
    "dense": lambda: Dense(4),
}
SETTINGS = TrainingSettings(
    max_epochs=4, batch_size=15, learning_rate=1e-2, accelerator="cpu", precision="64-true", timeout=20
)


class Matrix:
    """Rows of numbers as prepared inputs."""

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def select(self, rows):
        return self.values[rows]


class Worst(nn.Module):
    """A criterion that is no mean over rows."""

    def forward(self, prediction, labels):
        return (prediction - labels).square().sum().sqrt() + (prediction - labels).abs().max()


def numbers(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rows(count, seed=0, groups=None):
    values = numbers(seed, count, 3)
    return Rows(Matrix(values), (values[:, 0].tanh() + 1) / 2, torch.arange(count) + 1000 * seed, groups)


def network(head="s2"):
    torch.manual_seed(0)
    return NeighborNetwork(nn.Identity(), Projector(3, (8, 4)), HEADS[head]()).double()


def cut(values, rank):
    """Uneven parts of two processes; a single process takes all."""
    return values if rank is None else (values[:8] if rank == 0 else values[8:])


def norms(rank):
    """Values, gradients and statistics of batch norms in two steps, of one and of two dimensions."""
    found = []
    for norm, shape in ((nn.BatchNorm1d(3), (13, 3)), (nn.BatchNorm1d(3, momentum=None), (13, 3)),
                        (nn.BatchNorm1d(3, affine=False, track_running_stats=False), (13, 3)),
                        (nn.BatchNorm2d(3), (13, 3, 2, 5)), (RealNorm(3), (13, 3, 2, 5))):  # fmt: skip
        norm = norm.double()
        if rank is not None:
            synchronize(norm)
        with torch.no_grad():
            for number, parameter in enumerate(norm.parameters()):
                parameter.copy_(numbers(number, 3))
        for step in range(2):
            whole = 5 + numbers(step, *shape)
            x = cut(whole, rank).clone().requires_grad_()
            real = [cut(torch.arange(26).view(13, 2) % 5 > 0, rank)] if isinstance(norm, RealNorm) else []
            value = norm(x, *real)
            of_all = torch.autograd.grad((value.sin() * cut(whole, rank)).sum(), [x, *norm.parameters()])
            of_parameters = [g.clone() for g in of_all[1:]]
            for gradient in of_parameters if rank is not None else ():
                torch.distributed.all_reduce(gradient)
            found.append([value.detach(), of_all[0], *of_parameters, *(b.clone().double() for b in norm.buffers())])
        norm.eval()
        found.append([norm(whole).detach()])
        separate(norm)
        assert not isinstance(norm, nn.SyncBatchNorm)
        assert type(norm) in (nn.BatchNorm1d, nn.BatchNorm2d, RealNorm)
    return found


STEPS = [(head, criterion, groups) for head in HEADS for criterion, groups in (("mean", "none"), ("worst", "lonely"))]
STEPS += [("s2", "added", "some"), ("s2", "mean", "nobody"), ("nona", "classes", "none")]


def step(rank, head, criterion, groups):
    """Loss of a batch, and its gradients as data-parallel training takes them."""
    net = network(head)
    if rank is not None:
        synchronize(net)
    groups = {
        "none": None,
        "some": torch.arange(13) % 4,
        "lonely": torch.tensor([1, 2, 3, 1, 2, 3, 4, 4] + [0] * 5),  # one query of the first process sees the second
        "nobody": torch.zeros(13, dtype=torch.int64),
    }[groups]
    data = rows(13, groups=groups)
    if criterion == "classes":
        data = Rows(data.inputs, torch.eye(3, dtype=torch.float64)[torch.arange(13) % 3], data.ids)
    added = AddedLosses([(0.5, EmbeddingLoss("supcon", relation=lambda a, b: (a > 0.5)[:, None] == (b > 0.5)))])
    module = NeighborModule(
        net, data, SETTINGS, Worst() if criterion == "worst" else None, added if criterion == "added" else None
    )
    module.together = rank is not None
    loss = module.training_step(data.select(cut(torch.arange(13), rank)), 0)
    loss.backward()
    found = []
    for parameter in net.parameters():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        if rank is not None:
            torch.distributed.all_reduce(gradient)
            gradient /= 2
        found.append(gradient)
    return [loss.detach(), *found]


def trained(folder, **changes):
    """Weights, both curves, the best epoch, where it was taken up, and the files of a run."""
    net = network()
    settings = TrainingSettings(**{**vars(SETTINGS), **changes, "folder": folder})
    history = train(net, rows(64), rows(31, seed=1), settings)
    curves = torch.tensor([history.train_error, history.validation_error], dtype=torch.float64)
    assert not any("Synchronized" in type(module).__name__ for module in net.modules())
    return {
        "weights": net.state_dict(),
        "curves": curves,
        "best": [history.best_epoch, history.resumed_at],
        "files": sorted(path.name for path in folder.iterdir()) if folder.is_dir() else [],
    }


RUNS = {
    "whole": [{}],
    "resumed": [{"max_epochs": 2}, {}],
    "stopped": [{"max_epochs": 60, "learning_rate": 0.3, "patience": 2}],
}


def runs(names, folder, **changes):
    found = {}
    for name in names:
        for part in RUNS[name]:
            found[name] = trained(folder / name, **part, **changes)
    return found


def work(rank, folder, steps, names):
    """Everything that two processes are asked, in one start; ``train`` finds them as torchrun leaves them."""
    os.environ |= {"LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "0"}
    folder, written = Path(folder), []
    original = WholeCheckpoints.save_checkpoint

    def save(*args, **settings):
        written.append(1)
        return original(*args, **settings)

    WholeCheckpoints.save_checkpoint = save
    return {
        "norms": norms(rank),
        "steps": {"/".join(case): step(rank, *case) for case in steps},
        "runs": runs(names, folder, devices=2),
        "written": len(written),
        "alone": trained(folder / "alone", max_epochs=1, devices=1) if rank == 0 else {},
    }


@pytest.fixture(scope="module")
def two(request, tmp_path_factory):
    """What two processes find for the cases that are run, and for the whole run."""
    own = [item for item in request.session.items if item.path == request.path]
    cases = [item.callspec.params for item in own if hasattr(item, "callspec")]
    steps = [case["case"] for case in cases if "case" in case]
    names = {"whole", *(case["name"] for case in cases if "name" in case)}
    folder = str(tmp_path_factory.mktemp("runs"))
    return run_processes(work, 2, tmp_path_factory.mktemp("two"), folder, steps, sorted(names), timeout=20)


def assert_near(got, want):
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("processes", [2, 3, 4])
@pytest.mark.parametrize(("count", "size", "seed"), [(70, 32, 0), (64, 15, 3), (9, 32, 1), (513, 256, None)])
def test_parts_of_a_batch_are_the_batch(monkeypatch, count, size, seed, processes):
    whole = RowBatches(count, size, seed)
    parts = [RowBatches(count, size, seed, processes) for _ in range(processes)]
    for epoch in range(2):
        for one in (whole, *parts):
            one.set_epoch(epoch)
        drawn = []
        for process, part in enumerate(parts):
            monkeypatch.setattr("vicinal.training.rows.process_rank", lambda process=process: process)
            drawn.append(list(part))
        joined = [list(chain(*pieces)) for pieces in zip(*drawn, strict=True)]
        sizes = [[len(piece) for piece in pieces] for pieces in zip(*drawn, strict=True)]
        assert all(max(of) - min(of) <= 1 and min(of) >= 1 for of in sizes)
        assert all(len(part) == len(drawn[0]) for part in parts)
        if seed is not None:
            assert joined == list(whole)
        assert sorted(chain(*joined)) == list(range(count))


def test_more_processes_than_rows_are_refused():
    with pytest.raises(ValueError, match=r"^devices: expected at most one for each row of a batch, got 3 for batches"):
        RowBatches(10, 2, 0, processes=3)


@pytest.mark.slow
def test_batch_norm_is_that_of_the_whole_batch(two):
    for number, want in enumerate(norms(None)):
        first, second = (result["norms"][number] for result in two)
        if len(want) == 1:
            assert_near(first, want)
            continue
        for place, value in enumerate(want):
            got = torch.cat([first[place], second[place]]) if place < 2 else first[place]
            assert_near(got, value)
            assert place < 2 or torch.equal(first[place], second[place])


@pytest.mark.parametrize("case", STEPS, ids="/".join)
def test_a_step_has_the_loss_and_the_gradient_of_the_whole_batch(two, case):
    want = step(None, *case)
    for result in two:
        assert_near(result["steps"]["/".join(case)], want)


@pytest.mark.parametrize("name", RUNS)
def test_training_is_that_of_one_process(two, name, tmp_path):
    for part in RUNS[name]:
        want = trained(tmp_path / name, **part)
    for result in two:
        got = result["runs"][name]
        torch.testing.assert_close(got["curves"], want["curves"], rtol=1e-5, atol=1e-9)  # Lightning's mean is float32
        torch.testing.assert_close(got["weights"], want["weights"], rtol=1e-5, atol=1e-8)
    first, second = (result["runs"][name] for result in two)
    assert first["best"][0] == second["best"][0] == want["best"][0]
    assert first["curves"].shape == second["curves"].shape
    assert first["best"][1] == want["best"][1]
    for key, value in first["weights"].items():
        assert torch.equal(value, second["weights"][key])


def test_only_the_first_process_writes(two):
    assert two[0]["runs"]["whole"]["files"] == ["best.ckpt", "last.ckpt"]
    assert two[0]["written"] > 0
    assert two[1]["written"] == 0


def test_one_device_is_one_process_among_others(two):
    assert two[0]["alone"]["curves"].shape == (2, 1)
