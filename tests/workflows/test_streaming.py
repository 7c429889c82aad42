"""predict_file: what predict_table says, by batches, in any form of file, and behind where it was stopped."""

import shutil
import sqlite3

import numpy as np
import pandas as pd
import pytest

from faults.crashing import predict_and_die
from faults.warm import run_case
from vicinal import NeighborClassifier, NeighborRegressor
from vicinal.core.progress import listening
from vicinal.data import read_table, write_table
from vicinal.data.streaming import stream_table
from vicinal.workflows import add_table, predict_table, streaming
from vicinal.workflows.streaming import predict_file

ROWS = 700


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Models of numbers and of words with ids, and a table of new rows."""
    folder = tmp_path_factory.mktemp("streamed")
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(60, 2)), columns=["a", "b"])
    target = frame["a"] + frame["b"] ** 2
    NeighborRegressor(metric="kernel", readout="rows", max_neighbors=5).fit(frame, target).save(folder / "numbers")
    words = frame.assign(c=np.where(frame["a"] > 0, "x", "y"))
    settings = {"max_epochs": 2, "members": 1, "hidden": (8, 4)}
    model = NeighborClassifier(**settings, metric="kernel", random_state=0).fit(
        words, np.where(target > 1, "high", "low")
    )
    model.notes_ = {"id": "name"}
    model.save(folder / "words")
    new = pd.DataFrame(random.normal(size=(ROWS, 2)), columns=["a", "b"]).assign(c=random.choice(["x", "y", "z"], ROWS))
    new.insert(0, "name", np.arange(1000, 1000 + ROWS))
    new["d"] = "=1+2"
    return folder, new


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    """Batches of 64 rows and parts of 128, so that seven hundred rows are many."""
    monkeypatch.setattr(streaming, "BATCH", 64)
    monkeypatch.setattr(streaming, "_MOST", 128)


def read_back(path):
    """A file of predictions as a table."""
    if path.suffix == ".sqlite":
        with sqlite3.connect(path) as database:
            return pd.read_sql_query(f"select * from {path.stem}", database)
    return (pd.read_parquet(path) if path.suffix == ".parquet" else read_table(path)).reset_index(drop=True)


def assert_same(one, other):
    """The same cells, to the last digit but for what blocks of other sizes round."""
    pd.testing.assert_frame_equal(one, other, check_dtype=False, check_column_type=False, rtol=1e-12)


@pytest.mark.sweep(2)
@pytest.mark.filterwarnings("ignore::vicinal.core.ColumnWarning")  # of a category that is new
@pytest.mark.parametrize("model", ["numbers", "words"])
@pytest.mark.parametrize(
    ("given", "written"),
    [("q.parquet", "out.csv"), ("q.csv", "out.parquet"), ("q.jsonl", "out.jsonl"), ("q.tsv", "out.sqlite")],
)
@pytest.mark.sweep(5)
def test_batches_give_just_what_one_go_gives(place, tmp_path, model, given, written):
    folder, new = place
    write_table(new, tmp_path / given)
    settings = {"explain": 2, "keep": ["name", "d"]}
    whole = predict_table(folder / model, tmp_path / given, **settings).flat()
    assert whole.columns[:4].tolist() == ["row", "name", "d", "prediction"]
    assert predict_file(folder / model, tmp_path / given, tmp_path / written, **settings) == ROWS
    assert_same(read_back(tmp_path / written), whole)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([given, written])


class Killed(BaseException):
    """What stops a run as a kill would, as far as files go."""


def stopped_after(place, given, out, monkeypatch, parts=2, **settings):
    """Predict, and be stopped after so many parts; gives what was said."""
    folder, _ = place
    lines, put = [], streaming._put_aside

    def put_aside(frames, work):
        if len(streaming._parts(work)) == parts:
            raise Killed
        put(frames, work)

    with monkeypatch.context() as patch:
        patch.setattr(streaming, "_put_aside", put_aside)
        with pytest.raises(Killed):
            predict_file(folder / "numbers", given, out, log=lines.append, **settings)
    return lines


def test_the_same_call_goes_on_where_it_was_stopped(place, tmp_path, monkeypatch):
    folder, new = place
    given, out = tmp_path / "q.parquet", tmp_path / "out.parquet"
    write_table(new, given)
    stopped_after(place, given, out, monkeypatch)
    assert not out.exists()
    lines, steps, predicted, answer = [], [], [], streaming.answer_rows
    monkeypatch.setattr(
        streaming,
        "answer_rows",
        lambda model, frame, **more: predicted.extend(frame.index) or answer(model, frame, **more),
    )
    with listening(steps.append):
        assert predict_file(folder / "numbers", given, out, log=lines.append) == ROWS
    assert lines[0] == "going on behind 256 rows that were predicted before"
    assert predicted == list(range(257, ROWS + 1))
    assert [(step.done, step.total) for step in steps][-1] == (ROWS - ROWS % 128, ROWS)
    assert_same(read_back(out), predict_table(folder / "numbers", given).flat())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.parquet", "q.parquet"]


@pytest.mark.slow  # but for the start of its process it takes a second
def test_a_run_that_is_killed_with_signal_9_is_gone_on_with(place, tmp_path):
    folder, new = place
    given, out = tmp_path / "q.parquet", tmp_path / "out.parquet"
    write_table(new, given)
    assert run_case(tmp_path / "case", predict_and_die, folder / "numbers", given, out, 3).code == -9
    assert not out.exists()
    lines = []
    predict_file(folder / "numbers", given, out, log=lines.append)
    assert lines[0] == "going on behind 384 rows that were predicted before"
    assert_same(read_back(out), predict_table(folder / "numbers", given).flat())


@pytest.mark.slow
@pytest.mark.sweep(2)
@pytest.mark.filterwarnings("ignore::vicinal.core.ColumnWarning")
@pytest.mark.parametrize("other", ["table", "setting", "model"])
def test_another_table_model_or_setting_begins_anew_and_says_so(place, tmp_path, monkeypatch, other):
    folder, new = place
    given, out = tmp_path / "q.parquet", tmp_path / "out.csv"
    write_table(new, given)
    stopped_after(place, given, out, monkeypatch)
    if other == "table":
        write_table(new[::-1], given)
    model = folder / ("words" if other == "model" else "numbers")
    settings = {"explain": 1} if other == "setting" else {}
    lines = []
    predict_file(model, given, out, log=lines.append, **settings)
    assert any(line.startswith("beginning anew: 256 rows were predicted before, of another table") for line in lines)
    assert_same(read_back(out), predict_table(model, given, **settings).flat())


def test_rows_that_are_added_to_the_bank_meanwhile_begin_anew(place, tmp_path, monkeypatch):
    folder, new = place
    shutil.copytree(folder / "numbers", tmp_path / "numbers")
    given, out, lines = tmp_path / "q.parquet", tmp_path / "out.parquet", []
    write_table(new, given)
    stopped_after((tmp_path, new), given, out, monkeypatch)
    add_table(tmp_path / "numbers", new[:5].assign(y=100.0), target="y")
    predict_file(tmp_path / "numbers", given, out, log=lines.append)
    assert any(line.startswith("beginning anew: 256 rows were predicted before") for line in lines)
    assert_same(read_back(out), predict_table(tmp_path / "numbers", given).flat())


def test_a_bad_cell_far_down_is_named_and_leaves_nothing(place, tmp_path):
    folder, new = place
    write_table(new.assign(a=[*new["a"][:-60], *["many"] * 60]), tmp_path / "q.csv")
    with pytest.raises(ValueError, match=r"^a: expected a number in row \d+, got 'many'"):
        predict_file(folder / "numbers", tmp_path / "q.csv", tmp_path / "out.csv")
    write_table(new.drop(columns="a"), tmp_path / "q.csv")
    with pytest.raises(ValueError, match=r"^keep: expected one of the columns .*, got 'e'"):
        predict_file(folder / "words", tmp_path / "q.csv", tmp_path / "out.csv", keep=["e"])
    with pytest.raises(ValueError, match="expected the column 'a', which the model reads, got none"):
        predict_file(folder / "numbers", tmp_path / "q.csv", tmp_path / "out.csv")
    write_table(new[:0], tmp_path / "q.csv")
    with pytest.raises(ValueError, match="expected at least one row"):
        predict_file(folder / "numbers", tmp_path / "q.csv", tmp_path / "out.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["q.csv"]


def test_batches_of_a_file_are_its_rows(tmp_path):
    lines = [f'{{"a": {n}}}' if n < 40 else f'{{"a": {n}, " b ": "{n}"}}' for n in range(100)]
    (tmp_path / "q.jsonl").write_text("\n".join(lines))
    frames = list(stream_table(tmp_path / "q.jsonl", 30, need=["b", "c"]))
    assert [len(frame) for frame in frames] == [30, 30, 30, 10]
    assert [list(frame.columns) for frame in frames] == [["a", "b"]] * 4
    assert np.concatenate([frame.index for frame in frames]).tolist() == list(range(1, 101))
    (tmp_path / "q.csv").write_text("a;b\n" + "1,500;x\n" * 50 + "2,5;y\n" * 50)
    said = []
    frames = list(stream_table(tmp_path / "q.csv", 60, log=said.append))
    assert frames[0]["a"].tolist() == ["1,500"] * 50 + ["2,5"] * 10, "as written, for a model to read"
    assert said == ["q.csv was read with semicolons between cells"]
    (tmp_path / "q.csv").write_text("a,b\n" + "1,2\n" * 99 + "1,2,3\n")
    with pytest.raises(ValueError, match=r"as many cells in each row as in the header, got: .* line 101, saw 3"):
        list(stream_table(tmp_path / "q.csv", 10))
