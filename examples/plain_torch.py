"""A plain loop: embeddings of handwritten digits, measured on images that are held out.

The loss, its miner and the sampler are those of vicinal; all else is torch.

    python examples/plain_torch.py
    python examples/plain_torch.py --loss "nt_xent(temperature=.1)" --epochs 5
"""

import argparse
import functools

import torch
from sklearn.datasets import load_digits
from torch import nn

from vicinal import miners
from vicinal.losses import EmbeddingLoss, explain_batch, parse
from vicinal.metrics import embedding_metrics
from vicinal.samplers import ClassBatches


def main() -> None:
    """Train, and print MAP@R of the images held out before and after."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loss", help="as text, see: vicinal losses; default: multi_similarity with its miner")
    parser.add_argument("--epochs", type=int, default=10)
    asked = parser.parse_args()
    torch.manual_seed(0)
    digits = load_digits()
    images, labels = torch.tensor(digits.data).float() / 16, torch.tensor(digits.target)
    new = torch.arange(len(labels)) % 3 == 0  # every third image is held out

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
    criterion: nn.Module = EmbeddingLoss(
        "multi_similarity", miner=functools.partial(miners.multi_similarity, epsilon=0.1)
    )
    if asked.loss:
        criterion = parse(asked.loss)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batches = ClassBatches(labels[~new], classes=10, per_class=8, seed=0)

    def measure() -> float:
        with torch.no_grad():
            values = embedding_metrics(model(images[new]), labels[new], metrics=["map@r"])
        return float(values["map@r"].nanmean())

    print(f"before training: MAP@R {measure():.3f} of the images held out")
    for epoch in range(asked.epochs):
        total, number = 0.0, 0
        for rows in batches:  # the sampler shuffles anew each time it is gone through
            loss = criterion(model(images[~new][rows]), labels[~new][rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, number = total + loss.item(), number + 1
        print(f"epoch {epoch + 1}: loss {total / number:.4f}, MAP@R {measure():.3f}")
    if isinstance(criterion, EmbeddingLoss):
        print(explain_batch(criterion, model(images[~new][rows]).detach(), labels[~new][rows], most=2))


if __name__ == "__main__":
    main()
