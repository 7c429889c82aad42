"""Scores of Gaussians: values of POT and of the paper's code."""

import numpy as np
import pytest
import torch

from vicinal.similarity import bures_exp, bures_geodesic, bures_log, bures_wasserstein

GOLDEN = {
    name: torch.from_numpy(np.asarray(value))
    for name, value in np.load("tests/golden/retrieval/gbw_batchnorm.npz").items()
}
MATRICES, BIAS = GOLDEN["x"][:, 0], GOLDEN["bias_spd"][None]
ZEROS = torch.zeros(6, 4, dtype=torch.float64)


def test_scores_of_covariances_are_the_negated_distances_of_the_papers_code_and_of_pot():
    scores = bures_wasserstein(ZEROS, MATRICES, ZEROS[:1], BIAS)[:, 0]
    torch.testing.assert_close(-scores, GOLDEN["sq_distance_to_bias"][:, 0], atol=1e-10, rtol=0)
    torch.testing.assert_close(-scores, GOLDEN["pot_bures_distance_sq"], atol=1e-10, rtol=0)
    back = bures_wasserstein(ZEROS[:1], BIAS, ZEROS, MATRICES)[0]
    torch.testing.assert_close(back, scores)


def test_means_add_their_distance_and_equal_gaussians_score_0():
    means = torch.arange(24.0, dtype=torch.float64).reshape(6, 4)
    plain = bures_wasserstein(ZEROS, MATRICES)
    torch.testing.assert_close(bures_wasserstein(means, MATRICES), plain - torch.cdist(means, means) ** 2)
    torch.testing.assert_close(plain.diagonal(), torch.zeros(6).double(), atol=1e-10, rtol=0)
    assert float(plain.max()) < 1e-10


def test_gradients_are_finite_where_eigenvalues_are_equal():
    means = torch.randn(2, 3, dtype=torch.float64)
    eye = torch.eye(3, dtype=torch.float64).repeat(2, 1, 1)
    for roots in (eye, eye + 0.3 * torch.randn(2, 3, 3, dtype=torch.float64)):

        def scores(mean, root):
            return bures_wasserstein(mean, root @ root.mT + 0.1 * eye, means, 2 * eye)

        assert torch.autograd.gradcheck(scores, (means.clone().requires_grad_(), roots.clone().requires_grad_()))


def test_logarithms_exponentials_and_geodesics_are_those_of_the_papers_code():
    tangents = bures_log(BIAS[0], GOLDEN["x"])
    torch.testing.assert_close(tangents, GOLDEN["log_at_bias"], atol=1e-10, rtol=0)
    torch.testing.assert_close(bures_exp(BIAS[0], tangents), GOLDEN["exp_of_log"], atol=1e-10, rtol=0)
    metric, step = GOLDEN["metric_spd"], GOLDEN["lyapunov"]
    want = BIAS[0] + metric + step @ BIAS[0] @ step
    torch.testing.assert_close(bures_exp(BIAS[0], metric), want, atol=1e-10, rtol=0)
    torch.testing.assert_close(bures_geodesic(BIAS[0], metric, 0.25), GOLDEN["geodesic_quarter"], atol=1e-10, rtol=0)


def test_a_geodesic_goes_at_even_speed_and_is_the_exponential_of_a_share_of_the_logarithm():
    start, end = MATRICES[:2]
    whole = bures_wasserstein(ZEROS[:1], start[None], ZEROS[:1], end[None])
    for share in (0.0, 0.3, 1.0):
        point = bures_geodesic(start, end, share)
        torch.testing.assert_close(bures_exp(start, share * bures_log(start, end)), point)
        part = bures_wasserstein(ZEROS[:1], start[None], ZEROS[:1], point[None])
        torch.testing.assert_close(part, share**2 * whole, atol=1e-10, rtol=0)
    torch.testing.assert_close(bures_geodesic(start, end, 1.0), end)
    torch.testing.assert_close(bures_log(start, start), torch.zeros_like(start), atol=1e-10, rtol=0)


def test_maps_have_gradients_where_eigenvalues_are_equal():
    eye = torch.eye(3, dtype=torch.float64)
    slant = torch.tensor([[2.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 1.0]], dtype=torch.float64)

    def maps(one, other):
        one, other = (each @ each.mT for each in (one, other))
        return bures_log(one, other), bures_exp(one, other / 10), bures_geodesic(one, other, 0.4)

    for pair in ((eye, 2 * eye), (eye, slant), (slant, slant)):
        assert torch.autograd.gradcheck(maps, tuple(each.clone().requires_grad_() for each in pair))
    with pytest.raises(ValueError, match=r"^tangents: expected symmetric matrices \(3, 3\)"):
        bures_exp(eye, torch.triu(torch.ones(3, 3)).double())
    with pytest.raises(ValueError, match=r"^base: expected eigenvalues above 0, got 0"):
        bures_log(0 * eye, eye)
    with pytest.raises(ValueError, match=r"^covariances: expected finite numbers \(3, 3\), got \(2, 2\)"):
        bures_geodesic(eye, eye[:2, :2], 0.5)


@pytest.mark.parametrize(
    ("matrices", "sentence"),
    [
        (-MATRICES, "covariances: expected eigenvalues above 0, got -"),
        (MATRICES + torch.triu(torch.ones(4, 4)), "covariances: expected symmetric matrices"),
        (MATRICES[:, :3], r"covariances: expected finite numbers \(6, 4, 4\)"),
        (MATRICES * torch.nan, "covariances: expected finite numbers"),
    ],
)
def test_bad_covariances_are_told(matrices, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        bures_wasserstein(ZEROS, matrices)


def test_half_a_bank_is_told():
    with pytest.raises(ValueError, match=r"^means: expected finite numbers"):
        bures_wasserstein(ZEROS / 0, MATRICES)
    with pytest.raises(ValueError, match=r"^bank_covariances: expected both bank_means and bank_covariances"):
        bures_wasserstein(torch.zeros(1, 2), torch.eye(2)[None], torch.ones(3, 2))
