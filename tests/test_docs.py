"""The documentation is true: its Python runs, its commands exist, its sentences are said, its tables are new."""

import importlib.util
import io
import json
import re
import runpy
import shlex
import tomllib
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import typer.main
from PIL import Image

import page_outputs
import vicinal
from faults.edits import seal
from vicinal.cli import run
from vicinal.cli.app import app
from vicinal.core import KINDS, entries
from vicinal.estimators import NeighborRegressor, save_model
from vicinal.report.notebook import cell_of
from vicinal.workflows.opening import TableJob, open_table
from vicinal.workflows.resuming import working_folder

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)

if not PAGES[0].is_file():  # the tests may be run from a wheel's neighborhood
    pytest.skip("the documentation is not beside the tests", allow_module_level=True)


def blocks(page, language):
    return [code for found, code in FENCED.findall(page.read_text(encoding="utf-8")) if found == language]


def runnable(page):
    """Language and code of the blocks of a page but those of ``<!-- needs: PACKAGE -->`` that is not installed."""
    text = page.read_text(encoding="utf-8")
    marked = re.compile(r"^<!-- needs: (\w+) -->\n```python\n.*?^```\n", re.DOTALL | re.MULTILINE)
    text = marked.sub(lambda found: found[0] if importlib.util.find_spec(found[1]) else "", text)
    return FENCED.findall(text)


def commands(page):
    """Command lines of the program in a page, as lists of arguments."""
    lines = "".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("vicinal ")]


with_python = pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
with_commands = pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=lambda p: p.name)


LONG = ("guide.md", "uncertainty.md", "coming-from.md", "gallery.md")
"""Pages whose blocks fit models by the defaults: a minute, so ``make test-all`` runs them."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(p, marks=pytest.mark.slow if p.name in LONG else ())
        for p in PAGES
        if blocks(p, "python") and p.parent.name != "tutorials"
    ],
    ids=lambda p: p.name,
)
def test_python_blocks_run_in_order(page, tmp_path, monkeypatch):
    if page.name == "outside.md":
        for package in ("onnx", "onnxruntime"):
            pytest.importorskip(package, reason=f"{package} is an optional package")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page.stem}
    with mpl.rc_context():
        for language, code in runnable(page):
            if language == "python":
                exec(compile(code, f"{page.name}, Python block", "exec"), names)
            for line in code.splitlines() if language == "sh" and "digits" in code and page.name == "guide.md" else ():
                assert run(shlex.split(line)[1:]) == 0, line  # a later block reads what it writes


QUICK = ("match.md", "own-loop.md", "wrong-labels.md")
"""Tutorials that run in seconds, with every change; ``notebook.md`` has a test of its own."""

TUTORIALS = [p for p in PAGES if p.parent.name == "tutorials"]


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=() if p.name in QUICK else pytest.mark.slow) for p in TUTORIALS],
    ids=lambda p: p.name,
)
def test_tutorials_run_as_they_stand(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names, ran = {"__name__": page.stem}, 0
    for language, code in FENCED.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            exec(compile(code, f"{page.name}, Python block", "exec"), names)
        for line in code.splitlines() if language == "sh" else ():
            assert run(shlex.split(line)[1:]) == 0, (line, capsys.readouterr().err)
            ran += 1
    assert ran >= (page.name not in ("own-loop.md", "notebook.md"))


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda p: p.name)
def test_a_tutorial_is_a_notebook_with_its_cells_in_order_and_what_they_print(page):
    pytest.importorskip("mkdocs")
    from notebooks import notebook

    text = page.read_text(encoding="utf-8")
    cells = notebook(text)["cells"]
    sources = [cell["source"] + "\n" for cell in cells if cell["cell_type"] == "code"]
    code = [
        block.replace("vicinal ", "!vicinal ") if found == "sh" else block
        for found, block in runnable(page)
        if found in ("python", "sh")
    ]
    assert sources == code
    printed = [out["text"] for cell in cells for out in cell.get("outputs", ())]
    assert printed == [block for found, block in runnable(page) if found == "text"]
    prose = "\n".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown")
    assert prose.startswith("# ")
    assert "```python" not in prose
    assert "](../" not in prose.replace("](../images", "")


def test_the_notebook_runs_and_shows_the_cells_of_the_query(tmp_path, monkeypatch):
    """If this fails: python scripts/page_outputs.py docs/tutorials/notebook.ipynb."""
    monkeypatch.chdir(tmp_path)
    notebook = ROOT / "docs" / "tutorials" / "notebook.ipynb"
    cells = [cell for cell in page_outputs.run_cells(notebook) if cell[1]]
    assert [source + "\n" for source, *_ in cells] == blocks(notebook.with_suffix(".md"), "python")
    values = {source.splitlines()[-1]: value for source, _, _, value in cells if value is not None}
    explained, model = values["explained"], values["model.fit(X, y, ids=X.index)"]
    assert all(f">{cell_of(cell)}<" in explained._repr_html_() for cell in explained[0].query.values())
    assert "regression of mpg" in model._repr_html_()
    for name in ("plot.predicted_and_observed(model)", "plot.reasons(explained[0])", "plot.importance(model)"):
        assert values[name].axes[0].has_data()
    suspects = values['table.nlargest(5, "apart")[["label", "predicted", "apart"]]']
    assert "toyota corolla 1200 1974" in suspects.index
    assert "regression of mpg" in values['NeighborRegressor.load("cars-model").summary()']["what"]


@with_commands
def test_commands_and_their_options_exist(page):
    program = typer.main.get_command(app)
    for arguments in commands(page):
        if arguments[0].startswith("-"):
            continue
        verb = program.commands[arguments[0]]
        inner = getattr(verb, "commands", {})
        verbs = [verb, *(inner[word] for word in arguments[1:2] if word in inner)]
        known = {option for one in verbs for part in one.params for option in (*part.opts, *part.secondary_opts)}
        unknown = [word.partition("=")[0] for word in arguments if word.startswith("-")]
        assert set(unknown) <= {*known, "--help"}, arguments


@pytest.mark.slow
def test_commands_of_the_guide_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    guide = ROOT / "docs" / "guide.md"
    for code in (code for code in blocks(guide, "python") if "diabetes.csv" in code or "homes.csv" in code):
        exec(code, {})
    mine = [line for line in commands(guide) if any(word.startswith(("diabetes", "homes")) for word in line)]
    of_readers = {"explore", "embed", "add", "forget", "relabel"}  # a server, and files of the reader's own
    assert {line[0] for line in mine} >= {"fit", "predict", "search", "explain", "show", "refit", "compare"}
    for arguments in mine:
        if arguments[0] not in of_readers:
            assert run(arguments) == 0, capsys.readouterr().err


def test_the_messy_table_of_the_guide_is_read_as_shown(tmp_path, monkeypatch):
    """If this fails: python scripts/page_outputs.py docs/guide.md."""
    monkeypatch.chdir(tmp_path)
    guide = ROOT / "docs" / "guide.md"
    exec(next(code for code in blocks(guide, "python") if "homes.csv" in code), {})
    opened = open_table(TableJob(Path("homes.csv"), "price"))
    text = guide.read_text(encoding="utf-8")
    shown = text[text.index("vicinal fit homes.csv --target price") :]
    for name, column in opened.columns.items():
        line = re.search(rf"^  {name} .*\n(?: {{20,}}\S.*\n)*", shown, re.MULTILINE)  # long reasons go on below
        words = line[0].split()
        assert words[:2] + words[3:] == [name, str(column.kind), *column.reason.split()]
    assert opened.table.form.columns["sold"].day_first
    assert opened.table.form.columns["price"].sign == "$"
    assert f"{len(set(opened.table.target.tolist()))} different ones" in shown


def test_tables_of_methods_are_up_to_date():
    """If this fails: python scripts/method_tables.py."""
    script = runpy.run_path(str(ROOT / "scripts" / "method_tables.py"))
    marked = 0
    for page in (ROOT / "docs").rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        marked += len(re.findall("<!-- (?:methods|facts|which): ", text))
        assert script["renewed"](text) == text, page.name
    assert marked >= 24
    text = (ROOT / "docs" / "which.md").read_text(encoding="utf-8")
    assert not [entry.name for kind in KINDS for entry in entries(kind) if f"| `{entry.name}` |" not in text]


def test_the_version_is_one_and_the_same():
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    released = re.findall(r"^## \[(\d\S*)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited[1] == released[0] == vicinal.__version__


def test_pages_beside_the_readme_lead_somewhere():
    for name in ("CONTRIBUTING.md", "SECURITY.md", "README.md", "CHANGELOG.md"):
        for link in re.findall(r"\]\(([^)#:]+)[^):]*\)", (ROOT / name).read_text(encoding="utf-8")):
            assert (ROOT / link).exists(), (name, link)


def test_installations_are_of_a_checkout_and_its_extras():
    """No page promises an index that has no vicinal yet, or an extra that is not there."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = set()
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for line in re.findall(r"pip install [^`\n]*", page.read_text(encoding="utf-8")):
            assert not re.search(r"install [^#]*\bvicinal\b", line), f"{page.name}: {line}"
            named |= {extra for found in re.findall(r"\.\[([^\]]+)\]", line) for extra in found.split(",")}
    assert named
    assert named <= set(extras), named - set(extras)


def test_pictures_are_there_and_small():
    for page in PAGES:
        for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert "://" not in picture
            assert 0 < (page.parent / picture).stat().st_size < 250_000, picture


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        assert f": {page.relative_to(ROOT / 'docs').as_posix()}\n" in navigation


def jpeg():
    buffer = io.BytesIO()
    Image.effect_noise((256, 256), 80).convert("RGB").save(buffer, "JPEG")
    return buffer.getvalue()


def plain(width, height):
    buffer = io.BytesIO()
    Image.new("1", (width, height)).save(buffer, "PNG")
    return buffer.getvalue()


def good(rows=30):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "house": [f"h{i}" for i in range(rows)],
            "rooms": rng.uniform(1, 9, rows).round(1),
            "street": "Main Street",
            "price": rng.uniform(100, 900, rows).round(2),
        }
    )


def photos(odd):
    return good().assign(photo=["house.jpg"] * 4 + [odd] + ["house.jpg"] * 25)


def changed(column, row, value):
    frame = good().astype({column: object})
    frame.loc[row, column] = value
    return frame


WRONG = {
    "a target that is not there": (good(), ["--target", "prise"]),
    "too few rows": (good(9), []),
    "a target that does not vary": (good().assign(price=3.5), []),
    "an id that stands twice": (changed("house", 3, "h1"), ["--id", "house"]),
    "a group that spans everything": (good(), ["--group", "street"]),
    "an unknown column": (good(), ["--drop", "room"]),
    "an unknown setting": (good(), ["--similarity", "cosin"]),
    "an image that is not there": (photos("gone.jpg"), ["--image", "photo"]),
    "an image that is cut short": (photos("cut.jpg"), ["--image", "photo"]),
    "a file that is no image": (photos("note.jpg"), ["--image", "photo"]),
    "an image that unpacks to very much": (photos("bomb.png"), ["--image", "photo"]),
    "an image far longer than wide": (photos("needle.png"), ["--image", "photo"]),
    "an image outside the data folder": (photos("../secret.jpg"), ["--image", "photo"]),
    "a folder with other files": (good(), ["--out", "thesis"]),
}


@pytest.fixture(scope="module")
def media(tmp_path_factory):
    """Files that the wrong inputs name."""
    folder = tmp_path_factory.mktemp("data") / "data"
    (folder / "thesis").mkdir(parents=True)
    (folder / "thesis" / "chapter1.txt").write_text("years of work")
    whole = jpeg()
    for name, content in (
        ("house.jpg", whole),
        ("cut.jpg", whole[:700]),
        ("note.jpg", b"a note"),
        ("bomb.png", plain(10_000, 6_000)),
        ("needle.png", plain(1, 20_000)),
    ):
        (folder / name).write_bytes(content)
    (folder.parent / "secret.jpg").write_bytes(whole)
    return folder


def said(arguments, capsys):
    """The sentence that a command ends with."""
    assert run([*arguments, "-q"]) == 2
    return capsys.readouterr().err.removeprefix("error: ").strip()


def check_told(case, sentence, folder):
    """The guide's table has this sentence for this case; "..." in the guide stands for anything."""
    guide = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    (told,) = re.findall(rf"^\| {re.escape(case)} \| (.*) \|$", guide, re.MULTILINE)
    pattern = re.escape(told.replace(r"\|", "|")).replace(re.escape("..."), ".*")
    assert re.fullmatch(pattern, sentence.replace(str(folder), "data")), f"the guide has {told!r} for {sentence!r}"


@pytest.mark.parametrize("case", WRONG)
def test_sentences_on_wrong_input_are_those_of_the_guide(case, media, monkeypatch, capsys):
    frame, options = WRONG[case]
    monkeypatch.chdir(media)
    frame.to_csv("houses.csv", index=False)
    target = [] if "--target" in options else ["--target", "price"]
    check_told(case, said(["fit", "houses.csv", *target, *options], capsys), media)


def test_the_sentence_on_a_second_run_is_that_of_the_guide(media, monkeypatch, capsys):
    monkeypatch.chdir(media)
    good().to_csv("houses.csv", index=False)
    with working_folder(Path("house-model")):
        sentence = said(["fit", "houses.csv", "--target", "price", "--out", "house-model"], capsys)
    check_told("a folder that another run fits", sentence, media)


def test_sentences_on_wrong_models_are_those_of_the_guide(media, monkeypatch, capsys):
    monkeypatch.chdir(media)
    frame = good()
    save_model(NeighborRegressor(max_epochs=1, hidden=(8, 4)).fit(frame[["rooms"]], frame["price"]), "model")
    frame.rename(columns={"rooms": "room"}).to_csv("new.csv", index=False)
    check_told("a column missing in predict", said(["predict", "model", "new.csv"], capsys), media)
    frame.to_csv("new.csv", index=False)
    asked = ["predict", "model", "new.csv", "--interval", "0.99"]
    check_told("more coverage than the held-out rows allow", said(asked, capsys), media)
    asked, config = ["predict", "model", "new.csv"], media / "model" / "config.json"
    whole = config.read_text()
    for case, setting in (
        ("a database that only the model folder names", {"index": "milvus:other.db"}),
        ("settings that no model has", {"members": 30_000}),
    ):
        edited = json.loads(whole)
        edited["parameters"] |= setting
        config.write_text(json.dumps(edited))
        seal(media / "model")
        check_told(case, said(asked, capsys), media)
    config.write_text("{}")
    check_told("a model file that was torn or edited", said(asked, capsys), media)
