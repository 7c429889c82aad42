"""Embeddings kept by content."""

import pandas as pd
import pytest
import torch

from vicinal.encoders import EmbeddingCache, NgramEncoder
from vicinal.encoders.cache import content_key

KEYS = [content_key(bytes([k])) for k in range(5)]
VALUES = torch.arange(10.0).reshape(5, 2)


def filled(folder):
    cache = EmbeddingCache(folder)
    cache.put("e1", KEYS[:3], VALUES[:3])
    cache.put("e1", KEYS[3:], VALUES[3:])
    cache.put("e2", KEYS[:1], VALUES[4:])
    return cache


@pytest.mark.parametrize("on_disk", [False, True])
def test_gives_what_was_put(on_disk, tmp_path):
    cache = filled(tmp_path / "sub" / "cache" if on_disk else None)
    if on_disk:
        cache = EmbeddingCache(tmp_path / "sub" / "cache")
    found = cache.get("e1", [*KEYS, content_key(b"new")])
    assert list(found) == KEYS
    assert torch.equal(torch.stack(list(found.values())), VALUES)
    assert cache.get("e2", KEYS)[KEYS[0]].tolist() == [8, 9]
    assert cache.get("e3", KEYS) == {}


@pytest.mark.parametrize("damage", ["torn", "edited", "junk"])
def test_damaged_files_are_passed_over(damage, tmp_path):
    filled(tmp_path)
    for path in tmp_path.iterdir():
        data = path.read_bytes()
        path.write_bytes({"torn": data[:-3], "edited": data[:-1] + b"\x01", "junk": b"junk"}[damage])
    assert EmbeddingCache(tmp_path).get("e1", KEYS) == {}


def test_nothing_is_left_half_written(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("vicinal.encoders.cache.save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        filled(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_cleared(tmp_path):
    left = tmp_path / f".e1-abc.safetensors.{'0' * 16}.part"
    (left / "new").mkdir(parents=True)
    (left / "new" / "e1-abc.safetensors").write_bytes(b"half")
    filled(tmp_path)
    assert not left.exists()
    assert len(list(tmp_path.iterdir())) == 3


def test_memory_is_bounded():
    cache = EmbeddingCache(most=2)
    cache.put("e", KEYS, VALUES)
    assert list(cache.get("e", KEYS)) == KEYS[3:]
    assert len(cache) == 2


def test_values_are_copied():
    values = VALUES.clone()
    cache = EmbeddingCache()
    cache.put("e", KEYS, values)
    values.zero_()
    assert cache.get("e", KEYS)[KEYS[1]].tolist() == [2, 3]


def test_bad_arguments_are_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"^folder: expected a folder that can be written"):
        EmbeddingCache(tmp_path / "file")
    with pytest.raises(ValueError, match=r"^values: expected \[2, dim\], one row for each key, got \(5, 2\)"):
        EmbeddingCache().put("e", KEYS[:2], VALUES)


def test_an_encoder_is_another_one_as_soon_as_a_weight_changes_in_place():
    encoder = NgramEncoder("note", width=4).fit(pd.DataFrame({"note": ["a good house", "a bad flat"] * 5}))
    before = encoder.identity()
    assert encoder.identity() == before
    with torch.no_grad():
        next(encoder.parameters()).add_(1.0)
    assert encoder.identity() != before
