"""Named uses of a general loss are that loss, with the settings that they state."""

import math

import torch

from vicinal import links, losses

SCORES = torch.tensor([[2.0, -1.0, 0.5], [0.3, 1.2, -0.7]], dtype=torch.float64)
TARGETS = torch.tensor([[1.0, 0.5, -0.25], [0.8, -1.0, 0.1]], dtype=torch.float64)


def elementwise(link, scores, targets):
    """Matching losses by their definition, no mean."""
    return link.primitive(scores) - link.primitive(targets) - (scores - targets) * link(targets)


def test_decomposed_is_the_sum_over_classes():
    want = elementwise(links.Sinh(), SCORES, TARGETS).sum(1).mean()
    torch.testing.assert_close(losses.DecomposedMatchingLoss(links.Sinh())(SCORES, TARGETS), want)


def test_pointwise_is_the_mean_over_a_list():
    want = elementwise(links.Exp(), SCORES, TARGETS).mean()
    torch.testing.assert_close(losses.PointwiseRankingLoss()(SCORES, TARGETS), want)


def test_pairwise_is_the_mean_over_pairs():
    pairs = [[a[:, i] - a[:, j] for i, j in [(0, 1), (0, 2), (1, 2)]] for a in (SCORES, TARGETS)]
    for link in (links.Identity(), links.Sinh(), links.Tanh()):
        want = torch.stack([elementwise(link, *both) for both in zip(*pairs, strict=True)]).mean()
        torch.testing.assert_close(losses.PairwiseRankingLoss(link)(SCORES, TARGETS), want)
    default = losses.PairwiseRankingLoss(links.Sinh().cap(-5.0, 5.0))
    torch.testing.assert_close(losses.PairwiseRankingLoss()(4 * SCORES, TARGETS), default(4 * SCORES, TARGETS))


def test_pairs_of_a_chosen_and_a_rejected_row_are_preferences():
    pairs, link = SCORES[:, :2], links.Sinh().cap(-3.0, 3.0)
    grades, wanted = torch.tensor([[1.0, 0.0], [1.0, 0.0]]).double(), torch.ones(2).double()
    asked = losses.PreferenceMatchingLoss(beta=1.0, link=link)(pairs[:, 0], pairs[:, 1], wanted)
    torch.testing.assert_close(losses.PairwiseRankingLoss(link)(pairs, grades), asked)
    torch.testing.assert_close(asked, elementwise(link, pairs[:, 0] - pairs[:, 1], wanted).mean())


def test_listwise_is_the_composite_softmax_of_exp():
    for gamma in (1.0, 0.4):
        total = [gamma * (a.exp() / gamma).logsumexp(1) for a in (SCORES, TARGETS)]
        slope = TARGETS.exp() * (TARGETS.exp() / gamma).softmax(1)
        want = (total[0] - total[1] - ((SCORES - TARGETS) * slope).sum(1)).mean()
        torch.testing.assert_close(losses.ListwiseRankingLoss(gamma=gamma)(SCORES, TARGETS), want)


def test_listwise_as_it_comes_is_finite_at_any_score():
    """Above 5 the scaling is a straight line, e^5 (z - 4), by its definition; a score of 1e4 has a finite gradient."""
    loss = losses.ListwiseRankingLoss(reduction="none")
    high = torch.tensor([[20.0, -3.0]], dtype=torch.float64)
    target = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    primitive = math.exp(5) * (1 + 15 + 15**2 / 2)  # from the end of exp at 5 on; all of the mass
    rest = math.log(math.exp(math.e) + math.e) + (20 - 1) * math.e * math.exp(math.e) / (math.exp(math.e) + math.e)
    rest += (-3 - 0) * math.e / (math.exp(math.e) + math.e)
    assert math.isclose(loss(high, target).item(), primitive - rest, rel_tol=1e-9)
    ends = [-1e4, 0.0, 20.0, 89.0, 1e4]
    rows = torch.cartesian_prod(*[torch.tensor(ends)] * 2)
    for target in rows:
        prediction = rows.clone().requires_grad_()
        value = loss(prediction, target.expand_as(rows))
        (gradient,) = torch.autograd.grad(value.sum(), prediction)
        assert bool(value.isfinite().all())
        assert bool(gradient.isfinite().all())
        assert bool((value >= 0).all())


def test_distillation_clips_below_its_floor():
    """The scaling rises from 0 to 1 between floor - softness and floor + softness: a softmax above, nothing below."""
    for floor in (0.0, -1.5):
        loss = losses.DistillationMatchingLoss(floor, softness=0.25)
        high = [floor + 0.25 + a.abs() for a in (SCORES, TARGETS)]
        low = [floor - 0.25 - a.abs() for a in (SCORES, TARGETS)]
        softmax = losses.SoftmaxMatchingLoss()
        torch.testing.assert_close(loss(*high), softmax(*high))
        torch.testing.assert_close(loss(*low), torch.zeros((), dtype=torch.float64))
        assert loss(floor - 0.2 + 0 * SCORES + torch.eye(2, 3), floor - 0.2 + 0 * SCORES) > 0


def test_dwell_time_doubles_up_to_its_cap():
    link = losses.DwellTimeMatchingLoss(doubling=2.0, cap=6.0, low=-2.0).link
    places = torch.tensor([-9.0, -2.0, 0.0, 2.0, 4.0, 6.0, 50.0], dtype=torch.float64)
    torch.testing.assert_close(link.slope(places), torch.tensor([0.5, 0.5, 1, 2, 4, 8, 8], dtype=torch.float64))
    rate = math.log(2) / 2
    want = elementwise(links.Exp(rate, 0.0, 1 / rate), SCORES, TARGETS).mean()
    torch.testing.assert_close(losses.DwellTimeMatchingLoss(doubling=2.0, cap=6.0)(SCORES, TARGETS), want)


def test_a_teacher_s_softmax_as_relation_of_supcon_is_distillation():
    student = SCORES.clone().requires_grad_()
    teacher = (TARGETS / 0.5).softmax(1)
    value = losses.supcon(student, teacher, temperature=0.2)
    divergence = torch.nn.functional.kl_div((student / 0.2).log_softmax(1), teacher, reduction="batchmean")
    torch.testing.assert_close(*(torch.autograd.grad(loss, student)[0] for loss in (value, divergence)))
