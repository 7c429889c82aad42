"""Losses that you can aim, and losses of pairs.

Matching losses of a link are called ``loss(prediction, target)`` as torch's are. Pair losses are functions
``f(scores, relation, weight=None, *, reduction="mean", **hyper)``; :class:`EmbeddingLoss` and :class:`ProxyLoss` make
criteria of embeddings and labels out of them.
"""

from vicinal.losses.bregman import bregman
from vicinal.losses.contract import PairLoss, Pairs, pair_loss
from vicinal.losses.contrastive import (
    contrastive,
    intra_pair_variance,
    margin,
    nlsh,
    pair_cross_entropy,
    ranked_list,
    tcm,
)
from vicinal.losses.cross_batch import CrossBatchBank
from vicinal.losses.crps import CRPS
from vicinal.losses.embedding import BatchReport, EmbeddingLoss, explain_batch
from vicinal.losses.histograms import DynamicSoftMargin, dynamic_soft_margin, fast_ap, histogram
from vicinal.losses.icnn import icnn, icnn_score
from vicinal.losses.matching import (
    CompositeSigmoidMatchingLoss,
    CompositeSoftmaxMatchingLoss,
    DecomposedMatchingLoss,
    MatchingLoss,
    PotentialMatchingLoss,
    SoftmaxMatchingLoss,
)
from vicinal.losses.matching_baselines import (
    CompositeSigmoidCrossEntropy,
    CompositeSoftmaxCrossEntropy,
    ProximalMatchingLoss,
    ReweightedSquaredLoss,
)
from vicinal.losses.matching_presets import (
    DistillationMatchingLoss,
    DwellTimeMatchingLoss,
    ListwiseRankingLoss,
    PairwiseRankingLoss,
    PointwiseRankingLoss,
    PreferenceMatchingLoss,
)
from vicinal.losses.mixed import AdaptiveHeadsLoss, MixedLoss, PairTemperature
from vicinal.losses.pml import LossForPML, LossFromPML, MinerForPML, miner_from_pml
from vicinal.losses.proxy import (
    arcface,
    cosface,
    large_margin_softmax,
    normalized_softmax,
    proxy_anchor,
    proxy_nca,
    soft_triple,
    sphereface,
    subcenter_arcface,
    unpg,
)
from vicinal.losses.proxy_loss import ProxyLoss, batch_negatives
from vicinal.losses.ranking import adore, pnp, smooth_ap, soft_topk
from vicinal.losses.regression import label_contrast, log_ratio, rank_n_contrast
from vicinal.losses.regularizers import (
    block_contrast,
    energy_confusion,
    loss_weights,
    sharpened,
    temperature_penalty,
    vicreg,
    zero_mean,
)
from vicinal.losses.setwise import facility_location, graph_cut, log_det
from vicinal.losses.softmax import (
    amcl,
    decoupled_softmax,
    focal_nt_xent,
    n_pairs,
    nca,
    nt_xent,
    summed_softmax,
    supcon,
)
from vicinal.losses.spec import (
    parse,
    read_loss,
)
from vicinal.losses.structured import (
    PairForm,
    binomial_deviance_form,
    circle,
    contrastive_form,
    generalized_lifted_structure,
    lifted_structure,
    metrix,
    multi_similarity,
    multi_similarity_form,
    nca_form,
    proxy_anchor_form,
    tuplet_margin,
)
from vicinal.losses.triplets import angular, ngame, proto_triplet, triplet
from vicinal.losses.validity import REFUSED, check_link, check_scaling, scaling_of_transform

__all__ = [
    "CRPS",
    "REFUSED",
    "AdaptiveHeadsLoss",
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
    "LossForPML",
    "LossFromPML",
    "MatchingLoss",
    "MinerForPML",
    "MixedLoss",
    "PairForm",
    "PairLoss",
    "PairTemperature",
    "Pairs",
    "PairwiseRankingLoss",
    "PointwiseRankingLoss",
    "PotentialMatchingLoss",
    "PreferenceMatchingLoss",
    "ProximalMatchingLoss",
    "ProxyLoss",
    "ReweightedSquaredLoss",
    "SoftmaxMatchingLoss",
    "adore",
    "amcl",
    "angular",
    "arcface",
    "batch_negatives",
    "binomial_deviance_form",
    "block_contrast",
    "bregman",
    "check_link",
    "check_scaling",
    "circle",
    "contrastive",
    "contrastive_form",
    "cosface",
    "decoupled_softmax",
    "dynamic_soft_margin",
    "energy_confusion",
    "explain_batch",
    "facility_location",
    "fast_ap",
    "focal_nt_xent",
    "generalized_lifted_structure",
    "graph_cut",
    "histogram",
    "icnn",
    "icnn_score",
    "intra_pair_variance",
    "label_contrast",
    "large_margin_softmax",
    "lifted_structure",
    "log_det",
    "log_ratio",
    "loss_weights",
    "margin",
    "metrix",
    "miner_from_pml",
    "multi_similarity",
    "multi_similarity_form",
    "n_pairs",
    "nca",
    "nca_form",
    "ngame",
    "nlsh",
    "normalized_softmax",
    "nt_xent",
    "pair_cross_entropy",
    "pair_loss",
    "parse",
    "pnp",
    "proto_triplet",
    "proxy_anchor",
    "proxy_anchor_form",
    "proxy_nca",
    "rank_n_contrast",
    "ranked_list",
    "read_loss",
    "scaling_of_transform",
    "sharpened",
    "smooth_ap",
    "soft_topk",
    "soft_triple",
    "sphereface",
    "subcenter_arcface",
    "summed_softmax",
    "supcon",
    "tcm",
    "temperature_penalty",
    "triplet",
    "tuplet_margin",
    "unpg",
    "vicreg",
    "zero_mean",
]
