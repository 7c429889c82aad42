"""Similarities: ``sim(queries [b, d], bank [N, d]) -> scores [b, N]``, where higher means more alike."""

from vicinal.exports import export_imported as _export_imported
from vicinal.similarity.base import Similarity as Similarity
from vicinal.similarity.distances import NegativeL1 as NegativeL1
from vicinal.similarity.distances import NegativeL2 as NegativeL2
from vicinal.similarity.distances import NegativeSquaredL2 as NegativeSquaredL2
from vicinal.similarity.gaussians import bures_exp as bures_exp
from vicinal.similarity.gaussians import bures_geodesic as bures_geodesic
from vicinal.similarity.gaussians import bures_log as bures_log
from vicinal.similarity.gaussians import bures_wasserstein as bures_wasserstein
from vicinal.similarity.images import ImageSimilarity as ImageSimilarity
from vicinal.similarity.images import ms_ssim as ms_ssim
from vicinal.similarity.images import ssim as ssim
from vicinal.similarity.mapped import Mapped as Mapped
from vicinal.similarity.means import class_means as class_means
from vicinal.similarity.noise import NegativeSNR as NegativeSNR
from vicinal.similarity.products import Cosine as Cosine
from vicinal.similarity.products import Dot as Dot
from vicinal.similarity.products import scaled_dot as scaled_dot
from vicinal.similarity.sets import FixedDimensionalEncoding as FixedDimensionalEncoding
from vicinal.similarity.sets import SetScores as SetScores

_export_imported(__name__)
