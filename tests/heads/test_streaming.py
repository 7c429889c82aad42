"""Streamed predictions are those of the dense head, in value and gradient, whatever the blocks."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from vicinal.blockwise import block_policy
from vicinal.core import entries
from vicinal.heads import NONA
from vicinal.heads.members import label_quantiles
from vicinal.masks import SoftStep, TopK

pytestmark = pytest.mark.sweep(6)

DIM = 3
SIMILARITIES = [entry.name for entry in entries("similarity")]
SIMPLEX = [entry.name for entry in entries("simplex")]
MASKS = {
    "none": lambda: None,
    "s1-all": lambda: SoftStep(DIM, "s1", "global", "all", eps=1e-4),
    "s1-admissible": lambda: SoftStep(DIM, "s1", eps=1e-4),
    "s2-all": lambda: SoftStep(DIM, "s2", "global", "all"),
    "s2-admissible": lambda: SoftStep(DIM, "s2"),
    "topk": lambda: TopK(3),
}
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4, torch.bfloat16: 1e-2}


def rows(seed, *shape, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def head(similarity="l2", mask="none", simplex="softmax", seed=0, dtype=torch.float64):
    """NONA with parameters drawn at random."""
    made = NONA(similarity, MASKS[mask](), simplex).to(dtype)
    with torch.no_grad():
        for number, parameter in enumerate(made.parameters()):
            parameter.copy_(rows(seed + number, *parameter.shape))
    return made


def streamed(made, chunk):
    """``made`` as a head that streams."""
    return NONA(made.similarity, made.mask, made.simplex, chunk_size=chunk)


def answers(call, made, inputs, keys, direction):
    """Prediction, and gradients of its product with ``direction``; 0 for what it does not depend on."""
    leaves = [value.clone().requires_grad_() for value in inputs]
    prediction = call(*leaves, **keys)
    asked = [*leaves, *made.parameters()]
    found = torch.autograd.grad((prediction * direction).sum(), asked, allow_unused=True)
    filled = [torch.zeros_like(of) if value is None else value for of, value in zip(asked, found, strict=True)]
    return [prediction.detach(), *filled]


def assert_equal(made, chunk, inputs, keys, direction, tolerance):
    dense = answers(made, made, inputs, keys, direction)
    ours = answers(streamed(made, chunk), made, inputs, keys, direction)
    for want, got in zip(dense, ours, strict=True):
        assert got.shape == want.shape
        assert got.dtype == want.dtype
        size = max(1.0, float(want.abs().max())) if want.numel() else 1.0
        torch.testing.assert_close(got, want, rtol=0, atol=tolerance * size)


@st.composite
def problems(draw):
    """Sizes, identities and settings of a head; bank rows repeat, and some queries are bank rows."""
    seed = draw(st.integers(0, 10_000))
    bank = draw(st.integers(2, 40))
    queries = draw(st.integers(1, 12))
    return {
        "seed": seed,
        "sizes": (queries, bank),
        "chunk": draw(st.sampled_from([1, 2, 7, 16, bank, bank + 9])),
        "targets": draw(st.sampled_from([(), (1,), (2,), (5,)])),
        "ids": draw(st.booleans()),
        "groups": draw(st.booleans()),
        "dtype": draw(st.sampled_from([torch.float64, torch.float64, torch.float32, torch.bfloat16])),
        "repeats": draw(st.booleans()),
        "offset": draw(st.sampled_from([0.0, 0.0, 30.0])),
    }


def drawn(problem, similarity):
    """Inputs, identities and the direction of the gradient for a problem."""
    (queries, bank), seed, dtype = problem["sizes"], problem["seed"], problem["dtype"]
    offset = problem["offset"] if similarity in ("l2", "squared_l2", "l1") and dtype != torch.bfloat16 else 0.0
    x = rows(seed, bank, DIM, dtype=dtype) + offset
    q = rows(seed + 1, queries, DIM, dtype=dtype) + offset
    if problem["repeats"]:
        q[: len(x[:queries]) // 2] = x[: len(x[:queries]) // 2]
    y = rows(seed + 2, bank, *problem["targets"], dtype=dtype)
    generator = torch.Generator().manual_seed(seed)
    keys = {}
    if problem["ids"]:
        keys |= {"query_ids": torch.arange(queries) * 2, "bank_ids": torch.arange(bank) * 2}
    if problem["groups"]:
        of_bank = torch.randint(0, 4, (bank,), generator=generator)
        of_bank[0], of_bank[1] = 4, 5  # every query has a row of another group, also without its own id
        of_queries = torch.randint(0, 4, (queries,), generator=generator)
        keys |= {"query_groups": of_queries, "bank_groups": of_bank}
    if "query_ids" in keys:
        keys["query_ids"] = keys["query_ids"].roll(1) if queries > 1 else keys["query_ids"] + 2
        keys["bank_ids"] = torch.where(keys["bank_ids"] == 0, -7, keys["bank_ids"])  # row 0 is open to all
    return (q, x, y), keys, rows(seed + 3, queries, *problem["targets"], dtype=dtype)


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("similarity", "mask", "simplex"), list(itertools.product(SIMILARITIES, MASKS, SIMPLEX)))
@settings(deadline=None, derandomize=True, max_examples=12)
@given(problem=problems())
def test_equals_the_dense_head(similarity, mask, simplex, problem):
    inputs, keys, direction = drawn(problem, similarity)
    made = head(similarity, mask, simplex, problem["seed"], problem["dtype"])
    if problem["dtype"] == torch.float64:
        assert_equal(made, problem["chunk"], inputs, keys, direction, TOLERANCE[torch.float64])
        return
    with torch.no_grad():
        want = made(*inputs, **keys)
        got = streamed(made, problem["chunk"])(*inputs, **keys)
    size = max(1.0, float(want.abs().max()))
    torch.testing.assert_close(got, want, rtol=0, atol=TOLERANCE[problem["dtype"]] * size)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_gradients_in_float32(similarity, mask):
    inputs = [value.float() for value in (rows(0, 9, DIM), rows(1, 50, DIM), rows(2, 50, 2))]
    assert_equal(head(similarity, mask, dtype=torch.float32), 16, inputs, {}, rows(3, 9, 2).float(), 1e-4)


@pytest.mark.parametrize("mask", MASKS)
def test_gradients_of_half_precision_inputs_are_computed_in_float32(mask):
    made = head(mask=mask, dtype=torch.float32)
    inputs = [value.bfloat16() for value in (rows(0, 9, DIM), rows(1, 50, DIM), rows(2, 50))]
    wide = answers(made, made, [value.float() for value in inputs], {}, rows(3, 9).float())
    ours = answers(streamed(made, 16), made, inputs, {}, rows(3, 9).float())
    for want, got in zip(wide, ours, strict=True):
        torch.testing.assert_close(got.float(), want, rtol=1e-2, atol=1e-4 if got.dtype == torch.float32 else 4e-3)


@pytest.mark.parametrize("simplex", SIMPLEX)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_ties_share_the_gradient(mask, simplex, chunk):
    """Small whole numbers: many rows are nearest or farthest together, to the last bit."""
    generator = torch.Generator().manual_seed(1)
    half = torch.randint(-1, 2, (12, DIM), generator=generator).double()
    bank = torch.cat([half, -half])  # their mean is 0, so no digit is lost on the way to a tie
    queries = torch.randint(-2, 3, (6, DIM), generator=generator).double()
    keys = {"query_ids": torch.arange(6), "bank_ids": torch.arange(24)}
    for similarity in ("l2", "l1", "dot"):
        made = head(similarity, mask, simplex)
        assert_equal(made, chunk, (queries, bank, rows(2, 24, 2)), keys, rows(3, 6, 2), 1e-6)


@pytest.mark.parametrize("simplex", SIMPLEX)
@pytest.mark.parametrize("mask", MASKS)
def test_flat_rows(mask, simplex):
    """All bank rows are one point, which is also a query."""
    bank = torch.full((10, DIM), 0.5, dtype=torch.float64)
    queries = torch.cat([bank[:1], rows(0, 2, DIM)])
    for similarity in ("l2", "dot", "cosine"):
        made = head(similarity, mask, simplex)
        assert_equal(made, 4, (queries, bank, rows(1, 10)), {}, rows(2, 3), 1e-6)


@pytest.mark.parametrize("extent", ["all", "admissible"])
@pytest.mark.parametrize("family", ["s1", "s2"])
def test_one_admissible_neighbor(family, extent):
    made = NONA(mask=SoftStep(DIM, family, extent=extent)).double()
    groups = torch.tensor([0, 0, 0, 0, 1])
    keys = {"query_groups": groups[:4], "bank_groups": groups}
    bank = rows(6, 5, DIM)
    assert_equal(made, 2, (bank[:4], bank, torch.arange(5.0).double()), keys, rows(0, 4), 1e-6)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("similarity", ["l2", "l1", "cosine"])
def test_gradcheck_with_self_masked(similarity, mask):
    made = head(similarity, mask, seed=3)
    ids = torch.arange(6)

    def predict(bank, labels):
        return streamed(made, 4)(bank, bank, labels, query_ids=ids, bank_ids=ids)

    assert torch.autograd.gradcheck(
        predict, (rows(4, 6, DIM).requires_grad_(), rows(5, 6, 2).requires_grad_()), nondet_tol=1e-12
    )


def test_close_rows_far_from_the_origin_keep_their_digits():
    """Two tight clusters far apart: distances inside one are lost by the expansion of squares."""
    bank = torch.cat([rows(0, 30, DIM), rows(1, 30, DIM) + 3000]).float()
    queries = bank[::7] + 0.01
    made = head(mask="s1-admissible", dtype=torch.float32)
    want = made.double()(queries.double(), bank.double(), rows(2, 60))
    got = streamed(made.float(), 16)(queries, bank, rows(2, 60).float())
    torch.testing.assert_close(got.double(), want, rtol=0, atol=1e-4)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("mask", ["s1-admissible", "topk"])
def test_a_bank_of_clusters_one_after_the_other(mask, similarity):
    """Whole blocks have no weight, and all of it lies in few of them."""
    centers = 10 * rows(0, 16, 1, DIM)
    bank = (centers + 0.3 * rows(1, 16, 64, DIM)).flatten(0, 1)
    queries = centers[::3, 0] + 0.3 * rows(2, 6, DIM)
    for simplex in SIMPLEX:
        assert_equal(head(similarity, mask, simplex), 32, (queries, bank, rows(3, len(bank))), {}, rows(4, 6), 1e-6)


def test_ties_with_the_kth_row_are_kept():
    bank = torch.arange(8.0)[:, None].repeat_interleave(50, dim=0) * 10
    labels = torch.arange(400.0)
    made = NONA(mask=TopK(3))
    got = streamed(made, 50)(torch.zeros(1, 1), bank, labels)
    torch.testing.assert_close(got, labels[:50].mean()[None])


class Bilinear(nn.Module):
    """A similarity of a user's own, with a parameter."""

    def __init__(self):
        super().__init__()
        self.metric = nn.Parameter(torch.eye(DIM, dtype=torch.float64) + 0.1 * rows(9, DIM, DIM))

    def forward(self, queries, bank):
        return queries @ self.metric @ bank.T


@pytest.mark.parametrize("mask", MASKS)
def test_a_similarity_of_ones_own_gets_its_gradient(mask):
    made = NONA(Bilinear(), MASKS[mask]()).double()
    assert_equal(made, 7, (rows(0, 5, DIM), rows(1, 20, DIM), rows(2, 20)), {}, rows(3, 5), 1e-6)


def test_a_query_without_a_neighbor_is_named():
    groups = torch.tensor([0, 1, 1])
    for mask in MASKS:
        with pytest.raises(ValueError, match=r"^bank: expected a row of another .* for query 1; give it"):
            streamed(head(mask=mask), 2)(
                rows(0, 3, DIM), rows(1, 2, DIM), rows(2, 2), query_groups=groups, bank_groups=groups[1:]
            )
    with pytest.raises(ValueError, match=r"^bank: expected at least one row, got an empty bank"):
        streamed(head(), 2)(rows(0, 3, DIM), rows(1, 0, DIM), rows(2, 0))


def test_no_queries_give_no_predictions():
    for labels in (torch.zeros(3), torch.zeros(3, 4)):
        got = NONA(chunk_size=2)(torch.zeros(0, 2), torch.zeros(3, 2), labels)
        assert got.shape == (0, *labels.shape[1:])


def test_the_head_streams_from_a_size_on_and_where_it_is_told_to(monkeypatch):
    calls = []

    by_blocks = NONA.attention

    def watched(head, *args):
        calls.append(head.chunk_size)
        return by_blocks(head, *args)

    monkeypatch.setattr(NONA, "attention", watched)
    queries, bank, labels = rows(0, 5, DIM), rows(1, 20, DIM), rows(2, 20)
    with block_policy(streamed_entries=100):
        want = NONA()(queries[:4], bank, labels)
        assert calls == []
        torch.testing.assert_close(NONA()(queries, bank, labels)[:4], want)
        torch.testing.assert_close(NONA(chunk_size=3)(queries[:4], bank, labels), want)
    assert calls == [None, 3]
    assert not NONA(simplex=lambda scores: scores.softmax(dim=-1)).can_stream


def test_settings_that_cannot_be_streamed_are_refused():
    with pytest.raises(ValueError, match=r"^chunk_size: expected None for a mask or simplex map of your own"):
        NONA(simplex=lambda scores: scores.softmax(dim=-1), chunk_size=8)
    with pytest.raises(ValueError, match=r"^chunk_size: expected None for a mask or simplex map of your own"):
        NONA(mask=nn.Identity(), chunk_size=8)
    with pytest.raises(ValueError, match=r"^head: expected a mask and a simplex map of this library .*, got Identity"):
        label_quantiles(NONA(mask=nn.Identity()), rows(0, 2, 3), rows(1, 4, 3), rows(2, 4), [0.5])
    with pytest.raises(ValueError, match=r"^chunk_size: expected a whole number of at least 1, got 0"):
        NONA(chunk_size=0)
    with pytest.raises(ValueError, match=r"^queries: expected \(2, 5\), got \(2, 3\)$"):
        NONA(mask=SoftStep(5), chunk_size=2)(torch.zeros(2, 3), torch.zeros(4, 3), torch.zeros(4))


def test_autocast_leaves_the_arithmetic_in_float32():
    inputs = rows(0, 4, DIM).float(), rows(1, 8, DIM).float(), rows(2, 8, 2).float()
    made = head(mask="s2-admissible", dtype=torch.float32)
    want = streamed(made, 3)(*inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = streamed(made, 3)(*inputs)
    assert torch.equal(got, want)


def test_a_bank_changed_before_the_backward_pass_is_noticed():
    bank = rows(1, 8, DIM)
    prediction = streamed(head(), 3)(rows(0, 4, DIM).requires_grad_(), bank, rows(2, 8))
    bank.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        prediction.sum().backward()


@pytest.mark.parametrize("simplex", SIMPLEX)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("k", [1, 4, 99])
def test_top_weights_are_those_of_the_dense_head(mask, simplex, k):
    queries, bank = rows(0, 7, DIM), rows(1, 30, DIM)
    bank[3] = queries[0]
    keys = {"query_ids": torch.arange(7), "bank_ids": torch.arange(30)}
    made = head("l2", mask, simplex)
    weights = made.weights(queries, bank, **keys).detach()
    made.chunk_size = 8
    values, positions = made.top_weights(queries, bank, k, **keys)
    assert values.shape == positions.shape == (7, min(k, 30))
    torch.testing.assert_close(values, weights.topk(min(k, 30)).values, rtol=0, atol=1e-9)
    assert ((positions == -1) == (values == 0)).all()
    torch.testing.assert_close(weights.gather(1, positions.clamp(min=0)) * (positions >= 0), values, rtol=0, atol=1e-9)
    dense = NONA("l2", made.mask, made.simplex).top_weights(queries, bank, k, **keys)
    assert torch.equal(dense[1], positions)
