"""Columns of a table to vectors: one encoder for each kind of column, chosen automatically and overridable."""

from vicinal.encoders.base import KIND_NAMES, ColumnEncoder, Features, Kind
from vicinal.encoders.cache import EmbeddingCache
from vicinal.encoders.category import CategoryEncoder
from vicinal.encoders.cnn import AudioCNN, ImageCNN
from vicinal.encoders.efficientnet import EfficientNetEncoder
from vicinal.encoders.ge2e import SpeakerEncoder
from vicinal.encoders.id_tables import FSQ, IdTable
from vicinal.encoders.images import contact_sheet, open_image, thumbnail
from vicinal.encoders.inputs import Inputs
from vicinal.encoders.kinds import ColumnKind, infer_kinds
from vicinal.encoders.media import read_cell
from vicinal.encoders.merging import merge
from vicinal.encoders.minilm import MiniLMEncoder
from vicinal.encoders.names import check_encoder, encoder_names, reaches_out
from vicinal.encoders.ngrams import NgramEncoder
from vicinal.encoders.numeric import NumberEncoder, VectorEncoder
from vicinal.encoders.pairs import PairEncoder
from vicinal.encoders.pretrained import PretrainedEncoder, check_tune
from vicinal.encoders.projector import MemberProjectors, PrincipalProjector, Projector
from vicinal.encoders.set_columns import SetColumnEncoder
from vicinal.encoders.soft_selection import FoldedIdTable, SelectedIdTable
from vicinal.encoders.sounds import open_sound
from vicinal.encoders.table import PartSummary, TableEncoder, TableInputs, build_table_encoder
from vicinal.encoders.transformers import AudioTransformer, ImageTransformer, TextTransformer

__all__ = [
    "FSQ",
    "KIND_NAMES",
    "AudioCNN",
    "AudioTransformer",
    "CategoryEncoder",
    "ColumnEncoder",
    "ColumnKind",
    "EfficientNetEncoder",
    "EmbeddingCache",
    "Features",
    "FoldedIdTable",
    "IdTable",
    "ImageCNN",
    "ImageTransformer",
    "Inputs",
    "Kind",
    "MemberProjectors",
    "MiniLMEncoder",
    "NgramEncoder",
    "NumberEncoder",
    "PairEncoder",
    "PartSummary",
    "PretrainedEncoder",
    "PrincipalProjector",
    "Projector",
    "SelectedIdTable",
    "SetColumnEncoder",
    "SpeakerEncoder",
    "TableEncoder",
    "TableInputs",
    "TextTransformer",
    "VectorEncoder",
    "build_table_encoder",
    "check_encoder",
    "check_tune",
    "contact_sheet",
    "encoder_names",
    "infer_kinds",
    "merge",
    "open_image",
    "open_sound",
    "reaches_out",
    "read_cell",
    "thumbnail",
]
