"""Relations against loops in plain Python, and that a block of a relation is that relation of the blocks."""

import math

import pytest
import torch

from vicinal.relation import from_pairs, graded, label_distance, same_class, shared_labels
from vicinal.relation.pairs import other_rows

CLASSES = torch.tensor([3, 0, 3, 1, 0]), torch.tensor([0, 3, 1, 1, 7, 3])
TAGS = (
    torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 1, 1]]),
    torch.tensor([[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]]),
)
NUMBERS = torch.tensor([0.0, 1.5, -2.0]), torch.tensor([1.5, 0.5, 4.0, -2.0])
POINTS = torch.tensor([[0.0, 0.0], [3.0, 4.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0], [6.0, 8.0]])


def table(labels, bank, function):
    return torch.tensor([[float(function(a, b)) for b in bank.tolist()] for a in labels.tolist()])


def jaccard(a, b):
    one, other = ({i for i, tag in enumerate(tags) if tag} for tags in (a, b))
    return len(one & other) / len(one | other) if one | other else 0


def distance(a, b):
    return math.dist(a, b) if isinstance(a, list) else abs(a - b)


GRADES = torch.tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])
LISTED = torch.tensor([[0, 3], [3, 1], [7, 0]])


@pytest.mark.parametrize(
    ("relate", "blocks", "function"),
    [
        (same_class, CLASSES, lambda a, b: a == b),
        (other_rows, CLASSES, lambda a, b: a != b),
        (shared_labels, TAGS, lambda a, b: any(x and y for x, y in zip(a, b, strict=True))),
        (lambda a, b: shared_labels(a, b, "jaccard"), TAGS, jaccard),
        (label_distance, NUMBERS, lambda a, b: -distance(a, b)),
        (label_distance, POINTS, lambda a, b: -distance(a, b)),
        (
            lambda a, b: label_distance(a, b, kernel="gaussian", bandwidth=2.0),
            NUMBERS,
            lambda a, b: math.exp(-(distance(a, b) ** 2) / 8),
        ),
        (lambda a, b: label_distance(a, b, kernel="laplace"), POINTS, lambda a, b: math.exp(-distance(a, b))),
        (
            lambda a, b: label_distance(a, b, kernel="triangle", bandwidth=3.0),
            NUMBERS,
            lambda a, b: max(0, 1 - distance(a, b) / 3),
        ),
        (
            lambda a, b: from_pairs(LISTED, a, b),
            CLASSES,
            lambda a, b: [a, b] in LISTED.tolist() or [b, a] in LISTED.tolist(),
        ),
        (lambda a, b: from_pairs(LISTED, a, b, symmetric=False), CLASSES, lambda a, b: [a, b] in LISTED.tolist()),
        (lambda a, b: graded(a, b, GRADES), (torch.tensor([2, 0]), torch.tensor([1, 1, 0])), lambda a, b: GRADES[a, b]),
    ],
)
def test_equals_a_loop_and_any_block_can_be_asked_for(relate, blocks, function):
    labels, bank = blocks
    whole = relate(labels, bank)
    torch.testing.assert_close(whole, table(labels, bank, function))
    torch.testing.assert_close(relate(labels[1:2], bank[1:]), whole[1:2, 1:])
    assert relate(labels[:0], bank).shape == (0, len(bank))
    assert relate(labels, bank[:0]).shape == (len(labels), 0)


def test_one_label_each_relates_as_classes_do():
    labels, bank = CLASSES
    hot, bank_hot = (torch.nn.functional.one_hot(value, 8) for value in CLASSES)
    for kind in ("any", "jaccard"):
        torch.testing.assert_close(shared_labels(hot, bank_hot, kind), same_class(labels, bank))


def test_grades_of_pairs_and_the_higher_of_two():
    ids = torch.tensor([1, 2, 3])
    pairs = torch.tensor([[1, 2], [2, 1], [3, 1], [9, 9]])
    relation = from_pairs(pairs, ids, ids, grades=torch.tensor([0.5, 0.75, 0.25, 1.0]))
    torch.testing.assert_close(relation, torch.tensor([[0.0, 0.75, 0.25], [0.75, 0.0, 0.0], [0.25, 0.0, 0.0]]))


@pytest.mark.parametrize(
    ("call", "kind", "sentence"),
    [
        (
            lambda: same_class(*NUMBERS),
            TypeError,
            "^labels: expected whole numbers, got torch.float32; for labels that",
        ),
        (lambda: same_class(TAGS[0], TAGS[1]), ValueError, r"^labels: expected \[rows\], got shape \(3, 4\)$"),
        (lambda: shared_labels(TAGS[0], TAGS[1][:, :3]), ValueError, r"^bank_labels: expected \(3, 4\) to go with"),
        (lambda: shared_labels(*TAGS, "some"), ValueError, "^kind: expected one of 'any', 'jaccard', got 'some'"),
        (lambda: label_distance(*NUMBERS, kernel="gauss"), ValueError, "^kernel: .*did you mean 'gaussian'"),
        (lambda: label_distance(*NUMBERS, bandwidth=0), ValueError, "^bandwidth: expected a number above 0"),
        (lambda: other_rows([1], CLASSES[1]), TypeError, "^ids: expected a tensor, got list$"),
        (lambda: from_pairs(LISTED[:, :1], *CLASSES), ValueError, r"^pairs: expected \[P, 2\]"),
        (lambda: from_pairs(LISTED, *CLASSES, grades=torch.ones(2)), ValueError, "^grades: expected one for each of"),
        (lambda: graded(*CLASSES, torch.ones(3)), ValueError, r"^table: expected \[C, D\]"),
    ],
)
def test_errors_name_the_argument(call, kind, sentence):
    with pytest.raises(kind, match=sentence):
        call()
