"""Two networks become one: errors and barriers on the digits of scikit-learn, for two seeds and for two teams.

    python benchmarks/merging.py --out benchmarks/results/merging.csv --page docs/merging.md

Networks are 64-256-256-10 with ReLU and batch norms. *Seeds*: both were trained on all training rows from other starts.
*Teams*: both began with the same network and were trained further, each on rows of five of the ten classes and some of
the others. The barrier is the largest of (cross-entropy of the mean with parts 1 - t and t) less (that part of both
models' cross-entropies), at t of a quarter, half and three quarters. Rows without labels are training rows.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

from vicinal.encoders import merge

SEEDS, STEPS = range(5), 5
WAYS = {"plain mean": {"by": "none"}, "weights": {"by": "weights"}, "activations": {"by": "activations"}}
WAYS |= {"Sinkhorn": {"by": "sinkhorn"}}
BUDGETS = (1.0, 1.5, 2.0, 4.0)


def network():
    sizes = (64, 256, 256, 10)
    layers = [nn.Linear(64, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 256), nn.BatchNorm1d(256), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(256, sizes[-1]))


def trained(model, x, y, seed, epochs=20, rate=1e-3):
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=1e-2)
    model.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(x), generator=generator).split(64):
            if len(batch) > 1:
                optimizer.zero_grad()
                cross_entropy(model(x[batch]), y[batch]).backward()
                optimizer.step()
    return model.eval()


@torch.no_grad()
def measured(model, x, y):
    """Share of wrong rows, and cross-entropy."""
    scores = model(x)
    return float((scores.argmax(1) != y).double().mean()), float(cross_entropy(scores, y))


def barrier(a, b, data, x, y, settings):
    ends = [measured(model, x, y)[1] for model in (a, b)]
    parts = np.linspace(0, 1, STEPS)
    along = [measured(merge(a, b, data, weight=t, **settings), x, y)[1] for t in parts[1:-1]]
    return max(0.0, *(loss - (1 - t) * ends[0] - t * ends[1] for loss, t in zip(along, parts[1:-1], strict=True)))


def pairs(x, y, seed):
    """Two seeds, and two teams of one start."""
    models = []
    for one in (2 * seed, 2 * seed + 1):
        torch.manual_seed(one)
        models.append(trained(network(), x, y, one))
    yield "seeds", models
    torch.manual_seed(100 + seed)
    some = torch.randperm(len(x))[:200]
    start = trained(network(), x[some], y[some], seed, epochs=5)
    teams = []
    for team in (0, 1):
        model = network()
        model.load_state_dict(start.state_dict())
        rows = ((y % 2 == team) | (torch.rand(len(y)) < 0.1)).nonzero()[:, 0]
        teams.append(trained(model, x[rows], y[rows], seed, rate=3e-4))
    yield "teams", teams


def runs(seed):
    x, y = (torch.from_numpy(values) for values in load_digits(return_X_y=True))
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    x, y = (x[order].float() - 8) / 8, y[order]
    train, test = (x[:1000], y[:1000]), (x[1000:], y[1000:])
    for case, (a, b) in pairs(*train, seed):
        size = sum(p.numel() for p in a.parameters())
        scores = [measured(model, *test) for model in (a, b)]
        mean = lambda rows, a=a, b=b: (a(rows) + b(rows)) / 2
        results = {
            "mean of both models": (*np.mean(scores, 0), 1.0),
            "both, outputs averaged": (*measured(mean, *test), 2),
        }
        barriers = {}
        for name, settings in WAYS.items():
            results[name] = (*measured(merge(a, b, train[0], **settings), *test), 1.0)
            barriers[name] = barrier(a, b, train[0], *test, settings)
        for budget in BUDGETS:
            wide = merge(a, b, train[0], by="activations", budget=budget)
            results[f"PLeaS, budget {budget:g}"] = (
                *measured(wide, *test),
                sum(p.numel() for p in wide.parameters()) / size,
            )
        for name, (error, loss, times) in results.items():
            yield {
                "case": case, "seed": seed, "method": name, "size": round(times, 3), "error": error,
                "cross_entropy": loss, "barrier": barriers.get(name),
            }  # fmt: skip


def table(results):
    """Means over seeds, errors in percent with their deviation."""
    lines = [
        "| network | parameters | two seeds: error, % | barrier | two teams: error, % | barrier |",
        "| --- |" + " --- |" * 5,
    ]
    for name in results["method"].unique():
        rows = results[results["method"] == name]
        cells = [name, f"{rows['size'].mean():.2f}"]
        for case in ("seeds", "teams"):
            part = rows[rows["case"] == case]
            cells.append(f"{100 * part['error'].mean():.1f} ± {100 * part['error'].std():.1f}")
            cells.append("-" if part["barrier"].isna().all() else f"{part['barrier'].mean():.2f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--page", type=Path, help="a page whose part between <!-- merging --> marks is written anew")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = pd.DataFrame([run for seed in SEEDS for run in runs(seed)])
    results.to_csv(options.out, index=False, float_format="%.5g")
    text = table(results)
    print(text)
    if options.page:
        before, _, rest = options.page.read_text(encoding="utf-8").partition("<!-- merging -->\n")
        after = rest.partition("<!-- end of merging -->")[2]
        page = f"{before}<!-- merging -->\n\n{text}\n\n<!-- end of merging -->{after}"
        options.page.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
