"""Orders again, in numpy, by loops."""

from itertools import combinations, permutations

import numpy as np


def order_log_prob(scores, order):
    """Logarithm of the probability that softmax draws this order, one item after the other."""
    left, value = list(range(len(scores))), 0.0
    for item in order:
        value += scores[item] - np.log(sum(np.exp(scores[j]) for j in left))
        left.remove(item)
    return value


def kendall(order, rankings):
    """Pairs that rankings have the other way, of those they have both of."""
    place = {item: i for i, item in enumerate(order)}
    ranked = [[item for item in ranking if item >= 0] for ranking in rankings]
    return sum(place[a] > place[b] for ranking in ranked for a, b in combinations(ranking, 2))


def kemeny(rankings, count):
    """The first best order of all, its distance, and how many there are."""
    distances = {order: kendall(order, rankings) for order in permutations(range(count))}
    least = min(distances.values())
    best = [order for order, distance in distances.items() if distance == least]
    return best[0], least, len(best)
