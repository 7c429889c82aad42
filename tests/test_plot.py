"""Pictures show the numbers that the model, the explanation or the pair itself gives, in new axes or in those given."""

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure

from vicinal import plot
from vicinal.cli import run
from vicinal.estimators import (
    CellComparison,
    Explanation,
    Neighbor,
    NeighborClassifier,
    NeighborRegressor,
    PairExplanation,
)
from vicinal.estimators.explanation import Trend
from vicinal.masks import SoftStep

RANDOM = np.random.default_rng(0)
X = pd.DataFrame({"a": RANDOM.normal(size=90), "b": RANDOM.normal(size=90)})
Y = (X["a"] + 0.2 * RANDOM.normal(size=90)).to_numpy()


@pytest.fixture(scope="module")
def numbers():
    return NeighborRegressor(metric="kernel", readout="dense").fit(X[:70], Y[:70])


@pytest.fixture(scope="module")
def network():
    settings = {"metric": "network", "readout": "attention", "max_epochs": 3, "members": 2, "hidden": (8, 4)}
    return NeighborClassifier(**settings).fit(X[:70], np.where(Y[:70] > 0, "up", "down"))


def widths(figure):
    """Lengths of the bars, from the first."""
    return [bar.get_width() for bar in figure.axes[0].patches]


def explanation(**changes):
    trend = Trend(0.5, 180.0, {"size": 25.0, "title": -5.0}, 200.0)
    one = Neighbor(7, 0.5, 300.0, 125.0, {}, "row 7", {"size": -50.0}, 250.0)
    return Explanation(225.0, 225.0, (one,), 0.0, 0.0, 0, trend=trend, query={"size": 12.0}, **changes)


def test_reasons_are_the_steps_of_an_explanation_and_end_at_the_prediction():
    figure = plot.reasons(explanation())
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert names == ["trend: start", "trend: size 12", "trend: title", "row 7", "predicted"]
    *_, size, title, row, total = figure.axes[0].patches
    assert [bar.get_width() for bar in (size, title, row)] == [25.0, -5.0, 25.0]
    assert total.get_x() + total.get_width() == 225.0
    assert [text.get_text() for text in figure.axes[0].texts][-1] == "225.00"


def test_reasons_of_a_class_say_its_probability_and_those_on_another_scale_say_so():
    one = Neighbor(7, 0.75, "up", 0.75, {}, "row 7")
    chance = plot.reasons(Explanation("up", 0.75, (one,), 0.25, 0.0, 3, probability=0.75, usual=0.5)).axes[0]
    assert (chance.get_xlabel(), chance.get_yticklabels()[-1].get_text()) == ("probability of up", "up: 75 %")
    score = plot.reasons(Explanation("up", 0.75, (one,), 0.25, 0.0, 3, probability=0.9, transform="softmax")).axes[0]
    assert score.get_xlabel() == "score of up"
    log = plot.reasons(explanation(transform="log")).axes[0]
    assert (log.get_xlabel(), log.get_yticklabels()[-1].get_text()) == ("prediction as a logarithm", "predicted 225")


def test_match_weights_add_up_to_the_odds_and_leave_out_what_was_not_compared():
    cells = [CellComparison("name", "a", "b", 0.5, "alike", "", 6.0), CellComparison("x", "", "", np.nan, "empty")]
    pair = PairExplanation("a", "b", 0.2, cells, [], start=-9.0, refined=1.0)
    figure = plot.match_weights(pair)
    assert widths(figure) == [-9.0, 6.0, 1.0, -2.0]
    assert np.log2(0.2 / 0.8) == -2
    assert figure.axes[0].get_yticklabels()[-1].get_text() == "match: 20 %"


def test_importance_is_that_of_the_model(numbers):
    assert widths(plot.importance(numbers)) == pytest.approx([100 * one for one in numbers.importance().values()])


def test_predictions_stand_over_the_truth_with_their_intervals(numbers):
    rows, labels = X[70:], Y[70:]
    axes = plot.predicted_and_observed(numbers, rows, labels, coverage=0.5).axes[0]
    lines, points = axes.collections
    np.testing.assert_allclose(points.get_offsets(), np.c_[labels, numbers.predict(rows)])
    ends = np.array([path.vertices[:, 1] for path in lines.get_paths()])
    np.testing.assert_allclose(ends, numbers.predict_interval(rows, 0.5))
    names = numbers.calibration_.ids
    (points,) = plot.predicted_and_observed(numbers, coverage=0.999).axes[0].collections  # too few rows for intervals
    np.testing.assert_allclose(points.get_offsets(), np.c_[Y[names], numbers.predict(X.loc[names], ids=names)])


def test_classes_are_counted_and_their_probabilities_compared(network):
    labels = np.where(Y[70:] > 0, "up", "down")
    axes = plot.predicted_and_observed(network, X[70:], labels).axes[0]
    assert sum(int(text.get_text()) for text in axes.texts) == 20
    curve = plot.calibration(network, X[70:], labels).axes[0].lines[1]
    sure = network.predict_proba(X[70:]).max(axis=1)
    right = network.predict(X[70:]) == labels
    places = np.minimum((10 * sure).astype(int), 9)
    bins = [one for one in np.unique(places) if (places == one).sum() >= 5]
    by_hand = [(sure[places == one].mean(), right[places == one].mean()) for one in bins]
    assert bins
    np.testing.assert_allclose(curve.get_xydata(), by_hand)


def test_intervals_are_counted_at_several_coverages(numbers):
    curve = plot.calibration(numbers, X[70:], Y[70:]).axes[0].lines[1].get_xydata()
    for level, covered in curve:
        low, high = numbers.predict_interval(X[70:], level).T
        assert covered == np.mean((low <= Y[70:]) & (Y[70:] <= high))
    with pytest.raises(ValueError, match="X: expected rows with labels that the model was not fitted on"):
        plot.calibration(numbers)


def test_members_that_are_folds_are_shown_out_of_fold():
    model = NeighborRegressor(validation_fraction=0, max_epochs=1, members=2, hidden=(4,)).fit(X, Y)
    names, predictions = model.out_of_fold_predictions()
    (points,) = plot.predicted_and_observed(model).axes[0].collections
    np.testing.assert_allclose(points.get_offsets(), np.c_[Y[names], predictions])


def test_the_training_of_a_network_and_its_mask_are_drawn(network, numbers):
    lines = plot.learning_curve(network).axes[0].lines
    assert lines[0].get_ydata().tolist() == network.history_.train_error
    with pytest.raises(ValueError, match="model: expected metric='network', which is trained"):
        plot.learning_curve(numbers)
    assert len(plot.mask(network).axes[0].lines) == 3
    with pytest.raises(ValueError, match="model: expected a SoftStep mask"):
        plot.mask(numbers)
    step = SoftStep(1, parameters="global")
    (line,) = plot.mask(step).axes[0].lines
    grid = torch.linspace(0, 1, 201, dtype=torch.float64)
    np.testing.assert_allclose(line.get_ydata(), step.curve(grid, torch.zeros(1, 1))[0].detach())
    with pytest.raises(ValueError, match="queries: expected embeddings"):
        plot.mask(SoftStep(4))


def test_a_map_has_a_color_for_each_class_and_a_scale_of_numbers(network, numbers):
    assert [text.get_text() for text in plot.bank_map(network).axes[0].get_legend().get_texts()] == ["down", "up"]
    assert len(plot.bank_map(numbers).axes) == 2
    several = NeighborRegressor(metric="kernel").fit(X[:40], np.c_[Y, -Y][:40])
    for draw in (plot.bank_map, plot.predicted_and_observed):
        with pytest.raises(ValueError, match="model: expected one target, got several"):
            draw(several)
        assert draw(several.of_target("y1")).axes


def test_several_classes_a_row_are_refused_before_their_lists_are_read():
    lists = [["up", "wide"] if y > 0 else ["wide"] for y in Y[:40]]
    model = NeighborClassifier(metric="network", max_epochs=1, members=1, hidden=(4,)).fit(X[:40], lists)
    for draw in (plot.calibration, plot.predicted_and_observed):
        with pytest.raises(ValueError, match="model: expected one class a row, got several"):
            draw(model, X[:40], lists)


def test_any_picture_is_drawn_into_axes_that_are_there_and_a_notebook_shows_it(network, numbers):
    figure = Figure()
    for axes, (draw, what) in zip(
        figure.subplots(2, 4).ravel(),
        [
            (plot.reasons, explanation()),
            (plot.importance, numbers),
            (plot.predicted_and_observed, numbers),
            (plot.predicted_and_observed, network),
            (plot.calibration, network),
            (plot.bank_map, network),
            (plot.learning_curve, network),
            (plot.mask, network),
        ],
        strict=True,
    ):
        assert draw(what, ax=axes) is figure
        assert axes.has_data()
    assert len(figure.axes) == 8
    assert plot.importance(numbers)._repr_png_().startswith(b"\x89PNG")


def test_what_is_not_an_explanation_or_lacks_labels_is_refused(numbers):
    with pytest.raises(TypeError, match="explanation: expected one of"):
        plot.reasons(numbers.explain(X[:2]))
    with pytest.raises(TypeError, match="pair: expected one of"):
        plot.match_weights(explanation())
    with pytest.raises(ValueError, match="y: expected the labels of X"):
        plot.predicted_and_observed(numbers, X)


def test_explain_writes_a_picture(numbers, tmp_path, capsys):
    numbers.save(tmp_path / "m")
    line = ["explain", str(tmp_path / "m"), "--id", "3", "--id", "4", "-k", "2", "-q", "--plot"]
    assert run([*line, str(tmp_path / "r.svg")]) == 0
    text = (tmp_path / "r.svg").read_text()
    assert "predicted" in text
    assert text.count("other rows") == 2
    assert run([*line, str(tmp_path / "r.gif")]) == 2
    assert "--plot: expected one of '.svg', '.png', '.pdf', got '.gif'" in capsys.readouterr().err
