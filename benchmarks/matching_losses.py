"""Matching losses against torch's own: time and peak memory of forward + backward, as medians of ratios in one run.

    python benchmarks/matching_losses.py [--rows 4096] [--classes 10000] [--elements 10000000] [--repeats 5]

Time: every repeat runs the reference and each loss one after the other, so that a slow moment of the machine falls on
both; the table shows the median of the ratios. Memory: a fresh process for each loss, peak of its resident memory
(or of the accelerator's allocator) during forward + backward, above what the inputs take.
"""

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch
from torch.nn import functional

from vicinal import links, losses

REFERENCES = {"multi": "cross_entropy, probabilities", "scalar": "bce_with_logits"}


def multi_class(rows, classes, device):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(rows, classes, generator=generator).to(device)
    target = torch.randn(rows, classes, generator=generator).to(device)
    return {
        REFERENCES["multi"]: (scores, target.softmax(-1), functional.cross_entropy),
        "composite softmax, Exp": (scores, target, losses.CompositeSoftmaxMatchingLoss(links.Exp())),
        "composite softmax, Sinh": (scores, target, losses.CompositeSoftmaxMatchingLoss(links.Sinh())),
        "composite softmax, Sigmoid": (scores, target, losses.CompositeSoftmaxMatchingLoss(links.Sigmoid())),
        "softmax matching": (scores, target, losses.SoftmaxMatchingLoss()),
    }


def scalar(elements, device):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(elements, generator=generator).to(device)
    target = torch.randn(elements, generator=generator).to(device)
    return {
        REFERENCES["scalar"]: (scores, target.sigmoid(), functional.binary_cross_entropy_with_logits),
        "matching, Sigmoid": (scores, target, losses.MatchingLoss(links.Sigmoid())),
        "matching, Sigmoid, pairs within 0.1": (
            scores,
            scores + 0.1 * target,
            losses.MatchingLoss(links.Sigmoid()),
        ),
        "matching, Sinh": (scores, target, losses.MatchingLoss(links.Sinh())),
        "matching, Arctan": (scores, target, losses.MatchingLoss(links.Arctan())),
    }


def step(case):
    scores, target, loss = case
    leaf = scores.detach().requires_grad_()
    loss(leaf, target).backward()
    if scores.is_cuda:
        torch.cuda.synchronize()


def times(cases, repeats):
    found = {name: [] for name in cases}
    for repeat in range(repeats + 1):
        for name, case in cases.items():
            start = time.perf_counter()
            step(case)
            if repeat:  # the first round warms up
                found[name].append(time.perf_counter() - start)
    return found


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def peak(case):
    """Bytes above what was held before the step."""
    if case[0].is_cuda:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step(case)
        return torch.cuda.max_memory_allocated() - before
    small = tuple(t[:64].clone() for t in case[:2])
    step((*small, case[2]))  # imports and thread pools
    before, highest, stop = resident(), [0], threading.Event()

    def watch():
        while not stop.is_set():
            highest[0] = max(highest[0], resident())
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    step(case)
    stop.set()
    watcher.join()
    return highest[0] - before


def build(arguments):
    return {
        "multi": multi_class(arguments.rows, arguments.classes, arguments.device),
        "scalar": scalar(arguments.elements, arguments.device),
    }


def memory_of(group, name, arguments):
    size = [f"--{key}={getattr(arguments, key)}" for key in ("rows", "classes", "elements", "device")]
    command = [sys.executable, __file__, *size, "--memory-of", group, name]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--classes", type=int, default=10_000)
    parser.add_argument("--elements", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--memory-of", nargs=2)
    arguments = parser.parse_args()
    if arguments.memory_of:
        group, name = arguments.memory_of
        if group == "multi":
            print(peak(multi_class(arguments.rows, arguments.classes, arguments.device)[name]))
        else:
            print(peak(scalar(arguments.elements, arguments.device)[name]))
        return
    results = []
    makers = {
        "multi": lambda: multi_class(arguments.rows, arguments.classes, arguments.device),
        "scalar": lambda: scalar(arguments.elements, arguments.device),
    }
    print(f"torch {torch.__version__}, {arguments.device}, {torch.get_num_threads()} threads")
    print(f"{'loss':38} {'ms':>8} {'x time':>8} {'MiB':>8} {'x memory':>9}")
    for group, make in makers.items():
        cases = make()
        taken, reference = times(cases, arguments.repeats), REFERENCES[group]
        names = list(cases)
        del cases
        bytes_of = {name: memory_of(group, name, arguments) for name in names}
        for name in names:
            ratios = [one / other for one, other in zip(taken[name], taken[reference], strict=True)]
            row = {
                "loss": name,
                "ms": 1e3 * statistics.median(taken[name]),
                "time_ratio": statistics.median(ratios),
                "mib": bytes_of[name] / 2**20,
                "memory_ratio": bytes_of[name] / bytes_of[reference],
            }
            results.append(row)
            print(
                f"{name:38} {row['ms']:8.1f} {row['time_ratio']:8.2f} {row['mib']:8.0f} {row['memory_ratio']:9.2f}",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
