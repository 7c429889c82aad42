"""Train on fewer rows an epoch, chosen by their last losses: a window from easy to hard, or unbiased pruning.

Pass either to a ``DataLoader`` as ``sampler``, and the losses of each batch to :meth:`~LossSampler.record`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vicinal.core.checks import check_between, check_integer

Rows = NDArray[np.int64]
UNSEEN = 3.0


class LossSampler(ABC):
    """Rows of an epoch, chosen by the losses last recorded for them.

    The choice depends only on the seed, the epoch and the losses, so processes that know the same losses draw the same
    rows.

    Args:
        rows: number of rows of the training set.
        epochs: length of the whole training; the last eighth is not pruned by loss, so that it ends without bias.
        keep: share of the rows (:class:`UnbiasedPruning`: of the easy rows) drawn in each epoch, from 0.1 to 1.
        seed: whole number >= 0.
    """

    def __init__(self, rows: int, *, epochs: int, keep: float, seed: int = 0) -> None:
        self.rows, self.epochs = check_integer("rows", rows), check_integer("epochs", epochs)
        if not check_between("keep", keep, 0, 1, closed=True) >= 0.1:
            raise ValueError(f"keep: expected a share from 0.1 to 1, got {keep}")
        self.keep, self.seed, self.epoch = keep, check_integer("seed", seed, 0), 0
        self.losses = np.full(rows, UNSEEN)

    @property
    def last_pruned(self) -> int:
        """The first epoch that is no longer pruned by loss."""
        return int(self.epochs * 0.875)

    def record(self, indices: ArrayLike, losses: ArrayLike) -> None:
        """Store the losses of a batch: ``indices [b]`` of its rows, ``losses [b]`` (before any weight).

        Raises:
            ValueError: naming the first row whose loss is not finite, or that does not exist.
        """
        places, values = np.asarray(indices, dtype=np.int64), np.asarray(losses, dtype=np.float64)
        if places.shape != values.shape or places.ndim != 1:
            raise ValueError(f"losses: expected one for each of {places.shape} indices, got {values.shape}")
        if len(places) and not (places.min() >= 0 and places.max() < self.rows):
            raise ValueError(f"indices: expected rows from 0 to {self.rows - 1}, got {places.min()}..{places.max()}")
        bad = ~np.isfinite(values)
        if bad.any():
            raise ValueError(f"losses: expected finite numbers, got {values[bad][0]} for row {places[bad][0]}")
        self.losses[places] = values

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next pass."""
        self.epoch = check_integer("epoch", epoch, 0)

    def state_dict(self) -> dict[str, Any]:
        """Epoch and losses, to resume a training."""
        return {"epoch": self.epoch, "losses": self.losses.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from the result of ``state_dict``."""
        self.set_epoch(state["epoch"])
        self.record(np.arange(self.rows), state["losses"])

    def __iter__(self) -> Iterator[int]:
        chosen = self.chosen()
        self.epoch += 1
        yield from chosen.tolist()

    def __len__(self) -> int:
        """Number of rows of the next pass; asking changes nothing, even in the middle of a pass."""
        return len(self._draw()[0])

    def chosen(self) -> Rows:
        """Rows of the next pass, in the order of training."""
        return self._draw()[0]

    @abstractmethod
    def _draw(self) -> tuple[Rows, NDArray[np.float64] | None]:
        """Rows of the next pass, and the weights of all rows in it (None: all 1); the draw is not stored."""

    def _random(self) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.epoch])


class SlidingLossWindow(LossSampler):
    """SeTa: from a random share of the rows, those whose losses are in a window that slides from easy to hard.

    The losses are clustered into ``groups`` by :func:`loss_groups`, easy ones first; epoch t trains on w =
    round(groups * window) of them, starting at number t mod (groups - w + 1). Epoch 0 and the last eighth use all
    groups. Losses are not reweighted. Zhou et al., *Scale Efficient Training for Large Datasets*, CVPR 2025
    (arXiv:2503.13385).

    Args:
        groups: at least 1, below the number of rows kept.
        window: share of the groups in the window, in (0, 1].

    >>> sampler = SlidingLossWindow(100, epochs=8, keep=1.0, groups=4, window=0.5)
    >>> sampler.record(range(100), [float(row) for row in range(100)])
    >>> len(sampler)  # the first epoch sees everything
    100
    >>> sampler.set_epoch(3)
    >>> bool(max(sampler.chosen()) < 60)  # a new cycle: the easy ones again
    True
    """

    def __init__(
        self, rows: int, *, epochs: int, keep: float = 0.9, groups: int = 10, window: float = 0.5, seed: int = 0
    ) -> None:
        super().__init__(rows, epochs=epochs, keep=keep, seed=seed)
        self.groups = check_integer("groups", groups)
        if check_between("window", window, 0, 1, closed=True) == 0:
            raise ValueError("window: expected a share above 0, got 0")
        if groups >= self._draw_size():
            raise ValueError(f"groups: expected fewer than the {self._draw_size()} rows kept, got {groups}")
        self.window = window

    def span(self) -> tuple[int, int]:
        """First and last group of the next epoch."""
        width = max(round(self.groups * self.window), 1)
        if self.epoch == 0 or self.epoch >= self.last_pruned:
            return 0, self.groups - 1
        first = self.epoch % (self.groups - width + 1)
        return first, first + width - 1

    def _draw(self) -> tuple[Rows, None]:
        random = self._random()
        drawn = random.permutation(self.rows)[: self._draw_size()]
        first, last = self.span()
        if (first, last) == (0, self.groups - 1):
            return drawn, None
        group = loss_groups(self.losses[drawn], self.groups, seed=self.seed)
        return np.asarray(drawn[(group >= first) & (group <= last)], dtype=np.int64), None

    def _draw_size(self) -> int:
        return max(round(self.rows * self.keep), 1)


def loss_groups(losses: ArrayLike, groups: int, *, seed: int = 0) -> Rows:
    """Group of each loss ``[n]``, 0 for the lowest: k-means, or with fewer different losses than groups equal parts.

    >>> loss_groups([0.1, 5.0, 0.2, 5.1], 2).tolist()
    [0, 1, 0, 1]
    >>> loss_groups([1.0, 1.0, 1.0, 1.0], 2).tolist()
    [0, 0, 1, 1]
    """
    values = np.asarray(losses, dtype=np.float64)
    check_integer("groups", groups)
    if len(np.unique(values)) < groups:
        parts = np.array_split(values.argsort(kind="stable"), groups)
        group = np.empty(len(values), dtype=np.int64)
        for number, part in enumerate(parts):
            group[part] = number
        return group
    start = np.quantile(values, (np.arange(groups) + 0.5) / groups)[:, None]
    from sklearn.cluster import KMeans  # slow to import

    model = KMeans(groups, init=start, n_init=1, random_state=seed).fit(values[:, None])
    rank = np.argsort(np.argsort(model.cluster_centers_[:, 0]))
    return np.asarray(rank[model.labels_], dtype=np.int64)


class UnbiasedPruning(LossSampler):
    """InfoBatch: of the rows with a loss below the mean, only a share is drawn, and these count more.

    Gradients keep their expectation: each easy row drawn has the weight (easy rows) / (easy rows drawn), about
    1 / ``keep``. The weights are those of the pass that began last. Qin et al., *InfoBatch*, ICLR 2024
    (arXiv:2303.04947).

    >>> sampler = UnbiasedPruning(1000, epochs=8, keep=0.5)
    >>> sampler.record(range(1000), [0.0] * 500 + [1.0] * 500)
    >>> rows = sampler.chosen()
    >>> len(rows), float(sampler.weights(rows).sum())
    (750, 1000.0)
    """

    def __init__(self, rows: int, *, epochs: int, keep: float = 0.7, seed: int = 0) -> None:
        super().__init__(rows, epochs=epochs, keep=keep, seed=seed)
        self._weights = np.ones(rows)

    def chosen(self) -> Rows:
        """Rows of the next pass, in the order of training; :meth:`weights` are then those of this pass."""
        rows, self._weights = self._draw()
        return rows

    def _draw(self) -> tuple[Rows, NDArray[np.float64]]:
        random, weights = self._random(), np.ones(self.rows)
        easy = np.flatnonzero(self.losses < self.losses.mean())
        if self.epoch >= self.last_pruned or not len(easy):
            return random.permutation(self.rows), weights
        drawn = random.choice(easy, max(round(len(easy) * self.keep), 1), replace=False)
        weights[drawn] = len(easy) / len(drawn)
        hard = np.setdiff1d(np.arange(self.rows), easy)
        return random.permutation(np.concatenate([hard, drawn])), weights

    def weights(self, indices: ArrayLike) -> NDArray[np.float64]:
        """Factors ``[b]`` for the losses of these rows in the current pass."""
        return self._weights[np.asarray(indices, dtype=np.int64)]
