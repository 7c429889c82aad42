"""Texts by shared words and letters, and fused lists."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer

from vicinal.index import Hits
from vicinal.index.lexical import BUCKETS, LexicalIndex, Terms, beside, codes, fuse


def rows_of(texts, terms):
    return beside([part.unit(part.counts(texts)) for part in terms])


TEXTS = ["red lamp of brass", "blue lamp", "a red, red hat", "chair R-12 of oak", "", "oak chair r12", "étude nº 5"]


def test_weights_are_the_smooth_inverse_document_frequency_of_scikit_learn():
    vectorizer = TfidfVectorizer(token_pattern=r"(?u)\w+", binary=True, norm=None)
    expected = vectorizer.fit_transform(TEXTS).toarray()
    terms = Terms("words").fit(TEXTS)
    ours = terms.of(TEXTS).power(2).toarray()
    used = ours.any(axis=0)
    np.testing.assert_allclose(np.sort(ours[:, used], axis=1), np.sort(expected, axis=1), rtol=1e-6)


def test_shared_weight_is_that_of_the_terms_of_both():
    terms = Terms("words").fit(TEXTS)
    shared = terms.shared(terms.of(["red lamp", "", "hat"]), terms.of(["lamp red", "hat", "chair"]))
    np.testing.assert_allclose(shared.cosine, [1, 0, 0], atol=1e-6)
    np.testing.assert_allclose(shared.of_left, [1, 0, 0], atol=1e-6)
    assert shared.left[1] == 0 < shared.right[1]


@pytest.mark.parametrize("k", [1, 3, 20])
def test_search_is_exact(k):
    terms = [Terms(kind).fit(TEXTS) for kind in ("words", "letters")]
    counts = [part.counts(TEXTS).toarray() for part in terms]
    assert any(count.max() > 1 for count in counts)
    parts = [
        np.where(count > 0, part.weights * (1 + np.log(np.maximum(count, 1))), 0)
        for part, count in zip(terms, counts, strict=True)
    ]
    unit = [part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-9) for part in parts]
    scores = sum(part @ part.T for part in unit) / 2
    hits = LexicalIndex(rows_of(TEXTS, terms)).search(rows_of(TEXTS, terms), k)
    for row, (ids, values) in enumerate(zip(hits.ids.tolist(), hits.scores.tolist(), strict=True)):
        expected = np.argsort(-scores[row], kind="stable")
        expected = [i for i in expected if scores[row, i] > 0][:k]
        assert [i for i in ids if i >= 0] == expected
        np.testing.assert_allclose(values[: len(expected)], scores[row, expected], rtol=1e-5)


@pytest.mark.parametrize("postings", [None, (30, 0)])
def test_any_number_of_threads_gives_the_same(monkeypatch, postings):
    random = np.random.default_rng(1)
    texts = [" ".join(f"{n:03d}" for n in random.integers(0, 200, 6)) for _ in range(150)]
    rows = rows_of(texts, [Terms(kind).fit(texts) for kind in ("words", "letters")])
    hits = []
    for threads in (1, 50, 64):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        hits.append(LexicalIndex(rows).search(rows, 7, exclude=torch.arange(150), postings=postings))
    for other in hits[1:]:
        assert torch.equal(other.ids, hits[0].ids)
        assert torch.equal(other.scores, hits[0].scores)


SCIKIT_LEARN = {
    "words": {"token_pattern": r"(?u)\w+"},
    "letters": {"analyzer": "char_wb", "ngram_range": (3, 4)},
    "codes": {"analyzer": codes},
}


@pytest.mark.parametrize("kind", SCIKIT_LEARN)
@given(texts=st.lists(st.text(max_size=30), max_size=5))
def test_terms_are_counted_as_by_scikit_learn(kind, texts):
    texts = [*TEXTS, *texts, "an ant, an ANT", "R-12 r-12", "\u0130stanbul a\x1cb c\u2028d"]
    hashing = HashingVectorizer(n_features=BUCKETS, alternate_sign=False, norm=None, **SCIKIT_LEARN[kind])
    expected, ours = hashing.transform(texts).astype(np.float32), Terms(kind).counts(texts)
    assert (ours != expected).nnz == 0
    np.testing.assert_array_equal(ours.indptr, expected.indptr)


@pytest.mark.parametrize("kind", SCIKIT_LEARN)
@pytest.mark.parametrize("texts", [TEXTS, [""], []])
def test_rows_have_length_one_or_no_terms(kind, texts):
    terms = Terms(kind).fit(TEXTS)
    counts = terms.counts(texts)
    lengths = np.linalg.norm(terms.unit(counts).toarray(), axis=1)
    np.testing.assert_allclose(lengths, counts.getnnz(axis=1) > 0, rtol=1e-6)


def test_words_beyond_those_remembered_count_too(monkeypatch):
    expected = Terms("letters").counts(TEXTS)
    monkeypatch.setattr("vicinal.index.lexical._KNOWN", 2)
    assert (Terms("letters").counts(TEXTS) != expected).nnz == 0


def test_a_text_is_not_found_where_it_is_excluded():
    rows = rows_of(TEXTS, [Terms(kind).fit(TEXTS) for kind in ("words", "letters")])
    hits = LexicalIndex(rows).search(rows, 1, exclude=torch.arange(len(TEXTS)))
    assert (hits.ids[:, 0] != torch.arange(len(TEXTS))).all()
    assert hits.ids[0].item() == 1


def test_rare_terms_find_rows_and_all_terms_compare_them():
    random = np.random.default_rng(0)
    common, rare = ["lamp", "chair", "red", "blue"], [f"{n:04d}" for n in range(300)]
    texts = [" ".join([*random.choice(common, 3), *random.choice(rare, 2)]) for _ in range(400)]
    terms = [Terms(kind).fit(texts) for kind in ("words", "letters")]
    queries, index = rows_of(texts[:50], terms), LexicalIndex(rows_of(texts, terms))
    exact, few = index.search(queries, 5), index.search(queries, 5, postings=(30, 0))
    assert (few.ids[:, 0] == torch.arange(50)).all()
    shared = (few.ids[:, :, None] == exact.ids[:, None]).any(dim=2)
    assert 0.5 < shared.float().mean() < 1
    places = (few.ids[:, :, None] == exact.ids[:, None]).nonzero()
    torch.testing.assert_close(few.scores[places[:, 0], places[:, 1]], exact.scores[places[:, 0], places[:, 2]])
    assert (index.search(queries, 5, postings=(10**6, 10**6)).ids == exact.ids).all()


def test_a_query_of_common_terms_alone_gets_as_many_rows_as_are_wanted():
    texts = ["red lamp"] * 30 + ["blue chair"] * 30
    terms = Terms("words").fit(texts)
    hits = LexicalIndex(rows_of(texts, [terms])).search(rows_of(["lamp of brass"], [terms]), 7, postings=(3,))
    assert (hits.ids < 30).all()
    assert hits.ids.unique().numel() == 7


def test_codes_are_words_with_digits():
    assert codes("Sony DSC-W120/B, 7.2MP (2) x") == ["dscw120b", "72mp"]


def test_fusion_sums_reciprocal_ranks():
    random = np.random.default_rng(0)
    lists = [torch.from_numpy(np.stack([random.permutation(9)[:5] for _ in range(20)])) for _ in range(3)]
    lists[0][3, 2:] = -1
    fused = fuse([Hits(ids, torch.zeros(20, 5)) for ids in lists], 6)
    for row in range(20):
        sums = {}
        for ids in lists:
            for rank, i in enumerate(ids[row].tolist(), 1):
                if i >= 0:
                    sums[i] = sums.get(i, 0) + 1 / (60 + rank)
        expected = sorted(sums, key=lambda i: (-np.float32(sums[i]), i))[:6]
        assert [i for i in fused.ids[row].tolist() if i >= 0] == expected
        np.testing.assert_allclose(fused.scores[row][: len(expected)], [sums[i] for i in expected], rtol=1e-6)
