"""Which metrics ``metric="auto"`` tries, by what is known of a table before anything is fitted."""

from collections.abc import Mapping
from typing import Any

from vicinal.encoders import Kind
from vicinal.estimators.inputs import Ids
from vicinal.estimators.kernel_metric import may_be_kernel
from vicinal.estimators.tree_metric import may_be_class_trees, may_be_trees

BESIDE_TREES = 1000
"""Rows from which on a network is tried beside trees: of fewer too few are held out to tell which one is better."""

FILES = {"image", "audio", "set"}
"""Kinds of columns whose encoders only a network trains, so that it is tried beside trees of few rows, too."""


def metrics_to_try(
    settings: Mapping[str, Any],
    kinds: Mapping[str, Kind],
    labels: Ids,
    groups: Ids | None,
    *,
    classes: bool,
    several: bool,
    rows: int,
    wide: bool,
    untrained: bool,
) -> list[str]:
    """The metrics that will be fitted, a network last; the one that is asked for is alone.

    Args:
        settings: the estimator's parameters.
        kinds: of the columns.
        labels: of classes ``[n]``.
        groups: ``[n]``, or None.
        classes: whether labels are classes.
        several: whether a row may have several of these.
        rows: how many are fitted to.
        wide: whether a column is read by its components.
        untrained: whether images or sounds are read as a network would learn to.
    """
    if settings["metric"] != "auto":
        return [settings["metric"]]
    if several:
        return ["network"]
    # of classes a kernel of media that nothing has trained was taken by luck, for 10 % more log-loss
    kernel = may_be_kernel(settings, classes=classes) and not (classes and untrained)
    trees = may_be_trees(settings, kinds, groups) and (not classes or may_be_class_trees(labels, len(kinds), groups))
    # no network is as good on such tables (docs/results/predict.md)
    few = rows < BESIDE_TREES and not FILES & {*kinds.values()}
    return ["kernel"] * kernel + ["trees"] * trees + ["network"] * (not trees or (wide and not few))
