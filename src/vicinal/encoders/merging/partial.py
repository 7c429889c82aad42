"""Merging where units agree, and both side by side where they do not, to a budget of size (PLeaS)."""

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vicinal.core.checks import check_between
from vicinal.encoders.merging.matching import unit_products
from vicinal.encoders.merging.units import PER_UNIT, Axes, Orders, permuted

RIDGE = 1e-6
"""Of the least squares, as a share of the mean square of a layer's inputs."""


@dataclass(frozen=True)
class _Places:
    """Units of a layer of the merged network: those of both models in one, then those of a, then those of b."""

    joint: Tensor
    apart: Tensor

    @property
    def width(self) -> int:
        return len(self.joint) + 2 * len(self.apart)

    def laid_out(self, a: Tensor, b: Tensor) -> Tensor:
        """What the units have in each model, along the last axis: means for those in one."""
        mean = (a + b)[..., self.joint] / 2
        return torch.cat([mean, a[..., self.apart], b[..., self.apart]], dim=-1)


def partly_merged(
    a: nn.Sequential, b: nn.Sequential, data: Tensor, axes: Axes, orders: Orders, *, budget: float = 1.5
) -> nn.Sequential:
    r"""One network of two, wider where their units differ, with weights by least squares (PLeaS).

    Of each hidden layer the units whose products $A_{i, \pi(i)}$ of weights are largest become one, the others stand
    side by side, as many as the budget allows: widths $h_1 + 2 h_2$. Layer by layer, first to last, $\min_W \sum_i
    |W z_i - t_i|^2$ with z the merged network's inputs of that layer, and t the mean of both models' values before the
    activation for joint units and outputs, the model's value for units apart; weights between units of a and of b
    that stand apart are 0. With all units apart the network is the mean of both.

    Args:
        a: linear layers with per-unit modules between them.
        b: another of its architecture, with the batch norm of a at the start.
        data: rows ``[n, d]``, n >= 1; where they leave weights open, these stay near the mean of both models'.
        axes: as :func:`unit_axes` gives them for a, with ``outputs`` or without.
        orders: b's units for those of a.
        budget: parameters of the result at most, as a multiple of those of a, >= 1.

    Returns:
        A new network.

    Raises:
        ValueError: for modules that do not treat each unit alone, or data of another shape.

    Paper: PLeaS: Merging Models with Permutations and Least Squares, arXiv:2407.02447.

    >>> a = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    >>> axes = {"0.weight": ("0", None), "0.bias": ("0",), "2.weight": (None, "0")}  # as unit_axes(a) says
    >>> partly_merged(a, a, torch.randn(9, 2), axes, {"0": torch.arange(4)}, budget=2)[0]
    Linear(in_features=2, out_features=8, bias=True)
    """
    check_between("budget", budget, 1, math.inf, closed=True)
    for step in a:
        if not isinstance(step, (nn.Linear, *PER_UNIT)):
            raise ValueError(f"a: expected linear layers and modules of single units, got {type(step).__name__}")
    if data.ndim != 2 or not len(data):
        raise ValueError(f"data: expected [n, d] with n >= 1, got {tuple(data.shape)}")
    state = permuted(b.state_dict(), axes, orders)
    moved = copy.deepcopy(b)
    moved.load_state_dict(state)
    hidden = {
        unit: unit_products(a.state_dict(), state, axes, {}, unit).diagonal().argsort(descending=True, stable=True)
        for unit in orders
        if any(units[1:] == (unit,) for units in axes.values())
    }
    share = next(s / 100 for s in range(100, -1, -1) if _parameters(a, hidden, s / 100) <= budget * _count(a))
    return _solved(a.eval(), moved.eval(), data, {unit: _split(order, share) for unit, order in hidden.items()})


def _split(order: Tensor, share: float) -> _Places:
    """The last ``share`` of units, best to worst, stand apart."""
    joint = len(order) - int(share * len(order))
    return _Places(order[:joint].sort().values, order[joint:].sort().values)


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _parameters(a: nn.Sequential, hidden: dict[str, Tensor], share: float) -> int:
    """How many parameters the merged network has if ``share`` of the hidden units stand apart."""
    total, before, width = 0, 1, 1
    for name, step in a.named_children():
        if isinstance(step, nn.Linear):
            reads = step.in_features if before == 1 else width
            before = step.out_features
            width = _split(hidden[name], share).width if name in hidden else before
            total += width * (reads + 1)
        else:
            total += _count(step) * width // before
    return total


@torch.no_grad()
def _solved(a: nn.Sequential, b: nn.Sequential, data: Tensor, hidden: dict[str, _Places]) -> nn.Sequential:
    """The network, step by step while the data go through a, b and what is there of it."""
    merged = nn.Sequential()
    ours = theirs = values = data
    places = _Places(torch.arange(data.shape[1]), torch.arange(0))
    for (name, one), other in zip(a.named_children(), b.children(), strict=True):
        ours, theirs = one(ours), other(theirs)
        if isinstance(one, nn.Linear) and isinstance(other, nn.Linear):
            units = hidden.get(name, _Places(torch.arange(one.out_features), torch.arange(0)))
            step: nn.Module = _regressed(one, other, (places, units), values, (ours, theirs))
            places = units
        else:
            step = _widened(one, other, places)
        values = step(values)
        merged.add_module(name, step)
    return merged


def _widened(one: nn.Module, other: nn.Module, places: _Places) -> nn.Module:
    """A module of single units for the units of the merged network."""
    if not isinstance(one, nn.BatchNorm1d):
        return copy.deepcopy(one)
    norm = nn.BatchNorm1d(places.width, one.eps, one.momentum, one.affine, one.track_running_stats)
    theirs = other.state_dict()
    wide = {n: places.laid_out(v, theirs[n]) if v.ndim else v for n, v in one.state_dict().items()}
    norm.to(next(iter(wide.values()))).load_state_dict(wide)
    return norm.eval()


def _regressed(
    one: nn.Linear, other: nn.Linear, places: tuple[_Places, _Places], values: Tensor, targets: tuple[Tensor, Tensor]
) -> nn.Linear:
    """A linear layer between the units of the merged network, by least squares from the models' weights on."""
    inputs, outputs = places
    a, b = _with_bias(one), _with_bias(other)  # [out, in + 1]
    known = torch.cat([values.double(), values.new_ones(len(values), 1).double()], dim=1)  # joint, of a, of b, 1
    rows = []
    for of_a, of_b, units in ((0.5, 0.5, outputs.joint), (1.0, 0.0, outputs.apart), (0.0, 1.0, outputs.apart)):
        mine, aim = ((of_a * x + of_b * y) for x, y in ((a, b), targets))
        apart = [of_a * a[units][:, inputs.apart], of_b * b[units][:, inputs.apart]]
        weights = torch.cat([mine[units][:, inputs.joint], *apart, mine[units][:, -1:]], dim=1)
        spans = [(1.0, inputs.joint), (of_a, inputs.apart), (of_b, inputs.apart), (1.0, torch.arange(1))]
        free = torch.cat([torch.full((len(span),), part > 0) for part, span in spans]).to(known.device)
        missing = aim.double()[:, units] - known @ weights.mT
        some = known[:, free]
        gram = some.mT @ some
        ridge = RIDGE * gram.diagonal().mean() * torch.eye(len(gram)).to(gram)
        weights[:, free] += torch.linalg.solve(gram + ridge, some.mT @ missing).mT
        rows.append(weights)
    layer = nn.Linear(inputs.width, outputs.width, device=values.device, dtype=one.weight.dtype)
    solved = torch.cat(rows)
    layer.weight.copy_(solved[:, :-1])
    layer.bias.copy_(solved[:, -1])
    return layer


def _with_bias(layer: nn.Linear) -> Tensor:
    bias = layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias
    return torch.cat([layer.weight, bias[:, None]], dim=1).double()
