"""The metric that no network has: a kernel, of plain tables by its likelihood, of classes by their log-loss."""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vicinal.encoders import TableEncoder
from vicinal.encoders.base import ColumnEncoder
from vicinal.encoders.components import Components
from vicinal.encoders.kernel_projector import KernelProjector, TrendProjector
from vicinal.encoders.numeric import VectorEncoder
from vicinal.estimators.network import make_kriging
from vicinal.heads import Kriging
from vicinal.heads.kinds import weighs_locally
from vicinal.training import NeighborNetwork
from vicinal.training.class_kernel import fit_class_kernel
from vicinal.training.likelihood import LEAST_NOISE, TableKernel, fit_kernel
from vicinal.training.linear import ridge_folds
from vicinal.training.rows import RowInputs

_BATCH = 4096
"""Rows that are encoded together."""

_WIDEST = 64
"""Numbers of an encoded row up to which each may have a length that few rows can tell."""

PATIENCE = 0.05
"""Share by which the error of a network must be lower for it to be chosen: few rows are held out, and one must do."""


HOPELESS = 2.0
"""Times the error of another metric above which a network is given up: tuning its encoder has halved no error yet."""

WHOLE = 2048
"""Rows up to which all of them predict by signed weights of a kernel: one inverse of 32 MiB serves every prediction."""


def kernel_neighbors(rows: int, *, classes: bool = False) -> int:
    """Rows that a kernel is read out by where ``max_neighbors`` is None: 256, of many rows 128, for speed.

    >>> kernel_neighbors(2_000), kernel_neighbors(3_000), kernel_neighbors(3_000, classes=True)
    (256, 128, 256)
    """
    return 256 if rows <= (5_000 if classes else WHOLE) else 128


def own_lengths(encoder: TableEncoder) -> int:
    """Numbers of an encoded row that each have a length of their own in the kernel for numbers."""
    return sum(len(part.entries) for part in _parts(encoder) if not part.shared)


def is_wide(part: ColumnEncoder) -> bool:
    """Whether it is read by its components: a text, an image, a sound, a set or a wide vector."""
    return part.kind not in ("number", "category") and not (part.kind == "vector" and part.dim <= _WIDEST)


def is_untrained(part: ColumnEncoder) -> bool:
    """Whether it reads images or sounds as a network would learn to."""
    return part.kind in ("image", "audio") and not part.frozen


class _Part(NamedTuple):
    """Columns of an encoded row that a kernel reads in one way.

    Attributes:
        entries: the column of the table that each comes from.
        shared: whether they share a length.
        most: components by which they are read; 0: they are read as they are.
        numbers: which of them are plain numbers, with piecewise-linear features where each has its own length.
    """

    entries: list[str]
    shared: bool
    most: int
    numbers: list[int]


def _parts(encoder: TableEncoder) -> Iterator[_Part]:
    """The parts of a row.

    Each column of categories is a part where all these and the numbers would have too many lengths; where the numbers
    alone would, these share one, and are read as they are.
    """
    few = [part for part in encoder.encoders if not is_wide(part)]
    many, most = (sum(p.dim for p in some) > _WIDEST for some in (few, [p for p in few if p.kind != "category"]))
    for part in encoder.encoders:
        if many and part.kind == "category":
            yield from (
                _Part(list(names), shared=True, most=part.most, numbers=[])
                for _, names in itertools.groupby(part.entries)
            )
        else:
            components = part.most if is_wide(part) and not part.counts else 0
            yield _Part(part.entries, is_wide(part) or most, components, part.numbers)


def may_be_kernel(settings: Mapping[str, Any], *, classes: bool = False) -> bool:
    """Whether ``metric="auto"`` tries a kernel, of numbers or of classes, where nothing is asked that it has not."""
    plain = settings["tune"] in ("none", "auto") and (not classes or settings["readout"] == "auto")
    fits = settings["head"] == "nona" and settings["loss"] is None and settings["similarity"] in ("l2", "squared_l2")
    fits &= settings["fair"] is None
    return plain and fits and settings["validation_fraction"] != 0 and settings["readout"] != "attention"


def make_kernel_network(
    settings: dict[str, Any],
    encoder: TableEncoder,
    *,
    classes: bool = False,
    whole_up_to: int = 0,
    share_lengths: bool = True,
    steps: bool = False,
) -> NeighborNetwork:
    """Encoder, the projector of a kernel that is not learned yet, and a kriging head over it.

    Args:
        settings: the estimator's parameters.
        encoder: fitted.
        classes: the kernel of :mod:`vicinal.training.class_kernel`, else that of :mod:`vicinal.training.likelihood`.
        whole_up_to: see :class:`vicinal.heads.Kriging`.
        share_lengths: False for folders from before wide vectors were components, whose entries had a length each.
        steps: whether distances are of steps, as :func:`fit_kernel_network` may find.
    """
    parts = list(_parts(encoder))
    widths = [len(part.entries) for part in parts]
    shared = [share_lengths and part.shared and not classes for part in parts]
    plain = [not (one and part.most) for one, part in zip(shared, parts, strict=True)]
    most = [max(part.most, 1) for part in parts]
    components = Components(widths, plain, most, shared) if any(shared) else None
    numbers, stepped, width = list[int](), list[int](), 0
    sizes = widths if components is None else components.sizes
    for part, one, size in zip(parts, shared, sizes, strict=True):
        stepped += (places := [width + place for place in part.numbers])
        numbers += [] if one else places
        width += size
    projector = KernelProjector(width, numbers, line=not classes, components=components, stepped=stepped)
    if steps:
        projector.read_steps()
    head = make_kriging(settings, projector.linear, whole_up_to)
    if head is None:
        raise ValueError("readout: expected 'dense' or 'rows' for metric='kernel', got 'attention'")
    return NeighborNetwork(encoder, projector, head)


def fit_kernel_network(
    network: NeighborNetwork,
    inputs: RowInputs,
    labels: Tensor,
    groups: Tensor | None,
    *,
    steps: bool = False,
    start: TableKernel | None = None,
    **known: Any,
) -> TableKernel:
    """Learn the kernel of a network that :func:`make_kernel_network` made, and give it to projector and head.

    Args:
        network: changed in place.
        inputs: the training rows, prepared.
        labels: ``[n]``.
        groups: integers of those, or None.
        steps: whether distances may be of steps.
        start: see :func:`vicinal.training.likelihood.fit_kernel`.
        known: further arguments of that.
    """
    projector, head = kernel_parts(network)
    features = encoded(network.encoder, inputs)
    pieces = projector.fit(features).terms(features)
    parts = torch.tensor(projector.parts)
    shared, near = None if projector.components is None else parts, None
    if projector.stepped and (steps if start is None else start.stepped):
        projector.read_steps(features)
        near = projector.near(features), parts[projector.places]
    kernel = fit_kernel(*pieces, labels, groups, lengths=shared, steps=near, start=start, **known)
    if not kernel.stepped:
        projector.steps = None
    take_kernel(projector, head, kernel)
    return kernel


@torch.no_grad()
def fit_class_network(
    network: NeighborNetwork,
    inputs: RowInputs,
    labels: Tensor,
    groups: Tensor | None,
    **known: Any,
) -> None:
    """The same for one-hot ``labels [n, K]``: a length for all numbers and categories, and one for each other column.

    Entries of fixed vectors count as they are, or standardized as their encoder gives them, whichever has less loss: of
    embeddings those that differ more say more. See :func:`vicinal.training.class_kernel.fit_class_kernel`.
    """
    projector, head = kernel_parts(network)
    encoder = network.encoder
    if not isinstance(encoder, TableEncoder):
        raise TypeError(f"network: expected the encoder of a table, got {type(encoder).__name__}")
    features = encoded(encoder, inputs)
    columns = projector.fit(features).terms(features)[0]
    plain, wide, place = list[int](), list[list[int]](), 0
    standard = torch.ones(columns.shape[1], dtype=torch.float64)
    for part in encoder.encoders:
        entries = list(range(place, place := place + part.dim))
        if isinstance(part, VectorEncoder):
            factor = torch.tensor(part.factor, dtype=torch.float64)
            standard[entries] = torch.where(factor > 0, factor, 1.0)  # entries that never differ are all 0
        if part.kind in ("number", "category"):
            plain += entries
        else:
            wide.append(entries)
    parts = [*([plain] if plain else []), *wide]
    units = [torch.ones_like(standard)] + [standard] * bool((standard != 1).any())
    kernels = [
        fit_class_kernel([(columns / unit)[:, part] for part in parts], labels, groups, **known) for unit in units
    ]
    kernel, unit = min(zip(kernels, units, strict=True), key=lambda pair: pair[0].loss)
    for entries, log_length in zip(parts, kernel.log_lengths, strict=True):
        projector.log_lengths[entries] = log_length + unit[entries].log()
    head.log_scale.fill_(math.log(3) / 2)
    head.log_noise.copy_(kernel.log_noise)


def kernel_parts(network: NeighborNetwork) -> tuple[KernelProjector, Kriging]:
    """Projector and head of a network that :func:`make_kernel_network` made."""
    projector, head = network.projector, network.head
    if not isinstance(projector, KernelProjector) or not weighs_locally(head):
        raise TypeError(f"network: expected one of make_kernel_network, got {type(projector).__name__}")
    return projector, head


def nearness_by_column(network: NeighborNetwork, query: Tensor, rows: Tensor, bank: Tensor) -> dict[str, Tensor]:
    r"""How much nearer rows are to a query than an average row of the bank, by column.

    $\sum_{c \in C} \frac1N \sum_m (q_c - z_{mc})^2 - (q_c - x_c)^2$, where a column makes the entries $C$ of vectors.
    Over all columns these are the mean squared distance of the bank's rows less that of the row. A column that is alike
    in most rows makes none of them near.

    Args:
        network: of :func:`make_kernel_network`, fitted.
        query: ``[d]``.
        rows: ``[k, d]``.
        bank: ``[N, d]``, or some of its rows.

    Returns:
        by column ``[k]``, float64.
    """
    names = kernel_columns(network)
    mean, spread = bank.double().mean(dim=0), bank.double().var(dim=0, correction=0)
    nearer = (query.double() - mean).square() + spread - (query.double() - rows.double()).square()  # [k, d]
    columns = list(dict.fromkeys(names))
    entries = {name: [place for place, other in enumerate(names) if other == name] for name in columns}
    return {name: nearer[:, places].sum(dim=1) for name, places in entries.items()}


def kernel_columns(network: NeighborNetwork) -> list[str]:
    """The column of the table that each entry of the vectors of a kernel, with or without a trend, comes from.

    Raises:
        TypeError: for a network of another metric.
    """
    projector, encoder = network.projector, network.encoder
    if not isinstance(projector, KernelProjector | TrendProjector) or not isinstance(encoder, TableEncoder):
        raise TypeError(f"network: expected one of make_kernel_network, got {type(projector).__name__}")
    kernel = projector.kernel if isinstance(projector, TrendProjector) else projector
    names = _entries(encoder, kernel)
    near = [names[place] for place in kernel.places]
    if isinstance(projector, TrendProjector):
        return near + names * projector.targets
    return [*near, *projector.by_column(names)] if projector.linear else near


def _entries(encoder: TableEncoder, projector: KernelProjector) -> list[str]:
    """The column of the table that each column of a kernel comes from."""
    if projector.components is None:
        return encoder.entries
    sizes = zip(_parts(encoder), projector.components.sizes, strict=True)
    return [name for part, size in sizes for name in part.entries[:size]]


def trend_network(
    network: NeighborNetwork,
    inputs: RowInputs,
    labels: Tensor,
    folds: Tensor,
    weights: Tensor,
    amplitude: float,
) -> NeighborNetwork:
    """The network of a learned kernel with the trend of its linear part by columns, read out by 30 rows for now.

    Args:
        network: of :func:`make_kernel_network`, fitted.
        inputs: the rows that the trend is fitted to, prepared.
        labels: of those ``[n]`` or ``[n, T]``.
        folds: ``[n]``, whole groups.
        weights: how many rows each counts as ``[n]``.
        amplitude: of the kernel, in variances of the labels.
    """
    head, labels = kernel_parts(network)[1], labels.reshape(len(labels), -1).double()
    trend = empty_trend_network(network, int(folds.max()) + 1, labels.shape[1])
    known = {"noise": head.noise().item(), "amplitude": amplitude, "weights": weights.double()}
    trend.projector.fit(encoded(network.encoder, inputs), labels, folds, **known)  # type: ignore[operator]
    return trend.eval()


def line_network(
    network: NeighborNetwork, inputs: RowInputs, labels: Tensor, folds: Tensor, weights: Tensor
) -> tuple[NeighborNetwork, float]:
    """The same with the trend of a ridge regression on the columns alone, and its mean error of the rows left out.

    A kernel of long lengths says by nearness what a line says, and its own linear part is then no trend.
    """
    labels = labels.reshape(len(labels), -1).double()
    trend = empty_trend_network(network, int(folds.max()) + 1, labels.shape[1])
    projector: Any = trend.projector
    columns = projector.kernel.terms(encoded(network.encoder, inputs))[0]
    lines = ridge_folds(columns, labels, folds, weights=weights)
    projector.take_lines(lines.slopes, lines.starts)
    errors = (lines.predicted(columns, folds) - labels).square().mean(dim=1)
    return trend.eval(), float((errors * weights).sum() / weights.sum())


def kernel_optimism(network: NeighborNetwork, rows: int, loss: float | None = None) -> float:
    r"""By what errors of rows are too low whose labels have chosen p lengths and 4 variances.

    As Akaike's criterion has it, each number that is fitted takes twice its share of the noise off a squared error,
    $1 + 2 (p + 4) / n$, and 1/n off a log-loss, of classes $1 + (p + 4) / (n \cdot \text{loss})$. The trend
    of few rows is cross-fitted and compared with it: on fourteen tables signed weights had 4 %
    less error than it on the rows of the fit, and as much on others.
    """
    fitted = kernel_parts(network)[0].parts[-1] + 5
    return 1 + (2 * fitted / rows if loss is None else fitted / (rows * max(loss, 1e-12)))


def empty_trend_network(network: NeighborNetwork, folds: int, targets: int) -> NeighborNetwork:
    """The network of a kernel with a trend that is not fitted yet."""
    kernel, encoder = kernel_parts(network)[0], network.encoder
    projector = TrendProjector(kernel, folds, targets, _entries(encoder, kernel))  # type: ignore[arg-type]
    return NeighborNetwork(network.encoder, projector, Kriging(30))


@torch.no_grad()
def encoded(encoder: torch.nn.Module, inputs: RowInputs) -> Tensor:
    """Vectors of all rows before they are projected ``[n, p]``, in float64."""
    encoder.eval()
    blocks = torch.split(torch.arange(len(inputs)), _BATCH)
    return torch.cat([encoder(inputs.select(rows)).double() for rows in blocks])


@torch.no_grad()
def take_kernel(projector: KernelProjector, head: Kriging, kernel: TableKernel) -> None:
    """Put a learned kernel, divided by its b, into a projector and a head.

    The head's kernel is 1 at distance 0; weights do not change where kernel and noise are divided by one number.
    """
    amplitude = kernel.log_amplitude.exp()
    noise = (kernel.log_noise.exp() + LEAST_NOISE) / amplitude - LEAST_NOISE  # the head adds as much
    projector.log_lengths.copy_(kernel.log_lengths[projector.parts])
    projector.log_linear.copy_(kernel.log_linear - kernel.log_amplitude)
    projector.log_pieces.copy_(kernel.log_pieces - kernel.log_amplitude)
    head.log_scale.fill_(math.log(3) / 2)
    head.log_noise.copy_(noise.clamp(min=LEAST_NOISE).log())
