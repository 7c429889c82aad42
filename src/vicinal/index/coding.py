"""Vectors in fewer bytes, with how far each is from the one it stands for."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from vicinal.core import check_choice

STORAGES = ("float32", "float16", "int8")
"""What a bank may scan: the vectors, or codes of 2 or 1 bytes a number."""

_STEP = 1 << 12
"""Rows that are coded at a time."""

Array = np.ndarray[Any, Any]


def encode(vectors: Tensor, storage: str) -> dict[str, Array]:
    r"""Codes of ``vectors [n, d]`` float32: ``codes``, ``residual`` and, for int8, ``scale``.

    int8 codes are $c = \mathrm{round}(x / s)$ with $s = \max_k |x_k| / 127$ of each row. The residual is an upper bound
    of $\|x - \hat x\|_2$, from which follows how wrong a score of codes can be.

    Raises:
        ValueError: if a number is too large for float16.
    """
    check_choice("storage", storage, STORAGES[1:])
    arrays: dict[str, Array] = {}
    if storage == "float16":
        codes = vectors.half()
        if not bool(codes.isfinite().all()):
            raise ValueError("vectors: expected numbers within 65504 for storage 'float16', got larger; use 'float32'")
        arrays["codes"] = codes.numpy()
    else:
        scale = vectors.abs().amax(dim=1) / 127 if vectors.shape[1] else vectors.new_zeros(len(vectors))
        scale = torch.where(scale > 0, scale, 1.0)
        arrays["codes"] = (vectors / scale[:, None]).round_().clamp_(-127, 127).to(torch.int8).numpy()
        arrays["scale"] = scale.numpy()
    apart = vectors.double() - decode(arrays).double()
    arrays["residual"] = (apart.square().sum(dim=1).sqrt() * (1 + 1e-6)).float().numpy()
    return arrays


def encode_all(vectors: Tensor, storage: str) -> dict[str, Array]:
    """The same, some rows at a time and into one array each, so that little more memory is used than they take."""
    arrays: dict[str, Array] = {}
    for start in range(0, len(vectors), _STEP):
        for name, part in encode(vectors[start : start + _STEP], storage).items():
            if start == 0:
                arrays[name] = np.empty((len(vectors), *part.shape[1:]), dtype=part.dtype)
            arrays[name][start : start + len(part)] = part
    return arrays


def decode(coded: dict[str, Array]) -> Tensor:
    """The vectors ``[n, d]`` float32 that codes stand for.

    >>> decode(encode(torch.tensor([[1.0, -0.5]]), "float16"))
    tensor([[ 1.0000, -0.5000]])
    """
    codes = torch.from_numpy(coded["codes"]).float()
    return codes.mul_(torch.from_numpy(coded["scale"])[:, None]) if "scale" in coded else codes
