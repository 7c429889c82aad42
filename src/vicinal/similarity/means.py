"""Vectors of classes that are made of their rows, to score against."""

import torch
from torch import Tensor

from vicinal.core.checks import check_integer, check_matrices
from vicinal.similarity.products import l2_normalize


def class_means(
    embeddings: Tensor, labels: Tensor, num_classes: int | None = None, *, spherical: bool = False
) -> Tensor:
    r"""The mean of the rows of each class, $c_k = \frac{1}{n_k} \sum_{i: y_i = k} z_i$ (prototypes).

    With ``spherical`` rows are scaled to length 1 first, and the means again: the mean direction on the sphere. The
    gradient flows into the rows.

    Args:
        embeddings: ``[n, d]``, support rows.
        labels: whole numbers ``[n]``, 0 to C - 1.
        num_classes: C >= 2; None: one more than the largest label.
        spherical: use mean directions, of length 1.

    Returns:
        ``[C, d]``, float32 or float64.

    Raises:
        ValueError: for fewer than two classes, a class without a row, a label out of range, or numbers that are not
            finite.

    >>> class_means(torch.tensor([[0.0, 2.0], [4.0, 0.0], [1.0, 1.0]]), torch.tensor([0, 0, 1]))
    tensor([[2., 1.],
            [1., 1.]])
    """
    check_matrices(embeddings, embeddings)
    if labels.shape != (len(embeddings),) or labels.is_floating_point():
        raise ValueError(
            f"labels: expected whole numbers [{len(embeddings)}], got {labels.dtype} of shape {tuple(labels.shape)}"
        )
    if num_classes is None:
        num_classes = int(labels.max()) + 1 if len(labels) else 0
    if num_classes < 2:
        raise ValueError(f"num_classes: expected at least two classes, got {num_classes}")
    check_integer("num_classes", num_classes, 2)
    rows = embeddings.to(torch.promote_types(embeddings.dtype, torch.float32))
    if not bool(rows.isfinite().all()):
        raise ValueError("embeddings: expected finite numbers, got NaN or inf")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < num_classes:
        raise ValueError(f"labels: expected classes 0 to {num_classes - 1}, got {labels.tolist()[:9]}")
    rows = l2_normalize(rows) if spherical else rows
    count = torch.bincount(labels, minlength=num_classes)
    if bool((count == 0).any()):
        raise ValueError(f"labels: expected a row of every class, got none of class {int((count == 0).nonzero()[0])}")
    means = rows.new_zeros(num_classes, rows.shape[1]).index_add(0, labels, rows) / count[:, None]
    return l2_normalize(means) if spherical else means
