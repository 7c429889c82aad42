"""Defects that were measured in other libraries of pair losses, and that these do not have."""

import io

import pytest
import torch

from references.memory import LargestTensor
from vicinal.blockwise import block_policy
from vicinal.core import entries
from vicinal.losses import CrossBatchBank, DynamicSoftMargin, EmbeddingLoss, nt_xent, supcon

ENTRIES = [entry for entry in entries("pair_loss") if not {"proxies", "proxy-rows"} & entry.facts]
each = pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
LABELS = torch.arange(32) // 4


def embeddings(seed=0, n=32, dtype=torch.float32):
    return torch.randn(n, 16, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def labels_of(entry, n=32):
    return torch.arange(n) / 5 if "number-relation" in entry.facts else torch.arange(n) // 4


@pytest.mark.parametrize(
    ("dtype", "temperature"), [(torch.float16, 0.07), (torch.float32, 0.01), (torch.float16, 0.001)]
)
def test_hard_pairs_of_nt_xent_keep_their_loss_and_gradient_at_low_temperature(dtype, temperature):
    x = embeddings().to(dtype)
    results = []
    for kind in (dtype, torch.float64):
        leaf = x.detach().to(kind, copy=True).requires_grad_()
        value = EmbeddingLoss("nt_xent", temperature=temperature)(leaf, LABELS)
        value.backward()
        results.append((value.double(), leaf.grad.double()))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-3, atol=0)
    error = (results[0][1] - results[1][1]).norm() / results[1][1].norm()
    assert error < 2e-3
    assert results[0][1].norm() > 0.5


def test_nt_xent_keeps_no_matrix_of_positive_pairs_by_negatives():
    x, labels = embeddings(n=128).requires_grad_(), torch.arange(128) // 16  # 1920 positive pairs
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda v: kept.append(v.numel()) or v, lambda v: v):
        EmbeddingLoss("nt_xent")(x, labels)
    assert max(kept) == 128 * 128


def test_the_mean_of_supcon_is_that_of_rows_also_where_rows_are_zero():
    x = embeddings(dtype=torch.float64)
    x[:4] = torch.eye(16, dtype=torch.float64)[0] * 5  # these rows reach 0
    relation, weight = (LABELS[:, None] == LABELS).double(), 1 - torch.eye(32, dtype=torch.float64)
    scores = torch.nn.functional.normalize(x) @ torch.nn.functional.normalize(x).T
    each_row = supcon(scores, relation, weight, temperature=0.01, reduction="none")
    torch.testing.assert_close(supcon(scores, relation, weight, temperature=0.01), each_row.mean())
    assert (each_row < 1e-3).sum() < (each_row > 1).sum()


@each
def test_numbers_as_labels_are_refused_by_losses_of_classes(entry):
    x = embeddings()
    if "number-relation" in entry.facts:
        assert EmbeddingLoss(entry.name, similarity="l2")(x, LABELS.float()) > 0
        return
    with pytest.raises(TypeError, match=r"^labels: expected classes \(whole numbers\), got torch.float32"):
        EmbeddingLoss(entry.name)(x, LABELS.float())


def test_position_and_fill_of_a_bank_survive_a_checkpoint():
    loss = EmbeddingLoss("supcon", bank=CrossBatchBank(80, 16))
    loss(embeddings(0), LABELS)
    loss(embeddings(1), LABELS)
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    other = EmbeddingLoss("supcon", bank=CrossBatchBank(80, 16))
    other.load_state_dict(torch.load(file, weights_only=True))
    assert (len(other.bank), int(other.bank.pointer)) == (64, 64)
    for seed in (2, 3):  # the second goes over the end of the bank
        torch.testing.assert_close(other(embeddings(seed), LABELS), loss(embeddings(seed), LABELS))
    torch.testing.assert_close(other.state_dict(), loss.state_dict())


def test_the_histogram_of_dynamic_soft_margin_survives_a_checkpoint():
    loss = EmbeddingLoss(DynamicSoftMargin(bins=8, momentum=0.5))
    first = loss(embeddings(0), LABELS)
    other = EmbeddingLoss(DynamicSoftMargin(bins=8, momentum=0.5))
    torch.testing.assert_close(other(embeddings(0), LABELS), first)
    other = EmbeddingLoss(DynamicSoftMargin(bins=8, momentum=0.5))
    other.load_state_dict(loss.state_dict())
    torch.testing.assert_close(other(embeddings(1), LABELS), loss(embeddings(1), LABELS))
    assert loss.loss.history.sum() == pytest.approx(1)
    assert int(loss.loss.batches) == 2


@pytest.mark.sweep(4)
@each
@pytest.mark.parametrize("similarity", ["l2", "l1", "squared_l2", "cosine"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_embeddings_work_with_every_similarity(entry, similarity, dtype):
    x, labels = (embeddings() / 4).to(dtype), labels_of(entry)
    loss = EmbeddingLoss(entry.name, similarity=similarity)
    results = []
    for kind in (dtype, torch.float32):
        leaf = x.detach().to(kind, copy=True).requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = loss(leaf, labels)
        value.backward()
        results.append(value.detach())
        assert leaf.grad.isfinite().all()
    torch.testing.assert_close(results[0], results[1], rtol=0.02, atol=1e-6)


@each
@pytest.mark.parametrize("similarity", ["l2", "cosine"])
def test_gradients_are_finite_at_coincident_and_zero_rows(entry, similarity):
    x = embeddings()
    x[1] = x[0]
    x[5] = x[0]
    x[8] = 0.0
    x.requires_grad_()
    EmbeddingLoss(entry.name, similarity=similarity)(x, labels_of(entry)).backward()
    assert x.grad.isfinite().all()


@each
def test_a_batch_without_a_related_pair_gives_no_nan(entry):
    if "number-relation" in entry.facts:
        return
    x = embeddings().requires_grad_()
    value = EmbeddingLoss(entry.name)(x, torch.arange(32))
    value.backward()
    assert value.isfinite()
    assert x.grad.isfinite().all()


def test_semi_hard_and_all_triplets_are_not_cubic():
    x, labels = embeddings(n=128), torch.arange(128) // 16
    for kind in ("all", "hard", "semi-hard", "batch-hard"):
        with block_policy(memory_entries=2 * 128 * 128), LargestTensor() as seen:
            EmbeddingLoss("triplet", triplets=kind)(x.clone().requires_grad_(), labels).backward()
        assert seen.largest <= 2 * 128 * 128


def test_a_large_common_offset_of_the_embeddings_changes_nothing():
    x = embeddings(dtype=torch.float64)
    loss = EmbeddingLoss("triplet", similarity="l2")
    torch.testing.assert_close(loss((x + 3000).float(), LABELS).double(), loss(x, LABELS), rtol=2e-3, atol=0)


def test_scores_of_padding_may_be_anything():
    scores = torch.tensor([[0.5, 0.1, -torch.inf], [0.2, 0.3, torch.nan]], requires_grad=True)
    relation, weight = torch.tensor([[1.0, 0, 0], [0, 1.0, 1.0]]), torch.tensor([[1.0, 1, 0], [1, 1, 0]])
    value = nt_xent(scores, relation, weight)
    value.backward()
    torch.testing.assert_close(value.detach(), nt_xent(scores.detach()[:, :2], relation[:, :2]))
    assert scores.grad.isfinite().all()
