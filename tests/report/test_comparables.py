"""Comparables on a page: labels with their adjustments, the trend, and a row beside those it is compared with."""

import pytest

from vicinal.report.comparables import beside, grid_view
from vicinal.report.page import page_html, panel_view
from vicinal.report.records import FitRecord, NeighborPanel, TrendLine
from vicinal.report.tables import limits

ROWS = [
    ({"bmi": "30.1", "sex": "2"}, 281.0, 0.5, 125.0, "7", 250.0, {"bmi": -35.5, "sex": 4.5}),
    ({"bmi": "22", "sex": "1"}, 120.0, 0.1, 14.0, "9", 140.0, {"bmi": 20.0, "sex": 0.0}),
]


def panel(**changes):
    """Two adjusted rows and a trend, which add up."""
    known = {"neighbors": ROWS, "id": "3", "trend": TrendLine(0.4, 220.0, {"bmi": 20.0, "sex": -1.0}), **changes}
    return NeighborPanel("Best", {"bmi": "26", "sex": "1"}, 227.0, 230.0, **known)


def page(*panels, **settings):
    shown = {"readout": "comparables", "neighbors": 10, **settings}
    return page_html(FitRecord("d", "y", "regression", shown, scores={"model": {"mse": 1.0}}, panels=panels))


def test_lines_of_rows_and_trend_add_up():
    view = panel_view(panel())
    assert [line.adjusted for line in view.neighbors] == ["250", "140"]
    assert [line.by for line in view.neighbors] == ["bmi -35.5, sex +4.5", "bmi +20"]
    assert (view.trend.label, view.trend.weight, view.trend.by) == ("220", "40 %", "bmi +20, sex -1")
    parts = [*(line.contribution for line in view.neighbors), view.trend.contribution]
    assert sum(map(float, parts)) == pytest.approx(float(view.total), abs=1e-9)
    assert view.other is None
    assert view.adds == "adjusted label"


def test_a_row_stands_beside_its_comparables():
    grid = grid_view(panel())
    assert (grid.heads, grid.above) == (["row 7", "row 9"], [("label", "", ["281", "120"])])
    assert grid.below[0] == ("adjusted label", "", ["250.00", "140.00"])
    assert [(line.column, line.query) for line in grid.lines] == [("bmi", "26"), ("sex", "1")]
    assert [(cell.text, cell.differs, cell.adds) for cell in grid.lines[1].cells] == [
        ("2", True, "+4.50"),
        ("1", False, "0.00"),
    ]


def test_of_logarithms_columns_change_a_label_by_percentages():
    rows = [
        ({"bmi": "30"}, 100.0, 0.6, 0.6 * 4.7, "7", 110.0, {"bmi": 0.0953, "sex": 1e-5}),
        ({"bmi": "22"}, 90.0, 0.4, 0.4 * 4.5, "9", 90.0, {}),
    ]
    scaled = {"neighbors": rows, "scale": "log", "scaled": 0.6 * 4.7 + 0.4 * 4.5, "trend": None}
    shown = panel(**scaled)
    assert panel_view(shown).neighbors[0].by == "bmi +10 %"
    assert [[cell.adds for cell in line.cells] for line in grid_view(shown).lines] == [["+10 %", ""], ["", ""]]


def test_rows_that_are_not_adjusted_stand_beside_too():
    row = {"bmi": "26", "sex": "2", "age": "40"}
    known = [(row, 250.0, 0.75, 187.5, "7"), (row | {"sex": "1"}, 100.0, 0.25, 25.0)]
    plain = NeighborPanel("t", row | {"sex": "1"}, 212.5, None, known)
    grid = panel_view(plain).grid
    assert (grid.heads, grid.below) == (["row 7", "neighbor 2"], [("weight in the prediction", "", ["75 %", "25 %"])])
    assert [[cell.differs for cell in line.cells] for line in grid.lines] == [[False] * 2, [True, False], [False] * 2]
    [when] = beside({"when": "2016-10-05 01:50:48"}, [{"when": "2016-09-27 17:47:36"}])
    assert when.cells[0].pieces == [("2016-09-27 17:47:36", True)], "a time is no text, of which words may agree"
    text = page(plain, readout="rows")
    assert "This row beside its neighbors" in text
    assert "what the trend adds" not in text


def test_few_columns_and_pictures_are_a_list():
    for row in ({"a": "x"}, {"a": "x", "b": "y", "c": b"..."}):
        assert panel_view(NeighborPanel("t", row, 1.0, None, [(row, 1.0, 1.0, 1.0)])).grid is None


def test_columns_of_a_wide_table_are_summed():
    added = {f"c{place}": float(place) for place in range(14)}
    wide = (dict.fromkeys(added, "x"), 9.0, 1.0, 100.0, "", 100.0, added)
    grid = grid_view(NeighborPanel("t", {}, 100.0, None, [wide], trend=TrendLine(0.0, 5.0)))
    assert [line.column for line in grid.lines] == [f"c{place}" for place in range(13, 1, -1)]
    assert grid.below[0] == ("all other columns", "", ["+1.00"])
    assert grid.heads == ["comparable 1"]


def test_the_page_shows_adjusted_labels_and_the_trend():
    text = page(panel())
    assert "The trend by columns says 220 (most from bmi +20, sex \N{MINUS SIGN}1); weight 40 %." in text
    for part in ("→ 250", "trend by columns", "<bdi><mark>2</mark></bdi>", "each adjusted by a trend by columns"):
        assert part in text
    assert "→" not in page(NeighborPanel("t", {}, 1.0, None, [({"a": "x"}, 1.0, 1.0, 1.0)]), readout="rows")


def test_the_trend_alone_makes_a_panel():
    alone = panel(neighbors=(), trend=TrendLine(1.0, 227.0))
    view = panel_view(alone)
    assert (view.neighbors, view.trend.contribution, view.total) == ([], "227.0", "227.0")
    assert "trend by columns" in page(alone)


def test_another_scale_is_named():
    view = panel_view(panel(scale="log", scaled=227.0))
    assert view.adds == "log of adjusted label"
    assert grid_view(panel(scale="log", scaled=227.0)).below[0][2] == ["250", "140"]
    assert "on the log scale" in page(panel(scale="log", scaled=227.0), target_transform="log")


@pytest.mark.parametrize(
    ("scale", "end"),
    [
        ("none", "it leaves the range of the labels by at most half of it."),
        ("log", "by at most a quarter of it."),
        ("rank", "it never leaves the range of the labels."),
    ],
)
def test_limits_say_how_far_comparables_go(scale, end):
    settings = {"readout": "comparables", "neighbors": 10, "target_transform": scale}
    first = limits(FitRecord("d", "y", "regression", settings, scores={"model": {"mse": 1.0}}))[0]
    assert "labels of at most 10 rows, each adjusted by a trend by columns, and the trend itself" in first
    assert first.endswith(end)
