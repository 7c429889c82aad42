"""Which axis of which parameter counts the hidden units of a network, and networks whose units change places."""

from collections.abc import Mapping
from itertools import takewhile

import torch
from torch import Tensor, nn

Axes = dict[str, tuple[str | None, ...]]
"""Name of a tensor -> for each of its axes, the name of the units that it counts, or None."""
Orders = dict[str, Tensor]
"""Name of units -> int64 ``[h]``: the unit that goes to each place."""

PER_UNIT = (
    nn.BatchNorm1d, nn.Dropout, nn.ELU, nn.GELU, nn.Hardtanh, nn.Identity, nn.LeakyReLU, nn.ReLU, nn.SELU, nn.SiLU,
    nn.Sigmoid, nn.Softplus, nn.Tanh,
)  # fmt: skip
"""Modules that treat each unit alone."""


def unit_axes(model: nn.Module, *, outputs: bool = False) -> Axes:
    """The axes of hidden units: between two linear layers of a ``nn.Sequential`` with nothing but per-unit modules.

    These are activations, dropout and batch norms. Units are named after the layer that computes them.

    Args:
        model: any network; what is outside of such chains has no units that could change places.
        outputs: whether what the last linear layer computes are units as well: right where only scores of the output
            count, as those of embeddings, which no order of their numbers changes.

    >>> unit_axes(nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2)))
    {'0.weight': ('0', None), '0.bias': ('0',), '2.weight': (None, '0'), '2.bias': (None,)}
    """
    axes: Axes = {}
    for path, module in model.named_modules():
        if isinstance(module, nn.Sequential):
            axes |= _chain_axes(f"{path}." if path else "", module, outputs=outputs)
    return axes


def _chain_axes(path: str, chain: nn.Sequential, *, outputs: bool) -> Axes:
    """The axes of the linear layers of one chain and of the norms behind them.

    The units that a layer computes have a name only if a linear layer reads them next: that layer's columns change
    places with them, while any other module (a layer norm, a convolution) may depend on their order.
    """
    steps = [(f"{path}{name}", module) for name, module in chain.named_children()]
    axes: Axes = {}
    reads = None  # the units that the next linear layer reads
    for place, (name, module) in enumerate(steps, start=1):
        if not isinstance(module, nn.Linear):
            continue
        between = list(takewhile(lambda step: isinstance(step[1], PER_UNIT), steps[place:]))
        reader = steps[place + len(between) :][:1]  # none behind the last layer
        free = isinstance(reader[0][1], nn.Linear) if reader else outputs
        makes = name if free else None
        axes |= {f"{name}.weight": (makes, reads), f"{name}.bias": (makes,)}
        for key, norm in between:
            axes |= {f"{key}.{part}": (makes,) for part, value in norm.state_dict().items() if value.ndim}
        reads = makes
    there = {f"{path}{name}" for name in chain.state_dict()}
    return {name: units for name, units in axes.items() if name in there}


def check_axes(a: Mapping[str, Tensor], b: Mapping[str, Tensor], axes: Axes) -> dict[str, int]:
    """How many units there are of each name.

    Raises:
        ValueError: for parameters that are not there, of other shapes, or whose axes disagree about the units.
    """
    counts: dict[str, int] = {}
    for name, units in axes.items():
        if name not in a or name not in b:
            raise ValueError(f"{'b' if name in a else 'a'}: expected the parameter {name!r}, got none")
        if a[name].shape != b[name].shape or a[name].ndim != len(units):
            shapes = f"{tuple(a[name].shape)} and {tuple(b[name].shape)}"
            raise ValueError(f"b: expected {name!r} of the shape in a with {len(units)} axes, got {shapes}")
        for unit, size in zip(units, a[name].shape, strict=True):
            if unit is not None and counts.setdefault(unit, size) != size:
                raise ValueError(f"axes: expected {counts[unit]} units {unit!r} in {name!r}, got {size}")
    return counts


def permuted(state: Mapping[str, Tensor], axes: Axes, orders: Orders, *, but: str | None = None) -> dict[str, Tensor]:
    """Parameters with their units in another order: the network computes the same.

    Args:
        state: parameters or a ``state_dict``; tensors without axes stay as they are.
        axes: see :func:`unit_axes`.
        orders: the unit that goes to each place.
        but: units that stay where they are.

    >>> permuted({"w": torch.tensor([1.0, 2.0])}, {"w": ("u",)}, {"u": torch.tensor([1, 0])})
    {'w': tensor([2., 1.])}
    """
    moved = dict(state)
    for name, units in axes.items():
        for axis, unit in enumerate(units):
            if unit in orders and unit != but:
                moved[name] = moved[name].index_select(axis, orders[unit].to(moved[name].device))
    return moved


@torch.no_grad()
def same_input(a: nn.Sequential, b: nn.Sequential) -> None:
    r"""Give two chains that begin with a batch norm the statistics of a, in place; both compute what they did.

    In evaluation $g (x - m) / s + o$ is linear in $(x - m_a) / s_a$, so the first linear layers take up g, o and the
    difference of the statistics.
    """
    places = [place for place, step in enumerate(a) if isinstance(step, nn.Linear)]
    first = a[0] if places else None
    if not isinstance(first, nn.BatchNorm1d) or first.running_mean is None or first.running_var is None:
        return
    if not all(isinstance(a[place], nn.Dropout | nn.Identity) for place in range(1, places[0])):
        return
    shared = {"running_mean": first.running_mean.clone(), "running_var": first.running_var.clone()}
    for chain in (b, a):
        norm, state, layer = chain[0], chain[0].state_dict(), chain[places[0]].state_dict()
        scale = state.get("weight", 1.0) / (state["running_var"] + first.eps).sqrt()
        moved = state.get("bias", 0.0) + scale * (shared["running_mean"] - state["running_mean"])
        layer["bias"] += layer["weight"] @ moved
        layer["weight"] *= scale * (shared["running_var"] + first.eps).sqrt()
        plain = {"weight": torch.ones_like(scale), "bias": torch.zeros_like(scale)} | shared
        norm.load_state_dict({name: plain.get(name, value) for name, value in state.items()})
