"""The k highest scores under noise: a choice that has a gradient in expectation."""

import math
from typing import Any

import torch
from torch import Tensor

from vicinal.core.checks import check_between, check_integer, check_tensor


def hard_topk(scores: Tensor, k: int) -> Tensor:
    """1 for the k highest of each row ``[..., n]``, of equal ones the first, 0 for the others; no gradient.

    >>> hard_topk(torch.tensor([[0.2, 0.9, 0.9]]), 1)
    tensor([[0., 1., 0.]])
    """
    order = scores.detach().argsort(dim=-1, descending=True, stable=True)[..., :k]
    return torch.zeros_like(scores).scatter(-1, order, 1.0)


class _PerturbedTopK(torch.autograd.Function):
    """Mean of choices under noise and its opposite; the gradient pairs each choice with its noise."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, noise: Tensor, k: int, sigma: float) -> Tensor:
        chosen, other = (hard_topk(scores + sign * sigma * noise, k) for sign in (1, -1))
        ctx.sigma = sigma
        ctx.save_for_backward(noise, chosen - other)
        return (chosen + other).mean(dim=0) / 2

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None, None, None]:
        noise, difference = ctx.saved_tensors  # [S, b, n] each
        gain = (outer[0] * difference).sum(dim=-1, keepdim=True)
        return (gain * noise).mean(dim=0) / (2 * ctx.sigma), None, None, None


def perturbed_topk(
    scores: Tensor, k: int, *, sigma: float = 0.5, samples: int = 50, generator: torch.Generator | None = None
) -> Tensor:
    r"""$\mathbb{E}_g[\mathrm{top}_k(s + \sigma g)]$, the share of draws in which each column is among the k highest.

    $\mathrm{top}_k$ has 1 for the k highest and 0 elsewhere, g is standard normal. The mean is over draws and their
    opposites, and the Jacobian is estimated from the same draws as $\mathbb{E}[\mathrm{top}_k(s + \sigma g)\, g^\top] /
    \sigma$. For $\sigma \to 0$ it is the hard choice, which has no gradient. Unlike :func:`soft_topk` it is noisy. The
    same trick works for any choice that a linear program makes.

    Args:
        scores: s, ``[b, n]``, finite.
        k: from 1 to n.
        sigma: > 0, in units of the scores.
        samples: number of draws, even and >= 2; memory grows with it.
        generator: of the draws.

    Returns:
        ``[b, n]`` in [0, 1], rows sum to k.

    Raises:
        ValueError: naming the argument.

    Paper: Differentiable Model Selection for Ensemble Learning, arXiv:2211.00251; Learning with Differentiable
    Perturbed Optimizers, arXiv:2002.08676.

    >>> perturbed_topk(torch.tensor([[9.0, 0.0, -9.0]]), 1)
    tensor([[1., 0., 0.]])
    """
    if check_tensor("scores", scores).ndim != 2 or not scores.is_floating_point():
        raise ValueError(f"scores: expected floating [b, n], got {scores.dtype} {tuple(scores.shape)}")
    check_integer("k", k, 1, scores.shape[1])
    check_between("sigma", sigma, 0, math.inf)
    if check_integer("samples", samples, 2) % 2:
        raise ValueError(f"samples: expected an even number, got {samples}")
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    shape = (samples // 2, *scores.shape)
    device = wide.device if generator is None else generator.device
    noise = torch.randn(shape, generator=generator, dtype=wide.dtype, device=device)
    return _PerturbedTopK.apply(wide, noise.to(wide.device), k, sigma)  # type: ignore[no-untyped-call]
