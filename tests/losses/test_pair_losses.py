"""One test per promise of a pair loss, each over every registered one."""

import inspect

import numpy as np
import pytest
import torch

from references import listed_losses, set_losses
from references import pair_losses as reference
from references.memory import LargestTensor
from vicinal import losses
from vicinal.blockwise import block_policy
from vicinal.core import entries

pytestmark = pytest.mark.sweep(3)

ENTRIES = entries("pair_loss")
REDUCTIONS = ("mean", "sum", "none", "mean_nonzero")
REFERENCES = (reference, set_losses, listed_losses)
each = pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)


def those(fact, *, without=False):
    chosen = [entry for entry in ENTRIES if (fact in entry.facts) != without]
    return pytest.mark.parametrize("entry", chosen, ids=lambda e: e.name)


def hyper(entry):
    return {"per_class": 2} if "proxy-groups" in entry.facts else {}


def batch(entry, seed=0, n=8, *, plain=False):
    """Scores, relation and weight: a tie, a row without related columns, a column and the diagonal weighed out."""
    g = torch.Generator().manual_seed(seed)
    scores = torch.rand(n, n, generator=g, dtype=torch.float64) * 1.8 - 0.9
    scores[:, 6] = scores[:, 3]
    weight = (1 - torch.eye(n, dtype=torch.float64)) * torch.linspace(0.3, 1, n, dtype=torch.float64)
    if "number-relation" in entry.facts:
        scores = scores - 1
        labels = torch.randint(0, 5, (n,), generator=g).double()
        relation = -(labels[:, None] - labels).abs()
    elif "proxy-groups" in entry.facts:
        classes = torch.randint(0, n // 2, (n,), generator=g)
        relation = (classes[:, None] == torch.arange(n) // 2).double()
        weight = torch.ones(n, n, dtype=torch.float64)
        weight[:, 5] = weight[2, 6:] = 0.0
        return scores, relation, weight
    else:
        labels = torch.tensor([0, 0, 1, 1, 2, 3, 0, 1])
        relation = (labels[:, None] == labels).double()
    weight[:, 5] = 0.0
    if plain:
        weight = 1 - torch.eye(n, dtype=torch.float64)
    return scores, relation, weight


def soft(relation):
    """The relation with some of it made partial, alike in both directions."""
    share = torch.linspace(0.2, 0.9, len(relation), dtype=relation.dtype)
    return relation * (share[:, None] + share) / 2 + 0.1 * share[:, None] * share


def parts_of(entry, scores, relation, weight):
    """The parts of the loss by its numpy reference."""
    [function] = [getattr(module, entry.name) for module in REFERENCES if entry.name in vars(module)]
    return function(scores.numpy(), relation.numpy(), weight.numpy())


def run(entry, scores, relation, weight, **settings):
    return entry.factory(scores, relation, weight, **hyper(entry), **settings)


@each
def test_equals_numpy_reference(entry):
    for seed in range(3):
        scores, relation, weight = batch(entry, seed)
        parts = parts_of(entry, scores, relation, weight)
        for reduction in REDUCTIONS:
            got = run(entry, scores, relation, weight, reduction=reduction)
            counted = "mean" if (entry.name, reduction) == ("log_ratio", "mean_nonzero") else reduction
            want = reference.reduce(parts, counted)
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12, err_msg=reduction)


@those("soft-relation")
def test_soft_relations_equal_numpy_reference(entry):
    scores, relation, weight = batch(entry)
    parts = parts_of(entry, scores, soft(relation), weight)
    got = run(entry, scores, soft(relation), weight, reduction="none")
    np.testing.assert_allclose(got, reference.reduce(parts, "none"), rtol=1e-9, atol=1e-12)


def test_proxies_of_a_class_that_are_weighed_out_in_part_are_covered_by_the_reference():
    for entry in ENTRIES:
        if "proxy-groups" in entry.facts:
            _, _, weight = batch(entry)
            kept = weight.reshape(8, -1, 2).sum(-1)
            assert {0.0, 1.0, 2.0} == set(kept.unique().tolist())


@those("stopped-gradient", without=True)
@pytest.mark.parametrize("reduction", ["mean", "mean_nonzero"])
def test_gradcheck_with_an_empty_row_ties_and_a_column_weighed_out(entry, reduction):
    scores, relation, weight = batch(entry, 1)
    weight[4] = 0.0
    if entry.name in ("subcenter_arcface", "dynamic_soft_margin", "adore", "icnn"):  # steps at ties
        scores[:, 6] += 0.01
    scores.requires_grad_()
    fast = reduction != "mean"  # along one direction of the scores, where the other goes along each
    made = lambda s: run(entry, s, relation, weight, reduction=reduction)
    assert torch.autograd.gradcheck(made, (scores,), fast_mode=fast)


def test_few_stop_gradients_and_the_weights_of_circle_are_what_it_stops():
    stopped = {entry.name for entry in ENTRIES if "stopped-gradient" in entry.facts}
    assert stopped == {"circle", "focal_nt_xent", "dynamic_soft_margin"}  # the second: see test_set_losses
    scores = torch.tensor([[0.3, 0.2]], dtype=torch.float64, requires_grad=True)
    losses.circle(scores, torch.tensor([[1.0, 0.0]])).backward()
    pull, push = 80 * (1.4 - 0.3), 80 * (0.2 + 0.4)
    share = 1 / (1 + np.exp(-(push * (0.2 - 0.4) - pull * (0.3 - 0.6))))
    np.testing.assert_allclose(scores.grad, [[-pull * share, push * share]])


def test_the_share_of_smaller_gaps_is_a_weight_of_the_dynamic_margin():
    scores = torch.tensor([[0.5, -0.4, 0.0]], dtype=torch.float64, requires_grad=True)
    relation = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    losses.dynamic_soft_margin(scores, relation).backward()
    gaps = np.array([-0.9, -0.5])  # each spreads half of the mass over the two edges around it, 0.4 apart
    place = (gaps + 2) / 0.4
    low = np.floor(place).astype(int)
    mass = np.zeros(11)
    np.add.at(mass, low, (1 - (place - low)) / 2)
    np.add.at(mass, low + 1, (place - low) / 2)
    share = mass.cumsum()[low]
    np.testing.assert_allclose(scores.grad, [[-share.sum() / 2, share[0] / 2, share[1] / 2]], rtol=1e-12)


@each
def test_permutations(entry):
    scores, relation, weight = batch(entry)
    b, n = scores.shape
    g = torch.Generator().manual_seed(4)
    rows, columns = torch.randperm(b, generator=g), torch.randperm(n, generator=g)
    if "order-dependent" in entry.facts:
        rows, columns = torch.arange(b), torch.arange(n)
    if "square" in entry.facts:
        columns = rows
    if "proxy-groups" in entry.facts:
        columns = (torch.randperm(n // 2, generator=g)[:, None] * 2 + torch.arange(2)).flatten()
    got = run(entry, *(m[rows][:, columns] for m in (scores, relation, weight)), reduction="none")
    torch.testing.assert_close(got, run(entry, scores, relation, weight, reduction="none")[rows])
    got = run(entry, *(m[rows][:, columns] for m in (scores, relation, weight)))
    torch.testing.assert_close(got, run(entry, scores, relation, weight))


@each
def test_a_column_weighed_out_is_as_good_as_gone_whatever_its_score(entry):
    scores, relation, weight = batch(entry, plain=True)
    if "proxy-groups" in entry.facts:
        gone, kept = [4, 5], [0, 1, 2, 3, 6, 7]
    else:
        gone, kept = [5], [0, 1, 2, 3, 4, 6, 7]
    weight[:, gone] = 0.0
    rows = list(range(8))
    if "square" in entry.facts:
        rows, weight[gone] = kept, 0.0
    for filler in (torch.inf, torch.nan, -3.0):
        spoiled = scores.clone()
        if "square" not in entry.facts:
            spoiled[:, gone] = filler
        spoiled.requires_grad_()
        value = run(entry, spoiled, relation, weight)
        if "square" not in entry.facts:
            torch.testing.assert_close(
                value.detach(), run(entry, *(m[rows][:, kept] for m in (scores, relation, weight)))
            )
        value.backward()
        assert spoiled.grad.isfinite().all()
        assert (spoiled.grad[:, gone] == 0).all() or "square" in entry.facts


@those("score-shift-invariant")
def test_shift_of_scores(entry):
    scores, relation, weight = batch(entry)
    torch.testing.assert_close(run(entry, scores + 0.37, relation, weight), run(entry, scores, relation, weight))


@those("row-separable")
def test_rows_in_blocks_give_the_same(entry):
    scores, relation, weight = batch(entry)
    whole = run(entry, scores, relation, weight, reduction="none")
    blocks = [
        run(entry, *(m[start : start + 3] for m in (scores, relation, weight)), reduction="none") for start in (0, 3, 6)
    ]
    torch.testing.assert_close(torch.cat(blocks), whole)


@each
def test_row_separable_is_declared_by_exactly_those_that_are(entry):
    if "square" in entry.facts:
        return
    scores, relation, weight = batch(entry)
    leaf = scores.clone().requires_grad_()
    own = {"detach": False} if entry.name == "dynamic_soft_margin" else {}  # a weight of all rows, without gradient
    made = lambda s: run(entry, s, relation, weight, reduction="none", **own)
    jacobian = torch.autograd.functional.jacobian(made, leaf)
    across = jacobian.abs().sum(-1)
    apart = bool((across[~torch.eye(8, dtype=torch.bool)] == 0).all())
    assert apart == ("row-separable" in entry.facts or "order-dependent" in entry.facts)


@each
def test_smaller_blocks_of_triples_change_nothing(entry):
    scores, relation, weight = batch(entry)
    results = []
    for block in (1 << 22, 20):
        leaf = scores.clone().requires_grad_()
        with block_policy(memory_entries=block):
            value = run(entry, leaf, relation, weight)
            value.backward()
        results.append((value.detach(), leaf.grad))
    torch.testing.assert_close(results[0], results[1])


@each
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_under_autocast(entry, dtype):
    scores, relation, weight = batch(entry)
    low = scores.to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = run(entry, low, relation.to(dtype), weight.to(dtype))
    want = run(entry, low.float(), relation.to(dtype).float(), weight.to(dtype).float())
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, want, rtol=0.02, atol=1e-6)


@each
@pytest.mark.parametrize("size", [1e4, 1.0, 0.0])
def test_finite_for_large_scores_and_small_temperatures(entry, size):
    scores, relation, weight = batch(entry)
    settings = {"temperature": 0.01} if "temperature" in inspect.signature(entry.factory).parameters else {}
    leaf = (scores.float().sign() * size).requires_grad_()
    value = run(entry, leaf, relation.float(), weight.float(), **settings)
    value.backward()
    assert value.isfinite()
    assert leaf.grad.isfinite().all()


@each
@pytest.mark.parametrize("kind", ["nothing related", "all related", "nothing counts", "no columns"])
def test_batches_without_anything_to_learn_from(entry, kind):
    scores, relation, weight = batch(entry)
    if kind == "no columns":
        if "square" in entry.facts or "order-dependent" in entry.facts:
            return
        scores, relation, weight = (m[:, :0] for m in (scores, relation, weight))
    relation = relation * 0 if kind == "nothing related" else relation * 0 + 1 if kind == "all related" else relation
    weight = weight * 0 if kind == "nothing counts" else weight
    for reduction in REDUCTIONS:
        leaf = scores.clone().requires_grad_()
        value = run(entry, leaf, relation, weight, reduction=reduction)
        value.sum().backward()
        assert value.isfinite().all(), reduction
        assert leaf.grad.isfinite().all(), reduction
        if kind in ("nothing counts", "no columns"):
            assert (value == 0).all(), reduction


@each
def test_signature_is_that_of_the_contract(entry):
    parameters = list(inspect.signature(entry.factory).parameters.values())
    assert [p.name for p in parameters[:4]] == ["scores", "relation", "weight", "reduction"]
    assert parameters[2].default is None
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in parameters[3:])
    for parameter in parameters[:4]:
        assert f"            {parameter.name}: " in losses.PairLoss.__call__.__doc__, parameter.name
    for parameter in parameters[4:]:
        assert f"        {parameter.name}: " in entry.factory.__doc__, parameter.name
    assert entry.verified
    assert entry.paper


@each
def test_errors_name_the_argument(entry):
    scores, relation, weight = batch(entry)
    with pytest.raises(ValueError, match=r"^relation: expected \(8, 8\) as the scores, got \(8, 7\)$"):
        entry.factory(scores, relation[:, 1:])
    with pytest.raises(ValueError, match=r"^weight: expected"):
        entry.factory(scores, relation, weight[1:])
    with pytest.raises(ValueError, match=r"^reduction: expected one of .*did you mean 'mean'"):
        entry.factory(scores, relation, weight, reduction="means")
    with pytest.raises(TypeError, match=r"^scores: expected a floating dtype"):
        entry.factory(scores.long(), relation)
    if "temperature" in inspect.signature(entry.factory).parameters:
        with pytest.raises(ValueError, match=r"^temperature: expected a number above 0, got -1"):
            entry.factory(scores, relation, temperature=-1)


@each
def test_no_tensor_is_larger_than_a_few_matrices_of_scores(entry, monkeypatch):
    n = 48
    g = torch.Generator().manual_seed(0)
    classes = torch.arange(n) % 3  # 16 of a class: pairs x columns would be 15 matrices
    scores = torch.rand(n, n, generator=g).requires_grad_()
    relation = -(classes[:, None] - classes).abs().float()
    if "number-relation" not in entry.facts:
        relation = (relation == 0).float()
    settings = {"bins": 10} if "bins" in inspect.signature(entry.factory).parameters else {}
    with block_policy(memory_entries=n * n), LargestTensor() as seen:
        run(entry, scores, relation, 1 - torch.eye(n), **settings).backward()
    assert n * n <= seen.largest <= (6 if entry.name == "dynamic_soft_margin" else 2) * n * n


@pytest.mark.parametrize("kind", ["all", "hard", "semi-hard"])
@pytest.mark.parametrize("margin", [0.0, 0.4])
def test_triplets_that_are_chosen(kind, margin):
    [entry] = [entry for entry in ENTRIES if entry.name == "triplet"]
    scores, relation, weight = batch(entry)
    chosen = {
        "all": lambda own, other: True,
        "hard": lambda own, other: other >= own,
        "semi-hard": lambda own, other: own - margin < other < own,
    }[kind]
    want = reference.triplet(scores.numpy(), relation.numpy(), weight.numpy(), margin=margin, chosen=chosen)
    for reduction in REDUCTIONS:
        leaf = scores.clone().requires_grad_()
        got = losses.triplet(leaf, relation, weight, margin=margin, triplets=kind, reduction=reduction)
        np.testing.assert_allclose(got.detach(), reference.reduce(want, reduction), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["all", "hard", "semi-hard"])
def test_gradient_of_triplets_that_are_chosen(kind):
    [entry] = [entry for entry in ENTRIES if entry.name == "triplet"]
    scores, relation, weight = batch(entry, 1)
    scores[:, 6] += 0.0 if kind == "all" else 0.01  # hard triplets end, or begin, at ties
    assert torch.autograd.gradcheck(
        lambda s: losses.triplet(s, relation, weight, triplets=kind), (scores.requires_grad_(),)
    )


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("swap", [False, True])
def test_triplets_smooth_and_swapped(smooth, swap):
    [entry] = [entry for entry in ENTRIES if entry.name == "triplet"]
    scores, relation, weight = batch(entry)
    want = reference.triplet(scores.numpy(), relation.numpy(), weight.numpy(), smooth=smooth, swap=swap)
    for reduction in REDUCTIONS:
        got = losses.triplet(scores, relation, weight, smooth=smooth, swap=swap, reduction=reduction)
        np.testing.assert_allclose(got, reference.reduce(want, reduction), rtol=1e-9)
    if swap:
        with pytest.raises(ValueError, match=r"^scores: expected as many rows as columns"):
            losses.triplet(scores[:3], relation[:3], swap=True)


@pytest.mark.parametrize("variant", ["O", "Dq", "Iu", "Ib"])
def test_variants_of_pnp(variant):
    [entry] = [entry for entry in ENTRIES if entry.name == "pnp"]
    scores, relation, weight = batch(entry)
    want = reference.pnp(scores.numpy(), relation.numpy(), weight.numpy(), variant)
    got = losses.pnp(scores, relation, weight, variant=variant)
    np.testing.assert_allclose(got, reference.reduce(want, "mean"), rtol=1e-9)


@pytest.mark.parametrize("name", ["arcface", "sphereface", "large_margin_softmax", "subcenter_arcface"])
def test_margins_of_angles_fall_all_the_way(name):
    [entry] = [entry for entry in ENTRIES if entry.name == name]
    goal = torch.linspace(-1, 1, 201, dtype=torch.float64)
    scores = torch.stack([goal, torch.zeros_like(goal)], 1)
    relation = torch.tensor([[1.0, 0.0]]).expand(201, 2)
    values = entry.factory(scores, relation, reduction="none", scale=1.0)
    assert (values.diff() < 0).all()


def test_nothing_depends_on_the_default_dtype():
    torch.set_default_dtype(torch.float64)
    try:
        for entry in ENTRIES:
            scores, relation, weight = batch(entry)
            value = run(entry, scores.float(), relation, weight)
            assert value.dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own, while it traces
@each
def test_compiles_to_one_graph(entry):
    torch._dynamo.reset()
    scores, relation, weight = batch(entry)
    compiled = torch.compile(lambda *given: run(entry, *given), backend="eager", fullgraph=True)
    slopes = []
    for loss in (compiled, lambda *given: run(entry, *given)):
        leaf = scores.clone().requires_grad_()
        loss(leaf, relation, weight).backward()
        slopes.append(leaf.grad)
    torch.testing.assert_close(slopes[0], slopes[1])
