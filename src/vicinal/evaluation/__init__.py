"""Honest figures: scores, baselines, tests, and the resumable comparison of methods over seeded splits."""

from vicinal.evaluation.audit import (
    Drift,
    Period,
    Slice,
    average_precision,
    class_suspicion,
    coverage_curve,
    error_by_period,
    error_slices,
    find_drift,
    left_out_predictions,
    suspicion,
    target_slices,
)
from vicinal.evaluation.baselines import Baseline, knn_baseline, knn_grid, mean_baseline, ridge_baseline
from vicinal.evaluation.comparison import Significance, Summary, answers, significance, summarize
from vicinal.evaluation.fairness import GroupGap, GroupPart, group_gap
from vicinal.evaluation.representers import l1_representers, nuclear_representers
from vicinal.evaluation.scores import classification_scores, regression_scores, scores_by_class, several_scores
from vicinal.evaluation.statistics import (
    Outcome,
    average_ranks,
    bootstrap_interval,
    critical_difference,
    friedman,
    nemenyi,
    paired_t,
    relative_change,
    wilcoxon,
)
from vicinal.evaluation.store import Run, RunStore, fits_left, run_protocol
from vicinal.evaluation.tuned import tuned_baselines
from vicinal.metrics.predictions import HIGHER_IS_BETTER, PRIMARY, PRIMARY_OF_SEVERAL

__all__ = [
    "HIGHER_IS_BETTER",
    "PRIMARY",
    "PRIMARY_OF_SEVERAL",
    "Baseline",
    "Drift",
    "GroupGap",
    "GroupPart",
    "Outcome",
    "Period",
    "Run",
    "RunStore",
    "Significance",
    "Slice",
    "Summary",
    "answers",
    "average_precision",
    "average_ranks",
    "bootstrap_interval",
    "class_suspicion",
    "classification_scores",
    "coverage_curve",
    "critical_difference",
    "error_by_period",
    "error_slices",
    "find_drift",
    "fits_left",
    "friedman",
    "group_gap",
    "knn_baseline",
    "knn_grid",
    "l1_representers",
    "left_out_predictions",
    "mean_baseline",
    "nemenyi",
    "nuclear_representers",
    "paired_t",
    "regression_scores",
    "relative_change",
    "ridge_baseline",
    "run_protocol",
    "scores_by_class",
    "several_scores",
    "significance",
    "summarize",
    "suspicion",
    "target_slices",
    "tuned_baselines",
    "wilcoxon",
]
