"""Speed and memory of the NONA head over large banks, against what else can compute the same or part of it.

Every case runs in a process of its own: data are made, one call warms up, then calls are repeated; the median of the
processor time of one thread is printed, which other work on the machine disturbs least, with its ratio to the bare
matrix products in cache-sized blocks (one pass; the masked head needs two) and the peak of extra memory.

    python benchmarks/neighbor_attention.py --queries 256 --dims 25 128 --rows 10000 100000
"""

import argparse
import contextlib
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
    "naive_plain": "naive dense torch, no mask",
    "naive_s1": "naive dense torch, S1",
    "dense_s2": "vicinal dense, S2",
    "plain": "vicinal streamed, no mask",
    "s1": "vicinal streamed, S1",
    "s2": "vicinal streamed, S2",
    "top32": "vicinal streamed, top 32",
    "s1_clusters": "vicinal streamed, S1, clustered bank, pruned",
    "compiled_plain": "blocks compiled, no mask",
    "compiled_s1": "blocks compiled, S1",
    "train_s1": "vicinal streamed, S1, forward + backward",
    "train_s2": "vicinal streamed, S2, forward + backward",
    "faiss32": "FAISS flat, top 32",
    "sklearn7": "scikit-learn brute, k = 7",
}


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


def clustered(count, dim):
    """Rows in clusters, arranged so that near rows stand together."""
    import torch

    from vicinal.heads import arrange

    centers = torch.randn(max(8, count // 2000), dim) * 4
    rows = centers.repeat_interleave(-(-count // len(centers)), dim=0)[:count] + 0.3 * torch.randn(count, dim)
    rows = rows[torch.randperm(count)]
    return rows[arrange(rows)]


def ours(name, q, x, y):
    """A streamed prediction, and what it was told about skipped blocks."""
    import torch

    from vicinal.heads import NONA, Visits, streamed_prediction
    from vicinal.masks import SoftStep, TopK

    dim, train = q.shape[1], name.startswith("train")
    family = "s1" if "s1" in name else "s2"
    mask = None if name == "plain" else TopK(32) if name == "top32" else SoftStep(dim, family, "global")
    if name == "s1_clusters":
        with torch.no_grad():
            mask.logits[0] = 1.0
    head, visits = NONA(mask=mask).requires_grad_(train), Visits()
    if train:
        q, x = q.requires_grad_(), x.requires_grad_()

    def call():
        visits.scored = visits.possible = 0
        size = 1024 if name == "s1_clusters" else None
        prediction = streamed_prediction(q, x, y, head.similarity, head.mask, chunk_size=size, visits=visits)
        if train:
            torch.autograd.grad(prediction.sum(), [q, x, *head.parameters()])

    return call, visits


def build(case) -> tuple[Callable[[], object], object]:
    """The call that a case times."""
    import torch

    name, b, d, n = case["method"], case["b"], case["d"], case["n"]
    x = clustered(n, d) if name == "s1_clusters" else torch.randn(n, d)
    q = x[torch.randperm(n)[:b]] + 0.05 * torch.randn(b, d) if name == "s1_clusters" else torch.randn(b, d)
    y = torch.rand(n)
    if name == "gemm":
        out = torch.empty(b, 1024)
        return lambda: [torch.mm(q, p.T, out=out[:, : len(p)]) for p in x.split(1024)], None
    if name.startswith("naive"):
        return lambda: naive(q, x, y, name == "naive_s1"), None
    if name == "dense_s2":
        from vicinal.heads import NONA
        from vicinal.masks import SoftStep

        head = NONA(mask=SoftStep(d, "s2", "global"))
        return lambda: head.weights(q, x) @ y, None
    if name.startswith("compiled"):
        return compiled_blocks(q, x, y, name == "compiled_s1"), None
    if name == "faiss32":
        import faiss

        faiss.omp_set_num_threads(1)
        index = faiss.IndexFlatL2(d)
        index.add(x.numpy())
        return lambda: index.search(q.numpy(), 32), None
    if name == "sklearn7":
        from sklearn.neighbors import KNeighborsRegressor

        model = KNeighborsRegressor(7, algorithm="brute", n_jobs=1).fit(x.numpy(), y.numpy())
        return lambda: model.predict(q.numpy()), None
    return ours(name, q, x, y)


def measure(case, seconds: float, runs: int):
    """Median processor time of one call and extra memory, in this process."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    call, visits = build(case)
    with contextlib.nullcontext() if case["method"].startswith("train") else torch.inference_mode():
        start = time.process_time()
        call()
        first = time.process_time() - start
        settle()
        before, times = resident("VmRSS"), []
        while len(times) < 2 or (len(times) < runs and sum(times) < seconds):
            start = time.process_time()
            call()
            times.append(time.process_time() - start)
    result = {**case, "seconds": statistics.median(times), "first": first, "runs": len(times)}
    result["extra_mib"] = resident("VmHWM") - before
    if visits is not None:
        result["skipped"] = visits.skipped
    return result


def run(case, arguments):
    """Measure a case in a process of its own; the reason where it fails."""
    flags = ["--case", json.dumps(case), "--seconds", str(arguments.seconds), "--runs", str(arguments.runs)]
    environment = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, nargs="+", default=[256])
    parser.add_argument("--dims", type=int, nargs="+", default=[25, 128])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=None)
    parser.add_argument("--compiled", action="store_true", help="also the compiled blocks, which take long to start")
    parser.add_argument("--seconds", type=float, default=2.0, help="of timed calls a case")
    parser.add_argument("--runs", type=int, default=9, help="most timed calls a case")
    parser.add_argument("--timeout", type=float, default=120.0)
    parser.add_argument("--out", type=Path, help="write the records as JSON lines")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(measure(json.loads(arguments.case), arguments.seconds, arguments.runs)))
        return
    names = arguments.methods or [m for m in METHODS if arguments.compiled or not m.startswith("compiled")]
    if importlib.util.find_spec("faiss") is None:
        names = [m for m in names if m != "faiss32"]
        print("faiss is not installed; its rows are left out")
    for b, d, n in ((b, d, n) for b in arguments.queries for d in arguments.dims for n in arguments.rows):
        print(f"\n{b} queries, d = {d}, N = {n:,}   (one thread)")
        floor = None
        for name in dict.fromkeys(["gemm", *names]):
            if name.startswith(("naive", "dense")) and b * n > 3e8:
                continue  # several matrices of more than a gigabyte
            record = run({"method": name, "b": b, "d": d, "n": n}, arguments)
            if arguments.out:
                with arguments.out.open("a", encoding="utf-8") as sink:
                    sink.write(json.dumps(record) + "\n")
            if "failed" in record:
                print(f"  {METHODS[name]:<46} {record['failed']}", flush=True)
                continue
            floor = floor or record["seconds"]
            skipped = f"  {100 * record['skipped']:.0f} % skipped" if record.get("skipped") else ""
            print(
                f"  {METHODS[name]:<46} {1e3 * record['seconds']:9.1f} ms  x{record['seconds'] / floor:6.2f}"
                f"  {record['extra_mib']:7.0f} MiB{skipped}",
                flush=True,
            )


if __name__ == "__main__":
    main()
