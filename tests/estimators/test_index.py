"""Promises of an estimator with an index, and of one with a large bank: what it says is what a plain one says."""

import numpy as np
import pytest
from sklearn.base import clone

from references.tables import QUICK as LONGER
from references.tables import table
from vicinal.estimators import NeighborClassifier, NeighborRegressor, load_model
from vicinal.estimators.fitted import FittedModel

pytestmark = pytest.mark.sweep(3)

QUICK = {**LONGER, "max_epochs": 2, "metric": "network"}

INDEXES = ("exact", "faiss:Flat", "faiss:IVF4,Flat", "faiss:HNSW16", "milvus")


@pytest.fixture(params=INDEXES)
def name(request, tmp_path):
    if request.param.startswith("faiss"):
        pytest.importorskip("faiss", reason="faiss-cpu is an optional package")
    if request.param == "milvus":
        pytest.importorskip("milvus_lite", reason="milvus-lite is an optional package")
        return f"milvus:{tmp_path / 'bank.db'}"
    return request.param


@pytest.fixture(scope="module")
def rows():
    frame, price = table(400)
    return frame[["size", "town"]], price


@pytest.fixture(scope="module")
def plain(rows):
    frame, price = rows
    return NeighborRegressor(**{**QUICK, "members": 1, "readout": "rows"}).fit(frame, price)


def fit(rows, name=None, **settings):
    frame, price = rows
    return NeighborRegressor(**{**QUICK, "index": name, "members": 1, "readout": "rows", **settings}).fit(frame, price)


def test_neighbors_and_explanations_are_those_of_the_bank(rows, plain, name):
    if "IVF" in name:
        pytest.skip("it looks at a part of the rows")
    model, fresh = fit(rows, name), rows[0].iloc[:12]
    ids = np.arange(12)
    for found, wanted in zip(model.explain(fresh, 3, ids=ids), plain.explain(fresh, 3, ids=ids), strict=True):
        assert found.prediction == pytest.approx(wanted.prediction, abs=1e-6)
        assert [n.weight for n in found.neighbors] == pytest.approx([n.weight for n in wanted.neighbors], abs=1e-6)
        assert sum(n.weight for n in found.neighbors) + found.other_weight == pytest.approx(1)
    np.testing.assert_allclose(model.kneighbors(fresh, 4)[0], plain.kneighbors(fresh, 4)[0], atol=1e-6)
    np.testing.assert_allclose(model.kneighbors(n_neighbors=2)[0], plain.kneighbors(n_neighbors=2)[0], atol=1e-6)
    np.testing.assert_allclose(model.predict_interval(fresh, 0.7), plain.predict_interval(fresh, 0.7), atol=0.3)
    model.fitted_.near.index.close()


def test_index_and_bank_stay_in_step(rows, plain, name, tmp_path):
    model, fresh = fit(rows, name), rows[0].iloc[:20]
    before = model.predict(fresh)
    model.add(fresh.iloc[1:4], [900.0, 950.0, 990.0], ids=[5000, 5001, 5002])
    assert len(model.fitted_.near.index) == len(model.bank_) == len(plain.bank_) + 3
    graph = "HNSW" in name  # it may miss rows
    assert graph or 5000 in {n.id for n in model.explain(fresh.iloc[1:2], 5)[0].neighbors}
    with pytest.raises(ValueError, match=r"^ids: expected ids that the bank has not yet"):
        model.add(fresh.iloc[:1], [1.0], ids=[5000])
    model.save(tmp_path / "model")
    model.forget([5000, 5001, 5002])
    assert len(model.fitted_.near.index) == len(model.bank_) == len(plain.bank_)
    missed = 0.1 if graph else 1e-4  # others as the graph changes
    np.testing.assert_allclose(model.predict(fresh), before, atol=missed)
    model.fitted_.near.index.close()
    again = load_model(tmp_path / "model", index=name)  # a database has lost the three rows by now: it is made again
    assert len(again.fitted_.near.index) == len(again.bank_) == len(plain.bank_) + 3
    assert graph or 5000 in {n.id for n in again.explain(fresh.iloc[1:2], 5)[0].neighbors}
    again.forget([5000]).save(tmp_path / "model")
    again.fitted_.near.index.close()
    last = load_model(tmp_path / "model", index=name)
    np.testing.assert_allclose(last.predict(fresh), without_index(last).predict(fresh), atol=missed)
    last.fitted_.near.index.close()


def without_index(model):
    """The same fitted model, reading its whole bank."""
    copy = clone(model).set_params(index=None)
    copy.__dict__.update({n: v for n, v in model.__dict__.items() if n.endswith("_")})
    return copy


@pytest.mark.parametrize("name", ["exact", "faiss:Flat"])
def test_classes_by_an_index(rows, name):
    frame, _ = rows
    towns = frame["town"].fillna("none").to_numpy()
    frame = frame.drop(columns="town")
    plain, model = (
        NeighborClassifier(index=index, readout="rows", **QUICK).fit(frame, towns) for index in (None, name)
    )
    np.testing.assert_allclose(model.predict_proba(frame.iloc[:20]), plain.predict_proba(frame.iloc[:20]), atol=1e-6)
    for one, other in zip(model.explain(frame.iloc[:5], 2), plain.explain(frame.iloc[:5], 2), strict=True):
        assert one.prediction == other.prediction
        assert one.total == pytest.approx(other.total, abs=1e-5)


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    "settings", [{"metric": "kernel"}, {"metric": "trees"}, {"metric": "kernel", "readout": "rows"}], ids=str
)
@pytest.mark.parametrize("several", [False, True])
def test_weights_targets_and_transforms_go_with_an_index(settings, several, tmp_path):
    random = np.random.default_rng(0)
    x, fresh = random.normal(size=(70, 2)), random.normal(size=(9, 2))
    y = np.exp(x.sum(axis=1) / 2 + 0.1 * random.normal(size=70))
    labels, weights = np.c_[y, 2 + np.sin(x[:, 0])] if several else y, random.uniform(0.5, 3, 70)
    plain, model = (
        NeighborRegressor(index=index, target_transform="log", **settings).fit(x, labels, sample_weight=weights)
        for index in (None, "exact")
    )
    model.add(fresh[:3], labels[:3], sample_weight=[9.0, 1.0, 1.0])
    plain.add(fresh[:3], labels[:3], sample_weight=[9.0, 1.0, 1.0])
    model.save(tmp_path / "model")
    for one in (model, load_model(tmp_path / "model")):
        assert one.fitted_.near is not None
        np.testing.assert_allclose(one.predict(fresh[3:]), plain.predict(fresh[3:]), rtol=1e-6)
        np.testing.assert_allclose(one.predict_interval(fresh[3:], 0.5), plain.predict_interval(fresh[3:], 0.5), 1e-6)
        quantiles = (each.predict(fresh[3:], quantile=0.3) for each in (one, plain) if settings.get("readout"))
        np.testing.assert_allclose(*(list(quantiles) or [0, 0]), rtol=1e-6)


def test_attention_weighs_every_row_and_says_that_an_index_is_of_no_use(rows, tmp_path):
    frame, price = rows
    settings = {**QUICK, "members": 3, "readout": "attention"}
    plain = NeighborRegressor(**settings).fit(frame, price)
    with pytest.warns(UserWarning, match=r"^index: expected None for readout 'attention', .*, got 'exact'"):
        model = NeighborRegressor(index="exact", **settings).fit(frame, price)
    assert model.fitted_.near is None
    np.testing.assert_array_equal(model.predict(frame.iloc[:20]), plain.predict(frame.iloc[:20]))
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(
        load_model(tmp_path / "model").predict(frame.iloc[:20]), plain.predict(frame.iloc[:20])
    )


def test_an_index_is_taken_into_account_by_the_choice_of_a_readout(rows):
    model = fit(rows, "exact", members=2, readout="auto", metric="network")
    assert model.readout_ == "rows"
    assert model.fitted_.near is not None


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize(("mask", "simplex"), [("s2", "softmax"), ("s1", "softmax"), ("topk", "entmax15")])
def test_a_large_bank_is_read_in_blocks_with_the_same_result(rows, members, mask, simplex, monkeypatch):
    frame, price = rows
    groups = np.arange(len(frame)) // 5
    model = NeighborRegressor(mask=mask, simplex=simplex, readout="attention", **{**QUICK, "members": members}).fit(
        frame, price, groups=groups
    )
    fresh, asked = frame.iloc[:30], {"ids": np.arange(30), "groups": groups[:30]}
    whole = model.explain(fresh, 3, **asked), model.predict_interval(fresh, 0.7, **asked), model.kneighbors(fresh, 3)[0]
    own = model.kneighbors(n_neighbors=3)[0]
    monkeypatch.setattr("vicinal.estimators.attention.LARGE", 100)
    monkeypatch.setattr(FittedModel, "bank_weights", None)  # is not called
    blocks = (
        model.explain(fresh, 3, **asked),
        model.predict_interval(fresh, 0.7, **asked),
        model.kneighbors(fresh, 3)[0],
    )
    for found, wanted in zip(blocks[0], whole[0], strict=True):
        assert found.total == pytest.approx(wanted.total, abs=1e-7)
        assert [n.weight for n in found.neighbors] == pytest.approx(
            [n.weight for n in wanted.neighbors if n.weight > 0], abs=1e-7
        )
    np.testing.assert_allclose(blocks[1], whole[1], atol=1e-6)
    np.testing.assert_allclose(blocks[2], whole[2], atol=1e-6)
    np.testing.assert_allclose(model.kneighbors(n_neighbors=3)[0], own, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"index": "fais:Flat"},
            r"^index: expected one of 'exact', 'faiss', 'milvus', got 'fais'; did you mean 'faiss'",
        ),
        ({"index": "exact", "head": "dense"}, r"^index: expected None for head='dense', which looks at no bank, got"),
        ({"index": "exact:int8"}, r"^index: expected 'exact', got 'exact:int8'"),
        ({"index": 3}, r"^index: expected a name"),
    ],
)
def test_wrong_indexes_are_refused_before_training(rows, settings, sentence, monkeypatch):
    monkeypatch.setattr("vicinal.training.fit.train", None)
    with pytest.raises((TypeError, ValueError), match=sentence):
        fit(rows, **settings)


def test_a_loaded_model_is_mapped_and_grows(rows, plain, tmp_path):
    plain.save(tmp_path / "model")
    model = load_model(tmp_path / "model")
    assert isinstance(model.bank_.vectors.numpy().base, object)
    model.add(rows[0].iloc[:2], rows[1][:2]).forget([int(model.bank_.ids[0])])
    assert len(model.bank_) == len(plain.bank_) + 1
    model.save(tmp_path / "model")
    assert len(load_model(tmp_path / "model", verify=True).bank_) == len(plain.bank_) + 1
