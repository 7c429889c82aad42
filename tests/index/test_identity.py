"""A bank knows ids and groups in every form, and folders of earlier versions."""

import hashlib

import numpy as np
import pandas as pd
import pytest
import torch

from references.identity import FORMS, KEPT, KINDS
from vicinal.index import ExactIndex, NeighborBank

pytestmark = pytest.mark.sweep(3)

NUMBERS = [5, 0, 12, 300, 7]
GROUPS = [1, 1, 0, 2, 0]


def drawn(count, seed=0):
    return torch.randn(count, 2, generator=torch.Generator().manual_seed(seed))


def filled(form):
    bank = NeighborBank(2)
    bank.add(FORMS[form](NUMBERS), drawn(5), drawn(5)[:, 0], groups=FORMS[form](GROUPS))
    return bank


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kept", KINDS)
def test_a_bank_finds_adds_and_removes_by_ids_of_every_form(kept, form):
    bank = filled(kept)
    given = FORMS[form]
    assert bank.positions(given([300, 1, 5])).tolist() == [3, -1, 0]
    codes = bank.codes_of_groups(given([0, 2, 9]))
    assert [bool(code in bank.group_codes) for code in codes] == [True, True, False]
    assert bank.group_codes.tolist().count(int(codes[0])) == 2
    hidden = bank.hidden_keys(given([5, 1]), given([0, 9]))
    assert [set(bank.positions_of_keys(row[row >= 0]).tolist()) for row in hidden] == [{0, 2, 4}, set()]
    with pytest.raises(ValueError, match=r"^ids: expected ids that the bank has not yet, got '?12'?, which it has$"):
        bank.add(given([12]), drawn(1), torch.ones(1), groups=given([1]))
    with pytest.raises(ValueError, match=r"^ids: expected ids that the bank has, got '?13'?, which it has not$"):
        bank.remove(given([12, 13]))
    bank.add(given([13]), drawn(1), torch.full((1,), 7.0), groups=given([2]))
    bank.update(given([12]), labels=torch.full((1,), 8.0), groups=given([1]))
    bank.remove(given([5]))
    assert sorted(map(str, bank.ids.tolist())) == ["0", "12", "13", "300", "7"]
    assert {str(name): str(group) for name, group in zip(bank.ids, bank.groups, strict=True)} == {
        "0": "1",
        "12": "1",
        "13": "2",
        "300": "2",
        "7": "0",
    }
    assert bank.labels[bank.positions([12, "13"])].tolist() == [8.0, 7.0]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("what", ["ids", "groups"])
def test_a_search_finds_no_row_of_its_own(what, kept, form):
    bank = filled(kept)
    given = {"ids": None, "groups": None, what: FORMS[form](NUMBERS if what == "ids" else GROUPS)}
    keys = ExactIndex(2, bank=bank).search(drawn(5), 5, exclude=bank.hidden_keys(**given)).ids
    found = bank.positions_of_keys(keys)
    own = np.eye(5, dtype=bool) if what == "ids" else np.equal.outer(GROUPS, GROUPS)
    for row in range(5):
        seen = found[row][found[row] >= 0].tolist()
        assert sorted(seen) == np.flatnonzero(~own[row]).tolist()


def test_texts_among_whole_numbers():
    bank = filled("int64")
    with pytest.raises(ValueError, match=r"^ids: expected whole numbers as the bank has them, got '05'$"):
        bank.add(["8", "05"], drawn(2), torch.ones(2), groups=[1, 1])
    with pytest.raises(ValueError, match=r"^groups: expected whole numbers as the bank has them, got 'x'$"):
        bank.add(["8"], drawn(1), torch.ones(1), groups=["x"])
    with pytest.raises(
        ValueError, match=r"^ids: expected each id once, got 8 in row 0 and '8' in row 1, which are one"
    ):
        bank.add([8, "8"], drawn(2), torch.ones(2), groups=[1, 1])
    with pytest.raises(ValueError, match=r"^ids: expected whole numbers of at least 0, got -3$"):
        bank.add(["-3"], drawn(1), torch.ones(1), groups=[1])
    assert len(bank) == 5
    assert bank.positions(["05", "+5", "5e0", "-5", "99999999999999999999", 2**63, 0.5, True]).tolist() == [-1] * 8


def test_a_group_that_is_not_there_is_no_group_that_is():
    bank = NeighborBank(2)
    bank.add([1, 2, 3], drawn(3), groups=[-1, 0, 1])
    unknown = bank.codes_of_groups(["x", 0.5, str(2**64), "-1"])
    assert not torch.isin(unknown[:3], bank.group_codes).any()
    assert unknown[3] == -1
    assert bank.hidden_keys(groups=["x", "-1"]).tolist() == [[-1], [1]]


def earlier(folder, ids, groups):
    """The folder of a bank that an earlier version wrote: these texts, as they are."""
    bank = NeighborBank(2)
    plain = [f"id {place}" for place in range(len(ids))]
    bank.add(plain, drawn(len(ids)), groups=[f"group {place}" for place in range(len(ids))])
    bank.save(folder)
    pd.DataFrame({"id": ids, "group": groups}).to_parquet(folder / "names.parquet", index=False)
    sums = folder / "SHA256SUMS"
    lines = [line for line in sums.read_text().splitlines() if not line.endswith("names.parquet")]
    lines.append(f"{hashlib.sha256((folder / 'names.parquet').read_bytes()).hexdigest()}  names.parquet")
    sums.write_text("\n".join(lines) + "\n")
    return folder


def test_folders_of_earlier_versions_know_their_rows(tmp_path):
    ids = ["1.0", "2.5", "x", "7", " padded", "2024-01-01 00:00:00", "True"]
    groups = ["3.0", "3", "a ", "a", "1.5", "2024-01-01 00:00:00", "2024-01-01"]
    bank = NeighborBank.load(earlier(tmp_path / "b", ids, groups))
    assert bank.positions([1, 2.5, "x", 7.0, "padded", pd.Timestamp("2024-01-01"), True]).tolist() == list(range(7))
    assert bank.positions(ids).tolist() == list(range(7))
    hidden = bank.hidden_keys(groups=[3, 3.0, "a", 1.5, np.datetime64("2024-01-01")])
    assert [row[row >= 0].tolist() for row in hidden] == [[0, 1], [0, 1], [2, 3], [4], [5, 6]]
    bank.save(tmp_path / "b")
    again = NeighborBank.load(tmp_path / "b")
    assert again.ids.tolist() == ["1", "2.5", "x", "7", "padded", "2024-01-01", "True"]
    assert again.keys.tolist() == list(range(7))


def test_a_folder_whose_ids_are_one_id_now_is_refused_by_name(tmp_path):
    earlier(tmp_path / "b", ["1.0", "x", "1"], ["a", "b", "c"])
    sentence = r"^names.parquet: id: expected each id once, got '1.0' in row 0 and '1' in row 2, which are one id$"
    with pytest.raises(ValueError, match=sentence):
        NeighborBank.load(tmp_path / "b")


def test_a_bank_finds_ids_and_groups_in_any_spelling_and_shows_them_as_added():
    written, other = ["Zoe\u0308", "\u00c5ngstrom", "x\u200by", "z"], ["Zo\u00eb", "A\u030angstrom", "xy", "z\u200b"]
    bank = NeighborBank(2)
    bank.add(written, drawn(4), groups=written)
    assert bank.positions(other).tolist() == [0, 1, 2, 3]
    assert bank.ids.tolist() == written
    assert bank.codes_of_groups(other).tolist() == bank.group_codes.tolist()
    with pytest.raises(ValueError, match=r"^ids: expected"):
        bank.add(other[:1], drawn(1), groups=["new"])
    bank.add(["w"], drawn(1), groups=other[:1])
    assert bank.group_codes[4] == bank.group_codes[0]
    bank.remove(other[:2])
    assert bank.positions([*written, "w"]).tolist()[:2] == [-1, -1]
    bank.add(other[:1], drawn(1), groups=["new"])
    assert bank.positions(written[:1]).tolist() == [len(bank) - 1]


def test_a_saved_bank_with_two_spellings_of_one_id_still_opens(tmp_path):
    ids = ["Zoe\u0308", "Zo\u00eb", "x"]
    bank = NeighborBank.load(earlier(tmp_path / "bank", ids, ids))
    assert bank.ids.tolist() == ids
    assert bank.positions(["Zo\u00eb"]).tolist() == [1]
    assert bank.positions(["Zo\u00eb\u200b"]).tolist() == [1]
