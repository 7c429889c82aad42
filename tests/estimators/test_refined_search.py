"""A search by words and vectors, read again by a ranker, and cut by a promised precision."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from vicinal import NeighborClassifier, NeighborRegressor
from vicinal.core.checks import CellWarning
from vicinal.estimators import EmbeddingLearner
from vicinal.estimators.refined_search import joined_texts
from vicinal.index.lexical import LexicalIndex, Terms, beside
from vicinal.workflows.search import Searcher

WORDS = ["red", "blue", "green", "shoe", "hat", "coat", "sock", "belt"]


@pytest.fixture(scope="module")
def shop():
    """Rows of two columns of texts and a number, whose class is their thing."""
    random = np.random.default_rng(0)
    names = [f"{color} {thing} {number}" for color in WORDS[:3] for thing in WORDS[3:] for number in range(8)]
    frame = pd.DataFrame({"name": names, "price": random.normal(size=len(names)).round(2)})
    things = [name.split()[1] for name in names]
    settings = {"metric": "network", "encoders": {"text": "ngrams"}, "max_epochs": 2, "members": 1, "hidden": (8,)}
    model = NeighborClassifier(**settings, validation_fraction=0.5).fit(frame, things, ids=np.arange(len(names)))
    return SimpleNamespace(model=model, frame=frame, things=np.array(things))


def test_words_and_vectors_are_fused_by_their_ranks(shop):
    model, query = shop.model, ["blue hat 3"]
    near = [hit.id for hit in model.search(query, 120)[0]]
    texts = joined_texts(model.bank_.rows, ["name"])
    terms = [Terms(kind).fit(texts) for kind in ("words", "letters")]
    index = LexicalIndex(beside([one.unit(one.counts(texts)) for one in terms]))
    depth = min(120, 2 * 5 + 20)
    found = index.search(beside([one.unit(one.counts(query)) for one in terms]), min(120, 2 * 5 + 20)).ids[0]
    worded = model.bank_.ids[found[found >= 0].numpy()].tolist()
    want = {
        row: sum(1 / (61 + one.index(row)) for one in (near[:depth], worded) if row in one)
        for row in {*near[:depth], *worded}
    }
    hits = model.search(query, 5, words=True)[0]
    assert [hit.score for hit in hits] == pytest.approx(sorted(want.values(), reverse=True)[:5], rel=1e-6)
    assert all(hit.score == pytest.approx(want[hit.id], rel=1e-6) for hit in hits)
    assert worded[0] == shop.frame["name"].tolist().index("blue hat 3")


def test_a_row_finds_neither_itself_nor_its_group_by_words(shop):
    rows = shop.frame.iloc[:2]
    hits = shop.model.search(rows, 4, ids=[0, 1], words=True)
    assert all(hit.id != row for row, some in enumerate(hits) for hit in some)
    groups = np.arange(120) // 2
    grouped = NeighborClassifier(
        metric="network", encoders={"text": "ngrams"}, max_epochs=1, members=1, hidden=(4,)
    ).fit(shop.frame, shop.things, groups=groups)
    names = [hit.id for hit in grouped.search(rows, 118, groups=[0, 0], words=True)[0]]
    assert not {0, 1} & set(names)
    assert len(names) == len(set(names)) > 100


def test_a_ranker_orders_the_first_candidates_by_what_it_reads(shop):
    random = np.random.default_rng(1)
    hits = pd.DataFrame({"price": random.normal(size=120), "score": random.normal(size=120)})
    ranker = NeighborRegressor(metric="kernel").fit(hits, hits["price"].round(), queries=np.repeat(np.arange(12), 10))
    plain = shop.model.search(["red shoe"], 6)[0]
    found = shop.model.search(["red shoe"], 3, rerank=ranker, calls=6)[0]
    frame = pd.DataFrame({"price": [hit.row["price"] for hit in plain], "score": [hit.score for hit in plain]})
    grades = ranker.predict(frame, groups=["new"] * 6)
    order = np.argsort(-grades, kind="stable")[:3]
    assert [hit.id for hit in found] == [plain[at].id for at in order]
    assert [hit.score for hit in found] == pytest.approx(grades[order].tolist())


def test_a_promise_shows_fewer_hits_and_holds_on_new_rows(shop):
    random = np.random.default_rng(2)
    x = random.normal(size=(700, 2))
    classes = np.where(random.random(700) < 1 / (1 + np.exp(-6 * x[:, 0])), "a", "b")
    model = NeighborClassifier(metric="kernel", validation_fraction=0.5).fit(x[:500], classes[:500])
    plain, shown = model.search(x[500:], 5), model.search(x[500:], 5, precision=0.9)
    assert 0 < sum(map(len, shown)) < sum(map(len, plain))
    right = [hit.label == classes[500 + row] for row, some in enumerate(shown) for hit in some]
    before = [hit.label == classes[500 + row] for row, some in enumerate(plain) for hit in some]
    assert np.mean(before) < 0.9 < np.mean(right)
    model.forget(model.bank_.ids[:1])  # what was computed of other rows does not stay
    assert not model.fitted_.computed.answers


def test_a_promise_of_a_learner_goes_by_the_share_of_hits_of_a_class():
    random = np.random.default_rng(3)
    x = random.normal(size=(900, 2))
    classes = np.where(random.random(900) < 1 / (1 + np.exp(-6 * x[:, 0])), "a", "b")
    learner = EmbeddingLearner(max_epochs=2).fit(x[:600], classes[:600], validation=np.arange(300, 600))
    shown = learner.search(x[600:], 1, precision=0.9)
    alike = [np.mean([hit.label == some[0].label for hit in some]) for some in learner.search(x[600:], 10)]
    least = min(share for share, some in zip(alike, shown, strict=True) if some)
    assert [bool(some) for some in shown] == [share >= least for share in alike]
    assert least >= 0.5
    right = [some[0].label == one for some, one in zip(shown, classes[600:], strict=True) if some]
    assert len(right) < 300
    assert np.mean(right) > 0.9


@pytest.mark.parametrize(("share", "least"), [(0.8, 20), (0.99, 299)])
def test_a_promise_beyond_the_rows_says_how_many_it_needs(share, least):
    x = np.random.default_rng(0).normal(size=(40, 2))
    model = NeighborClassifier(metric="kernel").fit(x, x[:, 0] > 0, validation=range(12))
    assert 0.99**299 < 0.05 < 0.99**298
    with pytest.raises(
        ValueError, match=rf"^precision: expected at least {least} rows held out, .* got 12; fit on more"
    ):
        model.search(x[:1], 3, precision=share)


def test_what_cannot_be_promised_or_read_is_refused(shop):
    for settings, message in (
        ({"precision": 1.5}, r"^precision: expected a number between 0 and 1"),
        ({"precision": 0.999}, r"^precision: .* more like them would do|^precision: expected right pairs"),
        ({"calls": 0, "words": True}, r"^calls: expected a whole number"),
        ({"rerank": shop.model}, r"^rerank: expected a model of one column of grades"),
    ):
        with pytest.raises(ValueError, match=message):
            shop.model.search(["red"], 3, **settings)
    x = np.random.default_rng(0).normal(size=(40, 2))
    numbers = NeighborRegressor(metric="kernel").fit(x, x[:, 0])
    with pytest.raises(ValueError, match=r"^rerank: expected a ranker of columns among 'name', .* that reads 'x0'"):
        shop.model.search(["red"], 3, rerank=numbers)
    with pytest.raises(ValueError, match=r"^precision: expected a model whose rows have classes"):
        numbers.search(x[:1], 3, precision=0.9)
    with pytest.raises(ValueError, match=r"^words: expected a model that reads a column of texts"):
        numbers.search(x[:1], 3, words=True)


def test_queries_without_hits_or_words():
    assert joined_texts(pd.DataFrame({"a": [1.0, None]}), ["a", "b"]) == ["1.0", ""]
    assert joined_texts(pd.DataFrame({"a": [1, 2]}), []) == ["", ""]


def test_a_query_of_an_empty_set_finds_nothing(tmp_path):
    random = np.random.default_rng(0)
    sets = [random.normal(3 * (row % 3), 1, 1 + row % 4).tolist() if row % 10 else [] for row in range(60)]
    names = np.array(["a", "b", "c"])[np.arange(60) % 3]
    model = NeighborClassifier(metric="network", max_epochs=1, members=1).fit(pd.DataFrame({"values": sets}), names)
    queries = pd.DataFrame({"values": [[], [0.1, 0.2], []]})
    with pytest.warns(CellWarning, match=r"^queries: 2 of 3 have no known cell, as of an empty set, and find nothing"):
        hits = model.search(queries, 3, ids=["x", "y", "z"])
    assert [len(some) for some in hits] == [0, 3, 0]
    alone = model.search(queries.iloc[1:2], 3)[0]
    assert [hit.id for hit in hits[1]] == [hit.id for hit in alone]
    with pytest.warns(CellWarning):
        assert [len(some) for some in model.search(queries.iloc[:1], 3)] == [0]
    model.save(tmp_path / "model")  # where the cells are texts: "[]"
    searcher = Searcher(tmp_path / "model", 3)
    with pytest.warns(CellWarning):
        assert [len(some) for some in searcher.ids([10, 11]).hits] == [0, 3]
