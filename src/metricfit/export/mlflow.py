"""Models for MLflow: saved, logged, and loaded by MLflow's own ``pyfunc`` loader.

MLflow imports this module to load a model, so that every model that can be saved can be served, also with free text or
a user's own classifier.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from metricfit._extras import explain_missing
from metricfit._files import parse_json
from metricfit._version import __version__
from metricfit.errors import InvalidTypeError, ModelFileError, quote
from metricfit.tabular.classifier import MetricClassifier
from metricfit.tabular.facts import model_facts
from metricfit.tabular.storage import MANIFEST
from metricfit.tabular.tuned import TunedDecisionClassifier

with explain_missing("metricfit.export.mlflow", ["mlflow"], "metricfit[mlflow]"), warnings.catch_warnings():
    warnings.simplefilter("ignore")  # MLflow warns of its own type hints
    import mlflow.models
    import mlflow.pyfunc

#: Characters that names of MLflow's metrics do not have.
NOT_ALLOWED = re.compile(r"[^\w\-. /]")
LABEL, PROBABILITY = "label", "probability of {}"
ESTIMATORS = (MetricClassifier, TunedDecisionClassifier)


def save_model(
    model: Any,
    path: str | os.PathLike[str],
    *,
    trusted: Sequence[str] = (),
    input_example: Any = None,
    signature: Any = None,
    pip_requirements: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    mlflow_model: Any = None,
) -> None:
    """Save a fitted model in MLflow's format; ``mlflow.pyfunc.load_model(path)`` loads it.

    ``predict`` of the loaded model takes a DataFrame with the columns of ``fit`` and returns a DataFrame with the
    column ``label`` and one column ``probability of ...`` per class.

    Args:
        model: A fitted MetricClassifier or TunedDecisionClassifier.
        path: A folder that does not exist.
        trusted: Names of types in the user's models that skops does not trust by itself. They are kept with the model,
            because MLflow trusts the folders that it loads.
        input_example: Some rows, from which the signature is inferred.
        signature: MLflow's signature of the model.
        pip_requirements: What MLflow installs to serve the model; by default this version of metricfit.
        metadata: Facts to keep with the model.
        mlflow_model: MLflow's own description of the model, which ``log_model`` passes.

    Raises:
        InvalidTypeError: The model is of another class.
        ValueError: It has types that are not trusted, or functions of the user, which are not stored.

    Example:
        >>> from metricfit import MetricClassifier
        >>> X = np.random.default_rng(0).normal(size=(200, 3))
        >>> model = MetricClassifier("f1", models=["linear"], random_state=0).fit(X, X[:, 0] > 1)
        >>> folder = Path(tempfile.mkdtemp(), "model")
        >>> save_model(model, folder)
        >>> list(mlflow.pyfunc.load_model(str(folder)).predict(X))
        ['label', 'probability of False', 'probability of True']
    """
    if not isinstance(model, ESTIMATORS):
        raise InvalidTypeError(
            f"save_model takes a MetricClassifier or a TunedDecisionClassifier, got {type(model).__name__}; MLflow has "
            "flavours of its own for scikit-learn and torch"
        )
    check_is_fitted(model, "decision_")
    if signature is None and input_example is not None:
        signature = mlflow.models.infer_signature(input_example, PyfuncModel(model).predict(input_example))
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "metricfit")
        model.save(data, trusted=list(trusted))
        mlflow.pyfunc.save_model(
            str(path),
            loader_module=__name__,
            data_path=str(data),
            input_example=input_example,
            signature=signature,
            pip_requirements=list(pip_requirements or [f"metricfit[tabular]=={__version__}"]),
            metadata=None if metadata is None else dict(metadata),
            mlflow_model=mlflow_model,
            model_config={"trusted": list(trusted)},
        )


def log_model(model: Any, name: str, *, registered_model_name: str | None = None, **settings: Any) -> Any:
    """Log a fitted model to the current run of MLflow.

    Args:
        model: A fitted MetricClassifier or TunedDecisionClassifier.
        name: The name of the model in the run.
        registered_model_name: A name in MLflow's model registry, to register the model too.
        settings: ``trusted``, ``input_example``, ``signature``, ``pip_requirements`` and ``metadata`` of `save_model`.

    Returns:
        MLflow's ModelInfo; ``mlflow.pyfunc.load_model(info.model_uri)`` loads the model.

    Raises:
        InvalidTypeError: The model is of another class.

    Example:
        ``info = log_model(model, "churn", input_example=X[:5])``
    """
    if not isinstance(model, ESTIMATORS):
        raise InvalidTypeError(f"log_model takes a model of metricfit, got {type(model).__name__}")
    return mlflow.models.Model.log(
        artifact_path=None,
        name=name,
        flavor=sys.modules[__name__],
        registered_model_name=registered_model_name,
        model=model,
        **settings,
    )


def log_fit(model: Any, name: str, *, report: bool = True, **settings: Any) -> Any:
    """Log a fit to the current run of MLflow: the parameters, the metrics, the report and the model.

    The metrics are ``value`` with its interval ``value_low`` and ``value_high``, ``threshold``, the value of each
    requirement by its metric, ``requirements_met``, and of a MetricClassifier the weight of each family.

    Args:
        model: A fitted MetricClassifier or TunedDecisionClassifier.
        name: The name of the model in the run.
        report: Whether to log the report of a MetricClassifier, as the artifact ``report.html``.
        settings: As in `log_model`.

    Returns:
        MLflow's ModelInfo.

    Raises:
        InvalidTypeError: The model is of another class.

    Example:
        ``info = log_fit(model, "churn", input_example=X[:5])``
    """
    info = log_model(model, name, **settings)
    facts = model_facts(model)
    low, high = facts.value_interval or (None, None)
    metrics = {"value": facts.value, "value_low": low, "value_high": high, "threshold": facts.threshold}
    metrics |= {"requirements_met": float(facts.requirements_met)}
    for each in facts.requirements:
        metrics[NOT_ALLOWED.sub("_", f"requirement {each.text.split(' ')[0]}")] = each.value
    metrics |= {NOT_ALLOWED.sub("_", f"weight {row.name}"): row.weight for row in facts.families}
    mlflow.log_metrics({key: float(value) for key, value in metrics.items() if value is not None})
    mlflow.log_params({key: str(value) for key, value in model.get_params(deep=False).items() if value is not None})
    if report and isinstance(model, MetricClassifier):
        with tempfile.TemporaryDirectory() as folder:
            page = model.report(Path(folder, "report.html"), data=name)
            mlflow.log_text(page.read_text(encoding="utf-8"), page.name)
    return info


class PyfuncModel:
    """What MLflow calls: a model whose ``predict`` returns labels and probabilities.

    Args:
        model: The fitted model, also for the rest of its methods.
    """

    def __init__(self, model: MetricClassifier | TunedDecisionClassifier) -> None:
        self.model = model

    def predict(self, rows: Any, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Return the label and the probabilities of each row; of several labels, one column for each.

        Args:
            rows: Rows with the columns of ``fit``, in any order; other columns are ignored.
            params: Nothing is read from it.
        """
        labels, probabilities = self.model.predict(rows), self.model.predict_proba(rows)
        columns: dict[str, Any] = (
            {LABEL: _one_type(labels)}
            if labels.ndim == 1
            else {f"{LABEL} {number}": labels[:, number] for number in range(labels.shape[1])}
        )
        columns |= {
            PROBABILITY.format(label): column
            for label, column in zip(self.model.classes_, probabilities.T, strict=True)
        }
        return pd.DataFrame(columns, index=rows.index if isinstance(rows, pd.DataFrame) else None)


def _load_pyfunc(path: str, model_config: Mapping[str, Any] | None = None) -> PyfuncModel:
    """Load a model for MLflow, which calls this function by its name."""
    try:
        saved = parse_json(Path(path, MANIFEST).read_bytes()).get("estimator")
    except (OSError, ValueError, AttributeError) as error:
        raise ModelFileError(f"{path} holds no model of metricfit: {error}") from error
    estimator = next((each for each in ESTIMATORS if each.__name__ == saved), None)
    if estimator is None:
        raise ModelFileError(f"{path} holds a {quote(saved)}, which is no model of metricfit")
    return PyfuncModel(estimator.load(path, trusted=list((model_config or {}).get("trusted", []))))


def _one_type(labels: Any) -> Any:
    """Return labels as text if they are of several types, as after ``refer``: a column of a table has one type."""
    return labels.astype(str) if labels.dtype == np.dtype(object) else labels
