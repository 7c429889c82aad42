"""Columns of sounds: reading them safely, at one rate, in mono; mel spectrograms of them."""

import io
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.core.checks import optional_import
from vicinal.encoders.base import refuse
from vicinal.encoders.inputs import RaggedInputs, ragged
from vicinal.encoders.media import map_rows, read_cell

RATE = 16_000
"""Samples a second of all sounds inside this package."""


LONGEST = 600
"""Seconds of the longest sound that is decoded."""

MOST_SAMPLES, MOST_CHANNELS, HIGHEST_RATE = LONGEST * 48_000, 16, 768_000
"""Samples of a channel, channels, and samples a second of a sound that is decoded."""

_BLOCK = 1 << 16
"""Samples of a channel that are decoded before channels are averaged."""

_FINEST = 1 << 16
"""Parts of the finest fraction that rates are compared by: the filter is 20 times as long. Rates up to it are exact."""

STREAMED = 0x7FFF0000
"""Lengths from here on in the head of a wav file say that it was written as a stream, of a length unknown then."""

HOP = 160
"""Samples between two frames of a spectrogram: 10 ms."""


def open_sound(data: bytes, *, column: str, row: object, rate: int = RATE) -> Tensor:
    """Decode a sound to float32 ``[samples]`` in mono at ``rate``.

    Raises:
        ValueError: for something that is not a sound, is cut short, empty, longer than ``LONGEST``, has too many
            samples or channels, or holds NaN.
    """
    soundfile = optional_import("audio", "soundfile", "audio")
    declared = int.from_bytes(data[4:8], "little") + 8 if data[:4] == b"RIFF" else 0
    if len(data) < declared < STREAMED:
        got = f"{len(data)} of {declared} bytes"
        raise refuse(column, row, "a whole sound", got, "the file is cut short: replace it")
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            _check_size(file, column, row)
            expected, source = file.frames, file.samplerate
            blocks = [block.mean(axis=1) for block in file.blocks(blocksize=_BLOCK, dtype="float32", always_2d=True)]
    except (soundfile.SoundFileError, OSError, RuntimeError, TypeError) as error:
        got = f"{len(data)} bytes that cannot be decoded ({error})"
        raise refuse(column, row, "a sound (wav, flac, ogg, mp3)", got, "replace the file") from None
    samples = np.concatenate([np.zeros(0, dtype=np.float32), *blocks])
    if len(samples) < expected:
        got = f"{len(samples)} of {expected} samples"
        raise refuse(column, row, "a whole sound", got, "the file is cut short: replace it")
    if not len(samples):
        raise refuse(column, row, "a sound", "one without samples")
    if not np.isfinite(samples).all():
        raise refuse(column, row, "finite samples", "a sound with NaN or infinite ones")
    if source != rate:
        ratio = Fraction(rate, source).limit_denominator(_FINEST)
        import scipy.signal  # slow to import, and needed for sounds only

        samples = scipy.signal.resample_poly(samples, ratio.numerator, ratio.denominator)
    return torch.from_numpy(np.ascontiguousarray(samples, dtype=np.float32))


def _check_size(file: Any, column: str, row: object) -> None:
    """Refuse a sound by what its head says, before it is decoded."""
    if file.frames > LONGEST * file.samplerate:
        got = f"{file.frames / file.samplerate:.0f} seconds"
        raise refuse(column, row, f"a sound of at most {LONGEST} seconds", got, "cut it")
    if file.frames > MOST_SAMPLES or file.channels > MOST_CHANNELS or file.samplerate > HIGHEST_RATE:
        expected = f"a sound of at most {MOST_SAMPLES:,} samples, {MOST_CHANNELS} channels and {HIGHEST_RATE:,} Hz"
        got = f"{file.frames:,} samples in {file.channels} channels at {file.samplerate:,} Hz"
        raise refuse(column, row, expected, got, "cut it, or sample it at 48,000 Hz")


def read_sounds(series: "pd.Series[Any]", column: str, root: Path | None, make: Any, rate: int = RATE) -> list[Tensor]:
    """``make(wave)`` for the sound of each row, in row order."""

    def load(label: object, cell: Any) -> Tensor:
        data = read_cell(cell, column=column, row=label, what="a sound", root=root)
        return make(open_sound(data, column=column, row=label, rate=rate))

    return map_rows(load, series.items())


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
    """Triangles evenly spaced in mels, each of area 2, as librosa has them: float32 ``[bands, window // 2 + 1]``."""
    edges = mel_to_hertz(np.linspace(0, hertz_to_mel(rate / 2), bands + 2))  # [bands + 2]
    frequency = np.linspace(0, rate / 2, window // 2 + 1)
    rising = (frequency - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - frequency) / (edges[2:] - edges[1:-1])[:, None]
    triangles = np.maximum(0, np.minimum(rising, falling))
    return torch.from_numpy(triangles * (2 / (edges[2:] - edges[:-2]))[:, None]).float()


def mel_power(wave: Tensor, filters: Tensor, hop: int) -> Tensor:
    """Power in each mel band ``[frames, bands]`` of a sound ``[samples]``; frame ``i`` is centered at ``i * hop``."""
    window = 2 * (filters.shape[1] - 1)
    hann = torch.hann_window(window)
    spectrum = torch.stft(wave, window, hop, window=hann, center=True, pad_mode="constant", return_complex=True)
    return (filters @ spectrum.abs().square()).T


def prepare_log_mel(
    series: "pd.Series[Any]", column: str, root: Path | None, *, bands: int, seconds: int
) -> RaggedInputs:
    """Log-mel spectrograms ``[frames, bands]`` of all rows, each with mean 0, in units of 20 decibels."""
    filters = mel_filters(512, bands)

    def make(wave: Tensor) -> Tensor:
        start = max(0, (len(wave) - seconds * RATE) // 2)
        power = mel_power(wave[start : start + seconds * RATE], filters, HOP)
        level = power.clamp(min=1e-10).log10() / 2
        return level - level.mean()

    return ragged(read_sounds(series, column, root, make), torch.zeros(0, bands))
