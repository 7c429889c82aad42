"""Encoders of sets, ``encode(elements [b, n, d], valid [b, n]) -> [b, e]``: neither order nor padding matters."""

from vicinal.encoders.sets.attention_pooling import AttSets, FeatureAttention, two_phase_backward
from vicinal.encoders.sets.contract import AdditiveSetEncoder, SetEncoder, draw_elements, order_gap
from vicinal.encoders.sets.deep_sets import DeepSets, EquivariantLayer
from vicinal.encoders.sets.moments import Moments, SlicedQuantiles
from vicinal.encoders.sets.monoid import CommutativeFold, CommutativeMonoid
from vicinal.encoders.sets.passages import PassageAttention, PassageScorer
from vicinal.encoders.sets.power_sums import ExponentialSums, PowerSums
from vicinal.encoders.sets.set_convolution import SetConvolution, SetConvolution2d
from vicinal.encoders.sets.set_transformer import (
    AttentionBlock,
    AttentionPooling,
    InducedAttentionBlock,
    SelfAttentionBlock,
    SetTransformer,
)
from vicinal.encoders.sets.slots import UMBC, SlotSums
from vicinal.encoders.sets.subsets import SubsetScore, mean_field
from vicinal.encoders.sets.view_transformer import PreNormBlock, ViewTransformer

__all__ = [
    "UMBC",
    "AdditiveSetEncoder",
    "AttSets",
    "AttentionBlock",
    "AttentionPooling",
    "CommutativeFold",
    "CommutativeMonoid",
    "DeepSets",
    "EquivariantLayer",
    "ExponentialSums",
    "FeatureAttention",
    "InducedAttentionBlock",
    "Moments",
    "PassageAttention",
    "PassageScorer",
    "PowerSums",
    "PreNormBlock",
    "SelfAttentionBlock",
    "SetConvolution",
    "SetConvolution2d",
    "SetEncoder",
    "SetTransformer",
    "SlicedQuantiles",
    "SlotSums",
    "SubsetScore",
    "ViewTransformer",
    "draw_elements",
    "mean_field",
    "order_gap",
    "two_phase_backward",
]
