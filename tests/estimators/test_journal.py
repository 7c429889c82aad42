"""The journal of a model folder: acknowledged changes last, forgotten rows are nowhere, torn lines are passed over."""

import io
import os
import shutil
import signal
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from faults.warm import end, run_case, start
from vicinal.core import files
from vicinal.core.folders import CHANGES, SUMS
from vicinal.estimators import ModelFolder, NeighborClassifier, NeighborRegressor, load_model
from vicinal.estimators.journal import read_changes


def rows(count, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"size": rng.uniform(0, 10, count), "town": rng.choice(["york", "bath"], count)})
    return frame, frame["size"].to_numpy() + (frame["town"] == "york") + rng.normal(0, 0.1, count)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    place = tmp_path_factory.mktemp("journal") / "m"
    frame, price = rows(60)
    NeighborRegressor(metric="kernel").fit(frame, price, ids=[f"h{i}" for i in range(60)]).save(place)
    return place


@pytest.fixture
def place(fitted, tmp_path):
    shutil.copytree(fitted, tmp_path / "m")
    return tmp_path / "m"


def written(path):
    """Which file it is, and when it was written."""
    return path.stat().st_ino, path.stat().st_mtime_ns


def add(folder, names, seed=1):
    frame, price = rows(len(names), seed)
    return folder.add(frame, price, ids=names)


def contents(place):
    """All bytes that a reader of the folder can meet, parquet unpacked."""
    text = b""
    for path in sorted(place.rglob("*")):
        if path.is_file():
            text += path.read_bytes()
            if path.suffix == ".parquet":
                text += pd.read_parquet(path).to_csv().encode()
    return text


def test_an_image_that_is_added_as_bytes_is_shown_from_the_journal_and_from_the_files(tmp_path):
    def photo(shade):
        file = io.BytesIO()
        Image.new("RGB", (16, 16), (shade, 90, 90)).save(file, "PNG")
        return file.getvalue()

    frame = pd.DataFrame({"photo": [photo(10 * place) for place in range(20)]})
    model = NeighborRegressor(max_epochs=1, members=1, columns={"photo": "image"}, encoders={"photo": "cnn"})
    model.fit(frame, np.arange(20.0)).save(tmp_path / "m")
    folder = ModelFolder(tmp_path / "m")
    name = folder.add(frame.iloc[[3]], [3.0])[0]
    for _ in range(2):
        shown = load_model(tmp_path / "m").bank_.rows["photo"].iloc[-1]
        assert Image.open(io.BytesIO(shown)).getpixel((8, 8)) == pytest.approx((30, 90, 90), abs=8)
        folder.compact()
    assert folder.model.labels_of([name]) == [3.0]


def test_changes_last_and_the_files_of_the_bank_are_not_written_again(place):
    before = written(place / "bank.safetensors")
    folder = ModelFolder(place, who="ann")
    add(folder, ["a", "b"])
    assert folder.relabel(["a", "h3"], [7.0, 8.0]) == [rows(2, 1)[1][0], rows(60)[1][3]]
    loaded, query = load_model(place), rows(9, seed=5)[0]
    assert loaded.predict(query) == pytest.approx(folder.model.predict(query), abs=0)
    assert loaded.labels_of(["a", "h3", "b"]) == [7.0, 8.0, rows(2, 1)[1][1]]
    assert [(c.who, old, new) for c, old, new in loaded.changes_.relabels("h3")] == [("ann", rows(60)[1][3], 8.0)]
    assert loaded.bank_.rows.iloc[-2:]["town"].tolist() == rows(2, 1)[0]["town"].tolist()
    assert written(place / "bank.safetensors") == before
    folder.compact()
    again = load_model(place)
    assert again.predict(query) == pytest.approx(loaded.predict(query), abs=1e-12)
    assert (again.changes_.sequence, again.changes_.pending) == (2, 0)
    assert "town" not in (place / CHANGES).read_text()
    assert len(again.changes_.relabels("h3")) == 1
    assert CHANGES not in (place / SUMS).read_text()


def test_a_record_torn_at_any_byte_is_passed_over_and_its_number_is_free(place):
    folder = ModelFolder(place)
    add(folder, ["a"])
    first = (place / CHANGES).read_bytes()
    add(folder, ["b"], seed=2)
    whole = (place / CHANGES).read_bytes()
    for cut in range(len(first), len(whole)):
        (place / CHANGES).write_bytes(whole[:cut])
        changes, stop = read_changes(place)
        assert ([change.sequence for change in changes], stop) == ([1], len(first))
    (place / CHANGES).write_bytes(whole[: len(first) + 40] + bytes(len(whole) - len(first) - 41) + b"\n")
    assert load_model(place).bank_.has(["a", "b"]).tolist() == [True, False]
    add(ModelFolder(place), ["c"], seed=2)
    assert [change.sequence for change in read_changes(place)[0]] == [1, 2]
    assert load_model(place).bank_.has(["a", "b", "c"]).tolist() == [True, False, True]


def test_a_damaged_line_is_refused_by_its_number(place):
    folder = ModelFolder(place)
    for seed, name in enumerate("abc"):
        add(folder, [name], seed)
    whole = (place / CHANGES).read_bytes()
    lines = whole.splitlines(keepends=True)
    (place / CHANGES).write_bytes(lines[0] + lines[1].replace(b"size", b"sise") + lines[2])
    with pytest.raises(ValueError, match=r"^changes.jsonl: expected a whole record in line 2 of .*, got a damaged one"):
        load_model(place)
    (place / CHANGES).write_bytes(lines[0] + lines[2])
    with pytest.raises(ValueError, match=r"^changes.jsonl: expected change 2, got 3; a line is missing"):
        load_model(place)


@pytest.mark.filterwarnings("ignore::vicinal.core.ColumnWarning")  # of towns that are new
def test_a_forgotten_row_is_in_no_file_nor_what_it_was_labelled(place):
    folder = ModelFolder(place)
    (place / "theirs.txt").write_text("mine")
    frame = pd.DataFrame({"size": [1.25, 2.5, 3.5], "town": ["PLANTED-ONE", "PLANTED-TWO", "bath"]})
    folder.add(frame, [5.0625, 5.03125, 5.5], ids=["a", "b", "c"])
    folder.relabel(["a", "b"], [6.0625, 6.03125])
    folder.compact()
    folder.relabel(["a", "b"], [7.0625, 7.03125])

    def left(name, *labels):
        text = contents(place)
        signs = [name.encode(), *(f"{x}".encode() for x in labels), *(struct.pack("<d", x) for x in labels)]
        return [sign in text for sign in signs]

    assert left("PLANTED-TWO") == [True]
    assert any(left("PLANTED-ONE", 5.0625, 6.0625, 7.0625))
    folder.forget(["a"])
    assert not any(left("PLANTED-ONE", 5.0625, 6.0625, 7.0625))
    assert any(left("PLANTED-TWO", 5.03125, 6.03125, 7.03125))
    assert [old for _, old, _ in load_model(place).changes_.relabels("b")] == [5.03125, 6.03125]
    folder.forget(["b", "h1"])
    assert not any(left("PLANTED-TWO", 5.03125, 6.03125, 7.03125))
    assert [(c.what, c.ids) for c in load_model(place).changes_.history] == [("forget", ["a"]), ("forget", ["b", "h1"])]
    assert sorted(path.name for path in place.iterdir() if "~" in path.name) == []
    assert (place / "theirs.txt").read_text() == "mine"
    load_model(place).save(place)
    assert len(load_model(place).changes_.history) == 2


def test_what_others_change_is_seen_after_a_refresh_also_a_folder_written_anew(place):
    one, other = ModelFolder(place), ModelFolder(place)
    add(one, ["a"])
    assert (other.refresh(), other.refresh()) == (True, False)
    other.relabel(["a"], [9.0])
    add(one, ["b"], seed=2)
    assert one.model.labels_of(["a"]) == [9.0]
    one.compact()
    add(other, ["c"], seed=3)
    other.forget(["a"])
    assert one.refresh()
    assert one.model.bank_.has(["a", "b", "c"]).tolist() == [False, True, True]
    assert [change.sequence for change in read_changes(place)[0]] == [5]


def test_a_change_that_is_refused_or_cannot_be_written_changes_nothing(place, monkeypatch):
    folder = ModelFolder(place)
    add(folder, ["a"])
    before, query = (place / CHANGES).read_bytes(), rows(3, 9)[0]
    known = folder.model.predict(query)
    frame, price = rows(2, 3)
    with pytest.raises(ValueError, match="ids: expected ids that the bank has not yet"):
        folder.add(frame, price, ids=["x", "h1"])
    with pytest.raises(ValueError, match="ids: expected ids of rows that the model was given, got 'nobody'"):
        folder.relabel(["a", "nobody"], [1.0, 2.0])
    with pytest.raises(ValueError, match="y: expected a label in each row"):
        folder.relabel(["a", "h1"], [1.0, float("nan")])

    def full(layer, path):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files.FileLayer, "sync", full)
        with pytest.raises(OSError, match="No space"):
            folder.add(frame, price, ids=["x", "y"])
    assert (place / CHANGES).read_bytes() == before
    assert folder.model.predict(query) == pytest.approx(known, abs=0)
    assert folder.model.bank_.has(["a", "x"]).tolist() == [True, False]


def write_and_die(place, moment):
    """Add a row and end by SIGKILL before or after the journal is synced, or in the middle of its line."""
    sync, folder = files.FileLayer.sync, ModelFolder(place)

    def die(layer, path):
        if moment == "middle":
            os.truncate(path, path.stat().st_size - 30)
        if moment == "after":
            sync(layer, path)
        os.kill(os.getpid(), signal.SIGKILL)

    files.FileLayer.sync = die
    add(folder, ["dead"])


@pytest.mark.slow
@pytest.mark.parametrize(("moment", "there"), [("middle", False), ("after", True)])
def test_a_kill_while_a_record_is_written_leaves_it_whole_or_not_at_all(place, tmp_path, moment, there):
    add(ModelFolder(place), ["a"])
    assert run_case(tmp_path / "case", write_and_die, place, moment).code == -9
    assert load_model(place).bank_.has(["a", "dead"]).tolist() == [True, there]
    add(ModelFolder(place), ["b"], seed=4)
    assert [change.sequence for change in read_changes(place)[0]] == list(range(1, 3 + there))
    assert load_model(place).bank_.has(["a", "b"]).all()


def add_many(place, letter):
    folder = ModelFolder(place)
    for number in range(8):
        add(folder, [f"{letter}{number}"], seed=number)
        if number == 3:
            folder.compact()


@pytest.mark.slow
def test_two_writers_at_once_lose_nothing(place, tmp_path):
    cases = [(tmp_path / letter, start(tmp_path / letter, add_many, place, letter)) for letter in "xy"]
    for case, process in cases:
        outcome = end(process, case)
        assert outcome.code == 0, outcome.err
    model = load_model(place)
    assert model.bank_.has([f"{letter}{number}" for letter in "xy" for number in range(8)]).all()
    assert model.changes_.sequence == 16


def test_calibration_and_intervals_follow_new_labels():
    frame, price = rows(60)
    model = NeighborRegressor(metric="kernel").fit(frame, price)
    wide = model.predict_interval(frame.iloc[:2], 0.5)
    far = model.calibration_.ids
    model.relabel(far, model.calibration_.labels.numpy() + 50.0)
    assert model.calibration_.labels.tolist() == model.labels_of(far)
    assert np.ptp(model.predict_interval(frame.iloc[:2], 0.5), axis=1).min() > 2 * np.ptp(wide, axis=1).max()


@pytest.mark.parametrize("several", [False, True])
def test_a_relabelled_row_counts_as_one_that_came_with_that_label(several):
    frame, price = rows(40)
    y = [["low"] if p < 5 else ["high", "dear"] for p in price] if several else np.where(price < 5, "low", "high")
    settings = {"max_epochs": 1, "members": 2, "hidden": (8, 4), "validation_fraction": 0}
    model = NeighborClassifier(**settings).fit(frame, y)
    new = [["dear"], []] if several else [{"low": "high", "high": "low"}[y[at]] for at in (3, 4)]
    query = rows(5, 8)[0]
    before = model.predict_proba(query)
    with pytest.raises(ValueError, match="y: expected"):
        model.relabel([3, 4], [["dear"], ["other"]] if several else ["low", "other"])
    assert model.predict_proba(query) == pytest.approx(before, abs=0)
    model.relabel([3, 4], new)
    assert model.labels_of([3, 4]) == new
    expected = model.predict_proba(query)
    model.out_of_fold_predictions()
    model.forget([3, 4]).add(frame.iloc[[3, 4]], new, ids=[3, 4])
    assert model.predict_proba(query) == pytest.approx(expected, abs=1e-6)
    assert not np.allclose(before, expected)


def test_links_out_of_the_folder_are_no_journal(place, tmp_path):
    Path(tmp_path / "elsewhere").write_bytes(b"")
    (place / CHANGES).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"changes\.jsonl: expected a file in"):
        load_model(place)
