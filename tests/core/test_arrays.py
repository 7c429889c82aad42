"""Arrays in every form that numpy gives them: the door takes them, and so does whatever takes arrays."""

import numpy as np
import pytest
import torch

from vicinal.core import as_tensor
from vicinal.index import ExactIndex, FaissIndex, NeighborBank, anchor_codes
from vicinal.links import Identity, Piecewise
from vicinal.links.composite import check_class_bias
from vicinal.ranks import kemeny
from vicinal.training.teacher import Teacher


def records(values):
    table = np.zeros(values.shape, dtype=[("flag", "i1"), ("value", values.dtype)])
    table["value"] = values
    return table["value"]


def read_only(values):
    values = values.copy()
    values.flags.writeable = False
    return values


FORMS = {
    "rows in reverse": lambda values: values[::-1].copy()[::-1],
    "columns in reverse": lambda values: values[..., ::-1].copy()[..., ::-1],
    "of other machines": lambda values: values.astype(values.dtype.newbyteorder()),
    "by columns": np.asfortranarray,
    "each second": lambda values: np.repeat(values, 2, axis=0)[::2],
    "field of records": records,
    "read only": read_only,
    "spread": lambda values: np.broadcast_to(values, values.shape),
    "masked, nothing missing": np.ma.masked_invalid,
    "wide": lambda values: values.astype(np.longdouble) if values.dtype.kind == "f" else values.astype(np.uint64),
}
each_form = pytest.mark.parametrize("form", FORMS)


@each_form
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int16, np.int64, np.uint8])
@pytest.mark.parametrize("shape", [(7,), (7, 3), (1, 1), (0, 3)])
def test_the_door_takes_every_form(form, dtype, shape):
    values = (np.arange(np.prod(shape)).reshape(shape) % 100).astype(dtype)
    tensor = as_tensor("values", FORMS[form](values))
    np.testing.assert_array_equal(tensor.numpy(), values)


def test_it_shares_the_memory_of_plain_arrays_and_passes_tensors():
    values = np.arange(6.0).reshape(2, 3)
    as_tensor("values", values)[0, 0] = 5
    assert values[0, 0] == 5
    tensor = torch.zeros(2, requires_grad=True)
    assert as_tensor("values", tensor) is tensor


@pytest.mark.parametrize("values", [["a"], np.array(["a"]), np.array([None]), object(), np.zeros(2, dtype="M8[s]")])
def test_what_holds_no_numbers_is_refused(values):
    with pytest.raises(TypeError, match=r"^values: expected a tensor or an array of numbers, got "):
        as_tensor("values", values)


def test_masked_entries_are_refused():
    with pytest.raises(ValueError, match=r"^values: expected no masked entries, got 1$"):
        as_tensor("values", np.ma.masked_equal(np.arange(3), 1))


VECTORS = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
IDS = np.arange(12) + 3


def exact(form):
    index = ExactIndex(4)
    index.add(form(IDS), form(VECTORS))
    hits = index.search(form(VECTORS), 2, exclude=form(IDS))
    index.remove(form(IDS[:2]))
    return hits.ids, index.has(form(IDS))


def faiss(form):
    pytest.importorskip("faiss", reason="faiss-cpu is an optional package")
    index = FaissIndex(4)
    index.add(form(IDS), form(VECTORS))
    return index.search(form(VECTORS), 2, exclude=form(IDS)).ids, index.has(form(IDS))


def bank(form):
    made = NeighborBank(4)
    made.add(form(IDS), form(VECTORS), form(VECTORS[:, 0]), groups=form(IDS % 3), weights=form(IDS / 2))
    made.update(form(IDS[:2]), form(VECTORS[:2] + 1), form(VECTORS[:2, 1]))
    return made.vectors, made.labels, made.group_codes, made.weights, made.hidden_keys(form(IDS), form(IDS % 3))


DOORS = {
    "exact": exact,
    "faiss": faiss,
    "bank": bank,
    "anchors": lambda form: anchor_codes(torch.from_numpy(VECTORS), form(np.array([0, 2]))),
    "rankings": lambda form: kemeny(form(np.array([[0, 1, 2], [1, 0, 2]]))).order,
    "class bias": lambda form: check_class_bias(form(np.array([0.0, 0.5, 1.0])), Identity()),
    "piecewise": lambda form: Piecewise(form(np.arange(3.0)), form(np.arange(3.0)))(torch.ones(1)),
    "teacher": lambda form: Teacher(torch.zeros(3), form(np.array([0.25, 0.5, 1.0]))).share,
}


@each_form
@pytest.mark.parametrize("door", DOORS)
def test_whatever_takes_arrays_takes_every_form(door, form):
    if (door, form) == ("rankings", "wide"):
        pytest.skip("rankings are int64, as -1 stands for nothing")
    got, wanted = DOORS[door](FORMS[form]), DOORS[door](lambda values: values)
    for one, other in zip(got, wanted, strict=True) if isinstance(got, tuple) else [(got, wanted)]:
        np.testing.assert_allclose(torch.as_tensor(one).detach(), torch.as_tensor(other).detach())
