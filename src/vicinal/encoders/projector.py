"""From the concatenated columns to the space in which neighbors are near."""

from collections.abc import Sequence

from torch import Tensor, nn

from vicinal.core import check_between, check_integer


class Projector(nn.Module):
    """Batch norm, linear layer, tanh, for each of ``sizes``: the projector of the NONA paper.

    Args:
        in_dim: width of its input.
        sizes: widths of the layers, first to last; empty: the input goes through as it is.
        dropout: share of inputs dropped before each linear layer while training, from 0 to below 1.

    >>> print(Projector(384, (200, 25)).dim)
    25
    """

    def __init__(self, in_dim: int, sizes: Sequence[int] = (200, 25), dropout: float = 0.0) -> None:
        super().__init__()
        width = check_integer("in_dim", in_dim)
        if dropout != 0:
            check_between("dropout", dropout, 0, 1)
        self.in_dim, self.sizes, self.dropout = width, [check_integer("sizes", s) for s in sizes], float(dropout)
        layers: list[nn.Module] = []
        for size in self.sizes:
            layers.append(nn.BatchNorm1d(width))
            if dropout:
                layers.append(nn.Dropout(dropout))
            layers += [nn.Linear(width, size), nn.Tanh()]
            width = size
        self.layers = nn.Sequential(*layers)
        self.dim = width

    def forward(self, embeddings: Tensor) -> Tensor:
        """``[b, dim]`` from ``[b, in_dim]``, computed in the dtype of its weights."""
        if embeddings.ndim != 2 or embeddings.shape[1] != self.in_dim:
            raise ValueError(f"embeddings: expected [b, {self.in_dim}], got {tuple(embeddings.shape)}")
        weight = next(self.parameters(), None)
        projected: Tensor = self.layers(embeddings if weight is None else embeddings.to(weight.dtype))
        return projected

    def extra_repr(self) -> str:
        """Widths, for ``print``."""
        return f"in_dim={self.in_dim}, dim={self.dim}"
