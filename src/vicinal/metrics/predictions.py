"""Scores of predictions: which way of each is better, and which one methods are compared by."""

HIGHER_IS_BETTER: dict[str, bool] = {"mse": False, "mae": False, "r2": True, "accuracy": True, "log_loss": False}
"""Every score by name, and its direction."""

PRIMARY: dict[str, str] = {"regression": "mse", "classification": "accuracy"}
"""The score that methods are compared by, for each task."""
