"""Samplers that spread rows evenly: groups apart, and numbers from all of their range."""

from typing import Any

import numpy as np

from vicinal.core import check_integer, register
from vicinal.samplers.base import BatchSampler, as_labels, deal, joined, members, pieces


@register(
    "sampler",
    "groups",
    "group-labels",
    "random",
    family="groups and strata",
    verified="counts and coverage, for random groups",
)
class GroupBatches(BatchSampler):
    """Batches with at most ``per_group`` rows of a group.

    Rows of one group (one patient, one house) may not be compared with one another, so a batch full of them teaches
    nothing. Each row comes once an epoch; if some groups are much larger than others the last batches are smaller.

    Args:
        groups: group of each row, ``[n]``.
        batch_size: rows of a batch at most; ``batch_size // per_group`` groups meet.
        per_group: rows of a group in a batch, from 1 to ``batch_size``.
        drop_last: leave out the last batches if they have fewer groups than fit.
        seed: see :class:`vicinal.samplers.BatchSampler`.
        processes: see there.
        process: see there.

    >>> sampler = GroupBatches([7, 7, 8, 8], batch_size=2)
    >>> all({row // 2 for row in batch} == {0, 1} for batch in sampler)
    True
    """

    def __init__(
        self,
        groups: Any,
        *,
        batch_size: int = 32,
        per_group: int = 1,
        drop_last: bool = False,
        seed: int = 0,
        processes: int = 1,
        process: int = 0,
    ) -> None:
        super().__init__(seed=seed, processes=processes, process=process)
        self.members = members(as_labels("groups", groups))
        self.batch_size = check_integer("batch_size", batch_size)
        self.per_group = check_integer("per_group", per_group)
        self.drop_last = drop_last
        if self.per_group > self.batch_size:
            raise ValueError(f"per_group: expected at most {batch_size}, the rows of a batch, got {per_group}")

    def batches(self, random: np.random.Generator) -> list[list[int]]:
        """All batches of an epoch."""
        hands = [pieces(rows, self.per_group, random, fill=False) for rows in self.members]
        dealt = deal(hands, self.batch_size // self.per_group, random, drop_last=self.drop_last)
        return [joined(batch, random) for batch in dealt]


@register(
    "sampler",
    "strata",
    "number-labels",
    "random",
    family="groups and strata",
    verified="counts and coverage, for random targets",
)
class StratumBatches(BatchSampler):
    """Batches that each hold low, middle and high targets: for labels that are numbers.

    Rows are sorted by target and cut into ``strata`` of equal size; each batch gets as many of each stratum, up to one.
    Each row comes once an epoch, and batches differ by at most one row in size.

    Args:
        targets: number of each row, ``[n]``, finite.
        batch_size: rows of a batch at most.
        strata: how many ranges, >= 2; at most ``batch_size`` is sensible.
        seed: see :class:`vicinal.samplers.BatchSampler`.
        processes: see there.
        process: see there.

    Raises:
        ValueError: for a target that is not finite, naming the row.

    >>> sampler = StratumBatches([0.1, 0.2, 5.0, 6.0], batch_size=2, strata=2)
    >>> all({row // 2 for row in batch} == {0, 1} for batch in sampler)
    True
    """

    def __init__(
        self,
        targets: Any,
        *,
        batch_size: int = 32,
        strata: int = 8,
        seed: int = 0,
        processes: int = 1,
        process: int = 0,
    ) -> None:
        super().__init__(seed=seed, processes=processes, process=process)
        values = as_labels("targets", targets).astype(np.float64)
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            raise ValueError(f"targets: expected finite numbers, got {values[bad[0]]} in row {bad[0]}")
        self.batch_size = check_integer("batch_size", batch_size)
        self.strata = np.array_split(values.argsort(kind="stable"), check_integer("strata", strata, 2))
        self.rows = len(values)

    def batches(self, random: np.random.Generator) -> list[list[int]]:
        """All batches of an epoch."""
        number = -(-self.rows // self.batch_size)
        order = np.concatenate([random.permutation(stratum) for stratum in self.strata])
        rounds = [random.permutation(order[start : start + number]) for start in range(0, len(order), number)]
        places = random.permutation(number)  # which batches get a row of the last, shorter round
        filled: list[list[int]] = [[] for _ in range(number)]
        for one in rounds:
            for place, row in zip(places, one.tolist(), strict=False):
                filled[place].append(row)
        return [joined([np.array(batch)], random) for batch in filled if batch]
