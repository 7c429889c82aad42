"""Defects that were measured in other libraries, each with a test that vicinal does not have it.

The one-line docstring of a test names the defect, and what was measured. ``THOROUGH`` names the tests elsewhere that
look at the same defect over every registered method; here each is shown once, on the case in which it was found.
"""

import ast
import io
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from references.memory import LargestTensor
from vicinal.clustering import neighbor_affinity, transductive
from vicinal.core import entries
from vicinal.factorization import low_rank
from vicinal.losses import CrossBatchBank, EmbeddingLoss, supcon
from vicinal.masks import sparsemax
from vicinal.similarity import FixedDimensionalEncoding
from vicinal.similarity.base import resolve_similarity

TESTS = Path(__file__).parent
THOROUGH = {
    "NT-Xent builds [positive pairs, negative pairs]": (
        "losses/test_pair_defects.py::test_nt_xent_keeps_no_matrix_of_positive_pairs_by_negatives"
    ),
    "NT-Xent saturates at hard pairs": (
        "losses/test_pair_defects.py::test_hard_pairs_of_nt_xent_keep_their_loss_and_gradient_at_low_temperature"
    ),
    "the mean is over what is not zero": (
        "losses/test_pair_defects.py::test_the_mean_of_supcon_is_that_of_rows_also_where_rows_are_zero"
    ),
    "numbers as labels are compared for equality": (
        "losses/test_pair_defects.py::test_numbers_as_labels_are_refused_by_losses_of_classes"
    ),
    "a bank loses its place": "losses/test_pair_defects.py::test_position_and_fill_of_a_bank_survive_a_checkpoint",
    "distances fail in bfloat16": (
        "losses/test_pair_defects.py::test_half_precision_embeddings_work_with_every_similarity"
    ),
    "a common offset hides neighbors": (
        "similarity/test_similarity.py::test_l2_finds_the_true_neighbors_of_data_with_an_offset"
    ),
    "the gradient of a root at 0": (
        "similarity/test_similarity.py::test_gradients_are_finite_at_coincident_and_zero_rows"
    ),
    "a row that is masked throughout": (
        "masks/test_simplex.py::test_a_row_closed_throughout_gets_weights_0_and_gradient_0"
    ),
    "cubic triplets": "losses/test_pair_defects.py::test_semi_hard_and_all_triplets_are_not_cubic",
    "NGAME: positives enter as negatives": (
        "losses/test_golden_sets.py::test_ngame_uses_no_related_column_where_there_are_too_few_unrelated_ones"
    ),
    "CollMetric: covariances are added with their sign": (
        "losses/test_clicks.py::test_covariances_are_squared_where_the_cml_code_adds_them_with_their_sign"
    ),
    "DLRM: ids are divided as float32": "encoders/test_id_tables.py::test_ids_beyond_2_to_the_24_are_told_apart",
    "PamC: an empty block divides by 0": "losses/test_set_losses.py::test_block_contrast_equals_numpy",
    "FastRP: an isolated node divides by 0": (
        "factorization/test_factorization.py::"
        "test_a_node_without_edges_has_the_zero_vector_where_the_public_code_divides_by_0"
    ),
    "MNAR: users without a relevant item divide 0 by 0, and its AP is no mean": (
        "losses/test_clicks.py::test_metrics_of_exposure_are_those_of_the_papers_code"
    ),
}
"""The variance of GBWBN at I before centering is one of a batch normalization, which is left out, as are the discount
of the MNAR code and the script of feature mimicking that cannot run; ``test_golden_inventory`` has the reasons."""


@pytest.mark.parametrize("place", THOROUGH.values(), ids=list(THOROUGH))
def test_the_thorough_test_is_still_there(place):
    file, _, name = place.partition("::")
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def embeddings(rows=32, dim=16, dtype=torch.float32, seed=0):
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def exact_neighbors(queries, bank, k):
    """Positions of the nearest rows by differences in float64."""
    distances = ((queries[:, None].astype(np.float64) - bank[None].astype(np.float64)) ** 2).sum(-1)
    return distances.argsort(axis=1, kind="stable")[:, :k]


def shifted(offset):
    rng = np.random.default_rng(0)
    return [(rng.normal(size=(rows, 32)) + offset).astype(np.float32) for rows in (2000, 64)]


def recall(found, true):
    return np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(np.asarray(found).tolist(), true, strict=True)])


def test_nt_xent_memory():
    """NT-Xent builds a [positive pairs, all negative pairs] matrix: 6.3 GiB at batch 512, over 12 GiB at 1024."""
    x, labels = embeddings(512, 8).requires_grad_(), torch.arange(512) // 32  # 15,872 positive pairs
    with LargestTensor() as seen:
        EmbeddingLoss("nt_xent")(x, labels).backward()
    assert seen.largest <= 2 * 512 * 512


@pytest.mark.parametrize(
    ("dtype", "temperature"), [(torch.float16, 0.07), (torch.float16, 0.001), (torch.float32, 0.01)]
)
def test_nt_xent_saturation(dtype, temperature):
    """NT-Xent takes the log of a ratio plus a tiny number: fp16 at 0.07 reads 4.926 for 5.896, at 0.001 gradient 0."""
    x, labels = embeddings(16, 8).to(dtype), torch.arange(8).repeat_interleave(2)
    leaf = x.clone().requires_grad_()
    value = EmbeddingLoss("nt_xent", temperature=temperature)(leaf, labels)
    value.backward()
    wide = x.double()  # the formula, in numpy's float64 and without the trick that hides the small terms
    unit = (wide / wide.norm(dim=-1, keepdim=True)).numpy()
    logits = unit @ unit.T / temperature
    terms = []
    for i in range(16):
        negatives = np.flatnonzero((labels != labels[i]).numpy())
        partner = i + 1 if i % 2 == 0 else i - 1
        row = np.concatenate([[logits[i, partner]], logits[i, negatives]])
        terms.append(row.max() + math.log(np.exp(row - row.max()).sum()) - row[0])
    assert value.item() == pytest.approx(np.mean(terms), rel=2e-3)
    assert leaf.grad.double().norm() > 1


def test_mean_over_what_is_not_zero():
    """The default reducer divides by the number of non-zero losses: SupCon at 0.01 reads 44.9, the mean is 39.3."""
    scores = torch.tensor([[9.0, 0, 0], [9.0, 0, 0], [0, 9.0, 0]], dtype=torch.float64)
    relation = torch.tensor([[1.0, 0, 0], [1.0, 0, 0], [1.0, 0, 0]], dtype=torch.float64)
    rows = supcon(scores, relation, temperature=0.01, reduction="none")
    assert rows.tolist() == [0.0, 0.0, pytest.approx(900)]
    assert float(supcon(scores, relation, temperature=0.01)) == pytest.approx(300)
    assert float(supcon(scores, relation, temperature=0.01, reduction="mean_nonzero")) == pytest.approx(900)


def test_numbers_as_labels():
    """Float labels are compared for equality and give loss 0 without a word (SupCon)."""
    with pytest.raises(TypeError, match="for labels that are numbers use a loss such as 'rank_n_contrast'"):
        EmbeddingLoss("supcon")(embeddings(), torch.rand(32))
    assert EmbeddingLoss("rank_n_contrast", similarity="l2")(embeddings(), torch.rand(32)) > 0


def test_bank_after_a_checkpoint():
    """Bank position and fill flag are lost on load_state_dict: pointer 48 becomes 0, so 48 stored rows are ignored."""
    first = EmbeddingLoss("supcon", bank=CrossBatchBank(64, 16))
    for seed in range(3):
        first(embeddings(16, seed=seed), torch.arange(16) // 4)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = EmbeddingLoss("supcon", bank=CrossBatchBank(64, 16))
    second.load_state_dict(torch.load(file, weights_only=True))
    assert (int(second.bank.pointer), len(second.bank)) == (48, 48)
    last = embeddings(16, seed=9), torch.arange(16) // 4
    assert torch.equal(second(*last), first(*last))


@pytest.mark.parametrize("name", ["triplet", "contrastive", "nca", "lifted_structure", "fast_ap", "ranked_list"])
def test_distances_in_bfloat16(name):
    """Lp-distance losses fail in bf16 on CPU: cdist is not implemented for BFloat16."""
    x = embeddings().bfloat16().requires_grad_()
    EmbeddingLoss(name, similarity="l2", normalize=True)(x, torch.arange(32) // 4).backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("offset", [0, 300, 3000])
def test_common_offset(offset):
    """The squared-distance trick loses neighbors: top-10 recall 0.914 at an offset of 300, 0.004 at 3000."""
    bank, queries = shifted(offset)
    true = exact_neighbors(queries, bank, 10)
    for name in ("l2", "squared_l2"):
        scores = resolve_similarity(name)(torch.from_numpy(queries), torch.from_numpy(bank))
        assert recall(scores.topk(10).indices, true) == 1


@pytest.mark.parametrize("offset", [0, 3000])
def test_common_offset_in_a_search(offset):
    """The same in the index that searches all rows."""
    index = pytest.importorskip("vicinal.index")
    bank, queries = shifted(offset)
    exact = index.ExactIndex(32)
    exact.add(np.arange(2000), bank)
    assert recall(exact.search(queries, 10).ids, exact_neighbors(queries, bank, 10)) == 1


def test_search_memory():
    """Exact search holds every distance at once: bad_alloc at 10,000 x 100,000 under 12 GiB."""
    index = pytest.importorskip("vicinal.index")
    exact = index.ExactIndex(8)
    exact.add(torch.arange(40_000), embeddings(40_000, 8))
    with LargestTensor() as seen:
        exact.search(embeddings(2000, 8, seed=1), 5)
    assert seen.largest <= 2000 * 40_000 // 8


class Products(TorchDispatchMode):
    """Counts what matrix products compute, and what else is as large."""

    def __init__(self):
        super().__init__()
        self.cells = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm, torch.ops.aten.baddbmm):
            self.cells += made.numel()
        return made


@pytest.mark.parametrize("queries", [1, 64, 512, 1024])
def test_search_by_matrix_products_at_any_number_of_queries(queries):
    """Flat search has a speed cliff: 512 queries take 3 times longer than 1,024, which go by another program."""
    index = pytest.importorskip("vicinal.index")
    exact = index.ExactIndex(16)
    exact.add(torch.arange(5000), embeddings(5000))
    with Products() as seen:
        exact.search(embeddings(queries, seed=1), 5)
    assert queries * 5000 <= seen.cells <= 2 * queries * 5000  # every score is in a product, few of them twice


def test_wholly_masked_row():
    """A wholly masked row makes sparsemax raise instead of giving zeros."""
    scores = torch.full((2, 5), -torch.inf)
    scores[0, :2] = 1.0
    scores.requires_grad_()
    weights = sparsemax(scores)
    assert weights.tolist() == [[0.5, 0.5, 0, 0, 0], [0.0] * 5]
    weights[:, 0].sum().backward()
    assert not scores.grad.isnan().any()


@pytest.mark.parametrize("entry", entries("similarity"), ids=lambda e: e.name)
def test_gradient_at_coincident_rows(entry):
    """The gradient of a square root at coincident points is NaN in any hand-written L2."""
    x = embeddings(4)
    x[1] = x[0]
    x.requires_grad_()
    entry.factory()(x, x).sum().backward()
    assert x.grad.isfinite().all()


def test_empty_buckets_take_the_nearest_bucket():
    """muvera-py inverts the Gray code wrongly: a point's own bucket is not at distance 0 from it."""
    encoding = FixedDimensionalEncoding(3, bits=3, repetitions=1)
    encoding.planes = torch.eye(3)[None]
    document = torch.tensor([[1.0, 2.0, 3.0], [-1.0, -2.0, -3.0]])
    buckets = encoding.documents(document[None]).reshape(8, 3)
    for number, bucket in enumerate(buckets):
        ones = number.bit_count()  # signs above 0, as those of the first element are
        torch.testing.assert_close(bucket, document[0 if ones >= 2 else 1])


def test_hub_corrections_read_the_queries_and_change_no_input():
    """db_norm of Better_Cross_Modal_Retrieval ignores its third argument, and its dynamic form overwrites its input."""
    index_room = pytest.importorskip("vicinal.index")
    gallery, bank, queries = embeddings(6), embeddings(5, seed=1), embeddings(4, seed=2)
    before = [each.clone() for each in (gallery, bank, queries)]
    index = index_room.ExactIndex(16, "dot")
    index.add(range(6), gallery)
    bias = index_room.hub_bias(bank, gallery, "dot", temperature=1.0)
    for dynamic in (False, True):
        corrected = index_room.Corrected(index, bias, dynamic=dynamic, queries=bank)
        found = [corrected.search(some, 6).ids for some in (queries, bank[:4])]
        assert not torch.equal(torch.as_tensor(found[0]), torch.as_tensor(found[1]))
    for each, copy in zip((gallery, bank, queries), before, strict=True):
        assert torch.equal(each, copy)


def test_affinities_are_made_symmetric():
    """LaplacianShot's affinity is not symmetric, so that its energy may rise though the paper says it never does."""
    rows = embeddings(30)
    affinity, unary = neighbor_affinity(rows, 2), embeddings(30, seed=1)[:, :3]
    dense = affinity.to_dense()
    assert not torch.equal(dense, dense.T)
    even = (dense + dense.T) / 2
    lowest = even - 2.01 * torch.linalg.eigvalsh(even)[0] * torch.eye(30)
    ours = transductive(unary, affinity, strength=2.0)
    torch.testing.assert_close(ours.shares, transductive(unary, even, strength=2.0, symmetric=False).shares)
    assert not torch.allclose(ours.shares, transductive(unary, affinity, strength=2.0, symmetric=False).shares)
    energies = transductive(unary, lowest, strength=2.0, tolerance=0.0).energies
    assert all(new <= old + 1e-4 for old, new in pairwise(energies))


def test_anchor_codes_and_layers_leave_their_inputs_as_they_are():
    """Anncur asserts a whole tensor, which cannot pass; the script of feature mimicking overwrites its running sums."""
    index_room = pytest.importorskip("vicinal.index")
    scores, table = embeddings(8), embeddings(12, seed=1)
    before = scores.clone(), table.clone()
    index_room.anchor_codes(scores[:4], torch.arange(4))
    first, again = (low_rank(table, 3, outputs=table, row_weight=torch.arange(1.0, 13)) for _ in range(2))
    assert torch.equal(scores, before[0])
    assert torch.equal(table, before[1])
    assert torch.equal(first.left, again.left)
