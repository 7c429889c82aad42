"""The head against values of the NONA paper's public code (see tests/golden/nona/INDEX.md)."""

from pathlib import Path

import numpy as np
import pytest
import torch

from vicinal.heads import NONA
from vicinal.masks import SoftStep

FOLDER = Path(__file__).parents[1] / "golden" / "nona"
CASES = sorted(path.stem for path in FOLDER.glob("*.npz"))
NAMES = {"cos": "cosine", "dot": "scaled_dot", "l1": "l1", "l2": "l2"}


def load(case, dtype=torch.float64, **settings):
    """Head with the parameters of a case, its arrays, and the ids it is called with."""
    _, similarity, kind, *rest = case.split("-")
    arrays = dict(np.load(FOLDER / f"{case}.npz"))
    queries = torch.tensor(arrays["queries"], dtype=dtype, requires_grad=True)
    train = rest[-1] == "train"
    bank = queries if train else torch.tensor(arrays["keys"], dtype=dtype)
    mask = None
    if kind != "none":
        mask = SoftStep(queries.shape[1], kind, rest[0], **{"extent": "all", "eps": 1e-12, **settings})
        names = {"param.params.weight": "projection.weight", "param.params.bias": "projection.bias"}
        names["param.params"] = "logits"
        state = {names[k]: torch.tensor(v) for k, v in arrays.items() if k.startswith("param.")}
        mask.load_state_dict(state)
        mask.to(dtype)
    ids = torch.arange(len(queries)) if train else None
    return NONA(NAMES[similarity], mask), arrays, queries, bank, {"query_ids": ids, "bank_ids": ids}


def test_all_cases_are_here():
    assert len(CASES) == 80


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case):
    head, arrays, queries, bank, ids = load(case)
    labels = torch.tensor(arrays["values"])
    weights = head.weights(queries, bank, **ids)
    prediction = head(queries, bank, labels, **ids)
    np.testing.assert_allclose(weights.detach().numpy(), arrays["weights"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(prediction.detach().numpy(), arrays["prediction"], rtol=0, atol=1e-6)
    order = torch.arange(1, len(queries) + 1, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((order * prediction).sum(), queries)
    want = arrays["grad_queries_of_sum_i_times_prediction"]
    np.testing.assert_allclose(gradient.numpy(), want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


@pytest.mark.sweep(7)
@pytest.mark.parametrize("extent", ["all", "admissible"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_finite_in_low_precision(case, dtype, extent):
    head, arrays, queries, bank, ids = load(case, dtype, extent=extent)
    labels = torch.tensor(arrays["values"], dtype=dtype)
    prediction = head(queries, bank, labels, **ids)
    prediction.square().sum().backward()
    assert prediction.isfinite().all()
    for tensor in (queries, *head.parameters()):
        assert tensor.grad.isfinite().all()
    if extent == "all" and dtype == torch.float32:
        np.testing.assert_allclose(prediction.detach().numpy(), arrays["prediction"], rtol=2e-3, atol=2e-3)
