"""The working folder of a run: what is kept, and what is not left behind."""

import pytest

from vicinal.estimators.resuming import resumable


def test_it_goes_when_the_run_ends_well(tmp_path):
    with resumable(tmp_path / "m", "a") as work:
        assert work.folder.is_dir()
        assert not work.resumed
    assert not list(tmp_path.iterdir())


def test_an_error_before_training_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="bad cell"), resumable(tmp_path / "m", "a"):
        raise ValueError("bad cell")
    assert not list(tmp_path.iterdir())


def train_then(stopped, out):
    with resumable(out, "a") as work:
        (work.folder / "last.ckpt").write_bytes(b"epochs")
        raise stopped


@pytest.mark.parametrize("stopped", [OSError("disk full"), KeyboardInterrupt()])
def test_what_was_trained_is_kept_and_taken_up_by_the_same_run_only(tmp_path, stopped):
    with pytest.raises(type(stopped)):
        train_then(stopped, tmp_path / "m")
    with resumable(tmp_path / "m", "a") as work:
        assert work.resumed
    with pytest.raises(type(stopped)):
        train_then(stopped, tmp_path / "m")
    with resumable(tmp_path / "m", "other settings") as work:
        assert not work.resumed
        assert not (work.folder / "last.ckpt").exists()


def test_without_a_folder_nothing_is_made():
    with resumable(None, "a") as work:
        assert work.folder is None
