"""Which hidden units of two networks belong together: by their weights, by what they say, or by a learned order."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_integer
from vicinal.encoders.merging.units import Axes, Orders, check_axes, permuted
from vicinal.transport import assignment, soft_permutation

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""What a batch norm counts: it moves with the units, but says nothing of who belongs together."""


def unit_products(a: Mapping[str, Tensor], b: Mapping[str, Tensor], axes: Axes, orders: Orders, unit: str) -> Tensor:
    r"""$A_{ij} = \sum_t \langle a_t[i], b_t[j] \rangle$ over the parameters of a kind of units, ``[h, h]`` in float64.

    Units of other kinds stand in b as ``orders`` has them.
    """
    reading = {name: units for name, units in axes.items() if unit in units and not name.endswith(STATISTICS)}
    moved = permuted({name: b[name] for name in reading}, reading, orders, but=unit)
    total: Tensor | float = 0.0
    for name, units in reading.items():
        axis = units.index(unit)
        one, other = (x[name].detach().double().movedim(axis, 0).reshape(x[name].shape[axis], -1) for x in (a, moved))
        total = total + one @ other.mT
    return torch.as_tensor(total)


def weight_matching(
    a: Mapping[str, Tensor],
    b: Mapping[str, Tensor],
    axes: Axes,
    *,
    start: Orders | None = None,
    generator: torch.Generator | None = None,
) -> Orders:
    r"""The orders of b's hidden units in which its weights are most like those of a (Git Re-Basin).

    $\max_P \sum_t \langle a_t, P b_t \rangle$: each kind of units in turn goes to the linear assignment of the products
    of its weights, while the others stay, until no kind gains. With one hidden layer that is the optimum; with more the
    objective never falls, and where it ends may depend on the order of the visits.

    Args:
        a: parameters or a ``state_dict``; batch norms' statistics are not compared.
        b: those of a network of the same architecture.
        axes: which axes count units, as :func:`unit_axes` gives them.
        start: orders to begin with; None: b as it is.
        generator: draws the order of the visits in each pass; None: first to last.

    Returns:
        For each kind of units, int64 ``[h]``: b's unit for each unit of a, as :func:`permuted` takes it.

    Raises:
        ValueError: naming a parameter that is not there, or whose axes disagree.

    Paper: Git Re-Basin: Merging Models modulo Permutation Symmetries, arXiv:2209.04836.

    >>> a = {"in": torch.tensor([[1.0], [2.0]]), "out": torch.tensor([[3.0, 4.0]])}
    >>> b = {"in": torch.tensor([[2.0], [1.0]]), "out": torch.tensor([[4.0, 3.0]])}
    >>> weight_matching(a, b, {"in": ("u", None), "out": (None, "u")})
    {'u': tensor([1, 0])}
    """
    counts = check_axes(a, b, axes)
    orders = {unit: torch.arange(count) for unit, count in counts.items()} | (start or {})
    units, gained = list(counts), bool(counts)
    while gained:
        gained = False
        visits = range(len(units)) if generator is None else torch.randperm(len(units), generator=generator).tolist()
        for unit in map(units.__getitem__, visits):
            products = unit_products(a, b, axes, orders, unit)
            order = assignment(products).cpu()
            before, after = (products.gather(1, o.to(products.device)[:, None]).sum() for o in (orders[unit], order))
            if bool(after > before + 1e-12 * (1 + before.abs())):
                orders[unit], gained = order, True
    return {unit: order.to(next(iter(a.values())).device) for unit, order in orders.items()}


def activation_matching(a: nn.Module, b: nn.Module, data: Any, axes: Axes) -> Orders:
    r"""The orders of b's hidden units in which they say what those of a say on some rows (Git Re-Basin).

    For units with values $z^a, z^b$ over the rows, the linear assignment of $A = \sum_i z^a_i (z^b_i)^\top$: the least
    $\sum_i |z^a_i - P z^b_i|^2$. Each kind of units is matched alone, and exactly. Their values are what the next
    linear layer reads, or for outputs what the chain gives.

    Args:
        a: a network, called on ``data`` in evaluation.
        b: another of its architecture.
        data: rows, as the networks take them; the more, the surer.
        axes: see :func:`unit_axes`.

    Paper: arXiv:2209.04836.

    >>> a = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))
    >>> activation_matching(a, a, torch.randn(9, 1), {})
    {}
    """
    counts = check_axes(a.state_dict(), b.state_dict(), axes)
    ours, theirs = (unit_values(model, data, axes) for model in (a, b))
    return {unit: assignment(ours[unit].mT @ theirs[unit]) for unit in counts}


@torch.no_grad()
def unit_values(model: nn.Module, data: Any, axes: Axes) -> dict[str, Tensor]:
    """What the units say on some rows, ``[rows, h]`` in float64, for each kind of units."""
    values: dict[str, Tensor] = {}
    hooks = []

    def keep(unit: str, tensor: Tensor) -> None:
        values[unit] = tensor.detach().double().flatten(0, -2)

    readers = {units[1]: name for name, units in axes.items() if len(units) == 2 and units[1] is not None}
    for unit in {unit for units in axes.values() for unit in units if unit is not None}:
        if unit in readers:
            reader = model.get_submodule(readers[unit].rpartition(".")[0])
            hooks.append(reader.register_forward_pre_hook(lambda _, inputs, unit=unit: keep(unit, inputs[0])))
        else:
            chain = model.get_submodule(unit.rpartition(".")[0])
            hooks.append(chain.register_forward_hook(lambda _, __, out, unit=unit: keep(unit, out)))
    training = model.training
    try:
        model.eval()(data)
    finally:
        model.train(training)
        for hook in hooks:
            hook.remove()
    return values


@torch.enable_grad()
def sinkhorn_matching(
    a: Mapping[str, Tensor],
    b: Mapping[str, Tensor],
    axes: Axes,
    loss: Callable[[dict[str, Tensor]], Tensor] | None = None,
    *,
    at: Literal["a", "midpoint", "random"] = "a",
    steps: int = 100,
    learning_rate: float = 0.1,
    temperature: float = 1.0,
    sinkhorn_steps: int = 20,
    generator: torch.Generator | None = None,
) -> Orders:
    r"""The orders of b's hidden units that a gradient finds through soft permutations (Sinkhorn re-basin).

    Each kind of units has trainable scores M and the soft permutation $P = \mathrm{Sinkhorn}(M / \tau)$; b's weights
    become $P_l W_l P_{l-1}^\top$. Minimized is $\sum_t |a_t - (Pb)_t|^2$, or ``loss`` of the network halfway, or at a
    random point, between a and the permuted b. The orders are the assignment at the end.

    Args:
        a: parameters or a ``state_dict``, of which batch norms' statistics are not compared.
        b: those of a network of the same architecture.
        axes: see :func:`unit_axes`.
        loss: of parameters by name, as ``torch.func.functional_call`` takes them; needed unless ``at`` is "a".
        at: "a": squared distance to a; "midpoint" or "random": the loss there.
        steps: of Adam, >= 1.
        learning_rate: of Adam, > 0.
        temperature: $\tau > 0$.
        sinkhorn_steps: how often rows and columns are scaled; the gradient is implicit.
        generator: draws the random points.

    Raises:
        ValueError: naming the argument.

    Paper: Re-basin via implicit Sinkhorn differentiation, arXiv:2212.12042.

    >>> a = {"in": torch.tensor([[1.0], [2.0]]), "out": torch.tensor([[3.0, 4.0]])}
    >>> b = {"in": torch.tensor([[2.0], [1.0]]), "out": torch.tensor([[4.0, 3.0]])}
    >>> sinkhorn_matching(a, b, {"in": ("u", None), "out": (None, "u")})
    {'u': tensor([1, 0])}
    """
    check_choice("at", at, ("a", "midpoint", "random"))
    check_integer("steps", steps)
    check_between("learning_rate", learning_rate, 0, math.inf)
    if (loss is None) != (at == "a"):
        raise ValueError(
            f"loss: expected {'none' if loss else 'a loss'} for at={at!r}, got {'one' if loss else 'none'}"
        )
    counts = check_axes(a, b, axes)
    like = next(iter(a.values()))
    scores = {unit: like.new_zeros(count, count).requires_grad_() for unit, count in counts.items()}
    if not scores:
        return {}
    ours = {name: value.detach() for name, value in a.items() if not name.endswith(STATISTICS)}
    optimizer = torch.optim.Adam(scores.values(), lr=learning_rate)
    for _ in range(steps):
        plans = {
            unit: soft_permutation(matrix, temperature=temperature, steps=sinkhorn_steps)
            for unit, matrix in scores.items()
        }
        moved = {name: _softly(b[name].detach(), axes.get(name, ()), plans) for name in ours}
        if loss is None:
            value = torch.stack([(moved[name] - ours[name]).square().sum() for name in ours]).sum()
        else:
            t = 0.5 if at == "midpoint" else float(torch.rand((), generator=generator))
            value = loss({name: torch.lerp(ours[name], moved[name], t) for name in ours})
        optimizer.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return {unit: assignment(matrix) for unit, matrix in scores.items()}


def _softly(value: Tensor, units: tuple[str | None, ...], plans: Mapping[str, Tensor]) -> Tensor:
    """A parameter of b with its units in a soft order: row i of a plan is the mixture of units at place i."""
    for axis, unit in enumerate(units):
        if unit is not None:
            value = torch.tensordot(plans[unit], value, dims=([1], [axis])).movedim(0, axis)
    return value
