"""Indexes by name, as a command line or an estimator gives them, and from their folders."""

from pathlib import Path
from typing import Any

from torch import nn

from vicinal.core import entry, short
from vicinal.core.checks import short_text
from vicinal.core.folders import read_whole
from vicinal.index.base import Index
from vicinal.index.index_files import opened


def open_index(name: str, *, dim: int, similarity: str | nn.Module = "l2", **settings: Any) -> Index:
    """The index of that name: a registered kind, and behind a colon what the kind needs to know.

    | name | index |
    | --- | --- |
    | `exact` | all rows (:class:`ExactIndex`) |
    | `faiss:IVF1024,Flat` | any FAISS factory string (:class:`FaissIndex`) |
    | `milvus:./bank.db` | a file of milvus-lite, with nothing to start (:class:`MilvusIndex`) |
    | `milvus:http://host:19530` | the same on a server or a cluster |

    Args:
        name: as above.
        dim: width of the vectors.
        similarity: name of a registered similarity, or the module.
        settings: further arguments of the class.

    Raises:
        ValueError: for an unknown kind or setting, a kind that cannot serve the similarity, or a missing package.

    >>> open_index("exact", dim=4, similarity="cosine")
    ExactIndex(0 rows, dim=4, similarity='cosine')
    >>> open_index("fais:Flat", dim=4)
    Traceback (most recent call last):
    ValueError: index: expected one of 'exact', 'faiss', 'milvus', got 'fais'; did you mean 'faiss'?
    """
    if not isinstance(name, str):
        raise TypeError(f"index: expected a name such as 'exact' or 'faiss:Flat', got {short(name)}")
    kind, _, rest = name.partition(":")
    factory: Any = entry("index", kind).factory
    if rest and not factory.behind_colon:
        raise ValueError(
            f"index: expected {kind!r}, got '{kind}:{rest:.40}'; rows are scanned in float32, in fewer bytes by FAISS: "
            "use 'faiss:SQ8' or 'faiss:SQfp16'"
        )
    try:
        index: Index = factory(dim, similarity, **({factory.behind_colon: rest} if rest else {}) | settings)
    except TypeError as wrong:
        if "unexpected keyword" not in str(wrong):
            raise
        raise ValueError(
            f"index: expected settings of {factory.__name__}, got another; {short_text(wrong, 200)}"
        ) from wrong
    return index


def load_index(folder: str | Path, **settings: Any) -> Index:
    """The index saved in ``folder``, of whatever kind.

    Args:
        folder: as :meth:`Index.save` wrote it.
        settings: further arguments of ``load`` of its class.

    Raises:
        ValueError: naming the file that is missing, damaged, edited or of a newer version.
    """

    def load(place: Path) -> Index:
        factory: Any = entry("index", opened(place).kind).factory
        return factory.load(place, **settings)

    return read_whole(Path(folder), load)
