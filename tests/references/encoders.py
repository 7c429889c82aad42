"""Encoders again, in plain Python and numpy, from their definitions: no code shared with src."""

import itertools
import math
from collections import Counter

import numpy as np

MASK = (1 << 64) - 1
BASE = 0x9E3779B97F4A7C15


def mixed(x):
    """The finalizer of splitmix64 on one Python integer."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def gram_hash(characters, salt):
    """Hash of one n-gram: a polynomial in its characters, salted with its length."""
    total = sum(mixed((ord(c) + BASE) & MASK) * pow(BASE, k, 1 << 64) for k, c in enumerate(characters))
    return mixed((total + salt * BASE) & MASK)


def ngram_counts(text, sizes, pairs, buckets):
    """Counter of buckets of a text, n-gram by n-gram."""
    words = [f"\x02{word}\x03" for word in text.casefold().split()]
    hashes = [gram_hash(word, 0) for word in words]
    for word in words:
        for size in sizes:
            grams = [word[k : k + size] for k in range(len(word) - size + 1)]
            hashes += [gram_hash(g, size) for g in grams if g not in ("\x02", "\x03")]
    if pairs:
        hashes += [gram_hash(a + b, -1) for a, b in itertools.pairwise(words)]
    return Counter(h % buckets for h in hashes)


def slaney_mel(hertz):
    """Mels of one frequency."""
    return hertz / (200 / 3) if hertz < 1000 else 15 + math.log(hertz / 1000) / (math.log(6.4) / 27)


def mel_filters(window, bands, rate):
    """Triangular filters, each entry by itself, edges found by bisection of the mel scale."""
    top = slaney_mel(rate / 2)

    def hertz(mel):
        low, high = 0.0, rate
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if slaney_mel(middle) < mel else (low, middle)
        return low

    edges = [hertz(top * k / (bands + 1)) for k in range(bands + 2)]
    filters = np.zeros((bands, window // 2 + 1))
    for band in range(bands):
        left, center, right = edges[band : band + 3]
        for k in range(window // 2 + 1):
            f = k * rate / window
            inside = (f - left) / (center - left) if f <= center else (right - f) / (right - center)
            filters[band, k] = max(0.0, inside) * 2 / (right - left)
    return filters


def mel_power(wave, filters, hop):
    """Power in bands by explicit discrete Fourier sums, frame by frame, zeros around the sound."""
    window = 2 * (filters.shape[1] - 1)
    padded = np.concatenate([np.zeros(window // 2), wave, np.zeros(window // 2)])
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    waves = np.exp(-2j * np.pi * np.outer(np.arange(window // 2 + 1), np.arange(window)) / window)
    frames = [padded[k : k + window] * hann for k in range(0, len(wave) + 1, hop)]
    return np.stack([filters @ np.abs(waves @ frame) ** 2 for frame in frames])


def standardized(values):
    """Column-wise (x - mean) / deviation, NaN as mean, constant columns 0."""
    out = np.zeros_like(values)
    for j in range(values.shape[1]):
        known = values[~np.isnan(values[:, j]), j]
        mean = known.sum() / len(known)
        deviation = math.sqrt(((known - mean) ** 2).sum() / len(known))
        for i in range(len(values)):
            if not np.isnan(values[i, j]) and deviation > 0:
                out[i, j] = (values[i, j] - mean) / deviation
    return out
