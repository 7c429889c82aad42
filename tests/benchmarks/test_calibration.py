"""The calibration benchmark's methods cover on rows that are made to be alike, and its file is resumed."""

import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
MINE = {"attention", "members", "sets", "trainer"}


@pytest.fixture
def bench(monkeypatch):
    if not (FOLDER / "calibration_models.py").is_file():
        pytest.skip("the benchmarks are not beside the tests")
    monkeypatch.syspath_prepend(str(FOLDER / "nona"))
    monkeypatch.syspath_prepend(str(FOLDER))
    before = list(sys.path)
    models, kinds = __import__("calibration_models"), __import__("calibration_intervals")
    shift = __import__("calibration_shift")
    yield models, kinds, shift
    sys.path[:] = before
    for name in [n for n in sys.modules if n in MINE or n.startswith("calibration_")]:
        sys.modules.pop(name)


def fold_of(models, rows=400):
    """Labels whose noise grows along a line, with neighbor weights by nearness on it."""
    rng = np.random.default_rng(0)
    places = [np.sort(rng.uniform(0, 1, rows)) for _ in range(3)]
    bank, held, test = (4 * p + rng.normal(size=rows) * (0.1 + p) for p in places)

    def weights(own, *, leave_out=False):
        found = np.exp(-(((own[:, None] - places[0]) / 0.05) ** 2))
        if leave_out:
            np.fill_diagonal(found, 0)
        return found / found.sum(1, keepdims=True)

    axes = [np.tile((p[:, None] - 0.5) * 3.4, (1, 5)) for p in places]
    all_weights = weights(places[1]), weights(places[2]), weights(places[0], leave_out=True)
    return models.Fold(0, bank, held, test, *all_weights, 4 * places[1], 4 * places[2], axes[1], axes[2])


def test_every_kind_of_interval_covers(bench):
    models, kinds, _ = bench
    lines = {line["method"]: line for line in kinds.intervals(fold_of(models))}
    assert len(lines) == 12
    for method, line in lines.items():
        assert abs(line["covered"] - 0.9) < 0.06, method
        assert line["covered"] == pytest.approx(np.mean([line[f"q{i}"] for i in range(1, 5)]))
    assert lines["spread"]["score"] < lines["residual"]["score"]  # the noise grows


def test_shift_is_corrected_where_plain_fails(bench):
    models, _, shift = bench
    covered = {line["method"]: line["covered"] for line in shift.shifted(fold_of(models))}
    assert covered["component up: plain"] < 0.86
    for method in ("weighted, true ratio", "weighted, estimated", "LR-QR"):
        assert abs(covered[f"component up: {method}"] - 0.9) < 0.05


def test_figures_are_resumed_and_torn_lines_cut(bench, tmp_path):
    models, _, _ = bench
    path = tmp_path / "figures.csv"
    models.Figures(path).add([{"experiment": "intervals", "set": "a", "split": 0, "method": "m", "covered": 0.9}])
    with path.open("a") as file:
        file.write("intervals,b,0,m,0.")
    again = models.Figures(path)
    assert again.has("intervals", "a")
    assert not again.has("intervals", "b")
    assert path.read_text().endswith("\n")
