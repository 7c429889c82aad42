"""Losses that ``fit`` and ``learn`` cannot train by, and names that losses have in other packages."""

import difflib
import re
from collections.abc import Iterable

from vicinal.core import entries
from vicinal.core.checks import ECHO

TAUGHT = ("kl_top", "ranknet", "sinkhorn_distillation")
"""Teacher losses of the similarities of rows, for ``vicinal distill``."""

_WEIGHTS = ("of weights of a network, not of its embeddings", "examples/tidy_weights.py")
_FAIR = ("of groups", "fit --fair")
ELSEWHERE: dict[str, tuple[str, str]] = {
    **{name: ("of a teacher's scores", "distill") for name in TAUGHT},
    "ar2": ("of a ranker's scores, with the related column first", "Python"),
    "member_diversity": ("of members that are trained one after the other", "examples/several_members.py"),
    "mixed_labels": (
        "of earlier scores; distill --share mixes a teacher's into labels",
        "examples/ways_to_step.py",
    ),
    "cauchy_schwarz": _WEIGHTS,
    "group_orthogonality": _WEIGHTS,
    "rationale_invariance": _WEIGHTS,
    "distance_covariance": _FAIR,
    "equal_rates": _FAIR,
    "joint_distance_covariance": ("of groups of several columns", "Python"),
    "block_contrast": ("of rows joined by a graph", "examples/hidden_links.py"),
    "temperature_penalty": ("of learned temperatures, which amcl penalizes", "Python"),
    "best_of_k": ("of several guesses a row", "Python"),
    "ms_ssim": ("of images", "Python"),
    "potential": ("of a convex potential that is made in Python", "Python"),
    "preference": ("of log ratios of chosen and of rejected answers", "Python"),
    "smooth_adversarial": ("of scores of moved inputs", "Python"),
}
"""Losses that ``fit`` and ``learn`` cannot train by: what they are of, and where they are used."""


def _is_of_scores(name: str) -> bool:
    return any(one.name == name for kind in ("loss", "class_loss") for one in entries(kind))


def refusal(name: str) -> str:
    """Why a listed loss is refused, and what would do.

    >>> refusal("kl_top")
    "loss: expected one of labels and embeddings, got kl_top, which is of a teacher's scores; use distill --loss kl_top"
    """
    about, where = ELSEWHERE[name]
    would = {"distill": f"use distill --loss {name}", "fit --fair": "use fit --fair COLUMN"}.get(where)
    if would is None:
        listed = "--kind predictions" if _is_of_scores(name) else "--kind regularizers"
        place = "call it in a training loop of your own" if where == "Python" else f"see {where}"
        would = f"{place}; 'vicinal losses {listed}' says which train"
    return f"loss: expected one of labels and embeddings, got {name}, which is {about}; {would}"


_BY_DISTANCE = "similarity=l2, normalize=True"
PEERS: dict[str, str | None] = {
    # pytorch-metric-learning, with the settings that give the same value; where the defaults do, names are enough
    "AngularLoss": "angular(alpha=40)",
    "CircleLoss": "circle(reduction=mean_nonzero)",
    "ContrastiveLoss": f"contrastive({_BY_DISTANCE}, pos_margin=0, neg_margin=-1, reduction=mean_nonzero)",
    "FastAPLoss": "fast_ap(bins=10)",
    "GeneralizedLiftedStructureLoss": f"generalized_lifted_structure({_BY_DISTANCE})",
    "HistogramLoss": "histogram(bins=20)",
    "LiftedStructureLoss": f"lifted_structure({_BY_DISTANCE})",
    "MarginLoss": f"margin({_BY_DISTANCE}, boundary=-1.2, reduction=mean_nonzero)",
    "NCALoss": "nca(similarity=squared_l2, normalize=True)",
    "NTXentLoss": "nt_xent(temperature=0.07)",
    "ProxyNCALoss": "proxy_nca(similarity=squared_l2, normalize=True)",
    "SignalToNoiseRatioContrastiveLoss": "contrastive(similarity=snr, normalize=True, pos_margin=0, neg_margin=-1, "
    "reduction=mean_nonzero)",
    "SoftTripleLoss": "soft_triple(per_class=10)",
    "SubCenterArcFaceLoss": "subcenter_arcface(per_class=3)",
    "SupConLoss": "supcon(reduction=mean_nonzero)",
    "ThresholdConsistentMarginLoss": "tcm",
    "TripletMarginLoss": f"triplet({_BY_DISTANCE}, margin=0.05, reduction=mean_nonzero)",
    # sentence-transformers
    "BatchAllTripletLoss": "triplet(similarity=l2, margin=5, reduction=mean_nonzero)",
    "BatchHardSoftMarginTripletLoss": "triplet(similarity=l2, margin=0, triplets=batch-hard, smooth=True)",
    "BatchHardTripletLoss": "triplet(similarity=l2, margin=5, triplets=batch-hard)",
    "BatchSemiHardTripletLoss": "triplet(similarity=l2, margin=5, triplets=semi-hard)",
    "MultipleNegativesRankingLoss": "nt_xent(temperature=0.05)",
    # papers, torch and scikit-learn; None: no loss is needed
    "InfoNCE": "nt_xent",
    **dict.fromkeys(("HuberLoss", "SmoothL1Loss", "L1Loss", "mae", "absolute_error"), "pseudo_huber"),
    **dict.fromkeys(("MSELoss", "squared_error", "CrossEntropyLoss", "log_loss", "NLLLoss")),
}
"""Losses as other packages name them, and ours as text."""


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower()).removesuffix("loss")


def peer_hint(name: str, names: Iterable[str], *, call: bool = False) -> str:
    """A clause that suggests one of ``names``, or the loss that another package calls ``name``; "" if none is close.

    Args:
        name: what was written.
        names: of losses of ours.
        call: suggest a criterion in Python instead of text.

    >>> peer_hint("SupConLoss", ["supcon"]), peer_hint("vicreg", ["supcon"])
    ("; did you mean 'supcon(reduction=mean_nonzero)'?", '')
    >>> peer_hint("CosFaceLoss", ["cosface"], call=True)
    '; did you mean ProxyLoss("cosface", num_classes, dim)?'
    """
    ours: dict[str, str | None] = {_bare(peer): text for peer, text in PEERS.items()}
    if (bare := _bare(name)) not in ours:
        ours = {_bare(one): one for one in names}
        close = difflib.get_close_matches(bare, ours, n=1, cutoff=0.75) if len(name) <= ECHO else []
        if not close:
            return ""
        bare = close[0]
    if (text := ours[bare]) is None:
        return "; leave it out: without a loss numbers are learned by squared error, and classes by log-loss"
    return f"; did you mean {as_call(text) if call else repr(text)}?"


def as_call(text: str) -> str:
    """The criterion of a loss of embeddings, in Python.

    >>> as_call("triplet(similarity=l2, margin=0.05)")
    'EmbeddingLoss("triplet", similarity="l2", margin=0.05)'
    """
    name, _, settings = text.removesuffix(")").partition("(")
    of = [one for one in entries("pair_loss") if one.name == name and {"proxies", "proxy-rows"} & one.facts]
    words = re.sub(r"=([a-z][\w-]*)", r'="\1"', settings)
    start = f'ProxyLoss("{name}", num_classes, dim' if of else f'EmbeddingLoss("{name}"'
    return ", ".join(filter(None, (start, words))) + ")"
