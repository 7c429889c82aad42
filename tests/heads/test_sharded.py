"""A bank spread over processes gives the prediction and the gradients of one process that holds it whole."""

import itertools

import pytest
import torch
import torch.distributed

from processes import run_processes
from vicinal.blockwise import tally
from vicinal.core import entries
from vicinal.heads import NONA, sharded_prediction, sharded_top_weights
from vicinal.masks import SoftStep, TopK

pytestmark = pytest.mark.sweep(8)

DIM = 3
SIMILARITIES = [entry.name for entry in entries("similarity")]
SIMPLEX = [entry.name for entry in entries("simplex")]
MASKS = {
    "none": lambda: None,
    "s1-all": lambda: SoftStep(DIM, "s1", "global", "all", eps=1e-4),
    "s1-admissible": lambda: SoftStep(DIM, "s1", eps=1e-4),
    "s2-all": lambda: SoftStep(DIM, "s2", "global", "all"),
    "s2-admissible": lambda: SoftStep(DIM, "s2"),
    "topk": lambda: TopK(3),
}
EVERY = list(itertools.product(SIMILARITIES, MASKS, SIMPLEX))
QUICK = [case for case in EVERY if case[0] == "l2" or case[2] == "softmax" or case[1:] in (("none", "sparsemax"),)]


def rows(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def head(similarity, mask, simplex):
    """NONA with parameters drawn at random."""
    made = NONA(similarity, MASKS[mask](), simplex).double()
    with torch.no_grad():
        for number, parameter in enumerate(made.parameters()):
            parameter.copy_(rows(number, *parameter.shape))
    return made


def problem(name):
    """Queries, bank, labels, identities of both sides, and the dtype of a problem."""
    keys, dtype = {}, torch.float64
    if name in ("keys", "single"):  # ids and groups, several targets; the 7th query is a bank row
        q, x, y = rows(0, 7, DIM), rows(1, 30, DIM), rows(2, 30, 2)
        q[6] = x[29]
        keys = {"query_ids": torch.arange(23, 30), "bank_ids": torch.arange(30)}
        keys |= {"query_groups": torch.arange(7) % 3, "bank_groups": torch.arange(30) % 5}
        dtype = torch.float32 if name == "single" else dtype
    elif name == "ties":  # whole numbers: nearest and farthest rows repeat in one shard and in several
        g = torch.Generator().manual_seed(1)
        half = torch.randint(-1, 2, (12, DIM), generator=g).double()
        q, x, y = torch.randint(-2, 3, (6, DIM), generator=g).double(), torch.cat([half, -half]), rows(2, 24)
        keys = {"query_ids": torch.arange(6), "bank_ids": torch.arange(24)}
    else:
        x = torch.full((10, DIM), 0.5, dtype=torch.float64)
        q, y = torch.cat([x[:1], rows(0, 2, DIM)]), rows(1, 10)
    return [value.to(dtype) for value in (q, x, y)], keys, dtype


def direction(like):
    return rows(9, *like.shape).to(like.dtype)


def part_of(rank, processes, count, shares):
    """Rows of the process ``rank``: "uneven", or "empty", where the first has none."""
    first = 0 if shares == "empty" else max(1, count // 5)
    cuts = [0, first, *(first + (count - first) * (i + 1) // (processes - 1) for i in range(processes - 1))]
    return slice(cuts[rank], cuts[rank + 1])


def answers(call, made, inputs, keys):
    """Prediction and all gradients; 0 for what the prediction does not depend on."""
    leaves = [value.clone().requires_grad_() for value in inputs]
    prediction = call(*leaves, **keys)
    asked = [*leaves, *made.parameters()]
    found = torch.autograd.grad((prediction * direction(prediction)).sum(), asked, allow_unused=True)
    return [
        prediction.detach(),
        *(torch.zeros_like(of) if v is None else v for of, v in zip(asked, found, strict=True)),
    ]


def sharded(made, chunk, **settings):
    def call(queries, bank, labels, **keys):
        return sharded_prediction(
            queries, bank, labels, made.similarity, made.mask, made.simplex, chunk_size=chunk, **settings, **keys
        )

    return call


def share(inputs, keys, part):
    (q, x, y), bank_keys = inputs, ("bank_ids", "bank_groups")
    return [q, x[part], y[part]], {name: value[part] if name in bank_keys else value for name, value in keys.items()}


def solve(rank, processes, cases):
    """All cases on this process."""
    results = {}
    for case in cases:
        similarity, mask, simplex, name, shares = case
        inputs, keys, dtype = problem(name)
        made = head(similarity, mask, simplex).to(dtype)
        inputs, keys = share(inputs, keys, part_of(rank, processes, len(inputs[1]), shares))
        found = answers(sharded(made, 4), made, inputs, keys)
        with torch.no_grad():
            found.append(sharded(made, 2)(*inputs, **keys))
        results["/".join(case)] = found
    return results


def check(results, case):
    similarity, mask, simplex, name, _ = case
    inputs, keys, dtype = problem(name)
    made = head(similarity, mask, simplex).to(dtype)
    prediction, of_queries, of_bank, of_labels, *of_parameters = answers(made, made, inputs, keys)
    found = [result["/".join(case)] for result in results]
    shards = [torch.cat([result[number] for result in found]) for number in (2, 3)]
    pairs = list(zip(shards, (of_bank, of_labels), strict=True))
    for one in found:
        whole = [one[0], one[-1], one[1], *one[4:-1]]
        pairs += zip(whole, [prediction, prediction, of_queries, *of_parameters], strict=True)
        assert torch.equal(one[0], found[0][0])
    for got, want in pairs:
        assert got.dtype == want.dtype
        size = max(1.0, float(want.abs().max()))
        torch.testing.assert_close(got, want, rtol=0, atol=(1e-6 if dtype == torch.float64 else 1e-4) * size)


SHARES = {"keys": "uneven", "ties": "empty", "flat": "uneven", "single": "uneven"}


def problems_of(similarity):
    """Ties to the last bit are lost in the division of a cosine or a scaled product, whatever computes it."""
    return [name for name in SHARES if name != "ties" or similarity in ("l2", "l1", "squared_l2", "dot")]


TWO = [(*case, "keys", "uneven") for case in QUICK]
TWO += [(*case, name, SHARES[name]) for case in QUICK if case[0] in ("l2", "dot") for name in ("ties", "flat")]
TWO += [("l2", mask, simplex, "single", "uneven") for mask in MASKS for simplex in SIMPLEX]
THREE = [(*case, name, share) for case in EVERY for name in problems_of(case[0]) for share in ("uneven", "empty")]


def error_of(call):
    """What it says as it refuses."""
    try:
        call()
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def refuse(rank):
    """Errors of this process where the other, or both, were given something wrong; none leaves anybody waiting."""
    made = head("l2", "s2-admissible", "softmax")
    other = head("l2", "s1-admissible", "softmax")
    q, x, y = rows(0, 4, DIM), rows(1, 6, DIM), rows(2, 6)
    first = rank == 0
    keys = {"query_ids": torch.zeros(4, dtype=torch.int64), "bank_ids": torch.zeros(6, dtype=torch.int64)}
    told = [
        error_of(lambda: sharded(made, None)(q + rank, x, y)),
        error_of(lambda: sharded(made if first else other, None)(q, x, y)),
        error_of(lambda: sharded(head("l2", "none", "softmax"), None)(q, x.requires_grad_(requires_grad=first), y)),
        error_of(lambda: sharded(made, None)(q, x.detach(), y if first else y[:3])),
        error_of(lambda: sharded(made, None)(q, x.detach() if first else [], y)),
        error_of(lambda: sharded(made, None)(q, x[:0], y[:0])),
        error_of(lambda: sharded(made, None)(q, x.detach(), y, **keys)),
        error_of(lambda: sharded(made, 0 if first else 3)(q, x.detach(), y)),
        error_of(lambda: sharded(NONA(simplex=lambda scores: scores.softmax(-1)), None)(q, x.detach(), y)),
    ]
    return [list(told_bytes.encode()) for told_bytes in told]


def sent(rank, count):
    """Bytes handed in for 5 queries and ``count`` rows by each mask, forward alone, forward to train, and backward."""
    found = {}
    for mask, simplex in [*itertools.product(MASKS, ["softmax"]), ("none", "sparsemax")]:
        made = head("l2", mask, simplex)
        q, x, y = rows(0, 5, DIM).requires_grad_(), rows(1 + rank, count, DIM), rows(2, count)
        with torch.no_grad(), tally() as alone:
            sharded(made, None)(q, x, y)
        with tally() as train:
            prediction = sharded(made, None)(q, x, y)
            forward = train["bytes"]
            prediction.sum().backward()
        found[f"{mask}/{simplex}"] = [alone["bytes"], forward, train["bytes"] - forward]
    return found


def strongest(rank):
    """Highest weights over both shards, with and without identities."""
    inputs, keys, _ = problem("keys")
    found = {}
    for shares, mask, simplex, k in itertools.product(("uneven", "empty"), MASKS, SIMPLEX, (1, 4, 99)):
        made = head("l2", mask, simplex)
        (q, x, _), own = share(inputs, keys, part_of(rank, 2, 30, shares))
        settings = (made.similarity, made.mask, made.simplex)
        found[f"{shares}/{mask}/{simplex}/{k}"] = list(sharded_top_weights(q, x, k, *settings, chunk_size=4, **own))
    return found


def clustered(rank):
    """Shards of near rows that stand together, so that blocks are skipped: predictions of both."""
    found = {}
    for mask, simplex in (("s1-admissible", "softmax"), ("topk", "softmax"), ("s2-all", "entmax15")):
        x, y, q = clusters()
        part = slice(0, 700) if rank == 0 else slice(700, None)
        made = head("l2", mask, simplex)
        with torch.no_grad():
            found[f"{mask}/{simplex}"] = sharded(made, 50)(q, x[part], y[part])
    return found


def clusters():
    x = (rows(0, 40, 1, DIM) * 20 + 0.1 * rows(1, 40, 50, DIM)).reshape(-1, DIM)
    return x, rows(2, len(x)), x[::97] + 0.05


def work(rank):
    """Everything that two processes are asked, in one start."""
    return {
        "cases": solve(rank, 2, TWO),
        "errors": refuse(rank),
        "sent": [sent(rank, count) for count in (60, 600)],
        "strongest": strongest(rank),
        "clustered": clustered(rank),
    }


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return run_processes(work, 2, tmp_path_factory.mktemp("two"))


@pytest.mark.parametrize("case", TWO, ids="/".join)
def test_two_processes_are_one(two, case):
    check([result["cases"] for result in two], case)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, ["ValueError: queries: expected the same on all processes, got another on process "] * 2),
        (1, ["ValueError: mask: expected the same on all processes, got another on process "] * 2),
        (2, ["ValueError: requires_grad: expected the same on all processes, got another on process "] * 2),
        (3, ["ValueError: bank: expected all processes to accept their part, got an error on process 1",
             "ValueError: labels: expected [6] or [6, T]"]),
        (4, ["ValueError: bank: expected all processes to accept their part, got an error on process 1",
             "TypeError: bank: expected a tensor, got list"]),
        (5, ["ValueError: bank: expected at least one row, got an empty bank"] * 2),
        (6, ["ValueError: bank: expected a row of another id and group for every query, got none for query 0"] * 2),
        (7, ["ValueError: chunk_size: expected a whole number of at least 1, got 0",
             "ValueError: bank: expected all processes to accept their part, got an error on process 0"]),
        (8, ["ValueError: chunk_size: expected None for a mask or simplex map of your own"] * 2),
    ],
)  # fmt: skip
def test_what_is_wrong_on_one_process_is_said_on_both(two, number, said):
    for result, sentence in zip(two, said, strict=True):
        assert bytes(result["errors"][number]).decode().startswith(sentence)


def test_what_is_sent_does_not_grow_with_the_bank(two):
    """The formula of the module, in float64: 8 bytes a number, 5 queries, one target, 3 columns."""
    once = 8 * 11 + 8 * (DIM + 1)
    range_of = {"s1-all": 2, "s2-all": 2, "s1-admissible": 2, "s2-admissible": 2, "none": 1, "topk": 3}
    for result in two:
        few, many = result["sent"]
        for mask, ends in range_of.items():
            counts = 0 if mask in ("none", "topk") else 16
            numbers = 0 if mask in ("none", "topk") else 8 * (2 + (3 if mask.startswith("s1") else 2))
            want = [ends * 8 + 16, ends * 8 + 16 + counts, 8 + 8 * DIM + numbers]
            assert many[f"{mask}/softmax"] == few[f"{mask}/softmax"]
            assert many[f"{mask}/softmax"] == [once + 5 * want[0], once + 5 * want[1], 5 * want[2]]
        passes = [(found["none/sparsemax"][0] - once) / 5 - 8 - 16 for found in (few, many)]
        assert all(sent % 16 == 0 and sent / 16 < 20 for sent in passes)


def test_highest_weights_are_those_of_the_whole_bank(two):
    inputs, keys, _ = problem("keys")
    for name, found in two[0]["strongest"].items():
        _, mask, simplex, k = name.split("/")
        made = head("l2", mask, simplex)
        weights = made.weights(*inputs[:2], **keys).detach()
        values, positions = found
        torch.testing.assert_close(values, weights.topk(min(int(k), 30)).values, rtol=0, atol=1e-9)
        own = weights.gather(1, positions.clamp(min=0)) * (positions >= 0)
        torch.testing.assert_close(own, values, rtol=0, atol=1e-9)
        for one, other in zip(found, two[1]["strongest"][name], strict=True):
            assert torch.equal(one, other)


def test_blocks_that_cannot_matter_may_be_skipped(two):
    x, y, q = clusters()
    for name in two[0]["clustered"]:
        made = head("l2", *name.split("/"))
        with torch.no_grad():
            want = made(q, x, y)
        for result in two:
            torch.testing.assert_close(result["clustered"][name], want, rtol=0, atol=1e-6)


def test_one_process_is_the_streamed_head():
    inputs, keys, _ = problem("keys")
    made = head("l2", "s2-admissible", "softmax")
    torch.testing.assert_close(sharded(made, 4)(*inputs, **keys), made(*inputs, **keys))
    assert sharded(made, 4)(inputs[0][:0], *inputs[1:]).shape == (0, 2)


@pytest.mark.slow
def test_three_processes_are_one(tmp_path):
    results = run_processes(solve, 3, tmp_path, 3, THREE)
    for case in THREE:
        check(results, case)
