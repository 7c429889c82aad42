"""The page of an audit: where the model errs, whether its intervals hold, and what is wrong with its data."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vicinal.calibration import area_under_selective_curve, selective_curve
from vicinal.core.files import replace_text
from vicinal.metrics.predictions import HIGHER_IS_BETTER, PRIMARY, PRIMARY_OF_SEVERAL
from vicinal.report import figures
from vicinal.report.audit_records import AuditRecord, Suspect
from vicinal.report.page import scatter, several_reliability, sureness
from vicinal.report.tables import CLASS_HEADINGS, class_rows, fit_table
from vicinal.report.text import clean, metric_name, number, one_line, percent, score
from vicinal.report.theme import (
    ACCENT,
    SOFT,
    WARM,
    Picture,
    blank,
    picture,
    rendered,
    shown,
    style,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_audit_page(record: AuditRecord, path: str | os.PathLike[str]) -> Path:
    """Write the page of ``record`` to ``path``, whole or not at all, and return the path."""
    table, worth = fit_table(record), worth_checking(record.suspects)
    headings, *suspects = suspect_rows(worth, several=record.several)
    page = rendered(
        "audit.html",
        record,
        error=error_name(record),
        class_headings=CLASS_HEADINGS,
        by_class=class_rows(record.by_class),
        beside=table[1:],
        metrics=table[0][1:],
        findings=audit_findings(record),
        periods=[period_cells(period) for period in record.periods],
        coverage=[_level(level) for level in record.coverage],
        groups=fairness_cells(record.fairness),
        sets=[(name, percent(v["covered"]), number(v["size"], 3)) for name, v in record.class_sets.items()],
        hubs=[[shown(hub.row), _label(hub.label), hub.served, percent(hub.weight), hub.shown] for hub in record.hubs],
        suspect_headings=[*headings, "content"],
        suspects=[[*cells, one.shown] for cells, one in zip(suspects, worth, strict=True)],
        suspicious=suspects_sentence(record.suspects, record.worth_checking, record.expected_wrong),
        label=_label,
        pictures=list(_pictures(record)),
    )
    return replace_text(path, page)


def error_name(record: AuditRecord) -> str:
    """Name of the error that is averaged over rows."""
    return "mean squared error" if record.task == "regression" else "Hamming loss" if record.several else "share wrong"


def score_sentence(record: AuditRecord) -> str:
    """The scores of the model, and the main one of the best baseline, if there are baselines."""
    said = ", ".join(f"{metric_name(metric)} {score(value)}" for metric, value in record.scores.items())
    metric = PRIMARY_OF_SEVERAL if record.several else PRIMARY[record.task]
    scored = {name: values[metric] for name, values in record.baselines.items() if metric in values}
    if not scored:
        return f"{said}."
    best = (max if HIGHER_IS_BETTER[metric] else min)(scored, key=lambda name: scored[name])
    return (
        f"{said}. Best of {len(scored)} baselines: {one_line(best, 40)}, {metric_name(metric)} {score(scored[best])}."
    )


def suspects_sentence(suspects: Sequence[Suspect], worth: int, wrong: float) -> str:
    """How many labels are worth checking, and how many of them are expected to be wrong.

    >>> suspects_sentence([], 0, 0.0)
    'Labels worth checking: none; there is no clear sign of wrong labels.'
    >>> suspects_sentence([Suspect(row, "new", 3.0, 1.0, 1.0, 4.2, "", 0.8) for row in (1, 2)], 12, 8.53)
    'Labels worth checking: 12, of them 8.5 expected to be wrong.'
    """
    chances = [one.chance for one in suspects if one.chance is not None]
    if suspects and not chances:
        return f"Labels worth checking first: {len(suspects)}."
    if not worth:
        return f"Labels worth checking: none{'' if any(chances) else '; there is no clear sign of wrong labels'}."
    return f"Labels worth checking: {worth}, of them {number(wrong, 2)} expected to be wrong."


def suspect_rows(suspects: Sequence[Suspect], *, several: bool = False, letters: int = 60) -> list[list[str]]:
    """The suspects as a table, its headings first; a probability only where there is a sign of wrong labels.

    >>> suspect_rows([Suspect(1, "new", 3.0, 1.5, 1.0, 4.2, "", 0.8)])[0]
    ['id', 'part', 'label', 'expected', 'neighbors', 'P(wrong)']
    >>> suspect_rows([Suspect(1, "new", 3.0, 1.0, 1.0, 4.2, "", 0.0)])
    [['id', 'part', 'label', 'expected', 'suspicion'], ['1', 'new', '3', '1', '4.2']]
    """
    sign = not several and any(one.chance for one in suspects)
    same = not several and all(str(one.expected) == str(one.neighbors) for one in suspects)
    rows = [["id", "part", "label", "expected", "neighbors", "P(wrong)" if sign else "suspicion"]]
    for one in suspects:
        labels = [_label(label, letters) for label in (one.label, one.expected, one.neighbors)]
        chance = percent(one.chance) if one.chance else ""
        rows.append([shown(one.row), one.part, *labels, chance if sign else number(one.score, 3)])
    return [[*row[:4], *row[5:]] for row in rows] if same else rows


def worth_checking(suspects: Sequence[Suspect]) -> list[Suspect]:
    """The suspects whose label is more probably wrong than right; all where that is not known."""
    return [one for one in suspects if one.chance is None or one.chance >= _WORTH]


_WORTH = 0.5


def audit_findings(record: AuditRecord) -> list[str]:
    """The findings as sentences, the most important first."""
    sentences = []
    crossing = [copies for copies in record.copies if copies.across]
    if crossing:
        equal = [[*map(str, copies.rows[:4]), *["..."] * (len(copies.rows) > 4)] for copies in crossing[:3]]
        rows = ", ".join(map(" = ".join, equal))
        count = len(crossing)
        sentences.append(
            f"{count} group{'s' if count > 1 else ''} of copies {'contain' if count > 1 else 'contains'} both new rows "
            f"and rows that the model has seen ({rows}{' ...' if count > 3 else ''}): "
            "figures of the new rows are too good."
        )
    conflicting = sum(copies.conflicting for copies in record.copies)
    if conflicting:
        have = "groups of copies have" if conflicting > 1 else "group of copies has"
        sentences.append(f"{conflicting} {have} different labels.")
    ninety = next((level for level in record.coverage if abs(level["coverage"] - 0.9) < 1e-9), None)
    if ninety is not None:
        worst = min(ninety["by_part"]) if ninety["by_part"] else float("nan")
        sentences.append(
            f"90 % intervals cover {percent(ninety['covered'])} of the new rows, {percent(worst)} in the worst quarter "
            "of the target."
        )
    worse = [part for part in record.slices if part.stands_out]
    if worse:
        part = worse[0]
        sentences.append(
            f"The error is {part.ratio:.1f} times the average where {one_line(part.column, 40)} is "
            f"{one_line(part.value, 40)} ({part.rows} rows)."
        )
    if record.task == "classification" and not record.several and len(record.truth):
        sure, wrong = _sureness(record)
        share, error = selective_curve(sure, wrong)
        half = int(np.searchsorted(share, 0.5))
        sentences.append(
            f"Error rate {percent(wrong.mean())}, and {percent(error[half])} among the {percent(share[half])} of the "
            "new rows with the surest answers (area under the error by share answered: "
            f"{number(area_under_selective_curve(sure, wrong), 2)})."
        )
    sentences += _of_drift(record)
    sentences += [str(record.fairness["sentence"])] if record.fairness else []
    if record.multiplicity:
        among = record.multiplicity
        sentences.append(
            f"The {among['members']:.0f} members of the ensemble disagree on {percent(among['ambiguity'])} of the new "
            f"rows; the most different one on {percent(among['discrepancy'])}. Their probabilities of the true class "
            f"span {number(among['viable_range'], 2)} on average."
        )
    if record.hubs:
        sentences.append(
            f"{percent(record.unused)} of the rows are never a top-{record.neighbors} neighbor; one row is used in "
            f"{record.hubs[0].served} of {record.rows.get('new', 0)} predictions (hub)."
        )
    return [clean(sentence) for sentence in sentences]


def _of_drift(record: AuditRecord) -> list[str]:
    """Sentences on when error and coverage changed."""
    if not record.periods:
        return []
    error, coverage, name = record.drift.get("error"), record.drift.get("coverage"), one_line(record.time, 40)
    sentences = []
    if error is not None:
        what = "share of wrong rows" if error_name(record) == "share wrong" else error_name(record)
        after, before = number(error["after"], 3), number(error["before"], 3)
        sentences.append(
            f"Since {_time(error['since'])} ({name}) the {what} is {after}, before {before} (permutation test, "
            f"p = {error['p_value']:.3f})."
        )
    if coverage is not None:
        promised = "intervals" if record.task == "regression" else "sets of classes"
        sentences.append(
            f"Since {_time(coverage['since'])} 90 % {promised} cover {percent(coverage['after'])} of the rows, before "
            f"{percent(coverage['before'])} (p = {coverage['p_value']:.3f})."
        )
    return sentences or [f"No significant change of error or coverage along {name}."]


def _time(time: Any) -> str:
    return number(time, 6) if isinstance(time, float) else one_line(time, 40)


def period_cells(period: Any) -> list[str]:
    """A period as a table row: start, end, rows, error, ratio to the average, coverage, width factor for 90 %."""
    share = "" if period["covered"] is None else percent(period["covered"])
    width = "" if period["width"] is None else number(period["width"], 2)
    ends = _time(period["start"]), _time(period["end"])
    return [*ends, str(period["rows"]), number(period["error"], 3), number(period["ratio"], 2), share, width]


def fairness_cells(fairness: Any) -> list[list[str]]:
    """Groups as table rows: name, rows, rate of the predictions, its interval, rate of the labels, error."""
    return [
        [
            one_line(part["group"], 40),
            str(part["rows"]),
            number(part["rate"], 3),
            f"{number(part['low'], 3)} to {number(part['high'], 3)}",
            number(part["labels"], 3),
            number(part["error"], 3),
        ]
        for part in fairness.get("parts", ())
    ]


def _level(level: Any) -> list[str]:
    by_part = ", ".join(percent(share) for share in level["by_part"])
    return [percent(level["coverage"]), percent(level["covered"]), by_part, number(level["width"], 3)]


def _label(label: Any, letters: int = 60) -> str:
    return number(float(label), 4) if isinstance(label, int | float | np.number) else one_line(label, letters)


def _sureness(record: AuditRecord) -> tuple[Any, Any]:
    """Probabilities of the predicted classes ``[n]``, and whether these are wrong."""
    said = np.array([str(name) for name in record.classes])[record.predicted.argmax(axis=1)]
    return record.predicted.max(axis=1), (said != np.array([str(name) for name in record.truth])).astype(float)


def selective_figure(record: AuditRecord) -> "Figure":
    """Share of wrong answers over the share of rows that are answered, the surest first."""
    share, error = selective_curve(*_sureness(record))
    order = np.argsort(share, kind="stable")
    with style():
        figure, axes = blank(4.2, 3.9)
        axes.plot(share[order], error[order], color=ACCENT, linewidth=2)
        axes.axhline(error[order[-1]], color=WARM, linewidth=1.2)
        axes.set(xlim=(0, 1), xlabel="share of new rows answered, the surest first", ylabel="share of answers wrong")
        axes.set_ylim(bottom=0)
    return figure


def served_figure(record: AuditRecord) -> "Figure":
    """Histogram of the number of new rows that have a bank row among their nearest neighbors."""
    with style():
        figure, axes = blank(4.6, 3.3)
        top = int(record.served.max(initial=0))
        axes.hist(record.served, bins=min(40, top + 1) or 1, color=SOFT, edgecolor=ACCENT, linewidth=0.5)
        axes.set(xlabel="predictions that use it", ylabel="bank rows")
        axes.set_yscale("symlog", linthresh=10)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    return figure


def _pictures(record: AuditRecord) -> Iterator[Picture]:
    if record.task == "regression":
        yield scatter(record, "new")
        if record.coverage:
            promised, covered, by_part = (
                [level[name] for level in record.coverage] for name in ("coverage", "covered", "by_part")
            )
            yield picture(
                figures.coverage(promised, covered, by_part),
                "coverage",
                "Coverage of the intervals",
                "Share of new rows within their interval over the share promised, with the diagonal.",
                "On the diagonal intervals hold as promised; below it they are too narrow. The thin lines are the "
                "quarters of the rows by their true value.",
            )
    elif record.several:
        yield several_reliability(record.predicted, record.truth)
    else:
        yield sureness(record, "New")
        yield picture(
            selective_figure(record),
            "selective",
            "Error by share answered",
            "Share of wrong answers over the share of new rows that are answered, with that of all rows.",
            "If only the surest rows are answered, fewer answers are wrong; the line is the error of all rows. "
            "vicinal predict --abstain promises such an error.",
        )
    if len(record.served):
        yield picture(
            served_figure(record),
            "served",
            "How often rows are used",
            "Histogram of how many predictions each bank row is among the first neighbors of.",
            f"How often each bank row is among the {record.neighbors} nearest of a new row. The long tail on "
            "the right are hubs: few rows, used in many predictions.",
        )
