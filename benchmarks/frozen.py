"""The default on frozen vectors of texts, photos and sounds, beside ridge, kernel ridge, support vectors and k-NN.

Each rival is tuned by cross-validation on all rows that the default gets, of which the default holds the validation
rows out. Errors are in units of the variance of those rows' labels. Lines that are there are not run again.

    python benchmarks/nona_sets.py --data ../shared/data --cache runs/nona
    python benchmarks/frozen.py --cache runs/nona --splits 5
"""

import time
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from nona_sets import SETS, RegressionSet, load
from resumable import RESULTS, Lines, asked

from vicinal import NeighborRegressor
from vicinal.data import Split
from vicinal.evaluation import tuned_baselines
from vicinal.evaluation.tuned import NUMBERS

EXPERTS = tuple(f"tuned {name}" for name in NUMBERS)


def measure(data: RegressionSet, split: Split, method: str) -> dict[str, float]:
    """Error on the test rows and seconds; of the default coverage and width of its intervals, too."""
    known, test, labels = np.concatenate([split.train, split.validation]), split.test, data.labels
    groups = data.groups if len(np.unique(data.groups)) < len(data.groups) else None
    unit, started = labels[known].var(), time.process_time()
    if method in EXPERTS:
        wanted = {"groups": None if groups is None else groups[known], "methods": [method.removeprefix("tuned ")]}
        guess = tuned_baselines(data.features[known], labels[known], data.features[test], **wanted)[0].prediction
        line = {"fit_s": time.process_time() - started}
    else:
        frame = pd.DataFrame({"vector": list(data.features)})
        known_groups, test_groups = (
            {} if groups is None else {"groups": groups[rows].tolist()} for rows in (known, test)
        )
        held_out = np.arange(len(split.train), len(known))
        model = NeighborRegressor(columns={"vector": "vector"}, metric="network")
        model.fit(frame.iloc[known], labels[known], validation=held_out, **known_groups)
        line = {"fit_s": time.process_time() - started}
        guess = model.predict(frame.iloc[test], **test_groups)
        low, high = model.predict_interval(frame.iloc[test], 0.9, **test_groups).T
        line |= {"covered": np.mean((low <= labels[test]) & (labels[test] <= high))}
        line |= {"width": np.mean(high - low) / np.sqrt(unit)}
    return line | {"error": np.mean((guess - labels[test]) ** 2) / unit}


def main() -> None:
    """Measure what is not in the CSV yet."""
    given = asked(__doc__, cache=Path, out=RESULTS / "experts.csv", sets=list(SETS), splits=5)
    lines = Lines(given.out, "set", "split", "method")
    for name, number, method in product(given.sets, range(given.splits), ("auto", *EXPERTS)):
        if (name, number, method) not in lines:
            data = load(name, given.cache)
            line = {"set": name, "split": number, "method": method, "error": None, "covered": None, "width": None}
            lines.add([line | measure(data, data.splits(number + 1)[number], method)])


if __name__ == "__main__":
    main()
