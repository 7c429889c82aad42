"""What callers ask of a head whose kind they do not know: nobody else looks at the class of a head.

Each answer narrows the type, so that what only such heads do can be called behind it.
"""

from typing import TypeGuard

from torch import nn

from vicinal.heads.blend import Blend
from vicinal.heads.comparables import Comparables
from vicinal.heads.dense import Dense
from vicinal.heads.kriging import Kriging
from vicinal.heads.members import Ensemble
from vicinal.heads.nona import NONA


def weighs_locally(head: nn.Module) -> TypeGuard[Kriging]:
    """Whether a head weighs a few nearest rows, has a variance, and reads all members' embeddings as one: kriging."""
    return isinstance(head, Kriging)


def adjusts(head: object) -> TypeGuard[Comparables]:
    """Whether a head adjusts the labels of a few nearest rows by a trend: comparables."""
    return isinstance(head, Comparables)


def blends(head: nn.Module) -> TypeGuard[Blend]:
    """Whether a head is the mean of two local heads, each with a metric of its own."""
    return isinstance(head, Blend)


def attends(head: nn.Module) -> TypeGuard[NONA]:
    """Whether a head weighs all rows of the bank by attention."""
    return isinstance(head, NONA)


def has_members(head: nn.Module) -> TypeGuard[Ensemble]:
    """Whether a head is the mean of several, which read a part of the embeddings each."""
    return isinstance(head, Ensemble)


def member_heads(head: nn.Module) -> list[nn.Module]:
    """The heads that are averaged: the members, or the head alone.

    >>> len(member_heads(NONA())), len(member_heads(Ensemble([NONA(), NONA()])))
    (1, 2)
    """
    return list(head.heads) if isinstance(head, Ensemble) else [head]


def is_linear(head: nn.Module) -> TypeGuard[Dense]:
    """Whether a head is a layer of its own, which reads no bank."""
    return isinstance(head, Dense)
