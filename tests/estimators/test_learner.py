"""A learned similarity: what is alike lies together, also of classes never seen; search, explanations, saving."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from vicinal.encoders import PrincipalProjector
from vicinal.estimators import EmbeddingLearner, NeighborRegressor, load_model
from vicinal.evaluation.alike import alike_scores, hold_out_classes, number_values, retrieval_values


def shapes(classes=16, rows=8, seed=0):
    """Rows of classes that two of eight numbers tell apart, the others being louder noise."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(classes), rows)
    signal = rng.normal(size=(classes, 2))[y] + 0.1 * rng.normal(size=(len(y), 2))
    return np.c_[signal, 2 * rng.normal(size=(len(y), 6))], y


@pytest.fixture(scope="module")
def fitted():
    X, y = shapes()
    frame = pd.DataFrame({"a": X[:, 0], "v": list(X[:, 1:]), "note": [f"row {i}" for i in range(len(X))]})
    settings = {"columns": {"note": "text"}, "encoders": {"text": "ngrams"}, "max_epochs": 8, "random_state": 1}
    model = EmbeddingLearner(**settings).fit(frame, [f"k{c}" for c in y], ids=[f"r{i}" for i in range(len(X))])
    return model, frame, y


@pytest.mark.slow
def test_classes_never_seen_lie_together_after_learning_and_not_before():
    X, y = shapes(24)
    unseen = y >= 18
    model = EmbeddingLearner(max_epochs=12).fit(X[~unseen], y[~unseen])
    before = alike_scores(torch.from_numpy(X[unseen]), torch.from_numpy(y[unseen]), intervals=False)["map@r"].value
    after = model.score(X[unseen], y[unseen])
    assert model.learned_
    assert after > before + 0.3
    assert np.allclose(np.linalg.norm(model.transform(X), axis=1), 1)


def test_held_out_classes_are_whole_and_stop_training(fitted):
    model = fitted[0]
    held_out = set(model.calibration_.labels.tolist())
    trained = [
        label
        for i, label in zip(model.bank_.ids, model.bank_.labels.tolist(), strict=True)
        if not model.calibration_.has([i])[0]
    ]
    assert len(held_out) == 2
    assert not held_out & set(trained)
    assert min(model.history_.validation_error) <= model.history_.validation_error[0]


def test_a_search_gives_scores_of_cosine_best_first_and_no_row_itself(fitted):
    model, frame, _ = fitted
    hits = model.search(frame.iloc[:3], 6, ids=["r0", "r1", "r2"])
    vectors, bank = model.transform(frame.iloc[:3]), model.bank_.vectors.double().numpy()
    for row, some in enumerate(hits):
        scores = {i: s for i, s in zip(model.bank_.ids.tolist(), bank @ vectors[row], strict=True) if i != f"r{row}"}
        best = sorted(scores, key=lambda i: -scores[i])[:6]
        assert [hit.id for hit in some] == best
        assert [hit.score for hit in some] == pytest.approx([scores[i] for i in best], abs=1e-6)
    assert hits[0][0].label == "k0"


def test_shares_of_columns_sum_to_the_score(fitted):
    model, frame, _ = fitted
    for some in model.explain(frame.iloc[:2], 3):
        for hit in some:
            assert set(hit.shares) == {"a", "v", "note"}
            assert sum(hit.shares.values()) == pytest.approx(hit.score, abs=1e-5)


def test_a_saved_learner_is_the_same_and_takes_new_classes(fitted, tmp_path):
    model, frame, _ = fitted
    model.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert isinstance(again, EmbeddingLearner)
    assert isinstance(EmbeddingLearner.load(tmp_path / "m"), EmbeddingLearner)
    assert again.transform(frame) == pytest.approx(model.transform(frame), abs=1e-12)
    assert (again.labels_, again.start_, again.learned_) == ("classes", model.start_, model.learned_)
    again.add(frame.iloc[:2], ["brand new one", "k3"], ids=["n0", "n1"])
    again.save(tmp_path / "m")
    third = load_model(tmp_path / "m")
    assert {hit.id: hit.label for hit in third.search(frame.iloc[:1], 200)[0]}["n0"] == "brand new one"
    third.forget(["n0", "n1"])
    assert [h.id for h in third.search(frame.iloc[:1], 5)[0]] == [h.id for h in model.search(frame.iloc[:1], 5)[0]]
    with pytest.raises(ValueError, match="expected a NeighborRegressor"):
        NeighborRegressor.load(tmp_path / "m")
    assert clone(again).get_params() == {**again.get_params()}


def test_names_of_classes_go_with_their_last_row(fitted, tmp_path):
    model, frame, _ = fitted
    model.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    again.add(frame.iloc[:2], ["secret one", "secret two"], ids=["n0", "n1"])
    code = again.classes_.tolist().index("k3")
    gone = [name for name, label in zip(again.bank_.ids, again.bank_.labels.tolist(), strict=True) if label == code]
    again.forget([*gone, "n0"])
    assert not {"k3", "secret one"} & set(again.classes_.tolist())
    left = dict(zip(again.bank_.ids.tolist(), again.labels_of(again.bank_.ids), strict=True))
    before = dict(zip(model.bank_.ids.tolist(), model.labels_of(model.bank_.ids), strict=True))
    assert left == {name: label for name, label in before.items() if label != "k3"} | {"n1": "secret two"}
    again.save(tmp_path / "m")
    assert not [path for path in (tmp_path / "m").rglob("*") if path.is_file() and b"secret one" in path.read_bytes()]
    third = load_model(tmp_path / "m").add(frame.iloc[:1], ["k3"], ids=["n0"])
    assert third.labels_of(["n0", "n1"]) == ["k3", "secret two"]


def test_groups_of_queries_need_groups_of_the_bank(fitted):
    model, frame, _ = fitted
    with pytest.raises(ValueError, match=r"^groups: expected none, as the model was fitted without groups, got some"):
        model.search(frame.iloc[:2], groups=["a", "b"])


def test_a_class_is_not_known_if_nothing_was_added(fitted):
    model, x = fitted[0], fitted[1]
    before = list(model.classes_)
    with pytest.raises(ValueError, match=r"^ids: expected"):
        model.add(x[:2], ["new one", "new two"], ids=model.bank_.ids[:2])
    assert list(model.classes_) == before


def test_numbers_and_several_classes_are_taken_for_what_they_are(tmp_path):
    X, y = shapes()
    number = EmbeddingLearner(max_epochs=5).fit(X, X[:, 0] + X[:, 1])
    assert number.labels_ == "numbers"
    assert number.score(X, X[:, 0] + X[:, 1]) > 0.5
    tags = [["x", "y"] if c % 2 else {"y", "z"} if c % 3 else ["w"] for c in y]
    several = EmbeddingLearner(max_epochs=1).fit(X, tags)
    assert several.labels_ == "several"
    assert several.classes_.tolist() == ["w", "x|y", "y|z"]
    for model, labels in ((number, X[:, 0]), (several, tags)):
        model.save(tmp_path / "m")
        assert load_model(tmp_path / "m").score(X, labels) == pytest.approx(model.score(X, labels))


@pytest.mark.parametrize(
    "settings",
    [
        {"loss": "proxy_anchor + 0.5*triplet(miner=semihard)"},
        {"loss": "multi_similarity", "memory": 64, "sampler": "random"},
        {"sampler": "groups", "unseen": False},
        {"loss": "triplet", "miner": "semihard"},
    ],
    ids=lambda settings: "-".join(settings),
)
def test_losses_miners_samplers_and_memories_need_no_loop(settings):
    X, y = shapes(10, 6)
    groups = None if "memory" in settings else np.arange(60) % 20
    model = EmbeddingLearner(max_epochs=2, **settings).fit(X, y, groups=groups)
    assert len(model.history_.train_error) == 2
    assert all(np.isfinite(model.history_.train_error))


def test_training_that_gains_nothing_leaves_the_start():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), np.repeat(np.arange(10), 6)
    model = EmbeddingLearner(max_epochs=1, learning_rate=1e-12, loss="contrastive").fit(X, y)
    assert not model.learned_
    start = EmbeddingLearner(max_epochs=1, learning_rate=1e-13, loss="triplet").fit(X, y)
    assert model.transform(X) == pytest.approx(start.transform(X), abs=1e-12)


@pytest.mark.parametrize(("classes", "known"), [(3, 3), (7, 7), (8, 6)])
def test_of_few_classes_all_are_learned_from_and_of_8_two_are_held_out(classes, known):
    model = EmbeddingLearner(max_epochs=1, dim=2).fit(*shapes(classes))
    labels, held_out = model.bank_.labels.numpy(), model.bank_.has(model.calibration_.ids)
    apart = ~np.isin(model.bank_.ids, model.calibration_.ids)
    assert len(np.unique(labels[apart])) == known
    assert held_out.all()


@pytest.mark.parametrize(
    ("settings", "y", "words"),
    [
        ({}, [1] * 30, "y: expected at least two classes, got one class, 1"),
        ({"unseen": True}, [1, 2, 3] * 10, "expected at least 4 classes of two rows and more"),
        ({}, [1] * 29, "y: expected 30 labels, one a row of X .*, got 29"),
        ({"labels": "numbers"}, ["a"] * 30, "y: expected numbers, got 'a'"),
        ({"labels": "several"}, ["a"] * 30, "y: expected a list of classes in row 0, got 'a'"),
        ({"loss": "matching:sigmoid"}, [1, 2] * 15, "which is one of predictions"),
        ({"loss": "rank_n_contrast"}, [1, 2] * 15, "which takes numbers"),
        ({"sampler": "strata", "unseen": False}, [1, 2] * 15, "sampler: expected one for labels that are classes"),
        ({"tune": "auto"}, [1, 2] * 15, "tune: expected"),
        ({"dim": 1}, [1, 2] * 15, "dim: expected a whole number of at least 2"),
    ],
)
def test_what_cannot_be_learned_is_one_sentence(settings, y, words):
    with pytest.raises(ValueError, match=words):
        EmbeddingLearner(**settings).fit(np.random.default_rng(0).normal(size=(30, 3)), y)


def by_hand(x, labels, groups):
    """MAP@R, R-precision, hit@1 of each row, counted in plain Python."""
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    values = []
    for i in range(len(x)):
        others = [j for j in range(len(x)) if j != i and (groups is None or groups[i] != groups[j])]
        others.sort(key=lambda j: -float(unit[i] @ unit[j]))
        like = [bool((labels[i] * labels[j]).sum()) if labels.ndim == 2 else labels[i] == labels[j] for j in others]
        count = sum(like)
        if not count:
            values.append((np.nan,) * 3)
            continue
        found = [sum(like[: r + 1]) / (r + 1) * like[r] for r in range(count)]
        values.append((sum(found) / count, sum(like[:count]) / count, float(like[0])))
    return np.array(values)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
def test_retrieval_equals_counting_by_hand(several, grouped):
    rng = np.random.default_rng(0)
    x, groups = rng.normal(size=(40, 3)), rng.integers(0, 12, 40) if grouped else None
    labels = rng.integers(0, 2, (40, 4)) if several else rng.integers(0, 9, 40)
    names = ("map@r", "r_precision", "hit@1")
    known = None if groups is None else torch.from_numpy(groups)
    values = retrieval_values(torch.from_numpy(x), torch.from_numpy(labels), known, names)
    assert np.stack([values[name] for name in names], 1) == pytest.approx(by_hand(x, labels, groups), nan_ok=True)


def test_scores_of_numbers_are_those_of_the_ten_nearest_with_an_interval_around():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2))
    y = np.arctan2(x[:, 1], x[:, 0])
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    near = [y[np.argsort(-(unit @ unit[i]))[1:11]].mean() for i in range(80)]
    assert number_values(torch.from_numpy(x), torch.from_numpy(y)).numpy() == pytest.approx(np.array(near))
    score = alike_scores(torch.from_numpy(x), torch.from_numpy(y))["r2@10"]
    assert score.value == pytest.approx(1 - np.square(near - y).sum() / np.square(y - y.mean()).sum())
    assert score.low < score.value < score.high < 1


def test_whole_classes_are_held_out_and_single_rows_never():
    labels = np.r_[np.repeat(np.arange(10), 4), [10, 11, 12]]
    held_out = labels[hold_out_classes(labels, 0.3, seed=3)]
    assert len(held_out) == 12
    assert len(set(held_out)) == 3
    assert max(held_out) < 10


def test_principal_components_keep_cosines_or_whiten_them():
    rows = torch.randn(200, 5, generator=torch.Generator().manual_seed(0)).double() @ torch.randn(5, 5).double()
    centered = torch.nn.functional.normalize(rows - rows.mean(0), dim=1)
    same = PrincipalProjector(5, 5).double().fit(rows, 0.0)(rows).detach()
    assert torch.allclose(same @ same.T, centered @ centered.T, atol=1e-9)
    moved = (rows - rows.mean(0)) @ PrincipalProjector(5, 5).double().fit(rows, 1.0).weight.detach()
    covariance = moved.T @ moved / 200
    assert torch.allclose(covariance, covariance[0, 0] * torch.eye(5).double(), atol=1e-9)
    flat = PrincipalProjector(5, 4).fit(torch.ones(9, 5), 1.0)
    assert flat(torch.randn(3, 5)).isfinite().all()


@pytest.mark.slow
def test_a_fit_that_was_killed_goes_on_to_the_same_vectors(tmp_path):
    X, y = shapes()
    whole = EmbeddingLearner(max_epochs=6, patience=20).fit(X, y)
    EmbeddingLearner(max_epochs=3, patience=20, checkpoint_dir=tmp_path).fit(X, y)
    resumed = EmbeddingLearner(max_epochs=6, patience=20, checkpoint_dir=tmp_path).fit(X, y)
    assert resumed.history_.resumed_at == 3
    assert resumed.transform(X) == pytest.approx(whole.transform(X), abs=1e-6)
