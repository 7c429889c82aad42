"""Hashed n-grams, and text as a bag of them."""

import time

import numpy as np
import pandas as pd
import pytest
import torch

import references.encoders as reference
from vicinal.encoders import NgramEncoder
from vicinal.encoders.hashing import hashed_ngrams

PINNED = [9, 148, 262, 346, 362, 413, 548, 588, 598, 629, 699, 794, 938]
TEXTS = ["", "a", "Red shoes, red SHOES", ":-) 100%", "Straße 東京 \U0001f600 tail", "  ", "a\tb\nc a"]


@pytest.mark.parametrize("pairs", [True, False])
@pytest.mark.parametrize("buckets", [7, 1 << 15, 1_000_003])
def test_counts_equal_reference(pairs, buckets):
    sizes = [1, 2, 3, 5]
    offsets, bucket, count = hashed_ngrams(TEXTS, sizes=sizes, pairs=pairs, buckets=buckets, fold_case=True)
    for i, text in enumerate(TEXTS):
        part = slice(offsets[i], offsets[i + 1])
        found = dict(zip(bucket[part].tolist(), count[part].tolist(), strict=True))
        assert found == reference.ngram_counts(text, sizes, pairs, buckets)


def test_no_texts_and_only_empty_texts():
    for texts in ([], [""], ["", " "]):
        offsets, bucket, _ = hashed_ngrams(texts, sizes=[1, 9], pairs=True, buckets=5, fold_case=True)
        assert offsets.tolist() == [0] * (len(texts) + 1)
        assert len(bucket) == 0


def test_hash_never_changes():
    _, bucket, _ = hashed_ngrams(["stable hash"], sizes=[3], pairs=True, buckets=997, fold_case=True)
    assert bucket.tolist() == PINNED


def test_surrogates_and_borders_in_text_do_no_harm():
    texts = ["\ud800 x", "\x02\x03", "\x00"]
    offsets, _, _ = hashed_ngrams(texts, sizes=[1, 2], pairs=True, buckets=99, fold_case=True)
    assert len(offsets) == 4


def test_case_is_folded_only_when_asked():
    options = {"sizes": [2], "pairs": False, "buckets": 1 << 20}
    folded = hashed_ngrams(["ABC", "abc"], fold_case=True, **options)
    kept = hashed_ngrams(["ABC", "abc"], fold_case=False, **options)
    assert len(set(folded[1].tolist())) == len(folded[1]) / 2
    assert len(set(kept[1].tolist())) == len(kept[1])


def test_7000_words_prepare_within_a_second():
    generator = np.random.default_rng(0)
    words = ["".join(chr(97 + c) for c in generator.integers(0, 26, generator.integers(3, 12))) for _ in range(7000)]
    encoder, frame = NgramEncoder("w", width=4), pd.DataFrame({"w": words})
    start = time.perf_counter()
    encoder.prepare(frame)
    assert time.perf_counter() - start < 1


def make(**settings):
    torch.manual_seed(0)
    return NgramEncoder("t", width=6, buckets=512, **settings)


def test_vector_is_the_weighted_sum_of_its_buckets():
    encoder = make()
    inputs = encoder.prepare(pd.DataFrame({"t": TEXTS}))
    found = encoder(inputs.select(torch.arange(len(TEXTS))))
    for i, text in enumerate(TEXTS):
        counts = reference.ngram_counts(text, encoder.sizes, True, 512)
        norm = sum(c * c for c in counts.values()) ** 0.5
        want = sum((c / norm * encoder.table.weight[b] for b, c in counts.items()), torch.zeros(6))
        torch.testing.assert_close(found[i], want)
    assert found[0].tolist() == [0.0] * 6


def test_missing_is_empty_and_numbers_are_text():
    encoder = make()
    cells = pd.Series([None, np.nan, pd.NA, "", 12], dtype=object)
    inputs = encoder.prepare(pd.DataFrame({"t": cells}))
    assert inputs.sizes().tolist()[:4] == [0] * 4
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


def test_every_bucket_that_is_hit_has_a_gradient_and_no_other():
    encoder = make()
    inputs = encoder.prepare(pd.DataFrame({"t": ["hello"]}))
    encoder(inputs.select(torch.tensor([0]))).sum().backward()
    hit = set(torch.nonzero(encoder.table.weight.grad.abs().sum(1))[:, 0].tolist())
    assert hit == set(reference.ngram_counts("hello", encoder.sizes, True, 512))
