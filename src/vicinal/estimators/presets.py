"""Presets: sets of settings by one name, and what the settings of an estimator are that names one."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sklearn.base import BaseEstimator

from vicinal.core import check_choice


@dataclass(frozen=True)
class Preset:
    """Settings by one name.

    Attributes:
        sentence: what they are.
        paper: where they are from.
        settings: values of parameters of :class:`vicinal.estimators.NeighborRegressor`.
    """

    sentence: str
    paper: str
    settings: Mapping[str, Any]


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "nona": Preset(
            "One network of attention with SoftStep, trained with its encoders by the recipe of the NONA paper.",
            "Nearness of Neighbors Attention for Regression in Supervised Fine-Tuning, and its public code",
            MappingProxyType(
                {
                    "head": "nona",
                    "metric": "network",
                    "similarity": "l2",
                    "mask": "s2",
                    "mask_parameters": "pointwise",
                    "mask_extent": "all",
                    "simplex": "softmax",
                    "readout": "attention",
                    "max_neighbors": None,
                    "target_transform": "none",
                    "loss": None,
                    "tune": "all",
                    "hidden": (200, 25),
                    "members": 1,
                    "final_tanh": True,
                    "dropout": 0.0,
                    "max_epochs": 2000,  # the paper has a limit of 48 hours in its place
                    "batch_size": 32,
                    "learning_rate": 1e-5,
                    "encoder_learning_rate": 1e-5,
                    "weight_decay": 0.0,
                    "patience": 10,
                }
            ),
        )
    }
)
"""Presets by name."""


def settings_of(estimator: BaseEstimator) -> dict[str, Any]:
    """The parameters of an estimator, with the preset's values of those that are at their defaults.

    ``preset`` is then None: an estimator of these settings is the same one without a preset.

    Raises:
        ValueError: for a preset that does not exist.

    >>> from vicinal.estimators import NeighborRegressor
    >>> settings = settings_of(NeighborRegressor(preset="nona", batch_size=64))
    >>> settings["members"], settings["batch_size"]
    (1, 64)
    """
    settings: dict[str, Any] = estimator.get_params(deep=False)
    if settings.get("preset") is None:
        return settings
    preset, defaults = PRESETS[check_choice("preset", settings["preset"], PRESETS)], inspect.signature(type(estimator))
    for name, value in preset.settings.items():
        default = defaults.parameters[name].default
        if isinstance(settings[name], type(default)) and settings[name] == default:
            settings[name] = value
    return settings | {"preset": None}


def changed_settings(estimator: BaseEstimator) -> list[str]:
    """Names of parameters whose values differ from the defaults, those of a preset included.

    >>> from vicinal.estimators import NeighborRegressor
    >>> changed_settings(NeighborRegressor(members=2))
    ['members']
    """
    defaults = {name: one.default for name, one in inspect.signature(type(estimator)).parameters.items()}
    settings = settings_of(estimator)
    return [
        name
        for name, value in settings.items()
        if not (type(value) is type(defaults[name]) and bool(value == defaults[name]))
    ]
