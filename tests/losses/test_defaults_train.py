"""Every registered loss of embeddings learns with the settings that a user gets who gives none."""

import itertools

import pytest
import torch
from scipy.stats import spearmanr
from torch import nn

from vicinal.core import entries, entry
from vicinal.losses import EmbeddingLoss, ProxyLoss
from vicinal.losses.spec import read_loss

pytestmark = pytest.mark.sweep(3)

CLASSES, WIDTH = 4, 6
PLACES_NO_PAIRS = ("intra_pair_variance",)  # narrows the scores of related pairs, and says so: for use beside another
SIMILARITIES = ["cosine", "l2", "squared_l2", "l1", "snr"]


def learns(entry):
    return bool({"proxies", "proxy-rows"} & entry.facts)


def of_numbers(entry):
    return "number-relation" in entry.facts


def rows(entry, seed):
    """Three coordinates tell the labels apart, the other seven are noise of more variance."""
    g = torch.Generator().manual_seed(seed)
    if of_numbers(entry):
        labels = 3 * torch.rand(40, generator=g)
        signal = torch.stack([labels.cos(), labels.sin()], 1)
    else:
        labels = torch.arange(CLASSES).repeat(10)
        signal = 2 * torch.randn(CLASSES, 3, generator=g)[labels] + 0.2 * torch.randn(40, 3, generator=g)
    turn, _ = torch.linalg.qr(torch.randn(10, 10, generator=g))
    return torch.cat([signal, 1.7 * torch.randn(40, 10 - signal.shape[1], generator=g)], 1) @ turn, labels


def recall_at_1(scores, labels):
    return float((labels[scores.clone().fill_diagonal_(-torch.inf).argmax(1)] == labels).float().mean())


def rank_correlation(scores, labels):
    """Of the scores of pairs with how near their labels are."""
    first, second = torch.triu_indices(len(labels), len(labels), 1)
    return spearmanr(scores[first, second], -(labels[first] - labels[second]).abs()).statistic


def trained(entry, criterion, seed, steps=50):
    """Loss and quality before and after training a linear map, its rows in a new order in every step."""
    x, labels = rows(entry, seed)
    measure = rank_correlation if of_numbers(entry) else recall_at_1
    encoder = nn.Linear(x.shape[1], WIDTH)
    optimizer = torch.optim.Adam([*encoder.parameters(), *criterion.parameters()], lr=0.03)

    def state():
        with torch.no_grad():
            z = encoder(x)
            return float(criterion(z, labels)), measure(criterion.similarity(z, z), labels)

    before = state()
    for step in range(steps):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        criterion(encoder(x[order]), labels[order]).backward()
        optimizer.step()
    return before, state()


def check(entry, make, seeds=(0,)):
    for seed in seeds:
        torch.manual_seed(seed)
        before, after = trained(entry, make(), seed)
        assert after[0] < before[0] - 0.01 * abs(before[0])
        if entry.name not in PLACES_NO_PAIRS:
            assert after[1] > before[1] + 0.1 or after[1] > 0.98


@pytest.mark.parametrize("entry", entries("pair_loss"), ids=lambda e: e.name)
def test_a_module_with_no_settings_learns(entry):
    check(entry, lambda: ProxyLoss(entry.name, CLASSES, WIDTH) if learns(entry) else EmbeddingLoss(entry.name))


@pytest.mark.parametrize("entry", entries("pair_loss"), ids=lambda e: e.name)
def test_a_text_with_no_settings_learns(entry):
    check(entry, lambda: read_loss(entry.name).terms[0].make(num_classes=CLASSES, dim=WIDTH), seeds=(1,))


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("name", ["icnn", "log_ratio"])
def test_losses_of_distances_learn_by_any_similarity_that_has_a_best_score(name, similarity):
    check(entry("pair_loss", name), lambda: EmbeddingLoss(name, similarity=similarity), seeds=(2,))


@pytest.mark.parametrize("name", ["icnn", "log_ratio"])
def test_distances_are_taken_from_the_best_score_of_the_similarity(name):
    """Not from the scores of a batch, which may all be below 0, nor from a block of its rows."""
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.1], [-0.9, -0.3]], dtype=torch.float64)
    labels = torch.tensor([0, 0, 1]) if name == "icnn" else torch.tensor([0.0, 0.3, 2.0])
    for similarity, best in (("cosine", 1.0), ("l2", 0.0), ("snr", 0.0)):
        values = [EmbeddingLoss(name, similarity=similarity, rows=rows)(x, labels) for rows in (None, 1)]
        values += [EmbeddingLoss(name, similarity=similarity, best=best)(x, labels)]
        assert values[0] == pytest.approx(values[1]) == pytest.approx(values[2])
        other = EmbeddingLoss(name, similarity=similarity, best=best + 1)(x, labels)
        assert values[0] != pytest.approx(other)


@pytest.mark.slow
def test_the_share_of_smaller_gaps_gathers_no_classes_in_one_place():
    """By a gradient through the share itself, four classes end at two opposite places, and the loss is lower there."""
    known = entry("pair_loss", "dynamic_soft_margin")
    ends = {True: [], False: []}
    for detach, seed in itertools.product((True, False), range(2)):  # of rows at one place rounding decides the nearest
        torch.manual_seed(0)
        criterion = EmbeddingLoss("dynamic_soft_margin", detach=detach)
        ends[detach].append(trained(known, criterion, seed, steps=150)[1])
    assert all(recall > 0.98 for _, recall in ends[True])
    assert sum(recall for _, recall in ends[False]) / 2 < 0.8
    assert all(one[0] < other[0] for one, other in zip(ends[False], ends[True], strict=True))
