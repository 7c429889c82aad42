"""What stacked members make of their embeddings: neighbor weights, readouts and losses."""

import torch
from members import Recipe
from torch import Tensor

from vicinal.blockwise.softstep import unit_width
from vicinal.masks import softstep
from vicinal.masks.simplex import resolve_simplex
from vicinal.masks.unit import row_range, told_apart, unit_scores
from vicinal.similarity.products import l2_normalize

STEP_EPS = 1e-6


def scores(recipe: Recipe, queries: Tensor, bank: Tensor) -> Tensor:
    """``[..., b, N]``, higher is more alike."""
    if recipe.similarity == "l1":
        return -torch.cdist(queries, bank, p=1.0)
    if recipe.similarity == "cosine":
        return l2_normalize(queries) @ l2_normalize(bank).mT
    if recipe.similarity == "scaled_dot":
        return queries @ bank.mT / queries.shape[-1]
    norms = queries.square().sum(-1)[..., None] + bank.square().sum(-1)[..., None, :]
    squared = (norms - 2 * (queries @ bank.mT)).relu()
    if recipe.similarity == "squared_l2":
        return -squared
    return -(squared + 1e-12).sqrt()


def weights(recipe: Recipe, p, queries: Tensor, bank: Tensor, barred: Tensor | None) -> Tensor:
    """Neighbor weights ``[..., b, N]``.

    Args:
        recipe: similarity, mask and simplex map.
        p: parameters, with the leading dimensions of ``queries``.
        queries: ``[..., b, d]``.
        bank: ``[..., N, d]``.
        barred: ``[..., b, N]``, 0 where a query may attend, -inf where not; None: everywhere.
    """
    found = scores(recipe, queries, bank)
    if recipe.temperature:
        found = found * p["log_scale"][..., None].exp()
    open_to = found if barred is None else found + barred
    if recipe.mask is not None:
        open_to = open_to + _log_mask(recipe, p, found, open_to, queries, barred)
    return open_to.softmax(-1) if recipe.simplex == "softmax" else resolve_simplex(recipe.simplex)(open_to)


def _log_mask(recipe: Recipe, p, found: Tensor, open_to: Tensor, queries: Tensor, barred: Tensor | None) -> Tensor:
    logits = p["step_b"][..., None, :]
    if "step_w" in p:
        logits = queries @ p["step_w"] + logits  # [..., b, 3]
    up = STEP_EPS + (1 - 2 * STEP_EPS) * logits.sigmoid()
    down = STEP_EPS + (1 - 2 * STEP_EPS) * (-logits).sigmoid()
    shape = softstep.StepParameters(up[..., 0:1], up[..., 1:2], up[..., 2:3], up[..., 2:3] / down[..., 2:3])
    if recipe.mask == "s2" and recipe.extent == "admissible":
        return _log_s2(found, open_to, shape, barred)
    allowed = None if barred is None else barred == 0
    span = row_range(found, allowed if recipe.extent == "admissible" else None)
    unit = unit_scores(found, span, inset=recipe.mask == "s2")
    if recipe.mask == "s2":
        log_values = softstep.log_s2(unit, shape)
        if allowed is None:
            return log_values
        alive = (allowed & (log_values > -torch.inf)).any(dim=-1, keepdim=True)
        return torch.where(alive, log_values, 0.0)
    top = (unit if allowed is None else torch.where(allowed, unit, 0.0)).amax(dim=-1, keepdim=True)
    return softstep.log_s1(unit, shape, top, STEP_EPS, STEP_EPS if recipe.extent == "all" else 0.0)


def _log_s2(found: Tensor, open_to: Tensor, shape: softstep.StepParameters, barred: Tensor | None) -> Tensor:
    """The library's ``log_s2`` of unit scores without ``torch.where``, which takes most of the time of a small step."""
    high = open_to.amax(-1, keepdim=True)
    low = (found if barred is None else found - barred).amin(-1, keepdim=True)
    width = unit_width(high - low, told_apart(found, None).of(low, high), inset=True)
    unit = (1 - ((high - found) / width).relu()).relu()
    rejected = unit.detach().sign().log()  # -inf at 0, where the next line's gradient is multiplied by a weight of 0
    return (shape.b0 - unit).relu() * shape.odds * ((unit + 1e-30).log() - shape.b0.log()) + rejected


def linear(p, z: Tensor) -> Tensor:
    """The dense head ``[..., b]``."""
    return (z @ p["w"][..., None])[..., 0] + p["c"]


def combine(stop: str, neighbor: Tensor | None, dense: Tensor, moved: Tensor | None) -> Tensor:
    """A readout out of the three: neighbors' mean label, dense head, and the neighbors' mean of the dense head."""
    if stop == "dense":
        return dense
    if stop == "nona":
        return neighbor
    return (neighbor + dense) / 2 if stop == "both" else neighbor + dense - moved


def batch_loss(recipe: Recipe, p, z: Tensor, labels: Tensor, barred: Tensor, rows: Tensor) -> Tensor:
    """Sum over members of each one's loss.

    Args:
        recipe: which terms, with their weights.
        p: parameters ``[M, ...]``.
        z: embeddings ``[M, b, d]``.
        labels: ``[M, b]`` in [0, 1].
        barred: ``[M, b, b]``, 0 or -inf.
        rows: ``[M, b]``, 1 for rows that count (real, with somebody to attend to), 0 for others.
    """
    share = rows / rows.sum(-1, keepdim=True)
    loss = z.sum() * 0.0
    dense = linear(p, z) if recipe.dense or recipe.trend else None
    if recipe.dense:
        loss = loss + recipe.dense * ((dense - labels).square() * share).sum()
    if not any((recipe.nona, recipe.trend, recipe.crps, recipe.contrast)):
        return loss
    mass = weights(recipe, p, z, z, barred)
    neighbor = (mass @ labels[..., None])[..., 0]
    if recipe.nona:
        loss = loss + recipe.nona * ((neighbor - labels).square() * share).sum()
    if recipe.trend:
        moved = neighbor + dense - (mass @ dense[..., None])[..., 0]
        loss = loss + recipe.trend * ((moved - labels).square() * share).sum()
    apart = (labels[..., :, None] - labels[..., None, :]).abs()
    if recipe.crps:
        spread = ((mass @ apart) * mass).sum(-1)
        loss = loss + recipe.crps * (((mass * apart).sum(-1) - spread / 2) * share).sum()
    if recipe.contrast:  # cross entropy to a soft neighborhood in label space
        goal = (barred - apart / 0.1).softmax(-1)
        loss = loss - recipe.contrast * ((goal * (mass + 1e-8).log()).sum(-1) * share).sum()
    return loss


@torch.no_grad()
def readouts(recipe: Recipe, p, queries: Tensor, bank: Tensor, labels: Tensor):
    """Neighbor, dense and moved predictions ``[n]`` of one member (``p`` without the leading dimension)."""
    dense = linear(p, queries)
    if not recipe.uses_neighbors:
        return None, dense, None
    mass = weights(recipe, p, queries, bank, None)
    both = mass @ torch.stack([labels, linear(p, bank)], dim=1)
    return both[:, 0], dense, both[:, 1]
