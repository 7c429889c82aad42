"""A model folder as an MLflow model of the flavor ``pyfunc``, without pickle."""

from pathlib import Path
from typing import Any

import pandas as pd

from vicinal.core.checks import optional_import
from vicinal.estimators.banked import BankedEstimator
from vicinal.version import __version__
from vicinal.workflows.predict import AnswerSettings, answer_rows, load_predictor, read_rows


class PyfuncModel:
    """The model that MLflow calls."""

    def __init__(self, model: BankedEstimator) -> None:
        self.model = model

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Predictions as ``vicinal predict`` writes them, one line per row.

        Args:
            model_input: a table with the columns that the model reads.
            params: ``explain``, the number of neighbors to show; ``interval``, the coverage of an interval, 0 for none.
        """
        chosen = {"explain": 0, "interval": 0.0} | (params or {})
        rows = read_rows(self.model, model_input, None, lambda line: None)
        settings: AnswerSettings = {"explain": int(chosen["explain"]), "coverage": chosen["interval"] or None}
        return answer_rows(self.model, rows, **settings).flat()


def save_mlflow(folder: Path, out: Path, **options: Any) -> None:
    """Write the model in ``folder`` as a folder that ``mlflow.pyfunc.load_model`` reads.

    The folder is copied as it is, and vicinal loads the copy. Predictions have the parameters ``explain`` and
    ``interval``: see :meth:`PyfuncModel.predict`.

    Args:
        folder: of a model that predicts.
        out: folder to write.
        options: further arguments of ``mlflow.pyfunc.save_model``, such as ``signature`` or ``pip_requirements``.

    Raises:
        ValueError: if MLflow is not installed, or ``folder`` does not hold a model that predicts.
    """
    pyfunc, described = _described(folder)
    pyfunc.save_model(str(out), **(described | options))


def log_mlflow(folder: Path, name: str = "model", **options: Any) -> Any:
    """Log the model in ``folder`` to the active MLflow run; returns the result of ``mlflow.pyfunc.log_model``."""
    pyfunc, described = _described(folder)
    return pyfunc.log_model(name=name, **(described | options))


def _described(folder: Path) -> tuple[Any, dict[str, Any]]:
    """The module ``mlflow.pyfunc``, and its arguments for a model."""
    pyfunc = optional_import("mlflow", "mlflow.pyfunc", "mlflow", "mlflow-skinny")
    types, models = (optional_import("mlflow", f"mlflow.{name}", "mlflow") for name in ("types", "models"))
    encoder = load_predictor(folder).table_encoder
    extras = {part.kind for part in encoder.tunable}
    extras |= {part.kind for part in encoder.encoders if part.kind in ("image", "audio")}
    needs = f"[{','.join(sorted(extras))}]" if extras else ""
    parameters = [types.ParamSpec("explain", "integer", 0), types.ParamSpec("interval", "double", 0.0)]
    return pyfunc, {
        "loader_module": __name__,
        "data_path": str(folder),
        "pip_requirements": [f"vicinal{needs}=={__version__}"],
        "signature": models.ModelSignature(params=types.ParamSchema(parameters)),
    }


def _load_pyfunc(path: str) -> PyfuncModel:
    """Load a model; MLflow calls this."""
    return PyfuncModel(load_predictor(Path(path)))
