"""Two sets of log prices that the studies of losses read, and their splits.

Houses: bedrooms, bathrooms, area, zip code. Books: title, author and synopsis as 64 directions of word counts; genre,
edition, stars, reviews.
"""

import re

import numpy as np
import pandas as pd
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GroupShuffleSplit


def one_hot(train, cells):
    """Columns for the categories with at least five training rows."""
    counts = train.value_counts()
    return np.stack([(cells == name).to_numpy(float) for name in counts.index[counts >= 5]], 1)


def houses(folder):
    """Table, log price, groups of rows that stay together, and features given the training rows."""
    table = pd.read_csv(folder / "houses" / "houses.csv", dtype={"zipcode": str})
    numbers = np.column_stack([table["bedrooms"], table["bathrooms"], np.log(table["area"])])

    def features(train):
        return np.hstack([numbers, one_hot(table["zipcode"].iloc[train], table["zipcode"])])

    return np.log(table["price"].to_numpy(float)), table["dup_group"].to_numpy(), features


def books(folder):
    """As :func:`houses`; editions of one synopsis stay together."""
    table = pd.read_parquet(folder / "text" / "book_prices.parquet")
    text = (table["title"] + " " + table["author"] + " " + table["synopsis"]).str.lower()
    cover = table["edition"].map(lambda cell: re.split("[,\u2013]", cell)[0])
    year = table["edition"].str.extract(r"(\d{4})\s*$")[0].astype(float).fillna(2010.0)
    numbers = np.column_stack([table["stars"], np.log1p(table["n_reviews"]), year.clip(1980)])

    def features(train):
        words = TfidfVectorizer(min_df=5, max_features=8000, sublinear_tf=True, stop_words="english")
        counts = words.fit(text.iloc[train]).transform(text)
        directions = TruncatedSVD(64, n_iter=3, random_state=0).fit(counts[train]).transform(counts)
        kinds = [one_hot(column.iloc[train], column) for column in (table["category"], cover)]
        return np.hstack([directions, numbers, *kinds])

    return np.log(table["price"].to_numpy(float)), table["synopsis"].factorize()[0], features


def split(n, groups, seed):
    """Positions: 60 % train, 20 % validation, 20 % test; groups stay together."""
    rest, test = next(GroupShuffleSplit(1, test_size=0.2, random_state=seed).split(np.arange(n), groups=groups))
    halves = GroupShuffleSplit(1, test_size=0.25, random_state=seed).split(rest, groups=groups[rest])
    train, validation = next(halves)
    return rest[train], rest[validation], test
