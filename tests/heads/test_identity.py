"""Self is known by id and group: no position, no equality of vectors, and no influence of one's own label."""

import pytest
import torch
from torch._subclasses import FakeTensorMode

from vicinal.core import entries
from vicinal.core.identity import IdentityWarning
from vicinal.heads import NONA, Dense, Ensemble, admissible
from vicinal.heads.admissible import shares_rows
from vicinal.masks import SoftStep, TopK

DIM = 3
HEADS = {
    "plain": lambda: NONA(),
    "cosine": lambda: NONA("cosine"),
    "s1": lambda: NONA(mask=SoftStep(DIM, "s1")),
    "s2": lambda: NONA(mask=SoftStep(DIM, "s2")),
    "s1-all": lambda: NONA(mask=SoftStep(DIM, "s1", extent="all")),
    "s2-all": lambda: NONA("scaled_dot", SoftStep(DIM, "s2", extent="all")),
    "topk": lambda: NONA(mask=TopK(2)),
    "sparsemax": lambda: NONA(simplex="sparsemax"),
    "entmax15": lambda: NONA(mask=SoftStep(DIM), simplex="entmax15"),
}
each_head = pytest.mark.parametrize("name", HEADS)
each_over_admissible = pytest.mark.parametrize("name", [name for name in HEADS if not name.endswith("-all")])


def made(name):
    torch.manual_seed(0)  # of the mask's projection
    return HEADS[name]().double()


def data(seed=0, n=8):
    """Rows, labels and ids without order."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(n, DIM, generator=generator, dtype=torch.float64)
    labels = torch.randn(n, generator=generator, dtype=torch.float64)
    return rows, labels, torch.randperm(n, generator=generator) * 7 - 11


def test_the_simplex_maps_are_all_tried():
    assert {HEADS[name]().simplex for name in HEADS} == {entry.factory for entry in entries("simplex")}


@each_head
@pytest.mark.parametrize("new", [1e6, -3.0, 0.0])
def test_ones_own_label_has_exactly_no_influence(name, new):
    rows, labels, ids = data()
    head = made(name)
    before = head(rows, rows, labels, query_ids=ids, bank_ids=ids)
    moved = 0
    for i in range(len(rows)):
        changed = labels.clone()
        changed[i] = new
        after = head(rows, rows, changed, query_ids=ids, bank_ids=ids)
        assert after[i] == before[i]  # to the last bit
        moved += int((after != before).sum())
    assert moved >= len(rows)  # while labels do matter to others


@each_head
def test_ones_own_label_has_gradient_exactly_0(name):
    rows, labels, ids = data()
    head = made(name)
    jacobian = torch.autograd.functional.jacobian(lambda y: head(rows, rows, y, query_ids=ids, bank_ids=ids), labels)
    assert (jacobian.diagonal() == 0).all()
    torch.testing.assert_close(jacobian.sum(dim=-1), torch.ones(len(rows), dtype=torch.float64))


@each_head
def test_labels_of_ones_group_have_exactly_no_influence(name):
    rows, labels, _ = data()
    groups = torch.tensor([3, 3, 5, 5, 5, 1, 0, 2])
    head = made(name)
    keys = {"query_groups": groups, "bank_groups": groups}
    before = head(rows, rows, labels, **keys)
    changed = torch.where(groups == 5, 1e6, labels)
    after = head(rows, rows, changed, **keys)
    assert torch.equal(after[groups == 5], before[groups == 5])
    assert (head.weights(rows, rows, **keys)[groups[:, None] == groups] == 0).all()


@each_head
def test_identity_counts_and_not_position(name):
    """A bank in another order, with its ids, gives each query the same prediction."""
    rows, labels, ids = data()
    head = made(name)
    want = head(rows, rows, labels, query_ids=ids, bank_ids=ids)
    order = torch.tensor([5, 2, 7, 0, 3, 6, 1, 4])
    got = head(rows, rows[order], labels[order], query_ids=ids, bank_ids=ids[order])
    torch.testing.assert_close(got, want)
    wrong = head(rows, rows[order], labels[order], query_ids=ids, bank_ids=ids)
    assert (wrong - want).abs().max() > 1e-3


@each_head
def test_identity_counts_and_not_equality_of_vectors(name):
    """An equal row of another id is a neighbor like any other; self moved elsewhere stays closed."""
    rows, _, ids = data()
    rows[3] = rows[0]
    weights = made(name).weights(rows, rows, query_ids=ids, bank_ids=ids)
    assert weights[0, 3] > 0
    assert weights[0, 0] == 0
    away = made(name).weights(rows + 5.0, rows, query_ids=ids, bank_ids=ids)
    assert (away.diagonal() == 0).all()


@each_head
def test_without_ids_a_row_sees_itself(name):
    rows, _, _ = data()
    weights = made(name).weights(rows.clone(), rows)
    assert (weights.diagonal() > 0).any()


@each_over_admissible
def test_rows_that_are_not_admissible_may_be_anything(name):
    """Padding the bank with closed rows, near or far, changes nothing where the range is of admissible rows."""
    rows, labels, ids = data()
    head = made(name)
    groups = torch.arange(len(rows))
    want = head(rows, rows, labels, query_ids=ids, bank_ids=ids, query_groups=groups, bank_groups=groups)
    query = 2
    far = torch.tensor([[50.0, -80.0, 20.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    padding = torch.cat([far, rows[query : query + 1]])
    got = head(
        rows[query : query + 1],
        torch.cat([rows, padding]),
        torch.cat([labels, torch.full((3,), 99.0, dtype=torch.float64)]),
        query_ids=ids[query : query + 1],
        bank_ids=torch.cat([ids, torch.tensor([1001, 1002, 1003])]),
        query_groups=groups[query : query + 1],
        bank_groups=torch.cat([groups, groups[query].expand(3)]),
    )
    torch.testing.assert_close(got[0], want[query])


@each_over_admissible
def test_a_forgotten_row_is_as_if_it_had_never_been(name):
    rows, labels, _ = data()
    head = made(name)
    queries = data(1, 5)[0]
    kept = torch.arange(len(rows)) != 4
    never = head(queries, rows[kept], labels[kept])
    closed = head(
        queries,
        rows,
        labels,
        query_groups=torch.zeros(5, dtype=torch.int64),
        bank_groups=torch.where(kept, torch.arange(1, 9), 0),
    )
    torch.testing.assert_close(closed, never)


@pytest.mark.parametrize("name", ["plain", "cosine", "s1", "s2", "s1-all", "s2-all"])
def test_duplicates_in_one_group_do_not_leak(name):
    """Each row twice under two ids: with groups as if single, without them the twin gives the label away."""
    rows, labels, ids = data()
    head = made(name)
    want = head(rows, rows, labels, query_ids=ids, bank_ids=ids)
    groups, new_ids = torch.arange(8).repeat(2), torch.arange(16)
    keys = {"query_ids": new_ids, "bank_ids": new_ids}
    twice = torch.cat([rows, rows]), torch.cat([rows, rows]), torch.cat([labels, labels])
    leaking = head(*twice, **keys)
    grouped = head(*twice, **keys, query_groups=groups, bank_groups=groups)
    torch.testing.assert_close(grouped, want.repeat(2))
    assert (leaking[:8] - labels).square().mean() < (want - labels).square().mean() - 0.05


def test_admissible_is_none_without_identity_and_the_conjunction_with_both():
    ids, groups = torch.tensor([1, 2, 3]), torch.tensor([9, 9, 4])
    assert admissible((3, 3)) is None
    by_id = admissible((3, 3), ids, ids)
    by_group = admissible((3, 3), query_groups=groups, bank_groups=groups)
    assert torch.equal(by_id, ~torch.eye(3, dtype=torch.bool))
    assert by_group.tolist() == [[False, False, True], [False, False, True], [True, True, False]]
    assert torch.equal(admissible((3, 3), ids, ids, groups, groups), by_id & by_group)


@pytest.mark.parametrize(
    ("keys", "error", "sentence"),
    [
        (
            {"query_ids": torch.arange(2)},
            ValueError,
            "^bank_ids: expected ids for both queries and bank or for neither",
        ),
        ({"bank_ids": torch.arange(4)}, ValueError, "^query_ids: expected ids for both"),
        ({"query_groups": torch.arange(2)}, ValueError, "^bank_groups: expected groups for both"),
        (
            {"query_ids": torch.arange(3), "bank_ids": torch.arange(4)},
            ValueError,
            r"^query_ids: expected shape \(2,\), got \(3,\)$",
        ),
        (
            {"query_ids": torch.arange(2), "bank_ids": torch.zeros(4, 1).int()},
            ValueError,
            r"^bank_ids: expected shape \(4,\), got \(4, 1\)$",
        ),
        (
            {"query_groups": torch.zeros(2), "bank_groups": torch.zeros(4)},
            TypeError,
            "^query_groups: expected integers, got torch.float32$",
        ),
        (
            {"query_ids": [0, 1], "bank_ids": torch.arange(4)},
            TypeError,
            "^query_ids: expected a tensor, got list$",
        ),
    ],
)
def test_ids_and_groups_that_do_not_fit_are_refused(keys, error, sentence):
    with pytest.raises(error, match=sentence):
        NONA()(torch.zeros(2, 3), torch.zeros(4, 3), torch.zeros(4), **keys)


def test_a_query_without_neighbors_is_named():
    groups = torch.tensor([1, 2])
    with pytest.raises(ValueError, match=r"^bank: expected a row of another id and group .* none for query 1; give it"):
        NONA()(
            torch.zeros(2, 3),
            torch.zeros(4, 3),
            torch.zeros(4),
            query_groups=groups,
            bank_groups=torch.full((4,), 2),
        )


class TwoMembers(Ensemble):
    """Two members, each NONA."""

    def __init__(self):
        super().__init__([NONA(), NONA()])


OWN_BANK = {
    "forward": lambda head, rows, bank, **keys: head(rows, bank, torch.ones(len(bank)), **keys),
    "weights": lambda head, rows, bank, **keys: head.weights(rows, bank, **keys),
    "top_weights": lambda head, rows, bank, **keys: head.top_weights(rows, bank, 2, **keys),
}
SHARING = {
    "the same tensor": lambda rows: (rows, rows),
    "a view of all": lambda rows: (rows.view(len(rows), -1), rows),
    "detached": lambda rows: (rows.detach(), rows),
    "the first half": lambda rows: (rows[:4], rows),
    "the last row": lambda rows: (rows, rows[-1:]),
    "every other row": lambda rows: (rows[::2], rows),
    "overlapping halves": lambda rows: (rows[:5], rows[4:]),
    "threes and twos": lambda rows: (rows[::3], rows[::2]),
    "an expanded row": lambda rows: (rows[3:4].expand(6, -1), rows),
    "shared with numpy": lambda rows: (torch.from_numpy(rows.numpy()), rows),
}
APART = {
    "a copy": lambda rows: (rows.clone(), rows),
    "two halves": lambda rows: (rows[:4], rows[4:]),
    "even and odd rows": lambda rows: (rows[::2], rows[1::2]),
    "other columns": lambda rows: (rows[:, :2], rows[:, 2:]),
    "another dtype": lambda rows: (rows.double(), rows),
    "no queries": lambda rows: (rows[:0], rows),
    "of every other row the rest": lambda rows: (rows[1::4], rows[::2]),
}
KINDS = {"nona": NONA, "streamed": lambda: NONA(chunk_size=3), "members": TwoMembers}


@pytest.mark.parametrize("call", OWN_BANK)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sharing", SHARING)
def test_a_batch_that_is_its_own_bank_without_ids_is_warned_of_once(sharing, kind, call):
    queries, bank = SHARING[sharing](torch.randn(8, 4))
    head = KINDS[kind]()
    sentence = r"^query_ids: expected ids where queries are rows of their own bank, got none, .*; give query_ids="
    with pytest.warns(IdentityWarning, match=sentence) as seen:
        OWN_BANK[call](head, queries, bank)
    assert len(seen) == 1
    assert seen[0].filename == __file__
    for name in (call, "weights"):  # warnings are errors in these tests
        OWN_BANK[name](head, queries, bank)


@pytest.mark.parametrize("call", OWN_BANK)
@pytest.mark.parametrize("kind", KINDS)
def test_other_rows_or_identities_are_not_warned_of(kind, call):
    """Warnings are errors in these tests."""
    rows, ids = torch.randn(8, 4), torch.arange(8)
    for apart in APART.values():
        queries, bank = apart(rows)
        if queries.shape[1] % 2 == 0:
            OWN_BANK[call](KINDS[kind](), queries, bank)
    for sharing in SHARING.values():
        queries, bank = sharing(rows)
        for name in ("ids", "groups"):
            keys = {f"query_{name}": ids[: len(queries)], f"bank_{name}": ids[: len(bank)] + len(rows)}
            OWN_BANK[call](KINDS[kind](), queries, bank, **keys)


def test_rows_without_memory_are_not_warned_of():
    """Tensors that torch traces with; a compiled head does not ask."""
    with FakeTensorMode() as mode:
        rows = mode.from_tensor(torch.randn(8, 4))
        assert not shares_rows(rows[:2], rows)
    meta = torch.zeros(8, 4, device="meta")
    assert not shares_rows(meta[:2], meta)
    traced = torch.fx.experimental.proxy_tensor.make_fx(lambda x: shares_rows(x[:2], x) or x, tracing_mode="fake")
    assert traced(torch.randn(8, 4)) is not None
    compiled = torch.compile(NONA(), backend="eager", fullgraph=True)
    rows, labels = torch.randn(8, 4), torch.randn(8)
    torch.testing.assert_close(compiled(rows, rows, labels), NONA()(rows.clone(), rows, labels))


def test_the_dense_head_has_no_bank_to_warn_of():
    rows = torch.randn(8, 4)
    Ensemble([Dense(2), Dense(2)])(rows, rows, torch.ones(8))
