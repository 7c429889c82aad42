"""Every stored reference file of losses is used by a test, or there is a reason why not."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from vicinal.similarity import resolve_similarity

TESTS = Path(__file__).parents[1]
FOLDER = TESTS / "golden/losses"

PAIRS, LISTED = "losses/test_golden_pairs.py", "losses/test_listed_golden.py"
TESTED = {
    **dict.fromkeys(
        [
            "angular",
            "arcface",
            "circle",
            "contrastive_cosine",
            "contrastive_euclid",
            "cosface",
            "dynamic_soft_margin",
            "fast_ap",
            "generalized_lifted_structure",
            "histogram",
            "intra_pair_variance",
            "large_margin_softmax",
            "lifted_structure",
            "margin_loss",
            "multi_similarity",
            "nca",
            "normalized_softmax",
            "npairs",
            "ntxent",
            "pnp_ds",
            "proxy_anchor",
            "proxy_nca",
            "ranked_list",
            "smooth_ap",
            "soft_triple",
            "sphereface",
            "subcenter_arcface",
            "supcon",
            "triplet_all",
            "triplet_all_smooth",
            "triplet_all_swap",
            "triplet_mined",
            "tuplet_margin",
            "vicreg",
        ],
        PAIRS,
    ),
    **dict.fromkeys(
        [
            "contrastive_snr",
            "contrastive_snr_normalised",
            "dexml_bce",
            "dexml_decoupled_softmax",
            "dexml_softmax",
            "dexml_topk",
            "distances",
            "soft_topk",
            "tcm",
            "unpg_cosface",
        ],
        LISTED,
    ),
    "diverse_anchors": "samplers/test_diverse.py",
    "dynamic_reweighting": "losses/test_reweighting.py",
    "ebv": "heads/test_class_geometry.py",
    "loki": "heads/test_class_geometry.py",
    "miners": "miners/test_miners.py",
    "retrieval_metrics": "metrics/test_streamed.py",
}
"""File -> the test that reads it."""

KEPT_ELSEWHERE = {"miners": "golden/retrieval", "retrieval_metrics": "golden/retrieval"}

NO_PAIRS = "a loss of class scores against one target class: it sees no pairs and no embeddings"
MARGIN = "a loss of the margin of a binary classifier: it sees no pairs and no embeddings"
DISTILLATION = "one network's outputs against another's, or against its own past: no pairs of rows"
ELSEWHERE = {
    **dict.fromkeys(
        [
            "aldr_kl",
            "ce_logmeanexp",
            "crammer_singer",
            "gce_q0.7",
            "gce_trunc_q0.7_k0.3",
            "js_loss",
            "ldr_kl_lambda0.1",
            "ldr_kl_normalised",
            "nce_agce",
            "nce_aul",
            "nce_rce",
            "sce_ldr",
            "weston_watkins",
        ],
        NO_PAIRS,
    ),
    **dict.fromkeys(
        [
            "ensloss",
            "margin_bin_focal",
            "margin_exp",
            "margin_exp_hinge",
            "margin_hinge",
            "margin_inv_hinge",
            "margin_inv_log_hinge",
            "margin_log_hinge",
        ],
        MARGIN,
    ),
    **dict.fromkeys(["assistive_kd", "saf_trajectory", "sinkhorn_kd"], DISTILLATION),
    "gradient_matching": "a distance of lists of gradients, to make small datasets",
    "joint_best_of_k": "errors of several predicted paths, a measure of forecasts",
    "ms_ssim": "a similarity of images, not of embeddings",
    "pseudo_huber_elementwise": "an error of numbers, by a link rather than by a loss of pairs",
}
"""File -> why no loss, miner, sampler or metric of this library has these values."""

WRONG = {
    "angular": ("B", "test_angular_but_for_unrelated_columns_that_the_reference_forgets_to_scale"),
    "dexml_topk": ("B", "test_soft_topk_loss_where_the_reference_loses_its_digits"),
    "diverse_anchors": ("B", "test_a_row_with_duplicates_is_picked_once_where_the_reference_picks_it_twice"),
    "miners": ("B", "test_choices_of_pytorch_metric_learning"),
    "soft_topk": ("B", "test_soft_topk"),
}
"""File -> the case that is not to be matched as it is, and the test that shows the difference and names the cause."""


def test_a_file_is_tested_or_has_a_reason_and_not_both():
    assert not TESTED.keys() & ELSEWHERE.keys()
    assert all(len(reason) > 20 for reason in ELSEWHERE.values())
    assert TESTED.keys() >= WRONG.keys()


def test_every_shared_file_is_listed(shared):
    folder = shared / "golden/losses"
    if not folder.is_dir():
        pytest.skip("the shared reference data hold no losses")
    assert {path.stem for path in folder.glob("*.npz")} == TESTED.keys() | ELSEWHERE.keys()


def test_every_file_that_is_kept_here_is_tested():
    kept = {path.stem for path in FOLDER.glob("*.npz")}
    assert kept == TESTED.keys() - KEPT_ELSEWHERE.keys()
    for name, folder in KEPT_ELSEWHERE.items():
        assert (TESTS / folder / f"{name}.npz").is_file()


@pytest.mark.parametrize("name", TESTED)
def test_the_test_reads_the_file(name):
    text = (TESTS / TESTED[name]).read_text(encoding="utf-8")
    assert re.search(rf"[\"'/]{re.escape(name)}(\.npz)?[\"']", text), f"{TESTED[name]} does not mention {name}"
    if name in WRONG:
        assert f"def {WRONG[name][1]}(" in text


@pytest.mark.parametrize("name", TESTED)
def test_the_values_are_those_of_the_shared_file(name, shared):
    path = shared / "golden/losses" / f"{name}.npz"
    if not path.is_file():
        pytest.skip("the shared reference data do not hold this file")
    with np.load(path) as theirs, np.load(TESTS / KEPT_ELSEWHERE.get(name, "golden/losses") / path.name) as ours:
        assert set(theirs.files) == set(ours.files)
        for key in theirs.files:
            np.testing.assert_array_equal(ours[key], theirs[key])


OF_RETRIEVAL = [
    "adore_lambda",
    "ngame_balanced_kmeans",
    "ngame_triplet_ohnm",
    "pamc",
    "ranking_metrics",
    "star_pairwise",
]


@pytest.mark.parametrize("name", [*(f"retrieval/{name}" for name in OF_RETRIEVAL), "sets/score_submodular"])
def test_the_values_of_retrieval_and_of_sets_are_those_of_the_shared_files(name, shared):
    path = shared / "golden" / f"{name}.npz"
    if not path.is_file():
        pytest.skip("the shared reference data do not hold this file")
    with np.load(path) as theirs, np.load(TESTS / "golden" / f"{name}.npz") as ours:
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
