"""The bank is a table by id, whatever is done to it, and its files are whole or refused."""

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from faults.warm import program, run_case
from vicinal.index import NeighborBank

DIM = 3


def drawn(seed, count, dim=DIM):
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed))


def small(**options):
    bank = NeighborBank(DIM, **options)
    frame = pd.DataFrame({"city": ["Oslo", "Rome", "Lima", "Kyiv"], "size": [1, 2, 3, 4]})
    bank.add(["a", "b", "c", "d"], drawn(1, 4), drawn(2, 4)[:, 0], groups=["x", "x", "y", "z"], rows=frame)
    return bank


def content(bank):
    """What a bank holds, by id."""
    labels, groups, rows = bank.labels, bank.groups, bank.rows
    made = {}
    for place, name in enumerate(bank.ids.tolist()):
        made[name] = (
            bank.vectors[place].tolist(),
            None if labels is None else labels[place].tolist(),
            None if groups is None else groups[place],
            None if rows is None else tuple(rows.iloc[place]),
        )
    return made


STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "update", "save"]), st.integers(0, 10**6), st.integers(0, 9)),
    max_size=12,
)


@given(STEPS, st.booleans(), st.booleans(), st.sampled_from([0, 2]))
@example([("add", 0, 2), ("remove", 0, 2), ("save", 0, 0), ("add", 1, 3)], True, True, 0)
@example([("save", 0, 0), ("add", 1, 3), ("save", 0, 0), ("add", 1, 9)], False, True, 2)
def test_any_sequence_of_changes_equals_a_dictionary(tmp_path_factory, steps, strings, rows, width):
    bank, model, following = NeighborBank(DIM), {}, 0
    for word, seed, count in steps:
        values = drawn(seed, max(count, 1), DIM)[:count]
        labels = drawn(seed + 1, max(count, 1), max(width, 1))[:count]
        labels = labels if width else labels[:, 0]
        some = np.random.default_rng(seed).permutation(sorted(model))[:count].tolist()
        if word == "add":
            new = [f"n{following + i}" if strings else following + i for i in range(count)]
            following += count
            groups = [seed % 3 + i for i in range(count)]
            frame = pd.DataFrame({"seed": [seed] * count, "word": ["w"] * count}) if rows else None
            bank.add(new, values, labels, groups=groups, rows=frame)
            for i, name in enumerate(new):
                cells = (seed, "w") if rows else None
                model[name] = (values[i].tolist(), labels[i].tolist(), groups[i], cells)
        elif word == "remove":
            bank.remove(some)
            for name in some:
                del model[name]
        elif word == "update":
            groups = [seed % 5 + i for i in range(len(some))]
            frame = pd.DataFrame({"seed": [seed] * len(some), "word": ["v"] * len(some)}) if rows else None
            bank.update(some, values[: len(some)], labels[: len(some)], groups=groups, rows=frame)
            for i, name in enumerate(some):
                model[name] = (values[i].tolist(), labels[i].tolist(), groups[i], (seed, "v") if rows else None)
        else:
            folder = tmp_path_factory.mktemp("bank") / "bank"
            bank.save(folder)
            bank = NeighborBank.load(folder)
        assert len(bank) == len(model)
        assert content(bank) == model
        names = sorted(model)
        assert (bank.positions(names).numpy() == [bank.ids.tolist().index(name) for name in names]).all()
        assert torch.equal(bank.positions_of_keys(bank.keys), torch.arange(len(bank)))


def test_positions_keys_and_parts():
    bank = small()
    bank.remove(["b"])
    assert bank.ids.tolist() == ["a", "d", "c"]
    assert bank.positions(["c", "b", "nobody"]).tolist() == [2, -1, -1]
    assert bank.ids_of_keys(bank.keys[1:]).tolist() == ["d", "c"]
    assert torch.equal(bank.vectors_at(torch.tensor([2, 0])), drawn(1, 4)[[2, 0]])
    assert torch.equal(bank.labels_at(torch.tensor([2])), drawn(2, 4)[[2], 0])
    assert bank.rows_at(torch.tensor([1]))["city"].tolist() == ["Kyiv"]
    assert bank.groups.tolist() == ["x", "z", "y"]
    assert bank.codes_of_groups(["z", "w"]).tolist() == [bank.group_codes[1], -1]
    with pytest.raises(ValueError, match=r"^positions: expected numbers from 0 to 2, got -1 to 1; -1 stands for"):
        bank.vectors_at(torch.tensor([1, -1]))
    assert "c" in bank
    assert "b" not in bank


def test_a_key_is_never_given_again(tmp_path):
    bank = small()
    gone = bank.keys[bank.positions(["d"])]
    bank.remove(["d"])
    bank.save(tmp_path / "bank")
    bank = NeighborBank.load(tmp_path / "bank")
    bank.add(["d"], drawn(3, 1), drawn(4, 1)[:, 0], groups=["x"], rows=pd.DataFrame({"city": ["Bonn"], "size": [5]}))
    assert bank.keys[bank.positions(["d"])] > gone


def test_state_dict_becomes_the_same_bank():
    bank = small()
    other = NeighborBank(DIM)
    other.load_state_dict(bank.state_dict())
    assert {name: row[:3] for name, row in content(bank).items()} == {k: row[:3] for k, row in content(other).items()}
    other.remove(["a"])
    assert len(bank) == 4
    with pytest.raises(ValueError, match=r"^state: expected dim=4, as this bank, got 3"):
        NeighborBank(4).load_state_dict(bank.state_dict())
    with pytest.raises(ValueError, match=r"^state: expected the state of a bank"):
        NeighborBank(DIM).load_state_dict({"weight": torch.zeros(3)})


def test_a_table_lets_go_of_rows_that_are_gone(monkeypatch):
    monkeypatch.setattr("vicinal.index.bank._STEP", 8)
    bank = NeighborBank(1)
    bank.add(range(100), torch.zeros(100, 1), rows=pd.DataFrame({"n": range(100)}))
    bank.remove(range(70))
    assert bank._table.rows == 30
    assert bank.rows["n"].tolist() == bank.ids.tolist()
    for number in range(40):
        bank.update([70], rows=pd.DataFrame({"n": [number]}))
    assert bank._table.rows <= 69
    assert bank.rows_at(bank.positions([70, 99]))["n"].tolist() == [39, 99]


def test_what_does_not_fit_is_refused_and_changes_nothing():
    bank, before = small(), content(small())
    one, label = drawn(9, 1), torch.ones(1)
    frame = pd.DataFrame({"city": ["Bonn"], "size": [5]})
    some = {"groups": ["x"], "rows": frame}
    cases = [
        (["a"], one, label, some, r"^ids: expected ids that the bank has not yet, got 'a', which it has"),
        (
            ["e", "e"],
            drawn(9, 2),
            torch.ones(2),
            {**some, "groups": ["x"] * 2, "rows": frame.iloc[[0, 0]]},
            r"^ids: .* once",
        ),
        ([None], one, label, some, r"^ids: expected one for every row, got none in row 0"),
        (["e"], one * torch.nan, label, some, r"^vectors: expected finite numbers"),
        (["e"], one[:, :2], label, some, r"^vectors: expected a matrix \[1, 3\]"),
        (["e"], one, label * torch.nan, some, r"^labels: expected a number for every row, got NaN in row 0"),
        (["e"], one, torch.ones(1, 2), some, r"^labels: expected \[1\] as the bank has them, got \(1, 2\)"),
        (["e"], one, None, some, r"^labels: expected some, as the rows of the bank have some, got none"),
        (["e"], one, label, {"rows": frame}, r"^groups: expected some"),
        (["e"], one, label, {"groups": ["x"]}, r"^rows: expected some"),
        (["e"], one, label, {**some, "groups": ["x", "y"]}, r"^groups: expected 1, one a row, got 2"),
        (["e"], one, label, {**some, "rows": frame[["city"]]}, r"^rows: expected the columns \['city', 'size'\]"),
    ]
    for ids, vectors, labels, more, told in cases:
        with pytest.raises(ValueError, match=told):
            bank.add(ids, vectors, labels, **more)
    with pytest.raises(ValueError, match=r"^ids: expected ids that the bank has, got 'z', which it has not"):
        bank.remove(["a", "z"])
    with pytest.raises(ValueError, match=r"^ids: expected each id once"):
        bank.remove(["a", "a"])
    with pytest.raises(ValueError, match=r"^ids: expected ids that the bank has, got 'z'"):
        bank.update(["z"], one)
    with pytest.raises(ValueError, match=r"^labels: expected \[1\]"):
        bank.update(["a"], one, torch.ones(1, 2))
    assert content(bank) == before
    numbers = NeighborBank(DIM)
    with pytest.raises(ValueError, match=r"^ids: expected whole numbers of at least 0, got -1"):
        numbers.add([-1], one)
    numbers.add([1], one)
    with pytest.raises(ValueError, match=r"^ids: expected whole numbers as the bank has them, got 'e'"):
        numbers.add(["e"], one)
    with pytest.raises(ValueError, match=r"^labels: expected none"):
        numbers.update([1], labels=label)


@pytest.mark.parametrize("name", ["bank.json", "bank.safetensors", "names.parquet", "rows.parquet", "SHA256SUMS"])
@pytest.mark.parametrize("harm", ["missing", "torn", "edited"])
def test_a_harmed_file_is_refused_by_name(tmp_path, name, harm):
    small().save(tmp_path / "bank")
    path = tmp_path / "bank" / name
    whole = path.read_bytes()
    if harm == "missing":
        path.unlink()
    elif harm == "torn":
        path.write_bytes(whole[: len(whole) - 7])
    else:
        path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:] if name != "bank.safetensors" else whole[:-1] + b"\x55")
    told = name if name != "SHA256SUMS" or harm == "missing" else r"(bank\.json|rows\.parquet): expected the checksum"
    with pytest.raises(ValueError, match=told):
        NeighborBank.load(tmp_path / "bank", verify=True).rows  # noqa: B018


def test_an_edited_header_is_refused_without_reading_the_rows(tmp_path):
    small().save(tmp_path / "bank")
    path = tmp_path / "bank" / "bank.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"keys"', b'"kexs"'))
    with pytest.raises(ValueError, match=r"^bank.safetensors: expected the header that was written"):
        NeighborBank.load(tmp_path / "bank")


def test_a_later_version_and_a_foreign_folder_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^bank: expected a bank folder, got"):
        NeighborBank.load(tmp_path / "nothing")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all my work")
    with pytest.raises(ValueError, match=r"^out: expected a new or empty folder, or a bank folder"):
        small().save(tmp_path / "mine")
    small().save(tmp_path / "bank")
    config = tmp_path / "bank" / "bank.json"
    old = config.read_text()
    config.write_text(old.replace('"version": 1', '"version": 2'))
    sums = tmp_path / "bank" / "SHA256SUMS"
    lines = [line for line in sums.read_text().splitlines(keepends=True) if "bank.json" not in line]
    sums.write_text("".join(lines) + f"{hashlib.sha256(config.read_bytes()).hexdigest()}  bank.json\n")
    with pytest.raises(ValueError, match=r"^bank.json: expected format version 1, got 2"):
        NeighborBank.load(tmp_path / "bank")


def test_the_file_is_read_by_the_safetensors_package(tmp_path):
    from safetensors.numpy import load_file

    bank = small()
    bank.save(tmp_path / "bank")
    found = load_file(tmp_path / "bank" / "bank.safetensors")
    np.testing.assert_array_equal(found["vectors"], bank.vectors)
    np.testing.assert_array_equal(found["labels"], bank.labels)


LIFE = """
import sys, time
import numpy as np, torch
from vicinal.index import ExactIndex, NeighborBank
torch.set_num_threads(1)
rows, folder = int(sys.argv[1]), sys.argv[2]
def peak():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
def reset():  # a new process starts with the highest memory of the one that made it
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
def told(word, work):
    reset()
    before, start = peak(), time.perf_counter()
    result = work()
    print(word, peak() - before, time.perf_counter() - start)
    return result
if sys.argv[3] == "write":
    bank = NeighborBank(128)
    bank.add(np.arange(rows), torch.randn(rows, 128), torch.rand(rows))
    bank.save(folder)
else:
    NeighborBank(128).add([1], torch.zeros(1, 128), torch.zeros(1))
    bank = told("load", lambda: NeighborBank.load(folder))
    told("add", lambda: bank.add(np.arange(rows, rows + 1000), torch.randn(1000, 128), torch.rand(1000)))
    told("remove", lambda: bank.remove(np.arange(0, 10_000, 10)))
    told("search", lambda: ExactIndex(128, bank=bank).search(torch.randn(4, 128), 8))
"""


def life(tmp_path, rows):
    """Mebibytes and seconds of each step, in a process of its own."""
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the highest memory of a process cannot be reset on this system")
    made = {}
    for word in ("write", "read"):
        arguments = (rows, tmp_path / "bank", word)
        done = run_case(tmp_path / "case", program, LIFE, *arguments, seconds=200, memory=8 << 30)
        assert done.code == 0, done.err
        made |= {line.split()[0]: tuple(map(float, line.split()[1:])) for line in done.out.splitlines()}
    return made


def test_a_loaded_bank_is_not_in_memory(tmp_path):
    steps = life(tmp_path, 60_000)  # 29 MiB of vectors
    assert steps["load"][0] < 8  # some 3 of which are code that is used for the first time
    assert steps["add"][0] + steps["remove"][0] < 16


@pytest.mark.slow
def test_a_million_rows_open_at_once(tmp_path):
    steps = life(tmp_path, 1_000_000)  # 488 MiB of vectors
    assert steps["load"][0] < 8
    assert steps["load"][1] < 1
    assert sum(megabytes for megabytes, _ in steps.values()) < 1000
