"""Flat minima by adversarial model perturbation (AMP): gradients at the worst weights nearby."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from vicinal.core.checks import check_between, check_integer


class AdversarialSteps:
    r"""An optimizer whose gradient is taken at weights that were moved uphill, $\theta + \delta$.

    Inner steps set $\delta \leftarrow \mathrm{clip}(\delta + \zeta g)$ to $\|\delta\| \le \epsilon$, for each tensor
    alone; then the optimizer takes a step from $\theta$ with the gradient at $\theta + \delta$. Zheng et al.,
    *Regularizing Neural Networks via Adversarial Model Perturbation*, CVPR 2021. A step computes one gradient more than
    it has inner steps; layers with running statistics see the rows as often.

    Args:
        optimizer: takes the step.
        radius: $\epsilon \ge 0$, of each tensor.
        rate: $\zeta > 0$.
        steps: number of inner steps, >= 0; 0 is the plain optimizer.

    >>> weight = torch.nn.Parameter(torch.tensor([2.0]))
    >>> steps = AdversarialSteps(torch.optim.SGD([weight], lr=0.1), radius=0.5)
    >>> steps.step(lambda: weight.square().sum())
    tensor(4.)
    >>> weight.data
    tensor([1.5000])
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, *, radius: float = 0.5, rate: float = 1.0, steps: int = 1
    ) -> None:
        self.optimizer = optimizer
        self.radius = check_between("radius", radius, 0, math.inf, closed=True)
        self.rate, self.steps = check_between("rate", rate, 0, math.inf), check_integer("steps", steps, 0)

    def step(self, closure: Callable[[], Tensor]) -> Tensor:
        """Take a step and return the loss before it; ``closure()`` returns the batch loss, without ``backward``.

        Raises:
            TypeError: if ``closure`` cannot be called.
        """
        if not callable(closure):
            raise TypeError(f"closure: expected a function that gives the loss, got {type(closure).__name__}")
        parameters = [p for group in self.optimizer.param_groups for p in group["params"] if p.requires_grad]
        start = [p.detach().clone() for p in parameters]
        first = self._gradient(closure)
        for _ in range(self.steps if self.radius else 0):
            with torch.no_grad():
                for p, at in zip(parameters, start, strict=True):
                    if p.grad is not None:
                        p.copy_(at + self._clipped(p - at + self.rate * p.grad))
            self._gradient(closure)
        with torch.no_grad():
            for p, at in zip(parameters, start, strict=True):
                p.copy_(at)  # not by subtraction, which would round
        self.optimizer.step()
        return first

    def _gradient(self, closure: Callable[[], Tensor]) -> Tensor:
        self.optimizer.zero_grad()
        with torch.enable_grad():
            loss = closure()
            loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _clipped(self, offset: Tensor) -> Tensor:
        length = float(torch.linalg.vector_norm(offset))
        return offset * (self.radius / (length + 1e-12)) if length > self.radius else offset
