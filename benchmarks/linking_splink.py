"""splink 5 on the sets of ``benchmarks/linking.py``.

FEBRL has the settings of splink's own demos (``febrl3`` for one table, the detailed model of ``febrl4`` for two).
Shops, papers and restaurants have settings by hand: overlap and shared rare words of titles, token Jaccard of other
texts, relative difference of prices, Jaro-Winkler of names; blocking by rare words. They are the best of a few that
were tried by the F1 on abt-buy and amazon-google. dupehell's tables have many columns, so theirs follow from what the
cells are: see :func:`kind_of`. Texts are normalized first (Unicode, invisible characters, case), as an expert would do.
"""

import logging
import re
import unicodedata
import warnings
from collections import Counter
from itertools import combinations
from typing import Any

import pandas as pd
import splink.comparison_level_library as cll
import splink.comparison_library as cl
import splink.internals.comparison_level
from linking_sets import LinkageSet
from splink import Linker, SettingsCreator, block_on
from splink.backends.duckdb import DuckDBAPI

DATE = r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}|\d{8}"
JACCARD = (0.9, 0.7, 0.5, 0.35, 0.2, 0.1)
OVERLAP = (1.0, 0.8, 0.6, 0.45, 0.3)
RARE = 30
"""Rows of both tables that hold a word, up to which it is rare."""

FLOOR = 1e-6
"""Of m probabilities: splink 5.0.0 stops with an error where one becomes zero, as in columns without errors."""

HALF = 0.5
"""Share of the rows of the smaller table that have a match in the other, where no rule is sure of any."""

LEAST = 0.001
"""Probability from which on a pair is kept."""

MOST_RULES, MOST_PAIRS = 8, 10
"""Pairs for each row that a blocking rule may give by chance."""

BY_HAND: dict[str, dict[str, str]] = {
    "abt_buy": {"name": "title", "description": "text", "price": "number"},
    "amazon_google": {"title": "title", "manufacturer": "name", "price": "number"},
    "walmart_amazon": {"title": "title", "category": "text", "brand": "name", "modelno": "code", "price": "number"},
    "dblp_acm": {"title": "title", "authors": "text", "venue": "text", "year": "category"},
    "fodors_zagats": {"name": "title", "addr": "text", "city": "name", "phone": "code", "type": "text"},
}
"""Kinds of the columns of shops, papers and restaurants."""

EM_BY_HAND = {
    "abt_buy": ("price", "title"),
    "amazon_google": ("price", "manufacturer", "title"),
    "walmart_amazon": ("modelno", "price", "title"),
    "dblp_acm": ("year", "title"),
    "fodors_zagats": ("phone", "city", "title"),
}
"""What the pairs of each pass of EM have in common; "title": half of the words of their titles."""


def with_floor() -> None:
    """Keep the m probabilities of EM above zero."""
    level = splink.internals.comparison_level.ComparisonLevel
    put = level.m_probability.fset
    level.m_probability = level.m_probability.setter(
        lambda self, value: put(self, max(value, FLOOR) if isinstance(value, float) else value)
    )


def normal(cell: Any) -> str | None:
    """Text without case, accents of form, invisible characters and doubled spaces; None where nothing is left."""
    if cell is None or cell != cell:
        return None
    text = unicodedata.normalize("NFKC", str(cell)).casefold()
    text = "".join(letter for letter in text if unicodedata.category(letter) != "Cf")
    return re.sub(r"\s+", " ", text).strip() or None


def words_of(text: str | None) -> list[str] | None:
    return sorted(set(re.findall(r"\w+", text))) or None if text else None


def kind_of(cells: pd.Series) -> str:
    """What the normal texts of a column are: date, code (mostly digits), category (few values), name or text."""
    there = cells.dropna()
    if there.empty:
        return "empty"
    if there.str.fullmatch(DATE).mean() > 0.7:
        return "date"
    if there.nunique() <= max(130, len(there) // 20):
        return "category"
    if there.str.count(r"\d").sum() > there.str.count(r"[^\W\d]").sum() or there.str.contains("@").mean() > 0.7:
        return "code"
    return "text" if there.str.count(" ").mean() >= 3 else "name"


def jaccard(left: str, right: str, least: float) -> str:
    both = f"len(list_intersect({left}, {right}))"
    return f"{both} >= {least} * (len({left}) + len({right}) - {both})"


def words_comparison(column: str) -> Any:
    """Levels of the Jaccard index of the words of a text."""
    words = f"{column}_words_l", f"{column}_words_r"
    levels = [cll.CustomLevel(jaccard(*words, least), f"Jaccard {least}") for least in JACCARD]
    null = cll.NullLevel(f"{column}_words")
    return cl.CustomComparison([null, *levels, cll.ElseLevel()], output_column_name=f"{column}_words")


def comparisons_of(column: str, kind: str) -> list[Any]:
    """The comparisons of a column."""
    if kind == "title":
        words = f"{column}_words"
        fewer = f"least(len({words}_l), len({words}_r))"
        shared = [f"len(list_intersect({words}_l, {words}_r)) >= {least} * {fewer}" for least in OVERLAP]
        levels = [cll.NullLevel(words), *map(cll.CustomLevel, shared), cll.ElseLevel()]
        overlap = cl.CustomComparison(levels, output_column_name=words)
        return [overlap, cl.ArrayIntersectAtSizes(f"{column}_rare", [3, 2, 1])]
    if kind == "number":
        levels = [cll.PercentageDifferenceLevel(column, share) for share in (0.02, 0.1, 0.3)]
        head = [cll.NullLevel(column), cll.ExactMatchLevel(column)]
        return [cl.CustomComparison([*head, *levels, cll.ElseLevel()], output_column_name=column)]
    return [
        {
            "text": lambda: words_comparison(column),
            "name": lambda: cl.NameComparison(column).configure(term_frequency_adjustments=True),
            "date": lambda: cl.DamerauLevenshteinAtThresholds(column, [1, 2]),
            "code": lambda: cl.DamerauLevenshteinAtThresholds(column, [1, 2]),
            "category": lambda: cl.ExactMatch(column).configure(term_frequency_adjustments=True),
        }[kind]()
    ]


def prepared(data: LinkageSet, kinds: dict[str, str]) -> list[pd.DataFrame]:
    """Tables with normal texts, dates as year, month and day, numbers, and the words of texts."""
    tables = []
    for table in data.tables:
        new = {"unique_id": table["id"]}
        for column, kind in kinds.items():
            if kind == "number":
                new[column] = pd.to_numeric(table[column], errors="coerce").astype(float)
                continue
            clean = {"date": day, "code": code}.get(kind, normal)
            new[column] = pd.Series([clean(cell) for cell in table[column]], dtype=object)
        tables.append(pd.DataFrame(new))
    for column in [name for name, kind in kinds.items() if kind in ("title", "text")]:
        words = [table[column].map(words_of) for table in tables]
        counts = Counter(word for part in words for row in part if row for word in row)
        for table, part in zip(tables, words, strict=True):
            table[f"{column}_words"] = part
            table[f"{column}_rare"] = [[word for word in row or [] if counts[word] <= RARE] or None for row in part]
    return tables


def code(cell: Any) -> str | None:
    """Letters and digits alone."""
    return re.sub(r"[\W_]", "", normal(cell) or "") or None


def day(cell: Any) -> str | None:
    """A date as its digits, the year first, whatever stands between them."""
    parts = re.findall(r"\d+", normal(cell) or "")
    if len(parts) == 3 and len(parts[2]) == 4:
        parts = [parts[2], parts[1], parts[0]]
    return "".join(parts) or None


def by_demo(data: LinkageSet, seed: int) -> tuple[pd.DataFrame, dict[str, float]]:
    """FEBRL as splink's demos link it."""
    has_id = "soc_sec_id" in data.left.columns
    tables = [table.rename(columns={"id": "unique_id"}) for table in data.tables]
    name, edits = cl.NameComparison, cl.DamerauLevenshteinAtThresholds
    birth = ["date_of_birth", {"input_is_string": True, "datetime_format": "%Y%m%d"}]
    if data.right is None:
        rules = [block_on(column) for column in ("soc_sec_id", "given_name", "surname", "date_of_birth", "postcode")]
        comparisons = [
            name("given_name"),
            name("surname"),
            cl.DateOfBirthComparison(birth[0], **birth[1]),
            edits("soc_sec_id", [2]),
            cl.ExactMatch("street_number").configure(term_frequency_adjustments=True),
            cl.ExactMatch("postcode").configure(term_frequency_adjustments=True),
        ]
        swapped = "l.given_name = r.surname and l.surname = r.given_name and l.date_of_birth = r.date_of_birth"
        sure: list[Any] = [block_on("soc_sec_id"), block_on("given_name", "surname", "date_of_birth"), swapped]
        recall = 0.9
    else:
        rules = [
            block_on("given_name", "surname"),
            "l.given_name = r.surname and l.surname = r.given_name",
            block_on("date_of_birth"),
            *([block_on("soc_sec_id")] if has_id else []),
            block_on("state", "address_1"),
            block_on("street_number", "address_1"),
            block_on("postcode"),
        ]
        comparisons = [
            name("given_name").configure(term_frequency_adjustments=True),
            name("surname").configure(term_frequency_adjustments=True),
            cl.DateOfBirthComparison(birth[0], **birth[1], invalid_dates_as_null=True),
            *([edits("soc_sec_id", [1, 2])] if has_id else []),
            cl.ExactMatch("street_number").configure(term_frequency_adjustments=True),
            edits("postcode", [1, 2]).configure(term_frequency_adjustments=True),
        ]
        sure = [*([block_on("soc_sec_id")] if has_id else []), block_on("given_name", "surname", "date_of_birth")]
        recall = 0.8
    passes = [block_on("date_of_birth"), block_on("postcode")]
    return predicted(tables, comparisons, rules, sure, recall, passes, seed)


def by_kinds(data: LinkageSet, name: str, seed: int) -> tuple[pd.DataFrame, dict[str, float]]:
    """Other sets: comparisons by the kinds of columns."""
    base = next((each for each in BY_HAND if name.startswith(each)), "")
    if base:
        kinds = BY_HAND[base]
    else:
        columns = data.left.columns.drop("id")
        kinds = {column: kind_of(data.left[column].map(normal)) for column in columns}
        kinds = {column: kind for column, kind in kinds.items() if kind != "empty"}
    tables = prepared(data, kinds)
    comparisons = [each for column, kind in kinds.items() for each in comparisons_of(column, kind)]
    words = [name for name, kind in kinds.items() if kind in ("title", "text")] if base else []
    rules: list[Any] = [block_on(f"{column}_rare", arrays_to_explode=[f"{column}_rare"]) for column in words]
    if base:
        title = next(column for column, kind in kinds.items() if kind == "title")
        rules += [block_on(column) for column, kind in kinds.items() if kind == "code"]
        words = f"l.{title}_words", f"r.{title}_words"
        sure: list[Any] = [jaccard(*words, 0.7)]
        passes = [jaccard(*words, 0.5) if each == "title" else block_on(each) for each in EM_BY_HAND[base]]
    else:
        alike = likely(tables, [column for column, kind in kinds.items() if kind != "text"])
        chosen = distinct_rules(alike, MOST_PAIRS * len(tables[0]))
        rules = [block_on(*columns) for columns in chosen]
        sure = [block_on(*columns) for columns in distinct_rules(alike, 0.01 * len(tables[0]))[:4]]
        passes = [block_on(*columns) for columns in chosen[:4]]
    return predicted(tables, comparisons, rules, sure, 0.7, passes, seed)


def likely(tables: list[pd.DataFrame], columns: list[str]) -> dict[tuple[str, ...], float]:
    """Pairs of rows that are equal in one or two columns, if columns were independent, the fewest first."""
    left, right = tables[0], tables[-1]
    share = {}
    for column in columns:
        counts = [table[column].value_counts() for table in (left, right)]
        share[column] = float((counts[0] * counts[1].reindex(counts[0].index, fill_value=0)).sum())
        share[column] /= len(left) * len(right)
    pairs = len(left) * len(right)
    combined = {(one,): share[one] * pairs for one in columns}
    combined |= {(one, other): share[one] * share[other] * pairs for one, other in combinations(columns, 2)}
    return dict(sorted(combined.items(), key=lambda item: item[1]))


def distinct_rules(alike: dict[tuple[str, ...], float], most: float) -> list[tuple[str, ...]]:
    """The weakest combinations with at most so many pairs, each column at most twice."""
    chosen: list[tuple[str, ...]] = []
    used: Counter[str] = Counter()
    for columns, pairs in sorted(alike.items(), key=lambda item: -item[1]):
        if pairs <= most and all(used[column] < 2 for column in columns) and len(chosen) < MOST_RULES:
            chosen.append(columns)
            used.update(columns)
    return chosen


def predicted(
    tables: list[pd.DataFrame],
    comparisons: list[Any],
    rules: list[Any],
    sure: list[Any],
    recall: float,
    passes: list[Any],
    seed: int,
) -> tuple[pd.DataFrame, dict[str, float]]:
    """Pairs with their probability, and how many passes of EM there were; none if splink has nothing to learn from."""
    settings = SettingsCreator(
        link_type="dedupe_only" if len(tables) == 1 else "link_only",
        comparisons=comparisons,
        blocking_rules_to_generate_predictions=rules,
        probability_two_random_records_match=HALF / max(len(table) for table in tables),
    )
    api = DuckDBAPI()
    linker = Linker([api.register(table) for table in tables], settings)
    notes = {"EM passes": 0.0}
    if sure:
        linker.training.estimate_probability_two_random_records_match(sure, recall=recall)
        if linker.misc.save_model_to_json()["probability_two_random_records_match"] == 0:
            return pd.DataFrame(columns=["left", "right", "probability"], dtype=float), notes | {"refused": 1.0}
    linker.training.estimate_u_using_random_sampling(max_pairs=1e7, seed=seed + 1)
    for rule in passes:
        try:
            linker.training.estimate_parameters_using_expectation_maximisation(
                rule, estimate_without_term_frequencies=True
            )
            notes["EM passes"] += 1
        except Exception as error:  # splink raises various errors where a rule gives no pairs
            print(f"EM by {rule}: {error}"[:300])
    frame = linker.inference.predict(threshold_match_probability=LEAST).as_pandas_dataframe()
    names = {"unique_id_l": "left", "unique_id_r": "right", "match_probability": "probability"}
    frame = frame.rename(columns=names)[list(names.values())]
    if len(tables) == 2:  # splink puts the tables in order of their names
        wrong = frame["left"].str.startswith("r")
        frame.loc[wrong, ["left", "right"]] = frame.loc[wrong, ["right", "left"]].to_numpy()
    return frame.drop_duplicates(["left", "right"], ignore_index=True), notes


def scored_by_splink(
    data: LinkageSet, name: str, seed: int, *, demo: bool = True
) -> tuple[pd.DataFrame, dict[str, float]]:
    """Pairs with their probability; ``demo``: FEBRL as splink's demos link it."""
    logging.getLogger("splink").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    with_floor()
    return by_demo(data, seed) if demo and name.startswith("febrl") else by_kinds(data, name, seed)
