"""Two networks of one architecture become one: whose hidden units belong together, and what their mean is."""

from vicinal.encoders.merging.matching import (
    activation_matching,
    sinkhorn_matching,
    unit_products,
    unit_values,
    weight_matching,
)
from vicinal.encoders.merging.merged import merge
from vicinal.encoders.merging.partial import partly_merged
from vicinal.encoders.merging.units import Axes, Orders, permuted, same_input, unit_axes

__all__ = [
    "Axes",
    "Orders",
    "activation_matching",
    "merge",
    "partly_merged",
    "permuted",
    "same_input",
    "sinkhorn_matching",
    "unit_axes",
    "unit_products",
    "unit_values",
    "weight_matching",
]
