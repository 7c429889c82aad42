"""``vicinal recommend``: a table of clicks goes in; a recommender, its recommendations and a short report come out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from vicinal.core import counted, files, listed, short
from vicinal.core.folders import check_replaceable, kind_of, staged_folder
from vicinal.core.progress import Log
from vicinal.data import read_table, write_table
from vicinal.data.sources import table_name
from vicinal.estimators.recommend import Reasons, Recommender

RECOMMENDED, REPORT = "recommendations.csv", "report.md"


@dataclass(frozen=True)
class RecommendJob:
    """Files of clicks, and of columns of items and users; what to recommend, and parameters of the recommender."""

    clicks: Path
    items: Path | None = None
    users: Path | None = None
    k: int = 10
    among: str = "all"
    parameters: Mapping[str, Any] = field(default_factory=dict)


def is_recommender(folder: Path) -> bool:
    """Whether a folder is one that :func:`recommend_tables` wrote."""
    return folder.is_dir() and kind_of(folder) == "recommender"


def recommend_tables(job: RecommendJob, out: Path, log: Log = lambda line: None) -> tuple[Recommender, list[str]]:
    """Fit a recommender and write its folder, whole or not at all, with ``recommendations.csv`` and ``report.md``.

    Returns:
        the recommender and the sentences of its report.

    Raises:
        ValueError: if tables or settings cannot be used.
    """
    check_replaceable(out, "recommender")
    model = Recommender(**job.parameters)
    clicks = _read(job.clicks, model, log)
    sides = [None if path is None else _read(path, model, log) for path in (job.items, job.users)]
    others = [] if model.value else [name for name in clicks.columns if name not in (model.user, model.item)]
    if others:
        log(f"not read: {listed(others, 200)}; --value names a column of how much a click counts")
    model.fit(clicks, *sides, log=log)
    log("recommending")
    table = model.recommend(k=job.k, among=job.among)
    lines = report_lines(model)
    with staged_folder(out, "recommender") as stage:
        model.write(stage)
        write_table(table, stage / RECOMMENDED)
        text = "\n".join(f"- {line}" for line in lines)
        (stage / REPORT).write_text(f"# Recommendations from {table_name(job.clicks)}\n\n{text}\n", encoding="utf-8")
    return model, lines


def _read(path: Path, model: Recommender, log: Log) -> pd.DataFrame:
    log(f"reading {path.name}")
    texts = [name for name, kind in (model.kinds or {}).items() if kind in ("text", "category")]
    table = read_table(path, ids=[model.user, model.item], text=texts, log=log)
    named = [name for name in (model.user, model.item) if name in table.columns]
    whole = table[named].notna().all(axis=1)
    if not whole.all():
        log(f"left out: {counted(int((~whole).sum()), 'row')} of {path.name} without {' or '.join(named)}")
    return table[whole]


def report_lines(model: Recommender) -> list[str]:
    """What a recommender learned from and how good it is, in sentences."""
    users, items = len(model.users_), int(model.trained_.sum())
    cells = f"{counted(model.clicks_.nnz, 'pair')} of {counted(users, 'user')} and {counted(items, 'item')} with clicks"
    lines, scores = [cells], model.scores_
    new = int((~model.trained_).sum())
    if new:
        lines.append(f"{counted(new, 'new item')} without clicks")
    if "recall@20" in scores:
        lines.append(
            f"Known items: recall@20 {scores['recall@20']:.3f} on held-out clicks; most clicked items "
            f"{scores['recall@20 of popularity']:.3f}."
        )
    if "recall@20 of new items" in scores:
        lines.append(
            f"New items: recall@20 {scores['recall@20 of new items']:.3f} on held-out items; chance "
            f"{scores['recall@20 of new items by chance']:.3f}."
        )
    for name, kernel in model.kernels_.items():
        share = f"{kernel.explained:.0%} of the variance of their vectors"
        lines.append(f"Columns of {name}s that matter: {kernel.sentence()} ({share}).")
    return lines + [f"{note[:1].upper()}{note[1:]}." for note in model.notes_]


def read_recommendations(folder: Path, users: Sequence[str], k: int, among: str) -> pd.DataFrame:
    """Recommendations of a saved recommender for some users."""
    return Recommender.load(folder).recommend(list(users), k, among=among)


def explain_recommendation(folder: Path, user: str, item: str, *, people: bool) -> Reasons:
    """The reasons of a saved recommender."""
    return Recommender.load(folder).explain(user, item, people=people)


def add_clicks(folder: Path, source: Path | pd.DataFrame, log: Log = lambda line: None) -> tuple[int, Recommender]:
    """Add a table to the recommender in ``folder``: of clicks, or of columns of items or of users.

    Returns:
        the number of rows, and the recommender.

    Raises:
        ValueError: for a table without a column of users or items; the folder is unchanged.
    """
    with files.locked(files.resolved(folder), "update"):  # or of two that add at once one would be lost
        model = Recommender.load(folder)
        frame = _read(source, model, log) if isinstance(source, Path) else source
        names = set(map(str, frame.columns))
        if {model.user, model.item} <= names:
            model.add(clicks=frame)
        elif model.item in names:
            model.add(items=frame)
        elif model.user in names:
            model.add(users=frame)
        else:
            raise ValueError(
                f"data: expected the columns {short(model.user)} and {short(model.item)} of clicks, or one of them and "
                f"columns of users or items, got {short(sorted(names))}"
            )
        model.save(folder)
    return len(frame), model


def forget_users(folder: Path, users: Sequence[Any]) -> tuple[int, Recommender]:
    """Remove users from the recommender in ``folder``, with its recommendations and report."""
    names = list(dict.fromkeys(users))
    with files.locked(files.resolved(folder), "update"):
        model = Recommender.load(folder).forget(names)
        model.save(folder)
    return len(names), model
