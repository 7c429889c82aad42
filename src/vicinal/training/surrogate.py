"""Steps on a surrogate in target space: many steps of the model for one gradient of an expensive loss (SSO)."""

import math
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_integer, check_tensor

Form = Literal["squared", "kl"]


def surrogate(targets: Tensor, start: Tensor, slope: Tensor, *, rate: float, form: Form = "squared") -> Tensor:
    r"""The bound that a step minimizes: $\langle g, z - z_t \rangle + \frac{1}{2\eta} \|z - z_t\|^2$ at the targets z.

    "kl" has $\frac1\eta \sum z \log \frac{z}{z_t}$ in place of the squares, for targets that are probabilities. If
    $\eta$ is at most 1 over the smoothness of the loss in its targets, the loss at $z_t$ plus this is an upper bound.

    Args:
        targets: z, the current outputs of the model ``[b, ...]``; for "kl" above 0.
        start: $z_t$, its outputs at the start of the step; gets no gradient.
        slope: g, the gradient of the loss at $z_t$; gets no gradient.
        rate: $\eta > 0$.
        form: "squared" or "kl".

    >>> surrogate(torch.tensor([3.0]), torch.tensor([1.0]), torch.tensor([0.5]), rate=1.0)
    tensor(3.)
    """
    check_between("rate", rate, 0, math.inf), check_choice("form", form, get_args(Form))
    if check_tensor("targets", targets).shape != start.shape or slope.shape != start.shape:
        raise ValueError(
            f"targets: expected {tuple(start.shape)} as at the start, got {tuple(targets.shape)} and a slope "
            f"{tuple(slope.shape)}"
        )
    start, slope = start.detach(), slope.detach()
    gap = targets - start
    if form == "squared":
        return (slope * gap).sum() + gap.square().sum() / (2 * rate)
    log_ratio: Tensor = torch.special.xlogy(targets, targets) - torch.special.xlogy(targets, start)
    return (slope * gap).sum() + log_ratio.sum() / rate


class SurrogateSteps:
    r"""An optimizer that takes several steps on :func:`surrogate` for each gradient of the loss (SSO).

    For losses that cost more than the model: a simulation, a rendering, a person's answer. A step evaluates the loss
    and its gradient once, at the model's targets (such as the scores of a batch); then only the model runs and trains.
    With one inner step it is the plain optimizer. Lavington et al., *Target-based Surrogates for Stochastic
    Optimization*, arXiv:2302.02607.

    Args:
        optimizer: takes the inner steps.
        rate: $\eta > 0$, how far the targets can move.
        steps: number of inner steps, at least 1.
        form: as in :func:`surrogate`.

    >>> weight = torch.nn.Parameter(torch.tensor([2.0]))
    >>> steps = SurrogateSteps(torch.optim.SGD([weight], lr=0.5), rate=1.0, steps=20)
    >>> steps.step(lambda: 1.0 * weight, lambda targets: targets.square().sum() / 4)
    tensor(1.)
    >>> weight.data  # moved by the rate times the slope, 1
    tensor([1.0000])
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, *, rate: float, steps: int = 10, form: Form = "squared"
    ) -> None:
        self.optimizer, self.rate = optimizer, check_between("rate", rate, 0, math.inf)
        self.steps, self.form = check_integer("steps", steps), form
        check_choice("form", form, get_args(Form))

    def step(self, targets: Callable[[], Tensor], loss: Callable[[Tensor], Tensor]) -> Tensor:
        """Take the inner steps for one gradient of the loss, and return the loss before them.

        Args:
            targets: runs the model on a batch, ``[b, ...]``; only its weights may change.
            loss: the expensive loss of the targets; called once.

        Raises:
            TypeError: if one of them is not callable.
            ValueError: if the targets change their shape.
        """
        for name, function in (("targets", targets), ("loss", loss)):
            if not callable(function):
                raise TypeError(f"{name}: expected a function, got {type(function).__name__}")
        with torch.enable_grad():
            now = targets()
            start = now.detach().requires_grad_()
            first = loss(start)
            (slope,) = torch.autograd.grad(first, start)
            for step in range(self.steps):
                now = now if step == 0 else targets()
                self.optimizer.zero_grad()
                surrogate(now, start, slope, rate=self.rate, form=self.form).backward()  # type: ignore[no-untyped-call]
                self.optimizer.step()
        return first.detach()
