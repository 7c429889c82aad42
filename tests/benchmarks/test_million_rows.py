"""The script of a million rows, with few: every stage runs, and a large bank is mapped, not read, when it is loaded."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "million_rows.py"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_stage_runs_and_stays_small(tmp_path):
    if not SCRIPT.is_file():
        pytest.skip("the benchmarks are not beside the tests")
    out = tmp_path / "stages.csv"
    command = [sys.executable, str(SCRIPT), "--rows", "300000", "--dim", "64", "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    lines = pd.read_csv(out)
    start = lines[lines.step == "imports"].peak_mib.max()
    vectors = 300_000 * 64 * 4 / 2**20
    load = lines[(lines.step == "load")]
    assert (load.peak_mib < start + vectors / 2).all()
    table = 300_000 * 16 * 8 / 2**20  # an explanation reads it: the file, as Arrow has it, and as pandas has it
    assert (lines.peak_mib < start + 250 + 3 * vectors + 3 * table).all()
    assert set(lines.stage) == {"fit", "change", "load", "predict", "explain", "interval"}
