"""What the neighbor estimators share: parameters, fitting, and the head on embedded queries."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from vicinal.encoders import EmbeddingCache, Kind, TableEncoder, TableInputs, build_table_encoder
from vicinal.estimators.bank import Bank, Ids, as_ids, check_unique
from vicinal.estimators.building import make_criterion, make_network, training_settings
from vicinal.estimators.inputs import HeldOut, as_frame, check_rows, hold_out, kinds_of
from vicinal.training import NeighborNetwork, Rows, RowSubset, TrainingHistory, train

SCORES = 1 << 22
"""Scores or weights held at a time while many queries are looked up, explained or calibrated."""


class NeighborEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Base of :class:`NeighborRegressor` and :class:`NeighborClassifier`; see there for the parameters."""

    network_: NeighborNetwork
    bank_: Bank
    calibration_: Bank
    history_: TrainingHistory
    kinds_: dict[str, Kind]
    notes_: dict[str, Any]

    def __init__(
        self,
        *,
        head: str = "nona",
        similarity: str = "l2",
        mask: str | None = "s2",
        mask_parameters: str = "pointwise",
        mask_extent: str = "admissible",
        simplex: str = "softmax",
        loss: Any = None,
        n_neighbors: int = 5,
        columns: Mapping[str, Kind] | None = None,
        encoders: Mapping[str, str] | None = None,
        tune: str = "none",
        hidden: tuple[int, ...] = (200, 25),
        dropout: float = 0.0,
        max_epochs: int = 200,
        batch_size: int = 32,
        learning_rate: float = 1e-3,
        encoder_learning_rate: float = 2e-5,
        weight_decay: float = 0.0,
        patience: int = 10,
        validation_fraction: float = 0.15,
        precision: str = "32-true",
        accelerator: str = "cpu",
        logger: str | None = None,
        progress: bool = False,
        root: str | Path | None = None,
        cache_dir: str | Path | None = None,
        checkpoint_dir: str | Path | None = None,
        random_state: Any = 0,
    ) -> None:
        self.head = head
        self.similarity = similarity
        self.mask = mask
        self.mask_parameters = mask_parameters
        self.mask_extent = mask_extent
        self.simplex = simplex
        self.loss = loss
        self.n_neighbors = n_neighbors
        self.columns = columns
        self.encoders = encoders
        self.tune = tune
        self.hidden = hidden
        self.dropout = dropout
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.encoder_learning_rate = encoder_learning_rate
        self.weight_decay = weight_decay
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.precision = precision
        self.accelerator = accelerator
        self.logger = logger
        self.progress = progress
        self.root = root
        self.cache_dir = cache_dir
        self.checkpoint_dir = checkpoint_dir
        self.random_state = random_state

    # What the two tasks define.

    def _take_labels(self, y: Any, rows: int) -> Ids:
        """Checked labels as numbers ``[n]``: values, or positions of classes (and ``classes_`` set)."""
        raise TypeError(f"estimator: expected NeighborRegressor or NeighborClassifier, got {type(self).__name__}")

    def _fit_labels(self, y: Any, rows: int) -> Ids:
        """As :meth:`_take_labels`, for the rows that are fitted on."""
        return self._take_labels(y, rows)

    def _scaled(self, labels: Tensor, train_labels: Tensor) -> Tensor:
        """Labels as training sees them: on [0, 1] by the range of the training rows, or one-hot."""
        raise TypeError(f"estimator: expected NeighborRegressor or NeighborClassifier, got {type(self).__name__}")

    def _start(self, scaled: Tensor) -> Tensor:
        """Where the bias of a dense head starts."""
        raise TypeError(f"estimator: expected NeighborRegressor or NeighborClassifier, got {type(self).__name__}")

    # Fitting.

    def _fit(self, x: Any, y: Any, ids: Any, groups: Any, validation: Any) -> Self:
        frame = as_frame(self, x, reset=True)
        labels = self._fit_labels(y, len(frame))
        check_rows(len(frame))
        own_ids = as_ids("ids", range(len(frame)) if ids is None else ids, len(frame))
        check_unique(own_ids)
        own_groups = None if groups is None else as_ids("groups", groups, len(frame))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        classes = labels if hasattr(self, "classes_") else None
        held = hold_out(len(frame), validation, self.validation_fraction, own_groups, classes, seed)
        self.kinds_ = kinds_of(frame, x, self.columns)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self._train(frame, torch.from_numpy(labels.astype(np.float64)), own_ids, own_groups, held, seed)
        return self

    def _train(
        self, frame: pd.DataFrame, labels: Tensor, ids: Ids, groups: Ids | None, held: HeldOut, seed: int
    ) -> None:
        encoder = build_table_encoder(self.kinds_, encoders=self.encoders, tune=self.tune)
        encoder.fit(frame.iloc[held.train])
        inputs = self._prepare(encoder, frame)
        scaled = self._scaled(labels, labels[torch.from_numpy(held.train)])
        settings = self.get_params(deep=False)
        network = make_network(settings, encoder, encoder.dim, self._start(scaled[torch.from_numpy(held.train)]))
        codes = None if groups is None else torch.from_numpy(np.unique(groups, return_inverse=True)[1].astype(np.int64))
        parts = []
        for positions in (held.train, held.validation):
            rows = torch.from_numpy(positions)
            parts.append(
                Rows(RowSubset(inputs, rows), scaled[rows].float(), rows, None if codes is None else codes[rows])
            )
        criterion = make_criterion(settings, getattr(self, "label_range_", None))
        self.history_ = train(network, parts[0], parts[1], training_settings(settings, seed), criterion)
        network.projector.double()
        network.head.double()
        self.network_ = network.eval()
        banks = []
        for positions, part in zip((held.train, held.validation), parts, strict=True):
            vectors = network.embed_all(part.inputs, torch.device("cpu")).float()
            part_groups = None if groups is None else groups[positions]
            part_labels = labels[torch.from_numpy(positions)]
            banks.append(Bank(ids[positions], vectors, part_labels, frame.iloc[positions], part_groups))
        self.bank_, self.calibration_ = banks

    def _prepare(self, encoder: TableEncoder, frame: pd.DataFrame) -> TableInputs:
        """Prepared rows, those of frozen networks run once (and kept in ``cache_dir`` if there is one)."""
        inputs = encoder.prepare(frame, None if self.root is None else Path(self.root))
        store = None if self.cache_dir is None else EmbeddingCache(self.cache_dir)
        return encoder.cache(inputs, store=store)

    @property
    def table_encoder(self) -> TableEncoder:
        """The encoder of the table's columns."""
        encoder = self.network_.encoder
        if not isinstance(encoder, TableEncoder):
            raise TypeError(f"encoder: expected a TableEncoder, got {type(encoder).__name__}")
        return encoder

    def _embed(self, x: Any) -> tuple[pd.DataFrame, Tensor]:
        """The table of ``x`` and its embeddings ``[n, d]``, float64."""
        check_is_fitted(self, "bank_")
        frame = as_frame(self, x, reset=False)
        inputs = self._prepare(self.table_encoder, frame)
        return frame, self.network_.embed_all(inputs, torch.device("cpu")).double()

    def embed(self, X: Any) -> np.ndarray[Any, Any]:
        """Embeddings of the rows ``[n, d]``, float64."""
        return self._embed(X)[1].numpy()

    def _identity(self, rows: int, ids: Any, groups: Any) -> dict[str, Tensor | None]:
        """What keeps these queries from their own rows and groups."""
        own_ids = None if ids is None else as_ids("ids", ids, rows)
        own_groups = None if groups is None else as_ids("groups", groups, rows)
        if own_groups is not None and self.bank_.groups is None:
            raise ValueError("groups: expected none, as the model was fitted without groups, got some")
        return self.bank_.identity(own_ids, own_groups)

    def _head_predict(self, queries: Tensor, identity: Mapping[str, Tensor | None]) -> Tensor:
        """The head's prediction ``[b]`` or ``[b, K]`` in the bank's own label units."""
        return self.network_.predict(queries, self.bank_.vectors, self._bank_labels(), **identity)

    def _bank_labels(self) -> Tensor:
        return self.bank_.labels

    def _check_neighbor_head(self, asked: str) -> None:
        if not self.network_.head.uses_bank:
            raise ValueError(f"{asked}: expected head='nona', got head={self.head!r}, which has no neighbors to show")

    def _weights(self, queries: Tensor, bank: Bank, identity: Mapping[str, Tensor | None]) -> Tensor:
        """Weights ``[b, N]``."""
        with torch.no_grad():
            weights: Tensor = self.network_.head.weights(queries, bank.vectors, **identity)  # type: ignore[operator]
        return weights

    def _blocks(
        self, queries: Tensor, identity: Mapping[str, Tensor | None]
    ) -> Iterator[tuple[Tensor, dict[str, Tensor | None]]]:
        """Queries with their share of ``identity``, in blocks whose weights fit into memory."""
        step = max(1, SCORES // len(self.bank_))
        for start in range(0, len(queries), step):
            part = slice(start, start + step)
            own = {n: v if v is None or n.startswith("bank") else v[part] for n, v in identity.items()}
            yield queries[part], own
