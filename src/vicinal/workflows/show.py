"""``vicinal show``: what a folder holds, from its settings only; no weights or rows are read."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vicinal.core.checks import ECHO, short_text
from vicinal.core.folders import CHANGES, MARKERS, MATCHER_VERSION, check_sums, kind_of, read_whole
from vicinal.core.untrusted import LARGEST_SETTINGS, check_inside, open_regular, read_settings
from vicinal.report.summary import (
    MatcherSettings,
    ModelSettings,
    RecommenderSettings,
    ShownSettings,
    model_facts,
)

_HELD_OUT = "held"


class _Rows(ShownSettings):
    rows: int
    dim: int
    storage: str


def list_changes(folder: Path) -> list[dict[str, Any]]:
    """The journal of a model folder, oldest first: sequence, time, who, what, ids, and labels before and after.

    Added rows are listed until the folder is written again; corrected labels until their row is forgotten.
    """
    from vicinal.estimators.journal import read_changes  # it takes as long to import as a model to load

    show_folder(folder)
    names = ("sequence", "time", "who", "what", "ids", "before", "labels")
    return [{name: getattr(one, name) for name in names} for one in read_whole(folder, read_changes)[0]]


def show_folder(folder: Path) -> dict[str, Any]:
    """What the folder of a model or a matcher holds.

    Returns:
        for both "model" (the folder), "kind", "task", "vicinal" (the version that wrote it), "written" (time, UTC),
        "rows", "columns" (each with its kind and encoder), "settings" (of a model what was fitted and what differs from
        the defaults), "scores", "bytes" and "files" (bytes by name);
        for a matcher "notes"; for a model "target", "name", "id", "group", "time", "weight", "labels", "dim",
        "storage", "torch" (None in older folders), "distilled_from", "trials" (what the fit has tried), "adapted" (to
        how many rows, or None), and "journal" (None without one).

    Raises:
        ValueError: if there is no such folder, or its settings are damaged, edited, or of a newer version.
    """
    if not folder.is_dir():
        what = "a file" if folder.exists() else "which is not there"
        raise ValueError(f"model: expected a model folder, got {short_text(folder, ECHO)}, {what}")
    return read_whole(folder, _shown)


def _shown(folder: Path) -> dict[str, Any]:
    kind = kind_of(folder)
    if kind not in ("model", "matcher", "recommender"):
        got = "other files" if kind is None else f"that of a {kind}, which may be a part of one"
        raise ValueError(
            f"model: expected the folder of a model, a matcher or a recommender, got {got}, in "
            f"{short_text(folder, ECHO)}"
        )
    check_inside(folder, MARKERS[kind])
    check_sums(folder, (MARKERS[kind],), kind, LARGEST_SETTINGS)
    sizes = {
        path.relative_to(folder).as_posix(): path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()
    }
    settings = folder / MARKERS[kind]
    written = datetime.fromtimestamp(settings.stat().st_mtime, UTC).isoformat(timespec="seconds")
    if kind == "matcher":
        shown = read_settings(settings, MatcherSettings, "a matcher", newest=MATCHER_VERSION).facts()
    elif kind == "recommender":
        shown = read_settings(settings, RecommenderSettings, "a recommender", newest=1).facts()
    else:
        shown = _model(folder)
    of_folder = {"bytes": sum(sizes.values()), "files": sizes}
    return {"model": str(folder), "kind": kind, "written": written, **shown, **of_folder}


def _model(folder: Path) -> dict[str, Any]:
    config = read_settings(folder / MARKERS["model"], ModelSettings, "a vicinal model", newest=2)
    banks = [place / MARKERS["bank"] for place in (folder, folder / _HELD_OUT)]
    for one in banks:
        check_inside(one.parent, one.name)
    bank, held_out = (read_settings(one, _Rows, "a bank", newest=1) for one in banks)
    facts = model_facts(config, bank.rows, held_out.rows)
    return {**facts, "dim": bank.dim, "storage": bank.storage, "journal": _journal(folder / CHANGES)}


def _journal(path: Path) -> dict[str, int] | None:
    """Bytes and records of the journal; None without one."""
    if not path.is_file():
        return None
    check_inside(path.parent, path.name)
    with open_regular(path) as file:
        records = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    return {"bytes": path.stat().st_size, "records": records}


def size_words(size: int) -> str:
    """A number of bytes in suitable units.

    >>> size_words(900), size_words(126_944), size_words(5_300_000_000)
    ('900 B', '127 kB', '5.3 GB')
    """
    value, unit = float(size), "B"
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:.3g} {unit}"
