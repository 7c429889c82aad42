"""The store of runs: whole after a kill at any moment, and of one kind of settings."""

import json
import math
import os
import subprocess
import sys
import textwrap
import threading

import pytest

from vicinal.evaluation import Run
from vicinal.evaluation.store import RunStore


def run(split=0, method="nona", dataset="houses", **metrics):
    return Run(dataset, split, 7 + split, method, metrics or {"mse": 0.5}, 1.5, "abc", (68, 12, 20))


def test_round_trip(tmp_path):
    store = RunStore(tmp_path / "new" / "runs.json", {"epochs": 5, "sizes": (200, 25)})
    store.enter("houses", {"fingerprint": "f"})
    store.add([run(), run(1, mse=math.nan, r2=math.inf)])
    again = RunStore(tmp_path / "new" / "runs.json", {"epochs": 5, "sizes": [200, 25]})
    assert again.runs[0] == run()
    assert math.isnan(again.runs[1].metrics["mse"])
    assert math.isnan(again.runs[1].metrics["r2"])
    assert again.find("houses", 0, "nona") == run()
    assert again.find("houses", 2, "nona") is None
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["runs.json"]


def test_a_store_of_other_settings_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "runs.json"
    store = RunStore(path, {"epochs": 5, "seed": 0})
    store.enter("houses", {"fingerprint": "f"})
    store.add([run()])
    before = path.read_bytes()
    with pytest.raises(
        ValueError,
        match=r"^runs\.json: expected runs with epochs = 6, got stored ones with 5; go back .* another --out$",
    ):
        RunStore(path, {"epochs": 6, "seed": 0})
    with pytest.raises(ValueError, match=r"lr = None, got stored ones with|seed = None, got stored ones with 0"):
        RunStore(path, {"epochs": 5})
    with pytest.raises(ValueError, match=r"^runs\.json: expected runs on 'houses' with fingerprint = 'g', got stored"):
        RunStore(path, {"epochs": 5, "seed": 0}).enter("houses", {"fingerprint": "g"})
    RunStore(path, {"epochs": 5, "seed": 0}).enter("tweets", {"fingerprint": "g"})
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda text: text[:-30], "torn or edited"),
        (lambda text: "", "torn or edited"),
        (lambda text: "[1, 2]", "torn or edited"),
        (lambda text: text.replace('"seconds"', '"second"'), "torn or edited"),
        (lambda text: text.replace('"version": 1', '"version": 2'), "got the newer 2; update vicinal"),
    ],
)
def test_a_torn_edited_or_newer_file_is_refused_by_name(tmp_path, change, sentence):
    path = tmp_path / "runs.json"
    RunStore(path, {}).add([run()])
    path.write_text(change(path.read_text()))
    with pytest.raises(ValueError, match=r"^runs\.json: .*" + sentence):
        RunStore(path, {})


def test_two_processes_do_not_lose_each_others_runs(tmp_path):
    one, other = RunStore(tmp_path / "runs.json", {}), RunStore(tmp_path / "runs.json", {})
    one.add([run(0)])
    other.add([run(1)])
    one.add([run(2)])
    assert sorted(stored.split for stored in RunStore(tmp_path / "runs.json", {}).runs) == [0, 1, 2]


def test_no_run_is_lost_where_another_process_adds_between_reading_and_writing(tmp_path, monkeypatch):
    from vicinal.evaluation import store as module

    one, other = RunStore(tmp_path / "runs.json", {}), RunStore(tmp_path / "runs.json", {})
    write, threads = module.replace_text, []

    def write_late(path, text):
        if not threads:
            threads.append(threading.Thread(target=other.add, args=([run(1)],)))
            threads[0].start()
            threads[0].join(0.2)  # it has to wait for us
        return write(path, text)

    monkeypatch.setattr(module, "replace_text", write_late)
    one.add([run(0)])
    threads[0].join()
    assert sorted(stored.split for stored in RunStore(tmp_path / "runs.json", {}).runs) == [0, 1]
    assert [path.name for path in tmp_path.iterdir()] == ["runs.json"]


def test_what_a_killed_process_left_is_cleared_by_the_next_that_has_nothing_to_add(tmp_path):
    store = RunStore(tmp_path / "runs.json", {})
    store.add([run(0)])
    left = tmp_path / ".runs.json.0123456789abcdef.part"
    (left / "new").mkdir(parents=True)
    (left / "new" / "runs.json").write_text("half")
    for name in (".runs.json.lock", ".runs.json.update", f"{left.name}/lock"):
        (tmp_path / name).touch()
    assert [stored.split for stored in RunStore(tmp_path / "runs.json", {}).runs] == [0]
    assert [path.name for path in tmp_path.iterdir()] == ["runs.json"]


def test_an_unwritable_folder_is_refused_before_any_fit(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ValueError, match=r"^out: expected a folder that can be written to, got .*; choose another --out$"
    ):
        RunStore(tmp_path / "file" / "runs.json", {})


@pytest.mark.parametrize("point", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, point):
    store = RunStore(tmp_path / "runs.json", {})
    store.add([run(0)])

    def fail(*args):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, point, fail)
    with pytest.raises(OSError, match="no space"):
        store.add([run(1)])
    assert [stored.split for stored in RunStore(tmp_path / "runs.json", {}).runs] == [0]
    assert [path.name for path in tmp_path.iterdir()] == ["runs.json"]


CHILD = """
    import os, signal, sys
    from vicinal.evaluation import Run
    from vicinal.evaluation.store import RunStore
    path, point = sys.argv[1:]
    store = RunStore(path, {"epochs": 5})
    store.add([Run("houses", 0, 7, "nona", {"mse": 0.5}, 1.5, "abc", (68, 12, 20))])
    def kill(*args):
        os.kill(os.getpid(), signal.SIGKILL)
    if point == "write":
        class Torn:
            def __init__(self, file): self.file = file
            def __enter__(self): return self
            def __exit__(self, *args): pass
            def write(self, text):
                self.file.write(text[: len(text) // 2]); self.file.flush(); kill()
        from pathlib import Path
        opened = Path.open
        Path.open = lambda at, *a, **k: Torn(opened(at, *a, **k)) if at.parent.name == "new" else opened(at, *a, **k)
    else:
        setattr(os, point, kill)
    store.add([Run("houses", 1, 8, "nona", {"mse": 0.4}, 1.5, "abc", (68, 12, 20))])
"""


@pytest.mark.slow
@pytest.mark.parametrize("point", ["write", "fsync", "replace"])
def test_kill_9_in_the_middle_of_a_write_keeps_what_was_finished(tmp_path, point):
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD), str(tmp_path / "runs.json"), point], check=False
    )
    assert child.returncode == -9
    store = RunStore(tmp_path / "runs.json", {"epochs": 5})
    assert [stored.split for stored in store.runs] == [0]
    store.add([run(1)])
    assert len(json.loads((tmp_path / "runs.json").read_text())["runs"]) == 2
