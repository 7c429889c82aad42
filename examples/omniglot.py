"""Train embeddings of handwritten characters and measure them on characters of alphabets never seen.

Five losses, three seeds each, and, where it is installed, pytorch-metric-learning's losses of the same formula in the
same loop: the same first weights, the same batches, the same optimizer. What is measured is MAP@R, R-precision and
precision@1 of each drawing among all other drawings of the held-out alphabets.

    python examples/omniglot.py --data omniglot_small.npz
    python examples/omniglot.py --data omniglot_small.npz --losses supcon --seeds 1 --steps 100 --libraries vicinal

The file is a numpy archive with ``images [n, 35, 35]`` (0 to 255), ``label [n]`` and ``alphabet [n]``.
"""

import argparse
import csv
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from vicinal.losses import EmbeddingLoss
from vicinal.metrics import embedding_metrics
from vicinal.samplers import ClassBatches

HELD_OUT = ("Japanese_(katakana)", "Latin", "Tagalog")
METRICS = ("map@r", "r_precision", "precision@1")
WIDTH = 64

# pytorch-metric-learning takes the mean over the terms that are not 0 for some losses: "mean_nonzero".
OURS: dict[str, Callable[[], nn.Module]] = {
    "contrastive": lambda: EmbeddingLoss("contrastive", reduction="mean_nonzero"),
    "triplet": lambda: EmbeddingLoss("triplet", similarity="l2", normalize=True, margin=0.2, reduction="mean_nonzero"),
    "nt_xent": lambda: EmbeddingLoss("nt_xent", temperature=0.1),
    "supcon": lambda: EmbeddingLoss("supcon", temperature=0.1, reduction="mean_nonzero"),
    "multi_similarity": lambda: EmbeddingLoss("multi_similarity", alpha=2, beta=50, base=0.5),
}


def theirs(name: str) -> nn.Module:
    """The same loss of pytorch-metric-learning."""
    from pytorch_metric_learning import distances, losses

    made: dict[str, Callable[[], nn.Module]] = {
        "contrastive": lambda: losses.ContrastiveLoss(
            pos_margin=1, neg_margin=0, distance=distances.CosineSimilarity()
        ),
        "triplet": lambda: losses.TripletMarginLoss(margin=0.2),
        "nt_xent": lambda: losses.NTXentLoss(temperature=0.1),
        "supcon": lambda: losses.SupConLoss(temperature=0.1),
        "multi_similarity": lambda: losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5),
    }
    return made[name]()


def read(path: Path) -> tuple[Tensor, Tensor, Tensor]:
    """Images ``[n, 1, 35, 35]`` in [0, 1], classes ``[n]``, and whether each row is of a held-out alphabet ``[n]``."""
    with np.load(path) as archive:
        images = torch.from_numpy(archive["images"])[:, None] / 255
        labels = torch.from_numpy(archive["label"].astype(np.int64))
        held = torch.from_numpy(np.isin(archive["alphabet"], HELD_OUT))
    return images, labels, held


def network() -> nn.Module:
    """Four small convolutions, then a linear layer to the embedding."""
    layers: list[nn.Module] = []
    for before, after in ((1, 32), (32, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 2 * 2, WIDTH))


def train(criterion: nn.Module, images: Tensor, labels: Tensor, *, seed: int, steps: int) -> nn.Module:
    """A network trained by ``criterion(embeddings, labels)`` on batches of 16 characters with 4 drawings each."""
    torch.manual_seed(seed)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    sampler = ClassBatches(labels, classes=16, per_class=4, seed=seed)
    step = 0
    while step < steps:
        for rows in sampler:
            loss = criterion(model(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == steps:
                break
    return model.eval()


def measure(model: nn.Module, images: Tensor, labels: Tensor) -> dict[str, float]:
    """Mean of each metric over the drawings, each compared with all others."""
    with torch.no_grad():
        embeddings = torch.cat([model(part) for part in images.split(256)])
    values = embedding_metrics(embeddings, labels, metrics=METRICS)
    return {name: float(value.nanmean()) for name, value in values.items()}


def table(records: list[dict[str, object]]) -> str:
    """Mean and deviation over seeds, one line a loss and library, as Markdown."""
    lines = ["| loss | library | " + " | ".join(METRICS) + " |", "|" + " --- |" * (2 + len(METRICS))]
    for key in dict.fromkeys((r["loss"], r["library"]) for r in records):
        found = [r for r in records if (r["loss"], r["library"]) == key]
        cells = []
        for metric in METRICS:
            values = [float(str(r[metric])) for r in found]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            cells.append(f"{statistics.mean(values):.3f} ± {spread:.3f}")
        lines.append(f"| {key[0]} | {key[1]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Train, measure, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="numpy archive of the drawings")
    parser.add_argument("--losses", default=",".join(OURS), help="which, with commas")
    parser.add_argument("--libraries", default="vicinal,pytorch-metric-learning", help="which, with commas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--out", type=Path, help="CSV file of all runs")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_dtype(getattr(torch, asked.dtype))
    images, labels, held = read(asked.data)
    print(
        f"{int((~held).sum())} drawings to train on; {int(held.sum())} of {len(labels[held].unique())} new characters"
    )
    records: list[dict[str, object]] = []

    def note(loss: str, library: str, seed: int, model: nn.Module, seconds: float) -> None:
        measured = measure(model, images[held], labels[held])
        records.append({"loss": loss, "library": library, "seed": seed, **measured, "seconds": round(seconds, 1)})
        print(", ".join(f"{k} {v:.4f}" if isinstance(v, float) else f"{v}" for k, v in records[-1].items()), flush=True)

    note("none (pixels)", "-", 0, nn.Flatten(), 0.0)
    for name in asked.losses.split(","):
        for seed in range(asked.seeds):
            for library in asked.libraries.split(","):
                criterion = OURS[name]() if library == "vicinal" else theirs(name)
                started = time.process_time()
                model = train(criterion, images[~held], labels[~held], seed=seed, steps=asked.steps)
                note(name, library, seed, model, time.process_time() - started)
    print(table(records))
    if asked.out is not None:
        with asked.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, records[0])
            writer.writeheader()
            writer.writerows(records)


if __name__ == "__main__":
    main()
