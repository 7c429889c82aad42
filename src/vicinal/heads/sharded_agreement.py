"""Before processes compute together: that all were asked the same, and that none has refused its part."""

import zlib
from collections.abc import Callable, Iterable, Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from vicinal.core import process_count, process_rank
from vicinal.core.gathering import Group
from vicinal.heads.sharded_combining import Traffic


def bits_of(values: Iterable[Tensor | None]) -> int:
    """A number in [0, 2^31) that depends on every bit of the tensors; equal on all machines.

    >>> bits_of([torch.tensor([1.0, 2.0])]) == bits_of([torch.tensor([1.0, 2.5])])
    False
    """
    total = 17
    for value in values:
        if value is None:
            continue
        value = value if value.is_floating_point() else value.long()
        raw = value.detach().contiguous().flatten().view(torch.int16).long()
        places = torch.arange(len(raw), device=raw.device) % 65_521 + 1
        total = (31 * total + int((raw * places).sum())) % 2_147_483_647
    return total


def agree(
    check: Callable[[], None], facts: Callable[[], Mapping[str, object]], rows: int, group: Group, traffic: Traffic
) -> list[int]:
    """Run ``check`` on all processes and compare their ``facts``.

    Args:
        check: raises ValueError or TypeError for wrong input of this process.
        facts: what must be equal on all processes, by the names that error messages give it, in a fixed order; asked
            for after the check.
        rows: bank rows of this process.
        group: of processes; None: all.
        traffic: told what is sent.

    Returns:
        rows of each process.

    Raises:
        ValueError: on all processes, if a check failed on one of them or a fact differs.
        TypeError: on a process whose check raises it.
    """
    names: list[str] = []
    wrong: Exception | None = None
    codes = []
    try:
        check()
        found = facts()
        names, codes = list(found), [zlib.crc32(repr(value).encode()) for value in found.values()]
    except (TypeError, ValueError) as error:
        wrong = error
    answers = _everywhere([int(wrong is not None), rows], group, traffic)
    refused = [rank for rank, answer in enumerate(answers) if answer[0]]
    if wrong is not None:
        raise wrong
    if refused:
        raise ValueError(f"bank: expected all processes to accept their part, got an error on process {refused[0]}")
    for rank, theirs in enumerate(_everywhere(codes, group, traffic)):
        for name, here, there in zip(names, codes, theirs, strict=True):
            if here != there:
                raise ValueError(
                    f"{name}: expected the same on all processes, got another on process {rank} than on "
                    f"{process_rank(group)}"
                )
    return [answer[1] for answer in answers]


def _everywhere(numbers: list[int], group: Group, traffic: Traffic) -> list[list[int]]:
    """The ``numbers`` of each process."""
    device = "cuda" if dist.get_backend(group) == "nccl" else "cpu"
    own = torch.tensor(numbers, dtype=torch.int64, device=device)
    traffic.add(own)
    parts = [torch.empty_like(own) for _ in range(process_count(group))]
    dist.all_gather(parts, own, group=group)
    return [part.tolist() for part in parts]
