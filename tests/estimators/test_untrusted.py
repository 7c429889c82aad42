"""Promises about model folders of somebody else: nothing is opened, allocated or believed unasked."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file

from faults.edits import TENSORS, seal
from faults.warm import check_promise, command, run_case
from references.models import tiny_bert
from references.tables import QUICK, table
from vicinal.estimators import NeighborRegressor, load_model, save_model
from vicinal.index import MilvusIndex, load_index, open_index

pytestmark = pytest.mark.sweep(3)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder of a small model, and the rows it was fitted on."""
    frame, price = table(60)
    model = NeighborRegressor(columns={"note": "text"}, index="exact", metric="network", readout="rows", **QUICK).fit(
        frame, price
    )
    folder = tmp_path_factory.mktemp("whole") / "model"
    save_model(model, folder, {"target": "price"})
    frame.assign(price=price).to_csv(folder.with_name("rows.csv"), index=False)
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    """A copy of it that may be edited."""
    shutil.copytree(whole, tmp_path / "model")
    return tmp_path / "model"


def rewrite(path, change):
    """Edit a JSON file of a model and make its checksums valid again."""
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))
    seal(next(parent for parent in path.parents if (parent / "config.json").is_file()))


def set_index(folder, name):
    rewrite(folder / "config.json", lambda config: config["parameters"].update(index=name))


# A path or an address.


@pytest.mark.parametrize(
    "name", ["milvus:/PLACE/other.db", "milvus:http://127.0.0.1:9", "milvus:", "faiss:IMI2x14,Flat"]
)
def test_an_index_elsewhere_is_opened_only_if_it_is_named_again(folder, name, tmp_path, monkeypatch, capsys):
    from vicinal.cli import run

    def connected(uri, token):
        raise AssertionError(f"opened {uri}")

    monkeypatch.setattr("vicinal.index.milvus.connected", connected)
    name = name.replace("/PLACE", str(tmp_path))
    set_index(folder, name)
    rows = tmp_path / "rows.csv"
    table(60)[0].to_csv(rows, index=False)
    for way in ("predict", "evaluate"):
        assert run([way, str(folder), str(rows)]) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: --index: expected ")
        assert f"say --index {name}" in error
    with pytest.raises(ValueError, match=r"^index: expected .* to be given again"):
        NeighborRegressor.load(folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "rows.csv"]
    assert run(["predict", str(folder), str(rows), "--index", "exact"]) == 0


@pytest.mark.slow
def test_a_database_that_is_named_again_is_the_one_that_is_used(folder, tmp_path):
    pytest.importorskip("milvus_lite", reason="milvus-lite is an optional package")
    wanted = load_model(folder).predict(table(60)[0])
    set_index(folder, f"milvus:{tmp_path / 'evil.db'}")
    model = load_model(folder, index=f"milvus:{tmp_path / 'mine.db'}")
    np.testing.assert_allclose(model.predict(table(60)[0]), wanted, atol=1e-3)
    model.fitted_.near.index.close()
    assert (tmp_path / "mine.db").exists()
    assert not (tmp_path / "evil.db").exists()


def test_the_folder_of_an_index_says_neither_kind_nor_place(folder, tmp_path):
    pytest.importorskip("milvus_lite", reason="milvus-lite is an optional package")
    index = open_index(f"milvus:{tmp_path / 'bank.db'}", dim=4)
    index.save(tmp_path / "index")
    index.close()
    with pytest.raises(ValueError, match=r"^uri: expected the place of the database to be given"):
        load_index(tmp_path / "index")
    for number in range(2):
        shutil.copytree(tmp_path / "index", folder / "index" / str(number))
        settings = folder / "index" / str(number) / "index.json"
        rewrite(settings, lambda config: config["settings"].update(uri=f"{tmp_path}/evil.db"))
    load_model(folder).predict(table(60)[0])
    assert not (tmp_path / "evil.db").exists()
    rewrite(folder / "index/0/index.json", lambda config: config["settings"].update(collection="a b; drop"))
    with pytest.raises(ValueError, match=r"^index.json: expected valid settings, got .* at 'collection'"):
        MilvusIndex.load(folder / "index/0", uri=str(tmp_path / "bank.db"))


@pytest.mark.parametrize("name", ["hub:somebody/model", "folder:/etc"])
def test_an_encoder_elsewhere_is_read_only_if_it_is_named_again(folder, name, monkeypatch):
    def locate(*args):
        raise AssertionError(f"read {args}")

    monkeypatch.setattr("vicinal.encoders.transformers.locate", locate)
    rewrite(folder / "config.json", lambda config: config["parameters"].update(encoders={"text": name}))
    with pytest.raises(ValueError, match=r"^encoders: expected 'ngrams' for 'note', as it was fitted with|to be given"):
        load_model(folder, encoders={"text": name})
    assert load_model(folder).encoders is None
    part = {"encoder": name, "kind": "text", "columns": ["note"], "tune": "none", "pooling": "mean"}
    part |= {"revision": None, "weights": "0" * 64, "held": False}
    rewrite(folder / "config.json", lambda config: config["encoder"]["parts"].__setitem__(2, part))
    with pytest.raises(ValueError, match=rf"^encoders: expected {name} .* say --encoder note={name} \(encoders="):
        load_model(folder)
    with pytest.raises(AssertionError, match="read"):
        load_model(folder, encoders={"text": name})


@pytest.mark.slow
def test_a_model_folder_that_has_moved_is_named_again(tmp_path):
    pytest.importorskip("transformers")
    (tmp_path / "bert").mkdir()
    tiny_bert(tmp_path / "bert")
    frame = pd.DataFrame({"note": ["red shoes", "old hat", "blue"] * 5})
    settings = {"columns": {"note": "text"}, "hidden": (4,), "members": 1, "max_epochs": 1}
    model = NeighborRegressor(encoders={"text": f"folder:{tmp_path / 'bert'}"}, **settings).fit(frame, range(15))
    model.save(tmp_path / "model")
    with pytest.raises(
        ValueError, match=r"^encoders: expected folder:.*bert of this model's settings to be given again"
    ):
        load_model(tmp_path / "model")
    (tmp_path / "bert").rename(tmp_path / "moved")
    for key in ("text", "note"):
        again = load_model(tmp_path / "model", encoders={key: f"folder:{tmp_path / 'moved'}"})
        np.testing.assert_allclose(again.predict(frame), model.predict(frame))
        assert again.encoders == {key: f"folder:{tmp_path / 'moved'}"}
    file = tmp_path / "moved" / "model.safetensors"
    save_file({name: value + 1 for name, value in load_file(file).items()}, file, {"format": "pt"})
    with pytest.raises(ValueError, match=r"expected weights with sha256 .* the model was changed"):
        load_model(tmp_path / "model", encoders={"note": f"folder:{tmp_path / 'moved'}"})


@pytest.mark.parametrize("name", ["cache_dir", "root", "checkpoint_dir", "logger", "verbose"])
def test_a_folder_sets_no_parameter_of_a_run(folder, name, tmp_path):
    rewrite(folder / "config.json", lambda config: config["parameters"].update({name: str(tmp_path / "reached")}))
    with pytest.raises(ValueError, match=rf"^config.json: expected valid settings, got .* at 'parameters.{name}'"):
        load_model(folder)
    assert not (tmp_path / "reached").exists()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "bank.safetensors", "held", "held/rows.parquet"])
def test_links_out_of_the_folder_are_refused_and_those_inside_are_followed(folder, name, tmp_path):
    (folder / name).rename(tmp_path / "outside")
    (folder / name).symlink_to(tmp_path / "outside", target_is_directory=name == "held")
    own = name.removeprefix("held/")
    with pytest.raises(ValueError, match=rf"^{own}: expected a file in .*, got a link out of it"):
        load_model(folder)
    (folder / name).unlink()
    inside = (folder / name).with_name("inside")
    (tmp_path / "outside").rename(inside)
    (folder / name).symlink_to(inside, target_is_directory=name == "held")
    load_model(folder).predict(table(9)[0])


def test_a_folder_may_itself_be_a_link(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    load_model(tmp_path / "link").predict(table(9)[0])


# Memory.


def deep(key, value):
    """A change of config.json: the setting at ``key``, with dots, becomes ``value``."""

    def change(config):
        *path, last = key.split(".")
        for part in path:
            config = config[int(part)] if isinstance(config, list) else config[part]
        config[last] = value

    return change


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("parameters.members", 30_000, marks=pytest.mark.slow),
        ("parameters.members", 256),
        ("parameters.hidden", [1 << 24, 1 << 24]),
        ("parameters.hidden", [10**12]),
        ("parameters.hidden", [4] * 10_000),
        ("encoder.parts.2.buckets", 1 << 40),
        ("encoder.parts.2.buckets", 1 << 24),
        ("encoder.parts.2.vectors", 1 << 24),
        ("encoder.parts.2.width", 1 << 24),
        ("n_features", 10**15),
    ],
)
def test_no_memory_is_asked_for_before_settings_and_weights_agree(folder, key, value, tmp_path):
    rewrite(folder / "config.json", deep(key, value))
    rows = folder.with_name("rows.csv")
    table(3)[0].to_csv(rows, index=False)
    outcome = run_case(tmp_path / "case", command, "predict", folder, rows, memory=200 << 20)
    assert outcome.code == 2
    check_promise(outcome, memory=100 << 20)


# Values.


@pytest.mark.parametrize("file", TENSORS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_none_are_refused_by_file(folder, file, value):
    whole = load_file(folder / file)
    for name in sorted(whole):
        tensors = {key: tensor.copy() for key, tensor in whole.items()}
        if tensors[name].dtype.kind != "f" or not tensors[name].size:
            continue
        tensors[name].reshape(-1)[-1] = value
        save_file(tensors, folder / file)
        seal(folder)
        with pytest.raises(ValueError, match=rf"^{file.removeprefix('held/')}: expected"):
            load_model(folder).predict(table(9)[0])


def test_rows_of_a_large_bank_are_checked_when_they_are_used(folder, monkeypatch):
    monkeypatch.setattr("vicinal.estimators.saving._VERIFIED", 0)
    tensors = {key: tensor.copy() for key, tensor in load_file(folder / "bank.safetensors").items()}
    tensors["vectors"][7] = np.nan
    save_file(tensors, folder / "bank.safetensors")
    seal(folder)
    frame = table(9)[0]
    sentence = r"^bank.safetensors: expected finite numbers as vectors, got others in row 7; the file was edited"
    uses = (
        lambda model: model.predict(frame),
        lambda model: model.explain(frame, 2),
        lambda model: model.kneighbors(frame, 2),
        lambda model: model.predict_interval(frame, 0.5),
    )
    for index in (None, "exact"):
        set_index(folder, index)
        for use in uses:
            model = load_model(folder)
            with pytest.raises(ValueError, match=sentence):
                use(model)
    with pytest.raises(ValueError, match=sentence):
        load_model(folder, verify=True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("encoder.parts.0.mean", []),
        ("encoder.parts.0.factor", [1.0, 1.0]),
        ("encoder.parts.0.factor", [-1.0]),
        ("encoder.parts.0.flagged", []),
        ("encoder.parts.0.flagged", ["size", "size"]),
        ("encoder.parts.0.columns", ["town"]),
        ("encoder.parts.1.levels", [["bath"]]),
        ("encoder.parts.1.levels", [["bath", "bath"]]),
        ("encoder.parts.1.has_other", []),
        ("kinds", {"size": "number", "town": "number", "note": "text"}),
        ("label_range", None),
        ("label_range", [3.0, 3.0]),
        ("classes", ["a", "b"]),
        ("features", ["size", "town"]),
        ("features", ["town", "size", "note"]),
        ("task", "classification"),
        ("parameters.final_tanh", 1),
        ("parameters.similarity", "nearness"),
        ("notes", {"target": ["price"]}),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(folder, key, value):
    rewrite(folder / "config.json", deep(key, value))
    with pytest.raises(ValueError, match=r"^\w[\w. ]*: expected .*, got "):
        load_model(folder).predict(table(9)[0])


# Checksums.


@pytest.mark.parametrize(
    "name",
    ["SHA256SUMS", "config.json", "model.safetensors", "held/bank.json", "rows.parquet"],
)
def test_a_file_of_a_terabyte_is_refused_before_its_checksum(folder, name, tmp_path):
    with (folder / name).open("r+b") as file:
        file.truncate(1 << 40)  # it takes no room
    rows = tmp_path / "rows.csv"
    table(3)[0].to_csv(rows, index=False)
    outcome = run_case(tmp_path / "case", command, "predict", folder, rows)
    assert outcome.code == 2
    assert f"error: {name.removeprefix('held/')}: expected " in outcome.err
    check_promise(outcome, memory=200 << 20)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"no checksums", b"a\nb  \n\n"])
def test_checksums_that_are_none_are_refused(folder, content):
    (folder / "SHA256SUMS").write_bytes(content)
    with pytest.raises(ValueError, match=r"^(SHA256SUMS|config.json): expected "):
        load_model(folder)
