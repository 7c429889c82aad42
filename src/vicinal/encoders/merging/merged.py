"""Two networks of one architecture become one."""

import copy
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from vicinal.core import check_choice
from vicinal.core.checks import check_between
from vicinal.encoders.merging.matching import activation_matching, sinkhorn_matching, weight_matching
from vicinal.encoders.merging.partial import partly_merged
from vicinal.encoders.merging.units import Axes, Orders, permuted, same_input, unit_axes
from vicinal.encoders.projector import MemberProjectors, Projector

Network = TypeVar("Network", bound=nn.Module)
By = Literal["weights", "activations", "sinkhorn", "none"]


def merge(
    a: Network,
    b: Network,
    data: Any = None,
    *,
    by: By = "weights",
    weight: float = 0.5,
    budget: float | None = None,
    outputs: bool = False,
) -> Network:
    r"""One network of two of the same architecture, as when two teams trained the same encoder on their rows.

    $(1 - t)\, a + t\, \pi(b)$: the hidden units of b are reordered to match the units of a that they are most like,
    which does not change what b computes; then parameters are averaged. Units are matched between the linear layers of
    ``nn.Sequential`` chains (see :func:`unit_axes`); everything else is averaged as it is, which is right for two
    networks that were tuned from the same start.

    Args:
        a: an encoder or projector.
        b: another of the same class and shapes.
        data: rows as the networks take them, without labels. They recompute the statistics of batch norms between
            layers, whose inputs are no longer those of a or b. Needed for ``by="activations"`` and for ``budget``.
        by: how units are matched, "weights", "activations", "sinkhorn" (:func:`sinkhorn_matching`), or "none".
        weight: t, the share of b, from 0 to 1.
        budget: None: the size of a. A number >= 1: a wider network of at most this many times the parameters, in which
            units that differ stand side by side, for a chain, a ``Projector`` or ``MemberProjectors``
            (:func:`partly_merged`; equal parts).
        outputs: whether outputs may be reordered too, as in embeddings that are only compared.

    Returns:
        A new network; a and b are unchanged. A batch norm at the start is that of a.

    Raises:
        ValueError: for networks that differ, or settings that do not fit together.

    Paper: Git Re-Basin, arXiv:2209.04836; PLeaS, arXiv:2407.02447.

    >>> a = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2))
    >>> b = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2))
    >>> merge(a, b, torch.randn(20, 3), by="activations")(torch.randn(4, 3)).shape
    torch.Size([4, 2])
    """
    check_choice("by", by, ("weights", "activations", "sinkhorn", "none"))
    check_between("weight", weight, 0, 1, closed=True)
    shapes = [{name: value.shape for name, value in model.state_dict().items()} for model in (a, b)]
    if type(a) is not type(b) or shapes[0] != shapes[1]:
        raise ValueError("b: expected a network of the class and shapes of a, got another")
    if data is None and (by == "activations" or budget is not None):
        raise ValueError(f"data: expected rows for {'by' if budget is None else 'budget'}=, got None")
    if budget is not None and weight != 0.5:
        raise ValueError(f"weight: expected 0.5 with budget=, got {weight}")
    settings = _Settings(data, by, weight, budget, outputs)
    if isinstance(a, MemberProjectors) and isinstance(b, MemberProjectors):
        return settings.members(a, b)  # type: ignore[return-value]
    if budget is None:
        return settings.averaged(a, b)
    if isinstance(a, Projector) and isinstance(b, Projector):
        return _as_projector(a, settings.wider(a.layers, b.layers))  # type: ignore[return-value]
    if isinstance(a, nn.Sequential) and isinstance(b, nn.Sequential):
        return settings.wider(a, b)  # type: ignore[return-value]
    raise ValueError(f"budget: expected None for a {type(a).__name__}, got {budget}")


class _Settings:
    """Arguments of :func:`merge` that hold for each part of the networks."""

    def __init__(self, data: Any, by: By, weight: float, budget: float | None, outputs: bool) -> None:  # noqa: FBT001
        self.data, self.by, self.weight, self.budget, self.outputs = data, by, weight, budget, outputs

    def matched(self, a: Network, b: Network) -> tuple[Network, Network, Axes, Orders]:
        """Copies of both in evaluation, with one batch norm at the start, and how their units go together."""
        a, b = copy.deepcopy(a).eval(), copy.deepcopy(b).eval()
        for one, other in zip(a.modules(), b.modules(), strict=True):
            if isinstance(one, nn.Sequential) and isinstance(other, nn.Sequential):
                same_input(one, other)
        axes = unit_axes(a, outputs=self.outputs)
        match self.by:
            case "weights":
                orders = weight_matching(a.state_dict(), b.state_dict(), axes)
            case "activations":
                orders = activation_matching(a, b, self.data, axes)
            case "sinkhorn":
                orders = sinkhorn_matching(a.state_dict(), b.state_dict(), axes)
            case _:
                units = {u: len(a.get_parameter(n)) for n, (u, *_) in axes.items() if u and n.endswith("weight")}
                orders = {unit: torch.arange(count) for unit, count in units.items()}
        return a, b, axes, orders

    @torch.no_grad()
    def averaged(self, a: Network, b: Network) -> Network:
        """A network of the size of a."""
        merged, other, axes, orders = self.matched(a, b)
        moved = permuted(other.state_dict(), axes, orders)
        for name, value in merged.state_dict().items():
            if value.is_floating_point():
                value.lerp_(moved[name], self.weight)
        if self.data is not None and 0 < self.weight < 1:
            _renew_statistics(merged, axes, self.data)
        return merged.train(a.training)

    def wider(self, a: nn.Sequential, b: nn.Sequential) -> nn.Sequential:
        """A chain within the budget."""
        merged, other, axes, orders = self.matched(a, b)
        return partly_merged(merged, other, self.data, axes, orders, budget=self.budget or 1).train(a.training)

    def members(self, a: MemberProjectors, b: MemberProjectors) -> MemberProjectors:
        """Member by member, all with the batch norm of a's inputs."""
        chains = []
        for member in range(a.members):
            pair = _chain(a, member), _chain(b, member)
            chains.append(self.averaged(*pair) if self.budget is None else self.wider(*pair))
        sizes = [step.out_features for step in chains[0] if isinstance(step, nn.Linear)]
        merged = MemberProjectors(a.in_dim, sizes, a.dropout, members=a.members, final_tanh=a.final_tanh)
        merged.to(a.gain).norms[0].load_state_dict(a.norms[0].state_dict())
        for member, chain in enumerate(chains):
            merged.load_member_state(member, _member_state(chain))
        return merged.train(a.training)


def _renew_statistics(model: nn.Module, axes: Axes, data: Any) -> None:
    """Statistics of batch norms between layers, over all rows of the data at once."""
    norms = [m for name, m in model.named_modules() if isinstance(m, nn.BatchNorm1d) and f"{name}.running_mean" in axes]
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    if norms:
        model(data)
    for norm, momentum in zip(norms, before, strict=True):
        norm.momentum = momentum
    model.eval()


def _as_projector(a: Projector, chain: nn.Sequential) -> Projector:
    sizes = [step.out_features for step in chain if isinstance(step, nn.Linear)]
    projector = Projector(a.in_dim, sizes, a.dropout)
    projector.layers = chain
    return projector.train(a.training)


def _chain(projectors: MemberProjectors, member: int) -> nn.Sequential:
    """One member as batch norms, linear layers and tanh."""
    state = projectors.member_state(member)
    chain = nn.Sequential()
    for layer in range(len(projectors.sizes)):
        weight = state[f"weights.{layer}"]
        chain.append(nn.BatchNorm1d(len(weight), device=weight.device, dtype=weight.dtype))
        chain[-1].load_state_dict(  # the first has its gain and offset apart
            {"weight": state.get("gain"), "bias": state.get("offset")}
            | {name.rpartition(".")[2]: value for name, value in state.items() if name.startswith(f"norms.{layer}.")}
        )
        chain.append(nn.Linear(weight.shape[0], weight.shape[1], device=weight.device, dtype=weight.dtype))
        chain[-1].load_state_dict({"weight": weight.mT, "bias": state[f"biases.{layer}"]})
        if layer + 1 < len(projectors.sizes) or projectors.final_tanh:
            chain.append(nn.Tanh())
    return chain


def _member_state(chain: nn.Sequential) -> dict[str, Tensor]:
    """What :func:`_chain` reads."""
    norms = [step for step in chain if isinstance(step, nn.BatchNorm1d)]
    linears = [step for step in chain if isinstance(step, nn.Linear)]
    state = {"gain": norms[0].weight.detach(), "offset": norms[0].bias.detach()}
    for layer, (norm, linear) in enumerate(zip(norms, linears, strict=True)):
        state |= {f"norms.{layer}.{name}": value for name, value in norm.state_dict().items()}
        state |= {f"weights.{layer}": linear.weight.detach().mT, f"biases.{layer}": linear.bias.detach()}
    return state
