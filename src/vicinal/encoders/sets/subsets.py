"""Scores of subsets that see the set they are taken from, and the chance of each element to be chosen (INSET)."""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from vicinal.core.checks import check_integer
from vicinal.encoders.sets.contract import check_sets, masked_sum
from vicinal.encoders.sets.deep_sets import perceptron


class SubsetScore(nn.Module):
    r"""How good a subset of a set is, seen beside all that it was taken from (INSET).

    $F(S, V) = \rho\big(\sum_{i \in S} \kappa(x_i),\ \sum_{j \in V} \nu(x_j)\big)$ for a subset S of V.

    The second sum tells what was left, which a score of S alone cannot. $\kappa$ and $\nu$ are networks with a hidden
    layer, $\rho$ another, of both sums side by side. Reconstructed from memory of the paper.

    Args:
        width: d, of the elements.
        hidden: of the networks.
        context: False leaves out the sum over V: a plain set function.

    Paper: Enhancing Neural Subset Selection: Integrating Background Information into Set Representations,
    arXiv:2402.03139.

    >>> SubsetScore(3)(torch.zeros(2, 5, 3), torch.tensor([[1, 1, 0, 0, 0]] * 2, dtype=torch.bool)).shape
    torch.Size([2])
    """

    def __init__(self, width: int, *, hidden: int = 64, context: bool = True) -> None:
        super().__init__()
        self.width = check_integer("width", width)
        check_integer("hidden", hidden)
        self.kappa, self.nu = (perceptron(width, hidden, hidden) if used else None for used in (True, context))
        self.rho = perceptron(hidden * (1 + context), hidden, 1)

    def forward(self, elements: Tensor, chosen: Tensor, valid: Tensor | None = None) -> Tensor:
        """F for each set.

        Args:
            elements: V, ``[b, n, d]``.
            chosen: boolean ``[b, n]``, or ``[b, m, n]`` for m subsets of each set; True for those in S.
            valid: boolean ``[b, n]``, True where there is an element; None: everywhere.

        Returns:
            ``[b]``, or ``[b, m]``.

        Raises:
            ValueError: for other shapes, or a chosen element that is not there.
        """
        elements, valid = check_sets(elements, valid, self.width)
        several = chosen if chosen.ndim == 3 else chosen[:, None]
        if several.shape[::2] != valid.shape or chosen.dtype != torch.bool:
            raise ValueError(f"chosen: expected boolean [b, n] or [b, m, n], got {chosen.dtype} {tuple(chosen.shape)}")
        if bool((several & ~valid[:, None]).any()):
            raise ValueError("chosen: expected elements that are there, got padding")
        values = self.kappa(elements)  # type: ignore[misc]
        sums = [several.to(values.dtype) @ torch.where(valid[..., None], values, 0.0)]  # [b, m, h]
        if self.nu is not None:
            around = masked_sum(self.nu(elements), valid)
            sums.append(around[:, None].expand(-1, several.shape[1], -1))
        scores: Tensor = self.rho(torch.cat(sums, dim=-1))[..., 0]
        return scores if chosen.ndim == 3 else scores[:, 0]


def mean_field(
    score: Callable[[Tensor], Tensor],
    chances: Tensor,
    valid: Tensor | None = None,
    *,
    samples: int | None = 5,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""One step of mean-field inference of the chance of each element to be chosen.

    $q_i \leftarrow \sigma\big(\mathbb{E}_{S \sim q} [F(S + i) - F(S - i)]\big)$: by draws of S that all elements share,
    or by all subsets. Trained by binary cross-entropy of q against the elements that were chosen (EquiVSet); it begins
    at 1/2.

    Args:
        score: F of subsets ``[b, m, n]``, giving ``[b, m]``, as ``lambda chosen: module(elements, chosen, valid)``.
        chances: q, ``[b, n]``, in [0, 1].
        valid: boolean ``[b, n]``; what is not there is never chosen, and has chance 0.
        samples: draws; None: all $2^n$ subsets, for n of at most 12.
        generator: draws.

    Returns:
        ``[b, n]``, with gradients of the parameters of F.

    Paper: Learning Neural Set Functions Under the Optimal Subset Oracle, arXiv:2203.01693.

    >>> mean_field(lambda chosen: chosen.double() @ torch.tensor([0.0, 2.0]).double(), torch.full((1, 2), 0.5))
    tensor([[0.5000, 0.8808]], dtype=torch.float64)
    """
    if chances.ndim != 2 or not chances.is_floating_point() or not bool(((chances >= 0) & (chances <= 1)).all()):
        raise ValueError(f"chances: expected [b, n] in [0, 1], got {chances.dtype} {tuple(chances.shape)} or others")
    valid = torch.ones_like(chances, dtype=torch.bool) if valid is None else valid
    count = chances.shape[1]
    q = torch.where(valid, chances.detach(), 0.0)
    if samples is None:
        check_integer("elements", count, 0, 12)
        subsets = torch.tensor(list(itertools.product([False, True], repeat=count)), device=q.device).reshape(-1, count)
        drawn = subsets.expand(len(q), -1, -1) & valid[:, None]  # [b, m, n]
    else:
        shape = (len(q), check_integer("samples", samples), count)
        drawn = torch.rand(shape, generator=generator, device=q.device, dtype=q.dtype) < q[:, None]
    one = torch.eye(count, dtype=torch.bool, device=q.device) & valid[:, :, None]  # [b, i, n]
    gains = []
    for with_i in (True, False):
        sets = drawn[:, :, None] | one[:, None] if with_i else drawn[:, :, None] & ~one[:, None]  # [b, m, i, n]
        gains.append(score(sets.flatten(1, 2)).view(sets.shape[:3]))
    gain = gains[0] - gains[1]  # [b, m, i]
    if samples is None:
        weight = torch.where(subsets, q[:, None], 1 - q[:, None]).prod(dim=-1)  # [b, m]
        mean = (weight.to(gain.dtype)[:, :, None] * gain).sum(dim=1)
    else:
        mean = gain.mean(dim=1)
    return torch.where(valid, mean.sigmoid(), 0.0)
