"""Learn from neighbors and scores.

``vicinal.<TAB>`` gives the packages and the main names; each is imported when it is first asked for, so that
``import vicinal`` itself costs nothing (PEP 562).

The layers, low to high: ``core``; ``blockwise``; ``similarity`` | ``relation`` | ``links`` | ``ranks``; ``masks``;
``index`` | ``miners`` | ``metrics`` | ``mixing`` | ``calibration``; ``heads`` | ``encoders`` | ``losses`` |
``samplers``; ``data`` | ``evaluation`` | ``report``; ``training``; ``estimators``; ``plot``; ``workflows``; ``cli``.

>>> import vicinal
>>> vicinal.NONA is vicinal.heads.NONA
True
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from vicinal.exports import export_imported as _export_imported
from vicinal.version import __version__ as __version__

if _TYPE_CHECKING:
    from vicinal import blockwise as blockwise
    from vicinal import calibration as calibration
    from vicinal import clustering as clustering
    from vicinal import core as core
    from vicinal import data as data
    from vicinal import encoders as encoders
    from vicinal import estimators as estimators
    from vicinal import evaluation as evaluation
    from vicinal import factorization as factorization
    from vicinal import heads as heads
    from vicinal import index as index
    from vicinal import links as links
    from vicinal import losses as losses
    from vicinal import masks as masks
    from vicinal import metrics as metrics
    from vicinal import miners as miners
    from vicinal import mixing as mixing
    from vicinal import plot as plot
    from vicinal import ranks as ranks
    from vicinal import relation as relation
    from vicinal import report as report
    from vicinal import samplers as samplers
    from vicinal import similarity as similarity
    from vicinal import training as training
    from vicinal import transport as transport
    from vicinal import workflows as workflows
    from vicinal.estimators import EmbeddingLearner as EmbeddingLearner
    from vicinal.estimators import NeighborClassifier as NeighborClassifier
    from vicinal.estimators import NeighborRegressor as NeighborRegressor
    from vicinal.estimators import Recommender as Recommender
    from vicinal.estimators import RowMatcher as RowMatcher
    from vicinal.estimators import load_model as load_model
    from vicinal.heads import NONA as NONA
    from vicinal.losses import EmbeddingLoss as EmbeddingLoss
    from vicinal.losses import MatchingLoss as MatchingLoss
    from vicinal.losses import ProxyLoss as ProxyLoss
    from vicinal.masks import SoftStep as SoftStep

_PACKAGES = (
    "blockwise calibration clustering core data encoders estimators evaluation factorization heads index links losses "
    "masks metrics miners mixing plot ranks relation report samplers similarity training transport workflows"
)

_HOMES = {
    "EmbeddingLearner": "estimators",
    "EmbeddingLoss": "losses",
    "MatchingLoss": "losses",
    "NONA": "heads",
    "NeighborClassifier": "estimators",
    "NeighborRegressor": "estimators",
    "ProxyLoss": "losses",
    "Recommender": "estimators",
    "RowMatcher": "estimators",
    "SoftStep": "masks",
    "load_model": "estimators",
}
"""The package of each main name."""

_export_imported(__name__, {name: name for name in _PACKAGES.split()} | _HOMES)
