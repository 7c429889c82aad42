"""Classes found from domains that mix the same unknown classes in different shares (DDFA)."""

from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from vicinal.core import register
from vicinal.core.checks import check_integer, check_tensor

Array = np.ndarray[Any, np.dtype[np.float64]]

_FLAT = 1e-12
"""Squared length of what is left of a bin below which it is nothing but rounding."""


class DomainClasses(NamedTuple):
    """``shares [K, D]`` of the classes in each domain, and ``classes [n, K]``, their probabilities for each row."""

    shares: Tensor
    classes: Tensor


def domain_class_posteriors(posteriors: Tensor, shares: Tensor, domains: Tensor | None = None) -> Tensor:
    r"""Class probabilities of rows from domain probabilities, $p(y \mid x) = P(d \mid y)^{+} \, p(d \mid x)$.

    $P(d \mid y)$ are the shares of a class divided by their sum, for equally likely domains. Within the domain of a
    row, $p(y \mid x, d) \propto p(y \mid x) P(d \mid y)$.

    Args:
        posteriors: $p(d \mid x)$, ``[n, D]``, rows sum to 1.
        shares: $P(y \mid d)$, ``[K, D]``, columns sum to 1; D >= K.
        domains: of the rows, ``[n]``; None: $p(y \mid x)$, which may be below 0 if the posteriors are wrong.

    Returns:
        ``[n, K]``, rows sum to 1.

    >>> shares = torch.tensor([[0.75, 0.25], [0.25, 0.75]])
    >>> domain_class_posteriors(torch.tensor([[0.75, 0.25]]), shares).round(decimals=4).abs()
    tensor([[1., 0.]])
    """
    _check_posteriors(posteriors, len(shares))
    if shares.ndim != 2 or shares.shape[1] != posteriors.shape[1] or not bool((shares >= 0).all()):
        raise ValueError(
            f"shares: expected numbers of at least 0, [K, {posteriors.shape[1]}], got {tuple(shares.shape)}"
        )
    masses = shares.sum(dim=1, keepdim=True)
    if not bool(((masses > 0) & masses.isfinite()).all()):
        raise ValueError("shares: expected finite numbers, and each class in some domain, got others")
    chances = (shares / masses).T  # [D, K]
    classes: Tensor = posteriors @ torch.linalg.pinv(chances).T
    if domains is None:
        return classes
    _check_domains(domains, posteriors)
    inside = classes.clamp(min=0) * chances[domains]
    total = inside.sum(dim=1, keepdim=True)
    return torch.where(total > 0, inside / torch.where(total > 0, total, 1.0), 1 / len(shares))


@register(
    "clustering",
    "ddfa",
    "random",
    paper="arXiv:2207.13179",
    verified="values of the paper's code, but for its factorization; classes that theory says are found",
)
def ddfa(posteriors: Tensor, domains: Tensor, classes: int, *, bins: int | None = None, seed: int = 0) -> DomainClasses:
    r"""Classes that several domains mix in different shares, from a classifier of the domains only (DDFA).

    k-means groups rows by their posteriors into bins, and $P(bin \mid d) = P(bin \mid y) P(y \mid d)$ is factorized by
    successive projection: where each class has a bin of its own, $P(d \mid bin)$ of that bin is $P(d \mid y)$, and
    those of all other bins are means of these, so the K farthest from one another are the classes
    (arXiv:1208.1237). :func:`domain_class_posteriors` gives the classes of rows. Classes are found up to their order,
    with an error that goes to 0 with the number of rows if each class has a bin of its own. (The paper's code has a
    nonnegative matrix factorization there, which need not find them even then.)

    Args:
        posteriors: $p(d \mid x)$, ``[n, D]``, of any calibrated classifier of domains.
        domains: 0 to D - 1, ``[n]``, each occurring.
        classes: K, at most D.
        bins: at least K; None: ten times K, at most the number of different posteriors.
        seed: of k-means.

    Raises:
        ValueError: for fewer domains or different posteriors than classes, a domain without rows, or posteriors that do
            not sum to 1.

    >>> rows = torch.tensor([[0.9, 0.1], [0.1, 0.9]]).repeat(10, 1)
    >>> ddfa(rows, torch.tensor([0, 1]).repeat(10), 2, bins=2).shares.shape
    torch.Size([2, 2])
    """
    from sklearn.cluster import KMeans  # takes a while to import

    check_integer("classes", classes, 2)
    _check_posteriors(posteriors, classes)
    _check_domains(domains, posteriors)
    count = posteriors.shape[1]
    present = torch.bincount(domains, minlength=count)
    if bool((present == 0).any()):
        raise ValueError(
            f"domains: expected rows of each domain, got none of domain {int((present == 0).nonzero()[0])}"
        )
    places = posteriors.double().numpy(force=True)
    different = len(np.unique(places.round(9), axis=0))  # others differ by rounding
    if different < classes:
        raise ValueError(f"posteriors: expected at least {classes} different rows, one a class, got {different}")
    bins = min(10 * classes, different) if bins is None else check_integer("bins", bins, classes, different)
    groups = KMeans(bins, n_init=10, random_state=check_integer("seed", seed, 0)).fit_predict(places)
    counts = np.zeros((bins, count))
    np.add.at(counts, (groups, domains.numpy(force=True)), 1)
    mixed = torch.from_numpy(_shares(counts / counts.sum(axis=0), classes)).to(posteriors)
    return DomainClasses(mixed, domain_class_posteriors(posteriors, mixed, domains))


def _shares(bins: Array, classes: int) -> Array:
    r"""$P(y \mid d)$, ``[K, D]``, from $P(bin \mid d)$, ``[bins, D]``, by successive projection."""
    mass = bins.sum(axis=1)
    rows = bins / mass[:, None]  # P(d | bin)
    left, corners = rows.copy(), []
    for number in range(classes):
        lengths = np.square(left).sum(axis=1)
        corners.append(int(lengths.argmax()))
        if lengths.max() < _FLAT:
            raise ValueError(f"classes: expected at most {number}, as many as the bins show, got {classes}")
        direction = left[corners[-1]] / np.sqrt(lengths.max())
        left = left - np.outer(left @ direction, direction)
    of_domains = rows[corners]  # [K, D], P(d | y)
    of_bins = np.array([nnls(of_domains.T, row)[0] for row in rows])  # [bins, K], P(y | bin)
    shares = (mass @ of_bins)[:, None] * of_domains
    total = shares.sum(axis=0)
    return np.where(total > 0, shares / np.where(total > 0, total, 1.0), 1 / classes)


def _check_posteriors(posteriors: Tensor, classes: int) -> None:
    if check_tensor("posteriors", posteriors).ndim != 2 or not posteriors.is_floating_point():
        raise ValueError(f"posteriors: expected floating numbers [n, D], got {tuple(posteriors.shape)}")
    if not bool((posteriors >= 0).all()) or not bool(((posteriors.sum(dim=1) - 1).abs() < 1e-3).all()):
        raise ValueError("posteriors: expected rows of at least 0 that sum to 1, got others")
    if posteriors.shape[1] < classes:
        raise ValueError(f"classes: expected at most as many as domains, {posteriors.shape[1]}, got {classes}")


def _check_domains(domains: Tensor, posteriors: Tensor) -> None:
    if domains.shape != posteriors.shape[:1] or domains.is_floating_point():
        raise ValueError(f"domains: expected whole numbers [{len(posteriors)}], got {tuple(domains.shape)}")
    if len(domains) and not 0 <= int(domains.min()) <= int(domains.max()) < posteriors.shape[1]:
        raise ValueError(f"domains: expected 0 to {posteriors.shape[1] - 1}, got others")
