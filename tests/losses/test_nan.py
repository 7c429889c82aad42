"""No loss hides NaN of what it is given: its value is NaN, or the input is refused by name."""

import functools

import pytest
import torch

from vicinal import losses
from vicinal.core import entries
from vicinal.losses import EmbeddingLoss, LossForPML, MixedLoss, ProxyLoss
from vicinal.losses.honesty import with_nan_of

PAIR_LOSSES = entries("pair_loss")
OF_PROXIES = {"proxies", "proxy-rows"}
each = pytest.mark.parametrize("entry", PAIR_LOSSES, ids=lambda e: e.name)
LABELS = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 3])  # the last row has no related one
NAN = torch.nan


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def spoiled(values, at):
    values = values.clone()
    values.view(-1)[at] = NAN
    return values


def is_nan(make):
    """Whether the value is NaN; what is refused as not finite is not hidden either."""
    try:
        value = make()
    except ValueError as refused:
        return ": expected " in str(refused)
    return bool(value.isnan().any())


@each
@pytest.mark.sweep(3)
@pytest.mark.parametrize("similarity", ["cosine", "l2"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none", "mean_nonzero"])
def test_an_embedding_that_is_nan_shows(entry, similarity, reduction):
    labels = LABELS.float() if "number-relation" in entry.facts else LABELS
    if OF_PROXIES & entry.facts:
        criterion = ProxyLoss(entry.name, 4, 5, similarity=similarity, reduction=reduction)
    else:
        criterion = EmbeddingLoss(entry.name, similarity=similarity, reduction=reduction)
    for row in range(9):
        rows = spoiled(normal(9, 5), 5 * row + 3).requires_grad_()
        value = criterion(rows, labels)
        assert value.isnan().any(), row
        value.sum().backward()
        assert rows.grad.isnan().any(), row


@each
@pytest.mark.parametrize("spoil", ["scores", "relation", "weight"])
def test_a_score_relation_or_weight_that_is_nan_shows_in_its_row(entry, spoil):
    relation, weight = (LABELS[:, None] == LABELS).float(), 1 - torch.eye(9)
    if "number-relation" in entry.facts:
        relation = -(LABELS[:, None] - LABELS).abs().float()
    inputs = {"scores": 0.9 * normal(9, 9).sigmoid(), "relation": relation, "weight": weight}
    for at in (1, 5, 9 * 4 + 3, 9 * 8 + 2):  # related, unrelated, below the diagonal, of a row without a related one
        changed = {**inputs, spoil: spoiled(inputs[spoil], at)}
        assert is_nan(lambda: entry.factory(*changed.values())), at  # noqa: B023
        assert is_nan(lambda: entry.factory(*changed.values(), reduction="none")[at // 9]), at  # noqa: B023


@each
def test_a_score_of_a_pair_that_does_not_count_may_be_nan(entry):
    relation, weight = (LABELS[:, None] == LABELS).float(), 1 - torch.eye(9)
    scores = 0.9 * normal(9, 9).sigmoid()
    if "square" in entry.facts:
        return  # they read the diagonal
    value = entry.factory(scores.masked_fill(weight == 0, NAN), relation, weight)
    torch.testing.assert_close(value, entry.factory(scores, relation, weight))


def test_numbers_as_labels_and_learned_settings_show():
    numbers = EmbeddingLoss("rank_n_contrast")
    assert numbers(normal(9, 5), spoiled(LABELS.float(), 8)).isnan()
    temperature = torch.tensor(NAN, requires_grad=True)
    assert with_nan_of(torch.zeros(()), temperature).isnan()
    assert EmbeddingLoss("margin", boundary=torch.tensor(NAN))(normal(9, 5), LABELS).isnan()


@pytest.mark.parametrize("entry", entries("miner"), ids=lambda e: e.name)
def test_no_miner_leaves_out_what_is_nan(entry):
    settings = {"distance_weighted": {"dim": 5}, "guided": {"guide": normal(9, 9)}}.get(entry.name, {})
    rows, miner = spoiled(normal(9, 5), 42), functools.partial(entry.factory, **settings)
    for loss in ("supcon", "lifted_structure", lambda scores, relation, weight, reduction: scores.new_zeros(())):
        assert EmbeddingLoss(loss, miner=miner)(rows, LABELS).isnan()
    relation = (LABELS[:, None] == LABELS).float()
    for weight in (None, 1 - torch.eye(9), torch.eye(9) == 0):
        for at in (1, 5, 9 * 8 + 2):
            kept = miner(spoiled(0.9 * normal(9, 9).sigmoid(), at), relation, weight)
            assert kept.view(-1)[at] > 0


def test_what_is_built_of_pair_losses_tells_too():
    rows = spoiled(normal(9, 5), 42)
    assert MixedLoss(EmbeddingLoss("metrix"))(rows, LABELS).isnan()
    assert LossForPML(EmbeddingLoss("triplet"))(rows, LABELS, tuple(torch.tensor([at]) for at in (0, 1, 0, 3))).isnan()
    bank = EmbeddingLoss("supcon")(normal(2, 5), LABELS[:2], rows, LABELS)
    assert bank.isnan()


CLASSES = torch.tensor([0, 0, 1, 1, 1, 2, 0, 2])
RELATION = torch.eye(3)[CLASSES]
OTHERS = {  # of numbers [8, 3]
    "block_contrast": lambda x: losses.block_contrast(x, RELATION, torch.ones(8, 8)),
    "cauchy_schwarz": losses.cauchy_schwarz,
    "coding_rate": losses.coding_rate,
    "covariance_penalty": losses.covariance_penalty,
    "distance_covariance": lambda x: losses.distance_covariance(x, CLASSES.float()),
    "energy_confusion": lambda x: losses.energy_confusion(x, CLASSES),
    "equal_rates": lambda x: losses.equal_rates(x[:, 0].sigmoid(), CLASSES) + 0 * x.sum(),
    "exposed_relevance": lambda x: losses.exposed_relevance(x, RELATION, propensity=torch.full((3,), 0.5)),
    "flops": losses.flops,
    "group_orthogonality": losses.group_orthogonality,
    "guess_errors": lambda x: losses.guess_errors(x[:, None], normal(8, 3)),
    "joint_distance_covariance": lambda x: losses.joint_distance_covariance(x, [CLASSES.float()]),
    "mcr2": lambda x: losses.mcr2(x, CLASSES),
    "neural_collapse": lambda x: losses.neural_collapse(x, CLASSES, torch.eye(3)),
    "rationale_invariance": lambda x: losses.RationaleInvariance(3, 3)(x, CLASSES, torch.ones(3, 3)),
    "t_regs": losses.t_regs,
    "temperature_penalty": lambda x: losses.temperature_penalty(x.exp(), 4),
    "tree_length": losses.tree_length,
    "vicreg": lambda x: losses.vicreg(x, normal(8, 3)),
    "warp": lambda x: losses.warp(x, RELATION),
    "zero_mean": losses.zero_mean,
}


def test_all_regularizers_are_here():
    assert {entry.name for entry in entries("regularizer")} <= set(OTHERS)


@pytest.mark.parametrize("name", OTHERS)
def test_every_other_loss_of_a_matrix_shows_each_nan(name):
    for at in range(24):
        assert is_nan(lambda: OTHERS[name](spoiled(normal(8, 3), at))), at  # noqa: B023


MATCHING = {
    "matching": "matching: sinh",
    "composite_sigmoid": "composite_sigmoid: exp",
    "composite_softmax": "composite_softmax: exp(.5), gamma=2",
    "softmax": "softmax: alpha=2",
    "decomposed": "decomposed: tanh",
    "pointwise": "pointwise",
    "pairwise": "pairwise: tanh",
    "listwise": "listwise",
    "plackett_luce": "plackett_luce",
    "soft_ranks": "soft_ranks",
    "distillation": "distillation: floor=-1",
    "dwell_time": "dwell_time: cap=2",
    "reweighted_squares": "reweighted_squares: exp",
    "composite_sigmoid_ce": "composite_sigmoid_ce: sinh",
    "composite_softmax_ce": "composite_softmax_ce: sinh",
    "proximal_matching": "proximal_matching: sigma=2",
    "pseudo_huber": "pseudo_huber: c=.5",
}


@pytest.mark.parametrize("name", MATCHING)
def test_matching_losses_show_predictions_targets_and_weights(name):
    loss = losses.parse(MATCHING[name])
    inputs = (normal(6, 4), normal(6, 4, seed=1), torch.ones(6))
    for which, values in enumerate(inputs):
        for at in range(values.numel()):
            changed = [spoiled(one, at) if place == which else one for place, one in enumerate(inputs)]
            assert loss(*changed).isnan(), (which, at)


@pytest.mark.parametrize("entry", entries("teacher_loss"), ids=lambda e: e.name)
def test_losses_of_a_teacher_show_both_sides(entry):
    scores, teacher, extra = normal(6, 5), normal(6, 5, seed=1), {}
    if entry.name == "mixed_labels":
        extra = {"target": torch.arange(6) % 5}
    for at in range(30):
        assert is_nan(lambda: entry.factory(spoiled(scores, at), teacher, **extra)), at  # noqa: B023
        if entry.name != "mixed_labels":  # where a teacher of NaN says nothing
            assert is_nan(lambda: entry.factory(scores, spoiled(teacher, at), **extra)), at  # noqa: B023


@pytest.mark.parametrize("entry", entries("class_loss"), ids=lambda e: e.name)
def test_losses_of_class_scores_show_scores_targets_and_weights(entry):
    scores, several = normal(6, 5), "several-labels" in entry.facts
    target = (normal(6, 5, seed=1) > 0).float() if several else torch.arange(6) % 5
    shares = target if several else torch.nn.functional.one_hot(target, 5).float()
    extra = {"perturbed": normal(6, 5, seed=2)} if entry.name == "smooth_adversarial" else {}
    for at in range(30):
        assert is_nan(lambda: entry.factory(spoiled(scores, at), target, **extra)), at  # noqa: B023
        assert is_nan(lambda: entry.factory(scores, spoiled(shares, at), **extra)), at  # noqa: B023
        assert is_nan(lambda: entry.factory(scores, target, spoiled(torch.ones(6), at % 6), **extra)), at  # noqa: B023


def test_labels_that_are_nan_show_in_crps():
    loss = losses.CRPS().fit(torch.tensor([0.0, 1.0, 3.0]))
    steps = loss.steps(torch.tensor([1.0, NAN]))
    assert steps[0].isfinite().all()
    assert loss(torch.full((2, 2), 0.5), steps).isnan()


def test_a_batch_of_nan_leaves_no_trace_in_a_history():
    loss = EmbeddingLoss(losses.DynamicSoftMargin(bins=8))
    loss(normal(9, 5), LABELS)
    before = loss.loss.history.clone()
    assert loss(spoiled(normal(9, 5), 42), LABELS).isnan()
    assert torch.equal(loss.loss.history, before)
