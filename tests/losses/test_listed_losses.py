"""What the losses of recent papers promise beyond what every pair loss does."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from references import listed_losses as reference
from references.pair_losses import reduce
from vicinal import losses
from vicinal.losses import AdaptiveHeadsLoss, EmbeddingLoss, PairTemperature, ProxyLoss
from vicinal.losses.structured import FORMS, contrastive_form
from vicinal.relation import same_class
from vicinal.relation.pairs import other_rows
from vicinal.similarity import NegativeSquaredL2, class_means

REDUCTIONS = ("mean", "sum", "none", "mean_nonzero")


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def batch(seed=0, n=9):
    """Scores, relation and weight of a batch: a tie, a row without related columns, a column weighed out."""
    scores = torch.tanh(normal(seed, n, n))
    scores[:, 6] = scores[:, 3]
    labels = torch.tensor([0, 0, 1, 1, 2, 3, 0, 1, 3])[:n]
    weight = 1 - torch.eye(n, dtype=torch.float64)
    weight[:, 5] = 0.0
    return scores, same_class(labels, labels).double(), weight


def numbers(*tensors):
    return [each.numpy() for each in tensors]


# --- many label losses -------------------------------------------------------------------------------------------


def test_decoupled_softmax_of_one_related_column_is_cross_entropy():
    scores, target = normal(0, 5, 7), torch.tensor([3, 0, 6, 2, 2])
    relation = torch.nn.functional.one_hot(target, 7).double()
    want = torch.nn.functional.cross_entropy(scores, target)
    torch.testing.assert_close(losses.decoupled_softmax(scores, relation), want)
    torch.testing.assert_close(losses.summed_softmax(scores, relation), want)


def test_related_columns_do_not_compete_in_the_decoupled_softmax():
    scores, relation, weight = batch()
    apart = losses.decoupled_softmax(scores, relation, weight, reduction="none")
    together = losses.summed_softmax(scores, relation, weight, reduction="none")
    number = (relation * weight).sum(1)
    assert (apart <= together / number.clamp(min=1) + 1e-12).all()
    assert (apart < together / number.clamp(min=1))[number > 1].all()


@pytest.mark.parametrize("loss", [losses.decoupled_softmax, losses.summed_softmax, losses.soft_topk])
def test_rows_without_related_columns_are_left_out_and_such_without_others_are_0(loss):
    scores = normal(0, 3, 4)
    relation = torch.tensor([[1.0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]]).double()
    rows = loss(scores, relation, reduction="none")
    assert rows[1] == 0
    if loss is not losses.summed_softmax:
        assert rows[2] == 0
    torch.testing.assert_close(loss(scores, relation), (rows[0] + rows[2]) / 2)


# --- Metrix ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.parametrize("partial", [False, True])
def test_forms_of_metrix_equal_numpy(form, partial):
    scores, relation, weight = batch()
    if partial:
        relation = 0.1 + 0.7 * relation
    want = reference.metrix(*numbers(scores, relation, weight), form=form)
    for way in REDUCTIONS:
        got = losses.metrix(scores, relation, weight, form=form, reduction=way)
        np.testing.assert_allclose(got, reduce(want, way), rtol=1e-9)


@pytest.mark.parametrize("form", sorted(FORMS))
def test_gradient_of_the_forms_of_metrix(form):
    scores, relation, weight = batch()
    weight[4] = 0.0
    assert torch.autograd.gradcheck(
        lambda s: losses.metrix(s, 0.1 + 0.7 * relation, weight, form=form), (scores.requires_grad_(),)
    )


@pytest.mark.parametrize(
    ("form", "loss"),
    [
        ("multi_similarity", losses.multi_similarity),
        ("contrastive", losses.contrastive),
        ("proxy_anchor", losses.proxy_anchor),
    ],
)
def test_members_of_metrix_are_the_losses_of_that_name(form, loss):
    scores, relation, weight = batch()
    for shares in (relation, 0.1 + 0.7 * relation):
        got = losses.metrix(scores, shares, weight, form=form, reduction="none")
        torch.testing.assert_close(got, loss(scores, shares, weight, reduction="none"))


def test_a_form_of_ones_own():
    scores, relation, weight = batch()
    form = replace(contrastive_form(0.8, 0.1), finish=torch.log1p, finish_related=lambda total: 3 * total)
    got = losses.metrix(scores, relation, weight, form=form, reduction="none")
    p, n = weight * relation, weight * (1 - relation)
    want = torch.log1p(3 * (p * (0.8 - scores).relu()).sum(1) + (n * (scores - 0.1).relu()).sum(1))
    torch.testing.assert_close(got, want)
    with pytest.raises(ValueError, match=r"^form: expected one of .*did you mean 'contrastive'"):
        losses.metrix(scores, relation, form="contrastiv")
    with pytest.raises(TypeError, match=r"^form: expected a name or a PairForm, got 3"):
        losses.metrix(scores, relation, form=3)


# --- prototypes --------------------------------------------------------------------------------------------------


def episode(seed=0):
    """Queries and support rows of three classes, in numbers of one and of three rows a class."""
    support, queries = normal(seed, 9, 4), normal(seed + 1, 6, 4)
    return support, torch.arange(9) % 3, queries, torch.arange(6) % 3


def proto(queries, labels, means, **settings):
    criterion = EmbeddingLoss("proto_triplet", similarity="squared_l2", **settings)
    return criterion(queries, labels, means, torch.arange(len(means)))


@pytest.mark.parametrize(("wrong", "triplets"), [("nearest", "batch-hard"), ("all", "all")])
def test_proto_triplet_of_one_support_row_a_class_is_the_triplet_loss(wrong, triplets):
    support, labels, queries, wanted = episode()
    scores = NegativeSquaredL2()(queries, support[:3])
    want = losses.triplet(scores, same_class(wanted, labels[:3]), margin=0.7, triplets=triplets)
    got = proto(queries, wanted, class_means(support[:3], labels[:3]), margin=0.7, wrong=wrong)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("wrong", ["nearest", "all"])
def test_proto_triplet(wrong):
    support, labels, queries, wanted = episode()
    value = proto(queries, wanted, class_means(support, labels), wrong=wrong)
    means = np.stack([support[labels == k].mean(0).numpy() for k in range(3)])
    terms = []
    for query, label in zip(queries.numpy(), wanted.tolist(), strict=True):
        apart = ((query - means) ** 2).sum(1)
        others = [max(0.0, apart[label] - apart[k] + 1) for k in range(3) if k != label]
        terms.append(max(others) if wrong == "nearest" else np.mean(others))
    assert value.item() == pytest.approx(np.mean(terms), rel=1e-9)
    turn = torch.linalg.qr(normal(7, 4, 4)).Q
    moved = [rows @ turn + 3.0 for rows in (support, queries)]
    torch.testing.assert_close(proto(moved[1], wanted, class_means(moved[0], labels), wrong=wrong), value)
    names = torch.tensor([2, 0, 1])
    torch.testing.assert_close(proto(queries, names[wanted], class_means(support, names[labels]), wrong=wrong), value)
    near = class_means(support, labels)[wanted] + 1e-3 * queries
    assert proto(near, wanted, 10 * class_means(support, labels), wrong=wrong) >= 0
    far = 10 * class_means(support, labels)
    assert proto(far[wanted] + 1e-3 * queries, wanted, far, wrong=wrong) == 0
    assert torch.autograd.gradcheck(
        lambda q, s: proto(q, wanted, class_means(s, labels), wrong=wrong),
        (queries.clone().requires_grad_(), support.clone().requires_grad_()),
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_proto_triplet_with_all_wrong_prototypes_equals_numpy(reduction):
    for seed in range(3):
        scores, relation, weight = batch(seed)
        weight = weight * torch.linspace(0.3, 1, 9, dtype=torch.float64)
        want = reference.proto_triplet(*numbers(scores, relation, weight), wrong="all")
        got = losses.proto_triplet(scores, relation, weight, wrong="all", reduction=reduction)
        if reduction != "mean_nonzero":  # exact zeros of sums by sorting may be 1e-17
            np.testing.assert_allclose(got, reduce(want, reduction), rtol=1e-9)


@pytest.mark.parametrize("level", [0.0, 1e3, -1e6, 1e7])
@pytest.mark.parametrize("spread", [1.0, 30.0, 1e5])
def test_proto_triplet_keeps_its_digits_at_any_level_of_the_scores(level, spread):
    """Squared distances to far classes are large; what counts are their differences, which float32 holds."""
    scores, relation, weight = batch(1)
    unit = 2.0 ** np.floor(np.log2(max(abs(level), spread) * 2.0**-22))  # so that float32 holds every score
    scores = ((spread * scores / unit).round() * unit + level).requires_grad_()
    narrow = scores.detach().float().requires_grad_()
    assert torch.equal(narrow.double(), scores)
    for margin in (0.3, 1.0, 0.1 * spread):
        want = losses.proto_triplet(scores - level, relation, weight, wrong="all", margin=margin, reduction="none")
        got = losses.proto_triplet(narrow, relation, weight, wrong="all", margin=margin, reduction="none")
        np.testing.assert_allclose(got.detach(), want.detach(), rtol=2e-6, atol=1e-6 * margin)
        slopes = (torch.autograd.grad(each.sum(), leaf)[0] for each, leaf in ((got, narrow), (want, scores)))
        np.testing.assert_allclose(*slopes, rtol=1e-5, atol=1e-6)


def test_prototypes_refuse_what_does_not_fit():
    support, labels, _, _ = episode()
    for call, sentence in [
        (lambda: class_means(support, labels, 4), "^labels: expected a row of every class, got none of class 3"),
        (lambda: class_means(support, labels * 0), "^num_classes: expected at least two classes, got 1"),
        (lambda: class_means(support, labels, 2), "^labels: expected classes 0 to 1"),
        (lambda: class_means(support / 0, labels), "^embeddings: expected finite numbers"),
        (lambda: class_means(support, labels[:2]), r"^labels: expected whole numbers \[9\]"),
        (lambda: losses.proto_triplet(support, support, margin=-1), "^margin: expected a number of at least 0"),
        (lambda: losses.proto_triplet(support, support, wrong="most"), "^wrong: expected one of"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            call()


# --- ICNN --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("powers", [(1, 1, 1), (2, 0.5, 3), (0, 1, 0)])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_icnn_equals_numpy(powers, reduction):
    scores, relation, weight = batch()
    weight = weight * torch.linspace(0.3, 1, 9, dtype=torch.float64)
    want = reference.icnn(*numbers(scores, relation, weight), k=3, powers=powers, best=1.0)
    names = ("ratio_power", "spread_power", "share_power")
    settings = dict(zip(names, powers, strict=True))
    got = losses.icnn(scores, relation, weight, k=3, best=1.0, reduction=reduction, **settings)
    np.testing.assert_allclose(got, reduce(want, reduction), rtol=1e-9, atol=1e-12)


def test_gradient_of_icnn_without_its_powers():
    scores, relation, weight = batch()
    leaf = (scores - 1).requires_grad_()
    losses.icnn(leaf, relation, weight, k=8, ratio_power=0, spread_power=0).backward()
    assert (leaf.grad == 0).all()  # the share alone passes no gradient


def test_icnn_refuses_what_does_not_fit():
    x = normal(0, 6, 3)
    with pytest.raises(ValueError, match=r"^ratio_power: expected a number of at least 0"):
        losses.icnn(x, x, ratio_power=-1)


# --- thresholds --------------------------------------------------------------------------------------------------


def test_tcm_is_0_where_all_pairs_keep_their_margin_and_else_has_equal_slopes():
    scores = torch.tensor([[0.95, 0.91, 0.4, -0.9]], dtype=torch.float64)
    relation = torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    assert losses.tcm(scores, relation) == 0
    hard = torch.tensor([[0.5, 0.6, 0.7, -0.9]], dtype=torch.float64, requires_grad=True)
    losses.tcm(hard, relation, pos_factor=3.0, neg_factor=0.5).backward()
    torch.testing.assert_close(hard.grad, torch.tensor([[-1.5, -1.5, 0.5, 0.0]], dtype=torch.float64))
    value = losses.tcm(hard, relation, pos_factor=0)
    torch.testing.assert_close(value, torch.tensor(0.2, dtype=torch.float64))
    torch.testing.assert_close(losses.tcm(hard, relation, neg_factor=0), torch.tensor(0.35, dtype=torch.float64))


def test_tcm_warns_of_margins_that_cross():
    with pytest.warns(UserWarning, match=r"^neg_margin: expected at most pos_margin = 0.2, got 0.3"):
        losses.tcm(torch.zeros(1, 1), torch.zeros(1, 1), pos_margin=0.2, neg_margin=0.3)


# --- UNPG --------------------------------------------------------------------------------------------------------


def proxy_problem(seed=0, b=8, classes=4, d=5):
    return normal(seed, b, d), torch.arange(b) % classes, normal(seed + 1, classes, d)


def unpg(x, labels, proxies, **settings):
    criterion = ProxyLoss("unpg", len(proxies), proxies.shape[1], **settings).double()
    with torch.no_grad():
        criterion.proxies.copy_(proxies)
    return criterion(x, labels)


def test_unpg_without_unrelated_pairs_is_the_softmax_with_that_margin():
    x, labels, proxies = proxy_problem()
    one = torch.zeros_like(labels)
    settings = {"num_classes": 4, "dim": 5}
    for name, ours, theirs in [
        ("cosface", {"margin": 0.2}, {"margin": 0.2}),
        ("arcface", {"margin": 0.0, "angle": 20.0}, {"margin": 20.0}),
        ("normalized_softmax", {"margin": 0.0, "scale": 20.0}, {"temperature": 0.05}),
    ]:
        criterion = ProxyLoss(name, **settings, **theirs).double()
        with torch.no_grad():
            criterion.proxies.copy_(proxies)
        torch.testing.assert_close(unpg(x, one, proxies, **ours), criterion(x, one))
        assert unpg(x, labels, proxies, **ours) > criterion(x, labels)


@pytest.mark.parametrize("reach", [0.0, 0.5, 1.5, math.inf])
def test_unpg_equals_numpy_and_the_form_with_two_sums(reach):
    x, labels, proxies = proxy_problem()
    unit = [torch.nn.functional.normalize(rows) for rows in (x, proxies)]
    scores = unit[0] @ unit[1].T
    pairs = [float(unit[0][i] @ unit[0][j]) for i in range(8) for j in range(i + 1, 8) if labels[i] != labels[j]]
    relation = torch.nn.functional.one_hot(labels, 4).double()
    arguments = numbers(scores, relation, torch.ones_like(scores))
    want = reference.unpg(*arguments, scale=16, reach=reach if math.isfinite(reach) else 1e9, negatives=pairs)
    got = unpg(x, labels, proxies, scale=16.0, reach=reach, reduction="none")
    np.testing.assert_allclose(got.detach(), reduce(want, "none"), rtol=1e-9)
    if math.isinf(reach):
        goal = 16 * (scores[torch.arange(8), labels] - 0.35)
        classes = (torch.exp(16 * scores - goal[:, None]) * (1 - relation)).sum(1)
        batches = torch.exp(16 * torch.tensor(pairs).double() - goal[:, None]).sum(1)
        torch.testing.assert_close(got, torch.log(1 + classes + batches))


def test_pairs_of_the_batch_never_lower_unpg_and_pass_gradients_to_both_rows():
    x, labels, proxies = proxy_problem()
    relation, scores = torch.nn.functional.one_hot(labels, 4).double(), normal(3, 8, 4)
    values = [
        losses.unpg(scores, relation, scale=4.0, reach=math.inf, negatives=normal(5, 9)[:n], reduction="none")
        for n in range(9)
    ]
    assert all((later > sooner).all() for sooner, later in itertools.pairwise(values))
    assert torch.autograd.gradcheck(
        lambda rows, vectors: unpg_of(rows, labels, vectors), (x.requires_grad_(), proxies.requires_grad_())
    )
    pairs = normal(6, 5, 5).requires_grad_()
    losses.unpg(scores, relation, scale=4.0, negatives=losses.batch_negatives(pairs, torch.eye(5) > 0)).backward()
    assert (pairs.grad.triu(1) > 0).sum() >= 5
    assert (pairs.grad.tril() == 0).all()


def unpg_of(x, labels, proxies):
    """UNPG written with the functions that ProxyLoss puts together."""
    unit = [rows / rows.norm(dim=1, keepdim=True) for rows in (x, proxies)]
    relation = torch.nn.functional.one_hot(labels, len(proxies)).double()
    pairs = losses.batch_negatives(unit[0] @ unit[0].T, relation @ relation.T > 0)
    return losses.unpg(unit[0] @ unit[1].T, relation, scale=8.0, negatives=pairs)


def test_unpg_refuses_what_does_not_fit():
    one = torch.zeros(1, 1)
    with pytest.raises(ValueError, match=r"^reach: expected a number of at least 0 \(inf keeps all\), got -1"):
        losses.unpg(one, one, reach=-1)
    with pytest.raises(ValueError, match=r"^scale: expected a number above 0, got 0"):
        losses.unpg(one, one, scale=0)
    with pytest.raises(TypeError, match=r"^reach: expected a number, got 'far'"):
        losses.unpg(one, one, reach="far")
    assert losses.unpg(one, one + 1, negatives=torch.zeros(0)).isfinite()


# --- a temperature for each pair ---------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_amcl_equals_numpy_and_of_one_temperature_nt_xent(reduction):
    scores, relation, weight = batch()
    temperature = 0.05 + normal(4, 9, 9).abs()
    want = reference.amcl(*numbers(scores, relation, weight, temperature), dim=6, factor=0.2)
    got = losses.amcl(scores, relation, weight, temperature=temperature, dim=6, factor=0.2, reduction=reduction)
    np.testing.assert_allclose(got, reduce(want, reduction), rtol=1e-9)
    for same in (0.3, torch.full_like(scores, 0.3)):
        torch.testing.assert_close(
            losses.amcl(scores, relation, weight, temperature=same, reduction=reduction),
            losses.nt_xent(scores, relation, weight, temperature=0.3, reduction=reduction),
        )
    with pytest.raises(ValueError, match=r"^temperature: expected \(9, 9\) as the scores"):
        losses.amcl(scores, relation, temperature=temperature[1:])


def test_gradient_of_amcl_reaches_the_temperatures():
    scores, relation, weight = batch()
    temperature = 0.1 + normal(4, 9, 9).abs()
    assert torch.autograd.gradcheck(
        lambda s, t: losses.amcl(s, relation, weight, temperature=t, dim=6),
        (scores.requires_grad_(), temperature.requires_grad_()),
    )
    alone = temperature.detach().requires_grad_()
    losses.temperature_penalty(alone, 6, factor=0.2).backward()
    torch.testing.assert_close(alone.grad, 0.2 * (3 / alone - 1 / alone.square()).detach() / 81)
    grid = torch.linspace(0.05, 2, 400, dtype=torch.float64)
    values = torch.stack([losses.temperature_penalty(t, 6) for t in grid])
    assert grid[values.argmin()].item() == pytest.approx(2 / 6, abs=0.005)


def test_temperatures_of_pairs_are_the_same_both_ways_bounded_and_of_any_block():
    torch.manual_seed(0)
    made = PairTemperature(5, rank=3, low=0.1, high=1.5).double()
    x, other = 3 * normal(0, 6, 5), 3 * normal(1, 4, 5)
    values = made(x, other)
    torch.testing.assert_close(values, made(other, x).T)
    torch.testing.assert_close(values[:, 1:3], made(x, other[1:3]))
    assert ((values > 0.1) & (values < 1.5)).all()
    for settings, sentence in [
        ({"low": 0.0}, "^low: expected a number above 0"),
        ({"low": 0.5, "high": 0.4}, "^high: expected a number above 0.5"),
        ({"start": 3.0}, "^start: expected a number between"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            PairTemperature(5, **settings)


def test_heads_that_are_copies_change_nothing_and_a_head_is_amcl():
    torch.manual_seed(0)
    made = AdaptiveHeadsLoss(4, 3, heads=3).double()
    x, labels = normal(0, 8, 4), torch.arange(8) % 3
    for parts in (made.projections, made.temperatures):
        for part in parts[1:]:
            part.load_state_dict(parts[0].state_dict())
    value = made(x, labels)
    rows, ids = made.projections[0](x), torch.arange(8)
    want = losses.amcl(
        torch.nn.functional.cosine_similarity(rows[:, None], rows, dim=-1),
        same_class(labels, labels),
        other_rows(ids, ids),
        temperature=made.temperatures[0](rows, rows),
        dim=3,
    )
    torch.testing.assert_close(value, want)
    order = torch.tensor([3, 1, 7, 0, 2, 6, 5, 4])
    torch.testing.assert_close(made(x, labels, x[order], labels[order], ids=ids, bank_ids=ids[order]), value)
    value.backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in made.parameters())


def test_adaptive_heads_learn_and_refuse_what_does_not_fit():
    torch.manual_seed(0)
    made = AdaptiveHeadsLoss(4, heads=2, low=0.3, criterion=EmbeddingLoss("amcl", reduction="sum"))
    x, labels = normal(0, 12, 4).float(), torch.arange(12) % 3
    optimizer = torch.optim.Adam(made.parameters(), 0.02)
    values = []
    for _ in range(30):
        optimizer.zero_grad()
        values.append(made(x, labels))
        values[-1].backward()
        optimizer.step()
    assert values[-1] < 0.8 * values[0]
    for call in (
        lambda: AdaptiveHeadsLoss(4, heads=0),
        lambda: AdaptiveHeadsLoss(4, low=0.0),
        lambda: AdaptiveHeadsLoss(4, low=3.0),
        lambda: AdaptiveHeadsLoss(4, criterion=EmbeddingLoss("nt_xent")),
    ):
        with pytest.raises(ValueError, match=r"^(heads|low|high|criterion): expected"):
            call()


# --- normalized softmax on the sphere ----------------------------------------------------------------------------


def test_normalized_softmax_does_not_see_lengths_and_has_its_bound_at_the_simplex():
    x, labels, proxies = proxy_problem()
    criterion = ProxyLoss("normalized_softmax", 4, 5, temperature=0.2).double()
    with torch.no_grad():
        criterion.proxies.copy_(proxies)
    leaf = x.clone().requires_grad_()
    value = criterion(leaf, labels)
    value.backward()
    torch.testing.assert_close((leaf.grad * x).sum(1), torch.zeros(8, dtype=torch.float64))
    assert (leaf.grad != 0).any()
    torch.testing.assert_close(criterion(x * torch.linspace(0.1, 9, 8)[:, None], labels), value)
    simplex = torch.eye(4, dtype=torch.float64) - 0.25
    best = ProxyLoss("normalized_softmax", 4, 4, temperature=0.2).double()
    with torch.no_grad():
        best.proxies.copy_(simplex)
    bound = math.log(1 + 3 * math.exp(-(4 / 3) / 0.2))
    assert best(simplex, torch.arange(4)).item() == pytest.approx(bound, rel=1e-12)
    for seed in range(20):
        with torch.no_grad():
            best.proxies.copy_(simplex + 0.3 * normal(seed, 4, 4))
        assert best(best.proxies.detach(), torch.arange(4)).item() >= bound
    other = ProxyLoss("cosface", 4, 5, margin=0.0, scale=5.0).double()
    other.load_state_dict(criterion.state_dict())
    torch.testing.assert_close(other(x, labels), value)


@pytest.mark.parametrize("name", ["supcon", "nt_xent", "summed_softmax"])
def test_probabilities_of_columns_correct_for_how_they_were_drawn(name):
    """Columns drawn with repetition: less ln q, the gradient is that of the softmax over each of them once."""
    loss = getattr(losses, name)
    scores = torch.randn(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    relation = torch.nn.functional.one_hot(torch.tensor([0, 2, 4, 0]), 5).double()
    logs = torch.tensor([-3.0, -0.5, -1.0, -2.0, -4.0], dtype=torch.float64)
    plain = loss(scores, relation, temperature=0.5)
    torch.testing.assert_close(loss(scores, relation, temperature=0.5, column_log_probability=logs * 0 - 2.0), plain)
    corrected = loss(scores, relation, temperature=0.5, column_log_probability=logs)
    torch.testing.assert_close(corrected, loss(scores - 0.5 * logs, relation, temperature=0.5))
    counts = torch.tensor([1, 3, 1, 2, 1])  # the related ones are drawn once
    drawn = torch.arange(5).repeat_interleave(counts)
    each, all_of_them = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    loss(each[:, drawn], relation[:, drawn], column_log_probability=(counts / 8).log()[drawn]).backward()
    loss(all_of_them, relation).backward()
    torch.testing.assert_close(each.grad, all_of_them.grad)
    assert torch.autograd.gradcheck(
        lambda s, q: loss(s, relation, column_log_probability=q), (each, logs.requires_grad_())
    )
    with pytest.raises(ValueError, match=r"^column_log_probability: expected one number a column, \[5\], got \(2,\)"):
        loss(scores, relation, column_log_probability=torch.zeros(2))


def test_criteria_pass_the_probabilities_of_columns_on():
    x, labels = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3
    logs = torch.linspace(-3, -1, 8)
    want = EmbeddingLoss("supcon")(x, labels, column_log_probability=logs)
    assert want != EmbeddingLoss("supcon")(x, labels)
    for settings in ({"rows": 3}, {"similarity": "cosine"}):
        torch.testing.assert_close(EmbeddingLoss("supcon", **settings)(x, labels, column_log_probability=logs), want)
    torch.testing.assert_close(EmbeddingLoss("supcon")(x, labels, column_log_probability=logs - 5), want)
    with pytest.raises(ValueError, match=r"^column_log_probability: expected none for triplet"):
        EmbeddingLoss("triplet")(x, labels, column_log_probability=logs)
