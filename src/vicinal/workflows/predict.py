"""``vicinal predict``: predictions of a saved model for the rows of a table, with neighbors and intervals."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
import pandas as pd

from vicinal.core import CellWarning, ColumnError, ExtrapolationWarning, check_choice, counted, listed, nearest, short
from vicinal.core.checks import short_text, unwarned
from vicinal.core.identity import IdentityWarning
from vicinal.core.progress import Log
from vicinal.data import read_cells, split_texts
from vicinal.data.cells import as_numbers
from vicinal.data.sets import join_columns
from vicinal.data.sources import root_of
from vicinal.data.table import check_column
from vicinal.data.target import SEPARATOR
from vicinal.estimators.banked import BankedEstimator, load_model
from vicinal.estimators.calibrating import check_calibrates
from vicinal.estimators.elements import element_counts
from vicinal.estimators.explanation import Element, Explanation
from vicinal.estimators.forecasts import seconds
from vicinal.estimators.inputs import EmbeddedRows, as_table
from vicinal.estimators.learner import EmbeddingLearner
from vicinal.estimators.neighbors import NeighborClassifier, NeighborRegressor
from vicinal.estimators.saving import OpenSettings, shown_cell

_SHOWN = 3
"""Elements of most effect in a line of a table; records have all."""


_EXPLAINED = re.compile(
    r"(neighbor|element)_\d+_\w+|(others|trend)_(weight|contribution|value)|neighbors|others|trend|elements|scale"
)
"""Names of what explanations add to an answer."""


@dataclass(frozen=True)
class Answers:
    """Predictions of rows, in order.

    Attributes:
        rows: ids of the rows, or else the index of the table.
        columns: name -> one value per row: kept columns, prediction (several classes as a tuple; None where the model
            does not answer), answered, probabilities, low and high of an interval; of a model of queries the query, and
            the rank in it.
        explanations: one per row; empty unless requested.
        separator: between several classes of a label.
    """

    rows: list[Any]
    columns: dict[str, list[Any]]
    explanations: list[Explanation]
    separator: str = SEPARATOR

    def flat(self) -> pd.DataFrame:
        """One line per row, with neighbors in columns ``neighbor_1_id``, ``neighbor_1_weight`` and so on.

        Of comparables ``neighbor_1_adjusted`` is the adjusted label, ``neighbor_1_by`` the two columns that adjust it
        most, and ``trend_weight``, ``trend_value`` and ``trend_contribution`` those of the trend.
        """
        columns = {name: [joined(one, self.separator) for one in values] for name, values in self.columns.items()}
        table = pd.DataFrame({"row": self.rows, **columns})
        if not self.explanations:
            return table
        from vicinal.report.comparables import reasons  # which the answers of a server need not

        lines = []
        for explanation in self.explanations:
            line: dict[str, Any] = {}
            for rank, n in enumerate(explanation.neighbors, start=1):
                for name in ("id", "weight", "label", "contribution"):
                    line[f"neighbor_{rank}_{name}"] = joined(getattr(n, name), self.separator)
                if n.adjusted is not None:
                    by = reasons(n.adjustments, explanation.transform)
                    line |= {f"neighbor_{rank}_adjusted": n.adjusted, f"neighbor_{rank}_by": by}
            if (trend := explanation.trend) is not None:
                line |= {f"trend_{name}": getattr(trend, name) for name in ("weight", "value", "contribution")}
            line |= {"others_weight": explanation.other_weight, "others_contribution": explanation.other_contribution}
            for rank, one in enumerate(explanation.elements[:_SHOWN], start=1):
                for name, value in _element(one).items():
                    line[f"element_{rank}_{name}"] = value
            lines.append(line)
        explained = pd.DataFrame(lines)
        whole = {name: "Int64" for name in explained if str(name).endswith("_position")}  # also where some have none
        return pd.concat([table, explained.astype(whole)], axis=1)

    def records(self) -> list[dict[str, Any]]:
        """One dictionary per row, with neighbors in a list."""
        records = []
        for place, row in enumerate(self.rows):
            record = {"row": row, **{name: values[place] for name, values in self.columns.items()}}
            if self.explanations:
                explanation = self.explanations[place]
                record["neighbors"] = [
                    {"id": n.id, "weight": n.weight, "label": n.label, "contribution": n.contribution, **n.adjusting()}
                    for n in explanation.neighbors
                ]
                if explanation.trend is not None:
                    record["trend"] = explanation.trend.record()
                if explanation.transform != "none":
                    record["scale"] = explanation.transform
                if explanation.constant:
                    record["constant"] = explanation.constant
                record["others"] = {"weight": explanation.other_weight, "contribution": explanation.other_contribution}
                if explanation.elements:
                    names = [str(n.id) for n in explanation.neighbors]
                    record["elements"] = [
                        _element(one) | {"neighbors": dict(zip(names, one.weights, strict=True))}
                        for one in explanation.elements
                    ]
            records.append(record)
        return records


def _element(one: Element) -> dict[str, Any]:
    shown = shown_cell([one.value], "set")[1:-1].strip('"')
    return {"column": one.column, "position": one.position, "value": short_text(shown, 200), "effect": one.effect}


def joined(value: Any, separator: str = SEPARATOR) -> Any:
    """Several classes as one text, as in cells of a target; any other value unchanged."""
    return separator.join(map(str, value)) if isinstance(value, tuple) else value


class AnswerSettings(TypedDict, total=False):
    """What a prediction is asked for.

    Attributes:
        explain: number of neighbors to show for each row.
        elements: also show what each element of sets adds; see :meth:`vicinal.estimators.NeighborRegressor.explain`.
        coverage: of intervals, or None for none.
        abstain: the error rate that is promised of answers, see
            :meth:`vicinal.estimators.NeighborClassifier.predict`; None: answer all.
        keep: columns of the table to put beside the predictions; one called as a column of predictions gets " (kept)"
            behind its name.
        include_own: rows that equal rows of the fit are meant to be predicted from themselves, so that nothing is said.
        aim: arguments of :meth:`vicinal.estimators.NeighborRegressor.for_loss`, link, cost or quantile; None: what
            the model predicts by itself.
    """

    explain: int
    elements: bool
    coverage: float | None
    abstain: float | None
    keep: Sequence[str]
    include_own: bool
    aim: Mapping[str, Any] | None


def predict_table(
    folder: Path,
    source: Path | pd.DataFrame,
    *,
    root: Path | None = None,
    index: str | None = None,
    encoders: Mapping[str, str] | None = None,
    log: Log = lambda line: None,
    **settings: Unpack[AnswerSettings],
) -> Answers:
    """Predict the rows of ``source`` with the model saved in ``folder``.

    If the model was fitted with a column of ids or groups and the table has it, a row is never predicted from bank rows
    of its own id or group, whatever the type of the column; if the table lacks it, ``log`` gets a warning. Columns that
    the model does not read are ignored.

    Args:
        folder: of the model.
        source: file of the table, or the table itself.
        root: folder that paths of images and sounds start from; None: that of the file.
        index: see :func:`vicinal.estimators.load_model`, as for ``encoders``.
        encoders: by column or kind.
        log: gets which columns were ignored, and whether ids or groups are missing.
        settings: see :class:`AnswerSettings`.

    Raises:
        ValueError: if the model cannot be loaded, a column is missing, or a cell cannot be used.
    """
    model = load_predictor(folder, index=index, encoders=encoders, several=True)
    frame = read_rows(model, source, root, log)
    answers = answer_rows(model, frame, log, **settings)
    if (abstain := settings.get("abstain")) is not None:
        log(answered_note(sum(answers.columns["answered"]), len(frame), abstain))
    return answers


def answered_note(answered: int, rows: int, abstain: float) -> str:
    """How many rows were answered, and what is promised of them.

    >>> answered_note(83, 100, 0.05)
    'answered 83 of 100 rows (83 %); at most 5 % of such answers are wrong, with 90 % confidence'
    """
    return (
        f"answered {answered:,} of {rows:,} rows ({100 * answered / max(rows, 1):.0f} %); at most {100 * abstain:g} % "
        "of such answers are wrong, with 90 % confidence"
    )


def answer_rows(
    model: BankedEstimator, frame: pd.DataFrame, log: Log = lambda line: None, **settings: Unpack[AnswerSettings]
) -> Answers:
    """Predictions of rows from :func:`read_rows`."""
    if strange := [name for name in settings if name not in AnswerSettings.__annotations__]:
        raise TypeError(f"settings: expected {listed(AnswerSettings.__annotations__, 200)}, got {short(strange[0])}")
    model, keep = with_aim(model, settings.get("aim")), settings.get("keep", ())
    explain, elements = settings.get("explain", 0), settings.get("elements", False)
    for name in keep:
        check_column("keep", name, list(frame.columns))
    features = features_of(model, frame, log)
    who = who_of(model, frame)
    _log_unknown(model, who, log)
    with unwarned(IdentityWarning, ExtrapolationWarning):  # the one was said, the other is next
        rows = model.query_rows(features, **who, look=not settings.get("include_own"))
        for sentence in filter(None, (rows.sentence(), too_late(model, frame), own_rows_note(model, rows))):
            log(sentence)
        answers = _answers(model, frame, rows, who, settings.get("coverage"), settings.get("abstain"))
        names = _kept_names(keep, answers.columns)
        for name in (name for name in keep if names[name] != name):
            log(f"the kept column {short(name)} is called {short(names[name])}, as predictions have one of that name")
        answers = replace(answers, columns={names[one]: frame[one].tolist() for one in keep} | answers.columns)
        if not (explain or elements):
            return answers
        model = of_target(model, None)
        if elements:
            count = int(element_counts(features, model.kinds_).to_numpy().sum())
            log(f"leaving out {count} elements, one at a time, in {len(features)} rows")
        return replace(answers, explanations=model.explain(rows, explain or 3, **who, elements=elements))


def own_rows_note(model: BankedEstimator, rows: EmbeddedRows) -> str:
    """What to do about rows that equal rows of the fit; "" if there are none, or :func:`features_of` has said it."""
    if model.notes_.get("id") is not None:
        return ""
    said = rows.own_sentence()
    return said and f"{said}; fit with --id COLUMN to leave their own out, or accept it by --include-own"


def _kept_names(keep: Sequence[str], predicted: Iterable[str]) -> dict[str, str]:
    """What kept columns are called beside those that are ``predicted``: neither takes the place of the other.

    >>> _kept_names(["age", "row", "neighbor_1_id", "low (kept)", "low"], ["prediction", "low"])  # doctest: +ELLIPSIS
    {'age': 'age', 'row': 'row (kept)', ..., 'low (kept)': 'low (kept)', 'low': 'low (kept) (kept)'}
    """
    taken, names = {"row", *predicted}, {name: name for name in keep}
    for name in keep:
        while names[name] in taken or _EXPLAINED.fullmatch(names[name]):
            names[name] += " (kept)"
            while names[name] in keep:
                names[name] += " (kept)"
    return names


def load_predictor(folder: Path, *, several: bool = False, **opening: Unpack[OpenSettings]) -> BankedEstimator:
    """The model in ``folder``; raises ValueError for a model of ``learn``, which does not predict.

    A model of several targets is refused, too, unless ``several`` is True.
    """
    model = load_model(folder, **opening)
    if not hasattr(model, "predict"):
        raise ValueError(
            f"model: expected one that predicts, got {short_text(folder, 200)}, which learned a similarity; say "
            "vicinal search, or vicinal embed"
        )
    if model.targets_ is not None and not several:
        raise ValueError(
            f"model: expected one that predicts one target, got one of {listed(model.targets_)}; predict, explain, "
            "evaluate, refit, add, relabel and forget take it"
        )
    return model


def of_target(model: BankedEstimator, target: str | None) -> BankedEstimator:
    """The model for one of its several targets; a model of one target itself.

    Raises:
        ValueError: if there are several targets and none is named, or one target and any is named.
    """
    if model.targets_ is None or not isinstance(model, NeighborRegressor):
        if target is not None:
            raise ValueError(f"target: expected none, as the model predicts one, got {short(target)}")
        return model
    if target is None:
        raise ValueError(f"target: expected one of {listed(model.targets_)}, which the model predicts, got none")
    return model.of_target(check_choice("target", target, model.targets_))


def with_aim(model: BankedEstimator, aim: Mapping[str, Any] | None) -> BankedEstimator:
    """The model with the prediction that is asked for, as :meth:`vicinal.estimators.NeighborRegressor.for_loss`."""
    if not aim:
        return model
    if not isinstance(model, NeighborRegressor):
        raise ValueError(f"{next(iter(aim))}: expected a model that predicts numbers, got one that predicts classes")
    return model.for_loss(**aim)


def _by_target(model: BankedEstimator, name: str, values: np.ndarray[Any, Any]) -> dict[str, list[Any]]:
    """Values ``[n]`` as the column ``name``; those of several targets ``[n, T]`` as columns ``name_TARGET``."""
    if model.targets_ is None:
        return {name: values.tolist()}
    return {f"{name}_{target}": values[:, place].tolist() for place, target in enumerate(model.targets_)}


def _answers(
    model: BankedEstimator,
    frame: pd.DataFrame,
    rows: EmbeddedRows,
    who: dict[str, Any],
    coverage: float | None,
    abstain: float | None,
) -> Answers:
    classes = model.fitted_.codec.classes
    columns: dict[str, list[Any]] = {}
    if abstain is not None and not isinstance(model, NeighborClassifier):
        raise ValueError(
            "abstain: expected a model that predicts classes, got one that predicts numbers, which are never quite "
            "right; ask for an interval"
        )
    if not len(classes):
        values = model.predict(rows, **who)
        query = model.notes_.get("query")
        if query is not None and "groups" in who:
            columns |= {query: who["groups"], "rank": ranks_within(values, who["groups"])}
        columns |= _by_target(model, "prediction", values)
    else:
        chances = model.predict_proba(rows, **who)
        if model.multilabel_:
            said = chances >= model.thresholds_
            columns["prediction"] = [tuple(classes[row].tolist()) for row in said]
        else:
            columns["prediction"] = classes[chances.argmax(axis=1)].tolist()
        if abstain is not None and isinstance(model, NeighborClassifier):
            columns["answered"] = (chances.max(axis=1) >= model.answering_threshold(abstain)).tolist()
            both = zip(columns["prediction"], columns["answered"], strict=True)
            columns["prediction"] = [name if is_answered else None for name, is_answered in both]
        columns |= {f"probability_{name}": chances[:, place].tolist() for place, name in enumerate(classes)}
    if coverage is not None:
        if len(classes):
            raise ValueError("interval: expected a model that predicts numbers, got one that predicts classes")
        check_calibrates(model.fitted_, coverage)
        bounds = model.predict_interval(rows, coverage, **who)
        columns |= _by_target(model, "low", bounds[..., 0]) | _by_target(model, "high", bounds[..., 1])
    return Answers(who.get("ids", frame.index.tolist()), columns, [], separator_of(model))


def too_late(model: BankedEstimator, frame: pd.DataFrame) -> str:
    """How many rows of a table are later than the forecasts of the fit went, for which nothing is promised; or ""."""
    time, forecasts = model.notes_.get("time"), model.fitted_.forecasts
    if time is None or time not in frame.columns or not forecasts:
        return ""
    try:
        with unwarned(CellWarning):  # a time that is missing is not late
            cells = model.form_.of_columns([time]).read(frame[[time]])[time]
    except ColumnError:  # times that are no feature need not be there to predict
        return ""
    dated = pd.api.types.is_datetime64_any_dtype(cells.dtype)
    late = int((seconds(cells.to_numpy() if dated else as_numbers(cells)) > forecasts[0].until).sum())
    if not late:
        return ""
    last = np.datetime64(round(forecasts[0].until), "s").item().date() if dated else forecasts[0].until
    return (
        f"{late} of {counted(len(frame), 'row')} {'is' if late == 1 else 'are'} later than {last}: the forecasts of "
        "the fit went no farther ahead, so that nothing is promised there"
    )


def ranks_within(scores: Sequence[float] | np.ndarray[Any, Any], queries: Sequence[Any]) -> list[int]:
    """The rank of each row within its query, 1 = highest score; of equal scores the earlier row is first.

    >>> ranks_within([0.1, 0.9, 0.5, 0.1], ["a", "a", "b", "a"])
    [2, 1, 1, 3]
    """
    each = pd.Series(-np.asarray(scores, dtype=np.float64)).groupby(pd.factorize(np.asarray(queries))[0])
    return each.rank(method="first").astype(int).tolist()


def separator_of(model: BankedEstimator) -> str:
    """The separator between several classes in cells of the model's target."""
    return str(model.notes_.get("separator", SEPARATOR))


def read_rows(model: BankedEstimator, source: Path | Any, root: Path | None, log: Log) -> pd.DataFrame:
    """The rows of a file or table, cells as they are written; sets ``model.root`` to ``root`` (the file's folder).

    The model reads the cells by its ``form_``; whatever else does, such as labels, reads them by it, too.
    """
    if not isinstance(source, Path):
        model.root = root
        frame: pd.DataFrame = as_table("data", source)
    else:
        model.root = root or root_of(source)
        frame = read_cells(source, ids=exact_columns(model), log=log)
    return made_rows(model, frame)


def exact_columns(model: BankedEstimator) -> list[str]:
    """The columns of ids and groups that ``model`` names, whose cells a csv file gives as they are written."""
    named = isinstance(model, EmbeddingLearner) and model.labels_ != "numbers"  # classes as they are written
    columns = [model.notes_.get(role) for role in ("id", "group", *["target"][:named])]
    return [name for name in columns if name is not None and name not in model.kinds_]


def made_rows(model: BankedEstimator, frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of a table with the columns that ``model`` derives from others: sets, and chunks of long texts."""
    chunked, sets = model.notes_.get("chunked") or [], model.notes_.get("sets") or {}
    parts = {name for names in sets.values() for name in names}
    frame = join_columns(model.form_.of_columns(parts).read(frame.rename(columns=str)), sets)
    return split_texts(frame, [name for name in chunked if name in frame.columns])


def features_of(model: BankedEstimator, frame: pd.DataFrame, log: Log) -> pd.DataFrame:
    """The columns of ``frame`` that ``model`` reads; ``log`` gets the ignored columns."""
    columns = [str(name) for name in model.feature_names_in_]
    if gone := [name for name in columns if name not in frame.columns]:
        what = f"the column{'s' * (len(gone) > 1)} {listed(gone)}"
        advice = nearest(gone[0], frame.columns) or "; add what is missing, with empty cells where nothing is known"
        raise ValueError(f"data: expected {what}, which the model reads, got none{advice}")
    roles = (model.notes_.get(role) for role in ("id", "group", "time", "weight", "target"))
    known = {*columns, *roles, *(model.targets_ or ())}
    extra = [name for name in frame.columns if name not in known]
    if extra:
        log(
            f"passed over {counted(len(extra), 'column')} that the model does not read: "
            f"{', '.join(short_text(name) for name in extra[:8])}"
        )
    return frame[columns]


def _log_unknown(model: BankedEstimator, who: Mapping[str, Any], log: Log) -> None:
    """Warn if the table lacks ids or groups that the model was fitted with, so that a row may see its own label."""
    if not model.network_.head.uses_bank:
        return
    for role, expected, risk in (
        ("id", model.notes_.get("id") is not None, "a row that is in the bank is predicted from itself too"),
        ("group", model.bank_.grouped, "a row may be predicted from rows of its own group"),
    ):
        if expected and f"{role}s" not in who:
            column = model.notes_.get(role)
            missing = f"the {role}s that the model was fitted with" if column is None else f"the column {short(column)}"
            log(f"{role}: expected {missing}, got none, so {risk}")


def who_of(model: BankedEstimator, frame: pd.DataFrame) -> dict[str, Any]:
    """The ``ids`` and ``groups`` of the rows, each if the model was fitted with such a column and the table has it."""
    roles = ["id", "group"] if model.bank_.grouped else ["id"]
    columns = {f"{role}s": model.notes_[role] for role in roles if model.notes_.get(role) in frame.columns}
    return {
        name: [value.strip() if isinstance(value, str) else value for value in frame[column].tolist()]
        for name, column in columns.items()
    }
