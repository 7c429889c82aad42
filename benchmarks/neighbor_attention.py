"""Speed and memory of the NONA head over large banks, against what else can compute the same or part of it.

Every case runs in a process of its own, where it takes turns with the bare matrix products in blocks of 1,024 rows
(one pass; a masked head needs two): medians of both, their ratio, and the peak of extra memory are printed. Time is
that of the processor with one thread, which other work on the machine disturbs least, and that of the wall with more
(OMP_NUM_THREADS=2). "nearest 32" is the search of an estimator's bank, whose preparation is not in the time; memory is
beside the bank and what was prepared of it.

    python benchmarks/neighbor_attention.py            # all sizes, about a quarter of an hour; writes results/
    python benchmarks/neighbor_attention.py --quick    # 256 queries, to 100,000 rows
    python benchmarks/neighbor_attention.py --queries 2048 --dims 25 --rows 1000000 --methods top32 faiss32
"""

import argparse
import contextlib
import csv
import ctypes
import gc
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from neighbor_rivals import compiled_blocks, naive

METHODS = {
    "gemm": "bare GEMM in blocks of 1,024",
    "gemm_bf16": "the same in bfloat16",
    "naive_plain": "naive dense torch, no mask",
    "naive_s1": "naive dense torch, S1",
    "blocks_plain": "blocks of 1,024 under torch.compile, no mask",
    "blocks_s1": "blocks of 1,024 under torch.compile, S1",
    "plain": "vicinal, no mask",
    "s2": "vicinal, S2",
    "s1": "vicinal, S1",
    "top32": "vicinal, top 32",
    "nearest32": "vicinal, nearest 32",
    "s2_train": "vicinal, S2, forward + backward",
    "s1_train": "vicinal, S1, forward + backward",
    "faiss32": "FAISS flat, top 32",
    "sklearn7": "scikit-learn brute, k = 7",
}

COMPILED = ("blocks_plain", "blocks_s1")

COLUMNS = ("method", "b", "d", "n", "threads", "seconds", "gemm", "ratio", "extra_mib", "runs", "failed")

THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))

clock = time.process_time if THREADS == 1 else time.perf_counter


def resident(field: str) -> float:
    """Resident memory in MiB: VmRSS now, VmHWM at its highest."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    return float("nan")


def settle() -> None:
    """Give freed memory back, and forget the highest so far."""
    gc.collect()
    with contextlib.suppress(OSError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def ours(name, q, x, y):
    """A streamed prediction."""
    import torch

    from vicinal.heads import NONA, streamed_prediction
    from vicinal.masks import SoftStep, TopK

    kind, _, way = name.partition("_")
    mask = None if kind == "plain" else TopK(32) if kind == "top32" else SoftStep(q.shape[1], kind, "global")
    train = way == "train"
    head = NONA(mask=mask).requires_grad_(train)
    if train:
        q, x = q.requires_grad_(), x.requires_grad_()

    def call():
        prediction = streamed_prediction(q, x, y, head.similarity, head.mask)
        if train:
            torch.autograd.grad(prediction.sum(), [q, x, *head.parameters()])

    return call


def products(q, x):
    """The bare matrix products."""
    import torch

    out = torch.empty(len(q), 1024, dtype=q.dtype)
    blocks = list(x.detach().split(1024))
    q = q.detach()
    return lambda: [torch.mm(q, part.T, out=out[:, : len(part)]) for part in blocks]


def build(case) -> tuple[Callable[[], object], Callable[[], object]]:
    """The call that a case times, and the call that it is compared with."""
    import torch

    name, b, d, n = case["method"], case["b"], case["d"], case["n"]
    x, q = torch.randn(n, d), torch.randn(b, d)
    y = torch.rand(n)
    gemm = products(q, x)
    if name == "gemm":
        return gemm, gemm
    if name == "gemm_bf16":
        return products(q.bfloat16(), x.bfloat16()), gemm
    if name.startswith("naive"):
        return lambda: naive(q, x, y, name == "naive_s1"), gemm
    if name.startswith("blocks"):
        return compiled_blocks(q, x, y, name == "blocks_s1"), gemm
    if name == "faiss32":
        import faiss

        faiss.omp_set_num_threads(THREADS)
        index = faiss.IndexFlatL2(d)
        index.add(x.numpy())
        return lambda: index.search(q.numpy(), 32), gemm
    if name == "sklearn7":
        from sklearn.neighbors import KNeighborsRegressor

        model = KNeighborsRegressor(7, algorithm="brute", n_jobs=THREADS).fit(x.numpy(), y.numpy())
        return lambda: model.predict(q.numpy()), gemm
    if name == "nearest32":
        from vicinal.blockwise.nearest import NearestRows

        known = NearestRows(x)
        return lambda: known.search(q, x, 32), gemm
    return ours(name, q, x, y), gemm


def timed(call) -> float:
    """Seconds of one call."""
    start = clock()
    call()
    return clock() - start


def measure(case, seconds: float, runs: int):
    """Median time of one call and of the bare products, taking turns, and extra memory, in this process."""
    import torch

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    call, gemm = build(case)
    with contextlib.nullcontext() if case["method"].endswith("train") else torch.inference_mode():
        gemm()
        if timed(gemm) < 1 or case["method"] in COMPILED:
            call()
        settle()
        before, times, floor = resident("VmRSS"), [], []
        while not times or (len(times) < runs and sum(times) < seconds):
            floor.append(timed(gemm))
            times.append(timed(call))
    result = {**case, "threads": THREADS, "runs": len(times)}
    result |= {"seconds": statistics.median(times), "gemm": statistics.median(floor)}
    result |= {"ratio": result["seconds"] / result["gemm"], "extra_mib": resident("VmHWM") - before}
    return result


def run(case, arguments):
    """Measure a case in a process of its own; the reason where it fails."""
    flags = ["--case", json.dumps(case), "--seconds", str(arguments.seconds), "--runs", str(arguments.runs)]
    environment = dict(os.environ, OMP_NUM_THREADS=str(THREADS), MKL_NUM_THREADS=str(THREADS))
    try:
        done = subprocess.run(
            [sys.executable, __file__, *flags],
            capture_output=True,
            text=True,
            env=environment,
            timeout=arguments.timeout,
        )
    except subprocess.TimeoutExpired:
        return {**case, "failed": f"over {arguments.timeout:.0f} s"}
    if done.returncode:
        return {**case, "failed": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][:60]}
    return json.loads(done.stdout.splitlines()[-1])


def too_large(name: str, b: int, n: int) -> bool:
    """Whether a case is left out: matrices of more than a gigabyte, or minutes of time."""
    work = b * n
    return work > {"naive": 3e8, "blocks": 5e8}.get(name.split("_")[0], 3e8 if name.endswith("train") else 1e10)


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, nargs="+", default=None)
    parser.add_argument("--dims", type=int, nargs="+", default=[25, 128])
    parser.add_argument("--rows", type=int, nargs="+", default=None)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=None)
    parser.add_argument("--quick", action="store_true", help="fewer sizes and calls, nothing compiled, no file")
    parser.add_argument("--seconds", type=float, default=None, help="of timed calls a case")
    parser.add_argument("--runs", type=int, default=9, help="most timed calls a case")
    parser.add_argument("--timeout", type=float, default=300.0)
    parser.add_argument("--out", type=Path, help="write the table there; the full one goes to results/ by itself")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    quick, whole = arguments.quick, arguments.queries is arguments.rows is arguments.methods is None
    if whole and not quick and arguments.out is None:
        plural = "" if THREADS == 1 else "s"
        name = f"neighbor-attention-{THREADS}-thread{plural}.csv"
        arguments.out = Path(__file__).parent / "results" / name
    arguments.seconds = arguments.seconds or (0.5 if quick else 2.0)
    arguments.queries = arguments.queries or ([256] if quick else [256, 2048])
    arguments.rows = arguments.rows or ([10_000, 100_000] if quick else [10_000, 100_000, 1_000_000])
    arguments.methods = arguments.methods or [m for m in METHODS if not (quick and m in COMPILED)]
    return arguments


def show(record) -> None:
    """A line of the table."""
    label = METHODS[record["method"]]
    if "failed" in record:
        print(f"  {label:<46} {record['failed']}", flush=True)
        return
    print(
        f"  {label:<46} {1e3 * record['seconds']:9.1f} ms  x{record['ratio']:6.2f}  {record['extra_mib']:7.0f} MiB",
        flush=True,
    )


def main() -> None:
    arguments = parse()
    if arguments.case:
        print(json.dumps(measure(json.loads(arguments.case), arguments.seconds, arguments.runs)))
        return
    names = arguments.methods
    if importlib.util.find_spec("faiss") is None:
        names = [m for m in names if m != "faiss32"]
        print("faiss is not installed; its rows are left out")
    records = []
    for b, d, n in ((b, d, n) for b in arguments.queries for d in arguments.dims for n in arguments.rows):
        print(f"\n{b} queries, d = {d}, N = {n:,}   ({THREADS} thread{'' if THREADS == 1 else 's'})")
        for name in dict.fromkeys(["gemm", *names]):
            if not too_large(name, b, n):
                records.append(run({"method": name, "b": b, "d": d, "n": n}, arguments))
                show(records[-1])
    if arguments.out:
        with arguments.out.open("w", encoding="utf-8", newline="") as sink:
            writer = csv.DictWriter(sink, COLUMNS, restval="", lineterminator="\n")
            writer.writeheader()
            for record in records:
                writer.writerow({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in record.items()})


if __name__ == "__main__":
    main()
