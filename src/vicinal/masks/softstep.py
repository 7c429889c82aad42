"""SoftStep: learned rejection of far neighbors."""

import math
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, sigmoid

from vicinal.blockwise.resolution import Resolution
from vicinal.blockwise.softstep import StepForm
from vicinal.core import check_choice, register
from vicinal.core.checks import check_between, check_integer, check_scores
from vicinal.masks.unit import row_range, told_apart, unit_scores

Family = Literal["s1", "s2"]
Parameters = Literal["pointwise", "global"]
Extent = Literal["admissible", "all"]


class StepParameters(NamedTuple):
    """The three numbers of a SoftStep, each ``[b, 1]`` in (eps, 1 - eps), with what cannot be had from them exactly.

    ``odds`` is t / (1 - t), kept apart because 1 - t loses all digits where t rounds to 1.
    """

    a0: Tensor
    b0: Tensor
    t: Tensor
    odds: Tensor


def parameters_from_logits(logits: Tensor, eps: float) -> StepParameters:
    """Numbers (a0, b0, t) in (eps, 1 - eps) from ``logits [b, 3]`` or ``[1, 3]``."""
    up = eps + (1 - 2 * eps) * sigmoid(logits)  # [b, 3]
    down = eps + (1 - 2 * eps) * sigmoid(-logits)  # [b, 3], 1 - up without cancellation
    return StepParameters(up[:, 0:1], up[:, 1:2], up[:, 2:3], up[:, 2:3] / down[:, 2:3])


def log_s1(unit: Tensor, numbers: StepParameters, top: Tensor, eps: float, floor: float = 0.0) -> Tensor:
    r"""$\ln S_1$: 0 mass up to $a$, a smooth step between $a$ and $b$, 1 from $b$ on.

    $S_1 = u/(u+v)$ with $u=(x-a)^{1/t}$, $v=(b-x)^{1/t}$, $a=\min(a_0, \mathrm{top})-\epsilon$,
    $b=a+b_0(1-a)$. As $t \to 0$ it becomes a step at $(a+b)/2$, as $t \to 1$ a clamped ramp.

    Args:
        unit: ``[b, N]`` in [0, 1].
        numbers: a0, b0 and t of the step, ``[b, 1]`` or ``[1, 1]`` each.
        top: ``[b, 1]``, the highest unit score of each row among columns that may be attended to; that column always
            keeps some mass.
        eps: > 0.
        floor: u and v are kept at least this large, as the paper's code does with its eps; the step then has a
            plateau of height 1/2 where both are smaller, which for t near 0 is all of (a, b). 0 is the exact formula.

    Returns:
        ``[b, N]``, <= 0, -inf where rejected, with gradient 0 there.
    """
    low = torch.minimum(numbers.a0, top)  # [b, 1]
    rise = (unit - low) + eps  # x - a, summed in this order so that a tiny eps survives rounding
    width = numbers.b0 * ((1 - low) + eps)  # b - a
    fall = width - rise  # b - x
    passed, rejected = fall <= 0, rise <= 0
    between = ~(passed | rejected)
    log_u = torch.where(between, rise, 1.0).log() / numbers.t
    log_v = torch.where(between, fall, 1.0).log() / numbers.t
    if floor > 0:
        log_u, log_v = log_u.clamp(min=math.log(floor)), log_v.clamp(min=math.log(floor))
    inside = logsigmoid(log_u - log_v)
    return torch.where(between, inside, torch.where(rejected, -torch.inf, 0.0))


def log_s2(unit: Tensor, numbers: StepParameters) -> Tensor:
    r"""$\ln S_2 = (b-x)\frac{t}{1-t}\ln\frac{x}{b}$ for $x<b=b_0$, 0 from $b$ on.

    As $t \to 0$ it becomes constant, as $t \to 1$ everything below $b$ is rejected. The farthest neighbor ($x=0$)
    has mass exactly 0 and gradient 0.

    Args:
        unit: ``[b, N]`` in [0, 1].
        numbers: a0, b0 and t of the step, ``[b, 1]`` or ``[1, 1]`` each.

    Returns:
        ``[b, N]``, <= 0, -inf at 0.
    """
    between = (unit > 0) & (unit < numbers.b0)
    x = torch.where(between, unit, numbers.b0)  # elsewhere x = b: the product below is 0, and so its gradient
    inside = (numbers.b0 - x) * numbers.odds * (x.log() - numbers.b0.log())
    return torch.where(between, inside, torch.where(unit > 0, 0.0, -torch.inf))


_FACTS = ("learned", "hard-rejection", "score-scale-invariant", "score-shift-invariant", "permutation-invariant")


@register(
    "mask",
    "softstep",
    *_FACTS,
    paper="NONA, section 3.2",
    verified="values of the paper's code, gradients against central differences",
)
class SoftStep(nn.Module):
    r"""Log mask $\ln S(n_{ij})$ of the unit scores $n_{ij}$, with learned numbers (a0, b0, t).

    Args:
        dim: width of the queries.
        family: "s2" (smooth, rejects only the farthest row fully) or "s1" (hard rejection below a).
        parameters: "pointwise": sigmoid of ``projection(query)``, so each query has its own numbers; "global": sigmoid
            of the three ``logits``.
        extent: what the minimum and maximum of a row are taken over: "admissible" bank rows, the same in training and
            prediction, or "all". "all" follows the paper's public code to the letter: in training a row itself is among
            the rows, and S1 floors u and v at eps (see :func:`log_s1`).
        eps: keeps the three numbers inside (eps, 1 - eps); > 0 and < 0.5.

    The parameters are ``projection.weight [3, dim]`` and ``projection.bias [3]``, or ``logits [3]``, in the order (a0,
    b0, t) for both families; S2 does not use a0. Gradients are always finite: with ties, flat rows, a single admissible
    row, logits of any size.

    >>> mask = SoftStep(2, family="s2", parameters="global")
    >>> mask(torch.tensor([[-3.0, -1.0, 0.0]]), torch.zeros(1, 2)).exp().detach()
    tensor([[0., 1., 1.]])
    """

    def __init__(
        self,
        dim: int,
        family: Family = "s2",
        parameters: Parameters = "pointwise",
        extent: Extent = "admissible",
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        self.dim = check_integer("dim", dim)
        self.family = check_choice("family", family, get_args(Family))
        self.parameters_from = check_choice("parameters", parameters, get_args(Parameters))
        self.extent = check_choice("extent", extent, get_args(Extent))
        self.eps = check_between("eps", eps, 0, 0.5)
        if self.parameters_from == "pointwise":
            self.projection = nn.Linear(dim, 3)
        else:
            self.logits = nn.Parameter(torch.zeros(3))

    def step_parameters(self, queries: Tensor) -> StepParameters:
        """The numbers of each query: ``[b, 1]`` each if pointwise, ``[1, 1]`` if global; at least float32.

        The odds t / (1 - t) can reach 1 / eps, which does not fit into float16.
        """
        return parameters_from_logits(self.step_logits(queries), self.eps)

    def step_logits(self, queries: Tensor) -> Tensor:
        """The logits whose sigmoids are the numbers of each query: ``[b, 3]`` if pointwise, ``[1, 3]`` if global."""
        if queries.shape[-1] != self.dim:
            raise ValueError(f"queries: expected {(len(queries), self.dim)}, got {tuple(queries.shape)}")
        if self.parameters_from == "global":
            return self.logits[None].to(torch.promote_types(self.logits.dtype, torch.float32))
        weight, bias = self.projection.weight, self.projection.bias
        dtype = torch.promote_types(torch.promote_types(queries.dtype, weight.dtype), torch.float32)
        with torch.autocast(queries.device.type, enabled=False):
            return queries.to(dtype) @ weight.to(dtype).T + bias.to(dtype)

    def forward(
        self, scores: Tensor, queries: Tensor, weight: Tensor | None = None, resolution: Resolution | None = None
    ) -> Tensor:
        """Log mask to add to the scores.

        Args:
            scores: ``[b, N]``.
            queries: ``[b, dim]``.
            weight: ``[b, N]``; a bank row of weight 0 may not be attended to. None: all may.
            resolution: the difference from which on scores count as different; None: eight units in the last place.

        Returns:
            ``[b, N]``, <= 0, may be -inf; at least one admissible row of each query keeps a finite value.
        """
        check_scores(scores, weight)
        if queries.shape != (scores.shape[0], self.dim):
            raise ValueError(f"queries: expected {(scores.shape[0], self.dim)}, got {tuple(queries.shape)}")
        return self.of_numbers(scores, self.step_parameters(queries), weight, resolution)

    def of_numbers(
        self, scores: Tensor, numbers: StepParameters, weight: Tensor | None, resolution: Resolution | None
    ) -> Tensor:
        """The log mask ``[b, N]`` of a step with these ``numbers``, wherever they come from: see :meth:`forward`."""
        if scores.shape[1] == 0:
            return torch.zeros_like(scores)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        admissible = None if weight is None else weight > 0
        unit = self.units(scores, admissible if self.extent == "admissible" else None, resolution)
        top = (unit if admissible is None else torch.where(admissible, unit, 0.0)).amax(dim=-1, keepdim=True)
        return self._keep_one(self.log_step(unit, numbers, top), admissible)

    def units(self, scores: Tensor, counted: Tensor | None, resolution: Resolution | None) -> Tensor:
        """What the step is a function of: unit scores ``[b, N]``, by the range over columns that are ``counted``."""
        return unit_scores(scores, row_range(scores, counted), resolution, inset=self.form.inset)

    def log_step(self, unit: Tensor, numbers: StepParameters, top: Tensor) -> Tensor:
        """The log of the step at ``unit [b, N]``; ``top [b, 1]``: the highest unit score that may be attended to."""
        if self.family == "s2":
            return log_s2(unit, numbers)
        return log_s1(unit, numbers, top, self.eps, self.form.floor)

    def curve(self, unit: Tensor, queries: Tensor) -> Tensor:
        """The mask of each query as a curve over unit scores.

        Args:
            unit: ``[m]`` in [0, 1].
            queries: ``[b, dim]``.

        Returns:
            ``[b, m]`` in [0, 1], with the nearest row at unit score 1.
        """
        numbers = self.step_parameters(queries)
        grid = unit.to(numbers.t.dtype).expand(len(queries), len(unit))
        return self.log_step(grid, numbers, torch.ones_like(grid[:, :1])).exp()

    @property
    def form(self) -> StepForm:
        """The settings that change the formula."""
        return StepForm(self.family, self.extent, self.eps)

    def _keep_one(self, log_values: Tensor, admissible: Tensor | None) -> Tensor:
        """Leave a row alone that S2 would reject whole.

        With extent="all" the only admissible row may be the farthest of all, which S2 gives mass 0: then nothing
        would be left, so the admissible rows of that query are not masked.
        """
        if admissible is None or self.extent == "admissible":
            return log_values
        alive = (admissible & (log_values > -torch.inf)).any(dim=-1, keepdim=True)
        return torch.where(alive, log_values, 0.0)

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return (
            f"dim={self.dim}, family={self.family!r}, parameters={self.parameters_from!r}, "
            f"extent={self.extent!r}, eps={self.eps:g}"
        )


@register("mask", "rank_step", *_FACTS, family="softstep", paper="NONA, section 7", verified="numpy in float64")
class RankStep(SoftStep):
    r"""SoftStep of ranks, as k-NN has them: $\ln S(n_{ij})$ with $n_{ij} = 1 - r_{ij} / (N_i - 1)$.

    $r_{ij}$ counts the $N_i$ rows that are nearer to i than j is, 0 for the nearest; rows that are equally near have
    the same. The outlook of the paper's section 7. Ranks have no gradient: the numbers (a0, b0, t) learn through the
    mask, embeddings only through the scores that it is added to. With S1 and t near 0 it keeps a share of the nearest
    rows, each whole: k-NN. A bank row of weight w counts as one row.

    Args and parameters are those of :class:`SoftStep`. Predictions are not streamed.

    >>> mask = RankStep(2, family="s2", parameters="global")
    >>> mask(torch.tensor([[-9.0, -1.0, 0.0]]), torch.zeros(1, 2)).exp().detach()
    tensor([[0., 1., 1.]])
    """

    def units(self, scores: Tensor, counted: Tensor | None, resolution: Resolution | None) -> Tensor:
        """Unit ranks ``[b, N]``: 1 for the nearest of the rows that are ``counted``, 0 for the farthest."""
        values = scores.detach()
        span = row_range(values, counted)
        tied = told_apart(values, resolution).of(*span)
        among = values if counted is None else torch.where(counted, values, -torch.inf)
        nearer = values.shape[-1] - torch.searchsorted(among.sort(dim=-1).values, values + tied, right=True)
        count = values.shape[-1] if counted is None else counted.sum(dim=-1, keepdim=True)
        last = torch.as_tensor(count - 1, device=values.device).clamp(min=1)
        return (1 - nearer.to(values.dtype) / last).clamp(min=0)


@register("mask", "rejecting_step", *_FACTS, family="softstep", paper="NONA, section 7", verified="numpy in float64")
class RejectingStep(SoftStep):
    r"""S2 with a threshold of rejection: $\ln S_2$ of $(n_{ij} - a) / (1 - a)$, and mass 0 up to a.

    $a = \min(a_0, \mathrm{top}) - \epsilon$, as S1 has it: the nearest admissible row always keeps some mass. At a = 0
    it is S2. The outlook of the paper's section 7, which says that S2 cannot easily have such a number, as its slope
    has no bound at 0: so has this one's at a, but what is added to the scores is the logarithm, whose slope at a row
    that counts is finite.

    Args:
        dim: width of the queries.
        parameters: see :class:`SoftStep`, as for the two below; a0 is used, too.
        extent: see there.
        eps: see there.

    Predictions are not streamed.

    >>> mask = RejectingStep(2, parameters="global")  # all three numbers are 1/2
    >>> mask(torch.tensor([[-4.0, -2.0, -1.5, 0.0]]), torch.zeros(1, 2)).exp().detach()
    tensor([[0.0000, 0.0014, 0.8409, 1.0000]])
    """

    def __init__(
        self, dim: int, parameters: Parameters = "pointwise", extent: Extent = "admissible", eps: float = 1e-6
    ) -> None:
        super().__init__(dim, "s2", parameters, extent, eps)

    def log_step(self, unit: Tensor, numbers: StepParameters, top: Tensor) -> Tensor:
        """See :meth:`SoftStep.log_step`."""
        threshold = torch.minimum(numbers.a0, top)  # [b, 1]
        above = ((unit - threshold) + self.eps) / ((1 - threshold) + self.eps)
        return log_s2(above.clamp(min=0), numbers)
