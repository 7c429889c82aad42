"""Rows without a label are no class, group or stratum of their own: samplers refuse them by row."""

import datetime
import decimal

import numpy as np
import pandas as pd
import pytest
import torch

from vicinal import samplers
from vicinal.core import entries

TEXTS, NUMBERS = ["a", "b"] * 6, [0.0, 1.0] * 6


def with_gap(labels, gap, at=7):
    return [gap if place == at else label for place, label in enumerate(labels)]


def polars(values):
    return pytest.importorskip("polars", reason="polars is an optional package").Series(values)


def arrow(values):
    import pyarrow

    return pyarrow.array(values)


GAPS = {  # twelve labels, of which that of row 7 is missing
    "list, None": with_gap(TEXTS, None),
    "list of texts, NaN": with_gap(TEXTS, float("nan")),
    "list of numbers, None": with_gap(NUMBERS, None),
    "list of numbers, NaN": with_gap(NUMBERS, float("nan")),
    "list, NA": with_gap(TEXTS, pd.NA),
    "list, NaT": with_gap([datetime.date(2020, 1, 1)] * 12, pd.NaT),
    "list, Decimal": with_gap([decimal.Decimal(1)] * 12, decimal.Decimal("NaN")),
    "tuple": tuple(with_gap([3, 4] * 6, None)),
    "array of numbers": np.array(with_gap(NUMBERS, np.nan)),
    "half floats": np.array(with_gap(NUMBERS, np.nan), dtype=np.float16),
    "array of objects": np.array(with_gap(TEXTS, None), dtype=object),
    "dates": np.array(with_gap(["2020-01-01", "2021-01-01"] * 6, "NaT"), dtype="M8[D]"),
    "masked": np.ma.masked_array([3, 4] * 6, mask=np.arange(12) == 7),
    "tensor": torch.tensor(with_gap(NUMBERS, torch.nan)),
    "series": pd.Series(with_gap(TEXTS, None)),
    "whole numbers of pandas": pd.Series(with_gap([3, 4] * 6, None), dtype="Int64"),
    "numbers of pandas": pd.Series(with_gap(NUMBERS, None), dtype="Float64"),
    "texts of pandas": pd.Series(with_gap(TEXTS, None), dtype="string"),
    "truth values of pandas": pd.Series(with_gap([True, False] * 6, None), dtype="boolean"),
    "categories": pd.Categorical(with_gap(TEXTS, None)),
    "series of categories": pd.Series(with_gap(TEXTS, None), dtype="category"),
    "index": pd.Index(with_gap(NUMBERS, np.nan)),
    "arrow": arrow(with_gap(TEXTS, None)),
    "arrow numbers": arrow(with_gap([3, 4] * 6, None)),
}
SENTENCE = r": expected one for each row, got none in row 7; leave such rows out$"
each_gap = pytest.mark.parametrize("gap", GAPS)


def calls(labels):
    """All that read a label, group or number of each row."""
    whole, rows = np.arange(12) % 2, np.random.default_rng(0).normal(size=(12, 3))
    return {
        "classes": lambda: samplers.ClassBatches(labels, classes=2, per_class=2),
        "hierarchical": lambda: samplers.HierarchicalBatches(labels, whole, classes=2, per_class=2),
        "hierarchical, parents": lambda: samplers.HierarchicalBatches(np.arange(12), labels, classes=2, per_class=2),
        "groups": lambda: samplers.GroupBatches(labels, batch_size=2),
        "strata": lambda: samplers.StratumBatches(labels, batch_size=4, strata=2),
        "label_bands": lambda: samplers.label_bands(labels, 2),
        "prototype_distances": lambda: samplers.prototype_distances(rows, groups=labels),
        "keep_rows": lambda: samplers.keep_rows(np.arange(12.0), 0.5, groups=labels),
        "keep_rows, each": lambda: samplers.keep_rows(np.arange(12.0), 0.5, groups=labels, each_group=True),
    }


def test_all_samplers_of_labels_are_here():
    assert {entry.name for entry in entries("sampler")} - {"clusters"} <= set(calls(TEXTS))


@each_gap
@pytest.mark.parametrize("name", calls(TEXTS))
def test_a_row_without_a_label_is_refused_by_its_number(name, gap):
    with pytest.raises(ValueError, match=rf"^(labels|parents|groups|targets){SENTENCE}"):
        calls(GAPS[gap])[name]()


def test_polars_too():
    for name, call in calls(polars(with_gap(TEXTS, None))).items():
        with pytest.raises(ValueError, match=SENTENCE):
            call()
        assert name


@pytest.mark.parametrize(
    "labels", [TEXTS, ["nan", "None"] * 6, [True, False] * 6, pd.Categorical(TEXTS), torch.arange(12) % 2, [-1, 0] * 6]
)
def test_labels_that_are_there_are_classes_whatever_they_are_called(labels):
    assert len(list(samplers.ClassBatches(labels, classes=2, per_class=2))) == 3
