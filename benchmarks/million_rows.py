"""A bank of a million rows under 2 GiB: fit, add, forget, save, load, predict and explain, each with its peak memory.

Each stage runs in a process of its own where that shows its own peak (Linux: VmHWM, the most memory that the process
ever held, mapped files included). ``--readout rows`` reads predictions out by kriging; its stage "search" sets them
beside FAISS and scikit-learn on the same vectors, in turns. ``--readout default`` is what a user of a plain table gets:
a kernel, learned on 6,000 rows, read out by 128 rows.

    python benchmarks/million_rows.py --out benchmarks/results/million-rows.csv
    python benchmarks/million_rows.py --readout rows --members 8 --dim 200 --rows 100000 --stages fit search
    python benchmarks/million_rows.py --readout default --rows 100000 --stages fit change search
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from resumable import asked, peak_mb

COLUMNS = 16
CHANGED = 1000
QUERIES = 256
STAGES = ("fit", "change", "load", "predict", "explain", "interval", "search")
TURNS = 7


def rows_of(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows ``[n, 16]`` in 50 clouds, and a target that bends over them."""
    rng = np.random.default_rng(0)
    centers = rng.normal(0, 3, (50, COLUMNS))
    rng = np.random.default_rng(seed)
    x = centers[rng.integers(0, 50, count)] + rng.normal(0, 1, (count, COLUMNS))
    return x, np.sin(x[:, 0]) * 3 + x[:, 1] + rng.normal(0, 0.1, count)


class Clock:
    """Times what it is given and notes the peak after it."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def __call__(self, what: str, work: Callable[[], Any]) -> Any:
        """Run ``work``."""
        start, cpu = time.perf_counter(), time.process_time()
        made = work()
        spent = {"seconds": time.perf_counter() - start, "cpu_s": time.process_time() - cpu}
        self.lines.append({"step": what, **spent, "peak_mib": peak_mb()})
        return made


def run_stage(stage: str, folder: Path, rows: int, dim: int, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """One stage, in this process."""
    import torch

    from vicinal.estimators import NeighborRegressor, load_model

    torch.set_num_threads(1)
    clock = Clock()
    clock("imports", lambda: None)  # for the memory that they take
    x = rows_of(QUERIES, 2)[0]
    if stage == "fit":
        model = fit(clock, rows, dim, settings)
        clock("save", lambda: model.save(folder))
        return [{**line, "dim": model.bank_.store.dim} for line in clock.lines]
    model = clock("load", lambda: load_model(folder))
    if not isinstance(model, NeighborRegressor):
        raise SystemExit("expected a regressor")
    if stage == "change":
        fresh, labels = rows_of(CHANGED, 1)
        ids = range(2 * rows, 2 * rows + CHANGED)
        clock("add 1,000, first time", lambda: model.add(fresh, labels, ids=ids))
        clock("add 1,000, again", lambda: model.add(fresh, labels, ids=range(3 * rows, 3 * rows + CHANGED)))
        clock("forget 1,000", lambda: model.forget(ids))
        clock("save again", lambda: model.save(folder.with_name("again")))
    elif stage == "predict":
        clock("predict 256", lambda: model.predict(x))
        clock("predict 256, again", lambda: model.predict(x))
    elif stage == "explain":
        clock("explain 256", lambda: model.explain(x, 5))
    elif stage == "interval":
        clock("interval 256 (with calibration)", lambda: model.predict_interval(x, 0.9))
    elif stage == "search":
        return against_search(clock, model, x)
    return clock.lines


def against_search(clock: Clock, model: Any, x: np.ndarray) -> list[dict[str, Any]]:
    """Medians of predictions, of FAISS and of scikit-learn, in turns."""
    import faiss
    from sklearn.neighbors import NearestNeighbors

    from vicinal.heads import Kriging

    if not isinstance(model.network_.head, Kriging):
        raise SystemExit("search: expected --readout rows or default")
    queries, vectors = model.embed(x).astype(np.float32), model.bank_.vectors.numpy()
    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatL2(vectors.shape[1])
    index.add(vectors)
    brute = NearestNeighbors(n_neighbors=32, algorithm="brute").fit(vectors)
    model.predict_interval(x)  # which prepares and calibrates
    for _ in range(TURNS):
        clock("FAISS flat, top 32", lambda: index.search(queries, 32))
        clock("scikit-learn brute, top 32", lambda: brute.kneighbors(queries))
        clock("predict 256", lambda: model.predict(x))
        clock("predict 1", lambda: model.predict(x[:1]))
        clock("explain 256", lambda: model.explain(x))
        clock("interval 256", lambda: model.predict_interval(x))
    medians = pd.DataFrame(clock.lines).groupby("step", sort=False).median().reset_index()
    return medians.to_dict("records")


def fit(clock: Clock, rows: int, dim: int, settings: dict[str, Any]) -> Any:
    """A model with a bank of ``rows`` rows: trained on few, then given all by the code that ``fit`` ends with."""
    import torch

    from vicinal.estimators import NeighborRegressor
    from vicinal.estimators.bank import filled_bank
    from vicinal.estimators.inputs import HeldOut, LabelledRows

    if settings["readout"] == "default":  # the network that it is compared with costs time and changes nothing here
        x, y = rows_of(6000, 0)
        model = clock("learn a kernel on 6,000 rows", lambda: NeighborRegressor(metric="kernel").fit(x, y))
    else:
        settings = {"max_epochs": 3, "hidden": (200, dim // settings["members"]), "batch_size": 256, **settings}
        x, y = rows_of(5000, 0)
        model = clock("train on 4,500 rows", lambda: NeighborRegressor(**settings, validation_fraction=0.1).fit(x, y))
    x, y = clock("make the table", lambda: rows_of(rows, 3))
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(COLUMNS)], copy=False)

    def refresh() -> Any:
        inputs = model.table_encoder.prepare(frame, None)
        ids = np.arange(10_000, 10_000 + rows)
        everything = LabelledRows(frame, torch.from_numpy(y), ids, None, HeldOut(np.arange(rows), ids[:0]))
        return filled_bank(model.network_, inputs, everything, np.arange(rows))

    model.bank_ = clock(f"refresh the bank: embed {rows:,} rows", refresh)
    return model


def main() -> None:
    """Run all stages, or the one named, and print a table."""
    options = {"rows": 1_000_000, "dim": 128, "readout": "attention", "members": 1, "stages": list(STAGES[:-1])}
    given = asked(__doc__, out=None, folder=None, stage="", **options)  # "stage": one, in this process
    settings = {"readout": given.readout, "members": given.members}
    if given.stage:
        print(json.dumps(run_stage(given.stage, given.folder, given.rows, given.dim, settings)))
        return
    table = all_stages(given.rows, given.dim, given.stages, settings)
    print(table.to_string(index=False, float_format=lambda value: f"{value:.4g}"))
    if given.out is not None:
        table.to_csv(given.out, index=False, float_format="%.6g")


def all_stages(rows: int, dim: int, stages: Sequence[str], settings: dict[str, Any]) -> pd.DataFrame:
    """Every stage in a process of its own."""
    lines = []
    with tempfile.TemporaryDirectory() as aside:
        for stage in stages:
            command = [sys.executable, __file__, "--stage", stage, "--folder", str(Path(aside) / "model")]
            command += ["--rows", str(rows), "--dim", str(dim)]
            command += ["--readout", settings["readout"], "--members", str(settings["members"])]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            lines += [{"stage": stage, **line} for line in json.loads(done.stdout.splitlines()[-1])]
            print(f"{stage} done", file=sys.stderr)
    table = pd.DataFrame(lines).assign(rows=rows)
    return table.assign(dim=int(table["dim"].dropna().iloc[0]) if "dim" in table else dim)


if __name__ == "__main__":
    main()
