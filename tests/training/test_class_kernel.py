"""The kernel of classes: what is left out, how scores are calibrated, and which lengths are chosen."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vicinal.training.class_kernel import calibrate_scores, fit_class_kernel
from vicinal.training.likelihood import left_out_errors

DOUBLE = torch.float64


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def hot(classes, count):
    return torch.nn.functional.one_hot(classes, count).double()


def test_scores_are_those_without_the_row():
    x, labels = normal(0, 9, 2), hot(torch.arange(9) % 3, 3)
    matrix = (-torch.cdist(x, x)).exp() + 0.1 * torch.eye(9, dtype=DOUBLE)
    scores = labels - left_out_errors(matrix.clone(), labels)
    for row in range(9):
        rest = [other for other in range(9) if other != row]
        system = np.ones((9, 9))
        system[:8, :8], system[8, 8] = matrix[rest][:, rest].numpy(), 0.0
        weights = np.linalg.solve(system, np.append(matrix[row, rest].numpy(), 1.0))[:8]
        np.testing.assert_allclose(scores[row], weights @ labels[rest].numpy(), atol=1e-10)


def objective(scores, labels, slope, biases):
    n, classes = labels.shape
    targets = (n * labels + 1 / classes) / (n + 1)
    odds = slope * scores + biases
    return float(-(targets * torch.log_softmax(odds, 1)).sum(1).mean() + biases.square().sum() / (2 * n))


@given(seed=st.integers(0, 1000), classes=st.integers(2, 5))
def test_slope_and_biases_have_the_least_loss(seed, classes):
    n = 40
    labels = hot(torch.arange(n) % classes, classes)
    scores = labels * 0.5 + 0.5 * normal(seed, n, classes)
    fitted = calibrate_scores(scores, labels)
    least = objective(scores, labels, fitted.slope, fitted.biases)
    for number in range(8):
        step = 0.02 * normal(seed + number, classes + 1)
        assert objective(scores, labels, fitted.slope * float(step[0].exp()), fitted.biases + step[1:]) > least - 1e-6
    assert abs(float(fitted.biases.sum())) < 1e-9
    chances = torch.log_softmax(fitted.slope * scores + fitted.biases, 1)
    assert fitted.loss == pytest.approx(float(-(labels * chances).sum(1).mean()))


def test_calibration_of_edge_cases():
    labels = hot(torch.arange(30) % 2, 3)  # no row has the third class
    sure = calibrate_scores(labels, labels)
    assert sure.slope < 100  # scores that separate are not believed without limit
    assert sure.biases.abs().max() < 1e-3  # a class without rows needs none where scores separate
    assert sure.slope > 4  # where one row more of each class was told, 3.4: believed too little
    flat = calibrate_scores(torch.zeros(30, 3), labels)
    chances = flat.biases.softmax(0)
    torch.testing.assert_close(chances[0], chances[1])
    assert chances[2] < 0.1
    wrong = calibrate_scores(-labels, labels)  # a score that points the wrong way is not believed
    assert wrong.slope < 0.1
    rare = hot((torch.arange(100) < 5).long(), 2)
    assert calibrate_scores(torch.zeros(100, 2), rare).biases.softmax(0)[1] == pytest.approx(0.06, abs=0.02)


def test_weights_of_rows_are_shares_of_the_loss():
    labels, scores = hot(torch.arange(20) % 2, 2), normal(3, 20, 2)
    weights = torch.where(torch.arange(20) < 5, 9.0, 1.0).double()
    light, heavy = calibrate_scores(scores, labels), calibrate_scores(scores, labels, weights)
    each = -(labels * torch.log_softmax(heavy.slope * scores + heavy.biases, 1)).sum(1)
    assert heavy.loss == pytest.approx(float((each * weights).sum() / weights.sum()))
    same = calibrate_scores(scores, labels, torch.full((20,), 7.0))
    assert same.slope == pytest.approx(light.slope)


def test_a_part_that_says_nothing_gets_the_longer_length():
    told, noise = normal(0, 200, 2), normal(1, 200, 2)
    labels = hot((told[:, 0] * told[:, 1] > 0).long(), 2)
    kernel = fit_class_kernel([told, noise], labels)
    assert kernel.log_lengths[1] > kernel.log_lengths[0] + 1
    assert kernel.loss < 0.35
    alone = fit_class_kernel([noise], labels)
    assert alone.loss > 0.6  # nothing to learn


def test_noise_grows_with_wrong_labels():
    x = normal(0, 300, 2)
    clean = (x[:, 0] > 0).long()
    flipped = torch.where(torch.arange(300) % 4 == 0, 1 - clean, clean)
    quiet, loud = (fit_class_kernel([x], hot(labels, 2)) for labels in (clean, flipped))
    assert loud.log_noise > quiet.log_noise + 1


def test_groups_units_and_seeds():
    x = normal(0, 120, 2)
    labels = hot((torch.arange(120) // 2) % 2, 2)  # nothing but the group tells the class
    twins = x.repeat_interleave(2, 0)[:120] + 1e-3 * normal(1, 120, 2)
    groups = torch.arange(120) // 2
    assert fit_class_kernel([twins], labels).loss < 0.2
    assert fit_class_kernel([twins], labels, groups).loss > 0.6
    one, other = fit_class_kernel([x], labels, seed=1), fit_class_kernel([1000 * x], labels, seed=1)
    torch.testing.assert_close(other.log_lengths, one.log_lengths + np.log(1000.0))
    heavy = fit_class_kernel([x], labels, seed=1, weights=torch.full((120,), 4.0))
    torch.testing.assert_close(heavy.log_noise, one.log_noise + np.log(4.0))
    equal = fit_class_kernel([torch.zeros(12, 2, dtype=DOUBLE)], labels[:12])
    assert bool(equal.log_lengths.isfinite().all())
    alone = fit_class_kernel([x[:3]], labels[:3], torch.zeros(3, dtype=torch.int64))  # a single group
    assert bool(alone.log_lengths.isfinite().all())
