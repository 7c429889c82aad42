"""Columns of a table to vectors: one encoder for each kind of column, chosen automatically and overridable."""

from vicinal.encoders.base import ColumnEncoder as ColumnEncoder
from vicinal.encoders.base import Features as Features
from vicinal.encoders.base import Kind as Kind
from vicinal.encoders.cache import EmbeddingCache as EmbeddingCache
from vicinal.encoders.category import CategoryEncoder as CategoryEncoder
from vicinal.encoders.cnn import AudioCNN as AudioCNN
from vicinal.encoders.cnn import ImageCNN as ImageCNN
from vicinal.encoders.cnn import ImagePixels as ImagePixels
from vicinal.encoders.efficientnet import EfficientNetEncoder as EfficientNetEncoder
from vicinal.encoders.ge2e import SpeakerEncoder as SpeakerEncoder
from vicinal.encoders.id_tables import FSQ as FSQ
from vicinal.encoders.id_tables import IdTable as IdTable
from vicinal.encoders.images import thumbnail as thumbnail
from vicinal.encoders.inputs import Inputs as Inputs
from vicinal.encoders.kinds import infer_kinds as infer_kinds
from vicinal.encoders.merging import merge as merge
from vicinal.encoders.minilm import MiniLMEncoder as MiniLMEncoder
from vicinal.encoders.ngrams import NgramEncoder as NgramEncoder
from vicinal.encoders.numeric import NumberEncoder as NumberEncoder
from vicinal.encoders.numeric import VectorEncoder as VectorEncoder
from vicinal.encoders.pairs import PairEncoder as PairEncoder
from vicinal.encoders.pretrained import PretrainedEncoder as PretrainedEncoder
from vicinal.encoders.projector import MemberProjectors as MemberProjectors
from vicinal.encoders.projector import PrincipalProjector as PrincipalProjector
from vicinal.encoders.projector import Projector as Projector
from vicinal.encoders.set_columns import SetColumnEncoder as SetColumnEncoder
from vicinal.encoders.soft_selection import FoldedIdTable as FoldedIdTable
from vicinal.encoders.soft_selection import SelectedIdTable as SelectedIdTable
from vicinal.encoders.table import TableEncoder as TableEncoder
from vicinal.encoders.table import build_table_encoder as build_table_encoder
from vicinal.encoders.transformers import AudioTransformer as AudioTransformer
from vicinal.encoders.transformers import ImageTransformer as ImageTransformer
from vicinal.encoders.transformers import TextTransformer as TextTransformer
from vicinal.exports import export_imported as _export_imported

_export_imported(__name__)
