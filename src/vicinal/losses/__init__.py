"""Losses that you can aim: convex matching losses of a link, called ``loss(prediction, target)`` as torch's are."""

from vicinal.losses.bregman import bregman
from vicinal.losses.matching import (
    CompositeSigmoidMatchingLoss,
    CompositeSoftmaxMatchingLoss,
    DecomposedMatchingLoss,
    MatchingLoss,
    PotentialMatchingLoss,
    SoftmaxMatchingLoss,
)
from vicinal.losses.parse import parse
from vicinal.losses.relatives import (
    CompositeSigmoidCrossEntropy,
    CompositeSoftmaxCrossEntropy,
    ProximalMatchingLoss,
    ReweightedSquaredLoss,
)
from vicinal.losses.uses import (
    DistillationMatchingLoss,
    DwellTimeMatchingLoss,
    ListwiseRankingLoss,
    PairwiseRankingLoss,
    PointwiseRankingLoss,
    PreferenceMatchingLoss,
)
from vicinal.losses.validity import REFUSED, check_link, check_scaling, scaling_of_transform

__all__ = [
    "REFUSED",
    "CompositeSigmoidCrossEntropy",
    "CompositeSigmoidMatchingLoss",
    "CompositeSoftmaxCrossEntropy",
    "CompositeSoftmaxMatchingLoss",
    "DecomposedMatchingLoss",
    "DistillationMatchingLoss",
    "DwellTimeMatchingLoss",
    "ListwiseRankingLoss",
    "MatchingLoss",
    "PairwiseRankingLoss",
    "PointwiseRankingLoss",
    "PotentialMatchingLoss",
    "PreferenceMatchingLoss",
    "ProximalMatchingLoss",
    "ReweightedSquaredLoss",
    "SoftmaxMatchingLoss",
    "bregman",
    "check_link",
    "check_scaling",
    "parse",
    "scaling_of_transform",
]
