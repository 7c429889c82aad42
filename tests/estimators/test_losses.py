"""Estimators trained by a loss of the user's choice."""

import numpy as np
import pytest
from torch import nn

from references.tables import QUICK
from vicinal.cli import run
from vicinal.estimators import NeighborClassifier, NeighborRegressor, load_model, save_model
from vicinal.losses import ClassLoss, MatchingLoss, PreferenceMatchingLoss, parse

BRIEF = {**QUICK, "max_epochs": 3}
TRAINED = {**QUICK, "max_epochs": 8, "learning_rate": 2e-2}


@pytest.fixture(scope="module")
def curve():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (300, 2))
    return x, 10 + 3 * np.tanh(x[:, 0]) + 0.05 * rng.normal(size=300)


@pytest.mark.slow
def test_identity_link_is_half_the_squared_error(curve):
    x, y = curve
    brief = {**QUICK, "max_epochs": 6}
    plain = NeighborRegressor(metric="network", **brief).fit(x, y)
    matched = NeighborRegressor(loss="matching:identity", **brief).fit(x, y)
    low, high = plain.label_range_
    first, second = plain.history_.train_error[0], matched.history_.train_error[0]
    assert second == pytest.approx(first * (high - low) ** 2 / 2, rel=0.02)
    np.testing.assert_allclose(matched.predict(x), plain.predict(x), atol=0.3)


def test_the_loss_sees_labels_in_their_own_units(curve):
    x, y = curve
    seen = []

    class Watch(nn.Module):
        def forward(self, prediction, label):
            seen.append((float(label.min()), float(label.max()), float(prediction.detach().mean())))
            return (prediction - label).square().mean()

    NeighborRegressor(loss=Watch(), **{**QUICK, "max_epochs": 1}).fit(x, y)
    lows, highs, means = zip(*seen, strict=True)
    assert min(lows) >= y.min() - 1e-4
    assert max(highs) <= y.max() + 1e-4
    assert 7 < np.mean(means) < 13


def test_text_and_module_are_the_same_loss(curve):
    x, y = curve
    text = "matching:sigmoid(scale=2,shift=10)"
    by_text = NeighborRegressor(loss=text, **BRIEF).fit(x, y)
    by_module = NeighborRegressor(loss=MatchingLoss(parse(text).link), **BRIEF).fit(x, y)
    np.testing.assert_allclose(by_text.predict(x, link="identity"), by_module.predict(x), rtol=1e-9)  # the same weights
    assert by_module.target_transform_.name == "none"  # a link without text is not read out by


def test_classes_take_a_loss_of_probabilities(curve):
    x, y = curve
    model = NeighborClassifier(loss="decomposed:identity", **TRAINED).fit(x, y > 10)
    assert model.score(x, y > 10) > 0.9


@pytest.mark.parametrize(
    ("loss", "head"),
    [
        ("comp_sum(tau=1.7)", "nona"),
        ("z_loss", "dense"),
        ("ldr_kl:temperature=.5", "nona"),
        ("margin_surrogate(form=focal)", "dense"),
    ],
)
def test_losses_of_class_scores_train_classes(curve, head, loss):
    x, y = curve
    classes = np.digitize(y, [8.5, 11.5])
    model = NeighborClassifier(head=head, loss=loss, **TRAINED).fit(x, classes)
    assert model.score(x, classes) > 0.85


def test_the_default_error_is_the_first_of_the_comp_sum_family(curve):
    x, y = curve
    plain = NeighborClassifier(metric="network", **BRIEF).fit(x, y > 10)
    for loss in ("comp_sum", ClassLoss("comp_sum")):
        same = NeighborClassifier(loss=loss, readout="attention", **BRIEF).fit(x, y > 10)
        assert same.history_.train_error[0] == pytest.approx(plain.history_.train_error[0], rel=1e-3)


@pytest.mark.parametrize(
    ("make", "loss", "sentence"),
    [
        (NeighborRegressor, "comp_sum", "expected one for numbers, got comp_sum, which is for classes"),
        (NeighborRegressor, ClassLoss("z_loss"), "expected one for numbers, got z_loss"),
        (NeighborClassifier, "comp_summ", "did you mean 'comp_sum'"),
        (NeighborClassifier, "comp_sum(tao=1)", "did you mean 'tau'"),
        (NeighborClassifier, "comp_sum(tau=-1)", "^tau: expected a number of at least 0, got -1"),
        (NeighborClassifier, "comp_sum(tau=high)", "^tau: expected a number, got 'high'"),
        (NeighborClassifier, "smooth_adversarial", "call it in a training loop"),
        (NeighborClassifier, "aldr_kl(temperatures=2)", "expected settings of aldr_kl .temperature, margin"),
    ],
)
def test_wrong_losses_of_class_scores_get_one_sentence(curve, make, loss, sentence):
    x, y = curve
    with pytest.raises(ValueError, match=sentence):
        make(loss=loss, **QUICK).fit(x, y > 10 if make is NeighborClassifier else y)


def test_a_loss_written_as_text_is_saved_and_a_module_is_refused(curve, tmp_path):
    x, y = curve
    model = NeighborRegressor(loss="matching:tanh(shift=10)", **BRIEF).fit(x, y)
    save_model(model, tmp_path / "m")
    assert load_model(tmp_path / "m").loss == "matching:tanh(shift=10)"
    with pytest.raises(ValueError, match=r"^loss: expected a value with a name"):
        save_model(NeighborRegressor(loss=parse("matching:tanh"), **BRIEF).fit(x, y), tmp_path / "n")


@pytest.mark.parametrize(
    ("loss", "sentence"),
    [
        ("matchin:exp", "did you mean 'matching'?"),
        ("matching:sigmoit", "did you mean 'sigmoid'?"),
        (3, "loss: expected"),
    ],
)
def test_wrong_losses_get_one_sentence(curve, loss, sentence):
    x, y = curve
    with pytest.raises((ValueError, TypeError), match="expected") as caught:
        NeighborRegressor(loss=loss, **QUICK).fit(x, y)
    assert sentence in str(caught.value)


def test_a_label_outside_the_domain_of_a_link_is_named(curve):
    x, y = curve
    with pytest.raises(ValueError, match=r"domain|between|expected"):
        NeighborRegressor(loss="matching:logit", **QUICK).fit(x, y)


@pytest.mark.parametrize(("loss", "problem"), [("sinh", "infinite ones"), ("sigmoid", "flat there")])
def test_a_loss_that_cannot_learn_where_the_labels_lie_is_refused(curve, loss, problem):
    x, y = curve
    with pytest.raises(ValueError, match=f"loss: expected .* on labels from 7.* to 12.*{problem}.*; shift and scale"):
        NeighborRegressor(loss=f"matching:{loss}", metric="network", **BRIEF).fit(x, 100 * y)
    within = f"matching:{loss}(shift=1000, scale=0.01)"
    NeighborRegressor(loss=within, metric="network", **BRIEF).fit(x, 100 * y, sample_weight=1 + (y > 10))


@pytest.mark.slow
def test_the_command_line_takes_a_loss(curve, tmp_path, capsys):
    import pandas as pd

    x, y = curve
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y}).to_csv(tmp_path / "d.csv", index=False)
    options = ["--target", "y", "--max-epochs", "2", "--hidden", "8,4", "-q", "--out", str(tmp_path / "m")]
    assert run(["fit", str(tmp_path / "d.csv"), "--loss", "matching:sinh(shift=10)", *options]) == 0
    assert "sinh" in (tmp_path / "m" / "report.html").read_text()
    assert run(["fit", str(tmp_path / "d.csv"), "--loss", "matching:sing", *options]) == 2
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("loss", "needs"),
    [
        ("preference", "log ratios of chosen and of rejected answers"),
        (PreferenceMatchingLoss(), "log ratios of chosen and of rejected answers"),
    ],
)
def test_losses_of_other_data_than_predictions_and_labels_say_what_they_need(loss, needs):
    for make in (NeighborRegressor, NeighborClassifier):
        with pytest.raises(
            ValueError, match=rf"^loss: expected one of \w+ and \w+, got \w+, which (needs|is of) {needs}"
        ):
            make(loss=loss).fit(np.eye(20), np.arange(20) % 2)
