"""Every stored reference file is used by a test of the catalogue, or waits in it for a method that is not here yet.

That the test reads its file is checked in ``test_catalogue``.
"""

import ast
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import catalogue
from mentions import defines
from vicinal.similarity.base import resolve_similarity

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


BATCH_NORM = "of the batch normalization, which is left out"
SEARCH = (
    "not one answer: a factorization of another start is another, so what is made of the true parameters is compared"
)
SETTING = "a setting of the run that ours has built in, or that the other arrays imply"
UNREAD = {
    "fastrp": {"q": SETTING},
    "gbw_batchnorm": {
        **dict.fromkeys(["eval_out", "grad_x_of_weighted_sum", "metric", "power", "running_mean"], BATCH_NORM),
        **dict.fromkeys(["running_var", "train_out", "weight", "one_step_barycentre"], BATCH_NORM),
    },
    "implicit_als": {"u0": "ours solves the rows first, so that a start of theirs is not read"},
    "laplacian_shot": {"prototypes": "what the stored unary costs were made of"},
    "latent_label_shift": {
        **dict.fromkeys(["est_p_x_given_y", "est_p_y_given_d", "bins_of_rows", "counts", "nmf_seed"], SEARCH),
        "true_p_x_given_y": "bins given their class, which ours does not return",
    },
    "mnar_ips_metrics": {
        **{
            f"{metric}_at_{k}": "divided by the logarithm of the rank itself, so that ranks 1 and 2 weigh alike"
            for metric in ("dcg", "dcg_ips")
            for k in (1, 3, 5, 10)
        },
        **{f"ap_at_{k}": "a sum that nothing divides, so no mean; with propensities it is one" for k in (1, 3, 5, 10)},
        "eps": "the floor of their propensities, below which none of these is",
    },
    "qr_md_embedding": {
        **{
            f"md_dims_alpha{a}_d0_64{p}": "of mixed dimensions, which are left out"
            for a in ("0.0", "0.3", "0.6")
            for p in ("", "_pow2")
        },
        "md_rows": "of mixed dimensions, which are left out",
        "num_categories": SETTING,
        "num_collisions": SETTING,
    },
    "semi_nmf": {**dict.fromkeys(["g_denominator_eps", "reg"], SETTING), "init_f": "the first step overwrites it"},
    "sp2ot": {
        "plan_times_n_stable": "a second program of theirs for the same plan",
        "semi": "whether the columns are relaxed, which evenness says",
    },
}
"""File of ``golden/retrieval`` of factors, clusters, clicks and tables -> arrays that no test compares, and why."""

FACTORS = (
    *("cml", "fastrp", "fsq", "fwsvd", "gbw_batchnorm", "implicit_als", "laplacian_shot"),
    *("latent_label_shift", "mnar_clipped_loss", "mnar_ips_metrics", "ncd_clustering", "pca_feature_mimicking"),
    *("qr_md_embedding", "semi_nmf", "sp2ot"),
)


def spoken(test):
    """Names of arrays that the file of a test reads, as patterns: any text stands where a string has a placeholder."""
    for node in ast.walk(ast.parse((TESTS / test.partition("::")[0]).read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            parts = [re.escape(part.value) if isinstance(part, ast.Constant) else ".+" for part in node.values]
            if len("".join(parts).replace(".+", "")) > 2:
                yield re.compile("".join(parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.compile(re.escape(node.value))


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


@pytest.mark.parametrize("name", FACTORS)
def test_every_array_of_factors_and_clusters_is_compared_or_has_its_reason(name):
    place = f"golden/retrieval/{name}.npz"
    readers = {test for line in LINES if place in line.places for test in line.tests}
    patterns = [pattern for test in readers for pattern in spoken(test)]
    with np.load(TESTS / place) as data:
        ends = {key: key.rpartition("__")[2] for key in data.files}
    unread = {end for key, end in ends.items() if not any(p.fullmatch(key) or p.fullmatch(end) for p in patterns)}
    assert unread == UNREAD.get(name, {}).keys()


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
