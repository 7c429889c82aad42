"""Thresholds with a promise, and filters by query."""

import math

import numpy as np
import pytest
import scipy
import torch

from references.linking import passes
from vicinal.calibration import RelevanceFilter, best_f1, precision_threshold, stratified_share


def draw(random, rows=1500):
    """Pairs whose score is their probability: a quarter are right, of most the score is sure."""
    scores = random.beta(0.05, 0.15, rows)
    return scores, (random.random(rows) < scores).astype(int)


MANY, _ = draw(np.random.default_rng(99), 100_000)


def true_precision(threshold):
    """Of a threshold, over all pairs there are."""
    return MANY[threshold <= MANY].mean()  # a score is its probability


def test_the_promise_is_broken_as_seldom_as_it_says():
    broken = refused = picked = 0
    random, counts = np.random.default_rng(0), np.arange(20, 1500)
    for _ in range(200):
        scores, related = draw(random)
        try:
            broken += true_precision(precision_threshold(scores, related, 0.95)) < 0.95
        except ValueError:
            refused += 1
        order = np.argsort(-scores)
        wrong = np.cumsum(1 - related[order])
        passing = counts[passes(wrong[counts - 1], counts, 0.95, 0.05)]
        picked += len(passing) > 0 and true_precision(scores[order][passing[-1] - 1]) < 0.95
    assert broken <= 15  # 10 are expected at most; 15 has a chance of 5 %
    assert refused < 20
    assert picked > broken  # the lowest threshold that passes alone breaks it more often


def test_a_threshold_passes_the_exact_binomial_test():
    random = np.random.default_rng(3)
    scores, related = draw(random, 4000)
    threshold = precision_threshold(scores, related, 0.9)
    accepted = scores >= threshold
    assert passes((1 - related[accepted]).sum(), accepted.sum(), 0.9, 0.05)
    assert precision_threshold(scores, related, 0.8) < threshold < precision_threshold(scores, related, 0.95)


def test_a_promise_of_other_pairs_passes_fishers_test_and_is_broken_as_seldom_as_it_says():
    random = np.random.default_rng(3)
    scores, related = draw(random, 4000)
    threshold = precision_threshold(scores, related, 0.9, others=50)
    accepted = scores >= threshold
    wrong = (1 - related[accepted]).sum()
    pairs = [[wrong, accepted.sum() - wrong], [6, 44]]  # one more is wrong than may be
    assert scipy.stats.fisher_exact(pairs, "less").pvalue <= 0.05
    of_all = precision_threshold(scores, related, 0.9)
    assert precision_threshold(scores, related, 0.9, others=10**7) == of_all < threshold
    broken = {None: 0, 20: 0}
    for _ in range(100):
        known, (fresh, right) = draw(random), draw(random, 1000)
        for others in broken:
            threshold = precision_threshold(*known, 0.95, others=others)
            broken[others] += right[fresh >= threshold][:20].mean() < 0.95
    assert broken[20] < min(9, broken[None])  # 5 are expected at most; more than 8 have a chance of 6 %


def test_the_first_failure_ends_the_sequence():
    related = np.repeat([1, 0, 1], [400, 60, 5000])  # all but 30 are right, and yet
    scores = 1 - 1e-5 * np.arange(len(related))
    assert scores[415] <= precision_threshold(scores, related, 0.95) <= scores[409]  # and the steps there are small


def test_equal_scores_are_accepted_together():
    scores = np.repeat([1.0, 0.5, 0.0], 100)
    related = np.repeat([1, 0, 0], 100)
    assert precision_threshold(scores, related, 0.9) == 1.0
    assert best_f1(scores, related) == 0.75


def test_what_is_missing_is_told():
    with pytest.raises(ValueError, match=r"got 20 to choose a threshold by; some \d+ more like them would do"):
        precision_threshold(np.full(20, 0.9), np.ones(20), 0.95)
    with pytest.raises(ValueError, match=r"got at most 0\.5\d\d that are of 400 labelled ones"):
        precision_threshold(np.linspace(0, 1, 400), np.arange(400) % 2, 0.95)
    with pytest.raises(ValueError, match=r"^scores: expected probabilities"):
        precision_threshold([2.0], [1], 0.9)
    with pytest.raises(ValueError, match=r"^related: expected at least one"):
        best_f1([0.5], [0])


def test_best_f1_is_the_best_of_all_thresholds():
    random = np.random.default_rng(0)
    scores, related = np.round(random.random(200), 2), random.integers(0, 2, 200)

    def f1(threshold):
        said = scores >= threshold
        return 2 * (said & (related == 1)).sum() / (said.sum() + related.sum())

    assert f1(best_f1(scores, related)) == max(map(f1, np.unique(scores)))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("form", [pytest.param("linear", marks=pytest.mark.slow), "power", "root"])
def test_filters_rise_with_the_score_and_learn_each_querys_cut(form):
    random = np.random.default_rng(0)
    queries = torch.from_numpy(random.normal(size=(600, 4))).float()
    scores = torch.from_numpy(random.uniform(0, 1, 600)).float()
    relevant = scores > 0.5 + 0.3 * queries[:, 0].tanh()
    chosen = RelevanceFilter(4, form).fit(queries[:400], scores[:400], relevant[:400])
    chosen.choose(queries[400:500], scores[400:500], relevant[400:500])
    said = chosen(queries[500:], scores[500:]) >= chosen.threshold
    assert (said == relevant[500:]).float().mean() > 0.8  # L-BFGS ends elsewhere on another processor: 0.87 on one
    grid = torch.linspace(-1, 1, 21).expand(5, -1)
    rises = chosen(queries[:5], grid).diff(dim=1)
    assert (rises >= 0).all()
    assert (rises[:, 12:] > 0).any()
    few, many = chosen.shown(queries[:5], grid.flip(1)), chosen.shown(queries[:5], grid.flip(1), least=3)
    assert many[:, :3].all()
    assert (few <= many).all()
    same = RelevanceFilter(4, form).fit(queries[:400], scores[:400], relevant[:400])
    assert torch.equal(same(queries, scores), chosen(queries, scores))


@pytest.mark.parametrize("form", ["linear", "power", "root"])
def test_gradients_of_filters(form):
    chosen = RelevanceFilter(3, form).double()
    queries = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    scores = torch.rand(4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    assert torch.autograd.gradcheck(chosen, (queries, scores))


def test_constant_settings_are_a_calibration_by_platt():
    chosen = RelevanceFilter(2)
    for layer in (chosen.settings[0], chosen.settings[2]):
        torch.nn.init.zeros_(layer.weight)
    slope, _, shift = chosen.settings[2].bias.detach()
    scores = torch.tensor([-0.5, 0.2])
    expected = torch.sigmoid(torch.nn.functional.softplus(slope) * scores + shift)
    torch.testing.assert_close(chosen(torch.zeros(2, 2), scores), expected)


def test_a_promised_precision_of_a_filter():
    random = np.random.default_rng(0)
    queries = torch.from_numpy(random.normal(size=(3000, 2))).float()
    scores = torch.from_numpy(random.uniform(-1, 1, 3000)).float()
    relevant = scores + 0.1 * torch.from_numpy(random.normal(size=3000)).float() > 0.4
    chosen = RelevanceFilter(2).fit(queries[:1000], scores[:1000], relevant[:1000])
    chosen.choose(queries[1000:2000], scores[1000:2000], relevant[1000:2000], precision=0.95)
    assert relevant[2000:][chosen(queries[2000:], scores[2000:]) >= chosen.threshold].float().mean() > 0.95


def test_wrong_arguments_are_told():
    chosen = RelevanceFilter(2)
    with pytest.raises(ValueError, match=r"^scores: expected finite numbers of 1 queries"):
        chosen(torch.zeros(1, 2), torch.tensor([torch.nan]))
    with pytest.raises(ValueError, match=r"^relevant: expected pairs that are"):
        chosen.fit(torch.zeros(2, 2), torch.zeros(2), torch.ones(2, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"^relevant: expected bool"):
        chosen.fit(torch.zeros(2, 2), torch.zeros(2), torch.ones(2))
    with pytest.raises(ValueError, match=r"^form: "):
        RelevanceFilter(2, "cubic")


def test_the_interval_of_one_part_is_jeffreys():
    share, low, high = stratified_share([50], [20], [17])
    assert share == pytest.approx(17 / 20)
    expected = scipy.stats.beta.ppf([0.025, 0.975], 17.5, 3.5)
    assert [low, high] == pytest.approx(expected.tolist(), abs=1e-4)
    assert stratified_share([50], [20], [20])[::2] == (1.0, 1.0)
    assert stratified_share([50], [20], [0])[:2] == (0.0, 0.0)


def test_parts_count_by_their_size_and_not_by_how_many_were_looked_at():
    sizes, trials, hits = np.array([90, 10, 0]), np.array([4, 20, 0]), np.array([4, 5, 0])
    share, low, high = stratified_share(sizes, trials, hits)
    assert share == pytest.approx(0.9 * 1 + 0.1 * 5 / 20)
    draws = np.random.default_rng(0).beta(hits[:2] + 0.5, trials[:2] - hits[:2] + 0.5, (200_000, 2)) @ [0.9, 0.1]
    assert [low, high] == pytest.approx(np.quantile(draws, [0.025, 0.975]).tolist(), abs=0.01)
    assert math.isnan(stratified_share([90, 10], [4, 0], [4, 0])[0])


@pytest.mark.slow
def test_the_interval_of_parts_holds_the_share_as_often_as_it_says():
    rng = np.random.default_rng(0)
    sizes, trials, shares = np.array([700, 200, 100]), np.array([12, 12, 12]), np.array([0.95, 0.7, 0.4])
    hits = rng.binomial(trials, shares, (80, 3))
    truth = float(sizes @ shares) / 1000
    ends = np.array([stratified_share(sizes, trials, each)[1:] for each in np.unique(hits, axis=0)])
    of = np.unique(hits, axis=0, return_inverse=True)[1].ravel()
    assert ((ends[of, 0] <= truth) & (truth <= ends[of, 1])).mean() >= 0.9


@pytest.mark.parametrize(
    ("sizes", "trials", "hits"), [([0], [0], [0]), ([5], [2], [3]), ([5, 5], [2], [1]), ([5], [2], [-1]), ([], [], [])]
)
def test_counts_that_are_none_are_refused(sizes, trials, hits):
    with pytest.raises(ValueError, match="hits: expected counts"):
        stratified_share(sizes, trials, hits)
