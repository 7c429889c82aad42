"""Many small networks as stacked tensors: the library's projector and heads with a leading dimension of members.

``M = G * K`` members: G streams (a split with its order of rows) times K members a stream, which see the same batches.
Members share nothing but the batches, so each is trained exactly as if it were alone; what is shared is the cost of
gathering and normalizing inputs, and the overhead of each operation.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vicinal.encoders import Projector
from vicinal.heads import NONA, Dense
from vicinal.masks import SoftStep

MOMENTUM, EPS = 0.1, 1e-5  # of torch's batch norm


@dataclass(frozen=True)
class Recipe:
    """How a group of members is built and trained.

    Attributes:
        sizes: of the projector's two layers.
        final_tanh: whether the last layer has its tanh.
        bias_at_mean: whether the dense head's bias starts at the mean label; otherwise at torch's random start.
        dense: weight of the dense readout's squared error; likewise the three below.
        nona: of the neighbor readout's.
        trend: of the neighbor readout's whose labels are moved by the dense head's differences.
        crps: continuous ranked probability score of the neighbor distribution.
        contrast: label-distance contrast among the scores of a batch.
        stop: readout whose validation error stops training: "dense", "nona", "both" or "trend".
        similarity: "l2", "l1", "cosine", "scaled_dot" or "squared_l2".
        mask: "s1", "s2" or None, with ``parameters`` and ``extent`` as of ``SoftStep``.
        simplex: "softmax", "sparsemax" or "entmax15".
        temperature: whether the scores are divided by a learned number, one a member.
        batch: rows of a step.
        rates: learning rate of each of the K members, or one for all; likewise ``decays`` and ``dropouts``.
        decays: decoupled weight decay.
        dropouts: before each layer.
        epochs: at most.
        patience: epochs without a better validation error.
        together: whether the members of a stream stop together, by the error of their mean.
    """

    sizes: tuple[int, int] = (200, 25)
    final_tanh: bool = True
    bias_at_mean: bool = False
    dense: float = 0.0
    nona: float = 1.0
    trend: float = 0.0
    crps: float = 0.0
    contrast: float = 0.0
    stop: str = "nona"
    similarity: str = "l2"
    mask: str | None = "s2"
    parameters: str = "pointwise"
    extent: str = "admissible"
    simplex: str = "softmax"
    temperature: bool = False
    batch: int = 32
    rates: tuple[float, ...] = (1e-3,)
    decays: tuple[float, ...] = (0.0,)
    dropouts: tuple[float, ...] = (0.0,)
    epochs: int = 200
    patience: int = 10
    together: bool = False

    def but(self, **changes) -> "Recipe":
        """The recipe with some settings changed."""
        return replace(self, **changes)

    @property
    def uses_neighbors(self) -> bool:
        """Whether training or stopping needs neighbor weights."""
        return self.stop != "dense" or any((self.nona, self.trend, self.crps, self.contrast))


def modules(recipe: Recipe, width: int, mean: float) -> tuple[Projector, Dense, NONA]:
    """One member as the library's modules, with torch's random start."""
    projector = Projector(width, recipe.sizes)
    softstep = None
    if recipe.mask is not None:
        softstep = SoftStep(recipe.sizes[-1], recipe.mask, recipe.parameters, recipe.extent)
    dense = Dense(recipe.sizes[-1], bias=mean if recipe.bias_at_mean else None)
    return projector, dense, NONA(recipe.similarity, softstep, recipe.simplex)


def stack(members: list[tuple[Projector, Dense, NONA]]) -> dict[str, Tensor]:
    """Parameters ``[M, ...]`` by name, from modules; weights are transposed to [in, out]."""

    def gather(read):
        return torch.stack([read(*member).detach().clone() for member in members])

    state = {
        "gamma1": gather(lambda p, d, n: p.layers[0].weight),
        "beta1": gather(lambda p, d, n: p.layers[0].bias),
        "w1": gather(lambda p, d, n: p.layers[1].weight.T.contiguous()),
        "b1": gather(lambda p, d, n: p.layers[1].bias),
        "gamma2": gather(lambda p, d, n: p.layers[3].weight),
        "beta2": gather(lambda p, d, n: p.layers[3].bias),
        "w2": gather(lambda p, d, n: p.layers[4].weight.T.contiguous()),
        "b2": gather(lambda p, d, n: p.layers[4].bias),
        "w": gather(lambda p, d, n: d.linear.weight[0]),
        "c": gather(lambda p, d, n: d.linear.bias),
        "log_scale": torch.zeros(len(members), 1),
    }
    mask = members[0][2].mask
    if mask is not None and mask.parameters_from == "pointwise":
        state["step_w"] = gather(lambda p, d, n: n.mask.projection.weight.T.contiguous())
        state["step_b"] = gather(lambda p, d, n: n.mask.projection.bias)
    elif mask is not None:
        state["step_b"] = gather(lambda p, d, n: n.mask.logits)
    return state


def buffers(recipe: Recipe, members: int, width: int) -> dict[str, Tensor]:
    """Running statistics ``[M, ...]`` of the two batch norms."""
    hidden = recipe.sizes[0]
    return {
        "mean1": torch.zeros(members, width),
        "var1": torch.ones(members, width),
        "mean2": torch.zeros(members, hidden),
        "var2": torch.ones(members, hidden),
    }


def _batch_statistics(x: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor, Tensor | int]:
    """Mean and biased variance ``[*, 1, f]`` over the rows of ``x [*, b, f]`` that are real, and their number."""
    if real is None:
        mean = x.mean(-2, keepdim=True)  # two plain means: torch.var_mean over this dimension is many times slower
        return mean, (x - mean).square().mean(-2, keepdim=True), x.shape[-2]
    weight = real[..., None].to(x.dtype)
    count = weight.sum(-2, keepdim=True)
    mean = (x * weight).sum(-2, keepdim=True) / count
    return mean, ((x - mean).square() * weight).sum(-2, keepdim=True) / count, count


@torch.no_grad()
def _follow(running: dict[str, Tensor], layer: str, mean: Tensor, variance: Tensor, count: Tensor | int) -> None:
    unbiased = variance * (count / (count - 1))
    running["mean" + layer].lerp_(mean.squeeze(-2), MOMENTUM)
    running["var" + layer].lerp_(unbiased.squeeze(-2), MOMENTUM)


def embed_batch(p, running, recipe: Recipe, x: Tensor, real: Tensor | None, keep: Tensor) -> Tensor:
    """Training-mode embeddings ``[M, b, d]`` of a batch ``x [G, b, f]``; ``keep [M, 1, 1]``: 1 - dropout."""
    streams, members = len(x), len(p["w1"])
    each = members // streams

    def spread(tensor):  # [G, ...] to [M, ...]
        return tensor.repeat_interleave(each, dim=0)

    mean, variance, count = _batch_statistics(x, real)
    _follow(running, "1", spread(mean), spread(variance), spread(count) if isinstance(count, Tensor) else count)
    unit = (x - mean) * (variance + EPS).rsqrt()  # [G, b, f]
    dropping = bool((keep < 1).any())
    if dropping:
        shown = spread(unit) * p["gamma1"][:, None] + p["beta1"][:, None]
        hidden = torch.baddbmm(p["b1"][:, None], _drop(shown, keep), p["w1"])
    else:  # the affine part of batch norm is taken into the weights: the same numbers, one product less backwards
        weight = p["gamma1"][:, :, None] * p["w1"]
        bias = p["b1"] + torch.bmm(p["beta1"][:, None], p["w1"])[:, 0]
        product = torch.matmul(unit[:, None], weight.unflatten(0, (streams, each))).flatten(0, 1)
        hidden = product + bias[:, None]
    hidden = hidden.tanh()
    rows = None if real is None else spread(real)
    mean, variance, count = _batch_statistics(hidden, rows)
    _follow(running, "2", mean.detach(), variance.detach(), count)
    hidden = (hidden - mean) * (variance + EPS).rsqrt() * p["gamma2"][:, None] + p["beta2"][:, None]
    z = torch.baddbmm(p["b2"][:, None], _drop(hidden, keep) if dropping else hidden, p["w2"])
    return z.tanh() if recipe.final_tanh else z


def _drop(x: Tensor, keep: Tensor) -> Tensor:
    return x * ((torch.rand_like(x) < keep).to(x.dtype) / keep)


@torch.no_grad()
def embed_rows(p, running, recipe: Recipe, member: int, x: Tensor) -> Tensor:
    """Evaluation-mode embeddings ``[n, d]`` of ``x [n, f]`` by one member."""

    def folded(layer, weight, bias):
        scale = p["gamma" + layer][member] * (running["var" + layer][member] + EPS).rsqrt()
        shift = p["beta" + layer][member] - running["mean" + layer][member] * scale
        return scale[:, None] * weight, bias + shift @ weight

    w, b = folded("1", p["w1"][member], p["b1"][member])
    hidden = torch.addmm(b, x, w).tanh_()
    w, b = folded("2", p["w2"][member], p["b2"][member])
    z = torch.addmm(b, hidden, w)
    return z.tanh_() if recipe.final_tanh else z
