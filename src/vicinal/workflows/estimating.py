"""Rough estimates of the time and memory of a fit, from a few steps on this computer."""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from vicinal.core.seeding import seeded
from vicinal.encoders import Kind, TableEncoder, TableInputs, build_table_encoder
from vicinal.estimators.network import make_network
from vicinal.training.class_kernel import MOST_ROWS as CLASS_ROWS
from vicinal.training.class_kernel import calibrate_scores
from vicinal.training.likelihood import (
    FIRST_ROWS,
    LAST_STEPS,
    MOST_LEFT_OUT,
    MOST_ROWS,
    STEPS,
    TableKernel,
    leave_one_out_error,
    left_out_errors,
    objective,
)

Range = tuple[float, float]

_PROBED, _MEDIA, _ENCODED = 256, 16, 4
"""Rows for the timed steps, fewer where files are read, and rows that pretrained encoders encode."""

_STEP = 0.004
"""Overhead of a training step, in seconds."""

_LIBRARIES = 3e8
"""Bytes of libraries that only training and baselines import."""


@dataclass(frozen=True)
class Estimate:
    """The expected time and memory of a fit.

    Attributes:
        seconds: lowest and highest by phase (see :class:`vicinal.core.progress.Step`), in order.
        memory: bytes, lowest and highest; None on Windows.
    """

    seconds: Mapping[str, Range]
    memory: Range | None

    @property
    def total(self) -> Range:
        """Seconds of all phases."""
        low, high = zip(*self.seconds.values(), strict=True)
        return sum(low), sum(high)

    @property
    def middle(self) -> dict[str, float]:
        """Seconds by phase: the geometric mean of both ends of its range."""
        return {phase: (low * high) ** 0.5 for phase, (low, high) in self.seconds.items()}


def estimate_fit(
    root: Path | None,
    frame: pd.DataFrame,
    kinds: Mapping[str, Kind],
    encoders: Mapping[str, str],
    settings: Mapping[str, Any],
    sizes: Mapping[str, int],
    *,
    kernel: str,
    classes: int,
    baselines: bool,
) -> Estimate:
    """Time a few steps of each phase on some rows, and scale the times to all rows.

    Times are processor seconds, without other work on this computer. The range is wide, since the number of epochs lies
    between ``patience`` + 1 and ``max_epochs``, and pretrained encoders are tuned for up to ``minutes``.

    Args:
        root: folder that paths start from.
        frame: the training rows.
        kinds: of the columns.
        encoders: by column; "one or another" if the fit will choose.
        settings: of the estimator.
        sizes: of the parts, see :class:`vicinal.workflows.FitPlan`.
        kernel: "only", "tried" or "none", see there.
        classes: number of classes; 0 for numbers.
        baselines: whether baselines are fitted.
    """
    rows, train = sum(sizes.values()), sizes["train"]
    probed = _PROBED if set(kinds.values()) <= {"number", "category", "text"} else _MEDIA
    some = frame.iloc[:: max(1, len(frame) // probed)].iloc[:probed]
    with seeded(0):
        named = {column: name.partition(" or ")[0] for column, name in encoders.items() if kinds[column] != "set"}
        encoder = build_table_encoder(kinds, encoders={**(settings["encoders"] or {}), **named}).fit(some)
        inputs = encoder.prepare(some, root)
        seconds = {
            "encoding": _encoding(encoder, inputs, rows, sure=not any(" or " in name for name in named.values()))
        }
        pace = min(_timed(lambda: torch.linalg.inv(torch.eye(_PROBED, dtype=torch.float64))) for _ in range(3))
        if kernel != "none":
            known = encoder.dim, min(train, MOST_ROWS), rows
            seconds["kernel"] = _class_kernel(*known, classes) if classes else _kernel(*known)
        if kernel != "only":
            seconds["training"] = _training(encoder, inputs, settings, sizes, classes)
    if settings["target_transform"] == "auto" and "kernel" in seconds:  # that of labels and of logarithms, before
        seconds["kernel"] = seconds["kernel"][0], 2 * seconds["kernel"][1]
    pretrained = bool(encoder.tunable)
    if settings["tune"] != "none" and pretrained:
        low, high = seconds.get("training", (0.0, 0.0))
        seconds["training"] = low, high + 60 * settings["minutes"]
    if baselines:
        slow = pace / 0.002 * max(1, classes) ** 0.5
        seconds["baselines"] = 0.5 * slow * (1 + min(rows, 2000) / 1000), 4 * slow * (1 + min(rows, 2000) / 400)
    seconds["measuring"] = 0.2 + rows * 2e-4, 2 + rows * 4e-3
    return Estimate(seconds, _memory(encoder, settings, rows, min(train, MOST_ROWS) if kernel != "none" else 0))


def _timed(work: Callable[[], Any]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def _encoding(encoder: TableEncoder, inputs: TableInputs, rows: int, *, sure: bool) -> Range:
    """Seconds of frozen networks, which run once; on some rows only, if the fit may choose another encoder."""
    low = high = 0.0
    for part, item in zip(encoder.encoders, inputs.parts, strict=True):
        if part.learned and part.frozen and len(item):
            few = item.select(torch.arange(min(_ENCODED, len(item))))
            with torch.no_grad():
                each = min(_timed(lambda: part.eval()(few)) for _ in range(2)) / min(_ENCODED, len(item))  # noqa: B023
            low, high = low + each * (rows if sure else min(rows, 2000)) / 2, high + each * 2 * rows
    return low, high


def _class_kernel(columns: int, rows: int, fitted: int, classes: int) -> Range:
    """Seconds of 20 to 60 kernels, each calibrated on left-out rows, and of held-out errors."""
    few = min(rows, _PROBED)
    matrix, labels = (
        torch.eye(few, dtype=torch.float64),
        torch.eye(classes, dtype=torch.float64)[torch.arange(few) % classes],
    )
    step = min(_timed(lambda: calibrate_scores(left_out_errors(matrix, labels), labels)) for _ in range(2))
    scale = min(rows, CLASS_ROWS) / few
    return 20 * step * scale, 60 * step * scale**2.5 + fitted * (1e-3 + columns * 1e-5)


def _kernel(columns: int, rows: int, fitted: int) -> Range:
    """Seconds of the likelihood and its correction, which grow as rows to the power 2 to 2.7, and of held-out rows."""
    few = min(rows, _PROBED)
    x, labels, parts = torch.randn(few, columns).double(), torch.randn(few).double(), [torch.arange(few)]

    def value_and_grad() -> None:
        kernel = TableKernel.of(TableKernel.start(columns).values().requires_grad_())
        objective(kernel, x, x.repeat(1, 4), labels, parts).backward()  # type: ignore[no-untyped-call]

    start = TableKernel.start(columns)
    step = min(_timed(value_and_grad) for _ in range(2))
    left_out = _timed(lambda: leave_one_out_error(start, x, x.repeat(1, 4), labels, parts))
    first, last, most = (min(rows, count) / few for count in (FIRST_ROWS, rows, MOST_LEFT_OUT))
    after = LAST_STEPS if rows > FIRST_ROWS else 0
    low = step * (STEPS / 2 * first**2 + after / 2 * last**2) + 25 * left_out * most**2
    high = 1.5 * step * (STEPS * first**2.4 + after * last**2.4) + 25 * left_out * most**2.7
    return low, high + fitted * 4e-3


def _training(
    encoder: TableEncoder, inputs: TableInputs, settings: Mapping[str, Any], sizes: Mapping[str, int], classes: int
) -> Range:
    """Seconds of patience + 1 to all epochs, from a few steps of a network of this form."""
    batch = min(settings["batch_size"], len(inputs))
    ids = torch.arange(batch)
    known = {
        str(number): {"embedded": torch.randn(batch, part.dim)} if part.learned and part.frozen else item.select(ids)
        for number, (part, item) in enumerate(zip(encoder.encoders, inputs.parts, strict=True))
    }
    labels = torch.rand(batch, classes) if classes else torch.rand(batch)
    network = make_network(dict(settings), encoder, encoder.dim, torch.zeros(classes) if classes else torch.zeros(()))
    optimizer = torch.optim.Adam(network.parameters())

    def step() -> None:
        optimizer.zero_grad()
        vectors = network.train().embed(known)
        network.head(vectors, vectors, labels, query_ids=ids, bank_ids=ids).square().mean().backward()
        optimizer.step()

    whole = min(settings["batch_size"], sizes["train"]) / batch
    each = min(_timed(step) for _ in range(3)) * whole + _STEP
    with torch.no_grad():
        vectors = network.eval().embed(known)
        validation = (
            min(_timed(lambda: network.head(vectors, vectors, labels, query_ids=ids, bank_ids=ids)) for _ in range(2))
            / batch**2
        )
    pairs = min(sizes["validation"] or sizes["train"], 1024) * min(sizes["train"], 8192)
    epoch = each * -(-sizes["train"] // settings["batch_size"]) + validation * pairs
    fewest = min(settings["patience"] + 1, settings["max_epochs"])
    return 0.7 * fewest * epoch, 1.2 * settings["max_epochs"] * epoch + 2


def _memory(encoder: TableEncoder, settings: Mapping[str, Any], rows: int, kernel: int) -> Range | None:
    """Bytes in use now, plus libraries, vectors, the bank, and the matrices of a kernel."""
    if sys.platform == "win32":
        return None
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    width = encoder.dim + settings["members"] * settings["hidden"][-1]
    more = rows * width * 8.0 + kernel**2 * 8 * 6.0
    return used + 0.2 * _LIBRARIES + more, used + 2 * _LIBRARIES + 4 * more
