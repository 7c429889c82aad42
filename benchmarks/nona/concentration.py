"""How many rows carry a prediction, and how wide intervals are, for screened variants; validation rows only.

Reads the embeddings that screen.py has kept beside its file; trains nothing. For each set: the share of the five
heaviest neighbors, the effective number of neighbors (1 over the sum of squared weights), and the mean width of 90 %
intervals (central range of neighbor labels and one margin, calibrated on half of the rows, ten halvings).

    python benchmarks/nona/concentration.py --kept runs/nona-screening --variants "default" "default, entmax"
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from attention import weights
from screen import VARIANTS

from vicinal.heads.intervals import conformal_margin, neighbor_range

COVERAGE, HALVINGS = 0.9, 10


def measured(path: Path, variant: str) -> tuple[float, float, float]:
    """Share of the first five, effective number, and width, of one set and split."""
    kept = np.load(path)
    labels, truth = (torch.from_numpy(kept[part]).double() for part in ("train", "validation"))
    parameters = {name: torch.from_numpy(kept[name]) for name in ("step_w", "step_b", "log_scale") if name in kept}
    queries, bank = torch.from_numpy(kept["queries"]), torch.from_numpy(kept["bank"])
    found = weights(VARIANTS[variant], parameters, queries, bank, None).double().mean(0)
    low, high = neighbor_range(found, labels, COVERAGE)
    misses, widths = torch.maximum(low - truth, truth - high), []
    generator = torch.Generator().manual_seed(0)
    for _ in range(HALVINGS):
        order = torch.randperm(len(truth), generator=generator)
        held, rest = order[: len(order) // 2], order[len(order) // 2 :]
        margin = conformal_margin(misses[held], COVERAGE)
        widths.append(float((high - low + 2 * margin).clamp(min=0)[rest].mean()))
    share = found.topk(5, dim=1).values.sum(1).mean()
    return float(share), float((1 / found.square().sum(1)).mean()), float(np.mean(widths))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", type=Path, required=True, help="folder that screen.py writes beside its file")
    parser.add_argument("--variants", nargs="+", default=["default", "default, entmax", "default, entmax, CRPS"])
    given = parser.parse_args()
    torch.set_num_threads(1)
    sets = sorted({path.name.partition("-")[0] for path in given.kept.glob(f"*-{given.variants[0]}.npz")})
    print(f"{'set':10} {'variant':30} {'first five':>10} {'effective':>10} {'width':>7}")
    for name in sets:
        for variant in given.variants:
            paths = sorted(given.kept.glob(f"{name}-*-{variant}.npz"))
            paths = [path for path in paths if path.stem.split("-", 2)[2] == variant]
            share, number, width = np.mean([measured(path, variant) for path in paths], axis=0)
            print(f"{name:10} {variant:30} {share:10.2f} {number:10.0f} {width:7.3f}")


if __name__ == "__main__":
    main()
