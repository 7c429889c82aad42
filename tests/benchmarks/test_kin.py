"""The short ModernNCA of benchmarks/kin.py learns and sees no row's own label; the page shows the result file."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

ROOT = Path(__file__).parents[2]
FOLDER, RESULTS = ROOT / "benchmarks", ROOT / "benchmarks" / "results" / "kin.csv"


@pytest.fixture(scope="module")
def kin():
    if not FOLDER.is_dir():
        pytest.skip("the benchmarks are not beside the tests")
    sys.path.insert(0, str(FOLDER))
    try:
        yield runpy.run_path(str(FOLDER / "kin.py"))
    finally:
        sys.path.remove(str(FOLDER))
        sys.modules.pop("tables", None)


def test_modern_nca_learns_which_columns_count(kin):
    torch.manual_seed(0)
    x = torch.randn(160, 6)
    y = torch.sin(2 * x[:, 0])  # of one column in six
    model = kin["ModernNCA"](6, 0, periodic=False, width=16)

    def error():
        with torch.no_grad():
            return float((model.predict(x[120:], x[:120], y[:120]) - y[120:]).square().mean())

    before = error()
    assert model.learn(x[:120], y[:120], x[120:], y[120:], 0.01, patience=10) == pytest.approx(error())
    assert error() < 0.5 * before
    predicted = model.predict(x[120:], x[:120], y[:120])
    assert bool((predicted <= y[:120].max()).all() & (predicted >= y[:120].min()).all())


def test_modern_nca_hides_a_row_from_itself(kin):
    torch.manual_seed(0)
    x, y = torch.randn(5, 2), torch.tensor([0.0, 0.0, 0.0, 0.0, 7.0])
    model = kin["ModernNCA"](2, 0, periodic=False, width=4)
    with torch.no_grad():
        assert model.predict(x[4:], x, y, torch.tensor([[False] * 4 + [True]])).item() == 0
        assert model.predict(x[4:], x, y).item() > 0


def test_the_summary_compares_on_the_splits_that_both_have(kin):
    runs = pd.DataFrame(
        [("a", 0, "default", 1.0), ("a", 1, "default", 9.0), ("a", 0, "tabm", 0.5), ("b", 0, "default", 2.0),
         ("b", 0, "tabm", 8.0)], columns=["set", "split", "method", "mse"],
    ).assign(variance=10.0, rows=7, seconds=12.3, bytes=[4000.0, 4000.0, np.nan, 4000.0, np.nan])  # fmt: skip
    lines = kin["summary"](runs).splitlines()
    assert lines[2] == "| a | 7 | 0.500 | 0.50 |"
    assert lines[3] == "| b | 7 | 0.200 | 4.00 |"
    assert lines[4:7] == [
        "| median | | | **2.25** |",
        "| better than the default on | | | 1 of 2 |",
        "| splits | | | 1 |",
    ]
    assert lines[-1] == "| kilobytes, median | | 4.0 | - |"


def test_the_page_shows_what_was_measured(kin):
    page = (ROOT / "docs" / "results" / "nona.md").read_text(encoding="utf-8")
    for results in (RESULTS, RESULTS.with_name("kin-texts.csv")):
        assert kin["summary"](pd.read_csv(results)) in page
