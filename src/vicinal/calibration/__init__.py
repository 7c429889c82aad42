"""How sure is a prediction: intervals and sets that cover, under shift and drift too, abstaining, multicalibration."""

from vicinal.calibration.boosting import LevelSetBoosting, multicalibration_error
from vicinal.calibration.classes import ConformalClasses, class_scores
from vicinal.calibration.covariate_shift import ShiftedQuantile
from vicinal.calibration.cross import cross_conformal_interval, cross_conformal_sets
from vicinal.calibration.density import DensityIntervals, neighbor_density
from vicinal.calibration.density_ratio import DensityRatio, density_ratio, effective_rows
from vicinal.calibration.groups import drawn_rows, group_mass
from vicinal.calibration.label_shift import (
    ClassWeights,
    LabelShiftSets,
    class_weights,
    clopper_pearson,
    clopper_pearson_upper,
    likely_class_weights,
    point_class_weights,
)
from vicinal.calibration.local import ErrorSize
from vicinal.calibration.online import ScaleFreeOGD, StronglyAdaptive, online_radii
from vicinal.calibration.rejection import (
    answering_threshold,
    area_under_selective_curve,
    rejection_loss,
    selective_curve,
)
from vicinal.calibration.relevance import RelevanceFilter, best_f1, f1_thresholds, precision_threshold, stratified_share
from vicinal.calibration.split import (
    conformal_quantile,
    distance_scores,
    interval_quality,
    neighbor_spread,
    range_scores,
)

__all__ = [
    "ClassWeights",
    "ConformalClasses",
    "DensityIntervals",
    "DensityRatio",
    "ErrorSize",
    "LabelShiftSets",
    "LevelSetBoosting",
    "RelevanceFilter",
    "ScaleFreeOGD",
    "ShiftedQuantile",
    "StronglyAdaptive",
    "answering_threshold",
    "area_under_selective_curve",
    "best_f1",
    "class_scores",
    "class_weights",
    "clopper_pearson",
    "clopper_pearson_upper",
    "conformal_quantile",
    "cross_conformal_interval",
    "cross_conformal_sets",
    "density_ratio",
    "distance_scores",
    "drawn_rows",
    "effective_rows",
    "f1_thresholds",
    "group_mass",
    "interval_quality",
    "likely_class_weights",
    "multicalibration_error",
    "neighbor_density",
    "neighbor_spread",
    "online_radii",
    "point_class_weights",
    "precision_threshold",
    "range_scores",
    "rejection_loss",
    "selective_curve",
    "stratified_share",
]
