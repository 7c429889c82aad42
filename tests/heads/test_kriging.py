"""Kriging over the nearest rows: against a reference in numpy, and the promises of its weights."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import vicinal.heads.kriging_weights as kriging_module
from references.kriging import all_subsets, convex_weights, kernel_problem, signed_weights
from vicinal.blockwise import block_policy
from vicinal.blockwise.nearest import NearestRows
from vicinal.heads import Kriging
from vicinal.heads.admissible import Identity
from vicinal.heads.kriging_weights import kriging_weights
from vicinal.masks import sparsemax

FLOAT = torch.float64
GOLDEN = Path(__file__).parents[1] / "golden" / "kriging"


def drawn(seed, b=4, n=30, d=3):
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(b, d, generator=generator, dtype=FLOAT),
        torch.randn(n, d, generator=generator, dtype=FLOAT),
        torch.randn(n, generator=generator, dtype=FLOAT),
    )


def problem(seed, b, k, noise, d=3):
    """Matrices and vectors of some kriging problems."""
    queries, rows, _ = drawn(seed, b, b * k, d)
    rows = rows.reshape(b, k, d)
    between, near = torch.cdist(rows, rows), torch.cdist(queries[:, None], rows)[:, 0]
    return (-between).exp() + noise * torch.eye(k, dtype=FLOAT), (-near).exp()


def residual(matrix, vector, weights):
    """The largest violation of the conditions that only the solution meets."""
    gradient = (matrix @ weights[..., None])[..., 0] - vector
    inside = weights > 0
    multiplier = -(gradient * inside).sum(1, keepdim=True) / inside.sum(1, keepdim=True)
    slope = gradient + multiplier
    broken = torch.where(inside, slope.abs(), (-slope).clamp(min=0))
    return max(float(broken.max()), float((weights.sum(1) - 1).abs().max()), float((-weights).max()))


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.3, 10.0])
@pytest.mark.parametrize("convex", [True, False])
def test_agrees_with_the_reference(noise, convex):
    queries, bank, labels = drawn(1)
    head = Kriging(12, scale=0.7, noise=noise, convex=convex).double()
    got = head.local_weights(queries, bank)
    for row, query in enumerate(queries.numpy()):
        nearest = np.linalg.norm(bank.numpy() - query, axis=1).argsort()[:12]
        assert got.positions[row].tolist() == nearest.tolist()
        covariance, near = kernel_problem(query, bank.numpy()[nearest], 0.7)
        noise_used = max(noise, 1e-6) + 1e-6
        want = (convex_weights if convex else signed_weights)(covariance + noise_used * np.eye(12), near)
        np.testing.assert_allclose(got.weights[row].detach().numpy(), want, rtol=0, atol=1e-8)
        matrix = covariance + noise_used * np.eye(12)
        variance = 1 + noise_used - 2 * want @ near + want @ matrix @ want
        assert got.variance[row].item() == pytest.approx(variance, abs=1e-8)
        assert head(queries, bank, labels)[row].item() == pytest.approx(want @ labels.numpy()[nearest], abs=1e-8)


@pytest.mark.parametrize("convex", [True, False])
@pytest.mark.parametrize("origin", [0.0, 2.5])
def test_a_linear_part_is_added_to_the_kernel_wherever_its_origin_is(convex, origin):
    queries, bank, labels = drawn(3, d=5)
    head = Kriging(12, scale=0.9, noise=0.2, convex=convex, linear=2).double()
    got = head.local_weights(queries, bank)
    for row, query in enumerate(queries.numpy()):
        nearest = np.linalg.norm(bank.numpy() - query, axis=1).argsort()[:12]
        assert got.positions[row].tolist() == nearest.tolist()
        rows = bank.numpy()[nearest]
        covariance, near = kernel_problem(query[:3], rows[:, :3], 0.9)
        line, at = rows[:, 3:] - origin, query[3:] - origin
        matrix, vector = covariance + line @ line.T + (0.2 + 1e-6) * np.eye(12), near + line @ at
        want = (convex_weights if convex else signed_weights)(matrix, vector)
        np.testing.assert_allclose(got.weights[row].detach().numpy(), want, rtol=0, atol=1e-8)
        variance = 1 + at @ at + 0.2 + 1e-6 - 2 * want @ vector + want @ matrix @ want
        assert got.variance[row].item() == pytest.approx(variance, abs=1e-8)
        assert head(queries, bank, labels)[row].item() == pytest.approx(want @ labels.numpy()[nearest], abs=1e-8)


def test_the_gradient_reaches_the_linear_part():
    queries, bank, labels = drawn(4, b=2, n=6, d=3)
    head = Kriging(6, noise=0.2, convex=False, linear=1).double()

    def predict(first, second):
        return head(first, second, labels)

    assert torch.autograd.gradcheck(predict, (queries.requires_grad_(), bank.requires_grad_()))


def test_the_linear_part_is_told():
    assert "linear=2" in repr(Kriging(linear=2))
    assert "linear" not in repr(Kriging())
    with pytest.raises(ValueError, match=r"^linear: expected a whole number of at least 0, got -1"):
        Kriging(linear=-1)


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.npz")))
@pytest.mark.parametrize("kind", ["convex", "signed"])
def test_agrees_with_the_values_that_were_kept(name, kind):
    case = {key: torch.from_numpy(value) for key, value in np.load(GOLDEN / f"{name}.npz").items()}
    head = Kriging(int(case["k"]), scale=float(case["scale"]), noise=float(case["noise"]), convex=kind == "convex")
    queries, bank = case["queries"], case["bank"]
    bound = {"rtol": 0, "atol": 1e-9 / float(case["noise"])}
    torch.testing.assert_close(head.weights(queries, bank), case[f"{kind}_weights"], **bound)
    torch.testing.assert_close(head.local_weights(queries, bank).variance, case[f"{kind}_variance"], **bound)
    torch.testing.assert_close(head(queries, bank, case["labels"]), case[f"{kind}_prediction"], **bound)


@given(
    seed=st.integers(0, 10_000),
    k=st.integers(1, 40),
    noise=st.sampled_from([1e-6, 1e-3, 0.1, 1.0, 100.0]),
    d=st.integers(1, 8),
)
def test_the_conditions_of_the_solution_hold_to_1e_10(seed, k, noise, d):
    matrix, vector = problem(seed, 5, k, noise, d)
    weights, active = kriging_weights(matrix, vector)
    assert residual(matrix, vector, weights) < 1e-10 * max(1.0, noise)
    assert torch.equal(weights > 0, active)


@pytest.mark.parametrize("seed", range(8))
def test_of_all_sets_of_rows_it_takes_the_best(seed):
    matrix, vector = problem(seed, 6, 7, 0.05)
    weights, _ = kriging_weights(matrix, vector)
    for row in range(6):
        want = all_subsets(matrix[row].numpy(), vector[row].numpy())
        np.testing.assert_allclose(weights[row].numpy(), want, rtol=0, atol=1e-10)
        np.testing.assert_allclose(convex_weights(matrix[row].numpy(), vector[row].numpy()), want, rtol=0, atol=1e-10)


def test_where_exchanges_go_in_a_circle_one_row_at_a_time_gives_the_same(monkeypatch):
    matrix, vector = problem(3, 40, 25, 1e-3)
    want, _ = kriging_weights(matrix, vector)
    monkeypatch.setattr(kriging_module, "_PIVOTS", 0)
    got, _ = kriging_weights(matrix, vector)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
    monkeypatch.undo()
    monkeypatch.setattr(kriging_module, "_PATIENCE", 1)
    got, _ = kriging_weights(matrix, vector)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


def test_rows_that_are_not_allowed_are_as_if_they_were_not_there():
    matrix, vector = problem(4, 3, 10, 0.1)
    allowed = torch.rand(3, 10, generator=torch.Generator().manual_seed(0)) < 0.6
    for convex in (True, False):
        weights, _ = kriging_weights(matrix, vector, allowed, convex=convex)
        for row in range(3):
            some = allowed[row].nonzero()[:, 0]
            want, _ = kriging_weights(matrix[row][some][:, some][None], vector[row][some][None], convex=convex)
            torch.testing.assert_close(weights[row][some], want[0])
            assert not weights[row][~allowed[row]].any()


def test_without_covariance_and_noise_1_it_is_sparsemax():
    vector = torch.randn(50, 9, generator=torch.Generator().manual_seed(1), dtype=FLOAT)
    weights, _ = kriging_weights(torch.eye(9, dtype=FLOAT).expand(50, -1, -1), vector)
    torch.testing.assert_close(weights, sparsemax(vector), rtol=0, atol=1e-12)


@pytest.mark.parametrize("convex", [True, False])
def test_gradients_of_all_that_is_learned(convex):
    queries, bank, labels = drawn(5, b=3, n=9)
    head = Kriging(6, scale=1.3, noise=0.2, convex=convex).double()

    def predict(queries, bank, labels, log_scale, log_noise):
        parameters = {"log_scale": log_scale, "log_noise": log_noise}
        return torch.func.functional_call(head, parameters, (queries, bank, labels))

    inputs = (queries, bank, labels, head.log_scale.detach(), head.log_noise.detach())
    inputs = tuple(each.clone().requires_grad_() for each in inputs)
    assert torch.autograd.gradcheck(predict, inputs)
    if convex:
        assert torch.autograd.gradgradcheck(predict, inputs)


@given(
    seed=st.integers(0, 10_000), k=st.integers(1, 12), n=st.integers(1, 12), convex=st.booleans(), copies=st.booleans()
)
def test_weights_sum_to_1_whatever_the_rows(seed, k, n, convex, copies):
    queries, bank, labels = drawn(seed, n=n)
    if copies:
        bank, queries[0] = bank[:1].expand(n, -1).contiguous(), bank[0]
    head = Kriging(k, noise=0.05, convex=convex).double()
    weights = head.weights(queries, bank)
    torch.testing.assert_close(weights.sum(1), torch.ones(4, dtype=FLOAT), rtol=0, atol=1e-10)
    assert int((weights != 0).sum(1).max()) <= min(k, n)
    prediction = head(queries, bank, labels)
    torch.testing.assert_close(prediction, weights @ labels, rtol=0, atol=1e-10)
    if convex:
        assert (weights >= 0).all()
        assert (prediction >= labels.min() - 1e-12).all()
        assert (prediction <= labels.max() + 1e-12).all()


@pytest.mark.parametrize("targets", [(), (2,)])
def test_one_factor_gives_the_means_of_fewer_rows(targets):
    queries, bank, _ = drawn(3)
    labels, weight = torch.randn(30, *targets, dtype=FLOAT), torch.rand(30, dtype=FLOAT) + 0.5
    known = {
        "query_groups": torch.arange(4) // 3,
        "bank_groups": (torch.arange(30) >= 20).long(),
        "bank_weight": weight,
    }
    heads = {k: Kriging(k, noise=0.1, convex=False, linear=1).double() for k in (1, 7, 14)}
    positions = heads[14].nearest(queries, bank, Identity(**known))  # of the last query there are 10
    means = heads[14].means_of_first([*heads], queries, bank, labels, positions, weight)
    for one, head in zip(means, heads.values(), strict=True):
        torch.testing.assert_close(one, head(queries, bank, labels, **known).detach(), rtol=0, atol=1e-10)


def test_copies_of_a_row_share_the_weight_that_it_has_alone():
    queries, bank, _ = drawn(6, n=12)
    copied = torch.cat([bank, bank[:1].expand(4, -1)])
    for convex in (True, False):
        head = Kriging(20, noise=1e-9, convex=convex).double()
        alone = head.weights(queries, bank)
        weights = head.weights(queries, copied)
        shares = weights[:, [0, 12, 13, 14, 15]]
        torch.testing.assert_close(shares, shares[:, :1].expand(-1, 5), rtol=0, atol=1e-8)
        torch.testing.assert_close(shares.sum(1), alone[:, 0], rtol=0, atol=1e-3)


@pytest.mark.parametrize("away", [0.0, 1e7, 1e9])
def test_rows_far_from_the_query_are_as_far_from_each_other_as_they_are(away):
    """A wild cell in a query: rows that are near each other are told apart all the same, and have weights."""
    query, rows = np.array([-1.0]), np.array([[0.0], [0.125], [0.25], [0.25], [4.0]]) + away
    solved = Kriging(5, noise=0.03).local_weights(torch.from_numpy(query[None]), torch.from_numpy(rows))
    covariance, near = kernel_problem(query, rows[solved.positions[0].numpy()], 1.0)
    want = all_subsets(covariance + 0.030001 * np.eye(5), near)
    np.testing.assert_allclose(solved.weights[0].detach().numpy(), want, rtol=0, atol=1e-8)


def test_little_noise_gives_a_row_its_own_label_and_much_noise_the_mean_of_the_nearest():
    _, bank, labels = drawn(7)
    exact = Kriging(10, noise=0.0).double()
    torch.testing.assert_close(exact(bank.clone(), bank, labels), labels, rtol=0, atol=1e-3)
    queries = drawn(8)[0]
    mean = Kriging(10, noise=1e9).double()
    positions = mean.local_weights(queries, bank).positions
    torch.testing.assert_close(mean(queries, bank, labels), labels[positions].mean(1), rtol=0, atol=1e-6)
    torch.testing.assert_close(mean.local_weights(queries, bank).weights, torch.full((4, 10), 0.1, dtype=FLOAT))


def test_signed_weights_reach_beyond_the_labels():
    bank = torch.linspace(0, 3, 8, dtype=FLOAT)[:, None]
    query, labels = torch.tensor([[3.4]], dtype=FLOAT), 2 * bank[:, 0]
    convex, signed = (Kriging(8, scale=3.0, noise=0.0, convex=c).double() for c in (True, False))
    assert convex(query, bank, labels).item() <= 6.0
    assert signed(query, bank, labels).item() > 6.3


@pytest.mark.parametrize("convex", [True, False])
def test_ids_and_groups_are_as_if_those_rows_were_not_there(convex):
    _, bank, labels = drawn(9)
    head = Kriging(7, noise=0.05, convex=convex).double()
    ids, groups = torch.arange(30), torch.arange(30) % 4
    keys = {"query_ids": ids[:4], "bank_ids": ids, "query_groups": groups[:4], "bank_groups": groups}
    got = head(bank[:4].clone(), bank, labels, **keys)
    for row in range(4):
        rest = groups != groups[row]
        want = head(bank[row : row + 1].clone(), bank[rest], labels[rest])
        torch.testing.assert_close(got[row : row + 1], want)
        weights = head.weights(
            bank[row : row + 1].clone(),
            bank,
            **{name: (each[row : row + 1] if name.startswith("query") else each) for name, each in keys.items()},
        )
        assert not weights[0, ~rest].any()


def test_a_query_with_fewer_rows_than_k_takes_what_there_is_and_with_none_is_refused():
    queries, bank, labels = drawn(10, n=5)
    groups = torch.tensor([0, 0, 0, 0, 1])
    head = Kriging(4).double()
    got = head.local_weights(queries[:1], bank, query_groups=groups[:1], bank_groups=groups)
    assert got.positions.tolist() == [[4, -1, -1, -1]]
    assert got.weights.tolist() == [[1.0, 0.0, 0.0, 0.0]]
    assert head.top_weights(queries[:1], bank, 3, query_groups=groups[:1], bank_groups=groups)[1].tolist() == [
        [4, -1, -1]
    ]
    alone = {"query_groups": torch.zeros(4, dtype=torch.int64), "bank_groups": torch.zeros(5, dtype=torch.int64)}
    with pytest.raises(ValueError, match=r"^bank: expected a row of another id and group for every query, got none"):
        head(queries, bank, labels, **alone)
    with pytest.raises(ValueError, match=r"^bank: expected at least one row, got an empty bank"):
        head(queries, bank[:0], labels[:0])


def test_blocks_of_the_bank_and_of_queries_change_nothing():
    queries, bank, labels = drawn(11, b=40, n=700)
    head = Kriging(9).double()
    want = head(queries, bank, labels)
    with block_policy(attention_entries=1 << 10, query_rows=7, block_entries=200):
        torch.testing.assert_close(head(queries, bank, labels), want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precision_changes_little(dtype):
    queries, bank, labels = drawn(12, n=50)
    head = Kriging(16)
    want = head(queries.to(dtype).double(), bank.to(dtype).double(), labels.to(dtype).double())
    got = head(queries.to(dtype), bank.to(dtype), labels.to(dtype))
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), want, rtol=0, atol=8 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("factor", [1e-4, 1e4])
def test_units_do_not_matter_with_a_scale_in_them_nor_does_where_the_rows_lie(factor):
    queries, bank, labels = drawn(13)
    want = Kriging(8, scale=0.5).double()(queries, bank, labels)
    got = Kriging(8, scale=0.5 * factor).double()(factor * queries + 1e4, factor * bank + 1e4, labels)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5)


def test_no_queries_are_no_weights():
    queries, bank, labels = drawn(15)
    for convex in (True, False):
        head = Kriging(5, convex=convex)
        assert head(queries[:0], bank, labels).shape == (0,)
        assert head.weights(queries[:0], bank).shape == (0, 30)
        assert head.top_weights(queries[:0], bank, 3)[0].shape == (0, 3)
        assert kriging_weights(torch.zeros(0, 4, 4), torch.zeros(0, 4), convex=convex)[0].shape == (0, 4)


def test_a_matrix_that_is_not_positive_definite_has_no_weights():
    weights, _ = kriging_weights(torch.stack([-torch.eye(3), torch.eye(3)]).double(), torch.zeros(2, 3, dtype=FLOAT))
    assert weights[0].isnan().all()
    torch.testing.assert_close(weights[1], torch.full((3,), 1 / 3, dtype=FLOAT))


@given(seed=st.integers(0, 10_000), convex=st.booleans())
def test_turning_all_rows_changes_nothing(seed, convex):
    queries, bank, labels = drawn(seed)
    turn = torch.linalg.qr(drawn(seed + 1, b=3)[0]).Q
    head = Kriging(8, convex=convex)
    torch.testing.assert_close(head(queries @ turn, bank @ turn, labels), head(queries, bank, labels))


def test_classes_get_probabilities():
    queries, bank, labels = drawn(14)
    classes = torch.nn.functional.one_hot((labels > 0).long() + (labels > 1).long(), 3).double()
    got = Kriging(10).double()(queries, bank, classes)
    assert got.shape == (4, 3)
    assert (got >= 0).all()
    torch.testing.assert_close(got.sum(1), torch.ones(4, dtype=FLOAT))


@pytest.mark.slow
def test_it_can_be_trained():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(200, 2, generator=generator) * 6
    y = x[:, 0].sin()
    layer, head = torch.nn.Linear(2, 2), Kriging(16)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.3, 0.3], [-0.3, 1.0]]))
    ids = torch.arange(200)
    optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()], lr=0.03)
    errors = []
    for _ in range(40):
        rows = layer(x)
        error = (head(rows, rows, y, query_ids=ids, bank_ids=ids) - y).square().mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        errors.append(error.item())
    assert errors[-1] < 0.3 * errors[0]
    assert head.log_noise.item() < math.log(0.3)  # the labels have none


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"k": 0}, r"^k: expected a whole number of at least 1, got 0"),
        ({"scale": 0.0}, r"^scale: expected a number above 0, got 0"),
        ({"noise": -1.0}, r"^noise: expected a number of at least 0, got -1"),
    ],
)
def test_bad_settings_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Kriging(**wrong)


@given(seed=st.integers(0, 200), k=st.integers(1, 9))
def test_where_rows_stand_changes_nothing_that_ranks_decide(seed, k):
    """Rows on a small grid, so that many are equally near: the same rows by any order, with their ranks."""
    generator = torch.Generator().manual_seed(seed)
    bank = torch.randint(0, 3, (40, 2), generator=generator).double()
    queries = torch.randint(0, 3, (6, 2), generator=generator).double()
    groups = torch.randint(0, 4, (40,), generator=generator)
    who = torch.randint(0, 5, (6,), generator=generator)
    ranks, order = torch.randperm(40, generator=generator), torch.randperm(40, generator=generator)
    head = Kriging(k)
    plain = head.nearest(queries, bank, Identity(None, None, who, groups), ranks=ranks)
    moved = head.nearest(queries, bank[order], Identity(None, None, who, groups[order]), ranks=ranks[order])
    assert torch.equal(order[moved.clamp(min=0)].where(moved >= 0, -1), plain)
    for row in range(6):
        squared = (queries[row] - bank).square().sum(dim=1)
        there = [j for j in range(40) if groups[j] != who[row]]
        want = sorted(there, key=lambda j: (float(squared[j]), int(ranks[j])))[:k]
        assert plain[row][plain[row] >= 0].tolist() == want


def test_thousands_of_equally_near_rows_are_not_all_looked_at(monkeypatch):
    bank, widths = torch.zeros(5000, 2, dtype=FLOAT), []
    prepared = NearestRows(bank)
    search = prepared.search
    monkeypatch.setattr(prepared, "search", lambda q, b, k, e: widths.append(k) or search(q, b, k, e))
    ranks = torch.arange(5000).flip(0)
    at = Kriging(4).nearest(torch.ones(3, 2, dtype=FLOAT), bank, Identity(), prepared, ranks)
    assert at.shape == (3, 4)
    assert max(widths) <= 1024
    few = Kriging(4).nearest(
        torch.ones(3, 2, dtype=FLOAT), bank[:500], Identity(), NearestRows(bank[:500]), ranks[:500]
    )
    assert few[0].tolist() == [499, 498, 497, 496]  # those of lowest rank


def test_weights_that_exchanges_have_found_are_not_solved_for_again(monkeypatch):
    solved, solve = [], kriging_module._solved
    monkeypatch.setattr(
        kriging_module, "_solved", lambda matrix, sides: solved.append(len(matrix)) or solve(matrix, sides)
    )
    near = torch.tensor([[0.5, 0.5, 0.5], [0.9, 0.8, -2.0]], dtype=torch.float64)
    weights, active = kriging_weights(torch.eye(3, dtype=torch.float64).expand(2, 3, 3), near)
    assert solved == [2, 1]  # one has weight on all rows at once, the other on two of them
    assert active.tolist() == [[True] * 3, [True, True, False]]
    torch.testing.assert_close(weights, torch.tensor([[1 / 3] * 3, [0.55, 0.45, 0.0]], dtype=torch.float64))
