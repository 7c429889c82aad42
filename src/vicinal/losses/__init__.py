"""Losses that you can aim, and losses of pairs.

Matching losses of a link are called ``loss(prediction, target)`` as torch's are. Pair losses are functions
``f(scores, relation, weight=None, *, reduction="mean", **hyper)``; :class:`EmbeddingLoss` and :class:`ProxyLoss` make
criteria of embeddings and labels out of them.
"""

from vicinal.losses.bank import CrossBatchBank
from vicinal.losses.bregman import bregman
from vicinal.losses.classes import (
    arcface,
    cosface,
    large_margin_softmax,
    normalized_softmax,
    proxy_anchor,
    proxy_nca,
    sphereface,
)
from vicinal.losses.contrastive import contrastive, intra_pair_variance, margin, ranked_list
from vicinal.losses.contrasts import n_pairs, nca, nt_xent, supcon
from vicinal.losses.embedding import EmbeddingLoss
from vicinal.losses.explaining import BatchReport, explain_batch
from vicinal.losses.groups import soft_triple, subcenter_arcface
from vicinal.losses.matching import (
    CompositeSigmoidMatchingLoss,
    CompositeSoftmaxMatchingLoss,
    DecomposedMatchingLoss,
    MatchingLoss,
    PotentialMatchingLoss,
    SoftmaxMatchingLoss,
)
from vicinal.losses.pairs import PairLoss, Pairs, Part, pair_loss, reduce_parts
from vicinal.losses.parse import parse
from vicinal.losses.proxies import ProxyLoss
from vicinal.losses.ranking import fast_ap, histogram, pnp, smooth_ap
from vicinal.losses.regression import label_contrast, log_ratio, rank_n_contrast
from vicinal.losses.relatives import (
    CompositeSigmoidCrossEntropy,
    CompositeSoftmaxCrossEntropy,
    ProximalMatchingLoss,
    ReweightedSquaredLoss,
)
from vicinal.losses.soft_margin import DynamicSoftMargin, dynamic_soft_margin
from vicinal.losses.structured import (
    circle,
    generalized_lifted_structure,
    lifted_structure,
    multi_similarity,
    tuplet_margin,
)
from vicinal.losses.triplets import angular, triplet
from vicinal.losses.uses import (
    DistillationMatchingLoss,
    DwellTimeMatchingLoss,
    ListwiseRankingLoss,
    PairwiseRankingLoss,
    PointwiseRankingLoss,
    PreferenceMatchingLoss,
)
from vicinal.losses.validity import REFUSED, check_link, check_scaling, scaling_of_transform
from vicinal.losses.vicreg import vicreg

__all__ = [
    "REFUSED",
    "BatchReport",
    "CompositeSigmoidCrossEntropy",
    "CompositeSigmoidMatchingLoss",
    "CompositeSoftmaxCrossEntropy",
    "CompositeSoftmaxMatchingLoss",
    "CrossBatchBank",
    "DecomposedMatchingLoss",
    "DistillationMatchingLoss",
    "DwellTimeMatchingLoss",
    "DynamicSoftMargin",
    "EmbeddingLoss",
    "ListwiseRankingLoss",
    "MatchingLoss",
    "PairLoss",
    "Pairs",
    "PairwiseRankingLoss",
    "Part",
    "PointwiseRankingLoss",
    "PotentialMatchingLoss",
    "PreferenceMatchingLoss",
    "ProximalMatchingLoss",
    "ProxyLoss",
    "ReweightedSquaredLoss",
    "SoftmaxMatchingLoss",
    "angular",
    "arcface",
    "bregman",
    "check_link",
    "check_scaling",
    "circle",
    "contrastive",
    "cosface",
    "dynamic_soft_margin",
    "explain_batch",
    "fast_ap",
    "generalized_lifted_structure",
    "histogram",
    "intra_pair_variance",
    "label_contrast",
    "large_margin_softmax",
    "lifted_structure",
    "log_ratio",
    "margin",
    "multi_similarity",
    "n_pairs",
    "nca",
    "normalized_softmax",
    "nt_xent",
    "pair_loss",
    "parse",
    "pnp",
    "proxy_anchor",
    "proxy_nca",
    "rank_n_contrast",
    "ranked_list",
    "reduce_parts",
    "scaling_of_transform",
    "smooth_ap",
    "soft_triple",
    "sphereface",
    "subcenter_arcface",
    "supcon",
    "triplet",
    "tuplet_margin",
    "vicreg",
]
