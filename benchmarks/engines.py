"""Predictions by workers of Ray and by one process: the same, how fast, and how much memory each worker has.

    python benchmarks/engines.py --rows 1000000 --workers 4 --out benchmarks/results/engines.csv
    python benchmarks/engines.py --rows 32768 --bank 200000 --workers 4 --out benchmarks/results/engines.csv

Without ``--bank`` a dense head, which reads no bank; with it a kernel and its 32 nearest rows among so many. ``vicinal
predict`` runs as a program of its own, parquet to parquet, once with ``--engine ray`` and once without. Memory is read
from ``/proc`` twice a second while it runs: of each worker its own pages, and those of the mapped bank, which workers
of a machine share.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
from pyarrow import parquet
from streaming import COLUMNS, TRAIN, write_rows

from vicinal import NeighborRegressor

WORKER = "BatchPredictor"


def fit(folder: Path, bank: int) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(max(TRAIN, bank), 5))
    y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2]
    frame = pd.DataFrame(x, columns=COLUMNS)
    settings = {"metric": "kernel", "max_neighbors": 32} if bank else {"head": "dense"}
    model = NeighborRegressor(**settings, max_epochs=10).fit(frame[:TRAIN], y[:TRAIN])
    if bank:
        model.add(frame[TRAIN:], y[TRAIN:])
    model.save(folder)


def sizes(process: str, bank: str) -> tuple[float, float] | None:
    """MiB of a worker that are its own, and of the mapped bank; None for what is no worker."""
    try:
        if WORKER.encode() not in Path(process, "cmdline").read_bytes():
            return None
        maps = Path(process, "smaps").read_text()
    except OSError:
        return None
    own, shared, name = 0, 0, ""
    for line in maps.splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            name = line
        elif line.startswith(("Private_Clean", "Private_Dirty")) and bank not in name:
            own += int(line.split()[1])
        elif line.startswith("Rss") and bank in name:
            shared += int(line.split()[1])
    return own / 1024, shared / 1024


def predict(arguments: list[str], bank: str) -> tuple[float, list[tuple[float, float]]]:
    """Seconds of the program, and the most memory of each worker."""
    most: dict[str, tuple[float, float]] = {}
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.5):
            for process in Path("/proc").glob("[0-9]*"):
                now = sizes(str(process), bank)
                if now is not None:
                    before = most.get(process.name, (0.0, 0.0))
                    most[process.name] = (max(before[0], now[0]), max(before[1], now[1]))

    begun, watcher = time.perf_counter(), threading.Thread(target=watch)
    watcher.start()
    subprocess.run([sys.executable, "-m", "vicinal", "predict", *arguments, "-q"], check=True)
    done.set()
    watcher.join()
    return time.perf_counter() - begun, list(most.values())


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--bank", type=int, default=0, help="rows of the bank; 0: a dense head")
    options.add_argument("--workers", type=int, default=4)
    options.add_argument("--out", type=Path, help="csv to add a line to")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        fit(place / "model", chosen.bank)
        write_rows(place / "rows.parquet", chosen.rows)
        given = [str(place / "model"), str(place / "rows.parquet"), "--out"]
        bank = str(place / "model" / "bank.safetensors")
        engine = ["--engine", "ray", "--workers", str(chosen.workers)]
        shared, workers = predict([*given, str(place / "ray.parquet"), *engine], bank)
        alone, _ = predict([*given, str(place / "one.parquet")], bank)
        ray, one = (parquet.read_table(place / f"{name}.parquet") for name in ("ray", "one"))
        apart = np.abs(ray["prediction"].to_numpy() - one["prediction"].to_numpy())
        line = {
            "head": "kernel" if chosen.bank else "dense",
            "rows": chosen.rows,
            "bank_rows": max(TRAIN, chosen.bank),
            "bank_mib": round(os.path.getsize(bank) / 2**20),
            "workers": chosen.workers,
            "cores": os.cpu_count(),
            "seconds": round(shared),
            "rows_a_second": round(chosen.rows / shared),
            "rows_a_second_alone": round(chosen.rows / alone),
            "workers_seen": len(workers),
            "mib_a_worker": round(max((own for own, _ in workers), default=0)),
            "mapped_mib_a_worker": round(max((mapped for _, mapped in workers), default=0)),
            "same_rows": ray["row"].equals(one["row"]),
            "largest_difference": float(apart.max()),
        }
        print(line)
        if chosen.out is not None:
            pd.DataFrame([line]).to_csv(chosen.out, mode="a", index=False, header=not chosen.out.exists())


if __name__ == "__main__":
    main()
