"""Mixed rows for losses with soft relations: of inputs, of features or of embeddings."""

from vicinal.mixing.mixture import Mixture, draw_mixture
from vicinal.mixing.negatives import append_negatives, draw_mixed_negatives, mix_negatives

__all__ = [
    "Mixture",
    "append_negatives",
    "draw_mixed_negatives",
    "draw_mixture",
    "mix_negatives",
]
