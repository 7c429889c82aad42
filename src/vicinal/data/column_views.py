"""Two views of each row of a table, made by hiding columns, for learning without labels."""

from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vicinal.core import check_choice


def mutual_information(table: "pd.DataFrame | NDArray[Any]") -> NDArray[np.float64]:
    r"""Mutual information of each pair of categorical columns, in nats; their entropies are on the diagonal.

    $I(A, B) = \sum_{a, b} p_{ab} \ln \frac{p_{ab}}{p_a p_b}$ with p shares of the rows; a missing value is a category.
    Cut columns of numbers into classes first, for example by ``pandas.qcut``.

    Args:
        table: ``[n, k]``, n >= 1, any cells that can be compared for equality.

    Returns:
        ``[k, k]``, symmetric, >= 0.

    Paper: Self-supervised Learning for Large-scale Item Recommendations, arXiv:2007.12865.

    >>> mutual_information(np.array([[0, 0, 5], [1, 1, 5]])).round(4).tolist()
    [[0.6931, 0.6931, 0.0], [0.6931, 0.6931, 0.0], [0.0, 0.0, 0.0]]
    """
    frame = pd.DataFrame(table)
    if not len(frame):
        raise ValueError("table: expected at least one row, got none")
    codes = [pd.factorize(frame.iloc[:, place], use_na_sentinel=False)[0] for place in range(frame.shape[1])]
    alone = [_entropy(code) for code in codes]
    values = np.diag(np.array(alone, dtype=np.float64))
    for i, one in enumerate(codes):
        for j, other in enumerate(codes[:i]):
            both = _entropy(one * (int(other.max()) + 1) + other)
            values[i, j] = values[j, i] = max(0.0, alone[i] + alone[j] - both)
    return values


def _entropy(codes: NDArray[Any]) -> float:
    share = np.unique(codes, return_counts=True)[1] / len(codes)
    return max(0.0, -float((share * np.log(share)).sum()))


def hidden_columns(
    information: NDArray[np.float64],
    generator: np.random.Generator,
    *,
    how: Literal["correlated", "complement", "independent"] = "correlated",
    with_seed: bool = False,
) -> NDArray[np.bool_]:
    """Which columns each of two views hides (correlated feature masking).

    A column c is drawn; the first view hides the half of the columns that say most about c, the second all others. So
    what a view hides cannot be read off a column that it shows, and a network has to learn how columns depend on each
    other. Encode hidden cells as missing ones, and train the rows of one view against those of the other with any pair
    loss, such as ``losses.nt_xent``.

    Args:
        information: symmetric ``[k, k]``, k >= 2, from :func:`mutual_information`; its diagonal is not read.
        generator: of numpy, draws c or random halves.
        how: "correlated"; or random halves, the second the "complement" of the first or "independent".
        with_seed: whether c itself counts as the column that says most about c, as in the paper; the authors' code
            hides floor(k / 2) others.

    Returns:
        boolean ``[2, k]``, True where hidden; floor(k / 2) in the first view.

    Paper: arXiv:2007.12865.

    >>> hidden_columns(np.ones((4, 4)), np.random.default_rng(0)).sum(axis=0).tolist()
    [1, 1, 1, 1]
    """
    check_choice("how", how, ("correlated", "complement", "independent"))
    information = np.asarray(information, dtype=np.float64)
    count = len(information)
    if information.shape != (count, count) or count < 2:
        raise ValueError(f"information: expected [k, k] with k of at least 2, got {information.shape}")
    first = np.zeros(count, bool)
    if how == "correlated":
        seed = int(generator.integers(count))
        score = information[seed].copy()
        score[seed] = np.inf if with_seed else -np.inf
        first[np.argsort(-score, kind="stable")[: count // 2]] = True
    else:
        first[generator.permutation(count)[: count // 2]] = True
    second = ~first
    if how == "independent":
        second = np.zeros(count, bool)
        second[generator.permutation(count)[: count // 2]] = True
    return np.stack([first, second])
