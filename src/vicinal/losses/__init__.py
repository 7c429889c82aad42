"""Losses that you can aim, and losses of pairs.

Matching losses of a link are called ``loss(prediction, target)`` as torch's are. Pair losses are functions
``f(scores, relation, weight=None, *, reduction="mean", **hyper)``; :class:`EmbeddingLoss` and :class:`ProxyLoss` make
criteria of embeddings and labels out of them.
"""

from vicinal.losses.bregman import bregman
from vicinal.losses.class_contract import ClassLoss, class_loss
from vicinal.losses.class_scores import (
    ALDRKL,
    aldr_kl,
    comp_sum,
    js_loss,
    ldr_k,
    ldr_kl,
    normalized_ce,
    smooth_adversarial,
    symmetric_ce,
    truncated_gce,
    weston_watkins,
    worst_inputs,
    z_loss,
)
from vicinal.losses.clicks import clip_rows, exposed_relevance, warp
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
from vicinal.losses.embedding import EmbeddingLoss, explain_batch
from vicinal.losses.embedding_shape import (
    coding_rate,
    mcr2,
    neural_collapse,
    t_regs,
    tree_length,
)
from vicinal.losses.errors import PseudoHuberLoss, best_of_k, guess_errors, ms_ssim_loss
from vicinal.losses.fairness import distance_covariance, equal_rates, group_rates, joint_distance_covariance
from vicinal.losses.histograms import DynamicSoftMargin, dynamic_soft_margin, fast_ap, histogram
from vicinal.losses.icnn import icnn
from vicinal.losses.lists import ListLoss, PlackettLuceLoss, SoftRankLoss
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
from vicinal.losses.perceptron import Separator, separate, step_weights
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
from vicinal.losses.regularizer_loss import RegularizerLoss
from vicinal.losses.regularizers import (
    block_contrast,
    covariance_penalty,
    energy_confusion,
    flops,
    grown,
    loss_weights,
    temperature_penalty,
    vicreg,
    zero_mean,
)
from vicinal.losses.setwise import facility_location, graph_cut, log_det
from vicinal.losses.several_labels import (
    ensloss,
    label_correlation,
    label_phi,
    margin_surrogate,
)
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
from vicinal.losses.spec import parse
from vicinal.losses.spherical import SphericalClasses
from vicinal.losses.structured import (
    PairForm,
    circle,
    generalized_lifted_structure,
    lifted_structure,
    metrix,
    multi_similarity,
    tuplet_margin,
)
from vicinal.losses.subspaces import SubspaceLearners, matched_clusters, subspace_slices
from vicinal.losses.teachers import (
    PredictionMemory,
    SelfDistillation,
    TrajectoryLoss,
    ar2,
    kl_top,
    member_diversity,
    mixed_labels,
    ranknet,
    sinkhorn_distillation,
    teacher_ensemble,
)
from vicinal.losses.tempered import bi_tempered, tempered
from vicinal.losses.triplets import angular, lmnn, ngame, proto_triplet, triplet
from vicinal.losses.validity import check_scaling, first_fall, scaling_of_transform
from vicinal.losses.weights import RationaleInvariance, cauchy_schwarz, group_orthogonality

__all__ = [
    "ALDRKL",
    "CRPS",
    "AdaptiveHeadsLoss",
    "ClassLoss",
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
    "ListLoss",
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
    "PlackettLuceLoss",
    "PointwiseRankingLoss",
    "PotentialMatchingLoss",
    "PredictionMemory",
    "PreferenceMatchingLoss",
    "ProximalMatchingLoss",
    "ProxyLoss",
    "PseudoHuberLoss",
    "RationaleInvariance",
    "RegularizerLoss",
    "ReweightedSquaredLoss",
    "SelfDistillation",
    "Separator",
    "SoftRankLoss",
    "SoftmaxMatchingLoss",
    "SphericalClasses",
    "SubspaceLearners",
    "TrajectoryLoss",
    "adore",
    "aldr_kl",
    "amcl",
    "angular",
    "ar2",
    "arcface",
    "batch_negatives",
    "best_of_k",
    "bi_tempered",
    "block_contrast",
    "bregman",
    "cauchy_schwarz",
    "check_scaling",
    "circle",
    "class_loss",
    "clip_rows",
    "coding_rate",
    "comp_sum",
    "contrastive",
    "cosface",
    "covariance_penalty",
    "decoupled_softmax",
    "distance_covariance",
    "dynamic_soft_margin",
    "energy_confusion",
    "ensloss",
    "equal_rates",
    "explain_batch",
    "exposed_relevance",
    "facility_location",
    "fast_ap",
    "first_fall",
    "flops",
    "focal_nt_xent",
    "generalized_lifted_structure",
    "graph_cut",
    "group_orthogonality",
    "group_rates",
    "grown",
    "guess_errors",
    "histogram",
    "icnn",
    "intra_pair_variance",
    "joint_distance_covariance",
    "js_loss",
    "kl_top",
    "label_contrast",
    "label_correlation",
    "label_phi",
    "large_margin_softmax",
    "ldr_k",
    "ldr_kl",
    "lifted_structure",
    "lmnn",
    "log_det",
    "log_ratio",
    "loss_weights",
    "margin",
    "margin_surrogate",
    "matched_clusters",
    "mcr2",
    "member_diversity",
    "metrix",
    "miner_from_pml",
    "mixed_labels",
    "ms_ssim_loss",
    "multi_similarity",
    "n_pairs",
    "nca",
    "neural_collapse",
    "ngame",
    "nlsh",
    "normalized_ce",
    "normalized_softmax",
    "nt_xent",
    "pair_cross_entropy",
    "pair_loss",
    "parse",
    "pnp",
    "proto_triplet",
    "proxy_anchor",
    "proxy_nca",
    "rank_n_contrast",
    "ranked_list",
    "ranknet",
    "scaling_of_transform",
    "separate",
    "sinkhorn_distillation",
    "smooth_adversarial",
    "smooth_ap",
    "soft_topk",
    "soft_triple",
    "sphereface",
    "step_weights",
    "subcenter_arcface",
    "subspace_slices",
    "summed_softmax",
    "supcon",
    "symmetric_ce",
    "t_regs",
    "tcm",
    "teacher_ensemble",
    "temperature_penalty",
    "tempered",
    "tree_length",
    "triplet",
    "truncated_gce",
    "tuplet_margin",
    "unpg",
    "vicreg",
    "warp",
    "weston_watkins",
    "worst_inputs",
    "z_loss",
    "zero_mean",
]
