"""398 cars of 1970 to 1982 and how far each goes on a gallon: the data of the demo and of the first example."""

from importlib.resources import files

import pandas as pd


def cars_table() -> pd.DataFrame:
    """Name, miles per gallon, cylinders, displacement, horsepower, weight, acceleration, year and origin of 398 cars.

    A name of some words, numbers of which six are missing, and a category. Quinlan (1993), Auto MPG, UCI Machine
    Learning Repository, doi:10.24432/C5859H (CC BY 4.0), with its missing numbers left out.

    >>> cars_table()[["name", "mpg", "year"]].iloc[0].to_dict()
    {'name': 'chevrolet chevelle malibu', 'mpg': 18.0, 'year': 1970}
    """
    with files("vicinal.data").joinpath("cars.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)
