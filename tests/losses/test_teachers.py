"""One test per promise of a loss of a teacher's scores, each over every registered one; and beside stored values."""

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from references import teachers as reference
from vicinal import losses
from vicinal.blockwise import block_policy
from vicinal.core import entries
from vicinal.losses import PredictionMemory, SelfDistillation, TrajectoryLoss, flops, grown, kl_top, teacher_ensemble
from vicinal.losses.contract import own_settings

GOLDEN = Path(__file__).parents[1] / "golden"
ENTRIES = entries("teacher_loss")
OF_ROWS = [entry for entry in ENTRIES if entry.name != "member_diversity"]  # which has one value for all rows
each = pytest.mark.parametrize("entry", OF_ROWS, ids=lambda e: e.name)
MANY = {
    "kl_top": [{"k": 3, "temperature": 2.0}, {"k": 1}],
    "ar2": [{"balance": 1.0, "floor": 1e-7}, {"balance": 0.0, "temperature": 3.0, "divisor": 4.0}],
    "sinkhorn_distillation": [{"softness": 0.02, "steps": 50}],
    "mixed_labels": [{"share": 0.0}, {"share": 1.0}],
}


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def batch(entry, b=6, classes=5):
    scores, teacher = 2 * normal(b, classes), 2 * normal(b, classes, seed=1)
    return scores, teacher, {"target": torch.arange(b) % classes} if entry.name == "mixed_labels" else {}


def part(entry, teacher, extra, rows):
    return teacher[rows], {k: v[rows] for k, v in extra.items()}


@each
def test_equals_numpy_reference(entry):
    scores, teacher, extra = batch(entry)
    teacher[..., 3] = teacher[..., 1]  # a tie
    for settings in [{}, *MANY.get(entry.name, [])]:
        got = entry.factory(scores, teacher, reduction="none", **extra, **settings)
        function = getattr(reference, entry.name)
        if entry.name == "sinkhorn_distillation":
            want = function(scores.numpy(), teacher.numpy(), **settings)
        else:
            rows = [part(entry, teacher, extra, i) for i in range(6)]
            given = [(t.numpy(), {k: v.numpy() for k, v in e.items()}) for t, e in rows]
            want = [function(s, t, **e, **settings) for s, (t, e) in zip(scores.numpy(), given, strict=True)]
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12, err_msg=str(settings))


@each
def test_gradcheck_and_none_for_the_teacher(entry):
    scores, teacher, extra = batch(entry)
    scores.requires_grad_(), teacher.requires_grad_()
    for settings in [{}, *MANY.get(entry.name, [])]:
        if settings.get("softness") == 0.02:
            continue  # the implicit gradient is that of a plan that has converged
        made = lambda s: entry.factory(s, teacher.detach(), **extra, **settings)  # noqa: B023
        tolerance = 1e-3 if entry.name == "sinkhorn_distillation" else 1e-5
        assert torch.autograd.gradcheck(made, (scores,), atol=tolerance, rtol=1e-3), settings
    entry.factory(scores, teacher, **extra).backward()
    assert teacher.grad is None


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_and_flat_rows_are_finite_and_half_is_computed_in_float32(entry, dtype):
    scores, teacher, extra = batch(entry)
    x = torch.zeros(6, 5, dtype=dtype)
    x[0, 0], x[1, 1], x[2, 3], x[3] = 1e4, -1e4, 1e4, 7.0
    strong = x.flip(1).expand_as(teacher)
    x.requires_grad_()
    value = entry.factory(x, strong, **extra)
    assert value.dtype == torch.float32
    assert value.isfinite()
    value.backward()
    assert x.grad.isfinite().all()
    half, of_teacher = scores.to(dtype), teacher.to(dtype)
    torch.testing.assert_close(
        entry.factory(half, of_teacher, **extra), entry.factory(half.float(), of_teacher.float(), **extra)
    )


@each
def test_one_row_no_rows_weights_and_reductions(entry):
    scores, teacher, extra = batch(entry)
    rows = entry.factory(scores, teacher, reduction="none", **extra)
    weight = torch.tensor([1.0, 0.0, 2.0, 0.5, 1.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(entry.factory(scores, teacher, **extra), rows.mean())
    torch.testing.assert_close(entry.factory(scores, teacher, reduction="sum", **extra), rows.sum())
    torch.testing.assert_close(entry.factory(scores, teacher, weight, **extra), (rows * weight).sum() / weight.sum())
    if entry.name != "sinkhorn_distillation":  # whose rows share a plan
        teacher_of_one, extra_of_one = part(entry, teacher, extra, slice(0, 1))
        torch.testing.assert_close(entry.factory(scores[:1], teacher_of_one, **extra_of_one), rows[0])
    nobody, extra = part(entry, teacher, extra, slice(0, 0))
    empty = scores[:0].clone().requires_grad_()
    value = entry.factory(empty, nobody, **extra)
    assert value == 0
    value.backward()


@each
def test_the_order_of_rows_changes_nothing_and_shifts_as_declared(entry):
    scores, teacher, extra = batch(entry)
    rows = entry.factory(scores, teacher, reduction="none", **extra)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    moved, extra_moved = part(entry, teacher, extra, order)
    torch.testing.assert_close(entry.factory(scores[order], moved, reduction="none", **extra_moved), rows[order])
    shifted = entry.factory(scores + 0.7, teacher, reduction="none", **extra)
    invariant = "score-shift-invariant" in entry.facts or entry.name == "sinkhorn_distillation"
    assert torch.allclose(shifted, rows) == invariant


@each
def test_errors_name_the_argument(entry):
    scores, teacher, extra = batch(entry)
    for call, sentence in [
        (lambda: entry.factory(scores, teacher[..., :3], **extra), "^teacher_scores: expected"),
        (lambda: entry.factory(scores.long(), teacher, **extra), "^scores: expected floating"),
        (lambda: entry.factory(scores, teacher, torch.ones(2), **extra), "^weight: expected"),
        (lambda: entry.factory(scores, teacher, reduction="men", **extra), "^reduction: expected"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            call()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
def test_it_tells_its_formula_paper_and_settings(entry):
    assert "$" not in entry.summary
    assert entry.paper
    assert entry.verified
    doc = inspect.getdoc(entry.factory)
    assert all(f"\n    {name}: " in doc for name in own_settings(entry.factory))
    assert ("econstructed" in doc) == ("reconstructed" in entry.verified)


def test_members_that_differ_from_those_before():
    scores, members = normal(6, 5).requires_grad_(), normal(3, 6, 5, seed=1)
    for strength in (0.0, 1.0, 40.0):
        value = losses.member_diversity(scores, members, strength=strength)
        want = reference.member_diversity(scores.detach().numpy(), members.numpy(), strength)
        np.testing.assert_allclose(value.detach(), want, rtol=1e-9)
    torch.testing.assert_close(
        losses.member_diversity(scores, members.flip(0)), losses.member_diversity(scores, members)
    )
    torch.testing.assert_close(
        losses.member_diversity(scores, members[0]), losses.member_diversity(scores, members[:1])
    )
    equal = losses.member_diversity(scores, scores.detach().expand(3, -1, -1))
    torch.testing.assert_close(equal, torch.tensor(3.0).double().log())
    assert losses.member_diversity(scores, members, strength=5.0) >= np.log(3) - 2 * 5 / 5
    assert torch.autograd.gradcheck(lambda s: losses.member_diversity(s, members), (scores,))
    weight = torch.tensor([1.0, 1, 0, 0, 1, 0])
    kept = [0, 1, 4]
    torch.testing.assert_close(
        losses.member_diversity(scores, members, weight), losses.member_diversity(scores[kept], members[:, kept])
    )
    far = (1e4 * scores.detach().float()).requires_grad_()
    losses.member_diversity(far, members).backward()
    assert far.grad.isfinite().all()
    for call, sentence in [
        (lambda: losses.member_diversity(scores, members[:0]), "^teacher_scores: expected at least one"),
        (lambda: losses.member_diversity(scores, members[:, :2]), "^teacher_scores: expected"),
        (lambda: losses.member_diversity(scores, members, strength=-1.0), "^strength: expected"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            call()


def test_of_duplicates_only_the_one_of_highest_score_is_worth_something():
    scores, teacher = normal(6, 5), 5 - normal(6, 5, seed=1).argsort(1).argsort(1).double()
    duplicates = torch.tensor(
        [[7, 7, -1, 2, 7], [1, 1, 1, 1, 1], [0, 1, 2, 3, 4], [-1] * 5, [3, 3, 4, 4, -1], [5, 0, 0, 0, 0]]
    )
    scores[4, 0] = scores[4, 1]  # of equal ones the first
    rows = losses.ranknet(scores, teacher, duplicates=duplicates, reduction="none")
    for got, s, t, d in zip(rows, scores.numpy(), teacher.numpy(), duplicates.numpy(), strict=True):
        np.testing.assert_allclose(got, reference.ranknet(s, t, d), rtol=1e-9)
    plain = losses.ranknet(scores, teacher, reduction="none")
    torch.testing.assert_close(rows[2:4], plain[2:4])  # nothing is twice
    assert not torch.isclose(rows[[0, 1, 4, 5]], plain[[0, 1, 4, 5]]).any()
    both = losses.ranknet(
        torch.tensor([[3.0, 2.0, 0.0]]), torch.tensor([[3.0, 2.0, 1.0]]), duplicates=torch.tensor([[1, 1, -1]])
    )
    third = losses.ranknet(torch.tensor([[3.0, 0.0, 2.0]]), torch.tensor([[3.0, 2.0, 1.0]]))
    torch.testing.assert_close(both, third)  # the copy stands where the last of the list did
    order = torch.tensor([3, 1, 4, 0, 2])
    moved = losses.ranknet(scores[:, order], teacher[:, order], duplicates=duplicates[:, order], reduction="none")
    torch.testing.assert_close(moved[:4], rows[:4])
    assert losses.ranknet(scores, torch.ones_like(teacher)) == 0
    with block_policy(block_entries=50):
        torch.testing.assert_close(losses.ranknet(scores, teacher, reduction="none"), plain)
    with pytest.raises(ValueError, match=r"^duplicates: expected integers \(6, 5\)"):
        losses.ranknet(scores, teacher, duplicates=scores)


# Stored values.


def same(value, x, want, grad):
    (slope,) = torch.autograd.grad(value, x)
    np.testing.assert_allclose(value.detach(), want, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(slope, grad, rtol=1e-9, atol=1e-9 * max(1e-6, np.abs(grad).max()))


@pytest.mark.parametrize("case", ["distill", "adversarial", "mixed", "scaled"])
def test_ar2_of_the_papers_code(case):
    """Whose first half is summed over rows, and whose second half is their mean."""
    with np.load(GOLDEN / "retrieval/ar2.npz") as data:
        x, g = (torch.from_numpy(data[key]) for key in ("retriever_scores", "ranker_scores"))
        x.requires_grad_()
        settings = {
            "temperature": float(data[f"{case}__temperature"]),
            "divisor": float(data[f"{case}__scale_dim"]) ** 0.5,
            "floor": 1e-7,
        }
        balance = float(data[f"{case}__adv_lambda"])
        found = losses.ar2(x, g, balance=1.0, reduction="sum", **settings)
        agreed = losses.ar2(x, g, balance=0.0, **settings)
        np.testing.assert_allclose(found.detach(), data[f"{case}__adv_loss"], rtol=1e-9)
        np.testing.assert_allclose(agreed.detach(), data[f"{case}__normal_loss"], rtol=1e-9)
        same(balance * found + (1 - balance) * agreed, x, data[f"{case}__loss"], data[f"{case}__grad_retriever"])


def test_ar2_agrees_where_it_is_the_ranker_and_is_supcon_with_its_relation():
    scores, g = normal(4, 6).requires_grad_(), normal(4, 6, seed=1)
    agreed = losses.ar2(scores, g, balance=0.0, temperature=2.0)
    torch.testing.assert_close(agreed, losses.supcon(scores, (g / 2).softmax(-1), temperature=1.0))
    at = (g / 2).clone().requires_grad_()
    losses.ar2(at, g, balance=0.0, temperature=2.0).backward()
    torch.testing.assert_close(at.grad, torch.zeros_like(at), atol=1e-12, rtol=0)
    every = losses.ar2(scores, g, reduction="none")
    mixed = [losses.ar2(scores, g, balance=b, reduction="none") for b in (0.0, 1.0)]
    torch.testing.assert_close(every, sum(mixed) / 2)


@pytest.mark.parametrize("case", "AB")
def test_sinkhorn_distillation_of_the_papers_code(case):
    with np.load(GOLDEN / "losses/sinkhorn_kd.npz") as data:
        x, g = (torch.from_numpy(data[f"{case}_{key}"]) for key in ("student", "teacher"))
        x.requires_grad_()
        value = 0.0008 * losses.sinkhorn_distillation(x, g, reduction="sum")
        same(value, x, data[f"{case}_loss"], data[f"{case}_grad"])


def test_sinkhorn_distillation_moves_rows_to_whichever_row():
    scores, g = 3 * normal(5, 4), 3 * normal(5, 4, seed=1)
    distill = losses.sinkhorn_distillation
    order = torch.tensor([2, 0, 4, 1, 3])
    torch.testing.assert_close(distill(scores[order], g, steps=200), distill(scores, g, steps=200))
    one = distill(scores[:1], g[:1])
    torch.testing.assert_close(one, ((scores[0] / 2).softmax(0) - (g[0] / 2).softmax(0)).abs().sum())
    assert distill(scores, scores) > 1e-3
    assert abs(distill(scores, scores, debiased=True)) < 1e-9
    assert distill(scores, g, debiased=True) > 0
    from scipy.optimize import linear_sum_assignment

    costs = torch.cdist((scores / 2).softmax(-1), (g / 2).softmax(-1), p=1)
    rows, columns = linear_sum_assignment(costs)
    best = costs[rows, columns].mean()
    torch.testing.assert_close(distill(scores, g, softness=2e-3, steps=20000), best, rtol=1e-3, atol=0)


def test_the_highest_classes_of_the_teacher():
    scores, g = normal(4, 6).requires_grad_(), normal(4, 6, seed=1)
    full = functional.kl_div(scores.log_softmax(-1), g.softmax(-1), reduction="batchmean")
    for k in (None, 6):
        torch.testing.assert_close(kl_top(scores, g, k=k), full)
    assert kl_top(scores, g, k=1) == 0
    assert abs(kl_top(g + 3, g, k=3)) < 1e-12
    value = kl_top(scores, g, k=3)
    (grad,) = torch.autograd.grad(value, scores)
    top = torch.zeros_like(g).scatter(1, g.topk(3).indices, 1.0)
    assert (grad[top == 0] == 0).all()
    np.testing.assert_allclose(grad.sum(1), 0, atol=1e-12)
    elsewhere = torch.where(top > 0, scores, 50.0)
    torch.testing.assert_close(kl_top(elsewhere, g, k=3), value)
    tied = torch.tensor([[1.0, 2.0, 1.0, 1.0]])
    x = torch.zeros(1, 4, requires_grad=True)
    (grad,) = torch.autograd.grad(kl_top(x, tied, k=2), x)
    assert (grad != 0).tolist() == [[True, True, False, False]]
    for k in (0, 7):
        with pytest.raises(ValueError, match=r"^k: expected a whole number"):
            kl_top(scores, g, k=k)


@pytest.mark.parametrize("case", "AB")
def test_trajectories_of_the_saf_code(case):
    with np.load(GOLDEN / "losses/saf_trajectory.npz") as data:
        x, past = (torch.from_numpy(data[f"{case}_{key}"]) for key in ("logits", "past_logits"))
        x.requires_grad_()
        same(0.16 * kl_top(x, past, temperature=5.0), x, data[f"{case}_loss"], data[f"{case}_grad"])
        loss, ids = TrajectoryLoss(9, x.shape[1], lag=2, start=0).double(), torch.arange(len(x)) + 1
        for epoch in (0, 1):
            assert loss(past, ids, epoch=epoch) == 0  # nothing was said before
        same(loss(x, ids, epoch=2), x, data[f"{case}_loss"], data[f"{case}_grad"])
        again = loss(past, ids, epoch=3)
        assert abs(again) < 1e-12
        late = TrajectoryLoss(9, x.shape[1], lag=1, start=5).double()
        assert late(past, ids, epoch=3) == 0
        assert late(x, ids, epoch=4) == 0
        assert late(past, ids, epoch=5) > (0 if case == "A" else -1)


def test_what_a_model_said_is_kept_by_row_and_in_checkpoints():
    memory = PredictionMemory(5, 2, lag=2)
    for epoch in range(5):
        for ids in (torch.tensor([4, 0]), torch.tensor([2])):  # batches in any order
            said = memory.exchange(ids, 10.0 * epoch + ids[:, None].float().expand(-1, 2), epoch)
            if epoch < 2:
                assert said.isnan().all()
            else:
                assert said[:, 0].tolist() == [10.0 * (epoch - 2) + i for i in ids.tolist()]
    assert memory.memory[:, [1, 3]].isnan().all()
    copy = PredictionMemory(5, 2, lag=2)
    copy.load_state_dict(memory.state_dict())
    torch.testing.assert_close(copy.memory, memory.memory, equal_nan=True)
    before = copy.memory.clone()
    copy.eval().exchange(torch.tensor([1]), torch.ones(1, 2), 0)
    torch.testing.assert_close(copy.memory, before, equal_nan=True)
    for call, sentence in [
        (lambda: memory.exchange(torch.tensor([5]), torch.ones(1, 2), 0), "^ids: expected numbers of rows, 0 to 4"),
        (lambda: memory.exchange(torch.tensor([1, 1]), torch.ones(2, 2), 0), "^ids: expected each row once"),
        (lambda: memory.exchange(torch.tensor([1]), torch.ones(1, 3), 0), r"^scores: expected \[1, 2\]"),
        (lambda: memory.exchange(torch.tensor([1]), torch.ones(1, 2), -1), "^epoch: expected"),
        (lambda: SelfDistillation(3, 2, 5, share=1.5), "^share: expected"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            call()


def test_self_distillation_begins_as_cross_entropy_and_trusts_its_past_more_and_more():
    loss, target, ids = SelfDistillation(6, 3, epochs=4).double(), torch.tensor([0, 2]), torch.tensor([5, 1])
    first, second = normal(2, 3), normal(2, 3, seed=1).requires_grad_()
    torch.testing.assert_close(loss(first, target, ids, epoch=0), functional.cross_entropy(first, target))
    value = loss(second, target, ids, epoch=1)
    share = 0.8 * 2 / 4
    labels = (1 - share) * functional.one_hot(target, 3) + share * first.softmax(-1)
    torch.testing.assert_close(value, functional.cross_entropy(second, labels))
    np.testing.assert_allclose(labels.sum(1), 1)
    (grad,) = torch.autograd.grad(value, second)
    torch.testing.assert_close(grad, ((second.softmax(-1) - labels) / 2).detach())
    plain = SelfDistillation(6, 3, epochs=4, share=0.0).double()
    for epoch in (0, 1):
        torch.testing.assert_close(plain(second, target, ids, epoch=epoch), functional.cross_entropy(second, target))


def test_teachers_on_scales_of_their_own():
    one, other = normal(3, 4), normal(3, 4, seed=1)
    for scaling in ("minmax", "z"):
        mixed = teacher_ensemble([one, other], [0.3, 0.7], scaling=scaling, scale=5.0)
        torch.testing.assert_close(
            teacher_ensemble([one, 90 * other - 4], [0.3, 0.7], scaling=scaling, scale=5.0), mixed
        )
        flat = teacher_ensemble([one, torch.full_like(one, 3.0)], [0.3, 0.7], scaling=scaling)
        torch.testing.assert_close(flat, 0.3 * teacher_ensemble([one], scaling=scaling))
    low, high = teacher_ensemble([one]).amin(1), teacher_ensemble([one]).amax(1)
    torch.testing.assert_close(torch.stack([low, high]), torch.tensor([[0.0], [1.0]]).double().expand(2, 3))
    for call, sentence in [
        (lambda: teacher_ensemble([]), "^teacher_scores: expected"),
        (lambda: teacher_ensemble([one], [1.0, 2.0]), "^weights: expected"),
        (lambda: teacher_ensemble([one], scaling="rank"), "^scaling: expected"),
        (lambda: teacher_ensemble([one, other[:2]]), "^teacher_scores: expected"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            call()


@pytest.mark.parametrize(
    ("case", "settings"), [("plain", {}), ("groups2", {"groups": 2}), ("l0_threshold4", {"least": 4})]
)
def test_flops_of_the_papers_code(case, settings):
    with np.load(GOLDEN / "retrieval/idf_flops.npz") as data:
        x = torch.from_numpy(data["doc_rep"]).requires_grad_()
        same(flops(x, **settings), x, data[f"{case}__loss"], data[f"{case}__grad"])
        idf = torch.from_numpy(data["idf"])
        torch.testing.assert_close(flops(x * idf, idf, **settings), flops(x, **settings))
        steps, value = int(data["lambda_T"]), float(data["lambda_value"])
        got = [grown(value, step, steps) for step in range(len(data["lambda_by_step"]))]
        np.testing.assert_allclose(got, data["lambda_by_step"], rtol=1e-9)
        q, d = (torch.from_numpy(data[f"loss_{key}"]) for key in "qd")
        q.requires_grad_()
        scores = (q[:, None] * d.view(3, 2, -1)).sum(-1)
        divergence = kl_top(scores, torch.from_numpy(data["teacher_scores"]), temperature=2.0) / 4
        same(divergence, q, data["kldiv__loss"], data["kldiv__grad_q"])


def test_flops_counts_rows_by_coordinate():
    x = normal(6, 4).requires_grad_()
    assert flops(0 * x) == 0
    assert flops(x[:0]) == 0
    torch.testing.assert_close(flops(3 * x), 9 * flops(x))
    assert torch.autograd.gradcheck(flops, (x,))
    torch.testing.assert_close(flops(x.bfloat16()), flops(x).float(), rtol=0.02, atol=0)
    for call, sentence in [
        (lambda: flops(x, torch.zeros(4)), "^idf: expected numbers above 0"),
        (lambda: flops(x, torch.ones(3)), "^idf: expected"),
        (lambda: flops(x, groups=4), "^groups: expected a divisor of 6 rows, got 4"),
        (lambda: grown(1.0, 0, 0), "^steps: expected"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            call()
