"""Indexes by name, and what is said of names and packages that are not there."""

import sys

import pytest
import torch

from vicinal.core import entries
from vicinal.index import ExactIndex, FaissIndex, load_index, open_index


def test_every_kind_is_an_index_with_a_place():
    assert {found.name for found in entries("index")} == {"exact", "faiss", "milvus"}


def test_names_say_what_to_open():
    assert isinstance(open_index("exact", dim=3), ExactIndex)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("fais:Flat", r"^index: expected one of 'exact', 'faiss', 'milvus', got 'fais'; did you mean 'faiss'\?"),
        ("exact:int8", r"^index: expected 'exact', got 'exact:int8'; .* use 'faiss:SQ8' or 'faiss:SQfp16'"),
        ("", r"^index: expected one of"),
    ],
)
def test_wrong_names_are_refused(name, told):
    with pytest.raises(ValueError, match=told):
        open_index(name, dim=3)


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match=r"^index: expected settings of ExactIndex, got another; .*'nlist'"):
        open_index("exact", dim=3, nlist=4)
    with pytest.raises(TypeError, match=r"^index: expected a name such as 'exact' or 'faiss:Flat', got 3"):
        open_index(3, dim=3)
    with pytest.raises(ValueError, match=r"^dim: expected a whole number of at least 1, got 0"):
        open_index("exact", dim=0)


@pytest.mark.parametrize(
    ("name", "package", "extra"), [("faiss:Flat", "faiss", "faiss"), ("milvus:./bank.db", "pymilvus", "milvus")]
)
def test_a_package_that_is_missing_is_one_sentence(name, package, extra, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ValueError,
        match=rf"^index: expected the package {package}, got none; install it with pip install 'vicinal\[{extra}\]'$",
    ):
        open_index(name, dim=3)


def test_loading_names_the_file_that_was_harmed(tmp_path):
    index = open_index("exact", dim=3)
    index.add([1, 2], torch.eye(3)[:2])
    index.save(tmp_path / "index")
    (tmp_path / "index" / "bank.safetensors").write_bytes(b"short")
    with pytest.raises(ValueError, match=r"^bank.safetensors: expected a whole safetensors file"):
        load_index(tmp_path / "index")
    with pytest.raises(ValueError, match=r"^index: expected an index folder, got .*nothing, which is not there"):
        load_index(tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"^index: expected an index of kind 'faiss' in .*, got 'exact'"):
        FaissIndex.load(tmp_path / "index")
