"""The page: self-contained, harmless whatever the rows say, and true to the record."""

import base64
import dataclasses
import hashlib
import io
import re
from html.parser import HTMLParser
from importlib import resources

import numpy as np
import pytest

from vicinal.core.files import replace_text
from vicinal.report import write_page
from vicinal.report.audit import suspect_rows
from vicinal.report.audit_records import Suspect
from vicinal.report.compare import compare_html
from vicinal.report.page import cell_view, cells, page_html, panel_view
from vicinal.report.records import Doubted, Example, FitRecord, NeighborPanel, Verdict
from vicinal.report.theme import CLASSES

VOID = {"meta", "br", "img", "link", "input", "hr"}
HOSTILE = (
    "\"'><script>alert(1)</script><img src=x onerror=alert(2)> {{ 7*7 }} ${x} </style></svg>\x00\ud800 \u202e&amp;"
)


class Reader(HTMLParser):
    """Collects tags, attributes and text, and sees that tags close in order."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.open, self.text = [], [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def check_harmless(text):
    page = Reader(text)
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    allowed = [f"sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}" for code in scripts]
    assert page.tags.count("script") == len(scripts) <= 1
    assert re.findall(r"script-src '([^']*)'", text) == allowed
    assert not {"iframe", "object", "link", "form", "base"} & set(page.tags)
    for name, value in page.attributes:
        assert not name.startswith("on"), name
        if name in ("src", "href", "xlink:href"):
            assert value.startswith(("data:image/", "data:audio/", "#")), value[:40]
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert "default-src 'none'" in text
    assert not re.search(r"url\((?!#)", text)
    return page


def small(**changes):
    given = {"name": "d", "target_name": "y", "task": "regression", "scores": {"model": {"mse": 1.0}}}
    return FitRecord(**{**given, **changes})


@pytest.fixture(scope="module")
def page_of():
    """The page of a record, by the name of its fixture, written once."""
    made = {}

    def page(name, record):
        if name not in made:
            made[name] = page_html(record)
        return made[name]

    return page


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", ["words", "houses", "digits"])
def test_pages_are_self_contained_and_well_formed(name, request, page_of):
    record = request.getfixturevalue(name)
    page = check_harmless(page_of(name, record))
    assert record.name in page.text
    assert page.tags.count("article") == len(record.panels)


def test_rows_are_listed_and_searched_by_a_script_that_the_page_allows():
    rows = [
        Example("h7", 2.0, 3.0, {"town": "north"}, (0.0, 2.5)),
        Example("h8", 2.0, 2.0, {"town": ""}, (0.0, 2.5)),
    ]
    text = page_html(small(examples=rows))
    page = check_harmless(text)
    assert page.tags.count("script") == 1
    assert "town north" in page.text
    assert text.count('num bad" data-name="90 %"') == 1, "the truth of h7 is outside"
    assert "script-src" not in page_html(small())


def test_settings_of_other_methods_come_last():
    text = page_html(small(notes=["ridge: alpha 1, chosen by cross-validation.", "look at id"]))
    assert text.index("look at id") < text.index("All scores") < text.index("ridge: alpha 1")


def test_pictures_fit_the_task(words, digits, page_of):
    for name, record, titles, others in (
        ("words", words, ["Predicted and true", "Residuals", "The mask that was learned"], ["Confusion matrix"]),
        (
            "digits",
            digits,
            ["Confusion matrix", "Reliability"],
            ["Residuals", "Learning curves", "The mask that was learned"],
        ),
    ):
        text = page_of(name, record)
        assert all(f"<h3>{title}</h3>" in text for title in titles)
        assert not any(f"<h3>{title}</h3>" in text for title in others)


def test_colors_of_classes_are_seen_on_light_and_dark_pages():
    def luminance(color):
        part = np.array([*bytes.fromhex(color[1:])]) / 255
        return np.where(part <= 0.03928, part / 12.92, ((part + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    templates = resources.files("vicinal.report") / "templates"
    grounds = re.findall(r"--card: (#\w{6})", (templates / "style.css").read_text())
    assert len(grounds) == 2
    for color in CLASSES:
        for ground in grounds:
            low, high = sorted(map(luminance, (color, ground)))
            assert (high + 0.05) / (low + 0.05) >= 3, (color, ground)
    colors = re.search(r"const colors = \[(.*?)\]", (templates / "explore.js").read_text())[1]
    assert re.findall(r"#\w{6}", colors) == [*CLASSES]


def test_every_figure_has_words(words, page_of):
    page = Reader(page_of("words", words))
    labels = [value for name, value in page.attributes if name == "aria-label"]
    assert sum(len(label) > 30 for label in labels) >= 5
    assert page.tags.count("figure") == page.tags.count("figcaption") == 5


def test_hostile_text_is_shown_as_text(digits):
    neighbors = [({HOSTILE: HOSTILE, "other": HOSTILE}, 1.0, 0.5, 0.5, HOSTILE)]
    record = small(
        name=HOSTILE,
        target_name=HOSTILE,
        settings={HOSTILE: HOSTILE, "head": HOSTILE},
        columns=[(HOSTILE, "text", HOSTILE, HOSTILE)],
        dropped={HOSTILE: 1},
        duplicates=HOSTILE,
        scores={"model": {"mse": 1.0, HOSTILE: 2.0}, HOSTILE: {"mse": 2.0}},
        history={HOSTILE: [1.0, 2.0]},
        predicted=np.ones(5),
        truth=np.zeros(5),
        embedding=np.eye(3),
        embedding_labels=np.array([HOSTILE, "b", "c"]),
        panels=[NeighborPanel(HOSTILE, {HOSTILE: HOSTILE}, 1.0, 2.0, neighbors, 0.5, id=HOSTILE)],
        mask_curves=(np.linspace(0, 1, 3), [(HOSTILE, np.ones(3))]),
        split_sizes={HOSTILE: 5},
        versions={HOSTILE: HOSTILE},
        notes=[HOSTILE],
        verdict=Verdict(5, Doubted(1.0), HOSTILE, 1, Doubted(0.5)),
        coverage=[{"coverage": 0.9, "covered": 1.0, "width": 2.0, "by_part": []}],
        examples=[Example(HOSTILE, 1.0, 0.0, {HOSTILE: HOSTILE}, (0.5, 2.0))],
    )
    text = page_html(record)
    page = check_harmless(text)
    assert "<script>alert(1)</script>" in page.text
    assert "{{ 7*7 }}" in page.text
    text.encode("utf-8")
    classes = [HOSTILE, "b"]
    check_harmless(
        page_html(
            dataclasses.replace(
                digits,
                classes=classes,
                predicted=np.array([[0.9, 0.1], [0.2, 0.8]]),
                truth=np.array(classes),
                panels=[NeighborPanel("t", {}, HOSTILE, "b", [({"": ""}, HOSTILE, 1.0, 0.9)], 0.0, None, None, 0.9)][
                    :0
                ],
            )
        )
    )


def test_hostile_class_names_in_a_panel():
    panel = NeighborPanel("t", {"a": "q"}, HOSTILE, "b", [({"a": "n"}, HOSTILE, 1.0, 1.0)], probability=1.0)
    record = small(task="classification", scores={"model": {"accuracy": 1.0}}, panels=[panel])
    check_harmless(page_html(record))


def test_nothing_but_scores_makes_a_page():
    text = page_html(small())
    check_harmless(text)
    assert "No predictions with neighbors were recorded." in text
    assert "<figure" not in text
    assert "a dense head has none" in page_html(small(settings={"head": "dense"}))


@pytest.mark.parametrize(
    "changes",
    [
        {"history": {"train_mse": [1.0], "validation_mse": [2.0]}},
        {"history": {"train_mse": []}},
        {"embedding": np.arange(30.0), "embedding_labels": np.arange(30.0)},
        {"embedding": np.ones((1, 3)), "embedding_labels": np.ones(1)},
        {"predicted": np.array([1.0, np.nan]), "truth": np.ones(2)},
        {"predicted": np.ones(1), "truth": np.ones(1)},
        {"scores": {"model": {}}},
        {"scores": {"model": {"own": -1.0}, "knn": {"mse": 0.0}}},
        {"panels": [NeighborPanel("t", {}, 1.0, None)]},
        {"mask_curves": (np.zeros(0), [])},
        {"duration_s": 0.0},
    ],
)
def test_sparse_records(changes):
    check_harmless(page_html(small(**changes)))


@pytest.mark.slow
def test_many_points_are_sampled_and_the_page_says_so():
    values = np.random.default_rng(0).normal(size=(12_000, 2))
    text = page_html(small(predicted=values[:, 0], truth=values[:, 1], embedding=values, embedding_labels=values[:, 0]))
    assert text.count("Shown: 5,000 of 12,000 points, drawn at random with a fixed seed.") == 3
    assert len(text) < 2_000_000


def shown_numbers(text):
    return [float(part.replace(",", "")) for part in text]


@pytest.mark.parametrize("name", ["words", "houses", "digits"])
def test_shown_contributions_add_up_to_the_shown_sum(name, request):
    for panel in request.getfixturevalue(name).panels:
        view = panel_view(panel)
        parts = shown_numbers([*(line.contribution for line in view.neighbors), view.other.contribution])
        (total,) = shown_numbers([view.total])
        assert sum(parts) == pytest.approx(total, abs=1e-9 * max(1, abs(total)))
        assert total == pytest.approx(panel.total, rel=0.01)
        if name != "digits":
            assert view.prediction == view.total


def test_no_line_of_other_rows_where_there_are_none():
    panel = NeighborPanel("t", {"a": "q"}, 1.0, None, [({"a": "x"}, 1.0, 0.99999, 0.99999)], 1e-5, None, other_rows=0)
    view = panel_view(panel)
    assert view.other is None
    assert view.total == view.neighbors[0].contribution == "1.00"


def test_rows_that_count_against_are_told_apart():
    neighbors = [({"a": 1.0}, "x", 1.25, 1.25), ({"a": 2.0}, "x", -0.25, -0.25)]
    panel = NeighborPanel("t", {"a": 0.0}, "x", "y", neighbors, 0.0, None, None, 0.9, scale="softmax", scaled=1.0)
    page = page_html(small(task="classification", scores={"model": {"accuracy": 1.0}}, panels=[panel]))
    check_harmless(page)
    assert page.count('class="against"') == 1
    assert "\N{MINUS SIGN}25 %" in page
    assert "score of x, which makes its probability 90 %" in page


def test_contributions_cancel_to_zero():
    panel = NeighborPanel("t", {"a": "q"}, 0.0, 0.0, [({"a": "x"}, -1.0, 0.5, -0.5), ({"a": "y"}, 1.0, 0.5, 0.5)])
    view = panel_view(panel)
    assert view.total == "0.000"
    assert view.other is None
    check_harmless(page_html(small(panels=[panel])))


def test_long_text_is_clipped_and_kept_in_the_title():
    view = cell_view("a", "word " * 1000, 100)
    assert len(view.text) <= 100
    assert view.text.endswith("…")
    assert 1900 < len(view.full) <= 2000
    panel = NeighborPanel("t", {"a": "word " * 1000}, 1.0, None, [({"a": "x" * 5000}, 1.0, 1.0, 1.0)])
    check_harmless(page_html(small(panels=[panel])))


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n....", "image"),
        (b"RIFF\x00\x00\x00\x00WAVEfmt ", "audio"),
        (b"RIFF\x00\x00\x00\x00AVI fmt ", "text"),
        (b"<svg onload=alert(1)>", "text"),
        (b"", "text"),
        (b"fLaC" + b"0" * 700_000, "text"),
        (b"\xff\xd8\xff" + b"0" * 100_000, "text"),
    ],
)
def test_bytes_are_shown_by_what_they_are(content, kind):
    view = cell_view("a", content, 100)
    assert view.kind == kind
    assert view.source.startswith(f"data:{kind}/") if kind != "text" else view.source == ""


def test_large_pictures_are_made_small():
    image = pytest.importorskip("PIL.Image")
    noise = np.random.default_rng(0).integers(0, 255, (600, 600, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    image.fromarray(noise).save(buffer, "PNG")
    assert len(buffer.getvalue()) > 500_000
    view = cell_view("a", buffer.getvalue(), 100)
    assert view.kind == "image"
    assert len(view.source) < 80_000


@pytest.mark.slow
def test_writing_is_whole_or_not_at_all(words, tmp_path, monkeypatch):
    path = tmp_path / "new" / "report.html"
    assert write_page(words, path) == path
    assert list(path.parent.iterdir()) == [path]
    before = path.read_bytes()

    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("pathlib.Path.replace", stop)
    with pytest.raises(KeyboardInterrupt):
        replace_text(path, "half")
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_comparison_page(comparison):
    page = check_harmless(compare_html(comparison))
    assert "MSE x 1000" in page.text
    assert "p = 0.026: the methods differ" in page.text
    assert page.tags.count("figure") == 1
    assert "two methods are told apart where their average ranks differ by more than" in page.text
    assert "better in " in page.text


def test_comparison_of_one_data_set_and_hostile_names(comparison):
    results = {HOSTILE: {"dense": [0.1, 0.2], HOSTILE: [0.2, 0.1]}}
    record = dataclasses.replace(
        comparison, results=results, friedman=None, ranks={}, critical_difference=None, settings={}, seconds={}
    )
    page = check_harmless(compare_html(record))
    assert page.tags.count("figure") == 1
    assert "Friedman" not in page.text


def test_comparison_without_the_reference_or_with_a_missing_method(comparison):
    results = {"a": {"nona": [1.0]}, "b": {"nona": [1.0], "own": [2.0]}}
    page = check_harmless(compare_html(dataclasses.replace(comparison, results=results, ranks={"nona": 1.0})))
    assert "figure" not in page.tags


def test_a_wide_row_is_shown_by_its_first_cells():
    shown = cells({f"c{i}": i for i in range(40)}, 20)
    assert len(shown) == 13
    assert (shown[0].column, shown[-1].column) == ("c0", "and 28 more columns")
    assert "c39 39" in shown[-1].full
    assert len(cells({f"c{i}": i for i in range(13)}, 20)) == 13


@pytest.mark.parametrize(("chance", "last"), [(0.0, ["suspicion", "4.2"]), (0.004, ["P(wrong)", "0.4 %"])])
def test_without_a_sign_of_wrong_labels_there_is_no_probability_of_0(chance, last):
    headings, cells = suspect_rows([Suspect(1, "new", 3.0, 1.0, 2.0, 4.2, "", chance)])
    assert [headings[-1], cells[-1]] == last
