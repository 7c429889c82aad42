"""Heads for classes: nearest class means, fixed equiangular class vectors, and Frechet means over class distances."""

import math
import warnings
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_integer, check_matrices
from vicinal.masks import sparsemax
from vicinal.similarity.base import resolve_similarity
from vicinal.similarity.products import l2_normalize

_SLACK = 1e-4
"""By how much the largest |cosine| may exceed a threshold that counts as met."""

STEPS = 2.0**32
"""Steps of the fixed-point sums in a unit of the embeddings."""
LARGEST = 2.0**62

_WORK = 2e8
"""Most cosines that a search for the least looks at: seconds on one core."""
_MANY = 1000
"""More classes than these are spread until a threshold is met, not as far as possible."""


class NearestClassMean(nn.Module):
    r"""Probability of class k: $\mathrm{softmax}_k\, s(z_i, c_k) / \tau$, with $c_k$ the mean of the rows of k.

    The sums behind the means are fixed-point numbers (multiples of $2^{-32}$), so they do not depend on the order of
    rows, and forgetting a row leaves exactly what would be there without it. A class without rows has probability 0.
    Mensink et al. 2013, *Distance-Based Image Classification*; on the sphere as in arXiv:2305.09062.

    Args:
        classes: C >= 1, the classes that exist; :meth:`grow` adds more.
        dim: d, width of the embeddings.
        similarity: a registered name or a module ``sim(queries, bank) -> scores``.
        spherical: scale rows to length 1 before adding them, which gives means of directions.
        temperature: tau > 0.

    Attributes:
        sums: int64 ``[C, d]``, in steps of $2^{-32}$.
        counts: int64 ``[C]``, rows of each class.

    >>> head = NearestClassMean(2, 2)
    >>> head.add(torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]), torch.tensor([0, 1, 1]))
    >>> head(torch.tensor([[3.0, 0.0]])).argmax(1)
    tensor([0])
    >>> head.forget(torch.tensor([[1.0, 1.0]]), torch.tensor([1]))
    >>> head.means()
    tensor([[1., 0.],
            [0., 1.]], dtype=torch.float64)
    """

    def __init__(
        self,
        classes: int,
        dim: int,
        *,
        similarity: str | nn.Module = "cosine",
        spherical: bool = True,
        temperature: float = 0.1,
    ) -> None:
        super().__init__()
        check_integer("classes", classes), check_integer("dim", dim)
        self.similarity, self.spherical = resolve_similarity(similarity), spherical
        self.temperature = check_between("temperature", temperature, 0, math.inf)
        self.sums: Tensor = nn.Buffer(torch.zeros(classes, dim, dtype=torch.int64))
        self.counts: Tensor = nn.Buffer(torch.zeros(classes, dtype=torch.int64))

    @property
    def classes(self) -> int:
        """C, with or without rows."""
        return len(self.counts)

    def grow(self, classes: int) -> None:
        """Raise the number of classes to ``classes``; the new ones have no rows yet."""
        more = check_integer("classes", classes, self.classes) - self.classes
        self.sums = torch.cat([self.sums, self.sums.new_zeros(more, self.sums.shape[1])])
        self.counts = torch.cat([self.counts, self.counts.new_zeros(more)])

    @torch.no_grad()
    def add(self, embeddings: Tensor, labels: Tensor) -> None:
        """Take in rows ``[n, d]`` of classes ``[n]`` (whole numbers below ``classes``)."""
        self._change(embeddings, labels, 1)

    @torch.no_grad()
    def forget(self, embeddings: Tensor, labels: Tensor) -> None:
        """Take out rows that were added before: given the same embeddings, bit for bit, they leave no trace.

        Raises:
            ValueError: if a class has fewer rows than are taken out; nothing is changed then.
        """
        self._change(embeddings, labels, -1)

    def _change(self, embeddings: Tensor, labels: Tensor, sign: int) -> None:
        self._check(embeddings, "embeddings")
        if labels.shape != (len(embeddings),) or labels.is_floating_point() or labels.dtype == torch.bool:
            raise ValueError(
                f"labels: expected whole numbers [{len(embeddings)}], got {labels.dtype} of shape {tuple(labels.shape)}"
            )
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < self.classes:
            raise ValueError(
                f"labels: expected classes 0 to {self.classes - 1}, got {int(labels.min())}..{int(labels.max())}; "
                "call grow for new classes"
            )
        rows = embeddings.double()
        if not bool(rows.isfinite().all()):
            raise ValueError("embeddings: expected finite numbers, got NaN or inf")
        rows = (l2_normalize(rows) if self.spherical else rows) * STEPS
        reach = torch.zeros_like(self.sums, dtype=torch.float64).index_add_(0, labels, rows.abs())
        if bool((reach + self.sums.double().abs() > LARGEST).any()):
            raise ValueError("embeddings: expected sums below 2^30, got larger; scale the embeddings or use spherical")
        counts = self.counts + sign * torch.bincount(labels, minlength=self.classes)
        if bool((counts < 0).any()):
            missing = int((counts < 0).nonzero()[0])
            raise ValueError(f"labels: expected at most {int(self.counts[missing])} rows of class {missing} to forget")
        self.sums.index_add_(0, labels, rows.round().to(torch.int64), alpha=sign)
        self.counts = counts

    def means(self) -> Tensor:
        """Class means, float64 ``[C, d]``, of length 1 if spherical; NaN for a class without rows."""
        means = self.sums.double() / STEPS / self.counts[:, None]
        return torch.where(self.counts[:, None] > 0, l2_normalize(means), torch.nan) if self.spherical else means

    def scores(self, queries: Tensor) -> Tensor:
        """Similarity ``[b, C]`` of queries ``[b, d]`` with the class means; -inf for a class without rows."""
        self._check(queries, "queries")
        nonempty = self.counts > 0
        if not bool(nonempty.any()):
            raise ValueError("queries: expected a head that rows were added to, got one without any; call add first")
        means = torch.where(nonempty[:, None], self.means(), 0.0).to(torch.promote_types(queries.dtype, torch.float32))
        scores: Tensor = self.similarity(queries, means)
        return scores.masked_fill(~nonempty, -torch.inf)

    def forward(self, queries: Tensor) -> Tensor:
        """Probability of each class ``[b, C]``, rows sum to 1."""
        return (self.scores(queries) / self.temperature).softmax(dim=-1)

    def _check(self, embeddings: Any, name: str) -> None:
        check_matrices(embeddings, embeddings)
        if embeddings.shape[1] != self.sums.shape[1]:
            raise ValueError(f"{name}: expected [b, {self.sums.shape[1]}], got {tuple(embeddings.shape)}")

    def extra_repr(self) -> str:
        """Sizes, for ``print``."""
        return f"classes={self.classes}, dim={self.sums.shape[1]}, temperature={self.temperature:g}"


@dataclass(frozen=True)
class Basis:
    """Unit vectors ``[C, d]``, the largest |cosine| between two of them, and whether that met its threshold.

    If it did not, the vectors are the best that searches with larger thresholds found.
    """

    vectors: Tensor
    largest_cosine: float
    converged: bool


def welch_bound(classes: int, dim: int) -> float:
    r"""The least possible largest |cosine| of C unit vectors in d dimensions: $\sqrt{(C-d)/(d(C-1))}$; 0 for C <= d.

    >>> round(welch_bound(4, 3), 4)
    0.3333
    """
    check_integer("classes", classes, 2), check_integer("dim", dim, 2)
    return math.sqrt((classes - dim) / (dim * (classes - 1))) if classes > dim else 0.0


def coherence(vectors: Tensor, threshold: float = 0.0) -> Tensor:
    r"""$\sum_{i \ne j} [|b_i \cdot b_j| - t]_+$ over unit vectors ``[C, d]``: what :func:`equiangular_basis` minimizes.

    >>> coherence(torch.eye(3))
    tensor(0.)
    """
    cosines = (vectors @ vectors.T).abs()
    return (cosines - torch.eye(len(vectors), dtype=vectors.dtype, device=vectors.device) - threshold).relu().sum()


def equiangular_basis(
    classes: int, dim: int, *, threshold: float | None = None, steps: int = 2000, rows: int = 1024, seed: int = 0
) -> Basis:
    """Unit vectors for classes, as orthogonal as possible, or with |cosine| <= ``threshold`` between any two.

    Orthonormal, by a QR decomposition, where ``classes`` <= ``dim``. Else, without a threshold, the largest |cosine| is
    made as small as can be found: L-BFGS on the p-norm of the cosines, with p rising from 4 to 2^14. With one, gradient
    descent on :func:`coherence` ends when it is met; so it does above 1,000 classes, where the former takes long.
    Shen et al., *Equiangular Basis Vectors*, CVPR 2023 (arXiv:2303.11637).

    Args:
        classes: C, at least 2.
        dim: d, at least 2.
        threshold: t in [0, 1), where to stop; None: as small as possible, and :attr:`Basis.converged` says whether it
            is at most 1.6 times the Welch bound plus 0.02.
        steps: at most so many steps of a search; fewer above 316 classes, of which each step takes longer.
        rows: how many vectors' cosines with all others are held at once.
        seed: for the random start.

    Raises:
        ValueError: if no vectors can meet the threshold (Welch's bound).

    >>> equiangular_basis(10, 16).largest_cosine < 1e-6
    True
    >>> round(equiangular_basis(3, 2).largest_cosine, 4)
    0.5
    """
    bound = welch_bound(classes, dim)
    least = threshold is None and classes <= _MANY
    if threshold is None:
        threshold = 0.0 if classes <= dim else min(1.6 * bound + 0.02, 0.999)
    if not 0 <= check_between("threshold", threshold, 0, 1, closed=True) < 1:
        raise ValueError(f"threshold: expected a number from 0 to below 1, got {threshold}")
    if threshold < bound - 1e-9:
        raise ValueError(
            f"threshold: expected at least {bound:.4f} (Welch's bound for {classes} vectors in {dim} dimensions), "
            f"got {threshold}; take more dimensions or a larger threshold"
        )
    check_integer("steps", steps, 0), check_integer("rows", rows)
    source = torch.Generator().manual_seed(seed)
    start = torch.randn(classes, dim, generator=source, dtype=torch.float64)
    if classes <= dim:
        vectors = torch.linalg.qr(start.T).Q.T.contiguous()
    elif least:
        vectors = _least_cosine(start, steps)
    else:
        start = F.normalize(start, dim=1)
        vectors = _spread(start, threshold, steps, rows)
        if _largest(vectors, rows) > threshold + _SLACK:
            vectors = _best_spread(start, threshold, max(steps // 5, min(steps, 200)), rows)
    largest = _largest(vectors, rows)
    return Basis(vectors.float(), largest, largest <= threshold + _SLACK)


def _least_cosine(start: Tensor, steps: int) -> Tensor:
    """Unit vectors whose largest |cosine| is small: its p-norm over all pairs is minimized for larger and larger p."""
    from scipy.optimize import minimize

    classes, dim = start.shape
    powers = [4.0**n for n in range(1, 8)]
    most = min(steps, int(_WORK / classes**2))

    def norm(flat: Any, power: float) -> tuple[float, Any]:
        """The logarithm of the p-norm, and its gradient by the vectors before they are scaled to length 1."""
        free = torch.from_numpy(flat).reshape(classes, dim)
        lengths = free.norm(dim=1, keepdim=True)
        unit = free / lengths
        cosines = (unit @ unit.T).fill_diagonal_(0)
        logs = power * cosines.abs().clamp_(min=1e-300).log()
        top = logs.logsumexp((0, 1))
        slope = 2 * ((logs - top).exp_() / torch.where(cosines == 0, 1.0, cosines)) @ unit
        slope -= (slope * unit).sum(1, keepdim=True) * unit  # along the sphere
        return float(top / power), (slope / lengths).reshape(-1).numpy()

    flat = start.reshape(-1).numpy()
    settings = {"maxiter": max(1, most // len(powers)), "gtol": 1e-9, "ftol": 1e-12}
    for power in powers if steps else ():
        flat = minimize(norm, flat, args=(power,), jac=True, method="L-BFGS-B", options=settings).x
    return F.normalize(torch.from_numpy(flat).reshape(classes, dim), dim=1)


def _best_spread(start: Tensor, low: float, steps: int, rows: int) -> Tensor:
    """Of searches with thresholds between ``low``, which was not met, and 1 the one whose vectors are farthest apart.

    A search for too small a threshold lets some vectors meet, to the good of the others; they then push one another no
    more, so what it found is no start for another.
    """
    best, least, high = start, _largest(start, rows), 1.0
    near = (high - low) / 10
    while high - low > near:
        middle = (low + high) / 2
        vectors = _spread(start, middle, steps, rows)
        largest = _largest(vectors, rows)
        if largest < least:
            best, least = vectors, largest
        low, high = (low, min(middle, least)) if largest <= middle + _SLACK else (middle, high)
    return best


def _spread(vectors: Tensor, threshold: float, steps: int, rows: int) -> Tensor:
    """Descent on the squared excess, which has a smooth end, with a step that shrinks when it does not help."""
    pace, best, nearest, direction = 0.5, math.inf, vectors, vectors
    for _ in range(steps):
        slope, loss = torch.zeros_like(vectors), 0.0
        for start in range(0, len(vectors), rows):
            cosines = vectors[start : start + rows] @ vectors.T
            cosines.diagonal(start).zero_()
            excess = (cosines.abs() - threshold).clamp_(min=0)
            loss += float(excess.square().sum())
            slope[start : start + rows] = (excess * cosines.sign()) @ vectors
        if loss < best:
            best, nearest, direction, pace = loss, vectors, slope, pace * 1.2
        else:
            pace *= 0.5
        if loss == 0 or pace < 1e-9:
            break
        vectors = F.normalize(nearest - pace * direction, dim=1)
    return nearest


def _largest(vectors: Tensor, rows: int) -> float:
    largest = 0.0
    for start in range(0, len(vectors), rows):
        cosines = (vectors[start : start + rows] @ vectors.T).abs()
        cosines.diagonal(start).zero_()
        largest = max(largest, float(cosines.max()))
    return largest


class EquiangularHead(nn.Module):
    """Class logits from fixed vectors: the cosines of an embedding with a :class:`Basis`, divided by a temperature.

    Args:
        classes: at least 2.
        dim: width of the embeddings.
        temperature: above 0.
        threshold: see :func:`equiangular_basis`.
        seed: see :func:`equiangular_basis`.

    Raises:
        ValueError: for a threshold that is not met. For the default threshold there is only a warning, and the vectors
            are the best that were found.

    >>> head = EquiangularHead(4, 8)
    >>> head(torch.randn(2, 8)).shape, sum(p.numel() for p in head.parameters())
    (torch.Size([2, 4]), 0)
    """

    def __init__(
        self, classes: int, dim: int, *, temperature: float = 0.07, threshold: float | None = None, seed: int = 0
    ) -> None:
        super().__init__()
        self.temperature = check_between("temperature", temperature, 0, math.inf)
        basis = equiangular_basis(classes, dim, threshold=threshold, seed=seed)
        if not basis.converged:
            least = math.ceil(1e4 * basis.largest_cosine) / 1e4
            of = f"the least that was found for {classes} vectors in {dim} dimensions"
            if threshold is not None:
                raise ValueError(
                    f"threshold: expected at least {least:.4f}, {of}, got {threshold}; take more dimensions or a "
                    "larger threshold"
                )
            warnings.warn(f"two classes have a cosine of {least:.4f}, {of}; take more dimensions", stacklevel=2)
        self.basis: Tensor = nn.Buffer(basis.vectors)
        self.largest_cosine = basis.largest_cosine

    def forward(self, embeddings: Tensor) -> Tensor:
        """Logits ``[b, C]`` of embeddings ``[b, d]``: give them to cross-entropy; the largest is the prediction."""
        if embeddings.ndim != 2 or embeddings.shape[1] != self.basis.shape[1]:
            raise ValueError(f"embeddings: expected [b, {self.basis.shape[1]}], got {tuple(embeddings.shape)}")
        return F.normalize(embeddings, dim=1) @ self.basis.T.to(embeddings.dtype) / self.temperature


def frechet_scores(probabilities: Tensor, distances: Tensor) -> Tensor:
    r"""Scores $-\sum_k p_{ik}\, d_{km}^2$ of every class m as the Frechet mean of a row's class distribution.

    The largest one is Loki's prediction. Classes that were never observed can win if ``distances`` has columns for
    them. Roberts et al., *Geometry-Aware Adaptation for Pretrained Models*, NeurIPS 2023 (arXiv:2307.12226).

    Args:
        probabilities: ``[b, K]`` over observed classes, >= 0, not all 0 (rows are scaled to sum to 1).
        distances: ``[K, M]`` from each observed class to every class, >= 0; with a zero diagonal if it is square.

    Returns:
        ``[b, M]``, <= 0; higher is better.

    Raises:
        ValueError: on negative or NaN entries, rows of zeros, or shapes that do not fit together.

    >>> path = (torch.arange(3.0)[:, None] - torch.arange(3.0)).abs()  # classes in a row
    >>> frechet_scores(torch.tensor([[0.5, 0.0, 0.5]]), path).argmax(1)  # the class in the middle
    tensor([1])
    """
    if probabilities.ndim != 2 or distances.ndim != 2 or probabilities.shape[1] != distances.shape[0]:
        raise ValueError(
            f"distances: expected [K, M] for probabilities [b, K], got {tuple(distances.shape)} for "
            f"{tuple(probabilities.shape)}"
        )
    if not (distances >= 0).all():
        raise ValueError("distances: expected numbers of at least 0, got some that are not")
    if distances.shape[0] == distances.shape[1] and distances.diagonal().any():
        raise ValueError("distances: expected 0 between a class and itself, got a diagonal that is not 0")
    total = probabilities.sum(1, keepdim=True)
    if not (probabilities >= 0).all() or not (total > 0).all():
        raise ValueError("probabilities: expected rows >= 0 with a positive sum; apply a softmax to logits first")
    return -(probabilities / total) @ distances.square()


def class_distances(vectors: Tensor, *, kind: str = "euclidean") -> Tensor:
    r"""Distances ``[M, M]`` between classes, from their vectors ``[M, d]``: Euclidean, or the chord $\sqrt{2 - 2\cos}$.

    >>> class_distances(torch.tensor([[0.0], [3.0]]))
    tensor([[0., 3.],
            [3., 0.]])
    """
    if check_choice("kind", kind, ("euclidean", "cosine")) == "cosine":
        vectors = torch.nn.functional.normalize(vectors, dim=1)
    return torch.cdist(vectors, vectors, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(0)


def frechet_choice(
    probabilities: Tensor, distances: Tensor, *, gradient: str = "straight-through", step: float = 0.1
) -> Tensor:
    r"""Loki's choice as one-hot rows ``[b, M]`` that pass a gradient to the probabilities' scores.

    Args:
        probabilities: ``[b, K]``.
        distances: ``[K, M]``; M = K, since the gradient of a choice goes to the same class's probability.
        gradient: "straight-through" passes the incoming gradient g on; "polytope" passes on the projected step $z -
            \mathrm{proj}_\Delta(z - \eta g)$ from the choice z on the simplex.
        step: eta of "polytope", above 0.
    """
    check_choice("gradient", gradient, ("straight-through", "polytope"))
    check_between("step", step, 0, float("inf"))
    if distances.shape[0] != distances.shape[1]:
        raise ValueError(
            f"distances: expected a square matrix for a choice with gradient, got {tuple(distances.shape)}"
        )
    place = frechet_scores(probabilities.detach(), distances).argmax(1)
    chosen = torch.nn.functional.one_hot(place, distances.shape[1]).to(probabilities.dtype)
    choice: Tensor = _Choice.apply(  # type: ignore[no-untyped-call]
        probabilities, chosen, step if gradient == "polytope" else 0.0
    )
    return choice


class _Choice(torch.autograd.Function):
    """The choice forward; the incoming gradient, or its step within the simplex, backward."""

    @staticmethod
    def forward(ctx: Any, probabilities: Tensor, chosen: Tensor, step: float) -> Tensor:
        ctx.save_for_backward(chosen)
        ctx.step = step
        return chosen

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (chosen,) = ctx.saved_tensors
        if not ctx.step:
            return grads[0], None, None
        return chosen - sparsemax(chosen - ctx.step * grads[0]), None, None
