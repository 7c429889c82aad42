"""Missing numbers: a fifth of the diabetes table is hidden; errors of what is put in, in standard deviations."""

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.experimental import enable_iterative_imputer  # noqa: F401  the import allows the next one
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

from vicinal.data import impute_by_matching

whole = load_diabetes().data
whole = (whole - whole.mean(0)) / whole.std(0)
hidden = np.random.default_rng(0).random(whole.shape) < 0.2
table = np.where(hidden, np.nan, whole)
filled = {
    "column means": SimpleImputer().fit_transform(table),
    "matching of batches": impute_by_matching(table, steps=150),
    "10 nearest rows": KNNImputer(n_neighbors=10).fit_transform(table),
    "chained ridge": IterativeImputer(random_state=0).fit_transform(table),
}
errors = {name: np.sqrt(np.mean((values - whole)[hidden] ** 2)) for name, values in filled.items()}
for name, error in errors.items():
    print(f"{name:20} RMSE {error:.3f}")
best = min(errors, key=errors.get)
print(
    f"{best} wins; of its numbers the spread is {filled[best][hidden].std():.2f}, of those hidden 1, of column means 0"
)
