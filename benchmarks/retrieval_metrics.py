"""MAP@R, R-precision and precision@1 of a self-comparison beside pytorch-metric-learning and the bare matrix product.

    python benchmarks/retrieval_metrics.py [--rows 50000] [--dim 128] [--classes 1000] [--repeats 2] [--spread 0 2]

Theirs is ``AccuracyCalculator`` with FAISS, for the metrics of group "r"; it is left out where it is not installed.

One thread; seconds are of the processor, not of the clock. ``spread`` is the deviation of the rows about their class
centers (0 = rows of no class at all): metrics of random embeddings and of good ones cost differently. Time: in every
repeat the product of all blocks with all blocks runs next to each case, so that a slow moment of the machine falls on
both; shown is the median of the ratios, of theirs that of one repeat, as it takes long. Memory: a fresh process for
each case, peak of its resident memory above what the inputs take.
"""

import argparse
import importlib.util
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


def ours(rows, labels, group):
    return embedding_metrics(rows, labels, metrics=METRICS[group])


def theirs(rows, labels, group):
    """Their calculator with FAISS, on one thread."""
    import faiss
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from pytorch_metric_learning.utils.inference import FaissKNN

    faiss.omp_set_num_threads(1)
    names = {"precision@1": "precision_at_1", "r_precision": "r_precision", "map@r": "mean_average_precision_at_r"}
    search = FaissKNN(index_init_fn=faiss.IndexFlatIP)
    calculator = AccuracyCalculator(
        include=tuple(names.values()), k="max_bin_count", device=torch.device("cpu"), knn_func=search
    )
    rows = torch.nn.functional.normalize(rows)
    found = calculator.get_accuracy(rows, labels)
    return {ours: torch.tensor(found[name]) for ours, name in names.items()}


MAKERS = {"vicinal": ours, "pml + faiss": theirs}


def peak(rows, labels, maker, group):
    """Bytes above what was held before the call."""
    maker(rows[:2048].clone(), labels[:2048].clone(), group)
    before, highest, stop = resident(), [0], threading.Event()

    def watch():
        while not stop.is_set():
            highest[0] = max(highest[0], resident())
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    maker(rows, labels, group)
    stop.set()
    watcher.join()
    return highest[0] - before


def timed(call):
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def memory_of(arguments, spread, group, maker):
    size = [f"--{key}={getattr(arguments, key)}" for key in ("rows", "dim", "classes")]
    command = [sys.executable, __file__, *size, "--memory-of", str(spread), group, maker]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=2, help="of ours; theirs runs once")
    parser.add_argument("--spread", type=float, nargs="+", default=[0.0, 2.0])
    parser.add_argument("--metrics", nargs="+", choices=METRICS, default=["r"])
    parser.add_argument("--no-rival", action="store_true")
    parser.add_argument("--memory-of", nargs=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.memory_of:
        spread, group, maker = arguments.memory_of
        print(peak(*data(arguments, float(spread)), MAKERS[maker], group))
        return
    print(f"torch {torch.__version__}, {arguments.rows} x {arguments.dim}, {arguments.classes} classes, one thread")
    rival = not arguments.no_rival and all(map(importlib.util.find_spec, ("faiss", "pytorch_metric_learning")))
    print(f"{'spread':>6} {'by':12} {'metrics':34} {'seconds':>8} {'x product':>9} {'MiB':>6}  values")
    for spread in arguments.spread:
        rows, labels = data(arguments, spread)
        for group in arguments.metrics:
            makers = [name for name in MAKERS if name == "vicinal" or (rival and group == "r")]
            rounds, values = {name: [] for name in makers}, {}
            for nth in range(arguments.repeats):
                base = timed(lambda rows=rows: product(rows))[0]
                for name in makers[: 1 if nth else None]:
                    make = MAKERS[name]
                    taken, values[name] = timed(
                        lambda make=make, rows=rows, labels=labels, group=group: make(rows, labels, group)
                    )
                    rounds[name].append((taken, taken / base))
            medians, held = {}, {}
            for name in makers:
                seconds, ratio = (statistics.median(column) for column in zip(*rounds[name], strict=True))
                mib = memory_of(arguments, spread, group, name) / 2**20
                means = " ".join(f"{key}={float(value.nanmean()):.4f}" for key, value in values[name].items())
                print(
                    f"{spread:6} {name:12} {' '.join(METRICS[group])[:34]:34} {seconds:8.2f} {ratio:9.2f} {mib:6.0f}  "
                    f"{means}",
                    flush=True,
                )
                medians[name], held[name] = ratio, mib
            if len(makers) > 1:
                compare(values, medians, held)


def compare(values, medians, held):
    """Ours beside theirs in one line."""
    one, other = MAKERS
    equal = [
        f"{key} {float(values[one][key].nanmean()):.4f} {float(values[other][key].nanmean()):.4f}"
        for key in values[other]
    ]
    ratio = f"{medians[other] / medians[one]:.2f} times the time, {held[other] / max(1.0, held[one]):.1f} of the memory"
    print(f"{'':6} {one}, {other}: {'; '.join(equal)}; theirs takes {ratio}", flush=True)


if __name__ == "__main__":
    main()
