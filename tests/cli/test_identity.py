"""The program knows a row again in any file, whatever type its columns of ids and groups have there."""

import json

import numpy as np
import pandas as pd
import pytest

from vicinal.cli import run

pytestmark = pytest.mark.sweep(12)

ROWS = 120
FIT = ["--target", "y", "--id", "key", "--epochs", "2", "--hidden", "16,8", "--members", "1", "-q"]
FIT += ["--mask", "topk", "--similarity", "squared_l2", "--learning-rate", "1e-12", "--no-baselines"]


def table():
    """Twins with labels that mean nothing: a row is known by its key, twins by their pair."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS // 2, 3)).repeat(2, axis=0) + 1e-3 * rng.normal(size=(ROWS, 3))
    frame = pd.DataFrame(x.round(4), columns=["a", "b", "c"])
    keys = rng.permutation(3 * ROWS)[:ROWS]
    return frame.assign(key=keys, pair=np.arange(ROWS) // 2, y=rng.permutation(np.linspace(-1, 1, ROWS)).round(3))


def as_dtype(dtype):
    return lambda frame: frame.astype({"key": dtype, "pair": dtype})


def as_written(form):
    return lambda frame: frame.assign(**{name: [form.format(cell) for cell in frame[name]] for name in ("key", "pair")})


def with_a_word(frame):
    """The row that is new to every model has a word for a key, and another for a pair."""
    words = frame.astype({"key": object, "pair": object})
    words.loc[words.index[-1], ["key", "pair"]] = ["a word", "another"]
    return words


FILES = {
    "whole numbers.csv": lambda frame: frame,
    "floats.csv": as_dtype(float),
    "padded.csv": as_written(" {} "),
    "a word.csv": with_a_word,
    "floats and a word.csv": lambda frame: with_a_word(as_dtype(float)(frame)),
    "whole numbers.tsv": lambda frame: frame,
    "whole numbers.parquet": as_dtype("int16"),
    "floats.parquet": as_dtype(float),
    "nullable.parquet": as_dtype("Int64"),
    "texts.parquet": as_dtype(str),
    "texts of floats.parquet": as_written("{}.0"),
    "categories.parquet": as_dtype("category"),
    "whole numbers.jsonl": lambda frame: frame,
    "floats.jsonl": as_dtype(float),
    "texts.jsonl": as_dtype(str),
    "a word.jsonl": with_a_word,
}
WRITERS = {
    "csv": lambda frame, path: frame.to_csv(path, index=False),
    "tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    "parquet": lambda frame, path: frame.to_parquet(path),
    "jsonl": lambda frame, path: path.write_text("\n".join(map(json.dumps, frame.to_dict("records")))),
}


def write(folder, name, frame):
    path = folder / name
    WRITERS[path.suffix[1:]](FILES[name](frame), path)
    return path


def is_grouped(model):
    return json.loads((model / "config.json").read_text())["notes"]["group"] is not None


def program(capsys, *arguments):
    capsys.readouterr()
    assert run(list(map(str, arguments))) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


GROUPED, ALONE = ["--group", "pair"], ["--drop", "pair"]
MODELS = [("whole numbers.csv", GROUPED), ("a word.csv", ALONE), ("floats.parquet", GROUPED), ("texts.parquet", ALONE)]


@pytest.fixture(scope="module", params=MODELS, ids=lambda model: model[0])
def fitted(request, tmp_path_factory):
    """A model with ids or with ids and groups, and its table; the last row is new to it."""
    folder = tmp_path_factory.mktemp("fitted")
    frame, (name, groups) = table(), request.param
    assert run(["fit", str(write(folder, name, frame)), *FIT, *groups, "--out", str(folder / "model")]) == 0
    tested = json.loads((folder / "model/splits.json").read_text())["splits"][0]["test"]
    return folder / "model", pd.concat([frame.drop(tested[-1]), frame.loc[tested[-1:]]])


@pytest.mark.sweep(5)
@pytest.mark.parametrize("name", FILES)
def test_no_row_is_its_own_neighbor(fitted, name, tmp_path, capsys):
    model, frame = fitted
    found = program(capsys, "predict", model, write(tmp_path, name, frame), "--explain", 5, "--json")
    keys = [str(key) for key in frame["key"]]
    names = frame["pair"] if is_grouped(model) else keys
    pairs = dict(zip(keys, names, strict=True))
    for key, row in zip(keys, found, strict=True):
        neighbors = {str(n["id"]) for n in row["neighbors"] if n["weight"] > 0}
        assert neighbors
        assert pairs[key] not in {pairs[neighbor] for neighbor in neighbors}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_row_stands_where_the_split_put_it(fitted, name, tmp_path, capsys):
    model, frame = fitted
    split = json.loads((model / "splits.json").read_text())["splits"][0]
    found = program(capsys, "evaluate", model, write(tmp_path, name, frame), "--json")
    sizes = {"bank": len(split["train"]), "held out": len(split["validation"]), "new": len(split["test"])}
    assert found["rows"] == sizes
    told = json.loads((model / "config.json").read_text())["notes"]["scores"]["model"]
    assert found["scores"]["mse"] == pytest.approx(told["mse"], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int64", "float64", "Int16", "object"])
def test_without_ids_rows_are_known_by_place_and_content_of_any_type(dtype, tmp_path, capsys):
    frame = table().drop(columns=["key", "pair"]).assign(a=np.arange(ROWS) // 2)
    frame.to_csv(tmp_path / "d.csv", index=False)
    options = [option for option in FIT if option not in ("--id", "key")]
    assert run(["fit", str(tmp_path / "d.csv"), *options, "--out", str(tmp_path / "m")]) == 0
    frame.astype({"a": dtype}).to_parquet(tmp_path / "d.parquet")
    split = json.loads((tmp_path / "m/splits.json").read_text())["splits"][0]
    found = program(capsys, "evaluate", tmp_path / "m", tmp_path / "d.parquet", "--json")
    assert found["rows"] == {
        "bank": len(split["train"]),
        "held out": len(split["validation"]),
        "new": len(split["test"]),
    }


@pytest.mark.slow
@pytest.mark.sweep(2)
def test_ids_and_groups_that_a_table_has_not_are_told(fitted, tmp_path, capsys):
    model, frame = fitted
    of_ids = "id: expected the column 'key', got none, so a row that is in the bank is predicted from itself"
    of_groups = "group: expected the column 'pair', got none, so a row may be predicted from rows of its own"
    for dropped, said in (
        ({"key"}, [of_ids]),
        ({"pair"}, [of_groups]),
        ({"key", "pair"}, [of_ids, of_groups]),
        (set(), []),
    ):
        frame.drop(columns=list(dropped)).to_csv(tmp_path / "new.csv", index=False)
        assert run(["predict", str(model), str(tmp_path / "new.csv"), "--interval", "0.5", "--explain", "2"]) == 0
        lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("passed over")]
        expected = [line for line in said if is_grouped(model) or line == of_ids]
        assert len(lines) == len(expected)
        assert all(line.startswith(start) for line, start in zip(lines, expected, strict=True))


def test_groups_that_are_the_ids_are_told(tmp_path, capsys):
    table().assign(copy=lambda frame: frame["key"].astype(float)).to_csv(tmp_path / "d.csv", index=False)
    options = [option for option in FIT if option != "-q"]
    assert run(["fit", str(tmp_path / "d.csv"), *options, "--group", "copy", *ALONE]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("groups: ")]
    assert len(said) == 1
    assert "expected some rows to share one, got another for every row" in said[0]
    assert run(["fit", str(tmp_path / "d.csv"), *options, *GROUPED, "--drop", "copy"]) == 0
    assert "groups: " not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({2: "17", 16: "17.0"}, "got '17' in row 3 and '17.0' in row 17, which are one id"),
        ({2: " w ", 16: "w"}, "got ' w ' in row 3 and 'w' in row 17, which are one id"),
    ],
)
def test_a_table_in_which_two_ids_are_one_is_refused_by_row(cells, said, tmp_path, capsys):
    frame = table().astype({"key": str})
    frame["key"] = [cells.get(row, f"k{row}") for row in range(ROWS)]
    frame.to_csv(tmp_path / "d.csv", index=False)
    assert run(["fit", str(tmp_path / "d.csv"), *FIT]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: --id: expected ids that are all different in column key, {said}")
    assert error.count("\n") == 1


@pytest.mark.slow
def test_cells_of_ids_are_read_as_they_are_written(tmp_path, capsys):
    """A cell is one id whatever the other cells are: "+1" and "1e3" are texts, also among numbers."""
    frame = table().astype({"key": str, "pair": str})
    frame.loc[:3, "key"] = ["1e3", "1000", "+1", "1"]
    frame.loc[frame["key"].duplicated(), "key"] = "999"
    path = tmp_path / "d.csv"
    frame.to_csv(path, index=False)
    assert run(["fit", str(path), *FIT, *GROUPED, "--out", str(tmp_path / "m"), "--json"]) == 0
    want = program(capsys, "evaluate", tmp_path / "m", path, "--json")["rows"]
    split = json.loads((tmp_path / "m/splits.json").read_text())["splits"][0]
    assert want["bank"] == len(split["train"])
    frame.loc[split["test"][:1], "key"] = "a word"
    frame.to_csv(path, index=False)
    assert program(capsys, "evaluate", tmp_path / "m", path, "--json")["rows"] == want
