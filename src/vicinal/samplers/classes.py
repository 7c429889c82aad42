"""Batches by class, by group and by stratum."""

from typing import Any, Unpack

import numpy as np

from vicinal.core import register
from vicinal.core.checks import check_integer
from vicinal.samplers.base import BatchSampler, EpochOrder, Rows, as_labels, deal, joined, members, pieces

_COUNTED = "counts and coverage, for random"


@register("sampler", "classes", "class-labels", "random", family="classes", verified=f"{_COUNTED} labels")
class ClassBatches(BatchSampler):
    """Batches of ``classes`` different classes with ``per_class`` rows each.

    The rows of a class are cut into pieces of ``per_class``, the last one completed with other rows of the class; a
    class with fewer rows gives all it has, never a row twice. Batches combine pieces of random classes, large ones more
    often. Without ``drop_last`` an epoch goes over all rows.

    Args:
        labels: class of each row, ``[n]``.
        classes: classes in a batch, >= 2.
        per_class: rows of a class in a batch, >= 2.
        drop_last: leave out the last batches if they have fewer than ``classes`` classes.
        order: ``seed``, ``processes`` and ``process``, see :class:`vicinal.samplers.BatchSampler`.

    Raises:
        ValueError: if there are fewer classes than a batch needs.

    >>> sampler = ClassBatches([0, 0, 0, 1, 1, 1, 2, 2, 2], classes=3, per_class=3)
    >>> [sorted(batch) for batch in sampler]
    [[0, 1, 2, 3, 4, 5, 6, 7, 8]]
    """

    def __init__(
        self,
        labels: Any,
        *,
        classes: int = 8,
        per_class: int = 4,
        drop_last: bool = True,
        **order: Unpack[EpochOrder],
    ) -> None:
        super().__init__(**order)
        self.members = members(as_labels("labels", labels))
        self.classes = check_integer("classes", classes, 2)
        self.per_class = check_integer("per_class", per_class, 2)
        self.drop_last = drop_last
        if len(self.members) < self.classes:
            raise ValueError(f"classes: expected at most {len(self.members)}, as many as there are, got {classes}")

    def batches(self, random: np.random.Generator) -> list[list[int]]:
        """All batches of an epoch."""
        hands = [pieces(rows, self.per_class, random, fill=True) for rows in self.members]
        dealt = deal(hands, self.classes, random, drop_last=self.drop_last)
        return [joined(batch, random) for batch in dealt]


@register("sampler", "hierarchical", "class-labels", "random", family="classes", verified=f"{_COUNTED} labels")
class HierarchicalBatches(BatchSampler):
    """Batches whose classes come from few super-classes, so that unrelated rows are hard to tell apart.

    Args:
        labels: class of each row, ``[n]``.
        parents: super-class of each row, ``[n]``; all rows of a class have the same.
        parents_per_batch: super-classes in a batch.
        classes: classes of each of them in a batch, >= 2; fewer if the super-class has fewer.
        per_class: rows of a class in a batch, >= 2; see :class:`ClassBatches` for smaller classes.
        order: ``seed``, ``processes`` and ``process``, see :class:`vicinal.samplers.BatchSampler`.

    Raises:
        ValueError: if a class has rows of two super-classes, or there are fewer super-classes than a batch needs.

    >>> sampler = HierarchicalBatches([0, 0, 1, 1, 2, 2, 3, 3], [0, 0, 0, 0, 1, 1, 1, 1], classes=2, per_class=2)
    >>> sorted(sorted(batch) for batch in sampler)
    [[0, 1, 2, 3], [4, 5, 6, 7]]
    """

    def __init__(
        self,
        labels: Any,
        parents: Any,
        *,
        parents_per_batch: int = 1,
        classes: int = 8,
        per_class: int = 4,
        **order: Unpack[EpochOrder],
    ) -> None:
        super().__init__(**order)
        kinds, above = as_labels("labels", labels), as_labels("parents", parents)
        if len(kinds) != len(above):
            raise ValueError(f"parents: expected {len(kinds)}, one for each row, got {len(above)}")
        self.parents_per_batch = check_integer("parents_per_batch", parents_per_batch)
        self.classes = check_integer("classes", classes, 2)
        self.per_class = check_integer("per_class", per_class, 2)
        families: dict[Any, list[Rows]] = {}
        for rows in members(kinds):
            of_class = np.unique(above[rows])
            if len(of_class) > 1:
                raise ValueError(
                    f"parents: expected one for class {kinds[rows[0]]}, got {of_class[0]} and {of_class[1]}"
                )
            families.setdefault(of_class[0], []).append(rows)
        self.families = list(families.values())
        if len(self.families) < self.parents_per_batch:
            raise ValueError(f"parents_per_batch: expected at most {len(self.families)}, got {parents_per_batch}")

    def batches(self, random: np.random.Generator) -> list[list[int]]:
        """All batches of an epoch; the last ones may hold fewer super-classes or classes."""
        hands = []
        for family in self.families:
            cut = [pieces(rows, self.per_class, random, fill=True) for rows in family]
            hands.append([np.concatenate(part) for part in deal(cut, self.classes, random, drop_last=False)])
        dealt = deal(hands, self.parents_per_batch, random, drop_last=False)
        return [joined(batch, random) for batch in dealt]


@register("sampler", "groups", "group-labels", "random", family="groups and strata", verified=f"{_COUNTED} groups")
class GroupBatches(BatchSampler):
    """Batches with at most ``per_group`` rows of a group.

    Rows of one group (one patient, one house) may not be compared with each other, so a batch full of them teaches
    nothing. Without ``drop_last`` each row comes once an epoch; if some groups are much larger than others, the last
    batches are smaller.

    Args:
        groups: group of each row, ``[n]``.
        batch_size: most rows of a batch, which holds ``batch_size // per_group`` groups.
        per_group: most rows of a group in a batch, from 1 to ``batch_size``.
        drop_last: leave out the last batches if they have fewer groups.
        order: ``seed``, ``processes`` and ``process``, see :class:`vicinal.samplers.BatchSampler`.

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
        **order: Unpack[EpochOrder],
    ) -> None:
        super().__init__(**order)
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


@register("sampler", "strata", "number-labels", "random", family="groups and strata", verified=f"{_COUNTED} targets")
class StratumBatches(BatchSampler):
    """Batches that each hold low, middle and high targets, for labels that are numbers.

    Rows are sorted by target and cut into ``strata`` of equal size; each batch gets about as many of each stratum. Each
    row comes once an epoch, and batches differ by at most one row in size.

    Args:
        targets: target of each row, ``[n]``, finite.
        batch_size: most rows of a batch.
        strata: number of ranges, >= 2; at most ``batch_size`` is sensible.
        order: ``seed``, ``processes`` and ``process``, see :class:`vicinal.samplers.BatchSampler`.

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
        **order: Unpack[EpochOrder],
    ) -> None:
        super().__init__(**order)
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
