"""A loss that is 0 since its batches hold nothing to compare says so, once."""

import warnings

import pytest
import torch

from vicinal import losses
from vicinal.core import entries
from vicinal.losses import CrossBatchBank, EmbeddingLoss, LossForPML, MixedLoss

SENTENCE = r"^labels: expected rows that are related and rows that are not, got a batch of 8 rows with none to tell"
ENTRIES = [entry for entry in entries("pair_loss") if not {"proxies", "proxy-rows"} & entry.facts]
each = pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)


def rows(seed=0, n=8):
    return torch.randn(n, 16, generator=torch.Generator().manual_seed(seed))


def values_and_warnings(criterion, batches):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        values = [float(criterion(vectors, labels)) for vectors, labels in batches]
    return values, [str(each.message) for each in caught]


def labels_of(entry, labels):
    return labels.float() if "number-relation" in entry.facts else labels


@pytest.mark.sweep(3)
@each
@pytest.mark.parametrize("reduction", ["mean", "sum", "mean_nonzero"])
@pytest.mark.parametrize("kind", ["all apart", "all alike", "one row"])
def test_a_loss_that_is_0_in_every_batch_says_so_once(entry, reduction, kind):
    labels = {"all apart": torch.arange(8), "all alike": torch.zeros(8).long(), "one row": torch.arange(1)}[kind]
    if kind == "all apart" and "number-relation" in entry.facts:
        return  # numbers that differ are what such a loss compares
    batches = [(rows(seed, len(labels)), labels_of(entry, labels)) for seed in range(6)]
    values, said = values_and_warnings(EmbeddingLoss(entry.name, reduction=reduction), batches)
    assert len(said) == (values[0] == 0)
    assert kind != "one row" or said


@each
def test_a_batch_with_something_to_compare_says_nothing(entry):
    labels = labels_of(entry, torch.arange(8) // 2)
    vectors = torch.nn.functional.one_hot(torch.arange(8) // 2, 16).float()  # the best there is: many losses are 0
    values, said = values_and_warnings(EmbeddingLoss(entry.name), [(vectors, labels)] * 3)
    assert not said, values


@each
def test_functions_say_so_where_they_are_called(entry):
    relation = torch.zeros(8, 8) if "number-relation" in entry.facts else torch.eye(8)
    scores, weight = torch.rand(8, 8), 1 - torch.eye(8)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = entry.factory(scores, relation, weight)
    assert len(caught) == int(value == 0)
    assert not caught or caught[0].filename == __file__


def test_it_is_said_at_the_line_of_the_caller_and_names_the_rows():
    with pytest.warns(UserWarning, match=SENTENCE) as caught:
        EmbeddingLoss("triplet")(rows(), torch.arange(8))
    assert caught[0].filename == __file__


def test_ids_and_groups_decide_what_can_be_compared():
    labels, criterion = torch.arange(8) // 4, EmbeddingLoss("supcon")
    with pytest.warns(UserWarning, match=SENTENCE):
        criterion(rows(), labels, groups=labels)  # all that are related are of one group
    with pytest.warns(UserWarning, match=SENTENCE):
        EmbeddingLoss("triplet")(rows(), labels, rows(1)[:4], labels[:4] * 0, ids=labels, bank_ids=torch.arange(4) + 8)


def test_zeros_that_are_earned_do_not_end_the_search():
    vectors, labels = torch.eye(16)[torch.arange(8) // 2], torch.arange(8) // 2
    batches = [(vectors, labels), (rows(), torch.arange(8)), (rows(), torch.arange(8))]
    values, said = values_and_warnings(EmbeddingLoss("triplet"), batches)
    assert values == [0, 0, 0]
    assert len(said) == 1


def test_a_loss_that_was_above_0_is_not_read_again():
    batches = [(rows(), torch.arange(8) // 2), (rows(), torch.arange(8))]
    values, said = values_and_warnings(EmbeddingLoss("triplet"), batches)
    assert values[0] > 0 == values[1]
    assert not said


@pytest.mark.parametrize(
    "criterion",
    [
        MixedLoss(EmbeddingLoss("metrix", similarity="l2"), factor=0.0),
        LossForPML(EmbeddingLoss("supcon")),
        EmbeddingLoss("nt_xent", bank=CrossBatchBank(16, 16)),
        EmbeddingLoss("nt_xent", rows=3),
        EmbeddingLoss(losses.DynamicSoftMargin()),
        EmbeddingLoss("supcon", relation=lambda a, b: (a[:, None] == b).double()),
    ],
    ids=lambda c: repr(c)[:40],
)
def test_whatever_is_built_of_pair_losses_says_it_too(criterion):
    values, said = values_and_warnings(criterion, [(rows(), torch.arange(8))])
    assert (len(said) > 0) == (values[0] == 0)


def test_no_rows_at_all_are_no_fault():
    assert values_and_warnings(EmbeddingLoss("supcon"), [(rows(n=0), torch.arange(0))]) == ([0.0], [])
