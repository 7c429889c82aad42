"""A loss of vicinal inside the trainer of Sentence Transformers (5.x or 6.x): sentences with a topic as label.

Any pair loss will do, for labels that are classes or numbers. The sentences are made up on the spot, so that nothing is
downloaded; the model is a folder or a name of the hub.

    pip install sentence-transformers datasets accelerate
    python examples/sentence_transformers_trainer.py --model sentence-transformers/all-MiniLM-L6-v2
    python examples/sentence_transformers_trainer.py --model FOLDER --loss "nt_xent(temperature=.05)"
"""

import argparse
import itertools
import tempfile
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from vicinal.losses import parse
from vicinal.metrics import embedding_metrics

TOPICS = {
    "weather": (["rain", "snow", "fog", "a storm", "sunshine", "frost"], ["came over the {}", "stayed near the {}"]),
    "cooking": (["soup", "bread", "rice", "an omelette", "stew", "jam"], ["was made in the {}", "smelled of the {}"]),
    "music": (
        ["a song", "a waltz", "a march", "a ballad", "a hymn", "a tune"],
        ["was played at the {}", "filled the {}"],
    ),
}
PLACES = ("village", "harbor", "school", "old house", "garden", "hall")


class EmbeddingsLoss(nn.Module):
    """What the trainer calls: it embeds the one column of texts and gives embeddings and labels to a criterion."""

    def __init__(self, model: Any, criterion: nn.Module) -> None:
        super().__init__()
        self.model, self.criterion = model, criterion

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """The loss of a batch."""
        (features,) = sentence_features  # one column of texts
        embeddings = self.model(features)["sentence_embedding"]  # [b, d]
        loss: Tensor = self.criterion(embeddings, labels)
        return loss

    def get_config_dict(self) -> dict[str, Any]:
        """For the model card."""
        return {"criterion": repr(self.criterion)}


def sentences() -> tuple[list[str], list[int]]:
    """Made-up sentences and the number of their topic."""
    texts, labels = [], []
    for label, (subjects, endings) in enumerate(TOPICS.values()):
        for subject, ending, place in itertools.product(subjects, endings, PLACES):
            texts.append(f"{subject.capitalize()} {ending.format(place)}.")
            labels.append(label)
    return texts, labels


def main() -> None:
    """Train, and print MAP@R of the sentences held out before and after."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="sentence-transformers/all-MiniLM-L6-v2", help="folder, or name of the hub")
    parser.add_argument("--loss", default="supcon(temperature=.1)", help="as text, see: vicinal losses")
    parser.add_argument("--epochs", type=int, default=2)
    asked = parser.parse_args()
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )

    torch.manual_seed(0)
    texts, labels = sentences()
    order = torch.randperm(len(texts)).tolist()
    held, kept = order[: len(order) // 3], order[len(order) // 3 :]
    model = SentenceTransformer(asked.model, device="cpu")

    def measure() -> float:
        vectors = model.encode([texts[i] for i in held], convert_to_tensor=True)
        found = embedding_metrics(vectors, torch.tensor([labels[i] for i in held]), metrics=["map@r"])
        return float(found["map@r"].mean())

    print(f"before training: MAP@R {measure():.3f}")
    with tempfile.TemporaryDirectory() as folder:
        settings = SentenceTransformerTrainingArguments(
            output_dir=folder,
            num_train_epochs=asked.epochs,
            per_device_train_batch_size=32,
            learning_rate=2e-5,
            batch_sampler="group_by_label",  # several sentences of each topic in a batch
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            seed=0,
        )
        rows = Dataset.from_dict({"sentence": [texts[i] for i in kept], "label": [labels[i] for i in kept]})
        loss = EmbeddingsLoss(model, parse(asked.loss))
        SentenceTransformerTrainer(model=model, args=settings, train_dataset=rows, loss=loss).train()
    print(f"after training:  MAP@R {measure():.3f}")


if __name__ == "__main__":
    main()
