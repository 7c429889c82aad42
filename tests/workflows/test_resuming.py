"""The working folder of a run: one run at a time, what is kept, and what is not left behind."""

import signal

import pytest

from faults.warm import start
from vicinal.core import files
from vicinal.core.files import FileLayer
from vicinal.workflows.resuming import working_folder


def test_it_goes_when_the_run_ends_well(tmp_path):
    with working_folder(tmp_path / "new" / "m") as work:
        assert not work.take_up("a")
        assert work.folder.is_dir()
    assert not list(tmp_path.iterdir())


def stop(stopped, out, *, made=()):
    with working_folder(out) as work:
        work.take_up("a")
        for name in made:
            (work.folder / name).mkdir()
        raise stopped


def train_then(stopped, out):
    with working_folder(out) as work:
        work.take_up("a")
        (work.folder / "last.ckpt").write_bytes(b"epochs")
        raise stopped


@pytest.mark.parametrize("stopped", [ValueError("bad cell"), KeyboardInterrupt()])
def test_what_ends_before_training_leaves_nothing(tmp_path, stopped):
    with pytest.raises(type(stopped)):
        stop(stopped, tmp_path / "new" / "folders" / "m")
    assert not list(tmp_path.iterdir())


def test_rows_that_were_embedded_are_kept_when_the_user_stops(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        stop(KeyboardInterrupt(), tmp_path / "m", made=["cache"])
    assert (tmp_path / ".m.fit" / "cache").is_dir()


@pytest.mark.parametrize("stopped", [OSError("disk full"), KeyboardInterrupt()])
def test_what_was_trained_is_kept_and_taken_up_by_the_same_run_only(tmp_path, stopped):
    with pytest.raises(type(stopped)):
        train_then(stopped, tmp_path / "m")
    with pytest.raises(ValueError, match="bad table"), working_folder(tmp_path / "m"):
        raise ValueError("bad table")  # before it is known which run this is
    with working_folder(tmp_path / "m") as work:
        assert work.take_up("a")
    with pytest.raises(type(stopped)):
        train_then(stopped, tmp_path / "m")
    with working_folder(tmp_path / "m") as work:
        assert not work.take_up("other settings")
        assert not (work.folder / "last.ckpt").exists()


def test_a_run_elsewhere_is_another_run(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train_then(KeyboardInterrupt(), tmp_path / "m")
    (tmp_path / ".m.fit").rename(tmp_path / ".n.fit")
    with working_folder(tmp_path / "n") as work:
        assert not work.take_up("a")


def test_without_a_folder_nothing_is_made():
    with working_folder(None) as work:
        assert work.folder is None
        assert not work.take_up("a")


def hold(folder):
    """A case: a run that goes on until it is killed."""
    with working_folder(folder) as work:
        work.take_up("a")
        print("fitting", flush=True)
        signal.pause()


def test_a_second_run_says_so_and_stops(tmp_path, tmp_path_factory):
    (tmp_path / "link").symlink_to("m")
    told = tmp_path_factory.mktemp("told")
    first = start(told, hold, tmp_path / "m")
    try:
        while not (told / "out").exists() or (told / "out").read_text() != "fitting\n":
            assert first.exitcode is None
            first.join(0.02)
        for out in ("m", "link"):
            with (
                pytest.raises(
                    ValueError,
                    match=rf"^out: expected a folder that no other run writes, got .*{out}, which process {first.pid} "
                    r"fits; wait for it, stop it, or choose another --out$",
                ),
                working_folder(tmp_path / out),
            ):
                pass
        assert (tmp_path / ".m.fit" / "run.sha256").is_file()
    finally:
        first.kill()
        first.join()
    with working_folder(tmp_path / "m") as work:  # a killed run holds nobody up
        assert not work.take_up("b")
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_the_lock_goes_last_so_that_the_next_run_keeps_its_files(tmp_path, monkeypatch):
    class Next(FileLayer):
        def unlink(self, path):
            super().unlink(path)
            if path.name == "lock":  # the next run begins in this moment
                (path.parent / "process").write_text("next")

    monkeypatch.setattr(files, "layer", Next())
    with working_folder(tmp_path / "m") as work:
        work.take_up("a")
    assert [path.name for path in (tmp_path / ".m.fit").iterdir()] == ["process"]
    assert (tmp_path / ".m.fit" / "process").read_text() == "next"


def test_of_processes_that_train_as_one_the_first_looks_after_the_folder(tmp_path, monkeypatch):
    with working_folder(tmp_path / "m") as first:
        first.take_up("a")
        (first.folder / "last.ckpt").write_bytes(b"epochs")
        monkeypatch.setenv("RANK", "1")
        with working_folder(tmp_path / "m") as second:
            assert second.folder == first.folder
            assert second.take_up("a")
            assert not second.take_up("b")
        assert (first.folder / "last.ckpt").is_file()
