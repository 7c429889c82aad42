"""What the training of a fitted network does to its rows: which bank rows it pulls near to a row or pushes away."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vicinal.estimators.fitted import FittedModel
from vicinal.heads.forces import Forces, forces
from vicinal.heads.kinds import attends, has_members, member_heads
from vicinal.heads.nona import simplex_name


@dataclass(frozen=True)
class Force:
    """A bank row that is pulled near to a row, or pushed away from it.

    Attributes:
        id: of the bank row.
        weight: its share of the prediction.
        label: its label.
        pair: its term of pairs in the row's squared error, at least 0.
        triplet: its term of triplets: below 0 where rows on the other side of the label make up for it.
        pull: above 0, training pulls it nearer; below 0, it pushes it away: by how much the squared error falls for
            each unit that its score rises. The pulls on all rows of the bank sum to 0.
    """

    id: Any
    weight: float
    label: Any
    pair: float
    triplet: float
    pull: float


@dataclass(frozen=True)
class RowForces:
    """The squared error of a row as terms of pairs and of triplets (NONA, section 4.1), and where it pushes and pulls.

    Attributes:
        error: squared error of the row, on the scale of ``target_transform``; of several members, which are each
            trained on their own error, its mean.
        pairs: sum of the terms of pairs; with ``triplets`` it is ``error``.
        triplets: sum of the terms of triplets.
        neighbors: the bank rows with the strongest pulls, of either sign, strongest first.
    """

    error: float
    pairs: float
    triplets: float
    neighbors: tuple[Force, ...]

    def __str__(self) -> str:
        """One line: ``error 4 = pairs 9 - triplets 5; pulls 17 (label 3), pushes 4 (label 9)``."""
        sign = "-" if self.triplets < 0 else "+"
        parts = [
            f"{'pulls' if n.pull > 0 else 'pushes'} {n.id} (label {n.label:.4g})" for n in self.neighbors if n.pull
        ]
        terms = f"error {self.error:.3g} = pairs {self.pairs:.3g} {sign} triplets {abs(self.triplets):.3g}"
        return "; ".join([terms, ", ".join(parts)] if parts else [terms])


def row_forces(
    model: FittedModel, queries: Tensor, labels: Tensor, query_identity: Mapping[str, Any], k: int
) -> list[RowForces]:
    """Of embedded rows ``[b, d]`` with ``labels [b]`` on the head's scale: the ``k`` strongest pulls of each.

    Raises:
        ValueError: for another readout than attention, weights of rows, several targets, or a simplex map of the user's
            own.
    """
    heads = member_heads(model.network.head)
    if not all(attends(one) for one in heads):
        raise ValueError("forces: expected readout='attention' of a network, got another readout")
    if model.bank.weighted or labels.ndim != 1:
        raise ValueError("forces: expected one number a row and rows without weights, got others")
    result: list[RowForces] = []
    for part, identity in model.query_blocks(queries, model.bank.identity(**query_identity)):
        weights, moved = _of_members(model, heads, part, labels[len(result) : len(result) + len(part)], identity)
        strongest = moved.pull.abs().topk(min(k, len(model.bank)), dim=1).indices
        places = model.bank.store.ids_of_keys(model.bank.store.keys[strongest.flatten()])
        ids = [places[start : start + strongest.shape[1]] for start in range(0, len(places), strongest.shape[1])]
        shown = model.bank.labels[strongest].tolist()
        columns = [each.gather(1, strongest).tolist() for each in (weights, moved.pairs, moved.triplets, moved.pull)]
        totals = zip(moved.pairs.sum(1).tolist(), moved.triplets.sum(1).tolist(), strict=True)
        for row, (pairs, triplets) in enumerate(totals):
            each = zip(ids[row], shown[row], *(column[row] for column in columns), strict=True)
            near = tuple(Force(name, w, label, *terms) for name, label, w, *terms in each)
            result.append(RowForces(pairs + triplets, pairs, triplets, near))
    return result


@torch.no_grad()
def _of_members(
    model: FittedModel, heads: list[Any], queries: Tensor, labels: Tensor, identity: Mapping[str, Tensor | None]
) -> tuple[Tensor, Forces]:
    """Mean weights ``[b, N]`` of the members, and their mean forces."""
    head, bank = model.network.head, model.bank.vectors
    sides = [head.columns(rows, "rows") if has_members(head) else (rows,) for rows in (queries, bank)]
    weights: list[Tensor] = []
    parts: list[Forces] = []
    for one, some, rows in zip(heads, *sides, strict=True):
        name = simplex_name(one.simplex)
        if name is None:
            raise ValueError(f"simplex: expected softmax, entmax15 or sparsemax, got {one.simplex!r}")
        weights.append(one.weights(some, rows, **identity))
        parts.append(forces(weights[-1], model.bank_labels().to(weights[-1]), labels.to(weights[-1]), name))
    return torch.stack(weights).mean(0), Forces(*(torch.stack(each).mean(0) for each in zip(*parts, strict=True)))
