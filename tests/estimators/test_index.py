"""Promises of an estimator with an index, and of one with a large bank: what it says is what a plain one says."""

import numpy as np
import pytest
from sklearn.base import clone

from references.tables import QUICK as LONGER
from references.tables import table
from vicinal.estimators import NeighborClassifier, NeighborRegressor, load_model
from vicinal.estimators.fitted import FittedModel

pytestmark = pytest.mark.sweep(3)

QUICK = {**LONGER, "max_epochs": 2}

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
    return NeighborRegressor(**{**QUICK, "members": 1, "readout": "attention"}).fit(frame, price)


def fit(rows, name=None, **settings):
    frame, price = rows
    return NeighborRegressor(**{**QUICK, "index": name, "members": 1, "readout": "attention", **settings}).fit(
        frame, price
    )


def test_predictions_are_within_the_error_that_is_told(rows, plain, name):
    fresh = rows[0].iloc[:40]
    for tolerance in (1e-9, 0.2):
        model = fit(rows, name, index_tolerance=tolerance)
        found, error = model.predict(fresh, return_error=True)
        assert error.shape == found.shape
        assert (np.abs(found - plain.predict(fresh)) <= error + 1e-6).all()
        assert (error <= tolerance * np.ptp(rows[1])).all()
        model.near_bank().close()


def test_neighbors_and_explanations_are_those_of_the_bank(rows, plain, name):
    model, fresh = fit(rows, name, index_tolerance=0.0), rows[0].iloc[:12]
    ids = np.arange(12)
    for found, wanted in zip(model.explain(fresh, 3, ids=ids), plain.explain(fresh, 3, ids=ids), strict=True):
        assert found.prediction == pytest.approx(wanted.prediction, abs=1e-6)
        assert [n.weight for n in found.neighbors] == pytest.approx([n.weight for n in wanted.neighbors], abs=1e-6)
        assert sum(n.weight for n in found.neighbors) + found.other_weight == pytest.approx(1)
    np.testing.assert_allclose(model.kneighbors(fresh, 4)[0], plain.kneighbors(fresh, 4)[0], atol=1e-6)
    np.testing.assert_allclose(model.kneighbors(n_neighbors=2)[0], plain.kneighbors(n_neighbors=2)[0], atol=1e-6)
    np.testing.assert_allclose(model.predict_interval(fresh, 0.7), plain.predict_interval(fresh, 0.7), atol=0.3)
    model.near_bank().close()


def test_index_and_bank_stay_in_step(rows, plain, name, tmp_path):
    model, fresh = fit(rows, name, index_tolerance=1e-6), rows[0].iloc[:20]
    before = model.predict(fresh)
    model.add(fresh.iloc[1:4], [900.0, 950.0, 990.0], ids=[5000, 5001, 5002])
    assert len(model.near_bank()) == len(model.bank_) == len(plain.bank_) + 3
    assert 5000 in {n.id for n in model.explain(fresh.iloc[1:2], 5)[0].neighbors}
    with pytest.raises(ValueError, match=r"^ids: expected ids that the bank has not yet"):
        model.add(fresh.iloc[:1], [1.0], ids=[5000])
    model.save(tmp_path / "model")
    model.forget([5000, 5001, 5002])
    assert len(model.near_bank()) == len(model.bank_) == len(plain.bank_)
    missed = 0.02 if "HNSW" in name else 1e-4  # it may miss rows, others as the graph changes
    np.testing.assert_allclose(model.predict(fresh), before, atol=missed)
    model.near_bank().close()
    again = load_model(tmp_path / "model", index=name)  # a database has lost the three rows by now: it is made again
    assert len(again.near_bank()) == len(again.bank_) == len(plain.bank_) + 3
    assert 5000 in {n.id for n in again.explain(fresh.iloc[1:2], 5)[0].neighbors}
    again.forget([5000]).save(tmp_path / "model")
    again.near_bank().close()
    last = load_model(tmp_path / "model", index=name)
    np.testing.assert_allclose(last.predict(fresh), without_index(last).predict(fresh), atol=missed)
    last.near_bank().close()


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
    plain = NeighborClassifier(metric="network", **QUICK).fit(frame, towns)
    model = NeighborClassifier(index=name, index_tolerance=1e-6, metric="network", **QUICK).fit(frame, towns)
    found, error = model.predict_proba(frame.iloc[:20], return_error=True)
    wanted = plain.predict_proba(frame.iloc[:20])
    assert (np.abs(found - wanted).max(axis=1) <= error + 1e-6).all()
    for one, other in zip(model.explain(frame.iloc[:5], 2), plain.explain(frame.iloc[:5], 2), strict=True):
        assert one.prediction == other.prediction
        assert one.total == pytest.approx(other.total, abs=1e-5)


@pytest.mark.parametrize(
    "name", ["faiss:Flat", *(pytest.param(n, marks=pytest.mark.slow) for n in ("exact", "milvus"))]
)
def test_members_have_an_index_each(rows, name, tmp_path):
    frame, price = rows
    plain = NeighborRegressor(**{**QUICK, "members": 3}, readout="attention").fit(frame, price)
    if name != "exact":
        pytest.importorskip("faiss" if name.startswith("faiss") else "milvus_lite", reason="an optional package")
    name = f"milvus:{tmp_path / 'bank.db'}" if name == "milvus" else name
    model = fit(rows, name, members=3, index_tolerance=0.05)
    assert len(model.near_bank().indexes) == 3
    fresh = frame.iloc[:20]
    found, error = model.predict(fresh, return_error=True)
    assert (np.abs(found - plain.predict(fresh)) <= error + 1e-6).all()
    model.add(fresh.iloc[1:4], [900.0, 950.0, 990.0], ids=[5000, 5001, 5002]).forget([5001])
    model.save(tmp_path / "model")
    wanted = model.predict(fresh)
    model.near_bank().close()
    again = load_model(tmp_path / "model", index=name)
    np.testing.assert_allclose(again.predict(fresh), wanted, atol=1e-9)
    one = again.explain(fresh.iloc[1:2], 4)[0]
    assert 5000 in {n.id for n in one.neighbors}
    assert sum(n.weight for n in one.neighbors) + one.other_weight == pytest.approx(1)
    assert again.predict_interval(fresh, 0.7).shape == (20, 2)
    again.near_bank().close()


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
        ({"index": "exact", "head": "dense"}, r"^index: expected None for a head that looks at no bank, got Dense"),
        ({"index": "faiss:Flat", "similarity": "l1"}, r"^similarity: expected"),
        ({"index": "exact", "similarity": "snr"}, r"^similarity: expected l1, l2"),
        ({"index": "exact:int8"}, r"^index: expected 'exact', got 'exact:int8'"),
        ({"index": "exact", "index_tolerance": 2.0}, r"^index_tolerance: expected"),
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
