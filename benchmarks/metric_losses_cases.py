"""What benchmarks/metric_losses.py times: each registered pair loss and miner, and its like elsewhere."""

import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass

import torch

from vicinal import miners
from vicinal.core import entries
from vicinal.losses import EmbeddingLoss, ProxyLoss
from vicinal.similarity import Cosine

DIM, PER_CLASS = 128, 4
Step = Callable[[], object]

ALWAYS = 1 << 20
THEIRS = {  # loss: (class, settings, largest batch that their memory or time allows)
    "angular": ("AngularLoss", {}, 1024),
    "arcface": ("ArcFaceLoss", {}, ALWAYS),
    "circle": ("CircleLoss", {}, ALWAYS),
    "contrastive": ("ContrastiveLoss", {}, ALWAYS),
    "cosface": ("CosFaceLoss", {}, ALWAYS),
    "dynamic_soft_margin": ("DynamicSoftMarginLoss", {}, 1024),
    "fast_ap": ("FastAPLoss", {}, ALWAYS),
    "generalized_lifted_structure": ("GeneralizedLiftedStructureLoss", {}, ALWAYS),
    "histogram": ("HistogramLoss", {"n_bins": 100}, 256),
    "intra_pair_variance": ("IntraPairVarianceLoss", {}, ALWAYS),
    "large_margin_softmax": ("LargeMarginSoftmaxLoss", {}, ALWAYS),
    "lifted_structure": ("LiftedStructureLoss", {}, 256),
    "margin": ("MarginLoss", {}, 256),
    "multi_similarity": ("MultiSimilarityLoss", {}, ALWAYS),
    "n_pairs": ("NPairsLoss", {}, ALWAYS),
    "nca": ("NCALoss", {}, ALWAYS),
    "normalized_softmax": ("NormalizedSoftmaxLoss", {}, ALWAYS),
    "nt_xent": ("NTXentLoss", {}, 256),
    "pnp": ("PNPLoss", {}, 256),
    "proxy_anchor": ("ProxyAnchorLoss", {}, ALWAYS),
    "proxy_nca": ("ProxyNCALoss", {}, ALWAYS),
    "ranked_list": ("RankedListLoss", {"margin": 0.4, "Tn": 3.0}, ALWAYS),
    "smooth_ap": ("SmoothAPLoss", {}, 256),
    "soft_triple": ("SoftTripleLoss", {"centers_per_class": 2}, ALWAYS),
    "sphereface": ("SphereFaceLoss", {}, ALWAYS),
    "subcenter_arcface": ("SubCenterArcFaceLoss", {"sub_centers": 2}, ALWAYS),
    "supcon": ("SupConLoss", {}, ALWAYS),
    "tcm": ("ThresholdConsistentMarginLoss", {}, 1024),
    "triplet": ("TripletMarginLoss", {"margin": 0.2}, 1024),
    "tuplet_margin": ("TupletMarginLoss", {}, 256),
}
THEIR_MINERS = {
    "angular": ("AngularMiner", {}, 256),
    "distance_weighted": ("DistanceWeightedMiner", {}, ALWAYS),
    "hard": ("BatchHardMiner", {}, ALWAYS),
    "multi_similarity": ("MultiSimilarityMiner", {}, ALWAYS),
    "pair_margin": ("PairMarginMiner", {}, ALWAYS),
    "semihard": ("TripletMarginMiner", {"type_of_triplets": "semihard"}, 1024),
    "triplet_margin": ("TripletMarginMiner", {}, 1024),
    "uniform_histogram": ("UniformHistogramMiner", {}, ALWAYS),
}
BOTH = [("multi_similarity", "multi_similarity"), ("triplet", "semihard"), ("triplet", "hard")]


@dataclass(frozen=True)
class Case:
    """A name, a kind (loss, proxies, miner, both), and what makes a step of ours, of theirs, and of the limit.

    Attributes:
        columns: of the scores, in place of the batch size.
        ours: makes a step of a batch.
        theirs: likewise, or None; ``most`` is the largest batch that it can stand.
    """

    name: str
    kind: str
    ours: Callable[[int], Step]
    theirs: Callable[[int], Step] | None = None
    most: int = ALWAYS
    per_class: int = 1

    def columns(self, batch: int) -> int:
        """Columns of the matrix of scores."""
        return classes(batch) * self.per_class if self.kind == "proxies" else batch


def classes(batch: int) -> int:
    """Classes that proxies are learned of."""
    return max(1000, batch // PER_CLASS)


def data(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows about class centers, four a class."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(batch // PER_CLASS).repeat_interleave(PER_CLASS)
    centers = torch.randn(batch // PER_CLASS, DIM, generator=generator)
    return centers[labels] + torch.randn(batch, DIM, generator=generator), labels


def training(batch: int, loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], labels: torch.Tensor) -> Step:
    """A fresh leaf, forward and backward."""
    rows, _ = data(batch)
    parameters = list(loss.parameters()) if isinstance(loss, torch.nn.Module) else []

    def step() -> object:
        leaf = rows.clone().requires_grad_()
        loss(leaf, labels).backward()
        for each in parameters:
            each.grad = None
        return leaf.grad

    return step


def limit(batch: int, columns: int) -> Step:
    """One matrix product and softmax cross-entropy, forward and backward."""
    targets = torch.arange(batch) % columns
    others = None if batch == columns else torch.nn.functional.normalize(torch.randn(columns, DIM)).requires_grad_()

    def loss(rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        unit = torch.nn.functional.normalize(rows)
        return torch.nn.functional.cross_entropy(10 * unit @ (unit if others is None else others).T, labels)

    return training(batch, loss, targets)


L2 = ("rank_n_contrast", "log_ratio")  # made for negative distances


def numbered(entry) -> bool:
    """Whether its labels are numbers."""
    return "number-relation" in entry.facts


def our_loss(entry, compiled: bool, miner=None) -> Callable[[int], Step]:
    """A step of a criterion of ours."""

    def make(batch: int) -> Step:
        _, labels = data(batch)
        if {"proxies", "proxy-rows"} & entry.facts:
            torch.manual_seed(0)
            per_class = 2 if "proxy-groups" in entry.facts else 1
            criterion = ProxyLoss(entry.name, classes(batch), DIM, per_class=per_class)
        else:
            criterion = EmbeddingLoss(entry.name, similarity="l2" if entry.name in L2 else "cosine", miner=miner)
            labels = labels.sin() if numbered(entry) else labels
        if compiled:
            torch._dynamo.reset()  # criteria share their code, of which it compiles but a few
            criterion = torch.compile(criterion, dynamic=False, fullgraph=True)
        return training(batch, criterion, labels)

    return make


def miner_settings(entry, batch: int) -> dict[str, object]:
    """Settings without a default."""
    needed = inspect.signature(entry.factory).parameters
    settings: dict[str, object] = {"dim": DIM} if "dim" in needed else {}
    return settings | ({"guide": torch.randn(batch, batch).tanh()} if "guide" in needed else {})


def our_miner(entry, compiled: bool) -> Callable[[int], Step]:
    """Scores, relation, and the weight that a miner makes of them."""

    def make(batch: int) -> Step:
        rows, labels = data(batch)
        cosine, settings = Cosine(), miner_settings(entry, batch)

        @torch.no_grad()
        def mined() -> torch.Tensor:
            scores = cosine(rows, rows)
            others = ~torch.eye(batch, dtype=torch.bool)
            return entry.factory(scores, labels[:, None] == labels, others, **settings)

        if compiled:
            torch._dynamo.reset()  # what all miners share would count as compiled anew for each, up to a limit
            return torch.compile(mined, dynamic=False, fullgraph=True)
        return mined

    return make


def their_loss(name: str, settings, miner=None, *, proxies: bool = False) -> Callable[[int], Step]:
    """A step of pytorch-metric-learning."""

    def make(batch: int) -> Step:
        from pytorch_metric_learning import losses

        _, labels = data(batch)
        given = {"num_classes": classes(batch), "embedding_size": DIM} if proxies else {}
        criterion = getattr(losses, name)(**given, **settings)
        if name == "DynamicSoftMarginLoss":  # its histogram keeps the graph of the last step, so each step has its own
            return training(batch, lambda rows, of: getattr(losses, name)()(rows, of), labels)
        if miner is None:
            return training(batch, criterion, labels)
        choose = their_miner(*miner, apart=True)
        return training(batch, lambda rows, of: criterion(rows, of, choose(rows, of)), labels)

    return make


def their_miner(name: str, settings, *, apart: bool = False):
    """A miner of pytorch-metric-learning: alone, or for use in a loss."""
    from pytorch_metric_learning import miners as theirs

    if apart:
        return getattr(theirs, name)(**settings)

    def make(batch: int) -> Step:
        rows, labels = data(batch)
        choose = getattr(theirs, name)(**settings)
        return lambda: choose(rows, labels)

    return make


def cases(*, compiled: bool) -> list[Case]:
    """All of the registry, and losses with miners that belong together."""
    rivals = importlib.util.find_spec("pytorch_metric_learning") is not None
    made = []
    for entry in entries("pair_loss"):
        theirs, settings, most = THEIRS.get(entry.name, ("", {}, 0)) if rivals else ("", {}, 0)
        kind = "proxies" if {"proxies", "proxy-rows"} & entry.facts else "loss"
        made.append(
            Case(
                entry.name,
                kind,
                our_loss(entry, compiled),
                their_loss(theirs, settings, proxies=kind == "proxies") if theirs else None,
                most or ALWAYS,
                2 if "proxy-groups" in entry.facts else 1,
            )
        )
    for entry in entries("miner"):
        theirs, settings, most = THEIR_MINERS.get(entry.name, ("", {}, 0)) if rivals else ("", {}, 0)
        make = their_miner(theirs, settings) if theirs else None
        made.append(Case(entry.name, "miner", our_miner(entry, compiled), make, most or ALWAYS))
    by_name = {entry.name: entry for entry in entries("pair_loss")}
    for loss, miner in BOTH:
        theirs, settings, most = THEIRS[loss]
        mine = our_loss(by_name[loss], compiled, getattr(miners, miner))
        rival = their_loss(theirs, settings, THEIR_MINERS[miner][:2]) if rivals else None
        small = min(most, THEIR_MINERS[miner][2]) if miner == "semihard" else ALWAYS
        made.append(Case(f"{loss} + {miner}", "both", mine, rival, small))
    return made
