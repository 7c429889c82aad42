"""Class heads on an embedding: how each is trained, and the probabilities that it gives."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vicinal.heads import NONA, Dense, EquiangularHead, NearestClassMean
from vicinal.losses import ProxyLoss
from vicinal.masks import SoftStep

BATCH, RATE, PATIENCE = 128, 1e-3, 8


class ClassHead(nn.Module, ABC):
    """A loss of embeddings and classes, and probabilities from queries and a labelled bank."""

    def __init__(self, classes: int, dim: int) -> None:
        super().__init__()
        self.classes, self.dim = classes, dim

    def loss(self, rows: Tensor, labels: Tensor) -> Tensor:
        """Log-loss of a batch that is its own bank."""
        return F.nll_loss(self.chances(rows, rows, labels).clamp(min=1e-9).log(), labels)

    @abstractmethod
    def chances(self, queries: Tensor, bank: Tensor, labels: Tensor) -> Tensor:
        """Probabilities ``[b, C]`` of embeddings."""


class Softmax(ClassHead):
    """A linear layer and softmax."""

    def __init__(self, classes, dim):
        super().__init__(classes, dim)
        self.head = Dense(dim, classes, activation="softmax")

    def chances(self, queries, bank, labels):
        return self.head(queries, bank, labels)


class Neighbors(ClassHead):
    """The head of NeighborClassifier; in training the rest of the batch is the bank."""

    def __init__(self, classes, dim):
        super().__init__(classes, dim)
        self.head = NONA("l2", SoftStep(dim))

    def chances(self, queries, bank, labels):
        ids = torch.arange(len(bank)) if queries is bank else None
        return self.head(queries, bank, F.one_hot(labels, self.classes).to(bank), query_ids=ids, bank_ids=ids)


class Equiangular(ClassHead):
    """Cosines with fixed vectors."""

    def __init__(self, classes, dim):
        super().__init__(classes, dim)
        self.head = EquiangularHead(classes, dim)

    def chances(self, queries, bank, labels):
        return self.head(queries).softmax(1)


class ClassMeans(ClassHead):
    """Trained by normalized softmax; its proxies are dropped, and the nearest class mean on the sphere predicts."""

    def __init__(self, classes, dim):
        super().__init__(classes, dim)
        self.criterion = ProxyLoss("normalized_softmax", classes, dim)

    def loss(self, rows, labels):
        return self.criterion(rows, labels)

    def chances(self, queries, bank, labels):
        head = NearestClassMean(self.classes, self.dim)
        head.add(bank, labels)
        return head(queries)


HEADS = {
    "dense softmax": Softmax,
    "neighbors (NONA)": Neighbors,
    "equiangular (EBV)": Equiangular,
    "normalized softmax + class means": ClassMeans,
}


def embed(body: nn.Module, inputs: Tensor) -> Tensor:
    """Evaluation-mode embeddings."""
    body.eval()
    with torch.no_grad():
        return torch.cat([body(part) for part in inputs.split(512)])


@torch.no_grad()
def judged(head: ClassHead, body: nn.Module, x: Tensor, labels: Tensor, bank: Tensor, rows: Tensor) -> Tensor:
    """Probabilities ``[n, C]`` of ``rows`` with the rows ``bank`` as neighbors."""
    found = head.eval().chances(embed(body, x[rows]), embed(body, x[bank]), labels[bank]).double()
    return found / found.sum(1, keepdim=True)


def train(
    make: Callable[[], nn.Module], kind: str, x: Tensor, labels: Tensor, train: Tensor, held: Tensor, *, seed: int
) -> tuple[nn.Module, ClassHead, int]:
    """Body and head at the epoch with the lowest log-loss of the rows ``held``, and how many epochs it took."""
    torch.manual_seed(seed)
    body = make()
    head = HEADS[kind](int(labels.max()) + 1, body(x[train[:2]]).shape[1])
    both = nn.ModuleList([body, head])
    optimizer = torch.optim.Adam(both.parameters(), lr=RATE)
    best, kept, since, epochs = np.inf, {}, 0, 0
    for _ in range(100):
        both.train()
        for rows in train[torch.randperm(len(train))].split(BATCH):
            if len(rows) < 2:
                continue
            loss = head.loss(body(x[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        shares = judged(head, body, x, labels, train, held)
        error = float(F.nll_loss(shares.clamp(min=1e-9).log(), labels[held]))
        since, epochs = since + 1, epochs + 1
        if error < best:
            best, since = error, 0
            kept = {name: value.clone() for name, value in both.state_dict().items()}
        if since >= PATIENCE:
            break
    both.load_state_dict(kept)
    return body, head, epochs
