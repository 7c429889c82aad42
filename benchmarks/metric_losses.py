"""Forward and backward of every pair loss and miner, beside pytorch-metric-learning and the limit.

    python benchmarks/metric_losses.py [--batch 256 1024 4096] [--only supcon circle] [--quick] [--resume] [--compiled]

One thread, seconds of the processor. The limit is one matrix product of the embeddings and softmax cross-entropy on
it, forward and backward; in each round it runs beside ours and theirs, so that a slow moment of the machine falls on
all three; shown are medians. Embeddings have 128 dimensions, four rows a class; proxies are of 1,000 classes or more,
and their limit has as many columns. Memory is the peak of one step above what was held before, in matrices of scores
(``[b, b]``, of proxies ``[b, C]``) of float32; below batch 4096 it is mostly that of torch itself, the limit's too.
Where a rival's memory or time explodes it is left out, with a note. ``--resume`` keeps what the file of results has,
so a run can be split by ``--batch``, ``--kind`` and ``--only``.
"""

import argparse
import contextlib
import csv
import ctypes
import gc
import resource
import statistics
import time
import warnings
from dataclasses import replace
from pathlib import Path

import torch
from metric_losses_cases import Case, cases, limit

FIELDS = ["batch", "kind", "name", "limit_ms", "ours_ms", "theirs_ms", "x_limit", "x_theirs", "matrices"]
FIELDS += ["their_matrices", "note"]
ENOUGH = 4.0  # seconds after which even fewer than three rounds will do: a rival is slow
STREAMED = 4096  # from this batch on matrices are to be few; below, torch itself takes more


def resident(field: str) -> int:
    """Bytes of resident memory: VmRSS now, VmHWM at its highest."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0


def peak(step) -> int:
    """Bytes that a step takes above what was held before."""
    gc.collect()
    with contextlib.suppress(OSError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    before = resident("VmRSS")
    step()
    return resident("VmHWM") - before


def timed(step) -> float:
    start = time.process_time()
    step()
    return time.process_time() - start


def rival_of(case: Case, batch: int):
    """A step of theirs, or None with the reason."""
    if case.theirs is None:
        return None, ""
    if batch > case.most:
        return None, f"theirs left out above {case.most}: time or memory explodes"
    try:
        step = case.theirs(batch)
        step()
    except (RuntimeError, MemoryError) as error:
        return None, f"theirs failed: {str(error).splitlines()[0][:60]}"
    return step, ""


def measure(case: Case, batch: int, seconds: float) -> dict[str, object]:
    """Medians of a few interleaved rounds, and memory."""
    columns = case.columns(batch)
    base, ours = limit(batch, columns), case.ours(batch)
    base(), ours()
    theirs, note = rival_of(case, batch)
    steps = [step for step in (base, ours, theirs) if step is not None]
    rounds: list[list[float]] = []
    spent = 0.0
    while (len(rounds) < 3 and spent < ENOUGH) or (len(rounds) < 25 and spent < seconds):
        rounds.append([timed(step) for step in steps])
        spent += sum(rounds[-1])
    medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
    row: dict[str, object] = {"batch": batch, "kind": case.kind, "name": case.name, "note": note}
    row |= {"limit_ms": 1e3 * medians[0], "ours_ms": 1e3 * medians[1], "x_limit": ratio(rounds, 1, 0)}
    row["matrices"] = peak(ours) / (4 * batch * columns)
    if theirs is not None:
        row |= {"theirs_ms": 1e3 * medians[2], "x_theirs": ratio(rounds, 2, 1)}
        row["their_matrices"] = peak(theirs) / (4 * batch * columns)
    return row


def ratio(rounds: list[list[float]], one: int, other: int) -> float:
    return statistics.median(each[one] / each[other] for each in rounds)


def shown(row: dict[str, object]) -> str:
    def number(key: str, form: str) -> str:
        return format(float(str(row[key])), form) if row.get(key) not in (None, "") else "-"

    parts = [f"{row['batch']:>5} {row['kind']!s:8} {row['name']!s:34}"]
    parts += [f"{number(key, '.2f'):>9}" for key in ("limit_ms", "ours_ms", "theirs_ms")]
    parts += [f"{number(key, '.2f'):>8}" for key in ("x_limit", "x_theirs", "matrices", "their_matrices")]
    return " ".join(parts) + f"  {row.get('note') or ''}"


def read(path: Path) -> list[dict[str, object]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as source:
        return [dict(row) for row in csv.DictReader(source)]


def write(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as sink:
        writer = csv.DictWriter(sink, FIELDS, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()})


def missed(row: dict[str, object], field: str) -> str:
    return f"{row['name']} ({row['kind']}) {float(str(row[field])):.2g}"


def summarize(rows: list[dict[str, object]], limits: int) -> None:
    """Geometric means, and what misses a target."""
    every = [float(str(row["x_theirs"])) for row in rows if row.get("x_theirs") not in (None, "")]
    for batch in sorted({int(str(row["batch"])) for row in rows}):
        these = [row for row in rows if int(str(row["batch"])) == batch]
        faster = [float(str(row["x_theirs"])) for row in these if row.get("x_theirs") not in (None, "")]
        costs = [float(str(row["x_limit"])) for row in these if row.get("x_limit") not in (None, "")]
        text = f"batch {batch}: ours costs {statistics.geometric_mean(costs):.2f} limits"
        if faster:
            text += f"; theirs takes {statistics.geometric_mean(faster):.2f} times as long ({len(faster)} rivals)"
        print(text)
        slow = [missed(row, "x_theirs") for row in these if float(str(row.get("x_theirs") or 1)) < 0.95]
        over = [missed(row, "x_limit") for row in these if float(str(row.get("x_limit") or 0)) > limits]
        large = [
            missed(row, "matrices") for row in these if batch >= STREAMED and float(str(row.get("matrices") or 0)) > 3
        ]
        for label, names in (("slower than theirs", slow), (f"over {limits} limits", over), ("over 3 matrices", large)):
            if names:
                print(f"  {label}: {', '.join(names)}")
    if every:
        mean = statistics.geometric_mean(every)
        print(f"all {len(every)} rows with a rival: theirs takes {mean:.2f} times as long (geometric mean)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[256, 1024, 4096])
    parser.add_argument("--only", nargs="+", default=None, help="names of losses and miners")
    parser.add_argument("--kind", nargs="+", choices=["loss", "proxies", "miner", "both"], default=None)
    parser.add_argument("--quick", action="store_true", help="batch 256 alone, few rounds")
    parser.add_argument("--seconds", type=float, default=1.0, help="of rounds a case, at least three")
    parser.add_argument("--compiled", action="store_true", help="ours under torch.compile; takes long to start")
    parser.add_argument("--no-rivals", action="store_true")
    parser.add_argument("--resume", action="store_true", help="keep the rows that the file of results has")
    parser.add_argument("--limit-memory", type=float, default=10.0, help="GiB; a rival that wants more has failed")
    parser.add_argument("--out", type=Path, default=None, help="CSV of results")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if not arguments.compiled:
        most = int(arguments.limit_memory * 2**30) + resident("VmSize")
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    name = "metric-losses-compiled.csv" if arguments.compiled else "metric-losses.csv"
    path = arguments.out or Path(__file__).parent / "results" / name
    rows = read(path) if arguments.resume else []
    known = {(str(row["batch"]), row["kind"], row["name"]) for row in rows}
    batches = [256] if arguments.quick else arguments.batch
    print(f"torch {torch.__version__}, one thread; ms of the processor, x limit, theirs / ours, matrices of scores")
    titles = ("limit", "ours", "theirs", "x limit", "theirs/o", "matrices", "theirs")
    print(f"{'batch':>5} {'kind':8} {'name':34} " + " ".join(f"{t:>{9 if i < 3 else 8}}" for i, t in enumerate(titles)))
    for batch in batches:
        for case in cases(compiled=arguments.compiled):
            wanted = arguments.only is None or case.name in arguments.only
            if not wanted or (arguments.kind and case.kind not in arguments.kind):
                continue
            if (str(batch), case.kind, case.name) in known:
                continue
            if arguments.no_rivals:
                case = replace(case, theirs=None)
            try:
                row = measure(case, batch, 0.3 if arguments.quick else arguments.seconds)
            except (RuntimeError, ValueError, TypeError) as error:
                reason = f"ours failed: {str(error).splitlines()[0][:80]}"
                row = {"batch": batch, "kind": case.kind, "name": case.name, "note": reason}
            print(shown(row), flush=True)
            rows.append(row)
            write(path, rows)
    summarize(rows, 2 if arguments.compiled else 3)


if __name__ == "__main__":
    main()
