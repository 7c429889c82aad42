"""Hashed n-grams."""

import pytest

import references.encoders as reference
from vicinal.encoders.ngrams import hashed_ngrams

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
