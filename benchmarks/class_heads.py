"""Class heads compared: dense softmax, neighbors, equiangular vectors, class means, each also with Loki's choice.

Digits (spoken, signed, written) from frozen vectors, as benchmarks/nona/sets.py makes them: accuracy, and how far off a
wrong digit is on the line 0 to 9. Feelings of texts in three classes, for their many rows. Five seeds; 40 % of the rows
train, 10 % stop, 25 % calibrate (for benchmarks/calibration.py, by way of --store), 25 % test.

    python benchmarks/class_heads.py --cache runs/nona --store runs/classes --out benchmarks/results/class-heads.csv
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np
import torch
from class_models import HEADS, judged, train

from vicinal.encoders import Projector
from vicinal.heads import NearestClassMean, frechet_scores

SETS = {"spoken digits": "fsdd", "sign digits": "signs", "written digits": "mnist", "feelings": "feelings"}
TEXTS, PLAIN = ("tweets", "movies", "amazon", "nyt"), ("dense softmax", "neighbors (NONA)")
SEEDS = 5
FIELDS = ("set", "seed", "method", "accuracy", "distance", "squared", "log_loss", "epochs", "seconds")


def load(name: str, cache: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors and classes of a set; feelings: the lowest, middle and highest third of the ratings of 12,000 texts."""
    if name != "feelings":
        stored = np.load(cache / f"{SETS[name]}.npz")
        return torch.from_numpy(stored["features"]), torch.from_numpy(stored["digit"].astype(np.int64))
    stored = [np.load(cache / f"{text}.npz") for text in TEXTS]
    ratings = np.concatenate([one["rating"] for one in stored])
    thirds = np.searchsorted(np.quantile(ratings, [1 / 3, 2 / 3]), ratings)
    return torch.from_numpy(np.vstack([one["features"] for one in stored])), torch.from_numpy(thirds.astype(np.int64))


def parts(rows: int, seed: int) -> list[torch.Tensor]:
    """Train, stop, calibration and test rows."""
    order = np.random.default_rng(seed).permutation(rows)
    return [torch.from_numpy(np.sort(p)) for p in np.split(order, [int(rows * s) for s in (0.4, 0.5, 0.75)])]


def line(classes: int) -> torch.Tensor:
    """Distances of classes in a row, ``[C, C]``."""
    places = torch.arange(classes, dtype=torch.float64)
    return (places[:, None] - places).abs()


def figures(shares: torch.Tensor, truth: torch.Tensor, distances: torch.Tensor, *, loki: bool) -> dict[str, float]:
    """Accuracy, mean and mean squared distance of the choice, log-loss of the probabilities."""
    choice = frechet_scores(shares, distances).argmax(1) if loki else shares.argmax(1)
    found = {
        "accuracy": float((choice == truth).double().mean()),
        "distance": float(distances[choice, truth].mean()),
        "squared": float(distances[choice, truth].square().mean()),
    }
    if not loki:
        found["log_loss"] = float(-shares[torch.arange(len(truth)), truth].clamp(min=1e-9).log().mean())
    return found


def frozen_means(x, labels, rows, queries) -> torch.Tensor:
    """Nearest class mean on the frozen vectors: nothing is trained."""
    head = NearestClassMean(int(labels.max()) + 1, x.shape[1])
    head.add(x[rows], labels[rows])
    return head(x[queries]).double()


def run(name: str, seed: int, cache: Path, store: Path) -> list[dict]:
    """All heads on one split; probabilities are kept in ``store``."""
    x, labels = load(name, cache)
    distances = line(int(labels.max()) + 1)
    rows = parts(len(labels), seed)
    truth, lines, kept = labels[rows[3]], [], {"labels/held": labels[rows[2]], "labels/test": labels[rows[3]]}
    for method in PLAIN if name == "feelings" else ["class means, frozen vectors", *HEADS]:
        started, epochs = time.process_time(), 0
        if method in HEADS:
            body, head, epochs = train(
                lambda: Projector(x.shape[1], (200, 25), 0.4), method, x, labels, rows[0], rows[1], seed=seed
            )
            shares = [judged(head, body, x, labels, rows[0], part) for part in rows[2:]]
        else:
            shares = [frozen_means(x, labels, rows[0], part) for part in rows[2:]]
        kept |= {f"{method}/held": shares[0], f"{method}/test": shares[1]}
        seconds = round(time.process_time() - started, 2)
        for loki in (False, True):
            found = figures(shares[1], truth, distances, loki=loki)
            own = method + (" + Loki" if loki else "")
            lines.append({"set": name, "seed": seed, "method": own, "epochs": epochs, "seconds": seconds, **found})
    store.mkdir(parents=True, exist_ok=True)
    np.savez(store / f"{SETS[name]}-{seed}.npz", **{key: value.numpy() for key, value in kept.items()})
    return lines


def append(path: Path, rows: list[dict], fields=FIELDS) -> None:
    """Write finished rows."""
    fresh = not path.is_file()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        if fresh:
            writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{v:.5g}" if isinstance(v, float) else v for key, v in row.items()})


def finished(path: Path) -> set[tuple[str, str]]:
    """Sets and seeds that are in the file."""
    if not path.is_file():
        return set()
    with path.open(newline="") as file:
        return {(row["set"], row["seed"]) for row in csv.DictReader(file)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    for seed in range(given.seeds):
        for name in SETS:
            if (name, str(seed)) not in finished(given.out):
                append(given.out, run(name, seed, given.cache, given.store))
                print(f"{name}, seed {seed}", flush=True)


if __name__ == "__main__":
    main()
