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

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vicinal.version import __version__ as __version__

if TYPE_CHECKING:
    from vicinal import (
        blockwise,
        calibration,
        core,
        data,
        encoders,
        estimators,
        evaluation,
        heads,
        index,
        links,
        losses,
        masks,
        metrics,
        miners,
        mixing,
        plot,
        ranks,
        relation,
        report,
        samplers,
        similarity,
        training,
        workflows,
    )
    from vicinal.estimators import (
        EmbeddingLearner,
        NeighborClassifier,
        NeighborRegressor,
        Recommender,
        RowMatcher,
        load_model,
    )
    from vicinal.heads import NONA
    from vicinal.losses import EmbeddingLoss, MatchingLoss, ProxyLoss
    from vicinal.masks import SoftStep

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

__all__ = [
    "NONA",
    "EmbeddingLearner",
    "EmbeddingLoss",
    "MatchingLoss",
    "NeighborClassifier",
    "NeighborRegressor",
    "ProxyLoss",
    "Recommender",
    "RowMatcher",
    "SoftStep",
    "blockwise",
    "calibration",
    "clustering",
    "core",
    "data",
    "encoders",
    "estimators",
    "evaluation",
    "factorization",
    "heads",
    "index",
    "links",
    "load_model",
    "losses",
    "masks",
    "metrics",
    "miners",
    "mixing",
    "plot",
    "ranks",
    "relation",
    "report",
    "samplers",
    "similarity",
    "training",
    "transport",
    "workflows",
]


def _imported(package: str) -> Any:
    import gc

    collects = gc.isenabled()
    gc.disable()  # imports make a million objects that stay: to look for garbage among them takes a fifth of the time
    try:
        return import_module(f"vicinal.{package}")
    finally:
        if collects:
            gc.enable()


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(_imported(_HOMES[name]), name)
        globals()[name] = value
        return value
    if name in __all__:
        return _imported(name)
    raise AttributeError(f"module 'vicinal' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
