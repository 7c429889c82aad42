"""Small images, sounds and models, made on the spot."""

import io
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import pytest


def image_bytes(seed=0, size=(40, 30), form="PNG"):
    """An encoded image of random blocks."""
    from PIL import Image

    blocks = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(blocks).resize(size).save(file, form)
    return file.getvalue()


def sound_bytes(seed=0, seconds=0.3, rate=16_000, form="WAV"):
    """An encoded chord with some noise."""
    import soundfile

    generator = np.random.default_rng(seed)
    time = np.arange(int(seconds * rate)) / rate
    wave = sum(np.sin(2 * np.pi * f * time) for f in generator.uniform(100, 3000, 3)) / 4
    file = io.BytesIO()
    soundfile.write(file, wave + 0.01 * generator.normal(size=len(time)), rate, format=form)
    return file.getvalue()


@pytest.fixture
def make_image():
    return image_bytes


@pytest.fixture
def make_sound():
    return sound_bytes
