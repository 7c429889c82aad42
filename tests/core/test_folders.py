"""Promises of folders and files that are replaced: whole or not there, whatever happens, and nothing of others lost."""

import contextlib
import json
import os
import shutil
import stat
import threading
from pathlib import Path

import pytest

from faults.disk import Disk, crashes, write_tree
from vicinal.core import files, replaced_file
from vicinal.core.files import replace_text
from vicinal.core.folders import SUMS, check_sums, read_sums, read_whole, staged_folder


def save(folder, version, *, extra=(), what="model", marker="config.json"):
    """A folder of ours, of that version in every file."""
    with staged_folder(Path(folder), what) as stage:
        (stage / marker).write_text(json.dumps({"format": f"vicinal-{what}", "version": version}))
        (stage / "weights").write_bytes(f"{version}".encode() * 100)
        (stage / "part").mkdir()
        (stage / "part" / "rows").write_bytes(f"rows of {version}".encode() * 50)
        for name in extra:
            (stage / name).write_text(version)


def load(folder):
    """The version of a whole folder."""
    return read_whole(Path(folder), load_once)


def load_once(folder):
    check_sums(folder, tuple(read_sums(folder)))
    version = json.loads((folder / "config.json").read_text())["version"]
    assert (folder / "weights").read_bytes() == version.encode() * 100
    assert (folder / "part" / "rows").read_bytes() == f"rows of {version}".encode() * 50
    return version


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# What is ours, and what is not.


@pytest.mark.parametrize(
    "config",
    [
        '{"architectures": ["BertModel"], "model_type": "bert"}',
        '{"format": "vicinal-bank", "version": 1}',
        '{"note": "I read of the vicinal-model format"}',
        "not json",
        "",
    ],
)
@pytest.mark.parametrize("sums", [None, "", "abc  config.json\n"])
def test_a_folder_of_others_is_refused_whatever_its_files_are_called(tmp_path, config, sums):
    folder = tmp_path / "bert"
    folder.mkdir()
    (folder / "config.json").write_text(config)
    (folder / "tokenizer.json").write_text("theirs")
    if sums is not None:
        (folder / SUMS).write_text(sums)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ValueError, match=r"^out: expected a new or empty folder, or a model folder to replace, got"):
        save(folder, "new")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert names(tmp_path) == ["bert"]


def test_a_model_is_not_replaced_by_a_bank_nor_an_index_by_a_model(tmp_path):
    with staged_folder(tmp_path / "m") as stage:
        (stage / "config.json").write_text('{"format": "vicinal-model"}')
        (stage / "bank.json").write_text('{"format": "vicinal-bank"}')
    with pytest.raises(ValueError, match=r"^out: expected a new or empty folder, or a bank folder to replace"):
        save(tmp_path / "m", "b", what="bank", marker="bank.json")
    save(tmp_path / "i", "i", what="index", marker="index.json")
    with pytest.raises(ValueError, match=r"^out: expected a new or empty folder, or a model folder to replace"):
        save(tmp_path / "i", "m")
    with pytest.raises(ValueError, match=r"or an index folder to replace"):
        save(tmp_path / "m", "i", what="index", marker="index.json")


@pytest.mark.parametrize("exchange", [True, False])
def test_files_of_others_in_our_folder_stay(tmp_path, monkeypatch, exchange):
    monkeypatch.setattr(files, "layer", disk := Disk(tmp_path, exchange=exchange))
    folder = tmp_path / "m"
    save(folder, "old")
    theirs = {"notes.txt": "mine", "part/own.txt": "mine, too", "runs/a/b.csv": "1", ".git/HEAD": "ref"}
    for name, text in theirs.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "empty").mkdir()
    (folder / "link").symlink_to("notes.txt")
    (folder / "dangling").symlink_to("nowhere")
    for version in ("new", "newer"):
        save(folder, version)
        assert load(folder) == version
        assert {name: (folder / name).read_text() for name in theirs} == theirs
        assert (folder / "empty").is_dir()
        assert os.readlink(folder / "link") == "notes.txt"
        assert os.readlink(folder / "dangling") == "nowhere"
        assert set(read_sums(folder)) == {"config.json", "weights", "part/rows"}
        assert names(tmp_path) == ["m"]
    disk.close()


@pytest.mark.parametrize("links", [True, False])
def test_their_file_of_the_name_of_a_new_one_is_kept_beside_it(tmp_path, monkeypatch, links):
    if not links:  # a file system without second names for a file
        monkeypatch.setattr(os, "link", lambda *args, **kwargs: (_ for _ in ()).throw(OSError("no links here")))
    save(tmp_path / "m", "old")
    (tmp_path / "m" / "report.html").write_text("mine")
    for version in ("new", "newer"):
        save(tmp_path / "m", version, extra=["report.html"])
        assert (tmp_path / "m" / "report.html").read_text() == version
        assert (tmp_path / "m" / "report.html~").read_text() == "mine"
    assert load(tmp_path / "m") == "newer"
    assert names(tmp_path / "m") == [SUMS, "config.json", "part", "report.html", "report.html~", "weights"]


def test_what_an_earlier_model_of_ours_listed_goes_with_it(tmp_path):
    save(tmp_path / "m", "old", extra=["report.html"])  # it may show rows that were forgotten since
    save(tmp_path / "m", "new")
    assert names(tmp_path / "m") == [SUMS, "config.json", "part", "weights"]


class Late(Disk):
    """Puts a file of the user into the folder just before it is replaced."""

    def exchange(self, one, other):
        (other / "late.txt").write_text("mine")
        super().exchange(one, other)


def test_their_file_that_comes_while_we_write_stays(tmp_path, monkeypatch):
    root, crashed = tmp_path / "root", tmp_path / "crashed"
    root.mkdir()
    save(root / "m", "old")
    with monkeypatch.context() as patch:
        patch.setattr(files, "layer", disk := Late(root))
        save(root / "m", "new")
    assert (root / "m" / "late.txt").read_text() == "mine"
    step = next(step for step in disk.steps if step.call[0] == "exchange")
    write_tree(step.live, root.stat().st_ino, crashed)  # a kill right then
    disk.close()
    assert not (crashed / "m" / "late.txt").exists()
    save(crashed / "m", "newer")
    assert (crashed / "m" / "late.txt").read_text() == "mine"
    assert names(crashed) == ["m"]


def test_a_folder_without_checksums_is_not_replaced_as_nobody_knows_what_is_ours(tmp_path):
    save(tmp_path / "m", "old")
    (tmp_path / "m" / SUMS).unlink()
    with pytest.raises(ValueError, match=r"^out: expected a new or empty folder, or a model folder to replace"):
        save(tmp_path / "m", "new")
    assert names(tmp_path / "m") == ["config.json", "part", "weights"]


def save_while_others_come(folder):
    with staged_folder(folder) as stage:
        (stage / "config.json").write_text('{"format": "vicinal-model"}')
        folder.mkdir(exist_ok=True)
        (folder / "thesis.txt").write_text("theirs")


@pytest.mark.parametrize("there", [False, True])
def test_a_folder_of_others_that_comes_while_we_write_is_refused(tmp_path, there):
    if there:
        (tmp_path / "m").mkdir()
    with pytest.raises(ValueError, match=r"^out: expected a new or empty folder, or a model folder to replace"):
        save_while_others_come(tmp_path / "m")
    assert names(tmp_path / "m") == ["thesis.txt"]
    assert names(tmp_path) == ["m"]


@pytest.mark.parametrize("exchange", [True, False])
def test_one_writer_at_a_time_replaces(tmp_path, monkeypatch, exchange):
    class Asking(Disk):
        def _do(self, name, *paths):
            if tmp_path / "m" in paths and name in ("rename", "exchange"):
                asked.append(files.hold(tmp_path / ".m.lock"))
            super()._do(name, *paths)

    asked = []
    save(tmp_path / "m", "old")
    monkeypatch.setattr(files, "layer", disk := Asking(tmp_path, exchange=exchange))
    save(tmp_path / "m", "new")
    assert asked == [None] * (1 if exchange else 2)
    disk.close()


@pytest.mark.parametrize("exchange", [True, False])
def test_the_checksums_of_the_old_folder_go_first_so_that_a_kill_leaves_no_torn_model(tmp_path, monkeypatch, exchange):
    save(tmp_path / "m", "old", extra=[f"file{number}" for number in range(20)])
    monkeypatch.setattr(files, "layer", disk := Disk(tmp_path, exchange=exchange))
    save(tmp_path / "m", "new")
    swapped = max(number for number, call in enumerate(disk.calls()) if call in ("exchange", "rename"))
    gone = [Path(step.call[1]) for step in disk.steps[swapped:] if step.call[0] == "unlink"]
    old = [path for path in gone if path.parts[:1] != ("m",) and "new" in path.parts]
    assert len(old) == 24  # checksums, settings, weights, rows and the twenty
    assert old[0].name == SUMS
    disk.close()


def test_a_folder_that_is_away_for_a_moment_is_read_when_it_is_back(tmp_path):
    save(tmp_path / "m", "old")
    (tmp_path / "m").rename(tmp_path / "away")
    calls = []

    def read(place):
        calls.append(place)
        if len(calls) == 2:
            (tmp_path / "away").rename(tmp_path / "m")
        return load_once(place)

    assert read_whole(tmp_path / "m", read) == "old"
    assert len(calls) == 3
    (tmp_path / "m").rename(tmp_path / "away")
    with pytest.raises(ValueError, match=r"^SHA256SUMS: expected this file in .*, got none"):
        load(tmp_path / "m")


def test_permissions_are_those_of_the_user(tmp_path):
    before = os.umask(0o077)
    try:
        save(tmp_path / "m", "old")
        assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "m" / "weights").stat().st_mode) == 0o600
        (tmp_path / "m").chmod(0o750)
        save(tmp_path / "m", "new")
        assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o750
        replace_text(tmp_path / "a.csv", "1")
        (tmp_path / "a.csv").chmod(0o640)
        replace_text(tmp_path / "a.csv", "2")
        assert stat.S_IMODE((tmp_path / "a.csv").stat().st_mode) == 0o640
    finally:
        os.umask(before)


# Symbolic links.


def test_a_symbolic_link_stays_and_what_it_points_to_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    for kind, link in (("to a folder of ours", "a"), ("to an empty folder", "b"), ("to nothing", "c")):
        place = tmp_path / "real" / link
        if "ours" in kind:
            save(place, "old")
        elif "empty" in kind:
            place.mkdir()
        (tmp_path / link).symlink_to(place)
        for version in ("1", "2", "3"):
            save(tmp_path / link, version)
            assert load(tmp_path / link) == load(place) == version
            assert os.readlink(tmp_path / link) == str(place)
    assert names(tmp_path / "real") == names(tmp_path)[:3] == ["a", "b", "c"]
    (tmp_path / "chain").symlink_to("a")
    save(tmp_path / "chain", "4")
    assert load(tmp_path / "real" / "a") == "4"
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(ValueError, match=r"^out: expected a path, got .*round, a symbolic link that leads to itself"):
        save(tmp_path / "round", "5")


def test_a_file_behind_a_symbolic_link_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "a.csv").symlink_to("real/a.csv")
    for text in ("1", "2"):
        replace_text(tmp_path / "a.csv", text)
        assert (tmp_path / "real" / "a.csv").read_text() == text
        assert os.readlink(tmp_path / "a.csv") == "real/a.csv"
    assert names(tmp_path / "real") == ["a.csv"]


# Crashes.


def prepare(root):
    """A folder of ours with a file of the user in it, and a file."""
    save(root / "m", "old")
    (root / "m" / "notes.txt").write_text("mine")
    replace_text(root / "a.csv", "old" * 10)


def replace_folder(root):
    save(root / "m", "new")


def replace_file(root):
    replace_text(root / "a.csv", "new" * 10)


def versions(root):
    """What the folder and the file hold; raises if one is not whole."""
    found = read_whole(root / "m", lambda place: (load_once(place), (place / "notes.txt").read_text()))
    assert found[1] == "mine"
    return found[0], (root / "a.csv").read_text()[:3]


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("work", "before", "after"),
    [(replace_folder, ("old", "old"), ("new", "old")), (replace_file, ("old", "old"), ("old", "new"))],
)
@pytest.mark.parametrize("exchange", [True, False])
def test_a_crash_at_any_moment_leaves_the_old_or_the_new(tmp_path, monkeypatch, work, before, after, exchange):
    root = tmp_path / "root"
    root.mkdir()
    prepare(root)
    disk = Disk(root, exchange=exchange)
    with monkeypatch.context() as patch:
        patch.setattr(files, "layer", disk)
        work(root)
        disk.note("returned")
    number = root.stat().st_ino
    assert {"sync", "rename" if work is replace_file or not exchange else "exchange", "unlink"} <= set(disk.calls())
    seen = set()
    for place, step in enumerate(disk.steps):
        for kind, tree in crashes(step):
            crashed = tmp_path / "crashed"
            write_tree(tree, number, crashed)
            what = f"{kind} after step {place}, {step.call}"
            try:
                found = versions(crashed)
            except (OSError, ValueError, AssertionError) as wrong:
                raise AssertionError(f"{what}: {wrong!r}") from wrong
            assert found in (before, after), what
            assert found == after or step.call != ("returned",), what
            seen.add(found)
            if place % 5 == 0 or step.call[0] in ("exchange", "rename", "returned"):
                work(crashed)  # the same again works, and clears up
                assert versions(crashed) == after, what
                assert names(crashed) == ["a.csv", "m"], what
                assert not [path for path in (crashed / "m").iterdir() if path.name.endswith("~")], what
            shutil.rmtree(crashed)
    assert seen == {before, after}
    disk.close()


def test_after_a_power_cut_what_was_written_into_new_folders_is_there(tmp_path, monkeypatch):
    root, crashed = tmp_path / "root", tmp_path / "crashed"
    root.mkdir()
    disk = Disk(root)
    with monkeypatch.context() as patch:
        patch.setattr(files, "layer", disk)
        save(root / "models" / "today" / "m", "new")
        replace_text(root / "tables" / "today" / "a.csv", "new")
        disk.note("returned")
    for _, tree in crashes(disk.steps[-1]):
        write_tree(tree, root.stat().st_ino, crashed)
        assert load(crashed / "models" / "today" / "m") == (crashed / "tables" / "today" / "a.csv").read_text() == "new"
        shutil.rmtree(crashed)
    disk.close()


@pytest.mark.slow
@pytest.mark.parametrize("exchange", [True, False])
def test_a_file_that_the_user_removes_after_a_kill_does_not_come_back(tmp_path, monkeypatch, exchange):
    root = tmp_path / "root"
    root.mkdir()
    prepare(root)
    disk = Disk(root, exchange=exchange)
    with monkeypatch.context() as patch:
        patch.setattr(files, "layer", disk)
        replace_folder(root)
    first = next(i for i, step in enumerate(disk.steps) if step.call[0] == "unlink" and step.call[1].endswith(SUMS))
    for number, step in enumerate(disk.steps[first:]):  # killed while the old folder is being removed
        crashed = tmp_path / f"crashed {number}"
        write_tree(step.live, root.stat().st_ino, crashed)
        (crashed / "m" / "notes.txt").unlink()
        save(crashed / "m", "newer")
        assert names(crashed / "m") == [SUMS, "config.json", "part", "weights"]
    assert disk.calls().index("unlink") == first
    disk.close()


def test_what_a_killed_process_left_is_cleared_and_what_a_living_one_makes_is_not(tmp_path):
    for name in ("m", "m.x"):  # the one's name begins the other's
        save(tmp_path / name, "old")
    started, going = threading.Event(), threading.Event()

    def slow():
        with staged_folder(tmp_path / "m") as stage:
            started.set()
            going.wait(60)
            (stage / "config.json").write_text('{"format": "vicinal-model", "version": "slow"}')

    thread = threading.Thread(target=slow)
    thread.start()
    assert started.wait(60)
    alive = [path for path in tmp_path.iterdir() if path.name.endswith(".part")]
    dead = tmp_path / ".m.0123456789abcdef.part"
    other = tmp_path / ".m.x.0123456789abcdef.part"
    for left in (dead, other, tmp_path / ".m.previous"):
        (left / "new").mkdir(parents=True)
        (left / "new" / "weights").write_text("half")
    (dead / "lock").touch()
    save(tmp_path / "m", "new")
    assert names(tmp_path) == sorted([alive[0].name, other.name, "m", "m.x"])
    going.set()
    thread.join()
    save(tmp_path / "m.x", "new")
    assert names(tmp_path) == ["m", "m.x"]
    assert json.loads((tmp_path / "m" / "config.json").read_text())["version"] == "slow"


def test_two_files_made_at_once_are_both_whole(tmp_path):
    with replaced_file(tmp_path / "a") as one, replaced_file(tmp_path / "a") as other:
        one.write_text("one")
        other.write_text("other")
    assert (tmp_path / "a").read_text() == "one"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("name", ["lock", "new", ".hidden", "a b", "é"])
def test_names_that_look_like_ours_are_fine(tmp_path, name):
    for version in ("1", "2"):
        replace_text(tmp_path / name, version)
        assert (tmp_path / name).read_text() == version
        save(tmp_path / "sub" / name, version)
        assert load(tmp_path / "sub" / name) == version
    assert names(tmp_path) == sorted([name, "sub"])
    assert names(tmp_path / "sub") == [name]


def test_an_error_leaves_nothing(tmp_path):
    with contextlib.suppress(KeyboardInterrupt), replaced_file(tmp_path / "a") as aside:
        aside.write_text("half")
        raise KeyboardInterrupt
    with contextlib.suppress(KeyboardInterrupt), staged_folder(tmp_path / "m") as stage:
        (stage / "config.json").write_text("half")
        raise KeyboardInterrupt
    assert names(tmp_path) == []


# Readers.


def test_a_reader_sees_the_old_or_the_new_never_both(tmp_path):
    save(tmp_path / "m", "old")
    turns = []

    def read(place):
        config = json.loads((place / "config.json").read_text())["version"]
        if len(turns) < 3:
            save(tmp_path / "m", f"new {len(turns)}")
        turns.append(config)
        return config, (place / "weights").read_bytes()[: len(config)].decode()

    assert read_whole(tmp_path / "m", read) == ("new 2", "new 2")
    assert turns == ["old", "new 0", "new 1", "new 2"]


def test_a_folder_that_is_moved_aside_while_it_is_read_is_read_where_it_is(tmp_path):
    """A writer without exchange: for a moment what is read stands under its other name only."""
    folder, aside, turns = tmp_path / "m", tmp_path / ".m.previous", []
    folder.mkdir()
    (folder / "a").write_text("old")

    def read(place):
        turns.append(place)
        if len(turns) == 1:
            folder.rename(aside)
        return (place / "a").read_text()

    assert read_whole(folder, read) == "old"
    assert turns == [folder, aside]


def test_a_reader_that_writers_never_let_through_holds_them_up(tmp_path):
    save(tmp_path / "m", "old")
    turns = []

    def read(place):
        config = json.loads((place / "config.json").read_text())["version"]
        lock = files.hold(tmp_path / ".m.lock")
        if lock is not None:  # nobody keeps a writer from replacing what is read
            lock.release()
            save(tmp_path / "m", f"new {len(turns)}")
        turns.append(config)
        return config, (place / "weights").read_bytes()[: len(config)].decode()

    assert read_whole(tmp_path / "m", read) == ("new 4", "new 4")
    assert turns == ["old", "new 0", "new 1", "new 2", "new 3", "new 4"]
    assert names(tmp_path) == ["m"]


def test_an_error_of_a_folder_that_nobody_replaces_is_told_at_once(tmp_path):
    save(tmp_path / "m", "old")
    turns = []

    def read(place):
        turns.append(place)
        raise ValueError("torn")

    for folder, looks in ((tmp_path / "m", 1), (tmp_path / "none", 5)):  # one that is away may come back
        turns.clear()
        with pytest.raises(ValueError, match=r"^torn$"):
            read_whole(folder, read)
        assert len(turns) == looks


def test_reading_writes_nothing(tmp_path, monkeypatch):
    save(tmp_path / "m", "old")
    (tmp_path / "m").rename(tmp_path / ".m.previous")  # as a kill on a system without exchange leaves it

    class ReadOnly(Disk):
        def _do(self, name, *paths):
            raise OSError(30, "Read-only file system")

    monkeypatch.setattr(files, "layer", disk := ReadOnly(tmp_path))
    monkeypatch.setattr(files, "locked", lambda target: (_ for _ in ()).throw(OSError(30, "Read-only file system")))
    assert load(tmp_path / "m") == "old"
    assert names(tmp_path) == [".m.previous"]
    disk.close()


# Where nothing can be written.


def test_a_folder_that_cannot_be_replaced_is_refused_before_any_work(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"^out: expected a folder, got the file"):
        save(tmp_path / "file", "new")
    (tmp_path / "m").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
        with pytest.raises(
            ValueError, match=r"^out: expected a folder that can be written to, .* is read-only for you"
        ):
            save(tmp_path / "m", "new")
    with monkeypatch.context() as patch:
        patch.setattr(os.path, "ismount", lambda path: Path(path) == tmp_path / "m")
        with pytest.raises(ValueError, match=r"^out: expected a folder that can be renamed, .* give one below it$"):
            save(tmp_path / "m", "new")
    assert names(tmp_path) == ["file", "m"]


# Modes and links of the files in a folder that is written anew.


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400, 0o444, 0o664])
def test_files_keep_their_modes_and_new_ones_are_no_more_open(tmp_path, mode):
    before = os.umask(0o002)
    try:
        save(tmp_path / "m", "old")
        ours = [tmp_path / "m" / name for name in (SUMS, *read_sums(tmp_path / "m"))]
        for path in ours:
            path.chmod(mode)
        (tmp_path / "m" / "theirs").write_text("mine")
        save(tmp_path / "m", "new", extra=("fresh",))
        assert load(tmp_path / "m") == "new"
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in ours} == {mode}
    assert stat.S_IMODE((tmp_path / "m" / "fresh").stat().st_mode) == (mode & 0o664) | 0o600
    assert stat.S_IMODE((tmp_path / "m" / "theirs").stat().st_mode) == 0o664


def test_nobody_reads_closed_files_while_they_are_written(tmp_path):
    save(tmp_path / "m", "old")
    (tmp_path / "m" / "weights").chmod(0o600)
    with staged_folder(tmp_path / "m") as stage:
        assert not stage.stat().st_mode & 0o077
        (stage / "config.json").write_text("{}")
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o755


def test_a_link_in_a_folder_is_not_followed(tmp_path):
    save(tmp_path / "m", "old")
    (tmp_path / "secret").write_text("PRIVATE")
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "m" / "weights").unlink()
    (tmp_path / "m" / "weights").symlink_to(tmp_path / "secret")
    save(tmp_path / "m", "new")
    assert load(tmp_path / "m") == "new"
    assert not (tmp_path / "m" / "weights").is_symlink()
    with staged_folder(tmp_path / "n", "model") as stage:
        (stage / "link").symlink_to(tmp_path / "secret")
    assert "link" not in read_sums(tmp_path / "n")
    assert (tmp_path / "secret").read_text() == "PRIVATE"
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
