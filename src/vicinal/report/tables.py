"""Records as rows of text and as sentences, for the terminal, the page and the card."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from vicinal.metrics.predictions import PRIMARY, PRIMARY_OF_SEVERAL, RANKED
from vicinal.report.audit_records import AuditRecord
from vicinal.report.records import CompareRecord, Doubted, FitRecord, Verdict
from vicinal.report.text import TIMES, change_cell, metric_name, number, one_line, score, score_table, signed_percent

RAW = " (raw features)"
"""How names of baselines end that learn from the features before any training."""

_METHODS = {
    "mean": {"regression": "mean of the training rows", "classification": "class shares of the training rows"},
    "knn": {"regression": "k-NN (learned embeddings)", "classification": "k-NN (learned embeddings)"},
    "ridge": {"regression": f"ridge{RAW}", "classification": f"linear model{RAW}"},
}


def method_name(method: str, record: FitRecord | AuditRecord) -> str:
    """Display name of ``method`` of a fit or an audit."""
    if method == "model":
        return "this model"
    return _METHODS.get(method, {}).get(record.task, one_line(method, 40))


def fit_table(record: FitRecord | AuditRecord) -> list[list[str]]:
    """Scores of a fit on test rows, or of an audit, as rows of text, the header first, this model second.

    >>> record = FitRecord("d", "y", "regression", scores={"model": {"mse": 0.025}, "mean": {"mse": 0.1}})
    >>> fit_table(record)
    [['', 'MSE'], ['this model', '0.025'], ['mean of the training rows', '0.1']]
    """
    each = record.scores if isinstance(record, FitRecord) else {"model": record.scores, **record.baselines}
    heads, *rows = score_table(each, score)
    ordered = sorted(rows, key=lambda row: row[0] != "model")
    return [heads, *([method_name(method, record), *cells] for method, *cells in ordered)]


CLASS_HEADINGS = ["class", "rows", "said", "threshold", "precision", "recall", "F1", "average precision"]


def class_rows(by_class: Mapping[str, Mapping[str, float]]) -> list[list[str]]:
    """For several classes per row, a table row for each class with the ``CLASS_HEADINGS``, the most frequent first."""
    ordered = sorted(by_class.items(), key=lambda one: -one[1]["rows"])
    shown_of = ("threshold", "precision", "recall", "f1", "average_precision")
    return [
        [one_line(name, 60), f"{values['rows']:,.0f}", f"{values['said']:,.0f}"]
        + ["" if math.isnan(values[key]) else number(values[key], 2) for key in shown_of]
        for name, values in ordered
    ]


def main_metric(record: FitRecord) -> str:
    """The metric for sentences: MSE, accuracy or (several classes per row) micro F1, else the model's first."""
    usual = RANKED if RANKED in record.scores["model"] else PRIMARY[record.task]
    usual = PRIMARY_OF_SEVERAL if record.several else usual
    return usual if usual in record.scores["model"] else next(iter(record.scores["model"]), "")


def findings(record: FitRecord) -> list[str]:
    """The verdict, or without one the main score, and the error out of fold."""
    metric = main_metric(record)
    if not metric:
        return []
    name = "it" if metric == "accuracy" else f"the {metric_name(metric)}"
    count, scores = record.split_sizes.get("test", len(record.truth)), record.scores["model"]
    where = f"on {count:,} test rows" if count else "on the test rows"
    said = [verdict_sentence(record) or f"{metric_name(metric)} {number(scores[metric])} {where}."]
    if count and metric in record.out_of_fold:
        said.append(f"Out of fold, each row predicted without itself, {name} is {number(record.out_of_fold[metric])}.")
    return said


def verdict_sentence(record: FitRecord) -> str:
    """How good the model is, in three short sentences with their uncertainty; "" if that is not known.

    >>> verdict = Verdict(89, Doubted(38.2, 32.0, 44.1), "ridge", 3, Doubted(0.047, -0.06, 0.16))
    >>> print(verdict_sentence(FitRecord("d", "y", "regression", scores={"model": {}}, verdict=verdict)))
    Median absolute error 38.2 (95 % CI 32-44.1) on 89 test rows. MSE 4.7 % above the best of 3 baselines, ridge \
(CI -6 to +16 %: not significant).
    """
    verdict = record.verdict
    if verdict is None:
        return ""
    if RANKED in record.scores["model"]:
        return _ranked_sentence(record, verdict)
    numbers, typical = record.task == "regression", verdict.typical
    name = "Median absolute error" if numbers else "Micro F1" if record.several else "Accuracy"
    where = "test rows" if record.split_sizes.get("test", 1) else "rows, out of fold"
    shown: Callable[[float], str] = partial(number, digits=3) if numbers else _shown_share
    doubt = f" (95 % CI {_span(typical, shown)})" if math.isfinite(typical.low) else ""
    few = "" if math.isfinite(typical.low) else ": too few rows to say how sure this is"
    said = [f"{name} {shown(typical.value)}{doubt} on {verdict.rows:,} {where}{few}."]
    if verdict.change is not None:
        said.append(_beside(record, verdict, verdict.change))
    if verdict.covered is not None:
        what = "intervals" if numbers else "sets of classes"
        doubt = f" ({_span(verdict.covered, _shown_share)})" if math.isfinite(verdict.covered.low) else ""
        said.append(f"90 % {what} cover {_shown_share(verdict.covered.value)}{doubt}.")
    return " ".join(said)


def _ranked_sentence(record: FitRecord, verdict: Verdict) -> str:
    """The same of rows that are ranked within queries."""
    typical, change = verdict.typical, verdict.change
    doubt = f" (95 % CI {number(typical.low, 3)}-{number(typical.high, 3)})" if math.isfinite(typical.low) else ""
    said = f"nDCG@10 is {number(typical.value, 3)}{doubt} over {verdict.rows:,} test queries."
    if change is None:
        return said
    name = method_name(verdict.best, record).removesuffix(RAW)
    name += f", the best of {verdict.others} baselines" if verdict.others > 1 else ""
    gap = f"{abs(change.value):.3f} {'above' if change.value > 0 else 'below'} {name}"
    if math.isfinite(change.low):
        unclear = ": not significant" if change.low <= 0 <= change.high else ""
        gap += f" (CI {change.low:+.3f} to {change.high:+.3f}{unclear})"
    return f"{said} That is {gap}."


def _beside(record: FitRecord, verdict: Verdict, change: Doubted) -> str:
    """The sentence on the best baseline: how far the model's error, or F1, is above or below its."""
    best = method_name(verdict.best, record).removesuffix(RAW)
    among = f"the best of {verdict.others} baselines, {best}" if verdict.others > 1 else f"the baseline, {best}"
    measure = "MSE" if record.task == "regression" else "Micro F1" if record.several else "Error rate"
    unit = " %" if record.task == "regression" else " points"
    if not math.isfinite(change.value):
        return f"{measure} cannot be compared with {among}."
    size = signed_percent(abs(change.value)).lstrip("+") + unit
    side = f"{'1 point' if size == '1 points' else size} {'above' if change.value > 0 else 'below'}"
    ends = f"{signed_percent(change.low)} to {signed_percent(change.high)}{unit}"
    if record.task == "regression" and change.value >= TIMES:
        side = f"{change_cell(change.value)} that of"
        ends = f"{number(1 + change.low, 3)} to {number(1 + change.high, 3)} times"
    said = f"{measure} {side if change.value else 'equal to'} {among}"
    if not math.isfinite(change.low) or change.low == change.high:
        return f"{said}."
    behind = change.value < 0 if record.several else change.value > 0
    clear = change.low > 0 or change.high < 0
    return f"{said} (CI {ends}{f': {best} is better' if clear and behind else '' if clear else ': not significant'})."


def _shown_share(value: float) -> str:
    return f"{100 * value:.0f} %"


def _span(figure: Doubted, shown: Callable[[float], str]) -> str:
    return f"{shown(figure.low).removesuffix(' %')}-{shown(figure.high).removesuffix(' %')}"


_IMPORTANT = 12
"""Columns whose share is shown one by one."""


def importance_rows(importance: Mapping[str, float]) -> list[tuple[str, float]]:
    """Columns and their shares, the largest first; beyond 12 those of least share together.

    >>> importance_rows({"bmi": 0.7, "age": 0.3})
    [('bmi', 0.7), ('age', 0.3)]
    """
    ranked = sorted(((one_line(name, 60), share) for name, share in importance.items()), key=lambda one: -one[1])
    if len(ranked) <= _IMPORTANT + 1:
        return ranked
    rest = ranked[_IMPORTANT:]
    return [*ranked[:_IMPORTANT], (f"{len(rest)} more columns", sum(share for _, share in rest))]


def importance_sentence(record: FitRecord) -> str:
    """What the shares are of."""
    if record.importance_by == "trend":
        what = "what each column adds to the trend, without its sign, on average over the rows of the bank"
    else:
        what = "the mean squared distance between two rows of the bank that each column makes"
    return f"Shares of {what}. They say what the model uses, not what causes {one_line(record.target_name, 60)}."


def mean_of(record: FitRecord) -> str:
    """The kind of mean of labels that a prediction is."""
    scale = str(record.settings.get("target_transform"))
    return {"log": "geometric mean", "rank": "mean (by normal scores)", "link": "mean (under a link)"}.get(
        scale, "mean"
    )


def _added(record: FitRecord) -> str:
    """What a constant does to that mean."""
    constant, scale = float(record.settings["constant"]), record.settings.get("target_transform")
    return f"times {math.exp(constant):.4g}" if scale == "log" else f"and {constant:.4g}"


def limits(record: FitRecord) -> list[str]:
    """Sentences on the limits of the model, which its scores do not show."""
    said = []
    if str(record.settings.get("head", "nona")).startswith("nona"):
        signed = (
            record.task == "regression"
            and record.settings.get("readout") == "dense"
            and record.settings.get("target_transform") != "rank"
        )
        said.append(
            _limit_of_comparables(record)
            if record.settings.get("readout") == "comparables"
            else f"A prediction is a weighted {mean_of(record)} of labels in the bank, with weights that may be below "
            "0, so it may leave their range; rows unlike all of the bank still get a prediction."
            if signed
            else f"A prediction is a weighted {mean_of(record)} of labels in the bank, {_added(record)}; rows "
            "unlike all of the bank still get a prediction."
            if record.settings.get("constant")
            else f"A prediction is a weighted {mean_of(record)} of labels in the bank, so it never leaves their range; "
            "rows unlike all of the bank still get a prediction."
            if record.task == "regression"
            else "The probability of a class is the weight of the bank rows that have it: one that is not there has "
            "probability 0."
            if record.several
            else "The score of a class is the sum of the weights of its rows in the bank, some of them below 0, and of "
            "the trend by columns, if there is one; its probability rises with it, and rows unlike all of the bank "
            "still get a class."
            if record.settings.get("target_transform") == "softmax"
            else "The score of a class is the weight of the bank rows that have it, moved by what a trend says of the "
            "difference by columns; its probability rises with it."
            if record.settings.get("target_transform") == "power"
            else "Probabilities are weighted shares of labels in the bank: a class that is not there has probability 0."
        )
        said.append(
            "Weights and contributions are the head's exact arithmetic. They do not say why the encoder takes two "
            "rows to be alike."
        )
        said.append(
            "forget removes a row from every prediction at once, but the trained encoder has still seen it; to undo "
            "that too, fit again without the row."
        )
    said.append(
        "The report shows, and the model folder stores, rows of the training data: share them only as the data may be "
        "shared."
    )
    if record.split_sizes.get("test", 1) or not record.out_of_fold:
        said.append(
            "The scores come from one split. vicinal compare gives mean and deviation over several, with a test."
        )
    else:
        said.append(
            "No row was kept for a test: the scores are those of single members on rows that these never saw"
            + (
                ", less what averaging over all members gains, which their disagreement tells."
                if record.task == "regression"
                else ". The whole model should do a little better."
            )
        )
    return said


def _limit_of_comparables(record: FitRecord) -> str:
    """What bounds a prediction of comparables."""
    rows = record.settings.get("neighbors")
    few = f"at most {rows}" if isinstance(rows, int) else "a few"
    leaves = {
        "rank": "it never leaves the range of the labels",
        "log": "its logarithm leaves the range of those of the labels by at most a quarter of it",
    }.get(str(record.settings.get("target_transform")), "it leaves the range of the labels by at most half of it")
    return (
        f"A prediction is a weighted {mean_of(record)} of labels of {few} rows, each adjusted by a trend by columns, "
        f"and the trend itself, which is all that is left for rows unlike all of the bank; {leaves}."
    )


def mean_and_deviation(values: Sequence[float], scale: float = 1.0) -> tuple[float, float | None]:
    """Mean and sample deviation (None for a single value), both times ``scale``."""
    scaled = scale * np.asarray(values, dtype=float)
    return float(scaled.mean()), float(scaled.std(ddof=1)) if len(scaled) > 1 else None


def against_reference(record: CompareRecord, dataset: str, method: str) -> tuple[float | None, tuple[int, int]] | None:
    """Relative change of the mean (None from 0), and in how many of all splits the method is better.

    None for the reference itself, or if one of the two is missing.
    """
    results = record.results[dataset]
    if method == record.reference or record.reference not in results or method not in results:
        return None
    values, base = (np.asarray(results[name], dtype=float) for name in (method, record.reference))
    better = values > base if record.higher_is_better else values < base
    return float(values.mean() / base.mean()) - 1 if base.mean() else None, (int(better.sum()), len(values))


def spread(values: Sequence[float], scale: float) -> str:
    """Mean +- deviation, with 1 decimal for means from 10 on, 2 from 1 on, else 4.

    >>> spread([0.001, 0.002], 1000)
    '1.50 +- 0.71'
    """
    mean, deviation = mean_and_deviation(values, scale)
    decimals = 1 if abs(mean) >= 10 else 2 if abs(mean) >= 1 else 4
    shown = f"{mean:,.{decimals}f}"
    return shown if deviation is None else f"{shown} +- {deviation:,.{decimals}f}"
