"""Classes out of domains: values of the paper's code, and classes that are found where they can be."""

import itertools

import numpy as np
import pytest
import torch

from vicinal.clustering import cluster_accuracy, ddfa, domain_class_posteriors

GOLDEN = {
    name: torch.from_numpy(np.asarray(value))
    for name, value in np.load("tests/golden/retrieval/latent_label_shift.npz").items()
}


def test_posteriors_of_classes_are_those_of_the_papers_code():
    posteriors, shares = GOLDEN["domain_posterior"], GOLDEN["true_p_y_given_d"]
    plain = domain_class_posteriors(posteriors, shares)
    torch.testing.assert_close(plain, GOLDEN["p_y_given_x"], atol=1e-12, rtol=0)
    torch.testing.assert_close(plain.sum(1), torch.ones(20).double())
    inside = domain_class_posteriors(posteriors, shares, GOLDEN["domains_of_rows"])
    torch.testing.assert_close(inside, GOLDEN["p_y_given_x_d"], atol=1e-12, rtol=0)
    order = torch.tensor([2, 0, 1])
    torch.testing.assert_close(domain_class_posteriors(posteriors, shares[order]), plain[:, order])


def test_classes_with_bins_of_their_own_are_found_up_to_their_order():
    """Rows of a class have its posteriors exactly, so bins are classes; each class is absent from a domain."""
    random = np.random.default_rng(0)
    shares = np.array([[0.7, 0.0, 0.3, 0.4], [0.3, 0.6, 0.0, 0.3], [0.0, 0.4, 0.7, 0.3]])
    domains = np.repeat(np.arange(4), 500)
    classes = np.array([random.choice(3, p=shares[:, d]) for d in domains])
    chances = shares / shares.sum(1, keepdims=True)
    posteriors = torch.from_numpy(chances[classes])
    ours = ddfa(posteriors, torch.from_numpy(domains), 3, bins=3)
    assert cluster_accuracy(ours.classes.argmax(1), torch.from_numpy(classes)) == 1
    torch.testing.assert_close(ours.shares.sum(0), torch.ones(4).double())
    want = torch.stack([torch.bincount(torch.from_numpy(classes[domains == d]), minlength=3) / 500 for d in range(4)])
    want = want.T.double()  # the shares that were drawn: a bin is a class, so they are found without an error
    nearest = torch.cdist(ours.shares, want).min(1)
    assert sorted(nearest.indices.tolist()) == [0, 1, 2]
    assert float(nearest.values.max()) < 1e-6
    assert torch.equal(ours.shares, ddfa(posteriors, torch.from_numpy(domains), 3, bins=3).shares)


@pytest.mark.parametrize(("classes", "domains"), [(2, 3), (3, 4)])
@pytest.mark.parametrize("seed", range(3))
def test_classes_are_found_where_the_paper_proves_that_they_are(classes, domains, seed):
    """Each class has two places of its own, half of it; others are shared. 20,000 rows: no share is off by .05."""
    random = np.random.default_rng(seed)
    shares = random.dirichlet(np.ones(classes), size=domains).T  # P(y | d)
    while np.linalg.cond(shares / shares.sum(1, keepdims=True)) > 6:
        shares = random.dirichlet(np.ones(classes), size=domains).T
    places, mine = 12, 2 * classes
    of_classes = np.zeros((places, classes))  # P(place | y)
    for y in range(classes):
        of_classes[2 * y : 2 * y + 2, y] = random.dirichlet([3.0, 3.0]) / 2
        of_classes[mine:, y] = random.dirichlet(np.ones(places - mine)) / 2
    of_rows = random.integers(domains, size=20_000)
    draws = random.random((2, len(of_rows)))
    y = (draws[0][:, None] > np.cumsum(shares.T[of_rows], axis=1)).sum(1).clip(max=classes - 1)
    place = (draws[1][:, None] > np.cumsum(of_classes.T[y], axis=1)).sum(1).clip(max=places - 1)
    joint = of_classes @ shares
    posteriors = torch.from_numpy((joint / joint.sum(1, keepdims=True))[place])
    got = ddfa(posteriors, torch.from_numpy(of_rows), classes).shares.numpy()
    errors = [np.abs(got[list(order)] - shares).max() for order in itertools.permutations(range(classes))]
    assert min(errors) < 0.05


def test_more_classes_than_the_bins_show_are_refused():
    rows = torch.tensor([[0.8, 0.1, 0.1], [0.4, 0.3, 0.3], [0.2, 0.4, 0.4]])
    counts = torch.tensor([30, 20, 10, 10, 20, 30, 10, 20, 30])  # of each bin in each domain: the last two are alike
    posteriors, domains = rows.repeat(3, 1).repeat_interleave(counts, 0), torch.arange(3).repeat_interleave(60)
    with pytest.raises(ValueError, match=r"^classes: expected at most 2, as many as the bins show, got 3"):
        ddfa(posteriors, domains, 3)


def test_equal_posteriors_are_bins_of_their_own_and_nothing_is_warned_of():
    domains = torch.arange(40) % 3
    posteriors = torch.nn.functional.one_hot(domains, 3).float()  # three different rows, fewer than ten times two
    ours = ddfa(posteriors, domains, 2)
    torch.testing.assert_close(ours.classes.sum(1), torch.ones(40))
    with pytest.raises(ValueError, match=r"^bins: expected a whole number of at most 3"):
        ddfa(posteriors, domains, 2, bins=4)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"classes": 5}, "classes: expected at most as many as domains, 4, got 5"),
        (
            {"domains": torch.zeros(20, dtype=torch.int64)},
            "domains: expected rows of each domain, got none of domain 1",
        ),
        ({"domains": torch.full((20,), 4)}, "domains: expected 0 to 3"),
        ({"bins": 2}, "bins: expected a whole number of at least 3"),
        ({"posteriors": -torch.ones(20, 4)}, "posteriors: expected rows of at least 0 that sum to 1"),
        ({"posteriors": torch.full((20, 4), torch.nan)}, "posteriors: expected rows of at least 0"),
        (
            {"posteriors": torch.full((20, 4), 0.25)},
            "posteriors: expected at least 3 different rows, one a class, got 1",
        ),
    ],
)
def test_bad_domains_are_told(settings, sentence):
    given = {"posteriors": GOLDEN["domain_posterior"], "domains": GOLDEN["domains_of_rows"], "classes": 3}
    with pytest.raises(ValueError, match=f"^{sentence}"):
        ddfa(**{**given, **settings})
    with pytest.raises(ValueError, match=r"^shares: expected numbers of at least 0"):
        domain_class_posteriors(given["posteriors"], -GOLDEN["true_p_y_given_d"])
    with pytest.raises(ValueError, match=r"^shares: expected finite numbers, and each class in some domain"):
        domain_class_posteriors(torch.full((3, 2), 0.5), torch.tensor([[1.0, 1.0], [0.0, 0.0]]))
