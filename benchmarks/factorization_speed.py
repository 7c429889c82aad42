"""What factors, random projections, losses of clicks and partial assignment cost, in one run, beside what bounds them.

    python benchmarks/factorization_speed.py --citeulike citeulike_t_interactions.parquet --implicit

Processor seconds of one thread, medians of interleaved rounds. ALS of rank 64 on CiteULike-t beside ``implicit``;
FastRP of its graph of users and items, 128 wide, beside the sparse products alone; losses of 1,024 rows beside one
matrix product and softmax cross-entropy; partial assignment of 100,000 x 1,000 in a process of its own, whose memory
above the logits is told in matrices of their size.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from metric_losses_cases import limit, training
from scipy import sparse

from factorization import SETTINGS, citeulike, ours, split, theirs
from vicinal.clustering import partial_assignment
from vicinal.factorization import fastrp
from vicinal.losses import exposed_relevance, pair_cross_entropy, warp

BATCH, DIM, ROWS, CLASSES = 1024, 128, 100_000, 1000


def ratios(steps, rounds):
    """Median seconds of each step, and median of the first's over the second's."""
    for step in steps:
        step()
    times = []
    for _ in range(rounds):
        times.append([])
        for step in steps:
            start = time.process_time()
            step()
            times[-1].append(time.process_time() - start)
    return [statistics.median(each) for each in zip(*times, strict=True)], statistics.median(a / b for a, b in times)


def graph_of(train):
    users, items = train.shape
    corner = sparse.csr_array((users, users)), sparse.csr_array((items, items))
    return sparse.csr_array(sparse.block_array([[corner[0], train], [train.T, corner[1]]]), dtype=np.float32)


def projections(train):
    """FastRP, and its products alone."""
    graph = graph_of(train)
    degrees = np.maximum(graph.sum(axis=1), 1)
    step = sparse.csr_array(sparse.diags_array(1 / degrees).astype(np.float32) @ graph)
    rows = torch.randn(graph.shape[0], DIM, generator=torch.Generator().manual_seed(0))

    def products():
        moved = rows.numpy()
        for _ in range(4):
            moved = step @ moved

    return lambda: fastrp(graph, DIM, projection=rows), products


def losses():
    """Steps of the losses of clicks by name."""
    relation = (torch.rand(BATCH, BATCH, generator=torch.Generator().manual_seed(0)) < 0.05).float()
    seen = torch.rand(BATCH, generator=torch.Generator().manual_seed(1)).clamp(min=0.1)
    forms = {
        "pair_cross_entropy": lambda scores: pair_cross_entropy(scores, relation),
        "pair_cross_entropy, missed=0.1": lambda scores: pair_cross_entropy(scores, relation, missed=0.1),
        "exposed_relevance": lambda scores: exposed_relevance(scores, relation, propensity=seen),
        "exposed_relevance, logarithms": lambda scores: exposed_relevance(
            scores, relation, propensity=seen, form="log"
        ),
        "warp": lambda scores: warp(scores, relation),
    }

    def on(form):
        def loss(rows, labels):
            unit = torch.nn.functional.normalize(rows)
            return form(10 * unit @ unit.T)

        return training(BATCH, loss, torch.arange(BATCH))

    return {name: on(form) for name, form in forms.items()}


def plan_memory():
    """In this process: matrices above the logits, and seconds of 20 steps."""
    draw = torch.Generator().manual_seed(0)
    partial_assignment(torch.randn(100, CLASSES, generator=draw), 0.5)
    logits = torch.randn(ROWS, CLASSES, generator=draw)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    partial_assignment(logits, 0.5, steps=20)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print((after - before) * 1024 / (4 * logits.numel()), time.process_time() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--citeulike", type=Path)
    parser.add_argument("--implicit", action="store_true", help="the package is installed; it is no dependency")
    parser.add_argument("--plan", action="store_true", help="only the memory of partial assignment")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/factorization-speed.csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.plan:
        plan_memory()
        return
    results = []

    def note(what, seconds, ratio, bound):
        results.append({"what": what, "seconds": seconds[0], "beside": seconds[1], "ratio": ratio, "bound": bound})
        print(results[-1], flush=True)
        pd.DataFrame(results).to_csv(options.out, index=False)

    train = split(citeulike(options.citeulike), 0)[0]
    settings = SETTINGS["CiteULike-t"]["als"]
    if options.implicit:
        note("als", *ratios([lambda: ours(train, 0, **settings), lambda: theirs(train, 0, **settings)], 3), 3.0)
    note("fastrp", *ratios(projections(train), 9), 1.5)
    base = limit(BATCH, BATCH)
    for name, step in losses().items():
        note(name, *ratios([step, base], 9), 3.0)
    plan = subprocess.run([sys.executable, __file__, "--plan"], capture_output=True, text=True, check=True)
    matrices, seconds = map(float, plan.stdout.split())
    note("partial_assignment: matrices above the logits", [seconds, float("nan")], matrices, 1.1)


if __name__ == "__main__":
    main()
