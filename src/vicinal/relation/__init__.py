"""How truly related things are: ``[b, N]`` from the labels of a block of queries and a block of bank rows.

Every function looks only at the two blocks it is given, so a large relation can be made block by block. Whether a pair
counts at all, as opposed to how related it is, is a *weight*: see :func:`other_rows`.
"""

from vicinal.relation.classes import same_class, shared_labels
from vicinal.relation.numbers import label_distance
from vicinal.relation.pairs import from_pairs, graded

__all__ = [
    "from_pairs",
    "graded",
    "label_distance",
    "same_class",
    "shared_labels",
]
