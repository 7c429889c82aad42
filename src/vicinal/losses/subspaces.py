"""Learners of their own for parts of the data, each in a slice of the embedding."""

import math

import torch
from torch import Tensor, nn

from vicinal.core.checks import check_integer, check_matrices
from vicinal.transport import assignment


def subspace_slices(dim: int, learners: int) -> list[slice]:
    """An embedding cut into slices of equal width, the rest of a division in the last.

    >>> subspace_slices(7, 3)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
    """
    width = check_integer("dim", dim) // check_integer("learners", learners, 1, dim)
    return [slice(k * width, dim if k == learners - 1 else (k + 1) * width) for k in range(learners)]


def matched_clusters(clusters: Tensor, before: Tensor, learners: int) -> Tensor:
    """New clusters under the names of the old ones that they share most rows with.

    Args:
        clusters: ``[n]``, 0 to learners - 1.
        before: ``[n]``, likewise.
        learners: the number of learners.

    >>> matched_clusters(torch.tensor([0, 0, 1, 1]), torch.tensor([1, 1, 1, 0]), 2)
    tensor([1, 1, 0, 0])
    """
    one = torch.ones((), device=clusters.device)
    shared = one.new_zeros(learners, learners).index_put((clusters, before), one, accumulate=True)
    return assignment(shared)[clusters]


class SubspaceLearners(nn.Module):
    r"""A loss of embeddings for one cluster of the data at a time, each in its own slice of the embedding.

    $\ell(z_{i, S_k})$ of the rows of cluster k: the gradient of other slices is 0. With one learner this is the plain
    loss; another joins when the validation score no longer improves. In the end use the whole embedding, with or
    without scaling each slice to length 1. Sanakoyeu et al., *Divide and Conquer the Embedding Space*, CVPR 2019.
    Joining learners are reconstructed from memory of *Attention-based Dynamic Subspace Learners*, Medical Image
    Analysis 2022, without its attention.

    Args:
        loss: ``loss(embeddings [b, w], labels)``, such as :class:`EmbeddingLoss`; shared by all learners.
        dim: width of the embeddings.
        learners: K >= 1 at the start.
        most: most learners; never more than ``dim``.
        patience: a learner joins after this many scores in a row that do not beat the best.
        seed: of the clustering.

    Attributes:
        learners: K, now.

    >>> from vicinal.losses import EmbeddingLoss
    >>> train = SubspaceLearners(EmbeddingLoss("contrastive"), dim=4, learners=2)
    >>> x = torch.eye(4)[[0, 0, 2, 2]]
    >>> train.assign(x).tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])
    True
    >>> train(x[:2], torch.tensor([0, 0]), 0)
    tensor(0.)
    """

    def __init__(
        self, loss: nn.Module, dim: int, *, learners: int = 1, most: int = 8, patience: int = 3, seed: int = 0
    ) -> None:
        super().__init__()
        self.loss, self.dim = loss, check_integer("dim", dim)
        self.learners = check_integer("learners", learners, 1, dim)
        self.most = min(check_integer("most", most, learners), dim)
        self.patience, self.seed = check_integer("patience", patience), seed
        self.best, self.waited = -math.inf, 0

    def forward(self, embeddings: Tensor, labels: Tensor, learner: int) -> Tensor:
        """The loss of rows ``[b, dim]`` of one cluster, in the slice of its ``learner``."""
        check_matrices(embeddings, embeddings)
        if embeddings.shape[1] != self.dim:
            raise ValueError(f"embeddings: expected [b, {self.dim}], got {tuple(embeddings.shape)}")
        part = subspace_slices(self.dim, self.learners)[check_integer("learner", learner, 0, self.learners - 1)]
        return self.loss(embeddings[:, part], labels)

    def assign(self, embeddings: Tensor, before: Tensor | None = None) -> Tensor:
        """The cluster of each row ``[n, dim]`` by k-means, ``[n]``; draw each batch from one, and renew them at times.

        Args:
            embeddings: of all rows, at least as many as learners.
            before: the previous clusters; those that share most rows keep their learner.
        """
        check_matrices(embeddings, embeddings)
        if len(embeddings) < self.learners:
            raise ValueError(f"embeddings: expected at least {self.learners} rows, got {len(embeddings)}")
        from sklearn.cluster import KMeans  # takes a while to import, and losses are needed without it

        rows = embeddings.detach().double().cpu().numpy()
        model = KMeans(self.learners, n_init=1, random_state=self.seed).fit(rows)
        clusters = torch.from_numpy(model.labels_).long()
        if before is None:
            return clusters.to(embeddings.device)
        named = matched_clusters(clusters, before.cpu().clamp(max=self.learners - 1), self.learners)
        return named.to(embeddings.device)

    def observe(self, score: float) -> bool:
        """Take in a validation score (higher = better); returns whether a learner has joined: then assign rows anew."""
        if score > self.best:
            self.best, self.waited = score, 0
            return False
        self.waited += 1
        if self.waited < self.patience or self.learners == self.most:
            return False
        self.learners, self.waited = self.learners + 1, 0
        return True
