"""Codes of rows by their scores with anchors."""

import numpy as np
import pytest
import torch

from references.linking import anncur
from vicinal.index import anchor_codes, anchor_search

GOLDEN = np.load("tests/golden/retrieval/anncur.npz")


@pytest.mark.parametrize("case", ["rank3", "noisy", "all_anchors", "one_anchor"])
def test_codes_without_ridge_are_those_of_the_papers_code(case):
    scores = torch.from_numpy(GOLDEN["exact_rank3" if case == "rank3" else "noisy"])
    queries, items = GOLDEN[f"{case}__row_idx"], GOLDEN[f"{case}__col_idx"]
    codes = anchor_codes(scores[queries], items, ridge=0)
    np.testing.assert_allclose(scores[:, items] @ codes, GOLDEN[f"{case}__approx"], atol=1e-8)


@pytest.mark.parametrize("ridge", [0, 1e-6, 0.1])
def test_codes_equal_numpy_in_both_widths(ridge):
    scores = np.random.default_rng(0).normal(size=(12, 30))
    for columns in ([3, 1, 7], list(range(20))):
        if ridge == 0 and len(columns) > 12:
            continue
        ours = anchor_codes(torch.from_numpy(scores), columns, ridge=ridge)
        np.testing.assert_allclose(ours, anncur(scores, columns, ridge), atol=1e-8)


def test_a_nearly_singular_crossing_does_not_explode_with_ridge():
    random = np.random.default_rng(0)
    scores = random.normal(size=(40, 2)) @ random.normal(size=(2, 60)) + 1e-9 * random.normal(size=(40, 60))
    codes = anchor_codes(torch.from_numpy(scores[:10]), range(8))
    np.testing.assert_allclose(torch.from_numpy(scores[:, :8]) @ codes, scores, atol=1e-3)
    assert float(codes.abs().max()) < 10


def test_search_ranks_by_true_scores_within_its_calls():
    random = np.random.default_rng(0)
    scores = torch.from_numpy(random.normal(size=(50, 4)) @ random.normal(size=(4, 300)))
    asked = []

    def score(query, at):
        asked.append(len(at))
        return scores[query, at]

    anchors = list(range(0, 300, 30))
    codes = anchor_codes(scores[:20], anchors)
    hits = anchor_search(score, list(range(20, 50)), codes, anchors, 3, calls=25)
    best = scores[20:].topk(3)
    assert hits.ids.tolist() == best.indices.tolist()
    torch.testing.assert_close(hits.scores, best.values.float())
    assert sum(asked) == 25 * 30
    vectors = anchor_search(score, [20], codes, anchors, 3, calls=5, first=scores[20:21])
    assert vectors.ids.tolist() == best.indices[:1].tolist()
    assert sum(asked) == 25 * 30 + 5


def test_wrong_arguments_are_told():
    for anchors in ([0, 0], [5], []):
        with pytest.raises(ValueError, match="anchors: expected"):
            anchor_codes(torch.eye(3), anchors)
    with pytest.raises(ValueError, match=r"^scores: expected anchors that some"):
        anchor_codes(torch.zeros(3, 3), [1])
    with pytest.raises(ValueError, match=r"^ridge: "):
        anchor_codes(torch.eye(3), [1], ridge=-1.0)
    with pytest.raises(ValueError, match=r"^calls: "):
        anchor_search(lambda query, at: at.double(), [0], torch.eye(3), [0, 1, 2], 1, calls=2)
