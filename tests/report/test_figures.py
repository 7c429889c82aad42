"""Figures hold the right values, and stand what data can be."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from vicinal.report.compare import relative_changes
from vicinal.report.figures import (
    _count_pairs,
    confusion_matrix,
    coverage,
    embedding_map,
    learning_curves,
    mask_curves,
    predicted_vs_true,
    principal_plane,
    reliability,
    residuals,
)
from vicinal.report.theme import sample, to_svg


def drawn(figure, prefix="p"):
    text = to_svg(figure, prefix)
    root = text.replace("xlink:href", "href")
    ET.fromstring(root)  # well-formed
    return text


def words_of(text):
    return [re.sub(r"<[^>]+>", "", part) for part in re.findall(r"<text.*?</text>", text, flags=re.DOTALL)]


def test_curves_share_a_panel_by_measure_and_mark_the_best_epoch():
    figure = learning_curves({"train_mse": [3, 2, 1], "validation_mse": [3, 1, 2], "val_r2": [0.1, 0.2, 0.3]})
    assert len(figure.axes) == 2
    text = words_of(drawn(figure))
    assert "best: epoch 2" in text
    assert "best: epoch 3" in text
    assert "MSE" in text


def test_curves_of_one_epoch_and_with_gaps():
    figure = learning_curves({"train_mse": [1.0], "validation_mse": [float("nan")]})
    (line,) = figure.axes[0].lines
    assert line.get_marker() == "o"
    drawn(figure)
    with pytest.raises(ValueError, match="history: expected at least one finite value"):
        learning_curves({"train_mse": [float("nan")], "x": []})


def test_curves_over_several_sizes_are_drawn_on_a_log_scale():
    assert learning_curves({"train_mse": [100.0, 0.1]}).axes[0].get_yscale() == "log"
    assert learning_curves({"train_mse": [1.0, -0.1]}).axes[0].get_yscale() == "linear"


def test_scatter_leaves_out_what_is_not_finite_and_samples():
    truth = np.arange(6000.0)
    truth[3] = np.nan
    axes = predicted_vs_true(truth + 1, truth).axes[0]
    assert len(axes.collections[0].get_offsets()) == 5000
    np.testing.assert_array_equal(sample(6000), sample(6000))
    points = predicted_vs_true([1, 2, np.inf], [1, 3, 4]).axes[0].collections[0].get_offsets()
    np.testing.assert_array_equal(points, [[1, 1], [3, 2]])


@pytest.mark.parametrize("values", [[], [2.0], [2.0, 2.0, 2.0]])
def test_few_or_constant_points(values):
    drawn(predicted_vs_true(values, values))
    drawn(residuals(values, values))


def test_residuals_are_prediction_less_truth():
    points = residuals([1.0, 2.0], [0.0, 4.0]).axes[0].collections[0].get_offsets()
    np.testing.assert_array_equal(points, [[1, 1], [2, -2]])


def test_coverage_has_a_line_of_each_part():
    axes = coverage([0.5, 0.9], [0.6, 0.8], [[0.3, 0.7], [0.75, 0.95]]).axes[0]
    assert [line.get_ydata().tolist() for line in axes.lines] == [[0.3, 0.75], [0.7, 0.95], [0, 1], [0.6, 0.8]]
    assert axes.get_ylim()[0] == pytest.approx(0.27)
    assert coverage([0.5, 0.9], [0.6, 0.8]).axes[0].get_xlim() == (0, 1.01)


def test_confusion_counts():
    probabilities = np.eye(3)[[0, 1, 1, 2, 0]]
    names, counts = _count_pairs(probabilities, ["a", "b", "a", "c", "a"], ["a", "b", "c"])
    assert names == ["a", "b", "c"]
    np.testing.assert_array_equal(counts, [[2, 1, 0], [0, 1, 0], [0, 0, 1]])


def test_confusion_of_many_classes_keeps_every_row():
    rng = np.random.default_rng(0)
    classes = [f"class {k}" for k in range(30)]
    truth = rng.integers(0, 30, 500)
    names, counts = _count_pairs(np.eye(30)[rng.integers(0, 30, 500)], np.array(classes)[truth], classes)
    assert names[-1] == "(other)"
    assert len(names) == 13
    assert counts.sum() == 500
    drawn(confusion_matrix(np.eye(30)[truth], np.array(classes)[truth], classes))


def test_a_share_of_few_rows_is_not_drawn_beside_shares_of_more():
    probabilities = np.array([[0.95, 0.05]] * 5 + [[0.55, 0.45]])
    assert reliability(probabilities, ["a"] * 6, ["a", "b"]).axes[0].lines[1].get_xdata().tolist() == [0.95]


def test_reliability_shares():
    probabilities = np.array([[0.95, 0.05], [0.95, 0.05], [0.55, 0.45], [0.3, 0.7]])
    line = reliability(probabilities, ["a", "b", "a", "b"], ["a", "b"]).axes[0].lines[1]
    np.testing.assert_allclose(line.get_xdata(), [0.55, 0.7, 0.95])
    np.testing.assert_allclose(line.get_ydata(), [1, 1, 0.5])
    drawn(reliability(np.zeros((0, 2)), [], ["a", "b"]))


def test_plane_agrees_with_the_singular_value_decomposition():
    points = np.random.default_rng(0).normal(size=(50, 6)) * [3, 2, 1, 1, 0.5, 0.1]
    plane, shares = principal_plane(points)
    left, values, _ = np.linalg.svd(points - points.mean(0), full_matrices=False)
    np.testing.assert_allclose(np.abs(plane), np.abs(left[:, :2] * values[:2]), atol=1e-9)
    np.testing.assert_allclose(shares, values[:2] ** 2 / (values**2).sum())


@pytest.mark.parametrize("embedding", [np.zeros((5, 3)), np.arange(5.0)[:, None], np.ones((1, 2)), np.zeros((0, 2))])
@pytest.mark.parametrize("names", [False, True])
def test_flat_embeddings(embedding, names):
    labels = np.arange(len(embedding))
    drawn(embedding_map(embedding, labels.astype(str) if names else labels.astype(float)))


def test_map_leaves_out_rows_that_are_not_finite_and_joins_rare_classes():
    embedding = np.random.default_rng(0).normal(size=(60, 3))
    embedding[0, 0] = np.nan
    figure = embedding_map(embedding, np.array([f"c{k % 15}" for k in range(60)]))
    assert sum(len(part.get_offsets()) for part in figure.axes[0].collections) == 59
    assert "(other)" in words_of(drawn(figure))


def test_mask_curve_values():
    grid = np.linspace(0, 1, 5)
    (line,) = mask_curves(grid, [("median", grid**2)]).axes[0].lines
    np.testing.assert_array_equal(line.get_ydata(), grid**2)


def test_changes_are_per_split_and_missing_methods_are_left_out():
    figure = relative_changes({"d": {"dense": [2.0, 4.0], "nona": [1.0, 3.0]}}, ["dense", "nona", "none"], "dense")
    np.testing.assert_allclose(figure.axes[0].lines[0].get_xdata(), [-50, -25])
    drawn(relative_changes({"d": {"dense": [0.0], "nona": [1.0]}}, ["dense", "nona"], "dense"))


def test_svg_is_of_the_page():
    text = drawn(predicted_vs_true([1, 2], [1, 2], "price $a_b$ 😀 <script>"), "one")
    assert "var(--" in text
    assert "DejaVu" not in text
    assert not re.search(r'\bid="(?!one-)', text)
    assert "<script" not in text
    assert "price $a_b$ 😀 &lt;script&gt;" in text
    assert to_svg(predicted_vs_true([1, 2], [1, 2]), "p") == to_svg(predicted_vs_true([1, 2], [1, 2]), "p")
