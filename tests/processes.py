"""Runs a function in several processes that are joined by gloo, forked from one that has the library imported."""

from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed
import torch.multiprocessing

from faults.warm import warm_up


def run_processes(work, count, folder, *args, timeout=60):
    """What ``work(rank, *args)`` returns in each of ``count`` processes, by rank: tensors, in lists and dictionaries.

    A process that fails ends them all; one that
    waits in vain for another fails after ``timeout`` seconds.
    """
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    warm_up()
    torch.multiprocessing.start_processes(
        _start, (count, str(folder), timeout, work, args), nprocs=count, start_method="forkserver"
    )
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(count)]


def _start(rank, count, folder, timeout, work, args):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=count,
        timeout=timedelta(seconds=timeout),
    )
    torch.save(work(rank, *args), f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()
