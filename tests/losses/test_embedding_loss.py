"""Criteria of embeddings and labels: the same loss whatever the way its columns come."""

import contextlib
import functools
import inspect
from pathlib import Path

import pytest
import torch

from vicinal import miners
from vicinal.blockwise import block_policy
from vicinal.core import entries
from vicinal.core import entry as entry_of
from vicinal.losses import CrossBatchBank, EmbeddingLoss, ProxyLoss, explain_batch, supcon
from vicinal.relation import from_pairs, label_distance, same_class, shared_labels
from vicinal.relation.pairs import other_rows

pytestmark = pytest.mark.sweep(3)

ENTRIES = [entry for entry in entries("pair_loss") if not {"proxies", "proxy-rows"} & entry.facts]
each = pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
FREE = [entry for entry in ENTRIES if "square" not in entry.facts]
each_free = pytest.mark.parametrize("entry", FREE, ids=lambda e: e.name)


def rows(entry, seed=0, n=9):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 5, generator=g, dtype=torch.float64)
    if "number-relation" in entry.facts:
        return x, torch.randn(n, generator=g, dtype=torch.float64)
    return x, torch.randint(0, 4, (n,), generator=g)


def relation_of(entry, labels, bank_labels):
    return (label_distance if "number-relation" in entry.facts else same_class)(labels, bank_labels)


def similarity_of(entry):
    return "l2" if "number-relation" in entry.facts else "cosine"


def best_of(entry, similarity):
    """An inner product has no best score, so a loss of distances asks for one."""
    return {"best": 1.0} if entry.name in ("log_ratio", "icnn") and similarity in ("dot", "scaled_dot") else {}


def criterion(entry, **settings):
    return EmbeddingLoss(entry.name, similarity=similarity_of(entry), **settings)


@each
def test_is_the_loss_of_the_scores_without_the_diagonal(entry):
    x, labels = rows(entry)
    loss = criterion(entry)
    scores, relation = loss.similarity(x, x), relation_of(entry, labels, labels)
    want = entry.factory(scores, relation, 1 - torch.eye(9))
    torch.testing.assert_close(loss(x, labels), want)
    torch.testing.assert_close(EmbeddingLoss(entry.factory, similarity=similarity_of(entry))(x, labels), want)


@each
def test_ids_are_what_counts_and_not_positions(entry):
    x, labels = rows(entry)
    loss, ids = criterion(entry), torch.tensor([11, 5, 900, 2, 7, 1, 0, 3, 8])
    torch.testing.assert_close(loss(x, labels, ids=ids), loss(x, labels))
    torch.testing.assert_close(loss(x, labels, x, labels, ids=ids, bank_ids=ids), loss(x, labels))
    twice = ids.clone()
    twice[3] = twice[6]  # two views of one thing are no pair
    weight = other_rows(twice, twice)
    assert weight.sum() == 70
    want = entry.factory(loss.similarity(x, x), relation_of(entry, labels, labels), weight)
    torch.testing.assert_close(loss(x, labels, ids=twice), want)


@each_free
def test_a_shuffled_bank_with_ids_is_the_batch_itself(entry):
    if "order-dependent" in entry.facts:
        return
    x, labels = rows(entry)
    ids, order = torch.arange(9), torch.randperm(9, generator=torch.Generator().manual_seed(1))
    loss = criterion(entry)
    got = loss(x, labels, x[order], labels[order], ids=ids, bank_ids=ids[order])
    torch.testing.assert_close(got, loss(x, labels))


@each
def test_classes_relate_as_one_label_each(entry):
    if "number-relation" in entry.facts:
        x, labels = rows(entry)
        torch.testing.assert_close(criterion(entry)(x, labels[:, None]), criterion(entry)(x, labels))
        return
    x, labels = rows(entry)
    hot = torch.nn.functional.one_hot(labels, 4)
    torch.testing.assert_close(criterion(entry)(x, hot), criterion(entry)(x, labels))
    jaccard = criterion(entry, relation=lambda a, b: shared_labels(a, b, "jaccard"))
    torch.testing.assert_close(jaccard(x, hot), criterion(entry)(x, labels))
    ids = torch.arange(9)
    listed = (labels[:, None] == labels).nonzero()
    pairs = criterion(entry, relation=lambda a, b: from_pairs(listed, a, b))
    torch.testing.assert_close(pairs(x, ids), criterion(entry)(x, labels))


@each_free
def test_a_bank_is_the_same_as_more_columns(entry):
    first, second, third = (rows(entry, seed, 4) for seed in range(3))
    label_dtype = first[1].dtype
    bank = CrossBatchBank(6, 5, label_dtype=label_dtype).double()
    bank.labels = bank.labels.to(label_dtype)
    loss = criterion(entry, bank=bank)
    loss(*first)
    loss(*second)
    kept = [torch.cat([new[2:], old[2:], new[:2]]) for old, new in zip(first, second, strict=True)]  # in its ring
    columns = torch.cat([third[0], kept[0]]), torch.cat([third[1], kept[1]])
    weight = torch.cat([1 - torch.eye(4), torch.ones(4, 6)], dim=1)
    want = entry.factory(loss.similarity(third[0], columns[0]), relation_of(entry, third[1], columns[1]), weight)
    torch.testing.assert_close(loss.eval()(*third), want)
    torch.testing.assert_close(loss.train()(*third), want)
    assert len(bank) == 6


def test_a_copy_in_the_bank_is_known_by_its_id():
    x, labels = rows(FREE[0])
    loss = EmbeddingLoss("supcon", bank=CrossBatchBank(9, 5).double())
    ids = torch.arange(9)
    loss(x, labels, ids=ids)
    doubled = torch.cat([other_rows(ids, ids)] * 2, dim=1)
    scores = torch.cat([loss.similarity(x, x)] * 2, dim=1)
    relation = torch.cat([same_class(labels, labels)] * 2, dim=1)
    torch.testing.assert_close(loss(x, labels, ids=ids), supcon(scores, relation, doubled))


@each
def test_rows_in_blocks_have_the_same_value_and_gradient(entry):
    x, labels = rows(entry)
    if "row-separable" not in entry.facts and entry.factory.batch_stats is None:
        with pytest.raises(ValueError, match=r"^rows: expected None, got 2"):
            criterion(entry, rows=2)
        return
    for reduction in ("mean", "sum", "none", "mean_nonzero"):
        results = []
        for size in (None, 4, 2):
            leaf = x.clone().requires_grad_()
            value = criterion(entry, rows=size, reduction=reduction)(leaf, labels)
            value.backward(torch.linspace(1, 2, len(x), dtype=x.dtype) if value.ndim else None)
            results.append((value.detach(), leaf.grad))
        torch.testing.assert_close(results[1], results[0])
        torch.testing.assert_close(results[2], results[0])


@each
@pytest.mark.parametrize("similarity", ["cosine", "dot", "l2"])
def test_value_and_gradient_are_those_of_the_loss_of_the_scores(entry, similarity):
    """Whole, in blocks that are chosen by size, and as the function of three matrices of numbers."""
    x, labels = rows(entry, 3, 12)
    if similarity != "cosine" and "cosine-scores" in entry.facts:
        return
    results = []
    for way in ("function", "whole", "blocks"):
        leaf = x.clone().requires_grad_()
        loss = EmbeddingLoss(entry.name, similarity=similarity, **best_of(entry, similarity))
        if way == "function":
            scores, relation = loss.similarity(leaf, leaf), relation_of(entry, labels, labels)
            value = entry.factory(scores, relation, 1 - torch.eye(12), **loss.hyper)
        else:
            with block_policy(block_entries=1, least_rows=5) if way == "blocks" else contextlib.nullcontext():
                value = loss(leaf, labels)
        value.backward()
        results.append((value.detach(), leaf.grad))
    torch.testing.assert_close(results[1], results[0])
    torch.testing.assert_close(results[2], results[0])


def test_blocks_without_gradients_and_with_learned_settings():
    x, labels = torch.randn(10, 4, dtype=torch.float64), torch.arange(10) % 3
    loss = EmbeddingLoss("supcon", rows=3)
    with torch.no_grad():
        torch.testing.assert_close(loss(x, labels), EmbeddingLoss("supcon")(x, labels))
    slopes = []
    for size in (None, 3):
        boundary = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
        leaf = x.clone().requires_grad_()
        EmbeddingLoss("margin", rows=size, boundary=boundary)(leaf, labels).backward()
        slopes.append((leaf.grad, boundary.grad))
    torch.testing.assert_close(slopes[1], slopes[0])


@pytest.mark.parametrize("miner", ["hard", "semihard", "multi_similarity", "topk_hard"])
def test_miners_work_in_blocks(miner):
    x, labels = torch.randn(11, 4, dtype=torch.float64), torch.arange(11) % 4
    chosen = entry_of("miner", miner).factory
    results = []
    for size in (None, 4):
        leaf = x.clone().requires_grad_()
        EmbeddingLoss("contrastive", miner=chosen, rows=size)(leaf, labels).backward()
        results.append(leaf.grad)
    torch.testing.assert_close(results[1], results[0])
    with pytest.raises(ValueError, match=r"^rows: expected None, got 4"):
        EmbeddingLoss("contrastive", miner=lambda scores, relation, weight: weight, rows=4)


def test_blocks_keep_no_matrix_of_all_scores():
    x, labels = torch.randn(300, 8, requires_grad=True), torch.arange(300) % 7
    kept = []

    def note(value):
        kept.append(value.numel())
        return value

    with torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
        EmbeddingLoss("supcon", rows=30)(x, labels)
    assert max(kept) <= 30 * 300
    with torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
        EmbeddingLoss("supcon")(x, labels)
    assert max(kept) >= 300 * 300


def test_a_miner_chooses_the_pairs():
    x, labels = rows(ENTRIES[0])

    def miner(scores, relation, weight):
        assert not scores.requires_grad
        return weight * (relation + (scores > 0))

    loss = EmbeddingLoss("contrastive", miner=miner)
    scores, relation, _ = loss.pairs(*loss.sides(x.requires_grad_(), labels))
    want = loss.loss(scores, relation, (1 - torch.eye(9)) * (relation + (scores > 0)))
    torch.testing.assert_close(loss(x, labels), want)


SIMILARITIES = ["cosine", "l2", "l1", "squared_l2", "dot", "scaled_dot"]


@each
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_a_perfect_batch_has_a_smaller_loss_than_the_same_with_wrong_labels(entry, similarity):
    if {"cosine-scores"} & entry.facts and similarity != "cosine":
        return
    if "number-relation" in entry.facts:
        angle = torch.linspace(0, 3, 6)
        x, labels, wrong = torch.stack([angle.cos(), angle.sin()], 1), angle, angle[[3, 0, 5, 1, 4, 2]]
        hyper = best_of(entry, similarity)
    else:
        x = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])[[0, 0, 0, 1, 1, 1]]
        labels, wrong = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 1, 0, 1, 0, 1])
        hyper = best_of(entry, similarity)
    if entry.name == "log_det":  # opposite directions span as little as equal ones, unless they are told apart
        hyper = {"offset": 1.0}
    loss = EmbeddingLoss(entry.name, similarity=similarity, **hyper)
    if entry.name == "intra_pair_variance":  # narrows the scores of related pairs; it does not place them
        assert loss(x, labels) < loss(x, wrong) + 1e-3
        return
    assert loss(x, labels) < loss(x, wrong)


@pytest.mark.parametrize("entry", entries("pair_loss"), ids=lambda e: e.name)
def test_any_pair_loss_runs_against_proxies(entry):
    if {"square", "number-relation"} & entry.facts:
        return
    x, labels = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1, 3])
    torch.manual_seed(0)
    loss = ProxyLoss(entry.name, 4, 5, per_class=2)
    assert loss.proxies.shape == (8, 5)
    value = loss(x, labels)
    value.backward()
    assert value.isfinite()
    assert loss.proxies.grad.isfinite().all()
    torch.testing.assert_close(loss(x, torch.nn.functional.one_hot(labels, 4)), value)
    if entry.name != "contrastive":
        assert (loss.proxies.grad != 0).any()


def test_criteria_refuse_what_does_not_fit():
    x, labels = torch.randn(4, 3), torch.tensor([0, 0, 1, 1])
    loss = EmbeddingLoss("supcon")
    for call, kind, sentence in [
        (lambda: EmbeddingLoss("supcom"), ValueError, r"^loss: .*did you mean EmbeddingLoss\(\"supcon\"\)"),
        (lambda: EmbeddingLoss(3), TypeError, "^loss: expected a name or a function"),
        (lambda: EmbeddingLoss("supcon", reduction="avg"), ValueError, "^reduction: expected one of"),
        (lambda: loss(x, labels[:3]), ValueError, "^labels: expected a row for each of 4 embeddings"),
        (lambda: loss(x, labels, x), ValueError, "^bank_labels: expected with a bank"),
        (lambda: loss(x, labels, bank_ids=labels), ValueError, "^bank_ids: expected with a bank"),
        (lambda: loss(x, labels, x, labels, ids=labels), ValueError, "^bank_ids: expected with ids"),
        (lambda: loss(x, labels.float()), TypeError, "^labels: expected classes .* use a loss such as"),
        (lambda: EmbeddingLoss("icnn", similarity="dot"), ValueError, "^best: expected .*got none of Dot"),
        (lambda: ProxyLoss("icnn", 2, 3, similarity="dot"), ValueError, "^best: expected .*cosine or l2"),
        (lambda: EmbeddingLoss("angular")(x, labels, x[:2], labels[:2]), ValueError, "^scores: expected as many rows"),
        (lambda: ProxyLoss("cosface", 2, 3)(x, labels + 1), ValueError, "^labels: expected classes 0 to 1"),
        (lambda: ProxyLoss("cosface", 1, 3), ValueError, "^num_classes: expected a whole number of at least 2"),
        (lambda: ProxyLoss("cosface", 2, 3)(x, labels.float()), ValueError, r"^labels: expected whole numbers \[4\]"),
        (lambda: CrossBatchBank(2, 3).add(x[:, :2], labels), ValueError, "^embeddings: expected"),
        (lambda: CrossBatchBank(2, 3).add(x, labels.float()), ValueError, "^labels: expected torch.int64"),
    ]:
        with pytest.raises(kind, match=sentence):
            call()


def test_bank_keeps_the_last_rows_in_turn():
    bank = CrossBatchBank(5, 1)
    for start in range(0, 12, 3):
        bank.add(torch.arange(start, start + 3.0)[:, None], torch.arange(start, start + 3))
        assert len(bank) == min(5, start + 3)
        assert sorted(bank.labels[: len(bank)].tolist()) == list(range(max(0, start - 2), start + 3))
        torch.testing.assert_close(bank.vectors[:, 0].long(), bank.labels)
    bank.add(torch.arange(20.0, 28.0)[:, None], torch.arange(20, 28))
    assert sorted(bank.labels.tolist()) == [23, 24, 25, 26, 27]
    assert len(set(bank.ids.tolist())) == 5
    bank.clear()
    assert len(bank) == 0


def test_explain_batch_counts_what_the_loss_sees_and_leaves_the_bank_alone():
    x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6], [-1.0, 0.0]])
    labels = torch.tensor([0, 0, 1, 2])
    loss = EmbeddingLoss("contrastive", bank=CrossBatchBank(8, 2))
    report = explain_batch(loss, x, labels, most=1)
    assert (report.pairs, report.related, report.mined) == (12, 2, 12)
    assert (report.pulled, report.pushed, report.lonely) == (2, 4, (2, 3))
    row, column, score, relation, slope = report.strongest[0]
    assert (relation, slope < 0) == (1.0, True)
    assert (row, column) in ((0, 1), (1, 0))
    assert score == pytest.approx(0.6)
    assert len(loss.bank) == 0
    assert "2 rows have no related column: [2, 3]" in str(report)
    assert report.loss == pytest.approx(loss(x, labels).item())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own, while it traces
@each
def test_criteria_compile_to_one_graph(entry):
    torch._dynamo.reset()
    x, labels = rows(entry)
    loss = EmbeddingLoss(entry.name)
    slopes = []
    for made in (torch.compile(loss, backend="eager", fullgraph=True), loss):
        leaf = x.clone().requires_grad_()
        made(leaf, labels).backward()
        slopes.append(leaf.grad)
    torch.testing.assert_close(slopes[0], slopes[1])


@pytest.mark.parametrize("rows", [None, 3])
def test_the_formula_is_at_most_six_calls_away(rows, monkeypatch):
    """And it is the public function that is called."""
    calls = []

    def formula(pairs, **settings):
        files = [Path(frame.filename) for frame in inspect.stack()]
        calls.append([file.name for file in files if file.parent == Path(inspect.getfile(EmbeddingLoss)).parent])
        return original(pairs, **settings)

    original = supcon.formula
    monkeypatch.setattr(supcon, "formula", formula)
    EmbeddingLoss("supcon", rows=rows)(torch.randn(6, 3), torch.arange(6) // 2)
    assert len(calls) == (1 if rows is None else 2)
    for files in calls:
        assert "contract.py" in files
        assert len(files) + 1 <= (6 if rows is None else 8), files


def test_the_miner_stands_in_the_words_of_a_loss():
    settings = "triplet, reduction='mean'"
    assert settings + ", miner=semihard\n" in repr(EmbeddingLoss("triplet", miner="semihard"))
    mined = EmbeddingLoss("triplet", miner=functools.partial(miners.multi_similarity, epsilon=0.2))
    assert settings + ", miner=multi_similarity, epsilon=0.2\n" in repr(mined)
    assert settings + "\n" in repr(EmbeddingLoss("triplet"))


def test_a_miner_is_taken_by_name_as_by_function():
    generator = torch.Generator().manual_seed(0)
    batch = torch.randn(12, 4, generator=generator), torch.arange(12) % 3
    named, given, bare = (EmbeddingLoss("triplet", miner=each)(*batch) for each in ("Hard", miners.hard, None))
    assert named == given != bare
    with pytest.raises(ValueError, match=r"^miner: expected one of .* got 'semihardd'; did you mean 'semihard'\?"):
        EmbeddingLoss("triplet", miner="semihardd")
    with pytest.raises(ValueError, match=r"partial\(miners.distance_weighted, dim=...\), got 'distance_weighted' with"):
        EmbeddingLoss("triplet", miner="distance_weighted")
    with pytest.raises(TypeError, match=r"^miner: expected a name or a function of scores, relation and weight, got 5"):
        EmbeddingLoss("triplet", miner=5)
