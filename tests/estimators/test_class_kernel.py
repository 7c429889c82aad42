"""NeighborClassifier by a kernel: probabilities, explanations, rows that come and go, files, and the default."""

import hashlib
import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_iris, load_wine

from vicinal.estimators import NeighborClassifier, load_model
from vicinal.estimators.fitted import FittedModel
from vicinal.evaluation import classification_scores
from vicinal.workflows import TableJob, fit_table

pytestmark = pytest.mark.filterwarnings("ignore::vicinal.core.ExtrapolationWarning")

KERNEL = {"metric": "kernel", "random_state": 0}


def wine():
    x, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    return x[order], np.array(["red", "rose", "white"])[y[order]]


@pytest.fixture(scope="module")
def model():
    x, y = wine()
    return NeighborClassifier(**KERNEL).fit(x[:130], y[:130])


def log_loss(model, x, y):
    return classification_scores(y, model.predict_proba(x), model.classes_.tolist())["log_loss"]


def test_it_knows_classes_better_than_their_shares(model):
    x, y = wine()
    chances = model.predict_proba(x[130:])
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert (chances > 0).all()
    assert log_loss(model, x[130:], y[130:]) < 0.15
    assert (model.predict(x[130:]) == y[130:]).mean() >= 0.9
    assert (model.metric_, model.readout_, model.target_transform_.name) == ("kernel", "dense", "softmax")


def test_contributions_sum_to_the_score_that_makes_the_probability(model):
    x = wine()[0][130:]
    chances, explained = model.predict_proba(x), model.explain(x, k=200)
    scale = model.target_transform_
    labels = torch.nn.functional.one_hot(model.bank_.labels.long(), 3).double()
    for chance, one in zip(chances, explained, strict=True):
        assert one.transform == "softmax"
        assert one.total == pytest.approx(sum(n.contribution for n in one.neighbors), abs=1e-9)
        assert sum(n.weight for n in one.neighbors) == pytest.approx(1, abs=1e-9)
        assert one.probability == pytest.approx(chance.max(), abs=1e-12)
        assert one.prediction == model.classes_[chance.argmax()]
        weights = torch.zeros(len(labels), dtype=torch.float64)
        weights[model.bank_.store.positions([n.id for n in one.neighbors])] = torch.tensor(
            [n.weight for n in one.neighbors], dtype=torch.float64
        )
        odds = scale.slope * (weights @ labels) + torch.tensor(scale.biases, dtype=torch.float64)
        np.testing.assert_allclose((1 - scale.doubt) * odds.softmax(0) + scale.doubt / 3, chance, atol=1e-9)
    assert scale.doubt == pytest.approx(0.01 / len(labels))
    assert any(n.weight < 0 for one in explained for n in one.neighbors)
    few = model.explain(x[:1], k=3)[0]
    assert few.total == pytest.approx(sum(n.contribution for n in few.neighbors) + few.other_contribution)


def test_a_row_is_never_predicted_from_itself(model):
    x, y = wine()
    own = model.predict_proba(x[:20], ids=list(range(20)))
    for row in (3, 11):
        rest = NeighborClassifier(**KERNEL).fit(x[:130], y[:130])
        rest.forget([row])
        np.testing.assert_allclose(rest.predict_proba(x[row : row + 1])[0], own[row], atol=1e-8)


@pytest.mark.parametrize("metric", ["kernel", "trees"])
def test_what_the_scale_was_found_by_are_the_predictions_of_the_others(metric):
    x, y = wine()
    fitted = NeighborClassifier(metric=metric, random_state=0).fit(x[:90], y[:90]).fitted_
    said, _, at = fitted.all_left_out()
    torch.testing.assert_close(said, fitted.left_out(fitted.bank, torch.arange(90))[0])
    assert at.tolist() == list(range(90))


@pytest.mark.parametrize("groups", [None, np.arange(90) // 4])
@pytest.mark.parametrize("metric", ["kernel", "trees"])
def test_what_classes_and_groups_are_called_does_not_matter(metric, groups):
    x, y = wine()
    model = NeighborClassifier(metric=metric, random_state=0)
    others, own = np.select([y == "red", y == "rose"], ["z", "y"], "x"), None if groups is None else [200] * len(x[90:])
    known = model.fit(x[:90], y[:90], groups=groups).predict_proba(x[90:], groups=own)
    named = None if groups is None else 90 - groups
    renamed = model.fit(x[:90], others[:90], groups=named).predict_proba(x[90:], groups=own)
    np.testing.assert_allclose(renamed[:, ::-1], known, atol=1e-9)


def test_rows_come_go_and_change_at_once(model):
    x, y = wine()
    changed = NeighborClassifier(**KERNEL).fit(x[:130], y[:130])
    before = changed.predict_proba(x[150:])
    changed.add(x[130:150], y[130:150], ids=range(900, 920))
    added = changed.predict_proba(x[150:])
    assert np.abs(added - before).max() > 1e-6
    changed.forget(range(900, 920))
    np.testing.assert_allclose(changed.predict_proba(x[150:]), before, atol=1e-9)
    changed.relabel([0, 1, 2], ["red", "red", "red"])
    assert np.abs(changed.predict_proba(x[150:]) - before).max() > 1e-6


def test_new_classes_are_taken():
    x, y = wine()
    grown = NeighborClassifier(**KERNEL).fit(x[:130], y[:130])
    far = x[:12] + 30 * x.std(axis=0)
    grown.add(far, ["other"] * 12, new_classes=True)
    assert grown.predict(far[:3] + 0.01).tolist() == ["other"] * 3
    assert grown.predict_proba(x[130:]).shape == (48, 4)


def test_it_is_saved_whole(model, tmp_path):
    x = wine()[0][130:]
    model.save(tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_proba(x), model.predict_proba(x))
    assert loaded.explain(x[:2])[1] == model.explain(x[:2])[1]
    assert loaded.target_transform_ == model.target_transform_
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert config["whole_up_to"] == 2048
    assert config["transform"]["name"] == "softmax"


def test_columns_have_lengths_of_their_own_where_these_say_more(tmp_path):
    x = np.random.default_rng(0).normal(size=(320, 8))
    y = np.where(x[:, 0] * x[:, 1] > 0, "same", "apart")  # six columns say nothing
    model = NeighborClassifier(**KERNEL).fit(x[:200], y[:200])
    assert model.target_transform_.name == "power"
    assert log_loss(model, x[200:], y[200:]) < 0.2  # of one length for all columns .46
    lengths = model.network_.projector.log_lengths
    assert lengths[:2].max() < lengths[2:].min() - 1
    model.save(tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_proba(x[200:]), model.predict_proba(x[200:]))
    assert loaded.explain(x[200:202]) == model.explain(x[200:202])


def test_sets_hold_the_class_as_often_as_promised():
    x, y = load_iris(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(x))
    x, y = x[order], y[order]
    model = NeighborClassifier(**KERNEL, validation_fraction=0.3).fit(x[:100], y[:100])
    sets = model.predict_set(x[100:], 0.9)
    assert sets[np.arange(50), y[100:]].mean() >= 0.8


def test_more_rows_than_one_inverse_holds_are_read_by_the_nearest(monkeypatch):
    x, y = wine()
    monkeypatch.setattr("vicinal.estimators.fitting.WHOLE", 50)
    near = NeighborClassifier(**KERNEL).fit(x[:130], y[:130])
    assert near.network_.head.whole_up_to == 50
    assert near.bank_.inverted is None
    monkeypatch.undo()
    few = NeighborClassifier(**KERNEL, max_neighbors=40).fit(x[:130], y[:130])
    assert few.network_.head.looked_at(130) == 40
    assert few.explain(x[130:131], k=100)[0].other_count == 0
    for one in (near, few):  # 256 nearest of 130 are all of them
        assert log_loss(one, x[130:], y[130:]) < 0.2


@pytest.mark.slow
def test_an_index_finds_the_rows():
    x, y = wine()
    plain = NeighborClassifier(**KERNEL, max_neighbors=30).fit(x[:130], y[:130])
    indexed = NeighborClassifier(**KERNEL, max_neighbors=30, index="exact").fit(x[:130], y[:130])
    np.testing.assert_allclose(indexed.predict_proba(x[130:]), plain.predict_proba(x[130:]), atol=1e-6)
    one, other = indexed.explain(x[130:131])[0], plain.explain(x[130:131])[0]
    assert one.probability == pytest.approx(other.probability, abs=1e-6)
    whole = NeighborClassifier(**KERNEL, index="exact").fit(x[:130], y[:130])
    assert whole.network_.head.whole_up_to == 0


def test_weights_of_rows_count():
    x, y = wine()
    weights = np.where(y[:130] == "red", 5.0, 1.0)
    heavy = NeighborClassifier(**KERNEL).fit(x[:130], y[:130], sample_weight=weights)
    plain = NeighborClassifier(**KERNEL).fit(x[:130], y[:130])
    red = plain.classes_.tolist().index("red")
    middle = x[:130].mean(axis=0)[None]
    assert heavy.predict_proba(middle)[0, red] > plain.predict_proba(middle)[0, red]


def test_vectors_of_a_column_count_as_they_are_where_that_is_better():
    rng = np.random.default_rng(0)
    told, noise = rng.normal(size=(200, 4)), 0.03 * rng.normal(size=(200, 60))
    y = (told[:, 0] * told[:, 1] > 0).astype(int)
    rows = pd.DataFrame({"v": list(np.hstack([told, noise]))})
    model = NeighborClassifier(**KERNEL, columns={"v": "vector"}).fit(rows[:150], y[:150])
    assert log_loss(model, rows[150:], y[150:]) < 0.5
    lengths = model.network_.projector.log_lengths.detach().exp()
    assert float(lengths[4:].min() / lengths[:4].max()) > 10
    constant = pd.DataFrame({"v": list(np.hstack([told, np.ones((200, 3))]))})  # entries that never differ
    flat = NeighborClassifier(**KERNEL, columns={"v": "vector"}).fit(constant[:150], y[:150])
    assert np.isfinite(flat.predict_proba(constant[150:])).all()


def test_the_default_takes_what_predicts_the_rows_held_out_better():
    x, y = wine()
    settings = {"max_epochs": 2, "members": 2, "hidden": (8, 4)}
    vectors = pd.DataFrame({"v": list(x)})  # a table of numbers is of trees or a kernel
    model = NeighborClassifier(**settings).fit(vectors[:130], y[:130])
    assert model.metric_ == "kernel"  # two epochs make no network that is better
    assert model.target_transform_.name == "softmax"
    network = NeighborClassifier(**settings, metric="network").fit(x[:130], y[:130])
    assert (network.metric_, network.target_transform_.name) == ("network", "none")
    assert network.explain(x[130:131])[0].probability == pytest.approx(network.explain(x[130:131])[0].total)
    attention = NeighborClassifier(**settings, readout="attention").fit(x[:130], y[:130])
    assert attention.metric_ == "network"
    rng = np.random.default_rng(0)
    noise, label = rng.normal(size=(60, 30)), np.repeat([0, 1], 30)
    noise[:, 0] += 3 * label
    one = NeighborClassifier(max_epochs=60, learning_rate=1e-2).fit(noise, label)
    assert (one.metric_ == "network") == (one.target_transform_.name == "none")


@pytest.mark.parametrize(
    ("settings", "y", "sentence"),
    [
        ({"readout": "attention"}, None, "readout: expected 'dense' or 'rows' for metric='kernel'"),
        ({"loss": "crps"}, None, "loss: expected None for metric='kernel'"),
        ({"head": "dense"}, None, "head: expected 'nona' for metric='kernel'"),
        ({}, [["a"], ["a", "b"]] * 65, "metric: expected 'network' for several classes a row, got 'kernel'"),
        ({"validation_fraction": 0}, None, "validation_fraction: expected a share above 0 for metric='kernel'"),
    ],
)
def test_what_a_kernel_of_classes_has_not_is_said(settings, y, sentence):
    x, labels = wine()
    with pytest.raises(ValueError, match=sentence):
        NeighborClassifier(**KERNEL, **settings).fit(x[:130], labels[:130] if y is None else y)


def test_a_kernel_of_classes_reads_texts_as_their_encoder_gives_them_untrained(tmp_path):
    table = pd.DataFrame({"text": [f"word {i % 7} and {i % 3} more of it" for i in range(140)]})
    kinds = np.where((np.arange(140) % 7 < 3) ^ (np.arange(140) % 20 == 0), "a", "b")
    few = {
        "max_epochs": 1,
        "members": 2,
        "columns": {"text": "text"},
        "encoders": {"text": "ngrams"},
        "random_state": 0,
    }
    model, kernel = (NeighborClassifier(**few, metric=metric).fit(table, kinds) for metric in ("auto", "kernel"))
    assert (model.metric_, model.score(table, kinds) > 0.9) == ("kernel", True)
    np.testing.assert_array_equal(model.predict_proba(table[:9]), kernel.predict_proba(table[:9]))
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict_proba(table), model.predict_proba(table))


def bags(count, seed):
    """Sets of pairs of numbers whose class says around what they lie; every ninth is empty."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 2, count)
    sizes = np.where(np.arange(count) % 9, rng.integers(1, 6, count), 0)
    cells = [rng.normal(3.0 * kind, 1, (size, 2)).tolist() for kind, size in zip(kinds, sizes, strict=True)]
    return pd.DataFrame({"bag": cells}), np.array(["low", "high"])[kinds]


def test_sets_by_their_moments_have_a_kernel_as_nothing_of_them_is_trained(tmp_path):
    frame, kinds = bags(120, 0)
    settings = {"columns": {"bag": "set"}, "random_state": 0, "max_epochs": 1}
    model = NeighborClassifier(**settings).fit(frame, kinds)
    assert (model.metric_, model.readout_, model.table_encoder.encoders[0].name) == (
        "kernel",
        "dense",
        "moments:vectors",
    )
    fresh, truth = bags(60, 1)
    chances = model.predict_proba(fresh)
    full = fresh["bag"].map(len).to_numpy() > 0
    assert (model.predict(fresh) == truth)[full].mean() > 0.9
    assert np.ptp(chances[~full], axis=0).max() == 0
    model.save(tmp_path / "bags")
    np.testing.assert_array_equal(load_model(tmp_path / "bags").predict_proba(fresh), chances)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"name": "none", "biases": []}, "probabilities of scores"),
        ({"biases": []}, "biases of another transform"),
        ({"biases": [0.0] * 9}, "probabilities of more classes"),
        ({"slope": -1.0}, "transform.slope"),
    ],
)
def test_edited_settings_are_refused(model, tmp_path, change, sentence):
    model.save(tmp_path / "m")
    place, sums = tmp_path / "m" / "config.json", tmp_path / "m" / "SHA256SUMS"
    before, config = hashlib.sha256(place.read_bytes()).hexdigest(), json.loads(place.read_text())
    place.write_text(json.dumps(config | {"transform": config["transform"] | change}))
    sums.write_text(sums.read_text().replace(before, hashlib.sha256(place.read_bytes()).hexdigest()))
    with pytest.raises(ValueError, match=sentence):
        load_model(tmp_path / "m")


def test_other_uses_of_the_whole_bank(model, monkeypatch):
    x, y = wine()
    queries = torch.from_numpy(model.embed(x[130:133]))
    dense = model.fitted_.bank_weights(queries, model.bank_.identity(None, None))
    direct = model.network_.head.weights(queries, model.bank_.vectors.double())
    torch.testing.assert_close(dense, direct.detach())
    vectors = model.embedded_rows(x[130:140])[1]
    fast = model.weights_for(vectors, y[130:140])
    monkeypatch.setattr("vicinal.heads.Kriging.by_one_inverse", lambda head, rows: False)
    np.testing.assert_array_equal(model.weights_for(vectors, y[130:140]), fast)


def test_a_network_is_taken_if_it_is_surely_better(monkeypatch):
    x, y = wine()

    def fitted(gains):
        ones = torch.ones(len(gains), dtype=torch.float64)

        def errors(model):
            return ones - (model.metric == "network") * torch.tensor(gains, dtype=torch.float64), ones

        monkeypatch.setattr(FittedModel, "honest_errors", property(errors))
        vectors = pd.DataFrame({"v": list(x[:60])})
        return NeighborClassifier(max_epochs=1, members=2, hidden=(8, 4)).fit(vectors, y[:60]).metric_

    assert fitted([0.2] * 20) == "network"
    assert fitted([0.04] * 20) == "kernel"  # less than 5 %
    assert fitted([0.9] + [-0.1] + [0.0] * 7) == "kernel"  # one row in nine makes all of it
    assert fitted([-0.2] * 20) == "kernel"


def test_the_report_says_scores_and_weights_below_zero(tmp_path):
    x, y = wine()
    table = pd.DataFrame(x, columns=[f"c{i}" for i in range(13)]).assign(wine=y, id=[f"w{i}" for i in range(len(x))])
    job = TableJob(table, "wine", id="id", parameters=KERNEL, baselines=False)
    model = fit_table(job, tmp_path / "m").model
    page = (tmp_path / "m" / "report.html").read_text()
    assert "The score of a class is the sum of the weights of the rows that have it" in page
    assert "which makes its probability" in page
    assert model.target_transform_.sentence[1:] in page
    assert "The probability of a class is the weight" not in page
    card = (tmp_path / "m" / "README.md").read_text()
    assert "some of them below 0" in card
    assert "| target_transform | softmax |" in card
