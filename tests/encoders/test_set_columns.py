"""Columns of sets: what is found out, what is refused, and that neither order nor copies matter."""

import io
import json

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from vicinal import NeighborRegressor
from vicinal.core import entries
from vicinal.encoders import EmbeddingCache, SetColumnEncoder, TableEncoder, build_table_encoder, infer_kinds
from vicinal.encoders.kinds import elements_of, read_list
from vicinal.encoders.names import check_encoder, encoder_from_config, reaches_out
from vicinal.encoders.set_columns import CHUNK
from vicinal.encoders.sets import DeepSets, Moments, SetConvolution, draw_elements
from vicinal.encoders.tree_columns import TreeColumns
from vicinal.estimators.kernel_metric import make_kernel_network

SETS = [found.name for found in entries("set_encoder")]


def vectors(encoder, frame):
    with torch.no_grad():
        return encoder.eval()(encoder.prepare(frame).select(torch.arange(len(frame))))


def fitted(cells, name="deep_sets"):
    torch.manual_seed(0)
    frame = pd.DataFrame({"x": pd.Series(cells, dtype=object)})
    return SetColumnEncoder("x", name, dim=4).fit(frame), frame


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ([[1], [1, 2]], "sets of 1 to 2 numbers"),
        ([[1, 2, 3], [], None, [4]], "sets of 1 to 3 numbers, 2 empty"),
        ([["a.jpg", "b.png"]] * 3, "sets of 2 images"),
        ([["a.wav"], ["b.flac", "c.ogg"]], "sets of 1 to 2 sounds"),
        ([["red", "new"], ["red"]], "sets of 1 to 2 texts"),
        ([["a long text of words", "another text of words"], ["and a third one here"]], "sets of 1 to 2 texts"),
        ([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]]], "sets of 1 to 2 vectors"),
        ([np.zeros((2, 3)), np.ones((4, 3))], "sets of 2 to 4 vectors"),
        ([{"a", "b"}, {"a"}], "sets of 1 to 2 texts"),
        ([[True, False], [True]], "sets of 1 to 2 categories"),
    ],
)
def test_lists_that_are_no_vectors_are_sets(cells, reason):
    found = infer_kinds(pd.DataFrame({"x": pd.Series(cells, dtype=object)}))["x"]
    assert (found.kind, found.reason) == ("set", reason)
    encoder, frame = fitted(cells)
    told = reason.replace("texts", "text category").replace("categories", "category").replace("sounds", "audio")
    assert encoder.element_kind in told
    assert len(frame) == len(cells)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ([[], None, []], "left out: lists without elements"),
        ([[None], ["", None]], "left out: lists without elements"),
        ([["a"], "a"], "left out: some cells are lists, some are not"),
        ([[object()], [1]], "left out: lists of what no encoder reads"),
        ([[{"a": 1}], [{"a": 2}] * 2], "left out: lists of what no encoder reads"),
    ],
)
def test_what_is_no_set_is_left_out_and_why(cells, reason):
    assert infer_kinds(pd.DataFrame({"x": pd.Series(cells, dtype=object)}))["x"].reason == reason


def test_a_column_of_vectors_may_be_taken_for_sets():
    frame = pd.DataFrame({"x": [[1.0, 2.0], [3.0, 4.0]]})
    assert infer_kinds(frame)["x"].kind == "vector"
    asked = infer_kinds(frame, {"x": "set"})["x"]
    assert (asked.kind, asked.reason) == ("set", "sets of 2 numbers")


@pytest.mark.parametrize("name", [name for name in SETS if name != "commutative_monoid"])
def test_neither_order_nor_neighbors_nor_missing_elements_change_a_set(name):
    g = np.random.default_rng(0)
    cells = [list(g.normal(size=n)) for n in (3, 1, 40, 7)] + [[]]
    encoder, frame = fitted(cells, name)
    whole = vectors(encoder, frame)
    mixed = pd.DataFrame({"x": [[*reversed(cell), None, float("nan")] for cell in reversed(cells)]})
    torch.testing.assert_close(vectors(encoder, mixed), whole.flip(0), rtol=1e-4, atol=1e-5)
    alone = torch.cat([vectors(encoder, frame.iloc[[k]]) for k in range(5)])
    torch.testing.assert_close(alone, whole, rtol=1e-4, atol=1e-5)
    assert len({tuple(row) for row in whole.round(decimals=5).tolist()}) == 5


def test_missing_and_empty_lists_are_one_learned_vector():
    encoder, _ = fitted([["a"], ["b", "a"]])
    batch = encoder.prepare(pd.DataFrame({"x": [[], None, [None], "", "[]"]})).select(torch.arange(5))
    assert "elements" not in batch
    found = encoder.train()(batch)
    assert torch.equal(found, encoder.sets.empty.expand(5, -1))
    found.sum().backward()
    assert encoder.sets.empty.grad.tolist() == [5.0] * 4


def test_text_in_json_is_a_list():
    encoder, frame = fitted([["a", "b"], ["b"]])
    written = pd.DataFrame({"x": [json.dumps(cell) for cell in frame["x"]]})
    assert torch.equal(vectors(encoder, written), vectors(encoder, frame))
    assert read_list("[1, 2") is None
    assert read_list("[" * 100_000 + "]" * 100_000) is None
    assert read_list('["\\ud800"]') is None
    assert list(elements_of(np.array([1.0, np.nan, 3.0]), "x", 0)) == [(1, 1.0), (3, 3.0)]
    assert list(elements_of({"c", "a", "b"}, "x", 0)) == [(1, "a"), (2, "b"), (3, "c")]  # the same in every process


def test_each_different_file_is_read_once(make_image, tmp_path):
    for k in range(3):
        (tmp_path / f"{k}.png").write_bytes(make_image(k))
    encoder, frame = fitted([["0.png", "1.png"], ["1.png", "2.png", "0.png"]], "deep_sets:cnn")
    inputs = encoder.prepare(frame, tmp_path)
    assert len(inputs.elements) == 3
    assert inputs.sizes().tolist() == [2, 3]
    assert [inputs.places.values[inputs.places.take(torch.tensor([row]))[0]].tolist() for row in (0, 1)] == [
        [0, 1],
        [1, 2, 0],
    ]
    assert inputs.content(0) != inputs.content(1)


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ([["0.png"], ["0.png", "gone.png"]], "x: expected an image in row 1, element 2, got 'gone.png'"),
        ([["0.png"], [None, 7]], "x: expected an image (a path or bytes) in row 1, element 2, got 7"),
        ([["0.png"], 7], "x: expected a list in row 1, got 7"),
    ],
)
def test_a_broken_element_is_named_by_column_row_and_position(cells, told, make_image, tmp_path):
    (tmp_path / "0.png").write_bytes(make_image(0))
    encoder, _ = fitted([["0.png"]], "cnn")
    with pytest.raises(ValueError, match="^" + told.replace("(", r"\(").replace(")", r"\)")):
        encoder.prepare(pd.DataFrame({"x": cells}), tmp_path)


def test_elements_of_another_form_are_named_too():
    with pytest.raises(ValueError, match=r"^x: expected 2 numbers in row 1, element 2, got 3$"):
        fitted([[[1, 2]], [[3, 4], [5, 6, 7]]])
    with pytest.raises(ValueError, match=r"^x: expected a number in row 1, element 1, got 'a'"):
        fitted([[1, 2], ["a"]])
    with pytest.raises(ValueError, match=r"^x: expected a set with an element at least, got 2 sets that are all empty"):
        fitted([[], None])
    with pytest.raises(ValueError, match=r"^x \(a set of images\): expected one of 'cnn', .*got 'minilm'"):
        fitted([["a.jpg"]], "deep_sets:minilm")


def test_what_no_number_holds_is_refused_and_not_a_crash():
    huge = pd.DataFrame({"x": [[10**400], [1, 10**400]]})
    assert infer_kinds(huge)["x"].kind == "set"
    with pytest.raises(ValueError, match=r"^x: expected a finite number in row 0, element 1"):
        SetColumnEncoder("x").fit(huge)
    with pytest.raises(ValueError, match=r"^x: expected a list of numbers in row 0, element 1"):
        SetColumnEncoder("x").fit(pd.DataFrame({"x": [[[10**400]]]}))


def test_names_are_split_at_the_first_colon():
    for name in ("deep_sets", "set_transformer:minilm", "minilm", "hub:x", "umbc:hub:a/b", "deep_sets:cnn"):
        assert check_encoder(name, "set") == name
    for name in ("deep_sets:", "deep_sets:deep_sets", "deep:minilm", "deep_sets:hub", ":minilm"):
        with pytest.raises(ValueError, match=r"^encoder: expected one of 'attsets"):
            check_encoder(name, "set")
    assert [reaches_out(name) for name in ("hub:x", "umbc:folder:/x", "deep_sets:cnn")] == [True, True, False]
    assert build_table_encoder({"x": "set"}, encoders={"set": "attsets"}).encoders[0].name == "attsets"


def test_a_folder_may_not_name_another_reader_of_elements():
    encoder, _ = fitted([["a"], ["b"]])
    config = encoder.config()
    config["elements"]["encoder"] = "hub:someone/model"  # the name of the whole decides
    assert encoder_from_config(config).name == "deep_sets:categories"
    with pytest.raises(ValueError, match="expected one of 'categories'"):
        encoder_from_config({**config, "encoder": "deep_sets:hub:someone/model"})
    with pytest.raises(ValueError, match=r"^element_kind: expected one of"):
        encoder_from_config({**config, "element_kind": "set"})
    with pytest.raises(ValueError, match=r"^SetColumnEncoder: expected a fitted encoder"):
        SetColumnEncoder("x").config()


def test_large_sets_are_read_by_chunks_and_small_ones_beside_them_not_padded(monkeypatch):
    g = torch.Generator().manual_seed(0)
    cells = [torch.randn(n, generator=g).tolist() for n in (2 * CHUNK + 5, 3, 1)]
    encoder, frame = fitted(cells)
    encoder.sets = DeepSets(1, 4, pool="mean")
    shapes, sums = [], DeepSets.sums
    monkeypatch.setattr(
        DeepSets, "sums", lambda self, x, valid: (shapes.append(tuple(x.shape)), sums(self, x, valid))[1]
    )
    whole = vectors(encoder, frame)
    assert max(n for _, n, _ in shapes) == CHUNK
    assert (2, 3, 1) in shapes
    elements = encoder.prepare(frame).elements.values.float()[None, : len(cells[0])]
    torch.testing.assert_close(whole[:1], encoder.sets(elements), rtol=1e-4, atol=1e-5)
    shapes.clear()
    torch.manual_seed(1)
    encoder.train()(encoder.prepare(frame).select(torch.arange(3))).sum().backward()
    assert max(n for _, n, _ in shapes) == CHUNK  # forward the whole set, backward some elements
    assert draw_elements(torch.ones(1, 5, dtype=torch.bool), 5).sort().values.tolist() == [[0, 1, 2, 3, 4]]
    assert encoder.sets.phi[0].weight.grad.isfinite().all()


def test_frozen_elements_run_once_for_all_sets_and_all_encoders(monkeypatch):
    encoder = build_table_encoder({"x": "set"}, encoders={"x": "deep_sets:ngrams"})
    frame = pd.DataFrame({"x": [["a b", "c d"], ["c d"], []]})
    part = encoder.fit(frame).encoders[0]
    part.elements.hold()
    runs, forward = [], type(part.elements).forward
    monkeypatch.setattr(
        type(part.elements),
        "forward",
        lambda self, batch: (runs.append(len(batch["offsets"]) - 1), forward(self, batch))[1],
    )
    store = EmbeddingCache()
    whole = encoder(encoder.prepare(frame).select(torch.arange(3)))
    runs.clear()
    inputs = encoder.cache(encoder.prepare(frame), store=store)
    torch.testing.assert_close(encoder(inputs.select(torch.arange(3))), whole)
    encoder.cache(encoder.prepare(frame.iloc[::-1]), store=store)
    assert sum(runs) == len(store) == 2
    assert part.remade_keys() == set()


def test_features_are_mean_deviation_largest_and_number():
    encoder, frame = fitted([[1.0, 3.0], [5.0], []])
    features = encoder.features(frame, encoder.prepare(frame))
    scale = np.std([1.0, 3.0, 5.0])
    expected = [[-1 / scale, 1 / scale, 0, np.log(3)], [2 / scale, 0, 2 / scale, np.log(2)], [0, 0, 0, 0]]
    np.testing.assert_allclose(features, expected, atol=1e-12)
    encoder, frame = fitted([["one text of words", "another text of words"], []], "ngrams")
    assert encoder.features(frame, encoder.prepare(frame)).shape == (2, encoder.elements.buckets + 1)


@pytest.mark.parametrize("name", SETS)
def test_every_set_encoder_is_restored_without_memory_before_its_weights(name):
    frame = pd.DataFrame({"x": [["a", "b"], ["b"], []]})
    encoder = build_table_encoder({"x": "set"}, encoders={"x": name}).fit(frame).eval()
    again = TableEncoder.from_config(json.loads(json.dumps(encoder.config())), empty=True)
    assert all(weight.is_meta for weight in again.parameters())
    again.load_trained_state(encoder.trained_state())
    batch = encoder.prepare(frame).select(torch.arange(3))
    assert torch.equal(again.eval()(batch), encoder(batch))


def test_the_deviation_of_elements_far_from_0_is_not_lost():
    elements = torch.randn(1, 200, 1, generator=torch.Generator().manual_seed(0))
    near, far = (Moments(1)(elements + offset)[0, 1].item() for offset in (0.0, 5000.0))
    assert far == pytest.approx(near, rel=1e-3)


def test_a_set_convolution_of_images_convolves_images(make_image):
    """Of a table it has the shape of the images: equal to the module on their pixels, and pixels have places."""
    files = [make_image(number, (32, 32)) for number in range(4)]
    encoder, frame = fitted([files[:3], files[3:], []], "set_convolution:pixels")
    assert encoder.sets.image_shape == (3, 32, 32)
    images = torch.stack([torch.from_numpy(pixels_of(file)) for file in files])  # [4, 3, 32, 32]
    module = SetConvolution(3 * 32 * 32, 4, image_shape=(3, 32, 32))
    module.load_state_dict(encoder.sets.state_dict())
    want = torch.cat([module.eval()(images[None, :3].flatten(2)), module(images[None, 3:].flatten(2))]).detach()
    got = vectors(encoder, frame)
    torch.testing.assert_close(got[:2], want)
    torch.testing.assert_close(vectors(encoder, pd.DataFrame({"x": [files[2::-1]]})), got[:1])
    mixed = images[None, :3].flatten(3)[..., torch.randperm(32 * 32)].flatten(2)  # the same pixels at other places
    assert (module(mixed) - want[:1]).abs().max() > 1e-3
    again = encoder_from_config(json.loads(json.dumps(encoder.config())))
    again.load_state_dict(encoder.state_dict())
    torch.testing.assert_close(vectors(again, frame), got)


def pixels_of(file):
    """Float32 ``[3, 32, 32]`` by PIL and numpy."""
    with Image.open(io.BytesIO(file)) as image:
        square = image.convert("RGB")
    return ((np.asarray(square, dtype=np.float32) / 255 - 0.45) / 0.25).transpose(2, 0, 1).copy()


def test_sets_of_categories_each_count_for_trees_and_kernels(monkeypatch):
    words = [f"w{place}" for place in range(40)]
    frame = pd.DataFrame({"tags": [words[place : place + 3] for place in range(38)] * 2})

    def built(name):
        return build_table_encoder({"tags": "set"}, encoders={"tags": name}).fit(frame)

    def read_by_kernel(encoder):
        return make_kernel_network(dict(NeighborRegressor().get_params()), encoder).projector.columns

    for name in ("moments", "categories"):
        encoder = built(name)
        assert encoder.encoders[0].name == "counts:categories"
        assert len(TreeColumns(encoder).names) == 81
        columns = read_by_kernel(encoder)(torch.eye(81, dtype=torch.float64))
        torch.testing.assert_close(columns, torch.eye(81, dtype=torch.float64))
    monkeypatch.setattr("vicinal.encoders.set_columns.MOST_COUNTS", 80)
    assert len(TreeColumns(encoder).names) == 30
    asked = built("moments:categories")
    assert asked.encoders[0].name == "moments:categories"
    assert len(TreeColumns(asked).names) == 30
    monkeypatch.setattr("vicinal.encoders.set_columns.MOST_WORDS", 2)
    frame = pd.DataFrame({"tags": [["a", "y", "z"], ["y", "z"], ["z", "y"]] * 2 + [["b", "y", "z"]]})
    assert built("counts:categories").encoders[0].elements.levels == [["y", "z"]]
