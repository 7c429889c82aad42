"""``vicinal recommend``: what each user should see next, and why."""

from typing import TYPE_CHECKING, Annotated, Any

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import output, print_json, print_rows
from vicinal.settings import ClickSettings

if TYPE_CHECKING:
    import pandas as pd

    from vicinal.estimators.recommend import Reasons

_SHOWN = 5
"""Reasons of a kind to print."""

CLICKS = o.of_settings(
    ClickSettings, o.LEARN, "rank", "confidence", "ridge", "n_neighbors", options={"n_neighbors": "--neighbors"}
)


@app.command(
    epilog="Examples: vicinal recommend clicks.csv --user u --item i --items items.csv  |  "
    "vicinal recommend clicks-recommender --for ann -k 5  |  "
    'vicinal recommend clicks-recommender --for ann --why "The Third Man"'
)
@o.with_options(
    {name: o.TABLE[name] for name in ("text", "number", "category", "database")},
    CLICKS,
    {name: o.TRAINING[name] for name in ("encoder", "seed")},
    o.ANSWER,
)
def recommend(
    data: Annotated[str, o.argument("Table of clicks to learn from, or the folder of a recommender.", "CLICKS|MODEL")],
    *,
    user: Annotated[str, o.described("Column of users.", metavar="COL")] = "user",
    item: Annotated[str, o.described("Column of items.", metavar="COL")] = "item",
    value: Annotated[o.Name, o.described("Column of how much a click counts; default: 1 each.", metavar="COL")] = None,
    items: Annotated[
        o.Name, o.described("Table of items with the same column; those without clicks are new.", metavar="FILE")
    ] = None,
    users: Annotated[o.Name, o.described("Table of users with the same column.", metavar="FILE")] = None,
    k: Annotated[int, o.described("Items for each user.", "-k", "--k")] = 10,
    among: Annotated[
        str, o.described("Items to recommend: all, known (with clicks at the fit), or new (without).")
    ] = "all",
    people: Annotated[
        o.Names, o.described("With MODEL: a user to recommend to (repeatable).", "--for", metavar="USER")
    ] = None,
    why: Annotated[o.Name, o.described("With MODEL and --for: an item whose reasons to show.", metavar="ITEM")] = None,
    by_users: Annotated[
        bool, o.described("With --why: also show other users whose clicks speak for the item.", "--people")
    ] = False,
    out: Annotated[
        o.Name, o.described("Folder to write; default: NAME-recommender beside the clicks.", metavar="FOLDER")
    ] = None,
    **options: Any,
) -> None:
    """Recommend items to users, new items included, and say why.

    Learns from clicks (views, purchases, plays) and writes a folder with recommendations.csv, report.md and the
    recommender. Items that a user has clicked are left out. vicinal add takes new clicks and items without training,
    vicinal forget removes users.
    """
    from vicinal.core.checks import check_integer, local_path
    from vicinal.data import beside
    from vicinal.workflows.recommend import (
        RECOMMENDED,
        REPORT,
        RecommendJob,
        explain_recommendation,
        is_recommender,
        read_recommendations,
        recommend_tables,
    )

    check_integer("-k", k)
    as_json = options["as_json"]
    place = local_path("data", data)
    if is_recommender(place):
        if not people:
            raise ValueError("--for: expected at least one user to recommend to, got none")
        if why is None:
            print_recommended(read_recommendations(place, people, k, among), as_json=as_json)
        elif len(people) > 1:
            raise ValueError(f"--for: expected one user with --why, got {len(people)}")
        else:
            print_reasons(explain_recommendation(place, people[0], why, people=by_users), why, as_json=as_json)
        return
    if people or why is not None:
        got = "a folder of something else" if place.is_dir() else "a table of clicks"
        got = got if place.exists() else f"{data}, which is not there"
        raise ValueError(
            f"{'--for' if people else '--why'}: expected the folder of a recommender with it, got {got}; fit "
            "first, then give the folder"
        )
    source = o.table_of(data, options, "clicks")
    kinds = o.named_kinds({**options, **dict.fromkeys(("image", "audio", "vector", "sets"))})
    parameters = {
        "user": user,
        "item": item,
        "value": value,
        **{name: options[name] for name in CLICKS},
        "kinds": kinds or None,
        "encoders": o.parse_encoders(options["encoder"]) or None,
        "random_state": options["seed"],
    }
    columns = [o.table_of(path, name=name) for name, path in (("--items", items), ("--users", users))]
    folder = beside(source, "recommender") if out is None else local_path("--out", out, written=True)
    job = RecommendJob(source, columns[0], columns[1], k, among, parameters)
    model, lines = recommend_tables(job, folder, o.log_of(options))
    if as_json:
        print_json({"folder": str(folder), "scores": model.scores_, "report": lines})
        return
    for line in lines:
        output.print(line)
    output.print(f"recommender {folder}")
    for name in (RECOMMENDED, REPORT):
        output.print(f"            {folder / name}")


def print_recommended(table: "pd.DataFrame", *, as_json: bool) -> None:
    """Print recommendations, a table for each user."""
    if as_json:
        print_json(table.to_dict("records"))
        return
    for name, rows in table.groupby("user", sort=False):
        if (rows["by"] == "popularity").all():
            output.print(f"{name} has no clicks, so the items that most users clicked:")
        lines = [[str(rank), str(one), f"{score:.3f}", by] for _, rank, one, score, by in rows.itertuples(index=False)]
        print_rows(f"For {name}", ["", "item", "score", "by"], lines, numbers=False)
    if not len(table):
        output.print("nothing to recommend: no item of this kind that was not clicked")


def print_reasons(reasons: "Reasons", item: str, *, as_json: bool) -> None:
    """Print the reasons of a recommendation, the largest first."""
    tables: dict[str, Any] = {"clicks": reasons.clicks, "neighbors": reasons.neighbors, "people": reasons.people}
    if as_json:
        records = {name: table.to_dict("records") for name, table in tables.items()}
        print_json({"item": item, "score": reasons.score, "by": reasons.by, **records})
        return
    output.print(f"{item}: score {reasons.score:.3f}, by {reasons.by}")
    titles = {
        "clicks": "Items that the user clicked; their shares sum to the score",
        "neighbors": "Items that it is like by its columns; their shares sum to the score",
        "people": "Users who clicked it; the last row is what they lack to the score",
    }
    if "user" in reasons.neighbors:
        titles["neighbors"] = "Users that this one is like by its columns; their shares sum to the score"
    for name, title in titles.items():
        table = tables[name]
        if not len(table):
            continue
        cells = [
            ["the others" if row[0] is None else str(row[0]), *(f"{float(number):.3f}" for number in row[1:])]
            for row in table.itertuples(index=False)
        ]
        last = cells.pop() if name == "people" else None
        rest = table.iloc[_SHOWN : len(cells)]
        rows = cells[:_SHOWN]
        if len(rest):
            sums = [f"{float(rest[column].sum()):.3f}" for column in table.columns[1:]]
            rows.append([f"{len(rest)} more", *sums])
        print_rows(title, list(table.columns), [*rows, *([last] if last else [])], numbers=False)
