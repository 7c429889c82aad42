"""A fitted model with fewer numbers: thinner tables and layers, shorter vectors in the bank, or fewer rows."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans
from torch import Tensor, nn

from vicinal.core.checks import check_between
from vicinal.encoders import MemberProjectors, PrincipalProjector
from vicinal.encoders.ngrams import NgramEncoder
from vicinal.estimators.bank import Bank, embedded
from vicinal.estimators.banked import CELLS, BankedEstimator
from vicinal.estimators.kernel_metric import encoded
from vicinal.factorization import LowRank, low_rank
from vicinal.heads.kinds import member_heads, weighs_locally
from vicinal.masks import SoftStep
from vicinal.metrics import pca_dimension
from vicinal.training.rows import spread

_ROTATED = {"l2": True, "squared_l2": True, "cosine": False, "dot": False}
"""Similarities that a rotation of the vectors leaves as they are, and whether a shift does, too."""

_ROUNDS = 8
"""In which rows are added to a smaller bank."""

_COMPARED = 8192
"""Rows to choose from, at most, unless half of them are wanted."""


@dataclass(frozen=True)
class Cut:
    """What became of a part: numbers ``before`` and ``after``, and ``how``, or why it was left as it is."""

    part: str
    before: int
    after: int
    how: str


def compressed(model: BankedEstimator, keep: float, variance: float | None = None) -> tuple[BankedEstimator, list[Cut]]:
    r"""A copy of the model of which the share ``keep`` of the numbers of each part is left, and what became of each.

    - The table of n-grams, and the members' first layers together, become two thin ones, by
      :func:`vicinal.factorization.low_rank`: the table plainly or with rows weighted by how often they are read,
      whichever has less error on the rows held out or out of fold; the layers by the covariance of what they give. That
      needs the rows' cells, which the bank has of texts, numbers and categories; their vectors are computed again.
    - Vectors of the bank, and the last layer, are cut to the principal components of each member's vectors; of a model
      of ``learn`` to those of all. Distances change little then; inner products and cosines, too.

    Args:
        model: fitted, whose projector is trained, without an index.
        keep: above 0, below 1.
        variance: None, or vectors are cut to as many components as hold this share of their variance (of each member's,
            the most), whatever ``keep``: :func:`vicinal.metrics.pca_dimension`.

    Raises:
        ValueError: for a model of which nothing can be cut, in one sentence.
    """
    check_between("keep", keep, 0, 1)
    if variance is not None:
        check_between("variance", variance, 0, 1)
    similarity = "l2" if weighs_locally(model.network_.head) else str(model.similarity)
    _check(
        model,
        (
            model.metric_ == "kernel",
            "has a trained network, got one with a kernel, which is as short as its columns are many; rows= (--rows "
            "0.1) keeps fewer rows",
        ),
        (similarity not in _ROTATED, f"compares by {', '.join(_ROTATED)}, got {similarity!r}"),
    )
    small, cuts = copy.deepcopy(model), []
    projector = small.network_.projector
    if isinstance(projector, PrincipalProjector):
        cuts.append(_shorter_learned(small, projector, keep, variance))
    elif set(model.kinds_.values()) <= set(CELLS):
        for step in (_thinner_table, _thinner_first_layer):
            tried = list(step(small, keep))
            if tried:
                small, cut = min(tried, key=lambda pair: pair[0].honest_error())
                cuts.append(cut)
    else:
        size = sum(value.numel() for value in projector.parameters())
        cuts.append(Cut("first layer", size, size, "left, as the bank keeps no images, sounds, vectors or sets"))
    projector = small.network_.projector  # another one if its first layer is two now
    if isinstance(projector, MemberProjectors):
        cuts.append(_shorter_members(small, projector, keep, variance))
    return small, cuts


@torch.no_grad()
def fewer_rows(model: BankedEstimator, share: float) -> tuple[BankedEstimator, Cut]:
    """A copy of the model with a share of its bank's rows, chosen so that it predicts as with all of them.

    Rows are those nearest to the means of k-means; or the first eighth are, and others are added seven times where
    predictions of all rows, each without itself, differ most from those of the whole bank (of each addition the next
    is the one with the largest product of difference and squared distance to those before it). Whichever of the two
    differs less is taken. Rows keep their labels and weights: to weight them by the number of rows that each stands
    for gained nothing.

    Args:
        model: fitted, with rows held out, and without an index.
        share: of the rows, above 0 and below 1; at least one row of each class is kept, and eight.

    Raises:
        ValueError: for another model, in one sentence.
    """
    check_between("rows", share, 0, 1)
    of_similarity = not hasattr(model, "predict"), "predicts, got one of similarity"
    _check(model, of_similarity, (not len(model.calibration_), "held rows out, to measure on, got one without"))
    bank, named = model.bank_, hasattr(model, "classes_") and not model.multilabel_
    first = sorted(set(bank.labels.tolist())) if named else []
    size = min(len(bank), max(round(share * len(bank)), _ROUNDS, len(first)))
    at = spread(len(bank), max(_COMPARED, 2 * size))
    queries, who = bank.vectors[at].double(), bank.who(at)

    def predicted(one: BankedEstimator) -> Tensor:
        return one.fitted_.answer(queries, who).double().reshape(len(at), -1)

    whole, step = predicted(model), -(-size // _ROUNDS)
    if named:  # the surest row of each class
        sure = whole.gather(1, bank.labels[at, None].long())[:, 0]
        first = [int((sure - 2.0 * (bank.labels[at] != label)).argmax()) for label in first]
    tried = []
    for start in (max(step, 2), size - len(first)):
        chosen = list(dict.fromkeys([*first, *_near_means(queries, start)]))[:size]
        while len(chosen) < size:
            gap = (predicted(_with_rows(model, at[chosen])) - whole).abs().sum(1).clamp(min=1e-12)
            apart = torch.ones_like(gap)
            gap[chosen] = -1.0
            for place in range(min(step, size - len(chosen))):
                chosen.append(int((gap * apart).argmax()))
                far = (queries - queries[chosen[-1]]).square().sum(1)
                apart = far if place == 0 else torch.minimum(apart, far)
                gap[chosen[-1]] = -1.0
        few = _with_rows(model, at[chosen].sort().values)
        tried.append((float((predicted(few) - whole).square().sum()), few))
    small = min(tried, key=lambda pair: pair[0])[1]
    how = f"{size:,} of {len(bank):,} rows, those that predict as all do"
    return small, Cut("rows of the bank", bank.vectors.numel(), small.bank_.vectors.numel(), how)


def _near_means(vectors: Tensor, count: int) -> list[int]:
    """Positions of the rows nearest to the means of k-means."""
    if count < 1:
        return []
    means = KMeans(count, n_init=1, random_state=0).fit(vectors.numpy()).cluster_centers_
    return [int((vectors - mean).square().sum(1).argmin()) for mean in torch.from_numpy(means)]


def _with_rows(model: BankedEstimator, at: Tensor) -> BankedEstimator:
    """The model over some rows of its bank."""
    small = copy.copy(model)
    small.bank_ = model.bank_.take(at.numpy())
    return small


def _check(model: BankedEstimator, *further: tuple[bool, str]) -> None:
    """Raise ValueError for a model without a bank, with an index, or of which one of ``further`` is true."""
    for wrong, sentence in (
        (not model.network_.head.uses_bank, "predicts from neighbors, got one with head='dense'"),
        (model.index is not None, f"has no index, got {model.index!r}; load it with index=None"),
        *further,
    ):
        if wrong:
            raise ValueError(f"model: expected one that {sentence}")


def _inputs(model: BankedEstimator, bank: Bank) -> object:
    encoder, root = model.table_encoder, None if model.root is None else Path(model.root)
    return encoder.cache(encoder.prepare(bank.rows, root))


def _with_vectors(model: BankedEstimator, vectors_of: Callable[[Bank], Tensor]) -> BankedEstimator:
    """The model with other vectors of its rows, in place."""
    for name in ("bank_", "calibration_"):
        bank: Bank = getattr(model, name)
        setattr(model, name, bank.take(np.arange(len(bank)), vectors_of(bank)))
    return model


def _embedded_again(model: BankedEstimator) -> BankedEstimator:
    """The model with vectors of its rows as its network gives them now."""

    def anew(bank: Bank) -> Tensor:
        return embedded(model.network_, _inputs(model, bank), torch.float32) if len(bank) else bank.vectors  # type: ignore[arg-type]

    return _with_vectors(model, anew)


def _rank(keep: float, rows: int, columns: int) -> int:
    """The rank at which two factors have the share ``keep`` of the numbers of a matrix; 0 if there is none."""
    return min(int(keep * rows * columns / (rows + columns)), min(rows, columns) - 1)


def _trained(model: BankedEstimator) -> Tensor:
    """Positions of the bank's rows that were not held out."""
    return torch.from_numpy(~model.calibration_.has(model.bank_.ids)).nonzero()[:, 0]


def _thinner_table(model: BankedEstimator, keep: float) -> Iterator[tuple[BankedEstimator, Cut]]:
    """Models with a thinner table of n-grams, each by another weighting."""
    parts = model.table_encoder.encoders
    tables = [(place, part) for place, part in enumerate(parts) if isinstance(part, NgramEncoder)]
    for place, part in tables if len(tables) == 1 and tables[0][1].rank is None else []:
        weight = part.table.weight.detach()
        rank = _rank(keep, *weight.shape)
        if rank < 1:
            return
        at = _trained(model)
        values = part.prepare(model.bank_.store.rows_at(at)).values.long()
        reads = torch.bincount(values, minlength=len(weight)).float()
        for how, counts in (("plain", None), ("weighted by reads", reads)):
            factors = low_rank(weight, rank, row_weight=counts)
            thin = NgramEncoder.from_config(part.config() | {"rank": rank})
            thin.load_state_dict({"slots": part.slots, "table.weight": factors.left, "widening": factors.right})
            other = copy.deepcopy(model)
            other.table_encoder.parts[place] = thin.eval()
            yield _embedded_again(other), Cut("table of n-grams", factors.before, factors.after, f"rank {rank}, {how}")


def _thinner_first_layer(model: BankedEstimator, keep: float) -> Iterator[tuple[BankedEstimator, Cut]]:
    """A model with a thinner first layer of all members together."""
    old = model.network_.projector
    if not isinstance(old, MemberProjectors) or old.rank is not None:
        return
    weight = (old.gain[:, :, None] * old.weights[0]).detach()  # [M, f, h]
    bias = (old.biases[0] + torch.bmm(old.offset[:, None], old.weights[0])[:, 0]).detach()
    joint, bias = weight.transpose(0, 1).flatten(1), bias.flatten()
    rank = _rank(keep, *joint.shape)
    if rank < 1:
        return
    at = _trained(model)
    with torch.no_grad():
        unit = old.norms[0](encoded(model.table_encoder, _inputs(model, model.bank_))[at].to(joint))  # type: ignore[arg-type]
    if len(unit) < rank:
        return
    factors = low_rank(joint, rank, outputs=unit @ joint + bias, bias=bias)
    small = copy.deepcopy(model)
    small.network_.projector = _with_factors(old, factors)
    before = old.gain.numel() + old.offset.numel() + old.weights[0].numel() + old.biases[0].numel()
    how = f"rank {rank}, by the covariance of what it gives"
    yield _embedded_again(small), Cut("first layer", before, factors.after, how)


def _with_factors(old: MemberProjectors, factors: LowRank) -> MemberProjectors:
    rank, members = factors.left.shape[1], old.members
    like: dict[str, Any] = {"members": members, "final_tanh": old.final_tanh, "rank": rank}
    new = MemberProjectors(old.in_dim, old.sizes, old.dropout, **like).to(factors.left)
    state = {name: value for name, value in old.state_dict().items() if name in new.state_dict()}
    bias = factors.bias if factors.bias is not None else torch.zeros(members * old.sizes[0])
    state |= {
        "gain": torch.ones(members, rank),
        "offset": torch.zeros(members, rank),
        "reduction": factors.left,
        "weights.0": factors.right.reshape(rank, members, -1).transpose(0, 1),
        "biases.0": bias.reshape(members, -1),
    }
    new.load_state_dict(state)
    return new.eval()


def _width(parts: Tensor, keep: float, variance: float | None) -> int:
    """Components of the vectors of members ``[n, members, d]`` that are left."""
    if variance is None:
        return max(1, int(keep * parts.shape[2]))
    return max(pca_dimension(parts[:, member], share=variance) for member in range(parts.shape[1]))


def _shorter_members(model: BankedEstimator, projector: MemberProjectors, keep: float, variance: float | None) -> Cut:
    """Cut each member's vectors to their principal components, in the model's projector, head and bank."""
    head, vectors = model.network_.head, model.bank_.vectors
    width, members = projector.sizes[-1], projector.members
    parts = vectors.double().reshape(-1, members, width)
    size = _width(parts, keep, variance)
    if projector.final_tanh or size == width or len(vectors) < size:
        why = "its last layer ends in a tanh" if projector.final_tanh else f"{width} numbers a member are few"
        return Cut("vectors of the bank", vectors.numel(), vectors.numel(), f"left, as {why}")
    shifted = weighs_locally(head) or _ROTATED[model.similarity]
    read = [one for one in (head, *(model.fold_heads_ or ())) if not weighs_locally(one)][:1]  # all the same one
    heads: list[nn.Module] = [part for one in read for part in member_heads(one)]
    turns = []
    for member in range(members):
        rows = parts[:, member]
        turn = low_rank(rows, size, outputs=rows if shifted else None).right.T  # [d, r]
        mean = rows.mean(0) if shifted else torch.zeros(width, dtype=torch.float64)
        mask = getattr(heads[member], "mask", None) if heads else None
        if isinstance(mask, SoftStep) and mask.parameters_from == "pointwise":
            _turn_mask(mask, turn, mean - turn @ (turn.T @ mean))
        turns.append(turn)
    turn = torch.stack(turns)  # [M, d, r]
    with torch.no_grad():
        projector.weights[-1] = nn.Parameter(torch.bmm(projector.weights[-1], turn.to(projector.weights[-1])))
        projector.biases[-1] = nn.Parameter(
            torch.bmm(projector.biases[-1][:, None], turn.to(projector.biases[-1]))[:, 0]
        )
    projector.sizes[-1], projector.dim = size, members * size
    model.hidden = (*model.hidden[:-1], size)

    def turned(bank: Bank) -> Tensor:
        each = bank.vectors.double().reshape(-1, members, width).transpose(0, 1)
        return torch.bmm(each, turn).transpose(0, 1).flatten(1)

    _with_vectors(model, turned)
    return Cut("vectors of the bank", vectors.numel(), model.bank_.vectors.numel(), f"{members * size} components")


def _turn_mask(mask: SoftStep, turn: Tensor, rest: Tensor) -> None:
    """Let a mask read vectors in ``turn`` in the place of the vectors themselves; ``rest`` is what all have besides."""
    old = mask.projection
    new = nn.Linear(turn.shape[1], len(old.weight)).to(old.weight)
    with torch.no_grad():
        new.weight.copy_(old.weight @ turn.to(old.weight))
        new.bias.copy_(old.bias + old.weight @ rest.to(old.weight))
    mask.projection, mask.dim = new, turn.shape[1]


def _shorter_learned(model: BankedEstimator, projector: PrincipalProjector, keep: float, variance: float | None) -> Cut:
    """Cut the vectors of a learned similarity, and its projector, to their principal components."""
    vectors = model.bank_.vectors
    size = _width(vectors.double()[:, None], keep, variance)
    turn = low_rank(vectors.double(), size).right.T
    before = vectors.numel() + projector.weight.numel()
    projector.weight = nn.Parameter(projector.weight.detach() @ turn.to(projector.weight))
    projector.dim, model.hidden = size, (size,)
    _with_vectors(model, lambda bank: nn.functional.normalize(bank.vectors.double() @ turn, dim=1))
    after = model.bank_.vectors.numel() + projector.weight.numel()
    return Cut("vectors of the bank, and the projector", before, after, f"{size} components")
