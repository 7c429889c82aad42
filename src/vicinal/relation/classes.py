"""Relations of things that are of classes, of several classes at once, or of groups."""

from typing import Literal

import torch
from torch import Tensor

from vicinal.core import check_choice
from vicinal.relation.checks import as_relation, check_blocks, check_whole


def same_class(labels: Tensor, bank_labels: Tensor) -> Tensor:
    r"""$r_{ij} = 1$ if both are of one class, else 0.

    Args:
        labels: whole numbers ``[b]``.
        bank_labels: whole numbers ``[N]``.

    Returns:
        ``[b, N]``, 0 or 1.

    Raises:
        TypeError: for labels that are not whole numbers.
        ValueError: for other shapes.

    >>> same_class(torch.tensor([0, 1]), torch.tensor([1, 1, 0]))
    tensor([[0., 0., 1.],
            [1., 1., 0.]])
    """
    check_blocks("labels", labels, bank_labels, (1,))
    check_whole("labels", labels)
    check_whole("bank_labels", bank_labels)
    return as_relation(labels[:, None] == bank_labels)


def shared_labels(labels: Tensor, bank_labels: Tensor, kind: Literal["any", "jaccard"] = "any") -> Tensor:
    r"""How many labels two things of several labels share.

    "any" is 1 if they share one; "jaccard" is $|A \cap B| / |A \cup B|$, and 0 for two things without labels.

    Args:
        labels: 0 or 1 (or booleans) ``[b, C]``, a column for each label.
        bank_labels: likewise ``[N, C]``.
        kind: "any" or "jaccard".

    Returns:
        ``[b, N]`` in [0, 1].

    >>> tagged = torch.tensor([[1, 1, 0], [0, 1, 1], [0, 0, 0]])
    >>> shared_labels(tagged, tagged, "jaccard")
    tensor([[1.0000, 0.3333, 0.0000],
            [0.3333, 1.0000, 0.0000],
            [0.0000, 0.0000, 0.0000]])
    """
    check_choice("kind", kind, ("any", "jaccard"))
    check_blocks("labels", labels, bank_labels, (2,))
    dtype = torch.get_default_dtype()  # counts of labels are exact in float32 up to 16 million labels
    mine, theirs = labels.to(dtype), bank_labels.to(dtype)
    common = mine @ theirs.T  # [b, N]
    if kind == "any":
        return as_relation(common > 0)
    union = mine.sum(dim=-1)[:, None] + theirs.sum(dim=-1) - common
    return torch.where(union > 0, common / torch.where(union > 0, union, 1.0), 0.0)
