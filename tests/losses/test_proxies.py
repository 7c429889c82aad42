"""Losses against proxies, and those that classes give without all scores, are the same by all their ways."""

import pytest
import torch

from references.memory import LargestTensor
from vicinal.blockwise import block_policy
from vicinal.core import entries
from vicinal.losses import ProxyLoss
from vicinal.losses.streaming import as_inner_product
from vicinal.similarity import Cosine

pytestmark = pytest.mark.sweep(4)

WITH_PROXIES = [entry for entry in entries("pair_loss") if {"proxies", "proxy-rows"} & entry.facts]
named = pytest.mark.parametrize("entry", WITH_PROXIES, ids=lambda entry: entry.name)


def batch(seed=0, b=24, d=6, classes=5):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(b, d, generator=g, dtype=torch.float64), torch.randint(0, classes, (b,), generator=g)


def criterion(entry, classes=5, d=6, **settings):
    torch.manual_seed(3)
    per_class = 2 if "proxy-groups" in entry.facts else 1
    return ProxyLoss(entry.name, classes, d, per_class=per_class, **settings).double()


def slopes(loss, x, labels):
    """Value and gradients of the embeddings and of the proxies."""
    leaf = x.clone().requires_grad_()
    value = loss(leaf, labels)
    value.square().sum().backward()
    return value.detach(), leaf.grad, loss.proxies.grad


@named
@pytest.mark.parametrize("reduction", ["mean", "sum", "none", "mean_nonzero"])
def test_classes_are_what_shares_of_one_class_are(entry, reduction):
    x, labels = batch()
    shares = torch.nn.functional.one_hot(labels, 5)
    made = [slopes(criterion(entry, reduction=reduction), x, given) for given in (labels, shares)]
    torch.testing.assert_close(made[1], made[0], rtol=1e-9, atol=1e-12)


@named
@pytest.mark.parametrize("reduction", ["mean", "sum", "none", "mean_nonzero"])
@pytest.mark.parametrize("several", [False, True])
def test_blocks_are_the_whole(entry, reduction, several):
    x, labels = batch()
    if several:
        labels = (torch.rand(24, 5, generator=torch.Generator().manual_seed(1)) < 0.3).long()
    whole = slopes(criterion(entry, reduction=reduction), x, labels)
    with block_policy(block_entries=1, least_rows=7):
        blocks = slopes(criterion(entry, reduction=reduction), x, labels)
    torch.testing.assert_close(blocks, whole, rtol=1e-9, atol=1e-12)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("entry", [e for e in WITH_PROXIES if "batch-scores" not in e.facts], ids=lambda e: e.name)
def test_no_matrix_of_all_scores_is_made(entry):
    b, classes, size = 2100, 400, 13_000
    x, labels = batch(b=b, d=4, classes=classes)
    with block_policy(block_entries=size, least_rows=4), LargestTensor() as largest:
        slopes(criterion(entry, classes, 4), x, labels)
    assert largest.largest <= size < b * classes


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own, while it traces
@named
@pytest.mark.parametrize("size", [7, 24])
def test_proxies_compile_to_one_graph(entry, size):
    torch._dynamo.reset()
    x, labels = batch()
    with block_policy(block_entries=1, least_rows=size):
        loss = criterion(entry)
        made = slopes(torch.compile(criterion(entry), backend="eager", fullgraph=True), x, labels)
    torch.testing.assert_close(made, slopes(loss, x, labels), rtol=1e-9, atol=1e-12)


@named
def test_blocks_in_half_precision(entry):
    x, labels = batch()
    whole = criterion(entry).float()(x.float(), labels)
    with block_policy(block_entries=1, least_rows=7), torch.autocast("cpu", dtype=torch.bfloat16):
        value = criterion(entry).float()(x.float(), labels)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, whole)


# --- directions ---------------------------------------------------------------------------------------------------


def test_directions_have_first_and_second_gradients_and_zero_rows_none():
    x = batch(b=4, d=3)[0].requires_grad_()
    assert torch.autograd.gradcheck(lambda rows: as_inner_product(Cosine(), rows, rows)[1], (x,))
    assert torch.autograd.gradgradcheck(lambda rows: as_inner_product(Cosine(), rows, rows)[1], (x,))
    sizes = torch.tensor([[0.0], [1e-200], [1.0], [1e200]], dtype=torch.float64)
    leaf = (x.detach() * sizes).requires_grad_()
    unit = as_inner_product(Cosine(), leaf, leaf)[1]
    unit[:, 0].sum().backward()
    torch.testing.assert_close(unit.norm(dim=1), (sizes[:, 0] > 0).double())
    want = torch.autograd.grad(as_inner_product(Cosine(), x, x)[1][:, 0].sum(), x)[0]
    torch.testing.assert_close(leaf.grad[1:] * sizes[1:], want[1:])
    assert (leaf.grad[0] == 0).all()
