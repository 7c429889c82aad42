"""398 cars of 1970 to 1982 and how far each goes on a gallon: the data of the demo and of the first example."""

from importlib.resources import files

import pandas as pd


def cars_table() -> pd.DataFrame:
    """Car, miles per gallon, cylinders, displacement, horsepower, weight, acceleration, year and origin of 398 cars.

    A car is named by its model and year, each once; six numbers are missing. Quinlan (1993), Auto MPG, UCI Machine
    Learning Repository, doi:10.24432/C5859H (CC BY 4.0), with its missing numbers left out.

    >>> cars_table()[["car", "mpg", "weight"]].iloc[0].to_dict()
    {'car': 'chevrolet chevelle malibu 1970', 'mpg': 18.0, 'weight': 3504}
    """
    with files("vicinal.data").joinpath("cars.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)
