"""A file layer that records: what is on the disk after each call, and what a crash there may leave.

Two kinds of crash are told apart. When the *process* is killed, all that it did is there. When the *power* goes, a
file's content is there if it was synced after it was written, and a name is there if its folder was synced after the
name was made, changed or removed; what was not synced may be there or not, and a file may be torn.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from vicinal.core.files import FileLayer


@dataclass(frozen=True)
class Step:
    """A call, and the tree after it.

    Attributes:
        call: name of the call and the paths it was given, relative to the root.
        live: file system objects by number: bytes of a file, names and numbers in a folder, text of a link.
        synced: those that were synced, as they were then.
    """

    call: tuple[str, ...]
    live: dict
    synced: dict


class Disk(FileLayer):
    """Does what it is asked for, below ``root``, and remembers the order.

    Args:
        root: what lies there at the start counts as synced.
        exchange: whether two names can change places.
    """

    def __init__(self, root, *, exchange=True):
        self.root, self.can_exchange = Path(root), exchange
        self._handles = {}
        self._synced = self._tree()
        self.steps = [Step(("start",), self._tree(), dict(self._synced))]

    def _tree(self):
        """All objects by number; each is kept open, so that its number is given to no other."""
        tree = {}
        for path in [self.root, *self.root.rglob("*")]:
            number = path.lstat().st_ino
            if number not in self._handles:
                self._handles[number] = os.open(path, os.O_PATH | os.O_NOFOLLOW)
            if path.is_symlink():
                tree[number] = os.readlink(path)
            elif path.is_dir():
                tree[number] = {inner.name: inner.lstat().st_ino for inner in path.iterdir()}
            else:
                tree[number] = path.read_bytes()
        return tree

    def close(self):
        """Let go of all objects."""
        for handle in self._handles.values():
            os.close(handle)

    def note(self, *call):
        """Remember how things are."""
        tree = self._tree()
        if call != ("written",) or tree != self.steps[-1].live:
            self.steps.append(Step(call, tree, dict(self._synced)))

    def _do(self, name, *paths):
        self.note("written")
        getattr(super(), name)(*paths)
        if name == "sync":
            number = paths[0].stat().st_ino
            self._synced[number] = self._tree()[number]
        self.note(name, *(os.path.relpath(path, self.root) for path in paths))

    def make_folder(self, path):
        self._do("make_folder", path)

    def sync(self, path):
        self._do("sync", path)

    def rename(self, source, target):
        self._do("rename", source, target)

    def exchange(self, one, other):
        if not self.can_exchange:
            raise OSError(22, "this file system cannot exchange")
        self._do("exchange", one, other)

    def link(self, source, target):
        self._do("link", source, target)

    def unlink(self, path):
        self._do("unlink", path)

    def remove_folder(self, path):
        self._do("remove_folder", path)

    def calls(self):
        """Names of the calls, in order."""
        return [step.call[0] for step in self.steps]


def crashes(step):
    """What may be on the disk after a crash at ``step``: trees of objects by number, each with what happened."""
    yield "killed", step.live
    changed = {number for number, node in step.live.items() if node != step.synced.get(number)}
    folders = [number for number in changed if isinstance(step.live[number], dict)]
    for torn in (lambda content: content[: len(content) // 2], lambda content: b""):
        for lost in {(), tuple(folders), *((number,) for number in folders)}:
            yield f"power cut, names lost in {len(lost)} folders", _after_power_cut(step, changed, set(lost), torn)


def _after_power_cut(step, changed, lost, torn):
    tree = {}
    for number in {*step.live, *step.synced}:
        node = step.live.get(number, step.synced.get(number))
        if isinstance(node, bytes):
            whole = number not in changed
            tree[number] = node if whole else torn(node)
        elif isinstance(node, dict):
            tree[number] = step.synced.get(number, {}) if number in lost else node
        else:
            tree[number] = node
    return tree


def write_tree(tree, number, place):
    """Make real what a crash left."""
    node = tree.get(number)
    if isinstance(node, dict):
        place.mkdir()
        for name, inner in node.items():
            write_tree(tree, inner, place / name)
    elif isinstance(node, str):
        place.symlink_to(node)
    elif node is not None:
        place.write_bytes(node)
