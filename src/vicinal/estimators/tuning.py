"""Pretrained encoders that tune themselves within a time, where that is worth it on the rows held out."""

import datetime
import logging
import math
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from vicinal.core import replaced_file
from vicinal.core.checks import check_between
from vicinal.core.freeing import give_back
from vicinal.core.identity import IdentityWarning
from vicinal.core.progress import ending_in, shown, time_left
from vicinal.core.untrusted import read_settings
from vicinal.data import LeakWarning
from vicinal.encoders import PretrainedEncoder, TableEncoder
from vicinal.encoders.pretrained import ROWS_AT_ONCE
from vicinal.estimators.base import NeighborEstimator, unchanged_on_error
from vicinal.estimators.fitted import weighted_mean
from vicinal.estimators.fitting import device_of, with_index
from vicinal.estimators.forecasts import fit_in_time
from vicinal.estimators.inputs import Draw, HeldOut, as_table, positions_left, with_weight
from vicinal.estimators.kernel_metric import HOPELESS, PATIENCE
from vicinal.estimators.network import check_settings
from vicinal.estimators.plan import ENCODER_LEARNING_RATE, TRAINED, Timing, TuningPlan, choose_plan, read_plan
from vicinal.estimators.presets import settings_of
from vicinal.estimators.trials import Trial
from vicinal.heads.kinds import blends
from vicinal.training import TrainingSettings

_logger = logging.getLogger(__name__)

PLAN = "plan.json"

MINUTES = 10
"""What ``tune="auto"`` may take where nobody says."""

FASTER = 0.8
"""Share of the time below which bfloat16 is taken."""

_FEWEST_PROBED = 8


def may_win(trials: Sequence[Trial]) -> bool:
    """Whether a network, once it is tuned, may be better than what was chosen, the first of ``trials``."""
    power = 2 if trials and trials[0].measure == "rmse" else 1
    errors = [one.held_out**power for one in trials if one.held_out is not None and one.metric == "network"]
    least = trials[0].held_out if trials else None
    return least is None or all(error <= HOPELESS * least**power for error in errors)


class TunedEstimator(NeighborEstimator):
    """Neighbor estimators with ``tune="auto"`` and plans."""

    _named: dict[str, str] | None = None  # encoders of the frozen fit, those that it chose among them

    def _fit(
        self,
        x: Any,
        y: Any,
        ids: Any = None,
        groups: Any = None,
        validation: Any = None,
        weights: Any = None,
        times: Any = None,
    ) -> Self:
        if y is None:
            raise ValueError("y: expected labels, got None; requires y to be passed, but the target y is None")
        with unchanged_on_error(self), shown(self.verbose):
            if times is not None:
                fit_in_time(self, x, y, times, validation, {"ids": ids, "groups": groups, "sample_weight": weights})
                return self
            if weights is not None:
                x = as_table("X", x)
                x = x if hasattr(x, "__len__") else np.asarray(x)
                count, ids = len(x), np.arange(len(x)) if ids is None else ids
                weights, (x, y, ids, groups, left) = with_weight(weights, x, y, ids, groups, np.arange(count))
                validation = positions_left(validation, left, count)
            plan = read_plan(self.plan)
            tune = settings_of(self)["tune"]
            if tune != "auto" and plan is not None and plan.tune != tune:
                raise ValueError(f"tune: expected 'auto' or {plan.tune!r}, as the plan says, got {tune!r}")
            limit = math.inf if self.minutes is None else 60 * check_between("minutes", self.minutes, 0, math.inf)
            with ending_in(limit):
                if tune == "auto":
                    return self._tuned(plan, as_table("X", x), y, ids, groups, validation, weights)
                super()._fit(x, y, ids, groups, validation, weights)
            self.plan_ = plan
            return self

    def _tuned(
        self, plan: TuningPlan | None, x: Any, y: Any, ids: Any, groups: Any, validation: Any, weights: Any = None
    ) -> Self:
        """The same by ``tune="auto"``."""
        check_settings(settings_of(self), classes=hasattr(self, "predict_proba"))
        seed = self.random_state
        seed = seed if isinstance(seed, int) else int(check_random_state(seed).randint(2**31 - 1))
        labelled = {"ids": ids, "groups": groups, "validation": validation}
        labelled |= {} if weights is None else {"sample_weight": weights}
        started, self._named = time.perf_counter(), None
        # first as published: that names the encoders, is what tuning has to beat, and tells how long a row takes
        frozen = chosen = self._part("frozen", seed, tune="none", plan=None).fit(x, y, **labelled)
        self._named = frozen.named_encoders() or None
        pretrained = frozen.table_encoder.tunable
        if pretrained and chosen.folds_ is None and self.metric != "kernel" and may_win(chosen.fitted_.trials):
            if plan is None:
                plan = self._stored_plan(chosen, pretrained, x, seed, started)
            chosen = self._better(chosen, plan, seed, x, y, labelled)
        if self.index is not None and blends(chosen.network_.head):  # an index knows one metric: the better of the two
            metric = chosen.fitted_.trials[1].metric
            chosen = self._part("frozen", seed, tune="none", plan=None, metric=metric).fit(x, y, **labelled)
        for name, value in vars(chosen).items():
            if name not in self.get_params(deep=False):
                setattr(self, name, value)
        self.encoder_choices_ = frozen.encoder_choices_
        self.fitted_ = with_index(self.fitted_, settings_of(self))
        return self

    def _part(self, folder: str, seed: int, **settings: Any) -> Any:
        """An estimator of these settings, without an index, that keeps its checkpoints in a folder of its own."""
        where = None if self.checkpoint_dir is None else Path(self.checkpoint_dir) / folder
        known = {"index": None, "random_state": seed, "checkpoint_dir": where}
        settings = known | settings
        part = clone(type(self)(**settings_of(self)))
        return part.set_params(**settings if self._named is None else {"encoders": self._named, **settings})

    def _better(self, frozen: Any, plan: TuningPlan, seed: int, x: Any, y: Any, labelled: dict[str, Any]) -> Any:
        """The frozen estimator or one that is tuned by the plan, whichever has less error on the rows held out."""
        end = datetime.datetime.now() + datetime.timedelta(seconds=plan.seconds)
        _logger.info(
            "%s%s", plan.sentence(), "" if plan.tune == "none" else f", until {end:%H:%M}" * (plan.seconds > 0)
        )
        if plan.tune == "none":
            frozen.plan_ = plan
            return frozen
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentityWarning)  # the first fit has said it
            warnings.simplefilter("ignore", LeakWarning)
            parts: dict[str, Any] = {"tune": plan.tune, "plan": plan}
            if (codec := frozen.fitted_.codec).kind == "numbers":  # squared errors compare on one scale
                parts["target_transform"] = codec.transform.base.name
            tuned = self._part(".", seed, **parts)
            before = frozen.held_out_error()
            if self.loss is None and self.fair is None:  # errors of training are those of the rows held out
                tuned.reach = before / codec.unit() ** 2
            after = tuned.fit(x, y, **labelled).held_out_error()
            give_back()
        if after < (1 - PATIENCE) * before:  # few rows are held out
            _logger.info("tuning: error on the rows held out %.4g, of the frozen encoder %.4g", after, before)
            tuned.fitted_ = tuned.fitted_.chosen_over(frozen.fitted_)
            return tuned
        frozen.fitted_ = frozen.fitted_.chosen_over(tuned.fitted_)
        _logger.info(
            "tuning gained nothing on the rows held out (error %.4g, of the frozen encoder %.4g): the encoder stays as "
            "published",
            after,
            before,
        )
        frozen.plan_ = plan.model_copy(update={"tune": "none"})
        return frozen

    def held_out_error(self) -> float:
        """The same on the rows held out, also where others were left out by folds: different metrics are compared."""
        return weighted_mean(*self.fitted_.held_out_errors())

    def honest_error(self) -> float:
        """Mean squared error (of classes log-loss) on the rows held out, or out of fold, as training sees labels."""
        return self.fitted_.honest_error()

    def _stored_plan(
        self, frozen: Any, pretrained: list[PretrainedEncoder], x: Any, seed: int, started: float
    ) -> TuningPlan:
        """The plan in the folder of checkpoints, so that a run goes on by it, or one that is made now."""
        file = None if self.checkpoint_dir is None else Path(self.checkpoint_dir) / PLAN
        if file is not None and file.is_file():
            return read_settings(file, TuningPlan, "a plan", newest=1)
        rest = time.perf_counter() - started - sum(frozen.history_.seconds)
        rows = len(frozen.bank_) - len(frozen.calibration_)
        end = started + 60 * MINUTES if self.minutes is None else time.perf_counter() + time_left()
        if end - time.perf_counter() <= rest:
            return TuningPlan(tune="none", epochs=1, rows=rows)
        ways = self._probe(pretrained, x, seed)
        left = end - time.perf_counter() - rest
        by = settings_of(self)
        by_user = by["encoder_learning_rate"] != TrainingSettings.encoder_learning_rate
        plan = choose_plan(
            ways,
            rows,
            left,
            **{name: by[name] for name in TRAINED if name != "precision"},
            encoder_learning_rate=by["encoder_learning_rate"] if by_user else ENCODER_LEARNING_RATE,
        )
        plan = plan if plan.tune == "none" else plan.model_copy(update={"seconds": round(plan.seconds + rest, 1)})
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            with replaced_file(file) as aside:
                aside.write_text(plan.model_dump_json(indent=1), encoding="utf-8")
        return plan

    def _probe(self, pretrained: list[PretrainedEncoder], x: Any, seed: int) -> list[Timing]:
        """Times of a second epoch of one batch, for all layers and for the last third of them."""
        depth = min(-(-len(part.layers()) // 3) for part in pretrained)
        precisions = ["32-true", "bf16-mixed"] if self.precision == "32-true" else [self.precision]
        times = [self._epoch(x, seed, "all", precision) for precision in precisions]
        fast = -1 if times[-1] < FASTER * times[0] else 0
        ways = [Timing("all", precisions[fast], times[fast])]
        if depth:  # before the first epoch all layers run once: a quarter of what an epoch does
            tune = f"last-{depth}"
            ways.append(Timing(tune, precisions[fast], self._epoch(x, seed, tune, precisions[fast]), times[0] / 4))
        return ways

    def _epoch(self, x: Any, seed: int, tune: str, precision: str) -> float:
        """Seconds for each row that is trained on."""
        share, size = self.validation_fraction, int(settings_of(self)["batch_size"])
        size = size if device_of(settings_of(self), size).type != "cpu" else min(size, ROWS_AT_ONCE)
        train = max(_FEWEST_PROBED, min(size, round((1 - share) * len(x))))
        count = min(len(x), train + max(1, round(train * share / (1 - share))))
        some = x.iloc[np.linspace(0, len(x) - 1, count).astype(int)]
        settings = {
            "tune": tune,
            "precision": precision,
            "readout": "attention",
            "target_transform": "none",
            "plan": None,
            "loss": None,
            "fair": None,
        }
        probe = self._part("", seed, max_epochs=2, logger=None, **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what there is to say of the rows the first fit has said
            probe.set_params(checkpoint_dir=None).fit(some, np.arange(count) % 2, validation=np.arange(train, count))
        seconds: float = probe.history_.seconds[-1]  # of the second epoch, if there was time for it
        del probe
        give_back()
        return seconds / train

    def _held_out(self, encoder: TableEncoder, draw: Draw) -> HeldOut:
        held_out, plan = super()._held_out(encoder, draw), read_plan(self.plan)
        if plan is None or settings_of(self)["tune"] == "none" or plan.rows >= len(held_out.train):
            return held_out
        some = np.random.RandomState(draw.seed).permutation(held_out.train)[: plan.rows]
        return HeldOut(np.sort(some), held_out.validation, None)
