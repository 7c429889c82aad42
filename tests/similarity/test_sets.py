"""Scores of sets, and sets as one vector for search by inner products."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from references import sets as reference
from vicinal.blockwise.blocks import block_policy
from vicinal.similarity import Cosine, FixedDimensionalEncoding, SetScores

GOLDEN = Path(__file__).parents[1] / "golden/retrieval"
EXACT = {"rtol": 1e-9, "atol": 1e-9}
POOLS = ["max", "mean", "logsumexp", "noisy_or", "top_k", "attention"]
each = pytest.mark.parametrize("pool", POOLS)


def load():
    with np.load(GOLDEN / "muvera_fde.npz") as data:
        return {key: torch.from_numpy(data[key]) for key in data}


def bags(seed, b=3, n=5, d=4):
    generator = torch.Generator().manual_seed(seed)
    elements = torch.randn(b, n, d, generator=generator, dtype=torch.float64)
    sizes = torch.randint(1, n + 1, (b,), generator=generator)
    return elements, torch.arange(n) < sizes[:, None]


def items_of(seed, count=6, d=4):
    return torch.randn(count, d, generator=torch.Generator().manual_seed(seed + 99), dtype=torch.float64)


@each
@pytest.mark.parametrize("similarity", ["cosine", "dot", "l2"])
def test_scores_of_a_set_and_an_item_equal_numpy(pool, similarity):
    (elements, valid), items = bags(0), items_of(0)
    scores = SetScores(pool, similarity=similarity, sharpness=2.5, k=2, temperature=0.7)
    got = scores(elements, items, valid)
    for i, (bag, some) in enumerate(zip(elements, valid, strict=True)):
        for j, item in enumerate(items):
            known = bag[some]
            if pool == "attention":
                weights = np.exp((known @ item).numpy() / 0.7)
                mean = torch.from_numpy(weights / weights.sum()) @ known
                want = scores.similarity(mean[None], item[None]).item()
            else:
                want = reference.set_score(pool, scores.similarity(known, item[None])[:, 0].tolist(), 2.5, 2)
            assert got[i, j].item() == pytest.approx(want, rel=1e-10, abs=1e-12)


@each
@given(seed=st.integers(0, 10_000))
def test_order_and_padding_do_not_matter_and_one_element_is_itself(pool, seed):
    (elements, valid), items, scores = bags(seed), items_of(seed), SetScores(pool, k=2)
    first = scores(elements, items, valid)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(scores(elements[:, order], items, valid[:, order]), first)
    padded = torch.where(valid[..., None], elements, torch.nan)
    torch.testing.assert_close(scores(padded, items, valid), first)
    single = scores(elements[:, :1], items)
    alone = Cosine()(elements[:, 0], items)
    torch.testing.assert_close(single, alone.sigmoid() if pool == "noisy_or" else alone)
    twice = scores(elements.repeat(1, 2, 1), items, valid.repeat(1, 2))
    if pool == "noisy_or":
        assert (twice > first).all()
    elif pool != "top_k":
        torch.testing.assert_close(twice, first)
    if pool in ("max", "mean"):
        between = SetScores("logsumexp", sharpness=3.0)(elements, items, valid)
        assert ((between - first) * (1 if pool == "mean" else -1) >= -1e-12).all()


@each
def test_gradients_of_set_scores(pool):
    (elements, valid), items = bags(1), items_of(1)
    scores = SetScores(pool, similarity="dot", k=2)
    inputs = (elements.requires_grad_(), items.requires_grad_())
    assert torch.autograd.gradcheck(lambda x, y: scores(x, y, valid), inputs)
    scores(elements, items, valid).sum().backward()
    assert (elements.grad[~valid] == 0).all()


def test_limits_of_the_sharpness_and_of_the_temperature():
    (elements, valid), items = bags(2), items_of(2)
    means, most = SetScores("mean")(elements, items, valid), SetScores("max")(elements, items, valid)
    for sharpness, want in ((1e-6, means), (1e6, most)):
        got = SetScores("logsumexp", sharpness=sharpness)(elements, items, valid)
        torch.testing.assert_close(got, want, rtol=0, atol=1e-5)
    unit = torch.nn.functional.normalize(elements, dim=-1)
    cold = SetScores("attention", temperature=1e-4)(unit, items, valid)
    torch.testing.assert_close(cold, most)


def test_maxsim_equals_the_golden_values_and_numpy_in_any_blocks():
    data = load()
    scores = SetScores("max", similarity="dot")
    got = [scores.of_sets(data["query"][None], data[f"doc{i}"][None]).item() for i in range(3)]
    np.testing.assert_allclose(got, data["maxsim"], rtol=1e-9)
    (queries, asked), (bank, there) = bags(3), bags(4, b=7, n=6)
    want = [
        [reference.maxsim(q[m].numpy(), x[v].numpy()) for x, v in zip(bank, there, strict=True)]
        for q, m in zip(queries, asked, strict=True)
    ]
    for entries in (1, 200, 1 << 22):
        with block_policy(memory_entries=entries):
            got = scores.of_sets(queries, bank, asked, there)
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-10)
    mean = SetScores("max", similarity="dot", over="mean").of_sets(queries, bank, asked, there)
    torch.testing.assert_close(mean, got / asked.sum(1)[:, None])
    candidates = torch.tensor([[2, 5], [0, 6], [3, 3]])
    torch.testing.assert_close(scores.rescored(queries, bank, candidates, asked, there), got.gather(1, candidates))


def test_gradient_of_maxsim_in_blocks():
    (queries, asked), (bank, there) = bags(5), bags(6, b=4)
    scores = SetScores("max", similarity="dot")
    with block_policy(memory_entries=100):
        inputs = (queries.requires_grad_(), bank.requires_grad_())
        assert torch.autograd.gradcheck(lambda q, x: scores.of_sets(q, x, asked, there), inputs)


@pytest.mark.parametrize("case", ["identity", "projected", "no_hash", "many_reps"])
def test_fixed_dimensional_encodings_are_those_of_the_public_code(case):
    data = load()
    repetitions, signs = int(data[f"{case}__r_reps"]), data[f"{case}__sign_projection"].double()
    encoding = FixedDimensionalEncoding(
        6, bits=int(data[f"{case}__k_sim"]), repetitions=repetitions, projected=4 if case == "projected" else None
    )
    encoding.planes = data[f"{case}__simhash"]
    if case == "projected":
        encoding.signs = signs
    query = encoding.queries(data["query"][None])
    documents = torch.cat([encoding.documents(data[f"doc{i}"][None]) for i in range(3)])
    torch.testing.assert_close((query @ documents.T / repetitions)[0], data[f"{case}__scores_over_reps"], **EXACT)
    if case != "many_reps":
        torch.testing.assert_close(query[0], data[f"{case}__query_fde"], **EXACT)
        for i, document in enumerate(documents):
            torch.testing.assert_close(document, data[f"{case}__doc{i}_fde"], **EXACT)
        bare = encoding.documents(data["doc0"][None], fill=False)
        torch.testing.assert_close(bare[0], data[f"{case}__doc0_fde_nofill"], **EXACT)


@given(seed=st.integers(0, 10_000), bits=st.integers(0, 4))
def test_encodings_are_never_above_maxsim_and_exact_for_one_element(seed, bits):
    (queries, asked), (bank, there) = bags(seed), bags(seed + 1, b=6)
    encoding = FixedDimensionalEncoding(4, bits=bits, repetitions=3, seed=seed)
    with block_policy(memory_entries=500):
        found = encoding.queries(queries, asked) @ encoding.documents(bank, there).T / 3
    exact = SetScores("max", similarity="dot").of_sets(queries, bank, asked, there)
    assert (found <= exact + 1e-9).all()
    one = there.sum(1) == 1
    torch.testing.assert_close(found[:, one], exact[:, one])
    order = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(encoding.queries(queries[:, order], asked[:, order]), encoding.queries(queries, asked))
    bare = [encoding.documents(bank[:, o], there[:, o], fill=False) for o in (order, torch.arange(5))]
    torch.testing.assert_close(*bare)
    if bits == 0:
        sums = torch.where(asked[..., None], queries, 0.0).sum(1)
        means = torch.where(there[..., None], bank, 0.0).sum(1) / there.sum(1)[:, None]
        torch.testing.assert_close(found, sums @ means.T)


def test_a_projection_or_a_sketch_keeps_inner_products_on_average():
    (queries, asked), (bank, there) = bags(7, d=16), bags(8, b=4, d=16)
    plain = FixedDimensionalEncoding(16, bits=2, repetitions=4)
    want = plain.queries(queries, asked) @ plain.documents(bank, there).T
    for settings in ({"sketched": 128}, {"projected": 8}):
        mean = 0
        for seed in range(300):
            other = FixedDimensionalEncoding(16, bits=2, repetitions=4, seed=seed, **settings)
            other.planes = plain.planes
            assert other.queries(queries, asked).shape == (3, other.dim)
            mean = mean + other.queries(queries, asked) @ other.documents(bank, there).T / 300
        assert (mean - want).abs().max() < 0.12 * want.abs().max()
    same = FixedDimensionalEncoding(16, bits=2, repetitions=4)
    assert torch.equal(same.documents(bank, there), plain.documents(bank, there))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: SetScores("most"), "^pool: expected one of 'max'"),
        (lambda: SetScores("logsumexp", sharpness=0), "^sharpness: expected a number above 0"),
        (lambda: SetScores("top_k", k=0), "^k: expected a whole number of at least 1"),
        (lambda: SetScores()(torch.zeros(2, 4), items_of(0)), r"^elements: expected sets \[b, n, d\]"),
        (lambda: SetScores()(bags(0)[0], items_of(0), torch.ones(3, 4) > 0), r"^valid: expected booleans \(3, 5\)"),
        (lambda: SetScores()(bags(0)[0], items_of(0), torch.zeros(3, 5) > 0), "^elements: .*got none in row 0"),
        (lambda: SetScores().rescored(bags(0)[0], bags(1)[0], torch.zeros(2, 2).long()), "^candidates: expected int64"),
        (lambda: FixedDimensionalEncoding(4, bits=31), "^bits: expected a whole number of at most 30"),
        (lambda: FixedDimensionalEncoding(4, projected=5), "^projected: expected a whole number of at most 4"),
        (lambda: FixedDimensionalEncoding(4, bits=0, repetitions=1, sketched=5), "^sketched: expected a whole number"),
        (lambda: FixedDimensionalEncoding(3).queries(bags(0)[0]), r"^elements: expected \[b, n, 3\]"),
    ],
)
def test_what_does_not_fit_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_half_precision_is_scored_in_float32():
    (queries, asked), (bank, there) = bags(9), bags(10, b=4)
    scores = SetScores("max", similarity="dot")
    low = scores.of_sets(queries.bfloat16(), bank.bfloat16(), asked, there)
    assert low.dtype == torch.float32
    torch.testing.assert_close(low.double(), scores.of_sets(queries, bank, asked, there), rtol=0.05, atol=0.1)
    encoding = FixedDimensionalEncoding(4, bits=2, repetitions=2)
    assert encoding.documents((1e4 * bank).half(), there).isfinite().all()
    with pytest.raises(TypeError, match=r"^elements: expected a floating dtype"):
        encoding.queries(torch.zeros(1, 2, 4, dtype=torch.int64))
