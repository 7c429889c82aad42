"""Class heads on drawn characters: known ones, wrong ones by alphabet, and characters of alphabets never seen.

The network, the alphabets and the optimizer are those of examples/omniglot.py. Of each known character 14 drawings
train and 4 test. Known: accuracy, and the tree distance of a wrong choice (1 within the alphabet, 2 outside),
also of Loki's choice. New alphabets: MAP@R of the embedding, and the accuracy with 5 labelled drawings of each of the
90 characters, by nearest class mean and by the neighbor head's weights.

    python benchmarks/class_omniglot.py --data omniglot_small.npz --out benchmarks/results/class-omniglot.csv
"""

import argparse
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from class_heads import append, finished
from class_models import HEADS, ClassHead, embed

from vicinal.heads import NONA, NearestClassMean, frechet_scores
from vicinal.metrics import embedding_metrics
from vicinal.samplers import ClassBatches

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from omniglot import HELD_OUT, network

STEPS, SEEDS, SHOTS = 400, 2, 5
FIELDS = ("set", "seed", "method", "accuracy", "distance", "squared", "map@r", "few_shot_means", "few_shot_neighbors")


def read(path: Path):
    """Images, characters as whole numbers, alphabet numbers, and whether each drawing is of a new alphabet."""
    with np.load(path) as archive:
        images = torch.from_numpy(archive["images"])[:, None].float() / 255
        alphabets = archive["alphabet"]
        held = torch.from_numpy(np.isin(alphabets, HELD_OUT))
        labels = torch.from_numpy(archive["label"].astype(np.int64))
        alphabet = torch.from_numpy(np.unique(alphabets, return_inverse=True)[1].astype(np.int64))
    return images, labels, alphabet, held


def parts(labels: torch.Tensor, sizes: tuple[int, ...], seed: int) -> list[torch.Tensor]:
    """Rows cut into parts with so many of each class, the rest last."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    place = torch.empty_like(labels)
    for label in labels.unique():
        mine = order[labels[order] == label]
        place[mine] = torch.arange(len(mine))
    ends = [0, *np.cumsum(sizes).tolist(), len(labels)]
    return [((place >= a) & (place < b)).nonzero()[:, 0] for a, b in pairwise(ends)]


def trained(kind: str, images, labels, rows, seed: int, steps: int) -> tuple[torch.nn.Module, ClassHead]:
    """Network and head after so many steps of 16 characters with 4 drawings each."""
    torch.manual_seed(seed)
    body, head = network(), HEADS[kind](int(labels.max()) + 1, 64)
    both = torch.nn.ModuleList([body, head])
    optimizer = torch.optim.Adam(both.parameters(), lr=1e-3)
    sampler, step = ClassBatches(labels[rows], classes=16, per_class=4, seed=seed), 0
    while step < steps:
        for batch in sampler:
            loss = head.loss(body(images[rows[batch]]), labels[rows[batch]])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == steps:
                break
    return body, head


def tree(labels: torch.Tensor, alphabet: torch.Tensor) -> torch.Tensor:
    """Distances of characters: 0, 1 within an alphabet, 2 outside."""
    of = torch.zeros(int(labels.max()) + 1, dtype=torch.int64)
    of[labels] = alphabet
    distances = torch.where(of[:, None] == of, 1.0, 2.0).double()
    return distances.fill_diagonal_(0)


def known(body, head, images, labels, train, test, distances) -> list[dict]:
    """Accuracy and tree distance of the likeliest character and of Loki's."""
    bank = embed(body, images[train])
    with torch.no_grad():
        shares = head.eval().chances(embed(body, images[test]), bank, labels[train]).double()
    made = []
    for choice in (shares.argmax(1), frechet_scores(shares, distances).argmax(1)):
        apart = distances[choice, labels[test]]
        facts = {"accuracy": float((apart == 0).double().mean()), "distance": float(apart.mean())}
        made.append({**facts, "squared": float(apart.square().mean())})
    return made


def fresh(body, head, images, labels, seed: int) -> dict[str, float]:
    """Measures on new alphabets."""
    z = embed(body, images)
    _, codes = labels.unique(return_inverse=True)
    support, query = parts(codes, (SHOTS,), seed)
    means = NearestClassMean(int(codes.max()) + 1, z.shape[1])
    means.add(z[support], codes[support])
    near = head.head if isinstance(getattr(head, "head", None), NONA) else NONA("l2")
    with torch.no_grad():
        found = near(z[query], z[support], F.one_hot(codes[support]).to(z))
    return {
        "map@r": float(embedding_metrics(z, codes, metrics=("map@r",))["map@r"].nanmean()),
        "few_shot_means": float((means(z[query]).argmax(1) == codes[query]).double().mean()),
        "few_shot_neighbors": float((found.argmax(1) == codes[query]).double().mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    images, labels, alphabet, held = read(given.data)
    _, codes = labels[~held].unique(return_inverse=True)
    old, new = images[~held], images[held]
    distances = tree(codes, alphabet[~held])
    for seed in range(given.seeds):
        if ("characters", str(seed)) in finished(given.out):
            continue
        train, _, test = parts(codes, (14, 2), seed)
        lines, none = [], torch.nn.Flatten()
        lines.append({"method": "none (pixels)", **fresh(none, None, new, labels[held], seed)})
        for kind in HEADS:
            started = time.process_time()
            body, head = trained(kind, old, codes, train, seed, given.steps)
            plain, loki = known(body, head, old, codes, train, test, distances)
            lines.append({"method": kind, **plain, **fresh(body, head, new, labels[held], seed)})
            lines.append({"method": f"{kind} + Loki", **loki})
            print(kind, seed, f"{time.process_time() - started:.0f} s", lines[-2], flush=True)
        append(given.out, [{"set": "characters", "seed": seed, **line} for line in lines], FIELDS)


if __name__ == "__main__":
    main()
