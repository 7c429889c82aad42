"""The link check of the documentation finds what is broken, and lets pass what is not."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "links.py"
if not SCRIPT.is_file():
    pytest.skip("the scripts are not beside the tests", allow_module_level=True)
SCRIPT = runpy.run_path(str(SCRIPT))


@pytest.mark.parametrize(
    ("link", "wrong"),
    [
        ('<a href="b/">', ""),
        ('<a href="b/#there">', ""),
        ('<a href="#here">', ""),
        ('<a href="https://example.org/x">', ""),
        ('<img src="data:image/png;base64,AA">', ""),
        ('<a href="b/#gone">', "no such anchor"),
        ('<a href="#gone">', "no such anchor"),
        ('<a href="c/">', "no such page"),
        ('<img src="c.png">', "no such page"),
        ('<a href="https://example">', "not a whole address"),
        ('<script src="https://example.org/x.js"></script>', "loaded from elsewhere"),
    ],
)
def test_links_are_told_apart(tmp_path, link, wrong):
    (tmp_path / "b").mkdir()
    (tmp_path / "index.html").write_text(f'<h1 id="here">A</h1>{link}')
    (tmp_path / "b" / "index.html").write_text('<a id="there" href="../#here">')
    said = SCRIPT["broken"](tmp_path)
    assert [sentence.rsplit(": ", 1)[1] for sentence in said] == ([wrong] if wrong else [])
