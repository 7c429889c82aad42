"""MAP@R, R-precision and precision@1 of a self-comparison against the bare blocked matrix product.

    python benchmarks/retrieval_metrics.py [--rows 50000] [--dim 128] [--classes 1000] [--repeats 3] [--spread 0 0.5 1]

One thread; seconds are of the processor, not of the clock. ``spread`` is the deviation of the rows about their class
centers (0 = rows of no class at all): metrics of random embeddings and of good ones cost differently. Time: in every
repeat the product of all blocks with all blocks runs next to each case, so that a slow moment of the machine falls on
both; shown is the median of the ratios. Memory: a fresh process for each case, peak of its resident memory above what
the inputs take.
"""

import argparse
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch

from vicinal.metrics import embedding_metrics

METRICS = {
    "r": ("precision@1", "r_precision", "map@r"),
    "k": ("precision@1", "hit@10", "recall@10", "ndcg@10"),
    "mrr": ("precision@1", "r_precision", "map@r", "mrr"),
    "map": ("map",),
}


def data(arguments, spread):
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, arguments.classes, (arguments.rows,), generator=generator)
    rows = torch.randn(arguments.rows, arguments.dim, generator=generator)
    if spread:
        rows = torch.randn(arguments.classes, arguments.dim, generator=generator)[labels] + spread * rows
    return rows, labels


def product(rows, block=1024):
    out = rows.new_empty(block, block)
    for left in rows.split(block):
        for right in rows.split(block):
            torch.mm(left, right.T, out=out[: len(left), : len(right)])


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def peak(rows, labels, metrics):
    """Bytes above what was held before the call."""
    embedding_metrics(rows[:2048].clone(), labels[:2048].clone(), metrics=metrics)
    before, highest, stop = resident(), [0], threading.Event()

    def watch():
        while not stop.is_set():
            highest[0] = max(highest[0], resident())
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    embedding_metrics(rows, labels, metrics=metrics)
    stop.set()
    watcher.join()
    return highest[0] - before


def timed(call):
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def memory_of(arguments, spread, group):
    size = [f"--{key}={getattr(arguments, key)}" for key in ("rows", "dim", "classes")]
    command = [sys.executable, __file__, *size, "--memory-of", str(spread), group]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--spread", type=float, nargs="+", default=[0.0, 2.0, 1.0])
    parser.add_argument("--metrics", nargs="+", choices=METRICS, default=["r", "k"])
    parser.add_argument("--memory-of", nargs=2)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.memory_of:
        spread, group = arguments.memory_of
        print(peak(*data(arguments, float(spread)), METRICS[group]))
        return
    print(f"torch {torch.__version__}, {arguments.rows} x {arguments.dim}, {arguments.classes} classes, one thread")
    print(f"{'spread':>6} {'metrics':34} {'seconds':>8} {'x product':>9} {'MiB':>6}  values")
    for spread in arguments.spread:
        rows, labels = data(arguments, spread)
        for group in arguments.metrics:
            pairs = []
            for _ in range(arguments.repeats):
                base = timed(lambda rows=rows: product(rows))[0]
                taken, values = timed(
                    lambda rows=rows, labels=labels, group=group: embedding_metrics(
                        rows, labels, metrics=METRICS[group]
                    )
                )
                pairs.append((taken, taken / base))
            seconds, ratio = (statistics.median(column) for column in zip(*pairs, strict=True))
            mib = memory_of(arguments, spread, group) / 2**20
            means = " ".join(f"{name}={float(value.nanmean()):.4f}" for name, value in values.items())
            print(
                f"{spread:6} {' '.join(METRICS[group])[:34]:34} {seconds:8.2f} {ratio:9.2f} {mib:6.0f}  {means}",
                flush=True,
            )


if __name__ == "__main__":
    main()
