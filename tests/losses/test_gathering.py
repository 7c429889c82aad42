"""Two processes give the value, the gradient and the bank of one process with the whole batch."""

import socket

import pytest
import torch
import torch.distributed
import torch.multiprocessing

from vicinal.core import entries
from vicinal.losses import CrossBatchBank, EmbeddingLoss

NAMES = [
    (entry.name, "number-relation" in entry.facts)
    for entry in entries("pair_loss")
    if not {"proxies", "proxy-rows"} & entry.facts
]


def batch(number):
    g = torch.Generator().manual_seed(number)
    x = torch.randn(12, 6, generator=g, dtype=torch.float64)
    return x, torch.randint(0, 3, (12,), generator=g)


def train(name, numbers, part, processes):
    """Loss and gradient of a linear encoder in two steps, as data-parallel training takes them, and the bank's ids."""
    weight = torch.linspace(-1, 1, 24, dtype=torch.float64).reshape(6, 4).requires_grad_()
    bank = None if name in ("angular", "triplet_swap") else CrossBatchBank(20, 4).double()
    loss = EmbeddingLoss(name, similarity="l2" if numbers else "cosine", bank=bank, gather=True)
    kept = []
    for step in range(2):
        x, labels = batch(step)
        value = loss(x[part] @ weight, labels[part])
        (slope,) = torch.autograd.grad(value, weight)
        if processes > 1:
            torch.distributed.all_reduce(slope)
        kept += [value.detach(), slope / processes]
    return [*kept, torch.zeros(0) if bank is None else torch.cat([bank.vectors.flatten(), bank.labels])]


def work(rank, port, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    part = slice(6 * rank, 6 * rank + 6)
    results = {name: train(name, numbers, part, 2) for name, numbers in NAMES}
    torch.save(results, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(work, (port, str(folder)), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize(("name", "numbers"), NAMES, ids=[name for name, _ in NAMES])
def test_two_processes_are_one(results, name, numbers):
    want = train(name, numbers, slice(None), 1)
    for rank in range(2):
        torch.testing.assert_close(results[rank][name], want, rtol=1e-9, atol=1e-12)
