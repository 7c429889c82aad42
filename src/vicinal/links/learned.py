"""Links with parameters: a network that can only rise, and any named curve with learned settings."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, softplus

from vicinal.core.checks import check_integer
from vicinal.links.curve import Curve
from vicinal.links.numerics import Positive, number, sigmoid_divergence
from vicinal.links.ranges import Landmark, Range
from vicinal.links.shaped import Shaped


class MonotoneNet(Curve):
    r"""$h(z)=\text{slope}\cdot z+\sum_k w_k\,\sigma(a_k(z-c_k))$ with learned positive slope, w and a, free c.

    It rises by construction, however it is trained, and its primitive is exact (a sum of softplus).

    Args:
        units: number of steps K, >= 1.
        span: the interval of scores over which the steps start, evenly spaced.

    >>> link = MonotoneNet(4)
    >>> bool((link(torch.linspace(-9, 9, 50)).diff() > 0).all())
    True
    """

    def __init__(self, units: int = 8, span: tuple[float, float] = (-3.0, 3.0)) -> None:
        super().__init__()
        check_integer("units", units)
        low, high = span
        if not low < high:
            raise ValueError(f"span: expected low < high, got {span}")
        self.log_slope = nn.Parameter(torch.tensor(math.log(0.5)))
        self.log_weight = nn.Parameter(torch.full((units,), math.log((high - low) / units / 2)))
        self.log_scale = nn.Parameter(torch.full((units,), math.log(2 * units / (high - low))))
        self.steps = nn.Parameter(low + (torch.arange(units) + 0.5) * ((high - low) / units))

    def _units(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scale = self.log_scale.exp().to(z.dtype)
        return (
            scale * (z[..., None] - self.steps.to(z.dtype)),
            scale,
            self.log_weight.exp().to(z.dtype),
        )  # [..., units]

    def forward(self, z: Tensor) -> Tensor:
        """Value h(z)."""
        x, _, weight = self._units(z)
        return self.log_slope.exp() * z + (weight * torch.sigmoid(x)).sum(-1)

    def primitive(self, z: Tensor) -> Tensor:
        """Primitive H(z)."""
        x, scale, weight = self._units(z)
        return self.log_slope.exp() * z * z / 2 - (weight / scale * logsigmoid(-x)).sum(-1)

    def slope(self, z: Tensor) -> Tensor:
        """Slope h'(z) > 0."""
        x, scale, weight = self._units(z)
        return self.log_slope.exp() + (weight * scale * torch.sigmoid(x) * torch.sigmoid(-x)).sum(-1)

    @property
    def landmarks(self) -> tuple[Landmark, ...]:
        """The steps."""
        centers, scales = self.steps.detach().tolist(), self.log_scale.detach().exp().tolist()
        return tuple((center, 1 / scale) for center, scale in zip(centers, scales, strict=True))

    @property
    def ranges_are_bounds(self) -> bool:
        """Each step is steepest in its middle."""
        return True

    def slope_range(self, low: Tensor, high: Tensor) -> Range:
        """From the sum of the least slopes of all steps to that of the largest."""
        (left, scale, weight), (right, _, _) = self._units(low), self._units(high)  # [n, units]
        of_ends = torch.stack([torch.sigmoid(x) * torch.sigmoid(-x) for x in (left, right)])
        most = torch.where((left < 0) & (right > 0), 0.25, of_ends.amax(0))
        steep = weight * scale
        return tuple(self.log_slope.exp() + (steep * part).sum(-1) for part in (of_ends.amin(0), most))  # type: ignore[return-value]

    def _divergence(self, a: Tensor, b: Tensor) -> Tensor:
        (xa, scale, weight), (xb, _, _) = self._units(a), self._units(b)
        step = scale * (a - b)[..., None]
        return self.log_slope.exp() * (a - b) ** 2 / 2 + (weight / scale * sigmoid_divergence(step, xa, xb)).sum(-1)

    def extra_repr(self) -> str:
        """Size, for ``repr``."""
        return f"units={len(self.steps)}"


def learnable(curve: Shaped, settings: Sequence[str] = ("scale", "shift", "amplitude")) -> Shaped:
    """Turn the named settings of ``curve`` into parameters; scale and amplitude stay above 0. Returns ``curve``.

    >>> from vicinal.links import Sigmoid
    >>> [name for name, _ in learnable(Sigmoid(2.0), ["scale", "shift"]).named_parameters()]
    ['shift', 'scale.log']
    """
    for name in settings:
        if name not in ("scale", "shift", "amplitude"):
            raise ValueError(f"settings: expected 'scale', 'shift' or 'amplitude', got {name!r}")
        now = number(getattr(curve, name))
        delattr(curve, name)
        setattr(curve, name, nn.Parameter(torch.tensor(now)) if name == "shift" else Positive(now))
    return curve


class ConvexPotential(nn.Module):
    r"""A learned convex function $\psi$ of d scores at once; its gradient is a monotone link for several scores.

    An input-convex network: $y_1=\alpha(L_0x)$, $y_{k+1}=\alpha(L_ky_k+R_kx)$, $\psi=L_ly_l+R_lx+\tfrac\epsilon2|x|^2$,
    with $\alpha$ a softplus and no negative weight in $L_1,\dots,L_l$ (each is kept as its own softplus).
    The matching loss of the link is the Bregman divergence of $\psi$.

    Args:
        dim: number of scores d.
        width: units of each hidden layer.
        depth: hidden layers, >= 1.
        beta: sharpness of the softplus.
        strength: epsilon, >= 0; above 0 makes the link rise strictly.

    >>> potential = ConvexPotential(3)
    >>> potential(torch.zeros(5, 3)).shape, potential.primitive(torch.zeros(5, 3)).shape
    (torch.Size([5, 3]), torch.Size([5]))
    """

    def __init__(self, dim: int, width: int = 16, depth: int = 2, *, beta: float = 1.0, strength: float = 0.1) -> None:
        super().__init__()
        self.dim, width = check_integer("dim", dim), check_integer("width", width)
        check_integer("depth", depth)
        self.beta, self.strength = beta, strength
        self.first = nn.Linear(dim, width)
        self.skips = nn.ModuleList(nn.Linear(dim, width) for _ in range(depth - 1))
        self.hidden = nn.ParameterList(nn.Parameter(torch.randn(width, width) - 4) for _ in range(depth - 1))
        self.last = nn.Parameter(torch.randn(width) - 2)
        self.last_skip = nn.Linear(dim, 1, bias=False)

    def primitive(self, z: Tensor) -> Tensor:
        """psi(z): ``[..., d]`` to ``[...]``."""
        if z.shape[-1] != self.dim:
            raise ValueError(f"z: expected [..., {self.dim}] scores, got {tuple(z.shape)}")
        y = softplus(self.first(z), self.beta)  # [..., width]
        for skip, weight in zip(self.skips, self.hidden, strict=True):
            y = softplus(y @ softplus(weight).T + skip(z), self.beta)
        return y @ softplus(self.last) + self.last_skip(z)[..., 0] + self.strength / 2 * (z * z).sum(-1)

    def forward(self, z: Tensor) -> Tensor:
        """The link: the gradient of psi, ``[..., d]`` to ``[..., d]``; differentiable again."""
        create = torch.is_grad_enabled()
        with torch.enable_grad():
            at = z if z.requires_grad else z.detach().requires_grad_()
            gradient: Tensor = torch.autograd.grad(self.primitive(at).sum(), at, create_graph=create)[0]
        return gradient

    def divergence(self, prediction: Tensor, target: Tensor, valid: Tensor | None = None) -> Tensor:
        """psi(prediction) - psi(target) - (prediction - target) . h(target), ``[...]``."""
        if valid is not None:
            prediction, target = torch.where(valid, prediction, 0.0), torch.where(valid, target, 0.0)
        gap = ((prediction - target) * self(target)).sum(-1)
        value = (self.primitive(prediction) - self.primitive(target) - gap).clamp(min=0)
        convex = self.strength / 2 * ((prediction - target) ** 2).sum(-1)
        return torch.maximum(value, convex)

    def rise(self, a: Tensor, b: Tensor) -> Tensor:
        """The link at ``a`` minus the link at ``b``, ``[..., d]``."""
        return self(a) - self(b)

    def pair(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """``(divergence(a, b), h(a) - h(b))``."""
        return self.divergence(a, b), self.rise(a, b)

    def curvature_times(self, z: Tensor, direction: Tensor) -> Tensor:
        """The Jacobian of the link at ``z``, which is the Hessian of psi, times ``direction [..., d]``."""
        create = torch.is_grad_enabled()
        with torch.enable_grad():
            at = z if create and z.requires_grad else z.detach().requires_grad_()
            slope = (self(at) * (direction if create else direction.detach())).sum()
            result: Tensor = torch.autograd.grad(slope, at, create_graph=create)[0]
        return result

    def tunable(self) -> list[Tensor]:
        """The parameters that are trained."""
        return [p for p in self.parameters() if p.requires_grad]
