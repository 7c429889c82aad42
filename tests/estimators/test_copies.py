"""Models as any Python object: pickled, copied and sent to other processes, whether fitted or loaded."""

import copy
import io
import pickle

import joblib
import numpy as np
import pytest

from references.tables import table
from vicinal.estimators import NeighborClassifier, NeighborRegressor, load_model, save_model

ROWS = 120


def sent(model):
    stream = io.BytesIO()
    joblib.dump(model, stream)
    stream.seek(0)
    return joblib.load(stream)


WAYS = {"pickle": lambda model: pickle.loads(pickle.dumps(model)), "copy": copy.deepcopy, "joblib": sent}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Folders of models by the name of their index; ids are words."""
    frame, price = table(ROWS)
    frame["note"] = [f"note {i:04d}" for i in range(ROWS)]
    ids = [f"h{i}" for i in range(ROWS)]
    folders = {}
    for index in (None, "exact", "faiss:Flat", "faiss:HNSW16"):
        if index is not None and index.startswith("faiss"):
            pytest.importorskip("faiss")
        model = NeighborRegressor(
            max_epochs=1,
            hidden=(8, 4),
            members=2,
            index=index,
            metric="network",
            readout="rows",
            columns={"note": "text"},
        )
        model.fit(frame, price, ids=ids, groups=np.arange(ROWS) // 3)
        folders[index] = tmp_path_factory.mktemp("saved") / "model"
        save_model(model, folders[index])
    return folders


def predictions(model, rows):
    return model.predict(rows, groups=[f"new {i}" for i in range(len(rows))])


def check_same(one, other, rows):
    np.testing.assert_array_equal(predictions(one, rows), predictions(other, rows))
    groups = np.arange(len(rows))
    for mine, theirs in zip(one.explain(rows, 3, groups=groups), other.explain(rows, 3, groups=groups), strict=True):
        assert repr(mine) == repr(theirs)  # a missing number differs from itself


@pytest.mark.sweep(2)
@pytest.mark.sweep(6)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("index", [None, "exact", "faiss:Flat", "faiss:HNSW16"])
def test_a_loaded_model_is_copied_and_the_copy_is_its_own(saved, index, way):
    rows = table(12, seed=5)[0].assign(note="a good house")
    model = load_model(saved[index])
    twin = WAYS[way](model)
    check_same(model, twin, rows)
    gone = model.bank_.ids[:7].tolist()
    before = predictions(model, rows)
    twin.forget(gone)
    twin.add(rows[:2], [1.0, 2.0], ids=["new", "newer"], groups=[900, 901])
    np.testing.assert_array_equal(predictions(model, rows), before)
    model.forget(gone)
    model.add(rows[:2], [1.0, 2.0], ids=["new", "newer"], groups=[900, 901])
    check_same(model, twin, rows)
    check_same(model, WAYS[way](twin), rows)


@pytest.mark.parametrize("way", WAYS)
def test_a_fitted_model_is_copied(way):
    frame, price = table(60)
    model = NeighborClassifier(max_epochs=1, hidden=(8, 4), members=2).fit(frame, price > np.median(price))
    twin = WAYS[way](model)
    np.testing.assert_array_equal(twin.predict_proba(frame), model.predict_proba(frame))
    assert not hasattr(WAYS[way](NeighborClassifier()), "bank_")


def test_forgotten_rows_are_not_in_a_pickle(saved):
    for index, folder in saved.items():
        model = load_model(folder)
        gone = model.bank_.ids[3]
        note = model.bank_.rows["note"].iloc[3].encode()
        label = model.bank_.labels[3].numpy().tobytes()
        assert all(mark in pickle.dumps(model) for mark in (note, label)), index
        model.forget([gone])
        assert not any(mark in pickle.dumps(model) for mark in (note, label)), index


@pytest.mark.slow
def test_a_model_over_a_database_says_that_two_would_share_it(tmp_path):
    pytest.importorskip("milvus_lite", reason="milvus-lite is an optional package")
    frame, price = table(40)
    model = NeighborRegressor(max_epochs=1, hidden=(8, 4), members=1, index=f"milvus:{tmp_path / 'bank.db'}")
    model.fit(frame, price)
    for way in WAYS.values():
        with pytest.raises(TypeError, match=r"^index: expected .* got milvus.*; save the model and load it"):
            way(model)
    model.fitted_.near.index.close()
