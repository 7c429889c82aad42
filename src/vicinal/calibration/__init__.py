"""How sure is a prediction: intervals and sets that cover, under shift and drift too, abstaining, multicalibration."""

from vicinal.calibration.boosting import LevelSetBoosting as LevelSetBoosting
from vicinal.calibration.boosting import multicalibration_error as multicalibration_error
from vicinal.calibration.classes import ConformalClasses as ConformalClasses
from vicinal.calibration.classes import class_scores as class_scores
from vicinal.calibration.covariate_shift import ShiftedQuantile as ShiftedQuantile
from vicinal.calibration.cross import cross_conformal_interval as cross_conformal_interval
from vicinal.calibration.cross import cross_conformal_sets as cross_conformal_sets
from vicinal.calibration.density import DensityIntervals as DensityIntervals
from vicinal.calibration.density import neighbor_density as neighbor_density
from vicinal.calibration.density_ratio import DensityRatio as DensityRatio
from vicinal.calibration.density_ratio import density_ratio as density_ratio
from vicinal.calibration.density_ratio import effective_rows as effective_rows
from vicinal.calibration.groups import drawn_rows as drawn_rows
from vicinal.calibration.groups import group_mass as group_mass
from vicinal.calibration.label_shift import ClassWeights as ClassWeights
from vicinal.calibration.label_shift import LabelShiftSets as LabelShiftSets
from vicinal.calibration.label_shift import class_weights as class_weights
from vicinal.calibration.label_shift import clopper_pearson as clopper_pearson
from vicinal.calibration.label_shift import clopper_pearson_upper as clopper_pearson_upper
from vicinal.calibration.label_shift import likely_class_weights as likely_class_weights
from vicinal.calibration.label_shift import point_class_weights as point_class_weights
from vicinal.calibration.local import ErrorSize as ErrorSize
from vicinal.calibration.online import ScaleFreeOGD as ScaleFreeOGD
from vicinal.calibration.online import StronglyAdaptive as StronglyAdaptive
from vicinal.calibration.online import online_radii as online_radii
from vicinal.calibration.rejection import answering_threshold as answering_threshold
from vicinal.calibration.rejection import area_under_selective_curve as area_under_selective_curve
from vicinal.calibration.rejection import rejection_loss as rejection_loss
from vicinal.calibration.rejection import selective_curve as selective_curve
from vicinal.calibration.relevance import RelevanceFilter as RelevanceFilter
from vicinal.calibration.relevance import best_f1 as best_f1
from vicinal.calibration.relevance import f1_thresholds as f1_thresholds
from vicinal.calibration.relevance import precision_threshold as precision_threshold
from vicinal.calibration.relevance import stratified_share as stratified_share
from vicinal.calibration.split import conformal_quantile as conformal_quantile
from vicinal.calibration.split import distance_scores as distance_scores
from vicinal.calibration.split import interval_quality as interval_quality
from vicinal.calibration.split import neighbor_spread as neighbor_spread
from vicinal.calibration.split import range_scores as range_scores
from vicinal.exports import export_imported as _export_imported

_export_imported(__name__)
