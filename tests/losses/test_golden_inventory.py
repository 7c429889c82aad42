"""Every stored reference file is used by a test of the catalogue, or waits in it for a method that is not here yet.

That the test reads its file is checked in ``test_catalogue``.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

import catalogue
from mentions import defines
from vicinal.similarity import resolve_similarity

TESTS = Path(__file__).parents[1]
FOLDER = TESTS / "golden/losses"
LINES = catalogue.read()
USED = {place: line.tests for line in LINES if line.reference == "golden" for place in line.places}
"""Golden file, or folder of files -> tests that read it."""
WAITING = {place for line in LINES if not line.is_here for place in line.places}

ELSEWHERE = {f"golden/retrieval/{name}.npz": f"golden/losses/{name}.npz" for name in ("miners", "retrieval_metrics")}
"""File here -> where the shared folder has it."""

WRONG = {
    "losses/angular": "test_angular_but_for_unrelated_columns_that_the_reference_forgets_to_scale",
    "losses/dexml_topk": "test_soft_topk_loss_where_the_reference_loses_its_digits",
    "losses/diverse_anchors": "test_a_row_with_duplicates_is_picked_once_where_the_reference_picks_it_twice",
    "losses/soft_topk": "test_soft_topk",
    "retrieval/miners": "test_choices_of_pytorch_metric_learning",
}
"""File -> the test of its case B, which is not to be matched as it is; it shows the difference and names the cause."""


def stored(folder):
    """Golden files below ``folder / "golden"``, by their paths from there."""
    files = [path for kind in ("npz", "json") for path in (folder / "golden").rglob(f"*.{kind}")]
    return {path.relative_to(folder).as_posix() for path in files}


def unnamed(files, places):
    """Files that are not among ``places``, by themselves or with their folder."""
    return {file for file in files if file not in places and file.rpartition("/")[0] not in places}


HERE = stored(TESTS)


def test_every_file_that_is_kept_here_is_used():
    assert not unnamed(HERE, USED)
    assert not HERE & WAITING


def test_every_shared_file_is_used_or_waits(shared):
    there = stored(shared)
    if not there:
        pytest.skip("the shared folder holds no reference data")
    assert not unnamed(there, USED.keys() | WAITING | set(ELSEWHERE.values()))
    assert there >= WAITING


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_at_the_source_is_tested_where_its_values_are(name):
    places = {test.partition("::")[0] for test in USED[f"golden/{name}.npz"]}
    assert any(defines(f"{place}::{WRONG[name]}") for place in places)


@pytest.mark.parametrize("name", sorted(HERE))
def test_the_values_are_those_of_the_shared_file(name, shared):
    path = shared / ELSEWHERE.get(name, name)
    if not path.is_file():
        pytest.skip("the shared reference data do not hold this file")
    if path.suffix == ".json":
        assert path.read_bytes() == (TESTS / name).read_bytes()
        return
    with np.load(path) as theirs, np.load(TESTS / name) as ours:
        assert set(theirs.files) == set(ours.files)
        for key in theirs.files:
            np.testing.assert_array_equal(ours[key], theirs[key])


@pytest.mark.parametrize("name", ["dynamic_soft_margin", "histogram", "pnp_ds", "tcm"])
def test_losses_that_the_reference_reduces_itself_have_no_sum_of_their_own(name):
    """Their file says the same for both reductions, so our "mean" is what is compared."""
    with np.load(FOLDER / f"{name}.npz") as data:
        for case in "AB":
            if f"{case}_loss_sum" in data:
                assert data[f"{case}_loss_sum"] == data[f"{case}_loss"]
                np.testing.assert_array_equal(data[f"{case}_grad_sum"], data[f"{case}_grad"])


@pytest.mark.parametrize("case", ["A", "B"])
@pytest.mark.parametrize(
    ("name", "similarity", "sign"),
    [
        ("cosine", "cosine", 1),
        ("dot", "dot", 1),
        ("l1", "l1", -1),
        ("l2", "l2", -1),
        ("l2_normalised", "l2", -1),
        ("l2sq", "squared_l2", -1),
    ],
)
def test_distances_are_similarities_with_another_sign(case, name, similarity, sign):
    with np.load(FOLDER / "distances.npz") as data:
        x, y, want = (torch.from_numpy(data[f"{case}_{key}"]) for key in ("x", "y_ref", name))
    if name.endswith("_normalised"):
        x, y = (torch.nn.functional.normalize(rows, dim=-1) for rows in (x, y))
    got = sign * resolve_similarity(similarity)(x, y)
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9 * float(want.abs().max()))
