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
from vicinal.losses.contract import PairLoss, pair_loss
from vicinal.losses.contrastive import (
    FORMS,
    PairForm,
    binomial_deviance_form,
    contrastive,
    contrastive_form,
    intra_pair_variance,
    margin,
    metrix,
    multi_similarity_form,
    nca_form,
    nlsh,
    proxy_anchor_form,
    ranked_list,
    tcm,
)
from vicinal.losses.crps import CRPS
from vicinal.losses.embedding import EmbeddingLoss
from vicinal.losses.explaining import BatchReport, explain_batch
from vicinal.losses.groups import soft_triple, subcenter_arcface
from vicinal.losses.matching import CompositeSigmoidMatchingLoss, DecomposedMatchingLoss, MatchingLoss
from vicinal.losses.matching_classes import CompositeSoftmaxMatchingLoss, PotentialMatchingLoss, SoftmaxMatchingLoss
from vicinal.losses.mixed import AdaptiveHeadsLoss, MixedLoss, PairTemperature
from vicinal.losses.pairs import Pairs
from vicinal.losses.parts import Part, reduce_parts
from vicinal.losses.pml import LossForPML, LossFromPML, MinerForPML, miner_from_pml
from vicinal.losses.prototypes import icnn, icnn_score, proto_triplet
from vicinal.losses.proxies import ProxyLoss
from vicinal.losses.ranking import adore, fast_ap, histogram, pnp, smooth_ap, soft_topk
from vicinal.losses.regression import label_contrast, log_ratio, rank_n_contrast
from vicinal.losses.regularizers import (
    block_contrast,
    energy_confusion,
    sharpened,
    temperature_penalty,
    vicreg,
    zero_mean,
)
from vicinal.losses.relatives import (
    CompositeSigmoidCrossEntropy,
    CompositeSoftmaxCrossEntropy,
    ProximalMatchingLoss,
    ReweightedSquaredLoss,
)
from vicinal.losses.reweighting import loss_weights
from vicinal.losses.soft_margin import DynamicSoftMargin, dynamic_soft_margin
from vicinal.losses.softmax import (
    amcl,
    decoupled_softmax,
    focal_nt_xent,
    n_pairs,
    nca,
    nt_xent,
    pair_cross_entropy,
    summed_softmax,
    supcon,
)
from vicinal.losses.spec import (
    NEGATIVE_DISTANCES,
    LossText,
    Term,
    check_label_kind,
    label_kind,
    losses_for,
    parse,
    read_loss,
)
from vicinal.losses.structured import (
    circle,
    generalized_lifted_structure,
    lifted_structure,
    multi_similarity,
    tuplet_margin,
)
from vicinal.losses.submodular import facility_location, graph_cut
from vicinal.losses.triplets import angular, ngame, triplet
from vicinal.losses.unified import batch_negatives, unpg
from vicinal.losses.uses import (
    DistillationMatchingLoss,
    DwellTimeMatchingLoss,
    ListwiseRankingLoss,
    PairwiseRankingLoss,
    PointwiseRankingLoss,
    PreferenceMatchingLoss,
)
from vicinal.losses.validity import REFUSED, check_link, check_scaling, scaling_of_transform
from vicinal.losses.volumes import log_det

__all__ = [
    "CRPS",
    "FORMS",
    "NEGATIVE_DISTANCES",
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
    "LossText",
    "MatchingLoss",
    "MinerForPML",
    "MixedLoss",
    "PairForm",
    "PairLoss",
    "PairTemperature",
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
    "Term",
    "adore",
    "amcl",
    "angular",
    "arcface",
    "batch_negatives",
    "binomial_deviance_form",
    "block_contrast",
    "bregman",
    "check_label_kind",
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
    "label_kind",
    "large_margin_softmax",
    "lifted_structure",
    "log_det",
    "log_ratio",
    "loss_weights",
    "losses_for",
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
    "reduce_parts",
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
