"""No promise by name is lost: what was there before the house was made smaller is there, or the changelog leads to it.

If a test fails, something went that has no row in the table of CHANGELOG.md: scripts/promises.py says how to write one.
"""

import json

import pytest

from promises import BEFORE, HEADING, PROJECT, lost, promises, resolves, unexplained

WENT = [
    *("loss moving_partition", "metric nuclear_surrogate", "teacher_loss assistive", "vicinal fit --index-tolerance"),
    *(f"vicinal {name} --{option}" for name in ("dedupe", "match") for option in ("scorer", "learn-candidates")),
    *(f"vicinal {name} --no-learn-candidates" for name in ("dedupe", "match")),
    *(f"vicinal {name} --{no}hub-correction" for name in ("dedupe", "match") for no in ("", "no-")),
]
"""Methods, commands and options that went, each with its row in the changelog."""

CHANGELOG = (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def before():
    return json.loads(BEFORE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def now():
    return promises()


def test_each_name_that_went_has_a_row_that_leads_to_what_took_its_place(before, now):
    assert unexplained(before, now, CHANGELOG) == []


def test_no_method_command_or_option_went_without_a_successor(before, now):
    """``removed:`` is for public names; the same method under another name is registered under it."""
    gone = [name for name in lost(before, now) if name in before["registry"] or name in before["options"]]
    assert sorted(gone) == sorted(WENT)


@pytest.mark.parametrize(
    ("kind", "name", "row"),
    [
        ("registry", "pair_loss pigeons", "| `pair_loss pigeons` | `pair_loss supcon` |"),
        ("options", "vicinal fit --pigeons", "| `vicinal fit --pigeons` | `vicinal fit --root` |"),
        ("names", "heads.Pigeons", "| `Pigeons`, `Doves` of `heads` | `heads.NONA` |"),
        ("names", "heads.pigeons", "| `heads.pigeons` | removed: nobody kept any |"),
        ("members", "heads.NONA: (pigeons=)", "| `pigeons=` of `heads.NONA` | `mask=` |"),
        ("members", "heads.NONA: .pigeons .pigeons(n=)", "| `heads.NONA.pigeons` | `heads.NONA.weights` |"),
    ],
)
def test_a_name_that_is_lost_needs_a_row_that_leads_somewhere(before, now, kind, name, row):
    older = before | {kind: [*before[kind], name]}
    assert len(unexplained(older, now, CHANGELOG)) == 1
    told = CHANGELOG.replace(HEADING, f"{HEADING}\n{row}", 1)
    assert unexplained(older, now, told) == []
    if "removed" not in row:
        nowhere = told.replace(row, row.rpartition(" | ")[0] + " | `heads.Seagulls` |")
        assert "which is not there" in unexplained(older, now, nowhere)[0]


def test_names_resolve_as_packages_names_methods_and_arguments():
    for name in ("heads", "heads.NONA", "heads.NONA.weights", "heads.NONA(mask=)", "losses.contract.RowTerms"):
        assert resolves(name), name
    for name in ("pigeons", "heads.pigeons", "heads.NONA.pigeons", "heads.NONA(pigeons=)"):
        assert not resolves(name), name
