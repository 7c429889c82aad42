"""torch's global state around a fit: its one random generator, its default dtype, and the modes of the caller.

Weights, dropout and Lightning draw from the generator of the process, which takes no other. So fits take turns: each
has the generator for itself, from its seed on, and hands it back as it was. Only a thread outside vicinal that draws
from torch's global generator while a fit runs can still disturb a seed.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from vicinal.core.threads import one_thread

_turn = threading.RLock()
_borrowed = False
"""Whether a fit has changed the default dtype of the process, and will set it back."""


def _renew() -> None:
    """A forked process has no thread that could hand the generator back."""
    global _turn, _borrowed
    _turn, _borrowed = threading.RLock(), False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


@contextmanager
def usual_settings() -> Iterator[None]:
    """Inside, torch is as it starts: float32, gradients on, no inference mode or autocast, new tensors on the CPU.

    It has one thread, as BLAS has: blocks fit a cache, so that few steps are worth sharing, and these ask for
    :func:`vicinal.core.threads.all_threads`. Modes belong to a thread, but the default dtype to the process: a caller
    who changed it waits for his turn.

    >>> torch.set_default_dtype(torch.float64)
    >>> with torch.no_grad(), usual_settings():
    ...     torch.zeros(1).dtype, torch.is_grad_enabled()
    (torch.float32, True)
    >>> torch.get_default_dtype()
    torch.float64
    >>> torch.set_default_dtype(torch.float32)
    """
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))  # noqa: FBT003 torch's signature
        stack.enter_context(torch.enable_grad())
        if torch.is_autocast_enabled("cpu"):
            stack.enter_context(torch.autocast("cpu", enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        if _borrowed or torch.get_default_dtype() != torch.float32:
            stack.enter_context(_turn)
            stack.enter_context(_float32())
        stack.enter_context(one_thread())
        yield


@contextmanager
def _float32() -> Iterator[None]:
    global _borrowed
    before, borrowed = torch.get_default_dtype(), _borrowed
    _borrowed = True
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
        _borrowed = borrowed


@contextmanager
def seeded(seed: int | None = None) -> Iterator[None]:
    """Inside, torch's generators start from ``seed`` and belong to this thread alone; afterwards they are as before.

    Args:
        seed: None: they go on from where they are.

    >>> def draw(seed: int) -> float:
    ...     with seeded(seed):
    ...         return float(torch.rand(()))
    >>> draw(3) == draw(3), draw(3) == draw(4)
    (True, False)
    """
    with _turn, usual_settings(), torch.random.fork_rng():
        if seed is not None:
            torch.manual_seed(seed)
        yield
