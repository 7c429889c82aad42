"""Record linkage: columns as codes, comparison levels, match weights, competition of pairs, blocking."""
