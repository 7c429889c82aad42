"""How a class is said where rows may have several: one threshold a class, one for all, or between the two.

    python benchmarks/several_thresholds.py --data ../shared/data --movielens recbole-1.2.1-py3-none-any.whl
    python benchmarks/several_thresholds.py   # the table of docs/results/several-classes.md

The sets, splits, settings and seeds of benchmarks/several_classes.py, and two more splits. A rule is applied to the
probabilities of rows held out, and measured on the test rows. Probabilities of a set and split are kept in --out, and
scores go to benchmarks/results/several-thresholds.csv. With t_k the threshold of highest F1 of class k, t that of all
classes together, and n_k the rows held out that have it, shrunk thresholds are (n_k t_k + c t) / (n_k + c).
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from several_classes import movies, tags

from vicinal.calibration import f1_thresholds
from vicinal.evaluation import several_scores, tuned_baselines
from vicinal.evaluation.scores import several_hot
from vicinal.workflows.measuring import classes_among, untuned_features
from vicinal.workflows.opening import TableJob, draw_splits, fit_split, make_estimator, open_table

RESULTS = Path(__file__).parent / "results" / "several-thresholds.csv"
PAGE = Path(__file__).parents[1] / "docs" / "results" / "several-classes.md"


def each(chances, labels, least):
    """The threshold of each class that has so many rows, that of all together for the others."""
    together = f1_thresholds(chances.reshape(-1, 1), labels.reshape(-1, 1))[0]
    counts = labels.sum(0)
    own = [
        f1_thresholds(chances[:, [k]], labels[:, [k]])[0] if counts[k] >= max(least, 1) else together
        for k in range(labels.shape[1])
    ]
    return np.array(own), together, counts


def one_a_class(chances, labels):
    own, _, _ = each(chances, labels, 10)
    return own


def one_for_all(chances, labels):
    _, together, counts = each(chances, labels, 1)
    return np.full(len(counts), together)


def shrunk(weight):
    def rule(chances, labels):
        own, together, counts = each(chances, labels, 1)
        return (counts * own + weight * together) / (counts + weight)

    return rule


RULES = {
    "one a class, of at least 10 rows": one_a_class,
    "one for all classes": one_for_all,
    "shrunk, c = 10": shrunk(10),
    "shrunk, c = 30": shrunk(30),
    "shrunk, c = 100": shrunk(100),
    "0.5": lambda chances, labels: np.full(labels.shape[1], 0.5),
}


def probabilities(name, table, split, out):
    """Of the rows held out and of the test rows, by the default and by logistic regression, with their labels."""
    kept = out / f"{name}-{split}.npz"
    if kept.is_file():
        return dict(np.load(kept))
    kind = {"text": "text"} if name == "tags" else {"fans": "vector"}
    encoders = {"text": "minilm"} if name == "tags" else None
    job = TableJob(source=table, target="classes", id="id", kinds=kind, name=name)
    parameters = {"cache_dir": out / "cache", "encoders": encoders}
    opened = open_table(job)
    drawn = draw_splits(opened.table, job, split + 1)[split]
    model = make_estimator(opened, replace(job, parameters=parameters | {"random_state": drawn.seed}))
    fit_split(model, opened, drawn)
    found, classes = {}, model.classes_.tolist()
    for what, rows in (("held_out", drawn.validation), ("test", drawn.test)):
        part = opened.table.select(rows)
        found[f"nona {what}"] = model.predict_proba(part.frame[list(opened.kinds)], ids=part.ids)
        found[f"labels {what}"] = several_hot(part.target, classes)[0]
    rows = np.concatenate([drawn.train, drawn.validation])
    features, target = untuned_features(model, opened, rows, drawn.test), opened.table.target[rows]
    named = {"classes": classes_among(target, opened.table), "methods": ["logistic regression"]}
    assert named["classes"] == classes
    found["logistic regression held_out"] = tuned_baselines(features[0], target, None, **named)[0].prediction
    found["logistic regression test"] = tuned_baselines(features[0], target, features[1], **named)[0].prediction
    found["labels folds"] = several_hot(target, classes)[0]
    np.savez(kept, **found)
    return found


def scores(found, method, thresholds):
    """Micro and macro F1 on the test rows."""
    truth, chances = found["labels test"], found[f"{method} test"]
    names = [str(k) for k in range(truth.shape[1])]
    sets = np.empty(len(truth), dtype=object)
    sets[:] = [tuple(names[k] for k in np.flatnonzero(row)) for row in truth]
    return several_scores(sets, chances, names, thresholds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with retrieval/")
    parser.add_argument("--movielens", type=Path, help="wheel of recbole")
    parser.add_argument("--out", type=Path, default=Path("runs/several-thresholds"))
    parser.add_argument("--splits", type=int, default=5)
    given = parser.parse_args()
    lines = []
    if given.data is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        for split in range(given.splits):
            for name, table in (("movies", movies(given.movielens)), ("tags", tags(given.data))):
                found = probabilities(name, table, split, given.out)
                for method, known in (("nona", "labels held_out"), ("logistic regression", "labels folds")):
                    for rule, choose in RULES.items():
                        thresholds = choose(found[f"{method} held_out"], found[known])
                        line = {"set": name, "split": split, "method": method, "rule": rule}
                        lines.append(line | scores(found, method, thresholds))
                        pd.DataFrame(lines).to_csv(RESULTS, index=False, float_format="%.6g")
                print(name, split, flush=True)
        print(summary(pd.read_csv(RESULTS)))
    else:
        write_page()


def summary(known):
    """Means by set, method and rule: on the splits of the page, and on those that came later; in Markdown."""
    lines = ["| | rule | micro F1 | macro F1 | micro F1, splits 4 and 5 | macro F1, splits 4 and 5 |"]
    lines += ["|" + " --- |" * 6]
    for (name, method, rule), part in known.groupby(["set", "method", "rule"], sort=False):
        first, later = (part[part["split"].isin(some)] for some in (range(3), (3, 4)))
        cells = [f"{some[what].mean():.3f}" for some in (first, later) for what in ("micro_f1", "macro_f1")]
        lines.append(f"| {name}: {method} | {rule} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write_page():
    """The table of the page anew."""
    before, rest = PAGE.read_text().split("<!-- thresholds -->", 1)
    after = rest.split("<!-- end of thresholds -->", 1)[1]
    table = summary(pd.read_csv(RESULTS))
    PAGE.write_text(f"{before}<!-- thresholds -->\n\n{table}\n\n<!-- end of thresholds -->{after}")


if __name__ == "__main__":
    main()
