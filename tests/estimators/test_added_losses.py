"""Losses of the embeddings, added to the error of predictions."""

import functools

import numpy as np
import pandas as pd
import pytest
import torch

from references.tables import QUICK
from vicinal.cli import run
from vicinal.estimators import NeighborClassifier, NeighborRegressor, load_model, save_model
from vicinal.losses import EmbeddingLoss, ProxyLoss, label_contrast, nt_xent, parse, supcon
from vicinal.relation import label_distance
from vicinal.training.added import AddedLosses

BRIEF = {**QUICK, "max_epochs": 3}
TRAINED = {**QUICK, "max_epochs": 8, "learning_rate": 2e-2}


@pytest.fixture(scope="module")
def curve():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (240, 2))
    y = 10 + 3 * np.tanh(x[:, 0]) + 0.05 * rng.normal(size=240)
    return x, y, np.where(y > 11, "high", np.where(y > 9, "middle", "low"))


@pytest.fixture(scope="module")
def plain(curve):
    """Weights of a model without an added loss, fitted once."""
    x, y, classes = curve

    @functools.cache
    def fitted(kind, head):
        return weights(kind(head=head, **TRAINED).fit(x, classes if kind is NeighborClassifier else y - 10))

    return fitted


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.network_.projector.parameters()])


@pytest.mark.sweep(9)
@pytest.mark.parametrize(
    ("head", "loss"),
    [
        ("nona", "supcon"),
        ("dense", "0.5*triplet(miner=semihard) + arcface"),
        ("nona", "soft_triple(per_class=2)"),
        pytest.param("dense", "supcon", marks=pytest.mark.slow),
        pytest.param("nona", "0.5*triplet(miner=semihard) + arcface", marks=pytest.mark.slow),
        pytest.param("dense", "soft_triple(per_class=2)", marks=pytest.mark.slow),
    ],
)
def test_classes(curve, plain, loss, head):
    x, _, classes = curve
    model = NeighborClassifier(head=head, loss=loss, **TRAINED).fit(x, classes)
    assert model.score(x, classes) > 0.8
    assert not torch.equal(weights(model), plain(NeighborClassifier, head))


@pytest.mark.slow
@pytest.mark.sweep(2)
@pytest.mark.parametrize("loss", ["rank_n_contrast", "0.1*label_contrast(bandwidth=.5)", "matching:sinh + log_ratio"])
def test_numbers(curve, plain, loss):
    x, y, _ = curve
    model = NeighborRegressor(loss=loss, **TRAINED).fit(x, y - 10)
    assert model.score(x, y - 10) > 0.8
    assert not torch.equal(weights(model), plain(NeighborRegressor, "nona"))


@pytest.mark.slow
def test_the_loss_brings_classes_together(curve):
    x, _, classes = curve
    labels = torch.from_numpy(np.unique(classes, return_inverse=True)[1])
    values = []
    for loss in (None, "2*supcon"):
        model = NeighborClassifier(loss=loss, **TRAINED).fit(x, classes)
        values.append(float(EmbeddingLoss("supcon")(torch.from_numpy(model.embed(x)), labels)))
    assert values[1] < values[0] - 0.05


def test_text_and_criterion_are_the_same(curve):
    x, _, classes = curve
    text = NeighborClassifier(loss="supcon(temperature=.3)", **BRIEF).fit(x, classes)
    given = EmbeddingLoss("supcon", temperature=0.3)
    module = NeighborClassifier(loss=given, **BRIEF).fit(x, classes)
    torch.testing.assert_close(weights(text), weights(module), rtol=0, atol=0)


def test_a_criterion_with_vectors_of_classes_is_left_as_it_was(curve):
    x, _, classes = curve
    given = ProxyLoss("arcface", 3, QUICK["hidden"][-1])
    before = given.proxies.detach().clone()
    NeighborClassifier(loss=given, **{**BRIEF, "members": 1}).fit(x, classes)
    assert torch.equal(given.proxies, before)


def test_numbers_are_seen_in_their_own_units(curve):
    x, y, _ = curve
    seen = []

    def watch(labels, bank_labels):
        seen.append((float(labels.min()), float(labels.max())))
        return label_distance(labels, bank_labels)

    NeighborRegressor(loss=EmbeddingLoss("rank_n_contrast", relation=watch), **BRIEF).fit(x, y)
    lows, highs = zip(*seen, strict=True)
    assert min(lows) > y.min() - 1e-3
    assert max(highs) < y.max() + 1e-3
    assert max(highs) > 12


def test_a_row_is_no_pair_with_itself_nor_with_its_group():
    embeddings = torch.nn.functional.normalize(torch.randn(6, 4, generator=torch.Generator().manual_seed(0)))
    ids, groups = torch.arange(6) + 40, torch.tensor([0, 0, 1, 1, 2, 2])
    classes = torch.eye(2)[[0, 1, 0, 1, 0, 1]]
    seen = []

    def spy(scores, relation, weight, **hyper):
        seen.append(weight)
        return scores.sum() * 0

    AddedLosses([(1.0, EmbeddingLoss(spy))])(embeddings, classes, ids, groups)
    assert torch.equal(seen[0], (groups[:, None] != groups).float())
    AddedLosses([(1.0, EmbeddingLoss(spy))])(embeddings, classes, ids)
    assert torch.equal(seen[1], 1 - torch.eye(6))


@pytest.mark.parametrize("grouped", [False, True])
def test_the_value_is_that_of_the_formula(grouped):
    embeddings = torch.nn.functional.normalize(torch.randn(12, 4, generator=torch.Generator().manual_seed(0)))
    groups = torch.arange(12) // 2
    kinds, numbers = torch.arange(12) % 3, torch.arange(12) / 11  # as training scales them, from 2 to 13
    apart = (groups[:, None] != groups).float() if grouped else 1 - torch.eye(12)
    named = (torch.arange(12) * 5, groups if grouped else None)
    scores = embeddings @ embeddings.T
    of_classes = supcon(scores, (kinds[:, None] == kinds).float(), apart, temperature=0.2)
    added = AddedLosses([(0.5, parse("supcon(temperature=.2)")), (2.0, parse("nt_xent"))])
    expected = 0.5 * of_classes + 2 * nt_xent(scores, (kinds[:, None] == kinds).float(), apart)
    torch.testing.assert_close(added(embeddings, torch.eye(3)[kinds], *named), expected)
    units = 2 + 11 * numbers
    of_numbers = label_contrast(scores, -(units[:, None] - units).abs(), apart, bandwidth=3)
    added = AddedLosses([(1.0, parse("label_contrast(bandwidth=3)"))], 2.0, 13.0)
    torch.testing.assert_close(added(embeddings, numbers, *named), of_numbers)


def test_groups_change_what_is_learned(curve):
    x, _, classes = curve
    pairs = np.arange(len(x)) // 2
    with_groups = NeighborClassifier(head="dense", loss="supcon", **BRIEF).fit(x, classes, groups=pairs)
    assert with_groups.score(x, classes) > 0.3


def test_the_loss_is_kept_with_the_model(curve, tmp_path):
    x, _, classes = curve
    model = NeighborClassifier(loss="0.5*supcon + arcface", **BRIEF).fit(x, classes)
    save_model(model, tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert again.loss == "0.5*supcon + arcface"
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    with pytest.raises(ValueError, match=r"^loss: expected a value with a name"):
        save_model(NeighborClassifier(loss=EmbeddingLoss("supcon"), **BRIEF).fit(x, classes), tmp_path / "n")


@pytest.mark.parametrize(
    ("made", "which", "loss", "sentence"),
    [
        (NeighborRegressor, 1, "supcon", "labels that are numbers (label_contrast, log_ratio, rank_n_contrast"),
        (NeighborRegressor, 1, "matching:sinh + supcon", "got supcon, which takes classes"),
        (NeighborRegressor, 1, EmbeddingLoss("supcon"), "got supcon, which takes classes"),
        (NeighborRegressor, 1, "arcface", "got arcface, which takes classes"),
        (NeighborClassifier, 2, "rank_n_contrast", "labels that are classes (a"),
        (NeighborClassifier, 2, "supcon(temprature=1)", "did you mean 'temperature'?"),
        (NeighborClassifier, 2, 3, "loss: expected None, text such as 'supcon'"),
    ],
)
def test_wrong_losses_are_refused_before_anything_is_trained(curve, made, which, loss, sentence, monkeypatch):
    monkeypatch.setattr("vicinal.training.fit.train", None)
    with pytest.raises((ValueError, TypeError)) as caught:
        made(loss=loss, **QUICK).fit(curve[0], curve[which])
    assert sentence in str(caught.value)


@pytest.mark.slow
def test_a_class_loss_with_a_relation_of_numbers_is_allowed(curve):
    x, y, _ = curve

    def near(labels, bank_labels):
        return label_distance(labels, bank_labels, kernel="gaussian", bandwidth=0.5)

    assert NeighborRegressor(loss=EmbeddingLoss("supcon", relation=near), **QUICK).fit(x, y).score(x, y) > 0.8


def test_the_command_line_adds_a_loss_and_tells_of_it(curve, tmp_path, capsys):
    x, y, classes = curve
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y, "c": classes}).to_csv(tmp_path / "d.csv", index=False)
    data, out = str(tmp_path / "d.csv"), str(tmp_path / "m")
    options = ["--max-epochs", "2", "--hidden", "8,4", "-q", "--out", out]
    own = ["--target", "c", "--drop", "y", "--head", "nona", "--loss", "supcon(temperature=.1)"]
    assert run(["fit", data, *own, *options]) == 0
    for name in ("report.html", "README.md", "config.json"):
        assert "supcon(temperature=.1)" in (tmp_path / "m" / name).read_text()
    capsys.readouterr()
    assert run(["fit", data, "--target", "y", "--drop", "c", "--loss", "supcon", *options]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: --loss: expected a loss for labels that are numbers (label_contrast")
    assert told.count("\n") == 1


@pytest.mark.slow
def test_heads_are_compared_with_an_added_loss(curve, tmp_path):
    x, _, classes = curve
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": classes}).to_csv(tmp_path / "d.csv", index=False)
    asked = ["compare", str(tmp_path / "d.csv"), "--target", "c", "--splits", "2", "--heads", "dense,nona"]
    out = ["--max-epochs", "2", "--hidden", "8,4", "-q", "--out", str(tmp_path / "o")]
    assert run([*asked, "--loss", "0.5*supcon", *out]) == 0
    assert "supcon" in (tmp_path / "o" / "report.html").read_text()
