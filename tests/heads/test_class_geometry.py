"""Heads that know how classes lie to each other: Loki's Frechet means, equiangular basis vectors."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vicinal.heads import (
    EquiangularHead,
    class_distances,
    coherence,
    equiangular_basis,
    frechet_choice,
    frechet_scores,
    welch_bound,
)

pytestmark = pytest.mark.sweep(2)

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "losses"


@pytest.mark.parametrize("case", ["A", "B"])
def test_loki_is_that_of_the_public_code(case: str) -> None:
    golden = {k: torch.from_numpy(v) for k, v in np.load(GOLDEN / "loki.npz", allow_pickle=False).items()}
    shares, distances = golden[f"{case}_probs"], golden[f"{case}_dist"]
    scores = frechet_scores(shares, distances)
    torch.testing.assert_close(-scores, golden[f"{case}_frechet"], rtol=1e-12, atol=1e-12)
    assert scores.argmax(1).tolist() == golden[f"{case}_pred"].tolist()
    some = frechet_scores(golden[f"{case}_probs_observed012"], distances[:3])
    assert some.argmax(1).tolist() == golden[f"{case}_pred_observed012"].tolist()
    learned = shares.clone().requires_grad_()
    choice = frechet_choice(learned, distances, gradient="polytope", step=0.1)
    torch.testing.assert_close(choice.detach(), golden[f"{case}_onehot"])
    (choice * golden[f"{case}_w"]).sum().backward()
    torch.testing.assert_close(learned.grad, golden[f"{case}_polytope_eta0.1_grad"], rtol=1e-12, atol=1e-12)


@given(st.integers(2, 9), st.integers(0, 1000))
def test_loki_on_known_metrics(classes: int, seed: int) -> None:
    shares = torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(classes), 5))
    place = torch.arange(classes, dtype=torch.float64)
    path = (place[:, None] - place).abs()
    mean = shares @ place
    assert ((frechet_scores(shares, path).argmax(1) - mean).abs() <= 0.5 + 1e-9).all()
    discrete = 1 - torch.eye(classes, dtype=torch.float64)
    assert (frechet_scores(shares, discrete).argmax(1) == shares.argmax(1)).all()
    assert (frechet_scores(torch.eye(classes).double(), path).argmax(1) == place).all()
    assert (frechet_scores(shares, 7 * path).argmax(1) == frechet_scores(2 * shares, path).argmax(1)).all()


def test_loki_passes_the_gradient_straight_through_and_refuses() -> None:
    logits = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    distances = class_distances(torch.randn(4, 2, dtype=torch.float64))
    weights = torch.randn(3, 4, dtype=torch.float64)
    shares = logits.softmax(1)
    shares.retain_grad()
    (frechet_choice(shares, distances) * weights).sum().backward()
    torch.testing.assert_close(shares.grad, weights)
    with pytest.raises(ValueError, match="distances: expected 0 between a class and itself"):
        frechet_scores(shares.detach(), distances + 1)
    with pytest.raises(ValueError, match="probabilities: expected rows >= 0"):
        frechet_scores(torch.zeros(1, 4), distances.float())
    with pytest.raises(ValueError, match="distances: expected numbers of at least 0"):
        frechet_scores(shares.detach(), distances * float("nan"))
    with pytest.raises(ValueError, match=r"distances: expected \[K, M\]"):
        frechet_scores(shares.detach(), distances[:2])


def test_class_distances() -> None:
    vectors = torch.randn(5, 3, dtype=torch.float64)
    cosine = torch.nn.functional.cosine_similarity(vectors[:, None], vectors[None], dim=-1)
    expected = (2 - 2 * cosine).clamp(min=0).sqrt().fill_diagonal_(0)
    torch.testing.assert_close(class_distances(vectors, kind="cosine"), expected, atol=1e-7, rtol=0)


@pytest.mark.parametrize("case", ["A", "B"])
def test_coherence_is_that_of_the_public_code(case: str) -> None:
    golden = {k: torch.from_numpy(np.asarray(v)) for k, v in np.load(GOLDEN / "ebv.npz", allow_pickle=False).items()}
    basis = golden[f"{case}_basis"].clone().requires_grad_()
    loss = coherence(basis, float(golden[f"{case}_threshold"]))
    loss.backward()
    torch.testing.assert_close(loss.detach(), golden[f"{case}_loss"], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(basis.grad, golden[f"{case}_grad"], rtol=1e-12, atol=1e-12)
    head = EquiangularHead(len(basis), basis.shape[1]).double()
    head.basis = basis.detach()
    x = golden[f"{case}_x"]
    torch.testing.assert_close(head(x), golden[f"{case}_logits_tau0.07"] / x.norm(dim=1, keepdim=True))


@pytest.mark.parametrize(
    ("classes", "dim"), [(2, 2), (5, 8), (5, 4), (12, 6), pytest.param(60, 16, marks=pytest.mark.slow)]
)
def test_bases_are_unit_spread_and_repeatable(classes: int, dim: int) -> None:
    basis = equiangular_basis(classes, dim, rows=7)
    torch.testing.assert_close(basis.vectors.norm(dim=1), torch.ones(classes))
    cosines = (basis.vectors @ basis.vectors.T).abs().fill_diagonal_(0)
    assert cosines.max().item() == pytest.approx(basis.largest_cosine, abs=1e-6)
    assert basis.converged
    assert basis.largest_cosine >= welch_bound(classes, dim) - 1e-6
    torch.testing.assert_close(equiangular_basis(classes, dim, rows=1000).vectors, basis.vectors)


def test_without_a_threshold_the_vectors_are_as_orthogonal_as_possible() -> None:
    known = {
        (3, 2): 0.5,  # 60 degrees
        (7, 2): np.cos(np.pi / 7),  # even angles
        (6, 3): 1 / np.sqrt(5),  # the diagonals of an icosahedron
    }
    for (classes, dim), best in known.items():
        assert equiangular_basis(classes, dim).largest_cosine == pytest.approx(best, rel=1e-4)
    basis = equiangular_basis(20, 12)
    assert basis.largest_cosine < 1.05 * 0.1982  # the least of 30 random starts of another optimizer
    assert basis.converged


def test_one_class_more_than_dimensions_reaches_the_bound() -> None:
    assert equiangular_basis(5, 4, threshold=0.25).largest_cosine == pytest.approx(0.25, abs=1e-4)


def test_bases_that_cannot_be_are_refused_and_short_searches_say_so() -> None:
    with pytest.raises(ValueError, match=r"threshold: expected at least 0\.2500 \(Welch's bound"):
        equiangular_basis(5, 4, threshold=0.2)
    assert not equiangular_basis(30, 4, threshold=welch_bound(30, 4) + 0.01, steps=3).converged
    with pytest.raises(ValueError, match=r"embeddings: expected \[b, 4\]"):
        EquiangularHead(3, 4)(torch.ones(2, 3))


@pytest.mark.sweep(3)
@pytest.mark.sweep(9)
@pytest.mark.parametrize(("classes", "dim"), [(30, 4), (25, 3), (12, 2), (60, 6)])
@pytest.mark.parametrize("above", [0.0, 0.05, 0.15])
def test_no_two_classes_share_a_vector_also_where_the_threshold_cannot_be_met(
    classes: int, dim: int, above: float
) -> None:
    """Vectors that have met do not push one another apart any more, so a search could end with equal ones."""
    threshold = welch_bound(classes, dim) + above
    basis = equiangular_basis(classes, dim, threshold=threshold)
    cosines = (basis.vectors.double() @ basis.vectors.double().T).abs().fill_diagonal_(0)
    assert cosines.max() < 1 - 1e-4
    assert cosines.max().item() == pytest.approx(basis.largest_cosine, abs=1e-6)
    assert basis.converged == (basis.largest_cosine <= threshold + 1e-4)
    usual = equiangular_basis(classes, dim).largest_cosine
    assert basis.largest_cosine < usual + 0.1
    if basis.converged:
        assert EquiangularHead(classes, dim, threshold=threshold).largest_cosine == basis.largest_cosine
    else:
        with pytest.raises(ValueError, match=rf"^threshold: expected .*{classes} vectors in {dim} dimensions"):
            EquiangularHead(classes, dim, threshold=threshold)


def test_a_default_threshold_that_cannot_be_met_is_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"two classes have a cosine of 0\.99.* 90 vectors in 2 dimensions"):
        head = EquiangularHead(90, 2)
    assert head.largest_cosine < 1 - 1e-7


def test_the_fixed_head_learns_and_gets_no_gradient(generator: torch.Generator) -> None:
    labels = torch.arange(60) % 6
    x = torch.eye(6)[labels] + 0.1 * torch.randn(60, 6, generator=generator)
    layer, head = torch.nn.Linear(6, 3), EquiangularHead(6, 3)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(head(layer(x)), labels).backward()
        optimizer.step()
    assert (head(layer(x)).argmax(1) == labels).float().mean() > 0.95
    assert head.basis.grad is None
    assert list(head.parameters()) == []
