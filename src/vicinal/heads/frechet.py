"""Loki: predict the class at the smallest mean squared distance: near misses cost less, and new classes exist."""

from typing import Any

import torch
from torch import Tensor

from vicinal.core import check_between, check_choice
from vicinal.masks import sparsemax


def frechet_scores(probabilities: Tensor, distances: Tensor) -> Tensor:
    r"""Scores $-\sum_k p_{ik}\, d_{km}^2$ of every class m as the Frechet mean of a row's class distribution.

    The largest one is Loki's prediction. Classes that were never observed can win when ``distances`` knows them.
    Roberts et al., *Geometry-Aware Adaptation for Pretrained Models*, NeurIPS 2023 (arXiv:2307.12226).

    Args:
        probabilities: ``[b, K]`` over observed classes, >= 0, not all 0 (rows are scaled to sum to 1).
        distances: ``[K, M]`` from each observed class to every class, >= 0; if square, with a diagonal of 0.

    Returns:
        ``[b, M]``, <= 0; higher is better.

    Raises:
        ValueError: on negative or NaN entries, rows of zeros, or shapes that do not go together.

    >>> path = (torch.arange(3.0)[:, None] - torch.arange(3.0)).abs()  # classes in a row
    >>> frechet_scores(torch.tensor([[0.5, 0.0, 0.5]]), path).argmax(1)  # the class in the middle
    tensor([1])
    """
    if probabilities.ndim != 2 or distances.ndim != 2 or probabilities.shape[1] != distances.shape[0]:
        raise ValueError(
            f"distances: expected [K, M] for probabilities [b, K], got {tuple(distances.shape)} for "
            f"{tuple(probabilities.shape)}"
        )
    if not (distances >= 0).all():
        raise ValueError("distances: expected numbers of at least 0, got some that are not")
    if distances.shape[0] == distances.shape[1] and distances.diagonal().any():
        raise ValueError("distances: expected 0 between a class and itself, got a diagonal that is not 0")
    total = probabilities.sum(1, keepdim=True)
    if not (probabilities >= 0).all() or not (total > 0).all():
        raise ValueError("probabilities: expected rows >= 0 with a positive sum; apply a softmax to logits first")
    return -(probabilities / total) @ distances.square()


def class_distances(vectors: Tensor, *, kind: str = "euclidean") -> Tensor:
    r"""Distances ``[M, M]`` of classes from vectors ``[M, d]`` of them: Euclidean, or the chord $\sqrt{2 - 2\cos}$.

    >>> class_distances(torch.tensor([[0.0], [3.0]]))
    tensor([[0., 3.],
            [3., 0.]])
    """
    if check_choice("kind", kind, ("euclidean", "cosine")) == "cosine":
        vectors = torch.nn.functional.normalize(vectors, dim=1)
    return torch.cdist(vectors, vectors, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(0)


def frechet_choice(
    probabilities: Tensor, distances: Tensor, *, gradient: str = "straight-through", step: float = 0.1
) -> Tensor:
    r"""Loki's choice as one-hot rows ``[b, M]`` that pass a gradient to the probabilities' scores.

    Args:
        probabilities: ``[b, K]``.
        distances: ``[K, M]``; M = K, since the gradient of a choice goes to the same class's probability.
        gradient: "straight-through" hands the incoming gradient g on; "polytope" hands on the projected step
            $z - \mathrm{proj}_\Delta(z - \eta g)$ from the choice z on the simplex.
        step: eta of "polytope", above 0.
    """
    check_choice("gradient", gradient, ("straight-through", "polytope"))
    check_between("step", step, 0, float("inf"))
    if distances.shape[0] != distances.shape[1]:
        raise ValueError(
            f"distances: expected a square matrix for a choice with gradient, got {tuple(distances.shape)}"
        )
    place = frechet_scores(probabilities.detach(), distances).argmax(1)
    chosen = torch.nn.functional.one_hot(place, distances.shape[1]).to(probabilities.dtype)
    choice: Tensor = _Choice.apply(  # type: ignore[no-untyped-call]
        probabilities, chosen, step if gradient == "polytope" else 0.0
    )
    return choice


class _Choice(torch.autograd.Function):
    """The choice forward; the incoming gradient, or its step within the simplex, backward."""

    @staticmethod
    def forward(ctx: Any, probabilities: Tensor, chosen: Tensor, step: float) -> Tensor:
        ctx.save_for_backward(chosen)
        ctx.step = step
        return chosen

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (chosen,) = ctx.saved_tensors
        if not ctx.step:
            return grads[0], None, None
        return chosen - sparsemax(chosen - ctx.step * grads[0]), None, None
