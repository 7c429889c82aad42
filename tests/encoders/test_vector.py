"""Vectors in cells."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

import references.encoders as reference
from vicinal.encoders import VectorEncoder

ROWS = np.random.default_rng(0).normal(3, 2, (9, 4))


def frame_of(rows):
    return pd.DataFrame({"v": pd.Series(list(rows), dtype=object)})


def test_equals_reference_and_restores():
    encoder = VectorEncoder("v").fit(frame_of(ROWS))
    want = torch.from_numpy(reference.standardized(ROWS))
    torch.testing.assert_close(encoder.prepare(frame_of(ROWS.tolist())).values, want)
    again = VectorEncoder.from_config(json.loads(json.dumps(encoder.config())))
    assert torch.equal(again.prepare(frame_of(ROWS)).values, encoder.prepare(frame_of(ROWS)).values)
    assert again.dim == 4


@pytest.mark.parametrize(
    ("cell", "sentence"),
    [
        ([1.0, 2.0], r"^v: expected 4 numbers in row 1, got 2"),
        (None, r"^v: expected a list of numbers in row 1, got None; leave out rows"),
        ([1, 2, 3, "x"], r"^v: expected a list of numbers in row 1"),
        ([1, 2, np.nan, 4], r"^v: expected finite numbers in row 1, got nan at place 2"),
        ([1, 2, 3, np.inf], r"^v: expected finite numbers in row 1, got inf at place 3"),
        ([[1, 2], [3, 4]], r"^v: expected a list of numbers in row 1"),
        ([], r"^v: expected 4 numbers in row 1, got 0"),
    ],
)
def test_bad_cell_is_refused_by_row(cell, sentence):
    encoder = VectorEncoder("v").fit(frame_of(ROWS))
    with pytest.raises(ValueError, match=sentence):
        encoder.prepare(frame_of([ROWS[0], cell]))


def test_unfitted_and_empty_are_refused():
    with pytest.raises(ValueError, match="call fit first"):
        VectorEncoder("v").prepare(frame_of(ROWS))
    with pytest.raises(ValueError, match=r"^v: expected at least one row"):
        VectorEncoder("v").fit(frame_of([]))
