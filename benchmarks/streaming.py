"""Predictions of a parquet file of numbers to a parquet file, killed once and resumed: rows a second, and memory.

    python benchmarks/streaming.py --rows 1000000                # the default model of numbers
    python benchmarks/streaming.py --rows 10000000 --head dense --out benchmarks/results/streaming.csv

A model is fitted on 2,000 rows of five columns. ``vicinal predict`` runs as a program of its own, is killed with
signal 9 when a share of the rows is done, and runs again; its memory is the most that the system has counted for it.
The first rows are compared with a prediction in one go.
"""

import argparse
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from vicinal import NeighborRegressor
from vicinal.workflows import predict_table

COLUMNS = list("abcde")
TRAIN, PIECE, COMPARED = 2000, 1 << 18, 50_000


def write_rows(path: Path, rows: int) -> None:
    """Standard normal numbers, a piece at a time."""
    random, schema = np.random.default_rng(1), pa.schema([(name, pa.float64()) for name in COLUMNS])
    with parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, PIECE):
            numbers = random.normal(size=(5, min(PIECE, rows - start)))
            writer.write_table(pa.table(dict(zip(COLUMNS, numbers, strict=True)), schema=schema))


def fit(folder: Path, head: str) -> NeighborRegressor:
    x = np.random.default_rng(0).normal(size=(TRAIN, 5))
    y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2]
    model = NeighborRegressor(head=head).fit(pd.DataFrame(x, columns=COLUMNS), y)
    model.save(folder)
    return model


def predict(arguments: list[str], stop_at: int | None) -> tuple[float, str, int]:
    """Seconds of the program, its last line of progress, and the rows that were done when it was killed, or 0."""
    begun = time.perf_counter()
    program = subprocess.Popen(
        [sys.executable, "-m", "vicinal", "predict", *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    last, done = "", 0
    for line in program.stderr:
        last = line.strip() or last
        counted = re.search(r"([\d,]+) of", last)
        if stop_at is not None and counted and int(counted[1].replace(",", "")) >= stop_at:
            done = int(counted[1].replace(",", ""))
            program.kill()
            break
    program.communicate()
    if stop_at is None and program.returncode:
        raise RuntimeError(last)
    return time.perf_counter() - begun, last, done


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--head", default="nona")
    options.add_argument("--kill", type=float, default=0.3, help="share of the rows after which it is killed")
    options.add_argument("--out", type=Path, help="csv to add a line to")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        model = fit(place / "model", chosen.head)
        write_rows(place / "rows.parquet", chosen.rows)
        arguments = [str(place / "model"), str(place / "rows.parquet"), "--out", str(place / "out.parquet")]
        first, _, done = predict(arguments, int(chosen.kill * chosen.rows))
        if (place / "out.parquet").exists():
            raise RuntimeError("expected no file after the kill")
        second, _, _ = predict(arguments, None)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        out = parquet.ParquetFile(place / "out.parquet")
        if out.metadata.num_rows != chosen.rows:
            raise RuntimeError(f"expected {chosen.rows} predictions, got {out.metadata.num_rows}")
        some = next(parquet.ParquetFile(place / "rows.parquet").iter_batches(COMPARED)).to_pandas()
        expected = predict_table(place / "model", some).columns["prediction"]
        got = next(out.iter_batches(COMPARED)).to_pandas()
        same = np.array_equal(got["prediction"].to_numpy(), expected)
        last = pd.read_parquet(place / "out.parquet", columns=["row"])["row"]
        ordered = bool((np.diff(last) == 1).all() and last.iloc[0] == 1)
        line = {
            "head": chosen.head,
            "readout": "dense" if chosen.head == "dense" else model.readout_,
            "rows": chosen.rows,
            "input_mib": round((place / "rows.parquet").stat().st_size / 2**20),
            "killed_after": done,
            "seconds_to_kill": round(first),
            "seconds_resumed": round(second),
            "rows_a_second": round((chosen.rows - done) / second),
            "peak_mib": round(peak),
            "in_order": ordered,
            "as_in_one_go": same,
        }
        print(line)
        if chosen.out is not None:
            pd.DataFrame([line]).to_csv(chosen.out, mode="a", index=False, header=not chosen.out.exists())


if __name__ == "__main__":
    main()
