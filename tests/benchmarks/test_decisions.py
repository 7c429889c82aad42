"""What decisions lose in benchmarks/decisions.py is what one counts by hand, and test rows choose nothing."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def bench(monkeypatch):
    if not (FOLDER / "decisions.py").is_file():
        pytest.skip("the benchmarks are not beside the tests")
    monkeypatch.syspath_prepend(str(FOLDER))
    path, modules = list(sys.path), set(sys.modules)
    yield __import__("decisions")
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(FOLDER) in str(getattr(sys.modules[name], "__file__", "")):
            sys.modules.pop(name)


@pytest.fixture
def task(bench):
    """Ten rows of each part with the amounts 1 to 10; their 90th percentile is 9.1."""
    amounts = np.tile(np.arange(1.0, 11.0), 3)
    rows = np.arange(30).reshape(3, 10)
    return bench.Task(np.zeros((30, 1)), amounts, False, rows)


@pytest.mark.parametrize(
    ("case", "guesses", "lost"),
    [
        ("order, 3:1", {4: 3.0, 7: 8.0}, (0.75 * 1 + 0.25 * 1) / 10),
        ("order, 9:1", {4: 3.0, 7: 9.0}, (0.9 * 1 + 0.1 * 2) / 10),
        ("threshold, distance", {10: 9.0, 6: 9.5}, ((10 - 9.1) + (9.1 - 6)) / 10),
        ("threshold, 4:1", {10: 9.0, 6: 9.5}, (4 + 1) / 10),
    ],
)
def test_money_is_that_of_the_decisions(bench, task, case, guesses, lost):
    _, y, amount = task.part(2)
    level = amount.clone()
    for true, guess in guesses.items():
        level[true - 1] = guess
    level = (level - task.center) / task.unit
    assert bench.money(task, case, level, y, amount).item() == pytest.approx(lost, abs=1e-5)
    assert bench.money(task, case, y, y, amount).item() == pytest.approx(0, abs=1e-5)


def test_validation_rows_choose_candidate_and_shift(bench, task):
    y = task.part(1)[1]
    too_low, noise = y - 0.5, y.flip(0)
    line = bench.decide(task, torch.stack([noise, too_low]), torch.stack([y, y - 0.5]))
    assert float(line["order, 3:1, shifted"]) == pytest.approx(0, abs=1e-5)
    assert float(line["order, 3:1, plain"]) == pytest.approx(0.75 * 0.5 * task.unit.item(), rel=1e-3)
