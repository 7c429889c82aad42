"""Labels as users write them, as a bank keeps them, and as a head takes and gives them: each kind, with arrays."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vicinal.estimators.label_codec import ClassCodec, LikenessCodec, NumberCodec, label_frame
from vicinal.estimators.target_transform import TargetTransform

FLOAT = torch.float64
NUMBERS = np.array([3.0, -1.0, 7.0, 1.0])
TABLE = np.array([[1.0, 10.0], [3.0, 40.0], [2.0, 20.0]])


def fitted(y, transform="none"):
    codec = NumberCodec.of(y, transform)
    labels = torch.from_numpy(codec.take(y, len(y)))
    return codec.fitted(labels), labels


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=9).filter(lambda y: max(y) - min(y) > 1e-3))
def test_training_sees_numbers_from_0_to_1_and_gives_them_back(y):
    codec, labels = fitted(y)
    scaled = codec.scaled(labels)
    assert (float(scaled.min()), float(scaled.max())) == (0, 1)
    assert codec.unit() == max(y) - min(y)
    torch.testing.assert_close(codec.on_scale(scaled, uses_bank=False), labels, rtol=1e-9, atol=1e-6)
    assert torch.equal(codec.on_scale(labels, uses_bank=True), codec.as_predicted(labels))
    assert codec.written(labels.numpy()).tolist() == y


def test_logarithms_of_numbers_are_scaled_between_their_ends():
    codec, labels = fitted([1.0, 10.0, 100.0], "log")
    torch.testing.assert_close(codec.as_predicted(labels), labels.log())
    torch.testing.assert_close(codec.scaled(labels), torch.tensor([0.0, 0.5, 1.0], dtype=FLOAT))
    assert codec.unit() == pytest.approx(np.log(100))
    with pytest.raises(ValueError, match=r"^y: expected labels above 0"):
        codec.take([1.0, 0.0], 2)


def test_several_numbers_are_scaled_each_by_its_range():
    codec, labels = fitted(pd.DataFrame(TABLE, columns=["size", "price"]))
    wanted = torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.5, 1 / 3]], dtype=FLOAT)
    torch.testing.assert_close(codec.scaled(labels), wanted)
    torch.testing.assert_close(codec.as_predicted(labels), wanted)
    assert codec.unit() == 1
    torch.testing.assert_close(codec.on_scale(wanted, uses_bank=True), labels)
    torch.testing.assert_close(codec.errors(wanted, wanted.flip(0)), (wanted - wanted.flip(0)).square().mean(1))
    assert label_frame(codec, TABLE).columns.tolist() == ["size", "price"]
    one = codec.of_target(1, uses_bank=False)
    assert (one.ends, one.targets) == ((10.0, 40.0), None)
    torch.testing.assert_close(one.on_scale(wanted, uses_bank=False), labels[:, 1])
    assert codec.of_target(0, uses_bank=True).place is None


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        ([2.0, 2.0], r"^y: expected labels that differ, got 2 in every training row; nothing"),
        (np.array([[1.0, 5.0], [2.0, 5.0]]), r"^y: expected labels that differ, got 5 .* of 'y1', which may be left"),
        ([0.0, 1e-130], r"^y: expected labels that differ by more than 1e-120"),
    ],
)
def test_numbers_that_do_not_differ_are_refused(y, sentence):
    with pytest.raises(ValueError, match=sentence):
        fitted(y)


@pytest.mark.parametrize("weights", [None, torch.tensor([0.5, 2.0, 0.5, 1.0], dtype=FLOAT)])
def test_a_bias_starts_at_the_weighted_mean_or_the_shares_of_classes(weights):
    mass = np.ones(4) if weights is None else weights.numpy()
    codec, labels = fitted(NUMBERS)
    assert float(codec.start(labels, weights)) == pytest.approx(np.average(NUMBERS, weights=mass))
    classes, places = ClassCodec.of(["b", "a", "a", "b"], 4)
    start = classes.start(classes.scaled(torch.from_numpy(places)), weights)
    shares = np.array([mass[[1, 2]].sum(), mass[[0, 3]].sum()]) / mass.sum()
    np.testing.assert_allclose(start.exp().numpy(), shares)
    several, table = ClassCodec.of([["a"], ["a", "b"], [], ["b"]], 4)
    start = several.start(several.scaled(torch.from_numpy(table)), weights)
    np.testing.assert_allclose(start.sigmoid().numpy(), np.average(table, axis=0, weights=mass))


def test_a_class_that_no_row_has_starts_at_half_a_row():
    codec = ClassCodec(classes=np.array(["a", "b"]))
    start = codec.start(codec.scaled(torch.zeros(10, dtype=FLOAT)), None)
    assert start.exp().tolist() == pytest.approx([1, 1 / 20])


@pytest.mark.parametrize(
    ("y", "classes", "kept", "written"),
    [
        (["b", "a", "b"], ["a", "b"], [1, 0, 1], ["b", "a", "b"]),
        ([3, 1, 3], [1, 3], [1, 0, 1], [3, 1, 3]),
        ([True, False, True], [False, True], [1, 0, 1], [True, False, True]),
        ([["b"], [], ["a", "b"]], ["a", "b"], [[0, 1], [0, 0], [1, 1]], [["b"], [], ["a", "b"]]),
    ],
)
def test_classes_are_kept_as_places_and_written_as_they_were(y, classes, kept, written):
    codec, labels = ClassCodec.of(y, 3)
    assert (codec.classes.tolist(), labels.tolist(), list(codec.written(labels))) == (classes, kept, written)
    assert codec.take(y, 3).tolist() == kept
    one_hot = codec.as_predicted(torch.from_numpy(labels))
    assert one_hot.tolist() == (kept if codec.multilabel else np.eye(2)[np.array(kept)].tolist())
    names = [codec.named(label) for label in labels.tolist()]
    assert names == [tuple(one) if codec.multilabel else one for one in written]
    assert all(type(one) in (str, int, bool, tuple) for one in names)  # as JSON takes them


def test_scores_of_a_kernel_become_probabilities():
    codec = ClassCodec(
        TargetTransform.model_validate({"name": "softmax", "slope": 2.0, "biases": [0.0, 1.0]}), np.array(["a", "b"])
    )
    scores, truth = torch.tensor([[0.5, 0.0]], dtype=FLOAT), torch.tensor([[1.0, 0.0]], dtype=FLOAT)
    torch.testing.assert_close(codec.transform.inverse(scores), torch.tensor([[0.5, 0.5]], dtype=FLOAT))
    assert float(codec.errors(scores, truth)) == pytest.approx(-np.log(0.5), rel=1e-3)


def test_new_classes_come_behind_the_others():
    codec, _ = ClassCodec.of(["b", "a"], 2)
    grown = codec.with_new(["z", "a", "c"], 3, uses_bank=True)
    assert (grown.classes.tolist(), codec.classes.tolist()) == (["a", "b", "z", "c"], ["a", "b"])
    with pytest.raises(ValueError, match=r"^y: expected classes of type str, as those of the fit, got 3 in row 0"):
        codec.with_new([3], 1, uses_bank=True)
    with pytest.raises(ValueError, match=r"^new_classes: expected a model of one class a row"):
        codec.with_new(["c"], 1, uses_bank=False)
    with pytest.raises(ValueError, match=r"^new_classes: expected a model of classes, got one of numbers"):
        NumberCodec().with_new([1.0], 1, uses_bank=True)
    with pytest.raises(ValueError, match=r"^y: expected a class that the model was fitted with, got 'c' in row 0"):
        codec.take(["c"], 1)


def test_what_only_forgotten_rows_had_is_no_longer_known():
    codec, labels = fitted(NUMBERS)
    assert codec.without([7.0], [labels[[0, 1, 3]]]).ends == (-1.0, 3.0)
    assert codec.without([7.0], [labels]).ends == (-1.0, 7.0)  # another row has it
    classes, places = ClassCodec.of(["a", "b", "c"], 3)
    left = [torch.from_numpy(places[[0, 2]])]
    assert classes.without(["b"], left).classes.tolist() == ["a", "forgotten", "c"]
    assert classes.without(["a"], left) is classes


def test_what_makes_rows_alike_is_given_to_losses_by_its_kind():
    numbers, classes = LikenessCodec(), LikenessCodec(classes=np.array(["a", "b"]))
    several = LikenessCodec(classes=np.array(["", "x", "x|y"]), several=True)
    places = torch.tensor([1.0, 0.0], dtype=FLOAT)
    assert numbers.as_predicted(places) is places
    assert (numbers.kind, classes.kind) == ("numbers", "classes")
    assert classes.as_predicted(places).tolist() == [1, 0]
    assert several.as_predicted(torch.tensor([2.0, 0.0, 1.0])).tolist() == [[1, 1], [0, 0], [1, 0]]
    assert several.written(np.array([2.0, 0.0])) == [["x", "y"], []]
    assert (classes.named(1), classes.written(np.array([1.0])).tolist()) == ("b", ["b"])
