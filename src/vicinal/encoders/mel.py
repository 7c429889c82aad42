"""Mel spectrograms by torch alone, with the filters that librosa has by default (Slaney's)."""

import numpy as np
import torch
from torch import Tensor

RATE = 16_000
"""Samples a second of all sounds inside this package."""


def hertz_to_mel(hertz: "np.ndarray | float") -> "np.ndarray":
    """Slaney's mel scale: linear below 1000 Hz (15 mels), logarithmic above."""
    hertz = np.asarray(hertz, dtype=np.float64)
    high = 15 + np.log(np.maximum(hertz, 1000) / 1000) * 27 / np.log(6.4)
    return np.where(hertz < 1000, hertz * 3 / 200, high)


def mel_to_hertz(mel: "np.ndarray | float") -> "np.ndarray":
    """The inverse of ``hertz_to_mel``."""
    mel = np.asarray(mel, dtype=np.float64)
    return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp((mel - 15) * np.log(6.4) / 27))


def mel_filters(window: int, bands: int, rate: int = RATE) -> Tensor:
    """Triangles in frequency, evenly spaced in mels, each of area 2: float32 ``[bands, window // 2 + 1]``."""
    edges = mel_to_hertz(np.linspace(0, hertz_to_mel(rate / 2), bands + 2))  # [bands + 2]
    frequency = np.linspace(0, rate / 2, window // 2 + 1)
    rising = (frequency - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - frequency) / (edges[2:] - edges[1:-1])[:, None]
    triangles = np.maximum(0, np.minimum(rising, falling))
    return torch.from_numpy(triangles * (2 / (edges[2:] - edges[:-2]))[:, None]).float()


def mel_power(wave: Tensor, filters: Tensor, hop: int) -> Tensor:
    """Power in each mel band ``[frames, bands]`` of a sound ``[samples]``; frame ``i`` is centered at ``i * hop``."""
    window = 2 * (filters.shape[1] - 1)
    spectrum = torch.stft(
        wave,
        window,
        hop,
        window=torch.hann_window(window),
        center=True,
        pad_mode="constant",
        return_complex=True,
    )
    return (filters @ spectrum.abs().square()).T
