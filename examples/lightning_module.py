"""A Lightning module: a loss against learned vectors of classes beside one of pairs, and metrics that are streamed.

Run it as it is; nothing is downloaded.

    python examples/lightning_module.py
    python examples/lightning_module.py --epochs 2
"""

import argparse
import logging
import warnings

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from vicinal.losses import EmbeddingLoss, ProxyLoss
from vicinal.metrics import EmbeddingRetrieval
from vicinal.samplers import ClassBatches


class MetricLearner(LightningModule):
    """A network whose embeddings bring rows of one class together, also of classes that it has never seen."""

    def __init__(self, inputs: int, num_classes: int, dim: int = 32) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, dim))
        # gather=True makes one batch of those of all processes; with one process it changes nothing
        self.pairs = EmbeddingLoss("supcon", temperature=0.1, gather=True)
        self.proxies = ProxyLoss("proxy_anchor", num_classes, dim)  # its vectors are parameters of this module
        self.retrieval = EmbeddingRetrieval(["map@r", "precision@1"])

    def training_step(self, batch: list[Tensor], batch_index: int) -> Tensor:
        """The loss of one batch."""
        images, labels = batch
        embeddings = self.network(images)
        loss: Tensor = self.pairs(embeddings, labels) + 0.1 * self.proxies(embeddings, labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: list[Tensor], batch_index: int) -> None:
        """Embeddings are kept; the n x n scores never are."""
        images, labels = batch
        self.retrieval.update(self.network(images), labels)

    def on_validation_epoch_end(self) -> None:
        """Metrics over all validation rows."""
        self.log_dict(self.retrieval.compute(), prog_bar=True)
        self.retrieval.reset()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """All parameters; vectors of classes learn faster."""
        groups = [{"params": self.network.parameters()}, {"params": self.proxies.parameters(), "lr": 1e-2}]
        return torch.optim.AdamW(groups, lr=1e-3)


def main() -> None:
    """Train on two thirds of the images, validate on the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    asked = parser.parse_args()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning.*")
    seed_everything(0, verbose=False)
    digits = load_digits()
    images, labels = torch.tensor(digits.data).float() / 16, torch.tensor(digits.target)
    new = torch.arange(len(labels)) % 3 == 0  # every third image is held out
    sampler = ClassBatches(labels[~new], classes=10, per_class=8, seed=0)
    train = DataLoader(TensorDataset(images[~new], labels[~new]), batch_sampler=sampler)  # type: ignore[arg-type]
    validation = DataLoader(TensorDataset(images[new], labels[new]), batch_size=256)
    trainer = Trainer(
        max_epochs=asked.epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(MetricLearner(64, 10), train, validation)
    found = {name: float(value) for name, value in trainer.callback_metrics.items()}
    print(f"images held out: MAP@R {found['map@r']:.3f}, precision@1 {found['precision@1']:.3f}")


if __name__ == "__main__":
    main()
