"""Regularizers of embeddings, to be added to a loss: ``f(embeddings, ...) -> []``."""

import math

import torch
from torch import Tensor

from vicinal.core import check_between, check_matrices, register


def _wide(embeddings: Tensor) -> Tensor:
    check_matrices(embeddings, embeddings)
    return embeddings.to(torch.promote_types(embeddings.dtype, torch.float32))


@register(
    "regularizer", "zero_mean", paper="arXiv:1904.02616", verified="pytorch-metric-learning 2.9.0; numpy in float64"
)
def zero_mean(embeddings: Tensor, *, factor: float = 1.0) -> Tensor:
    r"""Rows whose coordinates have mean 0, $\lambda\, \mathrm{mean}_i |\sum_k z_{ik}|$.

    Beside the similarity "snr": for such rows it is the squared distance over the squared length.

    Args:
        embeddings: ``[b, d]``.
        factor: $\lambda \ge 0$.

    >>> zero_mean(torch.tensor([[1.0, -1.0], [1.0, 2.0]]))
    tensor(1.5000)
    """
    check_between("factor", factor, 0, math.inf, closed=True)
    rows = _wide(embeddings)
    with torch.autocast(rows.device.type, enabled=False):
        return factor * rows.sum(dim=1).abs().sum() / max(1, len(rows))


@register(
    "regularizer",
    "energy_confusion",
    "class-labels",
    "common-shift-invariant",
    "rotation-invariant",
    paper="arXiv:1901.07169",
    verified="numpy in float64",
)
def energy_confusion(
    embeddings: Tensor, labels: Tensor, *, factor: float = 1.0, class_pairs: Tensor | None = None
) -> Tensor:
    r"""Rows of different classes near one another, $\lambda\, \mathrm{mean}_{A \ne B}\, EC(A, B)$ (ECAML).

    $EC(A, B) = \frac{1}{|A||B|} \sum_{a \in A, b \in B} \|z_a - z_b\|^2 = \|\mu_A - \mu_B\|^2 + \mathrm{tr}\,\Sigma_A +
    \mathrm{tr}\,\Sigma_B$, the expected squared distance. It pulls classes together and alone would make all rows one:
    add it to a loss that parts them, with a small factor (0.01 to 1). It needs no matrix of pairs.

    Args:
        embeddings: ``[b, d]``.
        labels: whole numbers ``[b]``, of at least two classes.
        factor: $\lambda \ge 0$.
        class_pairs: ``[P, 2]``, the labels of the pairs of classes that count, such as random ones; None: all pairs.

    Raises:
        ValueError: for fewer than two classes, or a pair of classes that are equal or not in the batch.

    >>> energy_confusion(torch.tensor([[0.0], [2.0], [5.0]]), torch.tensor([0, 0, 1]))
    tensor(17.)
    """
    check_between("factor", factor, 0, math.inf, closed=True)
    rows = _wide(embeddings)
    if labels.shape != (len(rows),) or labels.is_floating_point():
        raise ValueError(
            f"labels: expected whole numbers [{len(rows)}], got {labels.dtype} of shape {tuple(labels.shape)}"
        )
    classes, place = torch.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"labels: expected at least two classes, got {len(classes)}")
    with torch.autocast(rows.device.type, enabled=False):
        rows = rows - rows.detach().mean(dim=0)  # a common offset costs digits
        count = torch.bincount(place)[:, None]
        means = rows.new_zeros(len(classes), rows.shape[1]).index_add(0, place, rows) / count  # [C, d]
        apart = (rows - means[place]).square().sum(dim=1)
        traces = rows.new_zeros(len(classes)).index_add(0, place, apart) / count[:, 0]  # [C]
        if class_pairs is None:  # the mean over all pairs of |mu_A - mu_B|^2 is twice the variance of the means
            spread = (means - means.mean(dim=0)).square().sum() / (len(classes) - 1)
            return factor * 2 * (spread + traces.mean())
        one, other = _places(class_pairs, classes)
        return factor * ((means[one] - means[other]).square().sum(dim=1) + traces[one] + traces[other]).mean()


def _places(class_pairs: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    if class_pairs.ndim != 2 or class_pairs.shape[1] != 2 or not len(class_pairs) or class_pairs.is_floating_point():
        raise ValueError(
            f"class_pairs: expected whole numbers [P, 2] with P >= 1, got {class_pairs.dtype} of shape "
            f"{tuple(class_pairs.shape)}"
        )
    found = torch.searchsorted(classes, class_pairs.contiguous()).clamp(max=len(classes) - 1)
    wrong = (classes[found] != class_pairs).any(dim=1) | (class_pairs[:, 0] == class_pairs[:, 1])
    if bool(wrong.any()):
        raise ValueError(
            f"class_pairs: expected two different classes of the batch, got {class_pairs[wrong][0].tolist()}"
        )
    return found[:, 0], found[:, 1]


@register("regularizer", "temperature_penalty", paper="arXiv:2310.05615", verified="numpy in float64")
def temperature_penalty(temperature: Tensor, dim: int, *, factor: float = 0.1) -> Tensor:
    r"""Temperatures of pairs neither near 0 nor large, $\beta\, \mathrm{mean}(\frac d2 \log \tau + \frac 1\tau)$.

    Smallest at $\tau = 2/d$. It comes from the density of the scores that the temperatures stand for (AMCL).

    Args:
        temperature: of any shape, > 0.
        dim: d, the width of the embeddings.
        factor: $\beta \ge 0$.

    >>> temperature_penalty(torch.tensor([0.5]), 4)
    tensor(0.0614)
    """
    check_between("factor", factor, 0, math.inf, closed=True)
    wide = temperature.to(torch.promote_types(temperature.dtype, torch.float32))
    return factor * (dim / 2 * wide.log() + 1 / wide).mean()
