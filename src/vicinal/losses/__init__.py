"""Losses that you can aim, and losses of pairs.

Matching losses of a link are called ``loss(prediction, target)`` as torch's are. Pair losses are functions
``f(scores, relation, weight=None, *, reduction="mean", **hyper)``; :class:`EmbeddingLoss` and :class:`ProxyLoss` make
criteria of embeddings and labels out of them.
"""

from vicinal.losses.bank import CrossBatchBank
from vicinal.losses.blocks import block_contrast, sharpened
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
from vicinal.losses.contrastive import contrastive, intra_pair_variance, margin, ranked_list
from vicinal.losses.contrasts import n_pairs, nca, nt_xent, supcon
from vicinal.losses.distribution import CRPS
from vicinal.losses.embedding import EmbeddingLoss
from vicinal.losses.explaining import BatchReport, explain_batch
from vicinal.losses.focal import focal_nt_xent
from vicinal.losses.for_pml import LossForPML, MinerForPML
from vicinal.losses.from_pml import LossFromPML, miner_from_pml
from vicinal.losses.groups import soft_triple, subcenter_arcface
from vicinal.losses.hashing import nlsh
from vicinal.losses.labels import check_label_kind, label_kind, losses_for
from vicinal.losses.many_labels import decoupled_softmax, pair_cross_entropy, soft_topk, summed_softmax
from vicinal.losses.matching import CompositeSigmoidMatchingLoss, DecomposedMatchingLoss, MatchingLoss
from vicinal.losses.matching_classes import CompositeSoftmaxMatchingLoss, PotentialMatchingLoss, SoftmaxMatchingLoss
from vicinal.losses.metrix import (
    FORMS,
    PairForm,
    binomial_deviance_form,
    contrastive_form,
    metrix,
    multi_similarity_form,
    nca_form,
    proxy_anchor_form,
)
from vicinal.losses.mixed import MixedLoss
from vicinal.losses.pairs import Pairs
from vicinal.losses.parse import parse
from vicinal.losses.parts import Part, reduce_parts
from vicinal.losses.prototypes import icnn, icnn_score, proto_triplet
from vicinal.losses.proxies import ProxyLoss
from vicinal.losses.ranking import fast_ap, histogram, pnp, smooth_ap
from vicinal.losses.regression import label_contrast, log_ratio, rank_n_contrast
from vicinal.losses.regularizers import energy_confusion, temperature_penalty, zero_mean
from vicinal.losses.relatives import (
    CompositeSigmoidCrossEntropy,
    CompositeSoftmaxCrossEntropy,
    ProximalMatchingLoss,
    ReweightedSquaredLoss,
)
from vicinal.losses.retrieval import adore, ngame
from vicinal.losses.reweighting import loss_weights
from vicinal.losses.soft_margin import DynamicSoftMargin, dynamic_soft_margin
from vicinal.losses.structured import (
    circle,
    generalized_lifted_structure,
    lifted_structure,
    multi_similarity,
    tuplet_margin,
)
from vicinal.losses.submodular import facility_location, graph_cut
from vicinal.losses.temperatures import AdaptiveHeadsLoss, PairTemperature, amcl
from vicinal.losses.terms import NEGATIVE_DISTANCES, LossText, Term, read_loss
from vicinal.losses.thresholds import tcm
from vicinal.losses.triplets import angular, triplet
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
from vicinal.losses.vicreg import vicreg
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
