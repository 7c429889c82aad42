"""Columns of sets from the table to the audit: found, grouped, saved, added to, forgotten, refused."""

import io
import json

import numpy as np
import pandas as pd
import pytest

from references.tables import QUICK
from vicinal.cli import run
from vicinal.data.sets import join_columns
from vicinal.estimators import NeighborClassifier, NeighborRegressor, load_model

FEW = ["--max-epochs", "3", "--members", "2", "--hidden", "16,4", "--learning-rate", "0.01", "-q", "--no-baselines"]


def numbers(rows=80, seed=0):
    """Sets of 1 to 6 numbers, two of them empty, and their sums."""
    g = np.random.default_rng(seed)
    sets = [g.integers(0, 10, g.integers(1, 7)).tolist() for _ in range(rows)]
    sets[3] = sets[-1] = []
    return pd.DataFrame({"digits": sets}), np.array([float(sum(one)) for one in sets])


@pytest.fixture(scope="session")
def fitted():
    frame, total = numbers()
    model = NeighborRegressor(columns={"digits": "set"}, encoders={"digits": "deep_sets:numbers"}, **QUICK)
    return model.fit(frame, total, ids=[f"s{i}" for i in range(len(frame))])


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """A csv of houses with three photos each, some missing."""
    pil = pytest.importorskip("PIL.Image", reason="pillow is an optional package")
    folder = tmp_path_factory.mktemp("photos")
    g = np.random.default_rng(0)
    for k in range(9):
        pil.fromarray(g.integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(folder / f"{k}.png")
    shown = g.integers(0, 9, (60, 3))
    names = np.where(g.random((60, 3)) < 0.2, "", np.char.add(shown.astype(str), ".png"))
    frame = pd.DataFrame(names, columns=["front", "kitchen", "bath"]).assign(price=shown.sum(1), house=range(60))
    frame.to_csv(folder / "houses.csv", index=False)
    return folder


@pytest.fixture(scope="session")
def model(photos):
    out = photos / "model"
    grouped = ["--set", "photos=front,kitchen,bath", "--encoder", "photos=attsets:cnn"]
    options = ["--target", "price", "--id", "house", "--out", str(out)]
    assert run(["fit", str(photos / "houses.csv"), *options, *grouped, *FEW]) == 0
    return out


def test_sets_are_learned_and_survive_saving(fitted, tmp_path):
    frame, total = numbers(40, seed=1)
    predicted = fitted.predict(frame)
    assert fitted.kinds_ == {"digits": "set"}
    assert np.corrcoef(predicted, total)[0, 1] > 0.9
    fitted.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    np.testing.assert_allclose(again.predict(frame), predicted, rtol=1e-5)  # float32, whose memory is aligned otherwise
    shuffled = pd.DataFrame({"digits": [cell[::-1] for cell in frame["digits"]]})
    np.testing.assert_allclose(again.predict(shuffled), predicted, rtol=1e-5)
    assert json.loads(again.explain(frame.iloc[:1], k=1)[0].neighbors[0].row["digits"])
    low, high = again.predict_interval(frame, 0.8).T
    assert ((low <= high) & np.isfinite(low)).all()


def test_sets_are_added_and_forgotten(fitted, tmp_path):
    fitted.save(tmp_path / "m")
    model, new = load_model(tmp_path / "m"), pd.DataFrame({"digits": [[9] * 6, [1, None], None]})
    before = model.predict(new)
    model.add(new, [54.0, 1.0, 0.0], ids=["a", "b", "c"])
    assert abs(model.predict(new)[0] - 54) < abs(before[0] - 54)
    model.save(tmp_path / "more")
    np.testing.assert_allclose(load_model(tmp_path / "more").forget(["a", "b", "c"]).predict(new), before)


@pytest.mark.slow
@pytest.mark.sweep(2)
@pytest.mark.parametrize("precision", ["bf16-mixed", "64-true"])
def test_sets_are_learned_in_other_precisions(precision):
    frame, total = numbers()
    for name in ("moments", "set_transformer"):
        model = NeighborRegressor(encoders={"digits": name}, precision=precision, **QUICK | {"max_epochs": 2})
        assert np.isfinite(model.fit(frame, total).predict(frame)).all()


@pytest.mark.slow
def test_an_index_finds_sets(tmp_path):
    frame, total = numbers()
    model = NeighborRegressor(encoders={"digits": "deep_sets"}, index="exact", **QUICK).fit(frame, total)
    model.save(tmp_path / "m")
    assert np.array_equal(load_model(tmp_path / "m").predict(frame), model.predict(frame))


@pytest.mark.sweep(2)
def test_columns_are_grouped_and_the_model_asks_for_the_same(model, photos, capsys):
    card = (model / "README.md").read_text()
    assert (model / "report.html").read_text().count("data:image/jpeg") >= 6  # photos of rows and neighbors
    assert "attsets:cnn" in card
    saved = json.loads((model / "config.json").read_text())
    assert saved["notes"]["sets"] == {"photos": ["front", "kitchen", "bath"]}
    assert run(["predict", str(model), str(photos / "houses.csv"), "--explain", "1", "--json", "-q"]) == 0
    by_column = json.loads(capsys.readouterr().out)
    frame = join_columns(pd.read_csv(photos / "houses.csv"), saved["notes"]["sets"])
    lists = [[one for one in cell if isinstance(one, str)] for cell in frame["photos"]]
    frame.assign(photos=lists).to_json(photos / "lists.jsonl", orient="records", lines=True)
    assert run(["predict", str(model), str(photos / "lists.jsonl"), "--explain", "1", "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out) == by_column
    frame.assign(photos=list(map(json.dumps, lists))).to_csv(photos / "cells.csv", index=False)
    assert run(["predict", str(model), str(photos / "cells.csv"), "--explain", "1", "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out) == by_column


def test_a_model_of_sets_is_audited(model, photos, capsys):
    assert run(["evaluate", str(model), str(photos / "houses.csv"), "--json", "-q"]) == 0
    audit = json.loads(capsys.readouterr().out)
    assert audit["rows"]["new"] == 12


@pytest.mark.sweep(9)
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_sets_in_files_are_found_and_empty_ones_counted(form, tmp_path, capsys):
    frame, total = numbers()
    path = tmp_path / f"sums.{form}"
    frame = frame.assign(total=total, label=[["a", "b"]] * 79 + [["a"]])
    frame.to_json(path, orient="records", lines=True) if form == "jsonl" else frame.to_parquet(path)
    assert run(["fit", str(path), "--target", "total", "--json", *FEW]) == 0
    found = json.loads(capsys.readouterr().out)["columns"]
    assert found["digits"] == {
        "kind": "set",
        "encoder": "moments:numbers",
        "reason": "sets of 1 to 6 numbers, 2 empty",
    }
    assert found["label"]["encoder"] == "counts:categories"


@pytest.mark.slow
def test_compare_groups_columns_too(photos, tmp_path):
    options = ["--target", "price", "--id", "house", "--set", "photos=front,kitchen,bath", "--splits", "1"]
    assert run(["compare", str(photos / "houses.csv"), *options, "--heads", "nona", "--out", str(tmp_path), *FEW]) == 0
    assert (tmp_path / "runs.csv").is_file()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--set", "photos=front,kichen"], "expected the column 'kichen' of the set 'photos', got none; did you mean"),
        (["--set", "photos=front,price"], "photos: expected a set of columns of one kind, got 'front' (image) and"),
        (["--set", "photos=front,front"], "sets: expected each column of 'photos' once, got 'front', 'front'"),
        (["--set", "house=front,bath"], "sets: expected a new name for a set of columns, got 'house', which is a"),
        (["--set", "photos=front,,bath"], "--set: expected COL or NAME=COL,COL,..., each name once, got 'photos=fr"),
        (["--set", "front"], "front: expected a list in row 1, got"),
        (["--set", "p=front,bath", "--encoder", "p=ngram"], "--encoder p: expected one of 'attsets', "),
        (["--set", "p=front,bath", "--encoder", "p=minilm"], "p (a set of images): expected one of 'cnn', "),
    ],
)
def test_wrong_sets_are_refused_in_a_sentence(options, told, photos, capsys):
    frame = pd.read_csv(photos / "houses.csv", keep_default_na=False)
    assert frame["front"].iloc[0]
    assert run(["fit", str(photos / "houses.csv"), "--target", "price", "--id", "house", *options, *FEW]) == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_a_broken_photo_in_a_set_is_named_by_row_and_position(photos, model, capsys):
    frame = pd.read_csv(photos / "houses.csv").fillna("")
    frame.loc[4, "bath"] = "gone.png"
    frame.to_csv(photos / "broken.csv", index=False)
    assert run(["predict", str(model), str(photos / "broken.csv"), "-q"]) == 2
    assert "photos: expected an image in row 5, element 3, got 'gone.png'; no file at" in capsys.readouterr().err


def test_a_note_of_sets_in_a_foreign_folder_is_checked(fitted, tmp_path):
    fitted.save(tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    config = json.loads(path.read_text())
    for sets in (7, {"a": "b"}, {"a": []}, {"a": [1]}):
        path.write_text(json.dumps({**config, "notes": {"sets": sets}}))
        (tmp_path / "m" / "SHA256SUMS").unlink(missing_ok=True)
        with pytest.raises(ValueError, match="sets"):
            load_model(tmp_path / "m")


def test_an_explanation_says_what_each_element_adds(fitted):
    frame = pd.DataFrame({"digits": [[9, None, 1, 5], []]})
    one, none = fitted.explain(frame, k=3, elements=True)
    assert none.elements == ()
    assert [(e.column, e.position, e.value) for e in one.elements] == [
        ("digits", 1, 9),
        ("digits", 4, 5),
        ("digits", 3, 1),
    ]
    without = fitted.explain(pd.DataFrame({"digits": [[1, 5]]}), k=len(fitted.bank_))[0]
    assert one.elements[0].effect == pytest.approx(one.total - without.total)
    weights = {neighbor.id: neighbor.weight for neighbor in without.neighbors}
    expected = [neighbor.weight - weights.get(neighbor.id, 0.0) for neighbor in one.neighbors]
    np.testing.assert_allclose(one.elements[0].weights, expected, atol=1e-12)
    with pytest.raises(ValueError, match=r"^elements: expected sets of at most 1000 elements"):
        fitted.explain(pd.DataFrame({"digits": [[1] * 1001]}), elements=True)


def test_elements_of_a_class_add_to_its_probability():
    frame, total = numbers()
    model = NeighborClassifier(encoders={"digits": "deep_sets"}, metric="network", **QUICK).fit(
        frame, np.where(total > 15, "high", "low")
    )
    first = model.explain(frame.iloc[:1], elements=True)[0]
    rest = frame["digits"].iloc[0].copy()
    del rest[first.elements[0].position - 1]
    code = model.classes_.tolist().index(first.prediction)
    share = model.predict_proba(pd.DataFrame({"digits": [rest]}))[0, code]
    assert first.elements[0].effect == pytest.approx(first.total - share)


def test_elements_are_shown_by_the_program(model, photos, capsys):
    ask = ["predict", str(model), str(photos / "houses.csv"), "--explain-elements"]
    assert run([*ask, "--json"]) == 0
    shown = capsys.readouterr()
    rows = json.loads(shown.out)
    assert "leaving out " in shown.err
    elements = rows[0]["elements"]
    assert {element["value"] for element in elements} <= {f"{k}.png" for k in range(9)}
    assert len(elements[0]["neighbors"]) == 3
    assert run([*ask, "-q"]) == 0
    shown = pd.read_csv(io.StringIO(capsys.readouterr().out), dtype=str)
    assert set(shown["element_1_position"].dropna()) <= {"1", "2", "3"}  # no "1.0", though some rows have fewer
    assert {"element_1_column", "element_1_value", "element_1_effect"} <= set(shown)


def test_a_model_without_sets_has_no_elements():
    frame = pd.DataFrame({"size": np.arange(40.0) % 7, "y": np.arange(40.0) % 5})
    model = NeighborRegressor(**QUICK, metric="network").fit(frame[["size"]], frame["y"])
    with pytest.raises(ValueError, match=r"^elements: expected a model that reads a column of sets"):
        model.explain(frame[["size"]], elements=True)


@pytest.fixture(scope="session")
def books(tmp_path_factory):
    """A csv of texts, some long, whose last words tell the price."""
    folder, g = tmp_path_factory.mktemp("books"), np.random.default_rng(0)
    price = g.integers(0, 2, 60)
    texts = [f"{'much is said about it here ' * int(g.integers(1, 90))}{['poor', 'grand'][one]} book" for one in price]
    pd.DataFrame({"text": texts, "price": price + 0.5}).to_csv(folder / "books.csv", index=False)
    return folder


@pytest.mark.slow
def test_long_texts_are_sets_of_their_chunks_if_asked_for(books, capsys):
    options = ["--target", "price", "--text", "text", "--out", str(books / "model"), "--json"]
    assert run(["fit", str(books / "books.csv"), *options, "--long", "chunks", *FEW]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["columns"]["text"]["kind"] == "set"
    assert found["columns"]["text"]["reason"] == "sets of 1 to 3 texts"
    assert any("have more than 180 words; all are sets of chunks" in note for note in found["notes"])
    assert run(["predict", str(books / "model"), str(books / "books.csv"), "-q"]) == 0
    assert run(["evaluate", str(books / "model"), str(books / "books.csv"), "-q"]) == 0
    assert json.loads((books / "model" / "config.json").read_text())["notes"]["chunked"] == ["text"]


def test_long_texts_are_cut_by_default_and_that_is_said(books, capsys):
    options = ["--target", "price", "--out", str(books / "cut"), "--json"]
    assert run(["fit", str(books / "books.csv"), *options, *FEW]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["columns"]["text"]["kind"] == "text"
    assert any("a pretrained encoder reads the beginning; --long chunks reads all" in note for note in found["notes"])
    assert run(["fit", str(books / "books.csv"), *options, "--long", "all", *FEW]) == 2
    assert "--long: expected one of 'cut', 'chunks', got 'all'" in capsys.readouterr().err


@pytest.mark.slow
def test_vectors_and_files_in_sets_are_audited_too(tmp_path, capsys):
    pil, g = pytest.importorskip("PIL.Image", reason="pillow is an optional package"), np.random.default_rng(0)
    files = []
    for k in range(6):
        pil.fromarray(g.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(tmp_path / f"{k}.png")
        files.append((tmp_path / f"{k}.png").read_bytes())
    rows = [{"v": g.normal(size=3).tolist(), "p": [files[k] for k in g.integers(0, 6, 1 + k % 3)]} for k in range(60)]
    frame = pd.DataFrame(rows)
    frame.assign(y=[v[0] for v in frame["v"]]).to_parquet(tmp_path / "t.parquet")
    assert run(["fit", str(tmp_path / "t.parquet"), "--target", "y", "--out", str(tmp_path / "m"), *FEW]) == 0
    assert run(["evaluate", str(tmp_path / "m"), str(tmp_path / "t.parquet"), "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]["new"] == 12
