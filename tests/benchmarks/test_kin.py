"""The short ModernNCA of benchmarks/kin.py learns and sees no row's own label."""

import runpy
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def kin():
    if not FOLDER.is_dir():
        pytest.skip("the benchmarks are not beside the tests")
    sys.path.insert(0, str(FOLDER))
    try:
        yield runpy.run_path(str(FOLDER / "kin.py"))
    finally:
        sys.path.remove(str(FOLDER))
        for name in ("resumable", "tables"):
            sys.modules.pop(name, None)


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
