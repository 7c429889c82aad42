"""The processes that train together: how many there are, what starts them, and how each begins."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

from vicinal.core import short
from vicinal.core.gathering import process_count, process_rank
from vicinal.training.quiet import silence
from vicinal.training.settings import TrainingSettings


@dataclass(frozen=True)
class Processes:
    """Processes that train together.

    Attributes:
        devices: processes on this machine.
        nodes: number of machines.
        started: whether a launcher such as torchrun has started them all.
    """

    devices: int = 1
    nodes: int = 1
    started: bool = False

    @property
    def count(self) -> int:
        """Number of processes on all machines."""
        return self.devices * self.nodes


def processes_of(settings: TrainingSettings) -> Processes:
    """The processes that ``settings`` ask for.

    Raises:
        ValueError: if torchrun has started a different number of them on this machine.
    """
    if settings.devices == 1:
        return Processes()
    if "LOCAL_RANK" not in os.environ:
        devices = settings.devices
        if isinstance(devices, str):
            on_gpus = settings.accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()
            devices = torch.cuda.device_count() if on_gpus else 1
        return Processes(devices)
    started = torch.distributed.is_available() and torch.distributed.is_initialized()
    world = process_count() if started else int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    if settings.devices not in ("auto", local):
        raise ValueError(
            f"devices: expected 'auto' or the {local} that were started here, got {short(settings.devices)}"
        )
    return Processes(local, world // local, started=world > 1)


class SpawnedOrStarted(DDPStrategy):
    """Lightning's data-parallel training, in processes that are spawned here unless they were started already.

    Args:
        processes: that train together.
        timeout: seconds that a process waits for another before it fails.
    """

    def __init__(self, processes: Processes, timeout: float) -> None:
        spawned: dict[str, Any] = {"start_method": "spawn", "cluster_environment": LightningEnvironment()}
        super().__init__(
            timeout=timedelta(seconds=timeout),
            broadcast_buffers=False,
            **({} if processes.started else spawned),
        )
        self._spawned, self._threads = not processes.started, max(1, torch.get_num_threads() // processes.devices)

    def setup_environment(self) -> None:
        """Silence Lightning and limit the threads of a spawned process, then set up."""
        if self._spawned:
            silence()
            torch.set_num_threads(self._threads)
        super().setup_environment()


@contextmanager
def errors_of_processes() -> Iterator[None]:
    """Raise a ValueError or TypeError of a spawned process here.

    Afterwards ``MASTER_PORT`` is unset, unless it was set before.
    """
    port = os.environ.get("MASTER_PORT")
    try:
        yield
    except ProcessRaisedException as raised:
        kind, _, sentence = str(raised).strip().rpartition("\n")[2].partition(": ")
        for known in (ValueError, TypeError):
            if kind == known.__name__:
                raise known(sentence) from raised
        raise
    except ProcessExitedException as ended:
        raise ValueError(
            f"devices: expected processes that run to their end, got: {ended}; what it printed says why, if memory "
            "was not what lacked"
        ) from ended
    except (AttributeError, TypeError, ValueError) as wrong:
        if "pickle" not in str(wrong):
            raise
        raise ValueError(
            f"devices: expected 1, or parts that can be sent to other processes, got: {wrong}; define them at the top "
            "of a module, or start the processes with torchrun"
        ) from wrong
    finally:
        if port is None:
            os.environ.pop("MASTER_PORT", None)


@torch.no_grad()
def share_weights(network: nn.Module, epoch: int) -> int:
    """Send the weights and the ``epoch`` of the first process to all others; returns that epoch."""
    if process_count() == 1:
        return epoch
    device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
    number = torch.tensor(epoch, device=device)
    torch.distributed.broadcast(number, 0)
    for value in network.state_dict().values():
        if isinstance(value, Tensor):
            sent = value.to(device)
            torch.distributed.broadcast(sent, 0)
            value.copy_(sent)
    return int(number)


def part_of(values: Tensor) -> Tensor:
    """This process's part of ``values [n]``; parts differ in length by at most 1.

    >>> part_of(torch.arange(3))
    tensor([0, 1, 2])
    """
    return values.tensor_split(process_count())[process_rank()]
