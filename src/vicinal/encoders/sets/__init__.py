"""Encoders of sets, ``encode(elements [b, n, d], valid [b, n]) -> [b, e]``: neither order nor padding matters."""

from vicinal.encoders.sets.attention_pooling import AttSets as AttSets
from vicinal.encoders.sets.attention_pooling import FeatureAttention as FeatureAttention
from vicinal.encoders.sets.attention_pooling import two_phase_backward as two_phase_backward
from vicinal.encoders.sets.contract import AdditiveSetEncoder as AdditiveSetEncoder
from vicinal.encoders.sets.contract import SetEncoder as SetEncoder
from vicinal.encoders.sets.contract import draw_elements as draw_elements
from vicinal.encoders.sets.contract import order_gap as order_gap
from vicinal.encoders.sets.deep_sets import DeepSets as DeepSets
from vicinal.encoders.sets.deep_sets import EquivariantLayer as EquivariantLayer
from vicinal.encoders.sets.moments import Counts as Counts
from vicinal.encoders.sets.moments import Moments as Moments
from vicinal.encoders.sets.moments import SlicedQuantiles as SlicedQuantiles
from vicinal.encoders.sets.monoid import CommutativeFold as CommutativeFold
from vicinal.encoders.sets.monoid import CommutativeMonoid as CommutativeMonoid
from vicinal.encoders.sets.passages import PassageAttention as PassageAttention
from vicinal.encoders.sets.passages import PassageScorer as PassageScorer
from vicinal.encoders.sets.power_sums import ExponentialSums as ExponentialSums
from vicinal.encoders.sets.power_sums import PowerSums as PowerSums
from vicinal.encoders.sets.set_convolution import SetConvolution as SetConvolution
from vicinal.encoders.sets.set_convolution import SetConvolution2d as SetConvolution2d
from vicinal.encoders.sets.set_transformer import AttentionBlock as AttentionBlock
from vicinal.encoders.sets.set_transformer import AttentionPooling as AttentionPooling
from vicinal.encoders.sets.set_transformer import InducedAttentionBlock as InducedAttentionBlock
from vicinal.encoders.sets.set_transformer import SelfAttentionBlock as SelfAttentionBlock
from vicinal.encoders.sets.set_transformer import SetTransformer as SetTransformer
from vicinal.encoders.sets.slots import UMBC as UMBC
from vicinal.encoders.sets.slots import SlotSums as SlotSums
from vicinal.encoders.sets.subsets import SubsetScore as SubsetScore
from vicinal.encoders.sets.subsets import mean_field as mean_field
from vicinal.encoders.sets.view_transformer import PreNormBlock as PreNormBlock
from vicinal.encoders.sets.view_transformer import ViewTransformer as ViewTransformer
from vicinal.exports import export_imported as _export_imported

_export_imported(__name__)
