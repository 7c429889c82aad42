"""The wheel: built from the tree, complete, and working when it is all that is installed of us."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

USE = """
import sys, numpy as np, vicinal
from vicinal.estimators import NeighborRegressor, save_model, load_model
assert {where!r} in vicinal.__file__, vicinal.__file__
x = np.linspace(0, 1, 40)[:, None]
model = NeighborRegressor(max_epochs=2).fit(x, x[:, 0])
save_model(model, "model")
assert np.allclose(load_model("model").predict(x), model.predict(x))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("hatchling", reason="the build back end is not installed")
    out = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "-w",
        str(out),
        str(ROOT),
    ]
    subprocess.run(command, check=True, capture_output=True)
    (made,) = out.glob("*.whl")
    return made


def test_wheel_holds_the_whole_package_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "vicinal").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in names if ".dist-info/" not in name}
    assert packed == sources
    assert "vicinal/py.typed" in packed
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_wheel_works_installed(wheel, tmp_path):
    site = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "-q", "--target", str(site), str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    run = {"cwd": tmp_path, "env": environment, "check": True, "capture_output": True, "text": True}
    subprocess.run([sys.executable, "-c", USE.format(where=str(site))], **run)
    assert subprocess.run([sys.executable, "-m", "vicinal", "--version"], **run).stdout.startswith("vicinal 0.")
    predicted = subprocess.run([sys.executable, "-m", "vicinal", "predict", "--help"], **run).stdout
    assert "Example" in predicted
