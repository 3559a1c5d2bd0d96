"""A saved model and the columns it needs, for the commands that apply one."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from metricfit.cli.exit_codes import UserError
from metricfit.data.columns import did_you_mean
from metricfit.errors import quote
from metricfit.metrics import get_metric
from metricfit.tabular import MetricClassifier, TunedDecisionClassifier
from metricfit.tabular.model_folder import name_of_estimator


def load_model(path: Path) -> MetricClassifier:
    """Load a model from its folder, or from the folder that ``metricfit fit`` wrote."""
    return MetricClassifier.load(_folder_of(path))


def load_any_model(path: Path) -> MetricClassifier | TunedDecisionClassifier:
    """Load a MetricClassifier or a TunedDecisionClassifier."""
    folder = _folder_of(path)
    is_tuned = name_of_estimator(folder) == TunedDecisionClassifier.__name__
    return TunedDecisionClassifier.load(folder) if is_tuned else MetricClassifier.load(folder)


def _folder_of(path: Path) -> Path:
    if not path.exists():
        raise UserError(f"There is no model {path}.")
    inside = path / "model"  # where fit puts it
    return inside if inside.is_dir() else path


def check_threshold(model: MetricClassifier, threshold: float | None) -> None:
    """Refuse a threshold for a model that decides by none."""
    if threshold is not None and len(model.classes_) > 2:
        raise UserError(
            "--threshold is for two classes; of several, the largest sum of a class's log-probability and its tuned "
            "offset decides."
        )
    if threshold is not None and get_metric(model.metric).columns:
        raise UserError(f"--threshold cannot be used with {model.metric}: every row has a threshold of its own.")


def model_columns(model: MetricClassifier | TunedDecisionClassifier, frame: pd.DataFrame, source: str) -> pd.DataFrame:
    """Return the columns that the model was trained on; other columns are ignored."""
    names = list(getattr(model, "feature_names_in_", frame.columns))
    missing = [name for name in names if name not in frame.columns]
    if missing:
        listed = ", ".join(quote(name) for name in missing[:5]) + (", ..." if len(missing) > 5 else "")
        hint = did_you_mean(missing[0], [name for name in frame.columns if name not in names])
        raise UserError(f"{source} lacks {len(missing)} of the columns the model was trained on: {listed}.{hint}")
    return frame[names]
