"""Cells of sounds, and their spectrograms."""

import io
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.signal
import soundfile
import torch

import references.encoders as reference
from vicinal.encoders import AudioCNN
from vicinal.encoders.sounds import mel_filters, mel_power, open_sound


def read(data, **options):
    return open_sound(data, column="clip", row=7, **options)


def encoded(samples, rate=16_000, form="WAV", **options):
    file = io.BytesIO()
    soundfile.write(file, np.asarray(samples), rate, format=form, **options)
    return file.getvalue()


@pytest.mark.parametrize(("window", "bands", "rate"), [(400, 40, 16_000), (512, 64, 16_000), (256, 20, 8000)])
def test_filters_equal_reference(window, bands, rate):
    want = reference.mel_filters(window, bands, rate)
    np.testing.assert_allclose(mel_filters(window, bands, rate).numpy(), want, atol=1e-8, rtol=1e-4)


def test_filters_equal_those_of_transformers():
    audio = pytest.importorskip("transformers.audio_utils")
    want = audio.mel_filter_bank(201, 40, 0.0, 8000.0, 16_000, norm="slaney", mel_scale="slaney").T
    np.testing.assert_allclose(mel_filters(400, 40).numpy(), want, atol=1e-8, rtol=1e-4)


@pytest.mark.parametrize("samples", [1, 160, 801])
def test_power_equals_reference(samples):
    wave = np.random.default_rng(0).normal(size=samples)
    filters = mel_filters(400, 40)
    found = mel_power(torch.from_numpy(wave).float(), filters, 160)
    want = reference.mel_power(wave, filters.numpy().astype(float), 160)
    torch.testing.assert_close(found, torch.from_numpy(want).float(), rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("form", ["WAV", "FLAC", "OGG", "MP3"])
def test_formats_and_rates_give_one_rate(form, make_sound):
    wave = read(make_sound(0, 0.5, 8000, form))
    assert wave.dtype == torch.float32
    assert abs(len(wave) - 8000) < 1500


def test_resampling_keeps_a_tone():
    time = np.arange(4000) / 8000
    wave = read(encoded(0.5 * np.sin(2 * np.pi * 440 * time), 8000, subtype="FLOAT"))
    want = 0.5 * np.sin(2 * np.pi * 440 * np.arange(8000) / 16_000)
    assert np.abs(wave.numpy() - want)[200:-200].max() < 2e-3


def test_channels_are_averaged():
    stereo = np.stack([np.full(50, 0.5), np.full(50, -0.25)], axis=1)
    torch.testing.assert_close(read(encoded(stereo, subtype="FLOAT")), torch.full((50,), 0.125))


def test_what_is_no_sound_is_refused(make_sound):
    data = make_sound(0, 0.5, form="FLAC")
    wav = make_sound(0, 0.5)
    for broken in (wav[:-100], wav[:30], b"no sound", data[:40], data[: len(data) // 2]):
        with pytest.raises(ValueError, match=r"^clip: expected .*sound.* in row 7, got .*replace"):
            read(broken)
    with pytest.raises(ValueError, match=r"^clip: expected a sound in row 7, got one without samples"):
        read(encoded([]))
    with pytest.raises(ValueError, match=r"^clip: expected finite samples in row 7"):
        read(encoded([0.1, np.nan], subtype="FLOAT"))
    with pytest.raises(
        ValueError, match=r"^clip: expected a sound of at most 600 seconds in row 7, got 700 seconds; cut"
    ):
        read(encoded(np.zeros(7000), 10))


def test_a_wav_written_as_a_stream_is_read(make_sound):
    data = make_sound()
    streamed = data[:4] + b"\xff" * 4 + data[8:]
    assert torch.equal(read(streamed), read(data))


def test_missing_is_refused(make_sound):
    frame = pd.DataFrame({"clip": [make_sound(), None]})
    with pytest.raises(ValueError, match=r"^clip: expected a sound in row 1, got a missing value"):
        AudioCNN("clip").prepare(frame)


def test_loudness_changes_nothing_and_silence_is_finite():
    wave = np.random.default_rng(0).normal(size=3000) / 10
    frame = pd.DataFrame({"clip": [encoded(wave, subtype="FLOAT"), encoded(wave / 7, subtype="FLOAT")]})
    frame.loc[2, "clip"] = encoded(np.zeros(1))
    rows = AudioCNN("clip").prepare(frame)
    first, second = (rows.select(torch.tensor([k]))["values"] for k in (0, 1))
    torch.testing.assert_close(first, second, atol=1e-3, rtol=1e-3)
    assert rows.select(torch.tensor([2]))["values"].abs().max() == 0


def test_long_sounds_are_cut_to_the_middle():
    wave = np.concatenate([np.zeros(16_000), np.random.default_rng(0).normal(size=16_000), np.zeros(16_000)]) / 10
    frame = pd.DataFrame({"clip": [encoded(wave, subtype="FLOAT"), encoded(wave[16_000:32_000], subtype="FLOAT")]})
    rows = AudioCNN("clip", seconds=1).prepare(frame)
    assert rows.content(0) == rows.content(1)
    assert rows.sizes().tolist() == [101, 101]


def test_soundfile_absent_is_told(monkeypatch, make_sound):
    data = make_sound()
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(
        ValueError, match=r"expected the package soundfile, got none; install it with pip install 'vicinal\[audio"
    ):
        read(data)


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (lambda: encoded(np.zeros((40, 17)), 16_000), r"got 40 samples in 17 channels at 16,000 Hz"),
        (lambda: encoded(np.zeros(40), 800_000), r"got 40 samples in 1 channels at 800,000 Hz"),
        (
            lambda: encoded(np.zeros(28_800_001), 96_000, subtype="PCM_U8"),
            r"got 28,800,001 samples in 1 channels at 96,000 Hz",
        ),
    ],
)
def test_what_would_unpack_to_far_more_is_refused_by_its_head(made, sentence, monkeypatch):
    monkeypatch.setattr("soundfile.SoundFile.blocks", None)
    with pytest.raises(ValueError, match=rf"^clip: expected a sound of at most 28,800,000 samples, .*{sentence}; cut"):
        read(made())


def test_channels_are_averaged_block_by_block(monkeypatch):
    wave = np.random.default_rng(0).normal(size=(1000, 3)) / 10
    whole = read(encoded(wave, subtype="FLOAT"))
    monkeypatch.setattr("vicinal.encoders.sounds._BLOCK", 7)
    assert torch.equal(read(encoded(wave, subtype="FLOAT")), whole)


@pytest.mark.parametrize("source", [101, 15_991, 44_101, 191_999, 767_957, 767_999])
def test_a_rate_without_common_divisors_takes_a_short_filter(source, monkeypatch):
    asked, resample = [], scipy.signal.resample_poly

    def counted(samples, up, down):
        asked.append((up, down))
        return resample(samples, up, down)

    monkeypatch.setattr(scipy.signal, "resample_poly", counted)
    found = read(encoded(np.sin(np.arange(3000) / 9.0), source))
    ((up, down),) = asked
    assert max(up, down) <= 1 << 16
    assert up / down == pytest.approx(16_000 / source, rel=2e-5 if source > 1 << 16 else 1e-15)
    assert abs(len(found) - 3000 * 16_000 / source) <= 1
