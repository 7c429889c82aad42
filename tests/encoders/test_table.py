"""Whole tables: parts side by side, cached, described, saved."""

import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from vicinal.encoders import (
    EmbeddingCache,
    NgramEncoder,
    NumberEncoder,
    TableEncoder,
    build_table_encoder,
    table,
)

KINDS = {"title": "text", "age": "number", "photo": "image", "city": "category", "v": "vector", "size": "number"}
SMALL = {"title": {"width": 6, "buckets": 64}, "image": {"side": 8, "widths": (4, 5)}}


@pytest.fixture
def frame(make_image):
    g = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "title": ["red shoes", None, "blue hat", "red hat", "blue hat"],
            "age": g.normal(size=5),
            "photo": [make_image(k % 3) for k in range(5)],
            "city": ["Bonn", "Rome", "Bonn", None, "Rome"],
            "v": list(g.normal(size=(5, 2))),
            "size": [1.0, 2.0, None, 4.0, 5.0],
            "unused": "x",
        }
    )


def build(*, held=False, **options):
    torch.manual_seed(0)
    encoder = build_table_encoder(KINDS, settings=SMALL, **options)
    for part in encoder.encoders[2:4] if held else ():
        part.hold()
    return encoder


def test_parts_are_grouped_and_concatenated(frame):
    encoder = build().fit(frame).eval()
    assert [part.columns for part in encoder.encoders] == [["age", "size"], ["city"], ["title"], ["photo"], ["v"]]
    assert encoder.columns == ["age", "size", "city", "title", "photo", "v"]
    assert encoder.dim == 3 + 3 + 6 + 5 + 2
    inputs = encoder.prepare(frame)
    rows = torch.tensor([3, 0])
    found = encoder(inputs.select(rows))
    assert found.dtype == torch.float64
    want = [part(item.select(rows)) for part, item in zip(encoder.encoders, inputs.parts, strict=True)]
    assert torch.equal(found, torch.cat([w.double() for w in want], dim=1))


def test_text_and_categories_stay_in_single_precision(frame):
    encoder = build_table_encoder({"title": "text", "city": "category"}).fit(frame)
    assert encoder(encoder.prepare(frame).select(torch.tensor([0]))).dtype == torch.float32


def test_a_bag_of_rows_gives_the_same_rows(frame):
    encoder = build().fit(frame).eval()
    inputs = encoder.prepare(frame)
    whole = encoder(inputs.select(torch.arange(5)))
    parts = torch.cat([encoder(inputs.select(rows)) for rows in torch.arange(5).split(2)])
    torch.testing.assert_close(parts, whole)
    turned = encoder.prepare(frame.iloc[[4, 2]])
    torch.testing.assert_close(encoder(turned.select(torch.arange(2))), whole[[4, 2]])
    twice = encoder(inputs.select(torch.tensor([1, 1])))
    torch.testing.assert_close(twice, whole[[1, 1]])


def test_frozen_networks_run_once(frame, monkeypatch):
    encoder = build(held=True).fit(frame)
    inputs = encoder.prepare(frame)
    want = encoder(inputs.select(torch.arange(5)))
    calls, done = [], []
    encoder.encoders[3].register_forward_hook(lambda _, batch, out: calls.append(len(out)))
    monkeypatch.setattr(table, "report", lambda what, *x: done.append(x))
    cached = encoder.cache(inputs)
    assert sum(calls) == 3  # five rows, three different images
    assert done == [(4, 4), (3, 3)]
    torch.testing.assert_close(encoder(cached.select(torch.arange(5))), want)
    assert sum(calls) == 3
    assert encoder.cache(cached).parts == cached.parts
    encoder.cache(encoder.prepare(frame.iloc[:2]))
    assert sum(calls) == 3
    encoder.cache(inputs, store=EmbeddingCache())
    assert sum(calls) == 6


def test_what_is_trained_is_not_cached(frame):
    encoder = build().fit(frame)
    inputs = encoder.prepare(frame)
    assert encoder.cache(inputs).parts == inputs.parts


def test_cache_knows_weights_and_settings(frame):
    cache = EmbeddingCache()
    first = build(held=True, cache=cache)
    first.cache(first.fit(frame).prepare(frame))
    count = len(cache)
    same = build(held=True, cache=cache)
    same.cache(same.fit(frame).prepare(frame))
    assert len(cache) == count
    with torch.no_grad():
        same.encoders[2].table.weight[0, 0] += 1
    same.cache(same.prepare(frame))
    assert len(cache) == count + 4


def test_cache_on_disk_is_used_by_the_next_run(frame, tmp_path, monkeypatch):
    for run in range(2):
        encoder = build(held=True, cache_dir=tmp_path / "cache").fit(frame)
        done: list[int] = []
        monkeypatch.setattr(table, "report", lambda *_, done=done: done.append(1))
        inputs = encoder.cache(encoder.prepare(frame))
        assert bool(done) is (run == 0)
        assert inputs.parts[2].values.shape == (5, 6)


def test_held_encoders_are_random_and_saved(frame):
    encoder = build(held=True).fit(frame).train()
    assert encoder.frozen
    assert not any(module.training for part in encoder.encoders[2:4] for module in part.modules())
    again = TableEncoder.from_config(json.loads(json.dumps(encoder.config())))
    assert again.train().frozen
    again.load_trained_state(encoder.trained_state())
    rows = torch.arange(5)
    found = again(again.prepare(frame).select(rows))
    assert torch.equal(found, encoder(encoder.prepare(frame).select(rows)))


def test_restores_exactly(frame):
    encoder = build().fit(frame)
    encoder(encoder.prepare(frame).select(torch.arange(5)))  # moves batch norm
    again = TableEncoder.from_config(json.loads(json.dumps(encoder.config())))
    again.load_state_dict(encoder.state_dict(), strict=True)
    rows = torch.arange(5)
    found = again.eval()(again.prepare(frame).select(rows))
    assert torch.equal(found, encoder.eval()(encoder.prepare(frame).select(rows)))
    assert set(encoder.trained_state()) == set(encoder.state_dict())


def test_features_are_joined_sparse(frame):
    encoder = build().fit(frame)
    features = encoder.features(frame, encoder.prepare(frame))
    assert scipy.sparse.issparse(features)
    assert features.format == "csr"
    assert features.shape == (5, 3 + 3 + 64 + 192 + 2)
    dense = build_table_encoder({"age": "number", "city": "category"}).fit(frame)
    assert isinstance(dense.features(frame, dense.prepare(frame)), np.ndarray)


def test_description_counts_parameters(frame):
    encoder = build().fit(frame)
    numbers, _, title, *_ = encoder.describe()
    assert (numbers.columns, numbers.encoder, numbers.dim, numbers.trained) == (("age", "size"), "numbers", 3, 0)
    features = encoder.encoders[2].features(frame, encoder.prepare(frame).parts[2])
    count = 6 * np.unique(features.indices).size  # a vector for each bucket that is hit
    assert 0 < count < 6 * 64
    assert (title.kind, title.encoder, title.dim, title.trained, title.parameters) == (
        "text",
        "ngrams",
        6,
        count,
        count,
    )
    assert build(held=True).fit(frame).describe()[2].trained == 0


def test_columns_are_checked(frame):
    encoder = build().fit(frame)
    with pytest.raises(ValueError, match=r"^frame: expected the column 'title', got none; did you mean 'titel'\?"):
        encoder.prepare(frame.rename(columns={"title": "titel"}))
    with pytest.raises(ValueError, match=r"^frame: expected one column 'age', got 2 of that name"):
        encoder.prepare(pd.concat([frame, frame[["age"]]], axis=1))
    with pytest.raises(TypeError, match=r"^frame: expected a pandas DataFrame, got ndarray"):
        encoder.prepare(np.zeros((2, 2)))


def test_state_is_checked(frame):
    encoder = build().fit(frame)
    state = encoder.trained_state()
    some = next(iter(state))
    with pytest.raises(ValueError, match=rf"^state: .*none of that name: '{some}'"):
        encoder.load_trained_state({key: value for key, value in state.items() if key != some})
    with pytest.raises(ValueError, match=r"^state: .*one that is not part of this encoder: 'z'"):
        encoder.load_trained_state({**state, "z": torch.zeros(1)})
    with pytest.raises(ValueError, match=r"^state: expected '.*' of shape"):
        encoder.load_trained_state({**state, some: torch.zeros(1)})


def test_a_column_goes_before_its_kind():
    kinds = {"a": "audio", "b": "audio"}
    encoder = build_table_encoder(kinds, settings={"audio": {"bands": 16}, "b": {"bands": 8}})
    assert [part.bands for part in encoder.encoders] == [16, 8]


@pytest.mark.parametrize(
    ("kinds", "options", "sentence"),
    [
        ({}, {}, r"^kinds: expected at least one column"),
        ({"a": "txt"}, {}, r"^kinds\['a'\]: expected one of .* got 'txt'; did you mean 'text'\?"),
        ({"a": "text"}, {"encoders": {"b": "ngrams"}}, r"^encoders: expected one of 'a', 'number'.* got 'b'"),
        ({"a": "text"}, {"encoders": {"a": "cnn"}}, r"^encoders\['a'\]: expected one of 'folder:PATH'.*got 'cnn'"),
        ({"a": "image"}, {"encoders": {"image": "minilm"}}, r"^encoders\['image'\]: expected one of 'cnn', 'eff"),
        ({"a": "number"}, {"encoders": {"a": "hub:x"}}, r"^encoders\['a'\]: expected one of 'numbers', got 'hub:x'"),
        ({"a": "text"}, {"encoders": {"a": "hub:"}}, r"^encoders\['a'\]: expected one of"),
        ({"a": "text"}, {"tune": "last"}, r"^tune: expected 'all', 'none', 'lora' or 'last-N'"),
    ],
)
def test_bad_plans_are_refused(kinds, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        build_table_encoder(kinds, **options)


def test_bad_parts_are_refused():
    with pytest.raises(ValueError, match=r"^parts: expected encoders that read each column once, got \['a', 'a'\]"):
        TableEncoder([NumberEncoder("a"), NgramEncoder("a", buckets=2)])
    with pytest.raises(ValueError, match=r"^columns: expected one column for the encoder 'ngrams', got \['a', 'b'\]"):
        NgramEncoder(["a", "b"], buckets=2)
    with pytest.raises(ValueError, match=r"^columns: expected at least one column for the encoder 'numbers', got \[\]"):
        NumberEncoder([])
    with pytest.raises(ValueError, match=r"^columns: expected each column once"):
        NumberEncoder(["a", "a"])


def test_rows_are_checked(frame):
    inputs = build().fit(frame).prepare(frame)
    for rows in ([0, 1], torch.tensor([0.0]), torch.tensor([[0]])):
        with pytest.raises(TypeError, match=r"^rows: expected an int64 tensor \[b\]"):
            inputs.select(rows)
