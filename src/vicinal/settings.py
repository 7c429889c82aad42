"""Settings of estimators, each typed here alone: its name, default, range, and sentence of the command line.

Estimators, training and commands are made of them, and a model folder keeps them. Nothing is imported here but
``dataclasses``, so that help need not wait for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LARGEST = 1e6
"""Largest learning rate and decay: far above useful ones, far below the range of float32."""

MOST_NEIGHBORS = 1024
"""Rows that a kriging readout looks at, at most: their kernel is a matrix of so many rows for each query."""

LARGEST_SIZE = 1 << 20
"""Units of a layer: beyond it no machine holds the network."""

RATES = ("positive", "true_positive", "false_positive", "accuracy")
"""Rates of :func:`vicinal.losses.group_rates` that are measured, and that a fit can equalize."""


@dataclass(frozen=True)
class Limits:
    """The least and the largest value of a number, and whether they are allowed themselves."""

    low: int | float = 1
    high: int | float | None = None
    closed: bool = True


def setting(
    default: Any,
    sentence: str = "",
    limits: Limits | None = None,
    *,
    choices: tuple[str, ...] | None = None,
    metavar: str | None = None,
) -> Any:
    """A field with its default, its sentence in the help of commands, the range of a number, and the names of a choice.

    ``metavar`` is what the help calls its value.
    """
    return field(
        default=default, metadata={"sentence": sentence, "limits": limits, "choices": choices, "metavar": metavar}
    )


@dataclass(kw_only=True, eq=False, repr=False)
class BaseTraining:
    """How anything is trained; see :class:`vicinal.training.TrainingSettings`."""

    max_epochs: int = setting(200, "Most passes over the training rows.", Limits(1))
    batch_size: int = setting(128, "Rows per training step.", Limits(2))
    learning_rate: float = setting(1e-3, "Learning rate of new weights.", Limits(0, LARGEST, closed=False))
    encoder_learning_rate: float = setting(
        2e-5, "Learning rate of tuned pretrained encoders.", Limits(0, LARGEST, closed=False)
    )
    weight_decay: float = setting(0.0, "Decoupled weight decay.", Limits(0, LARGEST))
    patience: int = setting(10, "Epochs without a better validation error before training stops.", Limits(1))
    precision: str = setting(
        "32-true",
        "Precision: 32-true, 64-true, bf16-mixed or 16-mixed.",
        choices=("32-true", "64-true", "bf16-mixed", "16-mixed"),
    )
    accelerator: str = setting("auto", "Accelerator: cpu, gpu, mps or auto, as in Lightning.")
    logger: str | None = setting(None, "Training log: csv, tensorboard, wandb or mlflow.")


@dataclass(kw_only=True, eq=False, repr=False)
class EstimatorSettings(BaseTraining):
    """What all estimators of tables have; see :class:`vicinal.estimators.NeighborRegressor`."""

    columns: Mapping[str, Any] | None = None
    form: Any = None
    encoders: Mapping[str, str] | None = None
    tune: str = setting(
        "none",
        "Trained part of pretrained encoders: none, last-N, lora, all, or auto (as much as --minutes allow, if it "
        "predicts the held-out rows better).",
    )
    validation_fraction: float = 0.15
    root: str | Path | None = None
    cache_dir: str | Path | None = None
    checkpoint_dir: str | Path | None = None
    verbose: int | None = None
    random_state: Any = 0


@dataclass(kw_only=True, eq=False, repr=False)
class NeighborSettings(EstimatorSettings):
    """Settings of estimators that predict; see :class:`vicinal.estimators.NeighborRegressor`."""

    preset: str | None = setting(
        None,
        "Settings by one name: nona (the NONA paper's model and training; its encoders are trained, too, unless "
        "--tune none). Options that are named go before it.",
    )
    head: str = setting("nona", "Head: nona (neighbors) or dense.", choices=("nona", "dense"))
    metric: str = setting(
        "auto",
        "How the similarity is learned: trees (boosted), kernel (with learned lengths of columns; for classes "
        "also of frozen encoders), network (trained), or auto (what predicts best, which may be the mean of trees and "
        "kernel; a network only if clearly better).",
        choices=("auto", "network", "kernel", "trees"),
    )
    similarity: str = setting("l2", "Similarity: l2, l1, cosine, dot, scaled_dot, snr, squared_l2.")
    mask: str | None = setting(
        "s2",
        "Rejection of far neighbors: s2, s1, s2-ranks, s1-ranks, s2-reject, topk or none.",
        choices=("s1", "s2", "s1-ranks", "s2-ranks", "s2-reject", "topk"),
    )
    mask_parameters: str = setting(
        "pointwise", "Parameters of s1 and s2: pointwise or global.", choices=("pointwise", "global")
    )
    mask_extent: str = setting("admissible", choices=("admissible", "all"))
    simplex: str = setting(
        "auto", "Weights: softmax, sparsemax, entmax15; auto: entmax15 for numbers, softmax for classes."
    )
    readout: str = setting(
        "auto",
        "How neighbors are combined: rows (a weighted mean of few), comparables (few, each adjusted by a trend "
        "by columns), dense (many, weights also below 0), attention (all, of a network), or auto (the fewest rows that "
        "do nearly as well).",
        choices=("auto", "attention", "rows", "comparables", "dense"),
    )
    max_neighbors: int | None = setting(
        None,
        "Most neighbors of a prediction; default: 10 to 120, chosen; 30 of a network; for dense weights all of "
        "up to 2,048, 256 of more rows, 128 of over 5,000.",
        Limits(1, MOST_NEIGHBORS),
    )
    target_transform: str = setting(
        "auto",
        "Scale that numbers are learned on: none, log (for positive numbers such as prices; predictions are "
        "weighted geometric means), rank (normal scores), or auto (log if a kernel predicts better with it).",
        choices=("none", "log", "rank", "auto"),
    )
    loss: Any = setting(
        None,
        "Losses and regularizers of the embeddings to add: supcon(temperature=.1) + 0.05*energy_confusion (see "
        "vicinal losses); or the loss of predictions: matching:sigmoid(scale=2,shift=0.7) in label units, "
        "comp_sum(tau=1.7) for classes; or both, with + between them. Default: squared error, log-loss.",
    )
    fair: str | None = setting(
        None,
        "Column of an attribute such as sex or age, whose groups should be treated alike. It is not a feature "
        "unless --use or a kind names it. The metric is then the network.",
        metavar="COL",
    )
    fair_weight: float | None = setting(
        None,
        "Weight of --fair in the loss; 0: only measure. Default: 0.1 for classes, 1 for numbers.",
        Limits(0),
    )
    fair_rate: str = setting(
        "positive",
        "For classes, the rate that --fair makes equal: positive, true_positive, false_positive or accuracy.",
        choices=RATES,
    )
    n_neighbors: int = setting(5, limits=Limits(1))
    index: str | None = setting(
        None,
        "Index to find neighbors: exact, faiss:IVF1024,Flat, milvus:./bank.db, milvus:http://host:19530; default: "
        "none, the whole bank is searched. For the readouts rows and dense. It is saved with the model; a database "
        "stays where it is.",
        metavar="NAME",
    )
    minutes: float | None = setting(
        None,
        "Most minutes of training, about: what there is no time for is left out; default: no limit, but 10 for "
        "--tune auto.",
        Limits(0, closed=False),
    )
    plan: Any = setting(None, "plan.json of an earlier model, to tune the same way.")
    hidden: tuple[int, ...] = setting((200, 25), "Sizes of the projector's layers; the last is the embedding's.")
    members: int = setting(8, "Number of projectors with heads, whose predictions are averaged.", Limits(1, 1024))
    final_tanh: bool = setting(default=False, sentence="End the projector with a tanh, as in the NONA paper.")
    dropout: float = setting(0.2, "Dropout before each projector layer.")
    devices: int | str = setting(1, "Number of processes that train together, each on its own device.")


@dataclass(kw_only=True, eq=False, repr=False)
class ServerSettings:
    """Where a server listens, and the limits of requests; see :class:`vicinal.serve.ServeSettings`."""

    port: int = setting(8000, "Port to listen at; 0: a free one.", Limits(0, 65535))
    host: str = setting("127.0.0.1", "Address to listen at; 0.0.0.0: all addresses of this machine.")
    allow_hosts: list[str] | None = setting(
        None, "Name by which clients reach it, as that of a proxy; may be given again.", metavar="NAME"
    )
    workers: int = setting(1, "Number of processes.", Limits(1, 256), metavar="N")
    rate: int = setting(200, "Requests per second of a client to each process; 0: unlimited.", Limits(0, 1 << 30))
    most_rows: int = setting(1000, "Most rows of a request.", Limits(1, 1 << 30), metavar="N")
    most_bytes: int = setting(32 << 20, "Most bytes of a request.", Limits(1, 1 << 40), metavar="N")


@dataclass(kw_only=True, eq=False, repr=False)
class LikenessSettings(EstimatorSettings):
    """Settings of :class:`vicinal.estimators.EmbeddingLearner`."""

    loss: str | None = setting(
        None,
        "Losses of pairs or proxies, with regularizers: multi_similarity(miner=hard), proxy_anchor + "
        "0.05*energy_confusion (see vicinal losses).",
    )
    miner: str | None = setting(
        None, "Which pairs the losses learn from: semihard, hard, ... (see vicinal losses --kind miners)."
    )
    labels: str = "auto"
    sampler: str = setting("auto", "Sampler of batches: auto, classes, random, strata, groups, clusters.")
    per_class: int = setting(4, "Rows of a class in a batch.", Limits(2))
    memory: int = setting(0, "Rows of earlier batches to compare each batch with.", Limits(0))
    dim: int = setting(128, "Largest width of the learned vectors.", Limits(2, 1 << 16))
    unseen: bool | None = None
    max_epochs: int = setting(100, "Most passes over the training rows.", Limits(1))


@dataclass(kw_only=True, eq=False, repr=False)
class ClickSettings:
    """How a recommender learns from clicks; see :class:`vicinal.estimators.Recommender`."""

    rank: int = setting(64, "Numbers in the vector of an item.", Limits())
    confidence: float | None = setting(
        None, "Weight of a click beside 1 of no click; default: by held-out clicks.", Limits(0, closed=False)
    )
    ridge: float | None = setting(
        None, "Penalty of large vectors; default: by held-out clicks.", Limits(0, closed=False)
    )
    sweeps: int = setting(10, limits=Limits())
    n_neighbors: int = setting(50, "Known items that a new one is a mean of, at most.", Limits())


@dataclass(kw_only=True, eq=False, repr=False)
class MatchSettings:
    """How rows are matched; see :class:`vicinal.estimators.RowMatcher`."""

    n_candidates: int = setting(10, "Rows that each row is compared with; see the report.", Limits(1, 10_000))
    links: str = setting(
        "one-to-one", "one-to-one, one-to-many (several right rows of a left one), 1:3 (three at most) or many-to-many."
    )
    precision: float | None = setting(
        None,
        "Share of links that must be right, at 95 % confidence by labelled pairs, each held out once; default: the "
        "threshold of best F1.",
        Limits(0, 1, closed=False),
    )
    encoders: Mapping[str, str] | None = None
    tune: str = setting(
        "none",
        "What of the pretrained encoder of texts is trained to read both rows of a pair at once: none, last-N, lora, "
        "all, or auto (what --minutes have time for); it is used if pairs held out are told better.",
    )
    minutes: float = setting(10.0, "Most minutes for --tune auto.", Limits(0, closed=False))
    plan: Any = None
    validation_fraction: float = setting(
        0.25, "Share of the labelled pairs that choose the threshold.", Limits(0, 1, closed=False)
    )
    index: str = setting(
        "exact",
        "What searches the vectors, for this run: exact, faiss:IVF1024,Flat, milvus:./rows.db or "
        "milvus:http://host:19530.",
        metavar="NAME",
    )
    root: str | Path | tuple[str | Path | None, str | Path | None] | None = None
    cache_dir: str | Path | None = None
    random_state: int = setting(0, limits=Limits(0))
