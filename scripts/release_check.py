"""Before a release: wheel and sdist are built, and each is installed with each extra into an environment of its own.

    python scripts/release_check.py                  # all: two artifacts, base and every extra
    python scripts/release_check.py --extras files   # some

In each a model is fitted, saved and asked by the command line, and what the extra is for is used once. Environments are
made by uv where it is installed (it links files that it has), else by venv and pip. torch is the version that the
project pins, from wherever the settings of the installer say. Prints a line for each; exit code 1 if one fails.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
MAKEFILE = (PROJECT / "Makefile").read_text(encoding="utf-8")
TORCH = re.findall(r"torch==[\d.]+", MAKEFILE)[0]

BASE = """
import numpy as np, pandas as pd
from pathlib import Path
from vicinal import NeighborRegressor
from vicinal.cli import run

random = np.random.default_rng(0)
frame = pd.DataFrame(random.normal(size=(60, 2)), columns=["a", "b"])
y = frame["a"] + frame["b"] ** 2
frame.assign(y=y).to_csv("rows.csv", index=False)
quick = ["--max-epochs", "2", "--no-baselines", "-q"]
assert run(["fit", "rows.csv", "--target", "y", "--out", "model", *quick]) == 0
assert run(["predict", "model", "rows.csv", "--out", "out.csv", "-q"]) == 0
assert len(pd.read_csv("out.csv")) == 60

def learned(column, kind, encoder):
    settings = {"columns": {column: kind}, "encoders": {column: encoder}, "max_epochs": 1, "hidden": (8, 4)}
    NeighborRegressor(**settings).fit(frame[["a", column]], y).save("media")
    assert run(["predict", "media", "media.parquet", "--out", "media.csv", "-q"]) == 0
"""

USE = {
    "text": """
frame["t"] = [f"a text of {n} words" for n in range(60)]
frame.to_parquet("media.parquet")
learned("t", "text", "minilm")
""",
    "image": """
import io
from PIL import Image
def picture(n):
    buffer = io.BytesIO()
    Image.new("RGB", (32, 32), (4 * n, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()
frame["p"] = [picture(n) for n in range(60)]
frame.to_parquet("media.parquet")
learned("p", "image", "efficientnet-lite0")
""",
    "audio": """
import io, soundfile
def sound(n):
    buffer = io.BytesIO()
    soundfile.write(buffer, np.sin(np.arange(8000) * (n + 9) / 99), 16000, format="WAV")
    return buffer.getvalue()
frame["s"] = [sound(n) for n in range(60)]
frame.to_parquet("media.parquet")
learned("s", "audio", "ge2e")
""",
    "faiss": """
NeighborRegressor(index="faiss:Flat", max_epochs=1).fit(frame, y).predict(frame[:3])
""",
    "milvus": """
NeighborRegressor(index=f"milvus:{Path('bank.db').absolute()}", max_epochs=1).fit(frame, y).predict(frame[:3])
""",
    "files": """
frame.to_excel("rows.xlsx", index=False)
import pyarrow as pa
with pa.CompressedOutputStream("rows.csv.zst", "zstd") as packed:
    packed.write(frame.to_csv(index=False).encode())
for name in ("rows.xlsx", "rows.csv.zst"):
    assert run(["predict", "model", name, "--out", "out.sqlite", "-q"]) == 0
assert run(["predict", "model", "select * from out", "--database", "out.sqlite", "--out", "o.csv", "-q"]) == 2  # no a
import duckdb
duckdb.sql("select 1 as a, 2 as b").write_parquet("one.parquet")
""",
    "onnx": """
assert run(["export", "model", "--onnx", "model.onnx"]) == 0
import onnx
onnx.checker.check_model(onnx.load("model.onnx"))
""",
    "mlflow": """
assert run(["export", "model", "--mlflow", "of-mlflow"]) == 0
import mlflow
assert len(mlflow.pyfunc.load_model("of-mlflow").predict(frame)) == 60
""",
    "ray": """
frame.to_parquet("rows.parquet")
assert run(["predict", "model", "rows.parquet", "--out", "shared.csv", "--engine", "ray", "--workers", "1", "-q"]) == 0
""",
    "serve": """
import json, signal, subprocess, sys, time, urllib.request
server = subprocess.Popen([sys.executable, "-m", "vicinal", "serve", "model", "--port", "8731", "-q"])
try:
    body = json.dumps({"rows": frame[:2].to_dict("records")}).encode()
    request = urllib.request.Request("http://127.0.0.1:8731/predict", body, {"Content-Type": "application/json"})
    for wait in range(120):
        time.sleep(1)
        try:
            answer = json.load(urllib.request.urlopen(request))
            break
        except OSError:
            assert server.poll() is None
    assert len(answer["predictions"]) == 2
finally:
    server.send_signal(signal.SIGTERM)
assert server.wait(60) == 0
""",
    "docs": """
import mkdocs, mkdocstrings
""",
}
"""What is done with an extra, after what is done without; dev is what the tests are run with."""


def built(folder: Path) -> list[Path]:
    """The wheel and the sdist of the working tree."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(PROJECT)]
    subprocess.run(command, check=True, capture_output=True)
    return sorted(folder.glob("vicinal-*"))


def installed(place: Path, artifact: Path, extra: str) -> Path:
    """The Python of a new environment with the artifact in it."""
    wanted = [f"vicinal{f'[{extra}]' if extra else ''} @ {artifact.as_uri()}", TORCH]
    python = place / "bin" / "python"
    if shutil.which("uv"):
        links = [part for name in os.environ.get("PIP_FIND_LINKS", "").split() for part in ("--find-links", name)]
        commands = [["uv", "venv", "-q", "--python", sys.executable, str(place)]]
        commands += [["uv", "pip", "install", "-q", "--python", str(python), *links, *wanted]]
    else:
        commands = [[sys.executable, "-m", "venv", str(place)]]
        commands += [[str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *wanted]]
    for command in commands:
        subprocess.run(command, check=True, capture_output=True, text=True)
    return python


def checked(artifact: Path, extra: str) -> str:
    """What went wrong when the artifact was installed with an extra and used; "" if nothing did."""
    with tempfile.TemporaryDirectory() as name:
        try:
            python = installed(Path(name, "env"), artifact, extra)
            known = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
            subprocess.run(
                [str(python), "-c", BASE + USE.get(extra, "")],
                check=True,
                capture_output=True,
                text=True,
                cwd=name,
                env=known,
            )
        except subprocess.CalledProcessError as wrong:
            return str(wrong.stderr)[-2000:] or f"exit code {wrong.returncode}"
    return ""


def cases(extras: list[str] | None) -> Iterator[str]:
    """The base, and the extras of the project but for dev."""
    known = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    if set(USE) != set(known) - {"dev"}:
        raise ValueError(f"USE: expected the extras of pyproject.toml, got another list: {set(USE) ^ set(known)}")
    yield from ["", *USE] if extras is None else extras


def main() -> int:
    """Build, install and use; gives the exit code."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--extras", nargs="*", help="only these; base is always there without")
    options.add_argument("--only", choices=["wheel", "sdist"], help="only this artifact")
    chosen = options.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        endings = {"wheel": ".whl", "sdist": ".gz"}
        for artifact in built(Path(folder)):
            if chosen.only and artifact.suffix != endings[chosen.only]:
                continue
            for extra in cases(chosen.extras):
                begun = time.monotonic()
                wrong = checked(artifact, extra)
                failures += bool(wrong)
                told = f"failed\n{wrong}" if wrong else "passed"
                print(
                    f"{artifact.name:<32} {extra or '(base)':<8} {time.monotonic() - begun:5.0f} s  {told}", flush=True
                )
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
