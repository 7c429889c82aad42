"""The likelihood of unnormalized models, whose partition a moving average knows."""

import math

import torch
from torch import Tensor, nn

from vicinal.core import register
from vicinal.core.checks import check_between


@register(
    "loss",
    "moving_partition",
    "number-labels",
    family="partition",
    paper="arXiv:2306.07485",
    verified="closed form in float64",
)
class MovingPartition(nn.Module):
    r"""Likelihood of $e^{f(x)}$ without its normalizer, from rows and noise (MECO).

    $-\overline{f(x)} + \log u$ with $u \leftarrow (1 - \gamma)\, u + \gamma\, \overline{e^{f(\tilde x)}/q(\tilde x)}$,
    where $\tilde x \sim q$ is noise.

    The gradient is that of $-\overline{f(x)} + \overline{e^{f(\tilde x)}/q(\tilde x)}/u$ with u fixed: the average over
    steps removes most of the bias that the logarithm of a few draws has. A softmax over very many columns has the same
    form, with f the scores and q the distribution that columns are drawn from.

    Args:
        rate: $\gamma$ in (0, 1]; 1 forgets the steps before.

    Attributes:
        log_partition: log u, a buffer that checkpoints keep; NaN before the first step.

    >>> loss = MovingPartition()
    >>> loss(torch.zeros(2), torch.zeros(3), torch.full((3,), -1.0))
    tensor(1.)
    """

    log_partition: Tensor
    needs = "scores of rows, scores of noise, and the log density of that noise"
    """What it is called with in place of predictions and labels."""

    def __init__(self, rate: float = 0.1) -> None:
        super().__init__()
        self.rate = check_between("rate", rate, 0, 1 + 1e-12)
        self.register_buffer("log_partition", torch.tensor(math.nan, dtype=torch.float64))

    def forward(self, scores: Tensor, noise_scores: Tensor, noise_log_density: Tensor) -> Tensor:
        """The loss; in training it also updates u.

        Args:
            scores: f(x) of the rows, ``[b]``.
            noise_scores: f of the noise, ``[m]``, at least one.
            noise_log_density: log q of the noise, ``[m]``, finite.

        Raises:
            ValueError: for other shapes, no noise, or a log density that is not finite.
        """
        if scores.ndim != 1 or noise_scores.ndim != 1 or not len(noise_scores):
            raise ValueError(
                f"noise_scores: expected numbers [m] beside scores [b], got {tuple(noise_scores.shape)} and "
                f"{tuple(scores.shape)}"
            )
        if noise_log_density.shape != noise_scores.shape or not bool(noise_log_density.isfinite().all()):
            raise ValueError(
                f"noise_log_density: expected finite numbers [{len(noise_scores)}], one for each noise row"
            )
        dtype = torch.promote_types(noise_scores.dtype, torch.float32)
        with torch.autocast(scores.device.type, enabled=False):
            ratios = noise_scores.to(dtype) - noise_log_density.to(dtype)
            now = ratios.detach().logsumexp(0).double() - math.log(len(ratios))
            log_u = self.log_partition
            if log_u.isnan():
                log_u = now
            elif self.training:
                before = log_u + math.log1p(-self.rate) if self.rate < 1 else torch.full_like(log_u, -torch.inf)
                log_u = torch.logaddexp(before, now + math.log(self.rate))
            if self.training:
                self.log_partition.copy_(log_u)
            share = (ratios - log_u.to(dtype)).exp().mean()  # its value says nothing beside log u, its gradient all
            mean = scores.to(dtype).sum() / max(1, len(scores))
            return log_u.to(dtype) + share - share.detach() - mean
