"""Recommendations, their reasons as exact sums, changes without training, and the saved form."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

from vicinal.estimators import Recommender
from vicinal.estimators.column_kernel import ColumnKernel
from vicinal.factorization import fold_in, fold_in_shares


def _tables(seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Two tastes: users of the first click items of genre a, and the others of b; i29 and i30 have no clicks."""
    draw = np.random.default_rng(seed)
    items = pd.DataFrame({"item": [f"i{n}" for n in range(1, 31)], "genre": ["a", "b"] * 15, "year": range(1990, 2020)})
    rows = [
        {"user": f"u {user}", "item": f"i{item}"}
        for user in range(1, 41)
        for item in draw.choice(np.arange(user % 2 + 1, 29, 2), 6, replace=False)
    ]
    users = pd.DataFrame({"user": [f"u {n}" for n in range(1, 44)], "taste": ["odd", "even"] * 21 + ["odd"]})
    return pd.DataFrame(rows), items, users


@pytest.fixture(scope="module")
def model() -> Recommender:
    return Recommender(rank=4, sweeps=5).fit(*_tables())


def test_folded_rows_solve_their_normal_equations_and_shares_sum_to_scores() -> None:
    draw = np.random.default_rng(0)
    columns = torch.from_numpy(draw.normal(size=(7, 3)))
    table = sparse.random_array((4, 7), density=0.4, rng=draw, format="csr")
    table.data += 0.5
    rows = fold_in(table, columns, confidence=3.0, ridge=0.7)
    v = columns.numpy()
    for row, values in enumerate(table.toarray()):
        weight = np.where(values > 0, 3.0 * values, 1.0)
        system = (v.T * weight) @ v + 0.7 * np.eye(3)
        expected = np.linalg.solve(system, (v.T * weight) @ (values > 0))
        assert rows[row].numpy() == pytest.approx(expected, abs=1e-10)
        clicked = np.flatnonzero(values)
        shares = fold_in_shares(
            torch.from_numpy(values[clicked]), torch.from_numpy(clicked), columns, columns, confidence=3.0, ridge=0.7
        )
        one = np.linalg.solve(system, v[clicked[0]]) @ v[2] * 3.0 * values[clicked[0]] if len(clicked) else 0.0
        assert len(clicked) == 0 or shares[2, 0].item() == pytest.approx(one, abs=1e-10)
        assert shares.sum(1).numpy() == pytest.approx(v @ expected, abs=1e-10)
    assert not fold_in(sparse.csr_array((2, 7)), columns, confidence=1.0).any()
    with pytest.raises(ValueError, match="interactions: expected 7 columns"):
        fold_in(sparse.csr_array((2, 3)), columns, confidence=1.0)


def test_kernel_weights_are_those_of_the_convex_program() -> None:
    frame = pd.DataFrame({"x": [0.0, 1.0, 2.0, 5.0], "noise": [1.0, 0.0, 0.0, 1.0]})
    vectors = np.array([[0.0], [1.0], [2.0], [5.0]])
    kernel = ColumnKernel(frame).fit(vectors)
    assert kernel.columns == {"x": "number", "noise": "number"}
    kernel.rates, kernel.noise = {"x": 1.0, "noise": 0.0}, 0.3
    near = kernel.near(pd.DataFrame({"x": [1.4], "noise": [0.0]}), 3)
    scaled = np.append(frame["x"], 1.4) / frame["x"].std(ddof=0)
    gaps = np.square(scaled[:, None] - scaled)
    whole = np.exp(-gaps / (2 * np.var(scaled[:4])))
    assert sorted(near.places[0]) == [0, 1, 2]
    some = near.places[0]
    system, right = whole[np.ix_(some, some)] + 0.3 * np.eye(3), whole[4, some]
    ones = np.ones(3)
    slope = (ones @ np.linalg.solve(system, right) - 1) / (ones @ np.linalg.solve(system, ones))
    expected = np.linalg.solve(system, right - slope)
    assert (expected > 0).all()  # so the bound at 0 does not matter
    assert near.weights[0] == pytest.approx(expected, abs=1e-9)
    assert near.mean(vectors)[0, 0] == pytest.approx(expected @ vectors[some, 0])


def test_rates_are_those_that_predict_rows_left_out() -> None:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"x": draw.normal(size=80), "noise": draw.normal(size=80)})
    kernel = ColumnKernel(frame).fit(np.sin(2 * frame[["x"]].to_numpy()))
    assert kernel.rates["noise"] == 0 < kernel.rates["x"]
    assert kernel.explained > 0.9
    assert kernel.sentence() == "x; 1 column without use"


def test_tastes_are_recommended_and_clicked_items_are_not(model: Recommender) -> None:
    clicks, items, _ = _tables()
    result = model.recommend(k=4)
    both = result.merge(items, on="item")
    taste = np.where(both["user"].str[2:].astype(int) % 2 == 1, "b", "a")
    clicked = both["user"].isin(clicks["user"])
    assert (both["genre"] == taste)[clicked].mean() > 0.95
    assert result.merge(clicks, on=["user", "item"]).empty
    assert result.groupby("user", sort=False)["score"].apply(lambda column: column.is_monotonic_decreasing).all()
    new = model.recommend(["u 1", "u 2"], 1, among="new")
    assert new["item"].tolist() == ["i30", "i29"]
    assert set(new["by"]) == {"new item"}
    assert not set(model.recommend(k=30, among="known")["item"]) & {"i29", "i30"}


def test_reasons_sum_to_the_score(model: Recommender) -> None:
    for item in ("i28", "i30"):
        reasons = model.explain("u 1", item, people=True)
        assert reasons.clicks["share"].sum() == pytest.approx(reasons.score, abs=1e-9)
        assert len(reasons.clicks) == 6
    assert reasons.by == "new item"
    assert reasons.neighbors["share"].sum() == pytest.approx(reasons.score, abs=1e-9)
    assert reasons.neighbors["weight"].sum() == pytest.approx(1)
    assert (reasons.neighbors["weight"] > 0).all()
    people = model.explain("u 1", "i28", people=True).people
    assert people["share"].sum() == pytest.approx(model.explain("u 1", "i28").score, abs=1e-9)
    assert people["user"].iloc[-1] is None
    assert all(int(name[2:]) % 2 == 1 for name in people["user"].iloc[:-1])  # who clicked i28


def test_users_without_clicks_are_served_by_their_columns_else_by_popularity(model: Recommender) -> None:
    alike = model.recommend(["u 41", "u 42"], 3)
    assert set(alike["by"]) == {"users alike"}
    genres = dict(zip(*(_tables()[1][name] for name in ("item", "genre")), strict=True))
    assert [genres[item] for item in alike["item"]] == ["b"] * 3 + ["a"] * 3
    reasons = model.explain("u 41", alike["item"][0])
    assert reasons.neighbors["share"].sum() == pytest.approx(reasons.score, abs=1e-9)
    assert reasons.score == pytest.approx(alike["score"][0])
    unknown = model.recommend(["nobody"], 2)
    counts = _tables()[0]["item"].value_counts()
    assert unknown["by"].tolist() == ["popularity"] * 2
    assert unknown["score"].tolist() == pytest.approx((counts.iloc[:2] / 40).tolist())
    assert model.explain("nobody", unknown["item"][0]).by == "popularity"


def test_a_saved_column_of_sets_is_read_again(tmp_path: Path) -> None:
    clicks, items, _ = _tables()
    model = Recommender(rank=4, sweeps=5).fit(clicks, items.assign(genre=[[one, "all"] for one in items["genre"]]))
    assert model.kernels_["item"].columns["genre"] == "set"
    model.save(tmp_path / "m")
    later = pd.DataFrame({"item": ["i77"], "genre": [["a"]], "year": [2001]})
    one, other = (each.add(items=later).explain("u 2", "i77") for each in (Recommender.load(tmp_path / "m"), model))
    assert one.score == pytest.approx(other.score)


def test_folders_give_the_same_and_refuse_what_was_edited(model: Recommender, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    again = Recommender.load(tmp_path / "m")
    pd.testing.assert_frame_equal(again.recommend(k=3), model.recommend(k=3))
    later = pd.DataFrame({"item": ["i77"], "genre": ["a"], "year": [2001]})
    one, other = (each.add(items=later).explain("u 2", "i77") for each in (again, Recommender.load(tmp_path / "m")))
    assert one.score == other.score
    path = tmp_path / "m" / "clicks.parquet"
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ValueError, match=r"clicks\.parquet: expected the checksum"):
        Recommender.load(tmp_path / "m")


def test_what_is_added_counts_at_once_and_what_is_forgotten_is_gone(model: Recommender, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    changed = Recommender.load(tmp_path / "m")
    changed.add(pd.DataFrame({"user": ["fresh", "u 1"], "item": ["i28", "brand new"]}))
    assert changed.recommend(["fresh"], 1)["by"].tolist() == ["clicks"]
    assert changed.explain("fresh", "i26").clicks["item"].tolist() == ["i28"]
    assert "brand new" in changed.recommend(["u 3"], 40)["item"].tolist()
    before = model.recommend(["u 2"], 5)
    changed = Recommender.load(tmp_path / "m").forget(["u 1", "u 41"])
    assert "u 1" not in changed.users_.ids.tolist()
    pd.testing.assert_frame_equal(changed.recommend(["u 2"], 5), before)
    changed.save(tmp_path / "m")
    assert changed.recommend(["u 1"], 1)["by"].tolist() == ["popularity"]
    for path in (tmp_path / "m").rglob("*.parquet"):
        assert "u 1" not in pd.read_parquet(path).to_numpy().ravel().tolist()
    with pytest.raises(ValueError, match="id: expected that of a user of the model, got 'u 1'"):
        Recommender.load(tmp_path / "m").forget(["u 1"])


def test_numbers_of_plays_are_summed_and_their_unit_does_not_matter() -> None:
    clicks = _tables()[0]
    plays = clicks.assign(n=np.arange(len(clicks)) % 3)
    one = Recommender(value="n", rank=3, confidence=5.0, ridge=1.0).fit(pd.concat([plays, plays]))
    assert one.notes_[0] == "160 rows of value 0 in n left out"
    other = Recommender(value="n", rank=3, confidence=5.0, ridge=1.0).fit(plays.assign(n=10 * plays["n"]))
    assert one.clicks_.sum() == 2 * plays["n"].sum()
    assert one.vectors_.numpy() == pytest.approx(other.vectors_.numpy(), abs=1e-4)


@pytest.mark.parametrize(
    ("clicks", "settings", "sentence"),
    [
        (pd.DataFrame({"user": [], "item": []}), {}, "clicks: expected a table of at least one click"),
        (
            pd.DataFrame({"user": [1, 1], "item": [1, 2]}),
            {},
            "clicks: expected at least two users to learn from, got 1",
        ),
        (
            pd.DataFrame({"user": [1, 2], "item": [1, 1]}),
            {},
            "clicks: expected at least two items to learn from, got 1",
        ),
        (pd.DataFrame({"user": [], "item": []}), {}, "clicks: expected a table of at least one click, got none"),
        (pd.DataFrame({"user": [1, 2], "item": [1, 2]}), {"item": "user"}, "item: expected another column than that"),
        (pd.DataFrame({"user": [1, 2], "thing": [1, 2]}), {}, "item: expected one of the columns 'user', 'thing'"),
        (pd.DataFrame({"user": [1, None], "item": [1, 2]}), {}, "user: expected"),
        (
            pd.DataFrame({"user": [1, 2], "item": [1, 2], "n": [-1, 2]}),
            {"value": "n"},
            "expected a weight of at least 0",
        ),
    ],
)
def test_bad_clicks_are_refused(clicks: pd.DataFrame, settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Recommender(**settings).fit(clicks)


def test_clicks_of_items_without_columns_are_counted(model: Recommender) -> None:
    clicks, items, _ = _tables()
    few = Recommender(rank=2, confidence=5.0, ridge=1.0, sweeps=2).fit(clicks, items[items["item"] != "i1"])
    count = int((clicks["item"] == "i1").sum())
    assert any(
        f"1 item of the clicks without a row in the table of items, {count} clicks in all" in n for n in few.notes_
    )
    with pytest.raises(ValueError, match="id: expected that of an item of the model, got 'i3o'"):
        model.explain("u 1", "i3o")
    with pytest.raises(ValueError, match="users: expected none, as the model was fitted without"):
        few.add(users=pd.DataFrame({"user": [1], "taste": ["odd"]}))
    with pytest.raises(ValueError, match="items: expected the columns of the fit, got a table without 'genre'"):
        few.add(items=pd.DataFrame({"item": ["x"], "year": [3]}))


def test_ids_of_any_spelling() -> None:
    clicks = pd.DataFrame({"user": ["Zoe\u0308", "Zo\u00eb", "b c"], "item": ["x y", "z", "x y"]})
    model = Recommender(rank=1).fit(clicks)
    assert len(model.users_) == 2
    assert model.recommend(["Zo\u00eb", "b  c"], 5)["item"].tolist() == ["z"]


def test_columns_that_cannot_be_compared_are_named() -> None:
    clicks, items, _ = _tables()
    model = Recommender(rank=2, confidence=5.0, ridge=1.0, sweeps=2).fit(clicks, items[["item"]].assign(x=1))
    assert model.notes_[-1] == "columns of items: none that can be compared"
    assert not set(model.recommend(k=30)["item"]) & {"i29", "i30"}
    assert model.recommend(among="new").empty


def test_an_addition_that_fails_changes_nothing(model: Recommender) -> None:
    before = model.recommend(k=2)
    with pytest.raises(ValueError, match="year"):
        model.add(items=pd.DataFrame({"item": ["odd", *"vwxyz"], "genre": ["a"] * 6, "year": ["last"] * 6}))
    assert "odd" not in model.items_.ids.tolist()
    pd.testing.assert_frame_equal(model.recommend(k=2), before)
