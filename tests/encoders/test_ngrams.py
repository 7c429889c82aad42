"""Text as a bag of hashed n-grams."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

import references.encoders as reference
from vicinal.encoders import NgramEncoder, TableEncoder

TEXTS = ["", "a", "Red shoes, red SHOES", ":-) 100%", "Straße 東京 \U0001f600 tail", "  ", "a\tb\nc a"]


def test_7000_words():
    generator = np.random.default_rng(0)
    words = ["".join(chr(97 + c) for c in generator.integers(0, 26, generator.integers(3, 12))) for _ in range(7000)]
    frame = pd.DataFrame({"w": words})
    encoder = NgramEncoder("w", width=4).fit(frame)
    assert len(encoder.prepare(frame).values) > 7000


def texts(*cells):
    return pd.DataFrame({"t": list(cells)})


def make(train=TEXTS, **settings):
    """An encoder with a vector for every n-gram of ``train`` and no dropout, unless ``settings`` say otherwise."""
    torch.manual_seed(0)
    return NgramEncoder("t", **{"width": 6, "buckets": 512, "min_rows": 1, "dropout": 0, **settings}).fit(texts(*train))


def vectors(encoder, *cells):
    return encoder(encoder.prepare(texts(*cells)).select(torch.arange(len(cells))))


def reference_vectors(encoder, cells):
    """Sums of the vectors of the buckets that have one, each text weighted to length 1 over those."""
    rows = []
    for text in cells:
        counts = reference.ngram_counts(text, encoder.sizes, True, encoder.buckets)
        known = {encoder.slots[b].item(): c for b, c in counts.items() if encoder.slots[b] >= 0}
        norm = sum(c * c for c in known.values()) ** 0.5
        rows.append(sum((c / norm * encoder.table.weight[s] for s, c in known.items()), torch.zeros(encoder.dim)))
    return torch.stack(rows)


def hit_rows(cells, buckets, sizes=(1, 2, 3, 4, 5)):
    """How many texts hit each bucket."""
    counters = [reference.ngram_counts(text, sizes, True, buckets) for text in cells]
    return np.array([sum(b in counter for counter in counters) for b in range(buckets)])


def test_vector_is_the_weighted_sum_of_its_buckets():
    encoder = make()
    found = vectors(encoder, *TEXTS)
    torch.testing.assert_close(found, reference_vectors(encoder, TEXTS))
    assert found[0].tolist() == [0.0] * 6
    assert found[1:5].abs().sum(1).min() > 0


def test_only_buckets_that_were_fitted_count():
    encoder = make(["red shoes", "blue hat"])
    assert 0 < encoder.table.num_embeddings < 512
    cells = ["red hat", "Green shoes and much else", "blue hat"]
    torch.testing.assert_close(vectors(encoder, *cells), reference_vectors(encoder, cells))


def test_each_bucket_of_the_training_rows_has_its_own_vector():
    encoder = make()
    slots = encoder.slots.numpy()
    assert np.array_equal(slots >= 0, hit_rows(TEXTS, 512) > 0)
    assert slots[slots >= 0].tolist() == list(range(len(encoder.table.weight)))


@pytest.mark.parametrize("min_rows", [1, 2, 3])
def test_buckets_that_few_rows_hit_have_no_vector(min_rows):
    g = np.random.default_rng(0)
    train = ["".join(chr(97 + c) for c in g.integers(0, 26, 5)) for _ in range(20)]
    train[3] = f"{train[3]} rarely rarely rarely"  # often in one row is still one row
    encoder = make(train, buckets=4096, min_rows=min_rows)
    hits = hit_rows(train, 4096)
    assert {1, 2, 3} <= set(hits.tolist())
    assert np.array_equal(encoder.slots.numpy() >= 0, hits >= min_rows)
    assert encoder.table.weight.shape == ((hits >= min_rows).sum(), 6)
    torch.testing.assert_close(vectors(encoder, *train), reference_vectors(encoder, train))


def test_with_fewer_than_20_rows_all_count():
    train = [f"{k}{chr(97 + k)}" for k in range(19)]
    few = make(train, min_rows=2)
    assert np.array_equal(few.slots.numpy() >= 0, hit_rows(train, 512) > 0)
    many = make([*train, ""], min_rows=2)
    assert 0 < many.table.num_embeddings < few.table.num_embeddings


def test_unseen_ngrams_change_nothing():
    encoder = make(["abc"], buckets=1_000_003)
    plain, longer = vectors(encoder, "abc", "abc xyz")
    assert plain.abs().max() > 0
    assert torch.equal(longer, plain)
    assert vectors(encoder, "xyz")[0].tolist() == [0.0] * 6
    assert encoder.prepare(texts("abc")).content(0) == encoder.prepare(texts("abc xyz")).content(0)


@pytest.mark.parametrize("train", [[], [""] * 30, [chr(0x4E00 + k) for k in range(30)]])
def test_without_known_ngrams_all_is_zero(train):
    encoder = make(train, buckets=1_000_003, sizes=[3], pairs=False, min_rows=2)
    assert encoder.table.weight.shape == (1, 6)
    assert vectors(encoder, "some text", "").tolist() == [[0.0] * 6] * 2
    assert NgramEncoder("t").prepare(texts("some text")).sizes().tolist() == [0]
    again = NgramEncoder.from_config(json.loads(json.dumps(encoder.config())))
    again.load_state_dict(encoder.state_dict(), strict=True)


def test_dropout_is_unbiased_and_only_in_training_mode():
    encoder = make(dropout=0.4).eval()
    inputs = encoder.prepare(texts("Red shoes"))
    still = encoder(inputs.select(torch.tensor([0])))
    assert torch.equal(encoder(inputs.select(torch.tensor([0]))), still)
    torch.testing.assert_close(still, reference_vectors(encoder, ["Red shoes"]))
    moving = encoder.train()(inputs.select(torch.zeros(20_000, dtype=torch.int64)))
    assert len(moving.unique(dim=0)) > 1000
    error = moving.std(0) / len(moving) ** 0.5
    assert ((moving.mean(0) - still[0]).abs() < 4 * error).all()
    weights = inputs.weights.double() ** 2
    slots = encoder.table.weight.detach().double()[inputs.values.long()]
    spread = (0.4 / 0.6 * (weights[:, None] * slots**2).sum(0)).sqrt()  # of independent n-grams that stay with 0.6
    torch.testing.assert_close(moving.std(0).double(), spread, rtol=0.05, atol=0)
    assert torch.equal(encoder.hold().train()(inputs.select(torch.tensor([0]))), still)


def test_without_dropout_training_mode_changes_nothing():
    encoder = make()
    assert torch.equal(vectors(encoder.train(), *TEXTS), vectors(encoder.eval(), *TEXTS))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"min_rows": 0}, r"^min_rows: expected a whole number of at least 1, got 0"),
        ({"dropout": 1}, r"^dropout: expected a number between 0 and 1, got 1"),
        ({"dropout": -0.1}, r"^dropout: expected a number between 0 and 1, got -0.1"),
    ],
)
def test_bad_settings_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        NgramEncoder("t", **settings)


def test_fit_replaces_what_was_fitted_before():
    encoder = make(["red shoes"])
    first = encoder.table.weight
    torch.manual_seed(0)
    encoder.fit(texts("blue hat"))
    same = make(["blue hat"])
    assert torch.equal(encoder.slots, same.slots)
    assert encoder.table.weight is not first
    assert encoder.table.weight.shape == same.table.weight.shape
    assert encoder.table.weight.requires_grad
    assert encoder.table.weight.std().item() == pytest.approx(0.02, rel=0.2)


def test_fit_keeps_what_was_held_still():
    encoder = NgramEncoder("t").hold().fit(texts(*TEXTS)).train()
    assert encoder.frozen
    assert not any(module.training for module in encoder.modules())
    assert not vectors(encoder, "Red shoes").requires_grad
    unheld = NgramEncoder("t").requires_grad_(requires_grad=False).fit(texts(*TEXTS))
    assert unheld.frozen


def test_fit_keeps_dtype_and_device():
    encoder = NgramEncoder("t").double().fit(texts(*TEXTS))
    assert encoder.table.weight.dtype == torch.float64
    assert encoder.slots.dtype == torch.int32
    assert vectors(encoder, "a").dtype == torch.float64
    moved = NgramEncoder("t").to("meta").fit(texts(*TEXTS))
    assert moved.table.weight.device == moved.slots.device == torch.device("meta")
    assert moved.table.weight.shape == encoder.table.weight.shape


@pytest.mark.parametrize("held", [False, True])
def test_restores_with_its_number_of_vectors(held):
    table = TableEncoder([make(min_rows=2, dropout=0.3)]).eval()
    if held:
        table.encoders[0].hold()
    state = table.trained_state()
    assert set(state) == {"parts.0.slots", "parts.0.table.weight"}
    again = TableEncoder.from_config(json.loads(json.dumps(table.config()))).eval()
    assert again.frozen is held
    again.load_trained_state(state)
    frame = texts(*TEXTS, "red herring")
    rows = torch.arange(len(frame))
    assert torch.equal(again(again.prepare(frame).select(rows)), table(table.prepare(frame).select(rows)))
    assert again.encoders[0].identity() == table.encoders[0].identity()
    assert again.config() == table.config()
    other = TableEncoder([make(["red"])])
    with pytest.raises(ValueError, match=r"^state: expected 'parts.0.table.weight' of shape"):
        other.load_trained_state(state)


def test_missing_is_empty_and_numbers_are_text():
    encoder = make(["12", "nan", "None", "<NA>"])
    cells = pd.Series([None, np.nan, pd.NA, "", 12], dtype=object)
    inputs = encoder.prepare(pd.DataFrame({"t": cells}))
    assert inputs.sizes().tolist()[:4] == [0] * 4
    assert inputs.sizes()[4] > 0
    same = encoder.prepare(pd.DataFrame({"t": ["12"]}))
    assert inputs.content(4) == same.content(0)
    assert encoder(inputs.select(torch.tensor([], dtype=torch.int64))).shape == (0, 6)


@pytest.mark.parametrize("cell", [b"bytes", ["a"], {"a": 1}, np.zeros(3)])
def test_what_is_no_text_is_refused(cell):
    with pytest.raises(ValueError, match=r"^t: expected text in row 1, got "):
        make().prepare(pd.DataFrame({"t": pd.Series(["x", cell], dtype=object)}))


def test_features_are_counts_of_length_one():
    frame = pd.DataFrame({"t": TEXTS})
    encoder = make()
    features = encoder.features(frame, encoder.prepare(frame))
    assert features.shape == (len(TEXTS), 512)
    np.testing.assert_allclose(np.linalg.norm(features.toarray(), axis=1), [0, 1, 1, 1, 1, 0, 1], rtol=1e-6)


def test_features_do_not_depend_on_fit():
    frame = texts(*TEXTS, "unseen by fit")
    fitted, unfitted = make(["red shoes"] * 20, min_rows=2), NgramEncoder("t", buckets=512)
    found = fitted.features(frame, fitted.prepare(frame))
    assert np.array_equal(found.toarray(), unfitted.features(frame, unfitted.prepare(frame)).toarray())
    want = np.zeros((len(frame), 512))
    for row, text in enumerate(frame["t"]):
        for b, count in reference.ngram_counts(text, fitted.sizes, True, 512).items():
            want[row, b] = count
    want /= np.maximum(np.linalg.norm(want, axis=1, keepdims=True), 1)
    np.testing.assert_allclose(found.toarray(), want, rtol=1e-6)
    assert unfitted.features(frame.iloc[:0], unfitted.prepare(frame.iloc[:0])).shape == (0, 512)


def test_every_bucket_that_is_hit_has_a_gradient_and_no_other():
    encoder = make([*TEXTS, "hello"])
    vectors(encoder, "hello").sum().backward()
    moved = torch.nonzero(encoder.table.weight.grad.abs().sum(1))[:, 0]
    hit = set(torch.nonzero(torch.isin(encoder.slots, moved))[:, 0].tolist())
    assert hit == set(reference.ngram_counts("hello", encoder.sizes, True, 512))
    assert len(hit) < encoder.table.num_embeddings


def test_a_settled_one_has_principal_directions_of_weighted_counts():
    draw = np.random.default_rng(0)
    texts = pd.DataFrame({"t": [" ".join(draw.choice(["red", "blue", "green", "shoe", "hat"], 3)) for _ in range(40)]})
    encoder = NgramEncoder("t", width=6, buckets=500).fit(texts).settle(texts)
    with torch.no_grad():
        vectors = encoder(encoder.prepare(texts).select(torch.arange(40))).double().numpy()
    counts = encoder.features(texts, None).toarray()[:, encoder.slots.numpy() >= 0]
    counts /= np.linalg.norm(counts, axis=1, keepdims=True)
    weighted = counts * (1 + np.log(41 / (1 + (counts > 0).sum(axis=0))))
    left, lengths, _ = np.linalg.svd(weighted - weighted.mean(axis=0), full_matrices=False)
    want, got = left[:, :6] * lengths[:6], vectors - vectors.mean(axis=0)
    np.testing.assert_allclose(np.abs(got), np.abs(want), atol=1e-4)
    assert encoder.is_held
    assert encoder.frozen
