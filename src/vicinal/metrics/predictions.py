"""Scores of predictions: which way of each is better, and which one methods are compared by."""

HIGHER_IS_BETTER: dict[str, bool] = {
    "mse": False,
    "mae": False,
    "r2": True,
    "accuracy": True,
    "log_loss": False,
    "micro_f1": True,
    "macro_f1": True,
    "subset_accuracy": True,
    "hamming_loss": False,
    "average_precision": True,
    "ndcg@10": True,
}
"""Every score by name, and its direction."""

PRIMARY: dict[str, str] = {"regression": "mse", "classification": "accuracy"}
"""The score that methods are compared by, for each task."""

PRIMARY_OF_SEVERAL = "micro_f1"
"""The same where rows may have several classes."""

RANKED = "ndcg@10"
"""The same where rows are ranked within queries."""
