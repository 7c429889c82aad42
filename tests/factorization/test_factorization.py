"""Random projections of graphs, parts of rows, and layers of fewer parameters."""

import numpy as np
import pytest
import torch
from scipy import sparse

from references import factorization as reference
from vicinal.factorization import common_neighbors, fastrp, low_rank, semi_nmf

GRAPH = np.load("tests/golden/retrieval/fastrp.npz")
PARTS = np.load("tests/golden/retrieval/semi_nmf.npz")
FISHER = np.load("tests/golden/retrieval/fwsvd.npz")
TABLE = np.load("tests/golden/retrieval/pca_feature_mimicking.npz")


def of(values):
    return torch.from_numpy(np.asarray(values, dtype=float))


@pytest.mark.parametrize("case", ["adj", "trans", "trans_sparse", "star_trans"])
def test_vectors_of_a_graph_are_those_of_fastrp(case):
    """The public code standardizes the columns at the end, and its degrees have no power where alpha is none."""
    power = float(GRAPH[f"{case}__alpha"])
    settings = {"transition": str(GRAPH[f"{case}__input"]) == "trans", "degree_power": 0 if np.isnan(power) else power}
    graph, projection = (
        GRAPH["adj_star" if case == "star_trans" else "adj"],
        of(GRAPH[f"{case}__projection_unscaled"].T),
    )
    weights = GRAPH[f"{case}__weights"]
    for normalize, name in ((True, "merged_normalised"), (False, "merged_raw")):
        ours = fastrp(
            sparse.csr_array(graph), 5, weights=weights, normalize=normalize, projection=projection, **settings
        )
        np.testing.assert_allclose(
            (ours - ours.mean(0)) / ours.std(0, correction=0), GRAPH[f"{case}__{name}"], atol=1e-8
        )
    for k, powers in enumerate(GRAPH[f"{case}__powers"]):
        only = np.eye(k + 1)[k]
        ours = fastrp(graph, 5, weights=only, normalize=False, projection=projection, **settings)
        np.testing.assert_allclose(ours, powers, atol=1e-9)
    several = [
        fastrp(graph, 5, weights=np.eye(3)[k], normalize=False, projection=projection, **settings) for k in range(3)
    ]
    np.testing.assert_allclose(torch.cat(several, 1), GRAPH[f"{case}__concat"][:, :15], atol=1e-8)


def test_fastrp_equals_the_sum_of_powers_in_numpy_and_follows_its_nodes():
    graph, random = GRAPH["adj"], np.random.default_rng(0)
    projection, order = random.normal(size=(12, 4)), random.permutation(12)
    ours = fastrp(graph, 4, weights=[0.5, 0, 2], normalize=False, projection=of(projection))
    np.testing.assert_allclose(ours, reference.fastrp(graph, projection, [0.5, 0, 2], -0.5), atol=1e-10)
    moved = fastrp(graph[order][:, order], 4, projection=of(projection[order]))
    torch.testing.assert_close(moved, fastrp(graph, 4, projection=of(projection))[order])


def test_a_node_without_edges_has_the_zero_vector_where_the_public_code_divides_by_0():
    graph = np.zeros((4, 4))
    graph[0, 1] = graph[1, 0] = 1.0
    vectors = fastrp(graph, 64, generator=torch.Generator().manual_seed(0))
    assert not vectors[2:].any()
    assert vectors.isfinite().all()


def test_very_sparse_projections_have_unit_rows_on_average():
    chain = sparse.diags_array([np.ones(9999), np.ones(9999)], offsets=[-1, 1]).astype(np.float32)
    vectors = fastrp(chain, 32, weights=[1], transition=False, degree_power=0, normalize=False,
                     generator=torch.Generator().manual_seed(0))  # fmt: skip
    assert vectors.dtype == torch.float32
    assert float(vectors.square().sum(1).mean()) == pytest.approx(2, rel=0.1)  # of two neighbors


def test_inner_products_of_projections_are_those_of_the_powers_on_average():
    graph = GRAPH["adj"]
    degrees = graph.sum(1)
    powers = np.linalg.matrix_power(graph / degrees[:, None], 2) * degrees**-0.5
    draw = torch.Generator().manual_seed(0)
    vectors = fastrp(graph, 20_000, weights=[0, 1], normalize=False, generator=draw)
    np.testing.assert_allclose(vectors @ vectors.T, powers @ powers.T, atol=0.05 * float((powers @ powers.T).max()))


@pytest.mark.parametrize(
    ("graph", "settings", "sentence"),
    [
        (np.eye(3), {}, "adjacency: expected no node with an edge to itself, got node 0"),
        (-np.ones((3, 3)), {}, "adjacency: expected finite weights of at least 0"),
        (np.full((3, 3), np.nan), {}, "adjacency: expected finite weights of at least 0"),
        (np.ones((2, 3)), {}, r"adjacency: expected \[n, n\]"),
        (np.zeros((3, 3)), {"dim": 0}, "dim: expected a whole number of at least 1"),
        (np.zeros((3, 3)), {"weights": [0, 0]}, "weights: expected numbers, one other than 0"),
        (np.zeros((3, 3)), {"projection": torch.zeros(2, 4)}, r"projection: expected finite numbers \(3, 4\)"),
        (np.zeros((3, 3)), {"projection": torch.full((3, 4), torch.nan)}, "projection: expected finite numbers"),
    ],
)
def test_bad_graphs_are_told(graph, settings, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        fastrp(graph, **{"dim": 4, **settings})


@pytest.mark.parametrize("case", ["dense_1iter", "dense_50iter", "wta40_1iter", "wta40_30iter"])
def test_parts_are_those_of_the_semi_nmf_code(case):
    found = semi_nmf(
        of(PARTS["a"].T),
        3,
        share=float(PARTS[f"{case}__sparsity"]),
        steps=int(PARTS[f"{case}__iters"]),
        start=of(PARTS["init_g"]),
    )
    np.testing.assert_allclose(found.parts, PARTS[f"{case}__f"], atol=1e-7)
    np.testing.assert_allclose(found.weights, PARTS[f"{case}__g"], atol=1e-7)
    assert found.error == pytest.approx(float(PARTS[f"{case}__frob2"]), rel=1e-7)


def test_parts_rebuild_rows_made_of_parts_and_never_lose():
    random = np.random.default_rng(0)
    rows = of(random.random((40, 3)) @ random.normal(size=(3, 10)))
    errors = [semi_nmf(rows, 3, steps=steps, patience=10**6).error for steps in (1, 5, 30, 1000)]
    assert errors == sorted(errors, reverse=True)
    found = semi_nmf(rows, 3, steps=3000, patience=10**6, start=torch.Generator().manual_seed(0))
    assert found.error < 1e-3 * float(rows.square().sum())
    assert float(found.weights.min()) >= 0
    sparse_start = torch.ones(40, 3).double()
    sparse_start[5, 1] = 0
    assert semi_nmf(rows, 3, start=sparse_start).weights[5, 1] == 0
    kept = semi_nmf(rows, 3, share=0.35)
    assert ((kept.parts != 0).sum(0) == 4).all()
    assert kept.typical(2)[0, 0] == kept.weights[:, 0].argmax()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"rank": 4}, "rank: expected a whole number of at most 3"),
        ({"share": 0.0}, "share: expected a number above 0"),
        ({"share": 1.5}, "share: expected a number from 0 to 1"),
        ({"rows": torch.full((5, 3), torch.nan)}, "rows: expected finite floating numbers"),
        ({"start": -torch.ones(5, 2)}, "start: expected finite numbers of at least 0"),
        ({"start": "pca"}, "start: expected 'svd', a tensor or a generator, got 'pca'"),
    ],
)
def test_bad_parts_are_told(settings, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        semi_nmf(**{"rows": torch.ones(5, 3), "rank": 2, **settings})


@pytest.mark.parametrize("rank", [1, 2, 4])
@pytest.mark.filterwarnings("ignore:low_rank")
def test_products_are_those_of_fisher_weighted_and_plain_decompositions(rank):
    """The public code adds a ridge to the weights of rows, so that none is 0; ours needs none."""
    weight = of(FISHER["weight"])
    for name, fisher in (("fisher", FISHER["fisher"]), ("zero_row", FISHER["fisher_zero_row"])):
        share = of(fisher.sum(1)) + float(FISHER["ridge"])
        small = low_rank(weight, rank, row_weight=share)
        product = small.left @ small.right
        np.testing.assert_allclose(product, FISHER[f"{name}_rank{rank}__product"], atol=1e-8)
        lost = float((of(fisher.sum(1))[:, None] * (product - weight).square()).sum())
        assert lost == pytest.approx(float(FISHER[f"{name}_rank{rank}__weighted_err"]), abs=1e-6)
    plain = low_rank(weight, rank)
    np.testing.assert_allclose(plain.left @ plain.right, FISHER[f"plain_svd_rank{rank}__product"], atol=1e-9)


@pytest.mark.parametrize("rank", [1, 3, 6])
@pytest.mark.filterwarnings("ignore:low_rank")
def test_tables_are_those_of_feature_mimicking(rank):
    table, counts = of(TABLE["table"]), of(TABLE["counts"])
    small = low_rank(table, rank, outputs=table, row_weight=counts)
    rebuilt = small.left @ small.right + small.bias
    np.testing.assert_allclose(rebuilt, TABLE[f"k{rank}__reconstruction"], atol=1e-9)
    components = TABLE[f"k{rank}__components"]
    np.testing.assert_allclose(small.right.T @ small.right, components.T @ components, atol=1e-9)
    codes = (small.left - of(TABLE[f"k{rank}__mean"]) @ small.right.T) @ small.right
    np.testing.assert_allclose(codes, TABLE[f"k{rank}__codes"] @ components, atol=1e-9)
    lost = (counts / counts.sum() * (rebuilt - table).square().sum(1)).sum()
    assert float(lost) == pytest.approx(float(TABLE[f"k{rank}__weighted_sq_err"]), rel=1e-3, abs=1e-9)
    assert small.error == pytest.approx(1 - TABLE["explained_variance_ratio"][:rank].sum(), abs=1e-9)


def test_low_rank_equals_numpy_and_is_best_in_its_own_norm():
    random = np.random.default_rng(0)
    weight, share = random.normal(size=(20, 12)), random.random(20) ** 3
    share[4] = 0
    sample = np.sqrt(share)[:, None] * weight
    small = low_rank(of(weight), 3, row_weight=of(share))
    np.testing.assert_allclose(small.left @ small.right, weight @ reference.low_rank(sample, 3), atol=1e-9)
    assert (small.before, small.after) == (240, 96)

    def weighted(found):
        return float((of(share) * (found.left @ found.right - of(weight)).square().sum(1)).sum())

    assert weighted(small) < weighted(low_rank(of(weight), 3))
    assert small.error == pytest.approx(weighted(small) / (share @ np.sum(weight**2, 1)))
    scaled = low_rank(of(weight), 3, row_weight=of(7 * share))
    torch.testing.assert_close(scaled.left @ scaled.right, small.left @ small.right)


def test_a_layer_is_shortened_by_its_outputs_and_exact_where_these_have_the_rank():
    random = np.random.default_rng(0)
    weight, bias = of(random.normal(size=(12, 8))), of(random.normal(size=8))
    inputs = of(random.normal(size=(100, 3)) @ random.normal(size=(3, 12))) + 5
    outputs = inputs @ weight + bias
    small = low_rank(weight, 3, outputs=outputs, bias=bias)
    torch.testing.assert_close(inputs @ small.left @ small.right + small.bias, outputs)
    plain = low_rank(weight, 3, bias=bias)
    assert torch.equal(plain.bias, bias)
    assert float((inputs @ plain.left @ plain.right + bias - outputs).abs().max()) > 0.1
    half = low_rank(weight.bfloat16(), 3)
    assert half.left.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"rank": 5}, "rank: expected a whole number of at most 4"),
        ({"rank": 0}, "rank: expected a whole number of at least 1"),
        ({"weight": torch.full((6, 4), torch.nan)}, "weight: expected finite floating numbers"),
        ({"row_weight": torch.ones(5)}, "row_weight: expected one for each of 6 rows"),
        ({"row_weight": -torch.ones(6)}, "row_weight: expected finite numbers of at least 0"),
        ({"row_weight": torch.zeros(6)}, "row_weight: expected finite numbers of at least 0, and one above 0"),
        ({"outputs": torch.ones(7, 3)}, "outputs: expected rows of 4 numbers"),
        ({"outputs": torch.ones(1, 4), "rank": 2}, "outputs: expected at least 2 rows"),
        ({"bias": torch.ones(3)}, "bias: expected rows of 4 numbers"),
    ],
)
def test_bad_layers_are_told(settings, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        low_rank(**{"weight": torch.ones(6, 4), "rank": 1, **settings})


def test_a_rank_that_saves_nothing_is_warned_of():
    with pytest.warns(UserWarning, match=r"^low_rank: expected fewer parameters than 24, got 40; take a lower rank"):
        low_rank(torch.ones(6, 4), 4)


def test_common_neighbors_are_added_as_in_numpy_and_counted_by_ones():
    random = np.random.default_rng(0)
    half = np.triu(random.random((15, 15)) < 0.4, 1)
    graph, vectors = (half + half.T).astype(float), random.normal(size=(15, 3))
    pairs = np.array([(i, j) for i in range(15) for j in range(15) if i != j])
    want = np.array([(graph[i] * graph[j]) @ vectors for i, j in pairs])
    leaf = of(vectors).requires_grad_()
    ours = common_neighbors(leaf, sparse.csr_array(2.5 * graph), torch.from_numpy(pairs))
    np.testing.assert_allclose(ours.detach(), want, atol=1e-12)
    np.testing.assert_allclose(common_neighbors(leaf, graph, torch.from_numpy(pairs[:, ::-1].copy())).detach(), want)
    counts = common_neighbors(torch.ones(15, 1), graph, torch.from_numpy(pairs))
    np.testing.assert_array_equal(counts[:, 0], (graph @ graph)[pairs[:, 0], pairs[:, 1]])
    ours.sum().backward()
    np.testing.assert_allclose(leaf.grad[:, 0], sum(graph[i] * graph[j] for i, j in pairs))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"adjacency": np.triu(np.ones((3, 3)), 1)}, "adjacency: expected a symmetric matrix"),
        ({"vectors": torch.ones(4, 2)}, r"vectors: expected finite numbers \[3, d\]"),
        ({"vectors": torch.full((3, 2), torch.nan)}, r"vectors: expected finite numbers \[3, d\]"),
        ({"pairs": torch.tensor([[0, 3]])}, "pairs: expected nodes 0 to 2, got 0 to 3"),
        ({"pairs": torch.tensor([[1, 1]])}, "pairs: expected two different nodes"),
        ({"pairs": torch.ones(2, 2)}, r"pairs: expected whole numbers \[m, 2\]"),
    ],
)
def test_bad_pairs_of_nodes_are_told(settings, sentence):
    given = {"vectors": torch.ones(3, 2), "adjacency": 1 - np.eye(3), "pairs": torch.tensor([[0, 1]])}
    with pytest.raises(ValueError, match=f"^{sentence}"):
        common_neighbors(**{**given, **settings})


def test_small_rows_are_factored_as_well_as_large_ones():
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(60, 4, generator=draw).abs() @ torch.randn(4, 12, generator=draw)
    errors = [semi_nmf(scale * rows, 4).error / float((scale * rows).square().sum()) for scale in (1.0, 1e-4)]
    assert errors[1] < 2 * errors[0]
