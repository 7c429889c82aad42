"""The data of the demo."""

from vicinal.data import cars_table


def test_cars():
    table = cars_table()
    assert table.shape == (398, 9)
    assert table["mpg"].between(9, 47).all()
    assert table["horsepower"].isna().sum() == 6
    assert sorted(table["origin"].unique()) == ["Europe", "Japan", "USA"]
    assert table["car"].is_unique
