"""Samplers of batches with several rows of each class."""

from typing import Any

import numpy as np

from vicinal.core import check_integer, register
from vicinal.samplers.base import BatchSampler, Rows, as_labels, deal, joined, members, pieces


@register(
    "sampler", "classes", "class-labels", "random", family="classes", verified="counts and coverage, for random labels"
)
class ClassBatches(BatchSampler):
    """Batches of ``classes`` different classes with ``per_class`` rows each.

    An epoch goes over all rows: rows of a class are cut into pieces of ``per_class``, and the last piece is completed
    with other rows of the class. A class with fewer rows gives all it has, never a row twice. Which classes meet is
    random; large classes come more often, as they have more pieces.

    Args:
        labels: class of each row, ``[n]``.
        classes: classes in a batch, >= 2.
        per_class: rows of a class in a batch, >= 2.
        drop_last: leave out the last batches if they have fewer classes than asked for.
        seed: see :class:`vicinal.samplers.BatchSampler`.
        processes: see there.
        process: see there.

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
        seed: int = 0,
        processes: int = 1,
        process: int = 0,
    ) -> None:
        super().__init__(seed=seed, processes=processes, process=process)
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


@register(
    "sampler",
    "hierarchical",
    "class-labels",
    "random",
    family="classes",
    verified="counts and coverage, for random labels",
)
class HierarchicalBatches(BatchSampler):
    """Batches whose classes come from few super-classes, so that unrelated rows are hard to tell apart.

    Args:
        labels: class of each row, ``[n]``.
        parents: super-class of each row, ``[n]``; all rows of a class have the same.
        parents_per_batch: super-classes in a batch.
        classes: classes of each of them in a batch, >= 2; fewer if the super-class has fewer.
        per_class: rows of a class in a batch, >= 2; see :class:`ClassBatches` for classes that fall short.
        seed: see :class:`vicinal.samplers.BatchSampler`.
        processes: see there.
        process: see there.

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
        seed: int = 0,
        processes: int = 1,
        process: int = 0,
    ) -> None:
        super().__init__(seed=seed, processes=processes, process=process)
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
