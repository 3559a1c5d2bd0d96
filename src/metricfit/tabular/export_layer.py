"""Exports of models. As ``report_layer``, it calls upwards: ``metricfit.export`` is loaded when a model is exported."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from sklearn.model_selection import FixedThresholdClassifier
from sklearn.utils.validation import check_is_fitted


class ModelExport:
    """Adds ``export_onnx`` and ``to_sklearn`` to a fitted classifier."""

    def to_sklearn(self, X: Any = None) -> FixedThresholdClassifier:
        """Return the model as scikit-learn's own parts, fitted, where they suffice.

        A MetricClassifier of two classes whose only family is "linear" or "extra_trees", with numbers and categories,
        becomes a pipeline in a FixedThresholdClassifier. A TunedDecisionClassifier of two classes with one estimator,
        by ``cv="prefit"`` or ``ensemble=False``, becomes that estimator in a FixedThresholdClassifier.

        Args:
            X: Rows to compare labels on, such as the training rows. By default a MetricClassifier makes up rows.

        Returns:
            The classifier. With "linear" its ``predict_proba`` are the model's probabilities; otherwise they are those
            of the estimator, without the model's calibration, and the threshold is one of these.

        Raises:
            ExportError: If scikit-learn has no parts for this model; the message says what to do.
        """
        check_is_fitted(self, "decision_")
        return import_module("metricfit.export.scikit_learn").to_sklearn(self, X)

    def export_onnx(self, path: str | os.PathLike[str], X: Any = None) -> Any:
        """Write the model as one graph of ONNX, which onnxruntime runs without torch and scikit-learn.

        The graph holds the encoding of the columns, all families, their weights, the calibration and the decision. It
        has one input ``(rows, 1)`` per column of the training table: numbers as float64 (NaN is missing), categories as
        strings (the empty string is missing), dates as seconds since 1970 in UTC. A model that was trained on an array
        has one input ``X``. The outputs are ``label`` and ``probability``, with one column per class.

        Args:
            path: The file to write. Missing folders are created.
            X: Rows to compare the graph and the model on, such as the training rows. By default rows are made up, with
                numbers around the medians, known and unknown categories, and missing values. A TunedDecisionClassifier
                needs rows, and its estimator must be a linear model, a tree or a forest of scikit-learn or a
                LGBMClassifier, behind steps that scale or impute numbers.

        Returns:
            The size, the comparison and the latency; ``print`` shows them.

        Raises:
            ExportError: If columns, families or the decision cannot be exported, such as free text, or if the graph
                does not decide as the model does. No file is written.
            ModuleNotFoundError: If the extra ``onnx`` is not installed.
        """
        check_is_fitted(self, "decision_")
        return import_module("metricfit.export.onnx").export_onnx(self, path, X)
