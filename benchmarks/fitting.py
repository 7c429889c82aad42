"""Where the time of ``vicinal fit`` goes, phase by phase, of this version and, beside it, of another.

Each fit is a process of its own, on one thread, in processor seconds: 3,000 rows of 20 numbers, of one vector of 384
numbers that predict a number, and of the same vectors that predict one of three classes; ``vicinal fit`` as it is. The
versions take turns. ``--vectors`` names a file of numpy with ``features`` and a column of numbers; without, vectors are
made up.

    python benchmarks/fitting.py --vectors runs/nona/tweets.npz:rating --before ../old/src \
        --out benchmarks/results/fitting.csv --page docs/scaling.md
"""

import argparse
import functools
import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROWS = 3000
CASES = {"numbers": "20 numbers", "vectors": "vectors of 384", "classes": "vectors of 384, classes"}
PHASES = {
    "imports": [],
    "reading and plan": ["workflows.fit.plan_fit", "workflows.fit.run_fingerprint"],
    "kernel: likelihood": ["training.likelihood.most_likely_kernel"],
    "kernel: noise tried again": ["training.likelihood.corrected"],
    "training: steps": ["training.fit.train"],
    "training: validation": [
        "training.module.NeighborModule.on_validation_epoch_start",
        "training.module.NeighborModule.validation_step",
        "training.module.NeighborModule.on_validation_epoch_end",
    ],
    "readout, errors held out": [
        "estimators.fitting.fill_banks",
        "estimators.fitting._with_readout",
        "estimators.fitted.FittedModel.honest_error",
        "estimators.fitted.FittedModel.error_at",
    ],
    "baselines": ["evaluation.tuned._fitted", "workflows.measuring.untuned_features"],
    "predictions and intervals of test rows": [
        "workflows.measuring.predict_test",
        "workflows.measuring.knn_of_embeddings",
        "workflows.verdict.covering",
    ],
    "report and files": ["workflows.fit.fit_record", "workflows.fit.write_fit"],
}
"""What is counted where, less what inner phases take; what is named nowhere is "other"."""


def main(arguments: list[str] | None = None) -> None:
    """Run all cases and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", help="FILE.npz:COLUMN")
    parser.add_argument("--before", type=Path, help="folder src of the version to stand beside")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--page", type=Path, help="page with the lines <!-- fitting --> and <!-- end of fitting -->")
    parser.add_argument("--table", type=Path, help=argparse.SUPPRESS)  # of the process of one fit
    given = parser.parse_args(arguments)
    if given.table is not None:
        one_fit(given.table)
        return
    here = Path(__file__).resolve().parents[1] / "src"
    sources = {"before": given.before, "now": here} if given.before else {"now": here}
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        tables = write_tables(Path(folder), given.vectors)
        for turn in range(given.turns):
            for case, table in tables.items():
                for version, source in sources.items():
                    for phase, seconds in measured(table, source):
                        lines.append({"case": case, "version": version, "turn": turn, "phase": phase, "cpu_s": seconds})
                    print(case, version, round(sum(line["cpu_s"] for line in lines[-len(PHASES) - 1 :]), 1), flush=True)
    results = pd.DataFrame(lines)
    if given.out is not None:
        results.round(3).to_csv(given.out, index=False)
    print(page_table(results))
    if given.page is not None:
        text = given.page.read_text()
        before, rest = text.split("<!-- fitting -->\n")
        after = rest.split("<!-- end of fitting -->\n")[1]
        parts = before, "<!-- fitting -->\n\n", page_table(results), "\n<!-- end of fitting -->\n", after
        given.page.write_text("".join(parts))


def write_tables(folder: Path, vectors: str | None) -> dict[str, Path]:
    """The three tables as parquet files."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 20))
    bent = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3:8].sum(1) + 0.3 * rng.normal(size=ROWS)
    numbers = pd.DataFrame(x, columns=[f"x{place}" for place in range(20)]).assign(y=bent)
    if vectors is None:
        hidden = rng.normal(size=(ROWS, 30))
        features = hidden @ rng.normal(size=(30, 384)) + rng.normal(size=(ROWS, 384))
        target = np.sin(hidden[:, 0]) + hidden[:, 1:4].sum(1) + 0.5 * rng.normal(size=ROWS)
    else:
        name, column = vectors.rsplit(":", 1)
        with np.load(name) as known:
            features, target = known["features"][:ROWS], known[column][:ROWS]
    frame = pd.DataFrame({"vector": list(features.astype(np.float32)), "y": target})
    thirds = np.searchsorted(np.quantile(target, [1 / 3, 2 / 3]), target)
    frames = {"numbers": numbers, "vectors": frame, "classes": frame.assign(y=np.array(["a", "b", "c"])[thirds])}
    for case, rows in frames.items():
        rows.to_parquet(folder / f"{case}.parquet")
    return {case: folder / f"{case}.parquet" for case in frames}


def measured(table: Path, source: Path) -> Iterable[tuple[str, float]]:
    """Phases of a fit of ``table`` and their processor seconds, in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--table", str(table)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines = [line.split("\t") for line in run.stdout.splitlines() if line.startswith("phase\t")]
    return [(phase, float(seconds)) for _, phase, seconds in lines]


class Stopwatch:
    """Processor seconds by phase; the time of an inner phase is not its outer one's."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys([*PHASES, "other"], 0.0)
        self._inner: list[float] = []

    def around(self, work: Callable[..., Any], phase: str) -> Callable[..., Any]:
        """The same function, timed."""

        @functools.wraps(work)
        def timed(*args: Any, **kwargs: Any) -> Any:
            begun = time.process_time()
            self._inner.append(0.0)
            try:
                return work(*args, **kwargs)
            finally:
                whole = time.process_time() - begun
                self.spent[phase] += whole - self._inner.pop()
                if self._inner:
                    self._inner[-1] += whole

        return timed

    def put_around(self, name: str, phase: str) -> None:
        """Time a function or method wherever the library holds it."""
        owner, what = name.rsplit(".", 1)
        place, _, inside = (owner, "", "") if owner.islower() else owner.rpartition(".")
        module = importlib.import_module(f"vicinal.{place}")
        holder = getattr(module, inside) if inside else module
        plain = getattr(holder, what)
        timed = self.around(plain, phase)
        setattr(holder, what, timed)
        for other in [other for key, other in sys.modules.items() if key.startswith("vicinal")]:
            if getattr(other, what, None) is plain:
                setattr(other, what, timed)


def one_fit(table: Path) -> None:
    """Fit in this process and print what each phase took."""
    import torch

    import vicinal.estimators.loss
    import vicinal.training.fit
    import vicinal.workflows.fit  # noqa: F401  # all that a fit imports
    from vicinal.cli.program import run

    torch.set_num_threads(1)
    watch = Stopwatch()
    watch.spent["imports"] = time.process_time()
    for phase, names in PHASES.items():
        for name in names:
            watch.put_around(name, phase)
    with tempfile.TemporaryDirectory() as folder:
        code = run(["fit", str(table), "--target", "y", "--seed", "0", "--quiet", "--out", f"{folder}/model"])
    if code:
        raise SystemExit(code)
    watch.spent["other"] = time.process_time() - sum(watch.spent.values())
    for phase, seconds in watch.spent.items():
        print(f"phase\t{phase}\t{seconds}")


def page_table(results: pd.DataFrame) -> str:
    """Medians over turns as a table of Markdown, before and now."""
    spent = results.groupby(["case", "version", "phase"])["cpu_s"].median()
    versions = [version for version in ("before", "now") if version in set(results["version"])]
    heads = [f"{CASES[case]}, {version}" for case in CASES for version in versions]
    lines = ["| processor seconds | " + " | ".join(heads) + " |", "| --- " * (len(heads) + 1) + "|"]
    for phase in [*PHASES, "other"]:
        cells = [f"{spent[case, version, phase]:.1f}" for case in CASES for version in versions]
        lines.append(f"| {phase} | " + " | ".join(cells) + " |")
    whole = spent.groupby(["case", "version"]).sum()
    cells = [f"{whole[case, version]:.1f}" for case in CASES for version in versions]
    lines.append("| all | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
