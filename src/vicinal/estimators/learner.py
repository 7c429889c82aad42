"""An embedding in which rows that are alike lie together: learned by losses of pairs, judged on classes never seen."""

import copy
import numbers
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from vicinal.core import check_choice, short
from vicinal.core.checks import check_between, check_integer
from vicinal.core.identity import canonical_ids
from vicinal.core.seeding import usual_settings
from vicinal.encoders import EmbeddingCache, PrincipalProjector, TableEncoder
from vicinal.encoders.pretrained import check_tune
from vicinal.estimators.banked import BankedEstimator
from vicinal.estimators.encoder_choice import installed_encoders
from vicinal.estimators.fitted import FittedModel
from vicinal.estimators.fitting import FitJob, prepared, with_banks
from vicinal.estimators.inputs import Draw, HeldOut, Ids, LabelledRows, as_frame, as_table, hold_out
from vicinal.estimators.kernel_metric import encoded
from vicinal.estimators.label_codec import LabelCodec, LikenessCodec, class_names
from vicinal.estimators.labels import label_cells
from vicinal.estimators.network import similarity_network, training_settings
from vicinal.estimators.search import SearchHits, search_rows
from vicinal.estimators.several import number_form
from vicinal.settings import LikenessSettings
from vicinal.training import NeighborNetwork
from vicinal.training.rows import Rows
from vicinal.training.settings import check_values

if TYPE_CHECKING:
    from vicinal.evaluation.alike import Estimate
    from vicinal.samplers import BatchSampler

LOSSES = {"classes": "supcon(temperature=0.1)", "several": "supcon(temperature=0.1)", "numbers": "rank_n_contrast"}
"""What is trained by where no loss is named."""

SAMPLERS = ("auto", "classes", "random", "strata", "groups", "clusters")
LABELS = ("auto", "classes", "several", "numbers")
POWERS = (0.0, 0.5, 1.0)
"""Where training may start: cosines of the vectors themselves, of whitened ones, or half way."""

_LISTS = (list, tuple, set, frozenset, np.ndarray)

_ROUNDING = 1e-6
"""Of errors, which are logged in float32."""


class EmbeddingLearner(LikenessSettings, BankedEstimator, task="similarity"):
    r"""Learns vectors of rows, such that near ones are alike, from any table and a column that says what is alike.

    The encoders' vectors of a row go through a linear map to unit length (see
    :class:`vicinal.encoders.PrincipalProjector`). It starts at principal components, whitened or not, whichever does
    better on held-out rows, and is trained, with the encoders that are not frozen, by a loss on pairs or on learned
    class vectors (proxies). Training is judged, and stopped, by retrieval among rows of *classes never seen*: a model
    for new products, speakers or authors should not be judged by those it was trained on. If training does not improve
    on the start, the start is kept.

    Args:
        loss: losses of pairs and proxies that ``vicinal losses`` lists, with regularizers, and ``+`` between them:
            "multi_similarity(miner=hard)", "proxy_anchor + 0.5*triplet", "supcon + 0.05*energy_confusion". None:
            "supcon(temperature=0.1)", for numbers "rank_n_contrast".
        miner: chooses the pairs of losses that name no miner: "semihard", "hard", "multi_similarity(epsilon=.1)" (see
            ``vicinal losses --kind miners``); None: all pairs count.
        labels: what y holds. "classes" (or groups: rows of the same one are alike); "several" classes a row, as lists,
            alike if they share one; "numbers", alike if they are near; "auto": lists are several classes, numbers with
            fractions are numbers, all else classes.
        sampler: which rows meet in a batch: "classes" (``per_class`` rows of each class), "random", "strata" (of
            numbers), "groups" (no two rows of a group, of ``groups``), "clusters" (rows that are near one another
            before training); "auto": "classes", "random" for several labels, "strata" for numbers.
        per_class: at least so many rows of a class in a batch.
        memory: how many rows of recent batches each batch is also compared with (cross-batch memory); 0: none.
        dim: width of the learned vector, at most.
        unseen: hold out whole classes; False: hold out rows of every class; None: the former from 8 classes on.
        columns: see :class:`vicinal.estimators.NeighborRegressor`, as are ``form``, ``root``, ``cache_dir``,
            ``checkpoint_dir``, ``precision``, ``accelerator``, ``logger`` and ``verbose``.
        encoders: encoder by column or by kind, see there. Images, sounds and texts that are not named get the
            pretrained encoder if it is installed.
        tune: what of pretrained encoders is trained: "none", "last-N", "lora" or "all".
        max_epochs: passes over the training rows, at most.
        batch_size: rows of a batch, about.
        learning_rate: of Adam, for the map and encoders from scratch.
        encoder_learning_rate: of Adam, for pretrained encoders that are tuned.
        weight_decay: decoupled, >= 0.
        patience: epochs without improvement on the held-out rows before training stops.
        validation_fraction: share of the classes (with ``unseen``) or of the rows that is held out of training.
        root: folder that paths start from.
        cache_dir: folder for vectors of frozen encoders.
        checkpoint_dir: folder of checkpoints, from which a killed fit resumes.
        precision: of training, as Lightning names it.
        accelerator: see :class:`vicinal.estimators.NeighborRegressor`.
        logger: None, "csv", "tensorboard", "wandb" or "mlflow".
        random_state: seed.

    Attributes:
        bank_: all rows of the fit with their learned vectors; :meth:`search` looks there.
        classes_: names of the classes; where rows have several, each combination, its names joined by "|"; not for
            numbers.
        labels_: what y holds.
        start_: the power of the standard deviations that training started from, see
            :class:`vicinal.encoders.PrincipalProjector`.
        learned_: whether training improved on the start, measured on the held-out rows.
        history_: losses, and errors on the held-out rows (1 - MAP@R; for numbers 1 - R2 of the mean of the ten
            nearest).

    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(12), 10)
    >>> X = np.c_[rng.normal(size=(12, 2))[y] + 0.1 * rng.normal(size=(120, 2)), rng.normal(size=(120, 6))]
    >>> learner = EmbeddingLearner(max_epochs=10).fit(X, y)
    >>> learner.transform(X).shape, len(learner.search(X[:1], 3)[0]), learner.learned_
    ((120, 8), 3, True)
    """

    # Of what the estimators that predict let choose, where it is not their default.
    metric = "network"
    similarity = "cosine"
    mask = None
    simplex = "softmax"
    readout = "attention"
    n_neighbors = 10
    members = 1
    dropout = 0.0
    hidden = (128,)
    labels_: str
    start_: float
    learned_: bool

    def fit(self, X: Any, y: Any, *, ids: Any = None, groups: Any = None, validation: Any = None) -> Self:
        """Learn from rows and what makes them alike.

        Args:
            X: rows, as :meth:`vicinal.estimators.NeighborRegressor.fit` takes them.
            y: ``[n]``: see ``labels``.
            ids: ``[n]``, unique; None: 0 to n - 1.
            groups: ``[n]``; two rows of the same group (takes of one session) never form a pair, whatever y says.
            validation: positions of the rows to hold out; None: by ``unseen`` and ``validation_fraction``.

        Raises:
            ValueError: naming what was expected and what was found, such as too few classes to hold some out.
        """
        if y is None:
            raise ValueError("y: expected what makes rows alike, got None; requires y to be passed")
        self._check_settings()  # before the way that tunes by a plan, which is not for learners
        return self._fit(X, y, ids, groups, validation)

    @usual_settings()
    def evaluate(self, X: Any, y: Any, *, groups: Any = None) -> "dict[str, Estimate]":
        """How well rows find those that are alike among one another: see :func:`vicinal.evaluation.alike_scores`."""
        from vicinal.evaluation.alike import alike_scores  # scipy's tests take a while to import

        vectors = torch.from_numpy(self.embed(X))
        codes = self.as_known(y, len(vectors))
        if groups is not None:
            groups = canonical_ids("groups", groups, len(vectors))
            groups = torch.from_numpy(np.unique(groups, return_inverse=True)[1])
        return alike_scores(vectors, codes, groups)

    def score(self, X: Any, y: Any) -> float:
        """MAP@R of the rows among one another; of numbers the R2 of the mean of their ten nearest."""
        return next(iter(self.evaluate(X, y).values())).value

    def as_known(self, y: Any, rows: int) -> Tensor:
        """Labels as losses take them; new classes stand behind those of the model, which stays as it is."""
        codec = self.fitted_.codec.growing(y, rows, uses_bank=True)
        return codec.as_predicted(torch.from_numpy(codec.take(y, rows)))

    @usual_settings()
    def explain(self, X: Any, k: int = 5, *, ids: Any = None, groups: Any = None) -> SearchHits:  # type: ignore[override]
        """The ``k`` nearest bank rows of each row, and what each of its columns adds to their scores.

        The score is a cosine, and the map to the vectors is linear, so the score is the sum of what the columns add. A
        column near 0 makes the row no more alike than an average row would be. All numeric columns count as one, and so
        do all categories.

        Args:
            X: rows.
            k: hits per row.
            ids: ids of the rows; a row never finds the bank row with its own id.
            groups: groups of the rows; a row never finds bank rows of its own group either.

        Returns:
            hits with ``shares``: keyed by column, or by several columns joined by commas; they sum to the score.
        """
        check_is_fitted(self, "bank_")
        frame = self.form_.read(as_frame(self, as_table("X", X), reset=False))
        encoder, projector = self.table_encoder, self.network_.projector
        if not isinstance(projector, PrincipalProjector):
            raise TypeError(f"projector: expected a PrincipalProjector, got {type(projector).__name__}")
        features = encoded(encoder, self._prepare(encoder, frame))
        with torch.no_grad():
            parts = projector.parts(features, [part.dim for part in encoder.encoders])
        hits = search_rows(self, parts.sum(dim=1), check_integer("k", k), ids, groups)
        names, store = [", ".join(part.columns) for part in encoder.encoders], self.bank_.store
        for some, part in zip(hits, parts, strict=True):
            for place, hit in enumerate(some):
                vector = store.vectors_at(store.positions([hit.id]))[0].double()
                shares = (part @ nn.functional.normalize(vector, dim=0)).tolist()
                some[place] = replace(hit, shares=dict(zip(names, shares, strict=True)))
        hits.queries = frame.to_dict("records")  # type: ignore[assignment]
        return hits

    # What a fit does in its own way.

    def _check_settings(self) -> None:
        check_choice("labels", self.labels, LABELS)
        check_choice("sampler", self.sampler, SAMPLERS)
        check_values(self.get_params(deep=False), LikenessSettings)
        check_tune(self.tune)
        check_between("validation_fraction", self.validation_fraction, 0, 1)
        training_settings(self.get_params(deep=False), 0)

    def _check_loss(self, codec: LabelCodec, lists: int, *, weighted: bool) -> None:
        from vicinal.estimators.loss import check_loss
        from vicinal.losses.regularizer_loss import WHOLE
        from vicinal.losses.spec import read_loss

        check_loss(self.trained_by, codec.kind, multilabel=self.labels_ == "several")
        written = read_loss(self.trained_by, self.miner)
        if written.main is not None:
            raise ValueError(
                f"loss: expected one of embeddings ('vicinal losses --kind pairs' and '--kind proxies' list them), got "
                f"{short(written.main)}, which is one of predictions"
            )
        if all(term.is_regularizer and term.name not in WHOLE for term in written.terms):
            name = written.terms[0].name
            raise ValueError(
                f"loss: expected one that tells rows apart, such as '{LOSSES[self.labels_]} + {name}', got {name} alone"
            )

    @property
    def trained_by(self) -> str:
        """The loss that is trained by, once labels are known."""
        return LOSSES[self.labels_] if self.loss is None else self.loss

    def _codec_of(self, y: Any, rows: int) -> tuple[LabelCodec, Ids]:
        self.labels_ = _kind_of(y) if self.labels == "auto" else self.labels
        if self.labels_ == "numbers":
            codec = LikenessCodec(form=number_form(y, None))
            values = codec.take(y, rows)
            if values.min() == values.max():
                raise ValueError(f"y: expected numbers that vary, got {values[0]:g} in every row")
            return codec, values
        names = class_names(y, rows, several=self.labels_ == "several")
        classes, places = np.unique(names, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y: expected at least two classes, got one class, {short(classes[0])}")
        return LikenessCodec(classes=classes, several=self.labels_ == "several"), places.astype(np.float64)

    def _choose_encoders(self, frame: Any, labels: Ids, draw: Draw, cache: EmbeddingCache) -> None:
        self.encoder_choices_ = installed_encoders(frame, self.kinds_, self.encoders)

    def _held_out(self, encoder: TableEncoder, draw: Draw) -> HeldOut:
        if draw.validation is None and self.labels_ == "classes" and draw.by_class:
            from vicinal.evaluation.alike import hold_out_classes, holds_out_classes

            codes = draw.codes.astype(np.int64)
            if holds_out_classes(codes, self.unseen):
                held_out = hold_out_classes(codes, self.validation_fraction, draw.seed)
                return HeldOut(np.setdiff1d(np.arange(draw.rows), held_out), held_out)
        return hold_out(replace(draw, classes=None), self.validation_fraction)

    def _train(self, rows: LabelledRows, codec: LabelCodec, seed: int, encoder: TableEncoder) -> FittedModel:
        """Start at principal components, train, and fill the bank."""
        from vicinal.training.fit import train  # Lightning takes seconds to import; a saved model searches without it

        held_out, targets = rows.held_out, codec.as_predicted(rows.labels)
        job = FitJob(rows, codec, encoder, self.get_params(deep=False), seed)
        job.fit_encoder()
        inputs, codes = prepared(job.settings, encoder, rows.frame), rows.group_codes()
        places = torch.from_numpy(held_out.train), torch.from_numpy(held_out.validation)
        every = Rows(inputs, _scaled(targets, targets[places[0]]), torch.arange(len(targets)), codes)
        parts = [every.take(at) for at in places]
        network = self._network(encoder, parts)
        goal = self._goal(network, parts)
        start = copy.deepcopy(network.state_dict())
        error = goal.judge(network.eval().embed_all(parts[1].inputs, torch.device("cpu")), parts[1].labels)
        history = train(network, parts[0], parts[1], training_settings(job.settings, seed), goal=goal)
        self.learned_ = min(history.validation_error) < error - _ROUNDING
        if not self.learned_:
            network.load_state_dict(start)
        network.projector.double()
        network.head.double()
        self.hidden = (self.dim,)
        return with_banks(network, inputs, job, history)

    def _network(self, encoder: TableEncoder, parts: list[Rows]) -> NeighborNetwork:
        """Encoder and map, at the start that is best on the rows held out."""
        features = [encoded(encoder, part.inputs) for part in parts]
        judge, best = self._judge(parts[1].groups), float("inf")
        state: dict[str, Tensor] = {}
        network = similarity_network(encoder, min(self.dim, encoder.dim))
        projector: PrincipalProjector = network.projector  # type: ignore[assignment]
        for power in POWERS:
            with torch.no_grad():
                error = judge(projector.fit(features[0], power)(features[1].float()), parts[1].labels)
            if error < best or not state:
                best, self.start_, state = error, power, copy.deepcopy(projector.state_dict())
        projector.load_state_dict(state)
        return network

    def _judge(self, groups: Tensor | None) -> Any:
        from vicinal.evaluation.alike import alike_scores

        def error(vectors: Tensor, labels: Tensor) -> float:
            measures = alike_scores(vectors.detach().cpu().float(), labels.cpu(), groups, intervals=False)
            value = next(iter(measures.values())).value
            return 1 - value if value == value else 1.0

        return error

    def _goal(self, network: NeighborNetwork, parts: list[Rows]) -> Any:
        from vicinal.losses import CrossBatchBank, EmbeddingLoss
        from vicinal.losses.spec import read_loss
        from vicinal.training.similarity import SimilarityGoal

        labels, width = parts[0].labels, network.width
        count = labels.shape[1] if labels.ndim == 2 else int(labels.max()) + 1 if self.labels_ == "classes" else None
        terms = read_loss(self.trained_by, self.miner).terms
        criteria = [(term.weight, term.make(num_classes=count, dim=width)) for term in terms]
        if self.memory and parts[0].grouped:
            raise ValueError("memory: expected 0 with groups, which earlier batches are not kept apart by, got more")
        of_pairs = [criterion for _, criterion in criteria if isinstance(criterion, EmbeddingLoss)]
        if self.memory and not of_pairs:
            raise ValueError(
                f"memory: expected 0 for {self.trained_by}, which compares rows with proxies, got {self.memory}; add a "
                "loss of pairs, as '+ supcon', or leave memory out"
            )
        known: dict[str, Any] = {"label_shape": tuple(labels.shape[1:]), "label_dtype": labels.dtype}
        for criterion in of_pairs if self.memory else ():
            criterion.bank = CrossBatchBank(self.memory, width, **known)
        return SimilarityGoal(criteria, self._judge(parts[1].groups), self._batches(network, parts[0]))

    def _batches(self, network: NeighborNetwork, rows: Rows) -> "BatchSampler | None":
        """Which rows meet."""
        from vicinal.samplers import ClassBatches, ClusterBatches, GroupBatches, StratumBatches
        from vicinal.samplers.base import LongEpochs

        usual = {"classes": "classes", "several": "random", "numbers": "strata"}[self.labels_]
        sampler = usual if self.sampler == "auto" else self.sampler
        takes = {"classes": ("classes",), "strata": ("numbers",)}.get(sampler, LABELS)
        if self.labels_ not in takes:
            raise ValueError(
                f"sampler: expected one for labels that are {self.labels_}, got {sampler!r}; say 'auto', which is "
                f"{usual!r}"
            )
        if sampler == "classes":
            count = len(set(rows.labels.tolist()))
            together = min(count, max(2, self.batch_size // self.per_class))
            each = max(self.per_class, self.batch_size // together)
            return LongEpochs(ClassBatches(rows.labels.numpy(), classes=together, per_class=each, drop_last=False))
        if sampler == "strata":
            return LongEpochs(StratumBatches(rows.labels.numpy(), batch_size=self.batch_size))
        if sampler == "clusters":
            vectors = network.eval().embed_all(rows.inputs, torch.device("cpu"))
            return LongEpochs(ClusterBatches(vectors.numpy(), batch_size=self.batch_size))
        if sampler == "groups":
            if not rows.grouped:
                raise ValueError("sampler: expected groups= for batches without two rows of a group, got none")
            return LongEpochs(GroupBatches(rows.clusters.numpy(), batch_size=self.batch_size))
        return None


def _kind_of(y: Any) -> str:
    """What labels are where nobody says."""
    cells = label_cells(y)
    if any(isinstance(cell, _LISTS) for cell in cells):
        return "several"
    if cells.dtype == object and all(isinstance(cell, numbers.Number) for cell in cells):
        cells = cells.astype(np.float64)  # Decimals, say
    if cells.dtype.kind == "f" and not np.equal(np.mod(cells[np.isfinite(cells)], 1), 0).all():
        return "numbers"
    return "classes"


def _scaled(targets: Tensor, train: Tensor) -> Tensor:
    """Numbers with mean 0 and deviation 1 over the training rows; classes of the training rows counted from 0."""
    if targets.is_floating_point() and targets.ndim == 1:
        return ((targets - train.mean()) / train.std().clamp(min=1e-300)).float()
    if targets.ndim == 2:
        return targets
    first = torch.tensor(sorted(set(train.tolist())))
    place = torch.full((int(targets.max()) + 1,), -1)
    place[first] = torch.arange(len(first))
    rest = (place < 0).nonzero()[:, 0]
    place[rest] = torch.arange(len(first), len(place))
    return place[targets]
