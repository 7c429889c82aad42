"""How a model trained by a matching loss is read out: the mean of labels, that and a constant, or its link's mean.

Proposition 1 of Selective Matching Losses: under a link h the prediction of least expected loss is the h-mean of the
labels, not their mean, by which a network is trained. With weights that are too wide or too narrow it may still be the
worse one, so rows that training has not seen decide, by that loss.
"""

from typing import Any

import torch
from torch import Tensor

from vicinal.estimators.fitted import FittedModel, weighted_mean
from vicinal.estimators.label_codec import LabelCodec
from vicinal.estimators.target_transform import PLAIN, TargetTransform
from vicinal.heads.kinds import weighs_locally
from vicinal.links import Curve, parse
from vicinal.losses.spec import matching_link

PARTS = 5
"""Parts of the rows held out; each is read out by what the others choose."""

CAP = 2.0
"""Spreads from the median from where on a link that grows exponentially goes on straight."""

_STEPS = 80
"""Halvings of the interval of the constant."""


def read_by_loss(codec: LabelCodec, settings: dict[str, Any]) -> bool:
    """Whether a network of these labels is read out as its loss has it: a matching loss of one number as it is."""
    loss = settings["loss"]
    plain = codec.kind == "numbers" and codec.targets is None and codec.transform.base == PLAIN
    neighbors = settings["head"] == "nona" and settings["readout"] != "dense"
    return plain and neighbors and isinstance(loss, str) and matching_link(loss) is not None


@torch.no_grad()
def with_loss_readout(model: FittedModel, settings: dict[str, Any]) -> FittedModel:
    """The model with the readout of least matching loss on rows held out, or out of fold.

    The constant is fitted to these rows, too; its loss is that of each fifth of them with the constant of the others.
    """
    head = model.network.head
    if not read_by_loss(model.codec, settings) or (weighs_locally(head) and not head.convex):
        return model
    text = str(matching_link(settings["loss"]))
    curve, bank = parse(text), model.bank
    said, rows, at = model.honest_predictions()
    said, truth, mass = said.double(), rows.labels[at].double(), rows.mass[at].double()
    codes = rows.store.group_codes
    parts = (torch.arange(len(at)) if codes is None else codes[at]) % PARTS
    moved = said.clone()
    for part in sorted(set(parts.tolist())):
        here = parts == part
        moved[here] += constant_of(curve, said[~here], truth[~here], mass[~here])
    tried = [(PLAIN, said), (TargetTransform(constant=constant_of(curve, said, truth, mass)), moved)]
    try:
        linked = TargetTransform.of_link(text, CAP, bank.labels, bank.mass, PLAIN, unit=False)
        one = model.read_out_by(linked)
        tried.append((linked, one.in_label_units(one.honest_predictions()[0]).double()))
    except ValueError:  # the link has no inverse, or no value where predictions may be
        pass
    losses = [weighted_mean(curve.divergence(one, truth).nan_to_num(torch.inf), mass) for _, one in tried]
    return model.read_out_by(tried[losses.index(min(losses))][0])


def readout_sentences(model: FittedModel, settings: dict[str, Any]) -> list[str]:
    """Which readout was chosen, of a network that was trained by a matching loss; else nothing."""
    if model.metric != "network" or not read_by_loss(model.codec, settings):
        return []
    scale = model.codec.transform
    chosen = "the link's mean" if scale.name == "link" else "the mean and a constant" if scale.constant else "the mean"
    return [
        "Of the mean of neighbors' labels, that and a constant, and their mean under the link of the loss, "
        f"{chosen} is read out: it has the least loss on rows that training did not see."
    ]


def constant_of(curve: Curve, prediction: Tensor, truth: Tensor, mass: Tensor) -> float:
    r"""The constant c of least mean loss of $\hat y + c$: $\sum_i m_i (h(\hat y_i + c) - h(y_i)) = 0$, by bisection.

    Args:
        curve: h.
        prediction: ``[n]``.
        truth: ``[n]``.
        mass: m ``[n]``, > 0.

    >>> from vicinal.links import Exp
    >>> y = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    >>> round(constant_of(Exp(), torch.zeros_like(y), y, torch.ones_like(y)), 2)  # the logarithm of the mean of e^y
    1.31
    """
    gaps = truth - prediction
    low, high = float(gaps.min()), float(gaps.max())
    for _ in range(_STEPS):
        middle = (low + high) / 2
        above = float((mass * curve.rise(prediction + middle, truth)).sum()) > 0
        low, high = (low, middle) if above else (middle, high)
    return (low + high) / 2
