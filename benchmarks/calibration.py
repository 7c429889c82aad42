"""How well intervals and sets cover: every regression set, constructed shifts, drift, abstaining, groups.

Frozen vectors as benchmarks/nona/sets.py makes them (run that first); two neighbor members and two dense members a
split, settings as in benchmarks/nona/default.py. Figures are appended to one file, set by set; what is there is kept.

    python benchmarks/calibration.py --cache runs/nona --out benchmarks/results/calibration.csv

With --others --store runs/classes: drift, groups, and what needs the probabilities that class_heads.py keeps there.
"""

import argparse
import time
from pathlib import Path

import torch
from calibration_classes import label_shift, plain_sets, rejection
from calibration_drift import drift
from calibration_groups import groups
from calibration_intervals import intervals
from calibration_models import ROWS, Figures, folds
from calibration_public import SETS as PUBLIC
from calibration_public import public
from calibration_shift import shifted
from sets import SETS


def regression(figures: Figures, names: list[str], cache: Path, rows: int) -> None:
    """Intervals without and with shift, on every set."""
    for name in names:
        if figures.has("intervals", name) and figures.has("shift", name):
            continue
        started = time.process_time()
        made = folds(name, cache, rows=rows)
        for experiment, measure in (("intervals", intervals), ("shift", shifted)):
            if not figures.has(experiment, name):
                lines = [line for fold in made for line in measure(fold)]
                figures.add([{"experiment": experiment, "set": name, **line} for line in lines])
        print(f"{name}: {time.process_time() - started:.0f} s", flush=True)


def others(figures: Figures, cache: Path, store: Path | None) -> None:
    """Drift, groups, and what needs the probabilities of benchmarks/class_heads.py."""
    wanted = {("drift", stream): lambda s: drift(s, cache, keep=store) for stream in ("domains", "growing noise")}
    wanted |= {("public", name): lambda s: public(s, cache) for name in PUBLIC}
    wanted[("groups", "all domains")] = lambda s: groups(cache, tweets_only=False)
    wanted[("groups", "tweets only")] = lambda s: groups(cache, tweets_only=True)
    for name in ("fsdd", "signs", "mnist", "feelings") if store else ():
        for experiment, measure in (("classes", plain_sets), ("label shift", label_shift), ("rejection", rejection)):
            wanted[(experiment, name)] = lambda s, measure=measure: measure(s, store)
    for (experiment, name), measure in wanted.items():
        if not figures.has(experiment, name):
            figures.add([{"experiment": experiment, "set": name, **row} for row in measure(name)])
            print(f"{experiment}, {name}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument("--rows", type=int, default=ROWS, help="at most so many rows of a set")
    parser.add_argument("--others", action="store_true", help="drift, groups and classes in place of the intervals")
    parser.add_argument("--store", type=Path, help="folder of benchmarks/class_heads.py; keeps one stream for the plot")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    if given.others:
        others(Figures(given.out), given.cache, given.store)
    else:
        regression(Figures(given.out), given.sets, given.cache, given.rows)


if __name__ == "__main__":
    main()
