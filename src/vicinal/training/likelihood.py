"""The kernel for numbers, learned by the marginal likelihood of the labels."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vicinal.blockwise.blocks import Buffers
from vicinal.core.checks import check_labels
from vicinal.core.progress import report, time_left

STEPS = 40
"""Steps of L-BFGS."""

FIRST_ROWS = (500, 1000)
"""Rows that the first steps use if there are more, and then the next; a step on twice as many takes up to eight times
as long."""

TRIED = 250
"""Rows by which another kind of distance must be ahead before it is learned."""

SURELY, USUAL = 2.0, 0.95
"""Standard errors by which another kind of distance must be better, where squared errors count up to this quantile."""

LAST_STEPS = 12
"""Steps of L-BFGS on more rows, after the first ones."""

MOST_ROWS = 2000
"""Rows that the likelihood uses, at most; a random subset of more."""

BLOCK = 1000
"""Rows of one factor: blocks of more count as independent, at a quarter of the time of twice as many in one
and at the same error, but of quiet labels."""

QUIET = 0.01
"""Noise, in variances of the labels, below which all rows are in one block: on four such tables blocks had 1.1, 1.3, 2
and 12 times the error."""

LEAST_NOISE = 1e-6
"""Noise that is always added."""

MOVED = 1e-5
"""Share of the objective, or of 1, by which a step must lower it: less tells no two kernels apart."""

_PENALTY = 2.0
_START = {"log_amplitude": 1.0, "log_linear": 0.3, "log_pieces": 0.1, "log_noise": 0.3}
_RANGE = (1e-6, 1e3)
"""Range of all learned values, so that float64 can factor the matrix at most steps of the search."""

_TOO_FAR = 1e10
"""Value of the objective at the other steps."""

_AMPLITUDES, _NOISES = (0.03, 0.1, 0.3, 1.0, 3.0), (0.1, 0.3, 1.0, 3.0, 10.0)
"""Factors of b and of the noise that the leave-one-out error tries."""

_UNCHANGED = _AMPLITUDES.index(1.0), _NOISES.index(1.0)
"""Places of those that change neither."""

GAIN = 0.015
"""Share by which the leave-one-out error must fall for b and the noise to be changed."""

MOST_LEFT_OUT = 1000
"""Rows that are left out one by one, at most."""


@dataclass(frozen=True, eq=False)
class TableKernel:
    r"""$b\,(1 + \sqrt 3 r)\, e^{-\sqrt 3 r} + \frac a p x^\top x' + c\, \phi(x)^\top \phi(x')$, noise $\lambda$.

    Here $r^2 = \sum_j (x_j - x'_j)^2 / \ell_j^2$ over p standardized columns.

    Attributes:
        log_lengths: of $\ell$ ``[p]``; a column with a large length matters little.
        log_amplitude: of b, the variance of the part of the labels that only near rows share.
        log_linear: of a.
        log_pieces: of c.
        log_noise: of $\lambda$, to which 1e-6 is added.
        parts: which of G lengths each column has ``[p]``, where such as the components of a text share one, and p
            in the kernel is G; None: its own.
        stepped: whether r is of the steps of numbers, as in :class:`vicinal.encoders.kernel_projector.KernelProjector`.
        likely: the most likely one, of which b and the noise were :func:`corrected`; None: itself.

    >>> TableKernel.start(4).log_lengths.exp()
    tensor([2., 2., 2., 2.], dtype=torch.float64)
    """

    log_lengths: Tensor
    log_amplitude: Tensor
    log_linear: Tensor
    log_pieces: Tensor
    log_noise: Tensor
    parts: Tensor | None = None
    stepped: bool = field(default=False, kw_only=True)
    likely: "TableKernel | None" = field(default=None, kw_only=True)

    @classmethod
    def start(cls, columns: int, parts: Tensor | None = None) -> "TableKernel":
        """The start of learning: lengths sqrt(p), b = 1, a = 0.3, c = 0.1, noise 0.3."""
        count = columns if parts is None else int(parts.max()) + 1
        lengths = torch.full((count,), math.log(count) / 2, dtype=torch.float64)
        rest = (torch.tensor(math.log(value), dtype=torch.float64) for value in _START.values())
        return replace(cls(lengths, *rest), parts=parts)

    @classmethod
    def of(cls, values: Tensor, parts: Tensor | None = None) -> "TableKernel":
        """The kernel with these logarithms ``[p + 4]``, in the order of :meth:`values`."""
        return replace(cls(values[:-4], *values[-4:].unbind()), parts=parts)

    def lengths_by_column(self) -> Tensor:
        """Logarithms of the length of each column ``[p]``."""
        return self.log_lengths if self.parts is None else self.log_lengths[self.parts]

    def values(self) -> Tensor:
        """All logarithms as one vector ``[p + 4]``."""
        rest = [self.log_amplitude, self.log_linear, self.log_pieces, self.log_noise]
        return torch.cat([self.log_lengths, torch.stack(rest)])

    def penalty(self) -> tuple[Tensor, Tensor]:
        r"""$2 \sum_j (\log \ell_j - m)^2 + 2 (m - \tfrac12 \log p)^2$ with m the mean of $\log \ell_j$, and its slope.

        It keeps lengths alike and near sqrt(p); without it, a table of a few hundred rows overfits its many lengths.
        """
        mean, count = self.log_lengths.mean(), len(self.log_lengths)
        apart, off = self.log_lengths - mean, mean - math.log(count) / 2
        return _PENALTY * (apart.square().sum() + off**2), 2 * _PENALTY * (apart + off / count)


class Covariance:
    r"""The kernel of all pairs and the noise of each row, and its slope in few passes over as many numbers.

    With $d = \sqrt 3 r$ the first term has the slope $3 b e^{-d} (x_j - x'_j)^2 / \ell_j^2$ in $\log \ell_j$. Sums over
    pairs of squared differences are products of the slope with the rows. The noise of a row of weight w, which is a
    mean of w, is divided by it.
    """

    def __init__(self, kernel: TableKernel, rows: "RelatedRows") -> None:
        self.kernel, self.rows = kernel, rows
        names = ("distance", "decay", "matrix")
        self.distance, self.decay, self.matrix = (rows.buffers.like(name, rows.line) for name in names)
        self.scaled = rows.near * (-kernel.lengths_by_column()).exp()
        squares = self.scaled.square().sum(dim=1)
        torch.add(squares[:, None], squares, out=self.distance).addmm_(self.scaled, self.scaled.T, alpha=-2)
        self.distance.clamp_(min=1e-30).mul_(3).sqrt_()
        torch.neg(self.distance, out=self.decay).exp_()
        # a column counts by its part
        values = kernel.log_amplitude, kernel.log_linear - math.log(len(kernel.log_lengths)), kernel.log_pieces
        self.b, self.a, self.c = (math.exp(value) for value in values)
        torch.addcmul(self.decay, self.decay, self.distance, out=self.matrix).mul_(self.b)
        self.matrix.add_(rows.line, alpha=self.a).add_(rows.bent, alpha=self.c)
        self.matrix.diagonal().add_((kernel.log_noise.exp() + LEAST_NOISE) / rows.weights)

    def slope(self, by: Tensor) -> Tensor:
        """Of the sum of entries times ``by [n, n]``, in the kernel's logarithms ``[G + 4]``; may be asked once."""
        near = self.decay.mul_(by)
        of_rows = (near.sum(dim=0) + near.sum(dim=1))[:, None] * self.scaled - 2 * near @ self.scaled
        of_lengths = 3 * self.b * (of_rows * self.scaled).sum(dim=0)
        if self.kernel.parts is not None:
            of_lengths = torch.zeros_like(self.kernel.log_lengths).index_add(0, self.kernel.parts, of_lengths)
        of_amplitude = self.b * (near.sum() + torch.vdot(near.flatten(), self.distance.flatten()))
        of_line, of_bent = (torch.vdot(by.flatten(), each.flatten()) for each in (self.rows.line, self.rows.bent))
        of_noise = self.kernel.log_noise.exp() * (by.diagonal() / self.rows.weights).sum()
        return torch.cat([of_lengths, torch.stack([of_amplitude, self.a * of_line, self.c * of_bent, of_noise])])


def negative_log_likelihood(matrix: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    r"""$\tfrac12 y^\top K^{-1} y + \tfrac12 \log\det K + \tfrac n2 \log 2\pi$, and its slope in K.

    Args:
        matrix: K ``[n, n]``, float64, positive definite; its memory is used.
        labels: y ``[n]``, or ``[n, T]`` of several targets, which are independent given K: the sum over them.

    Returns:
        the value, and half of T K^-1 - K^-1 Y Y' K^-1 ``[n, n]``: of an entry above the diagonal with that of its twin
        below, where it is 0.

    Raises:
        torch.linalg.LinAlgError: if K is not positive definite.

    >>> negative_log_likelihood(torch.eye(1, dtype=torch.float64), torch.zeros(1))[0]  # log of 2 pi, halved
    tensor(0.9189, dtype=torch.float64)
    """
    check_labels(labels, len(matrix))
    columns = labels.double().reshape(len(labels), -1)  # [n, T]
    factor, solved, slope = factored(matrix, columns)
    constant = factor.log().sum() + len(labels) / 2 * math.log(2 * math.pi)
    value = (columns * solved).sum() / 2 + columns.shape[1] * constant
    slope = slope.addmm_(solved, solved.T, beta=columns.shape[1], alpha=-1).triu_()
    slope.diagonal().mul_(0.5)
    return value, slope


def factored(matrix: Tensor, columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Diagonal ``[n]`` of the Cholesky factor of K ``[n, n]``, $K^{-1} Y$ of columns ``[n, T]``, and $K^{-1}$.

    Of the inverse, which takes the memory of K, nothing below the diagonal is to be read. It uses the LAPACK of scipy,
    which takes two thirds of the time of torch's on many processors.

    Raises:
        torch.linalg.LinAlgError: if K is not positive definite.

    >>> [part.tolist() for part in factored(torch.tensor([[4.0]]), torch.tensor([[2.0]]))]
    [[2.0], [[0.5]], [[0.25]]]
    """
    from scipy.linalg import get_lapack_funcs  # only training needs it

    square, sides = matrix.detach().numpy().T, columns.detach().numpy()  # by columns, as LAPACK has it
    factor, solve, invert = get_lapack_funcs(("potrf", "potrs", "potri"), (square, sides))
    lower, wrong = factor(square, lower=True, clean=False, overwrite_a=True)
    if wrong:
        sentence = f"matrix: expected one that is positive definite, got one that fails at {wrong}"
        raise torch.linalg.LinAlgError(sentence)  # type: ignore[attr-defined]  # torch has it
    diagonal = torch.from_numpy(lower.diagonal().copy())
    solved = torch.from_numpy(solve(lower, sides, lower=True)[0])
    return diagonal, solved, torch.from_numpy(invert(lower, lower=True, overwrite_c=True)[0].T)


@dataclass(frozen=True, eq=False)
class KernelRows:
    """The rows that a kernel is learned from.

    Attributes:
        inputs: standardized columns ``[n, p]``, float64.
        pieces: their piecewise-linear features ``[n, m]``, centered.
        labels: ``[n]`` or ``[n, T]``, mean 0 and variance 1.
        weights: how many observations each row is the mean of ``[n]``.
        parts: positions of rows that are used; rows of different parts count as independent.
        near: what distances are of ``[n, w]``; None: the columns.
    """

    inputs: Tensor
    pieces: Tensor
    labels: Tensor
    weights: Tensor
    parts: Sequence[Tensor]
    near: Tensor | None = None

    @cached_property
    def related(self) -> list["RelatedRows"]:
        """What no kernel changes of each part."""
        buffers = Buffers()  # for one part after the other: to allocate a matrix takes as long as half of the work
        known = self.inputs if self.near is None else self.near, self.inputs, self.pieces, self.labels, self.weights
        each = ([of[at] for of in known] for at in self.parts)
        return [RelatedRows(near, one @ one.T, bent @ bent.T, y, mass, buffers) for near, one, bent, y, mass in each]


class RelatedRows(NamedTuple):
    """Rows of a part: what distances are of, products of columns and of features, labels, weights, and memory."""

    near: Tensor
    line: Tensor
    bent: Tensor
    labels: Tensor
    weights: Tensor
    buffers: Buffers


def objective(kernel: TableKernel, rows: KernelRows) -> tuple[float, Tensor]:
    """The sum of the negative log-likelihoods of all parts plus the penalty, and its slope ``[p + 4]``.

    By the kernel's logarithms, in the order of :meth:`TableKernel.values`, it is least.
    """
    total, of_lengths = kernel.penalty()
    slope = nn.functional.pad(of_lengths, (0, 4))
    for part in rows.related:
        covariance = Covariance(kernel, part)
        value, by_entry = negative_log_likelihood(covariance.matrix, part.labels)
        total, slope = total + value, slope + covariance.slope(by_entry)
    return float(total), slope


def unrelated_parts(rows: Tensor, groups: Tensor | None = None) -> list[Tensor]:
    """``rows [n]`` split into parts, none with two rows of a group; a single part without groups.

    >>> [part.tolist() for part in unrelated_parts(torch.tensor([3, 4, 5]), torch.tensor([0, 0, 0, 7, 7, 8]))]
    [[3, 5], [4]]
    """
    if groups is None:
        return [rows]
    seen: dict[int, int] = {}
    turns = []
    for group in groups[rows].tolist():
        seen[group] = seen.get(group, -1) + 1
        turns.append(seen[group])
    turn = torch.tensor(turns)
    return [rows[turn == number] for number in range(int(turn.max()) + 1)]


def most_likely_kernel(rows: KernelRows, start: TableKernel, steps: int = STEPS) -> TableKernel:
    """The kernel after so many steps of L-BFGS from ``start``; see :func:`objective`.

    It stops where a step lowers the objective by less than a hundred-thousandth of it.
    """
    from scipy.optimize import minimize  # only training needs it

    tries = itertools.count(1)

    def value_and_grad(values: Any) -> tuple[float, Any]:
        report("kernel", min(next(tries), steps), steps, "steps (or fewer)")
        try:
            value, slope = objective(TableKernel.of(torch.from_numpy(values.copy()), start.parts), rows)
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # a step to rows that it cannot tell apart
            return _TOO_FAR, 0.0 * values
        return value, slope.numpy()

    def stop_in_time(intermediate_result: Any) -> None:
        if time_left() <= 0:
            raise StopIteration

    first = start.values().numpy()
    bounds = [tuple(map(math.log, _RANGE))] * len(first)
    options = {"maxiter": steps, "ftol": MOVED}
    known: Any = {"jac": True, "method": "L-BFGS-B", "bounds": bounds, "options": options}
    result = minimize(value_and_grad, first, callback=stop_in_time, **known)
    return replace(TableKernel.of(torch.from_numpy(result.x), start.parts), stepped=start.stepped)


def left_out_errors(matrix: Tensor, labels: Tensor) -> Tensor:
    r"""Each label minus its prediction from all others by ordinary kriging, ``[n, T]``.

    For row i this is $(P y)_i / P_{ii}$ with $P = K^{-1} - K^{-1} 1 1^\top K^{-1} / (1^\top K^{-1} 1)$ (Dubrule, 1983),
    so one factorization does for all rows.

    Args:
        matrix: kernel and noise of all pairs ``[n, n]``, float64; at least two rows. Its memory is used.
        labels: ``[n, T]``.
    """
    _, solved, inverse = factored(matrix, nn.functional.pad(labels, (1, 0), value=1.0))
    sums, share = solved[:, :1], solved.sum(dim=0) / solved[:, 0].sum()  # of each column in that of ones
    return (solved[:, 1:] - sums * share[1:]) / (inverse.diagonal()[:, None] - sums * sums / sums.sum())


def leave_one_out_squares(kernel: TableKernel, rows: KernelRows) -> tuple[Tensor, Tensor]:
    """Squared error of each label, predicted from all others of its part: :func:`left_out_errors`; and its weight.

    Parts of one row are left out.
    """
    squares, weights = [torch.zeros(0).double()], [torch.zeros(0).double()]
    for part in rows.related:
        if (count := len(part.near)) > 1:
            errors = left_out_errors(Covariance(kernel, part).matrix, part.labels.reshape(count, -1))
            squares.append(errors.square().mean(dim=1))
            weights.append(part.weights)
    return torch.cat(squares), torch.cat(weights)


def leave_one_out_error(kernel: TableKernel, rows: KernelRows) -> float:
    """The mean of :func:`leave_one_out_squares` by weight; infinite where the kernel cannot tell rows apart."""
    try:
        squares, weights = leave_one_out_squares(kernel, rows)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # torch has it
        return math.inf
    return float((squares * weights).sum() / weights.sum()) if len(squares) else math.inf


@torch.no_grad()
def corrected(kernel: TableKernel, rows: KernelRows) -> TableKernel:
    """The kernel with the b and noise of least leave-one-out error, if that is more than 1.5 % lower; else unchanged.

    Factors are tried around the best so far, until none of these is better.

    The likelihood assumes that noise is normal and the same everywhere. For labels such as prices, with few outliers,
    it mistakes noise for similarity of near rows.
    """
    bounds = tuple(map(math.log, _RANGE))
    known: dict[tuple[int, int], tuple[float, TableKernel]] = {}
    todo = [_UNCHANGED]
    while todo:
        for place in todo:
            pairs = (kernel.log_amplitude, _AMPLITUDES[place[0]]), (kernel.log_noise, _NOISES[place[1]])
            log_amplitude, log_noise = ((value + math.log(factor)).clamp(*bounds) for value, factor in pairs)
            tried = replace(kernel, log_amplitude=log_amplitude, log_noise=log_noise)
            known[place] = leave_one_out_error(tried, rows), tried
        best = min(known, key=lambda place: known[place][0])
        todo = [place for place in _around(*best) if place not in known]
    return known[best][1] if known[best][0] < (1 - GAIN) * known[_UNCHANGED][0] else kernel


def _around(amplitude: int, noise: int) -> list[tuple[int, int]]:
    """The places beside one in ``_AMPLITUDES`` or ``_NOISES``."""
    beside = (amplitude - 1, noise), (amplitude + 1, noise), (amplitude, noise - 1), (amplitude, noise + 1)
    return [(i, j) for i, j in beside if 0 <= i < len(_AMPLITUDES) and 0 <= j < len(_NOISES)]


def noisier(kernel: TableKernel, rows: KernelRows) -> TableKernel:
    """The kernel with 10 times its noise, and so on as long as rows are more likely; fewer rows may have shown none."""
    value, least = objective(kernel, rows)[0], math.inf
    while value < least:
        best, least = kernel, value
        kernel = replace(kernel, log_noise=kernel.log_noise + math.log(10))
        value = objective(kernel, rows)[0]
    return best


def by_steps(kernel: TableKernel, rows: KernelRows, near: Tensor, lengths: Tensor) -> TableKernel:
    """The kernel of distances of steps ``near [n, w]``, if it is surely better than one of columns; else that.

    It is where the rows are more likely and leave-one-out errors are lower by over 1.5 % and surely so: where labels
    jump along a column or differ by ranks. A few large errors make most of the squares and of their spread, and nothing
    would be sure beside them, so that two standard errors are asked of squares that are cut. Twelve steps of L-BFGS by
    at most 250 rows must do to be ahead on these.
    """
    few = replace(rows, parts=[part[:TRIED] for part in rows.parts])
    other = replace(TableKernel.start(len(lengths), lengths), stepped=True)
    for some, tries in ((few, LAST_STEPS), (rows, STEPS)):
        stepped = replace(some, near=near)
        other = most_likely_kernel(stepped, other, tries)
        if objective(other, stepped)[0] >= objective(kernel, some)[0]:
            return kernel
    (after, mass), (before, _) = leave_one_out_squares(other, stepped), leave_one_out_squares(kernel, rows)
    most = torch.cat([after, before]).quantile(USUAL)
    usual = (before.clamp(max=most) - after.clamp(max=most)) * mass
    lower = ((before - after) * mass).mean() > GAIN * (before * mass).mean()
    return other if lower and usual.mean() > SURELY * usual.std() / math.sqrt(len(usual)) else kernel


def fit_kernel(
    inputs: Tensor,
    pieces: Tensor,
    labels: Tensor,
    groups: Tensor | None = None,
    *,
    seed: int = 0,
    weights: Tensor | None = None,
    most: int = MOST_ROWS,
    start: TableKernel | None = None,
    lengths: Tensor | None = None,
    steps: tuple[Tensor, Tensor] | None = None,
) -> TableKernel:
    """The kernel of highest penalized marginal likelihood: 40 steps of L-BFGS from :meth:`TableKernel.start`.

    With more than 500 rows, these steps use a random 500, 12 more steps a random 1,000, and 12 more all, but at most a
    random 2,000, in blocks of 1,000 but of ``QUIET`` labels. Then b and noise are :func:`corrected` by at most 1,000.

    With groups, the likelihood is the product over parts that hold at most one row of each group, so that nothing is
    learned from a row's own group.

    Args:
        inputs: standardized columns ``[n, p]``, float64.
        pieces: their piecewise-linear features ``[n, m]``, centered.
        labels: ``[n]``, or ``[n, T]`` of several targets; they are standardized here.
        groups: integers ``[n]``, or None.
        seed: of the subsets.
        weights: ``[n]``, > 0. A row of weight w counts as the mean of w observations, with 1/w of the noise. (w equal
            rows would instead suggest that there is no noise.) The learned noise is that of a row of weight 1; the
            units of the weights change nothing else.
        most: rows that the likelihood uses, at most.
        start: a kernel that was learned from fewer of them with the same seed; its first steps are not taken again, and
            the next begin where it was most likely: where b was corrected, they would end elsewhere.
        lengths: the ``parts`` of a :class:`TableKernel`.
        steps: those of all rows ``[n, w]`` and which length each has ``[w]``, for :func:`by_steps`; None: it is of the
            columns.
    """
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))[:MOST_ROWS]
    chosen = labels[order].double()  # whatever the most, so that a start of fewer rows is in the same unit
    mass = torch.ones(len(labels), dtype=torch.float64) if weights is None else weights.double()
    unit = mass[order].mean()
    mass = mass / unit
    mean = (chosen.movedim(0, -1) * mass[order]).mean(dim=-1)
    spread = ((chosen - mean).square().movedim(0, -1) * mass[order]).mean(dim=-1).sqrt()  # torch has no weighted one
    standard = (labels.double() - mean) / torch.where(spread > 0, spread, 1.0)
    order = order[:most]
    rows = KernelRows(inputs, pieces, standard, mass, unrelated_parts(order[:MOST_LEFT_OUT], groups))
    start = None if start is None else start.likely or start
    kernel = None if start is None else replace(start, log_noise=start.log_noise - unit.log())
    for count in (*(count for count in FIRST_ROWS if count < len(order) and start is None), len(order)):
        tries, begin = (STEPS, TableKernel.start(inputs.shape[1], lengths)) if kernel is None else (LAST_STEPS, kernel)
        block = BLOCK if kernel is None or kernel.log_noise > math.log(QUIET) else max(BLOCK, count)
        parts = [part for some in torch.split(order[:count], block) for part in unrelated_parts(some, groups)]
        some_rows = replace(rows, parts=parts, near=steps[0] if steps is not None and begin.stepped else None)
        first = kernel is None
        begin = noisier(begin, some_rows) if begin.stepped else begin
        kernel = most_likely_kernel(some_rows, begin, tries)
        kernel = by_steps(kernel, some_rows, *steps) if first and steps is not None else kernel
    if kernel is None:
        raise ValueError("labels: expected at least one row, got none")
    rows = replace(rows, near=steps[0] if steps is not None and kernel.stepped else None)
    both = corrected(kernel, rows), kernel
    kernel, likely = (replace(one, log_noise=one.log_noise + unit.log()) for one in both)
    return replace(kernel, likely=likely)
