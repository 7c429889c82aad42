"""Promises of compression: what is of low rank loses nothing, folders load as any, and the cost is said."""

import copy
import json
import re

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.cluster import KMeans

from vicinal.cli import run
from vicinal.encoders import MemberProjectors
from vicinal.encoders.ngrams import NgramEncoder
from vicinal.estimators import EmbeddingLearner, NeighborClassifier, NeighborRegressor, load_model
from vicinal.estimators.compression import compressed, fewer_rows
from vicinal.workflows import compress_model

BRIEF = {"max_epochs": 4, "members": 2, "dropout": 0.0, "learning_rate": 1e-2}


def copies(rows=80, seed=0):
    """Twenty columns that are copies of four, a number, and a class."""
    random = np.random.default_rng(seed)
    four = random.normal(size=(rows, 4))
    return np.tile(four, 5), four[:, 0] + four[:, 1] ** 2, np.where(four[:, 2] > 0, "up", "down")


def notes(rows=160, seed=0):
    random = np.random.default_rng(seed)
    words = np.array(["fine", "good", "fair", "poor", "bad", "grim"])
    codes = random.integers(0, 6, (rows, 3))
    frame = pd.DataFrame({"note": [" ".join(words[row]) + " of it" for row in codes], "size": random.normal(size=rows)})
    return frame, -codes.mean(axis=1) + 0.1 * random.normal(size=rows)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    place = tmp_path_factory.mktemp("small")
    frame, y = notes()
    model = NeighborRegressor(hidden=(16, 8), metric="network", readout="attention", **BRIEF)
    model.fit(frame, y, ids=[f"n{row}" for row in range(len(frame))])
    model.notes_ = {"target": "score", "id": "tag", "scores": {"model": {"mse": 1.0}}}
    model.save(place / "model")
    return place, frame, y


@pytest.mark.parametrize("similarity", ["l2", "cosine"])
@pytest.mark.parametrize("share", [0.15, 0.0])
def test_what_is_of_low_rank_loses_nothing(similarity, share):
    """Twenty columns of rank four, and vectors of eight numbers that a layer of four makes."""
    x, y, names = copies()
    settings = {"hidden": (4, 8), "similarity": similarity, "validation_fraction": share, **BRIEF}
    if share:
        models = [NeighborRegressor(metric="network", readout="attention", **settings).fit(x, y)]
    else:
        models = [NeighborClassifier(**settings).fit(x, names)]
    for model in models:
        small, cuts = compressed(model, 0.8)
        assert [cut.part for cut in cuts] == ["first layer", "vectors of the bank"]
        assert all(cut.after < cut.before for cut in cuts)
        assert "covariance" in cuts[0].how
        assert small.network_.projector.rank == 4
        assert small.bank_.vectors.shape == (80, 12)
        predict = "predict" if share else "predict_proba"
        np.testing.assert_allclose(getattr(small, predict)(x), getattr(model, predict)(x), atol=2e-4)
        assert small.honest_error() == pytest.approx(model.honest_error(), abs=1e-3)
        assert model.network_.projector.rank is None  # it is as it was


def test_vectors_hold_the_share_of_variance_that_was_named(tmp_path):
    x, y, _ = copies()
    model = NeighborRegressor(hidden=(8, 6), metric="network", readout="attention", **BRIEF).fit(x, y)
    parts = model.bank_.vectors.double().numpy().reshape(80, 2, 6)
    spectra = [np.linalg.eigvalsh(np.cov(part.T))[::-1] for part in parts.transpose(1, 0, 2)]
    for share in (0.5, 0.9, 0.99):
        size = max(int((np.cumsum(one) / one.sum() < share).sum()) + 1 for one in spectra)
        vectors = compressed(model, 0.9, share)[0].bank_.vectors.double().reshape(80, 2, -1)
        assert vectors.shape[2] == size
        assert min(vectors[:, place].var(0).sum() / one.sum() for place, one in enumerate(spectra)) >= share
    model.save(tmp_path / "model")
    assert run(["compress", str(tmp_path / "model"), "--variance", ".9", "-q"]) == 0
    assert load_model(tmp_path / "model-small").notes_["kept_variance"] == 0.9
    assert run(["compress", str(tmp_path / "model"), "--variance", "1.5", "-q"]) == 2


def test_kriging_reads_short_vectors_as_it_read_long_ones():
    x, y, _ = copies()
    model = NeighborRegressor(hidden=(4, 8), metric="network", readout="rows", **BRIEF).fit(x, y)
    np.testing.assert_allclose(compressed(model, 0.8)[0].predict(x), model.predict(x), atol=2e-3)


def test_a_smaller_folder_is_a_model_as_any_and_the_old_one_stays(texts):
    place, frame, y = texts
    before = {path.name: path.read_bytes() for path in (place / "model").iterdir() if path.is_file()}
    outcome = compress_model(place / "model")
    assert {path.name: path.read_bytes() for path in (place / "model").iterdir() if path.is_file()} == before
    assert outcome.folder == place / "model-small"
    assert [cut.part for cut in outcome.cuts] == ["table of n-grams", "first layer", "vectors of the bank"]
    for cut in outcome.cuts:
        assert cut.after <= 0.5 * cut.before
    assert outcome.after.bytes < 0.8 * outcome.before.bytes
    assert (outcome.error, outcome.rows) == ("mean squared error", 24)
    small, model = load_model(place / "model-small"), load_model(place / "model")
    assert outcome.before.error == pytest.approx(model.honest_error())
    assert outcome.after.error == pytest.approx(small.honest_error())
    assert outcome.after.error < y.var()
    assert small.notes_ == {"target": "score", "id": "tag", "compressed_from": "model", "kept_share": 0.5}
    assert np.corrcoef(small.predict(frame), model.predict(frame))[0, 1] > 0.9
    small.add(frame[:2], y[:2], ids=["x", "y"]).forget(["n0"])
    explained = small.explain(frame[:1], 200, ids=["x"])[0]
    assert sum(n.weight for n in explained.neighbors) == pytest.approx(1)
    assert {hit.id for hit in small.search("grim grim grim", 2)[0]} <= set(small.bank_.ids.tolist())
    small.save(place / "again")
    np.testing.assert_array_equal(load_model(place / "again").predict(frame), small.predict(frame))


def test_a_learned_similarity_keeps_its_order_in_fewer_numbers(tmp_path):
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(12), 8)
    x = np.concatenate([random.normal(size=(12, 3))[y] + 0.1 * random.normal(size=(96, 3)), np.zeros((96, 9))], axis=1)
    x[:, 3:] = x[:, :3].repeat(3, axis=1)
    model = EmbeddingLearner(max_epochs=2).fit(x, y)
    model.save(tmp_path / "alike")
    outcome = compress_model(tmp_path / "alike", 0.5, tmp_path / "less")
    small = load_model(tmp_path / "less")
    assert outcome.error == "1 - MAP@R"
    assert small.bank_.vectors.shape == (96, 6)
    np.testing.assert_allclose(np.linalg.norm(small.transform(x), axis=1), 1)
    np.testing.assert_allclose(
        small.transform(x) @ small.transform(x).T, model.transform(x) @ model.transform(x).T, atol=0.02
    )
    assert outcome.after.error == pytest.approx(outcome.before.error, abs=0.02)
    hits, expected = small.search(x[:1], 3), model.search(x[:1], 3)
    assert [hit.id for hit in hits[0]] == [hit.id for hit in expected[0]]
    small.add(x[:2] + 5, [99, 99])


def apart_from(whole, few, x):
    """Sum of squared differences of what both say of the rows of the fit, each without itself."""
    said = [getattr(one, "predict_proba", one.predict)(x, ids=np.arange(len(x))) for one in (whole, few)]
    return np.square(said[0] - said[1]).sum()


def without_others(model, rows):
    return copy.deepcopy(model).forget(np.setdiff1d(np.arange(len(model.bank_)), rows))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("classes", [False, True])
def test_few_rows_are_real_ones_that_predict_as_all_do(tmp_path, classes):
    x = np.random.default_rng(0).uniform(0, 6, (120, 2))
    y = np.where(x[:, 0] > 4, 10 * np.sin(4 * x[:, 0]), 0.0)  # all that there is to say is on one side
    y = np.digitize(y, [-6, -3, -1, 1, 3, 6]) if classes else y
    kind = NeighborClassifier if classes else NeighborRegressor
    model = (
        kind(metric="kernel")
        if classes
        else kind(metric="kernel", readout="rows", target_transform="none", max_neighbors=20)
    )
    model.fit(x, y).save(tmp_path / "m")
    outcome = compress_model(tmp_path / "m", out=tmp_path / "few", rows=0.15)
    few = load_model(tmp_path / "few")
    ids = few.bank_.ids
    assert (len(ids), outcome.rows) == (18, len(model.calibration_))
    assert few.labels_of(ids) == y[ids].tolist()
    assert set(y[ids]) >= (set(y) if classes else set())
    assert outcome.cuts[0].how.startswith("18 of 120 rows")
    means = KMeans(18, n_init=1, random_state=0).fit(model.bank_.vectors.double().numpy()).cluster_centers_
    near = np.square(model.bank_.vectors.numpy()[:, None] - means).sum(2).argmin(0)
    assert outcome.after.error > outcome.before.error
    gap = apart_from(model, few, x)
    if not classes:
        assert gap < 0.99 * apart_from(model, without_others(model, near), x)
    assert gap < 0.9 * apart_from(model, without_others(model, np.linspace(0, 119, 18).astype(int)), x)
    held_out = model.calibration_
    error = np.square(few.predict(x[held_out.ids], ids=held_out.ids) - y[held_out.ids]).mean()
    if classes:  # eight rows, one of each of the seven classes among them
        assert set(y[fewer_rows(model, 0.01)[0].bank_.ids]) == set(y)
    else:
        assert outcome.after.error == pytest.approx(error)
    assert few.notes_ | {"compressed_from": "m", "kept_rows": 0.15} == few.notes_


@pytest.mark.parametrize(
    ("kind", "settings", "sentence"),
    [
        (EmbeddingLearner, {"max_epochs": 1}, "predicts, got one of similarity"),
        (NeighborRegressor, {"head": "dense"}, "predicts from neighbors, got one with head='dense'"),
        (NeighborRegressor, {"index": "exact", "metric": "network"}, "has no index, got 'exact'"),
        (NeighborRegressor, {"metric": "network", "validation_fraction": 0}, "held rows out, to measure on, got one"),
    ],
)
def test_models_whose_rows_cannot_be_fewer_are_refused(kind, settings, sentence):
    x, y, _ = copies(40)
    brief = {} if kind is EmbeddingLearner else {**BRIEF, "max_epochs": 1, "hidden": (4, 2)}
    model = kind(**brief | settings).fit(x[:, :3], np.arange(40) % 10 if kind is EmbeddingLearner else y)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        fewer_rows(model, 0.5)


def test_two_factors_of_full_rank_are_the_table_and_the_layer():
    frame = pd.DataFrame({"note": ["a bay", "the sea", "a sea"]})
    whole, thin = NgramEncoder("note", width=4), NgramEncoder("note", width=4, rank=4)
    rows = torch.arange(3)
    for each in (whole, thin):
        each.fit(frame).eval()
    turn = torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(0)))[0]
    thin.table.weight.data, thin.widening.data = whole.table.weight.data @ turn.T, turn
    torch.testing.assert_close(thin(thin.prepare(frame).select(rows)), whole(whole.prepare(frame).select(rows)))
    assert NgramEncoder.from_config(thin.config()).table.weight.shape == thin.table.weight.shape
    layers = MemberProjectors(6, (5, 2), members=3, rank=6)
    plain = MemberProjectors(6, (5, 2), members=3)
    layers.load_state_dict(plain.state_dict() | {"reduction": torch.eye(6)})
    points = torch.randn(7, 6, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(layers.eval()(points), plain.eval()(points))
    torch.testing.assert_close(layers.train()(points), plain.train()(points))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"metric": "kernel"}, "has a trained network, got one with a kernel"),
        ({"head": "dense"}, "predicts from neighbors, got one with head='dense'"),
        ({"similarity": "l1", "metric": "network"}, "compares by l2, squared_l2, cosine, dot, got 'l1'"),
        ({"index": "exact", "metric": "network"}, "has no index, got 'exact'"),
        ({"hidden": (1, 1), "members": 1, "metric": "network"}, "expected parts that can be cut, got none"),
    ],
)
def test_what_cannot_be_cut_is_refused_in_a_sentence_and_nothing_is_written(settings, sentence, tmp_path, capsys):
    x, y, _ = copies(40)
    NeighborRegressor(**{**BRIEF, "max_epochs": 1, "hidden": (4, 2)} | settings).fit(x[:, :3], y).save(tmp_path / "m")
    assert run(["compress", str(tmp_path / "m"), "-q"]) == 2
    said = capsys.readouterr().err
    assert sentence in said.replace("\n", " ")
    assert said.count("\n") == 1
    assert not (tmp_path / "m-small").exists()


def test_the_command_prints_error_bytes_and_time_of_both(texts, capsys):
    place = texts[0]
    assert run(["compress", str(place / "model"), "--out", str(place / "said"), "--keep", "0.3", "-q"]) == 0
    said = capsys.readouterr().out
    assert "mean squared error" in said
    assert "table of n-grams" in said
    assert run(["compress", str(place / "model"), "--out", str(place / "said"), "--json", "-q"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["after"]["bytes"] < told["before"]["bytes"]
    assert told["before"]["seconds"] > 0
    assert run(["compress", str(place / "model"), "--out", str(place / "said"), "--rows", "0.1", "-q"]) == 0
    assert "16 of 160 rows" in capsys.readouterr().out.replace("\n", " ")
    for share in ("0", "1"):
        assert run(["compress", str(place / "model"), "--keep", share]) == 2
        assert run(["compress", str(place / "model"), "--rows", share]) == 2
    assert run(["compress", str(place / "model"), "--out", str(place / "model")]) == 2
