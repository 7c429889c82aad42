"""What is taken off hubs, and the indexes that serve it."""

import numpy as np
import pytest
import torch

from references.linking import inverted_softmax
from vicinal.blockwise.blocks import block_policy
from vicinal.index import Corrected, ExactIndex, dual_hub_bias, hub_bias, open_index
from vicinal.similarity.base import resolve_similarity

GOLDEN = np.load("tests/golden/retrieval/dbnorm.npz")
SIMILARITIES = ["cosine", "dot", "scaled_dot", "l2", "squared_l2", "l1", "snr"]


def rows(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


class Given(torch.nn.Module):
    """Looks scores up: a row is its number."""

    def __init__(self, scores):
        super().__init__()
        self.scores = torch.from_numpy(scores)

    def forward(self, queries, bank):
        return self.scores[queries[:, 0].long()][:, bank[:, 0].long()]


def numbers(count):
    return torch.arange(count, dtype=torch.float64)[:, None]


def golden_bias(bank, beta):
    return hub_bias(numbers(len(bank)), numbers(bank.shape[1]), Given(bank), temperature=1 / float(beta))


@pytest.mark.parametrize("prefix", ["", "sharp_"])
@pytest.mark.parametrize("side", ["query", "gallery"])
def test_ranking_is_that_of_the_papers_inverted_softmax(prefix, side):
    beta = GOLDEN[f"{prefix}beta{1 if side == 'query' else 2}"]
    bank = GOLDEN[f"{side}_bank_sims"]
    bias = golden_bias(bank, beta).numpy()
    shares = np.exp(beta * (GOLDEN["test_sims"] + bias)) / len(bank)
    np.testing.assert_allclose(shares, inverted_softmax(GOLDEN["test_sims"], bank, beta), rtol=1e-10)
    np.testing.assert_allclose(shares, GOLDEN[f"{prefix}inverted_softmax_{side}"], rtol=1e-10)


@pytest.mark.parametrize("prefix", ["", "sharp_"])
def test_dual_bias_ranks_by_the_product_of_both(prefix):
    betas = [float(GOLDEN[f"{prefix}beta{i}"]) for i in (1, 2)]
    parts = [
        golden_bias(GOLDEN[f"{side}_bank_sims"], beta) for side, beta in zip(("query", "gallery"), betas, strict=True)
    ]
    joined = (betas[0] * parts[0] + betas[1] * parts[1]) / sum(betas)
    order = (torch.from_numpy(GOLDEN["test_sims"]) + joined).argsort(dim=1)
    assert order.tolist() == GOLDEN[f"{prefix}dual_inverted_softmax"].argsort(axis=1).tolist()
    queries, gallery, bank = rows(9, 4), rows(7, 4, seed=1), rows(5, 4, seed=2)
    both = dual_hub_bias(queries, gallery, bank, temperatures=(0.3, 0.7))
    one, other = hub_bias(queries, bank, temperature=0.3), hub_bias(gallery, bank, temperature=0.7)
    torch.testing.assert_close(both, (one / 0.3 + other / 0.7) / (1 / 0.3 + 1 / 0.7))


@pytest.mark.parametrize("prefix", ["", "sharp_"])
def test_dynamic_changes_only_queries_whose_best_row_is_a_hub(prefix):
    sims, bank = GOLDEN["test_sims"], GOLDEN["query_bank_sims"]
    index = ExactIndex(5, "dot")  # rows are unit vectors, so scores are the numbers of a query
    index.add(range(5), torch.eye(5))
    bias = golden_bias(bank, GOLDEN[f"{prefix}beta1"])
    corrected = Corrected(index, bias, dynamic=True, queries=torch.from_numpy(bank))
    hubs = np.unique(bank.argmax(axis=1))
    assert sorted(GOLDEN["activation_set_query"].tolist()) == sorted(hubs.tolist())
    best = corrected.search(torch.from_numpy(sims), 1).ids[:, 0].tolist()
    assert best == GOLDEN[f"{prefix}dynamic_is_query"].argmax(axis=1).tolist()


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("temperature", [0.01, 1.0, 50.0])
def test_bias_by_blocks_is_the_negated_log_mean_exponential(similarity, temperature):
    queries, bank = rows(40, 6), rows(70, 6, seed=1)
    scores = resolve_similarity(similarity)(queries, bank)
    expected = -temperature * ((scores / temperature).logsumexp(dim=0) - np.log(40))
    with block_policy(attention_entries=64, query_rows=16):
        torch.testing.assert_close(hub_bias(queries, bank, similarity, temperature=temperature), expected)


def test_rows_of_one_id_do_not_ask_one_another():
    bank = rows(30, 4)
    names = torch.arange(30) // 2
    scores = resolve_similarity("l2")(bank, bank).masked_fill(names[:, None] == names, -torch.inf)
    expected = -0.2 * ((scores / 0.2).logsumexp(dim=0) - np.log(28))
    torch.testing.assert_close(hub_bias(bank, bank, "l2", temperature=0.2, ids=(names, names)), expected)
    with pytest.raises(ValueError, match="a row that only itself asks"):
        hub_bias(bank[:1], bank[:1], temperature=1.0, ids=(names[:1], names[:1]))


def test_hubs_are_asked_less_often_for_it():
    queries, bank = rows(400, 20).float() + 1, rows(300, 20, seed=1).float()
    bank[:20] += 0.7  # near to everything
    scores = resolve_similarity("cosine")(queries, bank)
    corrected = scores + hub_bias(queries, bank, temperature=0.05)

    def skewness(matrix):
        counts = torch.bincount(matrix.argmax(dim=1), minlength=300).double()
        return float(((counts - counts.mean()) / counts.std()).pow(3).mean())

    assert skewness(corrected) < skewness(scores) / 2


def test_extreme_scores_stay_finite():
    queries, bank = 1e4 * rows(8, 3).float(), 1e4 * rows(9, 3, seed=1).float()
    for dtype in (torch.float32, torch.bfloat16):
        for similarity in ("dot", "l2"):
            assert hub_bias(queries.to(dtype), bank.to(dtype), similarity, temperature=1e-3).isfinite().all()


@pytest.mark.parametrize("index", ["exact", "faiss:Flat"])
@pytest.mark.parametrize("similarity", ["cosine", "dot", "scaled_dot", "l2", "squared_l2"])
def test_corrected_indexes_find_the_best_of_score_and_bias(index, similarity):
    if index.startswith("faiss"):
        pytest.importorskip("faiss")
    queries, bank = rows(20, 5).float(), rows(200, 5, seed=1).float()
    bias = 2 * rows(200, seed=2).float()
    scores = resolve_similarity(similarity)(queries, bank) + bias
    names = np.arange(200) * 3 + 7
    expected = names[scores.topk(4).indices]
    plain = open_index(index, dim=5, similarity=similarity)
    plain.add(names, bank)
    for corrected in (
        Corrected(plain, bias, names),
        Corrected.build(bank, bias, names, similarity=similarity, index=index),
    ):
        hits = corrected.search(queries, 4)
        assert hits.ids.tolist() == expected.tolist()
        torch.testing.assert_close(hits.scores, scores.topk(4).values, rtol=1e-4, atol=1e-5)
        assert len(corrected) == 200
        first = torch.from_numpy(expected[:, 0])
        assert corrected.search(queries, 3, exclude=first).ids.tolist() == expected[:, 1:].tolist()


def test_milvus_serves_it(tmp_path):
    pytest.importorskip("milvus_lite")
    queries, bank = rows(5, 4).float(), rows(50, 4, seed=1).float()
    bias = rows(50, seed=2).float()
    name = f"milvus:{tmp_path / 'bank.db'}"
    corrected = Corrected.build(bank, bias, index=name)
    expected = (resolve_similarity("cosine")(queries, bank) + bias).topk(3).indices
    assert corrected.search(queries, 3).ids.tolist() == expected.tolist()
    corrected.index.drop()


def test_wrong_arguments_are_told():
    index = ExactIndex(2, "cosine")
    index.add([0, 1], torch.eye(2))
    with pytest.raises(ValueError, match=r"^bias: expected 3 finite numbers"):
        Corrected(index, torch.zeros(2), [0, 1, 2])
    with pytest.raises(ValueError, match=r"^bias: expected one for each row of the index, got none for 1"):
        Corrected(index, torch.zeros(1), [0]).search(torch.eye(2), 1)
    with pytest.raises(ValueError, match=r"^queries: expected a sample"):
        Corrected(index, torch.zeros(2), dynamic=True)
    with pytest.raises(ValueError, match=r"^queries: expected at least one"):
        hub_bias(torch.zeros(0, 2), torch.eye(2), temperature=1.0)
    with pytest.raises(ValueError, match=r"^temperature: "):
        hub_bias(torch.eye(2), torch.eye(2), temperature=0.0)
    with pytest.raises(ValueError, match=r"^vectors: expected a matrix \[3, 2\]"):
        Corrected.build(torch.eye(2), torch.zeros(3), [0, 1, 2])
