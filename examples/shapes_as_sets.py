"""Digits as sets of their dark pixels, places alone: log-loss and share wrong by encoders of sets that train nothing.

Moments know where the ink lies and how widely; quantiles along directions know the shape.
"""

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss

from vicinal import NeighborClassifier

images, y = load_digits(return_X_y=True)
sets = pd.DataFrame({"pixels": [np.argwhere(one.reshape(8, 8) > 8).astype(float).tolist() for one in images[:900]]})
train, test = slice(0, 600), slice(600, 900)
for name in ("moments", "sliced"):
    model = NeighborClassifier(metric="kernel", encoders={"pixels": f"{name}:vectors"}, random_state=0)
    model.fit(sets[train], y[train])
    shares = model.predict_proba(sets[test])
    wrong = (model.classes_[shares.argmax(1)] != y[600:900]).mean()
    print(f"{name}: log-loss {log_loss(y[600:900], shares, labels=model.classes_):.2f}, {wrong:.1%} wrong")
