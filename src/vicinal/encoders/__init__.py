"""Columns of a table to vectors: one encoder for each kind of column, chosen automatically and overridable."""

from vicinal.encoders.base import ColumnEncoder, Features, Kind
from vicinal.encoders.cache import EmbeddingCache
from vicinal.encoders.category import CategoryEncoder
from vicinal.encoders.cnn import AudioCNN, ImageCNN, ImagePixels
from vicinal.encoders.efficientnet import EfficientNetEncoder
from vicinal.encoders.ge2e import SpeakerEncoder
from vicinal.encoders.id_tables import FSQ, IdTable
from vicinal.encoders.images import thumbnail
from vicinal.encoders.inputs import Inputs
from vicinal.encoders.kinds import infer_kinds
from vicinal.encoders.merging import merge
from vicinal.encoders.minilm import MiniLMEncoder
from vicinal.encoders.ngrams import NgramEncoder
from vicinal.encoders.numeric import NumberEncoder, VectorEncoder
from vicinal.encoders.pairs import PairEncoder
from vicinal.encoders.pretrained import PretrainedEncoder
from vicinal.encoders.projector import MemberProjectors, PrincipalProjector, Projector
from vicinal.encoders.set_columns import SetColumnEncoder
from vicinal.encoders.soft_selection import FoldedIdTable, SelectedIdTable
from vicinal.encoders.table import TableEncoder, build_table_encoder
from vicinal.encoders.transformers import AudioTransformer, ImageTransformer, TextTransformer

__all__ = [
    "FSQ",
    "AudioCNN",
    "AudioTransformer",
    "CategoryEncoder",
    "ColumnEncoder",
    "EfficientNetEncoder",
    "EmbeddingCache",
    "Features",
    "FoldedIdTable",
    "IdTable",
    "ImageCNN",
    "ImagePixels",
    "ImageTransformer",
    "Inputs",
    "Kind",
    "MemberProjectors",
    "MiniLMEncoder",
    "NgramEncoder",
    "NumberEncoder",
    "PairEncoder",
    "PretrainedEncoder",
    "PrincipalProjector",
    "Projector",
    "SelectedIdTable",
    "SetColumnEncoder",
    "SpeakerEncoder",
    "TableEncoder",
    "TextTransformer",
    "VectorEncoder",
    "build_table_encoder",
    "infer_kinds",
    "merge",
    "thumbnail",
]
