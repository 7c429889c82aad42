"""Promises of the saved form: it comes back exactly, whole or not at all, and says what is wrong with it."""

import json

import numpy as np
import pandas as pd
import pytest

from references.tables import QUICK, table
from vicinal.estimators import NeighborClassifier, NeighborRegressor, explanation_table, load_model, save_model

pytestmark = pytest.mark.sweep(3)


def assert_same(found, wanted):
    """Equal but for the order in which a sum is taken, which depends on where memory lies."""
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


OF_BANK = ("bank.json", "bank.safetensors", "names.parquet", "rows.parquet")
FILES = ("config.json", "model.safetensors", *OF_BANK, *(f"held/{name}" for name in OF_BANK))


@pytest.fixture
def folder(regressor, tmp_path):
    save_model(regressor, tmp_path / "model")
    return tmp_path / "model"


def test_a_model_comes_back_exactly(regressor, folder):
    fresh, _ = table(30, seed=9)
    loaded = load_model(folder)
    assert_same(loaded.predict(fresh), regressor.predict(fresh))
    assert_same(loaded.predict_interval(fresh, 0.7), regressor.predict_interval(fresh, 0.7))
    ours, theirs = regressor.explain(fresh, 3), loaded.explain(fresh, 3)
    assert [[n.id for n in one.neighbors] for one in ours] == [[n.id for n in one.neighbors] for one in theirs]
    assert ours[0].neighbors[0].row["note"] == theirs[0].neighbors[0].row["note"]
    assert loaded.get_params()["hidden"] == regressor.get_params()["hidden"]
    assert loaded.history_.validation_error == regressor.history_.validation_error


def test_estimators_save_and_load_themselves(regressor, data, tmp_path):
    regressor.save(tmp_path / "m")
    assert_same(NeighborRegressor.load(tmp_path / "m").predict(data[0]), regressor.predict(data[0]))
    with pytest.raises(ValueError, match=r"^model: expected a NeighborClassifier in .*, got a NeighborRegressor"):
        NeighborClassifier.load(tmp_path / "m")


def test_a_classifier_comes_back_exactly(classifier, tmp_path):
    save_model(classifier, tmp_path / "m")
    fresh, _ = table(30, seed=9)
    assert_same(load_model(tmp_path / "m").predict_proba(fresh), classifier.predict_proba(fresh))


def test_a_loaded_model_can_grow_forget_and_be_saved_again(folder, data, tmp_path):
    frame, price = data
    model = load_model(folder).add(frame.iloc[:2], price[:2], ids=["n1", "n2"]).forget(["h5"])
    save_model(model, tmp_path / "again")
    assert_same(load_model(tmp_path / "again").predict(frame), model.predict(frame))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_rows_with_several_numbers_in_a_cell_are_shown_as_texts(tmp_path):
    sizes = [f"{n % 7 + 1} x {n % 5 + 2} cm" for n in range(40)]
    frame = pd.DataFrame({"size": sizes, "place": np.arange(40.0)})
    model = NeighborRegressor(metric="trees").fit(frame, [float(text[0]) * float(text[4]) for text in sizes])
    save_model(model, tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    for one in (model.explain(frame.iloc[:2], 3)[0], loaded.explain(frame.iloc[:2], 3)[0]):
        shown = {one.query["size"], *(neighbor.row["size"] for neighbor in one.neighbors)}
        assert shown <= {text.replace(" x ", "x") for text in sizes}
    assert_same(loaded.predict(frame), model.predict(frame))


@pytest.mark.slow
def test_groups_and_dense_heads_come_back(tmp_path):
    frame, price = table()
    groups = [f"g{i // 4}" for i in range(len(frame))]
    for head in ("nona", "dense"):
        model = NeighborRegressor(head=head, **{**QUICK, "max_epochs": 2}).fit(frame, price, groups=groups)
        save_model(model, tmp_path / head)
        loaded = load_model(tmp_path / head)
        assert_same(loaded.predict(frame, groups=groups), model.predict(frame, groups=groups))


def test_no_pickle_is_written(folder):
    for path in (path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        assert not content.startswith((b"\x80", b"PK")), path.name


def test_checksums_are_those_of_sha256sum(folder):
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    assert {line.split("  ")[1] for line in lines} == {*FILES, "held/SHA256SUMS"}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("harm", ["cut", "edit", "remove"])
def test_a_torn_or_edited_file_is_named(folder, name, harm):
    path = folder / name
    content = bytearray(path.read_bytes())
    if harm == "remove":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"^{path.name}: expected"):
        load_model(folder)


def reseal(folder):
    import hashlib

    names = (*FILES, "held/SHA256SUMS")
    sums = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (folder / "SHA256SUMS").write_text("".join(sums))


def test_a_newer_version_is_named(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "version": 99}))
    reseal(folder)
    with pytest.raises(ValueError, match=r"^config.json: expected format version 2, got 99; update vicinal"):
        load_model(folder)


def test_wrong_settings_in_the_config_are_named(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "task": "dreaming"}))
    reseal(folder)
    with pytest.raises(ValueError, match=r"^config.json: expected valid settings.*'task'"):
        load_model(folder)


def test_other_folders_are_no_models_and_are_not_overwritten(regressor, tmp_path):
    with pytest.raises(ValueError, match=r"^model: expected a model folder"):
        load_model(tmp_path / "nothing")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"^SHA256SUMS: expected this file"):
        load_model(tmp_path)
    with pytest.raises(ValueError, match=r"^out: expected a new or empty folder"):
        save_model(regressor, tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_failed_save_leaves_the_old_model(regressor, folder, monkeypatch):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("vicinal.estimators.saving.save_file", stop)
    with pytest.raises(KeyboardInterrupt):
        save_model(regressor, folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_kill_between_the_renames_is_mended(regressor, folder, data):
    folder.rename(folder.with_name(".model.previous"))
    assert_same(load_model(folder).predict(data[0]), regressor.predict(data[0]))


def test_a_folder_of_another_program_is_not_a_model(regressor, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert", "architectures": ["BertModel"]}')
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"^out: expected a new or empty folder"):
        save_model(regressor, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "tokenizer.json"]
    model = NeighborRegressor.load(save(regressor, tmp_path / "m"))
    with pytest.raises(ValueError, match=r"^out: expected a new or empty folder, or a bank folder"):
        model.bank_.store.save(tmp_path / "m")


def save(model, folder):
    save_model(model, folder)
    return folder


def test_files_of_the_user_and_symbolic_links_outlive_a_save(regressor, data, folder):
    (folder / "notes.txt").write_text("mine")
    (folder / "held" / "why.txt").write_text("mine")
    (folder.parent / "latest").symlink_to(folder)
    for place in (folder, folder.parent / "latest", folder.parent / "latest"):
        save_model(regressor, place)
        assert_same(load_model(place).predict(data[0]), regressor.predict(data[0]))
    assert (folder.parent / "latest").is_symlink()
    assert (folder / "notes.txt").read_text() == (folder / "held" / "why.txt").read_text() == "mine"
    assert sorted(path.name for path in folder.parent.iterdir()) == ["latest", "model"]


@pytest.mark.parametrize("index", [pytest.param(None, marks=pytest.mark.slow), "exact", "faiss:Flat"])
def test_a_loaded_model_stays_what_it_was_when_its_folder_is_replaced(data, tmp_path, index):
    if index is not None and "faiss" in index:
        pytest.importorskip("faiss", reason="faiss is an optional package")
    frame, price = data
    brief = {**QUICK, "max_epochs": 2}
    model = NeighborRegressor(index=index, **brief).fit(frame[20:], price[20:])
    model.forget(list(range(5))).add(frame[:20], price[:20], ids=range(1000, 1020))  # its index was not made at once
    other = NeighborRegressor(index=index, random_state=1, **brief).fit(frame.iloc[:60], price[:60])
    loaded = load_model(save(model, tmp_path / "m"))
    save_model(other, tmp_path / "m")
    assert_same(loaded.predict(frame), model.predict(frame))
    told = [explanation_table(each.explain(frame[1:3], 3)) for each in (loaded, model)]
    pd.testing.assert_frame_equal(*told)
    assert_same(load_model(tmp_path / "m").predict(frame), other.predict(frame))
    save_model(loaded, tmp_path / "again")
    assert_same(load_model(tmp_path / "again").predict(frame), model.predict(frame))


def test_a_model_and_its_index_are_read_from_one_folder(regressor, classifier, data, folder, monkeypatch):
    from vicinal.estimators import saving

    first = saving.read_settings
    turns = []

    def read(*args, **options):
        config = first(*args, **options)
        if not turns:  # another process replaces the model between two of its files
            save_model(classifier, folder)
        turns.append(config.task)
        return config

    monkeypatch.setattr(saving, "read_settings", read)
    assert load_model(folder).predict(data[0]).tolist() == classifier.predict(data[0]).tolist()
    assert turns == ["regression", "classification"]


def test_a_loaded_model_can_be_copied_with_its_rows(folder, data):
    import copy

    model = copy.deepcopy(load_model(folder))
    assert str(model.explain(data[0][:3], 3)) == str(load_model(folder).explain(data[0][:3], 3))


def test_parameters_without_a_name_are_refused(data, tmp_path):
    from vicinal.similarity import NegativeL2

    frame, price = data
    model = NeighborRegressor(similarity=NegativeL2(), **QUICK).fit(frame, price)
    with pytest.raises(ValueError, match=r"^similarity: expected a value with a name"):
        save_model(model, tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_notes_outlive_another_save(regressor, tmp_path):
    save_model(regressor, tmp_path / "a", {"id": "house", "target": "price"})
    load_model(tmp_path / "a").save(tmp_path / "b")
    assert load_model(tmp_path / "b").notes_ == {"id": "house", "target": "price"}


def test_loading_leaves_the_global_random_state_alone(folder):
    import torch

    torch.manual_seed(1)
    want = torch.rand(3)
    torch.manual_seed(1)
    load_model(folder)
    assert torch.equal(torch.rand(3), want)
