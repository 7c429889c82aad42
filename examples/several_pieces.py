"""90 % regions of mileage, where neighbors may disagree: of highest density, in pieces, beside one interval.

The cars are known by their horsepower and origin; of them 20 neighbors speak, nearer ones more. Printed are coverage
and mean length on cars held out.
"""

import numpy as np
from sklearn.neighbors import NearestNeighbors

from vicinal.calibration import DensityIntervals, conformal_quantile
from vicinal.data import cars_table

cars = cars_table().dropna().sample(frac=1, random_state=0)
y = cars["mpg"].to_numpy()
x = np.c_[cars["horsepower"] / cars["horsepower"].std(), 2 * (cars["origin"] == "usa")]
far, near = NearestNeighbors(n_neighbors=20).fit(x[:200]).kneighbors(x)
weights = np.zeros((len(x), 200))
np.put_along_axis(weights, near, np.exp(-5 * far), axis=1)
weights /= weights.sum(1, keepdims=True)
judges, new = slice(200, 300), slice(300, None)
regions = DensityIntervals(0.9, width=1.0).fit(weights[judges], y[:200], y[judges]).predict(weights[new], y[:200])
covers = np.mean([any(low <= mpg <= high for low, high in pieces) for pieces, mpg in zip(regions, y[new], strict=True)])
length = np.mean([sum(high - low for low, high in pieces) for pieces in regions])
gap = np.abs(y - weights @ y[:200])
radius = conformal_quantile(gap[judges], 0.9)
lost = " (loses)" if length >= 2 * radius else ""
print(
    f"pieces: cover {covers:.2f}, length {length:.1f}, {np.mean([len(pieces) for pieces in regions]):.1f} a car{lost}"
)
print(f"one interval: covers {np.mean(gap[new] <= radius):.2f}, length {2 * radius:.1f}")
