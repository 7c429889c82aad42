"""A surface of figure 3 in small: NONA learns what a plane cannot."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "figure3.py"


@pytest.fixture(scope="module")
def figure3():
    """The benchmark as a module."""
    if not SCRIPT.is_file():
        pytest.skip("the benchmarks are not beside the tests")
    spec = importlib.util.spec_from_file_location("figure3", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("method", ["NONA", "NONA + SoftStep"])
def test_beats_linear_regression_on_the_radial_surface_by_far(figure3, method):
    methods = {name: figure3.METHODS[name] for name in ("linear regression", method)}
    results = figure3.run(figure3.radial, seed=0, rows=200, noise=0.05, methods=methods)
    assert results[method][0] < results["linear regression"][0] / 20


@pytest.mark.slow
def test_the_figure_and_the_table_are_made(figure3, tmp_path):
    results = figure3.run(figure3.linear, seed=0, rows=40, noise=0.05)
    figure3.draw_figure(tmp_path / "figure3.png", {"linear": results}, points=10)
    assert (tmp_path / "figure3.png").read_bytes().startswith(b"\x89PNG")
    line = figure3.table({"linear": {name: [mse] for name, (mse, _) in results.items()}}).splitlines()[1]
    assert line.startswith("linear")
    assert line.count("*") == 1
